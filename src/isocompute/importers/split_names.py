"""Files of one run that differ in what they measure: their names say which split or set it is.

Logs of training and of evaluation lie side by side (`train.jsonl`, `eval.jsonl`, or folders of
these names), or those of several evaluation sets (`eval_math.csv`, `eval_aime24.csv`). They are no
repetitions.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_TRAIN = dict.fromkeys(("train", "training"), "train")
_EVAL = {
    **dict.fromkeys(("eval", "evals", "evaluation", "evaluations"), "eval"),
    "val": "val", "validation": "val", "test": "test",
}  # fmt: skip
_GENERAL = frozenset(("log", "logs", "metrics", "history", "results", "scores"))
# Words that tell runs or parts apart, not evaluation sets: seed1, n8, 0, 1e
_OF_RUNS = re.compile(r"(?:s|seed|n|g|gen|bp|bs|b|lr|run|rep|trial|part|rank|k|step|v)?[0-9.e-]+")
# Numbers of what one job writes anew, its starts and its checkpoints, and times of the clock; those
# of n, of seeds and of runs tell jobs apart.
_OF_JOB = re.compile(
    r"(?<![a-z])(?P<word>exp|job|v|version|attempt|try|retry|restart|resume|part|step|checkpoint|"
    r"ckpt|iter|iteration|update)[-_]?[0-9]+(?![0-9a-z])"
    r"|(?<![a-z0-9.])(?:20[0-9]{6}|20[0-9]{2}(?:-[0-9]{2}){2}|1[0-9]{9})"
    r"(?:[-_T ]?[0-9]{2}(?:[-:.]?[0-9]{2}){1,2}(?:\.[0-9]+)?)?",
    re.I,
)


def job_of(path: Path) -> str:
    """A path without the numbers of what one job writes anew.

    >>> job_of(Path("n8/exp_002/step_40/20250812-141207.log"))
    'n8/exp/step/.log'
    """
    return _OF_JOB.sub(lambda found: found["word"] or "", path.as_posix())


class Measured(NamedTuple):
    """What the name of a log says that it measures; "" where it does not."""

    split: str = ""
    problem_set: str = ""


class _Name(NamedTuple):
    word: str  # train, eval, val or test
    before: tuple[str, ...]  # words before that of the split
    after: tuple[str, ...]

    @property
    def split(self) -> str:
        return self.word and ("train" if self.word == "train" else "validation")


def measured(path: Path) -> Measured:
    """What a log measures, where one that measures something else lies beside it.

    A lone `train.jsonl` may hold everything.
    """
    own = _told(path.name)
    beside = [] if not own.split else _names(path.parent, path.parent.stat().st_mtime_ns)
    alike = [one for one in beside if one.before == own.before]
    words = {one.word for one in alike if one.word}
    sets = {(one.word, *one.after) for one in alike if one.split == "validation"}
    if (
        own.split == "validation"
        and len(sets) > 1
        and words != {"test"}
        and not any(_OF_RUNS.fullmatch(word) for one in sets for word in one)
    ):  # runs may be called test_a and test_b
        one_word = len(words - {"train"}) == 1
        return Measured(own.split, "_".join(own.after if one_word else (own.word, *own.after)))
    if any(one.split != own.split and one.after == own.after for one in alike):
        return Measured(own.split)
    return Measured(split_folder(path.parent))


def is_of_folder(path: Path) -> bool:
    """Whether a log's name says what it measures of its folder's run, and nothing else."""
    return not _told(path.name).before and measured(path) != Measured()


def split_folder(folder: Path) -> str:
    """The split of a folder, where one of the other split lies beside it; else ""."""
    own = _told(folder.name)
    if not own.split or own.before or own.after:
        return ""
    others = _names(folder.parent, folder.parent.stat().st_mtime_ns)
    there = any(o.split not in ("", own.split) and not o.before and not o.after for o in others)
    return own.split if there else ""


@lru_cache(maxsize=16)
def _names(folder: Path, _changed: int) -> list[_Name]:
    return [_told(file.name) for file in folder.iterdir()]


def _told(name: str) -> _Name:
    """The split that a name says, and what stands before and after it.

    >>> _told("bp32_n8_eval.jsonl"), _told("train_log.csv")
    (_Name(word='eval', before=('bp32', 'n8'), after=()), _Name(word='train', before=(), after=()))
    """
    stem = re.sub(r"(?:\.(?:jsonl|json|csv|tsv|log|txt|out|gz))+$", "", name.lower())
    words = [word for word in re.split(r"[-_. ]+", stem) if word not in _GENERAL]
    at = next((i for i, word in enumerate(words) if word in _TRAIN | _EVAL), None)
    if at is None:
        return _Name("", tuple(words), ())
    return _Name((_TRAIN | _EVAL)[words[at]], tuple(words[:at]), tuple(words[at + 1 :]))
