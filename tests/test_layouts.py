"""Layouts of others: right at the first try, or one clear line and right at the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from layouts import LAYOUTS, Ask
from layouts_foreign import LAYOUTS as FOREIGN
from layouts_unseen import LAYOUTS as UNSEEN

ALL = {**LAYOUTS, **FOREIGN, **UNSEEN}

# What cannot be known without being told, and the line that asks for it.
REFUSED = {
    "chart_percent": r"goes from 20 to 54.* --range 0 100",
    "summed_rewards": r"goes from 0.2 to .*--range LOW HIGH",
    "samples_axis": r"step says 1536 where update says 12; .*--set step=update",
    "skyrl_sets": r"hold 'aime_24', 'all', 'math_500'; choose one with --problem-set",
    "easyr1_parts": r"the whole reward \(0.28.* add --metric avg@4:accuracy or --metric avg@4",
    "tinker_tests": r"the whole reward \(0.195 .* add --metric avg:correct or --metric avg",
    "tensorboard_tags": r"not read: eval_accuracy, train_reward\).* column map",
    "comet_strings": r"not read: eval/accuracy, .* column map",
    "sheet_percent": r"score is missing \(the file has run, step, accuracy\).* column map",
    "exported_twice": r"not read: eval/accuracy\).* column map",
    "thousands": r"of the order of .*0.001 of it.* in thousands.* drop one of the columns",
    "two_models": r"must share their model.*--where model=Qwen/Qwen2.5-1.5B",
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


def _drop_column(path: Path, name: str) -> None:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    at = rows[0].index(name)
    path.write_text("\n".join(",".join(row[:at] + row[at + 1 :]) for row in rows) + "\n")


@pytest.mark.parametrize("name", ALL)
def test_a_layout_is_read_right_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    layout = ALL[name](tmp_path)
    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]) as caught:
            attempt(tmp_path, layout.first)
        assert "\n" not in str(caught.value)
        if layout.second is None:
            _drop_column(tmp_path / "sweep.csv", "rollouts")
        found = attempt(tmp_path, layout.second or layout.first)
    else:
        found = attempt(tmp_path, layout.first)
    assert found.keys() == layout.truth.keys()
    for run, points in layout.truth.items():
        assert found[run] == pytest.approx(points, abs=1e-9)
