"""The first root of a function of log sigma about which nothing is taken for granted.

It may be infinite, undefined (NaN) outside a domain, turn round, or jump. The search goes upwards,
brackets, and ends with Brent's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["STEP", "Trials", "first_root"]

STEP = 0.5 * math.log(2.0)      # of log sigma, between neighbouring trials
_EQUAL = 1e-12                  # a figure so near its target ends Brent's method
_ACCEPTED = 3e-11               # and beyond this the sign changes by a jump
_NARROW = 1e-15                 # brackets of log sigma are halved down to this,
_NEAR = 1e-6                    # ends of the domain and tops of peaks are sought to this
_GONE = 2                       # undefined neighbours that end a domain
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


class Trials:
    """level(log_sigma) - target, remembered; NaN where the figure is undefined.

    Attributes
    ----------
    values : dict of float to float
        What was found, by log sigma.
    reason : str
        Why the figure could not be evaluated, the first time that happened.
    """

    def __init__(self, level: Callable[[float], float], target: float) -> None:
        self._level, self.target = level, target
        self.values: dict[float, float] = {}
        self.reason = ""

    def __call__(self, log_sigma: float) -> float:
        if log_sigma not in self.values:
            self.values[log_sigma] = self._evaluate(log_sigma)
        return self.values[log_sigma]

    def _evaluate(self, log_sigma: float) -> float:
        try:
            difference = self._level(math.exp(log_sigma)) - self.target
        except (ValueError, ArithmeticError) as error:  # explodes, dies out, is not solved
            self.reason = self.reason or f"at sigma_w = {math.exp(log_sigma):.6g}: {error}"
            return math.nan
        return 0.0 if abs(difference) <= _EQUAL else difference

    def nearest(self) -> tuple[float, float] | None:
        """log sigma and level of the finite trial nearest to the target, if there is one."""
        finite = [(abs(value), at) for at, value in self.values.items() if math.isfinite(value)]
        if not finite:
            return None
        at = min(finite)[1]
        return at, self.values[at] + self.target


def first_root(trials: Trials, start: float, stop: float) -> float | None:
    """The first place in [start, stop] where ``trials`` is 0, or None.

    Looks for a change of sign between neighbours a `STEP` apart, up to the end of the domain, and
    at the top of every peak that points at 0.
    """
    older, low, undefined = math.nan, start, -math.inf
    while low < stop and undefined < _GONE:
        high = low + STEP
        root = _between(trials, low, high)
        if root is None and not math.isnan(older):
            root = _at_peak(trials, older, low, high)
        if root is not None:
            return root
        if math.isnan(trials(high)):
            undefined += 1      # stays infinite below the domain
        else:
            undefined = 0
        older, low = low, high
    return None


def _between(trials: Trials, low: float, high: float) -> float | None:
    at_low, at_high = trials(low), trials(high)
    if math.isnan(at_low) and math.isnan(at_high):
        return None
    if math.isnan(at_low):
        return _up_to_the_end(trials, high, low)
    if math.isnan(at_high):
        return _up_to_the_end(trials, low, high)
    return _root(trials, low, high) if at_low * at_high <= 0.0 else None


def _up_to_the_end(trials: Trials, inside: float, outside: float) -> float | None:
    """A root between ``inside`` and the end of the domain, which lies before ``outside``."""
    while abs(outside - inside) > _NEAR:
        middle = 0.5 * (inside + outside)
        value = trials(middle)
        if math.isnan(value):
            outside = middle
        elif value * trials(inside) <= 0.0:
            return _root(trials, min(inside, middle), max(inside, middle))
        else:
            inside = middle
    return None


def _at_peak(trials: Trials, low: float, middle: float, high: float) -> float | None:
    """The root left of an extremum that reaches 0, if |value| is least at ``middle``."""
    outer, inner = (abs(trials(low)), abs(trials(high))), abs(trials(middle))
    if not inner < min(outer) - _ACCEPTED:      # NaN: no
        return None
    sign = math.copysign(1.0, trials(middle))
    while high - low > _NEAR:
        wide_left = middle - low > high - middle
        new = (middle - (1.0 - _GOLDEN) * (middle - low) if wide_left
               else middle + (1.0 - _GOLDEN) * (high - middle))
        value = sign * trials(new)
        if math.isnan(value):
            return _around(trials, *((low, new, middle) if wide_left else (middle, new, high)))
        if value <= 0.0:
            return _root(trials, low, new)
        if value < sign * trials(middle):
            low, middle, high = (low, new, middle) if wide_left else (middle, new, high)
        elif wide_left:
            low = new
        else:
            high = new
    return None


def _around(trials: Trials, low: float, gap: float, high: float) -> float | None:
    """The first root left, else right of a place where the figure is undefined."""
    root = _up_to_the_end(trials, low, gap)
    return _up_to_the_end(trials, high, gap) if root is None else root


class _Gap(Exception):
    """The figure is undefined at ``args[0]``."""


def _root(trials: Trials, low: float, high: float) -> float | None:
    """The root in a bracket, or None if the sign changes by a jump."""
    if trials(low) == 0.0:
        return low
    while not (math.isfinite(trials(low)) and math.isfinite(trials(high))):
        middle = 0.5 * (low + high)
        if math.isnan(trials(middle)):
            return _around(trials, low, middle, high)
        if high - low <= _NARROW * max(1.0, abs(low)):
            return None
        if trials(middle) * trials(low) > 0.0:
            low = middle
        else:
            high = middle
    from scipy.optimize import brentq

    def figure(log_sigma: float) -> float:
        value = trials(log_sigma)
        if math.isnan(value):
            raise _Gap(log_sigma)
        return value

    try:
        root = float(brentq(figure, low, high, xtol=1e-300, rtol=1e-15))
    except _Gap as gap:
        return _around(trials, low, gap.args[0], high)
    return root if abs(trials(root)) <= _ACCEPTED else None
