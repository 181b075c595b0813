"""Choosing an initialisation: the sigma_w that gives a wanted spectrum, gains, recommendations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _checks, quadrature
from ._inverse import Network, one_target, solve
from ._recommend import Recommendation, recommend
from .activations import activation as make_activation
from .networks import FeedForward, ResNet

__all__ = ["Recommendation", "gain", "recommend", "sigma_w_for"]


def sigma_w_for(net: Network, *, c: float | None = None, condition_number: float | None = None,
                variance: float | None = None, top_singular_value: float | None = None,
                limit: bool = False) -> float:
    r"""The smallest sigma_w with which a network reaches a target; give exactly one.

    Parameters
    ----------
    net : ResNet or FeedForward
        Its own ``sigma_w`` does not matter; everything else stays as it is. With
        ``q="fixed_point"`` q* moves with sigma_w.
    c : float
        Effective cumulant, ``net.effective_cumulant()``, > 0; residual networks only.
    condition_number : float
        Of J, ``net.spectrum(limit).condition_number()``, > 1: that of the bulk. Single outliers of
        real networks leave it (ReLU): ``net.outliers()`` has them, and
        ``net.condition_number(include_outliers=True)`` counts them.
    variance : float
        Variance of the squared singular values over their mean squared, > 0. For feed-forward
        networks it is ``net.jacobian_variance()``, at chi = 1 the sigma^2_{JJT} of Pennington,
        Schoenholz & Ganguli 2018; for residual ones the sum over blocks of Ling & Qiu 2018,
        theorem 2, which tends to 2 c / skip^2 with the depth.
    top_singular_value : float
        The largest singular value of J, ``net.top_singular_value()``, > 0: an outlier where one
        stands above the bulk, else the bulk's upper end, atoms included. It is the bulk's with
        ``limit=True`` and for networks whose outliers are not covered (batch norm, branches of
        several layers, unequal widths).
    limit : bool
        False: by the law at the network's depth. True: by the law of infinite depth, the same for
        all activations (Tarnowski et al. 2018, eq. 25), which has no outliers. The cumulant c is
        that of the network either way. Feed-forward networks have such a law on their critical
        line only, where sigma_w is not free: they raise.

    Returns
    -------
    float
        sigma_w with ``dataclasses.replace(net, sigma_w=...)`` at the target to 1e-10 relative (for
        a condition number: of its logarithm). If every sigma_w is, it is one of them.

    Raises
    ------
    ValueError
        If not exactly one target is given, a parameter is out of range, or no sigma_w reaches the
        target; the message then has the nearest value found and its sigma_w.

    Warns
    -----
    ConvergenceWarning
        What the law at the solution warns of; trials on the way are silent.

    Notes
    -----
    Figures need not grow with sigma_w: they may saturate (batch norm), have a peak (orthogonal
    weights: a block a I + s Q has condition number (a + s)/abs(a - s)), not depend on sigma_w at
    all (the variance of ReLU networks) or be infinite everywhere (condition number of feed-forward
    networks whose slopes come near 0, or with Gaussian weights). So the search goes up from where
    the signal of the weights is faint, in steps of sqrt 2, follows peaks to their top, and takes
    the first change of sign to Brent's method. A pair of solutions closer than a step with no
    peak seen between the trials can be missed.

    A top singular value with outliers takes about ten times ``net.outliers()``, which is
    O(depth^3) for residual networks: 2 s at depth 100, minutes at 400. ``limit=True`` is quick.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from fastspec.networks import ResNet
    >>> from fastspec.initialize import sigma_w_for
    >>> net = ResNet(depth=100, activation="gelu")
    >>> sigma_w = sigma_w_for(net, condition_number=4.0)
    >>> tuned = replace(net, sigma_w=sigma_w)
    >>> print(round(sigma_w, 4), round(tuned.spectrum().condition_number(), 9))
    0.9493 4.0
    """
    if not isinstance(net, FeedForward | ResNet):
        raise ValueError(f"net must be a ResNet or a FeedForward, got {type(net).__name__}")
    name, value = one_target({"c": c, "condition_number": condition_number, "variance": variance,
                              "top_singular_value": top_singular_value})
    if not isinstance(limit, bool | np.bool_):
        raise ValueError(f"limit must be True or False, got {limit!r}")
    if isinstance(net, FeedForward):
        if name == "c":
            raise ValueError("c belongs to residual networks: give a FeedForward network "
                             "condition_number, variance or top_singular_value")
        if limit:
            raise ValueError("limit=True needs a residual network: a FeedForward network has a "
                             "law of infinite depth on its critical line only, and that fixes "
                             "sigma_w")
    return solve(net, name, value, bool(limit))


def gain(activation: Any, q: float = 1.0, *, mode: str = "forward") -> float:
    r"""He-like gain g of an activation: the standard deviation of weights is g / sqrt(fan).

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or what `fastspec.activation` returns: any phi will do.
    q : float
        Variance of the pre-activations h ~ N(0, q), > 0.
    mode : {"forward", "backward"}
        "forward": g^2 = q / E phi(h)^2, so that with Var W_ij = g^2 / fan_in the next layer's h
        have variance q again. "backward": g^2 = 1 / E phi'(h)^2, so that with g^2 / fan_out
        gradients keep their second moment. In layers of one width the two are equal for
        positively homogeneous phi only (relu, leaky_relu, linear; there q does not matter).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range, or the expectation is 0 or infinite (alpha_relu with
        alpha <= 1/2 has gradients without second moment).

    Notes
    -----
    He et al. 2015 for relu; in general the two conditions of mean-field theory: q a fixed point of
    the variance map without biases, and chi = 1 (Pennington, Schoenholz & Ganguli 2018). A pair
    (sigma_w, sigma_b) that has both is `fastspec.signal.critical_point`. At q = 1:

    ===========  ========  =========
    activation   forward   backward
    ===========  ========  =========
    linear       1.0000    1.0000
    relu         1.4142    1.4142
    leaky_relu   1.4141    1.4141
    hard_tanh    1.3920    1.2103
    tanh         1.5925    1.4674
    arctan       1.4912    1.4142
    erf          1.4672    1.3252
    scaled_erf   1.5458    1.4266
    sigmoid      1.8462    4.7226
    softplus     1.0419    1.8462
    silu         1.6765    1.6233
    gelu         1.5335    1.4811
    elu          1.2452    1.2234
    selu         1.0000    0.9660
    mish         1.4868    1.4448
    softsign     2.3375    2.0958
    sin          1.5209    1.3273
    ===========  ========  =========

    Frameworks give tanh 5/3, an empirical value. For deep residual networks no gain is right that
    does not know the depth: see `sigma_w_for` and `recommend`.

    Examples
    --------
    >>> from fastspec.initialize import gain
    >>> round(gain("relu"), 6), round(gain("mish"), 4), round(gain("mish", mode="backward"), 4)
    (1.414214, 1.4868, 1.4448)
    """
    phi = make_activation(activation)
    q = _checks.real("q", q, low=0.0, strict=True)
    forward = _checks.choice("mode", mode, ("forward", "backward")) == "forward"
    moments = quadrature.moment_rows(phi, np.array([q]), np.zeros(1), 1)[:, 0]
    moment = float(moments[1] / q if forward else moments[2])
    if not 0.0 < moment < math.inf:
        what = "E phi(h)^2" if forward else "E phi'(h)^2"
        raise ValueError(f"{phi!r} has no {mode} gain at q = {q:g}: {what} is {moment:g}")
    return 1.0 / math.sqrt(moment)
