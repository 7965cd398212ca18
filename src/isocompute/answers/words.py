"""A plan as text: the answer, then what to do."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.allocation import Rates
from isocompute.answers.half import half_words
from isocompute.domain import Configuration, Notice
from isocompute.domain.notices import takes
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.lr_sweep import SHARE
from isocompute.recipe import RECORDED
from isocompute.trainers import key_lines

WIDTH = 80
_LABEL = 13  # columns of the names at the left
_SCREEN = 15  # lines by default
_FOREGROUND = 3  # steps that are named
# A best n with an interval so wide is not named: beside a choice at one end, it reads as a
# contradiction. At 2 the n of most sweeps would go unnamed, at 8 few of the wide ones are caught.
_OPEN = 4

_RUN, _LR = "isocompute run {study}", "isocompute lr-sweep {study}"
_N, _BP = "grid.rollouts_per_problem=", "grid.problems_per_batch="
# What settles a notice: in words, the command for a study, and in words where the runs are
# another trainer's (None: the same). In the order of what it may change.
_STEPS: Mapping[str, tuple[str, str, str | None]] = {
    "steps_assumed": (
        "check the steps", "", "check that the log's steps are updates"),
    "begins_late": (
        "check the start", "", "check whether the runs went on from another"),
    "one_or_two_n": (
        "train n = {settles}", f"{_RUN} {_N}{{settles}}", "train n = {settles} at B_p = {bp}"),
    "law_of_another_model": (
        "see if a sweep pays", "isocompute design --budget {spend} -o {study}", None),
    "split_untested": (
        "train this split", f"{_RUN} {_BP}{{bp}}", "train {bp} problems x {n} rollouts once"),
    "anchor_assumed": (
        "measure the rate", _LR, "try {rates} at n = {n}, to {quarter} rollouts each"),
    "difficulty_assumed": (
        "gauge difficulty", "isocompute difficulty problems.jsonl --model MODEL", None),
    "capped_by_tested_n": ("test n = {twice}", f"{_RUN} {_N}{{twice}}", "train n = {twice}"),
    "n_at_smallest_tested": ("test n = {half}", f"{_RUN} {_N}{{half}}", "train n = {half}"),
    "seeds_missing": (
        "add two seeds{of}", f"{_RUN} grid.seeds=3{{only}}",
        "train two more seeds of n = {contended}"),
    "bp_unstable": (
        "try a larger B_p", f"{_RUN} {_BP}{{larger}}", "train B_p = {larger} at n = {n}"),
    "extrapolated": (
        "{extend}", f"{_RUN} budget={{budget}}{{only}}",
        "continue n = {contended} to {budget} rollouts{each}"),
    "bp_untested": (
        "try another B_p", f"{_RUN} {_BP}{{larger}}", "train B_p = {larger} at n = {n}"),
}  # fmt: skip
# The steps that are of one's own model and problems, whatever model was swept.
_OF_ONES_OWN = ("law_of_another_model", "anchor_assumed", "difficulty_assumed")
# Of a plan, at most spent on telling its n apart: what a sweep of one's own may cost. Half of it
# leaves most sweeps one doubling, twice of it asks for a third of a budget in two rounds.
SPEND = 0.15
_STUDY = "study.yaml"  # where the file of a study is not known, or not yet written
_RULES = {"model": "this plan", "best_so_far": "best so far", "largest_n": "largest n",
          "next_n": "next n"}  # fmt: skip


def run_next(
    notices: Sequence[Notice], chosen: Configuration, settles: int | None, budget: float, *,
    spend: float = 0.0, study: str | None = _STUDY, contended: Sequence[int] = (),
    learning_rate: float | None = None,
    rates: Rates | None = None, instead: Mapping[str, float] | None = None,
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
        rates: what a rollout costs.
        instead: rollouts of a step by code, instead of those of the notice.
    """
    b_p, n = chosen
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
             "rates": _around(learning_rate),
             "study": study or _STUDY}  # fmt: skip
    known = {one.code: one.rollouts for one in notices} | dict(instead or {})
    if "law_of_another_model" in there:
        # The sweep of one's own is not designed yet: more runs of that model tell nothing.
        there = {one for one in there if one in _OF_ONES_OWN} | {"anchor_assumed"}
        if sweep := known.get("law_of_another_model"):
            known["anchor_assumed"] = sweep * SHARE
    if contended and (len(contended) < 2 or (known.get("extrapolated") or 0.0) > SPEND * spend > 0):
        there.discard("extrapolated")  # the plan's own run is the cheaper check
    codes = [code for code in _STEPS if code in there]
    codes.sort(key=lambda code: code != notices[0].code)
    steps = list[dict[str, Any]]()
    for code in codes:
        do, command, elsewhere = _STEPS[code]
        if study is None and elsewhere is not None:
            do, command = elsewhere, ""
        rollouts = known.get(code)
        cost = (rates or Rates()).cost(rollouts) if rollouts else None
        steps.append(
            {"settles": code, "do": do.format(**words), "command": command.format(**words),
             "rollouts": rollouts, "cost": cost}
        )  # fmt: skip
    return steps


