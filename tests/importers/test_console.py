"""Console logs of verl as schedulers, terminals and restarts leave them."""

from __future__ import annotations

import pprint
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import ImportedRun, note_lines, read_log
from isocompute.sources import load_curves

PATTERN = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
COMMAND = (
    "+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size={b} "
    "actor_rollout_ref.rollout.n={n} 'trainer.logger=[\"console\"]' trainer.total_training_steps=40"
)


def step(t: int, score: float) -> str:
    train = "" if t == 0 else f"critic/score/mean:np.float64({score}) - training/global_step:{t} - "
    return f"step:{t} - {train}val-core/math/acc/mean@4:np.float64({score})"


def config(b: int, n: int) -> list[str]:
    tree = {"data": {"train_batch_size": b, "filler": list(range(40))},
            "actor_rollout_ref": {"rollout": {"n": n}}}  # fmt: skip
    return pprint.pformat(tree).splitlines()


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def points(run: ImportedRun) -> list[tuple[int, float]]:
    (s,) = [s for s in run.series if s.split == "validation"]
    return list(zip(s.step_K.tolist(), s.score_K.tolist(), strict=True))


BAR = "Training Progress:  17%|██▎     | 71/435 [1:10:40<6:31:06, 64.47s/it]"
RAY = "\x1b[36m(TaskRunner pid=247607, ip=10.0.0.3)\x1b[0m "


@pytest.mark.parametrize(
    "prefix",
    ["", RAY, "(main_task pid=5) ", "0: ", "2026-03-01T10:22:33.123456789Z (TaskRunner pid=1) ",
     "2026-03-01 10:22:33,123 ", f"{BAR}\r{RAY}"],
)  # fmt: skip
def test_what_stands_before_a_line_changes_nothing(tmp_path: Path, prefix: str) -> None:
    lines = [*config(16, 8), step(0, 0.1), "noise", step(5, 0.2)]
    (run,) = read_log(write(tmp_path / "a.log", *(prefix + line for line in lines)))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 8)
    assert points(run) == [(0, 0.1), (5, 0.2)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_what_powershell_keeps_of_a_console(tmp_path: Path, encoding: str) -> None:
    lines = [*config(16, 8), step(0, 0.1), BAR, "a note of 日本", step(5, 0.2)]
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "a.log").write_bytes((mark + "\r\n".join([*lines, ""])).encode(encoding))
    (run,) = read_log(tmp_path / "a.log")
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 8)
    assert points(run) == [(0, 0.1), (5, 0.2)]


def test_a_progress_bar_in_the_same_line(tmp_path: Path) -> None:
    path = write(tmp_path / "bp16_n8.log", BAR + step(0, 0.1), BAR + step(5, 0.2))
    (run,) = read_log(path, settings=PATTERN)
    assert points(run) == [(0, 0.1), (5, 0.2)]
    assert [s.step_K.tolist() for s in run.series if s.split == "train"] == [[5]]


@pytest.mark.parametrize(
    "command",
    [[COMMAND.format(b=16, n=8)],
     ["python3 -m verl.trainer.main_ppo \\", "    data.train_batch_size=16 \\",
      "    +actor_rollout_ref.rollout.n=8 \\"]],
)  # fmt: skip
def test_the_command_says_the_configuration(tmp_path: Path, command: list[str]) -> None:
    (run,) = read_log(write(tmp_path / "train.log", *command, step(0, 0.1), step(5, 0.2)))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (16, 8)


def test_what_the_command_leaves_to_the_shell_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "train.log", "data.train_batch_size=16", "x.rollout.n=$N",
                 "actor_rollout_ref.rollout.n=$N \\", step(0, 0.1))  # fmt: skip
    assert read_log(path)[0].rollouts_per_problem is None


def test_runs_one_after_the_other_in_one_file(tmp_path: Path) -> None:
    sweep = []
    for n in (4, 8, 8):  # the third: the same again from the beginning, another run as told
        sweep += [COMMAND.format(b=16, n=n), *config(16, n), step(0, n / 100), step(5, n / 50)]
    sweep += [*config(16, 8), step(5, 0.9), step(6, 0.3)]  # goes on with the third
    path = write(tmp_path / "all.log", *sweep)
    runs = read_log(path, settings={"resumed": "apart"})
    assert len(read_log(path, settings={"resumed": "join"})) == 2
    assert [(r.name, r.rollouts_per_problem) for r in runs] == [
        ("all", 4), ("all-2", 8), ("all-3", 8),
    ]  # fmt: skip
    assert [points(r) for r in runs] == [
        [(0, 0.04), (5, 0.08)], [(0, 0.08), (5, 0.16)], [(0, 0.08), (5, 0.16), (6, 0.3)],
    ]  # fmt: skip
    (note,) = runs[2].notes
    assert "1 further rows of a step that was there already" in note
    assert not runs[0].notes


