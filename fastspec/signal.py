"""Signal propagation through wide feed-forward layers.

Variance map, its fixed points and chi; correlation map, its fixed points and depth scales; critical
points and lines; phase diagrams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _checks, quadrature
from ._correlations import (
    CorrelationFixedPoint,
    DepthScales,
    correlation_fixed_points,
    correlation_map,
    depth_scales,
)
from ._critical import CriticalLine, CriticalPoint, critical_line, critical_point, critical_points
from ._fixed_points import NOISE, FixedPoint, checked_sigmas, list_fixed_points
from ._phase import PHASES, PhaseDiagram, phase_diagram
from .activations import Activation
from .activations import activation as make_activation

__all__ = [
    "PHASES", "CorrelationFixedPoint", "CriticalLine", "CriticalPoint", "DepthScales", "FixedPoint",
    "PhaseDiagram", "chi", "correlation_fixed_points", "correlation_map", "critical_line",
    "critical_point", "critical_points", "depth_scales", "fixed_point", "fixed_points",
    "phase_diagram", "variance_map",
]

Phi = str | Activation

_STEP = 1.25    # ratio of neighbouring trial variances
_LOWEST, _HIGHEST = 1e-300, 1e300


def variance_map(
    activation: Phi, q: ArrayLike, sigma_w: ArrayLike, sigma_b: ArrayLike = 0.0
) -> Any:
    r"""Variance of the next layer's pre-activations, sigma_w^2 E phi(h)^2 + sigma_b^2.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    q : array_like
        Variance of h ~ N(0, q), >= 0.
    sigma_w, sigma_b : array_like
        Standard deviations sqrt(N Var W_ij) and sqrt(Var b_i), >= 0; broadcast against ``q``.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Pennington, Schoenholz & Ganguli 2018; Tarnowski et al. 2018, eq. 42 at a = 0.

    Examples
    --------
    >>> from fastspec.signal import variance_map
    >>> variance_map("relu", [1.0, 2.0], sigma_w=2.0, sigma_b=0.5)
    array([2.25, 4.25])
    """
    weight, bias = _checks.variance("sigma_w", sigma_w), _checks.variance("sigma_b", sigma_b)
    second = quadrature.moments(make_activation(activation), q).second_moment
    out = weight**2 * second + bias**2
    return out if np.ndim(out) else float(out)


def chi(activation: Phi, q: ArrayLike, sigma_w: ArrayLike) -> Any:
    r"""Mean squared singular value of one layer's Jacobian, sigma_w^2 E phi'(h)^2, h ~ N(0, q).

    1 on the critical line; below it gradients vanish, above it they explode
    (Pennington, Schoenholz & Ganguli 2018). Parameters as in `variance_map`.

    Examples
    --------
    >>> from fastspec.signal import chi
    >>> chi("relu", 1.0, sigma_w=2.0)
    2.0
    """
    weight = _checks.variance("sigma_w", sigma_w)
    out = weight**2 * quadrature.moments(make_activation(activation), q).slope_mean
    return out if np.ndim(out) else float(out)


def fixed_point(
    activation: Phi, sigma_w: float, sigma_b: float = 0.0, *, start: float = 1.0
) -> float:
    r"""Fixed point q* = sigma_w^2 E phi(sqrt(q*) z)^2 + sigma_b^2 of the variance map.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    sigma_w : float
        sqrt(N Var W_ij), > 0.
    sigma_b : float
        sqrt(Var b_i), >= 0.
    start : float
        Where the search starts, > 0. It goes the way the map moves ``start`` and returns the first
        fixed point found there: the one that iteration of an increasing map tends to, unless two
        lie within 25 % of each other. If ``start`` itself stays in place to rounding, it is
        returned; so where every q is a fixed point (relu at sigma_w^2 = 2, linear at sigma_w = 1,
        no biases) the answer is ``start``.

    Returns
    -------
    float
        q* > 0; relative error about 1e-15 / abs(1 - f'(q*)), f the variance map.

    Raises
    ------
    ValueError
        If an argument is out of range, if q grows without bound from ``start``, or if it falls to
        q* = 0, where the signal dies out.

    Examples
    --------
    >>> from fastspec.signal import fixed_point
    >>> round(fixed_point("linear", sigma_w=0.5, sigma_b=1.5), 12)
    3.0
    """
    phi = make_activation(activation)
    weight = _checks.real("sigma_w", sigma_w, low=0.0, strict=True)
    bias = _checks.real("sigma_b", sigma_b, low=0.0)
    start = _checks.real("start", start, low=0.0, strict=True)

    def growth(q: float) -> float:
        second = quadrature.moment_rows(phi, np.array([q]), np.zeros(1), 0)[1, 0]
        return float(weight**2 * second + bias**2) - q

    first = growth(start)
    if abs(first) <= NOISE * start:
        return start
    bracket = _bracket(growth, start, upwards=first > 0.0)
    if bracket is None:
        where = f"for {phi!r}, sigma_w = {weight:g}, sigma_b = {bias:g}, start = {start:g}"
        if first > 0.0:
            raise ValueError(f"there is no fixed point: q grows without bound {where}")
        raise ValueError(f"the only fixed point is q* = 0, the signal dies out, {where}")
    from scipy.optimize import brentq

    return float(brentq(growth, *bracket, xtol=1e-307, rtol=4.0 * np.finfo(float).eps))


def fixed_points(
    activation: Phi, sigma_w: float, sigma_b: float = 0.0
) -> tuple[FixedPoint, ...]:
    r"""All fixed points q* = sigma_w^2 E phi(sqrt(q*) z)^2 + sigma_b^2 in [0, inf).

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    sigma_w, sigma_b : float
        sqrt(N Var W_ij) and sqrt(Var b_i), >= 0.

    Returns
    -------
    tuple of FixedPoint
        By ascending q, each with its slope dQ/dq, chi, and whether it is stable; q = 0 is included
        if it is one, a double root is listed once. Empty if q grows without bound from
        everywhere. Where every q is fixed (relu at sigma_w^2 = 2, linear at sigma_w = 1, no biases)
        there is one entry, q = 0, marked ``continuum``.

    Raises
    ------
    ValueError
        If an argument is out of range.
    OverflowError
        If a fixed point lies outside of q = 1e-150 .. 1e150 (powers that are almost 1 can do
        that: alpha_relu); for users' functions 1e-50 .. 1e50, or where their moments end.

    Notes
    -----
    The relative error of q* is about 1e-15 / abs(1 - slope). Two fixed points are told apart if
    they differ by more than about 1e-7 relative, three if by more than about 10 % (users'
    functions: 20 %). What is less than 4e-15 of q away from the diagonal counts as on it: of
    hard_tanh, which maps q to q (1 - 1e-37) at q = 0.006, or of relu-like functions at
    sigma_w^2 = 2 and large q, a fixed point is not seen where only such differences make it one.

    The first call for a user's function takes about a second; it tabulates E phi^2.

    Examples
    --------
    >>> from fastspec.signal import fixed_points
    >>> for point in fixed_points("gelu", sigma_w=1.5, sigma_b=0.1):
    ...     print(f"{point.q:.6f} {point.slope:.4f} {point.stable}")
    0.024244 0.6116 True
    1.315401 1.1140 False
    """
    phi = make_activation(activation)
    return list_fixed_points(phi, *checked_sigmas(sigma_w, sigma_b))


def _bracket(
    growth: Callable[[float], float], start: float, upwards: bool
) -> tuple[float, float] | None:
    """Trial variances between which growth changes sign, beyond rounding, first."""
    ratio, sign = (_STEP, 1.0) if upwards else (1.0 / _STEP, -1.0)
    near = q = start
    while _LOWEST < q < _HIGHEST:
        q *= ratio
        relative = sign * growth(q) / q
        if relative < -NOISE:
            return min(near, q), max(near, q)
        if relative > NOISE:
            near = q
    return None
