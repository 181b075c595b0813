"""Laws of blocks that share coordinates: against the twin that enumerates slope patterns and its
table, closed results, the free law where nothing is shared, and real networks."""

import json
import math
import pickle
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import shared_basis_twin as twin
from scipy.special import erfinv
from test_chains import conditioning, layer_of

import fastspec as fs
from fastspec import _kernels, _sharing
from fastspec._expect import expect
from fastspec.simulate import jacobian_singular_values, ks_distance

LOG_LAMBDA = _kernels.LOG_LAMBDA
RECORDS = json.loads(
    (Path(__file__).parent / "reference" / "shared_basis.json").read_text(encoding="ascii"))
# An orthogonal layer with atoms below sparse blocks: a block's own equations have a branch point at
# real m within a gap of the chain.
REFUSED = "plain orthogonal + p=.1: atom"
TABLE = [record for record in RECORDS if record["name"] != REFUSED]
PROMISED = 1e-10    # of the density, over its conditioning
SHARES = np.array([0.02, 0.3, 0.6, 0.9, 0.99])


def blocks_of(entries):
    """Blocks of the package from those of a record."""
    blocks = []
    for entry in entries:
        layers, skip = [layer_of(layer) for layer in entry["layers"]], float(entry["skip"])
        repeat = int(entry["repeat"])
        blocks += [fs.Residual(*layers, skip=skip, repeat=repeat)] if skip else layers * repeat
    return blocks


def shared(blocks):
    return fs.ChainLaw(blocks, basis="shared")


def layer(activation="relu", variance=0.5, weights="gaussian", **more):
    return fs.Layer(activation, q=more.pop("q", 1.0), weight_variance=variance, weights=weights,
                    **more)


def residual(activation="relu", variance=0.5, weights="gaussian", *, skip=1.0, repeat=1, **more):
    return fs.Residual(layer(activation, variance, weights, **more), skip=skip, repeat=repeat)


def relu(depth, theta, weights="gaussian"):
    return [residual("relu", 2 * theta / depth, weights, repeat=depth)]


def sparse(p, depth, variance, weights="gaussian"):
    """hard_tanh blocks whose slopes are 1 with probability p."""
    return [residual("hard_tanh", variance, weights, q=0.5 / erfinv(p) ** 2, repeat=depth)]


def inside(law, shares=SHARES):
    """Points within the continuous part, at these shares of its mass."""
    mass = law._core.continuous_mass()
    log_law = law.log_eigenvalues()
    grid = log_law.icdf(np.linspace(1e-9, 1.0, 4001)[:-1])
    density = log_law.pdf(grid)
    grid = np.exp(grid[np.isfinite(density) & (density > 1e-8)])
    assert grid.size > 3000 * mass
    return grid[(np.asarray(shares) * grid.size).astype(int)]


def assert_same_law(one, two, tolerance=1e-12):
    x = inside(one)
    np.testing.assert_allclose(two.pdf(x), one.pdf(x), rtol=tolerance)
    np.testing.assert_allclose(two.cdf(x), one.cdf(x), rtol=0, atol=tolerance)
    np.testing.assert_allclose(two.support(), one.support(), rtol=tolerance)
    np.testing.assert_allclose(two.atoms, one.atoms, rtol=tolerance, atol=1e-14)


# ---- the table ---------------------------------------------------------------------------------


MISSES = {"p=0.1 orthogonal L=7 var=0.5": 1e-6}     # mass of pieces too light to be found


@pytest.fixture(scope="module", params=[
    pytest.param(record, id=record["name"],
                 marks=[pytest.mark.slow] if record["name"] in MISSES else [])
    for record in TABLE])
def case(request):
    """A record and its law."""
    record = request.param
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if record["name"] in MISSES else "error",
                              fs.ConvergenceWarning)
        return record, shared(blocks_of(record["blocks"]))


def columns(record):
    """lam, density, N and the density's place in the support."""
    return np.array([[float(v) for v in row] for row in record["points"]]).T


