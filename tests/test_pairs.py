"""Activations at two correlated points, against mpmath tables, closed forms and Price's theorem."""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from fastspec._pair_asymptotes import (
    LEAST_SPREAD,
    LEAST_VARIANCE,
    asymptotic_pairs,
    serves,
)
from fastspec._pairs import _compiled_pairs, pair_rows
from fastspec.activations import ACTIVATIONS, activation
from fastspec.errors import ConvergenceWarning
from fastspec.quadrature import (
    PairMoments,
    expectation,
    linear_excess,
    moments,
    pair_moments,
    variance_slope,
)

TABLE = json.loads((Path(__file__).parent / "reference" / "pairs.json").read_text())
FAR_TABLE = json.loads((Path(__file__).parent / "reference" / "far_pairs.json").read_text())
FAR_KINDS = sorted({(name, tuple(params.items())) for name, params, *_ in FAR_TABLE})
LARGE = ["gelu", "silu", "softplus", "mish", "elu", "selu", "tanh", "sigmoid", "hard_tanh"]
PAIR_KINDS = sorted({(name, tuple(params.items())) for name, params, *_ in TABLE["pairs"]})
EXCESS_KINDS = sorted({(name, tuple(params.items())) for name, params, *_ in TABLE["excess"]})
PROMISED = 1e-12


def make(name, alpha=0.9):
    return activation(name, **({"alpha": alpha} if name == "alpha_relu" else {}))


def rows_of(table, kind):
    return [row[2:] for row in TABLE[table] if (row[0], tuple(row[1].items())) == kind]


def tanh_slope(h):
    return 1.0 / np.cosh(np.minimum(np.abs(h), 350.0)) ** 2


def elu_value(h):
    return np.where(h > 0.0, h, np.expm1(np.minimum(h, 0.0)))


def elu_slope(h):
    return np.where(h > 0.0, 1.0, np.exp(np.minimum(h, 0.0)))


def test_the_table_holds_what_it_should():
    assert {name for name, _ in PAIR_KINDS} == {
        "tanh", "sigmoid", "gelu", "elu", "selu", "hard_tanh", "softsign", "mish"}
    assert {name for name, _ in EXCESS_KINDS} == set(ACTIVATIONS) - {
        "linear", "relu", "leaky_relu", "hard_tanh", "alpha_relu"}
    for kind in PAIR_KINDS:
        variances, correlations = {row[0] for row in rows_of("pairs", kind)}, {
            row[1] for row in rows_of("pairs", kind)}
        assert variances == {1e-6, 1e-3, 0.3, 1.0, 20.0, 1e3, 1e4}
        assert {-0.999, -0.5, 0.3, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9} <= correlations


@pytest.mark.parametrize("kind", PAIR_KINDS, ids=str)
def test_pairs_agree_with_mpmath(kind):
    made = activation(kind[0], **dict(kind[1]))
    for q, c, product, gap, slope_product, second, slope_mean in rows_of("pairs", kind):
        got = pair_moments(made, q, c=c)
        assert abs(got.product - product) <= PROMISED * second, (q, c)
        assert abs(got.gap - gap) <= PROMISED * gap, (q, c)
        assert abs(got.slope_product - slope_product) <= PROMISED * slope_mean, (q, c)


@pytest.mark.parametrize("kind", EXCESS_KINDS, ids=str)
def test_linear_excess_and_variance_slope_agree_with_mpmath(kind):
    made = activation(kind[0], **dict(kind[1]))
    for q, excess, _, bend in rows_of("excess", kind):
        assert abs(linear_excess(made, q) - excess) <= PROMISED * abs(excess), q
        assert abs(variance_slope(made, q) - bend) <= 1e-13 * bend, q


def test_the_far_table_holds_what_it_should():
    names = {name for name, _ in FAR_KINDS}
    assert names == {"gelu", "elu", "selu", "hard_tanh", "tanh", "silu", "mish"}
    for name in names:
        assert {(1e4, 1.9), (1e6, 0.3), (1e8, 1e-9), (1e8, 1.9)} <= {
            tuple(row[2:4]) for row in FAR_TABLE if row[0] == name}


