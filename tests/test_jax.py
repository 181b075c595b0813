"""fastspec.jax against moments, orthogonality and the activations' own initialisers."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fastspec as fs
from fastspec.initialize import sigma_w_for

jax = pytest.importorskip("jax", reason="needs JAX: pip install 'fastspec[jax]'")

import jax.numpy as jnp  # noqa: E402

from fastspec.jax import initializer  # noqa: E402


def kernel(init, shape, seed=0, dtype=jnp.float32):
    return np.asarray(init(jax.random.key(seed), shape, dtype), dtype=float)


@pytest.mark.parametrize(("shape", "fan_in"), [((300, 200), 300), ((3, 3, 40, 50), 360),
                                               ((5, 60, 70), 300)])
def test_gaussian_moments(shape, fan_in):
    net = fs.ResNet(depth=10, activation="tanh", sigma_w=1.5)
    values = kernel(initializer(net), shape) * (fan_in / net.weight_variance) ** 0.5
    n = values.size
    assert abs(values.mean()) < 4.0 * n**-0.5
    assert abs((values**2).mean() - 1.0) < 4.0 * (2.0 / n) ** 0.5
    assert abs((values**4).mean() - 3.0) < 4.0 * (96.0 / n) ** 0.5
    correlation = np.mean(values[..., 1:] * values[..., :-1])
    assert abs(correlation) < 4.0 * n**-0.5


@pytest.mark.parametrize(("inputs", "outputs"), [(8, 8), (12, 5), (5, 12)])
@pytest.mark.parametrize("taps", [(), (3,), (3, 5)])
def test_orthogonal_kernels(inputs, outputs, taps):
    """y = x K: K^T K = sigma^2 I, at the middle tap only."""
    init = initializer(fs.FeedForward(4, "tanh", sigma_w=1.5), weights="orthogonal")
    values = kernel(init, (*taps, inputs, outputs))
    middle = values[tuple(size // 2 for size in taps)]
    gram = middle.T @ middle if outputs <= inputs else middle @ middle.T
    np.testing.assert_allclose(gram, 2.25 * np.eye(min(inputs, outputs)), atol=2e-6)
    assert np.sum(values**2) == pytest.approx(np.sum(middle**2), rel=1e-14)


def test_orthogonal_matrices_are_haar_distributed():
    """E K_11 = 0; without the signs of R it is far from 0. E K_11^2 = 1/2."""
    init = initializer(1.0, weights="orthogonal")
    corner = np.asarray(jax.vmap(lambda key: init(key, (2, 2)))(
        jax.random.split(jax.random.key(0), 1000)))[:, 0, 0].astype(float)
    assert abs(corner.mean()) < 4.0 * (0.5 / 1000) ** 0.5
    assert abs((corner**2).mean() - 0.5) < 4.0 * (0.125 / 1000) ** 0.5


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_deterministic_and_the_same_under_jit(weights):
    init = initializer(0.7, weights=weights)
    first = kernel(init, (30, 20), seed=3)
    assert np.array_equal(first, kernel(init, (30, 20), seed=3))
    assert not np.array_equal(first, kernel(init, (30, 20), seed=4))
    compiled = jax.jit(init, static_argnums=(1, 2))
    np.testing.assert_allclose(kernel(compiled, (30, 20), seed=3), first, atol=1e-6)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_half_precision_is_rounded_at_the_end(weights):
    init = initializer(1.0, weights=weights)
    half = init(jax.random.key(0), (40, 40), jnp.bfloat16)
    assert half.dtype == jnp.bfloat16
    expected = init(jax.random.key(0), (40, 40)).astype(jnp.bfloat16)
    assert bool(jnp.all(half == expected))
    assert init(jax.random.key(0), (40, 40)).dtype == jnp.float32


def test_target_sets_the_variance():
    net = fs.ResNet(depth=20, activation="gelu")
    tuned = replace(net, sigma_w=sigma_w_for(net, variance=0.9))
    by_name = kernel(initializer(activation="gelu", depth=20, variance=0.9), (90, 80))
    by_net = kernel(initializer(net, variance=0.9), (90, 80))
    as_it_is = kernel(initializer(tuned), (90, 80))
    by_number = kernel(initializer(tuned.weight_variance**0.5), (90, 80))
    for values in (by_net, as_it_is, by_number):
        np.testing.assert_allclose(values, by_name, rtol=1e-6)
    expected = 4.0 * tuned.weight_variance / 90
    assert (2.0 * by_name).var() == pytest.approx(expected, rel=4.0 * (2.0 / 7200) ** 0.5)
    cumulant = fs.ResNet(5, "linear", weights="orthogonal")
    values = kernel(initializer(cumulant, c=0.8), (9, 9))
    np.testing.assert_allclose(values @ values.T, 0.16 * np.eye(9), atol=1e-6)


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((), {}, "one of net and activation must be given, got neither"),
    ((1.0,), {"activation": "relu", "depth": 3}, "got both"),
    ((), {"activation": "relu"}, "activation and depth go together"),
    ((1.0,), {"depth": 3}, "activation and depth go together"),
    ((), {"activation": "rleu", "depth": 3}, "did you mean 'relu'"),
    ((-1.0,), {}, "net .as sigma_w. must be a finite number > 0"),
    (("relu",), {}, "net .as sigma_w. must be a finite number"),
    ((1.0,), {"c": 1.0}, "c needs a network"),
    ((1.0,), {"weights": "orthogonl"}, "did you mean 'orthogonal'"),
    ((), {"activation": "relu", "depth": 3, "c": 1.0, "variance": 1.0}, "exactly one of"),
])
def test_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        initializer(*arguments, **options)


@pytest.mark.parametrize("shape", [(3,), (), (0, 3), 4])
def test_shapes_that_are_no_kernels(shape):
    with pytest.raises(ValueError, match="shape must be that of a kernel"):
        initializer(1.0)(jax.random.key(0), shape)


def test_one_clear_sentence_without_jax():
    code = ("import sys; sys.modules['jax'] = None; from fastspec.jax import initializer; "
            "initializer(1.0)")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip().split("\n")[-1] == (
        "ImportError: fastspec.jax needs JAX: pip install 'fastspec[jax]'")
