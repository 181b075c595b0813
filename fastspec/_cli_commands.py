"""What the commands of the command line do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._cli_output import note, number, save_plot, write_json, write_results
from ._cli_parser import NETWORKS, UsageError
from ._progress import progress_on_terminal

_NOT_PARAMETERS = {
    "command", "target", "run", "points", "axis", "start", "stop", "csv", "json", "plot",
    "simulate", "seed", "coverage", "limit", "singular_values",
}  # fmt: skip


@dataclass(frozen=True)
class _Subject:
    """A law, the network it belongs to if there is one, and which of its laws it is."""

    law: Any
    net: Any
    which: str  # "exact", "limit", or the name of the law
    remark: str | None = None


def density(args: argparse.Namespace) -> None:
    """``fastspec density``: pdf and cdf on a grid, as a table, CSV, JSON or picture."""
    axes = _new_axes() if args.plot else None
    subject = _subject(args)
    law = subject.law.singular_values() if args.singular_values else subject.law
    name = "s" if args.singular_values else "lambda"
    grid = _grid(args, law)
    columns = {name: grid, "pdf": law.pdf(grid), "cdf": law.cdf(grid)}
    measured = _simulate(args, subject)
    record = _record(args, subject) | {
        "variable": name,
        "support": law.support(),
        "atoms": law.atoms,
        **columns,
        "simulation": _simulation_record(args, subject, measured),
    }
    write_results(args, columns, record)
    if axes is not None:
        _draw(axes, args, subject, measured)
        save_plot(axes.figure, args.plot)


def condition(args: argparse.Namespace) -> None:
    """``fastspec condition``: condition number, support, atoms and effective cumulant."""
    subject = _subject(args)
    law = subject.law
    record = _record(args, subject) | {
        "condition_number": law.condition_number(coverage=args.coverage),
        "coverage": args.coverage,
        "support": law.support(),
        "atoms": law.atoms,
        "effective_cumulant": _effective_cumulant(subject.net),
    }
    if args.json is not None:
        write_json(args.json, record)
        return
    for label, value in _condition_lines(record):
        print(f"{label:<18}{value}")


def propagate(args: argparse.Namespace) -> None:
    """``fastspec propagate``: one line per layer."""
    net = _network(args)
    fields = {name: np.asarray(column) for name, column in net.propagate().to_dict().items()}
    columns = {"layer": np.arange(1, net.depth + 1)} | fields
    record = {"target": args.target, "parameters": _parameters(args)} | columns
    write_results(args, columns, record)


def _condition_lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    intervals = [f"[{number(low)}, {number(high)}]" for low, high in record["support"]]
    atoms = [f"{number(mass)} at {number(x)}" for x, mass in np.reshape(record["atoms"], (-1, 2))]
    lines = [
        ("condition number", number(record["condition_number"])),
        ("coverage", number(record["coverage"])),
        ("support", ", ".join(intervals) or "none"),
        ("atoms", ", ".join(atoms) or "none"),
        ("law", record["law"]),
    ]
    if record["effective_cumulant"] is not None:
        lines.append(("cumulant c", number(record["effective_cumulant"])))
    return lines


def _effective_cumulant(net: Any) -> float | None:
    """The cumulant c of a residual network; nothing for other targets."""
    return None if net is None or not hasattr(net, "skip") else float(net.effective_cumulant())


def _record(args: argparse.Namespace, subject: _Subject) -> dict[str, Any]:
    return {
        "target": args.target,
        "parameters": _parameters(args),
        "law": subject.which,
        "note": subject.remark,
    }


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    values = {key: value for key, value in vars(args).items() if key not in _NOT_PARAMETERS}
    if "activation" in values:
        values["activation"] = _activation_text(values["activation"])
    return values


def _activation_text(activation: Any) -> str:
    """NAME:PARAMETER=VALUE,... as --activation takes it."""
    values = ",".join(f"{key}={value!r}" for key, value in activation.params.items())
    return f"{activation.name}:{values}" if values else str(activation.name)


def _subject(args: argparse.Namespace) -> _Subject:
    if args.target not in NETWORKS:
        return _Subject(_named_law(args), None, args.target)
    net = _network(args)
    if args.limit:
        return _Subject(_checked(args, net.spectrum, limit=True), net, "limit")
    try:
        return _Subject(_checked(args, net.spectrum), net, "exact")
    except NotImplementedError as error:
        remark = f"this is the limit law of infinite depth: {error}"
        try:
            law = net.spectrum(limit=True)
        except ValueError as limit_error:
            raise UsageError(f"no law for this network: {error}; {limit_error}") from limit_error
    note(remark)
    return _Subject(law, net, "limit", remark)


def _network(args: argparse.Namespace) -> Any:
    import fastspec as fs

    common = {
        "depth": args.depth,
        "activation": args.activation,
        "weights": args.weights,
        "sigma_w": args.sigma_w,
        "sigma_b": args.sigma_b,
        "input_second_moment": args.input_second_moment,
    }
    if args.target == "resnet":
        common |= {"skip": args.skip, "input_mean": args.input_mean}
        return _checked(args, fs.ResNet, depth_scaled=not args.no_depth_scaling, **common)
    q = "fixed_point" if args.fixed_point else None
    return _checked(args, fs.FeedForward, q=q, **common)


def _named_law(args: argparse.Namespace) -> Any:
    import fastspec as fs

    if args.target == "resnet-limit":
        return _checked(args, fs.ResNetLimit, args.c, skip=args.skip, depth=args.depth)
    if args.target == "fuss-catalan":
        return _checked(args, fs.FussCatalan, args.depth)
    law = fs.BernoulliLimit if args.target == "bernoulli-limit" else fs.SmoothLimit
    return _checked(args, law, args.variance)


def _checked(args: argparse.Namespace, build: Callable[..., Any], *values: Any, **more: Any) -> Any:
    """Call ``build``; the library's word on a bad parameter becomes one on the option."""
    try:
        return build(*values, **more)
    except ValueError as error:
        message = str(error)
        options = {*_parameters(args), "limit"}
        named = [word for word in re.findall(r"\w+", message) if word in options]
        option = f"argument --{named[0].replace('_', '-')}: " if named else ""
        raise UsageError(option + message) from error


