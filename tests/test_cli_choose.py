"""The commands that help to choose an initialisation: init, meanfield, phase."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import fastspec as fs
from fastspec.cli import main

MEANFIELD = ["meanfield", "--activation", "tanh", "--depth", "4", "--sigma-w"]
INIT = ["init", "--activation", "gelu", "--depth", "20"]
PHASE = ["phase", "--activation", "tanh", "--sigma-w", "0.5:2:4", "--sigma-b", "0:1:3"]


def run(capsys, *arguments):
    """Exit code, stdout and stderr of one call."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows_of(capsys, *arguments):
    """The CSV of a call, as one dict a row."""
    code, out, _ = run(capsys, *arguments, "--csv")
    assert code == 0
    return list(csv.DictReader(io.StringIO(out)))


def test_init_prints_the_recommendation(capsys):
    found = fs.initialize.recommend("gelu", 20, condition_number=4.0)
    code, out, err = run(capsys, *INIT, "--condition-number", "4")
    assert (code, out, err) == (0, f"{found}\n", "")
    assert "Tarnowski" in out and "sqrt(20 * fan_in)" in out


def test_init_as_csv_and_json(capsys):
    found = fs.initialize.recommend("gelu", 20, condition_number=4.0)
    row, = rows_of(capsys, *INIT, "--condition-number", "4")
    assert float(row["sigma_w"]) == found.sigma_w
    assert float(row["condition_number"]) == pytest.approx(4.0, rel=1e-9, abs=0)
    record = json.loads(run(capsys, *INIT, "--condition-number", "4", "--json")[1])
    assert record["scale"] == found.scale and record["reason"] == found.reason


@pytest.mark.parametrize(("options", "network"), [
    (["--architecture", "feedforward"], fs.FeedForward),
    (["--architecture", "mean_field", "--log-chi-ratio", "3"], fs.meanfield.ResidualMeanField),
])
def test_init_of_other_architectures(capsys, options, network):
    arguments = ["init", "--activation", "tanh", "--depth", "20", *options]
    record = json.loads(run(capsys, *arguments, "--json")[1])
    found = fs.initialize.recommend("tanh", 20, options[1],
                                    log_chi_ratio=3.0 if len(options) > 2 else None)
    assert isinstance(found.network, network)
    assert (record["sigma_w"], record["sigma_b"]) == (found.sigma_w, found.sigma_b)


def test_meanfield_layers_are_those_of_the_recurrence(capsys):
    rows = rows_of(capsys, *MEANFIELD, "1", "--sigma-b", "0.5", "--gamma0", "0.4")
    result = fs.meanfield.ResidualMeanField("tanh", sigma_w=1.0, sigma_b=0.5).run(4, gamma0=0.4)
    assert [int(row["layer"]) for row in rows] == [0, 1, 2, 3, 4]
    for name in ("p", "q", "e", "log_s", "log_chi", "log_chi_w"):
        np.testing.assert_array_equal([float(row[name]) for row in rows], getattr(result, name))


def test_meanfield_grid_is_a_heat_map(capsys):
    rows = rows_of(capsys, *MEANFIELD, "0.5:1.5:3", "--block", "full", "--sigma-v", "0.8")
    chart = fs.meanfield.heatmap("tanh", "full", [1, 2, 3, 4], sigma_w=np.array([0.5, 1.0, 1.5]),
                                 sigma_v=0.8)
    assert [(float(row["sigma_w"]), int(row["depth"])) for row in rows[:5]] == [
        (0.5, 1), (0.5, 2), (0.5, 3), (0.5, 4), (1.0, 1)]
    np.testing.assert_array_equal([float(row["log_chi_ratio"]) for row in rows],
                                  chart.log_chi_ratio.ravel())
    assert {row["fp16_overflow"] for row in rows} == {"0"}


def test_meanfield_overflow_is_flagged(capsys):
    rows = rows_of(capsys, "meanfield", "--activation", "relu", "--block", "full", "--depth", "10",
                   "--sigma-w", "3.9:4.2:2")      # fp16 holds up to 4.047 at depth 10
    last = [row for row in rows if row["depth"] == "10"]
    assert [row["fp16_overflow"] for row in last] == ["0", "1"]
    assert [row["fp32_overflow"] for row in last] == ["0", "0"]
    assert [row["softmax_overflow"] for row in last] == ["1", "1"]