@pytest.mark.parametrize("method", ["table", "newton", "walk"])
def test_density_is_that_of_the_table(case, method):
    record, law = case
    lam, density, _ = columns(record)
    found = law.pdf(lam, method=method)
    gap = density == 0
    assert np.all(found[gap] == 0)
    off = np.abs(found - density)[~gap] / density[~gap]
    assert np.all(off <= PROMISED * conditioning(law, lam[~gap])), off


def test_solutions_are_within_their_bounds(case):
    record, law = case
    lam, density, _ = columns(record)
    solution = law.solve(lam)
    np.testing.assert_array_equal(solution.status, 0)
    in_law = density > 0
    rounding = 1e-15 * density * conditioning(law, lam)
    off = np.abs(solution.density - density)
    assert np.all(off[in_law] <= (solution.error_bound + rounding)[in_law])
    m = np.array([complex(float(re), float(im)) for re, im in record["m"]])
    near = PROMISED * conditioning(law, lam) * np.abs(m)
    assert np.all(np.abs(solution.m - m) <= near)


def test_distribution_function_is_that_of_the_table(case):
    record, law = case
    lam, _, n = columns(record)
    allowed = 1e-11 + 2 * MISSES.get(record["name"], 0.0)
    np.testing.assert_allclose(law.cdf(lam), n, rtol=0, atol=allowed)
    assert law._core.mass_error() < MISSES.get(record["name"], 1e-10)


def test_atoms_and_edges_are_those_of_the_table(case):
    record, law = case
    atoms = np.array([[float(v) for v in pair] for pair in record["atoms"]]).reshape(-1, 2)
    assert law.atoms.shape == atoms.shape
    np.testing.assert_allclose(law.atoms, atoms, rtol=1e-13, atol=1e-14)
    ends = np.array(law.support()).ravel()
    allowed = 1e-11 if record["name"] in MISSES else 1e-12
    for edge in map(float, record["edges"]):    # small pieces of the support are not listed
        assert np.min(np.abs(ends / edge - 1.0)) < allowed


# ---- chains of random numbers against the enumeration ------------------------------------------


THREE = {"slopes": ["0.1", "1", "0.7"], "kinks": ["-0.4", "0.9"]}
BUMP = {"slopes": ["0.3", "1.2", "0.3"], "kinks": ["-1", "0.5"]}


def random_entry(activation, rng, weights, skip=None, inner=()):
    one = [{"activation": a, "q": repr(rng.uniform(0.5, 2)), "mean": repr(rng.normal(0, 0.3)),
            "weights": weights, "weight_variance": repr(rng.uniform(0.2, 0.8))}
           for a in (*inner, activation)]
    return {"layers": one, "skip": repr(rng.uniform(0.7, 1.3) if skip is None else skip),
            "repeat": 1}


def random_chains():
    """Unequal variances, skips and ensembles; two and three slopes; no hard edge at 0."""
    rng = np.random.default_rng(6)
    return [
        [random_entry("relu", rng, "gaussian"), random_entry(THREE, rng, "orthogonal"),
         random_entry("leaky:0.3", rng, "gaussian"), random_entry(BUMP, rng, "gaussian")],
        [random_entry(THREE, rng, "gaussian"), random_entry(THREE, rng, "orthogonal"),
         random_entry("hard_tanh", rng, "orthogonal"), random_entry(BUMP, rng, "gaussian"),
         random_entry("relu", rng, "gaussian")],
        [random_entry("leaky:0.5", rng, "orthogonal", 0.0), random_entry("relu", rng, "gaussian"),
         random_entry(BUMP, rng, "orthogonal", inner=["relu"]),
         random_entry(THREE, rng, "gaussian", 1.0)],
    ]


@pytest.fixture(scope="module", params=random_chains(), ids=["four", "five", "plain and branch"])
def random_case(request):
    """Sites of the twin, and the law."""
    return twin.sites_of(request.param), shared(blocks_of(request.param))


