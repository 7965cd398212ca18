"""What is asked of the user where logs do not say it: B_p and n, and which key is the score."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isocompute.errors import InputError
from isocompute.importers.called import (
    YOURS,
    by_maps,
    counts_step,
    is_batch,
    is_called,
    mapping,
    maps_of,
)
from isocompute.importers.plain_words import unit_of
from isocompute.importers.questions import ASSUME, is_open
from isocompute.importers.runs import ImportedRun
from isocompute.importers.scored import likely_key
from isocompute.importers.settings import Settings

_N = "rollouts_per_problem"
_SETTINGS = ("problems_per_batch", _N)
_EACH = re.compile(r"B_p is [0-9]+ \(")  # the note of a log with the batch of each process alone
_BY_COUNT = re.compile(r"B_p is ([0-9]+) by the .*")  # and of one that counts what a step took


def pattern_for(runs: Sequence[ImportedRun]) -> str | None:
    """The `pattern` that names seem to follow, of runs without B_p or n; None where none."""
    lacking = [run for run in runs if any(getattr(run, name) is None for name in _SETTINGS)]
    if not lacking:
        return None
    missing = [n for n in _SETTINGS if any(getattr(run, n) is None for run in lacking)]
    if all(run.seed is None for run in runs):
        missing.append("seed")
    if "problems_per_batch" in missing and per_rollout(lacking) is not None:
        missing.remove("problems_per_batch")  # the names' batch counts rollouts
    # folders speak for their logs where a folder of several was read
    paths = {run.provenance.path for run in lacking}
    shared = len(os.path.commonpath(paths)) if len(lacking) > 1 else 0
    first = Path(lacking[0].provenance.path)
    for asked in (missing, [name for name in missing if name != "seed"]):
        found = _pattern(first, lacking[0].name, asked, len(lacking) > 1, shared)
        if found is not None and all(_is_told(found, run) for run in lacking):
            return found
    return None


def _is_told(pattern: str, run: ImportedRun) -> bool:
    """Whether a pattern finds its numbers in the names of a run: a hint must hold for all."""
    settings = Settings(pattern=pattern)
    path = Path(run.provenance.path)
    return settings.for_run(run.name).named != frozenset() or (
        settings.for_path(path).named != frozenset()
    )


def per_rollout(runs: Sequence[ImportedRun]) -> int | None:
    """B_p where the batch that names give is the same multiple of n in all: B_p * n, in rollouts.

    None where the names give no batch, or one that does not follow n.
    """
    found = set[tuple[int, int]]()
    for run in runs:
        path = Path(run.provenance.path)
        for text in (path.name, run.name, path.parent.name):
            batch, n = (number_in(text, name) for name in _SETTINGS)
            if batch and n:
                found.add((batch, n))
                break
    ratios = {batch / n for batch, n in found}
    ratio = ratios.pop() if len(ratios) == 1 and len({n for _, n in found}) > 1 else 0.0
    return int(ratio) if ratio >= 1 and ratio == int(ratio) else None


def _pattern(
    path: Path, name: str, missing: Sequence[str], folders: bool, shared: int = 0
) -> str | None:
    """The first name of a log that says what is missing, else a part of it; the seed, too.

    `shared`: characters of the path that all logs have alike: n is not told by those.
    """
    whole = str(path)
    seen = [(path.name, len(whole) - len(path.name)), (name, len(whole))]
    if "tfevents" in path.name:  # a time and a host
        del seen[0]
    if folders:
        seen.append((path.parent.name, len(str(path.parent)) - len(path.parent.name)))
        parts = ["/".join(path.parts[-depth:]) for depth in (3, 4)]
        seen += [(part, len(whole) - len(part)) for part in parts]
    seed = [word for word in missing if word == "seed"]
    asked = [word for word in missing if word != "seed"]
    for wanted in ([asked] if len(asked) < 2 else [asked, *([word] for word in asked)]):
        for text, at in seen:
            said = _said(text, _N)
            if said is not None and _N in wanted and at + said.start(1) < shared:
                continue
            if found := _pattern_in(text, wanted + seed) or _pattern_in(text, wanted):
                return found
    return None


def pattern_of(run: ImportedRun) -> str | None:
    """The `pattern` that a run's names seem to follow; None where they do not say B_p and n."""
    return _pattern(Path(run.provenance.path), run.name, [*_SETTINGS, "seed"], folders=True)


def pattern_in_path(path: Path, missing: Sequence[str]) -> str | None:
    """The `pattern` by which the names of a file and its folder say what is missing."""
    return _pattern(path, path.name, [*missing, "seed"], folders=True)


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
    lacking = [run for run in runs if any(getattr(run, name) is None for name in _SETTINGS)]
    if not lacking:
        return None
    missing = [n for n in _SETTINGS if any(getattr(run, n) is None for run in lacking)]
    others = len({id(r) for r in lacking}) - 1
    cure = _cure(runs, missing)
    return InputError(
        f"{' and '.join(f'`{n}`' for n in missing)} must be known, but {lacking[0].name!r} "
        f"({lacking[0].provenance.path}{f', and {others} more' if others else ''}) does not log "
        f"{'them' if len(missing) > 1 else 'it'}; add {cure.text}.",
        options=cure.options, trial=_trial(cure.options),
    )


