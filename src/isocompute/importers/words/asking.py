"""What is asked of the user where logs do not say it: B_p and n, and which key is the score.

A source is read until something is not clear, and that error names the option that settles it.
What would be asked next is looked for under the likeliest answer, again and again; then all of it
comes in one message, with one command. Nothing that was read under such an answer is kept.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from isocompute.errors import AskedError, InputError
from isocompute.importers.values.imported import DESIGN, TAKEN_ONCE, ImportedRun
from isocompute.importers.words.called import (
    YOURS,
    by_maps,
    counts_problems,
    counts_step,
    holds,
    is_batch,
    is_called,
    mapping,
    maps_of,
    may_be_batch,
    may_be_n,
)
from isocompute.importers.words.names import (
    alike_under,
    number_in,
    pattern_for,
    per_rollout,
    perhaps_of,
    says,
)
from isocompute.importers.words.plain_words import unit_of
from isocompute.importers.words.scored import likely_key
from isocompute.importers.words.settings import Settings, load_settings

T = TypeVar("T")

_MOST = 8  # questions; nobody has as many
ASSUME = "--assume"  # before a setting that some number stands for, until the user gives it
_NUMBER = 13  # a B_p or n that no count is likely to be a multiple of
# What does not hang on an n, or on a B_p, that is not known yet.
_WITHOUT_N = ("--metric", "--problem-set", "--range", "--map", "--split")
_SURE = ("step=", "split=")
_N = "rollouts_per_problem"
SHORTEST = {"problems_per_batch": "bp", "rollouts_per_problem": "n", "seed": "seed"}
BY_N = "; by n, --set problems_per_batch=4:B_P,8:B_P"
_EACH = re.compile(r"B_p is [0-9]+ \(")  # the note of a log with the batch of each process alone
_SHARED = re.compile(r".* counts ([0-9]+) processes, .* ([0-9]+) says that .*")
_BY_COUNT = re.compile(r"B_p is ([0-9]+) by the .*")  # and of one that counts what a step took


def asked_at_once(read: Callable[[Sequence[str]], T]) -> T:
    """What `read` gives, or one error with all that it asks.

    Args:
        read: is given words of the command line beside the user's own.

    Raises:
        InputError: the only thing that is asked, as it was raised, or an AskedError.
    """
    found, asked = collected(read)
    if not asked:
        assert found is not None
        return found
    if len(asked) == 1:
        raise asked[0] from None
    raise AskedError(asked) from None


def collected(
    read: Callable[[Sequence[str]], T], words: Sequence[str] = ()
) -> tuple[T | None, list[InputError]]:
    """What `read` gives under the likeliest answers, None where it gives nothing; all it asks."""
    asked, told = list[InputError](), set[str]()
    words = [*words]
    while True:
        try:
            return read(words), asked
        except Exception as error:
            if not isinstance(error, InputError):
                if asked:  # under an answer that is only likely
                    return None, asked
                raise
            if str(error) in told or (ASSUME in words and not _holds(error, words)):
                return None, asked
            if asked and not error.options and not error.trial:  # it ends here
                error = InputError(f"Under these answers: {error}")
            several = getattr(error, "asked", [error])
            known = {one.options for one in asked if any(map(is_open, one.options))}
            new = [one for one in several if str(one) not in told]
            asked += [one for one in new if one.options not in known]  # one answer holds for all
            told |= {str(one) for one in new}
            if not error.trial or any(map(is_open, error.trial)) or len(told) >= _MOST:
                return None, asked
            words += error.trial


def _holds(error: InputError, words: Sequence[str]) -> bool:
    """Whether a question does not come of a number that was assumed."""
    flags = {word for word in error.options if word.startswith("--")}
    said = [word for word in error.options if "=" in word]
    if "rollouts_per_problem" in words:
        by_set = "--set" in flags and not all(word.startswith(_SURE) for word in said)
        return bool(flags) and flags <= {*_WITHOUT_N, "--set"} and not by_set
    # What a log goes on with is told by its B_p, too.
    return bool(flags) and not any(word.startswith(("learning_rate", "begins")) for word in said)


def is_open(word: str) -> bool:
    """Whether a word of an option stands for what only the user knows.

    >>> [is_open(w) for w in ("problems_per_batch=B_P", "KEY=avg", "LOW", "step=iter", "--map")]
    [True, True, True, False, False]
    """
    return bool(open_part(word))


def open_part(word: str) -> str:
    """The part of a word that only the user knows, in capitals; "" without."""
    key, _, value = word.rpartition("=")
    if key == "KEY":
        return key
    return value if value.isupper() and value.replace("_", "").isalpha() else ""


def answered(settings: Settings | None, words: Sequence[str]) -> tuple[Settings, dict[str, Any]]:
    """Settings with words of the command line added, and what else these say of `load_curves`."""
    sets, maps, assumed, more = list[str](), list[str](), list[str](), dict[str, Any]()
    left = iter(words)
    for word in left:
        if word == "--range":
            more["score_range"] = (float(next(left)), float(next(left)))
        elif word == "--where":
            more.setdefault("where", []).append(next(left))
        elif word in ("--metric", "--problem-set", "--split"):
            more[word.removeprefix("--").replace("-", "_")] = next(left)
        else:
            {"--set": sets, "--map": maps, ASSUME: assumed}[word].append(next(left))
    settings = settings or Settings()
    if not sets and not maps and not assumed:
        return settings, more
    added = load_settings([*sets, *(f"{name}={_NUMBER}" for name in assumed)], maps)
    new = {f.name: value for f in fields(Settings)
           if (value := getattr(added, f.name)) != getattr(Settings(), f.name)}  # fmt: skip
    new["columns"] = {**settings.columns, **added.columns}
    return replace(settings, **new, assumed=frozenset(assumed) | settings.assumed), more


def require_configuration(runs: Sequence[ImportedRun]) -> None:
    """Ask for the B_p and n that logs do not hold.

    Raises:
        InputError: names the first run, how many there are, and the settings to add.
    """
    if (asked := configuration_asked(runs)) is not None:
        raise asked


def configuration_asked(runs: Sequence[ImportedRun]) -> InputError | None:
    """What is asked of the B_p and n of runs; None where they are known."""
    runs = [run for run in runs if run.n_rows] or runs  # MLflow's parents have none
    lacking = [run for run in runs if None in run.design[:2]]
    if not lacking:
        return None
    missing = [n for n in DESIGN[:2] if any(getattr(run, n) is None for run in lacking)]
    others = len({id(r) for r in lacking}) - 1
    cure = _with_seed(_cure(runs, missing), runs)
    if len({run.name for run in runs}) < len(runs):
        name, at = lacking[0].name, Path(lacking[0].provenance.path)
        above = next((p.name for p in at.parents if p.name != name), "")
        by_place = f"columns run (names repeat: with its folder, as {above}/{name}),"
        cure = cure._replace(text=cure.text.replace("columns run,", by_place))
    return InputError(
        f"{' and '.join(f'`{n}`' for n in missing)} must be known, but {lacking[0].name!r} "
        f"({lacking[0].provenance.path}{f', and {others} more' if others else ''}) does not log "
        f"{'them' if len(missing) > 1 else 'it'}; add {cure.text}.",
        options=cure.options, trial=trial_of(cure.options), condition=cure.condition,
    )


class Cure(NamedTuple):
    """What to add: in words, and the options to paste, with what must hold for them."""

    text: str
    options: list[str]
    condition: str = ""


def _with_seed(cure: Cure, runs: Sequence[ImportedRun]) -> Cure:
    """A cure with the seed that names seem to say, or with what runs that it leaves alike are."""
    named = next((word.removeprefix("pattern=") for word in cure.options
                  if word.startswith("pattern=")), "")  # fmt: skip
    text, options, condition = cure
    if not named and (named := pattern_for(runs, seed_alone=True) or "") and "{seed}" in named:
        text += f"; and --set pattern='{named}', as the names seem to say"
        options = [*options, "--set", f"pattern={named}"]
    if any(TAKEN_ONCE in line for run in runs for line in run.provenance.inferred):
        text += ("; and --set num_iterations=K where a batch of rollouts serves several steps (it "
                 "is taken as 1)")  # fmt: skip
    if told := perhaps_of(named):
        text += f" ({told})"
    if (twins := alike_under(named, runs)) is not None and "{seed}" not in named:
        a, b = twins
        text += (f"; {a!r} and {b!r} have one configuration and no seed then: they count as "
                 "repetitions, unless runs.csv beside the logs says their seeds (run,seed)")
    said = says(named, runs) if any(word == f"pattern={named}" for word in options) else ""
    return Cure(text, options, " and ".join(filter(None, (said, condition))))


def trial_of(options: Sequence[str]) -> list[str]:
    """Options with a number assumed for what only the user knows."""
    if any(word.startswith("KEY=") for word in options):
        return []
    words = list[str]()
    for flag, word in zip(options[::2], options[1::2], strict=True):
        key, _, value = word.partition("=")
        first, choice, _ = value.partition("_OR_")
        if (choice and flag == "--map") or not is_open(word):
            # Not what it counts, but that this column does, decides what else is asked.
            words += [flag, f"{key}={first.lower()}" if choice else word]
            continue
        n = word.startswith(_N)  # of which runs of one configuration are is not known then
        words += [ASSUME, _N, "--set", "resumed=apart"] if n else [ASSUME, DESIGN[0]]
    return words


def _cure(runs: Sequence[ImportedRun], missing: Sequence[str]) -> Cure:
    """What to add where B_p or n is not known."""
    lacking = [run for run in runs if None in run.design[:2]]
    keys = list(dict.fromkeys(key for run in lacking for key in run.provenance.unread))
    notes = [note for run in lacking for note in run.notes]
    if doubt := next((note for note in notes if " which is " in note), None):
        return Cure(f"{_sets(missing)} or --map KEY={missing[0]}, whichever is right ({doubt})",
                    shlex.split(_sets(missing)))  # fmt: skip
    if maps := _maps(keys, missing):
        return maps
    counted = [found for note in notes if (found := _BY_COUNT.fullmatch(note))]
    if missing == [*DESIGN[:1]] and len({found[1] for found in counted}) == 1:
        told = f"--set problems_per_batch={counted[0][1]}"
        return Cure(f"{told}, if that holds ({counted[0][0]})", shlex.split(told),
                    f"a batch held {counted[0][1]} problems")  # fmt: skip
    per_n = per_rollout(lacking) if "problems_per_batch" in missing else None
    pattern = pattern_for(runs)
    if missing == in_place(missing, runs, pattern):
        return _both(pattern, missing, keys, per_n)
    each = next(note for note in notes if _EACH.match(note))
    shared = {match.groups() for note in notes if (match := _SHARED.match(note))}
    if len(shared) == 1:
        every, of = map(int, shared.pop())
        told, share = f"--set processes={every // of}", f"{of} processes share each sequence"
        return Cure(f"{told} if {share}, or --set processes={every} if each has its own ({each})",
                    shlex.split(told), share)
    named = "" if pattern is None else f"--set pattern={shlex.quote(pattern)}"
    by_n = f"{named}, as the names seem to say, and " if named else ""
    own = f"--set processes={YOURS['processes']}"
    return Cure(
        f"{by_n}{own} with your own number: the processes that "
        f"train, one to a GPU, without those of a server of vLLM ({each})",
        shlex.split(f"{named} {own}"),
    )


def in_place(
    missing: Sequence[str], runs: Sequence[ImportedRun], pattern: str | None
) -> list[str]:
    """What is asked for: `processes` in place of B_p, where logs have the batch of each.

    That B_p falls as n grows: none would fit all runs.
    """
    lacking = [run for run in runs if run.problems_per_batch is None]
    told = pattern is not None and "{problems_per_batch}" in pattern
    each = all(any(_EACH.match(note) for note in run.notes) for run in lacking)
    return ["processes" if name == DESIGN[0] and each and lacking and not told else name
            for name in missing]  # fmt: skip


def _maps(keys: Sequence[str], missing: Sequence[str]) -> Cure | None:
    """`--map` for what is missing, where keys seem to hold all of it; None where they do not."""
    batch = next((key for key in keys if is_batch(key)), None)
    keys = [key for key in keys if not is_batch(key) or is_called(key, "problems_per_batch")]
    there = {n: k for n in missing if (k := next(
        (k for k in keys if (may_be_n(k) if n == _N else is_called(k, n))), None))}  # fmt: skip
    if batch is not None and "problems_per_batch" in missing and _N in there:
        there = {"problems_per_batch": batch, **there}
    if batch is not None and not there and [*missing] == [_N]:  # n = B / B_p
        counts = mapping(batch, "batch_size")
        own = _own(missing)
        return Cure(f"{counts} if it counts responses, or {own.text}", own.options)
    counted = batch and (may_be_batch(batch) or counts_step(batch) or unit_of(batch, keys))
    if batch and counted and [*missing] == ["problems_per_batch"]:
        there = {"problems_per_batch": batch}
        return Cure(f"{by_maps(there)}, or {_own(missing).text}", maps_of(there), holds(there))
    every = len(there) == len(missing)
    return Cure(by_maps(there), maps_of(there), holds(there)) if every else None


def _sets(missing: Sequence[str]) -> str:
    return " ".join(f"--set {n}={YOURS[n]}" for n in missing)


def _own(missing: Sequence[str]) -> Cure:
    """The numbers that only the user knows; a setting says one for all runs."""
    sets, names = _sets(missing), ",".join(missing)
    text = f"{sets} with your own number (one for all runs"
    if "processes" not in missing:
        by_n = BY_N if names == DESIGN[0] else ""
        text += (f"{by_n}; where they differ, write runs.csv beside the logs, with the columns "
                 f"run,{names}")  # fmt: skip
    return Cure(f"{text})", shlex.split(sets))


def _both(
    named: str | None, missing: Sequence[str], keys: Sequence[str], per_n: int | None = None
) -> Cure:
    if named:
        given = f"--set pattern='{named}'"
        options = shlex.split(given)
        if per_n is not None:
            sets = f"--set problems_per_batch={per_n}"
            return Cure(f"{given} and {sets}, if the batch in the names "
                        f"counts rollouts, as it seems to (it is {per_n} times n in all)",
                        [*options, *shlex.split(sets)],
                        "the batch in the names counts rollouts, not problems")  # fmt: skip
        if unsaid := [n for n in missing if f"{{{n}}}" not in named]:
            rest = _maps(keys, unsaid) or _own(unsaid)
            return Cure(f"{given}, as the names seem to say, and {rest.text}",
                        [*options, *rest.options], rest.condition)  # fmt: skip
        return Cure(f"{given} where the names say it, as they seem to, or {_sets(missing)}",
                    options)  # fmt: skip
    pattern = "_".join(f"{SHORTEST[n]}{{{n}}}" for n in missing)
    there = {name: maps for name in missing if (maps := _maps(keys, [name]))}
    if len(there) == 1 < len(missing):  # keys seem to hold one of both
        own = _own([name for name in missing if name not in there])
        (maps,) = there.values()
        return Cure(f"{maps.text}; and {own.text}", [*maps.options, *own.options], maps.condition)
    own = _own(missing)
    return Cure(f"{own.text}, or --set pattern='{pattern}' if the names of files or runs say it",
                own.options)  # fmt: skip


def first_error(runs: Sequence[ImportedRun]) -> str:
    """Why rows were not used, for a message; "" where all were.

    >>> first_error([])
    ''
    """
    error = next((run.errors[0] for run in runs if run.errors), None)
    return "" if error is None else f" (line {error.line}: {error.reason})"


_COUNT = re.compile(r"(?:^|_)(?:correct|solved|passed)$", re.I)
_OF_RESULTS = frozenset(("benchmark", "dataset", "eval_set", "task"))  # whose rows are evaluations


def counts_results(column: str, header: Sequence[str]) -> bool:
    """Whether a column counts samples of evaluations, each row of the table being one.

    >>> [counts_results("n_samples", [one]) for one in ("benchmark", "step")]
    [True, False]
    """
    return column.endswith("samples") and not _OF_RESULTS.isdisjoint(header)


def likely_columns(
    header: Sequence[str], missing: Sequence[str], beside: Sequence[str] = ()
) -> dict[str, str]:
    """Name of the contract -> the column of a table that seems to hold it.

    `beside`: columns of the table that hold something else.

    >>> likely_columns(["step", "group_size", "val/acc"], ["rollouts_per_problem", "score"])
    {'rollouts_per_problem': 'group_size', 'score': 'val/acc'}
    """
    found: dict[str, str] = {}
    for name in missing:
        free = [c.strip() for c in header if c.strip() and c.strip() not in found.values()]
        if name == "rollouts_per_problem":
            free = [c for c in free if not counts_results(c, (*free, *beside))]
        if name == "score":  # a column for every n is not the one of the scores
            free = [c for c in free if number_in(c, "rollouts_per_problem") is None]
            said = likely_key(free)
            told = "" if said == "KEY" else said
        else:
            of_name = sorted((c for c in free if is_called(c, name)), key=counts_problems)
            told = next(iter(of_name), "")  # problems_per_step before n_problems
            if told and counts_problems(told) and any(map(_COUNT.search, free)):
                told = ""  # of the evaluation, as what was correct in it
            if not told and name == "problems_per_batch":
                told = next((c for c in free if is_batch(c)), "")
        if told:
            found[name] = told
    return found
