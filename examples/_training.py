"""What the examples share: handwritten digits, a trainer of many small networks, and results.

Networks of one shape are stacked along an axis of their own and trained side by side with batched
matrix products; they see the same mini-batches, and nothing passes from one to another, so one
that overflows leaves the rest alone.
"""

from __future__ import annotations

import argparse
import csv
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import cross_entropy, leaky_relu

import fastspec as fs

torch.set_num_threads(1)

HERE = Path(__file__).resolve().parent
PIXELS, CLASSES, BATCH = 64, 10, 128
TRAIN_SIZE = 1280  # ten batches; the other 517 images are the test set
CHANCE = 1.0 / CLASSES
MEASURED = (0, 1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 110, 150, 200, 280, 400, 560, 800)
_SPLIT_SEED = 2018

Phi = Callable[[Tensor], Tensor]

PHI: dict[str, Phi] = {
    "tanh": torch.tanh,
    "hard_tanh": lambda h: torch.clamp(h, -1.0, 1.0),
    "relu": torch.relu,
    "leaky_relu 0.05": lambda h: leaky_relu(h, 0.05),
    "leaky_relu 0.25": lambda h: leaky_relu(h, 0.25),
    "gelu": torch.nn.functional.gelu,
    "selu": torch.selu,
    "sigmoid": torch.sigmoid,
}


def activation(name: str) -> Any:
    """The fastspec activation of a name in PHI ('leaky_relu 0.05': that slope)."""
    kind, *slope = name.split()
    return fs.activation(kind, slope=float(slope[0])) if slope else kind


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 8x8 digits as network inputs with ``mean(x**2) = 1`` for every image."""

    train_x: Tensor  # (1280, width)
    train_y: Tensor
    test_x: Tensor  # (517, width)
    test_y: Tensor

    def second_moment(self) -> float:
        """p_0 = |x|^2 / N, mean over the training images."""
        return float((self.train_x.double() ** 2).mean())

    def overlap(self) -> float:
        """gamma_0 = x . x' / N, mean over all pairs of different training images."""
        x = self.train_x.double()
        count, width = x.shape
        total = float((x.sum(0) ** 2).sum() - (x**2).sum())
        return total / (count * (count - 1) * width)


def load_digits(width: int) -> Digits:
    """Digits, standardised by the training images and lifted by a fixed random isometry.

    An image x becomes Q x, with the columns of the width x 64 matrix Q orthonormal, scaled to
    second moment 1: the lift keeps angles between images and is not trained.
    """
    from sklearn.datasets import load_digits as load

    if width < PIXELS:
        raise ValueError(f"width must be at least {PIXELS}, got {width!r}")
    images, labels = load(return_X_y=True)
    rng = np.random.default_rng(_SPLIT_SEED)
    order = rng.permutation(len(images))
    images, labels = images[order], labels[order]
    mean, spread = images[:TRAIN_SIZE].mean(0), images[:TRAIN_SIZE].std(0)
    lift = np.linalg.qr(rng.standard_normal((width, PIXELS)))[0]
    x = ((images - mean) / np.where(spread > 0.0, spread, 1.0)) @ lift.T
    x /= np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    inputs, targets = torch.tensor(x, dtype=torch.float32), torch.tensor(labels)
    return Digits(inputs[:TRAIN_SIZE], targets[:TRAIN_SIZE],
                  inputs[TRAIN_SIZE:], targets[TRAIN_SIZE:])


