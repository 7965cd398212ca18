"""A seventh set of layouts: what was misread, or was once the tool's own line was followed."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import import_logs, load_settings, read_log
from isocompute.importers.archive import read_logs
from isocompute.importers.values.wire import masked_crc32c
from isocompute.importers.words.names import pattern_of
from isocompute.sources import load_curves
from layout_helpers import events

STEPS = range(0, 320, 20)
B_P_N = ["pattern=bp{problems_per_batch}_n{rollouts_per_problem}"]


def score(n: int, step: int, seed: int = 0) -> float:
    return round(0.3 + n / 100 + step / 1000 + 0.0123457 * ((step + 3 * seed) % 7), 7)


def history(folder: Path, n: int, last: int, seed: int = 0, fork: int | None = None) -> Path:
    """TRL's trainer_state.json; from a fork on with other scores."""
    folder.mkdir(parents=True)
    rows = [{"step": s, "eval_reward": score(n, s, seed if fork is None or s <= fork else 9)}
            for s in STEPS if s <= last]  # fmt: skip
    state = {"global_step": last, "log_history": rows}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def test_a_run_that_went_on_elsewhere_is_one_and_what_it_left_behind_is_none(
    tmp_path: Path,
) -> None:
    """A resumed run takes its history along; what the first did after it is no seed."""
    words = load_settings(["problems_per_batch=32", "pattern=n{rollouts_per_problem}"])
    history(tmp_path / "logs" / "n8", 8, 200)
    history(tmp_path / "logs" / "n8-resumed", 8, 300, fork=140)
    history(tmp_path / "logs" / "n16", 16, 300)
    runs = read_log(tmp_path / "logs", settings=words)
    assert sorted((r.name, int(r.series[0].step_K[-1])) for r in runs) == [
        ("n16", 300), ("n8-resumed", 300)]  # fmt: skip
    (told,) = [note for r in runs for note in r.notes]
    assert told.startswith("goes on from step 140 of ")
    assert "whose later scores are left out (--set resumed=apart keeps both)" in told
    apart = load_settings(["problems_per_batch=32", "pattern=n{rollouts_per_problem}",
                           "resumed=apart"])  # fmt: skip
    assert len(read_log(tmp_path / "logs", settings=apart)) == 3
    # One after the other, as at once.
    for name in ("n8", "n8-resumed", "n16"):
        import_logs([tmp_path / "logs" / name], tmp_path / "study", settings=words)
    ends = {(c.rollouts_per_problem, c.rollouts_K[-1]) for c in load_curves(tmp_path / "study")}
    assert ends == {(8, 300 * 32 * 8), (16, 300 * 32 * 16)}
    assert len(load_curves(tmp_path / "study")) == 2


def test_of_two_branches_that_end_together_the_run_is_asked_for(tmp_path: Path) -> None:
    words = load_settings(["problems_per_batch=32", "pattern=n{rollouts_per_problem}"])
    history(tmp_path / "n8", 8, 300)
    history(tmp_path / "n8b", 8, 300, fork=140)
    with pytest.raises(InputError, match=r"same ones up to step 140.*resumed=apart"):
        read_logs([tmp_path / "n8", tmp_path / "n8b"], settings=words)
    history(tmp_path / "n8c", 8, 300, seed=1)  # a seed of its own
    assert len(read_logs([tmp_path / "n8", tmp_path / "n8c"], settings=words)) == 2


@pytest.mark.parametrize("key", ["group_size", "prompts_per_step", "samples_per_prompt"])
def test_a_batch_that_changes_in_the_rows_is_refused(tmp_path: Path, key: str) -> None:
    rows: list[dict[str, Any]] = [
        {"step": s, "prompts_per_step": 32, "group_size": 8, "eval/acc": score(8, s)} for s in STEPS
    ]
    for row in rows[8:]:
        row[key] = 64
    if key == "samples_per_prompt":
        rows[0][key] = 8
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=f"a run must have one {key}, but the rows of"):
        read_log(path)


