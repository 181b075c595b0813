"""Scaling calculus for ReLU networks: which layers are badly scaled, and what to multiply by.

A network is a list of operations (`Linear`, `Conv2d`, `ReLU`, `Residual`, ...). `analyze` follows
second moments through it and says how each layer's weights are scaled (Defazio & Bottou 2019);
`precondition` chooses initial variances and fixed multipliers that scale all layers alike.
"""

from __future__ import annotations

from ._scaling_analyze import analyze
from ._scaling_init import (
    SCHEMES,
    ResidualCorrections,
    residual_corrections,
    telescoped_moment,
    weight_variance,
)
from ._scaling_json import model_from_json, ops_from_json, ops_to_json
from ._scaling_ops import (
    Activation,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    LayerNorm,
    LeakyReLU,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Scale,
    Stride,
    Upsample,
)
from ._scaling_precondition import Change, Preconditioned, output_multiplier, precondition
from ._scaling_report import OpScaling, ScalingReport

__all__ = [
    "SCHEMES", "Activation", "AvgPool2d", "BatchNorm", "Change", "Concat", "Conv2d", "Dropout",
    "Flatten", "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d", "OpScaling", "Preconditioned",
    "ReLU", "Residual", "ResidualCorrections", "Scale", "ScalingReport", "Stride", "Upsample",
    "analyze", "model_from_json", "ops_from_json", "ops_to_json", "output_multiplier",
    "precondition", "residual_corrections", "telescoped_moment", "weight_variance",
]
