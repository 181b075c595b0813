"""The demo on handwritten digits, at a small width."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from fastspec import demo

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


def test_inputs_are_lifted_digits_of_second_moment_one():
    x = demo.digit_inputs(200)
    assert x.shape == (10, 200)
    np.testing.assert_allclose(np.mean(x**2, axis=1), 1.0, rtol=1e-13)
    # A coordinate mean of a random direction has standard deviation 1/sqrt(N) = 0.07.
    assert np.abs(x.mean(axis=1)).max() < 5.0 / np.sqrt(200)
    np.testing.assert_array_equal(x, demo.digit_inputs(200))


def test_lift_keeps_the_angles_between_images():
    from sklearn.datasets import load_digits

    digits = load_digits()
    spread = digits.data.std(axis=0)
    standard = (digits.data - digits.data.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    first = standard[[list(digits.target).index(d) for d in range(10)]]
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    x = demo.digit_inputs(150)
    np.testing.assert_allclose(x @ x.T / 150, first @ first.T, atol=1e-12)


def test_too_narrow_a_width_is_an_error():
    with pytest.raises(ValueError, match="width must be >= 64, got 63"):
        demo.digit_inputs(63)


@pytest.mark.parametrize("activation", demo.ACTIVATIONS)
def test_networks_have_the_cumulant_of_the_figure(activation):
    net = demo.network_with_cumulant(activation, 10, 0.125)
    assert float(net.effective_cumulant()) == pytest.approx(0.125, rel=1e-10)
    assert net.depth == 10


def test_relu_needs_sigma_w_one_half():
    assert demo.network_with_cumulant("relu", 20, 0.125).sigma_w == pytest.approx(0.5, rel=1e-12)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One run at width 400: exit code, the table's rows and the picture."""
    out = tmp_path_factory.mktemp("demo") / "made"
    capture = pytest.MonkeyPatch()
    lines = []
    capture.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(words)))
    try:
        code = demo.main(["--out", str(out), "--width", "400"])
    finally:
        capture.undo()
    return code, "\n".join(lines).splitlines(), out / "resnet_digits.png"


def test_picture_is_written_and_named(result):
    code, lines, picture = result
    assert code == 0
    assert lines[-1] == f"picture: {picture}"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_table_has_laws_that_fit_and_the_outlier_of_relu_only(result):
    """At width 400, of ten networks."""
    rows = [line.split() for line in result[1][1:7]]
    assert [row[:2] for row in rows] == [
        [activation, str(depth)] for activation in demo.ACTIVATIONS for depth in demo.DEPTHS
    ]
    for (activation, depth, _, ks, ks_limit, limit, cond, bulk, full, everything, number, outliers,
         predicted, at) in rows:
        # The law at this depth is nearer: it is off by the fluctuations of ten spectra only.
        assert float(ks) < min(float(ks_limit), 0.005)
        assert float(ks_limit) < 0.02
        # An edge lies inside that of infinite width by (3 pi/2 N)^(2/3) or so: below 2 %.
        assert 0.98 * float(cond) < float(bulk) < float(cond)
        assert float(limit) == 2.746  # at c = 0.125, whatever the activation and the depth
        if activation == "relu":
            assert float(outliers) >= (0.5 if depth == "10" else 1.0)
            assert float(at) > 1.01 * 2.746**0.5  # beyond the edge of the law
            assert float(everything) > float(bulk) + (0.1 if depth == "10" else 0.5)
            # squared: 3.0627 and 4.1 or so; one net is off by 1/sqrt(N), ten by 2 %
            assert number == "1"
            net = demo.network_with_cumulant("relu", int(depth), 0.125)
            own = replace(net, input_mean=float(demo.digit_inputs(400).mean()))
            assert predicted == f"{own.top_singular_value():.3f}"
            assert predicted != f"{net.top_singular_value():.3f}"   # the images' mean matters
            assert float(at) == pytest.approx(float(predicted), rel=0.03)
            assert float(everything) == pytest.approx(float(full), rel=0.04)
        else:
            assert float(outliers) == float(number) == 0.0
            assert (predicted, at, everything, full) == ("-", "-", bulk, cond)


def test_wrong_options_are_one_line(capsys, tmp_path):
    assert demo.main(["--width", "10", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err == "fastspec.demo: error: argument --width: must be at least 64, got 10\n"


def test_unwritable_directory_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert demo.main(["--width", "64", "--out", str(tmp_path / "file")]) == 2
    err = capsys.readouterr().err
    assert "argument --out: cannot write" in err
    assert err.count("\n") == 1


def test_missing_packages_name_the_extra(capsys, monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    assert demo.main([]) == 2
    assert "matplotlib and sklearn missing: pip install 'fastspec[demo]'" in capsys.readouterr().err
    monkeypatch.undo()
    assert "sklearn" in sys.modules
