"""What to run before a plan is paid for: steps, what they train and cost, and their lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from isocompute.allocation import Rates
from isocompute.answers.frontier import SAME_END
from isocompute.answers.price import UNITS_PAID, Price
from isocompute.answers.reading import Reading
from isocompute.answers.spending import apart
from isocompute.answers.verdict import at_their_best, nearest_n, seeds
from isocompute.answers.weight import trust
from isocompute.domain import Configuration, Curve, Effort, Notice, Work, notice
from isocompute.domain.text import compact, singular, takes, unit_words
from isocompute.lr_sweep import FACTORS, LEAST, SHARE, STEPS
from isocompute.sources.studies import NO_STUDY_YET, Extension
from isocompute.study.evaluated import PROBLEMS, SAMPLES, Evaluated
from isocompute.study.file import MOST_ROLLOUTS

if TYPE_CHECKING:
    from isocompute.answers.prescribe import Question

WIDTH = 80  # of a line
# Settings spend a budget up to their last step. Costs this close are the budget twice; at a tenth
# of it such a step would show as a price, at ten times it slower batches would not.
ALIKE = 0.01
GAUGED = 16  # samples that `difficulty` draws unless told otherwise
_LR = "isocompute lr-sweep {study}"
SAY_RATE = "say the learning rate of your runs: --set learning_rate=RATE"  # free
_TRAIN = "train {to_bp} problems x {to_n} rollouts"
_RUN = "{run}"  # the command that trains what the step trains, no more: `Runs.command`
_SEEDS = ("add two seeds of n = {contended}", _RUN, "train two more seeds of n = {contended}")
# What settles a notice: in words, the command for a study, and in words where the runs are
# another trainer's (None: the same). In the order of what it may change. `to_bp` and `to_n` are
# those of what the notice trains.
_STEPS: Mapping[str, tuple[str, str, str | None]] = {
    "steps_assumed": (
        "check the steps", "", "check that the log's steps are updates"),
    "gpus_scaled": (
        "time ten updates", "", "time ten updates on the GPUs of the plan"),
    "one_or_two_n": ("train n = {to_n}", _RUN, _TRAIN),
    "law_of_another_model": (
        "see if a sweep of your own pays, and which n to take if not",
        "isocompute design --budget {spend}{known} -o {study}", None),
    "split_untested": ("train this split", _RUN, f"{_TRAIN} once"),
    "anchor_assumed": ("tune the learning rate", _LR, SAY_RATE),
    "difficulty_assumed": (
        "gauge difficulty", "isocompute difficulty problems.jsonl --model MODEL", None),
    "n_not_told_apart": _SEEDS,
    "capped_by_tested_n": ("test n = {to_n}", _RUN, _TRAIN),
    "won_by_batch": ("test the batch", _RUN, _TRAIN),
    "n_at_smallest_tested": ("test n = {to_n}", _RUN, _TRAIN),
    "seeds_missing": _SEEDS,
    "bp_unstable": ("try B_p = {to_bp}", _RUN, _TRAIN),
    "extrapolated": (
        "continue n = {contended}", _RUN,
        "continue n = {contended} to {reach} rollouts each"),
    "bp_untested": ("try B_p = {to_bp}", _RUN, _TRAIN),
}  # fmt: skip
# The steps that are of one's own model and problems, whatever model was swept.
_OF_ONES_OWN = ("law_of_another_model", "anchor_assumed", "difficulty_assumed")
# Those that add runs to the sweep.
_NO_RUNS = (*_OF_ONES_OWN, "steps_assumed", "gpus_scaled")
OF_THE_SWEEP = tuple(code for code in _STEPS if code not in _NO_RUNS)
# Of a plan, at most spent on telling its n apart: what a sweep of one's own may cost. Half of it
# leaves most sweeps one doubling, twice of it asks for a third of a budget in two rounds.
SPEND = 0.15


def evaluated_as(q: Question) -> Evaluated | None:
    """How runs are evaluated that a step adds; of another model the first study tries rates."""
    if q.of_another_model:
        return Evaluated(SAMPLES * PROBLEMS, 1, MOST_ROLLOUTS)  # at both ends alone
    return None if q.study is None else q.study.evaluated


def first_to(q: Question, c: Configuration) -> dict[str, Any]:
    """Fields of a remedy: train one run of a configuration on, at most to twice its data."""
    reached = q.fit.reached(c)
    to = min(q.x, 2 * max(reached, q.fit.support[1]))
    done = q.rollouts(c, reached) if to > reached else 0.0
    trains = {c: Work(q.rollouts(c, to) - done, after=done)}
    return {"to": to, "unit": q.fit.unit, "trains": trains}


def beyond(q: Question, c: Configuration, times: float, checked: bool) -> list[Notice]:
    """That a plan lies beyond its data by some times, and what to do on its way."""
    low, high = q.fit.support
    if math.log10(times) <= SAME_END or not q.fit.frontier.compared:
        return []
    if q.x <= high:
        return [notice("extrapolated_down", edge=low, times=times, unit=q.fit.unit)]
    first = first_to(q, c)
    way: dict[str, Any] = {"do": "Evaluate the run on its way"}
    if checked:
        way["do"] = "Stop the run if it scores less on its way"
    elif math.log10(q.x / first["to"]) > SAME_END:
        way["do"] = f"Go to {compact(first['to'])} {unit_words(q.fit.unit)} first"
        way["trains"] = first["trains"]
    far: dict[str, Any] = {"edge": high, "times": times, "trust": trust(times)}
    return [notice("extrapolated", unit=q.fit.unit, **far, **way)]


def nearest(
    fit: Reading, n: Sequence[int], chosen: Configuration, x: float
) -> list[Configuration]:
    """The three of some tested n that lie nearest to a choice, at its B_p or their best one."""
    near = sorted(nearest_n(n, chosen.rollouts_per_problem))
    own = [chosen._replace(rollouts_per_problem=m) for m in near]
    best = at_their_best(fit, near, x)
    return [c if c in fit.configurations else b for c, b in zip(own, best, strict=True)]


class Runs(NamedTuple):
    """What a step trains: every B_p with every n of its configurations, and every seed."""

    trains: Effort  # rollouts in all
    seeds: Sequence[int] = (0,)
    to: float | None = None  # rollouts that each run goes to; None: those of a lone one

    @classmethod
    def beside(
        cls, curves: Sequence[Curve], which: Iterable[Configuration], seeds: Sequence[int],
        to: float,
    ) -> Runs:  # fmt: skip
        """Runs to so many rollouts; those that are there go on from where they ended."""
        b_p, n = (sorted(set(values)) for values in zip(*which, strict=True))
        done = {(c.configuration, c.seed): float(c.rollouts_K[-1]) for c in curves}
        every = [Configuration(*pair) for pair in product(b_p, n)]
        trains = {c: Work.between((done.get((c, s), 0.0), to) for s in seeds) for c in every}
        return cls(trains, seeds, to)

    def command(self, file: Extension) -> str:
        """The command of a study that trains these; what its grid has already is left out."""
        b_p, n = (sorted(set(values)) for values in zip(*self.trains, strict=True))
        words, to = [f"isocompute run {file.path}"], self.to or max(self.trains.values())
        if file.of_batches:
            words += _override("batch_size", sorted({c.batch_size for c in self.trains}))
        elif {*b_p} != file.problems_per_batch:
            words += _override("problems_per_batch", b_p)
        words += _override("rollouts_per_problem", n)
        first = list(range(len(self.seeds)))  # which a number says, too
        if [*self.seeds] != first:
            words.append(f"'grid.seeds=[{','.join(map(str, self.seeds))}]'")
        elif len(first) != file.seeds:
            words.append(f"grid.seeds={len(first)}")
        if abs(to - file.rollouts) > ALIKE * to:
            words.append(f"budget={to:.0f}")  # rounded, it would be a batch short
        return " ".join([*words, *(["adaptive=false"] if file.is_adaptive else [])])


def _override(name: str, values: Sequence[int]) -> list[str]:
    if len(values) == 1:
        return [f"grid.{name}={values[0]}"]
    return [f"'grid.{name}=[{','.join(map(str, values))}]'"]


def steps_take(
    q: Question, chosen: Configuration, first: Effort | None, bought: float,
    near: Sequence[Configuration], batch: int,
) -> dict[str, Runs]:  # fmt: skip
    """What the steps train that no notice knows, by code.

    Args:
        first: with one or two n, the run of an untested one that comes first.
        near: the configurations that a step trains on or adds seeds to.
        batch: rollouts of that at which learning rates are tried.
    """
    fit = q.fit
    reach = min(bought, 2 * fit.trained())
    out = dict[str, Runs]()
    if q.of_another_model:
        # As `design` writes it: half of what the sweep may take, but as long as tells rates apart.
        each = int(SHARE * SPEND * bought / (len(FACTORS) * batch))
        rates = len(FACTORS) * min(max(each, LEAST), STEPS) * batch
        out["anchor_assumed"] = Runs({chosen: Work(rates, runs=len(FACTORS))})
    if first is not None:
        out["one_or_two_n"] = Runs(first)
    if q.study is None:
        out["seeds_missing"] = Runs(seeds(fit, near, x=q.x))
        ran = {c: min(fit.trained(c), reach) for c in near}
        out["extrapolated"] = Runs({c: Work(reach - r, after=r) for c, r in ran.items()})
    else:
        known = {c: {r.seed or 0 for r in fit.curves if r.configuration == c} for c in near}
        last, compared = max(map(max, known.values())), max(seeds(fit, near, 1, q.x).values())
        out["seeds_missing"] = Runs.beside(fit.curves, near, [last + 1, last + 2], compared)
        # Those that every one of them has: a command takes the same seeds of all.
        both = sorted(set.intersection(*known.values())) or [0]
        out["extrapolated"] = Runs.beside(fit.curves, near, both, reach)
    out["n_not_told_apart"] = out["seeds_missing"]
    if q.problems:
        asked = GAUGED * float(q.problems)  # of the model as it is before it learns anything
        batches = max(round(asked / chosen.batch_size), 1)
        out["difficulty_assumed"] = Runs({chosen: Work(asked, runs=batches, starts=0)})
    return out


def run_next(
    notices: Sequence[Notice], chosen: Configuration, reach: float, *, spend: float,
    study: Extension | None, contended: Sequence[int], price: Price, instead: Mapping[str, Runs],
    problems: int | None, difficulty: str | None,
    worth: Callable[[str, Effort, Sequence[Effort]], Mapping[str, float | None]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Steps that settle what limits a plan: {"settles": code, "do", "command", "rollouts", "cost"}.

    Args:
        notices: of the plan, the verdict's reason first; its step goes first.
        reach: rollouts to train to, where the data end too soon; no more than `spend`.
        spend: what the plan may spend, in rollouts.
        study: what adds runs to the sweep; None: another trainer made them, and no command of
            isocompute does.
        contended: n that may be best, one or more.
        instead: what a step trains by code, instead of what the notice says.
        problems, difficulty: where they were said.
        worth: of a code, what its step trains and what those before it do: what it can gain, and
            what its price loses.
    """
    there = {one.code for one in notices}
    if "n_not_told_apart" in there:  # the same runs settle both
        there.discard("seeds_missing")
    if "bp_unstable" in there:
        there.discard("bp_untested")
    trains = {one.code: Runs(dict(one.trains)) for one in notices} | {**instead}
    if "law_of_another_model" in there:
        # The sweep of one's own is not designed yet: more runs of that model tell nothing.
        there = {one for one in there if one in _OF_ONES_OWN} | {"anchor_assumed"} & {*trains}
    if "extrapolated" in there:
        # A sweep that is to go as far as the plan would train its run: that is the cheaper check.
        dear = sum(trains["extrapolated"].trains.values()) > SPEND * spend
        if len(contended) < 2 or dear or reach >= 0.99 * spend:
            there.discard("extrapolated")
    words: dict[str, Any] = {
        "contended": ", ".join(map(str, contended)), "reach": compact(reach),
        "spend": plain_rate(spend), "known": _known(price.rates, problems, difficulty),
        "study": (study or NO_STUDY_YET).path,
    }  # fmt: skip
    steps, efforts = list[dict[str, Any]](), dict[str, Effort]()
    for code in sorted(there.intersection(_STEPS), key=list(_STEPS).index):
        do, command, elsewhere = _STEPS[code]
        if study is None and elsewhere is not None:
            do, command = elsewhere, ""
        effort = efforts[code] = trains[code].trains
        to_bp, to_n = next(iter(effort), chosen)
        words |= {"to_bp": to_bp, "to_n": to_n}
        if command == _RUN and study is not None:
            words["run"] = trains[code].command(study)
        rollouts = sum(effort.values()) or None
        steps.append(
            {"settles": code, "do": singular(do.format(**words)),
             "command": command.format(**words), "rollouts": rollouts,
             "cost": price.cost(effort) if rollouts else None}
        )  # fmt: skip
    # One n says nothing of another: however far the plan goes, the next n is the first to train.
    first = notices[0].code if notices else ""
    if "one_or_two_n" in there and first != "steps_assumed":
        first = "one_or_two_n"
    # What is asked for nothing comes before what trains: a rate that the runs had is no test.
    order = ["steps_assumed", *(s["settles"] for s in steps if s["do"] == SAY_RATE), first]
    steps.sort(key=lambda s: order.index(s["settles"]) if s["settles"] in order else len(order))
    paid = list[Effort]()
    for step in steps:
        step |= worth(step["settles"], efforts[step["settles"]], paid)
        paid += [] if in_vain(step) else [efforts[step["settles"]]]
    for step in filter(in_vain, steps):  # they would be paid beside all those
        step |= worth(step["settles"], efforts[step["settles"]], paid)
    return steps


