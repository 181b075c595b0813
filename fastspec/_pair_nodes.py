"""Rules for a pair of Gaussians: nodes and weights that know of phi only its bends and kinks.

x and y are independent, of deviations ``narrow`` <= ``wide``: the half difference and half sum of h
and h', so that h = y + x and h' = y - x; or, "mirrored", half sum and half difference, so that
h = x + y and h' = x - y. All is compiled (needs numba).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ._gauss_kernels import EPSILON, SQRT_2PI

NODES, WEIGHTS = np.polynomial.legendre.leggauss(14)
PANEL_SIGMAS = 2.0          # widest panel in standard deviations
PANEL_GROWTH = 1.5          # widest panel over its distance from a bend
MOST_PANELS = 4096
REACH = 8.6                 # P(|z| > 8.6) = 8e-18
NARROW = 0.05               # x so narrow, in units of what phi varies on, needs a few nodes only
EXPONENT = 36.0             # trapezoid rules err by about e^{-36}


def _even_gauss(size):
    """Gauss rule for even functions of z ~ N(0, 1): nodes z > 0, weights that add up to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(2 * size)
    return nodes[size:].copy(), weights[size:] / np.sum(weights[size:])


def _half_range_gauss(size):
    """Gauss rule for |z|, z ~ N(0, 1), by the discretised Stieltjes procedure (Gautschi 2004)."""
    x = np.add.outer(np.arange(13.0), 0.5 * (1.0 + NODES)).ravel()
    w = np.tile(WEIGHTS, 13) * np.exp(-0.5 * x * x)
    before, now = np.zeros_like(x), np.full_like(x, 1.0 / math.sqrt(np.sum(w)))
    diagonal, beside = np.empty(size), np.zeros(size + 1)
    for k in range(size):
        diagonal[k] = np.sum(w * x * now * now)
        after = (x - diagonal[k]) * now - beside[k] * before
        beside[k + 1] = math.sqrt(np.sum(w * after * after))
        before, now = now, after / beside[k + 1]
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[1:-1], 1)
                                    + np.diag(beside[1:-1], -1))
    return nodes, vectors[0] ** 2 / np.sum(vectors[0] ** 2)


EVEN_NODES, EVEN_WEIGHTS = _even_gauss(5)
HALF_NODES, HALF_WEIGHTS = _half_range_gauss(10)


@njit(cache=True, nogil=True)
def _edges(low, high, width, bend, bends, cuts, edges):
    """Fill ``edges`` with panel ends on [low, high], cut at ``cuts``; their number.

    Panels are at most ``width`` wide and, next to a point of ``bends``, at most ``bend``.
    """
    count = 1
    edges[0] = low
    at = low
    while at < high:
        if count == edges.size:
            raise ValueError("too many panels")
        end = min(at + width, high)
        for centre in bends:
            if at >= centre:
                end = min(end, at + max(bend, PANEL_GROWTH * (at - centre)))
            else:
                end = min(end, max(at + bend, centre - (centre - at) / (1.0 + PANEL_GROWTH)))
        for cut in cuts:
            if at < cut < end:
                end = cut
        at = max(end, at + EPSILON * abs(at))   # a step below rounding would never end
        edges[count] = at
        count += 1
    return count


@njit(cache=True, nogil=True)
def _fill(edges, count, nodes, weights):
    """Legendre nodes and weights on the first ``count`` - 1 panels."""
    for panel in range(count - 1):
        half = 0.5 * (edges[panel + 1] - edges[panel])
        centre = 0.5 * (edges[panel + 1] + edges[panel])
        for i in range(NODES.size):
            nodes[panel * NODES.size + i] = centre + half * NODES[i]
            weights[panel * NODES.size + i] = half * WEIGHTS[i]


@njit(cache=True, nogil=True)
def _normal(x, w, scale, fold):
    """Multiply ``w`` by ``fold`` times the density of N(0, scale^2) at ``x``."""
    for i in range(x.size):
        z = x[i] / scale
        w[i] *= fold / scale / SQRT_2PI * math.exp(-0.5 * z * z)


@njit(cache=True, nogil=True)
def _few(nodes, weights, folded, narrow):
    """A rule for z > 0 as one for x ~ N(0, narrow^2), of x > 0 only if ``folded``."""
    if folded:
        return narrow * nodes, weights.copy()
    return (np.concatenate((-narrow * nodes, narrow * nodes)),
            0.5 * np.concatenate((weights, weights)))


