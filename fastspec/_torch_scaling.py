"""How a PyTorch module is scaled: measured by hooks, beside the scaling calculus."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from . import _checks
from ._scaling_analyze import analyze
from ._scaling_report import ScalingReport
from ._torch_describe import columns
from ._torch_moments import Call, Loss, Reinit, batch_moments, measure_calls
from ._torch_ops import Operations, check_batch, ops_of
from ._torch_steps import Problem

__all__ = ["MeasuredOp", "MeasuredScaling", "scaling_report"]

_FAR = 4.0      # times the median (or its inverse) that a layer's nu may be
_JUMP = 1.25    # times varsigma (or its inverse) that an operation may make


@dataclass(frozen=True)
class MeasuredOp:
    """One operation of a module: measured, and as the calculus has it.

    What could not be measured, or does not exist, is None.

    Attributes
    ----------
    name : str
        Path of the module, with the number of its use from the second on; or the function.
    kind : str
        Class of the module or of the operation.
    varsigma : float
        Activation scaling factor n rho^2 E[Dx^2] E[x^2] of its input, with the gradient that comes
        back through this operation alone.
    factor : float
        varsigma of its output over that of its input.
    gamma : float
        Weight scaling factor, intrinsic: varsigma / (number of weights E[W^2]^2), which is
        groups varsigma / (n_l n_{l+1} k^2 E[W^2]^2).
    nu : float
        E[DW^2] / E[W^2], for one input.
    gamma_bias : float
        r2^2 E[Dy^2] / E[y^2] of its output y with r2^2 positions.
    forward_second_moment, backward_second_moment : float
        E[x^2] and E[Dx^2] of its input.
    weight_variance : float
        E[W^2].
    relative_nu : float
        nu over the median of all layers.
    flag : str
        What is conspicuous; empty if nothing is.
    predicted : dict
        The row of `fastspec.scaling.analyze`.
    ratio : float
        Measured over predicted: nu for a layer with weights, else varsigma.
    """

    name: str
    kind: str
    varsigma: float | None = None
    factor: float | None = None
    gamma: float | None = None
    nu: float | None = None
    gamma_bias: float | None = None
    forward_second_moment: float | None = None
    backward_second_moment: float | None = None
    weight_variance: float | None = None
    relative_nu: float | None = None
    flag: str = ""
    predicted: Mapping[str, Any] | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class MeasuredScaling:
    """What `scaling_report` found; it prints as a table.

    Attributes
    ----------
    ops : tuple of MeasuredOp
        In the order of the signal.
    seeds : int
    prediction : fastspec.scaling.ScalingReport or None
        None where the module cannot be turned into operations.
    problems, notes : tuple of Problem
        Why there is no prediction; what is assumed.
    """

    ops: tuple[MeasuredOp, ...]
    seeds: int
    prediction: ScalingReport | None
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]

    def __getitem__(self, name: str) -> MeasuredOp:
        """The operation of that name."""
        for op in self.ops:
            if op.name == name:
                return op
        names = [op.name for op in self.ops]
        raise KeyError(f"{name!r} is no operation of this module: {', '.join(names)}")

    @property
    def layers(self) -> tuple[MeasuredOp, ...]:
        """Those with weights."""
        return tuple(op for op in self.ops if op.nu is not None)

    @property
    def flagged(self) -> tuple[MeasuredOp, ...]:
        """Layers whose nu is more than four times off the median, and operations where varsigma
        jumps."""
        return tuple(op for op in self.ops if op.flag)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; ``"ops"`` has one dict per operation."""
        return {"ops": [asdict(op) for op in self.ops], "seeds": self.seeds,
                "predicted": self.prediction is not None,
                "problems": [asdict(problem) for problem in self.problems],
                "notes": [asdict(note) for note in self.notes]}

    def __str__(self) -> str:
        lines = [f"mean over {self.seeds} seeds; offline: the calculus' nu of layers, varsigma of "
                 "the others",
                 *columns(_HEAD, [_row(op) for op in self.ops])]
        lines += self.prediction.notes if self.prediction is not None else ()
        for title, remarks in (("no offline prediction:", self.problems), ("notes:", self.notes)):
            if remarks:
                lines += [title, *(f"  {remark}" for remark in remarks)]
        return "\n".join(lines)


