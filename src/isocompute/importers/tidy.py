"""Tidy curves: CSV or Parquet, one row per evaluation (the contract of the design page)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.asking import (
    likely_columns,
    pattern_in_columns,
    pattern_in_path,
)
from isocompute.importers.called import by_maps
from isocompute.importers.configuration import MODELS, RESPONSES, configuration, problems_of
from isocompute.importers.headers import head_of
from isocompute.importers.placing import own_evaluations
from isocompute.importers.reading import number
from isocompute.importers.recorded import recorded_columns, recorded_rows
from isocompute.importers.repetitions import Named, refuse_two_sweeps
from isocompute.importers.scale import PLAIN, require_range
from isocompute.importers.settings import Settings
from isocompute.importers.split_names import Measured, measured
from isocompute.importers.table import (
    FloatArray,
    Naming,
    has_percent_signs,
    numbers_of,
    read_table,
    rows_where,
    some,
    table_in_memory,
    texts_of,
)
from isocompute.importers.tidy_cells import (
    check_end,
    check_filled,
    check_prompts,
    check_rounded,
    check_units,
)
from isocompute.importers.tidy_checks import (
    SCORES,
    check_configurations,
    check_numbers,
    check_one_model,
    check_one_rate,
    check_recorded,
    check_rivals,
    told_apart,
)
from isocompute.recipe import RECORDED
from isocompute.store.arms import matches, no_match

if TYPE_CHECKING:
    import pyarrow as pa

REQUIRED = ("problems_per_batch", "rollouts_per_problem", "rollouts", "score")
_NUMBERS = (*REQUIRED, RESPONSES, "steps", "tokens", "seed", "best", "worst")
_TEXTS = ("run", "metric", "problem_set", "split", "arm")
_SETTINGS = ("problems_per_batch", "rollouts_per_problem", "seed")
# What says which evaluation a score is of, where no column is called problem_set.
_SETS = (
    "eval_set", "eval_file", "eval_dataset", "val_set", "val_file", "validation_set", "benchmark",
)  # fmt: skip
# What names a run, where no column is called run; the most telling first.
_RUNS = ("run_name", "run_id", "run_uuid", "experiment", "experiment_name", "trial")
_STEPS = ("step", "update", "updates", "iteration", "global_step", "training_step", "train_step")
_SPREAD = re.compile(
    r"(?:^|[ _./-])(?:std|stdev|std_?dev|std_?err|sd|sem|se|err|error|ci|ci95|lower|upper|low|high|"
    r"min|max|var|iqr|count)$|__(?:MIN|MAX)$", re.I,
)
_PER_SEED = re.compile(r"(seed[ _-]?)[0-9]+", re.I)
_SECTION = re.compile(r"^(?:params|parameters|config)[./]")
IN_MEMORY = "the table"  # what messages call one that has no path


def load_tidy(
    path: str | Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Read tidy curves.

    Args:
        path: a .csv, .tsv (or packed, .gz) or .parquet file with the columns of the design page or
            `recipe.RECORDED`. Where `steps` (or `step`) is there and `rollouts` is not, the
            rollouts are B_p * n * steps.
        score_range: what scores may be; they are rescaled from it to 0..1.
        where: column -> value that its rows must have, see `store.arms.matches`.
        settings: what the table does not say: B_p, n and the seed that all its rows share (also
            found in the file's name by `pattern`); `columns` maps names of its own to those of
            the design page, or to a metric; where the names of columns match `pattern`, each of
            them holds the scores of one configuration.

    Returns:
        One Curve per (configuration, run, seed, metric, problem set, split, arm), rows in order of
        rollouts; of rows that are the same twice one counts. Columns `best` and `worst` become
        curves of the metrics "best" and "worst".

    Raises:
        InputError: names the row and the value that breaks the contract.
    """
    path = Path(path)
    settings = (settings or Settings()).for_path(path)
    of = measured(path) if path.is_file() else Measured()
    settings = replace(
        settings, split=settings.split or of.split or None,
        problem_set=settings.problem_set or of.problem_set or None,
    )
    if path.is_file() and ".parquet" not in path.name:
        settings = _with_block(path, settings)
    return _load(path, score_range, where or {}, settings, say=say)


def _with_block(path: Path, settings: Settings) -> Settings:
    """With the B_p, n and seed that lines above the table say.

    Raises:
        InputError: a name or a setting says otherwise.
    """
    try:
        said = configuration({_plain(k): value for k, value in head_of(path).said.items()})
    except (OSError, EOFError):  # told where the rows are read
        return settings
    for name in _SETTINGS:
        own, given = getattr(said, name), getattr(settings, name)
        if own is not None and given not in (None, own):
            raise InputError(
                f"{path}: {name} must be one number, but the lines above the table say {own} and "
                f"the setting or pattern {given}; drop that part of it, and the table's is used."
            )
        if own is not None:
            settings = replace(settings, **{name: own})
    return settings


