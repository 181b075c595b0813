"""Layers and residual blocks: arguments, first moment and variance against exact and real ones."""

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import fastspec as fs
from fastspec.blocks import Layer, Residual


@pytest.mark.parametrize(("field", "value"), [
    ("activation", "tanhh"), ("activation", 3), ("q", -1.0), ("q", math.nan), ("q", "1"),
    ("q", None), ("weight_variance", 0.0), ("weight_variance", -1.0), ("weight_variance", math.inf),
    ("weights", "gauss"), ("repeat", 0), ("repeat", 2.5), ("repeat", True), ("width", 0.0),
    ("width", math.inf), ("width", [1.0]), ("mean", math.nan), ("mean", "0"),
])
def test_bad_arguments_of_a_layer_are_named(field, value):
    arguments = {"activation": "tanh", "q": 1.0, "weight_variance": 1.0} | {field: value}
    with pytest.raises(ValueError) as caught:
        Layer(**arguments)
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("missing", ["q", "weight_variance"])
def test_variances_must_be_given_by_name(missing):
    arguments = {"q": 1.0, "weight_variance": 1.0}
    del arguments[missing]
    with pytest.raises(TypeError, match=missing):
        Layer("tanh", **arguments)
    with pytest.raises(TypeError, match="positional"):
        Layer("tanh", 1.0, 1.0)


RELU = Layer("relu", q=1.0, weight_variance=0.5)
WIDE = Layer("relu", q=1.0, weight_variance=0.5, width=2.0)


@pytest.mark.parametrize(("layers", "more", "words"), [
    ((), {}, "at least one"), (("relu",), {}, "'relu'"), ((RELU, WIDE), {}, r"\[1.0, 2.0\]"),
    (([RELU],), {}, "Layer objects"), ((RELU,), {"skip": 0.0}, "skip"),
    ((RELU,), {"skip": math.inf}, "skip"), ((RELU,), {"repeat": 0}, "repeat"),
    ((RELU,), {"repeat": 1.5}, "repeat"), ((Residual(RELU),), {}, "Residual"),
])
def test_bad_arguments_of_a_residual_block_are_named(layers, more, words):
    with pytest.raises(ValueError, match=words):
        Residual(*layers, **more)


@pytest.mark.parametrize("make", [
    lambda: Layer("leaky_relu", q=np.float64(2.0), weight_variance=1, repeat=np.int64(3), mean=0.1),
    lambda: Residual(RELU, Layer("elu", q=0.5, weight_variance=1.0), skip=0.9, repeat=4),
])
def test_blocks_are_values(make):
    block = make()
    assert block == make()
    assert hash(block) == hash(make())
    assert pickle.loads(pickle.dumps(block)) == block
    assert block != Residual(RELU)
    with pytest.raises(FrozenInstanceError):
        block.repeat = 2
    namespace = {"Layer": Layer, "Residual": Residual, "activation": fs.activation}
    assert eval(repr(block), namespace) == block
    assert type(block.repeat) is int


def test_exports():
    assert (fs.Layer, fs.Residual) == (Layer, Residual)


# --- one layer --------------------------------------------------------------------------------

def scaled_erf(q, **more):
    return Layer("scaled_erf", q=q, **({"weight_variance": 1.3} | more))


@pytest.mark.parametrize("q", [1e-4, 0.3, 1.0, 40.0])
def test_scaled_erf_has_its_closed_moments(q):
    # mu_k = (1 + k pi q)^(-1/2) (Pennington, Schoenholz & Ganguli 2018, table 1).
    layer = scaled_erf(q)
    assert layer.first_moment() == pytest.approx(1.3 / math.sqrt(1 + math.pi * q), rel=1e-13)
    # mu_2/mu_1^2 - 1 without cancellation: r^2 / (1 + 2 r) = (1 + s)^2 - 1, s small.
    r = math.pi * q
    square = r * r / (1 + 2 * r)
    slopes = square / (math.sqrt(1 + square) + 1)
    assert layer.relative_variance() == pytest.approx(1.0 + slopes, rel=1e-13)
    orthogonal = scaled_erf(q, weights="orthogonal")
    assert orthogonal.relative_variance() == pytest.approx(slopes, rel=1e-11)


@pytest.mark.parametrize("repeat", [1, 7])
def test_a_repeat_does_not_change_the_numbers_of_one_layer(repeat):
    layer = Layer("leaky_relu", q=2.0, weight_variance=0.8, repeat=repeat)
    mu_1, mu_2 = 0.5 * (1 + 1e-4), 0.5 * (1 + 1e-8)
    assert layer.first_moment() == pytest.approx(0.8 * mu_1, rel=1e-14)
    assert layer.relative_variance() == pytest.approx(mu_2 / mu_1**2, rel=1e-13)


