"""Pictures of laws, and of measured singular values over them.

On a linear axis the curve is the density rho(x). On a logarithmic axis it is x rho(x), the density
of ln x: equal areas are equal masses there too, and an end at 0 where rho diverges stays finite.
Atoms are stems of a height proportional to their mass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from .simulate import resolve_atoms, split_outliers

__all__ = ["plot_law", "plot_comparison", "law_range"]

FloatArray = NDArray[np.float64]

_AXES = ("auto", "linear", "log")
_POINTS_PER_INTERVAL = 800
# Share of the continuous mass that a logarithmic axis leaves out at an end at 0.
_CUT_MASS = 1e-3
# The axis is logarithmic if a law spreads over this ratio above this share of its mass.
_WIDE, _TAIL_MASS = 1e3, 0.05
# Where the density diverges, the linear axis shows it up to its value at this share of the mass.
_DIVERGING_MASS = 0.15
_STEM = 0.9  # height of a stem of mass 1, in the picture's height
_LAW_COLOUR, _DATA_COLOUR, _OUTLIER_COLOUR = "#1f4e79", "#c9d6e3", "#c0392b"


def plot_law(
    law: Any,
    ax: Any = None,
    *,
    axis: str = "auto",
    singular_values: bool = False,
    label: str | None = None,
    **line: Any,
) -> Any:
    """Draw the density of a law, its atoms as stems with their mass.

    Parameters
    ----------
    law : SpectralLaw
        A law of lambda = s^2, or ``law.singular_values()``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
    axis : {"auto", "linear", "log"}
        Horizontal axis. "log" draws x rho(x), the density of ln x. "auto" takes "log" if all
        but the lowest twentieth of the law (atom at 0 aside) spreads over three decades.
    singular_values : bool
        Draw the law of s = sqrt(lambda) instead.
    label : str, optional
        Legend entry of the curve.
    **line
        Passed on to ``Axes.plot`` for the curve.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If ``axis`` is none of the three.
    ImportError
        If matplotlib is missing (extra ``plot``).

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.plotting import plot_law
    >>> ax = plot_law(fs.ResNetLimit(0.125), axis="log")
    >>> ax.get_xlabel()
    '$\\\\lambda$ (squared singular value of $J$)'
    """
    _checks.choice("axis", axis, _AXES)
    if singular_values and not _is_singular(law):
        law = law.singular_values()
    ax = _new_axes(ax)
    axis = _chosen_axis(law, axis)
    before = _view(ax)
    top = _draw_curve(ax, law, axis, {"color": _LAW_COLOUR, "label": label, **line})
    _draw_atoms(ax, law, axis, line.get("color", _LAW_COLOUR), None)
    _set_view(ax, law_range(law, axis), top, before)
    _name_axes(ax, _is_singular(law))
    return ax


def plot_comparison(
    measured: ArrayLike,
    law: Any,
    ax: Any = None,
    *,
    axis: str = "auto",
    singular_values: bool = True,
    bins: int | None = None,
) -> Any:
    """Draw measured singular values as a histogram, the law of their bulk over it.

    The bars hold the values that belong to the continuous part; their areas are shares of all
    values. Values at an atom are counted at its stem. Outliers, single values that the law does
    not contain (see `fastspec.simulate.split_outliers`), are marked on the axis and named.

    Parameters
    ----------
    measured : array_like, shape (width,) or (draws, width)
        Singular values s (not squared); each row is one network.
    law : SpectralLaw
        Law of lambda = s^2.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
    axis : {"auto", "linear", "log"}
        As in `plot_law`.
    singular_values : bool
        Horizontal axis in s (default) or in lambda = s^2.
    bins : int, optional
        Number of bars, >= 1. By default the square root of the number of values.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If ``axis`` or ``bins`` is not allowed, or there are no finite values >= 0.
    ImportError
        If matplotlib is missing (extra ``plot``).

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.plotting import plot_comparison
    >>> law = fs.ResNetLimit(0.125)
    >>> ax = plot_comparison(law.icdf([0.1, 0.3, 0.5, 0.7, 0.9]) ** 0.5, law)
    >>> ax.get_xlabel()
    '$s$ (singular value of $J$)'
    """
    _checks.choice("axis", axis, _AXES)
    if bins is not None:
        _checks.positive_integer("bins", bins)
    lam, at_atom = resolve_atoms(measured, law)
    outlying = split_outliers(measured, law)[1] ** 2
    shares = np.array([np.mean(lam == x) for x in _atoms(law)[:, 0]])
    bulk = lam[~at_atom & ~np.isin(lam, outlying)]
    power = 0.5 if singular_values else 1.0
    law = law.singular_values() if singular_values else law
    axis = _chosen_axis(law, axis)
    ax = _new_axes(ax)
    before = _view(ax)
    highest_bar = _draw_bars(ax, bulk**power, lam.size, law, axis, bins)
    top = _draw_curve(ax, law, axis, {"color": _LAW_COLOUR, "label": "law"})
    if axis == "log" or not any(_diverges(law, *interval) for interval in law.support()):
        top = max(top, highest_bar)
    _draw_atoms(ax, law, axis, _LAW_COLOUR, shares)
    _draw_outliers(ax, outlying**power)
    points = [*law_range(law, axis), *outlying**power]
    _set_view(ax, (min(points), max(points)), top, before)
    _name_axes(ax, singular_values)
    ax.legend(*_measured_first(ax), frameon=False, fontsize="small")
    return ax


def law_range(law: Any, axis: str) -> tuple[float, float]:
    """Smallest and largest point of a law that an axis shows, atoms included."""
    atoms = _atoms(law)
    points = [end for interval in law.support() for end in interval] + list(atoms[:, 0])
    low, high = float(min(points)), float(max(points))
    if axis == "log" and low == 0.0:
        positive = [x for x in points if x > 0.0]
        zero = float(atoms[atoms[:, 0] == 0.0, 1].sum())
        if law.support() and min(interval[0] for interval in law.support()) == 0.0:
            positive.append(float(law.icdf(zero + _CUT_MASS * (1.0 - atoms[:, 1].sum()))))
        low = min(positive)
    if low == high:
        low, high = 0.5 * low, 1.5 * high
    return low, high


def _draw_curve(ax: Any, law: Any, axis: str, line: dict[str, Any]) -> float:
    """Draw the density; return the height that the picture should show of it."""
    if axis == "log":
        ax.set_xscale("log")
    shown_low, shown_high = law_range(law, axis)
    top = 0.0
    for low, high in law.support():
        x = _grid(max(low, shown_low), min(high, shown_high), axis)
        y = np.asarray(law.pdf(x)) * (x if axis == "log" else 1.0)
        finite = np.isfinite(y)
        ax.plot(x[finite], y[finite], **line)
        line = {**line, "label": None}  # one legend entry for all intervals
        cut = axis == "linear" and _diverges(law, low, high)
        top = max(top, _cut_height(law, low, high) if cut else float(y[finite].max()))
    return top


def _diverges(law: Any, low: float, high: float) -> bool:
    """Whether the density is infinite at an end of an interval of the support."""
    return bool(np.isinf(np.asarray(law.pdf(np.array([low, high])))).any())


def _grid(low: float, high: float, axis: str) -> FloatArray:
    """Points that crowd at both ends, where the density has square roots or diverges."""
    t = 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, _POINTS_PER_INTERVAL)))
    x = low * (high / low) ** t if axis == "log" else low + (high - low) * t
    return np.clip(x, low, high)


def _cut_height(law: Any, low: float, high: float) -> float:
    """Largest density away from the ends, for an interval where it diverges at an end."""
    below = float(law.cdf(low))
    above = float(law.cdf(high)) - _mass_at(law, high)
    levels = below + (above - below) * np.linspace(_DIVERGING_MASS, 1.0 - _DIVERGING_MASS, 65)
    return float(np.max(law.pdf(law.icdf(levels))))


def _draw_atoms(ax: Any, law: Any, axis: str, colour: Any, shares: FloatArray | None) -> None:
    """Stems of a height proportional to the mass; ``shares`` are the measured ones."""
    low, high = law_range(law, axis)
    middle = np.sqrt(low * high) if axis == "log" else 0.5 * (low + high)
    for index, (x, mass) in enumerate(_atoms(law)):
        hidden = axis == "log" and x == 0.0  # drawn on the picture's left edge instead
        place = ax.transAxes if hidden else ax.get_xaxis_transform()
        ax.plot(
            [x, x], [0.0, _STEM * mass], color=colour, lw=2.5, marker="o", markevery=[1],
            transform=place, clip_on=False, zorder=4, label="_atom",
        )  # fmt: skip
        text = ("atom at 0, " if hidden else "atom, ") + f"mass {mass:.4g}"
        if shares is not None:
            text += f"\nmeasured {shares[index]:.4g}"
        side = -1 if x > middle else 1
        ax.annotate(
            text, (x, _STEM * mass), xycoords=place, xytext=(7 * side, 3),
            textcoords="offset points", ha="right" if side < 0 else "left", va="top",
            fontsize="small", color=colour, zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.0},
        )  # fmt: skip


def _draw_bars(
    ax: Any, values: FloatArray, total: int, law: Any, axis: str, bins: int | None
) -> float:
    """Histogram of the bulk, areas are shares of all ``total`` values; returns its height."""
    if axis == "log":
        values = values[values >= law_range(law, axis)[0]]
    if values.size == 0:
        return 0.0
    number = bins or max(1, round(total**0.5))
    space = np.geomspace if axis == "log" else np.linspace
    low, high = float(values[0]), float(values[-1])
    if low == high:
        low, high = 0.99 * low, 1.01 * high
    edges = space(low, high, number + 1)
    edges[0], edges[-1] = low, high
    counts = np.histogram(values, edges)[0]
    heights = counts / total / np.diff(np.log(edges) if axis == "log" else edges)
    ax.bar(
        edges[:-1], heights, np.diff(edges), align="edge", color=_DATA_COLOUR,
        edgecolor="white", lw=0.5, label="measured",
    )  # fmt: skip
    return float(heights.max())


def _draw_outliers(ax: Any, values: FloatArray) -> None:
    if values.size == 0:
        return
    ax.plot(
        values, np.full(values.shape, 0.03), "v", color=_OUTLIER_COLOUR, clip_on=False,
        transform=ax.get_xaxis_transform(), label=f"{values.size} outlying, not in the law",
    )  # fmt: skip


def _measured_first(ax: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend, the bars first."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda k: labels[k] != "measured")
    return [handles[k] for k in order], [labels[k] for k in order]


def _view(ax: Any) -> tuple[float, float, float] | None:
    """Left, right and top of a picture that has something in it already."""
    return (*ax.get_xlim(), ax.get_ylim()[1]) if ax.has_data() else None


def _set_view(
    ax: Any,
    span: tuple[float, float],
    top: float,
    before: tuple[float, float, float] | None,
) -> None:
    """Limits that hold the span with a margin, the height, and what was in the picture before."""
    low, high = span
    if ax.get_xscale() == "log":
        ratio = (high / low) ** 0.04
        left, right = low / ratio, high * ratio
    else:
        margin = 0.04 * (high - low)
        left, right = max(low - margin, -0.25 * margin), high + margin
    top = 1.1 * top or 1.0
    if before is not None:
        left, right, top = min(left, before[0]), max(right, before[1]), max(top, before[2])
    ax.set_xlim(left, right)
    ax.set_ylim(0.0, top)


def _name_axes(ax: Any, singular: bool) -> None:
    symbol = "s" if singular else r"\lambda"
    log = ax.get_xscale() == "log"
    ax.set_xlabel(f"${symbol}$ ({'' if singular else 'squared '}singular value of $J$)")
    density = rf"{symbol}\,\rho({symbol})" if log else rf"\rho({symbol})"
    of_what = rf" of $\ln {symbol}$," if log else ""
    ax.set_ylabel(f"density{of_what} ${density}$")


def _chosen_axis(law: Any, axis: str) -> str:
    if axis != "auto":
        return axis
    below = _mass_at(law, 0.0)
    low = float(law.icdf(below + _TAIL_MASS * (1.0 - below)))
    return "log" if law_range(law, axis)[1] > _WIDE * low else "linear"


def _is_singular(law: Any) -> bool:
    return False


def _atoms(law: Any) -> FloatArray:
    return np.asarray(law.atoms, dtype=float).reshape(-1, 2)


def _mass_at(law: Any, x: float) -> float:
    atoms = _atoms(law)
    return float(atoms[atoms[:, 0] == x, 1].sum())


def _new_axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'fastspec[plot]'") from error
    return plt.subplots(layout="constrained")[1]
