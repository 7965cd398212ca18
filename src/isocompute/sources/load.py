"""Every SOURCE -> learning curves: tidy files, study folders, logs, published curves, the grid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from isocompute.domain import Curve
from isocompute.domain.text import none_of
from isocompute.errors import InputError
from isocompute.files import not_found
from isocompute.importers import (
    Settings,
    load_imported,
    load_published,
    load_table,
    load_tidy,
    settings_from,
)
from isocompute.importers.convert import note_lines, pooled, to_curves
from isocompute.importers.given import tables_or_runs
from isocompute.importers.runs.meant import left_out, select_imported
from isocompute.importers.runs.repetitions import (
    own_range,
    require_one_arm,
    unsaid,
    without_trials,
)
from isocompute.importers.tables.checks import check_one_recipe
from isocompute.importers.tables.tidy import IN_MEMORY
from isocompute.importers.tables.workbooks import shown
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.values.reading import anew
from isocompute.importers.words.asking import answered, asked_at_once
from isocompute.importers.words.names import with_names
from isocompute.importers.words.scale import (
    PLAIN,
    refuse_percent,
    refuse_two_units,
    require_range,
    rescaled,
)
from isocompute.importers.words.splits import SPLITS
from isocompute.sources.choice import (
    joined,
    metric_of,
    of_one_exam,
    of_one_set,
    one_of,
    refuse_tables_of_two_sweeps,
    without_doubles,
)
from isocompute.sources.grid import GRID, load_grid
from isocompute.sources.studies import Found, is_study, study_curves
from isocompute.store import Store, arms

PUBLISHED = "published:"
_CURVE_KEYS = ("run", "seed", "problems_per_batch", "rollouts_per_problem")
_OF_TABLES = ("score_range", "where", "settings", "say")  # what of a question concerns tables

Say = Callable[[str], None]
# Any: a data frame of pandas or polars, an Arrow table: whatever gives an Arrow stream.
Source = str | Path | Any
Sources = Source | Sequence[Source]


class Loaded(NamedTuple):
    """The curves asked for, and those of the same runs on their training batches."""

    curves: list[Curve]
    train: list[Curve]


class Options(TypedDict, total=False):
    """Options of `load_curves` and `load_with_train`.

    Args:
        metric: avg@k, best@k, worst@k, or a source's own name. None: for a study avg@k with every
            sample; elsewhere the only metric, or the only mean.
        problem_set: None: the only one there is.
        split: "validation" (the default) or "train": of a study, the success on the training
            batches between two evaluations.
        where: KEY=VALUE words that narrow every source, see `store.arms`; or {KEY: VALUE}.
        score_range: of the scores of tidy files.
        settings: what the sources do not say, as `--set` says it: {"problems_per_batch": 16,
            "pattern": "n{rollouts_per_problem}"}; and "columns", as `--map` does.
        say: called with each line about what was left out of logs, and why.
    """

    metric: str | None
    problem_set: str | None
    split: str | None
    where: arms.Words
    score_range: tuple[float, float]
    settings: Settings | Mapping[str, Any] | None
    say: Say | None


def load_curves(sources: Sources, **options: Unpack[Options]) -> list[Curve]:
    """Learning curves of one metric on one problem set.

    Args:
        sources: one or more tables of curves, folders of such tables, study folders, logs,
            `published:NAME` or `grid:NAME`; `STUDY[recipe=kl]` selects runs. Or tables in memory
            (pandas, polars, Arrow).
        options: metric, problem_set, split, where, score_range, settings, say: see `Options`.

    Raises:
        InputError: a source that cannot be read, or with several metrics, sets or recipes.
    """
    return _load(sources, train=False, **options).curves


def load_with_train(sources: Sources, **options: Unpack[Options]) -> Loaded:
    """The curves of `load_curves`, and of the same sources on their training batches.

    The second list, for the train-test gap, is empty if a source holds no training scores, or if
    a split was chosen.
    """
    return _load(sources, train=True, **options)


@anew
def _load(sources: Sources, *, where: arms.Words = (), **options: Any) -> Loaded:
    if isinstance(options.get("settings"), Mapping):
        options["settings"] = settings_from(options["settings"])

    def read(words: Sequence[str]) -> Loaded:
        if not words:
            return _loaded(sources, where, **options)
        settings, more = answered(options.get("settings"), words)
        narrowed = [*arms.listed(where), *more.pop("where", [])]
        under = {**options, **more, "settings": settings, "say": None}
        return _loaded(sources, narrowed, **under)

    return asked_at_once(read)


def _loaded(sources: Sources, where: arms.Words, **options: Any) -> Loaded:
    listed = _listed(sources)
    names = source_names(listed)
    shared, asked = arms.parse_where(where), _Asked(**options)
    labels = {key: getattr(asked, key) or shared.pop(key, None) for key in arms.LABELS}
    each, chosen = list[_Asked](), arms.chosen(shared)
    for source, name in zip(listed, names, strict=True):
        path, own = (name, {}) if is_table_in_memory(source) else arms.split_source(name)
        words: dict[str, Any] = {key: own.pop(key, None) or labels[key] for key in arms.LABELS}
        train = asked.train and words["split"] is None
        words |= {"path": path, "source": source, "where": {**shared, **own}, "train": train,
                  "split": words["split"] or "validation"}
        chosen |= arms.chosen(own)
        each.append(replace(asked, **words))
    found, lines = arms.all_that_match([partial(_load_one, one) for one in each])
    asked.tell(lines)
    curves = [c for one in found for c in one.curves]
    if len(names) > 1:
        arms.require_one_arm(" ".join(names), [run for one in found for run in one.runs])
        runs = [run for one in found for run in one.logs]
        require_one_arm(runs, arms.chosen(shared), labels["problem_set"])
        curves, lines = without_doubles([one.curves for one in found])
        curves = curves if runs else joined(curves)
        check_one_recipe(curves, " ".join(names), chosen)
        asked.tell(lines)
    if len({c.arm for c in curves if c.arm}) > 1:
        one_of(curves, "arm", None)
    curves = _settled(curves, labels["metric"], asked.say)
    return Loaded(curves, _of_metric([c for one in found for c in one.train], curves[0].metric))


def _of_table(table: Path, how: Mapping[str, Any]) -> list[tuple[Path, Curve]]:
    return [(table, c) for c in load_tidy(table, **how)]


def curves_of_runs(
    runs: Sequence[ImportedRun], path: str, words: Sequence[str] = ()
) -> list[Curve]:
    """What `load_curves` would give of runs that were read, with words of the command line."""
    _, more = answered(None, words)
    where = arms.parse_where(more.pop("where", ()))
    asked = _Asked(**{"split": "validation", **more}, path=path, where=where, train=False)
    return _settled(_of_logs(asked, runs).curves, asked.metric, None, asked.problem_set)


def _settled(
    curves: list[Curve], metric: str | None, say: Say | None, problem_set: str | None = None
) -> list[Curve]:
    """Curves of one problem set under one metric; which ones must be clear."""
    curves = pooled(of_one_exam(one_of(curves, "problem_set", problem_set)), metric, say)
    return one_of(curves, "metric", metric_of(curves, None))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One source, and what is asked of it; None where it is left open."""

    path: str = ""
    source: Source = ""
    where: arms.Where = field(default_factory=dict)
    metric: str | None = None
    problem_set: str | None = None
    split: str | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    settings: Settings | None = None
    say: Say | None = None
    train: bool

    def tell(self, lines: Iterable[str]) -> None:
        """Say what was left out, where somebody listens."""
        if self.say is not None:
            for line in lines:
                self.say(line)


