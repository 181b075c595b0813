"""Compression of many different factors: what the rules must keep, and when they are trusted."""

import math

import numpy as np
import pytest

from fastspec import FeedForward, ResNet
from fastspec._compress import choose, compress
from fastspec._factors import factors
from fastspec.blocks import Layer, Residual

# Points m of the lower half plane, where laws are solved.
POINTS = np.array([-0.5 - 0.4j, 0.3 - 0.8j, 1.0 - 0.1j, -0.2 - 0.05j])
# Slope law by the trapezoid rule, exact to rounding for smooth slopes of moderate q at this step.
_H = np.linspace(-9.0, 9.0, 121)
_W = np.exp(-0.5 * _H * _H) / np.sum(np.exp(-0.5 * _H * _H))


def log_s(factor):
    """log S_b(m) of a square factor of one layer at the points, by continuation from m = 0.

    In the unknown x = log(zeta m/(1 + m)): u = M(zeta), x_block = (1+u)^2 S_W(u)/zeta, and
    t(1+t) = a^2 x_block, t = m - u. Slopes of the equations by differences.
    """
    layer, = factor.layers
    d = layer.activation.derivative(layer.mean + math.sqrt(layer.q) * _H) ** 2
    gaussian = layer.weights == "gaussian"

    def block(x, m):
        zeta = np.exp(x) * (1 + m) / m
        u = (d / (zeta[:, np.newaxis] - d)) @ _W
        argument = (1 + u) ** (1 if gaussian else 2) / (zeta * layer.weight_variance)
        return u, argument

    def equation(x, m):
        u, argument = block(x, m)
        if not factor.skip:
            return u / m - 1
        return ((m - u) * (1 + m - u) / (factor.skip**2 * argument)) - 1

    mean = _W @ d
    kappa = layer.weight_variance * mean
    start = math.log(mean * (factor.skip**2 + kappa) / kappa)
    x = np.full(POINTS.shape, start, dtype=complex)
    for part in np.linspace(0.0, 1.0, 17)[1:]:
        m = part * POINTS
        for _ in range(20):
            slope = (equation(x + 1e-6, m) - equation(x - 1e-6, m)) / 2e-6
            change = equation(x, m) / slope
            x = x - change
            if np.max(np.abs(change)) < 3e-14:
                break
        else:
            raise ArithmeticError("no convergence")
    u, argument = block(x, m)
    return np.log(argument / (m * (1 + m)))


def values_at_points(chain):
    out = sum(factor.weight * log_s(factor) for factor in chain)
    return np.concatenate([out.real, out.imag])


def mean_and_variance(chain):
    blocks = [(Residual(*(Layer(layer.activation, q=layer.q, weights=layer.weights, mean=layer.mean,
                                weight_variance=layer.weight_variance) for layer in f.layers),
                        skip=f.skip), f.weight) for f in chain]
    return np.array([sum(weight * math.log(block.first_moment()) for block, weight in blocks),
                     sum(weight * block.relative_variance() for block, weight in blocks)])


def tanh_resnet(depth=300, **more):
    return factors(ResNet(depth, "tanh", sigma_w=1.5, **more).blocks())


def test_the_check_itself():
    # Linear Gaussian: S = 1/(s2 (1 + m)); residual: u(1+u) S(u) = u/s2.
    plain, = factors([Layer("linear", q=1.0, weight_variance=2.0)])
    assert log_s(plain) == pytest.approx(-np.log(2 * (1 + POINTS)), rel=1e-12)
    block, = factors([Residual(Layer("linear", q=1.0, weight_variance=0.5), skip=0.7)])
    x = POINTS * (1 + POINTS) * np.exp(log_s(block))
    u = 0.5 * x
    assert (POINTS - u) * (1 + POINTS - u) == pytest.approx(0.49 * x, rel=1e-11)


@pytest.mark.parametrize(("net", "total", "nodes", "accuracy"), [
    (ResNet(100, "tanh", sigma_w=1.5), values_at_points, 7, 1e-13),
    # q falls over eight decades, towards 0.
    (ResNet(100, "tanh", "orthogonal", sigma_w=1.5, skip=0.9), values_at_points, 7, 1e-13),
    (FeedForward(40, "tanh", "orthogonal", sigma_w=1.4, sigma_b=0.2), values_at_points, 7, 1e-13),
    # A kink at 0: moments are series in sqrt(q).
    (ResNet(60, "elu", sigma_w=1.5, skip=0.9), mean_and_variance, 7, 1e-13),
    # Only the weight variance differs, over two decades.
    (ResNet(100, "tanh", sigma_w=1.5, batch_norm=(1.1, 0.2)), values_at_points, 16, 1e-12),
    # Two variances of every block differ, one a function of the other.
    (ResNet(100, "tanh", sigma_w=1.5, branch_layers=2), mean_and_variance, 8, 1e-13),
], ids=["resnet", "dying", "plain", "elu", "batch_norm", "two_layers"])
def test_a_few_weighted_factors_stand_for_many(net, total, nodes, accuracy):
    chain = factors(net.blocks())
    assert len(chain) == net.depth
    short = compress(chain, nodes)
    assert len(short) == nodes
    exact = total(chain)
    scale = np.max(np.abs(exact))
    assert np.max(np.abs(total(short) - exact)) <= accuracy * scale
    # Two nodes are not enough: the comparison can fail.
    assert np.max(np.abs(total(compress(chain, 2)) - exact)) > 10 * accuracy * scale


