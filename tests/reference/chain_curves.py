"""m(lam + i0) of a chain of freely multiplied blocks, to 30 digits or more.

log z = log((1+m)/m) - sum_b n_b log S_b(m), m = z G(z) - 1, S_b the S-transform of block b:
* plain layer D W: S = S_W(r m) (1 + r m)/(r m zeta), M_{D^2}(zeta) = r m, r = N_L/N_l;
* residual block a I + X, X a product of layers: x = u(1+u) S_X(u), t(1+t) = a^2 x, m = u + t,
  S = x/(m(1+m)) (Tarnowski et al. 2018, eq. 19; Ling & Qiu 2018, theorem 1).
Unknowns: m and, for each block, its zetas (and t). Newton's method on all of them; each block is
linear in dm after its own unknowns are eliminated.

Branch. For z in C+ there is one solution with m, 1/m and the subordination functions in their
half planes (`is_valid`): m in C-; omega_b = (1+m)/(m S_b) in C+ and M_b(omega_b) = m. Plain
layer: zeta in C+ too. Residual block: w = sqrt(omega_b), G = (1+m)/w in C-, omega_a = (1+t)/G and
omega_X = (1+u)/G in C+ are those of the free sum of the symmetrised laws of a I and X, and
zeta_j, which is near omega_X^2, has the sign of Re omega_X in its imaginary part. So a point
that passes is right however it was found.
Logarithms are principal and never cross their cut: all arguments stay in half planes.

Way: from large |z|, where m is small and given, down the imaginary axis and round to the
real axis, steered in double precision (python complex); then Newton's method in mpmath on the
real axis itself. The same functions serve both arithmetics.
"""

import cmath
import json
from typing import NamedTuple

from chain_slopes import SmoothSlopes, real, slope_law
from mpmath import mp, mpc, mpf

DIGITS = 44
SETTLED = mpf(10) ** -30
mp.dps = DIGITS


def log(x):
    """Principal logarithm; on the real axis (gaps) log |x|."""
    if isinstance(x, complex):
        return cmath.log(x)
    return mp.log(x) if isinstance(x, mpc) else mp.log(abs(x))


def like(value, sample):
    """An mpf in the arithmetic of sample."""
    return float(value) if isinstance(sample, complex) else value


class Linear(NamedTuple):
    """A block at (m, y), its own equations eliminated: d y = dy0 + dy1 dm, C = c0 + c1 dm."""

    c0: object
    c1: object
    dy0: list
    dy1: list


class Weights:
    """S-transform of W W^T of one layer, N_out x N_in, in its own variable."""

    def __init__(self, layer):
        self.variance = real(layer["weight_variance"])
        self.ratio = real(layer.get("width_out", "1")) / real(layer.get("width_in", "1"))
        self.gaussian = layer["weights"] == "gaussian"

    def log_s(self, x):
        """(log S_W(x), derivative)."""
        shift = -like(mp.log(self.variance), x)
        if self.gaussian:
            ratio = like(self.ratio, x)
            return shift - log(1 + ratio * x), -ratio / (1 + ratio * x)
        if self.ratio <= 1:
            return shift, 0
        part = like(1 / self.ratio, x)
        return shift + log((1 + x) / (x + part)), 1 / (1 + x) - 1 / (x + part)


class Plain:
    """Block D W; C = -log S."""

    def __init__(self, layer, repeat, width):
        self.repeat, self.weights = repeat, Weights(layer)
        self.width = real(width) / real(layer.get("width_out", "1"))
        self.slopes = slope_law(layer)
        self.square = self.weights.ratio == 1 and self.width == 1

    def slope_laws(self):
        return [self.slopes]

    def moments(self):
        """Mean and variance/mean^2 of the block's law (square case; a scale for the others)."""
        mean, second = self.slopes.moment(1), self.slopes.moment(2)
        return float(self.weights.variance) * mean, second / mean**2 - 1 + self.weights.gaussian

    def start(self, m):
        return [self.slopes.moment(1) / (like(self.width, m) * m)]

    def linearise(self, m, y):
        zeta, ratio = y[0], like(self.width, m)
        x = ratio * m
        value, slope = self.slopes.transform(zeta)
        log_s, log_s_slope = self.weights.log_s(x)
        miss, rate = (x - value) / slope, ratio / slope
        c = log(zeta) - log((1 + x) / x) - log_s
        return Linear(c + miss / zeta, rate / zeta + ratio * (1 / x - 1 / (1 + x) - log_s_slope),
                      [miss], [rate])

    def is_valid(self, m, y):
        omega = (1 + m) * y[0] if self.weights.gaussian else y[0]
        return y[0].imag > 0 and (omega.imag > 0 or not self.square or self.alone)


