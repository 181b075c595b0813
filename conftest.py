"""Doctests of the bridges run only where their frameworks are installed."""

from importlib.util import find_spec

_MISSING = [name for name in ("torch", "jax") if find_spec(name) is None]
collect_ignore_glob = [f"fastspec/{stem}{name}{rest}.py" for name in _MISSING
                       for stem, rest in (("", ""), ("_", "_*"))]


def pytest_report_header():
    """Say which bridges are left out."""
    return [f"fastspec.{name} is not tested: pip install 'fastspec[{name}]'" for name in _MISSING]
