"""`iso.fit` and what it gives: the command line's answers, as tables, from anything tabular."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import isocompute as iso
from isocompute.answers import fit_sweep, plan_from_source
from isocompute.cli.fit_short import fit_lines
from isocompute.errors import InputError
from isocompute.notebook import Table
from isocompute.notebook.words import in_python
from isocompute.runner import run_study
from isocompute.sources import load_curves
from study_helpers import small_study

SOURCE = "published:qwen2.5-7b-hard"
FILE = resources.files("isocompute") / "data" / "published" / "qwen2.5-7b-hard.csv"


@pytest.fixture(scope="module")
def sweep() -> iso.Sweep:
    return iso.fit(SOURCE)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Twelve points of each of two n, without noise."""
    x = np.linspace(2e4, 2e5, 12)
    return pd.DataFrame({
        "problems_per_batch": 32,
        "rollouts_per_problem": np.repeat([8, 64], 12),
        "rollouts": np.tile(x, 2),
        "score": np.concatenate([0.1 + 0.1 * np.log10(x / 1e4), 0.1 + 0.2 * np.log10(x / 1e4)]),
        "run": np.repeat(["a", "b"], 12),
    })  # fmt: skip


def same(curves: list, others: list) -> bool:
    return len(curves) == len(others) and all(
        (a.configuration, a.run, a.seed) == (b.configuration, b.run, b.seed)
        and np.array_equal(a.rollouts_K, b.rollouts_K)
        and np.array_equal(a.score_K, b.score_K)
        for a, b in zip(curves, others, strict=True)
    )


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_table_in_memory_is_read_as_its_file(
    kind: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame = frame.assign(seed=[0.0] * 12 + [None] * 12)
    frame.to_csv(tmp_path / "t.csv", index=False)
    made = {"pandas": lambda: frame, "polars": lambda: pl.from_pandas(frame),
            "arrow": lambda: pa.Table.from_pandas(frame)}[kind]()  # fmt: skip
    curves = load_curves(made)
    assert same(curves, load_curves(tmp_path / "t.csv"))
    assert [c.seed for c in curves] == [0, None]
    assert same(load_curves(made, where=["run=b"]), curves[1:])


def test_the_best_n_scores_as_it_was_logged(frame: pd.DataFrame) -> None:
    """A sweep in percent printed a plan of 59.1, and 0.591 as the score of its best n."""
    plain = iso.fit(frame).best(1e5).to_frame()
    percent = iso.fit(frame.assign(score=100 * frame.score), score_range=(0, 100))
    shown = percent.best(1e5).to_frame()
    for name in ("score", "score_low", "score_high"):
        assert shown[name][0] == pytest.approx(100 * plain[name][0], rel=1e-4)


def test_a_table_is_asked_as_a_file_is(frame: pd.DataFrame) -> None:
    with pytest.raises(iso.InputError, match="the table: .* score is missing"):
        iso.fit(frame.drop(columns="score"))
    with pytest.raises(iso.InputError, match=r"the table: `score` must be in 0\.\.1, but row 3"):
        iso.fit(frame.assign(score=[0.1, 0.2, 7.0] + [0.5] * 21))
    in_percent = frame.assign(score=100 * frame.score)
    assert load_curves(in_percent, score_range=(0, 100))[0].score_K[0] == frame.score[0]
    with pytest.raises(iso.InputError, match="each column must be of one type .* but .*convert it"):
        iso.fit(frame.assign(run=[1, "a"] * 12))
    names = [*frame.columns[:-1], "score"]
    with pytest.raises(iso.InputError, match="under a name of its own, but .*Duplicate"):
        iso.fit(frame.set_axis(names, axis=1))
    with pytest.raises(iso.InputError, match="column names must be unique, but 'score' occurs"):
        iso.fit(pa.Table.from_pandas(frame).rename_columns(names))
    with pytest.raises(iso.InputError, match="or a table .* but got a int; give one of these"):
        iso.fit(3)


@pytest.mark.heavy
def test_what_a_table_leaves_out_is_a_warning(frame: pd.DataFrame) -> None:
    with pytest.warns(UserWarning, match="the table: 1 rows are copies") as seen:
        iso.fit(pd.concat([frame, frame[:1]]))
    assert seen[0].filename == __file__
    heard: list[str] = []
    iso.fit(pd.concat([frame, frame[:1]]), say=heard.append)
    assert len(heard) == 1


@pytest.mark.heavy
def test_a_sweep_shows_what_the_command_line_prints(sweep: iso.Sweep) -> None:
    lines, shown = fit_lines(sweep.document), repr(sweep).split("\n")
    assert shown[:-1] == lines[: len(shown) - 1]
    assert shown[-1].endswith(' notes: .notices    Picture: .report("report.html")')
    assert len(shown) <= 14
    assert sweep._repr_html_().startswith("<pre>avg@4, 5 runs")
    assert [row["code"] for row in sweep.notices] == [one.code for one in sweep.fit.notices]


def test_an_ok_sweep_names_the_plan_in_python(sweep: iso.Sweep) -> None:
    document = {**sweep.document, "notices": [], "verdict": {"level": "ok", "reason": ""}}
    vars(sweep.fit)["document"], before = document, sweep.document
    try:
        assert 'Next: .plan("5.9M")\n' in repr(sweep)
    finally:
        vars(sweep.fit)["document"] = before


def test_the_best_by_budget(sweep: iso.Sweep) -> None:
    (row,) = sweep.best(2e6)
    at = sweep.fit.best_at(2e6)
    assert (row["best_n"], row["score"]) == (at.rollouts_per_problem, at.score)
    assert (row["best_n_low"], row["best_n_high"]) == at.interval
    assert (row["score_low"], row["score_high"]) == at.score_interval
    assert sweep.best("2M")["rollouts"] == [2e6]
    assert sweep.best([1e6, "2e6"])["rollouts"] == pytest.approx([1e6, 2e6])
    assert len(sweep.best()) == len(sweep.document["best"]) == len(sweep.to_frame())
    assert iso.parse_budget(5e5) == iso.parse_budget("5e5")
    with pytest.raises(iso.InputError, match="one of fix, joint, .*metric.*, but got problemset;"):
        iso.fit(SOURCE, problemset="math")
    with pytest.raises(iso.InputError, match="must be written to a file, but '/proc/x/r.html' giv"):
        sweep.report("/proc/x/r.html")
    with pytest.raises(iso.InputError, match="a budget must be in rollouts, .* but got '400gpuh'"):
        sweep.best("400gpuh")
    assert sweep.best(np.int64(2_000_000))["rollouts"] == [2e6]
    assert sweep.best(np.array([1e6, 2e6]))["rollouts"] == pytest.approx([1e6, 2e6])


def test_a_budget_in_hours_is_answered_where_every_run_was_timed(sweep: iso.Sweep) -> None:
    runs = [c.replace(gpu_hours_K=c.rollouts_K / 1000) for c in sweep.fit.curves]
    timed = iso.Sweep(fit=sweep.fit.again("rollouts", runs), names=sweep.names)
    (row,) = timed.best("2000gpuh")
    assert row["gpu-hours"] == 2000
    assert row["score"] == pytest.approx(sweep.best(2e6)[0]["score"], abs=1e-6)
    (other,) = timed.best("2e6")
    assert other["rollouts"] == 2e6
    with pytest.raises(InputError, match="a budget must be in rollouts, or in what every run"):
        timed.best("5e9tok")
    hours = iso.Sweep(fit=timed.fit.again("gpu-hours"), names=sweep.names)
    assert hours.best("400gpuh")["gpu-hours"] == [400]


def test_a_budget_below_a_step_is_refused(sweep: iso.Sweep) -> None:
    with pytest.raises(InputError, match="a budget must hold a step of the smallest batch"):
        sweep.best([100, 1e6])


def test_no_option_of_the_command_line_is_named_in_python() -> None:
    line = "Before you spend: nothing: every check costs more than it can gain (--why)."
    assert in_python(line) == line.replace(" (--why)", "")
    # Of a command for a shell they stay.
    command = "isocompute design --budget 2e6 --rollouts-per-gpu-hour 900 -o study.yaml"
    assert in_python(f"  1. see\n     {command}") == f"  1. see\n     {command}"
    said = "say the learning rate of your runs: --set learning_rate=RATE"
    assert in_python("n = 8: --unit gpu-hours\n") == 'n = 8: unit="gpu-hours"\n'
    assert in_python(said).endswith('runs: settings={"learning_rate": RATE}')


def test_errors_name_the_arguments_of_python(sweep: iso.Sweep, frame: pd.DataFrame) -> None:
    """They named options of the command line, which a notebook cannot give."""
    with pytest.raises(iso.InputError, match=r"choose one with problem_set\.$"):
        iso.fit(frame.assign(problem_set=["a", "b"] * 12))
    with pytest.raises(iso.InputError, match=r'add settings=\{"problems_per_batch": B_P\} if all'):
        iso.fit(frame.drop(columns="problems_per_batch"))
    with pytest.raises(iso.InputError, match=r"for percent score_range=\(0, 100\)"):
        iso.fit(frame.assign(score=100 * frame.score))
    with pytest.raises(iso.InputError, match=r"^fix must name problems_per_batch or batch_size"):
        iso.fit(frame, fix=("seed", 1))  # type: ignore[arg-type]
    with pytest.raises(iso.InputError, match=r'^joint and fix .* both \(fix=\("batch_size", 8\)\)'):
        iso.fit(frame, fix=("batch_size", 8), joint=True)
    assert in_python("with a --range of its own") == "with a score_range of its own"
    assert in_python("give --range -1 3.") == "give score_range=(-1, 3)."
    with pytest.raises(iso.InputError, match=r"known; add rollouts_per_gpu_hour \(your last run"):
        sweep.plan("400gpuh")
    with pytest.raises(iso.InputError, match=r"with your own price add usd_per_gpu_hour=2\.$"):
        sweep.plan("$400", rollouts_per_gpu_hour=900)


def test_a_selection_is_one_word_several_or_a_mapping(frame: pd.DataFrame) -> None:
    """One word was taken apart by its letters, and a mapping for its keys."""
    (only,) = load_curves(frame, where=["run=b", "rollouts_per_problem=64"])
    for where in ("run=b", {"run": "b"}, {"run": "b", "rollouts_per_problem": 64}):
        assert same(load_curves(frame, where=where), [only])


def test_a_plan_is_that_of_the_command_line(sweep: iso.Sweep) -> None:
    plan = sweep.plan("2e6", trainer="trl")
    same_plan = plan_from_source(SOURCE, budget=iso.parse_budget("2e6"), fit=sweep.fit)
    assert plan.allocation == same_plan.allocation
    assert plan.document == same_plan.document
    assert plan.settings["num_generations"] == plan.allocation.rollouts_per_problem
    assert "num_generations=" in repr(plan)
    assert "give rollouts_per_gpu_hour" in repr(plan)
    assert " notes: .notices" in repr(plan)
    # a sweep is designed in a shell, all else here
    assert "--" not in repr(plan).replace("isocompute design --budget 2e6 -o study.yaml", "")
    assert plan.to_frame()["steps"].item() == plan.allocation.steps
    assert plan.notices["code"] == [one["code"] for one in plan.document["notices"]]
    assert plan._repr_html_().startswith("<pre>Run: 32 problems")
    assert 'Trainer settings: trainer="verl"' in repr(sweep.plan(2e6))


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("current", 8, "gain"),
        ("current", (32, 8), "gain"),
        ("difficulty", "easy", "difficulty"),
        ("max_batch", 512, "rollouts_per_problem"),
        ("min_steps", 2000, "rollouts_per_problem"),
        ("only_n", [8], "rollouts_per_problem"),
        ("problems", 100, "passes_over_data"),
        ("tokens_per_rollout", 900.0, "cost"),
        ("rollouts_per_gpu_hour", 900.0, "cost"),
        ("usd_per_gpu_hour", 2.5, "cost"),
    ],
)
def test_every_option_of_a_plan_counts(
    sweep: iso.Sweep, option: str, value: object, key: str
) -> None:
    assert sweep.plan("2e6", **{option: value}).document[key] != sweep.plan("2e6").document[key]


