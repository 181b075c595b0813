r"""Branches: ranges of h on which d = phi'(h)^2 is monotone, h ~ N(mean, q).

Cut at kinks, at zeros and at extrema of phi'. On each the law of y = log d has the density
w(h)/|dy/dh| at the root h of y(h) = y, w the normal density, and its masses are normal ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._slope_ends import REACH, End
from ._slope_forms import Form

__all__ = ["Branch", "Points", "quadrature"]

FloatArray = NDArray[np.float64]

_EPS = float(np.finfo(float).eps)
_ITERATIONS = 200
_PER_CUT = 5                # points of the grid between cuts of an integral: about a panel


class Points:
    """Values of y. ``offset`` is their distance from ``level``, known to more digits than y is."""

    def __init__(self, y: FloatArray, level: FloatArray | None = None,
                 offset: FloatArray | None = None) -> None:
        self.y = y
        self.level = np.full(y.size, math.nan) if level is None else level
        self.offset = np.zeros(y.size) if offset is None else offset

    def __getitem__(self, some: NDArray[np.bool_]) -> Points:
        return Points(self.y[some], self.level[some], self.offset[some])

    def above(self, level: float) -> FloatArray:
        """y - level."""
        return np.where(self.level == level, self.offset, self.y - level)


def quadrature(branches: list[Branch], levels: FloatArray, step: float
               ) -> tuple[Points, FloatArray]:
    """Points and masses of a rule for the continuous part of the law; ``levels`` are the y where
    its density is not smooth."""
    found = []
    for branch in branches:
        cuts = branch.cuts(levels)
        for left, right in zip(cuts[:-1], cuts[1:], strict=True):
            found += branch.nodes(left, right, step)
    points = [nodes.points for nodes in found] or [Points(np.empty(0))]
    return (Points(*(np.concatenate([getattr(part, name) for part in points])
                     for name in ("y", "level", "offset"))),
            np.concatenate([nodes.mass for nodes in found] or [np.empty(0)]))


def normal_mass(z: FloatArray, width: FloatArray) -> FloatArray:
    """P(z < x < z + width), x standard normal, to full relative accuracy."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    with np.errstate(under="ignore"):
        mass = np.where(z > 0.0, _below(-z) - _below(-(z + width)), _below(z + width) - _below(z))
        narrow = width < 0.5
        start, span = z[narrow, np.newaxis], width[narrow, np.newaxis]
        x = start + 0.5 * span * (1.0 + nodes)
        mass[narrow] = 0.5 * width[narrow] * (np.exp(-0.5 * x * x) @ weights)
        mass[narrow] /= math.sqrt(2.0 * math.pi)
    return np.asarray(mass)


