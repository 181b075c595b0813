"""Singular values of a module's Jacobian, measured, and held against the law."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from . import _checks
from ._extremes import full_condition_number, log_ends, outliers_or_reason
from ._torch_describe import (
    ROUNDING,
    Description,
    columns,
    describe,
    describe_part,
    require_covered,
)
from ._torch_parts import read_structure
from ._torch_residual import residual_part
from ._torch_trace import double_precision, evaluating
from .simulate import ks_distance, resolve_atoms, split_outliers

if TYPE_CHECKING:
    from .laws import SpectralLaw
    from .outliers import Outlier

__all__ = ["Check", "check", "jacobian_singular_values"]

FloatArray = NDArray[np.float64]

_ZERO = 1e-12       # of the largest singular value: rounding, not a singular value


def jacobian_singular_values(
    module: nn.Module, x: torch.Tensor, *, batch: int = 64, double: bool = True
) -> FloatArray:
    """Singular values of the input-output Jacobian of a module in eval mode.

    Parameters
    ----------
    module : torch.nn.Module
        Takes a tensor whose first dimension is the batch and returns one. It is not changed:
        parameters, gradients, buffers and training flags stay as they are.
    x : Tensor, shape (inputs, ...) or (N_0,)
        A batch of inputs, each of which gets its own Jacobian; a tensor of one dimension is one
        input.
    batch : int
        Rows of the Jacobian that are propagated back at a time, >= 1. Memory grows with it.
    double : bool
        Compute with parameters and buffers in double precision. False: as they are; the smallest
        singular values then are rounding noise (1e-7 of the largest in single precision).

    Returns
    -------
    ndarray of float64, shape (inputs, N_L) or (N_L,)
        Descending, N_L the number of elements of an output: the roots of the eigenvalues of
        J J^T, with zeros where there are more outputs than inputs.

    Raises
    ------
    ValueError
        If an argument is not as described, or the output does not depend on the input.
    FloatingPointError
        If the Jacobian is not finite.

    Notes
    -----
    One forward pass per input, then vector-Jacobian products with ``batch`` unit vectors at a
    time (vectorised by torch.func.vmap) and an SVD in double precision.

    Examples
    --------
    >>> import torch
    >>> import fastspec.torch as ft
    >>> double = torch.nn.Linear(3, 2, bias=False)
    >>> with torch.no_grad():
    ...     _ = double.weight.copy_(torch.tensor([[2.0, 0.0, 0.0], [0.0, 5.0, 0.0]]))
    >>> ft.jacobian_singular_values(double, torch.ones(3))
    array([5., 2.])
    """
    batch = _checks.positive_integer("batch", batch)
    inputs = _check_input(module, x)
    if double:
        inputs = inputs.double()
    with evaluating(module), torch.inference_mode(False), torch.enable_grad():
        function = double_precision(module) if double else module
        rows = [_singular_values(function, one, batch) for one in inputs.clone()]
    return rows[0] if x.dim() == 1 else np.array(rows)


def _check_input(module: Any, x: Any) -> torch.Tensor:
    """``x`` as a batch."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
        raise ValueError("x must be a tensor of real floating point numbers, got "
                         + (f"{x.dtype}, shape {tuple(x.shape)}" if isinstance(x, torch.Tensor)
                            else type(x).__name__))
    if x.dim() == 0:
        raise ValueError("x must have at least one dimension, got a number")
    return x.detach().unsqueeze(0) if x.dim() == 1 else x.detach()


def _singular_values(function: Callable[[torch.Tensor], Any], x: torch.Tensor,
                     batch: int) -> FloatArray:
    x = x.unsqueeze(0).requires_grad_()
    output = function(x.clone())    # a copy, which the module may work on in place
    if not isinstance(output, torch.Tensor) or not output.dim() or output.shape[0] != 1:
        raise ValueError("module must return one tensor whose first dimension is the batch, got "
                         + (f"shape {tuple(output.shape)} for one input"
                            if isinstance(output, torch.Tensor) else type(output).__name__))
    if not output.requires_grad:
        raise ValueError("the output of module does not depend on x (in a differentiable way)")
    flat = output.flatten()
    jacobian = np.empty((flat.numel(), x.numel()))
    for start in range(0, flat.numel(), batch):
        stop = min(start + batch, flat.numel())
        units = torch.zeros(stop - start, flat.numel(), dtype=flat.dtype, device=flat.device)
        units[torch.arange(stop - start), torch.arange(start, stop)] = 1.0
        rows, = torch.autograd.grad(flat, x, units, retain_graph=True, is_grads_batched=True)
        jacobian[start:stop] = rows.reshape(stop - start, -1).double().cpu().numpy()
    if not np.isfinite(jacobian).all():
        raise FloatingPointError("the Jacobian is not finite")
    values = np.linalg.svd(jacobian, compute_uv=False)
    return np.concatenate([values, np.zeros(len(jacobian) - values.size)])


