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
from isocompute.importers.words.settings import load_settings
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


@pytest.mark.heavy
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
        folder = tmp_path / f"run{log}"
        write_lines(folder / "metrics.jsonl", ({**(said if in_rows else {}), **r} for r in rows))
        if not in_rows:
            (folder / "config.json").write_text(json.dumps(said))
    maps = ["heldout_acc=avg"]
    assert "--map lg_group=log2_rollouts_per_problem" in refused(tmp_path)
    assert "log2_" in refused(tmp_path, [*maps, "lg_group=rollouts_per_problem"])
    assert right(load(tmp_path, [*maps, "lg_group=log2_rollouts_per_problem"]))


# --- a column for every update, filled up to its edge


ENDS = {4: 100, 8: 60, 32: 100}


def sheet(
    path: Path, name: str, fill: str, *, ends: str = "", separator: str = ",", says: int = 0
) -> Path:
    """`fill`: "last" repeats the last score to the edge, any other text stands in the cells.

    `ends`: a column of how many updates a run did; `says`, what it has above that.
    """
    def cells(n: int) -> list[object]:
        own = [score(step, n) if step <= ENDS[n] else fill for step in EVALS]
        return [score(ENDS[n], n) if cell == "last" else cell for cell in own]

    return write(
        path, ["run", "problems_per_batch", "rollouts_per_problem", *([ends] if ends else []),
               *(name.format(step) for step in EVALS)],
        ([f"r{n}", 32, n, *([ENDS[n] + says] if ends else []), *cells(n)] for n in ENDS), separator,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "pattern"), [
    ("u{}", "u{{steps}}"), ("{}", "{{steps}}"), ("acc@{}", "acc@{{steps}}"),
    ("after {} updates", "after {{steps}} updates"),
])  # fmt: skip
@pytest.mark.parametrize("ends", ["updates_done", "steps", "last update"])
def test_a_sheet_ends_each_run_where_it_says(
    name: str, pattern: str, ends: str, tmp_path: Path
) -> None:
    table = sheet(tmp_path / "sheet.tsv", name, "last", ends=ends, separator="\t")
    asked = f"pattern={pattern.replace('{{', '{').replace('}}', '}')}"
    assert f"--set pattern='{asked.removeprefix('pattern=')}'" in refused(table)
    curves = load(table, sets=[asked])
    assert right(curves)
    assert {c.rollouts_per_problem: int(c.rollouts_K[-1]) for c in curves} == {
        n: 32 * n * end for n, end in ENDS.items()
    }


@pytest.mark.parametrize("fill", ["", "nan"])
def test_empty_cells_of_a_sheet_are_no_scores(fill: str, tmp_path: Path) -> None:
    assert right(load(sheet(tmp_path / "s.csv", "u{}", fill), sets=["pattern=u{steps}"]))


def test_scores_that_repeat_to_the_edge_are_asked_about(tmp_path: Path) -> None:
    table = sheet(tmp_path / "s.csv", "u{}", "last")
    said = refused(table, sets=["pattern=u{steps}"])
    assert "r8 has 0.328 from step 60 to 100, 5 times" in said
    assert "--set padded=drop" in said
    assert right(load(table, sets=["pattern=u{steps}", "padded=drop"]))
    kept = load(table, sets=["pattern=u{steps}", "padded=keep"])
    assert {int(c.rollouts_K[-1]) for c in kept} == {32 * n * 100 for n in ENDS}
    # a plan that all share ends none of them
    planned = sheet(tmp_path / "p.csv", "u{}", "last", ends="updates", says=100)
    assert "--set padded=drop" in refused(planned, sets=["pattern=u{steps}"])


def test_a_single_cell_that_repeats_the_last_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENDS, 8, 90)
    said = refused(sheet(tmp_path / "one.csv", "u{}", "last"), sets=["pattern=u{steps}"])
    assert "r8 has 0.388 from step 90 to 100, 2 times" in said