def test_a_rule_keeps_weight_and_moments():
    chain = factors(ResNet(200, "sigmoid", sigma_w=2.0, depth_scaled=False).blocks())
    nodes = 5
    short = compress(chain, nodes)
    weight, w = np.ones(len(chain)), np.array([f.weight for f in short])
    places, x = (np.arcsinh(np.sqrt([f.layers[0].q for f in part])) for part in (chain, short))
    assert np.all(w > 0)
    for power in range(2 * nodes):
        assert w @ x**power == pytest.approx(weight @ places**power, rel=1e-12)
    assert w @ x ** (2 * nodes) != pytest.approx(weight @ places ** (2 * nodes), rel=1e-9)
    # What does not differ is kept exactly.
    assert {f.layers[0].weight_variance for f in short} == {4.0}


def test_weights_count_as_repeats():
    few = [Layer("tanh", q=0.1 * 1.1**i, weight_variance=1.0, repeat=1 + i % 3) for i in range(12)]
    many = [Layer("tanh", q=layer.q, weight_variance=1.0)
            for layer in few for _ in range(layer.repeat)]
    for one, other in zip(compress(factors(few), 4), compress(factors(many), 4), strict=True):
        assert one.weight == pytest.approx(other.weight, rel=1e-11)
        assert one.layers[0].q == pytest.approx(other.layers[0].q, rel=1e-12)


def test_groups_are_kept_apart_and_small_ones_as_they_are():
    def some(number, **more):
        arguments = {"weight_variance": 1.0} | more
        return [Layer("tanh", q=0.1 + 0.05 * i, **arguments) for i in range(number)]

    chain = factors([*some(9), *some(3, weights="orthogonal"), *some(9, mean=0.5),
                     *(Residual(layer) for layer in some(7)),
                     *(Residual(layer, skip=0.5) for layer in some(2))])
    short = compress(chain, 4)
    assert len(short) == 4 + 3 + 4 + 4 + 2
    kept = [f for f in chain if f.layers[0].weights == "orthogonal" or f.skip == 0.5]
    assert [f for f in short if f in kept] == kept
    assert sum(f.weight for f in short) == pytest.approx(30, rel=1e-14)


def test_few_distinct_places_end_the_recurrence():
    # The two variances do not depend on each other: five q with two weight variances each.
    chain = factors([Layer("tanh", q=q, weight_variance=v)
                     for q in (0.1, 0.2, 0.5, 1.0, 3.0) for v in (1.0, 1.5)])
    short = compress(chain, 8)
    assert len(short) == 5
    assert [f.weight for f in short] == pytest.approx([2.0] * 5, rel=1e-12)


def node_dependence(rate):
    """A measure whose values approach 1 like rate^nodes."""
    def measure(chain):
        return np.array([1.0 + rate ** len(chain), 2.0])
    return measure


def test_choice_needs_two_agreements_in_a_row():
    chain = tanh_resnet(depth=40)
    asked = []

    def measure(short):
        asked.append(len(short))
        return np.array([{3: 0.5, 4: 1.0, 6: 1.0, 8: 2.0, 12: 2.0, 16: 2.0}[len(short)]])

    short, error = choose(chain, measure, 1e-12)
    assert asked == [3, 4, 6, 8, 12, 16]
    assert (len(short), error) == (16, 0.0)


def test_choice_reports_the_last_difference():
    chain = tanh_resnet(depth=40)
    short, error = choose(chain, node_dependence(0.1), 1e-5)
    assert len(short) == 12
    assert error == pytest.approx(1e-8, rel=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_could_not_be_had_agree_with_nothing(value):
    chain = tanh_resnet(depth=40)
    signs = iter([1, -1] * 8)
    kept, error = choose(chain, lambda short: np.array([value * next(signs), 1.0]), 1e9)
    assert (kept, error) == (chain, 0.0)


def test_all_factors_are_kept_without_agreement_or_gain():
    chain = tanh_resnet(depth=40)
    assert choose(chain, node_dependence(0.999), 1e-9) == (chain, 0.0)

    def never(short):
        raise AssertionError("nothing to compare")

    assert choose(chain[:3], never, 1e-9) == (chain[:3], 0.0)


def test_relu_layers_are_one_factor():
    for net in (FeedForward(50, "relu", sigma_w=1.3, sigma_b=0.4),
                ResNet(50, "leaky_relu", sigma_w=1.3, sigma_b=0.4),
                ResNet(50, "relu", branch_layers=2)):
        chain = factors(net.blocks())
        assert [factor.weight for factor in chain] == [50.0]
