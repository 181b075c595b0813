"""Critical points and lines: published values, closed forms, mpmath."""

import math

import mpmath as mp
import numpy as np
import pytest

from fastspec import _critical
from fastspec.activations import ACTIVATIONS, activation
from fastspec.quadrature import linear_excess, moments, slope_variance
from fastspec.signal import (
    chi,
    critical_line,
    critical_point,
    critical_points,
    fixed_points,
    variance_map,
)

# Pennington, Schoenholz & Ganguli 2018, the tanh line: q*, sigma_w, sigma_b and
# v = mu_2 / mu_1^2 - 1 (at q* = 10 it is 3.1779; 3.176 is a misprint).
TANH_LINE = [(0.01, 1.0098, 0.00112, 0.00073), (0.1, 1.0852, 0.0288, 0.0397),
             (0.25, 1.1807, 0.0901, 0.137), (0.5, 1.2992, 0.195, 0.299),
             (1.0, 1.4674, 0.3885, 0.583), (2.0, 1.6915, 0.7157, 1.041),
             (4.0, 1.9766, 1.232, 1.736), (10.0, 2.4576, 2.329, 3.1779)]
SMOOTH = ["tanh", "arctan", "erf", "scaled_erf", "sin", "softsign", "silu", "gelu", "mish", "elu",
          "selu"]
USER_TANH = activation(np.tanh, derivative=lambda h: 1.0 - np.tanh(h) ** 2)
LEAKY = activation(lambda h: np.where(h > 0.0, h, 0.1 * h),
                   derivative=lambda h: np.where(h > 0.0, 1.0, 0.1), kinks=(0.0,))


def unit(number):
    """Last printed decimal of a published number."""
    return 10.0 ** -len(str(number).split(".")[1])


@pytest.mark.parametrize(("q", "sigma_w", "sigma_b", "v"), TANH_LINE)
def test_published_tanh_line(q, sigma_w, sigma_b, v):
    point = critical_point("tanh", q=q)
    assert point.sigma_w == pytest.approx(sigma_w, abs=0.51 * unit(sigma_w))
    assert point.sigma_b == pytest.approx(sigma_b, abs=0.51 * unit(sigma_b))
    assert slope_variance(activation("tanh"), q) == pytest.approx(v, abs=0.51 * unit(v))
    assert point.stable and len(point.fixed_points) == 1
    back = critical_point("tanh", sigma_b=point.sigma_b)
    assert back.q == pytest.approx(q, rel=1e-12) and back.sigma_b == point.sigma_b
    assert back.sigma_w == pytest.approx(point.sigma_w, rel=1e-13)


def test_published_tanh_point_at_weight_variance_1_05():
    line = critical_line("tanh", np.linspace(0.0258, 0.026, 41))
    q = float(np.interp(1.05, line.sigma_w**2, line.q))
    assert q == pytest.approx(0.025921, abs=6e-7)
    assert critical_point("tanh", q=q).sigma_b_squared == pytest.approx(2.0105e-5, abs=6e-10)


@pytest.mark.parametrize("q", [1e-6, 1e-3, 1.0])
def test_tanh_biases_keep_twelve_digits(q):
    with mp.workdps(50):
        # 160 nodes a standard deviation: far beyond 12 digits after cancellation.
        step = mp.mpf(1) / 8
        grid = [k * step for k in range(1, 8 * 15)]
        s = mp.sqrt(mp.mpf(q))
        weights = [2 * step * mp.npdf(z) for z in grid]
        values = [mp.tanh(s * z) ** 2 for z in grid]
        second = mp.fsum(w * t for w, t in zip(weights, values, strict=True))
        first = mp.npdf(0) * step + mp.fsum(
            w * (1 - t) ** 2 for w, t in zip(weights, values, strict=True))
        weight = 1 / first
        bias = mp.mpf(q) - weight * second
    point = critical_point("tanh", q=q)
    assert point.sigma_w**2 == pytest.approx(float(weight), rel=1e-14, abs=0)
    assert point.sigma_b_squared == pytest.approx(float(bias), rel=1e-12, abs=0)
    assert point.sigma_b == pytest.approx(float(mp.sqrt(bias)), rel=1e-12, abs=0)


@pytest.mark.parametrize("q", [0.01, 0.3, 2.0, 50.0])
def test_hard_tanh_closed_form(q):
    with mp.workdps(60):
        v = mp.mpf(q)
        p = mp.erf(1 / mp.sqrt(2 * v))
        bias = (mp.sqrt(2 * v / mp.pi) * mp.exp(-1 / (2 * v)) - (1 - p)) / p
    point = critical_point("hard_tanh", q=q)
    assert point.sigma_w == pytest.approx(float(1 / mp.sqrt(p)), rel=1e-14, abs=0)
    assert point.sigma_b_squared == pytest.approx(float(bias), rel=1e-12, abs=0)


