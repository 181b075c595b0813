"""Gauss rule of a discretised law, compiled (needs numba: import it late)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

EPSILON = 2.0**-52


@njit(["Tuple((float64[::1], float64[::1]))(float64[::1], float64[::1], int64)"],
      cache=True, nogil=True, fastmath={"reassoc", "contract"})
def lanczos(nodes, masses, count):
    """Diagonal and off-diagonal of the Jacobi matrix of sum masses delta(nodes).

    Lanczos' recurrence, every vector orthogonalised again against all before it. Ends early where
    the law has fewer points than ``count`` to rounding.
    """
    size = nodes.size
    basis = np.empty((count, size))
    diagonal, off = np.empty(count), np.empty(count)
    vector = np.sqrt(masses / np.sum(masses))
    for k in range(count):
        basis[k] = vector
        total = 0.0
        for i in range(size):
            total += nodes[i] * basis[k, i] * basis[k, i]
        diagonal[k] = total
        for i in range(size):
            vector[i] = (nodes[i] - total) * basis[k, i]
        if k > 0:
            for i in range(size):
                vector[i] -= off[k - 1] * basis[k - 1, i]
        for j in range(k, -1, -1):
            overlap = 0.0
            for i in range(size):
                overlap += basis[j, i] * vector[i]
            for i in range(size):
                vector[i] -= overlap * basis[j, i]
        norm = 0.0
        for i in range(size):
            norm += vector[i] * vector[i]
        off[k] = math.sqrt(norm)
        if off[k] <= 16.0 * EPSILON:
            return diagonal[: k + 1].copy(), off[:k].copy()
        vector /= off[k]
    return diagonal, off[: count - 1].copy()


@njit(["void(float64[::1], float64[::1], float64[::1])"], cache=True, nogil=True)
def eigen(values, off, first):
    """Eigenvalues of a symmetric tridiagonal matrix into ``values`` (its diagonal on entry), first
    components of the eigenvectors into ``first``: implicit QL (Golub & Welsch 1969)."""
    size = values.size
    e = np.zeros(size)
    e[: size - 1] = off
    first[:] = 0.0
    first[0] = 1.0
    for low in range(size):
        for _ in range(60):
            m = low
            while m < size - 1 and abs(e[m]) > EPSILON * (abs(values[m]) + abs(values[m + 1])):
                m += 1
            if m == low:
                break
            g = (values[low + 1] - values[low]) / (2.0 * e[low])
            r = math.hypot(g, 1.0)
            g = values[m] - values[low] + e[low] / (g + math.copysign(r, g))
            s, c, p = 1.0, 1.0, 0.0
            splits = False
            for i in range(m - 1, low - 1, -1):
                f, b = s * e[i], c * e[i]
                r = math.hypot(f, g)
                e[i + 1] = r
                if r == 0.0:
                    values[i + 1] -= p
                    e[m] = 0.0
                    splits = True
                    break
                s, c = f / r, g / r
                g = values[i + 1] - p
                r = (values[i] - g) * s + 2.0 * c * b
                p = s * r
                values[i + 1] = g + p
                g = c * r - b
                f = first[i + 1]
                first[i + 1] = s * first[i] + c * f
                first[i] = c * first[i] - s * f
            if not splits:
                values[low] -= p
                e[low] = g
                e[m] = 0.0
