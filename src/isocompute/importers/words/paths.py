"""What names of files and folders say: a run's name, what a log measures, numbers.

Logs of training and of evaluation lie side by side (`train.jsonl`, `eval.jsonl`, or folders of
these names), or those of several evaluation sets (`eval_math.csv`, `eval_aime24.csv`). They are no
repetitions. What `--set` gives for several runs at once is a pattern of their names, or a B_p by n.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from isocompute.errors import InputError
from isocompute.importers.values.reading import until_it_changes, whole

# What logrotate, and Python's RotatingFileHandler, append to the older parts of a log.
ROTATED = re.compile(r"(?<=\w)\.[0-9]{1,3}(?=\.gz$|$)")
_ENDINGS = (".gz", ".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".log", ".txt", ".out", ".stdout",
            ".wandb", ".swanlab",
            ".parquet", ".feather", ".arrow", ".ipynb")
# Names that trainers give every run's log: the folder is what the run is called.
_COMMON = (
    "metrics", "logging", "experiment_log", "log", "train", "training", "output", "history",
    "stdout", "trainer_log", "eval", "evals", "evaluation", "evaluations", "val", "validation",
    "eval_log", "train_log", "eval_metrics", "train_metrics", "val_metrics", "progress", "result",
    "results", "scores", "orchestrator", "scalars", "main", "events",
)  # fmt: skip
# Folders of which every run has one: a tracker's; and a version of it (Lightning, ms-swift).
_COMMON_FOLDERS = (  # W&B keeps a run's console in run-DATE-ID/files/output.log
    "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "logs", "files",
    "monitor",
)  # fmt: skip
_ROLES = ("explorer", "trainer")  # below one of these: Trinity-RFT's two processes of a run
# torchtune's, by the second of its start; ROLL's, by the process that wrote it
TIMED = re.compile(r"log_(?:[0-9]{9,11}|rank_\w+)")
_NUMBERED = re.compile(r"(?:version|exp)_[0-9]+|(?:v[0-9]+-)?[0-9]{8}[-_][0-9]{6}")
_TIME = re.compile(r"[0-9]{2}-[0-9]{2}-[0-9]{2}")  # of a multirun of Hydra, below its date
# Names of files that several folders of the one that is read have: those folders are its runs.
_ALIKE: ContextVar[frozenset[str]] = ContextVar("_ALIKE", default=frozenset())
# transformers' OUTPUT/runs/Apr02_10-26-00_HOST: jobs that one machine starts together share it
_BY_HOST = re.compile(r"[A-Z][a-z]{2}[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_.+")


def folder_name(folder: Path) -> str:
    """What a folder calls its run: the next one's name where every run has a folder of that name.

    >>> folder_name(Path("sweep/G8/tensorboard")), folder_name(Path("n8/v0-20260105-101112"))
    ('G8', 'n8/v0-20260105-101112')
    >>> folder_name(Path("sweep/G8/monitor/tensorboard/explorer"))
    'G8'
    >>> folder_name(Path("sweep/G8/exp_001/tensorboard"))  # NeMo-RL's
    'G8/exp_001'
    >>> folder_name(Path("sweep/G8/runs/Apr02_10-26-00_node-07"))
    'G8'
    >>> folder_name(Path("multirun/2026-03-02/10-15-00/0"))  # Hydra's
    '2026-03-02/10-15-00/0'
    """
    above = folder.parent.name
    if folder.name.isdecimal() and _TIME.fullmatch(above) and (date := folder.parent.parent.name):
        return f"{date}/{above}/{folder.name}"
    if (above == "runs" and (job := folder.parent.parent.name) and _BY_HOST.fullmatch(folder.name)
            and len([*folder.parent.glob("*")]) < 2):  # more are starts, or PyTorch's runs
        return job
    is_common = above.lower() in _COMMON_FOLDERS
    if is_common and folder.name in _ROLES:
        return folder_name(folder.parent)
    if above and folder.name.lower() in _COMMON_FOLDERS:
        return folder_name(folder.parent) if is_common or _NUMBERED.fullmatch(above) else above
    return f"{above}/{folder.name}" if above and _NUMBERED.fullmatch(folder.name) else folder.name


def run_name(path: Path) -> str:
    """What a file calls its run: its name without the endings of logs, dots and all else kept.

    >>> run_name(Path("sweep/qwen2.5-lr1e-6.jsonl.gz")), run_name(Path("n8/metrics.jsonl"))
    ('qwen2.5-lr1e-6', 'n8')
    """
    name = ROTATED.sub("", path.name)
    while (ending := next((e for e in _ENDINGS if name.endswith(e)), None)) and name != ending:
        name = name.removesuffix(ending)
    # W&B's history artifact is 0000.parquet
    common = (
        name in _COMMON or name.isdecimal() or TIMED.fullmatch(name) or path.name in _ALIKE.get()
    )
    return folder_name(path.parent) or name if common else name


_DOWNLOAD = re.compile(r"(?:run-)?(?P<run>.*?)[-_]tag[-_](?P<tag>.+?)(?P<again> ?\([0-9]{1,3}\))?")


class Download(NamedTuple):
    """The run and the tag that TensorBoard writes into the name of what it gives."""

    run: str  # that of the folder where the name has none
    tag: str


def downloaded(path: Path) -> Download | None:
    """What the name of a download says; a browser numbers one that it has already.

    >>> downloaded(Path("run-n8-tag-eval_acc (1).csv")), downloaded(Path("n4/run-.-tag-acc.csv"))
    (Download(run='n8', tag='eval_acc'), Download(run='n4', tag='acc'))
    """
    if (match := _DOWNLOAD.fullmatch(path.name.removesuffix(".gz").removesuffix(".csv"))) is None:
        return None
    if match["run"] in ("", "."):  # one that is numbered may be of another folder
        return Download(f"{path.parent.name}{match['again'] or ''}", match["tag"])
    return Download(match["run"], match["tag"])


@contextmanager
def named_by_folders(logs: Iterable[Path]) -> Iterator[None]:
    """Call runs by their folders where files of one name lie in several; not those of one job.

    Nor names that differ in numbers alone in one folder, as n8.jsonl and n16.jsonl do: each is one.
    """
    homes, forms = defaultdict[str, set[str]](set), defaultdict[tuple[Path, str], set[str]](set)
    for path in logs:
        if not split_folder(path.parent):
            homes[path.name].add(job_of(path.parent))
            forms[path.parent, re.sub("[0-9]+", "#", path.name)].add(path.name)
    runs = {name for names in forms.values() if len(names) > 1 for name in names}
    token = _ALIKE.set(frozenset(
        name for name, jobs in homes.items() if len(jobs) > 1 and name not in runs
    ))  # fmt: skip
    try:
        yield
    finally:
        _ALIKE.reset(token)


_TRAIN = dict.fromkeys(("train", "training"), "train")
_EVAL = {
    **dict.fromkeys(("eval", "evals", "evaluation", "evaluations"), "eval"),
    "val": "val", "validation": "val", "test": "test",
}  # fmt: skip
_WORD = re.compile("[-_. ]+")
_GENERAL = frozenset(("log", "logs", "metrics", "history", "results", "scores"))
# Words that tell runs or parts apart, not evaluation sets: seed1, n8, 0, 1e
_OF_RUNS = re.compile(r"(?:s|seed|n|g|gen|bp|bs|b|lr|run|rep|trial|part|rank|k|step|v)?[0-9.e-]+")
# Numbers of what one job writes anew, its starts and its checkpoints, and times of the clock; those
# of n, of seeds and of runs tell jobs apart.
_CLOCK = (r"(?<![a-z0-9.])(?:20[0-9]{6}|20[0-9]{2}(?:-[0-9]{2}){2}|1[0-9]{9})"
          r"(?:[-_T /]?[0-9]{2}(?:[-:.]?[0-9]{2}){1,2}(?:\.[0-9]+)?)?")  # fmt: skip
_AT = re.compile(_CLOCK, re.I)
_OF_JOB = re.compile(
    r"(?<![a-z])(?P<word>exp|job|v|version|attempt|try|retry|restart|resume|part|step|checkpoint|"
    rf"ckpt|iter|iteration|update)[-_]?[0-9]+(?![0-9a-z])|{_CLOCK}", re.I,
)


def job_of(path: Path) -> str:
    """A path without the numbers of what one job writes anew.

    >>> job_of(Path("n8/exp_002/step_40/20250812-141207.log"))
    'n8/exp/step/.log'
    """
    return _OF_JOB.sub(lambda found: found["word"] or "", path.as_posix())


def started_at(path: Path) -> str:
    """The name of a log without the time in it; "" where it has none.

    >>> started_at(Path("n8/log_20261025-023700.jsonl")), started_at(Path("n8/log_2.jsonl"))
    ('log_.jsonl', '')
    """
    plain = _AT.sub("", path.name)
    return "" if plain == path.name else plain


class Measured(NamedTuple):
    """What the name of a log says that it measures; "" where it does not.

    `beside`: its own name says nothing, and that of another log of its folder says it evaluates.
    """

    split: str = ""
    problem_set: str = ""
    beside: bool = False


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
    beside = [] if not own.split else _names(path.parent)
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
    if of := _beside_another(own, path):
        return of
    return Measured(split_folder(path.parent))


def _beside_another(own: _Name, path: Path) -> Measured | None:
    """The split of a log whose folder has one of each: eval_history, step_stat_history."""
    has_evaluations, has_courses = _kinds(path.parent)
    if _is_evaluation(own):
        return Measured(own.split) if has_courses else None
    return Measured("train", beside=True) if has_evaluations and _is_course(path.name) else None


def _is_evaluation(one: _Name) -> bool:
    """Whether a name says an evaluation, and nothing else."""
    return one.split == "validation" and not (one.before or one.after)


def _is_course(name: str) -> bool:
    """Whether a file's name says that it is a log, of what no word of it says."""
    return not _told(name).split and not _GENERAL.isdisjoint(_WORD.split(name.lower()))


