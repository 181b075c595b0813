"""Activations: values against mpmath, parameters, errors, and users' callables."""

import importlib.util
import math
import pickle
import warnings
from functools import partial
from pathlib import Path

import mpmath as mp
import numba
import numpy as np
import pytest

from fastspec.activations import ACTIVATIONS, Activation, activation

_SPEC = importlib.util.spec_from_file_location(
    "gaussian_moments", Path(__file__).parent / "reference" / "gaussian_moments.py")
REFERENCE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(REFERENCE)

POINTS = [-700.0, -40.0, -7.5, -2.0, -0.9, -1e-3, -1e-12, 1e-12, 1e-3, 0.3, 0.99, 1.5, 6.0, 37.0,
          720.0]
ALPHA_RELU = [("alpha_relu", {"alpha": a}, partial(lambda a, h: mp.mpf(max(h, 0)) ** a, a),
               partial(lambda a, h: a * mp.mpf(h) ** (a - 1) if h > 0 else mp.mpf(0), a), (0,))
              for a in (0.8, 1.5)]
CASES = REFERENCE.FUNCTIONS + ALPHA_RELU


def make(name):
    return activation(name, **({"alpha": 0.8} if name == "alpha_relu" else {}))


def test_the_table_of_truth_covers_every_activation():
    assert {case[0] for case in CASES} == set(ACTIVATIONS)


@pytest.mark.parametrize(("name", "params", "phi", "slope", "kinks"), CASES,
                         ids=lambda value: value if isinstance(value, str) else "")
def test_values_and_derivatives_agree_with_mpmath(name, params, phi, slope, kinks):
    made = activation(name, **params)
    assert made.kinks == kinks
    for h in POINTS:
        for got, function in ((made(h), phi), (made.derivative(h), slope)):
            with mp.workdps(60):    # tails cancel: (1 + e^h)^2 - 1, 1 - tanh^2
                truth = float(function(mp.mpf(h)))
            # exp(-h^2 / 2) cannot be better than its argument's rounding, h^2 eps.
            assert got == pytest.approx(truth, rel=3e-16 * (8 + h * h), abs=1e-300), h


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_huge_arguments_neither_overflow_nor_warn(name):
    made = make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = made(np.array([-1e300, 1e300]))
        slopes = made.derivative(np.array([-1e300, 1e300]))
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(slopes))
    assert np.max(np.abs(slopes)) < 1.1     # selu's lambda is the steepest


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_stays_nan_and_shapes_are_kept(name):
    made = make(name)
    assert math.isnan(made(math.nan))
    grid = np.linspace(-2.0, 2.0, 6).reshape(2, 3).T
    assert made(grid).shape == made.derivative(grid).shape == (3, 2)
    assert made(grid)[1, 1] == made(float(grid[1, 1]))
    assert isinstance(made(0.5), float)
    assert made([]).shape == (0,)


@pytest.mark.parametrize("name", set(ACTIVATIONS) - {"linear"})
def test_nan_slope_stays_nan(name):
    assert math.isnan(make(name).derivative(math.nan))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_odd_flag(name):
    made = make(name)
    h = np.array([0.01, 0.4, 1.3, 5.0])
    assert made.odd == bool(np.all(made(-h) == -made(h)))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_pickle_hash_equality_and_repr(name):
    made = make(name)
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(make(name)) == hash(made)
    assert eval(repr(made), {"activation": activation}) == made
    assert activation(made) is made
    with pytest.raises(AttributeError):
        made.name = "other"


def test_parameters():
    assert activation("leaky_relu").params == {"slope": 0.01}
    assert activation("leaky_relu", slope=0.05).derivative(-3.0) == 0.05
    assert activation("elu", alpha=2).params == {"alpha": 2.0}
    assert activation("elu", alpha=2) != activation("elu")
    assert activation("tanh").params == {}


def test_piecewise_slopes():
    assert activation("linear").slopes == (1.0,)
    assert activation("leaky_relu", slope=-0.5).slopes == (-0.5, 1.0)
    assert activation("hard_tanh").slopes == (0.0, 1.0, 0.0)
    assert activation("alpha_relu", alpha=1).slopes == (0.0, 1.0)
    assert activation("tanh").slopes is None
    assert activation("selu").slopes is None


