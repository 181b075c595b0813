"""Recommendations: their figures by the laws and recurrences, the rules, and what they print."""

import math

import numpy as np
import pytest

import fastspec as fs
from fastspec.initialize import Recommendation, recommend
from fastspec.meanfield import ResidualMeanField
from fastspec.quadrature import slope_variance

CLOSE = {"rel": 1e-10, "abs": 0}


def arcsinh():
    return fs.activation(np.arcsinh, derivative=lambda h: 1 / np.sqrt(1 + h * h))


# --- residual networks ----------------------------------------------------------------------------

@pytest.mark.parametrize("weights", [None, "orthogonal"])
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_residual_networks_get_the_cumulant_of_the_paper(name, weights):
    made = recommend(name, 30, weights=weights)
    net = made.network
    assert net == fs.ResNet(30, name, weights or "gaussian", sigma_w=made.sigma_w)
    assert net.effective_cumulant() == pytest.approx(0.125, **CLOSE)
    law = net.spectrum()
    (low, high), = law.support()[:1] if len(law.support()) == 1 else [
        (law.support()[0][0], law.support()[-1][1])]
    assert made.predicted["c"] == pytest.approx(0.125, **CLOSE)
    assert made.predicted["condition_number"] == pytest.approx(math.sqrt(high / low), **CLOSE)
    places = [outlier.value for outlier in net.outliers()]
    bottom, top = math.sqrt(min([low, *places])), math.sqrt(max([high, *places]))
    assert made.predicted["bottom_singular_value"] == pytest.approx(bottom, **CLOSE)
    assert made.predicted["top_singular_value"] == pytest.approx(top, **CLOSE)
    assert (name == "tanh") is not ("condition_number_with_outliers" in made.predicted)
    if places:
        assert made.predicted["condition_number_with_outliers"] == pytest.approx(
            top / bottom, **CLOSE)
    assert made.predicted["variance"] == pytest.approx(law.variance() / law.mean()**2, **CLOSE)
    assert made.predicted["log_chi_ratio"] == pytest.approx(math.log(law.mean()), **CLOSE)
    # The limit law has 2.746 (Tarnowski et al. 2018).
    assert made.predicted["condition_number"] == pytest.approx(2.746, rel=0.02)


def test_relu_in_closed_form():
    made = recommend("relu", 400)
    assert made.sigma_w == pytest.approx(0.5, **CLOSE)          # c = sigma^2 / 2
    assert made.scale == pytest.approx(0.025, **CLOSE)
    assert made.sigma_b == 0.0


@pytest.mark.parametrize(("target", "value"), [
    ("c", 0.4), ("condition_number", 5.0), ("variance", 0.6), ("top_singular_value", 1.5)])
def test_other_targets(target, value):
    made = recommend("mish", 25, **{target: value})
    assert made.predicted[target] == pytest.approx(value, **CLOSE)
    assert f"{target} = {value:g}" in made.reason


def test_outliers_are_mentioned_where_the_activation_has_a_mean():
    made = recommend("relu", 9)
    (note,), (outlier,) = made.notes, made.network.outliers()
    assert "singular values outside the bulk that condition_number is of" in note
    assert f": {outlier.singular_value:.5g} (network.outliers())" in note
    assert recommend("tanh", 9).notes == recommend("tanh", 999).notes == ()
    made = recommend("relu", 999)       # where they would take longer than all else
    (note,) = made.notes
    assert "E phi is not 0" in note and "depth 999" in note and "net.outliers()" in note
    assert made.predicted["top_singular_value"] == pytest.approx(
        math.sqrt(made.network.spectrum().support()[0][1]), **CLOSE)


# --- feed-forward networks ------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["tanh", "hard_tanh", "erf", "elu", "sin", "gelu", "silu", "mish"])
def test_feed_forward_networks_are_critical_with_the_wanted_variance(name):
    made = recommend(name, 20, "feedforward")
    net, q = made.network, made.predicted["q"]
    assert made.weights == net.weights == "orthogonal"
    assert net.fixed_point() == pytest.approx(q, rel=1e-10, abs=0)
    assert net.chi() == pytest.approx(1.0, rel=1e-10)
    # independently of the search: mu_2/mu_1^2 - 1 at q, and the exact law
    assert 20 * slope_variance(fs.activation(name), q) == pytest.approx(0.25, **CLOSE)
    law = net.spectrum()
    assert law.mean() == pytest.approx(1.0, rel=1e-8)
    assert law.variance() == pytest.approx(0.25, rel=1e-8)
    assert made.predicted["variance"] == pytest.approx(0.25, rel=1e-9)
    assert made.predicted["top_singular_value"] == pytest.approx(
        math.sqrt(max([law.support()[-1][1], *law.atoms[:, 0]])), rel=1e-10)
    # inputs of the given size are at q* from the first layer on
    first = net.sigma_w**2 * made.predicted["input_second_moment"] + net.sigma_b**2
    assert first == pytest.approx(q, rel=1e-12)


