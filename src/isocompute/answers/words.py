"""A plan as text: the answer, then what to do."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.around import known_words
from isocompute.answers.assumed import recipe_unsaid, unsaid_of_runs
from isocompute.answers.beside import lead_words, less_words, open_words, passes_words
from isocompute.answers.broke import fell_words, trained_words
from isocompute.answers.frontier import SAME_END
from isocompute.answers.logged import as_logged, score_text
from isocompute.answers.machines import clock_words
from isocompute.answers.prescribe import AS_GOOD
from isocompute.answers.step_lines import (
    checks,
    cost_words,
    evaluations_words,
    is_in_tokens,
    note_lines,
    other_amounts,
    step_lines,
    too_dear_lines,
    wrapped,
)
from isocompute.answers.steps import OF_THE_SWEEP, WIDTH, amounts, plain_rate
from isocompute.answers.target import target_words
from isocompute.answers.worth import FURTHER, check_words
from isocompute.domain import Configuration, says
from isocompute.domain.text import ROOM, compact, singular, unit_words
from isocompute.errors import InputError
from isocompute.trainers import key_lines

_SCREEN = 15  # lines by default
# Rows that give way until so many steps have room, the first to go first.
_GIVE_WAY = (("", 2), ("untested n", 2), ("best", 2), ("today", 1), ("for less", 1), ("stop if", 1),
             ("data", 1), ("as good", 1), ("recipe", 1))  # fmt: skip
_FOREGROUND = 3  # steps that are named
_LIMITS = ("capped_by_max_batch", "capped_by_min_steps", "capped_by_problems", "capped_by_n",
           "capped_by_broken")  # fmt: skip
NO_GAIN = "none: this is what you run today"
TOO_DEAR = "nothing: every check costs more than it can gain"

_RULES = {"model": "this plan", "best_so_far": "best so far", "largest_n": "largest n",
          "next_n": "next n", "paper": "the paper's"}  # fmt: skip


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
    d = as_logged(document)
    if d["refusal"] is not None:
        lines = wrapped("No plan: " + d["refusal"]["reason"])
        for step in [] if quiet else d["refusal"]["run_next"]:
            lines += wrapped(f"Next: {step}")
        return lines + (["", *note_lines(d)] if why and not quiet else [])
    keys = [] if trainer is None else _keys(d, trainer)
    if quiet:
        return keys or _run(d)
    sure = f"Confidence: {d['verdict']['level']}. {d['verdict']['reason']}".strip()
    rows = [*_run(d), *_rows(d)]
    if why:
        first = checks(d)
        lines = [*rows, "", *wrapped(sure), *step_lines(first, d), *too_dear_lines(d, first)]
        lines += ["", *_why(d), "", *note_lines(d)]
    else:
        lines = _screen(d, rows, sure, trainer)
    if trainer is not None:
        lines += ["", f"Settings for {trainer}:", *keys, *_beside(d, trainer)]
    return lines


def _screen(d: Mapping[str, Any], rows: list[str], sure: str, trainer: str | None) -> list[str]:
    """The answer in 15 lines; rows give way to the steps that are worth taking first."""
    first = checks(d)[:_FOREGROUND]
    for label, wanted in _GIVE_WAY:
        rows = [row for row in rows if not (label and row.startswith(f"  {label}"))]
        # A long reason takes the room of steps, but for one.
        lines = [*rows, "", *wrapped(sure, lines=max(2, _SCREEN - 4 - len(rows)))]
        steps = step_lines(first, d, max(_SCREEN - 2 - len(lines), 0))
        fits = len(lines) + len(steps) < _SCREEN
        if fits and (not first or any(
                row.startswith(f"  {min(len(first), wanted)}. ") for row in steps)):
            break
    lines += steps
    if len(lines) < _SCREEN - 1 and any(one["settles"] in OF_THE_SWEEP for one in first):
        lines.append("Then plan again, with the new runs beside the old ones.")
    dear = any(one["settles"] in OF_THE_SWEEP and one not in first for one in d["run_next"])
    if dear and len(lines) < _SCREEN - 1 and first and all(not s.get("rollouts") for s in first):
        lines.append("Else nothing: every other check costs more than it can gain (--why).")
    if d["run_next"] and not first:
        lines.append(f"{'To learn more' if d.get('trained') else 'Before you spend'}: {TOO_DEAR} "
                     "(--why).")  # fmt: skip
    more = len(d["notices"]) - (d["verdict"]["level"] != "ok")
    noted = f"{others_words(d, more)}: --why" if more else "Reasoning: --why"
    return [*lines, noted + ("" if trainer else "    Trainer settings: --for verl, --for trl")]


def others_words(d: Mapping[str, Any], more: int) -> str:
    """How many cautions and notes a fit or plan has beside the one named, of so many in all."""
    grave = sum(one["level"] == "caution" for one in d["notices"])
    grave -= d["verdict"]["level"] == "caution"
    if not grave:
        return f"{more} more note{'s' * (more != 1)}"
    said = f"{grave} more caution{'s' * (grave != 1)}"
    notes = more - grave
    return said + (f", {notes} note{'s' * (notes != 1)}" if notes else "")


def _run(d: Mapping[str, Any]) -> list[str]:
    n = f"{d['problems_per_batch']} problems x {d['rollouts_per_problem']} rollouts"
    run = f"Run: {n} x {d['steps']:,} steps   ({compact(d['rollouts'])} rollouts)"
    return wrapped(singular(run))


def _rows(d: Mapping[str, Any]) -> list[str]:
    said = _between(d, d["predicted_score"], d["predicted_score_interval"])
    out = [*(_row("n", text) if (text := open_words(d)) else []),
           *_row("score", said, _whose_score(d))]  # fmt: skip
    gain = d["gain"]
    if gain is not None and is_today(d):
        out += _row("gain", NO_GAIN)
    elif gain is not None:
        out += _gain_row(gain, d)
        other = ", ".join(other_amounts(gain["cost"], d["cost"]))
        now = _between(d, gain["predicted_score"], gain["predicted_score_interval"])
        out += _row("today", now + (f", {other}" if other else ""))
    for one in _binding(d):
        out += _row("limit", one["text"])
    if others := [str(n) for n in d["as_good"] if n != d["rollouts_per_problem"]]:
        why = AS_GOOD.get(d["chosen_by"])
        out += _row("as good", "n = " + ", ".join(others),
                    f"n = {d['rollouts_per_problem']} {why}" if why else "")
    for name, text in (
        ("target", target_words(d)), ("trained", trained_words(d)), fell_words(d),
        ("best", lead_words(d)),
        ("data", passes_words(d)), ("for less", less_words(d)), ("stop if", check_words(d)),
    ):  # fmt: skip
        out += _row(name, text) if text else []
    today = [gain and gain[name] for name in Configuration._fields]  # it has rows of its own
    if guesses := [row for row in d["neighbours"]
                   if [row.get(name) for name in Configuration._fields] != today][:2]:
        each = (f"{row['rollouts_per_problem']}: "
                f"{_between(d, row['gain'], row['gain_interval'], '+')}" for row in guesses)
        out += _row("untested n", ", ".join(each))
    known, rate = known_words(d), plain_rate(d["learning_rate"])
    if known is None or "warmup_steps" in known:  # else it is yours to keep, as the rest
        rate += f", {d['recipe']['warmup_steps']} warm-up steps"
    out += _row("lr", rate, rate_origin(d))
    for i, line in enumerate(textwrap.wrap("; ".join(d.get("assumes", ())), ROOM)):
        out += _row("" if i else "assumes", line)
    whose = "easy set assumed" if says(d, "difficulty_assumed") else ""
    if d.get("asked"):
        whose = f"of --difficulty {d['difficulty']}"
    if whose or d.get("learning_rate_from") != "runs":  # else it is theirs
        out += _row("recipe", _recipe(d["recipe"]), whose)
    spent, whose = cost_words(d["cost"])
    due = [one for one in spent if not one.endswith("tokens")]
    tokens, clock = spent[len(due):], [clock_words(d)] if d.get("wall") else []
    bare = amounts(d["cost"])[:len(due)]  # the rest --why says, too
    short = whose.rpartition(", ")[2]
    forms = [([*due, *clock, *tokens], whose), ([*due, *clock], whose), ([*bare, *clock], whose),
             ([*due, *clock], short), ([*bare, *clock], short), ([*bare, *clock], ""),
             (due, whose)]  # fmt: skip
    if is_in_tokens(d):
        forms[1:1] = [([*parts, *tokens], aside) for parts in ([*due, *clock], due)
                      for aside in (whose, short)]  # fmt: skip
    costs = [_row("cost", ", ".join(parts), aside, cut=False) for parts, aside in forms if parts]
    return out + next((cost for cost in costs if len(cost[0]) <= WIDTH), costs[-1])


def _binding(d: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The notices of limits that hold a plan's n away from the best."""
    return [one for one in d.get("notices") or () if one["code"] in _LIMITS]


