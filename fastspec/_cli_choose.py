"""The commands ``init``, ``meanfield`` and ``phase``: choosing an initialisation."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._cli_commands import activation_text, checked, new_axes
from ._cli_output import save_plot, write_results
from ._cli_parser import (
    Command,
    bad,
    finite,
    non_negative,
    output_file,
    positive,
    table_options,
    whole,
)
from ._cli_parser import activation as activation_option
from ._extremes import outliers_or_reason
from ._progress import progress_on_terminal

FloatArray = NDArray[np.float64]

BLOCKS = ("reduced", "full", "vanilla")
_TARGETS = ("c", "condition_number", "variance", "top_singular_value", "log_chi_ratio", "dtype")
_LAYER_COLUMNS = ("p", "q", "e", "c", "log_p", "log_s", "log_chi", "log_chi_w")
_SEVERAL = "FROM:TO:N with 0 <= FROM < TO and N >= 2"
HEAT_QUANTITIES = ("log_chi_ratio", "log_p", "log_s", "s", "e", "log_chi_w_spread")
_PHASE_COLUMNS = ("q", "fixed_point_count", "chi", "slope", "c", "xi_q", "xi_c", "xi_grad")
_PHASE_QUANTITIES = ("xi_c", "xi_q", "xi_grad", "chi", "slope", "q", "c", "fixed_point_count")


def grid(text: str) -> FloatArray:
    """``X`` or ``FROM:TO:N``, N numbers evenly spaced, as an array of numbers >= 0."""
    try:
        return several(text) if ":" in text else np.array([non_negative(text)])
    except argparse.ArgumentTypeError:
        raise bad(f"a number >= 0, or {_SEVERAL}", text) from None


def several(text: str) -> FloatArray:
    """``FROM:TO:N``, N numbers evenly spaced."""
    try:
        first, last, number = text.split(":")
        low, high, count = float(first), float(last), int(number)
    except ValueError:
        raise bad(_SEVERAL, text) from None
    if not (0.0 <= low < high < np.inf and count >= 2):
        raise bad(_SEVERAL, text)
    return np.linspace(low, high, count)


def init_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``fastspec init``."""
    add = parser.add_argument
    _activation_option(parser)
    add("--depth", type=whole, metavar="L", required=True, help="number of layers, >= 1")
    add("--architecture", choices=("resnet", "feedforward", "mean_field"), default="resnet",
        help="resnet (default), feedforward, or mean_field: blocks that do not shrink with depth")
    add("--weights", choices=("gaussian", "orthogonal"),
        help="orthogonal for feedforward, else gaussian")
    add("--block", choices=BLOCKS[:2], help="of mean_field: reduced (default) or full")
    for name, low, what in (
        ("c", 0, "effective cumulant (resnet; 0.125 without a target)"),
        ("condition-number", 1, "condition number of the Jacobian (resnet)"),
        ("variance", 0, "variance of the spectrum (resnet, feedforward)"),
        ("top-singular-value", 0, "largest singular value (resnet)"),
        ("log-chi-ratio", 0, "ln of the growth of gradients (mean_field, tanh-like)"),
    ):
        add(f"--{name}", type=positive, metavar="X", help=f"target: {what}, > {low}")
    add("--dtype", choices=("float16", "bfloat16", "float32"),
        help="target: no overflow in this type (mean_field, ReLU-like)")
    _outputs(parser, "draw the density of the singular values, or the layers of mean_field")


def init(args: argparse.Namespace) -> None:
    """``fastspec init``: a recommended initialisation and what it leads to."""
    from .initialize import recommend

    axes = new_axes() if args.plot else None
    targets = {name: getattr(args, name) for name in _TARGETS}
    found = checked(args, recommend, args.activation, args.depth, args.architecture,
                    weights=args.weights, block=args.block, **targets)
    if args.csv is None and args.json is None and axes is None:
        print(found)
        return
    numbers = {"sigma_w": found.sigma_w, "sigma_b": found.sigma_b, "scale": found.scale}
    columns = {name: [value] for name, value in (numbers | found.predicted).items()}
    write_results(args, columns, found.to_dict())
    if axes is not None:
        _draw_recommended(found, axes)
        save_plot(axes.figure, args.plot)


def _draw_recommended(found: Any, axes: Any) -> None:
    if found.architecture == "mean_field":
        found.network.run(found.depth).plot(axes)
        return
    outliers = outliers_or_reason(found.network)[0] or ()
    found.network.spectrum().singular_values().plot(axes, outliers=outliers)
    axes.set_title(f"{activation_text(found.activation)}, {found.architecture}, depth "
                   f"{found.depth}, sigma_w = {found.sigma_w:.6g}")


