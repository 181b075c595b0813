"""Stable correlations of many cells at once, from one table of pair moments.

The moments of a pair depend on q and on the distance d = 1 - c only, not on the sigmas. In ln q
they are smooth, in sqrt(d) too, with or without kinks: a product of Chebyshev series on the range
of q serves all cells, where solving each would take some eight two-dimensional integrals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import quadrature
from ._fixed_points import NOISE, bracketed_roots, second_moments
from ._pairs import pair_rows
from ._progress import with_progress
from .activations import Activation

FloatArray = NDArray[np.float64]

_ACCURACY = 1e-11           # last coefficients against the largest one
_SIZES = (17, 13)           # first numbers of nodes in sqrt(d) and ln q
_GROWTH = 1.5
_PAIRS_PER_CELL = 8.0       # a table that needs more does not pay
_PART = 64                  # pairs between two strokes of the progress bar
_LEAST_WIDTH = 1e-3         # of the range of ln q


def tabulated_distances(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray, progress: bool
) -> tuple[FloatArray, FloatArray] | None:
    """1 - c* of the fixed point that correlations tend to, and C'(c*); flat arrays, q > 0.

    As `_correlations.stable_distances` and `map_slopes`, to about 1e-10. None if a table does not
    pay or its series do not settle.
    """
    after = weight * second_moments(phi, q) + bias
    mean, _, slope_mean = quadrature.moment_rows(phi, q, np.zeros(q.size), 1)
    chi = weight * slope_mean * q / after
    at_zero = (weight * mean * mean + bias) / after
    cells = np.flatnonzero(chi - 1.0 > NOISE)
    series = _series(phi, np.log(q[cells]), progress) if cells.size else np.empty((2, 0, 1))
    if series is None:
        return None
    factor = weight[cells] * q[cells] / after[cells]
    first, last = chi[cells] - 1.0, -np.where(at_zero[cells] > NOISE, at_zero[cells], 0.0)

    def excess(i: NDArray[np.intp], x: FloatArray) -> FloatArray:
        inside = factor[i] * _at(series[0, i], x) - 1.0
        return np.where(x == 0.0, first[i], np.where(x == 1.0, last[i], inside))

    x = bracketed_roots(excess, np.zeros(cells.size), np.ones(cells.size))
    distance, slope = np.zeros(q.size), chi.copy()
    distance[cells], slope[cells] = x * x, factor * _at(series[1], x)
    return distance, slope


def _series(phi: Activation, log_q: FloatArray, progress: bool) -> Any:
    """Per cell, Chebyshev series in 2 sqrt(d) - 1 of gap/(d q) and of E phi' phi'.

    Shape (2, cells, nodes); None if they do not settle on few enough nodes.
    """
    middle = 0.5 * (log_q.max() + log_q.min())
    half = max(0.5 * (log_q.max() - log_q.min()), 0.5 * _LEAST_WIDTH)
    sizes = list(_SIZES)
    while sizes[0] * sizes[1] <= _PAIRS_PER_CELL * log_q.size:
        rows = _tabulate(phi, sizes[0], sizes[1], middle, half, progress)
        series = [_coefficients(row) for row in rows]
        if not np.all(np.isfinite(series)):
            return None
        rough = [max(_tail(s, axis) for s in series) > _ACCURACY for axis in (0, 1)]
        if not any(rough):
            in_q = np.polynomial.chebyshev.chebvander((log_q - middle) / half, sizes[1] - 1)
            return np.stack([in_q @ s.T for s in series])
        sizes = [int(size * _GROWTH) if more else size
                 for size, more in zip(sizes, rough, strict=True)]
    return None


def _tabulate(
    phi: Activation, in_distance: int, in_q: int, middle: float, half: float, progress: bool
) -> FloatArray:
    """gap/(d q) and E phi' phi' at Chebyshev nodes; shape (2, in_distance, in_q)."""
    root = 0.5 * (1.0 + _nodes(in_distance))
    d, q = (a.ravel() for a in np.meshgrid(root * root, np.exp(middle + half * _nodes(in_q)),
                                           indexing="ij"))
    parts = [pair_rows(phi, q[k : k + _PART], d[k : k + _PART])
             for k in with_progress(range(0, q.size, _PART), progress, "correlations")]
    _, gap, product = np.concatenate(parts, axis=1)
    return np.stack([gap / (d * q), product]).reshape(2, in_distance, in_q)


def _nodes(number: int) -> FloatArray:
    return np.cos(np.pi * (np.arange(number) + 0.5) / number)


def _coefficients(values: FloatArray) -> FloatArray:
    """Chebyshev coefficients in both variables from values at the nodes."""
    for _ in range(2):
        vander = np.polynomial.chebyshev.chebvander(_nodes(len(values)), len(values) - 1)
        values = np.asarray(np.linalg.solve(vander, values).T, dtype=np.float64)
    return values


def _tail(series: FloatArray, axis: int) -> float:
    """Largest of the last two coefficients in one variable, against the largest of all."""
    size = np.abs(series)
    return float(np.take(size, (-1, -2), axis).max() / size.max())


def _at(series: FloatArray, x: FloatArray) -> FloatArray:
    """Values at sqrt(d) = x of series of shape (x.size, nodes)."""
    vander = np.polynomial.chebyshev.chebvander(2.0 * x - 1.0, series.shape[1] - 1)
    return np.asarray(np.sum(vander * series, axis=1))
