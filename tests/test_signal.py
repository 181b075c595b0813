"""Variance and correlation maps, their fixed points, depth scales: closed cases, mpmath, scans."""

import math

import mpmath as mp
import numpy as np
import pytest

from fastspec._fixed_points import variance_table
from fastspec.activations import ACTIVATIONS, activation
from fastspec.quadrature import moments
from fastspec.signal import (
    chi,
    correlation_fixed_points,
    correlation_map,
    depth_scales,
    fixed_point,
    fixed_points,
    variance_map,
)

NAMES = [name for name in ACTIVATIONS if name != "alpha_relu"]
BUMP = activation(lambda h: h * np.exp(-0.5 * h * h),
                  derivative=lambda h: (1.0 - h * h) * np.exp(-0.5 * h * h))


def bump_variance(q):
    """E phi^2 of h exp(-h^2/2)."""
    return q / (1 + 2 * q) ** mp.mpf("1.5")


def gelu_variance(q):
    """E h^2 Phi(h)^2, by parts."""
    bracket = mp.asin(q / (1 + q)) + 2 * q / ((1 + q) * mp.sqrt(1 + 2 * q))
    return q / 4 + q / (2 * mp.pi) * bracket


def erf_pair(q, c):
    """E erf(h) erf(h') (Williams 1997)."""
    return 2 / mp.pi * mp.asin(2 * q * c / (1 + 2 * q))


# tanh critical line (Pennington, Schoenholz & Ganguli 2018): q*, sigma_w, sigma_b.
TANH_LINE = [(0.01, 1.0098, 0.00112), (0.1, 1.0852, 0.0288), (0.25, 1.1807, 0.0901),
             (0.5, 1.2992, 0.195), (1.0, 1.4674, 0.3885), (2.0, 1.6915, 0.7157),
             (4.0, 1.9766, 1.232), (10.0, 2.4576, 2.329)]


def test_variance_map_of_relu_and_its_shapes():
    assert variance_map("relu", 3.0, 2.0, 0.5) == pytest.approx(6.25, rel=1e-15, abs=0)
    assert isinstance(variance_map("relu", 3.0, 2.0), float)
    grid = variance_map("tanh", np.array([0.5, 1.0]), np.array([[1.0], [2.0]]), 0.1)
    assert grid.shape == (2, 2)
    second = moments(activation("tanh"), 1.0).second_moment
    assert grid[1, 1] == pytest.approx(4 * second + 0.01, rel=1e-15, abs=0)


def test_chi_of_hard_tanh():
    q = np.array([0.2, 3.0])
    truth = [2.25 * math.erf(1 / math.sqrt(2 * x)) for x in q]
    assert chi("hard_tanh", q, 1.5) == pytest.approx(truth, rel=1e-15, abs=0)


@pytest.mark.parametrize(("q", "sigma_w", "sigma_b"), TANH_LINE)
def test_tanh_critical_line(q, sigma_w, sigma_b):
    made = moments(activation("tanh"), q)
    weight = 1 / made.slope_mean
    bias = q - weight * made.second_moment
    unit = 10.0 ** -len(str(sigma_b).split(".")[1])
    assert math.sqrt(weight) == pytest.approx(sigma_w, abs=0.51e-4)
    assert math.sqrt(bias) == pytest.approx(sigma_b, abs=0.51 * unit)
    # Near q = 0 the map hugs the diagonal: rounding is amplified by 1 / (1 - f') ~ 1 / (4 q).
    found = fixed_point("tanh", math.sqrt(weight), math.sqrt(bias))
    assert found == pytest.approx(q, rel=1e-14 * (1 + 0.3 / q), abs=0)
    assert chi("tanh", found, math.sqrt(weight)) == pytest.approx(1.0, rel=1e-14, abs=0)


