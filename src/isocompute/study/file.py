"""Study file -> Study: read, overridden, checked, expanded; all before the first rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.allocation import (
    Allocation,
    Rates,
    allocation_grid,
    allocation_splits,
    parse_budget,
    powers_of_two,
)
from isocompute.credentials import secrets_in
from isocompute.domain import Configuration
from isocompute.errors import InputError
from isocompute.problems import (
    ProblemSet,
    load_problems,
    mix_problems,
    select_problems,
    split_problems,
    subset_problems,
)
from isocompute.recipe import Recipe
from isocompute.study.adaptive import Bounds
from isocompute.study.rates import BatchRate, RatesByBatch
from isocompute.study.schema import Grid, Powers, ProblemFile, StudyFile, parse_study
from isocompute.study.spec import RunSpec
from isocompute.study.sweep import DOUBLING, Limits, Study
from isocompute.study.yaml12 import MAX_DEPTH, parse_yaml, read_yaml

Generator = Callable[..., ProblemSet]

MOST_RUNS = 100_000  # of a study
MOST_ROLLOUTS = 10**15  # of a run: exact as a double and in SQLite
MOST_PROBLEMS = 10**7  # that a generator is asked for

_CODE_FLAGS = {"trust_remote_code", "allow_pickle", "weights_only"}
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt")


def load_study(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    generators: Mapping[str, Generator] | None = None,
) -> Study:
    """Read a study file.

    Args:
        path: a YAML 1.2 file. Names in it are data; problem files are found beside it.
        overrides: "key=value" with dotted keys and YAML values, for example
            "grid.seeds=[0,1,2]" or "budget=4e5".
        generators: functions (name, **options) -> ProblemSet, by the word after `generated`.

    Raises:
        InputError: one line with the rule, the values seen and the cure.
    """
    path = Path(path)
    content = read_yaml(path)
    where = repr(path.name)
    for text in overrides:
        content = _override(content, text)
    _refuse_secrets(content, where)
    file = parse_study(content, where=where)
    _refuse_code(file)
    load = _Loader(path.parent, generators or {})
    return _expand(file, content, file.name or path.stem, load)


def _override(content: Any, text: str) -> Any:
    key, separator, value = text.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise InputError(
            f"an override must read key=value, but got {text!r}; write for example budget=4e5."
        )
    if len(parts) > MAX_DEPTH:
        raise InputError(
            f"an override may name at most {MAX_DEPTH} sections within each other, but one that "
            f"begins with {key[:40]!r} names {len(parts):,}; check the key."
        )
    if not isinstance(content, dict):
        return content
    changed: dict[str, Any] = dict(content)
    node = changed
    for depth, part in enumerate(parts[:-1]):
        inner = node.get(part, {})
        if inner is True:  # `adaptive: true` is a section of defaults
            inner = {}
        if inner is None or not isinstance(inner, dict):
            raise InputError(
                f"override {key!r} must name a word inside sections, but "
                f"{'.'.join(parts[: depth + 1])!r} is no section, it is {inner!r}; check the key."
            )
        node[part] = dict(inner)
        node = node[part]
    node[parts[-1]] = parse_yaml(value, where=f"override {key!r}")
    return changed


def _refuse_secrets(content: Any, where: str) -> None:
    for name, named in secrets_in(content):
        spot = repr(name) if named else f"the value of {name!r}"
        raise InputError(
            f"{where} must not hold secrets, but {spot} looks like one; put it into an "
            "environment variable that the engine reads."
        )


def _refuse_code(file: StudyFile) -> None:
    """Remote code and pickles run whatever they hold: only when asked for by name."""
    for key, value in file.engine_options.items():
        risky = key in _CODE_FLAGS and value is not (key == "weights_only")
        if risky and key not in file.allow:
            raise InputError(
                f"`engine_options.{key}` runs code from the model's files and must be allowed by "
                f"name, but got {value!r}; add it to `allow`, or remove it."
            )
        if isinstance(value, str) and value.lower().endswith(_PICKLES) and "pickle" not in (
            file.allow
        ):
            raise InputError(
                f"`engine_options.{key}` must name safetensors, but {value!r} is a pickle, which "
                "may run code when it is read; convert it, or add pickle to `allow`."
            )


class _Loader:
    """Problem sets, each read once."""

    def __init__(self, base: Path, generators: Mapping[str, Generator]) -> None:
        self._base, self._generators = base, generators
        self._sets: dict[str, ProblemSet] = {}
        self._files: dict[str, ProblemSet] = {}
        self._parts: dict[tuple[str, int], tuple[ProblemSet, ProblemSet]] = {}

    def __call__(self, name: str, entry: ProblemFile) -> ProblemSet:
        key = f"{name}\0{entry.model_dump_json()}"
        if key not in self._sets:
            self._sets[key] = self._load(name, entry)
        return self._sets[key]

    def _load(self, name: str, entry: ProblemFile) -> ProblemSet:
        problems = self._generated(name, entry) if entry.path is None else self._file(name, entry)
        rng = np.random.default_rng(entry.seed)
        if entry.held_out is not None:
            # Split before anything is selected, and always in the same way, so that no two sets
            # of opposite parts share a problem, whatever else is asked of them.
            parts = self._parts.get(key := (_whole(name, entry), entry.held_out))
            if parts is None:
                parts = split_problems(problems, entry.held_out, np.random.default_rng(0))
                self._parts[key] = parts
            problems = parts[entry.part == "validation"]
        if entry.mixture is not None:
            problems = mix_problems(problems, entry.mixture, rng, size=entry.size)
        elif (band := entry.band or entry.pass_rate) is not None:
            problems = select_problems(problems, band)
        if entry.size is not None and entry.size != len(problems):
            problems = subset_problems(problems, entry.size, rng)
        return problems.replace(name=name, problems=problems.problems)

    def _file(self, name: str, entry: ProblemFile) -> ProblemSet:
        path, key = self._base / str(entry.path), _whole(name, entry)
        if key not in self._files:  # many sets may be parts of one large file
            given = {} if entry.verifier is None else {"verifier": entry.verifier}
            self._files[key] = load_problems(path, name=name, columns=entry.columns, **given)
        found = self._files[key]
        return found.replace(name=name, problems=found.problems)

    def _generated(self, name: str, entry: ProblemFile) -> ProblemSet:
        kind = str(entry.generated)
        if kind not in self._generators:
            known = ", ".join(sorted(self._generators)) or "none"
            raise InputError(
                f"`generated` must be one of {known}, but got {kind!r}; correct the problem set."
            )
        size = entry.options.get("size")
        if isinstance(size, int | float) and size > MOST_PROBLEMS:
            raise InputError(
                f"generated problems must be at most {MOST_PROBLEMS:,}, but got size={size}; lower "
                "it."
            )
        if "name" in entry.options:
            raise InputError(
                "generated problems take their name from the study file, but the options of "
                f"{name!r} hold `name`; remove it."
            )
        try:
            return self._generators[kind](name, **entry.options)
        except TypeError as error:
            raise InputError(
                f"the options of generated problems {kind!r} must be known to the generator, but "
                f"{error}; correct them."
            ) from error


def _whole(name: str, entry: ProblemFile) -> str:
    """Which problems there are, before any is selected; generated ones go by their set's name."""
    what = {"path", "columns", "verifier", "generated", "options"}
    return entry.model_dump_json(include=what) + (name if entry.path is None else "")


