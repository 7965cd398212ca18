"""What the third set found: numbers that were read silently wrong, each at its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log, settings_from
from isocompute.importers.values.reading import number
from isocompute.importers.values.series import points_of
from isocompute.importers.words.configuration import configuration, settings_in_row
from isocompute.importers.words.paths import run_name
from isocompute.sources import load_curves
from layouts_blind import put, put_json, put_lines

TRL = {"num_generations": 4, "generation_batch_size": 32, "gradient_accumulation_steps": 8,
       "steps_per_generation": 8}  # fmt: skip
KEY = "val-core/math/acc/mean@4"


def verl(steps: range, shift: float = 0.0) -> list[dict]:
    return [{"step": s, "data": {KEY: 0.1 + shift + s / 100}} for s in steps]


def test_the_index_of_a_data_frame_is_no_step(tmp_path: Path) -> None:
    """pandas writes it first, under no name."""
    rows = [",run,step,metric,value"]
    rows += [f"{i},a,{s},avg@4,0.{2 + i}" for i, s in enumerate((0, 10, 20))]
    put(tmp_path / "long.csv", "\n".join(rows) + "\n")
    (run,) = read_log(tmp_path / "long.csv")
    assert run.series[0].step_K.tolist() == [0, 10, 20]


@pytest.mark.parametrize("context", ["val", '"{""subset"": ""val""}"'])
def test_aims_context_is_the_split(context: str, tmp_path: Path) -> None:
    name = "metric.context.subset" if context == "val" else "metric.context"
    train = context.replace("val", "train")
    rows = [f"step,value,run.hash,metric.name,{name},run.hparams.num_generations"]
    for s in (0, 10):
        rows += [f"{s},0.9,a1,reward,{train},4", f"{s},0.{2 + s},a1,reward,{context},4"]
    put(tmp_path / "aim.csv", "\n".join(rows) + "\n")
    (run,) = read_log(tmp_path / "aim.csv")
    assert run.rollouts_per_problem == 4
    scores = {s.split: s.score_K.tolist() for s in run.series}
    assert scores == {"train": [0.9, 0.9], "validation": [0.2, 0.12]}


def test_a_name_that_stands_twice_in_a_chart_is_asked_about(tmp_path: Path) -> None:
    axis = '"train/global_step"'
    put(tmp_path / "c.csv", f'{axis},"a - eval/reward","a - eval/reward"\n'
        "0,0.1,0.2\n10,0.2,0.3\n20,0.3,0.4\n30,,0.5\n")  # fmt: skip
    asked = r"'a \(2\)' \(to step 30\) and 'a' \(to step 20\) both begin at the start"
    with pytest.raises(InputError, match=asked) as caught:
        read_log(tmp_path / "c.csv")
    assert caught.value.options == ("--set", "resumed=JOIN_OR_APART")
    ends = {how: {run.name: int(run.series[0].step_K[-1]) for run in read_log(
        tmp_path / "c.csv", settings={"resumed": how})} for how in ("join", "apart")}
    assert ends == {"join": {"a (2)": 30}, "apart": {"a": 20, "a (2)": 30}}


@pytest.mark.parametrize("older", ["run.jsonl.1", "run.jsonl.12"])
def test_the_parts_of_a_rotated_log_are_one_run(older: str, tmp_path: Path) -> None:
    folder = tmp_path / "bp8_n4"
    put_lines(folder / older, verl(range(0, 40, 10)))
    put_lines(folder / "run.jsonl", verl(range(40, 70, 10)))
    given = {"problems_per_batch": 8, "rollouts_per_problem": 4}
    (curve,) = load_curves(tmp_path, settings=settings_from(given))
    assert curve.rollouts_K.tolist() == [32.0 * s for s in range(0, 70, 10)]


@pytest.mark.parametrize(
    ("name", "run"),
    [("a.jsonl.1", "a"), ("a.log.2.gz", "a"), ("v1.2", "v1"), ("qwen2.5.jsonl", "qwen2.5")],
)
def test_the_number_of_a_part_is_not_in_the_name(name: str, run: str) -> None:
    assert run_name(Path("x") / name) == run


def test_two_words_for_n_that_differ_are_asked_about(tmp_path: Path) -> None:
    found = configuration(TRL | {"samples_per_prompt": 16})
    assert (found.rollouts_per_problem, found.problems_per_batch) == (None, None)
    assert found.notes[0].startswith("num_generations is 4 and samples_per_prompt 16")
    assert configuration(TRL | {"samples_per_prompt": 4})[:2] == (8, 4)


@pytest.mark.parametrize("batch", ["prompts_per_batch", "prompts_per_step", "problems_per_step"])
@pytest.mark.parametrize("group", ["samples_per_prompt", "rollouts_per_prompt", "group_size"])
def test_plain_words_say_the_batch(batch: str, group: str) -> None:
    assert configuration({batch: 8, group: "16"})[:2] == (8, 16)


def test_a_step_that_counts_samples_is_refused(tmp_path: Path) -> None:
    given = {"problems_per_batch": 8, "rollouts_per_problem": 4}
    steps = range(0, 160, 32)
    rows = [{"step": s, "samples_seen": s, "eval/reward": 0.1 + s / 9999} for s in steps]
    put_lines(tmp_path / "r.jsonl", rows)
    with pytest.raises(InputError, match="samples_seen is the same number in every row"):
        load_curves(tmp_path / "r.jsonl", settings=settings_from(given))
    named = settings_from(given | {"step": "step"})  # the user's word
    assert load_curves(tmp_path / "r.jsonl", settings=named)[0].rollouts_K[-1] == 128 * 32
    rows[2]["samples_seen"] = 7
    put_lines(tmp_path / "r.jsonl", rows)
    assert len(load_curves(tmp_path / "r.jsonl", settings=settings_from(given))) == 1


@pytest.mark.parametrize("key", ["eval/error_rate", "val_err", "eval.failures", "test/wrong"])
def test_a_count_of_errors_is_no_score(key: str) -> None:
    with pytest.raises(InputError, match=r"must grow with success, but .* which reads 1 minus it"):
        settings_from({"columns": {key: "avg@4"}})


@pytest.mark.parametrize("key", ["eval/terror", "errata/acc"])
def test_other_words_are(key: str) -> None:
    assert key in settings_from({"columns": {key: "avg@4"}}).columns


@pytest.mark.parametrize(("folder", "split"), [("eval", "validation"), ("train", "train")])
def test_the_folder_of_a_metric_is_part_of_its_key(
    folder: str, split: str, tmp_path: Path
) -> None:
    put(tmp_path / "plots" / folder / "reward.tsv", "step\treward\n0\t0.2\n10\t0.3\n")
    (run,) = read_log(tmp_path)
    assert [s.split for s in run.series] == [split]


def test_tokens_below_one_of_a_rollout_are_refused(tmp_path: Path) -> None:
    head = "problems_per_batch,rollouts_per_problem,rollouts,tokens,score\n"
    put(tmp_path / "t.csv", head + "8,4,32,7.7,0.2\n8,4,64,15.4,0.3\n")
    with pytest.raises(InputError, match=r"at least 1 of each rollout \(0.241 at the median"):
        load_curves(tmp_path / "t.csv")
    put(tmp_path / "t.csv", head + "8,4,32,32,0.2\n8,4,64,64,0.3\n")
    assert load_curves(tmp_path / "t.csv")[0].tokens_K is not None


@pytest.mark.parametrize(("rate", "count"), [(1e-6, 1), (2e-6, 2)])
def test_runs_of_two_learning_rates_are_no_two_records(
    rate: float, count: int, tmp_path: Path
) -> None:
    for name, lr in (("a", 1e-6), ("b", rate)):
        put_lines(tmp_path / name / "metrics.jsonl", verl(range(0, 70, 10)))
        put_json(tmp_path / name / "config.json", {"learning_rate": lr, **TRL})
    assert len(read_log(tmp_path)) == count


def test_trls_several_sets_are_told_apart_by_the_loss_beside_the_reward(tmp_path: Path) -> None:
    """GRPOTrainer.log of TRL 1.16 calls the reward eval_reward in each of them."""
    history = [
        {"step": s, f"eval_{name}_loss": 0.1, "eval_reward": shift + s / 100}
        for s in (0, 10, 20) for name, shift in (("code", 0.1), ("math", 0.5))
    ]  # fmt: skip
    put_json(tmp_path / "trainer_state.json", {"log_history": history})
    put_json(tmp_path / "training_args.json", TRL)
    with pytest.raises(InputError, match=r"hold 'code', 'math'; choose one with --problem-set"):
        load_curves(tmp_path)
    (curve,) = load_curves(tmp_path, problem_set="math")
    assert curve.score_K.tolist() == [0.5, 0.6, 0.7]


def test_settings_that_stand_in_every_row_are_taken(tmp_path: Path) -> None:
    rows = [{"run": r, "step": s, "eval/reward": s / 99, **TRL, "num_generations": n, "seed": n}
            for r, n in (("a", 4), ("b", 8)) for s in (0, 10)]  # fmt: skip
    put_json(tmp_path / "rows.json", rows)
    runs = read_log(tmp_path / "rows.json")
    assert [(r.rollouts_per_problem, r.seed) for r in runs] == [(4, 4), (8, 8)]
    assert [r.problems_per_batch for r in runs] == [8, 4]
    assert settings_in_row({"step": 1, "batch_size": 4, "steps": 9}) == {}


BAR = " 9%|x | {}/8 [00:01<00:09, 1.0s/it]\n"
ECHO = "GRPOConfig(\nnum_generations=4,\ngeneration_batch_size=32,\nsteps_per_generation=8,\n"
ECHO += "gradient_accumulation_steps=8,\nseed=3,\n)\n"


@pytest.mark.parametrize("echo", [ECHO, f"args: {ECHO}".replace("\n", " ") + "\n"])
def test_settings_that_a_console_echoes_are_taken(echo: str, tmp_path: Path) -> None:
    rows = "".join(
        f"{BAR.format(s)}{{'eval_reward': 0.{s + 1}, 'epoch': {s / 8}}}\n{BAR.format(s)}"
        for s in (2, 4, 8)
    )
    put(tmp_path / "job.out", echo + rows)
    (run,) = read_log(tmp_path / "job.out")
    assert (run.problems_per_batch, run.rollouts_per_problem, run.seed) == (8, 4, 3)


def test_ms_swifts_console_says_the_step_in_its_rows(tmp_path: Path) -> None:
    rows = [{"eval_reward": s / 100, "epoch": s / 60, "global_step/max_steps": f"{s}/60"}
            for s in (10, 20, 30)]  # fmt: skip
    put(tmp_path / "swift.log", "".join(f"{row}\n" for row in rows))
    (run,) = read_log(tmp_path / "swift.log")
    assert run.series[0].step_K.tolist() == [10, 20, 30]
    assert run.steps == 60


def test_printed_tensors_are_numbers() -> None:
    assert number("tensor(0.2305, device='cuda:0', dtype=torch.bfloat16)") == 0.2305
    assert number("tensor([0.1, 0.2])") is None


BAD = ("nan", "[0.1]")


def test_why_no_row_was_used_is_said(tmp_path: Path) -> None:
    put_lines(tmp_path / "r.jsonl", [{"ts": "10:00", "eval/acc": 0.1}])
    with pytest.raises(InputError, match=r"\(line 1: a step must be a whole number"):
        load_curves(tmp_path / "r.jsonl", settings=settings_from({"step": "ts"}))
    put_lines(tmp_path / "r.jsonl", [{"step": i, "eval/reward": v} for i, v in enumerate(BAD)])
    given = {"problems_per_batch": 8, "rollouts_per_problem": 4}
    with pytest.raises(InputError, match=r"scores are missing \(line 2: eval/reward must be"):
        load_curves(tmp_path / "r.jsonl", settings=settings_from(given))


def test_a_refusal_of_the_steps_asks_for_the_rest_too(tmp_path: Path) -> None:
    rows = [{"step": 2 * s, "train/global_step": s, "eval/reward": s / 99} for s in (0, 10, 20)]
    put_lines(tmp_path / "bp8_n4_seed1.jsonl", rows)
    asked = r"--set step=step\. 2\) `problems_per_batch` and .*_n\{rollouts_per_problem\}_seed"
    with pytest.raises(InputError, match=asked):
        load_curves(tmp_path)


def test_what_stands_in_a_document_without_series() -> None:
    assert list(points_of({"config": {"a": [{"step": 1, "value": 2}]}, "n": 3})) == []
    assert [p.calls for p in points_of({"history": [{"_step": 0, "a": 1}]})] == [True]
    assert list(points_of({"x": [1, 2], "y": [1]})) == []


def test_a_contradiction_of_logs_is_not_hidden_by_a_table_beside(tmp_path: Path) -> None:
    put(tmp_path / "h.csv", "experiment,step,eval/reward\nr1,0,0.1\nr1,10,0.2\n")
    put(tmp_path / "e.csv", "experiment,params/num_generations\nr1,4\n")
    wrong = settings_from({"problems_per_batch": 8, "rollouts_per_problem": 16})
    with pytest.raises(InputError, match="e.csv beside the log says 4 and the setting .* 16"):
        load_curves(tmp_path, settings=wrong)


def test_lightning_counts_from_zero_and_evaluates_after_the_update(tmp_path: Path) -> None:
    rows = ["step,train/reward,val/acc", *(f"{s},0.5,0.{s}" for s in (9, 19, 29, 39))]
    put(tmp_path / "v0" / "metrics.csv", "\n".join(rows) + "\n")
    put(tmp_path / "v0" / "hparams.yaml", "prompts_per_batch: 8\nsamples_per_prompt: 4\n")
    named = settings_from({"columns": {"val/acc": "avg@4"}})
    (curve,) = load_curves(tmp_path / "v0", settings=named)
    assert curve.rollouts_K.tolist() == [320, 640, 960, 1280]
