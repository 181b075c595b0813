"""Monte Carlo of real networks: what the theory's laws are held against.

The forward pass is the real one: every slope matrix D^l = diag phi'(h^l) is taken at the
pre-activations of the same weights that stand in the Jacobian, so nothing here assumes freeness.
Only NumPy is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from ._forward import draw_input, layer_sizes, run
from .blocks import ENSEMBLES
from .laws import ChangedVariable

__all__ = ["jacobian_singular_values", "ks_distance", "resolve_atoms", "split_outliers"]

FloatArray = NDArray[np.float64]

# Rounding of an SVD, and of the product that went into it, against the largest singular value.
_RESOLUTION = 1e-12
# How far from an edge, in units of the distance that holds one eigenvalue in the mean, a
# singular value must lie to be called an outlier. One unit is (3 pi/2)^(2/3) = 2.81 Tracy-Widom
# units at a square-root edge, so 3 units are passed by chance about once in 1e7 draws.
_OUTLIER_UNITS = 3.0


def jacobian_singular_values(
    net: Any,
    width: int,
    *,
    seed: int | np.random.Generator,
    input: ArrayLike | None = None,  # noqa: A002 - the network's input is called that
    progress: bool = False,
) -> FloatArray:
    r"""Singular values of the input-output Jacobian of one randomly drawn network.

    The network is drawn and run: h^l = W^l x^{l-1} + b^l, x^l = phi(h^l) + a x^{l-1}
    (a = 0 for feed-forward nets), and J = prod_{l=L..1} (a I + D^l W^l) with
    D^l = diag phi'(h^l) (Tarnowski et al. 2018, eqs. 1-4; Pennington, Schoenholz & Ganguli 2018).
    Branches of several layers are run as such. With batch norm the units of a layer stand for the
    batch: h is divided by its root mean square over them, whose own derivative is left out of J.

    Parameters
    ----------
    net : ResNet or FeedForward
        The network. Its weights are Gaussian with variance ``weight_variance / width``, or
        Haar-distributed orthogonal matrices scaled so that W W^T = ``weight_variance`` I;
        its biases are N(0, sigma_b^2).
    width : int
        Width N of every layer, >= 1; for a net with ``widths``, of a layer of width 1 there.
        Time grows like depth * N^3.
    seed : int or numpy.random.Generator
        Seed >= 0, or a generator, which is advanced. The same seed gives the same network.
    input : array_like, shape (N_0,), optional
        The input x^0, used as given. By default its direction is uniformly random, with
        ``|x^0|^2 / N`` exactly ``net.input_second_moment`` (and with a mean of exactly
        ``net.input_mean``, if that is not 0). For a feed-forward net with ``q="fixed_point"``
        the second moment is (q* - sigma_b^2) / sigma_w^2 instead, so that already the first
        layer has pre-activations of variance q*.
    progress : bool
        Show a progress bar over the layers on stderr (needs tqdm, the extra ``progress``).

    Returns
    -------
    ndarray, shape (N_L,)
        Singular values in descending order, the roots of the eigenvalues of J J^T: zeros are
        added where the net has fewer inputs than outputs. Each is accurate to about 1e-14 times
        the largest; smaller ones (deep feed-forward nets have them) are rounding noise.

    Raises
    ------
    ValueError
        If an argument is out of its range, the input has the wrong shape or is not finite.
    FloatingPointError
        If the forward pass or the Jacobian overflows.
    ImportError
        If ``progress`` is asked for and tqdm is missing.

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.simulate import jacobian_singular_values
    >>> net = fs.ResNet(depth=4, activation="tanh", sigma_w=0.5)
    >>> jacobian_singular_values(net, 50, seed=0).shape
    (50,)
    """
    sizes = layer_sizes(net, _checks.positive_integer("width", width))
    rng = _check_seed(seed)
    _checks.choice("net.weights", net.weights, ENSEMBLES)
    x = draw_input(net, sizes[0], rng) if input is None else _check_input(input, sizes[0])
    with np.errstate(over="ignore", invalid="ignore"):
        jacobian = run(net, x, sizes, rng, progress)[1]
    values = np.linalg.svd(jacobian, compute_uv=False)
    return np.concatenate([values, np.zeros(sizes[-1] - values.size)])


def _check_seed(seed: Any) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an int >= 0 or a numpy.random.Generator, got {seed!r}")
    return np.random.default_rng(int(seed))


def _check_input(values: ArrayLike, width: int) -> FloatArray:
    x = _checks.finite("input", values)
    if x.shape != (width,):
        raise ValueError(f"input must have shape ({width},), got {x.shape}")
    return x


def ks_distance(
    singular_values: ArrayLike, law: Any, *, squared: bool = False, resolution: float = _RESOLUTION
) -> float:
    r"""Kolmogorov-Smirnov distance between measured singular values and a law, atoms included.

    sup over x of |F_n(x) - F(x)|, with F_n the empirical distribution of the squared singular
    values and F = ``law.cdf``. At an atom of the law both sides of its jump are compared. The
    rounding of an SVD is allowed for: values within ``resolution`` (times the largest) of the
    root of an atom count as that atom, and values below ``resolution`` times the largest, which
    are noise, are only known to be that small, so F_n and F are compared from there upwards. The
    singular values of a ReLU feed-forward net that come out as 1e-17 thus count as zeros.

    Parameters
    ----------
    singular_values : array_like
        Measured singular values, any shape; several draws may be pooled.
    law : SpectralLaw
        The law, in any variable (``law.singular_values()`` is the same law).
    squared : bool
        Set it if the values are already eigenvalues of J J^T, not singular values.
    resolution : float
        Relative accuracy of the singular values, in [0, 1).

    Returns
    -------
    float
        The distance, in [0, 1]. About 1 / width for spectra (eigenvalues repel each other).

    Raises
    ------
    ValueError
        If there are no values, or they are negative or not finite, or the resolution is out of
        range.
    ArithmeticError
        If the law cannot give its distribution function at one of the values, or the squares of
        the values leave the range of a double.

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.simulate import ks_distance
    >>> law = fs.FussCatalan(1)
    >>> round(ks_distance(law.icdf([0.125, 0.375, 0.625, 0.875]), law, squared=True), 6)
    0.125
    """
    s = _roots(singular_values, squared)
    law = eigenvalue_law(law)
    _check_resolution(resolution)
    noise = resolution * s[-1]
    lam, counts = np.unique(np.maximum(_snap(s, law, noise)[0], noise**2), return_counts=True)
    right = np.cumsum(counts) / s.size
    left = np.concatenate(([0.0], right[:-1]))
    cdf = np.asarray(law.cdf(lam), dtype=float)
    if np.isnan(cdf).any():
        raise ArithmeticError("the law's cdf is NaN at some of the measured values")
    atoms = _atoms(law)
    cdf_left = cdf - np.array([atoms[atoms[:, 0] == x, 1].sum() for x in lam])
    from_below = np.abs(left - cdf_left)
    if lam[0] <= noise**2:
        from_below[0] = 0.0  # what lies below the resolution is not compared
    return float(max(np.abs(right - cdf).max(), from_below.max()))


def split_outliers(
    singular_values: ArrayLike, law: Any, *, squared: bool = False
) -> tuple[FloatArray, FloatArray]:
    r"""Split measured singular values into the bulk that a law describes and the outliers.

    A real network adds single values that the law of the bulk does not contain: a ReLU residual
    net always has one at the top, because J x^0 = x^L for a homogeneous activation without bias.
    A value is called an outlier if it lies beyond the smallest or largest point of the law
    (atoms included) by more than three times the distance from that end within which the law has
    mass 1/width. The fluctuations of the extreme eigenvalues of a random
    matrix (Tracy-Widom) stay within that, so an end of the bulk is not mistaken for an outlier.

    Parameters
    ----------
    singular_values : array_like, shape (width,) or (draws, width)
        Measured singular values, any order; each row is one draw.
    law : SpectralLaw
        The law of the bulk, in any variable.
    squared : bool
        Set it if the values are already eigenvalues of J J^T, not singular values.

    Returns
    -------
    bulk, outliers : ndarray
        All draws together, both ascending, in the units they were given in.

    Raises
    ------
    ValueError
        If there are no values, or they are negative or not finite.

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.simulate import split_outliers
    >>> split_outliers([0.8, 1.0, 1.3, 4.0], fs.ResNetLimit(0.125))[1]
    array([4.])
    """
    values = _check_values(singular_values)
    lam = values if squared else _roots(values, False) ** 2
    law = eigenvalue_law(law)
    width = np.atleast_1d(singular_values).shape[-1]
    low, high = ends_of(law)
    inner_low, inner_high = np.asarray(law.icdf(np.array([1.0, width - 1.0]) / width))
    slack = _RESOLUTION * high
    above = lam > high + _OUTLIER_UNITS * (high - inner_high) + slack
    below = lam < low - _OUTLIER_UNITS * (inner_low - low) - slack
    outside = above | below
    return values[~outside], values[outside]


def resolve_atoms(
    singular_values: ArrayLike, law: Any, *, squared: bool = False, resolution: float = _RESOLUTION
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Squared singular values, those at an atom of the law put exactly on it.

    Parameters
    ----------
    singular_values, law, squared, resolution
        As in `ks_distance`.

    Returns
    -------
    lam : ndarray
        Squared singular values, ascending.
    at_atom : ndarray of bool
        Which of them are at an atom.

    Raises
    ------
    ValueError
        As in `ks_distance`.

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.simulate import resolve_atoms
    >>> relu = fs.FeedForward(depth=2, activation="relu", sigma_w=2**0.5).spectrum()
    >>> lam, at_atom = resolve_atoms([0.7, 1e-17, 1.2], relu)
    >>> float(lam[0]), at_atom.tolist()
    (0.0, [True, False, False])
    """
    s = _roots(singular_values, squared)
    _check_resolution(resolution)
    law = eigenvalue_law(law)
    return _snap(s, law, resolution * s[-1])


