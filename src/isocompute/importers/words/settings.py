"""What the user adds to a log: the configuration that it does not hold, and the names it uses."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.values.imported import FROM_NAME, Metric
from isocompute.importers.values.reading import number, whole
from isocompute.importers.values.timing import OWN_TIMES
from isocompute.importers.words.called import LOG2
from isocompute.importers.words.paths import PLACEHOLDER, parse_by_n, regex_of

_WHOLE = (
    "problems_per_batch", "rollouts_per_problem", "steps", "seed", "evaluation_samples",
    "evaluation_problems", "gpus", "processes", "begins", "num_iterations", "training_problems",
    "eval_every",
)
_WORDS = {  # settings of few words, and the one that is offered
    "split": (("train", "validation"), "validation"), "resumed": (("join", "apart"), "join"),
    "padded": (("drop", "keep"), "drop"), "drawn": (("all", "kept"), "kept"),
}
_MEANT = ("problems_per_batch", "rollouts_per_problem", "batch_size", "rollouts", "steps", "epochs",
          "score", "problems_sampled", "problems_drawn", "seed", "run", *LOG2,
          *OWN_TIMES)  # fmt: skip
# The short words of --current, for settings, placeholders and columns.
_SHORT = {"bp": "problems_per_batch", "n": "rollouts_per_problem"}
_COLUMNS = {**_SHORT, "batch_size": "responses_per_batch"}  # B = B_p * n, as in --batch-size
ERRORS = re.compile(
    r"(?:^|[/_.-])(?:errors?|err|failures?|fail|wrong|[cw]er)(?:[/_.-]?(?:rates?|mean))?$", re.I
)
_OWN = ("inferred", "named", "assumed", "by_n", "within")  # not to be set
_METRIC = re.compile(r"(?P<kind>[A-Za-z_][\w-]*?)(?:@(?P<k>[1-9][0-9]{0,5}))?(?::(?P<est>[a-z]+))?")


@dataclass(frozen=True, kw_only=True)
class Column:
    """What one key of the log means: a metric, and the problem set and split it belongs to.

    `errors`: it holds shares of errors, and the metric is 1 minus each. `trainer` names whose word
    it is, where that is known: trainers count their steps differently.
    """

    metric: Metric
    problem_set: str = ""
    split: str = "validation"
    errors: bool = False
    trainer: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fills what a log does not say. It never overrides what the log says.

    Args:
        problems_per_batch, rollouts_per_problem, steps, seed: the run's configuration.
        evaluation_samples: k of the log's avg@k where its key does not hold it.
        evaluation_problems: how many problems an evaluation has, where scores are successes: what
            the noise of a score follows from.
        gpus: of a run, where the log has times and does not say on how many.
        processes: that trained a run, where the log has the batch of each alone.
        num_iterations: steps that a batch of rollouts serves, where TRL's log does not say it.
        training_problems: those of one epoch, where a table counts epochs.
        eval_every: updates from one evaluation to the next, where the log counts evaluations.
        learning_rate: of a run whose log holds none.
        begins: the step from which a run's own updates count, where it went on from another run's
            checkpoint and its log with that run's counter; 0: all of them are its own.
        pattern: names of files, runs or folders with placeholders for those above, for example
            "bp{problems_per_batch}_n{rollouts_per_problem}": found anywhere in them, and across
            folders where it holds a slash; a star is anything within a name, and at the end
            "[_s{seed}]" a seed that some of them say.
        run: name of the run.
        problem_set, split: of metrics whose key holds none.
        step: key that holds the updates, where the log counts more than one thing.
        resumed: "join" or "apart": whether a log that begins where another ends goes on with it.
        percent: names of runs whose held-out scores are percent, with commas between them.
        drawn: "all" or "kept": which rollouts count where dynamic sampling draws more groups than
            an update trains on.
        padded: "drop" or "keep": what is done with scores that repeat to the edge of a table.
        columns: key of the log -> what it means; replaces the built-in reading of that key.
        by_n: B_p of the runs of each n, as `problems_per_batch` = "4:128,8:64" says it.
        inferred: what `pattern` found, in words; not to be set.
        named: what it found; not to be set.
        assumed: settings for which some number stands, to see what else is asked; not to be set.
        within: the folder that was given, in which a run's configuration may lie; not to be set.

    Raises:
        InputError: on a number that is not whole, or a placeholder that is not known.
    """

    problems_per_batch: int | None = None
    rollouts_per_problem: int | None = None
    steps: int | None = None
    seed: int | None = None
    evaluation_samples: int | None = None
    evaluation_problems: int | None = None
    gpus: int | None = None
    processes: int | None = None
    begins: int | None = None
    num_iterations: int | None = None
    training_problems: int | None = None
    eval_every: int | None = None
    learning_rate: float | None = None
    pattern: str | None = None
    run: str | None = None
    problem_set: str | None = None
    split: str | None = None
    step: str | None = None
    resumed: str | None = None
    drawn: str | None = None
    padded: str | None = None
    percent: str | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    inferred: tuple[str, ...] = ()
    by_n: Mapping[int, int] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    assumed: frozenset[str] = frozenset()
    within: Path | None = None

    def __post_init__(self) -> None:
        for name in _WHOLE:
            value = getattr(self, name)
            least = 0 if name in ("seed", "begins") else 1
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)
                                      or value < least):
                raise InputError(
                    f"setting `{name}` must be an integer >= {least}, but got {value!r}; "
                    "write your own number."
                )
        rate = self.learning_rate
        if rate is not None and not (isinstance(rate, float) and 0 < rate < math.inf):
            raise InputError(
                f"setting `learning_rate` must be a number > 0, but got {rate!r}; write "
                "--set learning_rate=1e-6."
            )
        for name, (words, usual) in _WORDS.items():
            said = getattr(self, name)
            if said not in (None, *words):
                raise InputError(
                    f"setting `{name}` must be {' or '.join(words)}, but got {said!r}; "
                    f"write --set {name}={usual}."
                )
        for name in PLACEHOLDER.findall(self.pattern or ""):
            if name not in _WHOLE:
                raise InputError(
                    f"a placeholder of `pattern` must be one of {', '.join(_WHOLE)}, but got "
                    f"{{{name}}} in {self.pattern!r}; write "
                    "--set pattern='bp{problems_per_batch}_n{rollouts_per_problem}'."
                )

    @property
    def facts(self) -> dict[str, str]:
        """What repetitions of a run share, as far as it was told."""
        return {} if self.learning_rate is None else {"learning_rate": f"{self.learning_rate:g}"}

    def beside(self, column: Column, key: str) -> Column:
        """A built-in reading of a key, as another variable where `columns` names that metric."""
        mine, own = column.metric, column.metric.variable or key
        for other in self.columns.values():
            same = (other.metric.kind, other.split) == (mine.kind, column.split)
            if (
                mine.core and same and other.metric.samples in (mine.samples, None)
                and other.problem_set in (column.problem_set, "")
            ):
                return replace(column, metric=replace(mine, core=False, variable=own))
        return column

    def for_path(self, path: Path) -> Settings:
        """With what `pattern` finds in a path: in its name, else in it and more of its folders."""
        if self.pattern is None:
            return self
        parts = path.parts
        for first in range(len(parts) - 1, -1, -1):
            found = self.for_file("/".join(parts[first:]))
            if found is not self:
                return found
        return self

    def for_run(self, name: str) -> Settings:
        """As `for_file`, of one of a file's runs: its name says more than a folder's."""
        return replace(self, named=frozenset()).for_file(name, self)

    def for_file(self, name: str, otherwise: Settings | None = None) -> Settings:
        """With what `pattern` finds in a name; unchanged where it does not match.

        The first name that says a number decides; a setting fills what no name says. A pattern
        begins a word: `r{seed}` is not in "for83".

        Args:
            name: of a file, a folder or a run.
            otherwise: what holds where the name does not match.
        """
        if self.pattern is None:
            return otherwise or self
        names = PLACEHOLDER.findall(self.pattern)
        if len(set(names)) != len(names):
            raise InputError(
                f"a placeholder may stand once in `pattern`, but got {self.pattern!r}; "
                "drop the repeat."
            )
        match = re.search(regex_of(self.pattern), name)
        if match is None:
            return otherwise or self
        said = {key: int(text) for key, text in match.groupdict().items() if text is not None}
        if otherwise is not None and all(
            getattr(otherwise, key) == value for key, value in said.items()
        ):
            return replace(otherwise)
        found: dict[str, Any] = {k: v for k, v in said.items() if k not in self.named}
        if not found:
            return replace(self)
        told = ", ".join(f"{key}={value}" for key, value in found.items())
        line = f"{told}: {FROM_NAME} {match.group(0)!r}"
        named = (self if otherwise is None else otherwise).named | found.keys()
        kept = (
            before for before in self.inferred if otherwise is None or FROM_NAME not in before
            or not any(f"{key}=" in before for key in found)
        )  # fmt: skip
        inferred = (*kept, line)
        b_p = self.by_n.get(found.get("rollouts_per_problem", 0), self.problems_per_batch)
        found = {"problems_per_batch": b_p, **found}
        return replace(self, **found, inferred=inferred, named=named)


