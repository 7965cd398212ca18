"""What the twenty-eighth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layout_helpers import load
from test_layouts_eighteenth import write
from test_layouts_sixteenth import drawn, score

MAP = ("dev/exact=avg",)


def looped(folder: Path, n: int, trained: int, rows: range, **more: object) -> None:
    """A loop that evaluates at 1, 11, 21, ... and once more at the end."""
    said = {"problems_per_batch": 6, "rollouts_per_problem": n, **more}
    write(folder / f"own-n{n}.config.json", json.dumps(said))
    log = list[dict[str, object]]()
    for step in rows:
        row: dict[str, object] = {"step": step}
        if step <= trained:
            row |= {"loss": 0.1, "train/reward": 0.4}
        if step % 10 == 1:
            row["dev/exact"] = score(step, n)
        log.append(row)
    write(folder / f"own-n{n}.jsonl", "\n".join(map(json.dumps, log)))


# Evaluations in the row of the update that follows them.


@pytest.mark.parametrize(
    ("trained", "plan", "earlier"), [(40, 40, 1), (40, None, 1), (41, None, 0), (40, 41, 0)]
)
def test_an_evaluation_beyond_the_last_update_was_before_it(
    tmp_path: Path, trained: int, plan: int | None, earlier: int
) -> None:
    for n in (2, 4):
        looped(tmp_path, n, trained, range(1, 42), **({"num_updates": plan} if plan else {}))
    found = load(tmp_path, MAP)
    at = [step - earlier for step in range(1, 42, 10)]
    assert drawn(found) == {(6, n, None): [6 * n * s for s in at] for n in (2, 4)}
    assert found[0].score_K[0] == score(1, found[0].rollouts_per_problem)
