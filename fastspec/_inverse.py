"""Inverse problems: the sigma_w of a network at which a figure of it has a given value."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, signal
from ._extremes import detached_outliers, has_known_outliers, log_ends
from ._limits import slope_variances
from ._root_search import STEP, Trials, first_root
from .blocks import Layer
from .networks import FeedForward, ResNet

__all__ = ["no_solution", "one_target", "relative_variance", "solve"]

Network = Any       # FeedForward, ResNet, or what has their figures (fastspec.torch's MixedNetwork)
Level = Callable[[Network], float]
Start = Callable[[Network, str, float, Trials], float]

_SPAN = {"c": math.log(1e8), "variance": math.log(1e8),     # of sigma_w, searched upwards
         "condition_number": math.log(1e3), "top_singular_value": math.log(1e3)}
_FLOOR = -math.log(1e15)    # log sigma_w below which no start is sought
_FAR = math.log(1e-1)       # how far below its target a figure is where the search starts
_FAINT = 0.1                # largest kappa / skip^2 of a residual block there
_RESTS = 1e-10              # change of a figure that counts as none
_BLIND = math.log(1e2)      # of sigma_w, searched downwards for the domain of a figure


def one_target(targets: Mapping[str, float | None]) -> tuple[str, float]:
    """Name and value of the one target that is given, checked."""
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"exactly one of {', '.join(targets)} must be given, got "
                         f"{', '.join(given) or 'none'}")
    (name, value), = given.items()
    low = 1.0 if name == "condition_number" else 0.0
    return name, _checks.real(name, value, low=low, strict=True)


def solve(net: Network, name: str, value: float, limit: bool = False,
          start_of: Start | None = None) -> float:
    """The smallest sigma_w at which the figure ``name`` of a network has this value.

    With ``limit`` the figure is that of the law of infinite depth of a residual network.
    ``start_of`` finds where to begin, log sigma_w, for networks of other kinds.

    The top singular value is found for the bulk first. Outliers can only be larger, so the bulk's
    sigma_w ends the search for the one at which the larger of bulk and outlier meets the target.
    """
    shown = f"{name} = {value:g}"
    if limit and isinstance(net, ResNet) and name != "c":
        value = _cumulant_of_limit(name, value, abs(net.skip), net.depth)
        name, shown = "c", f"{shown} in the limit, c = {value:g}"
    figure = _Figure(net, _LEVELS[name])
    trials = Trials(figure, _level_of(name, value))
    start = (start_of or _start)(net, name, value, trials)
    known = any(not math.isnan(value) for value in trials.values.values())
    stop = max(start, 0.0) + (_SPAN[name] if known else 2.0 * _BLIND)
    root = first_root(trials, start, stop)
    if name == "top_singular_value" and has_known_outliers(net):
        figure = _Figure(net, _log_top_with_outliers)
        trials = Trials(figure, trials.target)
        root = first_root(trials, _lower(trials, start), stop if root is None else root)
    if root is None:
        raise ValueError(no_solution(name, shown, trials))
    sigma_w = math.exp(root)
    for warning in figure.warnings.get(sigma_w, ()):
        warnings.warn(warning.message, warning.category, stacklevel=3)
    return sigma_w


class _Figure:
    """The level of a figure as a function of sigma_w, and what was warned of on the way."""

    def __init__(self, net: Network, level: Level) -> None:
        self._net, self._level = net, level
        self.warnings: dict[float, list[warnings.WarningMessage]] = {}

    def __call__(self, sigma_w: float) -> float:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net = dataclasses.replace(self._net, sigma_w=sigma_w)
            if isinstance(net, FeedForward) and net.q is not None:
                _require_fixed_point(net)
            level = self._level(net)
        if caught:
            self.warnings[sigma_w] = caught
        return level


def _require_fixed_point(net: FeedForward) -> None:
    """ValueError if q^1 leads to none: known from the list, where a search would go on for long."""
    first = net.weight_variance * net.input_second_moment + net.sigma_b * net.sigma_b
    points = signal.fixed_points(net.activation, net.sigma_w, net.sigma_b)
    if any(point.continuum for point in points):
        return
    if signal.variance_map(net.activation, first, net.sigma_w, net.sigma_b) > first:
        if not any(point.q > first for point in points):
            raise ValueError(f"q grows without bound from {first:.6g}, there is no fixed point")
    elif not any(0.0 < point.q <= first for point in points):
        raise ValueError(f"the signal dies out from q = {first:.6g}, there is no fixed point > 0")


# --- levels: logs of the figures, in which they are nearly straight lines of log sigma_w ----------

def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def _log_c(net: Network) -> float:
    return _log(net.effective_cumulant())


def _log_variance(net: Network) -> float:
    return _log(relative_variance(net))


def relative_variance(net: Network) -> float:
    """Variance of the spectrum over its mean squared, without a law.

    For residual networks the sum over blocks of (2 a^2 kappa + kappa^2 v)/(a^2 + kappa)^2 (Ling &
    Qiu 2018, theorem 2); v is the sum over the branch's layers of mu_2/mu_1^2 - 1 - s_1, s_1 = -1
    for Gaussian weights.
    """
    if not isinstance(net, ResNet):
        return float(net.jacobian_variance())
    result = net.propagate()
    columns = [*(layer.q for layer in result.inner), result.q]
    gaussian = float(net.weights == "gaussian")
    spread = np.array([_slope_spread(net, q) + gaussian for q in columns]).sum(axis=0)
    square = net.skip * net.skip
    share = result.kappa / (square + result.kappa)
    return math.fsum(share * (2.0 * (1.0 - share) + share * spread))


def _slope_spread(net: ResNet, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """mu_2/mu_1^2 - 1 at each q of a layer of the branch."""
    if net.batch_norm is None:
        return slope_variances(net.activation, q)
    gamma, beta = net.batch_norm
    layer = Layer(net.activation, q=gamma * gamma, mean=beta, weight_variance=1.0,
                  weights="orthogonal")
    return np.full(q.size, layer.relative_variance())


def _log_log_condition(net: Network) -> float:
    low, high = net.spectrum()._log_hull()
    return _log(0.5 * (high - low))


def _log_top(net: Network) -> float:
    return 0.5 * net.spectrum()._log_hull()[1]


def _log_top_with_outliers(net: Network) -> float:
    return 0.5 * log_ends(net.spectrum(), detached_outliers(net))[1]


_LEVELS: dict[str, Level] = {
    "c": _log_c, "condition_number": _log_log_condition, "variance": _log_variance,
    "top_singular_value": _log_top}


def _level_of(name: str, value: float) -> float:
    return math.log(math.log(value) if name == "condition_number" else value)


def _value_at(name: str, level: float) -> float:
    with np.errstate(over="ignore"):
        value = np.exp(level)
        return float(np.exp(value) if name == "condition_number" else value)


# --- where the search starts ----------------------------------------------------------------------

def _start(net: Network, name: str, value: float, trials: Trials) -> float:
    if isinstance(net, ResNet):
        if name in ("c", "variance"):
            return _downhill(trials, 0.0, _FAR)
        return _faint_blocks(net, name, value, trials)
    moment = net.input_second_moment
    unit = -0.5 * math.log(moment) if moment > 0.0 else 0.0     # q^1 is about 1
    if name == "top_singular_value":
        mean = Trials(lambda sigma_w: _log_mean(net, sigma_w), 0.0)
        bar = 2.0 * math.log(value) + _FAR
        return _lower(trials, _downhill(mean, unit, bar))
    if name == "condition_number" and trials(unit) == math.inf:
        # phi' comes near 0 somewhere, and h ~ N(0, q) gets there whatever q is.
        raise ValueError(no_solution(name, f"{name} = {value:g}", trials))
    return _downhill(trials, unit, _FAR)


def _faint_blocks(net: ResNet, name: str, value: float, trials: Trials) -> float:
    """Below the target, with a cumulant well below that of the limit law and small kappas."""
    wanted = 0.25 * _cumulant_of_limit(name, value, abs(net.skip), net.depth)
    if name == "condition_number":
        wanted = min(wanted, _FAINT * net.skip**2)
    cumulant = Trials(lambda sigma_w: _log_c(dataclasses.replace(net, sigma_w=sigma_w)), 0.0)
    return _lower(trials, _downhill(cumulant, 0.0, _log(wanted)))


def _log_mean(net: FeedForward, sigma_w: float) -> float:
    """log of the mean squared singular value."""
    kappa = dataclasses.replace(net, sigma_w=sigma_w).propagate().kappa
    return math.fsum(map(_log, kappa))


def _downhill(trials: Trials, start: float, bar: float) -> float:
    """Down from ``start`` to where the figure is below ``bar``, rests, or its domain ends."""
    at, last = start, math.nan
    while at > _FLOOR:
        value = trials(at)
        if value <= bar or (math.isnan(value) and not math.isnan(last)):
            return at
        if abs(value - last) < _RESTS:
            return at + STEP
        if math.isnan(value) and at < start - _BLIND:
            return at
        at, last = at - STEP, value
    return at


def _lower(trials: Trials, start: float) -> float:
    """Down from ``start`` to below the target, by a factor of 32 at most."""
    for _ in range(10):
        if not trials(start) > 0.0:
            break
        start -= STEP
    return start


def _cumulant_of_limit(name: str, value: float, skip: float, depth: int) -> float:
    """c of the law of infinite depth that has this figure.

    With 1 + c/a^2 = cosh u its ends are a^(2L) exp(+-(u + sinh u)), its variance over its mean
    squared is 2 c / a^2 (Tarnowski et al. 2018, eq. 25).
    """
    if name == "variance":
        return 0.5 * skip * skip * value
    logarithm = math.log(value)
    if name == "top_singular_value":
        floor = depth * math.log(skip)
        logarithm = 2.0 * (logarithm - floor)
        if not logarithm > 0.0:
            raise ValueError(f"no sigma_w gives top_singular_value = {value:g}: it is above "
                             f"skip^depth = {math.exp(floor):g}, which it nears as sigma_w -> 0")
    from scipy.optimize import brentq

    u = brentq(lambda u: u + math.sinh(u) - logarithm, 0.0, math.asinh(logarithm),
               xtol=1e-300, rtol=1e-15)
    return 2.0 * (skip * math.sinh(0.5 * u)) ** 2


def no_solution(name: str, shown: str, trials: Trials) -> str:
    """What to say when no root was found."""
    message, nearest = f"no sigma_w gives {shown}", trials.nearest()
    if nearest is not None:
        at, level = nearest
        message += (f": the nearest found is {name} = {_value_at(name, level):.6g} at "
                    f"sigma_w = {math.exp(at):.6g}")
    else:
        for level in (math.inf, -math.inf):
            if level in trials.values.values():
                message += f": {name} is {_value_at(name, level):g} at every sigma_w"
    if trials.reason:
        message += f" (no value {trials.reason})"
    return message
