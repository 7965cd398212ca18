"""Which key of a log seems to be the score, a guess that only messages make; maps that fit none."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.values.imported import COUNTED_BY, OF_CHECKPOINTS, ImportedRun
from isocompute.importers.values.reading import is_missing_word, number, whole
from isocompute.importers.values.timing import OWN_TIMES
from isocompute.importers.words.called import mapping, refuse_logarithm
from isocompute.importers.words.settings import ERRORS, Settings
from isocompute.importers.words.splits import HELD_OUT, split_of

_NO_SCORE = re.compile(  # cer and wer are error rates; reward_s has taken so many seconds
    "best|peak|max|min|std|len|loss|err|wrong|fail|token|time|per_sec|ratio|clip|count|stop|format|"
    "violat|refus|false|entropy|perplex|baseline|reject|chosen|turns|on_win|win_reward|"
    "temperature|top_[pk]|samples_per|flo[ps]|(?<![a-z])(?:[cw]er|num|n|kl|ppl)(?![a-z])|"
    "[/_.](?:m?s|secs?|seconds|hours|[gm]b)$|_valid(?![a-z])|"
    "(?<![a-z])valid(?:ity)?_(?:[a-z]+_)?(?:rate|share|frac)", re.I,
)
_RATES = ("acc|correct|exact", "solve|success|pass|win_?rate")  # the most telling first
_ALIKE = 3  # keys named beside the likeliest
_UNREAD, _LISTED = 5, 12  # keys that were not read: likely ones, and of all
_RATE = "|".join(_RATES)
OF_PASSES = re.compile(  # what numbers evaluations of one model; a bare `trial` may be a run
    "(?:pass|draw|attempt|(?:eval|val|test)[._/]?(?:pass|draw|attempt|run|trial|rep[a-z]*))"
    "(?:[._/]?(?:id|idx|index|no|number))?", re.I,
)
_OF_ONE, _OF_K = re.compile(r"pass@1$", re.I), re.compile(r"@[0-9]+$")  # the mean; any of k right
_LEARNS = re.compile(r"(?:^|[/_.])(?:loss|kl|lr|learning_rate|grad_norm)$", re.I)
_AT_END = re.compile(r"final|(?<![a-z])(?:last|end)(?![a-z])", re.I)  # of what is scored once
_KEYS = 10_000  # whose first steps are kept; a log has hundreds
_ROWS, _FEW = 100, 2  # rows that are looked at; one with a loss is chance
_OF_TRAINING = re.compile(
    r"(?<![a-z])(?:train(?:ing)?|rollouts?|batch|actor|critic|group)(?![a-z])", re.I
)


def is_no_score(key: str) -> bool:
    """Whether a key names a length, a count or an extreme.

    >>> is_no_score("sample_len"), is_no_score("exact_match")
    (True, False)
    >>> is_no_score("reward_s"), is_no_score("reward/judge_ms"), is_no_score("aime_rewards")
    (True, True, False)
    """
    return _NO_SCORE.search(key) is not None


class Evidence:
    """What the first rows of a run show of the keys that are not read.

    Rows of one key (long tables, TensorBoard) are one where their step is.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, object]] = {}
        self._begins: dict[str, int] = {}

    def begin(self, keys: Sequence[str], step: int) -> None:
        """Take keys that no row before had."""
        if len(self._begins) < _KEYS:
            self._begins |= dict.fromkeys(keys, step)

    def in_its_place(self, key: str, last: int, keys: Sequence[str]) -> str:
        """Of keys that were not read the one that begins behind the end of one that was; "" else.

        Both seem to be a share of successes in one section, as of a score that was renamed.
        """
        home = key.rpartition("/")[0]
        then = [one for one in keys if self._begins.get(one, 0) > last and is_rate(one)
                and one.rpartition("/")[0] == home and not is_no_score(one)
                and not _AT_END.search(one)]  # fmt: skip
        return then[0] if len(then) == 1 and is_rate(key) else ""

    def take(self, row: int, step: int, values: Mapping[str, object]) -> None:
        """Take a row, by its number and step."""
        at = row if len(values) > 1 else -step - 1
        for key in values if at < 0 and len(self._begins) < _KEYS else ():  # a series of its own
            self._begins.setdefault(key, step)
        if (known := self._rows.get(at)) is not None:
            known.update(values)
        elif len(self._rows) < _ROWS:
            self._rows[at] = dict(values)

    def numbers(self, key: str) -> set[int | None]:
        """The whole numbers that rows hold under a key; None of what is none."""
        return {whole(row[key]) for row in self._rows.values() if key in row}

    def likely(self, keys: Sequence[str]) -> tuple[list[str], list[str]]:
        """Keys of numbers that are no counts: those in 0..1 first, and those no row has.

        Returns:
            These keys, and those of them that stand in every row in which an update is told of.
        """
        every = {key: None for row in self._rows.values() for key in row}
        learns = [k for k in every if _LEARNS.search(k) and split_of(k) != "validation"]
        is_trained_R = np.isfinite(self._numbers(learns)[0]).any(axis=1)
        value_RK, words = self._numbers(keys)
        is_there_RK = np.isfinite(value_RK)
        inside, outside = list[str](), list[str]()
        for k, key in enumerate(keys):
            values = value_RK[is_there_RK[:, k], k]
            most = 100 if re.search(_RATE, key, re.I) else 1  # it may be in percent
            counts = (values > most).any() and (values == np.trunc(values)).all()
            if key not in words and not counts:
                (outside if ((values < 0) | (values > 1)).any() else inside).append(key)
        beside = {keys[k] for k in np.flatnonzero(is_there_RK[is_trained_R].all(0)).tolist()}
        found = inside + outside
        return found, [k for k in found if k in beside] if is_trained_R.sum() >= _FEW else []

    def _numbers(self, keys: Sequence[str]) -> tuple[NDArray[np.float64], set[str]]:
        """What rows R hold under keys K, nan where no number; the keys that hold other words."""
        value_RK, words = np.full((len(self._rows), len(keys)), np.nan), set[str]()
        for row, value_K in zip(self._rows.values(), value_RK, strict=True):
            for k, key in enumerate(keys):
                value = row.get(key)
                if type(value) is float and isfinite(value):
                    value_K[k] = value
                elif (found := number(value)) is not None:
                    value_K[k] = found
                elif not is_missing_word(value):
                    words.add(key)
        return value_RK, words

    def is_aside(self, key: str) -> bool:
        """Whether a key stands in fewer than half of the rows: those of evaluations, it seems."""
        return 2 * sum(key in row for row in self._rows.values()) < len(self._rows)


