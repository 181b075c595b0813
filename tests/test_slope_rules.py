"""The transform M(zeta) = E d/(zeta - d) of slope laws, against mpmath (slope_transforms.json)."""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from fastspec import _kernels
from fastspec._slope_rules import kernel_slopes
from fastspec.activations import activation

TABLE = json.loads((Path(__file__).parent / "reference" / "slope_transforms.json").read_text())
SMOOTH = sorted({law["activation"] for law in TABLE["laws"]})
M_PROMISE, DM_PROMISE = 1e-13, 1e-10


def table_law(law):
    act = activation(law["activation"], **law["parameters"])
    return kernel_slopes(act, float(law["q"]), float(law["mean"]))


def name_of(law):
    return f"{law['activation']}-q{law['q']}-mean{law['mean']}"


def smooth(name):
    return activation(name, alpha=1.5) if name == "alpha_relu" else activation(name)


def misses(law, point, conjugate=False):
    """Errors of M, E, dM relative to value and conditioning."""
    zeta = complex(float(point[0]), float(point[1]))
    exact = [mp.mpc(point[i], point[i + 1]) for i in (2, 4, 6)]
    values = law.m(np.array([zeta.conjugate() if conjugate else zeta]))
    values = [complex(value[0]).conjugate() if conjugate else complex(value[0])
              for value in values]
    m, e, dm = exact
    scales = [abs(m) + abs(zeta * dm), abs(e) + abs(zeta * dm), abs(dm) + abs(zeta * dm * dm / m)]
    return [float(abs(mp.mpc(value) - true) / scale)
            for value, true, scale in zip(values, exact, scales, strict=True)]


@pytest.mark.parametrize("law", TABLE["laws"], ids=name_of)
def test_transform_holds_its_promise_up_to_the_axis(law):
    slopes = table_law(law)
    for point in law["points"]:
        m, e, dm = misses(slopes, point)
        assert m < M_PROMISE and e < M_PROMISE and dm < DM_PROMISE, (point[:2], m, e, dm)


@pytest.mark.parametrize("law", TABLE["laws"][::5], ids=name_of)
def test_lower_half_plane_is_the_conjugate(law):
    slopes = table_law(law)
    for point in law["points"]:
        assert max(misses(slopes, point, conjugate=True)[:2]) < M_PROMISE


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("q", [1e-6, 1e-3, 0.5, 4.0, 1e3])
def test_rule_agrees_with_the_panels_at_the_guard(name, q):
    # Just inside the guard the panels serve, just outside the Gauss rule: M must not jump.
    slopes = kernel_slopes(smooth(name), q, 0.2)
    if slopes.guard == 0.0:
        pytest.skip("a single atom to rounding")
    angle = np.linspace(0.0, np.pi, 15)
    focal, major = slopes.top / 2, slopes.guard / 2
    ellipse = focal + major * np.cos(angle) + 1j * math.sqrt(major**2 - focal**2) * np.sin(angle)
    towards = (ellipse - focal) * 1e-9
    inside, outside = slopes.m(ellipse - towards), slopes.m(ellipse + towards)
    for value, other in zip(inside[:2], outside[:2], strict=True):
        moved = 2.0 * towards * 0.5 * (inside[2] + outside[2])
        allowed = 1e-13 * (np.abs(value) + np.abs(ellipse * inside[2])) + np.abs(moved) * 1e-5
        assert np.all(np.abs(other - value - moved) < allowed)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("q,mean", [(1e-6, 0.3), (0.3, -2.0), (2.0, 0.0), (100.0, 0.3)])
def test_moments_agree_with_the_quadrature(name, q, mean):
    act = smooth(name)
    slopes, moments = kernel_slopes(act, q, mean), act.moments(q, mean)
    assert slopes.mean == pytest.approx(moments.slope_mean, rel=2e-13)
    assert slopes.second == pytest.approx(moments.slope_second, rel=2e-13)
    assert slopes.positive + slopes.zero == pytest.approx(1.0, abs=1e-14)
    far = 1e8 * slopes.top
    assert slopes.m(np.array([far]))[0][0].real * far == pytest.approx(
        slopes.mean + slopes.second / far, rel=1e-13)


