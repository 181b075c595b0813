"""Handwritten digits through real residual networks, held against the theory.

    python -m fastspec.demo [--out DIR] [--width N]

Ten images of scikit-learn's 8x8 digits, one of each digit, go through ten freshly drawn residual
networks for each of three activations and two depths (the setting of the figure of Tarnowski et
al. 2018: effective cumulant c = 0.125, depths 10 and 20). The measured singular values of the
Jacobians are drawn as histograms; over them the law at that depth (of the free model) and the
universal law of infinite depth, which is the same in all panels. A table compares condition
numbers. ReLU networks have one singular value above the bulk: J x^0 = x^L for a homogeneous
activation without bias, and |x^L| grows with the mean of relu. The law of the bulk does not
contain it; ``net.outliers()`` predicts it. Picture and table have the predicted ones beside the
measured ones.

Needs matplotlib and scikit-learn: pip install 'fastspec[demo]'.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._extremes import detached_outliers, full_condition_number
from ._progress import progress_on_terminal, with_progress
from .simulate import jacobian_singular_values, ks_distance, split_outliers

__all__ = ["main", "digit_inputs", "network_with_cumulant"]

FloatArray = NDArray[np.float64]

ACTIVATIONS = ("tanh", "relu", "hard_tanh")
DEPTHS = (10, 20)
CUMULANT = 0.125
PIXELS = 64
_SEED = 2018


@dataclass(frozen=True)
class Panel:
    """One activation at one depth: the laws and what was measured."""

    activation: str
    depth: int
    sigma_w: float
    law: Any  # at this depth
    limit: Any  # of infinite depth at the same cumulant
    outliers: tuple[Any, ...]  # predicted
    measured: FloatArray  # singular values, shape (images, width)

    def bulk_condition(self) -> float:
        """Measured condition number without outliers, its mean over the images."""
        bulks = [split_outliers(draw, self.law)[0] for draw in self.measured]
        return float(np.mean([bulk.max() / bulk.min() for bulk in bulks]))

    def full_condition(self) -> float:
        """Measured condition number of all values, its mean over the images."""
        return float(np.mean([draw.max() / draw.min() for draw in self.measured]))

    def title(self) -> str:
        """Of its picture."""
        bulk = (
            f"{self.activation}, {self.depth} layers; condition number "
            f"{self.law.condition_number():.3f}, limit {self.limit.condition_number():.3f}, "
            f"measured {self.bulk_condition():.3f}"
        )
        if not self.outliers:
            return bulk
        full = full_condition_number(self.law, self.outliers)
        return f"{bulk};\nwith outliers {full:.3f}, measured {self.full_condition():.3f}"

    def row(self) -> list[str]:
        """Its line of the table."""
        outlying = np.concatenate([split_outliers(draw, self.law)[1] for draw in self.measured])
        return [
            self.activation,
            str(self.depth),
            f"{self.sigma_w:.4f}",
            f"{ks_distance(self.measured, self.law):.4f}",
            f"{ks_distance(self.measured, self.limit):.4f}",
            f"{self.limit.condition_number():.3f}",
            f"{self.law.condition_number():.3f}",
            f"{self.bulk_condition():.3f}",
            f"{full_condition_number(self.law, self.outliers):.3f}",
            f"{self.full_condition():.3f}",
            f"{len(self.outliers)}",
            f"{outlying.size / len(self.measured):.1f}",
            self._places(np.array([outlier.singular_value for outlier in self.outliers])),
            self._places(outlying),
        ]

    def _places(self, values: FloatArray) -> str:
        """Mean of the values below the bulk and of those above it, parted by a slash."""
        middle = self.law.singular_values().median()
        sides = [values[values < middle], values[values > middle]]
        return "/".join(f"{side.mean():.3f}" for side in sides if side.size) or "-"


_HEADER = [
    "activation", "depth", "sigma_w", "KS", "KS limit", "cond limit", "cond bulk", "measured",
    "cond all", "measured", "outliers", "measured", "at s", "measured",
]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        ``--out DIR`` (demo_output) and ``--width N`` (500); ``sys.argv[1:]`` by default.

    Returns
    -------
    int
        0, or 2 after a one-line message on stderr if an option is wrong, a package is missing
        or the picture cannot be written.
    """
    args = _arguments(argv)
    missing = [name for name in ("matplotlib", "sklearn") if not importlib.util.find_spec(name)]
    if missing:
        return _fail(f"{' and '.join(missing)} missing: pip install 'fastspec[demo]'")
    if args.width < PIXELS:
        return _fail(f"argument --width: must be at least {PIXELS}, got {args.width}")
    path = args.out / "resnet_digits.png"
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        panels = _measure(args.width)
        _draw(panels, args.width, path)
    except OSError as error:
        return _fail(f"argument --out: cannot write {str(path)!r}: {error.strerror}")
    _print_table([panel.row() for panel in panels])
    print(f"picture: {path}")
    return 0