@pytest.mark.parametrize("q", [1e-5, 0.2, 7.0])
def test_erf_line_and_its_slope(q):
    with mp.workdps(40):
        v = mp.mpf(q)
        weight = mp.pi / 4 * mp.sqrt(1 + 4 * v)
        bias = v - weight * 2 / mp.pi * mp.asin(2 * v / (1 + 2 * v))
        slope = weight * 4 / mp.pi / ((1 + 2 * v) * mp.sqrt(1 + 4 * v))
    line = critical_line("erf", [q])
    assert line.sigma_w[0] == pytest.approx(float(mp.sqrt(weight)), rel=1e-14, abs=0)
    assert line.sigma_b_squared[0] == pytest.approx(float(bias), rel=1e-12, abs=0)
    assert line.slope[0] == pytest.approx(float(slope), rel=1e-13, abs=0)
    assert line.stable[0] and line.exists[0] and not line.marginal[0]


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("q", [1e-3, 0.4, 30.0])
def test_critical_points_are_fixed_with_chi_one(name, q):
    point = critical_point(name, q=q)
    assert chi(name, q, point.sigma_w) == pytest.approx(1.0, rel=1e-14)
    assert variance_map(name, q, point.sigma_w, point.sigma_b) == pytest.approx(q, rel=1e-14)
    assert point.sigma_b**2 == pytest.approx(point.sigma_b_squared, rel=1e-15, abs=0)
    nearest = min(point.fixed_points, key=lambda fixed: abs(fixed.q - q))
    assert nearest.q == pytest.approx(q, rel=1e-14 / abs(1.0 - point.slope))
    assert nearest.slope == pytest.approx(point.slope, rel=1e-10)
    assert nearest.stable == point.stable
    assert point.fixed_points == fixed_points(name, point.sigma_w, point.sigma_b)


@pytest.mark.parametrize("name", ["silu", "gelu", "mish"])
def test_unstable_critical_points_say_so(name):
    point = critical_point(name, q=1.0)
    assert not point.stable and point.slope > 1.01
    line = critical_line(name, [0.5, 1.0, 1.5])
    assert line.exists.all() and not line.stable.any() and not line.marginal.any()
    low, here = point.fixed_points
    assert low.stable and low.q < 0.6 and here.q == pytest.approx(1.0, rel=1e-12)
    # Iteration from just below leaves for the lower fixed point, from above for infinity.
    below, above = 0.999, 1.001
    for _ in range(2000):
        below = variance_map(name, below, point.sigma_w, point.sigma_b)
        above = min(variance_map(name, above, point.sigma_w, point.sigma_b), 1e9)
    assert below == pytest.approx(low.q, rel=1e-10) and above == 1e9


@pytest.mark.parametrize(("phi", "weight"), [
    ("relu", 2.0), ("linear", 1.0), (activation("leaky_relu", slope=0.1), 2 / 1.01),
    (LEAKY, 2 / 1.01)])
@pytest.mark.parametrize("q", [1e-4, 1.0, 3e5])
def test_single_critical_points(phi, weight, q):
    point = critical_point(phi, q=q)
    assert point.sigma_w == pytest.approx(math.sqrt(weight), rel=1e-14)
    assert point.sigma_b == point.sigma_b_squared == 0.0
    assert point.marginal and not point.stable and point.fixed_points[0].continuum
    with pytest.raises(ValueError, match="only sigma_b = 0 is critical"):
        critical_point(phi, sigma_b=0.1)
    with pytest.raises(ValueError, match="every q is a critical fixed point"):
        critical_point(phi, sigma_b=0.0)
    (limit,) = critical_points(phi, 0.0)
    assert limit.q == 0.0 and limit.fixed_points[0].continuum


def test_no_biases_leave_the_origin_of_the_line():
    for name, slope in (("tanh", 1.0), ("silu", 0.5), ("sin", 1.0)):
        point = critical_point(name, sigma_b=0.0)
        assert point.q == point.sigma_b == 0.0
        assert point.sigma_w == pytest.approx(1.0 / slope, rel=1e-15)
    # Biases below what q^3 can show: sigma_b^2 = 4 q^3 / 3.
    tiny = critical_point("tanh", sigma_b=1e-15)
    assert tiny.q == pytest.approx((0.75e-30) ** (1.0 / 3.0), rel=1e-9)


def test_where_there_is_no_critical_point_it_is_said():
    with pytest.raises(ValueError, match="softplus.* at q = 1: it would need sigma_b.2 = -2.14"):
        critical_point("softplus", q=1.0)
    with pytest.raises(ValueError, match="none with any sigma_b"):
        critical_point("softplus", sigma_b=1.0)
    assert critical_points("softplus", 1.0) == ()
    # sigmoid has critical points from the q on at which the line leaves sigma_b = 0.
    end = critical_point("sigmoid", sigma_b=0.0)
    assert end.q > 40.0 and end.sigma_b == 0.0
    assert linear_excess(activation("sigmoid"), end.q * 0.999) < 0.0
    assert linear_excess(activation("sigmoid"), end.q * 1.001) > 0.0
    line = critical_line("sigmoid", [1.0, end.q * 0.99, end.q * 1.01, 1e4])
    assert line.exists.tolist() == [False, False, True, True]
    assert np.isnan(line.sigma_b).tolist() == [True, True, False, False]
    assert np.all(line.sigma_b_squared[:2] < 0.0) and not np.any(line.stable[:2])
    with pytest.raises(ValueError, match="infinite|inf"):
        critical_point(activation("alpha_relu", alpha=0.5), q=1.0)
    square = activation(np.cosh, derivative=np.sinh)    # q E phi'^2 - E phi^2 < 0 for small q only
    assert not critical_line(square, [0.01]).exists[0]


