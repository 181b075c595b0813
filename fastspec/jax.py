"""fastspec for JAX: initialisers for Flax, Haiku and the like (extra ``jax``).

    kernel_init = fastspec.jax.initializer(activation="gelu", depth=100, condition_number=4)
    flax.linen.Dense(512, kernel_init=kernel_init)

JAX is imported when an initialiser is made; fastspec itself never imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from . import _checks
from .blocks import ENSEMBLES
from .networks import FeedForward, ResNet

__all__ = ["initializer"]

Initializer = Callable[..., Any]


def initializer(
    net: ResNet | FeedForward | float | None = None, *, activation: Any = None,
    depth: int | None = None, weights: str | None = None, condition_number: float | None = None,
    c: float | None = None, variance: float | None = None,
    top_singular_value: float | None = None,
) -> Initializer:
    r"""Make an initialiser ``init(key, shape, dtype)`` of kernels.

    Parameters
    ----------
    net : ResNet, FeedForward or float, optional
        The network that the kernels are for; or sigma_w > 0 itself, fan_in Var(W_ij) = sigma_w^2.
    activation : str or Activation, optional
        Instead of ``net``, with ``depth``: stands for ``ResNet(depth, activation)``.
    depth : int, optional
        Number of residual blocks.
    weights : {"gaussian", "orthogonal"}, optional
        That of the network, or "gaussian", if not given.
    condition_number, c, variance, top_singular_value : float, optional
        At most one: the target that the network's sigma_w is chosen for
        (`fastspec.initialize.sigma_w_for`). Without one its sigma_w is taken as it is.

    Returns
    -------
    callable
        ``init(key, shape, dtype=float32)``. The last two axes of ``shape`` are inputs and outputs,
        those before them taps, as kernels have in Flax and Haiku (HWIO); fan_in is the number of
        taps times inputs. Gaussian: independent entries of variance sigma^2/fan_in,
        sigma^2 = ``net.weight_variance``. Orthogonal: Haar-distributed, K^T K = sigma^2 I for
        y = x K, or K K^T = sigma^2 I with more outputs than inputs; convolutions are
        delta-orthogonal, which is this at the middle tap and 0 at the others (Xiao et al. 2018).
        Works under `jax.jit` with static shapes.

    Raises
    ------
    ValueError
        If a parameter is out of range, both or neither of ``net`` and ``activation`` are given, or
        no sigma_w reaches the target; from ``init``, if ``shape`` is not that of a kernel.
    ImportError
        If JAX is missing.

    Notes
    -----
    Biases: zeros, or normal numbers of standard deviation ``net.sigma_b``.

    Examples
    --------
    >>> import jax
    >>> import fastspec.jax
    >>> init = fastspec.jax.initializer(activation="gelu", depth=100, condition_number=4)
    >>> kernel = init(jax.random.key(0), (512, 512))
    >>> print(kernel.shape, round(float(kernel.std() * 512**0.5), 3))
    (512, 512) 0.095
    """
    if weights is not None:
        _checks.choice("weights", weights, ENSEMBLES)
    targets = {name: value for name, value in (
        ("condition_number", condition_number), ("c", c), ("variance", variance),
        ("top_singular_value", top_singular_value)) if value is not None}
    sigma, ensemble = _sigma_and_weights(net, activation, depth, weights, targets)
    jax = _import_jax()

    def init(key: Any, shape: Sequence[int], dtype: Any = jax.numpy.float32) -> Any:
        _check_shape(shape)
        # Half precision is too coarse for the QR; the cast is the last step.
        working = jax.numpy.promote_types(dtype, jax.numpy.float32)
        if ensemble == "gaussian":
            kernel = jax.random.normal(key, shape, working) * (sigma / math.prod(shape[:-1])**0.5)
        else:
            middle = tuple((size - 1) // 2 for size in shape[:-2])
            haar = _haar(jax, jax.random.normal(key, shape[-2:], working))
            kernel = jax.numpy.zeros(shape, working).at[middle].set(sigma * haar)
        return kernel.astype(dtype)

    return init


def _sigma_and_weights(net: Any, activation: Any, depth: Any, weights: str | None,
                       targets: dict[str, Any]) -> tuple[float, str]:
    """Root of fan_in Var(W_ij), and the ensemble."""
    if (net is None) == (activation is None):
        raise ValueError("one of net and activation must be given, got "
                         + ("neither" if net is None else "both"))
    if (activation is None) != (depth is None):
        raise ValueError(f"activation and depth go together, got activation={activation!r}, "
                         f"depth={depth!r}")
    if activation is not None:
        net = ResNet(depth, activation)
    if not isinstance(net, ResNet | FeedForward):
        sigma_w = _checks.real("net (as sigma_w)", net, low=0.0, strict=True)
        if targets:
            raise ValueError(f"{', '.join(targets)} needs a network, got net={net!r}")
        return sigma_w, weights or "gaussian"
    if weights is not None:
        net = replace(net, weights=weights)
    if targets:
        from .initialize import sigma_w_for

        net = replace(net, sigma_w=sigma_w_for(net, **targets))
    return math.sqrt(net.weight_variance), net.weights


def _import_jax() -> ModuleType:
    try:
        import jax
        import jax.numpy  # noqa: F401 - a submodule that is used
    except ImportError as error:
        raise ImportError("fastspec.jax needs JAX: pip install 'fastspec[jax]'") from error
    return jax


def _check_shape(shape: Any) -> None:
    if not isinstance(shape, Sequence) or len(shape) < 2 or min(shape) < 1:
        raise ValueError("shape must be that of a kernel, (..., inputs, outputs) with sizes >= 1, "
                         f"got {shape!r}")


def _haar(jax: ModuleType, gaussian: Any) -> Any:
    """Orthonormal columns, or rows if there are more columns (Mezzadri 2007: signs of diag R)."""
    tall = gaussian.shape[0] >= gaussian.shape[1]
    q, r = jax.numpy.linalg.qr(gaussian if tall else gaussian.T)
    q = q * jax.numpy.where(jax.numpy.diagonal(r) < 0, -1.0, 1.0).astype(q.dtype)
    return q if tall else q.T
