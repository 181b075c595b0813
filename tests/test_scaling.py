"""The scaling calculus against closed forms, explicit matrices and simulated networks."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
import scaling_model as model
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fastspec import activation
from fastspec import scaling as sc
from fastspec._scaling_analyze import input_signal, varsigma, walk
from fastspec._scaling_elementwise import Source, through
from fastspec._scaling_factors import RULES, Gradient, Signal, weight_gradient

MLP = [sc.Linear(784, 384), sc.ReLU(), sc.Linear(384, 64), sc.ReLU(), sc.Linear(64, 512),
       sc.ReLU(), sc.Linear(512, 10)]


def relative(report, column="gamma"):
    """A column of the layers relative to the last layer's."""
    values = [getattr(op, column) for op in report.layers]
    return [value / values[-1] for value in values]


def factor_of(op, shape=(4, 12, 12), before=(), **options):
    """What one operation puts on varsigma, after ``before``."""
    return sc.analyze([*before, op], shape, **options).ops[len(before)].factor



# --- weight scaling of the classical initialisations ----------------------------------------------

@pytest.mark.parametrize(("scheme", "expected"), [
    ("geometric", [1, 1, 1, 1]), ("fan_in", [0.040, 0.117, 0.002, 1]),
    ("fan_out", [25.1, 8.53, 409.6, 1]), ("arithmetic", [0.085, 0.153, 0.190, 1])])
def test_gamma_of_the_classical_initialisations(scheme, expected):
    report = sc.analyze(MLP, (784,), init=scheme)
    assert relative(report) == pytest.approx(expected, rel=0.003, abs=0.0006)
    assert relative(report, "nu") == pytest.approx(relative(report), rel=1e-12, abs=0)
    vs = [op.varsigma for op in report.ops]
    assert vs == pytest.approx([vs[0]] * len(vs), rel=1e-12, abs=0)


def test_kernels_enter_as_k_for_geometric_and_as_k_squared_for_fan_in():
    ops = [sc.Conv2d(3, 24, 11, padding=5, padding_mode="circular"), sc.ReLU(),
           sc.Conv2d(24, 32, 5, 2, 2, padding_mode="circular"), sc.ReLU(), sc.Conv2d(32, 10, 1)]
    assert relative(sc.analyze(ops, (3, 16, 16))) == pytest.approx([1, 1, 1], rel=1e-12, abs=0)
    fans = relative(sc.analyze(ops, (3, 16, 16), init="fan_in"))
    assert fans == pytest.approx([3 / 24 * 121 / 3.2, 24 / 32 * 25 / 3.2, 1], rel=1e-12, abs=0)


def test_bias_scaling_with_several_kernel_sizes():
    """c k / 2 per layer: the product of k^2 of the layers behind (measured 1910 77 8.6 8.9 1)."""
    biases = relative(sc.analyze(CONVNET, (3, 16, 16)), "gamma_bias")
    assert biases == pytest.approx([2025, 81, 9, 9, 1], rel=1e-12, abs=0)


def test_bias_scaling_is_constant_with_one_kernel_size():
    ops = [sc.Conv2d(3, 64, 3, padding=1, padding_mode="circular"), sc.ReLU(),
           sc.Conv2d(64, 256, 3, padding=1, padding_mode="circular"), sc.ReLU(),
           sc.Conv2d(256, 10, 3, padding=1, padding_mode="circular")]
    biases = relative(sc.analyze([sc.ReLU(), *ops], (3, 8, 8), c=2 / 3), "gamma_bias")
    assert biases == pytest.approx([1, 1, 1], rel=1e-12, abs=0)


def test_absolute_values():
    """One layer: E[DW^2] = E[x^2] E[Dy^2], E[Dx^2] = n_out v E[Dy^2], E[y^2] = n_in v E[x^2]."""
    report = sc.analyze([sc.Linear(6, 4, name="a")], (6,), init={"a": 0.5},
                        input_second_moment=3.0, output_gradient=0.1)
    a = report["a"]
    assert (a.forward_second_moment, report.output_second_moment) == (3.0, 9.0)
    assert a.backward_second_moment == pytest.approx(0.2, rel=1e-14)
    assert a.varsigma == pytest.approx(6 * 3.0 * 0.2, rel=1e-14)
    assert a.nu == pytest.approx(0.3 / 0.5, rel=1e-14)
    assert a.gamma == pytest.approx(a.nu, rel=1e-14)
    assert a.gamma_bias == pytest.approx(0.1 / 9.0, rel=1e-14)
    assert (report.output_shape, report.output_gradient) == ((4,), 0.1)


def test_output_moments():
    """1.095 and 17.7: sqrt(n_0 / n_L), doubled because raw inputs are not halved."""
    conv = [sc.Conv2d(a, b, 3, padding=1, padding_mode="circular")
            for a, b in [(3, 64), (64, 256), (256, 16), (16, 10)]]
    ops = [conv[0], sc.ReLU(), conv[1], sc.ReLU(), conv[2], sc.ReLU(), conv[3]]
    assert sc.analyze(ops, (3, 8, 8), c=2 / 3).output_second_moment == pytest.approx(
        2 * math.sqrt(0.3), rel=1e-12)
    assert sc.analyze(MLP, (784,)).output_second_moment == pytest.approx(17.7, abs=0.05)


