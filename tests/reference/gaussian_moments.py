"""Generator of gaussian_moments.json: E phi, E phi^2, E phi'^2, E phi'^4 for h ~ N(mean, q).

Composite 40-point Gauss-Legendre in 40-digit mpmath on a fine grid of panels; every entry is
recomputed with 56 points and the two must agree to 1e-25 of E|f|. The functions are textbook
formulae, independent of the package. Run: python tests/reference/gaussian_moments.py
"""

import json
from pathlib import Path

import mpmath as mp

mp.mp.dps = 40
Q = ["1e-6", "1e-3", "0.1", "1", "10", "100", "1e4"]
WITH_MEAN = [("0.7", "0.01"), ("-2", "1"), ("0.7", "25"), ("-2", "0.25"), ("3", "1e-6")]
TARGET = Path(__file__).with_name("gaussian_moments.json")
SELU_L = mp.mpf("1.0507009873554804934193349852946")
SELU_A = mp.mpf("1.6732632423543772848170429916717")


def logistic(h):
    return 1 / (1 + mp.exp(-h))


def normal_cdf(h):
    return mp.erfc(-h / mp.sqrt(2)) / 2


def mish_slope(h):
    softplus = mp.log1p(mp.exp(h))
    return mp.tanh(softplus) + h * mp.sech(softplus) ** 2 * logistic(h)


def silu_slope(h):
    return logistic(h) + h * logistic(h) * logistic(-h)


# name, parameters, phi, phi', kinks
FUNCTIONS = [
    ("linear", {}, lambda h: h, lambda h: mp.mpf(1), ()),
    ("relu", {}, lambda h: max(h, 0), lambda h: mp.mpf(h > 0), (0,)),
    ("leaky_relu", {"slope": 0.05}, lambda h: h if h > 0 else mp.mpf(0.05) * h,
     lambda h: mp.mpf(1) if h > 0 else mp.mpf(0.05), (0,)),
    ("hard_tanh", {}, lambda h: min(max(h, -1), 1), lambda h: mp.mpf(abs(h) < 1), (-1, 1)),
    ("tanh", {}, mp.tanh, lambda h: mp.sech(h) ** 2, ()),
    ("arctan", {}, mp.atan, lambda h: 1 / (1 + h * h), ()),
    ("erf", {}, mp.erf, lambda h: 2 / mp.sqrt(mp.pi) * mp.exp(-h * h), ()),
    ("scaled_erf", {}, lambda h: mp.erf(mp.sqrt(mp.pi) * h / 2),
     lambda h: mp.exp(-mp.pi * h * h / 4), ()),
    ("sigmoid", {}, logistic, lambda h: logistic(h) * logistic(-h), ()),
    ("softplus", {}, lambda h: mp.log1p(mp.exp(h)), logistic, ()),
    ("silu", {}, lambda h: h * logistic(h), silu_slope, ()),
    ("gelu", {}, lambda h: h * normal_cdf(h),
     lambda h: normal_cdf(h) + h * mp.exp(-h * h / 2) / mp.sqrt(2 * mp.pi), ()),
    ("elu", {"alpha": 1.0}, lambda h: h if h > 0 else mp.expm1(h),
     lambda h: mp.mpf(1) if h > 0 else mp.exp(h), (0,)),
    ("elu", {"alpha": 0.3}, lambda h: h if h > 0 else mp.mpf(0.3) * mp.expm1(h),
     lambda h: mp.mpf(1) if h > 0 else mp.mpf(0.3) * mp.exp(h), (0,)),
    ("selu", {}, lambda h: SELU_L * (h if h > 0 else SELU_A * mp.expm1(h)),
     lambda h: SELU_L * (1 if h > 0 else SELU_A * mp.exp(h)), (0,)),
    ("mish", {}, lambda h: h * mp.tanh(mp.log1p(mp.exp(h))), mish_slope, ()),
    ("softsign", {}, lambda h: h / (1 + abs(h)), lambda h: 1 / (1 + abs(h)) ** 2, (0,)),
    ("sin", {}, mp.sin, mp.cos, ()),
]
POWERS = [0.8, 1.5]     # alpha_relu: x^alpha on x > 0


