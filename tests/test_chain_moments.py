"""Moments of chains from power series, against the same series done naively in 80 digits.

The naive way is another one: S by reverting M, the skip by the square root of its equation, no
logarithms inside a block.
"""

import math

import mpmath as mp
import numpy as np
import pytest

from fastspec import ChainLaw, PlainChain
from fastspec.blocks import Layer, Residual

ORDER = 20


# A series is a list of its coefficients up to order len - 1.

def times(a, b):
    return [mp.fsum(a[j] * b[k - j] for j in range(k + 1)) for k in range(len(a))]


def inverse(a):
    out = [1 / a[0]]
    for k in range(1, len(a)):
        out.append(-mp.fsum(a[j] * out[k - j] for j in range(1, k + 1)) / a[0])
    return out


def reverted(f):
    """The inverse function of f = f_1 x + ... by Lagrange."""
    ratio = inverse([*f[1:], mp.mpf(0)])
    out, power = [mp.mpf(0)] * len(f), ratio
    for k in range(1, len(f)):
        out[k] = power[k - 1] / k
        power = times(power, ratio)
    return out


def composed(f, g):
    out = [mp.mpf(0)] * len(f)
    for coefficient in reversed(f):
        out = times(out, g)
        out[0] += coefficient
    return out


def root(a):
    """sqrt(a), a_0 = 1."""
    out = [mp.mpf(1)]
    for k in range(1, len(a)):
        out.append((a[k] - mp.fsum(out[j] * out[k - j] for j in range(1, k))) / 2)
    return out


def padded(*coefficients, n):
    return [mp.mpf(c) for c in coefficients[:n]] + [mp.mpf(0)] * (n - len(coefficients))


def s_of_layer(layer, n, inputs):
    """S of D W: S_D from M(1/y) = sum E d^k y^k, S_W in closed form."""
    law = layer.activation.slope_law(layer.q, layer.mean)
    total = mp.fsum(map(mp.mpf, law.probabilities))
    raw = [mp.fsum(mp.mpf(v) ** k * mp.mpf(p) for v, p in
                   zip(law.values, law.probabilities, strict=True)) / total for k in range(n + 1)]
    raw[0] = mp.mpf(0)
    s = times(reverted(raw)[1:], padded(1, 1, n=n))
    shape, variance = mp.mpf(layer.width) / inputs, mp.mpf(layer.weight_variance)
    if layer.weights == "gaussian":
        s = times(s, inverse(padded(1, shape, n=n)))
    elif shape > 1:
        s = [shape * c for c in times(s, times(padded(1, 1, n=n), inverse(padded(1, shape, n=n))))]
    return [c / variance for c in s]


def s_of_block(block, n, inputs):
    if isinstance(block, Layer):
        return s_of_layer(block, n, inputs)
    n += 1
    s = padded(1, n=n)
    for layer in block.layers:
        s = times(s, s_of_layer(layer, n, layer.width))
    square = mp.mpf(block.skip) ** 2
    x = times(padded(0, 1, 1, n=n), s)                     # u (1 + u) S(u)
    t = root([(k == 0) + 4 * square * c for k, c in enumerate(x)])
    t = [(c - (k == 0)) / 2 for k, c in enumerate(t)]
    m = [c + (k == 1) for k, c in enumerate(t)]
    x = composed(x, reverted(m))
    return times(x[1:], inverse(padded(1, 1, n=n - 1)))


def truth(blocks, input_width=1.0):
    """log E lambda^k for k = 1 .. ORDER: [w^(k-1)] ((1 + w)/S(w))^k / k."""
    with mp.workdps(80):
        quotient, inputs = padded(1, 1, n=ORDER), input_width
        for block in blocks:
            s = s_of_block(block, ORDER, inputs)
            ratio = mp.mpf(blocks[-1].width) / block.width
            factor = inverse([c * ratio**k for k, c in enumerate(s)])
            for _ in range(block.repeat):
                quotient = times(quotient, factor)
            inputs = block.width
        out, power = [], padded(1, n=ORDER)
        for k in range(1, ORDER + 1):
            power = times(power, quotient)
            out.append(mp.log(power[k - 1] / k))
        return out


def layer(name="relu", weight_variance=1.0, **more):
    return Layer(name, q=more.pop("q", 1.0), weight_variance=weight_variance, **more)


@pytest.mark.parametrize(("blocks", "input_width"), [
    ([layer("linear")], 1.0),
    ([layer("hard_tanh", 1.3, q=0.5, weights="orthogonal", repeat=4)], 1.0),
    ([layer("leaky_relu", 1.7, repeat=2), layer("relu", 0.8, weights="orthogonal")], 1.0),
    ([layer("leaky_relu", 1.7, width=2.0), layer("relu", 0.8, width=0.5, weights="orthogonal"),
      layer("hard_tanh", 1.5, q=0.1, width=1.2, weights="orthogonal")], 1.5),
    ([Residual(layer("relu", 0.02), repeat=30)], 1.0),
    ([Residual(layer("relu", 1e-9), skip=0.7), layer("relu", 2.0)], 1.0),
    ([Residual(layer("hard_tanh", 50.0, weights="orthogonal"), skip=-1.2)], 1.0),
    ([Residual(layer("leaky_relu", 0.6), layer("relu", 0.9, weights="orthogonal"), repeat=3),
      layer("hard_tanh", 1.1, q=2.0)], 1.0),
], ids=["linear", "orthogonal", "mixed", "rectangular", "resnet", "tiny", "large", "two_layers"])
def test_moments_of_any_chain(blocks, input_width):
    law, expected = ChainLaw(blocks, input_width=input_width), truth(blocks, input_width)
    for k in range(1, ORDER + 1):
        assert law.moment(k) == pytest.approx(float(mp.exp(expected[k - 1])), rel=2e-12)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("depth", [1, 3, 1000])
def test_moments_of_equal_layers_are_the_closed_ones(weights, depth):
    chain = ChainLaw([layer("relu", 1.998, weights=weights, repeat=depth)])
    closed = PlainChain(depth, slope_probability=0.5, slope_complement=0.5,
                        weight_variance=1.998, weights=weights)
    for k in (1, 2, 3, 7, 20):
        assert chain.moment(k) == pytest.approx(closed.moment(k), rel=1e-12)


def test_moments_of_a_thousand_linear_layers_are_fuss_catalan():
    chain = ChainLaw([layer("linear", repeat=1000)])
    for k in (2, 5, 20):
        exact = math.comb(1001 * k, k) / (1000 * k + 1)
        assert chain.moment(k) == pytest.approx(exact, rel=1e-12)


def test_the_variance_of_a_thousand_blocks():
    block = Residual(layer("relu", 1e-3), repeat=1000)
    law = ChainLaw([block])
    spread = law.moment(2) / law.moment(1) ** 2 - 1.0
    assert spread == pytest.approx(1000 * block.relative_variance(), rel=1e-12)
    assert law.moment(1) == pytest.approx(1.0005**1000, rel=1e-12)
    assert np.log(law.moment(20)) > 20 * np.log(law.moment(1))
