"""Layouts of the eighteenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log, read_logs
from isocompute.importers.archive import import_logs
from isocompute.importers.words.settings import load_settings
from layout_helpers import AT, MAP, drawn, events, lines, load, log, of, refused, score, write

# A script that names a run is its configuration.

_OPTIONS = "train --rollout_batch_size {b} --n_samples_per_prompt={n} --seed 7 --save_path /x/{run}"
_DOTTED = 'run data.train_batch_size={b} actor_rollout_ref.rollout.n={n} data.seed=7 out="/x/{run}"'
_VARIABLES = """G={n}
export B={b}
# was: --seed 99
go --rollout-batch-size $B \\
  --n-samples-per-prompt ${{G}} --seed 7 --to /x/{run}/
"""
_PYTHON = "GRPOConfig(prompts_per_step={b}, group_size={n}, seed=7, output_dir='x/{run}')"


@pytest.mark.parametrize("place", ["{run}.sh", "run-{run}.sh", "../scripts/a{n}.sh", "b{n}.slurm"])
@pytest.mark.parametrize("text", [_OPTIONS, _DOTTED, _VARIABLES])
def test_the_script_that_names_a_run_is_its_configuration(
    tmp_path: Path, place: str, text: str
) -> None:
    for n, b in ((4, 64), (16, 16)):
        run = f"llama-n{n}"
        log(tmp_path / "logs", run, n)
        write(tmp_path / "logs" / place.format(run=run, n=n), text.format(b=b, n=n, run=run))
    assert drawn(load(tmp_path / "logs", MAP)) == {**of(64, 4, 7), **of(16, 16, 7)}
    assert "beside the log" in " ".join(read_log(tmp_path / "logs")[0].provenance.inferred)


def test_a_python_script_is_read_too(tmp_path: Path) -> None:
    write(log(tmp_path, "gemma_8", 8) / "go.py", _PYTHON.format(b=40, n=8, run="gemma_8"))
    assert drawn(load(tmp_path, MAP)) == of(40, 8, 7)


@pytest.mark.parametrize(("run", "scripts"), [
    ("llama-n4", (_OPTIONS.format(b=40, n=8, run="llama-n4"),)),  # changed for the next run
    ("llama-x4", (_OPTIONS.format(b=40, n=8, run="llama-x4"),) * 2),  # which of them?
    ("grpo", (_OPTIONS.format(b=40, n=8, run="a") + " --algo grpo",)),  # any word
    ("llama-x4", (_OPTIONS.format(b=40, n=8, run="llama-x4") + " --n_samples_per_prompt 16",)),
    ("llama-x4", (_OPTIONS.format(b="$1", n="${2:-8}", run="llama-x4"),)),  # its caller's
])
def test_a_script_that_may_be_another_s_is_not_read(
    tmp_path: Path, run: str, scripts: Sequence[str]
) -> None:
    log(tmp_path, run, 8)
    for i, text in enumerate(scripts):
        write(tmp_path / f"job{i}.sh", text)
    assert "`rollouts_per_problem` must be known" in refused(tmp_path, MAP) or (
        "`problems_per_batch` and" in refused(tmp_path, MAP)
    )


@pytest.mark.parametrize("file", ["run-llama-n4.sh", "launch_llama-n4.sbatch"])
def test_a_script_may_bear_the_name_alone(tmp_path: Path, file: str) -> None:
    write(log(tmp_path, "llama-n4", 4) / file, _OPTIONS.format(b=40, n=4, run="out"))
    assert drawn(load(tmp_path, MAP)) == of(40, 4, 7)


def test_a_configuration_of_the_run_goes_before_a_script(tmp_path: Path) -> None:
    write(log(tmp_path, "llama-n4", 4) / "llama-n4.sh", _OPTIONS.format(b=40, n=4, run="x"))
    write(tmp_path / "configs" / "llama-n4.json", '{"prompts_per_step": 64, "group_size": 4}')
    lines(tmp_path / "other.jsonl", [{"note": 1}])
    assert drawn(load(tmp_path, MAP)) == of(64, 4, None)


def test_a_file_beside_the_log_goes_before_a_script(tmp_path: Path) -> None:
    write(log(tmp_path, "llama-n4", 4) / "llama-n4.sh", _OPTIONS.format(b=40, n=4, run="x"))
    write(tmp_path / "llama-n4.json", '{"prompts_per_step": 64, "group_size": 4, "seed": 1}')
    assert drawn(load(tmp_path, MAP)) == of(64, 4, 1)


# A count in rows is a batch of responses, and one B_p is not offered for all.


@pytest.mark.parametrize("key", ["train/num_samples", "rollout/num_responses"])
def test_a_batch_that_rows_count_is_offered_in_place_of_one_b_p(tmp_path: Path, key: str) -> None:
    for n in (4, 16):
        rows = [(s, "val/accuracy", score(s, n)) for s in AT] + [(s, key, 256.0) for s in AT]
        events(tmp_path / f"llama-n{n}" / "events.out.tfevents.1", rows)
    told = refused(tmp_path, MAP)
    assert "--set pattern='n{rollouts_per_problem}'" in told
    assert f"--map {key}=batch_size if it counts responses" in told
    assert "write runs.csv beside the logs, with the columns run,problems_per_batch" in told
    sets = ("pattern=n{rollouts_per_problem}",)
    assert drawn(load(tmp_path, (*MAP, f"{key}=batch_size"), sets)) == {
        **of(64, 4, None), **of(16, 16, None)
    }
    write(tmp_path / "runs.csv", "run,problems_per_batch\nllama-n4,32\nllama-n16,8\n")
    assert drawn(load(tmp_path, MAP, sets)) == {**of(32, 4, None), **of(8, 16, None)}


def test_a_count_of_rollouts_is_no_reason_to_ask_for_processes(tmp_path: Path) -> None:
    rows = [{"step": s, "rollout_count": 320, "val/accuracy": score(s, 8)} for s in range(12)]
    lines(tmp_path / "log.jsonl", rows)
    told = refused(tmp_path, MAP, ("rollouts_per_problem=8",))
    assert "processes" not in told
    assert "--set problems_per_batch=40, if that holds (B_p is 40 by the 320 rollouts" in told


def test_counts_that_differ_give_no_number_for_all(tmp_path: Path) -> None:
    for i in (1, 2):
        rows = [{"step": s, "rollout_count": 320 * i, "val/accuracy": score(s, i)}
                for s in range(12)]  # fmt: skip
        lines(tmp_path / f"log{i}x.jsonl", rows)
    told = refused(tmp_path, MAP, ("rollouts_per_problem=8",))
    assert "processes" not in told
    assert "write runs.csv beside the logs" in told


# A chart over rollouts.


@pytest.mark.parametrize("axis", ["episode", "train/rollouts", "trajectories_so_far"])
def test_a_chart_over_rollouts_is_divided(tmp_path: Path, axis: str) -> None:
    steps = [s for s in AT if s]
    head = f'"{axis}","llama-n8 - val/accuracy","llama-n4 - val/accuracy"\n'
    cells = [(320 * s, score(s, 8), "") for s in steps]
    cells += [(160 * s, "", score(s, 4)) for s in steps]
    file = write(tmp_path / "chart.csv", head + "".join(f"{a},{b},{c}\n" for a, b, c in cells))
    sets = ("pattern=n{rollouts_per_problem}", "problems_per_batch=40")
    assert drawn(load(file, MAP, sets)) == {
        (40, n, None): [40 * n * s for s in steps] for n in (4, 8)
    }
    (first, _) = read_log(file, settings=load_settings([*sets], [*MAP]))
    assert first.series[0].step_K.tolist() == steps
    told = refused(file, MAP, (sets[0], "problems_per_batch=48"))
    assert f"{axis} on the x axis must be a multiple of B_p * n = 384, but is 3200" in told
    assert "put train/global_step on the axis" in told


@pytest.mark.parametrize("axis", ["train/samples", "rollout_time", "tokens_seen", "episode_index"])
def test_a_chart_over_what_is_no_count_of_rollouts_stays_refused(
    tmp_path: Path, axis: str
) -> None:
    file = write(tmp_path / "chart.csv", f'"{axis}","n8 - val/accuracy"\n320,0.2\n640,0.3\n')
    assert "must have the step on its x axis" in refused(file, MAP)


# Consoles.


def nemo(n: int, epochs: int = 3, each: int = 20) -> str:
    text = f"📊 Validation Results:\n    • Accuracy: {score(0, n):.4f}\n"
    for step in range(1, epochs * each + 1):
        if step % each == 1:
            text += f"\n{'=' * 25} Epoch {step // each + 1}/{epochs} {'=' * 25}\n"
        text += f"\n{'=' * 25} Step {(step - 1) % each + 1}/{each} {'=' * 25}\n"
        if step % 10 == 0:
            text += f"📊 Validation Results:\n    • Accuracy: {score(step, n):.4f}\n"
            text += "    • Average response length: 80.5 tokens\n    • Samples processed: 9\n"
        text += "📊 Training Results:\n  • Loss: 0.1\n  • Avg Reward: 0.3000\n"
    return text


def test_steps_of_an_epoch_are_counted_on(tmp_path: Path) -> None:
    config = "grpo:\n  num_prompts_per_step: 40\n  num_generations_per_prompt: 8\n  seed: 3\n"
    write(tmp_path / "n8" / "config.yaml", config)
    write(tmp_path / "n8" / "driver.log", nemo(8))
    (curve,) = load(tmp_path)
    assert drawn([curve]) == {(40, 8, 3): [320 * s for s in range(0, 61, 10)]}
    assert curve.score_K.tolist() == [round(score(s, 8), 4) for s in range(0, 61, 10)]


def prime(first: int, begin: int = 0, start: str = "") -> str:
    text = start
    for step in range(begin + first, 31 + first):
        if (step - first) % 10 == 0:
            at = score(step - first, 8)
            text += f"09:00:00 SUCCESS Evaluated m500 in 9.1s (Avg@4={at}, Pass@2: 1)\n"
        if step < 30 + first:
            text += f"09:00:01 SUCCESS Step {step} | Time: 4.1s | Reward: 0.3 | Throughput: 2\n"
    return text


@pytest.mark.parametrize("first", [0, 1])
def test_evaluations_stand_behind_the_updates_that_are_done(tmp_path: Path, first: int) -> None:
    config = "batch_size = 320\nrollouts_per_example = 8\nseed = 3\n"
    config += "[eval]\nrollouts_per_example = 4\n"
    write(tmp_path / "n8" / "configs" / "orch.toml", config)
    write(tmp_path / "n8" / "logs" / "orchestrator.log", prime(first))
    (curve,) = load(tmp_path)
    assert drawn([curve]) == {(40, 8, 3): [0, 3200, 6400, 9600]}
    assert (curve.run, curve.score_K.tolist()) == ("n8", [score(s, 8) for s in (0, 10, 20, 30)])
    (run,) = read_log(tmp_path)
    assert run.steps in (30, None)
    assert max(s.step_K.max() for s in run.series) == 30


def test_a_prime_rl_console_that_goes_on_does_not_begin_at_0(tmp_path: Path) -> None:
    write(tmp_path / "a.log", prime(0, begin=10))
    (run,) = read_log(tmp_path, settings=load_settings(
        ["problems_per_batch=40", "rollouts_per_problem=8", "begins=0"], []
    ))  # fmt: skip
    by_split = {s.split: s.step_K.tolist() for s in run.series}
    assert by_split["validation"] == [10, 20, 30]


def epochs(
    n: int = 8, *, last: int = 50, every: int = 2, rate: bool = False, end: str = "",
    digits: int = 1,
) -> str:
    """A console without a bar: 50 updates in an epoch of two digits, evaluated every tenth."""
    text = ("   \\\\   /|    Num examples = 200 | Num Epochs = 1 | Total steps = 50\n"
            f"\\        /    Data Parallel GPUs = 1 | Total batch size ({n} x 4 x 1) = {4 * n}\n"
            f"We will change the batch size of 1 to the `num_generations` of {n}\n"
            f"{{'eval_loss': 0.1, 'eval_reward': {score(0, n)}, 'epoch': 0}}\n")  # fmt: skip
    for s in range(every, last + 1, every):
        rates, at = (1e-6 if rate else 1 - s / 50), round(s / 50, digits)
        row = f"'learning_rate': {rates}, 'reward': 0.3"
        text += f"{{'loss': 0.1, {row}, 'epoch': {at}}}\n"
        if s % 10 == 0:
            text += f"{{'eval_reward': {score(s, n)}, 'epoch': {at}}}\n"
    return text + end


_END = "{'train_runtime': 9.1, 'train_loss': 0.1, 'epoch': %s}\n"


def test_rows_without_a_bar_are_placed_by_epochs_of_a_whole_plan(tmp_path: Path) -> None:
    write(tmp_path / "g_n8.out", epochs(end=_END % 1.0))
    write(tmp_path / "go_g_n8.py", "GRPOConfig(num_generations=8, seed=5, output_dir='o/g_n8')")
    (curve,) = load(tmp_path)
    assert drawn([curve]) == {(4, 8, 5): [320 * k for k in range(6)]}
    assert curve.score_K.tolist() == [score(s, 8) for s in range(0, 51, 10)]
    (run,) = read_log(tmp_path)
    assert run.steps == 50
    assert "step: by the printed epochs" in run.provenance.inferred


@pytest.mark.parametrize(("text", "reads"), [
    (epochs(last=25, every=1, digits=2, end=_END % 0.5), False),  # stopped: not 50
    (epochs(rate=True, end=_END % 1.0), True),  # a constant rate, and all epochs
    (epochs(rate=True, end=_END % 0.9), False),
    (epochs(end=""), False),  # killed, as far as its end tells
    (epochs(end=_END % 0.99), True),  # its learning rate came to its end
    (epochs(every=1), True),  # a row for every update
])
def test_a_plan_that_was_not_trained_to_its_end_places_nothing(
    tmp_path: Path, text: str, reads: bool
) -> None:
    write(tmp_path / "a.out", text)
    if reads:
        assert load(tmp_path)[0].rollouts_K.tolist() == [320 * k for k in range(6)]
    else:
        assert "no bar" in refused(tmp_path) or "give the trainer_state.json" in refused(tmp_path)


def test_evaluations_that_may_stand_at_several_distances_are_not_placed(tmp_path: Path) -> None:
    text = epochs(every=25, end=_END % 1.0)
    shown = [line for line in text.splitlines() if "eval_" not in line]
    shown[3:3] = ["{'eval_reward': 0.2, 'epoch': 0.2}", "{'eval_reward': 0.3, 'epoch': 0.4}"]
    write(tmp_path / "a.out", "\n".join(shown) + "\n")
    assert "their epochs do not tell their steps" in refused(tmp_path)


def test_bars_choose_among_distances_that_rounded_epochs_leave(tmp_path: Path) -> None:
    def bar(step: int) -> str:
        return f" {step}%|##  | {step}/100 [00:01<00:01, 1.0s/it]\n"

    rows = [f"{{'loss': 0.{i}, 'reward': 0.{i}, 'epoch': {round(i / 4 + 0.01, 1)}}}\n"
            for i in (1, 2, 3, 4)]  # fmt: skip
    text = bar(0) + rows[0] + rows[1] + bar(50) + rows[2] + rows[3] + bar(100) + _END % 1.0
    write(tmp_path / "a.log", text)
    (run,) = read_log(tmp_path)
    assert run.series[0].step_K.tolist() == [25, 50, 75, 100]


def test_a_seed_is_not_taken_from_a_script_of_another_n(tmp_path: Path) -> None:
    write(tmp_path / "gemma-x.out", epochs(end=_END % 1.0))
    write(tmp_path / "gemma-x.py", "GRPOConfig(num_generations=16, seed=5)")
    assert drawn(load(tmp_path)) == {(4, 8, None): [320 * k for k in range(6)]}


# Tables: a title above, and all that fit will ask for.


@pytest.mark.parametrize("title", [
    "A sweep;;\nQuestions per batch: 40;;\nSeed 3, 50 updates;;\n;;\n",
    "My runs;;\n",
])
def test_a_title_above_a_sheet_is_passed(tmp_path: Path, title: str) -> None:
    cells = "".join(f"{s};{score(s, 4)};{score(s, 16)}\n" for s in AT).replace(".", ",")
    file = write(tmp_path / "sheet.csv", f"{title}Update;n=4;n=16\n{cells}")
    with pytest.raises(InputError) as caught:
        read_logs([file])
    told = str(caught.value)
    assert "is a table of columns Update, n=4, n=16; give it to fit with what it will ask" in told
    assert "--set pattern='n={rollouts_per_problem}'" in told
    knows = "Questions" in title
    b_p = "" if knows else " --set problems_per_batch=B_P"
    pattern = "'pattern=n={rollouts_per_problem}'"
    assert told.endswith(f"isocompute fit {file} --set {pattern}{b_p}")
    assert ("--set problems_per_batch=B_P" in told) is not knows
    sets = ["pattern=n={rollouts_per_problem}", *([] if knows else ["problems_per_batch=40"])]
    seed = 3 if knows else None
    assert drawn(load(file, (), sets)) == {**of(40, 4, seed), **of(40, 16, seed)}


# Rewards of two problem sets that are one, and all questions at once.


@pytest.mark.parametrize("other", ["math", "math2"])
def test_all_problem_sets_of_one_are_that_one(tmp_path: Path, other: str) -> None:
    rows = [{"step": s, "trainer/global_step": s, "eval/all/avg_score": score(s, 8) - 0.5,
             "eval/math/avg_score": score(s, 8) - 0.5, f"eval/{other}/avg_score": score(s, 8) - 0.5,
             **({} if other == "math" else {"eval/all/avg_score": score(s, 8) - 0.51})}
            for s in AT]  # fmt: skip
    lines(tmp_path / "log.jsonl", rows)
    sets = ("problems_per_batch=40", "rollouts_per_problem=8")
    told = refused(tmp_path, (), sets)
    assert "--range LOW HIGH" in told
    asked = "hold 'all', 'math', 'math2'; choose one with --problem-set"
    assert (asked in told) is (other == "math2")
    if other == "math":
        (curve,) = load(tmp_path, (), sets, score_range=(-1.0, 1.0))
        assert curve.problem_set == "math"
        assert curve.score_K.round(9).tolist() == [round((score(s, 8) + 0.5) / 2, 9) for s in AT]


def test_n_and_the_held_out_score_are_asked_for_in_one_line(tmp_path: Path) -> None:
    rows = [{"step": s, "train/reward": 0.3, "loss": 0.1, "eval/accuracy": score(s, 8),
             "prompts_per_step": 40} for s in AT]  # fmt: skip
    lines(tmp_path / "log.jsonl", rows)
    with pytest.raises(InputError) as caught:
        import_logs([tmp_path], tmp_path / "study")
    assert caught.value.options[-2:] == ("--map", "eval/accuracy=avg")
    assert "`rollouts_per_problem` must be known" in str(caught.value)
    assert "has scores of training alone" in str(caught.value)
