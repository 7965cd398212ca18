"""What an adaptive sweep has decided, look by look, with the numbers of each decision."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence

from isocompute.domain import Configuration
from isocompute.store.database import Database
from isocompute.store.store import StoredRun
from isocompute.study.adaptive import Decision, Look

_MORE = 1.5  # a look spends half of what was spent before: with less, the next one is the last


def load_looks(database: Database) -> list[Look]:
    """All looks, in order; none where the study is not adaptive or has not begun."""
    rows = database.read(
        "SELECT look, problems_per_batch, rollouts_per_problem, action, rollouts, numbers "
        "FROM decisions ORDER BY look, problems_per_batch, rollouts_per_problem"
    )
    found: dict[int, list[Decision]] = {}
    for look, b_p, n, action, rollouts, numbers in rows:
        said = json.loads(numbers)
        compared = said.pop("compared", "")
        found.setdefault(look, []).append(
            Decision(
                action=action, configuration=Configuration(b_p, n) if n else None,
                rollouts=tuple(json.loads(rollouts)), numbers=said, compared=compared,
            )
        )  # fmt: skip
    return [Look(number, tuple(decisions)) for number, decisions in found.items()]


def last_look(database: Database) -> Look | None:
    """The look that holds now."""
    looks = load_looks(database)
    return looks[-1] if looks else None


def save_look(database: Database, look: Look) -> bool:
    """Keep a look, whole, in one transaction.

    Returns:
        False, and nothing is written, where another runner has kept the look of that number.
    """
    with database.write() as connection:
        newest = connection.execute("SELECT coalesce(max(look), -1) FROM decisions").fetchone()[0]
        if newest != look.number - 1:
            return False
        connection.executemany(
            "INSERT INTO decisions (look, problems_per_batch, rollouts_per_problem, action, "
            "rollouts, numbers) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (look.number, *(d.configuration or (0, 0)), d.action, json.dumps(d.rollouts),
                 json.dumps(_said(d), sort_keys=True))
                for d in look.decisions
            ],
        )  # fmt: skip
    return True


def _said(decision: Decision) -> dict[str, float | str]:
    """A study that names no scores keeps what it kept before they were written down."""
    named = {"compared": decision.compared} if decision.compared else {}
    return {**decision.numbers, **named}


def resting_states(looks: Sequence[Look], runs: Sequence[StoredRun]) -> dict[str, str]:
    """Why runs that are not done train no further, by hash; those that do are left out.

    "frozen": its n can no longer be best; "stopped": the sweep has ended; "unneeded": a seed
    that was never asked for.
    """
    if not looks:
        return {}
    look, rows = looks[-1], looks[-1].of_configurations
    seeds = sorted({run.spec["seed"] for run in runs})
    found = {}
    for run in runs:
        spec = run.spec
        mine = rows.get(Configuration(spec["problems_per_batch"], spec["rollouts_per_problem"]))
        if run.state != "pending" or mine is None:
            continue
        place = seeds.index(spec["seed"])
        asked = place < len(mine.rollouts)
        if asked and run.rollouts != mine.rollouts[place]:
            continue  # on its way, or trained on since, by a command that was not adaptive
        if mine.is_frozen and run.rollouts:
            found[run.hash] = "frozen"
        elif look.has_ended or not asked:
            found[run.hash] = "stopped" if run.rollouts else "unneeded"
    return found


def decision_lines(
    looks: Sequence[Look], rollouts_total: int, resting: Container[Configuration],
    trained: int | None = None,
) -> list[str]:  # fmt: skip
    """The state of an adaptive sweep, for people.

    Args:
        looks: that were taken.
        rollouts_total: of the whole grid.
        resting: configurations with runs that do not train; of those frozen only these are said.
        trained: rollouts in all; None: those that were seen.
    """
    if not looks:
        return []
    last = looks[-1]
    sweep = last.of_sweep.numbers
    head = f"adaptive: look {last.number}"
    if "loss_at_target" in sweep:
        head += (
            f", {sweep['spent']:,.0f} rollouts seen ({sweep['spent'] / max(rollouts_total, 1):.0%} "
            f"of the grid); the plan at {sweep['target']:,.0f} is expected to lose "
            f"{sweep['loss_at_target']:.4f} of score, {sweep['loss_on_path']:.4f} over the budgets "
            f"up to it{_before(looks)}"
        )
    lines = [head, f"  {_course(last, rollouts_total)}"]
    unseen = 0 if trained is None else trained - sweep.get("spent", trained)
    if last.has_ended and unseen > 0:
        lines.append(f"  {unseen:,.0f} rollouts trained since then are not in these losses: no "
                     "look was taken (`fit` reads them)")  # fmt: skip
    frozen: dict[Configuration, tuple[int, Decision]] = {}
    for look in looks:
        for c, d in look.of_configurations.items():
            if not d.is_frozen:
                frozen.pop(c, None)
            elif c not in frozen:
                frozen[c] = look.number, d
    lines += [
        f"  frozen: n={c.rollouts_per_problem}, B_p={c.problems_per_batch}, at {d.rollouts[0]:,} "
        f"rollouts (look {number}): {d.numbers.get('chance', 0):.1%} chance to come within 0.005 "
        "of the best, expected improvement "
        f"{d.numbers.get('improvement', 0):.4f}"
        for c, (number, d) in frozen.items() if c in resting
    ]
    return lines


def why_ended(looks: Sequence[Look], rollouts_total: int) -> str:
    """In the words of `status`; nothing of a sweep that goes on."""
    return _course(looks[-1], rollouts_total) if looks and looks[-1].has_ended else ""


def _before(looks: Sequence[Look]) -> str:
    """What the plan was expected to lose after at most two thirds of the rollouts."""
    now = looks[-1].of_sweep.numbers
    earlier = [look.of_sweep.numbers for look in looks
               if "loss_at_target" in look.of_sweep.numbers
               and look.of_sweep.numbers["target"] == now["target"]
               and _MORE * look.of_sweep.numbers["spent"] <= now["spent"]]  # fmt: skip
    if not earlier:
        return ""
    return f"; after {earlier[-1]['spent']:,.0f} it was {earlier[-1]['loss_at_target']:.4f}"


def _end(numbers: Mapping[str, float], rollouts_total: int) -> str:
    """Why a sweep has ended, and what would let it go on."""
    tolerance, limit = numbers.get("tolerance", 0.0), numbers.get("limit", 0.0)
    if "loss_at_target" not in numbers:
        return "every run failed before its first evaluation; `isocompute status` says why"
    if max(numbers["loss_at_target"], numbers.get("loss_on_path", 1.0)) < tolerance:
        return f"its plan loses less than the tolerance, {tolerance:g}"
    missed = f"its plan still loses more than the tolerance, {tolerance:g}"
    if numbers["loss_at_target"] < tolerance:
        missed += f", at budgets below {numbers['target']:,.0f}"
    needed = numbers.get("needed", numbers["spent"])  # an older version did not write it
    if not needed:
        return f"{missed}, and no training within the budget would change it: raise `budget`"
    if rollouts_total <= limit:
        return (f"it has trained all that its grid holds, and {missed}: raise `budget`, or add "
                "seeds or n")  # fmt: skip
    step = f", and its next step needs {needed:,.0f} in all" if needed > limit else ""
    return (
        f"it had trained {numbers['spent']:,.0f} of {limit:,.0f} rollouts that it may "
        f"(`adaptive.spend`){step}; {missed}: raise `adaptive.spend` to "
        f"{min(max(needed, _MORE * limit), rollouts_total):,.0f}"
    )


def _course(look: Look, rollouts_total: int) -> str:
    """What trains now, or why nothing does."""
    if look.has_ended:
        return f"ended: {_end(look.of_sweep.numbers, rollouts_total)}"
    parts = [
        f"n={c.rollouts_per_problem} {d.action} to {d.rollouts[0]:,}"
        + (f" with {len(d.rollouts)} seeds" if len(d.rollouts) > 1 else "")
        for c, d in look.of_configurations.items()
        if d.action not in ("freeze", "wait")
    ]
    return "now: " + (", ".join(parts) or "seeds of frozen n")
