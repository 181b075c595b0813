"""Residual networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from ._extremes import Extremes
from .blocks import BASES, Layer, Residual, check_network
from .propagation import Propagation, as_propagation, layer_moments

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["ResNet"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ResNet(Extremes):
    r"""A residual network at random initialisation, x^l = phi(W^l x^{l-1} + b^l) + a x^{l-1}.

    With ``branch_layers`` = n the branch is phi(W_n phi(... W_1 x + b_1 ...) + b_n).

    Parameters
    ----------
    depth : int
        Number of residual blocks L, >= 1.
    activation : str or Activation
        A name without parameters, or what `fastspec.activation` returns.
    weights : {"gaussian", "orthogonal"}
        W_ij ~ N(0, s^2 / N), or W W^T = s^2 I with W Haar-distributed, s^2 = ``weight_variance``.
    sigma_w : float
        > 0.
    sigma_b : float
        Standard deviation of the biases, b_i ~ N(0, sigma_b^2), >= 0.
    skip : float
        Weight a of the skip connection; finite, not 0.
    depth_scaled : bool
        True: s^2 = sigma_w^2 / L^(1/n), so that the n weights of a branch together scale as 1/L.
        False: s^2 = sigma_w^2.
    input_second_moment : float
        abs(x^0)^2 / N, >= 0.
    input_mean : float
        Mean of the entries of x^0; its square is at most ``input_second_moment``.
    batch_norm : None, True or (float, float)
        Batch norm on every pre-activation, with parameters (gamma, beta), gamma not 0; True is
        (1, 0). The propagated variance q^l of h^l stands for the batch's: phi acts on
        N(beta, gamma^2), and the Jacobian gets the factor gamma / sqrt(q^l). How the batch
        statistics themselves change with the input is left out of the Jacobian.
    branch_layers : int
        Number n of weight layers in a branch, >= 1.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The model of Tarnowski et al. 2018, eq. 1 (section 5 for batch norm), and Ling & Qiu 2018. phi
    acts after the weights; networks with phi before them are not covered. For convolutional blocks
    read channels for width, with s^2 = taps times channels times the variance of a weight.

    Examples
    --------
    >>> from fastspec.networks import ResNet
    >>> round(ResNet(depth=100, activation="relu", sigma_w=0.5).effective_cumulant(), 12)
    0.125
    """

    depth: int
    activation: Any  # a name or an Activation; an Activation once checked
    weights: str = "gaussian"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    skip: float = 1.0
    depth_scaled: bool = True
    input_second_moment: float = 1.0
    input_mean: float = 0.0
    batch_norm: Any = None  # None, True or a pair; None or a pair of float once checked
    branch_layers: int = 1

    def __post_init__(self) -> None:
        check_network(self)
        skip = _checks.real("skip", self.skip)
        if skip == 0.0:
            raise ValueError("skip must not be 0: a network without skips is a FeedForward")
        if not isinstance(self.depth_scaled, bool | np.bool_):
            raise ValueError(f"depth_scaled must be True or False, got {self.depth_scaled!r}")
        _checks.store(
            self, skip=skip, depth_scaled=bool(self.depth_scaled),
            batch_norm=_check_batch_norm(self.batch_norm),
            branch_layers=_checks.positive_integer("branch_layers", self.branch_layers))

    @property
    def weight_variance(self) -> float:
        """N Var(W_ij): sigma_w^2 / depth^(1/branch_layers) if depth_scaled, else sigma_w^2."""
        variance = self.sigma_w * self.sigma_w
        if not self.depth_scaled:
            return variance
        return variance / self.depth ** (1.0 / self.branch_layers)

    def propagate(self) -> Propagation:
        """Signal statistics of every block.

        q^l = s^2 p_{l-1} + sigma_b^2, m_l = a m_{l-1} + E phi,
        p_l = a^2 p_{l-1} + 2 a m_{l-1} E phi + E phi^2, with m = E x, p = E x^2 (Tarnowski et al.
        2018, eqs. 36-39). Inside a longer branch q = s^2 E phi^2 + sigma_b^2 of the layer before.

        Raises
        ------
        OverflowError
            If q leaves the range of double precision; it names the block.
        ValueError
            If mu_1 is infinite, or batch norm meets pre-activations that do not vary.

        Examples
        --------
        >>> from fastspec.networks import ResNet
        >>> ResNet(depth=2, activation="linear").propagate().second_moment
        array([1.5 , 2.25])
        """
        a, rows = self.skip, np.empty((self.branch_layers, 6, self.depth))
        mean, second_moment = self.input_mean, self.input_second_moment
        for block in range(self.depth):
            incoming = second_moment
            for layer in range(self.branch_layers):
                rows[layer, :, block] = self._layer_row(block + 1, incoming)
                incoming = float(rows[layer, 2, block])
            phi, phi_squared = rows[-1, 1:3, block].tolist()
            second_moment = a * a * second_moment + 2.0 * a * mean * phi + phi_squared
            mean = a * mean + phi
            rows[-1, 1:3, block] = mean, second_moment
        rows[-1, 5] = np.prod(rows[:, 5], axis=0)
        return as_propagation(self, rows[-1], rows[:-1])

    def _layer_row(self, block: int, incoming: float) -> FloatArray:
        """q, E phi, E phi^2, mu_1, mu_2, kappa of a layer whose inputs have this second moment."""
        q = self.weight_variance * incoming + self.sigma_b * self.sigma_b
        if self.batch_norm is not None and q == 0.0:
            raise ValueError("batch_norm needs pre-activations that vary; they do not at layer "
                             f"{block} of {self.depth}")
        variance, mean = self._normalised(q)
        moments = layer_moments(self, block, q, variance, mean)
        return np.array([q, *moments, self._jacobian_variance(q) * moments[2]])

    def _normalised(self, q: float) -> tuple[float, float]:
        """Variance and mean of what phi acts on."""
        if self.batch_norm is None:
            return q, 0.0
        gamma, beta = self.batch_norm
        return gamma * gamma, beta

    def _jacobian_variance(self, q: float) -> float:
        """N times the variance of an entry of W as it stands in the Jacobian."""
        if self.batch_norm is None:
            return self.weight_variance
        return self.weight_variance * self.batch_norm[0] ** 2 / q

    def blocks(self) -> list[Residual]:
        """The residual blocks at their propagated variances, the first one next to the input.

        Blocks that follow each other and are equal are one `fastspec.Residual` with ``repeat``.

        Examples
        --------
        >>> from fastspec.networks import ResNet
        >>> net = ResNet(4, "tanh", batch_norm=True, branch_layers=2)
        >>> print(len(net.blocks()), len(net.blocks()[0].layers))
        4 2
        """
        statistics = self.propagate()
        q = np.stack([*(layer.q for layer in statistics.inner), statistics.q], axis=1)
        runs: list[tuple[list[float], int]] = []
        for branch in q.tolist():
            if runs and runs[-1][0] == branch:
                runs[-1] = branch, runs[-1][1] + 1
            else:
                runs.append((branch, 1))
        return [Residual(*map(self._layer, branch), skip=self.skip, repeat=repeat)
                for branch, repeat in runs]

    def _layer(self, q: float) -> Layer:
        variance, mean = self._normalised(q)
        return Layer(self.activation, q=variance, mean=mean, weights=self.weights,
                     weight_variance=self._jacobian_variance(q))

    def effective_cumulant(self) -> float:
        """c = sum over blocks of kappa, the mean squared singular value of the branch.

        kappa = N Var(W_ij) mu_1 for one layer (Tarnowski et al. 2018, eq. 26), times
        gamma^2 / q^l with batch norm; the product over layers for a longer branch.
        In units of skip = 1: the limit law with another skip a depends on c / a^2.

        Examples
        --------
        >>> from fastspec.networks import ResNet
        >>> round(ResNet(depth=10, activation="linear", sigma_w=2.0).effective_cumulant(), 12)
        4.0
        """
        return math.fsum(self.propagate().kappa)

    def spectrum(self, limit: bool = False, basis: str = "free") -> SpectralLaw:
        """Law of the squared singular values of J = prod (a I + D^l W^l).

        Parameters
        ----------
        limit : bool
            False: the law at this depth, a `ChainLaw` of `blocks`. True: the law of infinite depth
            at the same effective cumulant and skip (Tarnowski et al. 2018, eq. 25).
        basis : {"free", "shared"}
            What the blocks of a finite depth share: nothing, as in the papers, or the coordinates
            of their slopes, as in the network; see `ChainLaw`. One limit holds for both.

        Returns
        -------
        SpectralLaw

        Raises
        ------
        ValueError
            If ``basis`` is unknown.
        ConvergenceError
            If the law could not be solved.

        Notes
        -----
        ``basis="free"`` is the law of the free model (Tarnowski et al. 2018; Ling & Qiu 2018).
        With one block, and in the limit of infinite depth at fixed cumulant, that is the law of the
        network. In between it has the right first three moments, and
        `ChainLaw.shared_basis_estimate` says how far it is from ``basis="shared"``, the law of the
        network at this depth. Single eigenvalues outside of either are `outliers`.

        The limit law needs every kappa to be small. Batch norm without biases makes kappa
        gamma^2 mu_1 / E (x^{l-1})^2, whatever sigma_w and the depth are: of order one in the
        first blocks, unless ``input_second_moment`` is large.
        """
        from . import laws
        from .chains import ChainLaw

        _checks.choice("basis", basis, BASES)
        if limit:
            return laws.ResNetLimit(
                self.effective_cumulant(), skip=abs(self.skip), depth=self.depth)
        return ChainLaw(self.blocks(), basis=basis)


def _check_batch_norm(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    if value is True:
        return 1.0, 0.0
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"batch_norm must be None, True or a pair (gamma, beta), got {value!r}")
    gamma, beta = (_checks.real("batch_norm", number) for number in value)
    if gamma == 0.0:
        raise ValueError(f"batch_norm must have a gamma that is not 0, got {value!r}")
    return gamma, beta
