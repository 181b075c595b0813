"""Networks whose layers differ: what a module can be that is no `FeedForward` and no `ResNet`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import quadrature
from .activations import Activation
from .blocks import Layer, Residual, weight_mean

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["MixedNetwork", "ModuleLayer", "Part", "relative_variance"]


@dataclass(frozen=True)
class ModuleLayer:
    """A layer x -> after phi(inner (W before x + b)), W and b those of a Linear or Conv module.

    Attributes
    ----------
    path : str
        Name of the module that holds W, as in ``module.get_submodule(path)``.
    kind : str
        Its class.
    activation : Activation
        "linear" where there is none.
    inputs, outputs : int
        Widths: features, or channels (times positions where a Linear reads all of them).
    units, fan_in : int
        Rows of W, and entries of a row: taps times channels for a convolution.
    weights : {"gaussian", "orthogonal"}
    sigma_w : float
        fan_in Var(W_ij) = sigma_w^2, or W W^T = sigma_w^2 I.
    sigma_b, bias_mean : float
        Standard deviation and mean of the biases.
    before, inner, after : float
        Constants that the module multiplies by.
    """

    path: str
    kind: str
    activation: Activation
    inputs: int
    outputs: int
    units: int
    fan_in: int
    weights: str = "gaussian"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    bias_mean: float = 0.0
    before: float = 1.0
    inner: float = 1.0
    after: float = 1.0

    @property
    def has_constants(self) -> bool:
        """Whether a constant other than 1 multiplies."""
        return (self.before, self.inner, self.after) != (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Part:
    """A plain layer (one layer, skip 0), or a residual block skip x + branch(x)."""

    layers: tuple[ModuleLayer, ...]
    skip: float = 0.0


@dataclass(frozen=True)
class _Signal:
    """A layer at work: N(mean, q) at phi, moments of the output, mean of the squared slopes."""

    q: float
    mean: float
    output_mean: float
    output_second: float
    kappa: float


@dataclass(frozen=True)
class MixedNetwork:
    """A chain of plain layers and residual blocks that differ in activation, weights or width.

    What `fastspec.torch.describe` makes of a module that is neither a `FeedForward` nor a `ResNet`.

    Parameters
    ----------
    parts : tuple of Part
        The first is next to the input.
    sigma_w : float
        Common factor of all weights, > 0: a layer's standard deviation is
        sigma_w layer.sigma_w / sqrt(fan_in).
    input_second_moment, input_mean : float
        Of the entries of x^0.

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec._torch_network import MixedNetwork, ModuleLayer, Part
    >>> hidden = ModuleLayer("0", "Linear", fs.activation("relu"), 40, 40, 40, 40, sigma_w=2**0.5)
    >>> head = ModuleLayer("2", "Linear", fs.activation("linear"), 40, 10, 10, 40)
    >>> net = MixedNetwork((Part((hidden,)), Part((head,))))
    >>> print(round(net.spectrum().mean(), 12), net.blocks()[1].width)
    1.0 10.0
    """

    parts: tuple[Part, ...]
    sigma_w: float = 1.0
    input_second_moment: float = 1.0
    input_mean: float = 0.0

    @property
    def layers(self) -> tuple[ModuleLayer, ...]:
        """All layers, those of branches too, in the order of the signal."""
        return tuple(layer for part in self.parts for layer in part.layers)

    @property
    def input_width(self) -> int:
        """Width of the input."""
        return self.parts[0].layers[0].inputs

    def kappa(self) -> list[float]:
        """Mean squared singular value of each part, of a residual block's branch."""
        return [math.prod(signal.kappa for signal in signals) for signals in self._propagate()[0]]

    def blocks(self) -> list[Layer | Residual]:
        """The parts as blocks of a `fastspec.ChainLaw`, at the variances of the signal."""
        return [_block(part, signals, self.sigma_w)
                for part, signals in zip(self.parts, self._propagate()[0], strict=True)]

    def effective_cumulant(self) -> float:
        """Sum over residual blocks of kappa (Tarnowski et al. 2018, eq. 26).

        Raises
        ------
        ValueError
            If not all parts are residual blocks with skips of one size.
        """
        self.common_skip()
        return math.fsum(self.kappa())

    def spectrum(self, limit: bool = False, basis: str = "free") -> SpectralLaw:
        """Law of the squared singular values, a `fastspec.ChainLaw` of `blocks`.

        Parameters
        ----------
        limit : bool
            True: the law of infinite depth at the same effective cumulant; residual blocks only.
        basis : {"free", "shared"}
            Of residual blocks at this depth, see `fastspec.ChainLaw`.

        Raises
        ------
        ValueError
            ``limit=True`` and not all parts are residual blocks with skips of one size; or a
            residual block has not the width of the output.
        """
        from . import laws
        from .chains import ChainLaw

        if limit:
            return laws.ResNetLimit(self.effective_cumulant(), skip=self.common_skip(),
                                    depth=len(self.parts))
        return ChainLaw(self.blocks(), input_width=float(self.input_width), basis=basis)

    def jacobian_variance(self) -> float:
        """Variance of the spectrum over its mean squared; see `relative_variance`."""
        return relative_variance(self.blocks(), float(self.input_width))

    def common_skip(self) -> float:
        """The size of the skips, or ValueError where there is no common one."""
        skips = sorted({abs(part.skip) for part in self.parts})
        if skips[0] == 0.0:
            raise ValueError("an effective cumulant and a limit law need residual blocks only; "
                             "this network has plain layers")
        if skips[-1] > skips[0] * (1.0 + 1e-12):
            raise ValueError("an effective cumulant and a limit law need skips of one size, got "
                             f"{skips[0]:g} to {skips[-1]:g}")
        return skips[0]

    def output_moments(self) -> tuple[float, float]:
        """E x^2 and E x of the entries of the output."""
        return self._propagate()[1]

    def _propagate(self) -> tuple[list[list[_Signal]], tuple[float, float]]:
        """The signal in the layers of each part, and the moments of the output."""
        mean, second, rows = self.input_mean, self.input_second_moment, []
        for part in self.parts:
            incoming, signals = second, []
            for layer in part.layers:
                signals.append(_signal(layer, self.sigma_w, incoming))
                incoming = signals[-1].output_second
            last = signals[-1]
            second = (part.skip**2 * second + 2.0 * part.skip * mean * last.output_mean
                      + last.output_second)
            mean = part.skip * mean + last.output_mean
            rows.append(signals)
        return rows, (second, mean)


