"""Writes slope_transforms.json: M(zeta) = E d/(zeta - d), d = phi'(h)^2, h ~ N(mean, q), by mpmath.

Shares nothing with fastspec: phi' is written out here, and the integral runs along a polygon that
leaves the real axis near each root of phi'(h)^2 = zeta, on the side opposite to the one from which
the root comes as Im zeta falls to +0. Segments are halved until no root is nearer than their
length. Every number was found with two rules and must agree to CHECK.

    python tests/reference/slope_transforms.py        (some minutes)
"""

import json
from itertools import pairwise
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 40
FIGURES = 22
CHECK = mp.mpf(10) ** -24
REACH = 13
VARIANCES = ("1e-4", "0.01", "0.25", "1", "9", "100")
MEANS = ("0", "0.3", "-2")


SELU_SCALE = "1.0507009873554804934193349852946"
SELU_ALPHA = "1.6732632423543772848170429916717"


def logistic(c, h):
    return 1 / (1 + c.exp(-h))


def mish(c, h):
    u = (1 + c.exp(h)) ** 2
    t = (u - 1) / (u + 1)
    return t + h * (1 - t * t) * logistic(c, h)


def gelu(c, h):
    return c.erfc(-h / c.sqrt(2)) / 2 + h * c.exp(-h * h / 2) / c.sqrt(2 * c.pi)


# phi' on the whole line, or on its left and its right half; a number where it is constant. The
# context c is mpmath's mp, or fp (double precision) where roots are looked for.
SLOPES = {
    "tanh": (lambda c, h: 1 / c.cosh(h) ** 2,),
    "arctan": (lambda c, h: 1 / (1 + h * h),),
    "erf": (lambda c, h: 2 / c.sqrt(c.pi) * c.exp(-h * h),),
    "scaled_erf": (lambda c, h: c.exp(-c.pi * h * h / 4),),
    "sigmoid": (lambda c, h: 1 / (2 * c.cosh(h / 2)) ** 2,),
    "softplus": (logistic,),
    "silu": (lambda c, h: logistic(c, h) * (1 + h * logistic(c, -h)),),
    "gelu": (gelu,),
    "mish": (mish,),
    "sin": (lambda c, h: c.cos(h),),
    "elu": (lambda c, h: c.exp(h), 1),
    "selu": (lambda c, h: c.mpf(SELU_SCALE) * c.mpf(SELU_ALPHA) * c.exp(h), mp.mpf(SELU_SCALE)),
    "softsign": (lambda c, h: (1 - h) ** -2, lambda c, h: (1 + h) ** -2),
    "alpha_relu": (0, lambda c, h: 1.5 * c.sqrt(h)),
}
PARAMETERS = {"alpha_relu": {"alpha": 1.5}}


def rule(n):
    """Gauss-Legendre nodes and weights."""
    out = []
    for x in np.polynomial.legendre.leggauss(n)[0]:
        x = mp.mpf(x)
        for _ in range(3):
            p, before = x, mp.mpf(1)
            for k in range(2, n + 1):
                p, before = ((2 * k - 1) * x * p - (k - 1) * before) / k, p
            slope = n * (before - x * p) / (1 - x * x)
            x -= p / slope
        out.append((x, 2 / ((1 - x * x) * slope**2)))
    return out


RULES = [rule(36), rule(44)]


def derivative(c, slope, h, step):
    """d/dh slope(h)^2 by a central difference."""
    return (slope(c, h + step) ** 2 - slope(c, h - step) ** 2) / (2 * step)


def newton(c, slope, zeta, h, step, tolerance, limit):
    """A root of slope(h)^2 = zeta, or None."""
    for _ in range(limit):
        try:
            move = (slope(c, h) ** 2 - zeta) / derivative(c, slope, h, step)
        except (ZeroDivisionError, OverflowError):
            return None
        h -= move
        if not abs(h) < 1e4:
            return None
        if abs(move) < tolerance:
            return h
    return None


