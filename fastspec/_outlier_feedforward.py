r"""F of a feed-forward network: without skips the chain falls into pairs (w_l, y_l), so F is
tridiagonal and everything takes time proportional to the depth.

With X = 1/(1 - u_l D^2), in the units and the order of `_outlier_response`: R(f_1, f_1) = 1 + m,
R(e_l, e_l) = m/((1+m) r_l) E[D^2 g^2 X], R(e_l, f_{l+1}) = E[D g phi X] / sqrt(r_l p_l),
R(f_{l+1}, f_{l+1}) = alpha_l/r_l E[D^2 phi^2 X] / p_l.
"""

from __future__ import annotations

import numpy as np

from ._outlier_free import State
from ._outlier_layers import FloatArray, Nodes, Statistics
from ._outlier_matrices import Tridiagonal
from ._outlier_response import Form, balance, couplings, tie


class Plain:
    """F of a feed-forward network at any state of its free path."""

    def __init__(self, net: Statistics) -> None:
        self.net = net

    def form(self, nodes: Nodes, state: State) -> Form:
        net, ratio = self.net, np.exp(state.log_ratio)
        pole = nodes.weight / (nodes.below_top + state.rest[:, np.newaxis] * nodes.d)
        pole[:, -1] += state.peak
        onward = state.m / (state.above_minus_one * ratio)
        to_e = onward * np.sum(pole * (nodes.response**2 + nodes.spread), axis=1)
        across = np.sum(pole * nodes.response * nodes.phi, axis=1)
        alpha = net.weight_variance * net.top * couplings(net, state)[0]
        to_f = alpha / ratio * np.sum(pole * nodes.d * nodes.phi**2, axis=1)
        diagonal, link = tie(net, state)
        diagonal[0] -= state.above_minus_one
        diagonal[1::2] -= to_e
        diagonal[2::2] -= to_f[:-1]
        beside = np.empty(2 * net.depth - 1)
        beside[0::2], beside[1::2] = link, -(across / np.sqrt(ratio))[:-1]
        scale = balance(state, 2 * net.depth)
        columns = self._columns(nodes, state, pole, across, onward)
        return Form(Tridiagonal(scale**2 * diagonal, beside), scale[:, np.newaxis] * columns)

    def _columns(self, nodes: Nodes, state: State, pole: FloatArray, across: FloatArray,
                 onward: FloatArray) -> FloatArray:
        net = self.net
        columns = np.zeros((2 * net.depth, 4))
        columns[0, 0] = state.above_minus_one
        columns[0, 1] = state.above_minus_one * net.input_mean / np.sqrt(net.second_moment[0])
        columns[-1, 2] = onward[-1] * across[-1]
        columns[-1, 3] = onward[-1] * np.sum(pole[-1] * nodes.response[-1])
        return columns