@pytest.mark.parametrize(("weight", "bias"), [(1.05, 2.0105e-5), (2.0, 0.3), (9.0, 0.0)])
def test_tanh_fixed_points_against_mpmath(weight, bias):
    with mp.workdps(25):
        step = mp.mpf(1) / 24       # trapezoid: poles at i pi / 2 s leave exp(-24 pi^2 / s)
        grid = [k * step for k in range(1, 24 * 11)]
        density = [2 * step * mp.npdf(z) for z in grid]

        def growth(q):
            s = mp.sqrt(q)
            second = mp.fsum(w * mp.tanh(s * z) ** 2 for w, z in zip(density, grid, strict=True))
            return mp.mpf(math.sqrt(weight)) ** 2 * second + mp.mpf(math.sqrt(bias)) ** 2 - q

        found = fixed_point("tanh", math.sqrt(weight), math.sqrt(bias))
        truth = mp.findroot(growth, (found * 0.999, found * 1.001), tol=1e-40)
        slope = mp.diff(growth, truth, h=mp.mpf("1e-8"))
    assert found == pytest.approx(float(truth), rel=2e-15 * (1 + 1 / abs(float(slope))), abs=0)
    if weight == 1.05:
        assert found == pytest.approx(0.025921, abs=5e-7)


def test_linear_and_relu_fixed_points_are_explicit():
    assert fixed_point("linear", 0.8, 0.3) == pytest.approx(0.09 / 0.36, rel=1e-14, abs=0)
    assert fixed_point("relu", 1.1, 0.3, start=1e8) == pytest.approx(0.09 / 0.395, rel=1e-14, abs=0)
    assert fixed_point("relu", 1.1, 0.3, start=1e-8) == pytest.approx(
        0.09 / 0.395, rel=1e-14, abs=0)


@pytest.mark.parametrize(("name", "sigma_w"), [("relu", math.sqrt(2.0)), ("linear", 1.0)])
@pytest.mark.parametrize("start", [1e-7, 1.0, 3.7e5])
def test_where_every_q_is_fixed_the_start_is_returned(name, sigma_w, start):
    assert fixed_point(name, sigma_w, start=start) == start


@pytest.mark.parametrize("name", ["tanh", "arctan", "erf", "hard_tanh", "sigmoid", "softsign",
                                  "sin", "gelu", "silu", "elu", "softplus"])
@pytest.mark.parametrize("start", [1e-3, 1.0, 50.0])
def test_fixed_points_are_where_iteration_goes(name, start):
    sigma_w, sigma_b = 1.1, 0.3
    q = start
    for _ in range(2000):
        q = variance_map(name, q, sigma_w, sigma_b)
    assert fixed_point(name, sigma_w, sigma_b, start=start) == pytest.approx(q, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "alpha_relu"])
def test_fixed_points_are_fixed(name):
    found = fixed_point(name, 0.9, 0.4)
    assert variance_map(name, found, 0.9, 0.4) == pytest.approx(found, rel=3e-15, abs=0)


def test_a_map_that_hugs_the_diagonal_to_rounding():
    # hard_tanh maps q to q (1 - 1e-37) at q = 0.006: rounding decides the sign of f(q) - q until
    # clipping shows, and with sigma_b^2 = 1e-18 the fixed point lies there.
    found = fixed_point("hard_tanh", 1.0, 1e-9, start=1e-12)
    assert 0.008 < found < 0.02


def test_users_functions_have_the_same_fixed_points():
    user = activation(np.tanh, derivative=lambda h: 1 - np.tanh(h) ** 2)
    assert fixed_point(user, 1.5, 0.2) == pytest.approx(
        fixed_point("tanh", 1.5, 0.2), rel=1e-13, abs=0)


@pytest.mark.parametrize(("name", "sigma_w", "sigma_b", "words"), [
    ("relu", 2.0, 0.0, "grows without bound"),
    ("relu", math.sqrt(2.0), 0.1, "grows without bound"),
    ("linear", 1.0, 1e-3, "grows without bound"),
    ("softplus", 2.0, 0.1, "grows without bound"),
    ("relu", 1.2, 0.0, "dies out"),
    ("tanh", 0.9, 0.0, "dies out"),
    ("tanh", 1.0, 0.0, "dies out"),
    ("sin", 1.0, 0.0, "dies out"),
])
def test_no_fixed_point_is_said(name, sigma_w, sigma_b, words):
    with pytest.raises(ValueError, match=words) as caught:
        fixed_point(name, sigma_w, sigma_b)
    assert name in str(caught.value)


