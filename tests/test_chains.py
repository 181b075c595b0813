"""Exact laws of chains against tables made independently, a slow twin, and simulation."""

import json
import pickle
import warnings
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from free_model import sample_eigenvalues
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastspec as fs
from fastspec import _kernels
from fastspec._expect import expect

LOG_LAMBDA = _kernels.LOG_LAMBDA
REFERENCE = Path(__file__).parent / "reference"
PROMISED = 1e-12
# kappa = a^2, density ~ lambda^(-1/3): two unknowns cancel to their square as lambda -> 0
CRITICAL = "residual linear var=1 gaussian"


# ---- tables ------------------------------------------------------------------------------------


def activation_of(entry):
    """The activation of a record: a name, leaky:slope, or slopes and kinks."""
    if isinstance(entry, dict):
        slopes = [float(v) for v in entry["slopes"]]
        kinks = [float(v) for v in entry["kinks"]]
        return piecewise(slopes, kinks)
    name, _, slope = entry.partition(":")
    return fs.activation("leaky_relu", slope=float(slope)) if slope else name


def piecewise(slopes, kinks):
    """A piecewise linear phi from its slopes."""
    def derivative(h):
        return np.array(slopes)[np.searchsorted(kinks, h)]

    def phi(h):
        h = np.asarray(h, dtype=float)
        value, places = slopes[0] * np.minimum(h, kinks[0]), [*kinks, np.inf]
        for i, slope in enumerate(slopes[1:]):
            value = value + slope * (np.clip(h, places[i], places[i + 1]) - places[i])
        return value

    return fs.activation(phi, derivative=derivative, kinks=tuple(kinks))


def layer_of(entry, **more):
    return fs.Layer(activation_of(entry["activation"]), q=float(entry["q"]),
                    mean=float(entry.get("mean", 0.0)), weights=entry["weights"],
                    weight_variance=float(entry["weight_variance"]),
                    width=float(entry.get("width_out", 1.0)), **more)


SOLVED = {}


def law_of(record):
    """The ChainLaw of a record of either table, solved once."""
    if id(record) not in SOLVED:
        SOLVED[id(record)] = solve_record(record)
    return SOLVED[id(record)]