@pytest.mark.parametrize("name,q,mean", [("tanh", 1.0, -2.0), ("gelu", 0.25, 0.1), ("mish", 1.0, 0),
                                         ("elu", 9.0, 0.3), ("erf", 9.0, 0.3), ("sin", 4.0, 1.0)])
def test_density_of_the_slopes_has_their_mass_and_mean(name, q, mean):
    # rho(d) = -Im M(d + i0)/(pi d), against P(a < phi'(h)^2 < b) counted on a grid of h.
    slopes = kernel_slopes(activation(name), q, mean)
    a, b = 0.2 * slopes.top, 0.3 * slopes.top
    nodes, weights = np.polynomial.legendre.leggauss(40)
    d = 0.5 * (a + b) + 0.5 * (b - a) * nodes
    mass = float(np.sum(0.5 * (b - a) * weights * -slopes.m(d + 0j)[0].imag / (np.pi * d)))
    z = (np.arange(4_000_000) + 0.5) / 4e6 * 18.0 - 9.0
    inside = activation(name).derivative(mean + math.sqrt(q) * z) ** 2
    count = float(np.sum(np.exp(-0.5 * z[(inside > a) & (inside < b)] ** 2))) * 18.0 / 4e6
    assert mass == pytest.approx(count / math.sqrt(2 * math.pi), abs=2e-5)


def test_many_random_points_have_no_missed_pole():
    # A missed or misplaced pole is an error of the size of M; neighbours differ by dM dzeta only.
    rng = np.random.default_rng(7)
    for name, q, mean in [("tanh", 1.0, -2.0), ("gelu", 0.25, 0.3), ("sin", 4.0, 0.1),
                          ("softsign", 9.0, 0.3), ("arctan", 0.25, 0.0), ("silu", 1.0, 0.0)]:
        slopes = kernel_slopes(activation(name), q, mean)
        d = activation(name).derivative(mean + math.sqrt(q) * rng.normal(size=1000)) ** 2
        for im in (0.0, 1e-300, 1e-9):
            step = 1e-7 * np.abs(slopes.top - d) * d
            m, _, dm = slopes.m(d + 1j * im)
            after, _, dm_after = slopes.m(d + step + 1j * im)
            miss = np.abs(after - m - 0.5 * step * (dm + dm_after)) / (np.abs(m) + np.abs(dm * d))
            assert np.max(miss) < 1e-9, (name, im, d[np.argmax(miss)])
            assert np.all(m.imag <= 1e-14 * np.abs(m))


@pytest.mark.parametrize("size", [1e-16, 1e-24, 1e-32])
def test_far_below_the_top(size):
    # E zeta/(zeta - d) -> -zeta E 1/d where that is finite (tanh: 1/d = cosh(h)^4). Zeros of phi'
    # make it pi rho sqrt(-zeta), rho the sum of the densities w(h)/|phi''(h)| there (sin: odd
    # multiples of pi/2, |phi''| = 1).
    zeta = size * np.exp(1j * np.array([0.3, 1.5, 3.0, 3.14159]))
    m, e, dm = kernel_slopes(activation("tanh"), 0.25).m(zeta)
    inverse = (math.exp(2.0) + 4.0 * math.exp(0.5) + 3.0) / 8.0
    assert np.allclose(e, -zeta * inverse, rtol=1e-11, atol=0.0)
    assert np.allclose(m, -1.0, rtol=1e-15)
    e, dm = kernel_slopes(activation("sin"), 1.0).m(zeta)[1:]
    roots = np.pi * (np.arange(-6, 6) + 0.5)
    rho = float(np.sum(np.exp(-0.5 * roots**2))) / math.sqrt(2.0 * math.pi)
    further = 2.0 * math.sqrt(size)     # the next term is of order zeta
    assert np.allclose(e, np.pi * rho * np.sqrt(-zeta), rtol=1e-13 + further, atol=0.0)
    assert np.allclose(dm, 0.5 * e / zeta, rtol=1e-12 + further, atol=0.0)


