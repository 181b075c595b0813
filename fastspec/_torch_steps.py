"""What happens to the signal on its way through a module, in steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .activations import Activation

__all__ = ["Chain", "Flatten", "Nonlinearity", "Problem", "Scale", "Step", "Sum", "Unknown",
           "Weights"]


@dataclass(frozen=True)
class Problem:
    """Something in a module that the law does not cover, or a remark.

    Attributes
    ----------
    path : str
        Name of the submodule as ``module.get_submodule`` takes it; "" is the module itself.
    kind : str
        What it is: "normalisation", "pooling", "attention", ...
    reason : str
        Why it is not covered, or what is assumed about it.
    """

    path: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or '(the module itself)'}: {self.kind}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Step:
    """Something that happens to the signal, and what the law does not cover about it.

    Steps are compared by identity.
    """

    problems: tuple[Problem, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class Weights(Step):
    """A Linear or Conv module."""

    path: str
    module: Any


@dataclass(frozen=True, eq=False)
class Nonlinearity(Step):
    """An activation."""

    path: str
    activation: Activation


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """Multiplication by a constant."""

    factor: float


@dataclass(frozen=True, eq=False)
class Flatten(Step):
    """All dimensions but the first become one."""


@dataclass(frozen=True, eq=False)
class Sum(Step):
    """skip x + branch(x)."""

    path: str
    skip: float
    branch: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Unknown(Step):
    """Something that is nothing of the above, and whether it has parameters."""

    has_parameters: bool = False


Chain = tuple[Step, ...]
