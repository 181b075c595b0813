"""Queries every law answers, in whichever variable it is read (names as in scipy.stats)."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks, _kernels
from ._expect import expect
from ._variables import EIGENVALUE, Eigenvalue
from .errors import ConvergenceError, ConvergenceWarning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

NOT_CONVERGED = 1
_ON_ERROR = ("warn", "raise", "ignore")


class Solution(NamedTuple):
    """Solved points, each field with the shape of the argument.

    Attributes
    ----------
    m : complex
        m(lambda + i0), m(z) = z G(z) - 1; real outside the support.
    density : float
        Density of the continuous part.
    status : int
        0 where solved; `fastspec.status_message` has the sentences.
    residual : float
        abs(log z(m) - log lambda).
    error_bound : float
        First-order bound on the absolute error of the density.
    """

    m: Any
    density: Any
    status: Any
    residual: Any
    error_bound: Any


def report(statuses: Counter[int], points: int, on_error: str) -> None:
    """One counted warning, or an exception, for the points that failed."""
    failures = sum(statuses.values())
    if failures == 0 or on_error == "ignore":
        return
    reasons = ", ".join(f"{count}: {_kernels.status_message(status)}"
                        for status, count in sorted(statuses.items()))
    message = f"{failures} of {points} points are NaN ({reasons})"
    if on_error == "raise":
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=4)


def real_points(name: str, value: ArrayLike) -> tuple[FloatArray, tuple[int, ...]]:
    """Real numbers as a flat contiguous float64 array, and their shape. NaN and inf may pass."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be real numbers, got an array of {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float64).reshape(-1), array.shape


def shaped(flat: FloatArray, shape: tuple[int, ...]) -> Any:
    """The flat array in its shape; a number for ()."""
    return flat.reshape(shape) if shape else flat[0]


def _checked_out(out: Any, shape: tuple[int, ...]) -> FloatArray:
    if not (isinstance(out, np.ndarray) and out.dtype == np.float64 and out.shape == shape
            and out.flags.writeable):
        raise ValueError(f"out must be a writable float64 array of shape {shape}, got "
                         f"{getattr(out, 'dtype', type(out).__name__)} "
                         f"of shape {getattr(out, 'shape', None)}")
    return out