@pytest.fixture(autouse=True)
def _wide_laws():
    """Deep plain chains leave the doubles, which a RangeWarning says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fs.RangeWarning)
        yield


def solve_record(record):
    if "kind" in record:
        blocks = []
        for entry in record["layers"]:
            entry = {**entry, "activation": record["activation"], "weights": record["weights"]}
            repeat = int(entry["repeat"])
            blocks.append(layer_of(entry, repeat=repeat) if record["kind"] == "feedforward" else
                          fs.Residual(layer_of(entry), skip=float(record.get("skip", 1)),
                                      repeat=repeat))
        return fs.ChainLaw(blocks)
    blocks = []
    for block in record["blocks"]:
        skip, repeat = float(block["skip"]), int(block["repeat"])
        if skip:
            blocks.append(fs.Residual(*map(layer_of, block["layers"]), skip=skip, repeat=repeat))
        else:
            blocks += [layer_of(entry) for entry in block["layers"]] * repeat
    width = float(record["blocks"][0]["layers"][0].get("width_in", 1.0))
    return fs.ChainLaw(blocks, input_width=width)


def points_of(record):
    pairs = [(p["lam"], p["density"]) if isinstance(p, dict) else p for p in record["points"]]
    return np.array([[float(x) for x in pair] for pair in pairs]).T


def records(name):
    found = json.loads((REFERENCE / name).read_text(encoding="ascii"))
    return [pytest.param(record, id=record.get("name") or "-".join(
        str(record.get(key, "")) for key in ("kind", "activation", "weights")) +
        f"-{record['layers'][0]['repeat']}-{i}") for i, record in enumerate(found)]


RECORDS = records("chain_laws.json") + records("chain_laws_own.json")


def conditioning(law, lam):
    """max(1, |d log density/d log lambda|): what one rounding of lambda costs."""
    step = 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.log(law.pdf(lam * (1 + step)) / law.pdf(lam * (1 - step))) / (2 * step)
        near = [np.min([np.abs(np.log(lam / end)) for low_high in law.support()
                        for end in low_high if end > 0] or [np.full_like(lam, np.inf)], axis=0)]
    return np.maximum(1.0, np.where(np.isfinite(rise), np.abs(rise), 0.0)) + 0.5 / near[0]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("method", ["table", "newton"])
def test_density_is_that_of_the_table(record, method):
    law, (lam, density) = law_of(record), points_of(record)
    found, bound = law.pdf(lam, method=method), law.solve(lam).error_bound
    gap = density < 1e-30  # what the given table calls zero
    assert np.all(found[gap] < 1e-30)
    off = np.abs(found - density)[~gap] / density[~gap]
    promised = PROMISED * conditioning(law, lam[~gap])
    if CRITICAL in str(record.get("name")):  # far down the tail only the bound holds
        promised = np.maximum(promised, (bound / np.maximum(density, 1e-300))[~gap])
    assert np.all(off <= promised), off / promised


@pytest.mark.parametrize("record", RECORDS)
def test_error_bounds_hold(record):
    law, (lam, density) = law_of(record), points_of(record)
    solution = law.solve(lam)
    np.testing.assert_array_equal(solution.status, 0)
    inside = density > 1e-30
    rounding = 4e-16 * density * conditioning(law, lam)
    off = np.abs(solution.density - density)
    assert np.all(off[inside] <= (solution.error_bound + rounding)[inside])


@pytest.mark.parametrize("record", [p for p in RECORDS if p.values[0].get("edges")])
def test_edges(record):
    law = law_of(record)
    ends = np.array([end for interval in law.support() for end in interval])
    for edge in map(float, record["edges"]):
        assert np.min(np.abs(ends / edge - 1.0)) < PROMISED


@pytest.mark.parametrize("record", [p for p in RECORDS if p.values[0].get("atoms") is not None])
def test_atoms(record):
    atoms = np.array([[float(x) for x in pair] for pair in record["atoms"]]).reshape(-1, 2)
    found = law_of(record).atoms
    assert found.shape == atoms.shape
    np.testing.assert_allclose(found, atoms, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("record", RECORDS)
def test_mass_and_moments_by_quadrature(record):
    law = law_of(record)
    atoms = law.atoms
    mean = law.mean()
    for k in range(5):
        with np.errstate(over="ignore"):
            integral = expect(law._core, lambda log_lam, _, k=k: np.exp(k * log_lam) / mean**k)
        integral += float(np.sum(atoms[:, 1] * (atoms[:, 0] / mean) ** k))
        series = law.moment(k) / mean**k
        assert integral == pytest.approx(series, rel=1e-10, abs=0), k


# ---- random chains against the slow twin ---------------------------------------------------------

PROBABILITIES = st.floats(0.01, 0.99)
SLOPES = st.one_of(
    st.just(((1.0,), ())),
    st.just(((0.0, 1.0), (0.0,))),
    st.tuples(st.tuples(st.floats(0.05, 0.9), st.just(1.0)), st.tuples(st.floats(-2, 2))),
    st.tuples(st.tuples(st.floats(0.0, 0.5), st.floats(0.6, 1.0), st.floats(1.1, 1.5)),
              st.tuples(st.floats(-1.5, -0.1), st.floats(0.1, 1.5))),
)


@st.composite
def layers(draw, repeat=1):
    slopes, kinks = draw(SLOPES)
    activation = piecewise(slopes, kinks) if kinks else "linear"
    return fs.Layer(activation, q=draw(st.floats(0.1, 10.0)), repeat=repeat,
                    weight_variance=10.0 ** draw(st.floats(-3.0, 1.0)),
                    weights=draw(st.sampled_from(["gaussian", "orthogonal"])))


@st.composite
def chains(draw):
    blocks = []
    for _ in range(draw(st.integers(1, 4))):
        repeat = draw(st.sampled_from([1, 1, 2, 3, 10, 50]))
        if draw(st.booleans()):
            branch = [draw(layers()) for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])))]
            blocks.append(fs.Residual(*branch, repeat=repeat,
                                      skip=draw(st.sampled_from([0.5, 1.0, 1.2]))))
        else:
            blocks.append(draw(layers(repeat=repeat)))
    return blocks


@settings(max_examples=500, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(chains())
def test_random_chains_are_right_or_say_so(blocks):
    """No crash, masses complete or a status, and the slow route finds the same root."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", fs.ConvergenceWarning)
        try:
            law = fs.ChainLaw(blocks)
        except (fs.ConvergenceError, fs.ConvergenceWarning):
            return  # counted in test_few_random_chains_fail
    atoms = law.atoms[:, 1].sum()
    if 1.0 - atoms < 1e-6:
        return
    log_law = law.log_eigenvalues()
    total = atoms + expect(law._core, lambda log_lam, _: np.ones_like(log_lam))
    assert abs(total - 1.0) < 1e-10
    # quantiles of the continuous part
    shares = atoms + (1.0 - atoms) * np.array([0.02, 0.3, 0.7, 0.98])
    x = log_law.icdf(shares)
    x = x[np.isfinite(x) & (log_law.pdf(x) > 0)]
    solution = log_law.solve(x)
    slow = law._core.walk(np.ascontiguousarray(x), LOG_LAMBDA)
    _, _, walked, status = slow
    np.testing.assert_array_equal(status, 0)
    allowed = 2e-12 * solution.density + 20.0 * solution.error_bound
    assert np.all(np.abs(walked - solution.density) <= allowed)
    assert np.all(np.abs(log_law.pdf(x) - solution.density) <= allowed)


