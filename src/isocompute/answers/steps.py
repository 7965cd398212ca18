"""What to run before a plan is paid for: steps, what they train and cost, and their lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.allocation import Rates
from isocompute.answers.price import UNITS_PAID, Price
from isocompute.answers.reading import Reading
from isocompute.answers.spending import apart
from isocompute.answers.verdict import at_their_best, nearest_n, seeds
from isocompute.domain import Configuration, Effort, Notice, notice
from isocompute.domain.notices import takes
from isocompute.domain.text import compact, singular
from isocompute.lr_sweep import FACTORS, SHARE

if TYPE_CHECKING:
    from isocompute.answers.prescribe import Question

WIDTH = 80  # of a line
# Settings spend a budget up to their last step. Costs this close are the budget twice; at a tenth
# of it such a step would show as a price, at ten times it slower batches would not.
ALIKE = 0.01
SAMPLES = 16  # what `difficulty` draws unless told otherwise
_RUN, _LR = "isocompute run {study}", "isocompute lr-sweep {study}"
_N, _BP = "grid.rollouts_per_problem=", "grid.problems_per_batch="
_TRY_N, _TRY_BP = f"{_RUN} {_N}{{to_n}}", f"{_RUN} {_BP}{{to_bp}}"
_TRAIN = "train {to_bp} problems x {to_n} rollouts"
# What settles a notice: in words, the command for a study, and in words where the runs are
# another trainer's (None: the same). In the order of what it may change. `to_bp` and `to_n` are
# those of what the notice trains.
_STEPS: Mapping[str, tuple[str, str, str | None]] = {
    "steps_assumed": (
        "check the steps", "", "check that the log's steps are updates"),
    "gpus_scaled": (
        "time ten updates", "", "time ten updates on the GPUs of the plan"),
    "one_or_two_n": ("train n = {to_n}", _TRY_N, _TRAIN),
    "law_of_another_model": (
        "see if a sweep pays, and which n to take if not",
        "isocompute design --budget {spend}{known} -o {study}", None),
    "split_untested": ("train this split", _TRY_BP, f"{_TRAIN} once"),
    "anchor_assumed": (
        "measure the lr", _LR, "try {rates}, {quarter} rollouts each"),
    "difficulty_assumed": (
        "gauge difficulty", "isocompute difficulty problems.jsonl --model MODEL", None),
    "n_not_told_apart": (
        "add two seeds{of}", f"{_RUN} grid.seeds={{seeds}}{{only}}",
        "train two more seeds of n = {contended}"),
    "capped_by_tested_n": ("test n = {to_n}", _TRY_N, _TRAIN),
    "won_by_batch": ("test the batch", f"{_TRY_BP} {_N}{{to_n}}", _TRAIN),
    "n_at_smallest_tested": ("test n = {to_n}", _TRY_N, _TRAIN),
    "seeds_missing": (
        "add two seeds{of}", f"{_RUN} grid.seeds={{seeds}}{{only}}",
        "train two more seeds of n = {contended}"),
    "bp_unstable": ("try a larger B_p", _TRY_BP, _TRAIN),
    "extrapolated": (
        "{extend}", f"{_RUN} budget={{budget}}{{only}}",
        "continue n = {contended} to {budget} rollouts{each}"),
    "bp_untested": ("try another B_p", _TRY_BP, _TRAIN),
}  # fmt: skip
# The steps that are of one's own model and problems, whatever model was swept.
_OF_ONES_OWN = ("law_of_another_model", "anchor_assumed", "difficulty_assumed")
# Those that add runs to the sweep.
_NO_RUNS = (*_OF_ONES_OWN, "steps_assumed", "gpus_scaled")
OF_THE_SWEEP = tuple(code for code in _STEPS if code not in _NO_RUNS)
# Of a plan, at most spent on telling its n apart: what a sweep of one's own may cost. Half of it
# leaves most sweeps one doubling, twice of it asks for a third of a budget in two rounds.
SPEND = 0.15
_STUDY = "study.yaml"  # where the file of a study is not known, or not yet written


def first_to(q: Question, c: Configuration) -> dict[str, Any]:
    """Fields of a remedy: train one run of a configuration on, at most to twice its data."""
    reached = q.fit.reached(c)
    to = min(q.x, 2 * max(reached, q.fit.support[1]))
    done = q.rollouts(c, reached) if to > reached else 0.0
    trains = {c: q.rollouts(c, to) - done}
    return {"to": to, "unit": q.fit.unit, "trains": trains}


def nearest(
    fit: Reading, n: Sequence[int], chosen: Configuration, x: float
) -> list[Configuration]:
    """The three of some tested n that lie nearest to a choice, at its B_p or their best one."""
    near = sorted(nearest_n(n, chosen.rollouts_per_problem))
    own = [chosen._replace(rollouts_per_problem=m) for m in near]
    best = at_their_best(fit, near, x)
    return [c if c in fit.configurations else b for c, b in zip(own, best, strict=True)]


def steps_take(
    q: Question, chosen: Configuration, settles: int | None, bought: float,
    near: Sequence[Configuration],
) -> dict[str, Effort]:  # fmt: skip
    """What the steps train that no notice knows, by code.

    Args:
        chosen: the prescription.
        settles: of one or two n, the untested one that tells most.
        bought: rollouts of the plan.
        near: the configurations that a step trains on or adds seeds to.
    """
    fit = q.fit
    reach = min(bought, 2 * fit.trained())
    out: dict[str, Effort] = {"law_of_another_model": {chosen: SPEND * bought}}
    if settles is not None:
        tried = chosen._replace(rollouts_per_problem=settles)
        out["one_or_two_n"] = seeds(fit, [tried], 1, q.x)
    if q.study is None:
        out["anchor_assumed"] = {chosen: 2 * reach / 4}  # half and twice the rate, a quarter as far
        out["seeds_missing"] = seeds(fit, near, x=q.x)
        out["extrapolated"] = {c: max(reach - fit.trained(c), 0.0) for c in near}
    else:
        # A command takes an n at every B_p of the study, with every seed.
        n, repeats = {c.rollouts_per_problem for c in near}, int(max(fit.posterior.n_runs_J))
        on = dict[Configuration, float]()
        for run in (c for c in fit.curves if c.rollouts_per_problem in n):
            left = max(reach - float(run.rollouts_K[-1]), 0.0)
            on[run.configuration] = on.get(run.configuration, 0.0) + left
        again = [c for c in fit.configurations if c.rollouts_per_problem in n]
        out |= {"seeds_missing": {c: 2 * fit.trained(c) for c in again}, "extrapolated": on}
        if q.recipe is not None:
            out["anchor_assumed"] = {chosen: len(FACTORS) * repeats * fit.trained()}
    out["n_not_told_apart"] = out["seeds_missing"]
    if q.problems:
        out["difficulty_assumed"] = {chosen: SAMPLES * float(q.problems)}
    return out


def run_next(
    notices: Sequence[Notice], chosen: Configuration, budget: float, *,
    spend: float = 0.0, study: str | None = _STUDY, contended: Sequence[int] = (),
    learning_rate: float | None = None,
    price: Price | None = None, instead: Mapping[str, Effort] | None = None,
    problems: int | None = None, difficulty: str | None = None, repeats: int = 1,
    worth: Callable[[str, Effort], Mapping[str, float | None]] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Steps that settle what limits a plan: {"settles": code, "do", "command", "rollouts", "cost"}.

    Args:
        notices: of the plan, the verdict's reason first; its step goes first.
        chosen: the prescription.
        budget: to train to, where the data end too soon.
        spend: what the plan may spend, in rollouts.
        study: the study file to extend; None: another trainer made the runs, and no command of
            isocompute adds to them.
        contended: n that may be best, as they are named; empty: all that were tested.
        learning_rate: of the prescription.
        price: what rollouts cost.
        instead: what a step trains by code, instead of what the notice says.
        problems, difficulty: where they were said.
        repeats: seeds of the study.
        worth: of a code and what its step trains: what that can gain, and what its price loses.
    """
    price, short = price or Price(), min(spend, budget) or budget
    there = {one.code for one in notices}
    if "n_not_told_apart" in there:  # the same runs settle both
        there.discard("seeds_missing")
    if "bp_unstable" in there:
        there.discard("bp_untested")
    trains = {one.code: dict(one.trains) for one in notices} | dict(instead or {})
    dear = sum(trains.get("extrapolated", {}).values()) > SPEND * spend > 0
    if "law_of_another_model" in there:
        # The sweep of one's own is not designed yet: more runs of that model tell nothing.
        there = {one for one in there if one in _OF_ONES_OWN} | {"anchor_assumed"}
        if sweep := trains.pop("law_of_another_model", None):  # to ask is free
            trains["anchor_assumed"] = {c: SHARE * rollouts for c, rollouts in sweep.items()}
    # A sweep that is to go as far as the plan would train its run: that is the cheaper check.
    if contended and (len(contended) < 2 or dear or budget >= 0.99 * spend > 0):
        there.discard("extrapolated")
    named, listed = ", ".join(map(str, contended)), ",".join(map(str, contended))
    only = f" '{_N}[{listed}]'" if len(contended) > 1 else f" {_N}{listed}" if contended else ""
    words = {"only": only, "of": f" of n = {named}" if contended else "",
             "extend": f"continue n = {named}" if contended else "extend the sweep",
             "each": " each" if len(contended) > 1 else "",
             "contended": named or chosen.rollouts_per_problem,
             "budget": compact(budget) if study is None else plain_rate(budget),
             "spend": plain_rate(spend), "quarter": compact(short / 4),
             "rates": _around(learning_rate), "known": _known(price.rates, problems, difficulty),
             "study": study or _STUDY, "seeds": repeats + 2}  # fmt: skip
    steps = list[dict[str, Any]]()
    for code in sorted(there.intersection(_STEPS), key=list(_STEPS).index):
        do, command, elsewhere = _STEPS[code]
        if study is None and elsewhere is not None:
            do, command = elsewhere, ""
        effort = trains.get(code, {})
        to_bp, to_n = next(iter(effort), chosen)
        words |= {"to_bp": to_bp, "to_n": to_n}
        rollouts = sum(effort.values()) or None
        steps.append(
            {"settles": code, "do": singular(do.format(**words)),
             "command": command.format(**words), "rollouts": rollouts,
             "cost": price.cost(effort) if rollouts else None,
             **(worth(code, effort) if worth else {"gain": None, "lost": None})}
        )  # fmt: skip
    # One n says nothing of another: however far the plan goes, the next n is the first to train.
    first = notices[0].code if notices else ""
    if "one_or_two_n" in there and first != "steps_assumed":
        first = "one_or_two_n"
    return sorted(steps, key=lambda step: step["settles"] != first)


