"""The examples of the scaling calculus in a tiny setting, and the networks they train."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from example_results import check_notes, check_picture, numbers, read

torch = pytest.importorskip("torch", reason="the examples need PyTorch")
pytest.importorskip("sklearn", reason="the examples need scikit-learn")
pytest.importorskip("matplotlib", reason="the examples draw")
pytest.importorskip("tqdm", reason="the examples show their progress")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
if not EXAMPLES.is_dir():
    pytest.skip("no examples beside the tests", allow_module_level=True)
sys.path.insert(0, str(EXAMPLES))
initialisations = importlib.import_module("scaling_initialisations")
alexnet = importlib.import_module("scaling_alexnet")
sys.path.remove(str(EXAMPLES))

SCHEMES = initialisations.SCHEMES


# --- initialisations ------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def initialisations_run(tmp_path_factory):
    """Where one run on the two small data sets put its results."""
    out = tmp_path_factory.mktemp("scaling_initialisations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initialisations, "DATA_SETS", ("wine", "iris"))
        options = ["--seeds", "2", "--epochs", "1", "--out", str(out)]
        assert initialisations.main(options) == 0
    return out


def test_results_of_initialisations(initialisations_run):
    notes, rows = read(initialisations_run / "scaling_initialisations.csv")
    check_notes(notes, initialisations_run)
    assert len(rows) == 2 * (2 + 1) * 4
    single = [row for row in rows if row["data"] != "all"]
    for output, data in {(row["output"], row["data"]) for row in single}:
        group = [row for row in single if (row["output"], row["data"]) == (output, data)]
        losses = numbers(group, "median_loss")
        np.testing.assert_allclose(numbers(group, "normalised"), losses / losses.max(), rtol=2e-3)
        assert group[int(losses.argmin())]["best"] == "1"
        assert group[int(losses.argmax())]["worst"] == "1"
    for row in rows[8:12]:
        ours = [r for r in rows[:8] if r["init"] == row["init"]]
        assert float(row["normalised"]) == pytest.approx(numbers(ours, "normalised").mean(),
                                                         rel=2e-3)
        assert int(row["best"]) == numbers(ours, "best").sum()
    check_picture(initialisations_run / "scaling_initialisations.png")


def test_chosen_rates_have_the_lowest_median(initialisations_run):
    tried = read(initialisations_run / "scaling_initialisations_rates.csv")[1]
    chosen = read(initialisations_run / "scaling_initialisations.csv")[1]
    assert len(tried) == 2 * 2 * 4 * 14
    np.testing.assert_allclose(numbers(tried[:14], "learning_rate"), 2.0**np.arange(1.0, -13.0, -1),
                               rtol=1e-3)
    for row in chosen:
        if row["data"] == "all":
            continue
        same = [r for r in tried if all(r[k] == row[k] for k in ("output", "data", "init"))]
        assert float(row["median_loss"]) == numbers(same, "median_loss").min()


def test_gammas_of_initialisations(initialisations_run):
    """gamma is constant for geometric weights, and 1/(n n' E[W^2]^2) over the last layer's."""
    rows = read(initialisations_run / "scaling_initialisations_gamma.csv")[1]
    assert len(rows) == 2 * 4 * 3
    for data, n in (("wine", 13), ("iris", 4)):
        found = {scheme: numbers([r for r in rows if (r["data"], r["init"]) == (data, scheme)],
                                 "to_last") for scheme in SCHEMES}
        np.testing.assert_allclose(found["geometric"], 1.0, rtol=1e-3)
        widths = np.array([n, 384, 64, 3])
        ratio = widths[:-1] / widths[1:]
        np.testing.assert_allclose(found["fan_in"], ratio / ratio[-1], rtol=1e-3)
        np.testing.assert_allclose(found["fan_out"], ratio[-1] / ratio, rtol=1e-3)


@pytest.mark.parametrize("name", initialisations.DATA_SETS)
def test_inputs_have_mean_0_and_variance_1(name):
    x = initialisations.load(name).x.double().numpy()
    np.testing.assert_allclose(x.mean(0), 0.0, atol=1e-6)
    varies = x.std(0) > 0.0
    np.testing.assert_allclose(x.std(0)[varies], 1.0, rtol=1e-5)
    assert varies.all() or (name == "digits" and varies.sum() == 61)


def plain_sgd(data, seed, scheme, rate, epochs):
    """Loss after training of one network made of PyTorch's own layers, by PyTorch's own SGD."""
    rng = torch.Generator().manual_seed(seed)
    widths = data.widths()
    layers = [torch.nn.Linear(n, m) for n, m in zip(widths[:-1], widths[1:], strict=True)]
    variance = {"geometric": lambda n, m: 2.0 / (n * m) ** 0.5, "fan_in": lambda n, m: 2.0 / n,
                "fan_out": lambda n, m: 2.0 / m, "arithmetic": lambda n, m: 4.0 / (n + m)}[scheme]
    with torch.no_grad():
        for layer, n, m in zip(layers, widths[:-1], widths[1:], strict=True):
            layer.weight.copy_(torch.randn(n, m, generator=rng).T * variance(n, m) ** 0.5)
            layer.bias.zero_()
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    optimiser = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(data.y), generator=rng).split(16):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(data.x[batch]), data.y[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(net(data.x), data.y))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_networks_train_as_single_ones_under_pytorchs_sgd(scheme):
    data, output = initialisations.load("wine"), initialisations.OUTPUTS[0]
    losses = initialisations.train(data, scheme, output, seeds=2, epochs=2, batch=16)
    assert losses.shape == (14, 2)
    for k in (6, 10):
        expected = [plain_sgd(data, s, scheme, output.rates()[k], 2) for s in range(2)]
        np.testing.assert_allclose(losses[k], expected, rtol=1e-3)


def test_scaled_outputs_have_the_wanted_standard_deviation():
    data = initialisations.load("iris")
    rngs = [torch.Generator().manual_seed(seed) for seed in range(2)]
    networks = initialisations.Networks(data.widths(), "fan_out", rngs, 3)
    x = data.x.expand(6, -1, -1)
    networks.scale_outputs(x, 0.05)
    with torch.no_grad():
        outputs = networks(x)
    np.testing.assert_allclose(outputs.flatten(1).std(1), 0.05, rtol=1e-4)
    torch.testing.assert_close(outputs[:2], outputs[2:4])     # copies of the same two


def test_losses_that_are_not_finite_count_as_the_worst():
    data, output = initialisations.load("iris"), initialisations.Output("wild", None, 40)
    losses = initialisations.train(data, "geometric", output, seeds=2, epochs=1, batch=16)
    assert np.isinf(losses[0]).all() and not np.isnan(losses).any()
    table = np.array([[np.inf, np.inf, np.inf], [1.0, np.inf, 2.0], [2.5, 2.5, 2.5]])
    assert initialisations.best_rate(table) == 1
    assert initialisations.quartiles(table[1]) == [2.0, 1.0, np.inf]
    assert initialisations.quartiles(table[0]) == [np.inf] * 3


def test_comparison_within_a_data_set():
    normalised, best, worst = initialisations.compare(np.array([[1.0, 2.0, 4.0], [3.0, 6.0, 1.5]]))
    np.testing.assert_allclose(normalised, [[0.25, 0.5, 1.0], [0.5, 1.0, 0.25]], rtol=1e-15)
    assert best.tolist() == [[1, 0, 0], [0, 0, 1]] and worst.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_entropy_is_the_loss_of_the_best_constant():
    data = initialisations.load("iris")
    assert data.entropy() == pytest.approx(np.log(3.0), rel=1e-12)
    shares = torch.bincount(initialisations.load("wine").y) / 178
    constant = torch.log(shares).expand(178, 3)
    expected = torch.nn.functional.cross_entropy(constant, initialisations.load("wine").y)
    assert initialisations.load("wine").entropy() == pytest.approx(float(expected), rel=1e-6)


# --- AlexNet --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def alexnet_run(tmp_path_factory):
    """Where one run with small layers put its results."""
    out = tmp_path_factory.mktemp("scaling_alexnet")
    assert alexnet.main(["--seeds", "2", "--shrink", "16", "--out", str(out)]) == 0
    return out


def test_results_of_alexnet(alexnet_run):
    notes, rows = read(alexnet_run / "scaling_alexnet.csv")
    check_notes(notes, alexnet_run)
    assert [(row["pooling"], row["init"]) for row in rows] == [
        (pooling, init) for pooling in alexnet.POOLINGS
        for init in (*alexnet.SCHEMES, "preconditioned")]
    layers = [op for op in alexnet.network("stride", 16) if op.has_weights]
    n, m = (np.array([getattr(op, key) for op in layers]) for key in ("n_in", "n_out"))
    places = np.array([121, 25, 9, 9, 9, 1, 1, 1])
    # Striding keeps varsigma, so gamma is 1/(n n' k^2 E[W^2]^2) there.
    for init, gamma in (("geometric", np.ones(8)), ("preconditioned", np.ones(8)),
                        ("fan_in", n / m * places), ("fan_out", m / n * places),
                        ("arithmetic", (n + m)**2 * places / (n * m))):
        row, = (row for row in rows if (row["pooling"], row["init"]) == ("stride", init))
        found = [float(row[op.name]) for op in layers]
        np.testing.assert_allclose(found, gamma / np.median(gamma), rtol=1e-3)
        assert float(row["spread"]) == pytest.approx(gamma.max() / gamma.min(), rel=1e-3)
    pooled = {row["init"]: float(row["spread"]) for row in rows if row["pooling"] == "max-pool"}
    assert pooled["preconditioned"] == pytest.approx(1.0, rel=1e-3) and pooled["geometric"] > 2.0
    for row in rows:
        if row["init"] == "preconditioned":
            assert float(row["output_moment"]) == pytest.approx(0.05**2, rel=1e-3)
    changes = read(alexnet_run / "scaling_alexnet_changes.csv")[1]
    assert {row["kind"] for row in changes if row["pooling"] == "max-pool"} == {
        "variance", "multiplier", "suggestion"}
    check_picture(alexnet_run / "scaling_alexnet.png")


def test_measured_networks_are_those_that_are_predicted(alexnet_run):
    """Means over eight layers, two small networks: a factor of 3 is what chance leaves them."""
    rows = read(alexnet_run / "scaling_alexnet_measured.csv")[1]
    assert len(rows) == 2 * 2 * 8
    noise = numbers([row for row in rows if row["input"] == "noise"], "nu_over_gamma")
    assert 1.0 / 3.0 < np.exp(np.log(noise).mean()) < 3.0


def test_nu_over_gamma_does_not_depend_on_the_initialisation():
    """Why only the preconditioned networks are measured."""
    ops, ratios = alexnet.network("max-pool", 16), []
    settings = alexnet.describe("max-pool", 16)
    for setting in settings:
        net = alexnet.module(setting.ops)
        report = alexnet.ft.scaling_report(
            net, alexnet.noise(), seeds=1, seed=3,
            reinit=lambda net, v=setting.variances: alexnet.draw_weights(net, v))
        ratios.append(np.array([layer.nu for layer in report.layers]) / setting.gammas())
    assert len(settings) == 5 and len(settings[-1].ops) > len(ops)
    np.testing.assert_allclose(ratios, [ratios[0]] * 5, rtol=2e-2)


def test_weights_have_the_wanted_variances():
    setting = alexnet.describe("stride", 1)[0]
    net = alexnet.module(setting.ops[:4])
    wanted = {name: v for name, v in setting.variances.items() if name in ("conv1", "conv2")}
    torch.manual_seed(0)
    alexnet.draw_weights(net, wanted)
    for name, variance in wanted.items():
        layer = net.get_submodule(name)
        assert float((layer.weight.detach()**2).mean()) == pytest.approx(variance, rel=0.05)
        assert not layer.bias.any()


@pytest.mark.parametrize("pooling", alexnet.POOLINGS)
def test_module_has_the_shapes_of_the_operations(pooling):
    ops = alexnet.network(pooling, 16)
    x = alexnet.noise()
    for op, part in zip(ops, alexnet.module(ops), strict=True):
        expected = op.output_shape(tuple(x.shape[1:]))
        x = part(x)
        assert tuple(x.shape[1:]) == expected


def test_photos_are_standardised_and_correlated():
    x = alexnet.photos()
    assert x.shape == (alexnet.BATCH, 3, 32, 32)
    assert float(x.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float((x**2).mean()) == pytest.approx(1.0, rel=1e-5)
    assert float((x[..., 1:] * x[..., :-1]).mean()) > 0.5


@pytest.mark.parametrize("script", [initialisations, alexnet])
def test_wrong_options_are_named(script, capsys):
    with pytest.raises(SystemExit):
        script.main(["--seeds", "0"])
    assert "argument --seeds: must be at least 1" in capsys.readouterr().err
