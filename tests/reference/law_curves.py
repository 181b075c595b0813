"""Laws of singular values whose z(m) is explicit, as exact curves in 50+ digits.

Each law has log z = K(m), where m(z) = z G(z) - 1 and G is the Green's function of the
spectrum of J J^T. On the support (z = lam + i0) m runs through the open lower half plane along
one arc, written here in closed form with one real parameter u in (0, 1): u -> 0 is the upper
end of the continuous part, u -> 1 its lower end, and lam falls as u grows.

Why the branch is certain: with logarithms taken in the lower half plane, Im K(m) = 0 is one
equation between angles; each value of the parameter solves it exactly once, so the arc has no
second piece, and the physical m(lam), which is continuous and injective, fills it.

The distribution function is exact too: dPhi = (1 + m) dK = G dz, so Phi is the logarithmic
potential, Im Phi(m(lam)) / pi is the mass above lam (atoms included), and Phi is elementary.

Sources: Tarnowski et al. 2018 (residual limit); Penson & Zyczkowski 2011 (Fuss-Catalan);
Pennington, Schoenholz & Ganguli 2018 (plain chains and their universality classes).
"""

from mpmath import mp, mpc, mpf


def log_lower(w):
    """Logarithm on the closed lower half plane, arguments -pi to 0.

    Its cut is the positive imaginary axis, so that rounding off a real ray is harmless.
    """
    return mp.log(w * mpc(0, 1)) - mpc(0, mp.pi / 2)


class Law:
    """One law: K, its derivatives, Phi, the arc m(u), ends, atoms and exact moments."""

    kind = ""

    def log_z(self, m):
        """K(m) = log z with every logarithm taken in the lower half plane."""
        raise NotImplementedError

    def log_z_slopes(self, m):
        """First and second derivative of K."""
        raise NotImplementedError

    def equation(self, m):
        """z(m) in product form, without logarithms: what the residual is measured on."""
        raise NotImplementedError

    def potential(self, m):
        """Phi(m), with dPhi = (1 + m) dK."""
        raise NotImplementedError

    def arc(self, u):
        """m at parameter u."""
        raise NotImplementedError

    def ends(self):
        """(low, high) of the continuous part, or None if there is none."""
        raise NotImplementedError

    def atoms(self):
        """List of (location, mass)."""
        return []

    def zeros_and_poles(self, m):
        """Distances of m from the singular points of K."""
        return [abs(m), abs(1 + m)]

    def moment(self, k):
        """k-th moment, [w^(k-1)] (m z(m))^k / k at m = w (Lagrange inversion), as a sum."""
        raise NotImplementedError

    def continuous_mass(self):
        return 1 - mp.fsum(mass for _, mass in self.atoms())


class ResNetLimit(Law):
    """z = a^(2L) ((1+m)/m) exp(s(1+2m)), s = c/a^2.

    With m + 1/2 = x - iy the angles give x^2 = 1/4 - y^2 + y cot(2sy), 0 < 2sy < pi, which has
    one x^2 for each y; the two signs of x are the halves above and below lam = a^(2L).
    """

    kind = "resnet_limit"

    def __init__(self, c, skip=1.0, depth=None):
        self.parameters = {"c": repr(c), "skip": repr(skip), "depth": depth}
        self.exact = (c, skip, depth)
        self._top = {}

    def _strength(self):
        c, skip, _ = self.exact
        return mpf(c) / mpf(skip) ** 2

    def _log_scale(self):
        """Logarithm of the centre of the law, 2 L log a."""
        _, skip, depth = self.exact
        return 2 * (depth or 0) * mp.log(mpf(skip))

    def log_z(self, m):
        shift = self._log_scale() + self._strength() * (1 + 2 * m)
        return log_lower(1 + m) - log_lower(m) + shift

    def log_z_slopes(self, m):
        first = 1 / (1 + m) - 1 / m + 2 * self._strength()
        return first, 1 / m**2 - 1 / (1 + m) ** 2

    def equation(self, m):
        return mp.exp(self._log_scale()) * (1 + m) / m * mp.exp(self._strength() * (1 + 2 * m))

    def potential(self, m):
        return -log_lower(m) + self._strength() * m * (2 + m)

    def _x_squared(self, y):
        return mpf(1) / 4 - y * y + y * mp.cot(2 * self._strength() * y)

    def _y_max(self):
        """The y where x = 0, by bisection and then a secant iteration."""
        if mp.prec not in self._top:
            low, high = mpf(0), mp.pi / (2 * self._strength())
            for _ in range(40):
                middle = (low + high) / 2
                if self._x_squared(middle) > 0:
                    low = middle
                else:
                    high = middle
            self._top[mp.prec] = mp.findroot(self._x_squared, (low, high), verify=False)
        return self._top[mp.prec]

    def arc(self, u):
        y = self._y_max() * mp.sin(mp.pi * u)
        x = mp.sqrt(max(self._x_squared(y), mpf(0)))
        return mpc(-mpf(1) / 2 + (x if 2 * u < 1 else -x), -y)

    def ends(self):
        root = mp.sqrt(1 + 2 / self._strength())
        return tuple(mp.re(self.equation((sign * root - 1) / 2)) for sign in (-1, 1))

    def moment(self, k):
        s = self._strength()
        total = mp.fsum(mp.binomial(k, k - 1 - j) * (2 * s * k) ** j / mp.factorial(j)
                        for j in range(k))
        return mp.exp(k * (self._log_scale() + s)) * total / k


