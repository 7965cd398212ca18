"""The 38th blind set: what its folders hold that was wrong at the first try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from layout_helpers import load, refused, score, write

STEPS = range(0, 50, 10)
RUNS = ((4, 1), (8, 1), (8, 2), (16, 1))


def planted(bp: int, runs: Sequence[tuple[int, int | None]], shift: int = 0) -> list[object]:
    return sorted(
        (bp, n, seed, [bp * n * (s + shift) for s in STEPS],
         [score(s, n, 0.001 * (seed or 0)) for s in STEPS]) for n, seed in runs
    )  # fmt: skip


def read(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: object
) -> list[object]:
    return sorted((c.problems_per_batch, c.rollouts_per_problem, c.seed, c.rollouts_K.tolist(),
                   [round(float(s), 6) for s in c.score_K])
                  for c in load(source, maps, sets, **options))  # fmt: skip


def of_docker(text: str) -> str:
    """What Docker's json-file driver makes of a console; long lines stand in parts of 16 kB."""
    parts = [line[i : i + 16384] for line in text.splitlines(keepends=True)
             for i in range(0, len(line), 16384)]  # fmt: skip
    return "".join(json.dumps(
        {"log": part, "stream": "stderr" if "%|" in part else "stdout",
         "time": f"2026-03-11T09:00:{at % 60:02d}.1Z"}, separators=(",", ":"),
    ) + "\n" for at, part in enumerate(parts))  # fmt: skip


@pytest.mark.parametrize("torn", [False, True])
def test_a_console_of_verl_is_read_from_the_files_of_docker(tmp_path: Path, torn: bool) -> None:
    for at, (n, seed) in enumerate(RUNS):
        said = {"data": {"train_batch_size": 32, "seed": seed},
                "actor_rollout_ref": {"rollout": {"n": n}},
                "trainer": {"x": "y" * 20_000}}  # fmt: skip
        text = f"\x1b[36m(TaskRunner pid=7{at})\x1b[0m {said!r}\n"
        for s in STEPS:
            text += f"(TaskRunner pid=7{at}) Training Progress: {s}%|##  | {s}/40\n" + (
                f"(TaskRunner pid=7{at}) step:{s} - critic/score/mean:0.{n}{s} - "
                f"val-core/math/reward/mean@1:{score(s, n, 0.001 * seed)} - actor/lr:1e-06\n")
        end = of_docker(f"(TaskRunner pid=7{at}) step:50 - val-core/math/reward/mean@1:0.9")[:-12]
        write(tmp_path / f"{at}f3" / f"{at}f3-json.log", of_docker(text) + end * torn)
    assert read(tmp_path) == planted(32, RUNS)


def test_a_sheet_in_tabs_may_have_a_comma_in_its_title_and_means_beside_its_seeds(
    tmp_path: Path,
) -> None:
    runs = [(n, seed) for n in (4, 8) for seed in (1, 2)]
    names = ["step", *(f"n={n} seed={s}" for n in (4, 8) for s in (1, 2, "mean"))]
    names = [name.replace("seed=mean", "mean") for name in names]
    rows = [["Qwen, GRPO, accuracy", *[""] * 6], ["prompts per step", "32", *[""] * 5], names]
    for s in STEPS:
        cells = [score(s, n, shift) for n in (4, 8) for shift in (0.001, 0.002, 0.0015)]
        rows.append([str(s), *(str(cell) for cell in cells)])
    sheet = write(tmp_path / "sheet.tsv", "\n".join("\t".join(row) for row in rows) + "\n")
    pattern = "pattern=n={rollouts_per_problem} seed={seed}"
    assert f"--set '{pattern}'" in refused(sheet).replace("pattern='", "'pattern=")
    assert read(sheet, sets=[pattern]) == planted(32, runs)


def test_a_note_may_have_a_table_for_each_n_and_its_seeds_across(tmp_path: Path) -> None:
    runs = [(n, seed) for n in (4, 8) for seed in (1, 2)]
    text = ["# Which n?", "32 prompts per step in all runs. Seed 2 died once.", ""]
    for n in (4, 8):
        text += [f"## n = {n}", "| step | seed 1 | seed 2 | mean |", "|---|---|---|---|"]
        for s in (*STEPS, 50):
            cells = [f"**{score(s, n, 0.001)}**", str(score(s, n, 0.002)), "0.5"]
            text.append(f"| {s} | {' | '.join(cells if s in STEPS else ['—'] * 3)} |")
        text.append("")
    notes = write(tmp_path / "NOTES.md", "\n".join(text))
    told = refused(notes)
    assert "pattern='n = {rollouts_per_problem} seed {seed}'" in told
    sets = ("pattern=n = {rollouts_per_problem} seed {seed}", "problems_per_batch=32")
    assert read(notes, ["score=avg"], sets) == planted(32, runs)


def download(path: Path, steps: Sequence[int], scores: Sequence[float]) -> Path:
    rows = [f"{1.77e9 + 60 * s},{s},{value}\n" for s, value in zip(steps, scores, strict=True)]
    return write(path, "Wall time,Step,Value\n" + "".join(rows))


BY_NAME = ("pattern=bs{problems_per_batch}_n{rollouts_per_problem}",)


def test_downloads_of_one_run_from_tensorboard_are_one_run(tmp_path: Path) -> None:
    """AReaL counts from 0, as its training says; a tag that was downloaded twice counts once."""
    for n in (4, 8, 16):
        name, own = f"run-math_bs32_n{n}-tag", [score(s, n) for s in STEPS]
        trained = [0.3 + s / n for s in range(50)]
        download(tmp_path / f"{name}-rollout_reward.csv", range(50), trained)
        again = tmp_path / f"{name}-eval-rollout_reward{' (1)' * (n == 16)}.csv"
        download(again, [s + 9 for s in STEPS], own)
    download(tmp_path / f"{name}-eval-rollout_reward.csv", [9, 19], own[:2])
    runs: list[tuple[int, int | None]] = [(n, None) for n in (4, 8, 16)]
    assert read(tmp_path, sets=BY_NAME) == planted(32, runs, 10)


def test_evaluations_alone_at_k_less_one_are_counted_from_0(tmp_path: Path) -> None:
    for n in (4, 8):
        download(tmp_path / f"run-math_bs32_n{n}-tag-eval-rollout_reward.csv",
                 [s + 9 for s in STEPS], [score(s, n) for s in STEPS])  # fmt: skip
    assert read(tmp_path, sets=BY_NAME) == planted(32, [(4, None), (8, None)], 10)


def test_two_courses_of_one_tag_are_refused(tmp_path: Path) -> None:
    for again in ("", " (1)"):
        download(tmp_path / f"run-bs32_n4-tag-eval_accuracy{again}.csv", [0, 10], [0.2, len(again)])
    assert "was downloaded twice, and has two scores at step 10" in refused(tmp_path, sets=BY_NAME)
    (tmp_path / "run-bs32_n4-tag-eval_accuracy.csv").write_text("")
    assert "two scores" not in refused(tmp_path, sets=BY_NAME)
