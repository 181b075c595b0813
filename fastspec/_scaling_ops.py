"""Operations of a network as the scaling calculus sees them, and the shapes they make.

A network is a sequence of operations on tensors of shape (channels, height, width) or (n,).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from . import _checks
from .activations import Activation as _Activation
from .activations import activation as _activation

Shape = tuple[int, ...]
Pair = tuple[int, int]

PADDING_MODES = ("zeros", "circular", "reflect", "replicate")


@dataclass(frozen=True)
class Op:
    """What all operations have: a name, by default their place and class (``"0.Conv2d"``)."""

    name: str = field(default="", kw_only=True)
    has_weights: ClassVar[bool] = False

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the output, or ValueError if the operation does not take ``shape``."""
        return shape

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name must be a string, got {self.name!r}")


@dataclass(frozen=True)
class Linear(Op):
    """y = W x + b, W of shape (n_out, n_in)."""

    n_in: int
    n_out: int
    bias: bool = True
    has_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("n_in", "n_out"):
            _checks.positive_integer(key, getattr(self, key))
        _boolean("bias", self.bias)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) == 3:
            raise ValueError(f"takes a flat input of n_in = {self.n_in}, got the shape {shape}: "
                             "put Flatten() before it")
        if shape != (self.n_in,):
            raise ValueError(f"takes n_in = {self.n_in} entries, got the shape {shape}")
        return (self.n_out,)


@dataclass(frozen=True)
class Conv2d(Op):
    """Convolution with weights of shape (n_out, n_in / groups, kernel height, kernel width).

    ``kernel``, ``stride``, ``padding`` and ``dilation`` are numbers or pairs (height, width).
    """

    n_in: int
    n_out: int
    kernel: int | Pair
    stride: int | Pair = 1
    padding: int | Pair = 0
    dilation: int | Pair = 1
    groups: int = 1
    bias: bool = True
    padding_mode: str = "zeros"
    has_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("n_in", "n_out", "groups"):
            _checks.positive_integer(key, getattr(self, key))
        for key in ("n_in", "n_out"):
            if getattr(self, key) % self.groups:
                raise ValueError(f"groups must divide {key} = {getattr(self, key)}, "
                                 f"got {self.groups}")
        for key in ("kernel", "stride", "dilation"):
            _checks.store(self, **{key: pair(key, getattr(self, key))})
        _checks.store(self, padding=pair("padding", self.padding, low=0))
        _boolean("bias", self.bias)
        _checks.choice("padding_mode", self.padding_mode, PADDING_MODES)

    def output_shape(self, shape: Shape) -> Shape:
        channels, *size = image(shape)
        if channels != self.n_in:
            raise ValueError(f"takes n_in = {self.n_in} channels, got the shape {shape}")
        if self.padding_mode in ("reflect", "circular"):
            most = [n - (self.padding_mode == "reflect") for n in size]
            if any(p > m for p, m in zip(pair("padding", self.padding, 0), most, strict=True)):
                raise ValueError(f"padding {self.padding} of padding_mode {self.padding_mode!r} "
                                 f"must be at most {tuple(most)} for the shape {shape}")
        return (self.n_out, *window_counts(size, self.kernel, self.stride, self.padding,
                                           self.dilation))


@dataclass(frozen=True)
class ReLU(Op):
    """max(x, 0)."""


@dataclass(frozen=True)
class LeakyReLU(Op):
    """x for x > 0, slope x for x < 0."""

    slope: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.store(self, slope=_checks.real("slope", self.slope))


@dataclass(frozen=True)
class Activation(Op):
    """Any activation of `fastspec.activation`, by name or as the object it makes."""

    activation: str | _Activation

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.store(self, activation=_activation(self.activation))


@dataclass(frozen=True)
class Dropout(Op):
    """Entries set to 0 with probability p, the others divided by 1 - p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        p = _checks.real("p", self.p, low=0.0)
        if p >= 1.0:
            raise ValueError(f"p must be >= 0 and < 1, got {self.p!r}")
        _checks.store(self, p=p)


@dataclass(frozen=True)
class Scale(Op):
    """factor * x, a fixed multiplier other than 0."""

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        factor = _checks.real("factor", self.factor)
        if factor == 0.0:
            raise ValueError("factor must not be 0: nothing would pass it")
        _checks.store(self, factor=factor)


@dataclass(frozen=True)
class _Pool(Op):
    kernel: int | Pair
    stride: int | Pair | None = None
    padding: int | Pair = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        kernel = pair("kernel", self.kernel)
        stride = kernel if self.stride is None else pair("stride", self.stride)
        padding = pair("padding", self.padding, low=0)
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            raise ValueError(f"padding must be at most half the kernel {kernel}, "
                             f"got {self.padding!r}")
        _checks.store(self, kernel=kernel, stride=stride, padding=padding)

    def output_shape(self, shape: Shape) -> Shape:
        channels, *size = image(shape)
        return (channels, *window_counts(size, self.kernel, self.stride, self.padding, 1))


@dataclass(frozen=True)
class AvgPool2d(_Pool):
    """Mean of each window; the padding counts as zeros. ``stride`` is the kernel by default."""


@dataclass(frozen=True)
class MaxPool2d(_Pool):
    """Largest entry of each window; the padding never wins. ``stride`` is the kernel by default."""


@dataclass(frozen=True)
class Stride(Op):
    """Every stride-th row and column, from the first on."""

    stride: int | Pair

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.store(self, stride=pair("stride", self.stride))

    def output_shape(self, shape: Shape) -> Shape:
        channels, *size = image(shape)
        return (channels, *window_counts(size, 1, self.stride, 0, 1))


@dataclass(frozen=True)
class Upsample(Op):
    """Every entry repeated factor times in each direction (nearest neighbour)."""

    factor: int | Pair

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.store(self, factor=pair("factor", self.factor))

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = image(shape)
        vertical, horizontal = pair("factor", self.factor)
        return (channels, height * vertical, width * horizontal)


@dataclass(frozen=True)
class Flatten(Op):
    """(channels, height, width) to (channels * height * width,)."""

    def output_shape(self, shape: Shape) -> Shape:
        size = 1
        for n in shape:
            size *= n
        return (size,)


@dataclass(frozen=True)
class BatchNorm(Op):
    """(x - mean) / sqrt(variance) of each channel over a minibatch.

    ``batch`` is the number of values of a channel in the minibatch, inputs times positions, >= 4;
    None stands for many.
    """

    batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch is not None and _checks.positive_integer("batch", self.batch) < 4:
            raise ValueError(f"batch must be >= 4, or None for many, got {self.batch!r}: of fewer "
                             "values the inverse variance has no mean")


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance) over all entries of one input."""


