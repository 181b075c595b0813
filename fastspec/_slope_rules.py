"""The law of d = phi'(h)^2 as the chain solver takes it (`fastspec._kernels.Slopes`).

A discrete law is its atoms. A smooth one is the Gauss rule of the law of d, for arguments away from
the support, and the panels of `fastspec._slope_panels` for all others.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from . import _checks, _kernels, _slope_hull, _slope_panels
from ._slope_panels import Panels, Piece, Slope
from .activations import Activation, array_function
from .slopes import _normal_mass, slope_law

FloatArray = NDArray[np.float64]

_CORE = 9.5                 # P(|z| > 9.5) = 2e-21
_REACH = 37.5               # exp(-z^2 / 2) is a normal double
_NEGLIGIBLE = 1e-20
_SMALL_ZETA = 1e-36         # beside d: M + P(d > 0) keeps its digits down to there
_RULE_SIZES = (8, 12, 16, 24, 32)
_GUARD_EXCESS = 0.02        # how near the top a rule should serve, beside the top
_GUARD_ERROR = 41.4         # -log of a rule's error on its guard ellipse (fspec_slopes.c)
_CLUSTER = 1e-8             # relative width that a walk along lambda hardly resolves
_NEAR_ZERO = 1e-9           # where a look at all |h| begins
_ROUGH = 1e-3               # relative error of E d beyond which there is no law to speak of


def kernel_slopes(activation: Activation, q: float, mean: float = 0.0) -> _kernels.Slopes:
    """Law of phi'(h)^2, h ~ N(mean, q), for the chain solver.

    Parameters
    ----------
    activation : Activation
    q : float
        Variance of h, >= 0; 0 stands for q -> 0+.
    mean : float
        Mean of h.

    Returns
    -------
    Slopes
        With attributes mean, second, top, positive, zero, spread (standard deviation over mean),
        atom and cluster (largest mass at one d > 0, and within 1e-8 of one) and accuracy (relative
        error of E d, an estimate).

    Raises
    ------
    ValueError
        If an argument is out of range, phi' vanishes or is not finite, or E phi'^2 is infinite.
    """
    q, mean = _checks.real("q", q, low=0.0), _checks.real("mean", mean)
    if activation.slopes is not None:
        law = slope_law(activation, q, mean)
        some = law.probabilities > 0.0
        return _discrete(law.values[some], law.probabilities[some], activation, q, mean)
    slope = _slope_function(activation)
    if q == 0.0:
        return _discrete(_sides(slope, mean) ** 2, np.array([0.5, 0.5]), activation, q, mean)
    return _smooth(activation, slope, q, mean)


def _slope_function(activation: Activation) -> Slope:
    """phi' on one-dimensional arrays."""
    if activation.functions is not None:
        return array_function(activation.functions[1])
    from . import _gauss_kernels

    code, parameter = _gauss_kernels.code_of(activation.name), activation.parameter

    def slope(h: FloatArray) -> FloatArray:
        out = np.empty(h.size)
        _gauss_kernels.evaluate(code, parameter, True, h, out)
        return out

    return slope


def _sides(slope: Slope, mean: float) -> FloatArray:
    """phi' just left and right of the mean; infinite where it still grows without bound there."""
    sides = slope(np.nextafter(mean, [-np.inf, np.inf]))
    near = slope(mean + 1e-8 * max(1.0, abs(mean)) * np.array([-1.0, 1.0]))
    return np.where(np.abs(sides) > 10.0 * np.abs(near) + 1e-6, np.inf, sides)


def _discrete(values: FloatArray, masses: FloatArray, activation: Activation, q: float,
              mean: float) -> _kernels.Slopes:
    if not np.all(np.isfinite(values)):
        raise ValueError(f"phi' of {activation!r} is infinite at mean = {mean:g} as q -> 0: "
                         "its slope law has no mean")
    _require_slopes(bool(np.any(values > 0.0)), activation, q, mean)
    return _kernels.discrete_slopes(values, masses)


def _require_slopes(some: bool, activation: Activation, q: float, mean: float) -> None:
    if not some:
        raise ValueError(f"phi' of {activation!r} vanishes for h ~ N({mean:g}, {q:g}): "
                         "the Jacobian is zero")