def test_random_chains_have_the_enumerated_law(random_case):
    sites, law = random_case
    lam = inside(law)
    np.testing.assert_allclose(law.pdf(lam), [twin.density(sites, v) for v in lam], rtol=1e-10)
    # the twin stands 1e-11 above the axis
    np.testing.assert_allclose(law.cdf(lam), [twin.cdf(sites, v) for v in lam], rtol=0, atol=1e-10)


def test_random_chains_have_the_enumerated_green_function(random_case):
    sites, law = random_case
    z = np.array([0.7 + 0.02j, 1.5 + 1j, 3 + 1e-3j, -1 + 0.1j, 30 + 5j])
    exact = np.array([twin.green(sites, v) for v in z])
    np.testing.assert_allclose(law.green(z), exact, rtol=1e-10)
    np.testing.assert_allclose(law.green(np.conj(z)), np.conj(exact), rtol=1e-10)


def short_chain(rng):
    """Two or three blocks, weak to strong; some above a plain layer."""
    entries = []
    for i in range(rng.integers(2, 4)):
        activation = ["relu", "leaky:0.3", THREE, BUMP, "hard_tanh", "leaky:0.05"][rng.integers(6)]
        plain = i == 0 and rng.random() < 0.25
        entries.append({"repeat": 1, "skip": "0.0" if plain else repr(rng.uniform(0.5, 1.4)),
                        "layers": [{"activation": activation, "q": repr(rng.uniform(0.3, 3)),
                                    "mean": repr(rng.normal(0, 0.6)),
                                    "weights": ["gaussian", "orthogonal"][rng.integers(2)],
                                    "weight_variance": repr(10 ** rng.uniform(-1.5, 0.3))}]})
    return entries


@pytest.mark.slow
def test_short_chains_are_right_or_say_so():
    rng, refused = np.random.default_rng(1), 0
    for _ in range(40):
        entries = short_chain(rng)
        try:
            law = shared(blocks_of(entries))
        except fs.ConvergenceError:
            refused += 1
            continue
        lam = law.icdf(np.array([0.3, 0.5, 0.7, 0.95]))
        lam = lam[law.pdf(lam) > 0]
        sites = twin.sites_of(entries)
        density = np.array([twin.density(sites, v) for v in lam])
        assert np.all(np.abs(law.pdf(lam) / density - 1) <= 1e-9 * conditioning(law, lam))
        np.testing.assert_allclose(law.cdf(lam), [twin.cdf(sites, v) for v in lam], atol=1e-9)
    assert refused <= 4


def test_green_near_an_atom_and_beside_the_law():
    """The atom at 1 is one the free law has less of."""
    sites = twin.bernoulli(0.2, 2, 0.5)
    law = shared(sparse(0.2, 2, 0.5))
    z = np.array([1 + 1e-4j, 1 + 0.01j, 0.97 + 1e-3j, 1.05 + 1e-2j, 6.0 + 0.5j, -0.3 + 1e-5j])
    np.testing.assert_allclose(law.green(z), [twin.green(sites, v) for v in z], rtol=1e-10)


# ---- one node is the free law ------------------------------------------------------------------


def discrete(values, masses):
    return _kernels.discrete_slopes(np.array(values), np.array(masses))


def unequal_kernel_blocks():
    slopes = [discrete([0.0, 1.0], [0.5, 0.5]), discrete([0.04, 1.0], [0.4, 0.6]),
              discrete([0.0, 0.25, 1.0], [0.3, 0.3, 0.4])]
    numbers = [(0.3, False, 1.0), (0.5, True, 0.8), (0.2, False, 1.2)]
    return [([(s, variance, orthogonal, 1.0, 1.0)], skip, 1.0, None)
            for s, (variance, orthogonal, skip) in zip(slopes, numbers, strict=True)]


def equal_kernel_blocks(repeat, variance, orthogonal):
    half = discrete([0.0, 1.0], [0.5, 0.5])
    return [([(half, variance, orthogonal, 1.0, 1.0)], 1.0, float(repeat), None)]


