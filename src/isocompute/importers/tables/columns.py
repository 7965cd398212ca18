"""What the columns of a table of curves are, by their names; what to add where one is missing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocompute.errors import InputError
from isocompute.importers.beside.listed import column_in_table
from isocompute.importers.tables.table import FloatArray, some
from isocompute.importers.tables.wide import of_update, pattern_of_updates, says_end
from isocompute.importers.values.cells import means_of
from isocompute.importers.values.headers import head_of, rows_of
from isocompute.importers.values.imported import DESIGN, distinct
from isocompute.importers.values.reading import number
from isocompute.importers.words.asking import (
    BY_N,
    SHORTEST,
    Cure,
    counts_results,
    likely_columns,
    trial_of,
)
from isocompute.importers.words.called import LOG2, YOURS, by_maps, holds, mapping, maps_of
from isocompute.importers.words.configuration import MODELS, configuration, facts_of
from isocompute.importers.words.names import pattern_in_columns, pattern_in_path
from isocompute.importers.words.paths import regex_of
from isocompute.importers.words.plain_words import RESPONSES, plain_name, unit_of
from isocompute.importers.words.settings import Settings
from isocompute.recipe import RECORDED

REQUIRED = ("problems_per_batch", "rollouts_per_problem", "rollouts", "score")
DRAWN = "problems_drawn"  # what a column map calls a count of problems, so far
NUMBERS = (*REQUIRED, *LOG2, RESPONSES, DRAWN, "steps", "epochs", "tokens", "seed", "best", "worst")
TEXTS = ("run", "metric", "problem_set", "split", "arm")
# What says which evaluation a score is of, where no column is called problem_set.
_SETS = (
    "eval_set", "eval_file", "eval_dataset", "val_set", "val_file", "validation_set", "benchmark",
)  # fmt: skip
# What names a run, where no column is called run; the most telling first.
_RUNS = ("run_name", "run_id", "run_uuid", "experiment", "experiment_name", "experiment_id", "exp",
         "exp_name", "exp_id", "trial", "trial_id")
_SEEDS = ("train_seed", "training_seed", "random_seed")
_EPOCHS = ("epoch", "epochs")
STEPS = ("step", "update", "updates", "iteration", "iter", "global_step", "training_step",
         "train_step")  # fmt: skip
# What seems to count updates under a name of its own.
_UPDATES = re.compile(
    r"^(?!.*(?:\bper\b|/|eval|wall|time|total|trained|planned|max|%))"
    r".*\b(?:updates?|steps?|iterations?|iters?|ckpt|checkpoint)\b", re.I,
)
# What may count problems or their rollouts, so far
_PROBLEMS = re.compile(
    r"(?:^|[^a-z])(?:(?:sample|prompt|problem|question|task|item|example|game|episode|rollout)s?|"
    r"quer(?:y|ies)|trajector(?:y|ies))(?![a-z])", re.I,
)
_SPREAD = re.compile(
    r"(?:^|[ _./-])(?:std|stdev|std_?dev|std_?err|sd|sem|se|err|error|ci|ci95|lower|upper|low|high|"
    r"min|max|var|iqr|count)$|__(?:MIN|MAX)$", re.I,
)
_OF_SEED = re.compile(r"seed[ _-]?([0-9]{1,6})", re.I)
# Words of a recipe under the names that people give them.
_RECIPE = {
    "learning_rate": re.compile(
        r"(?:(?:actor|policy|base|peak|max|initial|train|optim(?:izer)?)[_./])?"
        r"(?:lr|learning_rate)(?:_?\(?(?:actor|policy)\)?)?"
    ),
    "kl_coef": re.compile(
        r"kl_(?:loss_)?(?:coeff?|coefficient|weight|beta|penalty_coef)|beta_kl|beta"),
    "entropy_coef": re.compile(r"ent(?:ropy)?_(?:loss_)?(?:coeff?|coefficient|weight|bonus)"),
    "clip_low": re.compile(r"(?:clip_)?eps(?:ilon)?(?:_clip|_low)?|clip_range|clip_ratio_low"),
    "clip_high": re.compile(r"(?:clip_)?eps(?:ilon)?_(?:clip_)?high|clip_ratio_high|clip_higher"),
    "temperature": re.compile(r"(?:(?:rollout|sampling|train|gen)_)?temp(?:erature)?"),
}
_SECTION = re.compile(r"^(?:params|parameters|config|h(?:yper)?params|hyperparameters)[./]")
# What else makes another recipe, of whatever values.
_OTHERWISE = re.compile(
    r"algo(?:rithm)?|method|(?:loss|advantage|adv)_(?:type|estimator|fn)|estimator|recipe|"
    r"variant|ablation|setting|setup|condition|treatment|dataset|train(?:ing)?_(?:data|dataset|set|file)|"
    r"clip_ratio|optimi[sz]er|lr_schedule[r]?|schedule[r]?|reward_(?:fn|function|type)|(?:prompt_)?template|"
    r"(?:ppo_|inner_)?epochs_per_batch|ppo_epochs|num_iterations|updates_per_batch|"
    r"(?:ppo_)?mini_?batch(?:_size)?|max_(?:(?:response|completion|output|new|gen)_)?(?:length|len|tokens)"
)


def makes_a_recipe(column: str) -> bool:
    """Whether a column says what repetitions share, and no other name of ours.

    >>> [*map(makes_a_recipe, ("algo", "hparams/ppo_epochs", "Max. tokens", "model", "epochs"))]
    [True, True, True, True, False]
    """
    bare = _SECTION.sub("", plain_name(column.strip()))
    forms = (_OTHERWISE, *_RECIPE.values())
    return bare in MODELS or any(form.fullmatch(bare.replace(".", "")) for form in forms)


_SEEN = 1_000  # rows that tell what a column may be
_LEAST_RUNS = 2  # columns: one may bear the name of a run by chance
UNIT = "unit"  # what a column that says the unit of a batch goes by


class Scores(NamedTuple):
    """A column of scores, and what holds for all of them."""

    column: str
    settings: Settings
    metric: str | None = None
    is_wide: bool = False  # an empty cell is a step of another configuration
    step: int | None = None  # of a column for every update


def columns_meant(
    path: Path, columns: list[str], settings: Settings
) -> tuple[dict[str, str], list[Scores]]:
    """Column -> the name that it goes by, and the columns of scores where they go by their own."""
    known = (*NUMBERS, *TEXTS, *RECORDED)
    names = {c: c.strip() for c in columns if c.strip() in known}
    plains = {plain_name(c.strip()) for c in columns}
    scores: list[Scores] = []
    of_updates = "{steps}" in (settings.pattern or "")
    runs = _runs_beside(path, columns, settings) or _by_seed(columns, settings)
    for column in (c for c in columns if c not in names):
        text, held = column.strip(), None
        plain = plain_name(text)
        if (bare := _SECTION.sub("", plain)) in ("seed", *RECORDED):  # MLflow's table of runs
            plain = bare
        if text == settings.step or (settings.step is None and plain in STEPS):
            plain = "steps"
        if text in settings.columns:
            mapped = settings.columns[text]
            plain = mapped.metric.label
            if plain in names.values():
                first = next(c for c in names if names[c] == plain)
                raise InputError(
                    f"{path}: each name must go to one column, but {plain} goes to {first!r} and "
                    f"{text!r}; name one of them."
                )
            if plain not in known:
                held = Scores(text, replace(
                    settings, problem_set=mapped.problem_set or settings.problem_set,
                    split="train" if mapped.split == "train" else settings.split,
                ), metric=plain)  # fmt: skip
        elif text in runs:
            held = Scores(text, runs[text], is_wide=True)
        elif _SPREAD.search(text):
            continue  # a width beside the scores that it is of
        elif of_updates and (of := of_update(text, settings)) is not None:
            held = Scores(text, of[0], is_wide=True, step=of[1])
        elif of_updates and says_end(text):
            plain = "steps"
        elif text and not of_updates and (own := settings.for_run(text)) is not settings:
            held = Scores(text, own, is_wide=True)
        if held is not None:
            names[column] = text
            scores.append(held)
            continue
        if plain == "epoch" and not {"epochs", "steps", "rollouts", *STEPS} & plains:
            plain = "epochs"
        word = next((word for word, form in _RECIPE.items() if form.fullmatch(bare)), plain)
        word = next(iter(facts_of({bare: 1}).keys() & {*RECORDED}), word)  # as a trainer's, too
        plain = word if word not in plains else plain
        if plain in _SEEDS and "seed" not in plains:
            plain = "seed"
        if plain in _SETS and "problem_set" not in plains:
            plain = "problem_set"
        if plain in _RUNS and plain == next(r for r in ("run", *_RUNS) if r in plains):
            plain = "run"
        if plain in known and plain not in names.values():
            names[column] = plain
    for column in columns:  # a batch whose unit stands beside it, row by row
        unit = unit_of(column, columns)
        if unit is not None and "problems_per_batch" not in {*names.values()} - {names.get(column)}:
            names |= {column: RESPONSES, unit: UNIT}
    _refuse_doubles(scores, path)
    return names, scores


def _runs_beside(path: Path, columns: Sequence[str], settings: Settings) -> dict[str, Settings]:
    """What a table of runs beside says of columns that bear their names; empty without one."""
    named = [text for c in columns if (text := c.strip()) and plain_name(text) not in STEPS]
    if len(named) < _LEAST_RUNS or settings.pattern or not path.is_file():
        return {}
    every = {text: column_in_table(path, text) for text in named}
    cells = cells_seen(path, columns) if None in every.values() else {}
    found = {text: one for text, one in every.items() if one is not None or not (
        counts_up(at := cells.get(text, np.full(1, 0.5))) or np.isnan(at).all()
    )}  # what counts steps, or holds words, is no run's
    named = [*found]
    said = {
        text: configuration({plain_name(key): value for key, value in one[1].items()})
        for text, one in found.items() if one is not None
    }
    if len(said) < len(named) or any(one.rollouts_per_problem is None for one in said.values()):
        return {}
    return {
        text: replace(
            settings, run=text, problems_per_batch=one.problems_per_batch,
            rollouts_per_problem=one.rollouts_per_problem, seed=one.seed,
        ) for text, one in said.items()
    }  # fmt: skip


def _refuse_doubles(scores: Sequence[Scores], path: Path) -> None:
    """A table with a column for every run has one for each, and one of a metric has one of it."""
    seen: dict[tuple[object, ...], str] = {}
    for one in scores:
        if not one.is_wide:
            of = (one.metric, one.settings.problem_set, one.settings.split)
            if (first := seen.setdefault(of, one.column)) != one.column:
                raise InputError(
                    f"{path}: a metric of one problem set must have one column, but {first!r} and "
                    f"{one.column!r} both go to {one.metric}; map one of them, or give each its "
                    "problem_set, in a file of columns (--map columns.yaml)."
                )
            continue
        said = {name: getattr(one.settings, name) for name in DESIGN} | {"steps": one.step}
        if (first := seen.setdefault(tuple(said.values()), one.column)) != one.column:
            told = ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
            pattern = one.settings.pattern or ""
            more = "".join(re.split(regex_of(pattern), first)[-1:]) if pattern else ""
            own = f", as --set pattern='{pattern}{more}'" if more.strip() else ""
            raise InputError(
                f"{path}: a run must have one column, but {first!r} and {one.column!r} both say "
                f"{told}; write more of the name into the pattern, so that it finds one of them"
                f"{own}, or a {{seed}} that tells them apart."
            )


def _by_seed(columns: Sequence[str], settings: Settings) -> dict[str, Settings]:
    """Columns of scores that are named for their seeds, where no other is one; empty without.

    >>> {key: one.seed for key, one in _by_seed(["step", "seed 3", "seed 4"], Settings()).items()}
    {'seed 3': 3, 'seed 4': 4}
    """
    found = {text: replace(settings, seed=int(named[1])) for c in columns
             if (named := _OF_SEED.fullmatch(text := c.strip()))}  # fmt: skip
    mapped = {c for c, of in settings.columns.items() if of.metric.label not in DESIGN}
    told = {"score", "seed", *mapped} & {c.strip() for c in columns}
    return {} if told or "{seed}" in (settings.pattern or "") or len(found) < _LEAST_RUNS else found


def not_there(
    path: Path, missing: list[str], header: list[str], settings: Settings
) -> InputError:
    """The refusal of a table without a column that must be there, with its cure."""
    counted = ("steps", *STEPS, *(_EPOCHS if settings.training_problems else ()))
    stepped = any(plain_name(c.strip()) in counted for c in header)
    if stepped and set(missing) & set(DESIGN):
        missing = [name for name in missing if name != "rollouts"]  # B_p * n * step, once known
    cures = list(_cures(path, missing, header, settings))
    options = [word for one in cures for word in one.options]
    cure = f"add {'; '.join(one.text for one in cures)}"
    numbers = [cell for cell in header if number(cell) is not None]
    if numbers and pattern_of_updates(header) is None:
        return InputError(
            f"{path}: a table must begin with the names of its columns, but the first line looks "
            f"like a row (it has {numbers[0]}); put a line of names above it."
        )
    above = head_of(path).said if path.suffix in (".csv", ".tsv") and path.is_file() else {}
    also = f", and above its rows {some([*above])}" if above else ""
    slips = [key for key in settings.columns if key not in (c.strip() for c in header)]
    if slips:
        near = difflib.get_close_matches(slips[0], header, n=1)
        cure = f"--map names {slips[0]!r}" + (
            f", did you mean {near[0]!r}? Or " if near else ", which is not there; "
        ) + cure
    return InputError(
        f"{path}: a table must have the columns {', '.join(REQUIRED)}, but {', '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing (it has {some(header)}{also}); {cure}.",
        options=options, trial=trial_of(options),
        condition=" and ".join(one.condition for one in cures if one.condition),
    )


def cells_seen(path: Path, header: Sequence[str]) -> dict[str, FloatArray]:
    """The numbers in the first rows of each column of a file, NaN for what is none; {} else."""
    found = dict[str, FloatArray]()
    texts_of = texts_seen(path, header)
    comma = "%" if not texts_of or head_of(path).separator == "," else ","  # a decimal one
    for name, own in texts_of.items():
        means = means_of(own)
        texts = (means.get(c, c).replace("%", "").replace(comma, ".") for c in own)
        cells = (number(text.strip()) for text in texts)
        found[name] = np.array([np.nan if c is None else c for c in cells])
    return found


def texts_seen(path: Path, header: Sequence[str]) -> dict[str, list[str]]:
    """The cells in the first rows of each column of a CSV; {} of any other file."""
    if path.suffix not in (".csv", ".tsv") or not path.is_file():
        return {}
    rows = rows_of(path, _SEEN)
    return {name.strip(): [row[i] for row in rows if i < len(row)] for i, name in enumerate(header)}


def counts_up(cells: FloatArray) -> bool:
    """Whether a column counts as steps do: from 0, or on and on by as much, whole numbers.

    >>> counts_up(np.array([0, 20, 40, 0, 20.0])), counts_up(np.array([16, 16, 32, 32.0]))
    (True, False)
    """
    own = cells[np.isfinite(cells)]
    if own.size < 3 or (own != np.floor(own)).any() or own.min() < 0:
        return False
    moves = distinct(np.diff(own)[np.diff(own) > 0])
    rises = distinct(own).size >= 3
    return bool(rises and (own[0] == 0 or (moves.size == 1 and own.size > 4 and (
        (np.diff(own) != 0).all()
    ))))


def _is_setting(cells: FloatArray | None) -> bool:
    """Whether a column holds a few whole numbers again and again, as what stays within a run."""
    if cells is None or not cells.size or not np.isfinite(cells).all():
        return False
    values = distinct(cells)
    return bool(values.min() >= 1 and (values == np.floor(values)).all()
                and values.size <= cells.size / 5)  # fmt: skip


def _cures(
    path: Path, missing: list[str], header: list[str], settings: Settings
) -> Iterator[Cure]:
    """What to add to the command for what is missing, a part each."""
    cells = cells_seen(path, header)
    counters = [c for c in header if (at := cells.get(c.strip())) is not None and counts_up(at)]
    empty = [c for c in header if (at := cells.get(c.strip())) is not None and np.isnan(at).all()]
    runs = _runs_beside(path, header, settings)
    few = [c.strip() for c in header if c not in counters and c.strip() != "seed"
           and _is_setting(cells.get(c.strip())) and not counts_results(c, header)]  # fmt: skip
    free = [c for c in header if c not in (*counters, *empty, *runs)]
    there = likely_columns(free, missing, beside=header)
    if there.get("rollouts") in few:  # a count of rollouts goes on: what stays is that of a problem
        constant = there.pop("rollouts")
        there = {DESIGN[1]: constant, **there} if DESIGN[1] in missing else there
    wide = pattern_in_columns(header) if {"score", *DESIGN[1:2]} <= set(missing) else None
    unsaid = [name for name in DESIGN if name in missing]
    if "score" in missing and wide is None and (per_update := pattern_of_updates(header, unsaid)):
        yield _by_pattern(per_update, "if there is a column for every update, as it seems")
        missing = [n for n in missing if n not in ("score", "rollouts")
                   and f"{{{n}}}" not in per_update]  # fmt: skip
    elif wide is not None and "score" not in there:
        yield _by_pattern(wide, "as the names of the columns seem to say")
        missing = [n for n in missing if n != "score" and f"{{{n}}}" not in wide]
    there = {name: column for name, column in there.items() if name in missing}
    if there:
        yield Cure(by_maps(there), maps_of(there), holds(there))
    rest = [name for name in missing if name not in there]
    constants = [name for name in rest if name in DESIGN]
    if constants and (named := pattern_in_path(path, constants)):
        yield _by_pattern(named, "as the names seem to say")
        constants = [name for name in constants if f"{{{name}}}" not in named]
    kept = f" (it may be {', '.join(few[:5])})" if few and constants else ""
    for name in constants:
        own = f"{name}={YOURS[name]}"
        differs = "" if wide is None else (
            f"{BY_N if name == DESIGN[0] else ''}, or, where columns differ in it, put it into "
            "their names and the pattern as "
            f"{SHORTEST[name]}{{{name}}}_"
        )
        text = f"--set {own} if all rows share it, or --map KEY={name}{kept}{differs}"
        yield Cure(text, ["--set", own])
    steps = [column.strip() for column in header if _UPDATES.search(column)
             or (column in counters and re.search("batch", column, re.I))]  # fmt: skip
    if not steps and not any(plain_name(c) in _EPOCHS for c in header):
        steps = [c.strip() for c in counters] * (len(counters) == 1)  # in any language
    if "rollouts" in rest and len(steps) == 1 and _PROBLEMS.search(steps[0]):
        names = {"steps": "updates", DRAWN: "problems", "rollouts": "rollouts"}
        maps = ", ".join(f"{mapping(steps[0], k)} if it counts {v}" for k, v in names.items())
        yield Cure(f"{maps}, each so far",
                   ["--map", f"{steps[0]}={'_OR_'.join(names).upper()}"])  # fmt: skip
    elif "rollouts" in rest and steps:
        maps = " or ".join(mapping(column, "steps") for column in steps[:3])
        yield Cure(f"{maps} if it counts updates, or --map KEY=rollouts",
                   ["--map", f"{steps[0] if len(steps) == 1 else 'KEY'}=steps"],
                   f"`{steps[0]}` counts updates" if len(steps) == 1 else "")  # fmt: skip
    elif "rollouts" in rest and (epochs := [c for c in header if plain_name(c) in _EPOCHS]):
        own = f"training_problems={YOURS['training_problems']}"
        yield Cure(f"--set {own}, those of one epoch, if `{epochs[0]}` counts passes over them, or "
                   "--map KEY=rollouts (KEY=steps for a column of updates)", ["--set", own],
                   f"`{epochs[0]}` counts passes over the training problems")  # fmt: skip
    elif "rollouts" in rest:
        yield Cure("--map KEY=rollouts with your own column (B_p * n * step in all; KEY=steps for "
                   "one of updates; not tokens, hours or epochs)",
                   ["--map", "KEY=rollouts"])  # fmt: skip
    if "score" in rest:
        yield Cure("--map KEY=score with your own column", ["--map", "KEY=score"])


def _by_pattern(pattern: str, why: str) -> Cure:
    return Cure(f"--set pattern='{pattern}', {why}", ["--set", f"pattern={pattern}"])
