"""What the twenty-fifth blind set found in consoles and workbooks: with other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.cli import main
from layout_helpers import drawn, load, refused, score, write
from test_set_23 import updates

# OpenRLHF's console.

RAY = "\x1b[36m(PPOTrainer pid=41)\x1b[0m INFO 03-04 10:00:00 ppo_trainer.py:547] "


def command(n: int) -> str:
    return ("+ python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path org/Small "
            f"--rollout.batch_size 32 --rollout.n_samples_per_prompt {n} --train.batch_size 64 "
            "--train.seed 9 --algo.advantage.estimator group_norm --eval.n_samples_per_prompt 2 "
            "--train.colocate_all --ckpt.output_dir out")  # fmt: skip


def arguments(n: int) -> str:
    """What `print(args)` writes of arguments in sections."""
    return (f"Namespace(actor=Namespace(model_name_or_path='org/Small'), rollout=Namespace("
            f"batch_size=32, n_samples_per_prompt={n}), train=Namespace(batch_size=64, seed=9), "
            "eval=Namespace(n_samples_per_prompt=2, steps=inf))")  # fmt: skip


def openrlhf(n: int, said: str, mark: str = "✨ ") -> str:
    lines = [said]
    for s in range(1, 31):
        lines.append(f"{RAY}{mark}Global step {s}: "
                     f"{ {'policy_loss': float('nan'), 'reward': 0.3, 'actor_lr': 1e-6} }")
        if s % 10 == 0:
            shown = {"eval_kept_pass2": 0.9, "eval_kept_pass1": score(s, n)}
            lines.append(f"{RAY}✨ Evaluation completed in 0:01:09, global_step {s}, "
                         f"eval_metrics: {shown}")  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("echo", [command, arguments])
def test_openrlhf_s_console_is_read_with_what_it_echoes(tmp_path: Path, echo: object) -> None:
    assert callable(echo)
    for n in (4, 8):
        write(tmp_path / f"a{n}.log", openrlhf(n, echo(n), "" if n == 8 else "✨ "))
    write(tmp_path / "go.sh", "python3 -m t --rollout.batch_size 16 --train.seed 1 --out a$1\n")
    found = load(tmp_path)
    assert drawn(found) == {(32, n, 9): [32 * n * s for s in (10, 20, 30)] for n in (4, 8)}
    assert {c.run: c.score_K[-1] for c in found} == {f"a{n}": score(30, n) for n in (4, 8)}
    assert {(c.metric, c.problem_set) for c in found} == {("avg@2", "kept")}
    assert updates(tmp_path) == {"a4": 30, "a8": 30}


def test_arguments_of_an_engine_say_nothing_of_the_run(tmp_path: Path) -> None:
    for n in (4, 8):
        engine = "INFO api_server.py: args: Namespace(model='x', seed=0, max_tokens=5)"
        write(tmp_path / f"a{n}.log", openrlhf(n, f"{command(n)}\n{engine}"))
    assert {c.seed for c in load(tmp_path)} == {9}


# A step in words before a printed dictionary.


@pytest.mark.parametrize("form", [
    "12:00 | eval | global_step {}: {}", "[eval] step {} -> {}", "update={} validation {}",
])  # fmt: skip
def test_a_step_before_a_row_is_its_own(tmp_path: Path, form: str) -> None:
    for n in (4, 8):
        rows = [form.format(s, {"acc": score(s, n), "note": None}) for s in range(0, 31, 10)]
        write(tmp_path / f"bp16_n{n}_s2.log", "\n".join(rows) + "\n")
    said = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}_s{seed}",)
    assert "--map acc=avg" in refused(tmp_path, (), said)
    found = load(tmp_path, ("acc=avg",), said)
    assert drawn(found) == {(16, n, 2): [16 * n * s for s in range(0, 31, 10)] for n in (4, 8)}


# A sheet of settings beside one of scores.

PATTERN = "--set 'pattern=n={rollouts_per_problem} / seed {seed}' --range 0 100"
SETTINGS = [["model", "Small 1B"], ["GPUs", 4], ["prompts per update", 48], ["updates", 30]]


def workbook(path: Path, *sheets: list[list[object]]) -> Path:
    from test_workbooks import book

    scores: list[list[object]] = [["Accuracy, all runs"], [], ["update", *(
        f"n={n} / seed {seed}" for n in (4, 8) for seed in (1, 2)
    )]]  # fmt: skip
    scores += [[s, *(100 * score(s, n, 0.01 * seed) for n in (4, 8) for seed in (1, 2))]
               for s in range(0, 31, 10)]  # fmt: skip
    named = {f"about {i}": sheet for i, sheet in enumerate(sheets, 1)}
    return book(path, {"scores": scores, **named})  # type: ignore[dict-item]


@pytest.mark.parametrize("title", [[], [["Settings"], []], [["name", "value", "remark"]]])
def test_a_sheet_of_names_and_values_says_settings(
    tmp_path: Path, title: list[list[object]], capsys: pytest.CaptureFixture[str]
) -> None:
    made = workbook(tmp_path / "all.xlsx", [*title, *SETTINGS])
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "st")]) == 2
    told = capsys.readouterr().err.strip()
    assert told.endswith(f"isocompute fit {made} {PATTERN}")
    assert "about 1" not in told
    assert told.count("sheet scores") == told.count("seed 2, n=8") == 1
    notes: list[str] = []
    found = load(
        made, (), ("pattern=n={rollouts_per_problem} / seed {seed}",), score_range=(0, 100),
        say=notes.append,
    )  # fmt: skip
    assert drawn(found) == {
        (48, n, seed): [48 * n * s for s in range(0, 31, 10)] for n in (4, 8) for seed in (1, 2)
    }
    assert "all.xlsx, sheet scores: problems_per_batch=48: read from sheet about 1 beside it" in (
        notes
    )


def test_sheets_that_say_nothing_or_two_things_are_passed_over(tmp_path: Path) -> None:
    sets = ("pattern=n={rollouts_per_problem} / seed {seed}", "problems_per_batch=48")
    notes: list[str] = []
    colours: list[list[object]] = [["red", 1], ["blue", 2]]
    load(workbook(tmp_path / "a.xlsx", colours), (), sets, score_range=(0, 100), say=notes.append)
    assert any("sheet about 1 beside it holds no scores and no setting" in one for one in notes)
    made = workbook(tmp_path / "b.xlsx", SETTINGS, [["prompts per update", 32]])
    assert "--set problems_per_batch=B_P" in refused(made, (), sets[:1], score_range=(0, 100))
