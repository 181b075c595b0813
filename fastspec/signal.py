"""Signal propagation through wide feed-forward layers: variance map, fixed points, chi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _checks, quadrature
from .activations import Activation
from .activations import activation as make_activation

__all__ = ["chi", "fixed_point", "variance_map"]

Phi = str | Activation

_STEP = 1.25                        # ratio of neighbouring trial variances
_NOISE = 8.0 * np.finfo(float).eps  # |f(q) - q| / q below this is rounding
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
    if abs(first) <= _NOISE * start:
        return start
    bracket = _bracket(growth, start, upwards=first > 0.0)
    if bracket is None:
        where = f"for {phi!r}, sigma_w = {weight:g}, sigma_b = {bias:g}, start = {start:g}"
        if first > 0.0:
            raise ValueError(f"there is no fixed point: q grows without bound {where}")
        raise ValueError(f"the only fixed point is q* = 0, the signal dies out, {where}")
    from scipy.optimize import brentq

    return float(brentq(growth, *bracket, xtol=1e-307, rtol=4.0 * np.finfo(float).eps))


def _bracket(
    growth: Callable[[float], float], start: float, upwards: bool
) -> tuple[float, float] | None:
    """Trial variances between which growth changes sign, beyond rounding, first."""
    ratio, sign = (_STEP, 1.0) if upwards else (1.0 / _STEP, -1.0)
    near = q = start
    while _LOWEST < q < _HIGHEST:
        q *= ratio
        relative = sign * growth(q) / q
        if relative < -_NOISE:
            return min(near, q), max(near, q)
        if relative > _NOISE:
            near = q
    return None
