"""Figures of a fit: one table that says what each is, for papers (matplotlib) and for the page.

Every drawing function takes a `Fit` (or a `StudyView`), returns a `matplotlib.figure.Figure`, and
needs no display: figures are made without pyplot, so that nothing global is touched. A new figure
of a fit is such a function, a row of `FIGURES`, and a builder of the same kind in report.js.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from isocompute.errors import InputError
from isocompute.report import words
from isocompute.report.check_figures import backtest, loss_by_n, probability_best
from isocompute.report.curve_figures import frontier, learning_curves
from isocompute.report.law_figures import direction, law, law_problems_per_batch, paper_method
from isocompute.report.study_figures import (
    difficulty,
    health,
    landscape,
    scores,
    train_test_gap,
)
from isocompute.report.style import MATPLOTLIB
from isocompute.report.words import Document

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.report.study_data import StudyView

__all__ = [
    "FIGURES",
    "FitFigure",
    "backtest",
    "difficulty",
    "direction",
    "frontier",
    "health",
    "landscape",
    "law",
    "law_problems_per_batch",
    "learning_curves",
    "loss_by_n",
    "paper_method",
    "probability_best",
    "save_figures",
    "scores",
    "train_test_gap",
]

FORMATS = ("pdf", "svg", "png")


class FitFigure(NamedTuple):
    """One figure of a fit.

    Attributes:
        kind: stem of its file, and name of its builder on the page.
        draw: makes it for paper.
        title: heading on the page.
        says: what it shows in this fit, beside a plan or none.
        marks: what its marks mean.
        there: whether the document holds what it needs.
        on_page: whether the page draws it.
    """

    kind: str
    draw: Callable[..., Figure]
    title: str
    says: Callable[[Document, Document | None], str]
    marks: str
    there: Callable[[Document], bool]
    on_page: bool = True


def _several_n(document: Document) -> bool:
    rows = document.get("curves") or []
    return len({r["rollouts_per_problem"] for r in rows}) > 1 and len(document["best"]) > 1


def _several(document: Document) -> bool:
    return len((document.get("probabilities") or {}).get("x") or []) > 1 and _several_n(document)


def _moves(document: Document) -> bool:
    # Along one batch the direction is given, not found.
    joint = (document.get("setting") or {}).get("kind") == "joint"
    tested = [(r["problems_per_batch"], r["rollouts_per_problem"])
              for r in document.get("curves") or []]  # fmt: skip
    return joint and all(len({*values}) > 1 for values in zip(*tested, strict=True))


def _nothing(*_: object) -> str:
    return ""


FIGURES: tuple[FitFigure, ...] = (
    FitFigure(
        "learning-curves", learning_curves, "Learning curves",
        _nothing,
        "Faint: every evaluation. Line and band: the score of the best checkpoint so far, without "
        "evaluation noise, and its interval; dotted beyond a configuration's own data. Broad "
        "line behind: the highest curve.",
        lambda document: bool(document.get("curves")),
    ),
    FitFigure(
        "frontier", frontier, "Frontier", _nothing, "",
        lambda document: bool(document.get("frontier")), on_page=False,
    ),
    FitFigure(
        "law", law, "Best number of rollouts per problem",
        lambda document, _: words.summary(document),
        "Line and band: the best n and its interval; dotted beyond the budgets that were compared. "
        "Thin: the paper's sigmoid through it. Bars: the n that leads; the paler, the less sure. "
        "Small squares: every n still in contention. Whiskers: where one n overtakes another.",
        _several_n,
    ),
    FitFigure(
        "law-problems-per-batch", law_problems_per_batch, "Best number of problems per batch",
        _nothing,
        "Line and band: the best Bₚ = B / n at the fixed batch, and its interval. Bars: the Bₚ "
        "that leads.",
        lambda document: bool((document.get("law_problems_per_batch") or {}).get("at")),
    ),
    FitFigure(
        "probability-best", probability_best, "How sure it is that an n is best",
        words.probability_sentence,
        "Share of the draws in which a configuration scores most. Dashed: where all were last "
        "compared.",
        _several,
    ),
    FitFigure(
        "loss-by-n", loss_by_n, "What the wrong n costs",
        words.loss_sentence,
        "How far each n is expected to score below the best. For n in contention it is doubt, no "
        "known loss. Dashed: where all were last compared.",
        _several,
    ),
    FitFigure(
        "direction", direction, "Does the best follow n or the batch?",
        lambda document, _: str((document.get("direction") or {}).get("sentence") or ""),
        "Every tested pair, and the path of the best pair from the smallest budget to the largest. "
        "Along a dotted line the batch stays the same.",
        _moves,
    ),
    FitFigure(
        "backtest", backtest, "Predictions for budgets not seen",
        lambda document, _: words.backtest_sentence(document) or "",
        "Prediction minus observed score. Filled marks: the model, with its interval. Hollow "
        "marks: no change since the cut. Nearer to zero is better.",
        lambda document: bool((document.get("backtest") or {}).get("rows")),
    ),
    FitFigure(
        "paper-method", paper_method, "Beside the paper's own method",
        lambda document, _: words.paper_sentence(document),
        "Line and band: the best n and its interval, as above. Thin: the law by the published "
        "pipeline, for three widths of its reward bins.",
        lambda document: bool((document.get("paper") or {}).get("law")) and _several_n(document),
    ),
)  # fmt: skip


def save_figures(
    fits: Sequence[tuple[str, Fit]],
    folder: str | Path,
    formats: Sequence[str] = FORMATS,
    *,
    plan: Document | None = None,
    study: StudyView | None = None,
) -> list[Path]:
    """Write every figure that the data support, in every format.

    Args:
        fits: (name, fit); files are numbered by fit: `1-law.pdf`, `2-law.pdf`.
        folder: made if it is missing.
        formats: of "pdf", "svg", "png".
        plan: marked in the law of the first fit, whose chances and losses go on to it.
        study: adds the figures of what its records hold: `study-scores`, `study-health`, ...

    Returns:
        The files written, in order.

    Raises:
        InputError: on another format.
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown or not formats:
        raise InputError(
            f"formats must be some of {', '.join(FORMATS)}, but got {list(formats)!r}; "
            "choose from these."
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made: list[tuple[str, Figure]] = []
    for i, (_, fit) in enumerate(fits, start=1):
        others = [pair for j, pair in enumerate(fits, start=1) if j != i]
        for one in FIGURES:
            if not one.there(fit.document):
                continue
            beside: dict[str, Any] = {}
            if one.kind in ("law", "probability-best", "loss-by-n"):
                beside = {"plan": plan if i == 1 else None}
            if one.kind == "law":
                beside["others"] = others
            made.append((f"{i}-{one.kind}", one.draw(fit, **beside)))
    if study is not None:
        made += _of_study(study)
    return [_save(figure, target / f"{stem}.{form}") for stem, figure in made for form in formats]


def _of_study(study: StudyView) -> list[tuple[str, Figure]]:
    figures = (
        ("study-scores", study.scores, scores),
        ("study-landscape", study.landscapes, landscape),
        ("study-train-test-gap", study.train_test, train_test_gap),
        ("study-difficulty", study.difficulty is not None, difficulty),
        ("study-health", study.health, health),
    )
    return [(stem, draw(study)) for stem, there, draw in figures if there]


def _save(figure: Figure, path: Path) -> Path:
    # No date inside, so that equal data make equal files.
    no_date: dict[str, dict[str, datetime.datetime | str | None]] = {
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
        "png": {},
    }
    with mpl.rc_context(MATPLOTLIB):
        figure.savefig(path, metadata=no_date[path.suffix[1:]])
    return path
