"""Infimum and supremum of phi'^2 against what is known of phi'."""

import math

import numpy as np
import pytest

import fastspec as fs
from fastspec._slope_hull import hull
from fastspec._slope_rules import _slope_function


@pytest.mark.parametrize(
    ("slope", "low", "high"),
    [
        (lambda h: 1 + 0.5 / np.cosh(np.clip(h, -300, 300)) ** 2, 1.0, None),
        (lambda h: 1 - 0.5 / np.cosh(np.clip(h, -300, 300)) ** 2, None, 1.0),
        (lambda h: 1 + 0.3 * np.sin(h), 0.49, 1.69),            # no trend, however far
        (lambda h: h, 1.0, np.inf),                             # near = 1
        (lambda h: 1 / (1 + h * h), 0.0, 0.25),                 # a power to 0
        (np.exp, 0.0, np.inf),                                  # beyond the doubles
        (lambda h: h * np.exp(-0.5 * (h - 3) ** 2), 0.0, None),  # underflows
        (lambda h: np.sign(h) * 0.5, 0.25, 0.25),               # the mean is not looked at
        (lambda h: np.where(h > 0, 2.0, np.nan), 4.0, 4.0),     # not known on one side
        (lambda h: np.zeros(np.shape(h)), np.inf, 0.0),
        (lambda h: 2 + np.tanh(h - 40.0), 1.0, 9.0),
    ],
)
def test_known_slopes(slope, low, high):
    found = hull(slope, 1.0, 1.0, 0.0)
    if low is not None:
        assert found[0] == pytest.approx(low, rel=1e-12, abs=0)
    if high is not None:
        assert found[1] == pytest.approx(high, rel=1e-12, abs=0)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_an_extremum_far_out_is_found_to_rounding(scale):
    """phi' of gelu is largest at sqrt(2), wherever the panels end."""
    near = min(9.5 * scale, 1.0)
    low, high = hull(_slope_function(fs.activation("gelu")), near, scale, 0.0)
    top = 0.5 * math.erfc(-1.0) + math.sqrt(2.0) * math.exp(-1.0) / math.sqrt(2.0 * math.pi)
    assert low < 1e-300
    assert high == pytest.approx(top**2, rel=1e-14, abs=0)


def test_functions_that_fail_far_out():
    """math.cosh overflows beyond 710: those points are not known."""
    def slope(h):
        return np.array([1.0 + 0.5 / math.cosh(x) ** 2 for x in h])

    assert hull(slope, 1.0, 1.0, 0.0)[0] == 1.0


@pytest.mark.parametrize("sigma_w", [0.1, 0.18])
def test_a_bulk_away_from_zero_whose_slopes_reach_it(sigma_w):
    """One gelu block: below the bulk zeta > 0, and z(zeta) = r (1+m)/m with t(1+t) =
    (1+u)/(sigma^2 zeta), t < -1, has its end where zeta meets the largest slope. The density is
    rounding there, and the support was said to reach 0."""
    node, weight = np.polynomial.legendre.leggauss(2000)
    h, weight = 12.0 * node, 12.0 * weight * np.exp(-72.0 * node**2) / math.sqrt(2.0 * math.pi)
    phi = fs.activation("gelu")
    d = phi.derivative(sigma_w * h) ** 2
    largest = phi.derivative(math.sqrt(2.0)) ** 2
    zeta = largest * (1.0 + 1e-9)
    u = float(np.sum(weight * d / (zeta - d)))
    rhs = (1.0 + u) / (sigma_w**2 * zeta)
    t = -0.5 - math.sqrt(0.25 + rhs)
    z = (1.0 + u + t) ** 2 / (t * (1.0 + t))
    law = fs.ResNet(1, "gelu", sigma_w=sigma_w).spectrum()
    assert law.support()[0][0] == pytest.approx(z, rel=1e-8, abs=0)
    assert law.support()[0][0] < law.icdf(1e-12)
    assert law.condition_number() < 2.0
