"""Command line: ``fastspec density|condition|propagate TARGET [options]``.

Machine output (tables, CSV, JSON) goes to stdout, notes and errors to stderr, one line each.
Exit codes: 0 done, 1 the computation failed, 2 the command line is wrong.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ._cli_choose import CHOOSING
from ._cli_commands import condition, density, propagate
from ._cli_parser import UsageError, build_parser
from ._cli_scaling import SCALING

__all__ = ["main"]

_BROKEN_PIPE = 141  # what a shell reports for a tool that died of SIGPIPE
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; ``sys.argv[1:]`` by default.

    Returns
    -------
    int
        0 done, 1 the computation failed, 2 the command line is wrong, 130 interrupted,
        141 the reader of stdout went away.

    Examples
    --------
    >>> from fastspec.cli import main
    >>> main(["condition", "resnet-limit", "--c", "0.125"])
    condition number  2.74648284128
    outliers          not known: they belong to a network, and this is a law alone
    support           [0.364102038057, 2.74648284128]
    atoms             none
    coverage          1
    law               resnet-limit
    0
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = _OneLinePerWarning()
            _run(argv)
            sys.stdout.flush()
    except UsageError as error:
        return _fail(str(error), 2)
    except (ArithmeticError, ValueError) as error:
        return _fail(str(error), 1)
    except MemoryError:
        return _fail("not enough memory", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # Keep the interpreter from failing once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    return 0


def _run(argv: Sequence[str] | None) -> None:
    from . import __version__

    commands = {"density": density, "condition": condition, "propagate": propagate}
    args = build_parser(__version__, commands, CHOOSING + SCALING).parse_args(argv)
    args.run(args)


def _fail(message: str, code: int) -> int:
    print("fastspec: error:", " ".join(message.split()), file=sys.stderr)
    return code


class _OneLinePerWarning:
    """Prints each different warning once, as one line on stderr."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        line = " ".join(str(message).split())
        if line not in self.seen:
            print("fastspec: warning:", line, file=sys.stderr)
        self.seen.add(line)


if __name__ == "__main__":
    sys.exit(main())