@pytest.mark.parametrize(("call", "word"), [
    (lambda: variance_map("tanh", -1.0, 1.0), "q"),
    (lambda: variance_map("tanh", 1.0, -1.0), "sigma_w"),
    (lambda: variance_map("tanh", 1.0, 1.0, math.nan), "sigma_b"),
    (lambda: variance_map("tanhh", 1.0, 1.0), "tanh"),
    (lambda: chi("tanh", 1.0, "x"), "sigma_w"),
    (lambda: fixed_point("tanh", 0.0), "sigma_w"),
    (lambda: fixed_point("tanh", 1.0, -0.1), "sigma_b"),
    (lambda: fixed_point("tanh", 1.0, start=0.0), "start"),
    (lambda: fixed_point("tanh", [1.0, 2.0]), "sigma_w"),
])
def test_bad_arguments_are_named(call, word):
    with pytest.raises(ValueError, match=word):
        call()


@pytest.mark.parametrize("name", ["tanh", "hard_tanh", "sin", "gelu", "silu", "mish", "elu", "selu",
                                  "softplus", "sigmoid", "softsign", "relu"])
def test_all_fixed_points_are_found(name):
    # Signs of Q(q) - q on a grid twenty times finer than the one searched.
    q = np.geomspace(1e-9, 1e9, 8001)
    second = moments(activation(name), q).second_moment
    rng = np.random.default_rng(5)
    numbers = set()
    for sigma_w, sigma_b in zip(rng.uniform(0.5, 2.2, 40), rng.choice([0.0, 0.03, 0.3, 1.0], 40),
                                strict=True):
        off = sigma_w**2 * second + sigma_b**2 - q
        places = np.flatnonzero(np.sign(off[1:]) != np.sign(off[:-1]))
        found = [point.q for point in fixed_points(name, sigma_w, sigma_b)]
        alive = [x for x in found if x > 0.0]
        assert len(alive) == places.size
        assert all(q[i] <= x <= q[i + 1] for i, x in zip(places, alive, strict=True))
        assert (0.0 in found) == (sigma_b == 0.0 and name not in ("softplus", "sigmoid"))
        numbers.add(len(alive))
    assert len(numbers) > 1 or name in ("hard_tanh", "sigmoid", "softsign", "tanh", "sin")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(0.9, 0.4), (1.3, 0.1), (1.6, 0.0), (3.0, 1.0)])
def test_every_fixed_point_satisfies_the_map(name, sigma_w, sigma_b):
    for point in fixed_points(name, sigma_w, sigma_b):
        if point.q > 0.0:
            off = variance_map(name, point.q, sigma_w, sigma_b) / point.q - 1.0
            assert abs(off) < 3e-15
        assert point.chi == pytest.approx(chi(name, point.q, sigma_w), rel=1e-15, abs=0)
        assert point.stable == (point.slope < 1.0) and not point.marginal


def test_three_fixed_points_of_gelu():
    sigma_w, sigma_b = math.sqrt(2.0 * (1.0 - 1e-4)), 0.3
    points = fixed_points("gelu", sigma_w, sigma_b)
    assert [point.stable for point in points] == [True, False, True]
    with mp.workdps(30):
        def growth(q):
            return mp.mpf(sigma_w) ** 2 * gelu_variance(q) + mp.mpf(sigma_b) ** 2 - q

        for point in points:
            truth = mp.findroot(growth, (point.q * (1 - 1e-6), point.q * (1 + 1e-6)), tol=1e-40)
            slope = 1 + mp.diff(growth, truth, h=truth * mp.mpf("1e-9"))
            room = 3e-15 / abs(1 - float(slope))
            assert point.q == pytest.approx(float(truth), rel=room, abs=0)
            assert point.slope == pytest.approx(float(slope), rel=1e-12 + 10 * room * abs(
                float(slope) - 1.0), abs=0)