class Cure(NamedTuple):
    """What to add: in words, and the options to paste."""

    text: str
    options: list[str]


def _trial(options: Sequence[str]) -> list[str]:
    """Options with a number assumed for what only the user knows."""
    words = list[str]()
    for flag, word in zip(options[::2], options[1::2], strict=True):
        if not is_open(word):
            words += [flag, word]
            continue
        n = word.startswith(_N)  # of which runs of one configuration are is not known then
        words += [ASSUME, _N, "--set", "resumed=apart"] if n else [ASSUME, _SETTINGS[0]]
    return words


def _cure(runs: Sequence[ImportedRun], missing: Sequence[str]) -> Cure:
    """What to add where B_p or n is not known."""
    lacking = [run for run in runs if any(getattr(run, name) is None for name in _SETTINGS)]
    keys = list(dict.fromkeys(key for run in lacking for key in run.provenance.unread))
    notes = [note for run in lacking for note in run.notes]
    if doubt := next((note for note in notes if " which is " in note), None):
        return Cure(f"{_sets(missing)} or --map KEY={missing[0]}, whichever is right ({doubt})",
                    shlex.split(_sets(missing)))  # fmt: skip
    if maps := _maps(keys, missing):
        return maps
    counted = [found for note in notes if (found := _BY_COUNT.fullmatch(note))]
    if missing == [*_SETTINGS[:1]] and len({found[1] for found in counted}) == 1:
        told = f"--set problems_per_batch={counted[0][1]}"
        return Cure(f"{told}, if that holds ({counted[0][0]})", shlex.split(told))
    per_n = per_rollout(lacking) if "problems_per_batch" in missing else None
    pattern = pattern_for(runs)
    if missing == in_place(missing, runs, pattern):
        return _both(pattern, missing, keys, per_n)
    each = next(note for note in notes if _EACH.match(note))
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
    return ["processes" if name == _SETTINGS[0] and each and lacking and not told else name
            for name in missing]  # fmt: skip


def _maps(keys: Sequence[str], missing: Sequence[str]) -> Cure | None:
    """`--map` for what is missing, where keys seem to hold all of it; None where they do not."""
    batch = next((key for key in keys if is_batch(key)), None)
    keys = [key for key in keys if not is_batch(key) or is_called(key, "problems_per_batch")]
    there = {n: k for n in missing if (k := next((k for k in keys if is_called(k, n)), None))}
    if batch is not None and "problems_per_batch" in missing and _N in there:
        there = {"problems_per_batch": batch, **there}
    if batch is not None and not there and [*missing] == [_N]:  # n = B / B_p
        counts = mapping(batch, "batch_size")
        own = _own(missing)
        return Cure(f"{counts} if it counts responses, or {own.text}", own.options)
    counted = batch is not None and (unit_of(batch, keys) or counts_step(batch))
    if batch is not None and counted and [*missing] == ["problems_per_batch"]:
        there = {"problems_per_batch": batch}
        return Cure(f"{by_maps(there)}, or {_own(missing).text}", maps_of(there))
    return Cure(by_maps(there), maps_of(there)) if len(there) == len(missing) else None


def _sets(missing: Sequence[str]) -> str:
    return " ".join(f"--set {n}={YOURS[n]}" for n in missing)


def _own(missing: Sequence[str]) -> Cure:
    """The numbers that only the user knows; a setting says one for all runs."""
    sets, names = _sets(missing), ",".join(missing)
    text = f"{sets} with your own number (one for all runs"
    if "processes" not in missing:
        text += f"; where they differ, write runs.csv beside the logs, with the columns run,{names}"
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
                        [*options, *shlex.split(sets)])  # fmt: skip
        if unsaid := [n for n in missing if f"{{{n}}}" not in named]:
            rest = _maps(keys, unsaid) or _own(unsaid)
            return Cure(f"{given}, as the names seem to say, and {rest.text}",
                        [*options, *rest.options])  # fmt: skip
        return Cure(f"{given} where the names say it, as they seem to, or {_sets(missing)}",
                    options)  # fmt: skip
    short = {"problems_per_batch": "bp", "rollouts_per_problem": "n"}
    pattern = "_".join(f"{short[n]}{{{n}}}" for n in missing)
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


# How names write B_p and n: bp32, prompts-32, rollouts_16; W&B's grouped charts "n: 16".
_WRITTEN = {
    "problems_per_batch": r"bp|b_p|bsz|[tr]?bs|(?<![0-9])b|batch|prompts|problems(?:_per_batch)?",
    # an n beside one of the others often counts nodes
    "rollouts_per_problem": r"nspp|g|group|gen|roll(?:outs?)?(?:_per_problem)?|samples|n",
    "seed": r"seed ?|s",
}


