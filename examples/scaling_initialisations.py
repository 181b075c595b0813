"""Which initialisation makes a small ReLU network learn fastest in its first epochs?

    python examples/scaling_initialisations.py

Defazio & Bottou, table 1, in small: a ReLU network with three weight layers, hidden layers of 384
and 64 units, on the data sets that come with scikit-learn, from weights of the variance

    geometric   2 / sqrt(n_in n_out)      constant weight scaling gamma
    fan_in      2 / n_in
    fan_out     2 / n_out
    arithmetic  4 / (n_in + n_out)

Inputs have mean 0 and variance 1 each. Weights are Gaussian, biases start at 0; plain stochastic
gradient descent on batches of 16, the last one of an epoch may be smaller. The loss is the cross
entropy over the whole training set after the last epoch; a loss that is not finite counts as
infinite. Of each data set and initialisation the learning rate with the lowest median over the
seeds is chosen. Networks of one seed have the same draws, scaled, and the same order of examples.

All is done twice: with outputs "as initialised" at the paper's learning rates 2^1 ... 2^-12, and
with a fixed factor after the last layer that makes the standard deviation of each network's
outputs over the training set 0.05 ("std 0.05"), at 2^6 ... 2^-7, as steps are shorter there.

The paper normalises the losses of each data set before their mean is taken; how is not in its
text. Here they are divided by the largest of the four.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _training import HERE, at_least, bar, provenance, save_figure, write_table
from torch import Tensor
from torch.nn.functional import cross_entropy

from fastspec import scaling

HIDDEN = (384, 64)
SCHEMES = ("geometric", "fan_in", "fan_out", "arithmetic")
DATA_SETS = ("digits", "wine", "breast_cancer", "iris")
RATES = 14  # powers of two, downwards


@dataclass(frozen=True)
class Output:
    """How the outputs are scaled at the start, and log2 of the largest learning rate."""

    name: str
    std: float | None
    top: int

    def rates(self) -> np.ndarray:
        """Learning rates, falling."""
        return 2.0 ** np.arange(self.top, self.top - RATES, -1)


OUTPUTS = (Output("as initialised", None, 1), Output("std 0.05", 0.05, 6))


@dataclass(frozen=True)
class Examples:
    """One data set, all of it for training; inputs of shape (examples, n)."""

    x: Tensor
    y: Tensor

    def widths(self) -> tuple[int, ...]:
        """Units of all layers, inputs and classes included."""
        return (self.x.shape[1], *HIDDEN, int(self.y.max()) + 1)

    def entropy(self) -> float:
        """Loss of the best constant answer."""
        shares = np.bincount(self.y.numpy()) / len(self.y)
        return float(-(shares * np.log(shares)).sum())


Losses = dict[tuple[Output, str, str], np.ndarray]  # (output, data, scheme): (rates, seeds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; returns the exit code."""
    args = options().parse_args(argv)
    data, notes = {name: load(name) for name in DATA_SETS}, provenance(args)
    losses = learn(data, args)
    write_table(args.out / "scaling_initialisations_gamma.csv",
                ["data", "init", "layer", "n_in", "n_out", "variance", "gamma", "to_last"],
                gamma_rows(data), notes)
    write_table(args.out / "scaling_initialisations_rates.csv",
                ["output", "data", "init", "learning_rate", "median_loss", "lower_quartile",
                 "upper_quartile", "not_finite"], rate_rows(losses), notes, show=False)
    write_table(args.out / "scaling_initialisations.csv",
                ["output", "data", "init", "learning_rate", "median_loss", "lower_quartile",
                 "upper_quartile", "below_geometric", "normalised", "best", "worst"],
                result_rows(losses), notes)
    draw(data, losses, args.out / "scaling_initialisations.png", notes)
    return 0


def options() -> argparse.ArgumentParser:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seeds", type=at_least(1), default=10,
                        help="networks per setting, of seeds 0, 1, ...")
    parser.add_argument("--epochs", type=at_least(1), default=5, help="passes over the data")
    parser.add_argument("--batch", type=at_least(1), default=16, help="examples per step")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory of results")
    return parser