def _expand(file: StudyFile, content: Mapping[str, Any], name: str, load: _Loader) -> Study:
    rates = Rates(**file.rates.model_dump(include={f.name for f in fields(Rates)}))
    rollouts = int(_in_rollouts(rates, file.budget))
    if rollouts > MOST_ROLLOUTS:
        raise InputError(
            f"a budget must be at most {MOST_ROLLOUTS:.0e} rollouts per run, but got "
            f"{rollouts:.3g}; lower it."
        )
    grid = file.grid
    allocations = _allocations(grid, rollouts)
    if not allocations:
        raise _too_small(grid, rollouts)
    _refuse_many(file, len(allocations))
    left_out = _left_out(grid, allocations)
    sections = {"": file.recipe} if file.recipes is None else dict(file.recipes)
    recipes = {name: _recipe(section) for name, section in sections.items()}
    runs = [
        RunSpec(
            engine=file.engine, engine_options=dict(file.engine_options), allocation=allocation,
            recipe=recipe, train=load("train", arm.train),
            validation={n: load(n, s) for n, s in arm.validation.items()}, seed=seed,
            evaluation_samples=file.evaluation.samples,
            evaluations_per_octave=file.evaluation.per_octave,
            first_evaluation=file.evaluation.first,
            arm={k: v for k, v in (("problems", arm_name), ("recipe", recipe_name)) if v},
        )
        for seed in _seeds(grid)
        for arm_name, arm in file.problems.items()
        for recipe_name, recipe in recipes.items()
        for allocation in allocations
    ]  # fmt: skip
    slices = tuple(file.slices)
    if file.adaptive is not None and "slices" not in file.model_fields_set:
        slices = DOUBLING
    return Study(name=name, runs=runs, limits=Limits(**file.limits.model_dump()), slices=slices,
                 rates=rates, rates_by_batch=_rates_by_batch(file),
                 adaptive=_bounds(file, rates, rollouts),
                 rates_at=_rates_at(file, allocations[0]), left_out=left_out,
                 source=content)  # fmt: skip