def test_rows_that_stand_still_are_believed_and_dropped_where_the_user_says_so(
    tmp_path: Path
) -> None:
    rows = [(f"r{n}", 32, n, s, score(min(s, ENDS[n]), n)) for n in ENDS for s in EVALS]
    table = write(tmp_path / "long.csv",
                  ("run", "problems_per_batch", "rollouts_per_problem", "step", "score"), rows)
    assert {int(c.rollouts_K[-1]) for c in load(table)} == {32 * n * 100 for n in ENDS}
    assert right(load(table, sets=["padded=drop"]))  # in a sheet it is asked about


def test_scores_beyond_the_end_that_a_run_says_contradict_it(tmp_path: Path) -> None:
    table = sheet(tmp_path / "s.csv", "u{}", "last", ends="updates_done", says=-20)
    said = refused(table, sets=["pattern=u{steps}"])
    assert "row 1 ends at update 80 and has scores up to update 100" in said


def test_columns_that_are_numbered_otherwise_are_no_updates(tmp_path: Path) -> None:
    for name in ("seed{}", "epoch {}", "n{}", "p{}"):
        table = write(tmp_path / f"{name[0]}.csv", ["run", *(name.format(i) for i in EVALS)],
                      [["a", *(0.5 for _ in EVALS)]])
        assert "{steps}" not in refused(table)


# --- numbers as sheets write them


def german(path: Path, step: str = "{:,}", b_p: str = "32", accuracy: str = ",") -> Path:
    """Updates 800 to 1,300: thousands with a dot, fractions with `accuracy`."""
    return write(path, ("Run", "problems", "samples_per_problem", "step", "acc"), (
        (f"r{n}", b_p, n, step.format(800 + s * 5).replace(",", "."),
         f"{score(s, n):.4f}".replace(".", accuracy))
        for n in (4, 8, 32) for s in EVALS
    ), ";")  # fmt: skip


GERMAN = ["problems=problems_per_batch", "samples_per_problem=rollouts_per_problem"]


def test_dots_are_thousands_where_commas_are_decimals(tmp_path: Path) -> None:
    table = german(tmp_path / "sheet.csv")
    said = refused(table)  # all that is missing, before a cell is doubted
    assert all(f"--map {one}" in said for one in (*GERMAN, "acc=score"))
    curves = load(table, [*GERMAN, "acc=score"])
    assert [c.rollouts_K[-1] for c in curves] == [32 * n * 1300 for n in (4, 8, 32)]
    large = load(german(tmp_path / "b.csv", b_p="1.024"), [*GERMAN, "acc=score"])
    assert {c.problems_per_batch for c in large} == {1024}


def test_dots_that_may_be_either_are_refused(tmp_path: Path) -> None:
    mixed = german(tmp_path / "mixed.csv", accuracy=".")
    said = refused(mixed, [*GERMAN, "acc=score"])
    assert "'1.000', a fraction or thousands; write 1000" in said
    both = tmp_path / "both.csv"  # a column of decimal points beside one of decimal commas
    lines = german(both).read_text("utf-8").splitlines()
    timed = [f"{lines[0]};hours", *(f"{line};0.25" for line in lines[1:])]
    both.write_text("\n".join(timed) + "\n", "utf-8")
    assert "a fraction or thousands" in refused(both, [*GERMAN, "acc=score"])


# --- a score that a script filled down, and the column that says when it was measured


