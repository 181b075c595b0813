"""Operations of `fastspec.scaling` for PyTorch's modules and functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import _scaling_ops as so

__all__ = ["FUNCTIONS", "MODULES", "Maker", "Place", "Refused", "check_shapes"]


class Refused(Exception):
    """Why something is no operation of the calculus."""


@dataclass(frozen=True)
class Place:
    """A node for its maker: shapes are those of one input; ``option(place, name, default)`` is
    what the module or function was given."""

    name: str
    batch: int
    source: so.Shape
    result: so.Shape
    option: Callable[[int, str, Any], Any]
    module: Any


Maker = Callable[[Place], list[so.Op]]


def check_shapes(ops: Sequence[so.Op], place: Place) -> None:
    shape = place.source
    for op in ops:
        shape = op.output_shape(shape)
    if shape != place.result:
        raise Refused(f"makes {place.result} of {place.source}, but {shape} is what the calculus "
                       "knows (rounding up the number of windows is not covered)")


def _linear(place: Place) -> list[so.Op]:
    module = place.module
    if len(place.source) != 1:
        raise Refused(f"Linear on each position of the shape {place.source} is not covered")
    return [so.Linear(module.in_features, module.out_features, module.bias is not None,
                      name=place.name)]


def _conv(place: Place) -> list[so.Op]:
    module = place.module
    padding = module.padding
    if padding == "valid":
        padding = (0, 0)
    elif padding == "same":
        reach = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if any(r % 2 for r in reach):
            raise Refused("padding='same' pads unequally on both sides")
        padding = (reach[0] // 2, reach[1] // 2)
    return [so.Conv2d(module.in_channels, module.out_channels, module.kernel_size, module.stride,
                      padding, module.dilation, module.groups, module.bias is not None,
                      module.padding_mode, name=place.name)]


def _dropout(place: Place) -> list[so.Op]:
    return [so.Dropout(float(place.option(1, "p", 0.5)), name=place.name)]


def _avg_pool(place: Place) -> list[so.Op]:
    padding = place.option(3, "padding", 0)
    if not place.option(5, "count_include_pad", True) and so.pair("padding", padding, 0) != (0, 0):
        raise Refused("count_include_pad=False is not covered")
    if place.option(6, "divisor_override", None) is not None:
        raise Refused("divisor_override is not covered")
    return [so.AvgPool2d(_two(place.option(1, "kernel_size", None)),
                         _two(place.option(2, "stride", None)), _two(padding), name=place.name)]


def _max_pool(place: Place) -> list[so.Op]:
    if so.pair("dilation", place.option(4, "dilation", 1)) != (1, 1):
        raise Refused("pooling with dilation is not covered")
    return [so.MaxPool2d(_two(place.option(1, "kernel_size", None)),
                         _two(place.option(2, "stride", None)), _two(place.option(3, "padding", 0)),
                         name=place.name)]


def _adaptive(kind: type[so.AvgPool2d] | type[so.MaxPool2d]) -> Maker:
    def make(place: Place) -> list[so.Op]:
        size, windows = place.source[1:], place.result[1:]
        if len(size) != 2 or any(n % w for n, w in zip(size, windows, strict=True)):
            raise Refused(f"pooling from {size} to {windows} has windows of several sizes")
        return [kind((size[0] // windows[0], size[1] // windows[1]), name=place.name)]
    return make


def _mean(place: Place) -> list[so.Op]:
    dims = place.option(1, "dim", ())
    which = {d % (len(place.source) + 1) for d in (dims if isinstance(dims, list | tuple)
                                                    else [dims])}
    if len(place.source) != 3 or which != {2, 3}:
        raise Refused("only the mean over all positions is covered")
    pool = so.AvgPool2d((place.source[1], place.source[2]), name=place.name)
    return [pool] if len(place.result) == 3 else [pool, so.Flatten(name=f"{place.name}.flatten")]


def _upsample(place: Place) -> list[so.Op]:
    mode = place.option(3, "mode", "nearest")
    factors = [divmod(after, before) for before, after in
               zip(place.source[1:], place.result[1:], strict=True)]
    if mode not in ("nearest", "nearest-exact") or any(rest for _, rest in factors):
        raise Refused(f"only nearest-neighbour upsampling by whole factors is covered, got {mode} "
                       f"from {place.source[1:]} to {place.result[1:]}")
    return [so.Upsample((factors[0][0], factors[1][0]), name=place.name)]


def _reshaped(place: Place) -> list[so.Op]:
    if place.result == place.source:
        return []
    if len(place.result) != 1:
        raise Refused(f"a new shape {place.result} of {place.source} is not covered; all in one "
                       "dimension is")
    return [so.Flatten(name=place.name)]


def _sliced(place: Place) -> list[so.Op]:
    index = place.option(1, "index", None)
    index = list(index) if isinstance(index, tuple) else [index]
    if any(not isinstance(one, slice) and one is not Ellipsis for one in index):
        raise Refused("only slices that take every k-th row and column are covered")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index[at:at + 1] = [slice(None)] * (len(place.source) + 2 - len(index))
    index += [slice(None)] * (len(place.source) + 1 - len(index))
    whole = [one.start in (None, 0) and one.stop is None for one in index]
    steps = [one.step or 1 for one in index]
    if len(index) != 4 or not all(whole) or steps[:2] != [1, 1]:
        raise Refused("only slices that take every k-th row and column are covered")
    return [so.Stride((steps[2], steps[3]), name=place.name)]


def _batch_norm(place: Place) -> list[so.Op]:
    _plain_affine(place.module)
    return [so.BatchNorm(place.batch * math.prod(place.source[1:]), name=place.name)]


def _layer_norm(place: Place) -> list[so.Op]:
    module = place.module
    _plain_affine(module)
    if isinstance(module, nn.LayerNorm) and tuple(module.normalized_shape) != place.source:
        raise Refused(f"normalises {tuple(module.normalized_shape)} of the shape {place.source}; "
                       "all of an input is covered")
    if isinstance(module, nn.GroupNorm) and module.num_groups != 1:
        raise Refused("GroupNorm is covered with one group only")
    return [so.LayerNorm(name=place.name)]


def _plain_affine(module: Any) -> None:
    """Normalisation multiplies by 1 and adds 0 at its default start."""
    for name, start in (("weight", 1.0), ("bias", 0.0)):
        value = getattr(module, name)
        if value is not None and not bool((value == start).all()):
            raise Refused(f"the {name} of a normalisation must be {start:g} throughout")


def _two(value: Any) -> Any:
    """None, a number or a pair, where PyTorch may have () or lists."""
    if isinstance(value, list | tuple):
        return (tuple(value) * 2)[:2] if value else None
    return value


MODULES: dict[Any, Maker] = {
    nn.Linear: _linear, nn.Conv2d: _conv, nn.Dropout: _dropout, nn.Dropout1d: _dropout,
    nn.Dropout2d: _dropout, nn.AvgPool2d: _avg_pool, nn.MaxPool2d: _max_pool,
    nn.AdaptiveAvgPool2d: _adaptive(so.AvgPool2d), nn.AdaptiveMaxPool2d: _adaptive(so.MaxPool2d),
    nn.Upsample: _upsample, nn.Flatten: _reshaped, nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm, nn.LayerNorm: _layer_norm, nn.GroupNorm: _layer_norm,
}
FUNCTIONS: dict[str, Maker] = {
    "dropout": _dropout, "dropout2d": _dropout, "avg_pool2d": _avg_pool, "max_pool2d": _max_pool,
    "adaptive_avg_pool2d": _adaptive(so.AvgPool2d), "adaptive_max_pool2d": _adaptive(so.MaxPool2d),
    "mean": _mean, "interpolate": _upsample, "flatten": _reshaped, "view": _reshaped,
    "reshape": _reshaped, "squeeze": _reshaped, "getitem": _sliced,
}
