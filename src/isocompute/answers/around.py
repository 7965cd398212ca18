"""What goes with a source and its runs: difficulty, recipe, rates, and whose sweep it is.

A plan's score was measured with the settings of those runs, so the plan keeps them. The learning
rate of a tested configuration is the one it was trained with. Of another batch it follows the rule
that the rates of the sweep follow, by default the square root of the batch (arXiv 2603.12151,
appendix A), from the batch nearest to it.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, NamedTuple, get_args

from isocompute.allocation import Allocation, Rates
from isocompute.answers.confounds import exact
from isocompute.answers.prescribe import Question
from isocompute.answers.verdict import FELL
from isocompute.domain import Configuration, Curve, Notice, Work, notice
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.recipe import RECORDED, TRAINED, Difficulty, LearningRateScaling, Recipe
from isocompute.sources.grid import GRID, grid_problem_set
from isocompute.sources.studies import NO_STUDY_YET, study_facts, with_study_rates
from isocompute.store.arms import split_source
from isocompute.trainers import TRAINERS, trainer_settings
from isocompute.trainers.rows import FALLING

# Validation curves of Qwen2.5-7B-Instruct at B_p = 32 (arXiv 2603.12151), fitted when asked.
# No sweep of mixtures was published; mixtures train with the recipe of Hard (appendix A).
PUBLISHED = {name: f"published:qwen2.5-7b-{panel}" for name, panel in
             (("easy", "easy"), ("hard", "hard"), ("mixed", "hard"))}  # fmt: skip
PUBLISHED_MODEL, PUBLISHED_PROBLEMS = "Qwen2.5-7B-Instruct", 6000
GRID_MODEL = "a transformer of 118,000 parameters in a small world"
# How often each problem is sampled moves the noise of a mean, not the mean.
_ALIKE = ("evaluation_samples",)
RATE, REGULARISERS = "learning_rate", ("kl_coef", "entropy_coef")
# Rates in a file are rounded to two digits, so that a rule holds to half of the last one. Half of
# it misses 1.1e-6 beside 1.06e-6, twice of it takes 1e-6 beside 1.1e-6 for one rate.
ROUNDED = 0.05

# Batches so far apart want twice the rate by the square-root rule, which a learning-rate sweep
# tells apart; at half of it it would not, at twice of it sweeps of three n are missed.
APART = 4


def around_source(
    source: str | None, difficulty: Difficulty | None, given: Rates
) -> dict[str, Any]:
    """Recipe, rates and notices that go with a source; raises InputError as `for_difficulty`."""
    healthy = None if difficulty is None else Recipe.for_difficulty(difficulty)
    notices: list[Notice] = []
    published = source is None or source.startswith("published:")
    grid = (source or "").startswith(GRID)
    known = _difficulty_of(source) if source and (published or grid) else None
    chosen = source or PUBLISHED[difficulty or "easy"]
    facts = study_facts(chosen)
    recipe = facts.recipes[0] if len(facts.recipes) == 1 else None
    if len(facts.recipes) > 1:
        notices.append(notice("recipes_mixed"))
    if recipe is not None and healthy is not None:
        # The regularisers follow the difficulty asked for; the learning rate follows the model.
        recipe = recipe.replace(kl_coef=healthy.kl_coef, entropy_coef=healthy.entropy_coef)
    # A recipe of its own says nothing of the difficulty, and needs none.
    resolved = difficulty or known or ("easy" if recipe is None else None)
    if recipe is None and difficulty is None and known is None:
        notices.append(notice("difficulty_assumed"))
    if published:
        unlike = " (a hard set: none was published for mixtures)" if resolved == "mixed" else ""
        model = f"{PUBLISHED_MODEL}, math{unlike}"
        notices.append(notice("law_of_another_model", source=chosen, model=model))
    elif grid:
        notices.append(notice("law_of_another_model", source=chosen, model=GRID_MODEL))
    elif recipe is None:
        notices.append(notice("anchor_assumed", model=PUBLISHED_MODEL))
    rates = with_study_rates(source, given)
    filled = [name for name, rate in asdict(rates).items() if rate != getattr(given, name)]
    return {
        "source": chosen,
        "study": NO_STUDY_YET if published or grid else facts.file,
        "difficulty": resolved,
        "difficulty_given": difficulty is not None,
        "recipe": recipe,
        "rates": rates,
        "rates_from": dict.fromkeys(filled, "study"),
        "trained_on": PUBLISHED_PROBLEMS if published else facts.problems,
        "notices": notices,
    }


def _difficulty_of(source: str) -> Difficulty | None:
    """Of a source that is shipped: its name says it, or its file does."""
    if source.startswith(GRID):
        name = grid_problem_set(split_source(source)[0].removeprefix(GRID))
        return "easy" if name in ("easy", "very_easy") else None if name is None else "hard"
    return "easy" if "easy" in source else "hard" if "hard" in source else None


class Recorded(NamedTuple):
    """A recipe with the words that the runs record, those words, and where the runs disagree.

    `said` has the values of `TRAINED`, of which some are no recipe's.
    """

    recipe: Recipe
    words: tuple[str, ...]
    notices: list[Notice]
    said: dict[str, float | str]


def known_words(d: Mapping[str, Any]) -> list[str] | None:
    """Words of a recipe of which the logs hold a part: keep what they do not; None: all are known.

    Args:
        d: `learning_rate_from`, `recorded` and `asked` of a plan.
    """
    if d.get("learning_rate_from") != "runs":
        return None
    return [*d["recorded"], *d.get("asked", ())]


def response_limit(curves: Sequence[Curve], chosen: Configuration) -> int | None:
    """Tokens at which responses were cut: in the runs of this n, else in most runs."""
    n = chosen.rollouts_per_problem
    own = [c.response_limit for c in curves if c.rollouts_per_problem == n and c.response_limit]
    limits = own or sorted(c.response_limit for c in curves if c.response_limit)
    return max(limits, key=limits.count, default=None)


def recorded_recipe(
    curves: Sequence[Curve], usual: Recipe, chosen: Configuration, *, keep: Sequence[str] = ()
) -> Recorded:
    """The usual recipe, with what the runs of a sweep were trained with in its place.

    Args:
        usual: for what no run records.
        chosen: whose runs decide where runs differ.
        keep: words of `usual` that stay whatever the runs record.
    """
    said = {
        word: {c: _most(values) for c, values in found.items()}
        for word in (*RECORDED, *TRAINED) if word not in keep
        if (found := _by_configuration(curves, word))
    }  # fmt: skip
    said.pop(RATE, None)
    rates: dict[Configuration, Any] = _rates_of_the_best(curves)
    taken: dict[str, Any] = {w: by[_nearest(by, chosen)] for w, by in said.items()}
    if "kl_coef" in taken and "entropy_coef" not in keep:
        taken.setdefault("entropy_coef", 0.0)  # runs that say the one are not given our other
    groups = list[dict[str, Any]]()  # words that stand or fall together
    if rates:
        at = _nearest(rates, chosen)
        groups.append({RATE: rates[at], "base_batch_size": at.batch_size,
                       "learning_rate_scaling": scaling_of(rates) or "sqrt"})  # fmt: skip
    if own := {word: taken.pop(word) for word in REGULARISERS if word in taken}:
        alone = own.get("kl_coef", usual.kl_coef) == 0 and bool(own.get("entropy_coef"))
        groups.append(own | {"allow_entropy_without_kl": alone})
    own_words = {word: taken.pop(word) for word in TRAINED if word in taken}
    groups += [{word: int(value) if word == "warmup_steps" else value}
               for word, value in taken.items()]  # fmt: skip
    recipe, words = usual, list[str]()
    for group in groups:
        with contextlib.suppress(InputError):  # no recipe can have such a value
            recipe = recipe.replace(**group)
            words += [word for word in group if word in (*said, RATE) and word in RECORDED]
    for group in _in_recipe(own_words):
        with contextlib.suppress(InputError):  # it is another algorithm's: kept as it is said
            recipe = recipe.replace(**group)
    notices = list(_differing(curves, said, rates, chosen))
    return Recorded(recipe, (*words, *own_words), notices, own_words)


def _in_recipe(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Words of `TRAINED` as a recipe has them, those together that stand or fall together."""
    fields = Recipe.__dataclass_fields__
    updates = said.get("updates_per_batch")
    if isinstance(updates, float):
        whole = said.get("passes_per_batch") == updates
        yield {"updates_per_batch": int(updates),
               "update_split": "epoch" if whole and updates > 1 else "mini-batch"}  # fmt: skip
    if "importance_cap" in said:
        cap = said["importance_cap"]
        yield {"importance_cap": None if cap == "none" else cap}
    for word, value in said.items():
        if word in fields and word not in ("updates_per_batch", "importance_cap"):
            yield {word: value}


