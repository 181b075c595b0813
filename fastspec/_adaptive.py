"""Adaptive Gaussian expectations of arbitrary functions, with an error estimate.

20-point Gauss-Legendre panels in z, h = mean + scale z, first on |z| <= 9 and then outwards while
that adds anything, are halved until both halves agree with the whole. A kink between a panel's end
and its outermost node is seen by neither; so the integrand is also taken just inside both ends and
held against the extrapolation from the nodes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Integrand = Callable[[FloatArray], FloatArray]      # nodes (n,) -> rows (r, n)

_CORE = 9.0                 # standard deviations integrated first, on either side
_STEP = 3.0                 # then further out in steps, until a step adds nothing
_REACH = 38.0               # exp(-38^2 / 2) underflows: nothing lies beyond
_NEGLIGIBLE = 1e-17
_PANEL_TOLERANCE = 2e-15    # error allowed on one panel, relative to E|f|
_WARN_FACTOR = 500.0        # a total error beyond so many panels' worth is reported
_MAX_HALVINGS = 60
_MAX_PANELS = 8192          # a function that still needs more is noise


def adaptive(
    rows: Integrand, q: float, mean: float, kinks: FloatArray, tolerance: float = _PANEL_TOLERANCE
) -> tuple[FloatArray, FloatArray]:
    """E of each row of ``rows(h)``, h ~ N(mean, q), and its estimated absolute error.

    ``tolerance`` is the error allowed on one panel, relative to E|row|. Raises ValueError where the
    result is not finite, warns with ConvergenceWarning where the tolerance is missed by far.
    """
    kernels = _kernels()
    scale = max(math.sqrt(q), kernels.TINY_SCALE)

    def integrate(low: float, high: float, known: Any) -> tuple[FloatArray, ...]:
        edges = kernels.panel_edges(mean, scale, kinks, low, high, 1.0)
        return _halve_until_settled(rows, mean, scale, edges, known, tolerance)

    value, error, size = integrate(-_CORE, _CORE, 0.0)
    for side in (-1.0, 1.0):
        start = _CORE
        while start < _REACH:
            low, high = sorted((side * start, side * min(start + _STEP, _REACH)))
            part, part_error, part_size = integrate(low, high, size)
            value, error, size = value + part, error + part_error, size + part_size
            if np.all((part_size <= _NEGLIGIBLE * size) & (size > 0.0)):
                break
            start += _STEP
    _judge(value, error, size, f"q = {q:g}, mean = {mean:g}", tolerance)
    return value, error


def deviation_tolerance(rows: Integrand, q: float, mean: float, kinks: FloatArray) -> float:
    """Panel tolerance for squared deviations (d / E d - 1)^2 that are known to rounding only.

    Deviations of size s carry relative noise eps / s; asking for less would never settle.
    """
    kernels = _kernels()
    scale = max(math.sqrt(q), kernels.TINY_SCALE)
    edges = kernels.panel_edges(mean, scale, kinks, -_CORE, _CORE, 1.0)
    rough = float(np.sum(_panels(rows, mean, scale, edges[:-1], edges[1:])[0]))
    return max(_PANEL_TOLERANCE, np.finfo(float).eps / math.sqrt(max(rough, 1e-30)))


def _kernels() -> Any:
    from . import _gauss_kernels

    return _gauss_kernels


def _judge(
    value: FloatArray, error: FloatArray, size: FloatArray, where: str, tolerance: float
) -> None:
    if not np.all(np.isfinite(value)):
        raise ValueError(f"the Gaussian expectation at {where} is not finite: the function "
                         "overflows, is NaN or grows too fast there")
    if np.any(error > _WARN_FACTOR * tolerance * size):
        from .errors import ConvergenceWarning

        worst = float(np.max(error / np.where(size > 0.0, size, 1.0)))
        warnings.warn(f"the Gaussian expectation at {where} is only good to {worst:.1e}: the "
                      "function is noisy or rough", ConvergenceWarning, stacklevel=4)


def _halve_until_settled(
    rows: Integrand, mean: float, scale: float, edges: FloatArray, known: FloatArray | float,
    tolerance: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Integrals of rows, their errors and those of |rows| over panels; ``known`` adds to E|f|."""
    low, high = edges[:-1], edges[1:]
    whole, size, _ = _panels(rows, mean, scale, low, high)
    allowed = tolerance * (np.sum(size, axis=1) + known)[:, np.newaxis]
    value, error, total = np.zeros((3, len(whole)))
    for halving in range(_MAX_HALVINGS):
        middle = 0.5 * (low + high)
        left, left_size, left_hidden = _panels(rows, mean, scale, low, middle)
        right, right_size, right_hidden = _panels(rows, mean, scale, middle, high)
        with np.errstate(invalid="ignore"):
            gap = np.abs(left + right - whole) + left_hidden + right_hidden
        settled = np.all(gap <= allowed, axis=0) | ~np.all(np.isfinite(gap), axis=0)
        settled |= halving == _MAX_HALVINGS - 1 or low.size > _MAX_PANELS
        value += np.sum((left + right)[:, settled], axis=1)
        # Next to a kink a small gap can be chance: there a panel is known to its tolerance only.
        sure = gap if halving == 0 else np.maximum(gap, allowed)
        error += np.sum(sure[:, settled], axis=1)
        total += np.sum((left_size + right_size)[:, settled], axis=1)
        if np.all(settled):
            break
        again = ~settled
        low, high = (np.concatenate([low[again], middle[again]]),
                     np.concatenate([middle[again], high[again]]))
        whole = np.concatenate([left[:, again], right[:, again]], axis=1)
    return value, error + np.finfo(float).eps * total, total


def _panels(
    rows: Integrand, mean: float, scale: float, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Integrals of rows times the normal density over each [low, high], of |rows|, and what the
    gaps between the ends and the outermost nodes may hide."""
    nodes, weights, inset, extrapolation = _rule()
    half = 0.5 * (high - low)[:, np.newaxis]
    z = 0.5 * (high + low)[:, np.newaxis] + half * np.concatenate([[-inset], nodes, [inset]])
    density = half * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = rows((mean + scale * z).ravel()).reshape(-1, *z.shape) * density
        inner = terms[..., 1:-1]
        hidden = (1.0 - nodes[-1]) * (np.abs(terms[..., -1] - inner @ extrapolation)
                                      + np.abs(terms[..., 0] - inner[..., ::-1] @ extrapolation))
        return inner @ weights, np.abs(inner) @ weights, hidden


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray, float, FloatArray]:
    """Nodes and weights on [-1, 1], a point just inside 1, and the vector that gives the value of
    the interpolating polynomial there (barycentric formula)."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    inset = float(1.0 - 1e-6 * (1.0 - nodes[-1]))
    signs = (-1.0) ** np.arange(nodes.size)
    terms = signs * np.sqrt((1.0 - nodes**2) * weights) / (inset - nodes)
    return nodes, weights, inset, terms / np.sum(terms)
