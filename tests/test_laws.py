"""Laws against 40-digit tables, identities and special points."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from math import comb, exp, inf, log, nan, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastspec as fs

sys.path.insert(0, str(Path(__file__).parent / "reference"))
from load import complex_relative_error, law_name, load_chain_laws, load_laws, relative_error

LAWS = load_laws()
CONTINUOUS = [record for record in LAWS if record["support"]]


def make(record):
    """The fastspec law of a reference record."""
    kind, p = record["kind"], record["parameters"]
    if kind == "resnet_limit":
        return fs.ResNetLimit(p["c"], skip=p["skip"], depth=p["depth"])
    if kind == "fuss_catalan":
        return fs.FussCatalan(int(p["depth"]))
    if kind in ("bernoulli_limit", "smooth_limit"):
        return {"b": fs.BernoulliLimit, "s": fs.SmoothLimit}[kind[0]](p["variance"])
    return fs.PlainChain(int(p["depth"]), slope_probability=p["p"], slope_complement=p["pc"],
                         weight_variance=p["weight_variance"], weights=kind[len("plain_"):])


def near_critical(record):
    """L(1-p) = 1 up to rounding: the end is an inverse root, on which doubles cannot place cdf."""
    p = record["parameters"]
    return record["kind"] == "plain_orthogonal" and abs(p["depth"] * p["pc"] - 1) < 1e-12


ONE_OF_EACH = [
    fs.ResNetLimit(1e-8), fs.ResNetLimit(0.125), fs.ResNetLimit(100.0),
    fs.ResNetLimit(0.4, skip=0.8, depth=12), fs.SmoothLimit(0.3), fs.BernoulliLimit(0.3),
    fs.BernoulliLimit(1.0), fs.BernoulliLimit(6.0), fs.FussCatalan(1), fs.FussCatalan(7),
    fs.FussCatalan(10000),
    fs.PlainChain(1, slope_probability=0.3, slope_complement=0.7, weight_variance=2.0),
    fs.PlainChain(20, slope_probability=0.5, slope_complement=0.5, weight_variance=2.0),
    fs.PlainChain(6, slope_probability=0.9, slope_complement=0.1, weight_variance=1 / 0.9,
                  weights="orthogonal"),
]
IDS = [repr(law) for law in ONE_OF_EACH]


# ---- against the tables ------------------------------------------------------------------------


@pytest.mark.parametrize("record", CONTINUOUS, ids=law_name)
def test_density_has_the_promised_accuracy(record):
    law = make(record)
    lam = np.array([point["lam"] for point in record["points"]])
    for point, value in zip(record["points"], law.pdf(lam), strict=True):
        conditioning = max(1.0, abs(point["slope"]))
        assert relative_error(value, point["density_exact"]) <= 2e-14 * conditioning, point["lam"]


@pytest.mark.parametrize("record", CONTINUOUS, ids=law_name)
def test_error_bound_holds(record):
    solution = make(record).solve([point["lam"] for point in record["points"]])
    assert not np.any(solution.status)
    for i, point in enumerate(record["points"]):
        error = relative_error(solution.density[i], point["density_exact"]) * point["density"]
        rounding_of_lam = 2.3e-16 * max(1.0, abs(point["slope"])) * point["density"]
        assert error <= solution.error_bound[i] + rounding_of_lam, point["lam"]
        assert solution.error_bound[i] <= 1e-11 * point["density"] * max(1, abs(point["slope"]))


@pytest.mark.parametrize("record", CONTINUOUS, ids=law_name)
def test_m_on_the_axis(record):
    """Both halves of a symmetric law, and real m outside the support."""
    points = [p for p in record["points"] if abs(p["slope"]) < 1e4] + record["outside"]
    points = [p for p in points if p["lam"] > 0 and p["m_re"] != 0]
    law = make(record)
    ends = [end for pair in law.support() for end in pair if end > 0]
    m = law.solve([point["lam"] for point in points]).m
    for point, value in zip(points, m, strict=True):
        exact = (point["m_re_exact"], point["m_im_exact"])
        # m - m_e ~ sqrt(distance), or its inverse at a critical end: dm/dlog z diverges there
        distance = min(1.0, *(abs(point["lam"] / end - 1) for end in ends))
        critical = near_critical(record) or record["parameters"].get("variance") == 1.0
        tolerance = 1e-14 / (distance**1.5 if critical else distance)
        assert complex_relative_error(complex(value), exact) <= tolerance, point["lam"]


@pytest.mark.parametrize("record", CONTINUOUS, ids=law_name)
def test_cdf_and_its_complement(record):
    law = make(record)
    lam = [point["lam"] for point in record["points"] + record["outside"]]
    exact = record["points"] + record["outside"]
    tolerance = 5e-12 if near_critical(record) else 2e-14
    for point, below, above in zip(exact, law.cdf(lam), law.ccdf(lam), strict=True):
        assert abs(below - point["cdf"]) <= tolerance, point["lam"]
        assert abs(above - point["ccdf"]) <= tolerance, point["lam"]


@pytest.mark.parametrize("record", LAWS, ids=law_name)
def test_edges_atoms_and_mass(record):
    law = make(record)
    ends = [end for interval in law.support() for end in interval]
    exact = [end for interval in record["support_exact"] for end in interval]
    assert len(ends) == len(exact)
    for value, truth in zip(ends, exact, strict=True):
        assert relative_error(value, truth) <= 2e-16
    # the table lists the exact atoms of the double parameters, down to masses of 1e-17
    atoms = [atom for atom in record["atoms_exact"] if float(atom[1]) > 0]
    assert len(law.atoms) == len(atoms)
    for (place, mass), (true_place, true_mass) in zip(law.atoms, atoms, strict=True):
        assert relative_error(place, true_place) <= 1e-14
        assert relative_error(mass, true_mass) <= 1e-14


@pytest.mark.parametrize("record", LAWS, ids=law_name)
def test_six_moments(record):
    law = make(record)
    for k, exact in enumerate(record["moments_exact"], start=1):
        assert relative_error(law.moment(k), exact) <= 1e-12
    mean, second = record["moments"][:2]
    spread = second / mean**2
    assert law.variance() == pytest.approx(second - mean**2, rel=1e-12 * spread / abs(spread - 1)
                                           if spread != 1 else 0, abs=1e-300)


@pytest.mark.parametrize("record", LAWS, ids=law_name)
def test_green_function_on_the_plane(record):
    law = make(record)
    for point in record["green"]:
        z, g = point["z"], law.green(point["z"])
        # dlog G/dlog z by a difference in the tables' own terms: 1/K' ~ 1/sqrt(distance)
        edge = min((abs(z / end - 1) for pair in law.support() for end in pair if end > 0),
                   default=1.0)
        if near_critical(record) or record["parameters"].get("variance") == 1.0:
            edge = edge**2  # m ~ (z - end)^(-1/2)
        tolerance = 4e-15 * max(1.0, 1.0 / edge)
        assert complex_relative_error(g, point["G_exact"]) <= tolerance, z
        assert complex_relative_error(law.green(z.conjugate()).conjugate(),
                                      point["G_exact"]) <= tolerance or z.imag == 0


def test_chain_law_records_that_are_explicit():
    matched = 0
    for record in load_chain_laws():
        layers = record["layers"]
        if record["kind"] != "feedforward" or len(layers) != 1:
            continue
        depth, q = int(layers[0]["repeat"]), float(layers[0]["q"])
        variance = float(layers[0]["weight_variance"])
        law = {"linear": (1.0, 0.0), "relu": (0.5, 0.5)}.get(record["activation"])
        if record["activation"] == "hard_tanh":
            from scipy.special import erf, erfc

            law = (float(erf(1 / sqrt(2 * q))), float(erfc(1 / sqrt(2 * q))))
        if law is None:
            continue
        chain = fs.PlainChain(depth, slope_probability=law[0], slope_complement=law[1],
                              weight_variance=variance, weights=record["weights"])
        matched += 1
        for point in record["points"]:
            value, exact = chain.pdf(float(point["lam"])), float(point["density"])
            assert value == pytest.approx(exact, rel=1e-12, abs=1e-30)
    assert matched >= 5


# ---- identities --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(-8, 2), st.floats(0.001, 0.999))
def test_resnet_limit_is_symmetric_under_inversion(log_c, fraction):
    law = fs.ResNetLimit(10.0**log_c).log_eigenvalues()
    x = fraction * law.support()[0][1]
    assert law.pdf(x) == pytest.approx(law.pdf(-x), rel=1e-12)
    assert law.cdf(-x) == pytest.approx(law.ccdf(x), rel=1e-11, abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(st.floats(-8, 2), st.floats(1e-9, 1.0))
def test_resnet_curve_is_on_the_exact_curve(log_c, fraction):
    """x^2 = 1/4 - y^2 + y cot(2cy) with m + 1/2 = x - iy (solved m, no kernel formula)."""
    c = 10.0**log_c
    law = fs.ResNetLimit(c)
    low, high = law.log_eigenvalues().support()[0]
    lam = exp(high - fraction * (high - low) * 0.999)
    m = law.solve(lam).m
    x, y = m.real + 0.5, -m.imag
    right = 0.25 - y * y + y / np.tan(2 * c * y)
    assert x * x == pytest.approx(right, rel=1e-8, abs=1e-10 * (1 + y * y))


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 50])
def test_fuss_catalan_numbers(depth):
    law = fs.FussCatalan(depth)
    for k in range(1, 25):
        exact = comb((depth + 1) * k, k) // (depth * k + 1)
        assert law.moment(k) == pytest.approx(exact, rel=1e-14)
        assert law.log_moment(k) == pytest.approx(log(exact), rel=1e-14)


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
def test_mass_and_moments_by_quadrature(law):
    """pdf integrates to the series' moments: two routes that share no formula."""
    from fastspec._expect import expect

    mass = law._core.continuous_mass()
    if not np.isinf(law._core.hard_exponent()) or law.atoms.size == 0:
        assert expect(law._core, lambda x, _: np.ones_like(x)) == pytest.approx(mass, rel=1e-12)
    for k in (1, 2, 3, 4):
        scale = law.log_moment(k)
        discrete = sum(m * exp(k * log(a) - scale) for a, m in law.atoms if a > 0)
        part = expect(law._core, lambda x, _, k=k, s=scale: np.exp(k * x - s))
        assert part + discrete == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
