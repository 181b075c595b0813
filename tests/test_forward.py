"""Random networks as they are drawn and run: widths, long branches, batch norm."""

import math

import numpy as np
import pytest

from fastspec import FeedForward, ResNet
from fastspec._forward import draw_weight, layer_sizes, run
from fastspec.simulate import jacobian_singular_values


def test_layer_sizes():
    net = FeedForward(3, "tanh", widths=(0.5, 1.0, 0.26, 2.0))
    assert layer_sizes(net, 10) == [5, 10, 3, 20]
    assert layer_sizes(FeedForward(2, "tanh"), 7) == [7, 7, 7]
    with pytest.raises(ValueError, match="width must leave every layer a unit, got 1"):
        layer_sizes(net, 1)


@pytest.mark.parametrize(("outputs", "inputs"), [(5, 8), (8, 5), (6, 6)])
def test_orthogonal_weights_of_any_shape(outputs, inputs):
    weight = draw_weight("orthogonal", 2.0, outputs, inputs, np.random.default_rng(0))
    assert weight.shape == (outputs, inputs)
    smaller = weight @ weight.T if outputs <= inputs else weight.T @ weight
    np.testing.assert_allclose(smaller, 2.0 * np.eye(len(smaller)), atol=1e-14)


def test_gaussian_weights_have_their_variance_per_input():
    weight = draw_weight("gaussian", 3.0, 400, 200, np.random.default_rng(0))
    assert np.var(weight) * 200 == pytest.approx(3.0, rel=5 * math.sqrt(2 / weight.size))


def finite_differences(net, x, sizes, step=1e-4):
    def output(point):
        return run(net, point, sizes, np.random.default_rng(6))[0]

    columns = [(output(x + step * e) - output(x - step * e)) / (2 * step) for e in np.eye(x.size)]
    return np.array(columns).T


@pytest.mark.parametrize("net", [
    FeedForward(3, "tanh", sigma_w=1.3, sigma_b=0.4, widths=(0.5, 1.0, 2.0, 1.5)),
    FeedForward(2, "tanh", "orthogonal", sigma_w=1.3, widths=(1.5, 1.0, 2.0)),
    ResNet(3, "tanh", sigma_w=1.3, sigma_b=0.4, skip=0.7, branch_layers=2),
    ResNet(2, "tanh", "orthogonal", sigma_w=1.3, branch_layers=3),
])
def test_jacobian_equals_finite_differences_of_the_forward_pass(net):
    sizes = layer_sizes(net, 8)
    x = np.linspace(-1.0, 1.5, sizes[0])
    jacobian = run(net, x, sizes, np.random.default_rng(6))[1]
    assert jacobian.shape == (sizes[-1], sizes[0])
    # Central differences: error of order step^2 = 1e-8.
    np.testing.assert_allclose(jacobian, finite_differences(net, x, sizes), atol=1e-7)


def test_batch_norm_leaves_out_the_derivative_of_the_root_mean_square():
    net = ResNet(1, "tanh", sigma_w=1.3, skip=0.5, batch_norm=(1.7, 0.3))
    sizes, x = [9, 9], np.linspace(-1.0, 1.5, 9)
    weight = draw_weight("gaussian", 1.69, 9, 9, np.random.default_rng(6))
    h = weight @ x
    size = np.sqrt(np.mean(h * h))
    normalised = 1.7 * h / size + 0.3
    output, jacobian = run(net, x, sizes, np.random.default_rng(6))
    np.testing.assert_allclose(output, np.tanh(normalised) + 0.5 * x, rtol=1e-13)
    slopes = 1.7 / size / np.cosh(normalised) ** 2
    branch = slopes[:, np.newaxis] * weight
    np.testing.assert_allclose(jacobian, branch + 0.5 * np.eye(9), rtol=1e-12)
    # What is left out is a matrix of rank one.
    left_out = jacobian - finite_differences(net, x, sizes)
    singular_values = np.linalg.svd(left_out, compute_uv=False)
    assert singular_values[0] > 0.05
    assert singular_values[1] < 1e-7


def test_singular_values_are_those_of_j_j_transposed():
    net = FeedForward(2, "linear", widths=(0.5, 1.0, 2.0))
    s = jacobian_singular_values(net, 20, seed=1)
    assert s.shape == (40,)
    assert np.all(s[:10] > 1e-3) and np.all(s[10:] == 0.0)
    assert jacobian_singular_values(FeedForward(1, "linear", widths=(2, 1)), 20, seed=1).size == 20
    with pytest.raises(ValueError, match=r"input must have shape \(10,\)"):
        jacobian_singular_values(net, 20, seed=1, input=np.ones(20))


@pytest.mark.parametrize("net", [
    FeedForward(2, "tanh", sigma_w=1.5, widths=(0.5, 1.5, 1.0)),
    FeedForward(2, "tanh", "orthogonal", sigma_w=1.5, widths=(0.5, 1.5, 1.0)),
    ResNet(2, "tanh", sigma_w=1.0, batch_norm=(1.5, -0.4)),
    ResNet(2, "tanh", sigma_w=1.5, branch_layers=2, skip=0.8),
])
def test_mean_and_variance_of_the_eigenvalues_are_those_of_the_blocks(net):
    draws = [jacobian_singular_values(net, 200, seed=seed) ** 2 for seed in range(36)]
    widths = getattr(net, "widths", None)
    shares = [1.0] * net.depth
    if widths is not None:
        shares = [widths[-1] / width for width in widths[1:]]
        moments = [(b.first_moment(inputs), b.relative_variance(inputs))
                   for b, inputs in zip(net.blocks(), widths[:-1], strict=True)]
    else:
        moments = [(b.first_moment(), b.relative_variance()) for b in net.blocks()]
    first = np.array([lam.mean() for lam in draws])
    second = np.array([(lam**2).mean() for lam in draws])
    mean = math.prod(m for m, _ in moments)
    variance = math.fsum(s * v for s, (_, v) in zip(shares, moments, strict=True))
    for values, theory in ((first, mean), (second, mean**2 * (1.0 + variance))):
        error = values.std(ddof=1) / 6.0
        assert error < 0.04 * theory
        assert abs(values.mean() - theory) < 3.0 * error + 0.01 * theory     # 1/N corrections
