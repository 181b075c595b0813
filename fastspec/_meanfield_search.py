"""The sigma_w at which a mean-field network meets a target, by bracketing and Brent's method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from ._heatmap import gradients, sums
from ._meanfield_recurrence import Layers, recur
from ._meanfield_settings import Settings, check_inputs, settings

__all__ = ["largest_sigma_for_limit", "sigma_for_log_chi_ratio"]

FloatArray = NDArray[np.float64]

_SEARCH = np.geomspace(1e-6, 1e6, 97)       # sigma_w that are tried first
_SIGMA_TOLERANCE = 1e-13


def sigma_for_log_chi_ratio(
    activation: Any,
    block: str,
    depth: int,
    target: float,
    *,
    sigma_b: float = 0.0,
    sigma_v: float = 1.0,
    sigma_a: float = 0.0,
    p0: float = 1.0,
    mean0: float = 0.0,
) -> float:
    """The sigma_w at which ln(chi_0 / chi_L) takes a given value.

    Parameters
    ----------
    activation, block, sigma_b, sigma_v, sigma_a
        As in `ResidualMeanField`.
    depth : int
        L >= 1.
    target : float
        Wanted ln(chi_0 / chi_L); > 0 with skip connections.
    p0, mean0 : float
        As in `ResidualMeanField.run`.

    Returns
    -------
    float
        Between 1e-6 and 1e6, to 1e-12 relative; the smallest if there are several.

    Raises
    ------
    ValueError
        If an argument is out of range, or no sigma_w reaches the target; the message has the
        nearest value that is reached.

    Notes
    -----
    For tanh-like residual networks the quality of training follows this ratio (Yang & Schoenholz
    2017, section 5); to leading order it fixes sigma_w sqrt(L), but not at practical depths.

    Examples
    --------
    >>> from fastspec.meanfield import sigma_for_log_chi_ratio
    >>> round(sigma_for_log_chi_ratio("tanh", "reduced", 100, 5.0, sigma_b=0.5), 4)
    0.4406
    """
    wanted = _checks.real("target", target)
    rest = {"sigma_b": sigma_b, "sigma_v": sigma_v, "sigma_a": sigma_a}

    def excess(net: Settings, layers: Layers) -> FloatArray:
        return np.asarray(sums(layers)[-1] - wanted)

    search = _Search(excess, activation, block, depth, rest, p0, mean0)
    signs = np.sign(search.on_grid)
    crossings = np.flatnonzero(signs[:-1] * signs[1:] <= 0.0)
    if not crossings.size:
        reached = search.on_grid[np.nanargmin(np.abs(search.on_grid))] + wanted
        raise ValueError(f"target = {wanted:g} is out of reach of {search.where}: the nearest "
                         f"ln(chi_0/chi_L) is {reached:.6g}")
    return search.root(int(crossings[0]))


def largest_sigma_for_limit(
    activation: Any,
    block: str,
    depth: int,
    limit: float,
    *,
    sigma_b: float = 0.0,
    sigma_v: float = 1.0,
    sigma_a: float = 0.0,
    p0: float = 1.0,
    mean0: float = 0.0,
) -> float:
    """The largest sigma_w at which no RMS activation x and no RMS gradient exceeds a limit.

    Parameters
    ----------
    activation, block, sigma_b, sigma_v, sigma_a
        As in `ResidualMeanField`.
    depth : int
        L >= 1.
    limit : float
        Largest RMS of x, and of the gradients by x and by parameters in units of that by the
        output, at any layer; > max(1, sqrt(p0)). For example 65504 for fp16, or 88 for a softmax
        without shift in fp32.
    p0, mean0 : float
        As in `ResidualMeanField.run`.

    Returns
    -------
    float
        Between 1e-6 and 1e6, to 1e-12 relative.

    Raises
    ------
    ValueError
        If an argument is out of range, or no sigma_w or every one stays below the limit; the
        message has the nearest RMS.

    Notes
    -----
    For ReLU-like networks the quality of training follows s, which wants sigma_w as large as
    numbers allow (Yang & Schoenholz 2017, section 5). Pre-activations h can exceed the limit, by a
    factor sigma_w at most (without biases): `HeatMap.activation_overflow` counts them.

    Examples
    --------
    >>> from fastspec.meanfield import largest_sigma_for_limit
    >>> round(largest_sigma_for_limit("relu", "full", 100, 65504.0), 3)
    0.705
    """
    top = _checks.real("limit", limit, low=max(1.0, math.sqrt(check_inputs(p0, 0.0)[0])),
                       strict=True)
    rest = {"sigma_b": sigma_b, "sigma_v": sigma_v, "sigma_a": sigma_a}

    def excess(net: Settings, layers: Layers) -> FloatArray:
        activation_logs = 0.5 * np.max(layers.p.log(), axis=0)
        largest = np.maximum(activation_logs, gradients(net, layers)[0][-1])
        return np.asarray(np.where(np.isnan(largest), np.inf, largest) - math.log(top))

    search = _Search(excess, activation, block, depth, rest, p0, mean0)
    below = np.flatnonzero(search.on_grid <= 0.0)
    if not below.size or below[-1] == _SEARCH.size - 1:
        nearest = math.log(top) + search.on_grid[-1 if below.size else 0]
        raise ValueError(f"limit = {top:g} is {'never' if below.size else 'always'} exceeded by "
                         f"{search.where}: the nearest RMS is exp({nearest:.6g})")
    return search.root(int(below[-1]))


class _Search:
    """A function of sigma_w, from layers of the recurrence of one input; its roots."""

    def __init__(self, function: Callable[[Settings, Layers], FloatArray], activation: Any,
                 block: str, depth: int, rest: dict[str, float], p0: float, mean0: float) -> None:
        self._function, self._rest = function, rest
        self._activation, self._block = activation, block
        self._depth = _checks.positive_integer("depth", depth)
        for name, value in rest.items():
            _checks.real(name, value, low=0.0)
        p0, _, mean0 = check_inputs(p0, p0, mean0)
        self._inputs = p0, p0, mean0
        self.on_grid = self(_SEARCH)
        self.where = (f"{block} blocks with {activation!r} at depth {depth}, sigma_w between "
                      f"{_SEARCH[0]:g} and {_SEARCH[-1]:g}")

    def __call__(self, sigma_w: ArrayLike) -> FloatArray:
        net = settings(self._activation, self._block, sigma_w, **self._rest)
        return self._function(net, recur(net, self._depth, *self._inputs)[0])

    def root(self, index: int) -> float:
        """The root between two neighbours of the grid."""
        from scipy.optimize import brentq

        log_sigma = brentq(lambda x: float(np.minimum(self(math.exp(x))[0], 1e300)),
                           *np.log(_SEARCH[index:index + 2]), xtol=_SIGMA_TOLERANCE)
        return math.exp(log_sigma)
