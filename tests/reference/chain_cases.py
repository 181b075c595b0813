"""The chains tabulated in chain_laws_own.json: name -> blocks, first block next to the input.

A block is {"layers": [layer, ...], "skip": a, "repeat": n}; a layer has activation, q, mean,
weight_variance, weights and, in rectangular plain chains, width_out and width_in. Numbers are
strings holding doubles.
"""

import numpy as np

THREE_SLOPES = {"slopes": ["0.2", "1", "0.6"], "kinks": ["-0.5", "0.8"]}
THREE_WITH_ZERO = {"slopes": ["0", "1", "0.3"], "kinks": ["-0.4", "0.3"]}
PHI = {"tanh": np.tanh, "sigmoid": lambda h: (1 + np.tanh(h / 2)) / 2}


def layer(activation, variance, weights, q=1.0, mean=0.0, widths=None):
    """One layer D W; widths = (in, out)."""
    out = {"activation": activation, "q": repr(float(q)), "mean": repr(float(mean)),
           "weight_variance": repr(float(variance)), "weights": weights}
    if widths:
        out["width_in"], out["width_out"] = (repr(float(width)) for width in widths)
    return out


def plain(activation, variance, weights, depth=1, **options):
    return {"layers": [layer(activation, variance, weights, **options)], "skip": "0.0",
            "repeat": depth}


def residual(activation, variance, weights, skip=1.0, depth=1, **options):
    return {"layers": [layer(activation, variance, weights, **options)],
            "skip": repr(float(skip)), "repeat": depth}


def branch(layers, skip=1.0, depth=1):
    """Residual block whose branch has several layers."""
    return {"layers": layers, "skip": repr(float(skip)), "repeat": depth}


