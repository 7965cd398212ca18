"""From a source and a budget to one allocation, with everything that limits its meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from isocompute.allocation import Allocation, Budget, Rates
from isocompute.answers.around import (
    PUBLISHED_MODEL,
    around_source,
    trained_with,
    trainer_keys,
)
from isocompute.answers.assumed import assumptions
from isocompute.answers.beside import (
    PARTS,
    gain_over_today,
    not_told_apart,
    overtakes,
    part_of_the_budget,
    passes_of,
    score_unknown,
    simple_rules_here,
    won_by_batch,
)
from isocompute.answers.broke import fallen, fell, went_as_far
from isocompute.answers.fit import Fit, Fix, Select, fit_sweep
from isocompute.answers.logged import logged
from isocompute.answers.machines import on_gpus, scaled_notices, wall_clock
from isocompute.answers.paper import printed_law
from isocompute.answers.prescribe import Prescription, Question, none_came_so_far, prescribe
from isocompute.answers.price import PAID_IN, in_unit, priced, unit_paid_in
from isocompute.answers.steps import (
    beyond,
    evaluated_as,
    grown,
    nearest,
    priced_remedy,
    run_next,
    steps_take,
)
from isocompute.answers.target import budget_for
from isocompute.answers.verdict import untested
from isocompute.answers.weight import by_weight, verdict_of
from isocompute.answers.worth import after_checks, check_on_the_way, first_run, stakes
from isocompute.domain import Configuration, Notice, documented, notice
from isocompute.domain.text import plain, unit_words
from isocompute.errors import InputError, RefusalError
from isocompute.model.data import MIN_STEPS
from isocompute.recipe import RECORDED, Difficulty, Recipe

if TYPE_CHECKING:
    from isocompute.sources.load import Options

# Of a fit's largest budget; a plan says for its own where the choice is the last n tested, and
# which n may be best.
OF_ITS_END = ("optimum_at_edge", "n_not_told_apart", "rise_not_claimed")
_UNKNOWN = (
    "budget_rollouts", "problems_per_batch", "rollouts_per_problem", "steps", "batch_size",
    "half", "tenth", "runner_up", "trained", "fell", "overtakes", "check", "rollouts", "chosen_by",
    "rollouts_per_problem_law", "rollouts_per_problem_interval", "confidence_set", "as_good",
    "expected_regret", "predicted_score", "predicted_score_interval", "gain", "learning_rate",
    "passes_over_data", "passes_in_sweep", "wall", "rate_fell", "rates_tried",
    "extrapolation_log10", "printed_law", "refusal", "logged", "not_told_apart", "target",
    "chances",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A prescription, or the reason why there is none.

    Args:
        allocation: (B_p, n, M); None in a refusal.
        document: the `plan --json` contract of docs/contracts.md.
        refusal: None, or why the data cannot carry an answer.
    """

    allocation: Allocation | None
    document: dict[str, Any] = field(repr=False)
    refusal: RefusalError | None = None


def plan_budget(
    fit: Fit, budget: Budget | float, *, max_batch_size: int | None = None,
    min_steps: int = MIN_STEPS, **around: Any,
) -> Plan:  # fmt: skip
    """How to spend a budget: B_p * n * M never exceeds it.

    Args:
        fit: of the sweep.
        budget: rollouts, or a `Budget` in tokens, GPU-hours or money.
        max_batch_size: rollouts per batch that the hardware holds.
        min_steps: fewest updates worth running.
        around: source, difficulty, recipe, rates, current, problems, ...: see `Question`.

    Raises:
        InputError: a number below 1, a missing rate, or limits that no tested configuration meets.
    """
    _require_positive(max_batch_size=max_batch_size, min_steps=min_steps)
    amount = budget if isinstance(budget, Budget) else Budget(amount=float(budget), unit="rollouts")
    return _plan(fit, amount, around, max_batch_size=max_batch_size, min_steps=min_steps)


def plan_fixed_batch(fit: Fit, batch_size: int, steps: int, **around: Any) -> Plan:
    """How to split a fixed batch B into (B_p, n) when M steps will be run.

    Among the tested n, with B_p = B / n not below the smallest tested B_p, the choice has the
    largest expected score at C = B * M; B_p * n never exceeds B.

    Args:
        fit: of the sweep.
        batch_size: B, in rollouts.
        steps: M.
        around: see `Question`.

    Raises:
        InputError: B or M below 1, or a batch below the smallest n tested.
    """
    _require_positive(batch_size=batch_size, steps=steps)
    if batch_size < fit.tested_n[0]:
        raise InputError(
            f"a batch must hold one problem of the smallest n tested ({fit.tested_n[0]} "
            f"rollouts), but got batch_size={batch_size}; raise it, or sweep smaller n."
        )
    if sum(c.batch_size == batch_size for c in fit.configurations) < 2:
        missing = notice("fixed_batch_law_missing", batch=batch_size)
        around["notices"] = [*around.get("notices", ()), missing]
    amount = Budget(amount=float(batch_size * steps), unit="rollouts")
    return _plan(fit, amount, around, min_steps=1, batch_size=batch_size, steps=steps)


