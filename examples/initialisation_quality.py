"""Does mean-field theory predict which initialisation of a residual network learns best?

    python examples/initialisation_quality.py

Yang & Schoenholz 2017, section 6, in small: residual networks whose weights do not shrink with
depth learn handwritten digits for a few epochs, on a grid of sigma_w and depth L: tanh with
"reduced" blocks x + phi(W x + b), ReLU with "full" blocks x + V phi(W x + b), sigma_v = 1. The
paper holds that for tanh gradient explosion ln chi_0/chi_L decides, and for ReLU the metric
expressivity s_L: the larger the better, short of numerical trouble. fastspec.meanfield predicts
both, from the second moment and the overlap of the images; biases start at 0.

One learning rate holds for all cells of a map. Maps are made for several; the one whose mean
accuracy over all cells is highest is marked, a diverged network (a loss that is not finite)
counting as chance.

Tables: "cells" is the grid. The main table asks how well one number orders the cells in which
nothing diverged: Spearman's rank correlation with test accuracy over all of them, and the median of
that within one depth; "explained" is the share of the variance of accuracy explained by that number
in eight bins of equal count. "best" looks at each depth for the best sigma_w (geometric mean over
the cells within 0.01 of the highest accuracy) and the largest one up to which nothing diverged, and
compares them with the contour on which the predicted quantity has its mean over the depths.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _training import (
    CHANCE,
    PHI,
    Digits,
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
from numpy.typing import ArrayLike

from fastspec.meanfield import ResidualMeanField

LEARNING_RATES = (1e-4, 1e-3, 1e-2)
SIGMAS = 0.03, 4.0  # ends of the grid of sigma_w
FINE = 80  # values of sigma_w for contours
FLOAT32_MAX = float(np.finfo(np.float32).max)
BINS = 8
NEAR_BEST = 0.01  # of accuracy: about the standard deviation of one test on 517 images


@dataclass(frozen=True)
class Kind:
    """An activation with its block, and the quantity that is said to decide."""

    activation: str
    block: str
    branch_std: float | None
    claim: str

    def __str__(self) -> str:
        return f"{self.activation}, {self.block} blocks"


KINDS = (Kind("tanh", "reduced", None, "ln_chi_ratio"), Kind("relu", "full", 1.0, "ln_s"))
QUANTITIES = ("ln_chi_ratio", "ln_s", "ln_p")


@dataclass(frozen=True)
class Theory:
    """ln chi_0/chi_L, ln s_L and ln p_L, each of shape (sigmas, depths)."""

    sigmas: np.ndarray
    depths: np.ndarray
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class Map:
    """Test accuracy and the number of diverged networks, of shape (sigmas, depths)."""

    kind: Kind
    rate: float
    theory: Theory
    accuracy: np.ndarray
    diverged: np.ndarray


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; returns the exit code."""
    options = parser(__doc__, seeds=2, epochs=5, width=64)
    options.add_argument("--depths", type=at_least(1), nargs="+", default=[8, 15, 30, 60, 120],
                         help="numbers of blocks")
    options.add_argument("--sigmas", type=at_least(1), default=12, help="values of sigma_w")
    args = options.parse_args(argv)
    data, notes = load_digits(args.width), provenance(args)
    notes.append(f"p_0 = {data.second_moment():.6g}, gamma_0 = {data.overlap():.4g}")
    maps = measure(data, args)
    chosen = {kind: max((m for m in maps if m.kind == kind), key=lambda m: m.accuracy.mean())
              for kind in KINDS}
    mark = ["best" if chosen[m.kind] is m else "" for m in maps]
    head = ["activation", "block", "learning_rate", "choice"]
    heads = [[m.kind.activation, m.kind.block, m.rate, word]
             for m, word in zip(maps, mark, strict=True)]

    def write(name: str, columns: Sequence[str], rows: Any, show: bool = True) -> None:
        table = [[*start, *row] for start, m in zip(heads, maps, strict=True) for row in rows(m)]
        write_table(args.out / f"{name}.csv", [*head, *columns], table, notes, show=show)

    write("initialisation_quality_cells",
          ["sigma_w", "depth", *QUANTITIES, "test_accuracy", "diverged"], cell_rows, show=False)
    write("initialisation_quality_best",
          ["depth", "best_sigma_w", "accuracy", "on_contour", "claimed_quantity",
           "largest_sigma_w", "on_its_contour", "claimed_quantity_there"], best_rows)
    write("initialisation_quality",
          ["ordered_by", "claimed", "cells", "spearman", "spearman_within_depth", "explained"],
          correlation_rows)
    draw(maps, chosen, data, args.out / "initialisation_quality.png", notes)
    return 0