@pytest.mark.parametrize(("arguments", "keywords", "words"), [
    (["tanhh"], {}, ["'tanhh'", "did you mean 'tanh'"]),
    (["RELU"], {}, ["did you mean 'relu'"]),
    ([7], {}, ["activation must be one of", "7"]),
    (["elu"], {"beta": 1.0}, ["beta", "elu", "alpha"]),
    (["tanh"], {"slope": 1.0}, ["slope", "tanh", "none"]),
    (["elu"], {"alpha": 0.0}, ["alpha", "> 0", "0.0"]),
    (["elu"], {"alpha": True}, ["alpha", "True"]),
    (["leaky_relu"], {"slope": math.nan}, ["slope", "nan"]),
    (["leaky_relu"], {"slope": "x"}, ["slope", "'x'"]),
    (["alpha_relu"], {}, ["alpha_relu", "alpha"]),
    (["tanh"], {"derivative": np.cos}, ["derivative"]),
    (["tanh"], {"kinks": [0.0]}, ["kinks"]),
    ([np.sin], {}, ["derivative is missing"]),
    ([np.sin], {"derivative": 3}, ["derivative", "3"]),
    ([np.sin], {"derivative": np.cos, "slope": 1.0}, ["slope"]),
    ([np.sin], {"derivative": np.cos, "kinks": [math.inf]}, ["kinks", "inf"]),
    ([np.sin], {"derivative": np.sin}, ["derivative does not match sin"]),
    ([np.sin], {"derivative": lambda h: -np.cos(h)}, ["derivative does not match"]),
    ([np.sin], {"derivative": lambda h: np.where(h > 4.0, 0.0, np.cos(h))}, ["at h = 5.839"]),
    ([np.log], {"derivative": lambda h: 1 / h}, ["finite on the real line"]),
    ([lambda h: h / np.max(np.abs(h))], {"derivative": np.cos}, ["each element by itself"]),
    ([lambda h: h.astype(np.float32)], {"derivative": np.cos}, ["double precision", "float32"]),
    ([lambda h: h * 1j], {"derivative": np.cos}, ["double precision", "complex"]),
    ([lambda a, b: a], {"derivative": np.cos}, ["a function of one real number"]),
])
def test_bad_arguments_are_named(arguments, keywords, words):
    with pytest.raises(ValueError) as caught:
        activation(*arguments, **keywords)
    for word in words:
        assert word in str(caught.value)


class Unhashable:
    __hash__ = None

    def __call__(self, h):
        return h


def test_unhashable_callables_are_refused():
    with pytest.raises(ValueError, match="hashable"):
        activation(Unhashable(), derivative=lambda h: 1.0)


def scalar_bend(h):
    return math.atan(h) if h > 0 else 0.5 * h


def scalar_bend_slope(h):
    return 1.0 / (1.0 + h * h) if h > 0 else 0.5


def uncompilable(h):
    return float(str(scalar_bend(h)))


def array_bend(h):
    return np.where(h > 0, np.arctan(h), 0.5 * h)


def array_bend_slope(h):
    return np.where(h > 0, 1.0 / (1.0 + h * h), 0.5)


BENDS = {
    "array": (array_bend, array_bend_slope),
    "scalar": (scalar_bend, scalar_bend_slope),
    "numba": (numba.njit(scalar_bend), numba.njit(scalar_bend_slope)),
    "vectorize": (numba.vectorize(scalar_bend), numba.vectorize(scalar_bend_slope)),
    "uncompilable": (uncompilable, scalar_bend_slope),
}


@pytest.mark.parametrize("kind", BENDS)
def test_every_kind_of_callable_gives_the_same_values(kind):
    phi, slope = BENDS[kind]
    made = activation(phi, derivative=slope, kinks=[0.0])
    h = np.linspace(-3.0, 3.0, 12).reshape(3, 4)
    assert np.allclose(made(h), array_bend(h), rtol=1e-15)
    assert np.allclose(made.derivative(h), array_bend_slope(h), rtol=1e-15)
    assert made(2.0) == pytest.approx(math.atan(2.0), rel=1e-15, abs=0)
    assert made.kinks == (0.0,)
    assert made.slopes is None
    assert made == activation(phi, derivative=slope, kinks=[0.0])


def test_callables_made_of_module_functions_can_be_pickled():
    made = activation(array_bend, derivative=array_bend_slope, kinks=[0.0])
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_callable_that_writes_into_its_argument_does_no_harm():
    def square(h):
        h = np.asarray(h)
        h *= h
        return h

    made = activation(square, derivative=lambda h: 2 * h)
    h = np.array([1.0, 3.0])
    assert list(made(h)) == [1.0, 9.0]
    assert list(h) == [1.0, 3.0]


def test_piecewise_linear_callables_are_recognised():
    clip = activation(lambda h: np.clip(h, -1, 1), derivative=lambda h: 1.0 * (np.abs(h) < 1),
                      kinks=[1.0, -1.0])
    assert clip.kinks == (-1.0, 1.0)
    assert clip.slopes == (0.0, 1.0, 0.0)
    assert activation(lambda h: 2 * h, derivative=lambda h: 2.0).slopes == (2.0,)
    undeclared = activation(lambda h: np.clip(h, -1, 1),
                            derivative=lambda h: 1.0 * (np.abs(h) < 1))
    assert undeclared.slopes is None


def test_steep_but_right_derivatives_are_accepted():
    steep = activation(lambda h: np.tanh(200 * h), derivative=lambda h: 200 / np.cosh(
        np.clip(200 * h, -300, 300)) ** 2)
    assert isinstance(steep, Activation)
