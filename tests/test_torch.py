"""fastspec.torch against PyTorch's own numbers, and against laws that are tested elsewhere."""

import copy
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fastspec as fs

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'fastspec[torch]'")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import fastspec.torch as ft  # noqa: E402
from fastspec.simulate import ks_distance  # noqa: E402

torch.set_num_threads(1)


class Residual(nn.Module):
    """skip x + factor branch(x)."""

    def __init__(self, branch, skip=1.0, factor=1.0):
        super().__init__()
        self.branch, self.skip, self.factor = branch, skip, factor

    def forward(self, x):
        return self.skip * x + self.factor * self.branch(x)


class Function(nn.Module):
    """A module made of a function of its layers and the input."""

    def __init__(self, function, *layers, **attributes):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


class Branching(nn.Module):
    """Control flow on the signal."""

    def __init__(self, width=6):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def unit_inputs(*shape, seed=0, dtype=torch.float32):
    """Inputs of second moment exactly 1."""
    x = torch.randn(*shape, generator=generator(seed), dtype=torch.float64)
    norm = x.flatten(1).square().mean(1).sqrt()
    return (x / norm.reshape(-1, *[1] * (x.dim() - 1))).to(dtype)


def residual_mlp(width, depth, activation):
    return nn.Sequential(*[Residual(nn.Sequential(nn.Linear(width, width), activation()))
                           for _ in range(depth)])


def set_weights(module, sigma_w, seed=0):
    """Gaussian weights of variance sigma_w^2 / fan_in, no biases."""
    draw = generator(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.normal_(layer.weight, std=sigma_w / layer.weight[0].numel() ** 0.5,
                                generator=draw)
                layer.bias.zero_()
    return module


# --- describe: networks ---------------------------------------------------------------------------

def test_nested_orthogonal_mlp():
    def layer(module):
        nn.init.orthogonal_(module.weight, gain=1.3, generator=generator())
        nn.init.zeros_(module.bias)
        return module

    net = nn.Sequential(nn.Flatten(), layer(nn.Linear(40, 40)), nn.Tanh(), nn.Dropout(0.1),
                        nn.Sequential(nn.Identity(), layer(nn.Linear(40, 40)), nn.Tanh()),
                        layer(nn.Linear(40, 20)), nn.Tanh())
    found = ft.describe(net)
    assert found.covered and found.problems == ()
    assert isinstance(found.network, fs.FeedForward)
    assert found.network.weights == "orthogonal"
    assert found.network.sigma_w == pytest.approx(1.3, rel=1e-6)
    assert found.network.sigma_b == 0.0
    assert found.network.widths == (40, 40, 40, 20)
    assert [(note.path, note.kind) for note in found.notes] == [("3", "dropout")]
    assert [layer.path for layer in found.layers] == ["1", "4.1", "5"]
    assert "FeedForward(depth=3" in str(found) and "4.1" in str(found)


def test_gaussian_weights_pool_their_second_moments():
    net = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 20), nn.ReLU())
    set_weights(net, 1.4)
    weights = [net[0].weight.detach().double(), net[2].weight.detach().double()]
    pooled = sum(w.shape[1] * float(w.square().sum()) for w in weights) / sum(
        w.numel() for w in weights)
    network = ft.describe(net).network
    assert network.weights == "gaussian" and network.widths == (30, 60, 20)
    assert network.sigma_w == pytest.approx(math.sqrt(pooled), rel=1e-12)


def test_layers_that_differ_beyond_sampling_error_keep_their_own():
    net = nn.Sequential(nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU())
    set_weights(net, 1.4)
    with torch.no_grad():
        net[2].weight.mul_(1.3)
    found = ft.describe(net)
    assert isinstance(found.network, ft.MixedNetwork)
    ratio = [block.weight_variance / (1.4 * factor) ** 2
             for block, factor in zip(found.blocks(), (1.0, 1.3), strict=True)]
    assert ratio == pytest.approx([1.0, 1.0], abs=0.1)
    square = float(net[0].weight.detach().double().square().sum())
    assert ratio[0] == pytest.approx(square / 60 / 1.96)


@pytest.mark.parametrize(("activation", "name"), [(nn.ReLU, "relu"), (nn.GELU, "gelu")])
def test_residual_mlp_is_a_resnet(activation, name):
    net = set_weights(residual_mlp(50, 20, activation), 0.3)
    network = ft.describe(net, torch.full((1, 50), 2.0)).network
    assert isinstance(network, fs.ResNet)
    assert (network.depth, network.activation.name, network.skip) == (20, name, 1.0)
    assert network.depth_scaled is False
    assert (network.input_second_moment, network.input_mean) == (4.0, 2.0)
    assert network.sigma_w == pytest.approx(0.3, rel=0.01)


def test_two_layer_branches_with_equal_activations():
    block = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh())
    network = ft.describe(nn.Sequential(Residual(block, skip=0.9))).network
    assert (network.depth, network.branch_layers, network.skip) == (1, 2, 0.9)


