"""What the thirty-third blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from isocompute.importers import read_log
from isocompute.importers.words.names import number_in
from layout_helpers import AT, drawn, events, lines, load, refused, score, write

N = (4, 8)
VERL = "val-core/held/acc/mean@2"


# A Slurm array: each task's log has a job's number in its name, and its script says the rest.


def printed(n: int, task: int) -> str:
    """TRL's console with transformers 5: the bar has the step, numbers are texts."""
    return "".join(
        f"\r{s}%|x| {s}/60 [00:10<00:10, 1.0s/it]\r{{'eval_loss': '0.1', "
        f"'eval_reward': '{score(s, n, task / 1e3)}', 'epoch': '{s * 32 / n / 480:.4g}'}}\n"
        for s in AT[1:]
    )  # fmt: skip


SCRIPT = """#!/bin/bash
#SBATCH --job-name=mine-n
#SBATCH {array}
#SBATCH {output}
NS=(4 8 4 8)
SEEDS=(1 1 2 2)  # of each task
N=${{NS[$SLURM_ARRAY_TASK_ID]}}
accelerate launch --num_processes 2 go.py --num_generations $N \\
  --seed ${{SEEDS[${{SLURM_ARRAY_TASK_ID}}]}} --per_device_train_batch_size 8 \\
  --gradient_accumulation_steps 2 --max_steps 60
"""