def hparams(path: Path, settings: dict[str, Any]) -> None:
    """An event file that holds what torch's `add_hparams` writes."""

    def varint(value: int) -> bytes:
        out = b""
        while value > 0x7F:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    entries = b""
    for name, value in settings.items():
        if isinstance(value, bool):
            inner = b"\x20" + bytes([value])
        else:
            is_text = isinstance(value, str)
            inner = field(3, value.encode()) if is_text else b"\x11" + struct.pack("<d", value)
        entries += field(1, field(1, name.encode()) + field(2, inner))
    plugin = field(1, b"hparams") + field(2, field(3, entries))
    value = field(1, b"_hparams_/session_start_info") + field(9, field(1, plugin))
    data = field(5, field(1, value))
    length = struct.pack("<Q", len(data))
    path.parent.mkdir(parents=True)
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + data
                     + struct.pack("<I", masked_crc32c(data)))  # fmt: skip


def nemo(folder: Path, n: int, *, at: int = 1, last: int = 300, seed: int = 0) -> None:
    rows = [(s, "validation/accuracy", score(n, s, seed)) for s in STEPS if s <= last]
    events(folder / "tensorboard" / f"events.out.tfevents.{at}", rows)


def test_the_settings_that_nemo_rl_leaves_in_tensorboard_are_read(tmp_path: Path) -> None:
    for i, n in enumerate((8, 16)):
        nemo(tmp_path / f"exp_{i}", n)
        hparams(tmp_path / f"exp_{i}" / "tensorboard" / "1757000000.5" / "events.out.tfevents.2",
                {"grpo.num_prompts_per_step": 32, "grpo.num_generations_per_prompt": n,
                 "grpo.seed": 42, "policy.model_name": "qwen", "grpo.use": True})  # fmt: skip
    runs = [run for run in read_log(tmp_path) if run.series]
    found = sorted((r.problems_per_batch, r.rollouts_per_problem, r.seed) for r in runs)
    assert found == [(32, 8, 42), (32, 16, 42)]
    assert any("hparams beside the log" in line for line in runs[0].provenance.inferred)


def test_two_starts_in_one_folder_of_tensorboard_are_asked_for(tmp_path: Path) -> None:
    words = ["problems_per_batch=32", "pattern=n{rollouts_per_problem}"]
    nemo(tmp_path / "n8", 8, at=1, last=80, seed=1)
    nemo(tmp_path / "n8", 8, at=2)
    with pytest.raises(InputError, match=r"both begin at the start.*--set resumed=join.*apart"):
        read_log(tmp_path, settings=load_settings(words))
    (run,) = read_log(tmp_path, settings=load_settings([*words, "resumed=join"]))
    assert run.series[0].step_K[-1] == 300
    assert len(read_log(tmp_path, settings=load_settings([*words, "resumed=apart"]))) == 2


def test_parts_of_a_run_in_folders_of_their_own_keep_their_split(tmp_path: Path) -> None:
    """PyTorch's add_scalars and Keras: a folder for each of training and validation."""
    for n in (8, 16):
        for part, first in (("accuracy_train", 1), ("accuracy_val", 0), ("train", 2)):
            rows = [(s, "accuracy", score(n, s + first)) for s in STEPS]
            events(tmp_path / f"bp32_n{n}" / part / "events.out.tfevents.1", rows)
    file = tmp_path / "columns.yaml"
    file.write_text("columns: {accuracy: avg@4}\n")
    runs = read_log(tmp_path, settings=load_settings(B_P_N, file))
    found = {(Path(r.provenance.path).parent.name, s.split) for r in runs for s in r.series
             if r.rollouts_per_problem == 8}  # fmt: skip
    assert found == {("accuracy_train", "train"), ("accuracy_val", "validation"),
                     ("train", "train")}  # fmt: skip


def test_areal_s_mini_batches_are_no_updates(tmp_path: Path) -> None:
    rows = [(s, "grpo_actor/update/grad_norm", 1.0) for s in range(400)]
    rows += [(4 * u, "rollout/reward", score(8, u)) for u in range(100)]
    rows += [(4 * u, "eval-rollout/reward", score(8, u)) for u in range(19, 100, 20)]
    events(tmp_path / "bp32_n8" / "events.out.tfevents.1", sorted(rows))
    (run,) = read_log(tmp_path, settings=load_settings(B_P_N))
    (own,) = [s for s in run.series if s.split == "validation"]
    assert own.step_K.tolist() == [20, 40, 60, 80, 100]
    assert any("move by 4 in an update" in line for line in run.provenance.inferred)


def chart(path: Path, axis: str, key: str, steps: Sequence[object], separator: str = ",") -> Path:
    lines = [separator.join([axis, f"bp32_n8 - {key}"])]
    lines += [separator.join([str(s), str(score(8, i))]) for i, s in enumerate(steps)]
    path.write_text("\n".join(lines))
    return path


