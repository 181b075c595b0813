"""One orthogonal layer with smooth slopes: sigma^2 phi'(h)^2, against mpmath and simulation."""

import math
import pickle
import sys
from itertools import pairwise
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

import fastspec as fs
from fastspec.activations import activation
from fastspec.quadrature import expectation, slope_moments

sys.path.insert(0, str(Path(__file__).parent / "reference"))
from load import load_own_chain_laws  # noqa: E402

EPS = 2.0**-52
VARIANCE = 1.7
INF = 60.0      # stands for an end at infinity in the brackets below


def leaky(h):
    return np.where(h > 0.0, np.tanh(h), 0.1 * h)


def leaky_slope(h):
    return np.where(h > 0.0, 1.0 / np.cosh(np.clip(h, 0.0, 350.0)) ** 2, 0.1)


def logistic(h):
    return 1 / (1 + mp.exp(-h))


def mp_gelu(h):
    return mp.erfc(-h / mp.sqrt(2)) / 2 + h * mp.npdf(h)


def mp_silu(h):
    return logistic(h) * (1 + h * logistic(-h))


GELU_ZERO, SILU_ZERO, SILU_TURN = "-0.75", "-1.2", "2.4"      # starting values
# activation -> (phi' in mpmath, its zeros, its extrema (both roughly), kinks)
CASES = {
    "tanh": (lambda h: mp.sech(h) ** 2, [], [0], []),
    "arctan": (lambda h: 1 / (1 + h * h), [], [0], []),
    "erf": (lambda h: 2 / mp.sqrt(mp.pi) * mp.exp(-h * h), [], [0], []),
    "sigmoid": (lambda h: logistic(h) * logistic(-h), [], [0], []),
    "softplus": (logistic, [], [], []),
    "silu": (mp_silu, [SILU_ZERO], ["-2.4", SILU_TURN], []),
    "gelu": (mp_gelu, [GELU_ZERO], ["-1.41", "1.41"], []),
    "softsign": (lambda h: (1 + abs(h)) ** -2, [], [], [0]),
    "elu": (lambda h: mp.exp(h) if h <= 0 else mp.mpf(1), [], [], [0]),
    "sin": (mp.cos, [str((k + 0.5) * math.pi) for k in range(-7, 7)],
            [str(k * math.pi) for k in range(-6, 7)], []),
    "leaky": (lambda h: mp.sech(h) ** 2 if h > 0 else mp.mpf("0.1"), [], [], [0]),
}


def make(name):
    if name == "leaky":
        return activation(leaky, derivative=leaky_slope, kinks=(0.0,))
    return activation(name)


def law_of(name, q=1.0, mean=0.0, variance=VARIANCE):
    return fs.ChainLaw([fs.Layer(make(name), q=q, mean=mean, weight_variance=variance,
                                 weights="orthogonal")])


