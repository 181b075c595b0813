r"""y = log phi'(h)^2 and dy/dh, to full relative accuracy however small phi' or y is.

Closed forms for the built-in activations, which serve far beyond the range of a double (erf at
q = 100 has slopes of exp(-200000)); for a user's phi' its logarithm, and its derivative from
Chebyshev panels (`fastspec._slope_panels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from . import _slope_panels
from ._slope_panels import Panels, Slope
from .activations import Activation

__all__ = ["Form", "builtin_form", "panel_form"]

FloatArray = NDArray[np.float64]
LogForm = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

_INF = math.inf


class Form(NamedTuple):
    """phi'; h -> (y, dy/dh); the limits of y at h -> -inf and inf (None: not known or there is
    none); whether y goes up and down for ever; and c > 0 where phi'^2 falls like exp(-c h^2/2), so
    that the density is ~ lambda^(1/(c q) - 1) at 0, else 0."""

    slope: Slope
    log_square: LogForm
    limits: tuple[float | None, float | None]
    waves: bool = False
    gaussian: float = 0.0


def _tanh(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(h)
    return -4.0 * (size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0)), -4.0 * np.tanh(h)


def _arctan(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return -2.0 * np.log1p(h * h), -4.0 * h / (1.0 + h * h)


def _erf(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return math.log(4.0 / math.pi) - 2.0 * h * h, -4.0 * h


def _scaled_erf(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return -0.5 * math.pi * h * h, -math.pi * h


def _sigmoid(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(h)
    return -2.0 * size - 4.0 * np.log1p(np.exp(-size)), -2.0 * np.tanh(0.5 * h)


def _softplus(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    e = np.exp(-np.abs(h))
    return 2.0 * np.minimum(h, 0.0) - 2.0 * np.log1p(e), 2.0 * np.where(h > 0.0, e, 1.0) / (1.0 + e)


def _signed(h: FloatArray, left: LogForm, right: LogForm) -> tuple[FloatArray, FloatArray]:
    """``left`` for h <= 0 and ``right`` for h > 0."""
    below = left(np.minimum(h, 0.0))
    above = right(np.maximum(h, 0.0))
    return np.where(h > 0.0, above[0], below[0]), np.where(h > 0.0, above[1], below[1])


def _silu(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi' = s (1 + h t) = 1 + t (h s - 1) and phi'' = s t (2 + h (t - s)), s + t = 1."""
    e = np.exp(-np.abs(h))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    s, t = np.where(h > 0.0, large, small), np.where(h > 0.0, small, large)
    bend = t * (2.0 + h * (t - s))
    below = 1.0 + h * t
    right = 2.0 * np.log1p(np.maximum(t * (h * s - 1.0), -0.5))
    left = 2.0 * (h + np.log(large * np.abs(below)))
    return np.where(h > 0.0, right, left), 2.0 * bend / below