def test_convolutions_count_channels():
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1, padding_mode="circular"), nn.ReLU(),
                        nn.Conv2d(16, 16, 1), nn.ReLU())
    set_weights(net, 1.5)
    found = ft.describe(net)
    assert found.network.widths == (8, 16, 16) and found.notes == ()
    assert found.network.sigma_w == pytest.approx(1.5, rel=0.1)
    head = nn.Sequential(net, nn.Flatten(), nn.Linear(16 * 9, 10))
    assert [(layer.inputs, layer.outputs) for layer in ft.describe(head).layers] == [
        (72, 144), (144, 144), (144, 10)]


def plus_relu(module, x):
    return x + torch.relu(module.layers[0](x))


CONSTANTS = [
    (lambda m, x: 0.9 * x + 0.5 * torch.relu(m.layers[0](x)), 0.9, 1.0, 0.5),
    (lambda m, x: (x + torch.relu(m.layers[0](x))) / 2**0.5, 0.5**0.5, 1.0, 0.5**0.5),
    (lambda m, x: x - torch.relu(m.layers[0](x)), 1.0, 1.0, -1.0),
    (lambda m, x: torch.relu(m.layers[0](x)) - 2.0 * x, -2.0, 1.0, 1.0),
    (lambda m, x: torch.add(x, torch.relu(m.layers[0](x)), alpha=0.3), 1.0, 1.0, 0.3),
    (lambda m, x: x + F.relu(m.layers[0](3.0 * x)).mul(m.alpha), 1.0, 3.0, 0.25),
    (lambda m, x: x + torch.relu(m.layers[0](x) * 3.0), 1.0, 3.0, 1.0),
    (lambda m, x: -(x + torch.relu_(m.layers[0](x))), -1.0, 1.0, -1.0),
    (lambda m, x: plus_relu(m, 2.0 * x), 2.0, 2.0, 1.0),
    (lambda m, x: sum([x, torch.relu(m.layers[0](x))]), 1.0, 1.0, 1.0),
    (lambda m, x: 2.0 * x + x + torch.relu(m.layers[0](2.0 * x)), 3.0, 2.0, 1.0),
]


@pytest.mark.parametrize(("function", "skip", "inner", "after"), CONSTANTS)
def test_constants_of_residual_blocks(function, skip, inner, after):
    layer = nn.Linear(10, 10, bias=False)
    module = Function(function, layer, alpha=nn.Parameter(torch.tensor(0.25)))
    found = ft.describe(module)
    block, = found.blocks()
    assert block.skip == pytest.approx(skip, rel=1e-6)
    variance = float(layer.weight.detach().double().square().sum()) / 10
    branch, = block.layers
    assert branch.q == pytest.approx(inner**2 * variance, rel=1e-6)
    assert branch.weight_variance == pytest.approx((inner * after) ** 2 * variance, rel=1e-6)


def test_mixed_network_agrees_with_uniform_ones():
    """The same parts as a ResNet, a FeedForward and a MixedNetwork."""
    resnet = residual_mlp(20, 3, nn.GELU)
    plain = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10), nn.ReLU())
    for module, weights in ((resnet, "gaussian"), (plain, "orthogonal")):
        ft.init_(module, sigma_w=1.2, sigma_b=0.3, weights=weights, generator=generator())
        found = ft.describe(module, torch.ones(20))
        exact = found.network
        parts = ([ft.Part((layer,), 1.0) for layer in found.layers] if module is resnet
                 else [ft.Part((layer,)) for layer in found.layers])
        parts = tuple(replace(part, layers=tuple(
            replace(layer, sigma_w=exact.sigma_w, sigma_b=exact.sigma_b, bias_mean=0.0)
            for layer in part.layers)) for part in parts)
        mixed = ft.MixedNetwork(parts, input_mean=1.0)
        assert mixed.kappa() == pytest.approx(exact.propagate().kappa, rel=1e-13)
        blocks = [block for block in exact.blocks() for _ in range(block.repeat)]
        for ours, theirs in zip(mixed.blocks(), blocks, strict=True):
            ours, theirs = (block.layers[0] if isinstance(block, fs.Residual) else block
                            for block in (ours, theirs))
            assert ours.q == pytest.approx(theirs.q, rel=1e-13)
            assert ours.weight_variance == pytest.approx(theirs.weight_variance, rel=1e-13)
        assert mixed.spectrum().variance() == pytest.approx(exact.spectrum().variance(), rel=1e-10)
        law = mixed.spectrum()
        assert mixed.jacobian_variance() == pytest.approx(law.variance() / law.mean() ** 2,
                                                          rel=1e-10)


def test_limit_law_of_mixed_residual_blocks():
    branch = nn.Sequential(linear(6), nn.Tanh(), linear(6))
    blocks = [Residual(branch, 2.0), Residual(nn.Sequential(linear(6), nn.Tanh()), -2.0)]
    network = ft.describe(nn.Sequential(*blocks)).network
    c = network.effective_cumulant()
    assert c == pytest.approx(sum(network.kappa()), rel=1e-15)
    exact = fs.ResNetLimit(c, skip=2.0, depth=2)
    assert network.spectrum(limit=True).support() == exact.support()
    for other, message in ((Residual(linear(6)), "skips of one size"),
                           (linear(6), "has plain layers")):
        mixed = ft.describe(nn.Sequential(blocks[0], other)).network
        with pytest.raises(ValueError, match=message):
            mixed.spectrum(limit=True)


