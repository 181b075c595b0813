"""Recommended initialisations: by which rule, for which activation and architecture."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from . import _checks, quadrature, signal
from ._extremes import full_condition_number, log_ends, outliers_or_reason
from ._heatmap import FORMATS
from ._inverse import relative_variance, solve
from ._limits import slope_variances
from ._root_search import Trials, first_root
from .activations import Activation
from .activations import activation as make_activation
from .blocks import ENSEMBLES
from .errors import ConvergenceError
from .meanfield import (
    ResidualMeanField,
    largest_sigma_for_limit,
    sigma_for_log_chi_ratio,
)
from .networks import FeedForward, ResNet

__all__ = ["Recommendation", "recommend"]

_TARGETS = {
    "resnet": ("c", "condition_number", "variance", "top_singular_value"),
    "feedforward": ("variance",),
    "mean_field": ("log_chi_ratio", "dtype"),
}
_DEFAULT_C = 0.125                      # of the experiments of Tarnowski et al. 2018
_DEFAULT_VARIANCE = 2.0 * _DEFAULT_C    # the same law, dilated
_DEFAULT_LOG_CHI_RATIO, _DEFAULT_DTYPE = math.log(10.0), "float16"
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_HEADROOM = 8.0                         # standard deviations that must fit below the largest number
_SATURATED, _HALF = 0.02, 0.4           # tolerance of growth exponents; fall of E phi'^2
_FAR_OUT = np.array([1e4, 1e8])         # variances between which they are measured
_CENTRED = 1e-9                         # E x over the root mean square of x that counts as 0
_SPAN = math.log(1e12)                  # of q


@dataclass(frozen=True, eq=False)
class Recommendation:
    """An initialisation, what it leads to, and why; made by `recommend`. ``print`` it.

    Attributes
    ----------
    activation : Activation
    depth : int
    architecture : {"resnet", "feedforward", "mean_field"}
    weights : {"gaussian", "orthogonal"}
    sigma_w, sigma_b : float
        In the convention of ``network``; ``scale`` is free of conventions.
    scale : float
        sqrt(fan_in Var W_ij): the standard deviation of an entry is scale / sqrt(fan_in), and an
        orthogonal matrix is multiplied by it.
    network : ResNet, FeedForward or ResidualMeanField
        Ready to be asked.
    predicted : dict of str to float
        Figures of this network. ``condition_number`` is that of the bulk. The singular values are
        the extreme ones of a real network; where outliers are among them there is
        ``condition_number_with_outliers`` too.
    reason : str
        One sentence with its source.
    notes : tuple of str
        What to beware of.
    """

    activation: Activation
    depth: int
    architecture: str
    weights: str
    sigma_w: float
    sigma_b: float
    scale: float
    network: FeedForward | ResNet | ResidualMeanField
    predicted: dict[str, float]
    reason: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.5g}" for name, value in self.predicted.items())
        lines = [f"{self.activation!r}, {self.architecture}, depth {self.depth}",
                 f"  weights    {self._weights()}",
                 f"  biases     {f'normal, std {self.sigma_b:.6g}' if self.sigma_b else '0'}",
                 f"  predicted  {figures}", f"  reason     {self.reason}"]
        return "\n".join(lines + [f"  note       {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the network, in plain types."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)
                 if field.name != "network"}
        return {**shown, "activation": repr(self.activation), "predicted": dict(self.predicted),
                "notes": list(self.notes)}

    def _weights(self) -> str:
        fan = f"{self.depth} * fan_in" if self.architecture == "resnet" else "fan_in"
        entry = f"{self.sigma_w:.6g} / sqrt({fan}) = {self.scale:.6g} / sqrt(fan_in)"
        if self.architecture != "resnet":
            entry = f"{self.scale:.6g} / sqrt({fan})"
        if self.weights == "orthogonal":
            return f"orthogonal, gain {self.scale:.6g} (entries: std {entry})"
        return f"normal, std {entry}"


def recommend(
    activation: Any, depth: int, architecture: str = "resnet", *, weights: str | None = None,
    block: str | None = None, c: float | None = None, condition_number: float | None = None,
    variance: float | None = None, top_singular_value: float | None = None,
    log_chi_ratio: float | None = None, dtype: str | None = None,
) -> Recommendation:
    r"""An initialisation for a network of this activation and depth, with reasons.

    Parameters
    ----------
    activation : str or Activation
        A name without parameters, or what `fastspec.activation` returns.
    depth : int
        Number of layers or blocks, >= 1.
    architecture : {"resnet", "feedforward", "mean_field"}
        "resnet": x + phi(W x), Var W_ij = sigma_w^2 / (depth fan_in), a `fastspec.ResNet`.
        "feedforward": phi(W x + b), a `fastspec.FeedForward`. "mean_field": blocks whose weights
        do not shrink with depth, a `fastspec.meanfield.ResidualMeanField`.
    weights : {"gaussian", "orthogonal"}, optional
        By default orthogonal for "feedforward", else gaussian; mean-field blocks are gaussian.
    block : {"reduced", "full"}, optional
        Of mean-field networks: x + phi(W x), or x + V phi(W x) with sigma_v = 1. Default "reduced".
    c, condition_number, variance, top_singular_value : float, optional
        At most one target for "resnet", as in `sigma_w_for`; default c = 0.125.
        "feedforward" takes ``variance`` only, sigma^2_{JJT} > 0; default 0.25, which has the
        spectrum of c = 0.125 up to a factor.
    log_chi_ratio : float, optional
        Of mean-field networks whose phi saturates: ln(chi_0/chi_L) > 0, how much larger the
        gradient's second moment is at the input than at the output. Which value is best is not
        known; the default, ln 10, is a choice.
    dtype : {"float16", "bfloat16", "float32"}, optional
        Of mean-field networks whose phi grows: the root mean squares of activations, gradients
        and weight gradients (for inputs and output gradients of size 1) stay below 1/8 of the
        largest number. Default "float16", also a choice: few activations are
        of use at 1e37.

    Returns
    -------
    Recommendation

    Raises
    ------
    ValueError
        If an argument is out of range or does not go with the architecture, no sigma_w reaches the
        target, there is no critical point (sigmoid, softplus at small q), or a mean-field network
        neither saturates nor grows (sin) and no target is given.

    Notes
    -----
    * "resnet": networks of equal c have one spectrum and learn alike (Tarnowski et al. 2018).
    * "feedforward": dynamical isometry needs orthogonal weights on the critical line, at the q*
      with depth (mu_2/mu_1^2 - 1) = sigma^2_{JJT} (Pennington, Schoenholz & Ganguli 2018; tanh:
      q* = sigma_JJT / sqrt(8 depth) for small q*). Activations with a kink at 0 (relu) cannot have
      it; they get the critical point at q* = 1.
    * "mean_field": the quality of tanh follows chi_0/chi_L, that of (alpha-)relu s_L, the larger
      the better until numbers overflow (Yang & Schoenholz 2017). Which rule applies is measured:
      phi saturates if E phi^2 stays bounded and E phi'^2 falls off at large q; it grows if E phi^2
      is a power between q^(1/2) and q, and E phi'^2 q^-1 times that.

    Examples
    --------
    >>> from fastspec.initialize import recommend
    >>> found = recommend("gelu", 100, condition_number=4.0)
    >>> round(found.sigma_w, 4), round(found.scale, 5)      # std of an entry: scale / sqrt(fan_in)
    (0.9493, 0.09493)
    >>> round(found.predicted["top_singular_value"], 4)     # an outlier: the bulk ends at 1.9963
    2.1214
    """
    phi, depth = make_activation(activation), _checks.positive_integer("depth", depth)
    _checks.choice("architecture", architecture, tuple(_TARGETS))
    target = _target(architecture, c=c, condition_number=condition_number, variance=variance,
                     top_singular_value=top_singular_value, log_chi_ratio=log_chi_ratio,
                     dtype=dtype)
    if weights is not None:
        _checks.choice("weights", weights, ENSEMBLES)
    if architecture == "mean_field":
        if weights == "orthogonal":
            raise ValueError("weights must be 'gaussian' for mean-field blocks, got 'orthogonal'")
        return _mean_field(phi, depth, block or "reduced", target)
    if block is not None:
        raise ValueError(f"block goes with architecture='mean_field', got block={block!r} with "
                         f"{architecture!r}")
    if architecture == "resnet":
        return _residual(phi, depth, weights or "gaussian", target)
    return _feed_forward(phi, depth, weights or "orthogonal", target)


def _target(architecture: str, **targets: Any) -> tuple[str, Any] | None:
    """The one target that was given, checked, or None."""
    given = {name: value for name, value in targets.items() if value is not None}
    allowed = _TARGETS[architecture]
    for name in given:
        if name not in allowed:
            raise ValueError(f"{name} does not go with architecture={architecture!r}; targets "
                             f"there: {', '.join(allowed)}")
    if len(given) > 1:
        raise ValueError(f"give one target at most, got {', '.join(given)}")
    if not given:
        return None
    (name, value), = given.items()
    if name == "dtype":
        return name, _checks.choice("dtype", value, tuple(_DTYPES))
    low = 1.0 if name == "condition_number" else 0.0
    return name, _checks.real(name, value, low=low, strict=True)


# --- residual networks whose weights shrink with depth --------------------------------------------

def _residual(
    phi: Activation, depth: int, weights: str, target: tuple[str, float] | None
) -> Recommendation:
    name, value = target or ("c", _DEFAULT_C)
    sigma_w = solve(ResNet(depth, phi, weights), name, value)
    net = ResNet(depth, phi, weights, sigma_w=sigma_w)
    chosen = "the value of the experiments" if target is None else "by the law of this depth"
    reason = (f"the smallest sigma_w with {name} = {value:g}, {chosen}: residual networks of equal "
              "effective cumulant c have one spectrum and learn alike, whatever the activation "
              "(Tarnowski et al. 2018)")
    figures, notes = _spectral(net, at_any_depth=name == "top_singular_value")
    predicted = {"c": net.effective_cumulant(), **figures,
                 "log_chi_ratio": math.fsum(np.log1p(net.propagate().kappa))}
    return Recommendation(phi, depth, "resnet", weights, sigma_w, 0.0,
                          math.sqrt(net.weight_variance), net, predicted, reason, notes)


def _spectral(
    net: FeedForward | ResNet, at_any_depth: bool = False
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures of the spectrum at this depth, outliers included, and notes on what to know of them.

    ``at_any_depth``: also where outliers take long.
    """
    figures = {"variance": relative_variance(net)}
    try:
        law = net.spectrum()
    except ConvergenceError as error:
        return figures, (f"the law at this depth could not be solved ({error}): its ends are not "
                         "known",)
    outliers, why_not = outliers_or_reason(net, at_any_depth)
    low, high = log_ends(law, outliers or ())
    with np.errstate(over="ignore"):
        figures |= {"condition_number": law.condition_number(),
                    "bottom_singular_value": float(np.exp(0.5 * low)),
                    "top_singular_value": float(np.exp(0.5 * high))}
    if math.isinf(figures["condition_number"]):
        figures["condition_number_of_central_98_percent"] = law.condition_number(0.98)
    if outliers is None and not _is_centred(net):
        return figures, (f"E phi is not 0: a real network can have single {_OUTSIDE}, not counted "
                         f"here ({why_not})",)
    if not outliers:
        return figures, ()
    figures["condition_number_with_outliers"] = full_condition_number(law, outliers)
    places = ", ".join(f"{outlier.singular_value:.5g}" for outlier in outliers)
    return figures, (f"a real network has single {_OUTSIDE}: {places} (network.outliers())",)


