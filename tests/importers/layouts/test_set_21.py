"""Layouts of the twenty-first blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.runs.counting import parts_of
from isocompute.importers.words.settings import load_settings
from isocompute.sources import load_curves
from layout_helpers import AT, MAP, drawn, lines, load, log, of, refused, score, write

# A percent sign makes a share, whatever the range; one range holds for all runs.


def sheet(path: Path, n: int, cells: Sequence[str], name: str = "Held-out (%)") -> Path:
    rows = "".join(f"{s},{cell},40,{n}\n" for s, cell in zip(AT, cells, strict=True))
    head = f"step,{name},problems_per_batch,rollouts_per_problem\n"
    return write(path / f"n{n}.csv", head + rows)


def scores_of(source: Path) -> dict[int, list[float]]:
    settings = load_settings([], ["Held-out (%)=score"])
    curves = load_curves(source, settings=settings, score_range=(0.0, 100.0))
    return {c.rollouts_per_problem: np.round(c.score_K, 9).tolist() for c in curves}


SHARES = [round(score(s, 8), 3) for s in AT]


def test_a_percent_sign_makes_a_share_under_any_range(tmp_path: Path) -> None:
    sheet(tmp_path, 4, [f"{100 * v:.1f}" for v in SHARES])
    sheet(tmp_path, 8, [f"{100 * v:.1f}%" for v in SHARES])
    assert scores_of(tmp_path) == {4: SHARES, 8: SHARES}


def test_a_column_for_each_run_may_have_percent_signs_of_its_own(tmp_path: Path) -> None:
    rows = "".join(f"{s},{100 * v:.1f},{100 * v:.1f} %\n" for s, v in zip(AT, SHARES, strict=True))
    table = write(tmp_path / "t.csv", f"step,g4,g8\n{rows}")
    settings = load_settings(["pattern=g{rollouts_per_problem}", "problems_per_batch=40"])
    curves = load_curves(table, settings=settings, score_range=(0.0, 100.0))
    assert [np.round(c.score_K, 9).tolist() for c in curves] == [SHARES, SHARES]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_texts_of_a_parquet_may_have_percent_signs(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    cells = pa.array([f"{100 * v:.1f}%" for v in SHARES])
    cells = cells.dictionary_encode() if kind == "dictionary" else cells.cast(getattr(pa, kind)())
    table = pa.table({"Held-out (%)": cells, "steps": [*AT], "problems_per_batch": [40] * len(AT),
                      "rollouts_per_problem": [8] * len(AT)})  # fmt: skip
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert scores_of(tmp_path / "t.parquet") == {8: SHARES}


def test_a_column_for_each_update_may_have_percent_signs(tmp_path: Path) -> None:
    cells = ",".join(f"{100 * v:.1f}%" for v in SHARES)
    head = ",".join(f"u{s}" for s in AT)
    table = write(tmp_path / "t.csv", f"problems_per_batch,rollouts_per_problem,{head}\n"
                  f"40,8,{cells}\n")  # fmt: skip
    settings = load_settings(["pattern=u{steps}"])
    (curve,) = load_curves(table, settings=settings, score_range=(0.0, 100.0))
    assert np.round(curve.score_K, 9).tolist() == SHARES


def test_shares_beside_percent_stop(tmp_path: Path) -> None:
    sheet(tmp_path, 4, [f"{100 * v:.1f}" for v in SHARES])
    sheet(tmp_path, 8, [str(v) for v in SHARES])
    with pytest.raises(InputError, match=r"one range must hold for all runs, but the run of n = 8"):
        scores_of(tmp_path)
    import pyarrow as pa

    table = pa.table({"score": [50.0, 0.5], "steps": [10, 10], "problems_per_batch": [40, 40],
                      "rollouts_per_problem": [4, 8]})  # fmt: skip
    with pytest.raises(InputError, match=r"one range must hold for all runs"):
        load_curves(table, score_range=(0.0, 100.0))
    sheet(tmp_path, 8, ["0"] * len(SHARES))  # a run that never succeeds has either unit
    assert scores_of(tmp_path)[8] == [0.0] * len(SHARES)


@pytest.mark.parametrize("form", ["9", "164"])
def test_cells_that_a_workbook_shows_as_percent_are_shares(tmp_path: Path, form: str) -> None:
    """A workbook as small as Excel reads one: style 1 is a percentage, built in or of its own."""
    def cells(r: int, values: Sequence[float], style: int) -> str:
        told = (f'<c r="{c}{r}"{s}><v>{v}</v></c>' for c, v, s in
                zip("ABCD", values, ("", f' s="{style}"', "", ""), strict=True))  # fmt: skip
        return f'<row r="{r}">{"".join(told)}</row>'

    names = ("step", "Held-out (%)", "problems_per_batch", "rollouts_per_problem")
    head = '<row r="1">' + "".join(
        f'<c r="{c}1" t="inlineStr"><is><t>{name}</t></is></c>'
        for c, name in zip("ABCD", names, strict=True)) + "</row>"  # fmt: skip
    path, ns = tmp_path / "all.xlsx", "http://schemas.openxmlformats.org/"
    main_ns, office = f"{ns}spreadsheetml/2006/main", f"{ns}officeDocument/2006/relationships"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", f'<Types xmlns="{ns}package/2006/content-types"/>')
        book.writestr("_rels/.rels", f'<Relationships xmlns="{ns}package/2006/relationships">'
                      f'<Relationship Id="rId1" Type="{office}/officeDocument" '
                      'Target="xl/workbook.xml"/></Relationships>')  # fmt: skip
        book.writestr("xl/workbook.xml", f'<workbook xmlns="{main_ns}" xmlns:r="{office}"><sheets>'
                      '<sheet name="a4" sheetId="1" r:id="rId1"/>'
                      '<sheet name="b &amp; 8" sheetId="2" r:id="rId2"/></sheets></workbook>')
        book.writestr("xl/_rels/workbook.xml.rels",
                      f'<Relationships xmlns="{ns}package/2006/relationships">' + "".join(
                          f'<Relationship Id="rId{i}" Type="{office}/worksheet" '
                          f'Target="worksheets/s{i}.xml"/>' for i in (1, 2))
                      + f'<Relationship Id="rId9" Type="{office}/styles" Target="styles.xml"/>'
                      "</Relationships>")  # fmt: skip
        book.writestr("xl/styles.xml", f'<styleSheet xmlns="{main_ns}"><numFmts>'
                      '<numFmt numFmtId="164" formatCode="0.0%"/></numFmts><cellXfs>'
                      f'<xf numFmtId="0"/><xf numFmtId="{form}"/></cellXfs></styleSheet>')
        for i, n, style, times in ((1, 4, 0, 100), (2, 8, 1, 1)):
            rows = "".join(cells(2 + k, (s, round(times * v, 6), 40, n), style)
                           for k, (s, v) in enumerate(zip(AT, SHARES, strict=True)))  # fmt: skip
            book.writestr(f"xl/worksheets/s{i}.xml", f'<worksheet xmlns="{main_ns}"><sheetData>'
                          f'{head}{rows}</sheetData></worksheet>')  # fmt: skip
    assert scores_of(path) == {4: SHARES, 8: SHARES}


# Scores of different numbers of problems are no points of one curve.


def quick(n: int, key: str, small: int = 40, large: int = 400) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for s in AT:
        rows.append({"step": s, "val/accuracy": score(s, n, 0.01), key: small})
        if s % 20 == 0:
            rows.append({"step": s, "val/accuracy": score(s, n), key: large})
    return rows


@pytest.mark.parametrize("key", ["n_problems", "eval_size", "num_questions"])
def test_a_table_with_quick_checks_asks_which_scores_count(tmp_path: Path, key: str) -> None:
    rows = "".join(f"{r['step']},{r['val/accuracy']},{r[key]},40,8\n" for r in quick(8, key))
    table = write(tmp_path / "t.csv",
                  f"step,score,{key},problems_per_batch,rollouts_per_problem\n{rows}")  # fmt: skip
    told = refused(table)
    assert f"{key} says 40 (6 rows) and 400 (3 rows); choose with --where {key}=400" in told
    (curve,) = load_curves(table, where=[f"{key}=400"])
    assert curve.score_K.tolist() == [score(s, 8) for s in (0, 20, 40)]
    (curve,) = load_curves(table, where=[f"{key}=*"])
    assert curve.score_K.size == 9
    write(table, table.read_text().replace(",40,40,8", ",390,40,8"))  # some not answered in time
    assert load_curves(table)[0].score_K.size == 9


def test_a_count_that_goes_on_is_not_of_an_evaluation(tmp_path: Path) -> None:
    rows = "".join(f"{s},{score(s, 8)},{40 * s},40,8\n" for s in AT)
    head = "step,score,n_problems,problems_per_batch,rollouts_per_problem\n"
    assert load_curves(write(tmp_path / "t.csv", head + rows))[0].score_K.size == len(AT)


def test_a_log_with_quick_checks_asks_which_scores_count(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", quick(8, "num_questions"))
    own = ("problems_per_batch=40", "rollouts_per_problem=8")
    told = refused(tmp_path, MAP, own)
    assert "num_questions says 40 (6 rows) and 400 (3 rows)" in told
    assert "--set evaluation_problems=400" in told
    (curve,) = load(tmp_path, MAP, (*own, "evaluation_problems=400"))
    assert curve.score_K.tolist() == [score(s, 8) for s in (0, 20, 40)]
    told = refused(tmp_path, MAP, (*own, "evaluation_problems=77"))
    assert "evaluation_problems must be what num_questions says" in told


def test_a_count_beside_what_was_correct_is_no_batch(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "run,update,n_problems,n_correct,acc\na,1,50,20,0.4\n")
    assert "n_problems=problems_per_batch" not in refused(table)


# What names a run in the folder that was given holds its settings.


def state(home: Path, run: str, n: int) -> None:
    rows = [{"step": s, "eval_reward": score(s, n)} for s in AT]
    write(home / "out" / run / "checkpoint-50" / "trainer_state.json",
          json.dumps({"log_history": rows, "max_steps": 50, "global_step": 50}))  # fmt: skip


def recipe(n: int, run: str, **more: object) -> str:
    said = {"num_generations": n, "per_device_train_batch_size": 20, "num_processes": 2,
            "gradient_accumulation_steps": n, "seed": 5, **more}  # fmt: skip
    return "".join(f"{k}: {v}\n" for k, v in said.items()) + run


@pytest.mark.parametrize("place", ["recipes/x{n}.yaml", "a/b/{n}.yml"])
@pytest.mark.parametrize("names", ["output_dir: /data/out/{run}/\n", "run_name: {run}\n"])
def test_a_file_that_names_a_run_holds_its_settings(
    tmp_path: Path, place: str, names: str
) -> None:
    for n in (4, 8):
        state(tmp_path, f"llama-g{n}", n)
        text = recipe(n, names.format(run=f"llama-g{n}"), num_iterations=2)
        write(tmp_path / place.format(n=n), text)
    assert drawn(load(tmp_path)) == {
        (40, n, 5): [40 * n * s / 2 for s in AT] for n in (4, 8)
    }  # every batch serves two steps


@pytest.mark.parametrize("others", [
    {"r/a.yaml": (8, "llama-g4")},  # changed for the next run
    {"r/a.yaml": (4, "llama-g4"), "r/b.yaml": (4, "llama-g4\nlr: 3e-6")},  # which of them?
    {"r/a.yaml": (4, "another-g4")}, {".git/a.yaml": (4, "llama-g4")},
])  # fmt: skip
def test_a_file_that_may_be_another_s_is_not_read(
    tmp_path: Path, others: dict[str, tuple[int, str]]
) -> None:
    state(tmp_path, "llama-g4", 4)
    for place, (n, run) in others.items():
        write(tmp_path / place, recipe(n, f"output_dir: out/{run}\n"))
    told = refused(tmp_path)
    assert "must be known" in told
    assert "--set num_iterations=K" in told
    assert "it is taken as 1" in told


def test_a_batch_that_serves_several_steps_is_said_where_no_argument_is(tmp_path: Path) -> None:
    state(tmp_path, "llama-g4", 4)
    own = ["problems_per_batch=40", "rollouts_per_problem=4"]
    (run,) = read_log(tmp_path, settings=load_settings(own))
    assert any(line.startswith("num_iterations: taken as 1") for line in run.provenance.inferred)
    (run,) = read_log(tmp_path, settings=load_settings([*own, "num_iterations=5"]))
    assert run.series[0].rollouts_K.tolist() == [32 * s for s in AT]
    assert run.provenance.inferred == ("step: the log's counters move by 5 in an update",)


def test_a_loop_that_logs_its_own_n_is_not_asked_for_what_trl_has(tmp_path: Path) -> None:
    head = {"config": {"group_size": 8, "prompts_per_step": 32}}
    rows = [{"step": t, "eval_reward": score(t, 4), "reward": 0.3} for t in AT]
    log = write(tmp_path / "own.jsonl", "".join(json.dumps(row) + "\n" for row in (head, *rows)))
    maps = ["group_size=rollouts_per_problem", "prompts_per_step=problems_per_batch"]
    (run,) = read_log(log, settings=load_settings([], maps))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (32, 8)
    assert not any("num_iterations" in line for line in run.provenance.inferred)


@pytest.mark.parametrize("name", ["{}_config.json", "{}.json"])
def test_a_history_takes_the_configuration_of_its_run(tmp_path: Path, name: str) -> None:
    for n in (4, 8):
        log(tmp_path, f"qwen-{n}_history", n)
        said = {"prompts_per_step": 40, "group_size": n, "rollout_seed": 6, "seed": 1234}
        write(tmp_path / name.format(f"qwen-{n}"), json.dumps(said))
    assert drawn(load(tmp_path, MAP)) == {**of(40, 4, 6), **of(40, 8, 6)}
    runs = read_log(tmp_path, settings=load_settings([], [*MAP]))
    assert not any("gave no run" in note for run in runs for note in run.notes)


LOOP = """#!/bin/bash
BS=40   # prompts
for n in 4 8
do
  for s in 1 2; do
    NAME=phi-n${n}-x$s
    python train.py --rollout_batch_size $BS \\
      --n_samples_per_prompt $n --seed $s --to /ckpt/$NAME
  done
