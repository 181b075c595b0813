"""Laws of every kind of network at finite depth: closed formulas, limits, and real networks."""

import math

import numpy as np
import pytest

from fastspec import ChainLaw, FeedForward, PlainChain, ResNet
from fastspec.simulate import jacobian_singular_values, ks_distance

TANH = {"activation": "tanh", "sigma_w": 1.4, "sigma_b": 0.2}

NETS = {
    "tanh": FeedForward(6, **TANH),
    "tanh_orthogonal": FeedForward(6, weights="orthogonal", **TANH),
    "gelu_fixed_point": FeedForward(5, "gelu", sigma_w=1.2, sigma_b=0.4, q="fixed_point"),
    "hard_tanh": FeedForward(4, "hard_tanh", "orthogonal", sigma_w=1.2, sigma_b=0.1),
    "leaky": FeedForward(4, "leaky_relu", sigma_w=1.4),
    "wide": FeedForward(3, "tanh", sigma_w=1.4, widths=(0.5, 1.5, 1.0, 0.8)),
    "wide_orthogonal": FeedForward(3, "relu", "orthogonal", sigma_w=1.4,
                                   widths=(0.8, 1.5, 1.0, 1.2)),
    "resnet": ResNet(10, "tanh", sigma_w=0.9),
    "resnet_orthogonal": ResNet(10, "relu", "orthogonal", sigma_w=0.9, skip=0.9),
    "resnet_selu": ResNet(4, "selu", sigma_w=0.7, sigma_b=0.2, skip=-1.1),
    "resnet_deep": ResNet(300, "tanh", sigma_w=1.2),
    "batch_norm": ResNet(8, "relu", sigma_w=0.8, batch_norm=True),
    "batch_norm_shifted": ResNet(8, "softplus", "orthogonal", sigma_w=0.8, batch_norm=(1.4, 0.5)),
    "batch_norm_biased": ResNet(8, "relu", sigma_w=0.8, sigma_b=1.0, batch_norm=(0.9, 0.1)),
    "two_layers": ResNet(6, "tanh", sigma_w=1.1, branch_layers=2),
    "two_layers_relu": ResNet(6, "relu", "orthogonal", sigma_w=1.2, branch_layers=2, skip=0.8),
}


def closed_mean_and_variance(net):
    """m_1, and the variance over m_1^2, from the blocks' closed formulas.

    Means multiply; relative variances add, each times N_L/N_l.
    """
    widths = getattr(net, "widths", None)
    if widths is not None:
        blocks = list(zip(net.blocks(), widths, strict=False))
        assert all(block.repeat == 1 for block, _ in blocks)
        mean = math.prod(block.first_moment(inputs) for block, inputs in blocks)
        return mean, math.fsum(widths[-1] / block.width * block.relative_variance(inputs)
                               for block, inputs in blocks)
    blocks = net.blocks()
    return (math.prod(block.first_moment() ** block.repeat for block in blocks),
            math.fsum(block.repeat * block.relative_variance() for block in blocks))