def filled(path: Path, key: str, step: str = "step", late: int = 0) -> Path:
    """A row for every fifth update; scores of every tenth are filled down, that of 40 twice."""
    return write(path, ("problems_per_batch", "rollouts_per_problem", "seed", step, "score", key), (
        (32, n, 7, s, score(min(at, 90) if at != 40 else 40, n), at)
        for n in (4, 8, 32) for s in range(0, 101, 5)
        if (at := s // 10 * 10 - late if s < 40 or s >= 60 else 40) >= 0
    ))  # fmt: skip


@pytest.mark.parametrize("key", ["measured_at", "val_step", "Policy Version", "score_computed_at"])
def test_a_score_counts_where_it_was_measured(key: str, tmp_path: Path) -> None:
    curves = load(filled(tmp_path / "t.csv", key))
    for c in curves:
        steps = [x / 32 / c.rollouts_per_problem for x in c.rollouts_K]
        assert steps == [s for s in EVALS if s != 50]
        assert c.n_missing == 0


def test_scores_that_were_measured_at_no_row_of_theirs_are_asked_about(tmp_path: Path) -> None:
    table = filled(tmp_path / "t.csv", "weights_version", late=7)
    said = refused(table)
    assert "step says 10 where weights_version says 3" in said
    assert "--set step=weights_version or --set step=step" in said
    late = load(table, sets=["step=weights_version"])
    steps = {x / 32 / c.rollouts_per_problem for c in late for x in c.rollouts_K}
    assert steps >= {3.0, 13.0, 93.0}


# --- a batch whose unit stands beside it, and lines of settings above a run's rows


UNITS = {4: (32, "prompts"), 8: (32 * 8, "Responses"), 32: (32 * 32, "rollouts")}


def in_units(n: int, unit: str = "batch_unit", other: str = "") -> dict[str, object]:
    batch, word = UNITS[n]
    return {"batch": batch, unit: other or word, "completions_per_problem": n, "seed": n}


def points(n: int) -> list[dict[str, object]]:
    return [{"update": step, "test_acc": score(step, n)} for step in EVALS]


def unit_log(folder: Path, kind: str, other: str = "") -> None:
    said = {n: in_units(n, "batch_counts" if kind == "beside" else "batch_unit", other)
            for n in UNITS}  # fmt: skip
    if kind == "named":  # all in one file, a line for each run above or below its rows
        heads = [{"event": "start", "run": f"job-{n}", **said[n]} for n in UNITS]
        rows = [{"event": "eval", "run": f"job-{n}", **point} for n in UNITS for point in points(n)]
        write_lines(folder / "all.jsonl", [*heads[:2], *rows, heads[2]])
    for name, n in zip("abc", UNITS if kind != "named" else (), strict=False):
        rows = points(n)
        if kind == "above":
            rows = [said[n], *rows]
        elif kind == "in_rows":
            rows = [{**said[n], **row} for row in rows]
        else:
            (folder / name).mkdir()
            (folder / name / "config.json").write_text(json.dumps({"train": said[n]}))
        write_lines(folder / name / "metrics.jsonl", rows)


@pytest.mark.parametrize("kind", ["named", "above", "in_rows", "beside"])
def test_a_batch_is_read_in_the_unit_beside_it(kind: str, tmp_path: Path) -> None:
    unit_log(tmp_path, kind)
    assert right(load(tmp_path, ["test_acc=avg"]))


@pytest.mark.parametrize("kind", ["named", "in_rows"])
def test_a_unit_that_may_be_either_is_asked_about(kind: str, tmp_path: Path) -> None:
    unit_log(tmp_path, kind, other="samples")
    said = refused(tmp_path, ["test_acc=avg"])
    assert "--map batch=problems_per_batch if it counts problems" in said
    assert "--map batch=batch_size if it counts responses" in said


def test_two_lines_of_settings_that_differ_give_a_run_neither(tmp_path: Path) -> None:
    heads = [{"run": "a", **in_units(n)} for n in (4, 8)]
    write_lines(tmp_path / "a.jsonl", [*heads, *({"run": "a", **point} for point in points(4))])
    assert "rollouts_per_problem" in refused(tmp_path, ["test_acc=avg"])


def test_a_table_with_two_units_is_read_row_by_row(tmp_path: Path) -> None:
    def table(name: str, other: str = "") -> Path:
        return write(tmp_path / name, (*in_units(4), "update", "score"), (
            (*in_units(n, other=other).values(), *point.values())
            for n in UNITS for point in points(n)
        ))  # fmt: skip

    maps = ["completions_per_problem=rollouts_per_problem"]
    assert right(load(table("t.csv"), maps))
    said = refused(table("u.csv", "samples"), maps)
    assert "row 1 has 'samples'; write one of them" in said


# --- a table of runs as JSON, beside the histories


def entries(kind: str) -> object:
    settings = {n: {"grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": n}}
                for n in (4, 8, 32)}  # fmt: skip
    if kind == "by_id":
        return {f"id{n}": {"displayName": "sweep", "config": said} for n, said in settings.items()}
    if kind == "flat":
        return [{"run_id": f"id{n}", "prompts_per_step": 32, "group_size": n} for n in settings]
    text = kind == "text"
    wrapped = {n: {key: {"value": one, "desc": None} for key, one in said.items()}
               for n, said in settings.items()}  # fmt: skip
    return [
        {"id": f"id{n}", "name": f"qwen-G{4 * n}", "state": "finished", "tags": ["a"],
         "config": json.dumps(said) if text else said, "summary": {"_step": 100, "acc": 0.5}}
        for n, said in (wrapped if kind == "wrapped" else settings).items()
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["lines", "list", "by_id", "flat", "text", "wrapped"])
@pytest.mark.parametrize("beside", [True, False])
def test_runs_take_their_settings_from_a_json_table_of_runs(
    kind: str, beside: bool, tmp_path: Path
) -> None:
    said = entries(kind)
    if isinstance(said, list) and kind in ("lines", "text"):
        write_lines(tmp_path / "export.jsonl", said)
    else:
        (tmp_path / "export.json").write_text(json.dumps(said, indent=1))
    for n in (4, 8, 32):
        home = tmp_path if beside else tmp_path / "histories"
        rows = ({"_step": step, "validation/accuracy": score(step, n)} for step in EVALS)
        write_lines(home / f"id{n}.jsonl", rows)
    assert right(load(tmp_path))