# ---- what the law looks like -------------------------------------------------------------------


def relu(**more):
    return fs.Layer("relu", q=1.0, **more)


def test_a_gap_between_two_pieces():
    leaky = fs.activation("leaky_relu", slope=0.05)
    law = fs.ChainLaw([fs.Layer(leaky, q=1.0, weight_variance=1.0, width=0.1)])
    (low, between), (after, high) = law.support()
    assert 0 < low < between < after < high
    middle = 0.5 * (between + after)
    assert law.pdf(middle) == 0.0
    assert law.solve(middle).m.imag == 0.0
    below = law.cdf(between)
    assert law.cdf(middle) == pytest.approx(below, abs=1e-15)
    assert law.icdf(below + 1e-9) > after


def test_relu_block_has_an_inverse_root_and_a_gap_above():
    """Half of the coordinates pass: the edge at a^2 is an inverse root, then a real gap."""
    law = fs.ChainLaw([fs.Residual(relu(weight_variance=0.0165))])
    (_, at_one), (above, _) = law.support()
    assert at_one == 1.0
    assert np.log(above) == pytest.approx(0.0165**2 / 108, rel=1e-2)
    assert law.pdf(1.0) == np.inf and law.singular_values().pdf(1.0) == np.inf
    s = 1e-8
    assert law.pdf(1.0 - s) * np.sqrt(s) == pytest.approx(1 / (2 * np.pi), rel=1e-3)
    assert np.isnan(law.green(1.0, on_error="ignore"))


@pytest.mark.parametrize(
    ("blocks", "power"),
    [
        ([fs.Layer("linear", q=1.0, weight_variance=1.0, repeat=4)], -4 / 5),
        ([relu(weight_variance=2.0, weights="orthogonal", repeat=3)], 1 / 3 - 1),
        ([fs.Residual(fs.Layer("linear", q=1.0, weight_variance=1.0))], -1 / 3),
        ([fs.Residual(fs.Layer("linear", q=1.0, weight_variance=2.0))], -1 / 2),
    ],
)
def test_powers_at_zero(blocks, power):
    law = fs.ChainLaw(blocks)
    assert law.pdf(0.0) == np.inf
    x = np.array([1e-12, 1e-13])
    assert np.log10(law.pdf(x[1]) / law.pdf(x[0])) == pytest.approx(-power, abs=3e-4)


