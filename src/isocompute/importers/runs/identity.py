"""What is one run: decided here, by what the logs say of it and by its scores.

Two records of one run (two trackers, a copy) are one; a log that begins where another ends goes
on with it. What is joined is said and kept as inferred; what could be either stops with both and
the option that settles it. Which runs are repetitions of each other: `repetitions`.

Shape legend: K points of one series.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isocompute.importers.beside.beside import FILES
from isocompute.importers.beside.described import files_beside
from isocompute.importers.runs.own_words import with_own_words
from isocompute.importers.runs.repetitions import differing
from isocompute.importers.runs.sequels import (
    APART,
    RESUMED,
    join_counted_anew,
    join_resumed,
    named,
    span_of,
    trains_late,
)
from isocompute.importers.runs.shared import (
    ENOUGH,
    Shared,
    may_be_one,
    merged,
    pairs,
    scores_of,
    shared,
)
from isocompute.importers.values.imported import AGAIN, STOPPED, ImportedRun, Series, UnclearError
from isocompute.importers.words.paths import job_of, run_name, started_at

_TRACKERS = ("mlflow", "mlflow-files", "trackio", "wandb")  # where an owner gives runs their names
_MUCH = 10  # parts of a run: its first that another shares may be one seed's, before they part
_NUMBERED = re.compile(r" \([0-9]+\)$")  # of a name that several columns of a chart have


def settle_runs(
    runs: Sequence[ImportedRun], *, resumed: str | None = None, decided: Sequence[ImportedRun] = ()
) -> list[ImportedRun]:
    """Runs without doubles, resumed logs joined.

    Args:
        runs: of any number of logs.
        resumed: "join" or "apart" where it is not clear whether a log goes on with another.
        decided: those of the runs that an earlier import settled among themselves.

    Raises:
        UnclearError: one run at different steps or under different seeds; a log that may go on
            with several others.
    """
    if len(runs) > 1:
        before = frozenset(map(id, decided))
        once = with_own_words(_merge_doubles(list(runs), before))
        if resumed != "apart":
            once = join_counted_anew(once, resumed, before)
            once = _leave_branches(once, before)
            once = _leave_failed(_leave_unfinished(once, before), before)
            once = _last_starts(once, resumed, before)
        else:
            once = _both_kept(once, before)
        runs = join_resumed(once, resumed, before)
        if resumed != "apart":
            _refuse_one_file(runs, before)
    return list(runs)


def _refuse_one_file(runs: Sequence[ImportedRun], decided: frozenset[int]) -> None:
    """Refuse whole runs of one seed by a file above them: it may be of the last of them alone.

    So may that beside starts of one job, whose names differ in their times.
    """
    alike = defaultdict[tuple[object, ...], list[str]](list)
    for run in (one for one in runs if id(one) not in decided):
        name, path = next(iter(files_beside(run)), "").partition(" ")[0], Path(run.provenance.path)
        if (name.startswith("..") and run.seed is not None) or (name in FILES and started_at(path)):
            file = os.path.normpath(path.parent / name)
            alike[file, *run.design].append(run.name)
    for (above, _, n, seed), several in alike.items():
        if len(several) > 1:
            raise UnclearError(
                f"runs of one seed must differ in their settings, but {above!r} says n={n} and "
                f"seed {seed} of {', '.join(several[:3])}; if it was changed between them, lay a "
                "copy with each one's own beside its log, else add --set resumed=apart.",
                options=APART, trial=APART, condition=f"all of them had n={n}",
            )


def named_apart(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """Runs of one file under names of their own: a tracker gives several runs one name."""
    taken: set[tuple[str, str]] = {(run.name, run.provenance.sha256) for run in runs}
    seen, apart = set[tuple[str, str]](), list[ImportedRun]()
    for run in runs:
        name, sha256, count = run.name, run.provenance.sha256, 1
        if (name, sha256) in seen:
            while (name, sha256) in taken:
                count += 1
                name = f"{run.name} ({count})"
        taken.add((name, sha256))
        seen.add((name, sha256))
        apart.append(run if name == run.name else replace(run, name=name))
    return apart


def _merge_doubles(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    _refuse_shifted(runs, decided)
    parent = list(range(len(runs)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in pairs(runs, decided):
        if _one_run(runs[i], runs[j]):
            parent[root(j)] = root(i)
    groups: dict[int, list[ImportedRun]] = defaultdict(list)
    for i, run in enumerate(runs):
        groups[root(i)].append(run)
    return [merged(group) for group in groups.values()]


def _one_run(a: ImportedRun, b: ImportedRun) -> bool:
    """Whether all scores that two records share are the same, and enough of them."""
    if not may_be_one(a, b):
        return False
    found = shared(a, b)
    copied = a.provenance.sha256 == b.provenance.sha256 and a.provenance.path != b.provenance.path
    if found.differ is not None or not (found.enough or (found.equal and copied)):
        return False
    if a.seed is not None and b.seed is not None and a.seed != b.seed:
        raise UnclearError(
            f"runs of two seeds must differ, but {named(a)} (seed {a.seed}) and {named(b)} (seed "
            f"{b.seed}) have the same {len(found.equal)} scores; leave one out, with --where seed="
            f"{a.seed} or its file."
        )
    return True


def _branches(
    runs: Sequence[ImportedRun], decided: frozenset[int]
) -> Iterator[tuple[int, int, Shared]]:
    """Places of two runs with one beginning, and what their scores have in common."""
    for i, j in pairs(runs, decided):
        found = shared(runs[i], runs[j]) if may_be_one(runs[i], runs[j]) else None
        if found is not None and found.differ is not None and found.enough:
            yield i, j, found


def _leave_branches(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    """Of two runs with one beginning, the one that went on further: it holds that beginning.

    A run that goes on from a checkpoint elsewhere takes its history along; what the first did
    after that checkpoint is no run of its own.

    Raises:
        UnclearError: where both end at one step, or share so little that one seed may be why.
    """
    kept, left_out = list(runs), set[int]()
    for i, j, found in _branches(runs, decided):
        a, b = runs[i], runs[j]
        ends = [span.last if (span := span_of(run)) else 0 for run in (a, b)]
        if ends[0] == ends[1] or _MUCH * found.until < min(ends):
            raise UnclearError(
                f"runs must not share their first scores, but {named(a)} and {named(b)} have the "
                f"same ones up to step {found.until}, as where one went on from a checkpoint of "
                "the other, or both began with one seed; leave the file of one out, or keep both "
                "as two runs with --set resumed=apart (then --where run=NAME chooses one).",
                options=APART, trial=APART, condition=f"{a.name!r} and {b.name!r} are two runs",
            )
        stays, leaves = (i, j) if ends[0] > ends[1] else (j, i)
        first = [span.first if (span := span_of(runs[k])) else 0 for k in (stays, leaves)]
        if first[0] > first[1]:
            continue  # without that beginning: rows that the other wrote before a checkpoint
        told = (f"goes on from step {found.until} of {runs[leaves].provenance.path}, whose later "
                "scores are left out (--set resumed=apart keeps both)")
        kept[stays] = replace(kept[stays], notes=(*kept[stays].notes, told))
        left_out.add(leaves)
    return [run for k, run in enumerate(kept) if k not in left_out]


def _both_kept(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    """Runs with one beginning that count as two because the user says so: told, under two names."""
    kept = list(runs)
    for i, j, found in _branches(runs, decided):
        a, b = runs[i], runs[j]
        name = b.name if a.name != b.name else f"{b.name} ({Path(b.provenance.path).name})"
        told = (f"its scores up to step {found.until} are those of {a.provenance.path}: counted "
                "twice, as resumed=apart says")
        kept[j] = replace(kept[j], name=name, notes=(*kept[j].notes, told))
    return kept


def _last_starts(
    runs: list[ImportedRun], resumed: str | None, decided: frozenset[int]
) -> list[ImportedRun]:
    """Of records under one name that all begin at the start, the one that counts.

    TensorBoard takes a folder of event files for a run, and a loop that starts a job again prints
    into one console: the last start counts. A chart of W&B has a column for every run of a name,
    and a database may, of which the longest does.

    Raises:
        UnclearError: unless `resumed` is "join".
    """
    def of(run: ImportedRun) -> tuple[object, ...]:
        return run.provenance.path, _NUMBERED.sub("", run.name)

    again = {of(run) for run in runs if AGAIN in run.provenance.inferred}
    unseeded = Counter(of(run) for run in runs
                       if run.seed is None and run.provenance.format in _TRACKERS)  # fmt: skip
    again |= {name for name, count in unseeded.items() if count > 1}
    alike: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        span, is_chart, path = span_of(run), of(run) in again, Path(run.provenance.path)
        events = run.provenance.format == "tensorboard"
        if span and not span.is_late and (is_chart or events or _is_printed(run)):
            where = of(run) if is_chart else (path.parent, "" if events else _numberless(path))
            alike[(*where, _own_name(run), *run.design)].append(run)
    left_out = set[int]()
    for several in alike.values():
        if len(several) < 2 or {id(run) for run in several} <= decided:
            continue
        is_chart, printed = of(several[0]) in again, _is_printed(several[0])
        ends = {id(run): span.last for run in several if (span := span_of(run))}
        *before, last = sorted(several, key=lambda run: (
            [ends[id(run)]] if is_chart else _numbers(run) if printed else
            [Path(run.provenance.path).name]
        ))  # fmt: skip
        if (is_chart or printed) and len({*ends.values()}) == 1:
            continue  # none of them stopped on the way
        if printed and len({run.provenance.path for run in several}) > 1 and not any(
            ends[id(run)] < min(run.steps or 0, ends[id(last)]) for run in before
        ):
            continue  # nor of these, as far as their plans say
        if not any(scores_of(run).keys() & scores_of(last).keys() for run in before):
            continue  # each has series of its own
        if resumed != "join":
            one, other = ((f"{run.name!r} (to step {ends[id(run)]})" if is_chart else named(run))
                          for run in (last, before[-1]))  # fmt: skip
            columns = any(AGAIN in run.provenance.inferred for run in several)
            what = "a folder of event files" if not (is_chart or printed) else (
                "what consoles print under one configuration" if printed else
                f"{'columns' if columns else 'runs'} of one name"
                f"{' in a chart' if columns else ' without a seed'}"
            )  # fmt: skip
            counts = "longer one" if is_chart else "last start"
            file = Path(last.provenance.path)
            there = shlex.quote(str(file.parent.parent / "nN"))
            apart = "else, resumed=apart" if is_chart or printed else (
                "if both had one B_p and n, resumed=apart; if not, first move one into a folder "
                f"that says its n: mkdir {there} && mv {shlex.quote(str(file))} {there}"
            )
            raise UnclearError(
                f"{what} must be one run, but {one} and {other} both begin at the start; if one "
                f"is a new start of the other, add --set resumed=join (the {counts} counts); "
                f"{apart}.",
                options=RESUMED, trial=APART,
                condition="" if is_chart or printed else (
                    f"both starts in {file.parent.name!r} had one n"),
            )
        left_out |= {id(run) for run in before}
    return [run for run in runs if id(run) not in left_out]


def _is_printed(run: ImportedRun) -> bool:
    """Whether a run of a known B_p and n is of a console, in which starts follow each other."""
    return run.provenance.format.endswith("console") and None not in run.design[:2]


def _own_name(run: ImportedRun) -> str:
    """What the configuration calls a run of a console, not its file: "" for another."""
    return "" if run.name.startswith(run_name(Path(run.provenance.path))) or not (
        _is_printed(run)) else run.name


def _numbers(run: ImportedRun) -> list[int]:
    return [int(digits) for digits in re.findall("[0-9]+", run.provenance.path)]


def _numberless(path: Path) -> str:
    """What the logs of a job are called, whatever its number: slurm-#.out; 0.5 is a setting."""
    return re.sub(r"(?<![0-9.])[0-9]+(?!\.?[0-9])", "#", job_of(Path(path.name)))