# --- factors of single operations -----------------------------------------------------------------

def largest(k, power, start=-12.0):
    """E[M^power; M > start] of the largest of k standard normal numbers."""
    return quad(lambda x: x**power * k * norm.pdf(x) * norm.cdf(x) ** (k - 1), start, 12.0,
                epsabs=1e-13, limit=200)[0]


def test_average_pooling():
    for k, expected in ((2, 1.955), (3, 3.546), (8, 21.05)):
        op = sc.AvgPool2d(k)
        shape = (4, 3 * k, 2 * k)
        assert factor_of(op, shape) == pytest.approx(1.0, rel=1e-12)
        assert factor_of(op, shape, [sc.ReLU()]) == pytest.approx(expected, abs=0.0006 * k**2 / 4)
        assert factor_of(op, shape, [sc.ReLU()]) == pytest.approx(1 + (k * k - 1) / math.pi,
                                                                  rel=1e-12)


@pytest.mark.parametrize(("k", "symmetric", "rectified"), [
    (2, 1.5513, 3.088), (3, 2.563, 5.125)])
def test_max_pooling(k, symmetric, rectified):
    op = sc.MaxPool2d(k)
    assert factor_of(op) == pytest.approx(symmetric, abs=0.0006)
    assert factor_of(op) == pytest.approx(largest(k * k, 2), rel=1e-11)
    assert factor_of(op, before=[sc.ReLU()]) == pytest.approx(rectified, abs=0.0016)
    assert factor_of(op, before=[sc.ReLU()]) == pytest.approx(2 * largest(k * k, 2, 0.0), rel=1e-11)
    assert factor_of(sc.MaxPool2d(2)) == pytest.approx(1 + math.sqrt(3) / math.pi, rel=1e-12)


def test_max_pooling_windows_at_the_border_hold_fewer_cells():
    """5 x 5 in windows of 3, padding 1, stride 2: corners 4 cells, edges 6, middle 9."""
    mean = (4 * largest(4, 2) + 4 * largest(6, 2) + largest(9, 2)) / 9
    assert factor_of(sc.MaxPool2d(3, 2, 1), (1, 5, 5)) == pytest.approx(mean, rel=1e-11)


def test_max_pooling_of_correlated_cells():
    r = 0.4
    rng = np.random.default_rng(1)
    h = math.sqrt(r) * rng.standard_normal((400_000, 1)) + math.sqrt(1 - r) * rng.standard_normal(
        (400_000, 4))
    m = np.maximum(h, 0.0).max(axis=1)
    report = sc.analyze([sc.ReLU(), sc.MaxPool2d(2), sc.Flatten()], (3, 8, 8), input_correlation=r)
    assert report.ops[2].forward_second_moment == pytest.approx(np.mean(m**2), rel=0.006)
    slope = np.mean(h.max(axis=1) > 0)
    pooled, relu = report.ops[1], report.ops[0]
    assert relu.backward_second_moment / pooled.backward_second_moment == pytest.approx(
        slope, rel=0.002)


def test_max_pooling_and_relu_commute():
    """A gradient that max-pooling hands back sits where the ReLU lets it through."""
    conv = sc.Conv2d(3, 8, 3)
    one = sc.analyze([conv, sc.ReLU(), sc.MaxPool2d(2)], (3, 10, 10))
    exact = largest(4, 2, 0.0) / (1 - 2**-4)
    assert one.ops[1].factor * one.ops[2].factor == pytest.approx(exact, rel=1e-10)
    assert one.ops[1].flag == "gradient picked by max-pool"
    two = sc.analyze([conv, sc.MaxPool2d(2), sc.ReLU()], (3, 10, 10))
    assert two.ops[1].factor * two.ops[2].factor == pytest.approx(exact, rel=0.05)
    assert two.ops[2].flag == "input not symmetric"


def test_max_pooling_with_overlapping_windows_and_correlated_gradients():
    """sum Dx^2 over windows that share their maximum, against 3000 simulated images."""
    op, r = sc.MaxPool2d(3, 2, 1), 0.7
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3000, 1, 9, 9))
    y, back = model.pool(op, x, None, rng, {})
    dy = math.sqrt(r) * rng.standard_normal((3000, 1, 1, 1)) + math.sqrt(1 - r) * (
        rng.standard_normal(y.shape))
    dx = back(dy).reshape(3000, -1)
    signal = Signal((1, 9, 9), 1.0, 0.0, 0.0)
    rule = RULES[sc.MaxPool2d]
    made = rule.backward(op, signal, rule.forward(op, signal, None), Gradient(1.0, r), None)
    moment, correlation = mean_moments(dx.T @ dx / 3000, 1)
    assert made.moment == pytest.approx(moment, rel=0.02)
    assert made.correlation == pytest.approx(correlation, rel=0.05)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "tanh", "gelu", "hard_tanh"])
