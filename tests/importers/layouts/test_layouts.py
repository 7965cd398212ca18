"""Layouts of others: right at the first try, or one clear line and right at the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from layouts import LAYOUTS, Ask
from layouts_asked import LAYOUTS as BLIND
from layouts_asked import REFUSED as BLIND_REFUSED
from layouts_foreign import LAYOUTS as FOREIGN
from layouts_fresh import LAYOUTS as FRESH
from layouts_unseen import LAYOUTS as UNSEEN
from set_03_asked import LAYOUTS as THIRD
from set_03_asked import REFUSED as THIRD_REFUSED

ALL = {**LAYOUTS, **FOREIGN, **UNSEEN, **FRESH, **BLIND, **THIRD}

# What cannot be known without being told, and the line that asks for it.
REFUSED = {
    "chart_percent": r"goes from 20 to 54.* --range 0 100",
    "summed_rewards": r"goes from 0.2 to .*--range LOW HIGH",
    "skyrl_sets": r"hold 'aime_24', 'all', 'math_500'; choose one with --problem-set",
    "easyr1_parts": r"the whole reward \(0.28.* add --metric avg@4:accuracy or --metric avg@4",
    "tinker_tests": r"the whole reward \(0.195 .* add --metric avg:correct or --metric avg",
    "tensorboard_tags": r"not read: eval_accuracy, train_reward\).*--map",
    "comet_strings": r"not read: eval/accuracy, .*--map",
    "sheet_percent": r"score is missing \(it has run, step, accuracy\).*--map",
    "exported_twice": r"not read: eval/accuracy\).*--map",
    "thousands": r"of the order of .*0.001 of it.* in thousands.* drop that column",
    "dates_index": r"score is missing \(it has , global_step, eval/accuracy.*--map",
    "small_percent": r"score is missing \(it has .*score \(%\)\).*--map",
    "tokens_axis": r"must have the step on its x axis, .*'num_tokens'; put train/global_step",
    "seconds_axis": r"the step on its x axis, .*'Relative Time \(Process\)'; put train/global_step",
    "epochs_axis": r"must have the step on its x axis, .*'train/epoch'; put train/global_step",
    "one_without_n": r"must be known, but 'baseline' .*--set rollouts_per_problem=N",
    "batch_of_samples": r"`problems_per_batch` must be known, .*--set problems_per_batch=B_P",
    "own_loop": r"not read: reward_mean, eval/acc, lr\); name the score \(--map eval/acc=avg\)",
    "unsloth_notebook": r"holds avg \(train\).*; add --split train",
    "quoted_thousands": r"row 19 has '1,024'; write plain numbers",
    "workbook": r"sweep.xlsx: a workbook (must be readable|needs the package)",
    "best_so_far": r"--map eval/accuracy=avg",
    "runs_table": r"is a table of runs with the last value of each; export a chart",
    "two_models": r"must share their model.*--where model=Qwen/Qwen2.5-1.5B",
    **BLIND_REFUSED,
    **THIRD_REFUSED,
}


def attempt(folder: Path, ask: Ask) -> dict[tuple[int, int | None], dict[float, float]]:
    """Score by rollouts of every run, as the tool read it."""
    asked: dict[str, Any] = dict(ask)
    asked["settings"] = settings_from(asked["settings"]) if "settings" in asked else None
    curves = load_curves(folder, **asked)
    found = {
        (c.rollouts_per_problem, c.seed): dict(
            zip(c.rollouts_K.tolist(), c.score_K.tolist(), strict=True)
        )
        for c in curves
    }
    assert len(found) == len(curves), "two curves of one run"
    assert {c.problems_per_batch for c in curves} == {8}
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_layout_is_read_right_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    layout = ALL[name](tmp_path)
    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]) as caught:
            attempt(tmp_path, layout.first)
        assert "\n" not in str(caught.value)
        if layout.mend is not None:
            layout.mend(tmp_path)
        found = attempt(tmp_path, layout.second or layout.first)
    else:
        found = attempt(tmp_path, layout.first)
    assert found.keys() == layout.truth.keys()
    for run, points in layout.truth.items():
        assert found[run] == pytest.approx(points, abs=1e-9)
