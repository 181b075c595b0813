"""Compiled Gaussian expectations of the built-in activations (needs numba: import it late).

Every built-in phi and phi' is defined here, once, as a scalar function of (code, parameter, h).
The rule is composite Gauss-Legendre in z, where h = mean + scale z. A panel is no wider than the
Gaussian allows and, in h, no wider than max(1, |h|): whatever bends these functions (the poles of
tanh, arctan, mish near the real axis) lies within a few units of h = 0. Panels end at the kinks.
Plain Gauss-Hermite is wrong for steep functions: E tanh'^2 at q = 10 is 5 % off with 80 nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LINEAR, RELU, LEAKY_RELU, HARD_TANH, TANH, ARCTAN, ERF, SCALED_ERF, SIGMOID = range(9)
SOFTPLUS, SILU, GELU, ELU, SELU, MISH, SOFTSIGN, SIN, ALPHA_RELU = range(9, 18)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
PANEL_SIGMAS = 2.0          # widest panel in standard deviations
CENTRED_RANGE = 9.0         # P(|z| > 9) = 2e-19
FULL_RANGE = 38.0           # exp(-38^2 / 2) is the smallest normal double
EPSILON = 2.0**-52
TINY_SCALE = 1e-170         # q = 0 means q -> 0+: slopes still see both sides, squares vanish

SELU_SCALE = 1.0507009873554804934193349852946      # Klambauer et al. 2017
SELU_ALPHA = 1.6732632423543772848170429916717
SQRT_HALF = math.sqrt(0.5)
SQRT_2PI = math.sqrt(2.0 * math.pi)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
HALF_SQRT_PI = 0.5 * math.sqrt(math.pi)


def code_of(name):
    """Code of the built-in activation called ``name``."""
    return globals()[name.upper()]


@njit(cache=True, nogil=True)
def _logistic(h):
    if h >= 0.0:
        return 1.0 / (1.0 + math.exp(-h))
    e = math.exp(h)
    return e / (1.0 + e)


@njit(cache=True, nogil=True)
def _tanh_softplus(h):
    """t = tanh(log(1 + e^h)) and 1 - t^2, from e^{-|h|}: nothing overflows or cancels."""
    if h >= 0.0:
        e = math.exp(-h)
        top = 1.0 + 2.0 * e
        rest = 2.0 * e * e
    else:
        e = math.exp(h)
        top = e * (e + 2.0)
        rest = 2.0
    t = top / (top + rest)
    return t, (1.0 + t) * rest / (top + rest)


@njit(cache=True, nogil=True)
def phi(code, parameter, h):
    """phi(h). NaN fails every comparison and so reaches an arithmetic branch: it stays NaN."""
    if code == TANH:
        return math.tanh(h)
    if code == RELU:
        return 0.0 if h <= 0.0 else h
    if code == LEAKY_RELU:
        return parameter * h if h <= 0.0 else h
    if code == HARD_TANH:
        return 1.0 if h > 1.0 else (-1.0 if h < -1.0 else h)
    if code == ARCTAN:
        return math.atan(h)
    if code == ERF:
        return math.erf(h)
    if code == SCALED_ERF:
        return math.erf(HALF_SQRT_PI * h)
    if code == SIGMOID:
        return _logistic(h)
    if code == SOFTPLUS:
        return (0.0 if h <= 0.0 else h) + math.log1p(math.exp(-abs(h)))
    if code == SILU:
        return h * _logistic(h)
    if code == GELU:
        return 0.5 * h * math.erfc(-SQRT_HALF * h)
    if code == ELU:
        return parameter * math.expm1(h) if h <= 0.0 else h
    if code == SELU:
        return SELU_SCALE * (SELU_ALPHA * math.expm1(h) if h <= 0.0 else h)
    if code == MISH:
        return h * _tanh_softplus(h)[0]
    if code == SOFTSIGN:
        return h / (1.0 + abs(h))
    if code == SIN:
        return math.sin(h)
    if code == ALPHA_RELU:
        return 0.0 if h <= 0.0 else h ** parameter
    return h


@njit(cache=True, nogil=True)
def _step_slope(left, right, h):
    """left for h <= 0, right for h > 0, NaN for NaN."""
    if h <= 0.0:
        return left
    return right if h > 0.0 else h


@njit(cache=True, nogil=True)
def _smooth_slope(code, h):
    """phi'(h) of the activations whose derivative is smooth."""
    if code == TANH:
        e = math.exp(-2.0 * abs(h))
        return 4.0 * e / ((1.0 + e) * (1.0 + e))
    if code == ARCTAN:
        return 1.0 / (1.0 + h * h)
    if code == ERF:
        return TWO_OVER_SQRT_PI * math.exp(-h * h)
    if code == SCALED_ERF:
        return math.exp(-(HALF_SQRT_PI * h) * (HALF_SQRT_PI * h))
    if code == SIGMOID:
        e = math.exp(-abs(h))
        return e / ((1.0 + e) * (1.0 + e))
    if code == SOFTPLUS:
        return _logistic(h)
    if code == SILU:
        return _logistic(h) * (1.0 + h * _logistic(-h))
    if code == GELU:
        return 0.5 * math.erfc(-SQRT_HALF * h) + h * math.exp(-0.5 * h * h) / SQRT_2PI
    if code == MISH:
        t, complement = _tanh_softplus(h)
        return t + h * complement * _logistic(h)
    if code == SIN:
        return math.cos(h)
    return 1.0 + 0.0 * h