class Stack:
    """Residual networks of one depth, width and activation, with a linear readout each.

    x^l = phi(W^l x^{l-1} + b^l) + x^{l-1}, or with ``branch_std`` the block
    x^l = V^l phi(W^l x^{l-1} + b^l) + x^{l-1}; logits are R x^L. All weights are Gaussian:
    N Var(W_ij) = weight_std^2, N Var(V_ij) = branch_std^2, N Var(R_ij) = 1. Biases start at 0.

    Parameters
    ----------
    phi : callable
        Activation.
    depth, width : int
    weight_std : array_like of float
        One network for each entry.
    seeds : sequence of int
        Of the same length. Networks with the same seed have the same draws, scaled.
    branch_std : float, optional
        Makes the blocks "full".
    """

    def __init__(self, phi: Phi, depth: int, width: int, weight_std: ArrayLike,
                 seeds: Sequence[int], branch_std: float | None = None) -> None:
        self.phi = phi
        scale = _per_network(weight_std)
        drawn = {seed: _draw(seed, depth, width) for seed in set(seeds)}
        weights, branches, readouts = (torch.stack([drawn[s][k] for s in seeds], dim=-3)
                                       for k in range(3))
        bias = torch.zeros(depth, len(seeds), 1, width)
        self.readout = [readouts, torch.zeros(len(seeds), 1, CLASSES)]
        self.blocks = [weights * scale, bias]
        if branch_std is not None:
            self.blocks += [branches * branch_std, bias.clone()]
        for parameter in self.blocks + self.readout:
            parameter.requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, shape (networks, images, 10), of images of shape (images, width)."""
        weights, biases, *branch = self.blocks
        readout, offset = self.readout
        state = x.expand(weights.shape[1], *x.shape)
        if branch:
            for w, b, v, a in zip(weights, biases, *branch, strict=True):
                hidden = self.phi(torch.baddbmm(b, state, w))
                state = state + torch.baddbmm(a, hidden, v)
        else:
            for w, b in zip(weights, biases, strict=True):
                state = state + self.phi(torch.baddbmm(b, state, w))
        return torch.baddbmm(offset, state, readout)

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Cross entropy and accuracy of every network, each of shape (networks,)."""
        logits = self(x)
        labels = y.expand(len(logits), len(y))
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        right = (logits.argmax(-1) == labels).float().mean(1)
        return loss.view(labels.shape).mean(1), right


def _per_network(values: ArrayLike) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32).view(-1, 1, 1)


