"""How far the free law of residual blocks is from that of blocks that share coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _kernels
from ._sharing import Rule, runs_of

__all__ = ["SharedBasisEstimate", "estimate"]

ComplexArray = NDArray[np.complex128]

_CLOSED = Rule(24, 0)
_POINTS = 200       # of the support, where the distribution functions are compared


@dataclass(frozen=True)
class SharedBasisEstimate:
    """What `ChainLaw.shared_basis_estimate` returns: shared less free.

    Attributes
    ----------
    ks : float
        Largest distance of the two distribution functions.
    dlog_lower, dlog_upper : float
        Changes of the logarithms of the support's ends; NaN where the end is no square-root edge
        (a law that reaches 0).
    dm4 : float
        Change of the fourth moment; the first three do not change.
    atom_exact, atom_free : float
        Mass of the heaviest point mass away from 0, of shared and free blocks.
    """

    ks: float
    dlog_lower: float
    dlog_upper: float
    dm4: float
    atom_exact: float
    atom_free: float


def estimate(blocks: list[Any], stretches: list[list[int]], free: Any) -> SharedBasisEstimate:
    """From the solved free chain, by the closed correction dU of its potential.

    At given lambda the distribution function changes by -Im dU/pi, the end at m by
    d log lambda = -dU'(m).
    """
    runs = runs_of(stretches, _CLOSED)
    atoms = [_heaviest(found) for found in (_kernels.shared_atoms(blocks, runs), free.atoms())]
    if not stretches:
        return SharedBasisEstimate(0.0, 0.0, 0.0, 0.0, atoms[1], atoms[1])
    ks = max(_distance(blocks, runs, free), 0.5 * abs(atoms[0] - atoms[1]))
    low, high = _edge_shifts(blocks, runs, free)
    return SharedBasisEstimate(ks, low, high, _fourth_moment(blocks, stretches), *atoms)


def _heaviest(atoms: Any) -> float:
    """Of (location, ..., mass)."""
    return max((atom[-1] for atom in atoms if atom[0] > 0.0), default=0.0)


def _distance(blocks: list[Any], runs: list[Any], free: Any) -> float:
    share = free.continuous_mass()
    p = 1.0 - share + share * (np.arange(_POINTS) + 0.5) / _POINTS
    m_re, m_im, *_ = free.solve(free.quantile(p, _kernels.LOG_LAMBDA)[0], _kernels.LOG_LAMBDA)
    inside = np.isfinite(m_re) & (m_im < 0.0)
    values, status = _kernels.sharing(blocks, runs, (m_re + 1j * m_im)[inside])
    return float(np.max(np.abs(values[status == 0, 1].imag), initial=0.0)) / math.pi


def _edge_shifts(blocks: list[Any], runs: list[Any], free: Any) -> tuple[float, float]:
    count = len(free.intervals(_kernels.LOG_LAMBDA))
    if not count:
        return math.nan, math.nan
    m = np.array([free.interval_m(0)[0], free.interval_m(count - 1)[1]])
    shifts = np.full(2, math.nan)
    known = np.isfinite(m)
    values, status = _kernels.sharing(blocks, runs, m[known].astype(complex))
    shifts[known] = np.where(status == 0, -values[:, 2].real, math.nan)
    return float(shifts[0]), float(shifts[1])


def _fourth_moment(blocks: list[Any], stretches: list[list[int]]) -> float:
    """2 M^4 sum_{i<j} v_i v_j (kappa_i kappa_j/(k_i k_j))^2 prod_{i<l<=j} (a_l^2/k_l)^2,
    k = a^2 + kappa, v = Var d/(E d)^2 of the slopes next to the skip, M the law's mean."""
    log_mean, total = 0.0, 0.0
    for layers, skip, repeat, _ in blocks:
        kappa = math.prod(variance * slopes.mean for slopes, variance, *_ in layers)
        log_mean += repeat * math.log(skip * skip + kappa)
    for stretch in stretches:
        carried = 0.0
        for site in stretch:
            layers, skip, *_ = blocks[site]
            kappa = math.prod(variance * slopes.mean for slopes, variance, *_ in layers)
            k = skip * skip + kappa
            slopes = layers[-1][0]
            own = (slopes.second / slopes.mean**2 - 1.0) * (kappa / k) ** 2
            carried *= (skip * skip / k) ** 2
            total += own * carried
            carried += own
    return 2.0 * math.exp(4.0 * log_mean) * total
