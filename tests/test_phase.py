"""Phase diagrams: against the scalar functions, iteration, and closed cases; their pictures."""

import json
import math

import numpy as np
import pytest

from fastspec import _pair_table, _phase
from fastspec.activations import activation
from fastspec.signal import (
    PHASES,
    correlation_map,
    critical_point,
    depth_scales,
    fixed_points,
    phase_diagram,
    variance_map,
)


@pytest.fixture(scope="module")
def tanh_diagram():
    return phase_diagram("tanh", np.linspace(0.0, 4.0, 41), np.linspace(0.0, 3.0, 25))


@pytest.fixture(scope="module")
def gelu_diagram():
    return phase_diagram("gelu", np.linspace(0.5, 2.5, 21), np.linspace(0.0, 1.0, 11))


def test_shapes_and_phases(tanh_diagram):
    d = tanh_diagram
    for name in ("q", "fixed_point_count", "chi", "slope", "c", "xi_q", "xi_c", "xi_grad", "phase",
                 "phase_names"):
        assert getattr(d, name).shape == (41, 25)
    assert np.all((d.chi > 1.0 + 1e-12) == (d.phase_names == "chaotic"))
    assert set(d.phase_names.ravel()) <= set(PHASES)
    # sigma_b = 0: below sigma_w = 1 the signal dies, at 1 it is critical.
    first = d.q[:, 0]
    assert np.all(first[d.sigma_w <= 1.0] == 0.0) and np.all(first[d.sigma_w > 1.0] > 0.0)
    assert d.phase_names[10, 0] == "critical" and d.chi[10, 0] == pytest.approx(1.0, rel=1e-15)
    assert d.xi_q[10, 0] == d.xi_grad[10, 0] == math.inf
    assert np.all(np.isnan(d.c) == (d.q == 0.0))
    assert d.fixed_point_count[5, 0] == 1 and d.fixed_point_count[20, 0] == 2
    # Every row passes from order to chaos at the critical point of its biases.
    for j in range(1, 25, 6):
        edge = critical_point("tanh", sigma_b=float(d.sigma_b[j])).sigma_w
        assert np.all((d.sigma_w > edge) == (d.phase_names[:, j] == "chaotic"))


@pytest.mark.parametrize("name", ["tanh", "hard_tanh", "softsign", "elu", "sin"])
def test_cells_agree_with_the_scalar_functions(name):
    d = phase_diagram(name, np.linspace(0.1, 2.9, 15), np.linspace(0.05, 1.4, 9))
    for i, j in ((0, 3), (4, 1), (8, 0), (9, 4), (12, 2), (14, 0), (14, 8)):
        sigmas = float(d.sigma_w[i]), float(d.sigma_b[j])
        points = fixed_points(name, *sigmas)
        assert d.fixed_point_count[i, j] == len(points)
        if math.isinf(d.q[i, j]):
            assert all(point.q < 1.0 for point in points)
            assert math.isnan(d.chi[i, j]) and d.phase_names[i, j] == "divergent"
            continue
        scales = depth_scales(name, *sigmas)
        assert d.q[i, j] == pytest.approx(scales.q, rel=1e-13)
        assert d.chi[i, j] == pytest.approx(scales.chi, rel=1e-13)
        assert d.slope[i, j] == pytest.approx(scales.slope, rel=1e-12)
        assert d.c[i, j] == pytest.approx(scales.c, abs=1e-10 / abs(1.0 - scales.chi))
        assert d.xi_q[i, j] == pytest.approx(scales.xi_q, rel=1e-11)
        assert d.xi_c[i, j] == pytest.approx(scales.xi_c, rel=1e-8)
        assert d.xi_grad[i, j] == pytest.approx(scales.xi_grad, rel=1e-11)


