"""The command ``scaling``: which layers of a network are badly scaled."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ._cli_commands import new_axes
from ._cli_output import save_plot, write_results
from ._cli_parser import Command, UsageError, output_file, table_options
from ._scaling_init import SCHEMES


def scaling_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``fastspec scaling``."""
    add = parser.add_argument
    add("model", metavar="MODEL.json",
        help='file with {"input_shape": [...], "ops": [{"op": "Conv2d", ...}, ...]}, or -')
    add("--init", choices=SCHEMES, help="initialisation, instead of that in the file (geometric)")
    table_options(parser)
    add("--plot", type=output_file, metavar="FILE",
        help="draw gamma of the layers (png, pdf, svg, ...)")


def scaling(args: argparse.Namespace) -> None:
    """``fastspec scaling``: the scaling report of a network."""
    from .scaling import analyze

    axes = new_axes() if args.plot else None
    model = _model(args)
    try:
        report = analyze(**model)
    except ValueError as error:
        raise UsageError(f"{args.model}: {error}") from error
    if args.csv is None and args.json is None and axes is None:
        print(report)
        return
    rows = report.to_dict()["ops"]
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    write_results(args, columns, report.to_dict())
    if axes is not None:
        report.plot(axes)
        save_plot(axes.figure, args.plot)


def _model(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `analyze` that the file holds."""
    from .scaling import model_from_json

    try:
        model = model_from_json(json.loads(_text(args.model)))
    except json.JSONDecodeError as error:
        raise UsageError(f"{args.model} is no JSON: {error}") from error
    except ValueError as error:
        raise UsageError(f"{args.model}: {error}") from error
    return model if args.init is None else {**model, "init": args.init}


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"argument MODEL.json: cannot read {path!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"argument MODEL.json: {path!r} is no UTF-8 text") from error


SCALING = (Command("scaling", "scaling of the layers of a network", scaling_options, scaling),)
