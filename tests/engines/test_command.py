"""Any trainer as an engine: a script of ten lines, run, killed, resumed, and refused."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Allocation
from isocompute.answers.machines import cadence
from isocompute.engines.command import CommandEngine, placeholders
from isocompute.engines.command.kept import keep_rows
from isocompute.engines.command.tail import Tail
from isocompute.engines.simulator import simulated_problems
from isocompute.errors import InputError, RunError
from isocompute.recipe import Recipe
from isocompute.runner import Settings, run_study
from isocompute.sources import load_curves
from isocompute.store import StorageError, Store
from isocompute.store.doctor import examine
from isocompute.store.export import export_study
from isocompute.store.status import study_status
from isocompute.study import RunSpec, Study
from sinks import ListSink
from study_helpers import FAST

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
SOURCE = str(ROOT / "src")
OWN = [sys.executable, str(HELPERS / "own_trainer.py"), "{problems_per_batch}",
       "{rollouts_per_problem}", "{steps}", "{seed}", "{learning_rate}", "{folder}"]  # fmt: skip
TRL_PYTHON = os.environ.get("ISOCOMPUTE_TRL_PYTHON", sys.executable)
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and "ISOCOMPUTE_TRL_PYTHON" not in os.environ,
    reason="no Python with trl",
)


def make_spec(
    folder: Path, *, steps: int = 8, recipe: Recipe | None = None, seed: int = 3, **options: Any
) -> RunSpec:
    return RunSpec(
        engine="command", seed=seed,
        allocation=Allocation(problems_per_batch=4, rollouts_per_problem=2, steps=steps),
        recipe=recipe or Recipe(), train=simulated_problems("train", 12),
        validation={"val": simulated_problems("val", 20)}, evaluations_per_octave=1,
        first_evaluation=16,
        engine_options={"command": OWN, "log": "metrics.jsonl", "reader": "jsonl",
                        "resume": ["--resume"], "folder": str(folder / "runs"), "poll_s": 0.02,
                        **options},
    )  # fmt: skip


def script(folder: Path, text: str) -> list[str]:
    path = folder / "trainer.py"
    path.write_text("import json, sys, time\nfrom pathlib import Path\n"
                    "log = Path(sys.argv[6]) / 'metrics.jsonl'\n" + text)  # fmt: skip
    return [sys.executable, str(path), *OWN[2:]]


def study_of(*specs: RunSpec) -> Study:
    return Study(name="own", runs=specs, slices=(1.0,))


def state(folder: Path) -> tuple[str, str]:
    with Store(folder) as store:
        (run,) = store.runs()
        return run.state, run.reason


def test_its_scores_become_the_curve(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    log = tmp_path / "runs" / spec.hash / "run-0" / "metrics.jsonl"
    rows = {row["step"]: row for row in map(json.loads, log.read_text().splitlines())}
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64]  # its own points of the common grid
    assert curve.score_K.tolist() == [rows[s]["val-core/math/acc/mean@4"] for s in (0, 2, 4, 8)]
    assert curve.trials == 80  # 20 problems, 4 samples
    assert (curve.problems_per_batch, curve.rollouts_per_problem, curve.seed) == (4, 2, 3)
    assert examine(tmp_path / "study") == []


def test_an_edited_script_trains_no_further_seeds_beside_the_first(tmp_path: Path) -> None:
    own = script(tmp_path, "")
    text = (HELPERS / "own_trainer.py").read_text()
    Path(own[1]).write_text(text)
    first, second = (make_spec(tmp_path, seed=seed, command=own) for seed in (3, 4))
    run_study(study_of(first), tmp_path / "study", workers=0, settings=FAST)
    Path(own[1]).write_text(text + "# another\n")
    run_study(study_of(first), tmp_path / "study", workers=0, settings=FAST)  # nothing to train
    with pytest.raises(InputError, match=r"but script '.*trainer.py' is not what it was when 1 of"):
        run_study(study_of(first, second), tmp_path / "study", workers=0, settings=FAST)
    Path(own[1]).write_text(text)
    run_study(study_of(first, second), tmp_path / "study", workers=0, settings=FAST)
    assert {curve.seed for curve in load_curves(str(tmp_path / "study"))} == {3, 4}


def test_a_placeholder_is_the_runs_own_value(tmp_path: Path) -> None:
    recipe = Recipe(kl_coef=0.25, importance_cap=None, learning_rate=1e-6)
    words = placeholders(make_spec(tmp_path, recipe=recipe), "here")
    expected = {
        "problems_per_batch": "4", "rollouts_per_problem": "2", "steps": "8", "seed": "3",
        "batch_size": "8", "rollouts": "64", "prompts": "32", "folder": "here",
        "kl_coef": "0.25", "importance_cap": "null", "objective": "grpo",
        "learning_rate": repr(1e-6 * (8 / 1024) ** 0.5), "evaluation_samples": "4",
        "allow_entropy_without_kl": "false",
    }  # fmt: skip
    assert {name: words[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": []}, "engine_options.command must be given"),
        ({"log": ""}, "engine_options.log must be given"),
        ({"command": "python train.py"}, "must be a list of texts, one per argument"),
        ({"command": [*OWN, 3]}, "must be a list of texts"),
        ({"resume": "--resume"}, "engine_options.resume must be a list of texts"),
        ({"reader": "verl"}, "reader must be one of recorder, jsonl, .* but got 'verl'"),
        ({"log": "../metrics.jsonl"}, "log must lie below {folder}"),
        ({"log": "/tmp/metrics.jsonl"}, "log must lie below {folder}"),
        ({"shell": True}, "must be among command, log, .* but got 'shell'"),
        ({"command": [*OWN, "{n}"]}, "but the command has {n}; take one of objective"),
        ({"command": [*OWN, "{step}"]}, "but the command has {step}; did you mean {steps}"),
        ({"resume": ["{checkpoint}"]}, "but the command has {checkpoint}"),
        *(({"command": [w for w in OWN if w != f"{{{name}}}"]}, f"must hold .*{{{name}}}")
          for name in ("problems_per_batch", "rollouts_per_problem", "steps", "seed",
                       "learning_rate", "folder")),
        ({"recipe": Recipe(kl_coef=0.5, top_p=0.9)}, "the command does not hold kl_coef=0.5, "
                                                     "top_p=0.9; add {kl_coef} {top_p}"),
    ],
)  # fmt: skip
def test_what_would_not_train_as_asked_is_refused_first(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        CommandEngine().check(make_spec(tmp_path, **changes))


def test_words_that_are_carried_are_accepted(tmp_path: Path) -> None:
    recipe = Recipe(kl_coef=0.5, top_p=0.9)
    completions = [w.replace("{problems_per_batch}", "{batch_size}") for w in OWN]
    for options in (
        {"command": [*OWN, "--kl={kl_coef}"], "fixed": ["top_p"]},
        {"command": completions, "fixed": ["top_p", "kl_coef"]},
        {"command": [*OWN, '{"json": 1}'], "fixed": ["top_p", "kl_coef"]},
    ):
        CommandEngine().check(make_spec(tmp_path, recipe=recipe, **options))


def test_no_shell_sees_the_arguments(tmp_path: Path) -> None:
    command = script(tmp_path, """
