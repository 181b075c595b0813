"""What each operation of the scaling calculus does to second moments, forward and backward.

Entries of one channel at two different positions, or of two different inputs, have E[x x'] = r m,
m = E[x^2]: random weights keep r, and a ReLU takes it from 0 to 1/pi, then on towards 1. It is what
pooling, batch normalisation and the gradients of shared weights depend on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ._scaling_elementwise import Selected, Slopes, Source, pooled, through
from ._scaling_maps import map_sums, shared_maxima, tap_sums, windows
from ._scaling_ops import (
    Activation,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dropout,
    Flatten,
    LayerNorm,
    LeakyReLU,
    Linear,
    MaxPool2d,
    Op,
    ReLU,
    Scale,
    Shape,
    Stride,
    Upsample,
    pair,
)
from .activations import Activation as _Phi
from .activations import activation


@dataclass(frozen=True)
class Signal:
    """Activations of one tensor.

    ``source`` is the activation and the Gaussian it was applied to, where that is known.
    """

    shape: Shape
    moment: float
    mean: float
    correlation: float
    source: Source | None = None

    @property
    def channels(self) -> int:
        return self.shape[0]

    @property
    def positions(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def as_gaussian(self) -> tuple[float, float, float]:
        """Variance, mean and (Pearson) correlation of a Gaussian with these moments.

        Averages over zero-padded borders can fall short of the mean's share by a trifle: then the
        correlation is 0.
        """
        variance = self.moment - self.mean**2
        if variance <= 0.0:
            return 0.0, self.mean, 1.0
        shared = (self.correlation * self.moment - self.mean**2) / variance
        return variance, self.mean, min(max(shared, 0.0), 1.0)

    def origin(self) -> Source:
        """``source``; a Gaussian with the moments of the signal where none is known."""
        return self.source or Source(activation("linear"), *self.as_gaussian())


class Gradient(NamedTuple):
    """Back-propagated gradient of one tensor: second moment and correlation between positions.

    ``slopes`` are those that max-pooling has selected, for the activation before it.
    """

    moment: float
    correlation: float
    slopes: Slopes | None = None


class Rule(NamedTuple):
    """``forward(op, x, variance)`` and ``backward(op, x, y, gradient, variance)``."""

    forward: Callable[..., Signal]
    backward: Callable[..., Gradient]


def kernel_size(op: Op) -> int:
    """Places of the kernel, k^2; 1 for a linear layer."""
    return math.prod(pair("kernel", op.kernel)) if isinstance(op, Conv2d) else 1


def groups(op: Op) -> int:
    return op.groups if isinstance(op, Conv2d) else 1


def weight_gradient(op: Op, x: Signal, gradient: Gradient) -> float:
    """E[DW^2] of one weight, the sum over positions p, p' of E[Dy Dy'] E[x x'].

    With uncorrelated positions on either side it is r2^2 E[x^2] E[Dy^2].
    """
    if not isinstance(op, Conv2d):
        return gradient.moment * x.moment
    pairs = tap_sums(op, x.shape[1:]).weight_gradient(x.correlation, gradient.correlation)
    return gradient.moment * x.moment * pairs


# --- linear operations ----------------------------------------------------------------------------

def _linear_forward(op: Linear, x: Signal, variance: float) -> Signal:
    return Signal((op.n_out,), op.n_in * variance * x.moment, 0.0, x.correlation)


def _linear_backward(
    op: Linear, x: Signal, y: Signal, gradient: Gradient, variance: float
) -> Gradient:
    return Gradient(op.n_out * variance * gradient.moment, 0.0)


def _conv_forward(op: Conv2d, x: Signal, variance: float) -> Signal:
    moment, correlation = tap_sums(op, x.shape[1:]).forward(x.moment, x.correlation)
    gain = op.n_in / op.groups * variance
    return Signal(op.output_shape(x.shape), gain * moment, 0.0, correlation)


def _conv_backward(
    op: Conv2d, x: Signal, y: Signal, gradient: Gradient, variance: float
) -> Gradient:
    taps = tap_sums(op, x.shape[1:])
    moment, correlation = taps.backward(gradient.moment, gradient.correlation)
    return Gradient(op.n_out / op.groups * variance * moment, correlation)


def _map_forward(op: AvgPool2d | Stride | Upsample, x: Signal, _: Any) -> Signal:
    sums = map_sums(op, x.shape[1:])
    moment, correlation = sums.apply(x.moment, x.correlation)
    source = x.source if isinstance(op, Stride) else None
    return Signal(op.output_shape(x.shape), moment, x.mean * sums.total / sums.n_out, correlation,
                  source)


def _map_backward(
    op: AvgPool2d | Stride | Upsample, x: Signal, y: Signal, gradient: Gradient, _: Any
) -> Gradient:
    sums = map_sums(op, x.shape[1:]).transposed()
    moment, correlation = sums.apply(gradient.moment, gradient.correlation)
    return Gradient(moment, correlation, gradient.slopes if isinstance(op, Stride) else None)


def _scale_forward(op: Scale, x: Signal, _: Any) -> Signal:
    source = x.source.scaled(op.factor) if x.source is not None and op.factor > 0.0 else None
    return replace(x, moment=op.factor**2 * x.moment, mean=op.factor * x.mean, source=source)


def _scale_backward(op: Scale, x: Signal, y: Signal, gradient: Gradient, _: Any) -> Gradient:
    return gradient._replace(moment=op.factor**2 * gradient.moment)


def _dropout_forward(op: Dropout, x: Signal, _: Any) -> Signal:
    kept = 1.0 - op.p
    return replace(x, moment=x.moment / kept, correlation=kept * x.correlation, source=None)


def _dropout_backward(op: Dropout, x: Signal, y: Signal, gradient: Gradient, _: Any) -> Gradient:
    kept = 1.0 - op.p
    return Gradient(gradient.moment / kept, kept * gradient.correlation)


def _flatten_forward(op: Flatten, x: Signal, _: Any) -> Signal:
    return replace(x, shape=(x.size,))


def _flatten_backward(op: Flatten, x: Signal, y: Signal, gradient: Gradient, _: Any) -> Gradient:
    return gradient


# --- activations and max-pooling ------------------------------------------------------------------

def phi_of(op: Op) -> _Phi:
    """The activation that ReLU, LeakyReLU and Activation stand for."""
    if isinstance(op, LeakyReLU):
        return activation("leaky_relu", slope=op.slope)
    return activation(op.activation if isinstance(op, Activation) else "relu")


def _activation_forward(op: Op, x: Signal, _: Any) -> Signal:
    if is_repeated(op, x):
        return x
    source = Source(phi_of(op), *x.as_gaussian())
    made = through(source)
    return replace(x, moment=made.moment, mean=made.mean, correlation=made.correlation,
                   source=source)


def _activation_backward(
    op: Op, x: Signal, y: Signal, gradient: Gradient, _: Any
) -> Gradient:
    if is_repeated(op, x):
        return gradient
    slopes = gradient.slopes or through(y.origin()).slopes
    return Gradient(gradient.moment * slopes.moment, gradient.correlation * slopes.correlation)


def is_repeated(op: Op, x: Signal) -> bool:
    """Whether ``op`` is a ReLU of what a ReLU has made, and changes nothing."""
    return isinstance(op, ReLU) and x.source is not None and x.source.activation.name == "relu"


def _max_forward(op: MaxPool2d, x: Signal, _: Any) -> Signal:
    made = _selected(op, x)
    return Signal(op.output_shape(x.shape), made.moment, made.mean, made.correlation)


def _max_backward(
    op: MaxPool2d, x: Signal, y: Signal, gradient: Gradient, _: Any
) -> Gradient:
    """Each window hands its gradient to one entry; the sum of squares counts shared maxima twice.

    The sum over all pairs of entries is that over all pairs of windows.
    """
    n, r = y.positions, gradient.correlation
    slopes = _selected(op, x).slopes if x.source is not None else None
    squares = gradient.moment * (n + r * shared_maxima(*windows(op, x.shape[1:])))
    if x.positions == 1:
        return Gradient(squares, r, slopes)
    everything = gradient.moment * n * (1.0 + r * (n - 1))
    correlation = (everything / squares - 1.0) / (x.positions - 1)
    return Gradient(squares / x.positions, correlation, slopes)


def _selected(op: MaxPool2d, x: Signal) -> Selected:
    vertical, horizontal = windows(op, x.shape[1:])
    cells = vertical.sum(axis=1)[:, None] * horizontal.sum(axis=1)
    return pooled(x.origin(), cells.ravel())


# --- normalisation --------------------------------------------------------------------------------

def _batch_norm_forward(op: BatchNorm, x: Signal, _: Any) -> Signal:
    return replace(x, moment=1.0, mean=0.0, correlation=0.0, source=None)


def _batch_norm_backward(
    op: BatchNorm, x: Signal, y: Signal, gradient: Gradient, _: Any
) -> Gradient:
    variance = x.moment * (1.0 - x.correlation)
    return Gradient(gradient.moment / (variance * _few(op.batch)), gradient.correlation)


def _layer_norm_forward(op: LayerNorm, x: Signal, _: Any) -> Signal:
    share = _layer_variance(x) / x.moment
    left = (x.correlation - (x.mean**2 / x.moment)) / share if share > 0.0 else 0.0
    return replace(x, moment=1.0, mean=0.0, correlation=min(max(left, 0.0), 1.0), source=None)


def _layer_norm_backward(
    op: LayerNorm, x: Signal, y: Signal, gradient: Gradient, _: Any
) -> Gradient:
    variance = _layer_variance(x) * _few(x.size)
    return Gradient(gradient.moment / variance, gradient.correlation)


def _layer_variance(x: Signal) -> float:
    """E[(x - mean)^2] over the entries of one input, unbiased for independent entries."""
    if x.size < 4:
        raise ValueError(f"takes 4 entries or more, got the shape {x.shape}: of fewer the inverse "
                         "variance has no mean")
    channel = x.moment * (1.0 + (x.positions - 1) * x.correlation) / x.positions
    square_of_mean = channel / x.channels + (1.0 - 1.0 / x.channels) * x.mean**2
    return (x.moment - square_of_mean) * x.size / (x.size - 1)


def _few(count: int | None) -> float:
    """What normalising m Gaussian values puts on varsigma besides the mean: (m - 3)/(m - 2)."""
    return 1.0 if count is None else (count - 3) / (count - 2)


_ELEMENTWISE = Rule(_activation_forward, _activation_backward)
_MAP = Rule(_map_forward, _map_backward)

RULES: dict[type[Op], Rule] = {
    Linear: Rule(_linear_forward, _linear_backward),
    Conv2d: Rule(_conv_forward, _conv_backward),
    ReLU: _ELEMENTWISE,
    LeakyReLU: _ELEMENTWISE,
    Activation: _ELEMENTWISE,
    Dropout: Rule(_dropout_forward, _dropout_backward),
    Scale: Rule(_scale_forward, _scale_backward),
    AvgPool2d: _MAP,
    MaxPool2d: Rule(_max_forward, _max_backward),
    Stride: _MAP,
    Upsample: _MAP,
    Flatten: Rule(_flatten_forward, _flatten_backward),
    BatchNorm: Rule(_batch_norm_forward, _batch_norm_backward),
    LayerNorm: Rule(_layer_norm_forward, _layer_norm_backward),
}
