"""Geometric initialisation of a PyTorch module."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from . import _checks
from . import _scaling_ops as so
from ._scaling_analyze import input_signal
from ._scaling_factors import Signal
from ._scaling_init import residual_corrections, weight_variance
from ._scaling_steps import VarianceRule, forward
from ._torch_describe import columns
from ._torch_moments import batch_moments
from ._torch_ops import Operations, check_batch, every_op, ops_of
from ._torch_steps import Problem

__all__ = ["BranchMultiplier", "GeometricInitialisation", "GeometricLayer", "geometric_init_"]

_MANY = 8       # inputs, enough for batch normalisation
_SAME = 1e-3    # how far from 1 a multiplier may be and is not worth setting


@dataclass(frozen=True)
class GeometricLayer:
    """What one layer got.

    Attributes
    ----------
    path : str
        Name of the module.
    variance : float
        E[W^2] of its weights.
    correction : float
        Product of the beta and alpha of the residual blocks around it, by which the variance was
        multiplied.
    """

    path: str
    variance: float
    correction: float


@dataclass(frozen=True)
class BranchMultiplier:
    """What a branch of a residual block must be multiplied by, so that E[F^2] = E[x^2].

    Attributes
    ----------
    block : str
        Name of the sum, as `ops_of` has it.
    branch : {"main", "shortcut"}
    layers : tuple of str
        The branch's layers with weights. The multiplier may stand anywhere between them.
    factor : float
    """

    block: str
    branch: str
    layers: tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class GeometricInitialisation:
    """What `geometric_init_` has set, and what it cannot set; it prints as a table.

    Attributes
    ----------
    layers : tuple of GeometricLayer
        In the order of the signal.
    multipliers : tuple of BranchMultiplier
        For the module's forward; where none is needed there is none.
    c : float
    output_second_moment : float
        E[y^2] of the module now: measured on the example, or predicted for inputs of second moment
        1 where there is none or all of it is 0.
    output_multiplier : float
        What the output must be multiplied by for the wanted second moment; 1 if none is wanted.
    notes : tuple of Problem
        What is assumed.
    """

    layers: tuple[GeometricLayer, ...]
    multipliers: tuple[BranchMultiplier, ...]
    c: float
    output_second_moment: float
    output_multiplier: float
    notes: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [(layer.path, f"{layer.variance:.6g}", f"{layer.correction:.6g}")
                for layer in self.layers]
        lines = columns(("path", "variance", "correction"), rows)
        lines += [f"{one.block}: {one.branch} ({', '.join(one.layers)}) to be multiplied by "
                  f"{one.factor:.6g}" for one in self.multipliers]
        lines.append(f"output: second moment {self.output_second_moment:.6g}, to be multiplied by "
                     f"{self.output_multiplier:.6g}")
        if self.notes:
            lines += ["notes:", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines)


def geometric_init_(
    module: nn.Module, example: torch.Tensor | None = None, *, c: float = 2.0,
    generator: torch.Generator | None = None, output_second_moment: float | None = None,
) -> GeometricInitialisation:
    r"""Set the weights of a module in place so that all layers are scaled alike.

    Weights become normal with variance c sqrt(g) / (k sqrt(n_l n_{l+1})) for kernels of k^2 places
    and g groups, biases 0 (Defazio & Bottou, "Beyond Folklore", geometric initialisation). In
    residual blocks alpha x + beta F(x) the variance is multiplied by beta in F and by alpha in
    the shortcut, both over sqrt(alpha^2 + beta^2): that share of varsigma is theirs.

    That holds where E[F^2] = E[x^2], which takes fixed multipliers in the module's forward. They
    cannot be set from outside: the result lists those that are still missing, and only with them
    are the layers in the blocks like the others. So it is with the output multiplier. Operations
    that change varsigma, such as pooling, are not made up for; `fastspec.scaling.precondition`
    does that.

    Parameters
    ----------
    module : torch.nn.Module
        One that `ops_of` can read.
    example : Tensor, shape (inputs, ...), optional
        A batch that the module takes. One of zeros tells no more than its shape, which is known
        without if the first layer with weights is Linear.
    c : float
        > 0, the same in all layers.
    generator : torch.Generator, optional
        Draws the weights.
    output_second_moment : float, optional
        Wanted E[y^2] of the output, > 0; .01 to .1 suits a softmax.

    Returns
    -------
    GeometricInitialisation

    Raises
    ------
    ValueError
        If the module cannot be read (the message lists why), has no weights, or an argument is out
        of range. The module is left as it was.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fastspec.torch as ft
    >>> net = nn.Sequential(nn.Linear(784, 384), nn.ReLU(), nn.Linear(384, 64), nn.ReLU(),
    ...                     nn.Linear(64, 10))
    >>> result = ft.geometric_init_(net, generator=torch.Generator().manual_seed(0))
    >>> print(f"{result.layers[0].variance:.6f}, {result.output_second_moment:.3f}")
    0.003645, 17.709
    """
    c = _checks.real("c", c, low=0.0, strict=True)
    if output_second_moment is not None:
        _checks.real("output_second_moment", output_second_moment, low=0.0, strict=True)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    batch = _inferred(module) if example is None else check_batch(module, example, "example")
    found = ops_of(module, batch)
    layers = tuple(_layers(found.require(), c, 1.0))
    if not layers:
        raise ValueError("module has no layer with weights that its input goes through")
    blank = not bool(batch.any())
    moments = {} if blank else batch_moments(batch)
    multipliers, predicted = _multipliers(found, layers, moments)
    _set(module, layers, generator)
    moment = predicted if blank else _output_moment(module, batch)
    multiplier = 1.0
    if output_second_moment is not None:
        if not moment > 0.0:
            raise FloatingPointError("the output is 0, and no multiplier gives it a second moment")
        multiplier = math.sqrt(output_second_moment / moment)
    return GeometricInitialisation(layers, multipliers, c, moment, multiplier, found.notes)


def _inferred(module: Any) -> torch.Tensor:
    """A batch for a module that begins with Linear."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    first: Any = next((part for part in module.modules()
                       if isinstance(part, nn.Linear) or "weight" in part._parameters), None)
    if not isinstance(first, nn.Linear):
        raise ValueError("example is needed: a batch that the module takes")
    weight = first.weight
    return torch.zeros(_MANY, first.in_features, dtype=weight.dtype, device=weight.device)