@pytest.mark.parametrize("name", ["tanh", "hard_tanh", "softsign", "elu", "sin"])
def test_the_table_of_pairs_agrees_with_single_solutions(name, monkeypatch):
    low, high = (1.05, 1.25) if name == "elu" else (1.1, 3.0)
    sigma_w, sigma_b = np.linspace(low, high, 20), np.linspace(0.05, 0.9, 16)
    table, used = _phase.tabulated_distances, []

    def watched(*args):
        used.append(table(*args))
        return used[-1]

    monkeypatch.setattr(_pair_table, "_PAIRS_PER_CELL", 100.0)
    monkeypatch.setattr(_phase, "tabulated_distances", watched)
    quick = phase_diagram(name, sigma_w, sigma_b)
    assert used[0] is not None and np.count_nonzero(quick.phase == 1) > 20
    monkeypatch.setattr(_phase, "tabulated_distances", lambda *a: None)
    i, j = np.arange(0, 20, 3), np.arange(0, 16, 5)
    slow = phase_diagram(name, sigma_w[i], sigma_b[j])
    assert np.nanmax(np.abs(quick.c[np.ix_(i, j)] - slow.c)) < 1e-9
    assert np.exp(-1.0 / quick.xi_c[np.ix_(i, j)]) == pytest.approx(
        np.exp(-1.0 / slow.xi_c), abs=1e-9, nan_ok=True)


def test_series_that_do_not_settle_are_not_used():
    # Of h^alpha, alpha < 1, gap/d has a term d^(alpha - 1/2), which is no series in sqrt(d).
    phi = activation("alpha_relu", alpha=0.7)
    q = np.geomspace(0.5, 2.0, 400)
    second = np.array([variance_map(phi, x, 1.0) for x in q])
    weight = 0.9 * q / second
    assert _pair_table.tabulated_distances(phi, q, weight, q - weight * second, False) is None
    few = phase_diagram(phi, [1.0, 1.2], [0.1, 0.2])
    assert np.all((few.c > 0.9) & ((few.c < 1.0) == (few.chi > 1.0)))
    assert few.phase_names[1, 0] == "chaotic"


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_cells_are_where_iteration_goes(name, tanh_diagram, gelu_diagram):
    d = {"tanh": tanh_diagram, "gelu": gelu_diagram}[name]
    cells = np.arange(d.q.size)[::7]
    i, j = np.unravel_index(cells, d.q.shape)
    w, b, expected = d.sigma_w[i], d.sigma_b[j], d.q[i, j]
    q = np.ones(cells.size)
    for _ in range(500):
        q = np.minimum(variance_map(name, q, w, b), 1e6)
    settled = np.isfinite(expected) & (np.abs(d.slope[i, j] - 1.0) > 0.05)
    assert q[settled] == pytest.approx(expected[settled], rel=1e-9, abs=1e-10)
    assert np.all(q[np.isinf(expected)] > 20.0)
    alive = settled & (expected > 0.0) & (np.abs(d.chi[i, j] - 1.0) > 0.15)
    w, b, q, c = w[alive][::5], b[alive][::5], expected[alive][::5], 0.5
    for _ in range(250):
        c = correlation_map(name, q, w, b, c)
    assert d.c[i, j][alive][::5] == pytest.approx(c, abs=1e-9)


def test_the_start_decides_between_fixed_points():
    sigma_w, sigma_b = math.sqrt(2.0 * (1.0 - 1e-4)), 0.3
    points = [point.q for point in fixed_points("gelu", sigma_w, sigma_b)]
    for start, q in ((0.01, points[0]), (10.0, points[0]), (20.0, points[2]), (1e5, points[2])):
        d = phase_diagram("gelu", [sigma_w], [sigma_b], start=start)
        assert d.q[0, 0] == pytest.approx(q, rel=1e-13) and d.fixed_point_count[0, 0] == 3


def test_relu():
    d = phase_diagram("relu", [0.0, 1.0, math.sqrt(2.0), 2.0], [0.0, 0.5], start=3.0)
    assert d.q[:, 1].tolist() == [0.25, 0.5, math.inf, math.inf]
    assert d.q[:, 0].tolist() == [0.0, 0.0, 3.0, math.inf]      # at sqrt(2) every q is fixed
    assert d.fixed_point_count.tolist() == [[1, 1], [1, 1], [-1, 0], [1, 0]]
    assert d.phase_names.tolist() == [["ordered", "ordered"], ["ordered", "ordered"],
                                      ["critical", "divergent"], ["divergent", "divergent"]]
    assert d.xi_c[2, 0] == d.xi_grad[2, 0] == math.inf and d.c[1, 1] == 1.0
    assert d.xi_c[1, 1] == pytest.approx(1.0 / math.log(2.0), rel=1e-14)
    assert np.isnan(d.chi[3]).all() and d.xi_c[0, 1] == 0.0