def test_special_points():
    law = fs.ChainLaw([fs.Residual(relu(weight_variance=0.05), repeat=20)])
    (low, high), = law.support()
    x = np.array([-1.0, 0.0, 0.5 * low, low, high, 2 * high, np.inf, np.nan])
    np.testing.assert_array_equal(law.pdf(x), [0, 0, 0, 0, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(law.cdf(x), [0, 0, 0, 0, 1, 1, 1, np.nan])
    assert law.icdf(0.0) == pytest.approx(low, rel=1e-15)
    assert law.icdf(1.0) == pytest.approx(high, rel=1e-15)
    p = np.linspace(0.001, 0.999, 101)
    np.testing.assert_allclose(law.cdf(law.icdf(p)), p, rtol=1e-13)
    for method in ("table", "newton", "walk"):
        assert law.pdf(0.7, method=method) == pytest.approx(law.pdf(0.7), rel=1e-13)
    with pytest.raises(ValueError, match="method"):
        law.pdf(1.0, method="fast")


def test_green_agrees_with_its_moments_and_its_axis():
    law = fs.ChainLaw([relu(weight_variance=1.5, weights="orthogonal", repeat=2),
                       fs.Residual(fs.Layer("linear", q=1.0, weight_variance=0.3))])
    z = 200.0 * np.exp(1j * np.linspace(-3, 3, 7))
    series = sum(law.moment(k) / z ** (k + 1) for k in range(12))
    np.testing.assert_allclose(law.green(z), series, rtol=1e-11)
    x = law.icdf(np.array([0.6, 0.75, 0.9]))
    np.testing.assert_allclose(-law.green(x + 1e-13j).imag / np.pi, law.pdf(x), rtol=1e-10)
    np.testing.assert_allclose(law.green(np.conj(z)), np.conj(law.green(z)), rtol=1e-13)
    grid = np.array([0.5 + 0.1j, -2.0, 3.0 - 1.0j, 1e-3j])
    by_integral = [
        expect(law._core, lambda log_lam, _, w=w: (1 / (w - np.exp(log_lam))).real)
        + 1j * expect(law._core, lambda log_lam, _, w=w: (1 / (w - np.exp(log_lam))).imag)
        + np.sum(law.atoms[:, 1] / (w - law.atoms[:, 0])) for w in grid]
    np.testing.assert_allclose(law.green(grid), by_integral, rtol=1e-9)


def test_compression_changes_nothing_that_was_promised():
    net = fs.ResNet(depth=40, activation="tanh", sigma_w=1.5, sigma_b=0.3)
    short, full = fs.ChainLaw(net.blocks()), fs.ChainLaw(net.blocks(), compress=False)
    assert short._core.intervals(LOG_LAMBDA)
    x = full.icdf(np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.999]))
    np.testing.assert_allclose(short.pdf(x), full.pdf(x), rtol=1e-11)
    assert 0.0 <= short.compression_error < PROMISED
    assert full.compression_error == 0.0
    assert short.mean() == pytest.approx(full.mean(), rel=1e-13)
    assert np.all(np.abs(short.pdf(x) - full.pdf(x)) <= short.solve(x).error_bound
                  + full.solve(x).error_bound + 1e-13 * full.pdf(x))


def test_two_hundred_sigmoid_blocks_with_q_over_decades():
    net = fs.ResNet(depth=200, activation="sigmoid", depth_scaled=False, sigma_w=0.3)
    q = net.propagate().q
    assert q.max() / q.min() > 5e3
    law, full = net.spectrum(), fs.ChainLaw(net.blocks(), compress=False)
    x = full.log_eigenvalues().icdf(np.array([0.01, 0.3, 0.5, 0.9, 0.999]))
    density = full.log_eigenvalues().pdf(x)
    np.testing.assert_allclose(law.log_eigenvalues().pdf(x), density, rtol=1e-12)
    np.testing.assert_allclose(full._core.walk(x[:2], LOG_LAMBDA)[2], density[:2], rtol=1e-12)


def test_order_of_square_blocks_does_not_matter():
    blocks = [relu(weight_variance=1.2),
              fs.Residual(fs.Layer("linear", q=1.0, weight_variance=0.4)),
              fs.Layer("linear", q=1.0, weight_variance=0.7, weights="orthogonal")]
    x = np.array([0.1, 0.7, 2.0])
    np.testing.assert_allclose(fs.ChainLaw(blocks).pdf(x), fs.ChainLaw(blocks[::-1]).pdf(x),
                               rtol=1e-13)


def test_laws_travel():
    law = fs.ChainLaw([fs.Residual(relu(weight_variance=0.3), repeat=2)])
    again = pickle.loads(pickle.dumps(law))
    assert again == law and again.pdf(1.7) == law.pdf(1.7)
    assert "Residual" in repr(law)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fs.ChainLaw([]), "blocks"),
        (lambda: fs.ChainLaw(["relu"]), "blocks"),
        (lambda: fs.ChainLaw([relu(weight_variance=1.0)], input_width=0.0), "input_width"),
        (lambda: fs.ChainLaw([relu(weight_variance=1.0, width=2.0),
                              fs.Residual(relu(weight_variance=1.0, width=2.0)),
                              relu(weight_variance=1.0)]), "width"),
    ],
)
def test_bad_chains_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_nearly_critical_atoms_say_what_they_miss():
    """An atom of mass 1e-9 beside an edge: right up to that mass, with a warning."""
    near = fs.activation(lambda h: np.clip(h, -1.0, 1.0), derivative=lambda h: 1.0 * (abs(h) < 1),
                         kinks=(-1.0, 1.0))
    from scipy.optimize import brentq
    from scipy.special import erf

    q = brentq(lambda q: erf(1 / np.sqrt(2 * q)) - 0.75 - 2.5e-10, 0.3, 2.0, xtol=1e-16)
    with pytest.warns(fs.ConvergenceWarning, match="add up"):
        law = fs.ChainLaw([fs.Layer(near, q=q, weight_variance=1.0, weights="orthogonal",
                                    repeat=4)])
    assert 1e-10 < law._core.mass_error() < 1e-8