@pytest.mark.parametrize("view", ["lam", "singular_values", "log_eigenvalues"])
def test_quantiles_round_trip(law, view):
    target = law if view == "lam" else getattr(law, view)()
    p = np.concatenate([np.linspace(0, 1, 101), [1e-12, 1e-6, 1 - 1e-6, 1 - 1e-12]])
    x = target.icdf(p)
    assert np.all(np.isfinite(x) | (x == -inf))
    assert np.all(x[1:101] >= x[:100])
    # below the doubles lambda rounds to 0, as documented; log lambda has no such limit
    inside = x > (-inf if view == "log_eigenvalues" else 1e-300)
    for place, mass in target.atoms:
        inside &= x != place
        assert mass > 0
    # at an inverse-root end one unit in the last place of x moves cdf by more
    step = 8 * np.minimum(target.pdf(x), 1e9) * np.spacing(np.abs(x))
    assert np.all((np.abs(target.cdf(x) - p) <= np.maximum(1e-10, step))[inside])
    assert np.all((target.cdf(x) >= p - np.maximum(1e-10, step))[inside])


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
def test_cdf_is_the_integral_of_pdf(law):
    """A different formula each: the slope of cdf is the density."""
    view = law.log_eigenvalues()
    low, high = view.support()[0]
    low = max(low, high - 30.0)
    x = np.linspace(low, high, 42)[1:-1]
    h = 1e-4 * (high - low)
    slope = (8 * (view.cdf(x + h) - view.cdf(x - h)) - view.cdf(x + 2 * h)
             + view.cdf(x - 2 * h)) / (12 * h)
    assert slope == pytest.approx(view.pdf(x), rel=1e-6, abs=1e-9 / (high - low))


