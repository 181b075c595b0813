"""Which layers of an AlexNet are badly scaled, and what preconditioning makes of them.

    python examples/scaling_alexnet.py

A network of AlexNet's shape for images of 3 x 32 x 32 (kernels of 11, 5 and 3, then three linear
layers), once with max-pooling and once with striding in its place, as Defazio & Bottou have it.
fastspec predicts from the shapes alone the weight scaling factor gamma of every layer, for weights
from four initialisations and after `fastspec.scaling.precondition`, which is also to give outputs
a standard deviation of 0.05. "Spread" is the largest over the smallest gamma of the layers. Nothing
is trained.

Beside it stands what one finds in real networks at the start: the ratio nu = E[dW^2] / E[W^2] of
weight gradients to weights, which gamma is to predict. Gradients of the outputs are independent
Gaussian numbers; inputs are either such numbers, too ("noise"), or pieces of the two photographs
that come with scikit-learn ("photos"), whose pixels are strongly correlated. Both have second
moment 1. Preconditioned networks are measured; all others have the same nu / gamma, as the outputs
are proportional to the weights of each layer.
"""

from __future__ import annotations

import argparse
import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _training import HERE, at_least, bar, provenance, save_figure, write_table
from torch import Tensor, nn

import fastspec.torch as ft
from fastspec import scaling

IMAGE, CLASSES, BATCH = (3, 32, 32), 10, 16
OUTPUT_STD = 0.05  # the paper's
SCHEMES = ("fan_in", "fan_out", "arithmetic", "geometric")
PRECONDITIONED = "preconditioned"
POOLINGS, INPUTS = ("max-pool", "stride"), ("noise", "photos")


class Setting(NamedTuple):
    """A network, the variances of its weights by name, and what fastspec says of it."""

    pooling: str
    init: str
    ops: Sequence[Any]
    variances: Mapping[str, float]
    report: scaling.ScalingReport
    changes: Sequence[Any] = ()

    def gammas(self) -> np.ndarray:
        """Of all layers."""
        return np.array([layer.gamma for layer in self.report.layers])


Measured = dict[tuple[str, str], np.ndarray]  # (pooling, input): nu / gamma, (seeds, layers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; returns the exit code."""
    args = options().parse_args(argv)
    notes = provenance(args)
    settings = [setting for pooling in POOLINGS for setting in describe(pooling, args.shrink)]
    measured = measure(settings, args.seeds)
    names = [layer.name for layer in settings[0].report.layers]
    write_table(args.out / "scaling_alexnet_layers.csv",
                ["pooling", "init", "layer", "variance", "varsigma", "gamma", "to_median", "flag"],
                layer_rows(settings), notes, show=False)
    write_table(args.out / "scaling_alexnet_changes.csv",
                ["pooling", "operation", "kind", "factor", "change"],
                [[s.pooling, change.op, change.kind, change.factor, change.text]
                 for s in settings for change in s.changes], notes)
    write_table(args.out / "scaling_alexnet_measured.csv",
                ["pooling", "input", "layer", "nu_over_gamma", "standard_error", "to_median"],
                measured_rows(names, measured), notes)
    write_table(args.out / "scaling_alexnet.csv",
                ["pooling", "init", *names, "spread", *[f"spread_{name}" for name in INPUTS],
                 "output_moment"], rows(settings, measured), notes)
    draw(settings, measured, args.out / "scaling_alexnet.png", notes)
    return 0


def options() -> argparse.ArgumentParser:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seeds", type=at_least(1), default=16, help="networks measured")
    parser.add_argument("--shrink", type=at_least(1), default=1,
                        help="divides the widths of all hidden layers")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory of results")
    return parser


