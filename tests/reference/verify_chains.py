"""Second routes to chain_laws_own.json: ``python tests/reference/verify_chains.py [part ...]``.

* equation: the stored m at 50 digits, slope transforms with 60 nodes on coarser panels, z as a
  product of powers (no logarithms): its miss in z over its sensitivity to m;
* closed: relu, hard_tanh and linear plain chains by the closed arcs of law_curves.py, and
  rectangular linear layers by the Marchenko-Pastur formula;
* edge: K'(m) changes sign there: the density is positive on one side, 0 on the other;
* mass, mean: integrals of the density over log lam, atoms in, against 1 and the product of the
  blocks' means: blind to how the branch was found, coarse; no mass where the tail to
  zero is longer than doubles reach;
* ks: distance to one draw of the free model (free_model.py), where depth allows;
* zero of slope: 1 + M at tiny zeta against mpmath.quad, where phi' has a zero;
* given: all points of chain_laws.json.

Prints the worst error of each kind; exits with status 1 if one exceeds its limit.
"""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import chain_atoms
import numpy as np
from chain_curves import Chain, Plain, Solver
from chain_slopes import MPMATH_SLOPES, SmoothSlopes, as_doubles, real, slope_law
from generate_chains import TARGET, is_inside, is_slope_law
from generate_laws import arc_at_logit, bisect_logit
from law_curves import PlainGaussian, PlainOrthogonal
from load import load_chain_laws
from mpmath import mp, mpc, mpf

sys.path.insert(0, str(Path(__file__).parent.parent))
from free_model import sample_eigenvalues  # noqa: E402 - tests/ is no package

LIMITS = {"equation": 1e-20, "closed": 1e-20, "edge": 0, "mass": 2e-3, "mean": 1e-4, "ks": 0.02}
WIDTH, SEED, DEEPEST = 500, 7, 20
VERIFY_DIGITS = 50


def z_of(chain, m, inner):
    """z by powers, with the blocks' own unknowns settled at m."""
    inner = chain.settle_blocks(m, inner, mpf(10)**-32)
    z = (1 + m) / m
    for unit, y in zip(chain.units, inner, strict=True):
        z *= inverse_s(unit, m, y) ** unit.repeat
    return z


def inverse_s(unit, m, y):
    """1/S of one block."""
    if isinstance(unit, Plain):
        x = unit.width * m
        return x * y[0] / (1 + x) / mp.exp(unit.weights.log_s(x)[0])
    t = y[0]
    return unit.skip**2 * m * (1 + m) / (t * (1 + t))


def check_equation(record):
    """Worst miss of z over the stored points, relative to a relative change of m (and Im m)."""
    solver, other, worst = Solver(record["blocks"]), Chain(record["blocks"]), mpf(0)
    for unit in other.units:
        replace_slopes(unit)
    for (lam, density), (re, im) in zip(record["points"], record["m"], strict=True):
        m = mpc(re, im)
        if density == "0":
            continue
        state, _ = solver.state(float(lam))
        with mp.workdps(VERIFY_DIGITS):
            inner = [[mpc(v) for v in y] for y in state.inner]
            slope = other.equation(m, inner)[1]
            miss = z_of(other, m, inner) / mpf(float(lam)) - 1
            worst = max(worst, abs(miss / (slope * m)))
            worst = max(worst, abs(-m.imag / (mp.pi * mpf(float(lam))) / mpf(density) - 1))
    return worst


def replace_slopes(unit):
    """Other panels and nodes for the smooth laws of a block."""
    def other(slopes):
        if not hasattr(slopes, "nodes"):
            return slopes
        layer = {"activation": slopes.name, "q": slopes.q, "mean": slopes.mean}
        return slope_law(layer, nodes=60, decay=2.2)

    if isinstance(unit, Plain):
        unit.slopes = other(unit.slopes)
    else:
        unit.layers = [(other(slopes), weights) for slopes, weights in unit.layers]


