"""PyTorch's activations as fastspec's, and names for the modules that are none of ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from .activations import Activation, activation

__all__ = ["Found", "from_function", "from_module", "kind_of_function", "kind_of_module",
           "reason_for_module"]


class Found(NamedTuple):
    """An activation, or None and the reason why it is not covered; a remark otherwise."""

    activation: Activation | None
    remark: str = ""


# PyTorch's name: fastspec's name, and PyTorch's parameters with their defaults.
_KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("relu", {}),
    "leaky_relu": ("leaky_relu", {"negative_slope": 0.01}),
    "hardtanh": ("hard_tanh", {"min_val": -1.0, "max_val": 1.0}),
    "clamp": ("hard_tanh", {"min": None, "max": None}),
    "tanh": ("tanh", {}),
    "sigmoid": ("sigmoid", {}),
    "softplus": ("softplus", {"beta": 1.0}),
    "silu": ("silu", {}),
    "gelu": ("gelu", {"approximate": "none"}),
    "elu": ("elu", {"alpha": 1.0}),
    "selu": ("selu", {}),
    "mish": ("mish", {}),
    "softsign": ("softsign", {}),
    "sin": ("sin", {}),
    "erf": ("erf", {}),
    "atan": ("arctan", {}),
    "arctan": ("arctan", {}),
}
_MODULES: dict[Any, str] = {
    nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.Hardtanh: "hardtanh", nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid", nn.Softplus: "softplus", nn.SiLU: "silu", nn.GELU: "gelu",
    nn.ELU: "elu", nn.SELU: "selu", nn.Mish: "mish", nn.Softsign: "softsign",
}
# Files of torch.nn.modules: what their modules are.
_KINDS = {
    "batchnorm": "normalisation", "instancenorm": "normalisation",
    "normalization": "normalisation", "pooling": "pooling", "transformer": "attention",
    "rnn": "recurrent", "sparse": "embedding", "conv": "convolution",
    "activation": "activation", "padding": "padding", "upsampling": "upsampling",
    "linear": "linear",
}
_REASONS = {
    "normalisation": "rescales the signal by its own statistics (fastspec.ResNet has batch_norm= "
                     "for the law with the batch's statistics held fixed)",
    "pooling": "mixes positions without random weights",
    "attention": "mixes positions by weights that depend on the input",
    "recurrent": "uses its weights many times; the law needs independent layers",
    "embedding": "has no Jacobian with respect to its input",
    "convolution": "is not covered; Conv1d, Conv2d and Conv3d are",
    "activation": "is not an activation that fastspec knows by this name; known are "
                  + ", ".join(kind.__name__ for kind in _MODULES),
}
_FUNCTION_HINTS = {"norm": "normalisation", "pool": "pooling", "mean": "pooling",
                   "attention": "attention"}


def from_module(module: nn.Module) -> Found | None:
    """The activation that a module of torch.nn is; None if it is none of the known ones."""
    for kind, name in _MODULES.items():
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return _find(name, {key: getattr(module, key) for key in _KNOWN[name][1]})
    return None


def from_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | None:
    """The same for a function or method of tensors, from its arguments after the tensor."""
    name = name.rstrip("_")
    if name not in _KNOWN:
        return None
    given = {**dict(zip(_KNOWN[name][1], args, strict=False)), **kwargs}
    return _find(name, {key: given.get(key, default) for key, default in _KNOWN[name][1].items()})


def _find(name: str, params: dict[str, Any]) -> Found:
    ours = _KNOWN[name][0]
    if name == "leaky_relu":
        return Found(activation(ours, slope=float(params["negative_slope"])))
    if name == "elu":
        alpha = float(params["alpha"])
        if not alpha > 0.0:
            return Found(None, f"elu with alpha={alpha:g} is not covered; alpha > 0 is")
        return Found(activation(ours, alpha=alpha))
    if ours == "hard_tanh" and tuple(params.values()) != (-1.0, 1.0):
        low, high = params.values()
        return Found(None, f"a ramp from {low} to {high} is not covered; from -1 to 1 is")
    if name == "softplus" and params["beta"] != 1.0:
        return Found(None, f"softplus with beta={params['beta']:g} is not covered; beta=1 is")
    if name == "gelu" and params["approximate"] != "none":
        return Found(activation(ours), "approximate='tanh' is taken as the exact GELU; they differ "
                     "by less than 5e-4")
    return Found(activation(ours))


def kind_of_module(module: nn.Module) -> str:
    """What a module is, in one word."""
    if isinstance(module, nn.MultiheadAttention):
        return "attention"
    for base in type(module).__mro__:
        place, _, file = base.__module__.rpartition(".")
        if place == "torch.nn.modules" and file in _KINDS:
            return _KINDS[file]
    return "module"


def reason_for_module(module: nn.Module) -> str:
    """Why the law does not cover a module of torch.nn."""
    reason = _REASONS.get(kind_of_module(module), "is not covered")
    if hasattr(module, "_orig_mod"):
        reason = "is compiled; give the module that it was compiled from (its _orig_mod)"
    elif type(module).forward is nn.Module.forward:
        reason = "has no forward; nn.Sequential(*layers) makes a chain of a list of layers"
    return f"{type(module).__name__} {reason}"


def kind_of_function(name: str) -> str:
    """What a function that is not covered is, in one word."""
    for hint, kind in _FUNCTION_HINTS.items():
        if hint in name:
            return kind
    return "operation"
