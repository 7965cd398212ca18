"""Which runs are repetitions of one another, and which of them are meant.

Runs of another model, response length or learning rate are no repetitions, whatever else they
share; a selection by such a fact chooses among them.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from itertools import chain, combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocompute.domain.text import some_of
from isocompute.errors import InputError
from isocompute.importers.runs.grids import Design, is_by_seed, is_one_grid, once, parted
from isocompute.importers.runs.meant import choose, leaving, seeds_twice, shown, without
from isocompute.importers.runs.own_words import divided, own_names
from isocompute.importers.runs.starts import refuse_another_start
from isocompute.importers.values.imported import DESIGN, FROM_NAME, ImportedRun
from isocompute.importers.words.configuration import FACTS, SCALED
from isocompute.importers.words.names import written_in
from isocompute.importers.words.paths import run_name
from isocompute.recipe import RECORDED, TRAINED

# Words of a recipe: with n it may change, between repetitions it may not. A score says its samples.
_RECIPE = tuple(word for word in (*RECORDED, *TRAINED)
                if word not in (*FACTS, "evaluation_samples"))  # fmt: skip
_TRIAL = re.compile(r"(?:^|[-_./ ])(?:smoke|debug|dbg|dry[-_ ]?run|sanity|tmp)(?:[-_ ]?test)?"
                    r"(?=$|[-_./ ])", re.I)  # fmt: skip


def differing(runs: Sequence[ImportedRun]) -> dict[str, dict[str, int]]:
    """Facts in which runs differ that have to share them: name -> value -> how many have it.

    A learning rate may follow the batch: it differs where repetitions of one configuration do, as
    any word of the recipe.
    """
    found: dict[str, dict[str, int]] = {}
    own = own_names(runs)
    for name in (*FACTS, *_RECIPE, *own):
        of_pairs = name not in FACTS or name in SCALED
        if name in own and not _divides(name, runs):
            continue
        if values := parted((run.design[:2] if of_pairs else None, run.provenance.facts[name])
                            for run in runs if name in run.provenance.facts):  # fmt: skip
            found[name] = values[1]
    return found


def _divides(name: str, runs: Sequence[ImportedRun]) -> bool:
    """Whether runs of one B_p and n that a word of their own divides are no repetitions."""
    of = defaultdict[tuple[object, ...], list[tuple[int | None, str]]](list)
    for run in runs:
        if name in run.provenance.facts:
            of[run.design[:2]].append((run.seed, run.provenance.facts[name]))
    return any(map(divided, of.values()))


def require_one_arm(
    runs: Sequence[ImportedRun], asked: Collection[str] = (), problem_set: str | None = None
) -> None:
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
        raise choose(
            f"runs must share their {name.replace('_', ' ')} to be compared or averaged, but have "
            f"{listed}", name, next(iter(values)),
        )  # fmt: skip
    if "run" not in asked:
        refuse_two_sweeps(map(_named, runs))
        refuse_another_start(runs, problem_set)
        _refuse_trials(runs)


def without_trials(
    runs: Sequence[ImportedRun], asked: Collection[str] = ()
) -> tuple[list[ImportedRun], list[str]]:
    """Runs without those that are trials by their end, and by plan or name; a line for each."""
    _, left, *_ = short = _short(runs)
    # a word that the others have, too, tells none of them apart
    by_name = not any(map(_TRIAL.search, left))
    planned = {run.name: run.steps for run in runs if run.steps}
    why = dict[str, str]()
    for name in short.odd if "run" not in asked else ():
        if by_name and _TRIAL.search(name):
            why[name] = "it sounds like a trial"
        elif planned.get(name, np.inf) <= short.ends[name][0]:  # it did not die on the way
            why[name] = f"{planned[name]} updates were all that was planned"
    return [run for run in runs if run.name not in why], [
        f"run {name}: left out: {said}, and no other run has a score by its end; "
        "--where 'run=*' keeps it" for name, said in why.items()
    ]


def own_range(path: str, runs: Sequence[ImportedRun]) -> tuple[float, float]:
    """The range of scores that runs say.

    Raises:
        InputError: they say several, or some say none.
    """
    of = {run.provenance.score_range: run.name for run in reversed(runs)}
    if len(of) > 1:
        said = ", ".join(f"{'none' if r is None else f'{r[0]:g}..{r[1]:g}'} (the first such run: "
                         f"{name!r})" for r, name in of.items())  # fmt: skip
        raise InputError(
            f"{path}: runs must share the range of their scores, but say {said}; choose runs of "
            "one range with --where run=PATTERN, or, if all share it, give it: --range LOW HIGH."
        )
    return next(iter(of), None) or (0.0, 1.0)


class _Short(NamedTuple):
    odd: list[str]
    left: list[str]
    ends: dict[str, tuple[int, float, float]]  # updates, rollouts, those of the first score
    first: float  # rollouts of the others' first score


def _short(runs: Sequence[ImportedRun]) -> _Short:
    """Runs that end after a few updates, before any other's first score."""
    ends = dict[str, tuple[int, float, float]]()
    for run in runs:
        for s in run.series:
            after = s.rollouts_K[s.rollouts_K > 0]
            if s.split == "validation" and after.size:
                ends[run.name] = int(s.step_K[-1]), float(after[-1]), float(after[0])
    planned = {run.name: run.steps or 0 for run in runs}
    few = max((last for last, *_ in ends.values()), default=0) / 10  # a tenth of the longest
    odd = [name for name, (last, *_) in ends.items() if max(last, planned[name]) < few]
    left = [name for name in ends if name not in odd]
    first = min((ends[name][2] for name in left), default=0.0)
    odd = [name for name in odd if ends[name][1] < first] if len(left) > 1 else []
    return _Short(odd, left, ends, first)