_OUTSIDE = "singular values outside the bulk that condition_number is of"


def _is_centred(net: FeedForward | ResNet) -> bool:
    """Whether E x of the output is 0, as with odd activations, where no outliers are known."""
    path = net.propagate()
    return bool(abs(path.mean[-1]) <= _CENTRED * math.sqrt(path.second_moment[-1]))


# --- feed-forward networks ------------------------------------------------------------------------

def _feed_forward(
    phi: Activation, depth: int, weights: str, target: tuple[str, float] | None
) -> Recommendation:
    value = _DEFAULT_VARIANCE if target is None else target[1]
    own = float(depth) if weights == "gaussian" else 0.0        # -s_1 depth
    least = depth * float(slope_variances(phi, np.zeros(1))[0])
    asked = value - own if target is not None else value
    if asked > least:
        q_star, reason = _isometric(phi, depth, asked), _ISOMETRY
    elif target is None:
        q_star, reason = 1.0, _NO_ISOMETRY
    else:
        raise ValueError(f"variance = {value:g} cannot be reached: with {weights} weights and "
                         f"{phi!r} it is more than {own + least:g} at any sigma_w")
    try:
        point = signal.critical_point(phi, q=q_star)
    except ValueError as error:
        raise ValueError(f"{error}; a residual network has an isometric initialisation for every "
                         "activation: architecture='resnet'") from error
    net = FeedForward(depth, phi, weights, sigma_w=point.sigma_w, sigma_b=point.sigma_b,
                      input_second_moment=(q_star - point.sigma_b_squared) / point.sigma_w**2,
                      q="fixed_point")
    figures, notes = _spectral(net)
    predicted = {"q": q_star, "input_second_moment": net.input_second_moment, **figures}
    notes += _feed_forward_notes(point, depth, weights, net.input_second_moment)
    return Recommendation(
        phi, depth, "feedforward", weights, point.sigma_w, point.sigma_b, point.sigma_w, net,
        predicted, reason.format(q=q_star, variance=predicted["variance"], phi=phi), notes)


