"""Rewrite the frozen tables laws_<kind>.json: ``python tests/reference/generate_laws.py``.

Deterministic, one thread, a few minutes, needs mpmath only. Points are doubles, taken first;
everything else is the exact value at that double, written with 40 significant digits. Each
number is computed at two working precisions (at least 70 and 100 digits) that must agree, and
each m must satisfy z(m) = lam to 1e-38 with Im m < 0. How branches are made certain: on the
support by the closed arcs of law_curves.py, elsewhere by continuation from large |z|.
"""

import json
import sys
from pathlib import Path

from law_curves import all_laws
from mpmath import mp, mpc, mpf

HERE = Path(__file__).parent
DIGITS = 40
EDGE_DISTANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
DEEP_POINTS = (1e-5, 1e-20, 1e-100, 1e-300)
POINT_COLUMNS = ["lam", "density", "cdf", "ccdf", "slope", "m_re", "m_im"]
GREEN_COLUMNS = ["z_re", "z_im", "G_re", "G_im", "m_re", "m_im"]


def text(value):
    """A number with 40 significant digits."""
    return mp.nstr(value, DIGITS, min_fixed=-4, max_fixed=DIGITS)


def support_grid(low, high):
    """Doubles inside (low, high): linear, logarithmic, clustered at finite ends, deep at 0."""
    lo, hi = float(low), float(high)
    points = [lo + (hi - lo) * (i + 0.5) / 12 for i in range(12)]
    points += [hi * (1 - d) for d in EDGE_DISTANCES]
    if lo > 0:
        points += [lo * (hi / lo) ** ((i + 0.5) / 12) for i in range(12)]
        points += [lo * (1 + d) for d in EDGE_DISTANCES]
    else:
        points += [hi * 10 ** (-(i + 0.5) / 2) for i in range(12)]
        points += DEEP_POINTS
    return sorted({x for x in points if low < mpf(x) < high})


def outside_grid(law, low, high):
    """Doubles off the support: just outside its ends, far out, between atoms, negative."""
    lo, hi = float(low), float(high)
    points = [-hi / 2, hi * (1 + 1e-6), 1.5 * hi, 100 * hi]
    if lo > 0:
        points += [lo / 2, lo * (1 - 1e-6)]
    for location in (float(place) for place, _ in law.atoms() if place > 0):
        points += [(hi * location) ** 0.5, 2 * location]
    return sorted(set(points))


def green_grid(low, high):
    """Complex doubles (re, im) in the closed upper half plane, near and far."""
    hi = float(high)
    middle = float(mp.sqrt(low * high)) if low > 0 else hi / 3
    polar = [(1e-3 * hi, 1e-12), (0.1 * hi, 1e-6), (middle, 1e-12), (middle, 0.1), (hi, 1e-6),
             (hi, 3.0), (10 * hi, 0.1), (1e3 * hi, 1e-12), (1e6 * hi, 3.0)]
    points = [(float(r * mp.cos(a)), float(r * mp.sin(a))) for r, a in polar]
    points += [(0.0, 1e-3 * hi), (0.0, 1.5 * hi), (0.0, 1e6 * hi)]
    return points + [(-1e-3 * hi, 0.0), (-hi, 0.0), (-1e6 * hi, 0.0)]


def polish(law, m, log_z):
    """Newton's method on K(m) = log z until the step is at rounding level."""
    last = mp.inf
    for _ in range(60):
        step = (law.log_z(m) - log_z) / law.log_z_slopes(m)[0]
        m -= step
        size = abs(step) / abs(m)
        if size == 0 or (2 * size >= last and size < mpf(10) ** (-mp.dps + 20)):
            return m
        last = size
    raise ArithmeticError(f"Newton's method did not settle: {law.kind} {law.parameters}")


def bisect_logit(law, log_lam, halvings):
    """Logit of the arc parameter at lam, by bisection."""
    def above(t):
        return mp.re(law.log_z(arc_at_logit(law, t))) > log_lam

    low, high = mpf(-1), mpf(1)
    while not above(low):
        low *= 2
    while above(high):
        high *= 2
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return (low + high) / 2


def arc_at_logit(law, t):
    """m on the arc at u = 1 / (1 + e^-t)."""
    return law.arc(1 / (1 + mp.exp(-t)))


def continue_from_infinity(law, z):
    """m(z) by small steps: down the imaginary axis, then turning at constant |z|.

    A step moves m by at most a tenth of its distance to any singular or critical point of K.
    """
    top = max([law.ends()[1]] + [place for place, _ in law.atoms()] + [abs(z) / 1000])
    start = mpc(0, 1000 * top)
    m = polish(law, mp.fsum(law.moment(k) / start**k for k in range(1, 7)), mp.log(start))
    here = mp.log(start)
    for target in (mpc(mp.log(abs(z)), mp.pi / 2), mpc(mp.log(abs(z)), mp.arg(z))):
        while here != target:
            first, second = law.log_z_slopes(m)
            radius = min(law.zeros_and_poles(m) + [abs(first / second)])
            ahead = target - here
            limit = radius * abs(first) / 10
            if abs(ahead) > limit:
                ahead *= limit / abs(ahead)
                here += ahead
            else:
                here = target
            m = polish(law, m + ahead / first, here)
    return m


def values_on_support(law, lam, m):
    """density, cdf, ccdf, slope, Re m, Im m at lam + i0."""
    ccdf = mp.im(law.potential(m)) / mp.pi
    slope = mp.im(1 / law.log_z_slopes(m)[0]) / mp.im(m) - 1
    return [-mp.im(m) / (mp.pi * lam), 1 - ccdf, ccdf, slope, mp.re(m), mp.im(m)]


