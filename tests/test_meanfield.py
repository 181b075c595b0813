"""Mean-field recurrences against published values, exact curves, mpmath twins and real networks."""

import math

import backprop_model
import mpmath as mp
import numpy as np
import pytest

import fastspec as fs
from fastspec.meanfield import ResidualMeanField

PSI = {alpha: fs.activation("alpha_relu", alpha=alpha) for alpha in (0.8, 0.9, 1.5)}


def field(activation, block, sigma_w, sigma_b=0.0, sigma_v=1.0, sigma_a=0.0):
    return ResidualMeanField(activation, block, sigma_w=sigma_w, sigma_b=sigma_b,
                             sigma_v=sigma_v, sigma_a=sigma_a)


# p_L, gamma_L, e_L, chi_0/chi_L, chi_w(1)/chi_w(L) at p0 = 1, gamma0 = .4, by an independent code.
GOLDEN = [
    (field("tanh", "reduced", 1, .5), 20, 14.591639, 5.3239857, .36486550, 55.844751, 8.607765),
    (field("tanh", "reduced", 1, .5), 100,
     84.795784, 19.811251, .23363485, 30586.680, 1880.1333),
    (field("tanh", "full", 1.3, .5, .9, .3), 50,
     38.962090, 16.871559, .43302499, 1627.9488, 154.33454),
    (field("erf", "full", 1, .4, 1, .3), 50,
     47.069351, 19.083724698, .40543845, 2288.1014, 185.62662),
    (field("relu", "full", 1, .5, .8, .3), 20,
     394.40293, 324.32253, .82231266, 257.91620, .65422287),
    (field(PSI[0.8], "full", 1, .4, .8, .3), 50,
     790.36540, 696.41493, .88113034, 739.28846, 2.8292155),
    (field("relu", "reduced", .8, .3), 12, 852.04752, 840.45271, .98639183, 27.982543, .046547999),
]


@pytest.mark.parametrize(("net", "depth", "p", "gamma", "e", "chi", "chi_w"), GOLDEN,
                     ids=lambda value: repr(value) if hasattr(value, "block") else None)
def test_golden_values(net, depth, p, gamma, e, chi, chi_w):
    run = net.run(depth, gamma0=0.4)
    got = [run.p[-1], run.gamma[-1], run.e[-1], run.chi[0], run.chi_w[1] / run.chi_w[-1]]
    # The values are given to 8 digits: half a unit of the last.
    assert got == pytest.approx([p, gamma, e, chi, chi_w], rel=6e-8, abs=0)


def test_relu_growth_is_exact():
    net = field("relu", "full", 1.1, 0.5, 0.8, 0.3)
    run = net.run(60, p0=2.0, gamma0=-0.7)
    growth, source = 1 + 0.64 * 1.21 / 2, 0.64 * 0.25 / 2 + 0.09
    layer = np.arange(61)
    p = growth**layer * 2.0 + source * (growth**layer - 1) / (growth - 1)
    chi = growth ** (60.0 - layer)
    q = 1.21 * p[:-1] + 0.25
    for got, exact in [
        (run.p, p), (run.chi, chi), (run.q[1:], q), (run.chi_a[1:], chi[1:]),
        (run.chi_b[1:], 0.64 * chi[1:] / 2), (run.chi_w[1:], 0.64 * chi[1:] / 2 * p[:-1]),
        (run.chi_v[1:], chi[1:] * q / 2),
    ]:
        assert got == pytest.approx(exact, rel=1e-12, abs=0)


def test_relu_of_ten_thousand_layers_in_logs():
    run = field("relu", "full", 1.0, 0.5, 0.8, 0.3).run(10_000, gamma0=1.0)
    growth, source = mp.mpf(1) + mp.mpf(0.8) ** 2 / 2, mp.mpf(0.8) ** 2 / 8 + mp.mpf(0.3) ** 2
    for layer in (100, 1000, 10_000):
        with mp.workdps(30):
            exact = mp.log(growth**layer + source * (growth**layer - 1) / (growth - 1))
            chi = (10_000 - layer) * mp.log(growth)
        assert run.log_p[layer] == pytest.approx(float(exact), rel=1e-12, abs=0)
        assert run.log_chi[layer] == pytest.approx(float(chi), rel=1e-12, abs=0)
    assert run.p[-1] == math.inf and run.chi[0] == math.inf and run.log_chi[-1] == 0.0
    assert run.log_chi_ratio == pytest.approx(float(10_000 * mp.log(growth)), rel=1e-12, abs=0)


