"""A run in several logs costs, counts and is what it is in one, whatever wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers import import_logs, load_imported, read_log
from isocompute.importers.values.spent import Each, Spent
from isocompute.importers.values.timing import Times, gpu_hours
from layout_helpers import load
from set_09_logs import event_file

B_P, N, GPUS, LAST, CRASH, BACK = 32, 8, 16, 40, 25, 20
SETS = (f"problems_per_batch={B_P}", f"rollouts_per_problem={N}", f"gpus={GPUS}")


def seconds(step: int, part: int) -> float:
    """Steps grow longer; those of the second part are others, as a machine's are."""
    return 10.0 + step + 3 * part


def length(step: int, part: int) -> float:
    return 100.0 + 2 * step + part


def score(step: int, part: int) -> float:
    return round(0.3 + 0.005 * step + 0.0007 * part * (step % 7), 6)


Rows = list[tuple[int, dict[str, float]]]


def rows(first: int, last: int, part: int) -> Rows:
    """Rows of verl: a validation every 4 steps, at the first, too; no time of step 0."""
    found = []
    for step in range(first, last + 1):
        row = {"val-core/math/acc/mean@4": score(step, part)} if step % 4 == 0 else {}
        if step > first:
            row |= {"timing_s/step": seconds(step, part)}
            row |= {"response_length/mean": length(step, part), "training/epoch": (step - 1) // 7}
        found.append((step, row))
    return found


PARTS = (rows(0, CRASH, 0), rows(BACK, LAST, 1))
# By hand: the first part until it was taken up again, the second after that.
KEPT = [(step, 0 if step <= BACK else 1) for step in range(1, LAST + 1)]
HOURS = list(accumulate(seconds(*one) * GPUS / 3600 for one in KEPT))
TOKENS = list(accumulate(length(*one) * B_P * N for one in KEPT))


def to_jsonl(path: Path, found: Iterable[tuple[int, dict[str, float]]]) -> None:
    lines = (json.dumps({"step": step, "data": data}) for step, data in found)
    path.write_text("\n".join(lines) + "\n")


def to_console(path: Path, found: Iterable[tuple[int, dict[str, float]]]) -> None:
    lines = (f"step:{step} - " + " - ".join(f"{k}:{v!r}" for k, v in data.items())
             for step, data in found if data)  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def to_wandb(path: Path, found: Iterable[tuple[int, dict[str, float]]]) -> None:
    lines = (json.dumps({"_step": step, "training/global_step": step, **data})
             for step, data in found if data)  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def check(curve: Curve) -> None:
    assert curve.steps_K is not None
    assert curve.gpu_hours_K is not None
    assert curve.tokens_K is not None
    at = curve.steps_K.astype(int)
    assert at.tolist() == list(range(0, LAST + 1, 4))
    assert curve.rollouts_K.tolist() == [B_P * N * step for step in at]
    assert curve.tokens_K[1:] == pytest.approx([TOKENS[step - 1] for step in at[1:]])
    # between the places of a pace its share is on a line: 2% of the hours
    assert curve.gpu_hours_K[1:] == pytest.approx([HOURS[step - 1] for step in at[1:]], rel=0.02)
    assert curve.gpu_hours_K[-1] == pytest.approx(HOURS[-1])
    assert curve.score_K[-1] == score(LAST, 1)


@pytest.mark.parametrize(
    ("write", "ending"), [(to_jsonl, "jsonl"), (to_console, "log"), (to_wandb, "jsonl")]
)
def test_two_logs_of_a_run_are_one_log(
    tmp_path: Path, write: Callable[[Path, Rows], None], ending: str
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    write(one / f"run.{ending}", [*PARTS[0], *PARTS[1]])
    write(two / f"run.{ending}", PARTS[0])
    write(two / f"run-resume.{ending}", PARTS[1])
    (whole,), (joined,) = load(one, sets=SETS), load(two, sets=SETS)
    for curve in (whole, joined):
        check(curve)
    for name in ("gpu_hours_K", "tokens_K", "rollouts_K", "score_K"):
        assert getattr(whole, name) == pytest.approx(getattr(joined, name), rel=1e-12), name
    assert whole.trained_on == joined.trained_on == 7 * B_P


def test_event_files_of_a_run_count_its_hours(tmp_path: Path) -> None:
    for k, part in enumerate(PARTS):
        found = [(step, key, value) for step, data in part for key, value in data.items()]
        name = f"events.out.tfevents.170000{k}000.host.1.0"
        (tmp_path / name).write_bytes(event_file(found, 1_700_000_000 + 1000 * k))
    (curve,) = load(tmp_path, sets=SETS)
    assert curve.gpu_hours_K is not None
    assert curve.tokens_K is not None
    assert curve.gpu_hours_K[-1] == pytest.approx(HOURS[-1], rel=1e-6)  # events are float32
    assert curve.tokens_K[-1] == pytest.approx(TOKENS[-1], rel=1e-6)


def test_a_study_goes_on_with_what_it_holds(tmp_path: Path) -> None:
    from isocompute.importers.words.settings import load_settings

    study, told = tmp_path / "study", load_settings([*SETS], [])
    for name, part in zip(("run", "run-resume"), PARTS, strict=True):
        to_jsonl(tmp_path / f"{name}.jsonl", part)
        import_logs([tmp_path / f"{name}.jsonl"], study, settings=told)
    (run,) = load_imported(study)
    said = run.provenance
    assert said.gpu_s_per_step is not None
    found = gpu_hours(np.array([float(LAST)]), said.gpu_s_per_step, said.pace)
    assert found[0] == pytest.approx(HOURS[-1], rel=0.01)
    (series,) = (s for s in run.series if s.split == "validation")
    assert series.tokens_K[-1] == pytest.approx(TOKENS[-1])


def test_what_a_clock_says_is_joined_too() -> None:
    """TRL's seconds of a whole process: the second's are of what it did alone."""
    def whole(last: int, took: float) -> Spent:
        until_T = np.array([float(last)])
        return Spent(times=Times(until_T, np.array([took]), until_T), gpus=2)

    joined = whole(25, 250.0).then(whole(40, 400.0), 20)
    assert joined.times is not None
    assert joined.times.seconds_T.tolist() == [200.0, 400.0]  # 20 of 25, and 20 updates
    assert joined.times.updates_T.tolist() == [20.0, 20.0]
    assert joined.said()["gpu_s_per_step"] == pytest.approx(2 * 600 / 40)
    other = Spent(times=whole(40, 400.0).times, gpus=4)
    assert whole(25, 250.0).then(other, 20).said()["gpu_s_per_step"] == pytest.approx(
        (2 * 200 + 4 * 400) / 40
    )


def test_batches_that_were_drawn_are_counted_on(tmp_path: Path) -> None:
    """Under dynamic sampling a sequel does not know what was drawn before it."""
    drawn = {0: [2.0] * CRASH, 1: [3.0] * (LAST - BACK)}
    for name, part, first in (("run", 0, 0), ("run-resume", 1, BACK)):
        found = [(step, row | ({"train/num_gen_batches": drawn[part][step - first - 1]}
                               if "timing_s/step" in row else {}))
                 for step, row in PARTS[part]]  # fmt: skip
        to_jsonl(tmp_path / f"{name}.jsonl", found)
    (curve,) = load(tmp_path, sets=SETS)
    expected = [B_P * N * (2 * min(s, BACK) + 3 * max(0, s - BACK)) for s in range(0, LAST + 1, 4)]
    assert curve.rollouts_K.tolist() == expected
    totals = Each(np.array([21, 22]), np.array([3.0, 3.0])).totals(20)
    assert totals[1].tolist() == [0.0, 3.0, 6.0]


def loggers(folder: Path, *, until: int = LAST, apart: float = 0.0) -> None:
    """The console and the file logger of one verl run; `apart`: the file's scores leave it."""
    folder.mkdir(exist_ok=True)
    both = []
    for step in range(0, LAST + 1, 2):
        mean = 0.3 + 0.004321 * step + (apart if step > until else 0.0)
        both.append((step, {
            "val-core/math/acc/mean@4": mean, "val-core/math/acc/best@4/mean": mean + 0.1,
            "val-aux/math/acc/best@2/mean": mean + 0.05,
        }))  # fmt: skip
    to_jsonl(folder / "run.jsonl", both)
    to_console(folder / "run.log", [
        (step, {k: v - (apart if step > until else 0.0) for k, v in row.items()})
        for step, row in both
    ])  # fmt: skip


def test_both_loggers_of_verl_are_one_run(tmp_path: Path) -> None:
    """best@2 is another number than best@4."""
    loggers(tmp_path)
    (run,) = read_log(tmp_path, settings={"problems_per_batch": B_P, "rollouts_per_problem": N})
    assert {s.metric.label for s in run.series} == {
        "avg@4", "best@4:bootstrap", "best@2:bootstrap",
    }  # fmt: skip


def test_runs_with_one_beginning_count_twice_only_where_that_is_said(tmp_path: Path) -> None:
    loggers(tmp_path, until=20, apart=0.02)
    known = SETS[:2]
    with pytest.raises(InputError, match="leave the file of one out, or keep both as two runs"):
        load(tmp_path, sets=known, metric="avg@4")
    kept = (*known, "resumed=apart")
    assert len(load(tmp_path, sets=kept, metric="avg@4")) == 2
    (one,) = load(tmp_path, sets=kept, metric="avg@4", where=("run=run (run.log)",))
    assert one.score_K[-1] == pytest.approx(0.3 + 0.004321 * LAST)
    from isocompute.importers.words.settings import load_settings

    runs = read_log(tmp_path, settings=load_settings([*kept], []))
    assert len({run.name for run in runs}) == 2
    assert any("counted twice, as resumed=apart says" in note for r in runs for note in r.notes)