def test_a_json_table_that_lacks_a_run_gives_it_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "runs.jsonl", entries("list")[1:])  # type: ignore[index]
    for n in (4, 8, 32):
        rows = ({"_step": step, "validation/accuracy": score(step, n)} for step in EVALS)
        write_lines(tmp_path / f"id{n}.jsonl", rows)
    assert "but 'id4'" in refused(tmp_path)


# --- a file for every evaluation: a table in pieces


def in_pieces(home: Path, name: str, key: str = "update", off: int = 0) -> Path:
    for n in (4, 8, 32):
        folder = home / f"job{n}"
        (folder / name).parent.mkdir(parents=True)
        said = f"problems_per_update: 32\nsamples_per_problem: {n}\nsteps: 100\n"
        (folder / "job.yaml").write_text(said)
        for at, step in enumerate(EVALS):
            content = {"solved": 7 * at, "accuracy": score(step, n), "accuracy_of_finished": 0.9}
            if key:
                content[key] = step + off
            file = folder / name.format(f"{step:05d}", at)
            file.write_text(json.dumps(content, indent=2))
    return home


@pytest.mark.parametrize(("name", "key"), [
    ("evals/update_{}.json", "update"), ("evals/update_{}.json", ""), ("step{}.json", "step"),
    ("results/eval-{1}.json", "train_step"), ("eval/heldout_step_{}.json", ""),
])  # fmt: skip
def test_files_of_one_evaluation_each_are_one_table(name: str, key: str, tmp_path: Path) -> None:
    said = refused(in_pieces(tmp_path, name, key))
    one, other = "accuracy=avg", "accuracy_of_finished=avg"
    assert f"--map {one}" in said
    assert f"--map {other}" in said  # which of them is the score, only the user knows
    assert right(load(tmp_path, [one]))


