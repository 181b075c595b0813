"""q E phi'^2 - E phi^2 and d/dq E phi^2, h ~ N(0, q), without cancellation.

Let L(h) = a h for h > 0 and b h for h < 0, and phi = L + r. Integration by parts (Stein) gives

    q E phi'^2 - E phi^2 = q E r'^2 - E r^2 - 2 (a - b) phi(0) sqrt(q / (2 pi)).

For q < 1 L is the tangent on either side of 0, else the asymptote on either side (0 where phi is
bounded): then nothing on the right cancels, provided that r and r' are known to full relative
accuracy. No activation here has both a kink at 0 and phi(0) != 0, so the last term matters only
for the asymptote of softplus, where a - b = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._adaptive import adaptive
from .activations import Activation, array_function

FloatArray = NDArray[np.float64]
Residual = Callable[[Activation, FloatArray], tuple[FloatArray, FloatArray]]

_LOG_2 = math.log(2.0)
_SMALLEST = 1e-8            # stands for q = 0 where users' functions must be differenced


def excesses(activation: Activation, q: FloatArray) -> FloatArray:
    """q E phi'^2 - E phi^2 over a flat array q."""
    if not activation.is_builtin:
        from .quadrature import moment_rows

        _, second, slope_mean = moment_rows(activation, q, np.zeros(q.size), 1)
        return q * slope_mean - second
    if activation.name in _CLOSED_EXCESS:
        with np.errstate(under="ignore", over="ignore", divide="ignore"):
            return _CLOSED_EXCESS[activation.name](activation.parameter, q)
    return np.array([_excess(activation, value) for value in q]).reshape(q.shape)


def variance_slopes(activation: Activation, q: FloatArray) -> FloatArray:
    """d/dq E phi^2 over a flat array q."""
    if not activation.is_builtin:
        return np.array([_user_slope(activation, value) for value in q]).reshape(q.shape)
    if activation.name in _CLOSED_SLOPE:
        with np.errstate(under="ignore", over="ignore", divide="ignore"):
            return _CLOSED_SLOPE[activation.name](activation.parameter, q)
    return np.array([_variance_slope(activation, value) for value in q]).reshape(q.shape)


def _excess(activation: Activation, q: float) -> float:
    h, w, _ = _rule(q, (0.0, *activation.kinks))
    bend = 0.0
    if q < 1.0:
        rest, slope = _TANGENT_RESIDUAL[activation.name](activation, h)
    elif activation.name in _UNBOUNDED:
        rest, slope = _UNBOUNDED[activation.name](activation, h)
        bend = 2.0 * activation(0.0) * math.sqrt(q / (2.0 * math.pi))
    else:
        rest, slope = activation(h), activation.derivative(h)
    with np.errstate(under="ignore"):
        return float(w @ (q * slope * slope - rest * rest)) - bend


def _variance_slope(activation: Activation, q: float) -> float:
    """E [h (phi - phi(0)) phi'] / q + phi(0) E [h (phi' - phi'(0))] / q."""
    h, w, scale = _rule(q, activation.kinks)
    slope = activation.derivative(h)
    if activation.name == "sigmoid":            # phi' is even: the second term vanishes
        rise, bend = 0.5 * np.tanh(0.5 * h), 0.0 * h
    elif activation.name == "softplus":
        rise, bend = _softplus_rise(h), 0.5 * _LOG_2 * np.tanh(0.5 * h)
    else:
        rise, bend = activation(h), 0.0 * h
    return float(w @ (h / scale * (rise * slope + bend) / scale))


def _softplus_rise(h: FloatArray) -> FloatArray:
    near = np.abs(h) < 1.0
    return np.where(near, np.log1p(0.5 * np.expm1(np.where(near, h, 0.0))),
                    np.logaddexp(0.0, h) - _LOG_2)


def _user_slope(activation: Activation, q: float) -> float:
    assert activation.functions is not None
    phi, derivative = (array_function(f) for f in activation.functions)
    scale = math.sqrt(q or _SMALLEST)

    def rows(h: FloatArray) -> FloatArray:
        return np.asarray((h / scale * phi(h) * derivative(h) / scale)[np.newaxis])

    return float(adaptive(rows, scale * scale, 0.0, np.array(activation.kinks, dtype=float))[0][0])


