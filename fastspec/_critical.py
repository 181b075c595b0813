"""Critical points and lines: where chi = sigma_w^2 E phi'(h)^2 = 1 at the fixed point q.

At every q > 0 it happens for sigma_w^2 = 1 / E phi'^2 and sigma_b^2 = q - sigma_w^2 E phi^2 =
(q E phi'^2 - E phi^2) / E phi'^2, if that is >= 0 (Pennington, Schoenholz & Ganguli 2018;
Schoenholz et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks, quadrature
from ._fixed_points import NOISE, FixedPoint, is_marginal, list_fixed_points, variance_table
from .activations import Activation
from .activations import activation as make_activation

__all__ = ["CriticalLine", "CriticalPoint", "critical_line", "critical_point", "critical_points"]

FloatArray = NDArray[np.float64]

_LINE = (1e-6, 1e2, 200)    # ends and number of the q of a line, unless given
_POINT_TOLERANCE = 1e-12    # relative, of the q of an extremum of sigma_b^2


@dataclass(frozen=True)
class CriticalPoint:
    """A pair (sigma_w, sigma_b) at which chi = 1 at the fixed point q; made by `critical_point`.

    Attributes
    ----------
    q : float
        Fixed point of the variance map with chi = 1. 0 is the limit q -> 0+.
    sigma_w, sigma_b : float
        sqrt(N Var W_ij) and sqrt(Var b_i).
    sigma_b_squared : float
        To 1e-12 relative; for users' functions to 4e-15 q absolute, and less counts as 0.
    slope : float
        Slope dQ/dq of the variance map at q.
    stable : bool
        Whether q returns to this fixed point: slope < 1. If not, layers leave it, and a network
        with these sigmas is critical only in its first layers.
    marginal : bool
        Whether the slope is 1 to rounding (1e-12); then ``stable`` is False.
    fixed_points : tuple of FixedPoint
        All fixed points of the variance map at these sigmas: where iteration ends if not here.
    """

    q: float
    sigma_w: float
    sigma_b: float
    sigma_b_squared: float
    slope: float
    stable: bool
    marginal: bool
    fixed_points: tuple[FixedPoint, ...]


@dataclass(frozen=True, eq=False)
class CriticalLine:
    """The critical line as a curve in q; made by `critical_line`. Arrays of shape (n,).

    Attributes
    ----------
    q : ndarray
        Fixed points.
    sigma_w : ndarray
        1 / sqrt(E phi'^2).
    sigma_b : ndarray
        sqrt(sigma_b_squared); NaN where that is negative.
    sigma_b_squared : ndarray
        q - sigma_w^2 E phi^2, to 1e-12 relative (users' functions: to 4e-15 q absolute, and less
        counts as 0).
    slope : ndarray
        dQ/dq at q.
    stable : ndarray of bool
        slope < 1, and the point exists: only there does q stay on the critical line.
    marginal : ndarray of bool
        The slope is 1 to rounding (1e-12), and the point exists.
    exists : ndarray of bool
        sigma_b_squared >= 0: there is a critical network with this q.
    """

    q: FloatArray
    sigma_w: FloatArray
    sigma_b: FloatArray
    sigma_b_squared: FloatArray
    slope: FloatArray
    stable: NDArray[np.bool_]
    marginal: NDArray[np.bool_]
    exists: NDArray[np.bool_]

    def __len__(self) -> int:
        return self.q.size

    def to_dict(self) -> dict[str, list[Any]]:
        """The arrays as lists, by name."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        return (f"CriticalLine({len(self)} points, q {self.q.min():.6g} .. {self.q.max():.6g}, "
                f"{int(self.exists.sum())} exist, {int(self.stable.sum())} stable)")


def critical_line(activation: str | Activation, q: ArrayLike | None = None) -> CriticalLine:
    r"""The critical line chi = 1 as a curve in q.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    q : array_like, shape (n,), optional
        Fixed points, > 0; by default 200 from 1e-6 to 1e2 in equal ratios.

    Returns
    -------
    CriticalLine

    Raises
    ------
    ValueError
        If q is out of range, or E phi'^2 is 0 or infinite (alpha_relu with alpha <= 1/2).

    Notes
    -----
    Pennington, Schoenholz & Ganguli 2018. relu, leaky_relu and linear have a point instead of a
    line: sigma_w and sigma_b = 0 are the same for every q.

    Examples
    --------
    >>> from fastspec.signal import critical_line
    >>> line = critical_line("tanh", [0.1, 1.0, 10.0])
    >>> print(line.sigma_w.round(4), line.sigma_b.round(4))
    [1.0852 1.4674 2.4576] [0.0288 0.3885 2.3295]
    """
    phi = make_activation(activation)
    variances = np.geomspace(*_LINE) if q is None else np.atleast_1d(_checks.finite("q", q))
    if variances.ndim != 1 or variances.size == 0 or np.any(variances <= 0.0):
        raise ValueError(f"q must be one number > 0 or a sequence of them, got {q!r}")
    weight = _critical_weights(phi, variances)
    bias = _critical_biases(phi, variances)
    slope = weight * quadrature.variance_slope(phi, variances)
    exists = bias >= 0.0
    marginal = is_marginal(slope) & exists
    return CriticalLine(
        variances, np.sqrt(weight), np.sqrt(np.where(exists, bias, np.nan)), bias, slope,
        (slope < 1.0) & exists & ~marginal, marginal, exists)


def critical_point(
    activation: str | Activation, *, q: float | None = None, sigma_b: float | None = None
) -> CriticalPoint:
    r"""The critical point chi = 1 at a given fixed point, or with given biases.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    q : float
        Fixed point, > 0. Give either ``q`` or ``sigma_b``.
    sigma_b : float
        sqrt(Var b_i), >= 0.

    Returns
    -------
    CriticalPoint
        Look at ``stable``: on the critical lines of silu, gelu and mish q leaves the fixed point,
        and ``fixed_points`` says for where.

    Raises
    ------
    ValueError
        If both or none of ``q`` and ``sigma_b`` are given, one is out of range, there is no such
        critical point (the message says what there is), or ``sigma_b`` has several.

    Notes
    -----
    Pennington, Schoenholz & Ganguli 2018; Schoenholz et al. 2017.

    Examples
    --------
    >>> from fastspec.signal import critical_point
    >>> point = critical_point("tanh", q=1.0)
    >>> print(f"{point.sigma_w:.4f} {point.sigma_b:.4f} {point.slope:.4f} {point.stable}")
    1.4674 0.3885 0.3915 True
    >>> critical_point("gelu", q=1.0).stable
    False
    """
    phi = make_activation(activation)
    if (q is None) == (sigma_b is None):
        raise ValueError("give exactly one of q and sigma_b, got "
                         + ("none" if q is None else "both"))
    if sigma_b is None:
        return _point_at(phi, _checks.real("q", q, low=0.0, strict=True))
    found = critical_points(phi, sigma_b)
    where = f"for {phi!r}, sigma_b = {float(sigma_b):g}"
    if len(found) == 1 and not found[0].fixed_points[0].continuum:
        return found[0]
    if len(found) == 1:
        raise ValueError(f"every q is a critical fixed point {where}, sigma_w = "
                         f"{found[0].sigma_w:.12g}: choose one by q=")
    if found:
        raise ValueError(f"there are several critical points {where}: choose one of q = "
                         f"{', '.join(f'{point.q:.12g}' for point in found)} by q=")
    raise ValueError(f"there is no critical point {where}{_nearest(phi, float(sigma_b))}")


def critical_points(activation: str | Activation, sigma_b: float) -> tuple[CriticalPoint, ...]:
    r"""All critical points chi = 1 with given biases, by ascending q.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    sigma_b : float
        sqrt(Var b_i), >= 0.

    Returns
    -------
    tuple of CriticalPoint
        Possibly empty. The limit q = 0 is included where it is one (tanh: sigma_w = 1,
        sigma_b = 0). Where every q is critical (relu at sigma_b = 0) it stands for all of them, and
        its ``fixed_points`` are marked ``continuum``. Two are told apart if their q differ by more
        than about 1e-7 relative; q between 1e-150 and 1e150 are searched.

    Raises
    ------
    ValueError
        If sigma_b is out of range, or E phi'^2 is 0 or infinite.

    Examples
    --------
    >>> from fastspec.signal import critical_points
    >>> [round(point.q, 6) for point in critical_points("tanh", 0.3885)]
    [0.999885]
    """
    phi = make_activation(activation)
    bias = _checks.real("sigma_b", sigma_b, low=0.0) ** 2
    found = [0.0] if bias == 0.0 and _dies_critically(phi) else []
    q, biases = _bias_table(phi)
    off = biases - bias
    if np.any(np.abs(off) > _noise(phi, q)):
        found += _crossings(phi, q, off, bias)
    return tuple(_point_at(phi, x, bias) for x in found)


def _point_at(phi: Activation, q: float, bias: float | None = None) -> CriticalPoint:
    """The critical point at q; ``bias`` is its sigma_b^2 where that is known."""
    at = np.array([q])
    weight = float(_critical_weights(phi, at)[0])
    bias = float(_critical_biases(phi, at)[0]) if bias is None else bias
    if bias < 0.0:
        raise ValueError(f"there is no critical point for {phi!r} at q = {q:g}: it would need "
                         f"sigma_b^2 = {bias:.6g} < 0, with sigma_w^2 = {weight:.6g}")
    slope = 1.0 if q == 0.0 else weight * float(quadrature.variance_slope(phi, q))
    marginal = bool(is_marginal(np.asarray(slope)))
    sigma_w, sigma_b = math.sqrt(weight), math.sqrt(bias)
    return CriticalPoint(q, sigma_w, sigma_b, bias, slope, slope < 1.0 and not marginal,
                         marginal, list_fixed_points(phi, sigma_w, sigma_b))


def _critical_weights(phi: Activation, q: FloatArray) -> FloatArray:
    """sigma_w^2 = 1 / E phi'^2."""
    slope_mean = quadrature.moment_rows(phi, q, np.zeros(q.size), 1)[2]
    bad = (slope_mean == 0.0) | ~np.isfinite(slope_mean)
    if np.any(bad):
        i = int(np.argmax(bad))
        raise ValueError(f"{phi!r} has no critical point at q = {q[i]:g}: E phi'(h)^2 is "
                         f"{slope_mean[i]:g} there")
    return np.asarray(1.0 / slope_mean)


def _critical_biases(phi: Activation, q: FloatArray) -> FloatArray:
    """sigma_b^2 = (q E phi'^2 - E phi^2) / E phi'^2; 0 where it is rounding."""
    bias = quadrature.linear_excess(phi, q) * _critical_weights(phi, q)
    return np.where(np.abs(bias) <= _noise(phi, q), 0.0, bias)


def _dies_critically(phi: Activation) -> bool:
    """Whether q = 0 is a fixed point where chi can be 1."""
    second, slope_mean = quadrature.moment_rows(phi, np.zeros(1), np.zeros(1), 1)[1:, 0]
    return bool(second == 0.0 and 0.0 < slope_mean < math.inf)


@lru_cache(maxsize=32)
def _bias_table(phi: Activation) -> tuple[FloatArray, FloatArray]:
    """sigma_b^2 of the critical points on the q of the table of variances."""
    q = variance_table(phi).q
    slope_mean = quadrature.moment_rows(phi, q, np.zeros(q.size), 1)[2]
    known = (slope_mean > 0.0) & np.isfinite(slope_mean)
    q = q[known] if np.any(known) else q
    with np.errstate(over="ignore"):
        biases = _critical_biases(phi, q)
    finite = np.isfinite(biases)
    return q[finite], biases[finite]


def _noise(phi: Activation, q: FloatArray) -> FloatArray:
    """Below this a sigma_b^2 on the critical line is rounding."""
    return np.zeros(q.size) if phi.is_builtin else NOISE * q


def _crossings(phi: Activation, q: FloatArray, off: FloatArray, bias: float) -> list[float]:
    """All q > 0 where sigma_b^2 of the critical line is ``bias``; ``off`` is what it lacks of it.

    Between neighbours of one sign, where it turns towards ``bias``, its extremum is found first.
    """
    from scipy.optimize import brentq

    def lack(x: float) -> float:
        return float(_critical_biases(phi, np.array([x]))[0]) - bias

    clear = np.flatnonzero(np.abs(off) > _noise(phi, q))
    points = list(zip(q[clear].tolist(), off[clear].tolist(), strict=True))
    for number in _extrema(off[clear]):
        low, high = points[number - 1][0], points[number + 1][0]
        points.append(_extremum(lack, low, high, math.copysign(1.0, off[clear][number])))
    points.sort()
    found = []
    for (low, first), (high, last) in zip(points[:-1], points[1:], strict=True):
        if first == 0.0:
            found.append(low)
        elif first * last < 0.0:
            found.append(float(brentq(lack, low, high, xtol=1e-307, rtol=NOISE)))
    return found


def _extrema(off: FloatArray) -> list[int]:
    """Inner points of one sign with both neighbours, nearest to 0 of the three, and so near that
    the extremum between the neighbours may reach 0: it lies within twice their rise."""
    side, size = np.sign(off), np.abs(off)
    left, middle, right = size[:-2], size[1:-1], size[2:]
    inner = ((side[1:-1] == side[:-2]) & (side[1:-1] == side[2:])
             & (middle <= left) & (middle <= right)
             & (middle <= 2.0 * (np.maximum(left, right) - middle)))
    return (np.flatnonzero(inner) + 1).tolist()


def _extremum(lack: Any, low: float, high: float, side: float) -> tuple[float, float]:
    """Where ``lack``, of this sign, comes nearest to 0 or crosses it, and its value."""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(lambda x: side * lack(low * math.exp(x)),
                           bounds=(0.0, math.log(high / low)), method="bounded",
                           options={"xatol": _POINT_TOLERANCE})
    q = low * math.exp(float(best.x))
    return q, lack(q)


def _nearest(phi: Activation, sigma_b: float) -> str:
    """The sentence that tells the reachable sigma_b next to a given one."""
    biases = _bias_table(phi)[1]
    reachable = np.sqrt(biases[biases >= 0.0])
    if reachable.size == 0:
        return ": there is none with any sigma_b >= 0"
    nearest = float(reachable[np.argmin(np.abs(reachable - sigma_b))])
    if float(reachable.max()) == 0.0:
        return ": only sigma_b = 0 is critical"
    return f"; the nearest sigma_b that has one is about {nearest:.6g}"
