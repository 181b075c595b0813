"""Generator of pairs.json: an activation at two correlated Gaussian points, and its linear excess.

"pairs": name, parameters, q, c, then E phi(h) phi(h'), E (phi(h) - phi(h'))^2 / 2,
E phi'(h) phi'(h'), E phi^2, E phi'^2 for (h, h') of variance q and correlation c (doubles, exact).
"excess": name, parameters, q, then q E phi'^2 - E phi^2, its size E phi^2 + q E phi'^2 and
E [h phi phi'] / q.

All in mpmath, by h' given h, which is N(c h, q (1 - c^2)): in closed form for hard_tanh, gelu, elu
and selu, with 45 digits against the cancellation in the gap, and two numbers of nodes that must
agree; else by Gauss-Legendre panels in h' within panels in h, with 30 digits, the gap from
differences. There E phi phi' + gap must be E phi^2, from panels in h alone, and likewise for phi'.
The functions are textbook formulae, independent of the package.
Run: python tests/reference/generate_pairs.py (about 10 minutes)
"""

import json
from pathlib import Path

import mpmath as mp
from gaussian_moments import FUNCTIONS, SELU_A, SELU_L, gauss_legendre

TARGET = Path(__file__).with_name("pairs.json")
SOME = [(1e-6, 0.3), (1e-6, 1 - 1e-9), (1e-3, 1 - 1e-6), (0.3, 0.9), (0.3, -0.999), (1.0, 0.0),
        (1.0, 1 - 1e-9), (20.0, -0.5), (1e3, 1 - 1e-6), (1e4, 0.999)]
MORE = [*SOME, (1e-6, -0.999), (1e-3, -0.5), (1.0, 0.999), (20.0, 0.3), (20.0, -0.999),
        (20.0, 1 - 1e-6), (1e3, 0.9), (1e3, -0.5), (1e4, 0.3), (1e4, 1 - 1e-6), (1e4, 1 - 1e-9)]
EXCESS_Q = [1e-8, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3]
BY_PANELS = ["tanh", "sigmoid", "mish", "softsign"]


def cdf(z):
    return mp.erfc(-z / mp.sqrt(2)) / 2


def hard_tanh_given(m, s):
    a, b = (-1 - m) / s, (1 - m) / s
    inside = cdf(b) - cdf(a)
    return cdf(-b) - cdf(a) + m * inside + s * (mp.npdf(a) - mp.npdf(b)), inside


def elu_given(m, s, alpha):
    """E h_+ and alpha E [e^h - 1; h < 0] for h ~ N(m, s^2)."""
    tail = mp.exp(m + s * s / 2) * cdf(-(m + s * s) / s)
    value = m * cdf(m / s) + s * mp.npdf(m / s) + alpha * (tail - cdf(-m / s))
    return value, cdf(m / s) + alpha * tail


def gelu_given(m, s):
    r = mp.sqrt(1 + s * s)
    return (m * cdf(m / r) + s * s / r * mp.npdf(m / r), cdf(m / r) + m / r**3 * mp.npdf(m / r))


def given(name, parameters):
    """E phi(h) and E phi'(h) for h ~ N(m, s^2), as a function of m, s."""
    if name == "selu":
        return lambda m, s: [SELU_L * part for part in elu_given(m, s, SELU_A)]
    if name == "elu":
        return lambda m, s: elu_given(m, s, mp.mpf(parameters["alpha"]))
    return {"hard_tanh": hard_tanh_given, "gelu": gelu_given}.get(name)


def graded(low, high, width, scales, cuts):
    """Panel ends on [low, high]: at most ``width`` apart, and doubling from each (place, scale)."""
    ends = {low, high} | {mp.mpf(k) for k in cuts if low < k < high}
    count = int(mp.ceil((high - low) / width))
    ends |= {low + (high - low) * k / count for k in range(count)}
    for place, scale in scales:
        step = mp.mpf(scale)
        while step < high - low:
            ends |= {x for x in (place - step, place + step) if low < x < high}
            step *= 2
        if low < place < high:
            ends.add(mp.mpf(place))
    return sorted(ends)


def nodes(ends, rule):
    for low, high in zip(ends, ends[1:], strict=False):
        half, centre = (high - low) / 2, (high + low) / 2
        for x, w in rule:
            yield centre + half * x, half * w


def single(phi, slope, q, kinks, rule):
    """E phi^2, E phi'^2, E [h phi phi'] / q."""
    s = mp.sqrt(q)
    total = [mp.mpf(0)] * 3
    for h, w in nodes(graded(-15 * s, 15 * s, s, [(0, 1)], kinks), rule):
        weight, f, g = w * mp.npdf(h / s) / s, phi(h), slope(h)
        for i, value in enumerate((f * f, g * g, h * f * g / q)):
            total[i] += weight * value
    return total


