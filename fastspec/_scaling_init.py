"""Variances of initial weights, and the corrections that residual blocks ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import _checks
from ._scaling_ops import Conv2d, Op, pair

SCHEMES = ("geometric", "fan_in", "fan_out", "arithmetic")


class ResidualCorrections(NamedTuple):
    """What geometric initialisation is multiplied by in y = alpha S(x) + beta F(x).

    Attributes
    ----------
    main_variance, shortcut_variance : factors of E[W^2] in F and in S.
    main_multiplier, shortcut_multiplier : fixed multipliers of each layer's output in F and in S.
    """

    main_variance: float
    shortcut_variance: float
    main_multiplier: float
    shortcut_multiplier: float


def weight_variance(scheme: str, n_in: int, n_out: int, kernel: Any = 1, groups: int = 1,
                    c: float = 2.0) -> float:
    r"""Variance E[W^2] of the initial weights of a linear or convolutional layer.

    Parameters
    ----------
    scheme : {"geometric", "fan_in", "fan_out", "arithmetic"}
        With k^2 the places of the kernel and g the groups:
        geometric c sqrt(g) / (k sqrt(n_in n_out)), which keeps gamma constant wherever varsigma
        is; fan_in c g / (n_in k^2); fan_out c g / (n_out k^2); arithmetic
        2 c g / ((n_in + n_out) k^2).
    n_in, n_out : int
        Channels, >= 1.
    kernel : int or pair of int
        Size of the kernel; 1 for linear layers. k = sqrt(height * width).
    groups : int
        Must divide ``n_in`` and ``n_out``. Fans are counted within a group (frameworks count
        n_out k^2 for the fan-out of any groups).
    c : float
        Gain, > 0; 2 makes up for a ReLU in fan_in. Geometric wants one c for all layers.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the scheme is unknown or a number is out of range.

    Notes
    -----
    Defazio & Bottou 2019, geometric-mean initialisation. The kernel enters as k, not k^2: what is
    to be constant is gamma = g varsigma / (n_in n_out k^2 E[W^2]^2).

    Examples
    --------
    >>> import fastspec as fs
    >>> fs.scaling.weight_variance("geometric", 64, 256, kernel=3)
    0.005208333333333333
    """
    _checks.choice("scheme", scheme, SCHEMES)
    for name, value in (("n_in", n_in), ("n_out", n_out), ("groups", groups)):
        _checks.positive_integer(name, value)
    for name, value in (("n_in", n_in), ("n_out", n_out)):
        if value % groups:
            raise ValueError(f"groups must divide {name} = {value}, got {groups}")
    gain = _checks.real("c", c, low=0.0, strict=True)
    places = math.prod(pair("kernel", kernel))
    if scheme == "geometric":
        return gain * math.sqrt(groups / (places * n_in * n_out))
    fan = {"fan_in": n_in, "fan_out": n_out, "arithmetic": 0.5 * (n_in + n_out)}[scheme]
    return gain * groups / (fan * places)


def residual_corrections(alpha: float, beta: float) -> ResidualCorrections:
    r"""Corrections of geometric initialisation in a block y = alpha S(x) + beta F(x).

    Parameters
    ----------
    alpha, beta : float
        Weights of the shortcut S and of the main branch F, > 0. The corrections make gamma equal
        inside and outside the block if alpha^2 + beta^2 = 1, E[F^2] = E[S^2] = E[x^2].

    Returns
    -------
    ResidualCorrections
        The variance of every layer in F is multiplied by beta, of every layer in S by alpha. Its
        output is multiplied by the fixed number beta^-1/2 or alpha^-1/2, which restores E[F^2].

    Raises
    ------
    ValueError
        If alpha or beta is not positive.

    Notes
    -----
    Of the block's varsigma beta^2 flows through F, so gamma = beta^2 varsigma / a^2 there for
    weights of variance a c / (k sqrt(n_in n_out)): equal to varsigma for a = beta. Defazio & Bottou
    2019 print gamma = (beta^2 / c^2) varsigma_R, which counts beta twice (varsigma_R is beta^2
    varsigma already). Their "multiply the initialization by beta" is true of the variance; the
    weights themselves are multiplied by sqrt(beta).

    Examples
    --------
    >>> import fastspec as fs
    >>> fs.scaling.residual_corrections(0.75**0.5, 0.5).main_variance
    0.5
    """
    main = _checks.real("beta", beta, low=0.0, strict=True)
    shortcut = _checks.real("alpha", alpha, low=0.0, strict=True)
    return ResidualCorrections(main, shortcut, main**-0.5, shortcut**-0.5)


def telescoped_moment(
    n_in: int, n_out: int, kernels: Any = (), *, c: float | None = None,
    input_second_moment: float = 1.0, rectified_input: bool = False,
) -> float:
    r"""Output second moment of a plain ReLU network with geometric initialisation.

    Parameters
    ----------
    n_in, n_out : int
        Channels of the input and of the output; those in between cancel.
    kernels : sequence of int or pair
        Kernel sizes k_l of all layers, needed with ``c``.
    c : float, optional
        The c of geometric initialisation, > 0; by default c = 2 / k_l in each layer.
    input_second_moment : float
        E[x_0^2] > 0.
    rectified_input : bool
        Whether a ReLU halves the input too. If not, a factor of 2 is gained.

    Returns
    -------
    float
        E[x_L^2] = sqrt(n_in / n_out) prod(c k_l / 2) E[x_0^2], twice that for an input that is not
        halved.

    Raises
    ------
    ValueError
        If a number is out of range, or only one of ``kernels`` and ``c`` is given.

    Notes
    -----
    Defazio & Bottou 2019 print the product for layers that all begin with a ReLU, the first one
    too; raw inputs are not halved, hence the factor 2. Zero padding, which lowers the moment at the
    borders, and pooling are left out; `analyze` has them.

    Examples
    --------
    >>> import fastspec as fs
    >>> print(f"{fs.scaling.telescoped_moment(784, 10):.3f}")
    17.709
    """
    for name, value in (("n_in", n_in), ("n_out", n_out)):
        _checks.positive_integer(name, value)
    moment = _checks.real("input_second_moment", input_second_moment, low=0.0, strict=True)
    sizes = [math.sqrt(math.prod(pair(f"kernels[{i}]", k))) for i, k in enumerate(kernels)]
    if (c is None) != (not sizes):
        raise ValueError("kernels and c go together: give both, or none for c = 2 / k")
    gain = 1.0 if c is None else _checks.real("c", c, low=0.0, strict=True) / 2.0
    gains = math.prod(gain * k for k in sizes)
    return (1.0 if rectified_input else 2.0) * math.sqrt(n_in / n_out) * gains * moment


def variance_rule(init: Any, c: float) -> Callable[[str, Op], float]:
    """The variance of a layer by its name and operation, from a scheme or a mapping."""
    if isinstance(init, str):
        _checks.choice("init", init, SCHEMES)
        return lambda name, op: _by_scheme(init, op, c)
    if not isinstance(init, Mapping):
        raise ValueError(f"init must be one of {', '.join(SCHEMES)} or a mapping from names of "
                         f"operations to variances, got {init!r}")
    for name, value in init.items():
        _checks.real(f"init[{name!r}]", value, low=0.0, strict=True)

    def given(name: str, op: Op) -> float:
        if name not in init:
            raise ValueError(f"init has no variance for {name}" + _checks.suggestion(name, init))
        return float(init[name])

    return given


def _by_scheme(scheme: str, op: Any, c: float) -> float:
    if isinstance(op, Conv2d):
        return weight_variance(scheme, op.n_in, op.n_out, op.kernel, op.groups, c)
    return weight_variance(scheme, op.n_in, op.n_out, c=c)
