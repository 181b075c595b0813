"""Outliers against real networks: means over twenty seeds at width 500."""

import math

import numpy as np
import pytest

from fastspec import FeedForward, ResNet, activation

pytestmark = pytest.mark.slow

WIDTH, SEEDS = 500, 20

NETS = {
    "relu": ResNet(10, "relu"),
    "leaky_biased": ResNet(10, activation("leaky_relu", slope=0.2), sigma_w=1.2, sigma_b=0.3,
                           input_mean=0.6),
    "silu": ResNet(8, "silu", sigma_w=1.5, sigma_b=0.2, skip=0.9, input_second_moment=2.0),
    "gelu_orthogonal": ResNet(8, "gelu", "orthogonal", sigma_w=math.sqrt(2.4)),
    "abs": ResNet(8, activation(np.abs, np.sign, kinks=(0.0,)), sigma_w=0.7),
    "feed_forward": FeedForward(4, "gelu", sigma_w=math.sqrt(3.0), input_second_moment=0.1,
                                input_mean=0.2),
    "relu_below": ResNet(20, "relu", sigma_w=0.25),
}


def weight(net, rng):
    matrix = rng.standard_normal((WIDTH, WIDTH))
    if net.weights == "gaussian":
        return math.sqrt(net.weight_variance / WIDTH) * matrix
    q, r = np.linalg.qr(matrix)
    return math.sqrt(net.weight_variance) * q * np.sign(np.diagonal(r))


def draw(net, seed):
    """Singular values, and cosines squared of the extreme ones' vectors with x and ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(WIDTH)
    x -= x.mean()
    x *= math.sqrt((net.input_second_moment - net.input_mean**2) * WIDTH) / np.linalg.norm(x)
    first = x = x + net.input_mean
    skip = getattr(net, "skip", 0.0)
    jacobian = np.eye(WIDTH)
    for _ in range(net.depth):
        w = weight(net, rng)
        h = w @ x + net.sigma_b * rng.standard_normal(WIDTH)
        x = skip * x + net.activation(h)
        jacobian = skip * jacobian + net.activation.derivative(h)[:, np.newaxis] * (w @ jacobian)
    u, s, vt = np.linalg.svd(jacobian)
    ones = np.ones(WIDTH)
    found = []
    for place in (0, -1):
        pairs = (vt[place], first), (vt[place], ones), (u[:, place], x), (u[:, place], ones)
        found.append([s[place] ** 2, *((a @ b / np.linalg.norm(b)) ** 2 for a, b in pairs)])
    return found


@pytest.mark.parametrize("name", NETS)
def test_outliers_are_those_of_real_networks(name):
    """Values within three standard errors; overlaps too, with what finite width may round."""
    net = NETS[name]
    predicted = {outlier.side: outlier for outlier in net.outliers()}
    assert "above" in predicted and ("below" in predicted) == (name == "relu_below")
    drawn = np.array([draw(net, seed) for seed in range(SEEDS)])
    for side, outlier in predicted.items():
        measured = drawn[:, 0 if side == "above" else 1]
        mean = measured.mean(axis=0)
        error = measured.std(axis=0, ddof=1) / math.sqrt(SEEDS)
        assert abs(mean[0] - outlier.value) < 3.0 * error[0]
        assert error[0] < 0.05 * outlier.value
        expected = [outlier.overlap_input, outlier.overlap_ones_input, outlier.overlap_output,
                    outlier.overlap_ones_output]
        np.testing.assert_array_less(np.abs(mean[1:] - expected), 3.0 * error[1:] + 0.015)
