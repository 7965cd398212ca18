"""Which runs are meant: those of logs that a selection leaves, and the words that select some."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from glob import escape
from itertools import takewhile

from isocompute.errors import InputError
from isocompute.importers.values.imported import DESIGN, ImportedRun
from isocompute.store.arms import idle, matches, matching

_DIED = 0.9  # of the updates of another that was started with its seed
_DATED = re.compile(r"20[0-9]{2}-?[0-9]{2}-?[0-9]{2}")  # where all are named by it, some ran again


def leaving(left: Collection[str], odd: Collection[str], *patterns: str) -> list[str]:
    """Words of a selection that leaves some runs, by their names, and no others.

    >>> leaving(["n4", "n8"], ["n4-kl", "n8-kl"]), leaving(["a", "b"], ["a[1]", "cb"])
    (['--where', 'run=!n*-kl'], ['--where', 'run=!a[1]', '--where', 'run=!cb'])
    """
    odd, left = sorted({*odd}), sorted({*left})
    begins, ends = _begin(odd), _begin([name[::-1] for name in odd])[::-1]
    then = "".join(sorted({name[len(begins) : len(begins) + 1] for name in odd}))
    fits = (*patterns, *([f"!{odd[0]}"] if len(odd) == 1 else [
        f"{_begin(left)}*", f"!{begins}*{ends}", f"!{begins}[{then}]*"
    ]))  # fmt: skip
    which = [one for one in fits if [n for n in (*odd, *left) if matches(n, one)] == left][:1]
    which = which or [f"!{escape(n) if any(matches(of, n) for of in left) else n}" for n in odd]
    return [word for one in which for word in ("--where", f"run={one}")]


def choose(rule: str, key: str, value: str, keep: str = "") -> InputError:
    """A refusal of what differs in a key, with the words that choose one value, or keep all.

    `keep`: how all are kept, where that is not `--where KEY=*`.
    """
    word, keep = f"{key}={value}", keep or f" with --where {shlex.quote(f'{key}=*')}"
    return InputError(
        f"{rule}; choose with --where {shlex.quote(word)}, or keep all{keep}.",
        options=("--where", word), condition=f"{key.replace('_', ' ')} {value} is your sweep's",
    )  # fmt: skip


def shown(words: Sequence[str]) -> str:
    """Words of a selection of runs as they are typed."""
    return " ".join(f"--where run={shlex.quote(one.removeprefix('run='))}" for one in words[1::2])


def without(text: str, odd: Sequence[str], left: Sequence[str]) -> InputError:
    """A refusal with the words that leave some runs out, or keep all."""
    words, count = leaving(left, odd), len({*odd})
    which = "it" if count == 1 else f"the {count} like it"
    return InputError(
        f"{text}{',' if '; if ' in text else ';'} leave {which} out with {shown(words)}, "
        "or keep all with --where 'run=*'.",
        options=words, trial=("--where", "run=*"), condition="the others are your sweep",
    )


def seeds_twice(runs: Sequence[ImportedRun]) -> list[str]:
    """A line for runs of one B_p, n and seed, where seeds tell the repetitions of others apart.

    One seed of all may be a default; but what bears one name, too, is in two folders for a reason.
    """
    alike = len({run.seed for run in runs} - {None}) < 2 and not all(
        _DATED.search(run.name) for run in runs
    )
    of = defaultdict[tuple[object, ...], list[ImportedRun]](list)
    for run in sorted(runs, key=lambda run: -max((s.step_K.size for s in run.series), default=0)):
        for s in run.series if None not in run.design else ():
            of[run.design, s.metric.label, s.problem_set, s.split].append(run)
    pairs = {(id(its[0]), id(its[1])): its[:2] for its in of.values()
             if len(its) > 1 and not (alike and its[0].name != its[1].name
                                      and its[1].last > _DIED * its[0].last)}  # fmt: skip
    if not pairs:
        return []
    one, less = next(iter(pairs.values()))
    cure = "move it out of the folder"
    if one.name != less.name:
        cure = f"leave it out with {shown(leaving([one.name], [less.name]))}"
    more = f" ({len(pairs) - 1} more alike)" if len(pairs) > 1 else ""
    return [f"{one.provenance.path} and {less.provenance.path} are both of n = "
            f"{one.rollouts_per_problem} and seed {one.seed}, and count as repetitions{more}; if "
            f"the second is a copy, of another sweep or a start that died, {cure}"]


def _begin(names: Sequence[str]) -> str:
    """How all of them begin."""
    same = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in same)


def select_imported(
    path: str, runs: Sequence[ImportedRun], where: Mapping[str, str]
) -> list[ImportedRun]:
    """The runs that a selection leaves, by configuration, run and facts.

    Raises:
        InputError: a key that no run has, or a value that none has.
    """
    known = ("run", *DESIGN, *sorted({k for run in runs for k in run.provenance.facts}))
    for key in where:
        if key not in known:
            raise InputError(
                f"{path}: a selection of logs must name one of {', '.join(known)}, but got "
                f"{key!r}; import the logs apart, or select by run=PATTERN."
            )
    return matching(path, runs, where, _fact)


def left_out(path: str, runs: Sequence[ImportedRun], where: Mapping[str, str]) -> list[str]:
    """A line for every word of a selection that is to leave runs out and finds none."""
    return [line for key, wanted in where.items()
            for line in idle(path, key, wanted, {_fact(run, key) for run in runs})]  # fmt: skip


def _fact(run: ImportedRun, key: str) -> str:
    if key == "run":
        return run.name
    return str(getattr(run, key) if key in DESIGN else run.provenance.facts.get(key, ""))