@pytest.mark.parametrize("blocks, sites, slope_nodes", [
    (unequal_kernel_blocks(), [0, 1, 2], 3), (equal_kernel_blocks(4, 0.3, False), [0] * 4, 2),
    (equal_kernel_blocks(4, 0.3, True), [0] * 4, 2)])
def test_one_node_is_the_free_law(blocks, sites, slope_nodes):
    """As the rule of one node keeps the mean of what the free equations average."""
    free = _kernels.chain(blocks, 0.0)
    one = _kernels.chain(blocks, 0.0, [(sites, slope_nodes, 1)])
    x = free.quantile(SHARES, LOG_LAMBDA)[0]
    density, same = np.empty_like(x), np.empty_like(x)
    free.density(x, LOG_LAMBDA, density)
    one.density(x, LOG_LAMBDA, same)
    np.testing.assert_allclose(same, density, rtol=1e-12)
    np.testing.assert_allclose(one.cdf(x, LOG_LAMBDA)[0], SHARES, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.intervals(LOG_LAMBDA), free.intervals(LOG_LAMBDA), atol=1e-12)


# ---- closed results ----------------------------------------------------------------------------


def test_mass_near_one_of_sparse_slopes():
    """Simulation at width 1500: .28056(19); the free law has .2224."""
    law = shared(sparse(0.2, 2, 0.5))
    assert law.cdf(1.05) - law.cdf(0.95) == pytest.approx(0.28064, abs=5e-6)
    np.testing.assert_allclose(law.atoms, [[1.0, 0.28]], rtol=1e-14)


# L, theta: edges over the free ones - 1 and condition numbers of J, free and shared
EDGES = [
    (2, 0.1, -1.1e-3, 1.4e-3, "2.6848", "2.6883"),
    (2, 0.5, -9.0e-4, 2.3e-3, "10.732", "10.749"),
    (2, 1.0, -2.0e-4, 2.3e-3, "43.779", "43.836"),
    (5, 0.1, -7.5e-4, 8.4e-4, "2.5627", "2.5647"),
    (5, 0.5, -1.0e-3, 1.5e-3, "8.9229", "8.9342"),
    (5, 1.0, -8.0e-4, 1.6e-3, "25.855", "25.886"),
    (10, 0.5, -5.0e-4, 6.1e-4, "8.4541", "8.4588"),
    (10, 1.0, -4.9e-4, 6.9e-4, "23.139", "23.152"),
    (50, 0.5, -3.5e-5, 3.7e-5, "8.09733", "8.09762")]


@pytest.mark.parametrize("depth, theta, lower, upper, of_free, of_shared", EDGES)
def test_edges_and_condition_numbers_of_relu_nets(depth, theta, lower, upper, of_free, of_shared):
    law, free = shared(relu(depth, theta)), fs.ChainLaw(relu(depth, theta))
    ((low, high),), ((free_low, free_high),) = law.support(), free.support()
    digit = 0.06 * 10.0 ** math.floor(math.log10(upper))
    assert low / free_low - 1 == pytest.approx(lower, abs=digit)
    assert high / free_high - 1 == pytest.approx(upper, abs=digit)
    digits = len(of_shared) - 1
    assert f"{free.condition_number():.{digits}g}" == of_free
    assert f"{law.condition_number():.{digits}g}" == of_shared


def test_upper_edge_of_two_relu_blocks():
    assert shared(relu(2, 0.5)).support()[0][1] == pytest.approx(6.55229, abs=5e-6)


# ---- the rule that is enough -------------------------------------------------------------------


def log_density(core, log_lam):
    density = np.empty_like(log_lam)
    assert core.density(log_lam, LOG_LAMBDA, density) == 0
    return np.log(density)


def test_deep_chains_take_the_closed_correction():
    """... of log z, within its own error of rules with nodes, of which two and three agree."""
    law = shared(relu(200, 0.5))
    ((sites, _, nodes),) = law._runs
    assert nodes == 0
    assert 0.0 < law.sharing_error < 1e-9
    m = law._core.states(20)
    closed, two, three = (_kernels.sharing(law._blocks, [(sites, 2, nodes)], m)[0][:, 0]
                          for nodes in (0, 2, 3))
    assert np.max(np.abs(two - three)) < 1e-10
    error = np.max(np.abs(closed - three))
    assert 1e-3 * law.sharing_error < error < law.sharing_error
    assert np.max(np.abs(three)) > 1000 * error