def in_vain(step: Mapping[str, Any]) -> bool:
    """Whether a step costs a run as much score as it can gain, or more."""
    gain, lost = step.get("gain"), step.get("lost")
    return gain is not None and lost is not None and gain <= lost


def _known(rates: Rates, problems: int | None, difficulty: str | None) -> str:
    """What was said of a plan, as options of the design of its sweep."""
    said = {"rollouts-per-gpu-hour": rates.rollouts_per_gpu_hour,
            "usd-per-gpu-hour": rates.usd_per_gpu_hour, "problems": problems}  # fmt: skip
    numbers = "".join(f" --{name} {value:g}" for name, value in said.items() if value is not None)
    return numbers + (f" --difficulty {difficulty}" if difficulty is not None else "")


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
    hour = f"{cost.get('device') or 'GPU'}-hour"
    forms = {"gpu_hours": ("", f" {hour}s"), "usd": ("$", ""), "tokens": ("", " tokens")}
    known = {name: form for name, form in forms.items() if cost[name] is not None}
    low = cost.get("at_least") or {}
    ends = {name: [low.get(name)] * apart(low.get(name), cost[name]) + [cost[name]]
            for name in known}  # fmt: skip
    said = (" to ".join(sign + compact(end) for end in ends[name]) + unit
            for name, (sign, unit) in known.items())  # fmt: skip
    return [f"1 {hour}" if one == f"1 {hour}s" else one for one in said]


def only(cost: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A cost in one of its units alone."""
    known = {one: cost[one] if one == name else None for one in UNITS_PAID}
    return {**known, "at_least": cost.get("at_least"), "device": cost.get("device")}


def grown(
    price: Price, c: Configuration, rollouts: float, cost: Mapping[str, Any]
) -> Notice | None:
    """That the cost of a plan lies between two ends; None where it does not."""
    trend, low = next(iter(price.trends(c, rollouts).values()), None), cost["at_least"]
    if trend is None:
        return None
    name = next(one for one in ("gpu_hours", "tokens") if apart(low[one], cost[one]))
    ends = [amounts({**only(of, name), "at_least": None})[0] for of in (low, cost)]
    stay, go = ends if trend.endswith(("longer", "dearer")) else ends[::-1]
    return notice("cost_grows", trend=trend.capitalize(), stay=stay, go=go)