def _gelu(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi' = Phi + h w, phi'' = w (2 - h^2); for h < 0 over the density w, with Mills' ratio."""
    from scipy.special import erfcx

    def left(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        ratio = h + math.sqrt(0.5 * math.pi) * erfcx(-math.sqrt(0.5) * h)
        far = h < -1e6      # the ratio is h (1 - 1/h^2 + ...) long before
        y = 2.0 * np.log(np.abs(np.where(far, h, ratio))) - h * h - math.log(2.0 * math.pi)
        return y, 2.0 * (2.0 - h * h) / np.where(far, h, ratio)

    def right(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        w = np.exp(-0.5 * h * h) / math.sqrt(2.0 * math.pi)
        excess = w * (h - math.sqrt(0.5 * math.pi) * erfcx(math.sqrt(0.5) * h))
        return 2.0 * np.log1p(excess), 2.0 * w * (2.0 - h * h) / (1.0 + excess)

    return _signed(h, left, right)


def _mish(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi' = t + h c, phi'' = c (2 + h (1 - s - 2 t s)), t = tanh(log(1 + e^h)), c = (1 - t^2) s,
    s the logistic function; for h < 0 over e^h, for h > 0 by phi' - 1."""

    def left(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        e = np.exp(h)
        d = 2.0 + e * (2.0 + e)
        s, t, c = e / (1.0 + e), e * (e + 2.0) / d, 4.0 * (1.0 + e) / (d * d)
        part = (e + 2.0) / d + h * c
        bend = c * (2.0 + h * (1.0 - s - 2.0 * t * s))
        return 2.0 * (h + np.log(np.abs(part))), 2.0 * bend / part

    def right(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        e = np.exp(-h)
        d = 1.0 + 2.0 * e * (1.0 + e)
        s, t, c = 1.0 / (1.0 + e), (1.0 + 2.0 * e) / d, 4.0 * e * e * (1.0 + e) / (d * d)
        excess = h * c - 2.0 * e * e / d
        bend = c * (2.0 + h * (1.0 - s - 2.0 * t * s))
        return 2.0 * np.log1p(excess), 2.0 * bend / (1.0 + excess)

    return _signed(h, left, right)


def _softsign(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(h)
    return -4.0 * np.log1p(size), -4.0 * np.copysign(1.0, h) / (1.0 + size)


def _sin(h: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.log1p(-np.sin(h) ** 2), -2.0 * np.tan(h)


def _exponential(alpha: float) -> LogForm:
    """phi' = alpha e^h; the half h > 0 is an atom."""
    return lambda h: (2.0 * (math.log(alpha) + h), np.full_like(h, 2.0))


def _power(alpha: float) -> LogForm:
    return lambda h: (2.0 * math.log(alpha) + (2.0 * alpha - 2.0) * np.log(h),
                      (2.0 * alpha - 2.0) / h)


def builtin_form(activation: Activation, slope: Slope) -> Form:
    """The closed form of a smooth built-in activation."""
    from ._gauss_kernels import SELU_ALPHA, SELU_SCALE

    alpha, falls = activation.parameter, (-_INF, -_INF)
    table: dict[str, tuple[LogForm, tuple[float | None, float | None], float]] = {
        "tanh": (_tanh, falls, 0.0), "arctan": (_arctan, falls, 0.0),
        "erf": (_erf, falls, 4.0), "scaled_erf": (_scaled_erf, falls, math.pi),
        "sigmoid": (_sigmoid, falls, 0.0), "softsign": (_softsign, falls, 0.0),
        "softplus": (_softplus, (-_INF, 0.0), 0.0), "silu": (_silu, (-_INF, 0.0), 0.0),
        "mish": (_mish, (-_INF, 0.0), 0.0), "gelu": (_gelu, (-_INF, 0.0), 2.0),
        "sin": (_sin, (None, None), 0.0),
        "elu": (_exponential(alpha or 1.0), (-_INF, None), 0.0),
        "selu": (_exponential(SELU_SCALE * SELU_ALPHA), (-_INF, None), 0.0),
        "alpha_relu": (_power(alpha or 1.0), (None, math.copysign(_INF, alpha - 1.0)), 0.0),
    }
    form, limits, gaussian = table[activation.name]
    return Form(slope, _quietly(form), limits, activation.name == "sin", gaussian)


def _quietly(form: LogForm) -> LogForm:
    def quiet(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        with np.errstate(all="ignore"):
            return form(h)

    return quiet


def panel_form(slope: Slope, parts: list[Panels], scale: float, mean: float) -> Form:
    """The form of a user's phi', from panels that cover its range three times: of the three panels
    around a point the one that has it nearest to its middle gives the derivative."""
    covers = [_Cover(parts, cover) for cover in range(_slope_panels.COVERS)]

    def log_square(h: FloatArray) -> tuple[FloatArray, FloatArray]:
        z = (h - mean) / scale
        found = [cover.locate(z) for cover in covers]
        t = np.array([place for _, place in found])
        nearest = np.argmin(np.abs(t), axis=0)
        steepness = np.empty_like(z)
        for i, cover in enumerate(covers):
            mine = nearest == i
            steepness[mine] = cover.derivative(found[i][0][mine], t[i][mine])
        value = slope(h)
        with np.errstate(all="ignore"):
            return 2.0 * np.log(np.abs(value)), 2.0 * steepness / (scale * value)

    return Form(slope, log_square, (None, None))


class _Cover:
    """The panels of one cover, sorted."""

    def __init__(self, parts: list[Panels], cover: int) -> None:
        chosen = [part.cover == cover for part in parts]
        pairs = list(zip(parts, chosen, strict=True))
        centre = np.concatenate([part.centre[some] for part, some in pairs])
        order = np.argsort(centre)
        self.centre = centre[order]
        self.half = np.concatenate([part.half[some] for part, some in pairs])[order]
        series = np.concatenate([part.series[some] for part, some in pairs])[order]
        self._slopes = chebyshev.chebder(series, axis=1)
        self._ends = (self.centre + self.half)[:-1]

    def locate(self, z: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Panel and place t in it."""
        panel = np.searchsorted(self._ends, z)
        return panel, (z - self.centre[panel]) / self.half[panel]

    def derivative(self, panel: NDArray[np.intp], t: FloatArray) -> FloatArray:
        """d phi'/dz."""
        waves = np.cos(np.arccos(np.clip(t, -1.0, 1.0))[:, np.newaxis]
                       * np.arange(self._slopes.shape[1]))
        return np.asarray(np.sum(self._slopes[panel] * waves, axis=1) / self.half[panel])