@pytest.mark.parametrize(("mean", "shared"), [(0.0, 0.3), (0.5, 0.3), (-0.8, 0.9), (0.5, 0.0)])
def test_correlation_behind_activations(name, mean, shared):
    """E phi phi' and E phi' phi' of two Gaussians with mean, by simulation."""
    phi = activation(name, **({"slope": -0.6} if name == "leaky_relu" else {}))
    rng = np.random.default_rng(4)
    g, e, f = rng.standard_normal((3, 500_000))
    h, k = (mean + 1.2 * (math.sqrt(shared) * g + math.sqrt(1 - shared) * x) for x in (e, f))
    made = through(Source(phi, 1.44, mean, shared))
    assert made.correlation * made.moment == pytest.approx(np.mean(phi(h) * phi(k)), abs=0.006)
    slopes = np.mean(phi.derivative(h) * phi.derivative(k))
    assert made.slopes.correlation * made.slopes.moment == pytest.approx(slopes, abs=0.004)


def test_dropout_decorrelates():
    """Pooling of dropped-out entries, forward, and upsampling with such gradients, backward."""
    pooled = factor_of(sc.AvgPool2d(2), before=[sc.ReLU(), sc.Dropout(0.4)])
    assert pooled == pytest.approx(1 + 3 * 0.6 / math.pi, rel=1e-12)
    ops = [sc.Upsample(2), sc.Dropout(0.4), sc.AvgPool2d(12), sc.Flatten()]
    rows = model.simulate(ops, (3, 6, 6), [], nets=200)
    report = sc.analyze(ops, (3, 6, 6))
    assert report.ops[0].backward_second_moment == pytest.approx(rows[0, 1], rel=0.05)


def test_relu_after_relu_does_nothing():
    report = sc.analyze([sc.ReLU(), sc.Scale(2.0), sc.ReLU(), sc.MaxPool2d(2)], (2, 6, 6))
    assert report.ops[2].factor == 1.0
    assert report.ops[3].factor == pytest.approx(2 * largest(4, 2, 0.0), rel=1e-10)
    strided = sc.analyze([sc.ReLU(), sc.Stride(2), sc.MaxPool2d(2)], (2, 8, 8)).ops[2]
    assert strided.factor == pytest.approx(2 * largest(4, 2, 0.0), rel=1e-10)


@pytest.mark.parametrize(("name", "expected"), [
    ("tanh", 0.849), ("erf", 0.816), ("sigmoid", 6.54), ("gelu", 0.933), ("elu", 0.965),
    ("silu", 0.938), ("relu", 1.0), ("linear", 1.0)])
def test_activations(name, expected):
    report = sc.analyze([sc.Activation(name)], (10,))
    assert report.ops[0].factor == pytest.approx(expected, abs=0.006 if expected > 2 else 0.0006)
    assert (report.ops[0].flag is None) == (name in ("relu", "linear"))


def test_activation_factor_depends_on_the_moment_at_hand():
    small, large = (sc.analyze([sc.Activation("tanh")], (9,), input_second_moment=q).ops[0].factor
                    for q in (1e-4, 25.0))
    assert small == pytest.approx(1.0, abs=1e-3) and large < 0.4


def test_input_that_is_not_symmetric():
    """ReLU of N(mu, s^2): E[f^2] and P(x > 0) by integration."""
    mu, second = 0.6, 1.36
    top = quad(lambda x: x * x * norm.pdf(x, mu, 1.0), 0, 15)[0]
    expected = top / (second * norm.cdf(mu))
    report = sc.analyze([sc.ReLU()], (5,), input_second_moment=second, input_mean=mu)
    assert report.ops[0].factor == pytest.approx(expected, rel=1e-10)


def test_normalisation():
    batch = sc.BatchNorm(64)
    assert factor_of(batch) == pytest.approx(0.984, abs=0.0005)
    assert factor_of(batch, (4, 8, 8), [sc.ReLU()]) == pytest.approx(
        (1 - 1 / math.pi) * 61 / 62, rel=1e-12)
    for share, expected in ((0.3, 0.692), (0.5, 0.500), (0.9, 0.097)):
        factor = factor_of(batch, input_mean=math.sqrt(share))
        assert factor == pytest.approx((1 - share) * 61 / 62, rel=1e-12)
        assert factor == pytest.approx(expected, abs=0.009)
    assert factor_of(sc.LayerNorm(), (1000,)) == pytest.approx(0.999, abs=0.0005)
    assert factor_of(sc.LayerNorm(), (1000,), [sc.ReLU()]) == pytest.approx(0.682, abs=0.002)
    centred = factor_of(sc.AvgPool2d(2), (50, 8, 8), [sc.ReLU(), sc.LayerNorm()])
    assert centred == pytest.approx(1.0, abs=1e-10)


def test_batch_norm_on_its_own():
    """Against 4000 simulated minibatches of 6 inputs: (m - 3)/(m - 2) matters there."""
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((2, 6, 4000)) + np.array([0.7, 0.0])[:, None, None]
    record = {}
    y, back = model.batch_norm(sc.BatchNorm(6), x, None, rng, record)
    measured = np.mean(y**2) * np.mean(dy**2) / (np.mean(back(dy) ** 2) * np.mean(x**2))
    report = sc.analyze([sc.BatchNorm(6)], (50,), input_second_moment=1.49, input_mean=0.7)
    assert report.ops[0].factor == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("op", [
    sc.Dropout(0.3), sc.Scale(-2.5), sc.Stride(2), sc.Upsample((2, 3)), sc.Flatten(), sc.ReLU(),
    sc.LeakyReLU(0.2), sc.Conv2d(4, 6, 3, 2, 1, groups=2)])
