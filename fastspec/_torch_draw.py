"""Random weights and biases of the layers of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ._torch_network import ModuleLayer

__all__ = ["draw", "set_"]


def set_(module: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into parameters of a module."""
    with torch.no_grad():
        for name, value in values.items():
            module.get_parameter(name).copy_(value)


def draw(module: nn.Module, layers: Sequence[ModuleLayer],
         generator: torch.Generator | None) -> dict[str, torch.Tensor]:
    """New weights and biases of layers, by their names in ``module``."""
    values = {}
    for layer in layers:
        owner: Any = module.get_submodule(layer.path)
        prefix = f"{layer.path}." if layer.path else ""
        values[prefix + "weight"] = _weight(owner.weight, layer, generator)
        if owner.bias is not None:
            values[prefix + "bias"] = (
                layer.sigma_b * _normal(owner.bias.shape, owner.bias, generator) if layer.sigma_b
                else torch.zeros_like(owner.bias))
    return values


def _weight(old: torch.Tensor, layer: ModuleLayer,
            generator: torch.Generator | None) -> torch.Tensor:
    if layer.weights == "gaussian":
        return layer.sigma_w * layer.fan_in**-0.5 * _normal(old.shape, old, generator)
    matrix = layer.sigma_w * _haar(_normal(old.shape[:2], old, generator))
    weight = torch.zeros(old.shape, dtype=matrix.dtype, device=matrix.device)
    middle: Any = (slice(None), slice(None), *((size - 1) // 2 for size in old.shape[2:]))
    weight[middle] = matrix
    return weight


def _normal(shape: Any, like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Normal numbers, in single precision at least: half is too coarse for the QR to come."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    device = like.device if generator is None else generator.device
    return torch.randn(shape, generator=generator, dtype=dtype, device=device)


def _haar(gaussian: torch.Tensor) -> torch.Tensor:
    """Orthonormal rows, or columns if there are more rows (Mezzadri 2007: signs of diag R)."""
    tall = gaussian.shape[0] >= gaussian.shape[1]
    q, r = torch.linalg.qr(gaussian if tall else gaussian.T)
    q = q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0).to(q)
    return q if tall else q.T
