"""The scaling calculus on PyTorch modules, against PyTorch's own gradients."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'fastspec[torch]'")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import fastspec.scaling as sc  # noqa: E402
import fastspec.torch as ft  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def draws(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Function(nn.Module):
    """A module made of a function of its layers and the input."""

    def __init__(self, function, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


BETA = math.sqrt(0.3)


class Bottleneck(nn.Module):
    """alpha shortcut(x) + beta main(x), alpha^2 + beta^2 = 1, without batch norm."""

    def __init__(self, n_in, inner, n_out, stride=1):
        super().__init__()
        self.reduce = nn.Conv2d(n_in, inner, 1)
        self.middle = nn.Conv2d(inner, inner, 3, stride, 1, padding_mode="circular")
        self.widen = nn.Conv2d(inner, n_out, 1)
        plain = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if plain else nn.Conv2d(n_in, n_out, 1, stride)
        self.relu = nn.ReLU(inplace=True)
        self.alpha, self.beta = math.sqrt(1.0 - BETA**2), BETA
        self.multipliers = {"main": 1.0, "shortcut": 1.0}

    def forward(self, x):
        y = self.relu(self.reduce(F.relu(x)))
        y = self.multipliers["main"] * self.widen(self.relu(self.middle(y)))
        shortcut = self.multipliers["shortcut"] * self.shortcut(x)
        return self.alpha * shortcut + self.beta * y


def mlp():
    return nn.Sequential(nn.Linear(784, 384), nn.ReLU(), nn.Linear(384, 64), nn.ReLU(),
                         nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))


def alexnet(padding_mode="zeros"):
    """AlexNet's layers for 32x32 images: kernels 11, 5, 3, groups, max-pooling, dropout."""
    def conv(*sizes, **options):
        return nn.Conv2d(*sizes, **options, padding_mode=padding_mode)
    return nn.Sequential(
        conv(3, 48, 11, stride=2, padding=5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        conv(48, 128, 5, padding=2, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        conv(128, 192, 3, padding=1), nn.ReLU(inplace=True),
        conv(192, 192, 3, padding=1, groups=2), nn.ReLU(inplace=True),
        conv(192, 128, 3, padding=1, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(), nn.Linear(512, 256), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, 10))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, padding_mode="circular"), Bottleneck(64, 32, 128),
        Bottleneck(128, 32, 128),
        Bottleneck(128, 64, 256, stride=2), Bottleneck(256, 64, 256), nn.ReLU(), nn.Flatten(),
        nn.Linear(256 * 16, 10))


