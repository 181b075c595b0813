r"""The finite-rank part: F(z) = T^{-1} - R(z), whose zero eigenvalues are the outliers.

Given the forward pass, W_l = g_l xh_{l-1}^T + fresh weights. The singular-vector equations become,
per coordinate, a chain with sources f_l (along xh_{l-1}) and e_l (along D_l g_l); R is the response
of b_l = <xh_{l-1} y_{l-1}> and c_l = <g_l D_l w_l> to them, T what ties sources to b and c:
T_l^{-1} = [[om alpha/s^2, 1], [1, beta]] / (1 - om alpha beta / s^2), om = 0 Gaussian,
1 orthogonal.

Order of the unknowns: y_0, w_1, y_1, w_2, ..., w_L, and of the sources f_1, e_1, f_2, ...; then the
free resolvent G is the inverse of a tridiagonal matrix. Units: y_l and w_{l+1} are measured in
sqrt(P_l) and 1/sqrt(P_l), P_l = prod_{k<=l} r_k / sigma, so that all is of order one at any depth;
F then has its rows f_l and e_l multiplied by s and 1/s, s^4 = abs(m/(1+m)), which lets both of its
diagonal blocks vanish alike far from the bulk. Congruence leaves its inertia alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._outlier_free import State
from ._outlier_layers import FloatArray, Nodes, Statistics
from ._outlier_matrices import Dense


class Form(NamedTuple):
    """F, of size 2L, and the responses to sources along fixed directions."""

    matrix: Any             # `Dense` or `Tridiagonal`
    columns: FloatArray     # (2L, 4): x^0 and 1 at the input, x^L and 1 at the output


class Dressed(NamedTuple):
    """Moments of A = phi(h)/sqrt(p) and B = D g over the law with weight X/eta; shape (L,).

    X = 1/(1 - u D^2) is what the fluctuation of D at one coordinate does to all powers.
    """

    plain_mean: FloatArray      # E A
    plain_variance: FloatArray  # Var A
    mean_a: FloatArray
    mean_b: FloatArray
    excess_variance: FloatArray     # dressed less plain Var A
    covariance: FloatArray
    variance_b: FloatArray


def couplings(net: Statistics, state: State) -> tuple[FloatArray, FloatArray]:
    """alpha/s^2 and beta of every layer, in units of P_{l-1} and 1/P_{l-1}."""
    eta = 1.0 + state.excess if net.orthogonal else np.ones(net.depth)
    return state.above_minus_one / eta, state.excess / state.above_minus_one


def tie(net: Statistics, state: State) -> tuple[FloatArray, FloatArray]:
    """T^{-1}: its diagonal, shape (2L,), and the entries (f_l, e_l), shape (L,)."""
    alpha, beta = couplings(net, state)
    kept = alpha if net.orthogonal else np.zeros(net.depth)
    link = 1.0 / (1.0 - kept * beta)
    return np.stack([kept * link, beta * link], axis=1).ravel(), link


def balance(state: State, size: int) -> FloatArray:
    """s and 1/s for the rows f_l and e_l."""
    s = abs(state.m / state.above_minus_one) ** 0.25
    return np.tile([s, 1.0 / s], size // 2)


def dressed(nodes: Nodes, state: State) -> Dressed:
    pole = 1.0 / (nodes.below_top + state.rest[:, np.newaxis] * nodes.d)
    e = state.excess[:, np.newaxis]
    # w (X/eta - 1), without cancellation
    extra = (nodes.mass * state.v[:, np.newaxis] * pole - nodes.weight * e) / (1.0 + e)
    extra[:, -1] += state.peak / (1.0 + state.excess)
    weight = nodes.weight + extra
    plain, a, b = (np.sum(w * f, axis=1) for w, f in (
        (nodes.weight, nodes.phi), (weight, nodes.phi), (weight, nodes.response)))
    off_a, off_b = nodes.phi - a[:, np.newaxis], nodes.response - b[:, np.newaxis]
    around = np.sum(nodes.weight * (nodes.phi - plain[:, np.newaxis]) ** 2, axis=1)
    return Dressed(plain, around, a, b,
                   np.sum(extra * off_a**2, axis=1) + (plain - a) ** 2,
                   np.sum(weight * off_a * off_b, axis=1),
                   np.sum(weight * (off_b**2 + nodes.spread), axis=1))


class Residual:
    """F of a residual network at any state of its free path."""

    def __init__(self, net: Statistics) -> None:
        self.net = net
        last = 2 * net.depth - 1
        self._row = np.concatenate([np.arange(last + 1), [0, last, last]])  # row of each source
        self._carried = _carried(net)
        self._ones = np.zeros(last + 4)
        self._ones[[last + 1, last + 3]] = 1.0

    def form(self, nodes: Nodes, state: State) -> Form:
        response = self._response(nodes, state)
        size = 2 * self.net.depth
        diagonal, link = tie(self.net, state)
        matrix = np.diag(diagonal) - response[:size, :size]
        f = np.arange(0, size, 2)
        matrix[f, f + 1] += link
        matrix[f + 1, f] += link
        columns = response[:size, [0, size, size + 1, size + 2]]
        scale = balance(state, size)
        return Form(Dense(scale[:, np.newaxis] * matrix * scale), scale[:, np.newaxis] * columns)

    def _response(self, nodes: Nodes, state: State) -> FloatArray:
        """R with three more sources: 1 at the input, x^L and 1 at the output.

        Layers are single sites of the free chain; a layer's own fluctuation enters by dressed
        moments, x^l = a^l x^0 + sum_k a^{l-k} phi_k by the columns of ``carried``.
        """
        net, row, x = self.net, self._row, self._carried
        moments, free = dressed(nodes, state), _resolvent(net, state)
        site = np.arange(1, 2 * net.depth, 2)
        own = (state.gamma * (1.0 + state.excess))      # G at the site
        m0 = net.input_mean / np.sqrt(net.second_moment[0])
        means = np.concatenate([[m0], moments.plain_mean])
        variances = np.concatenate([[1.0 - m0 * m0], moments.plain_variance])
        reach = x[1:] * free[site][:, row]              # x^(k) times G from site k
        out = free[np.ix_(row, row)] * _gram(x, variances)
        out += _gram(reach, moments.excess_variance / own)
        mixed = np.zeros_like(out)
        mixed[site] = moments.covariance[:, np.newaxis] * reach
        out += mixed + mixed.T
        out[site, site] += own * moments.variance_b
        vertex = np.zeros((2 * net.depth, row.size))
        np.add.at(vertex, (row, np.arange(row.size)), means @ x + self._ones)
        vertex[site] += ((moments.mean_a - moments.plain_mean) / own)[:, np.newaxis] * reach
        vertex[site, site] += moments.mean_b
        return np.asarray(out + vertex.T @ free @ vertex)


def _gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(rows.T @ (weights[:, np.newaxis] * rows))


def _carried(net: Statistics) -> FloatArray:
    """a^{l-k} sqrt(p_k / p_l): the part of phi_k (k = 0: of x^0) in the source of column j, which
    carries xh_l; shape (L+1, 2L+3)."""
    depth, log_p = net.depth, np.log(net.second_moment)
    steps = np.arange(depth + 1) - np.arange(depth + 1)[:, np.newaxis]
    power = 0.5 * (log_p[:, np.newaxis] - log_p)
    if net.skip:
        sign = np.where(steps % 2, np.sign(net.skip), 1.0)
        power = power + steps * np.log(abs(net.skip))
    else:
        sign = np.where(steps == 0, 1.0, 0.0)
    with np.errstate(under="ignore"):
        parts = sign * np.exp(np.where(steps >= 0, power, -np.inf))
    out = np.zeros((depth + 1, 2 * depth + 3))
    out[:, 0 : 2 * depth : 2] = parts[:, :-1]
    out[:, 2 * depth + 1] = parts[:, -1]
    return out


def _resolvent(net: Statistics, state: State) -> FloatArray:
    """G of the free chain, shape (2L, 2L)."""
    ratio, eta = np.exp(state.log_ratio), 1.0 + state.excess
    y = -couplings(net, state)[1]
    w = -state.excess / (eta * state.gamma)
    y[0] += 1.0
    w[-1] += ratio[-1] * state.above_minus_one / state.m
    beside = np.empty(2 * net.depth - 1)
    beside[0::2], beside[1::2] = -net.skip, np.sqrt(ratio[:-1])
    matrix = np.diag(np.stack([y, w], axis=1).ravel()) + np.diag(beside, 1) + np.diag(beside, -1)
    return np.asarray(np.linalg.inv(matrix))
