"""Signal statistics of a network, layer by layer, and one step of their recursion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import quadrature

if TYPE_CHECKING:
    from .feedforward import FeedForward
    from .resnet import ResNet

__all__ = ["BranchLayer", "Propagation"]

FloatArray = NDArray[np.float64]


class BranchLayer(NamedTuple):
    """Statistics of one layer inside the branch, block by block; entries of shape (depth,).

    Named as in `Propagation`; mean and second_moment are those of the layer's output phi(h), and
    kappa belongs to this layer alone.
    """

    q: FloatArray
    mean: FloatArray
    second_moment: FloatArray
    slope_mean: FloatArray
    slope_second: FloatArray
    kappa: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Propagation:
    """Signal statistics of a network, layer by layer; made by ``net.propagate()``.

    In a residual network an entry belongs to a block, and q, slope_mean and slope_second to the
    last layer of its branch.

    Attributes
    ----------
    q : ndarray, shape (depth,)
        Variance of the pre-activations h^l; with batch norm, before normalisation.
    mean, second_moment : ndarray, shape (depth,)
        E x^l and E (x^l)^2 of the layer's output.
    slope_mean, slope_second : ndarray, shape (depth,)
        mu_1 = E phi'^2 and mu_2 = E phi'^4 at h^l, or at the normalised h^l with batch norm; mu_2
        may be infinite (alpha_relu).
    kappa : ndarray, shape (depth,)
        Mean squared singular value of the layer's D W, or of the whole branch.
    input_mean, input_second_moment : float
        E x^0 and E (x^0)^2.
    inner : tuple of BranchLayer
        The other layers of the branch, the one next to the block's input first; empty if
        there is one layer.
    """

    q: FloatArray
    mean: FloatArray
    second_moment: FloatArray
    slope_mean: FloatArray
    slope_second: FloatArray
    kappa: FloatArray
    input_mean: float
    input_second_moment: float
    inner: tuple[BranchLayer, ...] = ()

    def __post_init__(self) -> None:
        for column in self._columns().values():
            column.setflags(write=False)

    def __len__(self) -> int:
        return self.q.size

    def to_dict(self) -> dict[str, list[float]]:
        """The arrays as lists, by name; those of ``inner[i]`` are called ``inner{i+1}_q`` etc."""
        return {name: column.tolist() for name, column in self._columns().items()}

    def _columns(self) -> dict[str, FloatArray]:
        columns = {name: getattr(self, name) for name in BranchLayer._fields}
        for number, layer in enumerate(self.inner, start=1):
            columns |= {f"inner{number}_{name}": column
                        for name, column in layer._asdict().items()}
        return columns

    def __repr__(self) -> str:
        ends = [f"{name} {column[0]:.6g} .. {column[-1]:.6g}"
                for name, column in self._columns().items()]
        return f"Propagation({len(self)} layers: {', '.join(ends)})"


def layer_moments(
    net: FeedForward | ResNet, layer: int, q: float, variance: float, mean: float
) -> FloatArray:
    """E phi, E phi^2, mu_1, mu_2 of a layer (numbered from 1) whose phi acts on N(mean, variance).

    q is the variance of its pre-activations.
    """
    if not q < math.inf:
        raise OverflowError(f"q leaves the range of double precision at layer {layer} of "
                            f"{net.depth}: the signal explodes")
    at = np.array([variance]), np.array([mean])
    moments = quadrature.moment_rows(net.activation, *at, 2)[:, 0]
    if moments[2] == math.inf:
        raise ValueError(f"mu_1 = E phi'(h)^2 of {net.activation!r} is infinite at layer {layer}, "
                         f"q = {q:g}")
    return moments


def as_propagation(
    net: FeedForward | ResNet, rows: FloatArray, inner: FloatArray | tuple[FloatArray, ...] = ()
) -> Propagation:
    """The result from its rows q, E x, E x^2, mu_1, mu_2, kappa, and those of the inner layers."""
    if not np.all(np.isfinite(rows[:3])):
        layer = int(np.argmin(np.all(np.isfinite(rows[:3]), axis=0))) + 1
        raise OverflowError(f"E x^2 leaves the range of double precision at layer {layer} of "
                            f"{net.depth}: the signal explodes")
    q, mean, second_moment, slope_mean, slope_second, kappa = rows.copy()
    return Propagation(
        q, mean, second_moment, slope_mean, slope_second, kappa,
        getattr(net, "input_mean", 0.0), net.input_second_moment,
        tuple(BranchLayer(*layer.copy()) for layer in inner))
