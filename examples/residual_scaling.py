"""A residual network of 100 layers needs weights whose variance falls with the depth.

    python examples/residual_scaling.py

Ling & Qiu 2018, figure 5, in small: fully connected ReLU networks of L = 100 layers without batch
norm, at N Var(W_ij) = 1, 1/L, .1/L and .01/L, learn handwritten digits by gradient descent with
momentum 0.9 at several learning rates. Curves are those of the best learning rate of each scaling:
fewest diverged runs, then lowest loss on the training set. A run whose loss is not finite at some
time is called diverged; means are over those that did not.

Beside it stands what fastspec predicts of the Jacobian's singular values at the start, and what one
finds in such networks. ReLU networks without bias have a singular value above the bulk that the law
describes, since J x^0 = x^L: it is at least |x^L|/|x^0|, which signal propagation predicts
("input_stretch"). Where the smallest measured singular value is below 1e-12 of the largest it is
rounding noise, and measured condition numbers are NaN.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from _training import (
    PHI,
    Digits,
    History,
    Stack,
    at_least,
    bar,
    load_digits,
    parser,
    provenance,
    save_figure,
    train,
    write_table,
)

import fastspec as fs
from fastspec.simulate import jacobian_singular_values, split_outliers

ACTIVATION = "relu"
SCALINGS = {"1": None, "1/L": 1.0, ".1/L": 0.1, ".01/L": 0.01}  # factor of 1/L, None: no 1/L
LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
LOSS_TOP, SHOWN_VALUES = 1e3, (0.1, 100.0)  # of the picture: without scaling there is no end
RESOLUTION = 1e-12  # of measured singular values, relative to the largest

Runs = dict[tuple[str, float], History]  # (scaling, learning rate)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; returns the exit code."""
    options = parser(__doc__, seeds=3, epochs=15, width=100)
    options.add_argument("--depth", type=at_least(1), default=100, help="layers")
    args = options.parse_args(argv)
    data, notes = load_digits(args.width), provenance(args)
    spectra = [[scaling, *predicted(scaling, args.depth), *measured(scaling, data, args)]
               for scaling in SCALINGS]
    write_table(args.out / "residual_scaling_spectra.csv",
                ["scaling", "c", "condition", "bottom", "top", "input_stretch",
                 "measured_condition", "measured_bulk_condition", "measured_bulk_top",
                 "measured_top"], spectra, notes)
    runs = learn(data, args)
    chosen = best_rates(runs)
    rows = [[scaling, rate, iteration, *history.means(k), history.diverged(k).sum(),
             "best" if rate == chosen.get(scaling) else ""]
            for (scaling, rate), history in runs.items()
            for k, iteration in enumerate(history.iterations)]
    header = ["scaling", "learning_rate", "iteration", "train_loss", "train_accuracy",
              "test_accuracy", "diverged", "choice"]
    last = rows[-1][2]
    write_table(args.out / "residual_scaling_curves.csv", header, rows, notes, show=False)
    write_table(args.out / "residual_scaling.csv", header,
                [row for row in rows if row[2] == last], notes)
    draw(runs, chosen, spectra, args.out / "residual_scaling.png", notes)
    return 0


def network(scaling: str, depth: int) -> fs.ResNet:
    """The residual network of a scaling, without biases."""
    factor = SCALINGS[scaling]
    if factor is None:
        return fs.ResNet(depth=depth, activation=ACTIVATION, depth_scaled=False)
    return fs.ResNet(depth=depth, activation=ACTIVATION, sigma_w=factor**0.5)


def predicted(scaling: str, depth: int) -> list[float]:
    """c; condition number, smallest and largest singular value of the law; |x^L|/|x^0|."""
    net = network(scaling, depth)
    law = net.spectrum()
    bottom, top = law.support()[0][0] ** 0.5, law.support()[-1][1] ** 0.5
    stretch = float(net.propagate().second_moment[-1]) ** 0.5
    return [net.effective_cumulant(), law.condition_number(), bottom, top, stretch]