def parse_metric(text: str, *, key: str = "") -> Metric:
    """`avg@4`, `best@4`, `best@4:bootstrap`, `avg` -> Metric.

    Raises:
        InputError: for text of another form.
    """
    match = _METRIC.fullmatch(text)
    if match is None:
        raise InputError(
            f"a metric must look like avg@4, best@4 or best@4:bootstrap, but got {text!r}; "
            "correct the column map."
        )
    kind = match.group("kind")
    default = {"avg": "mean", "best": "unbiased", "worst": "unbiased"}.get(kind, "unknown")
    return Metric(
        kind=kind,
        samples=int(match.group("k")) if match.group("k") else None,
        estimator=match.group("est") or default,  # type: ignore[arg-type]  # checked in Metric
        variable=key,
    )


def settings_from(values: Mapping[str, Any]) -> Settings:
    """A mapping (from `--set` or a YAML file) -> Settings.

    `columns` maps a key of the log to a metric's name, or to
    {metric, problem_set, split}.

    Raises:
        InputError: on a name that is not known, with the nearest one that is.
    """
    known = [f.name for f in fields(Settings) if f.name not in _OWN]
    result: dict[str, Any] = {}
    for said, value in values.items():
        name = _SHORT.get(said, said)
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; use one of them."
            raise InputError(
                f"a setting must be one of {', '.join(known)}, but got {name!r}{hint}"
            )
        if name == "columns":
            result[name] = _columns(value)
            counts = [key for key, of in result[name].items() if of.metric.label == "steps"]
            if counts:  # as `step` says it
                result.setdefault("step", counts[-1])
                del result[name][counts[-1]]
        elif name == "pattern":
            result[name] = re.sub(r"\{(bp|n)\}", lambda m: f"{{{_SHORT[m[1]]}}}", str(value))
        elif name == "problems_per_batch" and ":" in str(value):
            result["by_n"] = parse_by_n(str(value))
        elif name in (*_WHOLE, "learning_rate"):
            found = whole(value) if name in _WHOLE else number(value)
            result[name] = value if found is None else found
        else:
            result[name] = str(value)
    return Settings(**result)


