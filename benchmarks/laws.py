"""The laws that the benchmarks share."""

import fastspec as fs


def _relu(variance, weights="gaussian", repeat=1):
    return fs.Layer("relu", q=1.0, weight_variance=variance, weights=weights, repeat=repeat)


LAWS = {
    "resnet_limit(1e-6)": lambda: fs.ResNetLimit(1e-6),
    "resnet_limit(0.125)": lambda: fs.ResNetLimit(0.125),
    "resnet_limit(10)": lambda: fs.ResNetLimit(10.0),
    "fuss_catalan(10)": lambda: fs.FussCatalan(10),
    "relu(10)": lambda: fs.FeedForward(10, "relu", sigma_w=2**0.5).spectrum(),
    "relu_orthogonal(10)": lambda: fs.FeedForward(10, "relu", "orthogonal", 2**0.5).spectrum(),
    "bernoulli_limit(0.5)": lambda: fs.BernoulliLimit(0.5),
}

# Solved laws by kind of chain, depth and number of different layers.
CHAINS = {
    "relu_gaussian(10)": lambda: fs.ChainLaw([_relu(2.0, repeat=10)]),
    "relu_orthogonal(4)": lambda: fs.ChainLaw([_relu(2.0, "orthogonal", 4)]),
    "relu_resnet(10)": lambda: fs.ChainLaw([fs.Residual(_relu(0.1), repeat=10)]),
    "relu_resnet(100)": lambda: fs.ChainLaw([fs.Residual(_relu(0.01), repeat=100)]),
    "relu_block(gap)": lambda: fs.ChainLaw([fs.Residual(_relu(0.0165))]),
    "tanh_gaussian(6)": lambda: fs.FeedForward(6, "tanh", sigma_w=1.5).spectrum(),
    "tanh_orthogonal(2)": lambda: fs.FeedForward(2, "tanh", "orthogonal", 1.5,
                                                 q="fixed_point").spectrum(),
    "gelu_orthogonal(5)": lambda: fs.ChainLaw([
        fs.Layer("gelu", q=1.0, weight_variance=2.0, weights="orthogonal", repeat=5)]),
    "tanh_resnet(10)": lambda: fs.ResNet(10, "tanh").spectrum(),
    "tanh_resnet(1000)": lambda: fs.ResNet(1000, "tanh").spectrum(),
    "marchenko_pastur(0.3)": lambda: fs.MarchenkoPastur(0.3),
    "resnet_limit(0.1) @ marchenko_pastur(0.3)":
        lambda: fs.ResNetLimit(0.1) @ fs.MarchenkoPastur(0.3),
}