@pytest.mark.parametrize("name", NETS)
def test_mean_and_variance_are_the_closed_ones(name):
    law = NETS[name].spectrum()
    mean, variance = closed_mean_and_variance(NETS[name])
    assert law.mean() == pytest.approx(mean, rel=1e-12)
    assert law.variance() == pytest.approx(variance * mean**2, rel=1e-12)
    if isinstance(NETS[name], FeedForward):
        assert variance == pytest.approx(NETS[name].jacobian_variance(), rel=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_moments_of_the_density_are_the_closed_ones(name):
    # An integral of the solved density against the formulas: the branch is right.
    law = NETS[name].spectrum()
    mean, variance = closed_mean_and_variance(NETS[name])
    ends = law.support()
    mass = first = second = 0.0
    u, w = np.polynomial.legendre.leggauss(400)
    for low, high in ends:
        # lambda = low + (high - low) s^k removes square-root and hard ends.
        angle = 0.5 * np.pi * 0.5 * (1.0 + u)
        weight = 0.25 * np.pi * w * np.sin(2.0 * angle)
        sharp = 12 if low == 0.0 else 1
        s = np.sin(angle) ** 2
        lam = low + (high - low) * s**sharp
        terms = law.pdf(lam) * (high - low) * sharp * s ** (sharp - 1) * weight
        mass, first, second = (mass + terms.sum(), first + terms @ lam, second + terms @ lam**2)
    for place, share in law.atoms:
        mass, first, second = mass + share, first + share * place, second + share * place**2
    assert mass == pytest.approx(1.0, abs=1e-6)
    assert first == pytest.approx(mean, rel=1e-7)
    assert second == pytest.approx(mean**2 * (1.0 + variance), rel=1e-7)


@pytest.mark.parametrize("name", ["resnet", "batch_norm_biased", "two_layers"])
def test_deep_networks_approach_the_limit_law(name):
    net = NETS[name]
    gaps = []
    for depth in (25, 100):
        deep = type(net)(**{**{field: getattr(net, field) for field in net.__dataclass_fields__},
                            "depth": depth})
        law, limit = deep.spectrum(), deep.spectrum(limit=True)
        p = np.linspace(0.05, 0.95, 19)
        gaps.append(np.max(np.abs(law.cdf(limit.icdf(p)) - p)))
    assert gaps[1] < gaps[0] / 3.0        # like 1/L
    assert gaps[1] < 0.02


def test_equal_0_1_layers_have_the_closed_law_and_others_a_chain():
    assert isinstance(FeedForward(4, "relu").spectrum(), PlainChain)
    for name, net in NETS.items():
        assert isinstance(net.spectrum(), ChainLaw), name


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_the_chain_solver_agrees_with_the_closed_law(weights):
    net = FeedForward(4, "relu", weights, sigma_w=1.3)
    closed, chain = net.spectrum(), ChainLaw(net.blocks())
    lam = closed.icdf(np.linspace(0.55, 0.999, 12))
    assert chain.pdf(lam) == pytest.approx(closed.pdf(lam), rel=1e-11)
    assert chain.support()[0][1] == pytest.approx(closed.support()[0][1], rel=1e-12)
    assert chain.atoms == pytest.approx(closed.atoms)


def test_marchenko_pastur_of_any_ratio():
    # One Gaussian layer, N_1/N_0 = c: (1 - sqrt c)^2 .. (1 + sqrt c)^2, zero atom 1 - 1/c.
    for c in (0.25, 4.0):
        law = FeedForward(1, "linear", widths=(1.0, c)).spectrum()
        low, high = (1 - math.sqrt(c)) ** 2, (1 + math.sqrt(c)) ** 2
        (found,) = law.support()
        assert found == pytest.approx((low, high), rel=1e-12)
        lam = np.linspace(low, high, 9)[1:-1]
        density = np.sqrt((high - lam) * (lam - low)) / (2 * np.pi * c * lam)
        assert law.pdf(lam) == pytest.approx(density, rel=1e-12)
        assert law.atoms.reshape(-1, 2) == pytest.approx(
            np.array([[0.0, 0.75]]) if c > 1 else np.empty((0, 2)))


# --- real networks ----------------------------------------------------------------------------

# Distances of one draw of width N are a few times 1/N, plus what fluctuating numbers of active
# units do (1/(2 sqrt N) each layer for relu) and, for residual blocks in a row, what the free
# model misses: .007 (v/L)^2.


@pytest.mark.parametrize(("name", "bound"), [
    ("tanh", 0.02), ("tanh_orthogonal", 0.02), ("wide", 0.02), ("wide_orthogonal", 0.05),
    ("resnet", 0.02), ("batch_norm", 0.025), ("batch_norm_shifted", 0.02), ("two_layers", 0.02),
    ("two_layers_relu", 0.025),
])
def test_real_networks_follow_their_law(name, bound):
    net = NETS[name]
    s = jacobian_singular_values(net, 400, seed=11)
    assert ks_distance(s, net.spectrum()) < bound


@pytest.mark.parametrize(("name", "change"), [
    ("batch_norm_shifted", {"batch_norm": (1.4, -1.0)}), ("two_layers", {"branch_layers": 1}),
    ("wide", {"widths": None}),
])
def test_the_comparison_can_fail(name, change):
    net = NETS[name]
    s = jacobian_singular_values(net, 400, seed=11)
    fields = {field: getattr(net, field) for field in net.__dataclass_fields__}
    other = type(net)(**{**fields, **change})
    assert ks_distance(s, other.spectrum()) > 0.04
