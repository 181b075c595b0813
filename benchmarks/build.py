"""Making laws, propagating signals, importing the package."""

import subprocess
import sys

import fastspec as fs

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


class Import:
    def time_import(self):
        subprocess.run([sys.executable, "-c", "import fastspec"], check=True)