_ISOMETRY = ("critical (chi = 1) at the q* = {q:.6g} at which the squared singular values have the "
             "variance {variance:.6g} (Pennington, Schoenholz & Ganguli 2018)")
_NO_ISOMETRY = ("critical (chi = 1) at q* = {q:.6g}, which keeps the mean squared singular value "
                "at 1; their variance is {variance:.6g}, and no sigma_w brings isometry, because "
                "the slopes of {phi!r} do not become equal at small q (Pennington, Schoenholz & "
                "Ganguli 2018)")


def _isometric(phi: Activation, depth: int, variance: float) -> float:
    """The smallest q with depth (mu_2/mu_1^2 - 1) = variance; 1 if the slopes do not vary."""
    def level(q: float) -> float:
        spread = float(slope_variances(phi, np.array([q]))[0])
        return math.log(depth * spread) if spread > 0.0 else -math.inf

    if phi.slopes is not None and len(set(map(abs, phi.slopes))) == 1:
        return 1.0
    trials, start = Trials(level, math.log(variance)), 0.0
    while trials(start) > -2.0 and start > -_SPAN:
        start -= 1.0
    root = first_root(trials, start, _SPAN)
    if root is None:
        nearest = trials.nearest()
        most = math.exp(nearest[1]) if nearest else 0.0
        raise ValueError(f"no q gives slopes the variance {variance:g} in {depth} layers: the "
                         f"nearest for {phi!r} is {most:.6g}")
    return math.exp(root)