@pytest.mark.parametrize(("phi", "second", "sigma_w", "sigma_b"), [
    (BUMP, bump_variance, 2.0, 0.3),
    (BUMP, bump_variance, 9.0, 0.0),
    ("erf", lambda q: erf_pair(q, 1), 1.3, 0.2),
    ("sin", lambda q: -mp.expm1(-2 * q) / 2, 2.5, 0.0),
])
def test_slopes_against_mpmath_differences(phi, second, sigma_w, sigma_b):
    point = fixed_points(phi, sigma_w, sigma_b)[-1]
    with mp.workdps(40):
        def growth(q):
            return mp.mpf(sigma_w) ** 2 * second(q) + mp.mpf(sigma_b) ** 2 - q

        truth = mp.findroot(growth, (point.q, point.q * 1.001), tol=1e-60)
        step = mp.mpf("1e-12")
        slope = 1 + (growth(truth + step) - growth(truth - step)) / (2 * step)
    assert point.q == pytest.approx(float(truth), rel=3e-15 / abs(1 - float(slope)), abs=0)
    assert point.slope == pytest.approx(float(slope), rel=1e-12, abs=1e-12)
    if sigma_w == 9.0:
        assert -0.5 < point.slope < -0.41 and point.stable     # slopes never fall below -1/2


@pytest.mark.parametrize("gap", [1e-4, 1e-8, 3e-13])
def test_two_fixed_points_close_to_each_other(gap):
    # alpha_relu with alpha = 3: Q = 7.5 w q^3 + b touches the diagonal at q for
    # w = 1 / (22.5 q^2), b = 2 q / 3; b lowered by a share ``gap`` parts the roots by
    # q (1 +- sqrt(2 gap / 3)).
    phi, q = activation("alpha_relu", alpha=3.0), 0.37
    sigma_w, bias = math.sqrt(1.0 / 22.5) / q, 2.0 * q / 3.0
    low, high = fixed_points(phi, sigma_w, math.sqrt(bias * (1.0 - gap)))
    apart = math.sqrt(2.0 * gap / 3.0)
    assert low.stable and not high.stable
    assert (high.q - low.q) / (2.0 * q) == pytest.approx(apart, rel=0.02 if gap < 1e-9 else 1e-2)
    assert fixed_points(phi, sigma_w, math.sqrt(bias * (1.0 + gap))) == ()


def test_a_tangency_is_one_marginal_point():
    for q in (0.01, 0.37, 5.0):
        sigma_w, sigma_b = math.sqrt(1.0 / 22.5) / q, math.sqrt(2.0 * q / 3.0)
        points = fixed_points(activation("alpha_relu", alpha=3.0), sigma_w, sigma_b)
        assert len(points) == 1
        assert points[0].marginal and not points[0].stable
        assert points[0].q == pytest.approx(q, rel=1e-7, abs=0)


LEAKY = activation(lambda h: np.where(h > 0.0, h, 0.1 * h),
                   derivative=lambda h: np.where(h > 0.0, 1.0, 0.1), kinks=(0.0,))


@pytest.mark.parametrize(("phi", "weight"), [
    ("relu", 2.0), ("linear", 1.0), (activation("leaky_relu", slope=0.1), 2 / 1.01),
    (LEAKY, 2 / 1.01)])
def test_where_every_q_is_fixed_one_point_says_so(phi, weight):
    (point,) = fixed_points(phi, math.sqrt(weight))
    assert point.continuum and point.marginal and not point.stable and point.q == 0.0
    assert fixed_points(phi, math.sqrt(weight), 0.1) == ()
    (below,) = fixed_points(phi, math.sqrt(0.9 * weight), 0.1)
    assert below.q == pytest.approx(0.1, rel=1e-13, abs=0) and not below.continuum
    (dead,) = fixed_points(phi, math.sqrt(0.9 * weight))
    assert dead.q == 0.0 and dead.stable and not dead.continuum


