"""The examples in a tiny setting, their trainer, and the networks they train."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from example_results import check_notes, check_picture, numbers, read

torch = pytest.importorskip("torch", reason="the examples need PyTorch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
if not EXAMPLES.is_dir():
    pytest.skip("no examples beside the tests", allow_module_level=True)
sys.path.insert(0, str(EXAMPLES))
training = importlib.import_module("_training")
equal_cumulant = importlib.import_module("equal_cumulant")
residual_scaling = importlib.import_module("residual_scaling")
initialisation_quality = importlib.import_module("initialisation_quality")
sys.path.remove(str(EXAMPLES))

TINY = ["--seeds", "2", "--epochs", "1", "--width", "64"]


@pytest.fixture(scope="module")
def digits():
    return training.load_digits(64)


# --- the three scripts ----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def cumulant_run(tmp_path_factory):
    """Where one run of equal_cumulant.py put its results."""
    out = tmp_path_factory.mktemp("equal_cumulant")
    assert equal_cumulant.main([*TINY, "--depth", "2", "--out", str(out)]) == 0
    return out


def test_equal_cumulant(cumulant_run):
    notes, rows = read(cumulant_run / "equal_cumulant.csv")
    check_notes(notes, cumulant_run)
    iterations = [k for k in training.MEASURED if k <= 10]
    assert len(rows) == 2 * 3 * len(iterations)
    for column in ("accuracy", "accuracy_spread", "accuracy_spread_se", "ln_loss_spread"):
        assert np.isfinite(numbers(rows, column)).all()
    curves = read(cumulant_run / "equal_cumulant_curves.csv")[1]
    assert len(curves) == len(training.PHI) * len(rows)
    assert np.isfinite(numbers(curves, "train_loss")).all()
    low = [row for row in curves if row["level"] == "low" and row["start"] != "equal sigma"]
    np.testing.assert_allclose(numbers(low, "c"), 0.125, rtol=1e-3)
    same = [row for row in curves if row["level"] == "high" and row["start"] == "equal sigma"]
    assert set(numbers(same, "sigma_w")) == {1.0}
    check_picture(cumulant_run / "equal_cumulant.png")


def test_gain_apart_starts_where_equal_c_does_and_learns_differently(cumulant_run):
    rows = read(cumulant_run / "equal_cumulant_curves.csv")[1]
    loss = {(row["start"], row["level"], row["activation"], row["iteration"]): row["train_loss"]
            for row in rows}
    for level in ("low", "high"):
        for name in training.PHI:
            first, last = ([loss[start, level, name, iteration]
                            for start in equal_cumulant.STARTS[1:]] for iteration in ("0", "10"))
            assert first[0] == first[1]
            assert last[0] != last[1]


def test_residual_scaling(tmp_path):
    assert residual_scaling.main([*TINY, "--depth", "12", "--out", str(tmp_path)]) == 0
    notes, rows = read(tmp_path / "residual_scaling.csv")
    check_notes(notes, tmp_path)
    rates = len(residual_scaling.LEARNING_RATES)
    assert len(rows) == 4 * rates
    for row in rows:
        assert np.isfinite(float(row["train_loss"])) == (row["diverged"] != "2")
    best = [row["scaling"] for row in rows if row["choice"] == "best"]
    assert {".1/L", ".01/L"} <= set(best) and len(best) == len(set(best))
    spectra = {row["scaling"]: row for row in read(tmp_path / "residual_scaling_spectra.csv")[1]}
    for name, c in (("1", 6.0), ("1/L", 0.5), (".1/L", 0.05), (".01/L", 0.005)):
        row = {key: float(value) for key, value in spectra[name].items() if key != "scaling"}
        assert row["c"] == pytest.approx(c, rel=1e-3)
        assert row["condition"] == pytest.approx(row["top"] / row["bottom"], rel=2e-3)
        # J x^0 = x^L: a singular value that large there must be, up to fluctuations of the norm.
        assert row["measured_top"] > 0.5 * row["input_stretch"]
        if name != "1":
            assert row["measured_bulk_condition"] == pytest.approx(row["condition"], rel=0.2)
    check_picture(tmp_path / "residual_scaling.png")


def test_all_runs_diverged_have_no_best_rate():
    nan = np.full((1, 2), np.nan)
    lost = training.History(np.array([10]), nan, nan, nan)
    some = training.History(np.array([10]), *[np.array([[0.5, np.nan]])] * 3)
    good = training.History(np.array([10]), *[np.array([[0.9, 0.8]])] * 3)
    rates = residual_scaling.LEARNING_RATES
    runs = {(s, r): lost for s in residual_scaling.SCALINGS for r in rates}
    runs["1/L", rates[1]], runs["1/L", rates[2]] = some, good
    assert residual_scaling.best_rates(runs) == {"1/L": rates[2]}


def test_initialisation_quality(tmp_path):
    options = ["--depths", "2", "4", "6", "--sigmas", "6", "--out", str(tmp_path)]
    assert initialisation_quality.main([*TINY, *options]) == 0
    notes, cells = read(tmp_path / "initialisation_quality_cells.csv")
    check_notes(notes, tmp_path)
    maps = 2 * len(initialisation_quality.LEARNING_RATES)
    assert len(cells) == maps * 6 * 3
    for column in ("ln_chi_ratio", "ln_s", "ln_p", "test_accuracy"):
        assert np.isfinite(numbers(cells, column)).all()
    assert (np.abs(numbers(cells, "test_accuracy") - 0.5) <= 0.5).all()
    rows = read(tmp_path / "initialisation_quality.csv")[1]
    assert len(rows) == maps * 4
    assert (np.abs(numbers(rows, "spearman")) <= 1.0).all()
    assert (np.abs(numbers(rows, "explained") - 0.5) <= 0.5).all()
    assert sum(row["claimed"] == "yes" for row in rows) == maps
    best = read(tmp_path / "initialisation_quality_best.csv")[1]
    assert len(best) == maps * 3
    assert np.isfinite(numbers(best, "best_sigma_w")).all()
    check_picture(tmp_path / "initialisation_quality.png")


@pytest.mark.parametrize("options", [["--width", "63"], ["--seeds", "0"], ["--epochs", "-1"]])
def test_wrong_options_are_named(options, capsys):
    with pytest.raises(SystemExit):
        equal_cumulant.main(options)
    assert f"argument {options[0]}: must be at least" in capsys.readouterr().err


# --- the trainer ----------------------------------------------------------------------------------

def test_inputs_have_second_moment_one_and_a_fixed_split(digits):
    assert digits.train_x.shape == (1280, 64) and digits.test_x.shape == (517, 64)
    np.testing.assert_allclose((digits.train_x**2).mean(1), 1.0, rtol=1e-5)
    assert digits.second_moment() == pytest.approx(1.0, rel=1e-6)
    x = digits.train_x.double().numpy()
    overlaps = x @ x.T / 64
    mean = (overlaps.sum() - np.trace(overlaps)) / (1280 * 1279)
    assert digits.overlap() == pytest.approx(mean, rel=1e-9)
    np.testing.assert_array_equal(digits.train_x, training.load_digits(64).train_x)


class Plain(torch.nn.Module):
    """One network of a stack, written with PyTorch's own layers."""

    def __init__(self, stack, k):
        super().__init__()
        w, b, *branch = stack.blocks
        self.phi, self.full = stack.phi, bool(branch)
        pairs = [(w, b), tuple(branch)] if branch else [(w, b)]
        self.layers = torch.nn.ModuleList(
            self.linear(p[block, k], c[block, k]) for block in range(len(w)) for p, c in pairs)
        self.readout = self.linear(stack.readout[0][k], stack.readout[1][k])

    @staticmethod
    def linear(weight, bias):
        layer = torch.nn.Linear(*weight.shape)
        with torch.no_grad():
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias[0])
        return layer

    def forward(self, x):
        if self.full:
            for w, v in zip(self.layers[::2], self.layers[1::2], strict=True):
                x = x + v(self.phi(w(x)))
        else:
            for w in self.layers:
                x = x + self.phi(w(x))
        return self.readout(x)


