"""The estimate of what sharing coordinates changes: against solved laws, the enumeration and sums
over pairs."""

import math

import numpy as np
import pytest
import shared_basis_twin as twin
from scipy.special import erfinv

import fastspec as fs
from fastspec.chains import ChainLaw


def residual(activation="relu", variance=0.5, weights="gaussian", *, skip=1.0, repeat=1, **more):
    layer = fs.Layer(activation, q=more.pop("q", 1.0), weight_variance=variance, weights=weights,
                     **more)
    return fs.Residual(layer, skip=skip, repeat=repeat)


def relu(depth, theta, weights="gaussian"):
    return [residual("relu", 2 * theta / depth, weights, repeat=depth)]


def sparse(p, depth, variance, weights="gaussian"):
    """hard_tanh blocks whose slopes are 1 with probability p."""
    return [residual("hard_tanh", variance, weights, q=0.5 / erfinv(p) ** 2, repeat=depth)]


def estimate(blocks):
    return ChainLaw(blocks).shared_basis_estimate()


def distance(one, two, points=400):
    """Of the distribution functions, off the atoms."""
    x = one.icdf(np.linspace(0.001, 0.999, points))
    return np.max(np.abs(one.cdf(x) - two.cdf(x)))


# ---- against solved laws -----------------------------------------------------------------------


# of relu nets; worst relative deviations of the edges and of the distance
WITHIN = {(2, "gaussian"): 0.12, (2, "orthogonal"): 0.12, (3, "gaussian"): 0.04,
          (5, "gaussian"): 0.04, (5, "orthogonal"): 0.04, (10, "gaussian"): 0.01}


