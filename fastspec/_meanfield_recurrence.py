"""Layer recurrences of mean-field networks, for many settings at once and without overflow.

Per layer, with q = sw^2 p_ + sb^2, V = E phi^2, V' = E phi'^2, U = E phi at h ~ N(0, q), and the
underscore for the layer before (Yang & Schoenholz 2017, Table 1; the means are ours):

    vanilla  p = V                           s = gap                mean = U
    reduced  p = p_ + V + 2 mean_ U          s = s_ + gap           mean = mean_ + U
    full     p = p_ + sv^2 V + sa^2          s = s_ + sv^2 gap      mean = mean_
    chi_ = chi (skip + sv^2 sw^2 V')

for two inputs of one p and one mean, s = p - gamma. gap = V - W = E (phi - phi')^2 / 2 is written
rho q d with d = 1 - c = sw^2 s_/q, so that s = s_ (skip + sv^2 sw^2 rho): nothing cancels however
near to each other the inputs are. What is carried on is s/p, which stays resolved where p does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._meanfield_settings import Settings
from ._pairs import pair_rows
from ._progress import with_progress
from .activations import Activation
from .activations import activation as make_activation
from .quadrature import moment_rows

__all__ = ["LN2", "Layers", "Scaled", "backward_sums", "recur", "scaled"]

FloatArray = NDArray[np.float64]

LN2 = float(np.log(2.0))
# Beyond these variances moments are powers of q to double precision: the next term is smaller by
# q^(-1/2) at least (q^(1/2) at small q).
_LOW, _HIGH = 1e-36, 1e36
_FAR_EXPONENT = 120.0           # of 2, at _HIGH
_SMALLEST_GAP = 1e-290          # below it rho is at its limit V' for d -> 0
_LARGEST_SHIFT = 5000.0         # of exponents of 2: all beyond is 0 or infinite
_SAME_POWER, _ROUNDING, _DECIMALS = 1e-7, 1e-13, 9
_SMALL_MEAN = 1e-8              # E phi over the root of E phi^2 that vanishes further on


class Scaled(NamedTuple):
    """Numbers mantissa * 2^exponent >= 0; the exponents are whole numbers of type float."""

    mantissa: FloatArray
    exponent: FloatArray

    def log(self) -> FloatArray:
        """Natural logarithm; -inf for 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mantissa) + LN2 * self.exponent)

    def value(self) -> FloatArray:
        """As floats; infinite or 0 beyond their range."""
        return _shifted(self.mantissa, self.exponent)


class Layers(NamedTuple):
    """One layer (arrays of shape (n,)) or all, 0 to depth (shape (depth + 1, n)).

    ``q`` to ``log_factor`` belong to the block that ends at the layer, and are NaN at layer 0.
    """

    p: Scaled
    relative_s: Scaled              # s / p
    relative_mean: FloatArray       # mean / sqrt(p)
    q: Scaled
    distance: FloatArray            # 1 - c
    log_second: FloatArray          # log E phi^2
    log_slope: FloatArray           # log E phi'^2
    log_factor: FloatArray          # log of chi at the block's input over chi at its output

    @property
    def s(self) -> Scaled:
        """p - gamma."""
        return scaled(self.p.mantissa * self.relative_s.mantissa,
                      self.p.exponent + self.relative_s.exponent)

    @property
    def mean(self) -> FloatArray:
        """E x, which can be a double where p is not."""
        half = np.floor(0.5 * self.p.exponent)
        root = np.sqrt(_shifted(self.p.mantissa, self.p.exponent - 2.0 * half))
        return _shifted(self.relative_mean * root, half)

    def network(self, index: int) -> Layers:
        """The column of one network."""
        columns: list[Any] = [
            Scaled(*(part[:, index] for part in row)) if isinstance(row, Scaled)
            else row[:, index] for row in self]
        return Layers(*columns)

    def parameter_gains(self, net: Settings) -> dict[str, FloatArray]:
        """log of chi_b, chi_w, chi_v and chi_a over chi at the block's output; NaN in row 0."""
        with np.errstate(divide="ignore"):
            bias = self.log_slope + np.log(net.branch)
        weight = bias.copy()
        weight[1:] += self.p.log()[:-1]
        none = np.full_like(bias, np.nan)
        if net.block != "full":
            return {"chi_b": bias, "chi_w": weight, "chi_v": none, "chi_a": none}
        return {"chi_b": bias, "chi_w": weight, "chi_v": self.log_second,
                "chi_a": np.where(np.isnan(self.log_slope), none, 0.0)}


