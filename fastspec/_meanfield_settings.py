"""Settings of mean-field networks: their checks, and the variances that the recurrence takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks
from .activations import Activation
from .activations import activation as make_activation

__all__ = ["Settings", "check_block", "check_inputs", "check_sigmas", "settings"]

FloatArray = NDArray[np.float64]

# So that ratios of variances are doubles.
_LARGEST_SIGMA, _SMALLEST_P0 = 1e75, 1e-150
_BLOCKS = ("reduced", "full", "vanilla")


class Settings(NamedTuple):
    """Networks of one kind; the variances are arrays of shape (n,)."""

    activation: Activation
    block: str
    weight: FloatArray      # sigma_w^2
    bias: FloatArray        # sigma_b^2
    branch: FloatArray      # sigma_v^2; 1 without v
    shift: FloatArray       # sigma_a^2; 0 without a

    @property
    def skip(self) -> float:
        return 0.0 if self.block == "vanilla" else 1.0


def settings(
    activation: Any, block: str, sigma_w: ArrayLike, sigma_b: ArrayLike = 0.0,
    sigma_v: ArrayLike = 1.0, sigma_a: ArrayLike = 0.0,
) -> Settings:
    """Checked settings; one network for numbers, else as many as the arrays have elements."""
    phi, block = make_activation(activation), check_block(block)
    sigmas = check_sigmas(block, sigma_w, sigma_b, sigma_v, sigma_a)
    variances = np.broadcast_arrays(*(np.atleast_1d(sigma) ** 2 for sigma in sigmas.values()))
    return Settings(phi, block, *map(np.array, variances))


def check_block(block: Any) -> str:
    """A kind of block, or ValueError."""
    return _checks.choice("block", block, _BLOCKS)


def check_sigmas(
    block: str, sigma_w: ArrayLike, sigma_b: ArrayLike, sigma_v: ArrayLike, sigma_a: ArrayLike
) -> dict[str, FloatArray]:
    """Standard deviations >= 0 with finite squares, sigma_v and sigma_a if the block has them."""
    sigmas = {"sigma_w": sigma_w, "sigma_b": sigma_b, "sigma_v": sigma_v, "sigma_a": sigma_a}
    checked = {name: _checks.variance(name, value) for name, value in sigmas.items()}
    for name, value in checked.items():
        if np.any(value > _LARGEST_SIGMA):
            raise ValueError(f"{name} must be at most {_LARGEST_SIGMA:g}, got {np.max(value):g}")
    for name, standard in (("sigma_v", 1.0), ("sigma_a", 0.0)):
        if block != "full" and np.any(checked[name] != standard):
            raise ValueError(f"{name} goes with block='full' only: a {block} block has no "
                             f"{name[-1]}; got {name} = {sigmas[name]!r}")
    return checked


def check_inputs(p0: Any, gamma0: Any, mean0: Any = 0.0) -> tuple[float, float, float]:
    """Second moments and mean that two inputs can have, or ValueError."""
    p0 = _checks.real("p0", p0, low=0.0)
    if 0.0 < p0 < _SMALLEST_P0:
        raise ValueError(f"p0 must be 0 or at least {_SMALLEST_P0:g}, got {p0:g}")
    gamma0, mean0 = _checks.real("gamma0", gamma0), _checks.real("mean0", mean0)
    if abs(gamma0) > p0:
        raise ValueError(f"gamma0 must lie between -p0 and p0 = {p0:g}, got {gamma0:g}")
    if 2.0 * mean0**2 > (p0 + gamma0) * (1.0 + 1e-15):
        raise ValueError("mean0 must have a square of at most (p0 + gamma0) / 2 = "
                         f"{(p0 + gamma0) / 2:g}, got mean0 = {mean0:g}")
    return p0, gamma0, mean0
