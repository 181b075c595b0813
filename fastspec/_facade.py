"""One-line answers for a network or a law."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from .laws import SpectralLaw
from .networks import FeedForward, ResNet

__all__ = ["condition_number", "density"]


def _law_of(thing: SpectralLaw | FeedForward | ResNet) -> SpectralLaw:
    if isinstance(thing, SpectralLaw):
        return thing
    if isinstance(thing, FeedForward | ResNet):
        return thing.spectrum()
    raise ValueError(f"net_or_law must be a network or a law, got {type(thing).__name__}")


def density(lam: ArrayLike, net_or_law: SpectralLaw | FeedForward | ResNet) -> Any:
    """Spectral density of J J^T at the squared singular values ``lam``.

    Parameters
    ----------
    lam : array_like of float
    net_or_law : network or law
        A network answers by its exact law; pass ``net.spectrum(limit=True)`` for the limit law.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> import fastspec as fs
    >>> relu = fs.FeedForward(depth=2, activation="relu", sigma_w=2**0.5)
    >>> print(f"{fs.density(1.0, relu):.6f}")
    0.096494
    """
    return _law_of(net_or_law).pdf(lam)


def condition_number(net_or_law: SpectralLaw | FeedForward | ResNet,
                     coverage: float = 1.0) -> float:
    """Condition number of J (`SpectralLaw.condition_number`) of a network or a law.

    Examples
    --------
    >>> import fastspec as fs
    >>> print(round(fs.condition_number(fs.ResNetLimit(0.5)), 3))
    8.008
    """
    return _law_of(net_or_law).condition_number(coverage)
