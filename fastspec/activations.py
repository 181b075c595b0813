"""Activations phi with their derivatives, kinks and parameters.

An activation only describes; `fastspec.quadrature` takes its Gaussian expectations and
`fastspec.slopes` the law of phi'(h)^2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks

if TYPE_CHECKING:
    from .quadrature import Moments
    from .slopes import SlopeLaw

__all__ = ["ACTIVATIONS", "Activation", "activation"]

Function = Callable[[Any], Any]

# Where a user's phi' is held against differences of phi: irregular, so kinks are rarely met.
_PROBES = np.array([-7.313, -3.271, -1.613, -0.877, -0.391, -0.1237, 0.0613, 0.2911, 0.7193,
                    1.377, 2.719, 5.839])
_DIFFERENCE_STEP = 1e-6
_DIFFERENCE_TOLERANCE = 1e-3


class _Builtin(NamedTuple):
    """What is known of a built-in activation besides its formula in `_gauss_kernels`."""

    kinks: tuple[float, ...] = ()
    odd: bool = False
    # Name, default (None: must be given) and lower bound (excluded) of the one parameter, if any.
    parameter: tuple[str, float | None, float] | None = None
    # phi' on the pieces between the kinks, from the parameter, where phi is piecewise linear.
    slopes: Callable[[float], tuple[float, ...] | None] | None = None


_BUILTINS = {
    "linear": _Builtin(odd=True, slopes=lambda _: (1.0,)),
    "relu": _Builtin((0.0,), slopes=lambda _: (0.0, 1.0)),
    "leaky_relu": _Builtin((0.0,), parameter=("slope", 0.01, -np.inf), slopes=lambda a: (a, 1.0)),
    "hard_tanh": _Builtin((-1.0, 1.0), odd=True, slopes=lambda _: (0.0, 1.0, 0.0)),
    "tanh": _Builtin(odd=True),
    "arctan": _Builtin(odd=True),
    "erf": _Builtin(odd=True),
    "scaled_erf": _Builtin(odd=True),
    "sigmoid": _Builtin(),
    "softplus": _Builtin(),
    "silu": _Builtin(),
    "gelu": _Builtin(),
    "elu": _Builtin((0.0,), parameter=("alpha", 1.0, 0.0)),
    "selu": _Builtin((0.0,)),
    "mish": _Builtin(),
    "softsign": _Builtin((0.0,), odd=True),
    "sin": _Builtin(odd=True),
    "alpha_relu": _Builtin((0.0,), parameter=("alpha", None, 0.0),
                           slopes=lambda a: (0.0, 1.0) if a == 1.0 else None),
}

#: Names that `activation` knows.
ACTIVATIONS = tuple(_BUILTINS)


@dataclass(frozen=True)
class Activation:
    """An activation phi; made by `activation`.

    Immutable and hashable. The built-in ones can be pickled; those made from callables can be
    pickled if the callables can.

    Attributes
    ----------
    name : str
        Name of the built-in activation, or of the callable.
    kinks : tuple of float
        Points where phi or one of its derivatives jumps.
    odd : bool
        Whether phi(-h) = -phi(h) is known to hold; False for callables.
    functions : (callable, callable) or None
        phi and phi' as the user gave them; None for built-in activations.
    slopes : tuple of float or None
        phi' on the len(kinks) + 1 pieces between the kinks if phi is piecewise linear. For
        callables that is judged by samples of phi' on each piece.
    """

    name: str
    kinks: tuple[float, ...] = ()
    odd: bool = False
    _parameter: tuple[str, float] | None = None
    functions: tuple[Function, Function] | None = None
    slopes: tuple[float, ...] | None = None

    @property
    def params(self) -> dict[str, float]:
        """Parameters by name (a copy)."""
        return {} if self._parameter is None else {self._parameter[0]: self._parameter[1]}

    @property
    def is_builtin(self) -> bool:
        """Whether phi is one of `ACTIVATIONS` rather than a user's callable."""
        return self.functions is None

    @property
    def parameter(self) -> float:
        """The value of the only parameter; 0 where there is none."""
        return 0.0 if self._parameter is None else self._parameter[1]

    def __call__(self, h: ArrayLike) -> Any:
        """phi(h), in double precision, elementwise: an array like ``h``, a float for a number."""
        return self._evaluate(h, derivative=False)

    def derivative(self, h: ArrayLike) -> Any:
        """phi'(h) elementwise. At a kink it is the slope to the left (hard_tanh: 1 at +-1)."""
        return self._evaluate(h, derivative=True)

    def moments(self, q: ArrayLike, mean: ArrayLike = 0.0) -> Moments:
        """E phi, E phi^2, E phi'^2 and E phi'^4 for h ~ N(mean, q).

        See `fastspec.quadrature.moments`.

        Examples
        --------
        >>> from fastspec.activations import activation
        >>> activation("relu").moments(2.0).second_moment
        1.0
        """
        from . import quadrature

        return quadrature.moments(self, q, mean)

    def slope_law(self, q: float, mean: float = 0.0) -> SlopeLaw:
        """Law of phi'(h)^2 for h ~ N(mean, q) where phi is piecewise linear.

        See `fastspec.slopes.slope_law`.
        """
        from . import slopes

        return slopes.slope_law(self, q, mean)

    def __repr__(self) -> str:
        if self.functions is None:
            given = [f"{key}={value!r}" for key, value in self.params.items()]
            return f"activation({', '.join([repr(self.name), *given])})"
        derivative = _callable_name(self.functions[1])
        return f"activation({self.name}, derivative={derivative}, kinks={self.kinks})"

    def _evaluate(self, h: ArrayLike, derivative: bool) -> Any:
        h = np.asarray(h, dtype=float)
        flat = np.ascontiguousarray(h).reshape(-1)
        if self.functions is None:
            from . import _gauss_kernels

            out = np.empty(h.size)
            code = _gauss_kernels.code_of(self.name)
            _gauss_kernels.evaluate(code, self.parameter, derivative, flat, out)
        else:
            out = array_function(self.functions[derivative])(flat)
        return out.reshape(h.shape) if h.ndim else float(out[0])