@pytest.mark.parametrize("kind", FAR_KINDS, ids=str)
def test_large_variances_agree_with_mpmath(kind):
    made = activation(kind[0], **dict(kind[1]))
    rows = [row[2:] for row in FAR_TABLE if (row[0], tuple(row[1].items())) == kind]
    for q, distance, product, gap, slope_product, second, slope_mean in rows:
        got = pair_moments(made, q, distance=distance)
        assert abs(got.product - product) <= PROMISED * second, (q, distance)
        assert abs(got.gap - gap) <= PROMISED * gap, (q, distance)
        assert abs(got.slope_product - slope_product) <= PROMISED * slope_mean, (q, distance)


def gelu_product(q, c):
    """E phi(h) phi(h') by parts: E [h h' Phi(h) Phi(h')], with E n(h) n(h') for the density n."""
    density = 1 / (2 * mp.pi * mp.sqrt((1 + q) ** 2 - (q * c) ** 2))
    both = mp.mpf(1) / 4 + mp.asin(q * c / (1 + q)) / (2 * mp.pi)       # E Phi(h) Phi(h')
    return q * c * both + q * q * density * (1 + c * c * (1 - q) / (1 + q))


@pytest.mark.parametrize("q", [0.7, 250.0, 301.0, 1e4, 1e7, 1e12, 1e20])
def test_gelu_agrees_with_its_closed_form(q):
    made, slope_mean = activation("gelu"), moments(activation("gelu"), q).slope_mean
    spread = np.array([1e-9, 1e-3, 0.02, 0.3, 1.0, 4.0, 60.0, 1e3, 1e6])
    distance = 2.0 * spread[2.0 * spread**2 < q] ** 2 / q
    distance = np.concatenate((distance, 2.0 - distance))
    got = pair_moments(made, q, distance=distance)
    with mp.workdps(90):
        exact, one = mp.mpf(q), gelu_product(mp.mpf(q), mp.mpf(1))
        for i, d in enumerate(distance):
            c = 1 - mp.mpf(d)
            gap = float(one - gelu_product(exact, c))
            step = mp.mpf(10) ** -40
            slopes = (gelu_product(exact, c + step) - gelu_product(exact, c - step)) / (
                2 * step * exact)
            assert got.gap[i] == pytest.approx(gap, rel=PROMISED, abs=0), d
            assert abs(got.slope_product[i] - float(slopes)) <= PROMISED * slope_mean, d


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("q", [LEAST_VARIANCE, 2e3, 1e5, 1e6])
def test_both_rules_of_large_variances_agree(name, q):
    made = activation(name)
    least = 2.001 * LEAST_SPREAD**2 / q
    close = np.geomspace(least, 0.9, 14)
    distance = np.concatenate((close, [0.999, 1.001], 2.0 - close))
    if name in ("gelu", "silu", "softplus", "mish", "elu", "selu"):
        distance = np.concatenate(([1e-12 / q, 1e-3 * least, 0.1 * least], distance, [2.0]))
    variance = np.full(distance.size, q)
    assert np.all(serves(made, variance, distance))
    assert not np.any(serves(made, 0.99 * LEAST_VARIANCE + 0.0 * distance, distance))
    slope_mean = moments(made, q).slope_mean
    new = asymptotic_pairs(made, variance, distance, np.full(distance.size, slope_mean))
    old = _compiled_pairs(made, variance, distance)
    assert new[0] == pytest.approx(old[0], rel=PROMISED, abs=0)
    assert np.max(np.abs(new[1] - old[1])) <= PROMISED * slope_mean


@pytest.mark.parametrize("name", LARGE)
def test_large_variances_need_no_two_dimensional_rule(name, monkeypatch):
    # Those cost up to milliseconds there: half a second in place of minutes for a heat map.
    def refuse(*_):
        raise AssertionError("a two-dimensional rule at a large variance")

    monkeypatch.setattr("fastspec._pairs._compiled_pairs", refuse)
    got = pair_moments(activation(name), [[LEAST_VARIANCE], [1e4], [1e30]], c=[0.9, 0.0, -0.9])
    assert np.all(np.diff(got.gap, axis=1) > 0.0)


def test_elu_of_any_size_on_the_left():
    # phi' jumps from alpha to 1 at 0, upwards or downwards
    distance = np.array([1e-6, 1e-3, 0.2, 1.4])
    for alpha in (0.2, 3.0):
        made, q = activation("elu", alpha=alpha), np.full(4, 700.0)
        slope_mean = np.full(4, moments(made, 700.0).slope_mean)
        new = asymptotic_pairs(made, q, distance, slope_mean)
        old = _compiled_pairs(made, q, distance)
        assert new[0] == pytest.approx(old[0], rel=PROMISED, abs=0)
        assert np.max(np.abs(new[1] - old[1])) <= PROMISED * slope_mean[0]


