"""fastspec: singular-value spectra of deep networks at random initialisation.

Describe a network (`ResNet`, `FeedForward`), let its signal propagate, ask for its spectrum: a
`SpectralLaw` with densities, quantiles, edges, atoms, moments and the condition number.
"""

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

from ._facade import condition_number, density
from ._kernels import status_message
from .activations import Activation, activation
from .blocks import Layer, Residual
from .chains import ChainLaw
from .errors import ConvergenceError, ConvergenceWarning, RangeWarning
from .laws import (
    BernoulliLimit,
    FussCatalan,
    PlainChain,
    ResNetLimit,
    SmoothLimit,
    Solution,
    SpectralLaw,
)
from .networks import FeedForward, ResNet
from .products import DiscreteLaw, ImplicitLaw, MarchenkoPastur

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "BernoulliLimit",
    "ChainLaw",
    "ConvergenceError",
    "ConvergenceWarning",
    "DiscreteLaw",
    "FeedForward",
    "FussCatalan",
    "ImplicitLaw",
    "Layer",
    "MarchenkoPastur",
    "PlainChain",
    "RangeWarning",
    "ResNet",
    "ResNetLimit",
    "Residual",
    "SmoothLimit",
    "Solution",
    "SpectralLaw",
    "activation",
    "condition_number",
    "density",
    "get_include",
    "get_library",
    "initialize",
    "meanfield",
    "plotting",
    "quadrature",
    "scaling",
    "signal",
    "simulate",
    "status_message",
]

_SUBMODULES = ("initialize", "jax", "meanfield", "plotting", "quadrature", "scaling",
               "signal", "simulate", "torch")


def get_include() -> str:
    """Folder of the C header ``fastspec.h``."""
    return str(_Path(__file__).parent / "include")


def get_library() -> str:
    """Folder of the static C library: link with ``-lfastspec -lm``."""
    return str(_Path(__file__).parent / "lib")


def __getattr__(name: str) -> _Any:
    if name in _SUBMODULES:
        return _import_module(f"fastspec.{name}")
    raise AttributeError(f"module 'fastspec' has no attribute {name!r}")
