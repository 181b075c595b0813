"""Expectations over the continuous part of a law, by double-exponential quadrature.

In delta = log(lambda_top/lambda), which keeps its digits at the top however close the nodes come.
Two soft edges: tanh-sinh, whose nodes crowd at both ends. A hard end at 0: exp-sinh, which serves
decays from e^-delta to 1/delta^2 without knowing their scale. (Takahasi & Mori 1974.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _kernels

FloatArray = NDArray[np.float64]

Integrand = Callable[[FloatArray, FloatArray], FloatArray]

_CELL_NODES = 32
_LEVELS = range(3, 9)  # steps 2^-3 ... 2^-8
_TOLERANCE = 3e-14


def _soft(u: FloatArray, width: float) -> tuple[FloatArray, FloatArray]:
    """tanh-sinh nodes in [0, width] and their weights (without the step)."""
    s = np.pi / 2 * np.sinh(u)
    near = width / (1.0 + np.exp(2.0 * np.abs(s)))  # distance to the nearer end
    return np.where(s < 0, near, width - near), width * np.pi / 4 * np.cosh(u) / np.cosh(s) ** 2


def _hard(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """exp-sinh nodes in (0, inf) and their weights (without the step)."""
    delta = np.exp(np.pi / 2 * np.sinh(u))
    return delta, delta * np.pi / 2 * np.cosh(u)


def _over_cells(core: Any, cells: FloatArray, function: Integrand) -> float:
    """Gauss quadrature over the cells of a table, on each of which the density is smooth.

    At a piece's end with density ~ delta^(+-1/2) the variable is sqrt(delta). A wide cell of a
    tail is cut into parts that double in width from its top, because functions of lambda are
    exponentials there.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_CELL_NODES)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    total = 0.0
    for low, high, end, power in cells.tolist():
        width = high - low
        if power:
            s = np.sqrt(width) * nodes
            x = end + np.copysign(s * s, 0.5 * (low + high) - end)
            measure = 2.0 * np.sqrt(width) * weights * s
        else:
            parts = max(1, int(np.ceil(np.log2(width + 1.0))))
            cuts = high - width * (2.0 ** np.arange(parts + 1) - 1.0) / (2.0**parts - 1.0)
            x = (cuts[:-1, np.newaxis] - np.abs(np.diff(cuts))[:, np.newaxis] * nodes).ravel()
            measure = (np.abs(np.diff(cuts))[:, np.newaxis] * weights).ravel()
        density = np.empty_like(x)
        core.density(np.ascontiguousarray(x), _kernels.LOG_LAMBDA, density)
        with np.errstate(over="ignore", under="ignore"):
            total += float(np.sum(measure * density * function(x, density)))
    return total + _below_cells(core, float(cells[0, 0]), function)


def _below_cells(core: Any, low: float, function: Integrand) -> float:
    """What a tail density ~ lambda^(1/E) of log lambda leaves below the lowest cell.

    With v = exp((log lambda - low)/E) in (0, 1) it is E density(low) int function dv.
    """
    exponent = core.hard_exponent()
    if not 0.0 < exponent < np.inf or core.support(_kernels.LOG_LAMBDA)[0] > -np.inf:
        return 0.0
    nodes, weights = np.polynomial.legendre.leggauss(_CELL_NODES)
    v = 0.5 * (nodes + 1.0)
    density = core.density_at(low, _kernels.LOG_LAMBDA) * v
    return exponent * float(np.sum(0.5 * weights * density / v
                                   * function(low + exponent * np.log(v), density)))


def expect(core: Any, function: Integrand) -> float:
    """The integral of ``function(log_lam, density)`` times the density of log lambda.

    ``density`` is the density of log lambda (continuous part, mass = the law's continuous mass);
    points where it is zero are left out.

    Raises
    ------
    ArithmeticError
        If successive halvings of the step do not agree.
    """
    ends = core.support(_kernels.LOG_LAMBDA)
    if ends is None:
        return 0.0
    if hasattr(core, "quadrature_nodes"):
        log_lam, density, mass = core.quadrature_nodes()
        with np.errstate(over="ignore", under="ignore"):
            return float(np.sum(mass * function(log_lam, density)))
    cells = core.cells()
    if len(cells):
        return _over_cells(core, cells, function)
    low, high = ends
    previous = np.inf
    for level in _LEVELS:
        step = 2.0**-level
        if np.isfinite(low):
            delta, weight = _soft(np.arange(-3.2, 3.2 + step, step), high - low)
        else:
            delta, weight = _hard(np.arange(-4.4, 4.6, step))
        x, density = high - delta, np.empty_like(delta)
        core.density(delta, _kernels.TOP_DISTANCE, density)
        some = density > 0
        with np.errstate(over="ignore", under="ignore"):
            terms = step * (weight * density)[some] * function(x[some], density[some])
        total = float(np.sum(terms))
        if abs(total - previous) <= _TOLERANCE * float(np.sum(np.abs(terms))):
            return total
        previous = total
    raise ArithmeticError(
        f"the quadrature did not settle: {previous:g} and {total:g} differ after "
        f"{x.size} points"
    )
