"""User-given laws, free products and their building blocks, against closed forms, mpmath and
Monte Carlo."""

import cmath
import math
import pickle
import warnings

import mpmath as mp
import numpy as np
import pytest

import fastspec as fs
from fastspec.products import FreeProduct

numba = pytest.importorskip("numba")


def inside(law, count=41):
    """Points of every interval, away from its ends."""
    share = (1 - np.cos(np.linspace(0.05, 0.97, count) * np.pi)) / 2
    return np.concatenate([low + (high - low) * share for low, high in law.support()])


def assert_same_law(law, expected, tolerance=1e-12):
    """Densities to `tolerance` times their conditioning, supports, atoms, distribution functions.

    Edges and densities of ill-conditioned points are compared as functions of log lambda.
    """
    assert np.allclose(law.support(), expected.support(), rtol=tolerance, atol=0)
    assert law.atoms.shape == expected.atoms.shape
    assert np.allclose(law.atoms, expected.atoms, rtol=tolerance, atol=tolerance)
    x = inside(expected)
    rise = np.abs(expected.pdf(x * 1.0001) / expected.pdf(x) - 1) / 1e-4
    assert np.all(np.abs(law.pdf(x) / expected.pdf(x) - 1) < tolerance * np.maximum(1, rise))
    assert np.abs(law.cdf(x) - expected.cdf(x)).max() < tolerance
    z = np.array([0.3 + 0.2j, -1.0 + 0.5j, 2.0 - 1.0j, 10j])
    assert np.abs(law.green(z) - expected.green(z)).max() < tolerance


# ---- building blocks -----------------------------------------------------------------------

@pytest.mark.parametrize("scale", [1.0, 3e4])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 2.0, 10.0])
def test_marchenko_pastur(ratio, scale):
    law = fs.MarchenkoPastur(ratio, scale=scale)
    low, high = (scale * (1 + sign * math.sqrt(ratio)) ** 2 for sign in (-1, 1))
    assert law.support()[0] == pytest.approx((low, high), rel=1e-13, abs=1e-300)
    if ratio > 1:
        assert law.atoms.tolist() == [[0.0, pytest.approx(1 - 1 / ratio, abs=1e-16)]]
    else:
        assert len(law.atoms) == 0
    x = inside(law)
    exact = np.sqrt((high - x) * (x - low)) / (2 * np.pi * ratio * scale * x)
    assert np.abs(law.pdf(x) / exact - 1).max() < 1e-12
    assert law.mean() == pytest.approx(scale, rel=1e-15)
    assert law.variance() == pytest.approx(ratio * scale**2, rel=1e-14)
    assert law.moment(3) == pytest.approx(scale**3 * (1 + 3 * ratio + ratio**2), rel=1e-12)


def test_the_atoms_of_a_discrete_law_are_those_given():
    law = fs.DiscreteLaw([3.0, 0.0, 1.1], [0.5, 0.3, 0.2])
    assert law.atoms[:, 0].tolist() == [0.0, 1.1, 3.0]
    assert np.abs(law.atoms[:, 1] - [0.3, 0.2, 0.5]).max() < 2e-16
    assert law.support() == []
    assert law.pdf(2.0) == 0.0
    assert np.allclose(law.cdf([0.0, 1.0, 1.1, 2.9, 3.0]), [0.3, 0.3, 0.5, 0.5, 1.0])
    assert law.icdf(0.4) == 1.1
    z = np.array([0.5 + 0.1j, 2j, -1.0])
    assert np.allclose(law.green(z), 0.3 / z + 0.2 / (z - 1.1) + 0.5 / (z - 3.0), rtol=1e-13)
    assert law.moment(3) == pytest.approx(0.2 * 1.1**3 + 0.5 * 27, rel=1e-13)


def test_a_discrete_law_of_many_atoms():
    rng = np.random.default_rng(4)
    values = np.sort(rng.uniform(0.1, 2.0, 300))
    law = fs.DiscreteLaw(values, np.full(300, 1 / 300))
    assert law.atoms[:, 0].tolist() == values.tolist()
    assert law.atoms[:, 1] == pytest.approx(1 / 300, rel=1e-12)
    sampled = law @ fs.MarchenkoPastur(0.2)
    assert len(sampled.atoms) == 0
    assert sampled.mean() == pytest.approx(values.mean(), rel=1e-13)


# ---- products with known laws -----------------------------------------------------------------

