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
from isocompute.importers.runs.meant import choose, leaving, seeds_twice, shown
from isocompute.importers.values.imported import DESIGN, FROM_NAME, FloatArray, ImportedRun
from isocompute.importers.words.configuration import FACTS, SCALED
from isocompute.importers.words.names import written_in
from isocompute.importers.words.paths import run_name
from isocompute.recipe import RECORDED, TRAINED
from isocompute.store.arms import matches

# Words of a recipe: with n it may change, between repetitions it may not. A score says its samples.
_RECIPE = tuple(word for word in (*RECORDED, *TRAINED)
                if word not in (*FACTS, "evaluation_samples"))  # fmt: skip
# Standard deviations of noise between what the same model scores twice: at half seeds that learn
# fast before their first evaluation are taken for sequels, at twice sequels of noisy runs are not.
NOT_NOISE = 6.0
_ENOUGH = 3  # scores that tell a run's noise
_TRIAL = re.compile(r"(?:^|[-_./ ])(?:smoke|debug|dbg|dry[-_ ]?run|sanity|tmp)(?:[-_ ]?test)?"
                    r"(?=$|[-_./ ])", re.I)  # fmt: skip


def differing(runs: Sequence[ImportedRun]) -> dict[str, dict[str, int]]:
    """Facts in which runs differ that have to share them: name -> value -> how many have it.

    A learning rate may follow the batch: it differs where repetitions of one configuration do, as
    any word of the recipe.
    """
    found: dict[str, dict[str, int]] = {}
    for name in (*FACTS, *_RECIPE):
        of_pairs = name in (*SCALED, *_RECIPE)
        if values := parted((run.design[:2] if of_pairs else None, run.provenance.facts[name])
                            for run in runs if name in run.provenance.facts):  # fmt: skip
            found[name] = values[1]
    return found


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
        _refuse_another_start(runs, problem_set)
        _refuse_trials(runs)


def noise_of(*scores: FloatArray) -> float:
    """The standard deviation of noise in the scores of runs, by how their curves bend."""
    bends = np.concatenate([np.diff(score_K, 2) for score_K in scores])
    return float(np.median(np.abs(bends))) / (0.6745 * 6**0.5)


def _refuse_another_start(runs: Sequence[ImportedRun], problem_set: str | None) -> None:
    """All runs of a sweep begin with one model: it scores alike before training, but for noise."""
    starts: dict[tuple[str, str, str], _Starts] = defaultdict(dict)
    for i, run in enumerate(runs):
        for s in run.series:
            if s.split == "validation" and s.step_K.size > _ENOUGH and s.step_K[0] == 0 and (
                problem_set is None or matches(s.problem_set, problem_set)
            ):
                first, last = float(s.score_K[0]), float(s.score_K[-1])
                key = s.metric.kind, s.metric.variable, s.problem_set
                one = _Start(i, run.name, run.design)
                starts[key][one] = first, abs(last - first), noise_of(s.score_K)
    # what another model scores, its mean tells first
    means = {key: of for key, of in starts.items() if key[0] == "avg"} or starts
    apart = {key: groups for key, of in means.items() if (groups := _apart(of)) is not None}
    if not apart:
        return
    (key, (odd, left)), of = next(iter(apart.items())), means[next(iter(apart))]
    other, gap = {name for *_, name in apart}, abs(of[odd[0]][0] - of[left[0]][0])
    alike = [of_set[2] for of_set, its in means.items()  # at nothing all models are alike
             if of_set[2] not in other and len(its) >= len(of)
             and min(first for first, *_ in its.values()) > gap / 2]
    text = (
        f"runs of one sweep must begin with one model, but {odd[0].name!r} scores "
        f"{of[odd[0]][0]:.3g} before training where {left[0].name!r} scores {of[left[0]][0]:.3g}"
    )
    if alike:  # one model, and one set whose problems are others in some runs: "all"
        raise InputError(
            f"{text} on {key[2]!r}; all begin alike on {alike[0]!r}: where {key[2]!r} holds other "
            f"problems in some runs, choose that one with --problem-set {shlex.quote(alike[0])}, "
            "or keep all with --where 'run=*'.",
            options=("--problem-set", alike[0]), trial=("--problem-set", alike[0]),
            condition=f"{key[2]!r} holds other problems in some runs",
        )
    raise _without(text, [one.name for one in odd], [one.name for one in left])


class _Start(NamedTuple):
    """A run by its place and its name, which others may have, too."""

    at: int
    name: str
    design: Design


_Starts = dict[_Start, tuple[float, float, float]]  # the first score, the gain, the noise, by run


def _apart(of: _Starts) -> tuple[list[_Start], list[_Start]] | None:
    """The fewer and the more of runs that begin apart from each other; None where they do not."""
    gain, noise = (float(np.median([one[i] for one in of.values()])) for i in (1, 2))
    order = sorted(of, key=lambda one: of[one][0])
    gaps = np.diff([of[one][0] for one in order])
    if not gaps.size:
        return None
    at = int(gaps.argmax()) + 1
    # Half of what training brings is no noise of an evaluation, but another model.
    least = max(NOT_NOISE * noise, gain / 2)
    if {run.design for run in order[:at]} & {run.design for run in order[at:]} and (
        2 <= at <= len(order) - 2
    ):  # what was done twice begins alike on either side: another grader, prompt or set
        least = min(least, NOT_NOISE * max(noise, *np.delete(gaps, at - 1)))
    if gaps[at - 1] <= least:
        return None
    odd, left = sorted((order[:at], order[at:]), key=len)
    return odd, left


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
        raise _without(
            f"runs of one sweep must reach each other's budgets, but {odd[0]!r} ends after "
            f"{last} updates, {rollouts:,.0f} rollouts, and no other has a score before "
            f"{first:,.0f}; if it was a trial", odd, left,
        )


def _without(text: str, odd: Sequence[str], left: Sequence[str]) -> InputError:
    """A refusal with the words that leave some runs out, or keep all."""
    words, count = leaving(left, odd), len({*odd})
    which = "it" if count == 1 else f"the {count} like it"
    return InputError(
        f"{text}{',' if '; if ' in text else ';'} leave {which} out with {shown(words)}, "
        "or keep all with --where 'run=*'.",
        options=words, trial=("--where", "run=*"), condition="the others are your sweep",
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
    several = {name: of for name, of in sweeps.items() if len({n for _, n, _ in of}) > 1}
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
            raise InputError(f"{text}; {cure}") if cure else _without(text, odd, left)


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
    """A run's name with a star for what it says of B_p, n and the seed."""
    is_matched = bool(run.matched) and run.matched in run.name
    text, found = run.matched if is_matched else run.name, 0
    for name, value in zip(DESIGN, run.design, strict=True):
        said = written_in(text, name)
        if said is not None and int(text[slice(*said)]) == value:
            text, found = f"{text[: said[0]]}*{text[said[1] :]}", found + 1
    if not is_matched:
        own = rf"(?<=[A-Za-z])0*{run.design[2]}(?![\w.])"  # n4-x1 may say seed 1
        return re.sub(own, "*", text) if found else text
    # a star of the pattern may have found words of the recipe
    rest = "*" if found < run.n_matched else re.sub(r"[A-Za-z]*[-_= .]*\*", "*", text)
    return run.name.replace(run.matched, rest, 1)


def _scored(runs: Iterable[Named]) -> set[tuple[str, str, str]]:
    """What the scores of runs are of: those of other things are no repetitions."""
    return {one for run in runs for one in run.scored}
