"""Inverse problems: the sigma_w for a target, and recommendations."""

import fastspec as fs
from fastspec.initialize import gain, recommend, sigma_w_for

from .solve import best_of

NETS = {
    "tanh ResNet, L = 100": lambda: fs.ResNet(100, "tanh"),
    "gelu ResNet, L = 100": lambda: fs.ResNet(100, "gelu"),
    "relu ResNet, L = 100": lambda: fs.ResNet(100, "relu"),
    "gelu ResNet, L = 50, two layers a branch": lambda: fs.ResNet(50, "gelu", branch_layers=2),
}
TARGETS = {"c": 0.125, "condition_number": 4.0, "variance": 0.4, "top_singular_value": 2.0}


class Targets:
    params = [list(NETS), list(TARGETS)]
    param_names = ["net", "target"]

    def setup(self, name, target):
        self.net = NETS[name]()
        self.target = {target: TARGETS[target]}
        sigma_w_for(self.net, **self.target)    # compile first

    def time_sigma_w_for(self, name, target):
        sigma_w_for(self.net, **self.target)


class Laws:
    """Time of the search over that of one law of the same network: how many laws it takes."""

    params = [list(NETS)]
    param_names = ["net"]

    def setup(self, name):
        self.net = NETS[name]()
        sigma_w_for(self.net, condition_number=4.0)

    def track_search_over_law(self, name):
        search = best_of(lambda: sigma_w_for(self.net, condition_number=4.0), 3)
        return search / best_of(self.net.spectrum, 3)

    track_search_over_law.unit = "laws"


class Recommendations:
    params = [[("gelu", "resnet"), ("tanh", "feedforward"), ("tanh", "mean_field"),
               ("relu", "mean_field")]]
    param_names = ["kind"]

    def setup(self, kind):
        recommend(kind[0], 100, kind[1])

    def time_recommend(self, kind):
        recommend(kind[0], 100, kind[1])


class Gains:
    def time_gain_of_mish(self):
        gain("mish")
