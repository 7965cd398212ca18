"""Figures for papers: what each one draws, and the files."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from importlib import resources
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from isocompute.errors import InputError
from isocompute.report import StudyView, figures
from isocompute.report.style import series_styles
from report_fixtures import FixtureFit, N, make_fit, make_plan, with_chances

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


JOINT = partial(make_fit, world="joint_capped")


@pytest.fixture(scope="module")
def fit() -> FixtureFit:
    return make_fit()


def changed(fit: FixtureFit, **keys: object) -> FixtureFit:
    """The fixture with other values under some keys of its document."""
    return FixtureFit(document={**fit.document, **keys}, curves=fit.curves)


def last_line(axes: Axes) -> np.ndarray:
    return np.asarray(axes.lines[-1].get_xydata())


def test_learning_curves_draw_every_configuration_in_its_colour(fit: FixtureFit) -> None:
    axes = figures.learning_curves(fit).axes[0]
    styles = series_styles([(16, n) for n in N])
    for row in fit.document["curves"]:
        style = styles[(16, row["rollouts_per_problem"])]
        score = [at["score"] for at in row["at"]]
        drawn = [line for line in axes.lines if line.get_linestyle() != "None"
                 and to_hex(line.get_color()) == style.light]  # fmt: skip
        assert np.allclose(drawn[0].get_ydata()[-5:], score[-5:])
    assert len(axes.collections) == len(N)  # an interval each
    assert {t.get_text() for t in axes.texts} == {f"n={n}" for n in N}
    assert axes.get_xlabel() == "training rollouts"
    assert axes.get_ylabel() == "avg@4, validation"
    assert axes.get_xscale() == "log"
    with pytest.raises(InputError, match="needs fitted curves, but got 0"):
        figures.learning_curves(changed(fit, curves=[]))


def test_a_curve_is_dotted_beyond_its_data_and_absent_before_them(fit: FixtureFit) -> None:
    rows = copy.deepcopy(fit.document["curves"])
    for at in rows[0]["at"]:
        at["extrapolated"] = at["x"] > 1e6
    late = [replace(c, rollouts_K=c.rollouts_K[8:], score_K=c.score_K[8:]) for c in fit.curves]
    one = FixtureFit(document={**fit.document, "curves": rows}, curves=late)
    lines = [a for a in figures.learning_curves(one).axes[0].lines if a.get_linestyle() != "None"]
    solid, dotted = lines[0], lines[1]
    first = min(x for c in late for x in c.rollouts_K if c.rollouts_per_problem == 8 and x > 0)
    assert solid.get_xdata()[0] == pytest.approx(first)
    assert solid.get_xdata()[-1] == dotted.get_xdata()[0] <= 1e6
    assert dotted.get_xdata()[-1] > 8e6
    assert dotted.get_linewidth() < solid.get_linewidth()


def test_labels_at_the_ends_do_not_cover_each_other(fit: FixtureFit) -> None:
    axes = figures.learning_curves(fit).axes[0]
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    bottom, top = axes.get_ylim()
    assert min(np.diff(heights)) > 0.035 * (top - bottom)


@pytest.mark.heavy
def test_many_configurations_are_labelled_by_n() -> None:
    texts = [t.get_text() for t in figures.learning_curves(JOINT()).axes[0].texts]
    assert sorted(texts) == sorted(f"n={n}" for n in N)


def test_title_can_be_given(fit: FixtureFit) -> None:
    assert figures.frontier(fit, title="Mine").axes[0].get_title(loc="left") == "Mine"
    plain = figures.frontier(fit).axes[0]
    assert plain.get_title(loc="left") == "Frontier"
    assert plain.get_title(loc="right") == "Bₚ = 16 held fixed"
    assert figures.law(fit, title="$x$").axes[0].get_title(loc="left") == r"\$x\$"


def test_frontier_names_its_leaders_and_how_probable_they_are(fit: FixtureFit) -> None:
    parts = [
        {**part, "from": lo, "to": hi, "rollouts_per_problem": n, "probability_best": p,
         "extrapolated": out}
        for part, (lo, hi, n, p, out) in zip(
            fit.document["frontier"],
            [(1e4, 1e5, 8, 0.4, True), (1e5, 1e6, 8, 0.93, False), (1e6, 4e6, 512, 1.0, False)],
            strict=False)
    ]  # fmt: skip
    axes = figures.frontier(changed(fit, frontier=parts)).axes[0]
    assert [t.get_text() for t in axes.texts] == ["n=8\n93%", "n=512\n>99%"]
    thick = [line for line in axes.lines if line.get_linewidth() > 2]
    assert [line.get_xdata()[[0, -1]].tolist() for line in thick] == [
        pytest.approx([part["from"], part["to"]]) for part in parts
    ]
    at = {one["x"]: one["score"] for one in fit.document["curves"][0]["at"]}  # of n = 8
    inside = [x for x in at if 1e5 < x < 1e6]
    assert thick[1].get_xdata()[1:-1] == pytest.approx(inside)
    assert thick[1].get_ydata()[1:-1] == pytest.approx([at[x] for x in inside])
    assert thick[0].get_linestyle() != "-"


def test_law_draws_interval_sigmoid_others_and_the_plan(fit: FixtureFit) -> None:
    figure = figures.law(fit, others=[("published:x", fit)], plan=make_plan())
    axes, (legend,) = figure.axes[0], figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [
        "best n",
        "the paper's sigmoid",
        "best n of published:x",
        "plan: n=256",
    ]
    band = axes.collections[0].get_paths()[0].vertices
    last = fit.document["best"][-1]
    at_end = band[np.isclose(band[:, 0], last["x"])][:, 1]
    assert {round(v, 6) for v in at_end} == {round(v, 6) for v in last["interval"]}
    law = fit.document["law"]
    (sigmoid,) = [a for a in axes.lines if a.get_label() == "the paper's sigmoid"]
    x = np.asarray(sigmoid.get_xdata())
    expected = 2 ** (law["b"] + law["L"] / (1 + np.exp(-law["k"] * (np.log10(x) - law["x0"]))))
    assert np.allclose(sigmoid.get_ydata(), expected)
    flat = changed(fit, law={**law, "form": "constant", "L": 0.0, "k": None, "x0": None})
    labels = [t.get_text() for t in figures.law(flat).legends[0].get_texts()]
    assert labels == ["best n"]


def test_best_n_is_dotted_where_not_all_were_compared(fit: FixtureFit) -> None:
    rows = [{**row, "extrapolated": row["x"] > 1e6} for row in fit.document["best"]]
    axes = figures.law(changed(fit, best=rows)).axes[0]
    (solid,) = [line for line in axes.lines if line.get_label() == "best n"]
    known = np.isfinite(np.asarray(solid.get_ydata(), dtype=float))
    assert known.tolist() == [not row["extrapolated"] for row in rows]
    (dotted,) = [line for line in axes.lines if len(line.get_xdata()) == len(rows)
                 and line is not solid]  # fmt: skip
    assert np.isfinite(dotted.get_ydata()).all()


def test_the_legend_of_a_law_covers_nothing(fit: FixtureFit) -> None:
    other = fit
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


def of_batch(fit: FixtureFit) -> FixtureFit:
    """The fixture as if a batch of 8,192 had been held fixed."""
    at = [
        {"x": row["x"] / 8192, "problems_per_batch": 8192 / row["rollouts_per_problem"],
         "interval": [8192 / row["interval"][1], 8192 / row["interval"][0]]}
        for row in fit.document["law"]["at"]
    ]  # fmt: skip
    return changed(
        fit,
        setting={"kind": "fixed_batch_size", "value": 8192},
        law={**fit.document["law"], "variable": "steps"},
        law_problems_per_batch={"variable": "steps", "at": at},
    )


def test_law_of_a_fixed_batch_stands_on_update_steps(fit: FixtureFit) -> None:
    axes = figures.law(of_batch(fit), plan=make_plan()).axes[0]
    assert axes.get_xlabel() == "update steps"
    assert axes.get_xlim()[1] < 2000


def test_law_of_problems_per_batch_falls_where_n_rises(fit: FixtureFit) -> None:
    moved = of_batch(fit)
    axes = figures.law_problems_per_batch(moved, title="T").axes[0]
    at = moved.document["law_problems_per_batch"]["at"]
    assert np.allclose(last_line(axes)[:, 1], [row["problems_per_batch"] for row in at])
    assert axes.get_ylabel() == "problems per batch, Bₚ"
    assert axes.get_title(loc="left") == "T"
    with pytest.raises(InputError, match="needs a law of problems_per_batch"):
        figures.law_problems_per_batch(fit)


def test_a_best_n_at_one_budget_is_no_figure(fit: FixtureFit) -> None:
    one = changed(fit, best=fit.document["best"][:1])
    with pytest.raises(InputError, match="the best n needs at least 2 budgets, but got 1"):
        figures.law(one)


def test_the_papers_method_stands_by_width_of_its_bins(fit: FixtureFit) -> None:
    paper = fit.document["paper"]
    figure = figures.paper_method(fit, title="T")
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["best n", *(f"paper's method, bins of {w}" for w in (0.002, 0.001, 0.004))]
    assert figure.axes[0].get_title(loc="left") == "T"
    lines = {a.get_label(): a for a in figure.axes[0].lines}
    law, drawn = paper["by_bin_width"][1]["law"], lines[labels[3]]
    x = np.asarray(drawn.get_xdata())
    expected = law["b"] + law["L"] / (1 + np.exp(-law["k"] * (np.log10(x) - law["x0"])))
    assert np.allclose(np.log2(drawn.get_ydata()), expected)
    published = {"sources": ["published:qwen2.5-7b-easy"]}
    beside = figures.paper_method(changed(fit, provenance=published))
    assert beside.legends[0].get_texts()[-1].get_text() == "as the study printed it"
    with pytest.raises(InputError, match="needs its law, but got none: too few records"):
        figures.paper_method(changed(fit, paper={"refused": "too few records"}))


def test_direction_shows_every_pair_and_the_path_of_the_best() -> None:
    fit = JOINT()
    rows = [
        {"x": x, "problems_per_batch": b, "tested_rollouts_per_problem": n, "extrapolated": out}
        for x, b, n, out in (
            (1e3, 16, 512, True), (1e5, 64, 8, False), (2e5, 64, 8, False), (4e5, 64, 64, False),
            (8e5, 16, 512, False))
    ]  # fmt: skip
    axes = figures.direction(changed(fit, best=rows), title="T").axes[0]
    assert axes.get_title(loc="left") == "T"
    (path,) = [a for a in axes.lines if len(a.get_xdata()) == 3]
    assert path.get_xydata().tolist() == [[64, 8], [64, 64], [16, 512]]
    assert [t.get_text() for t in axes.texts] == ["100k to 200k", "400k", "800k"]
    (tested,) = [a for a in axes.lines if len(a.get_xdata()) == len(fit.document["curves"])]
    assert [64, 8] in tested.get_xydata().tolist()
    with pytest.raises(InputError, match="needs at least 2 B_p, but got 7 configurations"):
        figures.direction(make_fit())


def test_probabilities_stack_where_they_are_known(fit: FixtureFit) -> None:
    known = {
        "x": [1e5, 1e6, 4e6],
        "configurations": [[16, 8], [16, 512]],
        "best": [[0.9, 0.2, 0.0], [0.1, 0.8, 1.0]],
    }
    axes = figures.probability_best(changed(fit, probabilities=known), title="T").axes[0]
    assert len(axes.collections) == 2
    assert sorted(t.get_text().strip() for t in axes.texts) == ["n=512", "n=8"]
    assert axes.get_ylim() == (0, 1)
    assert axes.get_title(loc="left") == "T"
    for draw in (figures.probability_best, figures.loss_by_n):
        with pytest.raises(InputError, match="at least 2 budgets that were compared, but got 0"):
            draw(changed(fit, probabilities={}))


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


@pytest.mark.heavy
def test_save_figures_writes_every_figure_in_every_format(tmp_path: Path, fit: FixtureFit) -> None:
    fits = [("a", fit)]
    made = figures.save_figures(fits, tmp_path / "f", ("svg",), plan=make_plan(), study=VIEW)
    stems = [
        "1-learning-curves",
        "1-frontier",
        "1-law",
        "1-probability-best",
        "1-loss-by-n",
        "1-backtest",
        "1-paper-method",
        "study-scores",
        "study-landscape",
    ]
    assert [p.name for p in made] == [f"{s}.svg" for s in stems]
    assert all(p.stat().st_size > 5000 for p in made)
    again = figures.save_figures(fits, tmp_path / "g", ("svg",))
    assert [p.name for p in again] == [f"{s}.svg" for s in stems[:7]]
    assert again[0].read_bytes() == made[0].read_bytes()  # no dates, no random names
    assert again[2].read_bytes() != made[2].read_bytes()  # the plan stands in the law


def test_the_law_of_each_fit_is_drawn_beside_the_others_and_the_plan_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}

    def stub(kind: str) -> Any:
        def draw(fit: Any, **beside: Any) -> str:
            drawn[f"{fit.name}-{kind}"] = beside
            return kind

        return SimpleNamespace(kind=kind, there=lambda d: kind != "paper-method", draw=draw)

    kinds = ("law", "loss-by-n", "frontier", "paper-method")
    monkeypatch.setattr(figures, "FIGURES", tuple(map(stub, kinds)))
    monkeypatch.setattr(figures, "_save", lambda figure, path: path)
    fits: Any = [(n, SimpleNamespace(name=n, document={})) for n in ("a", "b")]
    made = figures.save_figures(fits, tmp_path, ("svg",), plan={"of": "a"})
    assert [p.stem for p in made] == [f"{i}-{kind}" for i in (1, 2) for kind in kinds[:3]]
    assert drawn == {
        "a-law": {"plan": {"of": "a"}, "others": fits[1:]},
        "b-law": {"plan": None, "others": fits[:1]},
        "a-loss-by-n": {"plan": {"of": "a"}}, "b-loss-by-n": {"plan": None},
        "a-frontier": {}, "b-frontier": {},
    }  # fmt: skip


def test_every_figure_of_the_page_has_its_builder() -> None:
    script = (resources.files("isocompute.report") / "assets" / "report.js").read_text("utf-8")
    table = script[script.index("const builders = {") : script.index("// ---- drawing")]
    for one in figures.FIGURES:
        built = f'"{one.kind}":' in table or f"    {one.kind}:" in table
        assert built is one.on_page, one.kind


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


def test_backtest_draws_errors_and_intervals_about_zero(fit: FixtureFit) -> None:
    row = {
        "problems_per_batch": 16,
        "rollouts_per_problem": 8,
        "cut": 1e6,
        "x": 2e6,
        "observed": 0.6,
        "predicted": 0.62,
        "best_so_far": 0.58,
        "interval": [0.59, 0.65],
    }
    figure = figures.backtest(changed(fit, backtest={"rows": [row]}), title="T")
    drawn = [list(np.round(line.get_ydata(), 9)) for line in figure.axes[0].lines]
    assert [-0.01, 0.05] in drawn  # the interval
    assert [-0.02] in drawn  # no change
    assert [0.02] in drawn  # the model
    assert figure.axes[0].get_title(loc="left") == "T"
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["n=8"]
    with pytest.raises(InputError, match="needs held-out evaluations, but got 0"):
        figures.backtest(changed(fit, backtest={}))


def test_many_configurations_need_no_legend_of_the_backtest() -> None:
    assert figures.backtest(JOINT()).legends == []


def test_loss_is_that_of_the_draws_and_its_labels_are_apart(fit: FixtureFit) -> None:
    axes = figures.loss_by_n(fit, title="T").axes[0]
    lost = np.stack([line.get_ydata() for line in axes.lines])
    assert np.allclose(lost, fit.document["probabilities"]["regret"])
    assert axes.yaxis_inverted()
    heights = sorted(text.xy[1] for text in axes.texts)  # type: ignore[attr-defined]
    bottom, top = axes.get_ylim()
    assert min(np.diff(heights)) > 0.035 * abs(top - bottom)
    assert axes.get_title(loc="left") == "T"


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
    assert gap.texts[0].xy == pytest.approx((1.01, 0.2))  # type: ignore[attr-defined]
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


@pytest.mark.parametrize(("unit", "at"), [("rollouts", 4e6), ("gpu-hours", 310), ("tokens", 6.4e9)])
def test_the_plan_in_the_law_stands_at_its_budget_in_the_unit_of_the_axis(
    fit: FixtureFit, unit: str, at: float
) -> None:
    ring = last_line(figures.law(changed(fit, unit=unit), plan=make_plan()).axes[0])
    assert ring.tolist() == [[at, 256]]


@pytest.mark.parametrize("draw", [figures.probability_best, figures.loss_by_n])
def test_chances_and_losses_go_on_to_the_plan(fit: FixtureFit, draw: Any) -> None:
    end = fit.document["support"][1]
    plan = with_chances(make_plan(4e7), [end, 2e7, 4e7])
    axes = draw(fit, plan=plan).axes[0]
    assert axes.get_xlim()[1] == 4e7
    assert last_line(axes)[:, 0].tolist() == [end, end]  # where all were last compared
    assert draw(fit).axes[0].get_xlim()[1] == pytest.approx(end)
    inside = draw(fit, plan=with_chances(make_plan(), [4e6])).axes[0]
    assert inside.get_xlim()[1] == pytest.approx(end)


def test_the_plan_of_a_fixed_batch_stands_at_its_steps(fit: FixtureFit) -> None:
    ring = last_line(figures.law(of_batch(fit), plan=make_plan()).axes[0])
    assert ring.tolist() == [[4e6 / 8192, 256]]
