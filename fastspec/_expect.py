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


def expect(core: Any, function: Callable[[FloatArray, FloatArray], FloatArray]) -> float:
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