def number_in(text: str, name: str) -> int | None:
    """What a name says of a setting; None where it does not.

    >>> number_in("qwen-n4-g8", "rollouts_per_problem")
    8
    """
    said = _said(text, name)
    return None if said is None else int(said[1])


def written_in(text: str, name: str) -> tuple[int, int] | None:
    """Where a name says a setting: the place of its number; None where it does not.

    >>> written_in("qwen-n16", "rollouts_per_problem")
    (6, 8)
    """
    said = _said(text, name)
    return None if said is None else said.span(1)


# RUN__SEED__TIME, as CleanRL and open-instruct name their runs
_BEFORE_TIME = re.compile(r"(?<=__)([0-9]{1,6})(?=__1[0-9]{9}(?![0-9]))")


def _said(text: str, name: str) -> re.Match[str] | None:
    if name == "seed" and (timed := _BEFORE_TIME.search(text)):
        return timed
    return next((found for word in _words(name) if (found := re.search(
        # 8k is a length, 3b a model, 1n8g nodes and GPUs
        rf"(?<![a-z])(?:{word})(?:[-_=]|: ?)?([0-9]{{1,12}})(?![0-9km]|b(?![0-9])|g(?![a-z0-9]))",
        text, re.I,
    ))), None)  # fmt: skip


def _words(name: str) -> tuple[str, ...]:
    """How a name is written, the most telling words first."""
    telling, _, n = _WRITTEN[name].rpartition("|")
    return (telling, n) if n == "n" else (_WRITTEN[name],)


def _pattern_in(text: str, missing: Sequence[str]) -> str | None:
    """The part of a name that says what is missing, as a `pattern`; None where it does not.

    >>> _pattern_in("run_bp32_n16_seed0.jsonl", list(_WRITTEN))
    'bp{problems_per_batch}_n{rollouts_per_problem}_seed{seed}'
    """
    places = []
    for name in missing:
        said = _said(text, name)
        if said is None or _is_bare(text, said):
            return None
        places.append((said.start(1), said.end(), said.start(), name))
    pattern, at = "", min(start for _, _, start, _ in places)
    for number, end, _, name in sorted(places):
        if "seed" in missing and re.search("[0-9]", text[at:number]):
            return None  # what stands between may be another in the next name
        pattern += f"{text[at:number]}{{{name}}}"
        at = end
    return pattern


def _is_bare(text: str, said: re.Match[str]) -> bool:
    """Whether a lone `b` stands in a folder's or file's name that says no n: "b3" may be anything.

    >>> [_is_bare(text, re.search("b[0-9]", text)) for text in ("b3/n8", "b3_n8")]
    [True, False]
    """
    if said[0][:1].lower() != "b" or said[0][1:2].isalpha():
        return False
    part = text[text.rfind("/", 0, said.start()) + 1 :].split("/", 1)[0]
    return number_in(part, "rollouts_per_problem") is None


_OF_RESULTS = frozenset(("benchmark", "dataset", "eval_set", "task"))  # whose rows are evaluations


def likely_columns(header: Sequence[str], missing: Sequence[str]) -> dict[str, str]:
    """Name of the contract -> the column of a table that seems to hold it.

    >>> likely_columns(["step", "group_size", "val/acc"], ["rollouts_per_problem", "score"])
    {'rollouts_per_problem': 'group_size', 'score': 'val/acc'}
    """
    found: dict[str, str] = {}
    for name in missing:
        free = [c.strip() for c in header if c.strip() and c.strip() not in found.values()]
        if name == "rollouts_per_problem" and not _OF_RESULTS.isdisjoint(free):
            free = [c for c in free if not c.endswith("samples")]  # of an evaluation
        if name == "score":  # a column for every n is not the one of the scores
            free = [c for c in free if number_in(c, "rollouts_per_problem") is None]
            said = likely_key(free)
            told = "" if said == "KEY" else said
        else:
            told = next((c for c in free if is_called(c, name)), "")
            if not told and name == "problems_per_batch":
                told = next((c for c in free if is_batch(c)), "")
        if told:
            found[name] = told
    return found


def pattern_in_columns(header: Sequence[str]) -> str | None:
    """The `pattern` of a table with a column for every n, as all of their names follow it.

    >>> pattern_in_columns(["step", "n8_seed0", "n8_seed1", "n16_seed0"])
    'n{rollouts_per_problem}_seed{seed}'
    """
    columns = [c.strip() for c in header if number_in(c, "rollouts_per_problem") is not None]
    if len({number_in(c, "rollouts_per_problem") for c in columns}) < 2:
        return None
    for names in (list(_WRITTEN), list(_WRITTEN)[:2], list(_WRITTEN)[1:], list(_WRITTEN)[1:2]):
        found = {_pattern_in(column, names) for column in columns}
        if len(found) == 1 and None not in found:
            return found.pop()
    return None
