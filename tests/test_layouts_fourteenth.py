"""Layouts of the fourteenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.settings import load_settings
from isocompute.sources import load_curves

EVALS = range(0, 101, 10)
Cells = Sequence[object]


def score(step: int, n: int) -> float:
    return round(0.2 + 0.002 * step + 0.001 * n, 4)


def load(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: Any
) -> list[Curve]:
    return load_curves([str(source)], settings=load_settings([*sets], [*maps]), **options)


def refused(source: Path, maps: Sequence[str] = (), sets: Sequence[str] = ()) -> str:
    with pytest.raises(InputError) as caught:
        load(source, maps, sets)
    return str(caught.value)


def write(path: Path, header: Cells, rows: Iterable[Cells], separator: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (separator.join(map(str, row)) for row in [header, *rows])
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def right(curves: Sequence[Curve], b_p: int = 32, ns: Sequence[int] = (4, 8, 32)) -> bool:
    assert sorted(c.rollouts_per_problem for c in curves) == sorted(ns)
    for c in curves:
        n = c.rollouts_per_problem
        assert c.problems_per_batch == b_p
        steps = [round(x / (b_p * n), 6) for x in c.rollouts_K.tolist()]
        assert dict(zip(steps, c.score_K.tolist(), strict=True)) == pytest.approx(
            {step: score(step, n) for step in EVALS if step <= steps[-1]}
        )
    return True


# --- a count stored as its logarithm


def of_logs(key: str, tmp_path: Path) -> Path:
    return write(tmp_path / "all.csv", ("run", "problems_per_step", key, "step", "test_acc"), (
        (f"r{log}", 32, log, step, score(step, 2**log)) for log in (2, 3, 5) for step in EVALS
    ))  # fmt: skip


@pytest.mark.parametrize(
    "key", ["log2_n", "LG_GROUP", "group_exponent", "log2(samples per prompt)", "rollouts_log2"]
)
def test_a_column_named_for_a_logarithm_is_no_count(key: str, tmp_path: Path) -> None:
    table = of_logs(key, tmp_path)
    others = ["problems_per_step=problems_per_batch", "test_acc=score"]
    asked = f"{key}=log2_rollouts_per_problem"
    assert asked in refused(table)
    said = refused(table, [*others, f"{key}=rollouts_per_problem"])
    assert all(part in said for part in ("has 2, 3, 5, a logarithm", asked, "4, 8, 32"))
    assert right(load(table, [*others, asked]))


def test_what_a_parquet_file_says_of_a_column_is_read(tmp_path: Path) -> None:
    rows = [{"run": f"r{g}", "problems_per_batch": 32, "width": g, "step": s, "score": score(s, g)}
            for g in (2, 3, 5) for s in EVALS]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    told = [f.with_metadata({"comment": "log2 of the answers to a problem"}) if f.name == "width"
            else f for f in table.schema]  # fmt: skip
    pq.write_table(table.cast(pa.schema(told)), tmp_path / "t.parquet")
    assert "width=log2_r" in refused(tmp_path / "t.parquet", ["width=rollouts_per_problem"])
    pq.write_table(table, tmp_path / "plain.parquet")
    plain = load(tmp_path / "plain.parquet", ["width=rollouts_per_problem"])
    assert {c.rollouts_per_problem for c in plain} == {2, 3, 5}


def test_values_that_follow_each_other_are_doubted_unless_their_name_is_ours(
    tmp_path: Path
) -> None:
    def table(key: str, ns: Sequence[int]) -> Path:
        return write(tmp_path / f"{len(ns)}{key}.csv", ("problems_per_batch", key, "step", "score"),
                     ((32, n, s, score(s, n)) for n in ns for s in EVALS))  # fmt: skip

    said = refused(table("width", (2, 3, 4)), ["width=rollouts_per_problem"])
    assert "width=log2_rollouts_per_problem if it is 4, 8, 16" in said
    for ns in ((4, 8, 16), (1, 2), (5, 6, 8), (30, 31, 32)):
        assert right(load(table("width", ns), ["width=rollouts_per_problem"]), 32, ns)
    assert right(load(table("rollouts_per_problem", (2, 3, 4))), 32, (2, 3, 4))


@pytest.mark.parametrize("in_rows", [False, True])
def test_a_logarithm_in_a_log_is_asked_about_too(in_rows: bool, tmp_path: Path) -> None:
    for log in (2, 3, 5):
        said = {"problems_per_step": 32, "lg_group": log}
        rows = ({"step": s, "heldout_acc": score(s, 2**log)} for s in EVALS)
        folder = tmp_path / f"run{log % 4}"
        write_lines(folder / "metrics.jsonl", ({**(said if in_rows else {}), **r} for r in rows))
        if not in_rows:
            (folder / "config.json").write_text(json.dumps(said))
    maps = ["heldout_acc=avg"]
    assert "--map lg_group=log2_rollouts_per_problem" in refused(tmp_path)
    assert "log2_" in refused(tmp_path, [*maps, "lg_group=rollouts_per_problem"])
    assert right(load(tmp_path, [*maps, "lg_group=log2_rollouts_per_problem"]))
