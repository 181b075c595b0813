"""Exceptions and warnings of fastspec."""

__all__ = ["ConvergenceError", "ConvergenceWarning", "RangeWarning"]


class ConvergenceWarning(RuntimeWarning):
    """Points that could not be solved (NaN), or an accuracy not reached; the message says."""


class ConvergenceError(ArithmeticError):
    """The same, asked for with ``on_error="raise"``."""


class RangeWarning(RuntimeWarning):
    """The law lies outside the range of a double in the variable asked for."""
