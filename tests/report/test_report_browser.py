"""The report opened in a real browser: what it draws, asks for, and lets people do.

Needs the extra [browser] and a Chromium (any: set CHROMIUM to its path). Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser_tools import Opened, started_browser  # noqa: F401  # a fixture
from isocompute.answers.fit import fit_sweep
from isocompute.report import StudyView, render_report
from report_fixtures import FixtureFit, make_fit, make_plan, planted_fit, with_chances

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>\x1b[31m"
GROUP = {"samples": 4, "problems": 100}


def make_view(name: str) -> StudyView:
    """A study with something for every figure; n=8 and n=64 at B_p=32."""
    lines = [
        {
            "bp": 32,
            "n": n,
            "run": f"{name} {n}",
            "x": [1e4, 1e5, 1e6],
            "y": [2.0, 1.5, 1.0 + n / 100],
        }
        for n in (8, 64)
    ]
    return StudyView(
        name=name,
        problem_set=name,
        runs=[
            {"run": f"{name} {n}", "problems_per_batch": 32, "rollouts_per_problem": n, "seed": 0,
             "state": "done", "rollouts": 1000 * n, "evaluation_rollouts": 10, "tokens": 5}
            for n in (8, 64)
        ],
        health={"entropy": lines, name: lines},
        landscapes=[
            {
                "rollouts": budget,
                "groups": [
                    {"bp": 32, "n": n, **GROUP, "counts": [60 - 10 * i, 10, 10, 10, 10 + 10 * i]}
                    for n in (8, 64)
                ],
            }
            for i, budget in enumerate((0.0, 1e4, 1e5))
        ],
        scores={
            metric: [
                {"bp": 32, "n": n, "value": 0.3 + n / 200, "interval": [0.2, 0.8], "n_runs": 3}
                for n in (8, 64)
            ]
            for metric in ("avg@4", "best@4", name)
        },
        scores_at=1e5,
        train_test=[
            {"bp": 32, "n": n, "x": [1e4, 1e5], "train": [0.4, 0.6], "validation": [0.4, 0.5]}
            for n in (8, 64)
        ],
        difficulty={"name": name, "samples": 4, "counts": [5, 4, 3, 2, 1]},
        warnings=[{"code": "entropy_collapse", "message": name}],
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fits, a plan and a study; every name is hostile."""
    fits = [
        (HOSTILE, make_fit(name=HOSTILE, metric=HOSTILE)),
        ("beside", make_fit(world="joint_capped")),
    ]
    folder = tmp_path_factory.mktemp("report")
    return render_report(fits, make_plan(), folder / "r.html", study=make_view(HOSTILE))


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    page = Opened(browser, report)
    yield page
    page.context.close()


def test_published_curves_open_quietly_and_are_drawn(browser: Any, tmp_path: Path) -> None:
    from isocompute.sources import load_curves

    names = ["published:qwen2.5-7b-easy", "published:qwen2.5-7b-hard"]
    fits = [(name, fit_sweep(load_curves([name]), draws=40, sources=[name])) for name in names]
    path = render_report(fits, None, tmp_path / "published.html")
    for width in (1280, 390):
        opened = Opened(browser, path, width)
        assert opened.console == []
        assert {url for url in opened.asked if not url.startswith(("data:", "blob:"))} == {
            path.as_uri()
        }
        opened.unfold()
        states = opened.page.eval_on_selector_all(
            ".figure", "figures => figures.map(f => [f.dataset.kind, f.dataset.state])"
        )
        assert {state for _, state in states} == {"drawn"}, states
        assert {kind for kind, _ in states} == {
            "learning-curves", "law", "probability-best", "loss-by-n", "backtest", "paper-method"
        }  # fmt: skip
        assert opened.console == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        opened.context.close()


def drawn(opened: Opened, kind: str, which: str) -> list[Any]:
    """Traces of a figure as [x, y], of those for which an expression of trace t holds."""
    found: list[Any] = opened.figure(kind).evaluate(
        "figure => figure.querySelector('.plot').data.filter(t => " + which + ")"
        ".map(t => [Array.from(t.x), Array.from(t.y)])"
    )
    return found


