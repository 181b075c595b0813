"""Slope laws of piecewise linear activations, both tails to full relative accuracy."""

import math

import mpmath as mp
import numpy as np
import pytest

from fastspec.activations import activation
from fastspec.quadrature import slope_moments, slope_variance
from fastspec.slopes import slope_law


def test_simple_laws():
    assert slope_law(activation("linear"), 3.0).values.tolist() == [1.0]
    assert slope_law(activation("linear"), 3.0).complements.tolist() == [0.0]
    relu = slope_law(activation("relu"), 3.0)
    assert relu.values.tolist() == [0.0, 1.0]
    assert relu.probabilities.tolist() == relu.complements.tolist() == [0.5, 0.5]
    assert activation("relu").slope_law(3.0).is_zero_one
    leaky = slope_law(activation("leaky_relu", slope=0.5), 1.0)
    assert leaky.values.tolist() == [0.25, 1.0]
    assert not leaky.is_zero_one
    absolute = slope_law(activation("leaky_relu", slope=-1.0), 1.0)
    assert absolute.values.tolist() == [1.0]
    assert absolute.relative_variance() == 0.0


@pytest.mark.parametrize("q", [1e-6, 5e-3, 0.02, 0.3, 1.0, 40.0, 1e4, 1e12])
@pytest.mark.parametrize("mean", [0.0, 0.4, -3.0, 30.0])
def test_hard_tanh_against_mpmath(q, mean):
    law = slope_law(activation("hard_tanh"), q, mean)
    with mp.workdps(40):
        s = mp.sqrt(q)
        inside = [(1 - mp.mpf(mean)) / s, (-1 - mp.mpf(mean)) / s]
        outside = mp.erfc(inside[0] / mp.sqrt(2)) / 2 + mp.erfc(-inside[1] / mp.sqrt(2)) / 2
        within = (mp.erfc(-inside[0] / mp.sqrt(2)) - mp.erfc(-inside[1] / mp.sqrt(2))) / 2
        if mean < -1:
            within = (mp.erfc(inside[1] / mp.sqrt(2)) - mp.erfc(inside[0] / mp.sqrt(2))) / 2
        # A relative error eps of x is x^2 eps in erfc(x): x^2 is at most 400 where 1 - p > 1e-170.
        steep = float(max(abs(x) for x in inside)) ** 2
    for got, truth in zip([*law.probabilities, *law.complements],
                          [outside, within, within, outside], strict=True):
        assert got == pytest.approx(float(truth), rel=1e-15 * (4 + min(steep, 1500)), abs=1e-300)


def test_zero_variance_is_the_limit_from_above():
    assert slope_law(activation("hard_tanh"), 0.0).probabilities.tolist() == [0.0, 1.0]
    assert slope_law(activation("hard_tanh"), 0.0, 2.0).probabilities.tolist() == [1.0, 0.0]
    assert slope_law(activation("hard_tanh"), 0.0, 1.0).probabilities.tolist() == [0.5, 0.5]
    assert slope_law(activation("relu"), 0.0).probabilities.tolist() == [0.5, 0.5]


def test_moments_of_the_law_are_those_of_the_quadrature():
    for name in ("linear", "relu", "leaky_relu", "hard_tanh"):
        made = activation(name)
        for q, mean in ((0.2, 0.0), (3.0, 0.7), (0.5, -1.2)):
            law = slope_law(made, q, mean)
            for k, moment in enumerate(slope_moments(made, q, 3, mean), start=1):
                assert law.probabilities @ law.values**k == pytest.approx(moment, rel=1e-13, abs=0)
            assert law.relative_variance() == pytest.approx(
                slope_variance(made, q, mean), rel=1e-12, abs=1e-28)


def test_relative_variance_of_rare_slopes():
    law = slope_law(activation("hard_tanh"), 0.02)
    rare = math.erfc(5.0) / math.erf(5.0)       # (1 - p) / p = 1.5e-12
    assert law.relative_variance() == pytest.approx(rare, rel=1e-13, abs=0)


@pytest.mark.parametrize(("name", "q", "mean", "word"), [
    ("tanh", 1.0, 0.0, "piecewise linear"), ("selu", 1.0, 0.0, "piecewise linear"),
    ("relu", -1.0, 0.0, "q"), ("relu", math.nan, 0.0, "q"), ("relu", 1.0, math.inf, "mean"),
    ("relu", np.ones(2), 0.0, "q"),
])
def test_bad_arguments(name, q, mean, word):
    with pytest.raises(ValueError, match=word):
        slope_law(activation(name), q, mean)
