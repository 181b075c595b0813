"""Residual networks with batch norm and with branches of several layers, and their blocks."""

import math
import pickle

import numpy as np
import pytest

from fastspec import laws
from fastspec.blocks import Layer, Residual
from fastspec.quadrature import moments
from fastspec.resnet import ResNet


@pytest.mark.parametrize(("field", "value", "words"), [
    ("batch_norm", False, "False"), ("batch_norm", 1.0, "1.0"), ("batch_norm", (1.0,), "pair"),
    ("batch_norm", (0.0, 1.0), "gamma"), ("batch_norm", (1.0, math.nan), "nan"),
    ("batch_norm", ("1", 0.0), "'1'"), ("branch_layers", 0, "0"), ("branch_layers", 1.5, "1.5"),
    ("branch_layers", True, "True"),
])
def test_bad_arguments_are_named(field, value, words):
    with pytest.raises(ValueError, match=f"{field}.*{words}"):
        ResNet(3, "tanh", **{field: value})


def test_values():
    net = ResNet(3, "tanh", batch_norm=True, branch_layers=np.int64(2))
    assert net == ResNet(3, "tanh", batch_norm=[1, 0], branch_layers=2)
    assert hash(net) == hash(ResNet(3, "tanh", batch_norm=(1.0, 0.0), branch_layers=2))
    assert pickle.loads(pickle.dumps(net)) == net


def test_the_branch_as_a_whole_scales_with_depth():
    assert ResNet(16, "relu", sigma_w=2.0, branch_layers=2).weight_variance == 1.0
    assert ResNet(8, "relu", sigma_w=2.0, branch_layers=3).weight_variance == pytest.approx(2.0)
    plain = ResNet(16, "relu", sigma_w=2.0, branch_layers=2, depth_scaled=False)
    assert plain.weight_variance == 4.0
    # kappa = sigma^4 mu mu' = 1/4 per unit of 1/L, whatever the depth.
    for depth in (5, 80):
        net = ResNet(depth, "relu", sigma_w=1.0, branch_layers=2)
        assert net.effective_cumulant() == pytest.approx(0.25, rel=1e-14)


# --- propagation ------------------------------------------------------------------------------

def forward(net, width, rng):
    """Per block: E h^2 of every branch layer before normalisation, then E x and E x^2."""
    x = rng.standard_normal(width)
    x -= x.mean()
    x *= math.sqrt(net.input_second_moment / np.mean(x * x))
    rows = []
    for _ in range(net.depth):
        y, row = x, []
        for _ in range(net.branch_layers):
            weight = rng.standard_normal((width, width)) * math.sqrt(net.weight_variance / width)
            h = weight @ y + net.sigma_b * rng.standard_normal(width)
            row.append(np.mean(h * h))
            if net.batch_norm:
                gamma, beta = net.batch_norm
                h = gamma * h / h.std() + beta
            y = net.activation(h)
        x = y + net.skip * x
        rows.append([*row, np.mean(x), np.mean(x * x)])
    return np.array(rows)


NETS = [
    ResNet(4, "gelu", sigma_w=1.6, sigma_b=0.3, batch_norm=(0.8, 0.4)),
    ResNet(4, "relu", sigma_w=1.5, sigma_b=0.2, branch_layers=2),
    ResNet(3, "tanh", sigma_w=1.5, skip=0.8, branch_layers=3, batch_norm=True),
]


def layer_columns(result):
    return [*result.inner, result]


@pytest.mark.parametrize("net", NETS, ids=["batch_norm", "two", "both"])
def test_propagation_agrees_with_real_forward_passes(net):
    rng = np.random.default_rng(20240229)
    samples = np.array([forward(net, 400, rng) for _ in range(30)])
    mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(30)
    result = net.propagate()
    assert len(result.inner) == net.branch_layers - 1
    columns = [layer.q for layer in layer_columns(result)]
    theory = np.stack([*columns, result.mean, result.second_moment], axis=1)
    assert np.all(np.abs(mean - theory) < 4.0 * error + 4e-3 * np.abs(theory))


