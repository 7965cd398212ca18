"""What the twenty-seventh blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from isocompute.importers.values.wire import masked_crc32c
from layout_helpers import drawn, load, refused, score, write

STEPS = range(0, 41, 10)


# Runs of a loop, one after another in one file.


def nemo(n: int) -> str:
    def validated(step: int) -> str:
        return (f"▶ Starting validation at step {step}...\n📊 Validation Results:\n"
                f"    • Accuracy: {score(step, n):.4f}\n")  # fmt: skip

    text = (f"Overrides: ['grpo.num_prompts_per_step=16', 'grpo.num_generations_per_prompt={n}']\n"
            "MasterConfig(grpo=GRPOConfig(num_prompts_per_step=16, max_num_steps=40, seed=5, "
            f"num_generations_per_prompt={n}))\n{validated(0)}")  # fmt: skip
    for step in range(1, 41):
        text += f"{'=' * 9} Step {step}/40 {'=' * 9}\n" + (validated(step) if not step % 10 else "")
        text += "📊 Training Results:\n  • Avg Reward: 0.3000\n"
    return text


def test_the_first_validation_of_a_next_run_is_at_its_beginning(tmp_path: Path) -> None:
    write(tmp_path / "all.log", "\n".join(map(nemo, (2, 4, 8))))
    found = load(tmp_path)
    assert drawn(found) == {(16, n, 5): [16 * n * s for s in STEPS] for n in (2, 4, 8)}
    assert {c.rollouts_per_problem: c.score_K[0] for c in found} == {
        n: round(score(0, n), 4) for n in (2, 4, 8)
    }


# Event files of one process.


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def events(
    path: Path, scores: Sequence[tuple[int, float]], tag: str = "eval/reward",
    config: dict[str, object] | None = None,
) -> None:
    told = b"" if config is None else field(5, field(1, field(1, b"args/text_summary") + field(
        8, b"\x08\x07" + field(8, json.dumps(config).encode())
    )))  # fmt: skip
    values = [b"\x10" + varint(step) + field(5, field(1, field(1, name.encode()) + b"\x15"
              + struct.pack("<f", value))) for step, value in scores
              for name in (tag, "eval/runtime")]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for data in [told, *values]:
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", masked_crc32c(length)) + data
                       + struct.pack("<I", masked_crc32c(data)))  # fmt: skip


def trl(n: int, best: bool = False) -> dict[str, object]:
    return {"num_generations": n, "per_device_train_batch_size": 8, "seed": 4, "max_steps": 40,
            "gradient_accumulation_steps": n, "steps_per_generation": n, "num_iterations": 1,
            "generation_batch_size": 16 * n, "load_best_model_at_end": best}  # fmt: skip


@pytest.mark.parametrize("best", [True, False])
def test_an_evaluation_behind_training_is_no_run(tmp_path: Path, best: bool) -> None:
    for n in (4, 8):
        own = tmp_path / f"n{n}/events.out.tfevents."
        events(Path(f"{own}100.host.7.0"), [(s, score(s, n)) for s in STEPS], config=trl(n, best))
        events(Path(f"{own}200.host.7.1"), [(40, 0.9)])
    found = load(tmp_path)
    assert drawn(found) == {(16, n, 4): [16 * n * s for s in STEPS] for n in (4, 8)}
    assert all(c.score_K[-1] < 0.5 for c in found)


@pytest.mark.parametrize("best", [True, False])
def test_a_file_of_one_step_is_of_the_run_of_its_process(tmp_path: Path, best: bool) -> None:
    for n in (4, 8):
        own = tmp_path / f"n{n}/events.out.tfevents."
        events(Path(f"{own}100.host.7.0"), [(0, score(0, n))])
        events(Path(f"{own}200.host.7.1"), [(s, score(s, n)) for s in STEPS[1:-1]],
               config=trl(n, best))  # fmt: skip
        events(Path(f"{own}300.host.7.2"), [(40, score(40, n))])
    steps = STEPS[:-1] if best else STEPS  # the end is of another checkpoint, or not
    assert drawn(load(tmp_path)) == {(16, n, 4): [16 * n * s for s in steps] for n in (4, 8)}


def test_two_starts_in_one_folder_may_be_of_two_n(tmp_path: Path) -> None:
    for n, clock, process in ((4, 100, 7), (8, 200, 8)):
        events(tmp_path / f"x_n4/events.out.tfevents.{clock}.host.{process}.0",
               [(s, score(s, n)) for s in STEPS], "val-core/kept/acc/mean@1")  # fmt: skip
    sets = ("pattern=n{rollouts_per_problem}", "problems_per_batch=16")
    said = refused(tmp_path, (), sets)
    assert "a folder that says its n: mkdir" in said
    moved = tmp_path / "x_n8"
    moved.mkdir()
    (tmp_path / "x_n4/events.out.tfevents.200.host.8.0").rename(moved / "events.out.tfevents.1.h")
    assert drawn(load(tmp_path, (), sets)) == {
        (16, n, None): [16 * n * s for s in STEPS] for n in (4, 8)
    }


# A file of settings that is changed before each start.


def starts(root: Path, *, told: bool) -> None:
    recipe = {k: v for k, v in trl(8).items() if k != "load_best_model_at_end"}
    text = "".join(f"{key}: {value}\n" for key, value in recipe.items())
    write(root / "recipe.yaml", text + "exp_name: kept-rollouts\n")
    for n, day in ((4, "20260101-101112"), (8, "20260102-101112")):
        config = trl(n) if told else None
        events(root / f"out/kept-rollouts/{day}/events.out.tfevents.1.host.{n}.0",
               [(s, score(s, n)) for s in STEPS], config=config)  # fmt: skip


def test_what_a_log_says_of_itself_goes_before_a_file_above_it(tmp_path: Path) -> None:
    starts(tmp_path, told=True)
    assert drawn(load(tmp_path)) == {(16, n, 4): [16 * n * s for s in STEPS] for n in (4, 8)}


def test_a_file_above_several_whole_starts_is_asked_about(tmp_path: Path) -> None:
    starts(tmp_path, told=False)
    assert "copy with each one's own beside its log" in refused(tmp_path)
    text = (tmp_path / "recipe.yaml").read_text("utf-8")
    for n, home in zip((4, 8), sorted((tmp_path / "out/kept-rollouts").iterdir()), strict=True):
        text_of_n = text.replace("generations: 8", f"generations: {n}").replace("128", f"{16 * n}")
        write(home / "recipe.yaml", text_of_n.replace("steps: 8", f"steps: {n}").replace(
            "per_generation: 8", f"per_generation: {n}"
        ))
    assert drawn(load(tmp_path)) == {(16, n, 4): [16 * n * s for s in STEPS] for n in (4, 8)}


# A history of calls alone, and a plan that says where its evaluations are.


def history(root: Path, n: int, evaluations: int, **more: object) -> None:
    plan = {"eval_on_start": True, "eval_strategy": "steps", "eval_steps": 10, **more}
    write(root / f"n{n}.config.json", json.dumps(trl(n) | plan))
    rows = [f"{4 * i},{score(10 * i, n)}" for i in range(evaluations)]
    write(root / f"n{n}.csv", "_step,eval/reward\n" + "\n".join(rows) + "\n")


def test_evaluations_of_a_whole_plan_stand_where_it_has_them(tmp_path: Path) -> None:
    for n in (4, 8):
        history(tmp_path, n, 5)
    assert drawn(load(tmp_path)) == {(16, n, 4): [16 * n * s for s in STEPS] for n in (4, 8)}


@pytest.mark.parametrize(("evaluations", "more"), [
    (4, {}), (6, {}),  # the plan has five
    (5, {"eval_on_start": False}), (5, {"eval_strategy": "epoch"}),
])  # fmt: skip
def test_other_evaluations_by_calls_are_asked_about(
    tmp_path: Path, evaluations: int, more: dict[str, object]
) -> None:
    history(tmp_path, 4, evaluations, **more)
    assert "counts calls of log" in refused(tmp_path)


# Several passes over the test problems at one checkpoint.


def passes(root: Path, n: int, key: str, shifts: Sequence[float], **more: object) -> None:
    rows: list[dict[str, object]] = [
        {"rollouts_per_problem": n, "problems_per_batch": 16, "seed": 2}
    ]
    for s in STEPS:
        rows += [{"step": s, key: i, "solved": score(s, n, shift), **more}
                 for i, shift in enumerate(shifts)]  # fmt: skip
    write(root / f"n{n}/log.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def test_passes_over_the_problems_make_one_score(tmp_path: Path) -> None:
    for n in (4, 8):
        passes(tmp_path, n, "pass", (0.01, 0.03, -0.01))
    found = load(tmp_path, ("solved=avg",))
    assert drawn(found) == {(16, n, 2): [16 * n * s for s in STEPS] for n in (4, 8)}
    assert found[0].score_K[-1] == pytest.approx(score(40, found[0].rollouts_per_problem, 0.01))


@pytest.mark.parametrize(("key", "shifts"), [
    ("pass", (0.01, 0.02, 0.03)),  # as best of 1, 2 and 3 rises
    ("grader", (0.01, 0.03, -0.01)), ("trial", (0.01, 0.03, -0.01)),  # may tell runs apart
])  # fmt: skip
def test_rows_of_other_kinds_are_asked_about(
    tmp_path: Path, key: str, shifts: Sequence[float]
) -> None:
    passes(tmp_path, 4, key, shifts)
    assert "must be of one kind" in refused(tmp_path, ("solved=avg",))


# A table with a column for every n, of which one has a batch of its own.

BY_N = ("pattern=n = {rollouts_per_problem}", "problems_per_batch=4:16,8:8")


def table(separator: str, footnote: str) -> str:
    rows = [[s, score(s, 4), score(s, 8)] for s in STEPS]
    cells = [["step", "n = 4", f"n = 8{footnote}"], *rows]
    return "".join(separator.join(map(str, row)) + "\n" for row in cells)


def test_notes_may_have_a_column_for_every_n(tmp_path: Path) -> None:
    head, rest = table(" | ", " ²").split("\n", 1)
    write(tmp_path / "page.md", f"# Rollouts\n\nAll of seed 6.\n\n{head}\n--|--|--\n{rest}")
    said = refused(tmp_path)
    assert "--map score=avg" in said
    assert "n = {rollouts_per_problem}" in said
    assert drawn(load(tmp_path, ("score=avg",), BY_N)) == {
        (16, 4, 6): [64 * s for s in STEPS], (8, 8, 6): [64 * s for s in STEPS],
    }


def test_a_table_takes_a_batch_by_n(tmp_path: Path) -> None:
    file = write(tmp_path / "wide.csv", table(",", " *"))
    assert "by n, --set problems_per_batch=4:B_P,8:B_P" in refused(file)
    assert drawn(load(file, (), BY_N)) == {
        (16, 4, None): [64 * s for s in STEPS], (8, 8, None): [64 * s for s in STEPS],
    }
    assert "problems_per_batch" in refused(file, (), (BY_N[0], "problems_per_batch=4:16"))


# Which model a run began with.


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_the_mean_tells_another_start_and_not_the_best_of_many(
    tmp_path: Path, shift: float
) -> None:
    for n, own, best in ((4, 0.0, 0.5), (8, 0.0, 0.5), (16, shift, 0.7)):
        rows = [{"step": s, "data": {
            "val-core/kept/acc/mean@8": score(s, n, own),
            "val-core/kept/acc/best@8/mean": best + s / 1000 + own,
        }} for s in STEPS]  # fmt: skip
        write(tmp_path / f"bp16_n{n}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    sets = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}",)
    if shift:
        assert "must begin with one model" in refused(tmp_path, (), sets, metric="avg@8")
    else:
        assert len(load(tmp_path, (), sets, metric="avg@8")) == 3


# All answers of an evaluation, and those without errors.


@pytest.mark.parametrize("errors", [0.0, 0.1])
def test_all_answers_are_one_set_with_those_that_had_no_error(
    tmp_path: Path, errors: float
) -> None:
    for n in (4, 8):
        rows = [{"step": s, "eval/kept/all/agent/avg@1": score(s, n) - errors,
                 "eval/kept/effective/agent/avg@1": score(s, n)} for s in STEPS]  # fmt: skip
        write(tmp_path / f"bp16_n{n}/metrics.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    sets = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}",)
    if errors:
        assert "must hold one problem set" in refused(tmp_path, (), sets)
    for chosen in ["kept/all", *[None] * (not errors)]:
        assert len(load(tmp_path, (), sets, problem_set=chosen)) == 2