def test_tanh_at_small_q():
    # q* = sigma_JJT / sqrt(8 L) (Pennington, Schoenholz & Ganguli 2018), off by 5 q*
    made = recommend("tanh", 20_000, "feedforward", variance=0.04)
    assert made.predicted["q"] == pytest.approx(0.2 / math.sqrt(8 * 20_000), rel=3e-3)
    assert made.sigma_w == pytest.approx(1.0, abs=1e-3)


def test_the_limit_law_is_that_of_the_residual_default():
    limit = recommend("tanh", 50, "feedforward").network.spectrum(limit=True)
    assert limit.condition_number() == pytest.approx(fs.ResNetLimit(0.125).condition_number(),
                                                     rel=1e-8)


@pytest.mark.parametrize("weights", ["orthogonal", "gaussian"])
def test_relu_gets_he_and_the_bad_news(weights):
    made = recommend("relu", 20, "feedforward", weights=weights)
    assert (made.sigma_w, made.sigma_b) == (pytest.approx(math.sqrt(2)), 0.0)
    assert made.predicted["variance"] == pytest.approx(40 if weights == "gaussian" else 20)
    assert made.predicted["condition_number"] == math.inf
    assert "no sigma_w brings isometry" in made.reason


def test_gaussian_weights_add_the_depth():
    made = recommend("tanh", 30, "feedforward", weights="gaussian")
    assert made.predicted["variance"] == pytest.approx(30.25, rel=1e-10)
    assert any("isometry needs orthogonal" in note for note in made.notes)
    asked = recommend("tanh", 30, "feedforward", weights="gaussian", variance=33.0)
    assert asked.network.jacobian_variance() == pytest.approx(33.0, rel=1e-8)


def test_linear_networks_are_isometric():
    made = recommend("linear", 20, "feedforward")
    assert made.sigma_w == pytest.approx(1.0)
    assert made.predicted["condition_number"] == 1.0


@pytest.mark.parametrize(("name", "stable"), [
    ("tanh", True), ("gelu", False), ("silu", False), ("mish", False)])
def test_unstable_critical_points_are_called_so(name, stable):
    made = recommend(name, 20, "feedforward")
    point = fs.signal.critical_point(name, q=made.predicted["q"])
    assert point.stable is stable
    assert any("unstable" in note for note in made.notes) is not stable
    change = "shrinks" if stable else "grows"
    assert f"{change} by dQ/dq = {point.slope:.6g}" in " ".join(made.notes)


def test_a_law_that_cannot_be_solved_is_noted(monkeypatch):
    def unsolved(self, limit=False):
        raise fs.ConvergenceError("half of it is missing")

    monkeypatch.setattr(fs.FeedForward, "spectrum", unsolved)
    made = recommend("tanh", 20, "feedforward")
    assert "half of it is missing" in made.notes[0]
    assert "condition_number" not in made.predicted
    assert made.predicted["variance"] == pytest.approx(0.25, rel=1e-9)


# --- mean-field networks --------------------------------------------------------------------------

