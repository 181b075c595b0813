"""The layers of a network as the outliers need them: statistics, and Gaussian nodes of each layer.

Symbols: p_l = E (x^l)^2, q_l = s^2 p_{l-1} + sigma_b^2 the variance of h_l, D = phi'(h_l),
g_l = W_l x^{l-1} / |x^{l-1}|, of which E[g | h] = s^2 sqrt(p_{l-1}) h/q and
Var[g | h] = s^2 sigma_b^2 / q.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .activations import Activation

FloatArray = NDArray[np.float64]

_NEAR_ZERO, _FAR = 1e-9, 1e6    # abs(h) between which slopes are looked at
_ZOOMS = 5
_FLAT = 1e-6


class Statistics(NamedTuple):
    """What the outliers depend on: one network, as propagated."""

    activation: Activation
    skip: float                 # a; 0 for feed-forward networks
    weight_variance: float      # s^2
    bias_variance: float        # sigma_b^2
    orthogonal: bool
    input_mean: float           # E x^0
    second_moment: FloatArray   # p_0 ... p_L
    q: FloatArray               # q_1 ... q_L
    top: float                  # supremum of phi'^2, maybe inf
    peak: float | None          # where it is attained, if at a place far from 0

    @property
    def depth(self) -> int:
        return self.q.size


class Nodes(NamedTuple):
    """Gaussian nodes of all layers, shape (L, K); short rows are filled up with weights 0.

    The last column, of weight 0, is where phi'^2 has its maximum (`slope_peak`), if it has one.
    """

    weight: FloatArray      # E f(h_l) = sum over the row of weight f
    below_top: FloatArray   # 1 - phi'^2 / top
    d: FloatArray           # phi'^2 / top
    mass: FloatArray        # weight d
    phi: FloatArray         # phi(h) / sqrt(p_l)
    response: FloatArray    # E[D g | h]
    spread: FloatArray      # Var[D g | h]


@lru_cache(maxsize=64)
def slope_supremum(activation: Activation) -> float:
    """Supremum of phi'^2 over all h, maybe inf; of users' functions as seen at many points."""
    from ._slope_hull import hull
    from ._slope_rules import _sides

    if activation.slopes is not None:
        return max(slope * slope for slope in activation.slopes)
    slope = activation.derivative
    tops = [float(np.max(_sides(slope, kink))) for kink in activation.kinks]
    return max([hull(slope, _NEAR_ZERO, 1.0, 0.0)[1], *(top * top for top in tops)])


@lru_cache(maxsize=64)
def slope_peak(activation: Activation, top: float) -> float | None:
    """h > 0 or < 0 at which phi'^2 has a maximum equal to ``top``; None if there is none."""
    if activation.slopes is not None:
        return None
    away = np.geomspace(_NEAR_ZERO, _FAR, 751)
    h = np.concatenate([-away[::-1], away])
    for _ in range(_ZOOMS):
        d = np.asarray(activation.derivative(h), dtype=float) ** 2
        best = int(np.argmax(d))
        h = np.linspace(h[max(best - 1, 0)], h[min(best + 1, h.size - 1)], 65)
    place = float(h[32])
    around = np.asarray(activation.derivative(place * np.array([0.7, 1.0, 1.3])), dtype=float) ** 2
    is_peak = abs(around[1] / top - 1.0) < _FLAT and max(around[0], around[2]) < top * (1.0 - _FLAT)
    return place if is_peak and abs(place) > _FLAT else None


def nodes(net: Statistics, grade: float = 1.0) -> Nodes:
    """Panels of the package's rule (`_gauss_kernels`), ``grade`` times as wide."""
    h, weight = _rule(net, grade)
    peak = 0.0 if net.peak is None else net.peak
    h, weight = (np.pad(columns, ((0, 0), (0, 1)), constant_values=last)
                 for columns, last in ((h, peak), (weight, 0.0)))
    slope = np.asarray(net.activation.derivative(h), dtype=float)
    d = np.minimum(slope * slope / net.top, 1.0)
    q = net.q[:, np.newaxis]
    incoming, outgoing = (p[:, np.newaxis] for p in (net.second_moment[:-1],
                                                    net.second_moment[1:]))
    with np.errstate(under="ignore"):
        gain = net.weight_variance * np.sqrt(incoming) / q
        own = net.weight_variance * (net.bias_variance / q)
        return Nodes(weight, 1.0 - d, d, weight * d,
                     np.asarray(net.activation(h), dtype=float) / np.sqrt(outgoing),
                     slope * gain * h, slope * slope * own)


def _rule(net: Statistics, grade: float) -> tuple[FloatArray, FloatArray]:
    from . import _gauss_kernels as kernels

    kinks, reach = np.array(net.activation.kinks, dtype=float), kernels.CENTRED_RANGE
    scales = np.maximum(np.sqrt(net.q), kernels.TINY_SCALE)
    # Between the kinks of a piecewise linear phi nothing varies but the normal law.
    shrink = np.minimum(1.0, 0.5 / scales) if net.activation.slopes is not None else (
        np.ones(scales.size))
    rows = [_refined(kernels.panel_edges(0.0, less * scale, less * kinks, -reach, reach, grade),
                     grade) for scale, less in zip(scales.tolist(), shrink.tolist(), strict=True)]
    most = max(row.size for row in rows)
    edges = np.array([np.pad(row, (0, most - row.size), mode="edge") for row in rows])
    centre, half = 0.5 * (edges[:, 1:] + edges[:, :-1]), 0.5 * np.diff(edges)
    z = centre[..., np.newaxis] + half[..., np.newaxis] * kernels.NODES
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    weight = half[..., np.newaxis] * kernels.WEIGHTS * density
    shape = scales.size, -1
    return scales[:, np.newaxis] * z.reshape(shape), weight.reshape(shape)


def _refined(edges: FloatArray, grade: float) -> Any:
    """Every panel cut into 1/grade parts: the rule's own grade does not cut the widest ones."""
    parts = max(1, round(1.0 / grade))
    at = np.arange((edges.size - 1) * parts + 1) / parts
    return np.interp(at, np.arange(edges.size), edges)