def test_todays_setting_in_the_words_of_the_command_line(sweep: iso.Sweep) -> None:
    pair = sweep.plan("2e6", current=(32, 8)).document["gain"]
    assert sweep.plan("2e6", current="n=8,bp=32").document["gain"] == pair
    for text in ("n=8", "8"):
        assert sweep.plan("2e6", current=text).document["gain"]["rollouts_per_problem"] == 8
    for bad, message in {
        "8b": r"`current` must be n=16 or n=16,bp=32, but got '8b'; or give n, or \(B_p, n\)",
        "bp=32": "`current` must name n, as in n=16,bp=32, but got 'bp=32'",
        "n=half": "`current` must hold whole numbers >= 1, but got 'n=half'",
        "n=0": "`current` must hold whole numbers >= 1, but got 'n=0'",
    }.items():
        with pytest.raises(iso.InputError, match=message):
            sweep.plan("2e6", current=bad)


def test_settings_are_printed_as_they_are_pasted(sweep: iso.Sweep) -> None:
    for processes in (None, 4):
        plan = sweep.plan("2e6", trainer="TRL", processes=processes)
        whole = plan.document["batch_size"]
        keys = plan.settings
        micro, steps = keys["per_device_train_batch_size"], keys["gradient_accumulation_steps"]
        assert micro * steps * (processes or 1) == whole
        first = str(keys).splitlines()[0]
        assert first.startswith("# for 4 processes" if processes else "# for one process:")
        assert first in repr(plan)
    with pytest.raises(iso.InputError, match='^processes belongs to trainer="trl"'):
        sweep.plan("2e6", processes=4)
    for processes in (0, -2):
        with pytest.raises(InputError, match=rf"`processes >= 1` must hold, but got {processes}"):
            sweep.plan("2e6", trainer="trl", processes=processes)


