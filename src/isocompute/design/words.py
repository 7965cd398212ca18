"""A design as text: the sweep, its price, what it and a guess lose, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from isocompute.answers.machines import doubt_words, hours_words
from isocompute.answers.step_lines import note_lines
from isocompute.answers.steps import WIDTH, amounts, only
from isocompute.domain.text import compact, singular

Row = Mapping[str, Any]

LINES = 12
_LABEL = 8  # columns of the names at the left
_SEEN = 0.005  # what rounds to 0% is not printed
_MUCH = 0.02  # of the budget: more evaluation than that is told apart from training
# In lines of their own.
_SAID = ("no_sweep", "passes_over_data", "stand_ins", "prior_alone", "difficulty_of_file",
         "bp_of_problems", "bp_of_prior", "prior_of_others", "rates_unpaid",
         "difficulty_against_file", "few_validation")  # fmt: skip
# What speaks against the answer, gravest first: one stands right below it.
_AGAINST = ("plan_refuses", "passes_beyond_prior", "problems_fewer_than_prior", "beyond_prior",
            "capped_by_tested_n", "n_at_smallest_tested", "extrapolated",
            "rate_of_another_batch")  # fmt: skip
_NO_ERROR = 0.0005  # what rounds to 0.000 is not printed
_MODEL = "Qwen2.5-7B"  # of the shipped sweeps
_ABSURD = 100  # passes over the data: said before the answer that makes them


def design_lines(d: Row, *, why: bool = False) -> list[str]:
    """The `design --json` document in about a dozen lines of 80 columns.

    Args:
        d: the document.
        why: also what the losses consist of, and every notice in full.
    """
    more = ["", *why_lines(d, _spent(d, d["sweep"])), "", *note_lines(d)] if why else []
    return [*_screen(d, why=why), *more]


def _screen(d: Row, *, why: bool) -> list[str]:
    rows: dict[str, list[str]] = ({"Caution": []} if _is_absurd(d) else {}) | {
        "Answer": _answer(d), "Caution": _caution(d), "As good": _as_good(d),
        "Cost": _cost_rows(d), "Worth": _row("Worth", worth_words(d, _took(d))),
        "Recipe": _recipe(d), "Passes": _passes(d),
        "Batch": _noted(d, "Batch", "bp_of_problems", "bp_of_prior"), "Set": _set(d),
        "Check": _noted(d, "Check", "few_validation"), "Time": _time(d), "Note": [],
        "Do": _written(d),
    }  # fmt: skip

    def lines() -> list[str]:
        return [line for row in rows.values() for line in row]

    if why:
        return lines()
    # Notes as far as there is room for them: a budget of lines, not of notes.
    for shown in (2, 1, 0):
        rows["Note"] = _notes(d, shown)
        if len(lines()) <= LINES:
            return lines()
    for name in ("Note", "Time", "Passes"):
        if len(lines()) > LINES:
            rows[name] = []
    if not rows["Note"] and rows["Caution"] and (left := len(_others(d))):
        rows["Caution"] = _caution(d, f" ({left} more: --why)")
    # In the order in which they give way.
    last = {"Set": _noted(d, "Set", "difficulty_against_file"), "Recipe": _recipe(d, brief=True),
            "Caution": _caution(d), "Batch": [], "As good": [],
            "Worth": _row("Worth", worth_words(d, _took(d, brief=True)))}  # fmt: skip
    for name, shorter in last.items():
        if len(lines()) > LINES:
            rows[name] = shorter
    return lines()


def _answer(d: Row) -> list[str]:
    sweep, final = d["sweep"], d["final"]
    if d["answer"] == "no_sweep":
        n, b_p = final["rollouts_per_problem"], final["problems_per_batch"]
        size = f"{b_p} problems x {n} rollouts x {final['steps']:,} steps"
        return [singular(f"No sweep: run {size}   ({compact(final['rollouts'])} rollouts)")]
    listed = ", ".join(map(str, sweep["rollouts_per_problem"]))
    seeds = f"{sweep['seeds']} seed{'s' * (sweep['seeds'] > 1)}"
    runs = f"n = {listed}, B_p = {sweep['problems_per_batch']}, {seeds}"
    return _row("Sweep", f"{runs}, up to {compact(sweep['rollouts_per_run'])} rollouts each")


def _recipe(d: Row, *, brief: bool = False) -> list[str]:
    """That it is the runs' own, and what they do not say."""
    of = d.get("recipe")
    if not of:
        return []
    names = {"learning_rate": "lr", "kl_coef": "KL", "entropy_coef": "entropy"}
    if (d.get("learning_rate") or {"of": "runs"})["of"] != "runs":  # of another model in the file
        del names["learning_rate"]
    said = [f"{short} {of['words'][word]:g}".replace("e-0", "e-")
            for word, short in names.items() if word in of["recorded"]]  # fmt: skip
    said += [f"responses to {of['response_limit']:,}"] if of["response_limit"] else []
    unsaid = [names.get(word, word.replace("_", " ")) for word in of["unsaid"]]
    parts = [f"as in the runs ({', '.join(said)})"] if said else []
    if unsaid:
        parts.append(f"{len(unsaid)} word{'s' * (len(unsaid) > 1)} not logged: --json" if brief
                     else f"not logged, so default: {', '.join(unsaid)}")  # fmt: skip
    return _row("Recipe", "; ".join(parts)) if parts else []