@njit(cache=True, nogil=True)
def _outer(kinks, mirrored, folded, bend, sigmas, narrow, wide):
    """Nodes x and weights over x ~ N(0, narrow^2); panels end where two kinks meet in y."""
    if narrow < NARROW * min(bend, wide):
        return _few(HALF_NODES, HALF_WEIGHTS, folded, narrow)
    crossings = np.empty(kinks.size**2)
    for a in range(kinks.size):
        for b in range(kinks.size):
            crossings[a * kinks.size + b] = 0.5 * (
                kinks[a] + kinks[b] if mirrored else kinks[a] - kinks[b])
    edges = np.empty(MOST_PANELS)
    low, fold = (0.0, 2.0) if folded else (-REACH * narrow, 1.0)
    count = _edges(low, REACH * narrow, sigmas * narrow, bend, np.zeros(1), crossings, edges)
    x, w = np.empty((count - 1) * NODES.size), np.empty((count - 1) * NODES.size)
    _fill(edges, count, x, w)
    _normal(x, w, narrow, fold)
    return x, w


@njit(cache=True, nogil=True)
def panel_nodes(kinks, odd, mirrored, narrow, wide, bend, sigmas):
    """Rows x, y, weight: panels in y, cut at kinks of phi(h) and phi(h'), within panels in x."""
    edges, cuts, bends = np.empty(MOST_PANELS), np.empty(2 * kinks.size), np.empty(2)
    outer, outer_weights = _outer(kinks, mirrored, odd or not mirrored, bend, sigmas, narrow, wide)
    low, fold = (0.0, 2.0) if odd or mirrored else (-REACH * wide, 1.0)
    parts = []
    total = 0
    for i in range(outer.size):
        x = outer[i]
        for k in range(kinks.size):
            cuts[2 * k] = kinks[k] - x
            cuts[2 * k + 1] = x - kinks[k] if mirrored else x + kinks[k]
        bends[0], bends[1] = -x, x
        count = _edges(low, REACH * wide, sigmas * wide, bend, bends, cuts, edges)
        part = np.empty((3, (count - 1) * NODES.size))
        part[0] = x
        _fill(edges, count, part[1], part[2])
        _normal(part[1], part[2], wide, fold * outer_weights[i])
        parts.append(part)
        total += part.shape[1]
    out = np.empty((3, total))
    at = 0
    for part in parts:
        out[:, at:at + part.shape[1]] = part
        at += part.shape[1]
    return out


@njit(cache=True, nogil=True)
def stretched(width, variance, opening):
    """Nodes h = width sinh t and weights of the trapezoid rule in t, over all h.

    phi may have poles ``width`` off the real axis: +-i pi / 2 in t. The density must decay along
    the line Im t = opening: pi / 4 for one Gaussian, arctan sqrt(1 - c^2) for two of correlation c.
    """
    width = min(width, math.sqrt(variance))
    step = 2.0 * math.pi * opening / EXPONENT
    many = int(math.asinh(REACH * math.sqrt(variance) / width) / step) + 1
    h, w = np.empty(2 * many + 1), np.empty(2 * many + 1)
    for k in range(-many, many + 1):
        h[many + k] = width * math.sinh(k * step)
        w[many + k] = width * math.cosh(k * step) * step
    return h, w


@njit(cache=True, nogil=True)
def narrow_nodes(odd, mirrored, narrow, wide, width):
    """Rows x, y, weight for phi analytic in a strip ``width`` wide, x much narrower than that."""
    outer, outer_weights = _few(EVEN_NODES, EVEN_WEIGHTS, odd or not mirrored, narrow)
    y, w = stretched(width, wide * wide, 0.25 * math.pi)
    _normal(y, w, wide, 1.0)
    if odd or mirrored:
        y, w = y[y.size // 2:], w[y.size // 2:].copy()
        w[1:] *= 2.0
    out = np.empty((3, outer.size * y.size))
    for i in range(outer.size):
        for j in range(y.size):
            k = i * y.size + j
            out[0, k], out[1, k], out[2, k] = outer[i], y[j], outer_weights[i] * w[j]
    return out


@njit(cache=True, nogil=True)
def panelled(kinks, bend, variance, spread):
    """Nodes h and weights of panels over all h, symmetric about 0, for kernels ``spread`` wide."""
    edges = np.empty(MOST_PANELS)
    count = _edges(0.0, REACH * math.sqrt(variance), PANEL_SIGMAS * spread, bend, np.zeros(1),
                   np.abs(kinks), edges)
    size = (count - 1) * NODES.size
    h, w = np.empty(2 * size), np.empty(2 * size)
    _fill(edges, count, h[size:], w[size:])
    h[:size], w[:size] = -h[size:][::-1], w[size:][::-1]
    return h, w