def _whose_score(d: Mapping[str, Any]) -> str:
    """What a score is: "avg@4, best checkpoint"."""
    law = d.get("law", {})
    which = {"best": "best checkpoint", "final": "last checkpoint"}.get(law.get("select", ""))
    metric = law.get("metric", "score")
    return ", ".join(part for part in (metric if metric != "score" else "", which) if part)


def _gain_row(gain: Mapping[str, Any], d: Mapping[str, Any]) -> list[str]:
    """A gain with what speaks against it, on a line of its own where one does not hold both."""
    said, doubt = _between(d, gain["score"], gain["interval"], "+"), doubts(gain)
    n = f"n = {gain['rollouts_per_problem']}"
    settings = [f"{n}, B_p = {gain['problems_per_batch']}"]
    if gain["problems_per_batch"] == d["problems_per_batch"]:
        # In GPU-hours the size of its batch counts.
        settings = [*settings, n] if d.get("law", {}).get("unit") == "gpu-hours" else [n]
    forms = [_row("gain", f"{said} over {whose}{one}", doubt, cut=False)
             for whose in ("today's ", "") for one in settings]  # fmt: skip
    apart = [*_row("gain", f"{said} over today's {settings[0]}"), *_row("", f"({doubt})")]
    return next((row for row in forms if len(row[0]) <= WIDTH), apart)


