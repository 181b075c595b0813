"""Real symmetric matrices, dense or tridiagonal, of which single eigenvalues are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Dense:
    entries: FloatArray

    def eigenvalues(self) -> FloatArray:
        from scipy import linalg

        return np.asarray(linalg.eigvalsh(self.entries))

    def eigenvalue(self, index: int) -> float:
        """The eigenvalue of this rank, 0 the smallest."""
        from scipy import linalg

        return float(linalg.eigvalsh(self.entries, subset_by_index=(index, index))[0])

    def eigenvector(self, index: int) -> FloatArray:
        from scipy import linalg

        return np.asarray(linalg.eigh(self.entries, subset_by_index=(index, index))[1][:, 0])

    def quadratic(self, vector: FloatArray) -> float:
        """v^T M v."""
        return float(vector @ self.entries @ vector)

    def distance(self, other: Dense) -> float:
        """Largest difference of entries over the largest entry."""
        return _distance(self.entries, other.entries)


@dataclass(frozen=True)
class Tridiagonal:
    diagonal: FloatArray
    beside: FloatArray

    def eigenvalues(self) -> FloatArray:
        from scipy import linalg

        return np.asarray(linalg.eigvalsh_tridiagonal(self.diagonal, self.beside))

    def eigenvalue(self, index: int) -> float:
        from scipy import linalg

        return float(linalg.eigvalsh_tridiagonal(
            self.diagonal, self.beside, select="i", select_range=(index, index))[0])

    def eigenvector(self, index: int) -> FloatArray:
        from scipy import linalg

        return np.asarray(linalg.eigh_tridiagonal(
            self.diagonal, self.beside, select="i", select_range=(index, index))[1][:, 0])

    def quadratic(self, vector: FloatArray) -> float:
        return float(self.diagonal @ vector**2 + 2.0 * self.beside @ (vector[1:] * vector[:-1]))

    def distance(self, other: Tridiagonal) -> float:
        return _distance(np.concatenate([self.diagonal, self.beside]),
                         np.concatenate([other.diagonal, other.beside]))


def _distance(ours: FloatArray, theirs: FloatArray) -> float:
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(ours)))
