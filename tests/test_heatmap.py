"""Heat maps against single runs, and the sigma_w that meets a target."""

import math

import numpy as np
import pytest

import fastspec as fs
from fastspec.meanfield import (
    HeatMap,
    ResidualMeanField,
    heatmap,
    largest_sigma_for_limit,
    sigma_for_log_chi_ratio,
)

SIGMA = np.array([0.3, 1.0, 2.5])
DEPTHS = np.array([1, 2, 7, 30])
CASES = [("tanh", "reduced", {}), ("tanh", "full", {"sigma_v": 0.7, "sigma_a": 0.3}),
         ("relu", "reduced", {}), ("relu", "full", {}), ("erf", "vanilla", {})]


@pytest.mark.parametrize(("activation", "block", "extra"), CASES, ids=str)
def test_cells_are_single_runs(activation, block, extra):
    chart = heatmap(activation, block, DEPTHS, sigma_w=SIGMA, sigma_b=0.4, p0=1.3, gamma0=0.5,
                    **extra)
    assert chart.axis == "sigma_w" and chart.log_p.shape == (3, 4)
    for i, sigma_w in enumerate(SIGMA):
        for j, depth in enumerate(DEPTHS):
            net = ResidualMeanField(activation, block, sigma_w=sigma_w, sigma_b=0.4, **extra)
            for name, value in figures(net.run(int(depth), p0=1.3, gamma0=0.5)).items():
                assert getattr(chart, name)[i, j] == pytest.approx(value, rel=1e-12, abs=1e-12)


def figures(run):
    """The figures of a heat map from the arrays of a run, in plain numbers."""
    gradients = np.concatenate([run.chi, *(
        column[1:] for column in (run.chi_w, run.chi_b, run.chi_v, run.chi_a)
        if not math.isnan(column[-1]))])
    activations = max(run.p.max(), run.q[1:].max())
    return {
        "log_chi_ratio": math.log(run.chi[0]), "log_p": math.log(run.p[-1]), "s": run.s[-1],
        "log_s": math.log(run.s[-1]), "e": run.e[-1],
        "log_chi_w_spread": math.log(run.chi_w[1:].max() / run.chi_w[1:].min()),
        "log_chi_b_spread": math.log(run.chi_b[1:].max() / run.chi_b[1:].min()),
        "log_activation": 0.5 * math.log(activations),
        "log_gradient": 0.5 * math.log(gradients.max()),
        "log_smallest_gradient": 0.5 * math.log(gradients.min()),
    }


def test_sigma_v_as_the_axis():
    chart = heatmap("tanh", "full", [3, 9], sigma_w=1.1, sigma_v=SIGMA, sigma_a=0.2)
    run = ResidualMeanField("tanh", "full", sigma_w=1.1, sigma_v=2.5, sigma_a=0.2).run(9)
    assert chart.axis == "sigma_v"
    assert chart.log_chi_ratio[2, 1] == pytest.approx(run.log_chi_ratio, rel=1e-13)


@pytest.mark.parametrize(("number", "largest", "smallest"), [
    ("fp16", np.finfo(np.float16).max, np.finfo(np.float16).smallest_subnormal),
    ("bf16", 2.0**127 * (2 - 2.0**-7), 2.0**-133),
    ("fp32", np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal)])
def test_flags(number, largest, smallest):
    # ReLU without biases: p_L = chi_0/chi_L = (1 + sigma_w^2 / 2)^L.
    depth = 100
    sigma = math.sqrt(2.0 * (float(largest) ** (2.0 / depth) - 1.0))
    chart = heatmap("relu", "full", [depth - 1, depth], sigma_w=[sigma * 0.999, sigma * 1.001])
    if sigma < 1.2:         # q < p
        assert chart.activation_overflow(number).tolist() == [[False, False], [False, True]]
    assert chart.gradient_overflow(number).tolist() == [[False, False], [False, True]]
    assert not np.any(chart.gradient_underflow(number))
    either = chart.activation_overflow(number) | chart.gradient_overflow(number)
    assert np.array_equal(chart.log_overflow(number) > 0.0, either)
    # Vanilla linear layers: RMS gradient = sigma_w^L.
    root = float(smallest) ** (1.0 / 50)
    chart = heatmap("linear", "vanilla", [50], sigma_w=[root * 0.999, root * 1.001])
    assert chart.gradient_underflow(number).tolist() == [[True], [False]]


