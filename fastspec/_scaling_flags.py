"""Why an operation is flagged in a scaling report."""

from __future__ import annotations

from ._scaling_factors import phi_of
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
    Upsample,
    pair,
)
from ._scaling_steps import Branch, Step

OFF = 4.0                # times the median from which a layer is badly scaled
_MAINTAINS = 0.01        # deviation of a factor from 1 that is not worth a word
_SUM_OF_SQUARES = 1e-6
_RECTIFIERS = ("relu", "leaky_relu")
_RISING = {"linear", "relu", "leaky_relu", "hard_tanh", "tanh", "arctan", "erf", "scaled_erf",
           "sigmoid", "softplus", "elu", "selu", "softsign", "alpha_relu"}


def reasons(step: Step, factor: float | None) -> list[str]:
    """What is to be said of an operation by itself."""
    op, off = step.op, factor is not None and abs(factor - 1.0) > _MAINTAINS
    if isinstance(op, MaxPool2d):
        return [_max_pool(op, step)]
    if isinstance(op, AvgPool2d) and off:
        after = step.x.source is not None and step.x.source.activation.name in _RECTIFIERS
        return ["pooling after ReLU" if after else "pooling of correlated positions"]
    if isinstance(op, Upsample) and off:
        return ["gradient correlated between positions"]
    if isinstance(op, BatchNorm | LayerNorm):
        return ["normalisation"]
    if isinstance(op, ReLU | LeakyReLU | Activation):
        return _activation(op, step, off)
    if isinstance(op, Residual | Concat):
        return _branches(op, step)
    return []


def imbalance(name: str, value: float | None, median: float) -> list[str]:
    """What is to be said of a value that is more than 4 times the median, or less than 1/4."""
    if value is None or median <= 0.0 or median / OFF <= value <= OFF * median:
        return []
    return [f"{name} {value / median:.3g} x the median"]


def is_homogeneous(op: Op) -> bool:
    """Whether phi(c x) = c phi(x) for c > 0: linear on either side of 0, and phi(0) = 0."""
    phi = phi_of(op)
    straight = phi.slopes is not None and phi.kinks in ((), (0.0,))
    return straight and (phi.is_builtin or phi(0.0) == 0.0)


def _activation(op: Op, step: Step, off: bool) -> list[str]:
    if not is_homogeneous(op):
        return ["activation not homogeneous"]
    if not off:
        return []
    picked = step.y_gradient.slopes is not None
    return ["gradient picked by max-pool" if picked else "input not symmetric"]


def _max_pool(op: MaxPool2d, step: Step) -> str:
    words = ["max-pool"]
    kernel, stride = pair("kernel", op.kernel), pair("stride", op.stride)
    if any(k > s for k, s in zip(kernel, stride, strict=True)):
        words.append("windows overlap (approximate)")
    if step.x.source is not None and step.x.source.activation.name not in _RISING:
        words.append("activation not rising (approximate)")
    return ": ".join(words[:2]) + "".join(f", {word}" for word in words[2:])


def _branches(op: Residual | Concat, step: Step) -> list[str]:
    words = []
    if isinstance(op, Residual):
        total = op.alpha**2 + op.beta**2
        if abs(total - 1.0) > _SUM_OF_SQUARES:
            words.append(f"alpha^2 + beta^2 = {total:.6g}")
    if sum(not _has_weights(branch) for branch in step.branches) > 1:
        words.append("branches without weights are not independent")
    return words


def _has_weights(branch: Branch) -> bool:
    return any(inner.op.has_weights for step in branch.steps for inner in step.flat())