def load(name: str) -> Examples:
    """A data set of scikit-learn; constant inputs become 0, all others have variance 1."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    return Examples(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


class Networks:
    """Networks of one initialisation side by side, every seed once for every learning rate.

    Parameters
    ----------
    widths : sequence of int
        Units of all layers, inputs and outputs included.
    scheme : str
    rngs : sequence of torch.Generator
        One for each seed.
    copies : int
        How many of each seed; network k is a copy of seed k modulo their number.
    """

    def __init__(self, widths: Sequence[int], scheme: str, rngs: Sequence[torch.Generator],
                 copies: int) -> None:
        self.weights, self.biases = [], []
        for n_in, n_out in itertools.pairwise(widths):
            std = scaling.weight_variance(scheme, n_in, n_out) ** 0.5
            drawn = torch.stack([torch.randn(n_in, n_out, generator=rng) for rng in rngs])
            self.weights.append((std * drawn).repeat(copies, 1, 1).requires_grad_())
            self.biases.append(torch.zeros(copies * len(rngs), 1, n_out).requires_grad_())
        self.factor = torch.ones(copies * len(rngs), 1, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (networks, examples, classes) of inputs (networks, examples, n)."""
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, torch.relu(x) if layer else x, weight)
        return self.factor * x

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross entropy of every network, its labels in a row of y."""
        each = cross_entropy(self(x).flatten(0, 1), y.flatten(), reduction="none")
        return each.view(y.shape).mean(1)

    def scale_outputs(self, x: Tensor, std: float) -> None:
        """Make the standard deviation of every network's outputs for x the given one."""
        with torch.no_grad():
            self.factor *= std / self(x).flatten(1).std(1).view(-1, 1, 1)


