"""What a module is to fastspec: its structure with the weights that it has at present."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ._torch_network import MixedNetwork, ModuleLayer, Part
from ._torch_parts import read_structure
from ._torch_residual import ResidualPart, entering_moments, input_moments, residual_part
from ._torch_steps import Problem
from .blocks import Layer, Residual
from .networks import FeedForward, ResNet

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["ROUNDING", "Description", "columns", "describe", "describe_part", "network_of",
           "require_covered"]

Network = FeedForward | ResNet | MixedNetwork

# How many standard deviations of their sampling error two variances may be apart and count as
# equal, a mean from 0 and count as 0; and the rounding of weights that were set in single
# precision.
ROUNDING, _SIGMAS = 1e-5, 6.0
# Off-diagonal entries of W W^T of an orthogonal W, at most; those of random rows of n entries are
# of size 1/sqrt(n).
_ORTHOGONAL = 1e-3
_ROWS = 64


@dataclass(frozen=True)
class Description:
    """What `describe` found.

    Attributes
    ----------
    network : FeedForward, ResNet, MixedNetwork or None
        The network, or None if the module is not covered. A `MixedNetwork`, with ``blocks()``,
        ``spectrum()`` and ``effective_cumulant()`` like the others, where layers differ.
    layers : tuple of ModuleLayer
        The weight layers in the order of the signal, with ``path``, ``activation``, ``sigma_w``,
        ``sigma_b``, ``weights``, widths and constants as they were read; empty if not covered.
    problems : tuple of Problem
        What is not covered: path, kind, reason.
    notes : tuple of Problem
        What is assumed.
    part : str
        Which part of the module this is; "" for all of it.
    """

    network: Network | None
    layers: tuple[ModuleLayer, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    part: str = ""
    _residual: Description | None = field(default=None, repr=False)

    @property
    def covered(self) -> bool:
        """Whether there is a network."""
        return self.network is not None

    def blocks(self) -> list[Layer | Residual]:
        """The network's blocks at the variances of the signal, for `fastspec.ChainLaw`.

        Raises
        ------
        ValueError
            If the module is not covered; it lists the problems.
        """
        return list(self._network().blocks())

    def spectrum(self, limit: bool = False) -> SpectralLaw:
        """The law of the squared singular values of the module's Jacobian.

        Raises
        ------
        ValueError
            If the module is not covered; it lists the problems.
        """
        return self._network().spectrum(limit)

    def residual_part(self) -> Description:
        """Of the residual blocks alone, where they are one run between plain layers.

        Its input is what the layers before it make of the module's input. Those layers and the ones
        after it may be of any width, with pooling and strides. A description of residual blocks
        only is its own residual part.

        Raises
        ------
        ValueError
            If there is no such part, or it is not covered (the message lists why).
        """
        if isinstance(self.network, ResNet) or (
                isinstance(self.network, MixedNetwork)
                and all(part.skip for part in self.network.parts)):
            return self
        if self._residual is None:
            raise ValueError("module has no residual part: that is one run of residual blocks with "
                             "plain layers before or after it, none between")
        require_covered(self._residual.problems)
        return self._residual

    def _network(self) -> Network:
        require_covered(self.problems)
        assert self.network is not None, "covered"
        return self.network

    def __str__(self) -> str:
        lines = [f"covered: {_shown(self.network)}" if self.network else "not covered"]
        if self.part:
            lines.insert(0, self.part)
        if self.layers:
            lines += columns(_LAYER_HEAD, [_layer_row(layer) for layer in self.layers])
        for title, remarks in (("problems", self.problems), ("notes", self.notes)):
            if remarks:
                lines += [f"{title}:", *(f"  {remark}" for remark in remarks)]
        if self._residual is not None and self._residual.covered:
            lines.append(f"residual_part() describes {self._residual.part}, by itself")
        return "\n".join(lines)


_LAYER_HEAD = ("path", "module", "activation", "widths", "weights", "sigma_w", "sigma_b",
               "constants")


def _layer_row(layer: ModuleLayer) -> tuple[str, ...]:
    constants = [f"{name} {value:g}" for name in ("before", "inner", "after")
                 if (value := getattr(layer, name)) != 1.0]
    bias = f"{layer.sigma_b:.4g}" + (f", mean {layer.bias_mean:.3g}" if layer.bias_mean else "")
    return (layer.path, layer.kind, layer.activation.name, f"{layer.inputs} -> {layer.outputs}",
            layer.weights, f"{layer.sigma_w:.4g}", bias, ", ".join(constants))


def _shown(network: Network) -> str:
    if not isinstance(network, MixedNetwork):
        return repr(network)
    residual = sum(1 for part in network.parts if part.skip)
    return (f"a chain of {len(network.parts) - residual} plain layers and {residual} residual "
            "blocks that differ")


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, columns two spaces apart."""
    table = [head, *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)
                             ).rstrip() for row in table]