rows = [{"step": s, "val-core/m/acc/mean@4": 0.5} for s in range(9)]
log.write_text("".join(json.dumps(r) + chr(10) for r in rows))
Path(sys.argv[6], "seen").write_text(json.dumps(sys.argv[7:]))
""")
    words = ["$HOME", "; touch evil", "a b", "*"]
    spec = make_spec(tmp_path, command=[*command, *words], resume=None)
    CommandEngine().run(spec, None, ListSink(tmp_path / "sink"))
    (seen,) = (tmp_path / "runs").rglob("seen")
    assert json.loads(seen.read_text()) == words


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "failed: the command must leave its log at .*run-0/metrics.jsonl, but there is none"),
        ("log.write_text('nonsense')", "failed: a log must be one of verl, TRL"),
        ("""
for s in range(6):
    print(json.dumps({"step": s, "val-core/m/acc/mean@4": 0.5}), file=log.open("a"))
""", "invalid: the engine must train 8 steps, but it returned after 5 without an error"),
        ("""
for s in range(9):
    print(json.dumps({"step": s, "critic/score/mean": 0.5}), file=log.open("a"))
""", "failed: a log must hold a held-out score, but .* has none; where a key holds it, "
     "write engine_options.map: {KEY: avg@4} into the study file and add --retry-failed, else"),
    ],
)
def test_a_good_ending_without_the_work_says_what_is_missing(
    tmp_path: Path, text: str, reason: str
) -> None:
    spec = make_spec(tmp_path, command=script(tmp_path, text))
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert re.match(reason.replace("{", "[{]"), ": ".join(state(tmp_path / "study")))


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"val-core/m/acc/mean@4": 41.0}, {}, "share of successes in 0..1, but step 0 has 41"),
        ({"val-core/m/acc/mean@4": 0.5, "val-core/m/acc/mean@8": 0.5}, {},
         "the log has avg@4, avg@8 and engine_options.metric is None"),
        ({"val-core/m/acc/mean@4": 0.5}, {"metric": "avg@16"}, "metric is 'avg@16'; name one"),
        ({"val-core/m/acc/mean@4": 0.5}, {"reader": "recorder"}, "reader 'recorder' reads"),
    ],
)
def test_another_training_than_was_asked_fails(
    tmp_path: Path, row: dict[str, float], options: dict[str, Any], message: str
) -> None:
    command = script(tmp_path, f"""
for s in range(9):
    print(json.dumps({{"step": s, **{row!r}}}), file=log.open("a"))
""")
    with pytest.raises(InputError, match=message):
        CommandEngine().run(make_spec(tmp_path, command=command, **options), None,
                            ListSink(tmp_path / "sink"))  # fmt: skip


RECORDED = f"""
sys.path.insert(0, {SOURCE!r})
import isocompute
rec = isocompute.Recorder(Path(sys.argv[6]) / "a", problems_per_batch=int(sys.argv[1]) + SHIFT,
                          rollouts_per_problem=int(sys.argv[2]), seed=int(sys.argv[4]))
for s in range(9):
    rec.log(s, tokens=100 * s, outcomes={{f"val-{{i}}": [1, s > 3] for i in range(20)}})
