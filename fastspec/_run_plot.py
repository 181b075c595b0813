"""Picture of a mean-field network layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .plotting import new_axes

if TYPE_CHECKING:
    from .meanfield import MeanFieldRun

_LINES = {
    "log_p": r"activations, $\ln\,p$",
    "log_s": r"distance of two inputs, $\ln\,s$",
    "log_chi": r"gradients, $\ln\,\chi/\chi_L$",
    "log_chi_w": r"weight gradients, $\ln\,\chi_w/\chi_L$",
}


def plot_run(run: MeanFieldRun, ax: Any) -> Any:
    """See `MeanFieldRun.plot`."""
    ax = new_axes(ax)
    for name, label in _LINES.items():
        ax.plot(range(run.depth + 1), getattr(run, name), label=label,
                marker="." if run.depth <= 20 else "")
    ax.set_xlabel("layer (0 is the input)")
    ax.set_ylabel("natural logarithm")
    ax.set_title(f"{run.field.activation.name}, {run.field.block} blocks, "
                 rf"$\sigma_w$ = {run.field.sigma_w:g}", fontsize="medium")
    ax.legend(fontsize="small")
    ax.grid(alpha=0.3)
    return ax