def _between(
    d: Mapping[str, Any], value: float, ends: Sequence[float], sign: str = ""
) -> str:
    """A score, or a difference of scores, with its interval: "0.090 (0.065 to 0.108)"."""
    mean, low, high = (score_text(d, v, sign) for v in (value, *ends))
    return f"{mean} ({low} to {high})"


def doubts(gain: Mapping[str, Any]) -> str:
    """What speaks against a gain over today's setting."""
    low, high = gain["interval"]
    said = {"untested": not gain.get("tested", True), "may be a loss": low <= 0 <= high}
    return ", ".join(doubt for doubt, holds in said.items() if holds)


def runner_up_words(d: Mapping[str, Any]) -> str:
    """The next best n tested, and what it scores less; "" where there is none."""
    if not (second := d.get("runner_up")):
        return ""
    low, high = second["interval"]
    gain = _between(d, -second["lost"], (-high, -low), "+")
    return f"n = {second['rollouts_per_problem']}: {gain}"


def is_today(d: Mapping[str, Any]) -> bool:
    """Whether a plan is the setting of today."""
    gain = d["gain"] or {}
    return all(name in gain and gain[name] == d.get(name) for name in Configuration._fields)


def rate_origin(d: Mapping[str, Any]) -> str:
    """Where the learning rate of a plan comes from; "" where nobody says."""
    whose = d.get("learning_rate_from")
    if whose != "runs":
        do = "say" if says(d, "anchor_assumed") else "tune"
        return {None: "", "study": "from your study"}.get(whose, f"{whose}'s; {do} yours")
    base = d["recipe"]["base_batch_size"]
    schedule = d["recipe"].get("lr_schedule") or "constant"
    held = "falling as in the runs" if schedule != "constant" else ""
    if base == d["batch_size"]:
        several = "as in the runs that scored best" if d.get("rates_tried") else "as in the runs"
        return held or several
    said = f"from {plain_rate(d['recipe']['learning_rate'])} at a batch of {compact(base)}"
    return said + (f", {held}" if held else "")