def test_operations_that_maintain(op):
    row = sc.analyze([op], (4, 12, 12)).ops[0]
    assert row.factor == pytest.approx(1.0, rel=1e-12)
    assert row.flag is None
    assert sc.analyze([sc.Linear(7, 5)], (7,)).ops[0].factor == pytest.approx(1.0, rel=1e-12)


# --- linear maps against explicit matrices --------------------------------------------------------

def ones_with(correlation, channels, positions):
    """E[x x'] of all entries: channels independent, E[x^2] = 1."""
    block = (1 - correlation) * np.eye(positions) + correlation
    return np.kron(np.eye(channels), block)


def matrices(op, shape):
    """The matrices of an operation: one for each weight set to 1, or the one of a fixed map."""
    basis = np.eye(math.prod(shape)).reshape(-1, *shape)
    if not isinstance(op, sc.Conv2d):
        y, _ = model.STEPS[type(op)](op, basis, None, None, {})
        return [y.reshape(len(basis), -1).T]
    size = (op.groups, op.n_out // op.groups, op.n_in // op.groups, *op.kernel)
    found = []
    for place in product(*map(range, size)):
        w = np.zeros(size)
        w[place] = 1.0
        y, _ = model.convolution(op, basis, w, {})
        found.append(y.reshape(len(basis), -1).T)
    return found


def mean_moments(covariance, channels):
    """Mean second moment, and mean correlation of two positions of a channel."""
    positions = len(covariance) // channels
    blocks = covariance.reshape(channels, positions, channels, positions)
    inside = np.einsum("cpcq->pq", blocks) / channels
    moment = np.trace(inside) / positions
    if positions == 1:
        return moment, None
    off = (inside.sum() - np.trace(inside)) / (positions * (positions - 1))
    return moment, off / moment


@st.composite
def linear_operations(draw):
    """A linear operation and the shape of its input."""
    height, width = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kind = draw(st.sampled_from([sc.Conv2d, sc.AvgPool2d, sc.Stride, sc.Upsample]))
    groups = draw(st.integers(1, 2))
    channels = groups * draw(st.integers(1, 2)) if kind is sc.Conv2d else 1
    shape = (channels, height, width)
    if kind is sc.Stride:
        return sc.Stride(draw(pairs)), shape
    if kind is sc.Upsample:
        return sc.Upsample(draw(pairs)), shape
    kernel = draw(pairs)
    if kind is sc.AvgPool2d:
        padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
        op = sc.AvgPool2d(kernel, draw(pairs), padding)
    else:
        mode = draw(st.sampled_from(["zeros", "circular", "replicate", "reflect"]))
        most = 2 if mode in ("zeros", "replicate") else min(height, width) - 1
        padding = tuple(draw(st.integers(0, min(2, most))) for _ in range(2))
        op = sc.Conv2d(channels, groups * draw(st.integers(1, 2)), kernel, draw(pairs), padding,
                       draw(pairs), groups, padding_mode=mode)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, getattr(op, "dilation", (1, 1)), strict=True)]
    size = [max(n, r - 2 * p) for n, r, p in zip(shape[1:], reach, padding, strict=True)]
    return op, (channels, *size)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(linear_operations(), st.floats(0, 1), st.floats(0, 1))
def test_linear_operations_against_their_matrices(case, r, r_gradient):
    op, shape = case
    found = matrices(op, shape)
    assume(np.any(found))
    variance = 0.7 if isinstance(op, sc.Conv2d) else None
    x = Signal(shape, 1.3, 0.0, r)
    y = RULES[type(op)].forward(op, x, variance)
    gradient = Gradient(0.4, r_gradient)
    back = RULES[type(op)].backward(op, x, y, gradient, variance)
    c_x = 1.3 * ones_with(r, shape[0], x.positions)
    c_dy = 0.4 * ones_with(r_gradient, y.channels, y.positions)
    c_y = (variance or 1.0) * sum(a @ c_x @ a.T for a in found)
    c_dx = (variance or 1.0) * sum(a.T @ c_dy @ a for a in found)
    for signal, covariance, n in ((y, c_y, y.channels), (back, c_dx, shape[0])):
        moment, correlation = mean_moments(covariance, n)
        assert signal.moment == pytest.approx(moment, rel=1e-10, abs=0)
        if correlation is not None:
            assert signal.correlation == pytest.approx(correlation, rel=1e-9, abs=1e-12)
    if isinstance(op, sc.Conv2d):
        mean = np.mean([np.trace(c_dy @ a @ c_x @ a.T) for a in found])
        assert weight_gradient(op, x, gradient) == pytest.approx(mean, rel=1e-10, abs=0)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(linear_operations())