def relu_twin(net, depth, p0, gamma0):
    """p and s of networks with ReLU to 80 digits, from W = (q/2) J_1(c)."""
    with mp.workdps(80):
        w, b, v, a = (mp.mpf(x) ** 2 for x in (
            net.sigma_w, net.sigma_b, net.sigma_v, net.sigma_a))
        skip, mean = int(net.block != "vanilla"), mp.mpf(0)
        p, gamma, rows = mp.mpf(p0), mp.mpf(gamma0), []
        for _ in range(depth):
            q = w * p + b
            c = (w * gamma + b) / q
            pair = (mp.sqrt(1 - c * c) + (mp.pi - mp.acos(c)) * c) / mp.pi * q / 2
            phi = mp.sqrt(q / (2 * mp.pi))
            cross = 2 * mean * phi if net.block == "reduced" else 0
            p, gamma = skip * p + v * q / 2 + a + cross, skip * gamma + v * pair + a + cross
            mean = skip * mean + phi if net.block != "full" else mean
            rows.append((p, p - gamma, mean))
    return rows


@pytest.mark.parametrize("net", [
    field("relu", "full", 1.0, 0.5, 0.8, 0.3), field("relu", "reduced", 0.8, 0.3),
    field("relu", "vanilla", 1.5, 0.2), field("relu", "reduced", 2.0)], ids=repr)
def test_relu_angles_keep_their_digits(net):
    depth = 120     # reduced: 1 - e is down to 1e-19
    run, twin = net.run(depth, p0=1.5, gamma0=-0.3), relu_twin(net, depth, 1.5, -0.3)
    for layer in (1, 2, 10, 60, depth):
        p, s, mean = twin[layer - 1]
        assert run.p[layer] == pytest.approx(float(p), rel=1e-12, abs=0)
        assert run.s[layer] == pytest.approx(float(s), rel=1e-12, abs=0)
        assert run.one_minus_e[layer] == pytest.approx(float(s / p), rel=1e-12, abs=0)
        assert run.mean[layer] == pytest.approx(float(mean), rel=1e-12, abs=0)


def test_angles_below_the_smallest_double_go_on():
    # 1 - e shrinks by .690637 per layer, the ratio of growth factors of chi and p (G = 2.171909).
    run = field("relu", "reduced", 1.0).run(3000)
    log_angle = run.log_s - run.log_p
    assert run.one_minus_e[-1] == 0.0 and run.e[-1] == 1.0
    assert log_angle[-1] < -1000
    root = np.roots([1.0, -1.0, -1.5, 1.5 - 1.0 / math.pi]).real.max()
    steps = np.diff(log_angle[2500:])
    assert steps == pytest.approx(np.full(steps.size, math.log(1.5 / root**2)), rel=1e-11, abs=0)


def hermite_twin(phi, slope, net, depth, p0, gamma0):
    """p and gamma by Mehler's sum over Hermite coefficients, chi by E phi'^2; trapezoid sums."""
    step, terms = mp.mpf(1) / 16, 60
    z = [step * k for k in range(-208, 209)]
    weight = [step * mp.npdf(x) for x in z]
    hermite = [[mp.mpf(1) for _ in z], list(z)]
    for k in range(1, terms):
        hermite.append([(x * b - mp.sqrt(k) * a) / mp.sqrt(k + 1)
                        for x, a, b in zip(z, hermite[-2], hermite[-1], strict=True)])
    w, b, v, a = (mp.mpf(x) ** 2 for x in (net.sigma_w, net.sigma_b, net.sigma_v, net.sigma_a))
    p, gamma, mean, rows = mp.mpf(p0), mp.mpf(gamma0), mp.mpf(0), []
    for _ in range(depth):
        q = w * p + b
        c, root = (w * gamma + b) / q, mp.sqrt(q)
        f = [phi(root * x) for x in z]
        coefficient = [mp.fsum(u * y * h for u, y, h in zip(weight, f, row, strict=True))
                       for row in hermite]
        pair = mp.fsum(c**k * y * y for k, y in enumerate(coefficient))
        second = mp.fsum(u * y * y for u, y in zip(weight, f, strict=True))
        cross = 2 * mean * coefficient[0] if net.block == "reduced" else 0
        p, gamma = p + v * second + a + cross, gamma + v * pair + a + cross
        mean = mean + coefficient[0]
        factor = 1 + v * w * mp.fsum(u * slope(root * x) ** 2
                                     for u, x in zip(weight, z, strict=True))
        rows.append((p, gamma, factor))
    return rows