def train(data: Examples, scheme: str, output: Output, *, seeds: int, epochs: int,
          batch: int) -> np.ndarray:
    """Losses after the last epoch, shape (rates, seeds); inf where they are not finite."""
    rates = output.rates()
    rngs = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    networks = Networks(data.widths(), scheme, rngs, len(rates))
    everything = data.x.expand(len(rates) * seeds, -1, -1)
    if output.std is not None:
        networks.scale_outputs(everything, output.std)
    steps = torch.tensor(np.repeat(rates, seeds), dtype=torch.float32).view(-1, 1, 1)
    parameters = networks.weights + networks.biases
    for _ in range(epochs):
        order = torch.stack([torch.randperm(len(data.y), generator=rng) for rng in rngs])
        for chosen in order.repeat(len(rates), 1).split(batch, dim=1):
            total = networks.losses(data.x[chosen], data.y[chosen]).sum()
            gradients = torch.autograd.grad(total, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= steps * gradient
    with torch.no_grad():
        losses = networks.losses(everything, data.y.expand(len(everything), -1)).double().numpy()
    return np.where(np.isfinite(losses), losses, np.inf).reshape(len(rates), seeds)


def learn(data: dict[str, Examples], args: argparse.Namespace) -> Losses:
    """Train from every initialisation on every data set; rates and seeds side by side."""
    sizes = {"seeds": args.seeds, "epochs": args.epochs, "batch": args.batch}
    return {(output, name, scheme): train(data[name], scheme, output, **sizes)
            for output, name, scheme in bar(list(itertools.product(OUTPUTS, data, SCHEMES)))}


def best_rate(losses: np.ndarray) -> int:
    """Index of the learning rate with the lowest median over the seeds, the first of equals."""
    return int(np.argmin(np.median(losses, axis=1)))


def quartiles(losses: np.ndarray) -> list[float]:
    """Median, lower and upper quartile over the last axis; of values that occur, if infinite."""
    median = np.median(losses, axis=-1)
    lower = np.quantile(losses, 0.25, axis=-1, method="lower")
    upper = np.quantile(losses, 0.75, axis=-1, method="higher")
    return [float(median), float(lower), float(upper)]


def rate_rows(losses: Losses) -> list[list[Any]]:
    """Every learning rate."""
    return [[output.name, name, scheme, rate, *quartiles(row), int(np.isinf(row).sum())]
            for (output, name, scheme), table in losses.items()
            for rate, row in zip(output.rates(), table, strict=True)]


def result_rows(losses: Losses) -> list[list[Any]]:
    """Every initialisation at its best rate; per output, what they come to over the data sets.

    "below_geometric" counts seeds with a loss below the same seed's from geometric weights.
    """
    rows = []
    for output in OUTPUTS:
        names = [name for name in DATA_SETS if (output, name, SCHEMES[0]) in losses]
        medians = np.empty((len(names), len(SCHEMES)))
        ours = []
        for i, name in enumerate(names):
            tables = [losses[output, name, scheme] for scheme in SCHEMES]
            chosen = [table[best_rate(table)] for table in tables]
            medians[i] = [np.median(each) for each in chosen]
            for scheme, table, each in zip(SCHEMES, tables, chosen, strict=True):
                ours.append([output.name, name, scheme, output.rates()[best_rate(table)],
                             *quartiles(each),
                             "" if scheme == SCHEMES[0] else int((each < chosen[0]).sum())])
        normalised, best, worst = compare(medians)
        rows += [[*row, *cells] for row, cells in
                 zip(ours, zip(normalised.flat, best.flat, worst.flat, strict=True), strict=True)]
        rows += [[output.name, "all", scheme, *[""] * 5, normalised[:, k].mean(),
                  best[:, k].sum(), worst[:, k].sum()] for k, scheme in enumerate(SCHEMES)]
    return rows


def compare(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses over the largest of their row, and which (0 or 1) are lowest and highest in it."""
    low, high = losses.min(1, keepdims=True), losses.max(1, keepdims=True)
    return losses / high, (losses == low).astype(int), (losses == high).astype(int)


def network(widths: Sequence[int]) -> list[Any]:
    """The network as fastspec's operations."""
    ops: list[Any] = []
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
        ops += [scaling.ReLU()] if layer else []
        ops.append(scaling.Linear(n_in, n_out, name=f"layer {layer + 1}"))
    return ops


def gamma_rows(data: dict[str, Examples]) -> list[list[Any]]:
    """fastspec's weight scaling factor of every layer, and its ratio to the last layer's."""
    rows = []
    for (name, examples), scheme in itertools.product(data.items(), SCHEMES):
        ops = network(examples.widths())
        report = scaling.analyze(ops, (examples.x.shape[1],), init=scheme).to_dict()["ops"]
        gammas = {op["name"]: op["gamma"] for op in report}
        layers = [op for op in ops if isinstance(op, scaling.Linear)]
        for op in layers:
            gamma = gammas[op.name]
            rows.append([name, scheme, op.name, op.n_in, op.n_out,
                         scaling.weight_variance(scheme, op.n_in, op.n_out), gamma,
                         gamma / gammas[layers[-1].name]])
    return rows


def draw(data: dict[str, Examples], losses: Losses, path: Path, notes: Sequence[str]) -> None:
    """Median loss against the learning rate, one row for each output; gamma of the layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 11.0), layout="constrained")
    grid = figure.subplots(len(OUTPUTS) + 1, len(data))
    gammas = gamma_rows(data)
    for column, (name, examples) in enumerate(data.items()):
        for row, output in enumerate(OUTPUTS):
            _draw_losses(grid[row, column], output, [losses[output, name, s] for s in SCHEMES])
            grid[row, column].axhline(examples.entropy(), color="0.6", linestyle=":",
                                      label="best constant answer")
            grid[row, column].set_title(f"{name}: outputs {output.name}", fontsize="medium")
        _draw_gammas(grid[-1, column], [each for each in gammas if each[0] == name])
    for row in grid[:-1]:
        row[0].set_ylabel("loss, training set")
    grid[-1, 0].set_ylabel("weight scaling gamma, to the last layer's")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    save_figure(figure, path, notes)


def _draw_losses(ax: Any, output: Output, tables: Sequence[np.ndarray]) -> None:
    """Medians, quartiles as bands, and a ring at the best rate; what is not finite is left out."""
    rates = output.rates()
    for k, table in enumerate(tables):
        median, lower, upper = (np.where(np.isfinite(v), v, np.nan)
                                for v in np.transpose([quartiles(row) for row in table]))
        best = best_rate(table)
        ax.plot(rates, median, ".-", color=f"C{k}", label=SCHEMES[k])
        ax.fill_between(rates, lower, upper, color=f"C{k}", alpha=0.15, linewidth=0)
        ax.plot(rates[best], median[best], "o", color=f"C{k}", markersize=9, fillstyle="none")
    ax.set_xscale("log", base=2)
    top = 2.0 * max(np.median(table[-1]) for table in tables)
    ax.set(yscale="log", xlabel="learning rate", ylim=(None, top))


def _draw_gammas(ax: Any, rows: Sequence[Sequence[Any]]) -> None:
    for k, scheme in enumerate(SCHEMES):
        chosen = [row for row in rows if row[1] == scheme]
        ax.plot(range(len(chosen)), [row[-1] for row in chosen], "o-", color=f"C{k}")
    ax.set(yscale="log", xticks=range(len(chosen)), xlim=(-0.4, len(chosen) - 0.6),
           xticklabels=[f"{row[2]}\n{row[3]} to {row[4]}" for row in chosen])


if __name__ == "__main__":
    raise SystemExit(main())