def test_singular_values_are_a_change_of_variable():
    law = fs.ResNetLimit(0.7)
    s = law.singular_values()
    x = np.linspace(0.3, 3.3, 31)
    assert s.pdf(x) == pytest.approx(2 * x * law.pdf(x * x), rel=1e-15)
    assert s.cdf(x) == pytest.approx(law.cdf(x * x), rel=1e-15)
    assert s.moment(2) == pytest.approx(law.mean(), rel=1e-15)
    assert s.mean() ** 2 + s.variance() == pytest.approx(law.mean(), rel=1e-12)
    assert s.support()[0] == pytest.approx(np.sqrt(law.support()[0]), rel=1e-15)
    assert s.entropy() == pytest.approx(
        law.entropy() - log(2) - 0.5 * law.log_eigenvalues().mean(), rel=1e-11)
    assert s.cdf(-1.0) == 0.0 and s.pdf(-1.0) == 0.0


def test_quarter_circle():
    s = fs.FussCatalan(1).singular_values()
    x = np.linspace(0, 2, 50)
    assert s.pdf(x) == pytest.approx(np.sqrt(4 - x * x) / pi, rel=2e-14, abs=1e-15)
    assert s.mean() == pytest.approx(8 / (3 * pi), rel=1e-13)
    # half a semicircle of radius 2, whose entropy is log(2 pi) - 1/2
    assert s.entropy() == pytest.approx(log(2 * pi) - 0.5 - log(2), rel=1e-12)
    assert s.icdf(0.5) == pytest.approx(s.median())


