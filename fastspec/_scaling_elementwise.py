"""Second moments of activations of Gaussians, and of the largest of several such activations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import quadrature
from .activations import Activation

FloatArray = NDArray[np.float64]

_SHARED_NODES = 48       # of the Gaussian that two positions share
_SLOPE_NODES = 96
_REACH, _PANELS, _PANEL_NODES = 9.0, 48, 8


@dataclass(frozen=True)
class Source:
    """x = multiplier * phi(h), h ~ N(mean, variance), two h with this (Pearson) correlation."""

    activation: Activation
    variance: float
    mean: float
    correlation: float
    multiplier: float = 1.0

    def scaled(self, factor: float) -> Source:
        return replace(self, multiplier=factor * self.multiplier)


class Slopes(NamedTuple):
    """E phi'(h)^2, and E phi'(h) phi'(h') of two positions as a share of it."""

    moment: float
    correlation: float


class Selected(NamedTuple):
    """Second moment, mean and correlation of an output, and the slopes on the way to it."""

    moment: float
    mean: float
    correlation: float
    slopes: Slopes


@lru_cache(maxsize=256)
def through(source: Source) -> Selected:
    """Moments of phi(h)."""
    phi, q, mean, shared = (source.activation, source.variance, source.mean, source.correlation)
    m = quadrature.moments(phi, q, mean)
    if shared == 1.0 or q == 0.0:
        product, slopes = m.second_moment, m.slope_mean
    elif mean == 0.0:
        pair = quadrature.pair_moments(phi, q, c=shared)
        product, slopes = pair.product, pair.slope_product
    else:
        z, weights = _gauss_hermite(_SHARED_NODES)
        centres, left = mean + math.sqrt(shared * q) * z, (1.0 - shared) * q
        product = weights @ quadrature.moments(phi, left, centres).mean ** 2
        slopes = weights @ _mean_slopes(phi, left, centres) ** 2
    return Selected(m.second_moment, m.mean, _share(product, m.second_moment),
                    Slopes(m.slope_mean, _share(slopes, m.slope_mean)))


def pooled(source: Source, cells: FloatArray) -> Selected:
    """Moments of the largest of multiplier * phi(h_1 ... h_k), averaged over windows of k cells.

    phi is taken to rise, so that the largest is phi of the largest h. Two windows have no cell in
    common.
    """
    counts, times = np.unique(cells, return_counts=True)
    shares = times / cells.size
    z, weights = _gauss_hermite(_SHARED_NODES if source.correlation > 0.0 else 1)
    rows = np.array([shares @ [_largest(source, x, k) for k in counts] for x in z])
    mean, second, slope, squared_slope = rows.T
    scale = source.multiplier
    moment, slopes = float(weights @ second), float(weights @ squared_slope)
    return Selected(scale**2 * moment, scale * float(weights @ mean),
                    _share(weights @ mean**2, moment),
                    Slopes(slopes, _share(weights @ slope**2, slopes)))


def _largest(source: Source, shared: float, k: float) -> list[float]:
    """E phi, E phi^2, E phi' and E phi'^2 at the largest of k, given what all cells share.

    The largest of k standard normal numbers has the density k f F^(k-1).
    """
    from scipy.special import log_ndtr

    phi, c = source.activation, source.correlation
    centre = source.mean + math.sqrt(c * source.variance) * shared
    width = math.sqrt((1.0 - c) * source.variance)
    if width == 0.0:
        value, slope = phi(centre), phi.derivative(centre)
        return [value, value**2, slope, slope**2]
    kinks = (np.array(phi.kinks) - centre) / width
    e, weights = _panels(kinks[np.abs(kinks) < _REACH])
    log_density = math.log(k / math.sqrt(2.0 * math.pi)) - 0.5 * e**2 + (k - 1.0) * log_ndtr(e)
    weights = weights * np.exp(log_density)
    value, slope = phi(centre + width * e), phi.derivative(centre + width * e)
    return [float(weights @ f) for f in (value, value**2, slope, slope**2)]


def _mean_slopes(phi: Activation, q: float, means: FloatArray) -> FloatArray:
    """E phi'(h), h ~ N(mean, q): exact where phi is piecewise linear, else by Gauss-Hermite."""
    if phi.slopes is None:
        x, weights = _gauss_hermite(_SLOPE_NODES)
        slopes = phi.derivative(means[:, np.newaxis] + math.sqrt(q) * x)
        return np.asarray(slopes @ weights)
    from scipy.special import ndtr

    below = [ndtr((kink - means) / math.sqrt(q)) for kink in phi.kinks]
    ends = [np.zeros_like(means), *below, np.ones_like(means)]
    return np.asarray(sum(slope * (high - low) for slope, low, high in
                          zip(phi.slopes, ends[:-1], ends[1:], strict=True)))


@lru_cache(maxsize=8)
def _gauss_hermite(n: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of E f(z), z ~ N(0, 1)."""
    x, weights = np.polynomial.hermite_e.hermegauss(n)
    return x, weights / math.sqrt(2.0 * math.pi)


def _panels(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [-9, 9], cut where the integrand has kinks."""
    edges = np.unique(np.concatenate([np.linspace(-_REACH, _REACH, _PANELS + 1), cuts]))
    x, weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, np.newaxis]
    return (middle + half * x).ravel(), (half * weights).ravel()


def _share(part: float, whole: float) -> float:
    """part / whole of a covariance, kept from rounding above 1."""
    return min(float(part / whole), 1.0) if whole > 0.0 else 0.0
