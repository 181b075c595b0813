"""Exact laws at finite depth: chains of plain and residual blocks."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks, _compress, _factors, _kernels, _sharing
from ._distribution import Solution, real_points, report, shaped
from ._sharing_estimate import SharedBasisEstimate, estimate
from .blocks import BASES, Layer, Residual
from .errors import ConvergenceError, ConvergenceWarning
from .laws import KernelBlock, SpectralLaw

__all__ = ["ChainLaw", "SolvedLaw"]

FloatArray = NDArray[np.float64]

_COMPLETE, _USABLE = 1e-10, 1e-4    # masses missing: none; few enough to go on with a warning
_COMPRESSION = 1e-12                # agreement of log densities that ends the search for nodes
_TESTED = np.array([1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999])
_NEGLIGIBLE_ATOM = 1e-3
_NARROW, _NARROWEST = 1e-6, 1e-9    # spreads of lambda and slopes that explain a failure
_METHODS = ("table", "newton", "walk")


class SolvedLaw(SpectralLaw):
    """A law without closed form: solved once along its whole support, then a table.

    The table (piecewise polynomials, edges' exponents divided out) answers `pdf`, `cdf`, `icdf`
    and integrals; `solve` and `green` use Newton's method, started from the solved points.
    """

    def __init__(self, core: Any, **parameters: Any) -> None:
        missing = core.mass_error()
        message = (f"the masses found add up to 1 within {missing:.3g} only: a part of the law is "
                   "missing or inaccurate")
        if not missing < _USABLE:
            raise ConvergenceError(message)
        if missing > _COMPLETE:
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        if core.unresolved() > _COMPLETE:
            low = core.cells()[0, 0]
            warnings.warn(f"a mass of {core.unresolved():.3g} lies below log lambda = {low:.6g}, "
                          "where slopes are too small to resolve: queries there give NaN",
                          ConvergenceWarning, stacklevel=3)
        if core.ends_status():
            warnings.warn("where the support ends could not be told: its density vanishes there "
                          "faster than any power, and support() gives where it falls below "
                          "rounding, or 0", ConvergenceWarning, stacklevel=3)
        super().__init__(core, **parameters)

    def pdf(self, x: ArrayLike, *, out: FloatArray | None = None, on_error: str = "warn",
            method: str = "table") -> Any:
        """Density of the continuous part.

        Parameters
        ----------
        x : array_like of float
            Any real numbers; see `Distribution.pdf` for the values at special points.
        out : ndarray of float64, optional
            Written to and returned.
        on_error : {"warn", "raise", "ignore"}
            What to do about points that cannot be solved (they are NaN).
        method : {"table", "newton", "walk"}
            The law's table; Newton's method on the equation from the nearest solved point; or the
            slow route that walks every point from z = infinity and uses nothing solved before.

        Returns
        -------
        float or ndarray

        Raises
        ------
        ValueError
            If ``x`` is not real, ``out`` does not fit or ``method`` is unknown.

        Examples
        --------
        >>> import fastspec as fs
        >>> law = fs.ChainLaw([fs.Layer("relu", q=1.0, weight_variance=2.0, repeat=3)])
        >>> x = [0.5, 2.0, 5.0]
        >>> print(bool(abs(law.pdf(x) / law.pdf(x, method="walk") - 1.0).max() < 1e-12))
        True
        """
        if _checks.choice("method", method, _METHODS) == "table":
            return super().pdf(x, out=out, on_error=on_error)
        flat, shape = real_points("x", x)
        route = self._core.solve if method == "newton" else self._core.walk
        solved = route(flat, _kernels.LAMBDA)
        density, status = solved[2], solved[3]
        known = np.isin(status, (0, _kernels.BAD_POINT)) | np.isinf(density)
        report(Counter(status[~known].tolist()), flat.size, on_error)
        if out is None:
            return shaped(density, shape)
        out[...] = density.reshape(shape)
        return out


class ChainLaw(SolvedLaw):
    r"""Exact law of a product of independent blocks, J = Y_L ... Y_1, at any finite depth.

    log z = log((1+m)/m) - sum over blocks of log S_b(m), with S of a plain layer
    S_W S_{D^2} (Pennington, Schoenholz & Ganguli 2017) and of a residual block given by
    x = u(1+u) S_X(u), a^2 x = t(1+t), m = u + t, S = x/(m(1+m)) (Ling & Qiu 2018, theorem 1).

    Parameters
    ----------
    blocks : sequence of Layer and Residual
        The first is next to the input.
    input_width : float
        Width of the input, in the unit of the layers' ``width``.
    compress : bool
        Replace many layers that differ only in their variances by a few weighted ones, as many as
        the accuracy (1e-12) asks for; what that changes is in ``compression_error``. False: solve
        with all of them, as is always done where blocks share coordinates.
    basis : {"free", "shared"}
        How residual blocks a I + D W that follow each other stand to each other. "free": as if a
        random rotation stood between them, as in the papers. "shared": their D's share the
        coordinates, as in a network, which is exact at any depth; see the notes.

    Attributes
    ----------
    compression_error : float
        Largest change of log pdf seen when the number of stand-ins was last raised; 0 if none.
    sharing_error : float
        Bound, from the next longer rule, on what is wrong with log z of shared coordinates; it is
        in `solve`'s error bounds. 0 if nothing is shared.

    Raises
    ------
    ValueError
        If a block is neither a Layer nor a Residual, or a residual block has not the output's
        width.
    ConvergenceError
        If masses found on the support and atoms do not add up to 1. Below 1e-4 missing it is a
        `ConvergenceWarning`. Also if the law, or a part of it, is too narrow for doubles in
        lambda: slopes that vary by less than about 1e-7 in relative terms, or nearly constant
        ones on both sides of a part that varies. Slopes that vary by less than 1e-15 are taken for
        their mean.

    Notes
    -----
    With ``basis="free"``: for residual blocks a I + D W that follow each other, the diagonal
    matrices share the coordinate basis, so the blocks are not free at finite depth. The law given
    is that of the free model. It has the right first three moments; the fourth differs, the
    distribution function by about 0.007 (v/L)^2 and the edges by about 0.1 (v/L)^2 relative
    (effective cumulant of order one, v = Var d/(E d)^2 of d = phi'^2; up to three times more at
    the edges for orthogonal weights and two blocks): `shared_basis_estimate` says how much. It is
    exact (at infinite width) for plain chains, one residual block, branches without slopes next
    to the skip, and in the limit of many blocks at a fixed cumulant. Slopes that vanish with
    probability r_l put a mass of max(0, 2 prod r_l - 1) at prod a_l^2, not that of the free model.

    With ``basis="shared"`` log z(m) gets one more term for every stretch of residual blocks (and
    the plain layer below it, whose slopes share their coordinates too; other plain layers cut
    stretches): the average over the patterns of slopes of the scalar chain along one coordinate,
    by complex Gauss rules with as many nodes as it takes for two to agree, or the closed
    correction of many blocks where its own estimate is below 1e-9. Building takes .05 s to a few
    seconds, and up to 10 s for smooth slopes. Where slopes vanish with high probability (.9, five
    blocks or more), patterns that hardly occur have pieces of the support of their own, which may
    be too light to be found: what is missing is said by a `ConvergenceWarning`. Short chains of
    sparse or very unequal slopes with several pieces, or with an orthogonal layer's atoms below
    them, may not be solved: a `ConvergenceError`. Ends of tails that vanish faster than any power
    are those of the rules. Neither law covers networks with phi before the weights: there the D of
    different layers depend on each other.

    `support` and `condition_number` are those of the law itself. Slopes phi' that never reach
    their infimum or supremum (softplus, or 1 + 1/cosh(h)^2) make the density vanish at that end
    faster than any power, long before the end: `pdf` is 0 there where the mass beyond is below
    1e-12, and ``condition_number(coverage)`` leaves such tails out. Unbounded slopes give a
    support up to inf. For activations given as functions, the infimum and supremum of phi'^2 are
    those seen at a finite number of points, out to |h| = 1e6 and 1e6 standard deviations, where
    a power of h is continued to 0 or inf (of one layer alone out to 38 standard deviations): phi'
    must be right there too.

    Examples
    --------
    >>> import fastspec as fs
    >>> law = fs.ChainLaw([fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.05), repeat=20)])
    >>> print("{:.6f} {:.6f}".format(*law.support()[0]))
    0.116241 7.874403
    """

    def __init__(self, blocks: Sequence[Layer | Residual], *, input_width: float = 1.0,
                 compress: bool = True, basis: str = "free") -> None:
        _checks.choice("basis", basis, BASES)
        input_width = _checks.real("input_width", input_width, low=0.0, strict=True)
        whole = _factors.factors(blocks, input_width)
        _require_square_residuals(whole)
        cores = _Cores()
        self.compression_error = self.sharing_error = 0.0
        self._runs: list[_sharing.Run] = []
        core = self._shared(blocks, input_width, cores) if basis == "shared" else None
        if core is None:
            core = self._free(whole, cores, compress)
        super().__init__(core, blocks=tuple(blocks), input_width=input_width, compress=compress,
                         basis=basis)

    def _shared(self, blocks: Sequence[Layer | Residual], input_width: float, cores: _Cores
                ) -> Any:
        """The solved chain, or None if no slopes share coordinates: then it is the free one."""
        factors, stretches = cores.arranged(blocks, input_width)
        if not stretches:
            return None
        self._blocks = cores.blocks(factors)
        try:
            free = cores.core(factors)
        except ConvergenceError:
            free = None
        core, rule, self.sharing_error = _sharing.shared_core(
            self._blocks, stretches, free, lambda runs: solved(self._blocks, runs))
        self._runs = _sharing.runs_of(stretches, rule)
        core.add_error(self.sharing_error)
        return core

    def _free(self, whole: list[Any], cores: _Cores, compress: bool) -> Any:
        whole = factors = cores.with_constant_slopes(whole)
        if compress:
            factors, self.compression_error = _compress.choose(whole, cores.measure, _COMPRESSION)
        self._blocks = cores.blocks(factors)
        core = cores.core(factors)
        if factors != whole and core.has_thin_ends():
            core.take_ends(cores.blocks(whole))
        if not core.mass_error() < _USABLE and (reason := _too_narrow(self._blocks)):
            raise ConvergenceError(reason)
        return core

    def solve(self, x: ArrayLike) -> Solution:
        solution = super().solve(x)
        if self.compression_error == 0.0:
            return solution
        return solution._replace(
            error_bound=solution.error_bound + self.compression_error * solution.density)

    def shared_basis_estimate(self) -> SharedBasisEstimate:
        """How far this chain's law is from the one where its blocks were taken the other way.

        The closed correction dU of the free law's potential, the sum over pairs and triples of
        blocks that share coordinates: the distribution function changes by -Im dU/pi, the ends by
        d log lambda = -dU'(m). It needs the free law only, and takes milliseconds beyond it. The
        edges are good to a few per cent of themselves for three blocks and more, 12 % for two; it
        is no expansion where an atom appears, whose masses are exact.

        Returns
        -------
        SharedBasisEstimate
            ``ks``, ``dlog_lower``, ``dlog_upper``, ``dm4``, ``atom_exact``, ``atom_free``: shared
            less free.

        Examples
        --------
        >>> import fastspec as fs
        >>> block = fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.5), repeat=2)
        >>> estimate = fs.ChainLaw([block]).shared_basis_estimate()
        >>> print(f"{estimate.ks:.1e} {estimate.dlog_upper:.1e}")
        2.2e-03 2.4e-03
        """
        cores = _Cores()
        factors, stretches = cores.arranged(*self._arguments())
        blocks = cores.blocks(factors)
        free = self._core if not self._runs else solved(blocks)
        return estimate(blocks, stretches, free)

    def _arguments(self) -> tuple[Sequence[Layer | Residual], float]:
        return self._parameters["blocks"], self._parameters["input_width"]

    def _kernel_blocks(self) -> list[KernelBlock]:
        unit = self._blocks[-1][0][-1][3]
        return [([(*layer[:3], layer[3] / unit, layer[4] / unit) for layer in layers], *rest)
                for layers, *rest in self._blocks]

    def _kernel_runs(self) -> list[_sharing.Run]:
        return self._runs


class _Cores:
    """Solved chains of factors; the last one is kept, slope laws are shared."""

    def __init__(self) -> None:
        self._slopes: dict[Any, Any] = {}
        self._last: tuple[Any, Any] = (None, None)
        self._at: FloatArray | None = None
        self._scale: Any = None

    def with_constant_slopes(self, factors: list[Any]) -> list[Any]:
        return _factors.with_constant_slopes(factors, self._slopes)

    def arranged(self, blocks: Sequence[Layer | Residual], input_width: float
                 ) -> tuple[list[Any], list[list[int]]]:
        return _factors.arranged(blocks, input_width, self._slopes)

    def blocks(self, factors: list[Any]) -> list[Any]:
        return [(*block, None) for block in _factors.kernel_blocks(factors, self._slopes)]

    def core(self, factors: list[Any]) -> Any:
        from ._slope_core import slope_core

        if self._last[0] != factors:
            self._last = factors, slope_core(factors) or solved(self.blocks(factors))
        return self._last[1]

    def measure(self, factors: list[Any]) -> FloatArray:
        """Logs of the density at fixed points, from the middle to far down the tail, over their
        conditioning max(1, abs(d log density/d log lambda))."""
        core = self.core(factors)
        if not core.intervals(_kernels.LOG_LAMBDA):
            return np.zeros(1)
        if self._at is None:
            share = core.continuous_mass()
            self._at = core.quantile(1.0 - share + share * _TESTED, _kernels.LOG_LAMBDA)[0]
            step = 1e-3 * np.abs(self._at - core.quantile(
                1.0 - share + 0.99 * share * _TESTED, _kernels.LOG_LAMBDA)[0])
            with np.errstate(invalid="ignore"):
                rise = _log_density(core, self._at + step) - _log_density(core, self._at - step)
                self._scale = 1.0 / np.maximum(1.0, np.abs(rise / (2.0 * step)))
        return _log_density(core, self._at) * self._scale


def _log_density(core: Any, log_lam: FloatArray) -> FloatArray:
    density = np.empty_like(log_lam)
    core.density(log_lam, _kernels.LOG_LAMBDA, density)
    with np.errstate(divide="ignore"):
        return np.log(density)


def _rotations(blocks: list[Any]) -> list[tuple[Any, float]] | None:
    """(slopes, repeat) of a chain of square orthogonal plain layers; None for other chains."""
    if any(skip or not layers or not layers[0][2] or layers[0][3] != layers[0][4]
           for layers, skip, _, _ in blocks):
        return None
    return [(layers[0][0], repeat) for layers, _, repeat, _ in blocks]


def _too_narrow(blocks: list[Any]) -> str | None:
    """Why a chain, in which the slopes' variances add up to that of lambda, cannot be solved, if
    it is for that reason."""
    layers = _rotations(blocks)
    if layers is None:
        return None
    law = math.sqrt(math.fsum(repeat * slopes.spread**2 for slopes, repeat in layers))
    least = min(slopes.spread for slopes, _ in layers)
    if law > _NARROW and not 0.0 < least < _NARROWEST:
        return None
    return (f"the law is too narrow: relative spread (standard deviation over mean) {law:.2g} of "
            f"lambda and {least:.2g} of one layer's slopes, beside a rounding of 2e-16")


def _nearly_atom(blocks: list[Any]) -> float:
    """Mass within about 1e-8 of one lambda beyond that of an atom there. As for atoms, it is what
    the layers' masses, of values d so close to each other, have beyond their number less 1."""
    layers = _rotations(blocks)
    if layers is None or max(slopes.spread for slopes, _ in layers) < _NARROW:
        return 0.0
    near, exact = (1.0 - math.fsum(repeat * (1.0 - mass) for mass, repeat in masses)
                   for masses in ([(slopes.cluster, n) for slopes, n in layers],
                                  [(slopes.atom, n) for slopes, n in layers]))
    return near - max(0.0, exact)


def solved(blocks: list[Any], runs: Sequence[_sharing.Run] = ()) -> Any:
    """The solved chain of kernel blocks (layers, skip, repeat, given), some sharing coordinates.

    Raises
    ------
    ConvergenceError
        If a part of the law is so concentrated that walks along lambda would lose their way.
    """
    mass = _nearly_atom(blocks)
    if mass > _NEGLIGIBLE_ATOM:
        raise ConvergenceError(
            f"a mass of {mass:.3g} lies within about 1e-8 of one lambda without being an atom "
            "(phi'^2 is as nearly constant for most h of most layers): too narrow a part to solve")
    error = math.fsum(repeat * layer[0].accuracy for layers, _, repeat, _ in blocks
                      for layer in layers)
    return _kernels.chain(blocks, error, runs)


def _require_square_residuals(factors: list[Any]) -> None:
    output = factors[-1].layers[-1].width_out
    for factor in factors:
        if factor.skip and factor.layers[-1].width_out != output:
            raise ValueError(f"residual blocks must have the width of the output, {output:g}, got "
                             f"{factor.layers[-1].width_out:g}: widths may differ in plain chains")