def test_the_page_draws_what_the_document_says(browser: Any, tmp_path: Path) -> None:
    document = planted_fit("joint_capped").document
    path = render_report([("joint", planted_fit("joint_capped"))], None, tmp_path / "r.html")
    opened = Opened(browser, path)
    lines = drawn(opened, "learning-curves", "t.mode === 'lines' && t.line.width === 2.2")
    assert len(lines) == len(document["curves"])
    for x, y in lines:
        own = next(row["at"] for row in document["curves"] if row["at"][-1]["score"] == y[-1])
        assert (x[-1], len(x)) == (own[-1]["x"], len(y))
    inside = [row for row in document["best"] if not row["extrapolated"]]
    (best,) = drawn(opened, "law", "t.line && t.line.width === 3")
    np.testing.assert_allclose(best[1], [row["rollouts_per_problem"] for row in inside])
    law = document["law"]
    (sigmoid,) = drawn(opened, "law", "t.line && t.line.width === 1.3 && t.line.dash")
    z = law["k"] * (np.log10(sigmoid[0]) - law["x0"])
    np.testing.assert_allclose(np.log2(sigmoid[1]), law["b"] + law["L"] / (1 + np.exp(-z)))
    lost = drawn(opened, "loss-by-n", "t.mode === 'lines'")
    np.testing.assert_allclose([y for _, y in lost], document["probabilities"]["regret"])
    (path_of_best,) = drawn(opened, "direction", "t.mode === 'lines+markers+text'")
    last = inside[-1]
    assert [v[-1] for v in path_of_best] == [
        last["problems_per_batch"], last["tested_rollouts_per_problem"]
    ]  # fmt: skip
    widths = [row["bin_width"] for row in document["paper"]["by_bin_width"] if row.get("law")]
    paper = drawn(opened, "paper-method", "t.line && t.line.width === 1.4")
    assert len(paper) == 1 + len(widths)
    opened.context.close()


def test_axes_are_in_the_units_that_they_name_and_reach_the_plan(
    browser: Any, tmp_path: Path
) -> None:
    """Before, the back-test showed rollouts as GPU-hours, and no plan by them was marked."""
    fit = make_fit()
    rate = 1e4  # rollouts an hour
    for key in ("best", "frontier", "crossovers"):
        fit.document[key] = [{k: _per(v, rate) if k in ("x", "from", "to", "at") else v
                              for k, v in row.items()} for row in fit.document[key]]  # fmt: skip
    for row in fit.document["curves"]:
        row["at"] = [{**at, "x": at["x"] / rate} for at in row["at"]]
    known = fit.document["probabilities"]
    fit.document.update({
        "unit": "gpu-hours", "law": {**fit.document["law"], "variable": "gpu-hours"},
        "support": [_per(x, rate) for x in fit.document["support"]],
        "probabilities": {**known, "x": [_per(x, rate) for x in known["x"]]},
    })  # fmt: skip
    curves = [c.replace(gpu_hours_K=c.rollouts_K / rate) for c in fit.curves]
    cost = {"gpu_hours": 4000.0, "usd": None, "tokens": None}
    plan = with_chances(make_plan(4e7), [838.8608, 2000.0, 4000.0])
    plan |= {"law": {"unit": "gpu-hours"}, "cost": cost}
    page = render_report([("hours", FixtureFit(document=fit.document, curves=curves))], plan,
                         tmp_path / "r.html")  # fmt: skip
    opened = Opened(browser, page)
    titles = {kind: opened.axis(kind, "xaxis.title.text") for kind in (
        "learning-curves", "law", "probability-best", "loss-by-n", "backtest", "paper-method")}
    assert titles.pop("backtest") == "training rollouts"
    assert {*titles.values()} == {"GPU-hours"}
    (ring,) = drawn(opened, "law", "t.marker && t.marker.size === 15")
    assert ring == [[4000], [256]]
    for kind in ("law", "probability-best", "loss-by-n"):
        assert opened.axis(kind, "annotations[0].text") == "budget 4,000 "
        assert 10 ** opened.axis(kind, "xaxis.range[1]") >= 4000
    ends = [s["x0"] for s in opened.axis("loss-by-n", "shapes.map(s => ({x0: s.x0}))")]
    assert ends == pytest.approx([4000, 838.8608])
    opened.context.close()


def _per(value: float | None, rate: float) -> float | None:
    return None if value is None else value / rate


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_opens_quietly_and_draws_every_figure(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, report, width, scheme)
    assert opened.console == []
    assert opened.asked == [report.as_uri()] or all(
        url == report.as_uri() or url.startswith(("data:", "blob:")) for url in opened.asked
    )
    assert opened.dialogs == []
    opened.unfold()
    states = opened.page.eval_on_selector_all(
        ".figure",
        "figures => figures.map(f => [f.dataset.kind, f.dataset.state,"
        " f.querySelectorAll('.plot svg .trace, .plot svg .bars').length > 0])",
    )
    assert {kind for kind, *_ in states} == {
        "learning-curves", "law", "probability-best", "loss-by-n", "direction", "backtest",
        "paper-method", "scores", "landscape", "gap", "difficulty", "health",
    }  # fmt: skip
    assert all(state == "drawn" and full for _, state, full in states), states
    across = opened.page.evaluate("document.documentElement.scrollWidth")
    assert across <= width
    assert opened.page.evaluate("document.documentElement.dataset.theme") == scheme
    opened.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_no_serious_accessibility_fault(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, report, width, scheme)
    assert opened.faults() == []
    opened.context.close()


