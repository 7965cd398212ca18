"""Which runs of a source are meant: `STUDY[recipe=kl,seed=0]`, and what tells its arms apart.

Runs of one arm may be averaged as repetitions: they share everything but allocation and seed. A
study may hold several arms (recipes, problem sets); a fit takes one.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from isocompute.domain.text import some_of
from isocompute.errors import InputError
from isocompute.store.store import StoredRun

Where = Mapping[str, str]
_AND = "\n"  # between the words of one key
T = TypeVar("T")

# Words that choose among curves, not among runs.
LABELS = ("metric", "problem_set", "split")
_ARM = ("recipe", "problems", "train", "engine", "engine_options")
_NAMES = ("recipe", "problems")  # the study file's own


def split_source(source: str) -> tuple[str, dict[str, str]]:
    """Path and selection of a source.

    >>> split_source("ablation[recipe=kl, train.size=500]")
    ('ablation', {'recipe': 'kl', 'train.size': '500'})
    >>> split_source("study[run=exp_00[235]*]")
    ('study', {'run': 'exp_00[235]*'})

    Raises:
        InputError: a selection that does not read KEY=VALUE[, ...].
    """
    if not source.endswith("]") or "[" not in source or Path(source).exists():
        return source, {}
    at, depth = len(source) - 1, 1
    while depth and at:  # a value may have brackets of its own: run=exp_00[235]*
        at -= 1
        depth += (source[at] == "]") - (source[at] == "[")
    at = source.rindex("[") if depth else at
    words = source[at + 1 : -1].split(",")
    for mark, code in _OF_LISTS.items():
        words = [word.replace(code, mark) for word in words]
    return source[:at], parse_where(words)


Words = str | Sequence[str] | Mapping[str, Any]  # one KEY=VALUE, several, or a mapping of them


def listed(where: Words) -> list[str]:
    """KEY=VALUE words, one by one."""
    if isinstance(where, Mapping):
        return [f"{key}={value}" for key, value in where.items()]
    return [where] if isinstance(where, str) else list(where)


_OF_LISTS = {",": "%2C", "[": "%5B", "]": "%5D"}  # what names may have, and a list of words, too


def _quoted(word: str) -> str:
    """A word as a list of them holds it.

    >>> _quoted("run=n: 4, lr: 1"), _quoted("run=exp_[12]"), _quoted("run=!a]")
    ('run=n: 4%2C lr: 1', 'run=exp_[12]', 'run=!a%5D')
    """
    marks = "," if word.count("[") == word.count("]") else _OF_LISTS
    for mark in marks:
        word = word.replace(mark, _OF_LISTS[mark])
    return word


def parse_where(words: Words) -> dict[str, str]:
    """KEY=VALUE words as a mapping; a key may leave out several values, `run=!a` and `run=!b`.

    Raises:
        InputError: a word without key or value, or a key with two values that are meant.
    """
    where: dict[str, str] = {}
    for word in listed(words):
        key, _, value = (part.strip() for part in word.partition("="))
        before = where.get(key, "")
        if not key or not value.strip("! ") or (before and key in chosen({key: before})
                                                and not value.startswith("!")):  # fmt: skip
            raise InputError(
                "a selection must read KEY=VALUE, each key once, but got "
                f"{word.strip()!r}; write for example recipe=kl or train.size=500."
            )
        where[key] = f"{before}{_AND}{value}" if before else value
    return where


def chosen(where: Where) -> set[str]:
    """The keys of which a selection says what is meant, and not only what is left out.

    >>> sorted(chosen(parse_where(["run=!a", "n=4", "run=!b"])))
    ['n']
    """
    return {key for key, wanted in where.items()
            if any(not one.startswith("!") for one in wanted.split(_AND))}  # fmt: skip


def with_where(source: str, words: Sequence[str]) -> str:
    """The source narrowed further by KEY=VALUE words."""
    if not words:
        return source
    path, where = split_source(source)
    own = [f"{key}={word}" for key, wanted in where.items() for word in wanted.split(_AND)]
    parse_where([*own, *words])
    return f"{path}[{','.join(map(_quoted, [*own, *words]))}]"


def run_facts(run: StoredRun) -> dict[str, str]:
    """A run's specification as flat words: `recipe.kl_coef`, `train.size`, `seed`, ...

    `recipe` and `problems` are the names that the study file gives them, where it does.
    """
    spec = dict(run.spec)
    names = spec.pop("arm", {})
    return {**_flat(spec), **{key: str(name) for key, name in names.items()}}


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{name}.{key}" if name else str(key))
        return found
    words = {None: "none", True: "true", False: "false"}
    known = value is None or isinstance(value, bool)
    return {name: words[value] if known else str(value)}


def matches(value: str, wanted: str) -> bool:
    """Equal as numbers or as text; `*` and `?` stand for any characters, `!` before for all others.

    >>> matches("0.001", "1e-3"), matches("ppo-kl", "ppo*"), matches("none", "null")
    (True, True, True)
    >>> matches("1_0", "10"), matches("1_0", "1_0")
    (False, True)
    >>> matches("run[a]", "run[a]"), matches("run1", "run[12]")
    (True, True)
    >>> matches("grpo_n8", "!*n8"), matches("grpo_n8", "!*len4096"), matches("!a", "!a")
    (False, True, True)
    >>> wanted = parse_where(["run=a*", "run=!*b", "run=!ad"])["run"]
    >>> [one for one in ("ab", "ac", "bc") if matches(one, wanted)]
    ['ac']
    """
    return all(
        _is(value, one.removeprefix("!").strip()) is not one.startswith("!")
        for one in wanted.split(_AND)
    )


def _is(value: str, wanted: str) -> bool:
    with contextlib.suppress(ValueError):
        if "_" not in f"{value}{wanted}":  # 1_0 is a name
            return float(value) == float(wanted)
    if wanted.lower() in ("null", "none", "true", "false"):
        return value.lower() == wanted.lower().replace("null", "none")
    return value == wanted or fnmatch.fnmatchcase(value, wanted)


def select_runs(path: str | Path, runs: Sequence[StoredRun], where: Where) -> list[StoredRun]:
    """The runs of a study that a selection leaves; `LABELS` are left to the caller.

    Raises:
        InputError: a key that no run has, or values that no run has together.
    """
    facts = {run.hash: run_facts(run) for run in runs}
    known = sorted({name for of in facts.values() for name in of})
    names = dict[str, str]()
    for key in [key for key in where if key not in LABELS and runs]:
        full = next((name for name in (key, f"recipe.{key}") if name in known), None)
        if full is None:
            raise _unknown_key(str(path), key, known)
        names[key] = full
    wanted = {key: where[key] for key in names}
    return matching(str(path), runs, wanted, lambda run, key: facts[run.hash].get(names[key], ""))


def matching(path: str, among: Sequence[T], where: Where, fact: Callable[[T, str], str]) -> list[T]:
    """What a selection leaves.

    Args:
        path: of the source, for messages.
        among: what is selected from.
        where: key -> wanted value, see `matches`.
        fact: what one of them has under a key.

    Raises:
        InputError: values that none has together.
    """
    kept = list(among)
    for key, wanted in where.items():
        there = [fact(one, key) for one in kept]
        kept = [one for one, value in zip(kept, there, strict=True) if matches(value, wanted)]
        if not kept:
            raise no_match(path, key, wanted, sorted(set(there)))
    return kept


class NoMatchError(InputError):
    """A selection leaves nothing of a source."""


def no_match(path: str, key: str, wanted: str, there: Sequence[str]) -> NoMatchError:
    """What to say where a value matches nothing."""
    words = wanted.split(_AND)
    got = " and ".join(map(repr, words))
    if all(word.startswith("!") for word in words):
        got = f"{got}, which leaves out all"
    return NoMatchError(
        f"{path}: {key} must be one of {some_of(map(repr, there)) or 'none'}, but got {got}; "
        "choose one of them."
    )


def all_that_match(reads: Sequence[Callable[[], T]]) -> tuple[list[T], list[str]]:
    """What several sources give, without those that a selection leaves nothing of; a line for each.

    Raises:
        NoMatchError: it leaves nothing of all.
    """
    found, nothing = list[T](), list[NoMatchError]()
    for read in reads:
        try:
            found.append(read())
        except NoMatchError as error:
            nothing.append(error)
    if nothing and not found:
        raise nothing[0]
    return found, [f"left out: {str(error).rpartition(';')[0]}" for error in nothing]


def idle(path: str, key: str, wanted: str, there: Collection[str]) -> list[str]:
    """A line for each word of a selection that is to leave values out and finds none.

    >>> idle("runs", "run", "!c", ["ab", "b"]), idle("runs", "run", "!a*", ["ab", "b"])
    (["runs: --where 'run=!c' leaves nothing out of 'ab', 'b'"], [])
    """
    return [
        f"{path}: --where {shlex.quote(f'{key}={word}')} leaves nothing out of "
        f"{some_of(map(repr, sorted(there)))}"
        for word in wanted.split(_AND)
        if word.startswith("!") and all(matches(value, word) for value in there)
    ]


def _unknown_key(path: str, key: str, known: Sequence[str]) -> InputError:
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(known)}."
    return InputError(
        f"{path}: a selection must name a setting of the runs, but got {key!r}; {hint}"
    )


def require_one_arm(path: str | Path, runs: Sequence[StoredRun]) -> None:
    """Runs that differ in more than allocation and seed are no repetitions of each other.

    Raises:
        InputError: lists the arms, each with the words that choose it.
    """
    labels = arm_labels(runs)
    arms = sorted(set(labels))
    if len(arms) <= 1:
        return
    counts = {arm: labels.count(arm) for arm in arms}
    listed = "; ".join(f"{a} ({counts[a]} run{'s' * (counts[a] != 1)})" for a in arms[:8])
    more = f"; and {len(arms) - 8} more" if len(arms) > 8 else ""
    raise InputError(
        f"{path}: one fit needs runs of one recipe and problem set, but this holds {len(arms)}: "
        f"{listed}{more}; choose one, for example --where {arms[0].replace(' ', ' --where ')}, or "
        "compare two with `isocompute compare`."
    )


def arm_labels(runs: Sequence[StoredRun]) -> list[str]:
    """Of each run, the words that tell its arm from the others; "" where there is one arm.

    The study file's own names where they do, else the fields that differ.
    """
    facts = [{k: v for k, v in run_facts(run).items() if k.split(".")[0] in _ARM} for run in runs]
    whole = [tuple(sorted((k, v) for k, v in f.items() if k not in _NAMES)) for f in facts]
    arms = [facts[whole.index(arm)] for arm in dict.fromkeys(whole)]
    keys = sorted({k for f in arms for k in f}, key=lambda k: ("sha256" in k, k))
    chosen = _enough(arms, [k for k in _NAMES if all(k in f for f in arms)])
    if chosen is None:
        chosen = _enough(arms, [k for k in keys if k not in _NAMES]) or []
    return [" ".join(f"{k}={f.get(k, '')}" for k in chosen) for f in facts]


def _enough(arms: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str] | None:
    """Keys that tell all arms apart, taken as long as each tells more; None where none do."""
    chosen: list[str] = []
    told = 1
    for key in keys:
        now = len({tuple(f.get(k, "") for k in (*chosen, key)) for f in arms})
        if now > told:
            chosen, told = [*chosen, key], now
    return chosen if told == len(arms) else None