def plan_from_source(
    source: str | None = None, *, budget: Budget | None = None, score: float | None = None,
    batch_size: int | None = None, steps: int | None = None, difficulty: Difficulty | None = None,
    rates: Rates | None = None, max_batch_size: int | None = None, min_steps: int | None = None,
    current: Configuration | int | None = None, problems: int | None = None,
    only_n: Sequence[int] = (), fit: Fit | None = None, fix: Fix | None = None,
    joint: bool = False, unit: str | None = None, select: Select = "best",
    **loading: Unpack[Options],
) -> Plan:  # fmt: skip
    """Fit a source and plan with it.

    Args:
        source: a SOURCE; None: the published sweep of that difficulty.
        budget: what may be spent. Or:
        score: to reach, as the trainer logs it. Or:
        batch_size, steps: B and M of a fixed batch that is to be split.
        difficulty: of the problem set to be trained on; None: as the source's name says.
        rates: what a rollout costs; what is missing comes from the source's study file.
        max_batch_size, min_steps: limits, see `plan_budget`.
        current, problems, only_n: see `Question`.
        fit: a fit of the source, if there is one; the options below are then not used. It is fitted
            again if the budget needs another unit.
        fix, joint, select: see `fit_sweep`.
        unit: see `fit_sweep`; None: tokens if the budget is in tokens and all (B_p, n) logged them,
            GPU-hours if it is in GPU-hours or money and all were timed; else rollouts.
        loading: metric, problem_set, ...: see `sources.load.Options`.

    Raises:
        InputError: not exactly one of budget, score and fixed batch; an unknown difficulty or
            source; a score out of reach.
    """
    _require_one_question(budget=budget, score=score, batch_size=batch_size, steps=steps)
    if batch_size is not None and (max_batch_size is not None or min_steps is not None):
        raise InputError(
            "limits belong to a budget, but got max_batch or min_steps with a fixed batch; "
            "leave them out."
        )
    around = around_source(source, difficulty, rates or Rates())
    around |= {"current": current, "problems": problems, "only_n": tuple(only_n)}
    if fit is None:
        try:
            fit = _fitted(around, budget, batch_size, unit, loading, fix=fix, joint=joint,
                          select=select)  # fmt: skip
        except RefusalError as refusal:
            known = budget.amount if budget and budget.unit == "rollouts" else None
            return _refused(refusal, around, rollouts=known)
    elif unit is None and fit.unit == "rollouts" and fit.batch_size is None:
        unit = unit_paid_in(budget, around["rates"], fit.logged)
        fit = fit if unit == fit.unit else fit.again(unit)
    if budget and budget.gpus:
        fit = fit.again(fit.unit, on_gpus(fit.logged, budget.gpus))
    if batch_size is not None and steps is not None:
        return plan_fixed_batch(fit, batch_size, steps, **around)
    if score is not None:
        around["target"] = reached = budget_for(fit, score)
        budget = Budget(amount=reached.even, unit=fit.unit.replace("-", "_"))
    assert budget is not None
    least = MIN_STEPS if min_steps is None else min_steps
    return plan_budget(fit, budget, max_batch_size=max_batch_size, min_steps=least, **around)


def _require_one_question(**asked: Any) -> None:
    given = [name for name, value in asked.items() if value is not None]
    if given not in (["budget"], ["score"], ["batch_size", "steps"]):
        raise InputError(
            "a plan needs a budget, a score to reach, or both batch size and steps, but got "
            f"{' and '.join(given) or 'none of them'}; give one of the three."
        )


def _fitted(
    around: Mapping[str, Any], budget: Budget | None, batch_size: int | None, unit: str | None,
    loading: Options, *, fix: Fix | None, joint: bool, select: Select,
) -> Fit:  # fmt: skip
    """The fit of a source, in the unit that the budget is paid in."""
    from isocompute.sources import load_with_train

    sources, rates = [around["source"]], around["rates"]
    curves, train = load_with_train(sources, **loading)
    fixed = fix is not None and fix[0] == "batch_size"  # a law of steps, in rollouts alone
    paid = "rollouts" if fixed else unit_paid_in(budget, rates, curves)
    if unit == "rollouts" != paid:
        raise InputError(
            "`--unit rollouts` compares n at equal rollouts, but how many a budget of "
            f"{unit_words(paid)} buys differs by n, as your runs' logs say; give the budget in "
            "rollouts, or leave `--unit` out."
        )
    splits = {c.configuration for c in curves if c.configuration.batch_size == batch_size}
    if batch_size is not None and fix is None and not joint and len(splits) > 1:
        fix = ("batch_size", batch_size)
    return fit_sweep(curves, fix=fix, joint=joint, unit=unit or paid, select=select, train=train,
                     sources=sources, rates=rates)  # fmt: skip