def _range(slope: Slope, scale: float, mean: float) -> tuple[float, float]:
    """Range of z that carries all of E d, E d^2 and, for small zeta, of E zeta/(zeta + d)."""
    x, h = _slope_panels.first_nodes(Piece(mean, 0.0, -_REACH, _REACH, False, False), scale, 0)
    d, weight = slope(h) ** 2, np.exp(-0.5 * x * x)
    small = _SMALL_ZETA * float(np.max(weight * d))
    some = (weight * d > _NEGLIGIBLE * np.max(weight * d)) | (
        weight * d * d > _NEGLIGIBLE * np.max(weight * d * d))
    with np.errstate(over="ignore"):
        excess = weight / (1.0 + d / max(small, 1e-300))
    some |= excess > _NEGLIGIBLE * np.max(excess)
    return min(-_CORE, float(x[some][0]) - 0.5), max(_CORE, float(x[some][-1]) + 0.5)


def _split_constant(
    slope: Slope, scale: float, parts: list[Piece], cover: int
) -> tuple[list[Piece], list[tuple[float, float]]]:
    """Pieces where phi' varies, and (d, mass) of those where it is constant."""
    varying, constant = [], []
    for piece in parts:
        values = slope(_slope_panels.first_nodes(piece, scale, cover)[1])
        if np.any(values != values[0]):
            varying.append(piece)
        else:
            low, high = sorted((piece.start, piece.end))
            mass = _normal_mass(piece.origin_z + low, piece.origin_z + high)
            constant.append((float(values[0]) ** 2, mass))
    return varying, constant


def _smooth(activation: Activation, slope: Slope, q: float, mean: float) -> _kernels.Slopes:
    scale = math.sqrt(q)
    low, high = _range(slope, scale, mean)
    kinks = np.array(activation.kinks, dtype=float)
    covers = []
    for cover in range(_slope_panels.COVERS):
        parts = _slope_panels.pieces(low, high, kinks, (kinks - mean) / scale, cover, mean)
        varying, constant = _split_constant(slope, scale, parts, cover)
        covers.append(varying)
        if cover == 0:
            atoms: dict[float, float] = {}
            for value, mass in constant:
                atoms[value] = atoms.get(value, 0.0) + mass
    if not covers[0]:
        return _discrete(np.array(list(atoms)), np.array(list(atoms.values())), activation, q, mean)
    panels = _slope_panels.build(slope, scale, covers)
    if activation.is_builtin and not activation.kinks:
        far = _whole_hull(activation)
    else:
        far = _slope_hull.hull(slope, scale * min(-low, high), scale, mean)
    return _assembled(activation, panels, atoms, far, q, mean)


@lru_cache(maxsize=64)
def _whole_hull(activation: Activation) -> tuple[float, float]:
    """(inf, sup) of phi'^2 over all h of a smooth built-in activation, whatever q and the mean."""
    return _slope_hull.hull(activation.derivative, _NEAR_ZERO, 1.0, 0.0)


def _assembled(activation: Activation, panels: Panels, atoms: dict[float, float],
               far: tuple[float, float], q: float, mean: float) -> _kernels.Slopes:
    zero = atoms.pop(0.0, 0.0)
    atom_value = np.array(sorted(atoms))
    atom_mass = np.array([atoms[value] for value in atom_value])
    critical, bottom, top = _extremes(panels, atom_value)
    _require_slopes(top > 0.0, activation, q, mean)
    size, clearance = _rule_size(bottom / top)
    d, mass = _discretised(panels, clearance * top)
    d, mass = np.concatenate([d, atom_value]), np.concatenate([mass, atom_mass])
    first = float(mass @ d)
    _require_slopes(first > 0.0, activation, q, mean)
    error = _relative_error(panels, first)
    if not error < _ROUGH:
        raise ValueError(f"E phi'^2 of {activation!r} is infinite at q = {q:g}, mean = {mean:g}, "
                         "or phi' is too rough there to tell")
    value, weight = _gauss_rule(d / top, mass, size)
    spread = math.sqrt(float(mass @ (d - first) ** 2) + zero * first**2) / first
    resolved = 1e3 * _slope_panels.FLOOR**2 * top
    least = min(bottom, far[0] if far[0] > resolved else 0.0)
    return _kernels.smooth_slopes(
        value * top, weight, (zero, first, float(mass @ d**2), bottom, top, least,
                                max(top, far[1]), resolved), max(1e-15, error), spread,
        _cluster(d, mass), atom_value, atom_mass, critical,
        np.bincount(panels.cover, minlength=_slope_panels.COVERS).astype(np.uintp),
        panels.centre, panels.half, panels.series, panels.joints)