def test_slopes_that_never_reach_their_supremum():
    """sigmoid(h)^2 < 1 as h -> inf: the density vanishes at the top faster than any power."""
    law = fs.ChainLaw([fs.Layer("softplus", q=0.15, weight_variance=1.0, weights="orthogonal",
                                repeat=5)])
    assert law._core.mass_error() < 1e-12
    (low, high), = law.support()
    assert low == 0.0 and law.pdf(high * 1.001) == 0.0
    assert high * law.pdf(high * 0.999) < 1e-11
    assert law.mean() == pytest.approx(
        fs.activation("softplus").moments(0.15).slope_mean ** 5, rel=1e-12)


# ---- ends that the density does not show --------------------------------------------------------


def hump(sign):
    """phi' = 1 + sign/(2 cosh(h)^2) never reaches 1."""
    return fs.activation(lambda h: h + 0.5 * sign * np.tanh(h), derivative=lambda h: 1 + (
        0.5 * sign / np.cosh(np.clip(h, -300, 300)) ** 2))


HUMP, DIP = hump(1.0), hump(-1.0)
SLOPES_SQUARED = {HUMP: lambda h: (1 + mp.sech(h) ** 2 / 2) ** 2,
                  DIP: lambda h: (1 - mp.sech(h) ** 2 / 2) ** 2,
                  "softplus": lambda h: 1 / (1 + mp.exp(-h)) ** 2}


def slope_transform(activation, q, zeta):
    """M(zeta) = E d/(zeta - d) at real zeta off the slopes, by the trapezoid rule (exponentially
    accurate) at 30 digits."""
    d, step = SLOPES_SQUARED[activation], mp.mpf(1) / 32
    values = ((d(mp.sqrt(q) * k * step), k * step) for k in range(-14 * 32, 14 * 32 + 1))
    return step * mp.fsum(v / (zeta - v) * mp.npdf(z) for v, z in values)


def where_zeta_ends(activation, qs, shares=None):
    """lambda (weight variances 1) where the first of square orthogonal layers has zeta = 1, all of
    them real: log z = log((1+m)/m) + sum log(r m zeta/(1 + r m)), M(zeta) = r m; r = shares."""
    with mp.workdps(30):
        shares = shares or [1] * len(qs)
        ends = [slope_transform(activation, q, mp.mpf(1)) / r
                for q, r in zip(qs, shares, strict=True)]
        m = min(ends, key=abs)
        z = (1 + m) / m
        for q, r, end in zip(qs, shares, ends, strict=True):
            zeta = mp.mpf(1) if end == m else mp.findroot(
                lambda x, q=q, r=r: slope_transform(activation, q, x) - r * m, (0.2, 0.3),
                tol=1e-22)
            z *= r * m * zeta / (1 + r * m)
        return float(z)


def orthogonal(activation, *qs, repeat=1):
    return [fs.Layer(activation, q=q, weight_variance=1.0, weights="orthogonal", repeat=repeat)
            for q in qs]


@pytest.mark.parametrize("qs", [(0.25, 0.25), (0.25, 0.125), (0.25, 0.25, 0.25)])
def test_a_lower_end_that_the_density_does_not_show(qs):
    law, end = fs.ChainLaw(orthogonal(HUMP, *qs)), where_zeta_ends(HUMP, qs)
    assert law._core.mass_error() < 1e-12
    (low, high), = law.support()
    assert low == pytest.approx(end, rel=1e-12, abs=0)
    assert law.icdf(0.0) == low
    assert law.condition_number() == pytest.approx(np.sqrt(high / low), rel=1e-14)
    assert law.singular_values().support()[0][0] == pytest.approx(np.sqrt(low), rel=1e-14)
    np.testing.assert_array_equal(law.pdf([0.0, 0.5 * low, low]), 0.0)
    np.testing.assert_array_equal(law.cdf([0.0, 0.5 * low, low]), 0.0)
    thin = np.linspace(low, law.icdf(1e-14), 9)
    assert np.all(np.diff(law.cdf(thin)) >= 0.0) and law.cdf(thin[-1]) < 2e-14
    assert np.all(law.icdf([1e-30, 1e-18, 1e-12]) >= low)
    assert law.solve(0.5 * low).m.imag == 0.0


