"""Shapes of logs that people publish, in small: one trap each, with numbers of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_logs
from isocompute.importers.runs import ImportedRun
from isocompute.importers.settings import load_settings


def read(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> list[ImportedRun]:
    return read_logs([source], settings=load_settings([*sets], [*maps]))


def refused(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> str:
    with pytest.raises(InputError) as caught:
        read(source, sets, maps)
    return str(caught.value)


def steps(source: Path, kind: str = "", **options: Sequence[str]) -> list[int]:
    (run,) = read(source, **options)
    return [int(k) for k in next(s for s in run.series if kind in s.split).step_K]


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")
    return path


def json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    return text(path, "".join(json.dumps(row) + "\n" for row in rows))


# Consoles of transformers' trainers whose rows were held back: one bar, many rows.


def bar(step: int, total: int) -> str:
    return f"\r {100 * step // total}%|   | {step}/{total} [00:01<01:00, 1.0s/it]"


def held_back(blocks: Sequence[tuple[int, Sequence[str]]], total: int, closing: bool = True) -> str:
    """Bars up to a step, then the rows that were kept until then, and that bar again."""
    out, at = "", 0
    for end, rows in blocks:
        out += "".join(bar(s, total) for s in range(at, end + 1)) + "\r" + " " * 30 + "\r"
        out += "\n".join(rows) + "\n" + (bar(end, total) if closing else "")
        at = end + 1
    return out + "\n"


def row(step: int, epoch: object, kind: str = "loss") -> str:
    return str({kind: 0.1, f"{kind[:-4]}reward": 0.3 + step / 1000, "epoch": epoch})


ENDED = "{'train_runtime': 9.5, 'train_loss': 0.1, 'epoch': %s}"


@pytest.mark.parametrize("closing", [True, False])
def test_rows_under_one_bar_stand_at_their_epochs(tmp_path: Path, closing: bool) -> None:
    blocks = [(24, [row(s, s / 48) for s in (8, 16, 24)]),
              (48, [row(s, s / 48) for s in (32, 40, 48)])]  # fmt: skip
    log = text(tmp_path / "a.log", held_back(blocks, 48, closing))
    assert steps(log) == [8, 16, 24, 32, 40, 48]


def test_rows_of_rounded_epochs_stand_at_even_distances(tmp_path: Path) -> None:
    """Two decimals of 900 updates an epoch leave nine steps open, thirty rows do not."""
    at = range(15, 451, 15)
    blocks = [(225, [row(s, round(s / 900, 2)) for s in at[:15]]),
              (450, [row(s, round(s / 900, 2)) for s in at[15:]])]  # fmt: skip
    log = text(tmp_path / "a.log", held_back(blocks, 900))
    assert steps(log) == list(at)


def test_uneven_rows_of_rounded_epochs_are_refused(tmp_path: Path) -> None:
    at = (1, 20, 40, 60)
    log = text(
        tmp_path / "a.log", held_back([(60, [row(s, round(s / 900, 2)) for s in at])], 900)
    )
    assert "trainer_state.json" in refused(log)


def test_rows_behind_the_last_bar_stand_at_their_updates(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 700:.4g}") for s in range(1, 13)]
    log = text(tmp_path / "a.log", held_back([(12, rows)], 12, closing=False))
    assert steps(log) == list(range(1, 13))


def test_the_trainers_last_line_dates_rows_that_all_came_at_the_end(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 70:.4g}") for s in (10, 20, 30)]
    log = text(tmp_path / "a.log",
               held_back([(35, [*rows, ENDED % "'0.5'"])], 35, closing=False))  # fmt: skip
    assert steps(log) == [10, 20, 30]


def test_rows_that_nothing_dates_are_refused_by_their_reason(tmp_path: Path) -> None:
    rows = [row(s, f"{s / 70:.4g}") for s in (10, 20, 30)]
    log = text(tmp_path / "a.log", held_back([(35, rows)], 35, closing=False))
    assert "behind the bar of step 35 together" in refused(log)


def test_an_evaluation_stands_with_its_row_of_training(tmp_path: Path) -> None:
    rows = [row(s, s / 40, kind) for s in (10, 20) for kind in ("loss", "eval_loss")]
    more = [row(s, s / 40, kind) for s in (30, 40) for kind in ("loss", "eval_loss")]
    log = text(tmp_path / "a.log", held_back([(20, rows), (40, more)], 40))
    assert steps(log, "validation") == [10, 20, 30, 40]


def test_a_second_training_in_a_console_is_cut_off(tmp_path: Path) -> None:
    one = held_back([(4, [row(s, s / 4) for s in range(1, 5)] + [ENDED % "1.0"])], 4)
    two = held_back([(6, [row(s, s / 6) for s in range(1, 7)] + [ENDED % "1.0"])], 6)
    log = text(tmp_path / "a.log", f"{one}Num Epochs = 1\n{two}")
    told = refused(log)
    at = one.count("\n")
    assert f"head -n {at} " in told
    assert f"tail -n +{at + 1} " in told
    lines = log.read_bytes().split(b"\n")
    (tmp_path / "b.log").write_bytes(b"\n".join(lines[:at]))
    (tmp_path / "c.log").write_bytes(b"\n".join(lines[at:]))
    assert steps(tmp_path / "b.log") == [1, 2, 3, 4]
    assert steps(tmp_path / "c.log") == [1, 2, 3, 4, 5, 6]


# Loops of one's own that count from 0 and write a known key.

SEQUENCE = ["problems_per_batch=4", "rollouts_per_problem=4"]


def from_zero(first: bool, key: str) -> list[dict[str, object]]:
    """Evaluations after updates 6, 12, 18, 24, with a baseline before training or without."""
    rows: list[dict[str, object]] = []
    for at in range(24):
        scores = {key: 0.1 + at / 100} if at % 6 == 5 or (first and not at) else {}
        rows.append({"step": at, "train/loss": 0.2, **scores})
    return rows


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", ["eval/reward", "eval_reward", "validation/accuracy"])
def test_known_keys_counted_from_zero_stand_one_later(
    tmp_path: Path, first: bool, key: str
) -> None:
    log = json_lines(tmp_path / "a.jsonl", from_zero(first, key))
    assert steps(log, "validation", sets=SEQUENCE) == [0] * first + [6, 12, 18, 24]


@pytest.mark.parametrize("first", [True, False])
def test_so_do_those_of_a_long_table(tmp_path: Path, first: bool) -> None:
    cells = [
        f"own,{key},{one['step']},{value}"
        for one in from_zero(first, "eval/reward") for key, value in one.items() if key != "step"
    ]
    log = text(tmp_path / "a.csv", "\n".join(["run,metric,step,value", *cells]) + "\n")
    assert steps(log, "validation", sets=SEQUENCE) == [0] * first + [6, 12, 18, 24]


def test_the_last_evaluation_may_stand_anywhere(tmp_path: Path) -> None:
    rows = [{"step": at, "eval/reward": 0.1 + at / 100} for at in (0, 6, 13, 20, 23)]
    assert steps(json_lines(tmp_path / "a.jsonl", rows), "validation") == [0, 7, 14, 21, 24]


def test_a_known_key_at_multiples_stays(tmp_path: Path) -> None:
    rows = [{"step": at, "train/loss": 0.2, "eval/reward": 0.1 + at / 100} for at in (6, 12, 18)]
    assert steps(json_lines(tmp_path / "a.jsonl", rows), "validation") == [6, 12, 18]


# What a console says of an engine, and of the trainer.

ENGINE = "INFO engine.py] config: model='q', engine_config=EngineConfig(backend='x'), seed=0, k=1"


@pytest.mark.parametrize(
    ("said", "seed"),
    [
        (ENGINE, None),
        ("TrainingArguments(\nnum_generations=4,\nseed=7,\n)\n" + ENGINE, 7),
        ("args: GRPOConfig(output='o', engine=EngineConfig(seed=3), seed=5), seed=9", 5),
        ("args: GRPOConfig(output='o'), engine: EngineConfig(seed=3)", None),
    ],
)
def test_only_a_trainers_own_arguments_say_the_seed(
    tmp_path: Path, said: str, seed: int | None
) -> None:
    rows = "".join(bar(s, 3) + "\n" + row(s, s / 3) + bar(s, 3) + "\n" for s in (1, 2, 3))
    (run,) = read(text(tmp_path / "a.log", f"{said}\n{rows}"))
    assert run.seed == seed
