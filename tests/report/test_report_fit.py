"""The report on real fits: every setting of the fitter's own document is drawn and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.answers.fit import Fit, fit_sweep
from isocompute.cli.fit_short import fit_lines
from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.report import figures
from isocompute.report.words import summary
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


@pytest.mark.heavy
def test_every_setting_makes_a_page(tmp_path: Path, fit: Fit) -> None:
    page = page_of(tmp_path, [("sweep", fit)], None)
    kinds = {attrs.get("data-kind") for _, attrs in page.tags}
    setting = fit.setting["kind"]
    assert {"learning-curves", "law", "probability-best", "loss-by-n"} <= kinds
    assert ("law-problems-per-batch" in kinds) == (setting == "fixed_batch_size")
    assert ("direction" in kinds) == (setting == "joint")
    document = page.data["fits"][0]["document"]
    for key in ("frontier", "best", "curves", "probabilities"):
        assert document[key] == fit.document[key]
    assert page.data["several"] is (setting != "fixed_problems_per_batch")
    assert summary(fit.document) in page.text
    assert f"Confidence: {fit.verdict.level}." in page.text
    for notice in fit.notices:
        assert notice.text[:30].replace("B_p", "Bₚ") in page.text


def test_every_setting_makes_every_paper_figure(fit: Fit) -> None:
    document, setting = fit.document, fit.setting["kind"]
    scale = fit.batch_size or 1
    drawn = figures.law(fit).axes[0].lines
    rows = document["best"]
    expected = [row["rollouts_per_problem"] for row in rows]
    line = next(
        one
        for one in drawn
        if len(one.get_ydata()) == len(rows) and np.allclose(one.get_ydata(), expected)
    )
    assert np.allclose(line.get_xdata(), [row["x"] / scale for row in rows])
    for one in figures.FIGURES:
        if one.there(document):
            assert one.draw(fit).axes[0].has_data(), one.kind
    if setting == "fixed_batch_size":
        line = figures.law_problems_per_batch(fit).axes[0].lines[-1]
        at = document["law_problems_per_batch"]["at"]
        assert np.allclose(line.get_ydata(), [row["problems_per_batch"] for row in at])
        assert np.allclose(line.get_xdata(), [row["x"] for row in at])
    if setting == "joint":
        path = figures.direction(fit).axes[0].lines[-1].get_xydata()
        row = [one for one in rows if not one["extrapolated"]][-1]
        assert path[-1].tolist() == [row["problems_per_batch"], row["tested_rollouts_per_problem"]]


@pytest.mark.heavy
def test_answers_by_tokens_stand_on_tokens(tmp_path: Path) -> None:
    by_tokens = fit_sweep(planted(PAIRS["fixed"], tokens=True), unit="tokens", draws=20)
    page = page_of(tmp_path, [("tokens", by_tokens)], None)
    drawn = page.data["fits"][0]["runs"][0]["x"]
    assert drawn[0] == pytest.approx(2e7, rel=1e-3)
    assert "budgets in tokens" in page.text
    assert "at 4B tokens" in page.text
    assert figures.law(by_tokens).axes[0].get_xlabel() == "generated tokens"
    assert figures.learning_curves(by_tokens).axes[0].get_xlabel() == "generated tokens"
    # The sweep is cut at rollouts, whatever it is read by: so says the figure.
    test = by_tokens.document["backtest"]
    assert max(row["x"] for row in test["rows"]) < 1e8 < drawn[0] * 100
    assert test["unit"] == "rollouts"
    assert figures.backtest(by_tokens).axes[0].get_xlabel() == "training rollouts"


@pytest.mark.heavy
def test_one_n_at_two_b_p_says_nothing_of_n_and_which_b_p_is_best(tmp_path: Path) -> None:
    one = fit_sweep(planted([(16, 32), (64, 32)]), draws=30, joint=True)
    direction = one.document["direction"]
    assert direction["follows"] is direction["d_log_n_d_log_bp"] is direction["interval"] is None
    assert direction["sentence"].endswith("cannot be told from one n.")
    assert "Batch or n" not in " ".join(fit_lines(one.document))
    assert "n_confounded_with_batch" not in [notice.code for notice in one.notices]
    page = page_of(tmp_path, [("sweep", one)], None)
    assert "direction" not in {attrs.get("data-kind") for _, attrs in page.tags}
    best = one.document["best"][-1]["problems_per_batch"]
    assert f": {best} problems per batch (Bₚ)" in page.text
    assert "interval of the best n" not in page.text  # an axis of one place
    with pytest.raises(InputError, match="needs at least 2 n, but got 2 configurations of one"):
        figures.direction(one)
