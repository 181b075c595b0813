"""Blocks turned into distinct factors, and into what the compiled chain takes."""

import pytest

import fastspec._slope_rules
from fastspec._compress import compress
from fastspec._factors import Factor, factors, kernel_blocks, with_constant_slopes
from fastspec.blocks import Layer, Residual
from fastspec.networks import ResNet


def tanh(q=1.0, **more):
    return Layer("tanh", q=q, **({"weight_variance": 1.0} | more))


def test_equal_blocks_are_one_factor_in_any_order():
    chain = factors([tanh(repeat=2), Residual(tanh(), repeat=3), tanh(0.5), tanh(),
                     Residual(tanh(), skip=-1.0)])
    assert [(f.skip, f.layers[0].q, f.weight) for f in chain] == [
        (0.0, 0.5, 1.0), (0.0, 1.0, 3.0), (1.0, 1.0, 4.0)]
    assert all(f.layers[0].width_in == f.layers[0].width_out == 1.0 for f in chain)


def test_layers_know_their_inputs():
    chain = factors([tanh(width=2.0), tanh(width=2.0), tanh(repeat=3, width=0.5),
                     tanh(width=2.0)], input_width=1.5)
    assert [(f.layers[0].width_in, f.layers[0].width_out, f.weight) for f in chain] == [
        (1.5, 2.0, 1.0), (2.0, 2.0, 1.0), (2.0, 0.5, 1.0), (0.5, 0.5, 2.0), (0.5, 2.0, 1.0)]


def test_the_last_factor_has_the_width_of_the_output():
    blocks = [tanh(width=2.0), tanh(width=1.0), tanh(width=2.0)]
    chain = factors(blocks)
    assert [(f.layers[0].width_in, f.layers[0].width_out) for f in chain] == [(2.0, 1.0),
                                                                             (1.0, 2.0)]
    many = [tanh(0.1 * (1 + i), width=1.0 + i % 2) for i in range(20)]
    assert compress(factors(many), 4)[-1].layers[0].width_out == 2.0


@pytest.mark.parametrize(("one", "other", "equal"), [
    ({"activation": "relu", "q": 1.0}, {"activation": "relu", "q": 3.0}, True),
    ({"activation": "leaky_relu", "q": 1.0}, {"activation": "leaky_relu", "q": 3.0}, True),
    ({"activation": "linear", "q": 1.0}, {"activation": "linear", "q": 3.0, "mean": 2.0}, True),
    ({"activation": "relu", "q": 1.0, "mean": 1.0}, {"activation": "relu", "q": 3.0, "mean": 1.0},
     False),
    ({"activation": "hard_tanh", "q": 1.0}, {"activation": "hard_tanh", "q": 3.0}, False),
    ({"activation": "elu", "q": 1.0}, {"activation": "elu", "q": 3.0}, False),
])
def test_slope_laws_that_do_not_depend_on_q_are_one(one, other, equal):
    chain = factors([Layer(**one, weight_variance=1.0), Layer(**other, weight_variance=1.0)])
    assert len(chain) == (1 if equal else 2)


def test_only_the_product_of_a_branchs_weight_variances_counts():
    one = Residual(tanh(weight_variance=2.0), tanh(weight_variance=0.75))
    other = Residual(tanh(weight_variance=0.5), tanh(weight_variance=3.0))
    factor, = factors([one, other])
    assert [layer.weight_variance for layer in factor.layers] == [1.5, 1.0]
    assert factor.weight == 2.0


def test_repeats_in_a_branch_are_written_out():
    factor, = factors([Residual(tanh(weight_variance=0.5, repeat=3))])
    assert len(factor.layers) == 3
    assert factor.layers[0].weight_variance == 0.125


@pytest.mark.parametrize(("blocks", "words"), [
    ([], "non-empty"), ("tanh", "non-empty"), (tanh(), "non-empty"), (None, "None"),
    ([tanh(), 3], "got 3"), ([tanh(width=2.0), Residual(tanh())], "block 2 is residual"),
])
def test_bad_chains_are_named(blocks, words):
    with pytest.raises(ValueError, match=words):
        factors(blocks)


@pytest.mark.parametrize("width", [0.0, -1.0, "1", None])
def test_bad_input_widths_are_named(width):
    with pytest.raises(ValueError, match="input_width"):
        factors([tanh()], width)


def test_kernel_blocks_share_slope_laws(monkeypatch):
    made = []

    def kernel_slopes(*key):
        made.append(key)
        return object()

    monkeypatch.setattr(fastspec._slope_rules, "kernel_slopes", kernel_slopes)
    chain = factors([tanh(weight_variance=2.0, weights="orthogonal", width=0.5),
                     Residual(tanh(width=0.5), tanh(0.3, width=0.5), skip=-0.9, repeat=5)])
    known = {}
    (layers, skip, weight), (branch, branch_skip, branch_weight) = kernel_blocks(chain, known)
    assert (skip, weight, branch_skip, branch_weight) == (0.0, 1.0, 0.9, 5.0)
    assert layers[0][1:] == (2.0, True, 0.5, 1.0)
    assert branch[0][1:] == (1.0, False, 0.5, 0.5)
    assert branch[0][0] is layers[0][0] and branch[1][0] is not layers[0][0]
    assert [key[1:] for key in made] == [(1.0, 0.0), (0.3, 0.0)]
    kernel_blocks([Factor(*factor) for factor in chain], known)
    assert len(made) == 2


def test_slopes_without_spread_are_their_mean():
    """tanh at q: E phi'^2 = 1 - 2q + ..., standard deviation about sqrt(8) q."""
    wide, narrow = tanh(0.5, weights="orthogonal", weight_variance=3.0, repeat=2), 1e-17
    chain = factors([wide, tanh(narrow, weights="orthogonal", weight_variance=5.0, repeat=4),
                     tanh(narrow, weight_variance=7.0),
                     Residual(tanh(narrow, weight_variance=11.0)), tanh(1e-14)])
    first, gaussian, block, kept = with_constant_slopes(chain, {})
    # 5^4 in all, shared by two layers
    assert first.layers[0].activation.name == "tanh" and first.weight == 2.0
    assert first.layers[0].weight_variance == pytest.approx(75.0, rel=1e-13)
    for factor, variance in ((gaussian, 7.0), (block, 11.0)):
        assert factor.layers[0].activation.name == "linear"
        assert factor.layers[0].weight_variance == pytest.approx(variance, rel=1e-14)
    assert (gaussian.skip, block.skip) == (0.0, 1.0)
    assert kept == chain[-1]        # 1e-14 is more than a rounding


def test_numbers_alone_are_one_factor():
    chain = factors([tanh(q, weights="orthogonal", weight_variance=q * 1e20)
                     for q in (1e-20, 1e-19)])
    factor, = with_constant_slopes(chain, {})
    assert factor.weight == 2.0
    assert factor.layers[0].weight_variance ** 2 == pytest.approx(10.0, rel=1e-13)


def test_plainly_varying_slopes_cost_no_slope_laws(monkeypatch):
    """A law takes a millisecond; chains of a thousand unequal layers are to be solved in thirty."""
    def no_law(*_):
        raise AssertionError("a slope law was made")

    monkeypatch.setattr("fastspec._slope_rules.kernel_slopes", no_law)
    chain = factors(ResNet(50, "tanh").blocks(), 1.0)
    assert with_constant_slopes(chain, {}) == chain
