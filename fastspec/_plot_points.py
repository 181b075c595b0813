"""Where a picture of a law has its points, its ends and its top."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["atoms_of", "chosen_axis", "curve", "is_shown", "law_range", "shown_height"]

FloatArray = NDArray[np.float64]

_POINTS_PER_INTERVAL, _QUANTILES = 800, 200
# Share of the continuous mass left out at an end that an axis cannot reach, and the smallest
# point of a logarithmic axis: x rho(x) still is a double there.
_CUT_MASS, _SMALLEST = 1e-2, 1e-300
_EMPTY = 0.02           # share of the axis that may hold no mass at the top
# The axis is logarithmic if a law spreads over this ratio of lambda above this share of its mass.
_WIDE, _TAIL_MASS = 1e3, 0.05
# A curve is cut off at the height above which this share of its area lies, and at most at this
# many times its mean, if its top is this many times higher: it diverges, or nearly does.
_CUT_AREA, _CUT_MEAN, _CUT_RATIO = 0.08, 8.0, 6.0


def law_range(law: Any, axis: str) -> tuple[float, float]:
    """Smallest and largest point of a law that an axis shows, atoms included.

    Where the axis cannot reach the lower end (0 on a logarithmic axis, log 0), the range starts
    where a hundredth of the continuous mass is left out. A top without mass is left out.

    Raises
    ------
    ArithmeticError
        If the law lies beyond the largest double.
    """
    atoms = atoms_of(law)
    points = [end for interval in law.support() for end in interval] + list(atoms[:, 0])
    low, high = float(min(points)), float(max(points))
    reach = float(law.icdf(np.nextafter(1.0, 0.0)))
    if high == np.inf > reach or high - reach > _EMPTY * (high - low):  # a tail below rounding
        points = [x for x in points if x <= reach] + [reach]
        high = reach
    if high == np.inf:
        raise ArithmeticError(
            f"{law!r} has values beyond the largest double: take its log_eigenvalues()")
    if not is_shown(low, axis):
        points = [x for x in points if x > low]
        if any(interval[0] == low for interval in law.support()):
            level = _mass_at(law, low) + _CUT_MASS * (1.0 - atoms[:, 1].sum())
            smallest = _SMALLEST if axis == "log" else -np.inf
            points.append(max(float(law.icdf(level)), smallest))
        low = float(min(points, default=max(high, 1.0)))
    if low >= high:
        pad = 0.5 * abs(low) or 0.5
        low, high = low - pad, low + pad
    return low, high


def is_shown(x: float, axis: str) -> bool:
    """Whether a lower end lies on the axis at all."""
    return x > -np.inf and not (axis == "log" and x == 0.0)


def curve(law: Any, axis: str) -> list[tuple[FloatArray, FloatArray]]:
    """Points x and finite heights of the curve, interval by interval."""
    shown_low, shown_high = law_range(law, axis)
    pieces = []
    for low, high in law.support():
        x = _grid(law, max(low, shown_low), min(high, shown_high), axis)
        y = np.asarray(law.pdf(x)) * (x if axis == "log" else 1.0)
        pieces.append((x[np.isfinite(y)], y[np.isfinite(y)]))
    return pieces


def shown_height(
    law: Any, axis: str, pieces: list[tuple[FloatArray, FloatArray]]
) -> tuple[float, bool]:
    """Height to show of a curve, and whether that cuts it off."""
    if not pieces:
        return 0.0, False
    masses = np.concatenate([np.diff(_continuous_cdf(law, x)) for x, _ in pieces])
    widths = np.concatenate([np.diff(np.log(x) if axis == "log" else x) for x, _ in pieces])
    top, level = max(float(y.max()) for _, y in pieces), _cut_level(masses, widths)
    return (level, True) if top > _CUT_RATIO * level else (top, False)


def _continuous_cdf(law: Any, x: FloatArray) -> FloatArray:
    cdf = np.array(law.cdf(x), dtype=float)
    for place, mass in atoms_of(law):
        cdf[x >= place] -= mass
    return cdf


def _cut_level(masses: FloatArray, widths: FloatArray) -> float:
    """Height to cut a histogram at."""
    order = np.argsort(-masses / widths)
    masses, widths = masses[order], widths[order]
    above = np.cumsum(masses) - masses / widths * np.cumsum(widths)
    cell = min(int(np.searchsorted(above, _CUT_AREA * masses.sum())), masses.size - 1)
    return float(min(masses[cell] / widths[cell], _CUT_MEAN * masses.sum() / widths.sum()))


def _grid(law: Any, low: float, high: float, axis: str) -> FloatArray:
    """Points that crowd at both ends, where the density has square roots or diverges, and where
    the mass is."""
    t = 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS_PER_INTERVAL)))
    x = low * (high / low) ** t if axis == "log" else low + (high - low) * t
    levels = np.linspace(float(law.cdf(low)), float(law.cdf(high)), _QUANTILES + 2)[1:-1]
    x = np.clip(np.concatenate((x, np.asarray(law.icdf(levels)))), low, high)
    x[0], x[_POINTS_PER_INTERVAL - 1] = low, high
    return np.unique(x)


def chosen_axis(law: Any, axis: str, drawn: Any) -> str:
    if law._variable.name == "log_lambda":
        if axis == "log":
            raise ValueError("axis must be linear for a law in log lambda, got 'log'")
        return "linear"
    if axis != "auto":
        return axis
    if drawn is not None:
        return "log" if drawn.get_xscale() == "log" else "linear"
    below = _mass_at(law, 0.0)
    low = float(law.icdf(below + _TAIL_MASS * (1.0 - below)))
    wide = _WIDE**0.5 if law._variable.name == "s" else _WIDE
    return "log" if law_range(law, "linear")[1] > wide * low else "linear"


def atoms_of(law: Any) -> FloatArray:
    return np.asarray(law.atoms, dtype=float).reshape(-1, 2)


def _mass_at(law: Any, x: float) -> float:
    atoms = atoms_of(law)
    return float(atoms[atoms[:, 0] == x, 1].sum())
