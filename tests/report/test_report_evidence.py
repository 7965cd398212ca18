"""Tables of a fit: every cell from the document it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isocompute.report import StudyView
from isocompute.report.evidence import fit_tables, progress_tables
from report_fixtures import make_fit, page_of, short_bundle  # noqa: F401  # a fixture

BEST = {
    "x": 4e6,
    "rollouts_per_problem": 410.2,
    "interval": [260.0, 512.0],
    "confidence_set": [256, 512],
    "as_good": [512],
    "problems_per_batch": 32,
    "tested_rollouts_per_problem": 512,
    "score": 0.69,
    "score_interval": [0.67, 0.71],
    "extrapolated": True,
}
BATCH = {
    "batch_size": 512,
    "at": 1e6,
    "scores": [
        {
            "problems_per_batch": 64,
            "rollouts_per_problem": 8,
            "score": 0.5,
            "interval": [0.49, 0.51],
            "probability_best": 0.1,
        },
        {
            "problems_per_batch": 16,
            "rollouts_per_problem": 32,
            "score": 0.52,
            "interval": [0.51, 0.53],
            "probability_best": 1.0,
        },
    ],
}
SPREAD = {
    "problems_per_batch": [
        {
            "rollouts_per_problem": 8,
            "at": 1e6,
            "spread": 0.014,
            "interval": [0.006, 0.022],
            "noise": 0.006,
            "scores": [{"problems_per_batch": 16}, {"problems_per_batch": 64}],
        }
    ],
    "rollouts_per_problem": [
        {
            "problems_per_batch": 16,
            "at": 1e6,
            "spread": 0.05,
            "interval": None,
            "noise": 0.01,
            "scores": [{"rollouts_per_problem": 8}, {"rollouts_per_problem": 64}],
        }
    ],
}
GAP = {
    "problems_per_batch": 16,
    "rollouts_per_problem": 8,
    "gap": 0.3,
    "gap_at_peak": 0.1,
    "from": 1e5,
    "validation_lost": 0.04,
    "train_gained": 0.2,
    "overfits": True,
}
INDEX = {"value": 0.25, "interval": [0.2, 0.3]}
NAMES = ("score", "never", "always", "interference", "rich_get_richer", "uniform_progress")
PROGRESS: dict[str, Any] = {
    "at": 98304.0,
    "groups": [{"problems_per_batch": 32, "rollouts_per_problem": 8, "n_runs": 3,
                **dict.fromkeys(NAMES, INDEX), "never": {"value": None, "interval": None}}],
    "differences": [{"problems_per_batch": 32, "from": 8, "to": 64,
                     **{key: {"value": -0.01, "interval": [-0.05, 0.03]} for key in NAMES},
                     "always": {"value": 0.02, "interval": None}}],
}  # fmt: skip


def test_percents_have_one_decimal_in_every_table() -> None:
    in_percent = {"provenance": {"score_range": [0, 100]}, "train_test": [GAP | {"gap": 4.25}],
                  "backtest": {"rules": {"model": 0.1234}}}  # fmt: skip
    simple, gap = fit_tables(in_percent)
    assert simple["rows"][0][1] == "0.1"
    assert gap["rows"][0][3] == "4.2"


def test_every_part_has_its_table() -> None:
    rules = {"model": 0.001, "largest_n": 0.0123, "mine": 0.5}
    document = {"best": [BEST], "backtest": {"rules": rules}, "spread": SPREAD,
                "direction": {"equal_batch": [BATCH]}, "train_test": [GAP]}  # fmt: skip
    best, simple, spread, batch, gap = fit_tables(document)
    assert best["rows"] == [
        ["4M (extrapolated)", "410", "260 to 512", "256, 512", "512", "32 × 512",
         "0.690 (0.670 to 0.710)"]
    ]  # fmt: skip
    assert simple["rows"] == [
        ["This model", "0.001"], ["The largest n", "0.012"], ["Mine", "0.500"]
    ]  # fmt: skip
    assert batch["rows"] == [
        ["512", "1M", "16 × 32", "0.520 (0.510 to 0.530)", ">99%", "64 × 8: 0.500"]
    ]
    assert spread["rows"] == [
        ["Bₚ: 16, 64", "n = 8", "1M", "0.014", "0.006 to 0.022", "0.006"],
        ["n: 8, 64", "Bₚ = 16", "1M", "0.050", "not bounded", "0.010"],
    ]
    assert gap["rows"] == [["8", "16", "0.100", "0.300", "100k", "0.040", "overfits"]]
    for table in (best, simple, spread, batch, gap):
        assert all(len(row) == len(table["head"]) for row in table["rows"])


def test_what_a_document_does_not_hold_has_no_table() -> None:
    assert fit_tables({}) == []
    one_batch = {"problems_per_batch": [], "rollouts_per_problem": SPREAD["rollouts_per_problem"]}
    assert fit_tables({"spread": one_batch}) == []
    calm = {**GAP, "overfits": False}
    assert fit_tables({"train_test": [calm]})[0]["rows"][0][-1] == "no overfitting seen"


def test_many_budgets_are_thinned_and_keep_both_ends() -> None:
    rows = [{**BEST, "x": 1e5 * i, "confidence_set": None, "extrapolated": False}
            for i in range(1, 26)]  # fmt: skip
    (table,) = fit_tables({"best": rows, "unit": "tokens"})
    assert [row[0] for row in table["rows"]] == [
        "100k", "400k", "700k", "1M", "1.3M", "1.6M", "1.9M", "2.2M", "2.5M"
    ]  # fmt: skip
    assert table["head"][0] == "Tokens"
    assert table["rows"][0][3] == "–"


def test_progress_has_a_row_per_configuration_and_per_difference() -> None:
    (table,) = progress_tables(PROGRESS)
    value = "0.250 (0.20–0.30)"
    assert table["rows"][0] == ["8", "32", "3", value, "–", value, value, value, value]
    assert table["rows"][1][0] == "n = 64 minus 8"
    assert table["rows"][1][3:6] == ["-0.010 (-0.05 to +0.03)"] * 2 + ["+0.020"]
    assert "98.3k" in table["caption"]
    assert progress_tables(None) == []


def test_the_page_shows_them_as_text(tmp_path: Path) -> None:
    fit = make_fit()
    fit.document["curves"][0]["state"] = "stopped"
    view = StudyView(name="s", interference=PROGRESS)
    text = page_of(tmp_path, [("a", fit)], None, study=view).text
    assert "What other rules would have lost in the back-test" in text
    assert "0.250 (0.20–0.30)" in text
    assert "stopped" in text
