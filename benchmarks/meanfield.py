"""Mean-field recurrences: layers of one network, and heat maps over sigma_w and depth."""

import numpy as np

from fastspec.meanfield import ResidualMeanField, heatmap, sigma_for_log_chi_ratio

ACTIVATIONS = ["relu", "erf", "tanh", "gelu"]


class Run:
    params = [ACTIVATIONS, [1.0, 0.4]]
    param_names = ["activation", "gamma0"]     # gamma0 = p0: one input

    def setup(self, activation, gamma0):
        self.field = ResidualMeanField(activation, sigma_w=0.3, sigma_b=0.5)
        self.field.run(2, gamma0=gamma0)  # compile first

    def time_hundred_layers(self, activation, gamma0):
        self.field.run(100, gamma0=gamma0)

    def time_thousand_layers(self, activation, gamma0):
        self.field.run(1000, gamma0=gamma0)


class HeatMap:
    params = [ACTIVATIONS]
    param_names = ["activation"]

    def setup(self, activation):
        self.depths, self.sigma = np.arange(1, 101), np.geomspace(0.05, 0.5, 100)
        heatmap(activation, "reduced", [2], sigma_w=self.sigma)

    def time_ten_thousand_cells(self, activation):
        heatmap(activation, "reduced", self.depths, sigma_w=self.sigma, sigma_b=0.5, gamma0=0.4)


class Target:
    def setup(self):
        sigma_for_log_chi_ratio("tanh", "reduced", 2, 1.0)

    def time_sigma_of_a_hundred_layers(self):
        sigma_for_log_chi_ratio("tanh", "reduced", 100, 5.0, sigma_b=0.5)
