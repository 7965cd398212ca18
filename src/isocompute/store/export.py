"""A study as Parquet or CSV: tables for pandas, polars and DuckDB, or one tidy file of curves.

Rows are ordered by run hash, step and set, and nothing depends on how often a study was
interrupted: with `times=False` two exports of the same study are equal byte for byte.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.files import drafted, refuse_file
from isocompute.store import seals
from isocompute.store.arms import arm_labels
from isocompute.store.database import storage_error
from isocompute.store.decisions import load_looks
from isocompute.store.hours import gpus_of, trained_s
from isocompute.store.pack import unpack
from isocompute.store.sampled import samples_of
from isocompute.store.store import Store, StoredRun
from isocompute.study.adaptive import Look

Row = dict[str, Any]
FORMATS = ("parquet", "csv")


def export_study(
    folder: str | Path, target: str | Path, *, format: str | None = None, times: bool = True,
    imported: Sequence[Row] = (),
) -> list[Path]:
    """Unpack a study.

    Args:
        folder: the study folder.
        target: FILE.csv or FILE.parquet: one tidy file of curves (one row per evaluation, the
            contract of "tidy curves"). Otherwise a folder that gets runs, evaluations, steps,
            problems, (with `times`) attempts, unjudged where a verifier failed, and decisions of an
            adaptive sweep, one file each.
        format: "parquet" or "csv"; None: by the file's ending, "parquet" for a folder.
        times: False leaves out whatever depends on clocks, machines and interruptions.
        imported: rows of runs that were imported; a folder gets them as one more file.

    Returns:
        The files written, each replaced in one step.

    Raises:
        InputError: on an unknown format, one that contradicts the file's ending, or a file in the
            folder's place.
        StorageError: if the target cannot be written.
    """
    target = Path(target)
    ending = target.suffix[1:].lower()
    tidy = ending in FORMATS
    format = format or (ending if tidy else "parquet")
    if format not in FORMATS or (tidy and format != ending):
        raise InputError(
            f"the format must be one of {', '.join(FORMATS)} and agree with the file's ending, but "
            f"got format={format!r} for {target.name!r}; correct one of them."
        )
    refuse_file(target.parent if tidy else target)
    write = _write_csv if format == "csv" else _write_parquet
    with Store(folder) as store:
        seals.refuse_broken(store.database.faults(), str(store.database.path))
        store.database.refuse_damage(seals.TABLES)
        runs = sorted(store.runs(), key=lambda run: run.hash)
        tables: dict[str, Callable[[], Iterator[Row]]] = {
            "runs": lambda: _runs(runs, times),
            "evaluations": lambda: _evaluations(store, runs, times),
            "steps": lambda: _steps(store, runs, times),
            "problems": lambda: _problems(store),
        }
        if unjudged := store.unjudged():
            tables["unjudged"] = lambda: ({**asdict(row)} for row in unjudged)
        if looks := load_looks(store.database):
            tables["decisions"] = lambda: _decisions(looks)
        if times:
            tables["attempts"] = lambda: _attempts(store)
        if imported:
            tables["imported"] = lambda: iter(imported)
        try:
            if tidy:
                target.parent.mkdir(parents=True, exist_ok=True)
                return [write(target, chain(_tidy(store, runs, times), imported))]
            target.mkdir(parents=True, exist_ok=True)
            return [write(target / f"{name}.{format}", rows()) for name, rows in tables.items()]
        except OSError as error:
            raise storage_error(error) from error


def _head(run: StoredRun) -> Row:
    return {
        "run": run.hash,
        "problems_per_batch": run.spec["problems_per_batch"],
        "rollouts_per_problem": run.spec["rollouts_per_problem"],
        "seed": run.spec["seed"],
    }


def _runs(runs: Sequence[StoredRun], times: bool) -> Iterator[Row]:
    arms = _arms(runs)
    for run in runs:
        row = {
            **_head(run), **({"arm": arms[run.hash]} if arms else {}),
            "engine": run.spec["engine"], "state": run.state, "reason": run.reason,
            "steps": run.spec["steps"], "steps_done": run.steps_done, "rollouts": run.rollouts,
            "tokens": run.tokens, "evaluation_rollouts": run.evaluation_rollouts,
            "evaluation_tokens": run.evaluation_tokens,
            "spec": json.dumps(run.spec, sort_keys=True),
        }  # fmt: skip
        if times:
            row |= {"attempts": run.attempts, "wasted_rollouts": run.wasted_rollouts,
                    "wasted_tokens": run.wasted_tokens, "wall_s": run.wall_s}  # fmt: skip
        yield row


def _evaluations(store: Store, runs: Sequence[StoredRun], times: bool) -> Iterator[Row]:
    for run in runs:
        rows = store.database.read(
            "SELECT e.step, e.problem_set, e.rollouts, e.tokens, e.samples, e.sampled_rollouts, "
            "e.sampled_tokens, e.counts, e.successes, e.wall_s FROM evaluations e "
            "JOIN runs r ON r.run = e.run WHERE r.hash = ? ORDER BY e.step, e.problem_set",
            (run.hash,),
        )
        for r in rows:
            counts = json.loads(r[7])
            row = {
                **_head(run), "step": r[0], "rollouts": r[2], "tokens": r[3], "problem_set": r[1],
                "samples": r[4], **_scores(counts), "sampled_rollouts": r[5],
                "sampled_tokens": r[6], "counts": counts,
                "successes": unpack(r[8], sum(counts)).tolist(),
            }  # fmt: skip
            yield {**row, "wall_s": r[9]} if times else row


def _scores(counts: list[int]) -> Row:
    """Mean success, at least one success, all succeed: of all samples, per problem."""
    samples, size = len(counts) - 1, sum(counts)
    successes = sum(i * count for i, count in enumerate(counts))
    return {"score": successes / (samples * size), "best": 1 - counts[0] / size,
            "worst": counts[-1] / size}  # fmt: skip


def _arms(runs: Sequence[StoredRun]) -> dict[str, str]:
    """Of each run, the words that tell its arm; empty where there is one."""
    labels = arm_labels(runs)
    return dict(zip((run.hash for run in runs), labels, strict=True)) if any(labels) else {}


def _tidy(store: Store, runs: Sequence[StoredRun], times: bool) -> Iterator[Row]:
    arms, by_hash = _arms(runs), {run.hash: run for run in runs}
    took = {name: trained_s(store, run) for name, run in by_hash.items()} if times else {}
    for row in _evaluations(store, runs, times=False):
        k = samples_of(by_hash[row["run"]].spec, row["problem_set"], row["samples"],
                       sum(row["counts"]))  # fmt: skip
        if k != row["samples"]:  # single outcomes: of each problem only the mean is known
            row |= {"best": None, "worst": None}
        yield {
            **{k: row[k] for k in ("problems_per_batch", "rollouts_per_problem", "rollouts")},
            **{k: row[k] for k in ("score", "best", "worst", "tokens", "seed", "run")},
            "steps": row["step"], "metric": f"avg@{k}",
            "problem_set": row["problem_set"], "split": "validation",
            **({"arm": arms[row["run"]]} if arms else {}),
            **(_took(took[row["run"]], gpus_of(store, by_hash[row["run"]]), row["step"])
               if times else {}),
        }  # fmt: skip


def _took(took: NDArray[np.float64] | None, gpus: int | None, step: int) -> Row:
    """Seconds of training until a step, and GPU-hours where it was on GPUs."""
    wall_s = None if took is None else float(took[step])
    paid = None if wall_s is None or gpus is None else wall_s * gpus / 3600
    return {"wall_s": wall_s, "gpu_hours": paid}


def _steps(store: Store, runs: Sequence[StoredRun], times: bool) -> Iterator[Row]:
    for run in runs:
        steps = store.steps(run.hash)
        for i in range(len(steps)):
            health = {k: v[i] for k, v in steps.health.items() if v[i] == v[i]}
            row = {
                **_head(run), "step": int(steps.step_K[i]), "rollouts": int(steps.rollouts_K[i]),
                "tokens": int(steps.tokens_K[i]), "samples": int(steps.samples_K[i]),
                "health": json.dumps(health, sort_keys=True),
                "problems": steps.problems[i].tolist(), "successes": steps.successes[i].tolist(),
            }  # fmt: skip
            yield {**row, "wall_s": float(steps.wall_s_K[i])} if times else row


def _problems(store: Store) -> Iterator[Row]:
    names = ("set_sha256", "position", "id", "prompt", "answer", "source", "pass_rate",
             "pass_rate_samples")  # fmt: skip
    rows = store.database.read(
        f"SELECT {', '.join(names)} FROM problems ORDER BY set_sha256, position"
    )
    for row in rows:
        yield dict(zip(names, row, strict=True))


def _decisions(looks: Sequence[Look]) -> Iterator[Row]:
    """One row per look and configuration; the sweep's own has no B_p and n."""
    for look in looks:
        for d in look.decisions:
            b_p, n = d.configuration or (None, None)
            yield {
                "look": look.number, "problems_per_batch": b_p, "rollouts_per_problem": n,
                "action": d.action, "rollouts": list(d.rollouts),
                "numbers": json.dumps(dict(d.numbers), sort_keys=True),
            }  # fmt: skip


