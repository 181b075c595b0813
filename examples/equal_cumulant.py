"""Do residual networks learn alike at equal effective cumulant, whatever their activation?

    python examples/equal_cumulant.py

Tarnowski et al. 2018, figures 4 and 7, in small: fully connected residual networks with eight
activations learn handwritten digits. At each of two levels of c they start from

    equal sigma          one sigma_w for all activations,
    equal c              that c for all, so a sigma_w for each,
    equal c, gain apart  the weights of "equal sigma" with the gain g = sigma_w / (that sigma_w) as
                         a factor of its own in the network, phi(g W x + b).

The levels are c = 0.125, where the paper sets c equal, and that of sigma_w = 1, Var W_ij = 1/(N L),
where the paper sets sigma equal; c of the level is the geometric mean of c at equal sigma. "Gain
apart" has the same start as "equal c", but steps of the blocks' parameters that are g^2 times as
long: gradient descent in units of the weights.

How alike activations are is their spread: the standard deviation over activations of accuracy and
of ln(loss) on the training set at the same seed; mean and standard error over the seeds. As in
figure 4 (top) of the paper, sigmoid is left out of spreads and means.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from _training import (
    PHI,
    History,
    Stack,
    activation,
    at_least,
    bar,
    load_digits,
    parser,
    positive,
    provenance,
    save_figure,
    train,
    write_table,
)

import fastspec as fs

CUMULANT = 0.125
APART = "sigmoid"
STARTS = ("equal sigma", "equal c", "equal c, gain apart")


class Level:
    """The networks' scales at one level of c.

    Parameters
    ----------
    name : str
    depth : int
    same : float
        sigma_w of "equal sigma".
    """

    def __init__(self, name: str, depth: int, same: float) -> None:
        self.name, self.depth, self.same = name, depth, same
        self.cumulant = float(np.exp(mean_log_cumulant(depth, same)))
        self.equal_c = {phi: float(fs.initialize.sigma_w_for(network(phi, depth), c=self.cumulant))
                        for phi in PHI}

    def sigma_w(self, start: str, phi: str) -> float:
        """Weight scale of an activation."""
        return self.same if start == STARTS[0] else self.equal_c[phi]

    def step(self, start: str, phi: str) -> float:
        """Factor on the learning rate of the blocks: g^2, since W = g w and dE/dw = g dE/dW."""
        return (self.equal_c[phi] / self.same) ** 2 if start == STARTS[2] else 1.0


Curves = dict[tuple[Level, str, str], History]  # (level, start, activation)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; returns the exit code."""
    options = parser(__doc__, seeds=5, epochs=20, width=100)
    options.add_argument("--depth", type=at_least(1), default=20, help="layers")
    options.add_argument("--learning-rate", type=positive, default=1e-3,
                         help="the larger of the paper's two")
    args = options.parse_args(argv)
    levels = [Level("low", args.depth, common_sigma_w(args.depth)), Level("high", args.depth, 1.0)]
    curves = learn(levels, args)
    notes = provenance(args)
    write_table(args.out / "equal_cumulant_curves.csv",
                ["level", "start", "activation", "sigma_w", "c", "iteration", "train_loss",
                 "train_accuracy", "test_accuracy", "diverged"],
                curve_rows(curves), notes, show=False)
    write_table(args.out / "equal_cumulant.csv",
                ["level", "start", "iteration", "accuracy", "accuracy_spread",
                 "accuracy_spread_se", "ln_loss_spread", "ln_loss_spread_se", "diverged"],
                spread_rows(curves), notes)
    draw(levels, curves, args.out / "equal_cumulant.png", notes)
    return 0


def network(phi: str, depth: int, sigma_w: float = 1.0) -> fs.ResNet:
    """Depth-scaled, N Var(W_ij) = sigma_w^2 / L."""
    return fs.ResNet(depth=depth, activation=activation(phi), sigma_w=sigma_w)


def mean_log_cumulant(depth: int, sigma_w: float) -> float:
    """Mean over activations of ln c, at one sigma_w for all."""
    return float(np.mean([np.log(network(phi, depth, sigma_w).effective_cumulant())
                          for phi in PHI if phi != APART]))


