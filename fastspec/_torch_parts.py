"""From the steps of a module to plain layers and residual blocks, in the order phi(W x + b)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ._torch_graph import Reading, read_steps
from ._torch_network import ModuleLayer, Part
from ._torch_steps import (
    Chain,
    Flatten,
    Nonlinearity,
    Problem,
    Scale,
    Sum,
    Unknown,
    Weights,
)
from .activations import Activation, activation

__all__ = ["Structure", "read_blocks", "read_layers", "read_parts", "read_structure"]


@dataclass(frozen=True)
class Structure:
    """What a module is made of; ``parts`` are empty where there are problems."""

    reading: Reading
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]


@dataclass
class _Draft:
    """A layer while it is being read; no activation yet is None."""

    step: Weights
    flattened: bool
    before: float = 1.0
    inner: float = 1.0
    after: float = 1.0
    activation: Activation | None = None


@dataclass
class _Block:
    """A plain layer (skip 0) or a residual block while it is being read."""

    layers: list[_Draft]
    skip: float = 0.0

    def multiply(self, factor: float) -> None:
        """A constant after the block. After W x + b it is one before the activation to come."""
        self.skip *= factor
        last = self.layers[-1]
        if self.skip == 0.0 and last.activation is None:
            last.inner *= factor
        else:
            last.after *= factor


def read_structure(module: nn.Module) -> Structure:
    """Layers and blocks of a module, with weights still to be measured or set.

    Raises
    ------
    ValueError
        If it is not a torch.nn.Module.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    reading = read_steps(module)
    problems = list(reading.problems)
    blocks = read_blocks(reading.chain, problems)
    if not any(blocks) and not problems:
        problems.append(Problem("", "weights", "there is no Linear or Conv layer"))
    return Structure(reading, read_parts(blocks, problems), tuple(problems), reading.notes)


def read_blocks(chain: Chain, problems: list[Problem],
                branch: str | None = None) -> list[_Block | None]:
    """The blocks of a chain, None for unknown ones; ``branch`` is the path of a residual block
    if the chain is its branch."""
    blocks: list[_Block | None] = []
    before, flattened = 1.0, False
    for step in chain:
        last = blocks[-1] if blocks else None
        if isinstance(step, Flatten):
            flattened = True
        elif isinstance(step, Scale) and last is not None:
            last.multiply(step.factor)
        elif isinstance(step, Scale):
            before *= step.factor
        elif isinstance(step, Weights):
            blocks.append(_Block([_Draft(step, flattened, before=before)]))
            before, flattened = 1.0, False
        elif isinstance(step, Sum):
            blocks.append(_residual(step, problems, nested=branch is not None))
            if blocks[-1] is not None:
                blocks[-1].skip *= before
                blocks[-1].layers[0].before *= before
                blocks[-1].layers[0].flattened |= flattened
            before, flattened = 1.0, False
        elif isinstance(step, Unknown):
            blocks.append(None)
        elif isinstance(step, Nonlinearity) and not (blocks and last is None):
            if not _activate(step, last, problems, branch):
                blocks.append(None)
    return blocks


def _activate(step: Nonlinearity, last: _Block | None, problems: list[Problem],
              branch: str | None) -> bool:
    """Give the last layer its activation, or say why it cannot be that."""
    reason = None
    if last is None and branch is not None:
        reason = ("the branch begins with an activation (pre-activation block); the law has "
                  "phi(W x), the weights first")
    elif last is None:
        reason = "has no weights before it; the law has phi(W x), the weights first"
    elif last.skip:
        reason = ("acts on the sum of skip and branch (ResNet v1); the law has skip x + phi(W x)")
    elif last.layers[0].activation is not None:
        reason = "follows another activation without weights between them"
    else:
        last.layers[0].activation = step.activation
        return True
    problems.append(Problem(step.path, "activation", reason))
    return False