def test_softmax_flag():
    sigma = math.sqrt(2.0 * (88.7228 ** (2.0 / 100) - 1.0))
    chart = heatmap("relu", "full", [100], sigma_w=[sigma * 0.9999, sigma * 1.0001])
    assert chart.softmax_overflow.tolist() == [[False], [True]]


def test_cells_beyond_all_doubles():
    alpha = fs.activation("alpha_relu", alpha=3.0)
    chart = heatmap(alpha, "full", [2, 900], sigma_w=[0.5, 2.0], gamma0=0.3)
    assert chart.log_p[:, 1].tolist() == [math.inf, math.inf]
    assert np.all(np.isfinite(chart.log_p[:, 0])) and np.all(np.isnan(chart.e[:, 1]))
    for number in ("fp16", "bf16", "fp32"):
        assert chart.activation_overflow(number)[:, 1].tolist() == [True, True]
        assert chart.gradient_overflow(number)[:, 1].tolist() == [True, True]
    assert chart.softmax_overflow[:, 1].tolist() == [True, True]
    chart.plot()


# sigma_w at which ln(chi_0/chi_L) = 2, 5, 10; reduced tanh, sigma_b = .5, p0 = 1; another code.
CONTOURS = {20: (.4942, 1.2963, 3.1767), 50: (.2890, .6763, 1.5347),
            100: (.1989, .4406, .9626), 200: (.1388, .2975, .6294)}


@pytest.mark.parametrize("depth", CONTOURS)
def test_contours_of_gradient_explosion(depth):
    for target, known in zip((2.0, 5.0, 10.0), CONTOURS[depth], strict=True):
        sigma_w = sigma_for_log_chi_ratio("tanh", "reduced", depth, target, sigma_b=0.5)
        assert sigma_w == pytest.approx(known, abs=5.1e-5)
        run = ResidualMeanField("tanh", sigma_w=sigma_w, sigma_b=0.5).run(depth)
        assert run.log_chi_ratio == pytest.approx(target, rel=1e-11)


def test_target_of_vanilla_networks():
    # linear: ln(chi_0/chi_L) = 2 L ln sigma_w.
    assert sigma_for_log_chi_ratio("linear", "vanilla", 40, -3.0) == pytest.approx(
        math.exp(-3.0 / 80), rel=1e-11)


@pytest.mark.parametrize(("depth", "limit", "known"), [
    (10, 88.0, 1.702), (10, 65504.0, 4.047), (50, 88.0, .626), (50, 65504.0, 1.057),
    (50, 3.4e38, 8.22), (100, 88.0, .433), (100, 65504.0, .705), (100, 3.4e38, 3.13),
    (200, 88.0, .303), (200, 65504.0, .484), (200, 3.4e38, 1.69)])
def test_largest_sigma_of_relu(depth, limit, known):
    got = largest_sigma_for_limit("relu", "full", depth, limit)
    assert got == pytest.approx(known, rel=1.5e-3)
    assert got == pytest.approx(math.sqrt(2 * (limit ** (2 / depth) - 1)), rel=1e-11)