@pytest.mark.parametrize("theta", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("depth, weights", WITHIN)
def test_edges_and_distance_of_relu_nets(depth, weights, theta):
    blocks, within = relu(depth, theta, weights), WITHIN[depth, weights]
    free, shared = ChainLaw(blocks), ChainLaw(blocks, basis="shared")
    found = free.shared_basis_estimate()
    ((low, high),), ((low_free, high_free),) = shared.support(), free.support()
    assert found.dlog_lower == pytest.approx(math.log(low / low_free), rel=within)
    assert found.dlog_upper == pytest.approx(math.log(high / high_free), rel=within)
    assert found.ks == pytest.approx(distance(free, shared), rel=within)
    assert found == shared.shared_basis_estimate()


@pytest.mark.parametrize("name, depth, within", [("gelu", 2, 0.12), ("tanh", 2, 0.12),
                                                 ("tanh", 5, 0.03)])
def test_edges_and_distance_of_smooth_slopes(name, depth, within):
    blocks = [residual(name, 0.5 / depth, repeat=depth)]
    free, shared = ChainLaw(blocks), ChainLaw(blocks, basis="shared")
    found = free.shared_basis_estimate()
    (low, high), (low_free, high_free) = shared.support()[0], free.support()[0]
    assert found.dlog_lower == pytest.approx(math.log(low / low_free), rel=within)
    assert found.dlog_upper == pytest.approx(math.log(high / high_free), rel=within)
    assert found.ks == pytest.approx(distance(free, shared), rel=within)


@pytest.mark.parametrize("theta, scaled", [(0.1, 0.0053), (0.5, 0.0067), (1.0, 0.0089)])
def test_limit_of_many_blocks(theta, scaled):
    """d log lambda = +- v^2 h sqrt(theta (2 + theta))/(4 L^2), h = (2 theta - 1 + e^{-2 theta})/
    (4 theta^2), and distances of ``scaled`` v^2/L^2; reached like 1 - O(1/L)."""
    h = (2 * theta - 1 + math.exp(-2 * theta)) / (4 * theta**2)
    leading = h * math.sqrt(theta * (2 + theta)) / 4
    errors = []
    for depth in (200, 400):
        found = estimate(relu(depth, theta))
        errors.append([-found.dlog_lower * depth**2 / leading - 1,
                       found.dlog_upper * depth**2 / leading - 1,
                       found.ks * depth**2 / scaled - 1])
    errors = np.abs(errors)
    assert np.all(errors[0] < 0.05)
    np.testing.assert_allclose(errors[1, :2] / errors[0, :2], 0.5, atol=0.02)
    assert errors[1, 2] < 0.02


# ---- the fourth moment -------------------------------------------------------------------------


def moments_of(sites):
    """2 M^4 sum_{i<j} v_i v_j (kappa_i kappa_j/(k_i k_j))^2 prod_{i<l<=j} (a_l^2/k_l)^2."""
    k = [site.growth() for site in sites]
    kappa = [site.variance * site.mean() for site in sites]
    outer = [[sum(p * d**n for d, p in zip(s.values, s.masses, strict=True)) for n in (1, 2)]
             for s in sites]
    v = [second / mean**2 - 1 for mean, second in outer]
    total = sum(v[i] * v[j] * (kappa[i] * kappa[j] / (k[i] * k[j]))**2
                * math.prod((sites[n].skip**2 / k[n])**2 for n in range(i + 1, j + 1))
                for i in range(len(sites)) for j in range(i + 1, len(sites)))
    return float(2 * math.prod(k)**4 * total)


def entry(activation, variance, weights="gaussian", skip=1.0, inner=(), mean=0.0):
    layers = [{"activation": a, "q": "1.0", "mean": repr(mean), "weights": weights,
               "weight_variance": repr(variance)} for a in (*inner, activation)]
    return {"layers": layers, "skip": repr(skip), "repeat": 1}


UNEQUAL = [entry("relu", 0.3, mean=0.2), entry("leaky:0.2", 0.5, "orthogonal", 0.8),
           entry("hard_tanh", 0.7, "gaussian", 1.2)]
WITH_PLAIN = [entry("leaky:0.5", 1.3, "gaussian", 0.0), *UNEQUAL[:2]]
WITH_BRANCH = [UNEQUAL[0], entry("relu", 0.9, "orthogonal", 0.9, ["relu"]), UNEQUAL[2]]


def blocks_of(entries):
    from test_chains import layer_of

    return [fs.Residual(*layers, skip=float(one["skip"])) if float(one["skip"]) else layers[0]
            for one in entries for layers in [[layer_of(layer) for layer in one["layers"]]]]


@pytest.mark.parametrize("entries", [UNEQUAL, WITH_PLAIN, WITH_BRANCH])
def test_fourth_moment(entries):
    """The sum over pairs, and the enumerated law's moments on a circle around its support."""
    sites = twin.sites_of(entries)
    law = ChainLaw(blocks_of(entries))
    found = law.shared_basis_estimate()
    assert found.dm4 == pytest.approx(moments_of(sites), rel=1e-12, abs=0)
    exact = twin.moments(sites, 4, 3 * law.support()[-1][1], 80)
    assert exact[3] - law.moment(4) == pytest.approx(found.dm4, rel=1e-6, abs=0)


def test_fourth_moment_of_two_stretches():
    """Each adds its own, times the other's mean to the fourth; at this order they are alone."""
    between = fs.Layer("linear", q=1.0, weight_variance=1.7, weights="orthogonal")
    one, two = blocks_of(UNEQUAL), relu(3, 0.5)
    whole = estimate([*one, between, *two])
    mean_one, mean_two = ChainLaw(one).mean(), ChainLaw(two).mean() * 1.7
    expected = (estimate(one).dm4 * mean_two**4
                + estimate(two).dm4 * (1.7 * mean_one)**4)
    assert whole.dm4 == pytest.approx(expected, rel=1e-12, abs=0)


# ---- atoms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("p, depth, exact, free", [
    (0.2, 2, 0.28, 0.2), (0.1, 3, 0.458, 0.4), (0.2, 3, 0.024, 0.0), (0.1, 5, 2 * 0.9**5 - 1, 0.0),
    (0.5, 2, 0.0, 0.0)])
