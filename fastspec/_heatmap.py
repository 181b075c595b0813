"""Heat maps of mean-field networks over (sigma, depth).

One recurrence per sigma serves all depths: gradients at depth L, in units of that at the output,
are differences of the sums S_l of log factors from the input up to layer l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from ._meanfield_recurrence import Layers, recur
from ._meanfield_settings import Settings, check_inputs, settings
from .activations import Activation

__all__ = ["FORMATS", "HeatMap", "gradients", "heatmap", "sums"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Floating-point formats: natural logarithms of the largest number and of the smallest above 0.
FORMATS = {
    "fp16": (math.log(65504.0), -24.0 * math.log(2.0)),
    "bf16": (math.log(2.0 - 2.0**-7) + 127.0 * math.log(2.0), -133.0 * math.log(2.0)),
    "fp32": (math.log(2.0 - 2.0**-23) + 127.0 * math.log(2.0), -149.0 * math.log(2.0)),
}
_LOG_SOFTMAX_LIMIT = math.log(FORMATS["fp32"][0])   # exp overflows beyond 88.72


@dataclass(frozen=True, eq=False, repr=False)
class HeatMap:
    """Mean-field figures over (sigma, depth); made by `heatmap`.

    Arrays but ``sigma`` and ``depth`` have shape (len(sigma), len(depth)). Gradients are in
    units of the RMS gradient at the output. Where even log p leaves the range of a double, log_p is
    inf, the overflow flags are True and the rest is NaN.

    Attributes
    ----------
    activation : Activation
    block : str
    axis : str
        "sigma_w" or "sigma_v": what varies.
    sigma : ndarray
        Its values.
    depth : ndarray of int
    log_chi_ratio : ndarray
        ln(chi_0 / chi_L).
    log_p, log_s : ndarray
        ln E x^2 and ln of the metric expressivity (p - gamma) of the last layer.
    s, e : ndarray
        The metric expressivity (inf or 0 beyond the doubles) and gamma / p of the last layer.
    log_chi_w_spread, log_chi_b_spread : ndarray
        ln of the largest over the smallest chi_w, chi_b of the L layers.
    log_activation : ndarray
        ln of the largest RMS of x and h over the layers.
    log_gradient, log_smallest_gradient : ndarray
        ln of the largest and smallest RMS gradient by activations and parameters over the layers.
    """

    activation: Activation
    block: str
    axis: str
    sigma: FloatArray
    depth: NDArray[np.intp]
    log_chi_ratio: FloatArray
    log_p: FloatArray
    log_s: FloatArray
    s: FloatArray
    e: FloatArray
    log_chi_w_spread: FloatArray
    log_chi_b_spread: FloatArray
    log_activation: FloatArray
    log_gradient: FloatArray
    log_smallest_gradient: FloatArray

    def activation_overflow(self, number: str) -> BoolArray:
        """Where the RMS of x or h exceeds the largest "fp16", "bf16" or "fp32" at some layer.

        Single units overflow earlier: with N units, from an RMS about sqrt(2 ln N) times smaller.
        """
        return np.asarray(self.log_activation > _format(number)[0])

    def gradient_overflow(self, number: str) -> BoolArray:
        """Where an RMS gradient exceeds the largest number, for an RMS of 1 at the output."""
        return np.asarray((self.log_gradient > _format(number)[0]) | (self.log_p == np.inf))

    def log_overflow(self, number: str) -> FloatArray:
        """ln of the largest RMS of x, h and gradients over the format's largest number."""
        excess = np.fmax(self.log_activation, self.log_gradient) - _format(number)[0]
        return np.where(self.log_p == np.inf, np.inf, excess)

    def gradient_underflow(self, number: str) -> BoolArray:
        """Where an RMS gradient is below the smallest number above 0 of the format."""
        return np.asarray(self.log_smallest_gradient < _format(number)[1])

    @property
    def softmax_overflow(self) -> BoolArray:
        """Where the RMS output exceeds 88.72, beyond which exp overflows in fp32 (no shift)."""
        return np.asarray(0.5 * self.log_p > _LOG_SOFTMAX_LIMIT)

    def plot(
        self, ax: Any = None, *, quantity: str = "log_chi_ratio", overflow: str | None = "fp16"
    ) -> Any:
        """Draw one quantity as colours, with contour lines of ln(chi_0/chi_L).

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure of pyplot.
        quantity : str
            Name of one of the arrays.
        overflow : {"fp16", "bf16", "fp32", None}
            Hatch where activations or gradients overflow in this format.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If a name is unknown, or there are fewer than two sigmas or depths.
        ImportError
            If matplotlib is missing (extra ``plot``).
        """
        from ._heatmap_plot import plot_heatmap

        return plot_heatmap(self, ax, quantity, overflow)

    def to_dict(self) -> dict[str, Any]:
        """Axes, arrays (nested lists) and flags by name, such as ``fp16_activation_overflow``."""
        out: dict[str, Any] = {"activation": repr(self.activation), "block": self.block,
                               "axis": self.axis, "sigma": self.sigma.tolist(),
                               "depth": self.depth.tolist()}
        out |= {name: getattr(self, name).tolist() for name in self.quantities()}
        for number in FORMATS:
            for what in ("activation_overflow", "gradient_overflow", "gradient_underflow"):
                out[f"{number}_{what}"] = getattr(self, what)(number).tolist()
        return {**out, "softmax_overflow": self.softmax_overflow.tolist()}

    @staticmethod
    def quantities() -> list[str]:
        """Names of the arrays over (sigma, depth)."""
        names = [item.name for item in fields(HeatMap)]
        return names[names.index("log_chi_ratio"):]

    def __repr__(self) -> str:
        return (f"HeatMap({self.activation!r}, {self.block} blocks: {self.sigma.size} values of "
                f"{self.axis} {self.sigma[0]:g} .. {self.sigma[-1]:g}, {self.depth.size} depths "
                f"{self.depth[0]} .. {self.depth[-1]})")


