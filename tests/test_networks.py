"""Networks: arguments, recursions against explicit sums and Monte Carlo, and the law."""

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from fastspec import ChainLaw, laws
from fastspec.activations import activation
from fastspec.networks import FeedForward, ResNet
from fastspec.quadrature import moments

KINDS = [FeedForward, ResNet]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("field", "value"), [
    ("depth", 0), ("depth", -3), ("depth", 2.5), ("depth", True), ("depth", "x"), ("depth", None),
    ("depth", 4.0), ("activation", "tanhh"), ("activation", 3), ("weights", "gauss"),
    ("weights", None), ("sigma_w", 0.0), ("sigma_w", -1.0), ("sigma_w", math.nan),
    ("sigma_w", math.inf), ("sigma_w", "1"), ("sigma_w", [1.0]), ("sigma_b", -0.1),
    ("sigma_b", math.inf), ("input_second_moment", -1.0), ("input_second_moment", math.nan),
])
def test_bad_common_arguments_are_named(kind, field, value):
    arguments = {"depth": 3, "activation": "tanh"} | {field: value}
    with pytest.raises(ValueError) as caught:
        kind(**arguments)
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("kind", "field", "value"), [
    (FeedForward, "q", "fixed"), (FeedForward, "q", 1.0), (ResNet, "skip", 0.0),
    (ResNet, "skip", math.inf), (ResNet, "depth_scaled", 1), (ResNet, "depth_scaled", "yes"),
    (ResNet, "input_mean", 1.5), (ResNet, "input_mean", math.nan),
])
def test_bad_own_arguments_are_named(kind, field, value):
    with pytest.raises(ValueError, match=field):
        kind(3, "tanh", **{field: value})


@pytest.mark.parametrize("kind", KINDS)
def test_networks_are_values(kind):
    net = kind(depth=np.int64(5), activation="elu", sigma_w=np.float64(1.5), weights="orthogonal")
    assert net == kind(5, activation("elu"), "orthogonal", 1.5)
    assert hash(net) == hash(kind(5, activation("elu"), "orthogonal", 1.5))
    assert pickle.loads(pickle.dumps(net)) == net
    assert type(net.depth) is int
    assert "depth=5" in repr(net)
    assert "'elu'" in repr(net)
    with pytest.raises(FrozenInstanceError):
        net.depth = 6


def test_weight_variance():
    assert FeedForward(8, "relu", sigma_w=2.0).weight_variance == 4.0
    assert ResNet(8, "relu", sigma_w=2.0).weight_variance == 0.5
    assert ResNet(8, "relu", sigma_w=2.0, depth_scaled=False).weight_variance == 4.0


@pytest.mark.parametrize("kind", KINDS)
def test_propagation_result(kind):
    net = kind(4, "gelu", sigma_w=1.3, sigma_b=0.2)
    result = net.propagate()
    assert len(result) == 4
    table = result.to_dict()
    assert list(table) == ["q", "mean", "second_moment", "slope_mean", "slope_second", "kappa"]
    assert all(len(column) == 4 for column in table.values())
    assert result.kappa == pytest.approx(net.weight_variance * result.slope_mean, rel=1e-15, abs=0)
    at_q = moments(net.activation, result.q)
    assert result.slope_mean == pytest.approx(at_q.slope_mean, rel=1e-15, abs=0)
    assert result.slope_second == pytest.approx(at_q.slope_second, rel=1e-15, abs=0)
    assert "4 layers" in repr(result)
    with pytest.raises(ValueError):
        result.q[0] = 1.0
    with pytest.raises(FrozenInstanceError):
        result.q = 1.0


def test_feed_forward_recursion_of_relu_is_explicit():
    # q_{l+1} = (sw^2 / 2) q_l + sb^2.
    net = FeedForward(60, "relu", sigma_w=1.2, sigma_b=0.3, input_second_moment=2.5)
    ratio, shift = 0.72, 0.09
    limit = shift / (1 - ratio)
    layers = np.arange(60)
    truth = limit + (1.44 * 2.5 + shift - limit) * ratio**layers
    result = net.propagate()
    assert result.q == pytest.approx(truth, rel=1e-13, abs=0)
    assert result.second_moment == pytest.approx(truth / 2, rel=1e-13, abs=0)
    assert result.mean == pytest.approx(np.sqrt(truth / (2 * math.pi)), rel=1e-13, abs=0)