def _require_positive(**values: Any) -> None:
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not value >= 1 or value % 1):
            rule = "be whole" if not isinstance(value, bool) and value > 1 else "hold"
            raise InputError(
                f"`{name} >= 1` must {rule}, but got {value!r}; change it or leave it out."
            )


def _plan(fit: Fit, budget: Budget, around: dict[str, Any], **asked: Any) -> Plan:
    """The plan of a question, or the refusal of a fit that failed."""
    rates, origin = around.pop("rates", Rates()), around.pop("rates_from", {})
    price = priced(fit.logged, rates, origin)
    if (paid := PAID_IN.get(budget.unit, fit.unit)) != fit.unit:  # by one rate, as it is turned
        price = replace(price, one_rate=paid)
    counted = price.origin.get("tokens_per_rollout") == "sweep"
    q = Question(fit=fit, x=math.nan, price=price, **around, **asked)
    q = replace(q, price=replace(price, evaluated=evaluated_as(q)))
    if q.current is not None:
        b_p, n = (1, q.current) if isinstance(q.current, int) else q.current
        _require_positive(**{"current B_p": b_p, "current n": n})
    _require_positive(problems=q.problems)
    tokens = price.rates.tokens_per_rollout
    measured = [notice("tokens_measured", tokens=tokens)] if counted else []
    q = replace(q, x=in_unit(price.after_a_start(budget), fit.unit, price), gpus=budget.gpus,
                notices=[*q.notices, *measured])  # fmt: skip
    stops = [one for one in fit.notices if one.level == "stop"] or none_came_so_far(q)
    return _stopped(q, stops) if stops else _answer(q)


def _stopped(q: Question, stops: Sequence[Notice]) -> Plan:
    """The refusal that goes with a verdict of stop."""
    first = priced_remedy(stops[0], q.price)
    # One thing to do: the cure of a second fault may be none of the first.
    refusal = RefusalError(f"{first.text} {first.remedy}", [first.remedy])
    own = {"notices": [*q.notices, *(s for s in stops if s not in q.fit.notices)]}
    return _refused(refusal, vars(q) | own, rollouts=q.rollouts(), code=first.code)


def _answer(q: Question) -> Plan:
    """The plan that stands, or the refusal of one whose score nobody knows."""
    found = prescribe(q)
    chosen = found.configuration
    if unknown := score_unknown(q, found):
        return _stopped(q, [unknown])
    recipe, whose, q = trained_with(q, chosen)
    said, a = whose.pop("said", {}), Allocation(**chosen._asdict(), steps=q.steps_of(chosen))
    passes, of_passes = passes_of(q, a)
    check, first, near = check_on_the_way(q, chosen), first_run(q, found), _contended(q, found)
    low, high = q.fit.support
    times = max(1.0, q.x / high, low / q.x)
    own = [*q.notices, *found.notices, *beyond(q, chosen, times, bool(check)),
           *won_by_batch(q, chosen), *scaled_notices(q, chosen)]  # fmt: skip
    if trend := grown(q.price, chosen, a.rollouts, q.cost(chosen, a.rollouts)):
        own = [*(one for one in own if one.code != "tokens_measured"), trend]
    # What a check of the sweep need not cost, where the plan ends before it.
    notices = _weighed(q, [*own, *of_passes], untested(q.fit, q.x, near, first), times)
    bought = q.rollouts(chosen)
    document = {
        **_frame(vars(q)),
        **found.answers,
        **whose,
        **_of_allocation(q, a, found),
        **passes,
        **trainer_keys(q, a, recipe, whose, said),
        "budget_rollouts": bought if q.steps is None else a.rollouts,
        "check": check,
        "learning_rate": recipe.learning_rate_at(a.batch_size),
        "assumes": assumptions(said, q.fit.curves, a.steps),
        "extrapolation_log10": math.log10(times),
        "verdict": verdict_of(notices)._asdict(),
        "run_next": run_next(
            notices, chosen, min(bought, 2 * q.fit.trained()), spend=bought, study=q.study,
            contended=[c.rollouts_per_problem for c in near],
            price=q.price, problems=q.problems,
            instead=steps_take(q, chosen, first, bought, near, recipe.base_batch_size),
            difficulty=q.difficulty if q.difficulty_given else None,
            worth=partial(stakes, q, found)),
        **documented(notices),
    }  # fmt: skip
    document["after_checks"] = after_checks(q, chosen, document)
    document["logged"] = logged(q.fit, document)
    return Plan(allocation=a, document=plain(document))