def test_propagated_variances_against_the_running_module():
    """Biases with a mean, constants everywhere, a linear layer, both kinds of part."""
    width = 1500
    layers = [nn.Linear(width, width) for _ in range(4)]
    draw = generator(3)
    for layer in layers:
        nn.init.normal_(layer.weight, std=1.1 / width**0.5, generator=draw)
        nn.init.normal_(layer.bias, mean=0.4, std=1.0, generator=draw)
    seen = []

    def function(module, x):
        a, b, c, d = module.layers
        phi = module.phi
        x = 0.7 * phi(1.5 * a(0.8 * x))
        x = 0.9 * x + 0.5 * phi(c(phi(b(x))) * 1.2)
        return d(x) / 2.0

    class Watched(nn.Softplus):
        def forward(self, h):
            seen.append((h.mean().item(), h.var().item()))
            return super().forward(h)

    x = 1.3 * unit_inputs(1, width, seed=4) + 0.2
    Function(function, *layers, phi=Watched())(x)
    found = ft.describe(Function(function, *layers, phi=nn.Softplus()), x)
    first, block, last = found.blocks()
    assert [layer.activation.name for layer in (first, *block.layers, last)] == [
        "softplus", "softplus", "softplus", "linear"]
    predicted = [(layer.mean, layer.q) for layer in (first, *block.layers)]
    for (mean, q), (seen_mean, seen_q) in zip(predicted, seen, strict=True):
        assert abs(seen_mean - mean) < 4.0 * (q / width) ** 0.5
        assert seen_q == pytest.approx(q, rel=0.12)
    assert last.weight_variance == pytest.approx(1.1**2 / 4.0, rel=0.01)


# --- describe: activations ------------------------------------------------------------------------

POINTS = torch.linspace(-4.05, 4.0, 41, dtype=torch.float64)
MODULES = [
    nn.ReLU(), nn.LeakyReLU(0.2), nn.Hardtanh(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.SiLU(),
    nn.GELU(), nn.ELU(0.7), nn.SELU(), nn.Mish(), nn.Softsign(), nn.ReLU(inplace=True),
]
FUNCTIONS = [
    F.relu, torch.relu, torch.relu_, lambda x: x.relu(), lambda x: F.leaky_relu(x, 0.3),
    F.leaky_relu, lambda x: F.leaky_relu(x, negative_slope=0.4), F.hardtanh, torch.tanh,
    lambda x: torch.clamp(x, -1.0, 1.0), lambda x: x.clamp(min=-1, max=1),
    lambda x: x.tanh(), F.tanh, torch.sigmoid, F.softplus, F.silu, F.gelu, F.elu,
    lambda x: F.elu(x, alpha=0.5), F.selu, F.mish, F.softsign, torch.sin, torch.erf, torch.atan,
    torch.arctan,
]


@pytest.mark.parametrize("phi", [*MODULES, *FUNCTIONS], ids=str)
def test_activations_have_pytorchs_values(phi):
    name = {"phi": phi} if isinstance(phi, nn.Module) else {}
    call = (lambda m, x: m.phi(m.layers[0](x))) if name else (lambda m, x: phi(m.layers[0](x)))
    found = ft.describe(Function(call, nn.Linear(3, 3), **name))
    activation = found.layers[0].activation
    assert found.notes == ()
    np.testing.assert_allclose(activation(POINTS.numpy()), phi(POINTS.clone()).numpy(),
                               rtol=1e-12, atol=1e-15)


def test_gelu_by_tanh_is_noted_with_its_distance():
    net = nn.Sequential(nn.Linear(3, 3), nn.GELU(approximate="tanh"))
    found = ft.describe(net)
    assert [(note.path, note.kind) for note in found.notes] == [("1", "activation")]
    x = torch.linspace(-8.0, 8.0, 4001, dtype=torch.float64)
    assert float((F.gelu(x) - net[1](x)).abs().max()) < 5e-4


# --- describe: problems ---------------------------------------------------------------------------

def linear(n=6, m=None):
    return nn.Linear(n, m or n)


def shared_layer():
    layer = linear()
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh())


def tied_weights():
    net = nn.Sequential(linear(), nn.Tanh(), linear(), nn.Tanh())
    net[2].weight = net[0].weight
    return net


def with_weights(value):
    layer = linear()
    nn.init.constant_(layer.weight, value)
    return nn.Sequential(layer)


def parametrised_bias():
    layer = linear()
    nn.utils.parametrize.register_parametrization(layer, "bias", nn.Tanh())
    return layer


def in_place(module, x):
    y = module.layers[0](x)
    y.add_(x)
    return y


def used_after_in_place(module, x):
    y = module.layers[0](x)
    return y + module.layers[1](F.relu(y, inplace=True))


