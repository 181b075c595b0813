"""fastspec for PyTorch modules: describe them, initialise them, measure them (extra ``torch``).

    import fastspec.torch as ft

    ft.init_(model, condition_number=4)     # in place
    print(ft.check(model, x))               # measured beside the law
    print(ft.scaling_report(model, x))      # how its layers are scaled

`describe` reads a module as a fastspec network or names what is not covered; `init_` sets its
weights to a target; `jacobian_singular_values` measures any module; `check` holds the measured
values against the law. Where residual blocks stand between a stem and a head, target and law are
those of the blocks. `scaling_report`, `geometric_init_` and `ops_of` are the scaling calculus
(`fastspec.scaling`) on modules. fastspec itself never imports PyTorch.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 - the real one: imports are absolute
except ImportError as error:
    raise ImportError("fastspec.torch needs PyTorch: pip install 'fastspec[torch]'") from error

from ._torch_describe import Description, describe
from ._torch_geometric import (
    BranchMultiplier,
    GeometricInitialisation,
    GeometricLayer,
    geometric_init_,
)
from ._torch_init import Initialisation, LayerInitialisation, init_
from ._torch_jacobian import Check, check, jacobian_singular_values
from ._torch_network import MixedNetwork, ModuleLayer, Part
from ._torch_ops import Operations, ops_of
from ._torch_scaling import MeasuredOp, MeasuredScaling, scaling_report
from ._torch_steps import Problem

__all__ = [
    "BranchMultiplier",
    "Check",
    "Description",
    "GeometricInitialisation",
    "GeometricLayer",
    "Initialisation",
    "LayerInitialisation",
    "MeasuredOp",
    "MeasuredScaling",
    "MixedNetwork",
    "ModuleLayer",
    "Operations",
    "Part",
    "Problem",
    "check",
    "describe",
    "geometric_init_",
    "init_",
    "jacobian_singular_values",
    "ops_of",
    "scaling_report",
]
