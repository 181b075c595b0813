"""A module as the steps that its input goes through.

The value of a node of the graph is the chain of steps that made it from the input. Where two
values are added their chains part somewhere; if one of them only multiplies by constants after
that, the sum is a residual block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from ._torch_activations import (
    Found,
    from_function,
    from_module,
    kind_of_function,
    kind_of_module,
    reason_for_module,
)
from ._torch_steps import (
    Chain,
    Flatten,
    Nonlinearity,
    Problem,
    Scale,
    Sum,
    Unknown,
    Weights,
)
from ._torch_trace import Trace, path_of, trace

__all__ = ["Reading", "read_steps"]

_IDENTITIES = ("contiguous", "clone", "float", "double")
_SIGNS = {"add": 1.0, "iadd": 1.0, "sub": -1.0, "isub": -1.0}
_PRODUCTS = ("mul", "imul", "multiply")
_QUOTIENTS = ("truediv", "itruediv", "div", "true_divide")
_IN_PLACE = ("iadd", "isub", "imul", "itruediv")
_FACTS = ("shape", "dtype", "device", "ndim")   # about the signal, not the signal


@dataclass(frozen=True)
class Reading:
    """The steps from input to output, what is not covered, remarks, and where they come from."""

    chain: Chain
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    trace: Trace
    values: dict[fx.Node, Any]

    def segment(self, start: int, stop: int) -> nn.Module:
        """What the steps from ``start`` to before ``stop`` do, as a module."""
        return self.trace.segment(self._node(start), self._node(stop))

    def _node(self, count: int) -> fx.Node:
        """The first node after ``count`` steps; all that come later depend on it."""
        return next(node for node, value in self.values.items() if value == self.chain[:count])


def read_steps(module: nn.Module) -> Reading:
    """The steps of a module."""
    found = trace(module)
    reader = _Reader(module, found)
    chain = reader.read(found.graph)
    return Reading(chain, tuple(reader.problems), tuple(reader.notes), found, reader.values)


class _Reader:
    """Goes through the nodes of a graph; a value is a chain, a constant, or None for the rest."""

    def __init__(self, module: nn.Module, found: Trace) -> None:
        self.root, self.failures, self.owner = module, found.failures, found.root
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.values: dict[fx.Node, Chain | float | None] = {}
        self._users: dict[int, str] = {}    # of weights, by id

    def read(self, graph: fx.Graph) -> Chain:
        """The chain of the output."""
        for node in _used(graph):
            if node.op == "placeholder":
                self.values[node] = ()
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "call_module":
                self.values[node] = self._module(node)
            elif node.op != "output":
                self.values[node] = self._operation(node)
        self._check_in_place(graph)
        result = self._value(next(reversed(graph.nodes)).args[0])
        if isinstance(result, tuple):
            return result
        self.problems.append(Problem("", "output", "must be one tensor that depends on the input"))
        return (Unknown(),)

    def _check_in_place(self, graph: fx.Graph) -> None:
        """What is changed in place must not be used again: the graph does not know."""
        place = {node: number for number, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            if _is_in_place(node, self.root) and any(
                    place[user] > place[node] for user in node.args[0].users):
                self.problems.append(Problem(path_of(node), "in place", "changes a value in place "
                                             "that is used again"))

    def _value(self, argument: Any) -> Chain | float | None:
        if isinstance(argument, fx.Node):
            return self.values[argument]
        if isinstance(argument, int | float) and not isinstance(argument, bool):
            return float(argument)
        return None

    def _unknown(self, before: Chain, path: str, kind: str, reason: str,
                 has_parameters: bool = False) -> Chain:
        self.problems.append(Problem(path, kind, reason))
        return (*before, Unknown(has_parameters, problems=(self.problems[-1],)))

    def _attribute(self, node: fx.Node) -> float | None:
        """The value of a parameter or buffer that is one number."""
        path, value = path_of(node), self._held(node)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.is_meta:
            return None
        if isinstance(value, nn.Parameter):
            self.notes.append(Problem(path, "multiplier", "a parameter, taken at its present "
                                      f"value {value.item():g}"))
        return float(value.item())

    def _held(self, node: fx.Node) -> Any:
        """What a node reads from the module."""
        owner, _, name = str(node.target).rpartition(".")
        return getattr(self.owner.get_submodule(owner), name)

    def _takes_parameters(self, node: fx.Node) -> bool:
        """Whether parameters go into an operation other than by the signal."""
        return any(isinstance(self._held(other), nn.Parameter) if other.op == "get_attr"
                   else self._takes_parameters(other) for other in node.all_input_nodes
                   if not isinstance(self.values[other], tuple))

    def _module(self, node: fx.Node) -> Chain:
        path = path_of(node)
        before = self._value(node.args[0] if node.args else None)
        if not isinstance(before, tuple):
            return self._unknown((), path, "input", "its input is not followed from the "
                                 "module's input")
        module = self.root.get_submodule(path)
        if path in self.failures or isinstance(module, torch.jit.ScriptModule):
            why = self.failures.get(path, "it is compiled by torch.jit")
            return self._unknown(before, path, "untraceable",
                                 f"torch.fx cannot trace {type(module).__name__}: {why}")
        if module._forward_hooks or module._forward_pre_hooks:
            self.notes.append(Problem(path, "hook", "has forward hooks; taken not to change the "
                                      "signal"))
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return self._weights(path, module, before)
        if isinstance(module, nn.Identity):
            return before
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return self._dropout(path, type(module).__name__, before)
        if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            return (*before, Flatten())
        found = from_module(module)
        if found is not None:
            return self._activation(path, found, before)
        return self._unknown(before, path, kind_of_module(module), reason_for_module(module),
                             any(True for _ in module.parameters()))

    def _weights(self, path: str, module: Any, before: Chain) -> Chain:
        reason = _unreadable(module)
        if reason:
            return self._unknown(before, path, "weights", reason)
        known = len(self.problems)
        if id(module.weight) in self._users:
            self.problems.append(Problem(path, "shared weights", "uses the weights of "
                                         f"{self._users[id(module.weight)]!r} again; the law "
                                         "needs independent layers"))
        self._users[id(module.weight)] = path
        if not isinstance(module, nn.Linear):
            self._check_convolution(path, module)
        return (*before, Weights(path, module, problems=tuple(self.problems[known:])))

    def _check_convolution(self, path: str, module: Any) -> None:
        name = type(module).__name__
        if any(stride != 1 for stride in module.stride):
            self.problems.append(Problem(path, "stride", f"{name} with stride {module.stride} "
                                         "leaves out positions; the law needs stride 1"))
        if module.groups != 1:
            self.problems.append(Problem(path, "groups", f"{name} with {module.groups} groups "
                                         "joins some channels only; the law needs groups=1"))
        if not _keeps_positions(module):
            self.problems.append(Problem(path, "padding", f"{name} changes the number of "
                                         "positions; the law needs as many outputs as inputs"))
        elif module.padding_mode != "circular" and max(module.kernel_size) > 1:
            self.notes.append(Problem(path, "padding", f"padding_mode={module.padding_mode!r}: "
                                      "positions at the border differ; the law is that of circular "
                                      "padding"))

    def _activation(self, path: str, found: Found, before: Chain) -> Chain:
        if found.activation is None:
            return self._unknown(before, path, "activation", found.remark)
        if found.remark:
            self.notes.append(Problem(path, "activation", found.remark))
        return (*before, Nonlinearity(path, found.activation))

    def _dropout(self, path: str, name: str, before: Chain) -> Chain:
        self.notes.append(Problem(path, "dropout", f"{name} is the identity in eval mode, which "
                                  "the law describes; in training it changes the law"))
        return before

    def _operation(self, node: fx.Node) -> Chain | float | None:
        """A function or a method of tensors."""
        name, path = _name(node).rstrip("_"), path_of(node)
        args = [*node.args, *(node.kwargs[key] for key in ("input", "other")
                              if key in node.kwargs)]
        values = [self._value(argument) for argument in args[:2]]
        first = next((value for value in values if isinstance(value, tuple)), None)
        if first is None or (name == "getattr" and args[1] in _FACTS) or name in ("size", "dim"):
            return None
        if name == "getitem" and first and isinstance(first[-1], Unknown):
            return first    # one of several outputs of a module that is named already
        found = from_function(name, tuple(args[1:]), node.kwargs)
        if found is not None:
            return self._activation(path, found, first)
        if name in _SIGNS and len(values) == 2:
            alpha = self._value(node.kwargs.get("alpha", 1.0))
            sign = _SIGNS[name] * (alpha if isinstance(alpha, float) else math.nan)
            return self._sum(path, values[0], values[1], sign)
        if name in (*_PRODUCTS, *_QUOTIENTS, "neg") and values:
            return self._product(path, name, values, first)
        if name in _IDENTITIES:
            return first
        if "dropout" in name and not _argument(node, 2, "training", True):
            return self._dropout(path, name, first)
        if _is_flattening(name, node):
            return (*first, Flatten())
        return self._unknown(first, path, kind_of_function(name),
                             f"the function {name} is not covered", self._takes_parameters(node))

    def _product(self, path: str, name: str, values: list[Any], first: Chain) -> Chain:
        factor = -1.0 if name == "neg" else None
        if len(values) == 2:
            other = values[1] if values[0] is first else values[0]
            if isinstance(other, float) and name in _PRODUCTS:
                factor = other
            elif isinstance(other, float) and values[0] is first and other != 0.0:
                factor = 1.0 / other
        if factor is None:
            return self._unknown(first, path, "product", "only multiplication and division by one "
                                 "constant number are covered")
        return self._scaled(path, first, factor)

    def _scaled(self, path: str, chain: Chain, factor: float) -> Chain:
        if factor == 0.0 or not math.isfinite(factor):
            return self._unknown(chain, path, "product", f"the factor is {factor:g}")
        return chain if factor == 1.0 else (*chain, Scale(factor))

    def _sum(self, path: str, left: Any, right: Any, sign: float) -> Chain:
        """left + sign right."""
        if not (isinstance(left, tuple) and isinstance(right, tuple)):
            signal, other = (left, right) if isinstance(left, tuple) else (right, left)
            if other == 0.0 and (signal is left or sign == 1.0):
                return signal   # Python's sum() begins with 0
            return self._unknown(signal, path, "sum", "adds something that does not come from the "
                                 "module's input")
        right = right if sign == 1.0 else self._scaled(path, right, sign)
        common = _common_steps(left, right)
        skip, branch = left[common:], right[common:]
        if _factor(skip) is None:
            skip, branch = branch, skip
        factor = _factor(skip)
        if factor is None:
            return self._unknown(left[:common], path, "residual", "both terms of a sum carry "
                                 "weights or activations (a projection in the skip, or branches "
                                 "in parallel); the law needs skip x + branch(x)")
        other = _factor(branch)
        if other is not None:
            return self._scaled(path, left[:common], factor + other)
        return (*left[:common], Sum(path, factor, branch))


def _used(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that the output depends on, in order."""
    used: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op in ("output", "placeholder") or used.intersection(node.users):
            used.add(node)
    return [node for node in graph.nodes if node in used]


