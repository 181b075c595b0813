"""Read the frozen tables. Standard library only: tests need no mpmath to use them."""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).parent
KINDS = ("resnet_limit", "fuss_catalan", "plain_gaussian", "plain_orthogonal",
         "bernoulli_limit", "smooth_limit")


def _number(value):
    """Parameter strings as floats; depths (int) and None stay; so does the name in ``exact``."""
    return float(value) if isinstance(value, str) and value not in ("p", "pc") else value


def _point(columns, row):
    """One row as floats under the column names, and its strings under <name>_exact.

    ``lam`` is a double and exact as such: ``lam_exact`` is its full decimal expansion.
    """
    point = {name: float(entry) for name, entry in zip(columns, row, strict=True)}
    point.update({f"{name}_exact": entry for name, entry in zip(columns, row, strict=True)})
    point["lam_exact"] = str(Decimal(point["lam"]))
    return point


def _green(row):
    """One row of the Green's function: complex doubles, and (re, im) pairs of strings."""
    z_re, z_im, g_re, g_im, m_re, m_im = row
    return {"z": complex(float(z_re), float(z_im)),
            "G": complex(float(g_re), float(g_im)), "G_exact": (g_re, g_im),
            "m": complex(float(m_re), float(m_im)), "m_exact": (m_re, m_im)}


def _law(record, columns):
    """One law as a dict; see README.md for the keys."""
    law = {"kind": record["kind"],
           "parameters": {key: _number(value) for key, value in record["parameters"].items()},
           "continuous_mass": float(record["continuous_mass"]),
           "continuous_mass_exact": record["continuous_mass"],
           "moments": [float(value) for value in record["moments"]],
           "moments_exact": record["moments"]}
    for key in ("support", "atoms"):
        law[key] = [tuple(float(value) for value in pair) for pair in record[key]]
        law[f"{key}_exact"] = [tuple(pair) for pair in record[key]]
    for key in ("points", "outside"):
        law[key] = [_point(columns, row) for row in record[key]]
    law["green"] = [_green(row) for row in record["green"]]
    return law


def load_laws(*kinds):
    """Laws with an explicit z(m), all kinds or those named, as a list of dicts."""
    laws = []
    for kind in kinds or KINDS:
        table = json.loads((HERE / f"laws_{kind}.json").read_text(encoding="ascii"))
        laws += [_law(record, table["point_columns"]) for record in table["laws"]]
    return laws


def load_chain_laws():
    """Records of general chains, numbers as strings, as they stand in chain_laws.json."""
    return json.loads((HERE / "chain_laws.json").read_text(encoding="ascii"))


def load_own_chain_laws():
    """Records of chain_laws_own.json (blocks, points, m, edges, atoms), numbers as strings."""
    return json.loads((HERE / "chain_laws_own.json").read_text(encoding="ascii"))


def law_name(law):
    """Short name of a law, for test ids."""
    values = (f"{key}={value:g}" for key, value in law["parameters"].items()
              if isinstance(value, (int, float)))
    return f"{law['kind']}({','.join(values)})"


def relative_error(value, exact):
    """|value - exact| / |exact| in exact rational arithmetic, rounded once at the end.

    ``value`` is a float, ``exact`` a decimal string. A NaN or an infinity gives inf; so does any
    value but 0 when ``exact`` is 0.
    """
    value = float(value)
    if value != value or value in (float("inf"), float("-inf")):
        return float("inf")
    target = Fraction(exact)
    if target == 0:
        return 0.0 if value == 0 else float("inf")
    return _float(abs((Fraction(value) - target) / target))


def complex_relative_error(value, exact):
    """|value - exact| / |exact| for a complex value and an (re, im) pair of decimal strings."""
    value = complex(value)
    if not abs(value) < float("inf"):
        return float("inf")
    re, im = Fraction(exact[0]), Fraction(exact[1])
    size = re * re + im * im
    miss = (Fraction(value.real) - re) ** 2 + (Fraction(value.imag) - im) ** 2
    if size == 0:
        return 0.0 if miss == 0 else float("inf")
    return _float(miss / size) ** 0.5


def _float(ratio):
    """A Fraction as a float, inf where it overflows."""
    try:
        return float(ratio)
    except OverflowError:
        return float("inf")