class TestOps:
    def test_sequential(self):
        found = ft.ops_of(alexnet(), torch.zeros(1, 3, 32, 32))
        assert found.input_shape == (3, 32, 32) and not found.problems
        assert found.ops[0] == sc.Conv2d(3, 48, 11, 2, 5, name="0")
        assert found.ops[3] == sc.Conv2d(48, 128, 5, 1, 2, groups=2, name="3")
        assert found.ops[2] == sc.MaxPool2d(2, name="2")
        assert found.ops[13:16] == (sc.Flatten(name="13"), sc.Dropout(0.5, name="14"),
                                    sc.Linear(512, 256, name="15"))

    def test_residual_blocks(self):
        ops = ft.ops_of(resnet(), torch.zeros(1, 3, 8, 8)).require()
        block = ops[3]
        assert isinstance(block, sc.Residual) and block.name == "3.add()"
        assert (block.alpha, block.beta) == pytest.approx((math.sqrt(0.7), math.sqrt(0.3)))
        assert [op.name for op in block.main] == ["3.relu()", "3.reduce", "3.relu", "3.middle",
                                                  "3.relu (2)", "3.widen"]
        assert block.shortcut == (sc.Conv2d(128, 256, 1, 2, name="3.shortcut"),)
        assert ops[2].shortcut == ()

    @pytest.mark.parametrize("function, expected", [
        (lambda m, x: F.max_pool2d(x, 3, stride=2, padding=1), sc.MaxPool2d(3, 2, 1)),
        (lambda m, x: F.avg_pool2d(x, 2), sc.AvgPool2d(2)),
        (lambda m, x: F.adaptive_avg_pool2d(x, (2, 4)), sc.AvgPool2d((4, 2))),
        (lambda m, x: x.mean((2, 3), keepdim=True), sc.AvgPool2d(8)),
        (lambda m, x: F.interpolate(x, scale_factor=2), sc.Upsample(2)),
        (lambda m, x: F.interpolate(x, size=(16, 24)), sc.Upsample((2, 3))),
        (lambda m, x: F.dropout(x, 0.3, m.training), sc.Dropout(0.3)),
        (lambda m, x: x[:, :, ::2, 0::3], sc.Stride((2, 3))),
        (lambda m, x: x[..., ::2, ::2], sc.Stride(2)),
        (lambda m, x: x.view(x.size(0), -1), sc.Flatten()),
        (lambda m, x: torch.flatten(x, 1), sc.Flatten()),
        (lambda m, x: -2.0 * x, sc.Scale(-2.0)),
        (lambda m, x: F.leaky_relu(x, 0.2), sc.LeakyReLU(0.2)),
        (lambda m, x: torch.tanh(x), sc.Activation("tanh")),
        (lambda m, x: torch.cat([x, F.relu(x)], 1),
         sc.Concat([(), (sc.ReLU(name="relu()"),)])),
    ])
    def test_functions(self, function, expected):
        op, = ft.ops_of(Function(function), torch.zeros(2, 4, 8, 8)).require()
        values = vars(op) | {"name": ""}
        assert type(op) is type(expected) and values == vars(expected)

    @pytest.mark.parametrize("layer, expected", [
        (nn.BatchNorm2d(4), sc.BatchNorm(2 * 64)),
        (nn.LayerNorm((4, 8, 8)), sc.LayerNorm()),
        (nn.GroupNorm(1, 4), sc.LayerNorm()),
        (nn.Upsample(scale_factor=2), sc.Upsample(2)),
        (nn.AdaptiveMaxPool2d(4), sc.MaxPool2d(2)),
        (nn.GELU(), sc.Activation("gelu")),
        (nn.Conv2d(4, 6, 3, padding="same", dilation=2, padding_mode="circular", bias=False),
         sc.Conv2d(4, 6, 3, 1, 2, 2, 1, False, "circular")),
    ])
    def test_layers(self, layer, expected):
        op, = ft.ops_of(layer, torch.zeros(2, 4, 8, 8)).require()
        assert type(op) is type(expected) and vars(op) | {"name": ""} == vars(expected)

    @pytest.mark.parametrize("function, kind, reason", [
        (lambda m, x: F.max_pool2d(x, 3, 2, ceil_mode=True), "pooling", "rounding up"),
        (lambda m, x: F.adaptive_avg_pool2d(x, 3), "pooling", "several sizes"),
        (lambda m, x: x[:, :2], "operation", "every k-th"),
        (lambda m, x: x[:, :, 1::2], "operation", "every k-th"),
        (lambda m, x: x * x.mean((2, 3), keepdim=True), "product", "constant"),
        (lambda m, x: x + x.mean((2, 3), keepdim=True), "sum", "different shapes"),
        (lambda m, x: torch.cat([x, x], 2), "concatenation", "dim 1"),
        (lambda m, x: x.view(-1, 64), "operation", "size of the batch"),
        (lambda m, x: (x, x), "output", "one tensor"),
        (lambda m, x: x if x.sum() > 0 else -x, "untraceable", "symbolically"),
        (lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear"), "operation", "nearest"),
    ])
    def test_names_what_it_cannot_turn(self, function, kind, reason):
        found = ft.ops_of(Function(function), torch.zeros(2, 4, 8, 8))
        assert found.ops == () and found.problems[0].kind == kind
        assert reason in found.problems[0].reason
        with pytest.raises(ValueError, match="not covered"):
            found.require()

    @pytest.mark.parametrize("layer, kind", [
        (nn.ConvTranspose2d(4, 4, 2), "convolution"), (nn.GroupNorm(2, 4), "normalisation"),
        (nn.AlphaDropout(), "dropout"), (nn.Softmax(1), "activation"),
        (nn.Linear(8, 8), "linear"), (nn.AvgPool2d(3, padding=1, count_include_pad=False),
                                      "pooling"),
    ])
    def test_names_layers_it_cannot_turn(self, layer, kind):
        found = ft.ops_of(nn.Sequential(layer), torch.zeros(2, 4, 8, 8))
        assert [(p.path, p.kind) for p in found.problems] == [("0", kind)]

    def test_the_main_branch_has_more_layers(self):
        def block(m, x):
            return 0.6 * m.layers[1](F.relu(m.layers[0](x))) - 0.8 * m.layers[2](x)
        layers = [nn.Linear(4, 4) for _ in range(3)]
        op, = ft.ops_of(Function(block, *layers), torch.zeros(1, 4)).require()
        assert (op.alpha, op.beta) == (-0.8, 0.6)
        assert [one.name for one in op.main] == ["layers.0", "relu()", "layers.1"]
        assert [one.name for one in op.shortcut] == ["layers.2"]
        op, = ft.ops_of(Function(lambda m, x: F.relu(x) + x), torch.zeros(1, 4)).require()
        assert op.main == (sc.ReLU(name="relu()"),) and op.shortcut == ()

    def test_shared_weights_and_crossing_branches(self):
        layer = nn.Linear(4, 4)
        found = ft.ops_of(nn.Sequential(layer, layer), torch.zeros(2, 4))
        assert "again" in found.problems[0].reason

        def cross(m, x):
            inner = m.layers[0](x)
            return inner + (x + m.layers[1](inner))
        found = ft.ops_of(Function(cross, nn.Linear(4, 4), nn.Linear(4, 4)), torch.zeros(2, 4))
        assert [p.kind for p in found.problems] == ["branches"]


def geometric_(module):
    """Geometric initialisation written out once more, without corrections."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            weight, groups = part.weight, getattr(part, "groups", 1)
            places = weight[0, 0].numel()
            n_in, n_out = weight.shape[1] * groups, weight.shape[0]
            variance = 2.0 * math.sqrt(groups / (places * n_in * n_out))
            nn.init.normal_(weight, 0.0, math.sqrt(variance))
            nn.init.zeros_(part.bias)
    return module


def fan_in_(module):
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
            nn.init.zeros_(part.bias)
    return module


class TestMeasured:
    def test_nu_and_moments_against_autograd(self):
        """One layer, one seed: E[DW^2] from each input's own gradient by autograd."""
        net = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=True), nn.ReLU())
        batch, kept = draws(0, 5, 2, 4, 4), {}

        def reinit(module):
            torch.nn.init.normal_(module[0].weight, 0.0, 0.3)
            kept["net"] = copy.deepcopy(module)

        def loss(output):
            kept["gradient"] = torch.randn_like(output)
            return (output * kept["gradient"]).sum()

        report = ft.scaling_report(net, batch, seeds=1, reinit=reinit, loss=loss)
        layer = report.layers[0]
        weight, bias = kept["net"][0].weight, kept["net"][0].bias.detach()
        hidden = F.conv2d(batch, weight, bias, padding=1)
        (F.relu(hidden) * kept["gradient"]).sum().backward()
        variance = float(weight.detach().double().square().mean())
        assert layer.name == "0" and layer.weight_variance == pytest.approx(variance, rel=1e-6)
        gradient = float(weight.grad.square().mean()) / 5
        assert layer.nu == pytest.approx(gradient / variance, rel=1e-5)
        back = kept["gradient"] * (hidden > 0)
        assert layer.gamma_bias == pytest.approx(
            16 * float((back.square().mean() / hidden.square().mean()).detach()), rel=1e-5)
        into = F.conv_transpose2d(back, weight, padding=1)
        varsigma = 2 * 16 * float((batch.square().mean() * into.square().mean()).detach())
        assert layer.varsigma == pytest.approx(varsigma, rel=1e-5)
        assert layer.gamma == pytest.approx(varsigma / (2 * 6 * 9 * variance**2), rel=1e-5)
        assert layer.forward_second_moment == pytest.approx(float(batch.square().mean()), rel=1e-6)

    def test_varsigma_through_linear_operations(self):
        """Conserved by every linear operation, whatever its stride, padding or groups."""
        net = geometric_(nn.Sequential(
            nn.Conv2d(3, 64, 5, stride=2, padding=4, dilation=2), nn.Conv2d(64, 128, 3, groups=4),
            nn.Upsample(scale_factor=2), nn.Conv2d(128, 64, 3, padding=1, stride=3), nn.Flatten(),
            nn.Linear(64 * 49, 64)))
        report = ft.scaling_report(net, draws(1, 16, 3, 24, 24), seeds=16)
        assert [op.name for op in report.ops] == [str(k) for k in range(6)]
        factors = [op.factor for op in report.ops]
        assert factors == pytest.approx([1.0] * 6, rel=0.12)
        assert report.ops[4].factor == pytest.approx(1.0, rel=1e-9)

    def test_shares_of_branches(self):
        """The gradient of a layer's input is what comes through this layer alone."""
        def block(m, x):
            x = m.layers[0](x)
            return 0.8 * m.layers[1](x) + 0.6 * m.layers[2](x)
        layers = [nn.Linear(n, 256, bias=False) for n in (64, 256, 256)]
        report = ft.scaling_report(Function(block, *layers), draws(2, 16, 64), seeds=16)
        whole, left, right = (report[f"layers.{k}"].varsigma for k in range(3))
        assert left / whole == pytest.approx(0.64, rel=0.1)
        assert right / whole == pytest.approx(0.36, rel=0.1)

    def test_fan_in_of_the_wide_narrow_wide_net(self):
        """gamma of fan-in is n_l / n_{l+1} (B2: .040 .117 .002 1)."""
        net = mlp()
        report = ft.scaling_report(fan_in_(net), draws(3, 32, 784), seeds=48, reinit=fan_in_)
        nu = np.array([layer.nu for layer in report.layers])
        gamma = np.array([layer.gamma for layer in report.layers])
        expected = [784 / 384 / 51.2, 6 / 51.2, 0.125 / 51.2, 1.0]
        assert expected[:3] == pytest.approx([0.040, 0.117, 0.002], abs=5e-4)
        assert nu / nu[-1] == pytest.approx(expected, rel=0.12)
        assert gamma / gamma[-1] == pytest.approx(expected, rel=0.12)
        assert [layer.name for layer in report.flagged] == ["4", "6"]
        assert "x the median" in report.flagged[0].flag

    def test_names_the_operation_where_varsigma_jumps(self):
        net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3),
                            nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 10))
        report = ft.scaling_report(geometric_(net), draws(4, 16, 3, 16, 16), seeds=4)
        jumps = {op.name: op.flag for op in report.flagged}
        # The gradient that max-pooling hands back is where the ReLU's slope is 1: E[f'^2] = 15/16.
        assert set(jumps) == {"1", "2"} and "max-pool" in jumps["2"]
        assert report.ops[1].factor == pytest.approx(0.5 / (15 / 16), rel=0.05)
        assert report.ops[1].factor * report.ops[2].factor == pytest.approx(1.6473, rel=0.05)


