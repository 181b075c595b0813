"""Mean-field residual and vanilla networks: forward and backward second moments, layer by layer.

The recurrences of Yang & Schoenholz 2017 for random networks of width N -> infinity, with weights
of variance sigma_w^2 / N that do not shrink with depth (`fastspec.ResNet` divides them by depth
unless told otherwise). Asymptotic laws, heat maps and the inverse questions are here too.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from ._heatmap import HeatMap, heatmap
from ._meanfield_asymptotics import (
    alpha_relu_growth,
    idle_branch,
    laws_of,
    relu_full,
    relu_reduced,
    tanh_like_angle,
    tanh_like_growth,
)
from ._meanfield_recurrence import Layers, backward_sums, recur
from ._meanfield_search import largest_sigma_for_limit, sigma_for_log_chi_ratio
from ._meanfield_settings import Settings, check_block, check_inputs, check_sigmas, settings
from .activations import activation as make_activation

__all__ = ["HeatMap", "MeanFieldRun", "ResidualMeanField", "alpha_relu_growth", "heatmap",
           "idle_branch", "largest_sigma_for_limit", "relu_full", "relu_reduced",
           "sigma_for_log_chi_ratio", "tanh_like_angle", "tanh_like_growth"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ResidualMeanField:
    r"""A random network of infinite width, block by block.

    With x the block's output, x_ its input and h = w x_ + b:

    * ``"reduced"``: x = phi(h) + x_
    * ``"full"``: x = v phi(h) + a + x_
    * ``"vanilla"``: x = phi(h), no skip connection

    w_ij ~ N(0, sigma_w^2 / N), v_ij ~ N(0, sigma_v^2 / N), b_i ~ N(0, sigma_b^2),
    a_i ~ N(0, sigma_a^2), independent, alike in every block.

    Parameters
    ----------
    activation : str, callable-made Activation or Activation
        A name without parameters, or what `fastspec.activation` returns.
    block : {"reduced", "full", "vanilla"}
    sigma_w : float
        >= 0. There is no division by depth.
    sigma_b : float
        >= 0.
    sigma_v, sigma_a : float
        >= 0; for ``block="full"`` only: others have no v and a.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Yang & Schoenholz 2017, Table 1. Two assumptions: the units of a layer are statistically
    alike, and the gradient at a layer is independent of the activations there and below, and of
    zero mean.

    Examples
    --------
    >>> from fastspec.meanfield import ResidualMeanField
    >>> run = ResidualMeanField("tanh", sigma_w=1.0, sigma_b=0.5).run(depth=20, gamma0=0.4)
    >>> print(round(run.p[20], 6), round(run.e[20], 6), round(run.log_chi_ratio, 6))
    14.591639 0.364866 4.022576
    """

    activation: Any  # a name or an Activation; an Activation once checked
    block: str = "reduced"
    _: KW_ONLY
    sigma_w: float
    sigma_b: float = 0.0
    sigma_v: float = 1.0
    sigma_a: float = 0.0

    def __post_init__(self) -> None:
        phi, block = make_activation(self.activation), check_block(self.block)
        names = "sigma_w", "sigma_b", "sigma_v", "sigma_a"
        sigmas = {name: _checks.real(name, getattr(self, name), low=0.0) for name in names}
        check_sigmas(block, **sigmas)
        _checks.store(self, activation=phi, block=block, **sigmas)

    def run(
        self, depth: int, p0: float = 1.0, gamma0: float = 0.0, *, mean0: float = 0.0
    ) -> MeanFieldRun:
        """Second moments of activations, going forward, and of gradients, going back.

        Parameters
        ----------
        depth : int
            Number of blocks L, >= 1.
        p0 : float
            abs(x0)^2 / N of both inputs, >= 0.
        gamma0 : float
            x0 . x0' / N, between -p0 and p0.
        mean0 : float
            Mean of the entries of x0, the same for both inputs: mean0^2 <= (p0 + gamma0) / 2. It
            only matters for reduced blocks with an activation that is not odd.

        Returns
        -------
        MeanFieldRun

        Raises
        ------
        ValueError
            If an argument is out of range, or gradients have no second moment (alpha_relu with
            alpha <= 1/2).
        OverflowError
            If even log p leaves the range of double precision; it names the layer.

        Examples
        --------
        >>> from fastspec.meanfield import ResidualMeanField
        >>> run = ResidualMeanField("relu", "full", sigma_w=1.0).run(depth=2000)
        >>> print(run.p[-1], round(run.log_p[-1] / 2000, 12))
        inf 0.405465108108
        """
        depth = _checks.positive_integer("depth", depth)
        p0, gamma0, mean0 = check_inputs(p0, gamma0, mean0)
        layers, lost = recur(self._settings(), depth, p0, gamma0, mean0)
        if lost is not None:
            raise OverflowError(f"log p leaves the range of double precision at layer {lost} of "
                                f"{depth}: the signal explodes")
        return MeanFieldRun(field=self, **_columns(self, layers))

    def asymptotics(self) -> tuple[Any, ...]:
        """The laws of deep networks that apply here.

        Returns
        -------
        tuple
            (TanhLikeGrowth, TanhLikeAngle), or one of AlphaReluGrowth, ReluFull, ReluReduced and
            IdleBranch; see `tanh_like_growth` and its neighbours for validity and source.

        Raises
        ------
        ValueError
            If none is known, with the reason.

        Examples
        --------
        >>> from fastspec.meanfield import ResidualMeanField
        >>> growth, angle = ResidualMeanField("tanh", sigma_w=2.0).asymptotics()
        >>> print(growth.moment_rate, round(growth.chi_root, 4), round(angle.rate, 4))
        1.0 2.1277 0.3634
        """
        return laws_of(self)

    def _settings(self) -> Settings:
        return settings(self.activation, self.block, self.sigma_w, self.sigma_b, self.sigma_v,
                        self.sigma_a)


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldRun:
    """Second moments layer by layer; made by `ResidualMeanField.run`.

    Arrays have shape (depth + 1,); index 0 is the input. What belongs to a block (q, lam, c and the
    gradients of its parameters) stands at the index of the block's output, 1 .. depth, and is NaN
    at index 0. Numbers too large for a double are inf in the plain arrays, too small ones 0;
    the ``log_`` arrays (natural logarithms) hold them.

    Attributes
    ----------
    field : ResidualMeanField
        The network.
    p, gamma : ndarray
        E x^2, and E x x' for the two inputs.
    q, lam : ndarray
        E h^2 and E h h'.
    s : ndarray
        Metric expressivity E (x - x')^2 / 2 = p - gamma, without cancellation.
    e, one_minus_e : ndarray
        Angular expressivity gamma / p, and s / p without cancellation. NaN where p = 0.
    c : ndarray
        lam / q. NaN where q = 0.
    mean : ndarray
        E x, over the units and the random parameters.
    chi : ndarray
        E (dE/dx_i)^2 in units of that at the output: chi[depth] = 1.
    chi_w, chi_b, chi_v, chi_a : ndarray
        E (dE/dw_ij)^2 etc. in the same unit: chi_b = sigma_v^2 chi E phi'(h)^2,
        chi_w[l] = chi_b[l] p[l-1], chi_v = chi E phi(h)^2, chi_a = chi. chi_v and chi_a are NaN
        unless the block is "full".
    log_p, log_q, log_s, log_chi, log_chi_w, log_chi_b, log_chi_v, log_chi_a : ndarray
        Natural logarithms of the arrays of those names; -inf for 0.
    log_chi_ratio : float
        ln(chi_0 / chi_depth).
    """

    field: ResidualMeanField
    p: FloatArray
    q: FloatArray
    gamma: FloatArray
    lam: FloatArray
    e: FloatArray
    one_minus_e: FloatArray
    s: FloatArray
    c: FloatArray
    mean: FloatArray
    chi: FloatArray
    chi_w: FloatArray
    chi_b: FloatArray
    chi_v: FloatArray
    chi_a: FloatArray
    log_p: FloatArray
    log_q: FloatArray
    log_s: FloatArray
    log_chi: FloatArray
    log_chi_w: FloatArray
    log_chi_b: FloatArray
    log_chi_v: FloatArray
    log_chi_a: FloatArray

    def __post_init__(self) -> None:
        for column in self._arrays().values():
            column.setflags(write=False)

    def __len__(self) -> int:
        return self.depth

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.p.size - 1

    @property
    def log_chi_ratio(self) -> float:
        """ln(chi_0 / chi_L): how gradients explode (> 0) or vanish (< 0) on their way back."""
        return float(self.log_chi[0])

    def distance_from_asymptotics(self) -> dict[str, float]:
        """How far the leading laws of `ResidualMeanField.asymptotics` are off at this depth.

        Returns
        -------
        dict
            Value of the run minus that of the law at the last layer, by field: log_p, log_s,
            log_chi_ratio and so on. Differences of logarithms are relative errors; where
            a law leaves a constant factor open, the difference tends to its logarithm, not to 0.

        Raises
        ------
        ValueError
            If no law is known.

        Examples
        --------
        >>> from fastspec.meanfield import ResidualMeanField
        >>> run = ResidualMeanField("tanh", sigma_w=1.0).run(depth=50)
        >>> {name: round(value, 2) for name, value in run.distance_from_asymptotics().items()}
        {'log_p': -0.23, 'log_chi_ratio': -0.31, 'e': 0.0, 'log_s': -0.23}
        """
        leading: dict[str, float] = {}
        for law in self.field.asymptotics():
            leading |= law.leading(self.depth, float(self.p[0]))
        return {name: self._last(name) - value for name, value in leading.items()}

    def _last(self, name: str) -> float:
        """A field at the last layer; ``log_one_minus_e`` and ``log_chi_ratio`` are fields too."""
        if name == "log_one_minus_e":
            return float(self.log_s[-1] - self.log_p[-1])
        return float(self.log_chi_ratio if name == "log_chi_ratio" else getattr(self, name)[-1])

    def plot(self, ax: Any = None) -> Any:
        """Draw ln p, ln s, ln chi and ln chi_w over the layers.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure of pyplot.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            If matplotlib is missing (extra ``plot``).
        """
        from ._run_plot import plot_run

        return plot_run(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """log_chi_ratio and the arrays, as lists, by name."""
        arrays = {name: column.tolist() for name, column in self._arrays().items()}
        return {"log_chi_ratio": self.log_chi_ratio, **arrays}

    def _arrays(self) -> dict[str, FloatArray]:
        return {item.name: getattr(self, item.name) for item in fields(self)
                if item.name != "field"}

    def __repr__(self) -> str:
        ends = [f"ln p {self.log_p[0]:.5g} .. {self.log_p[-1]:.5g}",
                f"e {self.e[0]:.5g} .. {self.e[-1]:.5g}",
                f"ln s {self.log_s[0]:.5g} .. {self.log_s[-1]:.5g}",
                f"ln chi_0/chi_L {self.log_chi_ratio:.5g}"]
        return f"MeanFieldRun({self.depth} {self.field.block} blocks: {', '.join(ends)})"


def _columns(field: ResidualMeanField, layers: Layers) -> dict[str, FloatArray]:
    """The arrays of a run of one network."""
    one = layers.network(0)
    p, q, s, share = one.p.value(), one.q.value(), one.s.value(), one.relative_s.value()
    log_chi = np.append(backward_sums(one.log_factor[1:]), 0.0)
    gains = one.parameter_gains(field._settings())
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        e = np.where(one.p.mantissa > 0.0, 1.0 - share, np.nan)
        c = np.where(one.q.mantissa > 0.0, 1.0 - one.distance, np.nan)
        columns = {
            "p": p, "q": q, "gamma": _product(p, s, e), "s": s, "e": e, "one_minus_e": share,
            "lam": _product(q, q * one.distance, c), "c": c,
            "mean": one.mean, "log_p": one.p.log(), "log_q": one.q.log(),
            "log_s": one.s.log(), "log_chi": log_chi,
            **{f"log_{name}": log_chi + gain for name, gain in gains.items()}}
        chis = {name[4:]: np.exp(column) for name, column in columns.items()
                if name.startswith("log_chi")}
    columns["one_minus_e"] = np.where(np.isnan(e), np.nan, share)
    return {**columns, **chis}


def _product(moment: FloatArray, difference: FloatArray, correlation: FloatArray) -> FloatArray:
    """The cross moment: moment - difference, or by the sign of the correlation if infinite."""
    infinite = np.where(correlation == 0.0, 0.0, moment * correlation)
    return np.where(np.isinf(moment), infinite, moment - difference)