def test_users_functions():
    user = activation(np.tanh, derivative=lambda h: 1.0 - np.tanh(h) ** 2)
    mine = phase_diagram(user, [0.8, 1.5, 2.5], [0.0, 0.4])
    theirs = phase_diagram("tanh", [0.8, 1.5, 2.5], [0.0, 0.4])
    for name in ("q", "chi", "slope", "c", "xi_c"):
        assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-10, abs=1e-12,
                                                    nan_ok=True)
    assert np.array_equal(mine.phase, theirs.phase)


def test_to_dict_is_json(tanh_diagram):
    given = tanh_diagram.to_dict()
    again = json.loads(json.dumps(given))
    assert again["phase"][40][0] == "chaotic" and again["start"] == 1.0
    assert len(again["xi_c"]) == 41 and again["sigma_w"][-1] == 4.0
    assert "chaotic" in repr(tanh_diagram) and "41 x 25" in repr(tanh_diagram)


def test_progress_bars_go_to_stderr(capsys):
    phase_diagram("tanh", np.linspace(1.5, 3.0, 16), np.linspace(0.1, 0.9, 16), progress=True)
    captured = capsys.readouterr()
    assert captured.out == "" and "fixed points" in captured.err and "correlations" in captured.err


@pytest.fixture
def axes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt.subplots()[1]
    plt.close("all")


@pytest.mark.parametrize("quantity", ["xi_c", "xi_q", "xi_grad", "chi", "slope", "q", "c",
                                      "fixed_point_count"])
@pytest.mark.parametrize("which", ["tanh", "gelu", "relu"])
def test_pictures(axes, quantity, which, tanh_diagram, gelu_diagram):
    relu = phase_diagram("relu", np.linspace(0.0, 2.0, 9), np.linspace(0.0, 1.0, 5))
    d = {"tanh": tanh_diagram, "gelu": gelu_diagram, "relu": relu}[which]
    assert d.plot(axes, quantity) is axes
    axes.figure.canvas.draw()
    assert axes.get_xlabel() == r"weight standard deviation $\sigma_w$"
    assert axes.get_ylabel() == r"bias standard deviation $\sigma_b$"
    bar = axes.figure.axes[1].get_ylabel()
    assert ("(layers)" in bar) == quantity.startswith("xi")
    names = " ".join(axes.get_legend_handles_labels()[1])
    assert ("unstable" in names) == (which == "gelu")
    assert ("critical point" in names) == (which == "relu")
    assert ("without bound" in names) == (which != "tanh" and quantity != "fixed_point_count")
    assert axes.get_xlim() == (d.sigma_w[0], d.sigma_w[-1])


def test_the_drawn_line_is_the_critical_line(axes, tanh_diagram):
    tanh_diagram.plot(axes)
    (line,) = (line for line in axes.lines if "critical" in line.get_label())
    x, y = line.get_data()
    at = critical_point("tanh", q=1.0)
    assert np.interp(at.sigma_b, y, x) == pytest.approx(at.sigma_w, rel=1e-3)


def test_pictures_of_nothing_and_bad_quantities(axes, tanh_diagram):
    everywhere = phase_diagram("relu", [2.0, 3.0], [0.1, 0.2])
    everywhere.plot(axes, "chi")
    axes.figure.canvas.draw()
    assert len(axes.figure.axes) == 1
    infinite = phase_diagram(activation("alpha_relu", alpha=0.5), [0.5, 1.0], [0.1, 0.2])
    assert np.all(infinite.chi == math.inf) and np.all(infinite.xi_grad == 0.0)
    infinite.plot(axes, "chi")
    with pytest.raises(ValueError, match="quantity must be one of .*did you mean 'xi_c'"):
        tanh_diagram.plot(axes, "xi_cc")
    with pytest.raises(ValueError, match="sigma_b must be two or more ascending"):
        phase_diagram("relu", [1.0, 1.2], [0.1]).plot(axes)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: phase_diagram("tanh", [-1.0], [0.1]), "sigma_w must be >= 0, got -1"),
    (lambda: phase_diagram("tanh", [1.0], 0.1), "sigma_b must be a sequence"),
    (lambda: phase_diagram("tanh", [], [0.1]), "sigma_w must be a sequence"),
    (lambda: phase_diagram("tanh", [1e80], [0.1]), "sigma_w must be at most"),
    (lambda: phase_diagram("tanh", [1.0], [math.nan]), "sigma_b must be finite"),
    (lambda: phase_diagram("tanh", [1.0], [0.1], start=0.0), "start must be .* > 0"),
    (lambda: phase_diagram("tahn", [1.0], [0.1]), "did you mean 'tanh'"),
])
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