class _Moments(NamedTuple):
    """What a layer adds up, in units of 2^unit: p, V, sa^2 and rho p; m and U in the root of it."""

    unit: FloatArray
    p: FloatArray
    second: FloatArray
    shift: FloatArray
    mean: FloatArray
    mean_phi: FloatArray
    rho_p: FloatArray
    log_slope: FloatArray


class _Here(NamedTuple):
    """The arguments of `_moments` at some of the networks."""

    net: Settings
    p: Scaled
    relative_mean: FloatArray
    q: Scaled
    q_over_p: FloatArray
    distance: FloatArray


class _PowerLaw(NamedTuple):
    """log of |U|, V and V' at the variance ``end``, and the powers of q they follow beyond it.

    rho beyond ``end`` depends on the distance as ``factor`` times that of ``pair`` at the variance
    ``pair_q``, and goes with q as V' does.
    """

    end: float
    logs: FloatArray
    powers: FloatArray
    sign: float                     # of U
    pair: Activation
    pair_q: float
    factor: float


def recur(
    net: Settings, depth: int, p0: float, gamma0: float, mean0: float, progress: bool = False
) -> tuple[Layers, int | None]:
    """All layers of all networks, and the first layer at which log p of one leaves the doubles.

    There and beyond it p of that network is infinite and the rest NaN. The caller checks
    the inputs: p0 >= abs(gamma0), p0 >= mean0^2.

    Raises
    ------
    ValueError
        If E phi'^2 is infinite.
    """
    with np.errstate(all="ignore"):     # infinities are meant, and checked for
        layer = _input(net, p0, gamma0, mean0)
        rows = [layer]
        for _ in with_progress(range(depth), progress, "layers"):
            layer = _step(net, layer)
            rows.append(layer)
    layers = Layers(*(_stack(column) for column in zip(*rows, strict=True)))
    lost = np.flatnonzero(np.any(np.isinf(layers.p.mantissa), axis=1))
    return layers, int(lost[0]) if lost.size else None


def scaled(mantissa: FloatArray, exponent: FloatArray | float = 0.0) -> Scaled:
    """mantissa * 2^exponent with a mantissa in [1/2, 1); or 0, or inf."""
    fraction, power = np.frexp(mantissa)
    ordinary = (fraction != 0.0) & np.isfinite(fraction)
    return Scaled(fraction, np.where(ordinary, power + exponent, 0.0))


def backward_sums(terms: FloatArray) -> FloatArray:
    """Sums of the rows from each one to the last, in extended precision where there is any."""
    sums = np.cumsum(terms[::-1].astype(np.longdouble), axis=0)[::-1]
    return np.asarray(sums, dtype=float)


def _stack(column: Any) -> Any:
    if isinstance(column[0], Scaled):
        return Scaled(*(np.stack(part) for part in zip(*column, strict=True)))
    return np.stack(column)


def _shifted(x: FloatArray, exponent: FloatArray) -> FloatArray:
    """x 2^exponent."""
    whole = np.fmin(np.fmax(exponent, -_LARGEST_SHIFT), _LARGEST_SHIFT)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(np.ldexp(x, whole.astype(np.int64)))


def _input(net: Settings, p0: float, gamma0: float, mean0: float) -> Layers:
    one, unknown = np.ones_like(net.weight), np.full_like(net.weight, np.nan)
    relative = (1.0 - gamma0 / p0, mean0 / np.sqrt(p0)) if p0 > 0.0 else (0.0, 0.0)
    return Layers(scaled(p0 * one), scaled(relative[0] * one), relative[1] * one,
                  Scaled(unknown, unknown), *[unknown] * 4)


