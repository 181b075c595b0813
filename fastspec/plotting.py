"""Pictures of laws, and of measured singular values over them.

On a linear axis the curve is the density rho(x). On a logarithmic axis it is x rho(x), the density
of ln x: equal areas are equal masses there too, and an end at 0 where rho diverges stays finite.
Every interval of the support is a curve of its own, gaps stay empty. Where the density is infinite
(at 0, at inverse-root ends, at single points inside) the curve runs out of the picture's top.
Atoms are stems of a height proportional to their mass. Predicted outliers, which a network has and
its law has not, are ticks labelled with their singular value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from ._plot_points import atoms_of, chosen_axis, curve, is_shown, law_range, shown_height
from .simulate import eigenvalue_law, resolve_atoms, split_outliers

if TYPE_CHECKING:
    from .outliers import Outlier

__all__ = ["LIMIT_STYLE", "law_range", "plot_comparison", "plot_law"]

FloatArray = NDArray[np.float64]

_AXES = ("auto", "linear", "log")
_FEW_DECADES = 300.0  # ratio of the ends of a logarithmic axis below which its ticks are plain
# Height of a stem of mass 1, and of a line of text, in the picture's height.
_STEM, _LABEL = 0.9, 0.06
_TICK = 0.1  # height of an outlier's tick
_LABEL_BOX: dict[str, Any] = {
    "facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.0,
}  # fmt: skip
_LAW_COLOUR, _DATA_COLOUR, _OUTLIER_COLOUR = "#1f4e79", "#c9d6e3", "#c0392b"
# Of a limit law beside one of finite depth.
LIMIT_STYLE: dict[str, Any] = {"color": "#e08214", "linestyle": "--"}


def plot_law(
    law: Any,
    ax: Any = None,
    *,
    axis: str = "auto",
    singular_values: bool = False,
    label: str | None = None,
    outliers: Sequence[Outlier] = (),
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
        but the lowest twentieth of the law (atom at 0 aside) spreads over three decades of
        lambda; axes that hold a picture already keep theirs.
    singular_values : bool
        Draw the law of s = sqrt(lambda) instead.
    label : str, optional
        Legend entry of the curve; a legend that is there already is drawn anew.
    outliers : sequence of Outlier
        ``net.outliers()`` of the network whose law this is: the detached ones are ticks on the
        axis, labelled with their singular values.
    **line
        Passed on to ``Axes.plot`` for the curve.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If ``axis`` is none of the three, or "log" for a law in log lambda; or ``outliers`` are no
        sequence of `fastspec.outliers.Outlier`.
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
    _check_outliers(outliers)
    if singular_values:
        law = eigenvalue_law(law).singular_values()
    ax = new_axes(ax)
    before = _view(ax)
    axis = chosen_axis(law, axis, ax if before else None)
    top, _ = _draw_curve(ax, law, axis, {"color": _LAW_COLOUR, "label": label, **line})
    _draw_atoms(ax, law, axis, line.get("color", _LAW_COLOUR), None)
    points = [*law_range(law, axis), *_draw_predicted(ax, law, outliers)]
    _set_view(ax, (min(points), max(points)), top, before)
    _name_axes(ax, law)
    if ax.get_legend() is not None:
        _draw_legend(ax)
    return ax


def plot_comparison(
    measured: ArrayLike,
    law: Any,
    ax: Any = None,
    *,
    axis: str = "auto",
    singular_values: bool = True,
    bins: int | None = None,
    label: str = "law",
    outliers: Sequence[Outlier] = (),
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
    label : str
        Legend entry of the law.
    outliers : sequence of Outlier
        Predicted ones, as in `plot_law`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If ``axis``, ``bins`` or ``outliers`` are not allowed, or there are no finite values >= 0.
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
    _check_outliers(outliers)
    if bins is not None:
        _checks.positive_integer("bins", bins)
    law = eigenvalue_law(law)
    lam, at_atom = resolve_atoms(measured, law)
    outlying = split_outliers(measured, law)[1] ** 2
    shares = np.array([np.mean(lam == x) for x in atoms_of(law)[:, 0]])
    bulk = lam[~at_atom & ~np.isin(lam, outlying)]
    power = 0.5 if singular_values else 1.0
    law = law.singular_values() if singular_values else law
    ax = new_axes(ax)
    before = _view(ax)
    axis = chosen_axis(law, axis, ax if before else None)
    highest_bar = _draw_bars(ax, bulk**power, lam.size, law, axis, bins)
    top, cut = _draw_curve(ax, law, axis, {"color": _LAW_COLOUR, "label": label})
    if not cut:
        top = max(top, highest_bar)
    _draw_atoms(ax, law, axis, _LAW_COLOUR, shares)
    _draw_outliers(ax, outlying**power)
    points = [*law_range(law, axis), *outlying**power, *_draw_predicted(ax, law, outliers)]
    _set_view(ax, (min(points), max(points)), top, before)
    _name_axes(ax, law)
    _draw_legend(ax)
    return ax


def _draw_curve(ax: Any, law: Any, axis: str, line: dict[str, Any]) -> tuple[float, bool]:
    """Draw the density; return the height to show of it, and whether that cuts it off."""
    if axis == "log":
        ax.set_xscale("log")
    pieces = curve(law, axis)
    for x, y in pieces:
        ax.plot(x, y, **line)
        line = {**line, "label": None}  # one legend entry for all intervals
    return shown_height(law, axis, pieces)


def _draw_atoms(ax: Any, law: Any, axis: str, colour: Any, shares: FloatArray | None) -> None:
    """Stems of a height proportional to the mass; ``shares`` are the measured ones."""
    low, high = law_range(law, axis)
    middle = np.sqrt(low * high) if axis == "log" else 0.5 * (low + high)
    for index, (x, mass) in enumerate(atoms_of(law)):
        beside = sum(abs(_STEM * mass - height) < _LABEL for height in _stem_heights(ax))
        hidden = not is_shown(x, axis)  # drawn on the picture's left edge instead
        place_x = 0.0 if hidden else x
        place = ax.transAxes if hidden else ax.get_xaxis_transform()
        ax.plot(
            [place_x, place_x], [0.0, _STEM * mass], color=colour, lw=2.5, marker="o",
            markevery=[1], transform=place, clip_on=False, zorder=4, label="_atom",
        )  # fmt: skip
        text = ("atom at 0, " if hidden else "atom, ") + f"mass {mass:.4g}"
        if shares is not None:
            text += f", measured {shares[index]:.4g}"
        side = -1 if x > middle and not hidden else 1
        ax.annotate(
            text, (place_x, _STEM * mass), xycoords=place, xytext=(7 * side, 3 - 14 * beside),
            textcoords="offset points", ha="right" if side < 0 else "left",
            va="top" if _STEM * mass > _LABEL else "bottom",
            fontsize="small", color=colour, zorder=5, bbox=_LABEL_BOX,
        )  # fmt: skip


def _stem_heights(ax: Any) -> list[float]:
    """Of the stems drawn so far; a label beside them is put lower."""
    return [line.get_ydata()[1] for line in ax.lines if line.get_label() == "_atom"]


def _draw_bars(ax: Any, values: FloatArray, total: int, law: Any, axis: str,
               bins: int | None) -> float:
    """Histogram of the bulk, areas are shares of all ``total`` values; returns its height."""
    if axis == "log":
        values = values[values >= law_range(law, axis)[0]]
    number, label, highest = bins or round(total**0.5), "measured", 0.0
    for part in _by_interval(values, law):
        edges = _bin_edges(part, max(1, round(number * part.size / values.size)), axis)
        counts = np.histogram(part, edges)[0]
        heights = counts / total / np.diff(np.log(edges) if axis == "log" else edges)
        ax.bar(edges[:-1], heights, np.diff(edges), align="edge", color=_DATA_COLOUR,
               edgecolor="white", lw=0.5, label=label)
        label, highest = "_measured", max(highest, float(heights.max()))
    return highest


def _by_interval(values: FloatArray, law: Any) -> list[FloatArray]:
    """Ascending values, parted in the middle of every gap of the law."""
    support = law.support()
    middles = [0.5 * (end[1] + start[0]) for end, start in zip(support, support[1:], strict=False)]
    return [part for part in np.split(values, np.searchsorted(values, middles)) if part.size]


def _bin_edges(values: FloatArray, number: int, axis: str) -> FloatArray:
    low, high = float(values[0]), float(values[-1])
    if low == high:
        low, high = 0.99 * low, 1.01 * high
    edges = (np.geomspace if axis == "log" else np.linspace)(low, high, number + 1)
    edges[0], edges[-1] = low, high
    return edges


def _draw_outliers(ax: Any, values: FloatArray) -> None:
    if values.size == 0:
        return
    ax.plot(
        values, np.full(values.shape, 0.03), "v", color=_OUTLIER_COLOUR, clip_on=False,
        transform=ax.get_xaxis_transform(), label=f"{values.size} outlying, not in the law",
    )  # fmt: skip


def _check_outliers(outliers: Any) -> None:
    from .outliers import Outlier

    if not (isinstance(outliers, Sequence)
            and all(isinstance(outlier, Outlier) for outlier in outliers)):
        raise ValueError("outliers must be a sequence of Outlier, such as net.outliers(), got "
                         f"{outliers!r}")


def _draw_predicted(ax: Any, law: Any, outliers: Sequence[Outlier]) -> list[float]:
    """Ticks with labels at the detached outliers; returns their places in the law's variable."""
    places = []
    for outlier in outliers:
        if not outlier.detached:
            continue
        place = float(law._variable.from_log(np.log(outlier.value)))
        symbol = "" if law._variable.name == "s" else "s = "
        ax.plot(
            [place, place], [0.0, _TICK], color=_OUTLIER_COLOUR, lw=1.5, zorder=4,
            transform=ax.get_xaxis_transform(), label="_outlier",
        )  # fmt: skip
        ax.annotate(
            f"outlier {symbol}{outlier.singular_value:.4g}", (place, _TICK),
            xycoords=ax.get_xaxis_transform(), xytext=(0, 3), textcoords="offset points",
            rotation=90, ha="left" if outlier.side == "above" else "right", va="bottom",
            fontsize="small", color=_OUTLIER_COLOUR, zorder=5, bbox=_LABEL_BOX,
        )  # fmt: skip
        places.append(place)
    return places