def test_what_a_folder_left_out_is_said_once(tmp_path: Path) -> None:
    for n in (4, 8):
        write(tmp_path / f"bp16_n{n}" / "0.log", step(0, 0.1), step(5, 0.2))
        write(tmp_path / f"bp16_n{n}" / "1.log", step(5, 0.2), step(8, 0.3))
    header = "Relative Time (Process),a - val-core/math/acc/mean@4"
    write(tmp_path / "chart.csv", header, "1,0.5")
    write(tmp_path / "notes.txt", "nothing")
    said: list[str] = []
    from isocompute.importers import settings_from

    curves = load_curves([tmp_path], settings=settings_from(PATTERN), say=said.append)
    assert [c.steps_K.tolist() for c in curves if c.steps_K is not None] == [[0, 5, 8]] * 2
    assert len(said) == 2
    assert "2 other files of the folder gave no run" in said[0]
    assert "must have the step on its x axis" in said[0]
    assert "which goes on from step 5" in said[1]
    assert said[1].endswith("(and 1 more run alike)")


def test_a_run_without_the_metric_is_said(tmp_path: Path) -> None:
    write(tmp_path / "bp16_n4.log", step(0, 0.1), step(5, 0.2))
    write(tmp_path / "bp16_n8.log", "step:1 - critic/score/mean:0.5")
    said: list[str] = []
    from isocompute.importers import settings_from

    load_curves([tmp_path], settings=settings_from(PATTERN), say=said.append)
    assert said == ["run bp16_n8: left out: it has no avg@4"]


def test_notes_that_differ_in_numbers_are_one_line() -> None:
    notes = [("a", "7 rows"), ("b", "9 rows"), ("c", "other"), ("d", "1 rows")]
    assert note_lines(notes) == ["run a: 7 rows (and 2 more runs alike)", "run c: other"]


BARS = "\r{p}%|##   | {n}/12 [00:0{n}<00:10,  1.02s/it]"


def test_what_transformers_prints_has_its_steps_in_the_bar_behind_it(tmp_path: Path) -> None:
    parts = ["Map: 100%|####| 500/500 [00:00<00:00]\n", BARS.format(p=0, n=0)]
    for n in range(1, 7):
        lag = BARS.format(p=8, n=max(0, n - 1))  # the bar is drawn at most ten times a second
        if n % 2 == 0:
            parts.append("\n 50%|##| 1/2 [00:00<00:00]")
            score = f"'{n / 10}'" if n == 4 else str(n / 10)  # transformers 5 prints text
            row = f"{{'eval_reward': {score}, 'eval_loss': nan, 'epoch': {n / 12:.2f}}}"
        else:
            row = f"{{'loss': 0.1, 'completions/mean_length': 7.0, 'epoch': {n / 12:.2f}}}"
        parts.append(f"{lag}\r      \r{row}\n 100%|##| 2/2 [00:00]{BARS.format(p=9, n=n)}")
    path = tmp_path / "bp2_n4.log"
    path.write_text("".join(parts) + "\n")
    run = read_log(path, settings=PATTERN)[0]
    assert (run.provenance.format, run.steps) == ("trl-console", 12)
    s = next(s for s in run.series if s.split == "validation")
    assert s.step_K.tolist() == [2, 4, 6]
    assert s.score_K.tolist() == [0.2, 0.4, 0.6]
    path.write_text("{'eval_reward': 0.5, 'epoch': 0.5}\n")
    with pytest.raises(InputError, match="1 rows and no bar.*give the trainer_state.json"):
        read_log(path, settings=PATTERN)


# AReaL (0d57894, utils/stats_logger.py): a grid of keys and values below the update's line.


def areal(steps: int, every: int, columns: int, shift: int = 0) -> str:
    text = ""
    for step in range(1, steps + 1):
        text += (f"20251014-08:04:00.019 StatsLogger INFO: Epoch 1/2 Step {step}/{steps} "
                 f"Train step {step + shift}/{2 * steps} done.\n"
                 "20251014-08:04:00.022 StatsLogger INFO: Stats (1/1):\n╒═══╤═══╕\n")  # fmt: skip
        items = [("ppo_actor/n_seqs", 128.0), ("rollout/reward", step / 200)]
        if step % every == 0:
            items.append(("eval-rollout/reward", step / 100))
        for at in range(0, len(items), columns):
            cells = [cell for key, value in items[at : at + columns]
                     for cell in (key, f"{value:.4e}")]  # fmt: skip
            text += f"│ {' │ '.join(cells)} │\n├───┼───┤\n"
    return text


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("every", [2, 5])
def test_a_console_of_areal_is_read_by_its_train_step(
    tmp_path: Path, columns: int, every: int
) -> None:
    text = areal(20, every, columns) + areal(20, every, columns, shift=20)
    (tmp_path / "main.log").write_text(text)
    told = {"problems_per_batch": 16, "rollouts_per_problem": 8}
    (run,) = read_log(tmp_path / "main.log", settings=told)
    assert run.provenance.format == "areal-console"
    (held,) = [s for s in run.series if s.split == "validation"]
    assert held.step_K.tolist() == list(range(every, 41, every))
    assert held.rollouts_K.tolist() == [128 * step for step in range(every, 41, every)]
    first = [step / 100 for step in range(every, 21, every)]
    assert held.score_K.tolist() == pytest.approx(first * 2)
