"""The scaling report of a network from its shapes alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from . import _checks
from ._scaling_factors import Gradient, Signal, groups, kernel_size, weight_gradient
from ._scaling_flags import imbalance, reasons
from ._scaling_init import variance_rule
from ._scaling_ops import Linear, Op, ReLU, Scale, checked_ops
from ._scaling_report import OpScaling, ScalingReport
from ._scaling_steps import Step, backward, forward

_WORTH_SAYING = 1.5


def analyze(
    ops: Sequence[Op], input_shape: Sequence[int], *, init: str | Mapping[str, float] = "geometric",
    c: float = 2.0, input_second_moment: float = 1.0, input_mean: float = 0.0,
    input_correlation: float | None = None, output_gradient: float = 1.0,
) -> ScalingReport:
    r"""Scaling of every operation of a ReLU network at initialisation, from shapes alone.

    Second moments are propagated forward and backward through the operations; positions of a
    channel may be correlated, which decides what pooling does.

    Parameters
    ----------
    ops : sequence of operations
        `Linear`, `Conv2d`, `ReLU`, `Residual` and the others of this module. Biases are 0 at first.
    input_shape : (n,) or (channels, height, width)
        Of one input.
    init : {"geometric", "fan_in", "fan_out", "arithmetic"} or mapping
        Scheme for all layers (see `weight_variance`), or the variance E[W^2] > 0 of each layer by
        its name (``{"0.Conv2d": 0.01, ...}``). Schemes do not correct for residual branches;
        `precondition` does.
    c : float
        Gain of the scheme, > 0.
    input_second_moment, input_mean : float
        E[x_0^2] > 0 and E[x_0].
    input_correlation : float, optional
        E[x x'] / E[x^2] of two positions of a channel, or of two inputs, between
        input_mean^2 / input_second_moment (default: they have the mean in common only) and 1.
    output_gradient : float
        E[Dx_L^2] > 0 of the gradient at the output.

    Returns
    -------
    ScalingReport

    Raises
    ------
    ValueError
        If shapes do not chain (the message names both operations), a number is out of range, a
        scheme or a name is unknown.
    ArithmeticError
        If a second moment leaves the range of a double.

    Notes
    -----
    Defazio & Bottou 2019. varsigma = n rho^2 E[x^2] E[Dx^2] (height times width for rho^2) is kept
    by every linear operation on uncorrelated input and by positively homogeneous activations of
    symmetric input; "factor" says what the others do to it. In a residual block it parts like a
    current.

    Where the paper is corrected: gamma is the intrinsic g varsigma / (n_in n_out k^2 E[W^2]^2); its
    extrinsic form, with rho the size of the output under stride, fails under padding. gamma
    describes the Gauss-Newton blocks of a squared error up to 1 + 2 n_L sum_j 1/n_j
    (``gauss_newton``), so only if the output is narrow against every hidden layer. gamma_bias is
    constant under geometric initialisation only with one kernel size: c = 2/k in each layer would
    repair it and spoil gamma = varsigma / c^2 instead.

    Beyond the paper: the correlation r of positions goes through random weights unchanged and
    through a ReLU by the arc-cosine kernel (Cho & Saul 2009), which makes 1 + (K - 1) r for the
    mean of K positions, 1 + (K - 1)/pi after the first ReLU. Where the gradient is correlated
    too, as before global pooling, nu exceeds gamma. A max-pooled gradient sits where the input is
    large, so the ReLU before it sees E[phi'^2] > 1/2. Inputs that are not symmetric (mean other
    than 0) are taken to be Gaussian with that mean.

    Left out: one r stands for all pairs of positions, so the stronger correlation of neighbours
    after overlapping windows or upsampling is spread over the image, and zero padding makes borders
    weaker than the mean. Gradients are taken to be independent of activations: layers with few
    inputs (27 for 3 channels and a 3 x 3 kernel) deviate by up to 30 % below global pooling.

    Examples
    --------
    >>> from fastspec import scaling
    >>> ops = [scaling.Linear(784, 384), scaling.ReLU(), scaling.Linear(384, 64), scaling.ReLU(),
    ...        scaling.Linear(64, 10)]
    >>> report = scaling.analyze(ops, (784,), init="fan_in")
    >>> [round(op.gamma / report.layers[-1].gamma, 3) for op in report.layers]
    [0.319, 0.938, 1.0]
    >>> {round(op.varsigma, 6) for op in report.ops}
    {20.0}
    """
    x = input_signal(input_shape, input_second_moment, input_mean, input_correlation)
    gain = _checks.real("c", c, low=0.0, strict=True)
    gradient = _checks.real("output_gradient", output_gradient, low=0.0, strict=True)
    steps, y = walk(ops, x, init, gain, gradient)
    flat = [step for top in steps for step in top.flat()]
    rows = _flagged(flat, [_row(step) for step in flat])
    scheme = init if isinstance(init, str) else "given variances"
    factors = gauss_newton_factors(steps, y)
    return ScalingReport(
        tuple(rows), x.shape, y.shape, scheme, gain, x.moment, y.moment, gradient,
        factors, tuple(_notes(rows, factors)))


def walk(
    ops: Sequence[Op], x: Signal, init: str | Mapping[str, float], c: float, output_gradient: float
) -> tuple[list[Step], Signal]:
    """The steps of a network with all signals and gradients, and its output."""
    network = checked_ops("ops", ops)
    if not network:
        raise ValueError("ops must hold at least one operation")
    steps, y = forward(network, x, variance_rule(init, c))
    _check_names(steps, init)
    backward(steps, Gradient(output_gradient, 0.0))
    return steps, y


def input_signal(shape: Sequence[int], moment: float, mean: float,
                 correlation: float | None) -> Signal:
    """The input of a network, checked."""
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) not in (1, 3):
        raise ValueError("input_shape must be (n,) or (channels, height, width), "
                         f"got {shape!r}")
    sizes = tuple(_checks.positive_integer(f"input_shape[{i}]", n) for i, n in enumerate(shape))
    second = _checks.real("input_second_moment", moment, low=0.0, strict=True)
    first = _checks.real("input_mean", mean)
    if first**2 > second:
        raise ValueError(f"input_mean must be at most sqrt(input_second_moment) = "
                         f"{math.sqrt(second):.6g} in size, got {mean!r}")
    least = first**2 / second
    shared = least if correlation is None else _checks.real("input_correlation", correlation)
    if not least <= shared <= 1.0:
        raise ValueError("input_correlation must be between input_mean^2 / input_second_moment = "
                         f"{least:.6g} and 1, got {correlation!r}")
    return Signal(sizes, second, first, shared)


def varsigma(signal: Signal, gradient: Gradient) -> float:
    """n rho^2 E[x^2] E[Dx^2]."""
    return signal.size * signal.moment * gradient.moment


def gauss_newton_factors(steps: Sequence[Step], y: Signal) -> dict[str, float]:
    """1 + 2 n_L sum_j 1/n_j over the hidden layers j behind each layer, where that law holds.

    It is known for fully connected ReLU networks; convolutions and branches end it.
    """
    factors: dict[str, float] = {}
    inverse_widths = 0.0
    for step in reversed(steps):
        if isinstance(step.op, Linear):
            if factors:
                inverse_widths += 1.0 / step.op.n_out
            factors[step.name] = 1.0 + 2.0 * y.size * inverse_widths
        elif not isinstance(step.op, ReLU | Scale):
            break
    return dict(reversed(factors.items()))


def _row(step: Step) -> OpScaling:
    vs_in = varsigma(step.x, step.x_gradient)
    factor = varsigma(step.y, step.y_gradient) / vs_in if vs_in > 0.0 else None
    weights: dict[str, Any] = {"gamma": None, "nu": None, "gamma_bias": None}
    if step.variance is not None:
        op: Any = step.op
        places = kernel_size(op) * op.n_in * op.n_out
        weights["gamma"] = groups(op) * vs_in / (places * step.variance**2)
        weights["nu"] = weight_gradient(op, step.x, step.y_gradient) / step.variance
        if op.bias:
            weights["gamma_bias"] = step.y.positions * step.y_gradient.moment / step.y.moment
    flag = "; ".join(reasons(step, factor)) or None
    return OpScaling(step.name, vs_in, **weights, forward_second_moment=step.x.moment,
                     backward_second_moment=step.x_gradient.moment, factor=factor, flag=flag)


def _flagged(steps: Sequence[Step], rows: list[OpScaling]) -> list[OpScaling]:
    """The rows, with a word on layers whose gamma or bias scaling is far from the median."""
    mixed = len({kernel_size(step.op) for step in steps if step.variance is not None}) > 1
    middle = {key: median([v for row in rows if (v := getattr(row, key)) is not None] or [0.0])
              for key in ("gamma", "gamma_bias")}
    flagged = []
    for row in rows:
        words = [] if row.flag is None else [row.flag]
        words += imbalance("gamma", row.gamma, middle["gamma"])
        biases = imbalance("gamma_bias", row.gamma_bias, middle["gamma_bias"])
        words += [f"{word} (kernel sizes differ)" if mixed else word for word in biases]
        flagged.append(row.with_flag("; ".join(words) or None))
    return flagged


def _notes(rows: Sequence[OpScaling], factors: Mapping[str, float]) -> list[str]:
    notes = []
    worst = {name: factor for name, factor in factors.items() if factor > _WORTH_SAYING}
    if worst:
        listed = ", ".join(f"{name} {factor:.3g}" for name, factor in worst.items())
        notes.append("Gauss-Newton blocks exceed gamma by 1 + 2 n_L sum 1/n_j (squared error): "
                     f"{listed}; gamma describes them where the output is narrow against all "
                     "hidden layers")
    excess = {row.name: row.nu / row.gamma for row in rows if row.gamma and row.nu is not None}
    name = max(excess, key=excess.__getitem__, default="")
    if name and excess[name] > _WORTH_SAYING:
        notes.append(f"nu exceeds gamma, up to {excess[name]:.3g} times at {name}: positions are "
                     "correlated in the activations and in the gradients, as before pooling")
    return notes


def _check_names(steps: Sequence[Step], init: str | Mapping[str, float]) -> None:
    names = [step.name for top in steps for step in top.flat() if step.variance is not None]
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"names of layers must differ, {name!r} occurs {count} times")
    if isinstance(init, Mapping):
        for name in init:
            if name not in names:
                raise ValueError(f"init[{name!r}] is no layer with weights"
                                 + _checks.suggestion(name, names))
