"""What the commands of the command line do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ._cli_output import note, number, save_plot, write_json, write_results
from ._cli_parser import NETWORKS, UsageError
from ._extremes import full_condition_number, outliers_or_reason
from ._progress import progress_on_terminal

_NOT_PARAMETERS = {
    "command", "target", "run", "points", "axis", "start", "stop", "csv", "json", "plot",
    "simulate", "seed", "coverage", "limit", "singular_values",
}  # fmt: skip


@dataclass(frozen=True)
class _Subject:
    """A law; for a network also the network and, with --limit, its law of infinite depth."""

    law: Any
    which: str  # "exact", or the name of the law
    net: Any = None
    limit: Any = None

    @cached_property
    def outliers(self) -> tuple[Any, str]:
        """The detached outliers, or None and why they are not known."""
        if self.net is None:
            return None, "they belong to a network, and this is a law alone"
        return outliers_or_reason(self.net)

    def laws(self) -> dict[str, Any]:
        """The laws to show, by the prefix of their columns."""
        return {"": self.law} | ({} if self.limit is None else {"limit_": self.limit})


def density(args: argparse.Namespace) -> None:
    """``fastspec density``: pdf and cdf on a grid, as a table, CSV, JSON or picture."""
    axes = new_axes() if args.plot else None
    subject = _subject(args)
    laws = {
        prefix: law.singular_values() if args.singular_values else law
        for prefix, law in subject.laws().items()
    }
    name = "s" if args.singular_values else "lambda"
    grid = _grid(args, list(laws.values()))
    columns = {name: grid}
    for prefix, law in laws.items():
        columns |= {f"{prefix}pdf": law.pdf(grid), f"{prefix}cdf": law.cdf(grid)}
    measured = _simulate(args, subject)
    record = _record(args, subject) | {"variable": name}
    for prefix, law in laws.items():
        record |= {f"{prefix}support": law.support(), f"{prefix}atoms": law.atoms}
    record |= columns | {"simulation": _simulation_record(args, subject, measured)}
    write_results(args, columns, record)
    if axes is not None:
        _draw(axes, args, subject, measured)
        save_plot(axes.figure, args.plot)


def condition(args: argparse.Namespace) -> None:
    """``fastspec condition``: condition numbers, outliers, support, atoms, effective cumulant."""
    subject = _subject(args)
    record = _record(args, subject) | {"coverage": args.coverage}
    for prefix, law in subject.laws().items():
        record |= {
            f"{prefix}condition_number": law.condition_number(coverage=args.coverage),
            f"{prefix}support": law.support(),
            f"{prefix}atoms": law.atoms,
        }
    record |= _outlier_record(subject)
    record["effective_cumulant"] = _effective_cumulant(subject.net)
    if args.json is not None:
        write_json(args.json, record)
        return
    lines = _condition_lines(record)
    width = max(len(label) for label, _ in lines) + 2
    for label, value in lines:
        print(f"{label:<{width}}{value}")


def propagate(args: argparse.Namespace) -> None:
    """``fastspec propagate``: one line per layer."""
    net = _network(args)
    fields = {name: np.asarray(column) for name, column in net.propagate().to_dict().items()}
    columns = {"layer": np.arange(1, net.depth + 1)} | fields
    record = {"target": args.target, "parameters": _parameters(args)} | columns
    write_results(args, columns, record)


def _condition_lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    """What ``condition`` prints: each quantity of the law, that of the limit law below it."""
    show: dict[str, Callable[[Any], str]] = {
        "condition_number": number,
        "full_condition_number": lambda value: number(value) + untrimmed,
        "outliers": _outliers_text,
        "outliers_unknown": lambda why: f"not known: {why}",
        "support": _intervals_text,
        "atoms": _atoms_text,
    }
    untrimmed = " (coverage 1)" if record["coverage"] < 1.0 else ""
    lines = [
        (_LABELS.get(key, key.replace("_", " ")), text(record[key]))
        for name, text in show.items()
        for key in (name, f"limit_{name}")
        if record.get(key) is not None
    ]
    lines += [("coverage", number(record["coverage"])), ("law", record["law"])]
    if record["effective_cumulant"] is not None:
        lines.append(("cumulant c", number(record["effective_cumulant"])))
    return lines


_LABELS = {"full_condition_number": "with outliers", "outliers_unknown": "outliers"}


def _outlier_record(subject: _Subject) -> dict[str, Any]:
    """The outliers and the condition number with them, or why they are not known."""
    outliers, why_not = subject.outliers
    if outliers is None:
        return {"full_condition_number": None, "outliers": None, "outliers_unknown": why_not}
    return {
        "full_condition_number": full_condition_number(subject.law, outliers),
        "outliers": [asdict(outlier) for outlier in outliers],
    }


def _outliers_text(outliers: list[dict[str, Any]]) -> str:
    return ", ".join(f"{number(one['singular_value'])} {one['side']}" for one in outliers) or "none"


def _intervals_text(support: list[tuple[float, float]]) -> str:
    return ", ".join(f"[{number(low)}, {number(high)}]" for low, high in support) or "none"


def _atoms_text(atoms: Any) -> str:
    return ", ".join(f"{number(mass)} at {number(x)}" for x, mass in atoms) or "none"


def _effective_cumulant(net: Any) -> float | None:
    """The cumulant c of a residual network; nothing for other targets."""
    return None if net is None or not hasattr(net, "skip") else float(net.effective_cumulant())


def _record(args: argparse.Namespace, subject: _Subject) -> dict[str, Any]:
    return {"target": args.target, "parameters": _parameters(args), "law": subject.which}


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    values = {key: value for key, value in vars(args).items() if key not in _NOT_PARAMETERS}
    if "activation" in values:
        values["activation"] = activation_text(values["activation"])
    return values


def activation_text(activation: Any) -> str:
    """NAME:PARAMETER=VALUE,... as --activation takes it."""
    values = ",".join(f"{key}={value!r}" for key, value in activation.params.items())
    return f"{activation.name}:{values}" if values else str(activation.name)


def _subject(args: argparse.Namespace) -> _Subject:
    if args.target not in NETWORKS:
        return _Subject(_named_law(args), args.target)
    net = _network(args)
    limit = checked(args, net.spectrum, limit=True) if args.limit else None
    law = checked(args, net.spectrum, basis=getattr(args, "basis", "free"))
    return _Subject(law, "exact", net, limit)


def _network(args: argparse.Namespace) -> Any:
    import fastspec as fs

    common = {
        "depth": args.depth,
        "activation": args.activation,
        "weights": args.weights,
        "sigma_w": args.sigma_w,
        "sigma_b": args.sigma_b,
        "input_second_moment": args.input_second_moment,
        "input_mean": args.input_mean,
    }
    if args.target == "resnet":
        common |= {
            "skip": args.skip,
            "batch_norm": args.batch_norm,
            "branch_layers": args.branch_layers,
        }
        return checked(args, fs.ResNet, depth_scaled=not args.no_depth_scaling, **common)
    q = "fixed_point" if args.fixed_point else None
    return checked(args, fs.FeedForward, q=q, widths=args.widths, **common)


def _named_law(args: argparse.Namespace) -> Any:
    import fastspec as fs

    if args.target == "resnet-limit":
        return checked(args, fs.ResNetLimit, args.c, skip=args.skip, depth=args.depth)
    if args.target == "fuss-catalan":
        return checked(args, fs.FussCatalan, args.depth)
    law = fs.BernoulliLimit if args.target == "bernoulli-limit" else fs.SmoothLimit
    return checked(args, law, args.variance)


def checked(args: argparse.Namespace, build: Callable[..., Any], *values: Any, **more: Any) -> Any:
    """Call ``build``; the library's word on a bad parameter becomes one on the option."""
    try:
        return build(*values, **more)
    except ValueError as error:
        message = str(error)
        options = {*_parameters(args), "limit"}
        named = [word for word in re.findall(r"\w+", message) if word in options]
        option = f"argument --{named[0].replace('_', '-')}: " if named else ""
        raise UsageError(option + message.removeprefix("limit=True ")) from error


