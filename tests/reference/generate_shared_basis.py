"""Write shared_basis.json: laws of residual blocks that share a coordinate basis, by enumeration.

    python tests/reference/generate_shared_basis.py [part of a name ...]

With names only those records are made anew. NumPy and mpmath; see README.md for the format.
"""

import json
import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import shared_basis_twin as twin  # noqa: E402

TABLE = HERE / "shared_basis.json"
THREE_SLOPES = {"slopes": ["0.2", "1", "0.6"], "kinks": ["-0.5", "0.8"]}
# P(h > 0) = .1 at mean -1.28.., P(|h| < 1) = .2 at q = 15.5.., q = 1 and mean 0 otherwise
P_TENTH = {"activation": "relu", "mean": "-1.2815515655446004"}
P_FIFTH = {"activation": "hard_tanh", "q": "15.580023717212123"}
RELU, LEAKY = {"activation": "relu"}, {"activation": "leaky:0.25"}


def block(layer, variance, weights="gaussian", skip=1.0, repeat=1, inner=()):
    """A residual block, or a plain layer if skip = 0; ``inner`` layers stand next to the input."""
    layers = [{"q": "1.0", "mean": "0.0", **entry, "weight_variance": repr(float(variance)),
               "weights": weights} for entry in (*inner, layer)]
    return {"layers": layers, "skip": repr(float(skip)), "repeat": repeat}


def relu(depth, theta, weights="gaussian"):
    """theta = depth * variance / 2."""
    return [block(RELU, 2 * theta / depth, weights, repeat=depth)]


def cases():
    """Blocks by name, the first next to the input."""
    out = {f"relu {w} L={n} theta={t}": relu(n, t, w) for n, t, w in (
        (2, 0.1, "gaussian"), (2, 0.5, "gaussian"), (2, 0.5, "orthogonal"), (2, 1, "gaussian"),
        (2, 1, "orthogonal"), (3, 0.5, "gaussian"), (3, 1, "orthogonal"), (5, 0.1, "gaussian"),
        (5, 0.5, "orthogonal"), (5, 1, "gaussian"), (8, 0.5, "gaussian"), (8, 1, "orthogonal"))}
    for p, layer, depth, variance, w in (
            (0.2, P_FIFTH, 2, 0.5, "gaussian"), (0.2, P_FIFTH, 2, 0.5, "orthogonal"),
            (0.2, P_FIFTH, 3, 0.3, "gaussian"), (0.2, P_FIFTH, 5, 0.5, "gaussian"),
            (0.1, P_TENTH, 3, 0.4, "gaussian"), (0.1, P_TENTH, 5, 1.0, "gaussian"),
            (0.1, P_TENTH, 7, 0.5, "orthogonal")):
        out[f"p={p} {w} L={depth} var={variance}"] = [block(layer, variance, w, repeat=depth)]
    out["leaky gaussian L=4"] = [block(LEAKY, 0.3, repeat=4)]
    out["leaky orthogonal L=3, skip .9"] = [block(LEAKY, 0.4, "orthogonal", 0.9, 3)]
    out["relu gaussian L=2, kappa > a^2"] = [block(RELU, 3.0, repeat=2)]
    out["three slopes L=4"] = [block({"activation": THREE_SLOPES}, 0.35, repeat=4)]
    out["unequal"] = [block(RELU, 0.3), block(LEAKY, 0.5, "orthogonal", 0.8),
                      block({"activation": THREE_SLOPES}, 0.2, "gaussian", 1.2),
                      block(P_FIFTH, 0.7, "gaussian", 0.9), block(P_TENTH, 0.6, "orthogonal")]
    out["plain gaussian leaky + relu"] = [block(LEAKY, 1.5, skip=0), block(RELU, 0.4, repeat=3)]
    out["plain orthogonal leaky + relu"] = [block(LEAKY, 1.5, "orthogonal", 0),
                                            block(RELU, 0.4, "orthogonal", repeat=3)]
    out["branches of two layers, p=.2 outside"] = [block(P_FIFTH, 0.8, repeat=2, inner=[RELU])]
    out["branches of two layers, p=.5 outside, orthogonal"] = [
        block(RELU, 1.0, "orthogonal", repeat=3, inner=[RELU])]
    out["branches of one and two layers"] = [
        block(P_FIFTH, 0.7), block(RELU, 1.2, "gaussian", 0.9, inner=[RELU])]
    # the first layer's slopes are 1 with probability .2 or .0625
    kinks = {"slopes": ["0.25", "1", "0.25"], "kinks": ["-1", "1"]}
    out["plain orthogonal + p=.1: atom"] = [
        block({"activation": kinks, "q": P_FIFTH["q"]}, 1.2, "orthogonal", 0), block(P_TENTH, 0.5)]
    return out


