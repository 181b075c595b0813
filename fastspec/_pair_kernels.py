"""Compiled expectations of the built-in activations at two correlated points (needs numba).

(h, h') are centred Gaussian, of variance q and correlation c = 1 - distance. x and y are their half
difference and half sum (c >= 0), or half sum and half difference (c < 0, "mirrored"): independent,
of deviations narrow <= wide. Four rules, the first that is cheap enough serves:

* a few Gauss nodes in narrow x, in y a trapezoid rule or panels that end at the kinks;
* phi analytic in a strip: the trapezoid rule on a lattice in (x, y). y +- x fall on one lattice,
  too, so phi is evaluated once a lattice point, not once a pair;
* a product of one graded rule for h and for h', against their joint density;
* panels in y within panels in x.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ._gauss_kernels import (
    GELU,
    MISH,
    SIGMOID,
    SILU,
    SOFTPLUS,
    SQRT_2PI,
    TANH,
    phi,
    slope,
)
from ._pair_nodes import (
    EXPONENT,
    NARROW,
    PANEL_SIGMAS,
    REACH,
    narrow_nodes,
    panel_nodes,
    panelled,
    stretched,
)

SHORT_NODES, SHORT_WEIGHTS = np.polynomial.legendre.leggauss(3)
LONG_NODES, LONG_WEIGHTS = np.polynomial.legendre.leggauss(5)
CLOSE = 0.03                # differences of phi over less than twice this are integrals of phi'
LATTICE_MARGIN = 8.0        # phi'^2 phi'^2 has fourth-order poles: e^{-EXPONENT} is not enough
EVALUATION = 30.0           # phi and phi' cost so many lattice pairs
KERNEL = 5.0                # a node of the product rule costs so many lattice pairs
DEAR = 2e6                  # lattice pairs beyond which panels are cheaper
PANELLED_SPREAD = 0.1       # sqrt(1 - c^2) below which the product of panels has too many nodes
TINY_SCALE = 1e-150         # q = 0 stands for q -> 0+: slopes still see both sides
TINIEST = 1e-300            # x = 0 would divide by its scale


@njit(cache=True, nogil=True)
def strip(code):
    """How far from the real axis phi is analytic; where it is entire, a width it varies on."""
    if code == TANH:
        return 0.5 * math.pi
    if code == SIGMOID or code == SOFTPLUS or code == SILU:
        return math.pi
    if code == MISH:
        return 0.75 * math.pi
    if code == GELU:
        return 1.5
    return 1.0


@njit(cache=True, nogil=True)
def mean_slope(code, parameter, kinks, middle, half):
    """(phi(middle + half) - phi(middle - half)) / (2 half), half > 0, without cancellation."""
    straddles = False
    for kink in kinks:
        straddles = straddles or middle - half < kink < middle + half
    if straddles or half > CLOSE:
        change = phi(code, parameter, middle + half) - phi(code, parameter, middle - half)
        return change / (2.0 * half)
    nodes, weights = (SHORT_NODES, SHORT_WEIGHTS) if half < 1e-3 else (LONG_NODES, LONG_WEIGHTS)
    total = 0.0
    for i in range(nodes.size):
        total += 0.5 * weights[i] * slope(code, parameter, middle + half * nodes[i])
    return total


@njit(cache=True, nogil=True)
def _over(nodes, code, parameter, kinks, mirrored, scale):
    """The two expectations from rows x, y, weight; ``scale`` is the deviation of (h - h') / 2."""
    gap = 0.0
    product = 0.0
    for k in range(nodes.shape[1]):
        x, y, w = nodes[0, k], nodes[1, k], nodes[2, k]
        middle, half = (x, y) if mirrored else (y, x)
        if half > 0.0:
            change = half / scale * mean_slope(code, parameter, kinks, middle, half)
            gap += w * change * change
        product += w * slope(code, parameter, middle + half) * slope(code, parameter, middle - half)
    return 2.0 * gap * scale**2, product


@njit(cache=True, nogil=True)
def _lattice_step(code, scale):
    """Step of the trapezoid rule for phi phi' times a Gaussian of deviation ``scale``.

    Moving the line of integration by i t costs e^{t^2 / (2 scale^2)}, for gelu e^{t^2} more, and
    gains e^{-2 pi t / step}; t may go up to the width of the strip.
    """
    exponent = EXPONENT + LATTICE_MARGIN
    if code == GELU:
        return math.pi / math.sqrt(exponent * (1.0 + 0.5 / scale**2))
    width = strip(code)
    free = math.pi * math.sqrt(2.0 / exponent) * scale
    if 2.0 * math.pi * scale**2 / free < width:
        return free
    return 2.0 * math.pi * width / (exponent + 0.5 * (width / scale) ** 2)


@njit(cache=True, nogil=True)
def _weights(count, step, scale, half):
    """Trapezoid weights of N(0, scale^2) at k step, k = -count..count, or twice those of k >= 0."""
    low = 0 if half else -count
    w = np.empty(count - low + 1)
    for k in range(low, count + 1):
        z = k * step / scale
        w[k - low] = step / scale / SQRT_2PI * math.exp(-0.5 * z * z)
    if half:
        w[1:] *= 2.0
    return w


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _lattice_row(f, g, f_back, g_back, w, up, down):
    """sum_k w_k (f[up + k] - f_back[down - k])^2 / 2 and sum_k w_k g[up + k] g_back[down - k]."""
    gap = 0.0
    product = 0.0
    for k in range(w.size):
        change = f[up + k] - f_back[down - k]
        gap += w[k] * change * change
        product += w[k] * g[up + k] * g_back[down - k]
    return 0.5 * gap, product


@njit(cache=True, nogil=True)
def _lattice(code, parameter, odd, mirrored, narrow, wide, step, stride):
    """The two expectations on the lattice x = k step, y = i stride step."""
    many_x = int(REACH * narrow / step) + 1
    many_y = int(REACH * wide / (stride * step)) + 1
    weights_x = _weights(many_x, step, narrow, odd or not mirrored)
    weights_y = _weights(many_y, stride * step, wide, odd or mirrored)
    reach = many_x + stride * many_y
    f, g = np.empty(2 * reach + 1), np.empty(2 * reach + 1)
    for k in range(-reach, reach + 1):
        f[reach + k] = phi(code, parameter, k * step)
        g[reach + k] = slope(code, parameter, k * step)
    # Mirrored, phi(x - y) = psi(y - x) with psi(h) = phi(-h).
    f_back, g_back = (f[::-1].copy(), g[::-1].copy()) if mirrored else (f, g)
    first_x = 0 if odd or not mirrored else -many_x
    first_y = 0 if odd or mirrored else -many_y
    gap = 0.0
    product = 0.0
    for i in range(weights_y.size):
        y = reach + stride * (first_y + i)
        gap_at, product_at = _lattice_row(f, g, f_back, g_back, weights_x, y + first_x,
                                          y - first_x)
        gap += weights_y[i] * gap_at
        product += weights_y[i] * product_at
    return gap, product


@njit(cache=True, nogil=True)
def _product(code, parameter, odd, variance, c, spread, h, w):
    """The two expectations by one rule for h and for h', whose joint density is

    exp(-h^2 / (2q) - (h' - c h)^2 / (2 spread^2)) / (2 pi sqrt(q) spread), spread^2 = q (1 - c^2).
    Of pairs that exchange (h, h') and, for odd phi, change both signs, one is taken.
    """
    size = h.size
    f, g = np.empty(size), np.empty(size)
    for i in range(size):
        f[i], g[i] = phi(code, parameter, h[i]), slope(code, parameter, h[i])
    gap = 0.0
    product = 0.0
    for i in range(size // 2 if odd else 0, size):
        first = max(np.searchsorted(h, c * h[i] - REACH * spread), size - 1 - i if odd else 0)
        last = min(np.searchsorted(h, c * h[i] + REACH * spread), i + 1)
        gap_at = 0.0
        product_at = 0.0
        for j in range(first, last):
            z = (h[j] - c * h[i]) / spread
            weight = w[j] * math.exp(-0.5 * z * z)
            if j == i:
                weight *= 0.5
            if odd and i + j == size - 1:
                weight *= 0.5
            change = f[i] - f[j]
            gap_at += weight * change * change
            product_at += weight * g[j]
        weight = (4.0 if odd else 2.0) * w[i] * math.exp(-0.5 * h[i] * h[i] / variance)
        gap += 0.5 * weight * gap_at
        product += weight * product_at * g[i]
    norm = 2.0 * math.pi * math.sqrt(variance) * spread
    return gap / norm, product / norm


@njit(cache=True, nogil=True)
def _stretched_cost(odd, width, variance, c, spread):
    """Pairs of nodes that `_product` takes on the stretched rule, in units of lattice pairs."""
    opening = math.atan(spread / math.sqrt(variance))
    many = math.asinh(REACH * math.sqrt(variance) / width) / (2.0 * math.pi * opening / EXPONENT)
    # Nodes closer to 0 than the reach of the kernel all meet; further out the band narrows.
    inner = math.asinh(REACH * spread / width) * many / math.asinh(
        REACH * math.sqrt(variance) / width)
    pairs = 4.0 * inner * inner + 4.0 * (many - inner) * REACH * spread / math.sqrt(variance) * many
    return KERNEL * pairs / (4.0 if odd else 2.0) + 2.0 * EVALUATION * many


@njit(cache=True, nogil=True)
def scales(q, distance):
    """Deviations of x and y, and whether x is the half sum of h and h'."""
    scale = max(math.sqrt(0.5 * q), TINY_SCALE)
    narrow = max(scale * math.sqrt(min(distance, 2.0 - distance)), TINIEST)
    return narrow, scale * math.sqrt(max(distance, 2.0 - distance)), distance > 1.0


@njit(cache=True, nogil=True)
def _smooth(code, parameter, odd, c, narrow, wide, mirrored):
    """The two expectations for phi without kinks."""
    width = strip(code)
    if narrow < NARROW * width:
        nodes = narrow_nodes(odd, mirrored, narrow, wide, width)
        return _over(nodes, code, parameter, np.empty(0), mirrored, wide if mirrored else narrow)
    variance = narrow**2 + wide**2
    spread = 2.0 * narrow * wide / math.sqrt(variance)
    step = _lattice_step(code, narrow)
    stride = max(1, int(_lattice_step(code, wide) / step))
    folds = 4.0 if odd else 2.0
    lattice = (4.0 * narrow * wide * (REACH / step) ** 2 / stride / folds
               + 2.0 * EVALUATION * REACH * (narrow + wide) / step)
    product = _stretched_cost(odd, width, variance, c, spread)
    if lattice < min(product, DEAR):
        return _lattice(code, parameter, odd, mirrored, narrow, wide, step, stride)
    if product < DEAR:
        h, w = stretched(width, variance, math.atan(spread / math.sqrt(variance)))
        return _product(code, parameter, odd, variance, c, spread, h, w)
    return _panels(code, parameter, np.empty(0), odd, mirrored, narrow, wide)


@njit(cache=True, nogil=True)
def _kinked(code, parameter, kinks, odd, c, narrow, wide, mirrored):
    """The two expectations for phi with kinks."""
    variance = narrow**2 + wide**2
    spread = 2.0 * narrow * wide / math.sqrt(variance)
    if spread > PANELLED_SPREAD * math.sqrt(variance):
        h, w = panelled(kinks, strip(code), variance, spread)
        return _product(code, parameter, odd, variance, c, spread, h, w)
    return _panels(code, parameter, kinks, odd, mirrored, narrow, wide)


@njit(cache=True, nogil=True)
def _panels(code, parameter, kinks, odd, mirrored, narrow, wide):
    nodes = panel_nodes(kinks, odd, mirrored, narrow, wide, strip(code), PANEL_SIGMAS)
    return _over(nodes, code, parameter, kinks, mirrored, wide if mirrored else narrow)


@njit(["void(int64, float64, float64[::1], boolean, float64[::1], float64[::1], float64[:, ::1])"],
      cache=True, nogil=True)
def pairs(code, parameter, kinks, odd, q, distance, out):
    """out[0, j] = E (phi(h) - phi(h'))^2 / 2, out[1, j] = E phi'(h) phi'(h'), distance > 0."""
    for j in range(q.size):
        narrow, wide, mirrored = scales(q[j], distance[j])
        c = 1.0 - distance[j]
        if kinks.size == 0:
            gap, product = _smooth(code, parameter, odd, c, narrow, wide, mirrored)
        else:
            gap, product = _kinked(code, parameter, kinks, odd, c, narrow, wide, mirrored)
        if q[j] < 2.0 * TINY_SCALE**2:
            gap *= q[j] / (2.0 * TINY_SCALE**2)
        out[0, j], out[1, j] = gap, product
