"""A module as the operations of `fastspec.scaling`, read by torch.fx with an example's shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from . import _scaling_ops as so
from ._torch_activations import Found, kind_of_function, kind_of_module
from ._torch_describe import require_covered
from ._torch_graph import (
    _SIGNS,
    _argument,
    _common_steps,
    _factor,
    _name,
    _Reader,
    _unreadable,
)
from ._torch_op_makers import FUNCTIONS, MODULES, Maker, Place, Refused, check_shapes
from ._torch_steps import Chain, Problem, Scale, Step, Unknown
from ._torch_trace import Trace, evaluating, path_of, trace

__all__ = ["Operations", "check_batch", "does_not_take", "every_op", "numbered", "ops_of"]

_EXPLAINED = ("untraceable", "input", "activation", "dropout")


@dataclass(frozen=True)
class Operations:
    """What `ops_of` found.

    Attributes
    ----------
    ops : tuple of fastspec.scaling operations
        In the order of the signal, named by the paths of their modules; empty if there are
        problems. Functions are named by the module that calls them, as in ``"block.cat()"``.
    input_shape : tuple of int
        Of one input: (channels, height, width) or (n,).
    problems : tuple of Problem
        What is no operation of the calculus: path, kind, reason.
    notes : tuple of Problem
        What is assumed.
    """

    ops: tuple[so.Op, ...]
    input_shape: tuple[int, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]

    def require(self) -> tuple[so.Op, ...]:
        """The operations.

        Raises
        ------
        ValueError
            If there are problems; the message lists them.
        """
        require_covered(self.problems)
        return self.ops


def ops_of(module: nn.Module, example: torch.Tensor) -> Operations:
    """The operations of a module, for `fastspec.scaling.analyze`.

    Covered are Linear and Conv2d, activations, Dropout, average and maximum pooling (adaptive where
    all windows are equal), nearest-neighbour upsampling, every k-th row and column by slices,
    Flatten, BatchNorm, LayerNorm over all of an input, concatenation of channels, multiplication by
    constants and sums alpha shortcut(x) + beta main(x), in modules nested any way.

    Parameters
    ----------
    module : torch.nn.Module
        It is not changed. Its forward is traced by torch.fx, in eval mode.
    example : Tensor, shape (inputs, ...)
        A batch that the module takes; its shapes tell what adaptive pooling and views do, its size
        what a BatchNorm averages over. A tensor of one dimension is one input.

    Returns
    -------
    Operations
        Everything that is not covered is listed in ``problems``.

    Raises
    ------
    ValueError
        If ``module`` is no module, or does not take ``example``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fastspec.torch as ft
    >>> net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> for op in ft.ops_of(net, torch.zeros(1, 8)).require():
    ...     print(op)
    Linear(name='0', n_in=8, n_out=4, bias=True)
    ReLU(name='1')
    Linear(name='2', n_in=4, n_out=2, bias=True)
    >>> net = nn.Sequential(*net, nn.Unflatten(1, (1, 2)))
    >>> print(ft.ops_of(net, torch.zeros(1, 8)).problems[0])
    3: module: Unflatten is no operation of the scaling calculus
    """
    batch = check_batch(module, example, "example")
    found = trace(module)
    reader = _OpsReader(module, found, _shapes(module, found, batch), tuple(batch.shape))
    chain = reader.read(found.graph)
    problems = list(reader.problems)
    if not problems:
        problems = [*_repeated(_ops(chain)), *_not_flat(tuple(batch.shape[1:]))]
    return Operations(() if problems else _ops(chain), tuple(batch.shape[1:]), tuple(problems),
                      tuple(reader.notes))


def check_batch(module: Any, batch: Any, name: str) -> torch.Tensor:
    """``batch`` as a batch of real numbers for a module, or ValueError."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    lazy = [path for path, part in module.named_modules()
            if isinstance(part, nn.modules.lazy.LazyModuleMixin)]
    if lazy:
        raise ValueError(f"module has no weights yet at {', '.join(lazy)}: run it once")
    if not isinstance(batch, torch.Tensor) or not batch.is_floating_point() or not batch.numel():
        raise ValueError(f"{name} must be a tensor of real floating point numbers, got "
                         + (f"{batch.dtype}, shape {tuple(batch.shape)}"
                            if isinstance(batch, torch.Tensor) else type(batch).__name__))
    if batch.dim() == 0 or not bool(torch.isfinite(batch).all()):
        raise ValueError(f"{name} must be finite and have at least one dimension")
    return batch.detach().unsqueeze(0) if batch.dim() == 1 else batch.detach()


def numbered(path: str, counts: dict[str, int]) -> str:
    """A name of its own for each use of a path: "relu", "relu (2)", ..."""
    path = path or "(itself)"
    counts[path] = counts.get(path, 0) + 1
    return path if counts[path] == 1 else f"{path} ({counts[path]})"


