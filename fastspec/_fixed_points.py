"""Fixed points of variance maps Q(q) = w V(q) + b, V(q) = E phi(h)^2, h ~ N(0, q).

w = sigma_w^2 and b = sigma_b^2 are flat arrays, one entry per cell; V does not depend on them and
is tabulated once per activation. What is searched is the relative growth R(q) = Q(q)/q - 1, with
its derivative in ln q, D(q) = w (V' - V/q) - b/q. In ln q, V is phi^2 averaged over the law of
ln h^2, a window about one wide: it has no features that a grid of step 0.1 could jump over, and far
from q = 1 powers of q are all that is left. Where R keeps its sign but D turns, the extremum of R
is found first: so two roots close to each other are both seen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _checks, quadrature
from ._linear_excess import variance_slopes
from .activations import Activation
from .errors import ConvergenceWarning

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

EPSILON = float(np.finfo(float).eps)
NOISE = 16.0 * EPSILON      # a relative growth or excess below this is rounding
MARGINAL = 1e-12            # a slope this close to 1 is 1 to rounding
HIGHEST_SIGMA = 1e70        # the square of a larger one is out of the table's reach
_LOWEST, _HIGHEST = 1e-150, 1e150
_USER_LOWEST, _USER_HIGHEST = 1e-50, 1e50   # of users' functions: h^5 still has a square
_FINE_LOWEST, _FINE_HIGHEST, _FINE_STEP, _COARSE_STEP = 1e-12, 1e12, 0.1, math.log(100.0)
_USER_STEP = 0.2            # users' functions cost a millisecond a value
_POWER_TOLERANCE = 1e-6     # of a growth exponent against 1
_MAX_ITERATIONS = 1100      # halvings of any bracket of doubles


class VarianceTable(NamedTuple):
    """V and V' of an activation on ascending q, and V(0+); shapes (n,)."""

    q: FloatArray
    second: FloatArray
    slope: FloatArray
    at_zero: float


class FixedPoint(NamedTuple):
    """A fixed point of a variance map Q.

    Attributes
    ----------
    q : variance q* = Q(q*).
    slope : dQ/dq at q*; at q* = 0 the limit q -> 0+. Never below -1/2, as sqrt(q) E phi^2 grows
        with q.
    chi : sigma_w^2 E phi'(h)^2, h ~ N(0, q*), the mean squared singular value of one layer.
    stable : whether iteration from nearby ends at q*: slope < 1.
    marginal : whether the slope is 1 to rounding (1e-12). Then ``stable`` is False, and the slope
        does not tell where iteration ends: a double root attracts from one side.
    continuum : whether every larger q is a fixed point too; this one stands for all of them.
    """

    q: float
    slope: float
    chi: float
    stable: bool
    marginal: bool
    continuum: bool


class Roots(NamedTuple):
    """Fixed points of all cells: their cells and q, ascending; and what cells are beyond listing.

    In a cell of ``continuum`` every q is fixed; in a cell of ``beyond`` a fixed point lies outside
    of the table.
    """

    cell: IntArray
    q: FloatArray
    continuum: BoolArray
    beyond: BoolArray


@lru_cache(maxsize=32)
def variance_table(phi: Activation) -> VarianceTable:
    """The table of an activation; it ends where a user's function has no moments any more."""
    if phi.is_builtin:
        q = _table_variances(_LOWEST, _HIGHEST, _FINE_STEP)
    else:
        q = _table_variances(_USER_LOWEST, _USER_HIGHEST, _USER_STEP)
        q = q[: _resolved(phi, q)]
    second = second_moments(phi, q)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = variance_slopes(phi, q)
    known = int(np.argmin(np.append(np.isfinite(second) & np.isfinite(slope), False)))
    at_zero = float(second_moments(phi, np.zeros(1))[0])
    return VarianceTable(q[:known], second[:known], slope[:known], at_zero)


def _table_variances(lowest: float, highest: float, step: float) -> FloatArray:
    fine = np.arange(math.log(_FINE_LOWEST), math.log(_FINE_HIGHEST), step)
    below = np.arange(math.log(lowest), fine[0] - 0.5 * step, _COARSE_STEP)
    above = np.append(np.arange(math.log(_FINE_HIGHEST), math.log(highest), _COARSE_STEP),
                      math.log(highest))
    return np.exp(np.concatenate([below, fine, above]))


def _resolved(phi: Activation, q: FloatArray) -> int:
    """How many of the ascending q a user's function has moments at that can be trusted."""
    for number in range(int(np.searchsorted(q, 1.0)), q.size):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                second_moments(phi, q[number : number + 1])
                variance_slopes(phi, q[number : number + 1])
            except (ValueError, ConvergenceWarning):
                return max(number, 1)
    return q.size