def require_covered(problems: Sequence[Problem]) -> None:
    """ValueError that lists what is not covered."""
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ValueError(f"module is not covered:{listed}")


def describe(module: nn.Module, example: torch.Tensor | None = None) -> Description:
    r"""The network that a module is to fastspec, or what about it is not covered.

    Covered are chains of Linear and Conv layers with activations, in modules nested any way, plain
    or in residual blocks a x + branch(x) with the weights before the activation, constants that
    multiply anywhere, Flatten, Identity and Dropout (in eval mode). Everything else is named.
    Where residual blocks have plain layers around them, as stem and head,
    `Description.residual_part` describes the blocks alone.

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed. Its forward is traced by torch.fx, in eval mode.
    example : Tensor, optional
        An input, or a batch of them, of which the mean and the second moment are taken;
        by default 0 and 1.

    Returns
    -------
    Description

    Raises
    ------
    ValueError
        If ``module`` is no module, or ``example`` has no finite numbers.

    Notes
    -----
    Variances are read off the weights as they are: sigma_w^2 = fan_in mean(W_ij^2), or that of
    W W^T = sigma_w^2 I where W is orthogonal (for convolutions: at one tap, zero at the others),
    and sigma_b^2 the variance of the biases; a mean of the biases beyond sampling error counts as
    such. Where all layers agree within six standard deviations of their sampling error, with one
    activation and no constants, the network is a `FeedForward` or a `ResNet` (with
    ``depth_scaled=False``) with their common sigma_w; otherwise every layer has its own in a
    `MixedNetwork`. The law is that of random weights with these variances: after training it
    describes the module no more.

    For convolutions channels play the part of the width; what is at the borders is left out.

    Examples
    --------
    >>> from torch import nn
    >>> import fastspec.torch as ft
    >>> net = nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.MaxPool1d(2))
    >>> print(ft.describe(net))
    not covered
    problems:
      2: pooling: MaxPool1d mixes positions without random weights
    """
    moments = input_moments(example)
    structure = read_structure(module)
    problems, notes = list(structure.problems), list(structure.notes)
    parts = _measured_parts(structure.parts, module, problems, notes)
    whole = _description(parts, moments, problems, notes)
    part = residual_part(structure)
    if part is None or part.is_all:
        return whole
    return replace(whole, _residual=describe_part(module, part, example))


def describe_part(module: nn.Module, part: ResidualPart,
                  example: torch.Tensor | None) -> Description:
    """The residual part of a module."""
    problems, notes = list(part.problems), list(part.notes)
    blocks = _measured_parts(part.blocks, module, problems, notes)
    if problems:
        return Description(None, (), tuple(problems), tuple(notes))
    stem = _measured_parts(tuple(Part((layer,)) for layer in part.stem), module, problems, [])
    moments = (1.0, 0.0) if problems else entering_moments(
        part, tuple(layer for one in stem for layer in one.layers), example, notes)
    return replace(_description(blocks, moments, problems, notes), part=part.name)


def _description(parts: tuple[Part, ...], moments: tuple[float, float], problems: list[Problem],
                 notes: list[Problem]) -> Description:
    if problems:
        return Description(None, (), tuple(problems), tuple(notes))
    layers = tuple(layer for part in parts for layer in part.layers)
    return Description(network_of(parts, *moments), layers, (), tuple(notes))


def _measured_parts(parts: tuple[Part, ...], module: nn.Module, problems: list[Problem],
                    notes: list[Problem]) -> tuple[Part, ...]:
    return tuple(replace(part, layers=tuple(_measured(layer, module, problems, notes)
                                            for layer in part.layers)) for part in parts)


