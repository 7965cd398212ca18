"""From a source and a budget to one allocation, with everything that limits its meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, get_args

from isocompute.allocation import Allocation, Budget, Rates
from isocompute.answers.backtest import simple_rules
from isocompute.answers.best import choice, interval
from isocompute.answers.fit import Fit, Fix, Select, fit_sweep
from isocompute.answers.paper import printed_law
from isocompute.answers.prescribe import MIN_STEPS, Prescription, Question, prescribe, tested_n
from isocompute.answers.verdict import verdict_of
from isocompute.answers.words import advice_lines, run_next
from isocompute.domain import Configuration, Notice, documented, notice, ordered
from isocompute.domain.text import compact, plain
from isocompute.errors import InputError, RefusalError
from isocompute.recipe import Difficulty, Recipe
from isocompute.sources.studies import study_recipes, unhealthy, with_study_rates
from isocompute.trainers import TRAINERS, trainer_settings

if TYPE_CHECKING:
    from isocompute.importers import Settings

__all__ = ["Plan", "advice_lines", "plan_budget", "plan_fixed_batch", "plan_from_source"]

# Validation curves of Qwen2.5-7B-Instruct at B_p = 32 (arXiv 2603.12151), fitted when asked.
# No sweep of mixtures was published; mixtures train with the recipe of Hard (appendix A).
PUBLISHED = {
    "easy": "published:qwen2.5-7b-easy",
    "hard": "published:qwen2.5-7b-hard",
    "mixed": "published:qwen2.5-7b-hard",
}
PUBLISHED_MODEL = "Qwen2.5-7B-Instruct"
NOTICEABLE_LOG10 = 0.01  # decades outside the data that are not worth a word
# Of several cautions the one reason that is named: these first, those only where there is none.
_WEIGHTIEST = ("one_or_two_n", "law_of_another_model", "extrapolated", "split_untested")
_LIGHTEST = ("bp_untested", "anchor_assumed")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A prescription, or the reason why there is none.

    Args:
        allocation: (B_p, n, M); None in a refusal.
        recipe: with its anchor learning rate.
        document: the `plan --json` contract of docs/contracts.md.
        refusal: None, or why the data cannot carry an answer.
    """

    allocation: Allocation | None
    recipe: Recipe
    document: dict[str, Any] = field(repr=False)
    refusal: RefusalError | None = None

    @property
    def learning_rate(self) -> float | None:
        """After warm-up, scaled to the plan's batch; None in a refusal."""
        if self.allocation is None:
            return None
        return self.recipe.learning_rate_at(self.allocation.batch_size)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What surrounds the question.

    Args:
        source: what was fitted, for the record.
        recipe: its learning rate is the anchor; None: that of `difficulty`.
        difficulty: of the problem set.
        rates: what a rollout costs; missing tokens_per_rollout are measured on the sweep.
        rates_from: by name of a rate "given", "study" or "sweep"; missing: given.
        current: the setting used today, to say what the plan gains: (B_p, n), or n alone.
        problems: D, problems in the training set: no batch holds more, and passes are counted.
        unhealthy: (B_p, n) -> health rules that runs failed, besides those in the curves.
        notices: to carry into the document (for example, whose sweep it is).
    """

    source: str = ""
    recipe: Recipe | None = None
    difficulty: Difficulty = "easy"
    rates: Rates = field(default_factory=Rates)
    rates_from: Mapping[str, str] = field(default_factory=dict)
    current: Configuration | int | None = None
    problems: int | None = None
    unhealthy: Mapping[Configuration, str] = field(default_factory=dict)
    notices: Sequence[Notice] = ()

    def __post_init__(self) -> None:
        sizes = {"problems": self.problems}
        if self.current is not None:
            pair = (1, self.current) if isinstance(self.current, int) else tuple(self.current)
            sizes |= dict(zip(("current B_p", "current n"), pair, strict=True))
        _require_positive(**sizes)

    @property
    def trained_with(self) -> Recipe:
        """The recipe, or that of the difficulty."""
        return self.recipe or Recipe.for_difficulty(self.difficulty)


def plan_budget(
    fit: Fit,
    budget: Budget | float,
    *,
    max_batch_size: int | None = None,
    min_steps: int = MIN_STEPS,
    **setting: Any,
) -> Plan:
    """How to spend a budget: B_p * n * M never exceeds it.

    Args:
        fit: of the sweep.
        budget: rollouts, or a `Budget` in tokens, GPU-hours or money.
        max_batch_size: rollouts per batch that the hardware holds.
        min_steps: fewest updates worth running.
        setting: see `Setting`.

    Raises:
        InputError: a limit below 1, a budget that needs a rate nobody gave, or limits that leave
            no configuration.
    """
    _require_positive(max_batch_size=max_batch_size, min_steps=min_steps)
    around, tokens = _measured(fit, Setting(**setting))
    amount = budget if isinstance(budget, Budget) else Budget(amount=float(budget), unit="rollouts")
    question = Question(
        fit=fit,
        x=_in_unit(fit, amount, around.rates),
        tokens=tokens,
        tokens_per_rollout=around.rates.tokens_per_rollout,
        max_batch_size=max_batch_size,
        min_steps=min_steps,
        problems=around.problems,
        unhealthy={**fit.unhealthy, **around.unhealthy},
    )
    return _answer(question, around)


def plan_fixed_batch(fit: Fit, batch_size: int, steps: int, **setting: Any) -> Plan:
    """How to split a fixed batch B into (B_p, n) when M steps will be run.

    n is that of the largest expected score at C = B * M among the splits B_p = B / n of the n
    tested; B_p * n never exceeds B.

    Args:
        fit: of the sweep.
        batch_size: B, in rollouts.
        steps: M.
        setting: see `Setting`.

    Raises:
        InputError: B or M below 1, or a batch below the smallest n tested.
    """
    _require_positive(batch_size=batch_size, steps=steps)
    around, tokens = _measured(fit, Setting(**setting))
    smallest = tested_n(fit)[0]
    if batch_size < smallest:
        raise InputError(
            f"a batch must hold one problem of the smallest n tested ({smallest} rollouts), but "
            f"got batch_size={batch_size}; raise it, or sweep smaller n."
        )
    if len([c for c in fit.configurations if c.batch_size == batch_size]) < 2:
        missing = notice("fixed_batch_law_missing", batch=batch_size)
        around = replace(around, notices=[*around.notices, missing])
    budget = Budget(amount=float(batch_size * steps), unit="rollouts")
    question = Question(
        fit=fit,
        x=_in_unit(fit, budget, around.rates),
        tokens=tokens,
        tokens_per_rollout=around.rates.tokens_per_rollout,
        min_steps=1,
        problems=around.problems,
        batch_size=batch_size,
        steps=steps,
    )
    return _answer(question, around)


def plan_from_source(
    source: str | None = None,
    *,
    budget: Budget | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    difficulty: Difficulty | None = None,
    metric: str | None = None,
    problem_set: str | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    select: Select = "best",
    fix: Fix | None = None,
    joint: bool = False,
    unit: str = "rollouts",
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
    rates: Rates | None = None,
    max_batch_size: int | None = None,
    min_steps: int | None = None,
    current: Configuration | int | None = None,
    problems: int | None = None,
    fit: Fit | None = None,
) -> Plan:
    """Fit a source and plan with it.

    Args:
        source: a SOURCE; None: the published sweep of that difficulty.
        budget: what may be spent; or
        batch_size, steps: B and M of a fixed batch, whose split is asked for.
        difficulty: of the problem set to be trained on; None: as the source's name says.
        metric, problem_set: which score, on which set; None: the only one there is.
        score_range: of the scores in a tidy file.
        select, fix, joint, unit: see `fit_sweep`; of `fit`, as they were.
        settings: what a log does not say.
        say: hears what was left out of a log.
        rates: what a rollout costs; what is missing comes from the source's study file.
        max_batch_size, min_steps: limits, see `plan_budget`.
        current, problems: see `Setting`.
        fit: of the source, where it is at hand already.

    Raises:
        InputError: not exactly one of budget and fixed batch; an unknown difficulty or source.
    """
    fixed_batch = batch_size is not None or steps is not None
    if fixed_batch == (budget is not None):
        raise InputError(
            "a plan needs either a budget or a batch size with steps, but got "
            f"{'both' if fixed_batch else 'neither'}; give one of the two."
        )
    if fixed_batch and (max_batch_size is not None or min_steps is not None):
        raise InputError(
            "limits belong to a budget, but got max_batch or min_steps with a fixed batch; "
            "leave them out."
        )
    if budget is None and (batch_size is None or steps is None):
        raise InputError(
            f"a fixed batch needs both batch size and steps, but got batch_size={batch_size}, "
            f"steps={steps}; add the other."
        )
    around = _setting_of(source, difficulty, rates or Rates())
    around = replace(around, current=current, problems=problems)
    if fit is None:
        from isocompute.sources import load_with_train

        loaded = load_with_train(
            [around.source], metric=metric, problem_set=problem_set, score_range=score_range,
            settings=settings, say=say,
        )  # fmt: skip
        splits = {c.configuration for c in loaded.curves if c.configuration.batch_size == batch_size}
        if fix is None and not joint and len(splits) > 1 and batch_size is not None:
            fix = ("batch_size", batch_size)
        try:
            fit = fit_sweep(
                loaded.curves, fix=fix, joint=joint, unit=unit, select=select,
                sources=[around.source], train=loaded.train,
            )  # fmt: skip
        except RefusalError as refusal:
            amount = budget.amount if budget and budget.unit == "rollouts" else None
            return _refused(refusal, around, rollouts=amount)
    given = {f.name: getattr(around, f.name) for f in fields(around)}
    if batch_size is not None and steps is not None:
        return plan_fixed_batch(fit, batch_size, steps, **given)
    assert budget is not None
    limit = MIN_STEPS if min_steps is None else min_steps
    return plan_budget(fit, budget, max_batch_size=max_batch_size, min_steps=limit, **given)


def _setting_of(source: str | None, difficulty: Difficulty | None, given: Rates) -> Setting:
    """Recipe, rates, failed runs and notices that go with a source."""
    if difficulty is not None and difficulty not in get_args(Difficulty):
        raise InputError(
            f"difficulty must be one of easy, hard, mixed, but got {difficulty!r}; "
            "measure it with `isocompute difficulty`."
        )
    notices: list[Notice] = []
    named = _difficulty_in_name(source)
    recipes = [] if source is None else study_recipes(source)
    recipe = recipes[0] if len(recipes) == 1 else None
    if len(recipes) > 1:
        notices.append(notice("recipes_mixed"))
    resolved = difficulty or named or "easy"
    if recipe is not None and difficulty is not None:
        # The regularisers follow the difficulty asked for; the learning rate follows the model.
        regularised = Recipe.for_difficulty(difficulty)
        recipe = recipe.replace(kl_coef=regularised.kl_coef, entropy_coef=regularised.entropy_coef)
    if recipe is None and difficulty is None and named is None:
        notices.append(notice("difficulty_assumed"))
    chosen = source or PUBLISHED[resolved]
    if chosen.startswith("published:"):
        whose = f"{PUBLISHED_MODEL}, math"
        whose += " (a hard set: none was published for mixtures)" * (resolved == "mixed")
        notices.append(notice("law_of_another_model", source=chosen, model=whose))
    elif recipe is None:
        notices.append(notice("anchor_assumed", model=PUBLISHED_MODEL))
    rates = with_study_rates(source, given)
    filled = [f.name for f in fields(rates) if getattr(rates, f.name) != getattr(given, f.name)]
    return Setting(
        source=chosen,
        recipe=recipe,
        difficulty=resolved,
        rates=rates,
        rates_from=dict.fromkeys(filled, "study"),
        unhealthy={} if source is None else unhealthy(source),
        notices=notices,
    )


def _difficulty_in_name(source: str | None) -> Difficulty | None:
    """Published sources carry the difficulty in their name."""
    if source is None or not source.startswith("published:"):
        return None
    return "easy" if "easy" in source else "hard" if "hard" in source else None


def _require_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or value < 1):
            raise InputError(
                f"`{name} >= 1` must hold, but got {value!r}; raise it or leave it out."
            )


def _measured(fit: Fit, around: Setting) -> tuple[Setting, dict[Configuration, float]]:
    """Tokens per rollout where nobody gave them: of the sweep, and of each configuration."""
    if around.rates.tokens_per_rollout is not None:
        return around, {}
    seen: dict[Configuration, list[float]] = {}
    for c in fit.curves:
        if c.tokens_K is not None and c.rollouts_K[-1] > 0 and math.isfinite(c.tokens_K[-1]):
            each = float(c.tokens_K[-1] / c.rollouts_K[-1])
            seen.setdefault(c.configuration, []).append(each)
    if not seen:
        return around, {}
    median = _median(one for some in seen.values() for one in some)
    return replace(
        around,
        rates=replace(around.rates, tokens_per_rollout=median),
        rates_from={**around.rates_from, "tokens_per_rollout": "sweep"},
        notices=[*around.notices, notice("tokens_measured", tokens=median)],
    ), {c: _median(some) for c, some in seen.items()}


def _median(values: Iterable[float]) -> float:
    row = sorted(values)
    return row[len(row) // 2]


def _in_unit(fit: Fit, budget: Budget, rates: Rates) -> float:
    """The budget in the unit of the fit."""
    if fit.unit != "tokens":
        return rates.rollouts(budget)
    if budget.unit == "tokens":
        return budget.amount
    return rates.rollouts(budget) * float(rates.tokens_per_rollout or 1.0)


def _answer(q: Question, around: Setting) -> Plan:
    """The plan of a question, or the refusal of a fit that failed."""
    fit, recipe = q.fit, around.trained_with
    if fit.verdict.level == "stop":
        stops = [one for one in fit.notices if one.level == "stop"]
        refusal = RefusalError(f"{stops[0].text} {stops[0].remedy}", [s.remedy for s in stops])
        return _refused(refusal, around, rollouts=_nominal(q), fit=fit)
    found = prescribe(q)
    chosen, score_D = found.configuration, found.score_D
    a = Allocation(**chosen._asdict(), steps=q.steps_of(chosen))
    rates = replace(around.rates, tokens_per_rollout=q.tokens_of(chosen))
    distance, times = _distance(q)
    own = [*around.notices, *found.notices]
    if distance >= NOTICEABLE_LOG10:
        side = "above" if q.x > fit.support[1] else "below"
        own.append(notice("extrapolated", times=times, side=side))
    passes = None
    if around.problems is not None:
        passes = a.steps * a.problems_per_batch / around.problems
        seen = max(float(c.rollouts_K[-1]) / c.rollouts_per_problem for c in fit.curves)
        if passes > max(1.0, seen / around.problems):
            own.append(notice("passes_over_data", passes=passes, problems=around.problems))
    notices = _by_weight([*own, *fit.notices])
    verdict = verdict_of(notices)
    trainers = {name: trainer_settings(name, a, recipe) for name in TRAINERS}
    printed = printed_law(around.source.split("[")[0])
    at_most = min(q.rollouts(chosen), max(float(c.rollouts_K[-1]) for c in fit.curves))
    document = {
        **_empty(around, fit),
        "budget_rollouts": q.rollouts(chosen) if q.steps is None else float(a.rollouts),
        **chosen._asdict(),
        "steps": a.steps,
        "batch_size": a.batch_size,
        "rollouts": a.rollouts,
        "chosen_by": "expected_score" if found.tested else "neighbours",
        "rollouts_per_problem_law": found.best_n,
        "rollouts_per_problem_interval": found.interval,
        "confidence_set": found.confidence_set,
        "as_good": found.as_good,
        "expected_regret": found.expected_regret,
        "predicted_score": float(score_D.mean()),
        "predicted_score_interval": interval(score_D, fit.level),
        "gain": _gain(q, around, found, rates),
        "rules": _rules(q, found),
        "learning_rate": recipe.learning_rate_at(a.batch_size),
        "passes_over_data": passes,
        "cost": {**rates.cost(a.rollouts), "source": _rate_sources(rates, around.rates_from)},
        "extrapolation_log10": distance,
        "printed_law": printed and {
            "source": printed.source,
            "rollouts_per_problem": float(printed.n_at(q.rollouts(chosen))),
            "plateau": printed.plateau,
            "sentences": printed.sentences(q.rollouts(chosen)),
        },
        "verdict": verdict._asdict(),
        "trainer": {name: dict(words.keys) for name, words in trainers.items()},
        "trainer_units": {name: words.units for name, words in trainers.items()},
        "run_next": run_next(notices, verdict.reason, chosen, found.settles, at_most),
        **documented(notices),
    }  # fmt: skip
    return Plan(allocation=a, recipe=recipe, document=plain(document))


def _by_weight(notices: Iterable[Notice]) -> list[Notice]:
    """By level, and within a level what bears most on the choice first."""
    return ordered(
        sorted(notices, key=lambda one: (one.code in _LIGHTEST) - (one.code in _WEIGHTIEST))
    )


def _nominal(q: Question) -> float:
    each = q.tokens_per_rollout if q.fit.unit == "tokens" else 1.0
    return q.x / (each or 1.0)


def _distance(q: Question) -> tuple[float, float]:
    """Decades between the budget and those that were compared, and the factor."""
    low, high = q.fit.support
    times = max(1.0, q.x / high, low / q.x)
    return math.log10(times), times


def _gain(
    q: Question, around: Setting, found: Prescription, rates: Rates
) -> dict[str, Any] | None:
    """Score of the choice less that of today's setting at the same budget, in the same draws."""
    if around.current is None:
        return None
    b_p, fit = found.configuration.problems_per_batch, q.fit
    if isinstance(around.current, int):
        n = around.current
        here = [c.problems_per_batch for c in fit.configurations if c.rollouts_per_problem == n]
        if q.batch_size is not None:
            b_p = max(q.batch_size // n, 1)
        elif here and b_p not in here:
            b_p = fit.stable_problems_per_batch(n, q.x, q.unhealthy)[0]
        now = Configuration(b_p, n)
    else:
        now = Configuration(*around.current)
    steps = q.steps_of(now)
    if steps < 1:
        raise InputError(
            f"the current batch must fit into the budget, but {now} takes {now.batch_size:,} "
            f"rollouts and the budget is {compact(q.rollouts(now))}; correct --current."
        )
    gain_D = found.score_D - fit.scores_of([now], q.x)[:, 0]
    rates = replace(rates, tokens_per_rollout=q.tokens_of(now))
    return {
        **now._asdict(),
        "tested": now in fit.configurations,
        "score": float(gain_D.mean()),
        "interval": interval(gain_D, fit.level),
        "steps": steps,
        "cost": rates.cost(steps * now.batch_size),
    }


def _rules(q: Question, found: Prescription) -> dict[str, Any]:
    """What rules without a model would choose here, and what each lost in the back-test."""
    fit, lost = q.fit, q.fit.backtest.rules
    known = min(q.x, 10 ** float(fit.posterior.last_J.max()))
    leader = fit.configurations[choice(fit.scores_at(known).mean(axis=0))]
    of = {"model": found.configuration, **simple_rules(fit.configurations, leader)}
    score_F = fit.scores_of(list(of.values()), q.x).mean(axis=0)
    return {
        name: {**c._asdict(), "score": float(score), "lost": lost.get(name)}
        for (name, c), score in zip(of.items(), score_F, strict=True)
    }


def _rate_sources(rates: Rates, known: Mapping[str, str]) -> dict[str, Any]:
    """Every rate that was used, and where it came from."""
    return {
        f.name: {"value": value, "from": known.get(f.name, "given")}
        for f in fields(rates)
        if (value := getattr(rates, f.name)) is not None
    }


def _empty(around: Setting, fit: Fit | None) -> dict[str, Any]:
    """Every key of the contract, with what is known before anything is chosen."""
    unknown = (
        "budget_rollouts", "problems_per_batch", "rollouts_per_problem", "steps", "batch_size",
        "rollouts", "chosen_by", "rollouts_per_problem_law", "rollouts_per_problem_interval",
        "confidence_set", "as_good", "expected_regret", "predicted_score",
        "predicted_score_interval", "gain", "learning_rate", "passes_over_data",
        "extrapolation_log10", "printed_law", "refusal",
    )  # fmt: skip
    law: dict[str, Any] = {"source": around.source}
    if fit is not None:
        law |= {k: getattr(fit, k) for k in ("setting", "metric", "unit", "level", "support")}
        law["warnings"] = sorted({one.code for one in fit.notices})
        law |= {k: v for k, v in fit.law.items() if k != "at"}
    recipe = around.trained_with
    model = "study" if around.recipe is not None else PUBLISHED_MODEL
    return {
        "version": 2,
        **dict.fromkeys(unknown),
        "recipe": recipe.to_dict(),
        "learning_rate_from": model,
        "difficulty": around.difficulty,
        "law": law,
        "cost": {"tokens": None, "gpu_hours": None, "usd": None, "source": {}},
        "rules": {},
        "trainer": {},
        "trainer_units": {},
        "run_next": [],
    }


def _refused(
    refusal: RefusalError, around: Setting, *, rollouts: float | None, fit: Fit | None = None
) -> Plan:
    """A plan that says why there is none, in the same contract: every number is None."""
    notices = _by_weight([*around.notices, *(fit.notices if fit else ())])
    document = {
        **_empty(around, fit),
        "budget_rollouts": rollouts,
        "verdict": {"level": "stop", "reason": refusal.reason},
        "refusal": {"reason": refusal.reason, "run_next": list(refusal.run_next)},
        "run_next": [{"do": one, "command": "", "settles": ""} for one in refusal.run_next],
        **documented(notices),
    }
    return Plan(
        allocation=None, recipe=around.trained_with, document=plain(document), refusal=refusal
    )
