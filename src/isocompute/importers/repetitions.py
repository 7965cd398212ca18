"""Which runs are repetitions of one another, and which of them are meant.

Runs of another model, response length or learning rate are no repetitions, whatever else they
share; a selection by such a fact chooses among them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from isocompute.errors import InputError
from isocompute.importers.configuration import FACTS, SCALED
from isocompute.importers.runs import FROM_NAME, ImportedRun

SETTINGS = ("problems_per_batch", "rollouts_per_problem", "seed")


def differing(runs: Sequence[ImportedRun]) -> dict[str, dict[str, int]]:
    """Facts in which runs differ that have to share them: name -> value -> number of runs.

    A learning rate may follow the batch: it differs where repetitions of one configuration do.
    """
    found: dict[str, dict[str, int]] = {}
    for name in FACTS:
        groups: dict[object, Counter[str]] = defaultdict(Counter)
        for run in runs:
            if name in run.provenance.facts:
                key = (run.problems_per_batch, run.rollouts_per_problem) if name in SCALED else None
                groups[key][run.provenance.facts[name]] += 1
        for values in groups.values():
            if len(values) > 1 and name not in found:
                found[name] = dict(values)
    return found


def require_one_arm(runs: Sequence[ImportedRun], asked: Collection[str] = ()) -> None:
    """Runs of different models, lengths or learning rates are no repetitions of each other.

    Raises:
        InputError: lists the values, with the words that choose one.
    """
    for name, values in differing(runs).items():
        if name in asked:
            continue
        listed = ", ".join(
            f"{value} ({count} run{'s' if count > 1 else ''})" for value, count in values.items()
        )
        raise InputError(
            f"runs must share their {name.replace('_', ' ')} to be compared or averaged, but have "
            f"{listed}; choose with --where {name}={next(iter(values))}, or keep all with "
            f"--where '{name}=*'."
        )
    if "run" not in asked:
        _refuse_two_sweeps(runs)


def _refuse_two_sweeps(runs: Sequence[ImportedRun]) -> None:
    """Names that tell runs of the same B_p, n and seed apart, all through: two sweeps, not one.

    Raises:
        InputError: names the sweeps, and the words that choose one.
    """
    sweeps: dict[str, dict[tuple[object, ...], str]] = defaultdict(dict)
    for run in runs:
        matched = next((line.split(f"{FROM_NAME} '", 1)[1][:-1] for line in run.provenance.inferred
                        if FROM_NAME in line and "seed=" in line), None)  # fmt: skip
        if matched and matched in run.name:
            design = tuple(getattr(run, name) for name in SETTINGS)
            sweeps[run.name.replace(matched, "*", 1)][design] = run.name
    several = {name: of for name, of in sweeps.items() if len({n for _, n, _ in of}) > 1}
    twice = [
        (a, b) for a, b in combinations(several, 2)
        if len(several[a].keys() & several[b].keys()) > 1
    ]  # fmt: skip
    if twice:
        a, b = twice[0]
        raise InputError(
            f"runs of one sweep must differ in B_p, n or seed, but {a!r} ({len(several[a])} runs) "
            f"and {b!r} ({len(several[b])}) have the same ones; choose with --where run='{a}', or "
            "keep all with --where 'run=*'."
        )


def select_imported(
    path: str, runs: Sequence[ImportedRun], where: Mapping[str, str]
) -> list[ImportedRun]:
    """The runs that a selection leaves, by configuration, run and facts.

    Raises:
        InputError: a key that no run has, or a value that none has.
    """
    from isocompute.store.arms import matches, no_match

    kept = list(runs)
    known = ("run", *SETTINGS, *sorted({k for run in runs for k in run.provenance.facts}))
    for key, wanted in where.items():
        if key not in known:
            raise InputError(
                f"{path}: a selection of logs must name one of {', '.join(known)}, but got "
                f"{key!r}; import the logs apart, or select by run=PATTERN."
            )
        there = {id(run): _fact(run, key) for run in kept}
        kept = [run for run in kept if matches(there[id(run)], wanted)]
        if not kept:
            raise no_match(path, key, wanted, sorted(set(there.values())))
    return kept


def _fact(run: ImportedRun, key: str) -> str:
    if key == "run":
        return run.name
    return str(getattr(run, key) if key in SETTINGS else run.provenance.facts.get(key, ""))
