"""Signal statistics of a network, layer by layer, and one step of their recursion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import quadrature

if TYPE_CHECKING:
    from .networks import FeedForward, ResNet

__all__ = ["Propagation"]

FloatArray = NDArray[np.float64]

_FIELDS = ("q", "mean", "second_moment", "slope_mean", "slope_second", "kappa")


@dataclass(frozen=True, eq=False, repr=False)
class Propagation:
    """Signal statistics of a network, layer by layer; made by ``net.propagate()``.

    Attributes
    ----------
    q : ndarray, shape (depth,)
        Variance of the pre-activations h^l.
    mean, second_moment : ndarray, shape (depth,)
        E x^l and E (x^l)^2 of the layer's output.
    slope_mean, slope_second : ndarray, shape (depth,)
        mu_1 = E phi'(h^l)^2 and mu_2 = E phi'(h^l)^4; mu_2 may be infinite (alpha_relu).
    kappa : ndarray, shape (depth,)
        N Var(W_ij) mu_1: mean squared singular value of the layer's D W.
    input_mean, input_second_moment : float
        E x^0 and E (x^0)^2.
    """

    q: FloatArray
    mean: FloatArray
    second_moment: FloatArray
    slope_mean: FloatArray
    slope_second: FloatArray
    kappa: FloatArray
    input_mean: float
    input_second_moment: float

    def __post_init__(self) -> None:
        for name in _FIELDS:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return self.q.size

    def to_dict(self) -> dict[str, list[float]]:
        """The arrays per layer as lists, by name."""
        return {name: getattr(self, name).tolist() for name in _FIELDS}

    def __repr__(self) -> str:
        ends = [f"{name} {getattr(self, name)[0]:.6g} .. {getattr(self, name)[-1]:.6g}"
                for name in _FIELDS]
        return f"Propagation({len(self)} layers: {', '.join(ends)})"


def layer_moments(net: FeedForward | ResNet, layer: int, q: float) -> FloatArray:
    """E phi, E phi^2, mu_1, mu_2 at variance q of a layer (numbered from 1)."""
    if not q < math.inf:
        raise OverflowError(f"q leaves the range of double precision at layer {layer} of "
                            f"{net.depth}: the signal explodes")
    moments = quadrature.moment_rows(net.activation, np.array([q]), np.zeros(1), 2)[:, 0]
    if moments[2] == math.inf:
        raise ValueError(f"mu_1 = E phi'(h)^2 of {net.activation!r} is infinite at layer {layer}, "
                         f"q = {q:g}")
    return moments


def as_propagation(net: FeedForward | ResNet, rows: FloatArray) -> Propagation:
    """The result from its rows q, E x, E x^2, mu_1, mu_2."""
    if not np.all(np.isfinite(rows[:3])):
        layer = int(np.argmin(np.all(np.isfinite(rows[:3]), axis=0))) + 1
        raise OverflowError(f"E x^2 leaves the range of double precision at layer {layer} of "
                            f"{net.depth}: the signal explodes")
    q, mean, second_moment, slope_mean, slope_second = rows.copy()
    return Propagation(
        q, mean, second_moment, slope_mean, slope_second, net.weight_variance * slope_mean,
        getattr(net, "input_mean", 0.0), net.input_second_moment)
