"""Operations and models as JSON records, with errors that name the operation and the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from . import _checks
from ._scaling_ops import OPS, Concat, Op, Residual, checked_ops
from .activations import activation

_NEEDED = ("input_shape", "ops")
_MODEL = (*_NEEDED, "init", "c", "input_second_moment", "input_mean", "input_correlation",
          "output_gradient")


def ops_from_json(records: Any) -> list[Op]:
    """Operations from a list of records such as ``{"op": "Conv2d", "n_in": 3, ...}``.

    Parameters
    ----------
    records : list of dict
        Each has the key ``op``, the class of the operation, and its fields; ``main`` and
        ``shortcut`` of a Residual are such lists, ``branches`` of a Concat a list of them. An
        activation with a parameter is ``{"name": "elu", "alpha": 0.5}``.

    Returns
    -------
    list of operations

    Raises
    ------
    ValueError
        Naming the operation and the field, as in ``ops[3] (Conv2d): groups must divide ...``.

    Examples
    --------
    >>> from fastspec import scaling
    >>> scaling.ops_from_json([{"op": "Linear", "n_in": 4, "n_out": 2}, {"op": "ReLU"}])[1]
    ReLU(name='')
    """
    return _sequence(records, "ops")


def ops_to_json(ops: Sequence[Op]) -> list[dict[str, Any]]:
    """The records from which `ops_from_json` makes the same operations.

    Raises
    ------
    ValueError
        If an activation is a callable, which no record can hold.
    """
    return [_record(op) for op in checked_ops("ops", ops)]


def model_from_json(record: Any) -> dict[str, Any]:
    """The arguments of `analyze` from a record with ``input_shape``, ``ops`` and options.

    Raises
    ------
    ValueError
        If a key is missing or unknown, or an operation is wrong.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"a model must be an object with {' and '.join(_NEEDED)}, "
                         f"got {_short(record)}")
    for key in record:
        if key not in _MODEL:
            raise ValueError(f"unknown field {key!r}{_checks.suggestion(key, _MODEL)}; known are "
                             + ", ".join(_MODEL))
    for key in _NEEDED:
        if key not in record:
            raise ValueError(f"{key} is missing")
    return {**record, "ops": ops_from_json(record["ops"])}


def _sequence(records: Any, path: str) -> list[Op]:
    if not isinstance(records, list | tuple):
        raise ValueError(f"{path} must be a list of operations, got {_short(records)}")
    return [_op(record, f"{path}[{index}]") for index, record in enumerate(records)]


def _op(record: Any, path: str) -> Op:
    if not isinstance(record, Mapping) or "op" not in record:
        raise ValueError(f'{path} must be an object with the key "op", got {_short(record)}')
    try:
        kind = OPS[_checks.choice("op", record["op"], OPS)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    where = f"{path} ({kind.__name__})"
    values = {key: value for key, value in record.items() if key != "op"}
    known = {field.name: field for field in fields(kind)}
    for key in values:
        if key not in known:
            raise ValueError(f"{where}: unknown field {key!r}{_checks.suggestion(key, known)}; "
                             f"known are {', '.join(known)}")
    for key, field in known.items():
        if key not in values and field.default is MISSING:
            raise ValueError(f"{where}: {key} is missing")
    _read_inner(kind, values, path, where)
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _read_inner(kind: type[Op], values: dict[str, Any], path: str, where: str) -> None:
    """Put operations and activations in the place of their records."""
    if kind is Residual:
        for key in ("main", "shortcut"):
            if key in values:
                values[key] = _sequence(values[key], f"{path}.{key}")
    elif kind is Concat:
        if not isinstance(values["branches"], list | tuple):
            raise ValueError(f"{where}: branches must be a list of lists of operations, "
                             f"got {_short(values['branches'])}")
        values["branches"] = [_sequence(branch, f"{path}.branches[{index}]")
                              for index, branch in enumerate(values["branches"])]
    elif isinstance(values.get("activation"), Mapping):
        values["activation"] = _activation(dict(values["activation"]), where)


def _activation(record: dict[str, Any], where: str) -> Any:
    name = record.pop("name", None)
    if "derivative" in record or "kinks" in record:
        raise ValueError(f"{where}: activation must be a name with its parameter, "
                         f"got {_short(record)}")
    try:
        return activation(name, **record)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _record(op: Op) -> dict[str, Any]:
    record: dict[str, Any] = {"op": type(op).__name__}
    for field in fields(op):
        value = getattr(op, field.name)
        if field.name in ("main", "shortcut"):
            value = ops_to_json(value)
        elif field.name == "branches":
            value = [ops_to_json(branch) for branch in value]
        elif field.name == "activation":
            value = _activation_record(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value != field.default:
            record[field.name] = value
    return record


def _activation_record(phi: Any) -> Any:
    if not phi.is_builtin:
        raise ValueError(f"activation {phi.name} is a callable and cannot be written as JSON")
    return {"name": phi.name, **phi.params} if phi.params else phi.name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
