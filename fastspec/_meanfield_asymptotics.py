"""Deep-network laws of the recurrences of `fastspec.meanfield` (Yang & Schoenholz 2017, Table 2).

Leading orders in the depth, with corrections where they are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from ._meanfield_laws import (
    AlphaReluGrowth,
    IdleBranch,
    ReluFull,
    ReluReduced,
    TanhLikeAngle,
    TanhLikeGrowth,
)
from ._pairs import pair_rows
from .activations import Activation
from .activations import activation as make_activation
from .quadrature import moment_rows

__all__ = ["alpha_relu_growth", "idle_branch", "laws_of", "relu_full", "relu_reduced",
           "tanh_like_angle", "tanh_like_growth"]

FloatArray = NDArray[np.float64]

_FAR = 1e3              # where a tanh-like activation has settled
_SETTLED = 1e-12
_CLOSEST, _FURTHEST = 1e-13, 1.0    # where 1 - e* of alpha_relu is looked for


def tanh_like_growth(
    activation: Any, *, sigma_w: float, sigma_v: float = 1.0, sigma_a: float = 0.0
) -> TanhLikeGrowth:
    r"""Growth of p and of gradients for odd activations that settle at a constant.

    Parameters
    ----------
    activation : str or Activation
        Odd, with abs(phi) within rounding of its limit at h = 1000: tanh, erf, scaled_erf,
        hard_tanh. arctan and softsign settle too slowly (like 1/h): their p has a term
        sqrt(l) log(l).
    sigma_w, sigma_v : float
        > 0.
    sigma_a : float
        >= 0. A reduced block has sigma_v = 1 and sigma_a = 0; sigma_b does not count here.

    Returns
    -------
    TanhLikeGrowth

    Raises
    ------
    ValueError
        If an argument is out of range or the activation is not tanh-like.

    Notes
    -----
    With psi = phi / phi(inf), b = sigma_v^2 phi(inf)^2, Bt = b + sigma_a^2, I = int psi'^2 dx and
    k = int (1 - psi^2) dx: D = 2 b k / (sigma_w sqrt(2 pi Bt)), A = 2 I b sigma_w / sqrt(2 pi Bt),
    K = b^2 I / (pi Bt) (k / (2 Bt) - sigma_w^2 I / 4). chi_0 = exp(Theta(sqrt(l))) chi_l is
    Yang & Schoenholz 2017, Table 2. Deep: L = 50 leaves errors of up to 2.6 in
    ln(chi_0/chi_L), so sum the recurrence (`ResidualMeanField.run`) for numbers.

    Examples
    --------
    >>> from fastspec.meanfield import tanh_like_growth
    >>> round(tanh_like_growth("tanh", sigma_w=1.0).chi_root, 4)
    1.0638
    """
    phi = make_activation(activation)
    w, v, a = _sigmas(sigma_w, sigma_v, sigma_a)
    limit, slopes, missing = _saturation(phi)
    branch = v * v * limit * limit
    total = branch + a * a
    root = math.sqrt(2.0 * math.pi * total)
    return TanhLikeGrowth(
        total, 2.0 * branch * missing / (w * root), 2.0 * slopes * branch * w / root,
        branch**2 * slopes / (math.pi * total) * (missing / (2.0 * total) - w * w * slopes / 4.0))


def tanh_like_angle(
    activation: Any, *, sigma_w: float, sigma_v: float = 1.0, sigma_a: float = 0.0
) -> TanhLikeAngle:
    r"""Limit of e = gamma / p, and how it is approached, for the activations of `tanh_like_growth`.

    Parameters and errors are those of `tanh_like_growth`. Inputs that are equal (e = 1) stay so.

    Returns
    -------
    TanhLikeAngle

    Notes
    -----
    e* is the smallest root in [0, 1] of e = (b (2/pi) asin(e) + sigma_a^2) / Bt, 0 if sigma_a = 0;
    delta* = 1 - (2/pi) (b/Bt) / sqrt(1 - e*^2), in [1 - 2/pi, 1/2) (Yang & Schoenholz 2017,
    Table 2). For sigma_a > 0 the term l^(-1/2) hides the exponent delta* at any practical depth
    (at 1.7e7 layers the local slope is still .42 where delta* = .497): report e from a run.

    Examples
    --------
    >>> from fastspec.meanfield import tanh_like_angle
    >>> angle = tanh_like_angle("erf", sigma_w=1.0)
    >>> print(angle.e, round(angle.rate, 4))
    0.0 0.3634
    """
    phi = make_activation(activation)
    w, v, a = _sigmas(sigma_w, sigma_v, sigma_a)
    limit, _, missing = _saturation(phi)
    branch = v * v * limit * limit
    total = branch + a * a
    share = branch / total
    angle = _tanh_like_angle_root(share)
    e = math.cos(angle) if a > 0.0 else 0.0
    rate = 1.0 - 2.0 / math.pi * share / math.sin(angle)
    fall = missing / math.sqrt(2.0 * math.pi)
    root = -share * e * fall / ((0.5 - rate) * w * math.sqrt(total))
    return TanhLikeAngle(e, rate, root + 0.0, total)


def alpha_relu_growth(alpha: float, *, sigma_w: float, sigma_v: float = 1.0) -> AlphaReluGrowth:
    r"""Powers of the depth for full residual blocks with alpha_relu, 1/2 < alpha < 1.

    Parameters
    ----------
    alpha : float
        Between 1/2 and 1, both excluded. At or below 1/2 gradients have no second moment, at 1
        growth is exponential (`relu_full`), above it doubly exponential.
    sigma_w, sigma_v : float
        > 0. sigma_b and sigma_a drop out, because p grows faster than l.

    Returns
    -------
    AlphaReluGrowth

    Notes
    -----
    p ~ ((1 - alpha) Kp l)^(1/(1-alpha)), Kp = sigma_v^2 sigma_w^(2 alpha) E[h^(2 alpha); h > 0] at
    q = 1; chi_power R = alpha^2 / ((1 - alpha)(2 alpha - 1)), at least 4 (alpha = 2/3); chi_w and
    chi_v ~ l^(-alpha/(2 alpha - 1)), chi_b ~ l^(-R-1); J(e*) = e* for J = W/V, e* > .970, and
    e_rate = (1 - J'(e*)) / (1 - alpha) (Yang & Schoenholz 2017, Table 2, where alpha > 1/2 is
    not asked for).

    Examples
    --------
    >>> from fastspec.meanfield import alpha_relu_growth
    >>> law = alpha_relu_growth(0.75, sigma_w=1.0)
    >>> print(round(law.e, 5), round(law.chi_power, 12))
    0.99572 4.5
    """
    if not 0.5 < _checks.real("alpha", alpha) < 1.0:
        raise ValueError(f"alpha must lie between 1/2 and 1, both excluded, got {alpha!r}")
    w, v, _ = _sigmas(sigma_w, sigma_v, 0.0)
    phi = make_activation("alpha_relu", alpha=alpha)
    second = float(moment_rows(phi, np.ones(1), np.zeros(1), 1)[1, 0])
    rate = (1.0 - alpha) * v * v * w ** (2.0 * alpha) * second
    one_minus_e, slope = _alpha_relu_root(phi, second)
    chi = alpha**2 / ((1.0 - alpha) * (2.0 * alpha - 1.0))
    weight = -alpha / (2.0 * alpha - 1.0)
    return AlphaReluGrowth(
        1.0 / (1.0 - alpha), rate ** (1.0 / (1.0 - alpha)), 1.0 - one_minus_e, one_minus_e,
        (1.0 - slope) / (1.0 - alpha), chi, weight, weight, -chi - 1.0)


def relu_full(
    *, sigma_w: float, sigma_b: float = 0.0, sigma_v: float = 1.0, sigma_a: float = 0.0
) -> ReluFull:
    r"""Exact growth, and the law of the angle, for full residual blocks with ReLU.

    Parameters
    ----------
    sigma_w, sigma_v : float
        > 0.
    sigma_b, sigma_a : float
        >= 0.

    Returns
    -------
    ReluFull

    Notes
    -----
    Yang & Schoenholz 2017, Table 2. Weight gradients hardly depend on the layer
    ("completely preserved"), but all of them grow like Br^L with the depth.

    Examples
    --------
    >>> from fastspec.meanfield import relu_full
    >>> law = relu_full(sigma_w=1.0)
    >>> print(law.growth, round(law.one_minus_e(65536) * 65536**2, 2))
    1.5 399.72
    """
    w, v, a = _sigmas(sigma_w, sigma_v, sigma_a)
    b = _checks.real("sigma_b", sigma_b, low=0.0)
    excess = 0.5 * v * v * w * w
    ratio = (1.0 + excess) / excess
    return ReluFull(1.0 + excess, 0.5 * v * v * b * b + a * a, 4.5 * math.pi**2 * ratio**2,
                    3.0 * math.pi / math.sqrt(2.0) * ratio)


def relu_reduced(*, sigma_w: float) -> ReluReduced:
    r"""Growth of p, mean and angle for reduced residual blocks with ReLU.

    Parameters
    ----------
    sigma_w : float
        > 0. sigma_b does not count for deep networks.

    Returns
    -------
    ReluReduced

    Notes
    -----
    With a0 = sigma_w / sqrt(2 pi): u* (sqrt(G) - 1) = a0, G = 1 + sigma_w^2/2 + 2 u* a0. The mean
    of the activations is not negligible here (it is missing in Yang & Schoenholz 2017, who let
    ReLU go with full blocks): angles collapse exponentially, and early weights get small gradients.

    Examples
    --------
    >>> from fastspec.meanfield import relu_reduced
    >>> law = relu_reduced(sigma_w=1.0)
    >>> print(round(law.mean_share, 4), round(law.growth, 4), round(law.angle_ratio, 4))
    0.8421 2.1719 0.6906
    """
    w = _checks.real("sigma_w", sigma_w, low=0.0, strict=True)
    step, chi = w / math.sqrt(2.0 * math.pi), 1.0 + 0.5 * w * w
    # r = sqrt(G) solves (r - 1) (r^2 - chi) = 2 step^2; one root is beyond sqrt(chi).
    root = float(np.max(np.roots([1.0, -1.0, -chi, chi - 2.0 * step * step]).real))
    return ReluReduced(step / (root - 1.0), root * root, chi, chi / (root * root))


def idle_branch(
    activation: Any, *, sigma_w: float = 0.0, sigma_b: float = 0.0, sigma_v: float = 1.0,
    sigma_a: float = 0.0,
) -> IdleBranch:
    r"""p where sigma_w = 0 or sigma_v = 0 of a full block; exact.

    sigma_v = 0: p_l = p_0 + sigma_a^2 l. sigma_w = 0: h = b, and
    p_l = p_0 + (sigma_v^2 E phi(b)^2 + sigma_a^2) l. s and chi are constant. A reduced block with
    sigma_w = 0 and an odd activation is the same with sigma_v = 1 and sigma_a = 0.

    Examples
    --------
    >>> from fastspec.meanfield import idle_branch
    >>> idle_branch("relu", sigma_b=2.0).moment_rate
    2.0
    """
    w, b, v, a = (_checks.real(name, value, low=0.0) for name, value in (
        ("sigma_w", sigma_w), ("sigma_b", sigma_b), ("sigma_v", sigma_v), ("sigma_a", sigma_a)))
    if w * v != 0.0:
        raise ValueError(f"sigma_w or sigma_v must be 0, got {w:g} and {v:g}")
    second = moment_rows(make_activation(activation), np.array([b * b]), np.zeros(1), 1)[1, 0]
    return IdleBranch(float(v * v * second) + a * a)


def laws_of(field: Any) -> tuple[Any, ...]:
    """The laws that apply to a `ResidualMeanField`; ValueError with the reason if none does."""
    phi, block = field.activation, field.block
    if block == "vanilla":
        raise ValueError("vanilla blocks have no law of growth: they tend to fixed points, see "
                         "fastspec.signal.depth_scales")
    sigmas = {"sigma_w": field.sigma_w, "sigma_v": field.sigma_v, "sigma_a": field.sigma_a}
    plain = block == "full" or phi.odd
    if field.sigma_w * field.sigma_v == 0.0 and plain:
        return (idle_branch(phi, sigma_b=field.sigma_b, **sigmas),)
    if field.sigma_w * field.sigma_v > 0.0:
        if phi.name == "relu" and block == "reduced":
            return (relu_reduced(sigma_w=field.sigma_w),)
        if phi.name == "relu":
            return (relu_full(sigma_b=field.sigma_b, **sigmas),)
        if phi.name == "alpha_relu" and block == "full" and 0.5 < phi.parameter < 1.0:
            return (alpha_relu_growth(phi.parameter, sigma_w=field.sigma_w,
                                      sigma_v=field.sigma_v),)
        if phi.odd:
            return tanh_like_growth(phi, **sigmas), tanh_like_angle(phi, **sigmas)
    raise ValueError(f"no law of growth is known for {block} blocks with {phi!r} at sigma_w = "
                     f"{field.sigma_w:g}, sigma_v = {field.sigma_v:g}: known are tanh-like "
                     "activations, relu, alpha_relu with 1/2 < alpha < 1 in full blocks, and "
                     "idle branches")


def _sigmas(sigma_w: Any, sigma_v: Any, sigma_a: Any) -> tuple[float, float, float]:
    return (_checks.real("sigma_w", sigma_w, low=0.0, strict=True),
            _checks.real("sigma_v", sigma_v, low=0.0, strict=True),
            _checks.real("sigma_a", sigma_a, low=0.0))


def _saturation(phi: Activation) -> tuple[float, float, float]:
    """phi(inf), int psi'^2 dx and int (1 - psi^2) dx of psi = phi / phi(inf)."""
    near, far = abs(phi(_FAR)), abs(phi(2.0 * _FAR))
    if not phi.odd or abs(far - near) > _SETTLED * far:
        raise ValueError(f"activation must be odd and settle at a constant faster than 1/h, as "
                         f"tanh, erf, scaled_erf and hard_tanh do; {phi!r} is not known to")
    return far, (2.0 / far**2) * _half_line(phi, lambda x: phi.derivative(x) ** 2), (
        2.0 * _half_line(phi, lambda x: 1.0 - (phi(x) / far) ** 2))


