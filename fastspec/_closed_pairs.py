"""E (phi(h) - phi(h'))^2 / 2 and E phi'(h) phi'(h') in closed form, without cancellation.

(h, h') are centred Gaussian of variance q and correlation cos(theta) = 1 - d, 0 < d <= 2. Each
function takes flat arrays (parameter, q, d) and returns the two rows. q = 0 is the limit q -> 0+.
Sources: Cho & Saul 2009 (relu and its powers), Williams 1997 (erf).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Rows = tuple[FloatArray, FloatArray]

_SERIES = [(-1.0) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(1, 11)]


def closed_pairs(name: str, parameter: float, q: FloatArray, d: FloatArray) -> FloatArray:
    """The gap and the slope product, shape (2, n)."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return np.array(CLOSED[name](parameter, q, d))


def _linear(_: float, q: FloatArray, d: FloatArray) -> Rows:
    return q * d, np.ones_like(q)


def _leaky_relu(slope: float, q: FloatArray, d: FloatArray) -> Rows:
    """phi = (1 + a) h / 2 + (1 - a) |h| / 2; E |h h'| = q (2 (sin t - t cos t) / pi + cos t)."""
    theta = angle(d)
    bend = (1.0 - slope) ** 2 / (2.0 * math.pi)
    even = 0.5 * (1.0 + slope * slope)
    return q * (even * d + bend * arc(theta, d)), even - bend * theta


def angle(d: FloatArray) -> FloatArray:
    """theta = arccos(1 - d), 0 < theta <= pi."""
    near = 2.0 * np.arcsin(np.sqrt(0.5 * np.minimum(d, 1.0)))
    far = math.pi - 2.0 * np.arcsin(np.sqrt(0.5 * (2.0 - np.maximum(d, 1.0))))
    return np.where(d < 0.5, near, np.where(d > 1.5, far, np.arccos(1.0 - d)))


def arc(theta: FloatArray, d: FloatArray) -> FloatArray:
    """theta cos(theta) - sin(theta), by its series where that cancels."""
    small = np.minimum(theta, 1.0)
    series = small**3 * np.polyval(_SERIES[::-1], small * small)
    return np.where(theta < 1.0, series, theta * (1.0 - d) - np.sin(theta))


def _erf(scale: float, q: FloatArray, d: FloatArray) -> Rows:
    """E phi phi' = (2/pi) asin(a c), a = t / (1 + t), t = 2 scale^2 q, as one arctangent."""
    t = 2.0 * scale * scale * q
    a, c = t / (1.0 + t), 1.0 - d
    open_one = np.sqrt(1.0 + 2.0 * t) / (1.0 + t)               # sqrt(1 - a^2)
    apart = d * (2.0 - d)                                       # 1 - c^2
    open_two = np.sqrt(open_one * open_one + a * a * apart)     # sqrt(1 - a^2 c^2)
    top = a * np.where(c > 0.0, apart / (open_two + np.abs(c) * open_one), open_two - c * open_one)
    gap = 2.0 / math.pi * np.arctan2(top, open_one * open_two + a * a * c)
    return gap, 4.0 * scale * scale / math.pi / ((1.0 + t) * open_two)


def _sin(_: float, q: FloatArray, d: FloatArray) -> Rows:
    near, far = np.exp(-q * d), np.exp(-q * (2.0 - d))
    return -0.5 * np.expm1(-q * d) * (1.0 + far), 0.5 * (near + far)