class Residual:
    """Block a I + product of D_j W_j; y = [t, zeta_1, ...]."""

    def __init__(self, block):
        self.repeat, self.skip = int(block["repeat"]), real(block["skip"])
        self.layers = [(slope_law(layer), Weights(layer)) for layer in block["layers"]]

    def slope_laws(self):
        return [slopes for slopes, _ in self.layers]

    def _kappa(self):
        kappa, variance = 1.0, 0.0
        for slopes, weights in self.layers:
            mean = slopes.moment(1)
            kappa *= float(weights.variance) * mean
            variance += slopes.moment(2) / mean**2 - 1 + weights.gaussian
        return kappa, variance

    def moments(self):
        kappa, variance = self._kappa()
        square = float(self.skip) ** 2
        return square + kappa, (2 * square * kappa + kappa**2 * variance) / (square + kappa) ** 2

    def start(self, m):
        kappa, square = self._kappa()[0], float(self.skip) ** 2
        u = m * kappa / (kappa + square)
        return [m * square / (kappa + square)] + [s.moment(1) / u for s, _ in self.layers]

    def _branch(self, u, zetas):
        """x, d log x/du, and the eliminated zetas: misses and rates in du."""
        x, log_slope, misses, rates = u * (1 + u), 1 / u + 1 / (1 + u), [], []
        for (slopes, weights), zeta in zip(self.layers, zetas, strict=True):
            value, slope = slopes.transform(zeta)
            log_s, log_s_slope = weights.log_s(u)
            exp = cmath.exp if isinstance(u, complex) else mp.exp
            x *= (1 + u) / (u * zeta) * exp(log_s)
            log_slope += 1 / (1 + u) - 1 / u + log_s_slope
            misses.append((u - value) / slope)
            rates.append(1 / slope)
        return x, log_slope, misses, rates

    def linearise(self, m, y):
        t, zetas, square = y[0], y[1:], like(self.skip**2, m)
        u = m - t
        x, log_slope, misses, rates = self._branch(u, zetas)
        shift = -sum(a / zeta for a, zeta in zip(misses, zetas, strict=True))
        slope = log_slope - sum(b / zeta for b, zeta in zip(rates, zetas, strict=True))
        share = t * (1 + t) / (square * x)
        pivot = (1 + 2 * t) / (square * x) + share * slope
        dt0, dt1 = (1 - share + share * shift) / pivot, share * slope / pivot
        c = 2 * log((1 + m) / self._root(m, x)) - log((1 + m) / m)
        return Linear(c - shift + slope * dt0, 1 / m + 1 / (1 + m) - slope * (1 - dt1),
                      [dt0] + [a - b * dt0 for a, b in zip(misses, rates, strict=True)],
                      [dt1] + [b * (1 - dt1) for b in rates])

    @staticmethod
    def _root(m, x):
        """G = sqrt x with w = (1+m)/G in the first quadrant; on the real axis sqrt |x|."""
        if isinstance(x, mpf):
            return mp.sqrt(abs(x))
        root = cmath.sqrt if isinstance(x, complex) else mp.sqrt
        return (1 + m) / root((1 + m) ** 2 / x)

    def is_valid(self, m, y):
        t, zetas = y[0], y[1:]
        u = m - t
        omega = (1 + m) ** 2 * like(self.skip**2, m) / (t * (1 + t))
        g = self._root(m, (1 + m) ** 2 / omega)
        omega_a, omega_x = (1 + t) / g, (1 + u) / g
        signs = all(zeta.imag * omega_x.real > 0 for zeta in zetas)
        upper = omega.imag > 0 or self.alone
        return upper and g.imag < 0 and omega_a.imag > 0 and omega_x.imag > 0 and signs


class State(NamedTuple):
    """log z, m and each block's own unknowns."""

    log_z: object
    m: object
    inner: list