done
"""
LIST = "".join(
    f"train --rollout_batch_size 40 --n_samples_per_prompt {n} --seed {s} --to /x/phi-n{n}-x{s}\n"
    for n in (4, 8) for s in (1, 2)
)  # fmt: skip


@pytest.mark.parametrize("text", [LOOP, LIST])
def test_a_script_of_several_runs_says_each_one_s(tmp_path: Path, text: str) -> None:
    for n in (4, 8):
        for s in (1, 2):
            lines(tmp_path / f"phi-n{n}-x{s}.jsonl",
                  ({"step": t, "val/accuracy": score(t, n, s / 1e3)} for t in AT))  # fmt: skip
    write(tmp_path / "sweep.sh", text)
    assert drawn(load(tmp_path, MAP)) == {k: v for n in (4, 8) for s in (1, 2)
                                          for k, v in of(40, n, s).items()}  # fmt: skip


@pytest.mark.parametrize("text", [
    'for n in "$@"; do train --rollout_batch_size 40 --n_samples_per_prompt $n --to phi-n4; done',
    "if a; then\nN=4\nelse\nN=16\nfi\ntrain --rollout_batch_size 40 --n_samples_per_prompt $N "
    "--to phi-n4\n",
    "train --rollout_batch_size 4 --n_samples_per_prompt 4 --to phi-n4\n"
    "train --rollout_batch_size 8 --n_samples_per_prompt 4 --to phi-n4\n",
    "if a; then\nB=4\nelse\nB=16\nfi\n" + "".join(
        f"train --rollout_batch_size $B --n_samples_per_prompt 4 --to {run}\n"
        for run in ("phi-n4", "phi-m4")),
])  # fmt: skip
def test_a_script_whose_caller_decides_says_nothing(tmp_path: Path, text: str) -> None:
    write(log(tmp_path, "phi-n4", 4) / "go.sh", text)
    assert "must be known" in refused(tmp_path, MAP)


def test_commands_of_one_run_say_what_they_share(tmp_path: Path) -> None:
    text = "".join(
        f"{do} --rollout_batch_size 40 --n_samples_per_prompt 4 --lr {lr} --to phi-n4\n"
        for do, lr in (("train", 1e-6), ("train --resume", 5e-7)))  # fmt: skip
    write(log(tmp_path, "phi-n4", 4) / "go.sh", text)
    assert drawn(load(tmp_path, MAP)) == of(40, 4, None)


def test_a_script_far_above_the_folder_given_is_not_its(tmp_path: Path) -> None:
    log(tmp_path / "a" / "b", "phi-n4", 4)
    write(tmp_path / "go.sh", "train --rollout_batch_size 40 --n_samples_per_prompt 4 --to phi-n4")
    assert "must be known" in refused(tmp_path / "a" / "b", MAP)
    assert drawn(load(tmp_path / "a", MAP)) == of(40, 4, None)


RUNS = "run,problems_per_batch,rollouts_per_problem,seed\nphi-n4,40,4,1\nphi-n8,40,8,2\n"


@pytest.mark.parametrize("place", ["runs.csv", "x/runs.csv", "x/y/runs.csv", "x/y/z/runs.csv"])
def test_a_table_of_runs_lies_anywhere_above_the_logs(tmp_path: Path, place: str) -> None:
    for n in (4, 8):
        log(tmp_path / "x" / "y" / "z", f"phi-n{n}", n)
    write(tmp_path / place, RUNS)
    assert drawn(load(tmp_path, MAP)) == {**of(40, 4, 1), **of(40, 8, 2)}


def test_a_table_above_that_names_other_runs_is_not_theirs(tmp_path: Path) -> None:
    for run, n in (("a", 4), ("c", 8)):
        log(tmp_path / "x" / "y", run, n)
    write(tmp_path / "x" / "runs.csv", RUNS.replace("phi-n4", "a").replace("phi-n8", "b"))
    runs = read_log(tmp_path, settings=load_settings([], [*MAP]))
    assert [run.problems_per_batch for run in runs] == [None, None]


SWEEP = """problems_per_update: 40
seed: 3
runs:
  a:
    group_size: 4
  b:
    group_size: 8
