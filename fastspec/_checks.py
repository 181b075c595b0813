"""Checks of arguments, shared by the modules that take numbers and names from users."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def real(name: str, value: Any, *, low: float = -math.inf, strict: bool = False) -> float:
    """``value`` as a finite float >= low (> low if strict), or ValueError."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        if math.isfinite(number) and (number > low or (number == low and not strict)):
            return number
    bound = "" if low == -math.inf else f" {'>' if strict else '>='} {low:g}"
    raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")


def positive_integer(name: str, value: Any) -> int:
    """``value`` as an int >= 1, or ValueError. NumPy integers pass; booleans and floats do not."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """``value`` if it is one of ``allowed``, or ValueError with the nearest of them."""
    if isinstance(value, str) and value in allowed:
        return value
    raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}"
                     + suggestion(value, allowed))


def suggestion(value: Any, allowed: Collection[str]) -> str:
    """``" (did you mean 'x'?)"``, or nothing when no allowed name is near."""
    near = difflib.get_close_matches(str(value).lower(), list(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def variance(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as an array of finite numbers >= 0, or ValueError."""
    array = finite(name, value)
    if np.any(array < 0.0):
        raise ValueError(f"{name} must be >= 0, got {array[array < 0.0].flat[0]:.12g}")
    return array


def store(frozen: Any, **fields: Any) -> None:
    """Set checked fields of a frozen dataclass that is being made."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def finite(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as an array of finite real numbers, or ValueError."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        array = array.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number or an array of them, got {value!r}"
                         ) from None
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
    return array