def by_closed_form(phi, slope, conditional, q, c, kinks, rule):
    s, spread = mp.sqrt(q), mp.sqrt(q * (1 - c * c))
    bends = [(0, 1)] + [(k, spread) for k in (kinks or [0])]
    if abs(c) > 0.1:
        bends += [(k / c, spread) for k in (kinks or [0])]
    total = [mp.mpf(0)] * 2
    for h, w in nodes(graded(-15 * s, 15 * s, s, bends, kinks), rule):
        weight = w * mp.npdf(h / s) / s
        mean, mean_slope = conditional(c * h, spread)
        total[0] += weight * phi(h) * mean
        total[1] += weight * slope(h) * mean_slope
    return total


def by_panels(phi, slope, odd, q, c, kinks, rule):
    """E phi phi', the gap, E phi' phi'' and half E (phi' - phi'')^2; for odd phi from h > 0."""
    s, spread = mp.sqrt(q), mp.sqrt(q * (1 - c * c))
    bends = [(0, min(2, s)), (0, min(2, spread))] if kinks else [(0, 2)]
    total = [mp.mpf(0)] * 4
    for h, w in nodes(graded(0 if odd else -9.5 * s, 9.5 * s, 2 * s, bends, kinks), rule):
        f, g = phi(h), slope(h)
        low, high = c * h - 9.5 * spread, c * h + 9.5 * spread
        inner = [mp.mpf(0)] * 4
        for other, v in nodes(graded(low, high, 2 * spread, [(0, 2)], kinks), rule):
            v *= mp.npdf((other - c * h) / spread) / spread
            ff, gg = phi(other), slope(other)
            for i, value in enumerate((f * ff, (f - ff) ** 2 / 2, g * gg, (g - gg) ** 2 / 2)):
                inner[i] += v * value
        weight = (2 if odd else 1) * w * mp.npdf(h / s) / s
        total = [old + weight * new for old, new in zip(total, inner, strict=True)]
    return total


def agreed(first, second, sizes, tolerance, what):
    for a, b, size in zip(first, second, sizes, strict=True):
        assert abs(a - b) <= tolerance * size, (what, mp.nstr(abs(a - b) / size))


def pair_entry(name, parameters, phi, slope, kinks, q, c):
    exact_q, exact_c = mp.mpf(q), mp.mpf(c)
    conditional = given(name, parameters)
    second, slope_mean, _ = single(phi, slope, exact_q, kinks, RULES[1])
    if conditional:
        runs = [by_closed_form(phi, slope, conditional, exact_q, exact_c, kinks, rule)
                for rule in RULES]
        agreed(*runs, (second, slope_mean), mp.mpf("1e-24"), (name, q, c))
        product, slope_product = runs[1]
        gap = second - product
    else:
        odd = name != "sigmoid" and name != "mish"
        product, gap, slope_product, slope_gap = by_panels(phi, slope, odd, exact_q, exact_c,
                                                           kinks, SHORT_RULE)
        agreed((product + gap, slope_product + slope_gap), (second, slope_mean),
               (second, slope_mean), mp.mpf("1e-16"), (name, q, c))
    return [name, parameters, q, c, *map(float, (product, gap, slope_product, second, slope_mean))]


def excess_entry(name, parameters, phi, slope, kinks, q):
    exact = mp.mpf(q)
    runs = [single(phi, slope, exact, kinks, rule) for rule in RULES]
    agreed(*runs, runs[1], mp.mpf("1e-38"), (name, q))
    second, slope_mean, bend = runs[1]
    return [name, parameters, q, *map(float, (exact * slope_mean - second,
                                              exact * slope_mean + second, bend))]


def main():
    table = {"pairs": [], "excess": []}
    for name, parameters, phi, slope, kinks in FUNCTIONS:
        mp.mp.dps = 45
        if name not in ("linear", "relu", "leaky_relu", "hard_tanh"):
            table["excess"] += [excess_entry(name, parameters, phi, slope, kinks, q)
                                for q in EXCESS_Q if not (name == "sin" and q > 10)]
        if given(name, parameters):
            table["pairs"] += [pair_entry(name, parameters, phi, slope, kinks, *at)
                               for at in MORE]
        elif name in BY_PANELS:
            mp.mp.dps = 30
            table["pairs"] += [pair_entry(name, parameters, phi, slope, kinks, *at) for at in SOME]
        print(name, flush=True)
    lines = [f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
             for key, rows in table.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    mp.mp.dps = 45
    RULES = gauss_legendre(32), gauss_legendre(40)
    SHORT_RULE = gauss_legendre(18)
    main()
