"""Second moments of signals, gradients and weight gradients of a module, measured by hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ._torch_ops import does_not_take, numbered

__all__ = ["Call", "Loss", "Reinit", "batch_moments", "measure_calls"]

Reinit = Callable[[nn.Module], Any]
Loss = Callable[[Any], torch.Tensor]


@dataclass
class Call:
    """One use of a module: sums over seeds of second moments (means of squares over a batch).

    Attributes
    ----------
    module : nn.Module
        Of the last seed.
    sums : dict
        "input", "input_gradient", "output", "output_gradient", "weight", "weight_gradient",
        whichever could be measured.
    n_in, n_out : float
        Entries of its input and of its output for one input of the module.
    first : bool
        Whether it is the first use of its module.
    """

    module: nn.Module
    n_in: float
    n_out: float = 0.0
    first: bool = True
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, value: torch.Tensor, factor: float = 1.0) -> None:
        """Add the mean square of ``value`` times ``factor``."""
        square = factor * float(value.detach().double().square().mean())
        self.sums[key] = self.sums.get(key, 0.0) + square


def batch_moments(batch: torch.Tensor) -> dict[str, float]:
    """E[x^2], E[x], and E[x x'] / E[x^2] at two positions, of flat inputs at two inputs.

    They are arguments of `fastspec.scaling.analyze`.
    """
    x = batch.double().flatten(2) if batch.dim() > 2 else batch.double().T.unsqueeze(0)
    second, mean, count = float(x.square().mean()), float(x.mean()), x.shape[-1]
    least = mean**2 / second if second else 0.0
    if count == 1 or not second:
        return {"input_second_moment": second, "input_mean": mean}
    pairs = float(x.sum(-1).square().mean()) - count * second
    correlation = min(max(pairs / (count * (count - 1) * second), least), 1.0)
    return {"input_second_moment": second, "input_mean": mean, "input_correlation": correlation}


def measure_calls(module: nn.Module, batch: torch.Tensor, seeds: int, seed: int,
                  reinit: Reinit | None, loss: Loss | None) -> tuple[dict[str, Call], Call]:
    """Calls of the modules without children by name, and one for the module as a whole.

    Each seed is one forward and one backward pass of a copy in training mode with new weights.
    """
    calls: dict[str, Call] = {}
    whole = Call(module, batch[0].numel())
    # Not the seeds themselves: the user may have drawn the batch with one of them.
    states = np.random.SeedSequence(seed).generate_state(seeds)
    device = next((p.device for p in module.parameters()), batch.device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        for state in states:
            torch.manual_seed(int(state))
            net = _copy(module)
            _redraw(net) if reinit is None else reinit(net)
            _pass(net, batch, loss, calls, whole)
    return calls, whole


def _redraw(module: nn.Module) -> None:
    """New normal weights of all layers, each with the second moment that its weights have."""
    with torch.no_grad():
        for part in module.modules():
            weight = part._parameters.get("weight")
            if weight is not None and weight.dim() > 1:
                rms = weight.double().square().mean().sqrt()
                weight.copy_(torch.randn_like(weight) * rms)


def _copy(module: nn.Module) -> nn.Module:
    """In training mode, in single precision at least, nothing frozen or done in place."""
    net = copy.deepcopy(module).train()
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in net.parameters()):
        net = net.float()
    for part in net.modules():
        if getattr(part, "inplace", False) is True:
            setattr(part, "inplace", False)  # noqa: B010 - not a field of every Module
    for parameter in net.parameters():
        parameter.grad = None
        parameter.requires_grad_(parameter.is_floating_point())
    return net


def _pass(net: nn.Module, batch: torch.Tensor, loss: Loss | None, calls: dict[str, Call],
          whole: Call) -> None:
    """One forward and one backward pass, added to the sums."""
    x = batch.clone().to(torch.promote_types(batch.dtype, torch.float32)).requires_grad_()
    here: dict[str, Call] = {}
    whole.add("input", x)
    with _hooked(net, calls, here, len(batch)):
        try:
            output = net(x.clone())     # a copy, which the module may work on in place
        except Exception as error:
            raise ValueError(does_not_take(batch, error)) from error
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: whole.add("output_gradient", gradient))
        _backward(output, loss, len(batch))
    for call in here.values():
        _weight_sums(call, len(batch))


def _backward(output: Any, loss: Loss | None, inputs: int) -> None:
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ValueError("loss must return one number as a tensor that depends on the output, "
                             f"got {value!r}")
        value.backward()
        return
    if not isinstance(output, torch.Tensor) or not output.dim() or len(output) != inputs:
        raise ValueError("module must return one tensor whose first dimension is the batch, got "
                         + (f"shape {tuple(output.shape)}" if isinstance(output, torch.Tensor)
                            else f"{type(output).__name__}; give loss= to say what of it counts"))
    if not output.requires_grad:
        raise ValueError("the output of module does not depend on its weights or input")
    output.backward(torch.randn_like(output))


@contextmanager
def _hooked(net: nn.Module, calls: dict[str, Call], here: dict[str, Call], inputs: int
            ) -> Iterator[None]:
    """Hooks on the modules without children that add to ``calls``; those of this pass are put in
    ``here``."""
    counts: dict[str, int] = {}
    names: dict[nn.Module, str] = {}
    handles = []

    def enter(part: nn.Module, args: tuple[Any, ...]) -> Any:
        if not args or not isinstance(args[0], torch.Tensor) or not args[0].is_floating_point():
            names.pop(part, None)
            return None
        name = names[part] = numbered(paths[part], counts)
        here[name] = call = calls.setdefault(name, Call(part, args[0].numel() / inputs))
        call.module, call.first = part, name == numbered(paths[part], {})
        # An alias: its gradient is what comes through this module alone.
        x = args[0].view_as(args[0])
        call.add("input", x)
        if x.requires_grad:
            x.register_hook(lambda gradient: call.add("input_gradient", gradient))
        return (x, *args[1:])

    def leave(part: nn.Module, _: Any, output: Any) -> None:
        if part not in names or not isinstance(output, torch.Tensor):
            return
        call = here[names[part]]
        call.n_out = output.numel() / inputs
        call.add("output", output)
        if output.requires_grad:
            output.register_hook(lambda gradient: call.add("output_gradient", gradient))

    paths = {part: path for path, part in net.named_modules() if not any(part.children())}
    for part in paths:
        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _weight_sums(call: Call, inputs: int) -> None:
    """Of the first use of a module: its weights, and their gradient for one input.

    The gradient for a batch is a sum over inputs, whose second moments add up as their output
    gradients are independent of each other.
    """
    weight = call.module._parameters.get("weight")
    if weight is not None and weight.dim() > 1 and weight.grad is not None and call.first:
        call.add("weight", weight)
        call.add("weight_gradient", weight.grad, 1.0 / inputs)
