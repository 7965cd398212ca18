"""A whole example on the embedded engine, from an unknown problem set to a plan.

Difficulty of the base model -> Easy set -> its recipe -> a sweep over n -> fit -> plan ->
report. Every stage leaves its files in the folder and is not done again when they are there,
so that the same command resumes after anything. Nothing is staged: the report says whatever
the sweep showed.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.errors import RefusalError, RunError
from isocompute.files import write_text
from isocompute.problems import ProblemSet, save_problems

if TYPE_CHECKING:
    from isocompute.answers import Fit
    from isocompute.runner import Progress, Summary

CANDIDATES = 1200  # problems whose pass rate is measured
TRAIN_SIZE = 100  # few, so that training and validation differ, as in the paper's small set
VALIDATION_SIZE = 300  # as in the paper
WORLD_SEED = 11  # of the candidates; the base model never saw them
PUBLISHED = ("published:qwen2.5-7b-easy", "published:qwen2.5-7b-hard")
PLAN_FACTOR = 4  # the plan is for this many times the sweep's budget per run

# The learning-rate anchor: the largest tried at which every n that could be best has had its 20
# updates before the frontier reaches it (docs/lab-log.md). Temperature 1: the base model was
# trained to be sampled so. The grid of evaluations ends where the budget does: 768 * 2**7.
STUDY = """\
# Written by `isocompute quickstart`; edit it and run `isocompute run {study}` to go on.
name: quickstart
engine: local
engine_options: {{model: bits}}
problems:
  train: {{path: train.jsonl}}
  validation:
    easy: {{path: validation.jsonl}}
recipe: {{difficulty: {difficulty}, learning_rate: 5e-4, temperature: 1.0}}
grid:
  problems_per_batch: 32
  rollouts_per_problem: {{low: 4, high: 128}}
  seeds: 3
budget: 98304
evaluation: {{samples: 4, per_octave: 3, first: 768}}
slices: [0.25, 1]
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the quickstart made.

    Args:
        folder: where everything is.
        summary: of the sweep.
        fit: of the sweep, or None where it was refused.
        refusal: why, or None.
        plan: the plan document, or None.
        report: the HTML file.
    """

    folder: Path
    summary: Summary
    fit: Fit | None
    refusal: str | None
    plan: dict[str, Any] | None
    report: Path


def _silent(line: str) -> None:
    """Says nothing."""


def quickstart(
    folder: str | Path,
    *,
    workers: int | None = None,
    say: Callable[[str], None] = _silent,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Run the playbook, or go on with it.

    Args:
        folder: where it lives; made if it is missing.
        workers: processes, one thread each; default: one per core.
        say: gets a line at every stage.
        progress: gets the sweep's progress.

    Raises:
        RunError: if the sweep was stopped or a run failed for good.
        InputError: if the folder holds a study that does not fit.
    """
    from isocompute.engines import embedded_success_counter
    from isocompute.runner import open_study, run_study

    embedded_success_counter()  # what is not installed is said before anything is written
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    difficulty = _difficulty(folder, say)
    study_file = folder / "study.yaml"
    if not study_file.exists():
        named = shlex.quote(str(study_file))
        write_text(study_file, STUDY.format(study=named, difficulty=difficulty["recipe"]))
    study = open_study(study_file, (), folder / "study")
    say(f"sweep: {len(study.runs)} runs, {study.rollouts:,} training rollouts ({study_file})")
    summary = run_study(study, folder / "study", workers=workers, progress=progress)
    _book_difficulty(folder, difficulty)
    if summary.exit_code:
        why = "runs failed" if summary.stopped_by is None else "it was stopped"
        early = RunError(
            f"the sweep must be finished before it is fitted, but {why}; run "
            f"`isocompute quickstart {shlex.quote(str(folder))}` again to go on."
        )
        early.exit_code = summary.exit_code  # 130 or 143 after a signal
        raise early
    return _decide(folder, study.runs[0].allocation.rollouts, summary, say)


def _difficulty(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure the base model, select the Easy set, split it; once."""
    from isocompute.difficulty import Draws, measure_difficulty
    from isocompute.engines import embedded_success_counter, problem_generators

    kept = folder / "difficulty.json"
    with contextlib.suppress(OSError, ValueError):  # none yet, or one that is damaged
        found = json.loads(kept.read_text(encoding="utf-8"))
        if isinstance(found, dict) and {"recipe", "rollouts", "tokens"} <= set(found):
            return found
    count_successes = embedded_success_counter()
    candidates = problem_generators()["world"]("candidates", size=CANDIDATES, seed=WORLD_SEED)
    count = count_successes("bits", candidates)

    def sample(index_P: Any, samples: int) -> Draws:
        return Draws(*count(index_P, samples))

    measured = measure_difficulty(sample, candidates, second_stage=0)
    easy = measured.select("easy")
    say(
        f"difficulty: {CANDIDATES} problems x {measured.samples} samples, mean pass rate "
        f"{float(measured.first_rate_P.mean()):.2f}; {len(easy)} are Easy (0.3 to 0.6)"
    )
    train, validation = _split(easy)
    save_problems(measured.problems, folder / "problems.jsonl")
    save_problems(train, folder / "train.jsonl")
    save_problems(validation, folder / "validation.jsonl")
    document = measured.document
    write_text(kept, json.dumps(document))
    return document


def _split(easy: ProblemSet) -> tuple[ProblemSet, ProblemSet]:
    need = TRAIN_SIZE + VALIDATION_SIZE
    if len(easy) < need:
        raise RunError(
            f"the quickstart needs {need} Easy problems, but the base model has {len(easy)} of "
            f"{CANDIDATES}; raise CANDIDATES."
        )
    rows = easy.problems
    return (
        easy.replace(name="train", problems=rows[:TRAIN_SIZE]),
        easy.replace(name="easy", problems=rows[TRAIN_SIZE:need]),
    )


def _book_difficulty(folder: Path, document: dict[str, Any]) -> None:
    """The measurement's own rollouts, in the study's ledger, once."""
    from isocompute.store import Store

    with Store(folder / "study") as store:
        if "difficulty" not in store.accounting().other:
            store.spend(
                "difficulty", rollouts=document["rollouts"], tokens=document["tokens"] or 0,
                detail="base model, avg@16 of the candidates",
            )  # fmt: skip


def _decide(
    folder: Path, rollouts: int, summary: Summary, say: Callable[[str], None]
) -> Result:
    """Fit, plan and report of a finished sweep."""
    from isocompute.allocation import Budget
    from isocompute.answers import fit_sweep, plan_from_source
    from isocompute.report import render_report
    from isocompute.report.study_data import study_view
    from isocompute.sources import load_curves, load_with_train

    source = str(folder / "study")
    fits: list[tuple[str, Fit]] = []
    refusal: str | None = None
    plan: dict[str, Any] | None = None
    say("fit: the sweep, and the published curves of a 7B model beside it")
    try:
        curves, train = load_with_train([source])
        fits.append((source, fit_sweep(curves, sources=[source], train=train)))
    except RefusalError as refused:
        refusal = refused.reason
    else:
        budget = Budget(amount=float(PLAN_FACTOR * rollouts), unit="rollouts")
        plan = plan_from_source(source, budget=budget, fit=fits[0][1]).document
    fits += [(name, fit_sweep(load_curves([name]), sources=[name])) for name in PUBLISHED]
    report = folder / "report.html"
    render_report(fits, plan, report, study=study_view(source))
    return Result(
        folder=folder, summary=summary, fit=fits[0][1] if refusal is None else None,
        refusal=refusal, plan=plan, report=report,
    )  # fmt: skip