def _draw_legend(ax: Any) -> None:
    """The legend, the bars first and the outliers last."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)),
                   key=lambda k: (labels[k] != "measured", "outlying" in labels[k]))
    ax.legend([handles[k] for k in order], [labels[k] for k in order], frameon=False,
              fontsize="small")


def _view(ax: Any) -> tuple[float, float, float] | None:
    """Left, right and top of a picture that has something in it already."""
    return (*ax.get_xlim(), ax.get_ylim()[1]) if ax.has_data() else None


def _set_view(ax: Any, span: tuple[float, float], top: float,
              before: tuple[float, float, float] | None) -> None:
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
    if ax.get_xscale() == "log" and right < _FEW_DECADES * left:
        _tick_plainly(ax)


def _tick_plainly(ax: Any) -> None:
    """Ticks 1, 2, 5, 10, ... for a logarithmic axis with hardly a power of ten on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _name_axes(ax: Any, law: Any) -> None:
    variable, log = law._variable, ax.get_xscale() == "log"
    ax.set_xlabel(variable.label)
    symbol = {"lambda": r"\lambda", "s": "s", "log_lambda": r"\log\,\lambda"}[variable.name]
    density = rf"{symbol}\,\rho({symbol})" if log else rf"\rho({symbol})"
    of_what = rf" of $\log\,{symbol}$:" if log else ""
    ax.set_ylabel(f"density{of_what} ${density}$")


def new_axes(ax: Any, **figure: Any) -> Any:
    """``ax``, or axes on a new figure of pyplot with these options."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'fastspec[plot]'") from error
    return plt.subplots(layout="constrained", **figure)[1]
