"""The command line, called as a function and once as a program."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import fastspec as fs
from fastspec.cli import main

LIMIT = ["resnet-limit", "--c", "0.125"]
RESNET = ["resnet", "--depth", "6", "--activation", "tanh", "--sigma-w", "0.4"]
RELU = ["resnet", "--depth", "3", "--activation", "relu", "--sigma-w", "0.5"]
DEEP_RELU = ["resnet", "--depth", "50", "--activation", "relu", "--sigma-w", "0.5"]
FORWARD = ["feedforward", "--depth", "4", "--activation", "hard_tanh", "--weights", "orthogonal"]


def run(capsys, *arguments):
    """Exit code, stdout and stderr of one call."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fails(capsys, *arguments):
    """The one line on stderr of a call that is refused."""
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("fastspec: error: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    return err


def replaced(arguments, option, value):
    """The arguments with another value of an option."""
    copy = list(arguments)
    copy[copy.index(option) + 1] = value
    return copy


def read_csv(text):
    rows = list(csv.reader(io.StringIO(text)))
    return rows[0], np.array(rows[1:], dtype=float)


# --- density ------------------------------------------------------------------------------------


def test_density_csv_is_the_law(capsys):
    code, out, err = run(capsys, "density", *LIMIT, "--points", "7", "--csv")
    header, values = read_csv(out)
    law = fs.ResNetLimit(0.125)
    low, high = law.support()[0]
    assert (code, err, header) == (0, "", ["lambda", "pdf", "cdf"])
    np.testing.assert_array_equal(values[:, 0], np.linspace(low, high, 7))
    np.testing.assert_array_equal(values[:, 1], law.pdf(values[:, 0]))
    np.testing.assert_array_equal(values[:, 2], law.cdf(values[:, 0]))


def test_density_table_has_the_same_numbers(capsys):
    _, out, err = run(capsys, "density", *LIMIT, "--points", "5")
    lines = out.splitlines()
    assert err == ""
    assert lines[0].split() == ["lambda", "pdf", "cdf"]
    assert len(lines) == 6
    assert len({len(line) for line in lines}) == 1  # right-aligned
    middle = [float(cell) for cell in lines[3].split()]
    assert middle[1] == pytest.approx(float(fs.ResNetLimit(0.125).pdf(middle[0])), rel=1e-10)


def test_density_of_singular_values_on_a_log_grid(capsys):
    _, out, _ = run(
        capsys, "density", *LIMIT, "--singular-values", "--axis", "log", "--from", "0.7",
        "--to", "1.4", "--points", "3", "--csv", "-",
    )  # fmt: skip
    header, values = read_csv(out)
    assert header[0] == "s"
    np.testing.assert_allclose(values[:, 0], [0.7, np.sqrt(0.98), 1.4], rtol=1e-14)
    # rho_s(s) = 2 s rho(s^2)
    expected = 2.0 * values[:, 0] * fs.ResNetLimit(0.125).pdf(values[:, 0] ** 2)
    np.testing.assert_allclose(values[:, 1], expected, rtol=1e-12)


def test_density_json_is_valid_where_the_density_diverges(capsys):
    _, out, _ = run(capsys, "density", "fuss-catalan", "--depth", "2", "--points", "3", "--json")
    record = json.loads(out, parse_constant=pytest.fail)
    assert record["target"] == record["law"] == "fuss-catalan"
    assert record["parameters"] == {"depth": 2}
    assert record["lambda"][0] == 0.0
    assert record["pdf"][0] == "inf"
    assert record["cdf"][-1] == pytest.approx(1.0)
    np.testing.assert_allclose(record["support"], [[0.0, 27 / 4]], rtol=1e-14)
    assert record["atoms"] == []
    assert record["simulation"] is None


def test_density_of_a_law_with_an_atom(capsys):
    _, out, _ = run(capsys, "density", "bernoulli-limit", "--variance", "0.25", "--json")
    record = json.loads(out)
    np.testing.assert_allclose(record["atoms"], [[np.exp(0.25), 0.75]], rtol=1e-12)
    assert record["lambda"][-1] == pytest.approx(np.exp(0.25))
    assert record["cdf"][-1] == pytest.approx(1.0)


def test_log_axis_starts_above_zero_for_a_law_that_reaches_it(capsys):
    _, out, _ = run(
        capsys, "density", "fuss-catalan", "--depth", "3", "--axis", "log", "--csv", "-"
    )
    values = read_csv(out)[1]
    assert values[0, 0] > 0
    assert values[0, 2] == pytest.approx(1e-2, rel=1e-6)
    assert np.isfinite(values).all()


def test_outputs_go_to_files_and_notes_to_stderr(capsys, tmp_path):
    table, record = tmp_path / "a.csv", tmp_path / "a.json"
    code, out, err = run(
        capsys, "density", *LIMIT, "--points", "4", "--csv", str(table), "--json", str(record)
    )
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        f"fastspec: note: CSV written to {table}",
        f"fastspec: note: JSON written to {record}",
    ]
    values = read_csv(table.read_text())[1]
    np.testing.assert_array_equal(values[:, 1], json.loads(record.read_text())["pdf"])