@dataclass(frozen=True)
class Concat(Op):
    """Outputs of several branches put beside each other along the channels.

    ``branches`` are sequences of operations; an empty one passes its input on.
    """

    branches: Sequence[Sequence[Op]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.branches, str) or not isinstance(self.branches, Sequence):
            raise ValueError("branches must be a sequence of sequences of operations, "
                             f"got {self.branches!r}")
        branches = tuple(checked_ops(f"branches[{i}]", branch)
                         for i, branch in enumerate(self.branches))
        if len(branches) < 2:
            raise ValueError(f"branches must be two or more, got {len(branches)}")
        _checks.store(self, branches=branches)


@dataclass(frozen=True)
class Residual(Op):
    """y = alpha * shortcut(x) + beta * main(x); an empty ``shortcut`` is x itself."""

    main: Sequence[Op]
    shortcut: Sequence[Op] = ()
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("main", "shortcut"):
            _checks.store(self, **{key: checked_ops(key, getattr(self, key))})
        for key in ("alpha", "beta"):
            _checks.store(self, **{key: _checks.real(key, getattr(self, key))})
        if self.alpha == self.beta == 0.0:
            raise ValueError("alpha and beta must not both be 0")


def checked_ops(what: str, ops: Any) -> tuple[Op, ...]:
    """``ops`` as a tuple of operations, or ValueError naming ``what`` and the entry."""
    if isinstance(ops, str) or not isinstance(ops, Sequence):
        raise ValueError(f"{what} must be a sequence of operations, got {ops!r}")
    for index, op in enumerate(ops):
        if type(op) not in OPS.values():
            raise ValueError(f"{what}[{index}] must be an operation of fastspec.scaling, "
                             f"got {op!r}")
    return tuple(ops)


def branches_of(op: Op) -> dict[str, Sequence[Op]]:
    """The sequences of operations inside ``op`` by the name of their place."""
    if isinstance(op, Residual):
        return {"main": op.main, "shortcut": op.shortcut}
    if isinstance(op, Concat):
        return {f"branch{i}": branch for i, branch in enumerate(op.branches)}
    return {}


def with_names(ops: Sequence[Op], prefix: str = "") -> Iterator[tuple[str, Op]]:
    """Each operation of one sequence with its name: its own, or prefix, index and class."""
    for index, op in enumerate(ops):
        yield op.name or f"{prefix}{index}.{type(op).__name__}", op


def inner_prefix(op: Op, index: int, prefix: str, place: str) -> str:
    """What the default names of the operations in a branch of ``op`` begin with."""
    return f"{op.name or f'{prefix}{index}'}.{place}."


def pair(name: str, value: Any, low: int = 1) -> Pair:
    """A whole number >= low or a pair of them, as a pair (height, width)."""
    values = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(values) != 2 or not all(_whole(v, low) for v in values):
        raise ValueError(f"{name} must be a whole number >= {low} or a pair of them, "
                         f"got {value!r}")
    return int(values[0]), int(values[1])


def image(shape: Shape) -> Shape:
    """``shape`` if it is (channels, height, width)."""
    if len(shape) != 3:
        raise ValueError(f"takes a shape (channels, height, width), got the shape {shape}")
    return shape


def window_counts(size: Sequence[int], kernel: Any, stride: Any, padding: Any,
                  dilation: Any) -> Pair:
    """How many windows fit along the height and the width."""
    counts = []
    options = [pair("kernel", kernel), pair("stride", stride), pair("padding", padding, 0),
               pair("dilation", dilation)]
    for n, k, s, p, d in zip(size, *options, strict=True):
        reach = d * (k - 1) + 1
        if reach > n + 2 * p:
            raise ValueError(f"kernel {pair('kernel', kernel)} reaches over {reach} entries, more "
                             f"than the {n + 2 * p} of the padded input of size {tuple(size)}")
        counts.append((n + 2 * p - reach) // s + 1)
    return counts[0], counts[1]


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def _boolean(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


OPS: dict[str, type[Op]] = {
    kind.__name__: kind for kind in (
        Linear, Conv2d, ReLU, LeakyReLU, Activation, Dropout, Scale, AvgPool2d, MaxPool2d, Stride,
        Upsample, Flatten, BatchNorm, LayerNorm, Concat, Residual)}
