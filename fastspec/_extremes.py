"""Extreme singular values of a real network: the ends of its bulk, and outliers beyond them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import _checks

if TYPE_CHECKING:
    from .laws import SpectralLaw
    from .outliers import Outlier

__all__ = [
    "Extremes", "detached_outliers", "full_condition_number", "has_known_outliers", "log_ends",
    "outliers_or_reason",
]

# Depths up to which outliers take a second or so: O(depth^3) with skips, O(depth^2) without.
_QUICK_RESIDUAL, _QUICK_PLAIN = 200, 1000


class Extremes:
    """What networks with a ``spectrum()`` say about outliers, and about both together."""

    if TYPE_CHECKING:
        def spectrum(self, limit: bool = False) -> SpectralLaw: ...

    def outliers(self) -> tuple[Outlier, ...]:
        """Single eigenvalues of J J^T outside the bulk, descending; see `fastspec.outliers`.

        Examples
        --------
        >>> import fastspec as fs
        >>> net = fs.ResNet(depth=50, activation="relu", sigma_w=0.5)
        >>> print([round(outlier.value, 3) for outlier in net.outliers()])
        [9.949, 0.355]
        >>> net = fs.FeedForward(2, "gelu", sigma_w=2**0.5, input_second_moment=0.1)
        >>> print([round(outlier.value, 3) for outlier in net.outliers()])
        [4.894]
        """
        from .outliers import outliers

        return outliers(cast(Any, self))

    def condition_number(self, coverage: float = 1.0, *, include_outliers: bool = False) -> float:
        """Condition number of J: of its bulk, or of all its singular values.

        Parameters
        ----------
        coverage : float
            In (0, 1], of the bulk: below 1 the mass (1 - coverage)/2 is trimmed at each end first.
        include_outliers : bool
            False: that of the bulk, ``spectrum().condition_number(coverage)``. True: the largest
            over the smallest of the bulk's ends and the detached `outliers`, which is what
            measuring all singular values of a wide network gives; nothing is trimmed then.

        Returns
        -------
        float
            inf where the law of the bulk reaches 0.

        Raises
        ------
        ValueError
            If an argument is out of range, ``include_outliers`` meets a coverage below 1, or the
            outliers of this kind of network are not known (see `outliers`).

        Examples
        --------
        >>> import fastspec as fs
        >>> net = fs.ResNet(depth=10, activation="relu", sigma_w=0.5)
        >>> print(round(net.condition_number(), 3))
        2.812
        >>> print(round(net.condition_number(include_outliers=True), 3))
        2.964
        """
        if not isinstance(include_outliers, bool | np.bool_):
            raise ValueError(f"include_outliers must be True or False, got {include_outliers!r}")
        if not include_outliers:
            return self.spectrum().condition_number(coverage)
        if _checks.real("coverage", coverage) != 1.0:
            raise ValueError("coverage must be 1 with include_outliers=True: outliers have no mass "
                             f"to trim, got {coverage!r}")
        return full_condition_number(self.spectrum(), detached_outliers(self))

    def top_singular_value(self) -> float:
        """The largest singular value of a wide network: a detached outlier, or the bulk's end.

        Returns
        -------
        float
            Atoms included; inf, with NumPy's overflow warning, beyond the doubles.

        Raises
        ------
        ValueError
            If the outliers of this kind of network are not known (see `outliers`).

        Examples
        --------
        >>> import fastspec as fs
        >>> print(round(fs.ResNet(depth=20, activation="relu").top_singular_value(), 4))
        5.0449
        """
        return float(np.exp(0.5 * log_ends(self.spectrum(), detached_outliers(self))[1]))


def log_ends(law: SpectralLaw, outliers: Sequence[Outlier]) -> tuple[float, float]:
    """log lambda of the smallest and the largest of a law's bulk and the outliers beyond it."""
    low, high = law._log_hull()
    places = [math.log(outlier.value) for outlier in outliers]
    return min([low, *places]), max([high, *places])


def full_condition_number(law: SpectralLaw, outliers: Sequence[Outlier]) -> float:
    """Condition number of a law's bulk and the outliers beyond it together."""
    low, high = log_ends(law, outliers)
    return math.inf if low == -math.inf else float(np.exp(0.5 * (high - low)))


def has_known_outliers(net: Any) -> bool:
    """Whether ``outliers()`` covers networks of this kind."""
    from .outliers import not_covered

    return hasattr(net, "outliers") and not not_covered(net) and net.input_second_moment > 0.0


def outliers_or_reason(
    net: Any, at_any_depth: bool = False
) -> tuple[tuple[Outlier, ...] | None, str]:
    """The detached outliers of a network, or None and why they are not known.

    For reports that have them by the way: unless ``at_any_depth``, they do without where outliers
    take longer than all else.
    """
    if not hasattr(net, "outliers"):
        return None, "those of networks whose layers differ are not covered"
    quick = _QUICK_RESIDUAL if hasattr(net, "skip") else _QUICK_PLAIN
    if not at_any_depth and net.depth > quick:
        return None, f"they take long at depth {net.depth}: ask net.outliers()"
    try:
        return detached_outliers(net), ""
    except (ValueError, ArithmeticError) as error:   # not covered; not found, beyond the doubles
        return None, str(error)


def detached_outliers(net: Any) -> tuple[Outlier, ...]:
    """The outliers of a network that stand outside its bulk."""
    return tuple(outlier for outlier in net.outliers() if outlier.detached)
