"""Gaussian moments in closed form, written so that nothing cancels at small or large q.

Each function takes flat arrays (parameter, mean, q, order) and returns the rows
E phi, E phi^2, E d, ..., E d^order with d = phi'(h)^2, h ~ N(mean, q). Those that assume mean = 0
are listed in `_CENTRED`; q = 0 is the limit q -> 0+.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Rows = list[FloatArray]

_POWER_NODES = 24
_REACH = 9.0                # standard deviations kept beyond the bulk of the integrand
_FAR = 38.0                 # beyond it the Gaussian underflows


def closed_moments(
    name: str, parameter: float, mean: FloatArray, q: FloatArray, order: int
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Where closed forms hold (mask) and the rows there, shape (2 + order, mask.sum())."""
    if name in _CENTRED:
        formula, holds = _CENTRED[name], mean == 0.0
    elif name in _ANY_MEAN:
        formula, holds = _ANY_MEAN[name], np.ones(q.shape, dtype=bool)
    elif name == "sin":
        # The Fourier sum of E cos^2k cancels where q is small and cos(mean) near 0.
        formula, holds = _sin, (mean == 0.0) | (q >= 1.0)
    else:
        return np.zeros(q.shape, dtype=bool), np.empty((2 + order, 0))
    if not np.any(holds):
        return holds, np.empty((2 + order, 0))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return holds, np.array(formula(parameter, mean[holds], q[holds], order))


def _linear(_: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    return [mean, mean * mean + q] + [np.ones_like(q)] * order


def _leaky_relu(slope: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    d = slope * slope
    return [(1.0 - slope) * np.sqrt(q / (2.0 * math.pi)), 0.5 * (1.0 + d) * q] + [
        np.full_like(q, 0.5 * (1.0 + d**k)) for k in range(1, order + 1)]


def _hard_tanh(_: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    """E phi^2 = q (erf x - 2 x e^{-x^2} / sqrt(pi)) + erfc x, x = 1 / sqrt(2 q).

    The bracket is the regularised incomplete gamma function P(3/2, x^2), which does not cancel.
    """
    from scipy.special import erf, erfc, gammainc

    x = np.sqrt(0.5 / q)
    return [np.zeros_like(q), q * gammainc(1.5, x * x) + erfc(x)] + [erf(x)] * order


def _erf(scale: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    """phi = erf(scale h), t = 2 scale^2 q: E phi^2 = (2/pi) asin(t/(1+t)) as an arctangent."""
    t = 2.0 * scale * scale * q
    top = 4.0 * scale * scale / math.pi
    return [np.zeros_like(q), 2.0 / math.pi * np.arctan(t / np.sqrt(1.0 + 2.0 * t))] + [
        top**k / np.sqrt(1.0 + 2.0 * k * t) for k in range(1, order + 1)]


def _sin(_: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    rows = [np.sin(mean) * np.exp(-0.5 * q),
            np.sin(mean) ** 2 * np.exp(-2.0 * q) - 0.5 * np.expm1(-2.0 * q)]
    for k in range(1, order + 1):
        total = np.full_like(q, math.comb(2 * k, k))
        for j in range(1, k + 1):
            harmonic = np.cos(2.0 * j * mean) * np.exp(-2.0 * j * j * q)
            total += 2.0 * math.comb(2 * k, k - j) * harmonic
        rows.append(total / 4.0**k)
    return rows


def _alpha_relu(alpha: float, mean: FloatArray, q: FloatArray, order: int) -> Rows:
    """phi = h^alpha, h > 0. E d^k is infinite for 2 k (1 - alpha) >= 1."""
    slopes = [alpha ** (2 * k) * _half_line(2.0 * k * (alpha - 1.0), mean, q)
              for k in range(1, order + 1)]
    return [_half_line(alpha, mean, q), _half_line(2.0 * alpha, mean, q)] + slopes


def _half_line(power: float, mean: FloatArray, q: FloatArray) -> FloatArray:
    """E [h^power; h > 0]."""
    if power <= -1.0:
        return np.full_like(q, np.inf)
    centred = 2.0 ** (0.5 * power - 1.0) * math.gamma(0.5 * (power + 1.0)) / math.sqrt(math.pi)
    out = centred * q ** (0.5 * power)
    for i in np.flatnonzero(mean):
        s = math.sqrt(q[i])
        if s == 0.0 or mean[i] / s > 1e8:       # relative spread below rounding
            out[i] = mean[i] ** power if mean[i] > 0.0 else 0.0
        else:
            out[i] = s**power * _unit_half_line(power, mean[i] / s)
    return out


def _unit_half_line(power: float, m: float) -> float:
    """Integral over t > 0 of t^power n(t - m), n the normal density, for m up to 1e8.

    Panels grow from the scale 1 / |m| on which the integrand falls for m < 0 up to one standard
    deviation; the first one holds the power at t = 0.
    """
    width = 1.0 / max(1.0, abs(m))
    low, total = m - _FAR, 0.0
    if low <= 0.0:
        low, total = width, _first_panel(power, m, width)
    nodes, weights = np.polynomial.legendre.leggauss(_POWER_NODES)
    while low < max(m, 0.0) + math.sqrt(max(power, 0.0)) + _REACH:
        half = 0.5 * min(1.0, max(width, low))
        t = low + half * (1.0 + nodes)
        total += half * float(np.sum(weights * t**power * _density(t - m)))
        low += 2.0 * half
    return total


def _first_panel(power: float, m: float, width: float) -> float:
    """Integral over 0 < t < width of t^power n(t - m), by Gauss-Jacobi.

    Its weights lose digits near power = -1; there one integration by parts raises the power:
    (p + 1) int t^p n = width^{p+1} n(width - m) + int t^{p+1} (t - m) n.
    """
    from scipy.special import roots_jacobi

    raised = power + 1.0 if power < 0.0 else power
    x, w = roots_jacobi(_POWER_NODES, 0.0, raised)
    t = 0.5 * width * (1.0 + x)
    w = (0.5 * width) ** (raised + 1.0) * w * _density(t - m)
    if power >= 0.0:
        return float(np.sum(w))
    return (width**raised * float(_density(width - m)) + float(w @ (t - m))) / raised


def _density(z: Any) -> Any:
    return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


Formula = Callable[[float, FloatArray, FloatArray, int], Rows]

_CENTRED: dict[str, Formula] = {
    "relu": lambda _, mean, q, order: _leaky_relu(0.0, mean, q, order),
    "leaky_relu": _leaky_relu,
    "hard_tanh": _hard_tanh,
    "erf": lambda _, mean, q, order: _erf(1.0, mean, q, order),
    "scaled_erf": lambda _, mean, q, order: _erf(0.5 * math.sqrt(math.pi), mean, q, order),
}
_ANY_MEAN: dict[str, Formula] = {"linear": _linear, "alpha_relu": _alpha_relu}
