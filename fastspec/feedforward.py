"""Feed-forward networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _checks, signal
from ._extremes import Extremes
from ._limits import feed_forward_limit, slope_variances
from .blocks import BASES, Layer, check_network, weight_mean, weight_spread
from .propagation import Propagation, as_propagation, layer_moments
from .slopes import slope_law

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["FeedForward"]

_EQUAL = 1e-15              # relative spread of q over layers that count as equal


@dataclass(frozen=True)
class FeedForward(Extremes):
    r"""A plain network at random initialisation, h^l = W^l x^{l-1} + b^l, x^l = phi(h^l).

    Parameters
    ----------
    depth : int
        Number of layers L, >= 1.
    activation : str or Activation
        A name without parameters, or what `fastspec.activation` returns.
    weights : {"gaussian", "orthogonal"}
        W_ij ~ N(0, sigma_w^2 / N), or W W^T = sigma_w^2 I with W Haar-distributed.
    sigma_w : float
        > 0.
    sigma_b : float
        Standard deviation of the biases, b_i ~ N(0, sigma_b^2), >= 0.
    input_second_moment : float
        abs(x^0)^2 / N, >= 0.
    q : None or "fixed_point"
        None: q^1 = sigma_w^2 abs(x^0)^2 / N + sigma_b^2, and so on. "fixed_point": every layer at
        the q* that this q^1 leads to.
    widths : None or sequence of float
        depth + 1 widths N_0 ... N_L > 0, input first, in any common unit; None: all equal. The
        spectrum is that of the N_L by N_L matrix J J^T. Gaussian: W_ij ~ N(0, sigma_w^2/N_{l-1});
        orthogonal: W W^T = sigma_w^2 I, or W^T W = sigma_w^2 I where N_l > N_{l-1}.
    input_mean : float
        Mean of the entries of x^0; its square is at most ``input_second_moment``. Of what the
        theory gives only the outliers' overlap with the vector of ones at the input depends on it.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The infinite-width model of Pennington, Schoenholz & Ganguli 2018. Its factors are free, so the
    laws are exact. In an orthogonal layer with more outputs than inputs every statement about
    sigma_w^2 holds for sigma_w^2 N_{l-1}/N_l.

    Examples
    --------
    >>> from fastspec.networks import FeedForward
    >>> net = FeedForward(depth=3, activation="relu", sigma_w=2.0)
    >>> print(net.propagate().q)
    [ 4.  8. 16.]
    """

    depth: int
    activation: Any  # a name or an Activation; an Activation once checked
    weights: str = "gaussian"
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    input_second_moment: float = 1.0
    q: str | None = None
    widths: Any = None  # a sequence of float; a tuple once checked
    input_mean: float = 0.0

    def __post_init__(self) -> None:
        check_network(self)
        if self.q is not None:
            _checks.choice("q", self.q, ("fixed_point",))
        if self.widths is None:
            return
        _checks.store(self, widths=_check_widths(self.widths, self.depth))
        if self.q is not None and any(self._weight_mean(n) != 1.0 for n in range(self.depth)):
            raise ValueError("q='fixed_point' needs one variance map: no orthogonal layer with "
                             f"more outputs than inputs, got widths={self.widths!r}")

    @property
    def weight_variance(self) -> float:
        """N Var(W_ij) of a layer: sigma_w^2."""
        return self.sigma_w * self.sigma_w

    @property
    def is_square(self) -> bool:
        """Whether all layers have one width."""
        return self.widths is None or len(set(self.widths)) == 1

    def _shape(self, layer: int) -> float:
        """Outputs over inputs of a layer, numbered from 0."""
        return 1.0 if self.widths is None else self.widths[layer + 1] / self.widths[layer]

    def _weight_mean(self, layer: int) -> float:
        return weight_mean(self.weights, self._shape(layer))

    def propagate(self) -> Propagation:
        """Signal statistics of every layer (Pennington, Schoenholz & Ganguli 2018).

        Raises
        ------
        OverflowError
            If q leaves the range of double precision; it names the layer.
        ValueError
            If mu_1 is infinite, or q = "fixed_point" and there is none.

        Examples
        --------
        >>> from fastspec.networks import FeedForward
        >>> net = FeedForward(4, "linear", sigma_w=0.5, sigma_b=1.5, q="fixed_point")
        >>> print(net.propagate().q.round(12))
        [3. 3. 3. 3.]
        """
        rows = np.empty((6, self.depth))
        variance = [self.weight_variance * self._weight_mean(n) for n in range(self.depth)]
        if self.q is not None:
            q_star = self.fixed_point()
            moments = layer_moments(self, 1, q_star, q_star, 0.0)
            rows[:5] = np.concatenate([[q_star], moments])[:, np.newaxis]
        else:
            second_moment = self.input_second_moment
            for layer in range(self.depth):
                q = variance[layer] * second_moment + self.sigma_b * self.sigma_b
                rows[0, layer], rows[1:5, layer] = q, layer_moments(self, layer + 1, q, q, 0.0)
                second_moment = float(rows[2, layer])
        rows[5] = np.array(variance) * rows[3]
        return as_propagation(self, rows)

    def blocks(self) -> list[Layer]:
        """The layers at their propagated variances, the first one next to the input.

        Layers that follow each other and are equal are one `fastspec.Layer` with ``repeat``.

        Examples
        --------
        >>> from fastspec.networks import FeedForward
        >>> FeedForward(3, "linear").blocks()[0].repeat
        3
        """
        runs: list[list[float]] = []     # q, width, repeat
        widths = self.widths or (1.0,) * (self.depth + 1)
        for n, q in enumerate(self.propagate().q.tolist()):
            if runs and runs[-1][:2] == [q, widths[n + 1]]:
                runs[-1][2] += 1
            else:
                runs.append([q, widths[n + 1], 1])
        return [Layer(self.activation, q=q, weight_variance=self.weight_variance,
                      weights=self.weights, repeat=int(repeat), width=width)
                for q, width, repeat in runs]

    def fixed_point(self) -> float:
        """The fixed point q* that the network's q^1 leads to; see `fastspec.signal.fixed_point`."""
        first = self.weight_variance * self.input_second_moment + self.sigma_b * self.sigma_b
        if not 0.0 < first < math.inf:
            raise ValueError(f"q of the first layer is {first:g}: no fixed point can be sought "
                             "from there")
        return signal.fixed_point(self.activation, self.sigma_w, self.sigma_b, start=first)

    def chi(self) -> float:
        """sigma_w^2 E phi'(h)^2 at q*: 1 on the critical line (`fastspec.signal.chi`)."""
        return float(signal.chi(self.activation, self.fixed_point(), self.sigma_w))

    def jacobian_variance(self) -> float:
        """Variance of the spectrum of J J^T over its mean squared.

        The sum over layers of mu_2 / mu_1^2 - 1 - s_1, s_1 = 0 for orthogonal and -1 for Gaussian
        weights; at chi = 1 it is sigma^2_{JJT} of Pennington, Schoenholz & Ganguli 2018. With
        unequal widths a layer's term is weighted by N_L/N_l and -s_1 is N_l/N_{l-1}, or its
        excess over 1 for orthogonal weights. Infinite where mu_2 is.

        Examples
        --------
        >>> from fastspec.networks import FeedForward
        >>> round(FeedForward(depth=8, activation="relu", sigma_w=1.4).jacobian_variance(), 12)
        16.0
        """
        widths = self.widths or (1.0,) * (self.depth + 1)
        slopes = slope_variances(self.activation, self.propagate().q)
        return math.fsum(
            widths[-1] / widths[n + 1] * (slopes[n] + weight_spread(self.weights, self._shape(n)))
            for n in range(self.depth))

    def effective_cumulant(self) -> float:
        """Only residual networks have one.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("effective_cumulant belongs to residual networks; a FeedForward network "
                         "has jacobian_variance()")

    def spectrum(self, limit: bool = False, basis: str = "free") -> SpectralLaw:
        """Law of the squared singular values of J = D^L W^L ... D^1 W^1.

        Parameters
        ----------
        limit : bool
            False: the exact law at this depth, every layer at its q^l. True: the law of its
            universality class, L -> infinity at chi = 1 and orthogonal weights with the variance
            sigma^2_{JJT} held fixed; all layers are taken at q*.
        basis : {"free", "shared"}
            Of residual networks; layers without skips are free of each other, and both are the
            same law.

        Returns
        -------
        SpectralLaw
            A `PlainChain`, in closed form, for equal layers with slopes 0 and 1 (linear, relu,
            hard_tanh at one q); otherwise a `ChainLaw` of `blocks`.

        Raises
        ------
        ValueError
            ``limit=True`` and the network is not in a universality class; ``basis`` is unknown.
        """
        from . import laws
        from .chains import ChainLaw

        _checks.choice("basis", basis, BASES)
        if limit:
            return feed_forward_limit(self)
        slopes = self._zero_one_slopes() if self.is_square else None
        if slopes is None:
            width = 1.0 if self.widths is None else self.widths[0]
            return ChainLaw(self.blocks(), input_width=width)
        return laws.PlainChain(
            self.depth, slope_probability=slopes[0], slope_complement=slopes[1],
            weight_variance=self.weight_variance, weights=self.weights)

    def _zero_one_slopes(self) -> tuple[float, float] | None:
        """P(phi'^2 = 1) and its complement where they are the same in every layer, else None."""
        if self.activation.slopes is None:
            return None
        q = self.propagate().q
        first = slope_law(self.activation, q[0])
        at_one = np.flatnonzero(first.values == 1.0)
        depends_on_q = any(kink != 0.0 for kink in self.activation.kinks)
        if not first.is_zero_one or (depends_on_q and np.ptp(q) > _EQUAL * q[0]):
            return None
        if at_one.size == 0:
            return 0.0, 1.0
        return float(first.probabilities[at_one[0]]), float(first.complements[at_one[0]])


def _check_widths(widths: Any, depth: int) -> tuple[float, ...]:
    if isinstance(widths, str) or not isinstance(widths, Sequence | np.ndarray):
        raise ValueError(f"widths must be a sequence of depth + 1 numbers > 0, got {widths!r}")
    if len(widths) != depth + 1:
        raise ValueError(f"widths must have depth + 1 = {depth + 1} entries, the input's first, "
                         f"got {len(widths)}")
    return tuple(_checks.real("widths", width, low=0.0, strict=True) for width in widths)