def roots_near(slope, zeta, low, high, scale):
    """Roots of slope(h)^2 = zeta near [low, high], by Newton's method from many starts."""
    a, b, unit = float(low), float(high), float(scale)
    starts = [complex(x, y * unit) for x in np.linspace(a, b, 130) for y in (0.0, 0.35, -0.35, 1.0)]
    starts += [complex(x, y) for x in np.arange(max(a, -14.0), min(b, 14.0), 0.5)
               for y in (0.1, 0.8, -0.8)]
    rough, found = [], []
    for start in starts:
        h = newton(mp.fp, slope, complex(zeta), start, 1e-6 * unit, 1e-7 * unit, 20)
        if (h is not None and a - 3 * unit < h.real < b + 3 * unit and abs(h.imag) < 3 * unit
                and all(abs(h - other) > 1e-7 * unit for other in rough)):
            rough.append(h)
    for h in list(rough):   # where phi' vanishes, roots come in close pairs
        near = derivative(mp.fp, slope, h, 1e-6 * unit)
        bend = (derivative(mp.fp, slope, h + 1e-4 * unit, 1e-6 * unit) - near) / (1e-4 * unit)
        if bend != 0:
            partner = newton(mp.fp, slope, complex(zeta), h - 2 * near / bend, 1e-6 * unit,
                             1e-7 * unit, 20)
            if partner is not None and all(abs(partner - o) > 1e-7 * unit for o in rough):
                rough.append(partner)
    for h in rough:
        h = newton(mp.mp, slope, zeta, mp.mpc(h), scale * mp.mpf(10) ** -18,
                   scale * mp.mpf(10) ** -30, 30)
        if h is not None and all(abs(h - other) > scale * mp.mpf(10) ** -14 for other in found):
            found.append(h)
    return found


def path(slope, low, high, roots, scale):
    """Corners of the polygon from low to high."""
    corners = []
    for root in roots:
        x = root.real
        near = [abs(root - other) for other in roots if other is not root]
        size = min([scale / 2, (x - low) / 2, (high - x) / 2] + [gap / 3 for gap in near])
        if low < x < high and abs(root.imag) < size / 3:
            rise = derivative(mp.mp, slope, root, scale * mp.mpf(10) ** -18).real
            corners += [x - size, x - mp.sign(rise) * 1j * size, x + size]
    return sorted([mp.mpc(low), *(mp.mpc(c) for c in corners), mp.mpc(high)],
                  key=lambda corner: corner.real)


def integrals(slope, zeta, mean, q, low, high):
    """int w d/(zeta-d), zeta int w/(zeta-d), -int w d/(zeta-d)^2 over [low, high]."""
    scale = mp.sqrt(q)
    roots = roots_near(slope, zeta, low, high, min(scale, 1))
    corners = path(slope, low, high, roots, min(scale, 1))
    results = []
    stack = list(pairwise(corners))
    segments = []
    while stack:
        a, b = stack.pop()
        middle, length = (a + b) / 2, abs(b - a)
        if length > min(scale, mp.mpf(1) / 2 + abs(middle) / 4) or any(
                abs(root - middle) < length for root in roots):
            stack += [(a, middle), (middle, b)]
        else:
            segments.append((a, b))
    for nodes in RULES:
        total = [mp.mpc(0)] * 3
        for a, b in segments:
            half, middle = (b - a) / 2, (a + b) / 2
            for x, weight in nodes:
                h = middle + half * x
                d = slope(mp.mp, h) ** 2
                w = half * weight * mp.exp(-((h - mean) ** 2) / (2 * q)) / mp.sqrt(2 * mp.pi * q)
                total[0] += w * d / (zeta - d)
                total[1] += w * zeta / (zeta - d)
                total[2] -= w * d / (zeta - d) ** 2
        results.append(total)
    return results