@pytest.mark.parametrize("name", LARGE)
def test_many_pairs_at_once_are_the_single_ones(name):
    made = activation(name)
    rng = np.random.default_rng(3)
    q, distance = np.exp(rng.uniform(0.0, 40.0, 300)), 2.0 * rng.uniform(0.0, 1.0, 300) ** 8
    at = np.arange(0, 300, 37)
    some = [pair_rows(made, q[i : i + 1], distance[i : i + 1])[:, 0] for i in at]
    assert pair_rows(made, q, distance)[:, at].T == pytest.approx(np.array(some), rel=1e-13, abs=0)


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "mish", "elu", "selu"])
@pytest.mark.parametrize("q", [1e26, 1e36, 1e200, 1.5e308])
def test_seen_from_afar_they_are_relus(name, q):
    made, distance = activation(name), np.array([1e-12, 1e-3, 0.5, 1.0, 1.3, 2.0])
    scale = made.derivative(50.0)
    far = pair_moments(activation("relu"), q, distance=distance)
    got = pair_moments(made, q, distance=distance)
    # what is left is of relative order 1 / sqrt(q distance)
    assert got.gap / scale**2 == pytest.approx(far.gap, rel=2e-12, abs=0)
    assert got.slope_product / scale**2 == pytest.approx(far.slope_product, rel=0, abs=2e-12)


@pytest.mark.parametrize(("name", "total"), [("tanh", 4.0), ("sigmoid", 1.0), ("hard_tanh", 4.0)])
@pytest.mark.parametrize("q", [1e30, 1e36, 1e200, 1e300])
def test_seen_from_afar_they_are_steps(name, total, q):
    # E (sign h - sign h')^2 / 2 = 2 theta / pi; phi' is a delta function
    c = np.array([0.999, 0.5, 0.0, -0.3, -0.999])
    got = pair_moments(activation(name), q, c=c)
    assert got.gap == pytest.approx(total * np.arccos(c) / (2.0 * math.pi), rel=1e-12, abs=0)
    assert got.slope_product == pytest.approx(
        total / (2.0 * math.pi * q * np.sqrt(1.0 - c * c)), rel=1e-12, abs=0)


DISTANCES = [1e-16, 1e-9, 1e-4, 0.01, 0.3, 0.999, 1.001, 1.7, 1.999, 2.0]


def closed(name, parameter, q, d):
    """Gap, slope product, E phi'^2 in mpmath (Cho & Saul 2009, Williams 1997)."""
    c, a = 1 - d, mp.mpf(parameter)
    if name == "leaky_relu":
        t = mp.acos(c)
        both = 2 * (mp.sin(t) + (mp.pi - t) * c) / mp.pi - c        # E |h h'| / q
        return (q * ((1 + a * a) / 2 - ((1 + a) / 2) ** 2 * c - ((1 - a) / 2) ** 2 * both),
                ((1 + a) / 2) ** 2 + ((1 - a) / 2) ** 2 * (1 - 2 * t / mp.pi), (1 + a * a) / 2)
    if name == "erf":
        t = 2 * q
        return (2 / mp.pi * (mp.asin(t / (1 + t)) - mp.asin(t * c / (1 + t))),
                4 / mp.pi / mp.sqrt((1 + t) ** 2 - (t * c) ** 2), 4 / mp.pi / mp.sqrt(1 + 2 * t))
    return ((1 - mp.exp(-2 * q)) / 2 - mp.exp(-q) * mp.sinh(q * c),
            mp.exp(-q) * mp.cosh(q * c), (1 + mp.exp(-2 * q)) / 2)


@pytest.mark.parametrize(("name", "parameter"), [
    ("leaky_relu", 0.0), ("leaky_relu", 0.2), ("leaky_relu", -0.5), ("erf", 0.0), ("sin", 0.0)])
@pytest.mark.parametrize("q", [1e-12, 1e-6, 0.3, 20.0, 1e4, 1e8])
def test_closed_forms_do_not_cancel(name, parameter, q):
    made = activation(name, slope=parameter) if name == "leaky_relu" else activation(name)
    got = pair_moments(made, q, distance=DISTANCES)
    with mp.workdps(50):
        for i, d in enumerate(DISTANCES):
            gap, product, size = map(float, closed(name, parameter, mp.mpf(q), mp.mpf(d)))
            assert got.gap[i] == pytest.approx(gap, rel=1e-13, abs=0)
            assert abs(got.slope_product[i] - product) <= 1e-14 * size


