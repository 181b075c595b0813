"""Correlation c of two signals through feed-forward layers, and depth scales.

At a fixed point q of the variance map the correlation of pre-activations maps by
C(c) = (sigma_w^2 W(q, c q) + sigma_b^2) / Q(q), W(q, c q) = E phi(h) phi(h'). In Hermite
polynomials C(c) = sum p_n c^n with p_n >= 0 and sum p_n = 1 (Daniely, Frostig & Singer 2016), which
tells all fixed points: C is convex on [0, 1], so that besides c = 1 there is one c* in [0, 1) if
chi = C'(1) > 1, else none; in [-1, 0) there is only c = -1, if all even p_n vanish; and if p_1 = 1
every c is fixed. Near c = 1 all is done in the distance 1 - c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks, quadrature
from ._fixed_points import (
    NOISE,
    bracketed_roots,
    checked_sigmas,
    is_marginal,
    list_fixed_points,
    relative_growth,
    second_moments,
    slopes,
)
from ._pairs import pair_rows
from .activations import Activation
from .activations import activation as make_activation

__all__ = ["CorrelationFixedPoint", "DepthScales", "correlation_fixed_points", "correlation_map",
           "depth_scales"]

FloatArray = NDArray[np.float64]

_FIXED_TOLERANCE = 1e-6     # abs(Q(q)/q - 1) of a q that a user calls a fixed point


class CorrelationFixedPoint(NamedTuple):
    """A fixed point of a correlation map C.

    Attributes
    ----------
    c : correlation c* = C(c*).
    distance : 1 - c*, to full accuracy where c* is close to 1.
    slope : dC/dc at c*; at c* = 1 it is chi.
    stable : whether iteration from nearby correlations ends at c*: slope < 1 (it is never < 0).
    marginal : whether the slope is 1 to rounding (1e-12); then ``stable`` is False.
    continuum : whether every c in [-1, 1] is fixed; this one stands for all of them.
    """

    c: float
    distance: float
    slope: float
    stable: bool
    marginal: bool
    continuum: bool


class DepthScales(NamedTuple):
    """Depths, in layers, over which deviations from a fixed point change by a factor e.

    Attributes
    ----------
    q, c : the fixed point of variances, and that of correlations that iteration from any c in
        (0, 1) tends to.
    xi_q : 1 / abs(ln abs(slope)), of the variance q.
    xi_c : -1 / ln C'(c), of the correlation c.
    xi_grad : 1 / abs(ln chi), of the squared norm of gradients: they vanish for chi < 1 and
        explode for chi > 1.
    chi : sigma_w^2 E phi'(h)^2, h ~ N(0, q).
    slope : dQ/dq at q.
    """

    q: float
    c: float
    xi_q: float
    xi_c: float
    xi_grad: float
    chi: float
    slope: float


def correlation_map(
    activation: str | Activation, q: ArrayLike, sigma_w: ArrayLike, sigma_b: ArrayLike,
    c: ArrayLike,
) -> Any:
    r"""Correlation of the next layer's pre-activations of two inputs, from that of this layer's.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    q : array_like
        Variance of the pre-activations of both inputs, > 0. It is a fixed point of the variance map
        where the map is to be iterated; else the next layer has another q.
    sigma_w, sigma_b : array_like
        Standard deviations sqrt(N Var W_ij) and sqrt(Var b_i), >= 0, not both 0.
    c : array_like
        Correlation in [-1, 1]; all arguments are broadcast against each other.

    Returns
    -------
    float or ndarray
        (sigma_w^2 E phi(h) phi(h') + sigma_b^2) / (sigma_w^2 E phi(h)^2 + sigma_b^2), accurate to
        1e-12.

    Raises
    ------
    ValueError
        If an argument is out of range, or the next layer's variance is 0.

    Notes
    -----
    Poole et al. 2016; Schoenholz et al. 2017.

    Examples
    --------
    >>> from fastspec.signal import correlation_map
    >>> round(correlation_map("relu", 1.0, 2.0**0.5, 0.0, c=0.0), 12)
    0.318309886184
    """
    weight, bias = _checks.variance("sigma_w", sigma_w), _checks.variance("sigma_b", sigma_b)
    variance = _checks.variance("q", q)
    if np.any(variance == 0.0):
        raise ValueError("q must be > 0, got 0.0: signals of no size have no correlation")
    phi = make_activation(activation)
    gap = quadrature.pair_moments(phi, variance, c=c).gap
    after = weight**2 * quadrature.moments(phi, variance).second_moment + bias**2
    if np.any(after == 0.0):
        raise ValueError("sigma_w and sigma_b must not leave the next layer without variance: "
                         f"it is 0 at q = {q!r}")
    out = np.asarray(1.0 - weight**2 * gap / after)
    return out if out.ndim else float(out)


def correlation_fixed_points(
    activation: str | Activation, q: float, sigma_w: float, sigma_b: float = 0.0
) -> tuple[CorrelationFixedPoint, ...]:
    r"""All fixed points c* of the correlation map at a fixed point q of the variance map.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    q : float
        Fixed point of the variance map, > 0, to 1e-6 relative.
    sigma_w, sigma_b : float
        sqrt(N Var W_ij) > 0 and sqrt(Var b_i) >= 0.

    Returns
    -------
    tuple of CorrelationFixedPoint
        Ascending; c = 1 is always among them, and one c* in [0, 1) if chi > 1. c = -1 is one for
        odd phi without biases. For linear phi without biases every c is fixed: then c = 1 alone is
        listed, with ``continuum``. 1 - c* is accurate to 1e-12 / (chi - 1) relative as it tends
        to 0.

    Raises
    ------
    ValueError
        If an argument is out of range or q is not a fixed point.

    Notes
    -----
    Poole et al. 2016; Schoenholz et al. 2017. That there are no others follows from the Hermite
    series of the map, whose coefficients are >= 0 (Daniely, Frostig & Singer 2016).

    Examples
    --------
    >>> from fastspec.signal import correlation_fixed_points, fixed_points
    >>> q = fixed_points("tanh", 2.0, 0.5)[0].q
    >>> [(round(p.c, 6), p.stable) for p in correlation_fixed_points("tanh", q, 2.0, 0.5)]
    [(0.520946, True), (1.0, False)]
    """
    phi = make_activation(activation)
    sigma_w, sigma_b = checked_sigmas(sigma_w, sigma_b, strict=True)
    at = _one_cell(_fixed(phi, q, sigma_w, sigma_b), sigma_w, sigma_b)
    inner = float(stable_distances(phi, *at)[0])
    mirrored, linear = _symmetries(phi, *at)
    distances = [0.0] if inner == 0.0 or linear else [inner, 0.0]
    if mirrored and not linear:
        distances.insert(0, 2.0)
    slope = np.array([map_slopes(phi, *at, np.array([d]))[0] for d in distances])
    marginal = is_marginal(slope)
    return tuple(
        CorrelationFixedPoint(1.0 - d, d, float(s), bool(s < 1.0 and not m), bool(m), linear)
        for d, s, m in zip(distances, slope, marginal, strict=True))


def depth_scales(
    activation: str | Activation, sigma_w: float, sigma_b: float = 0.0, q: float | None = None
) -> DepthScales:
    r"""Depth scales of variances, correlations and gradients at a fixed point.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    sigma_w, sigma_b : float
        sqrt(N Var W_ij) > 0 and sqrt(Var b_i) >= 0.
    q : float, optional
        Fixed point of the variance map, > 0, to 1e-6 relative; by default the only stable one.
        With an unstable q, xi_q is the depth over which deviations grow by a factor e.

    Returns
    -------
    DepthScales
        In layers; inf where the slope in question is 1 to rounding (1e-12).

    Raises
    ------
    ValueError
        If an argument is out of range, q is not a fixed point, or, without ``q``, there is no
        stable fixed point > 0 or more than one.

    Notes
    -----
    Schoenholz et al. 2017, who write xi_grad for the gradient's squared norm as here.

    Examples
    --------
    >>> from fastspec.signal import depth_scales
    >>> scales = depth_scales("tanh", 1.2, 0.3)
    >>> print(f"{scales.xi_q:.4f} {scales.xi_c:.4f} {scales.xi_grad:.4f}")
    1.3981 7.1814 7.1814
    """
    phi = make_activation(activation)
    sigma_w, sigma_b = checked_sigmas(sigma_w, sigma_b, strict=True)
    q = _only_stable(phi, sigma_w, sigma_b) if q is None else _fixed(phi, q, sigma_w, sigma_b)
    at = _one_cell(q, sigma_w, sigma_b)
    slope, chi = slopes(phi, at[0], at[1])
    distance = stable_distances(phi, *at)
    chi_c = map_slopes(phi, *at, distance)
    xi_q, xi_c, xi_grad = (float(scale(x)[0]) for x in (slope, chi_c, chi))
    return DepthScales(q, 1.0 - float(distance[0]), xi_q, xi_c, xi_grad, float(chi[0]),
                       float(slope[0]))


def scale(slope: FloatArray) -> FloatArray:
    """1 / abs(ln abs(slope)); inf where the slope is 1 to rounding, 0 where it is 0 or inf."""
    with np.errstate(divide="ignore"):
        rate = np.abs(np.log(np.abs(slope)))
        return np.where(is_marginal(slope), np.inf, 1.0 / rate)


def stable_distances(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray
) -> FloatArray:
    """1 - c* of the fixed point that correlations in (0, 1) tend to; flat arrays, q > 0.

    With C(c) = 1 - d' and c = 1 - d, d'/d - 1 falls from chi - 1 at d = 0 to -C(0) at d = 1. It is
    solved in sqrt(d), in which it is smooth for activations with kinks too.
    """
    after = weight * second_moments(phi, q) + bias
    mean, _, slope_mean = quadrature.moment_rows(phi, q, np.zeros(q.size), 1)
    expansion = weight * slope_mean * q / after - 1.0
    at_zero = (weight * mean * mean + bias) / after
    out = np.where((expansion > NOISE) & (at_zero <= NOISE), 1.0, 0.0)
    cells = np.flatnonzero((expansion > NOISE) & (at_zero > NOISE))

    def excess(i: NDArray[np.intp], root: FloatArray) -> FloatArray:
        j, d = cells[i], root * root
        inside = d > 0.0
        growth = np.where(inside, 0.0, expansion[j])
        gap = pair_rows(phi, q[j[inside]], d[inside])[1]
        growth[inside] = weight[j[inside]] * gap / (after[j[inside]] * d[inside]) - 1.0
        return growth

    root = bracketed_roots(excess, np.zeros(cells.size), np.ones(cells.size))
    out[cells] = root * root
    return out


def map_slopes(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray, distance: FloatArray
) -> FloatArray:
    """dC/dc at c = 1 - distance: sigma_w^2 q E phi'(h) phi'(h') / Q(q), by Price's theorem."""
    after = weight * second_moments(phi, q) + bias
    return np.asarray(weight * q * pair_rows(phi, q, distance)[2] / after)


def _symmetries(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray
) -> tuple[bool, bool]:
    """Whether C(-1) = -1, and whether C(c) = c for every c: C(0) = 0 and C'(0) = 1."""
    after = weight * second_moments(phi, q) + bias
    opposite = weight * pair_rows(phi, q, np.full(1, 2.0))[1] / after
    middle = weight * pair_rows(phi, q, np.ones(1))[1] / after
    flat = map_slopes(phi, q, weight, bias, np.ones(1))
    mirrored = abs(float(opposite[0]) - 2.0) <= 2.0 * NOISE
    linear = abs(float(middle[0]) - 1.0) <= NOISE and abs(float(flat[0]) - 1.0) <= NOISE
    return mirrored, mirrored and linear


def _fixed(phi: Activation, q: Any, sigma_w: float, sigma_b: float) -> float:
    """A variance from a user, checked to be a fixed point."""
    q = _checks.real("q", q, low=0.0, strict=True)
    off = float(relative_growth(phi, *_one_cell(q, sigma_w, sigma_b))[0])
    if abs(off) > _FIXED_TOLERANCE:
        raise ValueError(f"q must be a fixed point of the variance map, got {q!r}, which the map "
                         f"for {phi!r}, sigma_w = {sigma_w:g}, sigma_b = {sigma_b:g} sends to "
                         f"{q * (1.0 + off):.6g}")
    return q


def _one_cell(
    q: float, sigma_w: float, sigma_b: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """q, sigma_w^2 and sigma_b^2 as arrays of one."""
    return np.array([q]), np.array([sigma_w * sigma_w]), np.array([sigma_b * sigma_b])


def _only_stable(phi: Activation, sigma_w: float, sigma_b: float) -> float:
    points = list_fixed_points(phi, sigma_w, sigma_b)
    where = f"for {phi!r}, sigma_w = {sigma_w:g}, sigma_b = {sigma_b:g}"
    if points and points[0].continuum:
        raise ValueError(f"every q is a fixed point {where}: choose one by q=")
    stable = [point.q for point in points if point.stable]
    alive = [q for q in stable if q > 0.0]
    if len(stable) > 1:
        raise ValueError(f"there are several stable fixed points {where}: choose one of q = "
                         f"{', '.join(f'{q:.12g}' for q in alive)} by q=")
    if alive:
        return alive[0]
    if stable:
        raise ValueError(f"the only stable fixed point is q = 0, where the signal dies, {where}")
    others = ", ".join(f"{point.q:.6g}" for point in points) or "none"
    raise ValueError(f"there is no stable fixed point {where}; fixed points: {others}")
