"""What a run that was read leaves in doubt: nothing is kept or fitted before it is settled.

Shape legend: K points of one series.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from isocompute.importers.beside.described import files_beside
from isocompute.importers.runs import checks
from isocompute.importers.runs.cadence import accumulated
from isocompute.importers.runs.collected import Collected
from isocompute.importers.runs.placing import LATE
from isocompute.importers.runs.points import started_over
from isocompute.importers.runs.sequels import span_of
from isocompute.importers.runs.starts import NOT_NOISE, noise_of
from isocompute.importers.runs.steps import BEFORE
from isocompute.importers.values.imported import ImportedRun, IntArray, UnclearError
from isocompute.importers.values.reading import whole
from isocompute.importers.words.called import is_alike, is_batch, mapping, several_problems
from isocompute.importers.words.fresh import Found, batch_of_process
from isocompute.importers.words.plain_words import OWN, plain_keys
from isocompute.importers.words.scored import is_rate, mapped, scores_unread
from isocompute.importers.words.settings import Settings

_OF_TABLES = ("problems_drawn", "epochs", "tokens")  # what a column map calls counts so far
_OF_LOOPS = ("_per_iter", "_per_iteration", "_per_batch")  # a step or an update is an update
_ENOUGH = 4  # scores of a start, that tell its noise
_PROCESSES = "processes: "  # begins what a run infers of its B_p


def refuse_doubts(runs: Sequence[ImportedRun], *, training: bool) -> None:
    """Stop where a score or the updates of a run may be others', with all that is asked.

    Args:
        runs: with the parts of each joined.
        training: scores of training are meant.

    Raises:
        UnclearError: a score of training would stand for the held-out one, or a log begins far
            beyond step 0 and nothing says whose the updates before are.
    """
    if not training:
        for run in runs:
            _refuse_training_alone(run)
        refuse_renamed(runs)
    for run in runs:
        _refuse_late(run, runs)
    if parts := _of_one_cluster(runs) or _of_one_file(runs):
        raise UnclearError(parts)


def told_processes(
    config: Mapping[str, object], settings: Settings, found: Found
) -> str | None:
    """How many processes the B_p of a setting means, where the log has the batch of each alone.

    None where a name says that B_p: one setting is of all runs, and their n may differ.
    """
    b_p, n = settings.problems_per_batch, found.rollouts_per_problem or 1
    each = batch_of_process(config)
    if b_p is None or "problems_per_batch" in settings.named or not each:
        return None
    return f"{_PROCESSES}{b_p * n / each:g}, by problems_per_batch={b_p}"


def _of_one_cluster(runs: Sequence[ImportedRun]) -> str:
    """A B_p that was set for all runs, and would be of other processes in each."""
    said: dict[str, tuple[str, int | None]] = {}
    for run in runs:
        for line in run.provenance.inferred:
            if line.startswith(_PROCESSES):
                said.setdefault(line, (run.name, run.problems_per_batch))
    if len(said) < 2:
        return ""
    (a, (one, b_p)), (b, (other, _)) = list(said.items())[:2]
    first, second = (line.removeprefix(_PROCESSES).partition(",")[0] for line in (a, b))
    return (
        f"problems_per_batch={b_p} must fit all runs, but it means {first} processes of {one!r} "
        f"and {second} of {other!r}; add --set processes=P in its "
        "place, or import the runs of each B_p apart, each with its own --set."
    )


def _of_one_file(runs: Sequence[ImportedRun]) -> str:
    """A file that is the configuration of several runs, whose epochs are of other problems."""
    sizes: dict[str, dict[str, float]] = {}
    for run in runs:
        told, of = run.provenance, run.provenance.passes_per_step
        file = next(iter(files_beside(run)), "").partition(" and ")[0]
        s = next((s for s in run.series if s.step_K.size and s.step_K[-1] > 0), None)
        if s and of and file and run.problems_per_batch and run.rollouts_per_problem and not any(
            checks.MORE in note for note in run.notes
        ):
            at = os.path.join(os.path.dirname(told.path), file)
            each = s.rollouts_K[-1] / s.step_K[-1] / run.rollouts_per_problem
            sizes.setdefault(os.path.normpath(at), {})[run.name] = float(each / of)
    for file, named in sizes.items():
        few, most = (pick(named, key=named.__getitem__) for pick in (min, max))
        if not is_alike(round(named[few]), round(named[most])):
            return (
                f"{os.path.basename(file)} cannot hold for all runs: an epoch of {few!r} is then "
                f"{named[few]:,.0f} problems and one of {most!r} {named[most]:,.0f}; it, or "
                "the data, changed between them: write runs.csv beside the logs, with the columns "
                "run,problems_per_batch,rollouts_per_problem."
            )
    return ""


def _refuse_training_alone(run: ImportedRun) -> None:
    if not run.series or any(s.split == "validation" for s in run.series):
        return
    if not (keys := scores_unread(run)):
        return
    verb = "was" if len(keys) == 1 else "were"
    raise UnclearError(
        f"a curve must be of held-out problems, but {run.name!r} ({run.provenance.path}) has "
        f"scores of training alone, and {', '.join(keys)} {verb} not read; add {mapped(keys[0])}, "
        "or --set split=train to keep the training score.",
        options=shlex.split(mapped(keys[0])), condition=f"`{keys[0]}` is of held-out problems",
    )


def refuse_renamed(runs: Sequence[ImportedRun], label: str | None = None) -> None:
    """Refuse a success rate that some runs hold and the others seem to hold under another name.

    Args:
        runs: of one sweep.
        label: the metric that is meant; None: any.

    Raises:
        UnclearError: with both keys, and the options that make them one score or two.
    """
    scored = [run for run in runs if any(s.split == "validation" for s in run.series)
              or (not run.series and any(map(is_rate, run.provenance.candidates)))]  # fmt: skip
    keys = dict.fromkeys(
        s.key for run in scored for s in run.series
        if s.split == "validation" and is_rate(s.key) and label in (None, s.metric.label)
    )
    for key in keys:
        home = key.rpartition("/")[0]
        rest = [run for run in scored if all(s.key != key for s in run.series)]
        among = [run.provenance.candidates for run in scored
                 if any(s.key == key for s in run.series)]  # fmt: skip
        named = [{other for other in run.provenance.candidates if is_rate(other)
                  and other.rpartition("/")[0] == home} for run in rest]  # fmt: skip
        there = set.intersection(*named).difference(*among) if home and named else set()
        if len(there) != 1:
            continue
        (other,) = there
        both = [*shlex.split(mapping(key, "own")), *shlex.split(mapping(other, "own"))]
        raise UnclearError(
            f"runs of one sweep must share a score, but {len(scored) - len(rest)} hold {key} and "
            f"{len(rest)} hold {other} in its place, which was not read; if these are one score, "
            f"add {shlex.join(both)} (fit and plan take it with --metric own), else "
            f"{mapping(other, 'other')}.", options=both,
            condition=f"`{key}` and `{other}` are one score",
        )


def _refuse_late(run: ImportedRun, runs: Sequence[ImportedRun]) -> None:
    """Where its steps are even, and the first is far beyond one of them.

    Parts of one run are joined once its B_p and n are known, and are the same.
    """
    if None in run.design[:2]:
        return
    first, last, width = span_of(run) or (0, 0, 1.0)
    even = [  # where budgets grow by a factor, so does the distance
        np.mean(np.diff(s.step_K) == width) > 0.5 for s in run.series if s.step_K.size > 1
    ]
    rows = [int(s.step_K[0]) for s in run.series if s.step_K.size]
    begins = run.provenance.begins
    earliest = min([first, *rows, *([] if begins is None else [begins])])
    if not any(even) or earliest <= LATE * width or any(
        line.endswith(BEFORE) for line in run.provenance.inferred
    ):
        return
    begins = own_start(earliest, [s.step_K for s in run.series if s.split == "train"])
    for other in runs:  # it goes on with another batch
        end = other.last
        near = other.provenance.path == run.provenance.path or other.design[1:] == run.design[1:]
        if near and other.design != run.design and begins <= end < begins + width:
            now, was = ("B_p={} and n={}".format(*one.design[:2]) for one in (run, other))
            raise UnclearError(
                f"a run must have one B_p and n, but {run.name!r} ({run.provenance.path}) begins "
                f"at step {earliest} with {now}, where {other.name!r} ends with {was}; if it goes "
                "on from that one, no curve holds both: leave out its file, or cut off what the "
                f"file holds behind step {end}. If it is a run of its own, add --set begins=0 or "
                f"--set begins={begins}.", trial=("--set", "begins=0"),
            )
    raise late_error(f"{run.name!r} ({run.provenance.path})", earliest, last, begins)


def own_start(first: int, training: Sequence[IntArray]) -> int:
    """The step at which a log that begins late began, if those before are another run's.

    >>> own_start(500, [np.array([501, 502])]), own_start(510, [np.array([510, 520, 530])])
    (500, 500)
    """
    for step_K in training:
        if step_K.size > 1 and step_K.min() == first:  # of the first update, or of the first ten
            return first - int(np.median(np.diff(np.sort(step_K))))
    return first


def late_error(
    what: str, first: int, last: int, begins: int, planned: int | None = None
) -> UnclearError:
    """Both readings of a log that begins late, and the option for each.

    Args:
        what: the run and its log.
        first, last: steps.
        begins: see `own_start`.
        planned: updates; None where that is not known.
    """
    plan = "" if planned is None else f", {planned} are planned"
    return UnclearError(
        f"the updates of a run must be its own, but {what} begins at step {first}; add --set "
        f"begins=0 if it did those before as well ({last} in all), or --set begins={begins} if it "
        f"went on from another run's checkpoint ({last - begins} in all{plan}). An older part of "
        "its log belongs beside it.",
        options=("--set", "begins=BEGINS"), trial=("--set", "begins=0"),
    )


def refuse_going_on(c: Collected, what: str) -> None:
    """Refuse rows that start over where scores go on, as those of a counter that began anew.

    Raises:
        UnclearError: with both scores, and what settles it.
    """
    for points in c.points if c.settings.resumed != "apart" else ():
        step_K, score_K = points.steps_K, points.scores_K
        at = started_over(step_K, score_K)
        began = max(np.flatnonzero(np.diff(step_K[:at]) < 0) + 1, default=0)  # the start before
        before, after = score_K[began:at], score_K[at:]
        if min(before.size, after.size) < _ENOUGH:
            continue
        first, last, again = (float(score) for score in (before[0], before[-1], after[0]))
        if abs(again - first) > max(NOT_NOISE * noise_of(before, after), 2 * abs(again - last)):
            raise UnclearError(
                f"{what}: a log that starts over must score as it began, but {points.key} has "
                f"{first:.3g} at step {step_K[0]}, {last:.3g} at step {step_K[at - 1]} and "
                f"{again:.3g} at step {step_K[at]} again, as if it went on from a checkpoint; if "
                "it did, count the steps behind it on from that checkpoint's in a copy, if it "
                "began anew add --set resumed=apart.", options=("--set", "resumed=apart"),
                condition=f"the later rows of {c.name!r} began anew",
            )


def refuse_problems(c: Collected, what: str) -> None:
    """Refuse scores of several numbers of problems, unless the user says which are meant."""
    for key, rows in c.problems.items():
        given = c.settings.evaluation_problems
        if rows and given and not any(is_alike(count, given) for count in rows):
            raise UnclearError(f"{what}: evaluation_problems must be what {key} says beside the "
                               f"scores, {max(rows)}, but is {given}; correct or drop it.")
        if (told := several_problems(rows, key)) and given:
            left = sum(times for count, times in rows.items() if not is_alike(count, given))
            c.counters.infer(f"score: {left} rows of other numbers of problems than {given} "
                             f"({key}) are left out")  # fmt: skip
        elif told:
            told = f"{what}: {told}; choose with --set evaluation_problems={max(rows)}, or another."
            raise UnclearError(told, options=("--set", "evaluation_problems=PROBLEMS"),
                               trial=("--set", f"evaluation_problems={max(rows)}"))


def refuse_of_tables(c: Collected, what: str) -> None:
    """A column map gives a key of a log a meaning that only a column of a table can have.

    Raises:
        UnclearError: so.
    """
    for points in c.points:
        if points.column.metric.label in _OF_TABLES:
            label = points.column.metric.label
            raise UnclearError(
                f"{what}: a key of a log must be mapped to a score, steps, rollouts or "
                f"problems_sampled, but {points.key!r} is to be {label}, which a table alone can "
                "have; drop that --map" + ("." if label == "tokens" else (
                    " where the log's steps are updates, or name the key that counts them: --set "
                    "step=KEY."
                ))
            )


def parts_of_update(c: Collected) -> int:
    """Steps of the log in an update, where a loop of one's own counts problems by them.

    Gradients that accumulate may be those of several steps, or of one in parts: B_p as the user
    says it tells which.

    Raises:
        UnclearError: the user says none.
    """
    each, b_p = accumulated(c.config), c.found.problems_per_batch
    batches = [key for key, value in plain_keys(c.config, OWN[1:])
               if whole(value) == b_p and key.endswith(_OF_LOOPS)]  # fmt: skip
    if len(each) != 1 or not b_p or not batches or "num_generations" in c.config:
        return 1
    (key, count), n = each[0], c.found.rollouts_per_problem
    told = c.settings.problems_per_batch or c.settings.by_n.get(n or 0)
    if told is None:
        raise UnclearError(
            f"run {c.name}: updates must be known, but {batches[0]} is {b_p} and gradients are "
            f"accumulated over {count} ({key}); add --set problems_per_batch={b_p * count} if "
            f"{count} steps of the log make an update, --set problems_per_batch={b_p} if each is "
            "one.", options=("--set", "problems_per_batch=B_P"),
            trial=("--set", f"problems_per_batch={b_p}"),
        )
    return count if told == b_p * count else 1


def merged(c: Collected, name: str, found: int | None) -> int | None:
    """A number that a log or its configuration says, and a setting; the log's where they differ.

    Raises:
        UnclearError: a file beside the log, or its name, says otherwise.
    """
    given: int | None = getattr(c.settings, name)
    if name in c.settings.assumed:
        return given if found is None else found
    if found is not None and given is not None and found != given:
        if c.beside:
            raise UnclearError(
                f"run {c.name}: {name} must be one number, but {c.beside} beside the "
                f"log says {found} and the setting or pattern {given}; drop the setting, or "
                "move the file away."
            )
        if name in c.settings.named and name in ("problems_per_batch", "rollouts_per_problem"):
            raise UnclearError(
                f"run {c.name}: {name} must be one number, but the log says {found} and the "
                f"name by the pattern {given}; drop that part of the pattern, and the log's "
                "is used."
            )
        c.note(f"the log says {name}={found}, the setting {given}: the log's is used")
    return given if found is None else found


def other_batch(c: Collected, b_p: int, n: int) -> str:
    """A line where a loop's `batch_size` is neither B_p nor B_p * n: its group may be of problems.

    B_p is the user's, n that of the configuration, in the word that some loops have for B_p.
    """
    batch, word = whole(c.config.get("batch_size")), "group_size"
    if not batch or batch in (b_p, n * b_p) or whole(c.config.get(word)) != n or (
        c.settings.problems_per_batch is None or batch % n
    ):
        return ""
    words = f"{mapping(word, 'problems_per_batch')} --set rollouts_per_problem={batch // n}"
    return (f"the configuration's batch_size, {batch}, is neither B_p ({b_p}) nor B_p * n "
            f"({n * b_p}): correct B_p, or, if its {word} counts problems, not responses of one, "
            f"give {words} instead")  # fmt: skip


def counted_problems(c: Collected, n: int | None) -> int | None:
    """B_p by the rollouts that a step counts, where a batch of the configuration agrees."""
    each = checks.of_a_step(c.side["counted"]) or checks.of_every_step(c)
    if not each or not n or each % n:
        return None
    b_p = each // n
    if any(whole(value) in (b_p, each) for key, value in c.config.items() if is_batch(key)):
        c.counters.infer(f"problems_per_batch: {each} rollouts of a step / rollouts_per_problem")
        return b_p
    c.note(f"B_p is {b_p} by the {each} rollouts that the log counts in a step")
    return None
