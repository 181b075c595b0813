"""M(zeta) = E[d / (zeta - d)] of the squared slope d = phi'(h)^2, h ~ N(mean, q).

Each law evaluates M and M' for python complex zeta (double precision: steering) and for mpmath
numbers (the value). Piecewise linear phi: a finite sum, probabilities from erfc. Smooth phi:
composite Gauss-Legendre in h on dyadic panels that shrink towards the preimages of zeta, so
that on every panel the integrand's Chebyshev coefficients fall like 2.8^-k; 40 nodes then give
2.8^-80 = 2e-36. The path is the real line: zeta is never on the support. M(conj zeta) =
conj M(zeta) holds by itself.
"""

from itertools import pairwise

import numpy as np
from mpmath import mp, mpc, mpf
from scipy import special

NODES = 40
RANGE = 13.2            # e^(-RANGE^2/2) = 1e-38
DEPTH = 50              # halvings of a panel
CROWD = 200             # unresolved panels at one depth: rounding, not structure
DECAY = 2.8             # of the Chebyshev coefficients on a panel
SAMPLES = 24
SELU_SCALE, SELU_ALPHA = 1.0507009873554804934, 1.6732632423543772848     # taken as doubles


def real(value):
    """A parameter (double, or decimal string read exactly) as mpf."""
    return mpf(value)


def as_doubles(blocks):
    """Blocks with their numbers (decimal strings) as the nearest doubles."""
    if isinstance(blocks, dict):
        return {key: as_doubles(value) for key, value in blocks.items()}
    if isinstance(blocks, list):
        return [as_doubles(value) for value in blocks]
    try:
        return float(blocks)
    except ValueError:
        return blocks


def normal_mass(low, high):
    """P(low < z < high), z standard normal, without cancellation in the tails."""
    if low > 0:
        low, high = -high, -low
    root = mp.sqrt(2)
    upper = mp.erfc(-high / root) if high < mp.inf else mpf(2)
    lower = mp.erfc(-low / root) if low > -mp.inf else mpf(0)
    return (upper - lower) / 2


def pieces(activation):
    """(slopes, kinks) of a piecewise linear activation, or None."""
    if isinstance(activation, dict):
        return [real(s) for s in activation["slopes"]], [real(k) for k in activation["kinks"]]
    name, _, slope = activation.partition(":")
    return {"linear": ([mpf(1)], []), "relu": ([mpf(0), mpf(1)], [mpf(0)]),
            "leaky": ([mpf(float(slope or "0")), mpf(1)], [mpf(0)]),
            "hard_tanh": ([mpf(0), mpf(1), mpf(0)], [mpf(-1), mpf(1)])}.get(name)


class DiscreteSlopes:
    """A finite law: values d_i with probabilities p_i."""

    def __init__(self, activation, q, mean):
        slopes, kinks = pieces(activation)
        scale = mp.sqrt(real(q))
        ends = [-mp.inf, *((kink - real(mean)) / scale for kink in kinks), mp.inf]
        law = {}
        for slope, low, high in zip(slopes, ends[:-1], ends[1:], strict=True):
            law[slope**2] = law.get(slope**2, mpf(0)) + normal_mass(low, high)
        self.atoms = sorted(law.items())
        self.doubles = [(float(d), float(p)) for d, p in self.atoms]

    def transform(self, zeta):
        """(M, M') at zeta, in the arithmetic of zeta."""
        value, slope = 0, 0
        for d, p in self.doubles if isinstance(zeta, complex) else self.atoms:
            inverse = 1 / (zeta - d)
            value += p * d * inverse
            slope -= p * d * inverse**2
        return value, slope

    def moment(self, k):
        return sum(p * d**k for d, p in self.doubles)


def _sech(x, lib):
    e = lib.exp(-abs(x))
    return 2 * e / (1 + e * e)


def _logistic(x):
    e = mp.exp(-abs(x))
    return (1 / (1 + e)) if x >= 0 else e / (1 + e)


