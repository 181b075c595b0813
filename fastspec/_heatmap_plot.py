"""Pictures of heat maps: colours, contour lines of ln(chi_0/chi_L), hatches for overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from .plotting import new_axes

if TYPE_CHECKING:
    from ._heatmap import HeatMap

__all__ = ["plot_heatmap"]

_LABELS = {
    "log_chi_ratio": r"$\ln\,\chi_0/\chi_L$",
    "log_p": r"$\ln\,p_L$",
    "log_s": r"$\ln\,s_L$",
    "s": r"$s_L$",
    "e": r"$e_L$",
    "log_chi_w_spread": r"$\ln\,\max_l\chi_w/\min_l\chi_w$",
    "log_chi_b_spread": r"$\ln\,\max_l\chi_b/\min_l\chi_b$",
    "log_activation": "ln of the largest RMS activation",
    "log_gradient": "ln of the largest RMS gradient",
    "log_smallest_gradient": "ln of the smallest RMS gradient",
}
_SIGMAS = {"sigma_w": r"$\sigma_w$", "sigma_v": r"$\sigma_v$"}
_OVERFLOW_COLOUR = "#c0392b"
_SMALLEST_LEVEL = 0.015     # of the largest
_STEEPEST = 100.0           # excess over the largest number, in ln, that matters for the boundary
_EVEN = 0.2     # steps of an axis that differ less than this (relative) make it linear


def plot_heatmap(chart: HeatMap, ax: Any, quantity: str, overflow: str | None) -> Any:
    """See `HeatMap.plot`."""
    _checks.choice("quantity", quantity, chart.quantities())
    if min(chart.sigma.size, chart.depth.size) < 2:
        raise ValueError(f"a picture needs two sigmas and two depths at least, got {chart!r}")
    excess = None if overflow is None else chart.log_overflow(overflow)
    ax = new_axes(ax)
    values = np.ma.masked_invalid(getattr(chart, quantity))
    mesh = ax.pcolormesh(chart.depth, chart.sigma, values, shading="nearest", cmap="viridis",
                         rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label=_LABELS[quantity])
    for axis, points in (("x", chart.depth), ("y", chart.sigma)):
        if not _is_even(points):
            getattr(ax, f"set_{axis}scale")("log")
    entries = _draw_contours(ax, chart)
    if excess is not None and np.any(excess > 0.0):
        entries += _draw_overflow(ax, chart, excess, str(overflow))
    if entries:
        ax.legend(handles=entries, loc="upper right", fontsize="small", facecolor="#c9d6e3")
    ax.set_xlabel("depth $L$")
    ax.set_ylabel(_SIGMAS[chart.axis])
    ax.set_title(f"{chart.activation.name}, {chart.block} blocks", fontsize="medium")
    return ax


def _is_even(points: NDArray[Any]) -> bool:
    steps = np.diff(points)
    return bool(np.ptp(steps) <= _EVEN * np.max(steps))


def _draw_contours(ax: Any, chart: HeatMap) -> list[Any]:
    """Labelled lines of equal ln(chi_0/chi_L), white with a dark rim; their entry of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    ratio = np.ma.masked_invalid(chart.log_chi_ratio)
    levels = _levels(float(ratio.min()), float(ratio.max())) if ratio.count() else []
    if not levels:
        return []
    lines = ax.contour(chart.depth, chart.sigma, ratio, levels, colors="white", linewidths=1.0,
                       linestyles="solid")
    rim = [withStroke(linewidth=2.0, foreground="#00000080")]
    lines.set_path_effects(rim)
    for label in ax.clabel(lines, fmt="%g", fontsize="small"):
        label.set_path_effects(rim)
    return [Line2D([], [], color="white", lw=1.0, path_effects=rim,
                   label=_LABELS["log_chi_ratio"])]


def _levels(low: float, high: float) -> list[float]:
    """Round numbers 1, 2, 5, 10, ... and their negatives inside the range, none near 0 but 0."""
    largest = max(abs(low), abs(high))
    rounds = [digit * 10.0**power for power in range(-6, 9) for digit in (1.0, 2.0, 5.0)]
    seen = [level for level in rounds if _SMALLEST_LEVEL * largest <= level]
    return [level for level in [*(-level for level in reversed(seen)), 0.0, *seen]
            if low < level < high]


def _draw_overflow(
    ax: Any, chart: HeatMap, excess: NDArray[np.float64], number: str
) -> list[Any]:
    """Hatch where numbers exceed the largest of the format; the entry of the legend."""
    from matplotlib.patches import Patch

    bounded = np.clip(excess, -_STEEPEST, _STEEPEST)
    hatched = ax.contourf(chart.depth, chart.sigma, bounded, [0.0, 2.0 * _STEEPEST],
                          colors="none", hatches=["//"])
    hatched.set_edgecolor(_OVERFLOW_COLOUR)
    hatched.set_linewidth(0.0)
    if np.any(excess < 0.0):
        ax.contour(chart.depth, chart.sigma, bounded, [0.0], colors=_OVERFLOW_COLOUR,
                   linewidths=1.2)
    return [Patch(edgecolor=_OVERFLOW_COLOUR, facecolor="none", hatch="//",
                  label=f"overflow in {number}")]
