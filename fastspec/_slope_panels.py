"""phi' as Chebyshev series on panels in z, h = mean + scale z: the data behind a smooth slope law.

Panels are halved until the series is good to rounding everywhere on its panel (also where phi' is
small beside the panel's maximum) and its quadratic part dominates, so that the roots of
phi' = +-sqrt(zeta) near a panel are found with certainty. There are three covers of the range,
their joints apart from each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Slope = Callable[[FloatArray], FloatArray]

COVERS = 3
TERMS = 24
_WIDTH = 2.0                # widest panel in standard deviations
_FIRST_WIDTHS = 2.0 ** (-np.arange(COVERS) / COVERS)    # no two a power of 2 apart
_MIDDLES = (0.5, 0.42, 0.58)
_TOLERANCE = 2e-15
_SPREAD = 40.0              # of phi' on a panel: rounding is relative to its largest value
_EPS = float(np.finfo(float).eps)
FLOOR = 1e-76               # of the typical slope: 1/phi'^4 stays in the doubles
_RHO = 2.6                  # Bernstein ellipse of the 20-node rules (fspec_slopes.c)
_MAX_LEVELS = 120
_MAX_PANELS = 16384 * COVERS
_EXTRA_LEVELS = 3           # halvings of a resolved panel for the sake of its roots

_ORDERS = np.arange(TERMS)
_TURNS = np.outer(2 * _ORDERS + 1, _ORDERS) % (4 * TERMS)   # whole numbers: no rounded angles
NODES = np.sin(np.pi * (TERMS - 1 - 2 * _ORDERS) / (2 * TERMS))
_TO_SERIES = 2.0 / TERMS * np.cos(np.pi * _TURNS / (2 * TERMS))
_TO_SERIES[:, 0] *= 0.5
_PLACES = np.concatenate([[1.0], NODES, [-1.0]])        # where series are looked at
SERIES_AT_PLACES = chebyshev.chebvander(_PLACES, TERMS - 1).T
_DERIVATIVE = np.vstack([chebyshev.chebder(row) for row in np.eye(TERMS)])
SLOPES_AT_PLACES = _DERIVATIVE @ chebyshev.chebvander(_PLACES, TERMS - 2).T
_SECOND = np.vstack([chebyshev.chebder(row) for row in np.eye(TERMS - 1)])
_ON_ELLIPSE = np.cosh(_ORDERS * np.log(_RHO))


class Piece(NamedTuple):
    """A range of z free of kinks; its panels are laid from ``start`` to ``end``.

    h = mean_h + scale x, z = mean_z + x: x is measured from a kink if the piece has one, so that
    panels can shrink towards it without losing digits.
    """

    origin_h: float
    origin_z: float
    start: float
    end: float
    start_joint: bool
    end_joint: bool


class Panels(NamedTuple):
    """Panels sorted by cover and z; z = centre + half t, phi' = series in t.

    error: relative, of phi' on the panel; a panel that would not be resolved keeps two terms.
    """

    cover: NDArray[np.int64]
    centre: FloatArray
    half: FloatArray
    series: FloatArray
    joints: NDArray[np.intc]
    error: FloatArray


class _Open(NamedTuple):
    """Panels still to be settled, as columns: cover, piece origin, x range, joints, levels."""

    cover: FloatArray
    origin_h: FloatArray
    origin_z: FloatArray
    low: FloatArray
    high: FloatArray
    joint_low: FloatArray
    joint_high: FloatArray
    extra: FloatArray


def pieces(low: float, high: float, kinks_h: FloatArray, kinks_z: FloatArray, cover: int,
           mean: float) -> list[Piece]:
    """Pieces of [low, high] between the kinks; one between two kinks is cut in two."""
    inside = [(h, z) for h, z in zip(kinks_h, kinks_z, strict=True) if low < z < high]
    if not inside:
        return [Piece(mean, 0.0, low, high, False, False)]
    out = [Piece(inside[0][0], inside[0][1], 0.0, low - inside[0][1], False, False)]
    for (left_h, left), (right_h, right) in zip(inside[:-1], inside[1:], strict=True):
        middle = _MIDDLES[cover] * (right - left)
        out.append(Piece(left_h, left, 0.0, middle, False, True))
        out.append(Piece(right_h, right, 0.0, middle - (right - left), False, True))
    out.append(Piece(inside[-1][0], inside[-1][1], 0.0, high - inside[-1][1], False, False))
    return out


def _laid(piece: Piece, scale: float, cover: int) -> _Open:
    """First panels of a piece: at most 2 wide in z and about max(1, |h|) in h."""
    direction = 1.0 if piece.end > piece.start else -1.0
    x, end, factor = piece.start * direction, piece.end * direction, _FIRST_WIDTHS[cover]
    origin, ends = piece.origin_h * direction, [x]
    while x != end:
        h = origin + scale * x
        width = factor * min(_WIDTH, max(1.0, h if h > 0.0 else -0.5 * h) / scale)
        x = end if end - x <= 1.25 * width else x + width
        ends.append(x)
        factor = 1.0
    places, joint = direction * np.array(ends), np.ones(len(ends))
    joint[0], joint[-1] = piece.start_joint, piece.end_joint
    if direction < 0.0:
        places, joint = places[::-1], joint[::-1]
    same = np.ones(len(ends) - 1)
    return _Open(cover * same, piece.origin_h * same, piece.origin_z * same, places[:-1],
                places[1:], joint[:-1], joint[1:], 0.0 * same)


def _nodes(panels: _Open, scale: float) -> tuple[FloatArray, FloatArray]:
    """x and h at the nodes of panels, one row each."""
    centre, half = 0.5 * (panels.low + panels.high), 0.5 * (panels.high - panels.low)
    x = centre[:, np.newaxis] + half[:, np.newaxis] * NODES
    return x, panels.origin_h[:, np.newaxis] + scale * x


def first_nodes(piece: Piece, scale: float, cover: int) -> tuple[FloatArray, FloatArray]:
    """x and h at the nodes of the first panels of a piece, ascending."""
    x, h = _nodes(_laid(piece, scale, cover), scale)
    return x[:, ::-1].ravel(), h[:, ::-1].ravel()


def build(slope: Slope, scale: float, covers: list[list[Piece]]) -> Panels:
    """Panels of the pieces of every cover; slopes below FLOOR times the typical one count as 0."""
    laid = [_laid(piece, scale, cover) for cover, parts in enumerate(covers) for piece in parts]
    now = _Open(*(np.concatenate(column) for column in zip(*laid, strict=True)))
    done: list[tuple[FloatArray, ...]] = []
    typical, total = 0.0, 0
    for level in range(_MAX_LEVELS):
        half = 0.5 * (now.high - now.low)
        x, h = _nodes(now, scale)
        values = slope(h.ravel()).reshape(h.shape)
        if level == 0:
            typical = _typical_slope(values, now.origin_z[:, np.newaxis] + x)
        resolved, simple, series, error = _judge(values, FLOOR * typical, h, scale * half)
        total += h.shape[0]
        stop = level == _MAX_LEVELS - 1 or total > _MAX_PANELS
        stop |= scale * half <= 64.0 * _EPS * np.abs(now.origin_h)
        rough = stop & ~resolved
        error[rough] = _dropped(series[rough])
        series[rough, 2:] = 0.0
        settled = stop | (resolved & (simple | (now.extra >= _EXTRA_LEVELS)))
        done.append(tuple(column[settled] for column in (
            now.cover, now.origin_z + 0.5 * (now.low + now.high), half, series,
            now.joint_low + 2.0 * now.joint_high, error)))
        if np.all(settled):
            break
        now = _halved(_Open(*(column[~settled] for column in now)), resolved[~settled])
    return _sorted(done)


def _dropped(series: FloatArray) -> FloatArray:
    """Relative size of the terms beyond the linear one."""
    lost = np.sum(np.abs(series[:, 2:]), axis=1)
    return lost / np.maximum(np.abs(series[:, 0]) + np.abs(series[:, 1]) + lost, 1e-300)


def _halved(now: _Open, resolved: NDArray[np.bool_]) -> _Open:
    middle, joint = 0.5 * (now.low + now.high), np.ones(now.low.size)
    extra = now.extra + resolved
    left = now._replace(high=middle, joint_high=joint, extra=extra)
    right = now._replace(low=middle, joint_low=joint, extra=extra)
    return _Open(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))


def _sorted(done: list[tuple[FloatArray, ...]]) -> Panels:
    cover, centre, half, series, joints, error = (
        np.concatenate(parts) for parts in zip(*done, strict=True))
    order = np.lexsort((centre, cover))
    return Panels(cover[order].astype(np.int64), centre[order], half[order],
                  np.ascontiguousarray(series[order]), joints[order].astype(np.intc),
                  error[order])


def _typical_slope(values: FloatArray, z: FloatArray) -> float:
    """About the root of E phi'^2, from the first panels."""
    weight = np.exp(-0.5 * z * z)
    return float(np.sqrt(np.sum(weight * values**2) / np.sum(weight)))


