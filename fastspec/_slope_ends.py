r"""Where log phi'(h)^2 is singular or turns: zeros and extrema of phi'^2, from inside and at kinks.

Near such a point c, with t = (h - c)/radius, phi'^2 is written through Q = |t| B(t)^(1/k), B a
polynomial with B(0) != 0: log phi'(h)^2 = y_c +- Q^k at an extremum and 2 k log Q at a zero. So
inverse-root singularities of the law keep their relative accuracy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, polynomial
from numpy.typing import NDArray

from . import _slope_panels
from ._slope_forms import Form
from ._slope_panels import NODES, SERIES_AT_PLACES, SLOPES_AT_PLACES, Panels

__all__ = ["End", "end_at_kink", "end_inside", "turning_points"]

FloatArray = NDArray[np.float64]

REACH = 0.5                 # of the radius: how far a local polynomial serves
_EPS = float(np.finfo(float).eps)
_SIGNED = 1e-11             # of phi' on a panel: smaller derivatives are taken for rounding
_VANISHES = 1e-9            # of the largest coefficient: smaller ones are taken for 0
_KINK_NODES = 18            # at a kink only one side is seen
_ONE_SIDED = 5e-12          # what that costs: several times what is seen
_HALVINGS, _BISECTIONS = 60, 80


class End(NamedTuple):
    """A point c with the local form of log phi'^2; ``poly`` is B, in t = (h - place)/radius."""

    place: float
    radius: float
    order: float
    poly: FloatArray
    level: float            # y_c; -inf or inf where log phi'^2 is 2 k log Q
    error: float = 0.0      # relative, of the density, beyond rounding

    @property
    def is_extremum(self) -> bool:
        return math.isfinite(self.level)

    def root(self, target: FloatArray, side: float) -> FloatArray:
        """|t| where Q = target, on the given side, by Newton's method."""
        derivative = np.asarray(polynomial.polyder(self.poly), dtype=float)
        t = np.minimum(target / abs(self.poly[0]) ** (1.0 / self.order), 1.2 * REACH)
        for _ in range(40):
            q, steepness = self._q(t, derivative, side)
            new = np.clip(t - (q - target) / steepness, 0.0, 1.2 * REACH)
            done = np.abs(new - t) <= 2.0 * _EPS * t
            t = new
            if np.all(done):
                break
        return t

    def _q(self, t: FloatArray, derivative: FloatArray, side: float) -> tuple[FloatArray, ...]:
        b = polynomial.polyval(side * t, self.poly)
        size = np.abs(b) ** (1.0 / self.order)
        slope = side * polynomial.polyval(side * t, derivative) / b
        return t * size, size * (1.0 + t * slope / self.order)

    def log_square(self, offset: FloatArray, side: float) -> tuple[FloatArray, FloatArray]:
        """y (from the level at an extremum) and |dy/dh| at a distance from the place."""
        t = offset / self.radius
        derivative = np.asarray(polynomial.polyder(self.poly), dtype=float)
        q, steepness = self._q(t, derivative, side)
        with np.errstate(divide="ignore"):
            if self.is_extremum:
                sign = math.copysign(1.0, self.poly[0]) * side**self.order
                return (sign * q**self.order,
                        self.order * q ** (self.order - 1.0) * steepness / self.radius)
            return (2.0 * self.order * np.log(q),
                    abs(2.0 * self.order) * steepness / (q * self.radius))


def turning_points(panels: Panels, form: Form, mean: float, scale: float
                   ) -> tuple[list[float], list[float]]:
    """(zeros, extrema) of phi' inside the panels, ascending."""
    order = np.argsort(panels.centre)
    z = (panels.centre[:, np.newaxis]
         + panels.half[:, np.newaxis] * _slope_panels._PLACES[::-1])[order].ravel()
    h = mean + scale * z
    size = np.max(np.abs(panels.series @ SERIES_AT_PLACES), axis=1)[order]
    allowed = np.repeat(size, SERIES_AT_PLACES.shape[1])
    value = (panels.series @ SERIES_AT_PLACES)[order, ::-1].ravel()
    steepness = (panels.series @ SLOPES_AT_PLACES)[order, ::-1].ravel()
    zeros = _refined(form.slope, _changes(h, value, 1e-14 * allowed))
    extrema = _refined(lambda x: form.log_square(x)[1] * np.sign(form.slope(x)),
                       _changes(h, steepness, _SIGNED * allowed))
    return zeros, extrema


def _changes(h: FloatArray, value: FloatArray, noise: FloatArray) -> list[tuple[float, float]]:
    """Neighbouring points between which a value changes its sign, whatever is noise left out."""
    signed = np.flatnonzero(np.abs(value) > noise)
    h, sign = h[signed], np.sign(value[signed])
    return [(float(h[i]), float(h[i + 1])) for i in np.flatnonzero(sign[1:] != sign[:-1])]


