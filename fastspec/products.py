"""Laws given by an S-transform, free products of laws, and building blocks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _checks, _implicit, _kernels
from ._sharing import Run
from .chains import SolvedLaw, solved
from .errors import ConvergenceError
from .laws import KernelBlock, SpectralLaw

__all__ = ["DiscreteLaw", "FreeProduct", "ImplicitLaw", "MarchenkoPastur"]


class FreeProduct(SolvedLaw):
    r"""Law of a product of free positive matrices: ``law1 @ law2``, ``law ** count``.

    S-transforms multiply (Voiculescu 1987). For large matrices A and B of which one is rotated at
    random it is the limit law of A^{1/2} B A^{1/2}; for networks, of the product of independent
    factors of J. The order of the factors does not matter.

    Parameters
    ----------
    factors : iterable of (SpectralLaw, int)
        Laws and how often each occurs, >= 1. Products among them are taken apart, equal laws
        counted together.

    Raises
    ------
    ValueError
        If there is no factor, one is not a law, or a count is not a whole number >= 1.
    ConvergenceError
        If the masses found on the support and atoms do not add up to 1.

    Examples
    --------
    >>> import fastspec as fs
    >>> law = fs.FussCatalan(1) @ fs.MarchenkoPastur(1.0)
    >>> print(f"{law.pdf(2.0):.12f} {fs.FussCatalan(2).pdf(2.0):.12f}")
    0.093860482572 0.093860482572
    """

    def __init__(self, factors: Iterable[tuple[SpectralLaw, int]]) -> None:
        self.factors = _collected(factors)
        self._blocks = [(layers, skip, repeat * count, given) for law, count in self.factors
                        for layers, skip, repeat, given in law._kernel_blocks()]
        self._runs = _all_runs(self.factors)
        super().__init__(solved(self._blocks, self._runs), factors=self.factors)

    def __repr__(self) -> str:
        return " @ ".join(repr(law) + (f" ** {count}" if count > 1 else "")
                          for law, count in self.factors)

    def _kernel_blocks(self) -> list[KernelBlock]:
        return self._blocks

    def _kernel_runs(self) -> list[Run]:
        return self._runs


def _all_runs(factors: Iterable[tuple[SpectralLaw, int]]) -> list[Run]:
    """Blocks that share coordinates within a factor, in terms of all factors' blocks."""
    runs: list[Run] = []
    first = 0
    for law, count in factors:
        runs += [([first + site for site in sites], slope_nodes, nodes)
                 for sites, slope_nodes, nodes in law._kernel_runs()] * count
        first += len(law._kernel_blocks())
    return runs


def _collected(factors: Iterable[tuple[SpectralLaw, int]]) -> tuple[tuple[SpectralLaw, int], ...]:
    """Without products among the factors, equal laws counted together."""
    counts: list[tuple[SpectralLaw, int]] = []
    for law, count in factors:
        count = _checks.positive_integer("the power of a law", count)
        if not isinstance(law, SpectralLaw):
            raise ValueError(f"factors must be spectral laws, got {law!r}")
        parts = law.factors if isinstance(law, FreeProduct) else ((law, 1),)
        for part, times in parts:
            known = [other for other, _ in counts]
            if part in known:
                i = known.index(part)
                counts[i] = part, counts[i][1] + count * times
            else:
                counts.append((part, count * times))
    if not counts:
        raise ValueError("factors must hold at least one law, got none")
    return tuple(counts)


class ImplicitLaw(SolvedLaw):
    r"""A law on [0, inf) given by its S-transform.

    log z = log((1+m)/m) - log S(m), m = z G(z) - 1 (Voiculescu 1987).

    Parameters
    ----------
    log_s : callable
        log S(m) of a complex number m: real on the real axis near 0, S analytic in the lower half
        plane, from where it is continued to the real axis (real points are asked for with an
        imaginary part of -1e-300). Write ``log(1 + m) - log(p + m)``, not the log of the
        quotient: along m(z) arg S reaches pi, the cut of the principal logarithm. If both
        functions are compiled with ``numba.njit`` or ``numba.cfunc``, they are called without
        Python.
    dlog_s : callable
        d log S/dm. Differences would cost half the digits of edges and densities.
    mean : float
        Mean of the law, 1/S(0), > 0.

    Raises
    ------
    ValueError
        If the functions contradict each other, the mean, or what every S-transform of a law on
        [0, inf) satisfies: finite in the lower half plane, Var(lambda) = -mean^2 dlog_s(0) >= 0.
    ConvergenceError
        If the masses found on the support and atoms do not add up to 1: most likely log_s is not
        that of a law on [0, inf).

    Notes
    -----
    The mass at 0 is read off as 1 + m where S has its pole on (-1, 0); an atom elsewhere from the
    limit of S at infinity. Where the law reaches 0, S is asked for at m close to that pole, and a
    function of m alone loses the digits of the distance: the relative accuracy of the density
    is 1e-16/cdf(lambda) there. Atoms come out to about 1e-11.

    Examples
    --------
    Marchenko-Pastur, S = 1/(1 + m/2):

    >>> import cmath
    >>> import fastspec as fs
    >>> law = fs.ImplicitLaw(lambda m: -cmath.log(1 + 0.5 * m), lambda m: -0.5 / (1 + 0.5 * m),
    ...                      mean=1.0)
    >>> print("{:.12f} {:.12f}".format(*law.support()[0]))
    0.085786437627 2.914213562373
    """

    def __init__(self, log_s: Callable[[complex], complex], dlog_s: Callable[[complex], complex],
                 *, mean: float) -> None:
        mean = _checks.real("mean", mean, low=0.0, strict=True)
        transform = _implicit.Transform(log_s, dlog_s)
        transform.check(math.log(mean))
        self._transform = transform  # keeps compiled code alive
        self._blocks: list[KernelBlock] = [([], 0.0, 1.0, transform.given(math.log(mean)))]
        try:
            super().__init__(solved(self._blocks), log_s=log_s, dlog_s=dlog_s, mean=mean)
        except ConvergenceError as error:
            raise ConvergenceError(
                f"{error}; log_s is probably not the log of the S-transform of a law on [0, inf), "
                "or has a branch cut in the lower half plane") from error

    def _kernel_blocks(self) -> list[KernelBlock]:
        return self._blocks