def test_network_density_is_that_of_its_depth(capsys):
    _, out, err = run(capsys, "density", *RESNET, "--points", "5", "--json")
    record = json.loads(out)
    law = fs.ResNet(depth=6, activation="tanh", sigma_w=0.4).spectrum()
    assert (record["law"], err) == ("exact", "")
    assert not [key for key in record if key.startswith("limit")]
    np.testing.assert_allclose(record["support"], law.support(), rtol=1e-14)
    np.testing.assert_allclose(record["pdf"], law.pdf(np.array(record["lambda"])), rtol=1e-12)


def test_grid_holds_both_laws(capsys):
    net = fs.ResNet(depth=3, activation="linear", sigma_w=0.5)
    ends = np.array([net.spectrum().support()[0], net.spectrum(limit=True).support()[0]])
    assert ends[0, 0] < ends[1, 0] and ends[0, 1] < ends[1, 1]
    arguments = replaced(RELU, "--activation", "linear")
    values = read_csv(run(capsys, "density", *arguments, "--limit", "--csv")[1])[1]
    assert (values[0, 0], values[-1, 0]) == (ends[0, 0], ends[1, 1])


@pytest.mark.parametrize("more", [[], ["--singular-values"]])
def test_limit_law_stands_beside_the_exact_one(capsys, more):
    arguments = ["density", *RELU, "--limit", "--points", "9", *more]
    header, values = read_csv(run(capsys, *arguments, "--csv")[1])
    net = fs.ResNet(depth=3, activation="relu", sigma_w=0.5)
    exact, limit = net.spectrum(), net.spectrum(limit=True)
    if more:
        exact, limit = exact.singular_values(), limit.singular_values()
    x = values[:, 0]
    assert header == ["s" if more else "lambda", "pdf", "cdf", "limit_pdf", "limit_cdf"]
    ends = np.array([*exact.support(), *limit.support()])
    np.testing.assert_allclose([x[0], x[-1]], [ends.min(), ends.max()], rtol=1e-15)
    for column, values_of in enumerate([exact.pdf, exact.cdf, limit.pdf, limit.cdf], start=1):
        np.testing.assert_array_equal(values[:, column], values_of(x))
    assert np.abs(values[:, 1] - values[:, 3]).max() > 0.01  # two laws, not one twice
    record = json.loads(run(capsys, *arguments, "--json")[1])
    assert record["limit_pdf"] == values[:, 3].tolist()
    assert record["limit_cdf"] == values[:, 4].tolist()
    np.testing.assert_array_equal(record["limit_support"], limit.support())
    assert record["limit_atoms"] == []
    table = run(capsys, *arguments)[1].splitlines()
    assert table[0].split() == header


def test_network_options_reach_the_network(capsys):
    _, out, err = run(
        capsys, "density", *RESNET, "--skip", "0.9", "--no-depth-scaling", "--weights",
        "orthogonal", "--sigma-b", "0.1", "--input-second-moment", "2", "--limit", "--json",
    )  # fmt: skip
    record = json.loads(out)
    net = fs.ResNet(
        depth=6, activation="tanh", sigma_w=0.4, skip=0.9, depth_scaled=False,
        weights="orthogonal", sigma_b=0.1, input_second_moment=2.0,
    )  # fmt: skip
    assert (record["law"], err) == ("exact", "")
    np.testing.assert_allclose(record["support"], net.spectrum().support(), rtol=1e-12)
    np.testing.assert_allclose(
        record["limit_support"], net.spectrum(limit=True).support(), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("options", "batch_norm"),
    [([], None), (["--batch-norm"], True), (["--batch-norm", "0.5,0.2"], (0.5, 0.2))],
)
def test_batch_norm_and_longer_branches(capsys, options, batch_norm):
    arguments = [*RELU, "--branch-layers", "2", "--input-second-moment", "4", *options]
    record = json.loads(run(capsys, "condition", *arguments, "--json")[1])
    net = fs.ResNet(
        depth=3, activation="relu", sigma_w=0.5, branch_layers=2, batch_norm=batch_norm,
        input_second_moment=4.0,
    )  # fmt: skip
    assert record["condition_number"] == pytest.approx(
        net.spectrum().condition_number(), rel=1e-12
    )
    assert record["parameters"]["branch_layers"] == 2