"""


def test_outcomes_by_problem_stay_by_problem(tmp_path: Path) -> None:
    command = script(tmp_path, "SHIFT = 0" + RECORDED)
    spec = make_spec(tmp_path, command=command, log="a.jsonl", reader="recorder")
    names = [p.id for p in spec.validation["val"].problems]
    text = Path(command[1]).read_text().replace('f"val-{i}"', f"{names!r}[i]")
    Path(command[1]).write_text(text)
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    with Store(tmp_path / "study") as store:
        found = store.evaluations(spec.hash)
    assert found.counts_KC.tolist() == [[0, 20, 0]] * 2 + [[0, 0, 20]] * 2
    (curve,) = load_curves(str(tmp_path / "study"), metric="best@2")
    assert curve.score_K.tolist() == [1, 1, 1, 1]
    assert curve.tokens_K is not None
    assert curve.tokens_K.tolist() == [0, 200, 400, 800]


def test_a_trainer_that_says_another_configuration_fails(tmp_path: Path) -> None:
    command = script(tmp_path, "SHIFT = 1" + RECORDED)
    spec = make_spec(tmp_path, command=command, log="a.jsonl", reader="recorder")
    with pytest.raises(InputError, match="train with problems_per_batch=4, but its log says 5"):
        CommandEngine().run(spec, None, ListSink(tmp_path / "sink"))


def test_a_command_that_fails_says_its_last_words(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, command=script(tmp_path, "sys.exit('no such model')"))
    with pytest.raises(RunError, match="exit code 0, but gave 1: no such model"):
        CommandEngine().run(spec, None, ListSink(tmp_path / "sink"))
    killed = script(tmp_path, "import os; print('I was', flush=True); os.kill(os.getpid(), 9)")
    run_study(study_of(make_spec(tmp_path, command=killed)), tmp_path / "study", workers=0,
              settings=FAST)  # fmt: skip
    assert state(tmp_path / "study")[1].startswith(
        "the command must end with exit code 0, but signal 9 ended it: I was (log: ")


# As a study commits unless it is told otherwise: few seconds after the last time it would wait.
USUAL = dataclasses.replace(FAST, commit_share=Settings().commit_share)


def test_a_command_that_stops_short_keeps_what_it_trained(tmp_path: Path) -> None:
    own = script(tmp_path, """
done = len(log.read_text().splitlines()) if log.exists() else 0
for s in range(done, 6 if not done else 9):
    print(json.dumps({"step": s, "val-core/m/acc/mean@4": s / 10}), file=log.open("a"))
""")
    spec = make_spec(tmp_path, command=own)
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=USUAL)
    assert state(tmp_path / "study") == (
        "invalid", "the engine must train 8 steps, but it returned after 5 without an error; look "
                   "at its log.")  # fmt: skip
    with Store(tmp_path / "study") as store:
        assert len(store.steps(spec.hash)) == 5
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=USUAL, retry_failed=True)
    assert state(tmp_path / "study") == ("done", "")
    with Store(tmp_path / "study") as store:
        spent = store.accounting()
    assert (spent.rollouts, spent.wasted_rollouts, spent.wasted_evaluation_rollouts) == (64, 0, 0)


def test_a_log_that_ends_where_it_was_asked_to_counts_updates(tmp_path: Path) -> None:
    # Rewards of its step 0 made it the first update, and the score of step 5 that of a sixth.
    own = script(tmp_path, """
for s in range(6):
    row = {"step": s, "train/reward": s / 10}
    print(json.dumps(row if s % 5 else {**row, "val-core/math/acc/mean@4": s / 10}),
          file=log.open("a"))
""")
    run_study(study_of(make_spec(tmp_path, steps=5, command=own)), tmp_path / "study", workers=0,
              settings=FAST)  # fmt: skip
    (curve,) = load_curves(str(tmp_path / "study"))
    assert (curve.rollouts_K.tolist(), curve.score_K.tolist()) == ([0, 40], [0, 0.5])


def test_a_log_that_counts_beyond_what_was_asked_is_refused_with_both_numbers(
    tmp_path: Path
) -> None:
    # Micro-batches, say: of 16 the first 8 would be taken for the run.
    own = script(tmp_path, """