class Chain:
    """The blocks of a record, equal plain layers merged."""

    def __init__(self, blocks):
        self.blocks = blocks
        last = blocks[-1]["layers"][-1]
        width, plain, self.units = last.get("width_out", "1"), {}, []
        for block in blocks:
            if real(block["skip"]) != 0:
                self.units.append(Residual(block))
                continue
            for layer in block["layers"]:
                key = json.dumps(layer, sort_keys=True)
                layer_and_count = plain.setdefault(key, [layer, 0])
                layer_and_count[1] += int(block["repeat"])
        self.units += [Plain(layer, n, width) for layer, n in plain.values()]
        self.smooth = any(isinstance(slopes, SmoothSlopes)
                          for unit in self.units for slopes in unit.slope_laws())
        for unit in self.units:
            unit.alone = len(self.units) == 1 and unit.repeat == 1     # omega_b = z

    def moments(self):
        """Log of the mean of the law and variance/mean^2 (a scale only, for unequal widths)."""
        pairs = [(*unit.moments(), unit.repeat) for unit in self.units]
        return (float(sum(n * mp.log(mean) for mean, _, n in pairs)),
                sum(n * variance for _, variance, n in pairs))

    def equation(self, m, inner):
        """K(m) = log z as far as the blocks have settled, K'(m), and the blocks."""
        parts = [unit.linearise(m, y) for unit, y in zip(self.units, inner, strict=True)]
        value, slope = log((1 + m) / m), 1 / (1 + m) - 1 / m
        for unit, part in zip(self.units, parts, strict=True):
            value += unit.repeat * part.c0
            slope += unit.repeat * part.c1
        return value, slope, parts

    def newton_step(self, log_z, m, inner):
        """One step of all unknowns; also its largest relative size."""
        value, slope, parts = self.equation(m, inner)
        dm = (log_z - value) / slope
        moved, size = move(inner, parts, dm)
        return m + dm, moved, max(size, relative(dm, m))

    def settle_blocks(self, m, inner, tolerance):
        """Each block's unknowns at fixed m."""
        for _ in range(60):
            _, _, parts = self.equation(m, inner)
            inner, size = move(inner, parts, 0)
            if size < tolerance:
                return inner
        raise ArithmeticError(f"blocks do not settle at m = {m}")

    def start(self, exact=False):
        """A state with small m on the imaginary axis: z is large and follows from m."""
        m = -1e-4j / (1 + self.moments()[1])
        if exact:
            m = mpc(m)
        inner = self.settle_blocks(m, [unit.start(m) for unit in self.units],
                                   SETTLED if exact else 1e-12)
        return State(self.equation(m, inner)[0], m, inner)

    def solve_from(self, state, log_z):
        """Newton's method from a state's tangent; None unless it settles on the right branch."""
        exact = isinstance(state.m, mpc)
        tolerance = mpf(10) ** -25 if exact else 1e-11
        try:
            _, slope, parts = self.equation(state.m, state.inner)
            dm = (log_z - state.log_z) / slope
            inner, size = move(state.inner, parts, dm)
            m, last = state.m + dm, 10.0
            guess = m
            for _ in range(12):
                m, inner, size = self.newton_step(log_z, m, inner)
                if not size < 4 * last:
                    return None
                if size < tolerance:
                    break
                last = size
            else:
                return None
            good = abs(m - guess) < abs(m) / 2 and self.is_valid(m, inner)
            return State(log_z, m, inner) if good else None
        except (ArithmeticError, ValueError):
            return None

    def is_valid(self, m, inner):
        return m.imag < 0 and all(unit.is_valid(m, y)
                                  for unit, y in zip(self.units, inner, strict=True))

    def walk(self, state, log_z):
        """Along the straight line to log_z, step halved on failure, doubled on success.

        m is analytic in log z off the real axis, so a step of a small part of Im log z must do.
        """
        part = 1.0
        while state.log_z != log_z:
            ahead = log_z - state.log_z
            aim = log_z if part >= 1 else state.log_z + ahead * part
            found = self.solve_from(state, aim)
            if found is None:
                part /= 2
                if part * abs(ahead) < 0.003 * state.log_z.imag:
                    raise ArithmeticError(f"stuck at log z = {state.log_z}")
                continue
            state = found
            rest = abs(log_z - state.log_z)
            part = 1.0 if rest == 0 else min(1.0, 2 * part * abs(ahead) / rest)
        return state

    def land(self, state, log_lam, floor):
        """From log_lam + i theta to the real axis; in a gap stops at theta <= floor.

        Closer than rounding to an edge it stops earlier.
        """
        log_lam = state.log_z.real * 0 + log_lam
        while True:
            theta = state.log_z.imag
            if theta <= 1:
                found = self.solve_from(state, state.log_z * 0 + log_lam)
                if found is not None:
                    return found
            if theta <= floor:
                return state
            try:
                state = self.walk(state, log_lam + (state.log_z - log_lam) / 3)
            except ArithmeticError:
                if theta > 1e-3:
                    raise
                return state

    def polish(self, state, lam, offset=0):
        """The state at log lam + i offset in mpmath, from a nearby one; None if not right."""
        log_z = mpc(mp.log(mpf(lam)), offset)
        m, inner = mpc(state.m), [[mpc(v) for v in y] for y in state.inner]
        last = mp.inf
        for _ in range(40):
            try:
                m, inner, size = self.newton_step(log_z, m, inner)
            except (ArithmeticError, ValueError):
                return None
            fine = size * abs(m) < SETTLED * (abs(m.imag) + mpf(10) ** -4 * abs(m) * (offset > 0))
            if fine or (size > last / 2 and size < mpf(10) ** (12 - DIGITS)):
                break
            last = size
        else:
            return None
        return State(log_z, m, inner) if self.is_valid(m, inner) else None