def test_widths(capsys):
    arguments = ["feedforward", "--depth", "2", "--activation", "relu", "--widths", "1,2,3"]
    record = json.loads(run(capsys, "condition", *arguments, "--json")[1])
    law = fs.FeedForward(2, "relu", widths=[1, 2, 3]).spectrum()
    np.testing.assert_allclose(record["support"], law.support(), rtol=1e-14)
    np.testing.assert_allclose(record["atoms"], [[0.0, 2 / 3]], rtol=1e-14)
    assert record["parameters"]["widths"] == [1.0, 2.0, 3.0]


def test_simulation_reports_the_distance(capsys):
    arguments = ["density", *RESNET, "--simulate", "60", "--seed", "3", "--json"]
    _, out, err = run(capsys, *arguments, "--limit")
    simulation = json.loads(out)["simulation"]
    net = fs.ResNet(depth=6, activation="tanh", sigma_w=0.4)
    measured = fs.simulate.jacobian_singular_values(net, 60, seed=3)
    expected = fs.simulate.ks_distance(measured, net.spectrum())
    limit = fs.simulate.ks_distance(measured, net.spectrum(limit=True))
    assert simulation["ks_distance"] == pytest.approx(expected, rel=1e-12)
    assert simulation["limit_ks_distance"] == pytest.approx(limit, rel=1e-12)
    assert f"({limit:.4g} from the limit law)" in err
    assert (simulation["width"], simulation["seed"]) == (60, 3)
    assert simulation["outlying_singular_values"] == []
    assert f"KS distance {expected:.4g}" in err
    _, out, err = run(capsys, *arguments)
    assert "limit_ks_distance" not in json.loads(out)["simulation"]
    assert err == f"fastspec: note: simulated width 60: KS distance {expected:.4g}\n"


def test_simulation_names_the_outlier_of_relu(capsys):
    _, out, err = run(
        capsys, "density", "resnet", "--depth", "20", "--activation", "relu", "--sigma-w", "1",
        "--simulate", "150", "--json",
    )  # fmt: skip
    simulation = json.loads(out)["simulation"]
    outliers = simulation["outlying_singular_values"]
    assert outliers == [max(simulation["singular_values"])]
    predicted, = simulation["predicted_outliers"]
    assert predicted == pytest.approx(25.4510**0.5, rel=1e-5)   # as derived and measured
    assert f"outliers {outliers[0]:.12g}, predicted {predicted:.12g}" in err


def test_simulation_says_where_no_prediction_is_known(capsys):
    _, out, err = run(
        capsys, "density", "resnet", "--depth", "8", "--activation", "relu", "--branch-layers", "2",
        "--sigma-w", "2", "--simulate", "100", "--json",
    )  # fmt: skip
    simulation = json.loads(out)["simulation"]
    assert simulation["predicted_outliers"] is None
    outlier, = simulation["outlying_singular_values"]
    assert f"outliers {outlier:.12g}, predicted not known (" in err and "branch_layers" in err


@pytest.mark.parametrize(
    "more", [[], ["--simulate", "40"], ["--singular-values"], ["--limit", "--simulate", "40"]]
)
def test_plot_is_written(capsys, tmp_path, more):
    pytest.importorskip("matplotlib")
    path = tmp_path / "density.png"
    code, out, err = run(capsys, "density", *RELU, "--plot", str(path), *more)
    assert (code, out) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"picture written to {path}" in err


