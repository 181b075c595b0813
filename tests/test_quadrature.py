"""Gaussian moments against 40-digit mpmath tables, and the adaptive rule for any function."""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from fastspec.activations import ACTIVATIONS, activation
from fastspec.errors import ConvergenceWarning
from fastspec.quadrature import expectation, moments, slope_moments, slope_variance

TABLE = json.loads((Path(__file__).parent / "reference" / "gaussian_moments.json").read_text())
KINDS = sorted({(name, tuple(params.items())) for name, params, *_ in TABLE})
PROMISED = 1e-13


def make(name):
    return activation(name, **({"alpha": 0.9} if name == "alpha_relu" else {}))


def test_the_table_holds_every_activation_at_every_variance():
    assert {name for name, _ in KINDS} == set(ACTIVATIONS)
    for kind in KINDS:
        centred = {row[3] for row in TABLE
                   if (row[0], tuple(row[1].items())) == kind and row[2] == 0.0}
        assert centred == {1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_moments_agree_with_mpmath(kind):
    name, params = kind
    made = activation(name, **dict(params))
    for row in TABLE:
        if (row[0], tuple(row[1].items())) != kind:
            continue
        mean, q, (*truth, size) = row[2:]
        got = moments(made, q, mean)
        assert abs(got.mean - truth[0]) <= PROMISED * size
        for value, exact in zip(got[1:], truth[1:], strict=True):
            assert abs(value - exact) <= PROMISED * exact, (mean, q)


def test_odd_activations_have_mean_exactly_zero():
    for name in ACTIVATIONS:
        if make(name).odd:
            assert moments(make(name), 0.7).mean == 0.0


@pytest.mark.parametrize("name", ["tanh", "softsign", "gelu", "selu", "arctan", "erf", "sin"])
@pytest.mark.parametrize("q", [3e-5, 0.3, 7.0])
def test_high_slope_moments_agree_with_the_adaptive_rule(name, q):
    made = activation(name)
    got = slope_moments(made, q, 8)
    assert len(got) == 8
    for k in (1, 3, 8):
        other = expectation(lambda h, k=k: made.derivative(h) ** (2 * k), q, kinks=made.kinks)
        assert got[k - 1] == pytest.approx(other.value, rel=PROMISED, abs=0)


@pytest.mark.parametrize("alpha", [0.76, 0.9, 2.0])
@pytest.mark.parametrize(("mean", "q"), [(0.0, 0.3), (0.4, 1.0), (-5.0, 1.0), (50.0, 1.0)])
def test_alpha_relu_agrees_with_parabolic_cylinder_functions(alpha, mean, q):
    # E h_+^p = s^p Gamma(p+1) e^{-m^2/4} D_{-p-1}(-m) / sqrt(2 pi), m = mean / s.
    def exact(p):
        m, s = mp.mpf(mean) / mp.sqrt(q), mp.sqrt(q)
        tail = mp.exp(-m * m / 4) * mp.pcfd(-p - 1, -m)
        return s**p * mp.gamma(p + 1) * tail / mp.sqrt(2 * mp.pi)

    got = moments(activation("alpha_relu", alpha=alpha), q, mean)
    with mp.workdps(40):
        a = mp.mpf(alpha)
        truth = [exact(a), exact(2 * a), a**2 * exact(2 * a - 2), a**4 * exact(4 * a - 4)]
    for value, target in zip(got, truth, strict=True):
        assert value == pytest.approx(float(target), rel=PROMISED, abs=0)


@pytest.mark.parametrize("q", [1e-9, 1e-4, 0.5, 3.0])
def test_sin_around_its_crest(q):
    # cos(pi/2 + x) = -sin(x): the slopes are small, and the Fourier sum of their moments cancels.
    got = moments(activation("sin"), q, math.pi / 2)
    # h = pi/2 + x is rounded to 2e-16, which is relative to x ~ sqrt(q) in the slope.
    rounding = PROMISED + 1e-16 / math.sqrt(q)
    assert got.slope_mean == pytest.approx(-0.5 * math.expm1(-2 * q), rel=rounding, abs=0)
    fourth = (4 * math.expm1(-2 * q) * -1 + math.expm1(-8 * q)) / 8    # E sin^4
    if q > 1e-3:
        assert got.slope_second == pytest.approx(fourth, rel=1e-13, abs=0)
    else:
        assert got.slope_second == pytest.approx(
            3 * q * q * (1 - 10 * q / 3), rel=10 * q * q + rounding, abs=0)


def test_alpha_relu_moments_that_do_not_exist_are_infinite():
    assert moments(activation("alpha_relu", alpha=0.5), 1.0).slope_mean == math.inf
    between = moments(activation("alpha_relu", alpha=0.75), 1.0)
    assert math.isfinite(between.slope_mean)
    assert between.slope_second == math.inf
    assert slope_variance(activation("alpha_relu", alpha=0.75), 1.0) == math.inf


def test_zero_variance_is_the_limit_from_above():
    assert moments(activation("relu"), 0.0) == (0.0, 0.0, 0.5, 0.5)
    assert moments(activation("hard_tanh"), 0.0) == (0.0, 0.0, 1.0, 1.0)
    assert moments(activation("elu", alpha=0.5), 0.0).slope_mean == pytest.approx(
        0.625, rel=1e-14, abs=0)
    assert moments(activation("sigmoid"), 0.0) == pytest.approx((0.5, 0.25, 1 / 16, 1 / 256),
                                                                rel=1e-14, abs=0)
    assert moments(activation("tanh"), 0.0, 0.5).second_moment == pytest.approx(
        math.tanh(0.5) ** 2, rel=1e-14, abs=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [1e-280, 1e12, 1e120])
def test_extreme_variances_give_finite_and_ordered_moments(name, q):
    got = moments(make(name), q)
    assert np.all(np.isfinite(got))
    assert got.slope_second >= got.slope_mean**2 * (1 - 1e-14)
    assert got.second_moment >= got.mean**2 * (1 - 1e-14)


def test_large_variance_agrees_with_the_asymptotic_law():
    # E sech^4 = (4/3) / sqrt(2 pi q) + O(q^{-3/2}); E tanh^2 = 1 - 2 / sqrt(2 pi q).
    got = moments(activation("tanh"), 1e12)
    assert got.slope_mean == pytest.approx(4 / 3 / math.sqrt(2 * math.pi * 1e12), rel=1e-11, abs=0)
    assert got.second_moment == pytest.approx(
        1 - 2 / math.sqrt(2 * math.pi * 1e12), rel=2e-15, abs=0)


def test_arrays_broadcast():
    got = moments(activation("gelu"), [[0.1], [2.0]], [0.0, 0.5, -1.0])
    assert got.slope_mean.shape == (2, 3)
    assert got.slope_mean[1, 2] == moments(activation("gelu"), 2.0, -1.0).slope_mean
    mixed = moments(activation("sin"), [0.5, 2.0], 0.3).second_moment
    assert mixed[0] == moments(activation("sin"), 0.5, 0.3).second_moment


@pytest.mark.parametrize(("q", "mean", "word"), [
    (-1.0, 0.0, "q must be >= 0"), (math.nan, 0.0, "q"), (math.inf, 0.0, "q"),
    ("x", 0.0, "q"), (1.0, math.nan, "mean"), ([1.0, -2.0], 0.0, "-2"), (True, 0.0, "q"),
])
def test_bad_arguments_are_named(q, mean, word):
    with pytest.raises(ValueError, match=word):
        moments(activation("tanh"), q, mean)


@pytest.mark.parametrize("q", [1e-12, 1e-6, 1e-4, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", ["tanh", "user_tanh", "erf", "softplus"])
def test_slope_variance_does_not_cancel(name, q):
    user = activation(np.tanh, derivative=lambda h: 1 / np.cosh(np.minimum(np.abs(h), 350)) ** 2)
    made = user if name == "user_tanh" else activation(name)
    slope = {"erf": lambda h: 2 / mp.sqrt(mp.pi) * mp.exp(-h * h),
             "softplus": lambda h: 1 / (1 + mp.exp(-h))}.get(name, lambda h: mp.sech(h) ** 2)
    with mp.workdps(40):
        s = mp.sqrt(mp.mpf(q))
        ends = sorted({mp.mpf(z) / 2 for z in range(-26, 27)} | {z / s for z in (-1, 0, 1)
                                                                   if abs(z / s) < 13})

        def mean(k):
            return mp.quad(lambda z: slope(s * z) ** (2 * k) * mp.npdf(z), ends)

        truth = float(mean(2) / mean(1) ** 2 - 1)
    rel = 1e-13 + 1e-15 / math.sqrt(truth)
    assert slope_variance(made, q) == pytest.approx(truth, rel=rel, abs=0)


def test_slope_variance_of_a_small_undeclared_jump():
    bent = activation(lambda h: h + 1e-4 * np.maximum(h - 0.3, 0.0),
                      derivative=lambda h: 1.0 + 1e-4 * (h > 0.3))
    p, jump = 0.5 * math.erfc(0.3 / math.sqrt(2.0)), 1.0001**2 - 1.0
    truth = p * (1 - p) * jump**2 / (1 + p * jump) ** 2
    assert slope_variance(bent, 1.0) == pytest.approx(truth, rel=1e-10, abs=0)


def test_slope_variance_needs_slopes():
    constant = activation(lambda h: 0 * h + 1.0, derivative=lambda h: 0 * h)
    with pytest.raises(ValueError, match="vanishes"):
        slope_variance(constant, 1.0)


@pytest.mark.parametrize("kinks", [(), (-1.0, 1.0)])
@pytest.mark.parametrize(("q", "mean"), [(1e-3, 0.0), (1.0, 0.0), (1e4, 0.0), (4.0, 9.0)])
def test_users_functions_need_no_kinks_to_be_right(kinks, q, mean):
    clip = activation(lambda h: np.clip(h, -1, 1), derivative=lambda h: 1.0 * (np.abs(h) < 1),
                      kinks=kinks)
    got, truth = moments(clip, q, mean), moments(activation("hard_tanh"), q, mean)
    assert got == pytest.approx(truth, rel=PROMISED, abs=1e-15)


@pytest.mark.parametrize("q", [1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4])
def test_users_smooth_functions_agree_with_the_builtin_ones(q):
    def slope(h):
        return 1 / np.cosh(np.minimum(np.abs(h), 350)) ** 2

    got = moments(activation(np.tanh, derivative=slope), q)
    assert got == pytest.approx(moments(activation("tanh"), q), rel=PROMISED, abs=1e-15)


def test_scalar_functions_and_far_tails():
    def ramp(h):
        return h - 50.0 if h > 50.0 else 0.0

    def step(h):
        return 1.0 if h > 50.0 else 0.0

    got = moments(activation(ramp, derivative=step, kinks=[50.0]), 4.0)
    tail = 0.5 * math.erfc(25.0 / math.sqrt(2.0))       # 25 standard deviations out: 3e-138
    assert got.slope_mean == pytest.approx(tail, rel=1e-12, abs=0)


def test_growing_functions_are_followed_outwards():
    # E e^{th} = e^{t^2 q / 2}: with t sqrt(q) = 15 the integrand peaks 15 standard deviations out.
    got = expectation(np.exp, 225.0)
    assert got.value == pytest.approx(math.exp(112.5), rel=1e-12, abs=0)
    assert got.error < 1e-12 * got.value


@pytest.mark.parametrize("declared", [False, True])
def test_error_covers_the_truth_wherever_the_kink_falls(declared):
    # A kink or jump just inside a panel's end is seen by none of its nodes.
    rng = np.random.default_rng(5)
    for q, kink in zip(10 ** rng.uniform(-2, 4, 150), rng.uniform(-2, 2, 150), strict=True):
        s, kinks = math.sqrt(q), (kink,) if declared else ()
        density = math.exp(-kink * kink / (2 * q)) / math.sqrt(2 * math.pi)
        bend = 2 * s * density + kink * math.erf(kink / (s * math.sqrt(2)))
        got = expectation(lambda h, k=kink: np.abs(h - k), q, kinks=kinks)
        assert abs(got.value - bend) <= got.error + 2e-16 * bend
        assert got.error < 1e-12 * bend
        got = expectation(lambda h, k=kink: 1.0 * (h > k), q, kinks=kinks)
        step = 0.5 * math.erfc(kink / (s * math.sqrt(2)))
        rounding = 4e-16 * (1 + kink * kink / q)      # of the argument of erfc
        assert abs(got.value - step) <= got.error + rounding * step
        assert got.error < 1e-12 * step


def test_functions_without_a_finite_expectation_are_refused():
    with pytest.raises(ValueError, match="grows too fast"):
        expectation(lambda h: np.exp(h * h), 1.0)
    with pytest.raises(ValueError, match="not finite"):
        expectation(lambda h: np.where(h > 7.0, np.nan, h), 4.0)


def test_noise_is_reported():
    def noisy(h):       # repeatable, but without any structure below 1e-6
        return h + 1e-6 * np.sin(1e9 * h)

    with pytest.warns(ConvergenceWarning, match="noisy or rough"):
        expectation(lambda h: noisy(h) ** 2, 1.0)