def _judge(values: FloatArray, faintest: float, h: FloatArray, half: FloatArray) -> tuple[
        NDArray[np.bool_], NDArray[np.bool_], FloatArray, FloatArray]:
    """(resolved, simple enough, series without its noise, error) of each panel; half is in h."""
    series = values @ _TO_SERIES
    largest = np.max(np.abs(values), axis=1)
    steepness = np.abs(series @ SLOPES_AT_PLACES)
    local = np.abs(series @ SERIES_AT_PLACES) + steepness
    least = np.maximum(np.min(local, axis=1), faintest)
    # phi' is rounded, and so is its argument.
    rounding = _EPS * (
        largest + 0.25 * np.max(np.abs(h), axis=1) / half * np.max(steepness, axis=1))
    tail = np.max(np.abs(series[:, -3:]), axis=1)
    resolved = tail <= np.maximum(_TOLERANCE * least, 2.0 * rounding)
    resolved &= largest <= _SPREAD * least
    noise = np.clip(3.0 * tail, 0.5 * _EPS * largest, _EPS * largest)
    faint = largest <= faintest
    noise[faint] = np.maximum(noise[faint], 1e-11 * faintest)   # not felt in d/zeta
    signal = np.abs(series) > noise[:, np.newaxis]
    series[np.logical_or.accumulate(signal[:, ::-1], axis=1)[:, ::-1] == 0] = 0.0
    size = np.abs(series) * _ON_ELLIPSE
    rest = np.sum(size[:, 3:], axis=1)
    simple = rest <= np.maximum(0.5 * np.maximum(size[:, 1], size[:, 2]), faintest)
    return resolved, simple, series, tail / np.maximum(largest, 1e-300)


