"""The command ``fastspec scaling``."""

from __future__ import annotations

import csv
import io
import json

import pytest

from fastspec import scaling as sc
from fastspec.cli import main

MODEL = {"input_shape": [3, 16, 16], "init": "fan_in", "ops": [
    {"op": "Conv2d", "n_in": 3, "n_out": 16, "kernel": 5, "padding": 2}, {"op": "ReLU"},
    {"op": "MaxPool2d", "kernel": 3, "stride": 2}, {"op": "Flatten"},
    {"op": "Linear", "n_in": 784, "n_out": 10, "name": 'head, "last"'}]}


@pytest.fixture
def model(tmp_path):
    """Path of the model's file."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps(MODEL))
    return str(path)


def report(**options):
    return sc.analyze(**{**sc.model_from_json(MODEL), **options})


def run(capsys, *arguments):
    """Exit code, stdout and stderr of one call."""
    code = main(["scaling", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table(capsys, model):
    assert run(capsys, model) == (0, f"{report()}\n", "")


def test_init_of_the_command_line_wins(capsys, model):
    assert run(capsys, model, "--init", "geometric")[1] == f"{report(init='geometric')}\n"


def test_model_from_stdin(capsys, model, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(MODEL)))
    assert run(capsys, "-")[1] == f"{report()}\n"


def test_csv(capsys, model):
    rows = list(csv.DictReader(io.StringIO(run(capsys, model, "--csv")[1])))
    for row, op in zip(rows, report().ops, strict=True):
        assert (row["name"], float(row["varsigma"])) == (op.name, op.varsigma)
        assert row["gamma"] == ("" if op.gamma is None else repr(op.gamma))
        assert row["flag"] == (op.flag or "")
    assert rows[2]["flag"].startswith("max-pool")


def test_json(capsys, model):
    record = json.loads(run(capsys, model, "--json")[1])
    assert record == json.loads(json.dumps(report().to_dict()))


def test_picture(capsys, model, tmp_path):
    path = tmp_path / "picture.png"
    code, out, err = run(capsys, model, "--plot", str(path))
    assert (code, out, err) == (0, "", f"fastspec: note: picture written to {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("text", "message"), [
    ("{", "is no JSON: "), ("[]", "a model must be an object"),
    (json.dumps({**MODEL, "input_shape": [4, 9, 9]}), "0.Conv2d: takes n_in = 3 channels"),
    (json.dumps({**MODEL, "ops": [{"op": "Conv2d", "n_in": 5, "n_out": 4, "kernel": 3,
                                   "groups": 2}]}),
     "ops[0] (Conv2d): groups must divide n_in = 5, got 2"),
    (json.dumps({**MODEL, "init": "fanin"}), "did you mean 'fan_in'"),
    (json.dumps({**MODEL, "c": "x"}), "c must be a finite number"),
    (json.dumps({**MODEL, "ops": [{"op": "ReLU", "nam": "x"}]}), "did you mean 'name'"),
])
def test_wrong_files_are_one_line(capsys, tmp_path, text, message):
    path = tmp_path / "model.json"
    path.write_text(text)
    code, out, err = run(capsys, str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"fastspec: error: {path}") and err.count("\n") == 1
    assert message in err


def test_wrong_command_lines(capsys, tmp_path):
    code, _, err = run(capsys, str(tmp_path / "none.json"))
    assert code == 2 and "argument MODEL.json: cannot read" in err
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert "is no UTF-8 text" in run(capsys, str(tmp_path / "bytes"))[2]
