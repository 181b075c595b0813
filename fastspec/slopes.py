"""Law of the squared slope phi'(h)^2, h ~ N(mean, q), of piecewise linear activations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _checks
from .activations import Activation

__all__ = ["SlopeLaw", "slope_law"]

FloatArray = NDArray[np.float64]


class SlopeLaw(NamedTuple):
    """A discrete law of phi'(h)^2.

    Attributes
    ----------
    values : ndarray, shape (k,)
        Distinct values of phi'^2, ascending.
    probabilities, complements : ndarray, shape (k,)
        P(phi'^2 = value) and 1 - P, each with full relative accuracy however small it is.
    """

    values: FloatArray
    probabilities: FloatArray
    complements: FloatArray

    @property
    def is_zero_one(self) -> bool:
        """Whether no value other than 0 and 1 occurs."""
        return bool(np.all((self.values == 0.0) | (self.values == 1.0)))

    def relative_variance(self) -> float:
        """Var d / (E d)^2, from sum_{i<j} p_i p_j (v_i - v_j)^2: no cancellation."""
        p, v = self.probabilities, self.values
        variance = 0.5 * float(np.sum(np.outer(p, p) * (v[:, np.newaxis] - v) ** 2))
        return variance / float(p @ v) ** 2


def slope_law(activation: Activation, q: float, mean: float = 0.0) -> SlopeLaw:
    """Law of phi'(h)^2 for h ~ N(mean, q) where phi is piecewise linear.

    Parameters
    ----------
    activation : Activation
        linear, relu, leaky_relu or hard_tanh.
    q : float
        Variance of h, >= 0; 0 stands for q -> 0+.
    mean : float
        Mean of h.

    Returns
    -------
    SlopeLaw

    Raises
    ------
    ValueError
        If the activation is not piecewise linear, or q < 0, or a value is not finite.

    Notes
    -----
    hard_tanh, mean 0: P(1) = erf(1/sqrt(2q)), P(0) = erfc(1/sqrt(2q)) (Pennington, Schoenholz &
    Ganguli 2018, table 1).

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> from fastspec.slopes import slope_law
    >>> law = slope_law(activation("hard_tanh"), q=0.04)
    >>> print(law.values, law.complements)
    [0. 1.] [9.99999427e-01 5.73303144e-07]
    """
    slopes = activation.slopes
    if slopes is None:
        raise ValueError(f"activation must be piecewise linear, got {activation!r}: "
                         "its slope law is not discrete")
    q, mean = _checks.real("q", q, low=0.0), _checks.real("mean", mean)
    scale = max(math.sqrt(q), 1e-170)      # q -> 0+
    ends = [-math.inf, *((kink - mean) / scale for kink in activation.kinks), math.inf]
    masses: dict[float, float] = {}
    for slope, low, high in zip(slopes, ends[:-1], ends[1:], strict=True):
        masses[slope * slope] = masses.get(slope * slope, 0.0) + _normal_mass(low, high)
    values = sorted(masses)
    return SlopeLaw(
        np.array(values),
        np.array([masses[value] for value in values]),
        np.array([sum(masses[other] for other in values if other != value) + 0.0
                  for value in values]),
    )


def _normal_mass(low: float, high: float) -> float:
    """P(low < z < high), z standard normal, to full relative accuracy."""
    if high - low < 0.5:        # nearly equal tails would cancel
        nodes, weights = np.polynomial.legendre.leggauss(20)
        half = 0.5 * (high - low)
        z = 0.5 * (low + high) + half * nodes
        return half * float(weights @ np.exp(-0.5 * z * z)) / math.sqrt(2.0 * math.pi)
    if low >= 0.0:
        return 0.5 * (_erfc(low) - _erfc(high))
    if high <= 0.0:
        return 0.5 * (_erfc(-high) - _erfc(-low))
    return 0.5 * (math.erf(high * math.sqrt(0.5)) - math.erf(low * math.sqrt(0.5)))


def _erfc(z: float) -> float:
    return math.erfc(z * math.sqrt(0.5))
