"""How residual blocks that share coordinates are solved: which correction, with how many nodes.

The sharing adds one term D(m) to log z(m) of the free law. It is had at any m, without a law: from
Gauss rules of so many nodes, or in closed form. So what is enough is found at the m of the free law
first, and measured again at those of the law that was made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _kernels
from .errors import ConvergenceError, ConvergenceWarning

__all__ = ["Rule", "Run", "runs_of", "shared_core"]

ComplexArray = NDArray[np.complex128]

# (sites, slope_nodes, nodes) as the compiled chain takes them
Run = tuple[list[int], int, int]

_NODES = (2, 3, 4, 5, 6, 8, 10, 12)         # of the laws over coordinates
_PATTERNS = 64      # of slopes of all sites but one, up to which they are taken one by one ...
_LONG = 5           # ... rather than by rules of so many nodes
_SLOPE_NODES = (4, 6, 8, 10, 12, 16, 24)    # of smooth slopes
_AGREES = 1e-12     # D of one rule and the next at the free law's m, slopes of few values ...
_AGREES_SMOOTH = 1e-9   # ... and others, whose rules are dear: their last digits count near edges
_FEW = 4
_ENOUGH = 1e-9      # error of log z up to which the closed correction is taken
_WARNED = 1e-7      # ... from which on the law carries a warning
_REFUSED = 1e-4
_POINTS = 12        # of m that rules are compared at first
_MEASURED = 60      # ... and again
_ESTIMATE = 10.0    # the closed correction's own estimate is an order of magnitude
_SAFETY = 3.0       # of the difference between two rules, as a bound
_NEARLY_IDLE = 0.4  # share of coordinates idle in all blocks that nearly makes an atom


class Rule(NamedTuple):
    """Values that stand for smooth slopes, and nodes of the laws over coordinates; 0 for the
    closed correction."""

    slope_nodes: int
    nodes: int


def runs_of(stretches: list[list[int]], rule: Rule) -> list[Run]:
    return [(stretch, *rule) for stretch in stretches]


class _Sharing:
    """A chain's stretches of blocks that share coordinates, and what they add."""

    def __init__(self, blocks: list[Any], stretches: list[list[int]]) -> None:
        self.blocks, self.stretches = blocks, stretches
        values = [[blocks[site][0][-1][0].count for site in stretch] for stretch in stretches]
        self.values = max(count for stretch in values for count in stretch)
        self.agrees = _AGREES if self.values <= _FEW else _AGREES_SMOOTH
        self.patterns = max(math.prod(stretch) // min(stretch) for stretch in values)
        self.nodes: tuple[int, ...] = _NODES
        self.slope_nodes = (*(n for n in _SLOPE_NODES if n < self.values),
                            min(self.values, _SLOPE_NODES[-1]))
        if self.patterns <= _PATTERNS:
            self.nodes = *(n for n in _NODES if n < min(self.patterns, _LONG)), self.patterns

    def shortest(self) -> Rule:
        return Rule(self.slope_nodes[0], self.nodes[0])

    def finer(self, rule: Rule) -> Rule:
        return Rule(_next(self.slope_nodes, rule.slope_nodes), _next(self.nodes, rule.nodes))

    def beside(self, rule: Rule) -> Rule:
        """The rule to compare with: the finer one where there is one, else the coarser, but for
        what is exact."""
        return Rule(_beside(self.slope_nodes, rule.slope_nodes, self.values),
                    _beside(self.nodes, rule.nodes, self.patterns))

    def closed(self) -> Rule:
        return Rule(self.slope_nodes[-1], 0)

    def nearly_adds_atoms(self) -> bool:
        """Whether so many coordinates are idle in all blocks of a stretch that the closed
        correction is no expansion."""
        return any(math.prod(self.blocks[i][0][-1][0].zero for i in stretch if self.blocks[i][1])
                   > _NEARLY_IDLE for stretch in self.stretches)

    def closed_error(self, m: ComplexArray) -> float:
        """About what the closed correction leaves out of log z at these m: of the terms left out
        of dU, as much as dU' is of dU."""
        values, status = _kernels.sharing(self.blocks, runs_of(self.stretches, self.closed()), m)
        whole, slope, left = values[:, 1], values[:, 2], values[:, 3]
        if (status != 0).any():
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(whole == 0.0, 0.0, np.abs(left * slope / whole))
        return _ESTIMATE * float(np.max(error, initial=0.0))

    def difference(self, one: Rule, two: Rule, m: ComplexArray) -> float:
        """Largest difference of D between two rules, leaving out m where either has none; inf if
        that is all of them."""
        return _largest(self._terms(one, m) - self._terms(two, m))

    def _terms(self, rule: Rule, m: ComplexArray) -> ComplexArray:
        values, status = _kernels.sharing(self.blocks, runs_of(self.stretches, rule), m)
        return np.where(status == 0, values[:, 0], np.nan)

    def first_rule(self, m: ComplexArray) -> Rule:
        """The shortest rule that agrees with the next at these m."""
        rule = self.shortest()
        rule = self._first([rule._replace(nodes=nodes) for nodes in self.nodes], m)
        return self._first([rule._replace(slope_nodes=n) for n in self.slope_nodes], m)

    def _first(self, rules: list[Rule], m: ComplexArray) -> Rule:
        here = self._terms(rules[0], m)
        for rule, longer in pairwise(rules):
            after = self._terms(longer, m)
            if _largest(after - here) < self.agrees:
                return rule
            here = after
        return rules[-1]


def _largest(gap: ComplexArray) -> float:
    """Leaving out what is not known; inf if that is all."""
    size = np.abs(gap)
    return float(np.nanmax(size)) if np.isfinite(size).any() else np.inf


def _next(choices: tuple[int, ...], value: int) -> int:
    return next((choice for choice in choices if choice > value), value)


def _beside(choices: tuple[int, ...], value: int, exact: int) -> int:
    longer = _next(choices, value)
    if longer != value or value == exact or len(choices) == 1:
        return longer
    return choices[choices.index(value) - 1]


def shared_core(blocks: list[Any], stretches: list[list[int]], free: Any,
                build: Callable[[list[Run]], Any]) -> tuple[Any, Rule, float]:
    """The solved chain, its rule and the error of log z that the rule leaves.

    ``free`` is the solved free chain of ``blocks``, or None where it could not be solved;
    ``build`` solves the chain with runs.

    Raises
    ------
    ConvergenceError
        If no rule gives log z to 1e-4.
    """
    sharing = _Sharing(blocks, stretches)
    m = free.states(_POINTS) if free is not None else np.empty(0, dtype=complex)
    if m.size and not sharing.nearly_adds_atoms():
        error = sharing.closed_error(m)
        if error < _ENOUGH:
            return build(runs_of(stretches, sharing.closed())), sharing.closed(), error
    rule = sharing.first_rule(m)
    if m.size > 4:      # a law that would be refused in the end takes long to solve
        _refuse(sharing.difference(rule, sharing.beside(rule), m[2:-2]), 10.0 * _REFUSED)
    core, rule, error = _with_nodes(sharing, rule, build)
    _refuse(error, _REFUSED)
    if error > _WARNED:
        warnings.warn(f"log z of the law with shared coordinates is known to {error:.2g} only",
                      ConvergenceWarning, stacklevel=5)
    return core, rule, error


def _refuse(error: float, limit: float) -> None:
    if not error < limit:
        raise ConvergenceError("the law of blocks that share coordinates could not be resolved: "
                               f"log z is known to {error:.2g} only")


def _with_nodes(sharing: _Sharing, rule: Rule, build: Callable[[list[Run]], Any]
                ) -> tuple[Any, Rule, float]:
    """From this rule on to longer ones, until two agree on what was solved or that gets no
    better."""
    best: tuple[Any, Rule, float] = (None, rule, np.inf)
    wrong = np.inf
    while True:
        core, longer = build(runs_of(sharing.stretches, rule)), sharing.finer(rule)
        m, beside = core.states(_MEASURED), sharing.beside(rule)
        error = _SAFETY * sharing.difference(rule, beside, m) if m.size else np.inf
        before, now = wrong, max(error, core.mass_error())
        if now < wrong:
            best, wrong = (core, rule, error), now
        if wrong < 10.0 * sharing.agrees or rule == longer or 0.3 * before < now < np.inf:
            return best
        rule = longer