def _row(name: str, text: str, aside: str = "", *, cut: bool = True) -> list[str]:
    """A named line, with an aside where there is room (or whether there is or not)."""
    line = f"  {name:<{WIDTH - ROOM - 2}}{text}"
    with_aside = f"{line}   ({aside})" if aside else line
    return [with_aside if not cut or len(with_aside) <= WIDTH else line[:WIDTH]]


def _recipe(r: Mapping[str, Any]) -> str:
    of = (("KL", r["kl_coef"]), ("entropy", r["entropy_coef"]))
    terms = [f"{name} {value:g}" for name, value in of if value]
    of_runs = r["objective"] is None  # the runs' own, which no log says
    name = [] if of_runs else [r["objective"].upper()]
    return ", ".join([*name, *(terms or ["no KL", "no entropy bonus"])])


def _why(d: Mapping[str, Any]) -> list[str]:
    n, law = d["rollouts_per_problem"], d["law"]
    by = " by what its neighbours say" if d["chosen_by"] == "neighbours" else ""
    low, high = map(compact, law["support"])
    alone = len({*law["tested"]}) == 1  # then all rules choose it
    of = "it scores best within your limits" if _binding(d) else (
        "no other was tested" if alone else "of those tested it scores best")  # fmt: skip
    if why := AS_GOOD.get(d["chosen_by"]):
        of = f"it is as good as the best, and {why}"
    said = [
        f"Why n = {n}: {of}{by}. Expected loss against the true "
        f"best: {score_text(d, d['expected_regret'])}.",
        f"{best_n_words(d)} Still in contention: n = {', '.join(map(str, d['confidence_set']))}.",
    ]
    if not says(d, "never_compared"):
        said.append(f"All n were compared from {low} to {high} {unit_words(law['unit'])}.")
    said.append(_scores_are(d))
    said += evaluations_words(d["cost"])
    if d["check"] is None and d["extrapolation_log10"] > math.log10(FURTHER):
        said.append(
            "No score to stop at: one evaluation cannot tell a stalled run from a sound one.")
    said += [f"Runner-up: {text}."] if (text := runner_up_words(d)) else []
    if d["passes_over_data"] is not None:
        said.append(f"Passes over your problems: {compact(d['passes_over_data'])}.")
    rules = {} if alone else d["rules"]
    if rules:
        # A run's score depends on its rollouts: by those the sweep was cut and tested.
        by = "" if law["unit"] == "rollouts" else ", by rollouts"
        said.append(f"What others would choose, and what each lost when tested on this sweep{by}:")
    for name, row in rules.items():
        lost = "" if row["lost"] is None else f"; the rule lost {score_text(d, row['lost'])}"
        pair = Configuration(row["problems_per_batch"], row["rollouts_per_problem"])
        said.append(f"  {_RULES[name]:<13}{pair}, score {score_text(d, row['score'])}{lost}")
    said += (d["printed_law"] or {}).get("sentences", ())
    return [line for one in said for line in wrapped(one)]


def _scores_are(d: Mapping[str, Any]) -> str:
    """What a plan's scores mean, and in whose units they are."""
    final = d["law"].get("select") == "final"
    which = "of the last checkpoint" if final else "of the best checkpoint so far"
    log = d.get("logged") or {}
    key, (low, high) = log.get("key"), log.get("range") or (0, 1)
    name = f"{key} is logged" if key else "logged"
    of = f", as {name} ({low:g} to {high:g})" if key or (low, high) != (0, 1) else ""
    return f"Scores are true ones {which}, without the noise of an evaluation{of}."


