"""Size and opening time of a report of 100 runs of 200 evaluations, in headless Chromium.

    python benchmarks/report.py [--opens 7] [--whole]

Needs the extra [browser] and a Chromium (CHROMIUM names another). Times are from the start of
the navigation: until the words of the first screen are laid out, until what is on the screen is
drawn, and until every figure of the page is drawn. `--whole` embeds the whole Plotly bundle even
where the small one was fetched.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from isocompute.allocation import parse_budget
from isocompute.answers import fit_sweep, plan_from_source
from isocompute.domain import Curve
from isocompute.report import html, render_report

TIMES = """
window.__times = {};
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) window.__times[e.name] = e.startTime;
}).observe({ type: "paint", buffered: true });
new MutationObserver(() => {
  const root = document.documentElement;
  if (!root) return;
  const drawn = document.querySelector('.figure[data-state="drawn"]');
  if (drawn && !window.__times.figure) window.__times.figure = performance.now();
  if (root.dataset.drawn === "all" && !window.__times.all) window.__times.all = performance.now();
}).observe(document, { attributes: true, childList: true, subtree: true });
"""


def curves(runs: int = 100, evaluations: int = 200) -> list[Curve]:
    """Ten n of ten seeds, planted sigmoids with binomial noise."""
    rng = np.random.default_rng(0)
    x = np.unique(np.round(np.geomspace(1e4, 4e6, evaluations)))
    found = []
    for run in range(runs):
        n, seed = 8 * 2 ** (run % 10), run // 10
        midpoint, ceiling = 4.6 + 0.16 * (run % 10), 0.6 + 0.012 * (run % 10) + rng.normal(0, 0.004)
        p = 0.3 + (ceiling - 0.3) / (1 + np.exp(-2.2 * (np.log10(x) - midpoint)))
        found.append(Curve(
            problems_per_batch=32, rollouts_per_problem=n, rollouts_K=x.copy(),
            score_K=rng.binomial(1200, p) / 1200, seed=seed, run=f"n{n} seed {seed}",
        ))  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opens", type=int, default=7)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    if options.whole:
        html.SMALL_BUNDLE = "no-such-file"
    fit = fit_sweep(curves(), sources=["planted"], draws=100)
    plan = plan_from_source("planted", budget=parse_budget("4e6"), fit=fit).document
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    chromium = os.environ.get("CHROMIUM") or found
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = render_report([("planted", fit)], plan, Path(folder) / "report.html")
        print(f"size {path.stat().st_size / 1e6:.2f} MB")
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        rows = []
        for _ in range(options.opens):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            context.add_init_script(TIMES)
            page = context.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-drawn=all]", state="attached", timeout=60_000)
            rows.append(page.evaluate("window.__times"))
            context.close()
        browser.close()
    for key, words in (("first-contentful-paint", "words on the screen"),
                       ("figure", "first figure"), ("all", "every figure")):  # fmt: skip
        times = [row[key] / 1000 for row in rows if key in row]
        if times:
            print(f"{words}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


if __name__ == "__main__":
    main()
