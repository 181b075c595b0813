"""The twin that enumerates slope patterns, held against its own equations, closed formulas, the
free law where blocks are free, random matrices, and the table made with it."""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
import shared_basis_twin as twin
from free_model import haar
from shared_basis_twin import Site, bernoulli

import fastspec as fs
from fastspec.simulate import jacobian_singular_values

TABLE = json.loads(
    (Path(__file__).parent / "reference" / "shared_basis.json").read_text(encoding="ascii"))

UNEQUAL = (Site(1.0, 0.3, "gaussian", (0.0, 1.0), (0.5, 0.5)),
           Site(0.8, 0.5, "orthogonal", (0.04, 1.0), (0.4, 0.6)),
           Site(1.2, 0.2, "gaussian", (0.0, 0.25, 1.0), (0.3, 0.3, 0.4)))
TWO_LAYERS = (Site(1.0, 0.8, "gaussian", (0.0, 1.0), (0.8, 0.2), (0.5,)),
              Site(0.9, 1.1, "orthogonal", (0.04, 1.0), (0.4, 0.6), (0.3,)))
PLAIN_FIRST = (Site(0.0, 1.3, "orthogonal", (0.0, 0.25, 1.0), (0.2, 0.3, 0.5)), *UNEQUAL[:2])


def relu_blocks(depth, theta, weights="gaussian"):
    layer = fs.Layer("relu", q=1.0, weight_variance=2 * theta / depth, weights=weights)
    return [fs.Residual(layer, repeat=depth)]


def relu_sites(depth, theta, weights="gaussian"):
    return bernoulli(0.5, depth, 2 * theta / depth, weights)


# ---- the equations -----------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [UNEQUAL, PLAIN_FIRST, TWO_LAYERS])
def test_jacobian_is_the_derivative_of_the_equations(sites):
    z = 1.1 + 0.7j
    x, chain = twin.solve(sites, z), twin.numbers(sites)
    numeric = np.empty((x.size, x.size), complex)
    for j in range(x.size):
        step = np.zeros(x.size)
        step[j] = 1e-6 * abs(x[j])
        up, down = (twin.equations(chain, z, y[1::2], y[::2]) for y in (x + step, x - step))
        numeric[:, j] = (up - down) / (2 * step[j])
    np.testing.assert_allclose(twin.jacobian(sites, z, x), numeric, rtol=0, atol=1e-8)


@pytest.mark.parametrize("sites", [UNEQUAL, PLAIN_FIRST, TWO_LAYERS])
def test_averages_are_those_of_the_inverse_of_the_chain(sites):
    z = 1.1 + 0.7j
    x = twin.solve(sites, z)
    gin, gout = twin.averages(twin.numbers(sites), z, x[1::2], x[::2])
    found = np.zeros((2, len(sites)), complex)
    for pattern in np.ndindex(*[len(site.values) for site in sites]):
        d = [site.values[i] for site, i in zip(sites, pattern, strict=True)]
        mass = math.prod(site.masses[i] for site, i in zip(sites, pattern, strict=True))
        g = np.linalg.inv(chain_matrix(sites, d, z, x)).diagonal()
        found += mass * np.array([g[::2], np.array(d) * g[1::2]])
    np.testing.assert_allclose(found, [gin, gout], rtol=1e-12)


def chain_matrix(sites, d, z, x):
    """C of one pattern: y_0, w_1, y_1, .., w_L."""
    matrix = np.diag(-x)
    matrix[1::2, 1::2] *= np.array(d)
    matrix[0, 0] += 1
    matrix[-1, -1] += z
    beside = np.ones(x.size - 1)
    beside[::2] = [-site.skip for site in sites]
    return matrix + np.diag(beside, 1) + np.diag(beside, -1)


@pytest.mark.parametrize("sites", [UNEQUAL, PLAIN_FIRST, TWO_LAYERS, bernoulli(0.2, 3, 0.3)])
@pytest.mark.parametrize("z", [0.7 + 0.01j, 2.0 + 1.0j, 1.0 + 1e-3j])
def test_potential_has_the_derivative_g(sites, z):
    chain, h = twin.numbers(sites), 1e-5 * z.imag
    values = []
    for point in (z + h, z - h, z + 1j * h, z - 1j * h):
        x = twin.solve(sites, point)
        values.append(twin.potential(chain, point, x[1::2], x[::2]))
    g = twin.green(sites, z)
    tolerance = 1e-13 / h + 1e-8 * abs(g)
    assert abs((values[0] - values[1]) / (2 * h) - g) < tolerance
    assert abs((values[2] - values[3]) / (2j * h) - g) < tolerance