def trained_with(q: Question, chosen: Configuration) -> tuple[Recipe, dict[str, Any], Question]:
    """The recipe of a plan, its keys of the document, and the question without settled notices."""
    if q.recipe is not None:
        return q.recipe, {}, q
    keep = REGULARISERS if q.difficulty_given else ()
    of = recorded_recipe(q.fit.curves, Recipe.for_difficulty(q.difficulty or "easy"), chosen,
                         keep=keep)
    settled = {"anchor_assumed"} if RATE in of.words else set()
    # A score is that of the runs' own recipe: keep it, recorded or not, however hard the problems.
    settled |= {"difficulty_assumed"} if RATE in of.words or "kl_coef" in of.words else set()
    notices = [one for one in q.notices if one.code not in settled]
    if {one.code for one in q.notices} & settled & {"difficulty_assumed"}:
        q = replace(q, difficulty=None)  # nobody said it, and nothing rests on it
    usual = of.recipe.to_dict()
    said: dict[str, Any] = {"recipe": usual, "recorded": list(of.words), "asked": list(keep)}
    if RATE in of.words:
        said["learning_rate_from"] = "runs"
        of_each = _by_configuration(q.fit.curves, RATE)
        rates = of_each[_nearest(of_each, chosen)]
        said["rates_tried"] = sorted(rates, key=_order) if len(rates) > 1 else None
        said["rate_fell"] = any(c.rate_left is not None and c.rate_left < FELL
                                for c in q.fit.curves if c.configuration == chosen)  # fmt: skip
        if said["rate_fell"]:
            of.said.setdefault("lr_schedule", FALLING)
            said["recorded"] = list(dict.fromkeys((*of.words, *of.said)))
        known = known_words(said)
        # What no log holds stays as it was trained: no value of ours belongs there.
        unsaid = [] if known is None else [w for w in (*RECORDED, *TRAINED) if w not in known]
        said["recipe"] = {**usual, **of.said, **dict.fromkeys(unsaid)}
    said["said"] = of.said
    return of.recipe, said, replace(q, notices=[*notices, *of.notices])