PROBLEMS = {
    "batch norm": (lambda: nn.Sequential(linear(), nn.BatchNorm1d(6), nn.ReLU()),
                   [("1", "normalisation")]),
    "layer norm": (lambda: nn.Sequential(linear(), nn.LayerNorm(6)), [("1", "normalisation")]),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 6)), [("0", "normalisation")]),
    "attention": (lambda: Function(lambda m, x: x + m.layers[0](x, x, x)[0],
                                   nn.MultiheadAttention(6, 2)), [("layers.0", "attention")]),
    "encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2)), [("0", "attention")]),
    "functional attention": (lambda: Function(
        lambda m, x: F.scaled_dot_product_attention(x, x, x)), [("", "attention")]),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                      nn.Flatten(), linear()), [("2", "pooling")]),
    "functional pooling": (lambda: Function(lambda m, x: F.max_pool1d(m.layers[0](x), 2),
                                            linear()), [("", "pooling")]),
    "transposed": (lambda: nn.ConvTranspose2d(3, 3, 3), [("", "convolution")]),
    "embedding": (lambda: nn.Sequential(nn.Embedding(6, 6), linear()), [("0", "embedding")]),
    "recurrent": (lambda: nn.LSTM(6, 6), [("", "recurrent")]),
    "stride": (lambda: nn.Sequential(nn.Conv2d(6, 6, 3, stride=2, padding=1)), [("0", "stride")]),
    "groups": (lambda: nn.Sequential(nn.Conv1d(6, 6, 1, groups=3)), [("0", "groups")]),
    "valid": (lambda: nn.Sequential(nn.Conv2d(6, 6, 3)), [("0", "padding")]),
    "v1": (lambda: nn.Sequential(Residual(linear()), nn.ReLU()), [("1", "activation")]),
    "pre-activation": (lambda: Residual(nn.Sequential(nn.ReLU(), linear())),
                       [("branch.0", "activation")]),
    "activation first": (lambda: nn.Sequential(nn.Tanh(), linear()), [("0", "activation")]),
    "two activations": (lambda: nn.Sequential(linear(), nn.Tanh(), nn.ReLU()),
                        [("2", "activation")]),
    "ramp": (lambda: nn.Sequential(linear(), nn.ReLU6()), [("1", "activation")]),
    "softplus beta": (lambda: nn.Sequential(linear(), nn.Softplus(beta=2)), [("1", "activation")]),
    "clamp": (lambda: Function(lambda m, x: m.layers[0](x).clamp(min=0.0), linear()),
              [("", "activation")]),
    "softplus of a place": (lambda: Function(lambda m, x: F.softplus(m.layers[0](x), 2.0),
                                             linear()), [("", "activation")]),
    "softmax": (lambda: nn.Sequential(linear(), nn.Softmax(-1)), [("1", "activation")]),
    "projection": (lambda: Function(lambda m, x: m.layers[0](x) + m.layers[1](x), linear(),
                                    linear()), [("", "residual")]),
    "nested": (lambda: Residual(nn.Sequential(linear(), Residual(linear()))),
               [("branch.1", "residual")]),
    "bottleneck": (lambda: Residual(nn.Sequential(linear(6, 24), nn.GELU(), linear(24, 6))),
                   [("branch.0", "width")]),
    "head after residual": (lambda: nn.Sequential(Residual(linear()), linear(6, 2)),
                            [("0.branch", "width")]),
    "mismatch": (lambda: nn.Sequential(linear(6, 4), linear(6, 6)), [("1", "width")]),
    "no flatten": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), linear()), [("1", "width")]),
    "gate": (lambda: Function(lambda m, x: x * torch.sigmoid(m.layers[0](x)), linear()),
             [("", "product")]),
    "zero factor": (lambda: Residual(linear(), factor=0.0), [("", "product")]),
    "constant": (lambda: Function(lambda m, x: m.layers[0](x) + 1.0, linear()), [("", "sum")]),
    "function": (lambda: Function(lambda m, x: torch.cumsum(m.layers[0](x), 1), linear()),
                 [("", "operation")]),
    "slices": (lambda: Function(lambda m, x: m.layers[0](x)[:, :2], linear()),
               [("", "operation")]),
    "two outputs": (lambda: Function(lambda m, x: (m.layers[0](x), x), linear()),
                    [("", "output")]),
    "control flow": (lambda: nn.Sequential(linear(), Branching(), nn.Sequential(
        Branching(), nn.LayerNorm(6))),
        [("1", "untraceable"), ("2.0", "untraceable"), ("2.1", "normalisation")]),
    "control flow at the root": (Branching, [("", "untraceable")]),
    "shared": (shared_layer, [("0", "shared weights")]),
    "tied": (tied_weights, [("2", "shared weights")]),
    "parametrised": (lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(linear())),
                     [("0", "weights")]),
    "parametrised bias": (parametrised_bias, [("", "weights")]),
    "lazy": (lambda: nn.LazyLinear(6), [("", "weights")]),
    "meta": (lambda: nn.Linear(6, 6, device="meta"), [("", "weights")]),
    "zeros": (lambda: with_weights(0.0), [("0", "weights")]),
    "not finite": (lambda: with_weights(math.nan), [("0", "weights")]),
    "in place": (lambda: Function(in_place, linear()), [("", "in place")]),
    "in place before a skip": (lambda: Function(used_after_in_place, linear(), linear()),
                               [("", "in place"), ("", "activation")]),
    "list": (lambda: nn.ModuleList([linear()]), [("", "module")]),
    "dropout in eval mode": (lambda: Function(lambda m, x: F.dropout(m.layers[0](x)), linear()),
                             [("", "operation")]),
    "empty": (nn.Sequential, [("", "weights")]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_not_covered_is_named(name):
    make, expected = PROBLEMS[name]
    found = ft.describe(make())
    assert not found.covered and found.network is None and found.layers == ()
    assert [(problem.path, problem.kind) for problem in found.problems] == expected
    for problem in found.problems:
        assert str(problem) in str(found)
    with pytest.raises(ValueError, match=f"not covered:\n  .*{expected[0][1]}"):
        found.spectrum()


@pytest.mark.filterwarnings("ignore")
def test_scripted_module_is_named():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
    found = ft.describe(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), scripted))
    assert [(problem.path, problem.kind) for problem in found.problems] == [("2", "untraceable")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_module_is_named():
    found = ft.describe(torch.compile(nn.Sequential(linear(), nn.Tanh())))
    assert [problem.kind for problem in found.problems] == ["module"]
    assert "_orig_mod" in found.problems[0].reason


def test_zero_padding_and_hooks_are_noted():
    net = nn.Sequential(nn.Conv2d(6, 6, 3, padding="same"), nn.ReLU())
    net[1].register_forward_hook(lambda *_: None)
    assert [(note.path, note.kind) for note in ft.describe(net).notes] == [
        ("0", "padding"), ("1", "hook")]


@pytest.mark.parametrize("flatten", [
    lambda x: x.flatten(1), lambda x: torch.flatten(x, start_dim=1),
    lambda x: x.view(x.size(0), -1), lambda x: x.reshape((x.shape[0], -1))])
def test_functional_flatten_and_dropout(flatten):
    def function(module, x):
        x = F.dropout(torch.relu(module.layers[0](x)), 0.1, module.training)
        return module.layers[1](flatten(x))

    found = ft.describe(Function(function, nn.Conv1d(3, 4, 1), nn.Linear(20, 6)))
    assert [layer.outputs for layer in found.layers] == [20, 6]
    assert [(note.path, note.kind) for note in found.notes] == [("", "dropout")]


@pytest.mark.parametrize(("options", "kept"), [
    ({"kernel_size": 3, "padding": 1}, True), ({"kernel_size": 3, "padding": 0}, False),
    ({"kernel_size": 5, "padding": 4, "dilation": 2}, True),
    ({"kernel_size": 5, "padding": 2, "dilation": 2}, False),
    ({"kernel_size": 4, "padding": "same"}, True), ({"kernel_size": 1}, True),
    ({"kernel_size": 3, "padding": "valid"}, False), ({"kernel_size": 1, "padding": 1}, False),
    ({"kernel_size": (3, 1), "padding": (1, 0)}, True),
])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_convolutions_that_keep_their_positions(options, kept):
    layer = nn.Conv2d(2, 2, **options)
    assert (layer(torch.ones(1, 2, 9, 9)).shape[2:] == (9, 9)) == kept
    assert ft.describe(layer).covered == kept


def test_describe_leaves_the_module_alone():
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.BatchNorm1d(6))
    net[1].eval()
    before = copy.deepcopy(net.state_dict())
    ft.describe(net)
    assert [part.training for part in net] == [True, False, True] and net.training
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_bad_arguments_of_describe():
    with pytest.raises(ValueError, match="module must be a torch.nn.Module, got int"):
        ft.describe(3)
    for example in (torch.tensor([math.nan]), torch.empty(0), (3, 4)):
        with pytest.raises(ValueError, match="example must be"):
            ft.describe(nn.Linear(3, 3), example)