def test_batch_norm_fixes_what_phi_sees():
    net = ResNet(6, "softplus", sigma_w=1.4, sigma_b=0.3, batch_norm=(-0.7, 0.5))
    result = net.propagate()
    at = moments(net.activation, 0.49, 0.5)
    assert result.slope_mean == pytest.approx(np.full(6, at.slope_mean), rel=1e-15)
    assert result.slope_second == pytest.approx(np.full(6, at.slope_second), rel=1e-15)
    assert result.mean == pytest.approx(at.mean * np.arange(1, 7), rel=1e-14)
    second = 1 + sum(2 * k * at.mean**2 + at.second_moment for k in range(3))
    assert result.q[3] == pytest.approx(1.96 / 6 * second + 0.09, rel=1e-14)
    # kappa = sigma^2 E (gamma phi'(y) / std)^2.
    kappa = net.weight_variance * 0.49 * at.slope_mean / result.q
    assert result.kappa == pytest.approx(kappa, rel=1e-14)
    assert net.effective_cumulant() == pytest.approx(math.fsum(kappa), rel=1e-14)


def test_kappa_of_a_branch_is_the_product():
    result = ResNet(5, "tanh", sigma_w=1.3, branch_layers=3, sigma_b=0.1).propagate()
    s2 = ResNet(5, "tanh", sigma_w=1.3, branch_layers=3).weight_variance
    product = np.prod([s2 * layer.slope_mean for layer in layer_columns(result)], axis=0)
    assert result.kappa == pytest.approx(product, rel=1e-14)
    assert result.inner[0].kappa == pytest.approx(s2 * result.inner[0].slope_mean, rel=1e-15)
    # The second layer sees the first one's output only.
    first, second = result.inner
    assert second.q == pytest.approx(s2 * first.second_moment + 0.01, rel=1e-15)


def test_inner_layers_are_columns_too():
    result = ResNet(5, "tanh", branch_layers=2).propagate()
    table = result.to_dict()
    assert table["inner1_q"] == result.inner[0].q.tolist()
    assert len(table) == 12
    with pytest.raises(ValueError, match="read-only"):
        result.inner[0].q[0] = 1.0
    assert "inner1_q" in repr(result)
    assert len(ResNet(5, "tanh").propagate().to_dict()) == 6


def test_batch_norm_of_silent_layers_is_refused():
    with pytest.raises(ValueError, match="batch_norm.*layer 1 of 3"):
        ResNet(3, "tanh", input_second_moment=0.0, batch_norm=True).propagate()


def test_explosion_inside_a_branch_names_the_block():
    net = ResNet(200, "linear", sigma_w=10.0, depth_scaled=False, branch_layers=2)
    with pytest.raises(OverflowError, match="layer 78 of 200"):   # q ~ 100 * 1e4^77
        net.propagate()


# --- blocks -----------------------------------------------------------------------------------

@pytest.mark.parametrize("net", NETS, ids=["batch_norm", "two", "both"])
def test_blocks_carry_the_propagated_statistics(net):
    result, blocks = net.propagate(), net.blocks()
    assert len(blocks) == net.depth
    means = [block.first_moment() for block in blocks]
    assert means == pytest.approx(net.skip**2 + result.kappa, rel=1e-14)
    for i, block in enumerate(blocks):
        assert block.skip == net.skip
        branch = [layer.slope_second[i] / layer.slope_mean[i] ** 2
                  for layer in layer_columns(result)]
        kappa = result.kappa[i]
        variance = 2 * net.skip**2 * kappa + kappa**2 * math.fsum(branch)
        assert block.relative_variance() == pytest.approx(variance / means[i] ** 2, rel=1e-12)


def test_blocks_in_full():
    net = ResNet(2, "tanh", "orthogonal", sigma_w=1.2, skip=-0.9)
    q = net.propagate().q.tolist()
    assert net.blocks() == [
        Residual(Layer("tanh", q=x, weight_variance=0.72, weights="orthogonal"), skip=-0.9)
        for x in q]
    first = ResNet(2, "tanh", sigma_w=1.2, batch_norm=(2.0, 0.3)).blocks()[0].layers[0]
    assert (first.q, first.mean) == (4.0, 0.3)
    assert first.weight_variance == pytest.approx(4.0, rel=1e-15)    # s^2 gamma^2 / (s^2 E x^2)


def test_equal_blocks_are_one():
    # |x|^2 stays where it is: skip^2 + sigma_w^2 E phi^2/q = 1.
    net = ResNet(7, "linear", sigma_w=0.6, skip=0.8, depth_scaled=False)
    assert sum(block.repeat for block in net.blocks()) == 7
    still = ResNet(7, "tanh", input_second_moment=0.0)
    assert [block.repeat for block in still.blocks()] == [7]


@pytest.mark.parametrize("net", NETS, ids=["batch_norm", "two", "both"])
def test_the_limit_law_has_the_sum_of_kappa(net):
    assert net.spectrum(limit=True) == laws.ResNetLimit(
        math.fsum(net.propagate().kappa), skip=net.skip, depth=net.depth)