@njit(cache=True, nogil=True)
def slope(code, parameter, h):
    """phi'(h); at a kink the value on its left (hard_tanh: 1 at both ends)."""
    if code == RELU:
        return _step_slope(0.0, 1.0, h)
    if code == LEAKY_RELU:
        return _step_slope(parameter, 1.0, h)
    if code == HARD_TANH:
        return _step_slope(1.0, 0.0, abs(h) - 1.0)
    if code == ELU:
        return parameter * math.exp(h) if h <= 0.0 else _step_slope(0.0, 1.0, h)
    if code == SELU:
        if h <= 0.0:
            return SELU_SCALE * SELU_ALPHA * math.exp(h)
        return _step_slope(0.0, SELU_SCALE, h)
    if code == SOFTSIGN:
        return 1.0 / ((1.0 + abs(h)) * (1.0 + abs(h)))
    if code == ALPHA_RELU:
        return 0.0 if h <= 0.0 else parameter * h ** (parameter - 1.0)
    return _smooth_slope(code, h)


@njit(["void(int64, float64, boolean, float64[::1], float64[::1])"], cache=True, nogil=True)
def evaluate(code, parameter, derivative, h, out):
    """out = phi(h), or phi'(h) if derivative."""
    for i in range(h.size):
        if derivative:
            out[i] = slope(code, parameter, h[i])
        else:
            out[i] = phi(code, parameter, h[i])


@njit(["float64[::1](float64, float64, float64[::1], float64, float64, float64)"],
      cache=True, nogil=True)
def panel_edges(mean, scale, kinks, low, high, grade):
    """Edges in z of panels on [low, high], about grade max(1, |h|) wide in h, cut at the kinks."""
    edges = [low]
    z = low
    while z < high:
        h = mean + scale * z
        far = h if h >= 0.0 else -0.5 * h
        end = min(z + min(PANEL_SIGMAS, grade * max(1.0, far) / scale), high)
        for kink in kinks:
            at = (kink - mean) / scale
            if z < at < end:
                end = at
        z = max(end, z + EPSILON * abs(z))      # a step below rounding would never end
        edges.append(z)
    return np.array(edges)


@njit(cache=True, nogil=True)
def _rule(mean, q, kinks, grade):
    """Nodes h and weights w with E f(h) = sum w f(h) for h ~ N(mean, q)."""
    scale = max(math.sqrt(q), TINY_SCALE)
    reach = CENTRED_RANGE if mean == 0.0 else FULL_RANGE
    edges = panel_edges(mean, scale, kinks, -reach, reach, grade)
    size = NODES.size
    h = np.empty((edges.size - 1) * size)
    w = np.empty(h.size)
    for panel in range(edges.size - 1):
        half = 0.5 * (edges[panel + 1] - edges[panel])
        centre = 0.5 * (edges[panel + 1] + edges[panel])
        for i in range(size):
            z = centre + half * NODES[i]
            h[panel * size + i] = mean + scale * z
            w[panel * size + i] = half * WEIGHTS[i] * math.exp(-0.5 * z * z) / SQRT_2PI
    return h, w


@njit(["void(int64, float64, float64[::1], float64[::1], float64[::1], float64[:, ::1])"],
      cache=True, nogil=True)
def moments(code, parameter, kinks, mean, q, out):
    """out[:, j] = E phi, E phi^2, E d, E d^2, ... with d = phi'(h)^2, h ~ N(mean[j], q[j])."""
    order = out.shape[0] - 2
    grade = math.sqrt(2.0 / max(2, order))
    for j in range(q.size):
        h, w = _rule(mean[j], q[j], kinks, grade)
        out[:, j] = 0.0
        for i in range(h.size):
            f = phi(code, parameter, h[i])
            g = slope(code, parameter, h[i])
            out[0, j] += w[i] * f
            out[1, j] += w[i] * f * f
            term = w[i]
            for k in range(order):
                term *= g * g
                out[2 + k, j] += term


@njit(["void(int64, float64, float64[::1], float64[::1], float64[::1], float64[::1])"],
      cache=True, nogil=True)
def slope_variance(code, parameter, kinks, mean, q, out):
    """out[j] = Var d / (E d)^2, by deviations from the mean: exact where d hardly varies."""
    for j in range(q.size):
        h, w = _rule(mean[j], q[j], kinks, 1.0)
        centre = 0.0
        for i in range(h.size):
            centre += w[i] * slope(code, parameter, h[i]) ** 2
        total = 0.0
        for i in range(h.size):
            total += w[i] * (slope(code, parameter, h[i]) ** 2 / centre - 1.0) ** 2
        out[j] = total
