"""One random network, drawn and run: its output and its Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._progress import with_progress

FloatArray = NDArray[np.float64]


def layer_sizes(net: Any, width: int) -> list[int]:
    """Widths N_0 ... N_L; ``width`` is that of a layer whose relative width is 1."""
    relative = getattr(net, "widths", None)
    if relative is None:
        return [width] * (net.depth + 1)
    sizes = [round(width * part) for part in relative]
    if min(sizes) < 1:
        raise ValueError(f"width must leave every layer a unit, got {width} with "
                         f"widths={relative!r}")
    return sizes


def run(
    net: Any, x: FloatArray, sizes: list[int], rng: np.random.Generator, progress: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Draw the weights layer by layer; return the output x^L and the Jacobian dx^L/dx^0."""
    skip = float(getattr(net, "skip", 0.0))
    jacobian = np.eye(sizes[0])
    for block in with_progress(range(net.depth), progress, "layers"):
        branch, branch_jacobian = x, jacobian
        for _ in range(getattr(net, "branch_layers", 1)):
            weight = draw_weight(
                net.weights, net.weight_variance, sizes[block + 1], branch.size, rng)
            h = weight @ branch + net.sigma_b * rng.standard_normal(sizes[block + 1])
            branch, slope = _activate(net, h)
            branch_jacobian = slope[:, None] * (weight @ branch_jacobian)
        x = branch + skip * x if skip else branch
        jacobian = branch_jacobian + skip * jacobian if skip else branch_jacobian
        if not (np.isfinite(x).all() and np.isfinite(jacobian).all()):
            raise FloatingPointError(
                "the simulated network overflows: lower sigma_w, the skip or the depth"
            )
    return x, jacobian


def _activate(net: Any, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """phi and its derivative at h, or at gamma h/rms(h) + beta with batch norm."""
    factor = 1.0
    if getattr(net, "batch_norm", None) is not None:
        gamma, beta = net.batch_norm
        factor = gamma / np.sqrt(np.mean(h * h))
        h = factor * h + beta
    slope = np.asarray(net.activation.derivative(h), dtype=float)
    return np.asarray(net.activation(h), dtype=float), factor * slope


def draw_weight(
    ensemble: str, variance: float, outputs: int, inputs: int, rng: np.random.Generator
) -> FloatArray:
    """Weight matrix: entries of variance ``variance / inputs``, or W W^T = variance I.

    Orthogonal with more outputs than inputs: W^T W = variance I.
    """
    gaussian = rng.standard_normal((outputs, inputs))
    if ensemble == "gaussian":
        return np.sqrt(variance / inputs) * gaussian
    # QR of a Gaussian matrix is Haar only if the signs of diag R are moved into Q (Mezzadri 2007).
    q, r = np.linalg.qr(gaussian if outputs >= inputs else gaussian.T)
    haar = np.sqrt(variance) * q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return haar if outputs >= inputs else haar.T


def draw_input(net: Any, width: int, rng: np.random.Generator) -> FloatArray:
    """Random direction with exactly the mean and second moment that the network expects."""
    mean, second_moment = getattr(net, "input_mean", 0.0), net.input_second_moment
    if getattr(net, "q", None) == "fixed_point":
        q_star = float(net.propagate().q[0])
        second_moment = max(0.0, q_star - net.sigma_b**2) / net.weight_variance
    x = rng.standard_normal(width)
    if mean:
        x -= x.mean()
    size = np.linalg.norm(x) or 1.0  # 0 for a width of 1 and a mean
    return mean + np.sqrt(max(0.0, second_moment - mean**2) * width) * x / size