def _feed_forward_notes(
    point: signal.CriticalPoint, depth: int, weights: str, input_second_moment: float
) -> tuple[str, ...]:
    notes = []
    if weights == "gaussian":
        notes.append(f"Gaussian weights add the depth, {depth}, to the variance whatever sigma_w "
                     "is: isometry needs orthogonal ones")
    if not point.marginal:
        change = "shrinks" if point.stable else "grows"
        notes.append(
            f"inputs of second moment {input_second_moment:.6g} are at q* in every layer; a small "
            f"deviation {change} by dQ/dq = {point.slope:.6g} per layer, to "
            f"{abs(point.slope) ** depth:.3g} times itself in {depth} layers")
    if not point.stable and not point.marginal:
        notes.append("q* is an unstable fixed point: other inputs leave the critical state, and "
                     "what is predicted holds for these inputs only")
    return tuple(notes)


# --- residual networks whose weights do not shrink with depth -------------------------------------

def _mean_field(
    phi: Activation, depth: int, block: str, target: tuple[str, Any] | None
) -> Recommendation:
    _checks.choice("block", block, ("reduced", "full"))
    kind, powers = _kind(phi)
    name, value = target or _rule(phi, kind, powers)
    if name == "log_chi_ratio":
        sigma_w = sigma_for_log_chi_ratio(phi, block, depth, value)
        reason = (f"ln(chi_0/chi_L) = {value:.4g}{_CHOICE if target is None else ''}: the quality "
                  "of tanh-like residual networks follows how much gradients explode, "
                  "chi_0/chi_L (Yang & Schoenholz 2017)")
    else:
        limit = math.exp(FORMATS[_DTYPES[value]][0]) / _HEADROOM
        sigma_w = largest_sigma_for_limit(phi, block, depth, limit)
        reason = (f"the largest s_L at which activations and gradients stay below {limit:.4g} in "
                  f"root mean square, 1/{_HEADROOM:g} of the largest {value}: the quality of "
                  "ReLU-like residual networks follows the metric expressivity s_L (Yang & "
                  "Schoenholz 2017)")
    net = ResidualMeanField(phi, block, sigma_w=sigma_w)
    run = net.run(depth)
    predicted = {"log_chi_ratio": run.log_chi_ratio, "log_s": float(run.log_s[-1]),
                 "log_rms_activation": 0.5 * float(run.log_p[-1]),
                 "log_rms_weight_gradient": 0.5 * float(np.max(run.log_chi_w[1:]))}
    notes = () if _RULES.get(kind) == name else (
        f"the target was asked for: {phi!r} {_behaviour(powers)}, so it is not known to be what "
        "quality follows",)
    return Recommendation(phi, depth, "mean_field", "gaussian", sigma_w, 0.0, sigma_w, net,
                          predicted, reason, notes)


