"""Phase diagrams of vanilla feed-forward layers over (sigma_w, sigma_b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from ._correlations import map_slopes, scale, stable_distances
from ._fixed_points import HIGHEST_SIGMA, NOISE, Roots, all_roots, is_marginal, relative_growth
from ._fixed_points import slopes as fixed_point_slopes
from ._pair_table import tabulated_distances
from ._progress import with_progress
from .activations import Activation
from .activations import activation as make_activation

__all__ = ["PHASES", "PhaseDiagram", "phase_diagram"]

FloatArray = NDArray[np.float64]

#: Names of the phases, by the numbers that a `PhaseDiagram` holds.
PHASES = ("ordered", "chaotic", "critical", "divergent")
_ORDERED, _CHAOTIC, _CRITICAL, _DIVERGENT = range(4)


@dataclass(frozen=True, eq=False, repr=False)
class PhaseDiagram:
    """Fixed points of signals over a grid of sigmas; made by `phase_diagram`.

    All arrays but the first two have shape (len(sigma_w), len(sigma_b)).

    Attributes
    ----------
    activation : Activation
    sigma_w, sigma_b : ndarray, one-dimensional
        The grid.
    start : float
        The variance that iteration starts from.
    q : ndarray
        Fixed point of the variance map next to ``start`` on the side to which the map moves it, or
        ``start`` itself if it stays in place to rounding. If the map increases, as that of every
        built-in activation does, iteration ends there. inf where there is none: the signal grows
        without bound; 0 where it dies.
    fixed_point_count : ndarray of int
        Number of fixed points in [0, inf), double ones once; -1 where every q is one.
    chi : ndarray
        sigma_w^2 E phi'(h)^2 at q; NaN where q is inf.
    slope : ndarray
        Slope dQ/dq of the variance map at q; NaN where q is inf.
    c : ndarray
        Correlation that the signals of two inputs tend to; NaN where q is 0 or inf.
    xi_q, xi_c, xi_grad : ndarray
        Depth scales in layers, see `DepthScales`; NaN where the slope in question is.
    phase : ndarray of int
        Indices into `PHASES`: "ordered" chi < 1, "chaotic" chi > 1, "critical" chi = 1 to rounding
        (1e-12), "divergent" q = inf.
    """

    activation: Activation
    sigma_w: FloatArray
    sigma_b: FloatArray
    start: float
    q: FloatArray
    fixed_point_count: NDArray[np.intp]
    chi: FloatArray
    slope: FloatArray
    c: FloatArray
    xi_q: FloatArray
    xi_c: FloatArray
    xi_grad: FloatArray
    phase: NDArray[np.intp]

    @property
    def phase_names(self) -> NDArray[np.str_]:
        """The phases by name, of the same shape."""
        return np.array(PHASES)[self.phase]

    def to_dict(self) -> dict[str, Any]:
        """The arrays as nested lists, by name, and the phases by name."""
        arrays = {name: getattr(self, name).tolist() for name in self.__dataclass_fields__
                  if name not in ("activation", "start", "phase")}
        return {"activation": repr(self.activation), "start": self.start, **arrays,
                "phase": self.phase_names.tolist()}

    def plot(self, ax: Any = None, quantity: str = "xi_c") -> Any:
        """Draw one quantity in colour over (sigma_w, sigma_b), and the critical line.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure of pyplot.
        quantity : {"xi_c", "xi_q", "xi_grad", "chi", "slope", "q", "c", "fixed_point_count"}
            What to draw. Cells where q diverges are hatched.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If ``quantity`` is none of these, or the diagram has fewer than two sigmas of a kind.
        ImportError
            If matplotlib is missing (extra ``plot``).

        Examples
        --------
        >>> from fastspec.signal import phase_diagram
        >>> ax = phase_diagram("relu", [1.0, 1.2, 1.4], [0.0, 0.1]).plot(quantity="chi")
        >>> ax.get_xlabel()
        'weight standard deviation $\\\\sigma_w$'
        """
        from ._phase_plot import plot_phase_diagram

        return plot_phase_diagram(self, ax, quantity)

    def __repr__(self) -> str:
        names, counts = np.unique(self.phase_names, return_counts=True)
        phases = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        return (f"PhaseDiagram({self.activation!r}, {self.sigma_w.size} x {self.sigma_b.size} "
                f"cells: {phases})")


def phase_diagram(
    activation: str | Activation, sigma_w: ArrayLike, sigma_b: ArrayLike, *, start: float = 1.0,
    progress: bool = False,
) -> PhaseDiagram:
    r"""Where signals end, and how fast, for every pair of sigma_w and sigma_b.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or an activation.
    sigma_w, sigma_b : array_like, one-dimensional
        sqrt(N Var W_ij) and sqrt(Var b_i), >= 0.
    start : float
        Variance q of the first layer's pre-activations, > 0: it decides where there are several
        fixed points.
    progress : bool
        Show a progress bar on stderr (needs tqdm).

    Returns
    -------
    PhaseDiagram
        q accurate to 1e-15 / abs(1 - slope) relative, c and its slope to 1e-9.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Poole et al. 2016; Schoenholz et al. 2017. Ten thousand cells take some seconds, of users'
    functions some minutes.

    Examples
    --------
    >>> from fastspec.signal import phase_diagram
    >>> diagram = phase_diagram("tanh", [0.5, 1.5], [0.0, 0.5])
    >>> diagram.q.round(4)
    array([[0.    , 0.2992],
           [0.7934, 1.2182]])
    >>> diagram.phase_names
    array([['ordered', 'ordered'],
           ['chaotic', 'ordered']], dtype='<U9')
    """
    phi = make_activation(activation)
    weights, biases = _axis("sigma_w", sigma_w), _axis("sigma_b", sigma_b)
    start = _checks.real("start", start, low=0.0, strict=True)
    rows = [_chosen(phi, np.full(biases.size, w * w), biases**2, start)
            for w in with_progress(weights.tolist(), progress, "fixed points")]
    q, counts = (np.stack(column) for column in zip(*rows, strict=True))
    weight = np.repeat(weights**2, biases.size)
    bias = np.tile(biases**2, weights.size)
    found = _at_fixed_points(phi, q.ravel(), weight, bias, progress)
    chi, slope, c, slope_c = (column.reshape(q.shape) for column in found)
    return PhaseDiagram(phi, weights, biases, start, q, counts, chi, slope, c, scale(slope),
                        scale(slope_c), scale(chi), _phases(q, chi))


def _axis(name: str, values: ArrayLike) -> FloatArray:
    array = _checks.variance(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a sequence of numbers >= 0, got {values!r}")
    if np.any(array > HIGHEST_SIGMA):
        raise ValueError(f"{name} must be at most {HIGHEST_SIGMA:g}, got {array.max()!r}")
    return array


def _chosen(
    phi: Activation, weight: FloatArray, bias: FloatArray, start: float
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Per cell the fixed point that the map moves ``start`` to, and how many there are."""
    roots: Roots = all_roots(phi, weight, bias)
    growth = relative_growth(phi, np.full(weight.size, start), weight, bias)
    above, below = np.full(weight.size, np.inf), np.zeros(weight.size)
    np.minimum.at(above, roots.cell[roots.q > start], roots.q[roots.q > start])
    np.maximum.at(below, roots.cell[roots.q < start], roots.q[roots.q < start])
    q = np.where(np.abs(growth) <= NOISE, start, np.where(growth > 0.0, above, below))
    counts = np.bincount(roots.cell, minlength=weight.size)
    return q, np.where(roots.continuum, -1, counts)


def _at_fixed_points(
    phi: Activation, q: FloatArray, weight: FloatArray, bias: FloatArray, progress: bool
) -> tuple[FloatArray, ...]:
    """chi, slope, c and the slope of the correlation map at flat q; NaN where there is none."""
    chi, slope, c, slope_c = np.full((4, q.size), np.nan)
    finite = np.flatnonzero(np.isfinite(q))
    slope[finite], chi[finite] = fixed_point_slopes(phi, q[finite], weight[finite])
    alive = finite[q[finite] > 0.0]
    at = q[alive], weight[alive], bias[alive]
    pair = tabulated_distances(phi, *at, progress)
    if pair is None:
        distance = stable_distances(phi, *at)
        pair = distance, map_slopes(phi, *at, distance)
    c[alive], slope_c[alive] = 1.0 - pair[0], pair[1]
    return chi, slope, c, slope_c


def _phases(q: FloatArray, chi: FloatArray) -> NDArray[np.intp]:
    phase = np.where(chi < 1.0, _ORDERED, _CHAOTIC)
    phase[is_marginal(chi)] = _CRITICAL
    phase[np.isinf(q)] = _DIVERGENT
    return phase