@pytest.mark.parametrize(("array", "output", "name"), [
    ("--array=0-3%2", "--output=slurm/%x-%A_%a.out", "mine-n-91822_{}.out"),
    ("-a 0,1,2-3", "-o slurm/go_%j.%a.log", "go_4711.{}.log"),
])  # fmt: skip
def test_a_script_of_an_array_says_what_each_task_had(
    tmp_path: Path, array: str, output: str, name: str
) -> None:
    write(tmp_path / "go.sbatch", SCRIPT.format(array=array, output=output))
    for task, n in enumerate((4, 8, 4, 8)):
        write(tmp_path / "slurm" / name.format(task), printed(n, task))
    assert drawn(load(tmp_path)) == {
        (32 // n, n, seed): [32 * s for s in AT[1:]] for n in N for seed in (1, 2)
    }


def test_the_number_of_a_job_is_no_n(tmp_path: Path) -> None:
    for task, n in enumerate(N):
        write(tmp_path / f"mine-n-91822_{task}.out", printed(n, task))
    assert "as the names seem to say" not in refused(tmp_path)
    found = {name: number_in(name, "rollouts_per_problem")
             for name in ("n-91822_3", "n8_0", "n1024_1", "n-1234567")}  # fmt: skip
    assert found == {"n-91822_3": None, "n8_0": 8, "n1024_1": 1024, "n-1234567": None}


def test_a_command_that_names_the_file_of_a_run_says_its_processes(tmp_path: Path) -> None:
    rows = "accelerate launch --num_processes 2 go.py --config recipes/mine_g$g.yaml --lr 1e-5"
    write(tmp_path / "go.sh", f"for g in 4 8; do\n  {rows}\ndone\n")
    for n in N:
        write(tmp_path / "recipes" / f"mine_g{n}.yaml", f"num_generations: {n}\nlr: 1e-6\nseed: 3\n"
              "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\n"
              f"output_dir: outputs/mine_g{n}\n")  # fmt: skip
        held = [{"step": s, "eval_reward": score(s, n)} for s in AT]
        write(tmp_path / "outputs" / f"mine_g{n}" / "checkpoint-50" / "trainer_state.json",
              json.dumps({"global_step": 50, "max_steps": 50, "log_history": held}))  # fmt: skip
    assert drawn(load(tmp_path)) == {(32 // n, n, 3): [32 * s for s in AT] for n in N}
    assert read_log(tmp_path)[0].provenance.facts["learning_rate"] == "1e-05"


# Forms of files that were not opened.


def test_feather_of_several_runs_is_read_and_one_under_a_new_id_joined(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.feather

    def rows(run: str, n: int, seed: int, at: range) -> list[dict[str, object]]:
        return [{
            "_step": s, "training/global_step": s, VERL: score(s, n, seed / 1e3), "run_id": run,
            "run_name": f"mine-{n}-{seed}", "config.actor_rollout_ref.rollout.n": n,
            "config.data.train_batch_size": 6, "config.data.seed": seed,
        } for s in at]  # fmt: skip

    table = [*rows("zz", 8, 1, range(30, 60, 10)), *rows("aa", 8, 1, range(0, 40, 10)),
             *rows("bb", 4, 1, AT), *rows("cc", 4, 2, AT)]  # fmt: skip
    pyarrow.feather.write_feather(pa.Table.from_pylist(table), tmp_path / "mine.feather")
    assert drawn(load(tmp_path)) == {
        (6, n, seed): [6 * n * s for s in AT] for n, seed in ((4, 1), (4, 2), (8, 1))
    }
    (tmp_path / "mine.feather").write_bytes((tmp_path / "mine.feather").read_bytes()[:900])
    assert "mine.feather" in refused(tmp_path)


def test_a_feather_table_of_curves(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.feather

    rows = [{"problems_per_batch": 6, "rollouts_per_problem": n, "rollouts": 6 * n * s,
             "score": score(s, n)} for n in N for s in AT]  # fmt: skip
    pyarrow.feather.write_feather(pa.Table.from_pylist(rows), tmp_path / "mine.feather")
    assert drawn(load(tmp_path / "mine.feather")) == drawn(load(tmp_path)) == {
        (6, n, None): [6 * n * s for s in AT] for n in N
    }


def swanlab(path: Path, name: str, calls: list[tuple[int, Mapping[str, float]]]) -> None:
    """SwanLab 0.10's file of a run: LevelDB's blocks, a record for each number."""
    def field(number: int, data: bytes) -> bytes:
        return bytes([*varint(number << 3 | 2), *varint(len(data))]) + data

    def varint(value: int) -> list[int]:
        return [value] if value < 128 else [value & 127 | 128, *varint(value >> 7)]

    records = [field(10, field(1, b"project") + field(4, name.encode()))]
    for step, values in calls:
        for key, value in values.items():
            at = bytes([0x10, *varint(step)])
            records.append(b"\x08\x01" + field(13, field(1, key.encode()) + at + field(
                5, b"\x09" + struct.pack("<d", value))))  # fmt: skip
    out = b":SWL\xd6\xe1\x02"
    for data in records:
        out += struct.pack("<IHB", zlib.crc32(b"\x01" + data), len(data), 1) + data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)


def test_a_file_of_swanlab_with_its_configuration(tmp_path: Path) -> None:
    for at, n in enumerate(N):
        home = tmp_path / "swanlog" / f"run-2026010{at}_101112-ab{at}"
        swanlab(home / f"run-ab{at}.swanlab", f"mine-{'xy'[at]}", [
            (s, {"training/global_step": s, VERL: score(s, n)}) for s in AT])  # fmt: skip
        said = {"data": {"train_batch_size": 6, "seed": 7},
                "actor_rollout_ref": {"rollout": {"n": n}}}  # fmt: skip
        write(home / "files" / "config.yaml", json.dumps({
            key: {"desc": "", "sort": i, "value": value} for i, (key, value) in enumerate(
                said.items())}))  # fmt: skip
        write(home / "files" / "swanlab-metadata.json", '{"hardware": {}}')
    assert drawn(load(tmp_path)) == {(6, n, 7): [6 * n * s for s in AT] for n in N}
    assert {run.name for run in read_log(tmp_path)} == {"mine-x", "mine-y"}
    file = next(tmp_path.rglob("run-ab0.swanlab"))
    file.write_bytes(file.read_bytes()[:-9])  # its last record is cut
    assert len(read_log(file)[0].series[0].step_K) == len(AT) - 1
    file.write_bytes(file.read_bytes()[:7])
    assert "must hold records" in refused(file)


# Scores and settings under words of their own.


def test_trinity_rft_s_two_writers_settings_and_scores(tmp_path: Path) -> None:
    for n, name in ((4, "mine-r4"), (8, "mine-r8 (copy)")):
        home = tmp_path / "tb" / name / "monitor" / "tensorboard"
        events(home / "explorer" / "events.out.tfevents.1.x", [
            (s, f"eval/held/accuracy/{k}", score(s, n) + more)
            for s in AT for k, more in (("mean@4", 0), ("best@4", 0.2), ("worst@4", -0.1))
        ])  # fmt: skip
        events(home / "trainer" / "events.out.tfevents.1.x",
               [(s, "critic/score/mean", 0.1) for s in range(1, 51)])  # fmt: skip
        write(tmp_path / "configs" / f"r{n}.yaml", f"name: mine-r{n}\nalgorithm:\n"
              f"  repeat_times: {n}\nbuffer:\n  batch_size: 6\n  explorer_input:\n"
              "    eval_tasksets:\n    - name: held\n      repeat_times: 4\n")  # fmt: skip
    found = load(tmp_path)
    assert drawn(found) == {(6, n, None): [6 * n * s for s in AT] for n in N}
    assert {(c.metric, c.problem_set) for c in found} == {("avg@4", "held")}


def test_a_remark_behind_a_name_that_says_n_is_part_of_it(tmp_path: Path) -> None:
    write(tmp_path / "configs" / "mine-1.yaml", "num_generations: 4\nproblems_per_batch: 6\n")
    for n in N:
        log = tmp_path / f"mine-1 (n{n}).jsonl"
        lines(log, ({"step": s, VERL: score(s, n)} for s in AT))
    assert all(run.rollouts_per_problem is None for run in read_log(tmp_path))


def test_results_of_a_harness_by_problem_set_in_percent(tmp_path: Path) -> None:
    said = "python -m verl.trainer.main_ppo data.train_batch_size=6 actor_rollout_ref.rollout.n=$N"
    write(tmp_path / "go.sh", "for N in 4 8; do\n"
          f"{said} trainer.experiment_name=mine-n$N\ndone\n")  # fmt: skip
    for n in N:
        for step in (20, 40):
            for of in ("held", "other"):
                write(tmp_path / f"ckpt/mine-n{n}/global_step_{step}/actor/huggingface" / of
                      / "test_cot_-1_seed5_t0.0_metrics.json", json.dumps({
                          "num_samples": 50, "num_scores": 50, "timeout_samples": 0,
                          "empty_samples": 0, "acc": 100 * score(step, n)}))  # fmt: skip
    assert "--problem-set" in refused(tmp_path)
    found = load(tmp_path, problem_set="held")
    assert drawn(found) == {(6, n, None): [6 * n * s for s in (20, 40)] for n in N}
    assert found[0].score_K.tolist() == pytest.approx([score(20, 4), score(40, 4)])
    for file in tmp_path.rglob("*_metrics.json"):  # of one's own: keys to be mapped
        write(file, json.dumps({"success": json.loads(file.read_text())["acc"] / 100}))
    assert "--map held/success=avg or --map other/success=avg" in refused(tmp_path)


def test_counts_of_successes_and_of_all_are_a_share_to_map(tmp_path: Path) -> None:
    for n in N:
        rows: list[dict[str, object]] = [{"event": "start", "args": {"k": n, "prompts": 6}}]
        for s in AT:
            rows += [{"event": "train", "it": s, "correct": 3, "total": 6 * n, "loss": 0.1,
                      "kl": 0.1}] * (s > 0)
            rows.append({"event": "eval", "split": "dev", "it": s, "correct": 10 + s, "total": 80})
        lines(tmp_path / f"k{n}.jsonl", rows)
    text = refused(tmp_path)
    assert "name the score (--map dev/correct/total=avg)" in text
    found = load(tmp_path, ["dev/correct/total=avg", "prompts=problems_per_batch"],
                 ["step=it", "pattern=k{rollouts_per_problem}"])  # fmt: skip
    assert drawn(found) == {(6, n, None): [6 * n * s for s in AT] for n in N}
    assert found[0].score_K.tolist() == [(10 + s) / 80 for s in AT]


def test_settings_that_refer_to_others_are_resolved(tmp_path: Path) -> None:
    for i, n in enumerate(N):
        home = tmp_path / "multirun" / "2026-02-03" / str(i)
        write(home / ".hydra" / "config.yaml", f"sampler:\n  k: {n}\nbatch:\n  all: 48\n"
              "  prompts: ${int_div:${batch.all},${sampler.k}}\n  odd: ${other:1}\n")  # fmt: skip
        write(home / "metrics.csv", "step,eval/pass@1,eval/pass@8\n" + "".join(
            f"{s},{score(s, n)},0.9\n" for s in AT))  # fmt: skip
    text = refused(tmp_path)
    assert "name the score (--map eval/pass@1=avg)" in text
    assert "--map batch.prompts=problems_per_batch --map sampler.k=rollouts_per_problem" in text
    maps = ["eval/pass@1=avg", "batch.prompts=problems_per_batch", "sampler.k=rollouts_per_problem"]
    assert drawn(load(tmp_path, maps)) == {(48 // n, n, None): [48 * s for s in AT] for n in N}
    for file in tmp_path.rglob("config.yaml"):  # what cannot be resolved is not offered
        file.write_text(file.read_text().replace("int_div", "of_my_own"))
    assert "batch.prompts" not in refused(tmp_path, maps[:1])


def test_a_group_of_a_chart_is_named_by_its_settings(tmp_path: Path) -> None:
    key = "eval/reward"
    head = ["train/global_step", *(f"num_generations: {n} - {key}{end}" for n in N
                                   for end in ("", "__MIN", "__MAX"))]  # fmt: skip
    rows = [[s, *(score(s, n) + d for n in N for d in (0, -0.1, 0.1))] for s in AT]
    write(tmp_path / "chart.csv", "\n".join(",".join(map(str, row)) for row in [head, *rows]))
    assert "`problems_per_batch` must be known" in refused(tmp_path)
    found = load(tmp_path, sets=["problems_per_batch=4:8,8:4"])
    assert drawn(found) == {(32 // n, n, None): [32 * s for s in AT] for n in N}


@pytest.mark.parametrize(("loads", "own"), [("/ck/mine/global_step_40", True),
                                            ("/ck/other/global_step_40", False)])
def test_a_run_that_loads_its_own_checkpoint_did_the_updates_before(
    tmp_path: Path, loads: str, own: bool
) -> None:
    for n, first in ((4, 0), (8, 40)):
        home = tmp_path / f"mine{n}"
        said = {"data": {"rollout_batch_size": 6}, "worker": {"rollout": {"n": n}}, "trainer": {
            "save_checkpoint_path": "/ck/mine", "load_checkpoint_path": loads if first else None,
        }}  # fmt: skip
        write(home / "experiment_config.json", json.dumps(said))
        lines(home / "experiment_log.jsonl", (
            {"step": s, "val": {"accuracy_reward": score(s, n)}} for s in range(first, 90, 10)))
    if not own:
        assert "add --set begins=0 if it did those before" in refused(tmp_path)
        return
    assert drawn(load(tmp_path)) == {
        (6, n, None): [6 * n * s for s in range(first, 90, 10)] for n, first in ((4, 0), (8, 40))
    }
