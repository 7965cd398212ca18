"""A copy of a run whose scores were rounded is no second seed; seeds with coarse scores are two."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from isocompute.importers import read_log
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.words.settings import load_settings

_KEY = "val-core/math/acc/mean@4"
_STEPS = range(0, 400, 20)


def _scores(seed: int, noise: float, of: int = 0) -> list[float]:
    """Of a run that learns, with the noise of an evaluation: of so many problems, or of any."""
    rng = np.random.default_rng(seed)
    mean = 0.3 + 0.3 * (1 - np.exp(-np.array(_STEPS) / 90))
    if of:
        return (rng.binomial(of, mean) / of).tolist()
    return (mean + noise * rng.normal(size=mean.size)).tolist()


def _log(path: Path, scores: Sequence[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    clock = {"timing_s/step": 9 + len(path.name) + sum(map(ord, path.name)) / 1000}
    rows = [{"step": s, "data": {_KEY: v, **clock}} for s, v in zip(_STEPS, scores, strict=False)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _chart(path: Path, runs: dict[str, Sequence[float]]) -> None:
    """W&B's export of a chart."""
    rows = [["Step", *(f"{name} - {_KEY}" for name in runs)]]
    rows += [[str(s), *(f"{of[i]:.6g}" for of in runs.values())] for i, s in enumerate(_STEPS)]
    path.write_text("\n".join(",".join(row) for row in rows) + "\n", "utf-8")


def _read(folder: Path, *sets: str) -> list[tuple[str, list[float]]]:
    given = ("problems_per_batch=32", "pattern=n{rollouts_per_problem}_", *sets)
    return [(run.name, run.series[0].score_K.tolist())
            for run in read_log(folder, settings=load_settings([*given]))]  # fmt: skip


@pytest.mark.parametrize(("digits", "noise"), [(2, 0.015), (3, 0.004)])
def test_a_chart_with_fewer_digits_is_the_same_runs(
    tmp_path: Path, digits: int, noise: float
) -> None:
    runs = {f"n{n}_{k}": _scores(10 * n + k, noise) for n in (8, 16) for k in range(3)}
    for name, scores in runs.items():
        _log(tmp_path / f"{name}.jsonl", scores)
    _chart(tmp_path / "wandb_export.csv", {
        name.replace("_", "_job"): np.round(of, digits).tolist() for name, of in runs.items()})
    assert dict(_read(tmp_path)) == runs


def test_many_runs_share_scores_of_two_digits(tmp_path: Path) -> None:
    runs = {f"n8_{k}": _scores(k, 0.015) for k in range(20)}
    for name, scores in runs.items():
        _log(tmp_path / f"{name}.jsonl", scores)
    _chart(tmp_path / "wandb_export.csv", {
        name.replace("_", "_job"): np.round(of, 2).tolist() for name, of in runs.items()})
    assert dict(_read(tmp_path)) == runs


def _fifty(k: int) -> list[float]:
    return _scores(k, 0.0, 50)


def _half(k: int) -> list[float]:
    """Every other seed was rounded, the others not."""
    scores = _scores(100 + k, 0.004)
    return np.round(scores, 2).tolist() if k % 2 else scores


def _quiet(k: int) -> list[float]:
    """Seeds of which all round alike, as their noise is below the rounding."""
    scores = [0.3004, 0.3521, 0.4012, 0.4487, 0.4986, *[0.5004 + 1e-4 * i for i in range(15)]]
    own = [v + 1e-5 * (k % 1000) + 1e-6 * i for i, v in enumerate(scores)]
    return np.round(own, 2).tolist() if k % 2 else own


@pytest.mark.parametrize("scores", [_fifty, _half, _quiet])
def test_seeds_with_coarse_scores_are_several(
    tmp_path: Path, scores: Callable[[int], list[float]]
) -> None:
    for n in (8, 16):
        for k in range(20):
            _log(tmp_path / f"n{n}_{k}.jsonl", scores(1000 * n + k))
    assert len(_read(tmp_path)) == 40


def test_two_seeds_that_round_alike_all_through_are_asked_about(tmp_path: Path) -> None:
    scores = _scores(1, 0.02)
    _log(tmp_path / "n8_s1.jsonl", scores)
    _log(tmp_path / "n8_s2.jsonl", np.round(scores, 2).tolist())
    with pytest.raises(UnclearError, match="runs of two seeds must differ"):
        _read(tmp_path, "pattern=n{rollouts_per_problem}_s{seed}")


@pytest.mark.parametrize(("seed", "count"), [("s{seed}", 1), ("", 2)])
def test_one_seed_needs_less_to_be_one_run(tmp_path: Path, seed: str, count: int) -> None:
    scores = _scores(3, 0.012)[:8]
    _log(tmp_path / "a" / "n8_s1.jsonl", scores)
    _log(tmp_path / "b" / "n8_s1.jsonl", np.round(scores, 2).tolist())
    assert len(_read(tmp_path, f"pattern=n{{rollouts_per_problem}}_{seed}")) == count