def _step(net: Settings, before: Layers) -> Layers:
    p, relative_s = before.p, before.relative_s
    heard = p.mantissa > 0.0
    q_over_p = net.weight + np.where(heard, _shifted(net.bias / p.mantissa, -p.exponent), 0.0)
    q = scaled(np.where(heard, q_over_p * p.mantissa, net.bias), p.exponent)
    distance = np.where(q_over_p > 0.0, np.minimum(2.0, _shifted(
        net.weight * relative_s.mantissa / q_over_p, relative_s.exponent)), 0.0)
    at = _moments(net, before, q, q_over_p, distance)
    cross = 2.0 * at.mean * at.mean_phi if net.block == "reduced" else 0.0
    total = net.skip * at.p + net.branch * at.second + at.shift + cross
    total = np.where(np.isfinite(total) & np.isfinite(at.unit), total, np.inf)
    share = np.where(
        total > 0.0, (net.skip * at.p + net.branch * net.weight * at.rho_p) / total, 0.0)
    mean = net.skip * at.mean + (0.0 if net.block == "full" else at.mean_phi)
    log_branch = np.log(net.branch * net.weight) + at.log_slope
    return Layers(
        scaled(total, at.unit), scaled(relative_s.mantissa * share, relative_s.exponent),
        np.where(total > 0.0, mean / np.sqrt(total), 0.0), q, distance,
        np.log(at.second) + LN2 * at.unit, at.log_slope,
        np.logaddexp(0.0, log_branch) if net.skip else log_branch)


def _moments(
    net: Settings, before: Layers, q: Scaled, q_over_p: FloatArray, distance: FloatArray
) -> _Moments:
    """Near moments where q is an ordinary number, powers of q beyond; NaN where q is lost."""
    known = np.isfinite(q.mantissa)
    far = known & (before.p.mantissa > 0.0) & (np.abs(q.exponent) > _FAR_EXPONENT)
    if np.all(known & ~far):
        return _near_moments(_Here(net, before.p, before.relative_mean, q, q_over_p, distance))
    out = _Moments(*np.full((len(_Moments._fields), distance.size), np.nan))
    near = known
    for mask, end in ((far & (q.exponent < 0.0), _LOW), (far & (q.exponent > 0.0), _HIGH)):
        law = _power_law(net.activation, end) if np.any(mask) else None
        if law is not None:
            _put(out, mask, _far_moments(_take(net, before, q, q_over_p, distance, mask), law))
            near = near & ~mask
    if np.any(near):
        _put(out, near, _near_moments(_take(net, before, q, q_over_p, distance, near)))
    return out


def _take(net: Settings, before: Layers, q: Scaled, q_over_p: FloatArray, distance: FloatArray,
          mask: NDArray[np.bool_]) -> _Here:
    chosen = Settings(net.activation, net.block, *(variance[mask] for variance in net[2:]))
    return _Here(chosen, Scaled(*(part[mask] for part in before.p)), before.relative_mean[mask],
                 Scaled(*(part[mask] for part in q)), q_over_p[mask], distance[mask])


def _put(out: _Moments, mask: NDArray[np.bool_], moments: _Moments) -> None:
    for column, values in zip(out, moments, strict=True):
        column[mask] = values


def _near_moments(here: _Here) -> _Moments:
    q, p = here.q.value(), here.p.value()
    mean_phi, second, slope = _one_point(here.net.activation, q)
    rho = _rho(here.net.activation, q, here.distance)
    return _Moments(np.zeros_like(q), p, second, here.net.shift, here.relative_mean * np.sqrt(p),
                    mean_phi, rho * p, np.log(slope))


def _far_moments(here: _Here, law: _PowerLaw) -> _Moments:
    """By the power laws V ~ q^a, V' ~ q^b, U ~ q^u; rho goes as V'.

    The unit is the largest of p (with a skip connection), V and sa^2, a power of 2.
    """
    net, p = here.net, here.p
    (log_mean, log_second, log_slope), (u, a, b) = law.logs, law.powers
    log_end = np.log(law.end)
    log_share, beyond = np.log(here.q_over_p), p.log() - log_end
    second = log_second - log_end + a * log_share + (a - 1.0) * beyond      # log V/p
    largest = np.maximum(second, np.log(net.shift) - p.log())
    up = np.ceil((np.maximum(0.0, largest) if net.skip else largest) / LN2)
    over_unit = p.mantissa * np.exp(np.minimum(second - LN2 * up, 0.0))
    p_over_unit = _shifted(p.mantissa, -up)
    mean = log_mean - 0.5 * log_second + (u - 0.5 * a) * (log_share + beyond)   # log U/sqrt(V)
    rho = law.factor * _rho(law.pair, np.full_like(up, law.pair_q), here.distance)
    rho_over_second = rho * np.exp(
        log_end - log_second + (b + 1.0 - a) * (log_share + beyond) - log_share)
    return _Moments(
        p.exponent + up, p_over_unit, over_unit, _shifted(net.shift, -p.exponent - up),
        here.relative_mean * np.sqrt(p_over_unit),
        law.sign * np.sqrt(over_unit) * np.exp(mean), over_unit * rho_over_second,
        log_slope + b * (log_share + beyond))


