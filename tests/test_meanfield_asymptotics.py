"""Laws of deep mean-field networks against the recurrence, and against known constants."""

import math

import mpmath as mp
import numpy as np
import pytest

import fastspec as fs
from fastspec.meanfield import (
    ResidualMeanField,
    alpha_relu_growth,
    idle_branch,
    relu_full,
    relu_reduced,
    tanh_like_angle,
    tanh_like_growth,
)

SETTINGS = [("tanh", 1.0, 1.0, 0.0), ("tanh", 0.7, 1.3, 0.5), ("erf", 1.3, 1.0, 0.0),
            ("scaled_erf", 1.0, 0.8, 0.3), ("hard_tanh", 1.0, 1.0, 0.4)]


def deep(activation, sigma_w, sigma_v, sigma_a, depth):
    net = ResidualMeanField(activation, "full", sigma_w=sigma_w, sigma_b=0.4, sigma_v=sigma_v,
                            sigma_a=sigma_a)
    return net.run(depth, gamma0=1.0)      # one input: no pairs to integrate over


def fitted(terms, values):
    return np.linalg.lstsq(np.stack(terms, axis=1), values, rcond=None)[0]


@pytest.mark.parametrize(("activation", "sigma_w", "sigma_v", "sigma_a"), SETTINGS)
def test_tanh_like_growth_is_that_of_the_recurrence(activation, sigma_w, sigma_v, sigma_a):
    law = tanh_like_growth(activation, sigma_w=sigma_w, sigma_v=sigma_v, sigma_a=sigma_a)
    run = deep(activation, sigma_w, sigma_v, sigma_a, 3000)
    layer = np.arange(500.0, 3001.0)
    root, log, one = np.sqrt(layer), np.log(layer), np.ones_like(layer)
    p = fitted([layer, root, log, one, 1 / root], run.p[500:])
    assert p[0] == pytest.approx(law.moment_rate, rel=1e-5)
    assert -p[1] == pytest.approx(law.moment_root, rel=2e-3)
    ratio = fitted([root, log, one, 1 / root, 1 / layer], run.log_chi[0] - run.log_chi[500:])
    assert ratio[0] == pytest.approx(law.chi_root, rel=2e-4)
    assert ratio[1] == pytest.approx(law.chi_log, rel=0.05, abs=0.01)


def test_tanh_like_constants():
    # tanh: D = 4 sv^2/(sw sqrt(2 pi Bt)), A = (4/3) sqrt(2/pi) sv^2 sw/sqrt(Bt),
    # K = (4 sv^4/(3 pi Bt)) (1/Bt - sw^2/3); erf without a: A = (4/pi) sw.
    w, v, a = 1.3, 0.9, 0.4
    law, total = tanh_like_growth("tanh", sigma_w=w, sigma_v=v, sigma_a=a), v * v + a * a
    assert law.moment_rate == pytest.approx(total, rel=1e-15)
    assert law.moment_root == pytest.approx(4 * v * v / (w * math.sqrt(2 * math.pi * total)))
    assert law.chi_root == pytest.approx(
        4 / 3 * math.sqrt(2 / math.pi) * v * v * w / math.sqrt(total), rel=1e-12)
    assert law.chi_log == pytest.approx(
        4 * v**4 / (3 * math.pi * total) * (1 / total - w * w / 3), rel=1e-12)
    assert tanh_like_growth("erf", sigma_w=w).chi_root == pytest.approx(4 / math.pi * w, rel=1e-12)
    assert law.p(np.array([100.0, 400.0])) == pytest.approx(
        [100 * total - 10 * law.moment_root, 400 * total - 20 * law.moment_root])
    assert law.log_chi_ratio(100.0) == pytest.approx(
        10 * law.chi_root + math.log(100) * law.chi_log)


@pytest.mark.parametrize("name", ["arctan", "softsign", "sin", "linear", "relu", "gelu"])
def test_what_is_not_tanh_like(name):
    for law in (tanh_like_growth, tanh_like_angle):
        with pytest.raises(ValueError, match="activation must be odd and settle"):
            law(name, sigma_w=1.0)


def test_tanh_like_angle():
    plain = tanh_like_angle("tanh", sigma_w=1.0)
    assert plain.e == 0.0 and plain.rate == pytest.approx(1 - 2 / math.pi, rel=1e-15)
    assert plain.root == 0.0
    for sigma_a in (0.01, 0.5, 1.0, 2.0, 30.0):
        law = tanh_like_angle("erf", sigma_w=1.4, sigma_v=0.9, sigma_a=sigma_a)
        share = 0.81 / (0.81 + sigma_a**2)
        with mp.workdps(40):
            t = mp.findroot(lambda t, b=share: 1 - mp.cos(t) - b * 2 / mp.pi * t,
                            (share * 2 / mp.pi, mp.pi / 2), solver="anderson", tol=1e-60)
        assert 0.0 < law.e < 1.0
        assert law.e == pytest.approx(float(mp.cos(t)), rel=1e-12)
        assert law.rate == pytest.approx(float(1 - 2 / mp.pi * share / mp.sin(t)), rel=1e-11)
        assert 1 - 2 / math.pi < law.rate < 0.5