def test_log_view_of_a_square_gaussian():
    """E log lambda = -1, Var = pi^2/3 - ... for lambda = 4 cos^2: from E log|2 cos|."""
    view = fs.FussCatalan(1).log_eigenvalues()
    # rho ds: s = 2 sin u, weight (2/pi) cos^2 u: E log s^2 = -1
    assert view.mean() == pytest.approx(-1.0, rel=1e-12)
    assert fs.BernoulliLimit(2.0).log_eigenvalues().mean() == -inf
    assert fs.BernoulliLimit(2.0).entropy() == -inf
    assert fs.FussCatalan(10000).log_eigenvalues().mean() < -5000


def test_smooth_limit_is_a_dilated_resnet_limit():
    smooth, resnet = fs.SmoothLimit(0.5), fs.ResNetLimit(0.25)
    x = np.linspace(0.2, 3.0, 40)
    assert smooth.pdf(x) == pytest.approx(exp(0.25) * resnet.pdf(x * exp(0.25)), rel=1e-13)


def test_skip_dilates():
    law, plain = fs.ResNetLimit(0.3, skip=0.9, depth=7), fs.ResNetLimit(0.3 / 0.81)
    factor = 0.9**14
    assert law.mean() == pytest.approx(factor * plain.mean(), rel=1e-14)
    assert law.condition_number() == pytest.approx(plain.condition_number(), rel=1e-14)
    x = np.linspace(*plain.support()[0], 20)[1:-1]
    assert law.pdf(factor * x) * factor == pytest.approx(plain.pdf(x), rel=1e-12)


@pytest.mark.parametrize("c", [1e-8, 1e-3, 0.125, 1.0, 100.0])
def test_condition_number_formula(c):
    s = sqrt(c * (2 + c))
    assert fs.ResNetLimit(c).condition_number() == pytest.approx((1 + c + s) * exp(s), rel=1e-14)


