"""Generator of far_pairs.json: an activation at two correlated Gaussian points of large variance.

Rows: name, parameters, q, 1 - c (doubles, exact), then E phi(h) phi(h'),
E (phi(h) - phi(h'))^2 / 2, E phi'(h) phi'(h'), E phi^2, E phi'^2.
The rules in mpmath are those of generate_pairs.py; elu and gelu by E phi(h') given h in closed form
with 50 digits, the rest by panels within panels with 30 digits.
Run: python tests/reference/generate_far_pairs.py (about 15 minutes)
"""

import json
from pathlib import Path

import mpmath as mp
from gaussian_moments import FUNCTIONS, gauss_legendre
from generate_pairs import agreed, by_closed_form, by_panels, given, single

TARGET = Path(__file__).with_name("far_pairs.json")
VARIANCES, DISTANCES = (1e4, 1e6, 1e8), (1e-9, 1e-6, 1e-3, 0.3, 1.0, 1.9)
SOME = [(1e4, 1e-3), (1e4, 1.9), (1e6, 1e-6), (1e6, 0.3), (1e8, 1e-9), (1e8, 1.9)]
CLOSED, BY_PANELS = ("gelu", "elu", "selu", "hard_tanh"), ("tanh", "silu", "mish")


def closed_entry(name, parameters, phi, slope, kinks, q, distance):
    exact, c = mp.mpf(q), 1 - mp.mpf(distance)
    second, slope_mean, _ = single(phi, slope, exact, kinks, RULES[1])
    runs = [by_closed_form(phi, slope, given(name, parameters), exact, c, kinks, rule)
            for rule in RULES]
    product, slope_product = runs[1]
    agreed(*runs, (second - product, slope_mean), mp.mpf("1e-16"), (name, q, distance))
    return [name, parameters, q, distance,
            *map(float, (product, second - product, slope_product, second, slope_mean))]


def panel_entry(name, parameters, phi, slope, kinks, q, distance):
    exact, c = mp.mpf(q), 1 - mp.mpf(distance)
    second, slope_mean, _ = single(phi, slope, exact, kinks, RULES[1])
    product, gap, slope_product, slope_gap = by_panels(phi, slope, name == "tanh", exact, c, kinks,
                                                       SHORT_RULE)
    agreed((product + gap, slope_product + slope_gap), (second, slope_mean), (second, slope_mean),
           mp.mpf("1e-16"), (name, q, distance))
    return [name, parameters, q, distance,
            *map(float, (product, gap, slope_product, second, slope_mean))]


def main():
    rows = []
    for name, parameters, *functions in FUNCTIONS:
        if name in CLOSED:
            mp.mp.dps = 50
            rows += [closed_entry(name, parameters, *functions, q, d)
                     for q in VARIANCES for d in DISTANCES]
        elif name in BY_PANELS:
            mp.mp.dps = 30
            rows += [panel_entry(name, parameters, *functions, *at) for at in SOME]
        print(name, flush=True)
    TARGET.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    mp.mp.dps = 50
    RULES = gauss_legendre(32), gauss_legendre(40)
    SHORT_RULE = gauss_legendre(18)
    main()
