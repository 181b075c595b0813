"""Operations and models as JSON."""

from __future__ import annotations

import json

import pytest

import fastspec as fs
from fastspec import scaling as sc

EVERY = [
    sc.Conv2d(3, 8, (3, 5), (2, 1), 1, 2, bias=False, padding_mode="circular", name="stem"),
    sc.ReLU(), sc.LeakyReLU(0.2), sc.Activation("gelu"),
    sc.Activation(fs.activation("elu", alpha=0.5)), sc.Dropout(0.1), sc.Scale(2.0),
    sc.AvgPool2d(2, 1), sc.MaxPool2d(3, 2, 1), sc.Stride(2), sc.Upsample((1, 2)), sc.BatchNorm(64),
    sc.LayerNorm(), sc.Residual([sc.Conv2d(8, 8, 1, groups=2)], [sc.ReLU()], 0.6, 0.8, name="b"),
    sc.Concat([[], [sc.Conv2d(8, 4, 1)]]), sc.Flatten(), sc.Linear(96, 10, bias=False)]


def test_round_trip():
    records = json.loads(json.dumps(sc.ops_to_json(EVERY)))
    assert sc.ops_from_json(records) == EVERY
    assert {op["op"] for op in records} == {type(op).__name__ for op in EVERY}
    assert records[1] == {"op": "ReLU"}


def test_model():
    record = {"input_shape": [3, 8, 8], "init": {"a": 0.1}, "c": 1.0,
              "ops": [{"op": "Conv2d", "n_in": 3, "n_out": 4, "kernel": 3, "name": "a"}]}
    model = sc.model_from_json(record)
    assert model["ops"] == [sc.Conv2d(3, 4, 3, name="a")]
    assert sc.analyze(**model) == sc.analyze([sc.Conv2d(3, 4, 3, name="a")], (3, 8, 8),
                                             init={"a": 0.1}, c=1.0)


def test_callables_cannot_be_written():
    cubic = fs.activation(lambda h: h + h**3, derivative=lambda h: 1 + 3 * h**2)
    with pytest.raises(ValueError, match="is a callable"):
        sc.ops_to_json([sc.Activation(cubic)])


GOOD = {"op": "ReLU"}


@pytest.mark.parametrize(("records", "message"), [
    ([GOOD, GOOD, GOOD, {"op": "Conv2d", "n_in": 5, "n_out": 4, "kernel": 3, "groups": 2}],
     r"^ops\[3\] \(Conv2d\): groups must divide n_in = 5, got 2$"),
    ([{"op": "Conv2", "n_in": 5}], r"^ops\[0\]: op must be one of .* \(did you mean 'Conv2d'\?\)"),
    ([{"op": "Linear", "n_in": 5}], r"^ops\[0\] \(Linear\): n_out is missing$"),
    ([{"op": "Linear", "n_in": 5, "nout": 5}],
     r"^ops\[0\] \(Linear\): unknown field 'nout' \(did you mean 'n_out'\?\); known are name, "),
    ([GOOD, 3], r'^ops\[1\] must be an object with the key "op", got 3$'),
    ([{"n_in": 5}], r'^ops\[0\] must be an object with the key "op"'),
    ({"op": "ReLU"}, "^ops must be a list of operations, got"),
    ([{"op": "Residual", "main": [GOOD, {"op": "Dropout", "p": 2}]}],
     r"^ops\[0\]\.main\[1\] \(Dropout\): p must be >= 0 and < 1, got 2$"),
    ([{"op": "Residual", "main": GOOD}], r"^ops\[0\]\.main must be a list"),
    ([{"op": "Concat", "branches": 3}], r"^ops\[0\] \(Concat\): branches must be a list of lists"),
    ([{"op": "Concat", "branches": [[], [{"op": "Linear"}]]}],
     r"^ops\[0\]\.branches\[1\]\[0\] \(Linear\): n_in is missing$"),
    ([{"op": "Concat"}], r"^ops\[0\] \(Concat\): branches is missing$"),
    ([{"op": "Activation", "activation": "tahn"}], r"^ops\[0\] \(Activation\): .*'tanh'"),
    ([{"op": "Activation", "activation": {"name": "elu", "beta": 1}}],
     r"^ops\[0\] \(Activation\): beta is not a parameter of elu"),
    ([{"op": "Activation", "activation": {"alpha": 1}}], r"^ops\[0\] \(Activation\): activation"),
    ([{"op": "Activation", "activation": {"name": "relu", "kinks": [0]}}],
     r"^ops\[0\] \(Activation\): activation must be a name with its parameter"),
    ([{"op": "Conv2d", "n_in": 4, "n_out": 4, "kernel": [3, 3, 3]}], r"\(Conv2d\): kernel must be"),
    ([{"op": "ReLU", "name": None}], r"^ops\[0\] \(ReLU\): name must be a string"),
    ([{"op": ["ReLU"]}], r"^ops\[0\]: op must be one of"),
])
def test_errors_name_the_operation_and_the_field(records, message):
    with pytest.raises(ValueError, match=message):
        sc.ops_from_json(records)


@pytest.mark.parametrize(("record", "message"), [
    ([GOOD], "a model must be an object with input_shape and ops"),
    ({"ops": [GOOD]}, "^input_shape is missing$"), ({"input_shape": [3]}, "^ops is missing$"),
    ({"input_shape": [3], "ops": [GOOD], "innit": "fan_in"}, "'innit' .did you mean 'init'"),
])
def test_errors_of_models(record, message):
    with pytest.raises(ValueError, match=message):
        sc.model_from_json(record)
