"""What `fit` says in one screen: what is best when, how sure, what to run next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.logged import as_logged, score_text
from isocompute.answers.words import n_words, others_words, span_words
from isocompute.cli.cells import WIDTH
from isocompute.domain.text import at_least_fold, compact, fold, pasted, unit_words

Row = Mapping[str, Any]

LINES = 14
_LABEL = 12  # columns
# What `plan` calls a budget of the unit of a fit.
_IN_UNIT = {
    "tokens": ("--unit tokens ", "tok"), "gpu-hours": ("--unit gpu-hours ", "gpuh"),
}  # fmt: skip
_FEW = 4  # pairs (B_p, n), one by one in a line
_PLAN_FACTOR = 4  # the next budget to plan, over the largest compared


def fit_lines(
    document: Row, options: str = "", *, pointers: bool = True, target: float | None = None
) -> list[str]:
    """The `fit --json` document in at most 14 lines of 80 columns.

    Args:
        document: of a `Fit`; its scores are shown as they were logged.
        options: how the source was read, for the commands that come next.
        pointers: also where more stands.
        target: rollouts of the run that the study was to plan.
    """
    document = as_logged(document)
    source = _source(document) + (f" {options}" if options else "")
    best = [b for b in document["best"] if not b["extrapolated"]]
    answer = [
        textwrap.shorten(_setting(document), WIDTH, placeholder=" ..."),
        "",
        *_best(best, document),
        *_line("", _rise(document["law"], document["notices"], best), best),
        *_line("Wrong n", _wrong(best[-1], document), best),
        *_line("Predicts", _predicts(document["backtest"], document)),
        *(_line("Batch or n", told) if (told := _batch_or_n(document)) else ()),
        "",
    ]
    room = LINES - len(answer) - 1
    reason = _closing("Confidence", _verdict(document), min(room - 1, 2))
    first, plan = _next(document), _plan_line(document, source, target)
    steps = _next_lines(first or [plan], room - len(reason))
    room -= len(reason) + len(steps)
    own = pasted(plan, WIDTH, "Study's target: ", " " * 4)
    if first and _in_rollouts(document, target) and len(own) <= room:
        steps, room = [*steps, *own], room - len(own)
    if room and (paid := document.get("by_gpu_hours")):
        n, by_rollouts = (row["tested_rollouts_per_problem"] for row in (paid, best[-1]))
        good = [one for one in map(int, paid["as_good"]) if one != n]
        why = ", being faster" if n > by_rollouts and by_rollouts not in good else ""
        words = n_words(paid)
        # Where the trend has its peak elsewhere the interval would hide which of them leads.
        words = words if words.startswith(f"{compact(n)}") else compact(n)
        amount, name = _at(paid["x"], "gpu-hours").split()
        name = {"h": "hours", "min": "minutes", "s": "seconds"}[name]
        hours = f"{amount} {paid.get('device') or 'GPU'}-{name}"
        also = f", {', '.join(map(str, good))} as good" if good else ""
        said = _fitting([f"{hours}: n = {words}{one}{why}: --unit gpu-hours"
                         for one in (also, f", {len(good)} more as good")])  # fmt: skip
        answer[-1:] = [*_line("By cost", said, best), ""]
        room -= 1
    return [*answer, *reason, *steps, *(_pointers(document, source, room + 1) if pointers else ())]


def setting_words(document: Row) -> str:
    """What was held fixed: "B_p = 32", "batch of 8,192", "B_p = 32, 64, 256 together"."""
    setting = document["setting"]
    tested = sorted({c["problems_per_batch"] for c in document["curves"]})
    if setting["kind"] == "fixed_batch_size":
        return f"batch of {compact(setting['value'])}"
    if setting["kind"] == "fixed_problems_per_batch":
        return f"B_p = {setting['value']}"
    listed = ", ".join(map(str, tested[:4])) + (f" to {tested[-1]}" if len(tested) > 4 else "")
    return f"B_p = {listed}" + (" together" if len(tested) > 1 else "")


def _setting(document: Row) -> str:
    n = sorted({c["rollouts_per_problem"] for c in document["curves"]})
    b_p = sorted({c["problems_per_batch"] for c in document["curves"]})
    listed = ", ".join(map(str, b_p)) if len(b_p) < 5 else span_words(b_p)
    swept = f"{listed} problems (B_p) x {span_words(n)} rollouts (n)"
    pairs = [f"{c['problems_per_batch']} x {c['rollouts_per_problem']}" for c in document["curves"]]
    if len(pairs) < min(len(n) * len(b_p), _FEW):  # not every B_p at every n
        swept = f"{', '.join(pairs)} (B_p x n)"
    if document["setting"]["kind"] == "fixed_batch_size":
        swept = f"{setting_words(document)}, {span_words(n)} rollouts a problem (n)"
    runs = sum(c["n_runs"] for c in document["curves"])
    top = compact(max(c["at"][-1]["x"] for c in document["curves"]))
    said = f"{document['metric']}, {runs} run{'s' * (runs > 1)}: {swept}, up to {top}"
    whole = f"{said} {unit_words(document['unit'])}"
    # Rollouts are named already; another unit never goes.
    return whole if len(whole) <= WIDTH or document["unit"] != "rollouts" else said


def _line(label: str, text: str, best: Sequence[Row] = ()) -> list[str]:
    """A label and one line of text; nothing where it is about n and only one was tested."""
    if best and len(best[-1]["probability"]) < 2:
        return []
    return [f"{label:<{_LABEL}}{textwrap.shorten(text, WIDTH - _LABEL, placeholder=' ...')}"]


def _closing(label: str, text: str, most: int) -> list[str]:
    """A sentence in so many lines at most."""
    return textwrap.wrap(
        f"{label}: {text}", WIDTH, subsequent_indent="  ", max_lines=most, placeholder=" ...",
        break_on_hyphens=False,
    )  # fmt: skip


def _best(best: Sequence[Row], document: Row) -> list[str]:
    """N*, at the first, middle and last budget that was compared; B_p where it was open."""
    picked = [best[i] for i in sorted({0, len(best) // 2, len(best) - 1})]
    if len(picked[-1]["probability"]) < 2:
        (n,) = picked[-1]["probability"]
        return _line("Best n", f"n = {n} alone was tested")
    unit = document["unit"]
    cells = [f"{_at(b['x'], unit)}: {n_words(b)}" for b in picked]
    if unit == "rollouts":
        first = f"{_budget(picked[0]['x'])} rollouts: {n_words(picked[0])}"
        if _LABEL + len("  ".join([first, *cells[1:]])) <= WIDTH:
            cells[0] = first
    lines = _packed("Best n", cells)
    kind, value = document["setting"]["kind"], document["setting"]["value"]
    if kind == "joint":
        cells = [f"{_at(b['x'], unit)}: {b['stable_problems_per_batch']}" for b in picked]
    elif kind == "fixed_batch_size":
        cells = [f"{_budget(b['x'])}: {whole(value / b['tested_rollouts_per_problem'])}"
                 for b in picked]  # fmt: skip
    else:
        return lines
    return lines + _packed("Best B_p", cells)


def whole(n: float | None) -> str:
    """An n or B_p as a whole number; a dash where it is not known."""
    return compact(None if n is None else round(n))


def _budget(x: float) -> str:
    """Two digits: 670k, 4.1M."""
    return compact(float(f"{x:.2g}"))


def _at(x: float, unit: str) -> str:
    """A budget with its unit, where that is not rollouts: 670k, 32 h, 3.6 s, 4.1M tok."""
    if unit == "gpu-hours" and x < 1:
        x, sign = (60 * x, " min") if 60 * x >= 1 else (3600 * x, " s")
        return f"{_budget(x)}{sign}"
    return _budget(x) + {"gpu-hours": " h", "tokens": " tok"}.get(unit, "")


def _packed(label: str, cells: Sequence[str]) -> list[str]:
    """Cells beside each other, on two lines where one does not hold them."""
    for gap in ("    ", "  "):
        if _LABEL + len(gap.join(cells)) <= WIDTH:
            return [f"{label:<{_LABEL}}{gap.join(cells)}"]
    return [f"{label:<{_LABEL}}{'    '.join(cells[:-1])}", " " * _LABEL + cells[-1]]


def _rise(law: Row, notices: Sequence[Row], best: Sequence[Row]) -> str:
    codes, rising = {one["code"] for one in notices}, law["rising"]
    if "falling" in codes:
        return f"falls {fold(-rising['octaves'])} as the budget grows"
    if not rising["claimed"]:
        if rising["octaves"] > 0.05:
            return f"rises {fold(rising['octaves'])}, but noise alone may explain that"
        # Of n that end level the best one moves by chance, and that is no rise.
        most, told = max(map(int, best[0]["probability"])), "whether it rises cannot be told"
        if round(best[0]["rollouts_per_problem"]) == most:
            return f"{told}: n = {most} is the largest tested"
        if rising["upper_bound"] >= 1:  # a doubling, the step between n
            return f"{told}: several n may be best"
        return "does not rise with the budget"
    text = f"rises {fold(rising['octaves'])}, at least {at_least_fold(rising['lower_bound'])}"
    if "non_monotone" in codes:
        return f"{text}, but goes up and down on the way"
    rests = law.get("identified", {}).get("plateau", True)
    if not rests or None in (law["plateau_interval"] or [None]):
        return f"{text}; where it levels off is not known"
    low, high = map(whole, law["plateau_interval"])
    return f"{text}; levels off at {whole(law['plateau'])} ({low} to {high})"


def _wrong(last: Row, document: Row) -> str:
    """What other n score below the choice at the largest budget compared."""
    regret, chosen = last["expected_regret"], last["tested_rollouts_per_problem"]
    lost = {int(n): value - regret[str(chosen)] for n, value in regret.items()}
    good = [n for n in map(int, last["as_good"]) if n != chosen]
    apart = sorted((loss, n) for n, loss in lost.items() if n not in (chosen, *good))
    at = _at(last["x"], document["unit"])
    also = [f"n = {', '.join(map(str, good))} as good as {chosen}"] if good else []
    also += [f"{len(good)} other n as good as {chosen}"] if good else []
    if not apart:
        return _fitting([f"costs nothing that shows at {at}: {one}" for one in also])
    least, most = apart[0], apart[-1]
    worst = f"costs {score_text(document, most[0])} at {at} (n = {most[1]})"
    both = f"{worst}, {score_text(document, least[0])} (n = {least[1]})" if least != most else worst
    return _fitting([f"{text}; {one}" for one in also for text in (both, worst)] or [both])


def _fitting(forms: Sequence[str]) -> str:
    """The first form that a line holds, else the last."""
    return next((one for one in forms if len(one) <= WIDTH - _LABEL), "".join(forms[-1:]))


def _predicts(test: Row, document: Row) -> str:
    if test["mae_model"] is None:
        return "not known: no part of these runs can be held out"
    return (
        f"held-out scores within {score_text(document, test['mae_model'])} "
        f"(assuming no further change: {score_text(document, test['mae_best_so_far'])})"
    )


def _batch_or_n(document: Row) -> str:
    says = document["direction"]
    if says["d_log_n_d_log_bp"] is None:
        codes = {one["code"] for one in document["notices"]}
        if "n_confounded_with_batch" in codes:
            return "not tested: every n ran at one B_p"
        if len({row["rollouts_per_problem"] for row in document["curves"]}) == 1:
            return ""
        return "not known: the best n is at an end of those tested"
    low, high = says["interval"]
    by = f"{fold(says['d_log_n_d_log_bp'])} as B_p doubles ({2**low:.2g} to {2**high:.2g})"
    follows = {"n": "n", "batch": "the batch", "between": "between", None: "not known"}
    return f"{follows[says['follows']]}: best n changes {by}"


def _verdict(document: Row) -> str:
    level, reason = document["verdict"]["level"], document["verdict"]["reason"]
    if level == "ok":  # nothing is said of what lies beyond the data
        return f"ok up to {_budget(_compared(document))} {unit_words(document['unit'])}."
    return f"{level}. {reason}".strip()


def _compared(document: Row) -> float:
    """The largest budget at which all n were compared."""
    return float([b["x"] for b in document["best"] if not b["extrapolated"]][-1])


def _next_lines(steps: Sequence[str], most: int) -> list[str]:
    """What to run; a command over several lines can be pasted as it stands."""
    text = "; then ".join(steps)
    if not text.startswith("isocompute ") or len(f"Next: {text}") <= WIDTH:
        return _closing("Next", text, most)
    rows = pasted(text, WIDTH, "Next: ", " " * 4)
    return rows if len(rows) <= most else _closing("Next", text, most)


def _plan_line(document: Row, source: str, target: float | None) -> str:
    """The command that plans what the sweep was for, or somewhat beyond what was compared."""
    if _in_rollouts(document, target):
        return f"isocompute plan {source} --budget {compact(target).replace(',', '')}"
    unit, suffix = _IN_UNIT.get(document["unit"], ("", ""))
    budget = _budget(_PLAN_FACTOR * _compared(document)).replace(",", "")
    return f"isocompute plan {source} {unit}--budget {budget}{suffix}"


def _in_rollouts(document: Row, target: float | None) -> bool:
    """Whether there is a target that the answers count in, too."""
    return target is not None and document["unit"] not in _IN_UNIT


def _next(document: Row) -> list[str]:
    """At most two things to run, from what limits the answer most; none where nothing does."""
    grave = [one for one in document["notices"] if one["level"] != "note"]
    if grave and grave[0]["level"] == "stop":
        grave = grave[:1]
    steps = [one["remedy"][0].lower() + one["remedy"][1:].rstrip(".") for one in grave]
    kept: list[str] = []
    for step in steps:
        if step not in kept and not ("seed" in step and any("seed" in one for one in kept)):
            kept.append(step)
    kept = kept[:2]
    return [*kept[:-1], f"{kept[-1]}."] if kept else []


def _source(document: Row) -> str:
    return shlex.join(document["provenance"]["sources"]) or "SOURCE"


def _pointers(document: Row, source: str, most: int) -> list[str]:
    """Where more stands, in so many lines at most."""
    # The gravest is the reason given; the others wait.
    more = len(document["notices"]) - (document["verdict"]["level"] != "ok")
    notes = others_words(document, more)
    details = [f"Details and {notes}", notes] if more else ["Details"]
    picture = f"Picture: isocompute report {source}"
    lines = [f"{each}: --full    {picture}" for each in details]
    fitting = [line for line in lines if len(line) <= WIDTH]
    apart = [f"{details[0]}: --full", *pasted(picture, WIDTH, "", " " * 4)]
    if fitting or len(apart) > most:
        return fitting[:1] or [f"{details[0]}: --full    Picture: isocompute report SOURCE"]
    return apart
