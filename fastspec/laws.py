"""Laws of the squared singular values of a network's input-output Jacobian."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from . import _checks, _kernels
from ._distribution import Distribution, Solution, report
from ._variables import LOG_EIGENVALUE, SINGULAR_VALUE, Eigenvalue
from .errors import RangeWarning

if TYPE_CHECKING:
    from ._sharing import Run
    from .products import FreeProduct

__all__ = [
    "BernoulliLimit",
    "FussCatalan",
    "PlainChain",
    "ResNetLimit",
    "SmoothLimit",
    "Solution",
    "SpectralLaw",
]

KernelBlock = tuple[list[Any], float, float, Any]

_ENSEMBLES = ("gaussian", "orthogonal")
_LOG_MAX, _LOG_MIN = math.log(np.finfo(float).max), math.log(np.finfo(float).tiny)


class SpectralLaw(Distribution):
    """Limiting law of the eigenvalues lambda of J J^T (squared singular values of J).

    Not made directly: `ResNetLimit`, `FussCatalan`, ... and the networks' ``spectrum()`` make
    laws. A law is immutable, can be shared between threads, compared and pickled.
    """

    _parameters: dict[str, Any] = {}    # of an instance that could not be made

    def __init__(self, core: Any, **parameters: Any) -> None:
        self._core = core
        self._parameters = parameters
        low, high = core.support(_kernels.LOG_LAMBDA) or (0.0, 0.0)
        if _LOG_MAX < high < math.inf or high < _LOG_MIN or -math.inf < low < _LOG_MIN:
            warnings.warn(
                f"log lambda of the support is in [{low:.6g}, {high:.6g}], outside what a double "
                "holds as lambda; use log_eigenvalues()", RangeWarning, stacklevel=3)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return (type(other) is type(self) and isinstance(other, SpectralLaw)
                and other._parameters == self._parameters)

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._parameters.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self._parameters)

    def singular_values(self) -> ChangedVariable:
        """The same law in s = sqrt(lambda), the singular values of J.

        Examples
        --------
        >>> import fastspec as fs
        >>> law = fs.FussCatalan(1).singular_values()   # a Gaussian matrix: quarter circle
        >>> print(round(law.pdf(1.0), 12), law.support())
        0.551328895422 [(0.0, 2.0)]
        """
        return ChangedVariable(self, SINGULAR_VALUE)

    def log_eigenvalues(self) -> ChangedVariable:
        """The same law in log lambda: for depths at which lambda leaves the doubles.

        Examples
        --------
        >>> import fastspec as fs
        >>> print(f"{fs.FussCatalan(10000).log_eigenvalues().median():.1f}")
        -6931.5
        """
        return ChangedVariable(self, LOG_EIGENVALUE)

    def condition_number(self, coverage: float = 1.0) -> float:
        """Condition number of J: sqrt(high/low) of the law.

        Parameters
        ----------
        coverage : float
            In (0, 1]. Below 1 the mass (1 - coverage)/2 is trimmed at each end first.

        Returns
        -------
        float
            inf where the law reaches 0 (a hard end or an atom there), and with NumPy's overflow
            warning beyond the doubles. Real networks can have single outliers that the law does
            not contain; ``net.condition_number(include_outliers=True)`` counts them.

        Examples
        --------
        >>> import fastspec as fs
        >>> print(round(fs.ResNetLimit(0.125).condition_number(), 9))
        2.746482841
        """
        if not (isinstance(coverage, float | int) and 0.0 < coverage <= 1.0):
            raise ValueError(f"coverage must be in (0, 1], got {coverage!r}")
        trimmed = (1.0 - coverage) / 2.0
        if trimmed == 0.0:
            low, high = self._log_hull()
        else:
            low, high = self.log_eigenvalues().icdf(np.array([trimmed, 1.0 - trimmed]))
        if low == -math.inf:
            return math.inf
        return float(np.exp(0.5 * (high - low)))

    def __matmul__(self, other: object) -> FreeProduct:
        """Free multiplicative convolution: the law of a product of free (independently rotated)
        matrices; see `fastspec.products.FreeProduct`.

        Examples
        --------
        >>> import fastspec as fs
        >>> law = fs.DiscreteLaw([1.0, 4.0], [0.5, 0.5]) @ fs.MarchenkoPastur(0.5)
        >>> print(law.mean(), round(law.variance(), 12))
        2.5 5.375
        """
        from .products import FreeProduct

        if not isinstance(other, SpectralLaw):
            return NotImplemented
        return FreeProduct(((self, 1), (other, 1)))

    def __pow__(self, count: int) -> FreeProduct:
        """The free product of ``count`` >= 1 copies.

        Examples
        --------
        >>> import fastspec as fs
        >>> print(round((fs.FussCatalan(1) ** 3).support()[0][1], 12))
        9.481481481481
        """
        from .products import FreeProduct

        return FreeProduct(((self, count),))

    def _kernel_blocks(self) -> list[KernelBlock]:
        """The law as a chain's blocks (layers, skip, repeat, given) for `_kernels.chain`, with
        layers' widths in units of the output's."""
        raise NotImplementedError

    def _kernel_runs(self) -> list[Run]:
        """Which of those blocks share coordinates."""
        return []

    def _log_hull(self) -> tuple[float, float]:
        ends = [end for interval in self.log_eigenvalues().support() for end in interval]
        ends += [log_place for _, log_place, _ in self._core.atoms()]
        return min(ends), max(ends)

    def green(self, z: ArrayLike, *, on_error: str = "warn") -> Any:
        """Green's function G(z) = E 1/(z - lambda), on the whole complex plane.

        On the real axis it is the limit from above, Im G = -pi pdf. NaN, with a warning, where
        it is infinite (atoms, a hard end at 0).

        Parameters
        ----------
        z : array_like of complex
        on_error : {"warn", "raise", "ignore"}

        Examples
        --------
        >>> import fastspec as fs
        >>> print(f"{fs.FussCatalan(1).green(-0.5):.12f}")
        -1.000000000000+0.000000000000j
        """
        return self._plane(z, on_error)[0]

    def m_transform(self, z: ArrayLike, *, on_error: str = "warn") -> Any:
        """m(z) = z G(z) - 1 = sum over k >= 1 of moment(k)/z^k, on the whole complex plane."""
        return self._plane(z, on_error, want_green=False)[1]

    def _plane(self, z: ArrayLike, on_error: str, want_green: bool = True) -> tuple[Any, Any]:
        _checks.choice("on_error", on_error, ("warn", "raise", "ignore"))
        array = np.asarray(z)
        if array.dtype.kind not in "iufc":
            raise ValueError(f"z must be complex numbers, got an array of {array.dtype}")
        flat = array.astype(complex).reshape(-1)
        g_re, g_im, m_re, m_im, status, _, _ = self._core.green(
            np.ascontiguousarray(flat.real), np.ascontiguousarray(flat.imag))
        g, m = g_re + 1j * g_im, m_re + 1j * m_im
        failed = np.isnan(g if want_green else m) & ~np.isnan(flat)
        report(Counter(status[failed].tolist()), flat.size, on_error)
        if array.shape:
            return g.reshape(array.shape), m.reshape(array.shape)
        return complex(g[0]), complex(m[0])


def _remake(kind: type, parameters: dict[str, Any]) -> SpectralLaw:
    return kind(**parameters)


class ChangedVariable(Distribution):
    """A law read in another variable (`SpectralLaw.singular_values`, `log_eigenvalues`)."""

    def __init__(self, law: SpectralLaw, variable: Eigenvalue) -> None:
        self.law = law
        self._core = law._core
        self._variable = variable

    def __repr__(self) -> str:
        method = "singular_values" if self._variable is SINGULAR_VALUE else "log_eigenvalues"
        return f"{self.law!r}.{method}()"


class ResNetLimit(SpectralLaw):
    r"""The universal law of deep residual networks, for any activation.

    z = a^{2L} ((1+m)/m) exp((c/a^2)(1 + 2m)), m = z G(z) - 1 (Tarnowski et al. 2018, eq. 25);
    for a = 1 the condition number of J is (1 + c + s) e^s, s = sqrt(c(2 + c)).

    Parameters
    ----------
    c : float
        Effective cumulant, the sum over blocks of sigma^2 mu_1; c/skip^2 in [5e-13, 5e5].
    skip : float
        Weight a of the skip connection, > 0.
    depth : int, optional
        Number of blocks L >= 1; needed when ``skip`` is not 1 (for the factor a^{2L}).

    Raises
    ------
    ValueError
        If a parameter is out of range, or depth is missing.

    Examples
    --------
    >>> import fastspec as fs
    >>> law = fs.ResNetLimit(0.125)
    >>> print("{:.11f} {:.11f}".format(*law.support()[0]))
    0.36410203806 2.74648284128
    """

    def __init__(self, c: float, *, skip: float = 1.0, depth: int | None = None) -> None:
        c = _checks.real("c", c, low=0.0, strict=True)
        skip = _checks.real("skip", skip, low=0.0, strict=True)
        if depth is not None:
            depth = _checks.positive_integer("depth", depth)
        elif skip != 1.0:
            raise ValueError(f"depth must be given when skip is not 1, got skip={skip!r}")
        _in_range("c/skip^2", c / skip**2, 5e-13, 5e5)
        super().__init__(_kernels.resnet_limit(c, skip, depth or 0), c=c, skip=skip, depth=depth)
        self.c, self.skip, self.depth = c, skip, depth

    def _kernel_blocks(self) -> list[KernelBlock]:
        ratio = self.c / self.skip**2
        log_mean = 2.0 * (self.depth or 0) * math.log(self.skip) + ratio
        return [_exponential(log_mean, 2.0 * ratio)]


class SmoothLimit(SpectralLaw):
    r"""Universality class of critical orthogonal feed-forward nets with smooth activations.

    z = ((1+m)/m) exp(sigma_0^2 m) (Pennington, Schoenholz & Ganguli 2018). It is the residual law
    with c = sigma_0^2/2, dilated by exp(-c). Finite nets come near it like 1/sqrt(L).

    Parameters
    ----------
    variance : float
        sigma_0^2, the variance of lambda (its mean is 1); in [1e-12, 1e6].

    Examples
    --------
    >>> import fastspec as fs
    >>> law = fs.SmoothLimit(0.25)
    >>> print(law.mean(), law.variance())
    1.0 0.25
    """

    def __init__(self, variance: float) -> None:
        variance = _in_range("variance", variance, 1e-12, 1e6)
        super().__init__(_kernels.smooth_limit(variance), variance=variance)

    def _kernel_blocks(self) -> list[KernelBlock]:
        return [_exponential(0.0, self._parameters["variance"])]


class BernoulliLimit(SpectralLaw):
    r"""Universality class of critical orthogonal feed-forward nets with 0/1 slopes.

    z = ((1+m)/m) exp(sigma_0^2 m/(1+m)) (Pennington, Schoenholz & Ganguli 2018): support
    (0, e sigma_0^2], an atom of mass (1 - sigma_0^2)_+ at exp(sigma_0^2); near 0 the density is
    ~ 1/(lambda log^2 lambda).

    Parameters
    ----------
    variance : float
        sigma_0^2, the variance of lambda (its mean is 1); in [1e-12, 1e6].

    Examples
    --------
    >>> import fastspec as fs
    >>> print(fs.BernoulliLimit(0.25).atoms.round(6))
    [[1.284025 0.75    ]]
    """

    def __init__(self, variance: float) -> None:
        variance = _in_range("variance", variance, 1e-12, 1e6)
        super().__init__(_kernels.bernoulli_limit(variance), variance=variance)

    def _kernel_blocks(self) -> list[KernelBlock]:
        data = np.array([self._parameters["variance"]])
        return [([], 0.0, 1.0, (_kernels.LOG_S_BERNOULLI, data, 0.0, 1.0, False))]


class FussCatalan(SpectralLaw):
    r"""Product of L square Gaussian matrices of variance 1/N: a deep linear network.

    z = (1+m)^{L+1}/m; moments C((L+1)k, k)/(Lk+1), upper edge (L+1)^{L+1}/L^L, density
    ~ lambda^{-L/(L+1)} at 0. L = 1 is Marchenko-Pastur of ratio 1.

    Parameters
    ----------
    depth : int
        Number of factors L, 1 to 10^7.

    Examples
    --------
    >>> import fastspec as fs
    >>> print(fs.FussCatalan(1).support())
    [(0.0, 4.0)]
    """

    def __init__(self, depth: int) -> None:
        depth = _depth(depth)
        super().__init__(_kernels.plain_chain(depth, 1.0, 0.0, 1.0, False), depth=depth)
        self.depth = depth

    def _kernel_blocks(self) -> list[KernelBlock]:
        return [_zero_one_layers(1.0, 0.0, 1.0, False, self.depth)]


class PlainChain(SpectralLaw):
    r"""Exact law of L equal plain layers D W with slopes 0 and 1 (linear, ReLU, hard tanh).

    Gaussian: z = sigma^{2L} (1+m)(m+p)^L/m; orthogonal: z = ((1+m)/m) (sigma^2 (m+p)/(1+m))^L,
    p = P(slope = 1) (Pennington, Schoenholz & Ganguli 2017). Atoms: 1 - p at 0; orthogonal also
    (1 - L(1-p))_+ at sigma^{2L}.

    Parameters
    ----------
    depth : int
        Number of layers L, 1 to 10^7.
    slope_probability, slope_complement : float
        p in (0, 1] and 1 - p. Both, because the smaller one carries the accuracy.
    weight_variance : float
        sigma^2 = N Var(W_ij) of one layer, > 0.
    weights : {"gaussian", "orthogonal"}

    Examples
    --------
    >>> import fastspec as fs
    >>> relu = fs.PlainChain(10, slope_probability=0.5, slope_complement=0.5, weight_variance=2.0)
    >>> print(relu.mean(), relu.variance(), relu.atoms)
    1.0 20.0 [[0.  0.5]]
    """

    def __init__(self, depth: int, *, slope_probability: float, slope_complement: float,
                 weight_variance: float, weights: str = "gaussian") -> None:
        depth = _depth(depth)
        p = _in_range("slope_probability", slope_probability, 1e-12, 1.0)
        q = _in_range("slope_complement", slope_complement, 0.0, 1.0)
        if abs((p - 1.0) + q) > 1e-12:
            raise ValueError(f"slope_complement must be 1 - slope_probability, got {q!r} and {p!r}")
        variance = _checks.real("weight_variance", weight_variance, low=0.0, strict=True)
        _checks.choice("weights", weights, _ENSEMBLES)
        super().__init__(
            _kernels.plain_chain(depth, p, q, variance, weights == "orthogonal"), depth=depth,
            slope_probability=p, slope_complement=q, weight_variance=variance, weights=weights)

    def _kernel_blocks(self) -> list[KernelBlock]:
        at = self._parameters
        return [_zero_one_layers(at["slope_probability"], at["slope_complement"],
                                 at["weight_variance"], at["weights"] == "orthogonal",
                                 at["depth"])]


def _exponential(log_mean: float, alpha: float) -> KernelBlock:
    """S = exp(-log_mean - alpha m)."""
    data = np.array([log_mean, alpha])
    return ([], 0.0, 1.0, (_kernels.LOG_S_EXPONENTIAL, data, log_mean, 1.0, False))


def _zero_one_layers(p: float, q: float, variance: float, orthogonal: bool,
                     depth: float) -> KernelBlock:
    values, masses = ([0.0, 1.0], [q, p]) if q > 0.0 else ([1.0], [p])
    slopes = _kernels.discrete_slopes(np.array(values), np.array(masses))
    return ([(slopes, variance, orthogonal, 1.0, 1.0)], 0.0, float(depth), None)


def _in_range(name: str, value: Any, low: float, high: float) -> float:
    number = _checks.real(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {value!r}")
    return number


def _depth(value: Any) -> int:
    depth = _checks.positive_integer("depth", value)
    if depth > 10_000_000:
        raise ValueError(f"depth must be at most 10000000, got {value!r}")
    return depth