def test_products_of_gaussian_matrices_are_fuss_catalan():
    for depth, law in [(2, fs.FussCatalan(1) @ fs.FussCatalan(1)),
                       (3, fs.FussCatalan(2) @ fs.MarchenkoPastur(1.0)),
                       (5, fs.MarchenkoPastur(1.0) ** 5)]:
        assert_same_law(law, fs.FussCatalan(depth))
        for k in (1, 2, 6):
            assert law.moment(k) == pytest.approx(fs.FussCatalan(depth).moment(k), rel=1e-12)


def test_products_of_residual_and_smooth_limits():
    assert_same_law(fs.ResNetLimit(0.2) @ fs.ResNetLimit(0.3), fs.ResNetLimit(0.5))
    assert_same_law(fs.SmoothLimit(0.2) ** 5, fs.SmoothLimit(1.0))
    skipped = fs.ResNetLimit(0.2, skip=0.9, depth=3) @ fs.ResNetLimit(0.1, skip=0.9, depth=4)
    assert_same_law(skipped, fs.ResNetLimit(0.3, skip=0.9, depth=7))


@pytest.mark.parametrize("variances", [(0.1, 0.15), (0.5, 0.499), (0.5, 0.5), (1.0, 2.0)])
def test_products_of_bernoulli_limits(variances):
    law = fs.BernoulliLimit(variances[0]) @ fs.BernoulliLimit(variances[1])
    expected = fs.BernoulliLimit(sum(variances))
    assert law.support()[0] == pytest.approx(expected.support()[0], rel=1e-12)
    assert law.atoms == pytest.approx(expected.atoms, rel=1e-10)
    x = inside(expected)
    assert np.abs(law.cdf(x) - expected.cdf(x)).max() < 1e-12
    assert law.pdf(x) == pytest.approx(expected.pdf(x), rel=1e-10)


def test_products_of_plain_chains():
    relu = {"slope_probability": 0.5, "slope_complement": 0.5, "weight_variance": 2.0}
    assert_same_law(fs.PlainChain(2, **relu) @ fs.PlainChain(1, **relu), fs.PlainChain(3, **relu))
    thin = {"slope_probability": 0.9, "slope_complement": 0.1, "weight_variance": 1.1,
            "weights": "orthogonal"}
    assert_same_law(fs.PlainChain(2, **thin) ** 2, fs.PlainChain(4, **thin))


def test_products_of_chains_are_chains_of_all_blocks():
    one = [fs.Layer("tanh", q=0.7, weight_variance=1.3)]
    two = [fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.3), repeat=2)]
    assert_same_law(fs.ChainLaw(one) @ fs.ChainLaw(two), fs.ChainLaw(one + two))


def test_rectangular_factors_keep_their_own_units():
    wide = fs.ChainLaw([fs.Layer("linear", q=1.0, weight_variance=1.0, width=5.0)],
                       input_width=10.0)
    assert_same_law(wide @ fs.MarchenkoPastur(2.0), fs.MarchenkoPastur(0.5) @
                    fs.MarchenkoPastur(2.0))


@pytest.mark.parametrize(("p", "q"), [(0.7, 0.8), (0.5, 0.5), (0.3, 0.4), (0.2, 0.9)])
def test_two_projections(p, q):
    """p q p of free projections (Voiculescu, Dykema & Nica 1992, example 3.6.7)."""
    law = fs.DiscreteLaw([0.0, 1.0], [1 - p, p]) @ fs.DiscreteLaw([0.0, 1.0], [1 - q, q])
    middle, half = p + q - 2 * p * q, math.sqrt(4 * p * q * (1 - p) * (1 - q))
    low, high = middle - half, middle + half
    assert law.support()[0] == pytest.approx((low, high), rel=1e-12, abs=1e-12)
    atoms = [[0.0, 1 - min(p, q)]] + ([[1.0, p + q - 1]] if p + q > 1 + 1e-12 else [])
    assert law.atoms == pytest.approx(np.array(atoms), abs=1e-14)
    x = inside(law)
    exact = np.sqrt((high - x) * (x - low)) / (2 * np.pi * x * (1 - x))
    assert law.pdf(x) == pytest.approx(exact, rel=1e-11)