@pytest.mark.parametrize(
    ("more", "legend"),
    [
        ([], None),
        (["--limit"], ["depth 3", "limit of infinite depth"]),
        (["--simulate", "40"], ["measured", "depth 3"]),
        (["--limit", "--simulate", "40"], ["measured", "depth 3", "limit of infinite depth"]),
    ],
)
def test_plot_shows_both_laws(capsys, monkeypatch, more, legend):
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr(
        "fastspec._cli_commands.save_plot", lambda figure, path: figures.append(figure)
    )
    assert run(capsys, "density", *RELU, "--seed", "1", "--plot", "x.png", *more)[0] == 0
    (axes,) = figures[0].axes
    names = axes.get_legend() and [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == legend
    drawn = [line for line in axes.lines if line.get_transform() == axes.transData]
    assert len(drawn) == 1 + ("--limit" in more)
    assert not any(line.get_label() == "_outlier" for line in axes.lines)   # none at this depth


@pytest.mark.parametrize("more", [[], ["--simulate", "60"]])
def test_plot_shows_the_predicted_outliers(capsys, monkeypatch, more):
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr(
        "fastspec._cli_commands.save_plot", lambda figure, path: figures.append(figure)
    )
    assert run(capsys, "density", *DEEP_RELU, "--limit", "--plot", "x.png", *more)[0] == 0
    (axes,) = figures[0].axes
    places = [outlier.value for outlier in fs.ResNet(50, "relu", sigma_w=0.5).outliers()]
    drawn = [line.get_xdata()[0] for line in axes.lines if line.get_label() == "_outlier"]
    assert drawn == pytest.approx(places, rel=1e-12) and len(places) == 2
    assert axes.get_title() == "resnet, relu"


# --- condition ----------------------------------------------------------------------------------


def test_condition_number_of_the_limit(capsys):
    _, out, err = run(capsys, "condition", *LIMIT)
    c = 0.125
    s = np.sqrt(c * (2 + c))
    first = out.splitlines()[0]
    assert first.startswith("condition number")
    assert float(first.split()[-1]) == pytest.approx((1 + c + s) * np.exp(s), rel=1e-11)
    assert err == ""


def test_condition_json_with_coverage_and_infinity(capsys):
    _, out, _ = run(capsys, "condition", "fuss-catalan", "--depth", "2", "--json", "-")
    record = json.loads(out, parse_constant=pytest.fail)
    assert record["condition_number"] == "inf"
    _, out, _ = run(capsys, "condition", *LIMIT, "--coverage", "0.9", "--json")
    record = json.loads(out)
    assert record["coverage"] == 0.9
    expected = float(fs.ResNetLimit(0.125).condition_number(coverage=0.9))
    assert record["condition_number"] == pytest.approx(expected, rel=1e-12)


def test_condition_of_blocks_that_share_coordinates(capsys):
    arguments = ["resnet", "--depth", "2", "--activation", "relu", "--sigma-w", "1"]
    free, shared = (
        json.loads(run(capsys, "condition", *arguments, "--basis", basis, "--json")[1])
        for basis in ("free", "shared"))
    assert round(free["condition_number"], 3) == 10.732
    assert round(shared["condition_number"], 3) == 10.749


def test_condition_of_a_network_reports_its_cumulant(capsys):
    _, out, _ = run(capsys, "condition", *RESNET, "--json")
    net = fs.ResNet(depth=6, activation="tanh", sigma_w=0.4)
    expected = float(net.effective_cumulant())
    record = json.loads(out)
    assert record["effective_cumulant"] == pytest.approx(expected, rel=1e-12)
    assert record["condition_number"] == pytest.approx(
        net.spectrum().condition_number(), rel=1e-12
    )
    _, out, _ = run(capsys, "condition", *RESNET)
    assert out.splitlines()[-1] == f"cumulant c        {expected:.12g}"


def test_condition_beside_the_limit(capsys):
    net = fs.ResNet(depth=3, activation="relu", sigma_w=0.5)
    exact, limit = net.spectrum(), net.spectrum(limit=True)
    lines = run(capsys, "condition", *RELU, "--limit")[1].splitlines()
    assert lines[0] == f"condition number        {exact.condition_number():.12g}"
    assert lines[1] == f"limit condition number  {limit.condition_number():.12g}"
    low, high = limit.support()[0]
    assert f"limit support           [{low:.12g}, {high:.12g}]" in lines
    arguments = ["condition", *RELU, "--limit", "--coverage", "0.9", "--json"]
    record = json.loads(run(capsys, *arguments)[1])
    for prefix, law in (("", exact), ("limit_", limit)):
        expected = law.condition_number(coverage=0.9)
        assert record[f"{prefix}condition_number"] == pytest.approx(expected, rel=1e-12)


def test_condition_with_outliers(capsys):
    net = fs.ResNet(depth=50, activation="relu", sigma_w=0.5)
    # squared outliers of this net, as derived and measured
    above, below = 9.9488**0.5, 0.3553**0.5
    record = json.loads(run(capsys, "condition", *DEEP_RELU, "--json")[1])
    assert record["condition_number"] == pytest.approx(net.spectrum().condition_number(), rel=1e-12)
    full = record["full_condition_number"]
    assert full == pytest.approx(above / below, rel=2e-4)
    assert [one["side"] for one in record["outliers"]] == ["above", "below"]
    places = [one["singular_value"] for one in record["outliers"]]
    assert places == pytest.approx([above, below], rel=2e-4)
    assert {"value", "margin", "overlap_input"} <= set(record["outliers"][0])
    lines = run(capsys, "condition", *DEEP_RELU)[1].splitlines()
    assert lines[1] == f"with outliers     {full:.12g}"
    assert lines[2] == f"outliers          {places[0]:.12g} above, {places[1]:.12g} below"
    lines = run(capsys, "condition", *DEEP_RELU, "--coverage", "0.9")[1].splitlines()
    assert lines[1] == f"with outliers     {full:.12g} (coverage 1)"


def test_condition_without_outliers(capsys):
    lines = run(capsys, "condition", *RESNET)[1].splitlines()
    assert lines[1].split() == ["with", "outliers", lines[0].split()[-1]]
    assert lines[2] == "outliers          none"


@pytest.mark.parametrize(("subject", "words"), [
    (LIMIT, "not known: they belong to a network"),
    ([*RELU, "--batch-norm"], "not known: .*batch"),
    ([*RELU, "--branch-layers", "2"], "not known: .*branch_layers"),
    (replaced(RELU, "--depth", "2000"), "not known: .*depth 2000"),
    (["feedforward", "--depth", "2", "--activation", "relu", "--widths", "1,2,3"],
     "not known: .*width"),
])
def test_condition_says_why_outliers_are_not_known(capsys, subject, words):
    code, out, err = run(capsys, "condition", *subject)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.match(f"outliers +{words}", lines[1])
    assert not any(line.startswith("with outliers") for line in lines)
    record = json.loads(run(capsys, "condition", *subject, "--json")[1])
    assert record["full_condition_number"] is None and record["outliers"] is None
    assert re.match(words, "not known: " + record["outliers_unknown"])


def test_condition_lists_every_interval_and_atom(capsys):
    # One block I + D W, orthogonal W, slopes 0 and 1: continuous on both sides of a gap above 1.
    block = ["resnet", "--depth", "1", "--activation", "relu", "--weights", "orthogonal"]
    net = fs.ResNet(depth=1, activation="relu", weights="orthogonal")
    support = net.spectrum().support()
    assert len(support) == 2
    expected = ", ".join(f"[{low:.12g}, {high:.12g}]" for low, high in support)
    assert f"support           {expected}" in run(capsys, "condition", *block)[1].splitlines()
    # One layer D W, orthogonal W: the two slopes squared and nothing else.
    layer = ["feedforward", "--depth", "1", "--activation", "leaky_relu:slope=0.5", "--weights",
             "orthogonal"]  # fmt: skip
    lines = run(capsys, "condition", *layer)[1].splitlines()
    assert "support           none" in lines
    assert "atoms             0.5 at 0.25, 0.5 at 1" in lines


def test_condition_lists_atoms(capsys):
    _, out, _ = run(capsys, "condition", "bernoulli-limit", "--variance", "0.25")
    assert f"atoms             0.75 at {np.exp(0.25):.12g}" in out.splitlines()


# --- propagate ----------------------------------------------------------------------------------


def test_propagate_csv_is_the_propagation(capsys):
    code, out, err = run(capsys, "propagate", *RESNET, "--sigma-b", "0.2", "--csv")
    header, values = read_csv(out)
    expected = fs.ResNet(depth=6, activation="tanh", sigma_w=0.4, sigma_b=0.2).propagate()
    assert (code, err) == (0, "")
    assert header[0] == "layer"
    np.testing.assert_array_equal(values[:, 0], np.arange(1, 7))
    for name in ("q", "mean", "second_moment", "slope_mean", "slope_second", "kappa"):
        np.testing.assert_array_equal(values[:, header.index(name)], getattr(expected, name))


def test_propagate_table_and_json_at_the_fixed_point(capsys):
    arguments = [*FORWARD, "--sigma-w", "1.05", "--sigma-b", "0.1", "--fixed-point"]
    _, out, _ = run(capsys, "propagate", *arguments, "--json")
    q = json.loads(out)["q"]
    assert len(q) == 4
    np.testing.assert_allclose(q, q[0], rtol=1e-12)
    _, out, _ = run(capsys, "propagate", *arguments)
    assert len(out.splitlines()) == 5


def test_activation_parameters_are_used(capsys):
    activation = "leaky_relu:slope=0.3"
    _, out, _ = run(capsys, "propagate", "resnet", "--depth", "1", "--activation", activation,
                    "--json")  # fmt: skip
    record = json.loads(out)
    assert record["slope_mean"] == pytest.approx([(1 + 0.09) / 2], rel=1e-12)
    assert "0.3" in record["parameters"]["activation"]


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["0", "-3", "2.5", "nan", "many"])
def test_wrong_depth(capsys, depth):
    err = fails(capsys, "density", *replaced(RESNET, "--depth", depth))
    assert f"argument --depth: must be a whole number >= 1, got '{depth}'" in err


