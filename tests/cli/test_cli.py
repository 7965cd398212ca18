"""The command line: contracts, bad input in one line, nothing written where nothing should be."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute import __version__, answers, report
from isocompute.allocation import parse_budget
from isocompute.answers import plan as planning
from isocompute.cli import main
from isocompute.cli.output import check_target, strict_json
from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.files import drafted, write_text
from isocompute.report import figures
from isocompute.sources import studies

_FIT_SWEEP = answers.fit_sweep
ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("problems_per_batch", "rollouts_per_problem", "rollouts", "score", "seed", "metric")
Rows = list[list[Any]]


def sweep(n_values: Sequence[int] = (8, 32, 128), seeds: Sequence[int] = (0, 1, 2)) -> Rows:
    """Larger n starts later and ends higher: ceilings 0.5, 0.6, 0.7 with crossings between."""
    rng = np.random.default_rng(5)
    rows: Rows = []
    for i, n in enumerate(n_values):
        for seed in seeds:
            for x in np.geomspace(2e3, 2e6, 25):
                level = 1 / (1 + math.exp(-4 * (math.log10(x) - 4.0 - 0.45 * i)))
                score = 0.1 + (0.4 + 0.1 * i) * level + rng.normal(0, 0.004)
                rows.append([32, n, int(x), round(score, 4), seed, "avg@4"])
    return rows


def write_csv(path: Path, rows: Rows, columns: Sequence[str] = COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def sweep_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("sweep") / "sweep.csv", sweep())


@pytest.fixture(autouse=True)
def fits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sweep is fitted once for the whole file; what is asked for stays the same."""
    monkeypatch.setattr(answers, "fit_sweep", _fit_once)
    monkeypatch.setattr(planning, "fit_sweep", _fit_once)


_FITS: dict[Any, Any] = {}


def _fit_once(curves: Sequence[Curve], **options: Any) -> Any:
    key = (
        repr(sorted(options.items())),
        *((c.run, c.metric, c.rollouts_per_problem, c.score_K.tobytes()) for c in curves),
    )
    if key not in _FITS:
        _FITS[key] = _FIT_SWEEP(curves, **options, draws=100)
    return _FITS[key]


