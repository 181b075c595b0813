"""Atoms of a freely multiplied chain.

Free product (Belinschi 2003): at 0 the largest zero atom of the factors; at c != 0 an atom iff
the factors have atoms a_i with product c and masses adding to more than (number - 1), of that
excess. Free sum of the symmetrised laws of a I and X (Bercovici & Voiculescu 1998): the zero
atom z of X gives a I + X an atom at a^2 of mass max(0, 2 z - 1) and nothing at 0.
"""

from chain_curves import Chain, Plain
from mpmath import mp, mpf


def zero_mass(slopes):
    return sum((p for d, p in slopes.atoms if d == 0), mpf(0))


def unit_atoms(unit):
    """Nonzero atoms (place, mass) of one factor, heaviest first."""
    if isinstance(unit, Plain):
        found = [] if unit.weights.gaussian else [
            (unit.weights.variance * d, p) for d, p in unit.slopes.atoms if d > 0]
    else:
        found = [(unit.skip**2, 2 * max(zero_mass(s) for s, _ in unit.layers) - 1)]
    return sorted(((place, mass) for place, mass in found if mass > 0), key=lambda a: -a[1])


def meeting_points(units):
    """{place: mass left} of products of nonzero atoms, one of each factor, mass left >= 0."""
    points = {"1": (mpf(1), mpf(1))}
    for unit in units:
        table = unit_atoms(unit)
        for _ in range(unit.repeat):
            found = {}
            for place, left in points.values():
                for other, mass in table:
                    rest = left - (1 - mass)
                    key = mp.nstr(place * other, 25)
                    if rest >= 0 and rest >= found.get(key, (0, 0))[1]:
                        found[key] = (place * other, rest)
            points = found
    return sorted(points.values())


def critical_places(blocks):
    """Where an atom, an inverse-root end or a narrow gap may sit: the meeting points, also those
    of mass 0, and skip^2 of a single residual block."""
    units = Chain(blocks).units
    found = {place for place, _ in meeting_points(units)}
    if len(units) == 1 and units[0].repeat == 1 and not isinstance(units[0], Plain):
        found.add(units[0].skip**2)
    return found


def nonzero_atoms(units):
    return [(place, mass) for place, mass in meeting_points(units) if mass > 0]


def rectangular_zero(units):
    """1 - min of the rank bounds / N_L; widths relative to N_L."""
    bounds = []
    for unit in units:
        out = 1 / unit.width
        bounds += [out / unit.weights.ratio, out * (1 - zero_mass(unit.slopes))]
    return max(mpf(0), 1 - min(bounds))


def atoms(blocks):
    """[(place, mass)] ascending, or None where no rule is known (rectangular orthogonal)."""
    units = Chain(blocks).units
    plain = [unit for unit in units if isinstance(unit, Plain)]
    if all(unit.square for unit in plain):
        zero = max([zero_mass(unit.slopes) for unit in plain], default=mpf(0))
        found = nonzero_atoms(units)
    elif all(unit.weights.gaussian for unit in plain):
        zero, found = rectangular_zero(plain), []
    else:
        return None
    return ([(mpf(0), zero)] if zero > 0 else []) + found