def test_a_fixed_batch_is_split(sweep: iso.Sweep) -> None:
    plan = sweep.plan(batch_size=2048, steps=100)
    assert (plan.allocation.steps, plan.document["batch_size"]) == (100, 2048)


def test_settings_need_a_trainer_and_a_plan(sweep: iso.Sweep) -> None:
    with pytest.raises(iso.InputError, match=r"no trainer was named; ask for it: sweep\.plan"):
        _ = sweep.plan(2e6).settings
    with pytest.raises(iso.InputError, match="a trainer must be one of .*verl.* but got 'x'"):
        sweep.plan(2e6, trainer="x")


@pytest.mark.heavy
def test_runs_that_do_not_learn_give_no_plan(frame: pd.DataFrame) -> None:
    plan = iso.fit(frame.assign(score=1 - frame.score)).plan(2e5, trainer="trl")
    assert plan.allocation is None
    assert repr(plan).startswith("No plan: ")
    with pytest.raises(iso.InputError, match="but there is no plan"):
        _ = plan.settings


@pytest.mark.heavy
def test_options_of_a_fit_count(frame: pd.DataFrame) -> None:
    joint = f"{SOURCE}-joint"
    fixed = iso.fit(joint, fix=("problems_per_batch", 64))
    assert fixed.document["setting"] == {"kind": "fixed_problems_per_batch", "value": 64}
    assert iso.fit(SOURCE, joint=True).document["setting"]["kind"] == "joint"
    fell = frame.assign(score=frame.score - 0.1 * (frame.rollouts > 1.5e5))
    assert iso.fit(fell, select="final").best(2e5)["score"] < iso.fit(fell).best(2e5)["score"]
    with pytest.raises(iso.InputError, match="tokens"):
        iso.fit(SOURCE, unit="tokens")