def activation(
    phi: str | Function | Activation,
    derivative: Function | None = None,
    kinks: Sequence[float] = (),
    **params: float,
) -> Activation:
    """Make an activation from a name or from two callables.

    Parameters
    ----------
    phi : str, callable or Activation
        One of `ACTIVATIONS`: linear h; relu max(h, 0); leaky_relu; hard_tanh; tanh; arctan;
        erf = erf(h); scaled_erf = erf(sqrt(pi) h / 2); sigmoid; softplus log(1 + e^h); silu;
        gelu h Phi(h); elu; selu (Klambauer et al. 2017); mish; softsign h / (1 + abs(h)); sin;
        alpha_relu h^alpha for h > 0, else 0 (Yang & Schoenholz 2017). Or a function of one real
        number or of a NumPy array, plain, compiled by numba, or a ufunc; it must be elementwise,
        work in double precision, be finite on the real line and always return the same.
        An `Activation` is returned as it is.
    derivative : callable, optional
        phi', of the same kind as ``phi``. Required with a callable, not allowed with a name.
    kinks : sequence of float
        Points where a callable ``phi`` or one of its derivatives jumps. Expectations are
        accurate without them, but slower.
    **params : float
        ``slope`` of leaky_relu for h < 0 (any number, default 0.01), ``alpha`` > 0 of elu
        (default 1), ``alpha`` > 0 of alpha_relu (no default).

    Returns
    -------
    Activation

    Raises
    ------
    ValueError
        Unknown name or parameter, parameter out of range, missing derivative, a function that is
        not elementwise or not finite, or a derivative that is plainly not that of ``phi``.

    Examples
    --------
    >>> from fastspec.activations import activation
    >>> activation("leaky_relu", slope=0.05)(-2.0)
    -0.1
    >>> import numpy as np
    >>> cubic = activation(lambda h: h + h**3, derivative=lambda h: 1 + 3 * h**2)
    >>> cubic.derivative(np.array([0.0, 1.0]))
    array([1., 4.])
    """
    if callable(phi) and not isinstance(phi, Activation):
        if params:
            raise ValueError(f"{next(iter(params))} is not a parameter of a callable activation")
        return _from_callables(phi, derivative, kinks)
    if derivative is not None or len(tuple(kinks)):
        raise ValueError("derivative and kinks go with a callable; "
                         f"{phi!r} brings its own")
    if isinstance(phi, Activation):
        if params:
            raise ValueError(f"{next(iter(params))} cannot be changed: {phi!r} is already made")
        return phi
    name = _checks.choice("activation", phi, ACTIVATIONS)
    builtin = _BUILTINS[name]
    parameter = _parameter(name, builtin, params)
    slopes = builtin.slopes(parameter[1] if parameter else 0.0) if builtin.slopes else None
    return Activation(name, builtin.kinks, builtin.odd, parameter, slopes=slopes)


def _parameter(
    name: str, builtin: _Builtin, params: dict[str, float]
) -> tuple[str, float] | None:
    allowed = () if builtin.parameter is None else (builtin.parameter[0],)
    for key in params:
        if key not in allowed:
            raise ValueError(f"{key} is not a parameter of {name}; allowed: "
                             f"{', '.join(allowed) or 'none'}")
    if builtin.parameter is None:
        return None
    key, default, low = builtin.parameter
    value = params.get(key, default)
    if value is None:
        raise ValueError(f"{name} needs its parameter {key}, a finite number > {low:g}")
    return key, _checks.real(key, value, low=low, strict=True)


def _from_callables(
    phi: Function, derivative: Function | None, kinks: Sequence[float]
) -> Activation:
    name = _callable_name(phi)
    if derivative is None:
        raise ValueError(f"derivative is missing: give phi' of {name} as "
                         "activation(phi, derivative=...)")
    if not callable(derivative):
        raise ValueError(f"derivative must be a callable, got {derivative!r}")
    places = tuple(sorted({_checks.real("kinks", kink) for kink in kinks}))
    for what, function in (("activation", phi), ("derivative", derivative)):
        try:
            hash(function)
        except TypeError:
            raise ValueError(f"{what} must be hashable, got {function!r}") from None
    _check_derivative(phi, derivative, places)
    slopes = _constant_slopes(derivative, places)
    return Activation(name, places, False, None, (phi, derivative), slopes)


