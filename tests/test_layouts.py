"""Fourteen fresh layouts: right at the first try, or one clear line and right at the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from layouts import LAYOUTS, Ask

from isocompute.curves.load import load_curves
from isocompute.errors import InputError
from isocompute.importers import settings_from


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


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_right_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name](tmp_path)
    try:
        found = attempt(tmp_path, layout.first)
    except InputError as error:
        assert "\n" not in str(error)
        assert layout.second is not None, str(error)
        found = attempt(tmp_path, layout.second)
    assert found.keys() == layout.truth.keys()
    for run, points in layout.truth.items():
        assert found[run] == pytest.approx(points, abs=1e-9)