def _likely(runs: Sequence[ImportedRun]) -> list[str]:
    """Keys that were not read and may hold a score."""
    return [key for run in runs for key in run.provenance.candidates]


def likely_options(runs: Sequence[ImportedRun]) -> tuple[list[str], list[str]]:
    """`--map KEY=METRIC` of the key that alone looks like a score, and of the likeliest.

    >>> likely_options([])
    (['--map', 'KEY=avg'], [])
    """
    maps, is_sure = _likely_maps(runs)
    first = shlex.split(maps[0])
    is_key = first == shlex.split(mapped("KEY"))
    return first if is_sure else shlex.split(mapped("KEY")), [] if is_key else first


def _errors(runs: Sequence[ImportedRun]) -> str:
    """The key that alone seems to hold errors on held-out problems; "" without."""
    found = {key for run in runs for key in run.provenance.unread if ERRORS.search(key)
             and split_of(key) == "validation"
             and not re.search("best|(?<![a-z])[cw]er(?![a-z])", key, re.I)}  # fmt: skip
    return found.pop() if len(found) == 1 else ""


def _of_training(key: str, keys: Sequence[str]) -> bool:
    """Whether a key stands beside the loss of updates, and none of them names held-out problems.

    >>> _of_training("solved", ["solved", "loss", "lr"]), _of_training("eval/acc", ["loss", "lr"])
    (True, False)
    """
    beside = {k.rpartition("/")[2].lower() for k in keys}
    return (
        "loss" in beside and not beside.isdisjoint(("grad_norm", "lr", "learning_rate", "kl"))
        and not any(split_of(k) == "validation" for k in (key, *keys))
    )


def likely_scores(runs: Sequence[ImportedRun]) -> str:
    """`--map KEY=METRIC`, or those of several keys that are called alike: the user knows which."""
    maps, is_sure = _likely_maps(runs)
    if is_sure:
        return f"{maps[0]}, which reads 1 minus it" if "=1-avg" in maps[0] else maps[0]
    if len(maps) == 1:  # which of them it is only the user knows
        return (f"{maps[0]} --set split=train if it is of the training batch, as the loss beside "
                f"it is; {maps[0]} if it is of held-out problems")
    return f"{' or '.join(maps)}, whichever is your score"


