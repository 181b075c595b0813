"""Initial variances and fixed multipliers that give every layer the same gamma."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from . import _checks
from ._scaling_analyze import analyze, input_signal, varsigma, walk
from ._scaling_factors import Signal
from ._scaling_flags import reasons
from ._scaling_init import variance_rule
from ._scaling_ops import (
    Activation,
    AvgPool2d,
    BatchNorm,
    Concat,
    LayerNorm,
    LeakyReLU,
    MaxPool2d,
    Op,
    ReLU,
    Residual,
    Scale,
    Upsample,
    branches_of,
    checked_ops,
    inner_prefix,
    with_names,
)
from ._scaling_report import ScalingReport
from ._scaling_steps import Step, forward

_SAME = 1e-9             # relative deviation below which nothing needs to be corrected

_ADVICE: dict[type[Op], str] = {
    MaxPool2d: "replace it by Stride or a strided convolution",
    AvgPool2d: "use a strided convolution, or pool before the ReLU",
    Upsample: "none of its neighbours can make up for a correlated gradient",
    BatchNorm: "leave it out and weight residual branches instead",
    LayerNorm: "leave it out and weight residual branches instead",
    Activation: "use ReLU or LeakyReLU",
    ReLU: "give it a symmetric input, such as the output of a layer",
    LeakyReLU: "give it a symmetric input, such as the output of a layer",
}


@dataclass(frozen=True)
class Change:
    """One change, or one suggestion of what was not changed.

    Attributes
    ----------
    kind : {"variance", "multiplier", "suggestion"}
    op : str
        Name of the operation it is about; a multiplier stands behind it.
    factor : float or None
        What geometric initialisation's variance is multiplied by, or the multiplier; for a
        suggestion what the operation puts on varsigma.
    text : str
        The same in words.
    """

    kind: str
    op: str
    factor: float | None
    text: str

    def __str__(self) -> str:
        return f"{self.op}: {self.text}"


@dataclass(frozen=True)
class Preconditioned:
    """A network with the same gamma in every layer, made by `precondition`.

    Attributes
    ----------
    ops : tuple of operations
        With the multipliers put in; all carry their names.
    variances : dict
        E[W^2] of each layer by name: the ``init`` of `analyze`.
    changes : tuple of Change
    report : ScalingReport
        Of this network.
    """

    ops: tuple[Op, ...]
    variances: dict[str, float]
    changes: tuple[Change, ...]
    report: ScalingReport

    def __str__(self) -> str:
        """One line for each change."""
        return "\n".join(map(str, self.changes)) or "nothing to change: geometric initialisation"


def precondition(
    ops: Sequence[Op], input_shape: Sequence[int], *, c: float = 2.0,
    output_second_moment: float | None = None, input_second_moment: float = 1.0,
    input_mean: float = 0.0, input_correlation: float | None = None,
) -> Preconditioned:
    r"""The network with initial variances and fixed multipliers that make gamma constant.

    Operations stay as they are. Where varsigma is a^2 times that of most layers (the median outside
    branches), the layer's variance is a times the geometric one, and a fixed multiplier a^-1/2
    behind it keeps all signals as they were.

    Parameters
    ----------
    ops, input_shape, c, input_second_moment, input_mean, input_correlation
        As in `analyze`.
    output_second_moment : float, optional
        Wanted E[x_L^2] > 0, brought about by a multiplier at the end; 0.01 to 0.1 is sensible for
        logits (Defazio & Bottou 2019). By default the output is left alone.

    Returns
    -------
    Preconditioned

    Raises
    ------
    ValueError, ArithmeticError
        As in `analyze`.

    Notes
    -----
    A branch of a residual block that changes the second moment gets a multiplier at its end, so
    that E[F^2] = E[x^2]; then a = beta in the main branch and a = alpha on the shortcut if
    alpha^2 + beta^2 = 1 (see `residual_corrections`). Layers before a pooling or any other
    operation that does not maintain varsigma are corrected alike. Operations that should rather be
    replaced are named in the changes, never replaced.

    Examples
    --------
    >>> from fastspec import scaling
    >>> block = scaling.Residual([scaling.ReLU(), scaling.Linear(64, 64)], alpha=0.8, beta=0.6)
    >>> net = [scaling.Linear(8, 64), block, scaling.ReLU(), scaling.Linear(64, 10)]
    >>> made = scaling.precondition(net, (8,))
    >>> print(made)
    1.main.1.Linear: variance x 0.6 of geometric initialisation
    1.main.1.Linear: multiplied by 1.29099 behind it
    """
    network = checked_ops("ops", ops)
    x = input_signal(input_shape, input_second_moment, input_mean, input_correlation)
    gain = _checks.real("c", c, low=0.0, strict=True)
    target = output_second_moment if output_second_moment is None else _checks.real(
        "output_second_moment", output_second_moment, low=0.0, strict=True)
    walk(network, x, "geometric", gain, 1.0)    # which checks the network as it was given
    restored, changes = _restore_branches(network, x, gain, "")
    steps, y = walk(restored, x, "geometric", gain, 1.0)
    corrections = _corrections(steps)
    made = _insert(restored, corrections)
    changes += [change for name, a in corrections.items() for change in _corrected(name, a)]
    if target is not None:
        factor = math.sqrt(target / y.moment)
        made.append(Scale(factor, name="output.multiplier"))
        changes.append(_multiplied(steps[-1].name, factor))
    variances = {step.name: (step.variance or 0.0) * corrections.get(step.name, 1.0)
                 for step in _flat(steps) if step.variance is not None}
    report = analyze(made, input_shape, init=variances, c=gain,
                     input_second_moment=x.moment, input_mean=x.mean,
                     input_correlation=x.correlation)
    changes += [word for step in _flat(steps) if (word := _suggestion(step)) is not None]
    return Preconditioned(tuple(made), variances, tuple(changes), report)


def output_multiplier(report: ScalingReport, target: float) -> float:
    """The fixed multiplier that gives the output the second moment ``target`` > 0.

    It may stand anywhere in a network of ReLUs and layers, and multiplies every gamma by its square
    (Defazio & Bottou 2019).

    Examples
    --------
    >>> from fastspec import scaling
    >>> report = scaling.analyze([scaling.Linear(40, 10)], (40,))
    >>> print(f"{report.output_second_moment:g} {scaling.output_multiplier(report, 0.04):g}")
    4 0.1
    """
    wanted = _checks.real("target", target, low=0.0, strict=True)
    return math.sqrt(wanted / report.output_second_moment)


def _restore_branches(
    ops: Sequence[Op], x: Signal, c: float, prefix: str
) -> tuple[list[Op], list[Change]]:
    """The operations, named, with E[F^2] = E[x^2] in the branches of residual blocks."""
    rule = variance_rule("geometric", c)
    made: list[Op] = []
    changes: list[Change] = []
    for index, (name, op) in enumerate(with_names(ops, prefix)):
        parts: dict[str, tuple[Op, ...]] = {}
        for place, branch in branches_of(op).items():
            deeper = inner_prefix(op, index, prefix, place)
            inner, more = _restore_branches(branch, x, c, deeper)
            changes += more
            if isinstance(op, Residual):
                changes += _restore(inner, x, rule, deeper)
            parts[place] = tuple(inner)
        op = _with_branches(replace(op, name=name), parts)
        made.append(op)
        x = forward([op], x, rule)[1]
    return made, changes


def _restore(inner: list[Op], x: Signal, rule: Any, prefix: str) -> list[Change]:
    """Append to a branch the multiplier it needs for E[F^2] = E[x^2]."""
    y = forward(inner, x, rule)[1]
    factor = math.sqrt(x.moment / y.moment)
    if abs(factor - 1.0) <= _SAME:
        return []
    last = inner[-1].name
    inner.append(Scale(factor, name=f"{prefix}multiplier"))
    return [_multiplied(last, factor, " (keeps the second moment of the block's input)")]


def _with_branches(op: Op, parts: Mapping[str, tuple[Op, ...]]) -> Op:
    if isinstance(op, Residual):
        return replace(op, main=parts["main"], shortcut=parts["shortcut"])
    return replace(op, branches=tuple(parts.values())) if isinstance(op, Concat) else op


def _corrections(steps: Sequence[Step]) -> dict[str, float]:
    """sqrt(varsigma / varsigma of most layers) of the layers where that is not 1."""
    found = {step.name: varsigma(step.x, step.x_gradient)
             for step in _flat(steps) if step.variance is not None}
    outside = [found[step.name] for step in steps if step.variance is not None]
    alive = [v for v in outside or found.values() if v > 0.0]
    unit = median_low(alive) if alive else 1.0
    return {name: a for name, v in found.items()
            if v > 0.0 and abs((a := math.sqrt(v / unit)) - 1.0) > _SAME}


def _insert(ops: Sequence[Op], corrections: Mapping[str, float]) -> list[Op]:
    """The operations with a multiplier a^-1/2 behind each corrected layer."""
    made: list[Op] = []
    for op in ops:
        parts = {place: tuple(_insert(branch, corrections))
                 for place, branch in branches_of(op).items()}
        made.append(_with_branches(op, parts))
        if op.name in corrections:
            made.append(Scale(corrections[op.name] ** -0.5, name=f"{op.name}.multiplier"))
    return made


def _corrected(name: str, a: float) -> list[Change]:
    return [Change("variance", name, a, f"variance x {a:.6g} of geometric initialisation"),
            _multiplied(name, a**-0.5)]


def _multiplied(name: str, factor: float, why: str = "") -> Change:
    return Change("multiplier", name, factor, f"multiplied by {factor:.6g} behind it{why}")


def _suggestion(step: Step) -> Change | None:
    """What could be done about an operation that does not maintain varsigma."""
    before = varsigma(step.x, step.x_gradient)
    if type(step.op) not in _ADVICE or before == 0.0:
        return None
    factor = varsigma(step.y, step.y_gradient) / before
    words = reasons(step, factor)
    if not words or step.y_gradient.slopes is not None:
        return None
    return Change("suggestion", step.name, factor, f"{'; '.join(words)}, varsigma x {factor:.4g}: "
                  + _ADVICE[type(step.op)])


def _flat(steps: Sequence[Step]) -> list[Step]:
    return [step for top in steps for step in top.flat()]