_HEAD = ("name", "kind", "varsigma", "factor", "gamma", "nu", "nu/median", "offline", "ratio",
         "gamma_bias", "flag")


def _row(op: MeasuredOp) -> tuple[str, ...]:
    offline = op.predicted and op.predicted["varsigma" if op.nu is None else "nu"]
    numbers = (op.varsigma, op.factor, op.gamma, op.nu, op.relative_nu, offline, op.ratio,
               op.gamma_bias)
    return (op.name, op.kind, *("" if x is None else f"{x:.4g}" for x in numbers), op.flag)


def scaling_report(
    module: nn.Module, batch: torch.Tensor, *, seeds: int = 8, seed: int = 0,
    reinit: Reinit | None = None, loss: Loss | None = None,
) -> MeasuredScaling:
    r"""Measure how the layers of a module are scaled at initialisation.

    Each seed draws new weights and does one forward and one backward pass in training mode, with
    hooks on the modules that do the work. Second moments are averaged over entries, batch and
    seeds before anything is divided by them: in one network they fluctuate like
    sqrt(sum 1/n_j) (Defazio & Bottou, "Beyond Folklore", define all quantities in this sense).

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed: every pass is that of a copy.
    batch : Tensor, shape (inputs, ...)
        Inputs that the module takes. A tensor of one dimension is one input.
    seeds : int
        Draws of the weights, >= 1.
    seed : int
        Where they start; the same gives the same report.
    reinit : callable, optional
        Given a copy of the module, draws its weights with PyTorch's global generator. By default
        weights are normal with the second moments that the module's have, layer by layer, so that
        its own scheme is measured; other parameters stay as they are.
    loss : callable, optional
        Given the module's output, makes one number. By default the gradient of the output is
        random, normal with variance 1, which is the calculus' assumption that it does not depend on
        the output. With a loss the gradients of different inputs may add up in nu.

    Returns
    -------
    MeasuredScaling
        With the figures of `fastspec.scaling.analyze` beside the measured ones, where `ops_of`
        can read the module, for the variances that its weights have (those that ``reinit`` drew),
        the batch's second moment and the output gradient that was measured.

    Raises
    ------
    ValueError
        If an argument is not as described, the module does not take the batch, it has no weights,
        or, without ``loss``, its output is not one tensor.
    FloatingPointError
        If a second moment is not finite.

    Notes
    -----
    gamma is the intrinsic form. The extrinsic one,
    n_l k_l^2 r2^2 E[x_l^2]^2 E[Dx_{l+1}^2] / E[x_{l+1}^2], is off where a convolution pads with
    zeros and is not reported. nu needs neither.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fastspec.torch as ft
    >>> net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))
    >>> for layer in (net[0], net[2]):
    ...     _ = nn.init.kaiming_normal_(layer.weight)
    >>> report = ft.scaling_report(net, torch.randn(32, 256))
    >>> 0.03 < report.layers[0].nu / report.layers[1].nu < 0.12     # 16 / 256 by fan-in
    True
    """
    seeds = _checks.positive_integer("seeds", seeds)
    batch = check_batch(module, batch, "batch")
    for name, function in (("reinit", reinit), ("loss", loss)):
        if function is not None and not callable(function):
            raise ValueError(f"{name} must be a function or None, got {function!r}")
    found = ops_of(module, batch)
    calls, whole = measure_calls(module, batch, seeds, seed, reinit, loss)
    if not any("weight" in call.sums for call in calls.values()):
        raise ValueError("module has no layer with weights that its input goes through")
    measured = {name: _measured(name, call, seeds) for name, call in calls.items()}
    problems = list(found.problems)
    prediction = _predict(found, measured, whole, batch, seeds, problems)
    rows = list(measured.values()) if prediction is None else _beside(measured, prediction)
    return MeasuredScaling(tuple(_flagged(rows)), seeds, prediction, tuple(problems),
                           (*found.notes, *_biases(module)))