# --- init_ ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_condition_number_of_a_deep_tanh_network(weights):
    """N^(-2/3) = 0.022 is the scale on which the ends of a spectrum of width 300 fluctuate."""
    net = residual_mlp(300, 50, nn.Tanh)
    result = ft.init_(net, condition_number=4, weights=weights, generator=generator(1))
    assert result.condition_number == pytest.approx(4.0, rel=1e-9)
    checked = ft.check(net, unit_inputs(1, 300))
    assert checked.condition_number_bulk == pytest.approx(4.0, rel=0.03)
    assert checked.condition_number == pytest.approx(4.0, rel=0.01)
    assert checked.ks < 0.02 and checked.outliers.size == 0


@pytest.mark.parametrize("target", ["condition_number", "c", "variance", "top_singular_value"])
def test_targets_of_uniform_and_mixed_networks(target):
    uniform = residual_mlp(12, 4, nn.GELU)
    mixed = nn.Sequential(*[Residual(nn.Sequential(linear(12), nn.GELU(), linear(12)), skip=0.9)
                            for _ in range(4)])
    for module in (uniform, mixed):
        result = ft.init_(module, **{target: 1.7})
        assert getattr(result, target) == pytest.approx(1.7, rel=1e-9)
        assert isinstance(result.network, fs.ResNet) == (module is uniform)
        assert f"{1.7:.4g}" in str(result) and result.layers[0].path in str(result)


def test_the_top_singular_value_is_that_of_the_outlier():
    result = ft.init_(residual_mlp(12, 10, nn.ReLU), top_singular_value=2.5)
    assert result.network.top_singular_value() == pytest.approx(2.5, rel=1e-9)
    assert result.top_singular_value == pytest.approx(2.5, rel=1e-9)
    assert math.sqrt(result.law.support()[-1][1]) < 2.3