def test_hostile_names_are_shown_and_do_nothing(opened: Opened) -> None:
    assert opened.dialogs == []
    assert opened.page.locator("main img").count() == 0
    assert opened.page.locator("main b").filter(has_text="bold").count() == 0
    assert opened.page.locator("script").count() == 3
    heading = opened.page.locator("#fit-1 h2").inner_text()
    assert heading.startswith("</script><script>alert(1)</script><img src=x onerror=alert(2)>")
    assert "\\u001b[31m" in heading


def test_theme_switch_recolours_page_and_figures(opened: Opened) -> None:
    read = (
        "() => [getComputedStyle(document.body).backgroundColor,"
        " document.documentElement.dataset.theme]"
    )
    light = opened.page.evaluate(read)
    before = opened.axis("law", "xaxis.gridcolor")
    opened.page.get_by_role("button", name="Dark").click()
    dark = opened.page.evaluate(read)
    assert (light[1], dark[1]) == ("light", "dark")
    assert light[0] != dark[0]
    assert opened.axis("law", "xaxis.gridcolor") != before
    assert opened.page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"
    opened.page.get_by_role("button", name="Auto").click()
    assert opened.page.evaluate(read)[1] == "light"


def test_scale_switch_changes_every_budget_axis(opened: Opened) -> None:
    kinds = ("learning-curves", "law", "probability-best", "loss-by-n", "gap", "health")
    assert {opened.axis(kind, "xaxis.type") for kind in kinds} == {"log"}
    opened.page.get_by_role("button", name="Linear").click()
    assert {opened.axis(kind, "xaxis.type") for kind in kinds} == {"linear"}
    assert opened.axis("law", "yaxis.type") == "log"
    opened.page.get_by_role("button", name="Log", exact=True).click()
    assert opened.axis("learning-curves", "xaxis.type") == "log"


def test_chips_select_configurations_in_every_figure(opened: Opened) -> None:
    kinds = ("learning-curves", "loss-by-n", "gap", "landscape")
    before = {kind: opened.traces(kind) for kind in kinds}
    for label in ("16 × 8", "32 × 8"):  # of the sweep, and of the study
        chip = opened.page.locator(".chip").get_by_text(label, exact=True)
        chip.click()
        assert chip.get_attribute("aria-pressed") == "false"
    assert all(opened.traces(kind) < count for kind, count in before.items())
    opened.page.get_by_role("button", name="All").click()
    assert {kind: opened.traces(kind) for kind in before} == before


def test_runs_can_be_taken_out_one_by_one(opened: Opened) -> None:
    points = "figure => figure.querySelector('.plot').data.reduce((s, t) => s + t.x.length, 0)"
    before = opened.figure("learning-curves").evaluate(points)
    box = opened.page.locator("#fit-1 details.runs")
    box.locator("summary").click()
    first = box.locator("input").first
    first.focus()
    opened.page.keyboard.press("Space")
    assert not first.is_checked()
    assert opened.figure("learning-curves").evaluate(points) < before
    assert "<img src=x" in box.inner_text()  # a hostile name, as text
    first.check()
    assert opened.figure("learning-curves").evaluate(points) == before


def test_slider_moves_the_landscape_through_training(opened: Opened) -> None:
    figure = opened.figure("landscape")
    slider = figure.locator("input[type=range]")
    heights = "figure => figure.querySelector('.plot').data[0].y"
    last = figure.evaluate(heights)
    assert figure.locator("output").inner_text() == "100k rollouts"
    slider.focus()
    opened.page.keyboard.press("Home")
    assert figure.locator("output").inner_text() == "before training"
    assert slider.get_attribute("aria-valuetext") == "before training"
    assert figure.evaluate(heights) != last
    assert figure.evaluate(heights) == [0.6, 0.1, 0.1, 0.1, 0.1]