def _residual(step: Sum, problems: list[Problem], nested: bool) -> _Block | None:
    count = len(problems)
    branch = read_blocks(step.branch, problems, step.path)
    known = [block for block in branch if block is not None]
    if nested or any(block.skip for block in known):
        problems.append(Problem(step.path, "residual", "a residual block inside the branch of "
                                "another is not covered"))
    elif not branch:
        problems.append(Problem(step.path, "residual", "the branch has no weights"))
    if len(problems) > count or len(known) < len(branch):
        return None
    return _Block([block.layers[0] for block in known], step.skip)


def read_parts(blocks: list[_Block | None], problems: list[Problem]) -> tuple[Part, ...]:
    """The parts, their widths checked against each other; none if there are problems."""
    if problems:
        return ()
    known = [block for block in blocks if block is not None]
    layers = _widths([layer for block in known for layer in block.layers], problems)
    parts, start = [], 0
    for block in known:
        stop = start + len(block.layers)
        parts.append(Part(tuple(layers[start:stop]), block.skip))
        start = stop
    if not problems:
        _check_residual_widths(parts, problems)
    return () if problems else tuple(parts)


def read_layers(blocks: list[_Block | None]) -> tuple[ModuleLayer, ...]:
    """The known layers, their widths as they are."""
    return tuple(_layer(layer) for block in blocks if block is not None for layer in block.layers)


def _widths(drafts: list[_Draft], problems: list[Problem]) -> list[ModuleLayer]:
    """Layers in units of features, or of channels where no Linear reads all positions."""
    layers: list[ModuleLayer] = []
    for draft in drafts:
        layer = _layer(draft)
        last = layers[-1] if layers else None
        if last is not None and last.outputs != layer.inputs:
            positions, rest = divmod(layer.inputs, last.outputs)
            reads_all = (draft.flattened and not _is_convolution(layer)
                         and all(_is_convolution(other) for other in layers))
            if reads_all and rest == 0:
                layers = [replace(other, inputs=other.inputs * positions,
                                  outputs=other.outputs * positions) for other in layers]
            else:
                problems.append(Problem(layer.path, "width", f"takes {layer.inputs} inputs, but "
                                        f"{last.path!r} before it has {last.outputs} outputs"))
        elif last is not None and _is_convolution(last) != _is_convolution(layer) and not (
                draft.flattened):
            problems.append(Problem(layer.path, "width", f"{layer.kind} on the output of "
                                    f"{last.kind} without Flatten between them"))
        layers.append(layer)
    return layers


def _is_convolution(layer: ModuleLayer) -> bool:
    return layer.kind != "Linear"


def _layer(draft: _Draft) -> ModuleLayer:
    module: Any = draft.step.module
    linear = isinstance(module, nn.Linear)
    shape = module.weight.shape
    return ModuleLayer(
        path=draft.step.path, kind="Linear" if linear else f"Conv{len(shape) - 2}d",
        activation=draft.activation or activation("linear"), inputs=shape[1], outputs=shape[0],
        units=shape[0], fan_in=shape[1:].numel(), before=draft.before, inner=draft.inner,
        after=draft.after)


def _check_residual_widths(parts: list[Part], problems: list[Problem]) -> None:
    """Residual blocks must keep one width, that of the output."""
    output = parts[-1].layers[-1].outputs
    for part in parts:
        widths = [part.layers[0].inputs, *(layer.outputs for layer in part.layers)]
        if not part.skip:
            continue
        if len(set(widths)) > 1:
            problems.append(Problem(part.layers[0].path, "width", "the branch of a residual block "
                                    f"changes its width, {' -> '.join(map(str, widths))}; the law "
                                    "needs one width"))
        elif widths[0] != output:
            problems.append(Problem(part.layers[0].path, "width", "residual blocks of width "
                                    f"{widths[0]}, but the output's is {output}; the law of all "
                                    "needs the output's width; residual_part() is without what "
                                    "comes after them"))
            return