def test_what_is_not_resolved_is_nan():
    slopes = kernel_slopes(activation("gelu"), 1.0)
    assert np.all(np.isnan(slopes.m(np.array([1e-155, -1e-155, 1e-156j]))))
    narrow = kernel_slopes(activation("tanh"), 0.01)      # d keeps away from 0: no floor
    assert np.all(np.isfinite(narrow.m(np.array([1e-155, 1e-156j]))))


@pytest.mark.parametrize("q", [100.0, 900.0])
def test_sin_at_large_variance_is_the_arcsine_law(q):
    # d = cos(h)^2, h uniform modulo pi up to exp(-2q): E 1/(zeta - d) = 1/sqrt(zeta (zeta - 1)).
    zeta = np.array([1e-11, 1e-6, 0.01, 0.2, 0.5, 0.97, 1.0 - 1e-7, 0.3 + 1e-12j, 0.6 + 0.2j,
                     1.001, 1.4 + 0.1j, -0.2 + 1e-3j], dtype=complex)
    root = np.sqrt(zeta) * np.sqrt(zeta - 1.0)
    excess, dm = zeta / root, -0.5 / (root * (zeta - 1.0))
    m, e, slope = kernel_slopes(activation("sin"), q, 0.4).m(zeta)
    conditioning = np.abs(zeta * dm) + np.abs(zeta) / np.abs(zeta - 1.0)
    assert np.all(np.abs(m - (excess - 1.0)) < M_PROMISE * (np.abs(excess - 1.0) + conditioning))
    assert np.all(np.abs(e - excess) < M_PROMISE * (np.abs(excess) + conditioning))
    assert np.all(np.abs(slope - dm) < DM_PROMISE * np.abs(dm) * (1.0 + 1.0 / np.abs(zeta - 1.0)))


@pytest.mark.parametrize("name,q,mean", [("hard_tanh", 1.0, 0.0), ("leaky_relu", 4.0, -1.0),
                                         ("relu", 1.0, 0.3), ("linear", 2.0, 0.0)])
def test_piecewise_linear_laws_are_their_atoms(name, q, mean):
    act = activation(name)
    law, slopes = act.slope_law(q, mean), kernel_slopes(act, q, mean)
    zeta = np.array([0.3 + 0.2j, 2.0 - 1.0j, -3.0 + 0.0j])
    exact = np.sum(law.probabilities * law.values / (zeta[:, None] - law.values), axis=1)
    m, e, _ = slopes.m(zeta)
    assert np.allclose(m, exact, rtol=1e-14)
    assert np.allclose(e, exact + slopes.positive, rtol=1e-13)
    assert slopes.zero == pytest.approx(float(np.sum(law.probabilities[law.values == 0.0])))


def test_critical_values_are_the_interior_extrema():
    # phi'' = 0: gelu at +-sqrt(2); where phi' = 0 (sin) the value is not positive.
    def gelu_slope(h):
        return 0.5 * math.erfc(-h / math.sqrt(2)) + h * math.exp(-h * h / 2) / math.sqrt(2 * np.pi)

    extrema = sorted(gelu_slope(h) ** 2 for h in (-math.sqrt(2.0), math.sqrt(2.0)))
    cases = [("tanh", 1.0, 0.0, [1.0]), ("tanh", 1.0, -2.0, [1.0]), ("sin", 9.0, 0.4, [1.0]),
             ("gelu", 1.0, 0.3, extrema), ("softplus", 1.0, 0.0, []), ("elu", 1.0, 0.3, []),
             ("tanh", 1e-4, -2.0, []), ("softsign", 1.0, 0.0, []), ("tanh", 1e-6, 0.0, [1.0])]
    for name, q, mean, expected in cases:
        critical = kernel_slopes(activation(name), q, mean).critical
        assert critical == pytest.approx(expected, rel=1e-13), name