def test_pieces_that_say_two_steps_are_refused(tmp_path: Path) -> None:
    said = refused(in_pieces(tmp_path, "evals/update_{}.json", off=3), ["accuracy=avg"])
    assert "update_00000.json is of step 0, but its update says 3" in said
    shifted = load(tmp_path, ["accuracy=avg"], ["step=update"])
    assert {c.rollouts_K[0] / 32 / c.rollouts_per_problem for c in shifted} == {3.0}


def test_files_of_several_runs_are_no_pieces_of_one(tmp_path: Path) -> None:
    for n, step in ((4, 100), (8, 200), (32, 400)):
        (tmp_path / f"n{n}.json").write_text(json.dumps({"step": step, "acc": score(step, n)}))
    said = refused(tmp_path, ["acc=avg"], ["pattern=n{rollouts_per_problem}"])
    assert "'n32'" in said  # each is a run of its own
    other = tmp_path / "other"
    other.mkdir()
    for part in (1, 2, 3):  # one step, three files
        (other / f"part{part}.json").write_text(json.dumps({"step": 100, "acc": 0.1 * part}))
    sets = ["problems_per_batch=32", "rollouts_per_problem=8"]
    assert len(load(other, ["acc=avg"], sets)) == 3


def test_pieces_of_two_sets_are_kept_apart(tmp_path: Path) -> None:
    for step in EVALS:
        for name, low in (("math", 0.0), ("aime", 0.1)):
            content = {"acc": round(score(step, 8) - low, 4)}
            (tmp_path / f"step_{step}_{name}.json").write_text(json.dumps(content))
    sets = ["problems_per_batch=32", "rollouts_per_problem=8"]
    said = refused(tmp_path, sets=sets)
    assert "--map math/acc=avg" in said
    assert right(load(tmp_path, ["math/acc=avg"], sets), ns=(8,))


# --- evaluations that every process wrote of its own part


SIZES = (60, 60, 20)