def _cost_rows(d: Row) -> list[str]:
    final = d["final"]
    if d["answer"] == "no_sweep":
        more = f"{compact(final['evaluation_rollouts'])} rollouts more to evaluate"
        said = ", ".join(_paid(d, final)) or more
        end = [_rate(d, final), _total(d)]  # what is to be given comes last
        return _row("Cost", "".join([said, *(end if end[0].startswith(" (") else end[::-1])]))
    return [
        *_row("Cost", f"at most {_cost(d, d['sweep'])} ({_share(d['sweep'])})"),
        *_row("Then", f"{_cost(d, final)} for the final run{_rate(d, final)}{_total(d)}"),
    ]


def _passes(d: Row) -> list[str]:
    if d["passes_over_data"] is None or (_against(d) or {}).get("code") == "passes_beyond_prior":
        return []
    sweep_passes, final_passes = (d["passes_over_data"][k] for k in ("sweep", "final"))
    swept = f", at most {compact(sweep_passes)} in the sweep" * (d["answer"] == "sweep")
    return _row("Passes", f"over your problems: {compact(final_passes)} in the final run{swept}")


def _noted(d: Row, name: str, *codes: str) -> list[str]:
    """A row for the first notice of some codes."""
    said = [one["text"] for one in d["notices"] if one["code"] in codes]
    return _row(name, said[0]) if said else []


def _set(d: Row) -> list[str]:
    """Which difficulty was taken, or that none was."""
    for one in d["notices"]:
        if one["code"] == "difficulty_against_file":
            return _row("Set", one["text"])
        if one["code"] == "prior_alone":
            said = "--difficulty: it decides the best n (isocompute difficulty measures it)"
            return _row("Set", said)
        if one["code"] == "difficulty_of_file":
            said = f"{d['difficulty']} by --train's pass rates, if at temperature"
            return _row("Set", f"{said} {d['learning_rate']['temperature']:g}; or --difficulty")
    return []


def _time(d: Row) -> list[str]:
    of_another = d["answer"] == "no_sweep" and d.get("written") == "sweep"
    return [] if d.get("time") is None or of_another else _row("Time", d["time"])


def _caution(d: Row, more: str = "") -> list[str]:
    """What speaks against the answer, among the first lines."""
    one = _against(d)
    return [] if one is None else _row("Caution", f"{one['text']} {one['remedy']}{more}")


def _is_absurd(d: Row) -> bool:
    passes = d["passes_over_data"] and d["passes_over_data"]["final"] >= _ABSURD
    return bool(passes) and (_against(d) or {}).get("code") == "passes_beyond_prior"