def trainer_keys(
    q: Question, a: Allocation, recipe: Recipe, whose: Mapping[str, Any], said: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The keys `trainer...` of a document, with what `trained_with` found of the runs."""
    curves, chosen = q.fit.curves, Configuration(a.problems_per_batch, a.rollouts_per_problem)
    micro = max((c.micro_batch for c in curves if c.micro_batch), default=None)
    known, limit = known_words(whose), response_limit(curves, chosen)
    settings = {
        name: trainer_settings(name, a, recipe, known=known, micro_batch=micro, said=said,
                               response_tokens=limit)
        for name in TRAINERS
    }  # fmt: skip
    return {
        "trainer": {name: dict(words.keys) for name, words in settings.items()},
        "trainer_units": {name: words.units for name, words in settings.items()},
        "trainer_not_set": {name: list(words.not_set) for name, words in settings.items()},
        "trainer_trained": {name: words.trained for name, words in settings.items()},
    }


def scaling_of(rates: Mapping[Configuration, float]) -> LearningRateScaling | None:
    """The rule of the batch that learning rates follow; None where they follow none.

    Of one batch size the rule is not seen: it is taken for the square root.

    >>> scaling_of({Configuration(8, 16): 1e-6, Configuration(8, 64): 2e-6})
    'sqrt'
    >>> scaling_of({Configuration(8, 16): 1e-6, Configuration(8, 64): 1e-6})
    'constant'
    >>> scaling_of({Configuration(8, 16): 1e-6, Configuration(8, 64): 7e-6})
    """
    for rule in get_args(LearningRateScaling):
        one = Recipe(learning_rate_scaling=rule, learning_rate=1.0, base_batch_size=1)
        bases = [rate / one.learning_rate_at(c.batch_size) for c, rate in rates.items()]
        if max(bases) <= min(bases) * (1 + ROUNDED):
            named: LearningRateScaling = rule
            return named
    return None


def _by_configuration(
    curves: Sequence[Curve], word: str
) -> dict[Configuration, Counter[float | str]]:
    """How many runs of each configuration record which value."""
    found: dict[Configuration, Counter[float | str]] = {}
    for c in curves:
        if word in c.recorded:
            found.setdefault(c.configuration, Counter())[c.recorded[word]] += 1
    return found


def _most(values: Counter[float | str]) -> float | str:
    """Of most runs; of equals the smallest."""
    return min(values, key=lambda value: (-values[value], *_order(value)))


def _rates_of_the_best(curves: Sequence[Curve]) -> dict[Configuration, float | str]:
    """The rate of each configuration; of several that of the runs that scored best.

    Each by its best checkpoint, as far as the shortest of them went.
    """
    out: dict[Configuration, float | str] = {}
    for c, values in _by_configuration(curves, RATE).items():
        own = [r for r in curves if r.configuration == c and RATE in r.recorded]
        end = min(float(r.rollouts_K[-1]) for r in own)
        best: dict[float | str, list[float]] = {value: [] for value in values}
        for r in own:
            best[r.recorded[RATE]].append(float(r.score_K[r.rollouts_K <= end].max(initial=0.0)))
        most = max(map(fmean, best.values()))
        out[c] = _most(Counter({v: values[v] for v, found in best.items() if fmean(found) == most}))
    return out


def _order(value: float | str) -> tuple[bool, float, str]:
    is_text = isinstance(value, str)
    return is_text, 0.0 if isinstance(value, str) else value, str(value) * is_text


def _nearest(by: Mapping[Configuration, Any], chosen: Configuration) -> Configuration:
    """The configuration chosen, else that of the nearest batch."""
    if chosen in by:
        return chosen
    return min(by, key=lambda c: (abs(math.log(c.batch_size / chosen.batch_size)), c))


def _differing(
    curves: Sequence[Curve], said: Mapping[str, Mapping[Configuration, float | str]],
    rates: Mapping[Configuration, float], chosen: Configuration,
) -> Iterator[Notice]:  # fmt: skip
    """Words of which the runs record several values, and rates without a rule."""
    of = {word: {c.recorded[word] for c in curves if word in c.recorded}
          for word in said if word not in _ALIKE}  # fmt: skip
    repeated = _by_configuration(curves, RATE)
    if several := [set(found) for found in repeated.values() if len(found) > 1]:
        of[RATE] = set().union(*several)
    differ = {w: values for w, values in of.items() if len(values) > 1}
    if differ:
        taken = {w: by[_nearest(by, chosen)] for w, by in {**said, RATE: rates}.items() if by}
        which = [f"{w} ({_listed(values)})" for w, values in differ.items()]
        where, left = list[str](), [*curves]
        for word in differ:
            if len({c.recorded.get(word) for c in left}) > 1:
                where.append(shlex.quote(f"{word}={exact(taken[word])}"))
                left = [c for c in left if c.recorded.get(word) == taken[word]]
        yield notice("settings_differ", which=which, where=" --where ".join(where),
                     **chosen._asdict())  # fmt: skip
    if rates and scaling_of(rates) is None:
        by_batch = {c.batch_size: rate for c, rate in sorted(rates.items())}
        listed = [f"{rate:g} at {compact(batch)}" for batch, rate in sorted(by_batch.items())]
        yield notice("rates_without_a_rule", which=listed)
    n_of = {c.rollouts_per_problem for c in rates}
    sizes, every = sorted(c.batch_size for c in rates), {v for of in repeated.values() for v in of}
    if len(n_of) > 1 and sizes[-1] >= APART * sizes[0] and len(every) == 1:
        own = [c for c in curves if c.configuration == chosen] or curves
        trains = {chosen: Work(2 * max(float(c.rollouts_K[-1]) for c in own), runs=2)}
        yield notice("one_rate", rate=min(every), low=sizes[0], high=sizes[-1],
                     n=chosen.rollouts_per_problem, trains=trains)  # fmt: skip


def _listed(values: Iterable[float | str]) -> str:
    return ", ".join(value if isinstance(value, str) else f"{value:g}"
                     for value in sorted(values, key=_order))  # fmt: skip