def _alpha_relu(alpha: float, q: FloatArray, d: FloatArray) -> Rows:
    """Polar coordinates: h = r sin(s), h' = r sin(s + theta), E r^{2 alpha} = (2q)^alpha Gamma.

    With S = (pi - theta) / 2 and K = 2^alpha Gamma(alpha + 1) / (2 pi)
      gap = K q^alpha (int_0^S (sin^alpha(s + theta) - sin^alpha s)^2 ds
                       + int_0^theta sin^{2 alpha} s ds),
      E phi' phi' = alpha Gamma(alpha + 1) (2q)^{alpha - 1} / pi
                    int_0^S (sin s sin(s + theta))^{alpha - 1} ds.
    """
    integrals = np.array([_power_integrals(alpha, distance) for distance in d]).reshape(-1, 2)
    scale = math.gamma(alpha + 1.0)
    gap = scale * (2.0 * q) ** alpha / (2.0 * math.pi) * integrals[:, 0]
    size = np.where(d < 2.0, alpha * scale * (2.0 * q) ** (alpha - 1.0) / math.pi, 0.0)
    return gap, size * integrals[:, 1]


def _power_integrals(alpha: float, d: float) -> tuple[float, float]:
    """The two integrals of `_alpha_relu`, by panels in v = log(S / s)."""
    half = math.asin(math.sqrt(0.5 * (2.0 - d))) if d > 1.0 else (
        0.5 * math.pi - math.asin(math.sqrt(0.5 * d)))          # S
    theta = 2.0 * math.asin(math.sqrt(0.5 * d)) if d <= 1.0 else math.pi - 2.0 * half
    outside = _sine_power(alpha, theta, half)
    if half == 0.0:
        return outside, 0.0
    v, w = _log_panels(max(math.log(half / theta), 0.0), alpha)
    s = half * np.exp(-v)
    low = np.sin(s)
    high = np.sin(s + theta) if d <= 1.0 else np.sin(2.0 * half - s)
    # sin(s + theta) - sin(s) = 2 sin(theta / 2) sin(S - s)
    ratio = np.log1p(2.0 * math.sqrt(0.5 * d) * np.sin(-half * np.expm1(-v)) / low)
    small = np.minimum(alpha * ratio, 1.0)
    change = np.where(alpha * ratio < 1.0, low**alpha * np.expm1(small), high**alpha - low**alpha)
    inside = float(np.sum(w * s * change**2))
    return inside + outside, float(np.sum(w * s * np.exp((alpha - 1.0) * np.log(low * high))))


def _sine_power(alpha: float, theta: float, half: float) -> float:
    """Integral of sin^{2 alpha} from 0 to theta = pi - 2 half, an incomplete beta function."""
    from scipy.special import beta, betainc

    whole = float(beta(alpha + 0.5, 0.5))
    if theta <= 0.5 * math.pi:
        return 0.5 * whole * float(betainc(alpha + 0.5, 0.5, math.sin(theta) ** 2))
    return whole - 0.5 * whole * float(betainc(alpha + 0.5, 0.5, math.sin(2.0 * half) ** 2))


def _log_panels(turn: float, alpha: float) -> Rows:
    """Nodes and weights on v > 0 for functions that change at v = turn, then decay like
    e^{-v} or e^{-alpha v}, and whose nearest singularity (s = pi or 2 S) is at v = -log 2."""
    first = [0.0, 0.5, 1.0, 2.0, 4.0]
    middle = np.arange(7.0, max(turn, 4.0) + 8.0, 3.0)
    last = middle[-1] + np.arange(6.0, 40.0 * max(1.0, 1.0 / alpha) + 6.0, 6.0)
    edges = np.concatenate([first, middle, last])
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    centre = 0.5 * (edges[1:] + edges[:-1])[:, np.newaxis]
    nodes, weights = np.polynomial.legendre.leggauss(14)
    return (centre + half * nodes).ravel(), (half * weights).ravel()


CLOSED: dict[str, Callable[[float, FloatArray, FloatArray], Rows]] = {
    "linear": _linear,
    "relu": lambda _, q, d: _leaky_relu(0.0, q, d),
    "leaky_relu": _leaky_relu,
    "erf": lambda _, q, d: _erf(1.0, q, d),
    "scaled_erf": lambda _, q, d: _erf(0.5 * math.sqrt(math.pi), q, d),
    "sin": _sin,
    "alpha_relu": _alpha_relu,
}
