"""Networks: what they are, how signals run through them, and which law their spectrum follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, quadrature, signal
from .activations import Activation
from .activations import activation as make_activation
from .propagation import Propagation, as_propagation, layer_moments
from .slopes import slope_law

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["FeedForward", "ResNet"]

FloatArray = NDArray[np.float64]

ENSEMBLES = ("gaussian", "orthogonal")
_EQUAL = 1e-15              # relative spread of q over layers that count as equal
_CRITICAL = 1e-6            # distance of chi from 1 that counts as critical
_SMALL_Q, _FLAT = 1e-4, 1e-20   # slopes with less variance than _FLAT at _SMALL_Q are constant


@dataclass(frozen=True)
class FeedForward:
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

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The infinite-width model of Pennington, Schoenholz & Ganguli 2018.

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

    def __post_init__(self) -> None:
        _check_common(self)
        if self.q is not None:
            _checks.choice("q", self.q, ("fixed_point",))

    @property
    def weight_variance(self) -> float:
        """N Var(W_ij) of a layer: sigma_w^2."""
        return self.sigma_w * self.sigma_w

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
        rows = np.empty((5, self.depth))
        if self.q is not None:
            q_star = self.fixed_point()
            rows[:] = np.concatenate([[q_star], layer_moments(self, 1, q_star)])[:, np.newaxis]
        else:
            second_moment = self.input_second_moment
            for layer in range(self.depth):
                q = self.weight_variance * second_moment + self.sigma_b * self.sigma_b
                rows[0, layer], rows[1:, layer] = q, layer_moments(self, layer + 1, q)
                second_moment = float(rows[2, layer])
        return as_propagation(self, rows)

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
        weights; at chi = 1 it is sigma^2_{JJT} of Pennington, Schoenholz & Ganguli 2018.
        Infinite where mu_2 is.

        Examples
        --------
        >>> from fastspec.networks import FeedForward
        >>> round(FeedForward(depth=8, activation="relu", sigma_w=1.4).jacobian_variance(), 12)
        16.0
        """
        slopes = math.fsum(_slope_variances(self.activation, self.propagate().q))
        return slopes + self.depth if self.weights == "gaussian" else slopes

    def effective_cumulant(self) -> float:
        """Only residual networks have one.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("effective_cumulant belongs to residual networks; a FeedForward network "
                         "has jacobian_variance()")

    def spectrum(self, limit: bool = False) -> SpectralLaw:
        """Law of the squared singular values of J = D^L W^L ... D^1 W^1.

        Parameters
        ----------
        limit : bool
            False: the exact law at this depth, for equal layers whose slopes are 0 or 1 (linear,
            relu at any q, hard_tanh at q = "fixed_point"). True: the law of its universality
            class, L -> infinity at chi = 1 and orthogonal weights with the variance
            sigma^2_{JJT} held fixed; all layers are taken at q*.

        Returns
        -------
        SpectralLaw

        Raises
        ------
        NotImplementedError
            ``limit=False`` and the layers are not equal with slopes 0 or 1.
        ValueError
            ``limit=True`` and the network is not in a universality class.
        """
        from . import laws

        if limit:
            return self._limit_law()
        probability, complement = self._zero_one_slopes()
        return laws.PlainChain(
            self.depth, slope_probability=probability, slope_complement=complement,
            weight_variance=self.weight_variance, weights=self.weights)

    def _zero_one_slopes(self) -> tuple[float, float]:
        """P(phi'^2 = 1) and its complement, the same in every layer."""
        refusal = NotImplementedError(
            "the exact spectrum needs equal layers with slopes 0 or 1 (linear, relu, or hard_tanh "
            "at q='fixed_point'); limit=True gives the law of large depth")
        if self.activation.slopes is None:
            raise refusal
        q = self.propagate().q
        first = slope_law(self.activation, q[0])
        at_one = np.flatnonzero(first.values == 1.0)
        depends_on_q = any(kink != 0.0 for kink in self.activation.kinks)
        if not first.is_zero_one or (depends_on_q and np.ptp(q) > _EQUAL * q[0]):
            raise refusal
        if at_one.size == 0:
            return 0.0, 1.0
        return float(first.probabilities[at_one[0]]), float(first.complements[at_one[0]])

    def _limit_law(self) -> SpectralLaw:
        from . import laws

        if self.weights != "orthogonal":
            raise ValueError("limit=True needs weights='orthogonal': with Gaussian weights the "
                             f"variance is at least the depth ({self.depth}) and no limit exists")
        q_star = self.fixed_point()
        chi = float(signal.chi(self.activation, q_star, self.sigma_w))
        if abs(chi - 1.0) > _CRITICAL:
            raise ValueError(f"limit=True needs the critical line, chi = 1; here chi = {chi:.9g} "
                             f"at q* = {q_star:.9g}")
        variance, smooth = _universality(self.activation, q_star)
        limit = laws.SmoothLimit if smooth else laws.BernoulliLimit
        return limit(self.depth * variance)


@dataclass(frozen=True)
class ResNet:
    r"""A residual network at random initialisation, x^l = phi(W^l x^{l-1} + b^l) + a x^{l-1}.

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
        True: s^2 = sigma_w^2 / L. False: s^2 = sigma_w^2.
    input_second_moment : float
        abs(x^0)^2 / N, >= 0.
    input_mean : float
        Mean of the entries of x^0; its square is at most ``input_second_moment``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The model of Tarnowski et al. 2018, eq. 1, and Ling & Qiu 2018.

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

    def __post_init__(self) -> None:
        _check_common(self)
        skip = _checks.real("skip", self.skip)
        if skip == 0.0:
            raise ValueError("skip must not be 0: a network without skips is a FeedForward")
        if not isinstance(self.depth_scaled, bool | np.bool_):
            raise ValueError(f"depth_scaled must be True or False, got {self.depth_scaled!r}")
        mean = _checks.real("input_mean", self.input_mean)
        if mean**2 > self.input_second_moment * (1.0 + 1e-15):
            raise ValueError("input_mean must have a square of at most input_second_moment = "
                             f"{self.input_second_moment:g}, got {mean:g}")
        _set(self, skip=skip, depth_scaled=bool(self.depth_scaled), input_mean=mean)

    @property
    def weight_variance(self) -> float:
        """N Var(W_ij) of a block: sigma_w^2 / depth if depth_scaled, else sigma_w^2."""
        variance = self.sigma_w * self.sigma_w
        return variance / self.depth if self.depth_scaled else variance

    def propagate(self) -> Propagation:
        """Signal statistics of every block.

        q^l = s^2 p_{l-1} + sigma_b^2, m_l = a m_{l-1} + E phi,
        p_l = a^2 p_{l-1} + 2 a m_{l-1} E phi + E phi^2, with m = E x, p = E x^2 (Tarnowski et al.
        2018, eqs. 36-39).

        Raises
        ------
        OverflowError
            If q leaves the range of double precision; it names the block.
        ValueError
            If mu_1 is infinite.

        Examples
        --------
        >>> from fastspec.networks import ResNet
        >>> ResNet(depth=2, activation="linear").propagate().second_moment
        array([1.5 , 2.25])
        """
        a, rows = self.skip, np.empty((5, self.depth))
        mean, second_moment = self.input_mean, self.input_second_moment
        for layer in range(self.depth):
            q = self.weight_variance * second_moment + self.sigma_b * self.sigma_b
            phi, phi_squared, *slopes = layer_moments(self, layer + 1, q).tolist()
            second_moment = a * a * second_moment + 2.0 * a * mean * phi + phi_squared
            mean = a * mean + phi
            rows[:, layer] = q, mean, second_moment, *slopes
        return as_propagation(self, rows)

    def effective_cumulant(self) -> float:
        """c = sum over blocks of kappa = N Var(W_ij) mu_1 (Tarnowski et al. 2018, eq. 26).

        In units of skip = 1: the limit law with another skip a depends on c / a^2.

        Examples
        --------
        >>> from fastspec.networks import ResNet
        >>> round(ResNet(depth=10, activation="linear", sigma_w=2.0).effective_cumulant(), 12)
        4.0
        """
        return math.fsum(self.propagate().kappa)

    def spectrum(self, limit: bool = False) -> SpectralLaw:
        """Law of the squared singular values of J = prod (a I + D^l W^l).

        Parameters
        ----------
        limit : bool
            True: the law of infinite depth at the same effective cumulant and skip (Tarnowski et
            al. 2018, eq. 25).

        Returns
        -------
        SpectralLaw

        Raises
        ------
        NotImplementedError
            ``limit=False``.
        """
        if not limit:
            raise NotImplementedError("the law of a residual network at finite depth is not "
                                      "available: limit=True gives that of infinite depth")
        from . import laws

        return laws.ResNetLimit(self.effective_cumulant(), skip=abs(self.skip), depth=self.depth)


def _check_common(net: FeedForward | ResNet) -> None:
    """Validate the fields that both kinds of network have, and store them in one type each."""
    _set(
        net,
        depth=_checks.positive_integer("depth", net.depth),
        activation=make_activation(net.activation),
        weights=_checks.choice("weights", net.weights, ENSEMBLES),
        sigma_w=_checks.real("sigma_w", net.sigma_w, low=0.0, strict=True),
        sigma_b=_checks.real("sigma_b", net.sigma_b, low=0.0),
        input_second_moment=_checks.real("input_second_moment", net.input_second_moment, low=0.0),
    )


def _set(net: FeedForward | ResNet, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(net, name, value)


def _universality(activation: Activation, q: float) -> tuple[float, bool]:
    """Relative variance of phi'^2 at variance q, and whether phi is of the smooth class.

    Both classes need slopes that become equal as q -> 0. In the smooth class their variance falls
    like a power of q; slopes of 0 and 1 that are equal near h = 0 make the Bernoulli class
    (Pennington, Schoenholz & Ganguli 2018).
    """
    at_zero, near_zero, variance = _slope_variances(activation, np.array([0.0, _SMALL_Q, q]))
    if at_zero > _CRITICAL:
        raise ValueError(f"limit=True needs slopes that become equal as q -> 0; those of "
                         f"{activation!r} keep a relative variance of {at_zero:.6g}, so the "
                         "spectrum widens with depth without bound")
    if variance == 0.0:
        raise ValueError(f"limit=True needs slopes that vary; those of {activation!r} do not, and "
                         "the spectrum is the single atom that spectrum() gives")
    if activation.slopes is None and near_zero > _FLAT:
        return float(variance), True
    if activation.slopes is not None and slope_law(activation, q).is_zero_one:
        return float(variance), False
    raise ValueError(f"limit=True knows slopes that vary smoothly around h = 0 and slopes of 0 and "
                     f"1; {activation!r} has neither")


def _slope_variances(activation: Activation, q: FloatArray) -> FloatArray:
    """Var d / (E d)^2, d = phi'(h)^2, at each q."""
    if activation.slopes is not None:
        return np.array([slope_law(activation, x).relative_variance() for x in q])
    return np.asarray(quadrature.slope_variance(activation, q))