def list_fixed_points(
    phi: Activation, sigma_w: float, sigma_b: float
) -> tuple[FixedPoint, ...]:
    """The fixed points of one cell, ascending; what `fastspec.signal.fixed_points` returns."""
    weight, bias = np.array([sigma_w * sigma_w]), np.array([sigma_b * sigma_b])
    roots = all_roots(phi, weight, bias)
    if roots.beyond[0]:
        table = variance_table(phi)
        raise OverflowError(
            f"a fixed point for {phi!r}, sigma_w = {sigma_w:g}, sigma_b = {sigma_b:g} lies outside "
            f"of q = {table.q[0]:.3g} .. {table.q[-1]:.3g}, which is as far as it is looked for")
    slope, chi = slopes(phi, roots.q, np.full(roots.q.size, weight[0]))
    marginal = is_marginal(slope)
    stable = (slope < 1.0) & ~marginal
    return tuple(FixedPoint(*row, continuum=bool(roots.continuum[0])) for row in zip(
        roots.q.tolist(), slope.tolist(), chi.tolist(), stable.tolist(), marginal.tolist(),
        strict=True))


def checked_sigmas(sigma_w: Any, sigma_b: Any, strict: bool = False) -> tuple[float, float]:
    """Standard deviations from a user, sigma_w > 0 if strict; their squares are doubles."""
    pair = (_checks.real("sigma_w", sigma_w, low=0.0, strict=strict),
            _checks.real("sigma_b", sigma_b, low=0.0))
    for name, sigma in zip(("sigma_w", "sigma_b"), pair, strict=True):
        if sigma > HIGHEST_SIGMA:
            raise ValueError(f"{name} must be at most {HIGHEST_SIGMA:g}, got {sigma!r}")
    return pair


def is_marginal(slope: FloatArray) -> BoolArray:
    """Whether the slope is 1 to rounding; slopes at fixed points are never below -1/2."""
    return np.asarray(np.abs(slope - 1.0) <= MARGINAL)


def second_moments(phi: Activation, q: FloatArray) -> FloatArray:
    """V = E phi(h)^2 over a flat array q."""
    return quadrature.moment_rows(phi, q, np.zeros(q.size), 0)[1]


def relative_growth(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray
) -> FloatArray:
    """R = Q(q)/q - 1."""
    return (weight * second_moments(phi, q) + bias) / q - 1.0


