"""Logs beside each other that are no runs of their own: ranks, attempts, a base configuration.

What their names say against that is never read over: the import stops with the way out.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from isocompute.importers.beside.described import files_beside
from isocompute.importers.runs.cadence import FEW, numbered
from isocompute.importers.values.imported import ImportedRun, UnclearError
from isocompute.importers.words.names import number_in, pattern_of
from isocompute.importers.words.paths import job_of

RANK = re.compile(
    r"(?:^|[-_.])(?:local_?)?(?:rank|worker|proc|process|shard)[-_]?(?P<rank>[0-9]+)(?=$|[-_.])",
    re.I,
)
_RANK = re.compile(rf"gpu[-_]?[0-9]+|.*{RANK.pattern}.*", re.I)
_ATTEMPT = re.compile(r"(?:attempt|try|retry|restart)[-_]?[0-9]+", re.I)


def refuse_two_scores(run: ImportedRun, one: ImportedRun, mapped: Collection[str]) -> None:
    """Refuse a mapped key of a log's rows that results of its checkpoints have with other scores.

    What a trainer calls validation is held-out in both: then these are of another evaluation.
    """
    own = {(s.metric.label, s.problem_set) for s in one.series if s.metric.label in mapped}
    told = {s.metric.label for s in run.series
            if s.split == "validation" and (s.metric.label, s.problem_set) in own}  # fmt: skip
    for label in sorted(told)[:1]:
        raise UnclearError(
            f"a run must have one held-out score of a name, but {run.name!r} has other {label} in "
            f"{run.provenance.path} than in {one.provenance.path}; if the first is of its training "
            "batches, add --set split=train; else map their keys to two metrics.",
            options=("--set", "split=train"), condition=f"{run.provenance.path} is of training",
        )


def refuse_siblings(
    runs: Sequence[ImportedRun], *, named: bool, counted: bool = False
) -> None:
    """Refuse parts and attempts of one run, and a configuration that names speak against.

    Args:
        runs: of one folder.
        named: whether the user has said what the names mean.
        counted: whether the user has said what steps count.

    Raises:
        UnclearError: names the logs and the cure.
    """
    _refuse_ranks(runs)
    _refuse_attempts(runs)
    _refuse_one_of_several(runs)
    if not counted:
        _refuse_counted_evaluations(runs)
    if not named:
        _refuse_base(runs)


def _are_counted(names: Collection[str]) -> bool:
    """Whether names count processes, of one or of each node: a LoRA has rank 8, 16 or 64.

    >>> _are_counted({"n8_rank0.jsonl", "n8_rank3.jsonl"}), _are_counted({"rank8.a", "rank64.a"})
    (True, False)
    """
    numbers = [int(re.findall("[0-9]+", found[0] if (found := RANK.search(name)) else name)[-1])
               for name in (one.partition(".")[0] for one in names)]  # fmt: skip
    return min(numbers) < 2 and max(numbers) < 8 * len(names)


def _refuse_ranks(runs: Sequence[ImportedRun]) -> None:
    parts: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for run in runs:
        path = Path(run.provenance.path)
        if _RANK.fullmatch(path.name.partition(".")[0]):  # workers may have a run each
            seed = None if "rank" in path.name.lower() else run.seed  # a rank may have its own
            of = (path.parent, run.problems_per_batch, run.rollouts_per_problem, seed)
            parts[of].add(path.name)
    for (folder, *_), names in parts.items():
        if len(names) > 1 and _are_counted(names):
            raise UnclearError(
                f"a log must be of a whole run, but {folder} holds those of its processes "
                f"({', '.join(sorted(names)[:3])}), each with a part of the batch; give the log "
                "of the one that gathers, or write a table of all right answers over all answers."
            )


def _refuse_attempts(runs: Sequence[ImportedRun]) -> None:
    tries: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for run in runs:
        path = Path(run.provenance.path)
        for part in (path.with_name(path.name.partition(".")[0]), path.parent):
            if _ATTEMPT.fullmatch(part.name):
                tries[(part.parent, *run.design)].append(part.name)
    for (folder, *_), names in tries.items():
        if len(set(names)) > 1:
            raise UnclearError(
                f"attempts of one run are no repetitions of it, but {folder} holds "
                f"{' and '.join(sorted(set(names))[:3])}; keep the one that counts, and move the "
                "others away."
            )


def _refuse_one_of_several(runs: Sequence[ImportedRun]) -> None:
    """A configuration above the logs of one job, where these do not go on with each other."""
    jobs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run in runs:
        path = Path(run.provenance.path)
        for file in files_beside(run):
            if file.startswith("../") and " and " not in file:
                jobs[os.path.normpath(path.parent / file), job_of(path)].append(str(path))
    for (file, _), paths in jobs.items():
        if len(set(paths)) > 1:
            first, second = sorted(set(paths))[:2]
            raise UnclearError(
                f"a configuration above several logs must be of one run, but {file} lies above "
                f"{first} and {second}, and none goes on with the other; keep the log that counts "
                "and move the others away, or lay its own configuration into the folder of each."
            )


def _refuse_counted_evaluations(runs: Sequence[ImportedRun]) -> None:
    """Evaluations one by one in a log of their own, beside the log of a far longer training."""
    logs: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        logs[Path(run.provenance.path).parent, *run.design].append(run)
    for found in logs.values():
        trained = max((run.provenance.trained or 0 for run in found
                       if all(s.split == "train" for s in run.series)), default=0)  # fmt: skip
        for run in (r for r in found if r.series and all(s.split != "train" for s in r.series)):
            if (last := numbered(run.series)) and trained // last >= FEW:
                every = trained // last
                raise UnclearError(
                    f"{run.provenance.path}: steps must be updates, but its evaluations stand one "
                    f"by one to step {last}, and the training beside it goes to {trained}; if they "
                    f"are counted, add the updates from one to the next (--set eval_every={every} "
                    f"--set steps={every * last}, say), else --set step=step.",
                    options=("--set", f"eval_every={every}", "--set", f"steps={every * last}"),
                    condition=f"an evaluation follows every {every} updates",
                )


def _refuse_base(runs: Sequence[ImportedRun]) -> None:
    alike: dict[tuple[object, ...], dict[int, ImportedRun]] = defaultdict(dict)
    for run in runs:
        if not files_beside(run):
            continue
        path = Path(run.provenance.path)
        texts = (run.name, path.name, path.parent.name)
        said = (number_in(text, "rollouts_per_problem") for text in texts)
        called = next((one for one in said if one is not None), None)
        if called is not None:
            alike[run.problems_per_batch, run.rollouts_per_problem].setdefault(called, run)
    for (_, n), found in alike.items():
        if n is not None and len(found) > 1:
            first, *_, last = (run.name for run in found.values())
            pattern = next((p for run in found.values() if (p := pattern_of(run))), None)
            cure = f"add --set pattern='{pattern}'" if pattern else "say so in a `pattern`"
            raise UnclearError(
                f"names and configuration must agree, but the file beside {first!r} and {last!r} "
                f"says rollouts_per_problem={n} of both; if it is a base that was overridden, move "
                f"it away and {cure}; if it is right, rename the runs."
            )