@pytest.mark.parametrize("alpha", [0.3, 0.55, 0.8, 1.0, 1.5, 3.0])
def test_alpha_relu_agrees_with_hypergeometric_functions(alpha):
    # E h_+^a h'_+^a at q = 1 (Yang & Schoenholz 2017)
    def product(a, c):
        even = 2**a * mp.gamma((a + 1) / 2) ** 2 * mp.hyp2f1(-a / 2, -a / 2, 0.5, c * c)
        odd = 2 ** (a + 1) * mp.gamma(a / 2 + 1) ** 2 * c * mp.hyp2f1(
            (1 - a) / 2, (1 - a) / 2, 1.5, c * c)
        return (even + odd) / (4 * mp.pi)

    q, made = 0.7, activation("alpha_relu", alpha=alpha)
    got = pair_moments(made, q, distance=DISTANCES[:-1])
    with mp.workdps(50):
        a = mp.mpf(alpha)
        for i, d in enumerate(DISTANCES[:-1]):
            c = 1 - mp.mpf(d)
            gap = mp.mpf(q) ** a * (product(a, mp.mpf(1)) - product(a, c))
            slopes = float(a * a * mp.mpf(q) ** (a - 1) * product(a - 1, c))
            assert got.gap[i] == pytest.approx(float(gap), rel=PROMISED, abs=0)
            assert abs(got.slope_product[i] - slopes) <= PROMISED * max(slopes, alpha**2)


def test_relu_and_its_first_power_are_one():
    d = np.array(DISTANCES)
    first = pair_moments(activation("alpha_relu", alpha=1.0), 3.0, distance=d)
    second = pair_moments(activation("relu"), 3.0, distance=d)
    for one, other in zip(first, second, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [1e-12, 1e-3, 0.3, 3.0, 50.0, 1e3, 1e4, 1e9])
def test_prices_theorem(name, q):
    # d gap / d distance = q E phi' phi': both rows and every rule, the joints between them too.
    made, (x, w) = make(name), np.polynomial.legendre.leggauss(8)
    for low, high in [(1e-12, 1.5e-12), (1e-7, 1.2e-7), (1e-4, 1.1e-4), (4e-3, 5e-3), (0.05, 0.06),
                      (0.6, 0.7), (0.95, 1.0), (1.0, 1.05), (1.8, 1.85), (1.99, 1.992)]:
        half = 0.5 * (high - low)
        inside = pair_moments(made, q, distance=0.5 * (low + high) + half * x)
        ends = pair_moments(made, q, distance=[low, high])
        change = q * half * (w @ inside.slope_product)
        size = max(ends.gap[1], q * (high - low) * moments(made, q).slope_mean)
        assert abs(ends.gap[1] - ends.gap[0] - change) <= PROMISED * size, (low, high)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("distance", [1e-60, 1e-200, 1e-300])
def test_the_gap_keeps_its_digits_as_the_points_meet(name, q, distance):
    made = make(name)
    slope_mean = moments(made, q).slope_mean
    got = pair_moments(made, q, distance=distance)
    assert got.gap == pytest.approx(distance * q * slope_mean, rel=PROMISED, abs=0)
    assert got.slope_product == pytest.approx(slope_mean, rel=PROMISED, abs=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [0.0, 1e-6, 1.0, 1e4])
def test_equal_points_are_exact(name, q):
    made = make(name)
    one = moments(made, q)
    expected = PairMoments(one.second_moment, 0.0, one.slope_mean)
    assert pair_moments(made, q, distance=0.0) == expected
    assert pair_moments(made, q, c=1.0) == expected


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [1e-6, 1.0, 1e4])
def test_opposite_points(name, q):
    made, one = make(name), moments(make(name), q)
    got = pair_moments(made, q, c=-1.0)
    if made.odd:
        assert got.product == pytest.approx(-one.second_moment, rel=PROMISED, abs=0)
        assert got.slope_product == pytest.approx(one.slope_mean, rel=PROMISED, abs=0)
    elif name != "alpha_relu":
        def both(function):
            return expectation(lambda h: function(h) * function(-h), q, kinks=(0.0,)).value

        assert abs(got.product - both(made)) <= PROMISED * one.second_moment
        assert abs(got.slope_product - both(made.derivative)) <= PROMISED * one.slope_mean


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("q", [0.0, 1e-280, 1e-12, 1e8, 1e12])
def test_extreme_variances(name, q):
    made = make(name)
    one = moments(made, q)
    for d in [1e-9, 0.3, 1.0, 1.7, 2.0]:
        got = pair_moments(made, q, distance=d)
        assert 0.0 <= got.gap <= 2.0 * one.second_moment * (1 + 1e-12)
        assert abs(got.product) <= one.second_moment * (1 + 1e-12)
        assert abs(got.slope_product) <= one.slope_mean * (1 + 1e-12)