def _contended(q: Question, found: Prescription) -> list[Configuration]:
    """Configurations near the choice, of n that may be best and that the limits allow."""
    # What nobody trained has no run to go on with, nor a first seed; what has no 20 steps, no use.
    free = {c.rollouts_per_problem for c in q.fit.configurations if q.blocked(c) is None}
    contended = [n for n in found.answers["confidence_set"] if n in free]
    near = contended or sorted(free) or q.fit.tested_n
    return nearest(q.fit, near, found.configuration, q.x)


def _weighed(
    q: Question, own: Sequence[Notice], less: Iterable[Notice], times: float
) -> list[Notice]:
    """Notices of a plan and of its fit (some of them `less`), the weightiest first, priced."""
    instead = {one.code: one for one in less}
    of_fit = [instead.get(one.code, one) for one in q.fit.notices if one.code not in OF_ITS_END]
    most_fell = 2 * len(fallen(q.fit)) > len(q.fit.configurations)
    notices = by_weight([*own, *of_fit], times, fell=most_fell and times > 1)
    return [priced_remedy(one, q.price) for one in notices]


def _of_allocation(q: Question, a: Allocation, found: Prescription) -> dict[str, Any]:
    """What the document says of the allocation itself: its score, its price, what stands beside."""
    chosen, cost = found.configuration, q.cost(found.configuration, a.rollouts)
    bought, printed = q.rollouts(chosen), printed_law(q.source.split("[")[0])
    return {
        **asdict(a),
        "batch_size": a.batch_size,
        "rollouts": a.rollouts,
        "predicted_score": found.score_D.mean(),
        "predicted_score_interval": q.fit.ends(chosen, q.x, found.score_D),
        "gain": gain_over_today(q, found),
        **{name: part_of_the_budget(q, found, share) for name, share in PARTS.items()},
        "target": None if q.target is None else q.target.to_dict(q.fit.unit),
        "trained": None if q.of_another_model else went_as_far(q, a),
        "fell": fell(q, a, found.score_D),
        "overtakes": overtakes(q, chosen),
        "not_told_apart": not_told_apart(q, found),
        "chances": q.fit.chances(q.x),
        "rules": simple_rules_here(q, chosen),
        "wall": wall_clock(q, chosen, cost["gpu_hours"]),
        "cost": {**cost, "source": q.price.to_dict(chosen, a.rollouts)},
        "printed_law": printed and {
            "source": printed.source, "rollouts_per_problem": printed.law.predict(bought),
            "plateau": printed.plateau, "sentences": printed.sentences(bought)},
    }  # fmt: skip


def _frame(of: Mapping[str, Any]) -> dict[str, Any]:
    """Every key of the contract, with what is known of a question before anything is chosen."""
    fit, law = of.get("fit"), {"source": of["source"]}
    if fit is not None:
        kept = ("setting", "metric", "unit", "level", "support", "data_sha256")
        law |= {k: getattr(fit, k) for k in kept}
        law["select"] = fit.posterior.select
        law["tested"] = [fit.tested_n[0], fit.tested_n[-1]]
        law["warnings"] = sorted({one.code for one in fit.notices})
        law |= {k: v for k, v in fit.law.items() if k != "at"}
    recipe = of["recipe"] or Recipe.for_difficulty(of["difficulty"] or "easy")
    nothing = dict.fromkeys(("tokens", "gpu_hours", "usd"))
    return {
        "version": 2, **dict.fromkeys(_UNKNOWN), "recipe": recipe.to_dict(),
        "learning_rate_from": "study" if of["recipe"] else PUBLISHED_MODEL,
        "recorded": [], "asked": [], "assumes": [], "after_checks": [],
        "difficulty": of["difficulty"], "law": law,
        "cost": {**nothing, "at_least": nothing, "source": {}},
        "rules": {}, "neighbours": [], "trainer": {}, "trainer_units": {},
        "trainer_not_set": {}, "trainer_trained": {},
    }  # fmt: skip


def _refused(
    refusal: RefusalError, of: Mapping[str, Any], *, rollouts: float | None, code: str = ""
) -> Plan:
    """A plan that says why there is none, in the same contract: every number is None."""
    fit = of.get("fit")
    document = {
        **_frame(of),
        "budget_rollouts": rollouts,
        "verdict": {"level": "stop", "reason": refusal.reason},
        "recipe": dict.fromkeys(RECORDED), "learning_rate_from": None,
        "refusal": {"reason": refusal.reason, "run_next": refusal.run_next},
        "run_next": [{"settles": code, "do": one, "command": ""} for one in refusal.run_next],
        **documented(by_weight([*of["notices"], *(fit.notices if fit else ())])),
    }
    return Plan(allocation=None, document=plain(document), refusal=refusal)
