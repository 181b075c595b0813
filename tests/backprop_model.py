"""Random networks of finite width with back-propagation by hand: the truth for mean-field laws."""

import math

import numpy as np

QUANTITIES = ("p", "gamma", "mean", "q", "lam", "chi", "chi_w", "chi_b", "chi_v", "chi_a")


def sample(field, depth, *, width, nets, seed, gamma0):
    """Averages over units, by quantity: arrays of shape (nets, depth + 1), NaN where undefined.

    The inputs have entries +-1 and the share (1 - gamma0) / 2 of opposite ones; the output
    gradient has random signs, so that chi is 1 there.
    """
    rng = np.random.default_rng(seed)
    out = {name: np.full((nets, depth + 1), np.nan) for name in QUANTITIES}
    for net in range(nets):
        for name, values in one_network(field, depth, width, gamma0, rng).items():
            out[name][net] = values
    return out


def one_network(field, depth, width, gamma0, rng):
    rows = {name: np.full(depth + 1, np.nan) for name in QUANTITIES}
    x = inputs(width, gamma0, rng)
    record_signals(rows, 0, x)
    layers = []
    for layer in range(1, depth + 1):
        w = weights(rng, field.sigma_w, width)
        h = w @ x + field.sigma_b * rng.standard_normal((width, 1))
        v = weights(rng, field.sigma_v, width) if field.block == "full" else None
        layers.append((w, v, h[:, 0], x[:, 0]))
        branch = field.activation(h)
        if v is not None:
            branch = v @ branch + field.sigma_a * rng.standard_normal((width, 1))
        x = branch if field.block == "vanilla" else branch + x
        record_signals(rows, layer, x)
        rows["q"][layer], rows["lam"][layer] = np.mean(h[:, 0] ** 2), np.mean(h[:, 0] * h[:, 1])
    g = rng.choice([-1.0, 1.0], width)
    rows["chi"][depth] = 1.0
    for layer in range(depth, 0, -1):
        g = back(field, layers[layer - 1], g, rows, layer)
        rows["chi"][layer - 1] = np.mean(g**2)
    return rows


def back(field, layer, g, rows, index):
    """Record the gradients of a block's parameters, return the gradient at its input."""
    w, v, h, x = layer
    above = g if v is None else v.T @ g
    at_h = above * field.activation.derivative(h)
    rows["chi_b"][index] = np.mean(at_h**2)
    rows["chi_w"][index] = np.mean(at_h**2) * np.mean(x**2)     # mean of an outer product
    if v is not None:
        rows["chi_v"][index] = np.mean(g**2) * np.mean(field.activation(h) ** 2)
        rows["chi_a"][index] = np.mean(g**2)
    down = w.T @ at_h
    return down if field.block == "vanilla" else down + g


def inputs(width, gamma0, rng):
    first = rng.choice([-1.0, 1.0], width)
    flip = np.where(rng.permutation(width) < round(width * (1.0 - gamma0) / 2.0), -1.0, 1.0)
    return np.stack([first, first * flip], axis=1)


def weights(rng, sigma, width):
    return rng.standard_normal((width, width), dtype=np.float32) * np.float32(
        sigma / math.sqrt(width))


def record_signals(rows, layer, x):
    rows["p"][layer], rows["gamma"][layer] = np.mean(x[:, 0] ** 2), np.mean(x[:, 0] * x[:, 1])
    rows["mean"][layer] = np.mean(x[:, 0])
