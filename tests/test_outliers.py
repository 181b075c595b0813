"""Outliers: values against derivations by hand, a slow twin, exact rules and small simulations."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from outlier_model import Model
from scipy.optimize import brentq

import fastspec._outlier_search as search
from fastspec import FeedForward, ResNet, activation
from fastspec._outlier_free import FreePath
from fastspec._outlier_matrices import Dense
from fastspec._outlier_response import Residual, balance
from fastspec.outliers import Outlier, _statistics, outliers
from fastspec.quadrature import expectation
from fastspec.simulate import jacobian_singular_values

LEAKY = activation("leaky_relu", slope=0.2)
ABS = activation(np.abs, np.sign, kinks=(0.0,))


def unscaled(depth, name, weight_variance, **rest):
    return ResNet(depth, name, sigma_w=math.sqrt(weight_variance), depth_scaled=False, **rest)


# Edge and outliers as first computed, by code that has nothing in common with this package, on a
# grid of quantiles that leaves its expectations good to a few 1e-5; cosines of v_1 and x^0.
TABLE = {
    "relu_0.5": (ResNet(20, "relu"), 7.8744, [25.4510], [0.635]),
    "relu_0.125": (ResNet(10, "relu", sigma_w=0.5), 2.7569, [3.0627], [0.527]),
    "relu_deep": (ResNet(50, "relu", sigma_w=0.5), 2.7496, [9.9488, 0.3553], [0.680, 0.395]),
    "relu_0.03": (ResNet(50, "relu", sigma_w=math.sqrt(0.06)), 1.6366, [2.6545, 0.5538],
                  [0.677, 0.601]),
    "relu_1": (ResNet(20, "relu", sigma_w=math.sqrt(2.0)), 19.9289, [121.5422], [0.624]),
    "leaky": (ResNet(20, LEAKY), 8.1899, [15.9379], [0.592]),
    "softplus": (unscaled(12, "softplus", 0.1), 5.9106, [8.9341], [0.185]),
    "silu": (unscaled(15, "silu", 0.2, sigma_b=math.sqrt(0.1)), 20.4892, [44.8250], [0.555]),
    "relu_orthogonal": (ResNet(10, "relu", "orthogonal"), 7.3461, [10.3817], [0.588]),
    "gelu_orthogonal": (unscaled(8, "gelu", 0.3, weights="orthogonal"), 16.1920, [25.2970],
                        [0.615]),
    "abs": (ResNet(20, ABS), 19.1569, [535.6162], [0.671]),
    "feed_forward_2": (FeedForward(2, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1),
                       4.8214, [4.8942], [0.219]),
    "feed_forward_4": (FeedForward(4, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1),
                       2.650, [2.867], []),
}

NONE = {
    "identity": ResNet(20, "linear"),
    "identity_biased": ResNet(5, "linear", "orthogonal", sigma_b=0.3, input_mean=0.7),
    "tanh": ResNet(20, "tanh"),
    "tanh_biased": ResNet(20, "tanh", sigma_b=0.3),
    "sigmoid": unscaled(20, "sigmoid", 1.0),
    "elu": unscaled(12, "elu", 0.2),
    "one_layer": ResNet(1, "relu", "orthogonal"),
    "feed_forward_relu": FeedForward(5, "relu", sigma_w=math.sqrt(2.0)),
    "feed_forward_tanh": FeedForward(5, "tanh", sigma_w=1.3),
    "feed_forward_sigmoid": FeedForward(5, "sigmoid", sigma_w=1.3),
    "feed_forward_rotation": FeedForward(1, "gelu", "orthogonal"),
    "feed_forward_atom": FeedForward(5, "hard_tanh", "orthogonal", sigma_w=0.4),
    "unbounded": ResNet(3, activation(lambda h: h**2, lambda h: 2.0 * h)),
    "constant": ResNet(3, activation(lambda h: 0.0 * h + 1.0, lambda h: 0.0 * h)),
}

EDGES = {
    **{name: row[0] for name, row in TABLE.items() if name != "feed_forward_4"},
    "tanh": ResNet(20, "tanh"),
    "two_parts": ResNet(1, "relu", "orthogonal", skip=-1.0),
    "arctan": ResNet(2, "arctan", "orthogonal", sigma_w=4.87, sigma_b=0.3, skip=2.0),
    "small": ResNet(100, "tanh", sigma_w=1e-3),
    "weak_skip": ResNet(5, "selu", sigma_w=0.7, skip=0.3),
    "feed_forward_orthogonal": FeedForward(4, "relu", "orthogonal"),
    "softsign": ResNet(3, "softsign", sigma_w=0.2),
}


def statistics(net):
    return _statistics(net)[0]


def form(net, x, side=1):
    """State and form of a network at x, and the search they come from."""
    whole = search._Search(statistics(net), side)
    return (*whole._at(x), whole)


def entries(matrix):
    if isinstance(matrix, Dense):
        return matrix.entries
    return np.diag(matrix.diagonal) + np.diag(matrix.beside, 1) + np.diag(matrix.beside, -1)


# ---- values --------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", TABLE)
def test_values_edges_and_overlaps_are_those_first_computed(name):
    net, edge, values, cosines = TABLE[name]
    found = net.outliers()
    np.testing.assert_allclose([one.value for one in found], values, rtol=1e-4)
    measured = [one.overlap_input**0.5 for one in found]
    np.testing.assert_allclose(measured[: len(cosines)], cosines, atol=6e-4)
    assert found[0].edge == pytest.approx(edge, rel=1e-4)
    assert [one.side for one in found] == ["above", "below"][: len(values)]
    for one in found:
        assert one.detached and one.singular_value == pytest.approx(math.sqrt(one.value), rel=1e-15)
        assert one.margin == pytest.approx(abs(one.value / one.edge - 1.0), rel=1e-9)
        assert (one.value > one.edge) == (one.side == "above")
        for overlap in (one.overlap_input, one.overlap_ones_input, one.overlap_output,
                        one.overlap_ones_output):
            assert 0.0 <= overlap <= 1.0


@pytest.mark.parametrize("name", NONE)
def test_networks_without_outliers(name):
    assert NONE[name].outliers() == ()


def test_small_steps():
    """J -> 1 + rank one: z = (1 + exp(+-2 tau))/2 with an error proportional to 1/L."""
    tau, depths, found = 0.5, np.array([25, 50, 100]), []
    for depth in depths:
        net = unscaled(int(depth), "relu", 2.0 * math.pi * (tau / depth) ** 2)
        found.append([one.value for one in net.outliers()])
    limits = [0.5 * (1.0 + math.exp(2.0 * tau)), 0.5 * (1.0 + math.exp(-2.0 * tau))]
    scaled = (np.array(found) - limits) * depths[:, np.newaxis]
    assert np.all(np.ptp(scaled, axis=0) < 0.06 * np.abs(scaled[-1]))
    # Richardson's extrapolation of errors c/L + d/L^2.
    extrapolated = (found[0] - 6.0 * np.array(found[1]) + 8.0 * np.array(found[2])) / 3.0
    np.testing.assert_allclose(extrapolated, limits, rtol=1e-3)
    np.testing.assert_allclose(found, [[2.0506, 0.58133], [1.9516, 0.63262], [1.9046, 0.65829]],
                               rtol=1e-4)


# ---- exact rules ---------------------------------------------------------------------------------

@pytest.mark.parametrize("net", [
    ResNet(20, "relu"), ResNet(5, "relu", "orthogonal", sigma_w=1.3, input_mean=0.5),
    ResNet(4, activation("leaky_relu", slope=-0.4), skip=-0.6, sigma_w=2.0, input_mean=-0.3),
    FeedForward(4, "relu", sigma_w=1.3), FeedForward(3, LEAKY, "orthogonal")])
def test_jacobian_of_a_homogeneous_network_takes_the_input_to_the_output(net):
    """J x^0 = x^L: sum_i z_i <v_i, xh_0>^2 = p_L/p_0, of all eigenvalues, outliers and bulk.

    F gives sum_i z <v_i, xh_0>^2 / (z - z_i) = R_00 + r^T F^{-1} r, r the response to x^0; it is
    1 + p_L/(p_0 z) + O(z^-2).
    """
    given, m, found = statistics(net), np.exp([-8.0, -8.5, -9.0, -9.5]), []
    for x in np.log(m):
        state, at, _ = form(net, float(x))
        r = at.columns[:, 0]
        whole = r[0] / balance(state, 2)[0] + r @ np.linalg.solve(entries(at.matrix), r)
        found.append((whole - 1.0) * math.exp(state.log_z))
    cubic = np.linalg.solve(np.vander(m / m[0]), found)
    assert cubic[-1] == pytest.approx(given.second_moment[-1] / given.second_moment[0], rel=1e-7)


@pytest.mark.parametrize("name", [*TABLE, "tanh", "sigmoid"])
def test_eigenvalues_cross_zero_one_way(name):
    """The number of negative eigenvalues grows towards the bulk from above, falls from below."""
    net = TABLE[name][0] if name in TABLE else NONE[name]
    given, sides = statistics(net), [1]
    if given.skip and np.all(net.propagate().kappa < given.skip**2):
        sides.append(-1)
    for side in sides:
        whole = search._Search(given, side)
        edge = whole.path.edge()
        counts = [np.count_nonzero(whole._at(x)[1].matrix.eigenvalues() < 0.0)
                  for x in edge - np.linspace(7.0, 0.0, 25) ** 2 / 7.0]
        expected = sum(one.side == ("above" if side > 0 else "below") for one in net.outliers())
        assert counts[0] == net.depth and counts[-1] == net.depth + side * expected
        assert np.all(np.diff(counts) * side >= 0)


def test_scales_of_homogeneous_networks_do_not_matter():
    plain = ResNet(10, "relu").outliers()
    for second_moment in (1e-200, 1e200):
        assert ResNet(10, "relu", input_second_moment=second_moment).outliers()[0].value == (
            pytest.approx(plain[0].value, rel=1e-11))
    skip = 1e-3     # x^l = skip * (x + phi(W x / skip))
    scaled = ResNet(10, "relu", sigma_w=skip, skip=skip).outliers()
    assert scaled[0].value == pytest.approx(plain[0].value * skip**20, rel=1e-11)
    assert scaled[0].overlap_output == pytest.approx(plain[0].overlap_output, rel=1e-9)


def test_users_functions_are_as_good_as_built_in_ones():
    own = activation(lambda h: np.where(h > 0.0, h, 0.0), lambda h: np.where(h > 0.0, 1.0, 0.0),
                     kinks=(0.0,))
    ours, theirs = (ResNet(6, phi, sigma_b=0.2).outliers() for phi in ("relu", own))
    for name in ("value", "edge", "overlap_input", "overlap_ones_output"):
        assert getattr(theirs[0], name) == pytest.approx(getattr(ours[0], name), rel=1e-9)


# ---- the bulk ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_the_law(name):
    net = EDGES[name]
    given, support = statistics(net), net.spectrum().support()
    path = FreePath(given, 1)
    assert math.exp(path.state(path.edge()).log_z) == pytest.approx(support[-1][1], rel=1e-9)
    if np.all(net.propagate().kappa < given.skip**2):
        path = FreePath(given, -1)
        assert math.exp(path.state(path.edge()).log_z) == pytest.approx(support[0][0], rel=1e-9)


@pytest.mark.parametrize("name", ["relu_0.5", "gelu_orthogonal", "silu", "arctan"])
def test_green_function_on_the_path(name):
    """z G(z) = 1 + m, from the law of the bulk."""
    net = EDGES[name]
    path, law = FreePath(statistics(net), 1), net.spectrum()
    edge = path.edge()
    for x in (edge - 0.3, edge - 2.0):
        state = path.state(x)
        z = math.exp(state.log_z)
        assert z * law.green(z).real == pytest.approx(1.0 + math.exp(x), rel=1e-9)


def test_maximum_of_slopes_where_h_has_no_mass():
    """The path goes on where u stays at the end of the slopes: the law of the rest decides."""
    net = FeedForward(2, "gelu", sigma_w=1.0, input_second_moment=1e-3)
    path = FreePath(statistics(net), 1)
    state = path.state(path.edge())
    assert state.rest[1] < 1e-8
    assert math.exp(state.log_z) == pytest.approx(net.spectrum().support()[-1][1], rel=1e-7)
    beyond = path.state(path.edge() + 0.5)
    assert beyond.peak[1] > 0.0 and beyond.excess[1] == pytest.approx(beyond.m, rel=1e-12)


# ---- slow twins ----------------------------------------------------------------------------------

TWINS = {
    "relu": (ResNet(3, "relu", sigma_w=1.3, sigma_b=0.4, skip=0.9, input_mean=0.5),
             lambda h: max(h, mpf(0)), lambda h: mpf(h > 0)),
    "softplus_orthogonal": (ResNet(2, "softplus", "orthogonal", sigma_b=0.3, skip=-0.8,
                                   input_second_moment=1.7, input_mean=-0.6),
                            lambda h: mp.log1p(mp.exp(h)), lambda h: 1 / (1 + mp.exp(-h))),
    "feed_forward": (FeedForward(3, LEAKY, "orthogonal", sigma_b=0.5, input_mean=0.4),
                     lambda h: h if h > 0 else mpf(0.2) * h,
                     lambda h: mpf(1) if h > 0 else mpf(0.2)),
}


@pytest.mark.parametrize("name", TWINS)
def test_form_is_that_of_plain_loops(name):
    net, phi, slope = TWINS[name]
    given = statistics(net)
    with mp.workdps(20):
        model = Model(phi, slope, net.depth, given.weight_variance, given.skip,
                      given.bias_variance, given.orthogonal, net.input_second_moment,
                      net.input_mean)
        state, at, _ = form(net, -0.7)
        z, layers = model.free(mp.exp(mpf(-0.7)), [mpf(v / given.top) for v in state.v])
        matrix, columns = model.form(z, layers)
        scale = np.array(model.units(layers))
        source = [scale[0], scale[0], scale[-1], scale[-1]]
        scale *= balance(state, 2).repeat(net.depth) ** -1.0
        assert state.log_z == pytest.approx(float(mp.log(z)), rel=1e-12)
        order = np.arange(2 * net.depth).reshape(2, -1).T.ravel()       # f_1, e_1, f_2, ...
        rows = np.array([[float(matrix[int(i), int(j)]) / scale[i] / scale[j] for j in order]
                         for i in order])
        responses = np.array([[float(column[int(i), 0]) / scale[i] / s
                               for column, s in zip(columns, source, strict=True)] for i in order])
    np.testing.assert_allclose(entries(at.matrix), rows, atol=1e-11)
    np.testing.assert_allclose(at.columns, responses, atol=1e-11)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_tridiagonal_form_is_the_dense_one(weights):
    net = FeedForward(5, "gelu", weights, sigma_w=1.4, sigma_b=0.2, input_mean=0.5)
    for x in (-2.5, -6.0):
        state, at, whole = form(net, x)
        dense = Residual(statistics(net)).form(whole.path.nodes, state)
        np.testing.assert_allclose(entries(at.matrix), dense.matrix.entries, atol=1e-12)
        np.testing.assert_allclose(at.columns, dense.columns, atol=1e-12)


def recursion(net, x):
    """1 - Z_L E_L of a feed-forward network by the scalar recursion, and the product of all
    pivots, at m = e^x; expectations by `fastspec.quadrature.expectation`."""
    given, (state, _, _) = statistics(net), form(net, x)
    sigma, m, phi, slope = (math.exp(0.5 * state.log_z), state.m, net.activation,
                            net.activation.derivative)
    p_layer, b, pivots = 1.0 / sigma, 1.0 / sigma, 1.0
    scale = [p_layer, *(p_layer * np.exp(np.cumsum(state.log_ratio)))]
    power = 1.0 if given.orthogonal else 0.0
    alpha = [given.weight_variance * (1.0 + m) ** (1.0 - power) * scale[n] for n in
             range(net.depth)]
    beta = [m / ((1.0 + m) * scale[n]) for n in range(net.depth)] + [1.0 / sigma]
    for n in range(net.depth):
        q, p = given.q[n], given.second_moment[n : n + 2]
        gain = given.weight_variance * math.sqrt(p[0]) / q
        own = given.weight_variance * given.bias_variance / q

        def mean(f, u=alpha[n] * beta[n + 1], q=q):
            return expectation(lambda x: f(x) / (1.0 - u * slope(x) ** 2), q,
                               kinks=net.activation.kinks).value

        e = b - power * alpha[n] / given.weight_variance
        z = beta[n + 1] * mean(lambda h, k=gain, v=own: slope(h) ** 2 * ((k * h) ** 2 + v))
        across = mean(lambda h, k=gain: slope(h) * k * h * phi(h)) / math.sqrt(p[1])
        down = alpha[n] * mean(lambda h: slope(h) ** 2 * phi(h) ** 2) / p[1]
        pivot = 1.0 - z * e
        pivots *= pivot
        gain = down + across**2 * e / pivot
        if n < net.depth - 1:
            pivots *= 1.0 + gain * beta[n + 1]
        b = gain / (1.0 + gain * beta[n + 1])
    return pivot, pivots


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_scalar_recursion_of_feed_forward_networks(weights):
    """Its pivots are those of T F, the first of which it leaves out: det F = (1+m) det T^{-1}
    times their product."""
    net = FeedForward(4, "gelu", weights, sigma_w=1.4, sigma_b=0.1, input_second_moment=0.5)
    for x in (-2.2, -3.0, -4.0):
        state, at, _ = form(net, x)
        m1 = 1.0 + math.exp(x)
        kept = m1 / (1.0 + state.excess) if weights == "orthogonal" else np.zeros(4)
        ties = np.prod(-1.0 / (1.0 - kept * state.excess / m1))
        assert np.linalg.det(entries(at.matrix)) == pytest.approx(
            m1 * ties * recursion(net, x)[1], rel=1e-12)


@pytest.mark.parametrize("name", ["feed_forward_2", "feed_forward_4"])
def test_scalar_recursion_vanishes_at_the_outlier(name):
    net = TABLE[name][0]
    whole = search._Search(statistics(net), 1)
    edge, log_z = whole.path.edge(), math.log(net.outliers()[0].value)
    x = brentq(lambda x: whole.path.state(x).log_z - log_z, edge - 1.0, edge - 1e-3, xtol=1e-14)
    assert abs(recursion(net, x)[0]) < 1e-11
    assert abs(recursion(net, x - 0.1)[0]) > 1e-3


# ---- thresholds, limits, bad input ---------------------------------------------------------------

def test_outlier_at_the_threshold_is_counted_but_not_detached():
    """Between an input without and one with an outlier there is one that just leaves the bulk."""
    def net(second_moment):
        return FeedForward(2, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=second_moment)

    with_one, without = 0.1, 3.0
    assert net(with_one).outliers() and not net(without).outliers()
    while without - with_one > 1e-8:
        middle = 0.5 * (with_one + without)
        with_one, without = ((middle, without) if net(middle).outliers() else
                             (with_one, middle))
    (last,) = net(with_one).outliers()
    assert not last.detached and last.margin < 1e-12 and last.overlap_input < 1e-5
    (clear,) = net(with_one - 0.01).outliers()
    assert clear.detached and 1e-12 < clear.margin < 1e-3


def test_input_mean_of_plain_chains_only_turns_the_ones():
    """v_1 then has the projection of x^0 on the ones, and nothing else of them."""
    plain, shifted = (FeedForward(4, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1,
                                  input_mean=mean).outliers()[0] for mean in (0.0, -0.2))
    assert plain.overlap_ones_input == 0.0
    assert shifted.overlap_ones_input == pytest.approx(0.4 * shifted.overlap_input, rel=1e-12)
    assert shifted.value == plain.value and shifted.overlap_output == plain.overlap_output


def test_fixed_point_networks_have_their_inputs_there():
    net = FeedForward(8, "silu", sigma_w=1.4, sigma_b=0.6, q="fixed_point")
    q = net.fixed_point()
    same = FeedForward(8, "silu", sigma_w=1.4, sigma_b=0.6,
                       input_second_moment=(q - 0.36) / 1.96)
    ours, theirs = net.outliers(), same.outliers()
    assert len(ours) == len(theirs) > 0
    assert ours[0].value == pytest.approx(theirs[0].value, rel=1e-9)


def test_records_are_plain_and_sorted():
    found = ResNet(50, "relu", sigma_w=0.5).outliers()
    assert isinstance(found, tuple) and all(isinstance(one, Outlier) for one in found)
    assert [one.value for one in found] == sorted((one.value for one in found), reverse=True)
    assert found == outliers(ResNet(50, "relu", sigma_w=0.5))
    assert all(isinstance(one.value, float) and type(one.detached) is bool for one in found)


@pytest.mark.parametrize("net, message", [
    (ResNet(3, "relu", batch_norm=True), "batch_norm must be None"),
    (ResNet(3, "relu", branch_layers=2), "branch_layers must be 1"),
    (FeedForward(2, "relu", widths=(1.0, 2.0, 1.0)), "widths must be equal"),
    (ResNet(3, "relu", input_second_moment=0.0), "input_second_moment must be > 0"),
    (ResNet(3, "relu", sigma_b=0.3, input_second_moment=0.0), "input_second_moment must be > 0"),
    (FeedForward(3, "tanh", sigma_w=0.9, sigma_b=0.1, q="fixed_point", input_mean=0.9),
     "input_mean must have a square of at most 0.0"),
])
def test_networks_that_are_not_covered(net, message):
    with pytest.raises(ValueError, match=message):
        net.outliers()


def test_equal_widths_are_covered():
    net = FeedForward(2, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1)
    wide = FeedForward(2, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1,
                       widths=(2.0, 2.0, 2.0))
    assert wide.outliers() == net.outliers()


@pytest.mark.parametrize("kind", [ResNet, FeedForward])
def test_input_mean_is_checked(kind):
    with pytest.raises(ValueError, match="input_mean must have a square of at most"):
        kind(3, "relu", input_mean=1.1)
    with pytest.raises(ValueError, match="input_mean must be a finite number"):
        kind(3, "relu", input_mean=math.nan)
    assert kind(3, "relu", input_mean=-1).input_mean == -1.0


def test_signals_beyond_doubles():
    with pytest.raises(OverflowError, match="the signal explodes"):
        ResNet(400, "relu", sigma_w=30.0, depth_scaled=False).outliers()


# ---- a real network ------------------------------------------------------------------------------

def test_small_simulation():
    """Means over twelve networks of width 150; finite width adds about 1/width."""
    net = ResNet(6, "relu", "orthogonal", sigma_w=1.2, input_mean=0.5)
    (one,) = net.outliers()
    drawn = np.array([jacobian_singular_values(net, 150, seed=seed)[:2] for seed in range(12)])**2
    error = drawn[:, 0].std(ddof=1) / math.sqrt(12)
    assert abs(drawn[:, 0].mean() - one.value) < 3.0 * error < 0.15 * one.value
    assert drawn[:, 1].mean() < 1.02 * one.edge < drawn[:, 0].mean()