def _keys(d: Mapping[str, Any], trainer: str) -> list[str]:
    if trainer not in d["trainer"]:
        raise InputError(
            f"a trainer must be one of {', '.join(d['trainer'])}, but got {trainer!r}; "
            "choose one of them."
        )
    return key_lines(d["trainer"][trainer])


def _beside(d: Mapping[str, Any], trainer: str) -> list[str]:
    """What to know beside the keys: units, what they do not say, and who trained with them."""
    unsaid, version = recipe_unsaid(d, trainer), d["trainer_trained"][trainer]
    named = unsaid_of_runs(d, trainer)
    left = [one for one in d["trainer_not_set"][trainer] if one not in named]
    said = [
        f"The learning rate is {d['learning_rate_from']}'s: put yours."
        if says(d, "anchor_assumed") else "",
        unsaid,
        d["trainer_units"][trainer],
        f"Not set for this trainer: {', '.join(left)}." if left else "",
        f"Tested by us with {trainer} {version} (CPU, tiny model)." if version else
        f"Read in {trainer}'s source, not tested: check the first steps of a run.",
    ]
    return [f"# {line}" for one in said for line in textwrap.wrap(
        one, WIDTH - 2, break_on_hyphens=False)]  # fmt: skip


def best_n_words(d: Mapping[str, Any]) -> str:
    """Where the best n of a plan's budget lies, and which of those tested the plan takes."""
    best, ends = d["rollouts_per_problem_law"], d["rollouts_per_problem_interval"]
    first, last = d.get("law", {}).get("tested") or (0, math.inf)
    ends = ends or (best, best)
    low, high = (f"{v:.0f}" for v in ends)
    # Where the interval ends with those tested, the truth may lie beyond.
    fewer, more = 1 < ends[0] < first * 1.01, ends[1] > last * 0.99
    beyond = " or beyond" if fewer and more else " or fewer" * fewer + " or more" * more
    where = (high if fewer and not more else low) + beyond
    if low != high and fewer == more:
        where = f"between {low} and {high}" + ("," + beyond if beyond else "")
    of, n = "tested and allowed" if _binding(d) else "tested", d["rollouts_per_problem"]
    beyond_data = (d.get("extrapolation_log10") or 0) > SAME_END  # less: a round number
    best_is = "is predicted to score best" if beyond_data else "scores best"
    if d.get("chosen_by") in AS_GOOD:
        best_is = "is as good as the best"
    if d.get("chosen_by") == "neighbours":
        return f"The best n is {where}; n = {n} was never tested."
    if first == last == n:
        return f"The best n is {where}; {n} alone was tested."
    if not round(ends[0]) <= n <= round(ends[1]):  # it stands out of the trend over n
        return f"Of those {of}, n = {n} {best_is}; by the trend over n the best is {where}."
    if low == high:
        return f"The best n is {where}."
    return f"The best n is {where}; of those {of}, {n} {best_is}."


def n_words(best: Mapping[str, Any]) -> str:
    """The tested n that scores best, and where the best n lies: "64 (8 to 246)".

    The interval alone where it does not hold that n: the trend over n has its peak elsewhere.
    """
    low, high = best.get("interval") or (None, None)
    said = round(best.get("tested_rollouts_per_problem", best["rollouts_per_problem"]))
    if low is None or high is None:
        return compact(said)
    known = " to ".join(dict.fromkeys((compact(round(low)), compact(round(high)))))
    if known == compact(said) or not round(low) <= said <= round(high):
        return known
    return f"{compact(said)} ({known})"


def span_words(values: Sequence[int]) -> str:
    """The smallest and the largest of ascending values: "8 to 512"."""
    return " to ".join(map(str, dict.fromkeys((values[0], values[-1]))))