def _measured(name: str, call: Call, seeds: int) -> MeasuredOp:
    """The figures of one call from its sums."""
    mean = {key: total / seeds for key, total in call.sums.items()}
    for key, value in mean.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"{name}: the second moment of its {key.replace('_', ' ')} "
                                     "is not finite")
    varsigma = _product(call.n_in, mean.get("input"), mean.get("input_gradient"))
    after = _product(call.n_out, mean.get("output"), mean.get("output_gradient"))
    op = MeasuredOp(
        name, type(call.module).__name__, varsigma=varsigma, factor=_ratio(after, varsigma),
        forward_second_moment=mean.get("input"),
        backward_second_moment=mean.get("input_gradient"))
    if "weight" not in mean:
        return op
    weight: Any = call.module.weight
    return replace(
        op, nu=_ratio(mean["weight_gradient"], mean["weight"]), weight_variance=mean["weight"],
        gamma=_ratio(varsigma, weight.numel() * mean["weight"] ** 2),
        gamma_bias=_gamma_bias(call, mean))


def _gamma_bias(call: Call, mean: Mapping[str, float]) -> float | None:
    """r2^2 E[Dy^2] / E[y^2] of a layer that has a bias."""
    bias = call.module._parameters.get("bias")
    if bias is None or not call.n_out:
        return None
    return _ratio(_product(call.n_out / bias.numel(), mean.get("output_gradient")),
                  mean.get("output"))


def _predict(found: Operations, measured: Mapping[str, MeasuredOp], whole: Call,
             batch: torch.Tensor, seeds: int, problems: list[Problem]) -> ScalingReport | None:
    """The calculus at the measured variances, input moments and output gradient."""
    if problems:
        return None
    variances = {name: op.weight_variance for name, op in measured.items()
                 if op.weight_variance is not None}
    try:
        return analyze(found.ops, found.input_shape, init=variances, **batch_moments(batch),
                       output_gradient=whole.sums.get("output_gradient", 0.0) / seeds)
    except (ValueError, ArithmeticError) as error:
        problems.append(Problem("", "calculus", str(error)))
        return None


def _beside(measured: Mapping[str, MeasuredOp], prediction: ScalingReport) -> list[MeasuredOp]:
    """What was measured in the order of the prediction; functions have no hooks."""
    rows = []
    for predicted in prediction.ops:
        op = measured.get(predicted.name, MeasuredOp(predicted.name, "function"))
        ratio = (_ratio(op.nu, predicted.nu) if op.nu is not None
                 else _ratio(op.varsigma, predicted.varsigma))
        rows.append(replace(op, predicted=asdict(predicted), ratio=ratio))
    return rows


def _flagged(rows: Sequence[MeasuredOp]) -> list[MeasuredOp]:
    """The rows with nu over the median, and with flags."""
    ratios = [op.nu for op in rows if op.nu is not None]
    median = statistics.median(ratios)
    rows = [replace(op, relative_nu=_ratio(op.nu, median)) for op in rows]
    return [replace(op, flag=_flag(op)) for op in rows]


def _flag(op: MeasuredOp) -> str:
    if op.relative_nu is not None:
        far = not 1.0 / _FAR <= op.relative_nu <= _FAR
        return f"nu {op.relative_nu:.3g} x the median" if far else ""
    if op.nu is not None:
        return ""
    predicted = op.predicted or {}
    factor, source = (predicted.get("factor"), " offline") if op.factor is None else (op.factor, "")
    if factor is None or 1.0 / _JUMP <= factor <= _JUMP:
        return ""
    reason = f" ({predicted['flag']})" if predicted.get("flag") else ""
    return f"varsigma x {factor:.3g}{source}{reason}"


def _product(*factors: float | None) -> float | None:
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _biases(module: nn.Module) -> list[Problem]:
    """Remarks on biases that are not 0."""
    at = [name.rpartition(".")[0] for name, value in module.named_parameters()
          if name.rpartition(".")[2] == "bias" and value.dim() and bool(value.any())]
    if not at:
        return []
    return [Problem(at[0], "bias", f"{len(at)} layers have biases that are not 0; they stay as "
                    "they are, and the calculus leaves them out")]
