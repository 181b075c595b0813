"""What is known of deep mean-field networks: the constants of their laws (Yang & Schoenholz 2017).

Made by the functions of `_meanfield_asymptotics`, which say when each holds. Every law says in
``leading`` what it predicts for the end of a run, by the names of the run's fields, so that a run
can be held against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["AlphaReluGrowth", "IdleBranch", "ReluFull", "ReluReduced", "TanhLikeAngle",
           "TanhLikeGrowth"]

Leading = dict[str, float]


@dataclass(frozen=True)
class TanhLikeGrowth:
    """p and gradients of a deep residual network with a tanh-like activation.

    Attributes
    ----------
    moment_rate : float
        Bt = sigma_v^2 phi(inf)^2 + sigma_a^2.
    moment_root : float
        D: p_l = Bt l - D sqrt(l) + O(log l).
    chi_root, chi_log : float
        A and K: ln(chi_0 / chi_L) = A sqrt(L) + K ln L + O(1).
    """

    moment_rate: float
    moment_root: float
    chi_root: float
    chi_log: float

    def p(self, layer: Any) -> Any:
        """Bt l - D sqrt(l)."""
        return self.moment_rate * layer - self.moment_root * np.sqrt(layer)

    def log_chi_ratio(self, depth: Any) -> Any:
        """A sqrt(L) + K ln L."""
        return self.chi_root * np.sqrt(depth) + self.chi_log * np.log(depth)

    def leading(self, depth: int, p0: float) -> Leading:
        """The leading terms alone, Bt L and A sqrt(L)."""
        return {"log_p": math.log(self.moment_rate * depth),
                "log_chi_ratio": self.chi_root * math.sqrt(depth)}


@dataclass(frozen=True)
class TanhLikeAngle:
    """Where the angle between two inputs goes in a residual network with a tanh-like activation.

    Attributes
    ----------
    e : float
        Limit e*; s_l ~ (1 - e*) Bt l.
    rate : float
        delta*: e - e* = a l^(-delta*) + b l^(-1/2) + ..., where a depends on the start.
    root : float
        b.
    moment_rate : float
        Bt.
    """

    e: float
    rate: float
    root: float
    moment_rate: float

    def leading(self, depth: int, p0: float) -> Leading:
        """e* and ln s = ln((1 - e*) Bt L)."""
        return {"e": self.e, "log_s": math.log((1.0 - self.e) * self.moment_rate * depth)}


@dataclass(frozen=True)
class AlphaReluGrowth:
    """Powers of the depth in a full residual network with alpha_relu, 1/2 < alpha < 1.

    Attributes
    ----------
    p_power, p_factor : float
        p_l ~ p_factor l^p_power, with p_power = 1 / (1 - alpha).
    e : float
        Limit e* < 1; s ~ (1 - e*) p.
    one_minus_e : float
        1 - e*, without cancellation.
    e_rate : float
        abs(e - e*) ~ l^(-e_rate), once near e*. From ordinary starts no practical depth is.
    chi_power : float
        chi_0 / chi_L ~ L^chi_power, chi_l ~ l^(-chi_power).
    chi_w_power, chi_v_power, chi_b_power : float
        chi_w(l) ~ l^chi_w_power and so on; they are negative.
    """

    p_power: float
    p_factor: float
    e: float
    one_minus_e: float
    e_rate: float
    chi_power: float
    chi_w_power: float
    chi_v_power: float
    chi_b_power: float

    def leading(self, depth: int, p0: float) -> Leading:
        """ln p, ln s, e* and ln(chi_0/chi_L) without its constant."""
        log_p = math.log(self.p_factor) + self.p_power * math.log(depth)
        return {"log_p": log_p, "log_s": log_p + math.log(self.one_minus_e), "e": self.e,
                "log_chi_ratio": self.chi_power * math.log(depth)}


@dataclass(frozen=True)
class ReluFull:
    """A full residual network with ReLU; growth exact at every depth, the angle for deep ones.

    Attributes
    ----------
    growth : float
        Br = 1 + sigma_v^2 sigma_w^2 / 2: chi_0 / chi_L = Br^L exactly.
    source : float
        kap = sigma_v^2 sigma_b^2 / 2 + sigma_a^2: p_l = Br p_{l-1} + kap.
    angle_factor : float
        1 - e ~ angle_factor / l^2, with angle_factor = 9 pi^2/2 (Br / (Br - 1))^2.
    settled_depth : float
        The angle's law needs l >> 3 pi Br / (sqrt(2) (Br - 1)).
    """

    growth: float
    source: float
    angle_factor: float
    settled_depth: float

    def log_p(self, layer: Any, p0: float) -> Any:
        """ln(Br^l p_0 + kap (Br^l - 1) / (Br - 1)), exact; without overflow."""
        log_power = layer * math.log(self.growth)
        grown = p0 - self.source / (self.growth - 1.0) * np.expm1(-log_power)
        return log_power + np.log(grown)

    def log_chi_ratio(self, depth: Any) -> Any:
        """L ln Br, exact."""
        return depth * math.log(self.growth)

    def one_minus_e(self, layer: Any) -> Any:
        """9 pi^2/2 (Br / (Br - 1))^2 / l^2."""
        return self.angle_factor / np.asarray(layer, dtype=float) ** 2

    def leading(self, depth: int, p0: float) -> Leading:
        """ln p, ln s, ln(1 - e) and ln(chi_0/chi_L)."""
        log_p, angle = float(self.log_p(depth, p0)), math.log(self.one_minus_e(depth))
        return {"log_p": log_p, "log_s": log_p + angle, "log_one_minus_e": angle,
                "log_chi_ratio": float(self.log_chi_ratio(depth))}


@dataclass(frozen=True)
class ReluReduced:
    """A reduced residual network with ReLU: the mean makes p grow faster than gradients do.

    Attributes
    ----------
    mean_share : float
        u* = lim mean / sqrt(p).
    growth : float
        G: p ~ G^l.
    chi_growth : float
        1 + sigma_w^2 / 2: chi_0 / chi_L = chi_growth^L exactly.
    angle_ratio : float
        1 - e shrinks by chi_growth / G per layer.
    """

    mean_share: float
    growth: float
    chi_growth: float
    angle_ratio: float

    def leading(self, depth: int, p0: float) -> Leading:
        """ln p and ln(1 - e) without their constants, and ln(chi_0/chi_L)."""
        return {"log_p": depth * math.log(self.growth),
                "log_one_minus_e": depth * math.log(self.angle_ratio),
                "log_chi_ratio": depth * math.log(self.chi_growth)}


@dataclass(frozen=True)
class IdleBranch:
    """A residual network whose branch does not see its input (sigma_v = 0 or sigma_w = 0); exact.

    Attributes
    ----------
    moment_rate : float
        p_l = p_0 + moment_rate l, and gamma grows alike: s and chi stay as they are.
    """

    moment_rate: float

    def leading(self, depth: int, p0: float) -> Leading:
        """ln p and ln(chi_0/chi_L) = 0."""
        return {"log_p": math.log(p0 + self.moment_rate * depth), "log_chi_ratio": 0.0}