def measured(scaling: str, data: Digits, args: argparse.Namespace) -> list[float]:
    """Condition number of all and of the bulk, top of the bulk and of all; means over networks.

    Condition numbers are NaN where the smallest value is below the resolution.
    """
    net = network(scaling, args.depth)
    law, rows = net.spectrum(), []
    for seed in range(args.seeds):
        image = data.train_x[seed].numpy()
        values = jacobian_singular_values(net, args.width, seed=seed, input=image)
        bulk = split_outliers(values, law)[0]
        noise = values.max() * RESOLUTION
        conditions = [each.max() / each.min() if each.min() > noise else np.nan
                      for each in (values, bulk)]
        rows.append([*conditions, bulk.max(), values.max()])
    return np.mean(rows, axis=0).tolist()


def learn(data: Digits, args: argparse.Namespace) -> Runs:
    """Train every scaling at every learning rate; seeds side by side."""
    runs = {}
    for scaling, rate in bar(list(itertools.product(SCALINGS, LEARNING_RATES))):
        std = network(scaling, args.depth).weight_variance ** 0.5
        seeds = range(args.seeds)
        stack = Stack(PHI[ACTIVATION], args.depth, args.width, [std] * args.seeds, seeds)
        runs[scaling, rate] = train(stack, data, args.epochs, rate)
    return runs


def best_rates(runs: Runs) -> dict[str, float]:
    """Per scaling the rate of fewest diverged runs, then lowest loss; none if all diverged."""
    best = {}
    for scaling in SCALINGS:
        ranks = []
        for rate in LEARNING_RATES:
            history = runs[scaling, rate]
            lost = history.diverged()
            if not lost.all():
                ranks.append((int(lost.sum()), history.means()[0], rate))
        if ranks:
            best[scaling] = min(ranks)[-1]
    return best


def draw(runs: Runs, chosen: dict[str, float], spectra: Sequence[Sequence[Any]], path: Any,
         notes: Sequence[str]) -> None:
    """Learning curves, losses against the learning rate, and singular values at the start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 9.0), layout="constrained")
    (loss, accuracy), (rates, values) = figure.subplots(2, 2)
    for k, scaling in enumerate(SCALINGS):
        color, rate = f"C{k}", chosen.get(scaling)
        word = "diverged at every rate" if rate is None else f"rate {rate:g}"
        history = runs[scaling, LEARNING_RATES[0] if rate is None else rate]
        for ax, curve in zip((loss, accuracy), (history.train_loss, history.test_accuracy),
                             strict=True):
            ax.plot(history.iterations, curve.mean(axis=1), ".-", color=color,
                    label=f"N Var W = {scaling}: {word}")
        finals = [runs[scaling, r].train_loss[-1].mean() for r in LEARNING_RATES]
        rates.plot(LEARNING_RATES, finals, "o-", color=color)
        _draw_spectrum(values, k, spectra[k], color)
    _mark_diverged(rates, runs)
    loss.set(xscale="symlog", yscale="log", xlabel="iteration", ylabel="loss, training set",
             ylim=(None, LOSS_TOP))
    accuracy.set(xscale="symlog", xlabel="iteration", ylabel="accuracy, test set")
    rates.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="last loss, training set")
    values.set(xscale="log", xlabel="singular value at the start", yticks=range(len(SCALINGS)),
               yticklabels=list(SCALINGS), ylabel="N Var W", ylim=(-0.5, len(SCALINGS) - 0.3),
               xlim=SHOWN_VALUES)
    values.set_title("bar: law of the bulk; dot: largest measured (with the outlier)",
                     fontsize="small")
    loss.legend(fontsize="small")
    save_figure(figure, path, notes)


def _draw_spectrum(ax: Any, row: int, figures: Sequence[Any], color: str) -> None:
    _, _, condition, bottom, top, *_, largest = figures
    ax.plot([bottom, top], [row, row], color=color, linewidth=8, solid_capstyle="butt")
    ax.plot(largest, row, "ko")
    ax.text(SHOWN_VALUES[0] * 1.1, row + 0.15,
            f"{bottom:.3g} to {top:.3g}, condition number {condition:.3g}; "
            f"largest measured {largest:.3g}", fontsize="small")


def _mark_diverged(ax: Any, runs: Runs) -> None:
    """Crosses along the upper edge where runs diverged."""
    scalings = list(SCALINGS)
    for (scaling, rate), history in runs.items():
        if history.diverged().any():
            k = scalings.index(scaling)
            ax.plot(rate, 0.97 - 0.05 * k, "x", color=f"C{k}", transform=ax.get_xaxis_transform())
    ax.set_title("crosses: runs that diverged", fontsize="small")


if __name__ == "__main__":
    raise SystemExit(main())