class TestPrediction:
    """Offline = measured."""

    @staticmethod
    def ratios(report):
        assert report.prediction is not None and not report.problems
        return np.array([layer.ratio for layer in report.layers])

    def test_mlp(self):
        report = ft.scaling_report(fan_in_(mlp()), draws(5, 64, 784), seeds=64)
        assert self.ratios(report) == pytest.approx(np.ones(4), rel=0.1)
        assert report["1"].ratio == pytest.approx(1.0, rel=0.1)     # varsigma
        assert report["0"].predicted == report.prediction.to_dict()["ops"][0]

    @pytest.mark.slow
    @pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
    def test_alexnet(self, padding_mode):
        """Zeros at the borders are in the middle of the next layer's sums less often: second
        moments that are one number per layer then are a quarter off, though alike in all layers."""
        report = ft.scaling_report(geometric_(alexnet(padding_mode)), draws(6, 8, 3, 32, 32),
                                   seeds=100)
        ratios = self.ratios(report)
        assert len(ratios) == 8
        if padding_mode == "zeros":
            assert np.all((ratios > 0.9) & (ratios < 1.35))
            ratios = ratios / np.median(ratios)
        assert ratios == pytest.approx(np.ones(8), rel=0.15)
        assert {"2", "5", "12"} <= {op.name for op in report.flagged}

    @pytest.mark.slow
    def test_resnet(self):
        report = ft.scaling_report(geometric_(resnet()), draws(7, 16, 3, 8, 8), seeds=100)
        ratios = self.ratios(report)
        assert len(ratios) == 16
        assert ratios == pytest.approx(np.ones(16), rel=0.15)

    @pytest.mark.slow
    @pytest.mark.parametrize("make, shape", [(mlp, (784,)), ("alexnet", (3, 32, 32)),
                                             (resnet, (3, 8, 8))])
    def test_single_networks(self, make, shape):
        """The median over single networks. Their fluctuations are skewed: its median is lower than
        the mean, by half the variance of log nu, so that single layers get more room."""
        net = geometric_(alexnet("circular") if make == "alexnet" else make())
        batch = draws(8, 8, *shape)
        ratios = [self.ratios(ft.scaling_report(net, batch, seeds=1, seed=seed))
                  for seed in range(40)]
        assert np.median(ratios) == pytest.approx(1.0, rel=0.15)
        assert np.median(ratios, axis=0) == pytest.approx(np.ones(len(ratios[0])), rel=0.3)

    def test_functions_have_a_prediction_only(self):
        report = ft.scaling_report(Bottleneck(8, 4, 8), draws(9, 4, 8, 4, 4), seeds=2)
        op = report["add()"]
        assert op.varsigma is None and op.predicted["varsigma"] > 0.0

    def test_module_that_cannot_be_read_is_measured(self):
        net = nn.Sequential(nn.Linear(8, 32), nn.Softmax(1), nn.Linear(32, 4))
        report = ft.scaling_report(net, draws(10, 16, 8), seeds=2)
        assert report.prediction is None and report.problems[0].path == "1"
        assert [op.name for op in report.ops] == ["0", "1", "2"]
        assert report["1"].factor > 0.0 and report["2"].nu > 0.0 and report["2"].ratio is None
        assert "no offline prediction" in str(report) and "Softmax" in str(report)

    def test_moments_of_the_batch_are_used(self):
        """E[x^2] = 4 and a common mean; nu of the first layer is proportional to E[x^2]."""
        net = geometric_(nn.Sequential(nn.Conv2d(4, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                       nn.Flatten(), nn.Linear(64, 64)))
        batch = 1.0 + math.sqrt(3.0) * draws(11, 16, 4, 8, 8)
        report = ft.scaling_report(net, batch, seeds=48)
        assert report.prediction.input_second_moment == pytest.approx(4.0, rel=0.05)
        assert self.ratios(report) == pytest.approx(np.ones(2), rel=0.15)


class TestReport:
    def test_dict_and_table(self):
        report = ft.scaling_report(geometric_(mlp()), draws(12, 8, 784), seeds=2)
        record = report.to_dict()
        keys = {"name", "varsigma", "gamma", "nu", "gamma_bias", "forward_second_moment",
                "backward_second_moment", "factor", "flag"}
        assert keys <= set(record["ops"][0]) and record["ops"][1]["gamma"] is None
        assert record["seeds"] == 2 and record["predicted"] is True
        lines = str(report).splitlines()
        assert lines[1].split()[:3] == ["name", "kind", "varsigma"]
        assert [line.split()[0] for line in lines[2:]] == [op.name for op in report.ops]
        with pytest.raises(KeyError, match="no operation"):
            report["8"]

    def test_table_says_where_gamma_is_not_the_gauss_newton_block(self):
        net = geometric_(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16)))
        report = ft.scaling_report(net, draws(12, 8, 8), seeds=1)
        assert "Gauss-Newton" in str(report)        # 1 + 2 16 / 16 = 3

    def test_module_and_generator_are_left_alone(self):
        net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))
        net.eval()
        net[0].weight.requires_grad_(False)
        state = {name: value.clone() for name, value in net.state_dict().items()}
        torch.manual_seed(3)
        before = torch.get_rng_state()
        first = ft.scaling_report(net, draws(13, 8, 8), seeds=2)
        assert torch.equal(before, torch.get_rng_state())
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
        assert not net.training and not net[0].weight.requires_grad and net[3].weight.grad is None
        again = ft.scaling_report(net, draws(13, 8, 8), seeds=2)
        assert first.to_dict() == again.to_dict()
        other = ft.scaling_report(net, draws(13, 8, 8), seeds=2, seed=1)
        assert first["0"].nu != other["0"].nu

    def test_default_redraws_at_the_modules_variances(self):
        net = nn.Sequential(nn.Linear(200, 300), nn.Linear(300, 100))
        nn.init.normal_(net[1].weight, 0.0, 0.7)
        report = ft.scaling_report(net, draws(14, 4, 200), seeds=4)
        assert report["0"].weight_variance == pytest.approx(1 / 200 / 3, rel=0.02)
        assert report["1"].weight_variance == pytest.approx(0.49, rel=0.02)

    def test_nu_does_not_depend_on_the_size_of_the_batch(self):
        net = geometric_(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
        few = ft.scaling_report(net, draws(15, 2, 64), seeds=64)
        many = ft.scaling_report(net, draws(15, 64, 64), seeds=16)
        for name in ("0", "2"):
            assert few[name].nu == pytest.approx(many[name].nu, rel=0.15)

    def test_uses_of_one_module_are_told_apart(self):
        relu = nn.ReLU(inplace=True)
        net = nn.Sequential(nn.Linear(8, 8), relu, nn.Linear(8, 8), relu)
        report = ft.scaling_report(net, draws(16, 4, 8), seeds=1)
        assert [op.name for op in report.ops] == ["0", "1", "2", "1 (2)"]
        assert all(op.varsigma is not None for op in report.ops)

    def test_loss(self):
        """Mean over inputs and outputs: nu is 1 / (size of output)^2 of a unit gradient's."""
        net = geometric_(nn.Sequential(nn.Linear(32, 16)))
        unit = ft.scaling_report(net, draws(17, 4, 32), seeds=32)
        mean = ft.scaling_report(net, draws(17, 4, 32), seeds=32,
                                 loss=lambda y: (y * torch.randn_like(y)).mean())
        assert mean["0"].nu * 64**2 == pytest.approx(unit["0"].nu, rel=0.2)
        assert mean["0"].ratio == pytest.approx(unit["0"].ratio, rel=0.2)

    def test_output_of_several_tensors(self):
        net = Function(lambda m, x: (m.layers[0](x), x), nn.Linear(8, 4))
        with pytest.raises(ValueError, match="one tensor .* got tuple; give loss="):
            ft.scaling_report(net, draws(18, 4, 8))
        report = ft.scaling_report(net, draws(18, 4, 8), loss=lambda y: y[0].square().sum())
        assert report["layers.0"].nu > 0.0 and report.problems[0].kind == "output"

    def test_biases_are_noted(self):
        report = ft.scaling_report(nn.Sequential(nn.Linear(8, 4)), draws(19, 4, 8), seeds=1)
        assert [note.kind for note in report.notes] == ["bias"]

    @pytest.mark.parametrize("change, message", [
        ({"batch": torch.zeros(2, 9)}, r"does not take a batch of shape \(2, 9\)"),
        ({"batch": [1.0]}, "batch must be a tensor"),
        ({"batch": torch.zeros(2, 8, dtype=torch.int64)}, "batch must be a tensor"),
        ({"batch": torch.full((2, 8), math.nan)}, "batch must be finite"),
        ({"module": nn.Sequential(nn.ReLU())}, "no layer with weights"),
        ({"module": nn.Sequential(nn.LazyLinear(4))}, "no weights yet at 0"),
        ({"module": 3}, "torch.nn.Module"),
        ({"seeds": 0}, "seeds must be"),
        ({"loss": 1.0}, "loss must be a function"),
        ({"reinit": "geometric"}, "reinit must be a function"),
        ({"loss": lambda y: y}, "loss must return one number"),
        ({"loss": lambda y: torch.tensor(1.0)}, "depends on the output"),
        ({"module": Function(lambda m, x: m.layers[0](x).sum(), nn.Linear(8, 4))}, "one tensor"),
    ])
    def test_bad_input(self, change, message):
        given = {"module": nn.Sequential(nn.Linear(8, 4)), "batch": torch.ones(2, 8)} | change
        with pytest.raises(ValueError, match=message):
            ft.scaling_report(given.pop("module"), given.pop("batch"), **given)

    def test_overflow_is_an_error(self):
        net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
        for layer in net:
            nn.init.constant_(layer.weight, 1e30)
        with pytest.raises(FloatingPointError, match="not finite"):
            ft.scaling_report(net, torch.ones(2, 8), seeds=1)


class TestGeometric:
    def test_variances(self):
        net = alexnet("zeros")
        result = ft.geometric_init_(net, torch.zeros(2, 3, 32, 32), c=1.5,
                                    generator=torch.Generator().manual_seed(0))
        expected = [1.5 / (11 * math.sqrt(3 * 48)), 1.5 * math.sqrt(2) / (5 * math.sqrt(48 * 128))]
        assert [layer.variance for layer in result.layers[:2]] == pytest.approx(expected, rel=1e-12)
        assert [layer.path for layer in result.layers] == ["0", "3", "6", "8", "10", "15", "18",
                                                           "20"]
        for layer in result.layers:
            part = net.get_submodule(layer.path)
            assert float(part.weight.detach().square().mean()) == pytest.approx(
                layer.variance, rel=6 * math.sqrt(2 / part.weight.numel()))
            assert not part.bias.any() and layer.correction == 1.0

    def test_mlp_has_equal_nu(self):
        net = mlp()
        result = ft.geometric_init_(net)
        report = ft.scaling_report(net, draws(20, 64, 784), seeds=48)
        nu = np.array([layer.nu for layer in report.layers])
        assert nu / np.median(nu) == pytest.approx(np.ones(4), rel=0.1)
        assert report.flagged == ()
        # Telescoped (Part B7): sqrt(n_0 / n_L), twice that as the input is not halved.
        assert result.output_second_moment == pytest.approx(2 * math.sqrt(784 / 10), rel=1e-9)

    @pytest.mark.slow
    def test_residual_blocks_have_equal_nu(self):
        """B8: beta^2 = .3 uncorrected, 1 corrected, with the multipliers set in the module."""
        net, batch = resnet(), draws(21, 16, 3, 8, 8)
        result = ft.geometric_init_(net, batch, generator=torch.Generator().manual_seed(1))
        corrections = {layer.path: layer.correction for layer in result.layers}
        assert corrections["3.middle"] == pytest.approx(BETA, rel=1e-12)
        assert corrections["3.shortcut"] == pytest.approx(math.sqrt(0.7), rel=1e-12)
        assert corrections["0"] == corrections["7"] == 1.0
        assert len(result.multipliers) == 6
        assert result.multipliers[0].layers == ("1.reduce", "1.middle", "1.widen")
        for one in result.multipliers:
            net.get_submodule(one.block[0]).multipliers[one.branch] = one.factor
        assert ft.geometric_init_(net, batch).multipliers == ()
        report = ft.scaling_report(net, batch, seeds=64)
        nu = np.array([layer.nu for layer in report.layers])
        assert nu / np.median(nu) == pytest.approx(np.ones(len(nu)), rel=0.2)
        uncorrected = ft.scaling_report(geometric_(net), batch, seeds=64)
        inside = [layer.nu for layer in uncorrected.layers if ".middle" in layer.name]
        assert np.max(inside) / uncorrected["7"].nu < 0.75

    def test_sum_without_weights_shares_equally(self):
        """x + F(x): both halves carry varsigma / 2, so the variance is over sqrt(2)."""
        net = nn.Sequential(Function(lambda m, x: x + m.layers[0](x), nn.Linear(16, 16)))
        result = ft.geometric_init_(net)
        layer, = result.layers
        multiplier, = result.multipliers
        assert layer.path == "0.layers.0"
        assert layer.correction == pytest.approx(math.sqrt(0.5), rel=1e-12)
        assert layer.variance == pytest.approx(2 / 16 * math.sqrt(0.5), rel=1e-12)
        # E[F^2] = 16 (2 / 16) / sqrt(2) E[x^2] = sqrt(2) E[x^2].
        assert multiplier.factor == pytest.approx(2**-0.25, rel=1e-12)

    def test_output_multiplier(self):
        net, batch = mlp(), draws(22, 64, 784)
        result = ft.geometric_init_(net, batch, output_second_moment=0.05)
        with torch.no_grad():
            output = result.output_multiplier * net(batch)
        assert float(output.square().mean()) == pytest.approx(0.05, rel=1e-5)
        assert str(result).splitlines()[0].split() == ["path", "variance", "correction"]
        assert result.to_dict()["layers"][0]["path"] == "0"

    def test_generator(self):
        nets = [mlp(), mlp()]
        for net in nets:
            ft.geometric_init_(net, generator=torch.Generator().manual_seed(4))
        assert torch.equal(nets[0][4].weight, nets[1][4].weight)

    @pytest.mark.parametrize("module, options, message", [
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), {}, r"not covered:\s+1: activation"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), {}, "example is needed"),
        (nn.Sequential(nn.ReLU()), {"example": torch.ones(1, 4)}, "no layer with weights"),
        (nn.Sequential(nn.Linear(4, 4)), {"c": 0.0}, "c must be"),
        (nn.Sequential(nn.Linear(4, 4)), {"output_second_moment": -1}, "output_second_moment"),
        (nn.Sequential(nn.Linear(4, 4)), {"generator": 0}, "generator must be"),
        (nn.Sequential(nn.Linear(4, 4)), {"example": torch.ones(1, 5)}, "does not take"),
        ("mlp", {}, "must be a torch.nn.Module"),
    ])
    def test_bad_input_leaves_the_module_alone(self, module, options, message):
        before = copy.deepcopy(module)
        with pytest.raises(ValueError, match=message):
            ft.geometric_init_(module, **options)
        if isinstance(module, nn.Module):
            assert all(map(torch.equal, module.parameters(), before.parameters()))
