"""S-transforms that users write: evaluation, checks, and the compiled form for the kernel."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Transform"]

_BELOW = 1e-300                       # real points are approached from the lower half plane
_PROBES = [radius * cmath.exp(-1j * angle) for radius in (0.03, 0.3, 0.9, 2.0, 10.0, 1e3)
           for angle in np.pi * np.array([0.0, 0.15, 0.4, 0.65, 0.9, 1.0])[1:-1]]
_DIFFERENCE, _STEP = 1e-6, 1e-3       # agreement of dlog_s with differences over _STEP |m|
_NAN = complex(np.nan, np.nan)


class Transform:
    """log S and its derivative, from Python or numba functions."""

    def __init__(self, log_s: Any, dlog_s: Any) -> None:
        for name, function in (("log_s", log_s), ("dlog_s", dlog_s)):
            if not callable(function) and not _is_numba(function):
                raise ValueError(f"{name} must be a function of a complex number, "
                                 f"got {function!r}")
        self._compiled = None
        if _is_numba(log_s) and _is_numba(dlog_s):
            log_s, dlog_s = _jitted(log_s), _jitted(dlog_s)
            self._compiled = _compiled(log_s, dlog_s)
        self._log_s, self._dlog_s = log_s, dlog_s

    def given(self, log_mean: float) -> tuple[Any, Any, float, float, bool]:
        """The law's `given` for `_kernels.chain`."""
        positive = self._positive()
        if self._compiled is not None:
            return self._compiled.address, None, log_mean, positive, True
        return self._log_s, self._dlog_s, log_mean, positive, True

    def check(self, log_mean: float) -> None:
        """ValueError with what is wrong."""
        at_zero, slope = _value(self._log_s, 0j), _value(self._dlog_s, 0j)
        if not abs(at_zero + log_mean) <= 1e-8:
            raise ValueError(f"log_s(0) must be -log(mean) = {-log_mean!r}, got {at_zero!r}")
        if not (cmath.isfinite(slope) and abs(slope.imag) <= 1e-10 * abs(slope)):
            raise ValueError(f"dlog_s(0) must be finite and real, got {slope!r}")
        if slope.real > 0.0:
            raise ValueError(f"dlog_s(0) must be <= 0 (it is -variance/mean^2), got {slope.real!r}:"
                             " log_s is not the log of the S-transform of a positive law")
        for m in _PROBES:
            self._check_at(m)

    def _check_at(self, m: complex) -> None:
        for name, function in (("log_s", self._log_s), ("dlog_s", self._dlog_s)):
            value = _value(function, m)
            if not cmath.isfinite(value):
                raise ValueError(f"{name} must be finite in the lower half plane, where the "
                                 f"S-transform of a law has no poles; {name}({m:.6g}) = {value!r}")
        given = _value(self._dlog_s, m)
        expected, scale = _difference(self._log_s, m)
        if not abs(given - expected) <= _DIFFERENCE * (abs(given) + abs(expected)) + scale:
            raise ValueError(f"dlog_s must be the derivative of log_s, and log_s analytic in the "
                             f"lower half plane; dlog_s({m:.6g}) = {given:.6g}, but differences "
                             f"of log_s give {expected:.6g}")

    def _positive(self) -> float:
        """1 - mass at 0: the pole of S on (-1, 0), up to which S is positive and decreasing."""
        distances = np.concatenate([np.geomspace(1e-12, 1e-2, 21), np.linspace(0.02, 0.98, 49)])
        good, bad = 0.0, 1.0
        for x in np.sort(np.concatenate([distances, 1.0 - np.geomspace(1e-2, 1e-12, 21)])):
            if not self._decreases(x):
                bad = float(x)
                break
            good = float(x)
        else:
            return 1.0
        while bad - good > 1e-16 * bad:
            middle = 0.5 * (good + bad)
            if middle in (good, bad):
                break
            good, bad = (middle, bad) if self._decreases(middle) else (good, middle)
        return bad

    def _decreases(self, x: float) -> bool:
        """Whether S is positive and decreasing at -x - i0."""
        value, slope = (_value(function, complex(-x, -_BELOW))
                        for function in (self._log_s, self._dlog_s))
        return (cmath.isfinite(value) and abs(value.imag) < 0.5
                and slope.real <= _DIFFERENCE)


def _value(function: Callable[[complex], complex], m: complex) -> complex:
    """NaN where the function is not defined."""
    try:
        return complex(function(m))
    except (ArithmeticError, ValueError):
        return _NAN


def _difference(log_s: Callable[[complex], complex], m: complex) -> tuple[complex, float]:
    """Derivative along the real direction (fourth order), and its rounding."""
    h = _STEP * abs(m)
    far, near = ([_value(log_s, m + k * h) for k in (-step, step)] for step in (2, 1))
    value = (8.0 * (near[1] - near[0]) - (far[1] - far[0])) / (12.0 * h)
    return value, 1e-14 * max(1.0, *map(abs, far + near)) / h


def _is_numba(function: Any) -> bool:
    return type(function).__module__.partition(".")[0] == "numba"


def _jitted(function: Any) -> Any:
    """A numba function that others can call; that of a cfunc is compiled again."""
    if hasattr(function, "native_name"):
        import numba

        return numba.njit(function._pyfunc)
    return function


def _compiled(log_s: Any, dlog_s: Any) -> Any:
    """One C function of type fspec_log_s_fn."""
    import numba
    from numba import types

    pointer = types.CPointer(types.float64)

    @numba.cfunc(types.void(*3 * [types.float64], pointer, pointer, types.voidptr))
    def both(m_re, m_im, one_re, value, slope, data):
        value[0] = value[1] = slope[0] = slope[1] = np.nan
        m = complex(m_re, m_im)
        first, second = log_s(m) + 0j, dlog_s(m) + 0j
        value[0], value[1] = first.real, first.imag
        slope[0], slope[1] = second.real, second.imag

    return both
