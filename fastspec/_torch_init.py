"""Setting a module's weights so that its Jacobian has a wanted spectrum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import _checks
from ._extremes import log_ends, outliers_or_reason
from ._inverse import no_solution, one_target, solve
from ._root_search import STEP, Trials
from ._torch_describe import Network, columns, network_of, require_covered
from ._torch_draw import draw, set_
from ._torch_network import MixedNetwork, ModuleLayer, Part, relative_variance
from ._torch_parts import Structure, read_structure
from ._torch_residual import (
    ResidualPart,
    entering_moments,
    has_blocks,
    input_moments,
    residual_part,
)
from ._torch_steps import Problem
from .blocks import ENSEMBLES, weight_mean
from .initialize import gain, sigma_w_for
from .networks import ResNet

if TYPE_CHECKING:
    from .laws import SpectralLaw

__all__ = ["Initialisation", "LayerInitialisation", "init_"]

_FAR = math.log(1e-2)           # how far below its target a figure is where the search starts
_RESTS = 0.01                   # or, if it hardly changes with sigma_w, how far below
_FLOOR = -math.log(1e8)         # log sigma_w below which no start is sought


@dataclass(frozen=True)
class LayerInitialisation:
    """What one layer got.

    Attributes
    ----------
    path : str
        Name of the module.
    std : float
        Root mean square of its weights; for an orthogonal convolution only one tap is not 0.
    sigma_w, sigma_b : float
        fan_in Var(W_ij) = sigma_w^2 or W W^T = sigma_w^2 I; standard deviation of the biases.
    role : {"block", "stem", "head", "plain"}
        In a residual block; a plain layer before the residual part, after it, or any other.
    """

    path: str
    std: float
    sigma_w: float
    sigma_b: float
    role: str


@dataclass(frozen=True)
class Initialisation:
    """What `init_` has set, and the figures that it predicts.

    All but ``layers`` is about the residual part alone where there is a stem or head.

    Attributes
    ----------
    network : FeedForward, ResNet or MixedNetwork
        The network that the module, or its residual part, is now.
    layers : tuple of LayerInitialisation
        All of the module, in the order of the signal.
    sigma_w : float
        Of every layer of ``network``.
    weights : {"gaussian", "orthogonal"}
    c : float or None
        Effective cumulant; None if there are plain layers or skips of several sizes.
    variance : float
        Variance of the squared singular values over their mean squared.
    part : str
        Which part of the module ``network`` is; "" for all of it.
    notes : tuple of Problem
        What is assumed.
    """

    network: Network
    layers: tuple[LayerInitialisation, ...]
    sigma_w: float
    weights: str
    c: float | None
    variance: float
    part: str
    notes: tuple[Problem, ...]

    @cached_property
    def law(self) -> SpectralLaw:
        """Of the squared singular values; solved when it is first asked for."""
        return self.network.spectrum()

    @property
    def condition_number(self) -> float:
        """Of J, by the law."""
        return self.law.condition_number()

    @property
    def top_singular_value(self) -> float:
        """The largest: an outlier where one is known to stand above the law, else the law's end."""
        outliers, _ = outliers_or_reason(self.network, at_any_depth=True)
        return math.exp(0.5 * log_ends(self.law, outliers or ())[1])

    def __str__(self) -> str:
        figures = [f"sigma_w {self.sigma_w:.6g}", self.weights]
        if self.c is not None:
            figures.append(f"c {self.c:.4g}")
        figures += [f"condition number {self.condition_number:.4g}",
                    f"variance {self.variance:.4g}",
                    f"top singular value {self.top_singular_value:.4g}"]
        rows = [(layer.path or "(itself)", layer.role, f"{layer.std:.6g}", f"{layer.sigma_w:.6g}",
                 f"{layer.sigma_b:.6g}") for layer in self.layers]
        lines = [f"{self.part}:"] if self.part else []
        lines += [", ".join(figures), *columns(("path", "role", "std", "sigma_w", "sigma_b"), rows)]
        if self.notes:
            lines += ["notes:", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines)