def _likely_maps(runs: Sequence[ImportedRun]) -> tuple[list[str], bool]:
    """The options that seem to name the score, the likeliest first; whether that one is sure."""
    keys = _likely(runs)
    beside = {key for run in runs for key in run.provenance.beside_loss}
    found = likely_key(keys, beside)
    if found == "KEY" and (errors := _errors(runs)):
        return [mapping(errors, "1-avg")], True
    rate = next((word for word in _RATES if re.search(word, found, re.I)), None)
    alike = [] if rate is None else [
        key for key in dict.fromkeys(keys) if key != found and re.search(rate, key, re.I)
        and not _NO_SCORE.search(key) and not _OF_TRAINING.search(key) and key not in beside
        and (split_of(key) == "validation") == (split_of(found) == "validation")
        and not (_OF_ONE.search(found) and _OF_K.sub("", key) == _OF_K.sub("", found))
    ]  # fmt: skip
    unread = [key for run in runs for key in run.provenance.unread]
    trained = found in beside and split_of(found) != "validation"
    if trained or _of_training(found, unread):
        if any(line.startswith(OF_CHECKPOINTS) for run in runs for line in run.provenance.inferred):
            return [f"{mapped(found)} --set split=train"], True  # that of the log; theirs is none
        return [mapped(found)], False
    by_k = [key for key in dict.fromkeys(keys) if re.sub("@[0-9]+", "@", key) == re.sub(
        "@[0-9]+", "@", found)]  # fmt: skip
    if len(by_k) > 1 and not alike and all(
        sum(key in run.provenance.unread for key in by_k) < 2 for run in runs
    ):  # each run has one of them: one score, of as many samples as that run took
        return [" ".join(map(mapped, by_k))], True
    return [mapped(key) for key in (found, *alike[:_ALIKE])], not alike


def likely_key(keys: Sequence[str], beside_loss: Collection[str] = ()) -> str:
    """The key that looks most like a score, of held-out problems if there is one; else "KEY".

    >>> likely_key(["eval/pass@8", "eval/pass@1", "eval/loss"])  # the mean, in whichever order
    'eval/pass@1'
    """
    fit = [key for key in keys if not _NO_SCORE.search(key)]
    fit.sort(key=lambda key: _OF_ONE.search(key) is None)
    others = [key for key in fit if not _OF_TRAINING.search(key) and key not in beside_loss]
    for words in (rf"{HELD_OUT}.*(mean|avg)(@|_at_|_)?[0-9]", r"(^|[/_])(mean|avg)(@|_at_)[0-9]",
                  rf"{HELD_OUT}.*({_RATE})", rf"{HELD_OUT}.*(score|reward)", HELD_OUT, *_RATES,
                  r"(?<![a-z])(math|gsm|aime|amc|gpqa|mbpp|humaneval)[-_ ]?[0-9k]*(?![a-z])",
                  r"(total|overall|combined)\w*$", "score|reward"):  # fmt: skip
        for among in (others, fit):
            if found := next((key for key in among if re.search(words, key, re.I)), None):
                return found
    return "KEY"


def scores_unread(run: ImportedRun) -> list[str]:
    """Keys of a run that may hold a held-out score, the likeliest first."""
    found: list[str] = []
    beside = run.provenance.beside_loss
    keys = [k for k in _likely([run]) if k not in beside or split_of(k) == "validation"]
    while len(found) < _UNREAD and (key := left_out(keys)):
        found.append(key)
        keys.remove(key)
    return found


def unread_lines(runs: Sequence[ImportedRun]) -> list[str]:
    """A line where runs with a held-out score log another that nobody asked for, a rate."""
    keys = dict.fromkeys(
        key for run in runs if any(s.split == "validation" for s in run.series)
        for key in scores_unread(run) if is_rate(key)
    )  # fmt: skip
    return [f"not read: {key}, which may be the score that you follow; {mapping(key, 'own')} reads "
            "it, and fit and plan take it with --metric own" for key in keys]  # fmt: skip


def is_rate(key: str) -> bool:
    """Whether a key seems to hold a share of successes.

    >>> is_rate("val-env/sokoban/success"), is_rate("val/reward")
    (True, False)
    """
    return re.search(_RATE, key, re.I) is not None