def test_zero_variance_is_the_limit():
    assert kernel_slopes(activation("tanh"), 0.0, 0.5).mean == pytest.approx(
        np.cosh(0.5) ** -4.0, rel=1e-14)
    elu = kernel_slopes(activation("elu", alpha=2.0), 0.0)     # both sides of the kink
    assert elu.mean == pytest.approx(2.5) and elu.second == pytest.approx(8.5)


def user(phi, slope, kinks=()):
    return activation(phi, derivative=slope, kinks=kinks)


def test_callables_agree_with_the_builtin_law():
    zeta = np.array([0.4, 0.9, 0.05, 0.3 + 0.01j, 1.2 + 0.3j])
    pairs = [(user(np.tanh, lambda h: np.cosh(np.clip(h, -300, 300)) ** -2.0), "tanh"),
             (user(lambda h: np.where(h > 0, h, np.expm1(np.minimum(h, 0))),
                   lambda h: np.where(h > 0, 1.0, np.exp(np.minimum(h, 0))), (0.0,)), "elu"),
             (user(lambda h: np.where(h > 0, h, np.expm1(np.minimum(h, 0))),
                   lambda h: np.where(h > 0, 1.0, np.exp(np.minimum(h, 0)))), "elu")]
    for act, name in pairs:
        own, builtin = kernel_slopes(act, 1.3, 0.2), kernel_slopes(activation(name), 1.3, 0.2)
        for value, true in zip(own.m(zeta)[:2], builtin.m(zeta)[:2], strict=True):
            assert np.allclose(value, true, rtol=1e-12)
        assert own.accuracy < 1e-13


def test_accuracy_tells_of_noise():
    noisy = user(np.tanh, lambda h: np.cosh(np.clip(h, -300, 300)) ** -2.0
                 * (1.0 + 1e-8 * np.sin(1e9 * h)))
    slopes = kernel_slopes(noisy, 1.0)
    assert 1e-9 < slopes.accuracy < 1e-6


@pytest.mark.parametrize("name,params,q,match", [
    ("tanh", {}, -1.0, "q must be"),
    ("alpha_relu", {"alpha": 0.5}, 1.0, "infinite"),
    ("alpha_relu", {"alpha": 0.4}, 1.0, "infinite"),
    ("alpha_relu", {"alpha": 0.75}, 0.0, "infinite|vanishes"),
])
def test_bad_laws_are_refused(name, params, q, match):
    with pytest.raises(ValueError, match=match):
        kernel_slopes(activation(name, **params), q)


def test_vanishing_slopes_are_refused():
    with pytest.raises(ValueError, match="vanishes"):
        kernel_slopes(activation("relu"), 0.0, -1.0)
    with pytest.raises(ValueError, match="vanishes"):
        kernel_slopes(activation("sigmoid"), 1.0, 1e4)


def test_constructor_checks_its_numbers():
    for values, masses in [([1.0, -1.0], [0.5, 0.5]), ([1.0], [0.9]), ([np.nan], [1.0])]:
        with pytest.raises(ValueError):
            _kernels.discrete_slopes(np.array(values), np.array(masses))
    atoms = _kernels.discrete_slopes(np.array([2.0, 0.0, 1.0, 2.0]), np.array([0.1, 0.2, 0.3, 0.4]))
    assert (atoms.zero, atoms.positive, atoms.top) == pytest.approx((0.2, 0.8, 2.0))
    assert np.isnan(atoms.m(np.array([np.nan]))[0][0])