def _attempts(store: Store) -> Iterator[Row]:
    names = ("attempt", "from_step", "target_steps", "outcome", "detail", "rollouts", "tokens",
             "evaluation_rollouts", "evaluation_tokens", "wall_s", "started_utc", "host",
             "versions")  # fmt: skip
    rows = store.database.read(
        f"SELECT r.hash, {', '.join('a.' + n for n in names)} FROM attempts a "
        "JOIN runs r ON r.run = a.run ORDER BY a.attempt"
    )
    for row in rows:
        yield dict(zip(("run", *names), row, strict=True))


def _write_csv(path: Path, rows: Iterator[Row]) -> Path:
    with drafted(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer: Any = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow({key: _cell(value) for key, value in row.items()})
    return path


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    # A spreadsheet would run text that begins like a formula.
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return value


def _write_parquet(path: Path, rows: Iterator[Row]) -> Path:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise InputError(
            "Parquet needs the package pyarrow, which is not installed; install it, or export "
            "with format csv."
        ) from error
    writer: Any = None
    with drafted(path) as draft:
        while chunk := list(islice(rows, 20_000)):
            if writer is None:
                writer = parquet.ParquetWriter(draft, _arrow_schema(arrow, path.stem, chunk))
            writer.write_table(arrow.Table.from_pylist(chunk, schema=writer.schema))
        if writer is None:
            parquet.write_table(arrow.table({}), draft)
        else:
            writer.close()
    return path


def _arrow_schema(arrow: Any, table: str, chunk: list[Row]) -> Any:
    """Types by column: a column must not become null because its first rows are."""
    inferred = arrow.Table.from_pylist(chunk[:1000]).schema
    lists = {"counts": arrow.list_(arrow.int64()), "successes": arrow.list_(arrow.int64()),
             "problems": arrow.list_(arrow.int64())}  # fmt: skip
    fixed = {"pass_rate": arrow.float64(), "pass_rate_samples": arrow.int64()}
    if "metric" in chunk[0]:  # of logs some have seeds, tokens or fractions of steps, others not
        fixed |= dict.fromkeys(("rollouts", "score", "best", "worst", "tokens"), arrow.float64())
        fixed["seed"] = arrow.int64()
    if table in ("evaluations", "steps"):
        fixed |= lists
    if table == "decisions":  # the sweep's own rows come first, without a configuration
        fixed |= {"problems_per_batch": arrow.int64(), "rollouts_per_problem": arrow.int64(),
                  "rollouts": arrow.list_(arrow.int64())}  # fmt: skip
    return arrow.schema(
        [arrow.field(f.name, fixed.get(f.name, f.type)) for f in inferred]
    )