def test_condition_number_of_other_laws():
    assert fs.FussCatalan(2).condition_number() == inf
    assert fs.BernoulliLimit(0.2).condition_number() == inf
    linear = fs.PlainChain(9, slope_probability=1.0, slope_complement=0.0, weight_variance=1.3,
                           weights="orthogonal")
    assert linear.condition_number() == 1.0 and linear.support() == []
    assert linear.atoms[0] == pytest.approx([1.3**9, 1.0])
    law = fs.FussCatalan(2)
    trimmed = law.condition_number(coverage=0.9)
    assert trimmed == pytest.approx(sqrt(law.icdf(0.95) / law.icdf(0.05)), rel=1e-13)
    relu = fs.PlainChain(3, slope_probability=0.5, slope_complement=0.5, weight_variance=2.0)
    assert relu.condition_number(coverage=0.9) == inf  # the zero atom is more than is trimmed
    assert fs.condition_number(law, 0.9) == trimmed


def test_density_is_right_on_every_grid():
    """Branch right on linear, log and edge-clustered grids: all densities from one smooth curve."""
    for law in ONE_OF_EACH:
        low, high = law.log_eigenvalues().support()[0]
        low = max(low, high - 600.0, -700.0)
        grids = [np.log(np.linspace(exp(low), exp(high), 1002)[1:-1]),
                 np.linspace(low, high, 1002)[1:-1],
                 high - (high - low) * np.logspace(-14, -0.01, 1000)]
        for grid in grids:
            solution = law.log_eigenvalues().solve(grid)
            assert not solution.status.any()
            assert np.all(solution.density > 0)
            assert np.all(solution.residual < 1e-12 * (1 + np.abs(grid)))


# ---- special points and inputs -----------------------------------------------------------------


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
def test_special_points(law):
    x = np.array([nan, inf, -inf, -1.0, -1e308])
    assert np.isnan(law.pdf(x)[0]) and np.isnan(law.cdf(x)[0]) and np.isnan(law.icdf(nan))
    assert list(law.pdf(x)[1:]) == [0, 0, 0, 0]
    assert list(law.cdf(x)[1:]) == [1, 0, 0, 0] and list(law.ccdf(x)[1:]) == [0, 1, 1, 1]
    hard = law.support()[0][0] == 0.0
    assert law.pdf(0.0) == (inf if hard else 0.0)
    assert law.pdf(5e-324) > 0 if hard else law.pdf(5e-324) == 0
    assert law.pdf(1e308) == 0.0
    assert np.isfinite(law.logpdf(5e-324)) == hard
    assert np.isnan(law.icdf(-0.1)) and np.isnan(law.icdf(1.1))
    ends = [law.support()[0][0]] + [place for place, _ in law.atoms]
    assert law.icdf(0.0) == min(ends)
    assert law.icdf(1.0) == max([law.support()[0][1]] + [place for place, _ in law.atoms])
    # the ends themselves
    (_, top), middle = law.support()[0], law.icdf(0.999 * law.cdf(law.support()[0][1]))
    if law == fs.BernoulliLimit(1.0):  # inverse root; the double nearest e is below e
        assert law.pdf(top) > 1e6
    else:
        assert law.pdf(top) < 1e-5 * law.pdf(middle)
    assert law.pdf(np.nextafter(top, inf)) == 0.0


def test_logpdf_survives_where_pdf_overflows():
    law = fs.FussCatalan(10000)
    assert law.pdf(5e-324) == inf
    view = law.log_eigenvalues()
    tiny = log(5e-324)
    assert law.logpdf(5e-324) == pytest.approx(view.logpdf(tiny) - tiny, rel=1e-13)
    assert law.logpdf(-1.0) == -inf and np.isnan(law.logpdf(nan))