def test_orthogonal_mlp_with_a_linear_head_reaches_a_variance():
    net = nn.Sequential(linear(200), nn.Tanh(), linear(200), nn.Tanh(), linear(200))
    result = ft.init_(net, variance=0.1, weights="orthogonal", generator=generator())
    values = ft.jacobian_singular_values(net, unit_inputs(1, 200)) ** 2
    assert values.var() / values.mean() ** 2 == pytest.approx(0.1, rel=0.15)
    assert result.c is None and result.variance == pytest.approx(0.1, rel=1e-9)


def test_example_is_what_the_target_refers_to():
    loud = 3.0 * unit_inputs(1, 300, seed=2)
    net = residual_mlp(300, 10, nn.Tanh)
    ft.init_(net, condition_number=4, example=loud, generator=generator())
    assert ft.check(net, loud).condition_number_bulk == pytest.approx(4.0, rel=0.04)
    assert ft.check(net, loud / 10.0).condition_number > 5.0


def test_gaussian_weights_and_biases_have_their_variances():
    net = nn.Sequential(nn.Conv2d(30, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 20, 1), nn.ReLU())
    result = ft.init_(net, sigma_w=1.5, sigma_b=0.3, generator=generator())
    assert [layer.path for layer in result.layers] == ["0", "2"]
    for layer, fan_in in zip(result.layers, (270, 40), strict=True):
        weight = net.get_submodule(layer.path).weight.detach().double()
        assert layer.std == pytest.approx(1.5 / fan_in**0.5, rel=1e-12)
        error = (2.0 * weight.numel()) ** -0.5
        assert abs(float(weight.std()) / layer.std - 1.0) < 4.0 * error
        assert abs(float(weight.mean())) < 4.0 * layer.std * weight.numel() ** -0.5
        kurtosis = float(weight.pow(4).mean()) / layer.std**4
        assert abs(kurtosis - 3.0) < 4.0 * (96.0 / weight.numel()) ** 0.5
        bias = net.get_submodule(layer.path).bias.detach()
        assert 0.5 < float(bias.square().mean()) / 0.09 < 1.7
    ft.init_(net, sigma_w=1.5)
    assert not net[0].bias.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(("inputs", "outputs"), [(7, 7), (9, 5), (5, 9)])
def test_orthogonal_weights(dtype, inputs, outputs):
    layer = nn.Linear(inputs, outputs, dtype=dtype)
    result = ft.init_(nn.Sequential(layer), sigma_w=1.5, weights="orthogonal",
                      generator=generator())
    weight = layer.weight.detach().double()
    assert layer.weight.dtype == dtype and layer.weight.requires_grad
    rows = weight if inputs >= outputs else weight.T
    tolerance = 8.0 * torch.finfo(dtype).eps
    np.testing.assert_allclose(rows @ rows.T, 2.25 * np.eye(len(rows)), atol=tolerance)
    assert result.layers[0].std == pytest.approx(float(weight.square().mean().sqrt()),
                                                 rel=tolerance)


def test_orthogonal_convolution_is_an_orthogonal_map():
    layer = nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular", dtype=torch.float64)
    result = ft.init_(nn.Sequential(layer), sigma_w=1.5, weights="orthogonal")
    assert result.layers[0].std == pytest.approx(layer.weight.square().mean().sqrt().item())
    values = ft.jacobian_singular_values(layer, torch.ones(1, 6, 4, 5, dtype=torch.float64))
    np.testing.assert_allclose(values, 1.5, rtol=1e-12)
    assert ft.describe(layer).network.weights == "orthogonal"
    assert ft.describe(layer).network.sigma_w == pytest.approx(1.5, rel=1e-12)


def test_orthogonal_matrices_are_haar_distributed():
    """E W_11 = 0; without the signs of R it is -0.64 for 2 x 2 matrices. E W_11^2 = 1/2."""
    layer, draw, corner = linear(2), generator(), []
    for _ in range(400):
        ft.init_(nn.Sequential(layer), sigma_w=1.0, weights="orthogonal", generator=draw)
        corner.append(layer.weight[0, 0].item())
    assert abs(np.mean(corner)) < 4.0 * (0.5 / 400) ** 0.5
    assert abs(np.mean(np.square(corner)) - 0.5) < 4.0 * (0.125 / 400) ** 0.5


def test_a_generator_makes_it_reproducible():
    state = torch.get_rng_state()
    nets = [residual_mlp(8, 2, nn.Tanh) for _ in range(3)]
    torch.set_rng_state(state)
    for net, seed in zip(nets, (5, 5, 6), strict=True):
        ft.init_(net, sigma_w=0.5, sigma_b=0.1, generator=generator(seed))
    first, second, third = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    ft.init_(nets[0], sigma_w=0.5)
    torch.manual_seed(7)
    ft.init_(nets[1], sigma_w=0.5)
    assert torch.equal(nets[0][1].branch[0].weight, nets[1][1].branch[0].weight)


