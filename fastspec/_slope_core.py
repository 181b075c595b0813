r"""The law of sigma^2 phi'(h)^2, h ~ N(mean, q): one square layer with orthogonal weights.

J J^T = sigma^2 D^2 up to a rotation, so its law is that of the slopes (Pennington, Schoenholz &
Ganguli 2017). The density of log lambda is the sum over the branches of phi'^2 of w(h)/|dy/dh|,
y = log phi'(h)^2, w the normal density: infinite at extrema of phi'^2, with jumps at kinks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _kernels
from . import quadrature as gaussian
from ._distribution import NOT_CONVERGED
from ._factors import Factor, FactorLayer
from ._slope_branches import Points, quadrature
from ._slope_ends import End
from ._slope_partition import partition
from ._slope_rules import kernel_slopes
from .activations import Activation

__all__ = ["SlopeCore", "slope_core"]

FloatArray = NDArray[np.float64]

_EPS = float(np.finfo(float).eps)
_OK, _SINGULAR = 0, 4
_LOST = 1e-6                # relative error of a density from m that is not handed out
_NEAR = 0.1                 # relative distance from an end of a branch that is measured from it
_ITERATIONS = 200
_TABLE = 24                 # points of the table of quantiles per branch
_STEP = 2.0**-5             # of the tanh-sinh rule
_FAR = 600.0                # |log lambda| where a power law at 0 is read off


def slope_core(factors: Sequence[Factor]) -> SlopeCore | None:
    """The law of the product if it is that of one layer: square orthogonal plain layers, of which
    one has slopes that vary smoothly and the others constant ones. Else None."""
    scales: list[tuple[float, float]] = []
    smooth: list[FactorLayer] = []
    for factor in factors:
        layer = factor.layers[0]
        if factor.skip or layer.weights != "orthogonal" or layer.width_in != layer.width_out:
            return None
        scales.append((layer.weight_variance, factor.weight))
        slopes = layer.activation.slopes
        if slopes is None and layer.q > 0.0 and factor.weight == 1.0:
            smooth.append(layer)
        elif slopes is not None and slopes[0] != 0.0 and len({abs(slope) for slope in slopes}) == 1:
            scales.append((slopes[0] ** 2, factor.weight))
        else:
            return None
    return SlopeCore(*smooth[0][:3], scales) if len(smooth) == 1 else None


class SlopeCore:
    """Answers what `_kernels.Law` answers; arguments and results are the same.

    Parameters
    ----------
    activation : Activation
        With slopes that vary smoothly.
    q, mean : float
        Variance > 0 and mean of h.
    scales : sequence of (float, float)
        sigma^2 = product of base^power, base > 0.
    """

    def __init__(self, activation: Activation, q: float, mean: float,
                 scales: Sequence[tuple[float, float]]) -> None:
        self._layer = activation, q, mean
        self._log_scale = math.fsum(power * math.log(base) for base, power in scales)
        with np.errstate(over="ignore", under="ignore"):
            self._scale = float(np.prod([np.float64(base) ** power for base, power in scales]))
        self._slopes = kernel_slopes(activation, q, mean)
        self._branches, atoms, self._form = partition(activation, q, mean)
        self._atoms = [(math.log(d) if d > 0.0 else -math.inf, mass) for d, mass in atoms]
        self._squares = {y: d for (y, _), (d, _) in zip(self._atoms, atoms, strict=True)}
        for branch in self._branches:
            self._squares.update(branch.squares())
        self._mass = math.fsum(branch.mass for branch in self._branches)
        self._singular = sorted({end.level for end in self._ends() if end.is_extremum})
        levels = {level for branch in self._branches for level in branch.levels}
        self._levels = np.array(sorted(level for level in levels if math.isfinite(level)))
        self._nodes: tuple[FloatArray, FloatArray, FloatArray] | None = None
        self._table: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def _ends(self) -> list[End]:
        return [end for branch in self._branches for end in branch.ends if end is not None]

    # ---- what is known once for all ------------------------------------------------------------

    def _place(self, y: float, variable: int) -> float:
        """lambda, or its logarithm, where log phi'^2 = y."""
        if variable == _kernels.LAMBDA:
            known = self._squares.get(y)
            if known is not None:
                return self._scale * known
            return self._scale * math.exp(y) if y < 700.0 else math.inf
        return y + self._log_scale

    def intervals(self, variable: int) -> list[tuple[float, float]]:
        """Union of the branches' ranges, ascending."""
        out: list[list[float]] = []
        for low, high in sorted((branch.low, branch.high) for branch in self._branches):
            if out and low <= out[-1][1] + 8.0 * _EPS * max(1.0, abs(low)):
                out[-1][1] = max(out[-1][1], high)
            else:
                out.append([low, high])
        return [(self._place(low, variable), self._place(high, variable)) for low, high in out]

    def support(self, variable: int) -> tuple[float, float] | None:
        """Hull of the continuous part."""
        intervals = self.intervals(variable)
        return (intervals[0][0], intervals[-1][1]) if intervals else None

    def cells(self) -> FloatArray:
        """None: integrals are taken over h (`quadrature_nodes`)."""
        return np.empty((0, 4))

    def atoms(self) -> list[tuple[float, float, float]]:
        """(location, log location, mass)."""
        return [(self._place(y, _kernels.LAMBDA), self._place(y, _kernels.LOG_LAMBDA), mass)
                for y, mass in self._atoms]

    def continuous_mass(self) -> float:
        """Mass of the continuous part."""
        return self._mass

    def mass_error(self) -> float:
        """How far the masses of branches and atoms are from 1."""
        return abs(math.fsum([self._mass, *(mass for _, mass in self._atoms)]) - 1.0)

    def unresolved(self) -> float:
        """Mass near 0 that is not resolved: none."""
        return 0.0

    def ends_status(self) -> int:
        """0: ends are those of phi'^2."""
        return 0

    def has_thin_ends(self) -> bool:
        """Whether ends are taken from a chain that this one stands for: no."""
        return False

    def moment(self, k: int) -> float:
        """E lambda^k."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.exp(self.log_moment(k))) if k != 1 else self._scale * self._mu(1)

    def log_moment(self, k: int) -> float:
        """log E lambda^k."""
        return k * self._log_scale + math.log(self._mu(k)) if k else 0.0

    def _mu(self, k: int) -> float:
        activation, q, mean = self._layer
        return float(gaussian.slope_moments(activation, q, k, mean)[-1])

    def relative_variance(self) -> float:
        """Var(lambda)/E(lambda)^2."""
        activation, q, mean = self._layer
        return float(gaussian.slope_variance(activation, q, mean))

    def hard_exponent(self) -> float:
        """E where the density is ~ lambda^(1/E - 1) at 0 (up to logarithms); 0 where it falls
        faster than any power, or the support keeps away from 0.

        A zero of phi' of order k gives 2 k. Of the tails of phi' only those like exp(-c h^2/2) give
        a power, c q; known for built-in activations only.
        """
        orders = [2.0 * end.order for end in self._ends() if end.level == -math.inf]
        if self._form.gaussian and any(b.low == -math.inf for b in self._branches):
            orders.append(self._form.gaussian * self._layer[1])
        return max(orders, default=0.0)

    # ---- densities -----------------------------------------------------------------------------

    def _points(self, x: FloatArray, variable: int) -> Points:
        """y = log phi'^2 at the points, next to ends of branches measured from them, so that it is
        exact at their places; NaN where there is none."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if variable == _kernels.LAMBDA:
                y = np.where(x >= 0.0, np.log(x) - self._log_scale, x * math.nan)
            elif variable == _kernels.TOP_DISTANCE:
                top = max((branch.high for branch in self._branches), default=math.nan)
                return Points(top - x, np.full(x.size, top), -x)
            else:
                y = x - self._log_scale
        level, offset = np.full(x.size, math.nan), np.full(x.size, _NEAR)
        for known in self._levels.tolist():
            away = self._from_place(self._place(known, variable), x, variable)
            nearer = np.abs(away) < np.abs(offset)
            level[nearer], offset[nearer] = known, away[nearer]
        measured = ~np.isnan(level)
        y[measured] = (level + offset)[measured]
        return Points(y, level, offset)

    def _from_place(self, place: float, x: FloatArray, variable: int) -> FloatArray:
        """Distance in log lambda."""
        if variable != _kernels.LAMBDA:
            return np.asarray(x - place)
        with np.errstate(all="ignore"):
            return np.log1p(np.where(x > 0.0, (x - place) / place, -1.0))

    def _rho(self, points: Points) -> FloatArray:
        """Density of y, ends of branches included."""
        total = np.zeros(points.y.size)
        for branch in self._branches:
            inside = (points.y >= branch.low) & (points.y <= branch.high)
            inside &= np.isfinite(points.y)
            if inside.any():
                total[inside] += branch.locate(points[inside]).density
        for level in self._singular:
            total[points.above(level) == 0.0] = math.inf
        total[np.isnan(points.y)] = math.nan
        return total

    def _per_variable(self, x: FloatArray, rho: FloatArray, variable: int) -> FloatArray:
        if variable != _kernels.LAMBDA:
            return rho
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = rho / x
        value[(x < 0.0) | np.isposinf(x)] = 0.0
        value[x == 0.0] = self._at_zero()
        return value

    def _at_zero(self) -> float:
        """Limit of the density of lambda at 0+."""
        exponent = self.hard_exponent()
        if exponent != 1.0:
            return math.inf if exponent > 1.0 else 0.0
        return float(self._rho(Points(np.array([-_FAR])))[0] * math.exp(_FAR) / self._scale)

    def density(self, x: FloatArray, variable: int, out: FloatArray) -> int:
        """Densities into ``out``; none can fail."""
        out[:] = self._per_variable(x, self._rho(self._points(x, variable)), variable)
        out[np.isnan(x)] = math.nan
        return 0

    def density_at(self, x: float, variable: int) -> float:
        """Density at one point."""
        out = np.empty(1)
        self.density(np.array([x]), variable, out)
        return float(out[0])

    # ---- masses --------------------------------------------------------------------------------

    def _tails(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """P(log d <= y) and P(log d > y)."""
        parts = [branch.masses(points) for branch in self._branches]
        below, above = np.sum(parts, axis=0) if parts else np.zeros((2, points.y.size))
        for place, mass in self._atoms:
            reached = points.y >= place
            below, above = below + mass * reached, above + mass * ~reached
        return np.minimum(below, 1.0), np.minimum(above, 1.0)

    def cdf(self, x: FloatArray, variable: int) -> tuple[FloatArray, FloatArray, int]:
        """(cdf, ccdf, 0)."""
        points = self._points(x, variable)
        for place, _ in self._atoms:
            points.y[x == self._place(place, variable)] = place
        negative = (x < 0.0) & (variable == _kernels.LAMBDA)
        below, above = self._tails(points)
        below, above = np.where(negative, 0.0, below), np.where(negative, 1.0, above)
        missing = np.isnan(x)
        below[missing] = above[missing] = math.nan
        return below, above, 0

    def quantile(self, p: FloatArray, variable: int) -> tuple[FloatArray, int]:
        """(quantiles, 0)."""
        y = np.full(p.size, math.nan)
        marks, _, _ = self._quantile_table()
        every = [*(b.low for b in self._branches), *(b.high for b in self._branches),
                 *(place for place, _ in self._atoms)]
        y[p == 0.0], y[p == 1.0] = min(every), max(every)
        inner = (p > 0.0) & (p < 1.0)
        if inner.any():
            y[inner] = self._inverted(p[inner]) if marks.size else self._atoms[0][0]
            self._snap(p, y, inner)
        if variable == _kernels.LAMBDA:
            with np.errstate(over="ignore", under="ignore"):
                lam = self._scale * np.exp(y)
            for known in [*self._levels.tolist(), *(place for place, _ in self._atoms)]:
                lam[y == known] = self._place(known, variable)
            return lam, 0
        return y + self._log_scale, 0

    def _snap(self, p: FloatArray, y: FloatArray, inner: NDArray[np.bool_]) -> None:
        """Probabilities that fall into an atom."""
        for place, mass in self._atoms:
            below, above = self._tails(Points(np.array([place])))
            low, high = float(below[0]) - mass, float(above[0])
            within = (p > low) & (p <= low + mass) & (1.0 - p >= high * (1.0 - 4.0 * _EPS))
            y[inner & within] = place

    def _quantile_table(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values of y with their cdf and ccdf: brackets for the quantiles."""
        if self._table is None:
            y = np.unique(np.concatenate([
                *(branch.marks(_TABLE) for branch in self._branches),
                [place for place, _ in self._atoms if math.isfinite(place)]]))
            self._table = (y, *self._tails(Points(y)))
        return self._table

    def _inverted(self, p: FloatArray) -> FloatArray:
        """Newton's method on the smaller tail, kept inside a bracket that shrinks."""
        marks, below, above = self._quantile_table()
        small = p <= 0.5
        target = np.where(small, p, 1.0 - p)
        at = np.where(small, np.searchsorted(below, p),
                      marks.size - np.searchsorted(above[::-1], target, side="right"))
        low, high = marks[np.maximum(at - 1, 0)], marks[np.minimum(at, marks.size - 1)]
        y, active = 0.5 * (low + high), np.flatnonzero(low < high)
        for _ in range(_ITERATIONS):
            if active.size == 0:
                break
            x, points = y[active], Points(y[active])
            left, right = self._tails(points)
            excess = np.where(small[active], left - target[active], target[active] - right)
            low[active] = np.where(excess < 0.0, x, low[active])
            high[active] = np.where(excess >= 0.0, x, high[active])
            with np.errstate(all="ignore"):
                rho = self._rho(points)
                new = x - excess / rho
                noise = 4.0 * _EPS * (np.maximum(np.abs(x), 1.0) + target[active] / rho)
            fits = (new >= low[active]) & (new <= high[active])
            new = np.where(fits, new, 0.5 * (low[active] + high[active]))
            y[active] = np.where(excess == 0.0, x, new)
            active = active[np.abs(y[active] - x) > noise]
        return y

    # ---- m and G -------------------------------------------------------------------------------

    def _m(self, zeta: Any) -> tuple[Any, Any, Any]:
        with np.errstate(all="ignore"):
            return self._slopes.m(zeta)

    def _zeta(self, x: FloatArray, variable: int) -> FloatArray:
        if variable == _kernels.LAMBDA:
            return x / self._scale
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(self._points(x, variable).y)

    def _real(self, x: FloatArray, variable: int) -> tuple[Any, ...]:
        """(M, 1 + M, dM, rho, points, status) at real points from above."""
        points, zeta = self._points(x, variable), self._zeta(x, variable)
        m, excess, dm = (np.array(part) for part in self._m(zeta + 0j))
        zero = self._slopes.zero
        one, rho = excess + zero, self._rho(points)
        far, origin = np.isinf(zeta), zeta == 0.0
        m[far], one[far], m[origin], one[origin] = 0.0, 1.0, zero - 1.0, zero
        status = np.where(np.isnan(x), _kernels.BAD_POINT, _OK).astype(np.intc)
        singular = ~np.isfinite(m.real) & ~np.isnan(x)
        for level in self._levels.tolist():
            singular |= points.above(level) == 0.0
        for place, _ in self._atoms:
            singular |= (x == self._place(place, variable)) & np.isfinite(place)
        status[singular & (status == _OK)] = _SINGULAR
        m[status != _OK] = one[status != _OK] = complex(math.nan, math.nan)
        return m, one, dm, rho, points, status

    def solve(self, x: FloatArray, variable: int) -> tuple[Any, ...]:
        """(Re m, Im m, density, status, residual, error bound of the density)."""
        m, _, _, rho, points, status = self._real(x, variable)
        known = np.where(np.isnan(rho), 0.0, rho)
        bound, residual = np.zeros(x.size), np.zeros(x.size)
        for branch in self._branches:
            inside = (points.y > branch.low) & (points.y < branch.high)
            if inside.any():
                part, off = branch.errors(points[inside], self._slopes.accuracy)
                bound[inside] += part
                residual[inside] = np.maximum(residual[inside], off)
        imaginary = np.where(status == _OK, -math.pi * known, math.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            per = x if variable == _kernels.LAMBDA else 1.0
            bound = np.where(bound > 0.0, bound / per, 0.0)
        bound[status != _OK] = math.inf
        density = self._per_variable(x, rho, variable)
        density[np.isnan(x)] = math.nan
        return m.real, imaginary, density, status, residual, bound

    def walk(self, x: FloatArray, variable: int) -> tuple[Any, ...]:
        """(Re m, Im m, density, status), the density from the transform of the slopes: another
        route than that of the branches. Not solved where that is lost in the rounding of m."""
        m, _, dm, rho, points, status = self._real(x, variable)
        with np.errstate(all="ignore"):
            lost = 64.0 * _EPS * np.abs(m) + 4.0 * _EPS * np.abs(np.exp(points.y) * dm)
            status[(lost > _LOST * np.abs(m.imag)) & (rho > 0.0) & (status == _OK)] = NOT_CONVERGED
        m[status != _OK] = complex(math.nan, math.nan)
        found = np.where(rho > 0.0, np.where(np.isinf(rho), rho, -m.imag / math.pi), rho)
        density = self._per_variable(x, found, variable)
        density[np.isnan(x)] = math.nan
        return m.real, np.where(rho > 0.0, m.imag, 0.0 * m.real), density, status

    def green(self, z_re: FloatArray, z_im: FloatArray) -> tuple[Any, ...]:
        """(Re G, Im G, Re m, Im m, status, residual, error bound of m)."""
        with np.errstate(all="ignore"):
            z = z_re + 1j * np.where(z_im == 0.0, 0.0, z_im)
            zeta = z / self._scale
        m, excess, dm = (np.array(part) for part in self._m(zeta))
        one = excess + self._slopes.zero
        status = np.where(np.isnan(z_re) | np.isnan(z_im), _kernels.BAD_POINT, _OK).astype(np.intc)
        axis = (z_im == 0.0) & np.isfinite(z_re)
        if axis.any():
            m[axis], one[axis], dm[axis], rho, _, status[axis] = self._real(
                np.ascontiguousarray(z_re[axis]), _kernels.LAMBDA)
            m[axis] = m[axis].real - 1j * np.pi * np.where(rho > 0.0, rho, 0.0)
            one[axis] = one[axis].real + 1j * m[axis].imag
        far = np.isinf(z_re) | np.isinf(z_im)
        m[far], one[far], dm[far] = 0.0, 1.0, 0.0
        with np.errstate(all="ignore"):
            g = np.where(far, 0.0, one / np.where(far, 1.0, z))
        status[(z_re == 0.0) & (z_im == 0.0)] = _SINGULAR
        g[status != _OK] = complex(math.nan, math.nan)
        with np.errstate(all="ignore"):
            bound = (64.0 * _EPS + self._slopes.accuracy) * (
                np.abs(m) + np.abs(zeta * dm))
        bound[far], bound[status != _OK] = 0.0, math.inf
        return g.real, g.imag, m.real, m.imag, status, np.zeros(z.size), bound

    # ---- integrals -----------------------------------------------------------------------------

    def quadrature_nodes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(log lambda, density of log lambda, mass) of a rule for the continuous part."""
        if self._nodes is None:
            points, mass = quadrature(self._branches, self._levels, _STEP)
            density = self._rho(points)
            some = (mass > 0.0) & (density > 0.0) & np.isfinite(density)
            self._nodes = points.y[some] + self._log_scale, density[some], mass[some]
        return self._nodes
