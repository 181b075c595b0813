"""What the tests of the examples check of the tables and pictures that a script writes."""

import csv

import numpy as np


def read(path):
    """Notes and rows of a table."""
    lines = path.read_text().splitlines()
    notes = [line for line in lines if line.startswith("# ")]
    return notes, list(csv.DictReader(lines[len(notes):]))


def numbers(rows, column):
    return np.array([float(row[column]) for row in rows])


def check_notes(notes, out):
    text = "\n".join(notes)
    assert "seeds=2" in text and "commit " in text
    for package in ("fastspec", "Python", "torch", "numpy", "scipy", "scikit-learn"):
        assert f"{package} " in text
    assert str(out) not in text and "/" not in text


def check_picture(path):
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000
