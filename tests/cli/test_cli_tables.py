"""What commands print, from documents with every kind of gap in them."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isocompute.cli.cells import number, span, table
from isocompute.cli.evidence import backtest_lines
from isocompute.cli.fit_full import full_lines
from isocompute.cli.fit_short import fit_lines
from isocompute.cli.live import LiveLine
from isocompute.cli.scores import repeated
from isocompute.cli.tables import difficulty_lines, health_lines, quickstart_lines


def document() -> dict[str, Any]:
    def curve(n: int, ceiling: float, top: float | None) -> dict[str, Any]:
        return {
            "problems_per_batch": 32, "rollouts_per_problem": n, "n_runs": 3, "n_points": 75,
            "max_rollouts": 1.5e6, "state": "complete", "floor": 0.1, "ceiling": ceiling,
            "ceiling_interval": [ceiling - 0.01, top], "at": [{"x": 1e7}], "flags": [],
        }  # fmt: skip

    def segment(start: float, end: float, n: int, low: float, high: float) -> dict[str, Any]:
        return {
            "from": start, "to": end, "problems_per_batch": 32, "rollouts_per_problem": n,
            "score_from": low, "score_to": high, "probability_best": 0.9,
            "extrapolated": n == 128,
        }  # fmt: skip

    def best(i: int) -> dict[str, Any]:
        return {
            "x": 1e5 * 10 ** (i / 10), "rollouts_per_problem": 8.4 + 5 * i,
            "interval": [8.0, 128.0], "probability": {"8": 0.2, "32": 0.3, "128": 0.5},
            "expected_regret": {"8": 0.0921, "32": 0.003, "128": 0.001},
            "as_good": [128], "problems_per_batch": 128,
            "stable_problems_per_batch": 64 if i < 10 else 32,  # as plans take
            "tested_rollouts_per_problem": 8 if i < 10 else 32 if i < 20 else 128,
            "extrapolated": i > 20,
        }  # fmt: skip

    at = [
        {
            "x": 1e5 * 10 ** (i / 10), "rollouts_per_problem": 8.0 + i, "interval": [8.0, 128.0],
            "confidence_set": [8, 32], "expected_regret": 0.001, "problems_per_batch": 32,
        }
        for i in range(21)
    ]  # fmt: skip
    terms = {"L": 4.0, "k": 2.0, "x0": 6.0, "b": 3.0}
    return {
        "setting": {"kind": "fixed_problems_per_batch", "value": 32},
        "metric": "avg@4",
        "unit": "rollouts",
        "verdict": {"level": "caution", "reason": "Every n has one run."},
        "provenance": {"sources": ["my runs.csv"]},
        "curves": [curve(8, 0.6, 0.62), curve(32, 0.65, 0.67), curve(128, 0.7, None)],
        "best": [best(i) for i in range(24)],
        "frontier": [segment(1e5, 1e6, 8, 0.2, 0.5), segment(1e6, 1e7, 128, 0.5, 0.7)],
        "crossovers": [
            {"at": 1e6, "interval": [9e5, None], "from_rollouts_per_problem": 8,
             "to_rollouts_per_problem": 128},
        ],
        "law": {
            "form": "sigmoid_log10", "variable": "rollouts", **terms,
            **{f"{name}_interval": [v - 1, v + 1] for name, v in terms.items()},
            "plateau": 120.0, "plateau_interval": [100.0, None], "flags": ["non_monotone"],
            "rising": {"octaves": 4.0, "lower_bound": 3.2, "claimed": True}, "at": at,
        },
        "law_problems_per_batch": None,
        "direction": {"d_log_n_d_log_bp": None, "interval": None, "follows": None,
                      "sentence": "Whether the optimum follows n or the batch cannot be told."},
        "spread": {}, "train_test": [],
        "paper": {"refused": "the published method needs 2 configurations"},
        "backtest": {
            "cuts": [5e5, 1e6], "mae_model": 0.012, "mae_best_so_far": 0.03, "skill": 0.6,
            "coverage": 0.9, "widened_by": 1.25, "n_held_out": 36,
            "rules": {"model": 0.001, "best_so_far": 0.02, "largest_n": 0.0, "next_n": 0.01},
        },
        "notices": [
            {"code": "seeds_missing", "level": "caution", "text": "Every n has one run.",
             "remedy": "Run at least 3 seeds."},
            {"code": "optimum_at_edge", "level": "caution",
             "text": "The best n at 10M rollouts is 128, the largest tested.",
             "remedy": "Train n = 256 once (10M rollouts)."},
            {"code": "not_smooth", "level": "caution", "text": "Rough.", "remedy": "Look."},
            {"code": "n_confounded_with_batch", "level": "note", "text": "One.", "remedy": "Two."},
        ],
    }  # fmt: skip


def test_the_answer_in_one_screen() -> None:
    assert fit_lines(document()) == [
        "avg@4, 9 runs: 32 problems (B_p) x 8 to 128 rollouts (n), up to 10M rollouts",
        "",
        "Best n      100k rollouts: 8 (8 to 128)  1M: 32 (8 to 128)  10M: 128 (8 to 128)",
        "            rises 16-fold, at least 8-fold; where it levels off is not known",
        "Wrong n     costs 0.091 at 10M (n = 8), 0.002 (n = 32)",
        "Predicts    held-out scores within 0.012 (assuming no further change: 0.030)",
        "Batch or n  not tested: every n ran at one B_p",
        "",
        "Confidence: caution. Every n has one run.",
        "Next: run at least 3 seeds; then train n = 256 once (10M rollouts).",
        "2 more cautions, 1 note: --full    Picture: isocompute report 'my runs.csv'",
    ]


def test_the_run_that_a_study_was_for_is_planned_by_one_command() -> None:
    command = "isocompute plan 'my runs.csv' --budget 2M"
    assert f"Study's target: {command}" in fit_lines(document(), target=2e6)
    other = "\n".join(fit_lines({**document(), "unit": "tokens"}, target=2e6))
    assert "target" not in other  # it was given in rollouts
    d = {**document(), "notices": [], "verdict": {"level": "ok", "reason": ""}}
    assert f"Next: {command}" in fit_lines(d, target=2e6)
    assert "target" not in "".join(fit_lines(d, target=2e6))
    by_tokens = "\n".join(fit_lines({**d, "unit": "tokens"}, target=2e6))
    assert "--unit tokens --budget 40Mtok" in by_tokens


def line(d: dict[str, Any], label: str) -> str:
    return next(text for text in fit_lines(d) if text.startswith(label))


def test_where_it_levels_off_and_whether_it_rises() -> None:
    d = document()
    d["law"]["plateau_interval"] = [100.0, 180.4]
    assert fit_lines(d)[3].strip().endswith("at least 8-fold; levels off at 120 (100 to 180)")
    d["law"]["identified"] = {"plateau": False}  # the curves let it move on
    assert fit_lines(d)[3].strip().endswith("where it levels off is not known")
    d["law"]["rising"]["claimed"] = False
    assert fit_lines(d)[3].strip() == "rises 16-fold, but noise alone may explain that"
    d["law"]["rising"]["octaves"] = 0.0
    level = "whether it rises cannot be told: several n may be best"
    d["law"]["rising"]["upper_bound"] = 1.4  # a doubling is not excluded
    assert fit_lines(d)[3].strip() == level  # beside a best n that goes from 8 to 108
    for row in d["best"]:
        row["rollouts_per_problem"] = 8.0
    assert fit_lines(d)[3].strip() == level  # nor where it starts and ends at one n
    d["law"]["rising"]["upper_bound"] = 0.9
    assert fit_lines(d)[3].strip() == "does not rise with the budget"
    for row in d["best"]:
        row["rollouts_per_problem"] = 128.0
    edge = "whether it rises cannot be told: n = 128 is the largest tested"
    assert fit_lines(d)[3].strip() == edge
    d["law"]["rising"] = {"octaves": -2.0, "lower_bound": -3.0, "claimed": False}
    d["notices"].append({"code": "falling", "level": "note", "text": "", "remedy": "Steps."})
    assert fit_lines(d)[3].strip() == "falls 4-fold as the budget grows"
    d = document()
    d["notices"].append({"code": "non_monotone", "level": "note", "text": "", "remedy": "Read."})
    assert fit_lines(d)[3].strip().endswith("but goes up and down on the way")


def test_what_another_n_costs() -> None:
    d = document()
    for best in d["best"]:
        best["as_good"] = [32, 128]
    assert line(d, "Wrong n").endswith("costs 0.091 at 10M (n = 8); n = 32 as good as 128")
    for best in d["best"]:
        best["as_good"] = [8, 32, 128]
    assert line(d, "Wrong n").endswith("costs nothing that shows at 10M: n = 8, 32 as good as 128")
    # No line is cut: the smaller cost goes first, then the list.
    tested = [2**i for i in range(2, 12)]
    for good, said in (
        (tested[4:5], "costs 0.080 at 10M (n = 4), 0.010 (n = 8); n = 64 as good as 128"),
        (tested[2:5], "costs 0.080 at 10M (n = 4); n = 16, 32, 64 as good as 128"),
        (tested[2:], "costs 0.080 at 10M (n = 4), 0.010 (n = 8); 7 other n as good as 128"),
        (tested, "costs nothing that shows at 10M: 9 other n as good as 128"),
    ):
        for best in d["best"]:
            best["as_good"] = good
            best["expected_regret"] = {
                str(n): {4: 0.08, 8: 0.01}.get(n, 0.02 if n not in good else 0.0) for n in tested
            } | {"128": 0.0}
        assert line(d, "Wrong n").endswith(said)


def test_scores_are_said_as_they_were_logged() -> None:
    plain = document()
    percent = {**plain, "provenance": {**plain["provenance"], "score_range": [0.0, 100.0]}}
    assert "costs 0.091 at 10M (n = 8)" in line(plain, "Wrong n")
    assert "costs 9.1 at 10M (n = 8)" in line(percent, "Wrong n")
    mae = plain["backtest"]["mae_model"]
    assert f"held-out scores within {100 * mae:.1f} (" in line(percent, "Predicts")
    # In full, too: the tables had "50.097" and "0.0956".
    whole = "\n".join(full_lines(percent))
    assert re.search(r"complete +10.0 +60.0 +\[59.0, 62.0\]", whole)
    assert f"later scores by {100 * mae:.2f} on average" in " ".join(whole.split())
    assert not re.search(r"\d\.\d{3}", whole.partition("Whether")[0].partition("Curves:")[2])


def test_the_batch_or_n() -> None:
    d = document()
    d["direction"] = {"d_log_n_d_log_bp": -0.31, "interval": [-0.8, 0.1], "follows": "n"}
    assert line(d, "Batch").endswith(
        "  n: best n changes 0.81-fold as B_p doubles (0.57 to 1.1)"
    )
    d["direction"]["follows"] = "batch"
    assert "  the batch: best n changes 0.81-fold" in line(d, "Batch")
    d = document()
    d["notices"].pop()
    assert line(d, "Batch").endswith("the best n is at an end of those tested")


def test_several_b_p_and_a_fixed_batch_name_b_p() -> None:
    d = document()
    d["setting"] = {"kind": "joint", "value": None}
    assert line(d, "Best B_p").split()[2:] == ["100k:", "64", "1M:", "32", "10M:", "32"]
    d["setting"] = {"kind": "fixed_batch_size", "value": 8192}
    assert line(d, "Best B_p").split()[2:] == ["100k:", "1,024", "1M:", "256", "10M:", "64"]
    assert fit_lines(d)[0] == (
        "avg@4, 9 runs: batch of 8,192, 8 to 128 rollouts a problem (n), up to 10M"
    )
    d["setting"] = {"kind": "joint", "value": None}
    for i, row in enumerate(d["curves"]):
        row["problems_per_batch"] = 2 ** (i + 3)
    assert ": 8 x 8, 16 x 32, 32 x 128 (B_p x n), up to 10M rollouts" in fit_lines(d)[0]
    d["curves"] = [{**row, "problems_per_batch": b} for row in d["curves"] for b in (8, 4, 2, 1, 9)]
    assert ": 1 to 9 problems (B_p) x 8 to 128" in fit_lines(d)[0]


def test_with_nothing_to_mend_the_plan_comes_next() -> None:
    d = document()
    d["notices"], d["verdict"] = [], {"level": "ok", "reason": ""}
    lines = fit_lines(d)
    assert "Confidence: ok up to 10M rollouts." in lines
    assert "Next: isocompute plan 'my runs.csv' --budget 40M." not in lines
    assert "Next: isocompute plan 'my runs.csv' --budget 40M" in lines
    again = fit_lines(d, "--set seed=1 --range 0 100")
    assert "Next: isocompute plan 'my runs.csv' --set seed=1 --range 0 100 --budget 40M" in again
    long = fit_lines(d, "--set 'pattern=runs of n{rollouts_per_problem}' --metric avg:accuracy")
    at = next(i for i, line in enumerate(long) if line.startswith("Next:"))
    command = " ".join(line.removesuffix(" \\").strip() for line in long[at : at + 3])
    assert long[at].endswith(" \\")  # as a shell reads it
    assert shlex.split(command) == [
        "Next:", "isocompute", "plan", "my runs.csv", "--set",
        "pattern=runs of n{rollouts_per_problem}", "--metric", "avg:accuracy", "--budget", "40M",
    ]
    d["unit"] = "tokens"
    assert "Next: isocompute plan 'my runs.csv' --unit tokens --budget 40Mtok" in fit_lines(d)


def test_a_stop_is_mended_before_anything_else() -> None:
    d = document()
    stop = {"code": "no_skill", "level": "stop", "text": "It failed.", "remedy": "Train further."}
    d["notices"].insert(0, stop)
    d["verdict"] = {"level": "stop", "reason": "It failed."}
    lines = fit_lines(d)
    assert "Confidence: stop. It failed." in lines
    assert "Next: train further." in lines


def test_the_smallest_n_at_the_edge() -> None:
    d = document()
    d["notices"] = [{"code": "optimum_at_edge", "level": "caution", "remedy": "Train n = 4 once.",
                     "text": "The best n at 10M rollouts is 8, the smallest tested."}]  # fmt: skip
    assert line(d, "Next") == "Next: train n = 4 once."


def test_seeds_are_asked_for_once() -> None:
    d = document()
    d["notices"] = [
        {"code": "c", "level": "caution", "text": "", "remedy": remedy}
        for remedy in ("Run at least 3 seeds.", "Add seeds.", "Train further.")
    ]
    assert line(d, "Next") == "Next: run at least 3 seeds; then train further."


def test_the_picture_names_its_source_where_a_line_holds_it() -> None:
    d, names = document(), {"a.csv": "Details and ", "published:qwen2.5-7b-easy": ""}
    d["notices"] = [*d["notices"][:1], *(d["notices"][-1:] * 23)]
    for source, before in names.items():
        d["provenance"]["sources"] = [source]
        more = fit_lines(d)[-1].removeprefix(before)
        assert " more notes: --full    Picture: " in more
        assert more.endswith(f"isocompute report {source}")
    # A long one has lines of its own, where the screen has room for them.
    d["provenance"]["sources"] = ["x" * 50]
    assert fit_lines(d)[-2:] == ["Details and 23 more notes: --full",
                                 f"Picture: isocompute report {'x' * 50}"]  # fmt: skip
    options = "--set 'pattern=runs of n{rollouts_per_problem}' --metric avg:accuracy"
    assert " ".join(line.strip(" \\") for line in fit_lines(d, options)[-3:]).endswith(
        f"Picture: isocompute report {'x' * 50} {options}"
    )
    d["verdict"]["reason"], d["setting"]["kind"] = "two lines of it " * 6, "joint"
    assert fit_lines(d, options)[-1].endswith(": --full    Picture: isocompute report SOURCE")
    assert not any("--full" in line for line in fit_lines(d, options, pointers=False))


def test_runs_that_were_timed_can_be_compared_by_cost() -> None:
    d = document()
    assert not any(line.startswith("By cost") for line in fit_lines(d))
    d["by_gpu_hours"] = {**d["best"][-1], "x": 31.7, "interval": [64, 128]}
    said = "By cost     32 GPU-hours: n = 128 (64 to 128): --unit gpu-hours"
    assert fit_lines(d)[7:9] == [said, ""]
    for hours, amount in ((8.8 / 3600, "8.8 GPU-seconds"), (0.2, "12 GPU-minutes")):
        short = {**d, "by_gpu_hours": {**d["by_gpu_hours"], "x": hours}}
        assert fit_lines(short)[7].startswith(f"By cost     {amount}: n = 128")
        short["by_gpu_hours"]["device"] = "CPU"
        assert fit_lines(short)[7].startswith(f"By cost     {amount.replace('GPU', 'CPU')}: n = ")
    d["best"][20]["tested_rollouts_per_problem"] = 32  # the last that was compared
    assert fit_lines(d)[7] == said.replace("):", "), being faster:")
    # What is as good is not passed over, and then no speed decides.
    d["by_gpu_hours"]["as_good"] = [32, 64, 128]
    assert fit_lines(d)[7] == said.replace("):", "), 32, 64 as good:")
    d["by_gpu_hours"]["as_good"] = [128]
    d["by_gpu_hours"]["interval"] = [17, 31]  # of the trend: the n that leads is named
    assert "32 GPU-hours: n = 128, being faster: --unit gpu-hours" in fit_lines(d)[7]
    d = document()
    d["unit"], d["by_gpu_hours"] = "gpu-hours", None
    assert line(d, "Best n").startswith("Best n      100k h: 8 (8 to 128)")
    assert "at 10M h (n = 8)" in line(d, "Wrong n")


def test_fourteen_lines_of_eighty_columns_whatever_is_said() -> None:
    d = document()
    long = "something that limits the answer and takes its time to say so, " * 4
    d["verdict"]["reason"] = long
    d["notices"] = [
        {"code": f"c{i}", "level": "caution", "text": long, "remedy": f"{i} {long}"}
        for i in range(5)
    ]
    d["setting"] = {"kind": "joint", "value": None}
    for best in d["best"]:
        best["rollouts_per_problem"], best["interval"] = 1024.0, [1024.0, 8192.0]
    d["provenance"]["sources"] = ["a-folder-with-a-long-name/and-another/" * 3]
    lines = fit_lines(d)
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 80


def test_a_sweep_that_cannot_be_tested_says_so() -> None:
    d = document()
    d["backtest"] = {"mae_model": None}
    assert line(d, "Predicts").endswith("not known: no part of these runs can be held out")
    assert "Back-test: not possible on this sweep." in full_lines(d)


def test_every_part_is_there_and_fits_the_width() -> None:
    lines = full_lines(document())
    text = "\n".join(lines)
    assert lines[0].startswith("avg@4, 9 runs")
    assert "--full" not in text
    assert "0.600  [0.590, 0.620]" in text
    assert "[0.690, ?]" in text
    assert "900k to ?" in text
    assert "extrapolated" in text
    assert "L = 4 [3.00, 5.00], k = 2 [1.00, 3.00]" in " ".join(text.split())
    assert "Flags: non_monotone." in text
    assert "Back-test, fitted to the evaluations before 500k and 1M rollouts:" in text
    flat = " ".join(text.split())
    assert "by 0.0120 on average; to assume no further change misses them by 0.0300" in flat
    assert "(skill 0.60); 90% lie" in flat
    assert "Intervals beyond the data are widened 1.25 times." in flat
    assert "this model 0.001, the best so far 0.020, the largest n 0.000, the next n after" in flat
    assert "Published method: the published method needs 2 configurations" in text
    assert "caution: Every n has one run. Run at least 3 seeds. [seeds_missing]" in text
    assert max(map(len, lines)) <= 80


def test_the_sparkline_rises_and_names_n_where_it_takes_over() -> None:
    lines = full_lines(document())
    bars = next(text for text in lines if "▁" in text)
    owners = lines[lines.index(bars) + 1]
    assert bars.index("▁") < bars.index("█")
    assert bars.endswith("0.200 to 0.700")
    # The second half of the decades belongs to n=128.
    assert owners.index("128") == pytest.approx(bars.index("▁") + 25, abs=1)


def test_a_frontier_without_scores_prints_no_sparkline() -> None:
    d = document()
    for segment in d["frontier"]:
        segment["score_from"] = segment["score_to"] = None
    assert "▁" not in "\n".join(full_lines(d))


def test_a_path_that_does_not_change_has_no_sigmoid() -> None:
    d = document()
    d["law"] |= {"form": "constant", "k": None, "x0": None}
    assert "The best n does not change." in "\n".join(full_lines(d))


def test_a_fixed_batch_has_a_second_law() -> None:
    d = document()
    at = [{"x": 10.0 * i, "problems_per_batch": 64.0 / i, "interval": [3.0, 64.0]}
          for i in range(1, 21)]  # fmt: skip
    d["law_problems_per_batch"] = {**d["law"], "variable": "steps", "at": at}
    text = "\n".join(full_lines(d))
    assert "Problems per batch at this fixed batch:" in text
    assert "steps  B_p* (interval)" in text


def test_untested_neighbours_are_called_a_guess() -> None:
    d = document()
    d["neighbours"] = [{"problems_per_batch": 32, "rollouts_per_problem": 64, "score": 0.5,
                        "interval": [0.4, 0.6], "gain": -0.01,
                        "gain_interval": [-0.02, 0.01]}]  # fmt: skip
    text = "\n".join(full_lines(d))
    assert "Guessed scores at 10M rollouts of n that were not tested:" in text
    assert "0.500  [0.400, 0.600]" in text


def test_columns_line_up() -> None:
    assert table(("a", "bb"), [("10", "x")]) == [" a  bb", "10   x"]
    assert table(("a", "bb"), [("10", "x")], left=1) == [" a  bb", "10  x"]


def test_what_is_not_known_is_a_question_mark() -> None:
    assert number(None) == number(float("nan")) == span(None) == "?"
    assert number(0.12345) == "0.123"
    assert span([0.1, None], 1) == "[0.1, ?]"


def test_health_is_counted_by_configuration_and_rule() -> None:
    spec = {"problems_per_batch": 32, "rollouts_per_problem": 8}
    runs: list[Any] = [SimpleNamespace(hash=name, spec=spec, steps_done=9) for name in "abc"]
    waits: Any = SimpleNamespace(hash="d", spec=spec, steps_done=0)  # says nothing of its health
    assert health_lines([waits], {}) == ["health: no run has trained yet"]
    found: Any = SimpleNamespace(severity="failure", code="entropy_collapse", step=7)
    later: Any = SimpleNamespace(severity="failure", code="entropy_collapse", step=9)
    lines = health_lines([*runs, waits], {"a": [later], "b": [found], "c": []})
    assert lines == [
        "health: 1 of 3 runs broke no rule",
        "! failure: entropy_collapse at B_p=32, n=8 in 2 runs, first at step 7",
    ]
    failed: Any = SimpleNamespace(severity="failure", code="run_failed", step=0)
    assert health_lines([*runs, waits], {"d": [failed]})[0] == "health: 3 of 4 runs broke no rule"
    runs[0].spec = {**spec, "arm": {"recipe": "kl"}}
    assert health_lines(runs, {"a": [later], "b": [found], "c": []})[1:] == [
        "! failure: entropy_collapse at B_p=32, n=8 in 1 run, first at step 7",
        "! failure: entropy_collapse at B_p=32, n=8, recipe=kl in 1 run, first at step 9",
    ]


def test_difficulty_draws_its_histogram() -> None:
    d = {
        "problem_set": "math", "n_problems": 30, "samples": 2, "mean_pass_rate": 0.4,
        "mean_pass_rate_interval": [0.3, 0.5], "histogram": [20, 0, 10], "errors": 3,
        "bands": {"very_easy": {"low": 0.6, "high": 0.9, "n_problems": 4},
                  "extremely_hard": {"low": 0.0, "high": 0.0, "n_problems": 0}}, "rollouts": 60,
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
    # 20 problems had no success in 2 samples, and none was "0 to 0".
    assert any("extremely hard" in line and "0 in 128 samples" in line for line in lines)
    assert "recipe: easy (the mean lies above 0.3)" in lines
    assert (
        "3 of 60 samples could not be judged and are left out of the rates: p2 (2, no verdict "
        "within 10 s), p7 (1, ValueError: torn)"
    ) in " ".join(line.strip() for line in lines)
    assert any(line.startswith("measured at temperature 1: train at it too") for line in lines)
    assert not any("temperature" in line for line in difficulty_lines({**d, "temperature": 0.6}))


PLAN = {
    "refusal": None, "problems_per_batch": 32, "rollouts_per_problem": 128, "steps": 244,
    "rollouts": 999_424, "predicted_score": 0.6, "predicted_score_interval": [0.5, 0.7],
    "gain": None, "as_good": [128], "learning_rate_from": "study", "learning_rate": 5e-4,
    "recipe": {"warmup_steps": 10, "objective": "grpo", "kl_coef": 0.0, "entropy_coef": 0.0},
    "cost": {"tokens": None, "gpu_hours": None, "usd": None, "source": {}},
    "notices": [], "verdict": {"level": "ok", "reason": ""}, "run_next": [], "neighbours": [],
}  # fmt: skip


@pytest.mark.parametrize("refused", [False, True])
def test_quickstart_ends_with_the_two_short_answers_and_the_report(refused: bool) -> None:
    fit: Any = None if refused else SimpleNamespace(document=document())
    spent = SimpleNamespace(
        rollouts=1_800_000, evaluation_rollouts=1, wasted_rollouts=0, wasted_evaluation_rollouts=0,
        wall_s=300.0, uncertain_steps=2,
    )  # fmt: skip
    summary = SimpleNamespace(
        done=18, failed=0, invalid=0, pending=0, resting=0, accounting=spent, elapsed_s=150.0
    )
    result: Any = SimpleNamespace(
        folder=Path("q"), summary=summary, fit=fit, plan=None if refused else PLAN,
        report=Path("q/report.html"), refusal="one n is too few" if refused else None,
    )  # fmt: skip
    lines = quickstart_lines(result)
    text = "\n".join(lines)
    assert "18 of 18 runs done" in lines[0]
    said = " ".join(text.split())
    assert "lost to crashes 0, updates that were cut off not counted" in said
    assert max(map(len, lines)) <= 80
    spent.uncertain_steps = 0
    assert quickstart_lines(result)[1].endswith("lost to crashes 0")
    assert ("No fit: one n is too few" in text) is refused
    assert ("Best n " in text) is not refused
    assert ("Run: 32 problems x 128 rollouts x 244 steps" in text) is not refused
    assert lines[-1] == "Report: q/report.html"


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


def test_the_next_command_repeats_how_the_source_is_read() -> None:
    plain = {"range": (0.0, 1.0), "set": [], "where": [], "fix": None, "metric": None}
    assert repeated(argparse.Namespace(**plain)) == ""
    # Said by the source itself: "runs[learning_rate=*]".
    assert repeated(argparse.Namespace(**plain | {"where": ["a=b"], "split": "train"})) == ""
    asked = {"set": ["pattern=n{rollouts_per_problem}"], "map": "my map.yaml", "joint": True,
             "metric": "avg@4,best@4", "range": [0, 100]}  # fmt: skip
    said = ("--set 'pattern=n{rollouts_per_problem}' --map 'my map.yaml' --metric avg@4 --joint "
            "--range 0 100")
    assert repeated(argparse.Namespace(**plain | asked)) == said
    fixed = plain | {"fix": ("batch_size", 8192), "metric": "best@4"}
    said = "--metric best@4 --fix batch_size=8192"
    assert repeated(argparse.Namespace(**fixed)) == said


def test_of_one_n_no_rule_is_said_to_choose() -> None:
    d = document()
    assert "Score lost" in "".join(backtest_lines(d))
    assert "Score lost" not in "".join(backtest_lines({**d, "curves": d["curves"][:1]}))