def test_init_refuses_and_leaves_the_module_as_it_was():
    cases = [
        (nn.Sequential(linear(), nn.BatchNorm1d(6)), {"sigma_w": 1.0}, "1: normalisation"),
        (residual_mlp(6, 2, nn.Tanh), {}, "exactly one of"),
        (residual_mlp(6, 2, nn.Tanh), {"c": 1.0, "variance": 1.0}, "exactly one of"),
        (residual_mlp(6, 2, nn.Tanh), {"condition_number": 1.0}, "condition_number must be"),
        (residual_mlp(6, 2, nn.Tanh), {"sigma_w": -1.0}, "sigma_w must be"),
        (residual_mlp(6, 2, nn.Tanh), {"sigma_w": 1.0, "sigma_b": -1.0}, "sigma_b must be"),
        (residual_mlp(6, 2, nn.Tanh), {"sigma_w": 1.0, "weights": "gausian"}, "did you mean"),
        (residual_mlp(6, 2, nn.Tanh), {"sigma_w": 1.0, "generator": 3}, "generator must be"),
        (nn.Sequential(Residual(linear()), linear(), Residual(linear())), {"c": 1.0},
         "residual part by itself"),
        (nn.Sequential(linear(), nn.Tanh(), linear()), {"c": 1.0}, "plain layers"),
        (nn.Sequential(linear(), nn.Tanh(), linear()), {"condition_number": 4.0},
         "condition_number is inf at every sigma_w"),
        (nn.Sequential(nn.Linear(6, 6, bias=False)), {"sigma_w": 1.0, "sigma_b": 0.1},
         "needs biases, but 0 has none"),
    ]
    for module, arguments, message in cases:
        before = copy.deepcopy(module.state_dict())
        with pytest.raises(ValueError, match=message):
            ft.init_(module, **arguments)
        for name, value in module.state_dict().items():
            assert torch.equal(value, before[name])


def test_sigma_w_may_be_given_where_kinds_are_mixed():
    net = nn.Sequential(linear(9, 6), nn.Tanh(), Residual(nn.Sequential(linear(), nn.Tanh())))
    result = ft.init_(net, sigma_w=0.5)
    assert isinstance(result.network, ft.MixedNetwork) and result.network.input_width == 9
    assert [layer.path for layer in result.layers] == ["0", "2.branch.0"]


def test_all_zero_weights_can_be_initialised():
    net = with_weights(0.0)
    ft.init_(net, sigma_w=1.0)
    assert ft.describe(net).covered


# --- jacobian_singular_values ---------------------------------------------------------------------

def small_convolutional_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.ELU(inplace=True), nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Tanh(),
        Residual(nn.Conv2d(3, 3, 3, padding=1)), nn.AvgPool2d(2), nn.Dropout(0.5)).double()


@pytest.mark.parametrize("batch", [1, 5, 12, 64])
def test_jacobian_against_autograd(batch):
    net = small_convolutional_net()
    x = torch.randn(3, 2, 4, 4, generator=generator(), dtype=torch.float64)
    got = ft.jacobian_singular_values(net, x, batch=batch)
    assert got.shape == (3, 12) and got.dtype == np.float64
    net.eval()
    for row, one in zip(got, x, strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda z: net(z.clone().unsqueeze(0)).flatten(), one)
        expected = torch.linalg.svdvals(jacobian.reshape(12, 32)).numpy()
        np.testing.assert_allclose(row, expected, rtol=0.0, atol=1e-10 * expected[0])


def test_measuring_leaves_the_module_alone():
    net = small_convolutional_net().float()
    net[6].eval()
    before = copy.deepcopy(net.state_dict())
    x = torch.randn(1, 2, 4, 4, generator=generator())
    with torch.no_grad():
        first = ft.jacobian_singular_values(net, x)
    with torch.inference_mode():
        second = ft.jacobian_singular_values(net, x)
        third = ft.jacobian_singular_values(net, x.clone())
    assert np.array_equal(first, second) and np.array_equal(first, third)
    assert [part.training for part in net] == [True] * 6 + [False] and net.training
    assert all(parameter.grad is None and parameter.requires_grad
               for parameter in net.parameters())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) and value.dtype == before[name].dtype


def test_more_outputs_than_inputs_add_zeros():
    layer = nn.Linear(3, 5, bias=False)
    values = ft.jacobian_singular_values(layer, torch.ones(3))
    expected = np.linalg.svd(layer.weight.detach().double().numpy(), compute_uv=False)
    assert values.shape == (5,) and np.array_equal(values[3:], [0.0, 0.0])
    np.testing.assert_allclose(values[:3], expected, rtol=1e-13)


def test_single_precision_as_it_is():
    net = residual_mlp(20, 3, nn.Tanh)
    x = unit_inputs(1, 20)
    exact = ft.jacobian_singular_values(net, x)
    single = ft.jacobian_singular_values(net, x, double=False)
    assert 0.0 < np.abs(single - exact).max() < 1e-5


def test_bad_arguments_of_jacobian_singular_values():
    net, x = linear(), torch.ones(6)
    for module, inputs, options, message in [
        (3, x, {}, "module must be a torch.nn.Module"),
        (net, [1.0], {}, "x must be a tensor"),
        (net, torch.ones(6, dtype=torch.int64), {}, "x must be a tensor of real floating"),
        (net, torch.tensor(1.0), {}, "at least one dimension"),
        (net, x, {"batch": 0}, "batch must be a whole number >= 1"),
        (Function(lambda m, z: (z, z)), x, {}, "must return one tensor"),
        (Function(lambda m, z: z.sum()), x, {}, "must return one tensor"),
        (Function(lambda m, z: torch.ones(1, 3)), x, {}, "does not depend on x"),
    ]:
        with pytest.raises(ValueError, match=message):
            ft.jacobian_singular_values(module, inputs, **options)
    with pytest.raises(FloatingPointError, match="not finite"):
        ft.jacobian_singular_values(Function(lambda m, z: z.sqrt()), torch.zeros(3))