def _layers(ops: Sequence[so.Op], c: float, correction: float) -> Iterator[GeometricLayer]:
    """Variances of the layers in the order of the signal."""
    for op in ops:
        if isinstance(op, so.Residual):
            size = math.hypot(op.alpha, op.beta)
            block = residual_corrections(abs(op.alpha) / size, abs(op.beta) / size)
            yield from _layers(op.main, c, correction * block.main_variance)
            yield from _layers(op.shortcut, c, correction * block.shortcut_variance)
        elif isinstance(op, so.Concat):
            for branch in op.branches:
                yield from _layers(branch, c, correction)
        elif isinstance(op, so.Linear | so.Conv2d):
            kernel, groups = (op.kernel, op.groups) if isinstance(op, so.Conv2d) else (1, 1)
            variance = weight_variance("geometric", op.n_in, op.n_out, kernel, groups, c)
            yield GeometricLayer(op.name, variance * correction, correction)


def _set(module: nn.Module, layers: Sequence[GeometricLayer],
         generator: torch.Generator | None) -> None:
    with torch.no_grad():
        for layer in layers:
            part: Any = module.get_submodule("" if layer.path == "(itself)" else layer.path)
            device = part.weight.device if generator is None else generator.device
            dtype = torch.promote_types(part.weight.dtype, torch.float32)
            normal = torch.randn(part.weight.shape, generator=generator, dtype=dtype, device=device)
            part.weight.copy_(normal * math.sqrt(layer.variance))
            if part.bias is not None:
                part.bias.zero_()


def _multipliers(found: Operations, layers: Sequence[GeometricLayer],
                 moments: Mapping[str, float]) -> tuple[tuple[BranchMultiplier, ...], float]:
    """What branches lack for E[F^2] = E[x^2] at the layers' variances; E[y^2] of the output."""
    variances = {layer.path: layer.variance for layer in layers}
    x = input_signal(found.input_shape, moments.get("input_second_moment", 1.0),
                     moments.get("input_mean", 0.0), moments.get("input_correlation"))

    def rule(name: str, op: so.Op) -> float:
        return variances[name]

    _, multipliers = _restored(found.ops, x, rule)
    return tuple(multipliers), forward(found.ops, x, rule)[1].moment


def _restored(ops: Sequence[so.Op], x: Signal, rule: VarianceRule
              ) -> tuple[list[so.Op], list[BranchMultiplier]]:
    """The operations with the multipliers that their residual branches lack."""
    made: list[so.Op] = []
    multipliers: list[BranchMultiplier] = []
    for op in ops:
        branches = {}
        for place, branch in so.branches_of(op).items():
            inner, more = _restored(branch, x, rule)
            multipliers += more
            moment = forward(inner, x, rule)[1].moment
            factor = math.sqrt(x.moment / moment)
            if isinstance(op, so.Residual) and abs(factor - 1.0) > _SAME:
                paths = tuple(layer.name for layer in every_op(branch) if layer.has_weights)
                multipliers.append(BranchMultiplier(op.name, place, paths, factor))
                inner.append(so.Scale(factor))
            branches[place] = tuple(inner)
        if isinstance(op, so.Residual):
            op = replace(op, main=branches["main"], shortcut=branches["shortcut"])
        elif isinstance(op, so.Concat):
            op = replace(op, branches=tuple(branches.values()))
        made.append(op)
        x = forward([op], x, rule)[1]
    return made, multipliers


def _output_moment(module: nn.Module, batch: torch.Tensor) -> float:
    """E[y^2] of the module in training mode; it is left alone."""
    cuda = [batch.device] if batch.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(cuda):
        return float(copy.deepcopy(module).train()(batch.clone()).double().square().mean())