def test_two_term_law_of_the_angle():
    """(e - e* - b l^(-1/2)) l^delta* hardly changes, where e - e* itself is off the power."""
    net = ResidualMeanField("erf", "full", sigma_w=1.0, sigma_a=0.5)
    growth, law = net.asymptotics()
    run, layer = net.run(4000, gamma0=0.4), np.array([500.0, 1000.0, 2000.0, 4000.0])
    excess = run.e[layer.astype(int)] - law.e
    two_terms = (excess - law.root / np.sqrt(layer)) * layer**law.rate
    assert np.ptp(two_terms) < 0.015 * abs(two_terms[-1])
    one_term = excess * layer**law.rate
    assert np.ptp(one_term) > 0.1 * abs(one_term[-1])


def test_angle_of_reduced_tanh_goes_with_its_power():
    run = ResidualMeanField("erf", sigma_w=1.0).run(3000, gamma0=0.4)
    slope = math.log(run.e[3000] / run.e[1500]) / math.log(2.0)
    assert slope == pytest.approx(-(1 - 2 / math.pi), abs=8e-3)


# alpha, e*, e_rate: roots of J(e) = e by another code.
@pytest.mark.parametrize(("alpha", "e", "rate"), [
    (0.55, .97791, .2235), (0.60, .98402, .1990), (0.70, .99282, .1497), (0.75, .99572, .1248),
    (0.80, .99776, .0999), (0.90, .99973, .0500), (0.95, .99997, .0250)])
def test_alpha_relu_angle(alpha, e, rate):
    law = alpha_relu_growth(alpha, sigma_w=1.0)
    assert law.e == pytest.approx(e, abs=6e-6)
    assert law.e_rate == pytest.approx(rate, abs=6e-5)
    assert law.one_minus_e == pytest.approx(1 - law.e, rel=1e-10)


