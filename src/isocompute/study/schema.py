"""The words of a study file, checked by pydantic; every unknown word gets a did-you-mean."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from isocompute.errors import InputError
from isocompute.recipe import Difficulty, Recipe
from isocompute.study.adaptive import Bounds

# Far beyond any use, and still numbers that SQLite, NumPy and a loop can hold.
Count = Annotated[int, Field(ge=1, le=10**12, strict=True)]
Few = Annotated[int, Field(ge=1, le=10**6, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
# What would be refused otherwise: see `held_out`, `store.made_of` and `file`.
Allowed = Literal["shared_prompts", "changed_files", "pickle", "trust_remote_code", "allow_pickle",
                  "weights_only"]  # fmt: skip


# True is no number, and neither is "10".
Number = Annotated[float, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
_STRICT: dict[Any, Any] = {
    float: Number, int: Whole, float | None: Number | None, int | None: Whole | None,
}  # fmt: skip


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Powers(_Section):
    """Powers of two from `low` to `high`."""

    low: Count
    high: Count

    @model_validator(mode="after")
    def _both_are_powers(self) -> Powers:
        for name, value in (("low", self.low), ("high", self.high)):
            if value & (value - 1):
                below = 1 << (value.bit_length() - 1)
                raise ValueError(
                    f"`{name}` must be a power of two, as all between are, not {value}: write "
                    f"{below} or {2 * below}, or list every value"
                )
        return self


class ProblemFile(_Section):
    """A problem set: `path` (JSONL, Parquet), or a generated one with its options.

    `columns` says where a file holds ours under other names: {prompt: question}.

    What is taken of it, in this order: its held-out or its other problems (`held_out` of them,
    `part`), those of a `band` or `pass_rate` or a `mixture` of bands, `size` of these by `seed`.
    """

    path: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    verifier: str | None = None
    generated: str | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    held_out: Count | None = None
    part: Literal["train", "validation"] | None = None
    band: Literal["easy", "hard", "very_easy", "extremely_hard"] | None = None
    pass_rate: tuple[Number, Number] | None = None
    mixture: Literal["hetero_dual", "hetero_tri"] | dict[str, Number] | None = None
    size: Count | None = None
    seed: Seed = 0

    @model_validator(mode="before")
    @classmethod
    def _a_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_source(self) -> ProblemFile:
        if (self.path is None) == (self.generated is None):
            raise ValueError("exactly one of `path` and `generated` must be given")
        if (self.held_out is None) != (self.part is None):
            raise ValueError("`held_out` and `part` must be given together")
        if self.columns and self.path is None:
            raise ValueError("`columns` needs a `path`: a generated set has no other names")
        if sum(x is not None for x in (self.band, self.pass_rate, self.mixture)) > 1:
            raise ValueError("only one of `band`, `pass_rate` and `mixture` may be given")
        return self


class Problems(_Section):
    """Training set and validation sets of one arm."""

    train: ProblemFile
    validation: dict[Name, ProblemFile] = Field(min_length=1)


class Grid(_Section):
    """Every combination that fits is run, or every split of a batch: B_p = `batch_size` / n."""

    problems_per_batch: Count | list[Count] | Powers | None = None
    batch_size: Count | list[Count] | Powers | None = None
    rollouts_per_problem: Count | list[Count] | Powers
    seeds: Few | list[Seed] = 1
    max_batch: Count | None = None
    max_steps: Count | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Grid:
        if (self.problems_per_batch is None) == (self.batch_size is None):
            raise ValueError("exactly one of `problems_per_batch` and `batch_size` must be given")
        return self


class Evaluation(_Section):
    """The common grid of evaluations."""

    samples: Few = 4
    per_octave: Few = 3
    first: Count = 1024


class LimitsSection(_Section):
    """Per run; see `isocompute.study.Limits`."""

    wall_s: Number | None = None
    memory_gb: Number | None = None
    retries: Whole = 2


class BatchRateSection(_Section):
    """What a rollout costs at one batch; see `isocompute.study.rates.BatchRate`."""

    problems_per_batch: Count
    rollouts_per_problem: Count
    rollouts: Annotated[Number, Field(gt=0)] | None = None
    tokens_per_rollout: Annotated[Number, Field(gt=0)] | None = None
    rollouts_per_gpu_hour: Annotated[Number, Field(gt=0)] | None = None


class RatesSection(_Section):
    """What a rollout costs; see `isocompute.allocation.Rates`."""

    tokens_per_rollout: Annotated[Number, Field(gt=0)] | None = None
    rollouts_per_gpu_hour: Annotated[Number, Field(gt=0)] | None = None
    usd_per_gpu_hour: Annotated[Number, Field(gt=0)] | None = None
    by_batch: list[BatchRateSection] = Field(default_factory=list)
    gpus: Few | None = None
    gpu_hours_per_start: Annotated[Number, Field(ge=0)] | None = None
    evaluations_timed: bool = False


class LrSweepSection(_Section):
    """Where `isocompute lr-sweep` tries the rates, if not at a batch of the grid."""

    rollouts_per_problem: Count
    steps: Count


class AdaptiveSection(_Section):
    """Bounds of an adaptive sweep; see `isocompute.study.adaptive.Bounds`."""

    target: Number | str | None = None
    spend: Number | str | None = None
    chance: Number = Bounds.chance
    improvement: Number = Bounds.improvement
    tolerance: Number = Bounds.tolerance
    metric: str | None = None
    problem_set: str | None = None


# The words of a recipe are the fields of Recipe; their ranges are checked there.
RecipeSection: type[_Section] = create_model(
    "RecipeSection",
    __base__=_Section,
    difficulty=(Difficulty | None, None),
    **{  # type: ignore[call-overload]  # names and types come from the dataclass
        f.name: (_STRICT.get(hint := get_type_hints(Recipe)[f.name], hint), f.default)
        for f in fields(Recipe)
    },
)


class StudyFile(_Section):
    """A whole study file."""

    name: Name | None = None
    engine: Name = "local"
    engine_options: dict[str, JsonValue] = Field(default_factory=dict)
    problems: dict[str, Problems] = Field(min_length=1)
    recipe: RecipeSection | None = None
    recipes: dict[Name, RecipeSection] | None = None
    grid: Grid
    budget: Number | str
    evaluation: Evaluation = Field(default_factory=Evaluation)
    limits: LimitsSection = Field(default_factory=LimitsSection)
    adaptive: AdaptiveSection | None = None
    lr_sweep: LrSweepSection | None = None
    slices: list[Number] = Field(default=[0.125, 0.25, 0.5, 1.0], min_length=1)
    rates: RatesSection = Field(default_factory=RatesSection)
    allow: list[Allowed] = Field(default_factory=list)

    @field_validator("problems", mode="before")
    @classmethod
    def _one_arm(cls, value: Any) -> Any:
        # A single arm needs no name; no unions here, so that messages name one form only.
        single = isinstance(value, dict) and {"train", "validation"} & set(value)
        return {"": value} if single else value

    @field_validator("adaptive", mode="before")
    @classmethod
    def _yes_or_bounds(cls, value: Any) -> Any:
        if not (value is None or isinstance(value, bool | dict)):
            raise ValueError("must be true, false or a mapping of bounds")
        return ({} if value else None) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _recipe_once(self) -> StudyFile:
        if self.recipe is not None and self.recipes is not None:
            raise ValueError("only one of `recipe` and `recipes` may be given")
        return self


def parse_study(content: Any, *, where: str) -> StudyFile:
    """Check the content of a study file.

    Raises:
        InputError: one line: what must hold, what was found, what to do; where several things
            are wrong, the first, and how many more.
    """
    if not isinstance(content, dict):
        raise InputError(
            f"{where} must be a mapping of words to values, but it is "
            f"{type(content).__name__ if content is not None else 'empty'}; start from the example "
            "in docs/sweep.md."
        )
    try:
        return StudyFile.model_validate(content)
    except ValidationError as error:
        raise InputError(_explain(error, where)) from error


def _explain(error: ValidationError, where: str) -> str:
    found = error.errors(include_url=False, include_context=False)
    # An unknown word explains more than what follows from it.
    # Of the branches of a union, the one that went deepest is the one that was meant, or the one
    # whose own rule is broken.
    first = min(found, key=lambda e: (
        e["type"] != "extra_forbidden", -len(e["loc"]), e["type"] != "value_error"))  # fmt: skip
    location = _place(first["loc"])
    others = sorted({_place(one["loc"]) for one in found} - {location, ""})
    more = f" (at fault, too: {', '.join(others[:3])})" if others else ""
    if first["type"] == "extra_forbidden":
        hint = _hint(first["loc"])
        return f"{where} must use known words only, but got {location!r}; {hint}{more}"
    if first["type"] == "missing":
        return f"{where} must have {location!r}, but it is missing; add it.{more}"
    message = _RULES.get(first["type"], first["msg"].removeprefix("Value error, "))
    got = repr(first["input"])
    got = got if len(got) <= 120 else got[:117] + "..."
    spot = f"{location} of {where}" if location else where
    cure = "correct it."
    if "," in got and got.startswith("'") and first["type"].startswith(("int", "float")):
        cure = f"write a list: [{first['input']}]."
    rule = message.replace("Input should be", "must be", 1)
    rule = f" {rule}" if rule.startswith("must") else f": {rule}"
    return f"{spot}{rule}, but got {got}; {cure}{more}"


# What pydantic says of these is in its own words, or of our classes.
_RULES = {
    "dict_type": "must be a section, words with values",
    "model_type": "must be a section, words with values",
    "list_type": "must be a list",
    "too_short": "must hold at least 1 item",
}


def _hint(loc: Sequence[int | str]) -> str:
    """What may be meant by a word that is unknown where it stands."""
    word, there = str(loc[-1]), sorted(_section(loc[:-1]).model_fields)
    close = difflib.get_close_matches(word, there, n=1, cutoff=0.6) or [
        one for one in there
        if one.startswith(word) or word == "".join(part[0] for part in one.split("_"))
    ]  # fmt: skip
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if word in _words():
        return "it belongs elsewhere in the file, docs/sweep.md shows where."
    return f"remove it, or take one of {', '.join(there)}."


def _section(loc: Sequence[int | str]) -> type[BaseModel]:
    """The section that a place of the file lies in; names of arms and sets lead nowhere."""
    here: type[BaseModel] = StudyFile
    for part in loc:
        field = here.model_fields.get(str(part))
        here = _section_in(None if field is None else field.annotation) or here
    return here


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_section_in(one) for one in get_args(annotation))
    return next((one for one in inner if one is not None), None)


def _place(loc: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in loc if part != "" and not _is_branch(part))


def _is_branch(part: int | str) -> bool:
    # pydantic adds the names of union members to the location.
    return isinstance(part, str) and (
        part in ("Powers", "str", "int", "float", "constrained-int") or "[" in part
    )


def _words() -> set[str]:
    sections = (StudyFile, Problems, ProblemFile, Powers, Grid, Evaluation, LimitsSection,
                RatesSection, BatchRateSection, RecipeSection, AdaptiveSection,
                LrSweepSection)  # fmt: skip
    return {name for section in sections for name in section.model_fields}