@pytest.mark.parametrize(("alpha", "weight"), [(0.8, 3.0), (0.8, 1e-25), (0.8, 1e25), (1.5, 1e-9)])
def test_powers_have_an_explicit_fixed_point(alpha, weight):
    constant = 2.0 ** (alpha - 1.0) * math.gamma(alpha + 0.5) / math.sqrt(math.pi)
    dead, alive = fixed_points(activation("alpha_relu", alpha=alpha), math.sqrt(weight))
    assert dead.q == 0.0 and dead.slope == (math.inf if alpha < 1.0 else 0.0)
    truth = (weight * constant) ** (1.0 / (1.0 - alpha))
    assert alive.q == pytest.approx(truth, rel=2e-14 / abs(1.0 - alpha), abs=0)
    assert alive.slope == pytest.approx(alpha, rel=1e-13, abs=0)
    assert alive.stable == (alpha < 1.0) and dead.stable == (alpha > 1.0)


def test_fixed_points_out_of_reach_are_said():
    with pytest.raises(OverflowError, match="outside"):
        fixed_points(activation("alpha_relu", alpha=0.999), 2.0)
    assert [p.q for p in fixed_points(activation("alpha_relu", alpha=0.8), 0.0)] == [0.0]


@pytest.mark.parametrize("sigma_b", [1e-20, 1e-74, 1e-80, 1e60])
def test_tiny_and_huge_biases(sigma_b):
    (point,) = fixed_points("linear", 0.5, sigma_b)
    assert point.q == pytest.approx(sigma_b**2 / 0.75, rel=1e-14, abs=0)


def test_no_weights_leave_the_biases():
    (point,) = fixed_points("tanh", 0.0, 0.3)
    assert point.q == pytest.approx(0.09, rel=1e-15) and point.slope == point.chi == 0.0
    assert [p.q for p in fixed_points("tanh", 0.0)] == [0.0]


def test_users_functions_have_the_same_list_of_fixed_points():
    user = activation(lambda h: h / (1.0 + np.exp(-h)), derivative=lambda h: (
        1.0 + np.exp(-h) * (1.0 + h)) / (1.0 + np.exp(-h)) ** 2)
    mine, theirs = fixed_points("silu", 1.6, 0.1), fixed_points(user, 1.6, 0.1)
    assert len(mine) == len(theirs) == 2
    for a, b in zip(mine, theirs, strict=True):
        assert b.q == pytest.approx(a.q, rel=1e-13) and b.slope == pytest.approx(a.slope, rel=1e-12)
    # Functions whose moments end: beyond, nothing is asked.
    sinh = activation(np.sinh, derivative=np.cosh)      # E phi^2 = (e^{2q} - 1) / 2
    low, high = fixed_points(sinh, 0.7, 0.1)
    for point in (low, high):
        assert 0.245 * math.expm1(2.0 * point.q) + 0.01 == pytest.approx(point.q, rel=1e-13)
    assert low.stable and not high.stable


@pytest.mark.parametrize("name", NAMES)
def test_maps_of_built_in_activations_increase(name):
    # What the phase diagram says about iteration rests on it.
    table = variance_table(activation(name))
    assert np.all(np.diff(table.second) >= -1e-13 * table.second[1:])
    assert np.all(table.slope >= 0.0)


def test_correlation_map_closed_forms():
    c = np.array([-1.0, -0.6, 0.0, 0.35, 1.0])
    angle = np.arccos(c)
    relu = (np.sqrt(1 - c * c) + (math.pi - angle) * c) / math.pi    # Cho & Saul 2009
    after = 2.25 * 0.8 / 2 + 0.16
    assert correlation_map("relu", 0.8, 1.5, 0.4, c) == pytest.approx(
        (2.25 * 0.8 / 2 * relu + 0.16) / after, rel=1e-12, abs=1e-13)
    erf = [float((4 * erf_pair(mp.mpf("1.7"), x) + 1) / (4 * erf_pair(mp.mpf("1.7"), 1) + 1))
           for x in c]
    assert correlation_map("erf", 1.7, 2.0, 1.0, c) == pytest.approx(erf, rel=1e-12)
    assert isinstance(correlation_map("tanh", 1.0, 2.0, 0.1, 0.3), float)
    assert correlation_map("tanh", [1.0, 2.0], 2.0, 0.1, 1.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("name", "sigma_w", "sigma_b"), [
    ("tanh", 1.2, 0.3), ("tanh", 2.0, 0.5), ("tanh", 2.0, 0.0), ("hard_tanh", 1.7, 0.2),
    ("gelu", 1.5, 0.2), ("elu", 1.2, 0.2), ("sin", 3.0, 0.0), ("sin", 3.0, 0.3), ("relu", 1.2, 0.3),
    ("softplus", 1.2, 0.1), ("sigmoid", 9.0, 0.0), ("softsign", 3.0, 0.1)])