@pytest.mark.parametrize("block", ["reduced", "full"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softsign", "arctan"])
def test_saturating_activations_get_a_gradient_ratio(name, block):
    made = recommend(name, 30, "mean_field", block=block)
    assert made.network == ResidualMeanField(name, block, sigma_w=made.sigma_w)
    run = made.network.run(30)
    assert run.log_chi_ratio == pytest.approx(math.log(10), rel=1e-10)
    assert made.predicted["log_chi_ratio"] == run.log_chi_ratio
    assert made.predicted["log_s"] == run.log_s[-1]
    assert "a choice" in made.reason and made.notes == ()


def test_a_published_contour():
    # RRN erf: ln(chi_0/chi_L) ~ (4/pi) sigma_w sqrt(L) to leading order (Yang & Schoenholz 2017)
    made = recommend("erf", 900, "mean_field", log_chi_ratio=60.0)
    assert made.sigma_w == pytest.approx(60 * math.pi / (4 * 30), rel=0.06)
    assert made.network.run(900).log_chi_ratio == pytest.approx(60.0, rel=1e-10)


@pytest.mark.parametrize(("dtype", "largest"), [
    (None, 65504.0), ("float16", 65504.0), ("bfloat16", (2 - 2**-7) * 2.0**127),
    ("float32", float(np.finfo(np.float32).max))])
def test_relu_blocks_use_the_range_of_numbers(dtype, largest):
    made = recommend("relu", 100, "mean_field", block="full", dtype=dtype)
    # p_L = (1 + sigma^2/2)^L, gradients alike; weight gradients stay below
    limit = largest / 8
    assert made.sigma_w == pytest.approx(math.sqrt(2 * (limit ** (2 / 100) - 1)), rel=1e-10)
    assert made.predicted["log_rms_activation"] == pytest.approx(math.log(limit), rel=1e-10)
    assert made.predicted["log_rms_weight_gradient"] < math.log(limit)


@pytest.mark.parametrize("phi", [
    "gelu", "elu", "linear", "leaky_relu", fs.activation("alpha_relu", alpha=0.8)])
def test_growing_activations_stay_below_the_limit(phi):
    made = recommend(phi, 15, "mean_field")
    run = made.network.run(15)
    sizes = [0.5 * np.nanmax(logs) for logs in (run.log_p, run.log_chi, run.log_chi_w)]
    assert max(sizes) == pytest.approx(math.log(65504 / 8), rel=1e-9)


@pytest.mark.parametrize(("phi", "words"), [
    ("sin", r"neither saturates .* nor grows.*E phi\^2 ~ q\^0"),
    (arcsinh(), "neither saturates"),
    (fs.activation("alpha_relu", alpha=1.5), r"neither.*q\^1.5"),
    (fs.activation("alpha_relu", alpha=0.5), "must be positive and finite.*inf"),
])
def test_activations_without_a_rule(phi, words):
    with pytest.raises(ValueError, match=words) as caught:
        recommend(phi, 10, "mean_field")
    assert "\n" not in str(caught.value)


def test_a_target_against_the_rule_is_noted():
    made = recommend("sin", 10, "mean_field", log_chi_ratio=2.0)
    assert made.predicted["log_chi_ratio"] == pytest.approx(2.0, rel=1e-10)
    assert "not known to be what quality follows" in made.notes[0]


def test_callables_are_measured():
    user = fs.activation(np.tanh, derivative=lambda h: 1 - np.tanh(h) ** 2)
    for architecture in ("resnet", "feedforward", "mean_field"):
        assert recommend(user, 10, architecture).sigma_w == pytest.approx(
            recommend("tanh", 10, architecture).sigma_w, rel=1e-8)


# --- shape and arguments --------------------------------------------------------------------------

def test_what_is_printed_is_enough_to_paste():
    made = recommend("gelu", 100, condition_number=4.0)
    text = str(made)
    assert f"std {made.sigma_w:.6g} / sqrt(100 * fan_in) = {made.scale:.6g} / sqrt(fan_in)" in text
    assert "condition_number 4" in text and "Tarnowski" in text
    text = str(recommend("tanh", 30, "feedforward"))
    assert "orthogonal, gain 1.03" in text and "biases     normal, std 0.0" in text
    assert max(map(len, str(recommend("relu", 9)).splitlines())) < 300


def test_the_scale_is_that_of_the_network():
    made = recommend("tanh", 30, weights="orthogonal")
    assert made.scale**2 == pytest.approx(made.network.weight_variance, rel=1e-14)
    made = recommend("tanh", 30, "feedforward")
    assert made.scale**2 == pytest.approx(made.network.weight_variance, rel=1e-14)
    made = recommend("tanh", 30, "mean_field")
    assert made.scale == made.sigma_w == made.network.sigma_w


def test_as_plain_types():
    made = recommend("tanh", 30)
    table = made.to_dict()
    assert isinstance(made, Recommendation)
    assert table["sigma_w"] == made.sigma_w and table["predicted"] == made.predicted
    assert "network" not in table and table["activation"] == "activation('tanh')"


@pytest.mark.parametrize(("arguments", "options", "words"), [
    (("tanhh", 10), {}, "did you mean 'tanh'"),
    (("tanh", 0), {}, "depth must be"),
    (("tanh", 10, "resnets"), {}, "architecture must be.*did you mean 'resnet'"),
    (("tanh", 10), {"weights": "normal"}, "weights must be"),
    (("tanh", 10), {"c": -1.0}, "c must be.*> 0"),
    (("tanh", 10), {"condition_number": 1.0}, "condition_number must be.*> 1"),
    (("tanh", 10), {"c": 1.0, "variance": 1.0}, "one target at most, got c, variance"),
    (("tanh", 10), {"log_chi_ratio": 1.0}, "log_chi_ratio does not go with.*'resnet'"),
    (("tanh", 10, "feedforward"), {"c": 1.0}, "c does not go with.*targets there: variance"),
    (("tanh", 10, "mean_field"), {"variance": 1.0}, "variance does not go with"),
    (("tanh", 10, "mean_field"), {"weights": "orthogonal"}, "weights must be 'gaussian'"),
    (("tanh", 10, "mean_field"), {"block": "vanilla"}, "block must be one of reduced, full"),
    (("tanh", 10), {"block": "full"}, "block goes with architecture='mean_field'"),
    (("relu", 10, "mean_field"), {"dtype": "fp8"}, "dtype must be one of float16"),
    (("relu", 10, "feedforward"), {"variance": 5.0}, "5 cannot be reached.*more than 10"),
    (("tanh", 10, "feedforward"), {"variance": 5.0, "weights": "gaussian"}, "more than 10"),
    (("gelu", 10, "feedforward"), {"variance": 50.0}, "no q gives slopes the variance 50"),
    (("sigmoid", 10, "feedforward"), {}, "no critical point.*architecture='resnet'"),
    (("softplus", 10, "feedforward"), {}, "no critical point.*architecture='resnet'"),
    (("relu", 10), {"variance": 1e6}, "no sigma_w gives variance = 1e.06"),
])
def test_bad_arguments_are_named(arguments, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        recommend(*arguments, **options)
    assert "\n" not in str(caught.value)
