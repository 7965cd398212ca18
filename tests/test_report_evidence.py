"""Tables of what a law is worth: every cell from the document it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isocompute.report import StudyView
from isocompute.report.evidence import fit_tables, progress_tables
from report_fixtures import make_fit, page_of, short_bundle  # noqa: F401  # a fixture

CUT = {"cut": 1e6, "n_held_out": 40, "mae_law": 0.01, "mae_best_so_far": 0.02,
       "mae_power_law": 0.015, "mae_blend": None, "coverage": 0.9}
LEFT = {"left_out": "budget", "beyond": 2e6, "value": None, "at": 4e6, "refused": None,
        "rollouts_per_problem": {"full": 400, "law": 300, "best_so_far": 256, "power_law": 380},
        "score_lost": {"law": 0.01, "best_so_far": 0.02, "power_law": None}}
REFUSED = {"left_out": "n", "value": 512, "beyond": None, "refused": "no budgets shared"}
SPREAD = {
    "problems_per_batch": [
        {"rollouts_per_problem": 8, "at": 1e6, "spread": 0.014, "interval": [0.006, 0.022],
         "noise": 0.006, "scores": [{"problems_per_batch": 16}, {"problems_per_batch": 64}]}
    ],
    "rollouts_per_problem": [
        {"problems_per_batch": 16, "at": 1e6, "spread": 0.05, "interval": None, "noise": 0.01,
         "scores": [{"rollouts_per_problem": 8}, {"rollouts_per_problem": 64}]}
    ],
}
GAP = {"problems_per_batch": 16, "rollouts_per_problem": 8, "gap": 0.3, "gap_at_peak": 0.1,
       "from": 1e5, "validation_lost": 0.04, "train_gained": 0.2, "overfits": True}
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


def test_every_part_has_its_table() -> None:
    document = {"backtest": {"by_cut": [CUT], "left_out": [LEFT, REFUSED]}, "spread": SPREAD,
                "train_test": [GAP]}  # fmt: skip
    cuts, left, spread, gap = fit_tables(document)
    assert cuts["rows"] == [["1M", "40", "0.0100", "0.0200", "0.0150", "–", "90%"]]
    assert left["rows"] == [
        ["budgets above 2M", "4M", "400", "300 (0.010)", "256 (0.020)", "380 (–)"],
        ["n = 512", "no law could be fitted", "", "", "", ""],
    ]
    assert spread["rows"] == [
        ["Bₚ: 16, 64", "n = 8", "1M", "0.014", "0.006 to 0.022", "0.006"],
        ["n: 8, 64", "Bₚ = 16", "1M", "0.050", "not bounded", "0.010"],
    ]
    assert gap["rows"] == [["8", "16", "0.100", "0.300", "100k", "0.040", "overfits"]]
    for table in (cuts, left, spread, gap):
        assert all(len(row) == len(table["head"]) for row in table["rows"])


def test_what_a_document_does_not_hold_has_no_table() -> None:
    assert fit_tables({}) == []
    one_batch = {"problems_per_batch": [], "rollouts_per_problem": SPREAD["rollouts_per_problem"]}
    assert fit_tables({"spread": one_batch}) == []
    calm = {**GAP, "overfits": False}
    assert fit_tables({"train_test": [calm]})[0]["rows"][0][-1] == "no overfitting seen"


def test_progress_has_a_row_per_configuration_and_per_difference() -> None:
    (table,) = progress_tables(PROGRESS)
    value = "0.250 (0.20–0.30)"
    assert table["rows"][0] == ["8", "32", "3", value, "–", value, value, value, value]
    assert table["rows"][1][0] == "n = 64 minus 8"
    assert table["rows"][1][3:6] == ["-0.010 (-0.05 to +0.03)"] * 2 + ["+0.020"]
    assert "98.3k" in table["caption"]
    assert progress_tables(None) == []


def test_the_page_shows_them_as_text(tmp_path: Path) -> None:
    fit = make_fit(points=6)
    fit.document["backtest"] = {**fit.document["backtest"], "by_cut": [CUT]}
    fit.document["curves"][0]["smoothness"] = 0.97
    view = StudyView(name="s", interference=PROGRESS)
    text = page_of(tmp_path, [("a", fit)], None, study=view).text
    assert "Back-test by cut: mean error of scores beyond it" in text
    assert "0.250 (0.20–0.30)" in text
    assert "0.97" in text