def test_all_fixed_correlations_are_found(name, sigma_w, sigma_b):
    q = fixed_points(name, sigma_w, sigma_b)[-1].q
    points = correlation_fixed_points(name, q, sigma_w, sigma_b)
    assert points[-1].c == 1.0 and points[-1].slope == pytest.approx(
        chi(name, q, sigma_w), rel=1e-12)
    assert sum(point.stable for point in points) == 1
    c = np.linspace(-1.0, 1.0, 402)[1:-1]
    off = correlation_map(name, q, sigma_w, sigma_b, c) - c
    places = np.flatnonzero(np.sign(off[1:]) != np.sign(off[:-1]))
    inner = [point for point in points if abs(point.c) < 1.0]
    assert len(inner) == places.size == (chi(name, q, sigma_w) > 1.0)
    for i, point in zip(places, inner, strict=True):
        assert c[i] <= point.c <= c[i + 1] and point.stable
        after = correlation_map(name, q, sigma_w, sigma_b, point.c)
        assert after == pytest.approx(point.c, abs=1e-13)
        around = point.c + np.array([-1e-4, 1e-4])
        rise = np.diff(correlation_map(name, q, sigma_w, sigma_b, around))
        assert point.slope == pytest.approx(float(rise[0]) / 2e-4, rel=1e-6)
    assert (points[0].c == -1.0) == (sigma_b == 0.0 and activation(name).odd)


@pytest.mark.parametrize("excess", [0.05, 1e-3, 1e-6, 1e-9])
def test_correlations_close_to_one(excess):
    # erf at q = 1.3 with chi = 1 + excess: 1 - c* goes down to 1e-9.
    q = 1.3
    weight = (1 + excess) * math.pi / 4 * math.sqrt(1 + 4 * q)
    sigma_w = math.sqrt(weight)
    sigma_b = math.sqrt(q - weight * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)))
    inner, one = correlation_fixed_points("erf", q, sigma_w, sigma_b)
    with mp.workdps(40):
        w, b, v = mp.mpf(sigma_w) ** 2, mp.mpf(sigma_b) ** 2, mp.mpf(q)
        after = w * erf_pair(v, 1) + b

        def lack(d):
            return (w * (erf_pair(v, 1) - erf_pair(v, 1 - d)) / after - d) / d

        truth = mp.findroot(lack, (inner.distance, inner.distance * 1.01), tol=1e-50)
        slope = w * v / after * 4 / mp.pi / mp.sqrt((1 + 2 * v) ** 2 - 4 * v**2 * (1 - truth) ** 2)
    assert inner.distance == pytest.approx(float(truth), rel=1e-13 + 1e-15 / excess, abs=0)
    assert 1.0 - inner.slope == pytest.approx(float(1 - slope), rel=1e-13 + 1e-14 / excess, abs=0)
    assert inner.stable and not one.stable and one.distance == 0.0
    if excess == 1e-9:
        assert 1e-10 < inner.distance < 1e-8


def test_special_correlations():
    q = fixed_points("tanh", 2.0)[1].q
    assert [(p.c, p.stable) for p in correlation_fixed_points("tanh", q, 2.0)] == [
        (-1.0, False), (0.0, True), (1.0, False)]
    odd = activation(np.tanh, derivative=lambda h: 1.0 - np.tanh(h) ** 2)
    user = correlation_fixed_points(odd, q, 2.0)
    assert [p.c for p in user] == pytest.approx([-1.0, 0.0, 1.0], abs=1e-15)
    (line,) = correlation_fixed_points("linear", 3.7, 1.0)
    assert line.continuum and line.marginal and line.c == 1.0
    (relu,) = correlation_fixed_points("relu", 3.7, math.sqrt(2.0))
    assert relu.marginal and not relu.continuum and relu.c == 1.0