def init_(
    module: nn.Module, *, condition_number: float | None = None, c: float | None = None,
    variance: float | None = None, top_singular_value: float | None = None,
    sigma_w: float | None = None, sigma_b: float = 0.0, weights: str = "gaussian",
    generator: torch.Generator | None = None, example: torch.Tensor | None = None,
) -> Initialisation:
    r"""Set weights and biases of a module in place, so that its Jacobian reaches a target.

    Give exactly one of condition_number, c, variance, top_singular_value (see
    `fastspec.initialize.sigma_w_for`) and sigma_w.

    Where one run of residual blocks has plain layers before or after it, as stem and head, a target
    is that of the run as a function of its own input. The plain layers then get biases 0 and
    sigma_w = `fastspec.initialize.gain` of their activation (orthogonal weights with more outputs
    than inputs: times the root of outputs over inputs): without activation, and with relu, it
    keeps the second moment of the signal. What the stem makes of it is reckoned with.

    Parameters
    ----------
    module : torch.nn.Module
        One that `describe` covers, its weights aside; or, with a target, one whose residual part
        is covered. There may be pooling, strides and activations outside of that part (the result's
        notes name them), but nothing that has parameters of its own.
    condition_number : float
        Of J's bulk at infinite width, > 1; single outliers (ReLU) are not counted: the result's
        ``network.outliers()`` has them.
    c : float
        Effective cumulant, > 0; residual blocks only.
    variance : float
        Variance of the squared singular values over their mean squared, > 0.
    top_singular_value : float
        > 0: an outlier where one is known to stand above the bulk, else the bulk's end.
    sigma_w : float
        > 0, the same for all layers of the module: Var(W_ij) = sigma_w^2 / fan_in.
    sigma_b : float
        Standard deviation of the biases, >= 0; 0 sets them to 0.
    weights : {"gaussian", "orthogonal"}
        Independent normal entries; or Haar-distributed with W W^T = sigma_w^2 I (W^T W where there
        are more outputs than inputs). Convolutions are delta-orthogonal: the orthogonal matrix
        stands at the middle tap, the others are 0 (Xiao et al. 2018), so that the layer itself is
        orthogonal, which `torch.nn.init.orthogonal_` does not give.
    generator : torch.Generator, optional
        Draws all numbers, on its device; the same generator state gives the same weights.
    example : Tensor, optional
        As in `describe`: what the module's inputs are like. By default mean 0, second moment 1.
        It is sent through the stem if there is one. Without an example the moments are followed
        through the stem; if it has pooling, they are taken to be 0 and 1 after it.

    Returns
    -------
    Initialisation
        The weights' standard deviations by path, and the predicted figures.

    Raises
    ------
    ValueError
        If the module is not covered (the message lists why), a parameter is out of range, not
        exactly one target is given, or nothing reaches it. The module is left as it was.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fastspec.torch as ft
    >>> class Block(nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.linear = nn.Linear(width, width)
    ...     def forward(self, x):
    ...         return x + torch.tanh(self.linear(x))
    >>> blocks = [Block(64) for _ in range(50)]
    >>> net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), *blocks, nn.Linear(64, 10))
    >>> result = ft.init_(net, condition_number=4, generator=torch.Generator().manual_seed(0))
    >>> print(result.part, round(result.condition_number, 9))
    the residual part, 2.linear to 51.linear 4.0
    >>> print([layer.role for layer in result.layers[:2]], round(result.layers[0].sigma_w, 6))
    ['stem', 'block'] 1.414214
    """
    targets = {"condition_number": condition_number, "c": c, "variance": variance,
               "top_singular_value": top_singular_value, "sigma_w": sigma_w}
    name, value = one_target(targets)
    sigma_b = _checks.real("sigma_b", sigma_b, low=0.0)
    _checks.choice("weights", weights, ENSEMBLES)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    structure = read_structure(module)
    part = residual_part(structure) if name != "sigma_w" else None
    _require_target_part(structure, part, name)
    parts = structure.parts if part is None else part.blocks
    notes = list(structure.notes if part is None else part.notes)
    _check_biases(parts, module, sigma_b)
    parts = tuple(replace(one, layers=tuple(replace(layer, weights=weights, sigma_b=sigma_b)
                                            for layer in one.layers)) for one in parts)
    stem = _plain(part.stem, weights) if part else ()
    head = _plain(part.head, weights) if part else ()
    new = draw(module, stem, generator)
    moments = (entering_moments(part, stem, example, notes, new) if part
               else input_moments(example))
    network = _network(parts, moments, name, value)
    inner = [(replace(layer, sigma_w=network.sigma_w), "block" if one.skip else "plain")
             for one in parts for layer in one.layers]
    set_(module, new)
    for layer in (*(layer for layer, _ in inner), *head):
        set_(module, draw(module, [layer], generator))
    layers = [*((layer, "stem") for layer in stem), *inner, *((layer, "head") for layer in head)]
    return Initialisation(
        network, tuple(_record(layer, role) for layer, role in layers), network.sigma_w, weights,
        _cumulant(network), _variance(network, [layer for layer, _ in inner]),
        part.name if part and not part.is_all else "", tuple(notes))


