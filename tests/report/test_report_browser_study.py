"""The report of a study with records of everything, as `isocompute report` writes it.

One study is trained by the simulator in a few seconds: four values of n, three seeds, problems with
pass rates, the published curves beside it. The other is the quickstart's own, where it was run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser_tools import Opened, started_browser  # noqa: F401  # a fixture
from isocompute.cli import main

pytestmark = pytest.mark.browser

STUDY = """
name: everything
engine: simulator
engine_options: {interference: 0.7, knowledge: 0.3}
problems:
  train: {path: problems.jsonl, pass_rate: [0.3, 0.6]}
  validation: {held-out: {generated: simulated, options: {size: 100}}}
recipe: {learning_rate: 60, temperature: 1.0}
grid: {problems_per_batch: 8, rollouts_per_problem: {low: 4, high: 32}, seeds: 3}
budget: 16384
evaluation: {samples: 4, per_octave: 3, first: 256}
"""
KINDS = {
    "learning-curves", "law", "probability-best", "loss-by-n", "backtest", "paper-method", "scores",
    "landscape", "gap", "difficulty", "health",
}  # fmt: skip


@pytest.fixture(scope="module", params=["everything", "quickstart"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "quickstart":
        quickstart = os.environ.get("ISOCOMPUTE_QUICKSTART")
        if quickstart is None:
            pytest.skip("ISOCOMPUTE_QUICKSTART must name a finished quickstart (make test-browser)")
        return Path(quickstart) / "report.html"
    folder = tmp_path_factory.mktemp("study")
    rows = [
        {"id": f"p{i}", "prompt": f"p{i}", "answer": "1", "pass_rate": (i % 17) / 16}
        for i in range(300)
    ]
    (folder / "problems.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (folder / "s.yaml").write_text(STUDY)
    assert main(["run", str(folder / "s.yaml"), "-o", str(folder / "s"), "--workers", "0"]) == 0
    page = folder / "report.html"
    sources = [str(folder / "s"), "published:qwen2.5-7b-easy"]
    assert main(["report", *sources, "--budget", "3e4", "-o", str(page)]) == 0
    return page


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    page = Opened(browser, report)
    yield page
    page.context.close()


def test_prints_on_nine_pages_at_most(opened: Opened) -> None:
    margins = dict.fromkeys(("top", "bottom", "left", "right"), "1cm")
    for paper in ("A4", "Letter"):
        printed = opened.page.pdf(format=paper, margin=margins)
        assert 3 < len(re.findall(rb"/Type\s*/Page\b", printed)) <= 9


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_opens_quietly_with_every_figure_drawn(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, report, width, scheme)
    assert opened.console == []
    assert opened.outside() == set()
    opened.unfold()
    assert opened.states() == {kind: {"drawn"} for kind in KINDS}
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_fault(browser: Any, report: Path, scheme: str) -> None:
    opened = Opened(browser, report, 1280, scheme)
    assert opened.faults() == []
    opened.context.close()


def test_the_first_screen_answers(opened: Opened) -> None:
    """What to run, how far to trust it, score, cost, what to do first: without scrolling."""
    said = opened.page.locator("#answer").inner_text()
    for words in ("rollouts per problem", "Confidence:", "Score", "Cost",
                  "Checks before you spend", "What would change it"):  # fmt: skip
        assert words in said
    box = opened.page.locator("#answer").bounding_box()
    assert box["y"] + box["height"] < 950


def test_slider_and_switches_work(opened: Opened) -> None:
    figure = opened.figure("landscape")
    heights = "figure => figure.querySelector('.plot').data[0].y"
    last = figure.evaluate(heights)
    figure.locator("input[type=range]").focus()
    opened.page.keyboard.press("Home")
    assert figure.locator("output").inner_text() == "before training"
    assert figure.evaluate(heights) != last
    opened.page.get_by_role("button", name="Linear").click()
    assert opened.axis("health", "xaxis.type") == "linear"
    opened.page.get_by_role("button", name="Dark").click()
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"
    before = opened.traces("scores")
    opened.page.locator(".chip").first.click()
    assert opened.traces("scores") <= before
    for summary in opened.page.locator("details:not(details details) > summary").all():
        summary.click()
    assert opened.console == []
    assert opened.outside() == set()