@pytest.mark.parametrize("sites", [UNEQUAL, PLAIN_FIRST, TWO_LAYERS])
def test_potential_is_a_logarithm_far_away(sites):
    z = 1e7 * (1 + 1j)
    x = twin.solve(sites, z)
    mean = math.prod(site.growth() for site in sites)
    value = twin.potential(twin.numbers(sites), z, x[1::2], x[::2])
    assert abs(value - np.log(z) + mean / z) < 1e-13


# ---- closed results ----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_one_block_is_the_free_law(weights):
    """Nothing is shared with one block: Ling & Qiu 2018, theorem 1, by the closed solver."""
    law = fs.ChainLaw(relu_blocks(1, 0.3, weights))
    sites = relu_sites(1, 0.3, weights)
    lam = np.array([0.25, 0.6, 0.97, 1.3, 2.4])
    np.testing.assert_allclose([twin.density(sites, v) for v in lam], law.pdf(lam), rtol=1e-9)
    np.testing.assert_allclose([twin.cdf(sites, v) for v in lam], law.cdf(lam), atol=3e-10)


def fourth_moment_difference(sites):
    """2 M^4 sum_{i<j} (s_i s_j)^2 V_i V_j / (k_i k_j)^2 prod_{n=i+1..j} (a_n^2 / k_n)^2."""
    growth = [site.growth() for site in sites]
    spread = [site.variance**2 * (sum(p * d * d for d, p in zip(site.values, site.masses,
                                                                strict=True)) - site.mean()**2)
              for site in sites]
    total = 0.0
    for i in range(len(sites)):
        for j in range(i + 1, len(sites)):
            between = math.prod(sites[n].skip**2 / growth[n] for n in range(i + 1, j + 1))
            total += spread[i] * spread[j] * (between / (growth[i] * growth[j]))**2
    return 2 * math.prod(growth)**4 * total


def free_blocks():
    """Residual blocks of UNEQUAL with the Gaussian tails that give the masses of the slopes."""
    below = [-0.524400512708041, 0.2533471031357997]      # masses .3, .3, .4

    def phi(h):
        h = np.asarray(h, dtype=float)
        return 0.5 * (np.maximum(h - below[0], 0) + np.maximum(h - below[1], 0))

    def derivative(h):
        return np.array([0.0, 0.5, 1.0])[np.searchsorted(below, h)]

    steps = fs.activation(phi, derivative=derivative, kinks=tuple(below))
    leaky = fs.activation("leaky_relu", slope=0.2)
    return [fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.3)),
            fs.Residual(fs.Layer(leaky, q=1.0, mean=0.2533471031357997, weight_variance=0.5,
                                 weights="orthogonal"), skip=0.8),
            fs.Residual(fs.Layer(steps, q=1.0, weight_variance=0.2), skip=1.2)]


def test_moments_one_to_three_are_free_and_the_fourth_differs_by_the_closed_formula():
    found = twin.moments(UNEQUAL, 4, 25.0, 200)
    free = np.array([fs.ChainLaw(free_blocks()).moment(k) for k in range(1, 5)])
    np.testing.assert_allclose(found[:3], free[:3], rtol=1e-10)
    assert found[3] - free[3] == pytest.approx(fourth_moment_difference(UNEQUAL), rel=1e-6)


# (p, L, variance, weights), mass within 5 % of 1, atom: derivation and simulation, shared basis
KNOWN_MASSES = [((0.2, 2, 0.5, "gaussian"), 0.28064, 0.28),
                ((0.2, 2, 0.5, "orthogonal"), 0.28, 0.28),
                ((0.1, 3, 0.4, "gaussian"), 0.458, 0.458),
                ((0.2, 3, 0.3, "gaussian"), 0.1386, 0.024),
                ((0.5, 2, 0.5, "gaussian"), 0.0409, 0), ((0.5, 3, 1.0, "orthogonal"), 0.0183, 0)]


@pytest.mark.parametrize("chain, within, atom", KNOWN_MASSES)
def test_mass_near_one(chain, within, atom):
    sites = bernoulli(*chain)
    assert twin.mass_within(sites, 0.95, 1.05) == pytest.approx(within, abs=5e-5)
    assert twin.atom(sites) == pytest.approx(atom, abs=1e-14)


@pytest.mark.parametrize("chain", [(0.2, 2, 0.5, "gaussian"), (0.2, 3, 0.3, "orthogonal"),
                                   (0.1, 3, 0.4, "gaussian")])
def test_the_atom_is_the_residue_at_one(chain):
    sites = bernoulli(*chain)
    eps = 1e-5
    residue = -eps * twin.green(sites, 1 + 1j * eps).imag
    assert residue == pytest.approx(twin.atom(sites), abs=3e-5)