def _grid(args: argparse.Namespace, laws: list[Any]) -> np.ndarray:
    """Grid points from ``--from`` to ``--to``, by default over the supports and the atoms."""
    from .plotting import law_range

    lows, highs = zip(*(law_range(law, args.axis) for law in laws), strict=True)
    low = min(lows) if args.start is None else args.start
    high = max(highs) if args.stop is None else args.stop
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

    distances = {
        f"{prefix}ks_distance": ks_distance(measured, law)
        for prefix, law in subject.laws().items()
    }
    outliers = split_outliers(measured, subject.law)[1]
    predicted, why_not = subject.outliers
    message = f"simulated width {args.simulate}: KS distance {distances['ks_distance']:.4g}"
    if subject.limit is not None:
        message += f" ({distances['limit_ks_distance']:.4g} from the limit law)"
    if outliers.size or predicted:
        expected = f"not known ({why_not})" if predicted is None else _listed(_places(predicted))
        message += f", outliers {_listed(outliers)}, predicted {expected}"
    note(message)
    return {
        "width": args.simulate,
        "seed": args.seed,
        **distances,
        "outlying_singular_values": outliers,
        "predicted_outliers": None if predicted is None else _places(predicted),
        "singular_values": measured,
    }


def _places(outliers: tuple[Any, ...]) -> list[float]:
    return [outlier.singular_value for outlier in outliers]


def _listed(values: Any) -> str:
    return ", ".join(map(number, values)) or "none"


def new_axes() -> Any:
    """Axes on a figure of its own: no window, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "argument --plot: needs matplotlib: pip install 'fastspec[plot]'"
        ) from error
    return Figure(figsize=(7.0, 4.5), layout="constrained").add_subplot()


def _draw(axes: Any, args: argparse.Namespace, subject: _Subject, measured: Any) -> None:
    from .plotting import LIMIT_STYLE, plot_comparison, plot_law

    style: dict[str, Any] = {"axis": args.axis, "singular_values": args.singular_values}
    label = f"depth {args.depth}" if subject.net else "law"
    own: dict[str, Any] = {"label": label, "outliers": subject.outliers[0] or ()} | style
    if measured is None:
        plot_law(subject.law, axes, **own)
    else:
        plot_comparison(measured, subject.law, axes, **own)
    if subject.limit is not None:
        axes.legend()  # which the next curve joins
        plot_law(subject.limit, axes, label="limit of infinite depth", **LIMIT_STYLE, **style)
    text = activation_text(args.activation) if subject.net else ""
    axes.set_title(f"{args.target}, {text}" if text else args.target)