def atoms(sites):
    """(location, mass): 2 P(inactive) - 1 at prod a^2; below an orthogonal plain layer of slopes d
    P(inactive, d) - P(not inactive) at prod a^2 s d. A plain layer's share of d = 0 stays at 0."""
    first, place = sites[0], math.prod(site.skip**2 for site in sites if site.skip)
    if first.skip:
        return [(place, twin.atom(sites))] if twin.atom(sites) else []
    still = math.prod(dict(zip(site.values, site.masses, strict=True)).get(0, 0)
                      for site in sites[1:])
    found = []
    for d, p in zip(first.values, first.masses, strict=True):
        mass = p if d == 0 else still * p - (1 - still)
        if mass > 0 and (d == 0 or first.weights == "orthogonal"):
            found.append((place * first.variance * float(d), mass))
    return found


def scan_points(sites, places):
    """Points of lambda, ascending, from below the law to above it, dense at possible atoms."""
    top = math.prod(s.skip + 2 ** (1 + len(s.inner)) * math.sqrt(s.variance * float(max(s.values)))
                    for s in sites) ** 2
    points = list(np.geomspace(1e-7 * top, 1.05 * top, 120))
    for place in places:
        near = 10.0 ** -np.arange(1, 5.6, 0.5)
        points += [place * (1 + d) for d in near] + [place * (1 - d) for d in near]
    return np.sort(points)


def edges(sites, places):
    """Soft ends of the support as (value, side), by a scan: narrow gaps can be missed."""
    points = scan_points(sites, places)
    flags = [twin.inside(sites, lam) for lam in points]
    found = []
    for i in range(len(points) - 1):
        if flags[i] != flags[i + 1]:
            side = "upper" if flags[i] else "lower"
            end = twin.edge_from(sites, side, points[i + 1] if flags[i] else points[i])
            if not points[i] < end < points[i + 1]:
                raise ArithmeticError(f"edge {end} outside {points[i]}, {points[i + 1]}")
            found.append((end, side))
    return found


def points_of(sites, ends, places):
    """About ten points: near each end, through each interval, near each possible atom."""
    values = [float(end) for end, _ in ends]
    lows = [v for v, (_, side) in zip(values, ends, strict=True) if side == "lower"]
    highs = [v for v, (_, side) in zip(values, ends, strict=True) if side == "upper"]
    if len(lows) < len(highs):
        lows.insert(0, 1e-4 * highs[0])
    out = [values[-1] * 1.1]
    for low, high in zip(lows, highs, strict=True):
        width = math.log(high / low)
        out += [low * math.exp(width * share) for share in
                (1e-4, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-4)]
    out += [(b * c) ** 0.5 for b, c in zip(highs[:-1], lows[1:], strict=True)
            if not any(b < place < c for place in places)]
    out += [place * factor for place in places for factor in (0.95, 0.999, 1.001, 1.05)]
    return sorted(float(f"{lam:.6g}") for lam in out)


def record(name, blocks):
    sites = twin.sites_of(blocks)
    point_masses = atoms(sites)
    place = math.prod(site.skip**2 for site in sites if site.skip)
    places = [float(at) for at, _ in point_masses] or ([place] if sites[0].skip else [])
    ends = edges(sites, places)
    rows = [(lam, *twin.exact_point(sites, lam)) for lam in points_of(sites, ends, places)]
    worst = max(row[-1] for row in rows)
    if worst > 1e-20:
        raise ArithmeticError(f"{name}: digits lost, {worst}")
    print(f"{name}: {len(rows)} points, {len(ends)} edges, last step {worst:.1e}", flush=True)
    return {"name": name, "blocks": blocks,
            "atoms": [[repr(float(at)), text(mass)] for at, mass in point_masses],
            "edges": [text(end) for end, _ in ends],
            "points": [[repr(lam), text(rho), text(n)] for lam, rho, _, n, _ in rows],
            "m": [[text(m.real), text(m.imag)] for _, _, m, _, _ in rows]}


def text(x):
    """22 digits; what the distance of 1e-30 to the axis leaves off the support is 0."""
    with mp.workdps(40):
        return "0" if abs(x) < 1e-20 else mp.nstr(mp.mpf(x), 22, strip_zeros=False)


def main(parts):
    """Records of chains that are new or named; those of few patterns first."""
    done = {r["name"]: r for r in json.loads(TABLE.read_text())} if TABLE.exists() else {}
    wanted = cases()

    def patterns(name):
        return math.prod(len(site.values) for site in twin.sites_of(wanted[name]))

    for name in sorted(wanted, key=patterns):
        known = name in done and done[name]["blocks"] == wanted[name]
        if not known or any(part in name for part in parts):
            done[name] = record(name, wanted[name])
            table = [done[key] for key in wanted if key in done]
            TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])
