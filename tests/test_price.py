"""What rollouts cost: rates in the runs themselves, by configuration, worked out by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Budget, Rates
from isocompute.answers import advice_lines, plan_budget, plan_from_source
from isocompute.answers.fit import fit_sweep
from isocompute.answers.price import Price, priced, timed, unit_paid_in
from isocompute.answers.steps import priced_remedy
from isocompute.cli import main
from isocompute.domain import Configuration, Curve, notice
from isocompute.domain.text import compact
from isocompute.engines import problem_generators, register_engine
from isocompute.engines.local.engine import LocalEngine
from isocompute.errors import InputError
from isocompute.importers.timing import gpu_seconds_per_step
from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.store import Store
from isocompute.study import load_study
from isocompute.testing.planted import NOISE, WORLDS

SIDE: dict[str, dict[int, float]] = {
    "seconds": {}, "runtime": {}, "train_runtime": {}, "throughput": {}, "total": {},
}  # fmt: skip


def curve(n: int, hours: float | None, rollouts: float = 1e5) -> Curve:
    x = rollouts * np.array([0.0, 0.01, 0.1, 0.5, 1.0])
    spent = None if hours is None else x / rollouts * hours
    return Curve(
        problems_per_batch=16, rollouts_per_problem=n, run=f"{n}-{hours}", rollouts_K=x,
        score_K=np.array([0.2, 0.3, 0.4, 0.45, 0.5]), gpu_hours_K=spent,
    )  # fmt: skip


# ---- rates by configuration ----


def test_rates_are_found_in_the_runs_and_lie_on_a_line_between_batches() -> None:
    runs = [curve(8, 100), curve(8, 90), curve(8, 120), curve(32, 62.5), curve(128, 25)]
    price = priced(runs, Rates(usd_per_gpu_hour=2.0))
    assert price.speeds == {
        Configuration(16, 8): pytest.approx(1000), Configuration(16, 32): pytest.approx(1600),
        Configuration(16, 128): pytest.approx(4000),
    }  # fmt: skip
    assert price.rates.rollouts_per_gpu_hour == pytest.approx(1600)
    assert price.origin == {"rollouts_per_gpu_hour": "sweep"}
    # Updates of 128, 512 and 2,048 take 0.128, 0.32 and 0.512 hours: a third of the way, 0.384.
    assert price.speed_of(Configuration(32, 32)) == pytest.approx(1024 / 0.384)
    assert price.speed_of(Configuration(16, 512)) == pytest.approx(8192 / (0.512 + 4 * 0.192))
    assert price.speed_of(Configuration(8, 8)) == pytest.approx(64 / (0.128 - 64 * 0.0005))
    assert price.speed_of(Configuration(1, 1)) == pytest.approx(1 / (0.128 - 127 * 0.0005))
    one = priced(runs[-1:], Rates())
    assert [one.speed_of(Configuration(b, 8)) for b in (1, 64, 512)] == pytest.approx([4000] * 3)
    # An update that takes longer where its batch is smaller has no fixed part below zero.
    odd = priced([curve(8, 100), curve(32, 10)], Rates())
    assert odd.speed_of(Configuration(16, 128)) == pytest.approx(2048 / (512 / 1e4))
    cost = price.of(Configuration(16, 128)).cost(8000)
    assert cost == {"tokens": None, "gpu_hours": pytest.approx(2), "usd": pytest.approx(4)}
    # Left out, the middle batch is taken to need a fifth of the way from 0.128 to 0.512 hours.
    assert price.off == pytest.approx(1 - 1600 / 2500)
    # Of several batches left out the worst counts; 8,192 in 0.512 hours as 2,048.
    more = priced([*runs, curve(512, 6.25)], Rates())
    assert more.off == pytest.approx(max(0.36, abs(4000 / (2048 / 0.3584) - 1)))
    told = price.to_dict(Configuration(16, 8))["rollouts_per_gpu_hour"]
    assert told == {"value": pytest.approx(1000), "from": "sweep", "off": pytest.approx(0.36),
                    "timed_on": None}  # fmt: skip


def test_a_rate_that_is_given_holds_for_all() -> None:
    price = priced([curve(8, 100), curve(32, 50)], Rates(rollouts_per_gpu_hour=700.0))
    assert price.speeds == {}
    assert price.off is None
    assert price.speed_of(Configuration(16, 8)) == 700
    assert Price().speed_of(Configuration(16, 8)) is None
    assert priced([curve(8, None)], Rates()).speeds == {}
    assert priced([curve(8, 100), curve(32, 50)], Rates()).off is None  # two batches tell nothing


def test_curves_without_times_take_the_rate_for_all() -> None:
    known, unknown = timed([curve(8, 100), curve(8, None)], Rates(rollouts_per_gpu_hour=500.0))
    assert known.gpu_hours_K is not None
    assert unknown.gpu_hours_K is not None
    assert (known.gpu_hours_K[-1], unknown.gpu_hours_K[-1]) == (100, 200)
    assert timed([curve(8, None)], Rates())[0].gpu_hours_K is None


# ---- GPU-hours as the unit ----


def test_gpu_hours_are_a_unit_of_a_curve() -> None:
    one = curve(8, 100)
    assert one.position("gpu-hours").tolist() == [0, 1, 10, 50, 100]
    assert one.until(10, "gpu-hours").gpu_hours_K == pytest.approx([0, 1, 10])
    with pytest.raises(InputError, match="a fit by GPU-hours needs the time of every run"):
        curve(8, None).position("gpu-hours")
    with pytest.raises(InputError, match="one of rollouts, tokens, gpu-hours, but got 'hours'"):
        one.position("hours")


def sweep_with_times(speed: dict[int, float]) -> list[Curve]:
    """A planted sweep in which rollouts of each n take their time."""
    curves = WORLDS["constant_small"].until(2**20).sample(NOISE["low"], 1, np.random.default_rng(0))
    return [c.replace(gpu_hours_K=c.rollouts_K / speed[c.rollouts_per_problem]) for c in curves]


N = (8, 16, 32, 64, 128, 256, 512)


def test_n_is_compared_by_what_it_costs() -> None:
    # By rollouts n = 8 is always best; where its rollouts take sixty times as long it is not.
    slow = {n: 100.0 if n == 8 else 6000.0 for n in N}
    fit = fit_sweep(sweep_with_times(slow), unit="gpu-hours")
    d = plan_budget(fit, Budget(amount=100.0, unit="gpu_hours")).document
    assert d["rollouts_per_problem"] == 16
    assert d["rollouts"] == pytest.approx(100 * 6000, rel=0.01)
    assert d["cost"]["gpu_hours"] == pytest.approx(100, rel=0.01)
    assert d["law"]["unit"] == "gpu-hours"
    by_rollouts = plan_budget(fit_sweep(sweep_with_times(slow)), 6e5).document
    assert by_rollouts["rollouts_per_problem"] == 8
    assert by_rollouts["cost"]["gpu_hours"] == pytest.approx(6000, rel=0.01)
    usd = plan_budget(fit, Budget(amount=200.0, unit="usd"), rates=Rates(usd_per_gpu_hour=2.0))
    assert usd.document["rollouts"] == d["rollouts"]
    with pytest.raises(InputError, match="compares n at equal GPU-hours, but the budget is 600k"):
        plan_budget(fit, 6e5)


def test_a_fixed_batch_has_a_law_in_steps_only() -> None:
    curves = sweep_with_times(dict.fromkeys(N, 1e3))
    with pytest.raises(InputError, match="unit must be rollouts, but got gpu-hours"):
        fit_sweep(curves, unit="gpu-hours", fix=("batch_size", 512))


STUDY = """
engine: local
engine_options: {model: bits-mlp}
problems:
  train: {generated: world, options: {world: bits, part: train, size: 64}}
  validation:
    main: {generated: world, options: {world: bits, part: validation, size: 16}}