def mp_gelu(x):
    return x * mp.ncdf(x)


@pytest.mark.parametrize(("net", "phi", "slope"), [
    (field("tanh", "full", 0.7, 0.3, 0.9, 0.2), mp.tanh, lambda x: mp.sech(x) ** 2),
    (field("gelu", "reduced", 0.6, 0.2), mp_gelu, lambda x: mp.ncdf(x) + x * mp.npdf(x)),
    (field("gelu", "full", 0.8, 0.2), mp_gelu, lambda x: mp.ncdf(x) + x * mp.npdf(x)),
], ids=["tanh", "gelu reduced", "gelu full"])
def test_twins_in_mpmath(net, phi, slope):
    with mp.workdps(25):
        twin = hermite_twin(phi, slope, net, 4, 1.0, 0.2)
        log_ratio = mp.log(mp.fprod(factor for *_, factor in twin))
    run = net.run(4, gamma0=0.2)
    for layer, (p, gamma, _) in enumerate(twin, start=1):
        assert run.p[layer] == pytest.approx(float(p), rel=1e-12, abs=0)
        assert run.gamma[layer] == pytest.approx(float(gamma), rel=1e-12, abs=0)
    assert run.log_chi_ratio == pytest.approx(float(log_ratio), rel=1e-12, abs=0)


@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(1.5, 0.3), (0.6, 0.0), (3.0, 0.0)])
def test_vanilla_erf_in_mpmath(sigma_w, sigma_b):
    net = field("erf", "vanilla", sigma_w, sigma_b)
    run = net.run(30, p0=0.7, gamma0=0.5)
    with mp.workdps(50):
        w, b = mp.mpf(sigma_w) ** 2, mp.mpf(sigma_b) ** 2
        p, gamma, log_chi = mp.mpf(0.7), mp.mpf(0.5), mp.mpf(0)
        for _ in range(30):
            q, lam, before = w * p + b, w * gamma + b, p
            p = 2 / mp.pi * mp.asin(2 * q / (1 + 2 * q))
            gamma = 2 / mp.pi * mp.asin(2 * lam / (1 + 2 * q))
            slope = 4 / mp.pi / mp.sqrt(1 + 4 * q)
            log_chi += mp.log(w * slope)
        s, one_minus_e = p - gamma, 1 - gamma / p
    assert run.log_p[-1] == pytest.approx(float(mp.log(p)), rel=1e-12, abs=0)
    # The slope of the correlation map adds up rounding over 30 layers.
    assert run.log_s[-1] == pytest.approx(float(mp.log(s)), rel=1e-12, abs=1e-12)
    assert run.one_minus_e[-1] == pytest.approx(float(one_minus_e), rel=2e-12, abs=0)
    assert run.log_chi_ratio == pytest.approx(float(log_chi), rel=1e-12, abs=0)
    assert run.chi_b[-1] == pytest.approx(float(slope), rel=1e-12, abs=0)
    assert run.chi_w[-1] == pytest.approx(float(slope * before), rel=1e-12, abs=0)


@pytest.mark.parametrize(("activation", "block"), [
    ("relu", "full"), ("relu", "reduced"), ("relu", "vanilla"), (PSI[0.9], "vanilla"),
    ("linear", "reduced"), (fs.activation("leaky_relu", slope=-3.0), "reduced")], ids=repr)