def test_hover_reads_beside_the_figure_and_lights_the_same_runs_elsewhere(opened: Opened) -> None:
    figure = opened.figure("probability-best", 0)
    figure.scroll_into_view_if_needed()
    opened.page.wait_for_timeout(200)
    law = opened.figure("law")
    law.scroll_into_view_if_needed()
    at = law.evaluate(
        """figure => {
          const plot = figure.querySelector('.plot'), full = plot._fullLayout;
          const box = plot.getBoundingClientRect();
          const curve = plot.data.findIndex((t) => t.mode === 'lines' && t.line.width === 9
            && t.y.every((v) => v === 512));
          return [box.x + full.xaxis._offset + full.xaxis.d2p(plot.data[curve].x[6]),
                  box.y + full.yaxis._offset + full.yaxis.d2p(512)];
        }"""
    )
    opened.page.mouse.move(at[0] - 2, at[1])
    opened.page.mouse.move(*at)
    opened.page.wait_for_timeout(300)
    readout = law.locator(".readout").inner_text()
    assert "n=512 leads from" in readout
    assert "; probability " in readout
    assert law.locator(".hoverlayer .hovertext").count() == 0  # nothing covers the number
    faded = opened.figure("learning-curves").evaluate(
        "f => [...f.querySelectorAll('.scatterlayer .trace')]"
        ".filter(g => g.style.opacity === '0.12').length"
    )
    assert faded > 0
    assert opened.page.locator(".chip.lit").inner_text().strip() == "16 × 512"


def test_figures_are_read_by_keyboard(opened: Opened) -> None:
    figure = opened.figure("learning-curves")
    figure.locator("div.plot").focus()
    opened.page.keyboard.press("ArrowRight")
    first = figure.locator(".readout").inner_text()
    opened.page.keyboard.press("ArrowRight")
    second = figure.locator(".readout").inner_text()
    opened.page.keyboard.press("ArrowUp")
    third = figure.locator(".readout").inner_text()
    assert "n=" in first
    assert len({first, second, third}) == 3
    assert "alert" not in "".join(opened.dialogs)


def test_everything_is_reached_by_tabbing(opened: Opened) -> None:
    reached = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        kind = opened.page.evaluate(
            "document.activeElement.closest('.figure')?.dataset.kind"
            " || document.activeElement.classList[0] || document.activeElement.tagName"
        )
        reached.add(kind)
    assert {"skip", "chip", "learning-curves", "law", "landscape", "health"} <= reached


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_first_screen_shows_its_chart_and_leads_to_the_cautions(
    browser: Any, report: Path, width: int
) -> None:
    opened = Opened(browser, report, width)
    sizes = opened.page.eval_on_selector_all(
        ".thumbnail text", "all => all.map(t => [t.textContent, t.getBoundingClientRect()])"
    )
    assert {"score", "rollouts (log scale)"} <= {said for said, _ in sizes}
    assert sum(said.startswith("n = ") for said, _ in sizes) == 7
    assert min(box["height"] for _, box in sizes) > 10  # pixels: readable
    assert max(box["right"] for _, box in sizes) <= width
    opened.page.locator(".verdict a").click()
    there = "() => { const y = document.querySelector('#notices').getBoundingClientRect().y;"
    opened.page.wait_for_function(f"{there} return y >= 0 && y < 450; }}", timeout=10_000)
    opened.context.close()


def test_prints_in_light_with_every_figure(opened: Opened) -> None:
    opened.page.get_by_role("button", name="Dark").click()
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert not opened.page.locator("details.numbers[open]").count()  # prints what is unfolded
    assert opened.axis("law", "width") == 660  # the width of a page, not of the window
    assert opened.page.pdf().startswith(b"%PDF")
    folded = opened.page.locator("#notices details .notices").first
    assert not folded.is_visible()
    opened.page.emulate_media(media="print")
    assert folded.is_visible()  # what is a note is printed, too
    opened.page.emulate_media(media="screen")
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.axis("law", "width") > 660
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_first_printed_page_holds_the_answer_down_to_its_scale(opened: Opened) -> None:
    """Before, A4 broke above the cost, and tore the scale of n from its numbers."""
    opened.page.set_viewport_size({"width": 688, "height": 1017})  # A4 within its margins
    opened.page.emulate_media(media="print")
    box = opened.page.locator("#answer > .legend").bounding_box()
    assert box["y"] + box["height"] < 1017


def test_a_figure_can_be_saved(opened: Opened, tmp_path: Path) -> None:
    with opened.page.expect_download() as download:
        opened.figure("law").get_by_role("button", name="Save SVG").click()
    assert download.value.suggested_filename == "isocompute-law-1.svg"
    download.value.save_as(tmp_path / "law.svg")
    assert "<svg" in (tmp_path / "law.svg").read_text("utf-8")
    assert opened.console == []


def test_words_are_there_without_scripts(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "256" in page.locator("#answer").inner_text()
    assert page.locator("#notices").is_visible()
    context.close()
