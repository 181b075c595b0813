"""Gaussian expectations E f(h), h ~ N(mean, q): moments of activations, and of any function.

Also of activations at two correlated points. Closed forms where there are any; compiled panels for
the other built-in activations; adaptive panels with an error estimate for users' functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks, _linear_excess, _pairs
from ._adaptive import Integrand, adaptive, deviation_tolerance
from ._closed_moments import closed_moments
from .activations import Activation, array_function

__all__ = ["Expectation", "Moments", "PairMoments", "expectation", "linear_excess", "moments",
           "pair_moments", "slope_moments", "slope_variance", "variance_slope"]

FloatArray = NDArray[np.float64]


class Moments(NamedTuple):
    """Gaussian moments of an activation; floats, or arrays like q.

    Attributes
    ----------
    mean : E phi(h).
    second_moment : E phi(h)^2.
    slope_mean : mu_1 = E phi'(h)^2.
    slope_second : mu_2 = E phi'(h)^4.
    """

    mean: Any
    second_moment: Any
    slope_mean: Any
    slope_second: Any


class PairMoments(NamedTuple):
    """Gaussian moments of an activation at two correlated points; floats, or arrays like q.

    Attributes
    ----------
    product : W = E phi(h) phi(h').
    gap : E (phi(h) - phi(h'))^2 / 2 = E phi(h)^2 - W.
    slope_product : E phi'(h) phi'(h') = (1/q) dW/dc.
    """

    product: Any
    gap: Any
    slope_product: Any


class Expectation(NamedTuple):
    """A Gaussian expectation and the estimate of its absolute error."""

    value: float
    error: float


def moments(activation: Activation, q: ArrayLike, mean: ArrayLike = 0.0) -> Moments:
    r"""E phi, E phi^2, E phi'^2 and E phi'^4 for h ~ N(mean, q).

    Parameters
    ----------
    activation : Activation
    q : array_like
        Variance of h, >= 0; 0 stands for the limit q -> 0+ (relu: E phi'^2 = 1/2).
    mean : array_like
        Mean of h; broadcast against ``q``.

    Returns
    -------
    Moments
        Each entry accurate to 1e-13 relative (E phi: relative to E|phi|). alpha_relu has
        infinite slope_mean for alpha <= 1/2 and infinite slope_second for alpha <= 3/4.

    Raises
    ------
    ValueError
        If q < 0, a value is not finite, or a user's function grows too fast to have moments.

    Warns
    -----
    ConvergenceWarning
        If a user's function is too rough: the estimated error exceeds 1e-12.

    Notes
    -----
    mu_k = E phi'(h)^{2k} are the moments of the slope law (Pennington, Schoenholz & Ganguli
    2018); E phi, E phi^2 and mu_1 drive residual networks (Tarnowski et al. 2018, eqs. 26, 36-39).

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import moments
    >>> m = moments(activation("tanh"), 1.0)
    >>> print(round(m.second_moment, 12), round(m.slope_mean, 12))
    0.394294490398 0.464402902448
    """
    return Moments(*_shaped_rows(activation, q, mean, 2))


def slope_moments(
    activation: Activation, q: ArrayLike, order: int, mean: ArrayLike = 0.0
) -> list[Any]:
    """[mu_1, ..., mu_order] with mu_k = E phi'(h)^{2k}, h ~ N(mean, q).

    Parameters are those of `moments`; ``order`` is a whole number >= 1. Accurate to 1e-13 relative
    for order <= 8.

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import slope_moments
    >>> slope_moments(activation("hard_tanh"), 1e-3, 3)
    [1.0, 1.0, 1.0]
    """
    return _shaped_rows(activation, q, mean, _checks.positive_integer("order", order))[2:]


def slope_variance(activation: Activation, q: ArrayLike, mean: ArrayLike = 0.0) -> Any:
    """Var d / (E d)^2 = mu_2 / mu_1^2 - 1 for d = phi'(h)^2, without cancellation.

    Where the slopes hardly vary it is taken from deviations: its relative error is about
    2e-16 / sqrt(variance), up to 100 times that for users' functions. Infinite where mu_2 is.

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import slope_variance
    >>> round(slope_variance(activation("relu"), 1.0), 12)
    1.0
    """
    q_array, mean_array, shape = _broadcast(q, mean)
    _, _, first, second = moment_rows(activation, q_array, mean_array, 2)
    if np.any(first == 0.0):
        i = int(np.argmin(first))
        raise ValueError(f"phi' of {activation!r} vanishes at q = {q_array[i]:g}, "
                         f"mean = {mean_array[i]:g}: its relative variance is undefined")
    out = np.full(q_array.size, np.inf)
    finite = np.isfinite(second)
    out[finite] = second[finite] / first[finite] ** 2 - 1.0
    small = np.flatnonzero(out < 0.01)
    if small.size:
        out[small] = _variance_by_deviation(activation, q_array[small], mean_array[small])
    return _shaped(out, shape)


def pair_moments(
    activation: Activation, q: ArrayLike, *, c: ArrayLike | None = None,
    distance: ArrayLike | None = None,
) -> PairMoments:
    r"""E phi(h) phi(h'), E (phi(h) - phi(h'))^2 / 2 and E phi'(h) phi'(h') for correlated h, h'.

    Parameters
    ----------
    activation : Activation
    q : array_like
        Variance of h and of h', both centred, >= 0; 0 stands for the limit q -> 0+.
    c : array_like
        Correlation of h and h', in [-1, 1]; broadcast against ``q``.
    distance : array_like
        1 - c, in [0, 2], in place of ``c``: nothing is lost as h' -> h.

    Returns
    -------
    PairMoments
        product is accurate to 1e-12 of E phi^2, slope_product to 1e-12 of E phi'^2 and gap to 1e-12
        relative, also where it is tiny: it tends to distance q E phi'^2. At distance 0 they are
        exactly E phi^2, E phi'^2 and 0. alpha_relu has infinite slope_product there for
        alpha <= 1/2. Users' functions: to 1e-11, if they declare their kinks.

    Raises
    ------
    ValueError
        If an argument is out of range, or both or none of ``c`` and ``distance`` are given.

    Warns
    -----
    ConvergenceWarning
        If a user's function is too rough: the estimated error exceeds 1e-9.

    Notes
    -----
    W is the transform that drives correlations (Yang & Schoenholz 2017); dW/dc = q E phi' phi' is
    Price's theorem. Arc-cosine kernels: Cho & Saul 2009; erf: Williams 1997.

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import pair_moments
    >>> pair = pair_moments(activation("relu"), 2.0, c=0.0)
    >>> print(round(pair.product, 12), pair.slope_product)
    0.318309886184 0.25
    >>> near = pair_moments(activation("tanh"), 1.0, distance=1e-200)
    >>> print(f"{near.gap:.10g}")
    4.644029024e-201
    """
    if (c is None) == (distance is None):
        raise ValueError("give exactly one of c and distance, got "
                         + ("none" if c is None else "both"))
    apart = (_within("distance", distance, 0.0, 2.0) if c is None
             else 1.0 - _within("c", c, -1.0, 1.0))
    (q_array, apart), shape = _flat(_checks.variance("q", q), apart)
    return PairMoments(*(_shaped(row, shape) for row in
                         _pairs.pair_rows(activation, q_array, apart)))


def variance_slope(activation: Activation, q: ArrayLike) -> Any:
    r"""d/dq E phi(h)^2 = E [h phi(h) phi'(h)] / q, h ~ N(0, q).

    Parameters
    ----------
    activation : Activation
    q : array_like
        Variance of h, >= 0; 0 stands for the limit q -> 0+.

    Returns
    -------
    float or ndarray
        Accurate to 1e-13 relative. Users' functions: to 1e-13 of E abs(h phi phi') / q, and
        q = 1e-8 stands for 0.

    Raises
    ------
    ValueError
        If q < 0 or not finite.

    Notes
    -----
    sigma_w^2 times this is the slope of the variance map (Schoenholz et al. 2017).

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import variance_slope
    >>> variance_slope(activation("relu"), [0.0, 3.0])
    array([0.5, 0.5])
    """
    q_array = _checks.variance("q", q)
    return _shaped(_linear_excess.variance_slopes(activation, q_array.ravel()), q_array.shape)


def linear_excess(activation: Activation, q: ArrayLike) -> Any:
    r"""q E phi'(h)^2 - E phi(h)^2, h ~ N(0, q), without cancellation.

    Zero for linear phi. On the critical line sigma_w^2 E phi'^2 = 1 with fixed point q it is
    sigma_b^2 E phi'^2; where it is negative, q is the fixed point of no critical network.

    Parameters
    ----------
    activation : Activation
    q : array_like
        Variance of h, >= 0.

    Returns
    -------
    float or ndarray
        Accurate to 1e-12 relative (away from its zeros) for built-in activations: tanh gives
        4 q^3 / 3 as q -> 0. For users' functions it is the plain difference, with an error about
        1e-15 q E phi'^2. Infinite for alpha_relu with alpha <= 1/2.

    Raises
    ------
    ValueError
        If q < 0 or not finite.

    Notes
    -----
    With L(h) = a h for h > 0, b h for h < 0, and r = phi - L, integration by parts gives exactly
    q E r'^2 - E r^2 - 2 (a - b) phi(0) sqrt(q / (2 pi)).

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.quadrature import linear_excess
    >>> print(f"{linear_excess(activation('tanh'), 1e-6):.12g}")
    1.33332266674e-18
    """
    q_array = _checks.variance("q", q)
    return _shaped(_linear_excess.excesses(activation, q_array.ravel()), q_array.shape)


def expectation(
    function: Callable[[Any], Any], q: float, mean: float = 0.0, kinks: Sequence[float] = ()
) -> Expectation:
    """E f(h), h ~ N(mean, q), of any function of one number, with an error estimate.

    Adaptive: 20-point Gauss-Legendre panels, cut at the kinks, are halved until the halves agree
    with the whole. A feature much narrower than both the standard deviation and 1 can be missed
    unless a kink points at it.

    Parameters
    ----------
    function : callable
        Elementwise on NumPy arrays, or a function of one number; hashable, double precision.
    q, mean : float
        Variance >= 0 and mean of h. q = 0 stands for q -> 0+.
    kinks : sequence of float
        Where the function or a derivative of it jumps. They cost accuracy only in time if left out.

    Returns
    -------
    Expectation
        value and error (absolute, an upper estimate).

    Raises
    ------
    ValueError
        If an argument is out of range or the function is not finite where it matters.

    Warns
    -----
    ConvergenceWarning
        If the error exceeds 1e-12 E|f|.

    Examples
    --------
    >>> import numpy as np
    >>> from fastspec.quadrature import expectation
    >>> round(expectation(np.cos, 2.0).value, 14) == round(float(np.exp(-1.0)), 14)
    True
    """
    variance = _checks.real("q", q, low=0.0)
    centre = _checks.real("mean", mean)
    places = np.array([_checks.real("kinks", kink) for kink in kinks], dtype=float)
    f = array_function(function)
    value, error = adaptive(lambda h: f(h)[np.newaxis], variance, centre, places)
    return Expectation(float(value[0]), float(error[0]))


def _shaped_rows(activation: Activation, q: ArrayLike, mean: ArrayLike, order: int) -> list[Any]:
    q_array, mean_array, shape = _broadcast(q, mean)
    return [_shaped(row, shape) for row in moment_rows(activation, q_array, mean_array, order)]


def _broadcast(q: ArrayLike, mean: ArrayLike) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """q and mean as flat arrays of one size, and their common shape."""
    (q_array, mean_array), shape = _flat(_checks.variance("q", q), _checks.finite("mean", mean))
    return q_array, mean_array, shape


def _flat(*arrays: FloatArray) -> tuple[list[FloatArray], tuple[int, ...]]:
    """The arrays broadcast against each other, as flat copies, and their common shape."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return [np.broadcast_to(array, shape).flatten() for array in arrays], shape


def _within(name: str, value: Any, low: float, high: float) -> FloatArray:
    """``value`` as an array of numbers in [low, high], or ValueError."""
    array = _checks.finite(name, value)
    outside = (array < low) | (array > high)
    if np.any(outside):
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], "
                         f"got {float(array[outside].flat[0])!r}")
    return array


def _shaped(row: FloatArray, shape: tuple[int, ...]) -> Any:
    return row.reshape(shape) if shape else float(row[0])


def moment_rows(activation: Activation, q: FloatArray, mean: FloatArray, order: int) -> FloatArray:
    """E phi, E phi^2, E d, ..., E d^order, each over the flat arrays q and mean."""
    if not activation.is_builtin:
        columns = [_user_moments(activation, *at, order) for at in zip(q, mean, strict=True)]
        return np.array(columns).T.reshape(2 + order, q.size)
    out = np.empty((2 + order, q.size))
    closed, values = closed_moments(activation.name, activation.parameter, mean, q, order)
    out[:, closed] = values
    rest = np.flatnonzero(~closed)
    if rest.size:
        part = np.empty((2 + order, rest.size))
        _kernels().moments(*_described(activation), mean[rest], q[rest], part)
        out[:, rest] = part
    if activation.odd:
        out[0, mean == 0.0] = 0.0
    return out


def _kernels() -> Any:
    from . import _gauss_kernels

    return _gauss_kernels


def _described(activation: Activation) -> tuple[int, float, FloatArray]:
    """A built-in activation as the kernels take it: code, parameter, kinks."""
    return (_kernels().code_of(activation.name), activation.parameter,
            np.array(activation.kinks, dtype=float))


def _functions(activation: Activation) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    assert activation.functions is not None, "built-in activations go to the kernels"
    return activation.functions


def _variance_by_deviation(activation: Activation, q: FloatArray, mean: FloatArray) -> FloatArray:
    out = np.empty(q.size)
    if activation.is_builtin:
        _kernels().slope_variance(*_described(activation), mean, q, out)
        return out
    kinks = np.array(activation.kinks, dtype=float)
    slope = array_function(_functions(activation)[1])

    def squared_slope(h: FloatArray) -> FloatArray:
        return np.asarray(slope(h)[np.newaxis] ** 2)

    for i in range(q.size):
        centre = adaptive(squared_slope, q[i], mean[i], kinks)[0]
        deviation = partial(_squared_deviation, squared_slope, centre)
        tolerance = deviation_tolerance(deviation, q[i], mean[i], kinks)
        out[i] = adaptive(deviation, q[i], mean[i], kinks, tolerance)[0][0]
    return out


def _squared_deviation(function: Integrand, centre: FloatArray, h: FloatArray) -> FloatArray:
    return (function(h) / centre - 1.0) ** 2


def _user_moments(activation: Activation, q: float, mean: float, order: int) -> FloatArray:
    phi, slope = (array_function(f) for f in _functions(activation))

    def rows(h: FloatArray) -> FloatArray:
        f, d = phi(h), slope(h) ** 2
        return np.stack([f, f * f] + [d**k for k in range(1, order + 1)])

    return adaptive(rows, q, mean, np.array(activation.kinks, dtype=float))[0]