@pytest.mark.parametrize(("activation", "qs"), [(DIP, (0.25, 0.25)), ("softplus", (0.15,) * 3),
                                                ("softplus", (0.25,) * 2)])
def test_an_upper_end_that_the_density_does_not_show(activation, qs):
    law, end = fs.ChainLaw(orthogonal(activation, *qs)), where_zeta_ends(activation, qs)
    high = law.support()[-1][1]
    assert high == pytest.approx(end, rel=1e-12, abs=0)
    assert law.icdf(1.0) == high and law.pdf(high) == 0.0 and law.ccdf(high) == 0.0
    assert law.ccdf(law.icdf(1.0 - 1e-12)) == pytest.approx(1e-12, rel=1e-3)


def test_an_edge_before_the_slopes_end_stays():
    """At larger q dl/dm = 0 comes first: a square-root edge, found by the walk as well."""
    law = fs.ChainLaw(orthogonal(HUMP, 1.0, 2.0))
    low, at = law.support()[0][0], 1e-6
    assert low > where_zeta_ends(HUMP, (1.0, 1.0)) * 0.5
    ratio = law.pdf(low * (1 + at)) / law.pdf(low * (1 + 0.25 * at))
    assert ratio == pytest.approx(2.0, rel=1e-3)


def test_ends_of_rectangular_and_residual_chains():
    """1 -> 1 -> 1/2: the first layer is seen at m/2, its zeta runs through 0 on the way. One
    residual block: u = M(1), x = (1+u)^2/sigma^2, t(1+t) = x, z = (1+u+t)^2/x."""
    first, second = orthogonal(HUMP, 0.25, 0.25)
    law = fs.ChainLaw([first, fs.Layer(HUMP, q=0.25, weight_variance=1.0, weights="orthogonal",
                                       width=0.5)])
    assert law.support()[0][0] == pytest.approx(
        where_zeta_ends(HUMP, (0.25, 0.25), (0.5, 1)), rel=1e-12, abs=0)
    widened = fs.ChainLaw([first, fs.Layer(HUMP, q=0.25, weight_variance=1.0,
                                           weights="orthogonal", width=2.0)])
    assert widened.atoms.tolist() == [[0.0, 0.5]]
    assert 0.0 < widened.support()[0][0] < widened.icdf(0.5 + 1e-9)
    block = fs.ChainLaw([fs.Residual(fs.Layer(HUMP, q=0.25, weight_variance=25.0,
                                              weights="orthogonal"))])
    u = float(slope_transform(HUMP, 0.25, mp.mpf(1)))
    x = (1 + u) ** 2 / 25.0
    t = 0.5 * (np.sqrt(1 + 4 * x) - 1)
    assert block.support()[0][0] == pytest.approx((1 + u + t) ** 2 / x, rel=1e-12, abs=0)


def test_ends_of_a_compressed_chain_are_those_of_all_layers():
    blocks = orthogonal("softplus", *np.linspace(0.04, 0.05, 16))
    short, full = fs.ChainLaw(blocks), fs.ChainLaw(blocks, compress=False)
    assert short.compression_error > 0.0
    assert short.support()[0][1] == pytest.approx(full.support()[0][1], rel=1e-12, abs=0)


@pytest.mark.parametrize("q", [1e-4, 0.5])
@pytest.mark.parametrize("name", ["tanh", "sin", "softplus", "erf", "gelu", "arctan", "sigmoid"])
def test_built_in_slopes_reach_0(name, q):
    law = fs.ChainLaw(orthogonal(name, q, repeat=2))
    assert law.support()[0][0] == 0.0 and law.condition_number() == np.inf


def test_unbounded_slopes():
    """phi = h^2/2: the law of two layers goes on to infinity, as that of one layer does."""
    square = fs.activation(lambda h: 0.5 * h * h, derivative=lambda h: h)
    for repeat in (1, 2):
        law = fs.ChainLaw(orthogonal(square, 0.25, repeat=repeat))
        assert law.support()[-1][1] == np.inf and law.icdf(1.0) == np.inf
    assert law.mean() == pytest.approx(0.25**2, rel=1e-13)
    assert law.ccdf(1e3) < 1e-12 and np.isfinite(law.pdf(1e3))


