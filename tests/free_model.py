"""Monte Carlo of the free model of a chain: an outside check of the laws of products of blocks.

Blocks are the dicts of reference/chain_laws_own.json: {"layers": [{"activation", "q", "mean",
"weight_variance", "weights", "width_in", "width_out"}, ...], "skip": a, "repeat": n}, first
block next to the input. A plain block (skip 0) is a product of layers D W, D = diag phi'(h) with
stratified h ~ N(mean, q); a residual block is a I + product of D W. Between consecutive
residual blocks stands a fresh Haar rotation: without it their D share the coordinate basis and
the blocks are not free. Gaussian weights: entries of variance weight_variance / fan-in;
orthogonal: W W^T = weight_variance I, tall W^T W = weight_variance I. NumPy only.
"""

import math
from statistics import NormalDist

import numpy as np

_NORMAL = NormalDist()
_ERF = np.vectorize(math.erf, otypes=[float])


def _logistic(h):
    return 0.5 * (1 + np.tanh(h / 2))


SLOPES = {
    "linear": np.ones_like,
    "relu": lambda h: np.where(h > 0, 1.0, 0.0),
    "hard_tanh": lambda h: np.where(np.abs(h) < 1, 1.0, 0.0),
    "tanh": lambda h: 1 / np.cosh(np.clip(h, -350, 350))**2,
    "arctan": lambda h: 1 / (1 + h**2),
    "erf": lambda h: 2 / math.sqrt(math.pi) * np.exp(-h**2),
    "sigmoid": lambda h: _logistic(h) * _logistic(-h),
    "softplus": _logistic,
    "silu": lambda h: _logistic(h) * (1 + h * _logistic(-h)),
    "gelu": lambda h: 0.5 * (1 + _ERF(h / math.sqrt(2)))
    + h * np.exp(-h**2 / 2) / math.sqrt(2 * math.pi),
    "selu": lambda h: 1.0507009873554805 * np.where(
        h > 0, 1.0, 1.6732632423543772 * np.exp(np.minimum(h, 0))),
}


def slopes(activation, h):
    """phi'(h): a name, "leaky:<slope>", or {"slopes", "kinks"} of a piecewise linear phi."""
    if isinstance(activation, dict):
        piece = np.searchsorted([float(k) for k in activation["kinks"]], h)
        return np.array([float(s) for s in activation["slopes"]])[piece]
    name, _, slope = activation.partition(":")
    if name == "leaky":
        return np.where(h > 0, 1.0, float(slope))
    return SLOPES[name](h)


def stratified_normal(n, rng):
    """n standard normals, one in each stratum of probability 1/n, in random order.

    The law of D is met to 1/n instead of 1/sqrt(n).
    """
    uniform = (rng.permutation(n) + rng.random(n)) / n
    return np.array([_NORMAL.inv_cdf(min(max(u, 1e-16), 1 - 1e-16)) for u in uniform])


def haar(n, rng):
    """Haar-distributed orthogonal n x n matrix."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    return q * np.sign(np.diag(r))


def weights(kind, variance, n_out, n_in, rng):
    if kind == "gaussian":
        return rng.standard_normal((n_out, n_in)) * math.sqrt(variance / n_in)
    return haar(max(n_out, n_in), rng)[:n_out, :n_in] * math.sqrt(variance)


def layer_matrix(layer, unit, rng):
    """D W; width_in and width_out count in units of ``unit`` rows."""
    n_in, n_out = (round(unit * float(layer.get(key, 1))) for key in ("width_in", "width_out"))
    mean, scale = float(layer.get("mean", 0)), math.sqrt(float(layer["q"]))
    d = slopes(layer["activation"], mean + scale * stratified_normal(n_out, rng))
    w = weights(layer["weights"], float(layer["weight_variance"]), n_out, n_in, rng)
    return d[:, np.newaxis] * w


def branch_matrix(block, unit, rng):
    product = layer_matrix(block["layers"][0], unit, rng)
    for layer in block["layers"][1:]:
        product = layer_matrix(layer, unit, rng) @ product
    return product


def sample_eigenvalues(blocks, width, seed):
    """Eigenvalues of J J^T of one draw of the free model.

    Parameters
    ----------
    blocks : list of dict
        First block next to the input.
    width : int
        Number of eigenvalues: the width of the output. Other widths follow in proportion.
    seed : int
        Of the draw.

    Returns
    -------
    ndarray, shape (width,)
        Ascending. Below about 1e-30 of the largest they are rounding.
    """
    rng = np.random.default_rng(seed)
    unit = width / float(blocks[-1]["layers"][-1].get("width_out", 1))
    product, after_residual = None, False
    for block in blocks:
        skip = float(block["skip"])
        for _ in range(int(block["repeat"])):
            factor = branch_matrix(block, unit, rng)
            if skip:
                factor[np.diag_indices_from(factor)] += skip
                if after_residual:
                    product = haar(len(factor), rng) @ product
            product = factor if product is None else factor @ product
            after_residual = skip != 0
    values = np.linalg.svd(product, compute_uv=False)**2
    return np.sort(np.concatenate([values, np.zeros(width - len(values))]))