def theory(kind: Kind, sigmas: np.ndarray, depths: ArrayLike, data: Digits) -> Theory:
    """Mean-field predictions; a run to the greatest depth holds the smaller ones."""
    p0, at = data.second_moment(), np.asarray(depths)
    values = {name: np.empty((len(sigmas), len(at))) for name in QUANTITIES}
    for k, sigma_w in enumerate(sigmas):
        field = ResidualMeanField(kind.activation, kind.block, sigma_w=float(sigma_w))
        run = field.run(int(at.max()), p0=p0, gamma0=data.overlap())
        values["ln_chi_ratio"][k] = run.log_chi[0] - run.log_chi[at]
        values["ln_s"][k], values["ln_p"][k] = run.log_s[at], run.log_p[at]
    return Theory(np.asarray(sigmas), at, values)


def measure(data: Digits, args: argparse.Namespace) -> list[Map]:
    """Train all cells; those of one depth side by side."""
    sigmas = np.geomspace(*SIGMAS, args.sigmas)
    maps = []
    for kind, rate in bar(list(itertools.product(KINDS, LEARNING_RATES))):
        predicted = theory(kind, sigmas, args.depths, data)
        columns = [train_depth(kind, rate, sigmas, depth, data, args) for depth in args.depths]
        accuracy, diverged = np.stack(columns, axis=-1)
        maps.append(Map(kind, rate, predicted, accuracy, diverged))
    return maps


def train_depth(kind: Kind, rate: float, sigmas: np.ndarray, depth: int, data: Digits,
                args: argparse.Namespace) -> np.ndarray:
    """Mean test accuracy and number of diverged networks, shape (2, sigmas)."""
    stack = Stack(PHI[kind.activation], depth, args.width, np.repeat(sigmas, args.seeds),
                  list(range(args.seeds)) * len(sigmas), kind.branch_std)
    history = train(stack, data, args.epochs, rate, measure=())
    diverged = history.diverged().reshape(-1, args.seeds)
    accuracy = history.test_accuracy[-1].reshape(-1, args.seeds)
    return np.stack([np.where(diverged, CHANCE, accuracy).mean(1), diverged.sum(1)])


def cell_rows(m: Map) -> list[list[Any]]:
    """The whole grid."""
    t = m.theory
    return [[sigma_w, int(depth), *(t.values[name][i, j] for name in QUANTITIES),
             m.accuracy[i, j], int(m.diverged[i, j])]
            for i, sigma_w in enumerate(t.sigmas) for j, depth in enumerate(t.depths)]


def correlation_rows(m: Map) -> list[list[Any]]:
    """How well each number orders the cells in which nothing diverged."""
    t, sound = m.theory, m.diverged == 0
    sigma_w, depth = np.meshgrid(t.sigmas, t.depths, indexing="ij")
    numbers = {"ln_chi_ratio": t.values["ln_chi_ratio"], "ln_s": t.values["ln_s"],
               "sigma_w": sigma_w, "depth": depth.astype(float)}
    rows = []
    for name, number in numbers.items():
        within = [spearman(number[ok, j], m.accuracy[ok, j])
                  for j, ok in enumerate(sound.T) if name != "depth"]
        rows.append([name, "yes" if name == m.kind.claim else "", int(sound.sum()),
                     spearman(number[sound], m.accuracy[sound]),
                     float(np.nanmedian(within)) if np.isfinite(within).any() else float("nan"),
                     explained(number[sound], m.accuracy[sound])])
    return rows


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where it is not defined."""
    from scipy.stats import spearmanr

    if x.size < 3 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def explained(x: np.ndarray, y: np.ndarray) -> float:
    """Share of the variance of y between bins of x of equal count (correlation ratio)."""
    if y.size < 2 * BINS or np.ptp(y) == 0.0:
        return float("nan")
    bins = np.array_split(y[np.argsort(x, kind="stable")], BINS)
    between = sum(part.size * (part.mean() - y.mean()) ** 2 for part in bins)
    return float(between / (y.size * y.var()))


def best_rows(m: Map) -> list[list[Any]]:
    """Best and largest usable sigma_w of each depth, and those on a contour of the prediction."""
    best, edge = best_sigmas(m), usable_sigmas(m)
    best_value, best_contour = on_contour(m, best)
    edge_value, edge_contour = on_contour(m, edge)
    return [list(row) for row in zip(m.theory.depths.tolist(), best, m.accuracy.max(0),
                                     best_contour, best_value, edge, edge_contour, edge_value,
                                     strict=True)]


def best_sigmas(m: Map) -> np.ndarray:
    """Geometric mean of the sigma_w whose accuracy is within 0.01 of the highest, per depth."""
    near = m.accuracy >= m.accuracy.max(0) - NEAR_BEST
    return np.exp((near * np.log(m.theory.sigmas)[:, None]).sum(0) / near.sum(0))


def usable_sigmas(m: Map) -> np.ndarray:
    """Largest sigma_w up to which no network diverged, per depth; NaN if none ever did."""
    sound = np.logical_and.accumulate(m.diverged == 0, axis=0)
    largest = np.where(sound, m.theory.sigmas[:, None], 0.0).max(0)
    return np.where(sound.all(0) | (largest == 0.0), np.nan, largest)


def on_contour(m: Map, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The claimed quantity at the chosen sigma_w, and the sigma_w at which it has its mean.

    Both per depth, by interpolation in ln sigma_w; the quantity grows with sigma_w.
    """
    log_sigma = np.log(m.theory.sigmas)
    columns = m.theory.values[m.kind.claim].T
    value = np.array([np.interp(x, log_sigma, column)
                      for x, column in zip(np.log(chosen), columns, strict=True)])
    if np.isnan(value).all():
        return value, value
    mean = np.nanmean(value)
    sigma = np.exp([np.interp(mean, column, log_sigma) for column in columns])
    return value, np.where(np.isnan(value), np.nan, sigma)


