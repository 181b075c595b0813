r"""Infimum and supremum of phi'^2 over all h, also where the normal law of h has no mass.

A chain's support ends where one layer's subordinated point meets them (`fspec_ends.h`). Of a
function that is only known by its values they cannot be proved: phi' is looked at on a ladder of
distances from the mean, beyond the standard deviations that panels cover, up to 1e6 of them and to
|h| = 1e6; its extrema there are refined, and a phi'^2 that still changes like a power of |h|
at the end is taken to 0 or infinity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._slope_panels import Slope

__all__ = ["hull"]

FloatArray = NDArray[np.float64]

_FAR = 1e6
_PER_DECADE = 50
_ZOOMS, _ZOOM_POINTS = 6, 64
_MOST = 1e150               # squares to a double
_CHANGING = 0.1             # |d log phi'^2/d log |h|| at the end of the ladder


def hull(slope: Slope, near: float, scale: float, mean: float) -> tuple[float, float]:
    """(inf, sup) of phi'^2 > 0 where |h - mean| >= near; (inf, 0) if phi' is 0 there.

    Values beyond 1e150, NaN and errors count as not known.
    """
    far = _FAR * max(1.0, scale, abs(mean))
    steps = max(3 * _PER_DECADE, int(_PER_DECADE * np.log10(far / near)))
    ladder = near * (far / near) ** (np.arange(steps + 1) / steps)
    sides = [_one_side(slope, mean, sign * ladder) for sign in (-1.0, 1.0)]
    return min(low for low, _ in sides), max(high for _, high in sides)


def _one_side(slope: Slope, mean: float, away: FloatArray) -> tuple[float, float]:
    values = _tried(slope, mean + away)
    known = np.abs(values) < _MOST
    if np.count_nonzero(known & (np.abs(values) > 1.0 / _MOST)) < 2:
        return np.inf, 0.0
    away, values = away[known], values[known]
    low = 0.0 if np.any(values[1:] * values[:-1] < 0.0) else -_zoomed(slope, mean, away, -1.0)
    high = _zoomed(slope, mean, away, 1.0)
    trend = _trend(np.abs(away), values**2)
    return 0.0 if trend < 0 else low, np.inf if trend > 0 else high


def _trend(distance: FloatArray, d: FloatArray) -> int:
    """-1 or 1 where d > 0 still falls or rises like a power at the end, else 0."""
    distance, d = (column[d > 0.0][-2 * _PER_DECADE :] for column in (distance, d))
    moves = np.diff(np.log(d))
    rate = np.sum(moves) / np.log(distance[-1] / distance[0])
    if not (np.all(moves >= 0.0) or np.all(moves <= 0.0)) or abs(rate) < _CHANGING:
        return 0
    return int(np.sign(rate))


def _zoomed(slope: Slope, mean: float, away: FloatArray, sign: float) -> float:
    """Largest sign phi'^2 where phi' is not 0, between neighbours of the best place so far."""
    best = -np.inf
    for _ in range(_ZOOMS):
        values = _tried(slope, mean + away)
        d = np.where(np.abs(values) < _MOST, values, 0.0) ** 2
        seen = np.where(d > 0.0, sign * d, -np.inf)
        i = int(np.argmax(seen))
        best = max(best, float(seen[i]))
        away = np.linspace(away[max(i - 1, 0)], away[min(i + 1, away.size - 1)], _ZOOM_POINTS)
    return best


def _tried(slope: Slope, h: FloatArray) -> FloatArray:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(slope(h), dtype=float)
    except (ArithmeticError, ValueError):
        return np.array([_one(slope, place) for place in h])


def _one(slope: Slope, h: float) -> float:
    try:
        return float(slope(np.array([h]))[0])
    except (ArithmeticError, ValueError):
        return np.nan
