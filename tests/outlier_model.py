"""The outliers' equation by plain loops in mpmath: a slow twin of `fastspec._outlier_*`.

In sigma's own units, sources in the order f_1 ... f_L, e_1 ... e_L, T-matrices written out, one
site after the other.
"""

import math

from mpmath import mp, mpf


def gaussian(function, q):
    """E f(h), h ~ N(0, q), with a possible kink at 0."""
    s = mp.sqrt(q)
    cuts = [-12, -6, -3, -1, 0, 1, 3, 6, 12]
    return mp.quad(lambda x: function(s * x) * mp.npdf(x), cuts)


class Model:
    """One network: phi and its derivative on mpf, and the parameters of the recursions."""

    def __init__(self, phi, slope, depth, s2, skip=1, bias_variance=0, orthogonal=False, p0=1,
                 m0=0):
        self.phi, self.slope, self.depth, self.orthogonal = phi, slope, depth, orthogonal
        self.s2, self.skip, self.bias, self.m0 = mpf(s2), mpf(skip), mpf(bias_variance), mpf(m0)
        self.p, self.q, mean = [mpf(p0)], [], self.m0
        for _ in range(depth):
            q = self.s2 * self.p[-1] + self.bias
            first = gaussian(phi, q)
            second = gaussian(lambda h: phi(h) ** 2, q)
            self.p.append(self.skip**2 * self.p[-1] + 2 * self.skip * mean * first + second)
            mean = self.skip * mean + first
            self.q.append(q)

    def free(self, m, starts):
        """z and, per layer, P_{l-1}, eta, gamma, alpha, beta, d at this m; starts: about u_l."""
        layers, power = [], 1 if self.orthogonal else 0
        for q, start in zip(self.q, starts, strict=True):
            def eta_of(u, q=q):
                return gaussian(lambda h: 1 / (1 - u * self.slope(h) ** 2), q)

            def equation(u, eta_of=eta_of):
                eta = eta_of(u)
                gamma = u * eta**power / (self.s2 * (1 + m))
                return (gamma * self.skip**2 * (1 + m) * eta
                        - (2 + m - eta) * (1 + m - eta))

            u = mp.findroot(equation, (start * mpf("1.0001"), start))
            eta = eta_of(u)
            layers.append((u, eta, u * eta**power / (self.s2 * (1 + m))))
        z = (1 + m) / m
        for _, eta, gamma in layers:
            z *= m / (gamma * eta)
        p, out = 1 / mp.sqrt(z), []
        for _, eta, gamma in layers:
            alpha = self.s2 * (1 + m) * p / eta**power
            beta = (eta - 1) / ((1 + m) * p)
            out.append({"P": p, "alpha": alpha, "beta": beta, "d": p * (1 - 1 / eta) / gamma})
            p *= m / (gamma * eta)
        return z, out

    def resolvent(self, z, layers):
        """G, rows t_0 ... t_{L-1}, s_1 ... s_L, columns y_0 ..., w_1 ..."""
        depth, sigma = self.depth, mp.sqrt(z)
        matrix = mp.zeros(2 * depth)
        for n in range(depth):      # layer n + 1
            w = depth + n
            matrix[n, n] = -layers[n]["beta"] + (sigma if n == 0 else 0)
            matrix[w, w] = -layers[n]["d"] + (sigma if n == depth - 1 else 0)
            matrix[n, w] = matrix[w, n] = -self.skip
            if n < depth - 1:
                matrix[w, n + 1] = matrix[n + 1, w] = 1
        return matrix**-1

    def response(self, z, layers):
        """R with three more columns: x_L and 1 at the output, 1 at the input."""
        depth, small = self.depth, self.resolvent(z, layers)
        rows = [*range(2 * depth), 2 * depth - 1, 2 * depth - 1, 0]
        levels = [*range(depth), *[None] * depth, depth, None, None]
        n = len(rows)
        g = mp.matrix(n, n)
        for i in range(n):
            for j in range(n):
                g[i, j] = small[rows[i], rows[j]]

        def carried(k):
            return [self.skip ** (lev - k) / mp.sqrt(self.p[lev])
                    if lev is not None and lev >= k else mpf(0) for lev in levels]

        vertex, total, x = mp.zeros(n), mp.zeros(n), carried(0)
        for i in range(n):
            vertex[i, i] = self.m0 * x[i] + (1 if i >= n - 2 else 0)
            for j in range(n):
                total[i, j] = (self.p[0] - self.m0**2) * x[i] * x[j] * g[i, j]
        for k in range(1, depth + 1):
            i, x, moment = depth + k - 1, carried(k), self.moments(k, layers, g)
            zeta = [x[j] * g[j, i] for j in range(n)]
            unit = [1 if j == i else 0 for j in range(n)]
            e, te, gii = moment["E"], moment["T"], g[i, i]
            row = [te["A"] * zeta[j] + (e["B"] + te["B"] * gii) * unit[j] for j in range(n)]
            own = mp.zeros(n)
            for r in range(n):
                own[r, r] += e["A"] * x[r]
                for c in range(n):
                    own[r, c] += unit[r] * row[c]
                    total[r, c] += (
                        e["AA"] * x[r] * x[c] * g[r, c] + te["AA"] * zeta[r] * zeta[c]
                        + (e["AB"] + te["AB"] * gii) * (zeta[r] * unit[c] + unit[r] * zeta[c])
                        + (e["BB"] * gii + te["BB"] * gii**2) * unit[r] * unit[c])
            total -= own.T * g * own
            vertex += own
        return total + vertex.T * g * vertex

    def moments(self, k, layers, g):
        """E f and E T f for f = A, B, A^2, A B, B^2, A = phi(h_k), B = D g_k."""
        q, layer, gii = self.q[k - 1], layers[k - 1], g[self.depth + k - 1, self.depth + k - 1]
        gain, spread = self.s2 * mp.sqrt(self.p[k - 1]) / q, self.s2 * self.bias / q

        def b(h):
            return self.slope(h) * gain * h

        def t(h):
            v = layer["alpha"] * self.slope(h) ** 2 - layer["d"]
            return v / (1 - v * gii)

        functions = {"A": self.phi, "B": b, "AA": lambda h: self.phi(h) ** 2,
                     "AB": lambda h: self.phi(h) * b(h),
                     "BB": lambda h: self.slope(h) ** 2 * ((gain * h) ** 2 + spread)}
        return {"E": {name: gaussian(f, q) for name, f in functions.items()},
                "T": {name: gaussian(lambda h, f=f: t(h) * f(h), q)
                      for name, f in functions.items()}}

    def form(self, z, layers):
        """F and the responses to x^0, 1 (input), x^L, 1 (output)."""
        depth, om = self.depth, 1 if self.orthogonal else 0
        response, tie = self.response(z, layers), mp.zeros(2 * depth)
        for n in range(depth):
            tie[n, n] = -layers[n]["beta"]
            tie[depth + n, depth + n] = -om * layers[n]["alpha"] / self.s2
            tie[n, depth + n] = tie[depth + n, n] = 1
        n = 2 * depth
        columns = response[:n, 0], response[:n, n + 2], response[:n, n], response[:n, n + 1]
        return tie**-1 - response[:n, :n], columns

    def units(self, layers):
        """What sqrt(P_l) and 1/sqrt(P_l) make of rows, for `fastspec`'s units."""
        scale = [math.sqrt(layer["P"]) for layer in layers]
        return [*scale, *(1.0 / s for s in scale)]
