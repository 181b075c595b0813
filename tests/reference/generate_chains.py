"""Rewrite chain_laws_own.json: ``python tests/reference/generate_chains.py [name-part ...]``.

Deterministic, one thread, needs mpmath, numpy and scipy. With arguments only the records whose
name contains one of them are made anew, the others are kept. Each point is solved by
chain_curves.Solver; a point without a solution that passes all half-plane tests is an error,
never left out.
"""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import chain_atoms
from chain_cases import all_cases
from chain_curves import GAP_OFFSET, SETTLED, Plain, Solver
from chain_slopes import as_doubles
from mpmath import mp, mpf

HERE = Path(__file__).parent
TARGET = HERE / "chain_laws_own.json"
DIGITS = 22
THIN = 1e-11        # |Im m| / |m| below which double precision cannot tell support from gap


def text(value):
    return mp.nstr(value, DIGITS, min_fixed=-4, max_fixed=DIGITS)


def is_inside(state):
    """Whether a double precision state lies on the support."""
    return state.log_z.imag == 0 and -state.m.imag > THIN * abs(state.m)


class Scan:
    """Double precision states on a grid of log lam, from the top down."""

    def __init__(self, solver, atoms):
        self.solver = solver
        self.states = []
        state = None
        for log_lam in self._grid(atoms):
            try:
                state = solver.careful(mp.exp(log_lam), state)
            except ArithmeticError:     # deep in a gap at zero doubles do not hold 1 + m
                continue
            self.states.append((log_lam, state))

    def _grid(self, atoms):
        """Dense where the mean and the atoms are, wide enough for the top, far down to zero."""
        centre, variance = self.solver.chain.moments()
        width = min(1.0, math.sqrt(variance)) / 2
        count = 160 if len(self.solver.chain.units) < 50 else 40
        top = math.asinh(math.log(2 * math.e * variance + 12) / width)
        bottom = math.asinh((30 + 3 * math.log(1 + variance)) / width)
        grid = {centre + width * math.sinh(top - (top + bottom) * (k + 0.37) / count)
                for k in range(count)}
        for place in atoms:
            if place > 0:
                grid |= {float(mp.log(place)) + sign * 10.0**-k
                         for k in (2, 4, 5, 5.5, 6) for sign in (-1, 1)}
        return sorted(grid, reverse=True)

    def transitions(self):
        """(inside, outside) pairs of neighbouring grid points."""
        for (high, above), (low, below) in pairwise(self.states):
            if is_inside(above) != is_inside(below):
                yield (low, high) if is_inside(below) else (high, low)

    def runs(self):
        """Lists of neighbouring inside points, top first."""
        found = [[]]
        for log_lam, state in self.states:
            if is_inside(state):
                found[-1].append((log_lam, -state.m.imag))
            elif found[-1]:
                found.append([])
        return [run for run in found if run]


def edge(solver, inside, outside):
    """log of the edge between two log lam: bracketed, then K'(m) = 0 on the real axis; or None.

    K'(m) = 0 only needs M' as a double: its error enters log lam squared.
    """
    state, bracket = solver.careful(mp.exp(inside)), (inside, outside)
    for _ in range(11):
        middle = (inside + outside) / 2
        try:
            here = solver.careful(mp.exp(middle), state)
        except ArithmeticError:         # a tail thinner than doubles resolve, no edge
            return None
        if is_inside(here):
            inside, state = middle, here
        else:
            outside = middle
    chain = solver.chain
    inner = [[mpf(v.real) for v in y] for y in state.inner]

    def slope(m):
        return chain.equation(m, chain.settle_blocks(m, inner, mpf(10)**-25))[1]

    first, second = mpf(state.m.real), mpf(state.m.real - 0.3 * state.m.imag)
    try:
        m = mp.findroot(slope, (first, second), tol=1e-12, maxsteps=40, verify=False)
        value = chain.equation(m, chain.settle_blocks(m, inner, SETTLED))[0]
    except (ArithmeticError, ValueError):
        return None
    return value if min(bracket) <= value <= max(bracket) else None


def edges_of(solver, scan, places):
    """Polished soft ends of the intervals that the scan sees, ascending, as log lam.

    A transition across one of the places is an inverse-root end, already known.
    """
    known = [float(mp.log(place)) for place in places]
    found = [edge(solver, *pair) for pair in scan.transitions()
             if not any(min(pair) < place < max(pair) for place in known)]
    return sorted(value for value in found if value is not None)