def test_linear_operations_conserve_varsigma(case):
    """Both sides against |A|_F^2, and the report's factor is 1, for uncorrelated entries."""
    op, shape = case
    fixed = matrices(op, shape)
    assume(np.any(fixed))
    report = sc.analyze([op], shape)
    assert report.ops[0].factor == pytest.approx(1.0, rel=1e-11, abs=0)
    frobenius = sum(np.sum(a**2) for a in fixed)
    steps, y = walk([op], input_signal(shape, 1.0, 0.0, None),
                    {"0.Conv2d": 1.0} if isinstance(op, sc.Conv2d) else "geometric", 2.0, 1.0)
    for signal, gradient in ((steps[0].x, steps[0].x_gradient), (y, steps[0].y_gradient)):
        assert varsigma(signal, gradient) == pytest.approx(frobenius, rel=1e-10, abs=0)


# --- branches -------------------------------------------------------------------------------------

@pytest.mark.parametrize(("alpha", "beta", "g", "main"), [
    (0.5**0.5, 0.5**0.5, 1.0, 0.5), (0.9, 0.19**0.5, 1.0, 0.19), (1.0, 1.0, 1.0, 0.5),
    (1.0, 1.0, 0.5, 1 / 3)])
def test_residual_blocks_part_varsigma_like_a_current(alpha, beta, g, main):
    block = sc.Residual([sc.Linear(50, 50, name="f")], (), alpha, beta)
    report = sc.analyze([block], (50,), init={"f": g / 50})
    assert report.ops[0].factor == pytest.approx(1.0, rel=1e-12)
    assert report["f"].varsigma / report.ops[0].varsigma == pytest.approx(main, rel=1e-12)


def test_concatenation_adds():
    """Share of a branch: n_F E[F^2] / (n_x E[x^2] + n_F E[F^2])."""
    join = sc.Concat([[], [sc.Linear(40, 60, name="f")]])
    report = sc.analyze([join], (40,), init={"f": 0.02})
    share = 60 * 0.8 / (40 + 60 * 0.8)
    assert report["f"].varsigma / report.ops[0].varsigma == pytest.approx(share, rel=1e-12)
    assert report.output_shape == (100,)


def test_means_of_branches_add_coherently():
    """E[(s + m)^2] has 2 E s E m: two ReLUs on top of layers."""
    block = sc.Residual([sc.Linear(9, 9, name="f"), sc.ReLU()],
                        [sc.Linear(9, 9, name="s"), sc.ReLU()])
    report = sc.analyze([block], (9,), init={"f": 1 / 9, "s": 1 / 9})
    assert report.output_second_moment == pytest.approx(1.0 + 1 / math.pi, rel=1e-12)


def test_names_inside_branches():
    inner = sc.Residual([sc.ReLU()], name="deep")
    report = sc.analyze([sc.ReLU(), sc.Residual([sc.Linear(4, 4), inner], [sc.Linear(4, 4)]),
                         sc.Concat([[], [sc.ReLU()]])], (4,))
    assert [op.name for op in report.ops] == [
        "0.ReLU", "1.Residual", "1.main.0.Linear", "deep", "deep.main.0.ReLU",
        "1.shortcut.0.Linear", "2.Concat", "2.branch1.0.ReLU"]


def test_a_branch_that_is_switched_off():
    block = sc.Residual([sc.Linear(8, 8, name="f")], (), 1.0, 0.0)
    report = sc.analyze([block, sc.Linear(8, 3)], (8,))
    assert (report["f"].varsigma, report["f"].gamma, report["f"].factor) == (0.0, 0.0, None)
    assert "gamma 0 x the median" in report["f"].flag


# --- flags, notes, Gauss-Newton factors -----------------------------------------------------------

def test_flags():
    fan = sc.analyze(MLP, (784,), init="fan_in")
    assert fan["4.Linear"].flag.startswith("gamma 0.0311 x the median")
    assert fan["0.Linear"].flag is None
    flags = [op.flag for op in sc.analyze(
        [sc.Conv2d(1, 8, 3), sc.ReLU(), sc.AvgPool2d(2), sc.MaxPool2d(3, 1), sc.BatchNorm(),
         sc.LayerNorm(), sc.Activation("gelu"), sc.Residual([sc.Conv2d(8, 8, 1)]),
         sc.Residual([], (), 0.6, 0.8)], (1, 12, 12)).ops]
    assert flags[1:3] == [None, "pooling after ReLU"]
    assert flags[3] == "max-pool: windows overlap (approximate)"
    assert flags[4:7] == ["normalisation"] * 2 + ["activation not homogeneous"]
    assert flags[7] == "alpha^2 + beta^2 = 2"
    assert flags[9] == "branches without weights are not independent"


def test_kernel_mixture_is_named_for_biases():
    ops = [sc.Conv2d(8, 8, 1), sc.ReLU(), sc.Conv2d(8, 8, 7, padding=3), sc.ReLU(),
           sc.Conv2d(8, 8, 1)]
    flag = sc.analyze(ops, (8, 16, 16))["0.Conv2d"].flag
    assert flag.startswith("gamma_bias") and "kernel sizes differ" in flag