def phase_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``fastspec phase``."""
    add = parser.add_argument
    _activation_option(parser)
    add("--sigma-w", type=several, metavar="FROM:TO:N", default="0.1:3:60",
        help="weight scales (0.1:3:60)")
    add("--sigma-b", type=several, metavar="FROM:TO:N", default="0:1:40",
        help="bias scales (0:1:40)")
    add("--quantity", choices=_PHASE_QUANTITIES, default="xi_c", metavar="NAME",
        help=f"what --plot draws: {', '.join(_PHASE_QUANTITIES)} (xi_c)")
    _outputs(parser, "draw the phase diagram")


def phase(args: argparse.Namespace) -> None:
    """``fastspec phase``: fixed points, depth scales and phases over (sigma_w, sigma_b)."""
    from .signal import phase_diagram

    axes = new_axes() if args.plot else None
    diagram = checked(args, phase_diagram, args.activation, args.sigma_w, args.sigma_b,
                      progress=progress_on_terminal())
    weight, bias = np.meshgrid(diagram.sigma_w, diagram.sigma_b, indexing="ij")
    columns = {"sigma_w": weight.ravel(), "sigma_b": bias.ravel(),
               **{name: getattr(diagram, name).ravel() for name in _PHASE_COLUMNS},
               "phase": diagram.phase_names.ravel()}
    write_results(args, columns, {"activation": activation_text(args.activation)} | columns)
    if axes is not None:
        checked(args, diagram.plot, axes, args.quantity)
        save_plot(axes.figure, args.plot)


def meanfield_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``fastspec meanfield``."""
    add = parser.add_argument
    _activation_option(parser)
    add("--block", choices=BLOCKS, default="reduced",
        help="reduced x + phi(h) (default), full x + v phi(h) + a, vanilla phi(h)")
    add("--depth", type=whole, metavar="L", required=True, help="number of blocks, >= 1")
    add("--sigma-w", type=grid, metavar="X", required=True,
        help="weight scale; FROM:TO:N for a heat map over sigma_w and the depths 1 to L")
    for name, default, what in (("b", 0.0, "bias h"), ("v", 1.0, "weight v"), ("a", 0.0, "bias a")):
        add(f"--sigma-{name}", type=non_negative, metavar="X", default=default,
            help=f"scale of the {what} ({default:g})")
    add("--p0", type=non_negative, metavar="X", default=1.0, help="|x|^2 / N of the inputs (1)")
    add("--gamma0", type=finite, metavar="X", default=0.0, help="x x' / N of two inputs (0)")
    add("--quantity", metavar="NAME", default="log_chi_ratio", choices=HEAT_QUANTITIES,
        help=f"what --plot draws of a heat map: {', '.join(HEAT_QUANTITIES)} (log_chi_ratio)")
    _outputs(parser, "draw the layers, or the heat map")


def meanfield(args: argparse.Namespace) -> None:
    """``fastspec meanfield``: one network layer by layer, or many as a heat map."""
    axes = new_axes() if args.plot else None
    result, columns = (_layers if args.sigma_w.size == 1 else _heat_map)(args)
    record = {"activation": activation_text(args.activation), "block": args.block}
    write_results(args, columns, record | columns)
    if axes is not None:
        result.plot(axes) if args.sigma_w.size == 1 else result.plot(axes, quantity=args.quantity)
        save_plot(axes.figure, args.plot)


def _layers(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    from .meanfield import ResidualMeanField

    field = checked(args, ResidualMeanField, args.activation, args.block,
                    sigma_w=float(args.sigma_w[0]), **_other_sigmas(args))
    run = checked(args, field.run, args.depth, p0=args.p0, gamma0=args.gamma0)
    columns = {"layer": np.arange(args.depth + 1)}
    return run, columns | {name: getattr(run, name) for name in _LAYER_COLUMNS}


def _heat_map(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    from .meanfield import heatmap

    chart = checked(args, heatmap, args.activation, args.block, np.arange(1, args.depth + 1),
                    sigma_w=args.sigma_w, **_other_sigmas(args), p0=args.p0, gamma0=args.gamma0,
                    progress=progress_on_terminal())
    sigma, depth = np.meshgrid(chart.sigma, chart.depth, indexing="ij")
    columns = {"sigma_w": sigma.ravel(), "depth": depth.ravel()}
    for name in HEAT_QUANTITIES:
        columns[name] = getattr(chart, name).ravel()
    for number in ("fp16", "bf16", "fp32"):
        lost = chart.activation_overflow(number) | chart.gradient_overflow(number)
        columns[f"{number}_overflow"] = lost.ravel().astype(int)
    return chart, columns | {"softmax_overflow": chart.softmax_overflow.ravel().astype(int)}


def _other_sigmas(args: argparse.Namespace) -> dict[str, float]:
    return {name: getattr(args, name) for name in ("sigma_b", "sigma_v", "sigma_a")}


def _activation_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--activation", type=activation_option, required=True, metavar="NAME",
                        help="such as tanh, gelu, leaky_relu:slope=0.05")


def _outputs(parser: argparse.ArgumentParser, picture: str) -> None:
    table_options(parser)
    parser.add_argument("--plot", type=output_file, metavar="FILE",
                        help=f"{picture} (png, pdf, svg, ...)")


CHOOSING = (
    Command("init", "recommended initialisation", init_options, init),
    Command("meanfield", "mean-field network, or a heat map",
            meanfield_options, meanfield),
    Command("phase", "phase diagram of plain layers",
            phase_options, phase),
)