def test_phase_is_the_diagram(capsys):
    rows = rows_of(capsys, *PHASE)
    diagram = fs.signal.phase_diagram("tanh", np.linspace(0.5, 2.0, 4), np.linspace(0.0, 1.0, 3))
    for name in ("q", "chi", "c", "xi_c"):
        np.testing.assert_array_equal([float(row[name]) for row in rows],
                                      getattr(diagram, name).ravel())
    assert [row["phase"] for row in rows] == diagram.phase_names.ravel().tolist()
    assert (rows[1]["sigma_w"], rows[1]["sigma_b"]) == ("0.5", "0.5")


def test_json_has_the_same(capsys):
    code, out, _ = run(capsys, *PHASE, "--json")
    record = json.loads(out)
    assert (code, record["activation"], len(record["q"])) == (0, "tanh", 12)
    code, out, _ = run(capsys, *MEANFIELD, "1", "--json")
    record = json.loads(out)
    assert (code, record["block"], record["q"][0], record["p"][0]) == (0, "reduced", "nan", 1.0)


@pytest.mark.parametrize("arguments", [
    INIT, [*INIT, "--architecture", "mean_field"], [*MEANFIELD, "1"],
    [*MEANFIELD, "0.5:2:5", "--quantity", "e"], [*PHASE, "--quantity", "chi"]])
def test_pictures_are_written(capsys, tmp_path, arguments):
    path = tmp_path / "picture.png"
    code, out, err = run(capsys, *arguments, "--plot", str(path))
    assert (code, out) == (0, "")
    assert err == f"fastspec: note: picture written to {path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_picture_of_an_initialisation_has_the_outlier(capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr("fastspec._cli_choose.save_plot", lambda figure, _: figures.append(figure))
    arguments = ["init", "--activation", "relu", "--depth", "10", "--plot", "x.png"]
    assert run(capsys, *arguments)[0] == 0
    (text,) = figures[0].axes[0].texts
    top = fs.ResNet(10, "relu", sigma_w=0.5).top_singular_value()
    assert text.get_text() == f"outlier {top:.4g}" and text.xy[0] == pytest.approx(top, rel=1e-9)


@pytest.mark.parametrize(("arguments", "message"), [
    ([*INIT, "--condition-number", "0.5"], "argument --condition-number: condition_number must be"),
    ([*INIT, "--c", "1", "--variance", "1"], "argument --c: "),
    ([*INIT, "--block", "full"], "argument --block: block goes with"),
    (["init", "--activation", "relu", "--depth", "9", "--architecture", "feedforward", "--c", "1"],
     "argument --c: c does not go with architecture='feedforward'"),
    (["init", "--activation", "sigmoid", "--depth", "9", "--architecture", "feedforward"],
     "no critical point"),
    ([*MEANFIELD, "1", "--sigma-v", "2"], "argument --sigma-v: sigma_v goes with block='full'"),
    ([*MEANFIELD, "-1"], "argument --sigma-w: must be a number >= 0, or FROM:TO:N"),
    ([*MEANFIELD, "2:1:5"], "argument --sigma-w: must be a number >= 0, or FROM:TO:N"),
    ([*MEANFIELD, "1:2:x"], "argument --sigma-w: must be a number >= 0, or FROM:TO:N"),
    ([*MEANFIELD, "0:1:5"], "argument --sigma-w: sigma_w must be positive"),
    ([*MEANFIELD, "1", "--gamma0", "3"], "argument --gamma0: gamma0 must lie between -p0 and p0"),
    (["meanfield", "--activation", "tanh", "--depth", "0", "--sigma-w", "1"],
     "argument --depth: must be a whole number >= 1, got '0'"),
    (["meanfield", "--activation", "alpha_relu:alpha=0.5", "--depth", "3", "--sigma-w", "1"],
     "second moment"),
    (["phase", "--activation", "tanh", "--sigma-w", "1"],
     "argument --sigma-w: must be FROM:TO:N"),
    (["phase", "--activation", "tahn"], "did you mean 'tanh'?"),
])
def test_wrong_command_lines_are_one_line(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("fastspec: error: ") and err.count("\n") == 1
    assert message in err
