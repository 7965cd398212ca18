"""What a tidy table must hold: one column of a kind, one configuration and one rate for a run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.runs.grids import Design, is_one_grid, parted
from isocompute.importers.runs.meant import choose
from isocompute.importers.tables.table import FloatArray
from isocompute.importers.values.imported import DESIGN, UnclearError
from isocompute.importers.words.called import mapping, several_problems
from isocompute.importers.words.configuration import MODELS
from isocompute.importers.words.plain_words import plain_name
from isocompute.recipe import RECORDED

# Lengths that fall by more than this after the first evaluation, in every run, are no lengths: a
# step's tokens stand where a sum should. At half a model that learns to be short is refused; at
# twice, tokens of a step pass where lengths double from one evaluation to the next.
_FALLS = 3.0
_FEW = 3  # rows of a configuration: fewer may agree by chance
# What may be meant beside a column of ours; none of it is of a single evaluation.
_RIVALS = {
    "rollouts": re.compile(r"^(?!.*(?:eval|val_|per_|/)).*(?:rollouts|completions)$", re.I),
    "tokens": re.compile(r"^(?:completion|output|generated|response)s?_tokens$", re.I),
}


def check_rivals(header: Sequence[str], names: Mapping[str, str], path: Path) -> None:
    """Refuse a table whose own words for compute are several.

    Args:
        header: all columns of the file.
        names: column -> the name that it goes by.
        path: for the message.

    Raises:
        InputError: names the columns, and how one of them is chosen.
    """
    for word, pattern in _RIVALS.items():
        others = [c for c in header if c not in names and pattern.search(c.strip())]
        there = word in names.values()
        # B_p * n * steps would stand for rollouts that the file counts otherwise
        if others and (there if word == "tokens" else not there and "steps" in names.values()):
            raise InputError(
                f"{path}: one column must hold {word}, but the file has "
                f"{', '.join([*([word] if there else []), *others])}; rename the one that counts "
                f"all that was sampled to {word}, and drop the others"
                + ("." if there else f", or map it (--map, columns: {{{others[-1]}: {word}}}).")
            )


def refuse_two_counters(cells: Mapping[str, FloatArray], path: Path) -> None:
    """Refuse columns that all seem to count updates, where the first rows differ in them.

    Args:
        cells: the first rows of each.
        path: for the message.

    Raises:
        UnclearError: with the values, and how one of them is chosen.
    """
    for (one, at), (other, by) in combinations(cells.items(), 2):
        differ = (at != by) & np.isfinite(at) & np.isfinite(by)
        if differ.any():
            row = int(np.flatnonzero(differ)[-1])
            slow = one if at[row] < by[row] else other
            raise UnclearError(
                f"{path}: one column must count updates, but row {row + 1} has {at[row]:g} in "
                f"`{one}` and {by[row]:g} in `{other}`; choose with {mapping(one, 'steps')} or "
                f"{mapping(other, 'steps')}.", options=("--map", f"{slow}=steps"),
                condition=f"`{slow}` counts updates",
            )


def _check_changes(curves: list[Curve], path: Path) -> None:
    """A named run whose rows go over from one configuration to another has neither."""
    parts: dict[tuple[object, ...], list[Curve]] = {}
    for c in curves:
        if c.run and len(c.rollouts_K):
            key = (c.run, c.seed, c.metric, c.problem_set, c.split, c.arm)
            parts.setdefault(key, []).append(c)
    for (run, *_), found in parts.items():
        found.sort(key=lambda c: float(c.rollouts_K[0]))
        for before, after in pairwise(found):
            if after.rollouts_K[0] > before.rollouts_K[-1]:
                raise InputError(
                    f"{path}: a run must have one configuration, but run {run!r} goes over from "
                    f"problems_per_batch={before.problems_per_batch}, rollouts_per_problem="
                    f"{before.rollouts_per_problem} to {after.problems_per_batch}, "
                    f"{after.rollouts_per_problem} at {after.rollouts_K[0]:,.0f} rollouts; drop "
                    "what follows, or name them apart if they are two runs."
                )


def _tokens_per_rollout(c: Curve) -> tuple[float, float]:
    """Tokens of each rollout up to the first count, and of each further one at the median."""
    assert c.tokens_K is not None
    there_K = np.isfinite(c.tokens_K) & (c.tokens_K > 0) & (c.rollouts_K > 0)
    tokens_K, rollouts_K = c.tokens_K[there_K], c.rollouts_K[there_K]
    more_K, drawn_K = np.diff(tokens_K), np.diff(rollouts_K)
    further_K = more_K[drawn_K > 0] / drawn_K[drawn_K > 0]
    if not further_K.size:
        return 1.0, 1.0
    return float(tokens_K[0] / rollouts_K[0]), float(np.median(further_K))


def check_configurations(curves: list[Curve], path: Path) -> None:
    """Refuse a table whose rollouts are not cumulative, or with a configuration without scores.

    Raises:
        InputError: names the configuration.
    """
    for c in curves:
        if len(c.rollouts_K) > 5 and c.rollouts_K[0] == c.rollouts_K[-1] > 0:
            raise InputError(
                f"{path}: `rollouts` must be cumulative, but all {len(c.rollouts_K)} rows of "
                f"problems_per_batch={c.problems_per_batch}, rollouts_per_problem="
                f"{c.rollouts_per_problem} have {c.rollouts_K[0]:g}; multiply by the step."
            )
    for c in (c for c in curves if c.run):
        steps_K = np.zeros(0) if c.steps_K is None else c.steps_K  # in order of rollouts
        if (back := np.flatnonzero(np.diff(steps_K) < 0)).size:
            k = back[0]
            raise InputError(
                f"{path}: `rollouts` must not fall while steps rise, but run {c.run} has "
                f"{c.rollouts_K[k + 1]:,.0f} at step {steps_K[k + 1]:g} and "
                f"{c.rollouts_K[k]:,.0f} at step {steps_K[k]:g}; count both over the whole run, "
                "also after a resume or in a further epoch, or drop `rollouts` if such steps say "
                "them."
            )
    counted = [c for c in curves if c.tokens_K is not None and np.unique(c.tokens_K).size > 3]
    grows = [_tokens_per_rollout(c) for c in counted]
    if grows and all(later < max(1.0, first / _FALLS) for first, later in grows):
        raise InputError(
            f"{path}: `tokens` must be cumulative, but they are {grows[0][0]:.2g} a rollout up to "
            f"the first evaluation and grow by {grows[0][1]:.2g} a rollout from then on, as those "
            "of each step alone do; add them up, or drop the column."
        )
    _check_changes(curves, path)
    points: dict[tuple[str, int, int], int] = {}
    missing: dict[tuple[str, int, int], int] = {}
    for c in curves:
        key = (c.metric, c.problems_per_batch, c.rollouts_per_problem)
        points[key] = points.get(key, 0) + len(c.score_K)
        missing[key] = missing.get(key, 0) + c.n_missing
    for (_, b_p, n), count in points.items():
        if count == 0:
            raise InputError(
                f"{path}: every configuration must have at least 1 score, but problems_per_batch="
                f"{b_p}, rollouts_per_problem={n} has 0 of {missing[(_, b_p, n)]} rows with one; "
                "add its scores or drop its rows."
            )


def check_recorded(
    recorded: Mapping[str, FloatArray], x: FloatArray, path: Path,
    texts: Mapping[str, Sequence[str]] = {}, *, has_runs: bool = False,
) -> None:
    """Rows of one run have one learning rate at a budget; `x`, its rollouts, ascends.

    `texts`: values of further words, by their numbers in `recorded`; `has_runs`: a column names
    the runs.

    Raises:
        InputError: names the setting, its values, and how to tell the runs apart.
    """
    for name, value in recorded.items():
        other = (np.diff(x) == 0) & (np.diff(value) != 0) & np.isfinite(value[1:] + value[:-1])
        if other.any():
            k = int(np.argmax(other))
            this, then = (texts[name][int(value[i])].strip() if name in texts else f"{value[i]:.3g}"
                          for i in (k, k + 1))  # fmt: skip
            word = f"{name}={this}"
            apart = "" if has_runs or name not in texts else (
                f" (--map {shlex.quote(f'{name}=run')} if it does)")  # fmt: skip
            raise InputError(
                f"{path}: rows of one run must share their {name}, but at {x[k]:,.0f} rollouts it "
                f"is {this} and {then}; add a column run that tells them apart{apart}, or "
                f"choose one with --where {shlex.quote(word)}.",
                options=("--where", word), condition=f"{name} {this} is your sweep's",
            )


# Words that may as well say where, when or how well a run ran.
_PERHAPS = re.compile(
    r"(?:.*[./ _])?(?:setting|setup|condition|variant|treatment|scheduler?)", re.I
)


def check_one_recipe(curves: Sequence[Curve], path: Path | str, asked: Collection[str]) -> None:
    """Runs of one configuration that differ in their recipe are no repetitions.

    Args:
        curves: of tables.
        path: their files.
        asked: words that a selection speaks of.

    Raises:
        InputError: lists the values, with the words that choose one.
    """
    texts = [w for c in curves for w, value in c.recorded.items() if isinstance(value, str)]
    for word in (word for word in dict.fromkeys((*RECORDED, *texts)) if word not in asked):
        said = [(value if isinstance(value, str) else f"{value:.3g}", c) for c in curves
                if (value := c.recorded.get(word)) is not None]  # fmt: skip
        if word in texts and _is_no_recipe(word, said):
            continue
        of_all = plain_name(word) in MODELS
        whose = [("", "", "", "", "") if of_all else (
            f"those of {c.configuration} ", c.metric, c.problem_set, c.split, c.arm)
            for _, c in said]  # fmt: skip
        if found := parted(zip(whose, (value for value, _ in said), strict=True)):
            (at, *_), values = found
            raise choose(
                f"{path}: runs must share their {word.replace('_', ' ')} to be "
                f"{'compared or ' * of_all}averaged, but {at}have "
                f"{', '.join(value or 'none' for value in values)}",
                word, next(filter(None, values)),
            )  # fmt: skip


def _is_no_recipe(word: str, said: Sequence[tuple[str, Curve]]) -> bool:
    """Whether texts of a column that may say a recipe divide no sweep, of all that are scored."""
    if max(Counter(text for text, _ in said).values(), default=0) < 2:
        return True  # it is another in every run: their name
    if _PERHAPS.fullmatch(word) is None and len({text for text, _ in said} - {""}) > 1:
        return False
    kinds: dict[tuple[str, ...], dict[str, list[Design]]] = {}
    for text, c in said:
        of = kinds.setdefault((c.metric, c.problem_set, c.split, c.arm), {})
        of.setdefault(text, []).append((c.problems_per_batch, c.rollouts_per_problem, c.seed))
    return all(is_one_grid(of.values(), of) for of in kinds.values())


def check_problems(
    column: str, counts: FloatArray, numbers: Mapping[str, FloatArray],
    texts: Mapping[str, tuple[NDArray[np.int64], list[str]]], path: Path,
) -> None:
    """Scores of different numbers of problems are no points of one curve.

    Args:
        column: that says the number, and what it holds: (rows,).
        counts: (rows,).
        numbers, texts: what is known of the rows.
        path: of the table, for the message.

    Raises:
        InputError: with the selection of one of them.
    """
    known = [numbers[name] for name in DESIGN if name in numbers]
    there = np.isfinite(counts) & np.isfinite(numbers["score"])
    of = np.stack([*known, *(codes for codes, _ in texts.values()), 0 * counts], axis=1)
    for key in np.unique(of[there], axis=0):
        own, rows = np.unique(counts[there & (of == key).all(axis=1)], return_counts=True)
        if told := several_problems(dict(zip(map(int, own), map(int, rows), strict=True)), column):
            raise choose(f"{path}: {told}", column, f"{own[-1]:g}")


def check_counted(
    column: str, counts: FloatArray, numbers: Mapping[str, FloatArray], called: str, path: Path
) -> None:
    """A count that is as many times the step all through is one of problems, or of responses.

    Args:
        column: what seems to count either, and what it holds: (rows,).
        counts: (rows,).
        numbers: what is known of the rows.
        called: the file's own name for problems_per_batch; "" where no column says it.
        path: of the table, for the message.

    Raises:
        InputError: at every B_p and n it is neither.
    """
    if not {"steps", *DESIGN[:2]} <= numbers.keys():
        return
    b_p, n, steps = (numbers[name] for name in (*DESIGN[:2], "steps"))
    there = np.isfinite(counts + steps) & (steps > 0)
    each = counts[there] / np.where(steps, steps, 1.0)[there]
    of, rows = np.unique(np.stack([b_p[there], n[there], each]), axis=1, return_counts=True)
    alone = {(b, k) for b, k, _ in of.T.tolist()}
    if len(alone) < of.shape[1] or (rows < _FEW).any() or not alone:
        return
    if any(count in (b, b * k, k) or count % 1 for b, k, count in of.T.tolist()):
        return
    (b, k, count), cure = of.T.tolist()[0], "correct what says B_p and n, or drop it"
    if called and all(count * k == b for b, k, count in of.T.tolist()):
        cure = f"{called} counts responses: add --map {shlex.quote(f'{called}=batch_size')}"
    raise InputError(
        f"{path}: B_p or B_p * n must be what column {column} counts in a step, but they are "
        f"{b:g} and {b * k:g} where it counts {count:g}; {cure}."
    )