def _against(d: Row) -> Row | None:
    """The gravest that speaks against the answer."""
    by_code = {one["code"]: one for one in d["notices"]}
    return next((by_code[code] for code in _AGAINST if code in by_code), None)


def _as_good(d: Row) -> list[str]:
    """The n that cannot be told from the guess."""
    near = sorted(g["rollouts_per_problem"] for g in d["worth"]["guesses"][1:] if g["as_good"])
    return _row("As good", f"n = {', '.join(map(str, near))}") if near else []


def _written(d: Row) -> list[str]:
    """The file, and what to do with it, first things first."""
    lines: list[str] = []
    if d["study"] is not None:
        toys = [x["remedy"] for x in d["notices"] if x["code"] == "stand_ins"]
        which = "" if d["answer"] == "sweep" else f": the {d['written']}"
        which += "" if toys else _whose_rate(d)
        on = ", on the CPU" if d["engine"] == "local" and d["gpus"] else ""
        held = f"{d['study']} ({d['engine']}{on}{', placeholders' if toys else ''}){which}"
        lines += _row("Wrote", f"{held}. {toys[0]}" if toys else held)
        if d.get("lacks") is not None:
            lines += _row("", f"To train it here: {d['lacks']}")
    if d["lr_sweep"] is not None:
        rate = f"isocompute lr-sweep {d['study']}" if d["study"] else (
            "the learning rate (write -o FILE)")  # fmt: skip
        lines += _command("First", rate, _drawn(d, d["lr_sweep"]))
    unpaid = [f"{x['text']} {x['remedy']}" for x in d["notices"] if x["code"] == "rates_unpaid"]
    lines += [line for text in unpaid for line in _row("Rate", text)]
    if d["study"] is not None:
        of_sweep = d["written"] == "sweep"
        is_toy = bool(toys and d["engine"] != "command")
        aside = "it stops by itself" if of_sweep else "of placeholders: a rehearsal" * is_toy
        lines += _command("Run" if of_sweep else "Start", f"isocompute run {d['study']}", aside)
    return lines


def _whose_rate(d: Row) -> str:
    """The learning rate in the file, where it is another model's."""
    of = d["learning_rate"]["of"]
    rate = f"{d['learning_rate']['value']:g}".replace("e-0", "e-")
    return "" if of == "runs" else f", at {of}'s learning rate, {rate}"


def _command(name: str, command: str, aside: str) -> list[str]:
    """A command in one piece, to be copied, and a word on it where there is room."""
    line = f"{name:<{_LABEL}}{command}"
    whole = f"{line}   ({aside})" if aside else line
    return [whole] if len(whole) <= WIDTH or not aside else [line, *_row("", f"({aside})")]


def _others(d: Row) -> list[Row]:
    """The notices that no other line says, cautions first."""
    against = _against(d)
    notes = [one for one in d["notices"]
             if one["code"] not in _SAID and one is not against]
    return sorted(notes, key=lambda one: one["level"] != "caution")


def _notes(d: Row, shown: int) -> list[str]:
    """So many of them, and how many more there are."""
    notes, lines = _others(d), list[str]()
    left = len(notes) - shown
    for i, one in enumerate(notes[:shown]):
        more = f" ({left} more: --why)" if left > 0 and i == shown - 1 else ""
        lines += _row("Note" if i == 0 else "", f"{one['text']} {one['remedy']}{more}")
    return lines if lines or not notes else _row("Note", f"{left} more: --why")


def _total(d: Row) -> str:
    """The final run and all before it, beside the budget, and how far off the rate may put it."""
    if d["lr_sweep"] is None and d["answer"] != "sweep":
        return ""
    unit, amount = d["budget"]["unit"], d["spent"]["amount"]
    form = {"rollouts": "{} of {} rollouts", "tokens": "{} of {} tokens", "usd": "${} of ${}",
            "gpu_hours": "{} of {}"}[unit]  # fmt: skip
    found = d["final"]["cost"]["source"].get("rollouts_per_gpu_hour", {})
    off = (found.get("off") or 0.0) if unit in ("gpu_hours", "usd") else 0.0
    ends = [compact(amount * (1 - off)), compact(amount * (1 + off))]
    said = form.format(" to ".join(dict.fromkeys(ends)), compact(d["budget"]["amount"]))
    return f"; {'in all' if d['answer'] == 'sweep' else 'with the learning rate'} {said}"


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:<{_LABEL}}",
                         subsequent_indent=" " * _LABEL, break_on_hyphens=False)  # fmt: skip