def draw(maps: Sequence[Map], chosen: dict[Kind, Map], data: Digits, path: Path,
         notes: Sequence[str]) -> None:
    """Heat maps of test accuracy, one row for each kind of network, with predicted contours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 9.0), layout="constrained")
    grid = figure.subplots(len(KINDS), len(LEARNING_RATES), sharex=True, sharey=True)
    fine = np.geomspace(*SIGMAS, FINE)
    image: Any = None
    for ax, m in zip(grid.flat, maps, strict=True):
        t = m.theory
        image = ax.pcolormesh(_edges(t.sigmas), _edges(t.depths), m.accuracy.T, vmin=0.0, vmax=1.0,
                              cmap="viridis")
        lost = np.argwhere(m.diverged > 0)
        ax.plot(t.sigmas[lost[:, 0]], t.depths[lost[:, 1]], "wx", markersize=5)
        _draw_contours(ax, theory(m.kind, fine, np.arange(1, t.depths.max() + 1), data), m.kind)
        word = " (best)" if chosen[m.kind] is m else ""
        ax.plot(best_sigmas(m), t.depths, "r.-", linewidth=1.0)
        ax.set_title(f"{m.kind}, learning rate {m.rate:g}{word}", fontsize="medium")
        ax.set(xscale="log", yscale="log", xlim=_edges(t.sigmas)[[0, -1]],
               ylim=_edges(t.depths)[[0, -1]], yticks=t.depths, yticklabels=t.depths)
        ax.minorticks_off()
    for ax in grid[-1]:
        ax.set_xlabel("sigma_w")
    for ax in grid[:, 0]:
        ax.set_ylabel("number of blocks L")
    figure.colorbar(image, ax=grid, label="accuracy on the test set", shrink=0.6)
    figure.suptitle("white: ln chi_0/chi_L (tanh), ln s_L (relu); dashed: float32 overflows; "
                    "red: best sigma_w; crosses: diverged", fontsize="medium")
    save_figure(figure, path, notes)


def _draw_contours(ax: Any, t: Theory, kind: Kind) -> None:
    values = t.values[kind.claim].T
    levels = [0.5, 1, 2, 4, 8, 16] if kind.claim == "ln_chi_ratio" else [1, 2, 4, 8, 16, 32, 64]
    lines = ax.contour(t.sigmas, t.depths, values, levels=levels, colors="w", linewidths=0.8)
    ax.clabel(lines, fontsize=7)
    ax.contour(t.sigmas, t.depths, t.values["ln_p"].T, levels=[2.0 * np.log(FLOAT32_MAX)],
               colors="w", linestyles="--")


def _edges(centres: np.ndarray) -> np.ndarray:
    """Borders of cells on a log axis."""
    if centres.size == 1:
        return np.array([centres[0] / 1.5, centres[0] * 1.5])
    middle = np.sqrt(centres[1:] * centres[:-1])
    return np.concatenate([[centres[0] ** 2 / middle[0]], middle, [centres[-1] ** 2 / middle[-1]]])


if __name__ == "__main__":
    raise SystemExit(main())