def propagated(activation, variance, depth, q_first, skip=1.0):
    """q of each layer: x = phi(h) + skip x, E h^2 = variance E x^2 (no bias)."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    z, weights = 9 * nodes, 9 * weights * np.exp(-(9 * nodes)**2 / 2) / np.sqrt(2 * np.pi)
    mean, second, found = 0.0, q_first / variance, []
    for _ in range(depth):
        q = variance * second
        found.append(q)
        values = PHI[activation](np.sqrt(q) * z)
        first = float(weights @ values)
        second = skip**2 * second + 2 * skip * mean * first + float(weights @ values**2)
        mean = skip * mean + first
    return found


def _plain_cases():
    cases = {}
    for depth, weights, variance in ((1, "gaussian", 2), (2, "gaussian", 2), (3, "orthogonal", 2),
                                     (10, "orthogonal", 2), (100, "gaussian", 2),
                                     (100, "orthogonal", 2), (1000, "gaussian", 2),
                                     (1000, "orthogonal", 1.7)):
        cases[f"relu {weights} {depth}"] = [plain("relu", variance, weights, depth)]
    for slope, depth, weights in (("0.25", 1, "gaussian"), ("0.25", 2, "orthogonal"),
                                  ("0.05", 2, "orthogonal"), ("0.05", 3, "orthogonal"),
                                  ("0.25", 3, "orthogonal"), ("0.05", 10, "gaussian"),
                                  ("0.25", 100, "orthogonal"), ("0.05", 1000, "orthogonal")):
        variance = 2 / (1 + float(slope)**2)
        name = f"leaky {slope} {weights} {depth}"
        cases[name] = [plain(f"leaky:{slope}", variance, weights, depth)]
    for q, depth, weights in ((0.2, 2, "gaussian"), (1, 3, "orthogonal"), (1, 100, "gaussian"),
                              (0.02, 10, "gaussian"), (0.2, 1000, "orthogonal"),
                              (0.2, 10, "orthogonal")):
        cases[f"hard_tanh q={q} {weights} {depth}"] = [
            plain("hard_tanh", 1.05, weights, depth, q=q)]
    cases["linear gaussian 3"] = [plain("linear", 1, "gaussian", 3)]
    cases["linear gaussian 1000"] = [plain("linear", 1, "gaussian", 1000)]
    for kind in ("gaussian", "orthogonal"):
        cases[f"three slopes {kind} 1"] = [plain(THREE_SLOPES, 1.3, kind, 1)]
        cases[f"three slopes {kind} 3"] = [plain(THREE_SLOPES, 1.3, kind, 3, q=0.5)]
    cases["three slopes with zero, orthogonal 2"] = [plain(THREE_WITH_ZERO, 2, "orthogonal", 2)]
    del cases["three slopes orthogonal 1"]      # atoms only
    return cases


def _smooth_plain_cases():
    cases = {}
    for q, depth, weights in ((1e-4, 2, "orthogonal"), (1e-4, 50, "orthogonal"),
                              (1e-4, 1, "gaussian"), (0.01, 1, "orthogonal"),
                              (0.01, 5, "orthogonal"), (0.01, 2, "gaussian"),
                              (1, 1, "orthogonal"), (1, 1, "gaussian"), (1, 2, "orthogonal"),
                              (1, 50, "orthogonal"), (1, 5, "gaussian"), (100, 2, "orthogonal"),
                              (100, 1, "gaussian"), (100, 50, "gaussian")):
        cases[f"tanh q={q} {weights} {depth}"] = [plain("tanh", 1.3, weights, depth, q=q)]
    for activation, depth, q in (("gelu", 2, 1), ("gelu", 4, 0.3), ("erf", 2, 0.15),
                                 ("sigmoid", 3, 1), ("sigmoid", 5, 20), ("selu", 3, 1),
                                 ("softplus", 3, 1), ("softplus", 5, 4), ("silu", 3, 1),
                                 ("arctan", 2, 1)):
        scale = 16 if activation == "sigmoid" else 1.5
        cases[f"{activation} q={q} orthogonal {depth}"] = [
            plain(activation, scale, "orthogonal", depth, q=q)]
    cases["tanh mean 0.7 orthogonal 4"] = [plain("tanh", 1.5, "orthogonal", 4, mean=0.7)]
    cases["tanh orthogonal, 5 unequal q"] = [
        plain("tanh", 1.4, "orthogonal", q=q) for q in (0.9, 0.7, 0.55, 0.45, 0.4)]
    cases["tanh gaussian, 5 unequal q"] = [
        plain("tanh", 1.4, "gaussian", q=q) for q in (3, 1, 0.3, 0.1, 0.03)]
    return cases


def _mixed_cases():
    relu, tanh, gelu = (layer(name, 0.4, "gaussian") for name in ("relu", "tanh", "gelu"))
    orthogonal = layer("tanh", 0.5, "orthogonal", q=0.3)
    return {
        "relu gaussian + leaky orthogonal": [plain("relu", 2, "gaussian", 2),
                                             plain("leaky:0.25", 1.8, "orthogonal", 3)],
        "tanh orthogonal + gelu gaussian": [plain("tanh", 1.3, "orthogonal", 2, q=0.5),
                                            plain("gelu", 1.9, "gaussian", 1, q=0.8)],
        "hard_tanh + tanh + linear, orthogonal first": [
            plain("hard_tanh", 1.05, "orthogonal", 3, q=0.3),
            plain("tanh", 1.2, "orthogonal", 1, q=0.2), plain("linear", 0.9, "gaussian", 1)],
        "plain relu + residual tanh + plain leaky": [
            plain("relu", 2, "orthogonal"), residual("tanh", 0.3, "gaussian", depth=4, q=0.6),
            plain("leaky:0.05", 2, "gaussian")],
        "residual relu 0.5 + residual leaky 1.2": [
            residual("relu", 0.6, "gaussian", 0.5, 2),
            residual("leaky:0.25", 0.2, "orthogonal", 1.2, 3)],
        "residual tanh + plain erf": [residual("tanh", 0.2, "orthogonal", depth=3, q=0.2),
                                      plain("erf", 0.9, "orthogonal", 2, q=0.15)],
        "branch of two layers": [branch([relu, tanh])],
        "branch of two layers, orthogonal, 10 blocks": [
            branch([layer("relu", 0.5, "orthogonal"), orthogonal], depth=10)],
        "branch of three layers": [branch([relu, tanh, gelu], 1.2, 2)],
        "branch of three linear and tanh layers": [
            branch([layer("linear", 0.8, "gaussian"), orthogonal, tanh], 0.5, 3)],
    }


def _residual_cases():
    cases = {}
    rows = [("relu", 1e-3, "gaussian", 1, 100), ("relu", 10, "gaussian", 1, 1),
            ("relu", 0.0165, "gaussian", 1, 1), ("relu", 0.00415, "orthogonal", 1, 1),
            ("relu", 0.5, "orthogonal", 0.5, 2), ("relu", 1 / 1024, "gaussian", 1, 1000),
            ("leaky:0.25", 10, "orthogonal", 1, 1), ("leaky:0.05", 0.3, "gaussian", 1.2, 2),
            ("leaky:0.05", 1, "orthogonal", 0.5, 10), ("tanh", 0.5, "orthogonal", 1, 1),
            ("tanh", 0.01, "gaussian", 1, 100), ("tanh", 10, "gaussian", 1.2, 2),
            ("tanh", 1e-3, "orthogonal", 1, 1000), ("gelu", 0.1, "gaussian", 1, 10),
            ("gelu", 0.7, "orthogonal", 1, 2), ("gelu", 1, "gaussian", 0.5, 1),
            ("linear", 0.99, "gaussian", 1, 1), ("linear", 1, "gaussian", 1, 1),
            ("linear", 1.5, "gaussian", 1, 1), ("hard_tanh", 0.05, "orthogonal", 1, 20),
            (THREE_SLOPES, 0.4, "gaussian", 1, 2)]
    for activation, variance, weights, skip, depth in rows:
        name = activation if isinstance(activation, str) else "three slopes"
        cases[f"residual {name} var={variance:.6g} {weights} skip={skip} {depth}"] = [
            residual(activation, variance, weights, skip, depth)]
    cases["residual relu mean -1: atom at 1"] = [
        residual("relu", 0.3, "gaussian", q=1, mean=-1)]
    for activation, variance, depth, q in (("tanh", 0.1, 100, 0.1), ("sigmoid", 1, 200, 1)):
        cases[f"residual {activation} {depth} unequal"] = [
            residual(activation, variance, "gaussian", q=value)
            for value in propagated(activation, variance, depth, q)]
    return cases


def _rectangular_cases():
    widths = ((900, 1500), (1500, 600), (600, 1200))
    cases = {f"rectangular relu {kind}": [
        plain("relu", 2, kind, widths=pair) for pair in widths]
        for kind in ("gaussian", "orthogonal")}
    for ratio in (0.3, 2):
        cases[f"Marchenko-Pastur {ratio}"] = [
            plain("linear", 1, "gaussian", widths=(1, ratio))]
    cases["rectangular tanh gaussian"] = [
        plain("tanh", 1.4, "gaussian", q=0.5, widths=(2, 3)),
        plain("tanh", 1.4, "gaussian", q=0.5, widths=(3, 1))]
    return cases


def all_cases():
    """Every tabulated chain by name."""
    return {**_plain_cases(), **_smooth_plain_cases(), **_mixed_cases(), **_residual_cases(),
            **_rectangular_cases()}
