"""The 38th blind set: what its folders hold that was wrong at the first try."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.formats.exported import console_in
from isocompute.importers.values.imported import UnclearError
from layout_helpers import load, refused, score, write

STEPS = range(0, 50, 10)
RUNS = ((4, 1), (8, 1), (8, 2), (16, 1))


def planted(bp: int, runs: Sequence[tuple[int, int | None]], shift: int = 0) -> list[Any]:
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


def of_pod(text: str) -> str:
    """The same as kubelet writes it."""
    return "".join(
        f"2026-03-11T09:00:{at % 60:02d}.123456789Z stdout {'F' if line[16384:] == '' else 'P'} "
        f"{line[:16384].rstrip()}\n" + (
            f"2026-03-11T09:00:{at % 60:02d}.2Z stdout F {line[16384:]}" if line[16384:] else "")
        for at, line in enumerate(text.splitlines(keepends=True))
    )  # fmt: skip


def printed(n: int, seed: int | None, pid: int = 7, last: int = 40, **more: object) -> str:
    """A console of verl, with a line of 20 kB."""
    said = {"data": {"train_batch_size": 32, "seed": seed},
            "actor_rollout_ref": {"rollout": {"n": n}},
            "trainer": {"x": "y" * 20_000, **more}}  # fmt: skip
    text = f"\x1b[36m(TaskRunner pid={pid})\x1b[0m {said!r}\n"
    for s in (s for s in STEPS if s <= last):
        text += f"(TaskRunner pid={pid}) Training Progress: {s}%|##  | {s}/40\n" + (
            f"(TaskRunner pid={pid}) step:{s} - critic/score/mean:0.{pid}{n}{s} - "
            f"val-core/math/reward/mean@1:{score(s, n, 0.001 * (seed or 0))} - actor/lr:1e-06\n")
    return text


@pytest.mark.parametrize("form", [of_docker, of_pod])
@pytest.mark.parametrize("torn", [False, True])
def test_a_console_of_verl_is_read_from_the_files_of_containers(
    tmp_path: Path, form: Callable[[str], str], torn: bool
) -> None:
    for at, (n, seed) in enumerate(RUNS):
        end = form(f"(TaskRunner pid=7{at}) step:50 - val-core/math/reward/mean@1:0.9")[:-12]
        text = form(printed(n, seed, at)) + end * torn
        write(tmp_path / f"{at}f3" / f"{at}f3-json.log", text)
    assert read(tmp_path) == planted(32, RUNS)


def test_colours_that_lost_their_first_sign_are_none_of_the_text(tmp_path: Path) -> None:
    for n, seed in RUNS:
        write(tmp_path / f"{n}{seed}.log", printed(n, seed).replace("\x1b[", "["))
        assert "[36m(TaskRunner" in (tmp_path / f"{n}{seed}.log").read_text()
    assert read(tmp_path) == planted(32, RUNS)


@pytest.mark.parametrize("prefix", ["[default0]:", "[rank0]: "])
def test_a_console_of_trl_may_have_the_rank_before_its_lines(tmp_path: Path, prefix: str) -> None:
    for n, seed in RUNS:
        said = {"per_device_train_batch_size": 8, "steps_per_generation": 2 * n, "seed": seed,
                "gradient_accumulation_steps": 2 * n, "num_iterations": 1,
                "generation_batch_size": 32 * n, "num_generations": n, "max_steps": 40}  # fmt: skip
        rows = ["GRPOConfig(", *(f"{key}={value}," for key, value in said.items()), ")"]
        for s in (s for s in STEPS if s):
            bar = f"  {s}%|###   | {s}/40 [00:10<10:00,  7.5s/it]"
            row = {"eval_loss": 0.1, "eval_reward": score(s, n, 0.001 * seed), "epoch": s / 600}
            rows += [bar, repr(row), bar]
        write(tmp_path / f"{n}{seed}.log", "".join(f"{prefix}{row}\n" for row in rows))
    wanted = [(bp, n, seed, at[1:], scores[1:]) for bp, n, seed, at, scores in planted(32, RUNS)]
    assert read(tmp_path) == wanted


def exported(kind: str, text: str, stream: str = "a") -> tuple[str, str]:
    """The name of a file, and what a log service gives out of a console, the newest first."""
    rows = [{"timestamp": f"2026-03-11T09:{at // 3:02d}:00Z", "stream_name": stream, "text": line}
            for at, line in enumerate(text.splitlines())][::-1]  # fmt: skip
    if kind.startswith("csv"):
        out = io.StringIO()
        quoting = csv.QUOTE_ALL if kind == "csv, quoted" else csv.QUOTE_MINIMAL
        table = csv.writer(out, quoting=quoting)
        table.writerow(["severity", "stream_name", "@message", "@timestamp", "code"])
        table.writerows(["INFO", row["stream_name"], row["text"], row["timestamp"], 3]
                        for row in rows)  # fmt: skip
        return "r.csv", out.getvalue()
    if kind == "lines":
        return "r.jsonl", "".join(json.dumps({"date": at, "log": row["text"]}) + "\n"
                                  for at, row in enumerate(rows[::-1]))  # fmt: skip
    named = [{"message" if kind == "events" else "textPayload": row.pop("text"), **row}
             for row in rows]  # fmt: skip
    document = {"events": named, "nextForwardToken": "f"} if kind == "events" else named
    return "r.json", json.dumps(document, indent=1)


@pytest.mark.parametrize("kind", ["csv", "csv, quoted", "lines", "listed", "events"])
def test_a_console_that_a_log_service_gave_out(tmp_path: Path, kind: str) -> None:
    for at, (n, seed) in enumerate(RUNS):
        name, text = exported(kind, printed(n, seed, at))
        write(tmp_path / f"{at}f3" / name, text)
    assert read(tmp_path) == planted(32, RUNS)


def test_lines_of_one_time_keep_their_order_and_those_without_stay(tmp_path: Path) -> None:
    rows = [{"ts": f"9:0{i // 2}:00Z", "log": f"line {i}"} for i in range(6)]

    def given_out(rows: Sequence[dict[str, str]]) -> list[str]:
        write(tmp_path / "r.json", json.dumps(rows))
        found = console_in(tmp_path / "r.json", (tmp_path / "r.json").read_bytes())
        return (found or b"").decode().splitlines()

    in_order = [f"line {i}" for i in range(6)]
    assert given_out(rows) == given_out(rows[::-1]) == in_order
    untimed = [*rows[:2], {"ts": "", "log": "behind it"}, *rows[2:]]
    assert given_out(untimed) == ["line 0", "line 1", "behind it", *in_order[2:]]
    assert given_out([{"ts": "1", "log": "a", "step": "3"}]) == []  # rows, no lines


def test_lines_of_two_jobs_that_a_log_service_gave_out(tmp_path: Path) -> None:
    one, other = (exported("csv", printed(n, 1), stream)[1] for n, stream in ((4, "a"), (8, "b")))
    write(tmp_path / "r.csv", one + other.split("\r\n", 1)[1])
    with pytest.raises(UnclearError, match="must be of one job, but stream_name is a and b"):
        read_log(tmp_path / "r.csv")
    write(tmp_path / "r.csv", "@timestamp,@message\n1,hello\n2,world\n")
    with pytest.raises(InputError, match="is a table of columns @timestamp, @message"):
        read_log(tmp_path / "r.csv")


@pytest.mark.parametrize("form", [of_docker, str])
def test_a_console_is_one_with_its_rotated_parts(
    tmp_path: Path, form: Callable[[str], str]
) -> None:
    for at, (n, seed) in enumerate(RUNS):
        rows = form(printed(n, seed, at)).splitlines(keepends=True)
        home = tmp_path / f"{at}f3"
        write(home / "out.log", "".join(rows[-2:]))
        write(home / "out.log.1", "".join(rows[4:-2]))
        (home / "out.log.2.gz").write_bytes(gzip.compress("".join(rows[:4]).encode()))
    assert read(tmp_path) == planted(32, RUNS)


@pytest.mark.parametrize("form", [of_docker, str])
def test_a_number_that_may_be_cut_is_none_behind_rotated_parts(
    tmp_path: Path, form: Callable[[str], str]
) -> None:
    whole = printed(4, 1)
    write(tmp_path / "out.log.1", form(whole))
    torn = "step:50 - val-core/math/reward/mean@1:0.6"
    write(tmp_path / "out.log", form("step:45 - actor/lr:1e-06\n") + (
        torn if form is str else form(torn)))  # fmt: skip
    assert read(tmp_path) == planted(32, [(4, 1)])
    write(tmp_path / "out.log", form("step:45 - actor/lr:1e-06\n" + torn + "\n"))
    assert read(tmp_path)[0][3][-1] == 50 * 4 * 32


def test_a_start_that_died_in_a_console_is_no_second_seed(tmp_path: Path) -> None:
    """A container starts its job again, and prints into the same log."""
    for n, seed in ((4, None), (8, 3)):
        for plan in ({"total_training_steps": 40}, {}):
            home = tmp_path / f"{n}{len(plan)}"
            again = printed(n, seed, 7, 20, **plan).replace("mean@1:0.2", "mean@1:0.3")
            log = write(home / "all.log", again + printed(n, seed, 8, 40, **plan))
            wanted = planted(32, [(n, seed)])
            if plan:
                assert read(log) == wanted
                continue
            assert "add --set resumed=join (the last start counts)" in refused(log)
            assert read(log, sets=["resumed=join"]) == wanted
            assert len(read(log, sets=["resumed=apart"])) == 2


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


def test_a_start_that_died_in_a_file_of_its_own_is_no_second_seed(tmp_path: Path) -> None:
    """Slurm calls each log by the number of its job."""
    plan = {"total_training_steps": 40}
    for n, seed in ((4, 3), (8, 3)):
        died = printed(n, seed, 7, 20, **plan).replace("mean@1:0.2", "mean@1:0.3")
        write(tmp_path / f"n{n}" / "slurm-98.out", died)
        write(tmp_path / f"n{n}" / "slurm-102.out", printed(n, seed, 8, 40, **plan))
    assert read(tmp_path) == planted(32, [(4, 3), (8, 3)])
    assert len(read(tmp_path, sets=["resumed=apart"])) == 4
    for file in tmp_path.rglob("*.out"):  # without a seed it may be a repetition
        file.write_text(file.read_text().replace("'seed': 3", "'seed': None"))
    assert "add --set resumed=join (the last start counts)" in refused(tmp_path)
    wanted = [(*of[:2], None, *of[3:]) for of in planted(32, [(4, 3), (8, 3)])]
    assert read(tmp_path, sets=["resumed=join"]) == wanted


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


def test_a_note_may_have_a_table_for_each_seed_and_n_across(tmp_path: Path) -> None:
    text = list[str]()
    for seed in (1, 2):
        text += [f"## seed {seed}", "| step | n=4 | n=8 |", "|---|---|---|"]
        for s in STEPS:
            cells = (f"{100 * score(s, n, 0.001 * seed):.4f}%" for n in (4, 8))
            text.append(f"| {s} | {' | '.join(cells)} |")
        text.append("")
    notes = write(tmp_path / "NOTES.md", "\n".join(text))
    pattern = "seed {seed} n={rollouts_per_problem}"
    assert f"pattern='{pattern}'" in refused(notes)
    sets = (f"pattern={pattern}", "problems_per_batch=32")
    assert read(notes, ["score=avg"], sets) == planted(32, [(n, s) for n in (4, 8) for s in (1, 2)])


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


@pytest.mark.parametrize("at", ["n{}/run-.-tag-eval_acc.csv", "run-n{}-tag-eval_acc.csv"])
def test_a_download_is_named_for_its_run_or_its_folder(tmp_path: Path, at: str) -> None:
    for n in (4, 8):
        file = tmp_path / at.format(n)
        download(file, STEPS, [score(s, n) for s in STEPS])
        trained = file.with_name(file.name.replace("eval_acc", "train_reward"))
        download(trained, range(41), [0.3 + s / (n * 50) for s in range(41)])
    sets = ("pattern=n{rollouts_per_problem}", "problems_per_batch=32")
    assert read(tmp_path, ["eval_acc=avg"], sets) == planted(32, [(4, None), (8, None)])


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
