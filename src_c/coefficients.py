"""Chebyshev coefficients of the lane logarithm and arc tangent (printed as C initialisers).

Run ``python src_c/coefficients.py`` (needs mpmath) and paste into fspec_lanes.h; the largest
relative error of each polynomial after rounding to double is printed beside it.
"""

from mpmath import atan, atanh, chebyfit, linspace, mp, mpf, polyval, sqrt

mp.dps = 40


def report(name, function, upper, count, weight):
    """Print ``count`` coefficients of ``function`` on [0, upper], lowest first."""
    rounded = [float(c) for c in chebyfit(function, [0, mpf(upper)], count)]
    grid = linspace(mpf(0), mpf(upper), 400)
    error = max(
        abs(z * weight * (polyval([mpf(c) for c in rounded], z) - function(z))) for z in grid
    )
    print(f"/* {name}: error {mp.nstr(error, 3)} */")
    print(",\n".join(f"    {c!r}" for c in reversed(rounded)))


def log_tail(z):
    """(2 atanh(s) - 2 s) / s^3 as a function of z = s^2."""
    if z < mpf("1e-6"):
        return 2 * sum(z**k / mpf(2 * k + 3) for k in range(8))
    return 2 * (atanh(sqrt(z)) / sqrt(z) - 1) / z


def atan_tail(z):
    """(atan(t) - t) / t^3 as a function of z = t^2."""
    if z < mpf("1e-6"):
        return sum((-1) ** (k + 1) * z**k / mpf(2 * k + 3) for k in range(8))
    return (atan(sqrt(z)) / sqrt(z) - 1) / z


report("log, |s| <= 3 - 2 sqrt 2", log_tail, "0.0296", 7, mpf(1) / 2)
report("atan, |t| <= sqrt 2 - 1", atan_tail, "0.17158", 11, 1)
