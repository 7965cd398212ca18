"""Passes over the data, the rate at a run's end, days: what a log says beside its scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.answers import plan_budget
from isocompute.answers.clock import hours_words
from isocompute.answers.plan import Plan, plan_from_source
from isocompute.importers import read_logs
from isocompute.importers.schedule import passes_per_step, rate_left
from isocompute.importers.settings import Settings
from isocompute.sources import load_curves
from test_plan import AT, codes, planted, said, text

N, B_P, D, LAST = (8, 16, 32), 4, 100, 200


def trl(folder: Path, rate: str = "linear", *, epochs: bool = True) -> Path:
    """Runs of TRL: 4 problems a step of 100, that is 25 steps a pass, 200 steps."""
    for n in N:
        rows = []
        for step in range(0, LAST + 1, 10):
            left = 1 - step / LAST if rate == "linear" else 1.0
            row = {"step": step, "epoch": round(step * B_P / D, 4)}
            score = 0.2 + 0.5 * step / (step + 800 / n) + 0.003 * ((step // 10) % 3)
            if step:
                rows.append({**row, "loss": 0.1, "learning_rate": 1e-6 * left, "reward": score,
                             "num_tokens": step * B_P * n * 100.0, "step_time": 36.0})  # fmt: skip
            rows.append({**row, "eval_reward": score, "eval_runtime": 3.0})
        if not epochs:
            rows = [{k: v for k, v in row.items() if k != "epoch"} for row in rows]
        of = folder / f"n{n}" / f"checkpoint-{LAST}"
        of.mkdir(parents=True)
        state = {"global_step": LAST, "max_steps": LAST, "log_history": rows}
        (of / "trainer_state.json").write_text(json.dumps(state))
    return folder


def settings(gpus: int | None = None) -> Settings:
    return Settings(pattern="n{rollouts_per_problem}", problems_per_batch=B_P, gpus=gpus)


def test_passes_are_read_from_shares_and_from_whole_passes() -> None:
    shares = {step: round(step / 40, 2) for step in range(1, 101)}
    assert passes_per_step(shares) == pytest.approx(1 / 40)
    whole = {step: (step - 1) // 40 for step in range(1, 101)}  # verl: steps 1 to 40 are pass 0
    assert passes_per_step(whole) == pytest.approx(1 / 40)
    assert passes_per_step({10: 0.05, 20: 0.1}) is None  # too few to tell from two digits
    assert passes_per_step({50: 1.25}) is None  # one row
    assert passes_per_step(dict.fromkeys(range(1, 30), 0)) is None  # within the first pass
    assert passes_per_step({s: s for s in range(1, 30)}) is None  # a counter of steps
    assert passes_per_step({10: 2.5, 20: 2.6, 30: 2.7}) is None  # a run that goes on


def test_the_rate_at_the_end_is_a_share_of_its_peak() -> None:
    assert rate_left({1: 1e-7, 5: 1e-6, 9: 1e-6}) == 1
    assert rate_left({1: 1e-6, 9: 2e-7}) == pytest.approx(0.2)
    assert rate_left({}) is None
    assert rate_left({1: 0.0}) is None


def test_a_log_tells_its_problems_its_gpus_and_that_its_rate_fell(tmp_path: Path) -> None:
    from isocompute.importers import import_logs

    logs = trl(tmp_path / "logs")
    import_logs([logs], tmp_path / "study", settings=settings(gpus=2))
    for c in load_curves([str(tmp_path / "study")]):
        assert (c.trained_on, c.gpus) == (D, 2)
        assert c.rate_left == 0.0
    plan = plan_from_source(str(tmp_path / "study"), budget=Budget(amount=1e6, unit="rollouts"))
    d = plan.document
    assert d["passes_over_data"] == pytest.approx(d["steps"] * B_P / D)
    assert d["passes_in_sweep"] == pytest.approx(8.0)
    assert "passes over 100 problems; the sweep made 8.0 at most" in "\n".join(said(plan))
    assert d["wall"]["gpus"] == 2
    assert d["wall"]["hours"] == pytest.approx(d["cost"]["gpu_hours"] / 2)
    assert d["wall"]["hours"] == pytest.approx(d["steps"] * 36 / 3600, rel=0.02)
    assert "fell to 0% of its peak: n = 8, n = 16, n = 32" in text(d, "rate_fell")
    one = plan_from_source(
        str(tmp_path / "study"), budget=Budget(amount=1e6, unit="rollouts"), problems=1000
    ).document
    assert one["passes_over_data"] == pytest.approx(one["steps"] * B_P / 1000)
    assert one["passes_in_sweep"] == pytest.approx(8.0)  # of the problems that it had


def test_a_steady_rate_and_no_epochs_say_nothing(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs", "constant", epochs=False)
    runs = read_logs([logs], settings=settings())
    assert {run.provenance.passes_per_step for run in runs} == {None}
    assert {run.provenance.rate_left for run in runs} == {1.0}


def test_passes_within_what_the_sweep_saw_have_no_row(tmp_path: Path) -> None:
    fit = planted()
    for c in fit.curves:
        assert c.trained_on is None
    d = plan_budget(fit, AT).document
    assert (d["passes_over_data"], d["passes_in_sweep"], d["wall"]) == (None, None, None)
    within = plan_budget(fit, AT, problems=200).document  # n = 16 went over them 312 times
    assert within["passes_over_data"] == pytest.approx(976 * 32 / 200)
    assert not any(row.startswith("  data") for row in said(of(within)))
    many = plan_budget(fit, 4 * AT, problems=200).document
    assert "passes_over_data" in codes(many)
    assert many["passes_in_sweep"] is None
    assert any(row == "  data       625 passes over 200 problems" for row in said(of(many)))


def of(document: dict[str, object]) -> Plan:
    return Plan(allocation=None, document=document)


def test_gpus_of_the_budget_give_the_days() -> None:
    rates = Rates(rollouts_per_gpu_hour=1000.0)
    assert parse_budget("64gpux3d").gpus == 64
    assert parse_budget("400gpuh").gpus is None
    d = plan_budget(planted(), parse_budget("4gpux10d"), rates=rates).document
    assert d["wall"] == {"gpus": 4, "hours": pytest.approx(d["cost"]["gpu_hours"] / 4)}
    assert any(" GPU-hours, 10 days on 4 GPUs   (" in row for row in said(of(d)))
    assert plan_budget(planted(), AT, rates=rates).document["wall"] is None


def test_times_are_said_in_their_own_unit() -> None:
    assert hours_words(24.0) == "24 hours"
    assert hours_words(48.0) == "2 days"
    assert hours_words(1.0) == "1 hour"
    assert hours_words(1 / 60) == "1 minute"


def test_a_run_that_crashed_is_said(tmp_path: Path) -> None:
    rows = [("Name", "State", "num_generations", "per_device_train_batch_size")]
    for i, n in enumerate(N):
        with (tmp_path / f"r{i}_history.csv").open("w") as file:
            out = csv.writer(file)
            out.writerow(("train/global_step", "eval/reward"))
            out.writerows((step, 0.2 + step / 1000) for step in range(0, 101, 10))
        rows.append((f"r{i}", "crashed" if i == 1 else "finished", n, 4 * n))
    with (tmp_path / "runs.csv").open("w") as file:
        csv.writer(file).writerows(rows)
    runs = read_logs([tmp_path])
    told = {run.name: [n for n in run.notes if "crashed" in n] for run in runs}
    assert [bool(lines) for _, lines in sorted(told.items())] == [False, True, False]


def test_what_is_trained_already_is_no_expense() -> None:
    d = plan_budget(planted(), AT / 2, rates=Rates(rollouts_per_gpu_hour=900.0)).document
    step = {"settles": "bp_untested", "do": "train", "command": "", "rollouts": 9e4,
            "cost": {"tokens": None, "gpu_hours": 100.0, "usd": None}}  # fmt: skip
    rows = said(of({**d, "run_next": [step]}))
    assert "Nothing is left to train. To learn more (100 GPU-hours):" in rows
    rows = said(of({**d, "run_next": [step], "trained": None}))
    assert any(row.startswith("Before you spend (run and checks: 6") for row in rows)


def test_cautions_are_counted_apart_from_notes() -> None:
    d = plan_budget(planted(), AT).document
    one = {"level": "caution", "code": "x", "text": "A.", "remedy": "B.", "rollouts": None}
    note = {**one, "level": "note"}
    more = {**d, "notices": [one, one, one, note], "verdict": {"level": "caution", "reason": "A."}}
    assert said(of(more))[-1].startswith("2 more cautions, 1 note: --why")
    assert said(of({**more, "notices": [one, one]}))[-1].startswith("1 more caution: --why")
    assert said(of({**more, "notices": [one, note]}))[-1].startswith("1 more note: --why")