def _measured(layer: ModuleLayer, module: nn.Module, problems: list[Problem],
              notes: list[Problem]) -> ModuleLayer:
    """A layer with the figures of its weights and biases."""
    source: Any = module.get_submodule(layer.path)
    weight = source.weight.detach().double().cpu().numpy()
    taps = weight.reshape(*weight.shape[:2], -1)
    energy = float(np.sum(taps**2))
    if not 0.0 < energy < math.inf:
        problems.append(Problem(layer.path, "weights", "the weights are all 0" if energy == 0.0
                                else "the weights are not finite"))
        return layer
    if abs(taps.mean()) > _SIGMAS * math.sqrt(energy) / taps.size:
        notes.append(Problem(layer.path, "weights", f"the weights have mean {taps.mean():.3g}, "
                             "which adds an outlier that neither the law nor outliers() has"))
    orthogonal = _is_orthogonal(taps, energy)
    shape = min(taps.shape[:2]) if orthogonal else taps.shape[0]
    bias_mean, bias_variance = _bias(source.bias)
    return replace(layer, weights="orthogonal" if orthogonal else "gaussian",
                   sigma_w=math.sqrt(energy / shape), sigma_b=math.sqrt(bias_variance),
                   bias_mean=bias_mean)


def _is_orthogonal(taps: np.ndarray, energy: float) -> bool:
    """Whether W W^T or W^T W is a multiple of I, for one tap and zeros at the others.

    A few rows against all: rows that are independent of each other are not orthogonal.
    """
    centre = taps[:, :, int(np.argmax(np.sum(taps**2, axis=(0, 1))))]
    if min(centre.shape) < 2 or np.sum(centre**2) < energy * (1.0 - ROUNDING):
        return False
    rows = centre if centre.shape[0] <= centre.shape[1] else centre.T
    few = rows[:_ROWS]
    expected = energy / len(rows) * np.eye(len(few), len(rows))
    return bool(np.abs(few @ rows.T - expected).max() < _ORTHOGONAL * energy / len(rows))


def _bias(bias: Any) -> tuple[float, float]:
    """Mean, if it is beyond sampling error, and variance about it."""
    if bias is None:
        return 0.0, 0.0
    b = bias.detach().double().cpu().numpy()
    mean, second = float(b.mean()), float(np.mean(b**2))
    if abs(mean) <= _SIGMAS * math.sqrt(second / b.size):
        return 0.0, second
    return mean, float(b.var())


def network_of(parts: tuple[Part, ...], second: float, mean: float) -> Network:
    """A FeedForward or a ResNet if all layers agree, else a MixedNetwork."""
    layers = [layer for part in parts for layer in part.layers]
    sigma_w = _common(layers, "sigma_w")
    sigma_b = _common(layers, "sigma_b")
    alike = {(layer.activation, layer.weights, layer.has_constants, layer.bias_mean)
             for layer in layers}
    shapes = {(part.skip, len(part.layers)) for part in parts}
    if sigma_w is None or sigma_b is None or len(alike) > 1 or len(shapes) > 1 or (
            layers[0].has_constants or layers[0].bias_mean):
        if sigma_w is not None and len({layer.weights for layer in layers}) == 1:
            parts = tuple(replace(part, layers=tuple(replace(layer, sigma_w=sigma_w)
                                                     for layer in part.layers)) for part in parts)
        return MixedNetwork(parts, input_second_moment=second, input_mean=mean)
    (skip, branch_layers), first = shapes.pop(), layers[0]
    common: dict[str, Any] = {
        "depth": len(parts), "activation": first.activation, "weights": first.weights,
        "sigma_w": sigma_w, "sigma_b": sigma_b, "input_second_moment": second}
    if skip:
        return ResNet(**common, skip=skip, depth_scaled=False, input_mean=mean,
                      branch_layers=branch_layers)
    widths = [first.inputs, *(layer.outputs for layer in layers)]
    return FeedForward(**common, widths=None if len(set(widths)) == 1 else widths)


def _common(layers: Sequence[ModuleLayer], name: str) -> float | None:
    """The pooled sigma of the layers, or None if one of them is beyond sampling error of it."""
    counts = np.array([layer.units * (layer.fan_in if name == "sigma_w" else 1)
                       for layer in layers], dtype=float)
    variances = np.array([getattr(layer, name) for layer in layers]) ** 2
    pooled = float(np.sum(counts * variances) / np.sum(counts))
    allowed = ROUNDING + np.where([layer.weights == "orthogonal" and name == "sigma_w"
                                    for layer in layers], 0.0, _SIGMAS * np.sqrt(2.0 / counts))
    if np.any(np.abs(variances - pooled) > allowed * pooled):
        return None
    return math.sqrt(pooled)
