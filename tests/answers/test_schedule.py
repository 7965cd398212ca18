"""Passes over the data, the rate at a run's end, days: what a log says beside its scores."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from design_helpers import prior_once, quick  # noqa: F401  # fixtures
from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.answers import Fit, fit_sweep, plan_budget
from isocompute.answers.beside import passes_words
from isocompute.answers.machines import hours_words, on_gpus, update_time
from isocompute.answers.plan import Plan, plan_from_source
from isocompute.answers.price import unit_paid_in
from isocompute.cli import main
from isocompute.domain import Curve
from isocompute.domain.text import compact
from isocompute.importers import import_logs, read_logs
from isocompute.importers.values.timing import passes_per_step, rate_span
from isocompute.importers.words.settings import Settings
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


def passes(epochs: dict[int, float]) -> float | None:
    return passes_per_step(np.array(list(epochs)), np.array(list(epochs.values())))


def test_passes_are_read_from_shares_and_from_whole_passes() -> None:
    shares = {step: round(step / 40, 2) for step in range(1, 101)}
    assert passes(shares) == pytest.approx(1 / 40, rel=0.01)
    later = {step: round((step + 60) / 40, 2) for step in range(1, 101)}  # it went on from another
    assert passes(later) == pytest.approx(1 / 40, rel=0.01)
    for first in (0, 1):  # verl counts from 0, others from 1
        whole = {step: first + (step - 1) // 40 for step in range(1, 101)}
        assert passes(whole) == pytest.approx(1 / 40)
        begun = {step: first + (step + 15) // 40 for step in range(8, 171)}
        assert passes(begun) == pytest.approx(1 / 40)
    once = {step: (step + 15) // 40 for step in range(8, 60)}  # only one pass begins here
    assert passes(once) is None
    seldom = {step: (step - 1) // 40 for step in range(1, 101, 10)}
    assert passes(seldom) is None  # a pass may have begun nine updates before its row
    assert passes({step: (step - 1) // 40 for step in range(1, 999, 3)}) == (
        pytest.approx(1 / 40, rel=0.05))  # fmt: skip
    assert passes({10: 0.05, 20: 0.1}) is None  # too few to tell from two digits
    assert passes({50: 1.25}) is None  # one row
    assert passes(dict.fromkeys(range(1, 30), 0)) is None  # within the first pass
    assert passes({s: s for s in range(1, 30)}) is None  # a counter of steps
    assert passes({10: 0.5, 20: 2.5, 30: 2.7}) is None  # grows unlike the steps


def test_the_rate_at_the_end_and_its_peak() -> None:
    assert rate_span({1: 1e-7, 5: 1e-6, 9: 1e-6}) == (1e-6, 1e-6)
    assert rate_span({1: 1e-6, 9: 2e-7}) == (2e-7, 1e-6)
    assert rate_span({}) is None
    assert rate_span({1: 0.0}) is None


def test_of_joined_logs_the_last_rate_counts(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs")
    for n in N:
        file = next((logs / f"n{n}").rglob("trainer_state.json"))
        state = json.loads(file.read_text())
        for name, part in (("a", lambda s: s <= 100), ("b", lambda s: s > 100)):
            rows = [row for row in state["log_history"] if part(row["step"])]
            to = logs / f"n{n}" / name / "trainer_state.json"
            to.parent.mkdir()
            to.write_text(json.dumps({**state, "log_history": rows}))
        file.unlink()
    runs = read_logs([logs], settings=dataclasses.replace(settings(), resumed="join"))
    assert len(runs) == len(N)
    for run in runs:
        assert run.provenance.rates == pytest.approx((0.0, 0.95e-6))
        assert run.provenance.passes_per_step == pytest.approx(B_P / D)


@pytest.mark.heavy
def test_a_log_tells_its_problems_its_gpus_and_that_its_rate_fell(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs")
    import_logs([logs], tmp_path / "study", settings=settings(gpus=2))
    for c in load_curves([str(tmp_path / "study")]):
        assert (c.trained_on, c.gpus) == (D, 2)
        assert c.rate_left == 0.0
    plan = plan_from_source(str(tmp_path / "study"), budget=Budget(amount=1e6, unit="rollouts"))
    d = plan.document
    assert d["passes_over_data"] == pytest.approx(d["steps"] * B_P / D)
    n = d["rollouts_per_problem"]
    assert d["passes_in_sweep"] == pytest.approx({"of_n": 8.0, "most": 8.0, "problems": D})
    assert f"passes over 100 problems; so far n = {n} made 8.0" in "\n".join(said(plan))
    assert d["wall"]["gpus"] == 2
    assert d["wall"]["hours"] == pytest.approx(d["cost"]["gpu_hours"] / 2)
    assert d["wall"]["hours"] == pytest.approx(d["steps"] * 36 / 3600, rel=0.02)
    assert "fell to 0% of its peak: n = 8, 16, 32" in text(d, "rate_fell")
    one = plan_from_source(
        str(tmp_path / "study"), budget=Budget(amount=1e6, unit="rollouts"), problems=1000
    ).document
    assert one["passes_over_data"] == pytest.approx(one["steps"] * B_P / 1000)
    assert one["passes_in_sweep"]["most"] == pytest.approx(8.0)  # of the problems that it had


def test_a_steady_rate_and_no_epochs_say_nothing(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs", "constant", epochs=False)
    runs = read_logs([logs], settings=settings())
    assert {run.provenance.passes_per_step for run in runs} == {None}
    assert {run.provenance.rates for run in runs} == {(1e-6, 1e-6)}


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
    left = {"checks": 1, "steps": 900, "predicted_score": 0.3}
    rows = said(of({**d, "run_next": [step], "trained": None, "after_checks": [left]}))
    head = "Before you spend (100 GPU-hours; leaves a run of 900 steps"
    assert any(row.startswith(head) for row in rows)


def test_cautions_are_counted_apart_from_notes() -> None:
    d = plan_budget(planted(), AT).document
    one = {"level": "caution", "code": "x", "text": "A.", "remedy": "B.", "rollouts": None}
    note = {**one, "level": "note"}
    more = {**d, "notices": [one, one, one, note], "verdict": {"level": "caution", "reason": "A."}}
    assert said(of(more))[-1].startswith("2 more cautions, 1 note: --why")
    assert said(of({**more, "notices": [one, one]}))[-1].startswith("1 more caution: --why")
    assert said(of({**more, "notices": [one, note]}))[-1].startswith("1 more note: --why")


def timed(batch: int, gpus: int, fixed: float = 20.0, work: float = 0.4) -> Curve:
    """A run of 16 problems whose updates take 20 s and 0.4 GPU-seconds a rollout."""
    steps = np.arange(1.0, 11.0)
    hours = steps * (fixed + work * batch / gpus) * gpus / 3600
    return Curve(problems_per_batch=16, rollouts_per_problem=batch // 16, run=f"{batch}",
                 rollouts_K=steps * batch, score_K=0.1 + steps / 100, gpu_hours_K=hours,
                 gpus=gpus)  # fmt: skip


def test_more_gpus_share_the_work_of_an_update_and_not_what_no_batch_shortens() -> None:
    curves = [timed(batch, 8) for batch in (128, 512, 2048)]
    assert update_time(curves) == pytest.approx((20.0, 0.4))
    scaled = on_gpus(curves, 64)
    for c, batch in zip(scaled, (128, 512, 2048), strict=True):
        wanted = timed(batch, 64)
        assert c.gpu_hours_K == pytest.approx(wanted.gpu_hours_K)
        assert (c.gpus, c.timed_on) == (64, 8)
    assert on_gpus(scaled, 64) == scaled  # once
    assert on_gpus(curves, None) == on_gpus(curves, 8) == curves
    # Runs on several numbers of GPUs tell it, too; of one batch all is work.
    mixed = [timed(512, 8), timed(512, 16), timed(2048, 32)]
    assert update_time(mixed) == pytest.approx((20.0, 0.4))
    (alone,) = on_gpus([timed(512, 8)], 16)
    assert alone.gpu_hours_K == pytest.approx(timed(512, 8).gpu_hours_K)
    untimed = timed(512, 8).replace(gpus=None)
    assert on_gpus([untimed], 16) == [untimed]
    # A CPU's times say nothing of GPUs, and a budget on these is not counted by them.
    by_cpu = untimed.replace(device="CPU")
    untold, _ = on_gpus([by_cpu, timed(512, 8)], 8)
    assert untold.gpu_hours_K is None
    assert on_gpus([by_cpu], None) == [by_cpu]
    runs = [by_cpu, by_cpu.replace(run="again")]
    assert unit_paid_in(parse_budget("9gpuh"), Rates(), runs) == "gpu-hours"
    assert unit_paid_in(parse_budget("8gpux9h"), Rates(), runs) == "rollouts"


@pytest.mark.heavy
def test_a_plan_for_other_gpus_says_that_times_are_scaled(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs")
    for n in N:  # 30 s and 0.05 GPU-seconds a rollout, on two GPUs
        file = next((logs / f"n{n}").rglob("trainer_state.json"))
        state = json.loads(file.read_text())
        for row in state["log_history"]:
            if "step_time" in row:
                row["step_time"] = 30 + 0.05 * B_P * n / 2
        file.write_text(json.dumps(state))
    import_logs([logs], tmp_path / "study", settings=settings(gpus=2))
    study = str(tmp_path / "study")
    d = plan_from_source(study, budget=parse_budget("8gpux3d")).document
    batch = d["problems_per_batch"] * d["rollouts_per_problem"]
    took = d["steps"] * (30 + 0.05 * batch / 8) / 3600
    assert d["wall"]["hours"] == pytest.approx(took, rel=1e-3)
    assert d["wall"] == {"gpus": 8, "hours": pytest.approx(72, rel=0.01)}
    assert "measured on 2 GPUs. On 8, the 30 seconds that an update" in text(d, "gpus_scaled")
    assert any("(times of 2 GPUs, scaled)" in row for row in said(of(d)))
    assert d["cost"]["source"]["rollouts_per_gpu_hour"]["timed_on"] == 2
    own = plan_from_source(study, budget=parse_budget("2gpux12d")).document
    assert "gpus_scaled" not in codes(own)
    assert own["steps"] > 3.5 * d["steps"] * 0.99  # as many GPU-hours, and less time wasted
    again = plan_from_source(
        study, budget=parse_budget("8gpux3d"), fit=iso_fit(study)
    ).document
    assert again["steps"] == d["steps"]


def iso_fit(study: str) -> Fit:
    """As a notebook holds it."""
    return fit_sweep(load_curves([study]))


@pytest.mark.heavy
def test_one_rate_for_all_batches_is_said() -> None:
    runs = [c.replace(recorded={"learning_rate": 1e-6}) for c in planted().curves]
    d = plan_budget(fit_sweep(runs, draws=20), AT).document
    told = "Batches of 512 to 4,096 rollouts were all trained at a learning rate of 1e-6: larger"
    assert told in text(d, "one_rate")
    (dear,) = [one for one in d["notices"] if one["code"] == "one_rate"]
    own = [r for r in runs if r.rollouts_per_problem == d["rollouts_per_problem"]]
    assert dear["rollouts"] == 2 * max(r.rollouts_K[-1] for r in own)
    assert dear["remedy"].endswith(f"at twice the rate ({compact(dear['rollouts'])} rollouts).")
    near = [c for c in runs if c.rollouts_per_problem in (32, 64)]
    assert "one_rate" not in codes(plan_budget(fit_sweep(near, draws=20), AT).document)
    scaled = [
        c.replace(recorded={"learning_rate": 1e-6 * (c.rollouts_per_problem / 16) ** 0.5})
        for c in runs
    ]
    assert "one_rate" not in codes(plan_budget(fit_sweep(scaled, draws=20), AT).document)


@pytest.mark.heavy
def test_what_the_study_itself_ran_beyond_its_panel_is_not_asked_for() -> None:
    d = plan_from_source("published:qwen2.5-7b-easy", budget=parse_budget("4e6")).document
    assert d["rollouts_per_problem"] == 512  # the largest of the panel
    assert "capped_by_tested_n" not in codes(d)
    assert any("1,024 and 2,048 were run" in one for one in d["printed_law"]["sentences"])
    wide = plan_from_source("published:qwen2.5-7b-easy-bp64", budget=parse_budget("8e6")).document
    assert "capped_by_tested_n" in codes(wide)


def test_what_is_too_dear_stands_apart_and_is_not_added() -> None:
    d = plan_budget(planted(), AT, rates=Rates(rollouts_per_gpu_hour=900.0)).document
    step = {"settles": "bp_untested", "do": "train a", "command": "", "rollouts": 9e4,
            "cost": {"tokens": None, "gpu_hours": 100.0, "usd": None}}  # fmt: skip
    dear = {**step, "do": "train b", "command": "isocompute run x", "rollouts": 9e9,
            "cost": {**step["cost"], "gpu_hours": 1e7}}  # fmt: skip
    d = {**d, "run_next": [step, dear], "trained": None}
    head = next(row for row in said(of(d)) if row.startswith("Before"))
    rows = said(of(d), why=True)
    assert head in rows
    at = rows.index("Left out, too dear beside this run:")
    assert rows[at + 1].startswith("  - train b   (9B rollouts")
    assert rows[at + 2].strip() == "isocompute run x"


def timed_study(
    tmp_path: Path, gpus: int | None, *, untimed: int | None = None, until: int = LAST
) -> str:
    """30 s an update and 0.05 GPU-seconds a rollout."""
    logs = trl(tmp_path / "logs")
    for n in N:
        file = next((logs / f"n{n}").rglob("trainer_state.json"))
        state = json.loads(file.read_text())
        for row in state["log_history"]:
            if "step_time" in row:
                row["step_time"] = 30 + 0.05 * B_P * n / (gpus or 1)
            if n == untimed:
                row.pop("step_time", None)
        state["log_history"] = [r for r in state["log_history"] if r["step"] <= until]
        file.write_text(json.dumps(state))
    import_logs([logs], tmp_path / "study", settings=settings(gpus=gpus))
    return str(tmp_path / "study")


@pytest.mark.heavy
def test_a_run_without_times_makes_no_plan_dearer_than_its_budget(tmp_path: Path) -> None:
    study = timed_study(tmp_path, 2, untimed=N[-1])
    for limit in (None, B_P * N[0]):
        d = plan_from_source(study, budget=parse_budget("500gpuh"), max_batch_size=limit).document
        assert d["cost"]["gpu_hours"] <= 500
        assert d["cost"]["gpu_hours"] > 450
        assert d["law"]["unit"] == "rollouts"


def learning(batch: int, gpus: int | None, b_p: int = 16, seed: int = 0) -> Curve:
    """A run that learns, and updates that take 20 s and 0.4 GPU-seconds a rollout."""
    steps = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) * 2048 // batch
    hours = steps * (20.0 + 0.4 * batch / (gpus or 8)) * (gpus or 8) / 3600
    score = 0.2 + 0.08 * np.log10(steps * batch) + 0.002 * np.sin(steps + seed)
    return Curve(problems_per_batch=b_p, rollouts_per_problem=batch // b_p, run=f"{batch}-{b_p}",
                 seed=seed, rollouts_K=1.0 * steps * batch, score_K=score, gpu_hours_K=hours,
                 steps_K=1.0 * steps, gpus=gpus)  # fmt: skip


@pytest.mark.heavy
def test_a_fixed_batch_on_other_gpus_is_scaled_too() -> None:
    runs = [learning(512, 8, b_p, s) for b_p in (8, 16, 32) for s in range(3)]
    fit = fit_sweep(runs, fix=("batch_size", 512), draws=20)
    own, other = (
        plan_from_source("runs.csv", budget=parse_budget(b), fit=fit).document
        for b in ("8gpux60h", "16gpux30h")
    )
    assert "gpus_scaled" not in codes(own)
    assert "On 16, all of an update is taken to be shared" in text(other, "gpus_scaled")
    assert other["steps"] == pytest.approx(own["steps"], rel=0.01)  # one batch: nothing is known


@pytest.mark.heavy
def test_times_of_nobody_knows_how_many_gpus_are_said_to_be_that() -> None:
    runs = [learning(batch, None, seed=s) for batch in (128, 512, 2048) for s in range(3)]
    d = plan_budget(fit_sweep(runs, draws=20, unit="gpu-hours"), parse_budget("4gpux9h")).document
    assert "measured on a number of GPUs that is not known. On 4, all" in text(d, "gpus_scaled")
    given = plan_budget(fit_sweep(runs, draws=20), parse_budget("4gpux9h"),
                        rates=Rates(rollouts_per_gpu_hour=1e4)).document  # fmt: skip
    assert "gpus_scaled" not in codes(given)  # whoever gives a rate knows it


@pytest.mark.heavy
def test_the_gpus_are_those_of_the_runs_of_the_choice() -> None:
    runs = [learning(batch, gpus, seed=s) for batch, gpus in ((128, 1), (512, 1), (2048, 8))
            for s in range(3)]  # fmt: skip
    d = plan_budget(fit_sweep(runs, draws=20, unit="gpu-hours"), parse_budget("40gpuh")).document
    of = {8: 1, 32: 1, 128: 8}[d["rollouts_per_problem"]]
    assert d["wall"]["gpus"] == of


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("budget", "limits"),
    [("1e6", {}), ("1e6", {"max_batch_size": B_P * 8}), ("8gpux3d", {}), ("576gpuh", {})],
)
def test_a_refused_budget_comes_with_one_that_has_a_plan(
    budget: str, limits: dict[str, int], tmp_path: Path
) -> None:
    study = timed_study(tmp_path, 2, until=60)  # too short to say much of 1e6 rollouts
    refused = plan_from_source(study, budget=parse_budget(budget), **limits)
    assert refused.refusal is not None
    (step,) = refused.refusal.run_next
    amount, _, unit = step.split("or plan for at most ")[1].split(" and go on")[0].partition(" ")
    units = {"rollouts": "", "GPU-hours": "gpuh"}
    smaller = f"8gpux{amount}h" if unit == "hours on 8 GPUs" else f"{amount}{units[unit]}"
    assert plan_from_source(study, budget=parse_budget(smaller), **limits).refusal is None


@pytest.mark.heavy
def test_of_two_data_sets_the_passes_are_those_of_the_choice() -> None:
    runs = [c.replace(trained_on=100 if c.rollouts_per_problem < 32 else 1000)
            for c in planted().curves]  # fmt: skip
    d = plan_budget(fit_sweep(runs, draws=20), 4 * AT).document
    n = d["rollouts_per_problem"]
    of = 100 if n < 32 else 1000
    assert d["passes_over_data"] == pytest.approx(d["steps"] * 32 / of)
    assert d["passes_in_sweep"]["of_n"] == pytest.approx(AT / n / of, rel=0.02)
    few = [c.replace(trained_on=1000) if c.rollouts_per_problem == n else c.replace(trained_on=100)
           for c in runs]  # fmt: skip
    d = plan_budget(fit_sweep(few, draws=20), 4 * AT).document
    assert d["passes_over_data"] == pytest.approx(d["steps"] * 32 / 1000)
    other = plan_budget(fit_sweep(runs, draws=20), 400 * AT, problems=50).document
    assert passes_words(other).endswith(f" over {of:,}")


def of_document(document: dict[str, object]) -> Plan:
    return Plan(allocation=None, document=document)


def test_a_log_that_ends_at_its_plan_counts_from_one(tmp_path: Path) -> None:
    """The row of step 0 holds a reward, too, as some exports have it: that was no update."""
    at = (0, 3, 7, 15, 31, 63, 100)  # no multiples of one number
    table = [("Name", "data.train_batch_size", "actor_rollout_ref.rollout.n",
              "trainer.total_training_steps")]  # fmt: skip
    for n in N:
        with (tmp_path / f"r{n}_history.csv").open("w") as file:
            out = csv.writer(file)
            out.writerow(("_step", "training/global_step", "response_length/mean",
                          "critic/rewards/mean", "val-core/math/acc/mean@4"))  # fmt: skip
            for step in at:
                out.writerow((step, step, 900.0, 0.3, round(0.3 + step / 400, 4)))
        table.append((f"r{n}", 16, n, 100))
    with (tmp_path / "runs.csv").open("w") as file:
        csv.writer(file).writerows(table)
    for run in read_logs([tmp_path]):
        (score,) = [s for s in run.series if s.split == "validation"]
        assert score.step_K.tolist() == list(at)


@pytest.mark.heavy
def test_the_micro_batch_of_the_runs_is_kept(tmp_path: Path) -> None:
    logs = trl(tmp_path / "logs")
    for n in N:
        args = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2 * n,
                "num_generations": n, "learning_rate": 1e-6}  # fmt: skip
        (logs / f"n{n}" / f"checkpoint-{LAST}" / "training_args.json").write_text(json.dumps(args))
    import_logs([logs], tmp_path / "study", settings=settings())
    budget = Budget(amount=1e6, unit="rollouts")
    d = plan_from_source(str(tmp_path / "study"), budget=budget).document
    assert d["trainer"]["trl"]["per_device_train_batch_size"] == 2
    other = plan_budget(planted(), AT).document
    assert other["trainer"]["trl"]["per_device_train_batch_size"] == 16


def test_who_wins_is_shown_beside_the_next_best() -> None:
    d = plan_budget(planted(), AT).document  # 0.42 at n = 32, 0.4185 at 64
    assert d["runner_up"] == {
        "problems_per_batch": 32, "rollouts_per_problem": 64, "lost": pytest.approx(0.0015),
        "interval": pytest.approx([-0.017, 0.02], abs=0.004),
    }  # fmt: skip
    assert "Runner-up: n = 64: -0.002 (-0.0" in "\n".join(said(of_document(d), why=True))


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_a_design_for_other_gpus_is_priced_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = timed_study(tmp_path, 2)
    asked = ["design", "--prior", study, "--draws", "4", "--json", "-", "--hours"]
    runs = {}
    for gpus, hours in ((2, 96), (8, 24)):  # as many GPU-hours
        assert main([*asked, str(hours), "--gpus", f"{gpus}xA100"]) == 0
        runs[gpus] = json.loads(capsys.readouterr().out)
    assert "gpus_scaled" not in [one["code"] for one in runs[2]["notices"]]
    assert "gpus_scaled" in [one["code"] for one in runs[8]["notices"]]
    spent = {g: d["final"]["rollouts"] + d["sweep"]["rollouts"] for g, d in runs.items()}
    assert spent[2] > 2 * spent[8]  # 30 s of every update are fixed
