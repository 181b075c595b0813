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
from .simulate import eigenvalue_law, resolve_atoms, split_outliers

__all__ = ["plot_law", "plot_comparison", "law_range"]

FloatArray = NDArray[np.float64]

_AXES = ("auto", "linear", "log")
_POINTS_PER_INTERVAL = 800
# Share of the continuous mass left out at an end that an axis cannot reach, and the smallest
# point of a logarithmic axis: x rho(x) still is a double there.
_CUT_MASS, _SMALLEST = 1e-2, 1e-300
# The axis is logarithmic if a law spreads over this ratio above this share of its mass.
_WIDE, _TAIL_MASS = 1e3, 0.05
# A diverging density is shown on a linear axis up to this many times its mean.
_CUT_HEIGHT = 4.0
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
        A law of lambda = s^2, or ``law.singular_values()``, or ``law.log_eigenvalues()``.
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
        If ``axis`` is none of the three, or "log" for a law in log lambda.
    ArithmeticError
        If the law lies beyond the largest double.
    ImportError
        If matplotlib is missing (extra ``plot``).

    Examples
    --------
    >>> import fastspec as fs
    >>> from fastspec.plotting import plot_law
    >>> ax = plot_law(fs.ResNetLimit(0.125), axis="log")
    >>> ax.get_xlabel()
    'squared singular value $\\\\lambda$'
    """
    _checks.choice("axis", axis, _AXES)
    if singular_values:
        law = eigenvalue_law(law).singular_values()
    ax = _new_axes(ax)
    axis = _chosen_axis(law, axis)
    before = _view(ax)
    top = _draw_curve(ax, law, axis, {"color": _LAW_COLOUR, "label": label, **line})
    _draw_atoms(ax, law, axis, line.get("color", _LAW_COLOUR), None)
    _set_view(ax, law_range(law, axis), top, before)
    _name_axes(ax, law)
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
        The law, in any variable.
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
    'singular value $s$'
    """
    _checks.choice("axis", axis, _AXES)
    if bins is not None:
        _checks.positive_integer("bins", bins)
    law = eigenvalue_law(law)
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
    _name_axes(ax, law)
    ax.legend(*_measured_first(ax), frameon=False, fontsize="small")
    return ax


def law_range(law: Any, axis: str) -> tuple[float, float]:
    """Smallest and largest point of a law that an axis shows, atoms included.

    Where the axis cannot reach the lower end (0 on a logarithmic axis, log 0), the range starts
    where a hundredth of the continuous mass is left out.

    Raises
    ------
    ArithmeticError
        If the law lies beyond the largest double.
    """
    atoms = _atoms(law)
    points = [end for interval in law.support() for end in interval] + list(atoms[:, 0])
    low, high = float(min(points)), float(max(points))
    if high == np.inf:
        raise ArithmeticError(
            f"{law!r} has values beyond the largest double: take its log_eigenvalues()"
        )
    if not _is_shown(low, axis):
        points = [x for x in points if x > low]
        if any(interval[0] == low for interval in law.support()):
            level = _mass_at(law, low) + _CUT_MASS * (1.0 - atoms[:, 1].sum())
            smallest = _SMALLEST if axis == "log" else -np.inf
            points.append(max(float(law.icdf(level)), smallest))
        low = float(min(points, default=max(high, 1.0)))
    if low >= high:
        pad = 0.5 * abs(low) or 0.5
        low, high = low - pad, low + pad
    return low, high


def _is_shown(x: float, axis: str) -> bool:
    """Whether a lower end lies on the axis at all."""
    return x > -np.inf and not (axis == "log" and x == 0.0)


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
    x[0], x[-1] = low, high
    return np.clip(x, low, high)


def _cut_height(law: Any, low: float, high: float) -> float:
    """Height shown of an interval at whose end the density diverges."""
    mass = float(law.cdf(high)) - _mass_at(law, high) - float(law.cdf(low))
    return _CUT_HEIGHT * mass / (high - low)


def _draw_atoms(ax: Any, law: Any, axis: str, colour: Any, shares: FloatArray | None) -> None:
    """Stems of a height proportional to the mass; ``shares`` are the measured ones."""
    low, high = law_range(law, axis)
    middle = np.sqrt(low * high) if axis == "log" else 0.5 * (low + high)
    for index, (x, mass) in enumerate(_atoms(law)):
        hidden = not _is_shown(x, axis)  # drawn on the picture's left edge instead
        place_x = 0.0 if hidden else x
        place = ax.transAxes if hidden else ax.get_xaxis_transform()
        ax.plot(
            [place_x, place_x], [0.0, _STEM * mass], color=colour, lw=2.5, marker="o",
            markevery=[1], transform=place, clip_on=False, zorder=4, label="_atom",
        )  # fmt: skip
        text = ("atom at 0, " if hidden else "atom, ") + f"mass {mass:.4g}"
        if shares is not None:
            text += f"\nmeasured {shares[index]:.4g}"
        side = -1 if x > middle and not hidden else 1
        ax.annotate(
            text, (place_x, _STEM * mass), xycoords=place, xytext=(7 * side, 3),
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
        left, right = low - margin, high + margin
    top = 1.1 * top or 1.0
    if before is not None:
        left, right, top = min(left, before[0]), max(right, before[1]), max(top, before[2])
    ax.set_xlim(left, right)
    ax.set_ylim(0.0, top)


def _name_axes(ax: Any, law: Any) -> None:
    variable, log = law._variable, ax.get_xscale() == "log"
    ax.set_xlabel(variable.label)
    symbol = {"lambda": r"\lambda", "s": "s", "log_lambda": r"\log\,\lambda"}[variable.name]
    density = rf"{symbol}\,\rho({symbol})" if log else rf"\rho({symbol})"
    of_what = rf" of $\log\,{symbol}$:" if log else ""
    ax.set_ylabel(f"density{of_what} ${density}$")


def _chosen_axis(law: Any, axis: str) -> str:
    if law._variable.name == "log_lambda":
        if axis == "log":
            raise ValueError("axis must be linear for a law in log lambda, got 'log'")
        return "linear"
    if axis != "auto":
        return axis
    below = _mass_at(law, 0.0)
    low = float(law.icdf(below + _TAIL_MASS * (1.0 - below)))
    return "log" if law_range(law, "linear")[1] > _WIDE * low else "linear"


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