def test_arrays_broadcast_and_numbers_stay_numbers():
    made = activation("tanh")
    got = pair_moments(made, [[0.1], [2.0]], c=[0.0, 0.5, 1.0])
    assert got.gap.shape == got.product.shape == got.slope_product.shape == (2, 3)
    alone = pair_moments(made, 2.0, c=0.5)
    assert alone == (got.product[1, 1], got.gap[1, 1], got.slope_product[1, 1])
    assert all(type(entry) is float for entry in alone)
    assert type(variance_slope(made, 1.0)) is type(linear_excess(made, 1.0)) is float
    assert variance_slope(made, [[1.0, 2.0]]).shape == (1, 2)
    assert linear_excess(made, np.ones((2, 0))).shape == (2, 0)
    assert pair_moments(made, np.ones((2, 0)), c=0.5).gap.shape == (2, 0)


@pytest.mark.parametrize("q", [1e-6, 0.4, 30.0, 1e3])
@pytest.mark.parametrize("distance", [1e-200, 1e-9, 1e-3, 0.4, 1.3, 1.999])
def test_users_functions_agree_with_the_builtin_ones(q, distance):
    for name, phi, slope, kinks in [("tanh", np.tanh, tanh_slope, ()),
                                    ("elu", elu_value, elu_slope, (0.0,))]:
        got = pair_moments(activation(phi, derivative=slope, kinks=kinks), q, distance=distance)
        truth = pair_moments(activation(name), q, distance=distance)
        assert got.gap == pytest.approx(truth.gap, rel=1e-11, abs=0)
        one = moments(activation(name), q)
        assert abs(got.product - truth.product) <= 1e-11 * one.second_moment
        assert abs(got.slope_product - truth.slope_product) <= 1e-11 * one.slope_mean


def test_kinks_that_are_not_declared_are_reported():
    ramp = activation(lambda h: np.maximum(h, 0.0), derivative=lambda h: 1.0 * (h > 0.0))
    with pytest.warns(ConvergenceWarning, match="kinks it does not declare"):
        got = pair_moments(ramp, 1.0, c=0.5)
    assert got.gap == pytest.approx(pair_moments(activation("relu"), 1.0, c=0.5).gap, rel=1e-3)


def test_scalar_functions_of_users():
    def ramp(h):
        return math.sin(h) if h > 0.5 else math.sin(0.5)

    def slope(h):
        return math.cos(h) if h > 0.5 else 0.0

    got = pair_moments(activation(ramp, derivative=slope, kinks=[0.5]), 2.0, c=0.0)
    mean = expectation(ramp, 2.0, kinks=[0.5]).value
    assert got.product == pytest.approx(mean**2, rel=1e-11, abs=0)


def test_variance_slope_of_users_functions():
    made = activation(np.tanh, derivative=tanh_slope)
    for q in [1e-6, 1.0, 1e3]:
        assert variance_slope(made, q) == pytest.approx(
            variance_slope(activation("tanh"), q), rel=1e-12, abs=0)
    # E (1 + h)^2 = 1 + q, and the limit at 0 although phi(0) != 0
    shifted = activation(lambda h: 1.0 + h, derivative=lambda h: 1.0 + 0.0 * h)
    assert variance_slope(shifted, [0.0, 1.0]) == pytest.approx(np.ones(2), rel=1e-10)


