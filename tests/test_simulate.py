"""Simulated networks against exact facts, and the comparison of samples with laws."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fastspec as fs
from fastspec import _forward
from fastspec._variables import EIGENVALUE
from fastspec.simulate import (
    jacobian_singular_values,
    ks_distance,
    resolve_atoms,
    split_outliers,
)


class Activation:
    def __init__(self, name, value, slope):
        self.name, self._value, self.derivative = name, value, slope

    def __call__(self, h):
        return self._value(h)


LINEAR = Activation("linear", lambda h: h, np.ones_like)
TANH = Activation("tanh", np.tanh, lambda h: 1.0 / np.cosh(h) ** 2)
RELU = Activation("relu", lambda h: np.maximum(h, 0.0), lambda h: (h > 0).astype(float))


def make_net(activation, depth, variance, **more):
    """What the simulation reads from a network, and nothing else."""
    values = {
        "weights": "gaussian",
        "sigma_b": 0.0,
        "input_second_moment": 1.0,
        "activation": activation,
        "depth": depth,
        "weight_variance": variance,
    }
    return SimpleNamespace(**(values | more))


class MixedLaw:
    """Mass 1/4 at 0, mass 1/4 at 4, the rest uniform on [1, 3]: every number is known."""

    _variable = EIGENVALUE
    atoms = np.array([[0.0, 0.25], [4.0, 0.25]])

    def support(self):
        return [(1.0, 3.0)]

    def cdf(self, lam):
        lam = np.asarray(lam, dtype=float)
        continuous = 0.5 * np.clip((lam - 1.0) / 2.0, 0.0, 1.0)
        return 0.25 * (lam >= 0) + continuous + 0.25 * (lam >= 4)

    def icdf(self, p):
        p = np.asarray(p, dtype=float)
        middle = np.clip(1.0 + 4.0 * (p - 0.25), 1.0, 3.0)
        return np.where(p <= 0.25, 0.0, np.where(p > 0.75, 4.0, middle))


class Uniform:
    """Uniform on [1, 2]."""

    _variable = EIGENVALUE
    atoms = np.empty((0, 2))

    def support(self):
        return [(1.0, 2.0)]

    def cdf(self, lam):
        return np.clip(np.asarray(lam, dtype=float) - 1.0, 0.0, 1.0)

    def icdf(self, p):
        return 1.0 + np.asarray(p, dtype=float)


# --- the simulation ---------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3])
def test_linear_orthogonal_feed_forward_is_an_isometry(depth):
    net = make_net(LINEAR, depth, 0.81, weights="orthogonal")
    s = jacobian_singular_values(net, 40, seed=1)
    assert s.shape == (40,)
    np.testing.assert_allclose(s, 0.9**depth, rtol=1e-13)


def test_linear_orthogonal_residual_layer_follows_the_arcsine_law():
    # Eigenvalues of J J^T = |1 + sigma e^{i theta}|^2 with theta uniform.
    sigma, width = 0.6, 400
    net = make_net(LINEAR, 1, sigma**2, weights="orthogonal", skip=1.0)
    lam = np.sort(jacobian_singular_values(net, width, seed=2) ** 2)
    cosine = np.clip((lam - 1.0 - sigma**2) / (2.0 * sigma), -1.0, 1.0)
    cdf = 1.0 - np.arccos(cosine) / np.pi
    middle = (np.arange(width) + 0.5) / width
    assert np.abs(cdf - middle).max() < 4.0 / width
    assert lam[0] >= (1.0 - sigma) ** 2 - 1e-13
    assert lam[-1] <= (1.0 + sigma) ** 2 + 1e-13


def test_gaussian_layer_has_the_marchenko_pastur_moments():
    width, sigma2 = 300, 1.7
    lam = jacobian_singular_values(make_net(LINEAR, 1, sigma2), width, seed=3) ** 2
    # Var of (1/N) tr W W^T is 2 sigma^4 / N^2; five standard deviations.
    assert abs(lam.mean() - sigma2) < 5.0 * np.sqrt(2.0) * sigma2 / width
    assert abs((lam**2).mean() / sigma2**2 - 2.0) < 0.05


def test_skip_of_a_dead_branch_is_the_only_thing_left():
    dead = Activation("dead", np.zeros_like, np.zeros_like)
    net = make_net(dead, 3, 1.0, skip=0.5)
    np.testing.assert_allclose(jacobian_singular_values(net, 20, seed=4), 0.125, rtol=1e-15)


def test_relu_layer_kills_the_rows_of_inactive_units():
    x = np.ones(60)
    net = make_net(RELU, 1, 1.0)
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((60, 60)) / np.sqrt(60)
    s = jacobian_singular_values(net, 60, seed=5, input=x)
    assert np.sum(s < 1e-13) == np.sum(weight @ x <= 0)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("skip", [0.0, 0.7])
def test_jacobian_equals_finite_differences_of_the_forward_pass(weights, skip):
    width, step = 8, 1e-4
    net = make_net(TANH, 4, 1.3, weights=weights, sigma_b=0.4, skip=skip)
    x = np.linspace(-1.0, 1.5, width)

    def output(point):
        return _forward.run(net, point, [width] * 5, np.random.default_rng(6))[0]

    columns = [(output(x + step * e) - output(x - step * e)) / (2 * step) for e in np.eye(width)]
    jacobian = _forward.run(net, x, [width] * 5, np.random.default_rng(6))[1]
    # Central differences: error of order step^2 = 1e-8.
    np.testing.assert_allclose(jacobian, np.array(columns).T, atol=1e-7)
    s = jacobian_singular_values(net, width, seed=6, input=x)
    np.testing.assert_allclose(s, np.linalg.svd(jacobian, compute_uv=False), rtol=1e-12)


def test_biases_have_variance_sigma_b_squared():
    net = make_net(LINEAR, 1, 1.0, sigma_b=0.3)
    biases = _forward.run(net, np.zeros(2000), [2000] * 2, np.random.default_rng(12))[0]
    assert abs(np.mean(biases**2) / 0.09 - 1.0) < 5.0 * np.sqrt(2.0 / 2000)


def test_orthogonal_weights_are_haar():
    # E tr Q = 0; LAPACK's Q without the sign correction has a trace far from 0 in the mean.
    rng = np.random.default_rng(7)
    traces = [np.trace(_forward.draw_weight("orthogonal", 4.0, 3, 3, rng)) / 2 for _ in range(3000)]
    assert abs(np.mean(traces)) < 5.0 / np.sqrt(3000)  # E (tr Q)^2 = 1
    assert abs(np.mean(np.square(traces)) - 1.0) < 5.0 * np.sqrt(2.0 / 3000)


def test_same_seed_same_network_and_generator_is_advanced():
    net = make_net(TANH, 2, 1.0)
    first = jacobian_singular_values(net, 15, seed=8)
    np.testing.assert_array_equal(first, jacobian_singular_values(net, 15, seed=8))
    assert not np.array_equal(first, jacobian_singular_values(net, 15, seed=9))
    rng = np.random.default_rng(8)
    np.testing.assert_array_equal(first, jacobian_singular_values(net, 15, seed=rng))
    assert not np.array_equal(first, jacobian_singular_values(net, 15, seed=rng))


def test_default_input_has_the_second_moment_of_the_network():
    x = _forward.draw_input(make_net(TANH, 1, 1.0, input_second_moment=2.5), 30, _rng())
    np.testing.assert_allclose(np.mean(x**2), 2.5, rtol=1e-14)


def test_default_input_has_the_mean_of_the_network():
    net = make_net(TANH, 1, 1.0, input_second_moment=2.5, input_mean=-1.2)
    x = _forward.draw_input(net, 30, _rng())
    np.testing.assert_allclose([x.mean(), np.mean(x**2)], [-1.2, 2.5], rtol=1e-14)


def test_fixed_point_input_puts_the_first_layer_at_q_star():
    net = make_net(TANH, 1, 1.5, sigma_b=0.3, q="fixed_point")
    net.propagate = lambda: SimpleNamespace(q=np.array([0.7]))
    x = _forward.draw_input(net, 30, _rng())
    np.testing.assert_allclose(1.5 * np.mean(x**2) + 0.3**2, 0.7, rtol=1e-14)


def _rng():
    return np.random.default_rng(10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width must be a whole number >= 1, got 0"),
        ({"width": 2.5}, "width must be a whole number >= 1, got 2.5"),
        ({"width": True}, "width must be"),
        ({"seed": -1}, "seed must be an int >= 0"),
        ({"seed": "a"}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"input": np.ones(3)}, r"input must have shape \(5,\), got \(3,\)"),
        ({"input": np.array([1, 2, np.nan, 4, 5])}, "input must be finite"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    values = {"width": 5, "seed": 0} | arguments
    with pytest.raises(ValueError, match=message):
        jacobian_singular_values(make_net(TANH, 1, 1.0), **values)


def test_unknown_ensemble_is_an_error():
    with pytest.raises(ValueError, match="net.weights must be one of"):
        jacobian_singular_values(make_net(TANH, 1, 1.0, weights="uniform"), 5, seed=0)


def test_overflow_is_an_error_not_a_nan():
    with pytest.raises(FloatingPointError, match="overflows"):
        jacobian_singular_values(make_net(LINEAR, 40, 1e20), 10, seed=0)


def test_progress_bar_goes_to_stderr(capsys):
    pytest.importorskip("tqdm")
    jacobian_singular_values(make_net(TANH, 3, 1.0), 5, seed=0, progress=True)
    captured = capsys.readouterr()
    assert "layers" in captured.err
    assert captured.out == ""


def test_progress_without_tqdm_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"fastspec\[progress\]"):
        jacobian_singular_values(make_net(TANH, 3, 1.0), 5, seed=0, progress=True)


# --- Kolmogorov-Smirnov distance ----------------------------------------------------------------


def test_ks_of_a_perfect_sample_is_half_a_step():
    lam = 1.0 + (np.arange(10) + 0.5) / 10
    assert ks_distance(lam, Uniform(), squared=True) == pytest.approx(0.05, abs=1e-14)
    assert ks_distance(np.sqrt(lam), Uniform()) == pytest.approx(0.05, abs=1e-14)


@pytest.mark.parametrize(
    ("sample", "distance"),
    [
        ([1.0, 1.0], 1.0),  # F_n jumps to 1 where F is 0
        ([2.0], 1.0),  # F_n is 0 just below 2 where F is 1
        ([1.5], 0.5),
        ([1.2, 1.7], 0.3),  # at 1.7 from above: 1 - 0.7
        ([1.6, 1.9], 0.6),  # at 1.6 from below: 0.6 - 0
        ([5.0], 1.0),
    ],
)
def test_ks_is_two_sided(sample, distance):
    assert ks_distance(sample, Uniform(), squared=True) == pytest.approx(distance, abs=1e-14)


def test_ks_agrees_with_scipy_without_atoms():
    from scipy.stats import kstest

    lam = 1.0 + np.random.default_rng(11).random(200) ** 1.1
    expected = kstest(lam, Uniform().cdf).statistic
    assert ks_distance(lam, Uniform(), squared=True) == pytest.approx(expected, abs=1e-13)


def exact_mixed_sample():
    """Eight values in the proportions of MixedLaw, the uniform part at its mid-quantiles."""
    return np.array([0.0, 0.0, 1.25, 1.75, 2.25, 2.75, 4.0, 4.0])


def test_ks_counts_atoms_on_both_sides_of_the_jump():
    assert ks_distance(exact_mixed_sample(), MixedLaw(), squared=True) == pytest.approx(1 / 16)
    # One value of an atom missing: from below F_n exceeds F there by 1/8 and by half a step more.
    sample = np.array([0.0, 0.0, 1.25, 1.75, 2.25, 2.75, 3.0, 4.0])
    assert ks_distance(sample, MixedLaw(), squared=True) == pytest.approx(1 / 8)
    assert ks_distance(np.full(8, 4.0), MixedLaw(), squared=True) == pytest.approx(0.75)
    assert ks_distance(np.zeros(8), MixedLaw(), squared=True) == pytest.approx(0.75)


def test_ks_allows_for_rounding_at_atoms_only():
    sample = np.sqrt(exact_mixed_sample())
    sample[:2] = [3e-17, 5e-16]
    sample[-2:] *= [1 - 4e-16, 1 + 4e-16]
    assert ks_distance(sample, MixedLaw()) == pytest.approx(1 / 16, abs=1e-12)
    # A distance of 1e-6 is no rounding: the values then miss the jump.
    sample[-2:] = 2.0 * (1 - 1e-6)
    assert ks_distance(sample, MixedLaw()) == pytest.approx(0.25, abs=1e-12)
    assert ks_distance(sample, MixedLaw(), resolution=1e-5) == pytest.approx(1 / 16, abs=1e-12)


def test_ks_compares_only_above_the_resolution():
    class Steep:
        """cdf lam^(1/20) on [0, 1]: a twentieth of the singular values are below 1e-13."""

        _variable = EIGENVALUE
        atoms = np.empty((0, 2))

        def cdf(self, lam):
            return np.clip(np.asarray(lam, dtype=float), 0.0, 1.0) ** 0.05

    s = np.sqrt(((np.arange(200) + 0.5) / 200) ** 20.0)
    noisy = np.where(s < 1e-13, 1e-16, s)
    assert ks_distance(noisy, Steep()) == pytest.approx(0.5 / 200, abs=1e-9)
    # The noise itself does not hide a wrong law: no mass near 0 here, half of the sample there.
    assert ks_distance([1e-17, 1.7**0.5], Uniform()) == pytest.approx(0.5)


def test_ks_pools_draws_of_any_shape():
    lam = 1.0 + (np.arange(10) + 0.5) / 10
    pooled = ks_distance(lam.reshape(2, 5), Uniform(), squared=True)
    assert pooled == pytest.approx(0.05, abs=1e-14)


def test_ks_refuses_what_it_cannot_compare():
    with pytest.raises(ValueError, match="at least one value"):
        ks_distance([], Uniform())
    with pytest.raises(ValueError, match="finite and >= 0"):
        ks_distance([1.0, np.nan], Uniform())
    with pytest.raises(ValueError, match="finite and >= 0"):
        ks_distance([-1.0], Uniform())
    with pytest.raises(ValueError, match="resolution must be in"):
        ks_distance([1.0], Uniform(), resolution=1.0)
    law = Uniform()
    law.cdf = lambda lam: np.full(np.shape(lam), np.nan)
    with pytest.raises(ArithmeticError, match="NaN"):
        ks_distance([1.2], law)


def test_resolve_atoms_marks_values_at_atoms():
    sample = np.sqrt(exact_mixed_sample()[::-1])
    sample[-1] = 1e-17
    lam, at_atom = resolve_atoms(sample, MixedLaw())
    np.testing.assert_allclose(lam, exact_mixed_sample(), rtol=1e-15)
    assert list(lam[:2]) == [0.0, 0.0]
    assert at_atom.tolist() == [True, True, False, False, False, False, True, True]


# --- outliers -----------------------------------------------------------------------------------


def test_outliers_are_split_off_at_both_ends():
    # Width 100, uniform law on [1, 2]: three units are 0.03.
    lam = np.concatenate(([0.95], np.linspace(0.98, 2.02, 98), [2.05]))
    bulk, outliers = split_outliers(lam, Uniform(), squared=True)
    np.testing.assert_array_equal(outliers, [0.95, 2.05])
    assert bulk.size == 98
    bulk, outliers = split_outliers(np.sqrt(lam), Uniform())
    np.testing.assert_allclose(outliers, np.sqrt([0.95, 2.05]), rtol=1e-15)


def test_outliers_of_several_draws_use_the_width_of_one():
    draws = np.tile(np.linspace(1.0, 2.02, 100), (50, 1))
    draws[3, 0] = 2.05
    np.testing.assert_array_equal(split_outliers(draws, Uniform(), squared=True)[1], [2.05])


def test_values_at_an_outer_atom_are_no_outliers():
    sample = np.array([0.0, 1.5, 2.0, 4.0 * (1 + 4e-16), 5.0])
    np.testing.assert_array_equal(split_outliers(sample, MixedLaw(), squared=True)[1], [5.0])


# --- real networks against their laws -----------------------------------------------------------

# Distances of one draw of width N are a few times 1/N; the bound is 10/N where the law is exact.


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("depth", [1, 3])
def test_relu_feed_forward_follows_its_exact_law(weights, depth):
    net = fs.FeedForward(depth=depth, activation="relu", weights=weights, sigma_w=2**0.5)
    width = 400
    s = jacobian_singular_values(net, width, seed=depth)
    # Half of the units are inactive, up to a binomial fluctuation of 1/(2 sqrt N) each layer.
    assert ks_distance(s, net.spectrum()) < 10.0 / width + 2.0 / np.sqrt(width)
    assert split_outliers(s, net.spectrum())[1].size <= 1


def test_linear_feed_forward_follows_fuss_catalan():
    net = fs.FeedForward(depth=3, activation="linear")
    s = jacobian_singular_values(net, 300, seed=1)
    assert ks_distance(s, fs.FussCatalan(3)) < 10.0 / 300
    assert ks_distance(s, fs.FussCatalan(3).singular_values()) == ks_distance(s, fs.FussCatalan(3))
    assert ks_distance(s, fs.FussCatalan(2)) > 0.05


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "hard_tanh"])
@pytest.mark.parametrize("skip", [1.0, 0.95])
def test_deep_residual_networks_follow_the_limit_law(activation, weights, skip):
    net = fs.ResNet(depth=40, activation=activation, weights=weights, sigma_w=0.7, skip=skip)
    s = jacobian_singular_values(net, 200, seed=2)
    law = net.spectrum(limit=True)
    # The limit law misses terms of order c/L = 0.01.
    assert ks_distance(s, law) < 10.0 / 200 + 0.01
    assert ks_distance(s, fs.ResNetLimit(2.0 * net.effective_cumulant())) > 0.1


def test_relu_residual_network_has_one_outlier_at_the_top():
    net = fs.ResNet(depth=20, activation="relu", sigma_w=1.0)
    s = jacobian_singular_values(net, 300, seed=3)
    bulk, outliers = split_outliers(s, net.spectrum(limit=True))
    assert outliers.tolist() == [s[0]]
    # J x^0 = x^L: the top singular value is at least |x^L| / |x^0|.
    growth = np.sqrt(net.propagate().second_moment[-1])
    assert s[0] > 0.95 * growth
    odd = fs.ResNet(depth=20, activation="hard_tanh", sigma_w=1.0)
    s = jacobian_singular_values(odd, 300, seed=3)
    assert split_outliers(s, odd.spectrum(limit=True))[1].size == 0


def test_orthogonal_hard_tanh_has_the_atom_at_the_top():
    net = fs.FeedForward(
        depth=4, activation="hard_tanh", weights="orthogonal", sigma_w=1.05, q="fixed_point"
    )
    law = net.spectrum()
    s = jacobian_singular_values(net, 400, seed=4)
    location, mass = law.atoms[np.argmax(law.atoms[:, 0])]
    lam, at_atom = resolve_atoms(s, law)
    assert location > 0
    assert np.mean(lam == location) == pytest.approx(mass, abs=0.06)
    assert ks_distance(s, law) < 0.06


def test_squares_outside_the_doubles_are_an_error():
    with pytest.raises(ArithmeticError, match="leave the range of a double"):
        ks_distance([1e-200], Uniform())
    with pytest.raises(ArithmeticError, match="leave the range of a double"):
        split_outliers([1e200], Uniform())