def is_of_folder(path: Path) -> bool:
    """Whether a log's name says what it measures of its folder's run, and nothing else."""
    return not _told(path.name).before and measured(path) != Measured()


def split_folder(folder: Path) -> str:
    """The split of a folder, where one of the other split lies beside it; else ""."""
    own = _told(folder.name)
    if not own.split or own.before or own.after:
        return ""
    others = _names(folder.parent)
    there = any(o.split not in ("", own.split) and not o.before and not o.after for o in others)
    return own.split if there else ""


@until_it_changes
def _names(folder: Path) -> list[_Name]:
    return [_told(file.name) for file in folder.iterdir()]


@until_it_changes
def _kinds(folder: Path) -> tuple[bool, bool]:
    """Whether a folder has a log of evaluations alone, and one of which no word says what of."""
    logs = [file.name for file in folder.iterdir() if file.name.endswith(_ENDINGS)]
    return any(_is_evaluation(_told(name)) for name in logs), any(map(_is_course, logs))


def _told(name: str) -> _Name:
    """The split that a name says, and what stands before and after it.

    >>> _told("bp32_n8_eval.jsonl"), _told("train_log.csv")
    (_Name(word='eval', before=('bp32', 'n8'), after=()), _Name(word='train', before=(), after=()))
    """
    stem = re.sub(r"(?:\.(?:jsonl|json|csv|tsv|log|txt|out|gz))+$", "", name.lower())
    stem = download["run"] if (download := _DOWNLOAD.fullmatch(stem)) else stem  # not its tag
    words = [word for word in _WORD.split(stem) if word not in _GENERAL]
    at = next((i for i, word in enumerate(words) if word in _TRAIN | _EVAL), None)
    if at is None:
        return _Name("", tuple(words), ())
    return _Name((_TRAIN | _EVAL)[words[at]], tuple(words[:at]), tuple(words[at + 1 :]))


PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_BEGINS = "(?:(?<![A-Za-z])|(?<=[0-9]x))"  # a word; 32xn8 has a sign for "times"
_ABSENT = re.compile(r"(.*\})\[([^][{}]*[^][{}]\{seed\}[^][{}]*)\]")  # in a pattern, at its end


def regex_of(pattern: str) -> str:
    """What a pattern matches: a star is anything within a name, `[_s{seed}]` may be absent.

    A placeholder alone is a whole name: the "0" of a folder "run0" is no step.

    >>> re.search(regex_of("n{a}[*s{seed}]"), "q-n8-steps300-s2")["seed"]
    '2'
    >>> [re.search(regex_of("{a}"), name) is not None for name in ("run0/x.csv", "x/20.csv", "20")]
    [False, True, True]
    """
    if alone := PLACEHOLDER.fullmatch(pattern):
        return rf"(?<![^/])(?P<{alone[1]}>[0-9]{{1,12}})(?![^/.])"
    absent = _ABSENT.fullmatch(pattern)
    pattern, may_be = (pattern, "") if absent is None else absent.groups()
    regexes = []
    for text in (pattern, may_be):
        parts = PLACEHOLDER.split(text)
        for i in range(0, len(parts), 2):  # a word is not the end of another
            words = parts[i].split("*")
            parts[i] = "".join(
                f"{'[^/]*?' * (k > 0)}{_BEGINS * word[:1].isalpha()}{re.escape(word)}"
                if k or (i == 0 and text == pattern) else re.escape(word)
                for k, word in enumerate(words)
            )
        parts[1::2] = [f"(?P<{name}>[0-9]{{1,12}})" for name in parts[1::2]]
        regexes.append("".join(parts))
    return f"{regexes[0]}(?:{regexes[1]})?" if may_be else regexes[0]


def parse_by_n(text: str) -> dict[int, int]:
    """`4:128,8:64` -> the B_p of every n."""
    pairs = [one.partition(":") for one in text.split(",")]
    numbers = {whole(n): whole(b_p) for n, _, b_p in pairs}
    found = {n: b_p for n, b_p in numbers.items() if n and b_p}
    if len(found) < len(pairs):
        raise InputError(
            f"problems_per_batch by n must look like 4:128,8:64, but got {text!r}; write an n, a "
            "colon and its B_p for each, once."
        )
    return found