def gauss_legendre(n):
    """Nodes and weights on [-1, 1] by Newton on P_n."""
    rule = []
    for k in range(1, n + 1):
        x = mp.cos(mp.pi * (k - mp.mpf(1) / 4) / (n + mp.mpf(1) / 2))
        for _ in range(8):
            p0, p1 = mp.mpf(1), x
            for j in range(2, n + 1):
                p0, p1 = p1, ((2 * j - 1) * x * p1 - (j - 1) * p0) / j
            derivative = n * (x * p1 - p0) / (x * x - 1)
            x -= p1 / derivative
        rule.append((x, 2 / ((1 - x * x) * derivative ** 2)))
    return rule


def panels(mean, s, kinks, name):
    """Panel ends in z on |z| <= 15."""
    reach = 15
    steps = [mp.mpf(k) / 4 for k in range(0, 17)] + [5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 80, 130]
    if name == "sin":
        steps = [2 * k for k in range(int(reach * s / 2) + 2)]
    ends = {mp.mpf(z) for z in range(-reach, reach + 1)}
    for h in [*kinks, *steps, *(-h for h in steps)]:
        z = (mp.mpf(h) - mean) / s
        if abs(z) < reach:
            ends.add(z)
    return sorted(ends)


def expectations(phi, slope, mean, q, ends, rule):
    s = mp.sqrt(q)
    total = [mp.mpf(0)] * 5
    for low, high in zip(ends, ends[1:], strict=False):
        half, centre = (high - low) / 2, (high + low) / 2
        for x, w in rule:
            z = centre + half * x
            weight = half * w * mp.npdf(z)
            f, d = phi(mean + s * z), slope(mean + s * z) ** 2
            for i, value in enumerate((f, f * f, d, d * d, abs(f))):
                total[i] += weight * value
    return total


def checked(name, phi, slope, kinks, mean, q):
    mean, q = mp.mpf(mean), mp.mpf(float(q))
    ends = panels(mean, mp.sqrt(q), kinks, name)
    first = expectations(phi, slope, mean, q, ends, RULE)
    second = expectations(phi, slope, mean, q, ends, CHECK)
    for i in range(4):
        size = second[4] if i == 0 else second[i]
        assert abs(first[i] - second[i]) <= mp.mpf("1e-25") * size, (name, mean, q, i)
    return [float(value) for value in second]


def half_line_power(power, mean, q):
    """E max(h, 0)^power, with h = u^20 to remove the singularity at 0."""
    s = mp.sqrt(q)
    top = (mean + 15 * s) ** (mp.mpf(1) / 20)
    ends = [top * k / 12 for k in range(13)]
    return mp.quad(lambda u: 20 * u ** (20 * power + 19) * mp.npdf(u ** 20, mean, s), ends)


def power_entry(alpha, mean, q):
    a, mean, q = mp.mpf(alpha), mp.mpf(mean), mp.mpf(float(q))
    first = half_line_power(a, mean, q)
    return [float(value) for value in (
        first, half_line_power(2 * a, mean, q), a ** 2 * half_line_power(2 * a - 2, mean, q),
        a ** 4 * half_line_power(4 * a - 4, mean, q), first)]


def main():
    table = []
    cases = [("0", q) for q in Q] + WITH_MEAN
    for name, parameters, phi, slope, kinks in FUNCTIONS:
        for mean, q in cases:
            values = checked(name, phi, slope, kinks, mean, q)
            table.append([name, parameters, float(mean), float(q), values])
        print(name)
    for alpha in POWERS:
        for mean, q in cases[:-1]:
            table.append(["alpha_relu", {"alpha": alpha}, float(mean), float(q),
                          power_entry(alpha, mean, q)])
    lines = ",\n".join(json.dumps(row) for row in table)
    TARGET.write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    RULE, CHECK = gauss_legendre(40), gauss_legendre(56)
    main()