def test_open_instruct_s_global_step_counts_rollouts(tmp_path: Path) -> None:
    steps = [256 * s for s in STEPS]
    path = chart(tmp_path / "a.csv", "global_step", "eval/pass_at_1", steps)
    assert read_log(path, settings=load_settings(B_P_N))[0].series[0].step_K.tolist() == [*STEPS]
    path = chart(tmp_path / "b.csv", "training_step", "eval/pass_at_1", STEPS)
    assert read_log(path, settings=load_settings(B_P_N))[0].series[0].step_K[-1] == 300


def test_steps_in_thousands_of_another_country_are_refused(tmp_path: Path) -> None:
    steps = ["500", "1.000", "1.500", "12.000"]
    path = chart(tmp_path / "a.csv", "Step", "eval/accuracy", steps, ";")
    with pytest.raises(InputError, match=r"has '1.000', a fraction or thousands; write 1000 or 1"):
        read_log(path, settings=load_settings(["problems_per_batch=2", "rollouts_per_problem=8"]))


def rows_of(path: Path, value: Any, steps: Sequence[int] = range(1, 301)) -> Any:
    rows = [{"step": s, "loss": 0.1, "val_acc": value(s)} for s in steps]
    path.write_text("\n".join(map(json.dumps, rows)))
    file = path.parent / "columns.yaml"
    file.write_text("columns: {val_acc: avg@4}\nproblems_per_batch: 32\nrollouts_per_problem: 8\n")
    (run,) = read_log(path, settings=load_settings([], file))
    return run


def test_a_score_that_every_row_repeats_counts_once(tmp_path: Path) -> None:
    run = rows_of(tmp_path / "a.jsonl", lambda s: score(8, s // 20 * 20))
    (own,) = run.series
    assert own.step_K.tolist() == [1, *range(20, 301, 20)]
    assert "score: rows that repeat the last evaluation count once" in run.provenance.inferred


def test_zeros_between_evaluations_are_none(tmp_path: Path) -> None:
    run = rows_of(tmp_path / "a.jsonl", lambda s: score(8, s) if s % 20 == 0 else 0.0)
    assert run.series[0].step_K.tolist() == list(range(20, 301, 20))
    assert any("0 in the rows between" in line for line in run.provenance.inferred)


def test_a_table_whose_scores_are_filled_down_has_its_evaluations_alone(tmp_path: Path) -> None:
    lines = ["problems_per_batch,rollouts_per_problem,steps,score"]
    lines += [f"32,8,{s},{score(8, s // 20 * 20)}" for s in range(301)]
    path = tmp_path / "filled.csv"
    path.write_text("\n".join(lines))
    told: list[str] = []
    (curve,) = load_curves(path, say=told.append)
    assert curve.rollouts_K.tolist() == [256 * s for s in range(0, 301, 20)]
    assert told == [f"{path}: score: rows that repeat the last evaluation count once"]


def test_scores_of_a_set_that_is_mostly_unsolved_stay_as_they_are(tmp_path: Path) -> None:
    """Zeros and equal scores by chance stand at no even distance."""
    rare = {7: 1 / 300, 11: 1 / 300, 12: 2 / 300, 19: 1 / 300, 26: 2 / 300, 28: 1 / 300}
    run = rows_of(tmp_path / "a.jsonl", lambda s: rare.get(s // 10, 0.0), range(0, 300, 10))
    assert run.series[0].score_K.size == 30
    assert not any(line.startswith("score") for line in run.provenance.inferred)


def tidy(path: Path, tokens: Sequence[float]) -> Path:
    lines = ["problems_per_batch,rollouts_per_problem,steps,tokens,score"]
    lines += [f"32,8,{s},{t:g},{score(8, s)}" for s, t in zip(STEPS, tokens, strict=True)]
    path.write_text("\n".join(lines))
    return path


def test_tokens_of_each_step_alone_are_no_sum(tmp_path: Path) -> None:
    path = tidy(tmp_path / "a.csv", [256 * (400 + 3 * s) if s else 0 for s in STEPS])
    with pytest.raises(InputError, match=r"`tokens` must be cumulative.*add them up, or drop"):
        load_curves(path)
    total = [256 * s * 400 for s in STEPS]
    assert load_curves(tidy(tmp_path / "b.csv", total))[0].tokens_K[-1] == total[-1]
    shorter = [256.0 * (20_000 + 200 * (s - 20)) if s else 0.0 for s in STEPS]  # 1,000, then 200
    with pytest.raises(InputError, match="up to the first evaluation"):
        load_curves(tidy(tmp_path / "c.csv", shorter))
    half = [256.0 * (20_000 + 500 * (s - 20)) if s else 0.0 for s in STEPS]  # lengths halve
    assert load_curves(tidy(tmp_path / "d.csv", half))


def test_a_width_beside_scores_is_no_run(tmp_path: Path) -> None:
    lines = ["step,n8,n8_std,n16,n16_ci95,n16_max"]
    lines += [f"{s},{score(8, s)},0.02,{score(16, s)},0.02,0.9" for s in STEPS]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(lines))
    words = load_settings(["pattern=n{rollouts_per_problem}", "problems_per_batch=32"])
    curves = load_curves(path, settings=words)
    assert [(c.rollouts_per_problem, c.score_K[0]) for c in curves] == [
        (8, score(8, 0)), (16, score(16, 0))]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern"), [
    ("qwen3-4b_1n8g_bs64_n16_lr1e-6", "bs{problems_per_batch}_n{rollouts_per_problem}"),
    ("qwen3-4b_1n8g_bs64_roll16", "bs{problems_per_batch}_roll{rollouts_per_problem}"),
    ("bs64_n8g", None),
])  # fmt: skip
def test_nodes_and_gpus_in_a_name_are_no_rollouts(
    tmp_path: Path, name: str, pattern: str | None
) -> None:
    path = chart(tmp_path / "a.csv", "train/global_step", "eval/accuracy", STEPS)
    path.write_text(path.read_text().replace("bp32_n8", name))
    (run,) = read_log(path)
    assert pattern_of(run) == pattern if pattern else "n{rollouts" not in str(pattern_of(run))


@pytest.mark.parametrize(("word", "values", "told"), [
    ("split", ("val", "train"), "eval/acc are of 'validation' and 'train'"),
    ("split", ("val", "test"), "of one split, but those of .* have 'val' and 'test'"),
    ("dataset", ("math", "aime"), "of one dataset, but those of .* have 'math' and 'aime'"),
])  # fmt: skip
def test_rows_that_say_what_they_are_of_are_of_one(
    tmp_path: Path, word: str, values: tuple[str, str], told: str
) -> None:
    rows = [{"step": s, word: values[0], "eval/acc": score(8, s)} for s in STEPS]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    settings = load_settings([], ["eval/acc=avg"])
    assert read_log(path, settings=settings)
    rows.append({"step": 301, word: values[1], "eval/acc": 0.9})
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=told):
        read_log(path, settings=settings)


