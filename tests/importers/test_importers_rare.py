"""Rare forms of logs and tables that no layout has: read, each in the one way it can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import load_tidy, read_log, settings_from, to_curves
from isocompute.importers.runs.checks import batches_drawn
from isocompute.sources import load_curves


def test_a_column_for_every_update_may_say_its_n(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("seed,n4_u0,n4_u20,n8_u0,n8_u20\n1,0.1,0.2,0.1,0.4\n2,0.1,0.3,0.1,0.5\n")
    settings = settings_from({"pattern": "n{n}_u{steps}", "problems_per_batch": 16})
    found = {(c.rollouts_per_problem, c.seed): (c.rollouts_K.tolist(), c.score_K.tolist())
             for c in load_tidy(path, settings=settings)}  # fmt: skip
    assert found == {
        (4, 1): ([0, 1280], [0.1, 0.2]), (4, 2): ([0, 1280], [0.1, 0.3]),
        (8, 1): ([0, 2560], [0.1, 0.4]), (8, 2): ([0, 2560], [0.1, 0.5]),
    }  # fmt: skip


def test_the_seed_of_training_tells_runs_of_a_table_apart(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    rows = [f"16,4,{seed},{rollouts},{0.1 * seed + rollouts / 10_000}"
            for seed in (1, 2) for rollouts in (0, 640, 1280)]  # fmt: skip
    header = "problems_per_batch,rollouts_per_problem,train_seed,rollouts,score"
    path.write_text("\n".join([header, *rows]))
    assert [(c.seed, c.rollouts_K.size) for c in load_tidy(path)] == [(1, 3), (2, 3)]


def test_results_below_the_name_of_their_set_are_of_the_folder_above(tmp_path: Path) -> None:
    for name in ("math500", "aime"):
        home = tmp_path / "qwen-n8" / "evals" / name
        home.mkdir(parents=True)
        for step in (20, 40, 60):
            (home / f"step_{step}.json").write_text(json.dumps({"accuracy": step / 100}))
    settings = settings_from({"columns": {"math500/accuracy": "avg"}, "problems_per_batch": 16,
                              "rollouts_per_problem": 8})  # fmt: skip
    (run,) = read_log(tmp_path, settings=settings)
    assert run.name == "qwen-n8"
    assert [s.step_K.tolist() for s in run.series] == [[20, 40, 60]]
    assert "aime/accuracy" in run.provenance.unread


@pytest.mark.parametrize("other", ["mean@4", "mean_at_4"])
def test_runs_of_one_name_and_configuration_are_two(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, gain, key in (("a", 0.01, "mean@4"), ("b", 0.02, other)):
        rows = [{"step": s, f"val-core/held/acc/{key}": 0.1 + gain * s} for s in (0, 10, 20, 30)]
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "grpo_n8.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["--set", "problems_per_batch=16", "--set", "rollouts_per_problem=8"]
    assert main(["import", str(tmp_path), "--preview", *given]) == 0
    assert capsys.readouterr().out.startswith("2 runs")
    settings = settings_from({"problems_per_batch": 16, "rollouts_per_problem": 8})
    assert len(to_curves(read_log(tmp_path, settings=settings))) == 2


def test_batches_that_only_step_0_counts_are_not_known() -> None:
    assert batches_drawn({0: 3.0}, None, 16) is None


def test_a_log_that_breaks_off_in_its_header_has_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.csv"
    path.write_text("_step,run,eval/reward\n")
    assert main(["import", str(path), "--preview"]) == 0
    assert capsys.readouterr().out.startswith("0 runs read")


@pytest.mark.parametrize("table", [False, True])
def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: bool
) -> None:
    rows = [{"step": s, "data": {"val-core/math/acc/mean@4": 0.5}} for s in range(4)]
    for n in (4, 8):
        home = tmp_path / f"n{n}"
        home.mkdir()
        if table:
            (home / "a.csv").write_text(
                f"problems_per_batch,rollouts_per_problem,rollouts,score\n4,{n},8,0.5\n")
        else:
            (home / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = os.scandir

    def closed(path: str) -> object:
        if Path(path).name == "n8":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(InputError, match=r"must be readable, but '.*n8' is not \(Permission den"):
        load_curves([tmp_path])