def _draw(seed: int, depth: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """W, V (depth, width, width) and R (width, 10) with entries N(0, 1/width)."""
    rng = torch.Generator().manual_seed(seed)
    shapes = (depth, width, width), (depth, width, width), (width, CLASSES)
    first, second, third = (torch.randn(s, generator=rng) / width**0.5 for s in shapes)
    return first, second, third


@dataclass(frozen=True)
class History:
    """What was measured at some iterations: arrays of shape (iterations, networks).

    Where a loss is not finite, losses and accuracies are NaN from then on.
    """

    iterations: np.ndarray
    train_loss: np.ndarray
    train_accuracy: np.ndarray
    test_accuracy: np.ndarray

    def diverged(self, k: int = -1) -> np.ndarray:
        """Which networks had met a loss that is not finite by the k-th measurement."""
        return np.isnan(self.train_loss[k])

    def select(self, networks: Sequence[int]) -> History:
        """Some of the networks."""
        chosen = list(networks)
        return History(self.iterations, self.train_loss[:, chosen], self.train_accuracy[:, chosen],
                       self.test_accuracy[:, chosen])

    def means(self, k: int = -1) -> list[float]:
        """Loss, accuracy, test accuracy at the k-th measurement: means over finite networks."""
        finite = ~self.diverged(k)
        if not finite.any():
            return [float("nan")] * 3
        columns = self.train_loss, self.train_accuracy, self.test_accuracy
        return [float(values[k, finite].mean()) for values in columns]


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """They are slow, and what has vanished so far does not count; process-wide while it lasts."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@_without_subnormals()
def train(stack: Stack, data: Digits, epochs: int, learning_rate: float, *,
          block_steps: ArrayLike | None = None, measure: Iterable[int] = MEASURED,
          momentum: float = 0.9) -> History:
    """Stochastic gradient descent with momentum on every network of a stack at once.

    It stops early if no network has a finite loss any more.

    Parameters
    ----------
    stack : Stack
        Trained in place.
    data : Digits
    epochs : int
        Of ten mini-batches of 128 images, in an order that is the same for all networks.
    learning_rate : float
    block_steps : array_like of float, optional
        Factor on the learning rate of the blocks' parameters (not the readout's), for each network.
    measure : iterable of int
        Iterations at which to measure on all images, as far as training goes. The last one is
        measured anyway.
    momentum : float
    """
    end = epochs * TRAIN_SIZE // BATCH
    wanted = sorted({k for k in measure if k < end} | {end})
    networks = len(stack.readout[0])
    factors = _per_network(np.ones(networks) if block_steps is None else block_steps)
    parameters = stack.blocks + stack.readout
    rates = [learning_rate * factors] * len(stack.blocks)
    rates += [torch.full_like(factors, learning_rate)] * len(stack.readout)
    velocity = [torch.zeros_like(p) for p in parameters]
    rows = []
    for iteration, chosen in enumerate(_batches(epochs)):
        if iteration in wanted:
            rows.append(_measure(stack, data))
        loss = stack.losses(data.train_x[chosen], data.train_y[chosen])[0]
        if not loss.isfinite().any():
            break
        gradients = torch.autograd.grad(loss.sum(), parameters)
        with torch.no_grad():
            for p, v, g, step in zip(parameters, velocity, gradients, rates, strict=True):
                p -= step * v.mul_(momentum).add_(g)
    else:
        rows.append(_measure(stack, data))
    rows += [[np.full(networks, np.nan)] * 3] * (len(wanted) - len(rows))
    return _history(wanted, rows)


def _batches(epochs: int) -> Iterator[Tensor]:
    """Indices of the images of each mini-batch; the order depends on nothing."""
    rng = torch.Generator().manual_seed(_SPLIT_SEED)
    for _ in range(epochs):
        yield from torch.randperm(TRAIN_SIZE, generator=rng).view(-1, BATCH)


def _measure(stack: Stack, data: Digits) -> list[np.ndarray]:
    with torch.no_grad():
        loss, train_accuracy = stack.losses(data.train_x, data.train_y)
        test_accuracy = stack.losses(data.test_x, data.test_y)[1]
    return [loss.numpy(), train_accuracy.numpy(), test_accuracy.numpy()]


def _history(iterations: list[int], rows: list[list[np.ndarray]]) -> History:
    measured = np.array(rows, dtype=float).transpose(1, 0, 2)
    lost = np.logical_or.accumulate(~np.isfinite(measured[0]), axis=0)
    measured[:, lost] = np.nan
    return History(np.array(iterations), *measured)


def bar(items: Sequence[Any]) -> Iterable[Any]:
    """The items, counted by a progress bar if stderr is a terminal."""
    from tqdm import tqdm

    return tqdm(items, disable=None, leave=False)


def at_least(least: int) -> Callable[[str], int]:
    """argparse type: an integer with a lower bound."""
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return number


def positive(text: str) -> float:
    """argparse type: a finite number above 0."""
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be positive and finite, got {text}")
    return value


def parser(description: str | None, *, seeds: int, epochs: int,
           width: int) -> argparse.ArgumentParser:
    """Options that all examples have, with their defaults."""
    options = argparse.ArgumentParser(
        description=(description or "").split("\n", 1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    options.add_argument("--seeds", type=at_least(1), default=seeds,
                         help="networks per setting, of seeds 0, 1, ...")
    options.add_argument("--epochs", type=at_least(1), default=epochs, help="of ten batches")
    options.add_argument("--width", type=at_least(PIXELS), default=width, help="units of a layer")
    options.add_argument("--out", type=Path, default=HERE / "results", help="directory of results")
    return options


def provenance(args: argparse.Namespace) -> list[str]:
    """What is needed to make a result again; no time, no paths: equal runs give equal files."""
    options = " ".join(f"{k}={v}" for k, v in sorted(vars(args).items()) if k != "out")
    packages = ", ".join(f"{p} {version(p)}" for p in ("torch", "numpy", "scipy", "scikit-learn"))
    return [
        f"options: {options} (networks of seeds 0 to {args.seeds - 1})",
        f"fastspec {fs.__version__}, commit {_commit()}",
        f"Python {platform.python_version()}, {packages}",
    ]


def _commit() -> str:
    """Short hash of HEAD, with '-dirty' if the working tree differs; 'unknown' outside git."""
    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", *words]
        return subprocess.run(command, cwd=HERE, capture_output=True, text=True,
                              check=True).stdout.strip()

    try:
        head = git("rev-parse", "--short", "HEAD")
        return head + ("-dirty" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]],
                notes: Sequence[str], *, show: bool = True) -> None:
    """A csv file that opens with the notes as comments; the table is also printed if ``show``."""
    cells = [[_text(cell) for cell in row] for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        file.writelines(f"# {note}\n" for note in notes)
        csv.writer(file, lineterminator="\n").writerows([header, *cells])
    print(f"table: {path}", file=sys.stderr)
    if not show:
        return
    table = [list(header), *cells]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float | np.floating) else str(cell)


def save_figure(figure: Any, path: Path, notes: Sequence[str]) -> None:
    """A png with the notes in small print below."""
    figure.supxlabel("\n".join(notes), fontsize=6, color="0.4")
    figure.savefig(path, dpi=120, metadata={"Software": None})
    print(f"picture: {path}", file=sys.stderr)