class SmoothLimit(ResNetLimit):
    """z = ((1+m)/m) exp(v m): the residual limit with s = v/2, divided by e^s."""

    kind = "smooth_limit"

    def __init__(self, variance):
        super().__init__(variance)
        self.parameters = {"variance": repr(variance)}

    def _strength(self):
        return mpf(self.exact[0]) / 2

    def _log_scale(self):
        return -self._strength()


def fuss_catalan_arc(n, u):
    """w with (1+w)^n / w real: w = e^(-inf) sin f / sin((n-1) f), f = pi u / n."""
    f = mp.pi * u / n
    return mp.expj(-n * f) * mp.sin(f) / mp.sin((n - 1) * f)


class FussCatalan(Law):
    """z = (1+m)^(L+1) / m."""

    kind = "fuss_catalan"

    def __init__(self, depth):
        self.parameters = {"depth": depth}
        self.depth = depth

    def log_z(self, m):
        return (self.depth + 1) * log_lower(1 + m) - log_lower(m)

    def log_z_slopes(self, m):
        n = self.depth + 1
        return n / (1 + m) - 1 / m, 1 / m**2 - n / (1 + m) ** 2

    def equation(self, m):
        return (1 + m) ** (self.depth + 1) / m

    def potential(self, m):
        return self.depth * m - log_lower(m)

    def arc(self, u):
        return fuss_catalan_arc(self.depth + 1, u)

    def ends(self):
        n = mpf(self.depth + 1)
        return mpf(0), n * (n / self.depth) ** self.depth

    def moment(self, k):
        return mp.binomial((self.depth + 1) * k, k - 1) / k


class PlainChain(Law):
    """L equal layers D W with slopes squared 1 (probability p) or 0.

    p and pc = 1 - p are both given as doubles; the smaller one is exact, the other is one minus
    it.
    """

    def __init__(self, depth, p, pc, weight_variance):
        self.parameters = {"depth": depth, "p": repr(p), "pc": repr(pc),
                           "exact": "pc" if pc < p else "p",
                           "weight_variance": repr(weight_variance)}
        self.depth = depth
        self.exact = (p, pc, weight_variance)

    def _p(self):
        """(p, 1 - p) at working precision."""
        p, pc, _ = self.exact
        return (1 - mpf(pc), mpf(pc)) if pc < p else (mpf(p), 1 - mpf(p))

    def _log_scale(self):
        return self.depth * mp.log(mpf(self.exact[2]))

    def zeros_and_poles(self, m):
        return [abs(m), abs(1 + m), abs(m + self._p()[0])]

    def atoms(self):
        return [(mpf(0), self._p()[1])]