class Branch:
    """One branch [low, high] in h.

    ``levels`` are the limits of y at its two sides, ``ends`` the local forms there (None: y is
    regular); ``open_sides`` says where the range stands for a half line. ``grid``: points that
    resolve phi'.
    """

    def __init__(self, form: Form, normal: tuple[float, float], sides: tuple[float, float],
                 ends: tuple[End | None, End | None], levels: tuple[float, float],
                 open_sides: tuple[bool, bool], grid: FloatArray) -> None:
        self.form, self.ends, self.levels = form, ends, levels
        self.mean, self.scale = normal
        self.sides, self.open_sides = sides, open_sides
        self.rising = levels[1] > levels[0]
        self.low, self.high = min(levels), max(levels)
        self.zones = tuple(min(REACH * end.radius, 0.5 * (sides[1] - sides[0])) if end else 0.0
                           for end in ends)
        self._zone_values = tuple(
            float(end.log_square(np.array([zone]), side)[0][0]) if end else math.nan
            for end, zone, side in zip(ends, self.zones, (1.0, -1.0), strict=True))
        first, last = sides[0] + self.zones[0], sides[1] - self.zones[1]
        inner = grid[(grid > first) & (grid < last)]
        h = np.concatenate([[first], inner, [last]])
        y = form.log_square(np.clip(h, *self._inside()))[0]
        y = np.maximum.accumulate(y if self.rising else -y)
        self._table_h, self._table_y = h, y
        self.mass = self._whole()

    def _inside(self) -> tuple[float, float]:
        """The range without its very ends: phi' may jump there."""
        return (math.nextafter(self.sides[0], math.inf), math.nextafter(self.sides[1], -math.inf))

    def _z(self, h: Any) -> Any:
        return (h - self.mean) / self.scale

    def _whole(self) -> float:
        low = -math.inf if self.open_sides[0] else self._z(self.sides[0])
        high = math.inf if self.open_sides[1] else self._z(self.sides[1])
        if low == -math.inf:
            return float(_below(np.array([high]))[0])
        if high == math.inf:
            return float(_below(np.array([-low]))[0])
        width = (self.sides[1] - self.sides[0]) / self.scale
        return float(normal_mass(np.array([low]), np.array([width]))[0])

    def locate(self, points: Points) -> Located:
        """The roots for points with low < y < high."""
        size = points.y.size
        out = Located(*(np.empty(size) for _ in range(4)))
        todo = np.ones(size, dtype=bool)
        for i, (end, side) in enumerate(zip(self.ends, (1.0, -1.0), strict=True)):
            if end is None:
                continue
            near = self._in_zone(points, i) & todo
            todo &= ~near
            if near.any():
                out.put(near, self._near_end(end, side, points[near]))
        if todo.any():
            out.put(todo, self._middle(points.y[todo]))
        return out

    def _in_zone(self, points: Points, i: int) -> NDArray[np.bool_]:
        end = self.ends[i]
        assert end is not None
        value = points.above(end.level) if end.is_extremum else points.y
        inward_up = self.rising if i == 0 else not self.rising
        return value <= self._zone_values[i] if inward_up else value >= self._zone_values[i]

    def _near_end(self, end: End, side: float, points: Points) -> tuple[FloatArray, ...]:
        with np.errstate(under="ignore", divide="ignore", over="ignore"):
            if end.is_extremum:
                target = np.abs(points.above(end.level)) ** (1.0 / end.order)
            else:
                target = np.exp(points.y / (2.0 * end.order))
            offset = end.root(target, side) * end.radius
            density = self.weight(end.place + side * offset) / end.log_square(offset, side)[1]
        rest = (self.sides[1] - self.sides[0]) - offset
        pair = (offset, rest) if side > 0.0 else (rest, offset)
        return (end.place + side * offset, *pair, density)

    def _middle(self, y: FloatArray) -> tuple[FloatArray, ...]:
        h, steepness = self._invert(y)
        with np.errstate(divide="ignore", under="ignore"):
            density = self.weight(h) / np.abs(steepness)
        return h, h - self.sides[0], self.sides[1] - h, density

    def _invert(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """h and dy/dh at y(h) = y: Newton's method, kept inside a bracket that shrinks."""
        sign = 1.0 if self.rising else -1.0
        at = np.clip(np.searchsorted(self._table_y, sign * y), 1, self._table_y.size - 1)
        low, high = self._table_h[at - 1].copy(), self._table_h[at].copy()
        h, steepness = 0.5 * (low + high), np.empty_like(y)
        active = np.arange(y.size)
        for _ in range(_ITERATIONS):
            x = h[active]
            value, slope = self.form.log_square(x)
            steepness[active] = slope
            excess = sign * (value - y[active])
            low[active] = np.where(excess < 0.0, x, low[active])
            high[active] = np.where(excess > 0.0, x, high[active])
            with np.errstate(all="ignore"):
                new = x - excess / (sign * slope)
            stay = (new >= low[active]) & (new <= high[active])
            new = np.where(stay, new, 0.5 * (low[active] + high[active]))
            h[active] = np.where(excess == 0.0, x, new)
            with np.errstate(all="ignore"):
                noise = 4.0 * _EPS * (np.abs(x) + np.abs(y[active] / slope))
            active = active[np.abs(h[active] - x) > noise]
            if active.size == 0:
                break
        return h, steepness

    def masses(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """Masses of log d <= y and > y of the branch."""
        below = np.where(points.y >= self.high, self.mass, 0.0)
        above = np.where(points.y >= self.high, 0.0, self.mass)
        inside = (points.y > self.low) & (points.y < self.high)
        if inside.any():
            found = self.locate(points[inside])
            left, right = self._left(found), self._right(found)
            below[inside], above[inside] = (left, right) if self.rising else (right, left)
        return below, above

    def _left(self, found: Located) -> FloatArray:
        if self.open_sides[0]:
            return _below(self._z(found.h))
        return normal_mass(np.full_like(found.h, self._z(self.sides[0])),
                           found.from_low / self.scale)

    def _right(self, found: Located) -> FloatArray:
        if self.open_sides[1]:
            return _below(-self._z(found.h))
        return normal_mass(np.full_like(found.h, -self._z(self.sides[1])),
                           found.from_high / self.scale)

    def squares(self) -> dict[float, float]:
        """phi'^2 at the sides, by its logarithm: correctly rounded where the exponential is not."""
        some = [i for i in (0, 1) if math.isfinite(self.levels[i]) and not self.open_sides[i]]
        d = self.form.slope(np.clip(self.sides, *self._inside())) ** 2
        return {self.levels[i]: float(d[i]) for i in some}

    def errors(self, points: Points, accuracy: float) -> tuple[FloatArray, FloatArray]:
        """First-order bound on the error of the density of y, and |y(h) - y| at the root.

        y is known to rounding; at an end of order k the density is ~ |y - level|^(1/k - 1)."""
        found = self.locate(points)
        value, slope = self.form.log_square(found.h)
        with np.errstate(all="ignore"):
            noise = 4.0 * _EPS * (1.0 + np.abs(points.y))
            sensitivity = np.abs(self._z(found.h) / (self.scale * slope))
            for end in self.ends:
                if end is not None and end.is_extremum:
                    sensitivity = sensitivity + 1.0 / np.abs(points.above(end.level))
            known = 128.0 * _EPS + 8.0 * accuracy + sum(end.error for end in self.ends if end)
            bound = found.density * (known + noise * (1.0 + sensitivity))
        return bound, np.abs(value - points.y)

    def marks(self, count: int) -> FloatArray:
        """Values of y that bracket the branch's masses, crowded towards its ends."""
        sign = 1.0 if self.rising else -1.0
        out = [sign * self._table_y, np.array(self.levels)]
        for end, value in zip(self.ends, self._zone_values, strict=True):
            if end is None:
                continue
            if end.is_extremum:
                out.append(end.level + value * 4.0 ** -np.arange(count))
            else:
                out.append(value + math.copysign(1.0, end.level) * 1.4 ** np.arange(count))
        y = np.concatenate(out)
        return y[np.isfinite(y) & (y >= self.low) & (y <= self.high)]

    def cuts(self, levels: FloatArray) -> list[Cut]:
        """The branch cut where its points resolve phi', and where other branches end."""
        inside = levels[(levels > self.low) & (levels < self.high)]
        found = self.locate(Points(inside))
        cuts = [Cut(float(h), float(low), float(high), float(level), -1) for h, low, high, level in
                zip(found.h, found.from_low, found.from_high, inside, strict=True)]
        length = self.sides[1] - self.sides[0]
        for h in self._table_h[1:-1:_PER_CUT]:
            if all(abs(h - cut.h) > 1e-3 * self.scale for cut in cuts):
                cuts.append(Cut(float(h), h - self.sides[0], self.sides[1] - h, math.nan, -1))
        cuts += [Cut(self.sides[0], 0.0, length, self.levels[0], 0),
                 Cut(self.sides[1], length, 0.0, self.levels[1], 1)]
        return sorted(cuts, key=lambda cut: cut.from_low)

    def nodes(self, left: Cut, right: Cut, step: float) -> list[Nodes]:
        """The tanh-sinh rule between two cuts, in halves: offsets from the nearer cut."""
        u = np.arange(step / 2.0, 5.8 if math.inf in (left.level, right.level) else 3.2, step)
        s = 0.5 * math.pi * np.sinh(u)
        width = right.from_low - left.from_low
        offset = width / (1.0 + np.exp(2.0 * s))    # an infinite density: down to 1e-220 width
        measure = step * width * 0.25 * math.pi * np.cosh(u) / np.cosh(s) ** 2
        return [self._half(left, 1.0, offset, measure), self._half(right, -1.0, offset, measure)]

    def _half(self, cut: Cut, side: float, offset: FloatArray, measure: FloatArray) -> Nodes:
        h = cut.h + side * offset
        mass = measure * self.weight(h)
        inner = np.clip(h, *self._inside())
        y = self.form.log_square(inner)[0]
        end = self.ends[cut.end] if cut.end >= 0 else None
        if end is None and cut.end < 0 and cut.level == cut.level:
            slope = float(self.form.log_square(np.array([cut.h]))[1][0])
            away = np.where(offset < 1e-6 * self.scale, side * slope * offset, y - cut.level)
            return Nodes(_from_level(cut.level, away), mass)
        if end is None:
            return Nodes(Points(y), mass)
        near = offset < self.zones[cut.end]
        local = end.log_square(np.where(near, offset, 0.5 * end.radius), side)[0]
        if not end.is_extremum:
            return Nodes(Points(np.where(near, local, y)), mass)
        away = np.where(near, local, y - end.level)
        return Nodes(_from_level(end.level, away), mass)

    def weight(self, h: FloatArray) -> FloatArray:
        """The normal density of h."""
        with np.errstate(under="ignore"):
            return np.asarray(np.exp(-0.5 * self._z(h) ** 2)
                              / (math.sqrt(2.0 * math.pi) * self.scale))


def _from_level(level: float, offset: FloatArray) -> Points:
    return Points(level + offset, np.full(offset.size, level), offset)


class Cut(NamedTuple):
    """A place where integrals are cut: h, its distances from the branch's sides, y if it is a level
    (else NaN) and which side of the branch it is (-1: inside)."""

    h: float
    from_low: float
    from_high: float
    level: float
    end: int


class Nodes(NamedTuple):
    """Points of a quadrature rule and the masses they stand for."""

    points: Points
    mass: FloatArray


class Located:
    """Roots h, their distances from the sides of the branch and the density of y there."""

    def __init__(self, h: FloatArray, from_low: FloatArray, from_high: FloatArray,
                 density: FloatArray) -> None:
        self.h, self.from_low, self.from_high, self.density = h, from_low, from_high, density

    def put(self, where: NDArray[np.bool_], values: tuple[FloatArray, ...]) -> None:
        """Fill in some of the points."""
        columns = (self.h, self.from_low, self.from_high, self.density)
        for column, value in zip(columns, values, strict=True):
            column[where] = value


def _below(z: FloatArray) -> FloatArray:
    """P(x < z), x standard normal."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z))