def run_process(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    environment["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.run(
        [sys.executable, "-m", "isocompute", *args],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("isocompute: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# The parser


def test_help_names_every_command_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in (
        "run", "status", "watch", "doctor", "fit", "plan", "compare", "report", "export",
    ):  # fmt: skip
        assert f"\n    {command} " in out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"isocompute {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from isocompute.cli import main; main(['plan', '--help']);"
        "heavy = {'torch', 'scipy', 'numpy', 'pyarrow', 'plotly', 'matplotlib', 'rich'};"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "a command must be named; begin with `isocompute quickstart`"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["fitt"], "invalid choice: 'fitt', did you mean 'fit'? See `isocompute --help`."),
        (["fit"], "the following arguments are required: SOURCE; see `isocompute fit --help`"),
        (["fit", "x.csv", "--fix", "n=8"], "must be problems_per_batch=VALUE"),
        (["fit", "x.csv", "--fix", "batch_size=1.5"], "must be a whole number, but got '1.5'"),
        (["fit", "x.csv", "--fix", "batch_size=8", "--joint"], "not allowed with"),
        (["fit", "x.csv", "--unit", "steps"], "invalid choice: 'steps'"),
        (["fit", "x.csv", "--range", "0", "nan"], "must be a finite number, but got 'nan'"),
        (["fit", "x.csv", "--nope"], "unknown option --nope; see `isocompute fit --help`."),
        (["plan", "x.csv", "--law", "y.csv"], "one SOURCE, but got x.csv, y.csv; name one"),
        (["plan", "x.csv", "--budget", "1e6", "y.csv"], "one SOURCE, but got x.csv, y.csv"),
        (["plan", "x.csv", "$4k"], "a budget stands behind its option: --budget '$4k'"),
        (["plan", "--max-problems", "3"], "--max-problems, did you mean --problems?"),
        (["plan", "--budgit", "3"], "unknown option --budgit, did you mean --budget? See"),
        (["fit", "x.csv", "--method", "law"], "invalid choice: 'law'"),
        (["fit", "x.csv", "--bin-width", "0.1"], "--bin-width belongs to --method paper, but got"),
        (["fit", "x", "--method", "paper", "--bin-width", "0"], "must be above 0, but got '0'"),
        (["plan", "--budget", "1e6", "--current", "bp=32"], "must name n, as in n=16,bp=32"),
        (["plan", "--budget", "1e6", "--current", "16b"], "must be n=16 or n=16,bp=32, but got"),
        (["plan", "--budget", "1e6", "--current", "n=8,n=9"], "must be n=16 or n=16,bp=32"),
        (["plan", "--budget", "1e6", "--problems", "0"], "must be above 0, but got '0'"),
        (["plan", "--budget", "1e6", "--fix", "batch_size=8", "--joint"], "not allowed with"),
        (["plan"], "or both batch size and steps, but got none of them"),
        (["plan", "--budget", "1e6", "--steps", "5"], "but got budget and steps"),
        (["plan", "--max-batch", "0"], "must be above 0, but got '0'"),
        (["plan", "--budget", "1e6", "--for", "nobody"], "invalid choice: 'nobody'"),
        (["plan", "--budget", "1e6", "--difficulty", "odd"], "invalid choice: 'odd'"),
        (["plan", "--budget", "0"], "a budget must be a finite amount > 0"),
        (["plan", "--budget", "-5"], "a budget must be a finite amount > 0"),
        (["plan", "--budget", "many"], "a budget must be a finite amount > 0"),
        (["plan", "--budget", "1e999"], "a budget must be a finite amount > 0"),
        (["plan", "--budget", "5 parsecs"], "one of the units"),
    ],
)
def test_bad_options_are_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert words in complaint(capsys)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("64gpux3d", 64 * 72, "gpu_hours"),
        ("64xH100x72h", 64 * 72, "gpu_hours"),
        ("8 x A100 x 1.5d", 8 * 36, "gpu_hours"),
        ("200 gpu-hours", 200, "gpu_hours"),
        ("200gpu_hours", 200, "gpu_hours"),
        ("8GPU x 12h", 96, "gpu_hours"),
        ("8gpusx1.5h", 12, "gpu_hours"),
        ("$10000", 10_000, "usd"),
        ("$1,500", 1_500, "usd"),
        ("$10k", 10_000, "usd"),
        ("5e9tok", 5e9, "tokens"),
        ("2M", 2e6, "rollouts"),
    ],
)
def test_budgets_as_people_write_them(text: str, amount: float, unit: str) -> None:
    budget = parse_budget(text)
    assert (budget.amount, budget.unit) == (pytest.approx(amount), unit)


def test_a_budget_in_thousands_or_millions_is_no_rollout_short() -> None:
    assert [parse_budget(text).amount for text in ("64.1k", "32.3k", "2.3M", "4.6T")] == [
        64_100, 32_300, 2_300_000, 4_600_000_000_000,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["64gpux3w", "gpux3d", "$", "$x", "$5gpuh", "0gpux3d", "$-5",
                                  "64xx3d", "-"])  # fmt: skip
def test_what_is_no_budget_is_refused_as_it_was_written(text: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"but got {text!r}; write for example 2e6")):
        parse_budget(text)


@pytest.mark.heavy
def test_a_trainer_in_any_case_its_processes_and_todays_n_alone(
    sweep_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", str(sweep_csv), "--budget", "2e5", "--current", "32"]
    file = tmp_path / "plan.json"
    assert main([*asked, "--for", "TRL", "--processes", "2", "--quiet", "--json", str(file)]) == 0
    first, micro, steps, *_ = capsys.readouterr().out.splitlines()
    d = json.loads(file.read_text())
    assert d["gain"]["rollouts_per_problem"] == 32
    batch = 2 * int(micro.partition("=")[2]) * int(steps.partition("=")[2])
    assert batch == d["batch_size"]
    assert first.startswith("# for 2 processes: 2 x ")
    assert "for each of 2 processes" in d["trainer_units"]["trl"]
    assert main([*asked, "--for", "verl", "--processes", "2"]) == 2
    assert "--processes belongs to --for trl" in capsys.readouterr().err
    page = str(tmp_path / "page.html")
    told = ["report", str(sweep_csv), "--for", "trl", "--processes", "2", "-o", page]
    assert main([*told, "--budget", "2e5"]) == 0
    assert "# for 2 processes: 2 x " in Path(page).read_text("utf-8")
    assert main([*told[:4], "-o", page, "--plan", str(file)]) == 0  # as the file says it
    assert "# for 2 processes: 2 x " in Path(page).read_text("utf-8")
    capsys.readouterr()
    assert main(["plan", "--budget"]) == 2
    assert "expected one argument, such as 2e6, or '$5000' in quotes" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["000", "00", "0", "", "0k", ",500", " "])