def silverstein(z, values, probabilities, ratio, start):
    """G of the sample covariance: with the companion v, z = -1/v + ratio sum w t/(1 + t v)
    (Silverstein & Bai 1995), v = -(1 - ratio)/z + ratio m_F, m_F = -G."""
    v = start
    for _ in range(60):
        terms = [(w * t / (1 + t * v), t / (1 + t * v))
                 for t, w in zip(values, probabilities, strict=True)]
        miss = -1 / v - z + ratio * mp.fsum(term for term, _ in terms)
        step = miss / (1 / v**2 - ratio * mp.fsum(term * more for term, more in terms))
        v -= step
        if abs(step) < 1e-38 * abs(v):
            break
    assert abs(step) < 1e-30 * abs(v)
    return -(v + (1 - ratio) / z) / ratio


@pytest.mark.parametrize("ratio", [0.1, 0.5, 3.0])
def test_sample_covariance(ratio):
    values, masses = [1.0, 4.0, 9.0], [0.5, 0.3, 0.2]
    law = fs.DiscreteLaw(values, masses) @ fs.MarchenkoPastur(ratio)
    assert len(law.support()) == (3 if ratio == 0.1 else 1)
    with mp.workdps(40):
        for x in inside(law, 9):
            # from far above down to the real axis; the root with Im v > 0 is unique
            v, green = mp.mpc(0, 0.01), None
            for height in [mp.mpf(100) / 2**k for k in range(24)] + [mp.mpf(0)]:
                z = mp.mpc(x, height)
                green = silverstein(z, values, masses, ratio, v)
                v = -(ratio * green + (1 - ratio) / z)
                assert v.imag > 0
            assert law.pdf(x) == pytest.approx(float(-green.imag / mp.pi), rel=1e-11)
    if ratio > 1:
        assert law.atoms.tolist() == [[0.0, pytest.approx(1 - 1 / ratio, rel=1e-14)]]


def test_monte_carlo_of_a_product():
    """T^(1/2) X X^T T^(1/2) with a Haar rotation between: distance of distribution functions."""
    n, rng = 600, np.random.default_rng(11)
    law = fs.DiscreteLaw([0.5, 2.0], [0.6, 0.4]) @ fs.MarchenkoPastur(0.75) ** 2
    x = np.diag(np.sqrt(np.repeat([0.5, 2.0], [360, 240])))
    for _ in range(2):
        x = x @ np.linalg.qr(rng.standard_normal((n, n)))[0]
        y = rng.standard_normal((n, 800)) / math.sqrt(800)
        x = x @ np.linalg.cholesky(y @ y.T)
    found = np.sort(np.linalg.svd(x, compute_uv=False) ** 2)
    grid = (np.arange(n) + 0.5) / n
    assert np.abs(law.cdf(found) - grid).max() < 0.01


# ---- products as objects ------------------------------------------------------------------------

def test_products_are_flat_and_count_equal_factors():
    a, b = fs.FussCatalan(1), fs.ResNetLimit(0.1)
    law = (a @ b) @ (a ** 2 @ b)
    assert law.factors == ((a, 3), (b, 2))
    assert repr(law) == f"{a!r} ** 3 @ {b!r} ** 2"
    assert (law ** 2).factors == ((a, 6), (b, 4))


def test_products_compare_hash_and_pickle():
    law = fs.DiscreteLaw([1.0, 2.0], [0.5, 0.5]) @ fs.MarchenkoPastur(0.5)
    copy = pickle.loads(pickle.dumps(law))
    assert copy == law and hash(copy) == hash(law) and type(copy) is FreeProduct
    assert copy.pdf(1.3) == law.pdf(1.3)
    assert law != law @ law


def test_what_is_no_law_is_no_factor():
    with pytest.raises(TypeError):
        fs.FussCatalan(1) @ 3.0
    for power in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="power of a law must be a whole number >= 1"):
            fs.FussCatalan(1) ** power
    with pytest.raises(ValueError, match="factors must be spectral laws, got 1"):
        FreeProduct([(1, 1)])
    with pytest.raises(ValueError, match="at least one law"):
        FreeProduct([])