def is_table_in_memory(source: Source) -> bool:
    """Whether a source is a data frame or an Arrow table."""
    return hasattr(source, "__arrow_c_stream__")


def source_names(sources: Sources) -> list[str]:
    """What messages and documents call sources: their paths, or "the table"."""
    return [IN_MEMORY if is_table_in_memory(one) else str(one) for one in _listed(sources)]


def _listed(sources: Sources) -> list[Source]:
    listed = list(sources) if isinstance(sources, list | tuple) else [sources]
    for source in listed:
        if not isinstance(source, (str, Path)) and not is_table_in_memory(source):
            raise InputError(
                "a source must be a path, published:NAME, grid:NAME or a table (pandas, polars, "
                f"Arrow), but got a {type(source).__name__}; give one of these."
            )
    if not listed:
        raise InputError("at least 1 source must be named, but got 0; name a file or a folder.")
    return listed


def _of_metric(train: list[Curve], metric: str) -> list[Curve]:
    """Of several metrics of training, the one that is fitted; none beyond 0..1 is a success."""
    same = [c for c in train if c.metric == metric]
    same = same or (train if len({c.metric for c in train}) == 1 else [])
    rates = all(((c.score_K >= 0) & (c.score_K <= 1)).all() for c in same)
    return same if rates else []