@pytest.mark.slow
def test_closed_correction_gives_the_law_of_nodes():
    law, free = shared(relu(200, 0.5)), fs.ChainLaw(relu(200, 0.5))
    exact = _kernels.chain(law._blocks, 0.0, [(law._runs[0][0], 2, 2)])
    x = exact.quantile(np.linspace(0.001, 0.999, 101), LOG_LAMBDA)[0]
    assert_near(law._core, exact, x, law.sharing_error)
    gap = np.array(exact.intervals(LOG_LAMBDA)) - law._core.intervals(LOG_LAMBDA)
    assert np.max(np.abs(gap)) < law.sharing_error
    ks = np.max(np.abs(exact.cdf(x, LOG_LAMBDA)[0] - free._core.cdf(x, LOG_LAMBDA)[0]))
    assert ks == pytest.approx(free.shared_basis_estimate().ks, rel=1e-2)


def assert_near(core, exact, log_lam, error):
    """Densities are as far apart as an error of log lambda makes them."""
    up, down = (log_density(exact, log_lam + step) for step in (1e-5, -1e-5))
    slope = np.maximum(1.0, np.abs(up - down) / 2e-5)
    off = np.abs(log_density(core, log_lam) - log_density(exact, log_lam))
    assert np.all(off < error * slope)


def test_error_of_the_rule_is_in_the_bounds():
    law = shared(relu(200, 0.5))
    x = inside(law)
    solution = law.solve(x)
    assert np.all(solution.error_bound > 0.1 * law.sharing_error * solution.density)
    assert np.all(solution.error_bound < 1e3 * law.sharing_error * solution.density)
    assert fs.ChainLaw(relu(200, 0.5)).sharing_error == 0.0


def test_longest_rule_is_not_taken_for_exact(monkeypatch):
    """Where no longer rule is left, and not all patterns are taken one by one."""
    exact = shared(relu(8, 1.0))
    monkeypatch.setattr(_sharing, "_NODES", (2, 3))
    with pytest.warns(fs.ConvergenceWarning, match="log z of the law with shared coordinates"):
        law = shared(relu(8, 1.0))
    x = inside(exact)
    off = np.abs(law.pdf(x) / exact.pdf(x) - 1) / conditioning(exact, x)
    assert 1e-10 < np.max(off) < law.sharing_error < 1e-4
    assert np.all(np.abs(law.pdf(x) - exact.pdf(x)) <= law.solve(x).error_bound)


def test_rules_that_are_too_short_are_refused(monkeypatch):
    """One node is the free law, which two are 1e-3 from."""
    monkeypatch.setattr(_sharing, "_NODES", (1, 2))
    with pytest.raises(fs.ConvergenceError, match="share coordinates could not be resolved"):
        shared(relu(8, 1.0))


def test_rules_are_no_longer_than_two_need_to_agree():
    """ReLU, L = 10: nodes of the first rule whose D is that of the next at the free law's m."""
    law = shared(relu(10, 0.5))
    ((sites, slope_nodes, nodes),) = law._runs
    m = _kernels.chain(law._blocks, 0.0).states(12)
    d = {n: _kernels.sharing(law._blocks, [(sites, slope_nodes, n)], m)[0][:, 0]
         for n in (2, 3, 4, 5, 6, 8, 10, 12)}
    agree = [np.max(np.abs(d[n] - d[after])) < 1e-12 for n, after in pairwise(d)]
    assert nodes == list(d)[agree.index(True)] < 12


def test_few_patterns_are_taken_one_by_one():
    """Two slopes: 2^(L-1) nodes hold all patterns of the others, so nothing is left out."""
    law = shared(sparse(0.1, 4, 0.5))
    assert law._runs == [([0] * 4, 2, 8)]
    assert law.sharing_error == 0.0