"""


def test_a_sweep_s_yaml_is_a_table_of_runs(tmp_path: Path) -> None:
    rows = "".join(f"{run},{s},{score(s, n)},300\n" for run, n in (("a", 4), ("b", 8))
                   for s in AT)  # fmt: skip
    table = write(tmp_path / "t" / "all.csv", f"run,update,acc,n_problems\n{rows}")
    write(tmp_path / "t" / "grid.yaml", SWEEP)
    said: list[str] = []
    settings = load_settings([], ["acc=score"])
    curves = load_curves(table, settings=settings, say=said.append)
    assert drawn(curves) == {**of(40, 4, 3), **of(40, 8, 3)}
    assert "read from grid.yaml beside it" in said[0]
    for n, run in ((4, "a"), (8, "b")):
        log(tmp_path / "l", run, n)
    write(tmp_path / "l" / "grid.yaml", SWEEP)
    assert drawn(load(tmp_path / "l", MAP)) == {**of(40, 4, 3), **of(40, 8, 3)}


# Counters.


def looped(path: Path, n: int, parts: int, key: str = "update") -> None:
    said = {"prompts_per_step": 40, "group_size": n, "num_updates": 50, "seed": 2}
    rows: list[dict[str, object]] = [{"mb": 0, "score": score(0, n)}]
    for u in range(1, 51):
        rows += [{"mb": parts * (u - 1) + i, "loss": 0.1} for i in range(1, parts + 1)]
        rows += [{key: u, "mb": parts * u, "lr": 1e-6}]
        rows += [{"mb": parts * u, "score": score(u, n)}] * (u % 10 == 0)
    lines(path / f"r{n}" / "log.jsonl", rows)
    write(path / f"r{n}" / "config.json", json.dumps(said))


@pytest.mark.parametrize(("key", "sets"), [
    ("update", ()), ("update", ("step=update",)), ("done", ("step=done",)),
])  # fmt: skip
def test_rows_that_count_parts_of_an_update_stand_at_it(
    tmp_path: Path, key: str, sets: tuple[str, ...]
) -> None:
    looped(tmp_path, 4, 8, key)
    looped(tmp_path, 16, 2, key)
    maps = ("score=avg",)
    assert drawn(load(tmp_path, maps, sets)) == {**of(40, 4, 2), **of(40, 16, 2)}
    run = read_log(tmp_path / "r4", settings=load_settings([*sets], [*maps]))[0]
    assert f"step: mb is 8 times {key} wherever both stand" in " ".join(run.provenance.inferred)


def test_what_counts_parts_must_be_one_and_in_several_rows() -> None:
    rows = [{"update": u, "mb": 8 * u} for u in (1, 2, 3)]
    rest = [{"mb": i, "loss": 0.1} for i in (7, 8)] + [{"mb": 16, "score": 0.5}]
    parts = parts_of([*rows, *rest], ["update"])
    assert parts is not None
    assert [parts.at(row) for row in (*rest, rows[0], {"mb": 17, "score": 0.5})] == [
        None, None, 2, None, None]  # fmt: skip
    assert parts_of([*rows[:2], *rest], ["update"]) is None
    assert parts_of([*({**row, "toks": 9 * row["update"]} for row in rows), *rest],
                    ["update"]) is None  # fmt: skip


def test_a_log_that_goes_on_counts_from_where_it_begins(tmp_path: Path) -> None:
    lines(tmp_path / "r4" / "log.jsonl", (
        {"gs": 500 + u, "update": u, "score": score(u, 4)} for u in range(10, 60, 10)))
    write(tmp_path / "r4" / "config.json", json.dumps(
        {"prompts_per_step": 40, "group_size": 4, "num_updates": 50, "seed": 2}))  # fmt: skip
    (curve,) = load(tmp_path, ("score=avg",), ("step=gs", "begins=500"))
    assert curve.rollouts_K.tolist() == [160 * u for u in range(10, 60, 10)]


def test_a_counter_beyond_the_log_s_plan_stops_with_both(tmp_path: Path) -> None:
    looped(tmp_path, 4, 8)
    told = refused(tmp_path, ("score=avg",), ("step=mb", "steps=400"))
    assert "mb counts to 400 and update to the 50 that are planned" in told
    assert "--set step=update" in told


@pytest.mark.parametrize(("first", "updates"), [(0, 50), (1, 49)])
def test_a_counter_from_0_ends_one_before_its_count(
    tmp_path: Path, first: int, updates: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": s, "progress/batch": s, "env/all/reward/total": score(s, 4),
             **({"test/env/all/correct": score(s, 4)} if s % 10 == 0 else {})}
            for s in range(first, 50)]  # fmt: skip
    lines(tmp_path / "m4" / "metrics.jsonl", rows)
    write(tmp_path / "m4" / "config.json",
          json.dumps({"dataset_builder": {"batch_size": 40, "group_size": 4, "seed": 1}}))
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "s"), "--preview"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["m4"])
    assert row.split()[3] == str(updates)


# Checkpoints that lm-evaluation-harness scored, in folders of their models' paths.


def result(path: Path, model: str, value: float) -> None:
    write(path / "results_2026-01-01T00-00-00.json", json.dumps({
        "results": {"mmlu": {"alias": "mmlu", "sample_len": 300, "acc,none": value,
                             "acc_stderr,none": 0.02}},
        "n-samples": {"mmlu": {"effective": 300}}, "model_name": model}))  # fmt: skip


def test_the_result_of_the_model_that_runs_began_with_is_their_step_0(tmp_path: Path) -> None:
    for n in (4, 8):
        for s in (10, 20, 30):
            result(tmp_path / f"ck__phi-n{n}__global_step_{s}__actor__hf", "ck", score(s, n))
    result(tmp_path / "org__base", "org/base", 0.11)
    write(tmp_path / "go.sh", "".join(
        f"t data.train_batch_size=40 actor_rollout_ref.rollout.n={n} data.seed=1 "
        f"actor_rollout_ref.model.path=org/base trainer.experiment_name=phi-n{n}\n"
        for n in (4, 8)))  # fmt: skip
    curves = load(tmp_path)
    assert drawn(curves) == {(40, n, 1): [40.0 * n * s for s in (0, 10, 20, 30)] for n in (4, 8)}
    assert {c.score_K[0] for c in curves} == {0.11}
    assert {c.metric for c in curves} == {"avg"}
    runs = read_log(tmp_path)
    assert not any("gave no run" in note for run in runs for note in run.notes)
    assert all("org/base" in " ".join(run.provenance.inferred) for run in runs)
    result(tmp_path / "ck__phi-n4__global_step_0__hf", "ck", 0.12)
    (own,) = (run for run in read_log(tmp_path) if run.name == "phi-n4")
    assert own.series[0].score_K[0] == 0.12
    assert "org/base" not in " ".join(own.provenance.inferred)


# What is said.


def test_runs_without_a_seed_are_told_how_to_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log(tmp_path / "l", "phi_n4", 4)
    words = ["import", str(tmp_path / "l"), "-o", str(tmp_path / "s"), "--map", MAP[0]]
    words += ["--set", "problems_per_batch=40", "--set", "rollouts_per_problem=4"]
    assert main(words) == 0
    assert "Seeds: none is logged; add --set seed=SEED" in capsys.readouterr().out
    assert main([*words, "--set", "seed=3"]) == 0
    assert "Seeds:" not in capsys.readouterr().out


@pytest.mark.parametrize(("share", "told"), [(0.75, False), (0.5, True)])
def test_a_log_s_own_batch_is_doubted_by_whole_factors_alone(
    tmp_path: Path, share: float, told: bool
) -> None:
    rows = [{"step": s, "data": {
        "val-core/gsm8k/reward/mean@1": score(s, 8), "response_length/mean": 200.0,
        "prompt_length/mean": 100.0, "perf/total_num_tokens": 320 * 300 * share}} for s in AT]
    lines(tmp_path / "v8" / "log.jsonl", rows)
    write(tmp_path / "v8" / "config.yaml",
          "data:\n  train_batch_size: 40\nactor_rollout_ref:\n  rollout:\n    n: 8\n")  # fmt: skip
    (run,) = read_log(tmp_path)
    assert any("B_p * n is 320" in note for note in run.notes) == told
    lines(tmp_path / "w" / "log.jsonl", rows)  # the user's own are held against it closely
    own = ("problems_per_batch=40", "rollouts_per_problem=8")
    assert "correct --set problems_per_batch" in refused(tmp_path / "w", (), own)