def transform(name, zeta, mean, q):
    """[M, E, dM/dzeta] at zeta + i0 and the larger relative disagreement of the rules."""
    pieces = SLOPES[name]
    low, high = mean - REACH * mp.sqrt(q), mean + REACH * mp.sqrt(q)
    ends = [low, high] if len(pieces) == 1 else [low, min(max(low, 0), high), high]
    values = [[mp.mpc(0)] * 3, [mp.mpc(0)] * 3]
    for slope, a, b in zip(pieces, ends[:-1], ends[1:], strict=True):
        if a == b:
            continue
        if callable(slope):
            parts = integrals(slope, zeta, mean, q, a, b)
        else:
            d = mp.mpf(slope) ** 2
            mass = (mp.ncdf((b - mean) / mp.sqrt(q)) if b < high else mp.mpf(1)) - (
                mp.ncdf((a - mean) / mp.sqrt(q)) if a > low else 0)
            excess = mass * zeta / (zeta - d) if d else mp.mpf(0)
            parts = [[mass * d / (zeta - d), excess, -mass * d / (zeta - d) ** 2]] * 2
        for total, part in zip(values, parts, strict=True):
            for i in range(3):
                total[i] += part[i]
    miss = max(abs(x - y) / abs(y) for x, y in zip(*values, strict=True))
    return values[1], miss


def arguments(name, mean, q):
    """(re, im) of zeta: in and near the support, near its top, small, negative, far."""
    def d(z):
        h = mp.mpf(mean) + z * mp.sqrt(mp.mpf(q))
        piece = SLOPES[name][-1 if h > 0 else 0]
        return float(piece(mp.mp, h) ** 2) if callable(piece) else float(piece) ** 2

    values = [d(z) for z in np.linspace(-6.0, 6.0, 97)]
    top = max(values)
    if name in ("tanh", "arctan", "scaled_erf", "sin", "softsign") and top > 0.999:
        top = 1.0
    middle, low = d(0.37), d(-1.23)
    points = [(middle, 0.0), (low, 0.0), (middle, 1e-12 * middle), (0.5 * (top + middle), 1e-3),
              (top * (1 + 1e-8), 0.0), (top * (1 - 1e-8), 0.0), (top * 1.03, 0.05 * top),
              (1e-3 * top, 0.0), (6e-10 * top, 8e-10 * top), (1e-12 * top, 0.0),
              (-0.3 * top, 0.02 * top)]
    singular = {float(piece) ** 2 for piece in SLOPES[name] if not callable(piece)} | {0.0}
    return [point for point in points if abs(complex(*point)) > 0.9e-12 * top
            and not (point[1] == 0.0 and point[0] in singular)]


def record(name, mean, q):
    points = []
    for re, im in arguments(name, mean, q):
        (m, e, dm), miss = transform(name, mp.mpc(re, im), mp.mpf(mean), mp.mpf(q))
        if miss > CHECK:
            print("dropped", name, mean, q, re, im, mp.nstr(miss, 3), flush=True)
            continue
        points.append([repr(re), repr(im)] + [
            mp.nstr(part, FIGURES) for value in (m, e, dm) for part in (value.real, value.imag)])
    return {"activation": name, "parameters": PARAMETERS.get(name, {}), "mean": mean, "q": q,
            "points": points}


def main():
    records = []
    for i, name in enumerate(SLOPES):
        for j, q in enumerate(VARIANCES):
            if name == "sin" and q == "100":    # hundreds of roots; the law is the arcsine law
                continue
            mean = MEANS[(i + j) % 3 if j < 5 else i % 2]
            if name == "alpha_relu" and q == "0.01":    # at -2 no slope is left
                mean = "0.3"
            records.append(record(name, mean, q))
        print(name, flush=True)
    head = {"columns": ["zeta_re", "zeta_im", "m_re", "m_im", "e_re", "e_im", "dm_re", "dm_im"]}
    lines = ",\n".join(json.dumps(record) for record in records)
    text = json.dumps(head)[:-1] + ',\n"laws": [\n' + lines + "\n]}\n"
    Path(__file__).with_name("slope_transforms.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
