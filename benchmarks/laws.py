"""The laws that the benchmarks share."""

import fastspec as fs

LAWS = {
    "resnet_limit(1e-6)": lambda: fs.ResNetLimit(1e-6),
    "resnet_limit(0.125)": lambda: fs.ResNetLimit(0.125),
    "resnet_limit(10)": lambda: fs.ResNetLimit(10.0),
    "fuss_catalan(10)": lambda: fs.FussCatalan(10),
    "relu(10)": lambda: fs.FeedForward(10, "relu", sigma_w=2**0.5).spectrum(),
    "relu_orthogonal(10)": lambda: fs.FeedForward(10, "relu", "orthogonal", 2**0.5).spectrum(),
    "bernoulli_limit(0.5)": lambda: fs.BernoulliLimit(0.5),
}