def _require_target_part(structure: Structure, part: ResidualPart | None, name: str) -> None:
    """ValueError if there is nothing whole that the target can be for."""
    if part is None and name != "sigma_w" and has_blocks(structure):
        raise ValueError("module has plain layers between residual blocks: initialise the residual "
                         f"part by itself to reach {name}, or give sigma_w")
    require_covered(structure.problems if part is None else part.problems)


def _check_biases(parts: tuple[Part, ...], module: nn.Module, sigma_b: float) -> None:
    without = [layer.path for part in parts for layer in part.layers
               if module.get_submodule(layer.path).bias is None]
    if sigma_b and without:
        raise ValueError(f"sigma_b = {sigma_b:g} needs biases, but {', '.join(without)} "
                         f"{'have' if len(without) > 1 else 'has'} none")


def _plain(layers: tuple[ModuleLayer, ...], weights: str) -> tuple[ModuleLayer, ...]:
    """Plain layers around the residual part, with weights that keep the second moment."""
    return tuple(
        replace(layer, weights=weights, sigma_w=gain(layer.activation)
                / math.sqrt(weight_mean(weights, layer.outputs / layer.inputs)))
        for layer in layers)


def _network(parts: tuple[Part, ...], moments: tuple[float, float], name: str,
             value: float) -> Network:
    """``parts``, which have sigma_w = 1, at the sigma_w that is given or reaches the target."""
    unit = network_of(parts, *moments)
    if name == "sigma_w":
        return replace(unit, sigma_w=value)
    if isinstance(unit, MixedNetwork):
        return replace(unit, sigma_w=solve(unit, name, value, start_of=_start))
    target: dict[str, Any] = {name: value}
    return replace(unit, sigma_w=sigma_w_for(unit, **target))


def _start(unit: MixedNetwork, name: str, value: float, trials: Trials) -> float:
    """log sigma_w from 1 down to where the figure is far below its target, or rests below it."""
    if name == "c":
        unit.common_skip()
    at, last = 0.0, math.nan
    while at > _FLOOR:
        level = trials(at)
        if level < _FAR or (level < -_RESTS and abs(level - last) < 0.1 * _RESTS):
            break
        at, last = at - 2.0 * STEP, level
    if trials(at) == math.inf:      # for the faintest weights, and so for all
        raise ValueError(no_solution(name, f"{name} = {value:g}", trials))
    return at


def _cumulant(network: Network) -> float | None:
    """None if there are plain layers or skips of several sizes."""
    if isinstance(network, MixedNetwork):
        skips = {abs(part.skip) for part in network.parts}
        return None if 0.0 in skips or len(skips) > 1 else network.effective_cumulant()
    return network.effective_cumulant() if isinstance(network, ResNet) else None


def _variance(network: Network, layers: Sequence[ModuleLayer]) -> float:
    """Variance of the squared singular values over their mean squared."""
    blocks = network.blocks()
    unit = blocks[0].width / layers[0].outputs      # of the widths
    return relative_variance(blocks, unit * layers[0].inputs)


def _record(layer: ModuleLayer, role: str) -> LayerInitialisation:
    rms = layer.fan_in**-0.5            # of the weights at sigma_w = 1
    if layer.weights == "orthogonal":
        rms = (max(layer.inputs, layer.outputs) * layer.fan_in / layer.inputs) ** -0.5
    return LayerInitialisation(layer.path, layer.sigma_w * rms, layer.sigma_w, layer.sigma_b, role)
