"""A network walked through by the scaling calculus: signals forward, gradients backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._scaling_factors import RULES, Gradient, Signal
from ._scaling_ops import Concat, Op, Residual, branches_of, with_names

VarianceRule = Callable[[str, Op], float]


@dataclass
class Branch:
    """A sequence of steps and what its output is multiplied by at the join."""

    coefficient: float
    steps: list[Step]
    y: Signal


@dataclass
class Step:
    """One operation: its input x and output y, and the gradients of both once they are known."""

    name: str
    op: Op
    x: Signal
    y: Signal
    variance: float | None = None
    branches: list[Branch] = field(default_factory=list)
    x_gradient: Gradient = Gradient(math.nan, math.nan)
    y_gradient: Gradient = Gradient(math.nan, math.nan)

    def flat(self) -> list[Step]:
        """This step and those inside it, in the order of the network."""
        inner = [step for branch in self.branches for step in branch.steps]
        return [self, *(deeper for step in inner for deeper in step.flat())]


def forward(
    ops: Sequence[Op], x: Signal, variance_of: VarianceRule, prefix: str = "",
    origin: str = "the input",
) -> tuple[list[Step], Signal]:
    """The steps of a sequence with their signals, and its output."""
    steps: list[Step] = []
    for index, (name, op) in enumerate(with_names(ops, prefix)):
        try:
            op.output_shape(x.shape)
        except ValueError as error:
            raise ValueError(f"{name}: {error} (from {origin})") from None
        inner = op.name or f"{prefix}{index}"
        step = _step(name, op, x, variance_of, inner)
        _finite(name, "forward", step.y.moment)
        steps.append(step)
        x, origin = step.y, name
    return steps, x


def backward(steps: Sequence[Step], gradient: Gradient) -> Gradient:
    """Put the gradients into the steps; return that of the input."""
    for step in reversed(steps):
        step.y_gradient = gradient
        if step.branches:
            gradient = _join_gradients(step, gradient)
        else:
            rule = RULES[type(step.op)]
            try:
                gradient = rule.backward(step.op, step.x, step.y, gradient, step.variance)
            except ZeroDivisionError:
                raise ArithmeticError(f"{step.name}: nothing of its input is left") from None
        step.x_gradient = gradient
        if step.y_gradient.moment:
            _finite(step.name, "backward", gradient.moment)
    return gradient


def _step(name: str, op: Op, x: Signal, variance_of: VarianceRule, inner: str) -> Step:
    if isinstance(op, Residual | Concat):
        branches = []
        weights = (op.beta, op.alpha) if isinstance(op, Residual) else (1.0,) * len(op.branches)
        for weight, (place, ops) in zip(weights, branches_of(op).items(), strict=True):
            steps, y = forward(ops, x, variance_of, f"{inner}.{place}.", f"the input of {name}")
            branches.append(Branch(weight, steps, y))
        join = _sum if isinstance(op, Residual) else _beside
        return Step(name, op, x, join(name, list(branches_of(op)), branches), branches=branches)
    variance = variance_of(name, op) if op.has_weights else None
    try:
        y = RULES[type(op)].forward(op, x, variance)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Step(name, op, x, y, variance)


def _sum(name: str, places: list[str], branches: list[Branch]) -> Signal:
    """alpha S + beta F. Signs of random weights leave only the means in common: 2 a b E S E F."""
    main, shortcut = branches
    if main.y.shape != shortcut.y.shape:
        raise ValueError(f"{name}: " + " but ".join(
            f"{_last(branch, place)} makes the shape {branch.y.shape}"
            for place, branch in zip(places, branches, strict=True)))
    a, b = shortcut.coefficient, main.coefficient
    parts = [(a**2, shortcut.y), (b**2, main.y)]
    shared = 2.0 * a * b * shortcut.y.mean * main.y.mean
    moment = sum(w * y.moment for w, y in parts) + shared
    covariance = sum(w * y.moment * y.correlation for w, y in parts) + shared
    mean = a * shortcut.y.mean + b * main.y.mean
    return Signal(main.y.shape, moment, mean, covariance / moment if moment else 0.0)


def _beside(name: str, places: list[str], branches: list[Branch]) -> Signal:
    """The branches' channels beside each other."""
    signals = [branch.y for branch in branches]
    if len({y.shape[1:] for y in signals}) > 1 or len({len(y.shape) for y in signals}) > 1:
        raise ValueError(f"{name}: only channels may differ, but " + ", ".join(
            f"{_last(branch, place)} makes the shape {branch.y.shape}"
            for place, branch in zip(places, branches, strict=True)))
    channels = sum(y.channels for y in signals)

    def mixed(values: Sequence[float]) -> float:
        return sum(y.channels * v for y, v in zip(signals, values, strict=True)) / channels

    moment = mixed([y.moment for y in signals])
    covariance = mixed([y.moment * y.correlation for y in signals])
    return Signal((channels, *signals[0].shape[1:]), moment, mixed([y.mean for y in signals]),
                  covariance / moment)


def _join_gradients(step: Step, gradient: Gradient) -> Gradient:
    """The sum of what comes back through the branches: independent, so second moments add."""
    parts = [backward(branch.steps, Gradient(branch.coefficient**2 * gradient.moment,
                                             gradient.correlation))
             for branch in step.branches]
    moment = sum(part.moment for part in parts)
    covariance = sum(part.moment * part.correlation for part in parts)
    return Gradient(moment, covariance / moment if moment else 0.0)


def _last(branch: Branch, place: str) -> str:
    return f"{place} ({branch.steps[-1].name})" if branch.steps else f"{place} (the input)"


def _finite(name: str, way: str, moment: Any) -> None:
    if not (math.isfinite(moment) and moment > 0.0):
        raise ArithmeticError(f"{name}: the {way} second moment is {moment}, beyond what a double "
                              "holds")
