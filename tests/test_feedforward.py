"""Feed-forward networks with unequal widths, and their blocks."""

import math
import pickle

import numpy as np
import pytest

from fastspec import laws
from fastspec.blocks import Layer
from fastspec.feedforward import FeedForward

WIDTHS = (1.5, 1.0, 2.0, 0.5)


@pytest.mark.parametrize(("widths", "words"), [
    ((1.0, 1.0), "depth \\+ 1 = 4 entries"), ((1.0, 1.0, 0.0, 1.0), "> 0, got 0.0"),
    ((1.0, 1.0, "2", 1.0), "'2'"), (2.0, "got 2.0"), ("1111", "'1111'"),
    ((1.0, 1.0, math.inf, 1.0), "inf"),
])
def test_bad_widths_are_named(widths, words):
    with pytest.raises(ValueError, match="widths.*" + words):
        FeedForward(3, "tanh", widths=widths)


def test_widths_are_stored_as_numbers():
    net = FeedForward(3, "tanh", widths=np.array(WIDTHS))
    assert net == FeedForward(3, "tanh", widths=list(WIDTHS))
    assert net.widths == WIDTHS
    assert pickle.loads(pickle.dumps(net)) == net
    assert not net.is_square
    assert FeedForward(3, "tanh", widths=[3, 3, 3, 3]).is_square


def test_gaussian_signals_do_not_see_the_widths():
    net = FeedForward(3, "gelu", sigma_w=1.3, sigma_b=0.2, widths=WIDTHS)
    plain = FeedForward(3, "gelu", sigma_w=1.3, sigma_b=0.2)
    assert net.propagate().to_dict() == plain.propagate().to_dict()


def test_tall_orthogonal_layers_spread_the_signal():
    # N_2/N_1 = 2: half of each unit's input variance, and of the mean squared singular value.
    net = FeedForward(3, "linear", "orthogonal", sigma_w=1.2, sigma_b=0.5, widths=WIDTHS)
    q1 = 1.44 + 0.25
    q2 = 0.72 * q1 + 0.25
    assert net.propagate().q == pytest.approx([q1, q2, 1.44 * q2 + 0.25], rel=1e-14)
    assert net.propagate().kappa == pytest.approx([1.44, 0.72, 1.44], rel=1e-14)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_propagation_with_widths_agrees_with_real_forward_passes(weights):
    net = FeedForward(3, "gelu", weights, sigma_w=1.6, sigma_b=0.3, widths=WIDTHS)
    rng = np.random.default_rng(3)
    sizes = [int(400 * width) for width in WIDTHS]
    samples = []
    for _ in range(30):
        x = rng.standard_normal(sizes[0])
        x /= math.sqrt(np.mean(x * x))
        rows = []
        for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
            weight = rng.standard_normal((outputs, inputs)) * 1.6 / math.sqrt(inputs)
            if weights == "orthogonal":
                tall = weight if outputs > inputs else weight.T
                basis = 1.6 * np.linalg.qr(tall)[0]
                weight = (basis if outputs > inputs else basis.T)
                weight *= rng.choice([-1.0, 1.0], size=outputs)[:, np.newaxis]
            h = weight @ x + 0.3 * rng.standard_normal(outputs)
            x = net.activation(h)
            rows.append((np.mean(h * h), np.mean(x * x)))
        samples.append(rows)
    mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / math.sqrt(30)
    result = net.propagate()
    theory = np.stack([result.q, result.second_moment], axis=1)
    assert np.all(np.abs(mean - theory) < 4.0 * error + 5e-3 * theory)


def test_fixed_points_need_one_variance_map():
    arguments = {"sigma_w": 1.5, "sigma_b": 0.3, "q": "fixed_point", "widths": WIDTHS}
    net = FeedForward(3, "tanh", **arguments)
    assert np.all(net.propagate().q == net.fixed_point())
    with pytest.raises(ValueError, match="fixed_point.*widths"):
        FeedForward(3, "tanh", "orthogonal", **arguments)
    narrowing = arguments | {"widths": (4.0, 3.0, 3.0, 1.0)}
    assert FeedForward(3, "tanh", "orthogonal", **narrowing).propagate().kappa[0] > 0


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_variance_of_the_spectrum_adds_over_layers(weights):
    net = FeedForward(3, "tanh", weights, sigma_w=1.5, sigma_b=0.3, widths=WIDTHS)
    shares = [WIDTHS[-1] / width for width in WIDTHS[1:]]
    terms = [block.relative_variance(inputs)
             for block, inputs in zip(net.blocks(), WIDTHS, strict=False)]
    assert net.jacobian_variance() == pytest.approx(np.dot(shares, terms), rel=1e-13)


def test_jacobian_moments_of_real_rectangular_networks():
    # Linear, Gaussian, widths 1, 1/2, 2: independent of the formula, E tr (J J^T)^2.
    net = FeedForward(2, "linear", widths=(1.0, 0.5, 2.0))
    rng, rows = np.random.default_rng(4), []
    for _ in range(30):
        first = rng.standard_normal((100, 200)) / math.sqrt(200)
        second = rng.standard_normal((400, 100)) / math.sqrt(100)
        square = second @ first
        square = square @ square.T
        rows.append((np.trace(square) / 400, np.sum(square * square) / 400))
    mean, second_moment = np.mean(rows, axis=0)
    assert mean == pytest.approx(1.0, abs=0.02)
    assert net.jacobian_variance() == pytest.approx(second_moment / mean**2 - 1, rel=0.03)


def test_blocks_are_the_layers_at_their_variances():
    net = FeedForward(4, "tanh", "orthogonal", sigma_w=1.4, sigma_b=0.2)
    blocks = net.blocks()
    assert [block.q for block in blocks] == net.propagate().q.tolist()
    assert blocks[0] == Layer("tanh", q=blocks[0].q, weight_variance=net.weight_variance,
                              weights="orthogonal")
    moments = [block.first_moment() for block in blocks]
    assert moments == pytest.approx(net.propagate().kappa, rel=1e-14)


def test_equal_layers_are_one_block():
    net = FeedForward(9, "tanh", sigma_w=1.4, sigma_b=0.2, q="fixed_point")
    assert net.blocks() == [Layer("tanh", q=net.fixed_point(), repeat=9,
                                  weight_variance=net.weight_variance)]
    rectangular = FeedForward(4, "linear", widths=(1.0, 2.0, 2.0, 2.0, 1.0)).blocks()
    assert [(block.width, block.repeat) for block in rectangular] == [(2.0, 3), (1.0, 1)]


def test_limits_need_one_width():
    with pytest.raises(ValueError, match="one width.*1.5"):
        FeedForward(3, "tanh", "orthogonal", widths=WIDTHS).spectrum(limit=True)


def test_equal_widths_are_no_widths():
    one = FeedForward(3, "relu", widths=(2.0, 2.0, 2.0, 2.0)).spectrum()
    assert isinstance(one, laws.PlainChain)
    assert one == FeedForward(3, "relu").spectrum()
