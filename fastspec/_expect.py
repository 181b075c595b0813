"""Expectations over the continuous part of a law, by double-exponential quadrature.

Two soft edges: tanh-sinh in log lambda, whose nodes crowd at square-root ends. One soft edge and
a hard end at 0: exp-sinh in delta = log(lambda_top/lambda), which serves decays from e^-delta to
1/delta^2 without knowing their scale. (Takahasi & Mori 1974.)
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


def _soft(u: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """tanh-sinh nodes in [low, high] and their weights (without the step)."""
    s = np.pi / 2 * np.sinh(u)
    width = high - low
    fraction = 1.0 / (1.0 + np.exp(2.0 * np.abs(s)))  # distance to the nearer end
    x = np.where(s < 0, low + width * fraction, high - width * fraction)
    return x, width * np.pi / 4 * np.cosh(u) / np.cosh(s) ** 2


def _hard(u: FloatArray, high: float) -> tuple[FloatArray, FloatArray]:
    """exp-sinh nodes below ``high`` and their weights (without the step)."""
    delta = np.exp(np.pi / 2 * np.sinh(u))
    return high - delta, delta * np.pi / 2 * np.cosh(u)


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
            x, weight = _soft(np.arange(-3.2, 3.2 + step, step), low, high)
        else:
            x, weight = _hard(np.arange(-3.8, 4.6, step), high)
        density = np.empty_like(x)
        core.density(x, _kernels.LOG_LAMBDA, density)
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
