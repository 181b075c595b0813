"""Progress bars on stderr, by tqdm if it is there (extra ``progress``)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def with_progress(items: Iterable[T], show: bool, what: str) -> Iterable[T]:
    """The items, counted by a progress bar if it is to be shown.

    Raises
    ------
    ImportError
        If the bar is asked for and tqdm is missing.
    """
    if not show:
        return items
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError("progress bars need tqdm: pip install 'fastspec[progress]'") from error
    return tqdm(items, desc=what, leave=False)


def progress_on_terminal() -> bool:
    """Whether a program should show bars unasked: on a terminal, if tqdm is there."""
    return sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