def _known(rates: Rates, problems: int | None, difficulty: str | None) -> str:
    """What was said of a plan, as options of the design of its sweep."""
    said = {"rollouts-per-gpu-hour": rates.rollouts_per_gpu_hour,
            "usd-per-gpu-hour": rates.usd_per_gpu_hour, "problems": problems}  # fmt: skip
    numbers = "".join(f" --{name} {value:g}" for name, value in said.items() if value is not None)
    return numbers + (f" --difficulty {difficulty}" if difficulty is not None else "")


def _around(rate: float | None) -> str:
    """What to try beside a rate: "learning rates 1e-6 and 4e-6"."""
    if rate is None:
        return "half and twice the rate"
    return f"learning rates {plain_rate(rate / 2)} and {plain_rate(2 * rate)}"


def priced_remedy(one: Notice, price: Price) -> Notice:
    """A notice whose remedy says hours and money, too, where a rate is known."""
    if not one.rollouts:
        return one
    spent = ", ".join([takes(one.rollouts), *amounts(price.cost(dict(one.trains)))])
    return one._replace(remedy=one.remedy.replace(f"({takes(one.rollouts)})", f"({spent})"))


def plain_rate(value: float) -> str:
    """Two digits, as a study file has them: 2.6e5, 2.8e-6, 85."""
    return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-")


