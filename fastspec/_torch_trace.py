"""A module's operations as a graph of torch.fx, with every module that cannot be traced named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

__all__ = ["ROOT", "Trace", "double_precision", "evaluating", "path_of", "trace"]

ROOT = "root."      # stands before the names that a traced module has for its parts

_LEAVES = ("torch.nn.", "torch.ao.nn.")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in eval mode; afterwards every submodule is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def double_precision(module: nn.Module, changed: Mapping[str, torch.Tensor] | None = None
                     ) -> Callable[[torch.Tensor], Any]:
    """The module as a function of its input in double precision, with some parameters changed;
    its own are left alone."""
    values = {**dict(module.named_parameters()), **dict(module.named_buffers()), **(changed or {})}
    state = {name: value.detach().double() if value.is_floating_point() else value
             for name, value in values.items()}
    return lambda x: torch.func.functional_call(module, state, (x,))


@dataclass(frozen=True)
class Trace:
    """The graph of a module, the module that its nodes refer to (`ROOT`), and the reasons why
    parts of it cannot be traced, by path."""

    graph: fx.Graph
    root: nn.Module
    failures: dict[str, str]

    def segment(self, start: fx.Node, stop: fx.Node) -> nn.Module:
        """A module with the same parameters that makes the value of ``stop`` from ``start``'s."""
        needed = {stop}
        for node in reversed(self.graph.nodes):
            if node in needed and node is not start:
                needed.update(node.all_input_nodes)
        if any(node.op == "placeholder" and node is not start for node in needed):
            raise ValueError("the residual part of module uses more than the signal that enters "
                             "it (a size of the module's input, say)")
        graph = fx.Graph()
        copies = {start: graph.placeholder("x")}
        for node in self.graph.nodes:
            if node in needed and node is not start:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(copies[stop])
        return fx.GraphModule(self.root, graph)


def trace(module: nn.Module) -> Trace:
    """The graph of ``module`` in eval mode.

    A module whose forward fails under tracing is taken as a whole, and tracing starts anew: each
    round names one more.
    """
    opaque: dict[str, str] = {}
    root = _Root(module)
    with evaluating(module):
        while True:
            tracer = _Tracer(opaque)
            try:
                graph = tracer.trace(root)
            except Exception:
                if tracer.failure is None:
                    raise
                path, error = tracer.failure
                opaque[path] = str(error).strip().split("\n")[0] or type(error).__name__
            else:
                failures = {_inside(path): reason for path, reason in opaque.items()}
                return Trace(graph, root, failures)


def path_of(node: fx.Node) -> str:
    """The submodule or parameter a node refers to; for a function, the module that calls it."""
    if node.op in ("call_module", "get_attr"):
        return _inside(str(node.target))
    callers = list(node.meta.get("nn_module_stack", {}).values())
    return _inside(callers[-1][0]) if callers else ""


def _inside(path: str) -> str:
    """A path of `_Root` as one of the module in it."""
    return path.partition(".")[2]


class _Root(nn.Module):
    """Calls the module, which is then a submodule like the others."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.root = module

    def forward(self, x: Any) -> Any:
        return self.root(x)


class _Tracer(fx.Tracer):
    """Goes into modules whose forward is not PyTorch's own, and into nn.Sequential."""

    def __init__(self, opaque: dict[str, str]) -> None:
        super().__init__()
        self.opaque = opaque
        self.failure: tuple[str, Exception] | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.opaque or isinstance(m, torch.jit.ScriptModule):
            return True
        forward = type(m).forward.__module__ or ""
        return forward.startswith(_LEAVES) and not isinstance(m, nn.Sequential)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            if self.failure is None:    # the innermost module
                self.failure = self.path_of_module(m), error
            raise