def _grid(args: argparse.Namespace, law: Any) -> np.ndarray:
    """Grid points from ``--from`` to ``--to``, by default over the support and the atoms."""
    from .plotting import law_range

    low, high = law_range(law, args.axis)
    low = low if args.start is None else args.start
    high = high if args.stop is None else args.stop
    if args.axis == "log" and low == 0.0:
        raise UsageError("argument --from: must be > 0 on a logarithmic axis, got 0.0")
    if low > high or (low == high and args.points > 1):
        option = "--from" if args.start is not None else "--to"
        raise UsageError(
            f"argument {option}: the grid would run from {number(low)} to {number(high)}"
        )
    space = np.geomspace if args.axis == "log" else np.linspace
    return space(low, high, args.points)


def _simulate(args: argparse.Namespace, subject: _Subject) -> Any:
    """Measured singular values of one network, or None if they were not asked for."""
    if getattr(args, "simulate", None) is None:
        return None
    from .simulate import jacobian_singular_values

    return jacobian_singular_values(
        subject.net, args.simulate, seed=args.seed, progress=progress_on_terminal()
    )


def _simulation_record(
    args: argparse.Namespace, subject: _Subject, measured: Any
) -> dict[str, Any] | None:
    if measured is None:
        return None
    from .simulate import ks_distance, split_outliers

    distance = ks_distance(measured, subject.law)
    outliers = split_outliers(measured, subject.law)[1]
    more = f", outliers {', '.join(map(number, outliers))}" if outliers.size else ""
    note(f"simulated width {args.simulate}: KS distance {distance:.4g}{more}")
    return {
        "width": args.simulate,
        "seed": args.seed,
        "ks_distance": distance,
        "outlying_singular_values": outliers,
        "singular_values": measured,
    }


def _new_axes() -> Any:
    """Axes on a figure of its own: no window, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "argument --plot: needs matplotlib: pip install 'fastspec[plot]'"
        ) from error
    return Figure(figsize=(7.0, 4.5), layout="constrained").add_subplot()


def _draw(axes: Any, args: argparse.Namespace, subject: _Subject, measured: Any) -> None:
    from .plotting import plot_comparison, plot_law

    if measured is None:
        law = subject.law.singular_values() if args.singular_values else subject.law
        plot_law(law, axes, axis=args.axis)
    else:
        plot_comparison(
            measured, subject.law, axes, axis=args.axis, singular_values=args.singular_values
        )
    axes.set_title(f"{args.target}, {subject.which} law" if subject.net else args.target)
