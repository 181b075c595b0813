"""Linear maps between positions, and convolutions: the sums that second moments need.

Entries of one channel have the second moment m and E[x x'] = r m between two different positions.
Of a fixed map A only four sums matter, and all of them are products over height and width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._scaling_ops import AvgPool2d, Conv2d, MaxPool2d, Shape, Stride, Upsample, pair

FloatArray = NDArray[np.float64]

_PADDING = {"circular": "wrap", "reflect": "reflect", "replicate": "edge"}


class MapSums(NamedTuple):
    """Sums of a matrix A of shape (n_out, n_in)."""

    n_out: int
    n_in: int
    squares: float    # sum A_ij^2
    rows: float       # sum_i (sum_j A_ij)^2
    columns: float    # sum_j (sum_i A_ij)^2
    total: float      # sum A_ij

    def transposed(self) -> MapSums:
        """Sums of A^T, which takes gradients back."""
        return MapSums(self.n_in, self.n_out, self.squares, self.columns, self.rows, self.total)

    def apply(self, moment: float, correlation: float) -> tuple[float, float]:
        """Second moment and correlation of A x, both averaged over the positions.

        With one output position the correlation is that between two inputs.
        """
        m, r = moment, correlation
        out = m * ((1.0 - r) * self.squares + r * self.rows) / self.n_out
        if self.n_out == 1:
            return out, m * r * self.total**2 / out
        everything = m * ((1.0 - r) * self.columns + r * self.total**2)
        return out, (everything / (self.n_out * out) - 1.0) / (self.n_out - 1)


class TapSums(NamedTuple):
    """Of a convolution: over the places d of the kernel, what v_d outputs see under that place.

    Random weights at different places are independent, so only outputs under the same place have
    anything in common. Padding that copies entries lets one entry be seen several times.
    """

    n_out: int
    n_in: int
    kernel: int       # number of places
    meetings: int     # sum v_d
    copies: int       # sum over d and entries of (times the entry is seen)^2
    squares: int      # sum v_d^2

    def forward(self, moment: float, correlation: float) -> tuple[float, float]:
        """sum_d of what the outputs see: second moment and correlation, averaged over outputs."""
        m, r = moment, correlation
        everything = (1.0 - r) * self.copies + r * self.squares
        return m * self.meetings / self.n_out, _off_diagonal(everything, self.meetings, self.n_out,
                                                             r)

    def backward(self, moment: float, correlation: float) -> tuple[float, float]:
        """The same for gradients of the outputs that arrive at the entries."""
        m, r = moment, correlation
        diagonal = (1.0 - r) * self.meetings + r * self.copies
        everything = (1.0 - r) * self.meetings + r * self.squares
        return m * diagonal / self.n_in, _off_diagonal(everything, diagonal, self.n_in, r)

    def weight_gradient(self, correlation: float, gradient_correlation: float) -> float:
        """E[DW^2] / (E[x^2] E[Dy^2]): sum over pairs of outputs, averaged over the places."""
        r, s = correlation, gradient_correlation
        pairs = (self.copies - self.meetings) * s + (self.squares - self.copies) * r * s
        return (self.meetings + pairs) / self.kernel


def _off_diagonal(everything: float, diagonal: float, n: int, single: float) -> float:
    """Mean correlation of n positions from their sums; of a single one that between inputs."""
    return (everything / diagonal - 1.0) / (n - 1) if n > 1 else single


def map_sums(op: AvgPool2d | Stride | Upsample, size: Shape) -> MapSums:
    """Sums of a pooling, striding or upsampling of images of this size."""
    if isinstance(op, Upsample):
        factors = pair("factor", op.factor)
        matrices = [np.repeat(np.eye(n), f, axis=0) for n, f in zip(size, factors, strict=True)]
    elif isinstance(op, Stride):
        matrices = [np.eye(n)[::s] for n, s in zip(size, pair("stride", op.stride), strict=True)]
    else:
        matrices = [a / k for a, k in zip(windows(op, size), pair("kernel", op.kernel),
                                          strict=True)]
    a, b = (_sums(matrix) for matrix in matrices)
    return MapSums(a.n_out * b.n_out, a.n_in * b.n_in, a.squares * b.squares, a.rows * b.rows,
                   a.columns * b.columns, a.total * b.total)


def windows(op: AvgPool2d | MaxPool2d, size: Shape) -> list[FloatArray]:
    """Along height and width: 1 where a window (row) holds a position (column), else 0."""
    kernel, padding = pair("kernel", op.kernel), pair("padding", op.padding, 0)
    stride = kernel if op.stride is None else pair("stride", op.stride)
    out = op.output_shape((1, *size))[1:]
    matrices = []
    for n, n_out, k, s, p in zip(size, out, kernel, stride, padding, strict=True):
        first = s * np.arange(n_out)[:, np.newaxis] - p
        place = np.arange(n)
        matrices.append(((place >= first) & (place < first + k)).astype(float))
    return matrices


def shared_maxima(vertical: FloatArray, horizontal: FloatArray) -> float:
    """Expected number of ordered pairs of windows that have the same largest entry.

    It is the largest of the union of two windows, and in what they share: share / union.
    """
    axes = []
    for holds in (vertical, horizontal):
        shared = holds @ holds.T
        first, second = np.nonzero(shared)
        sizes = holds.sum(axis=1)
        axes.append((shared[first, second], sizes[first], sizes[second]))
    both, one, other = (np.outer(a, b) for a, b in zip(*axes, strict=True))
    return float(np.sum(both / (one + other - both))) - len(vertical) * len(horizontal)


def tap_sums(op: Conv2d, size: Shape) -> TapSums:
    """Sums of a convolution of images of this size."""
    kernel, stride = pair("kernel", op.kernel), pair("stride", op.stride)
    padding, dilation = pair("padding", op.padding, 0), pair("dilation", op.dilation)
    out = op.output_shape((op.n_in, *size))[1:]
    sums = [_axis_sums(seen) for seen in
            (_seen(n, n_out, k, s, p, d, op.padding_mode) for n, n_out, k, s, p, d in
             zip(size, out, kernel, stride, padding, dilation, strict=True))]
    meetings, copies, squares = (a * b for a, b in zip(*sums, strict=True))
    if meetings == 0:
        raise ValueError("its outputs see nothing but the padding")
    return TapSums(math.prod(out), math.prod(size), math.prod(kernel), meetings, copies, squares)


def _seen(n: int, n_out: int, k: int, s: int, p: int, d: int, mode: str) -> NDArray[np.int64]:
    """How often each entry (last axis) is seen under each place of the kernel, along one axis."""
    entries = np.arange(n)
    padded = (np.pad(entries, p, constant_values=-1) if mode == "zeros"
              else np.pad(entries, p, mode=_PADDING[mode]))    # type: ignore[call-overload]
    rows = padded[s * np.arange(n_out) + d * np.arange(k)[:, np.newaxis]]
    return np.array([np.bincount(row[row >= 0], minlength=n) for row in rows])


def _axis_sums(times: NDArray[np.int64]) -> tuple[int, int, int]:
    """meetings, copies and squares along one axis."""
    return int(times.sum()), int((times**2).sum()), int((times.sum(axis=1) ** 2).sum())


def _sums(a: FloatArray) -> MapSums:
    n_out, n_in = a.shape
    return MapSums(n_out, n_in, float(np.sum(a**2)), float(np.sum(a.sum(axis=1) ** 2)),
                   float(np.sum(a.sum(axis=0) ** 2)), float(np.sum(a)))