def relative(step, value):
    return float(abs(step) / abs(value)) if value != 0 else float("inf")


def move(inner, parts, dm):
    """Blocks' unknowns after dm, and the largest relative change."""
    moved, size = [], 0.0
    for y, part in zip(inner, parts, strict=True):
        steps = [a + b * dm for a, b in zip(part.dy0, part.dy1, strict=True)]
        moved.append([v + step for v, step in zip(y, steps, strict=True)])
        size = max([size] + [relative(step, v) for v, step in zip(y, steps, strict=True)])
    return moved, size


GAP_OFFSET = mpf(10) ** -30
ROUGH_FLOOR, EXACT_FLOOR = 1e-9, 1e-16       # theta at which a landing in a gap stops
MANY, MANY_FLOOR = 50, 1e-5                  # the same where one step costs many blocks
THINNEST = mpf(10) ** -25       # Im m / m on the axis: less is rounding in a gap


class Solver:
    """m(lam + i0) at many lam of one chain; remembers the walk down the imaginary axis."""

    def __init__(self, blocks):
        self.chain = Chain(blocks)
        self.columns = {}
        self.floor = ROUGH_FLOOR if len(self.chain.units) < MANY else MANY_FLOOR

    def _above(self, log_lam, exact):
        """State at log_lam + i pi/2."""
        column = self.columns.setdefault(exact, [self.chain.start(exact)])
        nearest = min(column, key=lambda s: abs(float(s.log_z.real) - float(log_lam)))
        half_pi = mpc(0, mp.pi / 2) if exact else 0.5j * cmath.pi
        column.append(self.chain.walk(nearest, log_lam + half_pi))
        return column[-1]

    def rough(self, lam, near=None):
        """Double precision state on the real axis, or just above it in a gap (Im log z > 0)."""
        log_lam = float(mp.log(mpf(lam)))
        if near is not None and near.log_z.imag == 0:
            found = self.chain.solve_from(near, complex(log_lam))
            if found is not None:
                return found
        return self.chain.land(self._above(log_lam, False), log_lam, self.floor)

    def careful(self, lam, near=None):
        """The same, but in mpmath where doubles stopped early (finite slope laws only)."""
        state = self.rough(lam, near)
        if state.log_z.imag <= self.floor or self.chain.smooth:
            return state
        return self._exact_landing(lam)

    def _exact_landing(self, lam):
        log_lam = mp.log(mpf(lam))
        return self.chain.land(self._above(log_lam, True), log_lam, EXACT_FLOOR)

    def solve(self, lam):
        """(m, in_gap): m at lam + i0; in a gap m at log lam + 1e-30 i, whose Im m is ~ 1e-30."""
        state, gap = self.state(lam)
        return state.m, gap

    def state(self, lam):
        """(state, in_gap) in mpmath."""
        try:
            state = self.rough(lam)
        except ArithmeticError:
            state = None
        for exact in (False, True):
            if exact or state is None:
                state = self._exact_landing(lam)
            for gap in (False, True):
                found = self.chain.polish(state, lam, GAP_OFFSET if gap else 0)
                if found is not None and (gap or -found.m.imag > THINNEST * abs(found.m)):
                    return found, gap
        raise ArithmeticError(f"no right solution at lam = {lam}")

    def density(self, lam):
        """Density of the continuous part at lam."""
        m, gap = self.solve(lam)
        return mpf(0) if gap else -m.imag / (mp.pi * mpf(lam))


def solve(blocks, lam):
    """m(lam + i0)."""
    return Solver(blocks).solve(lam)[0]