for s in range(17):
    print(json.dumps({"step": s, "it": s // 2, "val-core/math/acc/mean@4": s / 20}),
          file=log.open("a"))
""")
    said = r"must train 8 updates, but .* counts to 16; name the key .*\({KEY: steps}\), or let"
    with pytest.raises(InputError, match=said):
        CommandEngine().run(make_spec(tmp_path, command=own), None, ListSink(tmp_path / "sink"))


def test_a_study_that_is_moved_while_it_trains_says_so_and_goes_on_there(tmp_path: Path) -> None:
    own = script(tmp_path, f"""
for s in range(9):
    print(json.dumps({{"step": s, "val-core/m/acc/mean@4": s / 10}}), file=log.open("a"))
if "--resume" not in sys.argv:
    Path({str(tmp_path / "study")!r}).rename({str(tmp_path / "there")!r})
""")
    spec = make_spec(tmp_path, command=own)
    message = "must stay where it is while it is trained in, .*/study/study.db' has gone; run it"
    with pytest.raises(StorageError, match=message):
        run_study(study_of(spec), tmp_path / "study", workers=0, settings=USUAL)
    assert not (tmp_path / "study").exists()  # or the same command would begin anew there
    run_study(study_of(spec), tmp_path / "there", workers=0, settings=USUAL)
    assert state(tmp_path / "there") == ("done", "")


def test_time_passes_also_for_a_trainer_that_says_nothing(tmp_path: Path) -> None:
    sink = ListSink(tmp_path / "sink")
    CommandEngine().run(make_spec(tmp_path), None, sink)
    assert sink.told[0] == 0


def test_a_larger_budget_goes_on_where_there_is_a_way(tmp_path: Path) -> None:
    run_study(study_of(make_spec(tmp_path)), tmp_path / "study", workers=0, settings=FAST)
    before = load_curves(str(tmp_path / "study"))[0].score_K.tolist()
    run_study(study_of(make_spec(tmp_path, steps=16)), tmp_path / "study", workers=0, settings=FAST)
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.score_K.tolist()[:4] == before
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64, 128]
    log = next((tmp_path / "runs").rglob("metrics.jsonl"))
    assert len(log.read_text().splitlines()) == 17  # nothing was trained twice
    rigid = make_spec(tmp_path / "b", resume=None)
    sink = ListSink(tmp_path / "sink")
    CommandEngine().run(rigid, None, sink)
    with pytest.raises(InputError, match="go on from step 8, but the command has no way to resume"):
        CommandEngine().run(make_spec(tmp_path / "b", steps=16, resume=None), sink.last, sink)


def test_a_log_that_is_written_anew_on_resuming_keeps_its_first_rows(tmp_path: Path) -> None:
    # verl's file logger opens its file for writing: the curve lost its beginning without a word.
    anew = (HELPERS / "own_trainer.py").read_text().replace('open("a")', 'open("w")')
    own = script(tmp_path, "")
    Path(own[1]).write_text(anew.replace("done = len(log.read_text().splitlines())", "done = 7"))
    for steps in (8, 16, 32):
        run_study(study_of(make_spec(tmp_path, steps=steps, command=own)), tmp_path / "study",
                  workers=0, settings=FAST)  # fmt: skip
    assert state(tmp_path / "study") == ("done", "")
    (log,) = tmp_path.rglob("metrics.jsonl")
    assert {json.loads(row)["step"] for row in log.read_text().splitlines()} == {*range(33)}
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64, 128, 256]


@pytest.mark.parametrize(("done", "kept", "lost"), [(7, [0, 0.05, 0.1], 32), (1, [0], 64)])
def test_the_store_holds_what_the_run_that_went_on_says(
    done: int, kept: list[float], lost: int, tmp_path: Path
) -> None:
    # The slice ends at step 8, the trainer's last checkpoint is older.
    own = script(tmp_path, f"""
again = "--resume" in sys.argv and log.exists()
for s in range({done} if again else 0, int(sys.argv[3]) + 1):
    print(json.dumps({{"step": s, "val-core/m/acc/mean@4": s / 40 + 0.2 * again}}),
          file=log.open("a"))
""")
    for steps in (8, 16, 16):
        spec = make_spec(tmp_path, steps=steps, command=own)
        run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64, 128]
    assert curve.score_K.tolist() == pytest.approx([0, 0.05, 0.1, 0.2, 0.4][:len(kept)]
                                                   + [0.2, 0.25, 0.3, 0.4, 0.6][len(kept):])
    with Store(tmp_path / "study") as store:
        found = store.accounting()
        assert len(store.steps(spec.hash)) == 16
        # Since the last score that is still the log's: 4 updates of 8, or 8.
        assert (found.rollouts, found.wasted_rollouts) == (16 * 8, lost)
        assert found.evaluation_rollouts == 5 * 80
        assert found.wasted_evaluation_rollouts == 80 * (4 - len(kept))
    assert examine(tmp_path / "study") == []


@pytest.mark.parametrize(("back", "anew", "scores", "lost"), [
    (0, False, [0, 0.05, 0.1, 0.2, 0.6, 1], 0), (0, True, [0, 0.05, 0.1, 0.2, 0.6, 1], 0),
    (1, False, [0, 0.05, 0.1, 0.4, 0.6, 1], 96),
])  # fmt: skip
def test_a_second_score_where_a_trainer_goes_on_is_no_training(
    back: int, anew: bool, scores: list[float], lost: int, tmp_path: Path
) -> None:
    # It scores before its first update, so anew: its rewards say which updates it did again.
    own = script(tmp_path, f"""
sys.path.insert(0, {SOURCE!r})
import isocompute
again, steps, done = "--resume" in sys.argv, int(sys.argv[3]), Path(sys.argv[6]) / "done"
if {anew}:
    (Path(sys.argv[6]) / "a.jsonl").unlink(missing_ok=True)
rec = isocompute.Recorder(Path(sys.argv[6]) / "a", problems_per_batch=4, rollouts_per_problem=2,
                          seed=int(sys.argv[4]), samples=4)
begin = int(done.read_text()) - {back} if again else 0
for s in range(begin, steps + 1):
    if s > begin:
        rec.log(s, score=s / 80 + 0.1 * again, split="train")
    if s in (begin, 0, 2, 4, 8, 16, 32):
        rec.log(s, score=s / 40 + 0.2 * again)
done.write_text(str(steps))
""")
    for steps in (8, 16, 32, 32):
        spec = make_spec(tmp_path, steps=steps, command=own, log="a.jsonl", reader="recorder")
        run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.score_K.tolist() == pytest.approx(scores)
    with Store(tmp_path / "study") as store:
        assert store.accounting().wasted_rollouts == lost


def test_a_run_whose_folder_was_left_behind_says_so(tmp_path: Path) -> None:
    # Its trainer would begin anew without a word, and its curve would be of two trainings.
    short, long = make_spec(tmp_path), make_spec(tmp_path, steps=16)
    run_study(study_of(short), tmp_path / "study", workers=0, settings=FAST)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    run_study(study_of(long), tmp_path / "study", workers=0, settings=FAST)
    kind, reason = state(tmp_path / "study")
    assert kind == "failed"
    assert reason.startswith("a run must go on in the folder in which it trained to step 8, but ")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "runs")
    run_study(study_of(long), tmp_path / "study", workers=0, settings=FAST, retry_failed=True)
    assert state(tmp_path / "study") == ("done", "")


KEYED = """
for s in range(len(log.read_text().splitlines()) if log.exists() else 0, int(sys.argv[3]) + 1):
    print(json.dumps({"step": s, "val/accuracy/mean@8": s / 100, "val/other": 0.5}),
          file=log.open("a"))
"""


def test_a_key_that_is_not_known_is_asked_for_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    own = script(tmp_path, KEYED)
    spec = make_spec(tmp_path, command=own)
    slow = dataclasses.replace(FAST, commit_share=math.inf)  # every checkpoint is kept
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=slow)
    kind, reason = state(tmp_path / "study")
    assert kind == "failed"
    assert "(keys that were not read: val/accuracy/mean@8, val/other); where" in reason
    assert "engine_options.map: {val/accuracy/mean@8: avg@8} into the study file and" in reason
    mapped = make_spec(tmp_path, command=own, map={"val/accuracy/mean@8": "avg@8"})
    assert mapped.hash == spec.hash
    run_study(study_of(mapped), tmp_path / "study", workers=0, settings=slow, retry_failed=True)
    assert state(tmp_path / "study") == ("done", "")
    (log,) = tmp_path.rglob("metrics.jsonl")
    assert len(log.read_text().splitlines()) == 9
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.score_K.tolist() == pytest.approx([0, 0.02, 0.04, 0.08], abs=1 / 320)
    other = make_spec(tmp_path, command=own, steps=16, map={"val/other": "avg@8"})
    run_study(study_of(other), tmp_path / "study", workers=0, settings=slow)
    kind, reason = state(tmp_path / "study")
    assert kind == "failed"
    assert reason.startswith("one run must be read under one map, but its scores up to step 8 were")


@pytest.mark.parametrize(("changes", "message"), [
    ({"map": {"val/acc": ["avg@8"]}}, "a column must be a metric or have the keys metric"),
    ({"map": "avg@8"}, "engine_options.map must be a mapping"),
])
def test_a_map_is_checked_before_anything_starts(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        CommandEngine().check(make_spec(tmp_path, **changes))


def test_a_mean_is_called_what_it_is(tmp_path: Path) -> None:
    own = script(tmp_path, KEYED)
    spec = make_spec(tmp_path, command=own, map={"val/accuracy/mean@8": "avg@8"})
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    (curve,) = load_curves(str(tmp_path / "study"))
    assert (curve.metric, curve.trials) == ("avg@8", 160)
    (same,) = load_curves(str(tmp_path / "study"), metric="avg@8")
    assert same.score_K.tolist() == curve.score_K.tolist()
    with pytest.raises(InputError, match="best@8"):  # of no problem are the outcomes known
        load_curves(str(tmp_path / "study"), metric="best@8")
    export_study(tmp_path / "study", tmp_path / "tidy.csv")
    (again,) = load_curves(str(tmp_path / "tidy.csv"))
    assert (again.metric, again.score_K.tolist()) == ("avg@8", curve.score_K.tolist())


def test_what_was_trained_before_a_kill_and_lost_counts_no_more(tmp_path: Path) -> None:
    # It logged 14 updates, had its last checkpoint at 8, and went on from there.
    text = """
first = not log.exists()
done = 0 if first else 9
for s in range(done, 15 if first else 17):
    print(json.dumps({"step": s, "actor/loss": 1.0, "val-core/m/acc/mean@4":
                      0.25 if first else 0.75}), file=out, flush=True)
sys.exit(first)
"""
    for opened in ("a", "w"):
        folder = tmp_path / f"study-{opened}"
        own = script(tmp_path, text.replace("done =", f"out = log.open({opened!r})\ndone =", 1))
        spec = make_spec(tmp_path, steps=16, command=own)
        run_study(study_of(spec), folder, workers=0, settings=FAST)
        assert state(folder) == ("done", "")
        (curve,) = load_curves(str(folder))
        assert curve.rollouts_K.tolist() == [0, 16, 32, 64, 128]
        # Killed at once it goes on in its folder, and what it had trained by then is kept.
        assert curve.score_K.tolist() == [0.25, 0.25, 0.25, 0.25, 0.75]


@pytest.mark.parametrize(("reader", "head", "row"), [
    ("csv", "_step,val-core/m/acc/mean@4\n", "{s},{v}\n"),
    ("csv", "run,metric,step,value\n", "a,val-core/m/acc/mean@4,{s},{v}\n"),
    ("console", "", "step:{s} - val-core/m/acc/mean@4:{v} - actor/loss:0.1\n"),
    ("jsonl", "", '{{"step": {s}, "val-core/m/acc/mean@4": {v}}}\n'),
])
def test_every_log_of_rows_that_is_written_anew_keeps_its_beginning(
    tmp_path: Path, reader: str, head: str, row: str
) -> None:
    name = "log.csv" if reader == "csv" else "log.txt"
    own = script(tmp_path, f"""
log = log.parent / {name!r}
done = 7 if "--resume" in sys.argv and log.exists() else 0
with log.open("w") as out:
    out.write({head!r})
    for s in range(done, int(sys.argv[3]) + 1):
        out.write({row!r}.format(s=s, v=s / 40))
""")
    for steps in (8, 16):
        spec = make_spec(tmp_path, steps=steps, command=own, log=name, reader=reader)
        run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64, 128]
    assert curve.score_K.tolist() == pytest.approx([0, 0.05, 0.1, 0.2, 0.4])
    (log,) = (tmp_path / "runs").rglob(name)
    assert len(log.read_text().splitlines()) == len(head.splitlines()) + 9 + 10


@pytest.mark.parametrize(("reader", "row"), [
    ("jsonl", '{"step": %d, "val-core/m/acc/mean@4": 0.5}'),
    ("csv", "%d,0.5,0.5,0.25,0.25"),
    ("console", "\x1b[36m(Runner pid=7)\x1b[0m step:%d - val-core/m/acc/mean@4:0.5 - actor/lr:1"),
])  # fmt: skip
def test_how_far_a_trainer_is_shows_while_it_trains(
    reader: str, row: str, tmp_path: Path
) -> None:
    slow = script(tmp_path, f"""
sys.path.insert(0, {SOURCE!r})
from isocompute.store.status import study_status
if {reader == "csv"}:
    log = log.with_suffix(".csv")
    log.write_text("_step,val-core/m/acc/mean@4,a,b,c" + chr(10))
for s in range(9):
    print({row!r} % s, file=log.open("a"))
    if s == 5:
        print(({row!r} % 6)[:-9], end="", file=log.open("a"), flush=True)
        until = time.monotonic() + 30
        while not (seen := study_status({str(tmp_path / "study")!r}).under_way) or (
            seen[0].step is None and time.monotonic() < until
        ):
            time.sleep(0.05)
        (log.parent / "seen").write_text(seen[0].line("it"))
        log.write_text(log.read_text().rpartition("\\n")[0] + "\\n")
""")
    name = "metrics.csv" if reader == "csv" else "metrics.jsonl"
    spec = make_spec(tmp_path, command=slow, reader=reader, log=name)
    run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    (seen,) = tmp_path.rglob("seen")
    assert seen.read_text().startswith("training: it: step 5 of 8, 0 kept; for ")
    assert study_status(tmp_path / "study").under_way == []


def test_a_printed_log_tells_its_step_by_the_bar_of_training_or_the_row(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    told = {
        "": 0, "step 3: half a thought\n": 0,
        "  4%|4   | 4/100 [00:08<03:12]\r  5%|5  | 5/100 [00:10<03:10]\n{'loss': 0.1}\n": 5,
        "100%|###| 30/30 [00:10<00:00]\n  6%|6   | 6/100 [00:12<03:08]\n"
        "100%|###| 30/30 [00:10<00:00]\n{'eval_reward': 0.5, 'epoch': 0.1}\n": 6,
        "Step 7 | loss:0.1 rewards:0.4\n": 7, "rollout 8: {'rollout/raw_reward': 0.4}\n": 8,
    }
    for text, step in told.items():
        log.write_text(text)
        assert Tail(log, "console", 100).step() == step, text
    assert Tail(log, "jsonl").step() == 0  # no row of JSON
    assert Tail(tmp_path / "none", "console", 100).step() == 0


@pytest.mark.parametrize(("reader", "text", "column", "step"), [
    ("csv", "Step,loss\n", None, 0), ("csv", "Step,loss\n1,0.5\n2,0.4\n3,", None, 2),
    ("csv", "loss\tIt\n0.5\t7\n", "It", 7), ("csv", "loss,acc\n1,2\n", None, 0),
    ("csv", "run,metric,step,value\n\"a, b\",acc,9,0.5\n", None, 9),
    ("csv", "step,acc\n" + 9_000 * "5,0.125\n" + "6,nan\n,0.5\n", None, 6),
    ("jsonl", '{"it": 4}\n[5]\n{"it": null}\n', "it", 4), ("jsonl", '{"it": 4}\n', None, 0),
])
def test_a_growing_table_tells_its_step_by_the_column_that_has_it(
    reader: str, text: str, column: str | None, step: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert Tail(log, reader, column=column).step() == step


def test_another_study_of_the_same_run_begins_anew(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_study(study_of(make_spec(tmp_path)), tmp_path / name, workers=0, settings=FAST)
    assert sorted(p.parent.name for p in tmp_path.rglob("metrics.jsonl")) == ["run-0", "run-1"]


def test_a_trainer_of_a_worker_can_be_asked_to_stop(tmp_path: Path) -> None:
    # A worker leaves Ctrl-C and SIGTERM to its runner; a program that it starts must not inherit
    # that, or a stop waits half a minute and kills it before it saves anything.
    asks = script(tmp_path, "import signal; print(signal.getsignal(signal.SIGTERM), "
                            "signal.getsignal(signal.SIGINT)); sys.exit(3)")  # fmt: skip
    study = study_of(make_spec(tmp_path, command=asks))
    run_study(study, tmp_path / "study", workers=1, settings=FAST)
    said = state(tmp_path / "study")[1]
    assert f"{signal.SIG_DFL} {signal.default_int_handler}".partition(" at ")[0] in said, said
    assert "SIG_IGN" not in said
    assert study_status(tmp_path / "study").starts is None


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(1)", "sys.exit(0)"]
)
def test_a_queue_that_ends_runner_and_trainer_at_once_costs_no_try(
    end: str, tmp_path: Path
) -> None:
    # Slurm, Kubernetes and systemd send SIGTERM to every process of a job.
    asks = script(tmp_path, f"import os, signal; os.kill(os.getppid(), signal.SIGTERM); {end}\n")
    spec = make_spec(tmp_path, command=asks)
    for _ in range(4):
        summary = run_study(study_of(spec), tmp_path / "study", workers=0, settings=FAST)
        assert (summary.stopped_by, summary.warnings) == (signal.SIGTERM, ())
    assert state(tmp_path / "study") == ("pending", "")
    with Store(tmp_path / "study") as store:
        rows = store.database.read("SELECT outcome FROM attempts")
    assert rows == [("stopped",)] * 4


def test_a_trainer_without_times_tells_nothing_of_its_start(tmp_path: Path) -> None:
    run_study(study_of(make_spec(tmp_path)), tmp_path / "study", workers=0, settings=FAST)
    with Store(tmp_path / "study") as store:
        (run,) = store.runs()
        assert run.wall_s > 0
        assert store.steps(run.hash).wall_s_K.sum() == 0
        assert store.idle_s(run.hash) == []
    assert study_status(tmp_path / "study").starts is None


def test_times_of_the_log_price_the_study_where_it_says_its_gpus(tmp_path: Path) -> None:
    text = (HELPERS / "own_trainer.py").read_text()
    own = script(tmp_path, "")
    Path(own[1]).write_text(text.replace("score}", 'score, "timing_s/step": 3.0 + (step > 4)}'))
    hold = ('score, "timing_s/step": 3.0 + (step > 4) + 50.0 * (step % 4 == 0), '
            '**({"timing_s/testing": 50.0} if step % 4 == 0 else {})}')  # fmt: skip
    (tmp_path / "evaluated").mkdir()
    evaluated = script(tmp_path / "evaluated", "")
    Path(evaluated[1]).write_text(text.replace("score}", hold))  # as verl's steps hold them
    for gpus, hours, command, place in (
        (None, None, own, "rates"), (8, [0, 48 / 3600, 96 / 3600, 224 / 3600], own, "rates"),
        (8, [0, 48 / 3600, 96 / 3600, 224 / 3600], evaluated, "engine_options"),
    ):
        given: dict[str, Any] = {} if gpus is None else {"gpus": gpus}
        spec = make_spec(tmp_path, command=command, **(given if place != "rates" else {}))
        study = study_of(spec)
        if place == "rates":  # no part of a run: it may be said of one that has trained
            study = dataclasses.replace(study, source={"rates": given})
        folder = tmp_path / f"study-{Path(command[1]).parent.name}"
        run_study(study, folder, workers=0, settings=FAST)
        (curve,) = load_curves(str(folder))
        found = None if curve.gpu_hours_K is None else curve.gpu_hours_K.tolist()
        assert curve.clocked == (command is evaluated)
        if command is evaluated and hours is not None and found is not None:
            # Its own evaluations, of steps 0, 4 and 8: a plan's run pays for as many.
            assert found[-1] == pytest.approx(hours[-1] + 3 * 50 * 8 / 3600, rel=0.01)
        else:
            assert found == (None if hours is None else pytest.approx(hours)), found
        assert curve.gpus == gpus
    with pytest.raises(InputError, match="engine_options.gpus must be >= 1, but got 0"):
        CommandEngine().check(make_spec(tmp_path, gpus=0))


def test_a_study_of_a_command_is_priced_as_its_logs_are_and_as_it_is(tmp_path: Path) -> None:
    # Planted: an update takes 20 s and 2 GPU-seconds a rollout, on 8 GPUs; an evaluation 120 s.
    own = script(tmp_path, """
b_p, n, steps, seed = map(int, sys.argv[1:5])
with log.open("a") as out:
    for s in range(steps + 1):
        row = {"step": s, **({"seconds": 20 + 2 * b_p * n / 8} if s else {})}
        if s % 5 == 0:
            row |= {"score": s / (s + 40 / n), "seconds of evaluation": 120}
        print(json.dumps(row), file=out)
""")
    column = {"score": "avg@4", "seconds": "update_seconds",
              "seconds of evaluation": "evaluation_seconds"}  # fmt: skip
    specs = [
        dataclasses.replace(spec, allocation=dataclasses.replace(
            spec.allocation, rollouts_per_problem=n))
        for n in (2, 8) for spec in [make_spec(tmp_path, steps=100, command=own, map=column)]
    ]  # fmt: skip
    run_study(study_of(*specs), tmp_path / "study", workers=0, settings=FAST)
    assert all(c.gpu_hours_K is None for c in load_curves(str(tmp_path / "study")))
    for curve in load_curves(str(tmp_path / "study"), settings={"gpus": 8}):
        assert curve.gpu_hours_K is not None
        b = curve.configuration.batch_size
        true = (100 * (20 + 2 * b / 8) + 21 * 120) * 8 / 3600
        assert curve.gpu_hours_K[-1] == pytest.approx(true, rel=1e-6)
        (log,) = (tmp_path / "runs" / curve.run).rglob("metrics.jsonl")
        of = {"problems_per_batch": 4, "rollouts_per_problem": b // 4, "seed": 3, "gpus": 8,
              "columns": column}  # fmt: skip
        (same,) = load_curves(str(log), settings=of)
        assert same.gpu_hours_K is not None
        assert same.gpu_hours_K[-1] == pytest.approx(true, rel=1e-6)
    assert cadence(load_curves(str(tmp_path / "study"), settings={"gpus": 8})) == {}


def test_a_run_that_was_taken_over_ends_its_first_trainer(tmp_path: Path) -> None:
    # As after `scontrol suspend`: two trainers in one folder spoil each other's log.
    database, folder = tmp_path / "study" / "study.db", tmp_path / "runs"
    taken = script(tmp_path, f"""
import sqlite3
if (log.parent / "taken").exists():
    sys.exit(0)
(log.parent / "taken").touch()
with sqlite3.connect({str(database)!r}, timeout=20) as study:
    study.execute("INSERT INTO runners (runner, process, beat) VALUES ('other', '', 1)")
    study.execute("UPDATE runs SET lease_token = lease_token + 1, lease_runner = 'other'")
time.sleep(20)
(log.parent / "went-on").touch()
""")
    often = Settings(beat_s=0.05, lease_beats=6, checkpoint_every_s=0.05, report_s=0.05)
    summary = run_study(study_of(make_spec(tmp_path, command=taken)), tmp_path / "study",
                        workers=0, settings=often)  # fmt: skip
    assert any("was taken over by another runner" in line for line in summary.warnings)
    assert list(folder.rglob("taken"))
    assert not list(folder.rglob("went-on"))


@pytest.mark.heavy
def test_sigkill_of_the_runner_ends_the_trainer_and_is_made_good(tmp_path: Path) -> None:
    slow = Path(OWN[1]).read_text().replace("score = R", "time.sleep(0.3); score = R")
    (tmp_path / "slow.py").write_text(slow.replace("import json", "import time, json"))
    words = [f"'{w}'" for w in (sys.executable, tmp_path / "slow.py", *OWN[2:])]
    (tmp_path / "own.yaml").write_text(f"""\
engine: command
engine_options: {{command: [{", ".join(map(str, words))}], resume: [--resume], log: metrics.jsonl,
                 reader: jsonl, poll_s: 0.05, folder: '{tmp_path / "runs"}'}}
problems:
  train: {{generated: simulated, options: {{size: 12}}}}
  validation: {{val: {{generated: simulated, options: {{size: 20}}}}}}
grid: {{problems_per_batch: 4, rollouts_per_problem: 2}}
budget: 320
slices: [1]
evaluation: {{samples: 4, per_octave: 1, first: 16}}
""")
    arguments = [sys.executable, "-m", "isocompute", "run", str(tmp_path / "own.yaml"), "-o",
                 str(tmp_path / "study"), "--workers", "0", "--calibrate", "0"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    rows = 0
    deadline = time.monotonic() + 60
    while rows < 38:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
        rows = sum(len(p.read_text().splitlines()) for p in tmp_path.rglob("metrics.jsonl"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    log = next(tmp_path.rglob("metrics.jsonl"))
    size = log.stat().st_size
    time.sleep(0.3)
    assert log.stat().st_size == size  # the trainer died with its runner
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(log.read_text().splitlines()) == 41  # it went on from where it was
    assert state(tmp_path / "study") == ("done", "")


@needs_trl
@pytest.mark.trainers
def test_a_real_package_trains_as_a_plain_command(tmp_path: Path) -> None:
    command = [
        "env", f"PYTHONPATH={SOURCE}", TRL_PYTHON, str(HELPERS / "trl_script.py"), "--record",
        "{folder}/a", "--folder", "{folder}/out", "--problems", "{problems_per_batch}",
        "--rollouts", "{rollouts_per_problem}", "--steps", "{steps}", "--seed", "{seed}",
        "--learning-rate", "{learning_rate}",
    ]  # fmt: skip
    base = make_spec(
        tmp_path, steps=4, command=command, resume=["--resume"], log="a.jsonl", reader="recorder",
        recipe=Recipe(learning_rate=1e-2),
    )
    spec = dataclasses.replace(base, validation={"val": simulated_problems("val", 8)})
    for steps in (4, 8):
        longer = dataclasses.replace(
            spec, allocation=dataclasses.replace(spec.allocation, steps=steps))
        run_study(study_of(longer), tmp_path / "study", workers=0, settings=FAST)
    assert state(tmp_path / "study") == ("done", "")
    (curve,) = load_curves(str(tmp_path / "study"))
    assert curve.rollouts_K.tolist() == [0, 16, 32, 64]
    rows = [json.loads(line) for line in next(tmp_path.rglob("a.jsonl")).read_text().splitlines()]
    logged: dict[int, float] = {}
    for row in rows:
        if row.get("split") == "validation":
            logged.setdefault(row["step"], row["score"])  # TRL scores again where it resumes
    assert np.allclose(curve.score_K, [logged[s] for s in (0, 2, 4, 8)])


@pytest.mark.parametrize(("name", "before", "after", "then"), [
    ("m.csv", "step,acc\n1,0.1\n2,0.2\n", "step,acc\n2,0.3\n", "step,acc\n1,0.1\n2,0.2\n2,0.3\n"),
    ("m.csv", "step,acc\n1,0.1\n", "step,loss,acc\n2,9,0.3\n", "step,loss,acc\n2,9,0.3\n"),
    ("m.csv", "step,acc\n1,0.1\n", "step,acc\n1,0.1\n2,0.3\n", "step,acc\n1,0.1\n2,0.3\n"),
    ("m.jsonl", '{"step": 1}\n', '{"step": 2}\n', '{"step": 1}\n{"step": 2}\n'),
    ("m.jsonl", '{"step": 1}\n', "", ""),
])  # fmt: skip
def test_rows_written_over_come_back_under_their_own_columns_alone(
    tmp_path: Path, name: str, before: str, after: str, then: str
) -> None:
    kept, log = tmp_path / "kept", tmp_path / name
    kept.write_text(before)
    log.write_text(after)
    keep_rows(log, kept)
    assert log.read_text() == then