@pytest.mark.parametrize("branch_std", [None, 0.7])
def test_a_stack_trains_as_single_networks_under_pytorchs_sgd(digits, branch_std):
    stack = training.Stack(torch.tanh, 3, 64, [0.3, 0.5, 0.8], [0, 1, 1], branch_std)
    plain = Plain(stack, 1)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    history = training.train(stack, digits, 2, 0.01, measure=(0, 3))
    np.testing.assert_array_equal(history.iterations, [0, 3, 20])
    losses = []
    for iteration, chosen in enumerate([*training._batches(2), None]):
        if iteration in (0, 3, 20):
            with torch.no_grad():
                logits = plain(digits.train_x)
                losses.append(float(torch.nn.functional.cross_entropy(logits, digits.train_y)))
        if chosen is not None:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                plain(digits.train_x[chosen]), digits.train_y[chosen])
            loss.backward()
            optimiser.step()
    np.testing.assert_allclose(history.train_loss[:, 1], losses, rtol=1e-4)
    right = (plain(digits.test_x).argmax(-1) == digits.test_y).float().mean()
    assert history.test_accuracy[-1, 1] == pytest.approx(float(right), abs=2.1 / 517)


def test_block_steps_are_a_gain_apart_from_the_weights(digits):
    # W = g w gives dE/dw = g dE/dW: a step of w moves W by g^2 times a step of W.
    gain = 1.7
    apart = training.Stack(lambda h: torch.tanh(gain * h), 3, 64, [0.4], [0])
    inside = training.Stack(torch.tanh, 3, 64, [0.4 * gain], [0])
    first = training.train(apart, digits, 2, 0.01)
    second = training.train(inside, digits, 2, 0.01, block_steps=[gain**2])
    np.testing.assert_allclose(first.train_loss, second.train_loss, rtol=1e-4)
    without = training.train(training.Stack(torch.tanh, 3, 64, [0.4 * gain], [0]), digits, 2, 0.01)
    assert abs(without.train_loss[-1, 0] / first.train_loss[-1, 0] - 1.0) > 0.01