@pytest.mark.parametrize("c", ["0", "-1", "nan", "inf", "x"])
def test_wrong_cumulant(capsys, c):
    err = fails(capsys, "condition", "resnet-limit", "--c", c)
    assert f"argument --c: must be a finite number > 0, got '{c}'" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["density"], ["TARGET"]),
        ([], ["COMMAND"]),
        (["densty", *LIMIT], ["densty"]),
        (["density", "resnt"], ["resnt", "resnet"]),
        (["propagate", "fuss-catalan", "--depth", "2"], ["fuss-catalan"]),
        (["density", "resnet-limit"], ["--c"]),
        (["density", *LIMIT, "--pints", "3"], ["--pints"]),
        (["density", *LIMIT, "--points", "0"], ["--points", "whole number"]),
        (["density", *LIMIT, "--axis", "cube"], ["--axis", "cube", "linear"]),
        (["density", *LIMIT, "--from", "2", "--to", "1"], ["--from", "from 2 to 1"]),
        (["density", *LIMIT, "--to", "0.1"], ["--to"]),
        (["density", *LIMIT, "--from", "-1"], ["--from"]),
        (["density", *LIMIT, "--axis", "log", "--from", "0"], ["--from", "logarithmic"]),
        (["density", *LIMIT, "--csv", "--json"], ["--json", "--csv"]),
        (["density", *LIMIT, "--simulate", "30"], ["--simulate"]),
        (["density", *RESNET, "--simulate", "0"], ["--simulate", "whole number"]),
        (["density", *RESNET, "--seed", "-1"], ["--seed", "whole number >= 0"]),
        (["condition", *LIMIT, "--coverage", "0"], ["--coverage"]),
        (["condition", *LIMIT, "--coverage", "1.5"], ["--coverage"]),
        (["condition", "smooth-limit", "--variance", "-2"], ["--variance"]),
        (["condition", "bernoulli-limit", "--variance", "0"], ["--variance"]),
        (["condition", "fuss-catalan", "--depth", "1.5"], ["--depth"]),
        (["condition", "resnet-limit", "--c", "1", "--skip", "0.5"], ["--depth"]),
        (["condition", *RESNET, "--weights", "gausian"], ["--weights", "gausian", "gaussian"]),
        (["condition", *replaced(RESNET, "--sigma-w", "0")], ["--sigma-w", "> 0"]),
        (["condition", *RESNET, "--sigma-b", "nan"], ["--sigma-b", ">= 0"]),
        (["condition", *RESNET, "--input-second-moment", "-1"], ["--input-second-moment"]),
        (["condition", *RESNET, "--fixed-point"], ["--fixed-point"]),
        (["condition", *FORWARD, "--sigma-w", "2", "--limit"], ["--limit: needs", "chi"]),
        (["density", *FORWARD, "--weights", "gaussian", "--limit"], ["--limit: needs weights"]),
        (["condition", *FORWARD, "--widths", "1,2"], ["--widths", "depth + 1 = 5"]),
        (["condition", *FORWARD, "--widths", "1,,2"], ["--widths", "N0,N1"]),
        (["condition", *FORWARD, "--widths", "1,1,0,1,1"], ["--widths", "> 0"]),
        (["condition", *RESNET, "--widths", "1,1"], ["--widths"]),
        (["condition", *RESNET, "--branch-layers", "0"], ["--branch-layers", "whole number"]),
        (["condition", *RESNET, "--batch-norm", "1"], ["--batch-norm", "GAMMA,BETA"]),
        (["condition", *RESNET, "--batch-norm", "0,1"], ["--batch-norm", "gamma"]),
        (["condition", *RESNET, "--batch-norm", "nan,1"], ["--batch-norm", "GAMMA,BETA"]),
        (["condition", *RESNET, "--input-mean", "1.5"], ["--input-mean", "input_second_moment"]),
        (["condition", *RESNET, "--skip", "0"], ["--skip", "not 0"]),
    ],
)
def test_wrong_command_lines_name_what_is_wrong(capsys, arguments, words):
    err = fails(capsys, *arguments)
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tahn", ["tanh"]),
        ("leaky_relu:slop=0.1", ["slop", "slope"]),
        ("leaky_relu:slope", ["NAME:PARAMETER=VALUE"]),
        ("leaky_relu:slope=x", ["NAME:PARAMETER=VALUE"]),
        ("leaky_relu:slope=nan", ["slope"]),
        ("tanh:slope=0.1", ["slope"]),
        ("", []),
    ],
)
def test_wrong_activations_get_a_suggestion(capsys, name, words):
    err = fails(capsys, "propagate", *replaced(RESNET, "--activation", name))
    assert "argument --activation: " in err
    for word in words:
        assert word in err


