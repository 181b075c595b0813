"""Variance maps, fixed points and chi: closed cases, mpmath, and the table of the tanh line."""

import math

import mpmath as mp
import numpy as np
import pytest

from fastspec.activations import ACTIVATIONS, activation
from fastspec.quadrature import moments
from fastspec.signal import chi, fixed_point, variance_map

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