def _half_line(phi: Activation, function: Callable[[float], float]) -> float:
    from scipy.integrate import quad

    ends = [0.0, *(kink for kink in phi.kinks if kink > 0.0), math.inf]
    return math.fsum(quad(function, low, high, epsabs=1e-14, epsrel=1e-13)[0]
                     for low, high in zip(ends[:-1], ends[1:], strict=True))


def _tanh_like_angle_root(share: float) -> float:
    """t = acos e* for e* = share (2/pi) asin(e*) + 1 - share, that is 1 - cos t = share (2/pi) t.

    t = 0 is the other root, which repels.
    """
    if share == 1.0:
        return 0.5 * math.pi
    from scipy.optimize import brentq

    slope = share * 2.0 / math.pi
    return float(brentq(lambda t: 2.0 * math.sin(0.5 * t) ** 2 / t - slope, slope, 0.5 * math.pi,
                        xtol=1e-300, rtol=1e-15))


def _alpha_relu_root(phi: Activation, second: float) -> tuple[float, float]:
    """1 - e* and J'(e*) at the root J(e*) = e* inside (0, 1), J = W/V."""
    from scipy.optimize import brentq

    def rows(distance: float) -> FloatArray:
        return pair_rows(phi, np.ones(1), np.array([distance]))[:, 0] / second

    def growth(log_distance: float) -> float:
        distance = math.exp(log_distance)
        return float(math.log(rows(distance)[1] / distance))

    at = math.exp(brentq(growth, math.log(_CLOSEST), math.log(_FURTHEST), xtol=1e-13))
    return at, float(rows(at)[2])