def _share(part: Row) -> str:
    """Of the budget: what --spend bounds, evaluations, and starts of the trainer."""
    apart = {"evaluation": part["evaluation_share"], "starts": part["start_share"]}
    more = (f" + {share:.0%} for {name}" for name, share in apart.items() if share >= _SEEN)
    return f"{part['share']:.0%} of the budget{''.join(more)}"


def _paid(d: Row, part: Row) -> list[str]:
    """Hours, on a clock too, and money, or tokens: as far as known, evaluations included."""
    cost, out = part["cost"], list[str]()
    if cost["gpu_hours"] is not None:
        out += amounts(only(cost, "gpu_hours"))
    if part.get("hours") is not None:
        out.append(hours_words(part["hours"]))
    if cost["usd"] is not None:
        out += amounts(only(cost, "usd"))
    if cost["tokens"] is not None and (not out or d["budget"]["unit"] == "tokens"):
        out += amounts(only(cost, "tokens"))
    return out


def _cost(d: Row, part: Row) -> str:
    drawn = f"{compact(part['rollouts'])} rollouts"
    apart = f"{drawn} + {compact(part['evaluation_rollouts'])} for evaluation"
    return ", ".join([drawn, *_paid(d, part)] if _paid(d, part) else [apart])


def _spent(d: Row, part: Row) -> str:
    """What runs before the final one take, as short as it can be said."""
    drawn = part["rollouts"] + part["evaluation_rollouts"]
    return ", ".join(_paid(d, part)) or f"{compact(drawn)} rollouts"


def _drawn(d: Row, part: Row) -> str:
    """The same with its share, evaluations and starts included."""
    share = part["share"] + part["evaluation_share"] + part["start_share"]
    return f"{_spent(d, part)}, {share:.0%} of the budget"


def _took(d: Row, *, brief: bool = False) -> str:
    """What a sweep that is not advised would take, its evaluations apart where they are much."""
    alone = {**d["sweep"], "hours": None}
    if brief or alone["evaluation_share"] < _MUCH:
        return _drawn(d, alone).replace(" of the budget", "")
    # Else a reader takes all of it for --spend.
    return ", ".join([*_paid(d, alone)[-1:], _share(alone)]).replace(" of the budget", "")


def _rate(d: Row, part: Row) -> str:
    """Where the rate comes from, how far off it may be, and what is not in it."""
    source = part["cost"]["source"]
    found = source.get("rollouts_per_gpu_hour")
    if found is None:
        return "; GPU-hours: give --rollouts-per-gpu-hour"
    whose = {"study": "the study's rate", "sweep": "the rate of its runs"}
    off = ", evaluations in it" * bool(found.get("clocked"))
    off += f", {found['trend']}" if found.get("trend") else ""
    off += f", {doubt_words(found)}" if "off" in found and not found.get("trend") else ""
    untold = part["starts"] and "gpu_hours_per_start" not in source
    apart = f", starts of {d['engine']} apart" if untold else ""
    return f" ({whose.get(found['from'], 'your rate')}{off}{apart})"


