"""Slow twin of the law of residual blocks that share a coordinate basis: every slope pattern.

J = prod_{l=L..1} (a_l I + D_l B_l), B_l bi-invariant, the d = D^2 of each coordinate independent
over l with finitely many values. The resolvent of J J^T is a chain per coordinate,
G(z) = <1/(z - P_L)>, averaged over all patterns (d_1..d_L) of slopes, with 2L unknowns alpha_l,
beta_l common to all of them:

    P_0 = 1,    P_l = a_l^2 P_{l-1} / (1 - P_{l-1} beta_l) + alpha_l d_l
    Q_L = 1/z,  Q_{l-1} = a_l^2 Q_l / (1 - Q_l alpha_l d_l) + beta_l
    gin_l = <P_{l-1} / (1 - P_{l-1} Q_{l-1})>,  gout_l = <d_l Q_l / (1 - P_l Q_l)>
    alpha_l = gin_l phi_l(x_l), beta_l = gout_l phi_l(x_l), x_l = beta_l gin_l = alpha_l gout_l,
    phi(x) = 1/((1+x) S_B(x)), S_B the S-transform of B B^T:  s if B is Gaussian (entries of
    variance s / N), s/(1+x) if it is sqrt(s) Haar; if B = W_2 D_1 W_1 with slopes D_1 that are 1
    with probability p, else 0, the product of those of W_1 and W_2 and of p + x.

Only the first a may be 0: a plain layer below a run of residual blocks; a plain layer elsewhere
cuts the chain. For up to about 4000 patterns. NumPy, and mpmath where digits are asked for.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import mpmath as mp
import numpy as np

_DIGITS = 40                # of polished numbers
_ABOVE = 30                 # polished numbers stand at lambda (1 + 10^-30 i)
_TOLERANCE = 1e-13          # of log alpha, log beta, in doubles
_CLOSE = 1e-10              # where rounding stalls Newton's method that still counts as a solution


class Site(NamedTuple):
    """A block a I + D W: squared slopes d and their masses; weights gaussian or orthogonal.

    Or a I + D W_n D_{n-1} .. D_1 W_1, the slopes of D_1 .. D_{n-1} 1 with the probabilities
    ``inner``, else 0, and ``variance`` the product of those of the n weights.
    """

    skip: float
    variance: float
    weights: str
    values: tuple
    masses: tuple
    inner: tuple = ()

    def mean(self):
        """E d, times the inner probabilities."""
        outer = sum(d * p for d, p in zip(self.values, self.masses, strict=True))
        return math.prod(self.inner) * outer

    def growth(self):
        """First moment of the block, a^2 + s E d."""
        return self.skip**2 + self.variance * self.mean()


def bernoulli(p, depth, variance, weights="gaussian", skip=1.0):
    """Equal blocks whose slopes are 1 with probability p, else 0."""
    return (Site(skip, variance, weights, (0.0, 1.0), (1 - p, p)),) * depth


def sites_of(blocks):
    """Sites of the blocks of a record (numbers as strings that hold doubles)."""
    sites = []
    for block in blocks:
        *inner, layer = block["layers"]
        masses = slope_masses(layer)
        variance = math.prod(float(entry["weight_variance"]) for entry in block["layers"])
        site = Site(float(block["skip"]), variance, layer["weights"], tuple(masses),
                    tuple(masses.values()), tuple(slope_masses(entry)[1] for entry in inner))
        sites += [site] * int(block["repeat"])
    return tuple(sites)


def slope_masses(layer):
    """{phi'^2: mass} of a piecewise linear phi at h ~ N(mean, q), masses with _DIGITS digits."""
    activation = layer["activation"]
    named = {"relu": ((0, 1), (0,)), "hard_tanh": ((0, 1, 0), (-1, 1)), "linear": ((1,), ())}
    if isinstance(activation, dict):
        slopes, kinks = ([float(v) for v in activation[key]] for key in ("slopes", "kinks"))
    elif activation.startswith("leaky:"):
        slopes, kinks = (float(activation[6:]), 1), (0,)
    else:
        slopes, kinks = named[activation]
    with mp.workdps(_DIGITS + 10):
        q, mean = mp.mpf(float(layer["q"])), mp.mpf(float(layer.get("mean", 0)))
        below = [mp.mpf(0), *(mp.ncdf((kink - mean) / mp.sqrt(q)) for kink in kinks), mp.mpf(1)]
        masses = {}
        for i, slope in enumerate(slopes):
            square = mp.mpf(slope) ** 2
            masses[square] = masses.get(square, 0) + below[i + 1] - below[i]
    return masses


# ---- the equations, on complex arrays or on object arrays of mpmath numbers --------------------


class Exact(NamedTuple):
    """Numbers of a chain, as doubles or as mpmath numbers."""

    skips: list
    variances: list
    haar: list          # number of Haar matrices in the branch
    inner: list
    values: list
    masses: list
    log: object
    dtype: type


@lru_cache(maxsize=16)
def numbers(sites, exact=False):
    convert = (lambda x: mp.mpc(x)) if exact else complex
    dtype = object if exact else complex
    return Exact([convert(site.skip) for site in sites], [convert(s.variance) for s in sites],
                 [(site.weights == "orthogonal") * (1 + len(site.inner)) for site in sites],
                 [[convert(p) for p in site.inner] for site in sites],
                 [np.array([convert(d) for d in site.values], dtype) for site in sites],
                 [np.array([convert(p) for p in site.masses], dtype) for site in sites],
                 np.frompyfunc(mp.log, 1, 1) if exact else np.log, dtype)


def forward(chain, alpha, beta):
    """P_l and their masses for all patterns of the first l slopes, l = 0..L; d_l runs fastest."""
    p, w = np.array([1], chain.dtype), np.array([1], chain.dtype)
    out = [(p, w)]
    for a, d, mu, al, be in zip(chain.skips, chain.values, chain.masses, alpha, beta, strict=True):
        p = np.add.outer(a**2 * p / (1 - p * be), al * d).ravel()
        w = np.multiply.outer(w, mu).ravel()
        out.append((p, w))
    return out


def backward(chain, z, alpha, beta):
    """Q_l and their masses for all patterns of the last L - l slopes, l = 0..L."""
    q, w = np.array([1 / z], chain.dtype), np.array([1], chain.dtype)
    out = [(q, w)]
    for a, d, mu, al, be in reversed(list(zip(chain.skips, chain.values, chain.masses, alpha,
                                              beta, strict=True))):
        q = (a**2 * q / (1 - np.multiply.outer(al * d, q)) + be).ravel()
        w = np.multiply.outer(mu, w).ravel()
        out.append((q, w))
    return out[::-1]


def averages(chain, z, alpha, beta):
    """gin_l, gout_l, l = 1..L, as two lists."""
    gin, gout = [], []
    levels = zip(forward(chain, alpha, beta), backward(chain, z, alpha, beta), strict=True)
    for level, ((p, wp), (q, wq)) in enumerate(levels):
        kernel = 1 / (1 - np.multiply.outer(p, q))
        if level < len(alpha):
            gin.append((wp * p) @ kernel @ wq)
        if level:
            d = np.tile(chain.values[level - 1], p.size // chain.values[level - 1].size)
            gout.append((wp * d) @ kernel @ (wq * q))
    return gin, gout


def link(chain, i, x):
    """phi(x) and phi'(x) of block i."""
    phi = chain.variances[i] / (1 + x)**chain.haar[i]
    rate = -chain.haar[i] / (1 + x)
    for p in chain.inner[i]:
        phi, rate = phi * (p + x), rate + 1 / (p + x)
    return phi, phi * rate


def equations(chain, z, alpha, beta):
    """alpha_1 - gin_1 phi_1, beta_1 - gout_1 phi_1, alpha_2 - .. as an array, 0 at a solution."""
    out = []
    for i, (gin, gout) in enumerate(zip(*averages(chain, z, alpha, beta), strict=True)):
        phi, _ = link(chain, i, beta[i] * gin)
        out += [alpha[i] - gin * phi, beta[i] - gout * phi]
    return np.array(out, chain.dtype)


def potential(chain, z, alpha, beta):
    """U(z) = int log(z - t) rho(dt) at a solution: <log det C> + Psi, stationary in alpha, beta.

    Psi = sum of the integral of (1 + x phi'/phi) dx. All factors have Im >= 0 or are products of
    two such, so principal logs are continuous.
    """
    levels, log = forward(chain, alpha, beta), chain.log
    p, w = levels[-1]
    total = w @ log(z - p)
    for i, gin in enumerate(averages(chain, z, alpha, beta)[0]):
        p, w = levels[i]
        x = beta[i] * gin
        total = total + w @ log(1 - p * beta[i]) + x - chain.haar[i] * (x - log(1 + x))
        for share in chain.inner[i]:
            total = total + x - share * log(1 + x / share)
    return total


def chain_squares(chain, z, x):
    """<d_i d_j (C^-1)_ij^2>, weights d on the w, 1 on the y; types vectorised.

    C is tridiagonal on (y_0, w_1, y_1, .., w_L): diagonal -d x, plus 1 first and z last, beside it
    -a_1, 1, -a_2, 1, .., -a_L. So (C^-1)_yy = P/(1 - P Q), (C^-1)_ww = Q/(1 - P Q), and a step to
    the right from y_{l-1} to w_l is times a Q_l/(1 - Q_l alpha_l d_l), from w_l to y_l 1/Q_l.
    """
    alpha, beta = x[1::2], x[::2]
    ups, downs = forward(chain, alpha, beta), backward(chain, z, alpha, beta)
    types = ups[-1][1]
    squares, steps, weights = [], [], []
    for level in range(len(alpha)):
        p, q = (np.repeat(ups[k][0], types.size // ups[k][0].size) for k in (level, level + 1))
        q_low, q_high = (np.tile(downs[k][0], types.size // downs[k][0].size)
                         for k in (level, level + 1))
        d = np.tile(np.repeat(chain.values[level], downs[level + 1][0].size),
                    ups[level][0].size)
        step = chain.skips[level] * q_high / (1 - q_high * alpha[level] * d)
        squares += [(p / (1 - p * q_low)) ** 2, (q_high / (1 - q * q_high)) ** 2]
        steps += [step**2, q_high**-2]
        weights += [np.ones_like(d), d]
    out = np.empty((x.size, x.size), complex)
    for i in range(x.size):
        row = types * weights[i] * squares[i]
        for j in range(i, x.size):
            out[i, j] = out[j, i] = row @ weights[j]
            row = row * steps[j]
    return out


def jacobian(sites, z, x):
    """Derivative of the equations in x = (beta_1, alpha_1, beta_2, ..)."""
    chain, n = numbers(sites), x.size
    squares, unit = chain_squares(chain, z, x), np.eye(n)      # of gin_1, gout_1, gin_2, ..
    gins, gouts = averages(chain, z, x[1::2], x[::2])
    out = np.empty((n, n), complex)
    for i, (gin, gout) in enumerate(zip(gins, gouts, strict=True)):
        of_beta, of_alpha = unit[2 * i], unit[2 * i + 1]
        phi, slope = link(chain, i, x[2 * i] * gin)
        rise = slope * (x[2 * i] * squares[2 * i] + gin * of_beta)
        out[2 * i] = of_alpha - phi * squares[2 * i] - gin * rise
        out[2 * i + 1] = of_beta - phi * squares[2 * i + 1] - gout * rise
    return out


# ---- solutions ---------------------------------------------------------------------------------


def newton(sites, z, x):
    """Newton's method in the logarithms of x; None where it does not converge in C-."""
    chain = numbers(sites)
    last = math.inf
    for _ in range(40):
        with np.errstate(all="ignore"):
            left = equations(chain, z, x[1::2], x[::2])
            matrix = jacobian(sites, z, x) * x
        if not (np.isfinite(left).all() and np.isfinite(matrix).all()):
            return None
        step = np.linalg.solve(matrix, -left)
        size = np.abs(step).max()
        x = x * np.exp(step * min(1.0, 1.0 / max(size, 1e-300)))
        if size < _TOLERANCE or (size < _CLOSE and size > last / 4):
            return x if z.imag == 0 or below_axis(x) else None
        last = size
    return None


def below_axis(x):
    """Im x <= 0 up to rounding (alpha = s, real, for an orthogonal plain layer)."""
    return bool((x.imag <= 1e-11 * np.abs(x)).all())


def asymptotic(sites, z):
    """State at |z| -> inf: alpha_l = s_l <P_{l-1}>, beta_l = s_l E d_l <Q_l>."""
    growth = [float(site.growth()) for site in sites]
    x = np.empty(2 * len(sites), complex)
    for i, site in enumerate(sites):
        x[2 * i + 1] = site.variance * math.prod(growth[:i]) * (1 - 1e-6j)
        x[2 * i] = site.variance * float(site.mean()) * math.prod(growth[i + 1:]) / z
    return x


def solve(sites, z):
    """State x = (beta_1, alpha_1, ..) at z in the closed upper half plane.

    Im z is lowered from far above the law, with log x predicted linearly in log Im z.
    """
    z = complex(z)
    reach = max(abs(z), math.prod(float(site.growth()) for site in sites))
    height, low = 3 * reach, max(z.imag, 1e-11 * abs(z))
    while (x := newton(sites, start := complex(z.real, height), asymptotic(sites, start))) is None:
        height *= 10
    before, ratio = None, 0.5
    while height > low:
        target = max(low, ratio * height)
        guess = x
        if before is not None:
            share = math.log(target / height) / math.log(height / before[0])
            guess = x * np.exp(np.log(x / before[1]) * share)
        found = newton(sites, complex(z.real, target), guess) if below_axis(guess) else None
        miss = math.inf if found is None else np.abs(np.log(found / guess)).max()
        if miss > (0.7 if before is None else 0.3):
            ratio = math.sqrt(ratio)
            if ratio > 0.9999:
                raise ArithmeticError(f"no way down to z = {z}: stuck at Im z = {height:g}")
            continue
        before, x, height = (height, x), found, target
        ratio = max(0.05, ratio**1.5) if miss < 0.05 else ratio
    found = newton(sites, z, x)
    if found is None:
        raise ArithmeticError(f"no solution at z = {z}")
    return found


def moment_function(sites, z):
    """m(z) = z G(z) - 1, z in the closed upper half plane."""
    x = solve(sites, z)
    return averages(numbers(sites), complex(z), x[1::2], x[::2])[0][0] - 1


def green(sites, z):
    """G(z) = int rho(dt) / (z - t)."""
    return (moment_function(sites, z) + 1) / z


def density(sites, lam):
    """Density of the continuous part at lam > 0."""
    return -green(sites, lam).imag / math.pi


def cdf(sites, lam):
    """N(lam), mass <= lam, off atoms: from U(lam + iy) - iy G, as logs on the axis have no sign."""
    z, height = complex(lam, 1e-11 * lam), 1e-11 * lam
    x, chain = solve(sites, z), numbers(sites)
    g = averages(chain, z, x[1::2], x[::2])[0][0] / z
    u = potential(chain, z, x[1::2], x[::2]) - 1j * height * g
    return 1 - u.imag / math.pi


def mass_within(sites, low, high):
    return cdf(sites, high) - cdf(sites, low)


def moments(sites, count, reach, points=400):
    """m_1 .. m_count by the trapezoidal rule on the circle |z| = reach, beyond the support."""
    angles = math.pi * (np.arange(points) + 0.5) / points
    z = reach * np.exp(1j * angles)
    g = np.array([green(sites, point) for point in z])
    return np.array([np.mean((g * z ** (k + 1)).real) for k in range(1, count + 1)])


def atom(sites):
    """Mass at prod a^2: coordinates inactive in all blocks beyond those that are not."""
    inactive = [sum(p for d, p in zip(s.values, s.masses, strict=True) if d == 0) for s in sites]
    return max(0, 2 * math.prod(inactive) - 1)


# ---- many digits -------------------------------------------------------------------------------


def polish(sites, z, x):
    """x to about _DIGITS digits: Newton's method with the Jacobian of doubles.

    Returns x and the last relative change.
    """
    chain = numbers(sites, exact=True)
    inverse = np.linalg.inv(jacobian(sites, complex(z), x) * x)
    x = np.array([mp.mpc(v) for v in x], object)
    for _ in range(60):
        left = equations(chain, z, x[1::2], x[::2])
        step = inverse.astype(object) @ left
        x = x * (1 - step)
        size = max(abs(v) for v in step)
        if size < mp.mpf(10) ** (5 - _DIGITS):
            break
    return x, float(size)


def exact_point(sites, lam):
    """(density, m, N) at lam + i0 as mpmath numbers, and the relative error of the unknowns."""
    with mp.workdps(_DIGITS + 10):
        z = mp.mpc(lam, mp.mpf(lam) * mp.mpf(10) ** -_ABOVE)
        x, error = polish(sites, z, solve(sites, lam))
        chain = numbers(sites, exact=True)
        m = averages(chain, z, x[1::2], x[::2])[0][0] - 1
        n = 1 - potential(chain, z, x[1::2], x[::2]).imag / mp.pi
        return -((1 + m) / z).imag / mp.pi, m, n, error


# ---- edges -------------------------------------------------------------------------------------


def _parameter(sites):
    """Place in x of what runs along the real states: alpha_1, but beta_1 of a plain layer."""
    return 1 if sites[0].skip else 0


def _fixed(sites, s, x, z):
    """Real x, z with alpha_1 (or beta_1) = s, and dz/ds: the unknowns are the others and z."""
    k = _parameter(sites)
    for _ in range(60):
        x[k] = s
        with np.errstate(all="ignore"):
            left = equations(numbers(sites), complex(z), x[1::2], x[::2])
            matrix, slope = _bordered(sites, x, z)
            step = np.linalg.solve(matrix, -left.real)
        if not np.isfinite(step).all():
            break
        z, step[k] = z + step[k], 0.0
        x = x + step
        if np.abs(step / x.real).max() < _TOLERANCE:
            return x, z, slope
    raise ArithmeticError(f"no real state at s = {s}")


def _bordered(sites, x, z):
    """Jacobian whose column of s is replaced by that of z, and dz/ds."""
    chain, k = numbers(sites), _parameter(sites)
    whole = jacobian(sites, complex(z), x).real
    step = 1e-30 * z    # complex step: the equations are analytic in z
    left = equations(chain, complex(z, step), x[1::2].astype(complex), x[::2].astype(complex))
    column = left.imag / step
    matrix = whole.copy()
    matrix[:, k] = column
    return matrix, np.linalg.solve(matrix, -whole[:, k])[k]


def edge(sites, side, guess):
    """End of an interval of the support near ``guess``: side "upper" or "lower".

    An mpmath number. It is looked for from the first point without density that is met going up
    (side "upper") or down from ``guess`` in steps of 2 %.
    """
    z = guess
    for _ in range(60):
        z *= 1.02 if side == "upper" else 1 / 1.02
        if not inside(sites, z):
            return edge_from(sites, side, z)
    raise ArithmeticError("no point outside the support found")


def inside(sites, lam):
    """Whether the law has density at lam."""
    x = solve(sites, lam)
    return bool(np.abs(x.imag / x.real).max() > 1e-8)


def edge_from(sites, side, outside):
    """The end of the support next to a point ``outside`` it, below it if it is an "upper" end.

    Outside the support all unknowns are real; at its end z is stationary along them.
    """
    sign = 1 if side == "upper" else -1
    x = solve(sites, outside).real.astype(complex)
    s = x[_parameter(sites)].real
    x, z, slope = _fixed(sites, s, x, outside)
    step = -sign * 0.01 * z / slope
    for _ in range(500):
        try:
            moved = _fixed(sites, s + step, x.copy(), z)
        except (ArithmeticError, np.linalg.LinAlgError):
            step /= 4
            continue
        miss = moved[1] - z - 0.5 * (slope + moved[2]) * step    # another branch, or a long step
        if not abs(miss) < 0.02 * max(abs(slope), abs(moved[2])) * abs(step):
            step /= 2
            continue
        if moved[2] * slope < 0:
            return _stationary(sites, (s, slope), (s + step, moved[2]), moved)
        s, step, (x, z, slope) = s + step, 1.2 * step, moved
    raise ArithmeticError(f"no end of the support found {'below' if sign > 0 else 'above'} "
                          f"{outside}: reached {z}")


def _stationary(sites, low, high, state):
    """Zero of dz/ds between (s, dz/ds) = low and high by the Illinois rule; polished."""
    x, z, _ = state
    for _ in range(200):
        middle = high[0] - high[1] * (high[0] - low[0]) / (high[1] - low[1])
        x, z, slope = _fixed(sites, middle, x.copy(), z)
        low = high if slope * high[1] < 0 else (low[0], low[1] / 2)
        done = abs(middle - high[0]) < 1e-10 * abs(middle) or abs(slope * middle) < 1e-10 * z
        high = middle, slope
        if done:
            return _polished_edge(sites, middle, x, z)
    raise ArithmeticError(f"no stationary point near {z}")


def _polished_edge(sites, s, x, z):
    """z at this s, with many digits; z is stationary there, so s need not be exact."""
    with mp.workdps(_DIGITS + 10):
        inverse = np.linalg.inv(_bordered(sites, x, z)[0]).astype(object)
        chain, k = numbers(sites, exact=True), _parameter(sites)
        x, z = np.array([mp.mpc(v.real) for v in x], object), mp.mpc(z)
        x[k] = mp.mpc(s)
        for _ in range(30):
            step = inverse @ equations(chain, z, x[1::2], x[::2])
            z, step[k] = z - step[k], mp.mpc(0)
            x = x - step
        return z.real