def test_a_chain_that_cannot_be_followed_is_refused():
    (record,) = (record for record in RECORDS if record["name"] == REFUSED)
    with pytest.raises(fs.ConvergenceError, match="masses|log z"):
        shared(blocks_of(record["blocks"]))


@pytest.mark.parametrize("name", ["gelu", "tanh"])
@pytest.mark.parametrize("depth", [2, 4])
def test_rules_of_smooth_slopes_agree(name, depth):
    law = shared([residual(name, 1.0 / depth, repeat=depth)])
    ((sites, _, _),) = law._runs
    assert law.sharing_error < 1e-8
    finer, coarse = (_kernels.chain(law._blocks, 0.0, [(sites, *rule)])
                     for rule in ((16, 6), (6, 2)))
    x = finer.quantile(SHARES, LOG_LAMBDA)[0]
    values = log_density(finer, x)
    np.testing.assert_allclose(log_density(law._core, x), values, rtol=0, atol=3e-8)
    np.testing.assert_allclose(log_density(coarse, x), values, rtol=0, atol=1e-3)
    free = log_density(fs.ChainLaw(law._parameters["blocks"])._core, x)
    assert np.max(np.abs(free - values)) > 1e-3


# ---- where nothing is shared -------------------------------------------------------------------


LINEAR = fs.Layer("linear", q=1.0, weight_variance=0.4)
UNSHARED = {
    "plain": [layer("relu", 1.2, "orthogonal", repeat=3), layer("tanh", 1.1)],
    "one residual block": [residual("relu", 0.4)],
    "linear residual blocks": [fs.Residual(LINEAR, repeat=3)],
    "constant slopes": [residual("tanh", 0.4, q=1e-18, repeat=3)],
    "branches whose outer layer is linear": [fs.Residual(layer("relu", 1.0), LINEAR, repeat=3)],
    "linear layers between": [residual("relu", 0.4), layer("linear", 1.3, "orthogonal"),
                              residual("leaky_relu", 0.3, skip=0.8)],
    "below plain layers": [residual("relu", 0.4), layer("leaky_relu", 1.2, "orthogonal")],
}


@pytest.mark.parametrize("blocks", UNSHARED.values(), ids=UNSHARED)
def test_free_where_nothing_is_shared(blocks):
    law = shared(blocks)
    assert law.sharing_error == 0.0
    assert_same_law(fs.ChainLaw(blocks), law)


# ---- stretches ---------------------------------------------------------------------------------


FIRST = [residual("relu", 0.4), residual("leaky_relu", 0.5, "orthogonal", skip=0.8)]
SECOND = [residual("relu", 0.7, "orthogonal", skip=1.1, repeat=2)]
ROTATION = layer("linear", 1.0, "orthogonal")


@pytest.mark.parametrize("rotation", [ROTATION, layer("tanh", 1.0, "orthogonal", q=1e-18)],
                         ids=["linear", "constant slopes"])
def test_rotation_between_runs_makes_them_free(rotation):
    """A product of two shared laws; not the one chain without the rotation."""
    product = shared(FIRST) @ shared(SECOND)
    assert_same_law(product, shared([*FIRST, rotation, *SECOND]))
    x = inside(product)
    np.testing.assert_allclose((shared(SECOND) @ shared(FIRST)).pdf(x), product.pdf(x), rtol=1e-12)
    for other in (shared([*FIRST, *SECOND]), fs.ChainLaw([*FIRST, *SECOND])):
        assert np.max(np.abs(other.pdf(x) / product.pdf(x) - 1)) > 1e-3


def test_power_of_a_shared_law():
    assert_same_law(shared(FIRST) ** 2, shared([*FIRST, ROTATION, *FIRST]))