def amounts(cost: Mapping[str, Any]) -> list[str]:
    """A cost in words: "1,110 GPU-hours", "$2,776 to $3,000"; what is not known is left out."""
    forms = {"gpu_hours": ("", " GPU-hours"), "usd": ("$", ""), "tokens": ("", " tokens")}
    known = {name: form for name, form in forms.items() if cost[name] is not None}
    low = cost.get("at_least") or {}
    ends = {name: [low.get(name)] * apart(low.get(name), cost[name]) + [cost[name]]
            for name in known}  # fmt: skip
    said = (" to ".join(sign + compact(end) for end in ends[name]) + unit
            for name, (sign, unit) in known.items())  # fmt: skip
    return ["1 GPU-hour" if one == "1 GPU-hours" else one for one in said]


def only(cost: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A cost in one of its units alone."""
    known = {one: cost[one] if one == name else None for one in UNITS_PAID}
    return {**known, "at_least": cost.get("at_least")}


def grown(
    price: Price, c: Configuration, rollouts: float, cost: Mapping[str, Any]
) -> Notice | None:
    """That the cost of a plan lies between two ends; None where it does not."""
    trend, low = price.trend(c, rollouts), cost["at_least"]
    if trend is None:
        return None
    name = next(one for one in ("gpu_hours", "tokens") if apart(low[one], cost[one]))
    ends = [amounts({**only(of, name), "at_least": None})[0] for of in (low, cost)]
    stay, go = ends if trend.endswith(("longer", "dearer")) else ends[::-1]
    return notice("cost_grows", trend=trend.capitalize(), stay=stay, go=go)