def closed_density(blocks):
    """lam -> density by an explicit formula, or None."""
    layer, depth = blocks[0]["layers"][0], int(blocks[0]["repeat"])
    if len(blocks) > 1 or len(blocks[0]["layers"]) > 1 or float(blocks[0]["skip"]):
        return None
    variance, ratio = real(layer["weight_variance"]), real(layer.get("width_out", "1"))
    if ratio != 1 or "width_out" in layer:
        return (lambda lam: marchenko_pastur(lam, ratio, variance)) \
            if layer["activation"] == "linear" else None
    q = real(layer["q"])
    p = {"relu": mpf(1) / 2, "hard_tanh": mp.erf(1 / mp.sqrt(2 * q)),
         "linear": mpf(1)}.get(str(layer["activation"]))
    if p is None or real(layer.get("mean", "0")) != 0:
        return None
    family = PlainGaussian if layer["weights"] == "gaussian" else PlainOrthogonal

    class Exact(family):
        """The same law with a p that is no double."""

        def _p(self):
            return p, 1 - p

    law = Exact(depth, 0.5, 0.5, float(variance))

    def density(lam):
        low, high = law.ends()
        if not low < lam < high:
            return mpf(0)
        return -mp.im(arc_at_logit(law, bisect_logit(law, mp.log(lam), 170))) / (mp.pi * lam)

    return density


def marchenko_pastur(lam, ratio, variance):
    """W W^T, W of ratio n x n with entries of variance v/n."""
    low, high = (variance * (1 + sign * mp.sqrt(ratio))**2 for sign in (-1, 1))
    if not low < lam < high:
        return mpf(0)
    return mp.sqrt((high - lam) * (lam - low)) / (2 * mp.pi * ratio * variance * lam)


def check_closed(record):
    density = closed_density(record["blocks"])
    if density is None:
        return None
    worst = mpf(0)
    with mp.workdps(VERIFY_DIGITS):
        for lam, value in record["points"]:
            exact = density(mpf(float(lam)))
            worst = max(worst, abs(mpf(value) / exact - 1) if exact else abs(mpf(value)))
    return worst


def check_edges(record):
    """Number of edges where support and gap do not meet."""
    solver, wrong = Solver(record["blocks"]), 0
    for place in map(mpf, record["edges"]):
        try:
            sides = [solver.density(place * (1 + sign * mpf(10)**-7)) for sign in (-1, 1)]
        except ArithmeticError:     # neither support nor gap could be shown
            sides = []
        wrong += sum(side == 0 for side in sides) != 1
    return wrong


def midpoints(record, solver):
    """(log lam, weight) of the midpoint rule in variables that undo root and inverse-root ends."""
    ends = [math.log(float(end)) for end in record["edges"] if float(end) > 1e-300]
    ends += [float(mp.log(place)) for place in chain_atoms.critical_places(record["blocks"])]
    ends = sorted(set(ends), reverse=True)
    n = 120
    theta = (np.arange(n) + 0.5) * math.pi / n
    rows = [((high + low + (high - low) * math.cos(t)) / 2,
             (high - low) / 2 * math.sin(t) * math.pi / n)
            for high, low in zip(ends[:-1], ends[1:], strict=True) for t in theta]
    variance = solver.chain.moments()[1]
    width, n = 3 * min(1.0, math.sqrt(variance)) * (1 + variance), 400
    for s in (np.arange(n) + 0.5) / n:
        rest = 1.0001 - s
        rows.append((ends[-1] - width * s**2 / rest,
                     width * (2 * s / rest + (s / rest)**2) / n))
    return rows


def profile(record):
    """log lam, -Im m/pi and weights from the top down; whether doubles reached the end."""
    solver = Solver(record["blocks"])
    rows, state = [], None
    for log_lam, weight in midpoints(record, solver):
        try:
            state = solver.rough(mp.exp(mpf(log_lam)), state)
        except ArithmeticError:
            break
        rows.append((log_lam, -float(state.m.imag) / math.pi if is_inside(state) else 0.0, weight))
    logs, values, weights = np.array(rows).T
    return solver, logs, values, weights, values[-1] < 1e-6 * np.max(values)


def check_integrals(record):
    """Errors of mass and mean, and the distance to Monte Carlo; None where not to be had."""
    solver, logs, values, weights, complete = profile(record)
    shares = values * weights
    atoms = [(float(a), float(w)) for a, w in record["atoms"] or []]
    mass = float(np.sum(shares)) + sum(w for _, w in atoms)
    centre = solver.chain.moments()[0]
    mean = float(np.sum(shares * np.exp(logs - centre)))
    mean += sum(w * math.exp(math.log(a) - centre) for a, w in atoms if a > 0)
    above = np.cumsum(shares) - shares / 2
    above += sum(w * (logs < math.log(a)) for a, w in atoms if a > 0)
    return (abs(mass - 1) if complete else None, abs(mean - 1),
            monte_carlo_distance(record, logs, above))