# --- check ----------------------------------------------------------------------------------------

def test_check_of_residual_mlps():
    """ReLU: J x = output exactly, so each input has one outlier; GELU at c = 0.25 has none."""
    for activation, c, outliers in ((nn.ReLU, 0.125, 2), (nn.GELU, 0.1, 0)):
        net = residual_mlp(300, 20, activation)
        ft.init_(net, c=c, generator=generator())
        x = unit_inputs(2, 300)
        checked = ft.check(net, x)
        assert checked.measured.shape == (2, 300)
        assert checked.outliers.size == outliers
        assert checked.ks < 0.02
        assert checked.condition_number_bulk == pytest.approx(checked.condition_number, rel=0.04)
        if activation is nn.ReLU:
            assert checked.condition_number_all > 1.2 * checked.condition_number_bulk
            net.double()
            stretch = (net(x.double()).norm(dim=1) / x.double().norm(dim=1)).detach().numpy()
            assert np.all(checked.measured[:, 0] >= stretch)
            places = [outlier.singular_value for outlier in checked.predicted_outliers]
            assert checked.outliers.mean() == pytest.approx(places[0], rel=0.05)
            assert f"{len(places)} each (at {places[0]:.4g}" in str(checked)
            full = places[0] / min([*places, math.sqrt(checked.law.support()[0][0])])
            assert checked.condition_number_all == pytest.approx(full, rel=0.05)
            assert f"{full:.4g}" in str(checked)
        table = str(checked)
        assert f"{checked.ks:.4f}" in table and f"{checked.condition_number:.4g}" in table


def test_check_of_a_convolutional_residual_net():
    blocks = [Residual(nn.Sequential(nn.Conv2d(40, 40, 3, padding=1, padding_mode="circular"),
                                     nn.Tanh())) for _ in range(6)]
    net = nn.Sequential(*blocks)
    result = ft.init_(net, condition_number=4, generator=generator())
    assert isinstance(result.network, fs.ResNet)
    checked = ft.check(net, unit_inputs(1, 40, 4, 4))
    assert checked.measured.shape == (1, 640)
    assert checked.ks < 0.02
    assert checked.condition_number_bulk == pytest.approx(4.0, rel=0.06)


def test_check_of_a_convolution_with_a_dense_head():
    net = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, padding_mode="circular"), nn.Tanh(),
                        nn.Flatten(), nn.Linear(512, 200), nn.Tanh())
    set_weights(net, 1.2)
    checked = ft.check(net, unit_inputs(1, 16, 4, 4))
    measured = checked.measured**2
    assert checked.ks < 0.04
    assert measured.mean() == pytest.approx(checked.law.mean(), rel=0.05)


def test_law_of_mixed_blocks():
    net = nn.Sequential(
        linear(150, 300), nn.Tanh(),
        *[Residual(nn.Sequential(linear(300), nn.GELU(), linear(300)), 0.8, 0.5)
          for _ in range(4)])
    set_weights(net, 1.1)
    x = unit_inputs(2, 150)
    network = ft.describe(net, x).network
    law = network.spectrum()
    values = ft.jacobian_singular_values(net, x)
    values[:, 150:] = 0.0       # to rounding
    assert isinstance(network, ft.MixedNetwork)
    assert ks_distance(values, law) < 0.02
    assert np.isinf(law.condition_number())
    assert (values**2).mean() == pytest.approx(law.mean(), rel=0.2)


def test_check_of_a_law_without_density():
    net = nn.Sequential(linear(20))
    result = ft.init_(net, sigma_w=1.5, weights="orthogonal", generator=generator())
    checked = ft.check(net, unit_inputs(1, 20))
    assert result.top_singular_value == pytest.approx(1.5, rel=1e-12)
    assert result.condition_number == 1.0
    assert checked.condition_number_all == pytest.approx(1.0, abs=1e-6)
    assert checked.ks == 0.0 and checked.outliers.size == 0
    assert checked.condition_number_bulk == 1.0 and "1.5" in str(checked)


def test_check_draws():
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fastspec[plot]'")
    from matplotlib.figure import Figure

    net = residual_mlp(40, 3, nn.Tanh)
    ax = ft.check(net, unit_inputs(1, 40)).plot(Figure().subplots())
    assert ax.patches and ax.lines


def test_check_names_what_is_not_covered():
    with pytest.raises(ValueError, match="1: normalisation"):
        ft.check(nn.Sequential(linear(), nn.LayerNorm(6)), torch.ones(6))


# --- imports --------------------------------------------------------------------------------------

def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_fastspec_does_not_import_torch():
    code = "import sys, fastspec, fastspec.cli; print('torch' in sys.modules, 'jax' in sys.modules)"
    assert run(code).stdout == "False False\n"


def test_one_clear_sentence_without_torch():
    result = run("import sys; sys.modules['torch'] = None; import fastspec.torch")
    assert result.stderr.strip().split("\n")[-1] == (
        "ImportError: fastspec.torch needs PyTorch: pip install 'fastspec[torch]'")
