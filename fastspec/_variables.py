"""The variables a law can be read in: lambda, s = sqrt(lambda) and log lambda.

The C kernels know lambda and log lambda. Each variable says how a point of its own reaches them
and how densities change, so that the queries in `_distribution` are written once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _kernels

FloatArray = NDArray[np.float64]


class Eigenvalue:
    """lambda, an eigenvalue of J J^T."""

    name = "lambda"
    label = r"squared singular value $\lambda$"

    def density(self, core: Any, x: FloatArray, out: FloatArray) -> int:
        """Density at ``x`` into ``out``; returns the number of points that failed."""
        return int(core.density(x, _kernels.LAMBDA, out))

    def density_at(self, core: Any, x: float) -> float:
        """Density at one point."""
        return float(core.density_at(x, _kernels.LAMBDA))

    def to_kernel(self, x: FloatArray) -> tuple[FloatArray, int]:
        """Points as the kernels take them, and the kernel's variable."""
        return x, _kernels.LAMBDA


    def quantile(self, core: Any, p: FloatArray) -> tuple[FloatArray, int]:
        """Points with distribution function ``p``, and the number that failed."""
        return core.quantile(p, _kernels.LAMBDA)

    def intervals(self, core: Any) -> list[tuple[float, float]]:
        """Intervals of the continuous part."""
        return list(core.intervals(_kernels.LAMBDA))

    def from_log(self, log_lam: FloatArray) -> FloatArray:
        """The point whose log lambda is given; beyond the range of a double 0 or inf."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(log_lam)

    def atom(self, lam: float, log_lam: float) -> float:
        """The place of an atom, from its lambda and log lambda."""
        return lam

    def log_density(self, log_lam: FloatArray, density: FloatArray) -> FloatArray:
        """log of this variable's density where log lambda has ``density`` > 0."""
        return np.log(density) - log_lam


class SingularValue(Eigenvalue):
    """s = sqrt(lambda), a singular value of J."""

    name = "s"
    label = r"singular value $s$"

    # squares outside this range leave the doubles
    _low, _high = 1e-150, 1e150

    def density(self, core: Any, x: FloatArray, out: FloatArray) -> int:
        positive = np.maximum(x, 0.0)  # NaN stays NaN
        inner = np.clip(positive, self._low, self._high)
        failures = core.density(inner * inner, _kernels.LAMBDA, out)
        out *= 2.0 * inner
        out[x <= 0.0] = 0.0
        extreme = ((x > 0.0) & (x < self._low)) | ((x > self._high) & np.isfinite(x))
        if extreme.any():
            part = np.empty(int(extreme.sum()))
            failures += core.density(2.0 * np.log(x[extreme]), _kernels.LOG_LAMBDA, part)
            out[extreme] = 2.0 * part / x[extreme]
        out[x == np.inf] = 0.0
        out[x == 0.0] = self._at_zero(core)
        return int(failures)

    def density_at(self, core: Any, x: float) -> float:
        out = np.empty(1)
        self.density(core, np.array([x]), out)
        return float(out[0])

    def _at_zero(self, core: Any) -> float:
        """Limit at s = 0+: s^(2/E - 1) is 0, finite or infinite as E is below 2, 2 or more."""
        exponent = core.hard_exponent()
        if exponent != 2.0:
            return 0.0 if exponent < 2.0 else np.inf
        small = 1e-120
        return 2.0 * core.density_at(2.0 * np.log(small), _kernels.LOG_LAMBDA) / small

    def to_kernel(self, x: FloatArray) -> tuple[FloatArray, int]:
        size = np.abs(x)
        if np.any((x > 0.0) & (size < self._low) | (size > self._high)):
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(x > 0.0, 2.0 * np.log(size), x - np.inf), _kernels.LOG_LAMBDA
        return x * size, _kernels.LAMBDA

    def quantile(self, core: Any, p: FloatArray) -> tuple[FloatArray, int]:
        lam, failures = core.quantile(p, _kernels.LAMBDA)
        s = np.sqrt(lam)
        extreme = (lam <= 1e-300) | (lam >= 1e300)
        if extreme.any():
            log_lam, _ = core.quantile(np.ascontiguousarray(p[extreme]), _kernels.LOG_LAMBDA)
            s[extreme] = self.from_log(log_lam)
        return s, failures

    def intervals(self, core: Any) -> list[tuple[float, float]]:
        ends = self.from_log(np.array(core.intervals(_kernels.LOG_LAMBDA)).reshape(-1, 2))
        return [(low, high) for low, high in ends.tolist()]

    def from_log(self, log_lam: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(0.5 * log_lam)

    def atom(self, lam: float, log_lam: float) -> float:
        return math.sqrt(lam) if 1e-300 < lam < 1e300 else math.exp(0.5 * log_lam)

    def log_density(self, log_lam: FloatArray, density: FloatArray) -> FloatArray:
        return np.log(2.0 * density) - 0.5 * log_lam


class LogEigenvalue(Eigenvalue):
    """log lambda: what deep feed-forward laws need, whose lambda leave the doubles."""

    name = "log_lambda"
    label = r"$\log\,\lambda$"

    def density(self, core: Any, x: FloatArray, out: FloatArray) -> int:
        return int(core.density(x, _kernels.LOG_LAMBDA, out))

    def density_at(self, core: Any, x: float) -> float:
        return float(core.density_at(x, _kernels.LOG_LAMBDA))

    def to_kernel(self, x: FloatArray) -> tuple[FloatArray, int]:
        return x, _kernels.LOG_LAMBDA

    def quantile(self, core: Any, p: FloatArray) -> tuple[FloatArray, int]:
        return core.quantile(p, _kernels.LOG_LAMBDA)

    def intervals(self, core: Any) -> list[tuple[float, float]]:
        return list(core.intervals(_kernels.LOG_LAMBDA))

    def from_log(self, log_lam: FloatArray) -> FloatArray:
        return log_lam

    def atom(self, lam: float, log_lam: float) -> float:
        return log_lam

    def log_density(self, log_lam: FloatArray, density: FloatArray) -> FloatArray:
        return np.log(density)


EIGENVALUE, SINGULAR_VALUE, LOG_EIGENVALUE = Eigenvalue(), SingularValue(), LogEigenvalue()