def monte_carlo_distance(record, logs, above):
    if sum(int(block["repeat"]) for block in record["blocks"]) > DEEPEST:
        return None
    sample = sample_eigenvalues(record["blocks"], WIDTH, SEED)
    near = np.zeros(len(logs), dtype=bool)
    for place, _ in record["atoms"] or []:
        if float(place) > 0:
            near |= np.abs(logs - math.log(float(place))) < 1e-9
    counts = WIDTH - np.searchsorted(sample, np.exp(logs), side="right")
    near |= np.exp(logs) < 1e-24 * sample[-1]       # rounding of the singular values
    return float(np.max(np.abs(counts / WIDTH - above)[~near]))


def check_zero_of_slope(name):
    """Relative error of 1 + M at |zeta| = 1e-10, where phi' has a zero (gelu, silu; q = 1).

    The reference is mpmath.quad of zeta w/(zeta - d) on panels halved towards the zero.
    """
    slope, zeta = MPMATH_SLOPES[name], mpf(10)**-10 * mpc(-0.3, 1)
    zero = mp.findroot(slope, mpf("-1"))
    cuts = {zero, *(mpf(k) / 2 for k in range(-28, 29))}
    cuts = sorted(cuts | {zero + sign * mpf(2)**-k for k in range(40) for sign in (-1, 1)})
    exact = mp.fsum(mp.quad(lambda h: mp.npdf(h) * zeta / (zeta - slope(h)**2), panel, maxdegree=5)
                    for panel in pairwise(cuts))
    return abs((1 + SmoothSlopes(name, "1", "0").transform(zeta)[0]) / exact - 1)


def check_given():
    """Records of chain_laws.json: worst relative error of each, absolute off the support."""
    for record in load_chain_laws():
        skip = record["skip"] if record["kind"] == "resnet" else "0"
        name, _, slope = record["activation"].partition(":")
        activation = {"slopes": [slope, "1"], "kinks": ["0"]} if slope else name     # decimals
        blocks = [{"layers": [{**layer, "activation": activation,
                               "weights": record["weights"]}], "skip": skip,
                   "repeat": layer["repeat"]} for layer in record["layers"]]
        solver = Solver(blocks)
        errors = []
        for point in record["points"]:
            theirs, ours = mpf(point["density"]), solver.density(point["lam"])
            errors.append(abs(ours / theirs - 1) if theirs > 1e-30 else abs(ours))
        errors.sort()
        yield record, errors


def check(record):
    """Errors by kind."""
    if is_slope_law(record["blocks"]):
        return {}
    mass, mean, ks = check_integrals(record)
    square = all("width_in" not in layer for block in record["blocks"]
                 for layer in block["layers"])
    known = record["atoms"] is not None
    errors = {"equation": check_equation(record), "closed": check_closed(record),
              "edge": check_edges(record), "mass": mass if known else None,
              "mean": mean if square else None, "ks": ks if known else None}
    return {name: error for name, error in errors.items() if error is not None}


def main(parts):
    failed = False
    for record in json.loads(TARGET.read_text(encoding="ascii")):
        if parts and not any(part in record["name"] for part in parts):
            continue
        errors = check({**record, "blocks": as_doubles(record["blocks"])})
        bad = [name for name, error in errors.items() if not error <= LIMITS[name]]
        failed |= bool(bad)
        shown = " ".join(f"{name} {mp.nstr(mpf(error), 2)}" for name, error in errors.items())
        print(f"{record['name']}:", shown, "FAILED " + str(bad) if bad else "", flush=True)
    for name in () if parts else ("gelu", "silu"):
        error = check_zero_of_slope(name)
        failed |= error > 1e-20
        print("zero of slope", name, mp.nstr(error, 2), flush=True)
    for record, errors in () if parts else check_given():
        print("chain_laws", record["kind"], record["activation"], record["weights"],
              "worst", mp.nstr(errors[-1], 2), "next", mp.nstr(errors[-2], 2), flush=True)
        failed |= errors[-2] > 1e-22 or errors[-1] > 1e-12
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