def _too_small(grid: Grid, rollouts: int) -> InputError:
    """Nothing of the grid fits."""
    least = min(_numbers(grid.rollouts_per_problem))
    batch = (
        min(_numbers(grid.batch_size)) if grid.batch_size is not None
        else least * min(_numbers(grid.problems_per_batch or [1]))
    )  # fmt: skip
    limit = "" if grid.max_batch is None else f", max_batch {grid.max_batch:,}"
    return InputError(
        f"at least one batch must fit into the budget{limit and ' and max_batch'}, but the "
        f"smallest of the grid has {batch:,} rollouts, the budget {rollouts:,}{limit}; raise it, "
        "or ask for smaller batches."
    )


def _rates_by_batch(file: StudyFile) -> RatesByBatch:
    said = file.rates
    return RatesByBatch(
        known=[BatchRate(**one.model_dump()) for one in said.by_batch],
        gpus=said.gpus, gpu_hours_per_start=said.gpu_hours_per_start,
        evaluations_timed=said.evaluations_timed,
    )  # fmt: skip


def _allocations(grid: Grid, rollouts: int) -> list[Allocation]:
    limits: Any = {
        "rollouts": rollouts, "max_batch_size": grid.max_batch, "max_steps": grid.max_steps,
    }  # fmt: skip
    rollouts_per_problem = _numbers(grid.rollouts_per_problem)
    if grid.batch_size is None:
        assert grid.problems_per_batch is not None  # the schema asks for one of the two
        return allocation_grid(_numbers(grid.problems_per_batch), rollouts_per_problem, **limits)
    return allocation_splits(_numbers(grid.batch_size), rollouts_per_problem, **limits)


def _in_rollouts(rates: Rates, budget: float | str) -> float:
    """A budget of the file; its rates stand in the file, too.

    Raises:
        InputError: no budget, or one in a unit without a rate.
    """
    asked = parse_budget(str(budget))
    missing = [f"`rates.{name}`" for name in asked.needs if getattr(rates, name) is None]
    if missing:
        raise InputError(
            f"a budget of {budget} must be counted in rollouts, but the study file has no "
            f"{' and no '.join(missing)}; add it, or give the budget in rollouts."
        )
    return float(rates.rollouts(asked))


def _left_out(grid: Grid, kept: Sequence[Allocation]) -> tuple[Configuration, ...]:
    """Pairs of the grid whose batch fits into no run."""
    n, batches = _numbers(grid.rollouts_per_problem), grid.batch_size
    asked = (
        [(b_p, m) for b_p in _numbers(grid.problems_per_batch or []) for m in n]
        if batches is None else [(batch // m, m) for batch in _numbers(batches) for m in n]
    )  # fmt: skip
    there = {(a.problems_per_batch, a.rollouts_per_problem) for a in kept}
    return tuple(Configuration(*pair) for pair in asked if pair not in there)


def _bounds(file: StudyFile, rates: Rates, rollouts: int) -> Bounds | None:
    if file.adaptive is None:
        return None
    given = file.adaptive.model_dump()
    for name in ("target", "spend"):
        if given[name] is not None:
            given[name] = _in_rollouts(rates, given[name])
    if given["target"] is None:
        given["target"] = float(rollouts)
    return Bounds(**given)


def _rates_at(file: StudyFile, first: Allocation) -> Allocation | None:
    if file.lr_sweep is None:
        return None
    return Allocation(
        problems_per_batch=first.problems_per_batch, **file.lr_sweep.model_dump()
    )


def _refuse_many(file: StudyFile, allocations: int) -> None:
    seeds = file.grid.seeds if isinstance(file.grid.seeds, int) else len(file.grid.seeds)
    runs = seeds * allocations * len(file.problems) * len(file.recipes or [""])
    if runs > MOST_RUNS:
        raise InputError(
            f"a study may have at most {MOST_RUNS:,} runs, but the grid asks for {runs:,} "
            f"({seeds:,} seeds); ask for fewer."
        )


def _recipe(section: Any) -> Recipe:
    if section is None:
        return Recipe()
    given = {n: getattr(section, n) for n in section.model_fields_set if n != "difficulty"}
    known = {f.name for f in fields(Recipe)}
    given = {n: v for n, v in given.items() if n in known}
    if section.difficulty is None:
        return Recipe(**given)
    return Recipe.for_difficulty(section.difficulty, **given)


def _numbers(values: int | list[int] | Powers) -> list[int]:
    if isinstance(values, int):
        return [values]
    if isinstance(values, Powers):
        return powers_of_two(values.low, values.high)
    return _distinct(values)


def _seeds(grid: Grid) -> list[int]:
    return list(range(grid.seeds)) if isinstance(grid.seeds, int) else _distinct(grid.seeds)


def _distinct(values: list[int]) -> list[int]:
    if not values or len(set(values)) != len(values):
        raise InputError(
            f"a list of the grid must hold at least one number, and each once, but got {values}; "
            "correct the grid."
        )
    return sorted(values)
