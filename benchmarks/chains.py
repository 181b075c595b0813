"""Exact laws of chains: building them, their tables, and Newton's method beside the table."""

import numpy as np

import fastspec as fs

from .laws import CHAINS
from .solve import best_of, grid


class Build:
    params = [list(CHAINS)]
    param_names = ["chain"]

    def setup(self, name):
        CHAINS[name]()  # compile first

    def time_build(self, name):
        CHAINS[name]()

    def track_milliseconds(self, name):
        return 1e3 * best_of(CHAINS[name], 5)

    track_milliseconds.unit = "ms"


class Shared:
    """Blocks that share coordinates."""

    params = [[2, 5, 20, 100, 200], ["relu", "gelu"]]
    param_names = ["depth", "activation"]
    timeout = 300

    def setup(self, depth, activation):
        self.net = fs.ResNet(depth, activation)
        self.net.spectrum()     # compile first

    def time_build(self, depth, activation):
        self.net.spectrum(basis="shared")


class Outliers:
    params = [[10, 100], ["tanh", "relu", "gelu"]]
    param_names = ["depth", "activation"]

    def setup(self, depth, activation):
        self.net = fs.ResNet(depth, activation)
        self.net.outliers()     # compile first

    def time_outliers(self, depth, activation):
        self.net.outliers()


class Table:
    params = [list(CHAINS), ["sorted", "shuffled"]]
    param_names = ["chain", "order"]
    size = 1_000_000

    def setup(self, name, order):
        self.law = CHAINS[name]()
        self.x = grid(self.law, self.size)
        if order == "sorted":
            self.x.sort()
        self.out = np.empty(self.size)
        self.z = 1j * self.x

    def track_pdf_over_exp(self, name, order):
        """Time of pdf over that of np.exp on complex128 of the same size."""
        unit = best_of(lambda: np.exp(self.z))
        return best_of(lambda: self.law.pdf(self.x, out=self.out)) / unit

    track_pdf_over_exp.unit = "E"

    def track_cdf_over_exp(self, name, order):
        unit = best_of(lambda: np.exp(self.z))
        return best_of(lambda: self.law.cdf(self.x), 3) / unit

    track_cdf_over_exp.unit = "E"


class Newton:
    params = [list(CHAINS), ["newton", "walk"]]
    param_names = ["chain", "method"]

    def setup(self, name, method):
        self.law = CHAINS[name]()
        self.x = grid(self.law, 10_000 if method == "newton" else 200)
        self.z = 1j * np.resize(self.x, 100_000)

    def track_over_exp(self, name, method):
        """Time per point over that of np.exp on complex128."""
        unit = best_of(lambda: np.exp(self.z)) / self.z.size
        return best_of(lambda: self.law.pdf(self.x, method=method), 3) / self.x.size / unit

    track_over_exp.unit = "E"

    def time_icdf(self, name, method):
        self.law.icdf(np.linspace(0.001, 0.999, self.x.size))