@pytest.mark.parametrize(("name", "sigma_w", "sigma_b"), [
    ("tanh", 1.2, 0.3), ("tanh", 2.0, 0.3), ("hard_tanh", 1.5, 0.2), ("gelu", 1.3, 0.5),
    ("elu", 1.1, 0.3)])
def test_depth_scales_are_those_of_iteration(name, sigma_w, sigma_b):
    scales = depth_scales(name, sigma_w, sigma_b)
    depth = np.arange(400)
    for start in (0.3 * scales.q, 5.0 * scales.q):
        q = [start]
        for _ in depth:
            q.append(variance_map(name, q[-1], sigma_w, sigma_b))
        off = np.abs(np.array(q) - scales.q)
        late = np.flatnonzero((off < 1e-6 * scales.q) & (off > 1e-9 * scales.q))
        rate = np.polyfit(late, np.log(off[late]), 1)[0]
        assert scales.xi_q == pytest.approx(-1.0 / rate, rel=1e-4)
    c = [0.1]
    for _ in depth:
        c.append(correlation_map(name, scales.q, sigma_w, sigma_b, c[-1]))
    off = np.abs(np.array(c) - scales.c)
    late = np.flatnonzero((off < 1e-5) & (off > 1e-9))
    rate = np.polyfit(late, np.log(off[late]), 1)[0]
    # With a kink C(1 - d) = 1 - chi d + O(d^{3/2}): the rate comes slowly.
    assert scales.xi_c == pytest.approx(-1.0 / rate, rel=2e-3)
    assert scales.xi_grad == pytest.approx(1.0 / abs(math.log(scales.chi)), rel=1e-12)


def test_depth_scales_at_criticality_and_given_q():
    scales = depth_scales("relu", math.sqrt(2.0), 0.0, q=3.0)
    assert scales[:2] == (3.0, 1.0)
    assert scales.xi_q == scales.xi_c == scales.xi_grad == math.inf
    unstable = fixed_points("gelu", 1.5, 0.1)[1]
    given = depth_scales("gelu", 1.5, 0.1, q=unstable.q)
    assert given.xi_q == pytest.approx(1.0 / math.log(unstable.slope), rel=1e-12)
    assert given.chi > 1.0 and given.c < 1.0


@pytest.mark.parametrize(("call", "words"), [
    (lambda: fixed_points("tanh", -1.0), "sigma_w must be .* >= 0, got -1.0"),
    (lambda: fixed_points("tanh", 1.0, math.inf), "sigma_b must be .* got inf"),
    (lambda: fixed_points("tanh", 1e90), "sigma_w must be at most 1e\\+70"),
    (lambda: fixed_points("tahn", 1.0), "did you mean 'tanh'"),
    (lambda: correlation_map("tanh", 0.0, 1.0, 0.1, 0.5), "q must be > 0"),
    (lambda: correlation_map("tanh", 1.0, 1.0, 0.1, 1.5), "c must lie in"),
    (lambda: correlation_map("tanh", 1.0, 0.0, 0.0, 0.5), "sigma_w and sigma_b"),
    (lambda: correlation_fixed_points("tanh", 1.0, 1.5, 0.3), "q must be a fixed point"),
    (lambda: correlation_fixed_points("tanh", 0.0, 1.5, 0.3), "q must be"),
    (lambda: correlation_fixed_points("tanh", 1.0, 0.0, 0.3), "sigma_w must be .* > 0"),
    (lambda: depth_scales("tanh", 0.9), "the signal dies"),
    (lambda: depth_scales("relu", 2.0, 0.1), "no stable fixed point .* none"),
    (lambda: depth_scales("relu", math.sqrt(2.0)), "every q is a fixed point"),
    (lambda: depth_scales("tanh", 1.5, 0.3, q=1.0), "q must be a fixed point"),
    (lambda: depth_scales("gelu", math.sqrt(2.0 * (1.0 - 1e-4)), 0.3), "several stable"),
])
def test_bad_arguments_of_fixed_points_and_correlations(call, words):
    with pytest.raises(ValueError, match=words):
        call()