@dataclass(frozen=True, eq=False)
class _Made(Step):
    """An operation of `fastspec.scaling`."""

    op: so.Op


@dataclass(frozen=True, eq=False)
class _Constant(Scale, _Made):
    """A constant, which a sum reads as its own if it comes last."""


def _ops(chain: Chain) -> tuple[so.Op, ...]:
    return tuple(step.op for step in chain if isinstance(step, _Made))


def every_op(ops: Sequence[so.Op]) -> Iterator[so.Op]:
    """The operations and those inside their branches."""
    for op in ops:
        yield op
        for branch in so.branches_of(op).values():
            yield from every_op(branch)


def _repeated(ops: Sequence[so.Op]) -> list[Problem]:
    """What stands in two branches, though it is computed once: branches that cross."""
    names = [op.name for op in every_op(ops)]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [Problem(name, "branches", "is in branches that cross; only those that part and join "
                    "again inside each other are covered") for name in twice]


def _not_flat(shape: tuple[int, ...]) -> list[Problem]:
    if len(shape) in (1, 3):
        return []
    return [Problem("", "input", f"an input must have the shape (n,) or (channels, height, width), "
                    f"got {shape}")]


def _shapes(module: nn.Module, found: Trace, batch: torch.Tensor) -> dict[fx.Node, so.Shape]:
    """The shape of every value of the graph that is a tensor."""
    recorder = _ShapeRecorder(found.root, graph=found.graph)
    with evaluating(module), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            recorder.run(batch.clone())
        except Exception as error:
            raise ValueError(does_not_take(batch, error)) from error
    return recorder.shapes


def does_not_take(batch: torch.Tensor, error: Exception) -> str:
    """What is wrong when a module fails on a batch."""
    first = str(error).strip().split("\n")[0]
    return f"module does not take a batch of shape {tuple(batch.shape)}: {first}"


