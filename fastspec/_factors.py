"""The distinct factors of a chain of blocks: what its law depends on, in the kernel's terms.

The law of a product of free blocks does not depend on their order; only the widths do. Once every
layer knows its own, blocks with the same law are one factor that occurs several times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _checks
from .activations import Activation, activation
from .blocks import Layer, Residual

__all__ = ["Factor", "FactorLayer", "arranged", "factors", "kernel_blocks",
           "with_constant_slopes"]

_CONSTANT = 1e-15           # spread of d = phi'^2 that no double lambda resolves
_PLAIN = 1e-6               # relative difference of slopes that is no rounding


class FactorLayer(NamedTuple):
    """A layer D W that knows its number of inputs."""

    activation: Activation
    q: float
    mean: float
    weight_variance: float
    weights: str
    width_out: float
    width_in: float


class Factor(NamedTuple):
    """A plain layer (skip 0) or a residual block, and how often it occurs.

    The weight is not whole where the factor stands for several similar ones.
    """

    layers: tuple[FactorLayer, ...]
    skip: float
    weight: float


def factors(blocks: Sequence[Layer | Residual], input_width: float = 1.0) -> list[Factor]:
    """The distinct factors of the product of the blocks, ``blocks[0]`` next to the input.

    They are in the order of their last occurrence, so that the last one has the output's width.

    Raises
    ------
    ValueError
        If there is no block, one is neither a Layer nor a Residual, or a residual block has
        another width than its input.
    """
    weights: dict[tuple[tuple[FactorLayer, ...], float], float] = {}
    for layers, skip, weight in _walk(_checked(blocks), input_width):
        weights[layers, skip] = weights.pop((layers, skip), 0.0) + weight
    return [Factor(*key, weight) for key, weight in weights.items()]


def kernel_blocks(
    chain: Sequence[Factor], known: dict[tuple[Activation, float, float], Any] | None = None
) -> list[tuple[list[tuple[Any, float, bool, float, float]], float, float]]:
    """(layers, skip, repeat) of each factor as the compiled chain takes them.

    A layer is (slope law, weight_variance, orthogonal, width_out, width_in). Equal slope laws are
    one object; ``known`` keeps them, by (activation, q, mean), for further calls.
    """
    known = {} if known is None else known

    def described(layer: FactorLayer) -> tuple[Any, float, bool, float, float]:
        return (_slopes(layer, known), layer.weight_variance, layer.weights == "orthogonal",
                layer.width_out, layer.width_in)

    return [([described(layer) for layer in layers], skip, weight)
            for layers, skip, weight in chain]


def _slopes(layer: FactorLayer, known: dict[tuple[Activation, float, float], Any]) -> Any:
    from ._slope_rules import kernel_slopes

    key = layer[:3]
    if key not in known:
        known[key] = kernel_slopes(*key)
    return known[key]


def with_constant_slopes(
    chain: Sequence[Factor], known: dict[tuple[Activation, float, float], Any]
) -> list[Factor]:
    """The chain with slopes that vary by less than a rounding taken for their mean."""
    weights: dict[tuple[tuple[FactorLayer, ...], float], float] = {}
    scales = []
    for factor, (layers, skip, weight) in zip(chain, _with_means(chain, known), strict=True):
        if layers != factor.layers and _only_scales(factor):
            scales.append(Factor(layers, skip, weight))
        else:
            weights[layers, skip] = weights.pop((layers, skip), 0.0) + weight
    return _scaled([Factor(*key, weight) for key, weight in weights.items()], scales)


def arranged(
    blocks: Sequence[Layer | Residual], input_width: float,
    known: dict[tuple[Activation, float, float], Any],
) -> tuple[list[Factor], list[list[int]]]:
    """The distinct factors, and the stretches of them whose slopes share their coordinates.

    A stretch lists positions among the factors, from the input: residual blocks that follow each
    other, after the plain layer below them if there is one. Constant slopes are a number, which
    leaves only the layer's rotation.
    """
    weights: dict[tuple[tuple[FactorLayer, ...], float], float] = {}
    scales: list[Factor] = []
    stretches: list[list[Any]] = [[]]
    steps = list(_walk(_checked(blocks), input_width))
    for step, (layers, skip, weight) in zip(steps, _with_means(steps, known), strict=True):
        if layers != step.layers and _only_scales(step):
            scales.append(Factor(layers, skip, weight))
            stretches.append([])
            continue
        key = layers, skip
        weights[key] = weights.pop(key, 0.0) + weight
        if skip == 0.0:
            stretches.append([key])
        else:
            stretches[-1] += [key] * int(weight)
    chain = [Factor(*key, weight) for key, weight in weights.items()]
    place = {key: i for i, key in enumerate(weights)}
    return _scaled(chain, scales), [[place[key] for key in stretch] for stretch in stretches
                                    if len(stretch) > 1]


def _with_means(
    chain: Sequence[Factor], known: dict[tuple[Activation, float, float], Any]
) -> list[Factor]:
    varying = _varying([layer for factor in chain for layer in factor.layers])
    return [factor._replace(layers=tuple(
        layer if layer in varying else _constant_or_same(layer, known) for layer in factor.layers))
        for factor in chain]


def _varying(layers: Sequence[FactorLayer]) -> set[FactorLayer]:
    """Layers whose slopes differ plainly within one standard deviation of the mean: seen from three
    values each, where their law takes a millisecond."""
    found: set[FactorLayer] = set()
    smooth = [layer for layer in layers if layer.activation.slopes is None]
    for phi in {layer.activation for layer in smooth}:
        alike = [layer for layer in smooth if layer.activation == phi]
        mean, scale = (np.array(column) for column in (
            [layer.mean for layer in alike], [math.sqrt(layer.q) for layer in alike]))
        d = np.square(phi.derivative(mean + scale * np.array([[-1.0], [0.0], [1.0]])))
        plain = np.ptp(d, axis=0) > _PLAIN * np.max(d, axis=0)
        found.update(layer for layer, varies in zip(alike, plain, strict=True) if varies)
    return found


def _constant_or_same(
    layer: FactorLayer, known: dict[tuple[Activation, float, float], Any]
) -> FactorLayer:
    if layer.activation.slopes is not None or _slopes(layer, known).spread > _CONSTANT:
        return layer
    return layer._replace(activation=activation("linear"), q=1.0, mean=0.0,
                          weight_variance=layer.weight_variance * _slopes(layer, known).mean)


def _only_scales(factor: Factor) -> bool:
    """Whether a factor of constant slopes is a number times a rotation."""
    layer = factor.layers[0]
    return (factor.skip == 0.0 and layer.weights == "orthogonal"
            and layer.width_in == layer.width_out)


def _scaled(chain: list[Factor], scales: list[Factor]) -> list[Factor]:
    """The chain times numbers: they join a plain layer's variance (a factor of their own would
    add unknowns, and rounding), or are one factor if there is none."""
    if not scales:
        return chain
    log_scale = math.fsum(factor.weight * math.log(factor.layers[0].weight_variance)
                          for factor in scales)
    for i, (layers, skip, weight) in enumerate(chain):
        if skip == 0.0:
            variance = layers[0].weight_variance * math.exp(log_scale / weight)
            chain[i] = Factor((layers[0]._replace(weight_variance=variance),), skip, weight)
            return chain
    number = math.fsum(factor.weight for factor in scales)
    layer = scales[-1].layers[0]._replace(weight_variance=math.exp(log_scale / number))
    return [*chain, Factor((layer,), 0.0, number)]


def _checked(blocks: Any) -> list[Layer | Residual]:
    if not isinstance(blocks, Sequence) or isinstance(blocks, str) or not blocks:
        raise ValueError("blocks must be a non-empty sequence of Layer and Residual, "
                         f"got {blocks!r}")
    for block in blocks:
        if not isinstance(block, Layer | Residual):
            raise ValueError(f"blocks must be Layer or Residual objects, got {block!r}")
    return list(blocks)


def _walk(blocks: list[Layer | Residual], input_width: float) -> Iterator[Factor]:
    width = _checks.real("input_width", input_width, low=0.0, strict=True)
    for number, block in enumerate(blocks, start=1):
        if isinstance(block, Residual):
            if block.width != width:
                raise ValueError(f"block {number} is residual and must have the width of its "
                                 f"input, {width:g}; its layers have width {block.width:g}")
            yield Factor(_branch(block), abs(block.skip), block.repeat)
            continue
        yield Factor((_factor_layer(block, width),), 0.0, 1)
        if block.repeat > 1:
            yield Factor((_factor_layer(block, block.width),), 0.0, block.repeat - 1)
        width = block.width


def _factor_layer(layer: Layer, width_in: float) -> FactorLayer:
    """With q = 1 and mean 0 where the slope law does not depend on them."""
    q, mean = layer.q, layer.mean
    if layer.activation.slopes is not None and not layer.activation.kinks:
        q, mean = 1.0, 0.0
    elif layer.activation.slopes is not None and mean == 0.0 and not any(layer.activation.kinks):
        q = 1.0
    return FactorLayer(layer.activation, q, mean, layer.weight_variance, layer.weights,
                       layer.width, width_in)


def _branch(block: Residual) -> tuple[FactorLayer, ...]:
    """Only the product of the weight variances matters: the first layer carries it."""
    layers = [_factor_layer(layer, block.width)
              for layer in block.layers for _ in range(layer.repeat)]
    product = math.prod(layer.weight_variance for layer in layers)
    return (layers[0]._replace(weight_variance=product),
            *(layer._replace(weight_variance=1.0) for layer in layers[1:]))