def _refined(function: _slope_panels.Slope, pairs: list[tuple[float, float]]) -> list[float]:
    """The sign changes by bisection; those of the series alone are left out."""
    low, high = np.array(pairs).reshape(-1, 2).T.copy()
    first = np.sign(function(low))
    real = first * np.sign(function(high)) < 0.0
    low, high, first = low[real], high[real], first[real]
    for _ in range(_BISECTIONS if low.size else 0):
        middle = 0.5 * (low + high)
        same = np.sign(function(middle)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return [float(place) for place in 0.5 * (low + high)]


def end_inside(form: Form, place: float, room: float) -> End | None:
    """The local form at a zero or extremum of phi' with no kink nearer than ``room``; None where
    phi' does not vary."""
    value = abs(float(form.slope(np.array([place]))[0]))
    radius = min(max(1.0, abs(place)), 0.999 * room)
    for _ in range(_HALVINGS):
        around = form.slope(place + radius * NODES)
        zero = value <= 1e-12 * float(np.max(np.abs(around)))
        level = 0.0 if zero else float(form.log_square(np.array([place]))[0][0])
        values = around if zero else form.log_square(place + radius * NODES)[0] - level
        series = values @ _slope_panels._TO_SERIES
        tail = float(np.max(np.abs(series[-3:])))
        if tail <= _allowed(values, level, place, radius, zero):
            break
        radius *= 0.5
    series[np.abs(series) <= 2.0 * tail] = 0.0
    if not series.any():
        return None
    poly = np.asarray(chebyshev.cheb2poly(np.trim_zeros(series, "b")), dtype=float)
    return _end(poly, place, radius, level, zero)


def _allowed(values: FloatArray, level: float, place: float, radius: float, zero: bool) -> float:
    """Rounding of the values of log phi'^2, or of phi' at a zero, and of their argument."""
    largest = float(np.max(np.abs(values)))
    size = largest if zero else max(1.0, abs(level), largest)
    return 4.0 * _EPS * (size + largest * abs(place) / radius)


def _end(poly: FloatArray, place: float, radius: float, level: float, zero: bool) -> End | None:
    """The end with the leading power of the local polynomial, if it has any."""
    large = _VANISHES * float(np.max(np.abs(poly)))
    start = 1 if zero else 2
    order = next((k for k in range(start, poly.size) if abs(poly[k]) > large), None)
    if order is None:
        return None
    return End(place, radius, float(order), poly[order:], -math.inf if zero else level)


def end_at_kink(form: Form, kink: float, side: float, room: float) -> End | None:
    """The local form on one side of a kink where phi' vanishes or its derivative does; else None.

    Only the far side is seen, which costs digits; the vanishing powers are left out of the fit.
    """
    nodes = 0.5 * (1.0 + np.cos(np.pi * (np.arange(_KINK_NODES) + 0.5) / _KINK_NODES))
    edge = np.nextafter(kink, side * math.inf)
    value = float(form.slope(np.array([edge]))[0])
    radius = min(1.0, 0.5 * room)
    for _ in range(_HALVINGS):
        h = kink + side * radius * nodes
        around = form.slope(h)
        zero = abs(value) <= 1e-12 * float(np.max(np.abs(around)))
        level = 0.0 if zero else float(form.log_square(np.array([edge]))[0][0])
        values = around if zero else form.log_square(h)[0] - level
        series = chebyshev.chebfit(2.0 * nodes - 1.0, values, _KINK_NODES - 1)
        if np.max(np.abs(series[-2:])) <= _allowed(values, level, kink, radius, zero):
            break
        radius *= 0.5
    poly = _shifted(np.asarray(series, dtype=float))
    if not zero and poly.size > 1 and abs(poly[1]) > 1e-8 * float(np.max(np.abs(poly))):
        return None
    end = _end(poly, kink, radius, level, zero)
    if end is None:
        return None
    powers = end.order + np.arange(max(1, poly.size - int(end.order)))
    fitted = np.linalg.lstsq(nodes[:, np.newaxis] ** powers, values, rcond=None)[0]
    return end._replace(poly=np.asarray(fitted * side**powers, dtype=float), error=_ONE_SIDED)


def _shifted(series: FloatArray) -> FloatArray:
    """The Chebyshev series in 2 t - 1 as a polynomial in t."""
    line = polynomial.Polynomial([-1.0, 2.0])
    out = polynomial.Polynomial(chebyshev.cheb2poly(series))(line).coef
    return np.asarray(out, dtype=float)


def power_end(place: float, order: float, factor: float) -> End:
    """phi' = factor t^order at a kink, exactly."""
    return End(place, 2.0, order, np.array([factor * 2.0**order]),
               -math.inf if order > 0.0 else math.inf)