def test_what_a_shell_leaves_of_money_is_told_how_to_be_quoted(text: str) -> None:
    with pytest.raises(InputError, match=r"the shell took .*: write '\$5000' in quotes, or 5000u"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["400h", "2days", "72 hours", "1.5d"])
def test_a_time_alone_is_told_to_name_its_gpus(text: str) -> None:
    with pytest.raises(InputError, match="a time needs its GPUs: write for example 8gpux2d"):
        parse_budget(text)


# Bad input


def changed(column: str, value: Any) -> Rows:
    rows = sweep()
    rows[7][COLUMNS.index(column)] = value
    return rows


BAD_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing column": (
        lambda p: write_csv(p, [r[:3] for r in sweep()], COLUMNS[:3]),
        "score is missing",
    ),
    "infinite rollouts": (lambda p: write_csv(p, changed("rollouts", "inf")), "finite and >= 0"),
    "negative rollouts": (lambda p: write_csv(p, changed("rollouts", -1)), "finite and >= 0"),
    "score above the range": (lambda p: write_csv(p, changed("score", 1.5)), "in 0..1"),
    "score below the range": (lambda p: write_csv(p, changed("score", -0.5)), "in 0..1"),
    "text in a number": (lambda p: write_csv(p, changed("score", "good")), "must hold numbers"),
    "no score in a configuration": (
        lambda p: write_csv(p, [r if r[1] != 32 else [*r[:3], "", *r[4:]] for r in sweep()]),
        "score",
    ),
    "empty file": (lambda p: p.write_bytes(b""), "must not be empty"),
    "header only": (lambda p: write_csv(p, []), "at least 1 row"),
    "binary file": (lambda p: p.write_bytes(bytes(range(256)) * 40), "x.csv"),
    "no file": (lambda p: None, "x.csv"),
    "a folder that is no study": (lambda p: p.mkdir(), "x.csv"),
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("command", ["fit", "plan", "compare"])
def test_bad_files_are_one_line_and_write_nothing(
    case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, words = BAD_FILES[case]
    source = tmp_path / "x.csv"
    make(source)
    out = tmp_path / "out.json"
    argv = {
        "fit": ["fit", str(source)],
        "plan": ["plan", "--budget", "1e6", "--law", str(source)],
        "compare": ["compare", str(source), str(source)],
    }[command]
    assert main([*argv, "--json", str(out)]) == 2
    assert words in complaint(capsys)
    assert sorted(p.name for p in tmp_path.iterdir()) == (["x.csv"] if source.exists() else [])


def test_scores_on_another_scale_are_read_with_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    percent = [[*r[:3], r[3] * 100, *r[4:]] for r in sweep()]
    source = write_csv(tmp_path / "percent.csv", percent)
    assert main(["fit", str(source)]) == 2
    assert "--range" in complaint(capsys)
    assert main(["fit", str(source), "--range", "0", "100", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert max(c["ceiling"] for c in document["curves"]) < 1.0


@pytest.mark.parametrize(
    "argv", [["fit", "published:nobody"], ["plan", "--budget", "1e6", "--law", "published:nobody"]]
)
def test_an_unknown_law_lists_the_known(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert "published:qwen2.5-7b-easy" in complaint(capsys)


def test_a_name_that_is_near_is_offered(
    sweep_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(sweep_csv.with_name("sweeps.csv"))]) == 2
    assert f"sweeps.csv. Did you mean {sweep_csv}?" in complaint(capsys)


@pytest.mark.heavy
def test_a_budget_below_twenty_steps_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    assert main(["plan", "--budget", "100", "--json", str(out)]) == 2
    assert "`steps >= 20` must hold, which takes 5,120 rollouts" in complaint(capsys)
    assert not out.exists()


def test_an_unknown_metric_is_bad_input(
    sweep_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(sweep_csv), "--metric", "best@7"]) == 2
    assert "best@7" in complaint(capsys)


def test_one_n_is_planned_with_caution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_csv(tmp_path / "one.csv", sweep(n_values=(8,)))
    assert main(["fit", str(source)]) == 0
    out = capsys.readouterr().out
    assert "n = 8 alone was tested" in out
    assert "Wrong n" not in out
    assert main(["plan", "--budget", "1e6", "--law", str(source), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["level"] == "caution"


@pytest.mark.heavy
def test_a_verdict_of_stop_is_a_refusal_with_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    falls = [[*r[:3], round(0.9 - r[3], 4), *r[4:]] for r in sweep()]
    source = write_csv(tmp_path / "loss.csv", falls)
    assert main(["fit", str(source), "--full"]) == 0  # it says why
    out = " ".join(capsys.readouterr().out.split())
    assert "Confidence: stop. " in out
    assert "end lower than they began. If these scores are losses, use" in out
    document = tmp_path / "plan.json"
    argv = ["plan", "--budget", "1e6", "--law", str(source), "--json", str(document)]
    assert main(argv) == 3
    complaint(capsys)
    plan = json.loads(document.read_text())
    assert plan["refusal"]["run_next"]
    assert plan["rollouts_per_problem"] is None


# What good input gives


def test_fit_writes_the_contract(sweep_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit.json"
    assert main(["fit", str(sweep_csv), "--json", str(out)]) == 0
    document = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(name))
    for key in ("version", "setting", "metric", "unit", "level", "provenance", "curves",
                "frontier", "crossovers", "law", "backtest", "warnings"):  # fmt: skip
        assert key in document
    assert document["setting"] == {"kind": "fixed_problems_per_batch", "value": 32}
    assert len(document["law"]["at"]) >= 20


def test_fit_reads_for_people(sweep_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(sweep_csv)]) == 0
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "avg@4, 9 runs: 32 problems (B_p) x 8 to 128 rollouts (n), up to 2M rollouts"
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 80
    for words in ("Best n ", "Wrong n ", "Predicts ", "Batch or n ", "Confidence: ", "--full"):
        assert words in out
    assert "\x1b[" not in out


def test_fit_names_the_command_that_plans_what_a_study_was_for(
    sweep_csv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "study_facts", lambda source: studies.StudyFacts(target=7e6))
    for whole in ([], ["--full"]):
        assert main(["fit", str(sweep_csv), *whole]) == 0
        out = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
        assert f"isocompute plan {sweep_csv} --budget 7M" in out


def test_fit_in_full(sweep_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(sweep_csv), "--full"]) == 0
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    assert "best so far" in flat
    assert "the largest n 0." in flat
    for words in ("Best n ", "Curves:", "Frontier, by rollouts:", "Law of log2 n*", "Back-test",
                  "Published method", "[n_confounded_with_batch]", "█"):  # fmt: skip
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_published_method_stands_under_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["fit", "published:qwen2.5-7b-easy", "--method", "paper"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("avg@4 by the published method (arXiv 2603.12151)\n")
    assert "n = 8 to 242k, 32 to 973k, 128 to 1.49M, 256 to 2.78M, 512." in out
    assert "n = 1,024 and 2,048 were run and do not extend the frontier" in out
    assert "Confidence" not in out
    assert max(map(len, out.splitlines())) <= 80
    found = {}
    for width in ("0.002", "0.01"):
        assert main([*argv, "--bin-width", width, "--json", "-"]) == 0
        found[width] = json.loads(capsys.readouterr().out)
        assert found[width]["method"] == "paper"
        assert found[width]["paper"]["bin_width"] == float(width)
    assert found["0.002"]["paper"]["crossovers"] != found["0.01"]["paper"]["crossovers"]


def test_the_published_method_of_one_batch_size(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["fit", "published:qwen2.5-7b-easy-joint", "--method", "paper", "--json", "-"]
    assert main([*argv, "--fix", "problems_per_batch=64"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["setting"] == {"kind": "fixed_problems_per_batch", "value": 64}
    assert {c["problems_per_batch"] for c in document["paper"]["curves"]} == {64}


def test_json_on_standard_output_is_alone_there(
    sweep_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--budget", "1e6", "--law", str(sweep_csv), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2


@pytest.fixture(scope="module")
def published_plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("plan") / "plan.json"
    argv = ["plan", "--budget", "4e6", "--law", "published:qwen2.5-7b-easy", "--json", str(out)]
    assert main(argv) == 0
    document: dict[str, Any] = json.loads(out.read_text())
    return document


def test_plan_on_the_published_easy_law(published_plan: dict[str, Any]) -> None:
    d = published_plan
    assert 256 <= d["rollouts_per_problem"] <= 512
    assert d["problems_per_batch"] == 32
    batch = d["problems_per_batch"] * d["rollouts_per_problem"]
    assert batch * d["steps"] == d["rollouts"] <= 4e6
    assert d["batch_size"] == batch
    assert d["learning_rate"] == pytest.approx(1e-6 * math.sqrt(batch / 1024))
    assert d["recipe"]["kl_coef"] > 0  # the easy recipe
    assert d["refusal"] is None
    assert d["trainer"]["verl"]["data.train_batch_size"] == 32
    assert d["trainer"]["trl"]["max_steps"] == d["steps"]
    assert 0.6 < d["predicted_score"] < 0.75
    assert d["verdict"]["level"] == "caution"
    codes = [w["code"] for w in d["notices"]]
    assert codes == [w["code"] for w in d["warnings"]]
    assert "law_of_another_model" in codes
    assert "bp_untested" in codes


@pytest.mark.heavy
def test_the_default_law_is_the_published_one_of_the_difficulty(
    published_plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--budget", "4e6", "--difficulty", "easy", "--json", "-"]) == 0
    easy = json.loads(capsys.readouterr().out)
    assert easy["rollouts_per_problem"] == published_plan["rollouts_per_problem"]
    assert main(["plan", "--budget", "2e6", "--difficulty", "hard", "--json", "-"]) == 0
    hard = json.loads(capsys.readouterr().out)
    assert hard["law"]["source"] == "published:qwen2.5-7b-hard"
    assert hard["recipe"]["kl_coef"] == 0
    assert hard["rollouts_per_problem"] < easy["rollouts_per_problem"]


def test_without_a_difficulty_easy_is_assumed_and_said(
    sweep_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--budget", "1e6", "--law", str(sweep_csv), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "difficulty_assumed" in [w["code"] for w in document["warnings"]]


def test_a_batch_cap_names_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--budget", "4e6", "--law", "published:qwen2.5-7b-easy"]
    assert main([*argv, "--max-batch", "4096", "--json", "-"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert d["batch_size"] <= 4096
    text = next(w["text"] for w in d["notices"] if w["code"] == "capped_by_max_batch")
    assert "limit n to" in text
    assert main([*argv, "--min-steps", "2000", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] >= 2000


def test_a_fixed_batch_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--batch-size", "8192", "--steps", "300", "--json", "-"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert d["problems_per_batch"] * d["rollouts_per_problem"] == 8192
    assert d["steps"] == 300


@pytest.mark.heavy
def test_costs_follow_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    rates = ["--rollouts-per-gpu-hour", "5000", "--usd-per-gpu-hour", "2",
             "--tokens-per-rollout", "1000"]  # fmt: skip
    assert main(["plan", "--budget", "1600usd", *rates, "--json", "-"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert d["budget_rollouts"] == pytest.approx(4e6)
    assert d["cost"]["usd"] == pytest.approx(d["rollouts"] / 5000 * 2)
    assert d["cost"]["tokens"] == pytest.approx(d["rollouts"] * 1000)
    assert main(["plan", "--budget", "4e9tok", *rates, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["budget_rollouts"] == pytest.approx(4e6)


def test_plan_reads_like_advice(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--budget", "4e6", "--difficulty", "easy"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Run: 32 problems x ")
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    assert main([*argv, "--why"]) == 0
    out = capsys.readouterr().out
    assert "Why n = " in out
    assert "[law_of_another_model]" in out
    assert "The study's own law" in out
    assert main([*argv, "--for", "verl"]) == 0
    assert "data.train_batch_size=32" in capsys.readouterr().out


def test_plan_quiet_gives_what_is_copied(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--budget", "4e6", "--difficulty", "easy", "--quiet"]
    assert main(argv) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main([*argv, "--for", "verl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data.train_batch_size=32"
    assert all("=" in line for line in lines)


def test_plan_says_what_it_gains_over_today(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--budget", "4e6", "--difficulty", "easy", "--json", "-"]
    assert main([*argv, "--current", "n=16,bp=32"]) == 0
    gain = json.loads(capsys.readouterr().out)["gain"]
    assert (gain["problems_per_batch"], gain["rollouts_per_problem"]) == (32, 16)
    assert gain["score"] > 0.03


def test_plan_counts_passes_over_the_problems(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--budget", "4e6", "--difficulty", "easy", "--json", "-"]
    assert main([*argv, "--problems", "500"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert d["passes_over_data"] == pytest.approx(d["steps"] * d["problems_per_batch"] / 500)


@pytest.mark.heavy
def test_plan_takes_the_setting_of_a_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [[*r, r[2] * 500] for r in sweep()] + [[64, *r[1:], r[2] * 500] for r in sweep()]
    source = str(write_csv(tmp_path / "two.csv", rows, (*COLUMNS, "tokens")))
    argv = ["plan", "--law", source, "--budget", "1e6", "--json", "-"]
    assert main([*argv, "--fix", "problems_per_batch=64"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert d["problems_per_batch"] == 64
    assert d["law"]["setting"] == {"kind": "fixed_problems_per_batch", "value": 64}
    assert main([*argv, "--joint"]) == 0
    assert json.loads(capsys.readouterr().out)["law"]["setting"]["kind"] == "joint"
    argv[argv.index("1e6")] = "5e8tok"
    assert main([*argv, "--fix", "problems_per_batch=64", "--unit", "tokens"]) == 0
    assert json.loads(capsys.readouterr().out)["law"]["unit"] == "tokens"


def test_compare_prints_and_writes(
    sweep_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    better = [[*r[:3], r[3] + 0.1, *r[4:]] for r in sweep()]
    b = write_csv(tmp_path / "b.csv", better)
    assert main(["compare", str(sweep_csv), str(b), "--json", str(tmp_path / "c.json")]) == 0
    out = capsys.readouterr().out
    assert f"{b} is better" in out
    document = json.loads((tmp_path / "c.json").read_text())
    shared = len(document["configurations"])  # what the columns of the best do not show
    assert f" at equal rollouts, mean of the {shared} (B_p, n) of both; A is " in out
    assert document["at"][0]["difference"] == pytest.approx(0.1)


def test_a_refusal_is_an_answer_for_programs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (write_csv(tmp_path / f"{n}.csv", [r for r in sweep() if r[1] == n]) for n in (8, 32))
    assert main(["compare", str(a), str(b), "--json", "-"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], list(document)) == (1, ["version", "refusal"])
    assert "need configurations (B_p, n) in common" in document["refusal"]["reason"]
    assert document["refusal"]["run_next"][0].startswith("the configurations of ")


@pytest.mark.heavy
def test_report_writes_one_file_and_the_figures(
    sweep_csv: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One format here; test_figures.py holds that three are the default, and writes each.
    monkeypatch.setattr(figures.save_figures, "__defaults__", (("pdf",),))
    page = tmp_path / "report.html"
    argv = ["report", str(sweep_csv), "-o", str(page), "--budget", "1e6"]
    assert main([*argv, "--figures", str(tmp_path / "figures")]) == 0
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert "1-law.pdf" in {p.name for p in (tmp_path / "figures").iterdir()}
    assert f"Report: {page}" in capsys.readouterr().out


def falling(rows: Rows) -> Rows:
    """The same scores, from 2e5 rollouts on 0.1 lower per decade."""
    return [[*r[:3], r[3] - 0.1 * max(math.log10(r[2] / 2e5), 0.0), *r[4:]] for r in rows]


@pytest.mark.heavy
def test_fit_plan_and_report_count_the_checkpoint_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(write_csv(tmp_path / "falling.csv", falling(sweep())))
    predicted = {}
    for select in ("best", "final"):
        argv = ["plan", "--law", source, "--budget", "2e6", "--select", select, "--json", "-"]
        assert main(argv) == 0
        predicted[select] = json.loads(capsys.readouterr().out)["predicted_score"]
    assert predicted["final"] < predicted["best"] - 0.01
    assert main(["fit", source, "--select", "final", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["selection"] == "final"
    drawn: list[Any] = []

    def take(fits: Any, plan: Any, path: str, **rest: Any) -> str:
        drawn.extend([fits[0][1].document["provenance"]["selection"], plan["predicted_score"]])
        return path

    monkeypatch.setattr(report, "render_report", take)
    out = str(tmp_path / "r.html")
    assert main(["report", source, "-o", out, "--select", "final", "--budget", "2e6"]) == 0
    assert drawn == ["final", predicted["final"]]


@pytest.mark.heavy
def test_the_published_law_is_fitted_to_the_checkpoint_asked_for(
    published_plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["plan", "--budget", "4e6", "--difficulty", "easy", "--select", "final", "--json", "-"]
    assert main(argv) == 0
    final = json.loads(capsys.readouterr().out)
    assert final["predicted_score"] != published_plan["predicted_score"]


@pytest.mark.heavy
def test_report_plans_as_plan_does(
    sweep_csv: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ["--max-batch", "1024", "--min-steps", "50", "--current", "n=8", "--problems", "300",
             "--rollouts-per-gpu-hour", "900", "--usd-per-gpu-hour", "2",
             "--fix", "problems_per_batch=32", "--budget", "1e6"]  # fmt: skip
    file = tmp_path / "plan.json"
    assert main(["plan", "--law", str(sweep_csv), *asked, "--json", str(file)]) == 0
    plan = json.loads(file.read_text())
    drawn: list[Any] = []

    def take(fits: Any, plan: Any, path: str, **rest: Any) -> str:
        drawn.append((fits[0][1].setting, plan, rest.get("title")))
        assert fits[0][0] == sweep_csv.name  # a report shows nobody's folders
        return path

    monkeypatch.setattr(report, "render_report", take)
    argv = ["report", str(sweep_csv), "-o", str(tmp_path / "r.html"), "--title", "Ours"]
    assert main([*argv, *asked, "--for", "trl"]) == 0
    assert main([*argv, "--plan", str(file)]) == 0
    (setting, made, title), (_, read, _) = drawn
    assert setting == {"kind": "fixed_problems_per_batch", "value": 32}
    assert title == "Ours"
    assert list(made["trainer"]) == ["trl"]
    assert {**made, "trainer": plan["trainer"]} == plan == read
    capsys.readouterr()
    other = {**plan, "law": {**plan["law"], "data_sha256": "0" * 64}}
    for text, words in (("{}", "must name a file that"), ("x", "must name a file that"),
                        (json.dumps(other), "must be of the runs of "),
                        (json.dumps({**plan, "version": 1}), "is of version 1")):  # fmt: skip
        file.write_text(text)
        assert main([*argv, "--plan", str(file)]) == 2
        assert words in complaint(capsys)
    assert main([*argv, "--plan", str(tmp_path / "plan.jsn")]) == 2
    assert "Did you mean" in complaint(capsys)


def test_report_on_bad_input_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    assert main(["report", str(tmp_path / "none.csv"), "-o", str(out)]) == 2
    assert "none.csv" in complaint(capsys)
    assert list(tmp_path.iterdir()) == []


def test_one_run_per_file_is_one_sweep_and_no_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "problems_per_batch,rollouts_per_problem,rollouts,score\n"
    files = [tmp_path / f"n{n}.csv" for n in (8, 16, 32)]
    for file, n in zip(files, (8, 16, 32), strict=True):
        file.write_text(rows + "".join(
            f"8,{n},{8 * n * 20 * i},{0.3 + 0.03 * i}\n" for i in range(8)))  # fmt: skip
    names = [str(file) for file in files]
    assert main(["report", *names, "-o", str(tmp_path / "r.html")]) == 2
    assert "hold one (B_p, n) each; put them into one folder" in complaint(capsys)
    assert not (tmp_path / "r.html").exists()
    assert main(["plan", *names, names[0], "--budget", "1e6"]) == 2
    assert "n32.csv, ...; name one, or the folder that holds them." in complaint(capsys)


# Output


def test_strict_json_has_null_for_what_is_not_a_number() -> None:
    text = strict_json(
        {"a": math.nan, "b": [math.inf, np.float64(0.5)], "c": np.arange(2), "d": (True, None)}
    )
    assert json.loads(text) == {"a": None, "b": [None, 0.5], "c": [0, 1], "d": [True, None]}


def test_files_appear_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.json"
    write_text(target, "old")

    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("isocompute.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_an_output_must_be_a_file_and_not_an_input(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("x")
    check_target("-")
    check_target(None)
    check_target(str(tmp_path / "new.json"), [str(source)])
    with pytest.raises(InputError, match="must not overwrite an input"):
        check_target(str(source), [str(source)])
    with pytest.raises(InputError, match="a file in a folder that exists"):
        check_target(str(tmp_path / "no" / "x.json"))
    with pytest.raises(InputError, match="a file in a folder that exists"):
        check_target(str(tmp_path))


def test_drafts_of_killed_writers_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from isocompute.files import drafted\n"
        "with drafted(sys.argv[1]): os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "x.json"
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    mine = tmp_path / ".x.json.my-own-copy.part"
    mine.write_text("kept")
    assert len(list(tmp_path.glob(".x.json.????????.part"))) == 1
    with drafted(target) as first, drafted(target) as second:  # the living keep theirs
        assert sorted(tmp_path.iterdir()) == sorted([mine, first, second])
        second.write_text("b")
        first.write_text("a")
    assert sorted(tmp_path.iterdir()) == [mine, target]
    assert target.read_text() == "a"


@pytest.mark.parametrize("made", ["pipe", "link to a pipe", "link to a device"])
def test_an_output_never_takes_the_place_of_a_device(tmp_path: Path, made: str) -> None:
    pipe, target = tmp_path / "pipe", tmp_path / "target"
    os.mkfifo(pipe)
    target.symlink_to("/dev/null" if made == "link to a device" else pipe)
    target = pipe if made == "pipe" else target
    before = target.lstat()  # but for the time of access, which reading a link may renew
    for write in (lambda: check_target(str(target)), lambda: write_text(target, "x")):
        with pytest.raises(InputError, match=f"{target.name}' is a device or pipe; name a file"):
            write()
    after = target.lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino, before.st_mode, before.st_mtime_ns, before.st_ctime_ns)  # fmt: skip


def test_the_link_of_the_standard_output_is_kept(tmp_path: Path) -> None:
    # It leads to a file here, but what stood in its place would be one for everybody.
    code = "from isocompute.cli.output import check_target; check_target('/dev/stdout')"
    with (tmp_path / "out").open("wb") as out:
        ended = subprocess.run([sys.executable, "-c", code], stdout=out, stderr=subprocess.PIPE)
    assert b"InputError: an output must be a file, but '/dev/stdout' is a device" in ended.stderr


def test_names_with_control_characters_stay_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "bad\x1b[31m\nname.csv"]) == 2
    assert "\x1b" not in complaint(capsys)


def test_an_unexpected_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("isocompute.sources.load_with_train", fail)
    assert main(["fit", "x.csv"]) == 1
    assert "unexpected ZeroDivisionError: of ours" in complaint(capsys)
    monkeypatch.setenv("ISOCOMPUTE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["fit", "x.csv"])


@pytest.mark.parametrize(("error", "code"), [(PermissionError(13, "Denied", "f"), 2),
                                             (OSError(28, "No space left", "f"), 1)])  # fmt: skip
def test_errors_of_the_disk_are_one_line(
    error: OSError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("isocompute.sources.load_with_train", fail)
    assert main(["fit", "x.csv"]) == code
    assert "f: " in complaint(capsys)


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isocompute.sources.load_with_train", stop)
    assert main(["fit", "x.csv"]) == 130
    assert "stopped by Ctrl-C" in complaint(capsys)


def test_sigterm_is_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def terminate(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr("isocompute.sources.load_with_train", terminate)
    assert main(["fit", "x.csv"]) == 143
    assert "stopped by SIGTERM" in complaint(capsys)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "isocompute", "plan", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 0


@pytest.mark.heavy
def test_text_survives_a_terminal_without_unicode(sweep_csv: Path) -> None:
    done = run_process("fit", str(sweep_csv), "--full", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "score  ___" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"), [("isocompute pl", "plan"), ("isocompute plan --max", "--max-batch")]
)
def test_the_shell_is_offered_completions(typed: str, offered: str, tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    done = run_process(
        COMP_LINE=typed, COMP_POINT=str(len(typed)), _ARGCOMPLETE="1", _ARGCOMPLETE_IFS="\n",
        _ARGCOMPLETE_STDOUT_FILENAME=str(answer),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert offered in answer.read_text()


def test_the_page_of_the_command_line_is_current() -> None:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts" / "make_cli_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == module.cli_page(), "run: python scripts/make_cli_docs.py"


def test_a_generated_world_in_one_word() -> None:
    from isocompute.cli.values import WORLD_SIZE, world_options

    assert world_options("world:bits") == ("bits", {"size": WORLD_SIZE, "world": "bits"})
    assert world_options("world:machine,size=3,part=train") == (
        "machine", {"size": 3, "world": "machine", "part": "train"}
    )  # fmt: skip
    for text in ("world:bits,size", "world:bits,=3", "world:bits,world=machine"):
        with pytest.raises(InputError, match="must be written world:NAME,OPTION=VALUE, but got"):
            world_options(text)
