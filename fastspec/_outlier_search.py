r"""How many outliers there are, where, and how their vectors lie: from the inertia of F.

F has as many negative as positive eigenvalues beyond all outliers on either side of the bulk. Its
eigenvalues cross zero one way only, so the number of outliers is read off at the edge of the bulk,
and each belongs to one of the sorted eigenvalues. With nu the null vector at an outlier and r the
response to a source along a unit direction, the squared overlap is
(d log z/dx) (r nu)^2 / (nu^T dF/dx nu) for the right vector, and (1+m) r_L/m times that for the
left one.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple, Protocol

import numpy as np

from ._outlier_feedforward import Plain
from ._outlier_free import FreePath, State, excesses
from ._outlier_layers import FloatArray, Nodes, Statistics, nodes
from ._outlier_response import Form, Residual, balance
from .errors import ConvergenceError, ConvergenceWarning

_GRADES = (0.5, 0.25, 0.125, 0.0625, 0.03125)
_RULE_TOLERANCE = 1e-11
_MOST_NODES = 500_000
_X_TOLERANCE = 1e-13
_DIFFERENCE = 5e-3          # step of x for dF/dx
_NOISE = 4e-15              # of eigenvalues of F
_ZERO = 1e-13               # an eigenvalue at the edge, of the largest, that has not crossed
_GOOD, _LOST = 1e-6, 0.1    # errors of overlaps not spoken of, and too much
_WORST = 1e-3               # error of expectations that is too much
_FAREST = -600.0            # x where an outlier is no longer looked for


class Found(NamedTuple):
    """An outlier: logs of its place and of the edge, and squared overlaps."""

    log_z: float
    log_edge: float
    overlaps: tuple[float, float, float, float]     # x^0, 1 (right); x^L, 1 (left)


class _Finder(Protocol):
    def form(self, nodes: Nodes, state: State) -> Form: ...


def found(net: Statistics, side: int) -> list[Found]:
    """The outliers on one side of the bulk, the farthest first."""
    return _Search(net, side).outliers()


class _Search:
    def __init__(self, net: Statistics, side: int) -> None:
        self.path, self.depth = FreePath(net, side), net.depth
        self.finder: _Finder = Residual(net) if net.skip else Plain(net)

    def outliers(self) -> list[Found]:
        edge = self._edge()
        eigenvalues = self._at(edge)[1].matrix.eigenvalues()
        negative = int(np.count_nonzero(eigenvalues < -_ZERO * np.max(np.abs(eigenvalues))))
        count = (negative - self.depth) * self.path.side
        if count < 0:
            raise ConvergenceError(f"the equation of the outliers has {negative} negative "
                                   f"eigenvalues at the edge of the bulk, less than beyond it")
        first = self.depth if self.path.side > 0 else self.depth - 1
        log_edge = self._at(edge)[0].log_z
        return [self._found(first + n * self.path.side, edge, log_edge) for n in range(count)]

    def _edge(self) -> float:
        """x at the edge of the bulk, with a Gaussian rule that has settled there."""
        edge, change = self.path.edge(), math.inf
        for grade in _GRADES:
            if grade < _GRADES[0] and self.path.nodes.weight.size > _MOST_NODES:
                break
            state, form = self._at(edge)
            finer = nodes(self.path.net, grade)
            change = form.matrix.distance(self.finder.form(finer, state).matrix)
            if max(change, _change(self.path.nodes, finer, state)) <= _RULE_TOLERANCE:
                return edge
            self.path.take(finer)
            edge = self.path.edge()
            change = max(change, abs(self._at(edge)[0].log_z - state.log_z))
            if change <= _RULE_TOLERANCE:
                return edge
        message = (f"Gaussian expectations behind the outliers are only good to {change:.1e}: phi' "
                   "is rough, or varies on scales much finer than h")
        if not change <= _WORST:        # NaN as well
            raise ConvergenceError(message)
        _warn(message)
        return edge

    def _at(self, x: float) -> tuple[State, Form]:
        state = self.path.state(x)
        if state is None:
            raise ConvergenceError(f"the bulk has no state at x = {x:.12g}")
        return state, self.finder.form(self.path.nodes, state)

    def _eigenvalue(self, x: float, index: int) -> float:
        """The eigenvalue of this rank, negated below the bulk: positive beyond the outlier."""
        return self.path.side * self._at(x)[1].matrix.eigenvalue(index)

    def _found(self, index: int, edge: float, log_edge: float) -> Found:
        from scipy.optimize import brentq

        near, step = edge, 0.25
        far = edge - step
        while self._eigenvalue(far, index) < 0.0:
            step *= 2.0
            near, far = far, far - step
            if far < _FAREST:
                raise ConvergenceError("an outlier that the inertia counts was not found")
        x = near
        if self._eigenvalue(near, index) < 0.0:
            x = float(brentq(self._eigenvalue, far, near, args=(index,), xtol=_X_TOLERANCE))
        state, form = self._at(x)
        return Found(state.log_z, log_edge, self._overlaps(x, state, form, index))

    def _overlaps(
        self, x: float, state: State, form: Form, index: int
    ) -> tuple[float, float, float, float]:
        null = form.matrix.eigenvector(index)
        rate = self._rate(x, null)
        unsure = _NOISE / (abs(rate) * min(1.0, float(balance(state, 2)[0]) ** 2))
        where = f"an outlier at log lambda = {state.log_z:.6g}"
        if unsure > _LOST * _DIFFERENCE:
            raise ConvergenceError(f"{where} is too far from the bulk for double precision")
        if unsure > _GOOD * _DIFFERENCE:
            _warn(f"{where} is so far from the bulk that log lambda is only good to {unsure:.1e} "
                  f"and overlaps to {unsure / _DIFFERENCE:.1e}")
        right = state.slope / rate
        left = right * math.exp(state.log_ratio[-1]) * state.above_minus_one / state.m
        squares = (null @ form.columns) ** 2
        a, b, c, d = _within_one(squares * [right, right, left, left], unsure / _DIFFERENCE)
        return a, b, c, d

    def _rate(self, x: float, null: FloatArray) -> float:
        """nu^T dF/dx nu, by differences of fourth order."""
        near, far = (self._difference(x, null, times * _DIFFERENCE) for times in (1.0, 2.0))
        return (4.0 * near - far) / 3.0

    def _difference(self, x: float, null: FloatArray, step: float) -> float:
        after, before = (self._at(place)[1].matrix.quadratic(null)
                         for place in (x + step, x - step))
        return float(after - before) / (2.0 * step)


def _change(rule: Nodes, finer: Nodes, state: State) -> float:
    """Largest relative change of E d X and E d X^2 by a finer rule."""
    free = state.peak == 0.0
    pairs = zip(excesses(rule, state.t)[2:], excesses(finer, state.t)[2:], strict=True)
    return max(float(np.max(np.abs(after / before - 1.0)[free], initial=0.0))
               for before, after in pairs)


def _within_one(overlaps: FloatArray, unsure: float) -> list[float]:
    """Overlaps without the rounding that takes them out of [0, 1]."""
    inside = np.clip(overlaps, 0.0, 1.0)
    if np.max(np.abs(inside - overlaps)) > 10.0 * unsure + _GOOD:
        raise ConvergenceError(f"squared overlaps of an outlier came out as {overlaps.tolist()}")
    return list(inside.tolist())


def _warn(message: str) -> None:
    warnings.warn(message, ConvergenceWarning, stacklevel=8)