class MarchenkoPastur(SolvedLaw):
    r"""Law of (scale/n) X X^T, X an N x n matrix of independent entries of variance 1.

    z = scale (1+m)(1 + ratio m)/m (Marchenko & Pastur 1967): support scale (1 -+ sqrt(ratio))^2,
    and an atom of mass (1 - 1/ratio)_+ at 0.

    Parameters
    ----------
    ratio : float
        N/n > 0.
    scale : float
        Mean of the law, > 0.

    Examples
    --------
    >>> import fastspec as fs
    >>> print("{:.6f} {:.6f}".format(*fs.MarchenkoPastur(4.0).support()[0]))
    1.000000 9.000000
    >>> print(fs.MarchenkoPastur(4.0).atoms)
    [[0.   0.75]]
    """

    def __init__(self, ratio: float, *, scale: float = 1.0) -> None:
        ratio = _checks.real("ratio", ratio, low=0.0, strict=True)
        scale = _checks.real("scale", scale, low=0.0, strict=True)
        one = _kernels.discrete_slopes(np.ones(1), np.ones(1))
        self._blocks = [([(one, scale, False, 1.0, 1.0 / ratio)], 0.0, 1.0, None)]
        super().__init__(solved(self._blocks), ratio=ratio, scale=scale)

    def _kernel_blocks(self) -> list[KernelBlock]:
        return self._blocks


class DiscreteLaw(SolvedLaw):
    """Finitely many atoms, as a factor of free products: a population covariance, a projection.

    Parameters
    ----------
    values : sequence of float
        Places of the atoms, >= 0, not all 0.
    probabilities : sequence of float
        Their masses, >= 0; the sum is 1 to 1e-12.

    Raises
    ------
    ValueError
        If they are not of one length, out of range, or do not add up to 1.

    Examples
    --------
    Eigenvalues of a sample covariance, half of the true ones 1 and half 4, two samples per
    dimension:

    >>> import fastspec as fs
    >>> law = fs.DiscreteLaw([1.0, 4.0], [0.5, 0.5]) @ fs.MarchenkoPastur(0.5)
    >>> print("{:.6f} {:.6f}".format(*law.support()[0]))
    0.122224 9.299950
    """

    def __init__(self, values: Sequence[float], probabilities: Sequence[float]) -> None:
        places, masses = _discrete(values, probabilities)
        slopes = _kernels.discrete_slopes(places[masses > 0], masses[masses > 0])
        self._blocks = [([(slopes, 1.0, True, 1.0, 1.0)], 0.0, 1.0, None)]
        super().__init__(solved(self._blocks), values=tuple(places.tolist()),
                         probabilities=tuple(masses.tolist()))

    def _kernel_blocks(self) -> list[KernelBlock]:
        return self._blocks


def _discrete(values: ArrayLike, probabilities: ArrayLike) -> tuple[Any, Any]:
    places = _checks.variance("values", values)
    masses = _checks.variance("probabilities", probabilities)
    if places.ndim != 1 or places.shape != masses.shape:
        raise ValueError("values and probabilities must be sequences of one length, got shapes "
                         f"{places.shape} and {masses.shape}")
    if not np.any(places[masses > 0] > 0):
        raise ValueError("values must not all be 0 (or of probability 0): the law would be the "
                         f"single atom at 0, got {places.tolist()!r}")
    total = math.fsum(masses)
    if not abs(total - 1.0) <= 1e-12:
        raise ValueError(f"probabilities must add up to 1, got a sum of {total!r}")
    return places, masses