def _refuse_trials(runs: Sequence[ImportedRun]) -> None:
    """A run that ends after a few updates, before any other's first score, is compared to none."""
    odd, left, ends, first = _short(runs)
    if odd:
        last, rollouts, _ = ends[odd[0]]
        raise without(
            f"runs of one sweep must reach each other's budgets, but {odd[0]!r} ends after "
            f"{last} updates, {rollouts:,.0f} rollouts, and no other has a score before "
            f"{first:,.0f}; if it was a trial", odd, left,
        )


def unsaid(runs: Sequence[ImportedRun], asked: Collection[str] = ()) -> list[str]:
    """A line for every fact that some runs say and others, which may differ in it, do not.

    And one where words of their names go along with the seed.
    """
    told = []
    for name in (name for name in FACTS if name not in asked):
        of = {run.design[:2] for run in runs if name in run.provenance.facts}
        every = [run for run in runs if name not in SCALED or run.design[:2] in of]
        said = {f for run in every if (f := run.provenance.facts.get(name)) is not None}
        silent = [run.name for run in every if name not in run.provenance.facts]
        if said and silent:
            value = min(said)
            told.append(
                f"{name.replace('_', ' ')} is not known of {len(silent)} of {len(every)} runs (the "
                f"first: {silent[0]!r}), others have {value}; if it differs there, leave them out "
                f"with --where {shlex.quote(f'{name}={value}')}"
            )
    if "run" in asked:
        return told
    return [*told, *along_with_seeds(map(_named, runs)), *seeds_twice(runs)]


_ONE_SWEEP = "runs of one sweep must differ in B_p, n or seed,"


class Named(NamedTuple):
    """A run by its name: what it says of B_p, n and the seed, and what its scores are of.

    `matched`: the part of the name in which a pattern found so many of them. `of_file`: a file's
    name, which several folders may have, and not one that its owner gave to the run.
    """

    name: str
    design: tuple[int | None, int | None, int | None]
    scored: frozenset[tuple[str, str, str]]
    matched: str = ""
    n_matched: int = 0
    of_file: bool = False


_Sweeps = dict[str, dict[Design, list[Named]]]


def _named(run: ImportedRun) -> Named:
    told, _, matched = next((line.partition(f"{FROM_NAME} '") for line in run.provenance.inferred
                             if FROM_NAME in line), ("", "", ""))  # fmt: skip
    return Named(
        run.name, run.design,
        frozenset((s.metric.label, s.problem_set, s.split) for s in run.series), matched[:-1],
        told.count("="), run_name(Path(run.provenance.path)) == run.name,
    )


