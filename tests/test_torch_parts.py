"""fastspec.torch on models with a stem, one run of residual blocks, and a head."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'fastspec[torch]'")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import fastspec.torch as ft  # noqa: E402

torch.set_num_threads(1)


class Block(nn.Module):
    """factor (x + branch(x))."""

    def __init__(self, branch, factor=1.0):
        super().__init__()
        self.branch, self.factor = branch, factor

    def forward(self, x):
        return self.factor * (x + self.branch(x))


class Model(nn.Module):
    """A model that is a function of its layers and the input."""

    def __init__(self, function, blocks=None, stem=None):
        super().__init__()
        self.function = function
        self.stem, self.head = stem or nn.Linear(4, 6), nn.Linear(6, 3)
        self.blocks = nn.Sequential(*(blocks or dense_blocks(6, 2, nn.Tanh)))
        self.position = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.function(self, x)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def inputs(*shape, seed=0):
    """Of second moment 1 each."""
    x = torch.randn(*shape, generator=generator(seed))
    norm = x.flatten(1).square().mean(1).sqrt()
    return x / norm.reshape(-1, *[1] * (x.dim() - 1))


def dense_blocks(width, depth, activation):
    return [Block(nn.Sequential(nn.Linear(width, width), activation())) for _ in range(depth)]


def conv(inputs, outputs, size=3, **options):
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, padding_mode="circular", **options)


def conv_blocks(width, depth, activation):
    return [Block(nn.Sequential(conv(width, width), activation())) for _ in range(depth)]


def conv_model(*stem, width=40, depth=6):
    return nn.Sequential(*stem, *conv_blocks(width, depth, nn.Tanh), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(width, 10))


def dense_model(width=6, depth=2):
    return nn.Sequential(nn.Linear(4, width), *dense_blocks(width, depth, nn.Tanh),
                         nn.Linear(width, 3))


# --- the models that users have -------------------------------------------------------------------

@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_dense_gelu_network_with_stem_and_head(weights):
    """N^(-2/3) = 0.03 is the scale on which the ends of a spectrum of width 200 fluctuate."""
    blocks = dense_blocks(200, 30, nn.GELU)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.GELU(), *blocks, nn.Dropout(0.1),
                        nn.Linear(200, 10))
    x = inputs(2, 1, 28, 28)
    result = ft.init_(net, condition_number=4, weights=weights, generator=generator(1), example=x)
    assert result.condition_number == pytest.approx(4.0, rel=1e-9)
    assert [layer.role for layer in result.layers] == ["stem", *["block"] * 30, "head"]
    assert (result.network.depth, result.network.weights) == (30, weights)
    checked = ft.check(net, x)
    assert checked.condition_number_bulk == pytest.approx(4.0, rel=0.04)
    assert checked.condition_number == pytest.approx(4.0, rel=1e-3)
    assert checked.ks < 0.02
    with torch.no_grad():
        entering = net.eval()[:3](x)
    alone = ft.jacobian_singular_values(nn.Sequential(*blocks), entering)
    np.testing.assert_allclose(checked.measured, alone, rtol=1e-5)
    for record, std in ((result.layers[0], 1.533531 / 28), (result.layers[-1], 200**-0.5)):
        weight = net.get_submodule(record.path).weight.detach()
        assert record.std == pytest.approx(std, rel=1e-6)
        assert float(weight.std()) == pytest.approx(std, rel=4.0 * (2 * weight.numel()) ** -0.5)
        assert not net.get_submodule(record.path).bias.any()


def test_convolutional_network_with_a_pooling_head():
    net = conv_model(conv(3, 40), nn.Tanh())
    result = ft.init_(net, condition_number=4, generator=generator(1))
    assert [layer.path for layer in result.layers if layer.role != "block"] == ["0", "10"]
    assert [(note.path, note.kind) for note in result.notes] == [("8", "pooling")]
    assert result.layers[0].std == pytest.approx(1.592537 / 27**0.5, rel=1e-6)
    assert float(net[0].weight.detach().std()) == pytest.approx(result.layers[0].std, rel=0.1)
    assert result.layers[-1].std == pytest.approx(40**-0.5)
    checked = ft.check(net, inputs(1, 3, 4, 4))
    assert checked.measured.shape == (1, 640)
    assert checked.condition_number_bulk == pytest.approx(4.0, rel=0.06)
    assert checked.ks < 0.02


@pytest.mark.parametrize("target", ["condition_number", "c", "variance", "top_singular_value"])
def test_targets_are_those_of_the_blocks(target):
    """With the same moments at their input the blocks alone get the same sigma_w."""
    net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), *dense_blocks(12, 3, nn.Softplus),
                        nn.Linear(12, 3))
    result = ft.init_(net, **{target: 1.7})
    assert getattr(result, target) == pytest.approx(1.7, rel=1e-9)
    seen = torch.tensor([math.pi**-0.5])    # E relu(h) at h ~ N(0, 2); E relu(h)^2 = 1
    seen = torch.cat([seen + (1 - seen**2).sqrt(), seen - (1 - seen**2).sqrt()])
    alone = ft.init_(nn.Sequential(*dense_blocks(12, 3, nn.Softplus)), **{target: 1.7},
                     example=seen)
    assert result.sigma_w == pytest.approx(alone.sigma_w, rel=1e-6)


# --- the stem -------------------------------------------------------------------------------------

STEMS = [
    (lambda: [nn.Linear(300, 2000)], 1.0, 0.0),
    (lambda: [nn.Linear(3000, 2000), nn.ReLU()], 1.0, math.pi**-0.5),
    (lambda: [nn.Linear(300, 900), nn.ReLU(), nn.Linear(900, 2000)], 1.0, 0.0),
    (lambda: [nn.Flatten(), nn.Linear(300, 2000), nn.Tanh()], None, 0.0),
    (lambda: [nn.Linear(300, 2000), nn.Softplus()], None, None),
]


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize(("make", "second", "mean"), STEMS)
def test_moments_that_the_stem_delivers(make, second, mean, weights):
    """Followed by the law, held against the running stem."""
    stem = nn.Sequential(*make())
    net = nn.Sequential(stem, *dense_blocks(2000, 1, nn.Tanh))
    network = ft.init_(net, c=0.1, weights=weights, generator=generator()).network
    if second is not None:
        assert network.input_second_moment == pytest.approx(second, rel=1e-12)
    if mean is not None:
        assert network.input_mean == pytest.approx(mean, rel=1e-12)
    width = next(layer.in_features for layer in stem.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        out = stem(inputs(40, width, seed=3)).double()
    assert float(out.square().mean()) == pytest.approx(network.input_second_moment, rel=0.03)
    assert float(out.mean()) == pytest.approx(network.input_mean, abs=0.02)


def test_delta_orthogonal_stem_keeps_the_second_moment():
    net = conv_model(conv(3, 48), width=48, depth=1)
    result = ft.init_(net, c=0.1, weights="orthogonal", generator=generator())
    assert result.layers[0].sigma_w == pytest.approx(4.0)       # (48/3)^(1/2)
    x = inputs(2, 3, 5, 5)
    assert float(net[0](x).detach().square().mean()) == pytest.approx(1.0, rel=1e-5)


def test_constants_of_the_stem_are_reckoned_with():
    net = Model(lambda m, x: m.head(m.blocks(0.5 * m.stem(3.0 * x))))
    result = ft.init_(net, c=0.1)
    assert result.network.input_second_moment == pytest.approx(2.25, rel=1e-12)


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)])
def test_pooling_before_the_blocks(pool):
    net = conv_model(conv(3, 40), nn.ReLU(), pool)
    assumed = ft.init_(net, condition_number=4)
    assert [(note.path, note.kind) for note in assumed.notes] == [
        ("2", "pooling"), ("9", "pooling"), ("3.branch.0", "input")]
    assert (assumed.network.input_second_moment, assumed.network.input_mean) == (1.0, 0.0)
    x = 2.0 * inputs(3, 3, 8, 8)
    result = ft.init_(net, condition_number=4, example=x, generator=generator(2))
    assert [note.kind for note in result.notes] == ["pooling", "pooling"]
    seen = net[:3](x).detach().double()
    assert result.network.input_second_moment == pytest.approx(float(seen.square().mean()))
    assert result.network.input_mean == pytest.approx(float(seen.mean()))
    checked = ft.check(net, x)
    assert checked.condition_number_bulk == pytest.approx(4.0, rel=0.06)


def test_an_example_may_be_one_input():
    net = dense_model()
    result = ft.init_(net, c=0.2, example=torch.ones(4), generator=generator())
    seen = net[0](torch.ones(1, 4)).detach()
    assert result.network.input_second_moment == pytest.approx(float(seen.square().mean()))
    with pytest.raises(ValueError, match="does not go through the layers before"):
        ft.init_(net, c=0.2, example=torch.ones(5))


# --- around the blocks ----------------------------------------------------------------------------

MODELS = {
    "image net": (lambda: nn.Sequential(
        nn.Conv2d(3, 6, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        *conv_blocks(6, 2, nn.ReLU), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, 3)), (1, 3, 16, 16),
        [("0", "padding"), ("0", "stride"), ("2", "pooling"), ("5", "activation"),
         ("6", "pooling")]),
    "no stem": (lambda: nn.Sequential(*dense_blocks(6, 2, nn.Tanh), nn.Linear(6, 3),
                                      nn.Softmax(1)), (2, 6), [("3", "activation")]),
    "no head": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), *conv_blocks(6, 2, nn.Tanh)),
                (2, 3, 6, 6), [("0", "padding")]),
    "functions": (lambda: Model(
        lambda m, x: F.log_softmax(m.head(m.blocks(m.stem(x)).mean((2, 3))), 1),
        conv_blocks(6, 2, nn.Tanh), conv(4, 6)), (1, 4, 3, 3),
        [("", "operation"), ("", "pooling")]),
    "flat": (lambda: nn.Sequential(conv(2, 3), nn.ReLU(), nn.Flatten(),
                                   *dense_blocks(27, 2, nn.GELU), nn.Linear(27, 3)),
             (2, 2, 3, 3), []),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_may_be_outside_is_noted(name):
    make, shape, notes = MODELS[name]
    net = make()
    result = ft.init_(net, c=0.2, generator=generator())
    assert result.c == pytest.approx(0.2, rel=1e-9)
    assert sorted((note.path, note.kind) for note in result.notes if note.kind != "input") == notes
    assert any(note.kind == "input" for note in result.notes) == (name == "image net")
    x = inputs(*shape)
    checked = ft.check(net, x)
    assert checked.description.network.effective_cumulant() == pytest.approx(0.2, rel=0.4)
    parts = [net.stem, *net.blocks] if isinstance(net, Model) else list(net)
    blocks = [module for module in parts if isinstance(module, Block)]
    entering = nn.Sequential(*parts[:parts.index(blocks[0])])(x).detach()
    np.testing.assert_allclose(
        checked.measured, ft.jacobian_singular_values(nn.Sequential(*blocks), entering),
        rtol=1e-4)


def test_constants_after_the_last_block_belong_to_it():
    factor = 0.5**0.5
    blocks = [Block(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), factor) for _ in range(3)]
    net = nn.Sequential(nn.Linear(4, 6), *blocks, nn.Linear(6, 3))
    network = ft.init_(net, c=0.2).network
    assert [part.skip for part in network.parts] == pytest.approx([factor] * 3)
    x = inputs(2, 4)
    np.testing.assert_allclose(
        ft.check(net, x).measured,
        ft.jacobian_singular_values(nn.Sequential(*blocks), net[0](x).detach()), rtol=1e-5)


def test_constants_before_the_first_block_belong_to_it_if_nothing_else_is_there():
    net = Model(lambda m, x: m.blocks(3.0 * x.flatten(1)))
    result = ft.init_(net, top_singular_value=4.5, generator=generator())
    assert result.part == "" and result.network.parts[0].skip == 3.0
    assert ft.describe(net).residual_part().layers == ft.describe(net).layers
    assert result.network.output_moments()[0] > 9.0


REFUSED = {
    "batch norm": (lambda: conv_model(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), width=6),
                   "1: normalisation"),
    "layer norm": (lambda: nn.Sequential(*dense_model(), nn.LayerNorm(3)), "4: normalisation"),
    "norm inside": (lambda: nn.Sequential(nn.Linear(4, 6), *dense_blocks(6, 1, nn.Tanh),
                                          nn.BatchNorm1d(6), *dense_blocks(6, 1, nn.Tanh)),
                    "2: normalisation"),
    "pooling inside": (lambda: nn.Sequential(
        nn.MaxPool2d(2), *conv_blocks(6, 1, nn.Tanh), nn.MaxPool2d(2),
        *conv_blocks(6, 1, nn.Tanh)), "not covered:\n  2: pooling"),
    "the same function outside and inside": (lambda: Model(lambda m, x: m.head(m.blocks[1](
        F.max_pool1d(m.blocks[0](F.max_pool1d(m.stem(x), 1)), 1)))),
        "not covered:\n  .* pooling: the function max_pool1d is not covered$"),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 6), *dense_blocks(6, 1, nn.Tanh)),
                  "0: embedding"),
    "position": (lambda: Model(lambda m, x: m.head(m.blocks(m.stem(x) + m.position))),
                 "sum: adds something"),
    "functional head": (lambda: Model(
        lambda m, x: F.linear(m.blocks(m.stem(x)), m.head.weight)),
        "operation: the function linear"),
    "functional head, transposed": (lambda: Model(
        lambda m, x: m.blocks(m.stem(x)) @ m.head.weight.T), "operation: the function matmul"),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.PReLU(), *dense_blocks(6, 1, nn.Tanh)),
              "1: activation"),
    "groups": (lambda: nn.Sequential(nn.Conv2d(6, 6, 1, groups=2), *conv_blocks(6, 1, nn.Tanh)),
               "0: groups"),
    "bottleneck": (lambda: nn.Sequential(nn.Linear(4, 6), Block(nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)))), "1.branch.0: width"),
    "between": (lambda: nn.Sequential(*dense_blocks(6, 1, nn.Tanh), nn.Linear(6, 6),
                                      *dense_blocks(6, 1, nn.Tanh)),
                "plain layers between residual blocks"),
    "two stages": (lambda: nn.Sequential(
        conv(3, 4), *conv_blocks(4, 1, nn.ReLU), conv(4, 8, stride=2),
        *conv_blocks(8, 1, nn.ReLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)),
        "plain layers between residual blocks"),
    "no blocks": (lambda: nn.Sequential(conv(3, 4), nn.AdaptiveAvgPool2d(1)), "1: pooling"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_init_refuses_and_leaves_the_module_as_it_was(name):
    make, message = REFUSED[name]
    module = make()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=message):
        ft.init_(module, c=1.0)
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])


def test_unreachable_targets_and_missing_biases_leave_the_module_as_it_was():
    module = nn.Sequential(nn.Linear(4, 6), Block(nn.Linear(6, 6, bias=False)), nn.Linear(6, 3))
    before = copy.deepcopy(module.state_dict())
    for arguments, message in (({"top_singular_value": 0.5}, "no sigma_w"),
                               ({"c": 1.0, "sigma_b": 0.1}, "but 1.branch has none")):
        with pytest.raises(ValueError, match=message):
            ft.init_(module, **arguments)
        for key, value in module.state_dict().items():
            assert torch.equal(value, before[key])


def test_biases_are_those_of_the_blocks():
    net = dense_model(width=50)
    result = ft.init_(net, c=0.5, sigma_b=0.3, generator=generator())
    assert [layer.sigma_b for layer in result.layers] == [0.0, 0.3, 0.3, 0.0]
    assert not net[0].bias.any() and not net[3].bias.any()
    assert 0.2 < float(net[1].branch[0].bias.detach().std()) < 0.4
    assert result.network.sigma_b == 0.3


# --- what it says ---------------------------------------------------------------------------------

def test_tables_say_which_part_they_are_about():
    net = dense_model()
    result = ft.init_(net, c=0.2, generator=generator())
    text = str(result).split("\n")
    assert text[0] == result.part + ":" == "the residual part, 1.branch.0 to 2.branch.0:"
    assert [line.split()[:2] for line in text[2:]] == [
        ["path", "role"], ["0", "stem"], ["1.branch.0", "block"], ["2.branch.0", "block"],
        ["3", "head"]]
    assert result.part in str(ft.check(net, inputs(2, 4))).split("\n")[0]
    whole = ft.init_(nn.Sequential(*dense_blocks(6, 2, nn.Tanh)), c=0.2)
    assert whole.part == "" and "part" not in str(whole)
    plain = ft.init_(nn.Sequential(nn.Linear(6, 6)), sigma_w=1.0)
    assert [layer.role for layer in plain.layers] == ["plain"]


def test_description_of_the_residual_part():
    net = dense_model()
    found = ft.describe(net)
    assert not found.covered and "residual_part() describes" in str(found)
    assert [problem.kind for problem in found.problems] == ["width"]
    part = found.residual_part()
    assert [layer.path for layer in part.layers] == ["1.branch.0", "2.branch.0"]
    assert part.part in str(part) and part.residual_part() is part
    ratio = float(net[0].weight.detach().square().sum()) / 6       # sigma_w^2 of the stem
    bias = float(net[0].bias.detach().square().mean())
    assert part.network.input_second_moment == pytest.approx(ratio + bias, rel=0.02)
    x = inputs(5, 4)
    assert ft.describe(net, x).residual_part().network.input_second_moment == pytest.approx(
        float(net[0](x).detach().square().mean()), rel=1e-6)
    covered = ft.describe(net[:3])
    assert covered.covered and "residual_part() describes" in str(covered)
    assert covered.residual_part().layers == part.layers


def test_no_residual_part():
    for module in (nn.Linear(3, 3), nn.Sequential(*dense_blocks(3, 1, nn.Tanh), nn.Linear(3, 3),
                                                  *dense_blocks(3, 1, nn.Tanh))):
        with pytest.raises(ValueError, match="no residual part"):
            ft.describe(module).residual_part()
    normalised = conv_model(conv(3, 6), nn.BatchNorm2d(6), width=6)
    for call in (ft.describe(normalised).residual_part,
                 lambda: ft.check(normalised, inputs(1, 3, 4, 4))):
        with pytest.raises(ValueError, match="1: normalisation"):
            call()


def test_check_leaves_the_module_alone():
    net = nn.Sequential(*dense_model()[:3], nn.Dropout(0.5), nn.Linear(6, 3))
    net[3].eval()
    before = copy.deepcopy(net.state_dict())
    with torch.inference_mode():
        first = ft.check(net, inputs(2, 4))
    assert np.array_equal(first.measured, ft.check(net, inputs(2, 4)).measured)
    assert [part.training for part in net] == [True, True, True, False, True] and net.training
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]) and value.dtype == before[key].dtype
    assert all(parameter.grad is None for parameter in net.parameters())


def test_blocks_that_use_the_size_of_the_module_s_input():
    def function(module, x):
        size = x.size(0)
        x = module.stem(x)
        return x + module.blocks[0].branch(x.view(size, -1))

    net = Model(function)
    assert ft.init_(net, c=0.2).c == pytest.approx(0.2)
    with pytest.raises(ValueError, match="uses more than the signal"):
        ft.check(net, inputs(2, 4))


def half(module, x):
    """torch.tensor(...) in a forward is a constant of the graph."""
    x = module.stem(x)
    return x + module.blocks[0].branch(x) * torch.tensor(0.5)


def half_of_a_copy(module, x):
    """What the branch starts from is the same signal, but another node of the graph."""
    x = module.stem(x)
    return x + 0.5 * module.blocks[0].branch(x.contiguous())


@pytest.mark.parametrize("function", [half, half_of_a_copy])
def test_the_measured_part_is_the_blocks(function):
    net = Model(function)
    ft.init_(net, c=0.2)
    assert ft.describe(net).layers[1].after == 0.5
    x, layer = inputs(1, 4), net.blocks[0].branch[0]
    slopes = 1 - torch.tanh(layer(net.stem(x))) ** 2
    jacobian = torch.eye(6) + 0.5 * slopes.T * layer.weight
    np.testing.assert_allclose(ft.check(net, x).measured[0],
                               torch.linalg.svdvals(jacobian).detach(), rtol=1e-5)


def test_skips_of_several_sizes_have_no_cumulant():
    net = nn.Sequential(Block(nn.Linear(6, 6)), Block(nn.Linear(6, 6), 0.5))
    result = ft.init_(net, condition_number=4)
    assert result.c is None and result.condition_number == pytest.approx(4.0, rel=1e-9)
    with pytest.raises(ValueError, match="skips of one size"):
        ft.init_(net, c=1.0)