class _ShapeRecorder(fx.Interpreter):
    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__(root, graph=graph)
        self.shapes: dict[fx.Node, so.Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.shapes[n] = tuple(value.shape)
        return value


class _OpsReader(_Reader):
    """Makes operations of a graph's nodes; what the calculus has no word for becomes a problem."""

    def __init__(self, module: nn.Module, found: Trace, shapes: dict[fx.Node, so.Shape],
                 batch_shape: so.Shape) -> None:
        super().__init__(module, found)
        self.shapes, self.batch = shapes, batch_shape[0]
        self._counts: dict[str, int] = {}
        self._at = ""       # what an operation is called that is made next, but for its number

    def _module(self, node: fx.Node) -> Chain:
        path = path_of(node)
        module, before = self.root.get_submodule(path), self._value(_first(node))
        makers = [make for kind, make in MODULES.items() if isinstance(module, kind)]
        self._at = path
        if makers and path not in self.failures and self._is_signal(node, before):
            def option(place: int, name: str, default: Any) -> Any:
                return getattr(module, name, default)
            return self._make(node, before, makers[0], option, module)
        known = len(self.problems)
        after = super()._module(node)
        if len(self.problems) > known and self.problems[-1].kind not in _EXPLAINED:
            self.problems[known:] = [Problem(path, kind_of_module(module), _foreign(module))]
        return after

    def _operation(self, node: fx.Node) -> Chain | float | None:
        name = _name(node).rstrip("_")
        self._at = f"{path_of(node)}.{name}()".lstrip(".")
        if name in ("cat", "concat", "concatenate"):
            return self._concatenation(node)
        before = self._value(_first(node))
        if name in FUNCTIONS and self._is_signal(node, before):
            def option(place: int, name: str, default: Any) -> Any:
                return _argument(node, place, name, default)
            return self._make(node, before, FUNCTIONS[name], option, None)
        if name in _SIGNS and self._broadcasts(node):
            return self._unknown((), path_of(node), "sum", "adds values of different shapes")
        return super()._operation(node)

    def _is_signal(self, node: fx.Node, before: Any) -> bool:
        """Whether a node makes one tensor of one that comes from the module's input."""
        return isinstance(before, tuple) and node in self.shapes and _first(node) in self.shapes

    def _broadcasts(self, node: fx.Node) -> bool:
        return len({self.shapes[one] for one in node.args[:2] if isinstance(one, fx.Node)
                    and isinstance(self.values[one], tuple) and one in self.shapes}) > 1

    def _new_name(self) -> str:
        """For an operation that is being made."""
        return numbered(self._at, self._counts)

    def _make(self, node: fx.Node, before: Any, make: Maker, option: Callable[[int, str, Any], Any],
              module: Any) -> Chain:
        """``before`` and the operations that ``make`` has for a node, checked by their shapes."""
        source, result = self.shapes[_first(node)], self.shapes[node]
        place = Place(self._new_name(), self.batch, source[1:], result[1:], option, module)
        kind = kind_of_module(module) if module is not None else kind_of_function(_name(node))
        try:
            if source[:1] != result[:1]:
                raise Refused(f"changes the size of the batch, {source[:1]} to {result[:1]}")
            self._check_weights(place)
            ops = make(place)
            check_shapes(ops, place)
        except (Refused, ValueError) as error:
            which = "" if module is not None else f"{_name(node)}: "
            return self._unknown(before, path_of(node), kind, f"{which}{error}")
        return (*before, *(_Made(op) for op in ops))

    def _check_weights(self, place: Place) -> None:
        if not isinstance(place.module, nn.Linear | nn.Conv2d):
            return
        reason = _unreadable(place.module)
        if reason:
            raise Refused(reason)
        weight = id(place.module.weight)
        if weight in self._users:
            raise Refused(f"uses the weights of {self._users[weight]!r} again; the calculus has "
                           "independent layers")
        self._users[weight] = place.name

    def _weights(self, path: str, module: Any, before: Chain) -> Chain:
        return self._unknown(before, path, "convolution", _foreign(module))

    def _dropout(self, path: str, name: str, before: Chain) -> Chain:
        return self._unknown(before, path, "dropout", f"{name} is no operation of the scaling "
                             "calculus")

    def _activation(self, path: str, found: Found, before: Chain) -> Chain:
        if found.activation is None:
            return self._unknown(before, path, "activation", found.remark)
        if found.remark:
            self.notes.append(Problem(path, "activation", found.remark))
        return (*before, _Made(_nonlinearity(found.activation, self._new_name())))

    def _scaled(self, path: str, chain: Chain, factor: float) -> Chain:
        scaled = super()._scaled(path, chain, factor)
        if scaled is chain or not isinstance(scaled[-1], Scale):
            return scaled
        return (*chain, _Constant(so.Scale(factor, name=self._new_name()), factor))

    def _sum(self, path: str, left: Any, right: Any, sign: float) -> Chain:
        """alpha shortcut + beta main; which is which, the number of weight layers says."""
        if not (isinstance(left, tuple) and isinstance(right, tuple)):
            return super()._sum(path, left, right, sign)
        right = right if sign == 1.0 else self._scaled(path, right, sign)
        common = _common_steps(left, right)
        prefix, terms = left[:common], [left[common:], right[common:]]
        if any(isinstance(step, Unknown) for term in terms for step in term):
            return (*prefix, Unknown())
        factors = [_factor(term) for term in terms]
        if None not in factors:
            return self._scaled(path, prefix, sum(factors))     # type: ignore[arg-type]
        (alpha, shortcut), (beta, main) = map(_split, sorted(terms, key=_rank))
        return (*prefix, _Made(so.Residual(main, shortcut, alpha, beta, name=self._new_name())))

    def _concatenation(self, node: fx.Node) -> Chain | None:
        path, tensors = path_of(node), _argument(node, 0, "tensors", ())
        values = [self._value(one) for one in tensors] if isinstance(tensors, list | tuple) else []
        if not any(isinstance(value, tuple) for value in values):
            return None
        chains = [value for value in values if isinstance(value, tuple)]
        if len(chains) < len(values):
            return self._unknown(chains[0], path, "concatenation", "joins something that does not "
                                 "come from the module's input")
        common = min(_common_steps(chains[0], chain) for chain in chains)
        prefix, branches = chains[0][:common], [chain[common:] for chain in chains]
        if any(isinstance(step, Unknown) for branch in branches for step in branch):
            return (*prefix, Unknown())
        if _argument(node, 1, "dim", 0) not in (1, 1 - len(self.shapes[node])):
            return self._unknown(prefix, path, "concatenation", "only that of channels (dim 1) is "
                                 "covered")
        if len(branches) == 1:
            return chains[0]
        return (*prefix, _Made(so.Concat([_ops(branch) for branch in branches],
                                         name=self._new_name())))


def _rank(term: Chain) -> tuple[int, int]:
    """Weight layers, then operations; constants alone are neither."""
    ops = [op for op in every_op(_ops(term)) if not isinstance(op, so.Scale)]
    return sum(op.has_weights for op in ops), len(ops)


def _split(term: Chain) -> tuple[float, tuple[so.Op, ...]]:
    """The constant that a term of a sum ends in, and the operations before it.

    Constants before that, signs aside, belong to the branch.
    """
    factor = 1.0
    while term and isinstance(term[-1], Scale) and abs(factor) == 1.0:
        factor *= term[-1].factor
        term = term[:-1]
    return factor, _ops(term)


def _nonlinearity(activation: Any, name: str) -> so.Op:
    if activation.name == "relu":
        return so.ReLU(name=name)
    if activation.name == "leaky_relu":
        return so.LeakyReLU(activation.params["slope"], name=name)
    return so.Activation(activation, name=name)


def _first(node: fx.Node) -> Any:
    return node.args[0] if node.args else node.kwargs.get("input")


def _foreign(module: nn.Module) -> str:
    return f"{type(module).__name__} is no operation of the scaling calculus"
