"""What to run before a plan is paid for: steps in words and commands, with what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.allocation import Rates
from isocompute.answers.price import Price
from isocompute.domain import Configuration, Effort, Notice
from isocompute.domain.notices import takes
from isocompute.domain.text import compact
from isocompute.lr_sweep import SHARE

_RUN, _LR = "isocompute run {study}", "isocompute lr-sweep {study}"
_N, _BP = "grid.rollouts_per_problem=", "grid.problems_per_batch="
# What settles a notice: in words, the command for a study, and in words where the runs are
# another trainer's (None: the same). In the order of what it may change.
_STEPS: Mapping[str, tuple[str, str, str | None]] = {
    "steps_assumed": (
        "check the steps", "", "check that the log's steps are updates"),
    "gpus_scaled": (
        "time ten updates", "", "time ten updates on the GPUs of the plan"),
    "one_or_two_n": (
        "train n = {settles}", f"{_RUN} {_N}{{settles}}",
        "train {bp} problems x {settles} rollouts"),
    "law_of_another_model": (
        "see if a sweep pays, and which n to take if not",
        "isocompute design --budget {spend}{known} -o {study}", None),
    "split_untested": (
        "train this split", f"{_RUN} {_BP}{{bp}}", "train {bp} problems x {n} rollouts once"),
    "anchor_assumed": (
        "measure the lr", _LR, "try {rates}, {quarter} rollouts each"),
    "difficulty_assumed": (
        "gauge difficulty", "isocompute difficulty problems.jsonl --model MODEL", None),
    "capped_by_tested_n": (
        "test n = {twice}", f"{_RUN} {_N}{{twice}}", "train {bp} problems x {twice} rollouts"),
    "won_by_batch": (
        "test the batch", f"{_RUN} {_BP}{{wide}} {_N}{{narrow}}",
        "train {wide} problems x {narrow} rollouts"),
    "n_at_smallest_tested": (
        "test n = {half}", f"{_RUN} {_N}{{half}}", "train {bp} problems x {half} rollouts"),
    "seeds_missing": (
        "add two seeds{of}", f"{_RUN} grid.seeds=3{{only}}",
        "train two more seeds of n = {contended}"),
    "bp_unstable": (
        "try a larger B_p", f"{_RUN} {_BP}{{larger}}", "train {larger} problems x {n} rollouts"),
    "extrapolated": (
        "{extend}", f"{_RUN} budget={{budget}}{{only}}",
        "continue n = {contended} to {budget} rollouts{each}"),
    "bp_untested": (
        "try another B_p", f"{_RUN} {_BP}{{larger}}",
        "train {larger} problems x {n} rollouts"),
}  # fmt: skip
# Steps that lean on the plan's screen, the line `lr` and the command below them, for those who
# do not see it.
_IN_FULL = {
    "measure the lr": "measure the learning rate",
    "see if a sweep pays, and which n to take if not":
        "ask if a sweep of your own pays, and which n to take if not",
}
# The steps that are of one's own model and problems, whatever model was swept.
_OF_ONES_OWN = ("law_of_another_model", "anchor_assumed", "difficulty_assumed")
# Those that add runs to the sweep.
_NO_RUNS = (*_OF_ONES_OWN, "steps_assumed", "gpus_scaled")
OF_THE_SWEEP = tuple(code for code in _STEPS if code not in _NO_RUNS)
# Of a plan, at most spent on telling its n apart: what a sweep of one's own may cost. Half of it
# leaves most sweeps one doubling, twice of it asks for a third of a budget in two rounds.
SPEND = 0.15
_STUDY = "study.yaml"  # where the file of a study is not known, or not yet written

def run_next(
    notices: Sequence[Notice], chosen: Configuration, settles: int | None, budget: float, *,
    spend: float = 0.0, study: str | None = _STUDY, contended: Sequence[int] = (),
    learning_rate: float | None = None,
    price: Price | None = None, instead: Mapping[str, Effort] | None = None,
    problems: int | None = None, difficulty: str | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Steps that settle what limits a plan: {"settles": code, "do", "command", "rollouts", "cost"}.

    Args:
        notices: of the plan, the verdict's reason first; its step goes first.
        chosen: the prescription.
        settles: of one or two n, the untested one that tells most.
        budget: to train to, where the data end too soon.
        spend: what the plan may spend, in rollouts.
        study: the study file to extend; None: another trainer made the runs, and no command of
            isocompute adds to them.
        contended: n that may be best, as they are named; empty: all that were tested.
        learning_rate: of the prescription.
        price: what rollouts cost.
        instead: what a step trains by code, instead of what the notice says.
        problems, difficulty: where they were said.
    """
    (b_p, n), price = chosen, price or Price()
    short = min(spend, budget) or budget
    there = {one.code for one in notices}
    named, listed = ", ".join(map(str, contended)), ",".join(map(str, contended))
    only = f" '{_N}[{listed}]'" if len(contended) > 1 else f" {_N}{listed}" if contended else ""
    words = {"settles": settles, "only": only, "of": f" of n = {named}" if contended else "",
             "extend": f"continue n = {named}" if contended else "extend the sweep",
             "each": " each" if len(contended) > 1 else "",
             "bp": b_p, "n": n, "larger": 2 * b_p, "twice": 2 * n,
             "half": max(n // 2, 1), "contended": named or n,
             "budget": compact(budget) if study is None else plain_rate(budget),
             "spend": plain_rate(spend), "quarter": compact(short / 4),
             "rates": _around(learning_rate), "known": _known(price.rates, problems, difficulty),
             "study": study or _STUDY}  # fmt: skip
    wide = next((c for one in notices if one.code == "won_by_batch" for c, _ in one.trains), chosen)
    words |= dict(zip(("wide", "narrow"), wide, strict=True))
    trains = {one.code: dict(one.trains) for one in notices} | dict(instead or {})
    known = {code: sum(of.values()) for code, of in trains.items()}
    if "law_of_another_model" in there:
        # The sweep of one's own is not designed yet: more runs of that model tell nothing.
        there = {one for one in there if one in _OF_ONES_OWN} | {"anchor_assumed"}
        if sweep := trains.pop("law_of_another_model", None):  # to ask is free
            trains["anchor_assumed"] = {c: SHARE * rollouts for c, rollouts in sweep.items()}
    dear = known.get("extrapolated", 0.0) > SPEND * spend > 0
    # A sweep that is to go as far as the plan would train its run: that is the cheaper check.
    if contended and (len(contended) < 2 or dear or budget >= 0.99 * spend > 0):
        there.discard("extrapolated")
    codes = [code for code in _STEPS if code in there]
    codes.sort(key=lambda code: code != notices[0].code)
    steps = list[dict[str, Any]]()
    for code in codes:
        do, command, elsewhere = _STEPS[code]
        if study is None and elsewhere is not None:
            do, command = elsewhere, ""
        effort = trains.get(code, {})
        rollouts = sum(effort.values()) or None
        cost = price.cost(effort) if rollouts else None
        steps.append(
            {"settles": code, "do": do.format(**words), "command": command.format(**words),
             "rollouts": rollouts, "cost": cost}
        )  # fmt: skip
    return steps


def in_full(step: Mapping[str, Any]) -> str:
    """What a step says to do, to readers who do not see the plan's screen."""
    do = str(step.get("do") or "")
    return _IN_FULL.get(do, do)


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


def step_cost(step: Mapping[str, Any]) -> list[str]:
    """What a step takes, in words, the longest form first: "8.39M rollouts, $23.1k"."""
    if not step.get("rollouts"):
        return ["16 answers a problem" if step.get("settles") == "difficulty_assumed" else ""]
    paid = amounts(step["cost"])
    money = [one for one in paid if one.startswith("$")]
    spent = takes(step["rollouts"])
    if step.get("settles") == "extrapolated":  # beside the budget to which each is trained
        spent = f"{spent.removesuffix(' rollouts')} more"
    forms = [", ".join([spent, *some]) for some in (paid, money or paid[:1])]
    return [*forms, *(money or paid[:1]), spent]


def plain_rate(value: float) -> str:
    """Two digits, as a study file has them: 2.6e5, 2.8e-6, 85."""
    return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-")


def amounts(cost: Mapping[str, Any]) -> list[str]:
    """A cost in words: "1,110 GPU-hours", "$2,776", "4M tokens"; what is not known is left out."""
    hours, usd, tokens = (cost[name] for name in ("gpu_hours", "usd", "tokens"))
    said = compact(hours)
    parts = [f"{said} GPU-hour{'s' * (said != '1')}"] if hours is not None else []
    parts += [f"${compact(usd)}"] if usd is not None else []
    return parts + ([f"{compact(tokens)} tokens"] if tokens is not None else [])
