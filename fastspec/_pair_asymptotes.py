"""Two correlated points of large variance: one integral over the angle between them.

Let nu be the measure phi'' where phi has two asymptotes, phi' where it is bounded; either falls off
like e^{-|h|} or faster. (h, h') are centred Gaussian of variance q and
correlation cos(theta) = 1 - d, x = (s - t) / 2 and y = (s + t) / 2. As d/dc E f(h) g(h') =
q E f'(h) g'(h') (Price 1958), with nu = phi'' and mu_1 = E phi'^2

    M(theta) = iint nu(ds) nu(dt) exp(-x^2 / (2 q sin^2(theta/2)) - y^2 / (2 q cos^2(theta/2))),
    E phi'(h) phi'(h') = mu_1 - int_0^theta M / (2 pi),
    gap = q (d mu_1 - int_0^theta (cos t - cos theta) M(t) dt / (2 pi)),

and for bounded phi, with nu = phi',

    gap = int_0^theta M / (2 pi),    E phi'(h) phi'(h') = M(theta) / (2 pi q sin(theta)).

With n = sqrt(q) sin(theta/2), up to theta = pi / 2

    M = sum_k G_k(n) (-1/2 / (q - n^2))^k / k!,   G_k(n) = iint nu nu y^{2k} exp(-x^2 / (2 n^2)),

and G_k depends on the activation alone: it is tabulated. M tends to nu(R)^2 as n grows, its value
for the leaky ReLU with the same asymptotes (Cho & Saul 2009); what is left is integrated over n by
panels. From pi / 2 to pi x and y change places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._closed_pairs import angle, arc
from .activations import Activation

FloatArray = NDArray[np.float64]

LEAST_VARIANCE = 300.0      # the series in 1 / q then errs by 1e-14
LEAST_SPREAD = 0.05         # of (h - h') / 2 or (h + h') / 2 where phi is bounded: else G_0 cancels
_TERMS = 8                  # of that series
_FAR = 1e3                  # phi and phi' are at their limits beyond
_REACH = 30.0               # nu nu beyond is e^{-60}
_SIZE = 18                  # nodes of a panel
_FIRST = 0.05               # first panel of n
_DOUBLINGS, _QUADRUPLINGS = 10, 11      # the next ones; beyond 2e8 G_k is at its limit
_TURN = 2.0 * math.pi
_TINY = 1e-300              # N = 0 would divide by itself
_PART = 128                 # pairs at a time

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_SIZE)
_EDGES = _FIRST * np.concatenate(([0.0], 2.0 ** np.arange(_DOUBLINGS + 1),
                                  2.0**_DOUBLINGS * 4.0 ** np.arange(1.0, _QUADRUPLINGS + 1)))
_X_EDGES = np.concatenate(([0.0], _REACH * 2.0 ** np.arange(-19.0, 1.0)))   # from the least n on
_TO_SERIES = np.linalg.inv(np.polynomial.legendre.legvander(_NODES, _SIZE - 1))


def _panel_rule(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights in n, shape (panels, size), linear from low = 0, else in log n."""
    far = low > 0.0
    start, end = np.log(np.where(far, low, 1.0)), np.log(np.where(far, high, 2.0))
    half = 0.5 * np.where(far, end - start, high)[:, np.newaxis]
    along = half * (1.0 + _NODES)
    grown = np.where(far, low, 1.0)[:, np.newaxis] * np.exp(along)
    nodes = np.where(far[:, np.newaxis], grown, along)
    return nodes, half * _WEIGHTS * np.where(far[:, np.newaxis], nodes, 1.0)


_ALL_NODES, _ALL_WEIGHTS = (part.ravel() for part in _panel_rule(_EDGES[:-1], _EDGES[1:]))


class _Table(NamedTuple):
    """(-1/2)^k G_k / k! less its limit at k = 0, by panels of n between `_EDGES`.

    The first panel is one in n, the others are in log n.
    """

    values: FloatArray      # at the nodes of all panels, shape (terms, nodes)
    series: FloatArray      # Legendre coefficients, shape (panels, size, terms)


def serves(activation: Activation, q: FloatArray, distance: FloatArray) -> NDArray[np.bool_]:
    """Where `asymptotic_pairs` holds to 1e-12."""
    large = q >= LEAST_VARIANCE
    if activation.name in _BENDS:
        return large
    if activation.name in _BOUNDED:
        return large & (0.5 * q * np.minimum(distance, 2.0 - distance) >= LEAST_SPREAD**2)
    return np.zeros(q.shape, dtype=bool)


