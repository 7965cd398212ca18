"""A verifier that raises or hangs: which problems, and why, can be found out afterwards."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.engines import register_engine
from isocompute.engines.base import StepRecord, Unjudged
from isocompute.engines.simulator import SimulatorEngine
from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet, load_problems
from isocompute.runner import run_study
from isocompute.store import Store
from isocompute.store.doctor import examine
from isocompute.store.export import export_study
from isocompute.store.health import steps_health
from isocompute.store.judging import Judging
from isocompute.study import Study
from study_helpers import FAST, digest, small_study


class _Fails:
    """A sink that turns one wrong response per problem of the batch into an unjudged one."""

    def __init__(self, sink, every):
        self.sink, self.every = sink, every
        self.checkpoint, self.reached = sink.checkpoint, sink.reached

    @property
    def wants_checkpoint(self):
        return self.sink.wants_checkpoint

    def step(self, record):
        wrong = [
            Unjudged(problem=int(problem), rollouts=1, message=f"ValueError: step {record.step}",
                     response="\ud800 half a pair")
            for problem, right in zip(record.problem_Q, record.successes_Q, strict=True)
            if right < record.samples and problem % 3 == 0
        ]
        self.sink.step(replace(record, unjudged=wrong))

    def evaluation(self, record):
        first = Unjudged(problem=0, rollouts=2, message="no verdict within 10 s", response="x")
        self.sink.evaluation(replace(
            record, unjudged=[first], sampled_rollouts=record.samples * 8 + 2
        ))


class FailingEngine(SimulatorEngine):
    name = "failing"

    def run(self, spec, resume, sink):
        super().run(spec, resume, _Fails(sink, 3))


register_engine("failing", "test_unjudged:FailingEngine")


@pytest.mark.heavy
def test_failures_are_stored_once_however_often_a_study_is_interrupted(tmp_path):
    study = small_study(engine="failing")
    run_study(study, tmp_path / "whole", workers=0, settings=FAST)
    for budget in (64, 128, 256):
        run_study(
            small_study(engine="failing", rollouts=budget), tmp_path / "parts", workers=0,
            settings=FAST,
        )  # fmt: skip
    assert digest(tmp_path / "whole", tmp_path / "a") == digest(tmp_path / "parts", tmp_path / "b")
    assert [f for f in examine(tmp_path / "whole") if f.severity == "error"] == []
    with Store(tmp_path / "whole") as store:
        rows = store.unjudged()
        total = store.unjudged(total=True)
        runs = {run.hash: run for run in store.runs()}
        evaluations = len(store.evaluations())
        steps = {hash_: store.steps(hash_) for hash_ in runs}
        accounting = store.accounting()
    assert sum(row.rollouts for row in rows) == sum(row.rollouts for row in total)
    of_training = [row for row in rows if row.split == "train"]
    assert {row.message for row in of_training} > {"ValueError: step 1", "ValueError: step 2"}
    assert {row.response for row in of_training} == {"? half a pair"}
    assert accounting.evaluation_rollouts == evaluations * (4 * 8 + 2)
    in_validation = [row for row in rows if row.split == "validation"]
    assert len(in_validation) == evaluations
    assert {(row.problem_set, row.rollouts) for row in in_validation} == {("val", 2)}
    # They are no rewards of 0: the rules see the mean of what was judged, live and afterwards.
    for hash_, run in runs.items():
        drawn = sum(s.size for s in steps[hash_].judged) * run.spec["rollouts_per_problem"]
        lost = sum(row.rollouts for row in of_training if row.run == hash_)
        assert sum(int(j.sum()) for j in steps[hash_].judged) == drawn - lost < drawn
        assert run.findings == steps_health(steps[hash_])


def test_export_has_a_table_only_where_a_verifier_failed(tmp_path):
    run_study(small_study(engine="failing", rollouts=64), tmp_path / "s", workers=0, settings=FAST)
    files = {p.name: p for p in export_study(tmp_path / "s", tmp_path / "t", format="csv")}
    with files["unjudged.csv"].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with files["problems.csv"].open(newline="", encoding="utf-8") as file:
        ids = {row["id"] for row in csv.DictReader(file)}
    assert {row["problem"] for row in rows} <= ids
    assert {row["split"] for row in rows} == {"train", "validation"}
    run_study(small_study(rollouts=64), tmp_path / "sound", workers=0, settings=FAST)
    names = {p.name for p in export_study(tmp_path / "sound", tmp_path / "u", format="csv")}
    assert "unjudged.csv" not in names
    assert "steps.csv" in names


class _JudgesNothing(_Fails):
    """Nothing is judged from a step on, in training, in evaluations or in both."""

    def __init__(self, sink, options):
        super().__init__(sink, 1)
        self.options = options

    def step(self, record):
        if record.step >= self.options.get("steps", math.inf):
            record = replace(record, unjudged=[
                Unjudged(problem=int(problem), rollouts=record.samples, message="ValueError: boom")
                for problem in record.problem_Q], successes_Q=0 * record.successes_Q)  # fmt: skip
        self.sink.step(record)

    def evaluation(self, record):
        if record.step >= self.options.get("evaluations", math.inf):
            record = replace(record, unjudged=[
                Unjudged(problem=i, rollouts=3 * record.samples, message="ValueError: boom")
                for i in range(8)], sampled_rollouts=3 * 8 * record.samples)  # fmt: skip
        self.sink.evaluation(record)


class BrokenVerifierEngine(SimulatorEngine):
    """Its verifier judges nothing until the file `mended` is there."""

    name = "unjudging"

    def check(self, spec):
        """Accept its own options."""

    def run(self, spec, resume, sink):
        options = {} if Path(spec.engine_options["mended"]).exists() else spec.engine_options
        super().run(replace(spec, engine_options={}), resume, _JudgesNothing(sink, options))


register_engine("unjudging", "test_unjudged:BrokenVerifierEngine")


def broken(folder: Path, rollouts: int = 512, **options: int) -> Study:
    """One run of B_p = 4, n = 4: 16 responses a batch, 8 validation problems with 4 samples."""
    return small_study(ns=(4,), engine="unjudging", rollouts=rollouts, slices=(1.0,),
                       options={"mended": str(folder / "mended"), **options})  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("options", "trained", "said"),
    [
        # 8 problems x 4 samples, drawn three times.
        ({"evaluations": 0}, 0, "all 96 to validation set 'val' at step 0 (ValueError: boom)"),
        # After step 2 (64 rollouts drawn, the first evaluation at 32) it breaks.
        ({"evaluations": 3}, 2, "all 96 to validation set 'val' at step 4 (ValueError: boom)"),
        # Four batches of 16 are 64 responses; the evaluations of 32 and 64 rollouts were kept.
        ({"steps": 1}, 2, "all 64 to training problems, up to step 4 (ValueError: boom)"),
    ],
)
def test_a_verifier_that_judges_nothing_stops_the_run_and_loses_nothing(
    tmp_path, options, trained, said
):
    study, folder = broken(tmp_path, **options), tmp_path / "s"
    summary = run_study(study, folder, workers=0, settings=FAST)
    assert (summary.failed, summary.done, len(summary.warnings)) == (1, 0, 0)
    ((_, reason),) = summary.problems
    assert said in reason
    assert "mend it, then run again with --retry-failed" in reason
    assert "easier problems" not in reason
    with Store(folder) as store:
        (run,) = store.runs()
        assert run.steps_done == trained
        drawn = store.accounting()
        assert drawn.rollouts + drawn.wasted_rollouts <= 64
        assert drawn.wasted_evaluation_rollouts == (96 if "evaluations" in options else 0)
    (tmp_path / "mended").touch()
    again = run_study(study, folder, workers=0, settings=FAST, retry_failed=True)
    if "steps" in options:  # two batches of nothing were kept before it was stopped
        assert again.done == 1
        return
    whole = tmp_path / "whole"
    run_study(study, whole, workers=0, settings=FAST)
    assert digest(folder, tmp_path / "a") == digest(whole, tmp_path / "b")


def test_a_short_run_whose_verifier_judged_nothing_is_invalid_for_that_reason(tmp_path):
    summary = run_study(broken(tmp_path, rollouts=48, steps=1), tmp_path / "s", workers=0,
                        settings=FAST)  # fmt: skip
    ((_, reason),) = summary.problems
    assert reason.startswith("the verifier must judge responses, but of 48 in training it judged 0")


def test_one_judged_batch_in_a_while_is_enough():
    judging = Judging()
    batch = StepRecord(step=1, rollouts=16, tokens=0, problem_Q=np.arange(4), samples=4,
                       successes_Q=np.zeros(4, dtype=int))  # fmt: skip
    lost = replace(batch, unjudged=[Unjudged(problem=i, rollouts=4, message="x") for i in range(4)])
    for _ in range(9):
        judging.step(lost)
        judging.step(lost)
        judging.step(lost)
        judging.step(replace(batch, unjudged=lost.unjudged[:3]))  # 4 of 16 were judged
    for _ in range(3):
        judging.step(lost)
    with pytest.raises(InputError, match="all 64 to training problems, up to step 1"):
        judging.step(lost)
    Judging().step(replace(batch, problem_Q=np.arange(0), successes_Q=np.arange(0)))  # not known


def test_a_study_of_schema_2_gets_the_table(tmp_path):
    shutil.copy(Path(__file__).parents[1] / "data" / "store-v2" / "study.db", tmp_path)
    with Store(tmp_path) as store:
        assert store.unjudged() == []
    longer = small_study(engine="simulator", rollouts=128)
    assert run_study(longer, tmp_path, workers=0, settings=FAST).done == 2


JUDGE = """
import time