@pytest.mark.heavy
def test_what_a_source_does_not_say_is_a_mapping(frame: pd.DataFrame, tmp_path: Path) -> None:
    whole, lacking = iso.fit(frame), tmp_path / "lacking.csv"
    b_p = int(frame.problems_per_batch.iloc[0])
    frame.drop(columns="problems_per_batch").to_csv(lacking, index=False)
    for name in ("problems_per_batch", "bp"):
        said = iso.fit(lacking, settings={name: b_p})
        assert said.document["best"] == whole.document["best"]
    with pytest.raises(iso.InputError, match=r"a setting must be one of .* but got 'problems'"):
        iso.fit(lacking, settings={"problems": b_p})


@pytest.mark.heavy
def test_several_sources_are_one_sweep(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame[:12].to_csv(tmp_path / "a.csv", index=False)
    sweep = iso.fit([tmp_path / "a.csv", frame[12:]])
    assert sweep.names == (str(tmp_path / "a.csv"), "the table")
    assert len(sweep.document["curves"]) == 2
    assert sweep.plan(2e5).document["learning_rate_from"] == "Qwen2.5-7B-Instruct"


@pytest.mark.heavy
def test_a_report_is_written(sweep: iso.Sweep, tmp_path: Path) -> None:
    path = sweep.report(tmp_path / "r.html", plan=sweep.plan("2e6"), title="Mine")
    page = path.read_text("utf-8")
    assert "<title>Mine" in page
    assert "problems per batch" in page
    plain = sweep.report(tmp_path / "s.html", beside=[iso.fit("published:qwen2.5-7b-easy")])
    assert "published:qwen2.5-7b-easy" in plain.read_text("utf-8")


@pytest.mark.heavy
def test_the_report_of_a_study_has_its_health(tmp_path: Path) -> None:
    run_study(small_study(ns=(2, 4, 8), rollouts=1024), tmp_path / "study", workers=0)
    page = iso.fit(tmp_path / "study").report(tmp_path / "r.html").read_text("utf-8")
    assert "Health of the runs" in page


def test_figures_by_name(sweep: iso.Sweep) -> None:
    assert "law" in sweep.figures
    assert "direction" not in sweep.figures  # one B_p
    figure = sweep.figure("law")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes
    with pytest.raises(iso.InputError, match="a figure must be one of learning-curves, .*'lore'"):
        sweep.figure("lore")


def test_a_table_shows_itself_and_becomes_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"n": i, "score": i / 100, "of": [1, 2], "name": "<b>"} for i in range(40)]
    table = Table(rows)
    assert table["n"][-1] == 39
    assert table[1] == rows[1]
    assert len(table[:3]) == 3
    assert list(table) == rows
    assert repr(table).split("\n")[0].split() == ["n", "score", "of", "name"]
    assert repr(table).split("\n")[2].split() == ["1", "0.010", "1,", "2", "<b>"]
    assert repr(table).endswith("10 more rows")
    assert "<td>&lt;b&gt;</td>" in table._repr_html_()
    assert repr(Table([])) == "no rows"
    assert table.to_frame()["score"].sum() == pytest.approx(7.8)
    assert table.to_arrow().num_rows == 40
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(iso.InputError, match="`to_frame` needs pandas, but it is not installed"):
        table.to_frame()


def test_large_counts_are_short() -> None:
    assert repr(Table([{"rollouts": 2_000_000}])).split() == ["rollouts", "2M"]
    assert repr(Table([{"f": 2e6, "b": True}])).split() == ["f", "b", "2M", "True"]


@pytest.mark.heavy
def test_the_fit_of_the_published_file_is_the_one_fit(sweep: iso.Sweep) -> None:
    assert sweep.document["best"] == fit_sweep(load_curves(SOURCE)).document["best"]