def agree(coarse, fine, what):
    """Raise unless two precisions give the same numbers to more than 40 digits."""
    for a, b in zip(coarse, fine, strict=True):
        if abs(a - b) > abs(b) * mpf(10) ** (-DIGITS - 2):
            raise ArithmeticError(f"precisions disagree at {what}: {a} and {b}")


def check_root(law, m, z):
    """Original equation to 1e-38."""
    if abs(law.equation(m) / z - 1) > mpf(10) ** -38:
        raise ArithmeticError(f"residual too large: {law.kind} {law.parameters} at {z}")


def support_row(law, x, high):
    """One row inside the support, or None where the density is no normal double."""
    digits = 70 + max(0, int(mp.log10(high / x)))
    m, rows = None, []
    for mp.dps in (digits, digits + 30):
        lam = mpf(x)
        if m is None:
            m = arc_at_logit(law, bisect_logit(law, mp.log(lam), 50))
        m = polish(law, m, mp.log(lam))
        rows.append(values_on_support(law, lam, m))
    check_root(law, m, mpf(x))
    if abs(mp.im(law.log_z(m))) > mpf(10) ** -DIGITS or not mp.im(m) < 0:
        raise ArithmeticError(f"wrong branch: {law.kind} {law.parameters} at {x}")
    agree(*rows, (law.kind, law.parameters, x))
    if not mpf(10) ** -300 < rows[1][0] < mpf(10) ** 300:
        return None
    return [repr(x)] + [text(value) for value in rows[1]]


def m_off_support(law, re, im):
    """m(z) at two precisions, for z = re + i im off the support."""
    found = []
    for mp.dps in (30, 70, 100):
        z = mpc(re, im)
        log_z = mpc(mp.log(abs(z)), mp.arg(z))
        m = polish(law, found[-1], log_z) if found else continue_from_infinity(law, z)
        if im == 0:
            if abs(mp.im(m)) > mpf(10) ** (-mp.dps + 12) * abs(m):
                raise ArithmeticError(f"m is not real at {re}: {law.kind} {law.parameters}")
            m = mpc(mp.re(m), 0)
        elif not mp.im(m) < 0:
            raise ArithmeticError(f"Im m has the wrong sign: {law.kind} {law.parameters} at {z}")
        found.append(m)
    check_root(law, m, z)
    return found[1:]


def green_row(law, re, im):
    """One row of the Green's function off the support."""
    rows = []
    for m in m_off_support(law, re, im):
        g = (1 + m) / mpc(re, im)
        rows.append([mp.re(g), mp.im(g), mp.re(m), mp.im(m)])
    agree(*rows, (law.kind, law.parameters, re, im))
    return [repr(re), repr(im)] + [text(value) for value in rows[1]]


def outside_row(law, x, high):
    """One row off the support: density 0; the cdf counts the masses below."""
    coarse, m = m_off_support(law, x, 0.0)
    agree([mp.re(coarse)], [mp.re(m)], (law.kind, law.parameters, x))
    below = mp.fsum(mass for place, mass in law.atoms() if place <= x)
    if x > high:
        below += law.continuous_mass()
    potential_mass = mp.im(law.potential(m)) / mp.pi
    if abs(1 - below - potential_mass) > mpf(10) ** -60:
        raise ArithmeticError(f"mass above {x} does not fit: {law.kind} {law.parameters}")
    return [repr(x), "0.0", text(below), text(1 - below), "0.0", text(mp.re(m)), "0.0"]


def law_record(law):
    """Everything the table holds about one law."""
    mp.dps = 100
    ends = law.ends()
    record = {
        "kind": law.kind,
        "parameters": law.parameters,
        "support": [] if ends is None else [[text(end) for end in ends]],
        "atoms": [[text(place), text(mass)] for place, mass in law.atoms()],
        "continuous_mass": text(law.continuous_mass()),
        "moments": [text(law.moment(k)) for k in range(1, 7)],
        "points": [], "outside": [], "green": [],
    }
    if ends is None:
        return record
    low, high = ends
    rows = [support_row(law, x, high) for x in support_grid(low, high)]
    record["points"] = [row for row in rows if row is not None]
    record["outside"] = [outside_row(law, x, high) for x in outside_grid(law, low, high)]
    record["green"] = [green_row(law, *z) for z in green_grid(low, high)]
    return record


def dump(records):
    """JSON with one table row a line."""
    blocks = []
    for record in records:
        fields = []
        for key, value in record.items():
            if key in ("points", "outside", "green") and value:
                rows = ",\n   ".join(json.dumps(row) for row in value)
                fields.append(f'  "{key}": [\n   {rows}\n  ]')
            else:
                fields.append(f'  "{key}": {json.dumps(value)}')
        blocks.append(" {\n" + ",\n".join(fields) + "\n }")
    columns = f'"point_columns": {json.dumps(POINT_COLUMNS)},\n'
    columns += f'"green_columns": {json.dumps(GREEN_COLUMNS)},\n'
    return "{\n" + columns + '"laws": [\n' + ",\n".join(blocks) + "\n]\n}\n"


def main(only):
    by_kind = {}
    for law in all_laws():
        if not only or law.kind in only:
            by_kind.setdefault(law.kind, []).append(law_record(law))
            print(law.kind, law.parameters, flush=True)
    for kind, records in by_kind.items():
        (HERE / f"laws_{kind}.json").write_text(dump(records), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])