class PlainGaussian(PlainChain):
    """z = sigma^(2L) (1+m) (m+p)^L / m.

    Angles a, b, g of 1+m, m+p, m (turned to be positive) obey a + L b = g. The sine rule in the
    triangles (-1, 0, m) and (-p, 0, m) turns this into
    sin^2((a + g - b)/2) = pc sin^2((L-1) b/2) + p sin^2((L+1) b/2), explicit in b in (0, pi/L).
    """

    kind = "plain_gaussian"

    def log_z(self, m):
        p, _ = self._p()
        slope_part = self.depth * log_lower(m + p)
        return self._log_scale() + log_lower(1 + m) + slope_part - log_lower(m)

    def log_z_slopes(self, m):
        p, _ = self._p()
        first = 1 / (1 + m) + self.depth / (m + p) - 1 / m
        return first, 1 / m**2 - 1 / (1 + m) ** 2 - self.depth / (m + p) ** 2

    def equation(self, m):
        p, _ = self._p()
        return mpf(self.exact[2]) ** self.depth * (1 + m) * (m + p) ** self.depth / m

    def potential(self, m):
        p, pc = self._p()
        return self.depth * (m + pc * log_lower(m + p)) - log_lower(m)

    def arc(self, u):
        p, pc = self._p()
        half = mp.pi * u / (2 * self.depth)
        lower, upper = mp.sin((self.depth - 1) * half), mp.sin((self.depth + 1) * half)
        half_sum = mp.asin(mp.sqrt(pc * lower**2 + p * upper**2))
        angle = (self.depth + 1) * half + half_sum
        return mp.expj(-angle) * p * mp.sin(2 * half) / mp.sin(angle - 2 * half)

    def ends(self):
        p, _ = self._p()
        L = self.depth
        if L == 1:
            return tuple(mp.re(self.equation(sign * mp.sqrt(p))) for sign in (-1, 1))
        top = (mp.sqrt(mpf(L - 1) ** 2 + 4 * L * p) - (L - 1)) / (2 * L)
        return mpf(0), self.equation(top)

    def moment(self, k):
        p, _ = self._p()
        total = mp.fsum(mp.binomial(k, k - 1 - j) * mp.binomial(self.depth * k, j)
                        * p ** (self.depth * k - j) for j in range(k))
        return mpf(self.exact[2]) ** (self.depth * k) * total / k


class PlainOrthogonal(PlainChain):
    """z = ((1+m)/m) sigma^(2L) ((m+p)/(1+m))^L.

    With q = m/(1+m) and t = (pc/p) q, z = (pc/p) (sigma^2 p)^L (1+t)^L / t: Fuss-Catalan in t.
    One layer has no continuous part.
    """

    kind = "plain_orthogonal"

    def log_z(self, m):
        p, _ = self._p()
        slope_part = self.depth * (log_lower(m + p) - log_lower(1 + m))
        return self._log_scale() + log_lower(1 + m) - log_lower(m) + slope_part

    def log_z_slopes(self, m):
        p, _ = self._p()
        L = self.depth
        first = (1 - L) / (1 + m) + L / (m + p) - 1 / m
        return first, 1 / m**2 - (1 - L) / (1 + m) ** 2 - L / (m + p) ** 2

    def equation(self, m):
        p, _ = self._p()
        return (1 + m) / m * (mpf(self.exact[2]) * (m + p) / (1 + m)) ** self.depth

    def potential(self, m):
        p, pc = self._p()
        return self.depth * pc * log_lower(m + p) - log_lower(m)

    def arc(self, u):
        p, pc = self._p()
        q = p / pc * fuss_catalan_arc(self.depth, u)
        return q / (1 - q)

    def ends(self):
        p, pc = self._p()
        L = self.depth
        if L == 1:
            return None
        scale = pc / p * (mpf(self.exact[2]) * p) ** L
        return mpf(0), scale * L * (mpf(L) / (L - 1)) ** (L - 1)

    def atoms(self):
        top_mass = 1 - self.depth * self._p()[1]
        found = super().atoms()
        if top_mass > 0:
            found.append((mpf(self.exact[2]) ** self.depth, top_mass))
        return found

    def moment(self, k):
        p, _ = self._p()
        L = self.depth
        total = mp.fsum(mp.binomial((1 - L) * k, k - 1 - j) * mp.binomial(L * k, j)
                        * p ** (L * k - j) for j in range(k))
        return mpf(self.exact[2]) ** (L * k) * total / k