def test_a_key_of_a_log_may_be_named_as_b_p_or_n(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"step": s, "loop/prompts": 32, "loop/k": 8, "val/mean@2": score(8, s)} for s in STEPS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    maps = ["loop/prompts=problems_per_batch", "loop/k=rollouts_per_problem"]
    with pytest.raises(InputError, match=r"name the score \(--map val/mean@2=avg@2\), or choose"):
        load_curves(path, settings=load_settings([], maps))
    (curve,) = load_curves(path, settings=load_settings([], [*maps, "val/mean@2=avg@2"]))
    assert (curve.configuration, curve.metric) == ((32, 8), "avg@2")
    assert curve.rollouts_K.tolist() == [32 * 8 * s for s in STEPS]


def parts(folder: Path, n: int, *, seed: int = 0) -> None:
    """Two logs of one run, the second with a counter that began anew."""
    for part, (first, last) in enumerate(((0, 160), (160, 300)), start=1):
        rows = [{"step": s - first, "eval_reward": score(n, s, seed)}
                for s in STEPS if first <= s <= last]  # fmt: skip
        file = folder / f"p32_n{n}_part{part}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_that_begins_where_another_ends_is_its_sequel(tmp_path: Path) -> None:
    """Its counter began anew; read as a second seed it would begin at the first one's end."""
    for n in (8, 16):
        parts(tmp_path, n)
    words = ["pattern=p{problems_per_batch}_n{rollouts_per_problem}"]
    with pytest.raises(InputError, match=r"'p32_n\d+_part2' .* begins with the score 0\.\d+ that "
                                         r"'p32_n\d+_part1' .* add --set resumed=join, if it"):
        read_log(tmp_path, settings=load_settings(words))
    runs = read_log(tmp_path, settings=load_settings([*words, "resumed=join"]))
    assert [(run.name, run.rollouts_per_problem) for run in runs] == [
        ("p32_n16_part1", 16), ("p32_n8_part1", 8)
    ]
    steps = [s for s in STEPS if s <= 300]
    (series,) = runs[1].series
    assert series.step_K.tolist() == steps
    assert series.rollouts_K.tolist() == [32 * 8 * s for s in steps]
    assert series.score_K.tolist() == [score(8, s) for s in steps]
    assert len(read_log(tmp_path, settings=load_settings([*words, "resumed=apart"]))) == 4