def test_largest_sigma_obeys_all_limits():
    # Reduced ReLU: p outgrows chi; with little p0 and deep vanilla layers gradients decide.
    for activation, block, extra in [("relu", "reduced", {"sigma_b": 0.3}),
                                     ("tanh", "reduced", {}), ("gelu", "vanilla", {"p0": 1e-3})]:
        sigma_w = largest_sigma_for_limit(activation, block, 15, 1000.0, **extra)
        p0 = extra.pop("p0", 1.0)
        run = ResidualMeanField(activation, block, sigma_w=sigma_w, **extra).run(15, p0=p0)
        largest = max(run.p.max(), run.chi.max(), run.chi_w[1:].max(), run.chi_b[1:].max())
        assert math.sqrt(largest) == pytest.approx(1000.0, rel=1e-10)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 10, -1.0),
     r"target = -1 is out of reach.*nearest ln\(chi_0/chi_L\) is 1e-11"),
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 10, 1e9), "target = 1e\\+09 is out of"),
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 0, 1.0), "depth must be"),
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 5, math.nan), "target must be"),
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 5, 1.0, sigma_v=2.0), "block='full'"),
    (lambda: sigma_for_log_chi_ratio("tanh", "reduced", 5, 1.0, sigma_b=-1.0), "sigma_b must"),
    (lambda: largest_sigma_for_limit("relu", "full", 10, 88.0, sigma_a=100.0),
     r"limit = 88 is always exceeded.*nearest RMS is exp\(5\.75"),
    (lambda: largest_sigma_for_limit("tanh", "vanilla", 1, 1e9), "is never exceeded"),
    (lambda: largest_sigma_for_limit("relu", "full", 10, 1.0), "limit must be .* > 1"),
    (lambda: largest_sigma_for_limit("relu", "full", 10, 2.0, p0=9.0), "limit must be .* > 3"),
    (lambda: heatmap("tanh", "reduced", [3], sigma_w=1.0), "one of sigma_w and sigma_v must be"),
    (lambda: heatmap("tanh", "full", [3], sigma_w=[1.0], sigma_v=[1.0]), "one of sigma_w and"),
    (lambda: heatmap("tanh", "reduced", [3], sigma_w=[1.0, 0.5]), "sigma_w must be positive and"),
    (lambda: heatmap("tanh", "reduced", [3], sigma_w=[0.0, 0.5]), "sigma_w must be positive and"),
    (lambda: heatmap("tanh", "reduced", [0, 3], sigma_w=[0.5]), "depths must be whole numbers"),
    (lambda: heatmap("tanh", "reduced", [3.5], sigma_w=[0.5]), "depths must be whole numbers"),
    (lambda: heatmap("tanh", "reduced", [3, 2], sigma_w=[0.5]), "depths must be whole numbers"),
    (lambda: heatmap("tanh", "reduced", [3], sigma_w=[0.5], gamma0=2.0), "gamma0 must lie"),
    (lambda: heatmap("tanh", "reduced", [3], sigma_w=[0.5], sigma_a=1.0), "block='full' only"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture(scope="module")
def chart() -> HeatMap:
    return heatmap("relu", "full", np.arange(1, 31), sigma_w=np.linspace(0.1, 3.0, 12))


def test_dictionary_and_text(chart):
    out = chart.to_dict()
    assert out["log_p"] == chart.log_p.tolist() and out["axis"] == "sigma_w"
    assert out["fp16_gradient_overflow"] == chart.gradient_overflow("fp16").tolist()
    assert out["sigma"] == chart.sigma.tolist() and out["depth"] == list(range(1, 31))
    assert repr(chart) == ("HeatMap(activation('relu'), full blocks: 12 values of sigma_w "
                           "0.1 .. 3, 30 depths 1 .. 30)")
    with pytest.raises(ValueError, match="did you mean 'fp16'"):
        chart.activation_overflow("fp15")


def test_pictures(chart):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for quantity in chart.quantities():
        ax = chart.plot(quantity=quantity)
        assert ax.get_xlabel() == "depth $L$" and ax.get_ylabel() == r"$\sigma_w$"
        mesh = ax.collections[0]
        assert np.allclose(mesh.get_array(), getattr(chart, quantity))
        entries = [text.get_text() for text in ax.get_legend().get_texts()]
        assert entries == [r"$\ln\,\chi_0/\chi_L$", "overflow in fp16"]
        plt.close(ax.figure)
    ax = chart.plot(plt.figure().add_subplot(), overflow="fp32")
    assert len(ax.get_legend().get_texts()) == 1        # nothing overflows there
    # The contour lines lie where the ratio has their values: (1 + sigma_w^2/2)^L.
    lines = ax.collections[1]
    for level, path in zip(lines.levels, lines.get_paths(), strict=True):
        depth, sigma = path.vertices[::7].T
        inside = (depth > 4) & (sigma > 0.5)
        assert depth[inside] * np.log1p(sigma[inside] ** 2 / 2) == pytest.approx(
            np.full(inside.sum(), level), rel=0.05)
    plt.close("all")
    with pytest.raises(ValueError, match="did you mean 'log_p'"):
        chart.plot(quantity="logp")
    with pytest.raises(ValueError, match="two sigmas and two depths"):
        heatmap("tanh", "reduced", [3], sigma_w=[0.5, 1.0]).plot()


def test_progress_needs_tqdm_or_shows_a_bar(capsys):
    pytest.importorskip("tqdm")
    heatmap("tanh", "reduced", [3], sigma_w=[0.5], progress=True)
    assert "layers" in capsys.readouterr().err