def digit_inputs(width: int) -> FloatArray:
    """One image of each digit as network input of the given width.

    Pixels are standardised over the whole data set; an image x is lifted to sqrt(N/64) Q x with
    the columns of the N x 64 matrix Q orthonormal and random but fixed, and scaled to second
    moment exactly 1. The lift keeps angles between images and gives coordinates of mean near 0.

    Parameters
    ----------
    width : int
        Width N >= 64.

    Returns
    -------
    ndarray, shape (10, width)
        Row d is an image of digit d, with ``mean(x**2) = 1``.

    Raises
    ------
    ValueError
        If width < 64.

    Examples
    --------
    >>> from fastspec.demo import digit_inputs
    >>> digit_inputs(100).shape
    (10, 100)
    """
    if width < PIXELS:
        raise ValueError(f"width must be >= {PIXELS}, got {width!r}")
    from sklearn.datasets import load_digits

    digits = load_digits()
    spread = digits.data.std(axis=0)
    standard = (digits.data - digits.data.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    chosen = standard[[int(np.flatnonzero(digits.target == d)[0]) for d in range(10)]]
    rng = np.random.default_rng(_SEED)
    lift = np.linalg.qr(rng.standard_normal((width, PIXELS)))[0]
    x = chosen @ lift.T
    return x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))


def network_with_cumulant(activation: str, depth: int, cumulant: float) -> Any:
    """Depth-scaled Gaussian residual network whose effective cumulant has the given value.

    Parameters
    ----------
    activation : str
        Name of the activation.
    depth : int
        Number of layers, >= 1.
    cumulant : float
        Effective cumulant c in (0, 2].

    Returns
    -------
    ResNet
        Network without bias and with skip 1; input second moment 1.

    Raises
    ------
    ValueError
        If no weight scale up to 10 gives this cumulant.

    Examples
    --------
    >>> from fastspec.demo import network_with_cumulant
    >>> round(network_with_cumulant("relu", 10, 0.125).sigma_w, 12)
    0.5
    """
    from scipy.optimize import brentq

    import fastspec as fs

    def network(sigma_w: float) -> Any:
        return fs.ResNet(depth=depth, activation=activation, sigma_w=sigma_w)

    sigma_w = brentq(lambda s: network(s).effective_cumulant() - cumulant, 1e-3, 10.0, xtol=1e-13)
    return network(float(sigma_w))


def _measure(width: int) -> list[Panel]:
    inputs = digit_inputs(width)
    cases = [(activation, depth) for activation in ACTIVATIONS for depth in DEPTHS]
    nets = [network_with_cumulant(*case, CUMULANT) for case in cases]
    measured = np.empty((len(nets), len(inputs), width))
    runs = list(np.ndindex(*measured.shape[:2]))
    for run in with_progress(runs, progress_on_terminal(), "networks"):
        case, image = run
        rng = np.random.default_rng([_SEED, *run])
        measured[run] = jacobian_singular_values(nets[case], width, seed=rng, input=inputs[image])
    mean = float(inputs.mean())  # the outliers know of it, linearly while it is small
    return [
        Panel(*case, net.sigma_w, net.spectrum(), net.spectrum(limit=True),
              detached_outliers(replace(net, input_mean=mean)), values)
        for case, net, values in zip(cases, nets, measured, strict=True)
    ]  # fmt: skip


def _draw(panels: list[Panel], width: int, path: Path) -> None:
    from matplotlib.figure import Figure

    from .plotting import LIMIT_STYLE, plot_comparison, plot_law

    figure = Figure(figsize=(11.0, 11.0), layout="constrained")
    figure.suptitle(
        f"Ten handwritten digits through ten residual networks, width {width}, c = {CUMULANT}"
    )
    grid = figure.subplots(len(ACTIVATIONS), len(DEPTHS))
    for ax, panel in zip(grid.flat, panels, strict=True):
        plot_comparison(panel.measured, panel.law, ax, axis="linear",
                        label=f"depth {panel.depth}", outliers=panel.outliers)
        plot_law(
            panel.limit, ax, singular_values=True, label="limit of infinite depth", **LIMIT_STYLE
        )
        ax.set_title(panel.title(), fontsize="small")
    left, right = zip(*(ax.get_xlim() for ax in grid.flat), strict=True)
    for ax in grid.flat:  # one scale for all, wide enough for every outlier
        ax.set_xlim(min(left), max(right))
        ax.label_outer()
    figure.savefig(path, dpi=130)


def _print_table(rows: list[list[str]]) -> None:
    table = [_HEADER, *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(_HEADER))]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(
        "KS: from the law at this depth; KS limit, cond limit: of the law of infinite depth; cond "
        "bulk: of\nthe law at this depth; cond all: with the predicted outliers; outliers: their "
        "number per network,\nat s: their mean singular value; each followed by what was measured "
        "(averages over ten networks)"
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fastspec.demo",
        description="Handwritten digits through residual networks, against the theory.",
    )
    parser.add_argument("--out", type=Path, default=Path("demo_output"), help="(demo_output)")
    parser.add_argument("--width", type=int, default=500, help="width of the networks (500)")
    return parser.parse_args(argv)


def _fail(message: str) -> int:
    print("fastspec.demo: error:", message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