def test_the_nearest_reachable_biases_are_told(monkeypatch):
    monkeypatch.setattr(_critical, "_bias_table", lambda phi: (
        np.array([0.1, 1.0, 10.0]), np.array([0.25, 0.36, 0.3])))
    with pytest.raises(ValueError, match="nearest sigma_b that has one is about 0.6"):
        critical_point("tanh", sigma_b=1.0)


def hump(phi, q):
    """sigma_b^2 of a line that rises to 1.018 at q = 1, falls to 0.164 and rises again."""
    x = np.log(q)
    return np.exp(-x * x) + np.exp(np.minimum(x - 4.0, 300.0))


@pytest.mark.parametrize(("bias", "number"), [
    (0.5, 3), (1.0183, 3), (1.0189, 1), (0.17, 3), (0.1, 1), (1e-3, 1), (2.0, 1)])
def test_all_critical_points_are_found(monkeypatch, bias, number):
    # No activation is known with several; the search is held against a made-up line.
    monkeypatch.setattr(_critical, "_critical_biases", hump)
    q = np.exp(np.linspace(-20.0, 20.0, 400_001))
    off = hump(None, q) - bias
    places = np.flatnonzero(np.sign(off[1:]) != np.sign(off[:-1]))
    table = np.exp(np.arange(-20.04, 20.0, 0.1))     # no point near the top
    found = _critical._crossings(activation("tanh"), table, hump(None, table) - bias, bias)
    assert len(found) == places.size == number
    for i, x in zip(places, found, strict=True):
        assert q[i] * (1 - 1e-12) <= x <= q[i + 1] * (1 + 1e-12)
        assert float(hump(None, x)) == pytest.approx(bias, rel=1e-12)


def test_several_critical_points_must_be_chosen_from(monkeypatch):
    points = critical_points("tanh", 0.1) + critical_points("tanh", 0.2)
    monkeypatch.setattr(_critical, "critical_points", lambda phi, sigma_b: points)
    with pytest.raises(ValueError, match="several .*0.273.*, 0.51.* by q="):
        critical_point("tanh", sigma_b=0.1)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "alpha_relu"])
def test_lines_of_built_in_activations(name):
    line = critical_line(name)
    assert len(line) == 200 and line.q[0] == 1e-6 and line.q[-1] == pytest.approx(100.0)
    m = moments(activation(name), line.q)
    assert line.sigma_w == pytest.approx(m.slope_mean**-0.5, rel=1e-13)
    plain = line.q - m.second_moment / m.slope_mean
    scale = line.q + m.second_moment / m.slope_mean
    assert np.max(np.abs(line.sigma_b_squared - plain) / scale) < 1e-14
    shown = line.exists
    assert np.all(np.isfinite(line.sigma_b[shown])) and np.all(np.isnan(line.sigma_b[~shown]))
    assert np.all(np.diff(line.sigma_b[shown]) >= 0.0)          # so no sigma_b has two points
    assert set(line.to_dict()) == {"q", "sigma_w", "sigma_b", "sigma_b_squared", "slope", "stable",
                                   "marginal", "exists"}
    assert "200 points" in repr(line)


def test_users_functions():
    for q in (1e-3, 0.7):
        mine, theirs = critical_point(USER_TANH, q=q), critical_point("tanh", q=q)
        assert mine.sigma_w == pytest.approx(theirs.sigma_w, rel=1e-14)
        assert mine.sigma_b_squared == pytest.approx(
            theirs.sigma_b_squared, rel=1e-12, abs=4e-15 * q)
    assert critical_point(USER_TANH, q=1e-12).sigma_b_squared == 0.0    # 1e-36, not rounding
    mine, theirs = (critical_point(phi, sigma_b=0.2) for phi in (USER_TANH, "tanh"))
    assert mine.q == pytest.approx(theirs.q, rel=1e-12)
    assert [p.q for p in critical_points(USER_TANH, 0.0)] == [0.0]


@pytest.mark.parametrize(("call", "words"), [
    (lambda: critical_point("tanh"), "exactly one of q and sigma_b, got none"),
    (lambda: critical_point("tanh", q=1.0, sigma_b=0.1), "got both"),
    (lambda: critical_point("tanh", q=0.0), "q must be .* > 0"),
    (lambda: critical_point("tanh", q="1"), "q must be"),
    (lambda: critical_point("tanh", sigma_b=-0.1), "sigma_b must be .* >= 0, got -0.1"),
    (lambda: critical_points("tanh", math.nan), "sigma_b must be"),
    (lambda: critical_point("tahn", q=1.0), "did you mean 'tanh'"),
    (lambda: critical_line("tanh", [1.0, 0.0]), "q must be"),
    (lambda: critical_line("tanh", []), "q must be"),
    (lambda: critical_line("tanh", [[1.0]]), "q must be"),
])
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