def _leave_unfinished(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    """Runs without the starts of one job that died before its plan's end, and began anew.

    They have its folder (v0-DATE, exp_001) and its file's name but for numbers, or in a tracker its
    name, its configuration and its seed, and a later one went further: what the same seed did twice
    is no second seed.
    """
    jobs: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        span, late = span_of(run), trains_late(run)
        tracked, told = run.provenance.format in _TRACKERS, run.seed is not None and run.steps
        if (tracked or told or _is_printed(run)) and span and not (
            span.is_late if late is None else late
        ):
            path = Path(run.provenance.path)
            job = run.name if tracked else f"{path}{_own_name(run)}"
            if told and not tracked:  # a folder without a word is a tracker's, of each start
                home = path.parent.parent if path.parent.name.isdecimal() else path.parent
                job = f"{job_of(home)}/{_numberless(path)}"
            jobs[(tracked, job, *run.design)].append(run)
    left_out, lines = set[int](), defaultdict[int, list[str]](list)
    for (unordered, *_), several in jobs.items():
        if {id(run) for run in several} <= decided or differing(several):
            continue
        several.sort(key=lambda run: (
            [run.last] if unordered else _numbers(run)  # their order in time is not known
        ))  # fmt: skip
        ends = [run.last for run in several]
        for k, run in enumerate(several):
            planned, rows = run.steps or 0, [np.diff(s.step_K) for s in run.series]
            width = min((float(np.median(row)) for row in rows if row.size), default=1.0)
            printed = _is_printed(run)
            short = (run.seed is not None or printed) and (
                ends[k] + max(width, planned / 50) < planned)
            short |= any(line.endswith(STOPPED) for line in run.notes)
            elsewhere = unordered or printed or run.provenance.path != several[-1].provenance.path
            if short and elsewhere and max(ends[k + 1 :], default=-1) > ends[k]:
                left_out.add(id(run))
                lines[id(several[-1])].append(
                    f"{named(run)} ended at step {ends[k]}{f' of {planned}' if planned else ''} "
                    "and was started again; it is left out (--set resumed=apart keeps all)"
                )
    return [run.inferring(*lines[id(run)]) if id(run) in lines else run
            for run in runs if id(run) not in left_out]  # fmt: skip


def _leave_failed(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    """Runs without those that their tracker says failed, where one of that seed went further.

    Their names differ in numbers alone, as those of a tracker's folders do.
    """
    alike: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        if None not in run.design:
            alike[(re.sub("[0-9]+", "#", run.name), *run.design)].append(run)
    left_out, lines = set[int](), dict[int, list[str]]()
    for several in (its for its in alike.values() if not {id(run) for run in its} <= decided):
        whole = max(several, key=lambda run: run.last)
        failed = [run for run in several if any(line.endswith(STOPPED) for line in run.notes)
                  and run.last < whole.last]  # fmt: skip
        if failed and not differing(several):
            left_out |= {id(run) for run in failed}
            lines[id(whole)] = [
                f"{named(run)} failed at step {run.last}, and {whole.name!r} has its seed; it is "
                "left out (--set resumed=apart keeps all)" for run in failed
            ]  # fmt: skip
    return [run.inferring(*lines[id(run)]) if id(run) in lines else run
            for run in runs if id(run) not in left_out]  # fmt: skip


def _refuse_shifted(runs: Sequence[ImportedRun], decided: frozenset[int]) -> None:
    """One run whose two records count different things as steps."""
    seen: dict[tuple[object, ...], list[tuple[ImportedRun, Series]]] = defaultdict(list)
    for run in runs:
        for s in run.series:
            if s.metric.kind != "avg" or len(set(s.score_K.tolist())) <= ENOUGH:
                continue
            # trackers round to float32, so the sum may fall into the next thousandth
            place = round(1e3 * float(s.score_K.sum()))
            kind = (s.metric.kind, s.metric.variable, s.split, s.score_K.size)
            near = [one for d in (-1, 0, 1) for one in seen[(*kind, place + d)]]
            for other, twin in near:
                if {id(other), id(run)} <= decided:
                    continue
                if other is run or np.array_equal(twin.step_K, s.step_K):
                    continue
                if not np.allclose(twin.score_K, s.score_K, rtol=1e-5, atol=1e-7):
                    continue
                raise UnclearError(
                    f"one run must have its scores at the same steps in every log, but "
                    f"{named(other)} has them up to {int(twin.step_K[-1])} and {named(run)} up "
                    f"to {int(s.step_K[-1])}; give one of the two, or name the key that counts "
                    "updates with --set step=KEY."
                )
            seen[(*kind, place)].append((run, s))