def heatmap(
    activation: Any,
    block: str,
    depths: ArrayLike,
    *,
    sigma_w: ArrayLike,
    sigma_b: float = 0.0,
    sigma_v: ArrayLike = 1.0,
    sigma_a: float = 0.0,
    p0: float = 1.0,
    gamma0: float = 0.0,
    mean0: float = 0.0,
    progress: bool = False,
) -> HeatMap:
    """Figures of mean-field networks over sigma_w or sigma_v and the depth.

    Parameters
    ----------
    activation, block, sigma_b, sigma_a
        As in `ResidualMeanField`.
    depths : array_like of int
        Depths >= 1, ascending. The cost is that of the last one.
    sigma_w, sigma_v : float or array_like
        One of the two is an array, positive and ascending: the axis.
    p0, gamma0, mean0 : float
        As in `ResidualMeanField.run`.
    progress : bool
        Count the layers on stderr (extra ``progress``).

    Returns
    -------
    HeatMap

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastspec.meanfield import heatmap
    >>> chart = heatmap("relu", "full", [10, 100], sigma_w=np.array([0.5, 1.0]))
    >>> chart.log_chi_ratio.round(3)
    array([[ 1.178, 11.778],
           [ 4.055, 40.547]])
    """
    axis, sigma = _axis(sigma_w, sigma_v)
    net = settings(activation, block, sigma_w, sigma_b, sigma_v, sigma_a)
    if net.block == "vanilla" and np.any(net.weight == 0.0):
        raise ValueError(f"sigma_w must be > 0 for vanilla blocks, got {sigma_w!r}")
    depth = _depths(depths)
    inputs = check_inputs(p0, gamma0, mean0)
    layers, _ = recur(net, int(depth[-1]), *inputs, progress)
    figures = {name: np.ascontiguousarray(rows[depth].T)
               for name, rows in _figures(net, layers).items()}
    return HeatMap(net.activation, net.block, axis, sigma, depth, **figures)


def _axis(sigma_w: ArrayLike, sigma_v: ArrayLike) -> tuple[str, FloatArray]:
    shapes = {"sigma_w": np.ndim(sigma_w), "sigma_v": np.ndim(sigma_v)}
    if sorted(shapes.values()) != [0, 1]:
        raise ValueError("one of sigma_w and sigma_v must be a one-dimensional array, the other a "
                         f"number; got {sigma_w!r} and {sigma_v!r}")
    name, values = ("sigma_w", sigma_w) if shapes["sigma_w"] else ("sigma_v", sigma_v)
    sigma = _checks.finite(name, values)
    if sigma.size == 0 or sigma[0] <= 0.0 or np.any(np.diff(sigma) <= 0.0):
        raise ValueError(f"{name} must be positive and ascending, got {values!r}")
    return name, sigma


def _depths(depths: ArrayLike) -> NDArray[np.intp]:
    depth = np.atleast_1d(np.asarray(depths))
    if (depth.ndim != 1 or depth.size == 0 or depth.dtype.kind not in "iu" or depth[0] < 1
            or np.any(np.diff(depth) <= 0)):
        raise ValueError(f"depths must be whole numbers >= 1, ascending, got {depths!r}")
    return depth.astype(np.intp)


def _format(number: str) -> tuple[float, float]:
    return FORMATS[_checks.choice("format", number, FORMATS)]


def sums(layers: Layers) -> FloatArray:
    """S_l = ln(chi_0 / chi_l), shape (depth + 1, n)."""
    factors = np.where(np.arange(layers.log_factor.shape[0])[:, np.newaxis] > 0,
                       layers.log_factor, 0.0)
    return np.asarray(np.cumsum(factors.astype(np.longdouble), axis=0), dtype=float)


def gradients(net: Settings, layers: Layers) -> tuple[FloatArray, FloatArray]:
    """ln of the largest and smallest RMS gradient up to each layer as the last."""
    total = sums(layers)
    gains = [np.zeros_like(total), *layers.parameter_gains(net).values()]
    tops = [np.fmax.accumulate(gain - total, axis=0) for gain in gains]
    bottoms = [np.fmin.accumulate(gain - total, axis=0) for gain in gains]
    return 0.5 * (total + np.fmax.reduce(tops)), 0.5 * (total + np.fmin.reduce(bottoms))


def _figures(net: Settings, layers: Layers) -> dict[str, FloatArray]:
    """The arrays of a heat map for every layer as the last."""
    with np.errstate(all="ignore"):         # infinities and NaN are meant
        total, log_p = sums(layers), layers.p.log()
        gains = layers.parameter_gains(net)
        spreads = {f"log_{name}_spread": _spread(gains[name] - total)
                   for name in ("chi_w", "chi_b")}
        largest, smallest = gradients(net, layers)
        activations = np.fmax.accumulate(np.fmax(log_p, layers.q.log()), axis=0)
        e = np.where(layers.p.mantissa > 0.0, 1.0 - layers.relative_s.value(), np.nan)
        return {"log_chi_ratio": total, "log_p": log_p, "log_s": layers.s.log(),
                "s": layers.s.value(), "e": e, **spreads, "log_activation": 0.5 * activations,
                "log_gradient": largest, "log_smallest_gradient": smallest}


def _spread(logs: FloatArray) -> FloatArray:
    """Largest minus smallest of the rows up to each, NaN left out."""
    return np.asarray(np.fmax.accumulate(logs, axis=0) - np.fmin.accumulate(logs, axis=0))