_CHOICE = " (a choice: the best value is not known)"
_RULES = {"saturates": "log_chi_ratio", "grows": "dtype"}


def _rule(phi: Activation, kind: str, powers: tuple[float, float]) -> tuple[str, Any]:
    """The target by default."""
    if kind == "neither":
        raise ValueError(f"{phi!r} neither saturates (E phi^2 ~ 1, E phi'^2 ~ q^-0.5) nor grows "
                         f"like a ReLU (q^a, q^(a-1), 1/2 < a <= 1): it {_behaviour(powers)}; "
                         "choose by log_chi_ratio= or dtype=")
    defaults = {"log_chi_ratio": _DEFAULT_LOG_CHI_RATIO, "dtype": _DEFAULT_DTYPE}
    return _RULES[kind], defaults[_RULES[kind]]


def _behaviour(powers: tuple[float, float]) -> str:
    return f"has E phi^2 ~ q^{powers[0]:.2g}, E phi'^2 ~ q^{powers[1]:.2g} at large q"


def _kind(phi: Activation) -> tuple[str, tuple[float, float]]:
    """Whether phi saturates, grows like a (alpha-)ReLU, or neither; its powers of q at large q."""
    moments = quadrature.moment_rows(phi, _FAR_OUT, np.zeros(2), 1)[1:]
    if not np.all((moments > 0.0) & np.isfinite(moments)):
        raise ValueError(f"{phi!r} has no mean-field recommendation: E phi^2 and E phi'^2 must be "
                         f"positive and finite, at q = {_FAR_OUT[1]:g} they are "
                         f"{moments[0, 1]:.4g} and {moments[1, 1]:.4g}")
    second, slope = (np.log(moments[:, 1] / moments[:, 0])
                     / math.log(_FAR_OUT[1] / _FAR_OUT[0])).tolist()
    kind = "neither"
    if abs(second) < _SATURATED and slope < -_HALF:
        kind = "saturates"
    elif 0.5 < second < 1.0 + _SATURATED and abs(slope - (second - 1.0)) < _SATURATED:
        kind = "grows"
    return kind, (second, slope)
