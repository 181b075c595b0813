"""How the command line writes: aligned tables, CSV, JSON and pictures."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._cli_parser import UsageError

Columns = Mapping[str, Any]


def note(message: str) -> None:
    """One line on stderr."""
    print("fastspec: note:", message, file=sys.stderr)


def write_results(args: Any, columns: Columns, record: dict[str, Any]) -> None:
    """CSV and JSON where they are asked for; a table on stdout if no output was asked for."""
    if args.csv == "-" and args.json == "-":
        raise UsageError("argument --json: stdout is taken by --csv, give one of them a FILE")
    if args.csv is not None:
        _write(args.csv, "--csv", to_csv(columns))
    if args.json is not None:
        write_json(args.json, record)
    if args.csv is None and args.json is None and getattr(args, "plot", None) is None:
        sys.stdout.write(to_table(columns))


def write_json(target: str, record: dict[str, Any]) -> None:
    """A record as JSON, one key per line, to a file or, for ``-``, to stdout."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(_plain(value), allow_nan=False)}"
        for key, value in record.items()
    )
    _write(target, "--json", "{" + ",\n ".join(lines) + "}\n")


def to_csv(columns: Columns) -> str:
    """Comma separated values with a header; floats are written so that they read back exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*map(_listed, columns.values()), strict=True):
        writer.writerow("" if value is None else value if isinstance(value, str) else repr(value)
                        for value in row)
    return text.getvalue()


def _listed(column: Any) -> list[Any]:
    """A column in Python's types."""
    return [item.item() if isinstance(item, np.generic) else item for item in column]


def to_table(columns: Columns) -> str:
    """Right-aligned columns for people."""
    cells = [
        [name, *(number(value) for value in np.asarray(column).tolist())]
        for name, column in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "\n"
        for row in rows
    )


def number(value: float | str) -> str:
    """A number with 12 significant digits; words as they are."""
    return value if isinstance(value, str) else f"{value:.12g}"


def save_plot(figure: Any, path: str) -> None:
    """Write a matplotlib figure to a file."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"argument --plot: cannot write {path!r}: {error.strerror}") from error
    except ValueError as error:  # matplotlib's word for a file ending it does not know
        raise UsageError(f"argument --plot: {error}") from error
    note(f"picture written to {path}")


def _write(target: str, option: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"argument {option}: cannot write {target!r}: {error.strerror}") from error
    note(f"{option[2:].upper()} written to {target}")


def _plain(value: Any) -> Any:
    """The value in JSON's types; JSON has no inf and NaN, so those become strings."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
