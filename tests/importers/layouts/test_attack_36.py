"""A second mind on the mends of set 36: what stood near their rules, and was read wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import import_logs
from isocompute.importers.beside.listed import runs_listed
from isocompute.importers.words.names import recipe_in
from isocompute.importers.words.settings import load_settings
from isocompute.sources import load_curves
from layout_helpers import AT, lines, load, refused, score, write

SEEDS = ((4, 1), (4, 2), (8, 1), (8, 2))
NAMED = ["pattern=bp{problems_per_batch}_n{rollouts_per_problem}*s{seed}"]
ACC = ["val/accuracy=avg"]
EVERY = (0, 20, 40, 60, 80, 100)


def of(n: int, seed: int, step: int) -> float:
    return score(step, n, seed / 700)


def named(folder: Path, usual: str, other: str) -> None:
    for n, seed, word in (*((n, s, usual) for n, s in SEEDS), (4, 3, other)):
        lines(folder / f"bp6_n{n}{word}_s{seed}.jsonl",
              ({"step": s, "val/accuracy": of(n, seed, s)} for s in AT))  # fmt: skip


# Names.


@pytest.mark.parametrize(("usual", "other"), [
    ("", "_lr5e-6"), ("_temp0.7", "_temp1"), ("_beta0.0", "_beta0.04"), ("", "_kl"),
    ("_grpo", "_dapo"), ("_lr1em6", "_lr5em6"), ("_mbs32", "_mbs64"), ("_360M", "_1.7B"),
])  # fmt: skip
def test_a_word_that_the_star_of_a_pattern_finds_tells_runs_apart(
    tmp_path: Path, usual: str, other: str
) -> None:
    named(tmp_path, usual, other)
    told = refused(tmp_path, ACC, NAMED)
    assert f"'bp6_n4{other}_s3' is of n = 4, as 'bp6_n4{usual}_s1' is; leave it out with" in told
    assert len(load(tmp_path, ACC, NAMED, where=["run=bp6_n*[12]"])) == 4
    assert len(load(tmp_path, ACC, NAMED, where=["run=*"])) == 5


def test_a_run_of_another_name_is_asked_about_wherever_it_was_imported(tmp_path: Path) -> None:
    named(tmp_path / "a", "", "_kl")
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "bp6_n4_kl_s3.jsonl").rename(tmp_path / "b" / "bp6_n4_kl_s3.jsonl")
    for folder in ("a", "b"):
        import_logs([tmp_path / folder], tmp_path / "study", settings=load_settings(NAMED, ACC))
    assert "'bp6_n4_kl_s3' is of n = 4" in refused(tmp_path / "study")


@pytest.mark.parametrize("names", [
    [f"n{n}_s{s}_{word}" for (n, s), word in zip(SEEDS, ("ab", "cd", "ef", "gh"), strict=True)],
    [f"n{n}_s{s}_lr{n}e-6" for n, s in SEEDS],
    [f"n{n}_s{s}_exp_{i}b" for i, (n, s) in enumerate(SEEDS)],
])  # fmt: skip
def test_names_that_differ_for_every_run_are_of_one_sweep(
    tmp_path: Path, names: list[str]
) -> None:
    for (n, seed), name in zip(SEEDS, names, strict=True):
        lines(tmp_path / f"{name}.jsonl",
              ({"step": s, "val/accuracy": of(n, seed, s)} for s in AT))  # fmt: skip
        write(tmp_path / f"{name}.json", json.dumps({"seed": seed}))
    sets = ["pattern=n{rollouts_per_problem}", "problems_per_batch=6"]
    assert len(load(tmp_path, ACC, sets)) == 4


def test_the_recipe_that_is_nearest_to_a_log_holds(tmp_path: Path) -> None:
    assert recipe_in("lr1e-6_sweep/lr5e-6/n4") == {"learning_rate": "5e-06"}
    assert recipe_in("n8_lr1e6") == recipe_in("n8_lr1e-6") == {"learning_rate": "1e-06"}
    assert recipe_in("exp_4b_n8") == {}
    named(tmp_path / "lr1e-6_sweep", "", "")
    odd = tmp_path / "lr1e-6_sweep" / "bp6_n4_s3.jsonl"
    (odd.parent / "lr5e-6").mkdir()
    odd.rename(odd.parent / "lr5e-6" / odd.name)
    assert "have 1e-06 (4 runs), 5e-06 (1 run)" in refused(tmp_path, ACC, NAMED)


# Tables.

MAPS = ["val_acc=score", "prompts_per_step=problems_per_batch", "group_size=rollouts_per_problem"]
HEAD = "run,prompts_per_step,group_size,seed,step,val_acc"


def rows(seeds: tuple[tuple[int, int], ...], run: str = "r{n}{seed}") -> Iterator[str]:
    for n, seed in seeds:
        for s in AT:
            yield f"{run.format(n=n, seed=seed)},6,{n},{seed},{s},{of(n, seed, s)}"


def table(path: Path, column: str, usual: object, other: object) -> Path:
    every = (*SEEDS, (4, 3))
    told = [f"{row},{other if row.split(',')[3] == '3' else usual}" for row in rows(every)]
    return write(path, "\n".join([f"{HEAD},{column}", *told]) + "\n")


@pytest.mark.parametrize(("column", "usual", "other"), [
    ("algo", "grpo", "dapo"), ("loss_type", "grpo", "dr_grpo"), ("train_dataset", "a", "b"),
    ("hparams/ppo_epochs", 1, 4), ("max_response_length", 1024, 4096), ("clip_ratio", 0.2, 0.28),
])  # fmt: skip
def test_a_column_that_makes_another_recipe(
    tmp_path: Path, column: str, usual: object, other: object
) -> None:
    file = table(tmp_path / "all.csv", column, usual, other)
    told = refused(file, MAPS)
    assert f"those of 6 x 4 have {usual}, {other}; choose with --where {column}={usual}" in told
    assert f"choose with --where {column}={usual}" in told
    curves = load(file, MAPS, where=[f"{column}={usual}"])
    assert [c.recorded for c in curves] == [{}] * 4
    assert len(load(file, MAPS, where=[f"{column}=*"])) == 5
    assert len(load(table(tmp_path / "same.csv", column, usual, usual), MAPS)) == 5


@pytest.mark.parametrize(("column", "word", "usual", "other"), [
    ("config.lr", "learning_rate", 1e-6, 5e-6), ("optimizer.lr", "learning_rate", 1e-6, 5e-6),
    ("actor_rollout_ref.actor.optim.lr", "learning_rate", 1e-6, 5e-6),
    ("rollout_temperature", "temperature", 1, 0.7), ("beta", "kl_coef", 0, 0.04),
    ("clip_eps", "clip_low", 0.2, 0.28), ("entropy_bonus", "entropy_coef", 0, 0.01),
])  # fmt: skip
def test_a_word_of_the_recipe_under_a_name_of_its_own(
    tmp_path: Path, column: str, word: str, usual: float, other: float
) -> None:
    file = table(tmp_path / "all.csv", column, usual, other)
    assert f"choose with --where {word}={usual:g}" in refused(file, MAPS)
    assert len(load(file, MAPS, where=[f"{word}={usual:g}"])) == 4


def test_what_differs_in_every_run_or_in_the_rows_of_one(tmp_path: Path) -> None:
    told = [f"{row},n{row.split(',')[2]}-{row.split(',')[3]}" for row in rows(SEEDS)]
    named = write(tmp_path / "a.csv", "\n".join([f"{HEAD},setting", *told]) + "\n")
    assert len(load(named, MAPS)) == 4
    told = [f"{row[:-1]}{i},{of_set}" for row in rows(SEEDS)
            for i, of_set in enumerate(("math", "aime"))]
    sets = write(tmp_path / "b.csv", "\n".join([f"{HEAD},dataset", *told]) + "\n")
    assert "choose one with --where dataset=math" in refused(sets, MAPS)
    assert len(load(sets, [*MAPS, "dataset=problem_set"], problem_set="aime")) == 4


def test_tables_of_two_rates_are_not_averaged(tmp_path: Path) -> None:
    for rate, seeds in (("1e-6", SEEDS), ("5e-6", ((4, 3), (8, 3)))):
        write(tmp_path / "in_the_name" / f"lr{rate}.csv", "\n".join([HEAD, *rows(seeds)]) + "\n")
        told = [f"{row},{rate}" for row in rows(seeds)]
        write(tmp_path / "in_a_column" / f"{len(seeds)}.csv",
              "\n".join([f"{HEAD},lr", *told]) + "\n")  # fmt: skip
    two = [f"{file}[learning_rate=*]" for file in (tmp_path / "in_a_column").iterdir()]
    assert len(load_curves(two, settings=load_settings([], MAPS))) == 6
    with pytest.raises(InputError, match="those of 6 x 4 have "):
        load_curves([one.partition("[")[0] for one in two], settings=load_settings([], MAPS))
    for folder in (tmp_path / "in_the_name", tmp_path / "in_a_column"):
        assert "those of 6 x 4 have 1e-06, 5e-06; choose with" in refused(folder, MAPS)
        assert len(load(folder, MAPS, where=["learning_rate=*"])) == 6


def test_names_of_runs_in_a_table_say_their_recipe(tmp_path: Path) -> None:
    for usual, other in (("_lr1e-6", "_lr5e-6"), ("", "_kl0.1")):
        told = [*rows(SEEDS, "n{n}_s{seed}" + usual), *rows(((4, 3),), "n{n}_s{seed}" + other)]
        file = write(tmp_path / f"t{len(usual)}.csv", "\n".join([HEAD, *told]) + "\n")
        assert "runs must share their learning rate" in refused(file, MAPS) or (
            f"'n4_s3{other}' is of n = 4, as 'n4_s1' is" in refused(file, MAPS))  # fmt: skip
        assert len(load(file, MAPS, where=["run=*", "learning_rate=*"] if usual else ["run=*"])) > 4


@pytest.mark.parametrize(("column", "usual", "other", "listed"), [
    ("model", "Q-1.5B", "Q-3B", 5), ("lr", 1e-6, 5e-6, 4),
])  # fmt: skip
def test_what_a_table_of_runs_says_of_some(
    tmp_path: Path, column: str, usual: object, other: object, listed: int
) -> None:
    write(tmp_path / "evals.csv", "\n".join([HEAD, *rows((*SEEDS, (4, 3)))]) + "\n")
    runs = [f"r{n}{s},{other if s == 3 else usual}" for n, s in (*SEEDS, (4, 3))][-listed:]
    write(tmp_path / "runs.csv", "\n".join([f"run,{column}", *runs]) + "\n")
    assert f" have {usual}, {other}" in refused(tmp_path / "evals.csv", MAPS)
    kept = [f"{'learning_rate' if column == 'lr' else column}={usual}"]
    assert 0 < len(load(tmp_path / "evals.csv", MAPS, where=kept)) < 5


def test_sections_of_one_run_are_no_runs(tmp_path: Path) -> None:
    one = {"data": {"train_batch_size": 6, "seed": 1}, "rollout": {"n": 4, "num_generations": 4}}
    assert not runs_listed(write(tmp_path / "config.json", json.dumps(one)))


# Steps that begin anew with every epoch.


def in_epochs(log_epoch: bool, at_start: bool = False, gaps: bool = False) -> Iterator[dict]:
    """Rows of five epochs of 20 steps, evaluated at their ends; of training some or all."""
    yield {"step": 0, "val/accuracy": of(4, 1, 0), **({"epoch": 0} if log_epoch else {})}
    for epoch in range(1, 6):
        for step in (10, 20) if gaps else range(1, 21):
            yield {"step": step, "epoch": epoch, "train/reward": step / 99 + epoch}
        yield {"step": 0 if at_start else 20, "val/accuracy": of(4, 1, 20 * epoch),
               **({"epoch": epoch} if log_epoch else {})}  # fmt: skip


def written(folder: Path, kind: str, told: Iterator[dict]) -> Path:
    each = [row if kind == "plain" else {"_step": i, **row} for i, row in enumerate(told)]
    if kind != "csv":
        lines(folder / "bp6_n4_s1.jsonl", each)
        return folder
    keys = ["_step", "step", "epoch", "train/reward", "val/accuracy"]
    cells = [",".join(str(row.get(key, "")) for key in keys) for row in each]
    write(folder / "bp6_n4_s1.csv", "\n".join([",".join(keys), *cells]) + "\n")
    return folder


@pytest.mark.parametrize("kind", ["csv", "wandb", "plain"])
@pytest.mark.parametrize("log_epoch", [True, False])
def test_an_evaluation_may_be_an_epoch_of_its_own_or_say_none(
    tmp_path: Path, kind: str, log_epoch: bool
) -> None:
    (curve,) = load(written(tmp_path, kind, in_epochs(log_epoch)), ACC, NAMED)
    assert curve.rollouts_K.tolist() == [24 * s for s in EVERY]
    assert curve.score_K.tolist() == pytest.approx([of(4, 1, s) for s in EVERY])


@pytest.mark.parametrize("kind", ["csv", "wandb", "plain"])
@pytest.mark.parametrize("how", [{"at_start": True}, {"gaps": True}])
def test_steps_of_an_evaluation_that_no_epoch_places_are_asked_about(
    tmp_path: Path, kind: str, how: dict[str, bool]
) -> None:
    told = refused(written(tmp_path, kind, in_epochs(False, **how)), ACC, NAMED)
    assert "steps must count on, but they begin anew with every epoch" in told


# Consoles that count steps as k/N.


def from_zero(step: int) -> str:
    epoch = max(step - 1, 0) // 20
    return f"Epoch:[{epoch}/5]({step - 20 * epoch}/20), "


def shorter_at_the_end(step: int) -> str:
    epoch = max(step - 1, 0) // 40
    return f"Epoch:[{epoch + 1}/3]({step - 40 * epoch}/{20 if epoch == 2 else 40}), "


def with_a_word(step: int) -> str:
    epoch = max(step - 1, 0) // 20
    return f"Epoch {epoch + 1}/5, step {step - 20 * epoch}/20: "


def planned_anew(step: int) -> str:
    return f"{step}/{60 if step <= 60 else 100} | "


@pytest.mark.parametrize("at", [from_zero, shorter_at_the_end, with_a_word, planned_anew])
def test_a_console_counts_on_over_epochs_and_starts(
    tmp_path: Path, at: Callable[[int], str]
) -> None:
    told = ["loading shards: 3/4"]
    for step in range(101):
        told.append(f"{at(step)}reward: {0.3 + step / 999:.4f}")
        if step in EVERY:
            told.append(f"{at(step)}val/accuracy: {of(4, 1, step)}")
    write(tmp_path / "bp6_n4_s1.log", "\n".join(told) + "\n")
    (curve,) = load(tmp_path, ACC, NAMED)
    assert curve.rollouts_K.tolist() == [24 * s for s in EVERY]
    assert curve.score_K.tolist() == pytest.approx([of(4, 1, s) for s in EVERY])