def _snap(s: FloatArray, law: Any, noise: float) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Squares of s; where s is within ``noise`` of the root of an atom, the atom itself."""
    lam = s**2
    at_atom = np.zeros(s.shape, dtype=bool)
    for location, _ in _atoms(law):
        near = np.abs(s - np.sqrt(location)) <= noise
        lam[near] = location
        at_atom |= near
    return lam, at_atom


def _atoms(law: Any) -> FloatArray:
    return np.asarray(law.atoms, dtype=float).reshape(-1, 2)


def _check_resolution(resolution: float) -> None:
    if not 0.0 <= resolution < 1.0:
        raise ValueError(f"resolution must be in [0, 1), got {resolution!r}")


def eigenvalue_law(law: Any) -> Any:
    """The law in lambda, whichever variable it is given in."""
    return law.law if isinstance(law, ChangedVariable) else law


def ends_of(law: Any) -> tuple[float, float]:
    """Smallest and largest point of a law, atoms included."""
    points = [end for interval in law.support() for end in interval]
    points += list(_atoms(law)[:, 0])
    return float(min(points)), float(max(points))


def _check_values(values: ArrayLike) -> FloatArray:
    """Singular values or their squares, flat and ascending."""
    flat = np.sort(np.asarray(values, dtype=float).ravel())
    if flat.size == 0:
        raise ValueError("singular_values must hold at least one value, got none")
    if not np.isfinite(flat).all() or flat[0] < 0.0:
        raise ValueError("singular_values must be finite and >= 0")
    return flat


def _roots(values: ArrayLike, squared: bool) -> FloatArray:
    """Singular values, flat and ascending."""
    flat = _check_values(values)
    s = np.sqrt(flat) if squared else flat
    if s[-1] > 0.0 and not 1e-140 < s[-1] < 1e150:
        raise ArithmeticError("the squares of these singular values leave the range of a double")
    return s
