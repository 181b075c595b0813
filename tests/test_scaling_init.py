"""Initial variances, residual corrections, output moments and preconditioned networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scaling_model as model

from fastspec import scaling as sc
from fastspec._scaling_analyze import input_signal, walk


@pytest.mark.parametrize(("scheme", "expected"), [
    ("geometric", 2 / (3 * math.sqrt(64 * 256))), ("fan_in", 2 / (64 * 9)),
    ("fan_out", 2 / (256 * 9)), ("arithmetic", 4 / ((64 + 256) * 9))])
def test_weight_variance(scheme, expected):
    assert sc.weight_variance(scheme, 64, 256, 3) == pytest.approx(expected, rel=1e-14)
    assert sc.weight_variance(scheme, 64, 256, (1, 9), c=1.0) == pytest.approx(expected / 2,
                                                                               rel=1e-14)


def test_weight_variance_of_groups():
    """geometric x sqrt(g); the fans are those within a group."""
    assert sc.weight_variance("geometric", 8, 8, 3, 4) == pytest.approx(2 * 2 / (3 * 8), rel=1e-14)
    assert sc.weight_variance("fan_in", 8, 16, 3, 4) == sc.weight_variance("fan_in", 2, 4, 3)
    ops = [sc.Conv2d(8, 8, 1), sc.ReLU(), sc.Conv2d(8, 8, 3, groups=4, padding=1), sc.ReLU(),
           sc.Conv2d(8, 4, 1)]
    gammas = [op.gamma for op in sc.analyze(ops, (8, 9, 9)).layers]
    assert gammas == pytest.approx([gammas[0]] * 3, rel=1e-12, abs=0)


@pytest.mark.parametrize(("arguments", "message"), [
    (("geometry", 3, 4), "scheme must be one of .*did you mean 'geometric'"),
    (("fan_in", 0, 4), "n_in must be a whole number >= 1"),
    (("fan_in", 3, 4.0), "n_out must be a whole number >= 1"),
    (("fan_in", 3, 4, 0), "kernel must be"), (("fan_in", 3, 4, 1, 2), "groups must divide n_in"),
    (("fan_in", 3, 4, 1, 1, -2.0), "c must be a finite number > 0"),
])
def test_bad_variances(arguments, message):
    with pytest.raises(ValueError, match=message):
        sc.weight_variance(*arguments)


def test_residual_corrections():
    made = sc.residual_corrections(0.6, 0.8)
    assert made == pytest.approx((0.8, 0.6, 0.8**-0.5, 0.6**-0.5), rel=1e-14)
    with pytest.raises(ValueError, match="beta must be a finite number > 0"):
        sc.residual_corrections(1.0, 0.0)


def test_telescoped_moment():
    assert sc.telescoped_moment(3, 10) == pytest.approx(1.095, abs=5e-4)
    assert sc.telescoped_moment(784, 10) == pytest.approx(17.7, abs=0.05)
    halved = sc.telescoped_moment(3, 10, input_second_moment=4.0, rectified_input=True)
    assert halved == pytest.approx(4 * math.sqrt(0.3), rel=1e-14)


def test_telescoped_moment_is_that_of_the_report():
    def conv(a, b, k):
        return sc.Conv2d(a, b, k, padding=k // 2, padding_mode="circular")

    ops = [conv(3, 20, 5), sc.ReLU(), conv(20, 7, 1), sc.ReLU(), conv(7, 4, 3)]
    for before in ([], [sc.ReLU()]):
        report = sc.analyze([*before, *ops], (3, 8, 8), c=0.7)
        assert report.output_second_moment == pytest.approx(
            sc.telescoped_moment(3, 4, (5, 1, 3), c=0.7, rectified_input=bool(before)), rel=1e-12)


@pytest.mark.parametrize(("options", "message"), [
    ({"kernels": (3, 3)}, "kernels and c go together"), ({"c": 2.0}, "kernels and c go together"),
    ({"kernels": (3, 0), "c": 1.0}, r"kernels\[1\] must be"),
    ({"input_second_moment": 0.0}, "input_second_moment must be"),
])
def test_bad_telescopes(options, message):
    with pytest.raises(ValueError, match=message):
        sc.telescoped_moment(3, 10, **options)


# --- preconditioned networks ----------------------------------------------------------------------

def block(n, beta, shortcut=()):
    """Two layers that keep the second moment: ReLU halves, geometric variance 2/n doubles."""
    return sc.Residual([sc.ReLU(), sc.Linear(n, n), sc.ReLU(), sc.Linear(n, n)], shortcut,
                       math.sqrt(1 - beta**2), beta)


def blocks(beta):
    return [sc.Linear(20, 40), *(block(40, beta) for _ in range(4)), sc.ReLU(), sc.Linear(40, 10)]


def test_residual_network_before_and_after():
    """gamma inside the blocks: .30 of that outside, then equal (variance x beta)."""
    beta = 0.3**0.5
    plain = sc.analyze(blocks(beta), (20,))
    head = plain.layers[-1].gamma
    assert [op.gamma / head for op in plain.layers] == pytest.approx([1] + [0.3] * 8 + [1],
                                                                     rel=1e-12)
    made = sc.precondition(blocks(beta), (20,))
    gammas = [op.gamma for op in made.report.layers]
    assert gammas == pytest.approx([head] * 10, rel=1e-12)
    assert made.report.output_second_moment == pytest.approx(plain.output_second_moment, rel=1e-12)
    correction = sc.residual_corrections(math.sqrt(0.7), beta)
    assert made.variances["1.main.1.Linear"] == pytest.approx(
        correction.main_variance * sc.weight_variance("geometric", 40, 40), rel=1e-12)
    assert made.ops[1].main[2].factor == pytest.approx(correction.main_multiplier, rel=1e-12)
    assert [change.factor for change in made.changes[:2]] == pytest.approx([beta, beta**-0.5],
                                                                           rel=1e-12)
    kinds = [change.kind for change in made.changes]
    assert (kinds.count("variance"), kinds.count("multiplier"), len(kinds)) == (8, 8, 16)


def test_shortcut_layers_are_corrected_by_alpha():
    beta = 0.6
    ops = [sc.Linear(9, 30), sc.ReLU(), block(30, beta, [sc.Linear(30, 30, name="cut"), sc.Scale(
        0.5**0.5)]), sc.Linear(30, 4)]
    made = sc.precondition(ops, (9,))
    geometric = sc.weight_variance("geometric", 30, 30)
    assert made.variances["cut"] / geometric == pytest.approx(0.8, rel=1e-9)
    assert made.variances["2.main.1.Linear"] / geometric == pytest.approx(0.6, rel=0.02)
    gammas = [op.gamma for op in made.report.layers]
    assert gammas == pytest.approx([gammas[0]] * len(gammas), rel=1e-12)


MIXED = [sc.Conv2d(3, 16, 5, 2, 2), sc.ReLU(), sc.MaxPool2d(2),
         sc.Residual([sc.Conv2d(16, 8, 1), sc.ReLU(), sc.Conv2d(8, 32, 3, 2, 1)],
                     [sc.Conv2d(16, 32, 1, 2)], 0.6, 0.8),
         sc.Activation("tanh"), sc.Concat([[sc.Conv2d(32, 8, 1)], [sc.Conv2d(32, 8, 3, padding=1)]],
                                          name="join"),
         sc.ReLU(), sc.AvgPool2d(4), sc.Flatten(), sc.Linear(16, 10)]


def test_any_network_gets_constant_gamma():
    made = sc.precondition(MIXED, (3, 32, 32), output_second_moment=0.04)
    gammas = [op.gamma for op in made.report.layers]
    assert len(gammas) == 7 and gammas == pytest.approx([gammas[0]] * 7, rel=1e-10)
    assert made.report.output_second_moment == pytest.approx(0.04, rel=1e-12)
    again = sc.analyze(made.ops, (3, 32, 32), init=made.variances)
    assert again == made.report
    residual = again["3.Residual"]
    inside = {op.name: op for op in again.ops}
    assert inside["4.Activation"].forward_second_moment == pytest.approx(
        residual.forward_second_moment, rel=1e-12)       # E[F^2] = E[S^2] = E[x^2]
    advised = {change.op for change in made.changes if change.kind == "suggestion"}
    assert advised == {"2.MaxPool2d", "4.Activation", "7.AvgPool2d"}
    assert "replace it by Stride" in str(made)


def test_the_fewest_layers_are_changed():
    """Global pooling: the one layer behind it, not the three before."""
    ops = [sc.Conv2d(4, 4, 1), sc.ReLU(), sc.Conv2d(4, 4, 1), sc.ReLU(), sc.Conv2d(4, 4, 1),
           sc.ReLU(), sc.AvgPool2d(4), sc.Flatten(), sc.Linear(4, 2)]
    changed = [change.op for change in sc.precondition(ops, (4, 4, 4)).changes]
    assert changed == ["8.Linear", "8.Linear", "6.AvgPool2d"]


def test_operations_are_never_replaced():
    made = sc.precondition(MIXED, (3, 32, 32))
    kept = [type(op) for op in made.ops if not (op.name or "").endswith("multiplier")]
    assert kept == [type(op) for op in MIXED]


def test_nothing_to_change():
    made = sc.precondition([sc.Linear(9, 5), sc.ReLU(), sc.Linear(5, 2)], (9,))
    assert made.changes == () and str(made).startswith("nothing to change")
    assert [type(op) for op in made.ops] == [sc.Linear, sc.ReLU, sc.Linear]
    assert sc.precondition([sc.ReLU()], (9,)).variances == {}


def test_a_branch_that_is_switched_off_is_left_alone():
    made = sc.precondition([sc.Linear(4, 6), sc.Residual([sc.Linear(6, 6)], beta=0.0)], (4,))
    assert made.variances["1.main.0.Linear"] == sc.weight_variance("geometric", 6, 6)


def test_errors_name_the_operations():
    with pytest.raises(ValueError, match=r"2\.Linear: takes n_in = 6 .*from 1\.ReLU"):
        sc.precondition([sc.Linear(4, 5), sc.ReLU(), sc.Linear(6, 6)], (4,))
    with pytest.raises(ValueError, match="output_second_moment must be"):
        sc.precondition([sc.Linear(4, 5)], (4,), output_second_moment=-1.0)


def test_output_multiplier():
    """Moments x 0.09 and gammas x 0.09 for 0.3, wherever it stands."""
    ops = [sc.Linear(50, 40), sc.ReLU(), sc.Linear(40, 30), sc.ReLU(), sc.Linear(30, 10)]
    plain = sc.analyze(ops, (50,))
    factor = sc.output_multiplier(plain, 0.09 * plain.output_second_moment)
    assert factor == pytest.approx(0.3, rel=1e-14)
    variances = {op.name: v for op, v in zip(plain.layers, (
        sc.weight_variance("geometric", a, b) for a, b in ((50, 40), (40, 30), (30, 10))),
        strict=True)}
    named = [sc.Linear(50, 40, name="0.Linear"), sc.ReLU(), sc.Linear(40, 30, name="2.Linear"),
             sc.ReLU(), sc.Linear(30, 10, name="4.Linear")]
    for place in range(6):
        with_it = sc.analyze([*named[:place], sc.Scale(factor), *named[place:]], (50,),
                             init=variances)
        assert with_it.output_second_moment == pytest.approx(0.09 * plain.output_second_moment,
                                                             rel=1e-12)
        for one, other in zip(with_it.layers, plain.layers, strict=True):
            assert one.gamma == pytest.approx(0.09 * other.gamma, rel=1e-12)
    with pytest.raises(ValueError, match="target must be a finite number > 0"):
        sc.output_multiplier(plain, 0.0)


@pytest.mark.slow
def test_simulated_residual_network():
    """nu / nu of the head in real networks: .30 before, 1 after (beta^2 = .3)."""
    ops = [sc.Linear(100, 200), *(block(200, 0.3**0.5) for _ in range(4)), sc.ReLU(),
           sc.Linear(200, 10)]
    made = sc.precondition(ops, (100,))
    for network, init, expected in ((ops, "geometric", 0.30), (made.ops, made.variances, 1.0)):
        steps, _ = walk(network, input_signal((100,), 1.0, 0.0, None), init, 2.0, 1.0)
        variances = np.array([step.variance or np.nan for top in steps for step in top.flat()])
        rows = model.simulate(network, (100,), variances[~np.isnan(variances)], nets=40)
        nu = (rows[:, 4] / variances)[~np.isnan(variances)]
        assert nu[1:-1] / nu[-1] == pytest.approx([expected] * 8, rel=0.15)