def network(pooling: str, shrink: int) -> list[Any]:
    """AlexNet's shape, with widths divided by ``shrink``."""
    a, b, c, d, hidden = (max(1, n // shrink) for n in (64, 192, 384, 256, 4096))

    def pool() -> Any:
        return scaling.MaxPool2d(2, 2) if pooling == "max-pool" else scaling.Stride(2)

    return [
        scaling.Conv2d(IMAGE[0], a, 11, stride=2, padding=5, name="conv1"), scaling.ReLU(), pool(),
        scaling.Conv2d(a, b, 5, padding=2, name="conv2"), scaling.ReLU(), pool(),
        scaling.Conv2d(b, c, 3, padding=1, name="conv3"), scaling.ReLU(),
        scaling.Conv2d(c, d, 3, padding=1, name="conv4"), scaling.ReLU(),
        scaling.Conv2d(d, d, 3, padding=1, name="conv5"), scaling.ReLU(), pool(),
        scaling.Flatten(), scaling.Dropout(0.5),
        scaling.Linear(4 * d, hidden, name="linear6"), scaling.ReLU(), scaling.Dropout(0.5),
        scaling.Linear(hidden, hidden, name="linear7"), scaling.ReLU(),
        scaling.Linear(hidden, CLASSES, name="linear8"),
    ]


def describe(pooling: str, shrink: int) -> list[Setting]:
    """One pooling with weights from every initialisation, and preconditioned."""
    ops = network(pooling, shrink)
    settings = []
    for scheme in SCHEMES:
        variances = {op.name: _variance(scheme, op) for op in ops if op.has_weights}
        report = scaling.analyze(ops, IMAGE, init=variances)
        settings.append(Setting(pooling, scheme, ops, variances, report))
    made = scaling.precondition(ops, IMAGE, output_second_moment=OUTPUT_STD**2)
    settings.append(Setting(pooling, PRECONDITIONED, made.ops, made.variances, made.report,
                            made.changes))
    return settings


def _variance(scheme: str, op: Any) -> float:
    kernel = op.kernel if isinstance(op, scaling.Conv2d) else 1
    return scaling.weight_variance(scheme, op.n_in, op.n_out, kernel)


def noise() -> Tensor:
    """Images of independent Gaussian pixels."""
    return torch.randn(BATCH, *IMAGE, generator=torch.Generator().manual_seed(0))


def photos() -> Tensor:
    """Pieces of scikit-learn's photographs, with mean 0 and second moment 1 over all of them."""
    from sklearn.datasets import load_sample_images

    rng, pictures, pieces = np.random.default_rng(0), load_sample_images().images, []
    _, height, width = IMAGE
    for k in range(BATCH):
        picture = pictures[k % len(pictures)]
        top, left = rng.integers(np.subtract(picture.shape[:2], (height, width)) + 1)
        pieces.append(picture[top:top + height, left:left + width].transpose(2, 0, 1))
    x = np.array(pieces, dtype=float)
    return torch.tensor((x - x.mean()) / x.std(), dtype=torch.float32)


class Subsample(nn.Module):
    """Every stride-th row and column."""

    def __init__(self, stride: Any) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x[..., ::self.stride[0], ::self.stride[1]]


class Times(nn.Module):
    """A fixed multiplier."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def module(ops: Sequence[Any]) -> nn.Sequential:
    """The network in PyTorch; layers have the names of the operations."""
    names = [op.name.replace(".", "_") or f"op{index}" for index, op in enumerate(ops)]
    return nn.Sequential(OrderedDict(zip(names, map(_module, ops), strict=True)))


def _module(op: Any) -> nn.Module:
    match op:
        case scaling.Conv2d():
            return nn.Conv2d(op.n_in, op.n_out, op.kernel, op.stride, op.padding)
        case scaling.Linear():
            return nn.Linear(op.n_in, op.n_out)
        case scaling.MaxPool2d():
            return nn.MaxPool2d(op.kernel, op.stride)
        case scaling.Dropout():
            return nn.Dropout(op.p)
        case scaling.Stride():
            return Subsample(op.stride)
        case scaling.Scale():
            return Times(op.factor)
    return {scaling.ReLU: nn.ReLU, scaling.Flatten: nn.Flatten}[type(op)]()


def draw_weights(net: nn.Module, variances: Mapping[str, float]) -> None:
    """Gaussian weights of the given variances, biases 0."""
    with torch.no_grad():
        for name, variance in variances.items():
            layer: Any = net.get_submodule(name)
            layer.weight.normal_(std=variance**0.5)
            layer.bias.zero_()


def measure(settings: Sequence[Setting], seeds: int) -> Measured:
    """nu / gamma of every layer in preconditioned networks, one for each seed."""
    images = dict(zip(INPUTS, (noise(), photos()), strict=True))
    ours = {s.pooling: (s, module(s.ops)) for s in settings if s.init == PRECONDITIONED}
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for pooling, name, seed in bar(list(itertools.product(ours, images, range(seeds)))):
        setting, net = ours[pooling]
        report = ft.scaling_report(net, images[name], seeds=1, seed=seed,
                                   reinit=partial(draw_weights, variances=setting.variances))
        nu = np.array([layer.nu for layer in report.layers])
        found.setdefault((pooling, name), []).append(nu / setting.gammas())
    return {key: np.array(values) for key, values in found.items()}


def spread(values: np.ndarray) -> float:
    """Largest over smallest."""
    return float(values.max() / values.min())


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and its standard error, NaN of a single value."""
    count = len(values)
    error = values.std(0, ddof=1) / count**0.5 if count > 1 else np.full(values[0].shape, np.nan)
    return values.mean(0), error


def rows(settings: Sequence[Setting], measured: Measured) -> list[list[Any]]:
    """gamma of the layers over their median; spread of gamma and of nu; the output's moment."""
    return [[s.pooling, s.init, *(s.gammas() / np.median(s.gammas())), spread(s.gammas()),
             *(spread(measured[s.pooling, name].mean(0) * s.gammas()) for name in INPUTS),
             s.report.output_second_moment] for s in settings]


def layer_rows(settings: Sequence[Setting]) -> list[list[Any]]:
    """Every layer, with fastspec's remarks."""
    return [[s.pooling, s.init, layer.name, s.variances[layer.name], layer.varsigma, layer.gamma,
             layer.gamma / np.median(s.gammas()), layer.flag or ""]
            for s in settings for layer in s.report.layers]


def measured_rows(names: Sequence[str], measured: Measured) -> list[list[Any]]:
    """nu / gamma: mean over the networks, its standard error, and over the layers' median."""
    table = []
    for (pooling, name), ratios in measured.items():
        mean, error = mean_and_error(ratios)
        table += [[pooling, name, layer, *figures] for layer, *figures in
                  zip(names, mean, error, mean / np.median(mean), strict=True)]
    return table


def draw(settings: Sequence[Setting], measured: Measured, path: Path,
         notes: Sequence[str]) -> None:
    """gamma of every initialisation over the layers' median; below it what was measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 9.0), layout="constrained")
    grid = figure.subplots(2, len(POOLINGS), sharex=True, sharey="row", height_ratios=(2, 1))
    panels = dict(zip(POOLINGS, grid.T, strict=True))
    colors = dict(zip([*SCHEMES, PRECONDITIONED], ("C1", "C2", "C3", "C0", "k"), strict=True))
    for s in settings:
        names = [layer.name for layer in s.report.layers]
        panels[s.pooling][0].plot(names, s.gammas() / np.median(s.gammas()),
                                  "o--" if s.changes else "o-", color=colors[s.init],
                                  label=f"{s.init}: spread {spread(s.gammas()):.3g}")
    for (pooling, name), ratios in measured.items():
        mean, error = mean_and_error(ratios)
        panels[pooling][1].errorbar(names, mean, error, fmt="o-", capsize=3, label=name)
    for pooling, (top, bottom) in panels.items():
        top.set(yscale="log", title=pooling)
        bottom.axhline(1.0, color="0.6", linestyle=":")
        for ax in (top, bottom):
            ax.legend(fontsize="small")
            ax.grid(axis="y", alpha=0.3)
    grid[0, 0].set_ylabel("gamma / median")
    grid[1, 0].set_ylabel("measured nu / gamma")
    save_figure(figure, path, notes)


if __name__ == "__main__":
    raise SystemExit(main())
