"""The result of a scaling analysis: table, dictionaries, pandas, picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from ._scaling_flags import OFF
from ._scaling_ops import Shape
from .plotting import new_axes

_DOT, _OFF = "#1f4e79", "#c0392b"
_HEADINGS = ("operation", "varsigma", "gamma", "nu", "gamma_bias", "E[x^2]", "E[Dx^2]", "factor",
             "flag")


@dataclass(frozen=True)
class OpScaling:
    """Scaling of one operation; entries that it does not have are None.

    Attributes
    ----------
    name : str
    varsigma : float
        Activation scaling factor n rho^2 E[x^2] E[Dx^2] at the operation's input.
    gamma : float or None
        Weight scaling factor g varsigma / (n_in n_out k^2 E[W^2]^2) (intrinsic).
    nu : float or None
        Weight-to-gradient ratio E[DW^2] / E[W^2]. It is gamma unless positions are correlated in
        both the activations and the gradients, as before global pooling.
    gamma_bias : float or None
        Scaling factor rho^2 E[Dy^2] / E[y^2] of the bias, y the layer's output.
    forward_second_moment, backward_second_moment : float
        E[x^2] and E[Dx^2] at the operation's input.
    factor : float or None
        What the operation puts on varsigma: output / input. None where no gradient arrives.
    flag : str or None
        Why the operation deserves a look.
    """

    name: str
    varsigma: float
    gamma: float | None
    nu: float | None
    gamma_bias: float | None
    forward_second_moment: float
    backward_second_moment: float
    factor: float | None
    flag: str | None

    def with_flag(self, flag: str | None) -> OpScaling:
        return replace(self, flag=flag)


@dataclass(frozen=True)
class ScalingReport:
    """What `analyze` finds; all numbers are absolute, for the given input and output gradient.

    Attributes
    ----------
    ops : tuple of OpScaling
        In the order of the network; a Residual or Concat comes before what it holds.
    input_shape, output_shape : tuple of int
    init : str
        The scheme, or "given variances".
    c : float
    input_second_moment, output_second_moment : float
        E[x_0^2] and E[x_L^2].
    output_gradient : float
        E[Dx_L^2].
    gauss_newton : dict
        1 + 2 n_L sum_j 1/n_j by layer: by how much blocks of the Gauss-Newton matrix exceed gamma.
    notes : tuple of str
    """

    ops: tuple[OpScaling, ...]
    input_shape: Shape
    output_shape: Shape
    init: str
    c: float
    input_second_moment: float
    output_second_moment: float
    output_gradient: float
    gauss_newton: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> OpScaling:
        """The operation of that name."""
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(f"{name!r} is no operation of this network: "
                       + ", ".join(op.name for op in self.ops))

    @property
    def layers(self) -> tuple[OpScaling, ...]:
        """The operations with weights."""
        return tuple(op for op in self.ops if op.gamma is not None)

    def median_of(self, column: str) -> float | None:
        """Median of gamma, nu, ... over the operations that have it; None if there are none."""
        values = [v for op in self.ops if (v := getattr(op, column)) is not None]
        return median(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain Python values; the key "ops" holds one dict per operation."""
        record = {key: value for key, value in asdict(self).items() if key != "ops"}
        return record | {"ops": [asdict(op) for op in self.ops]}

    def to_pandas(self) -> Any:
        """The operations as a pandas DataFrame indexed by name.

        Raises
        ------
        ImportError
            If pandas is missing.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame([asdict(op) for op in self.ops]).set_index("name")

    def plot(self, ax: Any = None) -> Any:
        """Draw gamma of each layer against the median, with the band of a factor of 4.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure of pyplot.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If no layer has a positive gamma.
        ImportError
            If matplotlib is missing (extra ``plot``).
        """
        return plot_report(self, ax)

    def __str__(self) -> str:
        """A table, gamma, nu and gamma_bias relative to their medians, varsigma to the output's."""
        rows = [_HEADINGS, *self._cells()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
        lines = [_line(row, widths) for row in rows]
        lines.append(f"varsigma relative to the last operation's input; gamma, nu, gamma_bias to "
                     f"their medians; output second moment {self.output_second_moment:.4g}")
        return "\n".join([*lines, *self.notes])

    def _cells(self) -> list[tuple[str, ...]]:
        units = {"varsigma": self.ops[-1].varsigma,
                 **{key: self.median_of(key) for key in ("gamma", "nu", "gamma_bias")}}
        return [(op.name, *(_number(getattr(op, key), unit) for key, unit in units.items()),
                 *map(_number, (op.forward_second_moment, op.backward_second_moment, op.factor)),
                 op.flag or "") for op in self.ops]


def plot_report(report: ScalingReport, ax: Any) -> Any:
    """See `ScalingReport.plot`."""
    layers = [op for op in report.layers if op.gamma]
    unit = report.median_of("gamma")
    if not layers or not unit:
        raise ValueError("there is no layer with a positive gamma to draw")
    ax = new_axes(ax)
    places = range(len(layers))
    heights = [(op.gamma or 0.0) / unit for op in layers]
    ax.axhspan(1.0 / OFF, OFF, color=_DOT, alpha=0.08, lw=0, label="within 4x of the median")
    ax.plot(places, heights, "o-", color=_DOT, lw=0.8)
    _mark(ax, [i for i in places if not 1.0 / OFF <= heights[i] <= OFF], heights)
    ax.set_yscale("log")
    ax.set_ylim(min(0.15, 0.6 * min(heights)), max(6.7, 1.7 * max(heights)))
    ax.set_xlim(-0.5, len(layers) - 0.5)
    ax.set_xticks(list(places), [op.name for op in layers], rotation=45, ha="right",
                  fontsize="small")
    ax.set_ylabel(r"$\gamma$ / median")
    ax.set_title(f"weight scaling, {report.init}", fontsize="medium")
    ax.legend(fontsize="small")
    ax.grid(axis="y", alpha=0.3)
    return ax


def _mark(ax: Any, off: Sequence[int], heights: Sequence[float]) -> None:
    if off:
        ax.plot(off, [heights[i] for i in off], "s", color=_OFF, label="badly scaled")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
    return "  ".join([*cells, row[-1]]).rstrip()


def _number(value: float | None, unit: float | None = 1.0) -> str:
    return "-" if value is None or not unit else f"{value / unit:.4g}"
