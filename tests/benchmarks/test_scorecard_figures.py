"""Panels of the paper's figures: what each draws, and that it can be read."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from isocompute.answers import PaperFit, fit_sweep
from isocompute.sources import load_curves

sys.path.insert(0, str(Path(__file__).parents[2] / "grid"))

from scorecard import figure_list, figures, panels
from scorecard.evidence import columns


@pytest.fixture(scope="module")
def sweep():
    return load_curves("grid:hard")


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def outside(axes):
    """Whether the legend is right of the panel."""
    axes.figure.canvas.draw()
    return axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1 - 1


@pytest.mark.heavy
def test_the_papers_method_is_drawn_for_any_sweep_that_it_fits(sweep):
    fit = fit_sweep(sweep)
    assert isinstance(fit.paper, PaperFit)
    axes = Figure().subplots()
    panels.path(axes, fit)
    assert labels(axes) == ["best n", "paper's method"]
    dotted = axes.lines[1]
    assert np.allclose(dotted.get_ydata(), fit.paper.law.predict(dotted.get_xdata()))
    assert outside(axes)


def test_colours_tell_n_and_dashes_tell_b_p():
    axes = Figure().subplots()
    panels.curves(axes, load_curves("grid:hard-joint"))
    assert labels(axes) == [*(f"n={2**i}" for i in range(2, 11)), "B_p=8", "B_p=32", "B_p=128"]
    assert outside(axes)


def test_at_a_fixed_batch_every_n_has_its_b_p_and_a_line_without_dashes():
    sweep = [c for c in load_curves("grid:hard-b8192") if c.configuration.batch_size == 8192]
    axes = Figure().subplots()
    panels.curves(axes, sweep, leader=False)
    pairs = sorted({(c.rollouts_per_problem, c.problems_per_batch) for c in sweep})
    assert labels(axes) == [f"n={n}, B_p={b}" for n, b in pairs]
    assert {line.get_linestyle() for line in axes.lines} == {"-"}


def test_an_arm_that_covers_another_is_thinner(sweep):
    chosen = [c for c in sweep if c.rollouts_per_problem in (4, 32)]
    axes = Figure().subplots()
    panels.arms(axes, {"one": chosen, "two": chosen})
    assert labels(axes) == ["one", "two", "n=4", "n=32"]
    width = [line.get_linewidth() for line in axes.lines]
    order = [line.get_zorder() for line in axes.lines]
    assert width[0] == width[1] > width[2] == width[3]
    assert order[0] < order[2]


@pytest.mark.heavy
def test_every_text_of_a_figure_is_large_enough_and_panels_wrap():
    (one,) = [f for f in figure_list.FIGURES if f.number == "15"]
    drawn, _ = figures.draw(one, [c for c in columns() if c.name == "grid"])
    assert drawn.axes[0].get_gridspec().ncols == figures.WIDEST
    assert drawn.axes[0].get_gridspec().nrows == 2
    for axes in drawn.axes:
        if axes.get_legend() is not None:
            sizes = {t.get_fontsize() for t in axes.get_legend().get_texts()}
            assert min(sizes) >= panels.SMALLEST
        assert all(t.get_fontsize() >= panels.SMALLEST for t in axes.get_xticklabels())
