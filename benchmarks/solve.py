"""Direct solves: density, distribution function and quantiles on whole grids.

`Ratio` reports time per point over that of np.exp on complex128 of the same size, measured in the
same run: machines are noisy, ratios are not.
"""

import time

import numpy as np

from .laws import LAWS


def grid(law, size):
    """Points over the support, shuffled, at most 30 e-folds down from the top."""
    low, high = law.log_eigenvalues().support()[0]
    low = max(low, high - 30.0)
    return np.exp(np.random.default_rng(1).uniform(low, high, size))


def best_of(function, repeats=7):
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class Density:
    params = [list(LAWS), [100, 10_000, 1_000_000]]
    param_names = ["law", "points"]

    def setup(self, name, size):
        self.law = LAWS[name]()
        self.x = grid(self.law, size)

    def time_pdf(self, name, size):
        self.law.pdf(self.x)


class Queries:
    params = [list(LAWS)]
    param_names = ["law"]

    def setup(self, name):
        self.law = LAWS[name]()
        self.x = grid(self.law, 10_000)
        self.p = np.random.default_rng(2).random(10_000)

    def time_cdf(self, name):
        self.law.cdf(self.x)

    def time_icdf(self, name):
        self.law.icdf(self.p)

    def time_green(self, name):
        self.law.green(self.x * (1 + 0.1j))


class Scalar:
    params = [list(LAWS)]
    param_names = ["law"]

    def setup(self, name):
        self.law = LAWS[name]()
        self.x = float(grid(self.law, 1)[0])

    def time_pdf_of_a_float(self, name):
        self.law.pdf(self.x)


class Ratio:
    """Time per point in units of np.exp(complex128); the bar is 3 for the residual limit."""

    params = [list(LAWS)]
    param_names = ["law"]
    unit = "E"
    timeout = 120

    def setup(self, name):
        self.law = LAWS[name]()
        self.x = grid(self.law, 1_000_000)

    def track_pdf_over_exp(self, name):
        z = self.x + 1j * self.x
        z /= np.abs(z).max()
        return best_of(lambda: self.law.pdf(self.x)) / best_of(lambda: np.exp(z))

    track_pdf_over_exp.unit = "E"