@lru_cache(maxsize=1)
def _fine_rules() -> list[tuple[Any, ...]]:
    """For n = 16, 28, 56: log rho with rho^-(2n + 1) = 1e-18, nodes, weights, T_k at the nodes."""
    rules = []
    for size in (16, 28, 56):
        nodes, weights = np.polynomial.legendre.leggauss(size)
        at_nodes = chebyshev.chebvander(nodes, _slope_panels.TERMS - 1).T
        rules.append((_GUARD_ERROR / (2 * size + 1), nodes, weights, at_nodes))
    return rules


def _discretised(panels: Panels, clearance: float) -> tuple[FloatArray, FloatArray]:
    """Points and masses of the law of d on the panels, as good as the law for E 1/(zeta - d) where
    zeta keeps ``clearance`` from the support: poles stay outside a rule's Bernstein ellipse where d
    varies by less on it."""
    own = np.flatnonzero(panels.cover == 0)
    points, masses = [], []
    orders = np.arange(1, _slope_panels.TERMS)
    for i, (log_rho, nodes, weights, at_nodes) in enumerate(_fine_rules()):
        size = np.abs(panels.series[own])
        reach = size[:, 1:] @ np.cosh(orders * log_rho)
        enough = reach * (2.0 * size[:, 0] + reach) < clearance if i < 2 else own >= 0
        chosen, own = own[enough], own[~enough]
        half = panels.half[chosen, np.newaxis]
        z = panels.centre[chosen, np.newaxis] + half * nodes
        points.append((panels.series[chosen] @ at_nodes).ravel() ** 2)
        masses.append((half * weights * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)).ravel())
    d, mass = np.concatenate(points), np.concatenate(masses)
    some = mass > _NEGLIGIBLE
    for moment in (mass * d, mass * d * d):
        some |= moment > _NEGLIGIBLE * np.sum(moment)
    return d[some], mass[some]


def _cluster(d: FloatArray, mass: FloatArray) -> float:
    """Largest mass of values d > 0 that differ by no more than a share of 1e-8."""
    order = np.argsort(d)
    d, below = d[order], np.concatenate([[0.0], np.cumsum(mass[order])])
    first = int(np.searchsorted(d, 0.0, side="right"))
    ends = np.searchsorted(d, d[first:] * (1.0 + _CLUSTER), side="right")
    return float(np.max(below[ends] - below[first:-1]))


def _relative_error(panels: Panels, first: float) -> float:
    """Of E d, from the errors of the panels."""
    own = panels.cover == 0
    mass = 2.0 * panels.half[own] * np.exp(-0.5 * panels.centre[own] ** 2) / math.sqrt(2 * math.pi)
    largest = np.sum(np.abs(panels.series[own]), axis=1) ** 2
    return 2.0 * float(np.sum(mass * largest * panels.error[own])) / first


def _rule_size(bottom: float) -> tuple[int, float]:
    """Nodes of the Gauss rule for a law on [bottom, 1], enough to serve close to the top, and how
    far from the top it does."""
    for size in _RULE_SIZES:
        excess = (1.0 - bottom) * (math.cosh(_GUARD_ERROR / (2.0 * size)) - 1.0)
        if excess <= _GUARD_EXCESS:
            break
    return size, 0.5 * excess


def _gauss_rule(d: FloatArray, mass: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Gauss rule of the law of d, 0 <= d <= 1; nodes that rounding takes below 0 are put at 0+."""
    from . import _slope_kernels

    value, off = _slope_kernels.lanczos(d, mass, min(size, d.size))
    first = np.empty(value.size)
    _slope_kernels.eigen(value, off, first)
    order = np.argsort(value)
    return np.maximum(value[order], 1e-300), float(np.sum(mass)) * first[order] ** 2


def _extremes(panels: Panels, atoms: FloatArray) -> tuple[FloatArray, float, float]:
    """Critical values of phi'^2 (extrema > 0 inside the range), inf and sup of the support."""
    values = panels.series @ _slope_panels.SERIES_AT_PLACES
    found = _slope_panels.critical_values(panels.series)
    d = values**2
    crosses = np.any(values[:, 1:] * values[:, :-1] <= 0.0)
    everything = np.concatenate([d.ravel(), found, atoms])
    top = float(np.max(everything))
    critical: list[float] = []
    for value in np.sort(found):
        if value > 1e-14 * top and (not critical or value > critical[-1] * (1.0 + 1e-9)):
            critical.append(float(value))
    return np.array(critical), 0.0 if crosses else float(np.min(everything)), top