def test_gauss_newton_factors_of_the_two_networks():
    wide = [op for _ in range(5) for op in (sc.Linear(300, 300), sc.ReLU())][:-1]
    report = sc.analyze(wide, (300,))
    assert list(report.gauss_newton.values()) == pytest.approx([9, 7, 5, 3, 1])
    assert "0.Linear 9, 2.Linear 7, 4.Linear 5, 6.Linear 3;" in report.notes[0]
    factors = sc.analyze(MLP, (784,)).gauss_newton
    assert list(factors.values()) == pytest.approx([1.40, 1.35, 1.04, 1.0], abs=0.005)
    assert sc.analyze(MLP, (784,)).notes == ()


def test_gauss_newton_factors_against_real_blocks():
    """tr(G_l^2) of G_l = J_l' J_l, |x|^4 tr((K'K)^2), over E[DW^2], |x|^2 tr(K'K): 5, 3, 1."""
    n, nets, rng = 160, 60, np.random.default_rng(7)
    blocks, plain = np.zeros((2, 3))
    for _ in range(nets):
        w = rng.standard_normal((3, n, n)) * math.sqrt(2 / n)
        x, masks = [rng.standard_normal(n)], []
        for layer in w[:-1]:
            h = layer @ x[-1]
            masks.append(h > 0)
            x.append(np.maximum(h, 0))
        k = np.eye(n)                           # d output / d x_{l+1}
        for layer in (2, 1, 0):
            square = k.T @ k
            blocks[layer] += np.sum(x[layer] ** 2) ** 2 * np.sum(square**2)
            plain[layer] += np.sum(x[layer] ** 2) * np.trace(square)
            k = k @ w[layer] * masks[layer - 1]
    ratio = blocks / plain
    predicted = sc.analyze([sc.Linear(n, n), sc.ReLU(), sc.Linear(n, n), sc.ReLU(),
                            sc.Linear(n, n)], (n,)).gauss_newton
    assert ratio / ratio[-1] == pytest.approx(list(predicted.values()), rel=0.08)


# --- the report -----------------------------------------------------------------------------------

KEYS = ["name", "varsigma", "gamma", "nu", "gamma_bias", "forward_second_moment",
        "backward_second_moment", "factor", "flag"]


def test_report_as_dictionaries():
    report = sc.analyze(MLP, (784,), init="fan_in")
    record = json.loads(json.dumps(report.to_dict()))
    assert [list(op) for op in record["ops"]] == [KEYS] * 7
    assert record["ops"][1]["gamma"] is None and record["ops"][1]["nu"] is None
    assert record["ops"][2]["gamma"] == report.ops[2].gamma
    assert (record["init"], record["input_shape"], record["output_shape"]) == (
        "fan_in", [784], [10])


def test_no_bias_no_bias_scaling():
    assert sc.analyze([sc.Linear(3, 4, bias=False)], (3,)).ops[0].gamma_bias is None


def test_report_as_text():
    lines = str(sc.analyze(MLP, (784,), init="fan_in")).splitlines()
    assert lines[0].split() == ["operation", "varsigma", "gamma", "nu", "gamma_bias", "E[x^2]",
                                "E[Dx^2]", "factor", "flag"]
    assert lines[7].split()[:4] == ["6.Linear", "1", "12.73", "12.73"]
    assert lines[2].split() == ["1.ReLU", "1", "-", "-", "-", "2", "0.02604", "1"]


def test_pandas_or_a_clear_error():
    report = sc.analyze(MLP, (784,))
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install pandas"):
            report.to_pandas()
    else:
        frame = report.to_pandas()
        assert list(frame.columns) == KEYS[1:] and frame.loc["0.Linear", "gamma"] > 0


def test_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    report = sc.analyze(MLP, (784,), init="fan_in")
    axes = report.plot()
    drawn = axes.lines[0].get_ydata()
    assert np.ptp(drawn / [op.gamma for op in report.layers]) < 1e-12
    assert axes.get_yscale() == "log" and [t.get_text() for t in axes.get_xticklabels()] == [
        "0.Linear", "2.Linear", "4.Linear", "6.Linear"]
    assert axes.lines[1].get_xdata() == pytest.approx([2, 3])      # beyond 4x
    matplotlib.pyplot.close(axes.figure)
    with pytest.raises(ValueError, match="no layer"):
        sc.analyze([sc.ReLU()], (3,)).plot()


def test_unknown_name():
    with pytest.raises(KeyError, match="no operation"):
        sc.analyze(MLP, (784,))["0.Conv2d"]