def judge(response, answer):
    if answer.startswith("1"):
        raise ValueError("cannot read " + answer)
    if answer == "288" and len(response) % 3:
        time.sleep(60)
    return len(response) % 2
"""


@pytest.mark.heavy
def test_a_users_verifier_that_raises_or_hangs_is_told_by_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    from isocompute import verifiers

    monkeypatch.setattr(verifiers, "FUNCTION_TIMEOUT_S", 0.3)
    monkeypatch.chdir(tmp_path)
    Path("judge.py").write_text(JUDGE)
    rows = [{"id": f"p{i}", "prompt": f"{i}*36", "answer": str(i * 36)} for i in range(3, 9)]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("study.yaml").write_text("""
engine: local
engine_options: {model: products}
problems:
  train: {path: own.jsonl, verifier: "judge.py:judge"}
  validation:
    own: {path: own.jsonl, verifier: "judge.py:judge"}
recipe: {difficulty: hard, temperature: 1, learning_rate: 1e-4}
grid: {problems_per_batch: 3, rollouts_per_problem: 4}
budget: 24
evaluation: {samples: 1, first: 1024}
allow: [shared_prompts]
""")
    assert main(["run", "study.yaml", "--workers", "0", "--calibrate", "0"]) == 0
    capsys.readouterr()
    assert main(["status", "study", "--json", "status.json"]) == 0
    shown = capsys.readouterr().out
    answers = {problem.id: problem.answer for problem in load_problems("own.jsonl").problems}
    found = json.loads(Path("status.json").read_text())["unjudged"]
    assert {row["problem"] for row in found} == {
        problem for problem, answer in answers.items() if answer[0] == "1" or answer == "288"
    }
    for row in found:
        answer = answers[row["problem"]]
        wanted = f"ValueError: cannot read {answer}" if answer[0] == "1" else "no verdict within"
        assert wanted in row["message"]
    assert "the verifier failed on" in shown
    assert f"{found[0]['problem']!r}" in shown
    given = ["own.jsonl", "--model", "products", "--verifier", "judge.py:judge"]
    assert main(["difficulty", *given, "--samples", "2", "--second-stage", "0"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "samples could not be judged and are left out of the rates: p" in shown
    assert "ValueError: cannot read" in shown


def test_failures_of_some_problems_are_named_by_their_place_in_the_whole_set(tmp_path: Path):
    """As in the second stage of `difficulty`, which draws for a few problems only."""
    pytest.importorskip("torch")
    from isocompute.engines.local.base_rates import success_counter

    judge = tmp_path / "judge.py"
    judge.write_text(JUDGE)
    problems = [
        Problem(id=f"p{i}", prompt=f"{i}*36", answer=str(i * 36)) for i in (6, 7, 3, 9, 4, 5)
    ]  # 3, 4 and 5 times 36 begin with 1
    own = ProblemSet(name="own", problems=problems, verifier=f"{judge}:judge")
    counts = success_counter("products", own)(np.array([1, 2, 5]), 2)
    assert sorted((one.problem, one.rollouts) for one in counts.unjudged) == [(2, 2), (5, 2)]
    assert counts.judged_P.tolist() == [2, 0, 0]