def load_settings(
    pairs: Sequence[str], maps: Sequence[str | Path] | str | Path = ()
) -> Settings:
    """Settings of the command line: pairs of `--set`; maps are `KEY=NAME`, or YAML files.

    Raises:
        InputError: where a file does not map names to values, or a name is not known.
    """
    values: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for one in [maps] if isinstance(maps, str | Path) else maps:
        key, equals, name = str(one).rpartition("=")
        if equals and name and not Path(one).exists():  # a table's index has no name: =steps
            if "_OR_" in name and name.isupper():  # a place for a choice
                raise InputError(
                    f"a column must have one meaning, but {key!r} is to be {name}; choose one: "
                    f"--map {key}={name.partition('_OR_')[0].lower()}, say."
                )
            columns[key.strip()] = name.strip()
            continue
        said = _map_of(Path(one))
        theirs = said.pop("columns", {})
        columns |= theirs if isinstance(theirs, Mapping) else _columns(theirs)
        values |= said
    if columns:
        values["columns"] = columns
    return settings_from({**values, **_pairs(pairs)})


def _map_of(path: Path) -> dict[str, Any]:
    from isocompute.study.yaml12 import read_yaml

    values = read_yaml(path)
    if not isinstance(values, Mapping):
        raise InputError(
            f"a column map must hold names and values, but {str(path)!r} holds {values!r:.60}"
            "; write for example columns: {val/accuracy: avg@4}, or --map val/accuracy=avg@4."
        )
    return dict(values)


def _pairs(pairs: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not value:
            raise InputError(f"a setting must look like NAME=VALUE, but got {pair!r}; write both.")
        values[name.strip()] = value.strip()
    return values


def _columns(value: object) -> dict[str, Column]:
    if not isinstance(value, Mapping):
        raise InputError(
            f"`columns` must map keys of the log to metrics, but got {value!r}; write for "
            "example columns: {val/accuracy: avg@4}."
        )
    columns: dict[str, Column] = {}
    for key, meaning in value.items():
        score = meaning.removeprefix("1-") if isinstance(meaning, str) else meaning
        errors = score != meaning and (score == "score" or score not in (*_MEANT, *_COLUMNS))
        if errors:
            meaning = score
        elif ERRORS.search(str(key)):
            minus = shlex.quote(f"{key}=1-{meaning if isinstance(meaning, str) else 'avg'}")
            raise InputError(
                f"a score must grow with success, but {key!r} counts errors; add --map {minus}, "
                "which reads 1 minus it."
            )
        if isinstance(meaning, str):
            name = _COLUMNS.get(meaning, meaning)
            near = difflib.get_close_matches(name, _MEANT, n=1, cutoff=0.8)
            if near and name not in (*_MEANT, *_COLUMNS.values()):
                raise InputError(
                    f"a column must be a metric or {', '.join(_MEANT)}, but {key!r} is to be "
                    f"{name!r}; did you mean {near[0]}?"
                )
            columns[str(key)] = Column(metric=parse_metric(name, key=str(key)), errors=errors)
            continue
        if not isinstance(meaning, Mapping) or "metric" not in meaning or (
            set(meaning) - {"metric", "problem_set", "split"}
        ):
            raise InputError(
                f"a column must be a metric or have the keys metric, problem_set, split, but "
                f"{key!r} has {meaning!r}; write for example {{metric: avg@4, split: validation}}."
            )
        split = str(meaning.get("split", "validation"))
        if split not in ("train", "validation"):
            raise InputError(
                f"the split of a column must be train or validation, but {key!r} has {split!r}; "
                "correct the column map."
            )
        columns[str(key)] = Column(
            metric=parse_metric(str(meaning["metric"]), key=str(key)),
            problem_set=str(meaning.get("problem_set", "")),
            split=split,
        )
    return columns