def relative_variance(blocks: Sequence[Layer | Residual], width: float) -> float:
    """Variance of the spectrum of a chain over its mean squared, ``width`` that of its input.

    A block's term is weighted by the width of the output over its own (Ling & Qiu 2018,
    theorem 2).
    """
    terms, output = [], blocks[-1].width
    for block in blocks:
        for _ in range(block.repeat):
            spread = (block.relative_variance() if isinstance(block, Residual)
                      else block.relative_variance(width))
            width = block.width
            terms.append(output / width * spread)
    return math.fsum(terms)


def _signal(layer: ModuleLayer, scale: float, incoming: float) -> _Signal:
    variance = ((scale * layer.sigma_w * layer.before * layer.inner) ** 2
                * weight_mean(layer.weights, layer.outputs / layer.inputs))
    q = variance * incoming + (layer.inner * layer.sigma_b) ** 2
    mean = layer.inner * layer.bias_mean
    if not q < math.inf:
        raise OverflowError("q leaves the range of double precision at layer "
                            f"{layer.path!r}: the signal explodes")
    phi, phi_squared, slope_mean = quadrature.moment_rows(
        layer.activation, np.array([q]), np.array([mean]), 1)[:, 0].tolist()
    return _Signal(q, mean, layer.after * phi, layer.after**2 * phi_squared,
                   layer.after**2 * variance * slope_mean)


def _block(part: Part, signals: list[_Signal], scale: float) -> Layer | Residual:
    layers = [
        Layer(layer.activation, q=signal.q, mean=signal.mean, weights=layer.weights,
              weight_variance=(scale * layer.sigma_w * layer.before * layer.inner
                               * layer.after) ** 2,
              width=float(layer.outputs))
        for layer, signal in zip(part.layers, signals, strict=True)]
    return Residual(*layers, skip=part.skip) if part.skip else layers[0]
