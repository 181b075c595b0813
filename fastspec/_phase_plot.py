"""Pictures of phase diagrams: one quantity in colour over (sigma_w, sigma_b), critical line on it.

Depth scales and variances have logarithmic colours, chi has colours that part at 1. Cells that have
no colour are hatched, and the legend says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from ._critical import CriticalLine, critical_line
from .plotting import new_axes

if TYPE_CHECKING:
    from ._phase import PhaseDiagram

FloatArray = NDArray[np.float64]

# Label of the colour bar, and scale of the colours.
_QUANTITIES = {
    "xi_c": (r"depth scale of correlations $\xi_c$ (layers)", "log"),
    "xi_q": (r"depth scale of variances $\xi_q$ (layers)", "log"),
    "xi_grad": (r"depth scale of squared gradients $\xi_\nabla$ (layers)", "log"),
    "chi": (r"mean squared singular value of a layer $\chi$", "parted"),
    "slope": (r"slope of the variance map $\mathrm{d}Q/\mathrm{d}q$ at $q^*$", "parted"),
    "q": (r"variance of pre-activations $q^*$", "log"),
    "c": (r"correlation of two inputs $c^*$", "linear"),
    "fixed_point_count": ("number of fixed points of the variance map", "count"),
}
_DECADES = 4.0              # of a logarithmic colour bar, at most
_PERCENTILES = (0.5, 99.5)  # of the cells that its ends are taken from
_LINE_VARIANCES = np.geomspace(1e-8, 1e6, 421)
_STABLE: dict[str, Any] = {"color": "black", "lw": 2.0, "label": "critical line, $q^*$ stable"}
_UNSTABLE: dict[str, Any] = {"color": "black", "lw": 1.6, "ls": (0, (4, 2)),
                             "label": "critical line, $q^*$ unstable"}
_POINT: dict[str, Any] = {"color": "black", "marker": "o", "ms": 7.0, "ls": "none",
                          "label": "critical point", "clip_on": False, "zorder": 5}
_HATCHES = (("\\\\", "$q$ grows without bound"), ("...", "$q^* = 0$: the signal dies"))


def plot_phase_diagram(diagram: PhaseDiagram, ax: Any, quantity: str) -> Any:
    """What `PhaseDiagram.plot` does."""
    _checks.choice("quantity", quantity, _QUANTITIES)
    for name in ("sigma_w", "sigma_b"):
        values = getattr(diagram, name)
        if values.size < 2 or np.any(np.diff(values) <= 0.0):
            raise ValueError(f"{name} must be two or more ascending numbers for a picture, got "
                             f"{values.tolist()}")
    ax = new_axes(ax, figsize=(6.4, 5.0))
    label, kind = _QUANTITIES[quantity]
    values = getattr(diagram, quantity).astype(float)
    shown = _shown(values, diagram.q, kind)
    if np.any(np.isfinite(shown)):
        _draw_colours(ax, diagram, shown, label, kind)
    without = np.isnan(shown)
    for mask, hatch in zip((np.isinf(diagram.q), diagram.q == 0.0), _HATCHES, strict=True):
        _draw_hatched(ax, diagram, mask & without, *hatch)
    ax.set_xlim(diagram.sigma_w[0], diagram.sigma_w[-1])
    ax.set_ylim(diagram.sigma_b[0], diagram.sigma_b[-1])
    if np.any(np.isfinite(diagram.chi)):
        _draw_critical(ax, critical_line(diagram.activation, _LINE_VARIANCES))
    ax.set_xlabel(r"weight standard deviation $\sigma_w$")
    ax.set_ylabel(r"bias standard deviation $\sigma_b$")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=2, frameon=False,
                  fontsize="small")
    return ax


def _shown(values: FloatArray, q: FloatArray, kind: str) -> FloatArray:
    """Values that get a colour; NaN where there is none: q = inf, and q = 0 on logarithms."""
    shown = np.where(np.isinf(q) & (kind != "count"), np.nan, values)
    if kind == "log":
        shown[(shown == 0.0) & (q == 0.0)] = np.nan
        shown[shown == 0.0] = np.finfo(float).tiny
    return shown


def _draw_colours(
    ax: Any, diagram: PhaseDiagram, shown: FloatArray, label: str, kind: str
) -> None:
    colours, extend = _colours(shown, kind)
    deepest = np.where(np.isposinf(shown), np.finfo(float).max, shown)
    mesh = ax.pcolormesh(diagram.sigma_w, diagram.sigma_b, np.ma.masked_invalid(deepest).T,
                         shading="nearest", rasterized=True, **colours)
    bar = ax.figure.colorbar(mesh, ax=ax, label=label, extend=extend)
    if kind == "parted":
        inside = shown[np.abs(shown - 1.0) <= mesh.norm.halfrange]
        bar.ax.set_ylim(inside.min(), inside.max())
    if kind == "count":
        bar.set_ticks(np.unique(shown))
        bar.set_ticklabels(["all" if n < 0 else f"{n:.0f}" for n in np.unique(shown)])


def _colours(shown: FloatArray, kind: str) -> tuple[dict[str, Any], str]:
    """Colour map and scale, and at which ends the colour bar is open."""
    from matplotlib import colors

    finite = shown[np.isfinite(shown)]
    low, high = float(finite.min()), float(finite.max())
    if kind == "log":
        bottom, top = np.percentile(finite, _PERCENTILES)
        bottom = max(bottom, top / 10.0**_DECADES)
        norm = colors.LogNorm(bottom, max(top, 1.01 * bottom))
        deeper = bool(np.any(np.isinf(shown))) or high > top
        return {"cmap": "viridis", "norm": norm}, _open_ends(bottom > low, deeper)
    if kind == "parted":
        reach = max(1.0 - max(low, -1.0), min(high, 3.0) - 1.0, 0.01)
        parted = colors.CenteredNorm(1.0, reach)
        return {"cmap": "RdBu_r", "norm": parted}, _open_ends(low < -1.0, high > 3.0)
    if kind == "count":
        levels = np.unique(finite)
        edges = np.concatenate([[levels[0] - 0.5], 0.5 * (levels[1:] + levels[:-1]),
                                [levels[-1] + 0.5]])
        import matplotlib

        cmap = matplotlib.colormaps["YlGnBu"].resampled(levels.size + 1)
        picked = colors.ListedColormap(cmap(np.linspace(0.0, 0.8, levels.size)))
        return {"cmap": picked, "norm": colors.BoundaryNorm(edges, levels.size)}, "neither"
    return {"cmap": "viridis", "vmin": min(low, 0.0), "vmax": 1.0}, "neither"


def _open_ends(low: bool, high: bool) -> str:
    return {(False, False): "neither", (True, False): "min", (False, True): "max"}.get(
        (low, high), "both")


def _draw_hatched(ax: Any, diagram: PhaseDiagram, mask: NDArray[np.bool_], hatch: str,
                  label: str) -> None:
    """Cells without a colour, light grey and hatched, with a legend entry."""
    if not np.any(mask):
        return
    from matplotlib import colors, patches

    w, b = _edges(diagram.sigma_w), _edges(diagram.sigma_b)
    grey = np.ma.masked_where(~mask, np.zeros(mask.shape)).T
    ax.pcolormesh(w, b, grey, cmap=colors.ListedColormap(["#efefef"]), rasterized=True)
    inside = np.repeat(np.repeat(mask.T, 2, axis=0), 2, axis=1).astype(float)
    ax.contourf(_doubled(w), _doubled(b), inside, levels=[0.5, 1.5], colors="none",
                hatches=[hatch]).set(edgecolor="#9a9a9a", linewidth=0.0)
    ax.add_patch(patches.Rectangle((w[0], b[0]), 0.0, 0.0, facecolor="#efefef",
                                   edgecolor="#9a9a9a", hatch=hatch, label=label))


def _edges(x: FloatArray) -> FloatArray:
    """Ends of the cells whose middles are x, the outermost as wide as their neighbours."""
    middle = 0.5 * (x[1:] + x[:-1])
    return np.concatenate([[2.0 * x[0] - middle[0]], middle, [2.0 * x[-1] - middle[-1]]])


def _doubled(edges: FloatArray) -> FloatArray:
    """Two points just inside every cell, for contours that follow the cells."""
    inset = 1e-3 * np.diff(edges)
    return np.stack([edges[:-1] + inset, edges[1:] - inset], axis=1).ravel()


def _draw_critical(ax: Any, line: CriticalLine) -> None:
    """The critical line, or the point it shrinks to."""
    if not np.any(line.exists):
        return
    w, b = line.sigma_w[line.exists], line.sigma_b[line.exists]
    if np.ptp(w) <= 1e-9 * w[0] and np.ptp(b) == 0.0:
        if ax.get_xlim()[0] <= w[0] <= ax.get_xlim()[1] and ax.get_ylim()[0] <= b[0]:
            ax.plot(w[:1], b[:1], **_POINT)
        return
    for mask, style in ((line.stable, _STABLE), (line.exists & ~line.stable, _UNSTABLE)):
        mask = mask | np.roll(mask, 1) & line.exists        # pieces meet
        if np.any(mask):
            ax.plot(np.where(mask, line.sigma_w, np.nan), np.where(mask, line.sigma_b, np.nan),
                    **style)
