"""A plan in words: the answer, then what to do, then nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from isocompute.domain import Configuration, Notice
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.trainers import key_lines

WIDTH = 80
_LABEL = 13  # columns of the names at the left
_FOREGROUND = 3  # steps that are named by default


class _Step(NamedTuple):
    """What settles a notice."""

    do: str
    command: str


_RUN = "isocompute run study.yaml"
# In the order of what they may change; the one that settles the verdict's reason goes first.
_STEPS: Mapping[str, _Step] = {
    "one_or_two_n": _Step("train n = {settles}", _RUN + " grid.rollouts_per_problem={settles}"),
    "law_of_another_model": _Step("sweep your own model", _RUN),
    "split_untested": _Step("train this split once", _RUN + " grid.problems_per_batch={bp}"),
    "anchor_assumed": _Step("measure your learning rate", "isocompute lr-sweep study.yaml"),
    "difficulty_assumed": _Step(
        "measure difficulty", "isocompute difficulty problems.jsonl --model MODEL"
    ),
    "capped_by_tested_n": _Step("test n = {twice}", _RUN + " grid.rollouts_per_problem={twice}"),
    "n_at_smallest_tested": _Step("test n = {half}", _RUN + " grid.rollouts_per_problem={half}"),
    "seeds_missing": _Step("run two more seeds", _RUN + " seeds=3"),
    "bp_unstable": _Step("try a larger B_p", _RUN + " grid.problems_per_batch={bp2}"),
    "extrapolated": _Step("extend the sweep", _RUN + " budget={budget}"),
    "bp_untested": _Step(
        "try another B_p at n = {n}", _RUN + " grid.problems_per_batch={bp2}"
    ),
}  # fmt: skip
_RULES = {"model": "this plan", "best_so_far": "best so far", "largest_n": "largest n",
          "next_n": "next n"}  # fmt: skip


def run_next(
    notices: Sequence[Notice], reason: str, chosen: Configuration, settles: Configuration | None,
    rollouts: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Steps that settle what limits a plan: {"settles": code, "do", "command"}.

    Args:
        notices: of the plan.
        reason: the verdict's; its step goes first.
        chosen: the prescription.
        settles: untested configuration that tells most, with one or two n tested.
        rollouts: to train it to.
    """
    b_p, n = chosen
    words = {"n": n, "twice": 2 * n, "half": max(n // 2, 1), "bp": b_p, "bp2": 2 * b_p,
             "budget": "2e6", "settles": n if settles is None else settles[1]}  # fmt: skip
    of = {one.code: one for one in notices}
    codes = [code for code in _STEPS if code in of]
    if "law_of_another_model" in codes:
        codes.insert(codes.index("law_of_another_model") + 1, "anchor_assumed")
    codes.sort(key=lambda code: code != "one_or_two_n" and (code not in of or of[code].text != reason))
    words["budget"] = f"{rollouts:.2g}"
    return [
        {"settles": code, **{k: v.format(**words) for k, v in _STEPS[code]._asdict().items()}}
        for code in codes
    ]


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
    lines = [*_run(d), *_rows(d), "", *_confidence(d)]
    if why:
        lines += ["", *_why(d), "", *_notes(d)]
    else:
        more = len(d["notices"]) - (d["verdict"]["level"] != "ok")
        noted = f"{more} more note{'s' * (more != 1)}: --why" if more else "Reasoning: --why"
        lines.append(noted + ("" if trainer else "    Trainer settings: --for verl"))
    if trainer is not None:
        units = _wrapped(d["trainer_units"][trainer], "# ")
        lines += ["", f"Settings for {trainer}:", *keys, *units]
    return lines


def _run(d: Mapping[str, Any]) -> list[str]:
    n = f"{d['problems_per_batch']} problems x {d['rollouts_per_problem']} rollouts"
    return _wrapped(f"Run: {n} x {d['steps']:,} steps   ({compact(d['rollouts'])} rollouts)")


def _rows(d: Mapping[str, Any]) -> list[str]:
    low, high = d["predicted_score_interval"]
    out = _row("score", f"{d['predicted_score']:.3f} ({low:.3f} to {high:.3f})")
    if (gain := d["gain"]) is not None:
        low, high = gain["interval"]
        over = f"your n = {gain['rollouts_per_problem']}"
        if gain["problems_per_batch"] != d["problems_per_batch"]:
            over += f", B_p = {gain['problems_per_batch']}"
        aside = "" if gain["tested"] else "not tested: a guess"
        out += _row("gain", f"{gain['score']:+.3f} ({low:+.3f} to {high:+.3f}) over {over}", aside)
    if others := [str(n) for n in d["as_good"] if n != d["rollouts_per_problem"]]:
        out += _row("as good", "n = " + ", ".join(others))
    model = d["learning_rate_from"]
    whose = "from your study" if model == "study" else f"{model}'s; replace by yours"
    warm_up = f"{d['recipe']['warmup_steps']} warm-up steps"
    out += _row("rate", f"{d['learning_rate']:.2g}, {warm_up}", whose)
    assumed = any(one["code"] == "difficulty_assumed" for one in d["notices"])
    out += _row("recipe", _recipe(d["recipe"]), "easy set assumed" if assumed else "")
    return out + _row("cost", *_cost(d["cost"]))


def _row(name: str, text: str, aside: str = "") -> list[str]:
    """A named line, with an aside where there is room."""
    line = f"  {name:<{_LABEL - 2}}{text}"
    with_aside = f"{line}   ({aside})"
    return [with_aside if aside and len(with_aside) <= WIDTH else line[:WIDTH]]


def _recipe(r: Mapping[str, Any]) -> str:
    of = (("KL", r["kl_coef"]), ("entropy", r["entropy_coef"]))
    terms = [f"{name} {value:g}" for name, value in of if value]
    return ", ".join([r["objective"].upper(), *(terms or ["no KL", "no entropy bonus"])])


def _cost(cost: Mapping[str, Any]) -> tuple[str, str]:
    hours, usd, tokens = cost["gpu_hours"], cost["usd"], cost["tokens"]
    parts = [f"{compact(hours)} GPU-hours"] if hours is not None else []
    parts += [f"${compact(usd)}"] if usd is not None else []
    parts += [f"{compact(tokens)} tokens"] if tokens is not None else []
    found = cost["source"].get("rollouts_per_gpu_hour")
    if found is None:
        unknown = "" if parts else "not known; give --rollouts-per-gpu-hour"
        return ", ".join(parts) or unknown, ""
    origin = {"study": ", from your study", "sweep": ", from your logs"}.get(found["from"], "")
    return ", ".join(parts), f"{compact(found['value'])} rollouts per GPU-hour{origin}"


def _confidence(d: Mapping[str, Any]) -> list[str]:
    verdict = d["verdict"]
    text = f"Confidence: {verdict['level']}. {verdict['reason']}".strip()
    out = textwrap.wrap(text, WIDTH, max_lines=2, placeholder=" ...")
    steps = d["run_next"][:_FOREGROUND]
    if not steps:
        return out
    wide = max(len(step["do"]) for step in steps)
    out.append("Before you spend:")
    for i, step in enumerate(steps, 1):
        out.append(f"  {i}. {step['do']:<{wide}}   {step['command']}")
    return out


def _why(d: Mapping[str, Any]) -> list[str]:
    n, interval, law = d["rollouts_per_problem"], d["rollouts_per_problem_interval"], d["law"]
    out = _wrapped(
        f"Why n = {n}: it scores best within your limits. Expected loss against the true best: "
        f"{d['expected_regret']:.3f}."
    )
    could = ", ".join(map(str, d["confidence_set"]))
    between = "" if interval is None else f" ({interval[0]:.0f} to {interval[1]:.0f})"
    out += _wrapped(
        f"Best n at this budget: {d['rollouts_per_problem_law']:.0f}{between}, by {law['source']}. "
        f"Still in contention: n = {could}."
    )
    low, high = law["support"]
    out += _wrapped(f"All n were compared from {compact(low)} to {compact(high)} {law['unit']}.")
    if d["passes_over_data"] is not None:
        out += _wrapped(f"Passes over your problems: {d['passes_over_data']:.2g}.")
    for name, row in d["rules"].items():
        lost = "" if row["lost"] is None else f"; lost {row['lost']:.3f} in the back-test"
        pair = Configuration(row["problems_per_batch"], row["rollouts_per_problem"])
        out += _wrapped(f"  {_RULES[name]:<12}{pair}, score {row['score']:.3f}{lost}")
    for sentence in (d["printed_law"] or {}).get("sentences", ()):
        out += _wrapped(sentence)
    return out


def _notes(d: Mapping[str, Any]) -> list[str]:
    """Every notice in full."""
    return [
        line
        for one in d["notices"]
        for line in _wrapped(f"{one['level']}: {one['text']} {one['remedy']} [{one['code']}]")
    ]


def _keys(d: Mapping[str, Any], trainer: str) -> list[str]:
    if trainer not in d["trainer"]:
        raise InputError(
            f"a trainer must be one of {', '.join(d['trainer'])}, but got {trainer!r}; "
            "choose one of them."
        )
    return key_lines(d["trainer"][trainer])


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ",
        break_on_hyphens=False,
    )  # fmt: skip