def _load_one(asked: _Asked) -> Found:
    """Curves of one source, on the problem set and under the metric asked for."""
    found = _read(asked)
    if not (curves := found.curves):
        raise _nothing_in(asked)
    if asked.problem_set is not None:
        curves = one_of(curves, "problem_set", asked.problem_set)
    if asked.metric is not None:
        curves = pooled(curves, asked.metric, asked.say)
        curves = one_of(curves, "metric", metric_of(curves, asked.metric))
    return found._replace(curves=curves)


def _read(asked: _Asked) -> Found:
    """Every curve of one source that was asked for, by the kind of source."""
    how: Any = {name: getattr(asked, name) for name in _OF_TABLES}
    if is_table_in_memory(asked.source):
        return _of_split(asked, load_table(asked.source, **how))
    if asked.path.startswith((PUBLISHED, GRID)):
        _require_rates(asked)
    if asked.path.startswith(PUBLISHED):
        published = load_published(asked.path.removeprefix(PUBLISHED))
        return Found(_narrow(asked, [c for c in published if c.split == asked.split]))
    if asked.path.startswith(GRID):
        curves, train = load_grid(
            asked.path.removeprefix(GRID), problem_set=asked.problem_set,
            split=asked.split or "validation", where=asked.where, say=asked.say,
        )  # fmt: skip
        return Found(curves, train if asked.train else [])
    file = Path(asked.path)
    if is_study(file):
        gpus = getattr(asked.settings, "gpus", None)
        own = study_curves(
            file, asked.where, metric=asked.metric, problem_set=asked.problem_set,
            split=asked.split, train=asked.train, gpus=gpus,
        )  # fmt: skip
        logs = _of_logs(asked, imported) if (imported := load_imported(file, gpus)) else Found([])
        if not imported:
            _require_rates(asked)
        return Found(own.curves + logs.curves, [*own.train, *logs.train], own.runs, logs.logs)
    if not file.exists():
        raise InputError(not_found(file))
    tables, runs = tables_or_runs(file, asked.settings, asked.say)
    if tables:
        how["say"] = None if (say := asked.say) is None else lambda line: say(shown(line))
        try:
            each, lines = arms.all_that_match([partial(_of_table, one, how) for one in tables])
            found = [pair for pairs in each for pair in pairs]
            asked.tell(lines)
            check_one_recipe([c for _, c in found], asked.path, arms.chosen(asked.where))
            if len(tables) > 1 and "run" not in arms.chosen(asked.where):
                refuse_tables_of_two_sweeps(found)
        except InputError as error:
            error.args = (shown(str(error)),)
            raise
        return _of_split(asked, joined(c for _, c in found))
    if asked.score_range == PLAIN:
        refuse_percent(runs)
    asked.tell(note_lines([(r.name, note) for r in runs for note in (*r.notes, *r.concluded)]))
    return _of_logs(asked, runs)


def _require_rates(asked: _Asked) -> None:
    """Refuse a range of scores where they are known to be success rates."""
    if asked.score_range != PLAIN:
        low, high = asked.score_range
        raise InputError(
            f"{asked.path}: its scores are success rates in 0..1, but got the range {low:g} to "
            f"{high:g}; drop --range."
        )


