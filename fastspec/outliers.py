"""Outliers: single singular values of a real network that the law of its bulk does not contain."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._outlier_layers import Statistics
    from ._outlier_search import Found
    from .feedforward import FeedForward
    from .resnet import ResNet

__all__ = ["Outlier", "not_covered", "outliers"]

_NOT_SINGULAR = 1.0 - 1e-6  # kappa/skip^2 up to which the bulk stays away from 0 to speak of
_RESOLVED = 1e-12           # relative distance from the edge that is more than rounding
_THREADED = 25              # depth from which BLAS takes several threads


@dataclass(frozen=True)
class Outlier:
    """One eigenvalue of J J^T outside the bulk, at infinite width.

    Attributes
    ----------
    value : float
        The eigenvalue lambda.
    singular_value : float
        Its root.
    side : {"above", "below"}
        Of the bulk.
    overlap_input, overlap_ones_input : float
        Squared cosine, in [0, 1], of the angle between the right singular vector and the input
        x^0, and the vector of ones.
    overlap_output, overlap_ones_output : float
        The same for the left singular vector and the output x^L, and the vector of ones.
    detached : bool
        Whether it stands apart from the bulk by more than rounding. If False the count of
        outliers contains it, but the network is at the threshold.
    margin : float
        abs(value - edge) / edge.
    edge : float
        The end of the bulk, in lambda, on this side.
    """

    value: float
    singular_value: float
    side: str
    overlap_input: float
    overlap_ones_input: float
    overlap_output: float
    overlap_ones_output: float
    detached: bool
    margin: float
    edge: float


def outliers(net: FeedForward | ResNet) -> tuple[Outlier, ...]:
    r"""Eigenvalues of J J^T of a real network outside the bulk that ``net.spectrum()`` describes.

    In a real network the slopes D^l = diag phi'(h^l) depend on the weights by
    h^l = W^l x^{l-1} + b^l. Beside the free product of the layers that is a perturbation of finite
    rank: it leaves the bulk as it is and moves single eigenvalues out of it. With
    W^l = g_l xh_{l-1}^T + fresh weights, xh the direction of x, they are the zeros of det F(z),
    F = T^{-1} - R of size 2L. Eigenvalues of F cross zero one way only, so the number of outliers
    is read off its inertia at the edge of the bulk.

    Parameters
    ----------
    net : ResNet or FeedForward
        The result depends on the input by ``input_second_moment`` and ``input_mean`` only.

    Returns
    -------
    tuple of Outlier
        Descending; empty if there is none, as for linear networks. Unbounded slopes give a bulk
        without upper end, and nothing above it.

    Raises
    ------
    ValueError
        With batch norm, branches of several layers, layers of unequal width or an input of zeros:
        these are not covered.
    OverflowError
        If the signal or an outlier leaves the range of double precision.
    ConvergenceError
        If an outlier that is counted cannot be found, is too far from the bulk for doubles (beyond
        about 1e10 times its edge), or phi' is much too rough for the Gaussian rules.

    Warns
    -----
    ConvergenceWarning
        If Gaussian expectations err by more than 1e-11, or an outlier is so far from the bulk that
        its overlaps are not good to 1e-6. The message says how much.

    Notes
    -----
    Derived by conditioning on the forward pass and by deterministic equivalents for what is left;
    checked by simulations, not proved.
    The layers of a residual network are taken as free of each other at each coordinate: the
    outliers are off by less than about 1e-3 for that. For plain chains nothing is neglected.

    * The values are those of infinite width. In one network of width N an outlier is off by about
      C/sqrt(N), C = 0.3 to 3, mostly because the forward pass of that network fluctuates; means
      over networks agree.
    * Near the threshold, where an outlier leaves the bulk, finite width rounds the transition: the
      vectors overlap more than is given here.
    * Outliers below the bulk are looked for in residual networks in which every layer has
      kappa_l < skip^2, so that the bulk stays away from 0. Those of feed-forward networks, and
      those of orthogonal weights with a gap at 0 for another reason, are not covered.
    * Networks that apply phi before the weights are not covered: their slopes depend on each other
      from layer to layer. Nor are batch norm and rectangular layers.

    Examples
    --------
    >>> from fastspec.networks import ResNet
    >>> (top,) = ResNet(depth=20, activation="relu").outliers()
    >>> print(f"{top.value:.2f}, bulk up to {top.edge:.2f}")
    25.45, bulk up to 7.87
    >>> print(f"cosine of v_1 and x^0: {top.overlap_input ** 0.5:.3f}")
    cosine of v_1 and x^0: 0.635
    >>> ResNet(depth=20, activation="tanh").outliers()
    ()
    """
    if reason := not_covered(net):
        raise ValueError(reason)
    statistics, kappa = _statistics(net)
    if statistics.top == math.inf or _is_bulk_only(statistics):
        return ()
    with _one_blas_thread(statistics.depth):
        return _both_sides(statistics, kappa)


def _both_sides(statistics: Statistics, kappa: Any) -> tuple[Outlier, ...]:
    from ._outlier_search import found

    above = [_outlier(one, "above") for one in found(statistics, 1)]
    if not np.all(kappa < _NOT_SINGULAR * statistics.skip**2):
        return tuple(above)
    below = [_outlier(one, "below") for one in found(statistics, -1)]
    return tuple(above + below[::-1])


def _one_blas_thread(depth: int) -> AbstractContextManager[Any]:
    """Threads on a few hundred rows wait for each other: ten times slower on a busy machine. For
    small matrices BLAS uses one anyway, and setting it would cost more than it saves."""
    if depth < _THREADED:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


def not_covered(net: Any) -> str | None:
    """Why networks of this kind have no known outliers, or None."""
    if getattr(net, "batch_norm", None) is not None:
        return (f"batch_norm must be None for outliers, got {net.batch_norm!r}: they are not "
                "covered with batch norm")
    if getattr(net, "branch_layers", 1) != 1:
        return (f"branch_layers must be 1 for outliers, got {net.branch_layers}: longer branches "
                "are not covered")
    if not getattr(net, "is_square", True):
        return (f"widths must be equal for outliers, got {net.widths!r}: rectangular layers are "
                "not covered")
    return None


def _statistics(net: Any) -> tuple[Statistics, Any]:
    """What `_outlier_search` needs, and kappa of every layer."""
    from ._outlier_layers import Statistics, slope_peak, slope_supremum

    signal = net.propagate()
    first = net.input_second_moment
    if getattr(net, "q", None) is not None:      # every layer at the fixed point, the input too
        first = (float(signal.q[0]) - net.sigma_b**2) / net.weight_variance
    second_moment = np.concatenate([[first], signal.second_moment])
    if not np.all(second_moment > 0.0):
        raise ValueError(f"input_second_moment must be > 0 for outliers, and no signal may vanish; "
                         f"E x^2 is {second_moment.min():g} at layer {second_moment.argmin()}")
    if net.input_mean**2 > first * (1.0 + 1e-15):
        raise ValueError(f"input_mean must have a square of at most {first:g}, the second moment "
                         f"of an input at the fixed point, got {net.input_mean:g}")
    top = slope_supremum(net.activation)
    return Statistics(
        net.activation, getattr(net, "skip", 0.0), net.weight_variance, net.sigma_b**2,
        net.weights == "orthogonal", net.input_mean, second_moment, signal.q, top,
        slope_peak(net.activation, top)), signal.kappa


def _is_bulk_only(statistics: Statistics) -> bool:
    """Whether J J^T is a multiple of 1 (phi' = 0), or s^2 D^2 up to a rotation (one orthogonal
    layer)."""
    one_rotation = statistics.skip == 0.0 and statistics.orthogonal and statistics.depth == 1
    return statistics.top == 0.0 or one_rotation


def _outlier(one: Found, side: str) -> Outlier:
    with np.errstate(over="ignore", under="ignore"):
        value, edge = (float(np.exp(log)) for log in (one.log_z, one.log_edge))
    if not 0.0 < value < math.inf:
        raise OverflowError(f"an outlier at log lambda = {one.log_z:.6g} leaves the range of "
                            "double precision")
    margin = abs(math.expm1(one.log_z - one.log_edge))
    x0, ones_in, x_out, ones_out = one.overlaps
    return Outlier(value, math.exp(0.5 * one.log_z), side, x0, ones_in, x_out, ones_out,
                   margin > _RESOLVED, margin, edge)