def test_products_with_other_laws():
    """Marchenko-Pastur is a Gaussian layer of constant slopes, which cuts too."""
    product = fs.MarchenkoPastur(1.0) @ shared(FIRST) @ fs.ChainLaw([residual("tanh", 0.3)])
    chain = shared([residual("tanh", 0.3), ROTATION, *FIRST, layer("linear", 1.0)])
    x = inside(chain)
    np.testing.assert_allclose(product.pdf(x), chain.pdf(x), rtol=1e-11)
    assert np.max(np.abs((fs.MarchenkoPastur(1.0) @ fs.ChainLaw(FIRST)
                          @ fs.ChainLaw([residual("tanh", 0.3)])).pdf(x) / chain.pdf(x) - 1)) > 1e-4


def test_plain_layer_shares_with_the_blocks_above_it_only():
    """The layer between belongs to the second stretch; the first is as if it stood alone."""
    plain = layer("leaky_relu", 1.3, "orthogonal")
    whole = shared([*FIRST, plain, *SECOND])
    assert_same_law(whole, shared(FIRST) @ shared([plain, *SECOND]))
    x = inside(whole)
    wrong = shared([*FIRST, plain]) @ shared(SECOND)
    assert np.max(np.abs(wrong.pdf(x) / whole.pdf(x) - 1)) > 1e-4


def test_rotation_scales():
    """A linear orthogonal layer of variance s multiplies lambda by s, on either side."""
    law = shared(SECOND)
    x = inside(law)
    for blocks in ([layer("linear", 1.7, "orthogonal"), *SECOND],
                   [*SECOND, layer("linear", 1.7, "orthogonal")]):
        np.testing.assert_allclose(shared(blocks).pdf(1.7 * x), law.pdf(x) / 1.7, rtol=1e-12)


def test_equal_blocks_written_out_are_those_repeated():
    block = residual("relu", 0.4)
    assert_same_law(shared([residual("relu", 0.4, repeat=3)]), shared([block] * 3))


def test_order_matters_to_shared_blocks_only():
    """The middle one of three blocks is what stands between the others' coordinates."""
    blocks = [residual("relu", 0.2), residual("relu", 0.9), residual("leaky_relu", 0.5, skip=0.7)]
    turned = [blocks[1], blocks[0], blocks[2]]
    x = inside(shared(blocks))
    assert np.max(np.abs(shared(turned).pdf(x) / shared(blocks).pdf(x) - 1)) > 1e-6
    np.testing.assert_allclose(fs.ChainLaw(turned).pdf(x), fs.ChainLaw(blocks).pdf(x), rtol=1e-12)


def test_rectangular_stem_below_residual_blocks():
    """Inputs of another width change the plain layer's factor, not what is shared: without slopes
    it is the Marchenko-Pastur law of its shape, free of the blocks."""
    stem = layer("linear", 1.0)
    chain = fs.ChainLaw([stem, *SECOND], input_width=3.0, basis="shared")
    product = fs.MarchenkoPastur(1.0 / 3.0) @ shared(SECOND)
    scale = product.mean() / chain.mean()
    x = inside(chain)
    np.testing.assert_allclose(product.pdf(scale * x) * scale, chain.pdf(x), rtol=1e-11)


# ---- real networks -----------------------------------------------------------------------------


def test_real_networks_have_the_shared_law():
    """Hard-tanh nets as they are, without a rotation; slopes of 0 make an atom at 1."""
    net = fs.ResNet(2, "hard_tanh", sigma_w=math.sqrt(0.5), depth_scaled=False,
                    input_second_moment=31.0)
    found = np.concatenate([jacobian_singular_values(net, 400, seed=seed) for seed in range(8)])
    of_shared, of_free = (ks_distance(found, net.spectrum(basis=basis))
                          for basis in ("shared", "free"))
    assert of_shared < 0.02     # the number of idle coordinates spreads by 1/sqrt(N)
    assert of_free > 0.03
    assert of_free > 2 * of_shared


def test_real_networks_with_smooth_slopes():
    """Too wide for the free law to differ visibly: variances of the layers spread by 1/sqrt(N)."""
    net = fs.ResNet(2, "gelu", sigma_w=1.0)
    found = np.concatenate([jacobian_singular_values(net, 400, seed=seed) for seed in range(4)])
    assert ks_distance(found, net.spectrum(basis="shared")) < 0.01


