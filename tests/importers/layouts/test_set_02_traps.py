"""What the blind layouts found: numbers that were read silently wrong, each at its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import Settings, read_log, settings_from
from isocompute.sources import load_curves
from layouts_blind import put, put_json, put_lines


def rows(name: str, key: str, shift: float) -> list[dict]:
    return [{key: name, "step": s, "eval/reward": shift + s / 100} for s in (0, 10, 20)]


@pytest.mark.parametrize("key", ["run", "run_name", "run_id", "experimentKey"])
@pytest.mark.parametrize("as_list", [True, False])
def test_rows_of_several_runs_in_one_json_file_are_several_runs(
    key: str, as_list: bool, tmp_path: Path
) -> None:
    every = rows("a", key, 0.1) + rows("b", key, 0.5)
    path = tmp_path / "all.json"
    put_json(path, every) if as_list else put_lines(path, every)
    runs = read_log(path, settings=settings_from({"step": "step"}))
    assert [run.name for run in runs] == ["a", "b"]
    scores = [run.series[0].score_K.tolist() for run in runs]
    assert scores == [pytest.approx([0.1, 0.2, 0.3]), pytest.approx([0.5, 0.6, 0.7])]


def test_a_row_without_the_run_goes_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    put_lines(path, [{"step": s, "eval/reward": 0.1 + s / 100} for s in (0, 10)])
    (run,) = read_log(path)
    assert run.name == "mine"


def dapo(folder: Path, gen: int = 24) -> Path:
    log = folder / "logs" / "DAPO" / "one.jsonl"
    put(
        folder / ".hydra" / "config.yaml",
        f"data:\n  train_batch_size: 8\n  gen_batch_size: {gen}\n"
        "actor_rollout_ref:\n  rollout:\n    n: 4\n",
    )
    data = [{"train/num_gen_batches": 2, "val-core/m/acc/mean@1": 0.1 + s / 9} for s in range(3)]
    put_lines(log, [{"step": s, "data": row} for s, row in enumerate(data)])
    return log


def test_the_configuration_of_hydra_counts_in_a_folder_above(tmp_path: Path) -> None:
    dapo(tmp_path / "job")
    (curve,) = load_curves(tmp_path)
    assert curve.rollouts_K.tolist() == [0, 2 * 24 * 4, 4 * 24 * 4]


def test_one_of_two_logs_below_hydras_folder_takes_nothing(tmp_path: Path) -> None:
    log = dapo(tmp_path / "job")
    log.with_name("two.jsonl").write_bytes(log.read_bytes().replace(b"0.1", b"0.2"))
    with pytest.raises(InputError, match="must be known"):
        load_curves(tmp_path)


def test_a_batch_of_unknown_size_is_said_to_be_b_p(tmp_path: Path) -> None:
    log = dapo(tmp_path / "job")
    (tmp_path / "job" / ".hydra" / "config.yaml").unlink()
    given = {"problems_per_batch": 8, "rollouts_per_problem": 4}
    (run,) = read_log(log, settings=settings_from(given))
    assert any("no gen_batch_size" in line for line in run.provenance.inferred)


def test_training_args_beside_the_history_say_that_batches_are_used_twice(tmp_path: Path) -> None:
    history = [{"step": s, "eval_reward": 0.1 + s / 99} for s in (0, 10, 20)]
    put_json(tmp_path / "r" / "trainer_state.json", {"log_history": history})
    args = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "world_size": 1,
        "generation_batch_size": 32,
        "num_generations": 4,
        "num_iterations": 2,
    }
    put_json(tmp_path / "r" / "training_args.json", args)
    (curve,) = load_curves(tmp_path)
    assert curve.rollouts_K.tolist() == [0, 160, 320]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_dots_of_thousands_are_refused(separator: str, tmp_path: Path) -> None:
    table = ["problems_per_batch,rollouts_per_problem,rollouts,score"]
    table += ["8,4,640,0.2", "8,4,1.280,0.3"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(table).replace(",", separator) + "\n")
    with pytest.raises(InputError, match=r"row 2 has '1.280', a fraction or thousands; write 1280"):
        load_curves(path)
    path.write_text(path.read_text().replace("1.280", "1280.5"))
    (curve,) = load_curves(path)
    assert curve.rollouts_K.tolist() == [640, 1280.5]


def test_steps_that_are_no_whole_updates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("problems_per_batch,rollouts_per_problem,step,score\n8,4,0,0.2\n8,4,0.125,0.3\n")
    with pytest.raises(InputError, match=r"`steps` must be whole updates, but row 2 has 0.125"):
        load_curves(path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{\n\"scalars\": {}, \"id\": 3}", r"list of rows .* has scalars, id; write"),
        ("a.log", "all is well\n", r"give what its tracker wrote .* or write a CSV"),
        ("a.csv", "epoch,acc\n1,0.5\n", r"give it to fit, with acc as the score if it holds that"),
    ],
)
def test_what_is_no_log_is_told_by_what_it_has(
    name: str, text: str, says: str, tmp_path: Path
) -> None:
    put(tmp_path / name, text)
    with pytest.raises(InputError, match=says):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("name", "seed"), [("r7", 7), ("sweep-r7", 7), ("a_r7.csv", 7), ("83r7", 7), ("for83", None)]
)
def test_a_pattern_begins_a_word(name: str, seed: int | None) -> None:
    """`r{seed}` is no part of "for83": a short pattern found any folder."""
    assert Settings(pattern="r{seed}").for_file(name).seed == seed
