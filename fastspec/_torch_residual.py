"""The one run of residual blocks of a module, between the plain layers that surround it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from ._torch_graph import Reading
from ._torch_network import MixedNetwork, ModuleLayer, Part
from ._torch_parts import Structure, read_blocks, read_layers, read_parts
from ._torch_steps import Chain, Flatten, Problem, Scale, Sum, Unknown, Weights
from ._torch_trace import ROOT, double_precision, evaluating

__all__ = ["ResidualPart", "entering_moments", "has_blocks", "input_moments", "residual_part"]

# What may be outside the residual part: it has no weights, or they are set like others.
_OUTSIDE = ("activation", "operation", "padding", "pooling", "stride")


@dataclass(frozen=True)
class ResidualPart:
    """A run of residual blocks, and the plain layers before and after it.

    Attributes
    ----------
    stem, head : tuple of ModuleLayer
    blocks : tuple of Part
        Empty where there are problems.
    problems, notes : tuple of Problem
    start, stop : int
        The steps of the module that are the run.
    followed : bool
        Whether moments of the signal can be followed through the stem.
    reading : Reading
    """

    stem: tuple[ModuleLayer, ...]
    blocks: tuple[Part, ...]
    head: tuple[ModuleLayer, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    start: int
    stop: int
    followed: bool
    reading: Reading

    @property
    def is_all(self) -> bool:
        """Whether the module is nothing else."""
        return self.stop - self.start == len(self.reading.chain)

    @property
    def name(self) -> str:
        """For people."""
        first, last = self.blocks[0].layers[0].path, self.blocks[-1].layers[-1].path
        return f"the residual part, {first} to {last}"

    def module(self) -> nn.Module:
        """The run as a module of its own, with the same parameters."""
        return self.reading.segment(self.start, self.stop)

    def input(self, x: torch.Tensor,
              changed: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
        """What the stem makes of ``x``, in double precision, with some parameters changed."""
        stem = self.reading.segment(0, self.start)
        named = {ROOT + name: value for name, value in (changed or {}).items()}
        with evaluating(stem), torch.no_grad():
            try:
                value: torch.Tensor = double_precision(stem, named)(x.double())
            except RuntimeError as error:
                raise ValueError("the input does not go through the layers before the residual "
                                 f"blocks: {error}") from error
        return value


def has_blocks(structure: Structure) -> bool:
    """Whether there are residual blocks."""
    return any(isinstance(step, Sum) for step in structure.reading.chain)


def residual_part(structure: Structure) -> ResidualPart | None:
    """The run of residual blocks; None if there are none, or plain layers between them."""
    chain = structure.reading.chain
    start, stop = _span(chain)
    if start == stop or any(isinstance(step, Weights) for step in chain[start:stop]):
        return None
    inside = chain[start:stop]
    outside = [step for step in chain if step not in inside]
    outer = [problem for step in outside for problem in step.problems]
    problems = _without(structure.reading.problems, outer)
    blocks = read_parts(read_blocks(inside, problems), problems)
    stem, followed = _plain_layers(chain[:start], outer)
    head, _ = _plain_layers(chain[stop:], outer)
    refused = [problem for problem in outer if problem.kind not in _OUTSIDE]
    refused += [problem for step in outside if isinstance(step, Unknown) and step.has_parameters
                for problem in step.problems if problem.kind in _OUTSIDE]
    problems += refused
    notes = [replace(problem, reason=f"outside the residual part: {problem.reason}")
             for problem in _without(outer, refused)]
    return ResidualPart(stem, blocks, head, tuple(problems), (*structure.notes, *notes),
                        start, stop, followed, structure.reading)


def _without(problems: Iterable[Problem], others: Iterable[Problem]) -> list[Problem]:
    """By identity: what is equal may be at different places."""
    known = {id(problem) for problem in others}
    return [problem for problem in problems if id(problem) not in known]


def _span(chain: Chain) -> tuple[int, int]:
    """From the first sum to the last and the constants after it; constants before the first
    count if there is nothing else before it."""
    sums = [place for place, step in enumerate(chain) if isinstance(step, Sum)]
    if not sums:
        return 0, 0
    start, stop = sums[0], sums[-1] + 1
    if all(isinstance(step, Scale | Flatten) for step in chain[:start]):
        start = 0
    while stop < len(chain) and isinstance(chain[stop], Scale):
        stop += 1
    return start, stop


def _plain_layers(chain: Chain, problems: list[Problem]) -> tuple[tuple[ModuleLayer, ...], bool]:
    """The layers of a chain without sums, and whether there is nothing else that counts."""
    count = len(problems)
    blocks = read_blocks(chain, problems)
    return read_layers(blocks), None not in blocks and len(problems) == count


def input_moments(example: torch.Tensor | None) -> tuple[float, float]:
    """E x^2 and E x of an example; 1 and 0 without one."""
    if example is None:
        return 1.0, 0.0
    if not isinstance(example, torch.Tensor) or not example.numel():
        raise ValueError("example must be a tensor with at least one number, "
                         f"got {type(example).__name__}")
    x = example.detach().double().cpu()
    if not bool(torch.isfinite(x).all()):
        raise ValueError("example must be finite")
    return float(x.square().mean()), float(x.mean())


def entering_moments(part: ResidualPart, stem: tuple[ModuleLayer, ...],
                     example: torch.Tensor | None, notes: list[Problem],
                     changed: Mapping[str, torch.Tensor] | None = None) -> tuple[float, float]:
    """E x^2 and E x of what enters the residual blocks, ``stem`` being the layers before them.

    Measured where there is an example, else followed through the stem, else 1 and 0 with a note.
    """
    moments = input_moments(example)
    if part.start == 0:
        return moments
    if example is not None:
        x = example.unsqueeze(0) if example.dim() == 1 else example
        return input_moments(part.input(x, changed))
    if part.followed:
        return MixedNetwork(tuple(Part((layer,)) for layer in stem)).output_moments()
    notes.append(Problem(part.blocks[0].layers[0].path, "input", "what enters the residual part is "
                         "taken to have mean 0 and second moment 1: give an example to measure it"))
    return moments