def _one_point(activation: Activation, q: FloatArray) -> FloatArray:
    """E phi, E phi^2, E phi'^2; ValueError if the last is infinite."""
    rows = moment_rows(activation, q, np.zeros_like(q), 1)
    if np.any((rows[2] == np.inf) & (rows[1] < np.inf)):
        raise ValueError(f"the second moment of gradients is infinite: E phi'(h)^2 of "
                         f"{activation!r} diverges (alpha_relu needs alpha > 1/2)")
    return rows


def _rho(activation: Activation, q: FloatArray, distance: FloatArray) -> FloatArray:
    """gap / (q distance), which is E phi'^2 where the distance is 0 or nearly so."""
    rho = np.empty_like(q)
    apart = q * distance > _SMALLEST_GAP
    if np.any(apart):
        gap = pair_rows(activation, q[apart], distance[apart])[1]
        rho[apart] = gap / (q[apart] * distance[apart])
    if not np.all(apart):
        rho[~apart] = _one_point(activation, q[~apart])[2]
    return rho


@lru_cache(maxsize=64)
def _power_law(activation: Activation, end: float) -> _PowerLaw | None:
    """The power laws beyond ``end``, or None where moments do not follow them or do not need to.

    At large q, phi must grow so fast (V faster than sqrt(q)) that what happens near its bends
    does not count; others are evaluated as they are, and hardly ever get there.
    """
    rows = _one_point(activation, end ** np.array([0.5, 0.75, 1.0]))
    rows[0, np.abs(rows[0]) < _SMALL_MEAN * np.sqrt(rows[1])] = 0.0
    logs = np.log(np.abs(rows))
    steps = np.diff(logs, axis=1) / (0.25 * np.log(end))
    steps[rows[:, 1:] == 0.0] = 0.0
    powers = np.array([_rounded(power) for power in steps[:, 1]])
    steady = np.all(np.isfinite(steps)) and np.allclose(steps[:, 0], steps[:, 1], 0, _SAME_POWER)
    if not steady or (end > 1.0 and powers[1] <= 0.5):
        return None
    return _PowerLaw(end, logs[:, 2], powers, float(np.sign(rows[0, 2])),
                     *_pair_law(activation, end, logs[1:, 2], powers[1:]))


def _pair_law(
    activation: Activation, end: float, logs: FloatArray, powers: FloatArray
) -> tuple[Activation, float, float]:
    """The last three fields of a `_PowerLaw`, from V and V' alone.

    Activations that grow linearly are leaky ReLUs seen from afar, up to a factor and a reflection.
    Where the laws hold at q = 1 already, phi is a power of h, and any variance will do.
    """
    if end > 1.0 and powers[0] == 1.0:
        far = np.sqrt(end)
        tails = np.array([activation(far), -activation(-far)]) / far
        steep, flat = sorted(tails, key=abs, reverse=True)
        return make_activation("leaky_relu", slope=flat / steep), 1.0, float(steep * steep)
    logs_at_one = np.log(_one_point(activation, np.ones(1))[1:, 0])
    if np.allclose(logs_at_one, logs - powers * np.log(end), 0.0, _SAME_POWER):
        return activation, 1.0, float(end ** powers[1])
    return activation, end, 1.0


def _rounded(power: float) -> float:
    """A measured power without the rounding of its measurement, if it is a short decimal."""
    short = round(power, _DECIMALS)
    return short if abs(short - power) < _ROUNDING else power