def exact_density(name, q, mean, lam):
    """Density of log lambda and its relative conditioning, by bisection between turning points."""
    slope, zeros, extrema, kinks = CASES[name]
    places = [mp.findroot(slope, mp.mpf(x)) for x in zeros]
    places += [mp.findroot(lambda h: mp.diff(slope, h), mp.mpf(x)) if x != 0 else mp.mpf(0)
               for x in extrema]
    edges = sorted([mp.mpf(-INF), *places, *map(mp.mpf, kinks), mp.mpf(INF)])
    target = mp.mpf(lam) / mp.mpf(VARIANCE)
    total = steepness = mp.mpf(0)

    def excess(h):
        return slope(h) ** 2 - target

    for low, high in pairwise(edges):
        tiny = mp.mpf(10) ** -25
        left, right = low + tiny, high - tiny
        if excess(left) * excess(right) >= 0:
            continue
        sign = mp.sign(excess(left))
        for _ in range(115):
            h = (left + right) / 2
            left, right = (h, right) if mp.sign(excess(h)) == sign else (left, h)
        rate = abs(2 * mp.diff(slope, h) / slope(h))
        part = mp.npdf((h - mean) / mp.sqrt(q)) / mp.sqrt(q) / rate
        bend = abs(2 * mp.diff(slope, h, 2) / slope(h)) + rate**2 / 2
        total += part
        steepness += part * (abs(h - mean) / q / rate + bend / rate**2)
    return total, steepness / total if total else mp.mpf(0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("q,mean", [(1.0, 0.0), (0.3, 0.4)])
def test_density_against_bisection_in_mpmath(name, q, mean):
    law = law_of(name, q, mean)
    h = np.array([-2.6, -1.7, -1.2, -0.8, -0.3, -0.05, 1e-3, 0.2, 0.7, 1.1, 1.6, 2.2, 3.1])
    lam = np.unique(VARIANCE * make(name).derivative(h) ** 2)
    lam = lam[~np.isin(lam, law.atoms[:, 0])]
    assert lam.size > 5
    with mp.workdps(34):
        for x in lam[::2 if name == "sin" else 1]:
            exact, conditioning = exact_density(name, q, mean, float(x))
            value = law.log_eigenvalues().pdf(math.log(x))
            allowed = 1e-13 + 16.0 * EPS * float(conditioning) * max(1.0, abs(math.log(x)))
            assert abs(law.pdf(x) * x / exact - 1) < allowed, (x, exact)
            assert abs(value / exact - 1) < allowed, (x, exact)
            solution = law.solve(x)
            assert abs(solution.density * x - exact) <= solution.error_bound * x + 1e-13 * exact


def test_tanh_in_closed_form_up_to_the_edge():
    # lambda = sigma^2 sech^4 h: the inverse root keeps its relative accuracy next to the edge.
    law = law_of("tanh")
    for x in [1e-30, 1e-8, 1e-3, 0.3, 1.6, VARIANCE * (1 - 1e-9), VARIANCE * (1 - EPS)]:
        with mp.workdps(50):
            h = mp.acosh((mp.mpf(VARIANCE) / mp.mpf(x)) ** (mp.mpf(1) / 4))
            density = mp.npdf(h) / (2 * mp.mpf(x) * mp.tanh(h))
            allowed = 1e-13 * max(1.0, abs(math.log(x)))
            assert abs(law.pdf(x) / density - 1) < allowed
            assert abs(law.cdf(x) / (2 * mp.ncdf(-h)) - 1) < allowed
            assert abs(law.ccdf(x) / mp.erf(h / mp.sqrt(2)) - 1) < allowed


def test_special_points_of_the_density():
    law = law_of("tanh")
    assert law.support() == [(0.0, VARIANCE)]
    assert law.pdf(VARIANCE) == math.inf
    assert np.all(law.pdf([0.0, -1.0, 2.0, math.inf]) == 0.0)
    assert math.isnan(law.pdf(math.nan)) and math.isnan(law.cdf(math.nan))
    assert law.solve(VARIANCE).status == 4 and law.solve(math.nan).status == 3
    gelu = law_of("gelu")
    turn = gelu._core._place(gelu._core._singular[0], 0)
    assert turn == pytest.approx(VARIANCE * make("gelu").derivative(-math.sqrt(2.0)) ** 2)
    near = gelu.pdf(turn * (1.0 + np.array([-1e-10, 0.0, 1e-10])))
    assert near[0] > 1e4 * near[2] > 0.0 and near[1] == math.inf
    assert gelu.pdf(0.0) == math.inf
    assert 0.0 < gelu.singular_values().pdf(0.0) < math.inf    # zero of phi': lambda^(-1/2)


def test_erf_far_beyond_the_doubles():
    # lambda = (4 sigma^2/pi) exp(-2 h^2), density of log lambda 2 w(h)/(4 h).
    law = law_of("erf", q=100.0).log_eigenvalues()
    for log_lam in (-2e3, -1e5, -2.5e5):
        h = math.sqrt(0.5 * (math.log(4.0 * VARIANCE / math.pi) - log_lam))
        exact = stats.norm.pdf(h, scale=10.0) / (2.0 * h)
        assert law.pdf(log_lam) == pytest.approx(exact, rel=1e-11)
    assert law.mean() == pytest.approx(math.log(4.0 * VARIANCE / math.pi) - 200.0, rel=1e-12)
    assert law._core.hard_exponent() == 400.0


@pytest.mark.parametrize("name", ["elu", "selu", "leaky"])
def test_constant_part_is_an_atom(name):
    law = law_of(name, 1.0, 0.3)
    below = stats.norm.cdf(-0.3)
    mass = below if name == "leaky" else 1.0 - below
    place = VARIANCE * make(name).derivative(-1.0 if name == "leaky" else 1.0) ** 2
    assert law.atoms == pytest.approx(np.array([[place, mass]]), rel=1e-14)
    assert law.cdf(place) - law.cdf(np.nextafter(place, 0.0)) == pytest.approx(mass, rel=1e-12)
    inside = law.ccdf(place) + mass * np.array([0.2, 0.8])
    assert np.all(law.icdf(1.0 - inside) == law.atoms[0, 0])


ALL = [*CASES, "mish", "selu", "scaled_erf"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("q,mean", [(1e-2, 0.0), (1.0, 0.0), (4.0, 0.3)])
def test_masses_and_expectations_against_gaussian_quadrature(name, q, mean):
    law, act = law_of(name, q, mean), make(name)
    core = law._core
    assert core.mass_error() < 1e-14
    log_lam, _, mass = core.quadrature_nodes()
    assert math.fsum(mass) == pytest.approx(core.continuous_mass(), rel=1e-13)
    first, second = slope_moments(act, q, 2, mean)
    atoms = law.atoms
    for k, moment in ((1, first), (2, second)):
        value = math.fsum(mass * np.exp(k * log_lam)) + np.sum(atoms[:, 1] * atoms[:, 0] ** k)
        assert value == pytest.approx(VARIANCE**k * moment, rel=1e-12)
    assert law.mean() == pytest.approx(VARIANCE * first, rel=1e-14)
    assert law.variance() == pytest.approx(VARIANCE**2 * (second - first**2), rel=1e-9)
    size = expectation(lambda h: np.abs(act.derivative(h)) ** 3, q, mean, kinks=act.kinks)
    third = law.singular_values().moment(3)
    assert abs(third / VARIANCE**1.5 - size.value) < 1e-12 * size.value + size.error


def test_entropy_of_tanh():
    with mp.workdps(30):
        def term(h):
            lam = VARIANCE * mp.sech(h) ** 4
            return -2 * mp.npdf(h) * mp.log(mp.npdf(h) / (2 * lam * mp.tanh(h)))
        exact = mp.quad(term, [0, 0.1, 1, 4, 14])
    assert law_of("tanh").entropy() == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_distribution_function_is_the_integral_of_the_density(name):
    law = law_of(name, 0.8, 0.2).log_eigenvalues()
    core = law._core
    singular = np.concatenate([core._levels + math.log(VARIANCE), law.atoms[:, 1] * 0 + 99.0])
    low, high = law.icdf(0.02), law.icdf(0.98)
    cuts = np.sort(np.concatenate([np.linspace(low, high, 4 if name == "sin" else 9), singular]))
    cuts = cuts[(cuts >= low) & (cuts <= high)]
    for left, right in pairwise(cuts):
        margin = 0.02 * (right - left)
        left, right = left + margin, right - margin
        integral, error = integrate.quad(law.pdf, left, right, epsabs=1e-14, epsrel=1e-13)
        jump = sum(mass for place, mass in law.atoms if left < place <= right)
        assert abs(law.cdf(right) - law.cdf(left) - jump - integral) < 1e-11 + error


@pytest.mark.parametrize("name", ALL)
def test_quantiles_invert_the_distribution_function(name):
    law = law_of(name, 1.0, 0.1)
    p = np.concatenate([np.random.default_rng(5).random(300), 10.0 ** -np.arange(3.0, 16.0),
                        1.0 - 10.0 ** -np.arange(3.0, 16.0)])
    x = law.icdf(p)
    assert np.all(law.cdf(x * (1.0 + 64 * EPS)) >= p * (1.0 - 1e-12))
    off = ~np.isin(x, law.atoms[:, 0])
    assert np.all(law.cdf(x * (1.0 - 64 * EPS))[off] <= p[off] * (1.0 + 1e-12))
    assert np.all(law.ccdf(x * (1.0 - 64 * EPS)) >= (1.0 - p) * (1.0 - 1e-12))
    assert law.icdf(0.0) == law.support()[0][0]
    assert law.icdf(1.0) == max([law.support()[-1][1], *law.atoms[:, 0]])
    assert np.all(np.isnan(law.icdf([-0.1, 1.1, math.nan])))


@pytest.mark.parametrize("name", ALL)
def test_routes_agree_and_green_is_the_expectation(name):
    law = law_of(name, 1.0, 0.2)
    h = np.random.default_rng(3).normal(0.2, 1.0, 40)
    lam = VARIANCE * make(name).derivative(h) ** 2
    lam = lam[~np.isin(lam, law.atoms[:, 0])]
    solution = law.solve(lam)
    walked = law.pdf(lam, method="walk", on_error="ignore")
    zeta = lam / VARIANCE
    rate = np.abs(zeta * law._core._slopes.m(zeta + 0j)[2])
    size = (np.abs(solution.m) + rate) / (math.pi * lam)
    close = np.abs(walked - law.pdf(lam)) <= 1e-13 * size
    assert np.all(close | np.isnan(walked)) and np.mean(np.isnan(walked)) < 0.1
    assert np.array_equal(law.pdf(lam, method="newton"), solution.density)
    for z in (0.3 + 0.2j, -1.0 + 0j, 2.0 - 1e-2j, 40.0 + 0j):
        part = [expectation(lambda x, f=f, z=z: f(
            1.0 / (z - VARIANCE * make(name).derivative(x) ** 2)), 1.0, 0.2,
            kinks=make(name).kinks).value for f in (np.real, np.imag)]
        assert law.green(z) == pytest.approx(complex(*part), rel=1e-11)
    on_axis = law.green(lam)
    assert on_axis.imag == pytest.approx(-math.pi * law.pdf(lam), rel=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_simulated_slopes_follow_the_law(name):
    law = law_of(name, 1.3, -0.2)
    h = np.random.default_rng(11).normal(-0.2, math.sqrt(1.3), 20000)
    d = np.sort(VARIANCE * make(name).derivative(h) ** 2)
    at_atom = np.isclose(d[:, np.newaxis], law.atoms[:, 0], rtol=1e-14).any(axis=1)
    d = d[~at_atom]
    grid = np.linspace(0.0, 1.0, d.size + 1)[1:] * d.size / 20000
    jumps = sum(mass * (d >= place) for place, mass in law.atoms)
    assert np.max(np.abs(law.cdf(d) - jumps - grid)) < 1.95 / math.sqrt(20000)     # 0.1 %


@pytest.mark.parametrize("record", [law for law in load_own_chain_laws() if law["name"] in
                                    ("tanh q=1 orthogonal 1", "tanh q=0.01 orthogonal 1")],
                         ids=lambda record: record["name"])
def test_recorded_laws(record):
    layer = record["blocks"][0]["layers"][0]
    law = law_of("tanh", float(layer["q"]), 0.0, float(layer["weight_variance"]))
    assert len(record["points"]) > 2
    for x, density in record["points"]:
        exact, x = float(density), float(x)
        gap = abs(1.0 - x / float(layer["weight_variance"]))
        if exact > 0.0:
            assert law.pdf(x) == pytest.approx(exact, rel=1e-13 + 4.0 * EPS / gap)


def test_extremum_at_a_kink_seen_from_one_side():
    # Half of tanh: near the edge its density is half that of tanh.
    law, tanh = law_of("leaky"), law_of("tanh")
    x = VARIANCE * (1.0 - 10.0 ** -np.arange(1.0, 15.0))
    off = np.abs(law.pdf(x) - 0.5 * tanh.pdf(x))
    assert np.all(off <= law.solve(x).error_bound) and np.all(off < 5e-12 * tanh.pdf(x))


def test_linear_layers_only_scale():
    tanh = fs.Layer("tanh", q=0.7, weight_variance=1.5, weights="orthogonal")
    linear = fs.Layer("linear", q=1.0, weight_variance=1.21, weights="orthogonal", repeat=2)
    law, one = fs.ChainLaw([linear, tanh]), fs.ChainLaw([tanh])
    x = np.array([0.05, 0.3, 1.2])
    assert law.pdf(1.21**2 * x) == pytest.approx(one.pdf(x) / 1.21**2, rel=1e-13)
    assert pickle.loads(pickle.dumps(law)) == law


def test_turning_points_beyond_all_mass():
    # erf around h = 0.5 with sigma 1e-3: the extremum at 0 lies 500 standard deviations away.
    law = law_of("erf", 1e-6, 0.5)
    h = np.array([0.497, 0.5, 0.504])
    lam = VARIANCE * 4.0 / math.pi * np.exp(-2.0 * h * h)
    assert law.cdf(lam) == pytest.approx(stats.norm.sf((h - 0.5) / 1e-3), rel=1e-10)
    assert law.pdf(lam) == pytest.approx(stats.norm.pdf(h, 0.5, 1e-3) / (4.0 * h * lam), rel=1e-10)


def test_user_slopes_below_the_doubles_count_as_zero():
    tanh = activation(np.tanh, derivative=lambda h: 1.0 / np.cosh(np.clip(h, -350.0, 350.0)) ** 2)
    law = fs.ChainLaw([fs.Layer(tanh, q=1e4, weight_variance=1.0, weights="orthogonal")])
    exact = fs.ChainLaw([fs.Layer("tanh", q=1e4, weight_variance=1.0, weights="orthogonal")])
    x = np.array([1e-200, 1e-50, 1e-3, 0.9])
    assert law.pdf(x) == pytest.approx(exact.pdf(x), rel=1e-11)
    assert law.cdf(x) == pytest.approx(exact.cdf(x), rel=1e-12)
    assert law.atoms[0, 0] == 0.0 and 0.05 < law.atoms[0, 1] < 0.15


def test_user_slopes_without_bound():
    cubic = activation(lambda h: h + h**3, derivative=lambda h: 1.0 + 3.0 * h * h)
    law = fs.ChainLaw([fs.Layer(cubic, q=0.5, weight_variance=1.0, weights="orthogonal")])
    assert law.support() == [(1.0, math.inf)]
    h = np.array([0.01, 0.4, 2.0])
    lam = (1.0 + 3.0 * h * h) ** 2
    exact = 2.0 * stats.norm.pdf(h, scale=math.sqrt(0.5)) / (12.0 * h * (1.0 + 3.0 * h * h))
    assert law.pdf(lam) == pytest.approx(exact, rel=1e-11)
    assert law.cdf(lam) == pytest.approx(1.0 - 2.0 * stats.norm.sf(h / math.sqrt(0.5)), rel=1e-11)
    assert law.pdf(1.0) == math.inf and law.pdf(0.5) == 0.0