def test_arrays_of_every_kind():
    law = fs.ResNetLimit(0.5)
    base = np.linspace(0.2, 4.0, 24)
    expected = law.pdf(base)
    assert type(law.pdf(0.7)) is float
    assert law.pdf(np.float64(0.7)) == law.pdf(0.7) == law.pdf(np.array(0.7))
    assert law.pdf(1) == law.pdf(1.0)
    assert law.pdf([]).shape == (0,)
    assert np.array_equal(law.pdf(base.reshape(2, 3, 4)), expected.reshape(2, 3, 4))
    assert np.array_equal(law.pdf(base[::-3]), expected[::-3])
    assert np.array_equal(law.pdf(np.asfortranarray(base.reshape(4, 6))), expected.reshape(4, 6))
    frozen = base.copy()
    frozen.flags.writeable = False
    assert np.array_equal(law.pdf(frozen), expected)
    single = base.astype(np.float32)
    assert np.array_equal(law.pdf(single), law.pdf(single.astype(float)))
    assert law.pdf(base).dtype == np.float64
    for name in ("cdf", "ccdf", "logpdf"):
        assert getattr(law, name)(base.reshape(4, 6)).shape == (4, 6)
    assert law.solve(base.reshape(4, 6)).m.shape == (4, 6)
    assert law.green(base.reshape(4, 6) + 1j).shape == (4, 6)


def test_out():
    law = fs.ResNetLimit(0.5)
    x = np.linspace(0.2, 4.0, 12)
    out = np.empty(12)
    assert law.pdf(x, out=out) is out and np.array_equal(out, law.pdf(x))
    strided = np.empty(24)[::2]
    law.pdf(x, out=strided)
    assert np.array_equal(strided, out)
    for bad in (np.empty(11), np.empty(12, np.float32), [0.0] * 12):
        with pytest.raises(ValueError, match="out must be"):
            law.pdf(x, out=bad)


