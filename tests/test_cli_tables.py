"""What `fit` prints, from a document with every kind of gap in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isocompute.cli.cells import number, span, table
from isocompute.cli.live import LiveLine
from isocompute.cli.tables import (
    difficulty_lines,
    fit_lines,
    health_lines,
    quickstart_lines,
)
from isocompute.plan import plan_budget
from planted_law import PlantedFit

ERRORS = {
    "mae_law": 0.012, "mae_best_so_far": 0.03, "mae_power_law": 0.02, "mae_blend": None,
    "skill": 0.6, "coverage": 0.9, "n_held_out": 36,
}  # fmt: skip


def document() -> dict[str, Any]:
    def curve(n: int, ceiling: float | None, flags: list[str]) -> dict[str, Any]:
        return {
            "problems_per_batch": 32, "rollouts_per_problem": n, "n_runs": 3, "n_points": 75,
            "n_records": 12, "max_rollouts": 1.5e6, "ceiling": ceiling,
            "ceiling_interval": None if ceiling is None else [ceiling - 0.01, None],
            "identified": ceiling is not None, "held_from": None, "on_bound": [], "flags": flags,
        }  # fmt: skip

    def segment(start: float, end: float, n: int, low: float, high: float) -> dict[str, Any]:
        return {
            "from": start, "to": end, "problems_per_batch": 32, "rollouts_per_problem": n,
            "score_from": low, "score_to": high, "probability_best": 0.9,
            "extrapolated": n == 128,
        }  # fmt: skip

    at = [
        {
            "x": 1e5 * 10 ** (i / 10), "rollouts_per_problem": 8.0 + i, "interval": [8.0, None],
            "confidence_set": [8, 32], "expected_regret": None, "problems_per_batch": 32,
        }
        for i in range(21)
    ]  # fmt: skip
    return {
        "setting": {"kind": "fixed_problems_per_batch", "value": 32},
        "metric": "avg@4",
        "unit": "rollouts",
        "curves": [curve(8, 0.6, []), curve(128, None, ["ceiling_unbounded"])],
        "frontier": [segment(1e5, 1e6, 8, 0.2, 0.5), segment(1e6, 1e7, 128, 0.5, 0.7)],
        "crossovers": [
            {"at": 1e6, "interval": [9e5, None], "from_rollouts_per_problem": 8,
             "to_rollouts_per_problem": 128},
        ],
        "law": {
            "form": "sigmoid_log10", "variable": "rollouts", "plateau": 130.0,
            "plateau_interval": [100.0, None], "flags": ["slope_at_bound"],
            "rising": {"octaves": 4.0, "lower_bound": 3.2, "claimed": True}, "at": at,
        },
        "backtest": {
            "cuts": [5e5], **ERRORS, "by_cut": [{"cut": 5e5, "blend_weight": None, **ERRORS}],
            "blend": {**ERRORS, "weight": 0.8, "better": False},
            "left_out": [
                {"left_out": "budget", "beyond": 5e5, "at": 1e6, "refused": None, "edge": False,
                 "rollouts_per_problem": {"full": 128.0, "law": 100.0, "best_so_far": 8.0,
                                          "power_law": 64.0},
                 "octaves_off": {"law": -0.4, "best_so_far": -4.0, "power_law": -1.0},
                 "score_lost": {"law": 0.001, "best_so_far": 0.02, "power_law": 0.01}},
                {"left_out": "rollouts_per_problem", "value": 128, "at": 1e6,
                 "refused": "a frontier needs two"},
            ],
        },
        "warnings": [{"code": "seeds_few", "message": "two seeds"}],
    }  # fmt: skip


def test_every_part_is_there_and_fits_the_width() -> None:
    lines = fit_lines(document())
    text = "\n".join(lines)
    assert lines[0] == "avg@4 against rollouts, 32 problems per batch: 2 configurations, 6 runs"
    assert "0.600  [0.590, ?]" in text
    assert "ceiling_unbounded" in text
    assert "900k and ?" in text
    assert "extrapolated" in text
    assert "plateau n=130 [100, ?]; rises by 4.0 octaves (at least 3.2); slope_at_bound" in text
    assert "500k      36  0.0120       0.0300     0.0200      ?   0.60             90%" in text
    assert "law 0.80 for what lies beyond the data" in text
    assert "Without what lies beyond 500k, n* at 1M (score lost): law 100 (0.001), best" in text
    assert "Without n=128 no law could be fitted." in text
    assert "! seeds_few: two seeds" in text
    assert max(map(len, lines)) <= 120


def test_the_sparkline_rises_and_names_n_where_it_takes_over() -> None:
    lines = fit_lines(document())
    bars = next(line for line in lines if "▁" in line)
    owners = lines[lines.index(bars) + 1]
    assert bars.index("▁") < bars.index("█")
    assert bars.endswith("0.200 to 0.700")
    # The second half of the decades belongs to n=128.
    start = bars.index("▁")
    assert owners.index("128") == pytest.approx(start + 30, abs=1)


def test_a_law_that_was_not_identified_is_said() -> None:
    d = document()
    at = d["law"]["at"]
    d["law"] = {**d["law"], "form": None}
    d["backtest"] = {"cuts": [], "mae_law": None}
    text = "\n".join(fit_lines(d))
    assert at
    assert "Law: none could be identified; n* off the frontier:" in text  # and what may be best
    assert "frontier's n*" in text
    assert "n that may be best" in text
    d["law"]["at"] = []
    text = "\n".join(fit_lines(d))
    assert "Law: none could be identified." in text
    assert "n that may be best" not in text
    assert "Back-test: not possible on this sweep." in text


def test_a_frontier_without_scores_prints_no_sparkline() -> None:
    d = document()
    for segment in d["frontier"]:
        segment["score_from"] = segment["score_to"] = None
    assert "▁" not in "\n".join(fit_lines(d))


def test_a_law_that_does_not_rise_is_said() -> None:
    d = document()
    d["law"]["rising"] = {"octaves": 1.0, "lower_bound": None, "claimed": False}
    d["law"]["plateau"] = None
    assert "no plateau identified; a rise is not claimed" in "\n".join(fit_lines(d))


def test_a_fixed_batch_has_a_second_law() -> None:
    d = document()
    at = [{"x": 10.0 * i, "problems_per_batch": 64.0 / i, "interval": None,
           "confidence_set": None, "expected_regret": 0.1} for i in range(1, 21)]  # fmt: skip
    d["law_problems_per_batch"] = {**d["law"], "variable": "steps", "at": at}
    text = "\n".join(fit_lines(d))
    assert "Problems per batch at this fixed batch:" in text
    assert "steps  law's B_p*  its interval" in text
    d["law_problems_per_batch"]["form"] = None
    assert "Problems per batch" not in "\n".join(fit_lines(d))


def test_columns_line_up() -> None:
    assert table(("a", "bb"), [("10", "x")]) == [" a  bb", "10   x"]
    assert table(("a", "bb"), [("10", "x")], left=1) == [" a  bb", "10  x"]


def test_what_is_not_known_is_a_question_mark() -> None:
    assert number(None) == number(float("nan")) == span(None) == "?"
    assert number(0.12345) == "0.123"
    assert span([0.1, None], 1) == "[0.1, ?]"


def test_health_is_counted_by_configuration_and_rule() -> None:
    spec = {"problems_per_batch": 32, "rollouts_per_problem": 8}
    runs: list[Any] = [SimpleNamespace(hash=name, spec=spec) for name in "abc"]
    found: Any = SimpleNamespace(severity="failure", code="entropy_collapse", step=7)
    later: Any = SimpleNamespace(severity="failure", code="entropy_collapse", step=9)
    lines = health_lines(runs, {"a": [later], "b": [found], "c": []})
    assert lines == [
        "health: 1 of 3 runs without a finding",
        "! failure: entropy_collapse at B_p=32, n=8 in 2 runs, first at step 7",
    ]


def test_difficulty_draws_its_histogram() -> None:
    d = {
        "problem_set": "math", "n_problems": 30, "samples": 2, "mean_pass_rate": 0.4,
        "mean_pass_rate_interval": [0.3, 0.5], "histogram": [20, 0, 10], "errors": 3,
        "bands": {"very_easy": {"low": 0.6, "high": 0.9, "n_problems": 4}}, "rollouts": 60,
        "recipe": "easy", "reason": "the mean lies above 0.3", "warnings": [],
        "unjudged": [
            {"id": "p7", "samples": 1, "message": "ValueError: torn", "response": "4"},
            {"id": "p2", "samples": 2, "message": "no verdict within 10 s", "response": "5"},
        ],
        "temperature": 1.0,
    }  # fmt: skip
    lines = difficulty_lines(d)
    assert lines[0].startswith("30 problems, 2 samples each (60 rollouts in all): mean pass rate")
    assert lines[0].endswith("0.400 [0.300, 0.500]")
    bars = [line.split() for line in lines[2:5]]
    assert bars == [["0/2", "20", "#" * 40], ["1/2", "0"], ["2/2", "10", "#" * 20]]
    assert any("very easy" in line and "0.6 to 0.9" in line for line in lines)
    assert "recipe: easy (the mean lies above 0.3)" in lines
    assert (
        "3 of 60 samples could not be judged and count in no rate: p2 (2, no verdict within 10 s), "
        "p7 (1, ValueError: torn)"
    ) in " ".join(line.strip() for line in lines)
    assert any(line.startswith("measured at temperature 1: train at the same") for line in lines)
    assert not any("temperature" in line for line in difficulty_lines({**d, "temperature": 0.6}))


@pytest.mark.parametrize("refused", [False, True])
def test_quickstart_ends_with_the_law_the_plan_and_the_report(refused: bool) -> None:
    law: Any = None if refused else SimpleNamespace(document=document())
    spent = SimpleNamespace(
        rollouts=1_800_000, evaluation_rollouts=1, wasted_rollouts=0, wasted_evaluation_rollouts=0,
        wall_s=300.0,
    )  # fmt: skip
    summary = SimpleNamespace(
        done=18, failed=0, invalid=0, pending=0, accounting=spent, elapsed_s=150.0
    )
    plan = None if refused else plan_budget(PlantedFit(), 1e6).document
    result: Any = SimpleNamespace(
        folder=Path("q"), summary=summary, fit=law, plan=plan, report=Path("q/report.html"),
        refusal="one n is too few" if refused else None, sweep_s=150.0,
    )  # fmt: skip
    lines = quickstart_lines(result)
    text = "\n".join(lines)
    assert "18 of 18 runs done" in lines[0]
    assert ("No law: one n is too few" in text) is refused
    assert ("With 1M rollouts: " in text) is not refused
    assert lines[-1] == "report: q/report.html"


class Report:
    rollouts_done = 1
    rollouts_total = 4
    note = ""

    def line(self) -> str:
        return "a quarter\x1b[2J"


def test_progress_in_a_log_comes_now_and_then_and_on_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()
    with LiveLine() as live:
        live(report)
        live(report)
        report.note = "a retry"
        live(report)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "a quarter\\u001b[2J\n" * 2


def test_progress_on_a_terminal_renews_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with LiveLine() as live:
        live(Report())
        live.say("a stage")
    err = capsys.readouterr().err
    assert err.startswith("\r[######..................] a quarter")
    assert err.endswith("\na stage\n")