def in_parts(home: Path, name: str, *, counts: bool = True, lost: int = 0) -> Path:
    for n in (4, 8, 32):
        folder = home / f"width{n}"
        folder.mkdir(parents=True)
        said = f"[job]\nprompts_per_batch = 32 # in all\n[sample]\ncompletions_per_prompt = {n}\n"
        (folder / "run.toml").write_text(said)
        for rank, size in enumerate(SIZES):
            rows = [
                {"step": step, "loss": 0.5, "acc": round(right / size, 4),
                 **({"right": right, "seen": size} if counts else {})}
                for step in EVALS for right in [(step // 10 + 3 * rank + n * (step > 0)) % size]
                if not (lost and rank == 2 and step == lost)
            ]  # fmt: skip
            write_lines(folder / name.format(rank), rows)
    return home


@pytest.mark.parametrize("name", ["eval_rank{}.jsonl", "rank-{}.jsonl", "val.worker{}.jsonl"])
def test_parts_are_added_up_by_their_counts(name: str, tmp_path: Path) -> None:
    assert "--map acc=avg" in refused(in_parts(tmp_path, name))
    curves = load(tmp_path, ["acc=avg"])
    assert sorted(c.rollouts_per_problem for c in curves) == [4, 8, 32]
    for c in curves:
        n = c.rollouts_per_problem
        right = [sum((s // 10 + 3 * r + n * (s > 0)) % size for r, size in enumerate(SIZES))
                 for s in EVALS]  # fmt: skip
        assert c.problems_per_batch == 32
        assert c.score_K.tolist() == pytest.approx([one / sum(SIZES) for one in right])


def test_parts_without_counts_are_no_runs(tmp_path: Path) -> None:
    said = refused(in_parts(tmp_path, "eval_rank{}.jsonl", counts=False), ["acc=avg"])
    assert "each with a part of the batch; give the log of the one that gathers" in said


@pytest.mark.parametrize("where", ["rows", "head", "name"])
def test_workers_with_a_run_each_are_no_parts_of_one(where: str, tmp_path: Path) -> None:
    for worker, n in enumerate((4, 8, 32)):
        said: dict[str, object] = {"prompts_per_batch": 32, "samples_per_prompt": n}
        if where == "name":
            said |= {"run": f"w{n}"}
        rows = [{"step": s, "acc": score(s, n), "right": round(1000 * score(s, n)), "seen": 1000}
                for s in EVALS]  # fmt: skip
        lines = [said, *rows] if where == "head" else [{**said, **row} for row in rows]
        write_lines(tmp_path / f"sweep_worker{worker}.jsonl", lines)
    assert right(load(tmp_path, ["acc=avg"]))


def test_ranks_with_a_seed_each_are_no_repetitions(tmp_path: Path) -> None:
    for rank in range(2):
        said = {"prompts_per_batch": 32, "samples_per_prompt": 8, "seed": 40 + rank}
        write_lines(tmp_path / f"eval_rank{rank}.jsonl",
                    ({**said, "step": s, "acc": score(s, 8) + rank / 50} for s in EVALS))
    assert "a log must be of a whole run" in refused(tmp_path, ["acc=avg"])


def test_a_part_that_lacks_an_evaluation_is_told(tmp_path: Path) -> None:
    said = refused(in_parts(tmp_path, "eval_rank{}.jsonl", lost=40), ["acc=avg"])
    assert "eval_rank2.jsonl has none of step 40 (1 such steps)" in said


# --- lines of text that end in JSON, of several jobs in one file


def interleaved(
    path: Path, before: str, *, named: bool = True, jobs: Sequence[int] = (4, 8, 32)
) -> Path:
    """`before`: what stands in front of each object, with the place of a process number."""
    rows: list[tuple[int, str, dict[str, object]]] = []
    for n in jobs:
        said: dict[str, object] = {"prompts_per_batch": 32, "samples_per_prompt": n}
        rows.append((n, "begin", said | ({"run": f"w{n}"} if named else {})))
    for step in EVALS:
        rows += [(n, "eval", {"iteration": step, "acc": score(step, n)}) for n in jobs]
    lines = (f"{before.format(4000 + n)} {word} {json.dumps(row)}" for n, word, row in rows)
    path.write_text("loading ...\n" + "\n".join(lines) + "\ndone {}\n", "utf-8")
    return path


@pytest.mark.parametrize(
    "before", ["[12:01:07] ({})", "2026-01-05 12:01:07,125 pid={} INFO", "job-{} |", "[{}]"]
)
@pytest.mark.parametrize("named", [True, False])
def test_interleaved_jobs_are_told_apart_by_their_process(
    before: str, named: bool, tmp_path: Path
) -> None:
    log = interleaved(tmp_path / "all.out", before, named=named)
    assert "--map acc=avg" in refused(log)
    assert right(load(log, ["acc=avg"]))


def test_interleaved_jobs_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    log = interleaved(tmp_path / "all.log", "[12:01:07] INFO:", named=False)
    assert "line 2 names no process and no run" in refused(log, ["acc=avg"])
    timed = tmp_path / "timed.log"  # a number in each line that is no process
    lines = interleaved(timed, " INFO:", named=False).read_text("utf-8").splitlines()
    timed.write_text("\n".join(f"({i})" + line for i, line in enumerate(lines)) + "\n", "utf-8")
    assert "names no process and no run" in refused(timed, ["acc=avg"])
    one = interleaved(tmp_path / "one.log", "[12:01:07] INFO:", named=False, jobs=(8,))
    assert right(load(one, ["acc=avg"]), ns=(8,))


def test_a_process_that_starts_another_run_writes_that_one(tmp_path: Path) -> None:
    parts = [interleaved(tmp_path / f"{n}.x", "(77)", jobs=(n,)).read_text() for n in (4, 8, 32)]
    other = interleaved(tmp_path / "o.x", "(78)", jobs=(16,)).read_text()
    (tmp_path / "log.out").write_text("".join([*parts, other]))
    assert right(load(tmp_path / "log.out", ["acc=avg"]), ns=(4, 8, 16, 32))