@pytest.mark.parametrize("alpha", [0.6, 0.75, 0.9])
def test_alpha_relu_growth_is_that_of_the_recurrence(alpha):
    law = alpha_relu_growth(alpha, sigma_w=1.1, sigma_v=0.9)
    net = ResidualMeanField(fs.activation("alpha_relu", alpha=alpha), "full",
                            sigma_w=1.1, sigma_b=0.2, sigma_v=0.9, sigma_a=0.1)
    depth = 4000
    run = net.run(depth, gamma0=1.0)

    def power(column):
        """Local exponent at the end, and what remains of its drift ~ 1/l taken away."""
        ends = [(column[n] - column[n // 2]) / math.log(2.0) for n in (depth, depth // 2)]
        return 2 * ends[0] - ends[1]

    for column, exponent in [
        (run.log_p, law.p_power), (run.log_chi, -law.chi_power), (run.log_chi_w, law.chi_w_power),
        (run.log_chi_v, law.chi_v_power), (run.log_chi_b, law.chi_b_power),
    ]:
        assert power(column) == pytest.approx(exponent, rel=3e-3)
    factor = math.exp(run.log_p[-1] - law.p_power * math.log(depth))
    assert factor == pytest.approx(law.p_factor, rel=0.03)
    assert law.chi_power == pytest.approx(alpha**2 / ((1 - alpha) * (2 * alpha - 1)))


def test_alpha_relu_rate_near_its_angle():
    alpha = 0.75
    net = ResidualMeanField(fs.activation("alpha_relu", alpha=alpha), "full", sigma_w=1.0)
    law, = net.asymptotics()
    run = net.run(3000, p0=1.0, gamma0=law.e + 1e-5)
    excess = np.abs(law.one_minus_e - run.one_minus_e)
    slope = math.log(excess[3000] / excess[1500]) / math.log(2.0)
    assert slope == pytest.approx(-law.e_rate, rel=0.03)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 0.3, 1.5])
def test_alpha_out_of_range(alpha):
    with pytest.raises(ValueError, match="alpha must lie between 1/2 and 1"):
        alpha_relu_growth(alpha, sigma_w=1.0)


def test_relu_full():
    law = relu_full(sigma_w=1.1, sigma_b=0.5, sigma_v=0.8, sigma_a=0.3)
    net = ResidualMeanField("relu", "full", sigma_w=1.1, sigma_b=0.5, sigma_v=0.8, sigma_a=0.3)
    run = net.run(5000, p0=2.0)
    layer = np.arange(5001.0)
    assert law.log_p(layer, 2.0) == pytest.approx(run.log_p, rel=1e-13)
    assert law.log_chi_ratio(5000) == pytest.approx(run.log_chi_ratio, rel=1e-13)
    limit = run.one_minus_e[5000] * 5000**2
    assert limit == pytest.approx(law.angle_factor, rel=4 * law.settled_depth / 5000)
    assert law.one_minus_e(5000) == pytest.approx(law.angle_factor / 5000**2)
    growth = 1 + 0.64 * 1.21 / 2
    assert law.angle_factor == pytest.approx(4.5 * (math.pi * growth / (growth - 1)) ** 2)
    assert relu_full(sigma_w=1.0).settled_depth == pytest.approx(20, abs=0.1)
    assert relu_full(sigma_w=0.4).settled_depth == pytest.approx(90, abs=0.5)


@pytest.mark.parametrize(("sigma_w", "share", "growth", "ratio"), [
    (0.5, .9084, 1.4874, .7564), (1.0, .8421, 2.1719, .6906), (1.5, .7940, 3.0753, .6910)])
def test_relu_reduced(sigma_w, share, growth, ratio):
    law = relu_reduced(sigma_w=sigma_w)
    assert law.mean_share == pytest.approx(share, abs=6e-5)
    assert law.growth == pytest.approx(growth, abs=6e-5)
    assert law.angle_ratio == pytest.approx(ratio, abs=6e-5)
    run = ResidualMeanField("relu", sigma_w=sigma_w, sigma_b=0.3).run(300)
    assert run.log_p[-1] - run.log_p[-2] == pytest.approx(math.log(law.growth), rel=1e-11)
    assert run.mean[-1] / math.sqrt(run.p[-1]) == pytest.approx(law.mean_share, rel=1e-11)
    angle = run.log_s - run.log_p
    assert angle[-1] - angle[-2] == pytest.approx(math.log(law.angle_ratio), rel=1e-11)
    assert run.chi[0] == pytest.approx(law.chi_growth**300, rel=1e-12)


def test_idle_branch():
    assert idle_branch("tanh", sigma_w=2.0, sigma_v=0.0, sigma_a=0.3).moment_rate == 0.09
    assert idle_branch("relu", sigma_b=2.0, sigma_v=0.5, sigma_a=0.3).moment_rate == (
        pytest.approx(0.59))
    with pytest.raises(ValueError, match="sigma_w or sigma_v must be 0"):
        idle_branch("tanh", sigma_w=1.0)


@pytest.mark.parametrize(("activation", "block", "extra", "kinds"), [
    ("tanh", "reduced", {}, ["TanhLikeGrowth", "TanhLikeAngle"]),
    ("hard_tanh", "full", {"sigma_a": 0.3}, ["TanhLikeGrowth", "TanhLikeAngle"]),
    ("relu", "full", {}, ["ReluFull"]), ("relu", "reduced", {}, ["ReluReduced"]),
    (fs.activation("alpha_relu", alpha=0.8), "full", {}, ["AlphaReluGrowth"]),
    ("gelu", "full", {"sigma_v": 0.0}, ["IdleBranch"]),
    ("tanh", "reduced", {"sigma_w": 0.0, "sigma_b": 0.4}, ["IdleBranch"])])
def test_the_right_law_is_picked(activation, block, extra, kinds):
    net = ResidualMeanField(activation, block, **{"sigma_w": 1.0, **extra})
    assert [type(law).__name__ for law in net.asymptotics()] == kinds
    distance = net.run(100, gamma0=0.4).distance_from_asymptotics()
    assert distance and all(math.isfinite(value) for value in distance.values())
    if kinds == ["IdleBranch"]:
        assert distance["log_p"] == pytest.approx(0.0, abs=1e-12)
        assert distance["log_chi_ratio"] == 0.0


@pytest.mark.parametrize(("activation", "block", "reason"), [
    ("tanh", "vanilla", "vanilla blocks have no law of growth.*depth_scales"),
    ("gelu", "full", "no law of growth is known for full blocks"),
    (fs.activation("alpha_relu", alpha=0.8), "reduced", "no law of growth is known for reduced"),
    (fs.activation("alpha_relu", alpha=1.5), "full", "alpha_relu with 1/2 < alpha < 1"),
    ("arctan", "reduced", "activation must be odd and settle")])
def test_no_law(activation, block, reason):
    with pytest.raises(ValueError, match=reason):
        ResidualMeanField(activation, block, sigma_w=1.0).asymptotics()


def test_distance_from_the_leading_law():
    """At L = 50 the leading term is off by far more than the next one leaves."""
    net = ResidualMeanField("tanh", "full", sigma_w=1.3, sigma_b=0.5, sigma_v=0.9, sigma_a=0.3)
    run = net.run(50, gamma0=0.4)
    growth, angle = net.asymptotics()
    distance = run.distance_from_asymptotics()
    assert distance["log_chi_ratio"] == pytest.approx(
        run.log_chi_ratio - growth.chi_root * math.sqrt(50), rel=1e-13)
    assert distance["log_p"] == pytest.approx(math.log(run.p[-1] / (growth.moment_rate * 50)))
    assert distance["e"] == pytest.approx(run.e[-1] - angle.e)
    relu = ResidualMeanField("relu", "full", sigma_w=1.0).run(400).distance_from_asymptotics()
    assert relu["log_p"] == pytest.approx(0.0, abs=1e-11)
    assert relu["log_chi_ratio"] == pytest.approx(0.0, abs=1e-11)
    assert 0.0 < abs(relu["log_one_minus_e"]) < 0.2
    assert relu["log_s"] == pytest.approx(relu["log_one_minus_e"], abs=1e-11)
