"""Second routes to the numbers of laws_<kind>.json: ``python tests/reference/verify_laws.py``.

Uses neither the potential (cdf) nor Lagrange inversion (moments) nor, for the Green's function
and three densities a law, the same way to m as the generator:

* mass, cdf, moments: mpmath.quad of the density along the arc, d lam by differences;
* Green's function: Cauchy integral of the density plus the atoms;
* density: continuation from infinity down to the support;
* every row: the original equation, with m as printed;
* overlaps with chain_laws.json, made by another method.

Prints the worst error of each kind a law; exits with status 1 if one exceeds its limit.
"""

import sys
from itertools import pairwise

from generate_laws import arc_at_logit, bisect_logit, continue_from_infinity
from law_curves import PlainGaussian, PlainOrthogonal, all_laws
from load import load_chain_laws, load_laws
from mpmath import mp, mpc, mpf

WORK_DIGITS = 160
QUAD_ERROR = mpf(10) ** -28
LIMITS = {"mass": 1e-25, "cdf": 1e-25, "moments": 1e-25, "green": 1e-22, "density": 1e-38,
          "equation": 1e-38}


def top_layer(law):
    """Width in u of the layer below the top that a nearly critical chain has, else None."""
    if isinstance(law, PlainOrthogonal):
        gap = abs(1 - law.depth * sum(w for a, w in law.atoms() if a == 0))
        if 0 < gap < 1e-3:
            return gap
    return None


class ArcMeasure:
    """The continuous part as a measure on the arc parameter u: density * |d lam/du| du."""

    def __init__(self, law):
        self.law = law
        self.layer = top_layer(law)
        self.known = {}

    def log_lam(self, u):
        return mp.re(self.law.log_z(self.law.arc(u)))

    def at(self, u):
        """(lam, mass per du), lam' by central differences; remembered."""
        if u not in self.known:
            with mp.workdps(WORK_DIGITS):
                h = u * (1 - u) * mpf(10) ** -25
                slope = (self.log_lam(u - h) - self.log_lam(u + h)) / (2 * h)
                density_lam = -mp.im(self.law.arc(u)) / mp.pi
                self.known[u] = mp.exp(self.log_lam(u)), density_lam * slope
        return self.known[u]

    def integral(self, weight, low=0, high=1):
        """Integral of weight(lam) over the part of the arc between two parameters."""
        def integrand(u):
            lam, mass = self.at(u)
            return weight(lam) * mass
        inner = [self.layer, mp.sqrt(self.layer)] if self.layer else []
        cuts = [mpf(low), *(cut for cut in inner if low < cut < high), mpf(high)]
        return mp.fsum(adaptive_quad(integrand, a, b) for a, b in pairwise(cuts))

    def cut(self, lam):
        """Arc parameter u at lam."""
        with mp.workdps(WORK_DIGITS):
            return 1 / (1 + mp.exp(-bisect_logit(self.law, mp.log(mpf(lam)), 200)))


def adaptive_quad(function, low, high, halvings=40):
    """mpmath.quad, halving the panel until its own error estimate is below QUAD_ERROR."""
    value, error = mp.quad(function, [low, high], error=True, maxdegree=6)
    if error < QUAD_ERROR:
        return value
    if halvings == 0:
        raise ArithmeticError("quadrature does not converge")
    middle = (low + high) / 2
    return (adaptive_quad(function, low, middle, halvings - 1)
            + adaptive_quad(function, middle, high, halvings - 1))