def _rule(q: float, cuts: tuple[float, ...]) -> tuple[FloatArray, FloatArray, float]:
    """Nodes and weights of panels cut at ``cuts``, and the standard deviation they are for."""
    from . import _gauss_kernels

    h, w = _gauss_kernels._rule(0.0, q, np.array(cuts, dtype=float), 1.0)
    return h, w, max(math.sqrt(q), _gauss_kernels.TINY_SCALE)


# Residuals of the tangents at 0: (r, r').

def _integrated(slope: Callable[[FloatArray], FloatArray], direct: FloatArray, h: FloatArray
                ) -> FloatArray:
    """Integral of ``slope`` from 0 to h where |h| < 1; ``direct`` elsewhere."""
    nodes, weights = np.polynomial.legendre.leggauss(14)
    near = np.where(np.abs(h) < 1.0, h, 0.0)
    at = 0.5 * near[:, np.newaxis] * (1.0 + nodes)
    return np.where(np.abs(h) < 1.0, 0.5 * near * (slope(at) @ weights), direct)


def _tanh(_: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    def slope(x: FloatArray) -> FloatArray:
        return np.asarray(-np.tanh(x) ** 2)

    return _integrated(slope, np.tanh(h) - h, h), slope(h)


def _arctan(_: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    def slope(x: FloatArray) -> FloatArray:
        return -x * x / (1.0 + x * x)

    return _integrated(slope, np.arctan(h) - h, h), slope(h)


def _sigmoid(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return activation(h) - 0.25 * h, -0.25 * np.tanh(0.5 * h) ** 2


def _softplus(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return activation(h) - 0.5 * h, 0.5 * np.tanh(0.5 * h)


def _silu(_: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    t = np.tanh(0.5 * h)
    return 0.5 * h * t, 0.5 * t + 0.25 * h * (1.0 - t) * (1.0 + t)


def _gelu(_: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.special import erf

    e = erf(math.sqrt(0.5) * h)
    density = np.exp(-0.5 * h * h) / math.sqrt(2.0 * math.pi)
    return 0.5 * h * e, 0.5 * e + h * density


def _elu(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    below = np.minimum(h, 0.0)
    left = activation.derivative(0.0)           # at a kink: the slope to its left
    rest = _integrated(np.expm1, np.expm1(below) - below, below)
    return left * rest, left * np.expm1(below)


def _mish(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi = h T, T = (w - 1) / (w + 1), w = (1 + e^h)^2; T(0) = 3/5."""
    e = np.exp(h)
    w = (1.0 + e) ** 2
    rise = 0.4 * np.expm1(h) * (3.0 + e) / (w + 1.0)
    return h * rise, rise + 4.0 * h * e * (1.0 + e) / (w + 1.0) ** 2


def _softsign(_: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(h)
    return -h * size / (1.0 + size), -size * (2.0 + size) / (1.0 + size) ** 2


_TANGENT_RESIDUAL: dict[str, Residual] = {
    "tanh": _tanh, "arctan": _arctan, "sigmoid": _sigmoid, "softplus": _softplus, "silu": _silu,
    "gelu": _gelu, "elu": _elu, "selu": _elu, "mish": _mish, "softsign": _softsign,
}


# Residuals of the asymptotes: h (selu: a multiple of h) for h > 0 and 0 for h < 0.

def _folded(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi(h) - phi(-h) = h: phi - max(h, 0) = phi(-|h|)."""
    below = -np.abs(h)
    return activation(below), -np.sign(h) * activation.derivative(below)


def _left_half(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    left = h <= 0.0
    return np.where(left, activation(h), 0.0), np.where(left, activation.derivative(h), 0.0)


def _mish_far(activation: Activation, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For h > 0, from e = e^{-h}: 1 - T = 2 e^2 / (1 + 2 e + 2 e^2)."""
    e = np.exp(-np.maximum(h, 0.0))
    whole = 1.0 + 2.0 * e + 2.0 * e * e
    rest = 2.0 * e * e / whole
    change = 4.0 * e * e * (1.0 + e) / whole**2
    right = h > 0.0
    return (np.where(right, -h * rest, activation(h)),
            np.where(right, h * change - rest, activation.derivative(h)))


_UNBOUNDED: dict[str, Residual] = {
    "softplus": _folded, "silu": _folded, "gelu": _folded, "elu": _left_half, "selu": _left_half,
    "mish": _mish_far,
}


# Closed forms, functions of (parameter, q).

def _power_constant(alpha: float) -> float:
    """E h_+^{2 alpha} at q = 1 (Yang & Schoenholz 2017)."""
    return 2.0 ** (alpha - 1.0) * math.gamma(alpha + 0.5) / math.sqrt(math.pi)


def _power_excess(alpha: float, q: FloatArray) -> FloatArray:
    if alpha <= 0.5:
        return np.full_like(q, np.inf)
    return _power_constant(alpha) * q**alpha * ((alpha - 1.0) ** 2 / (2.0 * alpha - 1.0))


def _power_slope(alpha: float, q: FloatArray) -> FloatArray:
    return alpha * _power_constant(alpha) * q ** (alpha - 1.0)


def _hard_tanh_excess(_: float, q: FloatArray) -> FloatArray:
    """e^{-y} (1 / sqrt(pi y) - erfcx(sqrt y)), y = 1 / (2q); for large y the bracket is
    U(1, 1/2, y) / (2 sqrt(pi y)), U Tricomi's function (SciPy's loses digits at y = 5)."""
    from scipy.special import erfcx, hyperu

    y = 0.5 / np.maximum(q, 1e-4)               # e^{-5000} underflows
    root = np.sqrt(math.pi * y)
    large = hyperu(1.0, 0.5, np.maximum(y, 50.0)) / (2.0 * root)
    return np.exp(-y) * np.where(y > 50.0, large, 1.0 / root - erfcx(np.sqrt(y)))


def _hard_tanh_slope(_: float, q: FloatArray) -> FloatArray:
    from scipy.special import gammainc

    return np.asarray(gammainc(1.5, 0.5 / q))


def _sin_excess(_: float, q: FloatArray) -> FloatArray:
    """e^{-q} (q cosh q - sinh q) = e^{-q} sum_k 2k q^{2k+1} / (2k+1)!."""
    series = sum(2 * k / math.factorial(2 * k + 1) * np.minimum(q, 1.0) ** (2 * k + 1)
                 for k in range(1, 10))
    direct = 0.5 * (q * (1.0 + np.exp(-2.0 * q)) + np.expm1(-2.0 * q))
    return np.where(q < 1.0, np.exp(-q) * series, direct)


def _erf_excess(scale: float, q: FloatArray) -> FloatArray:
    """(2/pi) (y - arctan y), y = t / sqrt(1 + 2t), t = 2 scale^2 q."""
    t = 2.0 * scale * scale * q
    y = t / np.sqrt(1.0 + 2.0 * t)
    nodes, weights = np.polynomial.legendre.leggauss(14)
    at = 0.5 * np.minimum(y, 1.0)[:, np.newaxis] * (1.0 + nodes)
    near = 0.5 * np.minimum(y, 1.0) * (at * at / (1.0 + at * at) @ weights)
    return 2.0 / math.pi * np.where(y < 1.0, near, y - np.arctan(y))


def _erf_slope(scale: float, q: FloatArray) -> FloatArray:
    t = 2.0 * scale * scale * q
    return 4.0 * scale * scale / (math.pi * (1.0 + t) * np.sqrt(1.0 + 2.0 * t))


_ERF_SCALE = 0.5 * math.sqrt(math.pi)
Closed = Callable[[float, FloatArray], Any]
_CLOSED_EXCESS: dict[str, Closed] = {
    **{name: lambda _, q: np.zeros_like(q) for name in ("linear", "relu", "leaky_relu")},
    "hard_tanh": _hard_tanh_excess,
    "sin": _sin_excess,
    "erf": lambda _, q: _erf_excess(1.0, q),
    "scaled_erf": lambda _, q: _erf_excess(_ERF_SCALE, q),
    "alpha_relu": _power_excess,
}
_CLOSED_SLOPE: dict[str, Closed] = {
    "linear": lambda _, q: np.ones_like(q),
    "relu": lambda _, q: np.full_like(q, 0.5),
    "leaky_relu": lambda slope, q: np.full_like(q, 0.5 * (1.0 + slope * slope)),
    "hard_tanh": _hard_tanh_slope,
    "sin": lambda _, q: np.exp(-2.0 * q),
    "erf": lambda _, q: _erf_slope(1.0, q),
    "scaled_erf": lambda _, q: _erf_slope(_ERF_SCALE, q),
    "alpha_relu": _power_slope,
}
