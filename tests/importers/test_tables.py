"""Tables as other teams publish them: read as they are where that is no guess, else one line."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from isocompute.errors import InputError
from isocompute.importers import load_settings, load_tidy, read_log, settings_from
from isocompute.importers.given import tables_or_runs
from isocompute.importers.published import load_published
from isocompute.importers.tables.table import lacking
from isocompute.sources import load_curves

HEAD = "problems_per_batch,rollouts_per_problem,rollouts,score,seed"
STEPS = range(0, 80, 10)
ROWS = [f"16,{n},{16 * n * t},{0.1 + t / 1000},0" for n in (4, 8) for t in STEPS]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def plain(path: Path) -> Path:
    return write(path, "\n".join([HEAD, *ROWS]) + "\n")


def numbers(path: Path, **options: object) -> list[tuple[int, int, list[float], list[float]]]:
    return [
        (c.problems_per_batch, c.rollouts_per_problem, c.rollouts_K.tolist(), c.score_K.tolist())
        for c in load_tidy(path, **options)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a.csv", lambda t: t.replace(",", ";")),
        ("a.tsv", lambda t: t.replace(",", "\t")),
        ("a.csv", lambda t: "# our sweep\n# 2026\n" + t),
        ("a.csv", lambda t: "\ufeff" + t),
        ("a.csv", lambda t: t.replace("\n", "\r\n")),
        ("a.csv", lambda t: t.replace(ROWS[5], f"{ROWS[5]}\n{HEAD}")),  # cat a.csv b.csv
        ("a.csv", lambda t: t + ROWS[3] + "\n"),  # a row that is there twice counts once
        ("a.csv", lambda t: t.replace("rollouts_per_problem", "Rollouts per problem")),
    ],
)
def test_forms_of_one_table_give_the_same_curves(tmp_path: Path, name: str, change) -> None:
    expected = numbers(plain(tmp_path / "plain.csv"))
    text = change(plain(tmp_path / "plain.csv").read_text(encoding="utf-8"))
    assert numbers(write(tmp_path / name, text)) == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert [c.score_K.tolist() for c in load_curves([packed])] == [e[3] for e in expected]


def test_steps_are_rollouts_of_a_known_batch(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "problems_per_batch,rollouts_per_problem,step,score\n16,4,0,0.1\n16,4,10,0.2\n",
    )
    assert numbers(path) == [(16, 4, [0.0, 640.0], [0.1, 0.2])]


def test_columns_under_other_names_and_constants(tmp_path: Path) -> None:
    path = write(tmp_path / "n8.csv", "iteration,val_acc,pass4\n0,0.1,0.3\n10,0.2,\n")
    settings = settings_from(
        {
            "problems_per_batch": 16,
            "pattern": "n{rollouts_per_problem}",
            "step": "iteration",
            "columns": {"val_acc": "avg@4", "pass4": "best@4"},
        }
    )
    first, second = load_tidy(path, settings=settings)
    assert (first.metric, first.rollouts_per_problem) == ("avg@4", 8)
    assert first.rollouts_K.tolist() == [0, 1280]
    assert (second.metric, second.score_K.tolist(), second.n_missing) == ("best@4", [0.3], 1)
    names = settings_from({"columns": {"C": "rollouts", "n": "rollouts_per_problem"}})
    other = write(tmp_path / "b.csv", "problems_per_batch,n,C,score\n16,4,64,0.5\n")
    assert numbers(other, settings=names) == [(16, 4, [64.0], [0.5])]


def test_the_table_overrides_the_settings(tmp_path: Path) -> None:
    settings = load_settings(["problems_per_batch=99", "seed=7"])
    curves = load_tidy(plain(tmp_path / "a.csv"), settings=settings)
    assert {(c.problems_per_batch, c.seed) for c in curves} == {(16, 0)}


def test_one_column_per_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "wide.csv", "step,bp16_n4,bp16_n8\n0,0.1,0.1\n10,0.2,\n20,,0.4\n")
    pattern = "bp{problems_per_batch}_n{rollouts_per_problem}"
    curves = load_tidy(path, settings=settings_from({"pattern": pattern}))
    assert [(c.rollouts_per_problem, c.rollouts_K.tolist(), c.n_missing) for c in curves] == [
        (4, [0, 640], 0),
        (8, [0, 2560], 0),
    ]


def test_scores_of_several_seeds_under_one_name_are_counted(tmp_path: Path) -> None:
    runs = [(t, seed) for seed in range(3) for t in range(9)]
    rows = "".join(f"16,4,{64 * t},{0.1 + t / 100 + seed / 1000}\n" for t, seed in runs)
    head = HEAD.removesuffix(",seed")
    (curve,) = load_tidy(write(tmp_path / "a.csv", f"{head}\n{rows}"))
    assert curve.n_repeated == 18
    assert len(curve.score_K) == 27
    published = load_published("qwen2.5-7b-easy")
    assert sum(len(c.score_K) for c in published) == 2079  # dots that lie on one point stay
    assert 0 < sum(c.n_repeated for c in published) < 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C,n,score\n1,2,0.5\n", r"it has C, n, score\); add --map n=rollouts_per_problem "
         r"--map C=rollouts if they hold these; --set problems_per_batch=B_P if all"),
        (HEAD.replace(",", ";") + "\n16;4;64;0,5;0\n16;4;1,152;0,5;0\n",
         "row 2 has '1,152'; write plain numbers"),
        (HEAD + "\n16,4,\"1,152\",0.5,0\n", "row 1 has '1,152'; write plain numbers"),
        (HEAD + "\n16,4,64,12%,0\n16,4,96,0.2,0\n", "row 1 has '12%'; write plain numbers"),
        (HEAD + "\n16,4,64,x,0\n", "row 1 has 'x'; correct or empty that cell"),
        (HEAD + "\n" + "16,4,64,0.5,0\n16,4,64,0.6,0\n" * 3 + "16,4,64,0.7,0\n16,4,64,0.8,0\n"
         "16,4,64,0.71,0\n16,4,64,0.72,0\n", "must be cumulative, but all 6 rows"),
    ],
)  # fmt: skip
def test_what_would_be_a_guess_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_tidy(write(tmp_path / "a.csv", text))


def test_rollouts_that_begin_again_within_a_run_are_refused(tmp_path: Path) -> None:
    head = "problems_per_batch,rollouts_per_problem,run,steps,rollouts,score"
    rows = [f"16,4,a,{step},{64 * step},0.{step}" for step in (10, 20, 30)]
    again = [f"16,4,a,{step},{64 * (step - 30) + 10},0.{step}" for step in (40, 50, 200)]
    path = write(tmp_path / "a.csv", "\n".join([head, *rows, *again]))
    message = (r"`rollouts` must not fall while steps rise, but run a has 1,280 at step 20 and 650 "
               r"at step 40; count both over the whole run, also after a resume")  # fmt: skip
    with pytest.raises(InputError, match=message):
        load_tidy(path)
    (whole,) = load_tidy(write(tmp_path / "b.csv", "\n".join([head, *rows])))
    assert whole.rollouts_K.tolist() == [640, 1280, 1920]


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_is_read(tmp_path: Path, name: str, encoding: str) -> None:
    plain = load_tidy(write(tmp_path / "plain.csv", "\n".join([HEAD, *ROWS])))
    text = "\n".join([HEAD, *ROWS]).replace(",", "\t")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path = write(tmp_path / name, mark + text, encoding=encoding)
    for a, b in zip(plain, load_tidy(path), strict=True):
        assert a.score_K.tolist() == b.score_K.tolist()
        assert a.rollouts_K.tolist() == b.rollouts_K.tolist()
    with pytest.raises(InputError, match="is a table of columns problems_per_batch, .* fit as it"):
        read_log(path)


def test_a_run_that_changes_its_n_is_refused(tmp_path: Path) -> None:
    rows = [f"16,{n},{c},0.5,r0" for n in (4, 8) for c in range(800 * n, 1600 * n, 80 * n)]
    path = write(tmp_path / "a.csv", "\n".join([HEAD.replace("seed", "run"), *rows]))
    with pytest.raises(InputError, match="run 'r0' goes over from .* at 6,400 rollouts"):
        load_tidy(path)
    apart = [row.replace("r0", "r1") if row.startswith("16,8") else row for row in rows]
    write(path, "\n".join([HEAD.replace("seed", "run"), *apart]))
    assert np.sum([len(c.score_K) for c in load_tidy(path)]) == 20


def test_the_line_about_missing_columns_leaves_out_what_was_said(tmp_path: Path) -> None:
    path = write(tmp_path / "n8.csv", "x,y\n1000,0.2\n2000,0.3\n")
    said = load_settings(["problems_per_batch=32", "pattern=n{rollouts_per_problem}"])
    with pytest.raises(InputError, match="but rollouts, score are missing") as info:
        load_tidy(path, settings=said)
    assert "add --map KEY=rollouts with your own column (B_p * n * step" in str(info.value)
    assert str(info.value).endswith("--map KEY=score with your own column.")
    with pytest.raises(InputError, match="rollouts_per_problem, rollouts, score are missing"):
        load_tidy(path)


def theirs(path: Path, *, columns: str = "", cell: str = "") -> Path:
    """Two runs of each n in the words of another team."""
    rows = [
        f"g{n}-{letter},{t},16,{n},{0.1 + t / 1000 + 0.001 * (letter == 'b') * (t > 20)}{extra}"
        for n in (4, 8) for letter in "ab" for t in STEPS
        for extra in [cell and f",{cell.split()[letter == 'b']}"]
    ]  # fmt: skip
    head = f"run_name,global_step,train_batch_size,rollout_n,gsm8k/acc{columns and ',' + columns}"
    return write(path, "\n".join([head, *rows]) + "\n")


MAPS = ("train_batch_size=problems_per_batch", "rollout_n=rollouts_per_problem", "gsm8k/acc=score")


def test_a_table_in_the_words_of_others_is_asked_for_in_a_line_that_works(tmp_path: Path) -> None:
    path = theirs(tmp_path / "a.csv")
    batch, *others = MAPS
    wanted = " ".join(f"--map {one}" for one in others)
    wanted = f"; add {wanted} if they hold these; and --map {batch} if it counts problems, --map "
    with pytest.raises(InputError, match=re.escape(f"{wanted}train_batch_size=batch_size if it ")):
        load_tidy(path)
    # the column of steps is enough: rollouts are not asked for
    curves = load_tidy(path, settings=load_settings([], MAPS))
    assert [(c.configuration, c.run) for c in curves] == [
        ((16, n), f"g{n}-{letter}") for n in (4, 8) for letter in "ab"
    ]
    assert curves[2].rollouts_K.tolist() == [16 * 8 * t for t in STEPS]


def test_runs_that_differ_in_their_learning_rate_are_no_repetitions(tmp_path: Path) -> None:
    path = theirs(tmp_path / "a.csv", columns="learning_rate", cell="1e-6 2e-6")
    settings = load_settings([], MAPS)
    with pytest.raises(InputError, match=r"16 x 4 have 1e-06, 2e-06; choose .*rate=1e-06, or keep"):
        load_tidy(path, settings=settings)
    (c, _) = load_tidy(path, settings=settings, where={"learning_rate": "1e-6"})
    assert c.run == "g4-a"
    assert len(load_tidy(path, settings=settings, where={"learning_rate": "*"})) == 4
    path.write_text(path.read_text().replace("run_name", "whatever"))  # two runs as one
    with pytest.raises(InputError, match=r"one run must share their learning_rate, but at 0 r"):
        load_tidy(path, settings=settings)


def test_a_column_that_tells_repeated_rows_apart_is_named(tmp_path: Path) -> None:
    path = theirs(tmp_path / "a.csv", columns="size", cell="small large")
    path.write_text(path.read_text().replace("run_name", "whatever"))
    with pytest.raises(InputError, match="of one kind, but column size has large, small"):
        load_tidy(path, settings=load_settings([], MAPS))
    path = theirs(tmp_path / "b.csv", columns="size", cell="1 2")
    path.write_text(path.read_text().replace("run_name", "whatever"))
    said: list[str] = []
    load_tidy(path, settings=load_settings([], MAPS), say=said.append)
    assert said[-1].endswith("evaluations of it; they differ in column whatever: add --map "
                             "whatever=run if each of its values is a run of its own")  # fmt: skip
    named = load_settings([], [*MAPS, "whatever=run"])
    said.clear()
    assert len(load_tidy(path, settings=named, say=said.append)) == 4
    assert [line.partition("differ in ")[2][:11] for line in said] == ["size (1, 2)"]


def test_a_map_is_pairs_or_a_file_or_both(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("problems_per_batch: 8\ncolumns: {a: best@4}\n")
    both = load_settings([], [str(file), "eval/x=y=avg@2"])
    assert both.problems_per_batch == 8
    assert {k: c.metric.label for k, c in both.columns.items()} == {"a": "best@4",
                                                                    "eval/x=y": "avg@2"}
    with pytest.raises(InputError, match="must look like avg@4, best@4"):
        load_settings([], ["a=avg@@"])


def test_the_scores_of_a_table_without_metrics_go_by_the_name_of_their_column(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.csv", f"{HEAD},best\n" + "\n".join(f"{row},0.9" for row in ROWS))
    assert {c.score_K[0] for c in load_curves(path, metric="score")} == {0.1}
    assert {c.score_K[0] for c in load_curves(path, metric="best")} == {0.9}
    with pytest.raises(InputError, match="one of 'best', 'score', but got 'worst'"):
        load_curves(path, metric="worst")


@pytest.mark.heavy
def test_a_table_of_very_many_columns_is_looked_at_once(tmp_path: Path) -> None:
    """Four times the columns are four times the work, not sixteen; of 50,000, minutes."""

    def calls(columns: int) -> int:
        path, count = tmp_path / f"{columns}.csv", 0
        names = ",".join(f"c{i}" for i in range(columns))
        path.write_text(names + "\n" + ",".join(["1"] * columns) + "\n")

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            with pytest.raises(InputError, match=f"and {columns - 12} more"):
                load_curves(path)
        finally:
            sys.setprofile(before)
        return count

    calls(400)  # what is done once is behind
    assert calls(1_600) < 5 * calls(400)
    path = tmp_path / "twice.csv"
    path.write_text(",".join([*(f"c{i}" for i in range(400)), "c7"]) + "\n")
    with pytest.raises(InputError, match="unique, but 'c7' occurs more than once"):
        load_curves(path)


@pytest.mark.parametrize("kind", ["texts", "dictionary"])
def test_a_missing_text_is_no_other_row_s_text(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    sets = pa.array(["math", None, "aime", "math", None, "aime"])
    table = pa.table({
        "problems_per_batch": [16] * 6, "rollouts_per_problem": [8] * 6,
        "rollouts": [128, 128, 128, 256, 256, 256], "score": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "problem_set": sets.dictionary_encode() if kind == "dictionary" else sets,
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    curves = load_tidy(tmp_path / "t.parquet")
    found = {c.problem_set: c.score_K.tolist() for c in curves}
    assert found == {"math": [0.1, 0.4], "": [0.2, 0.5], "aime": [0.3, 0.6]}


OF_A_FRAME = [
    {"problems_per_batch": 8, "rollouts_per_problem": n, "rollouts": 8 * n * k, "score": 0.1 * k,
     "run": f"r{n}", "metric": "avg@4"} for n in (2, 4) for k in range(4)
]  # fmt: skip


@pytest.mark.parametrize("name", ["c.jsonl", "c.json", "c.ndjson"])
def test_rows_of_curves_are_read_from_json(tmp_path: Path, name: str) -> None:
    lines = "\n".join(map(json.dumps, OF_A_FRAME))
    (tmp_path / name).write_text(json.dumps(OF_A_FRAME, indent=1) if name == "c.json" else lines)
    for source in (tmp_path / name, tmp_path):
        found = {c.rollouts_per_problem: (c.rollouts_K.tolist(), c.metric)
                 for c in load_curves([source])}  # fmt: skip
        assert found == {n: ([8.0 * n * k for k in range(4)], "avg@4") for n in (2, 4)}


@pytest.mark.parametrize(("text", "says"), [
    (json.dumps([*OF_A_FRAME, 3]), "a row must be an object"),
    (json.dumps(OF_A_FRAME) + "]", "not JSON"),
    ("\n".join(map(json.dumps, OF_A_FRAME)) + '\n{"problems_per', "cannot be read as one"),
    (json.dumps([*OF_A_FRAME, {**OF_A_FRAME[0], "score": "high"}]), "cannot be read"),
])  # fmt: skip
def test_json_that_is_no_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=says):
        load_curves([tmp_path / "c.json"])


def test_json_rows_with_a_step_are_a_log(tmp_path: Path) -> None:
    rows = [{**OF_A_FRAME[k], "step": k, "acc": 0.3 * k, "rollouts": 16 * k} for k in range(4)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tables, (run,) = tables_or_runs(tmp_path / "c.jsonl", None, None)
    assert (tables, run.problems_per_batch, run.rollouts_per_problem) == ([], 8, 2)


def test_of_many_columns_of_one_name_some_are_said(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(",".join(f"c{i // 2}" for i in range(100)) + "\n")
    with pytest.raises(InputError, match=r"'c0', .* and [0-9]+ more occurs more than once"):
        load_curves([tmp_path / "c.csv"])


def test_cells_that_lack_a_value() -> None:
    texts = ["4", "", None, " N/A ", "nan", "-", "none", "n", "\u2013", "0"]
    missing = [False, True, True, True, True, True, True, False, True, False]
    assert lacking(pa.chunked_array([texts])).tolist() == missing
    numbers = pa.chunked_array([[4.0, None, np.nan, 0.0]])
    assert lacking(numbers).tolist() == [False, True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no names that are no text")
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_name_that_is_no_text(tmp_path: Path, suffix: str) -> None:
    import pyarrow.parquet as parquet

    rows = [line.split(",") for line in ROWS]
    columns = {name: [float(row[i]) if name == "score" else int(row[i]) for row in rows]
               for i, name in enumerate(HEAD.split(","))}  # fmt: skip
    table, path = pa.table(columns), tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    expected = numbers(path)
    assert expected == numbers(path.rename(tmp_path / f"\udcff.{suffix}"))
    with pytest.raises(InputError, match="is a table of columns"):
        read_log(tmp_path / f"\udcff.{suffix}")
