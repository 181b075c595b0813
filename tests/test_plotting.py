"""Pictures: what is drawn is the law and the data, at the right place and height."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fastspec as fs
from fastspec._variables import EIGENVALUE
from fastspec.outliers import Outlier
from fastspec.plotting import LIMIT_STYLE, law_range, plot_comparison, plot_law

Figure = pytest.importorskip("matplotlib.figure").Figure


@pytest.fixture
def ax():
    return Figure(layout="constrained").add_subplot()


def curves(ax):
    """Curves drawn in data coordinates (stems and markers are not)."""
    return [line for line in ax.lines if line.get_transform() == ax.transData]


def stems(ax):
    return [line for line in ax.lines if line.get_label() == "_atom"]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def area(line, log=False):
    x, y = line.get_data()
    return np.trapezoid(y, np.log(x) if log else x)


def test_curve_is_the_density(ax):
    law = fs.ResNetLimit(0.125)
    assert plot_law(law, ax, axis="linear") is ax
    (line,) = curves(ax)
    x, y = line.get_data()
    np.testing.assert_array_equal(y, law.pdf(x))
    assert (x[0], x[-1]) == law.support()[0]
    assert area(line) == pytest.approx(1.0, abs=1e-5)
    assert ax.get_xscale() == "linear"
    assert ax.get_xlabel() == r"squared singular value $\lambda$"
    assert ax.get_ylabel() == r"density $\rho(\lambda)$"


def test_log_axis_shows_the_density_of_the_logarithm(ax):
    law = fs.ResNetLimit(0.125)
    plot_law(law, ax, axis="log")
    (line,) = curves(ax)
    x, y = line.get_data()
    np.testing.assert_allclose(y, x * law.pdf(x), rtol=1e-15)
    assert area(line, log=True) == pytest.approx(1.0, abs=1e-5)
    assert ax.get_xscale() == "log"
    assert ax.get_ylabel().startswith("density of $")


@pytest.mark.parametrize("given", ["flag", "law"])
def test_singular_values_are_drawn_and_named(ax, given):
    law = fs.ResNetLimit(0.5)
    if given == "flag":
        plot_law(law, ax, singular_values=True)
    else:
        plot_law(law.singular_values(), ax)
    x, y = curves(ax)[0].get_data()
    np.testing.assert_allclose(y, 2 * x * law.pdf(x**2), rtol=1e-9, atol=1e-7)
    assert area(curves(ax)[0]) == pytest.approx(1.0, abs=1e-5)
    assert ax.get_xlabel() == "singular value $s$"


def test_diverging_end_is_cut_on_a_linear_axis(ax):
    plot_law(fs.FussCatalan(1), ax, axis="linear")
    bottom, top = ax.get_ylim()
    # Marchenko-Pastur: 1/(2 pi) sqrt((4 - x)/x); the cut lies between the bulk and the divergence.
    assert bottom == 0
    assert 0.3 < top < 3.0
    assert curves(ax)[0].get_ydata().max() > top
    assert np.isfinite(curves(ax)[0].get_ydata()).all()


def test_log_axis_leaves_out_a_hundredth_at_zero(ax):
    law = fs.FussCatalan(3)
    plot_law(law, ax, axis="log")
    assert float(law.cdf(law_range(law, "log")[0])) == pytest.approx(1e-2, rel=1e-6)
    assert area(curves(ax)[0], log=True) == pytest.approx(0.99, abs=1e-5)


def test_a_top_without_mass_is_left_out():
    """Slopes that never reach their supremum, or have none: the axis ends where the mass does."""
    square = fs.activation(lambda h: 0.5 * h * h, derivative=lambda h: h)
    for name, end in (("softplus", 0.2515), (square, np.inf)):
        law = fs.ChainLaw([fs.Layer(name, q=0.01, weight_variance=1.0, weights="orthogonal",
                                    repeat=2)])
        assert law.support()[-1][1] == pytest.approx(end, rel=1e-3)
        high = law_range(law, "linear")[1]
        assert high < 0.5 * end and law.ccdf(0.9 * high) > 0.0 and law.ccdf(high) < 1e-12



@pytest.mark.parametrize(
    ("law", "scale"),
    [
        (fs.ResNetLimit(0.125), "linear"),
        (fs.FussCatalan(1), "linear"),
        (fs.FussCatalan(8), "log"),
    ],
)
def test_auto_axis_follows_the_spread(ax, law, scale):
    plot_law(law, ax)
    assert ax.get_xscale() == scale


def test_atom_is_a_stem_with_its_mass(ax):
    plot_law(fs.BernoulliLimit(0.25), ax, axis="linear")
    (stem,) = stems(ax)
    x, height = stem.get_data()
    assert x[0] == x[1] == pytest.approx(np.exp(0.25))
    assert tuple(height) == (0.0, pytest.approx(0.9 * 0.75))
    assert texts(ax) == ["atom, mass 0.75"]
    low, high = ax.get_xlim()
    assert low < x[0] < high


class AtomAtZero:
    _variable = EIGENVALUE
    """Half the mass at 0, half uniform on [1, 2]."""

    _variable = EIGENVALUE
    atoms = np.array([[0.0, 0.5]])

    def support(self):
        return [(1.0, 2.0)]

    def pdf(self, lam):
        lam = np.asarray(lam, dtype=float)
        return np.where((lam >= 1) & (lam <= 2), 0.5, 0.0)

    def cdf(self, lam):
        return 0.5 + 0.5 * np.clip(np.asarray(lam, dtype=float) - 1.0, 0.0, 1.0)

    def icdf(self, p):
        return np.where(np.asarray(p) <= 0.5, 0.0, 2.0 * np.asarray(p, dtype=float))


def test_atom_at_zero_stands_on_the_edge_of_a_log_axis(ax):
    plot_law(AtomAtZero(), ax, axis="log")
    (stem,) = stems(ax)
    assert stem.get_transform() == ax.transAxes
    assert tuple(stem.get_xdata()) == (0.0, 0.0)
    assert texts(ax) == ["atom at 0, mass 0.5"]
    assert ax.get_xlim()[0] > 0


@pytest.mark.parametrize("depth", [20, 5000])
def test_logarithmic_variable_holds_laws_that_leave_the_doubles(ax, depth):
    law = fs.FussCatalan(depth).log_eigenvalues()
    plot_law(law, ax)
    x, y = curves(ax)[0].get_data()
    np.testing.assert_array_equal(y, law.pdf(x))
    assert x[-1] == pytest.approx(law.support()[0][1], rel=1e-14)
    assert area(curves(ax)[0]) == pytest.approx(0.99, abs=1e-4)
    assert ax.get_xlabel() == r"$\log\,\lambda$"
    with pytest.raises(ValueError, match="axis must be linear for a law in log lambda"):
        plot_law(law, ax, axis="log")


def test_law_beyond_the_doubles_is_an_error(ax):
    with (
        pytest.warns(fs.RangeWarning),
        pytest.raises(ArithmeticError, match=r"take its log_eigenvalues\(\)"),
    ):
        plot_law(fs.ResNetLimit(1000.0), ax)


@pytest.mark.parametrize("variable", ["lambda", "log_lambda"])
def test_atom_at_zero_beside_a_diverging_density(ax, variable):
    law = fs.FeedForward(depth=3, activation="relu", sigma_w=2**0.5).spectrum()
    law = law if variable == "lambda" else law.log_eigenvalues()
    plot_law(law, ax, axis="auto" if variable == "log_lambda" else "log")
    # Half of the mass is the atom; a hundredth of the other half is left out.
    x = curves(ax)[0].get_xdata()
    assert float(law.cdf(x[0])) == pytest.approx(0.505, rel=1e-9)
    (stem,) = stems(ax)
    assert tuple(stem.get_xdata()) == (0.0, 0.0)
    assert stem.get_transform() == ax.transAxes
    assert texts(ax) == ["atom at 0, mass 0.5"]


class OnlyAtom:
    _variable = EIGENVALUE
    """J J^T = I / 4."""

    _variable = EIGENVALUE
    atoms = np.array([[0.25, 1.0]])

    def support(self):
        return []

    def icdf(self, p):
        return np.full(np.shape(p), 0.25)


@pytest.mark.parametrize("axis", ["auto", "linear", "log"])
def test_law_without_a_continuous_part(ax, axis):
    plot_law(OnlyAtom(), ax, axis=axis)
    assert len(stems(ax)) == 1
    assert curves(ax) == []
    low, high = ax.get_xlim()
    assert low < 0.25 < high


def test_curve_takes_matplotlib_options(ax):
    plot_law(fs.BernoulliLimit(0.25), ax, label="theory", color="red", linestyle="--")
    (line,) = curves(ax)
    assert (line.get_label(), line.get_color(), line.get_linestyle()) == ("theory", "red", "--")
    assert stems(ax)[0].get_color() == "red"


@pytest.mark.parametrize("order", [(0.1, 1.0), (1.0, 0.1)])
def test_laws_can_share_axes(ax, order):
    for c in order:
        plot_law(fs.ResNetLimit(c), ax)
    highest = max(line.get_ydata().max() for line in curves(ax))
    assert ax.get_ylim()[1] >= highest
    assert ax.get_xlim()[1] > fs.ResNetLimit(1.0).support()[0][1]


def test_law_has_a_plot_method(ax):
    assert fs.ResNetLimit(0.125).plot(ax, axis="log") is ax
    assert len(curves(ax)) == 1


def test_new_axes_by_default():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = plot_law(fs.ResNetLimit(0.125))
    assert ax.figure is plt.gcf()
    plt.close(ax.figure)


# --- several intervals, divergences -------------------------------------------------------------

LEAKY = fs.Layer(fs.activation("leaky_relu", slope=0.3), q=1.0, weight_variance=1.0, width=0.1)
GAP = fs.ChainLaw([LEAKY])  # two bands with a gap
BLOCK = fs.ChainLaw([fs.Residual(fs.Layer("relu", q=1.0, weight_variance=0.5))])
ARCSINE = fs.ChainLaw(
    [fs.Residual(fs.Layer("linear", q=1.0, weight_variance=0.25, weights="orthogonal"))]
)


@pytest.mark.parametrize("law", [GAP, BLOCK], ids=["gap", "block"])
@pytest.mark.parametrize("axis", ["linear", "log"])
def test_every_interval_is_a_curve_of_its_own(ax, law, axis):
    assert len(law.support()) == 2
    plot_law(law, ax, axis=axis, label="two parts")
    drawn = curves(ax)
    assert [line.get_label() for line in drawn].count("two parts") == 1
    total = 0.0
    for line, (low, high) in zip(drawn, law.support(), strict=True):
        x = line.get_xdata()
        assert low <= x[0] < low + 1e-4 * (high - low)  # an infinite end has no point
        assert high - 1e-4 * (high - low) < x[-1] <= high
        total += area(line, log=axis == "log")
    # Trapezoids from the first point on: 2 sqrt(1e-5) of an inverse-root end is lost or so.
    assert total == pytest.approx(1.0, abs=5e-3 if law is BLOCK else 1e-4)


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("axis", ["linear", "log"])
def test_inverse_root_ends_run_out_of_the_top(ax, axis, singular):
    # I + W/2, W orthogonal: 1/(pi sqrt((x - a)(b - x))) on [a, b] = [(1 - 1/2)^2, (1 + 1/2)^2].
    plot_law(ARCSINE, ax, axis=axis, singular_values=singular)
    (line,) = curves(ax)
    x, y = line.get_data()
    lam = x**2 if singular else x
    inner = (lam > 0.26) & (lam < 2.24)
    exact = 1.0 / (np.pi * np.sqrt((lam - 0.25) * (2.25 - lam)))[inner]
    jacobian = (2 * x if singular else 1.0) * (x if axis == "log" else 1.0)
    np.testing.assert_allclose(y[inner], (exact * (jacobian * np.ones_like(x))[inner]), rtol=1e-9)
    top = ax.get_ylim()[1]
    assert 2.0 * y.min() < top < 15.0 * y.min()  # neither flattened nor cut to its bottom
    assert y[:5].max() > top and y[-5:].max() > top


class ArcsineAndAtom:
    """Half of `ARCSINE`, the other half at 1."""

    _variable = EIGENVALUE
    atoms = np.array([[1.0, 0.5]])
    support = ARCSINE.support

    def pdf(self, lam):
        return 0.5 * ARCSINE.pdf(lam)

    def cdf(self, lam):
        return 0.5 * ARCSINE.cdf(lam) + 0.5 * (np.asarray(lam) >= 1.0)

    def icdf(self, p):
        low, high = 0.5 * ARCSINE.cdf(1.0), 0.5 + 0.5 * ARCSINE.cdf(1.0)
        p = np.asarray(p)
        q = np.where(p < low, 2.0 * p, np.where(p > high, 2.0 * p - 1.0, 2.0 * low))
        return ARCSINE.icdf(q)


def test_atoms_do_not_count_as_area(ax):
    plot_law(ARCSINE, ax, axis="linear")
    alone = ax.get_ylim()[1]
    ax.clear()
    plot_law(ArcsineAndAtom(), ax, axis="linear")
    assert ax.get_ylim()[1] == pytest.approx(0.5 * alone, rel=0.05)


def test_a_single_peak_is_shown_whole(ax):
    # Ends like square roots, close to them peaks of three times the mean.
    law = fs.ChainLaw(
        [fs.Residual(fs.Layer("hard_tanh", q=0.3, weight_variance=0.5, weights="orthogonal"))]
    )
    plot_law(law, ax, axis="linear")
    top = curves(ax)[0].get_ydata().max()
    low, high = law.support()[0]
    assert top > 3.0 / (high - low)
    assert ax.get_ylim()[1] == pytest.approx(1.1 * top)


class NarrowPeak:
    """Half the mass uniform on [0, 1000], half on [500.3, 500.31]."""

    _variable = EIGENVALUE
    atoms = np.empty((0, 2))
    _x = np.array([0.0, 500.3, 500.31, 1000.0])
    _p = np.array([0.0, 0.25015, 0.750155, 1.0])

    def support(self):
        return [(0.0, 1000.0)]

    def pdf(self, lam):
        inside = (np.asarray(lam) >= 500.3) & (np.asarray(lam) <= 500.31)
        return np.where(inside, 50.0005, 0.0005)

    def cdf(self, lam):
        return np.interp(lam, self._x, self._p)

    def icdf(self, p):
        return np.interp(p, self._p, self._x)


def test_narrow_peaks_inside_are_resolved(ax):
    plot_law(NarrowPeak(), ax, axis="linear")
    (line,) = curves(ax)
    assert np.sum(line.get_ydata() > 1.0) > 50


def test_a_singularity_that_holds_much_of_the_area_is_cut(ax):
    # 1/(lambda log^2 lambda) at 0: the height below which 92 % of the area lies is 1e5.
    plot_law(fs.BernoulliLimit(0.4), ax, axis="linear")
    low, high = fs.BernoulliLimit(0.4).support()[0]
    assert ax.get_ylim()[1] <= 1.1 * 8.0 * 0.4 / (high - low) * (1 + 1e-12)


def test_labels_of_atoms_side_by_side_do_not_cover_each_other(ax):
    plot_law(fs.BernoulliLimit(0.25), ax, axis="linear")
    plot_law(fs.BernoulliLimit(0.26), ax, axis="linear")
    ax.figure.canvas.draw()
    first, second = (text.get_window_extent() for text in ax.texts)
    assert not first.overlaps(second)


def test_several_atoms(ax):
    law = fs.ChainLaw([fs.Layer(fs.activation("leaky_relu", slope=0.5), q=1.0,
                                weight_variance=1.0, weights="orthogonal", mean=1.0)])  # fmt: skip
    plot_law(law, ax)
    assert [tuple(stem.get_xdata()) for stem in stems(ax)] == [(0.25, 0.25), (1.0, 1.0)]
    assert texts(ax) == ["atom, mass 0.1587", "atom, mass 0.8413"]
    assert ax.get_xlim()[0] < 0.25 and ax.get_xlim()[1] > 1.0


def test_auto_keeps_the_axis_of_a_picture(ax):
    plot_law(fs.ResNetLimit(0.125), ax)  # linear
    plot_law(fs.FussCatalan(8), ax)  # alone it would be logarithmic
    assert ax.get_xscale() == "linear"
    x, y = curves(ax)[1].get_data()
    np.testing.assert_array_equal(y, fs.FussCatalan(8).pdf(x)[: y.size])


def test_short_logarithmic_axes_have_plain_ticks(ax):
    plot_law(fs.ResNetLimit(0.125), ax, axis="log")
    ax.figure.canvas.draw()
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert {"0.5", "1", "2"} <= set(labels)


# --- measured values ----------------------------------------------------------------------------


def bar_area(ax, log=False):
    total = 0.0
    for bar in ax.patches:
        left, right = bar.get_x(), bar.get_x() + bar.get_width()
        total += bar.get_height() * (np.log(right / left) if log else right - left)
    return total


@pytest.mark.parametrize("axis", ["linear", "log"])
@pytest.mark.parametrize("singular", [True, False])
def test_bars_have_the_area_of_the_bulk(ax, axis, singular):
    law = fs.ResNetLimit(0.125)
    s = np.sqrt(law.icdf((np.arange(500) + 0.5) / 500))
    s[:5] = 4.0  # five outliers
    plot_comparison(s, law, ax, axis=axis, singular_values=singular)
    assert bar_area(ax, log=axis == "log") == pytest.approx(495 / 500, rel=1e-12)
    # Each bar holds the mass that the law gives it, up to one value and the five that were moved.
    heights = np.array([bar.get_height() for bar in ax.patches])
    centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches])
    density = (law.singular_values() if singular else law).pdf(centres)
    density = density * centres if axis == "log" else density
    inner = slice(2, -2)
    np.testing.assert_allclose(heights[inner], density[inner], atol=0.1 * density.max())


def test_outliers_are_marked_and_inside_the_picture(ax):
    law = fs.ResNetLimit(0.125)
    s = np.sqrt(law.icdf((np.arange(200) + 0.5) / 200))
    s[-1] = 3.0
    plot_comparison(s, law, ax)
    (marks,) = [line for line in ax.lines if "outlying" in line.get_label()]
    assert tuple(marks.get_xdata()) == (3.0,)
    assert marks.get_label() == "1 outlying, not in the law"
    assert ax.get_xlim()[1] > 3.0
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:2] == ["measured", "law"]
    assert "1 outlying, not in the law" in labels


def outlier(s, side, detached=True):
    return Outlier(
        value=s * s, singular_value=s, side=side, overlap_input=0.5, overlap_ones_input=0.0,
        overlap_output=0.5, overlap_ones_output=0.0, detached=detached, margin=0.1, edge=1.0)


OUTLIERS = (outlier(3.25, "above"), outlier(0.4, "below"), outlier(9.0, "above", detached=False))


def ticks(ax):
    return [line for line in ax.lines if line.get_label() == "_outlier"]


@pytest.mark.parametrize(("law", "places", "labels"), [
    (fs.ResNetLimit(0.125), [10.5625, 0.16], ["outlier s = 3.25", "outlier s = 0.4"]),
    (fs.ResNetLimit(0.125).singular_values(), [3.25, 0.4], ["outlier 3.25", "outlier 0.4"]),
    (fs.ResNetLimit(0.125).log_eigenvalues(), np.log([10.5625, 0.16]),
     ["outlier s = 3.25", "outlier s = 0.4"]),
])
def test_predicted_outliers_are_labelled_ticks_inside_the_picture(ax, law, places, labels):
    plot_law(law, ax, axis="linear", outliers=OUTLIERS)
    np.testing.assert_allclose([tick.get_xdata() for tick in ticks(ax)],
                               [[place, place] for place in places], rtol=1e-14)
    assert texts(ax) == labels
    left, right = ax.get_xlim()
    assert left < places[1] and right > places[0]
    assert [text.xy[0] for text in ax.texts] == pytest.approx(places, rel=1e-14)


def test_predicted_outliers_stand_beside_measured_ones(ax):
    law = fs.ResNetLimit(0.125)
    s = np.sqrt(law.icdf((np.arange(200) + 0.5) / 200))
    s[-1] = 3.0
    plot_comparison(s, law, ax, outliers=OUTLIERS[:1])
    (tick,), (mark,) = ticks(ax), [line for line in ax.lines if "outlying" in line.get_label()]
    assert tuple(tick.get_xdata()) == (3.25, 3.25) and tuple(mark.get_xdata()) == (3.0,)
    assert texts(ax) == ["outlier 3.25"] and ax.get_xlim()[1] > 3.25
    assert "_outlier" not in [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("wrong", [3.0, [3.25], fs.ResNet(3, "relu").outliers, None])
def test_outliers_must_be_outliers(ax, wrong):
    law = fs.ResNetLimit(0.125)
    for draw in (lambda: plot_law(law, ax, outliers=wrong),
                 lambda: plot_comparison([1.0, 1.1], law, ax, outliers=wrong)):
        with pytest.raises(ValueError, match="outliers must be a sequence of Outlier, such as net"):
            draw()
    assert not ax.has_data()


def test_no_predicted_outliers_no_tick(ax):
    plot_law(fs.ResNetLimit(0.125), ax)
    assert ticks(ax) == [] and texts(ax) == []


def test_no_outliers_no_mark(ax):
    law = fs.ResNetLimit(0.125)
    plot_comparison(np.sqrt(law.icdf((np.arange(200) + 0.5) / 200)), law, ax)
    assert not [line for line in ax.lines if "outlying" in line.get_label()]


def test_measured_share_of_an_atom(ax):
    s = np.sqrt(np.concatenate((np.full(40, 1e-32), np.linspace(1.0, 2.0, 60))))
    plot_comparison(s, AtomAtZero(), ax, singular_values=False, axis="linear")
    assert texts(ax) == ["atom, mass 0.5, measured 0.4"]
    assert bar_area(ax) == pytest.approx(0.6, rel=1e-12)


def test_number_of_bars(ax):
    law = fs.ResNetLimit(0.125)
    plot_comparison(np.sqrt(law.icdf(np.linspace(0.1, 0.9, 100))), law, ax, bins=7)
    assert len(ax.patches) == 7


def test_bars_leave_gaps_empty(ax):
    law = GAP.singular_values()
    (_, low), (high, _) = law.support()
    s = law.icdf((np.arange(400) + 0.5) / 400)
    plot_comparison(s, GAP, ax)
    assert bar_area(ax) == pytest.approx(1.0, rel=1e-12)
    lefts = np.array([bar.get_x() for bar in ax.patches])
    rights = lefts + [bar.get_width() for bar in ax.patches]
    assert np.all((rights <= low) | (lefts >= high))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "law"]


def test_a_limit_law_joins_the_legend(ax):
    law = fs.ResNetLimit(0.125)
    s = np.sqrt(law.icdf((np.arange(200) + 0.5) / 200))
    s[-1] = 3.0
    plot_comparison(s, law, ax, label="depth 7")
    plot_law(fs.ResNetLimit(0.2), ax, singular_values=True, label="limit", **LIMIT_STYLE)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["measured", "depth 7", "limit", "1 outlying, not in the law"]
    assert [line.get_linestyle() for line in curves(ax)] == ["-", "--"]


# --- errors -------------------------------------------------------------------------------------


def test_wrong_arguments_are_named(ax):
    law = fs.ResNetLimit(0.125)
    with pytest.raises(ValueError, match="axis must be one of auto, linear, log; got 'lin'"):
        plot_law(law, ax, axis="lin")
    with pytest.raises(ValueError, match="axis must be one of"):
        plot_comparison([1.0], law, ax, axis="cube")
    with pytest.raises(ValueError, match="bins must be a whole number >= 1, got 0"):
        plot_comparison([1.0], law, ax, bins=0)
    with pytest.raises(ValueError, match="at least one value"):
        plot_comparison([], law, ax)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'fastspec\[plot\]'"):
        plot_law(fs.ResNetLimit(0.125))
