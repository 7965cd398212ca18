"""Figures for papers: what each one draws, and the files."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex

from isocompute.errors import InputError
from isocompute.report import StudyView, figures
from isocompute.report.style import series_styles
from report_fixtures import FixtureFit, make_fit, make_plan

GROUPS = [
    {"bp": 32, "n": 8, "samples": 2, "problems": 10, "counts": [5, 3, 2]},
    {"bp": 32, "n": 64, "samples": 2, "problems": 10, "counts": [2, 3, 5]},
]
VIEW = StudyView(
    name="s",
    landscapes=[
        {"rollouts": 1000.0, "groups": GROUPS[::-1]},
        {"rollouts": 9000.0, "groups": GROUPS},
    ],
    scores={
        "best@2": [
            {"bp": 32, "n": 8, "value": 0.5, "interval": [0.4, 0.6], "n_runs": 3},
            {"bp": 32, "n": 64, "value": 0.8, "interval": None, "n_runs": 1},
        ]
    },
    scores_at=9000.0,
)


@pytest.fixture(scope="module")
def fit() -> FixtureFit:
    return make_fit(seeds=1, points=20)


def test_learning_curves_draw_every_configuration_in_its_colour(fit: FixtureFit) -> None:
    figure = figures.learning_curves(fit)
    axes = figure.axes[0]
    styles = series_styles(fit.records)
    for pair, (x, y) in fit.records.items():
        drawn = [
            line
            for line in axes.lines
            if np.array_equal(line.get_xdata(), x) and np.array_equal(line.get_ydata(), y)
        ]
        assert [to_hex(line.get_color()) for line in drawn] == [styles[pair].light]
        assert drawn[0].get_marker() == styles[pair].marker
    assert {t.get_text() for t in axes.texts} == {f"n={n}" for _, n in fit.records}
    assert axes.get_xlabel() == "training rollouts"
    assert axes.get_ylabel() == "avg@4, validation"
    assert axes.get_xscale() == "log"


def test_labels_at_the_ends_do_not_cover_each_other(fit: FixtureFit) -> None:
    axes = figures.learning_curves(fit).axes[0]
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    bottom, top = axes.get_ylim()
    assert min(np.diff(heights)) > 0.035 * (top - bottom)


def test_many_configurations_are_labelled_by_n(fit: FixtureFit) -> None:
    records = {(b, n): xy for (_, n), xy in fit.records.items() for b in (8, 16)}
    rows = [{"problems_per_batch": b, "rollouts_per_problem": n} for b, n in records]
    document = {**fit.document, "curves": rows}
    joint = FixtureFit(document=document, curves=[], records=records)
    texts = [t.get_text() for t in figures.learning_curves(joint).axes[0].texts]
    assert sorted(texts) == sorted(f"n={n}" for _, n in fit.records)


def test_title_can_be_given(fit: FixtureFit) -> None:
    assert figures.frontier(fit, title="Mine").axes[0].get_title(loc="left") == "Mine"
    plain = figures.frontier(fit).axes[0]
    assert plain.get_title(loc="left") == "Frontier"
    assert plain.get_title(loc="right") == "Bₚ = 32 held fixed"
    assert figures.law(fit, title="$x$").axes[0].get_title(loc="left") == r"\$x\$"


def test_frontier_names_its_leaders_and_how_probable_they_are(fit: FixtureFit) -> None:
    texts = [t.get_text() for t in figures.frontier(fit).axes[0].texts]
    assert texts == ["n=8\n93%", "n=32\n71%", "n=128\n64%", "n=256\n82%", "n=512\n97%"]


def test_law_draws_interval_frontier_other_laws_and_the_plan(fit: FixtureFit) -> None:
    other = make_fit(seeds=1, points=6)
    figure = figures.law(fit, others=[("published:x", other)], plan=make_plan())
    axes, (legend,) = figure.axes[0], figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [
        "law",
        "law of published:x",
        "plan: n=256",
    ]
    band = axes.collections[0].get_paths()[0].vertices
    last = fit.document["law"]["at"][-1]
    at_end = band[np.isclose(band[:, 0], last["x"])][:, 1]
    assert {round(v, 6) for v in at_end} == {round(v, 6) for v in last["interval"]}
    assert figures.law(fit).legends == []


def test_the_legend_of_a_law_covers_nothing(fit: FixtureFit) -> None:
    other = make_fit(seeds=1, points=6)
    names = [f"published:{'long' * length}" for length in range(9)]
    for others in ([], names):
        figure = figures.law(fit, others=[(n, other) for n in others], plan=make_plan())
        figure.draw_without_rendering()
        found = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
        assert len(found) == 1
        box = found[0].get_window_extent()
        assert not box.overlaps(figure.axes[0].get_tightbbox())
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0


def test_law_of_a_fixed_batch_stands_on_update_steps(fit: FixtureFit) -> None:
    document = {**fit.document, "setting": {"kind": "fixed_batch_size", "value": 8192}}
    at = [{**row, "x": row["x"] / 8192} for row in document["law"]["at"]]
    document["law"] = {**document["law"], "variable": "steps", "at": at}
    moved = FixtureFit(document=document, curves=fit.curves, records=fit.records)
    axes = figures.law(moved, plan=make_plan()).axes[0]
    assert axes.get_xlabel() == "update steps"
    assert axes.get_xlim()[1] < 1000


def test_law_of_problems_per_batch_falls_where_n_rises(fit: FixtureFit) -> None:
    at = [
        {**row, "x": row["x"] / 8192, "problems_per_batch": 8192 / row["rollouts_per_problem"],
         "interval": [8192 / row["interval"][1], 8192 / row["interval"][0]]}
        for row in fit.document["law"]["at"]
    ]  # fmt: skip
    document = {
        **fit.document,
        "setting": {"kind": "fixed_batch_size", "value": 8192},
        "law": {**fit.document["law"], "variable": "steps", "at": at},
        "law_problems_per_batch": {"variable": "steps", "at": at},
    }
    moved = FixtureFit(document=document, curves=fit.curves, records=fit.records)
    axes = figures.law_problems_per_batch(moved, title="T").axes[0]
    line = axes.lines[-1].get_ydata()
    assert np.allclose(line, [row["problems_per_batch"] for row in at])
    assert axes.get_ylabel() == "problems per batch, Bₚ"
    assert axes.get_title(loc="left") == "T"
    with pytest.raises(InputError, match="needs a law of problems_per_batch"):
        figures.law_problems_per_batch(fit)


def test_no_law_is_refused_with_the_way_out(fit: FixtureFit) -> None:
    document = {**fit.document, "law": {"form": None, "at": []}}
    without = FixtureFit(document=document, curves=fit.curves, records=fit.records)
    with pytest.raises(InputError, match="needs a fitted law, but got form=None with 0 points"):
        figures.law(without)


def test_probabilities_stack_where_they_are_known(fit: FixtureFit) -> None:
    assert len(figures.probability_best(fit).axes[0].collections) == 5
    x = [1e5, 1e6, 4e6]
    best = [[0.9, 0.2, 0.0], [0.1, 0.8, 1.0]]
    document = {
        **fit.document,
        "probabilities": {"x": x, "configurations": [[32, 8], [32, 512]], "best": best},
    }
    full = FixtureFit(document=document, curves=fit.curves, records=fit.records)
    axes = figures.probability_best(full).axes[0]
    assert len(axes.collections) == 2
    assert [t.get_text().strip() for t in axes.texts] == ["n=8", "n=512"]
    assert axes.get_ylim() == (0, 1)


def test_scores_outline_the_best() -> None:
    axes = figures.scores(VIEW).axes[0]
    heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == [0.5, 0.8]
    widths = [to_hex(bar.get_edgecolor(), keep_alpha=True) for bar in axes.patches]
    assert widths[0].endswith("00")
    assert widths[1].endswith("ff")
    assert figures.scores(VIEW, title="T").get_suptitle() == "T"
    with pytest.raises(InputError, match="needs evaluations of a study, but 'e' has none"):
        figures.scores(StudyView(name="e"))


def test_landscape_shows_shares_at_the_chosen_budget() -> None:
    axes = figures.landscape(VIEW).axes[0]
    assert [p.get_height() for p in axes.patches] == [0.5, 0.3, 0.2, 0.2, 0.3, 0.5]  # type: ignore[attr-defined]
    assert axes.get_title(loc="left") == "Landscape at 9,000 rollouts"
    first = figures.landscape(VIEW, step=0, title="start").axes[0]
    assert first.get_title(loc="left") == "start"
    with pytest.raises(InputError, match="needs outcomes per problem, but 'e' has none"):
        figures.landscape(StudyView(name="e"))


def test_style_of_the_caller_is_left_alone(fit: FixtureFit) -> None:
    before = dict(mpl.rcParams)
    figures.learning_curves(fit)
    assert dict(mpl.rcParams) == before


@pytest.mark.long
def test_save_figures_writes_every_figure_in_every_format(tmp_path: Path, fit: FixtureFit) -> None:
    fits = [("a", fit)]
    made = figures.save_figures(fits, tmp_path / "f", ("svg",), plan=make_plan(), study=VIEW)
    stems = [
        "1-learning-curves",
        "1-frontier",
        "1-law",
        "1-probability-best",
        "1-loss-by-n",
        "study-scores",
        "study-landscape",
    ]
    assert [p.name for p in made] == [f"{s}.svg" for s in stems]
    assert all(p.stat().st_size > 5000 for p in made)
    again = figures.save_figures(fits, tmp_path / "g", ("svg",))
    assert [p.name for p in again] == [f"{s}.svg" for s in stems[:5]]
    assert again[0].read_bytes() == made[0].read_bytes()  # no dates, no random names


@pytest.mark.long
def test_formats(tmp_path: Path) -> None:
    assert signature(figures.save_figures).parameters["formats"].default == ("pdf", "svg", "png")
    view = StudyView(name="s", scores=VIEW.scores)
    made = figures.save_figures([], tmp_path, ("pdf", "png"), study=view)
    assert [p.name for p in made] == ["study-scores.pdf", "study-scores.png"]
    assert made[0].read_bytes().startswith(b"%PDF")
    assert made[1].read_bytes().startswith(b"\x89PNG")


def test_formats_that_are_not_known_are_refused(tmp_path: Path, fit: FixtureFit) -> None:
    with pytest.raises(InputError, match="formats must be some of pdf, svg, png, but got"):
        figures.save_figures([("a", fit)], tmp_path, ("gif",))
    with pytest.raises(InputError, match="formats must be some of"):
        figures.save_figures([("a", fit)], tmp_path, ())


def checked(fit: FixtureFit) -> FixtureFit:
    """The fixture with a back-test in rows and the law under two other rules."""
    row = {"problems_per_batch": 32, "rollouts_per_problem": 8, "cut": 1e6, "x": 2e6,
           "observed": 0.6, "predicted": 0.62, "best_so_far": 0.58, "interval": [0.59, 0.65]}
    rules = [
        {"rule": "2 bins per doubling", "x": [1e5, 1e6], "rollouts_per_problem": [8, 64]},
        {"rule": "too coarse", "x": [], "rollouts_per_problem": None, "refused": "few bins"},
    ]
    test = {**fit.document["backtest"], "rows": [row]}
    document = {**fit.document, "backtest": test, "sensitivity": rules}
    return FixtureFit(document=document, curves=fit.curves, records=fit.records)


def test_backtest_draws_errors_and_intervals_about_zero(fit: FixtureFit) -> None:
    axes = figures.backtest(checked(fit), title="T").axes[0]
    drawn = [list(np.round(line.get_ydata(), 9)) for line in axes.lines]
    assert [-0.01, 0.05] in drawn  # the interval
    assert [-0.02] in drawn  # best so far
    assert [0.02] in drawn  # the curve
    assert axes.get_title(loc="left") == "T"
    with pytest.raises(InputError, match="needs held-out evaluations, but got 0"):
        figures.backtest(fit)


def test_sensitivity_draws_each_rule_that_was_not_refused(fit: FixtureFit) -> None:
    axes = figures.sensitivity(checked(fit), title="T").axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["as fitted", "2 bins per doubling"]
    assert axes.get_title(loc="left") == "T"
    with pytest.raises(InputError, match="needs a law under other rules, but got 0 rules"):
        figures.sensitivity(fit)


def test_every_rule_of_the_sensitivity_table_has_its_own_dash(fit: FixtureFit) -> None:
    one = checked(fit)
    rule = one.document["sensitivity"][0]
    rules = [{**rule, "rule": f"rule {i}"} for i in range(7)]  # as many as Gompertz sweeps have
    many = FixtureFit(document={**one.document, "sensitivity": rules}, curves=(), records=())
    lines = figures.sensitivity(many).axes[0].lines
    dashes = {str(line._unscaled_dash_pattern) for line in lines if "rule" in line.get_label()}
    assert len(dashes) == len(rules)


def test_loss_is_zero_for_who_leads_and_its_labels_are_apart(fit: FixtureFit) -> None:
    axes = figures.loss_by_n(fit, title="T").axes[0]
    lost = np.stack([line.get_ydata() for line in axes.lines])
    assert np.allclose(np.nanmin(lost, axis=0), 0)
    assert np.nanmax(lost) > 0.01
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    bottom, top = axes.get_ylim()
    assert min(np.diff(heights)) > 0.035 * abs(top - bottom)
    assert axes.get_title(loc="left") == "T"
    empty = FixtureFit(document={**fit.document, "curves": []}, curves=[], records={})
    with pytest.raises(InputError, match="needs fitted curves, but got 0"):
        figures.loss_by_n(empty)


def test_figures_of_a_studys_records() -> None:
    line = {"bp": 32, "n": 8, "run": "a", "x": [1e3, 1e4], "y": [1.0, None]}
    view = StudyView(
        name="s",
        health={"entropy": [line], "kl": [line], "reward": [line], "loss": [line]},
        train_test=[{"bp": 32, "n": 8, "x": [1e3, 1e4], "train": [0.4, 0.7],
                     "validation": [0.4, 0.5]}],
        difficulty={"name": "train", "samples": 2, "counts": [3, 2, 1]},
    )  # fmt: skip
    gap = figures.train_test_gap(view, title="G").axes[0]
    assert np.allclose(gap.lines[-1].get_ydata(), [0, 0.2])
    assert gap.get_title(loc="left") == "G"
    bars = figures.difficulty(view, title="D").axes[0]
    assert [p.get_height() for p in bars.patches] == [3, 2, 1]  # type: ignore[attr-defined]
    assert bars.get_title(loc="left") == "D"
    panels = figures.health(view, title="H")
    assert panels.get_suptitle() == "H"
    assert [axes.get_title("left") for axes in panels.axes if axes.axison] == list(view.health)
    for draw, words in (
        (figures.train_test_gap, "needs outcomes of training batches, but 'e' has none"),
        (figures.difficulty, "needs pass rates, but 'e' has none"),
        (figures.health, "needs step records, but 'e' has none"),
    ):
        with pytest.raises(InputError, match=words):
            draw(StudyView(name="e"))


def test_the_plan_in_the_law_has_its_interval(fit: FixtureFit) -> None:
    plan = {**make_plan(), "rollouts_per_problem_interval": [200, 400]}
    drawn = [list(line.get_ydata()) for line in figures.law(fit, plan=plan).axes[0].lines]
    assert [200, 400] in drawn
    open_end = {**plan, "rollouts_per_problem_interval": [200, None]}
    drawn = [list(line.get_ydata()) for line in figures.law(fit, plan=open_end).axes[0].lines]
    assert [200, 400] not in drawn