def refuse_two_sweeps(runs: Iterable[Named], cure: str = "") -> None:
    """Names that tell runs of the same B_p, n and seed apart, all through: two sweeps, not one.

    A file's name that several n have, each in a folder of its own, says what is in the files.

    Args:
        runs: by their names.
        cure: what to do, where runs cannot be selected by name.

    Raises:
        InputError: names the sweeps, and the words that choose one.
    """
    sweeps = _by_words(runs)
    if is_one_grid(map(_designs, sweeps.values()), sweeps):
        return
    several = {name: of for name, of in sweeps.items()
               if max(len({n for _, n, _ in of}), len({s for *_, s in of})) > 1}  # fmt: skip
    twice = [
        (a, b) for a, b in combinations(several, 2)
        if sum(_scored(several[a][design]) & _scored(several[b][design]) != set()
               for design in several[a].keys() & several[b].keys()) > 1
    ]  # fmt: skip
    if twice:
        names = {name: {one.name for its in of.values() for one in its}
                 for name, of in sweeps.items()}  # fmt: skip
        every, count = {*chain(*names.values())}, {
            name: sum(map(len, of.values())) for name, of in sweeps.items()
        }  # fmt: skip
        a, b = sorted(twice[0], key=lambda name: (  # of two as large, that without a word more
            -count[name], -sum(fnmatch(one, name) for one in every)))  # fmt: skip
        rest = every - names[a]
        own, others = leaving(names[a], rest, a, f"!{b}"), leaving(rest, names[a], f"!{a}", b)
        raise InputError(
            f"{_ONE_SWEEP} but {a!r} ({count[a]} runs) and {b!r} ({count[b]}) have the same ones; "
            + (cure or f"choose with {shown(own)}, or all others with {shown(others)}, or keep "
               "all with --where 'run=*'."),
            options=() if cure else own, trial=("--where", "run=*"),
            condition="" if cure else f"{a!r} is your sweep",
        )
    # one that has a name of its own is of another recipe, however few there are
    for a, b in (pair for pair in combinations(sweeps, 2) if {*pair} & several.keys()):
        fewer, more = sorted((a, b), key=lambda name: sum(map(len, sweeps[name].values())))
        if more not in several:
            fewer, more = more, fewer
        same = sorted(
            ((one, other) for of in sweeps[fewer] for its in sweeps[more] if of[:2] == its[:2]
             for one in sweeps[fewer][of] for other in sweeps[more][its]
             if one.scored & other.scored),
            key=lambda pair: pair[0].design[2] != pair[1].design[2],
        )  # fmt: skip
        if same:
            odd = [one.name for of in sweeps[fewer].values() for one in of]
            left = [one.name for name in sweeps if name != fewer
                    for of in sweeps[name].values() for one in of]
            this, like = same[0]
            seed = this.design[2]
            both = f" and seed {seed}" if seed is not None and seed == like.design[2] else ""
            text = (f"{_ONE_SWEEP} and another word of a name may say another recipe, "
                    f"but {this.name!r} is of n = {this.design[1]}{both}, as {like.name!r} is")
            raise InputError(f"{text}; {cure}") if cure else without(text, odd, left)


def _by_words(runs: Iterable[Named]) -> _Sweeps:
    """Runs by what their names say beyond B_p, n and the seed, and by these."""
    sweeps: _Sweeps = defaultdict(dict)
    for run in runs:
        if (rest := _without_settings(run)) != run.name or run.of_file:
            sweeps[once(rest)].setdefault(run.design, []).append(run)
    return sweeps


def _designs(of: Mapping[Design, Sequence[Named]]) -> list[Design]:
    return [one.design for its in of.values() for one in its]


def along_with_seeds(runs: Iterable[Named]) -> list[str]:
    """A line where words of names that may be of a recipe go along with the seed."""
    sweeps = _by_words(runs)
    groups = [_designs(of) for of in sweeps.values()]
    seeds = {seed for its in groups for *_, seed in its}
    if not 1 < len(groups) == len(seeds) or not (
        is_one_grid(groups, sweeps) and is_by_seed(groups)
    ):
        return []
    left = {one.name for its in next(iter(sweeps.values())).values() for one in its}
    odd = {one.name for of in sweeps.values() for its in of.values() for one in its} - left
    return [f"{some_of(map(repr, sweeps), 3)} are of one seed each: the runs count as repetitions; "
            f"if these words make another recipe, choose with {shown(leaving(left, odd))}"]


def _without_settings(run: Named) -> str:
    """A run's name with a star for what it says of B_p, n and the seed, known or still asked."""
    is_matched = bool(run.matched) and run.matched in run.name
    text, found = run.matched if is_matched else run.name, 0
    for name, value in zip(DESIGN, run.design, strict=True):
        said = written_in(text, name)
        if said is not None and value in (None, int(text[slice(*said)])):
            rest = text[said[1] :]
            if name == "seed":  # s0b was done again, as s0-b was
                rest = re.sub(r"^[a-z](?![a-z0-9])", "", rest, flags=re.I)
            text, found = f"{text[: said[0]]}*{rest}", found + 1
    if not is_matched:
        own = rf"(?<=[A-Za-z])0*{run.design[2]}(?![\w.])"  # n4-x1 may say seed 1
        return re.sub(own, "*", text) if found else text
    # a star of the pattern may have found words of the recipe
    rest = "*" if found < run.n_matched else re.sub(r"[A-Za-z]*[-_= .]*\*", "*", text)
    return run.name.replace(run.matched, rest, 1)


def _scored(runs: Iterable[Named]) -> set[tuple[str, str, str]]:
    """What the scores of runs are of: those of other things are no repetitions."""
    return {one for run in runs for one in run.scored}