def check_cdf(record, measure):
    """Errors of the total mass and of the mass above three points."""
    rows = record["points"]
    above = mp.fsum(mpf(w) for a, w in record["atoms_exact"] if mpf(a) > 0)
    worst, continuous, last = mpf(0), mpf(0), mpf(0)
    for row in (rows[len(rows) * i // 4] for i in (3, 2, 1)):
        here = measure.cut(row["lam"])
        continuous += measure.integral(lambda lam: mpf(1), last, here)
        worst = max(worst, abs(above + continuous - mpf(row["ccdf_exact"])))
        last = here
    continuous += measure.integral(lambda lam: mpf(1), last, 1)
    return abs(continuous - mpf(record["continuous_mass_exact"])), worst


def check_moments(record, measure, atoms):
    """Worst relative error of the moments, integrated in lam over the mean."""
    scale = mpf(record["moments_exact"][0])
    worst = mpf(0)
    for k, exact in enumerate(record["moments_exact"], start=1):
        total = measure.integral(lambda lam, k=k: (lam / scale) ** k)
        total += mp.fsum(w * (a / scale) ** k for a, w in atoms)
        worst = max(worst, abs(total * scale**k / mpf(exact) - 1))
    return worst


def check_green(record, measure, atoms):
    """Worst relative error of G where z is not close to the support."""
    low, high = (mpf(end) for end in record["support_exact"][0])
    worst = mpf(0)
    for row in record["green"]:
        z = mpc(row["z"])
        if abs(mp.arg(z)) < 0.05:
            continue
        middle = measure.cut(abs(z)) if low < abs(z) < high else mpf(1) / 2
        value = mp.fsum(measure.integral(lambda lam, z=z: z / (z - lam), *panel)
                        for panel in ((0, middle), (middle, 1)))
        value += mp.fsum(w * z / (z - a) for a, w in atoms)
        worst = max(worst, abs(value / (z * mpc(*row["G_exact"])) - 1))
    return worst


def check_integrals(law, record):
    """Errors of mass and cdf (absolute), moments and Green's function (relative)."""
    mp.dps = 32
    measure = ArcMeasure(law)
    atoms = [(mpf(a), mpf(w)) for a, w in record["atoms_exact"]]
    mass, cdf = check_cdf(record, measure)
    return {"mass": mass, "cdf": cdf, "moments": check_moments(record, measure, atoms),
            "green": check_green(record, measure, atoms)}


def check_density(law, record):
    """Relative error of three densities, and the residual of the equation on every row."""
    rows = record["points"]
    worst = mpf(0)
    mp.dps = 60
    for i in (1, 2, 3):
        row = rows[len(rows) * i // 4]
        lam = mpf(row["lam"])
        density = -mp.im(continue_from_infinity(law, mpc(lam, 0))) / (mp.pi * lam)
        worst = max(worst, abs(density / mpf(row["density_exact"]) - 1))
    return {"density": worst, "equation": worst_residual(law, record)}


def worst_residual(law, record):
    """Residual of the original equation over its sensitivity to m, with m as printed.

    Left out: rows so close to a singular point of K that 40 digits of m do not resolve it.
    """
    worst = mpf(0)
    rows = [(mpc(row["lam"]), (row["m_re_exact"], row["m_im_exact"]))
            for row in record["points"] + record["outside"]]
    rows += [(mpc(row["z"]), row["m_exact"]) for row in record["green"]]
    for z, m in rows:
        m = mpc(*m)
        if min(law.zeros_and_poles(m)) < mpf(10) ** -25 * abs(m):
            continue
        sensitivity = abs(law.log_z_slopes(m)[0] * m) + 1
        worst = max(worst, abs(law.equation(m) / z - 1) / sensitivity)
    return worst


def as_plain_chain(record):
    """The chain_laws record as a 0/1-slope chain of equal layers, or None."""
    layers = record["layers"]
    if record["kind"] != "feedforward" or len(layers) != 1:
        return None
    q = mpf(layers[0]["q"])
    p = {"relu": mpf(1) / 2, "hard_tanh": mp.erf(1 / mp.sqrt(2 * q)),
         "linear": mpf(1)}.get(record["activation"])
    if p is None or layers[0]["repeat"] == 1 and record["weights"] == "orthogonal":
        return None
    family = PlainGaussian if record["weights"] == "gaussian" else PlainOrthogonal

    class Exact(family):
        """The same law with parameters that are not doubles."""

        def _p(self):
            return p, 1 - p

    return Exact(layers[0]["repeat"], 0.5, 0.5, layers[0]["weight_variance"])


def check_chain_laws():
    """Agreement with the general-chain table where a law here is the same."""
    mp.dps = 60
    for record in load_chain_laws():
        law = as_plain_chain(record)
        if law is None:
            continue
        low, high = law.ends()
        worst = mpf(0)
        for point in record["points"]:
            lam, theirs = mpf(point["lam"]), mpf(point["density"])
            if low < lam < high:
                m = arc_at_logit(law, bisect_logit(law, mp.log(lam), 170))
                worst = max(worst, abs(-mp.im(m) / (mp.pi * lam) / theirs - 1))
            else:
                worst = max(worst, theirs)
        yield record, len(record["points"]), worst


def main(only):
    failed = False
    for law, record in zip(all_laws(), load_laws(), strict=True):
        if only and law.kind not in only or not record["support"]:
            continue
        errors = {**check_integrals(law, record), **check_density(law, record)}
        bad = [name for name, error in errors.items() if not error <= LIMITS[name]]
        failed |= bool(bad)
        shown = " ".join(f"{name} {mp.nstr(error, 2)}" for name, error in errors.items())
        print(law.kind, law.parameters, shown, "FAILED " + str(bad) if bad else "", flush=True)
    for record, count, worst in check_chain_laws():
        failed |= not worst < 1e-22
        print("chain_laws", record["activation"], record["weights"], record["layers"], count,
              "points, worst relative error", mp.nstr(worst, 2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