def test_mass_by_the_arc_integral_of_g():
    """(1/pi) Im of the integral of G over the half circle on [.5, 3] is the mass within."""
    sites = relu_sites(3, 0.5)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    angle = 0.5 * math.pi * (nodes + 1)
    z = 1.75 + 1.25 * np.exp(1j * angle)
    g = np.array([twin.green(sites, point) for point in z])
    mass = float(0.5 * math.pi * weights @ (1.25 * np.exp(1j * angle) * g).real) / math.pi
    assert twin.mass_within(sites, 0.5, 3.0) == pytest.approx(mass, abs=1e-9)


# L, theta, weights: edges over the free ones - 1, condition number of J
KNOWN_EDGES = [(2, 0.1, "gaussian", -1.1e-3, 1.4e-3, 2.6883),
               (2, 0.5, "gaussian", -0.9e-3, 2.3e-3, 10.749),
               (2, 1.0, "gaussian", -0.2e-3, 2.3e-3, 43.836),
               (5, 0.1, "gaussian", -7.5e-4, 8.4e-4, 2.5647),
               (2, 1.0, "orthogonal", -1.1e-3, 6.9e-3, None)]


@pytest.mark.parametrize("depth, theta, weights, lower, upper, condition", KNOWN_EDGES)
def test_edges_of_relu_nets(depth, theta, weights, lower, upper, condition):
    ((low, high),) = fs.ChainLaw(relu_blocks(depth, theta, weights)).support()
    sites = relu_sites(depth, theta, weights)
    shared = [float(twin.edge(sites, *end)) for end in (("lower", low), ("upper", high))]
    assert shared[0] / low - 1 == pytest.approx(lower, abs=6e-5)
    assert shared[1] / high - 1 == pytest.approx(upper, abs=6e-5)
    if condition:
        assert f"{math.sqrt(shared[1] / shared[0]):.5g}" == f"{condition:.5g}"


def test_edges_are_where_the_density_ends():
    sites = bernoulli(0.2, 2, 0.5)
    for side, guess, sign in (("lower", 0.16, 1), ("upper", 0.94, -1), ("lower", 1.09, 1),
                              ("upper", 4.3, -1)):
        end = float(twin.edge(sites, side, guess))
        at = [twin.density(sites, end * (1 + sign * d)) for d in (4e-6, 1e-6, -1e-6)]
        assert at[0] / at[1] == pytest.approx(2, rel=1e-2)   # square root
        assert abs(at[2]) < 1e-14


# ---- random matrices ---------------------------------------------------------------------------


def weights(site, width, rng):
    if site.weights == "orthogonal":
        return haar(width, rng)
    return rng.standard_normal((width, width)) / math.sqrt(width)


def eigenvalues(sites, width, rng):
    """J J^T of a draw whose slope patterns have their masses, up to rounding of counts."""
    patterns = np.array(list(np.ndindex(*[len(site.values) for site in sites])))
    masses = [math.prod(float(site.masses[i]) for site, i in zip(sites, p, strict=True))
              for p in patterns]
    ends = np.round(width * np.cumsum([0.0, *masses])).astype(int)
    rows = rng.permutation(np.repeat(np.arange(len(patterns)), np.diff(ends)))
    product = np.eye(width)
    for site, place in zip(sites, patterns[rows].T, strict=True):
        w = weights(site, width, rng)
        for p in site.inner:
            active = rng.permutation(np.arange(width) < round(p * width))
            w = weights(site, width, rng) @ (active[:, None] * w)
        d = np.sqrt(site.variance * np.array([float(v) for v in site.values])[place])
        product = site.skip * product + d[:, None] * (w @ product)
    return np.sort(np.linalg.svd(product, compute_uv=False)**2)


MONTE_CARLO = [bernoulli(0.2, 2, 0.5), bernoulli(0.2, 2, 0.5, "orthogonal"), bernoulli(0.1, 3, 0.4),
               bernoulli(0.2, 3, 0.3), UNEQUAL, PLAIN_FIRST, TWO_LAYERS]


@pytest.mark.parametrize("sites", MONTE_CARLO)
def test_distribution_of_random_matrices(sites):
    """Within 2.5/N (eigenvalues repel); free laws miss the first four by .0024 to .07 at .95."""
    width, draws = 500, 4
    rng = np.random.default_rng(20)
    found = np.concatenate([eigenvalues(sites, width, rng) for _ in range(draws)])
    lam = np.geomspace(max(0.01, np.quantile(found, 0.03)), np.quantile(found, 0.97), 9)
    lam = np.append(lam[abs(lam - 1) > 0.05], [0.95, 1.05])
    measured = np.array([(found <= v).mean() for v in lam])
    np.testing.assert_allclose([twin.cdf(sites, v) for v in lam], measured, atol=2.5 / width)