def test_an_end_that_could_not_be_told_is_named():
    class Untold:
        def __init__(self, core):
            self._core = core

        def __getattr__(self, name):
            return getattr(self._core, name)

        def ends_status(self):
            return 1

    core = fs.ChainLaw(orthogonal(HUMP, 0.25, repeat=2))._core
    with pytest.warns(fs.ConvergenceWarning, match="where the support ends"):
        fs.chains.SolvedLaw(Untold(core))


@pytest.mark.parametrize(("name", "q", "depth"), [("gelu", 6e-4, 40), ("silu", 6e-4, 40),
                                                  ("softplus", 0.1344, 12)])
def test_edges_that_faint_slopes_blur(name, q, depth):
    """Between a soft top and a square-root edge: dl/dm = 0 where the slopes' density is 1e-9."""
    variance = 1.0 / fs.activation(name).moments(q).slope_mean
    law = fs.ChainLaw([fs.Layer(name, q=q, weight_variance=variance, weights="orthogonal",
                                repeat=depth)])
    assert law._core.mass_error() < 1e-10
    for k in range(4):
        integral = expect(law._core, lambda log_lam, _, k=k: np.exp(k * log_lam))
        assert integral == pytest.approx(law.moment(k), rel=1e-10, abs=0)
    x = law.icdf([1e-6, 0.1, 0.5, 0.9, 0.9999, 1.0 - 1e-7])
    np.testing.assert_allclose(law.pdf(x), law.pdf(x, method="walk"), rtol=1e-10)


# ---- laws too narrow for doubles ----------------------------------------------------------------


def test_layers_without_spread_are_numbers():
    """q from 2e-4 to 1e-73: the first layer is all of the law but for 1e-7."""
    net = fs.FeedForward(20, "tanh", "orthogonal", sigma_w=0.015625)
    law, first = net.spectrum(), fs.ChainLaw(net.blocks()[:1])
    means = [layer.activation.moments(layer.q).slope_mean * layer.weight_variance
             for layer in net.blocks()]
    assert law.mean() == pytest.approx(np.prod(means), rel=1e-13)
    p = np.array([0.05, 0.3, 0.5, 0.7, 0.95])
    np.testing.assert_allclose(law.icdf(p) / law.mean(), first.icdf(p) / first.mean(), rtol=1e-9)
    assert law.variance() / law.mean() ** 2 == pytest.approx(
        first.variance() / first.mean() ** 2, rel=1e-6)


def test_a_law_narrower_than_a_rounding_is_an_atom():
    law = fs.ChainLaw(orthogonal("tanh", 1e-20, 1e-17, repeat=3))
    assert law.support() == []
    np.testing.assert_allclose(law.atoms, [[1.0, 1.0]], rtol=1e-14)
    one = fs.ChainLaw(orthogonal("tanh", 1e-20))
    np.testing.assert_allclose(one.atoms, [[1.0, 1.0]], rtol=1e-14)


@pytest.mark.parametrize("qs", [(1e-8, 1e-8), (1e-12, 3e-12), (1e-4, 1e-11)])
def test_laws_too_narrow_are_refused_with_the_reason(qs):
    with pytest.raises(fs.ConvergenceError, match="too narrow"):
        fs.ChainLaw(orthogonal("tanh", *qs))


@pytest.mark.parametrize("depth", [2, 3])
def test_a_cluster_that_is_no_atom_is_refused(depth):
    """phi' = 1 to rounding where abs(h) > 19, most h at these variances."""
    with pytest.raises(fs.ConvergenceError, match="without being an atom"):
        fs.FeedForward(depth, HUMP, "orthogonal", sigma_w=16.0).spectrum()


def test_atoms_are_not_taken_for_clusters():
    """phi' = 1 for h > 0 exactly, and beside it down to 0: the atom's mass does not count."""
    elu = fs.ChainLaw([fs.Layer("elu", q=1.0, mean=1.5, weight_variance=1.0,
                                weights="orthogonal")])._blocks
    slopes = elu[0][0][0][0]
    assert slopes.cluster >= slopes.atom > 0.9
    layers, skip, _, given = elu[0]
    assert fs.chains._nearly_atom([(layers, skip, 2.0, given)]) < 1e-6
    sharp = fs.ChainLaw(orthogonal(HUMP, 256.0))._blocks[0]
    assert sharp[0][0][0].atom == 0.0 and sharp[0][0][0].cluster > 0.5
    assert fs.chains._nearly_atom([sharp]) > 0.5


