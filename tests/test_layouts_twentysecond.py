"""What the twenty-second blind set found: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path

from isocompute.cli import main
from isocompute.cli.scores import metric_names
from isocompute.importers import load_settings, read_log


def test_a_metric_may_hold_a_comma() -> None:
    assert metric_names("avg:exact_match,strict") == ["avg:exact_match,strict"]
    assert metric_names("avg:exact_match,strict,best@4") == ["avg:exact_match,strict", "best@4"]
    assert metric_names("avg@4,avg:b") == ["avg@4", "avg:b"]
    assert metric_names("avg@4,,best@4") == ["avg@4", "", "best@4"]  # refused where it is read


def test_a_table_that_says_seeds_alone_is_read(tmp_path: Path) -> None:
    for start, name in enumerate(("left_n4", "right_n4")):
        rows = [{"global_step": k, "eval/score": 0.1 * k + 0.03 * start} for k in range(5)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "runs.csv").write_text("run,seed\nleft_n4,7\nright_n4,8\n")
    settings = load_settings(
        ["problems_per_batch=8", "rollouts_per_problem=4", "step=global_step"],
        ["eval/score=avg"],
    )
    assert sorted(run.seed or 0 for run in read_log(tmp_path, settings=settings)) == [7, 8]


def test_the_command_to_paste_says_when_it_is_right(tmp_path: Path, capsys) -> None:
    rows = [{"tick": k, "acc": 0.1 * k, "reward": 0.2} for k in range(5)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "s")]) == 2
    said = capsys.readouterr().err
    assert "To paste, only if `tick` counts updates (not rollouts or micro-batches)" in said
