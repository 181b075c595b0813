"""Condition numbers and top singular values of real networks, outliers included."""

import math

import numpy as np
import pytest

import fastspec as fs
from fastspec._extremes import detached_outliers, has_known_outliers, outliers_or_reason
from fastspec.outliers import Outlier
from fastspec.simulate import jacobian_singular_values

# theta = sigma_w^2 / 2; squared outliers below and above, to the digits of the derivation's table,
# which Monte Carlo has met within 1 %; None: none there.
RELU = [
    (fs.ResNet(10, "relu", sigma_w=math.sqrt(0.25)), None, 3.0627),
    (fs.ResNet(20, "relu"), None, 25.4510),
    (fs.ResNet(50, "relu", sigma_w=math.sqrt(0.25)), 0.3553, 9.9488),
    (fs.FeedForward(2, "gelu", sigma_w=math.sqrt(2.0), input_second_moment=0.1), None, 4.8942),
]


def outlier(value, side, detached=True):
    return Outlier(
        value=value, singular_value=math.sqrt(value), side=side, overlap_input=0.5,
        overlap_ones_input=0.0, overlap_output=0.5, overlap_ones_output=0.0, detached=detached,
        margin=0.1, edge=1.0)


@pytest.mark.parametrize(("net", "below", "above"), RELU)
def test_the_top_is_the_outlier(net, below, above):
    assert net.top_singular_value() == pytest.approx(math.sqrt(above), rel=2e-5, abs=0)


@pytest.mark.parametrize(("net", "below", "above"), RELU)
def test_condition_number_with_and_without_outliers(net, below, above):
    (low, high), = net.spectrum().support()
    assert net.condition_number() == net.spectrum().condition_number()
    assert net.condition_number(0.9) == net.spectrum().condition_number(0.9)
    full = net.condition_number(include_outliers=True)
    bottom = low if below is None else below
    if bottom == 0.0:
        assert full == net.condition_number() == math.inf
    else:
        assert full == pytest.approx(math.sqrt(above / bottom), rel=2e-4, abs=0)
        assert full > 1.02 * net.condition_number()


@pytest.mark.parametrize("net", [
    fs.ResNet(6, "tanh", sigma_w=0.5), fs.ResNet(4, "linear"), fs.FeedForward(3, "relu"),
    fs.FeedForward(3, "linear", "orthogonal", sigma_w=1.3)])
def test_without_outliers_it_is_the_bulk(net):
    assert net.outliers() == ()
    law = net.spectrum()
    ends = [end for piece in law.support() for end in piece] + [x for x, _ in law.atoms]
    assert net.top_singular_value() == pytest.approx(math.sqrt(max(ends)), rel=1e-12, abs=0)
    assert net.condition_number(include_outliers=True) == net.condition_number()


def test_both_sides_count_and_only_detached_ones(monkeypatch):
    net = fs.ResNet(4, "tanh", sigma_w=0.5)
    (low, high), = net.spectrum().support()
    given = (outlier(4.0 * high, "above"), outlier(9.0 * high, "above", detached=False),
             outlier(low / 9.0, "below"))
    monkeypatch.setattr(fs.ResNet, "outliers", lambda self: given)
    assert detached_outliers(net) == (given[0], given[2])
    assert net.top_singular_value() == pytest.approx(2.0 * math.sqrt(high), rel=1e-12)
    assert net.condition_number(include_outliers=True) == pytest.approx(
        6.0 * net.condition_number(), rel=1e-12)


def test_measured_extremes():
    net = fs.ResNet(20, "relu")
    draws = np.array([jacobian_singular_values(net, 300, seed=seed) for seed in range(8)])
    tops = draws.max(axis=1)
    # one network deviates by .9/sqrt(N) or so; the bulk's end, 2.81, is far below
    assert tops.mean() == pytest.approx(net.top_singular_value(), rel=0.06)
    full = np.mean(tops / draws.min(axis=1))
    assert full == pytest.approx(net.condition_number(include_outliers=True), rel=0.08)


@pytest.mark.parametrize(("net", "known"), [
    (fs.ResNet(3, "relu"), True), (fs.FeedForward(3, "relu"), True),
    (fs.ResNet(3, "relu", batch_norm=True), False), (fs.ResNet(3, "relu", branch_layers=2), False),
    (fs.FeedForward(2, "relu", widths=(3, 2, 1)), False)])
def test_kinds_that_are_not_covered_raise(net, known):
    """What is said to be known is known, and the rest is an error and never a number."""
    assert has_known_outliers(net) is known
    outliers, why_not = outliers_or_reason(net)
    assert (outliers is not None) is known
    if known:
        assert why_not == ""
        return
    assert net.condition_number() == net.spectrum().condition_number()
    for ask in (net.top_singular_value, lambda: net.condition_number(include_outliers=True)):
        with pytest.raises(ValueError) as caught:
            ask()
        assert str(caught.value) == why_not


def test_reports_do_without_at_large_depth():
    for net in (fs.ResNet(999, "relu"), fs.FeedForward(9999, "relu")):
        outliers, why_not = outliers_or_reason(net)
        assert outliers is None and f"depth {net.depth}" in why_not


def test_reports_do_without_where_outliers_are_not_found(monkeypatch):
    def fails(net):
        raise fs.ConvergenceError("not found")

    monkeypatch.setattr(fs.ResNet, "outliers", fails)
    assert outliers_or_reason(fs.ResNet(3, "relu")) == (None, "not found")
    with pytest.raises(fs.ConvergenceError):
        fs.ResNet(3, "relu").top_singular_value()


@pytest.mark.parametrize(("options", "words"), [
    ({"include_outliers": 1}, "include_outliers must be True or False, got 1"),
    ({"include_outliers": True, "coverage": 0.9}, "coverage must be 1 .*got 0.9"),
    ({"include_outliers": True, "coverage": "all"}, "coverage must be.*'all'"),
    ({"coverage": 0.0}, "coverage must be in"),
    ({"coverage": math.nan}, "coverage must be in")])
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words) as caught:
        fs.ResNet(3, "relu").condition_number(**options)
    assert "\n" not in str(caught.value)