def test_a_law_that_failed_has_a_repr():
    failed = fs.ChainLaw.__new__(fs.ChainLaw)
    with pytest.raises(fs.ConvergenceError):
        failed.__init__(orthogonal("tanh", 1e-8, repeat=2))
    assert repr(failed) == "ChainLaw()"


def test_mass_that_cannot_be_resolved_is_named():
    """erf slopes at large q: a part of the law lies below 1e-200."""
    layer = fs.Layer("erf", q=20.0, weight_variance=6.0, weights="orthogonal", repeat=3)
    with pytest.warns(fs.ConvergenceWarning, match="log lambda"):
        law = fs.ChainLaw([layer])
    share = law._core.unresolved()
    assert 1e-4 < share < 0.5
    with pytest.warns(fs.ConvergenceWarning):
        assert np.isnan(law.log_eigenvalues().icdf(0.5 * share))
        assert np.isnan(law.log_eigenvalues().cdf(-1e4))
    assert law.cdf(0.0) == 0.0 and law.cdf(1e4) == 1.0
    assert law.log_eigenvalues().icdf(2 * share + 1e-3) > -1e4


# ---- simulation ---------------------------------------------------------------------------------


def free_blocks(seed):
    """Blocks of a random chain, as the record format has them."""
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(rng.integers(1, 4)):
        residual = bool(rng.random() < 0.6)
        layer = {"activation": str(rng.choice(["relu", "tanh", "hard_tanh", "leaky:0.25", "linear",
                                               "gelu"])),
                 "q": str(round(float(rng.uniform(0.2, 3.0)), 3)), "mean": "0.0",
                 "weight_variance": str(round(float(rng.uniform(0.2, 1.5)), 3)),
                 "weights": str(rng.choice(["gaussian", "orthogonal"]))}
        blocks.append({"layers": [layer], "skip": "1.0" if residual else "0.0",
                       "repeat": int(rng.integers(1, 3))})
    return blocks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_simulation_of_the_free_model(seed):
    blocks = free_blocks(seed)
    law = solve_record({"blocks": blocks})
    drawn = np.sort(sample_eigenvalues(blocks, 1000, seed))
    # atoms are drawn at their place up to rounding
    for place, _ in law.atoms:
        drawn[np.abs(drawn - place) < 1e-9 * max(place, 1.0)] = place
    ranks = np.arange(drawn.size + 1) / drawn.size
    at, left = law.cdf(drawn), law.cdf(np.nextafter(drawn, -np.inf))
    assert max(np.max(at - ranks[:-1]), np.max(ranks[1:] - at)) < 0.005 + np.max(at - left)


@pytest.mark.slow
def test_blocks_in_a_row_are_free_only_with_a_rotation_between():
    """Slopes 1 with probability 1/5, two blocks: in the network itself both D act in one basis, so
    more directions pass unchanged than in the free model, whose law this is."""
    layer = {"activation": "relu", "q": "1.0", "mean": "-0.8416212335729143",
             "weight_variance": "0.5", "weights": "gaussian"}
    blocks = [{"layers": [layer], "skip": "1.0", "repeat": 2}]
    law = solve_record({"blocks": blocks})
    free = law.cdf(1.05) - law.cdf(0.95)
    assert free == pytest.approx(0.2224, abs=2e-4)
    width, rng = 1000, np.random.default_rng(1)
    rotated = sample_eigenvalues(blocks, width, 1)
    assert np.mean(np.abs(rotated - 1.0) < 0.05) == pytest.approx(free, abs=0.006)
    jacobian = np.eye(width)
    for _ in range(2):
        slopes = rng.permutation(np.arange(width) < width // 5).astype(float)
        weights = rng.normal(size=(width, width)) * np.sqrt(0.5 / width)
        jacobian = jacobian + slopes[:, np.newaxis] * (weights @ jacobian)
    network = np.linalg.svd(jacobian, compute_uv=False) ** 2
    assert np.mean(np.abs(network - 1.0) < 0.05) == pytest.approx(0.2806, abs=0.012)
