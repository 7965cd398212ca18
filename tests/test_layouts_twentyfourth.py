"""What the twenty-fourth blind set found: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layout_helpers import load, refused
from test_layouts_eighteenth import write
from test_layouts_sixteenth import drawn, score

# Two statements of a log that disagree are asked about.


def axolotl(folder: Path, n: int, sharers: int) -> None:
    said = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40,
            "steps_per_generation": 2, "generation_batch_size": 64, "num_generations": n,
            "context_parallel_size": sharers, "seed": 3}  # fmt: skip
    rows = [{"step": s, "eval_reward": score(s, n)} for s in range(0, 41, 10)]
    write(folder / f"n{n}/args.json", json.dumps(said))
    state = {"log_history": rows, "global_step": 40, "max_steps": 40}
    write(folder / f"n{n}/trainer_state.json", json.dumps(state))


@pytest.mark.parametrize(("processes", "batch"), [(4, 32), (8, 64)])
def test_processes_that_share_a_sequence_are_asked_about(
    tmp_path: Path, processes: int, batch: int
) -> None:
    for n in (4, 8):
        axolotl(tmp_path, n, 2)
    said = refused(tmp_path)
    assert "--set processes=4 if 2 processes share each sequence, or --set processes=8 if" in said
    assert "context_parallel_size 2 says that 2 of them share each sequence" in said
    found = load(tmp_path, (), (f"processes={processes}",))
    assert drawn(found) == {
        (batch // n, n, 3): [batch * s for s in range(0, 41, 10)] for n in (4, 8)
    }


def test_processes_that_share_nothing_are_as_logged(tmp_path: Path) -> None:
    for n in (4, 8):
        axolotl(tmp_path, n, 1)
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in load(tmp_path)} == {
        (16, 4), (8, 8)
    }  # fmt: skip
