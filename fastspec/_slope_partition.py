r"""From an activation to the branches and atoms of the law of phi'(h)^2, h ~ N(mean, q)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _slope_panels
from ._slope_branches import Branch
from ._slope_ends import End, end_at_kink, end_inside, power_end, turning_points
from ._slope_forms import Form, builtin_form, panel_form
from ._slope_panels import Panels, Piece, Slope
from ._slope_rules import _slope_function
from .activations import Activation
from .slopes import _normal_mass

__all__ = ["Partition", "partition"]

FloatArray = NDArray[np.float64]

_REACH = 38.0               # standard deviations; the normal density is 0 beyond
_CORE = 9.5                 # P(|z| > 9.5) = 2e-21
_MANY = 64                  # branches; with more, those outside the core are left out
_NEGLIGIBLE = 1e-20
_BAND = 6.0                 # decades of phi' that are resolved together
_LEAST, _MOST = 1e-150, 1e150   # of a user's phi': phi'^2 is a normal double
_FLATTENS = 0.1             # |dy/d log h|: where less is left at the far end, y has a limit there


class Stretch(NamedTuple):
    """A range of h on which phi' is smooth and varies, with points that resolve it; a side is a
    kink, "open" (standing for a half line) or "cut" (phi' is constant beyond)."""

    low: float
    high: float
    kinds: tuple[str, str]
    panels: Panels


class Partition(NamedTuple):
    """Branches, atoms (d, mass) in increasing order, and the form of phi'."""

    branches: list[Branch]
    atoms: list[tuple[float, float]]
    form: Form


def partition(activation: Activation, q: float, mean: float) -> Partition:
    """Branches and atoms of the law of phi'(h)^2, h ~ N(mean, q), q > 0."""
    slope, scale = _slope_function(activation), math.sqrt(q)
    kinks = [kink for kink in activation.kinks if abs(kink - mean) < _REACH * scale]
    if activation.is_builtin:
        form = builtin_form(activation, slope)
        parts = [_built(slope, scale, mean, kinks, -_REACH, _REACH, 1)]
        ends = (-_REACH, _REACH)
    else:
        bands = _bands(slope, scale, mean, kinks)
        parts = [_built(slope, scale, mean, kinks, *band, _slope_panels.COVERS) for band in bands]
        form = panel_form(slope, parts, scale, mean)
        ends = (bands[0][0], bands[-1][1])
    masses: dict[float, float] = {}
    far = [_normal_mass(-ends[0], math.inf), _normal_mass(ends[1], math.inf)]
    for mass in far:    # beyond the ends phi' is 0 to a double
        _add(masses, 0.0, mass)
    outer = ["cut" if mass > _NEGLIGIBLE else "open" for mass in far]
    first = _joined(parts)
    branches: list[Branch] = []
    levels: list[float] = []
    edges = [mean + scale * ends[0], *kinks, mean + scale * ends[1]]
    for i, (low, high) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        kinds = ("kink" if i else outer[0], "kink" if i < len(kinks) else outer[1])
        inside = _between(first, (low - mean) / scale, (high - mean) / scale)
        for stretch in _varying(Stretch(low, high, kinds, inside), form, (mean, scale), masses,
                                activation.is_builtin):
            branches += _branches(stretch, form, (mean, scale), activation, levels)
    return Partition(_pruned(branches), sorted(masses.items()), form)


def _add(masses: dict[float, float], d: float, mass: float) -> None:
    if mass > _NEGLIGIBLE:
        masses[d] = masses.get(d, 0.0) + mass


def _built(slope: Slope, scale: float, mean: float, kinks: list[float], low: float, high: float,
           covers: int) -> Panels:
    places = np.array(kinks, dtype=float)
    z = (places - mean) / scale
    return _slope_panels.build(slope, scale, [
        _slope_panels.pieces(low, high, places, z, cover, mean) for cover in range(covers)])


def _bands(slope: Slope, scale: float, mean: float, kinks: list[float]
           ) -> list[tuple[float, float]]:
    """Ranges of z on which phi' keeps to a few decades, without the ends where it is not a normal
    double or squared is none."""
    whole = Piece(mean, 0.0, -_REACH, _REACH, False, False)
    x, h = _slope_panels.first_nodes(whole, scale, 0)
    size = np.abs(slope(h))
    good = np.flatnonzero((size > _LEAST) & (size < _MOST))
    if good.size == 0:
        raise ValueError("phi' is 0 or infinite to a double wherever h has its mass")
    first, last = int(good[0]), int(good[-1])
    decade = np.floor(np.log10(np.clip(size, _LEAST, _MOST)) / _BAND)[first : last + 1]
    middle = 0.5 * (x[1:] + x[:-1])
    cuts = middle[first:last][decade[1:] != decade[:-1]]
    low = -_REACH if first == 0 else middle[first - 1]
    high = _REACH if last == x.size - 1 else middle[last]
    ends = [float(cut) for cut in (low, *cuts, high)]
    return list(zip(ends[:-1], ends[1:], strict=True))


def _joined(parts: list[Panels]) -> Panels:
    """The first cover of all parts, ascending in z."""
    first = [_rows(part, part.cover == 0) for part in parts]
    joined = Panels(*(np.concatenate([getattr(part, name) for part in first])
                      for name in Panels._fields))
    return _rows(joined, np.argsort(joined.centre))


def _rows(panels: Panels, some: Any) -> Panels:
    cover, centre, half, series, joints, error = (column[some] for column in panels)
    return Panels(cover, centre, half, series, joints, error)


def _between(panels: Panels, low: float, high: float) -> Panels:
    some = (panels.centre > low) & (panels.centre < high)
    return _rows(panels, some)


def _varying(whole: Stretch, form: Form, normal: tuple[float, float], masses: dict[float, float],
             exact: bool) -> list[Stretch]:
    """The parts of a stretch where phi' varies; the others go to the atoms. Closed forms
    (``exact``) know of variations below rounding."""
    mean, scale = normal
    panels = whole.panels
    middle = form.slope(mean + scale * panels.centre)
    flat = np.all(panels.series[:, 1:] == 0.0, axis=1)
    if exact and np.any(middle != middle[0]):
        return [whole]
    flat |= exact
    edges = np.concatenate([[(whole.low - mean) / scale], (panels.centre + panels.half)[:-1],
                            [(whole.high - mean) / scale]])
    changes = [0, *(np.flatnonzero(flat[1:] != flat[:-1]) + 1).tolist(), flat.size]
    out = []
    for start, stop in zip(changes[:-1], changes[1:], strict=True):
        kinds = (whole.kinds[0] if start == 0 else "cut",
                 whole.kinds[1] if stop == flat.size else "cut")
        if flat[start]:
            low = -math.inf if kinds[0] == "open" else edges[start]
            high = math.inf if kinds[1] == "open" else edges[stop]
            _add(masses, float(middle[start]) ** 2, _normal_mass(low, high))
        else:
            out.append(Stretch(mean + scale * edges[start], mean + scale * edges[stop], kinds,
                               _rows(panels, slice(start, stop))))
    return out


def _branches(stretch: Stretch, form: Form, normal: tuple[float, float],
              activation: Activation, levels: list[float]) -> list[Branch]:
    """The monotone parts of a stretch; ``levels`` collects the values of y at extrema."""
    mean, scale = normal
    zeros, extrema = turning_points(stretch.panels, form, mean, scale)
    places = sorted(zeros + extrema)
    outer = [_side(stretch, i, form, activation, places) for i in (0, 1)]
    marks: list[tuple[float, End | None, float, bool]] = [outer[0]]
    for place in places:
        room = min([abs(place - side) for side, kind in
                    zip((stretch.low, stretch.high), stretch.kinds, strict=True)
                    if kind != "open"] or [math.inf])
        end = end_inside(form, place, room)
        if end is None:     # phi' is constant to rounding around the place
            continue
        end = end._replace(level=_same(end.level, levels))
        marks.append((place, end, end.level, False))
    marks.append(outer[1])
    edges = stretch.panels.centre + np.array([[-0.75], [-0.25], [0.25], [0.75], [1.0]]
                                             ) * stretch.panels.half
    grid = np.sort(mean + scale * edges.ravel())
    return [Branch(form, normal, (left[0], right[0]), (left[1], right[1]), (left[2], right[2]),
                   (left[3], right[3]), grid)
            for left, right in zip(marks[:-1], marks[1:], strict=True) if left[2] != right[2]]


def _same(level: float, levels: list[float]) -> float:
    """The level met before that differs from this one by rounding only; else this one."""
    if math.isinf(level):
        return level
    for known in levels:
        if abs(level - known) <= 1e-14 * max(1.0, abs(level)):
            return known
    levels.append(level)
    return level


def _side(stretch: Stretch, i: int, form: Form, activation: Activation, places: list[float]
          ) -> tuple[float, End | None, float, bool]:
    """(place, local form, limit of y, open) at the lower (i = 0) or upper side of a stretch."""
    place, kind, inward = (stretch.low, stretch.high)[i], stretch.kinds[i], (1.0, -1.0)[i]
    if kind == "open":
        return place, None, _far_level(form, place, i), True
    end = None
    if activation.name == "alpha_relu" and activation.is_builtin:
        end = power_end(place, activation.parameter - 1.0, activation.parameter)
    elif kind == "kink" and not activation.is_builtin:
        room = min([abs(place - other) for other in places] + [stretch.high - stretch.low])
        end = end_at_kink(form, place, inward, room)
    if end is not None:
        return place, end, end.level, False
    y = form.log_square(np.array([np.nextafter(place, inward * math.inf)]))[0]
    return place, None, float(y[0]), False


def _far_level(form: Form, place: float, i: int) -> float:
    """The limit of y far out: known for built-in activations, else from how y still moves. If y
    turns only beyond the reach, where no double holds a mass, its last value."""
    y, slope = (float(column[0]) for column in form.log_square(np.array([place])))
    outward = slope if i else -slope
    known = form.limits[i]
    if known is not None:
        return known if (known - y) * outward >= 0.0 else y
    moves = outward * abs(place)
    return y if abs(moves) < _FLATTENS or form.waves else math.copysign(math.inf, moves)


def _pruned(branches: list[Branch]) -> list[Branch]:
    """Of very many branches those in the core, if they take every value that the others take."""
    if len(branches) <= _MANY:
        return branches
    core = [b for b in branches if abs(0.5 * (b.sides[0] + b.sides[1]) - b.mean) < _CORE * b.scale]
    low, high = min(b.low for b in core), max(b.high for b in core)
    return core + [b for b in branches if b not in core and (b.low < low or b.high > high)]