def test_atom_of_random_matrices_is_exact():
    found = eigenvalues(bernoulli(0.2, 2, 0.5), 500, np.random.default_rng(3))
    assert (abs(found - 1) < 1e-8).sum() == 140


def test_real_networks_have_the_shared_law():
    """Hard-tanh nets as they are, without any rotation: the mass that slopes of 0 leave near 1.

    The number of coordinates inactive in both layers spreads by 1/sqrt(N): 40 nets of width 300
    know the mass to .009; free blocks would have .06 less.
    """
    net = fs.ResNet(2, "hard_tanh", sigma_w=math.sqrt(0.5), depth_scaled=False,
                    input_second_moment=31.0)
    q = [0.5 * 31.0, 0.5 * (31.0 + net.activation.moments(0.5 * 31.0).second_moment)]
    sites = twin.sites_of([{"layers": [{"activation": "hard_tanh", "q": v, "weight_variance": 0.5,
                                        "weights": "gaussian"}], "skip": 1.0, "repeat": 1}
                           for v in q])
    measured = np.mean([abs(jacobian_singular_values(net, 300, seed=seed)**2 - 1) < 0.05
                        for seed in range(40)])
    assert twin.mass_within(sites, 0.95, 1.05) == pytest.approx(measured, abs=0.03)


# ---- the table ---------------------------------------------------------------------------------


def sized(record):
    return math.prod(len(site.values) for site in twin.sites_of(record["blocks"]))


RECORDS = [pytest.param(record, id=record["name"],
                        marks=[pytest.mark.slow] if sized(record) > 40 else [])
           for record in TABLE]


@pytest.mark.parametrize("record", RECORDS)
def test_table_is_a_distribution(record):
    points = np.array([[float(v) for v in row] for row in record["points"]])
    lam, density, n = points.T
    m = np.array([complex(float(re), float(im)) for re, im in record["m"]])
    assert (np.diff(lam) > 0).all() and (np.diff(n) >= 0).all()
    assert (density >= 0).all() and (m.imag <= 0).all()
    assert n[-1] == 1 and density[-1] == 0 and n[0] >= 0
    np.testing.assert_allclose(density, -m.imag / lam / math.pi, rtol=1e-14)
    for place, mass in record["atoms"]:
        below, above = lam < float(place), lam > float(place)
        jump = n[above].min() - n[below].max()
        assert float(mass) <= jump + 1e-15


@pytest.mark.parametrize("record", RECORDS)
def test_twin_gives_the_table(record):
    """In doubles; close to edges rounding costs the root of the distance."""
    sites = twin.sites_of(record["blocks"])
    ends = np.array([float(end) for end in record["edges"]])
    for (lam, density, n), (re, im) in list(zip(record["points"], record["m"], strict=True))[1::3]:
        lam = float(lam)
        near = np.abs(lam / ends - 1).min()
        m = twin.moment_function(sites, complex(lam, 0))
        exact = complex(float(re), float(im))
        assert abs(m - exact) < 1e-11 * abs(exact) / near
        rho = twin.density(sites, lam)
        assert rho == pytest.approx(float(density), rel=1e-11 / near, abs=1e-12)
        assert twin.cdf(sites, lam) == pytest.approx(float(n), rel=0, abs=1e-10)


@pytest.mark.parametrize("record", RECORDS)
def test_table_row_at_other_digits_and_height(record):
    """One row from scratch at 40 digits, from a start off the axis."""
    sites = twin.sites_of(record["blocks"])
    (lam, density, _), (re, im) = record["points"][len(record["points"]) // 2], record["m"][
        len(record["points"]) // 2]
    with mp.workdps(45):
        z = mp.mpc(float(lam), float(lam) * mp.mpf(10)**-33)
        x, error = twin.polish(sites, z, twin.solve(sites, complex(float(lam), 1e-9)))
        left = twin.equations(twin.numbers(sites, exact=True), z, x[1::2], x[::2])
        m = twin.averages(twin.numbers(sites, exact=True), z, x[1::2], x[::2])[0][0] - 1
        assert error < 1e-30 and max(abs(v) for v in left) < 1e-30
        assert abs(m - mp.mpc(re, im)) < 1e-20 * abs(m)
        assert abs(-m.imag / mp.mpf(float(lam)) / mp.pi - mp.mpf(density)) < 1e-20


def test_table_edges_are_stationary():
    record = next(r for r in TABLE if r["name"] == "p=0.2 gaussian L=3 var=0.3")
    sites = twin.sites_of(record["blocks"])
    for side, text in zip(("upper", "lower"), record["edges"][1:3], strict=True):
        end = float(text)
        found = float(twin.edge_from(sites, side, 0.5 * (end + 1)))
        assert found == pytest.approx(end, rel=1e-14, abs=0)