def _around(rate: float | None) -> str:
    """What to try beside a rate: "learning rates 1e-6 and 4e-6"."""
    if rate is None:
        return "half and twice the rate"
    return f"learning rates {plain_rate(rate / 2)} and {plain_rate(2 * rate)}"


def priced_remedy(one: Notice, rates: Rates) -> Notice:
    """A notice whose remedy says hours and money, too, where a rate is known."""
    if not one.rollouts:
        return one
    spent = ", ".join([takes(one.rollouts), *_amounts(rates.cost(one.rollouts))])
    return one._replace(remedy=one.remedy.replace(f"({takes(one.rollouts)})", f"({spent})"))


def step_cost(step: Mapping[str, Any]) -> list[str]:
    """What a step takes, in words, the longest form first: "8.39M rollouts, $23.1k"."""
    if not step.get("rollouts"):
        return ["16 answers a problem" if step.get("settles") == "difficulty_assumed" else ""]
    paid = _amounts(step["cost"])
    money = [one for one in paid if one.startswith("$")]
    return [", ".join([takes(step["rollouts"]), *some]) for some in (paid, money or paid[:1], [])]


def advice_lines(
    document: Mapping[str, Any], trainer: str | None = None, why: bool = False, quiet: bool = False
) -> list[str]:
    """The `plan --json` document as text lines, no colour, at most 80 columns; 15 by default.

    Args:
        document: of a `Plan`.
        trainer: also print this trainer's keys.
        why: also the reasoning and every note.
        quiet: the trainer's keys alone; without one, the first line.

    Raises:
        InputError: for a trainer that the document does not have.
    """
    d = document
    if d["refusal"] is not None:
        lines = _wrapped("No plan: " + d["refusal"]["reason"])
        for step in [] if quiet else d["refusal"]["run_next"]:
            lines += _wrapped(f"Next: {step}")
        return lines + (["", *_notes(d)] if why and not quiet else [])
    keys = [] if trainer is None else _keys(d, trainer)
    if quiet:
        return keys or _run(d)
    sure = f"Confidence: {d['verdict']['level']}. {d['verdict']['reason']}".strip()
    lines = [*_run(d), *_rows(d), "", *_wrapped(sure, lines=2)]
    if why:
        lines += [*_steps(d, len(d["run_next"])), "", *_why(d), "", *_notes(d)]
    else:
        lines += _steps(d, _FOREGROUND, max(_SCREEN - 2 - len(lines), 0))
        more = len(d["notices"]) - (d["verdict"]["level"] != "ok")
        noted = f"{more} more note{'s' * (more != 1)}: --why" if more else "Reasoning: --why"
        lines.append(noted + ("" if trainer else "    Trainer settings: --for verl, --for trl"))
    if trainer is not None:
        lines += ["", f"Settings for {trainer}:", *keys, *_beside(d, trainer)]
    return lines