def test_variance_slope_at_zero_is_the_limit():
    assert variance_slope(activation("relu"), 0.0) == 0.5
    assert variance_slope(activation("alpha_relu", alpha=0.9), 0.0) == math.inf
    # (phi'^2 + phi phi'')(0): softplus 1/4 + log(2)/4, sigmoid 1/16; elu (1 + alpha^2) / 2
    assert variance_slope(activation("softplus"), 0.0) == pytest.approx(
        0.25 + 0.25 * math.log(2.0), rel=1e-13, abs=0)
    assert variance_slope(activation("sigmoid"), 0.0) == pytest.approx(1 / 16, rel=1e-13, abs=0)
    assert variance_slope(activation("elu", alpha=0.5), 0.0) == pytest.approx(
        0.625, rel=1e-13, abs=0)


def test_linear_excess_of_powers():
    # c_a q^a (a - 1)^2 / (2a - 1), c_a = 2^{a-1} Gamma(a + 1/2) / sqrt(pi)
    for alpha in [0.6, 0.9, 2.0]:
        constant = 2 ** (alpha - 1) * math.gamma(alpha + 0.5) / math.sqrt(math.pi)
        assert linear_excess(activation("alpha_relu", alpha=alpha), 0.3) == pytest.approx(
            constant * 0.3**alpha * (alpha - 1) ** 2 / (2 * alpha - 1), rel=1e-13, abs=0)
    assert linear_excess(activation("alpha_relu", alpha=0.5), 1.0) == math.inf
    for name in ["linear", "relu", "leaky_relu"]:
        assert linear_excess(activation(name), 7.3) == 0.0


@pytest.mark.parametrize("q", [1e-3, 0.01, 0.011, 0.07, 0.1, 0.3, 1.0, 10.0, 1e3, 1e6])
def test_hard_tanh_excess_does_not_cancel(q):
    # q P(|h| < 1) - E h^2 [|h| < 1] - P(|h| > 1) with y = 1 / (2q)
    with mp.workdps(60):
        y = 1 / (2 * mp.mpf(q))
        excess = float(mp.exp(-y) / mp.sqrt(mp.pi * y) - mp.erfc(mp.sqrt(y)))
        bend = float(mp.gammainc(1.5, 0, y, regularized=True))      # P(3/2, y)
    made = activation("hard_tanh")
    assert linear_excess(made, q) == pytest.approx(excess, rel=PROMISED, abs=0)
    assert variance_slope(made, q) == pytest.approx(bend, rel=1e-13, abs=0)
    assert linear_excess(made, 1e-8) == linear_excess(made, 0.0) == 0.0     # underflows


def test_linear_excess_may_be_negative_and_of_users_functions():
    # phi = 1 + h: q - (1 + q) = -1
    shifted = activation(lambda h: 1.0 + h, derivative=lambda h: 1.0 + 0.0 * h)
    assert linear_excess(shifted, 2.0) == pytest.approx(-1.0, rel=1e-12, abs=0)
    assert linear_excess(activation("sigmoid"), 0.0) == pytest.approx(-0.25, rel=1e-14, abs=0)


@pytest.mark.parametrize("name", sorted({name for name, _ in EXCESS_KINDS}))
def test_linear_excess_where_its_form_changes(name):
    # Smooth across q = 1: a fourth difference of steps 1e-3 sees only rounding and h^4.
    q = 1.0 + 1e-3 * np.arange(-2.5, 3.0)
    values = linear_excess(activation(name), q)
    assert abs(np.diff(values, 5)[0]) <= 1e-11 * np.abs(values).max()


@pytest.mark.parametrize(("q", "given", "word"), [
    (-1.0, {"c": 0.5}, "q must be >= 0"), (math.nan, {"c": 0.5}, "q must be finite"),
    (1.0, {"c": 1.5}, r"c must lie in \[-1, 1\], got 1.5"),
    (1.0, {"c": math.nan}, "c must be finite"),
    (1.0, {"distance": -1e-9}, r"distance must lie in \[0, 2\]"),
    (1.0, {"distance": [0.0, 2.1]}, "2.1"), (1.0, {}, "c and distance, got none"),
    (1.0, {"c": 0.5, "distance": 0.5}, "c and distance, got both"), (1.0, {"c": "x"}, "c must be"),
])
def test_bad_arguments_of_pairs_are_named(q, given, word):
    with pytest.raises(ValueError, match=word):
        pair_moments(activation("tanh"), q, **given)


@pytest.mark.parametrize("function", [variance_slope, linear_excess])
def test_bad_variances_are_named(function):
    with pytest.raises(ValueError, match="q must be >= 0, got"):
        function(activation("tanh"), [1.0, -1.0])
    with pytest.raises(ValueError, match="q must be finite"):
        function(activation("tanh"), math.inf)