def _of_split(asked: _Asked, curves: list[Curve]) -> Found:
    kinds: dict[tuple[str, ...], list[Curve]] = {}
    for c in curves:
        kinds.setdefault((c.metric, c.problem_set, c.split), []).append(c)
    for alike in kinds.values():
        refuse_two_units(alike, asked.path)
    train = [c for c in curves if c.split == "train"] if asked.train else []
    held_out = sorted({c.split for c in curves if SPLITS.get(c.split.lower()) == "validation"})
    of = asked.split
    if of == "validation" and of not in held_out and held_out:  # a table's own words for it
        if len(held_out) > 1:
            raise InputError(
                f"{asked.path}: the scores must be of one split, but the column split has "
                f"{' and '.join(held_out)}; choose with --where split={held_out[0]}, or another."
            )
        of = held_out[0]
    return Found([c for c in curves if c.split == of], train)


def _of_logs(asked: _Asked, runs: Sequence[ImportedRun]) -> Found:
    path, score_range, chosen = asked.path, asked.score_range, arms.chosen(asked.where)
    named = with_names(runs)
    runs, trials = without_trials(select_imported(path, named, asked.where), chosen)
    asked.tell(left_out(path, named, asked.where))
    of_split = [r for r in runs if any(asked.split in (None, s.split) for s in r.series)]
    scored = of_split or [run for run in runs if run.series]  # a try without scores is left out
    require_one_arm(scored, chosen, asked.problem_set)
    asked.tell([*trials, *unsaid(scored, chosen)])
    if score_range == PLAIN:  # as it was declared at the import
        score_range = own_range(path, scored)
    train: list[Curve] = []
    if asked.train:
        # nothing about training, several metrics of it, or rewards on another scale
        with contextlib.suppress(InputError):
            train = rescaled(to_curves(runs, split="train"), score_range, path)
    wanted: Any = {"problem_set": asked.problem_set, "split": asked.split, "say": asked.say}
    curves = of_one_set(to_curves(runs, asked.metric, **wanted))
    for s in (s for run in runs for s in run.series if s.metric.label == curves[0].metric):
        require_range(s.metric.variable, s.score_K, score_range, path)
    curves = rescaled(curves, score_range, path)
    if score_range != PLAIN:
        low, high = score_range
        rewards = "; best@k and worst@k of rewards are the log's own, never computed" if low else ""
        asked.tell([f"{path}: scores of {low:g}..{high:g} are fitted in 0..1, which JSON holds; "
                    f"all else is as logged{rewards}"])
    return Found(curves, train, logs=runs)


def _narrow(asked: _Asked, curves: list[Curve]) -> list[Curve]:
    """What a selection leaves of curves that know no more than their configuration and run."""
    for key in asked.where:
        if key not in _CURVE_KEYS:
            raise InputError(
                f"{asked.path}: a selection of logs must name one of {', '.join(_CURVE_KEYS)}, "
                f"but got {key!r}; logs hold no recipe, so import them apart, or select by "
                "run=PATTERN."
            )
    return arms.matching(asked.path, curves, asked.where, lambda c, key: str(getattr(c, key)))


def _nothing_in(asked: _Asked) -> InputError:
    """Why a source gives no curve: no such split, another problem set, or no results yet."""
    path = asked.path
    if not is_study(path):
        return InputError(
            f"{path}: a source must hold scores of the split {asked.split!r}, but has none; choose "
            "another with --split."
        )
    with Store(path) as store:
        runs = store.runs()
    sets = sorted({name for run in runs for name in run.spec["validation"]})
    if asked.split != "train" and asked.problem_set not in (None, *sets):
        return InputError(none_of("problem set", sets, str(asked.problem_set)))
    what = "update" if asked.split == "train" else "evaluation"
    again = "start the study again: isocompute run STUDY.yaml (how far it is"
    if all(run.state in ("failed", "invalid") for run in runs):
        again = "mend it, then: isocompute run STUDY.yaml --retry-failed (what failed"
    return InputError(f"{path}: a curve needs an {what} of a valid run, but none of {len(runs)} "
                      f"runs has one; {again}: isocompute status {path}).")  # fmt: skip