class Distribution:
    """A probability law on the line: a continuous part and atoms.

    Arrays may have any shape; results have the same. Points that cannot be solved are NaN and
    counted in one `ConvergenceWarning` (``on_error="warn"``), raise `ConvergenceError`
    (``"raise"``) or are left to the caller (``"ignore"``).
    """

    _core: Any
    _variable: Eigenvalue = EIGENVALUE

    def _density(self, name: str, x: ArrayLike, out: Any, on_error: str) -> Any:
        _checks.choice("on_error", on_error, _ON_ERROR)
        flat, shape = real_points(name, x)
        if out is None:
            target = np.empty_like(flat)
        else:
            result = _checked_out(out, shape)
            target = result.reshape(-1) if result.flags.c_contiguous else np.empty_like(flat)
        failures = self._variable.density(self._core, flat, target)
        report(Counter({NOT_CONVERGED: failures}), flat.size, on_error)
        if out is None:
            return shaped(target, shape)
        if not out.flags.c_contiguous:
            out[...] = target.reshape(shape)
        return out

    def pdf(self, x: ArrayLike, *, out: FloatArray | None = None, on_error: str = "warn") -> Any:
        """Density of the continuous part.

        Parameters
        ----------
        x : array_like of float
            Any real numbers. 0 outside the support and at a square-root end, +inf at a hard end,
            NaN for NaN.
        out : ndarray of float64, optional
            Written to and returned.
        on_error : {"warn", "raise", "ignore"}
            What to do about points that cannot be solved (they are NaN).

        Returns
        -------
        float or ndarray

        Raises
        ------
        ValueError
            If ``x`` is not real or ``out`` does not fit.

        Examples
        --------
        >>> import fastspec as fs
        >>> print(f"{fs.ResNetLimit(0.125).pdf(1.0):.12f}")
        0.630063773295
        """
        if type(x) is float and out is None:
            value = self._variable.density_at(self._core, x)
            if value == value:
                return value
        return self._density("x", x, out, on_error)

    def logpdf(self, x: ArrayLike, *, on_error: str = "warn") -> Any:
        """log of `pdf`: -inf where the density is 0, finite where the density itself overflows."""
        flat, shape = real_points("x", x)
        density = np.asarray(self._density("x", flat, None, on_error))
        with np.errstate(divide="ignore", over="ignore"):
            value = np.log(density)
        overflow = np.isposinf(density) & (flat > 0) & np.isfinite(flat)
        if overflow.any() and self._variable.name != "log_lambda":
            log_lam = np.log(flat[overflow]) * (2.0 if self._variable.name == "s" else 1.0)
            part = np.empty_like(log_lam)
            self._core.density(log_lam, _kernels.LOG_LAMBDA, part)
            value[overflow] = self._variable.log_density(log_lam, part)
        return shaped(value, shape)

    def solve(self, x: ArrayLike) -> Solution:
        """The solved points with their status and error bounds; warns of nothing.

        Examples
        --------
        >>> import fastspec as fs
        >>> solution = fs.ResNetLimit(0.125).solve([0.5, 1.0, 9.0])
        >>> print(solution.status, bool(solution.error_bound.max() < 1e-14))
        [0 0 0] True
        """
        flat, shape = real_points("x", x)
        at, variable = self._variable.to_kernel(flat)
        re, im, density, status, residual, bound = self._core.solve(
            np.ascontiguousarray(at), variable)
        if at is not flat:  # the kernel's variable is not ours
            own = np.empty_like(flat)
            self._variable.density(self._core, flat, own)
            with np.errstate(divide="ignore", invalid="ignore"):
                relative = np.where(bound == 0.0, 0.0, bound / density)
                bound = np.where(relative == 0.0, 0.0, relative * own)
            density = own
        return Solution(*(shaped(field, shape) for field in
                          (re + 1j * im, density, status, residual, bound)))

    def _tails(self, x: ArrayLike, on_error: str) -> tuple[FloatArray, FloatArray, Any]:
        _checks.choice("on_error", on_error, _ON_ERROR)
        flat, shape = real_points("x", x)
        at, variable = self._variable.to_kernel(flat)
        if self._variable.name == "s":  # squaring may round past an atom
            for lam, log_lam, _ in self._core.atoms():
                exact = lam if variable == _kernels.LAMBDA else log_lam
                at = np.where(flat == self._variable.atom(lam, log_lam), exact, at)
        below, above, failures = self._core.cdf(np.ascontiguousarray(at), variable)
        report(Counter({NOT_CONVERGED: failures}), flat.size, on_error)
        return below, above, shape

    def cdf(self, x: ArrayLike, *, on_error: str = "warn") -> Any:
        """P(X <= x), atoms included, in closed form from the solved point.

        Examples
        --------
        >>> import fastspec as fs
        >>> print(fs.ResNetLimit(0.125).cdf([0.0, 1.0, 3.0]))
        [0.  0.5 1. ]
        """
        below, _, shape = self._tails(x, on_error)
        return shaped(below, shape)

    def ccdf(self, x: ArrayLike, *, on_error: str = "warn") -> Any:
        """P(X > x) = 1 - cdf, with its own relative accuracy near the upper edge."""
        _, above, shape = self._tails(x, on_error)
        return shaped(above, shape)

    def icdf(self, p: ArrayLike, *, on_error: str = "warn") -> Any:
        """Quantiles: the smallest x with cdf(x) >= p.

        Parameters
        ----------
        p : array_like of float
            Probabilities in [0, 1]; NaN outside. p = 0 gives the lower end of the law. Values
            below the smallest double round to 0 (`SpectralLaw.log_eigenvalues` has them).

        Examples
        --------
        >>> import fastspec as fs
        >>> law = fs.FussCatalan(3)
        >>> print(bool(abs(law.cdf(law.icdf(0.25)) - 0.25) < 1e-14))
        True
        """
        _checks.choice("on_error", on_error, _ON_ERROR)
        flat, shape = real_points("p", p)
        value, failures = self._variable.quantile(self._core, flat)
        report(Counter({NOT_CONVERGED: failures}), flat.size, on_error)
        return shaped(value, shape)

    def sample(self, shape: int | tuple[int, ...] = (), rng: Any = None) -> Any:
        """Independent draws, by inversion.

        Parameters
        ----------
        shape : int or tuple of int
        rng : None, int or numpy.random.Generator
            As `numpy.random.default_rng` takes it.
        """
        return self.icdf(np.random.default_rng(rng).random(shape))

    def median(self) -> float:
        """icdf(1/2)."""
        return float(self.icdf(0.5))

    def support(self) -> list[tuple[float, float]]:
        """Intervals (low, high) of the continuous part, ascending; none for a law of atoms.

        They are those of the law itself, also where the density falls below rounding before an
        end.
        """
        return self._variable.intervals(self._core)

    @property
    def atoms(self) -> FloatArray:
        """Array of (location, mass), shape (number of atoms, 2)."""
        pairs = [(self._variable.atom(lam, log_lam), mass)
                 for lam, log_lam, mass in self._core.atoms()]
        return np.array(pairs).reshape(-1, 2)

    def moment(self, k: int) -> float:
        """E X^k, k >= 0 a whole number.

        Of lambda (and of even powers of s) from the Lagrange series of the law's equation, whose
        terms are all positive; otherwise by double-exponential quadrature. Beyond the range of
        a double the value is inf, with NumPy's overflow warning.

        Examples
        --------
        >>> import fastspec as fs
        >>> print([round(fs.FussCatalan(2).moment(k)) for k in range(6)])
        [1, 1, 3, 12, 55, 273]
        """
        k = _power(k)
        if k == 0:
            return 1.0
        name = self._variable.name
        if name == "lambda" or (name == "s" and k % 2 == 0):
            value = float(self._core.moment(k if name == "lambda" else k // 2))
            if math.isnan(value):  # no series: S is a function that the user gave
                return self._integral(k)
            if math.isinf(value):
                warnings.warn(f"overflow in moment {k}", RuntimeWarning, stacklevel=2)
            return value
        return self._integral(k)

    def log_moment(self, k: int) -> float:
        """log E lambda^k, k >= 0 a whole number, whatever the variable: never overflows."""
        k = _power(k)
        value = float(self._core.log_moment(k))
        return _log_moment_by_quadrature(self._core, k) if math.isnan(value) else value

    def _integral(self, k: int, centre: float = 0.0) -> float:
        """E (X - centre)^k by quadrature."""
        at = self.atoms
        if self._variable.name == "log_lambda" and (
                math.isinf(self._core.hard_exponent()) or np.isneginf(at[:, 0]).any()):
            # mass at log 0, or a tail 1/log^2: E log lambda = -inf
            return -math.inf if k % 2 else math.inf
        discrete = float(np.sum(at[:, 1] * (at[:, 0] - centre) ** k))
        return discrete + expect(
            self._core, lambda log_lam, _: (self._variable.from_log(log_lam) - centre) ** k)

    def mean(self) -> float:
        """E X."""
        return self.moment(1)

    def variance(self) -> float:
        """E (X - E X)^2; of lambda in closed form (variance/mean^2 adds over layers)."""
        if self._variable.name == "lambda":
            return float(self._core.relative_variance()) * self.mean() ** 2
        mean = self.mean()
        return math.inf if math.isinf(mean) else self._integral(2, mean)

    def entropy(self) -> float:
        """Differential entropy -int pdf log pdf; -inf for a law with atoms.

        Also -inf where the density is too spiked at 0 for the integral (the Bernoulli class).
        """
        infinite = math.isinf(self._core.hard_exponent()) and self._variable.name != "log_lambda"
        if len(self.atoms) or infinite:
            return -math.inf
        return -expect(self._core, self._variable.log_density)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the density, with atoms as stems; keywords as `fastspec.plotting.plot_law`."""
        from .plotting import plot_law

        return plot_law(self, ax, **kwargs)


def _log_moment_by_quadrature(core: Any, k: int) -> float:
    """log E lambda^k, relative to the largest lambda so that nothing overflows."""
    atoms = [(log_place, mass) for _, log_place, mass in core.atoms()]
    ends = core.support(_kernels.LOG_LAMBDA)
    top = max([place for place, _ in atoms] + ([ends[1]] if ends else []))
    discrete = math.fsum(mass * math.exp(k * (place - top)) for place, mass in atoms)
    return k * top + math.log(
        discrete + expect(core, lambda log_lam, _: np.exp(k * (log_lam - top))))


def _power(k: Any) -> int:
    if isinstance(k, bool) or not hasattr(k, "__index__") or k < 0:
        raise ValueError(f"k must be a whole number >= 0, got {k!r}")
    return int(k)