# --- bad input ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("make", "message"), [
    (lambda: sc.Conv2d(5, 4, 3, groups=2), "groups must divide n_in = 5, got 2"),
    (lambda: sc.Conv2d(4, 5, 3, groups=2), "groups must divide n_out = 5, got 2"),
    (lambda: sc.Conv2d(4, 4, (3, 0)), r"kernel must be a whole number >= 1 or a pair"),
    (lambda: sc.Conv2d(4, 4, 3, padding=-1), "padding must be a whole number >= 0"),
    (lambda: sc.Conv2d(4, 4, 3, padding_mode="zero"), "did you mean 'zeros'"),
    (lambda: sc.Conv2d(4, 4, 2.0), "kernel must be a whole number"),
    (lambda: sc.Linear(0, 4), "n_in must be a whole number >= 1, got 0"),
    (lambda: sc.Linear(4, 4, bias=1), "bias must be True or False"),
    (lambda: sc.Dropout(1.0), "p must be >= 0 and < 1"),
    (lambda: sc.Scale(0), "factor must not be 0"),
    (lambda: sc.MaxPool2d(3, padding=2), "padding must be at most half the kernel"),
    (lambda: sc.BatchNorm(3), "batch must be >= 4"),
    (lambda: sc.Activation("gelo"), "did you mean 'gelu'"),
    (lambda: sc.LeakyReLU(math.nan), "slope must be a finite number"),
    (lambda: sc.Residual(sc.ReLU()), "main must be a sequence of operations"),
    (lambda: sc.Residual([sc.ReLU(), 3]), r"main\[1\] must be an operation"),
    (lambda: sc.Residual([], (), 0.0, 0.0), "must not both be 0"),
    (lambda: sc.Residual([], (), math.inf), "alpha must be a finite number"),
    (lambda: sc.Concat([[]]), "branches must be two or more"),
    (lambda: sc.Concat([[], [None]]), r"branches\[1\]\[0\] must be an operation"),
    (lambda: sc.ReLU(name=3), "name must be a string"),
])
def test_bad_operations(make, message):
    with pytest.raises(ValueError, match=message):
        make()


CONV = sc.Conv2d(3, 8, 3)


@pytest.mark.parametrize(("ops", "shape", "options", "message"), [
    ([CONV, sc.ReLU(), sc.Conv2d(4, 8, 3)], (3, 9, 9), {},
     r"2\.Conv2d: takes n_in = 4 channels, got the shape \(8, 7, 7\) \(from 1\.ReLU\)"),
    ([CONV], (4, 9, 9), {}, r"0\.Conv2d: takes n_in = 3 channels, .* \(from the input\)"),
    ([sc.Conv2d(3, 8, 7, dilation=2)], (3, 9, 9), {},
     r"kernel \(7, 7\) reaches over 13 entries, more than the 9 of the padded input"),
    ([CONV, sc.Linear(8, 3)], (3, 3, 3), {}, r"1\.Linear: .*put Flatten\(\) before it"),
    ([CONV], (3,), {}, r"takes a shape \(channels, height, width\)"),
    ([sc.Linear(4, 3)], (5,), {}, r"takes n_in = 4 entries, got the shape \(5,\)"),
    ([sc.Residual([CONV], [sc.Stride(2)])], (3, 9, 9), {},
     r"0\.Residual: main \(0\.main\.0\.Conv2d\) makes the shape \(8, 7, 7\) but shortcut "
     r"\(0\.shortcut\.0\.Stride\) makes the shape \(3, 5, 5\)"),
    ([sc.Residual([sc.ReLU(), sc.Linear(4, 4)])], (3,), {},
     r"0\.main\.1\.Linear: .*\(from 0\.main\.0\.ReLU\)"),
    ([sc.Concat([[], [CONV]])], (3, 9, 9), {}, "only channels may differ"),
    ([sc.Conv2d(3, 3, 3, padding=3, padding_mode="reflect")], (3, 3, 3), {}, "at most"),
    ([sc.Conv2d(3, 3, 1, 2, 1)], (3, 1, 1), {}, "0.Conv2d: its outputs see nothing but the padd"),
    ([], (3,), {}, "at least one operation"),
    (sc.ReLU(), (3,), {}, "ops must be a sequence of operations"),
    ([sc.ReLU], (3,), {}, r"ops\[0\] must be an operation"),
    ([CONV], (3, 9), {}, "input_shape must be"),
    ([CONV], (3, 0, 9), {}, r"input_shape\[1\] must be a whole number >= 1, got 0"),
    ([CONV], (3, 9, 9), {"init": "fanin"}, "did you mean 'fan_in'"),
    ([CONV], (3, 9, 9), {"init": {"0.Conv": 1.0}}, r"no variance for 0\.Conv2d"),
    ([CONV], (3, 9, 9), {"init": {"0.Conv2d": 1.0, "1.Conv2d": 1.0}}, "is no layer with weights"),
    ([CONV], (3, 9, 9), {"init": {"0.Conv2d": -1.0}}, r"init\['0.Conv2d'\] must be"),
    ([CONV], (3, 9, 9), {"init": 3}, "init must be one of"),
    ([CONV], (3, 9, 9), {"c": 0}, "c must be a finite number > 0"),
    ([CONV], (3, 9, 9), {"input_second_moment": math.nan}, "input_second_moment must be"),
    ([CONV], (3, 9, 9), {"input_second_moment": math.inf}, "input_second_moment must be"),
    ([CONV], (3, 9, 9), {"input_mean": 1.5}, "input_mean must be at most"),
    ([CONV], (3, 9, 9), {"input_mean": 0.5, "input_correlation": 0.1}, "input_correlation must"),
    ([CONV], (3, 9, 9), {"output_gradient": 0.0}, "output_gradient must be"),
    ([sc.Linear(4, 4, name="a"), sc.Linear(4, 4, name="a")], (4,), {}, "'a' occurs 2 times"),
    ([sc.LayerNorm()], (3,), {}, r"0\.LayerNorm: takes 4 entries or more"),
])
def test_bad_networks(ops, shape, options, message):
    with pytest.raises(ValueError, match=message):
        sc.analyze(ops, shape, **options)