def test_a_network_that_overflows_is_reported_and_leaves_the_others_alone(digits):
    together = training.Stack(torch.relu, 20, 64, [0.1, 1e3], [0, 0])
    alone = training.Stack(torch.relu, 20, 64, [0.1], [0])
    both = training.train(together, digits, 1, 1e-3)
    one = training.train(alone, digits, 1, 1e-3)
    assert both.diverged().tolist() == [False, True]
    assert np.isnan(both.test_accuracy[-1, 1])
    np.testing.assert_allclose(both.train_loss[:, 0], one.train_loss[:, 0], rtol=1e-5)
    lost = training.train(training.Stack(torch.relu, 20, 64, [1e3], [0]), digits, 1, 1e-3)
    assert lost.diverged().all() and lost.train_loss.shape == one.train_loss.shape


@pytest.mark.parametrize("kind", initialisation_quality.KINDS, ids=str)
def test_stacks_are_the_networks_of_the_mean_field(digits, kind):
    """Activations and gradients of real stacks against the predictions of the heat maps."""
    width, depth, networks = 200, 8, 12
    data = training.load_digits(width)
    t = initialisation_quality.theory(kind, np.array([0.8]), [depth], data)
    stack = training.Stack(training.PHI[kind.activation], depth, width, [0.8] * networks,
                           list(range(networks)), kind.branch_std)
    x = data.train_x[:20].expand(networks, 20, width).clone().requires_grad_()
    cotangent = torch.randn(networks, 20, 10, generator=torch.Generator().manual_seed(1))
    stack.readout[0].data *= width**0.5
    logits = torch.stack([run(stack, k, x[k]) for k in range(networks)])
    gradient, = torch.autograd.grad((logits * cotangent).sum(), x)
    last = cotangent @ stack.readout[0].transpose(1, 2)
    ratio = ((gradient**2).mean() / (last**2).mean()).item()
    assert np.log(ratio) == pytest.approx(float(t.values["ln_chi_ratio"][0, 0]), abs=0.15)
    # E (R x)^2 = |x|^2 for R of entries N(0, 1).
    moment = (logits**2).mean().item() / width
    assert np.log(moment) == pytest.approx(float(t.values["ln_p"][0, 0]), abs=0.3)


def run(stack, k, x):
    """Logits of network k for its own inputs."""
    single = object.__new__(training.Stack)
    single.phi = stack.phi
    single.blocks = [p[:, k:k + 1] for p in stack.blocks]
    single.readout = [p[k:k + 1] for p in stack.readout]
    return single(x)[0]


# --- statistics -----------------------------------------------------------------------------------

def test_explained_is_the_correlation_ratio():
    explained = initialisation_quality.explained
    x = np.arange(16.0)
    assert explained(x, np.floor(x / 2)) == pytest.approx(1.0, rel=1e-12)  # constant within bins
    assert explained(x, np.tile([0.0, 1.0], 8)) == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(explained(x, np.ones(16)))


def test_spread_is_over_activations_and_its_error_over_seeds():
    values = np.array([[1.0, 0.0], [3.0, 4.0]])      # (activations, seeds)
    mean, error = equal_cumulant.spread(values)
    assert mean == pytest.approx(1.5 * 2**0.5, rel=1e-12)
    assert error == pytest.approx(0.5 * 2**0.5, rel=1e-12)
    assert np.isnan(equal_cumulant.spread(values[:, :1])[1])


def test_usable_and_best_sigmas_lie_on_contours_they_define():
    kind = initialisation_quality.KINDS[1]
    data = training.load_digits(64)
    sigmas = np.array([0.1, 0.2, 0.4, 0.8])
    t = initialisation_quality.theory(kind, sigmas, [10, 40], data)
    accuracy = np.array([[0.5, 0.9], [0.6, 0.895], [0.7, 0.8], [0.1, 0.1]])
    diverged = np.array([[0, 0], [0, 0], [0, 1], [1, 0]])
    m = initialisation_quality.Map(kind, 1e-3, t, accuracy, diverged)
    np.testing.assert_allclose(initialisation_quality.best_sigmas(m), [0.4, 0.02**0.5], rtol=1e-12)
    usable = initialisation_quality.usable_sigmas(m)
    np.testing.assert_allclose(usable, [0.4, 0.2])
    value, sigma = initialisation_quality.on_contour(m, usable)
    np.testing.assert_allclose(value, [t.values["ln_s"][2, 0], t.values["ln_s"][1, 1]], rtol=1e-12)
    for depth, at in enumerate(sigma):
        there = np.interp(np.log(at), np.log(sigmas), t.values["ln_s"][:, depth])
        assert there == pytest.approx(value.mean(), rel=1e-9)
