"""What limits an answer: one table of codes, each with its level, what is wrong, what to do.

A new notice is one line of the table. Fields in braces are filled by `notice`; `:k` writes a count
as `text.compact` does, a list is written with commas, six of it at most. `{takes}` is what the
remedy costs, " (1.2M rollouts)", or nothing where that is not known.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from isocompute.domain.curve import Configuration, Effort
from isocompute.domain.text import compact, singular, some_of, takes, unit_words

Level = Literal["stop", "caution", "note"]  # no plan; confidence is lower; good to know
LISTED = 6  # of a list that is said


class Template(NamedTuple):
    """A notice before its fields are filled."""

    level: Level
    text: str
    remedy: str

    @property
    def fields(self) -> set[str]:
        """Names of the fields; a cost is never required."""
        parsed = string.Formatter().parse(self.text + self.remedy)
        return {name for _, name, _, _ in parsed if name and name != "takes"}


_stop, _caution, _note = (partial(Template, level) for level in get_args(Level))

TABLES: Mapping[str, Mapping[str, Template]] = {
    "Of a fit": {
        "no_skill": _stop(
            "The fit failed its own test: it predicts held-out scores worse than assuming no "
            "change (skill {skill:.2f}).",
            "Train one run of {which} {how}{takes}, then fit again."),
        "intervals_widened": _caution(
            "Too many held-out scores missed their intervals: beyond the data, intervals are now "
            "{times:.1f} times as wide.",
            "Plan for at most {at:k} {unit}, where all n were compared."),
        "intervals_missed": _stop(
            "The fit failed its own test: {share:.0%} of {n_held_out} held-out scores lay inside "
            "their {level:.0%} intervals.",
            "Train one run of {which} {how}{takes}, then fit again."),
        "nothing_held_out": _caution(
            "The sweep is too short for a back-test: how well the fit predicts is not known.",
            "Evaluate every run at 6 budgets or more, evenly in the logarithm."),
        "scores_fall": _stop(
            "Scores fall instead of rising: {fallen} end lower than they began.",
            "If these scores are losses, use 1 - loss as the score. Otherwise train {which} again "
            "at half the learning rate, for a quarter of its steps{takes}."),
        "scores_flat": _stop(
            "No run learned, as far as can be told: none ends clearly above its start{hidden}.",
            "{more}Try {rates} rates (`isocompute lr-sweep`), or easier problems (`difficulty`)."),
        "steps_assumed": _caution(
            "The step of the tracker is taken for updates, but it may count calls of `log`.",
            "Compare it with your trainer's steps. If they agree, read the log with "
            "`--set step=_step`; if not, name the key that counts updates."),
        "prompts_trained_on": _caution(
            "{share:.0%} of the validation prompts were trained on: scores are too high for new "
            "problems.",
            "Hold some out (`held_out`) in a new folder, or say `allow: [shared_prompts]`."),
        "settings_follow_n": _caution(
            "Not n alone: {settings}. What looks like the work of n may be that.",
            "Compare runs of one value (--where {where}), or train the others again with it."),
        "seeds_missing": _caution(
            "{what} one run: the spread from seed to seed is {spread}.",
            "Train two more seeds of {which}{takes}."),
        "few_seeds": _note(
            "Fewer than 3 runs of {which}: the spread between them is taken from other runs.",
            "Train more seeds, to three of each{takes}."),
        "seed_repeated": _note(
            "Several runs of {which} say the same seed, and count as several seeds.",
            "If one of them was a new start of another, move the log of the other away."),
        "one_or_two_n": _caution(
            "Nothing but n = {which} was tested: scores of other n are a guess from other sweeps.",
            "Train n = {wanted} once{takes}."),
        "n_confounded_with_batch": _note(
            "Each n was tested at one B_p, so n and the batch size cannot be told apart.",
            "Train two of the n at a second B_p{takes}."),
        "n_not_told_apart": _caution(
            "n = {which} are not told apart at {at:k} {unit}: any of them may be best.",
            "Take n = {good}, or train two more seeds of {all_of_them}{takes}."),
        "never_compared": _caution(
            "At no budget do all n have scores: {why}. What one gains over another is the model's "
            "guess.",
            "Continue {first}{takes}{more}."),
        "optimum_at_edge": _caution(
            "The best n at {at:k} {unit} is {n}, the {end} tested: the true best may lie beyond.",
            "Train n = {beyond} once{takes}."),
        "rise_not_claimed": _caution(
            "The best n rises {times}, but noise alone may explain that.",
            "Train two more seeds of {those}{takes}."),
        "falling": _caution(
            "The best n falls {times} as the budget grows.",
            "Spend a larger budget on more steps of n = {n}."),
        "non_monotone": _note(
            "The best n goes up and down by more than noise, so no sigmoid fits it.",
            "Read the best n off the table."),
        "slope_not_identified": _note(
            "The law is nearly a step, so its slope k is not known.",
            "Compare laws by n*(C), not by k."),
        "ceiling_unbounded": _note(
            "Scores of {which} still rise at the last evaluation: their ceiling is not known.",
            "Train further until these curves bend."),
        "falls_after_peak": _caution(
            "Scores end below an earlier level: {which}; the best checkpoint so far counts.",
            "Keep each run's best checkpoint, and stop there."),
        "overfitting": _caution(
            "Validation falls while training does not: {which}; at worst by {lost}, from "
            "{at:k} {unit} on.", "Stop these runs there, or train on more problems."),
        "unhealthy_run": _caution(
            "{which}. Only the scores before that count.",
            "Train {again} again{takes}; entropy, KL and length show where it broke."),
        "rate_fell": _caution(
            "The learning rate fell to {left} of its peak: {which}. Scores level off as it "
            "falls, so a longer run may reach more than is said here.",
            "Sweep at a constant rate."),
        "failed_health": _caution(
            "{n_failed} of {n_runs} runs failed a health rule: {which}.",
            "{advice} Then train them again{takes}."),
        "not_smooth": _caution(
            "{n_rough} of {n_runs} runs are too rough for a curve: {which}.",
            "Evaluate their checkpoints on four times as many problems: that halves the noise."),
        "stopped_early": _note(
            "Ended before half the largest budget: {which}.", "Continue only n that may win."),
        "budgets_not_shared": _note(
            "Beyond {at:k} {unit} not every n can be compared: the runs of {which} {end} by then.",
            "Train these further."),
        "configuration_left_out": _caution(
            "{which} was left out: {why}.", "Evaluate it after step 0, too, at 3 budgets or more."),
        "runs_mixed": _caution(
            "{n_rows} rows give a run a second score at the same rollouts: several runs seem to "
            "share a name.", "Add a column `seed` or `run` that tells them apart."),
        "scores_missing": _note(
            "{n_rows} rows without a score were left out.", "If these are many, fix the export."),
        "unequal_evaluations": _note(
            "Scores rest on {fewest} to {most} outcomes, so some are noisier than others.",
            "Evaluate all runs alike."),
        "noise_estimated": _note(
            "How many outcomes a score rests on is not known: noise is estimated from "
            "neighbouring scores.", "Import logs that hold counts, or run a study."),
    },
    "Of a plan": {
        "score_unknown": _stop(
            "The score of {which} at {at:k} {unit} is not known: {low:.2f} to {high:.2f}.",
            "Train one run of it to {to:k} {unit} first{takes}, or plan for {smaller} and go on "
            "from there."),
        "broke_before": _stop(
            "{which}: nobody knows what a longer run scores.",
            "Plan for at most {smaller:k} rollouts, or train {last} again at half the learning "
            "rate{takes}."),
        "extrapolated": _caution(
            "All n were compared only up to {edge:k} {unit}. This plan is {times:k} times "
            "that{trust}.", "{do}{takes}, and fit again."),
        "extrapolated_down": _caution(
            "All n were compared only from {edge:k} {unit} on; this is {times:k} times less.",
            "Plan for {edge:k} {unit} or more, or evaluate the runs earlier."),
        "bp_untested": _caution(
            "Only B_p = {bp} was tested at n = {n}; another may score higher.",
            "Train B_p = {other} there once{takes}."),
        "split_untested": _caution(
            "B_p = {bp} was never tested at n = {n}: its score is a guess from its neighbours.",
            "Train this split for one run{takes}."),
        "bp_unhealthy": _caution(
            "B_p = {bp} at n = {n} {rules}, so the plan takes B_p = {taken}.",
            "Stay with B_p = {taken}."),
        "bp_unstable": _caution(
            "B_p = {bp} at n = {n} {rules}, and no larger B_p was tested.",
            "Train B_p = {other} there once{takes}."),
        "law_of_another_model": _caution(
            "Not your data: {source} is a sweep of {model}; the best n of your model may differ.",
            "Ask `isocompute design --budget BUDGET -o study.yaml` if a sweep of yours pays, and "
            "which n to take without one: it allows for other models."),
        "difficulty_assumed": _note(
            "No difficulty was given: the recipe for an easy set is used.",
            "Measure it with `isocompute difficulty` (16 answers a problem), pass --difficulty."),
        "anchor_assumed": _caution(
            "The learning rate comes from {model}, not from your runs.",
            "Say it when you import (--set learning_rate=1e-6), as a column `learning_rate` of a "
            "table, or measure it: `isocompute lr-sweep study.yaml` (seven runs)."),
        "settings_differ": _caution(
            "The runs were trained with several values of {which}; the plan takes those of "
            "{problems_per_batch} x {rollouts_per_problem}.",
            "Keep runs of one value: --where {where}."),
        "rates_without_a_rule": _caution(
            "The runs' learning rates follow no rule of the batch size: {which} rollouts.",
            "Compare n at rates that follow the square root of the batch: train again those that "
            "do not."),
        "one_rate": _caution(
            "Batches of {low:k} to {high:k} rollouts were all trained at a learning rate of "
            "{rate:g}: larger n may gain from a higher one, smaller n from a lower.",
            "Train n = {n} once at half and once at twice the rate{takes}."),
        "recipes_mixed": _caution(
            "This study has several recipes; the plan uses the usual one for the difficulty.",
            "Plan from one recipe: --where recipe=NAME."),
        "passes_over_data": _note(
            "This budget takes {passes:k} passes over {problems:k} problems.",
            "Add problems, or watch for overfitting."),
        "problems_fewer": _caution(
            "{problems:k} problems are far fewer than the sweep's {known:k}; smaller n may win.",
            "Sweep yours: `isocompute design --problems {problems:.0f}`."),
        "capped_by_max_batch": _note(
            "{limit:k} rollouts per batch limit n to {n} instead of {wanted}: {cost}.",
            "Raise --max-batch, or accept the cost."),
        "capped_by_min_steps": _note(
            "At least {limit:k} steps limit n to {n} instead of {wanted}: {cost}.",
            "Raise the budget, or lower --min-steps."),
        "capped_by_problems": _note(
            "{limit:k} problems limit n to {n} instead of {wanted}: {cost}.",
            "Add problems, or accept the cost."),
        "capped_by_n": _note(
            "You asked for n = {asked}: n = {wanted} would score {more} more.",
            "Leave --n out, or accept the cost."),
        "capped_by_broken": _note(
            "n = {wanted} may score {more} more, but no run came past step {step:,}.",
            "Train it again at half the learning rate{takes}."),
        "won_by_batch": _caution(
            "At equal rollouts n = {other} scores best: n = {n} wins because larger batches make "
            "more rollouts an hour.",
            "Train {bp} problems x {other} rollouts once{takes}: a batch as large at that n."),
        "capped_by_tested_n": _caution(
            "n = {n} is the largest tested and scores best: larger n may gain.",
            "Train n = {other} once{takes}."),
        "n_at_smallest_tested": _caution(
            "n = {n} is the smallest tested and scores best: smaller n may gain.",
            "Train n = {other} once{takes}."),
        "fixed_batch_law_missing": _note(
            "No two n were tested at a batch of {batch:k}: n is chosen by its predicted score.",
            "Sweep n at that batch."),
        "gpus_scaled": _caution(
            "Times were measured on {known}. On {gpus}, {how}: no run has shown it.",
            "Time ten updates of the plan on {gpus} GPUs, then pass --rollouts-per-gpu-hour."),
        "cost_grows": _note(
            "{trend} in your runs: the plan costs {stay} if they stay so, {go} if that goes on.",
            "Count on the larger."),
        "tokens_measured": _note(
            "Tokens are counted at {tokens:k} per rollout, as in the sweep.",
            "Pass --tokens-per-rollout if yours differ."),
    },
    "Of a design": {
        "no_sweep": _note(
            "No sweep within this budget surely gains: run n = {n}.",
            "Raise --budget, or write one all the same with --sweep."),
        "passes_beyond_prior": _caution(
            "{passes:k} passes over {problems:k} problems; {whose} made {known:k} at most at n = "
            "{n}.",
            "Add problems, or stop at the peak."),
        "problems_fewer_than_prior": _caution(
            "{problems:k} problems are far fewer than {whose}' {known:k}; smaller n may win.",
            "Trust a sweep on yours (--sweep) more than this worth."),
        "bp_of_prior": _caution(
            "Nothing is known of B_p = {bp}: losses are those of B_p = {known}.",
            "{do} for that B_p."),
        "rate_of_another_batch": _caution(
            "Your rate may not hold for batches of {batch:k} rollouts, far {than} than {whose}' "
            "({low:k} to {high:k}): an update keeps fixed seconds.",
            "Time ten updates of that batch."),
        "rates_unpaid": _caution(
            "The learning rate is {whose}, {rate}: to try seven would take {share} of the budget, "
            "more than a sweep may ({spend}).",
            "Set recipe.learning_rate to that of a run of yours, or raise --spend."),
        "bp_of_problems": _note(
            "B_p = {bp}, the most that {problems} problems fill; losses are of B_p = {known}.",
            "Add problems."),
        "beyond_prior": _caution(
            "The budget is {times:.0f} times the longest published run.",
            "Treat the worth as a guess; sweep a smaller budget first."),
        "deadline_binds": _note(
            "Time binds: in {hours:g} hours {gpus} GPUs train {share:.0%} of --budget.",
            "Add GPUs or hours to spend it all."),
        "plan_refuses": _caution(
            "No plan is made of this run: {why}.", "Or take the sweep: --sweep."),
        "prior_of_others": _caution(
            "For a model unlike {model} guess and sweep were not told apart (both lost {lost}).",
            "A sweep tells which n is best for your model."),
        "prior_alone": _note(
            "No difficulty was given: easy and hard sets are simulated; the recipe is for easy.",
            "The best n depends on it: run `isocompute difficulty`, pass --difficulty."),
        "difficulty_of_file": _note(
            "The problems are {difficulty} by the pass rates in --train (mean {rate:.3g}).",
            "Override by --difficulty."),
        "difficulty_against_file": _caution(
            "Pass rates in --train say {found} (mean {rate:.3g}); you said {difficulty}.",
            "Drop --difficulty."),
        "few_validation": _caution(
            "Only {problems} problems validate: an evaluation is off by {noise:.2f} (1 sigma).",
            "Use {wanted} or more."),
        "longer_responses": _note(
            "Responses are cut at {limit:,} tokens, twice your mean or more.",
            "Model and GPUs must hold them."),
        "stand_ins": _caution(
            "The study file has placeholders for {what}.", "Pass {options}, or edit it."),
    },
    "Of a comparison": {
        "seeds_unpaired": _note(
            "The sides do not share all seeds: means are compared, and intervals are wider.",
            "Use the same seeds on both sides."),
        "no_interval": _caution(
            "One configuration with a single run on a side: no interval can be given.",
            "Train two more seeds on each side."),
        "problems_differ": _caution(
            "A and B validate on different problems ({names}): part of a difference is theirs.",
            "Validate both on the same problems."),
    },
    "Of a learning-rate sweep": {
        "anchor_at_edge": _caution(
            "The best rate, {rate:g}, is the {end} tried: a better one may lie beyond.",
            "Extend the grid: {command}"),
        "probe_in_warm_up": _caution(
            "Runs of {steps} updates, {warm_up} of them warm-up: a healthy rate may break later.",
            "Try {least} updates or more: `budget={budget}`."),
    },
    "Of a problem set": {
        "responses_cut": _caution(
            "{share:.0%} of the responses were cut off: pass rates may be too low.",
            "Raise --max-new-tokens."),
        "little_left": _caution(
            "The mean pass rate is {rate:.3g}: little is left to learn.", "Bring harder problems."),
        "between_bands": _caution(
            "The mean pass rate, {rate:.3g}, lies between hard (to {hard:g}) and easy ({easy:g}).",
            "Train with and without KL and entropy bonus, and compare."),
    },
}  # fmt: skip

NOTICES: Mapping[str, Template] = {
    code: template for table in TABLES.values() for code, template in table.items()
}


class Notice(NamedTuple):
    """One limit of an answer: stable code, level, what is wrong, what to do."""

    code: str
    level: Level
    text: str
    remedy: str
    rollouts: float | None = None  # what the remedy takes, where that is known
    trains: tuple[tuple[Configuration, float], ...] = ()  # the same by configuration


class _Words(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if spec == "k":
            return compact(value)
        if isinstance(value, list):
            return some_of(map(str, value), LISTED)
        text = str(super().format_field(value, spec))
        return text.replace("e-0", "e-") if spec == "g" else text  # a rate of 1e-6


def notice(code: str, *, trains: Effort | None = None, **values: Any) -> Notice:
    """The notice of a code with its fields filled; exactly those of the table must be given.

    The remedy says what it `trains` where it has a place for that.
    """
    template = NOTICES[code]
    assert set(values) == template.fields, f"{code} has the fields {sorted(template.fields)}"
    if "unit" in values:
        values["unit"] = unit_words(values["unit"])
    by = tuple((trains or {}).items())
    rollouts = sum(each for _, each in by) or None
    values["takes"] = f" ({takes(rollouts)})" if rollouts else ""
    text, remedy = (singular(_Words().format(part, **values)) for part in template[1:])
    return Notice(code, template.level, text, remedy, rollouts, by)


def ordered(notices: Iterable[Notice]) -> list[Notice]:
    """Stops, cautions, notes, each in the order given and once."""
    return sorted(dict.fromkeys(notices), key=lambda one: get_args(Level).index(one.level))


def documented(notices: Iterable[Notice]) -> dict[str, list[dict[str, str]]]:
    """The keys of a document: `notices`, in order, and `warnings`, their alias of version 1."""
    rows = ordered(notices)
    return {"notices": [{k: v for k, v in one._asdict().items() if k != "trains"} for one in rows],
            "warnings": as_warnings(rows)}  # fmt: skip


def says(document: Mapping[str, Any], code: str) -> bool:
    """Whether a document of a fit, plan or design has a notice."""
    return any(one["code"] == code for one in document.get("notices") or ())


def as_warnings(notices: Iterable[Notice]) -> list[dict[str, str]]:
    """`warnings` of a document, version 1: code and message of each."""
    return [{"code": one.code, "message": f"{one.text} {one.remedy}"} for one in notices]
