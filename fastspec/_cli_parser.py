"""What the command line accepts: the commands, their targets, and the checks of each option."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

NETWORKS = ("resnet", "feedforward")
LAWS = ("resnet-limit", "fuss-catalan", "bernoulli-limit", "smooth-limit")
_TARGET_HELP = {
    "resnet": "residual network x = phi(W x + b) + skip x",
    "feedforward": "feed-forward network x = phi(W x + b)",
    "resnet-limit": "limit law of deep residual networks",
    "fuss-catalan": "law of a product of Gaussian matrices",
    "bernoulli-limit": "limit law of orthogonal networks with 0/1 slopes",
    "smooth-limit": "limit law of orthogonal networks with smooth slopes",
}
_EXAMPLE = """example:
  fastspec density resnet --depth 20 --activation tanh --sigma-w 0.4 --limit --plot density.png
  fastspec condition resnet-limit --c 0.125

'fastspec COMMAND --help' lists the targets, 'fastspec COMMAND TARGET --help' the options."""


class UsageError(Exception):
    """A wrong command line; the message is one line that names the option."""


class Command(NamedTuple):
    """A command without a target."""

    name: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28)


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, raised instead of printed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_help_formatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def build_parser(
    version: str,
    run: Mapping[str, Callable[[argparse.Namespace], None]],
    choosing: Iterable[Command],
) -> _Parser:
    """Parser of ``fastspec COMMAND [TARGET] [options]``; ``run`` maps commands to functions.

    ``choosing`` are the commands without a target.
    """
    parser = _Parser(
        prog="fastspec",
        description="Singular-value spectra of deep networks at random initialisation.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--version", action="version", version=f"fastspec {version}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, summary, targets, options in (
        ("density", "density of the squared singular values", NETWORKS + LAWS, _density_options),
        ("condition", "condition numbers, outliers, support", NETWORKS + LAWS, _condition_options),
        ("propagate", "variances and slopes layer by layer", NETWORKS, table_options),
    ):
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        command.set_defaults(run=run[name])
        choices = command.add_subparsers(metavar="TARGET", dest="target", required=True)
        for target in targets:
            sub = choices.add_parser(target, help=_TARGET_HELP[target])
            _target_options(sub, target)
            if target in NETWORKS and name != "propagate":
                sub.add_argument(
                    "--limit",
                    action="store_true",
                    help="also give the limit law of infinite depth, beside the one at this depth",
                )
            if target == "resnet" and name != "propagate":
                sub.add_argument(
                    "--basis", choices=("free", "shared"), default="free",
                    help="blocks as in the papers (free), or sharing the coordinates of their "
                         "slopes as in a network (shared)",
                )
            options(sub, target)
    for one in choosing:
        command = commands.add_parser(
            one.name, help=one.summary, description=one.summary.capitalize() + ".")
        command.set_defaults(run=one.run)
        one.add_options(command)
    return parser


def _target_options(parser: argparse.ArgumentParser, target: str) -> None:
    if target in NETWORKS:
        _network_options(parser, target)
    elif target == "resnet-limit":
        parser.add_argument(
            "--c", type=positive, metavar="C", required=True, help="effective cumulant, > 0"
        )
        parser.add_argument(
            "--skip", type=positive, metavar="A", default=1.0, help="skip a, > 0 (1)"
        )
        parser.add_argument(
            "--depth", type=whole, metavar="L", help="depth, needed if the skip is not 1"
        )
    elif target == "fuss-catalan":
        parser.add_argument(
            "--depth", type=whole, metavar="L", required=True, help="number of matrices, >= 1"
        )
    else:
        parser.add_argument(
            "--variance",
            type=positive,
            metavar="V",
            required=True,
            help="variance of the spectrum, > 0",
        )


def _network_options(parser: argparse.ArgumentParser, target: str) -> None:
    add = parser.add_argument
    add("--depth", type=whole, metavar="L", required=True, help="number of layers, >= 1")
    add(
        "--activation",
        type=activation,
        required=True,
        metavar="NAME",
        help="such as tanh, relu, leaky_relu:slope=0.05",
    )
    add(
        "--weights",
        choices=("gaussian", "orthogonal"),
        default="gaussian",
        help="gaussian (default) or orthogonal",
    )
    add("--sigma-w", type=positive, metavar="X", default=1.0, help="weight scale, > 0 (1)")
    add("--sigma-b", type=non_negative, metavar="X", default=0.0, help="bias scale, >= 0 (0)")
    add(
        "--input-second-moment",
        type=non_negative,
        metavar="X",
        default=1.0,
        help="|x|^2 / N of the input (1)",
    )
    add("--input-mean", type=finite, metavar="X", default=0.0, help="mean of the input (0)")
    if target == "feedforward":
        add("--fixed-point", action="store_true", help="every layer at the fixed point q*")
        add(
            "--widths",
            type=widths,
            metavar="N0,N1,...",
            help="depth + 1 widths, input first, in any unit (all equal)",
        )
        return
    add("--skip", type=nonzero, metavar="A", default=1.0, help="skip a, not 0 (1)")
    add(
        "--no-depth-scaling",
        action="store_true",
        help="weight variance sigma_w^2 / N whatever the depth",
    )
    add(
        "--batch-norm",
        nargs="?",
        const=True,
        type=pair,
        metavar="GAMMA,BETA",
        help="batch norm on every pre-activation (1,0 if no numbers are given)",
    )
    add("--branch-layers", type=whole, metavar="N", default=1, help="layers of a branch (1)")


def _density_options(parser: argparse.ArgumentParser, target: str) -> None:
    add = parser.add_argument
    add("--points", type=whole, metavar="N", default=50, help="number of grid points (50)")
    add("--axis", choices=("linear", "log"), default="linear", help="spacing of the grid (linear)")
    add(
        "--singular-values",
        action="store_true",
        help="density of the singular values s, not of lambda = s^2",
    )
    add(
        "--from",
        dest="start",
        type=non_negative,
        metavar="X",
        help="first grid point (end of the support)",
    )
    add(
        "--to", dest="stop", type=positive, metavar="X", help="last grid point (end of the support)"
    )
    table_options(parser, target)
    add("--plot", type=output_file, metavar="FILE", help="draw the density (png, pdf, svg, ...)")
    if target in NETWORKS:
        add(
            "--simulate",
            type=whole,
            metavar="WIDTH",
            help="also draw one network of this width and compare",
        )
        add("--seed", type=seed, metavar="N", default=0, help="seed of the simulation (0)")


def _condition_options(parser: argparse.ArgumentParser, _: str) -> None:
    parser.add_argument(
        "--coverage",
        type=fraction,
        metavar="P",
        default=1.0,
        help="share of the bulk to cover, (0, 1] (1)",
    )
    json_option(parser)


def table_options(parser: argparse.ArgumentParser, _: str = "") -> None:
    """--csv and --json."""
    parser.add_argument(
        "--csv", nargs="?", const="-", type=csv_or_json, metavar="FILE", help="CSV (- is stdout)"
    )
    json_option(parser)


def json_option(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=csv_or_json,
        metavar="FILE",
        help='JSON (- is stdout); values that are not finite are the strings "inf", "nan"',
    )


def bad(allowed: str, text: str) -> argparse.ArgumentTypeError:
    """The error that ``text`` is not what is allowed."""
    return argparse.ArgumentTypeError(f"must be {allowed}, got {text!r}")


def _whole_from(text: str, low: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low:
        raise bad(f"a whole number >= {low}", text)
    return value


def _real(text: str, allowed: str, accept: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and accept(value)):
        raise bad(allowed, text)
    return value


def whole(text: str) -> int:
    """A whole number >= 1."""
    return _whole_from(text, 1)


def seed(text: str) -> int:
    """A whole number >= 0."""
    return _whole_from(text, 0)


def positive(text: str) -> float:
    """A finite number > 0."""
    return _real(text, "a finite number > 0", lambda value: value > 0)


def finite(text: str) -> float:
    """A finite number."""
    return _real(text, "a finite number", lambda value: True)


def nonzero(text: str) -> float:
    """A finite number that is not 0."""
    return _real(text, "a finite number, not 0", lambda value: value != 0)


def non_negative(text: str) -> float:
    """A finite number >= 0."""
    return _real(text, "a finite number >= 0", lambda value: value >= 0)


def fraction(text: str) -> float:
    """A number in (0, 1]."""
    return _real(text, "a number > 0 and <= 1", lambda value: 0 < value <= 1)


def _numbers(text: str, allowed: str, accept: Callable[[int], bool]) -> tuple[float, ...]:
    try:
        values = tuple(float(item) for item in text.split(","))
    except ValueError:
        values = ()
    if not (accept(len(values)) and all(map(math.isfinite, values))):
        raise bad(allowed, text)
    return values


def pair(text: str) -> tuple[float, ...]:
    """Two numbers, GAMMA,BETA."""
    return _numbers(text, "two numbers GAMMA,BETA", lambda count: count == 2)


def widths(text: str) -> tuple[float, ...]:
    """Numbers N0,N1,..."""
    return _numbers(text, "numbers N0,N1,...", lambda count: count > 0)


def activation(text: str) -> Any:
    """``NAME`` or ``NAME:PARAMETER=VALUE,...`` as an activation object."""
    from fastspec.activations import activation as find

    name, _, rest = text.partition(":")
    parameters: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        try:
            parameters[key.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise bad("NAME:PARAMETER=VALUE,... with numbers as values", text)
    try:
        return find(name.strip(), **parameters)
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(" ".join(str(error).split())) from error


def csv_or_json(text: str) -> str:
    """An output file, or ``-`` for stdout."""
    return text if text == "-" else output_file(text)


def output_file(text: str) -> str:
    """A file that can be written, as far as that is seen without writing."""
    directory = os.path.dirname(os.path.abspath(text))
    if not text or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: not the name of a file")
    if not os.path.isdir(directory):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: no such directory")
    if not os.access(text if os.path.exists(text) else directory, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: permission denied")
    return text