@pytest.mark.parametrize("scale", [1e-140, 1e-60, 1e30, 1e80, 1e290])
def test_scaled_inputs_of_homogeneous_networks(activation, block, scale):
    """Without biases everything goes with a power of the input's scale, near and far alike."""
    net = field(activation, block, 1.2)
    degree = net.activation.parameter if net.activation.name == "alpha_relu" else 1.0
    one, other = net.run(25, gamma0=0.3), net.run(25, p0=scale, gamma0=0.3 * scale)
    power = degree ** np.arange(26) if block == "vanilla" else np.ones(26)
    expected = one.log_p + power * math.log(scale)
    assert other.log_p == pytest.approx(expected, rel=1e-13, abs=1e-12)
    assert other.one_minus_e == pytest.approx(one.one_minus_e, rel=1e-12, abs=0)
    # q goes with scale^(degree^(l-1)), E phi'^2 with q^(degree - 1).
    slopes = (degree - 1.0) * math.log(scale) * power / degree
    expected = one.log_chi + np.array([np.sum(slopes[layer + 1:]) for layer in range(26)])
    assert other.log_chi == pytest.approx(expected, rel=1e-12, abs=1e-11)
    assert other.log_chi_b[1:] - other.log_chi[1:] == pytest.approx(
        (one.log_chi_b - one.log_chi + slopes)[1:], rel=1e-12, abs=1e-11)
    if degree == 1.0:
        assert other.mean / math.sqrt(scale) == pytest.approx(one.mean, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", ["gelu", "silu", "elu", "softplus", "mish"])
@pytest.mark.parametrize("block", ["reduced", "full"])
def test_huge_signals_see_a_relu(name, block):
    got = field(name, block, 1.0).run(10, p0=1e60, gamma0=3e59)
    exact = field("relu", block, 1.0).run(10, p0=1e60, gamma0=3e59)
    for quantity in ("log_p", "log_s", "log_chi", "log_chi_w"):
        assert getattr(got, quantity)[1:] == pytest.approx(
            getattr(exact, quantity)[1:], rel=1e-13, abs=1e-13)
    assert got.mean == pytest.approx(exact.mean, rel=1e-12, abs=0)


def test_tiny_signals_see_a_line():
    got = field("tanh", "vanilla", 0.5).run(400, p0=1e-30, gamma0=2e-31)
    assert got.log_p[-1] == pytest.approx(math.log(1e-30) + 400 * math.log(0.25), rel=1e-13)
    assert got.p[-1] == pytest.approx(0.0, abs=1e-250)
    assert got.e[-1] == pytest.approx(0.2, rel=1e-11)
    assert got.log_chi_ratio == pytest.approx(400 * math.log(0.25), rel=1e-13)
    gelu = field("gelu", "vanilla", 0.1).run(300, p0=1e-30)      # gelu = h/2 near 0
    assert gelu.log_p[-1] == pytest.approx(math.log(1e-30) + 300 * math.log(0.0025), rel=1e-13)


def test_signals_that_grow_from_tiny_ones_return_to_doubles():
    run = field("tanh", "vanilla", 2.0).run(200, p0=1e-60)
    settled = field("tanh", "vanilla", 2.0).run(200)
    assert run.p[-1] == pytest.approx(settled.p[-1], rel=1e-12)
    assert run.log_p[50] == pytest.approx(math.log(1e-60) + 50 * math.log(4.0), rel=1e-12)


def test_doubly_exponential_growth():
    run = field(PSI[1.5], "reduced", 1.0, 0.3).run(1000)
    assert run.log_p[-1] > 1e170
    # ln p' = 1.5 ln p + const, and e tends to the root of J(e) = e inside (0, 1).
    assert run.log_p[-1] / run.log_p[-2] == pytest.approx(1.5, rel=1e-13)

    def excess(c):
        a, b = -mp.mpf(0.75), mp.mpf(1 - 1.5) / 2
        even = 2**1.5 * mp.gamma(1.25) ** 2 / (4 * mp.pi) * mp.hyp2f1(a, a, 0.5, c * c)
        odd = 2**2.5 * mp.gamma(1.75) ** 2 / (4 * mp.pi) * c * mp.hyp2f1(b, b, 1.5, c * c)
        return (even + odd) / (2**0.5 * mp.gamma(2) / mp.sqrt(mp.pi)) - c

    assert run.e[-1] == pytest.approx(float(mp.findroot(excess, 0.71)), rel=1e-10)
    with pytest.raises(OverflowError, match=r"log p .* at layer 17\d\d of 3000"):
        field(PSI[1.5], "reduced", 1.0, 0.3).run(3000)


def test_conventions():
    run = field("tanh", "reduced", 1.0, 0.5).run(5, gamma0=0.4)
    assert run.p[0] == 1.0 and run.gamma[0] == 0.4 and run.chi[5] == 1.0
    for name in ("q", "lam", "c", "chi_w", "chi_b", "log_q", "log_chi_w"):
        column = getattr(run, name)
        assert math.isnan(column[0]) and np.all(np.isfinite(column[1:])), name
    for name in ("chi_v", "chi_a", "log_chi_v", "log_chi_a"):
        assert np.all(np.isnan(getattr(run, name))), name
    full = field("tanh", "full", 1.0).run(5)
    assert full.chi_a[1:].tolist() == full.chi[1:].tolist() and math.isnan(full.chi_a[0])
    assert not run.p.flags.writeable and len(run) == run.depth == 5
    assert repr(run).startswith("MeanFieldRun(5 reduced blocks: ln p 0 .. ")
    assert run.to_dict()["p"] == run.p.tolist()
    assert run.to_dict()["log_chi_ratio"] == run.log_chi_ratio == run.log_chi[0]
    assert np.allclose(run.c[1:], run.lam[1:] / run.q[1:], rtol=1e-14, atol=0)
    assert np.allclose(run.e, run.gamma / run.p, rtol=1e-14, atol=0)
    assert np.allclose(run.s, run.p - run.gamma, rtol=1e-14, atol=0)


def test_equal_and_opposite_inputs():
    equal = field("gelu", "reduced", 1.0, 0.5).run(20, gamma0=1.0)
    assert np.all(equal.s == 0.0) and np.all(equal.e == 1.0) and np.all(equal.log_s == -np.inf)
    opposite = field("tanh", "full", 1.0).run(20, gamma0=-1.0)
    assert opposite.e == pytest.approx(-np.ones(21), rel=1e-13)
    single = field("tanh", "full", 1.0).run(20, gamma0=0.3)
    assert single.p == pytest.approx(opposite.p, rel=1e-15)


def test_idle_branches():
    silent = field("tanh", "full", 1.0, 0.5, 0.0, 0.3).run(30, gamma0=0.4)
    assert silent.p == pytest.approx(1.0 + 0.09 * np.arange(31), rel=1e-13)
    assert silent.s == pytest.approx(np.full(31, 0.6), rel=1e-13)
    deaf = field("relu", "full", 0.0, 2.0, 0.5, 0.3).run(30, gamma0=0.4)
    assert deaf.p == pytest.approx(1.0 + (0.25 * 2.0 + 0.09) * np.arange(31), rel=1e-13)
    assert deaf.s == pytest.approx(np.full(31, 0.6), rel=1e-13)
    for run in (silent, deaf):
        assert run.chi.tolist() == [1.0] * 31
    from_zero = field("relu", "full", 1.0, 0.6).run(4, p0=0.0)
    assert from_zero.q[1] == pytest.approx(0.36, rel=1e-15) and np.all(from_zero.s == 0.0)
    assert from_zero.p == pytest.approx(0.36 * (1.5 ** np.arange(5) - 1), rel=1e-13)
    assert from_zero.chi_w[1] == 0.0 and from_zero.log_chi_w[1] == -math.inf
    nothing = field("tanh", "reduced", 1.0).run(3, p0=0.0)
    assert nothing.p.tolist() == [0.0] * 4 and np.all(np.isnan(nothing.e))
    assert nothing.log_chi_ratio == pytest.approx(3 * math.log(2.0))


def test_mean_of_the_input():
    run = field("relu", "reduced", 0.5).run(2, p0=2.0, gamma0=1.0, mean0=-0.9)
    q, phi = 0.5, math.sqrt(0.5 / (2 * math.pi))
    assert run.mean[:2] == pytest.approx([-0.9, -0.9 + phi], rel=1e-14)
    assert run.p[1] == pytest.approx(2.0 + q / 2 - 1.8 * phi, rel=1e-14)
    odd = field("tanh", "reduced", 0.5)
    assert odd.run(3, mean0=0.5).p.tolist() == odd.run(3).p.tolist()


def test_callables_take_the_mean_form():
    relu = fs.activation(lambda h: np.maximum(h, 0.0), lambda h: 1.0 * (h > 0.0), kinks=(0.0,))
    got = field(relu, "reduced", 0.8, 0.3).run(4, gamma0=0.4)
    built_in = field("relu", "reduced", 0.8, 0.3).run(4, gamma0=0.4)
    assert got.p == pytest.approx(built_in.p, rel=1e-11)
    assert got.gamma == pytest.approx(built_in.gamma, rel=1e-9)
    tanh = fs.activation(np.tanh, lambda h: 1.0 / np.cosh(np.clip(h, -300, 300)) ** 2)
    got = field(tanh, "reduced", 0.8, 0.3).run(4, gamma0=1.0)
    assert got.log_chi == pytest.approx(field("tanh", "reduced", 0.8, 0.3).run(4).log_chi,
                                        rel=1e-10, abs=1e-14)


@pytest.mark.parametrize(("change", "message"), [
    ({"sigma_w": -1.0}, "sigma_w must be a finite number >= 0, got -1.0"),
    ({"sigma_b": math.nan}, "sigma_b must be a finite number"),
    ({"sigma_w": 1e80}, "sigma_w must be at most 1e\\+75"),
    ({"sigma_v": 2.0}, "sigma_v goes with block='full' only: a reduced block has no v"),
    ({"block": "vanilla", "sigma_a": 0.1}, "sigma_a goes with block='full' only"),
    ({"block": "fall"}, "did you mean 'full'"),
    ({"activation": "tan"}, "did you mean 'tanh'"),
])
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        ResidualMeanField(**{"activation": "tanh", "block": "reduced", "sigma_w": 1.0, **change})


@pytest.mark.parametrize(("change", "message"), [
    ({"depth": 0}, "depth must be a whole number >= 1"),
    ({"p0": -1.0}, "p0 must be a finite number >= 0"),
    ({"p0": 1e-200}, "p0 must be 0 or at least 1e-150"),
    ({"gamma0": 1.5}, "gamma0 must lie between -p0 and p0 = 1, got 1.5"),
    ({"mean0": 0.9}, "mean0 must have a square of at most"),
])
def test_bad_inputs(change, message):
    with pytest.raises(ValueError, match=message):
        field("tanh", "reduced", 1.0).run(**{"depth": 3, **change})


@pytest.mark.parametrize("alpha", [0.3, 0.5])
def test_gradients_without_second_moment(alpha):
    net = field(fs.activation("alpha_relu", alpha=alpha), "full", 1.0)
    with pytest.raises(ValueError, match="second moment of gradients is infinite.*alpha > 1/2"):
        net.run(3)


CONFIGURATIONS = [
    (field("tanh", "reduced", 1.0, 0.5), 25), (field("tanh", "full", 1.3, 0.5, 0.9, 0.3), 20),
    (field("erf", "full", 1.0, 0.4, 1.0, 0.3), 20), (field("relu", "full", 1.0, 0.5, 0.8, 0.3), 15),
    (field(PSI[0.9], "full", 1.0, 0.4, 0.8, 0.3), 15), (field("relu", "reduced", 0.8, 0.3), 12),
]


@pytest.mark.slow
@pytest.mark.parametrize(("net", "depth"), CONFIGURATIONS, ids=repr)
def test_real_networks(net, depth):
    """Every quantity at every layer within 4 standard errors of 32 networks of width 500."""
    nets = 32
    measured = backprop_model.sample(net, depth, width=500, nets=nets, seed=1, gamma0=0.4)
    run = net.run(depth, gamma0=0.4)
    compared = 0
    for name, values in measured.items():
        theory = getattr(run, name)
        error = np.std(values, axis=0, ddof=1) / math.sqrt(nets)
        spread = np.isfinite(theory) & (error > 1e-12 * np.abs(theory))
        z = (np.mean(values, axis=0) - theory)[spread] / error[spread]
        assert np.all(np.abs(z) < 4.0), (name, np.abs(z).max())
        compared += z.size
    assert compared > 7 * depth


def test_picture_of_a_run_has_the_logarithms():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    run = ResidualMeanField("relu", "full", sigma_w=1.0).run(depth=3000)
    axes = run.plot(Figure().add_subplot())
    curves = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert len(curves) == 4
    np.testing.assert_array_equal(curves[r"activations, $\ln\,p$"], run.log_p)
    np.testing.assert_array_equal(curves[r"gradients, $\ln\,\chi/\chi_L$"], run.log_chi)
    assert "layer" in axes.get_xlabel()
