"""Many similar factors replaced by a few weighted ones.

log S_b(m) is smooth in x = asinh(sqrt(q)), which is sqrt(q) for small and log(4q)/2 for large
variances q of the pre-activations, and in the logarithm of the weights' variance. The sum of log S
over many blocks is an integral over a discrete measure of these coordinates, and the measure's
Gauss rule does for it. How many nodes are enough is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ._factors import Factor

__all__ = ["choose", "compress"]

FloatArray = NDArray[np.float64]

_NODES = (3, 4, 6, 8, 12, 16, 24, 32)
_SPENT = 1e-14      # an off-diagonal entry below it: the measure has no further nodes


def choose(
    chain: Sequence[Factor], measure: Callable[[list[Factor]], FloatArray], tolerance: float
) -> tuple[list[Factor], float]:
    """The shortest compressed chain that two successive comparisons find good.

    Parameters
    ----------
    chain : sequence of Factor
        What `fastspec._factors.factors` returns.
    measure : callable
        Takes factors, returns the values that must not change, always of one shape. NaN stands for
        a value that could not be had and agrees with nothing.
    tolerance : float
        Largest difference between one number of nodes and the next that counts as agreement. One
        agreement is not enough: where convergence is irregular it comes by chance.

    Returns
    -------
    factors, error : list of Factor, float
        The largest difference in the last comparison; all factors and 0 if no number agrees.
    """
    previous, agreed, groups = None, False, _groups(chain)
    for nodes in _NODES:
        short = _shortened(groups, nodes)
        if len(short) == len(chain):
            break
        values = np.asarray(measure(short), dtype=float)
        if previous is not None:
            error = _difference(values, previous)
            if agreed and error <= tolerance:
                return short, error
            agreed = error <= tolerance
        previous = values
    return list(chain), 0.0


def compress(chain: Sequence[Factor], nodes: int) -> list[Factor]:
    """Every group of more than ``nodes`` factors that differ only in their variances, as a rule."""
    return _shortened(_groups(chain), nodes)


def _groups(chain: Sequence[Factor]) -> list[list[Factor]]:
    """Factors that differ only in their variances.

    Groups are in the order of their last members: the last factor keeps the output's width.
    """
    groups: dict[tuple[object, ...], list[Factor]] = {}
    for factor in chain:
        key = (factor.skip, *((layer.activation, layer.mean, layer.weights, layer.width_out,
                               layer.width_in) for layer in factor.layers))
        groups[key] = groups.pop(key, [])
        groups[key].append(factor)
    return list(groups.values())


def _shortened(groups: list[list[Factor]], nodes: int) -> list[Factor]:
    return [factor for group in groups
            for factor in (group if len(group) <= nodes else _rule(group, nodes))]


def _rule(group: list[Factor], nodes: int) -> list[Factor]:
    """Gauss rule of a group, in the coordinate that varies most.

    The other coordinates are functions of that one, or are treated as such: their least-squares
    polynomials of degree nodes - 1 are taken at the nodes. The first term left out vanishes there,
    so that this is as accurate as the rule itself.
    """
    weight = np.array([factor.weight for factor in group])
    places = np.array([_coordinates(factor) for factor in group])
    places -= places[0]
    widest = int(np.argmax(np.ptp(places, axis=0)))
    start = np.sqrt(weight / weight.sum())
    basis, jacobi = _lanczos(places[:, widest], start, nodes)
    found, vectors = np.linalg.eigh(jacobi)
    moves = (basis.T @ (start[:, np.newaxis] * places)).T @ (vectors / vectors[0])
    moves[widest] = found
    shares = weight.sum() * vectors[0] ** 2
    return [_moved(group[0], move, float(share))
            for move, share in zip(moves.T, shares, strict=True)]


def _coordinates(factor: Factor) -> list[float]:
    return [x for layer in factor.layers
            for x in (math.asinh(math.sqrt(layer.q)), math.log(layer.weight_variance))]


def _moved(factor: Factor, move: FloatArray, weight: float) -> Factor:
    """The factor at other coordinates; variances that do not move are kept to the last digit."""
    layers = []
    for layer, (dx, dlog) in zip(factor.layers, move.reshape(-1, 2).tolist(), strict=True):
        q = math.sinh(math.asinh(math.sqrt(layer.q)) + dx) ** 2 if dx else layer.q
        layers.append(layer._replace(q=q, weight_variance=layer.weight_variance * math.exp(dlog)))
    return Factor(tuple(layers), factor.skip, weight)


def _lanczos(x: FloatArray, start: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray]:
    """Orthonormal basis (columns) and Jacobi matrix of the measure start^2 at x.

    Every new vector is orthogonalised twice against all before it: without that the matrix repeats
    nodes.
    """
    basis = np.zeros((x.size, nodes))
    jacobi = np.zeros((nodes, nodes))
    scale = float(np.ptp(x))
    vector, size = start, 1.0
    for n in range(nodes):
        basis[:, n] = vector / size
        vector = (x - x.mean()) * basis[:, n]
        jacobi[n, n] = basis[:, n] @ vector + x.mean()
        for _ in range(2):
            vector = vector - basis[:, : n + 1] @ (basis[:, : n + 1].T @ vector)
        size = float(np.linalg.norm(vector))
        if size <= _SPENT * scale:
            return basis[:, : n + 1], jacobi[: n + 1, : n + 1]
        if n + 1 < nodes:
            jacobi[n, n + 1] = jacobi[n + 1, n] = size
    return basis, jacobi


def _difference(values: FloatArray, others: FloatArray) -> float:
    with np.errstate(invalid="ignore"):
        gaps = np.where(values == others, 0.0, np.abs(values - others))
    return float(np.max(gaps)) if np.all(np.isfinite(gaps)) else np.inf