def common_sigma_w(depth: int) -> float:
    """The one sigma_w at which the geometric mean of c is 0.125."""
    from scipy.optimize import brentq

    target = float(np.log(CUMULANT))
    return float(brentq(lambda s: mean_log_cumulant(depth, s) - target, 1e-3, 10.0, xtol=1e-12))


def learn(levels: Sequence[Level], args: argparse.Namespace) -> Curves:
    """Train every activation from every start; levels, starts and seeds side by side."""
    data = load_digits(args.width)
    cases = list(itertools.product(levels, STARTS))
    seeds = list(range(args.seeds)) * len(cases)
    curves = {}
    for phi in bar(list(PHI)):
        std = np.repeat([level.sigma_w(start, phi) for level, start in cases], args.seeds)
        steps = np.repeat([level.step(start, phi) for level, start in cases], args.seeds)
        stack = Stack(PHI[phi], args.depth, args.width, std / args.depth**0.5, seeds)
        history = train(stack, data, args.epochs, args.learning_rate, block_steps=steps)
        for k, (level, start) in enumerate(cases):
            members = range(k * args.seeds, (k + 1) * args.seeds)
            curves[level, start, phi] = history.select(members)
    return curves


def curve_rows(curves: Curves) -> list[list[Any]]:
    """Means over the seeds that did not diverge, for every network and iteration."""
    rows = []
    for (level, start, phi), history in curves.items():
        sigma_w = level.sigma_w(start, phi)
        c = network(phi, level.depth, sigma_w).effective_cumulant()
        for k, iteration in enumerate(history.iterations):
            rows.append([level.name, start, phi, sigma_w, c, iteration, *history.means(k),
                         history.diverged(k).sum()])
    return rows


def spread_rows(curves: Curves) -> list[list[Any]]:
    """How far activations are apart, for every level, start and iteration."""
    rows = []
    for level, start in dict.fromkeys(key[:2] for key in curves):
        chosen = [history for (*case, phi), history in curves.items()
                  if case == [level, start] and phi != APART]
        accuracy = np.array([history.train_accuracy for history in chosen])
        log_loss = np.log([history.train_loss for history in chosen])
        for k, iteration in enumerate(chosen[0].iterations):
            lost = sum(int(history.diverged(k).sum()) for history in chosen)
            mean = float(np.mean([history.means(k)[1] for history in chosen]))
            rows.append([level.name, start, iteration, mean, *spread(accuracy[:, k]),
                         *spread(log_loss[:, k]), lost])
    return rows


def spread(values: np.ndarray) -> tuple[float, float]:
    """Standard deviation over activations (axis 0): mean and standard error over seeds (axis 1).

    A seed at which a network diverged makes it NaN.
    """
    each = values.std(axis=0, ddof=1)
    error = each.std(ddof=1) / each.size**0.5 if each.size > 1 else float("nan")
    return float(each.mean()), float(error)


def draw(levels: Sequence[Level], curves: Curves, path: Any, notes: Sequence[str]) -> None:
    """Learning curves, one column for each start, rows on the same axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 13.0), layout="constrained")
    grid = figure.subplots(2 * len(levels), len(STARTS), sharex=True, sharey="row")
    for row, level in enumerate(levels):
        for ax, start in zip(grid[row], STARTS, strict=True):
            ax.set_title(f"{start} (c = {level.cumulant:.3f})", fontsize="medium")
        grid[row, 0].set_ylabel("accuracy, training set")
        grid[row + len(levels), 0].set_ylabel(f"loss, training set (c = {level.cumulant:.3f})")
        for ax in grid[row + len(levels)]:
            ax.set_yscale("log")
    for (level, start, phi), history in curves.items():
        row, column = levels.index(level), STARTS.index(start)
        style = "--" if phi == APART else "-"
        for ax, values in zip(grid[row::len(levels), column],
                              (history.train_accuracy, history.train_loss), strict=True):
            ax.plot(history.iterations, values.mean(axis=1), style, label=phi)
    for ax in grid[-1]:
        ax.set(xscale="symlog", xlabel="iteration")
    grid[0, 0].legend(fontsize="x-small")
    save_figure(figure, path, notes)


if __name__ == "__main__":
    raise SystemExit(main())