# phi'(h): by numpy for arrays, by mpmath for one number.
NUMPY_SLOPES = {
    "tanh": lambda h: _sech(h, np)**2,
    "erf": lambda h: 2 / np.sqrt(np.pi) * np.exp(-h * h),
    "sigmoid": lambda h: _sech(h / 2, np)**2 / 4,
    "arctan": lambda h: 1 / (1 + h * h),
    "softplus": special.expit,
    "silu": lambda h: special.expit(h) * (1 + h * special.expit(-h)),
    "gelu": lambda h: special.ndtr(h) + h * np.exp(-h * h / 2) / np.sqrt(2 * np.pi),
    "selu": lambda h: SELU_SCALE * np.where(h > 0, 1.0, SELU_ALPHA * np.exp(np.minimum(h, 0))),
}
MPMATH_SLOPES = {
    "tanh": lambda h: _sech(h, mp)**2,
    "erf": lambda h: 2 / mp.sqrt(mp.pi) * mp.exp(-h * h),
    "sigmoid": lambda h: _sech(h / 2, mp)**2 / 4,
    "arctan": lambda h: 1 / (1 + h * h),
    "softplus": _logistic,
    "silu": lambda h: _logistic(h) * (1 + h * _logistic(-h)),
    "gelu": lambda h: mp.erfc(-h / mp.sqrt(2)) / 2 + h * mp.npdf(h),
    "selu": lambda h: mpf(SELU_SCALE) * (1 if h > 0 else SELU_ALPHA * mp.exp(h)),
}
EVEN = ("tanh", "erf", "sigmoid", "arctan")
_RULES = {}


def gauss_legendre(n):
    """Nodes and weights on [-1, 1] at the working precision, by Newton's method."""
    key = n, mp.prec
    if key not in _RULES:
        rule = []
        for x in map(mpf, np.polynomial.legendre.leggauss(n)[0]):
            for _ in range(4):
                below, here = mpf(1), x
                for k in range(2, n + 1):
                    below, here = here, ((2 * k - 1) * x * here - (k - 1) * below) / k
                slope = n * (x * here - below) / (x * x - 1)
                x -= here / slope
            rule.append((x, 2 / ((1 - x * x) * slope**2)))
        _RULES[key] = rule
    return _RULES[key]