def _callable_name(function: Function) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_derivative(phi: Function, derivative: Function, kinks: Sequence[float]) -> None:
    """Reject a derivative that central differences of phi plainly contradict."""
    far = [h for h in _PROBES if all(abs(h - kink) > 1e-3 for kink in kinks)]
    h = np.array(far)
    step = _DIFFERENCE_STEP * np.maximum(1.0, np.abs(h))
    above, below = _probe(phi, h + step), _probe(phi, h - step)
    expected = (above - below) / (2.0 * step)
    given = _probe(derivative, h)
    noise = 1e-15 * (np.abs(above) + np.abs(below)) / step
    allowed = _DIFFERENCE_TOLERANCE * (np.abs(expected) + np.abs(given)) + 10.0 * noise + 1e-9
    wrong = np.abs(expected - given) > allowed
    if np.any(wrong):
        i = int(np.argmax(wrong))
        raise ValueError(f"derivative does not match {_callable_name(phi)}: at h = {h[i]:g} it is "
                         f"{given[i]:g}, but differences of phi give {expected[i]:g}")


def _constant_slopes(derivative: Function, kinks: Sequence[float]) -> tuple[float, ...] | None:
    """phi' on the pieces between the kinks if it takes one value on each, else None."""
    ends = [-np.inf, *kinks, np.inf]
    fractions = np.array([0.003, 0.11, 0.29, 0.47, 0.53, 0.71, 0.89, 0.997])
    slopes = []
    for low, high in zip(ends[:-1], ends[1:], strict=True):
        if np.isfinite(low) and np.isfinite(high):
            h = low + (high - low) * fractions
        else:
            away = fractions / (1.0 - fractions)
            h = low + away if np.isfinite(low) else high - away if np.isfinite(high) else _PROBES
        values = _probe(derivative, h)
        if np.any(values != values[0]):
            return None
        slopes.append(float(values[0]))
    return tuple(slopes)


def _probe(function: Function, h: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of a user's function at a few points, checked to be finite."""
    if takes_arrays(function):
        values = np.asarray(_quietly(function, h), dtype=float)
    else:
        values = np.array([_number(function, x) for x in h])
    if not np.all(np.isfinite(values)):
        at = h[~np.isfinite(values)][0]
        raise ValueError(f"{_callable_name(function)} must be finite on the real line, "
                         f"but is not at h = {at:.4g}")
    return values


def _number(function: Function, x: float) -> float:
    try:
        return float(_quietly(function, float(x)))
    except Exception as error:
        raise ValueError(f"{_callable_name(function)} must be a function of one real number or of "
                         f"a NumPy array; called with {x:.4g} it raised {error!r}") from error


def _quietly(function: Function, h: Any) -> Any:
    """function(h) on a copy, without NumPy's warnings: the caller checks what comes out."""
    with np.errstate(all="ignore"):
        return function(h.copy() if isinstance(h, np.ndarray) else h)


@lru_cache(maxsize=256)
def takes_arrays(function: Function) -> bool:
    """Whether a user's function maps an array to the array of its values."""
    try:
        values = np.asarray(_quietly(function, _PROBES))
    except Exception:
        return False    # a scalar function: `if h > 0`, math.tanh(h)
    if values.shape != _PROBES.shape:
        return False
    if values.dtype.kind not in "iuf" or values.dtype in (np.float16, np.float32):
        raise ValueError(f"{_callable_name(function)} must return double precision numbers, "
                         f"got {values.dtype}")
    for part in (slice(None, None, -1), slice(2, 5)):
        if not np.allclose(_quietly(function, _PROBES[part]), values[part], rtol=1e-10,
                           atol=1e-300, equal_nan=True):
            raise ValueError(f"{_callable_name(function)} must act on each element by itself")
    return True


@lru_cache(maxsize=256)
def array_function(function: Function) -> Function:
    """A user's function as a float64 function of one-dimensional float64 arrays."""
    if takes_arrays(function):
        return lambda h: np.asarray(_quietly(function, h), dtype=float)
    return _compiled(function) or np.vectorize(function, otypes=[float])


def _compiled(function: Function) -> Function | None:
    """A scalar function as a compiled loop, or None where numba cannot compile it rightly."""
    import numba

    try:
        scalar = function if hasattr(function, "py_func") else numba.njit(function)

        @numba.njit
        def loop(h: Any) -> Any:
            out = np.empty(h.size)
            for i in range(h.size):
                out[i] = scalar(h[i])
            return out

        agrees = np.allclose(loop(_PROBES), _probe(function, _PROBES), rtol=1e-13, atol=1e-300)
    except Exception:
        return None     # not in numba's language
    return loop if agrees else None