def critical_values(series: FloatArray) -> FloatArray:
    """phi'^2 at the zeros of phi'' on the panels that stand out of rounding, by Newton's method."""
    slopes = series @ SLOPES_AT_PLACES
    panel, place = np.nonzero(slopes[:, 1:] * slopes[:, :-1] <= 0.0)
    first = (series @ _DERIVATIVE)[panel]
    second = first @ _SECOND
    t = 0.5 * (_PLACES[place] + _PLACES[place + 1])
    bend = np.zeros(t.size)
    for _ in range(6):
        waves = np.cos(np.arccos(np.clip(t, -1.0, 1.0))[:, np.newaxis] * _ORDERS)
        bend = np.sum(second * waves[:, : TERMS - 2], axis=1)
        steepness = np.sum(first * waves[:, : TERMS - 1], axis=1)
        t = t - np.divide(steepness, bend, out=np.zeros(t.size), where=bend != 0.0)
    waves = np.cos(np.arccos(np.clip(t, -1.0, 1.0))[:, np.newaxis] * _ORDERS)
    largest = np.max(np.abs(series), axis=1)[panel]
    real = (np.abs(bend) > 1e4 * _EPS * largest) & (np.abs(t) < 1.0 + 1e-6)
    return np.sum(series[panel] * waves, axis=1)[real] ** 2