def plain_rate(value: float) -> str:
    """Two digits, as a study file has them: 2.6e5, 2.8e-6, 85."""
    return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-")


def _run(d: Mapping[str, Any]) -> list[str]:
    n = f"{d['problems_per_batch']} problems x {d['rollouts_per_problem']} rollouts"
    return _wrapped(f"Run: {n} x {d['steps']:,} steps   ({compact(d['rollouts'])} rollouts)")


def _rows(d: Mapping[str, Any]) -> list[str]:
    low, high = d["predicted_score_interval"]
    out = _row("score", f"{d['predicted_score']:.3f} ({low:.3f} to {high:.3f})")
    gain = d["gain"]
    if gain is not None and is_today(d):
        out += _row("gain", "none: this is what you run today")
    elif gain is not None:
        low, high = gain["interval"]
        over = f"your n = {gain['rollouts_per_problem']}"
        if gain["problems_per_batch"] != d["problems_per_batch"]:
            over += f", B_p = {gain['problems_per_batch']}"
        doubts = [] if gain["tested"] else ["untested"]
        doubts += ["may be a loss"] if low <= 0 <= high else []
        aside = ", ".join(doubts)
        out += _row("gain", f"{gain['score']:+.3f} ({low:+.3f} to {high:+.3f}) over {over}", aside)
        paid = ", ".join(_amounts(gain["cost"]))
        low, high = gain["predicted_score_interval"]
        now = f"{gain['predicted_score']:.3f} ({low:.3f} to {high:.3f})"
        out += _row("today", now + (f", {paid}" if paid else ""))
    for one in d["notices"]:
        if one["code"].startswith(("capped_by_m", "capped_by_pr")):
            out += _row("limit", one["text"])
    if others := [str(n) for n in d["as_good"] if n != d["rollouts_per_problem"]]:
        out += _row("as good", "n = " + ", ".join(others))
    if half := half_words(d.get("half")):
        out += _row("half", half)
    if check := d.get("check"):
        low, high = check["interval"]
        said = f"{low:.3f} to {high:.3f} at step {check['step']:,}"
        out += _row("on the way", said, "if lower, stop and fit again")
    if guesses := d["neighbours"][:2]:
        said = ("{rollouts_per_problem}: {gain:+.3f} ({gain_interval[0]:+.3f} to "
                "{gain_interval[1]:+.3f})")  # fmt: skip
        out += _row("untested n", ", ".join(said.format(**row) for row in guesses))
    warm_up = f"{d['recipe']['warmup_steps']} warm-up steps"
    origin = rate_origin(d)
    if origin == "as in the runs" and "warmup_steps" not in d["recorded"]:
        origin = f"rate {origin}"
    out += _row("rate", f"{plain_rate(d['learning_rate'])}, {warm_up}", origin)
    assumed = any(one["code"] == "difficulty_assumed" for one in d["notices"])
    whose = "easy set assumed" if assumed else ""
    if "kl_coef" in d.get("recorded", ()):
        whose = "as in the runs"
    elif d.get("learning_rate_from") == "runs":  # a plan's score is that of the runs' own recipe
        whose = "not in the logs; keep yours"
    out += _row("recipe", _recipe(d["recipe"]), whose)
    spent, whose = _cost(d["cost"])
    # Where the rate comes from says more of a price than its tokens do.
    while len(spent) > 1 and len(_row("cost", ", ".join(spent), whose, cut=False)[0]) > WIDTH:
        spent = spent[:-1]
    return out + _row("cost", ", ".join(spent), whose)


def is_today(d: Mapping[str, Any]) -> bool:
    """Whether a plan is the setting of today."""
    gain = d["gain"] or {}
    return all(name in gain and gain[name] == d.get(name) for name in Configuration._fields)