@pytest.mark.parametrize(("make", "words"), [
    (lambda: fs.MarchenkoPastur(0.0), "ratio must be"),
    (lambda: fs.MarchenkoPastur(1.0, scale=-1.0), "scale must be"),
    (lambda: fs.DiscreteLaw([1.0, -2.0], [0.5, 0.5]), "values must be >= 0"),
    (lambda: fs.DiscreteLaw([1.0, 2.0], [0.5, 0.6]), "must add up to 1"),
    (lambda: fs.DiscreteLaw([1.0, 2.0], [1.0]), "of one length"),
    (lambda: fs.DiscreteLaw([], []), "values must not all be 0"),
    (lambda: fs.DiscreteLaw([0.0, 1.0], [1.0, 0.0]), "values must not all be 0"),
    (lambda: fs.DiscreteLaw([1.0, float("nan")], [0.5, 0.5]), "values must be finite"),
])
def test_bad_parameters(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# ---- laws given by their S-transform ---------------------------------------------------------

def marchenko_log_s(m):
    return -cmath.log(1 + 0.5 * m)


def marchenko_dlog_s(m):
    return -0.5 / (1 + 0.5 * m)


def compiled(*functions):
    return [numba.njit(function) for function in functions]


@pytest.mark.parametrize("ratio", [0.01, 0.5, 2.0, 30.0])
def test_implicit_marchenko_pastur(ratio):
    law = fs.ImplicitLaw(lambda m: -cmath.log(1 + ratio * m), lambda m: -ratio / (1 + ratio * m),
                         mean=1.0)
    expected = fs.MarchenkoPastur(ratio)
    assert_same_law(law, expected)
    assert law.variance() == pytest.approx(ratio, rel=1e-13)
    for k in (1, 2, 3, 10):
        assert law.moment(k) == pytest.approx(expected.moment(k), rel=1e-11)
        assert law.log_moment(k) == pytest.approx(expected.log_moment(k), abs=1e-11)
    assert law.singular_values().moment(4) == pytest.approx(expected.moment(2), rel=1e-11)


@pytest.mark.parametrize("how", ["python", "njit", "cfunc"])
def test_implicit_residual_limit(how):
    def log_s(m):
        return -0.25 * (1 + 2 * m)

    def dlog_s(m):
        return complex(-0.5)

    functions = [log_s, dlog_s]
    if how == "njit":
        functions = compiled(*functions)
    if how == "cfunc":
        functions = [numba.cfunc("c16(c16)")(function) for function in functions]
    assert_same_law(fs.ImplicitLaw(*functions, mean=math.exp(0.25)), fs.ResNetLimit(0.25))


def test_hard_end_at_zero():
    """S = 1/(1 + m): digits of 1 + m are lost near 0, the mass and the rest are not."""
    law = fs.ImplicitLaw(*compiled(lambda m: -np.log(1 + m), lambda m: -1 / (1 + m)), mean=1.0)
    exact = fs.FussCatalan(1)
    x = np.geomspace(1e-6, 3.9, 60)
    assert law.pdf(x) == pytest.approx(exact.pdf(x), rel=1e-11)
    assert np.abs(law.cdf(x) - exact.cdf(x)).max() < 1e-12
    tiny = np.geomspace(1e-30, 1e-6, 20)
    assert law.cdf(tiny) == pytest.approx(exact.cdf(tiny), rel=1e-7)


@pytest.mark.parametrize("p", [0.3, 1e-4, 1 - 1e-6])
def test_implicit_bernoulli_slopes_are_two_atoms(p):
    law = fs.ImplicitLaw(lambda m: cmath.log(1 + m) - cmath.log(p + m),
                         lambda m: 1 / (1 + m) - 1 / (p + m), mean=p)
    assert law.support() == []
    assert law.atoms == pytest.approx(np.array([[0.0, 1 - p], [1.0, p]]), abs=1e-11)


def test_constant_s_is_one_atom():
    law = fs.ImplicitLaw(lambda m: -math.log(2.5), lambda m: 0.0, mean=2.5)
    assert law.atoms == pytest.approx(np.array([[2.5, 1.0]]), rel=1e-14)
    assert law.variance() == 0.0
    assert_same_law(law @ fs.MarchenkoPastur(0.5), fs.MarchenkoPastur(0.5, scale=2.5))


@pytest.mark.parametrize("layers", [1, 3])
def test_implicit_zero_one_layers(layers):
    """Orthogonal layers with slopes 0 and 1: a zero atom, an atom at 1 and a continuous part."""
    p = 0.9
    law = fs.ImplicitLaw(lambda m: layers * (cmath.log(1 + m) - cmath.log(p + m)),
                         lambda m: layers * (1 / (1 + m) - 1 / (p + m)), mean=p**layers)
    expected = fs.PlainChain(layers, slope_probability=p, slope_complement=0.1,
                             weight_variance=1.0, weights="orthogonal")
    assert law.atoms == pytest.approx(expected.atoms, abs=1e-10)
    if layers > 1:
        assert law.support()[0] == pytest.approx(expected.support()[0], rel=1e-9, abs=1e-12)
        x = inside(expected)
        assert law.pdf(x) == pytest.approx(expected.pdf(x), rel=1e-9)


def test_implicit_powers():
    law = fs.ImplicitLaw(*compiled(lambda m: -np.log(1 + 0.5 * m), lambda m: -0.5 / (1 + 0.5 * m)),
                         mean=1.0)
    assert_same_law(law ** 3, fs.MarchenkoPastur(0.5) ** 3)
    assert_same_law(law @ fs.DiscreteLaw([1.0, 4.0], [0.5, 0.5]),
                    fs.MarchenkoPastur(0.5) @ fs.DiscreteLaw([1.0, 4.0], [0.5, 0.5]))


@pytest.mark.parametrize(("a", "b"), [(0.5, 1.5), (2.0, 2.5), (3.0, 1.2)])
def test_free_beta_prime(a, b):
    """Quotients of two free Poisson laws, S = (b - 1 - m)/(a + m), b > 1:
    z = (1 + m)(a + m)/(m (b - 1 - m)) is a quadratic in m (Yoshida 2020)."""
    law = fs.ImplicitLaw(lambda m: cmath.log(b - 1 - m) - cmath.log(a + m),
                         lambda m: -1 / (b - 1 - m) - 1 / (a + m), mean=a / (b - 1))
    for x in inside(law, 15):
        # (1 + x) m^2 + (1 + a - x (b - 1)) m + a = 0
        half = (1 + a - x * (b - 1)) / (2 * (1 + x))
        y = math.sqrt(a / (1 + x) - half**2)
        assert law.pdf(x) == pytest.approx(y / (math.pi * x), rel=1e-11)
    zero = law.atoms.tolist()
    assert zero == ([[0.0, pytest.approx(1 - a, rel=1e-12)]] if a < 1 else [])


def test_implicit_laws_compare_and_pickle():
    law = fs.ImplicitLaw(marchenko_log_s, marchenko_dlog_s, mean=1.0)
    assert pickle.loads(pickle.dumps(law)) == law
    assert law != fs.ImplicitLaw(marchenko_log_s, lambda m: -0.5 / (1 + 0.5 * m), mean=1.0)


def one(m):
    return 0j


@pytest.mark.parametrize(("log_s", "dlog_s", "mean", "words"), [
    (3.0, one, 1.0, "log_s must be a function"),
    (one, None, 1.0, "dlog_s must be a function"),
    (one, one, 0.0, "mean must be a finite number > 0"),
    (one, one, -1.0, "mean must be a finite number > 0"),
    (one, one, math.inf, "mean must be a finite number > 0"),
    (one, one, 2.0, r"log_s\(0\) must be -log\(mean\)"),
    (lambda m: cmath.log(m), lambda m: 1 / m, 1.0, r"log_s\(0\) must be"),
    (lambda m: complex("nan"), one, 1.0, r"log_s\(0\) must be"),
    (lambda m: m, lambda m: 1.0, 1.0, "not the log of the S-transform of a positive law"),
    (lambda m: -m, lambda m: -1.1, 1.0, "dlog_s must be the derivative"),
    (lambda m: -1j * m, lambda m: -1j, 1.0, "finite and real"),
    (lambda m: 0j if abs(m) < 5 else complex("inf"), one, 1.0, "must be finite in the lower"),
])
def test_bad_s_transforms(log_s, dlog_s, mean, words):
    with pytest.raises(ValueError, match=words):
        fs.ImplicitLaw(log_s, dlog_s, mean=mean)


@pytest.mark.parametrize(("log_s", "dlog_s"), [
    # the right slope at 0, but no law: S grows like e^(m^2)
    (lambda m: -m + m * m, lambda m: -1 + 2 * m),
    # a law with negative support: the semicircle on [-1, 3]
    (lambda m: cmath.log(2 / (1 + cmath.sqrt(1 + 4 * m))),
     lambda m: -2 / (cmath.sqrt(1 + 4 * m) * (1 + cmath.sqrt(1 + 4 * m)))),
])
def test_functions_that_belong_to_no_law(log_s, dlog_s):
    with pytest.raises((fs.ConvergenceError, ValueError), match="S-transform of"):
        fs.ImplicitLaw(log_s, dlog_s, mean=1.0)


def test_exceptions_of_the_function_come_through():
    def log_s(m):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fs.ImplicitLaw(log_s, one, mean=1.0)


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.ImplicitLaw(marchenko_log_s, marchenko_dlog_s, mean=1.0) ** 2