def left_out(unread: Sequence[str]) -> str | None:
    """Of keys that were not read, the one that seems to be the held-out score; None without.

    >>> left_out(["grad_norm", "heldout/accuracy"]), left_out(["train/acc", "value_loss"])
    ('heldout/accuracy', None)
    """
    keys = [key for key in unread if not _OF_TRAINING.search(key)]
    key = likely_key(keys)
    sure = re.search(f"{_RATE}|{HELD_OUT}.*(score|reward|mean|avg|@)", key, re.I)
    return key if sure and key in keys else None


def mapped(key: str) -> str:
    """The option that reads a key as a score."""
    return mapping(key, metric_named(key))


def metric_named(key: str) -> str:
    """The metric that the name of a score says: of k samples their mean, the best, or their vote.

    >>> metric_named("eval/mean@8"), metric_named("val/pass@4"), metric_named("val_acc")
    ('avg@8', 'best@4', 'avg')
    >>> metric_named("val/maj@8"), metric_named("val/major@8")
    ('maj@8', 'avg@8')
    """
    k = re.search(r"(?:@|_at_|(?<=mean)_?|(?<=avg)_?|(?<=pass)_?)([1-9][0-9]{0,5})$", key)
    if k is None or (k[1] == "1" and "pass" in key.lower()):
        return "avg"  # pass@1 is the mean over however many samples there are
    if re.search("(?<![a-z])(?:maj(?:ority)?|cons(?:ensus)?|vot(?:e|ing))(?![a-z])", key, re.I):
        return f"maj@{k[1]}"
    return f"{'best' if re.search('pass|best|any', key, re.I) else 'avg'}@{k[1]}"


def no_reward(runs: Sequence[ImportedRun]) -> str:
    """What is said where a loss is logged and nothing like a reward; "" otherwise."""
    keys = [key for run in runs for key in run.provenance.unread]
    learns = any(_LEARNS.search(key) for key in keys)
    if likely_key(_likely(runs)) != "KEY" or not learns or _errors(runs) or any(
        re.search("reward|score|return", key, re.I) for key in keys
    ):
        return ""
    return " No reward is logged beside the loss, so it seems to be no run of RL."


def keys_there(runs: Sequence[ImportedRun]) -> str:
    """The keys of logs that were not understood, for a message; the likely scores first.

    >>> keys_there([])
    ''
    """
    keys = list(dict.fromkeys(key for run in runs for key in run.provenance.unread))
    keys.sort(key=lambda k: re.search("eval|val|test|acc|score|reward|pass", k, re.I) is None)
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return f" (keys that were not read: {', '.join(keys[:_LISTED])}{more})" if keys else ""


def check_map(path: Path, runs: Sequence[ImportedRun], settings: Settings) -> None:
    """A column map that names nothing which is there has a slip of the pen."""
    from isocompute.importers.words.configuration import IN_ROWS

    counts = [run.rollouts_per_problem for run in runs]
    for key, column in settings.columns.items():
        if column.metric.label == "rollouts_per_problem" != key and len(counts) > 1:
            refuse_logarithm(key, "rollouts_per_problem", counts, str(path))
    others = {*IN_ROWS, *OWN_TIMES}
    scores = {k: c for k, c in settings.columns.items() if c.metric.label not in others}
    if not scores:
        return
    meant = {c.metric.variable for c in scores.values()}
    if any(s.metric.variable in meant for run in runs for s in run.series):
        return
    if any(COUNTED_BY.format(key) in run.provenance.inferred for run in runs for key in scores):
        return
    errors = (error for run in runs for error in run.errors)
    if told := next((e for e in errors if e.reason.startswith(tuple(scores))), None):
        raise InputError(
            f"a column map must name keys that hold numbers, but in {told.file}, line {told.line}, "
            f"{told.reason}; write plain numbers."
        )
    there = list(dict.fromkeys(key for run in runs for key in run.provenance.unread))
    near = [m for key in scores for m in difflib.get_close_matches(key, there, n=1)]
    hint = f"; did you mean {near[0]}?" if near else f"{keys_there(runs)}; correct it."
    raise InputError(
        f"a column map must name keys of the log, but {path} has none of "
        f"{', '.join(list(scores)[:6])}{hint}"
    )