def test_the_mean_of_h_counts():
    # P(h > 0) = P(z > -0.6 / 1.5).
    layer = Layer("relu", q=2.25, weight_variance=1.0, mean=0.6)
    p = 0.5 * math.erfc(-0.4 / math.sqrt(2))
    assert layer.first_moment() == pytest.approx(p, rel=1e-13)
    assert layer.relative_variance() == pytest.approx(1 / p, rel=1e-13)


def test_infinite_slope_moments():
    rough = fs.activation("alpha_relu", alpha=0.7)
    assert Layer(rough, q=1.0, weight_variance=1.0).relative_variance() == math.inf


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("shape", [0.5, 1.5])
def test_rectangular_layers_have_the_moments_of_real_matrices(weights, shape):
    inputs, variance = 200, 1.7
    outputs = round(shape * inputs)
    layer = Layer("relu", q=1.0, weight_variance=variance, weights=weights, width=shape)
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(30):
        weight = rng.standard_normal((outputs, inputs))
        if weights == "orthogonal":
            basis = np.linalg.qr(weight if shape > 1 else weight.T)[0]
            weight = math.sqrt(variance) * (basis if shape > 1 else basis.T)
        else:
            weight *= math.sqrt(variance / inputs)
        active = rng.permutation(outputs) < outputs // 2
        square = (weight @ weight.T)[active][:, active]
        rows.append([np.trace(square) / outputs, np.sum(square * square) / outputs])
    first, second = np.mean(rows, axis=0)
    assert layer.first_moment(1.0) == pytest.approx(first, rel=0.01)
    # 1/width corrections; leaving out the shape would be 25 % and more.
    assert layer.relative_variance(1.0) == pytest.approx(second / first**2 - 1, rel=0.02)
    for method in (layer.first_moment, layer.relative_variance):
        with pytest.raises(ValueError, match="input_width"):
            method(0.0)


def test_orthogonal_shapes_exactly():
    tall = Layer("linear", q=1.0, weight_variance=2.0, weights="orthogonal", width=4.0)
    assert tall.first_moment(1.0) == 0.5      # three quarters of the eigenvalues are 0, the rest 2
    assert tall.relative_variance(1.0) == 3.0
    assert tall.first_moment(8.0) == 2.0      # W W^T = 2 I
    assert tall.relative_variance(8.0) == 0.0


# --- residual blocks --------------------------------------------------------------------------

def test_linear_orthogonal_block_is_exact():
    # Arcsine law on (1 - s)^2 .. (1 + s)^2: mean 1 + s^2, variance 2 s^2.
    block = Residual(Layer("linear", q=1.0, weight_variance=0.36, weights="orthogonal"), skip=-1.0)
    assert block.first_moment() == pytest.approx(1.36, rel=1e-15)
    assert block.relative_variance() == pytest.approx(0.72 / 1.36**2, rel=1e-14)


def test_a_tiny_branch_keeps_its_digits():
    block = Residual(Layer("relu", q=1.0, weight_variance=1e-12))
    kappa = 5e-13
    assert block.relative_variance() == pytest.approx(
        (2 * kappa + 2 * kappa**2) / (1 + kappa) ** 2, rel=1e-14)


@pytest.mark.parametrize("skip", [1.0, 0.6])
def test_a_block_of_two_layers_has_the_moments_of_real_matrices(skip):
    width, rng = 200, np.random.default_rng(8)
    share = math.erf(math.sqrt(0.5))
    layers = (Layer("relu", q=1.0, weight_variance=1.4),
              Layer("hard_tanh", q=1.0, weight_variance=0.9, weights="orthogonal"))
    block = Residual(*layers, skip=skip)
    rows = []
    for _ in range(40):
        gaussian = rng.standard_normal((width, width)) * math.sqrt(1.4 / width)
        basis, triangle = np.linalg.qr(rng.standard_normal((width, width)))
        orthogonal = math.sqrt(0.9) * basis * np.sign(np.diagonal(triangle))
        # As many active units as the probabilities say: their fluctuation is left out.
        inner = (rng.permutation(width) < 0.5 * width)[:, np.newaxis] * gaussian
        outer = (rng.permutation(width) < share * width)[:, np.newaxis] * orthogonal
        jacobian = skip * np.eye(width) + outer @ inner
        square = jacobian @ jacobian.T
        rows.append([np.trace(square) / width, np.sum(square * square) / width])
    first, second = np.mean(rows, axis=0)
    assert block.first_moment() == pytest.approx(first, rel=0.01)
    assert block.relative_variance() == pytest.approx(second / first**2 - 1, rel=0.03)


def test_repeated_layers_in_a_branch_are_that_many():
    once = Layer("tanh", q=0.7, weight_variance=0.9)
    thrice = Layer("tanh", q=0.7, weight_variance=0.9, repeat=3)
    one, other = Residual(once, once, once, skip=0.8), Residual(thrice, skip=0.8)
    assert one.first_moment() == pytest.approx(other.first_moment(), rel=1e-15)
    assert one.relative_variance() == pytest.approx(other.relative_variance(), rel=1e-14)