# ---- the law's methods -------------------------------------------------------------------------


def test_spectrum_of_a_net_is_the_chain_of_its_blocks():
    net = fs.ResNet(3, "relu", sigma_w=1.0)
    assert net.spectrum(basis="shared") == shared(net.blocks())
    assert net.spectrum() == fs.ChainLaw(net.blocks())
    assert net.spectrum(limit=True, basis="shared") == net.spectrum(limit=True)


def test_quantiles_and_other_variables():
    law = shared(relu(3, 0.5))
    p = np.linspace(0.001, 0.999, 101)
    np.testing.assert_allclose(law.cdf(law.icdf(p)), p, rtol=1e-13)
    x = law.icdf(p)
    np.testing.assert_allclose(law.singular_values().pdf(np.sqrt(x)), 2 * np.sqrt(x) * law.pdf(x),
                               rtol=1e-12)
    atom = shared(sparse(0.2, 2, 0.5))
    below = atom.cdf(np.nextafter(1.0, 0.0))
    assert atom.cdf(1.0) - below == pytest.approx(0.28, abs=1e-13)
    np.testing.assert_allclose(atom.icdf(below + np.array([1e-6, 0.1, 0.28 - 1e-6])), 1.0,
                               rtol=1e-15)


@pytest.mark.parametrize("blocks", [relu(3, 0.5), FIRST, [residual("tanh", 0.5, repeat=2)]],
                         ids=["relu", "unequal", "tanh"])
def test_moments_one_to_three_are_free_and_the_fourth_is_the_estimated(blocks):
    law, free = shared(blocks), fs.ChainLaw(blocks)
    for k in (1, 2, 3):
        integral = expect(law._core, lambda log_lam, _, k=k: np.exp(k * log_lam))
        assert integral == pytest.approx(free.moment(k), rel=1e-12, abs=0)
        assert law.moment(k) == pytest.approx(free.moment(k), rel=1e-12, abs=0)
    difference = law.moment(4) - free.moment(4)
    assert difference == pytest.approx(free.shared_basis_estimate().dm4, rel=1e-6, abs=0)
    integral = expect(law._core, lambda log_lam, _: np.exp(4 * log_lam))
    assert law.moment(4) == pytest.approx(integral, rel=1e-12, abs=0)
    assert law.variance() == pytest.approx(free.variance(), rel=1e-12, abs=0)


def test_pickling_equality_and_repr():
    law, free = shared(FIRST), fs.ChainLaw(FIRST)
    again = pickle.loads(pickle.dumps(law))
    assert again == law and hash(again) == hash(law) and law == shared(list(FIRST))
    assert law != free
    assert "basis='shared'" in repr(law)
    x = inside(law)
    np.testing.assert_array_equal(again.pdf(x), law.pdf(x))
    assert again.sharing_error == law.sharing_error
    product = law @ shared(SECOND)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(product)).pdf(x), product.pdf(x))


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["haar", "", None, 1, "Shared"])
def test_unknown_basis(basis):
    with pytest.raises(ValueError, match="basis must be one of free, shared"):
        fs.ChainLaw(FIRST, basis=basis)
    with pytest.raises(ValueError, match="basis must be one of free, shared"):
        fs.ResNet(3, "relu").spectrum(basis=basis)
    with pytest.raises(ValueError, match="basis"):
        fs.ResNet(3, "relu").spectrum(limit=True, basis=basis)


def test_nearest_basis_is_suggested():
    with pytest.raises(ValueError, match="did you mean 'shared'"):
        fs.ResNet(3, "relu").spectrum(basis="share")


@pytest.mark.parametrize("blocks", [[], "relu", [1.0], None, [residual(), "relu"]])
def test_blocks_that_are_none(blocks):
    with pytest.raises(ValueError, match="blocks must be"):
        shared(blocks)


def test_widths_that_do_not_fit():
    with pytest.raises(ValueError, match="width"):
        shared([layer(width=2.0), residual()])