def slopes(phi: Activation, q: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """dQ/dq and chi = w E phi'^2; at a fixed point q = 0 the two are one limit."""
    slope_mean = quadrature.moment_rows(phi, q, np.zeros(q.size), 1)[2]
    derivative = np.where(q == 0.0, slope_mean, variance_slopes(phi, q))
    with np.errstate(invalid="ignore"):
        rows = np.where(weight == 0.0, 0.0, weight * np.stack([derivative, slope_mean]))
    return rows[0], rows[1]


def all_roots(phi: Activation, weight: FloatArray, bias: FloatArray) -> Roots:
    """Every fixed point of every cell."""
    table = variance_table(phi)
    with np.errstate(over="ignore"):
        share = bias[:, np.newaxis] / table.q
        growth = weight[:, np.newaxis] * (table.second / table.q) + share - 1.0
        turn = weight[:, np.newaxis] * (table.slope - table.second / table.q) - share
    cell, low, high, double = _brackets(phi, table, weight, bias, growth, turn)
    start = weight * table.at_zero + bias
    deep = np.flatnonzero((start > 0.0) & (growth[:, 0] < -NOISE))
    cell = np.concatenate([cell, deep])
    low, high = np.append(low, 0.5 * start[deep]), np.append(high, np.full(deep.size, table.q[0]))
    q = bracketed_roots(
        lambda i, x: relative_growth(phi, x, weight[cell[i]], bias[cell[i]]), low, high)
    dead = np.flatnonzero(start == 0.0)
    cell = np.concatenate([cell, double[0], dead])
    q = np.concatenate([q, double[1], np.zeros(dead.size)])
    order = np.lexsort((q, cell))
    continuum = (start == 0.0) & np.all(np.abs(growth) <= NOISE, axis=1)
    return Roots(cell[order], q[order], continuum, _beyond(table, weight, start, growth))


def _brackets(
    phi: Activation, table: VarianceTable, weight: FloatArray, bias: FloatArray,
    growth: FloatArray, turn: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray, tuple[IntArray, FloatArray]]:
    """Cells and ends of brackets of single roots; cells and places of double ones.

    Grid points where R is rounding are left out: the next ones on either side decide.
    """
    sign = np.where(np.abs(growth) <= NOISE, 0.0, np.sign(growth))
    cells, columns = np.nonzero(sign)
    same = cells[1:] == cells[:-1]
    cell, left, right = cells[1:][same], columns[:-1][same], columns[1:][same]
    side = sign[cell, left]
    crossing = side != sign[cell, right]
    bent = np.flatnonzero(~crossing & _may_touch(table, growth, turn, cell, left, right, side))
    at, side = cell[bent], side[bent]
    low, high = table.q[left[bent]], table.q[right[bent]]

    def turning(i: IntArray, q: FloatArray) -> FloatArray:
        second = second_moments(phi, q)
        return weight[at[i]] * (variance_slopes(phi, q) - second / q) - bias[at[i]] / q

    extreme = bracketed_roots(turning, low, high)
    value = side * relative_growth(phi, extreme, weight[at], bias[at])
    two, one = value < -NOISE, np.abs(value) <= NOISE
    return (np.concatenate([cell[crossing], at[two], at[two]]),
            np.concatenate([table.q[left[crossing]], low[two], extreme[two]]),
            np.concatenate([table.q[right[crossing]], extreme[two], high[two]]),
            (at[one], extreme[one]))


def _may_touch(
    table: VarianceTable, growth: FloatArray, turn: FloatArray,
    cell: IntArray, left: IntArray, right: IntArray, side: FloatArray,
) -> BoolArray:
    """Whether R turns towards 0 between two points of one sign, and may reach it.

    It does not if tangents of twice its slopes meet before.
    """
    fall, rise = -side * turn[cell, left], side * turn[cell, right]
    turns = (fall > 0.0) & (rise > 0.0)
    cell, left, right, side = cell[turns], left[turns], right[turns], side[turns]
    first, last = side * growth[cell, left], side * growth[cell, right]
    fall, rise = 2.0 * fall[turns], 2.0 * rise[turns]
    length = np.log(table.q[right] / table.q[left])
    with np.errstate(invalid="ignore"):
        meeting = first - fall * (first - last + rise * length) / (fall + rise)
    turns[turns] = ~(meeting > NOISE)
    return turns


def _beyond(
    table: VarianceTable, weight: FloatArray, start: FloatArray, growth: FloatArray
) -> BoolArray:
    """Whether the growth exponents of V at the table's ends send R through 0 outside of it."""
    outside = np.zeros(start.size, dtype=bool)
    for end, outwards, open_end in ((0, -1.0, start == 0.0), (-1, 1.0, True)):
        q, second, slope = (float(column[end]) for column in table[:3])
        power = outwards * (q * slope / second - 1.0) if second > 0.0 else 0.0
        if abs(power) > _POWER_TOLERANCE:
            end_growth = growth[:, end]
            outside |= (end_growth * power < 0.0) & (np.abs(end_growth) > NOISE) & open_end
    return outside & (weight > 0.0)


def bracketed_roots(
    function: Callable[[IntArray, FloatArray], FloatArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """A root of function(i, x) for each i, between low[i] and high[i] where its signs differ.

    Chandrupatla's method (Adv. Eng. Software 28, 1997), all roots at once, to rounding of x.
    """
    todo = np.arange(low.size)
    x1, x2 = low.copy(), high.copy()
    f1, f2 = function(todo, x1), function(todo, x2)
    root = np.where(np.abs(f1) < np.abs(f2), x1, x2)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = _fraction(f1 / (f1 - f2))
    for _ in range(_MAX_ITERATIONS):
        if todo.size == 0:
            break
        x = x1 + t * (x2 - x1)
        f = function(todo, x)
        same = np.sign(f) == np.sign(f1)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, f
        root[todo] = best = np.where(np.abs(f1) < np.abs(f2), x1, x2)
        width = np.abs(x2 - x1)
        least = 2.0 * EPSILON * np.abs(best) / np.where(width > 0.0, width, 1.0)
        again = (width > 4.0 * EPSILON * np.abs(best)) & (f1 != 0.0) & (f2 != 0.0)
        todo, x1, x2, x3, f1, f2, f3, least = (
            a[again] for a in (todo, x1, x2, x3, f1, f2, f3, least))
        t = np.clip(_next_fraction(x1, x2, x3, f1, f2, f3), least, 1.0 - least)
    return root


def _next_fraction(
    x1: FloatArray, x2: FloatArray, x3: FloatArray, f1: FloatArray, f2: FloatArray, f3: FloatArray
) -> FloatArray:
    """Where between x1 and x2 to look next: inverse quadratic if that is safe, else the middle."""
    with np.errstate(all="ignore"):
        xi, level = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        safe = (level**2 < xi) & ((1.0 - level) ** 2 < 1.0 - xi)
        t = (f1 / (f2 - f1) * f3 / (f2 - f3)
             + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2))
    return np.where(safe, _fraction(t), 0.5)


def _fraction(t: FloatArray) -> FloatArray:
    """t where it lies between the ends, else the middle; of infinite values it is NaN."""
    return np.where((t >= 0.0) & (t <= 1.0), t, 0.5)