def _is_in_place(node: fx.Node, root: nn.Module) -> bool:
    if not node.args or not isinstance(node.args[0], fx.Node):
        return False
    if node.op == "call_module":
        return bool(getattr(root.get_submodule(path_of(node)), "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    name = _name(node)
    return (name.endswith("_") and not name.endswith("__") or bool(node.kwargs.get("inplace"))
            or (name in _IN_PLACE and node.op == "call_function"))


def _common_steps(left: Chain, right: Chain) -> int:
    """How many steps two chains begin with together."""
    count = 0
    while count < min(len(left), len(right)) and left[count] is right[count]:
        count += 1
    return count


def _factor(steps: Chain) -> float | None:
    """The constant that steps multiply by; None if they do anything else."""
    if not all(isinstance(step, Scale) for step in steps):
        return None
    return math.prod(step.factor for step in steps if isinstance(step, Scale))


def _unreadable(module: Any) -> str:
    """Why the weights of a Linear or Conv cannot be read and set; empty if they can."""
    name = type(module).__name__
    for parameter in ("weight", "bias"):
        if parameter not in module._parameters:
            return f"the {parameter} of {name} is computed from other parameters"
    weight = module.weight
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return f"{name} has no weights yet: run the module once"
    if weight.is_meta:
        return "the weights have no values (device meta)"
    if not weight.is_floating_point():
        return f"the weights must be real floating point numbers, got {weight.dtype}"
    return ""


def _keeps_positions(module: Any) -> bool:
    """Whether a convolution of stride 1 has as many positions at its output as at its input."""
    if module.padding == "same":
        return True
    padding = (0,) * len(module.kernel_size) if module.padding == "valid" else module.padding
    return all(2 * pad == dilation * (size - 1) for pad, size, dilation in
               zip(padding, module.kernel_size, module.dilation, strict=True))


def _name(node: fx.Node) -> str:
    """The name of a function of torch, operator or builtins, or of a method of tensors.

    Functions of others have their module in front, so that they are not mistaken.
    """
    if node.op == "call_method":
        return str(node.target)
    place = str(getattr(node.target, "__module__", ""))
    name = str(getattr(node.target, "__name__", node.target))
    if place in ("_operator", "builtins", "torch") or place.startswith("torch."):
        return name
    return f"{place}.{name}"


def _argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    """What a function was called with, by position or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _is_flattening(name: str, node: fx.Node) -> bool:
    """flatten(x, 1), x.view(n, -1), x.reshape(n, -1)."""
    if name == "flatten":
        return (_argument(node, 1, "start_dim", 0), _argument(node, 2, "end_dim", -1)) == (1, -1)
    if name not in ("view", "reshape"):
        return False
    args = node.args
    shape: Any = args[1] if len(args) == 2 and isinstance(args[1], tuple | list) else args[1:]
    return len(shape) == 2 and shape[1] == -1