def test_fixed_point_option_keeps_every_layer_at_q_star():
    net = FeedForward(9, "tanh", sigma_w=1.5, sigma_b=0.4, q="fixed_point")
    result = net.propagate()
    assert np.all(result.q == net.fixed_point())
    deep = FeedForward(400, "tanh", sigma_w=1.5, sigma_b=0.4).propagate()
    assert deep.q[-1] == pytest.approx(net.fixed_point(), rel=1e-13, abs=0)
    assert net.chi() == pytest.approx(deep.kappa[-1], rel=1e-12, abs=0)
    relu = FeedForward(3, "relu", sigma_w=math.sqrt(2.0), input_second_moment=0.7, q="fixed_point")
    assert relu.fixed_point() == pytest.approx(1.4, rel=1e-15, abs=0)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "selu"])
@pytest.mark.parametrize("skip", [1.0, 0.7, -0.8])
def test_residual_recursion_is_the_closed_recursion_in_q(name, skip):
    # Tarnowski et al. 2018, eq. 42, the sum over all earlier layers written out.
    depth, sigma_w, sigma_b = 7, 1.7, 0.4
    net = ResNet(depth, name, sigma_w=sigma_w, sigma_b=sigma_b, skip=skip, input_second_moment=0.6)
    s2, made = sigma_w**2 / depth, activation(name)
    q = [s2 * 0.6 + sigma_b**2]
    for layer in range(1, depth):
        at = [moments(made, x) for x in q]
        cross = sum(skip**k * at[layer - 1 - k].mean for k in range(1, layer)) * at[-1].mean
        q.append(skip**2 * q[-1] + (1 - skip**2) * sigma_b**2 + s2 * at[-1].second_moment
                 + 2 * s2 * cross)
    result = net.propagate()
    assert result.q == pytest.approx(q, rel=1e-13, abs=0)
    mean = sum(skip**k * moments(made, q[depth - 1 - k]).mean for k in range(depth))
    assert result.mean[-1] == pytest.approx(mean, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize(("name", "depth", "sigma_w", "sigma_b", "second_moment", "gradient"), [
    # E x^2 and the gradient ratio of mean-field residual nets (Yang & Schoenholz 2017), computed
    # by their recurrences in an independent program.
    ("tanh", 20, 1.0, 0.5, 14.591639, 55.844751),
    ("tanh", 100, 1.0, 0.5, 84.795784, 30586.680),
    ("relu", 12, 0.8, 0.3, 852.04752, 27.982543),
])
def test_mean_field_residual_networks(name, depth, sigma_w, sigma_b, second_moment, gradient):
    result = ResNet(depth, name, sigma_w=sigma_w, sigma_b=sigma_b, depth_scaled=False).propagate()
    assert result.second_moment[-1] == pytest.approx(second_moment, rel=1e-7, abs=0)
    assert np.prod(1 + result.kappa) == pytest.approx(gradient, rel=1e-7, abs=0)


def forward(net, width, rng):
    """Layer statistics (E h^2, E x, E x^2) of one real network, by its definition."""
    skip = getattr(net, "skip", 0.0)
    x = rng.standard_normal(width)
    x -= x.mean()
    x *= math.sqrt(net.input_second_moment / np.mean(x * x))
    rows = []
    for _ in range(net.depth):
        weight = rng.standard_normal((width, width)) * math.sqrt(net.weight_variance / width)
        h = weight @ x + net.sigma_b * rng.standard_normal(width)
        x = net.activation(h) + skip * x
        rows.append((np.mean(h * h), np.mean(x), np.mean(x * x)))
    return np.array(rows)


@pytest.mark.parametrize("net", [
    FeedForward(5, "gelu", sigma_w=1.6, sigma_b=0.3, input_second_moment=1.5),
    FeedForward(5, "tanh", sigma_w=2.0, sigma_b=0.1),
    ResNet(5, "relu", sigma_w=1.5, sigma_b=0.2),
    ResNet(5, "sigmoid", sigma_w=2.0, skip=0.9, depth_scaled=False),
], ids=lambda net: f"{type(net).__name__}-{net.activation.name}")
def test_propagation_agrees_with_real_forward_passes(net):
    rng = np.random.default_rng(20180101)
    samples = np.array([forward(net, 500, rng) for _ in range(40)])
    mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(40)
    result = net.propagate()
    theory = np.stack([result.q, result.mean, result.second_moment], axis=1)
    # 15 numbers; beyond the error bar the width allows corrections of order 1 / N.
    assert np.all(np.abs(mean - theory) < 4.0 * error + 3e-3 * np.abs(theory))


def test_input_mean_enters_the_cross_term():
    net = ResNet(1, "relu", sigma_w=1.0, input_second_moment=2.0, input_mean=1.0)
    # E (x + phi(h))^2 = 2 + 2 E phi + q / 2, E phi = sqrt(q / 2 pi), q = 2.
    assert net.propagate().second_moment[0] == pytest.approx(
        3 + 2 / math.sqrt(math.pi), rel=1e-14, abs=0)
    assert net.propagate().input_mean == 1.0


def test_effective_cumulant():
    assert ResNet(50, "relu", sigma_w=0.5).effective_cumulant() == pytest.approx(
        0.125, rel=1e-14, abs=0)
    leaky = ResNet(50, activation("leaky_relu", slope=0.3), sigma_w=2.0)
    assert leaky.effective_cumulant() == pytest.approx(2.0 * 1.09, rel=1e-14, abs=0)
    hard = ResNet(3, "hard_tanh", sigma_w=2.0)
    truth = 4 / 3 * sum(math.erf(1 / math.sqrt(2 * q)) for q in hard.propagate().q)
    assert hard.effective_cumulant() == pytest.approx(truth, rel=1e-14, abs=0)
    with pytest.raises(ValueError, match="residual"):
        FeedForward(3, "tanh").effective_cumulant()


@pytest.mark.parametrize(("q", "variance"), [(0.01, 0.00073), (0.1, 0.0397), (0.25, 0.137),
                                             (0.5, 0.299), (1.0, 0.583), (2.0, 1.041),
                                             (4.0, 1.736)])
def test_jacobian_variance_on_the_tanh_critical_line(q, variance):
    made = moments(activation("tanh"), q)
    weight = 1 / made.slope_mean
    arguments = {"sigma_w": math.sqrt(weight), "q": "fixed_point",
                 "sigma_b": math.sqrt(q - weight * made.second_moment)}
    unit = 10.0 ** -len(str(variance).split(".")[1])
    orthogonal = FeedForward(30, "tanh", "orthogonal", **arguments).jacobian_variance()
    assert orthogonal / 30 == pytest.approx(variance, abs=0.6 * unit)
    gaussian = FeedForward(30, "tanh", "gaussian", **arguments).jacobian_variance()
    assert gaussian == pytest.approx(orthogonal + 30, rel=1e-14, abs=0)


def test_jacobian_variance_of_rare_slopes():
    net = FeedForward(1000, "hard_tanh", "orthogonal", sigma_w=0.1, sigma_b=0.1)
    q = net.propagate().q
    truth = sum(math.erfc(1 / math.sqrt(2 * x)) / math.erf(1 / math.sqrt(2 * x)) for x in q)
    assert 0 < truth < 1e-5
    assert net.jacobian_variance() == pytest.approx(truth, rel=1e-12, abs=0)


def jacobian_moments(net, width, rng):
    """tr (J J^T) / N and tr (J J^T)^2 / N of one real feed-forward network."""
    x = rng.standard_normal(width)
    x *= math.sqrt(net.input_second_moment * width) / np.linalg.norm(x)
    jacobian = np.eye(width)
    for _ in range(net.depth):
        weight = rng.standard_normal((width, width)) / math.sqrt(width)
        if net.weights == "orthogonal":
            basis, triangle = np.linalg.qr(weight)
            weight = basis * np.sign(np.diagonal(triangle))
        weight *= net.sigma_w
        h = weight @ x + net.sigma_b * rng.standard_normal(width)
        x = net.activation(h)
        jacobian = net.activation.derivative(h)[:, np.newaxis] * (weight @ jacobian)
    square = jacobian @ jacobian.T
    return np.trace(square) / width, np.sum(square * square) / width


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_jacobian_mean_and_variance_agree_with_real_networks(weights):
    net = FeedForward(3, "tanh", weights, sigma_w=1.5, sigma_b=0.3)
    rng = np.random.default_rng(77)
    first, second = np.array([jacobian_moments(net, 160, rng) for _ in range(100)]).T
    mean = float(np.prod(net.propagate().kappa))
    error = first.std(ddof=1) / 10.0        # about 1.5 %
    assert abs(first.mean() - mean) < 4.0 * error
    # Leaving out s_1 or mu_2 would change the variance by 70 % or 30 %.
    variance = second.mean() / mean**2 - 1.0
    assert variance == pytest.approx(net.jacobian_variance(), rel=0.1, abs=0)


def test_explosion_names_the_layer():
    # q^l = (sw^2)^l for linear: 4^l leaves the doubles at l = 512.
    with pytest.raises(OverflowError, match="layer 512 of 600"):
        FeedForward(600, "linear", sigma_w=2.0).propagate()
    # (1 + sw^2)^(l - 1) for the linear residual net with sw = 1: 2^1024 at l = 1025.
    with pytest.raises(OverflowError, match="layer 1025 of 2000"):
        ResNet(2000, "linear", depth_scaled=False).propagate()
    # The output of the last layer overflows although its q does not.
    with pytest.raises(OverflowError, match="layer 1024 of 1024"):
        ResNet(1024, "linear", depth_scaled=False).propagate()
    with pytest.raises(OverflowError, match="layer 1 of 2"):
        FeedForward(2, "tanh", sigma_w=1e200).propagate()


def test_a_signal_that_dies_out_keeps_the_limits_of_its_slopes():
    result = FeedForward(2000, "tanh", sigma_w=0.5).propagate()
    assert result.q[-1] == 0.0
    assert result.kappa[-1] == pytest.approx(0.25, rel=1e-14, abs=0)
    silent = FeedForward(3, "relu", input_second_moment=0.0).propagate()
    assert silent.slope_mean == pytest.approx(0.5, rel=1e-15, abs=0)


def test_infinite_slope_moments_are_said():
    with pytest.raises(ValueError, match="infinite at layer 1"):
        FeedForward(3, activation("alpha_relu", alpha=0.5)).propagate()
    rough = FeedForward(3, activation("alpha_relu", alpha=0.7))
    assert np.all(np.isinf(rough.propagate().slope_second))
    assert rough.jacobian_variance() == math.inf


def test_no_start_for_a_fixed_point():
    with pytest.raises(ValueError, match="first layer is 0"):
        FeedForward(3, "tanh", input_second_moment=0.0).fixed_point()


# --- spectra -----------------------------------------------------------------------------------

def critical(name, q, **arguments):
    """The feed-forward net on the critical line of ``name`` at q* = q."""
    made = name if not isinstance(name, str) else activation(name)
    at_q = moments(made, q)
    weight = 1 / at_q.slope_mean
    bias = max(0.0, q - weight * at_q.second_moment)
    return FeedForward(activation=made, sigma_w=math.sqrt(weight), sigma_b=math.sqrt(bias),
                       **({"depth": 20, "weights": "orthogonal", "q": "fixed_point"} | arguments))


def test_residual_limit_law():
    net = ResNet(40, "tanh", sigma_w=0.8, skip=0.9)
    c = net.effective_cumulant()
    assert net.spectrum(limit=True) == laws.ResNetLimit(c, skip=0.9, depth=40)
    assert ResNet(40, "tanh", sigma_w=0.8, skip=-0.9).spectrum(limit=True).mean() == pytest.approx(
        0.9**80 * math.exp(c / 0.81), rel=1e-10, abs=0)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_exact_feed_forward_spectra(weights):
    relu = FeedForward(6, "relu", weights, sigma_w=1.3, sigma_b=0.2)
    assert relu.spectrum() == laws.PlainChain(
        6, slope_probability=0.5, slope_complement=0.5, weight_variance=relu.weight_variance,
        weights=weights)
    linear = FeedForward(4, "linear", weights, sigma_w=1.0).spectrum()
    assert linear == laws.PlainChain(4, slope_probability=1.0, slope_complement=0.0,
                                     weight_variance=1.0, weights=weights)
    hard = FeedForward(5, "hard_tanh", weights, sigma_w=1.2, sigma_b=0.3, q="fixed_point")
    x = 1 / math.sqrt(2 * hard.fixed_point())
    assert hard.spectrum() == laws.PlainChain(
        5, slope_probability=hard.activation.slope_law(hard.fixed_point()).probabilities[1],
        slope_complement=hard.activation.slope_law(hard.fixed_point()).complements[1],
        weight_variance=hard.weight_variance, weights=weights)
    assert hard.spectrum().mean() == pytest.approx((1.44 * math.erf(x)) ** 5, rel=1e-10, abs=0)


def test_exact_spectra_have_the_mean_and_variance_of_the_network():
    for net in (FeedForward(6, "relu", sigma_w=1.3, sigma_b=0.2),
                FeedForward(6, "relu", "orthogonal", sigma_w=1.3),
                critical("hard_tanh", 0.4)):
        law = net.spectrum()
        mean = float(np.prod(net.propagate().kappa))
        assert law.mean() == pytest.approx(mean, rel=1e-10, abs=0)
        assert law.variance() / mean**2 == pytest.approx(net.jacobian_variance(), rel=1e-9, abs=0)


def test_users_relu_and_equal_scaled_slopes_are_recognised():
    user = activation(lambda h: np.maximum(h, 0), derivative=lambda h: 1.0 * (h > 0), kinks=[0.0])
    assert (FeedForward(6, user, sigma_w=1.3).spectrum()
            == FeedForward(6, "relu", sigma_w=1.3).spectrum())
    absolute = activation("leaky_relu", slope=-1.0)
    assert FeedForward(6, absolute).spectrum() == FeedForward(6, "linear").spectrum()


def test_hard_tanh_whose_variance_has_settled_counts_as_equal_layers():
    start = FeedForward(6, "hard_tanh", sigma_w=1.2, sigma_b=0.3, q="fixed_point")
    settled = FeedForward(6, "hard_tanh", sigma_w=1.2, sigma_b=0.3,
                          input_second_moment=(start.fixed_point() - 0.09) / 1.44)
    assert np.ptp(settled.propagate().q) <= 1e-15 * start.fixed_point()
    assert settled.spectrum().mean() == pytest.approx(start.spectrum().mean(), rel=1e-12, abs=0)
    nearly = FeedForward(6, "hard_tanh", sigma_w=1.2, sigma_b=0.3,
                         input_second_moment=settled.input_second_moment * (1 + 1e-9))
    assert len(nearly.blocks()) > 1
    assert isinstance(nearly.spectrum(), ChainLaw)


@pytest.mark.parametrize("name", ["tanh", "erf", "arctan", "softsign", "sin"])
def test_smooth_universality_class(name):
    net = critical(name, 0.05)
    law = net.spectrum(limit=True)
    assert law == laws.SmoothLimit(net.jacobian_variance())
    assert law.variance() == pytest.approx(net.jacobian_variance(), rel=1e-9, abs=0)


def test_bernoulli_universality_class():
    net = critical("hard_tanh", 0.3)
    assert net.spectrum(limit=True) == laws.BernoulliLimit(net.jacobian_variance())
    assert net.jacobian_variance() == pytest.approx(
        20 * math.erfc(1 / math.sqrt(0.6)) / math.erf(1 / math.sqrt(0.6)), rel=1e-13, abs=0)


def test_users_activations_fall_into_the_right_class():
    smooth = activation(np.tanh, derivative=lambda h: 1 - np.tanh(h) ** 2)
    assert isinstance(critical(smooth, 0.05).spectrum(limit=True), laws.SmoothLimit)
    clip = activation(lambda h: np.clip(h, -1, 1), derivative=lambda h: 1.0 * (np.abs(h) < 1),
                      kinks=[-1.0, 1.0])
    assert isinstance(critical(clip, 0.3).spectrum(limit=True), laws.BernoulliLimit)
    undeclared = activation(lambda h: np.clip(h, -1, 1),
                            derivative=lambda h: 1.0 * (np.abs(h) < 1))
    with pytest.raises(ValueError, match="neither"):
        critical(undeclared, 0.3).spectrum(limit=True)
    steps = activation(lambda h: np.clip(h, -1, 1) + 0.5 * (h - np.clip(h, -1, 1)),
                       derivative=lambda h: np.where(np.abs(h) < 1, 1.0, 0.5), kinks=[-1.0, 1.0])
    with pytest.raises(ValueError, match="neither"):
        critical(steps, 0.3).spectrum(limit=True)


@pytest.mark.parametrize(("net", "words"), [
    (critical("tanh", 0.1, weights="gaussian"), ["orthogonal", "20"]),
    (FeedForward(20, "tanh", "orthogonal", sigma_w=1.3, sigma_b=0.4), ["chi = 0.88", "q*"]),
    (FeedForward(20, "relu", "orthogonal", sigma_w=math.sqrt(2)),
     ["relative variance of 1", "relu"]),
    (FeedForward(20, activation("leaky_relu", slope=0.5), "orthogonal",
                 sigma_w=math.sqrt(1.6)), ["relative variance of 0.36"]),
    (FeedForward(20, "linear", "orthogonal"), ["single atom"]),
    (FeedForward(20, "tanh", "orthogonal", sigma_w=0.9), ["dies out"]),
])
def test_networks_outside_the_universality_classes_say_why(net, words):
    with pytest.raises(ValueError) as caught:
        net.spectrum(limit=True)
    for word in words:
        assert word in str(caught.value)