class SmoothSlopes:
    """The law of d for a smooth phi (selu: smooth on either side of 0)."""

    def __init__(self, activation, q, mean, nodes=NODES, decay=DECAY):
        self.name, self.q, self.mean = activation, real(q), real(mean)
        self.atoms = []
        if activation == "selu":
            share = normal_mass(-mp.inf, self.mean / mp.sqrt(self.q))
            self.atoms = [(mpf(SELU_SCALE)**2, share)]
        self.nodes, self.limit = nodes, decay**-16.0
        self.half = activation in EVEN and self.mean == 0
        self.base = self._base_panels()
        self.chebyshev = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
        orders = np.arange(SAMPLES)[:, np.newaxis]
        self.cosines = np.cos(orders * np.arccos(self.chebyshev)) * 2 / SAMPLES
        self.gauss = np.polynomial.legendre.leggauss(SAMPLES)
        self.doubles, self.exact = {}, {}

    def _base_panels(self):
        scale, mean = float(mp.sqrt(self.q)), float(self.mean)
        low, high = mean - scale * RANGE, mean + scale * RANGE
        cuts = {0.0, low, high} | {mean + scale * RANGE * k / 6 for k in range(-5, 6)}
        if self.half:
            cuts = {cut for cut in cuts if cut >= 0}
        return list(pairwise(sorted(cut for cut in cuts if low <= cut <= high)))

    def _weight(self, h, lib):
        """Density of h (twice for the folded line)."""
        q, mean = (float(self.q), float(self.mean)) if lib is np else (self.q, self.mean)
        return (1 + self.half) * lib.exp(-(h - mean)**2 / (2 * q)) / lib.sqrt(2 * lib.pi * q)

    def _double_panel(self, panel):
        """w d, d, w at the Chebyshev nodes; w d dh, d, w at the Gauss nodes. Remembered."""
        if panel not in self.doubles:
            middle, half = (panel[0] + panel[1]) / 2, (panel[1] - panel[0]) / 2
            rows = []
            for x in (self.chebyshev, self.gauss[0]):
                h = middle + half * x
                d = NUMPY_SLOPES[self.name](h)**2
                weight = self._weight(h, np)
                rows += [weight * d, d, weight]
            rows[3] = rows[3] * half * self.gauss[1]
            self.doubles[panel] = np.array(rows)
        return self.doubles[panel]

    def _resolved(self, values, sizes, largest):
        """Whether the Chebyshev coefficients of each row fall fast enough; the largest share."""
        tails = np.max(np.abs(values @ self.cosines[16:21].T), axis=1)
        heads = np.max(np.abs(values), axis=1)
        largest = max(largest, float(np.max(heads * sizes)))
        return (tails <= self.limit * heads) | (heads * sizes <= 1e-44 * largest), largest

    def panels(self, zeta):
        """Panels fine enough for this zeta, and their double precision data.

        Both M = E d/(zeta - d) and 1 + M = E zeta/(zeta - d) are looked at: where phi' has a zero
        the first is flat but for a notch of width sqrt|zeta|, which samples would miss.
        """
        fine, data, todo, largest = [], [], self.base, [0.0, 0.0]
        for _ in range(DEPTH):
            table = np.array([self._double_panel(panel) for panel in todo])
            inverse = 1 / (zeta - table[:, 1])
            sizes = np.array([b - a for a, b in todo])
            good, largest[0] = self._resolved(table[:, 0] * inverse, sizes, largest[0])
            other, largest[1] = self._resolved(table[:, 2] * zeta * inverse, sizes, largest[1])
            good &= other
            fine += [panel for panel, ok in zip(todo, good, strict=True) if ok]
            data.append(table[good])
            todo = [half for (a, b), ok in zip(todo, good, strict=True) if not ok
                    for half in ((a, (a + b) / 2), ((a + b) / 2, b))]
            if not todo:
                return fine, np.concatenate(data)
            if len(todo) > CROWD:
                break
        raise ArithmeticError(f"zeta = {zeta} is too close to the support of {self.name}")

    def _exact_panel(self, panel):
        """(w d dh, d) at the Gauss nodes in mpmath. Remembered."""
        key = panel, mp.prec
        if key not in self.exact:
            middle, half = (mpf(panel[0]) + panel[1]) / 2, (mpf(panel[1]) - panel[0]) / 2
            rows = []
            for x, weight in gauss_legendre(self.nodes):
                h = middle + half * x
                d = MPMATH_SLOPES[self.name](h)**2
                rows.append((half * weight * self._weight(h, mp) * d, d))
            self.exact[key] = rows
        return self.exact[key]

    def transform(self, zeta):
        """(M, M') at zeta. M' is a double in either case: it only steers Newton's method."""
        rough = complex(zeta)
        fine, data = self.panels(rough)
        inverse = 1 / (rough - data[:, 4])
        slope = -complex(np.sum(data[:, 3] * inverse**2))
        if isinstance(zeta, complex):
            return complex(np.sum(data[:, 3] * inverse)), slope
        x, y = mp.re(zeta), mp.im(zeta)
        re, im = mpf(0), mpf(0)
        for panel in fine:
            for weight, d in self._exact_panel(panel):
                gap = x - d
                share = weight / (gap * gap + y * y)
                re += share * gap
                im += share
        return (mpc(re, -y * im), mpc(slope)) if isinstance(zeta, mpc) else (re, mpf(slope.real))

    def moment(self, k):
        data = np.array([self._double_panel(panel) for panel in self.panels(1e3 + 0j)[0]])
        return float(np.sum(data[:, 3] * data[:, 4]**(k - 1)))

    def density(self, d):
        """Density of the slope law at d, sum of w(h)/|d'(h)|; tanh only."""
        if self.name != "tanh":
            raise NotImplementedError(self.name)
        h = mp.acosh(d**(-mpf(1) / 4))
        jacobian = 4 * d * mp.tanh(h)
        return mp.fsum(mp.npdf(s * h, self.mean, mp.sqrt(self.q)) for s in (-1, 1)) / jacobian


def slope_law(layer, **options):
    """The law of d of one layer dict."""
    activation, q, mean = layer["activation"], layer["q"], layer.get("mean", "0")
    if pieces(activation) is not None:
        return DiscreteSlopes(activation, q, mean)
    return SmoothSlopes(activation, q, mean, **options)
