"""Making laws, propagating signals, importing the package."""

import subprocess
import sys

import numpy as np

import fastspec as fs
from fastspec.quadrature import pair_moments

from .laws import LAWS


class Build:
    params = [list(LAWS)]
    param_names = ["law"]

    def time_build(self, name):
        LAWS[name]()


class Propagate:
    params = [["tanh", "relu", "hard_tanh", "gelu"], [10, 1000]]
    param_names = ["activation", "depth"]

    def setup(self, activation, depth):
        self.net = fs.ResNet(depth=depth, activation=activation)
        self.net.propagate()  # compile first

    def time_propagate(self, activation, depth):
        self.net.propagate()


class Pairs:
    """An activation at two correlated points, 100 variances at a time."""

    params = [["tanh", "gelu", "elu"], [1.0, 100.0, 1e6], [1e-6, 0.5]]
    param_names = ["activation", "q", "distance"]

    def setup(self, activation, q, distance):
        self.activation = fs.activation(activation)
        self.q = np.full(100, q)
        pair_moments(self.activation, q, distance=distance)  # compile first

    def time_pair_moments(self, activation, q, distance):
        pair_moments(self.activation, self.q, distance=distance)


class Import:
    def time_import(self):
        subprocess.run([sys.executable, "-c", "import fastspec"], check=True)