def rate_origin(d: Mapping[str, Any]) -> str:
    """Where the learning rate of a plan comes from; "" where nobody says."""
    whose = d.get("learning_rate_from")
    if whose != "runs":
        return {None: "", "study": "from your study"}.get(whose, f"{whose}'s; tune yours")
    base = d["recipe"]["base_batch_size"]
    if base == d["batch_size"]:
        return "as in the runs"
    return f"from {plain_rate(d['recipe']['learning_rate'])} at a batch of {compact(base)}"


def _row(name: str, text: str, aside: str = "", *, cut: bool = True) -> list[str]:
    """A named line, with an aside where there is room (or whether there is or not)."""
    line = f"  {name:<{_LABEL - 2}}{text}"
    with_aside = f"{line}   ({aside})" if aside else line
    return [with_aside if not cut or len(with_aside) <= WIDTH else line[:WIDTH]]


def _recipe(r: Mapping[str, Any]) -> str:
    of = (("KL", r["kl_coef"]), ("entropy", r["entropy_coef"]))
    terms = [f"{name} {value:g}" for name, value in of if value]
    return ", ".join([r["objective"].upper(), *(terms or ["no KL", "no entropy bonus"])])


def _amounts(cost: Mapping[str, Any]) -> list[str]:
    hours, usd, tokens = (cost[name] for name in ("gpu_hours", "usd", "tokens"))
    parts = [f"{compact(hours)} GPU-hours"] if hours is not None else []
    parts += [f"${compact(usd)}"] if usd is not None else []
    return parts + ([f"{compact(tokens)} tokens"] if tokens is not None else [])


def _cost(cost: Mapping[str, Any]) -> tuple[list[str], str]:
    """What is spent, tokens last, and where the rate comes from."""
    parts = _amounts(cost)
    found = cost["source"].get("rollouts_per_gpu_hour")
    if found is None:
        return parts or ["not known; give --rollouts-per-gpu-hour"], ""
    return parts, rate_words(found)


def rate_words(found: Mapping[str, Any]) -> str:
    """Where rollouts per GPU-hour come from, and how far off they may be."""
    if found.get("off") is not None:
        return f"your runs' times, within {max(found['off'], 0.01):.0%}"
    whose = {"study": "your study: ", "sweep": "your runs: "}.get(str(found.get("from")), "")
    return f"{whose}{compact(found.get('value'))} rollouts per GPU-hour"


def _steps(d: Mapping[str, Any], most: int, room: float = math.inf) -> list[str]:
    """At most so many steps in so many lines; a command that is too long has one of its own."""
    steps = d["run_next"][:most]
    wide = max((len(step["do"]) for step in steps if step["command"]), default=0)
    rows: list[str] = []
    for i, step in enumerate(steps, 1):
        left = room - len(rows)
        forms = _forms(i, step, wide)
        if i == 1 and left >= 1:
            forms.append(forms[-1][:1])  # without its command, which --why has
        row = next((row for row in forms if len(row) <= left), None)
        if row is None:
            break
        rows += row
    return ["Before you spend:", *rows] if rows else []


def _forms(i: int, step: Mapping[str, Any], wide: int) -> list[list[str]]:
    """A step as lines, the best form first: with its cost, in one line, then in two."""
    costs = [f"   ({cost})" if cost else "" for cost in step_cost(step)]
    one = f"  {i}. {step['do']:<{wide}}   {step['command']}".rstrip()
    whole = [[one + cost] for cost in costs]
    if step["command"]:
        two = [f"  {i}. {step['do']}{cost}" for cost in costs]
        whole += [[line, f"     {step['command']}"] for line in two]
    whole.append([one])
    # A command is never cut; where it is wider than the screen it has a line of its own.
    fitting = [rows for rows in whole if max(map(len, rows)) <= WIDTH]
    return fitting or [whole[-2] if step["command"] else [one]]


def trend_only(d: Mapping[str, Any]) -> bool:
    """Whether the choice stands out of the trend over n that the interval speaks of."""
    return any(row["code"] == "outside_interval" for row in d.get("notices") or ())


