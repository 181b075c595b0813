"""Random factors of a Jacobian at known variances: plain layers D W, residual blocks a I + branch.

`fastspec.ChainLaw` takes the law of their product.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from . import _checks, quadrature
from .activations import activation as make_activation
from .slopes import slope_law

__all__ = ["Layer", "Residual"]

ENSEMBLES = ("gaussian", "orthogonal")
BASES = ("free", "shared")


@dataclass(frozen=True)
class Layer:
    r"""A layer D W: random weights W, then the slopes D = diag phi'(h) with h ~ N(mean, q).

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or what `fastspec.activation` returns.
    q : float
        Variance of the pre-activations h, >= 0; 0 stands for q -> 0+.
    weight_variance : float
        sigma^2 > 0: fan-in times Var(W_ij). For orthogonal weights W W^T = sigma^2 I, and
        W^T W = sigma^2 I where the layer has more outputs than inputs.
    weights : {"gaussian", "orthogonal"}
        Independent normal entries, or W Haar-distributed.
    repeat : int
        Number of such layers in a row, >= 1.
    width : float
        Number of outputs, > 0, in a unit common to all blocks of a chain. The number of inputs
        is the width of the block before it.
    mean : float
        Mean of h.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    For a convolution, channels play the part of the width: ``width`` counts channels, and
    ``weight_variance`` is the fan-in times the variance of a weight, the fan-in being the number
    of taps times the input channels (Tarnowski et al. 2018). The law is that of many channels.

    Examples
    --------
    >>> import fastspec as fs
    >>> layer = fs.Layer("relu", q=1.0, weight_variance=2.0)
    >>> print(layer.first_moment(), layer.relative_variance())
    1.0 2.0
    """

    activation: Any  # a name or an Activation; an Activation once checked
    _: KW_ONLY
    q: float
    weight_variance: float
    weights: str = "gaussian"
    repeat: int = 1
    width: float = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        _checks.store(
            self,
            activation=make_activation(self.activation),
            q=_checks.real("q", self.q, low=0.0),
            weight_variance=_checks.real(
                "weight_variance", self.weight_variance, low=0.0, strict=True),
            weights=_checks.choice("weights", self.weights, ENSEMBLES),
            repeat=_checks.positive_integer("repeat", self.repeat),
            width=_checks.real("width", self.width, low=0.0, strict=True),
            mean=_checks.real("mean", self.mean),
        )

    def first_moment(self, input_width: float | None = None) -> float:
        r"""Mean eigenvalue of D W W^T D, of one layer: sigma^2 E phi'(h)^2.

        Times inputs/outputs where orthogonal weights have more outputs than inputs.

        Parameters
        ----------
        input_width : float, optional
            Number of inputs in the unit of ``width``; as many as outputs if not given.
        """
        slope_mean = quadrature.moments(self.activation, self.q, self.mean).slope_mean
        weights = self.weight_variance * weight_mean(self.weights, self._shape(input_width))
        return weights * slope_mean

    def relative_variance(self, input_width: float | None = None) -> float:
        r"""Variance of the eigenvalues of D W W^T D, of one layer, over their mean squared.

        mu_2/mu_1^2 - 1 - s_1 with mu_k = E phi'(h)^{2k} and s_1 = 0 for orthogonal and -1 for
        Gaussian square W (Pennington, Schoenholz & Ganguli 2018). Infinite where mu_2 is. In a
        product of square blocks it adds.

        Parameters
        ----------
        input_width : float, optional
            As in `first_moment`.
        """
        return self._slope_spread() + weight_spread(self.weights, self._shape(input_width))

    def _shape(self, input_width: float | None) -> float:
        if input_width is None:
            return 1.0
        return self.width / _checks.real("input_width", input_width, low=0.0, strict=True)

    def _slope_spread(self) -> float:
        if self.activation.slopes is not None:
            return slope_law(self.activation, self.q, self.mean).relative_variance()
        return float(quadrature.slope_variance(self.activation, self.q, self.mean))


@dataclass(frozen=True, init=False, repr=False)
class Residual:
    r"""A residual block a I + D_n W_n ... D_1 W_1.

    Parameters
    ----------
    *layers : Layer
        The branch, at least one layer, the one next to the input first; all of one width.
    skip : float
        Weight a of the skip connection, finite, not 0. The law depends on abs(a) only.
    repeat : int
        Number of such blocks in a row, >= 1.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the widths differ.

    Notes
    -----
    The block's law solves x = u(1+u) S_X(u), a^2 x = t(1+t), m = u + t, S_X the S-transform of the
    branch (Tarnowski et al. 2018, eq. 19; Ling & Qiu 2018, theorem 1).

    Examples
    --------
    >>> import fastspec as fs
    >>> block = fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.5))
    >>> print(block.first_moment(), block.relative_variance())
    1.25 0.4
    """

    layers: tuple[Layer, ...]
    skip: float = field(default=1.0)
    repeat: int = field(default=1)

    def __init__(self, *layers: Layer, skip: float = 1.0, repeat: int = 1) -> None:
        if not layers:
            raise ValueError("layers of a Residual must be at least one, got none")
        for layer in layers:
            if not isinstance(layer, Layer):
                raise ValueError(f"layers of a Residual must be Layer objects, got {layer!r}")
        widths = sorted({layer.width for layer in layers})
        if len(widths) > 1:
            raise ValueError(f"layers of a Residual must have one width, got {widths}")
        skip = _checks.real("skip", skip)
        if skip == 0.0:
            raise ValueError("skip must not be 0: without a skip the layers themselves are the "
                             "blocks")
        _checks.store(self, layers=tuple(layers), skip=skip,
                      repeat=_checks.positive_integer("repeat", repeat))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.layers))
        return f"Residual({shown}, skip={self.skip!r}, repeat={self.repeat!r})"

    @property
    def width(self) -> float:
        """Number of outputs, and of inputs."""
        return self.layers[0].width

    def first_moment(self) -> float:
        """Mean eigenvalue of one block times its transpose: a^2 + kappa.

        kappa is the product of the layers' first moments (Ling & Qiu 2018, theorem 2).
        """
        return self.skip**2 + self._kappa()

    def relative_variance(self) -> float:
        """Variance of these eigenvalues over their mean squared.

        (2 a^2 kappa + kappa^2 v) / (a^2 + kappa)^2, v the sum of the layers' relative variances
        (Ling & Qiu 2018, theorem 2). In a product of blocks it adds.
        """
        kappa, square = self._kappa(), self.skip**2
        spread = math.fsum(layer.repeat * layer.relative_variance() for layer in self.layers)
        branch = kappa / (square + kappa)
        return branch * (2.0 * square / (square + kappa) + branch * spread)

    def _kappa(self) -> float:
        return math.prod(layer.first_moment() ** layer.repeat for layer in self.layers)


def weight_mean(weights: str, shape: float) -> float:
    """Mean eigenvalue of W W^T / sigma^2, where shape = outputs / inputs."""
    return min(1.0, 1.0 / shape) if weights == "orthogonal" else 1.0


def weight_spread(weights: str, shape: float) -> float:
    """Relative variance of W W^T: shape for Gaussian weights, (shape - 1)_+ for orthogonal ones."""
    return max(0.0, shape - 1.0) if weights == "orthogonal" else shape


def check_network(net: Any) -> None:
    """Validate the fields that all kinds of network have, and store them in one type each."""
    _checks.store(
        net,
        depth=_checks.positive_integer("depth", net.depth),
        activation=make_activation(net.activation),
        weights=_checks.choice("weights", net.weights, ENSEMBLES),
        sigma_w=_checks.real("sigma_w", net.sigma_w, low=0.0, strict=True),
        sigma_b=_checks.real("sigma_b", net.sigma_b, low=0.0),
        input_second_moment=_checks.real("input_second_moment", net.input_second_moment, low=0.0),
        input_mean=_checks.real("input_mean", net.input_mean),
    )
    if net.input_mean**2 > net.input_second_moment * (1.0 + 1e-15):
        raise ValueError("input_mean must have a square of at most input_second_moment = "
                         f"{net.input_second_moment:g}, got {net.input_mean:g}")