def test_moments_beyond_a_double():
    with pytest.raises(ArithmeticError, match=r"2\.Scale: the forward second moment is inf"):
        sc.analyze([sc.ReLU(), sc.Scale(1e150), sc.Scale(1e150)], (3,))
    with pytest.raises(ArithmeticError, match="nothing of its input is left"):
        sc.analyze([sc.BatchNorm()], (3,), input_correlation=1.0)


# --- whole networks against simulated ones --------------------------------------------------------

def compare(ops, shape, *, nets, batch=4, seed=0):
    """Ratios measured / predicted per operation: E[x^2], E[Dx^2], and E[DW^2] of the layers."""
    steps, _ = walk(ops, input_signal(shape, 1.0, 0.0, None), "geometric", 2.0, 1.0)
    flat = [step for top in steps for step in top.flat()]
    variances = [step.variance for step in flat if step.variance is not None]
    report = sc.analyze(ops, shape)
    rows = model.simulate(ops, shape, variances, nets=nets, batch=batch, seed=seed)
    moments = np.array([[op.forward_second_moment, op.backward_second_moment]
                        for op in report.ops])
    nu = [row[4] / step.variance / op.nu for row, step, op in
          zip(rows, flat, report.ops, strict=True) if op.nu is not None]
    return rows[:, :2] / moments, np.array(nu)


def bottleneck(n, alpha, beta):
    return sc.Residual([sc.ReLU(), sc.Conv2d(n, n // 2, 1), sc.ReLU(),
                        sc.Conv2d(n // 2, n // 2, 3, padding=1), sc.ReLU(),
                        sc.Conv2d(n // 2, n, 1)], (), alpha, beta)


def circular(n_in, n_out, kernel, stride=1):
    return sc.Conv2d(n_in, n_out, kernel, stride, kernel // 2, padding_mode="circular")


CONVNET = [circular(3, 24, 11), sc.ReLU(), circular(24, 32, 5, 2), sc.ReLU(), circular(32, 48, 3),
           sc.ReLU(), circular(48, 64, 1), sc.ReLU(), circular(64, 10, 3, 2)]
ALEXNET = [sc.Conv2d(3, 32, 5, 2, 2), sc.ReLU(), sc.MaxPool2d(2), sc.Conv2d(32, 48, 5, padding=2),
           sc.ReLU(), sc.MaxPool2d(2), sc.Conv2d(48, 64, 3, padding=1), sc.ReLU(),
           sc.Conv2d(64, 32, 3, padding=1), sc.ReLU(), sc.Flatten(), sc.Linear(32 * 16, 10)]
RESNET = [circular(3, 64, 3), bottleneck(64, 0.7**0.5, 0.3**0.5),
          bottleneck(64, 0.7**0.5, 0.3**0.5), sc.ReLU(), sc.AvgPool2d(8), sc.Flatten(),
          sc.Linear(64, 10)]
TANH = [sc.Linear(100, 150), sc.Activation("tanh"), sc.Linear(150, 150), sc.Activation("gelu"),
        sc.LayerNorm(), sc.Dropout(0.3), sc.Linear(150, 50), sc.LeakyReLU(0.3), sc.Linear(50, 10)]


def test_simulated_convolutions():
    moments, nu = compare(CONVNET, (3, 16, 16), nets=10)
    assert moments == pytest.approx(np.ones_like(moments), rel=0.12)
    assert nu == pytest.approx(np.ones_like(nu), rel=0.2)


def test_simulated_layers_of_other_activations():
    moments, nu = compare(TANH, (100,), nets=60)
    assert moments == pytest.approx(np.ones_like(moments), rel=0.12)
    assert nu == pytest.approx(np.ones_like(nu), rel=0.15)


@pytest.mark.slow
def test_simulated_mlp():
    moments, nu = compare(MLP, (784,), nets=100)
    assert moments == pytest.approx(np.ones_like(moments), rel=0.10)
    assert nu == pytest.approx(np.ones_like(nu), rel=0.15)


@pytest.mark.slow
def test_simulated_max_pooling():
    """Padding and few channels are what the calculus leaves out: 30 %."""
    moments, nu = compare(ALEXNET, (3, 32, 32), nets=100)
    assert moments == pytest.approx(np.ones_like(moments), rel=0.3)
    assert np.median(nu) == pytest.approx(1.0, rel=0.15)


@pytest.mark.slow
def test_simulated_residual_blocks_and_global_pooling():
    """nu is 2 to 20 times gamma before the pooling; a median ratio within 25 %."""
    report = sc.analyze(RESNET, (3, 8, 8))
    excess = [op.nu / op.gamma for op in report.layers]
    assert max(excess) > 8.0 and excess[-1] == pytest.approx(1.0, rel=1e-12)
    assert report.notes[0].startswith("nu exceeds gamma, up to")
    moments, nu = compare(RESNET, (3, 8, 8), nets=200)
    assert np.median(moments) == pytest.approx(1.0, rel=0.15)
    assert np.median(nu) == pytest.approx(1.0, rel=0.25)