def load_table(
    table: Any,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Tidy curves of a table in memory: of pandas, polars, Arrow, or what else Arrow reads.

    Args:
        table: has `__arrow_c_stream__`, and the columns that a file would have.
        score_range, where, settings, say: see `load_tidy`.

    Raises:
        InputError: as `load_tidy`; rows are counted from 1.
    """
    read = partial(table_in_memory, table)
    settings = settings or Settings()
    return _load(Path(IN_MEMORY), score_range, where or {}, settings, say=say, read=read)


class _Scores(NamedTuple):
    """A column of scores, and what holds for all of them."""

    column: str
    settings: Settings
    metric: str | None = None
    is_wide: bool = False  # an empty cell is a step of another configuration


def _load(
    path: Path,
    score_range: tuple[float, float],
    where: Mapping[str, str],
    settings: Settings,
    *,
    copies: bool = False,
    say: Callable[[str], None] | None = None,
    read: Callable[[Path, Naming], pa.Table] = read_table,
) -> list[Curve]:
    """Curves of a table; `copies` keeps rows that are the same twice."""
    header: list[str] = []
    scores: list[_Scores] = []
    goes_by: dict[str, str] = {}

    def naming(columns: list[str]) -> dict[str, str]:
        header.extend(columns)
        names, found = _meanings(path, columns, settings)
        scores.extend(found)
        names |= {c: c.strip() for c in columns if c.strip() in where and c not in names}
        if not names:
            unsaid = [name for name in REQUIRED if getattr(settings, name, None) is None]
            raise _not_there(path, unsaid, header, settings)
        names |= {c: c.strip() for c in columns if _plain(c.strip()) in MODELS and c not in names}
        goes_by.update({name: column for column, name in names.items()})
        check_rivals(header, names, path)
        check_units(goes_by, path)
        return names

    table = _select(read(path, naming), where, path)
    if table.num_rows == 0:
        raise InputError(f"{path}: a tidy file needs at least 1 row, but it has none; add rows.")
    there = set(table.column_names)
    models = [c for c in table.column_names if _plain(c) in MODELS and c not in where]
    numbers = {name: numbers_of(table, name, path) for name in _NUMBERS if name in there}
    texts = {name: texts_of(table, name) for name in _TEXTS if name in there}
    for name in models:
        at = next((numbers[key] for key in ("rollouts", "steps") if key in numbers), None)
        check_one_model(name, *texts_of(table, name), at, path, "run" in there)
    recorded = recorded_columns(table, path)
    curves, n_copies = list[Curve](), 0
    for one in scores or [_Scores("score", settings)]:
        mine = dict(numbers)
        if one.column in there:
            mine["score"] = numbers_of(table, one.column, path)
        for name in ("run", "problem_set", "split"):
            if name not in texts and (word := getattr(one.settings, name)) is not None:
                texts[name] = (np.zeros(table.num_rows, dtype=np.int64), [word])
        _from_names(mine, texts, one.settings)
        for name in _SETTINGS:
            value = getattr(one.settings, name)
            if name not in mine and value is not None:
                mine[name] = np.full(table.num_rows, float(value))
        _from_responses(mine, path)
        if "steps" in mine and "rollouts" not in mine and set(_SETTINGS[:2]) <= set(mine):
            mine["rollouts"] = (
                mine["problems_per_batch"] * mine["rollouts_per_problem"] * mine["steps"]
            )
        if missing := [name for name in REQUIRED if name not in mine]:
            raise _not_there(path, missing, header, settings)
        check_numbers(mine, path, score_range, goes_by.get("rollouts", "rollouts").strip())
        check_rounded(table, mine, path)
        check_filled(mine, texts, path)
        if not where:
            check_end(mine, path)
        check_prompts(mine, path, goes_by.get("problems_per_batch", "").strip())
        signs = has_percent_signs(table, one.column)
        if not signs:
            require_range(goes_by.get(one.column, ""), mine["score"], score_range, str(path))
        low, high = score_range
        mine |= {name: (mine[name] - low) / (high - low) for name in set(SCORES) & set(mine)}
        words = dict(texts)
        if one.metric is not None:
            words["metric"] = (np.zeros(table.num_rows, dtype=np.int64), [one.metric])
        found, dropped = _group(path, mine, words, recorded, copies=copies, is_wide=one.is_wide)
        said = (0.0, 100.0) if signs and score_range == PLAIN else score_range
        curves += [c.replace(score_range=said) for c in found]
        n_copies += dropped
    if n_copies and say is not None:
        say(f"{path}: {n_copies} rows are copies of another row of their run and count once")
    if say is not None and (repeated := sum(c.n_repeated for c in curves)):
        others = {c: c for c in header if c.strip() and c not in goes_by.values()}
        told = "" if where or not others else told_apart(
            read(path, lambda _: others),
            [*(v for k, v in numbers.items() if k not in SCORES), *(c for c, _ in texts.values())],
        )
        say(
            f"{path}: {repeated} rows stand at rollouts for which their run has another score; all "
            f"count, as further evaluations of it{told}"
        )
    check_configurations(curves, path)
    if (empty := sum(not c.score_K.size for c in curves)) and say is not None:
        say(f"{path}: {empty} run{'s hold' if empty > 1 else ' holds'} no score; left out")
    curves = [c for c in curves if c.score_K.size]
    if "learning_rate" not in where:
        check_one_rate(curves, path)
    if "run" not in where:
        of = [(c.metric, c.problem_set, f"{c.split} {c.arm}") for c in curves]
        refuse_two_sweeps(
            Named(c.run, (c.problems_per_batch, c.rollouts_per_problem, c.seed), frozenset([one]))
            for c, one in zip(curves, of, strict=True) if c.run
        )
    return _of_evaluations(curves, path, say)


def _of_evaluations(
    curves: list[Curve], path: Path, say: Callable[[str], None] | None
) -> list[Curve]:
    """Curves without rows that hold no evaluation of their own."""
    out, lines = list[Curve](), dict[str, None]()
    for c in curves:
        kept, told = own_evaluations(c.score_K)
        if kept is not None:
            lines[told] = None
            arrays = {k: v[kept] for k, v in vars(c).items() if k.endswith("_K") and v is not None}
            c = c.replace(**arrays)
        out.append(c)
    if say is not None:
        for line in lines:
            say(f"{path}: {line}")
    return out


def _from_responses(numbers: dict[str, FloatArray], path: Path) -> None:
    """B_p of a batch that counts responses, where n is known."""
    batch, n = numbers.pop(RESPONSES, None), numbers.get("rollouts_per_problem")
    if batch is None or n is None or "problems_per_batch" in numbers:
        return
    pairs = np.unique(np.stack([batch, n]), axis=1)
    for one, of in pairs.T:
        if of >= 1 and one >= 1:  # others are refused with their row
            problems_of(int(one), int(of), str(path))
    numbers["problems_per_batch"] = batch / n


def _from_names(
    numbers: dict[str, FloatArray], texts: dict[str, tuple[NDArray[np.int64], list[str]]],
    settings: Settings,
) -> None:
    """Take what `pattern` finds in the names of runs, where all of them say it."""
    if settings.pattern is None or "run" not in texts:
        return
    codes, names = texts["run"]
    found = [settings.for_run(name) for name in names]
    for name in _SETTINGS:
        said = [getattr(one, name) for one in found]
        if name not in numbers and said and None not in said:
            numbers[name] = np.array(said, dtype=np.float64)[codes]


def _meanings(
    path: Path, columns: list[str], settings: Settings
) -> tuple[dict[str, str], list[_Scores]]:
    """Column -> the name that it goes by, and the columns of scores where they go by their own."""
    known = (*_NUMBERS, *_TEXTS, *RECORDED)
    names = {c: c.strip() for c in columns if c.strip() in known}
    plains = {_plain(c.strip()) for c in columns}
    scores: list[_Scores] = []
    for column in (c for c in columns if c not in names):
        text = column.strip()
        plain = _plain(text)
        if (bare := _SECTION.sub("", plain)) in ("seed", *RECORDED):  # MLflow's table of runs
            plain = bare
        if text == settings.step or (settings.step is None and plain in _STEPS):
            plain = "steps"
        if text in settings.columns:
            plain = settings.columns[text].metric.label
            if plain in names.values():
                first = next(c for c in names if names[c] == plain)
                raise InputError(
                    f"{path}: each name must go to one column, but {plain} goes to {first!r} and "
                    f"{text!r}; name one of them{_per_seed([text])}."
                )
            if plain not in known:
                names[column] = text
                scores.append(_Scores(text, settings, metric=plain))
                continue
        elif _SPREAD.search(text):
            continue  # a width beside the scores that it is of
        elif (own := settings.for_run(text)) is not settings and text:
            names[column] = text
            scores.append(_Scores(text, own, is_wide=True))
            continue
        if plain in _SETS and "problem_set" not in plains:
            plain = "problem_set"
        if plain in _RUNS and plain == next(r for r in ("run", *_RUNS) if r in plains):
            plain = "run"
        if plain in known and plain not in names.values():
            names[column] = plain
    _refuse_doubles(scores, path)
    return names, scores


def _refuse_doubles(scores: Sequence[_Scores], path: Path) -> None:
    """A table with a column for every run has one for each."""
    seen: dict[tuple[object, ...], str] = {}
    for one in (one for one in scores if one.is_wide):
        said = {name: getattr(one.settings, name) for name in _SETTINGS}
        if (first := seen.setdefault(tuple(said.values()), one.column)) != one.column:
            told = ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
            raise InputError(
                f"{path}: a run must have one column, but {first!r} and {one.column!r} both say "
                f"{told}; write more of the name into the pattern, so that it finds one of them, "
                "or a {seed} that tells them apart."
            )


def _per_seed(header: list[str]) -> str:
    """The cure for a table with a column per seed.

    >>> _per_seed(["step", "seed_0", "seed_1"])
    ", or for a column per seed add --set pattern='seed_{seed}' in place of a map"
    """
    found = next((m for c in header if (m := _PER_SEED.fullmatch(c.strip()))), None)
    if found is None:
        return ""
    return f", or for a column per seed add --set pattern='{found[1]}{{seed}}' in place of a map"


def _plain(name: str) -> str:
    """`Problems per batch` -> `problems_per_batch`.

    >>> _plain("Rollouts-Per Problem")
    'rollouts_per_problem'
    """
    return name.lower().replace(" ", "_").replace("-", "_")


def _not_there(
    path: Path, missing: list[str], header: list[str], settings: Settings
) -> InputError:
    stepped = any(_plain(c.strip()) in ("steps", *_STEPS) for c in header)
    if stepped and set(missing) & set(_SETTINGS):
        missing = [name for name in missing if name != "rollouts"]  # B_p * n * step, once known
    cure = f"add {'; '.join(_cures(path, missing, header))}"
    if "score" in missing:
        cure += _per_seed(header)
    if numbers := [cell for cell in header if number(cell) is not None]:
        return InputError(
            f"{path}: a table must begin with the names of its columns, but the first line looks "
            f"like a row (it has {numbers[0]}); put a line of names above it."
        )
    slips = [key for key in settings.columns if key not in (c.strip() for c in header)]
    if slips:
        near = difflib.get_close_matches(slips[0], header, n=1)
        cure = f"--map names {slips[0]!r}" + (
            f", did you mean {near[0]!r}? Or " if near else ", which is not there; "
        ) + cure
    return InputError(
        f"{path}: a table must have the columns {', '.join(REQUIRED)}, but {', '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing (it has {some(header)}); {cure}."
    )


def _cures(path: Path, missing: list[str], header: list[str]) -> Iterator[str]:
    """What to add to the command for what is missing, a part each."""
    there = likely_columns(header, missing)
    wide = pattern_in_columns(header) if {"score", *_SETTINGS[1:2]} <= set(missing) else None
    if wide is not None and "score" not in there:
        yield f"--set pattern='{wide}', as the names of the columns seem to say"
        missing = [n for n in missing if n != "score" and f"{{{n}}}" not in wide]
        there = {name: column for name, column in there.items() if name in missing}
    if there:
        yield by_maps(there)
    rest = [name for name in missing if name not in there]
    constants = [name for name in rest if name in _SETTINGS]
    if constants and (named := pattern_in_path(path, constants)):
        yield f"--set pattern='{named}', as the names seem to say"
        constants = [name for name in constants if f"{{{name}}}" not in named]
    for name in constants:
        yield f"--set {name}=16 if all rows share it, or --map KEY={name}"
    if "rollouts" in rest:
        yield ("--map KEY=rollouts with your own column (B_p * n * step in all; KEY=steps for one "
               "of updates; not tokens, hours or epochs)")  # fmt: skip
    if "score" in rest:
        yield "--map KEY=score with your own column"


def load_published(name: str) -> list[Curve]:
    """Curves shipped with the package, for example "qwen2.5-7b-easy".

    Args:
        name: a panel (one B_p: 32, or what "-bp64" and "-bp256" say), or its difficulty's
            "-joint", all panels of it together.

    Raises:
        InputError: for an unknown name; lists the known ones.
    """
    folder = resources.files("isocompute") / "data" / "published"
    panels = sorted(f.name[:-4] for f in folder.iterdir() if f.name.endswith(".csv"))
    known = {panel: [panel] for panel in panels}
    for panel in panels:
        together = [p for p in panels if p.startswith(panel)]
        if len(together) > 1:
            known[f"{panel}-joint"] = together
    if name not in known:
        raise InputError(
            f"a published law must be one of {', '.join('published:' + k for k in sorted(known))}, "
            f"but got {'published:' + name!r}; choose one of them."
        )
    curves = []
    for panel in known[name]:
        with resources.as_file(folder / f"{panel}.csv") as path:
            # dots read off a figure: two may lie on one point
            curves += _load(path, (0.0, 1.0), {}, Settings(), copies=True)
    difficulty = "easy" if "-easy" in name else "hard"
    curves.sort(key=lambda c: (c.problems_per_batch, c.rollouts_per_problem))
    return [c.replace(metric="avg@4", problem_set=difficulty) for c in curves]


def _select(table: pa.Table, where: Mapping[str, str], path: Path) -> pa.Table:
    """The rows that a selection leaves."""
    for name, wanted in where.items():
        if name not in table.column_names:
            raise InputError(
                f"{path}: a selection must name a column, but there is no {name!r}; add it, or "
                "choose another."
            )
        codes, texts = texts_of(table, name)
        fits = np.array([matches(text.strip(), wanted) for text in texts], dtype=bool)
        if not fits.any():
            raise no_match(str(path), name, wanted, sorted(texts))
        table = rows_where(table, fits[codes])
    return table


def _group(
    path: Path,
    numbers: dict[str, FloatArray],
    texts: dict[str, tuple[NDArray[np.int64], list[str]]],
    recorded: Mapping[str, FloatArray],
    *,
    copies: bool,
    is_wide: bool,
) -> tuple[list[Curve], int]:
    """Curves by configuration and labels, and how many rows were copies of another."""
    keys: list[NDArray[Any]] = [numbers["problems_per_batch"], numbers["rollouts_per_problem"]]
    keys += [codes for codes, _ in texts.values()]
    seed = numbers.get("seed")
    if seed is not None:
        keys.append(np.where(np.isnan(seed), -(2.0**60), seed))  # below every seed
    order = np.lexsort((numbers["rollouts"], *reversed(keys)))
    changed = np.zeros(len(order), dtype=bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    starts = np.flatnonzero(changed)
    curves, n_copies = list[Curve](), 0
    for rows in np.split(order, starts[1:]):
        first = rows[0]
        text = {name: values[codes[first]] for name, (codes, values) in texts.items()}
        this_seed = None if seed is None or np.isnan(seed[first]) else int(seed[first])
        for column in (c for c in SCORES if c in numbers):
            score = numbers[column][rows]
            if column != "score" and np.isnan(score).all():
                continue
            kept = ~np.isnan(score)
            n_missing = 0 if is_wide else int((~kept).sum())
            x = numbers["rollouts"][rows]
            if not copies:
                first_K = _first_of_copies(x, score)
                n_copies += int((kept & ~first_K).sum())
                kept &= first_K
            if is_wide and not kept.any():
                continue
            check_recorded({name: v[rows][kept] for name, v in recorded.items()}, x[kept], path)
            optional: dict[str, Any] = {
                f"{name}_K": numbers[name][rows][kept]
                for name in ("tokens", "steps")
                if name in numbers and not np.isnan(numbers[name][rows][kept]).any()
            }
            curves.append(
                Curve(
                    problems_per_batch=int(numbers["problems_per_batch"][first]),
                    rollouts_per_problem=int(numbers["rollouts_per_problem"][first]),
                    run=text.get("run", ""),
                    seed=this_seed,
                    rollouts_K=x[kept],
                    score_K=score[kept],
                    metric=text.get("metric", "") if column == "score" else column,
                    problem_set=text.get("problem_set", ""),
                    split=text.get("split", "") or "validation",
                    arm=text.get("arm", ""),
                    n_missing=n_missing,
                    n_repeated=int((np.diff(x[kept]) == 0).sum()),
                    recorded=recorded_rows(recorded, rows),
                    **optional,
                )
            )
    return curves, n_copies


def _first_of_copies(x: FloatArray, score: FloatArray) -> NDArray[np.bool_]:
    """False for a row whose rollouts and score another row of the run has had; x ascends."""
    first = np.ones(len(x), dtype=bool)
    if (np.diff(x) > 0).all():
        return first
    order = np.lexsort((score, x))
    first[order[1:]] = (np.diff(x[order]) != 0) | (np.diff(score[order]) != 0)
    return first