class BernoulliLimit(Law):
    """z = ((1+m)/m) exp(v m/(1+m)).

    With q = m/(1+m): -v q is Lambert's W(-v/z), and on the support v q = h cot h - i h.
    """

    kind = "bernoulli_limit"

    def __init__(self, variance):
        self.parameters = {"variance": repr(variance)}
        self.variance = variance

    def log_z(self, m):
        return log_lower(1 + m) - log_lower(m) + mpf(self.variance) * m / (1 + m)

    def log_z_slopes(self, m):
        v = mpf(self.variance)
        first = 1 / (1 + m) - 1 / m + v / (1 + m) ** 2
        return first, 1 / m**2 - 1 / (1 + m) ** 2 - 2 * v / (1 + m) ** 3

    def equation(self, m):
        return (1 + m) / m * mp.exp(mpf(self.variance) * m / (1 + m))

    def potential(self, m):
        return mpf(self.variance) * log_lower(1 + m) - log_lower(m)

    def arc(self, u):
        h = mp.pi * u
        q = mpc(h * mp.cot(h), -h) / mpf(self.variance)
        return q / (1 - q)

    def ends(self):
        return mpf(0), mp.e * mpf(self.variance)

    def atoms(self):
        v = mpf(self.variance)
        return [(mp.exp(v), 1 - v)] if v < 1 else []

    def moment(self, k):
        v = mpf(self.variance)
        return mp.fsum((k * v) ** j / mp.factorial(j) * (k - j) for j in range(k)) / k


def all_laws():
    """Every tabulated law, by kind."""
    laws = [ResNetLimit(c) for c in (1e-8, 1e-6, 1e-3, 0.125, 0.5, 1.0, 4.0, 10.0, 50.0, 100.0)]
    laws += [ResNetLimit(c, a, depth) for c, a, depth in
             ((0.3, 0.9, 7), (1.0, 1.1, 10), (2.0, 0.5, 20), (0.125, 0.99, 1000))]
    laws += [FussCatalan(depth) for depth in (1, 2, 3, 10, 50, 100, 1000, 10000)]
    near_one = 1 - 1e-6
    laws += [PlainGaussian(*row) for row in (
        (1, 0.5, 0.5, 2.0), (1, 0.9, 0.1, 1 / 0.9), (2, 0.5, 0.5, 2.0), (3, 0.5, 0.5, 2.0),
        (10, 0.5, 0.5, 2.0), (50, 0.5, 0.5, 2.0), (100, 0.5, 0.5, 1.7), (5, 0.9, 0.1, 1 / 0.9),
        (20, 0.99, 0.01, 1 / 0.99), (10, near_one, 1e-6, 1.0), (1000, 0.5, 0.5, 2.0),
        (10000, 0.5, 0.5, 2.0), (4, 0.05, 0.95, 20.0), (2, 0.3, 0.7, 0.7))]
    laws += [PlainOrthogonal(*row) for row in (
        (1, 0.5, 0.5, 2.0), (1, 0.9, 0.1, 1 / 0.9), (2, 0.5, 0.5, 2.0), (2, 0.3, 0.7, 0.7),
        (3, 0.5, 0.5, 2.0), (3, 0.8, 0.2, 1 / 0.8), (10, 0.5, 0.5, 2.0),
        (10, 0.95, 0.05, 1 / 0.95), (10, 0.85, 0.15, 1 / 0.85), (50, 0.99, 0.01, 1 / 0.99),
        (50, 0.9, 0.1, 1 / 0.9), (100, 0.99, 0.01, 1 / 0.99), (4, 0.75, 0.25, 4 / 3),
        (1000, 0.9995, 0.0005, 1 / 0.9995), (10000, 0.5, 0.5, 2.0),
        (1000, near_one, 1e-6, 1.0))]
    laws += [BernoulliLimit(v) for v in (1e-6, 0.01, 0.25, 0.5, 1.0, 1.5, 4.0, 25.0)]
    laws += [SmoothLimit(v) for v in (1e-6, 0.01, 0.25, 1.0, 4.0, 25.0, 100.0)]
    return laws
