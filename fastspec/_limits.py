"""Laws of infinite depth: which universality class a feed-forward network belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import quadrature, signal
from .activations import Activation
from .slopes import slope_law

if TYPE_CHECKING:
    from .feedforward import FeedForward
    from .laws import SpectralLaw

__all__ = ["feed_forward_limit", "slope_variances"]

FloatArray = NDArray[np.float64]

_CRITICAL = 1e-6            # distance of chi from 1 that counts as critical
_SMALL_Q, _FLAT = 1e-4, 1e-20   # slopes with less variance than _FLAT at _SMALL_Q are constant


def feed_forward_limit(net: FeedForward) -> SpectralLaw:
    """The law of L -> infinity at chi = 1 and orthogonal weights, sigma^2_{JJT} held fixed."""
    from . import laws

    if not net.is_square:
        raise ValueError(f"limit=True needs layers of one width, got widths={net.widths!r}")
    if net.weights != "orthogonal":
        raise ValueError("limit=True needs weights='orthogonal': with Gaussian weights the "
                         f"variance is at least the depth ({net.depth}) and no limit exists")
    q_star = net.fixed_point()
    chi = float(signal.chi(net.activation, q_star, net.sigma_w))
    if abs(chi - 1.0) > _CRITICAL:
        raise ValueError(f"limit=True needs the critical line, chi = 1; here chi = {chi:.9g} "
                         f"at q* = {q_star:.9g}")
    variance, smooth = _universality(net.activation, q_star)
    limit = laws.SmoothLimit if smooth else laws.BernoulliLimit
    return limit(net.depth * variance)


def _universality(activation: Activation, q: float) -> tuple[float, bool]:
    """Relative variance of phi'^2 at variance q, and whether phi is of the smooth class.

    Both classes need slopes that become equal as q -> 0. In the smooth class their variance falls
    like a power of q; slopes of 0 and 1 that are equal near h = 0 make the Bernoulli class
    (Pennington, Schoenholz & Ganguli 2018).
    """
    at_zero, near_zero, variance = slope_variances(activation, np.array([0.0, _SMALL_Q, q]))
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


def slope_variances(activation: Activation, q: FloatArray) -> FloatArray:
    """Var d / (E d)^2, d = phi'(h)^2, at each q."""
    if activation.slopes is not None:
        return np.array([slope_law(activation, x).relative_variance() for x in q])
    return np.asarray(quadrature.slope_variance(activation, q))