@pytest.mark.parametrize(
    "build, words",
    [
        (lambda: fs.ResNetLimit(0.0), "c must be .* > 0, got 0.0"),
        (lambda: fs.ResNetLimit(-1), "c must be"),
        (lambda: fs.ResNetLimit(nan), "c must be .*nan"),
        (lambda: fs.ResNetLimit("x"), "c must be .*'x'"),
        (lambda: fs.ResNetLimit(1.0, skip=0.0, depth=3), "skip must be"),
        (lambda: fs.ResNetLimit(1.0, skip=0.5), "depth must be given"),
        (lambda: fs.ResNetLimit(1.0, depth=0), "depth must be .*got 0"),
        (lambda: fs.ResNetLimit(1.0, depth=-3), "depth must be .*got -3"),
        (lambda: fs.ResNetLimit(1.0, depth=2.5), "depth must be .*got 2.5"),
        (lambda: fs.FussCatalan(0), "depth must be"),
        (lambda: fs.FussCatalan(2.5), "depth must be"),
        (lambda: fs.FussCatalan(True), "depth must be"),
        (lambda: fs.SmoothLimit(0.0), "variance must be in"),
        (lambda: fs.BernoulliLimit(inf), "variance must be"),
        (lambda: fs.PlainChain(2, slope_probability=0.5, slope_complement=0.4,
                               weight_variance=1.0), "slope_complement must be"),
        (lambda: fs.PlainChain(2, slope_probability=1.0, slope_complement=0.0,
                               weight_variance=1.0, weights="orthogonl"), "did you mean"),
        (lambda: fs.ResNetLimit(1.0).pdf("x"), "x must be real"),
        (lambda: fs.ResNetLimit(1.0).pdf(1j), "x must be real"),
        (lambda: fs.ResNetLimit(1.0).green("x"), "z must be complex"),
        (lambda: fs.ResNetLimit(1.0).moment(-1), "k must be"),
        (lambda: fs.ResNetLimit(1.0).moment(1.5), "k must be"),
        (lambda: fs.ResNetLimit(1.0).condition_number(0.0), "coverage must be"),
        (lambda: fs.ResNetLimit(1.0).pdf(1, on_error="x"), "on_error must be"),
        (lambda: fs.density(1.0, 3), "net_or_law must be"),
    ],
)
def test_bad_parameters_name_themselves(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_failures_are_counted_once():
    law = fs.FussCatalan(2)
    with pytest.warns(fs.ConvergenceWarning, match="1 of 3 points are NaN .*infinite") as caught:
        g = law.green([0.0, 1.0, -1.0])
    assert len(caught) == 1 and np.isnan(g[0]) and np.isfinite(g[1:]).all()
    with pytest.raises(fs.ConvergenceError, match="1 of 1"):
        law.green(0.0, on_error="raise")
    assert np.isnan(law.green(0.0, on_error="ignore"))
    assert law.m_transform(0.0) == -1.0


def test_green_at_zero_over_a_gap_and_far_away():
    law = fs.ResNetLimit(0.3)
    assert law.green(0.0) == pytest.approx(-law.mean(), rel=1e-14)  # symmetry: E 1/lam = E lam
    assert law.green(1e200j) == pytest.approx(1 / 1e200j, rel=1e-14)
    assert law.m_transform(1e200) == pytest.approx(law.mean() / 1e200, rel=1e-13)
    assert law.green(inf) == 0.0


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
def test_green_on_the_axis_is_the_limit_from_above(law):
    low, high = law.log_eigenvalues().support()[0]
    if high < -600 or high > 600:
        return
    lam = np.exp(np.linspace(max(low, high - 8.0), high, 12)[1:-1])
    on, off = law.green(lam), law.green(lam * (1 + 1e-9j * (high - low if low > -inf else 1)))
    assert on.imag == pytest.approx(-pi * law.pdf(lam), rel=1e-12)
    assert on == pytest.approx(off, rel=1e-5)


def test_range_warning():
    with pytest.warns(fs.RangeWarning, match="log_eigenvalues"):
        law = fs.ResNetLimit(1.0, skip=0.5, depth=10000)
    assert law.condition_number() == pytest.approx(fs.ResNetLimit(4.0).condition_number())
    low, high = law.log_eigenvalues().support()[0]
    assert (low + high) / 2 == pytest.approx(20000 * log(0.5), rel=1e-14)


def test_laws_are_values():
    law = fs.ResNetLimit(0.3, skip=0.9, depth=4)
    twin = pickle.loads(pickle.dumps(law))
    assert twin == law and hash(twin) == hash(law) and twin.pdf(0.5) == law.pdf(0.5)
    assert copy.deepcopy(law) == law and law != fs.ResNetLimit(0.3)
    assert repr(law) == "ResNetLimit(c=0.3, skip=0.9, depth=4)"
    assert eval(repr(law.singular_values()), {"ResNetLimit": fs.ResNetLimit}).law == law


def test_samples_follow_the_law():
    from scipy.stats import kstest

    for law in (fs.ResNetLimit(0.5), fs.FussCatalan(3)):
        draws = law.sample((200, 20), rng=1)
        assert draws.shape == (200, 20)
        assert np.array_equal(draws, law.sample((200, 20), rng=np.random.default_rng(1)))
        assert kstest(draws.ravel(), law.cdf).pvalue > 1e-3
    atoms = fs.BernoulliLimit(0.25).sample(4000, rng=2)
    assert np.mean(atoms == fs.BernoulliLimit(0.25).atoms[0, 0]) == pytest.approx(0.75, abs=0.03)


def test_threads_share_a_law():
    law = fs.PlainChain(30, slope_probability=0.5, slope_complement=0.5, weight_variance=2.0)
    x = np.linspace(1e-3, 100, 20001)
    expected = law.pdf(x)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(law.pdf, [x] * 16):
            assert np.array_equal(result, expected)


@pytest.mark.parametrize("law", ONE_OF_EACH, ids=IDS)
def test_quantiles_far_out_in_the_tails(law):
    """Powers of the tail: no target is too small, and order is kept."""
    view = law.log_eigenvalues()
    zero = sum(mass for place, mass in view.atoms if place == -inf)
    if zero == 0.0:
        x = view.icdf(np.array([0.0, 1e-200, 1e-150, 1e-101, 1e-99, 1e-60, 1e-30, 1e-12]))
        assert np.all(np.diff(x[1:]) >= 0) and x[1] >= x[0] and not np.isnan(x).any()
        assert view.cdf(x[-3:]) == pytest.approx([1e-60, 1e-30, 1e-12], rel=1e-3, abs=1e-16)