def asymptotic_pairs(
    activation: Activation, q: FloatArray, distance: FloatArray, slope_mean: FloatArray
) -> FloatArray:
    """The gap and the slope product, shape (2, n), where `serves`; ``slope_mean`` is E phi'^2."""
    total = _total(activation)
    out = np.empty((2, q.size))
    for start in range(0, q.size, _PART):
        part = slice(start, start + _PART)
        d, variance = distance[part], q[part]
        theta = angle(d)
        whole, weighted, last = _integrals(activation, variance, d)
        whole += total * theta
        if activation.name in _BOUNDED:
            sine = np.sqrt(d * (2.0 - d))
            out[:, part] = whole / _TURN, (total + last) / (_TURN * sine) / variance
        else:
            weighted -= total * arc(theta, d)
            out[:, part] = (variance * (d * slope_mean[part] - weighted / _TURN),
                            slope_mean[part] - whole / _TURN)
    return out


def _integrals(
    activation: Activation, q: FloatArray, d: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Integrals of M - M(infinity) and of (cos t - cos theta) times it up to theta, and its end."""
    whole, weighted, last = _quarter(_table(activation, False), q, np.minimum(d, 1.0))
    blunt = np.flatnonzero(d > 1.0)
    if blunt.size:
        rest, past = 2.0 - d[blunt], d[blunt] - 1.0             # past = -cos(theta)
        square, other = np.moveaxis(np.reshape(
            _quarter(_table(activation, True), np.tile(q[blunt], 2),
                     np.concatenate((np.ones(blunt.size), rest))), (3, 2, -1)), 1, 0)
        weighted[blunt] += past * (whole[blunt] + square[0]) - square[1] + other[1]
        whole[blunt] += square[0] - other[0]
        last[blunt] = other[2]
    return whole, weighted, last


def _quarter(
    table: _Table, q: FloatArray, d: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`_integrals` for d <= 1.

    dtheta = 2 dn / sqrt(q - n^2), cos t - cos theta = d (1 - n^2 / N) with N = q d / 2.
    """
    square = np.maximum(0.5 * q * d, _TINY)
    top = np.minimum(np.sqrt(square), _EDGES[-1])
    panel = np.searchsorted(_EDGES[1:-1], top)
    size = int(np.max(panel)) * _SIZE
    inside = np.arange(size) < panel[:, np.newaxis] * _SIZE
    full = _sums(table.values[:, :size], np.where(inside, _ALL_NODES[:size], 0.0),
                 inside * _ALL_WEIGHTS[:size], q, square)
    nodes, weights = _panel_rule(_EDGES[panel], top)
    place = _place(panel[:, np.newaxis], np.column_stack((nodes, top)))
    at = np.polynomial.legendre.legvander(place, _SIZE - 1) @ table.series[panel]
    values = np.moveaxis(at, 2, 0)
    rest = _sums(values[:, :, :-1], nodes, weights, q, square)
    last = _remainder(values[:, :, -1], q - square)
    return full[0] + rest[0], d * (full[1] + rest[1]), last


def _sums(
    values: FloatArray, nodes: FloatArray, weights: FloatArray, q: FloatArray, square: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sums of 2 w (M - M(infinity)) / sqrt(q - n^2), and of that times 1 - n^2 / N."""
    squares = nodes * nodes
    rest = q[:, np.newaxis] - squares
    terms = 2.0 * weights * _remainder(values, rest) / np.sqrt(rest)
    return (np.sum(terms, axis=1),
            np.sum(terms * (1.0 - squares / square[:, np.newaxis]), axis=1))


def _remainder(values: FloatArray, rest: FloatArray) -> FloatArray:
    """M - M(infinity) from the rows of a table at n, and q - n^2."""
    inverse = 1.0 / rest
    total = values[-1] * inverse
    for row in values[-2:0:-1]:
        total += row
        total *= inverse
    return total + values[0]


def _place(panel: NDArray[np.intp], n: FloatArray) -> FloatArray:
    """Where n lies in its panel, -1 to 1."""
    low, high = _EDGES[panel], _EDGES[panel + 1]
    far = low > 0.0
    start = np.where(far, low, 1.0)
    share = np.log(np.where(far, n, 1.0) / start) / np.log(np.where(far, high, 2.0) / start)
    return 2.0 * np.where(far, share, n / high) - 1.0


def _total(activation: Activation) -> float:
    """nu(R)^2."""
    function = activation if activation.name in _BOUNDED else activation.derivative
    return float(function(_FAR) - function(-_FAR)) ** 2


@lru_cache(maxsize=64)
def _table(activation: Activation, mirrored: bool) -> _Table:
    kinks = np.array(activation.kinks)          # two of them meet at these x
    ends = np.unique(np.concatenate((_X_EDGES, 0.5 * np.abs(np.add.outer(kinks, -kinks)).ravel())))
    x, weights = (part.ravel() for part in _panel_rule(ends[:-1], ends[1:]))
    rows = np.array([_correlations(activation, at, mirrored) for at in x]).T * weights
    ratio = x[:, np.newaxis] / _ALL_NODES
    values = rows @ np.exp(-0.5 * np.minimum(ratio * ratio, 1400.0))
    values[0] += _jump(activation) ** 2 - _total(activation)
    values *= np.array([(-0.5) ** k / math.factorial(k) for k in range(_TERMS)])[:, np.newaxis]
    panels = values.reshape(_TERMS, -1, _SIZE)
    return _Table(values, np.einsum("ij,kpj->pik", _TO_SERIES, panels))


def _correlations(activation: Activation, x: float, mirrored: bool) -> FloatArray:
    """For each k the density in |x| of iint nu nu y^{2k}, x and y exchanged if ``mirrored``."""
    density = _density(activation)
    kinks = np.array(activation.kinks)          # symmetric about 0
    out = np.zeros(_TERMS)
    for side in (x, -x):
        y, w = _fine_rule(np.concatenate((kinks - x, kinks + x)))
        pair = 2.0 * w * density(side + y) * density(side - y if mirrored else y - side)
        # The atom: s = 0 and t = 2 side, or the other way round, |y| = |x|.
        y = np.append(y, x)
        pair = np.append(pair, 4.0 * _jump(activation) * density(np.array([2.0 * side])))
        for k in range(_TERMS):
            out[k] += np.sum(pair)
            pair *= y * y
    return out


def _fine_rule(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Panels of y no wider than 1 on [-reach, reach], cut at ``cuts``."""
    ends = np.unique(np.clip(np.concatenate((np.arange(-_REACH, _REACH + 1.0), cuts)),
                             -_REACH, _REACH))
    half, centre = 0.5 * np.diff(ends)[:, np.newaxis], 0.5 * (ends[1:] + ends[:-1])[:, np.newaxis]
    return (centre + half * _NODES).ravel(), (half * _WEIGHTS).ravel()


def _jump(activation: Activation) -> float:
    """The atom of nu = phi'' at 0; it has no other."""
    if activation.name in _BOUNDED:
        return 0.0
    return float(activation.derivative(_TINY) - activation.derivative(0.0))


def _density(activation: Activation) -> Callable[[FloatArray], FloatArray]:
    if activation.name in _BOUNDED:
        return activation.derivative
    return lambda h: _BENDS[activation.name](activation, h)


# phi'' but for jumps of phi'.

def _logistic(h: FloatArray) -> FloatArray:
    return 0.5 * (1.0 + np.tanh(0.5 * h))


def _bell(h: FloatArray) -> FloatArray:
    """Derivative of the logistic function."""
    e = np.exp(-np.abs(h))
    return e / (1.0 + e) ** 2


def _softplus(_: Activation, h: FloatArray) -> FloatArray:
    return _bell(h)


def _silu(_: Activation, h: FloatArray) -> FloatArray:
    return _bell(h) * (2.0 - h * np.tanh(0.5 * h))


def _gelu(_: Activation, h: FloatArray) -> FloatArray:
    return (2.0 - h * h) * np.exp(-0.5 * h * h) / math.sqrt(2.0 * math.pi)


def _mish(_: Activation, h: FloatArray) -> FloatArray:
    """phi = h T, T = tanh(log(1 + e^h)): T' = (1 - T^2) s, T'' = T' (1 - s - 2 T s), s logistic."""
    s, t = _logistic(h), np.tanh(np.logaddexp(0.0, h))
    change = (1.0 - t) * (1.0 + t) * s
    return change * (2.0 + h * (1.0 - s - 2.0 * t * s))


def _elu(activation: Activation, h: FloatArray) -> FloatArray:
    return np.where(h > 0.0, 0.0, activation.derivative(np.minimum(h, 0.0)))


_BENDS: dict[str, Callable[[Activation, FloatArray], FloatArray]] = {
    "softplus": _softplus, "silu": _silu, "gelu": _gelu, "mish": _mish, "elu": _elu, "selu": _elu,
}
_BOUNDED = ("tanh", "sigmoid", "hard_tanh")