def why_lines(d: Row, spent: str) -> list[str]:
    """What the losses consist of; `spent` is what the sweep takes."""
    worth, sweep = d["worth"], d["sweep"]
    after, none, guesses = worth["after"], worth["without"], worth["guesses"]
    listed = ", ".join(map(str, sweep["rollouts_per_problem"]))
    n = none["rollouts_per_problem"]
    said = [] if worth.get("across_models") is None else [
        f"In worlds like the published sweeps of {_MODEL}, which flatter both:"]  # fmt: skip
    said += [
        f"Without a sweep: n = {n} loses {none['loss']:.3f} of score on average to the n that is "
        "best in each of the simulated worlds.",
        f"After the sweep: {after['loss']:.3f}. A plan then knows its runs alone and takes one of "
        f"n = {listed}: that loses {after['choice']:.3f}, or {after['choice_at_best']:.3f} if it "
        f"were sure which is best. Its cost ({spent}) loses {after['spending']:.3f}.",
    ]
    # How far those as good lie apart is chance.
    lost = {one["rollouts_per_problem"]: one["loss"] - none["loss"]
            for one in guesses if not one["as_good"]}  # fmt: skip
    near = [f"n = {k} loses {lost[k]:.3f} more" for k in (n // 2, 2 * n) if k in lost]
    said += [f"Against n = {n}: {', '.join(near)}."] if near else []
    scaled = _scaled(worth)
    said += [f"After a sweep with runs {', '.join(scaled)}."] if scaled else []
    return [line for one in said for line in textwrap.wrap(one, WIDTH, subsequent_indent="  ")]


def worth_words(d: Row, took: str) -> str:
    """What a guess loses at this budget, and a sweep; and both where no prior fits."""
    worth, (after, none, gain) = d["worth"], (d["worth"][k] for k in ("after", "without", "gain"))
    edge = {"capped_by_tested_n", "n_at_smallest_tested"} & {one["code"] for one in d["notices"]}
    like = "" if worth.get("across_models") is None else f", on models like {_MODEL}"
    best = f"below the best n{' tested' if edge else ''}{like}"
    if d["answer"] == "sweep":
        aside = "".join(f" ({one})" for one in [", ".join(_scaled(worth))] if one)
        said = (f"a plan after the sweep scores {_loss(after)} {best}{aside}; the guess n = "
                f"{none['rollouts_per_problem']} {_loss(none)} below")  # fmt: skip
    else:
        swept = f"a sweep of n = {', '.join(map(str, d['sweep']['rollouts_per_problem']))} ({took})"
        said = f"this run scores {_loss(none)} {best}; " + (
            f"{swept} would neither gain nor lose ({gain['loss']:+.3f} +- "
            f"{gain['standard_error']:.3f})" if gain["nothing"] else
            f"after {swept}, {_too_little(d)}, {_loss(after)}")  # fmt: skip
    return f"{said}{_elsewhere(worth.get('across_models'))}"


def _elsewhere(across: Row | None) -> str:
    """What was lost in tests where the prior, which flatters both, does not hold."""
    if across is None:
        return ""
    guessed, swept = across["without"], across["after"]
    apart = "either way" if swept == guessed else (
        "guessed" if swept is None else f"guessed, {swept:.3f} swept")  # fmt: skip
    return f"; on others {guessed:.3f} {apart}"


def _too_little(d: Row) -> str:
    """Why a sweep loses more than the guess."""
    none, after, sweep = d["worth"]["without"], d["worth"]["after"], d["sweep"]
    n = none["rollouts_per_problem"]
    if after["choice"] <= none["loss"]:
        return "which costs more than it finds"
    if n > after["largest_n"]:
        return f"which cannot reach n = {n}"
    if n not in sweep["rollouts_per_problem"]:
        return f"which does not try n = {n}"
    return "whose runs are too short to tell"


def _scaled(worth: Row) -> list[str]:
    """Losses after runs half and twice as long, or that they are alike."""
    out = list[str]()
    for key, words in (("half", "half as long"), ("twice", "twice as long")):
        if (row := worth[key]) is not None:
            alike = abs(row["behind"]) <= 2 * row["behind_error"]
            out.append(f"{words}: {'alike' if alike else _loss(row)}")
    return out


def _loss(row: Row) -> str:
    error = row["standard_error"] or 0.0
    return f"{row['loss']:.3f}" + (f" +- {error:.3f}" if error >= _NO_ERROR else "")
