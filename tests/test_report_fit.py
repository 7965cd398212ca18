"""The report on real fits: every setting of the fitter's own document is drawn and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.domain import Curve
from isocompute.laws import Fit, fit_sweep
from isocompute.report import figures
from report_fixtures import page_of, short_bundle  # noqa: F401  (the latter acts on every test)

PAIRS = {
    "fixed": [(32, n) for n in (8, 32, 128)],
    "joint": [(b, n) for b in (16, 32) for n in (8, 32, 128)],
    "batch": [(4096 // n, n) for n in (8, 32, 128)],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "joint": {"joint": True},
    "batch": {"fix": ("batch_size", 4096)},
}


def planted(pairs: list[tuple[int, int]], *, tokens: bool = False) -> list[Curve]:
    """Two seeds each; the larger n, the later and the higher."""
    rng = np.random.default_rng(3)
    curves = []
    for b_p, n in pairs:
        octave = np.log2(n / 8)
        for seed in (0, 1):
            x = np.geomspace(2e4, 4e6, 24)
            rise = 1 / (1 + np.exp(-3.5 * (np.log10(x) - 4.7 - 0.2 * octave)))
            curves.append(
                Curve(
                    problems_per_batch=b_p,
                    rollouts_per_problem=n,
                    run=f"{b_p}-{n}-{seed}",
                    seed=seed,
                    metric="avg@4",
                    rollouts_K=x,
                    score_K=0.4 + (0.2 + 0.03 * octave) * rise + rng.normal(0, 0.004, 24),
                    tokens_K=1000 * x if tokens else None,
                )
            )
    return curves


@pytest.fixture(scope="module", params=sorted(PAIRS))
def fit(request: pytest.FixtureRequest) -> Fit:
    kind = request.param
    return fit_sweep(planted(PAIRS[kind]), draws=30, **OPTIONS[kind])


@pytest.mark.long
def test_every_setting_makes_a_page(tmp_path: Path, fit: Fit) -> None:
    page = page_of(tmp_path, [("sweep", fit)], None)
    kinds = {attrs.get("data-kind") for _, attrs in page.tags}
    assert {"curves", "law", "probability"} <= kinds
    assert ("lawbp" in kinds) == (fit.law_problems_per_batch is not None)
    document = page.data["fits"][0]["document"]
    assert document["frontier"] == fit.document["frontier"]
    assert page.data["several"] is (fit.setting["kind"] != "fixed_problems_per_batch")
    assert "The best n, n*, goes from" in page.text
    for warning in fit.warnings:
        assert warning["message"][:40] in page.text


@pytest.mark.long
def test_every_setting_makes_every_paper_figure(fit: Fit) -> None:
    document = fit.document
    assert figures.learning_curves(fit).axes[0].lines
    assert figures.frontier(fit).axes[0].lines
    axes = figures.law(fit).axes[0]
    at = document["law"]["at"]
    drawn = [line.get_ydata() for line in axes.lines]
    expected = [row["rollouts_per_problem"] for row in at]
    assert any(len(y) == len(expected) and np.allclose(y, expected) for y in drawn)
    assert figures.probability_best(fit).axes[0].collections
    if fit.law_problems_per_batch is not None:
        line = figures.law_problems_per_batch(fit).axes[0].lines[-1].get_ydata()
        rows = document["law_problems_per_batch"]["at"]
        assert np.allclose(line, [row["problems_per_batch"] for row in rows])


def test_a_law_by_tokens_stands_on_tokens(tmp_path: Path) -> None:
    by_tokens = fit_sweep(planted(PAIRS["fixed"], tokens=True), unit="tokens", draws=0)
    page = page_of(tmp_path, [("tokens", by_tokens)], None)
    drawn = page.data["fits"][0]["runs"][0]["x"]
    assert drawn[0] == pytest.approx(2e7, rel=1e-3)
    assert "budgets in tokens" in page.text
    assert figures.law(by_tokens).axes[0].get_xlabel() == "generated tokens"
    assert figures.learning_curves(by_tokens).axes[0].get_xlabel() == "generated tokens"