def run_points(run, edges):
    """log lam of points in one interval: spread, close to its ends, in its tail."""
    heaviest = max(weight for _, weight in run)
    high, low = run[0][0], min(lo for lo, weight in run if weight > 1e-3 * heaviest)
    points = [low + (high - low) * f for f in (0.03, 0.3, 0.55, 0.8)]
    step = 1.5 * max([0.2] + [a - b for (a, _), (b, _) in pairwise(run)])
    above = [e for e in edges if high <= e < high + step]
    below = [e for e in edges if run[-1][0] - step < e <= run[-1][0]]
    for end in above[:1]:
        points += [float(end) - d * min(1.0, high - low + 1e-9) for d in (1e-2, 1e-5)]
        points.append(float(end) + 0.02 * (high - low + 1e-6))
    for end in below[-1:]:
        points += [float(end) + d * min(1.0, high - low + 1e-9) for d in (1e-2, 1e-5)]
    if not below and run[-1][0] < low - 1:
        points += [(low + run[-1][0]) / 2, run[-1][0]]
    return points


def points_of(scan, edges, most=12):
    """Doubles lam, ascending."""
    runs = sorted(scan.runs(), key=lambda run: -len(run))[:3]
    logs = [point for run in runs for point in run_points(run, edges)]
    return sorted({float(mp.exp(point)) for point in logs})[-max(most, 6 * len(runs)):]


def is_slope_law(blocks):
    """One orthogonal layer: m is on the cut of M, the density is that of sigma^2 d itself."""
    layer = blocks[0]["layers"][0]
    return (len(blocks) == 1 and blocks[0]["repeat"] == 1 and float(blocks[0]["skip"]) == 0
            and layer["weights"] == "orthogonal")


def slope_law_record(blocks):
    """Record of one orthogonal tanh layer; Re m is not given."""
    block = Plain(blocks[0]["layers"][0], 1, "1")
    top = block.weights.variance
    points = [float(top) * f for f in (1e-12, 1e-4, 0.05, 0.3, 0.6, 0.9, 0.99, 0.9999)]
    rows = [[repr(lam), text(block.slopes.density(mpf(lam) / top) / top)] for lam in points]
    return {"points": rows, "m": [], "edges": [text(top)]}


def point_rows(solver, lams):
    """([lam, density], [re m, im m]) of each point; "0" in a gap."""
    for lam in lams:
        m, gap = solver.solve(lam)
        if gap and abs(m.imag) > 1e12 * GAP_OFFSET * (1 + abs(m)):
            raise ArithmeticError(f"no limit of m at lam = {lam}")
        density = mpf(0) if gap else -m.imag / (mp.pi * mpf(lam))
        yield ([repr(lam), "0" if gap else text(density)],
               [text(m.real), "0" if gap else text(m.imag)])


def solved_record(blocks, places):
    """Points, m and soft edges."""
    solver = Solver(blocks)
    scan = Scan(solver, places)
    edges = edges_of(solver, scan, places)
    rows = list(point_rows(solver, points_of(scan, edges)))
    return {"points": [row for row, _ in rows], "m": [m for _, m in rows],
            "edges": [text(mp.exp(end)) for end in edges]}


def add_points(body, blocks, places):
    """Points beside the places where atoms, inverse-root ends or narrow gaps may sit."""
    lams = sorted({float(place * (1 + sign * mpf(step)))
                   for place in places for step in ("1e-2", "1e-3") for sign in (-1, 1)})
    rows = list(zip(body["points"], body["m"], strict=True))
    rows += point_rows(Solver(blocks), lams)
    rows.sort(key=lambda row: float(row[0][0]))
    return {**body, "points": [row for row, _ in rows], "m": [m for _, m in rows]}


def record_of(name, blocks):
    numbers = as_doubles(blocks)
    atoms = chain_atoms.atoms(numbers)
    places = sorted(chain_atoms.critical_places(numbers))
    if is_slope_law(numbers):
        body, places = slope_law_record(numbers), []
    else:
        body = add_points(solved_record(numbers, places), numbers, places)
    shown = None if atoms is None else [[text(place), text(mass)] for place, mass in atoms]
    return {"name": name, "blocks": blocks, "atoms": shown,
            "critical": [text(place) for place in places], **body}


def dump(records):
    """JSON with one block or point a line."""
    shown = []
    for record in records:
        fields = []
        for key, value in record.items():
            if key in ("blocks", "points", "m") and value:
                rows = ",\n   ".join(json.dumps(row) for row in value)
                fields.append(f'  "{key}": [\n   {rows}\n  ]')
            else:
                fields.append(f'  "{key}": {json.dumps(value)}')
        shown.append(" {\n" + ",\n".join(fields) + "\n }")
    return "[\n" + ",\n".join(shown) + "\n]\n"


def main(parts):
    known = {}
    if parts and TARGET.exists():
        known = {r["name"]: r for r in json.loads(TARGET.read_text(encoding="ascii"))}
    records = []
    for name, blocks in all_cases().items():
        if name in known and not any(part in name for part in parts):
            records.append(known[name])
            continue
        records.append(record_of(name, blocks))
        print(name, len(records[-1]["points"]), "points, edges", records[-1]["edges"], flush=True)
    TARGET.write_text(dump(records), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])