def best_n_words(d: Mapping[str, Any]) -> str:
    """The best n at a plan's budget with its interval; as a trend where the choice lies outside."""
    best, wide = d["rollouts_per_problem_law"], d["rollouts_per_problem_interval"]
    first, last = d.get("law", {}).get("tested") or (0, math.inf)

    def said(n: float) -> str:
        """An n; where the interval ends with those tested, the truth may lie beyond."""
        edge = " or more" if n > last * 0.99 else " or fewer" if 1 < n < first * 1.01 else ""
        return f"{n:.0f}{edge}"

    low, high = (said(v) for v in wide or (best, best))
    if wide and wide[1] >= _OPEN * wide[0] and not trend_only(d):
        return f"The best n at this budget may be any from {low} to {high}."
    of = "The trend over n peaks at" if trend_only(d) else "Best n at this budget:"
    if low == high or not wide:
        return f"{of} {said(best)}."
    open_ = said(best) == high and high.endswith("more")
    known = f"at least {low}" if open_ else f"{low} to {high}"
    return f"{of} {said(best)} ({known})."


def _why(d: Mapping[str, Any]) -> list[str]:
    n, law = d["rollouts_per_problem"], d["law"]
    by = " by what its neighbours say" if d["chosen_by"] == "neighbours" else ""
    low, high = map(compact, law["support"])
    said = [
        f"Why n = {n}: it scores best within your limits{by}. Expected loss against the true "
        f"best: {d['expected_regret']:.3f}.",
        f"{best_n_words(d)} Still in contention: n = {', '.join(map(str, d['confidence_set']))}.",
        f"All n were compared from {low} to {high} {law['unit']}.",
    ]
    if d["passes_over_data"] is not None:
        said.append(f"Passes over your problems: {compact(d['passes_over_data'])}.")
    for name, row in d["rules"].items():
        lost = "" if row["lost"] is None else f"; lost {row['lost']:.3f} in the back-test"
        pair = Configuration(row["problems_per_batch"], row["rollouts_per_problem"])
        said.append(f"  {_RULES[name]:<13}{pair}, score {row['score']:.3f}{lost}")
    said += (d["printed_law"] or {}).get("sentences", ())
    return [line for one in said for line in _wrapped(one)]


def _notes(d: Mapping[str, Any]) -> list[str]:
    """Every notice in full."""
    said = (f"{x['level']}: {x['text']} {x['remedy']} [{x['code']}]" for x in d["notices"])
    return [line for one in said for line in _wrapped(one)]


def _keys(d: Mapping[str, Any], trainer: str) -> list[str]:
    if trainer not in d["trainer"]:
        raise InputError(
            f"a trainer must be one of {', '.join(d['trainer'])}, but got {trainer!r}; "
            "choose one of them."
        )
    return key_lines(d["trainer"][trainer])


def recipe_unsaid(d: Mapping[str, Any]) -> str:
    """What the keys of a trainer hold that no run recorded; "" where a recipe is not the runs'."""
    if d.get("learning_rate_from") != "runs" or set(d["recorded"]) >= set(RECORDED):
        return ""
    told = ", ".join(name.replace("_", " ") for name in d["recorded"])
    return (f"Of the recipe your logs hold only: {told}. The other settings here are the usual "
            "ones: keep your own.")  # fmt: skip


def _beside(d: Mapping[str, Any], trainer: str) -> list[str]:
    """What to know beside the keys: units, what they do not say, and who trained with them."""
    left = d["trainer_not_set"][trainer]
    version = d["trainer_trained"][trainer]
    said = [
        recipe_unsaid(d),
        d["trainer_units"][trainer],
        f"Not set for this trainer: {', '.join(left)}." if left else "",
        f"Trained here with {trainer} {version}." if version else
        f"Read in {trainer}'s source, not trained here: check the first steps of a run.",
    ]
    return [f"# {line}" for one in said for line in textwrap.wrap(
        one, WIDTH - 2, break_on_hyphens=False)]  # fmt: skip


def _wrapped(text: str, lines: int | None = None) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False,
                         max_lines=lines, placeholder=" ...")  # fmt: skip
