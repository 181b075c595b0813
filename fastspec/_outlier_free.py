r"""The bulk seen from outside, in closed form along m = sum_k z^{-k} tr (J J^T)^k / N.

Layers a I + D W are free of each other in the coordinate average. With u_l the point at which layer
l's slopes are met, eta = E 1/(1 - u D^2) and gamma = u eta^om / (s^2 (1+m)) (om = 0 Gaussian,
1 orthogonal),

    a^2 u eta^{1+om} / s^2 = (2 + m - eta)(1 + m - eta),    r = m / (gamma eta),
    z = (1+m)/m prod_l r_l;

m > 0 above the bulk, m < -1 below it. Unknown per layer: t = log(v/(1-v)), v = u max D^2, so that
nothing is lost as u comes to the end of the slopes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._outlier_layers import FloatArray, Nodes, Statistics, nodes
from .errors import ConvergenceError

_ITERATIONS = 100
_SETTLED = 1e-9             # step of t, of max(1, abs(t)), after which none is taken: errors square
_ROUNDING, _NOISE = 4e-15, 1e-15        # of t and of f
_ROOT = 1e-9                # f that counts as 0 where bounds have met
_LAST = {1: 60.0, -1: 20.0} # t: 1 - v = 1e-26 above, 2e-9 below, where f may go to 0 from below
_STEP = {1: 4.0, -1: 1.0}   # largest step of t; below the bulk there can be two roots
_MARCH = 0.7                # step of x
_X_RANGE = 28.0             # abs(log m) up to 1e12: beyond, z has settled


class State(NamedTuple):
    """The free product at one m; arrays have shape (L,)."""

    m: float
    above_minus_one: float      # 1 + m, with its own digits
    t: FloatArray
    v: FloatArray               # u_l max D_l^2
    rest: FloatArray            # 1 - v
    excess: FloatArray          # eta - 1
    peak: FloatArray            # what of eta comes from the maximum of phi'^2, see `_pinned`
    gamma: FloatArray
    log_ratio: FloatArray       # log r_l
    log_z: float
    slope: float                # d log z / d x, x as in `FreePath.state`


class FreePath:
    """States along real m above the bulk (side = 1, x = log m) or below it (side = -1,
    x = log(-1 - m))."""

    def __init__(self, net: Statistics, side: int) -> None:
        self.net, self.side = net, side
        self._power = 2.0 if net.orthogonal else 1.0
        self._k = net.skip**2 / (net.weight_variance * net.top)
        self.take(nodes(net))

    def take(self, rule: Nodes) -> None:
        """Go on with these Gaussian nodes."""
        self.nodes = rule
        self._known: dict[float, State | None] = {}
        self._mean = rule.mass.sum(axis=1)

    def state(self, x: float) -> State | None:
        """The state at m = e^x, or at m = -1 - e^x; None beyond the end of the path."""
        if x not in self._known:
            m, m1 = (math.exp(x), 1.0 + math.exp(x)) if self.side > 0 else (
                -1.0 - math.exp(x), -math.exp(x))
            t = self._solve(m, m1, self._start(x, m, m1))
            self._known[x] = None if t is None else self._finished(m, m1, t)
        return self._known[x]

    def _solve(self, m: float, m1: float, t: FloatArray) -> FloatArray | None:
        """The smallest t that solves the equation; None if there is none.

        Newton's method on its logarithm f, between bounds: f < 0 and rising at ``low``; at ``high``
        f >= 0, or it falls again.
        """
        last, can_end = _LAST[self.side], self.side > 0 and self.net.peak is not None
        low, high = np.full_like(t, -np.inf), np.full_like(t, np.inf)
        for _ in range(_ITERATIONS):
            f, rise = self._equation(m, m1, *excesses(self.nodes, t))
            left = (f < 0.0) & (rise > 0.0)
            ended = left & (t >= last)
            if np.any(ended) and not can_end:
                return None
            low, high = np.where(left, t, low), np.where(left, high, t)
            new = np.minimum(t - f / np.where(rise > 0.0, rise, 1.0), last)
            newton = (new >= low) & (new <= high) & (rise > 0.0) & (f < np.inf)
            scale = np.maximum(1.0, np.abs(t))
            settled = ended | (np.abs(f) <= _NOISE)
            settled |= newton & (np.abs(new - t) <= _SETTLED * scale)
            if np.all(settled | (high - low <= _ROUNDING * scale)):
                is_root = np.all(settled | (f >= -_ROOT))
                return np.where(settled & newton, new, t) if is_root else None
            t = self._next(t, new, newton, low, high)
        return None

    def _start(self, x: float, m: float, m1: float) -> FloatArray:
        """Where to begin: near the root above; left of the smallest root below, where t rises
        with x."""
        known = [place for place, state in self._known.items()
                 if state is not None and (self.side > 0 or place < x)]
        if known:
            place = min(known, key=lambda place: abs(place - x))
            nearest = self._known[place]
            assert nearest is not None
            return nearest.t + (min(0.0, x - place) if self.side > 0 else 0.0)
        if self.side > 0:
            v = np.minimum(m * m1 / (self._k + (m + m1) * self._mean), 0.9)
        else:       # e can be left out
            v = np.full_like(self._mean, 0.25 * min(0.5, m * m1 / (self._k * (1.0 + m * m1))))
        return np.asarray(np.log(v) - np.log1p(-v))

    def _next(self, t: FloatArray, new: FloatArray, newton: NDArray[np.bool_], low: FloatArray,
              high: FloatArray) -> FloatArray:
        """Newton's step where it stays between the bounds, else their middle."""
        step = _STEP[self.side]
        # Nothing beyond is known to be too far: where Newton leads to the end, it is tried.
        clipped = np.where(np.isinf(high) & (new == _LAST[self.side]), new,
                           np.clip(new, t - step, t + step))
        middle = np.where(np.isfinite(low), 0.5 * (low + high), t - 2.0)
        return np.where(newton, clipped, middle)

    def _equation(self, m: float, m1: float, v: FloatArray, rest: FloatArray, e: FloatArray,
                  slope: FloatArray) -> tuple[FloatArray, FloatArray]:
        """log of left over right side and its derivative in t; infinite beyond the domain."""
        if self.net.skip == 0.0:
            return np.log(e / m), slope / e
        product = (m1 - e) * (m - e)
        inside = product > 0.0 if self.side < 0 else e < m
        product = np.where(inside, product, 1.0)
        f = np.log(self._k * v) + self._power * np.log1p(e) - np.log(product)
        rise = rest + self._power * slope / (1.0 + e) + slope * (m + m1 - 2.0 * e) / product
        return np.where(inside, f, np.inf), rise

    def _finished(self, m: float, m1: float, t: FloatArray) -> State:
        v, rest, e, slope = excesses(self.nodes, t)
        net, peak = self.net, np.zeros(t.size)
        ended = t >= _LAST[self.side]
        if np.any(ended):
            peak = np.where(ended, self._pinned(m, m1) - e, 0.0)
            e, slope = e + peak, np.where(ended, 1.0, slope)
        eta = 1.0 + e
        left = self._k * v * eta**self._power
        steepness = left * (rest + self._power * slope / eta) + (m + m1 - 2.0 * e) * slope
        moved = (m + m1 - 2.0 * e) / steepness      # dt/dm; de/dm at the maximum of phi'^2
        gamma = v * eta ** (self._power - 1.0) / (net.top * net.weight_variance * m1)
        log_ratio = np.log(m / (gamma * eta))
        dlog_ratio = 1.0 / m + 1.0 / m1 - (rest + self._power * slope / eta) * moved
        log_z = math.log(m1 / m) + math.fsum(log_ratio)
        rate = 1.0 / m1 - 1.0 / m + math.fsum(dlog_ratio)
        return State(m, m1, t, v, rest, e, peak, gamma, log_ratio, log_z,
                     rate * (m if self.side > 0 else m1))

    def _pinned(self, m: float, m1: float) -> float:
        """eta - 1 of a layer whose u has come to the end of its slopes, u = 1/top.

        Where the maximum of phi'^2 is attained, eta grows without bound there, but so late, if h
        has hardly any mass at that place, that u stays at 1/top to all digits. What nodes do not
        give of eta then belongs to the maximum.
        """
        extra = self._power - 1.0
        a, b = 1.0 - extra * self._k, m + m1 + self._power * self._k
        c = m * m1 - self._k
        return 2.0 * c / (b + math.sqrt(b * b - 4.0 * a * c))

    def edge(self) -> float:
        """x at the edge of the bulk: where log z turns, or where the path ends.

        Sought from the far end of the path inwards, then between the last point before the edge
        and the first beyond it.
        """
        from scipy.optimize import brentq

        x = self._far_start()
        before, beyond = self.state(x), None
        while before is None or not self._rises(before):
            x -= 2.0
            before = self.state(x)
            if x < -_X_RANGE:
                raise ConvergenceError("no edge of the bulk was found")
        low, high = x, x + _MARCH
        while high - low > 1e-13 * max(1.0, abs(low)):
            there = self.state(high)
            if there is not None:
                if not self._rises(there):
                    return float(brentq(self._slope, low, high, xtol=1e-13, rtol=1e-14))
                low = high
                high = low + _MARCH if beyond is None else 0.5 * (low + beyond)
                if low > _X_RANGE:
                    return low
            else:
                beyond = high
                high = 0.5 * (low + beyond)
        return low

    def _far_start(self) -> float:
        """x where the path is surely smooth and has not turned yet, or nearly so."""
        if self.side > 0:
            return -math.log(4.0 * self.net.depth)
        room = float(np.min(self._k - self._mean)) / self._k
        return math.log(1e-2 * room / self.net.depth)

    def _rises(self, state: State) -> bool:
        """Whether z still moves towards the bulk."""
        return state.slope * self.side < 0.0

    def _slope(self, x: float) -> float:
        state = self.state(x)
        assert state is not None
        return state.slope


def excesses(
    nodes: Nodes, t: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """v, 1 - v, e = eta - 1 and de/dt."""
    odds = np.exp(t)
    rest = 1.0 / (1.0 + odds)
    v = odds * rest
    pole = 1.0 / (nodes.below_top + rest[:, np.newaxis] * nodes.d)
    part = nodes.mass * pole
    return v, rest, v * part.sum(axis=1), v * rest * np.einsum("lk,lk->l", part, pole)