@pytest.mark.parametrize("option", ["--csv", "--json", "--plot"])
def test_output_that_cannot_be_written(capsys, tmp_path, option):
    missing = str(tmp_path / "no" / "file.png")
    err = fails(capsys, "density", *LIMIT, option, missing)
    assert f"argument {option}: cannot write '{missing}': no such directory" in err
    err = fails(capsys, "density", *LIMIT, option, str(tmp_path))
    assert f"argument {option}: cannot write" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_full_disk_is_one_line(capsys):
    for option in ("--csv", "--json"):
        assert f"argument {option}: cannot write" in fails(
            capsys, "density", *LIMIT, option, "/dev/full"
        )


def test_unknown_picture_format(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    err = fails(capsys, "density", *LIMIT, "--plot", str(tmp_path / "a.xyz"))
    assert "argument --plot: " in err and "xyz" in err


def test_plot_without_matplotlib_names_the_extra(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    err = fails(capsys, "density", *LIMIT, "--plot", str(tmp_path / "a.png"))
    assert "argument --plot: needs matplotlib: pip install 'fastspec[plot]'" in err


def test_computation_that_fails_has_exit_code_1(capsys):
    code, out, err = run(
        capsys, "density", "resnet", "--depth", "400", "--activation", "linear", "--sigma-w",
        "1e3", "--no-depth-scaling", "--limit", "--from", "1", "--to", "2", "--simulate", "5",
    )  # fmt: skip
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("fastspec: error: ")


def test_warnings_of_the_library_are_one_line_once(capsys):
    code, out, err = run(capsys, "condition", "resnet-limit", "--c", "1000")
    assert code == 0
    lines = err.splitlines()  # lambda leaves the doubles, and so does its square root's ratio
    assert len(lines) == 2 and all(line.startswith("fastspec: warning: ") for line in lines)
    assert "log_eigenvalues" in lines[0] and "overflow" in lines[1]
    code, out, err = run(capsys, "density", "resnet-limit", "--c", "1000")
    assert (code, out) == (1, "")
    assert "beyond the largest double" in err.splitlines()[-1]


# --- the program --------------------------------------------------------------------------------


def test_help_is_short_and_has_an_example(capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert "fastspec density resnet" in out
    assert len(out.splitlines()) <= 28


@pytest.mark.parametrize("command", ["density", "condition", "propagate"])
def test_every_target_has_help(capsys, command):
    code, out, _ = run(capsys, command, "resnet", "--help")
    assert code == 0
    assert "--activation" in out


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"fastspec {fs.__version__}\n")


def program(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "fastspec.cli", *arguments],
        capture_output=True, text=True, timeout=60, **more,
    )  # fmt: skip


def test_as_a_program():
    good = program("condition", *LIMIT)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("condition number")
    bad = program("condition", "resnet-limit", "--c", "-1")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.count("\n") == 1


def test_closed_pipe_is_quiet():
    command = f"'{sys.executable}' -m fastspec.cli density {' '.join(LIMIT)} --points 20000 --csv"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 141