@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_atoms_of_sparse_slopes(p, depth, exact, free, weights):
    """2 prod(1 - p) - 1 and 1 - 2 sum p."""
    found = estimate(sparse(p, depth, 0.4, weights))
    assert found.atom_exact == pytest.approx(exact, abs=1e-14)
    assert found.atom_free == pytest.approx(free, abs=1e-14)
    assert found.ks >= 0.5 * (exact - free)


def test_atoms_above_a_plain_layer():
    """The plain layer's zeros stay at 0, which is not the point mass that is asked for."""
    blocks = [fs.Layer("relu", q=1.0, weight_variance=1.3), *relu(2, 0.3)]
    found = estimate(blocks)
    assert (found.atom_exact, found.atom_free) == (0.0, 0.0)
    assert estimate([fs.Layer("hard_tanh", q=0.5, weight_variance=1.0, weights="orthogonal")]
                    ).atom_exact == pytest.approx(math.erf(1.0), abs=1e-14)


def test_atom_of_a_plain_orthogonal_layer_below_blocks():
    """P(d = delta, idle above) - P(not idle above) = .7 x .9 - .1; one block stays as it is."""
    slope = fs.activation("leaky_relu", slope=0.5)
    first = fs.Layer(slope, q=1.0, mean=0.5244005127080407, weight_variance=1.2,
                     weights="orthogonal")
    above = residual("relu", 0.5, mean=-1.2815515655446004)
    found = estimate([first, above])
    assert found.atom_exact == pytest.approx(0.7 * 0.9 - 0.1, abs=1e-12)
    assert found.atom_free == pytest.approx(0.7 + 0.8 - 1.0, abs=1e-12)


# ---- where there is nothing, or no edge --------------------------------------------------------


UNSHARED = {
    "plain": [fs.Layer("tanh", q=1.0, weight_variance=1.2, repeat=3)],
    "plain orthogonal": [fs.Layer("leaky_relu", q=1.0, weight_variance=1.2, weights="orthogonal",
                                  repeat=3)],
    "one residual block": [residual("gelu", 0.4)],
    "linear": [residual("linear", 0.3, repeat=4)],
}


@pytest.mark.parametrize("blocks", UNSHARED.values(), ids=UNSHARED)
def test_zero_where_nothing_is_shared(blocks):
    found = estimate(blocks)
    assert (found.ks, found.dlog_lower, found.dlog_upper, found.dm4) == (0.0, 0.0, 0.0, 0.0)
    assert found.atom_exact == found.atom_free


def test_outer_layers_without_slopes_change_nothing():
    branch = fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.8),
                         fs.Layer("linear", q=1.0, weight_variance=0.5), repeat=3)
    found = estimate([branch])
    np.testing.assert_allclose([found.ks, found.dlog_lower, found.dlog_upper, found.dm4], 0.0,
                               atol=1e-15)


def test_no_edge_at_a_law_that_reaches_zero():
    found = estimate([fs.Layer("linear", q=1.0, weight_variance=1.0), *relu(2, 0.5)])
    assert math.isnan(found.dlog_lower)
    assert 0.0 < found.dlog_upper < 0.01
    assert 1e-5 < found.ks < 1e-3


def test_plain_layers_below_count_their_slopes():
    """A plain layer's slopes beside the first block's skip are shared too, those above a rotation
    are not."""
    leaky = fs.Layer("leaky_relu", q=1.0, weight_variance=1.0, weights="orthogonal")
    alone = estimate(relu(2, 0.5)).ks
    assert estimate([leaky, *relu(2, 0.5)]).ks != pytest.approx(alone, rel=1e-2)
    rotation = fs.Layer("linear", q=1.0, weight_variance=1.0, weights="orthogonal")
    assert estimate([rotation, *relu(2, 0.5)]).ks == pytest.approx(alone, rel=1e-6)