def test_seeds_that_begin_alike_and_other_models_are_no_sequels(tmp_path: Path) -> None:
    words = load_settings(["problems_per_batch=32", "pattern=n{rollouts_per_problem}"])
    for name, above in (("a-n8-1", 0.0), ("a-n8-2", 0.004), ("b-n8", 0.3)):
        rows = [{"step": s, "eval_reward": score(8, s, len(name)) + above} for s in STEPS]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_log(tmp_path, settings=words)) == 3


def test_keys_of_a_configuration_beside_a_log_may_be_named(tmp_path: Path) -> None:
    """A loop's own words for B_p and n: asked for, with the keys that seem to hold them."""
    for n in (8, 16):
        folder = tmp_path / f"exp-{n}"
        folder.mkdir()
        said = {"data": {"prompt_batch_size": 32}, "sampling": {"num_samples": n}, "seed": 3}
        (folder / "config.json").write_text(json.dumps(said))
        rows = [{"step": s, "val/avg@2": score(n, s)} for s in STEPS]
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores, maps = "val/avg@2=avg@2", ["data.prompt_batch_size=problems_per_batch",
                                       "sampling.num_samples=rollouts_per_problem"]
    with pytest.raises(InputError, match=f"add --map {maps[0]} --map {maps[1]} if they hold these"):
        load_curves(tmp_path, settings=load_settings([], [scores]))
    curves = load_curves(tmp_path, settings=load_settings([], [scores, *maps]))
    assert [(c.configuration, c.seed) for c in curves] == [((32, 16), 3), ((32, 8), 3)]


def test_the_number_of_a_folder_is_no_batch(tmp_path: Path) -> None:
    (tmp_path / "b3").mkdir()
    path = tmp_path / "b3" / "table.csv"
    path.write_text("n,step,score\n8,10,0.5\n")
    with pytest.raises(InputError, match="--set problems_per_batch=B_P if all rows share it"):
        load_curves(path)


def test_a_count_of_rollouts_in_the_log_is_held_against_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "bp32_n8.jsonl"
    rows = [{"step": s * 7, "it": s, "gen/rollouts": s * 32 * 8, "val/avg@2": score(8, s)}
            for s in STEPS]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words, maps = ["pattern=bp{bp}_n{n}"], ["val/avg@2=avg@2"]
    with pytest.raises(InputError, match=r"'gen/rollouts' counts 76,800 at step 2100, where B_p \* "
                                         r"n \* step is 537,600; add --map gen/rollouts=rollouts"):
        load_curves(path, settings=load_settings(words, maps))
    for more in ("gen/rollouts=rollouts", "it=steps"):
        (curve,) = load_curves(path, settings=load_settings(words, [*maps, more]))
        assert curve.rollouts_K.tolist() == [32 * 8 * s for s in STEPS]
    text = path.read_text().replace('"step": ', '"at": ').replace('"it": ', '"step": ')
    path.write_text(text)  # the count agrees: nothing is asked
    (curve,) = load_curves(path, settings=load_settings(words, maps))
    assert curve.rollouts_K.tolist() == [32 * 8 * s for s in STEPS]


def test_short_words_and_slips_of_a_map(tmp_path: Path) -> None:
    said = load_settings(["n=8", "bp=4", "pattern=b{bp}_g{n}"], ["k=n", "prompts=bp", "it=steps"])
    assert (said.rollouts_per_problem, said.problems_per_batch) == (8, 4)
    assert said.pattern == "b{problems_per_batch}_g{rollouts_per_problem}"
    assert said.step == "it"
    assert [c.metric.label for c in said.columns.values()] == ["rollouts_per_problem",
                                                               "problems_per_batch"]
    with pytest.raises(InputError, match="is to be 'problem_per_batch'; did you mean problems_per"):
        load_settings([], ["bsz=problem_per_batch"])
