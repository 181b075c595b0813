"""Expectations of an activation at two correlated points: which route serves which activation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._closed_pairs import CLOSED, closed_pairs
from ._pair_asymptotes import asymptotic_pairs, serves
from .activations import Activation, Function, array_function

FloatArray = NDArray[np.float64]

_LEVELS = 4                 # panels of users' functions are halved up to three times
_SETTLED = 1e-12            # change on halving that ends it
_WARN = 1e-9
_CLOSE = 1e-3               # differences of phi over less than twice this are integrals of phi'


def pair_rows(activation: Activation, q: FloatArray, distance: FloatArray) -> FloatArray:
    """E phi(h) phi(h'), E (phi(h) - phi(h'))^2 / 2 and E phi'(h) phi'(h') over flat arrays.

    (h, h') are centred, both of variance q, with correlation 1 - distance.
    """
    from .quadrature import moment_rows

    _, second, slope_mean = moment_rows(activation, q, np.zeros(q.size), 1)
    out = np.zeros((3, q.size))
    apart = np.flatnonzero(distance > 0.0)
    if apart.size:
        out[1:, apart] = _apart(activation, q[apart], distance[apart], slope_mean[apart])
    out[0] = second - out[1]
    out[2] = np.where(distance == 0.0, slope_mean, out[2])
    return out


def _apart(
    activation: Activation, q: FloatArray, distance: FloatArray, slope_mean: FloatArray
) -> FloatArray:
    """The gap and the slope product at distances > 0."""
    if not activation.is_builtin:
        return np.array([_user_pair(activation, *at) for at in zip(q, distance, strict=True)]).T
    if activation.name in CLOSED:
        return closed_pairs(activation.name, activation.parameter, q, distance)
    out = np.empty((2, q.size))
    large = serves(activation, q, distance)
    if np.any(large):
        out[:, large] = asymptotic_pairs(activation, q[large], distance[large], slope_mean[large])
    if not np.all(large):
        out[:, ~large] = _compiled_pairs(activation, q[~large], distance[~large])
    return out


def _compiled_pairs(activation: Activation, q: FloatArray, distance: FloatArray) -> FloatArray:
    """The gap and the slope product by two-dimensional rules."""
    from .quadrature import _described

    out = np.empty((2, q.size))
    code, parameter, kinks = _described(activation)
    _kernels().pairs(code, parameter, kinks, activation.odd, q, distance, out)
    return out


def _kernels() -> Any:
    from . import _pair_kernels

    return _pair_kernels


def _user_pair(activation: Activation, q: float, distance: float) -> FloatArray:
    """The gap and the slope product of a user's function, on panels halved until they settle."""
    assert activation.functions is not None
    phi, slope = (array_function(f) for f in activation.functions)
    kinks = np.array(activation.kinks, dtype=float)
    before = None
    for level in range(_LEVELS):
        now, size = _user_level(phi, slope, kinks, q, distance, level)
        if not np.all(np.isfinite(now)):
            raise ValueError(f"the expectation of {activation!r} at q = {q:g}, distance = "
                             f"{distance:g} is not finite: it overflows or grows too fast")
        change = np.inf if before is None else float(np.max(np.abs(now - before) / size))
        if change < _SETTLED:
            return now
        before = now
    if change > _WARN:
        from .errors import ConvergenceWarning

        warnings.warn(f"the expectation of {activation!r} at q = {q:g}, distance = {distance:g} is "
                      f"only good to about {change:.1e}: it is rough, or has kinks it does not "
                      "declare", ConvergenceWarning, stacklevel=5)
    return now


def _user_level(
    phi: Function, slope: Function, kinks: FloatArray, q: float, distance: float, level: int
) -> tuple[FloatArray, FloatArray]:
    """The gap and the slope product on panels 2^-level wide, and the sizes errors compare with."""
    kernels = _kernels()
    narrow, wide, mirrored = kernels.scales(q, distance)
    x, y, w = kernels.panel_nodes(kinks, False, mirrored, narrow, wide, 0.5**level,
                                  0.5**level * kernels.PANEL_SIGMAS)
    middle, half, scale = (x, y, wide) if mirrored else (y, x, narrow)
    above, below = slope(middle + half), slope(middle - half)
    with np.errstate(over="ignore", invalid="ignore"):
        change = half / scale * _mean_slope(phi, slope, kinks, middle, half, level)
        rows = np.array([2.0 * scale**2 * change**2, above * below])
        now = rows @ w
        return now, np.maximum([now[0], 0.5 * ((above**2 + below**2) @ w)], 5e-324)


def _mean_slope(
    phi: Function, slope: Function, kinks: FloatArray, middle: FloatArray, half: FloatArray,
    level: int,
) -> FloatArray:
    """(phi(middle + half) - phi(middle - half)) / (2 half) without cancellation."""
    low, high = middle - half, middle + half
    straddles = np.zeros(half.size, dtype=bool)
    for kink in kinks:
        straddles |= (low < kink) & (kink < high)
    out = (phi(high) - phi(low)) / (2.0 * half)
    close = np.flatnonzero((half < _CLOSE) & ~straddles)
    nodes, weights = np.polynomial.legendre.leggauss(5 + 2 * level)
    at = middle[close, np.newaxis] + half[close, np.newaxis] * nodes
    out[close] = 0.5 * slope(at.ravel()).reshape(at.shape) @ weights
    return out