recipe: {learning_rate: 1e-3, temperature: 1.0}
grid: {problems_per_batch: 4, rollouts_per_problem: [2, 4, 8]}
budget: 512
evaluation: {samples: 4, per_octave: 2, first: 32}
RATES
"""


def study(tmp_path: Path, rates: str = "") -> str:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace("RATES", rates))
    run_study(load_study(file, generators=problem_generators()), tmp_path / "s", workers=0)
    return str(tmp_path / "s")


def test_a_study_is_priced_by_its_own_runs(tmp_path: Path, capsys: Any) -> None:
    source = study(tmp_path)
    curves = load_curves(source)
    assert len(curves) == 3
    with Store(source) as store:
        seconds = {run.hash: store.steps(run.hash).wall_s_K.sum() for run in store.runs()}
    for c in curves:
        assert c.gpu_hours_K is not None
        assert c.gpu_hours_K[-1] == pytest.approx(seconds[c.run] / 3600)
        assert c.gpu_hours_K[0] == 0
    assert main(["fit", source, "--unit", "gpu-hours", "--json", str(tmp_path / "f.json")]) == 0
    assert json.loads((tmp_path / "f.json").read_text())["unit"] == "gpu-hours"
    assert "GPU-hours" in capsys.readouterr().out


class Elsewhere(LocalEngine):
    """Takes a while to start; its very first start fails."""

    failed = False

    def run(self, *args: Any) -> None:
        time.sleep(0.2)
        if not Elsewhere.failed:
            Elsewhere.failed = True
            raise OSError("no GPU yet")
        super().run(*args)


register_engine("elsewhere", "test_price:Elsewhere")


def test_slices_tell_what_a_start_of_the_trainer_takes(tmp_path: Path) -> None:
    assert [c.start_s for c in load_curves(study(tmp_path))] == [None] * 3  # in this process
    file = tmp_path / "t.yaml"
    file.write_text(STUDY.replace("local", "elsewhere").replace("RATES", "slices: [0.5, 1]"))
    run_study(load_study(file, generators=problem_generators()), tmp_path / "t", workers=0)
    with Store(tmp_path / "t") as store:
        assert store.accounting().attempts == 7
        idle = {run.hash: store.idle_s(run.hash) for run in store.runs()}
        for run in store.runs():
            found = store.evaluations(run.hash), store.steps(run.hash)
            work = sum(float(one.wall_s_K.sum()) for one in found)
            failed = run.wall_s - work - sum(idle[run.hash])  # what is left is the failed start
            assert len(idle[run.hash]) == 2
            assert min(idle[run.hash]) >= 0.2
            assert failed >= 0.2 if run.attempts == 3 else abs(failed) < 1e-6
    for c in load_curves(str(tmp_path / "t")):
        assert c.start_s == pytest.approx(sum(idle[c.run]) / 2)


def test_the_run_of_a_plan_starts_once_and_its_budget_pays_for_it() -> None:
    curves = sweep_with_times(dict.fromkeys(N, 1000.0))
    known = [c.replace(start_s=1800.0, gpus=8) for c in curves]  # four GPU-hours
    hours, money = Budget(amount=2000.0, unit="gpu_hours"), Budget(amount=6000.0, unit="usd")
    free = plan_budget(fit_sweep(curves, unit="gpu-hours", draws=50), hours).document
    fit = fit_sweep(known, unit="gpu-hours", draws=50)
    paid = plan_budget(fit, hours).document
    assert paid["budget_rollouts"] == pytest.approx(free["budget_rollouts"] - 4000)
    assert paid["cost"]["gpu_hours"] == pytest.approx(paid["rollouts"] / 1000 + 4)
    assert 1990 < paid["cost"]["gpu_hours"] <= 2000
    assert paid["cost"]["source"]["gpu_hours_per_start"] == {
        "value": pytest.approx(4), "from": "sweep",
    }  # fmt: skip
    assert "gpu_hours_per_start" not in free["cost"]["source"]
    usd = plan_budget(fit, money, rates=Rates(usd_per_gpu_hour=3.0), current=64).document
    assert usd["cost"]["usd"] == pytest.approx(3 * usd["cost"]["gpu_hours"])
    assert 5990 < usd["cost"]["usd"] <= 6000
    assert usd["gain"]["cost"]["gpu_hours"] > 4
    # Tokens and rollouts are not spent on a start.
    assert plan_budget(fit_sweep(known, draws=50), 2e6).document["rollouts"] > 1.9e6
    with pytest.raises(InputError, match=r"start of its run \(4 GPU-hours\), but got 3.5; raise"):
        plan_budget(fit, Budget(amount=3.5, unit="gpu_hours"))


def test_a_plan_says_its_price_and_how_far_it_may_be_off() -> None:
    # Updates take 0.1 hours and 0.001 for each rollout; those of n = 64 are faster by a tenth.
    speed = {n: 16 * n / (0.1 + 0.016 * n) * (1.1 if n == 64 else 1) for n in N}
    fit = fit_sweep(sweep_with_times(speed))
    d = plan_budget(fit, 2e6).document
    found = d["cost"]["source"]["rollouts_per_gpu_hour"]
    assert found == {
        "value": pytest.approx(speed[8]), "from": "sweep", "off": pytest.approx(0.1),
        "timed_on": None,
    }  # fmt: skip
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / speed[8])
    line = next(line for line in advice_lines(d) if line.startswith("  cost"))
    assert line.endswith("(your runs' times, within 10%)")
    # Money and tokens leave no room for both: what a price rests on stays.
    dear = d | {"cost": d["cost"] | {"gpu_hours": 1364.0, "usd": 3000.0, "tokens": 48.7e9}}
    line = next(line for line in advice_lines(dear) if line.startswith("  cost"))
    assert line.endswith("1,364 GPU-hours, $3,000   (your runs' times, within 10%)")
    # With days and GPUs there is no room for whose times they are, but for how far off.
    days = dear | {"wall": {"gpus": 64, "hours": 456.0}}
    line = next(line for line in advice_lines(days) if line.startswith("  cost"))
    assert line.endswith("1,364 GPU-hours, $3,000, 19 days on 64 GPUs   (within 10%)")


def test_the_rate_of_the_study_file_comes_before_its_runs(tmp_path: Path) -> None:
    source = study(tmp_path, "rates: {rollouts_per_gpu_hour: 1000}")
    fit = fit_sweep(sweep_with_times(dict.fromkeys(N, 50.0)))
    d = plan_from_source(source, budget=Budget(amount=1000.0, unit="gpu_hours"), fit=fit).document
    assert d["cost"]["source"]["rollouts_per_gpu_hour"] == {"value": 1000, "from": "study"}
    assert d["budget_rollouts"] == pytest.approx(1e6)


def test_a_budget_that_is_paid_is_planned_by_what_is_paid() -> None:
    runs, hours = [curve(8, 100), curve(32, 50)], Budget(amount=10.0, unit="gpu_hours")
    assert unit_paid_in(hours, Rates(), runs) == "gpu-hours"
    assert unit_paid_in(Budget(amount=10.0, unit="usd"), Rates(), runs) == "gpu-hours"
    assert unit_paid_in(Budget(amount=10.0, unit="rollouts"), Rates(), runs) == "rollouts"
    assert unit_paid_in(None, Rates(), runs) == "rollouts"
    assert unit_paid_in(hours, Rates(rollouts_per_gpu_hour=10.0), runs) == "rollouts"
    assert unit_paid_in(hours, Rates(), [*runs, curve(64, None)]) == "rollouts"
    tokens = Budget(amount=1e8, unit="tokens")
    logged = [c.replace(tokens_K=500 * c.rollouts_K) for c in runs]
    assert unit_paid_in(tokens, Rates(), logged) == "tokens"
    assert unit_paid_in(tokens, Rates(tokens_per_rollout=500.0), logged) == "rollouts"
    assert unit_paid_in(tokens, Rates(), [*logged, curve(64, None)]) == "rollouts"


@pytest.mark.parametrize("unit", ["tokens", "gpu_hours"])
def test_a_plan_never_costs_more_than_a_budget_that_is_paid(unit: str) -> None:
    # A rollout costs five times as much at n = 512 as at the median n = 64.
    rng = np.random.default_rng(0)
    runs = [
        c.replace(**{f"{unit}_K": c.rollouts_K * (100 + 10 * c.rollouts_per_problem)})
        for c in WORLDS["constant_large"].until(2.0**21).sample(NOISE["low"], 1, rng)
    ]
    asked = Budget(amount=8e8, unit=unit)
    fit = fit_sweep(runs, draws=50)  # in rollouts, as a notebook and a report have it
    d = plan_from_source("runs.csv", budget=asked, fit=fit).document
    assert d["law"]["unit"] == unit.replace("_", "-")
    assert 0.9 * 8e8 < d["cost"][unit] <= 8e8
    # By rollouts one rate turns the budget into them, and prices them.
    kept = plan_from_source("runs.csv", budget=asked, fit=fit, unit="rollouts").document
    assert 0.9 * 8e8 < kept["cost"][unit] <= 8e8


def test_a_check_costs_what_its_own_batch_takes() -> None:
    """A GPU-hour makes 1,000 rollouts at n = 8 and twice as many at each next n."""
    speed = {n: 1000.0 * 2**i for i, n in enumerate(N)}
    price = priced(sweep_with_times(speed), Rates())
    n = {Configuration(16, m): s for m, s in speed.items()}
    assert {c: price.of(c).rollouts_per_gpu_hour for c in n} == pytest.approx(n)
    both = price.of(Configuration(16, N[0]), Configuration(16, N[1]))  # as many rollouts each
    assert both.rollouts_per_gpu_hour == pytest.approx(2 / (1 / 1000 + 1 / 2000))
    apart = {Configuration(16, N[0]): 3000.0, Configuration(16, N[1]): 1000.0}
    assert price.cost(apart)["gpu_hours"] == pytest.approx(3000 / 1000 + 1000 / 2000)
    assert price.cost(apart)["usd"] is None
    told = notice("few_seeds", which="n = 8, 16", trains=apart)
    assert "(4,000 rollouts, 3.5 GPU-hours" in priced_remedy(told, price).remedy
    d = plan_budget(fit_sweep(sweep_with_times(speed)), 2e6).document
    chosen, steps = d["rollouts_per_problem"], {s["settles"]: s for s in d["run_next"]}
    larger = price.speed_of(Configuration(32, chosen))  # of twice the batch
    step = steps["bp_untested"]
    assert step["cost"]["gpu_hours"] == pytest.approx(step["rollouts"] / larger)
    told = next(x["remedy"] for x in d["notices"] if x["code"] == "bp_untested")
    assert f"{compact(step['cost']['gpu_hours'])} GPU-hours" in told


def test_equal_rollouts_are_no_unit_of_a_budget_that_buys_more_of_some(tmp_path: Path) -> None:
    source = study(tmp_path)
    hours = Budget(amount=1.0, unit="gpu_hours")
    with pytest.raises(InputError, match=r"a budget of GPU-hours buys differs by n"):
        plan_from_source(source, budget=hours, unit="rollouts")
    whole = plan_from_source(source, budget=Budget(amount=1e5, unit="rollouts"), unit="rollouts")
    assert whole.document["law"]["unit"] == "rollouts"


def test_a_report_counts_what_the_budget_of_its_plan_is_paid_in(tmp_path: Path) -> None:
    source, out = study(tmp_path), tmp_path / "r.html"
    for budget, unit in (("1gpuh", "GPU-hours"), ("1e5", "rollouts")):
        assert main(["report", source, "--budget", budget, "-o", str(out)]) == 0
        assert f"budgets in {unit}" in out.read_text()


# ---- times in logs ----


def test_times_of_each_trainer_by_hand() -> None:
    verl = SIDE | {
        "seconds": {1: 30.0, 2: 10.0, 3: 20.0}, "throughput": {1: 500.0, 2: 1500.0, 3: 750.0},
        "total": {1: 120_000.0, 2: 120_000.0, 3: 120_000.0},
    }  # fmt: skip
    assert gpu_seconds_per_step(verl, None) == pytest.approx(20 * 8)  # 120,000 / (30 * 500) = 8
    assert gpu_seconds_per_step(verl, 2) == pytest.approx(40)
    odd = verl | {"throughput": dict.fromkeys((1, 2, 3), 900.0)}
    assert gpu_seconds_per_step(odd, None) is None  # 6.7 GPUs
    trl = SIDE | {"train_runtime": {200: 1000.0}}
    assert gpu_seconds_per_step(trl, 1) == pytest.approx(5)
    assert gpu_seconds_per_step(trl, None) is None
    wandb = SIDE | {"runtime": {1: 60.0, 11: 160.0}}
    assert gpu_seconds_per_step(wandb, 4) == pytest.approx(40)
    assert gpu_seconds_per_step(SIDE | {"runtime": {1: 60.0, 11: 20.0}}, 4) is None
    assert gpu_seconds_per_step(SIDE | {"runtime": {1: 60.0}}, 4) is None
    assert gpu_seconds_per_step(SIDE, 8) is None


def verl_log(path: Path, seconds: float) -> None:
    rows = [
        {"step": s, "data": {
            "val-core/main/acc/mean@4": 0.3 + 0.01 * s, "timing_s/step": seconds,
            "perf/total_num_tokens": 48_000, "perf/throughput": 48_000 / seconds / 8,
            "response_length/mean": 300.0, "prompt_length/mean": 75.0,
        }} for s in range(1, 9)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_verl_log_brings_its_price_through_the_archive(tmp_path: Path) -> None:
    for n, seconds in ((8, 36.0), (16, 18.0)):
        folder = tmp_path / "logs" / f"bp{128 // n}_n{n}"
        folder.mkdir(parents=True)
        verl_log(folder / "metrics.jsonl", seconds)
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"
    logs = str(tmp_path / "logs")
    assert main(["import", logs, "-o", str(tmp_path / "study"), "--set", pattern]) == 0
    curves = load_curves(str(tmp_path / "study"))
    price = priced(curves, Rates())
    # 128 rollouts in 36 s on 8 GPUs are 1,600 a GPU-hour.
    assert price.speeds == {
        Configuration(16, 8): pytest.approx(1600), Configuration(8, 16): pytest.approx(3200),
    }  # fmt: skip
    assert main(["import", logs, "-o", str(tmp_path / "two"), "--set", pattern,
                 "--set", "gpus=4"]) == 0  # fmt: skip
    slow = priced(load_curves(str(tmp_path / "two")), Rates())
    assert slow.speeds[Configuration(16, 8)] == pytest.approx(3200)