@dataclass(frozen=True)
class Check:
    """A module's measured singular values, or its residual part's, beside the predicted law.

    Attributes
    ----------
    measured : ndarray, shape (inputs, N_L)
        Singular values, descending.
    law : SpectralLaw
        Of the squared singular values, as `describe` predicts it.
    description : Description
        What the module was read as; of the residual part if that is what was measured.
    ks : float
        Kolmogorov-Smirnov distance of all values together from the law.
    outliers : ndarray
        Singular values beyond the ends of the law (`fastspec.simulate.split_outliers`).
    condition_number : float
        Predicted; infinite where the law reaches 0.
    condition_number_bulk, condition_number_all : float
        Measured without and with the outliers, mean over the inputs; NaN without if at an input
        all values are outliers.
    predicted_outliers : tuple of Outlier, or None
        Of the network that the module was read as; None where they are not known.
    """

    measured: FloatArray
    law: SpectralLaw
    description: Description
    ks: float
    outliers: FloatArray
    condition_number: float
    condition_number_bulk: float
    condition_number_all: float
    predicted_outliers: tuple[Outlier, ...] | None

    def __str__(self) -> str:
        known = self.predicted_outliers
        low, high = (math.exp(0.5 * end) for end in log_ends(self.law, known or ()))
        full = "" if known is None else f"{full_condition_number(self.law, known):.4g}"
        rows = [
            ("condition number", f"{self.condition_number_bulk:.4g}",
             f"{self.condition_number:.4g}"),
            ("  with outliers", f"{self.condition_number_all:.4g}", full),
            ("largest singular value", f"{self.measured.max():.4g}", f"{high:.4g}"),
            ("smallest singular value", f"{self.measured.min():.4g}", f"{low:.4g}"),
            ("KS distance", f"{self.ks:.4f}", ""),
            ("outliers", _counted(self.outliers.tolist()), "" if known is None else _counted(
                [outlier.singular_value for outlier in known], " each")),
        ]
        inputs, values = self.measured.shape
        part = f" of {self.description.part}" if self.description.part else ""
        return "\n".join([f"{values} singular values at {inputs} inputs{part}",
                          *columns(("", "measured", "predicted"), rows)])

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the measured values over the law; see `fastspec.plotting.plot_comparison`."""
        from .plotting import plot_comparison

        options = {"outliers": self.predicted_outliers or ()} | options
        return plot_comparison(self.measured, self.law, ax, **options)


def check(module: nn.Module, x: torch.Tensor, *, batch: int = 64) -> Check:
    """Hold a module's Jacobian against the law that its weights predict.

    Of a module that has plain layers before or after its residual blocks, the residual part alone
    is measured and predicted (`Description.residual_part`): the blocks as a function of what the
    layers before them make of ``x``. The table says so.

    Parameters
    ----------
    module : torch.nn.Module
        A module that `describe` covers, or the residual part of which it does.
    x : Tensor, shape (inputs, ...) or (N_0,)
        As in `jacobian_singular_values`; the law takes the mean and second moment of all of it, so
        several inputs should be of about one length.
    batch : int
        As in `jacobian_singular_values`.

    Returns
    -------
    Check
        Prints as a table; ``plot()`` draws it.

    Raises
    ------
    ValueError
        If the module is not covered (the message lists why), or an argument is out of range.
    FloatingPointError
        If the Jacobian is not finite.

    Examples
    --------
    >>> import torch
    >>> import fastspec.torch as ft
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(200, 100), torch.nn.Tanh())
    >>> result = ft.check(net, torch.randn(200))
    >>> print(result.ks < 0.05, result.outliers.size)
    True 0
    """
    inputs = _check_input(module, x)
    part = residual_part(read_structure(module))
    if part is None or part.is_all:
        description, function = describe(module, inputs), module
        require_covered(description.problems)
    else:
        description = describe_part(module, part, inputs)
        require_covered(description.problems)
        function, inputs = part.module(), part.input(inputs)
    measured = jacobian_singular_values(function, inputs, batch=batch)
    law = description.spectrum()
    lam = np.array([resolve_atoms(row, law, resolution=ROUNDING)[0] for row in measured])
    split = [split_outliers(row, law, squared=True) for row in lam]
    return Check(
        measured, law, description, ks_distance(lam, law, squared=True),
        np.sqrt(np.sort(np.concatenate([outliers for _, outliers in split]))),
        law.condition_number(),
        float(np.mean([_condition(np.sqrt(bulk)) for bulk, _ in split])),
        float(np.mean([_condition(row) for row in measured])),
        outliers_or_reason(description.network)[0])


def _counted(values: Sequence[float], each: str = "") -> str:
    at = ", ".join(f"{value:.4g}" for value in values[:8]) + (", ..." if len(values) > 8 else "")
    return f"{len(values)}{each} (at {at})" if values else "0"


def _condition(values: FloatArray) -> float:
    if not values.size:
        return math.nan
    low, high = float(values.min()), float(values.max())
    return high / low if low > _ZERO * high else math.inf
