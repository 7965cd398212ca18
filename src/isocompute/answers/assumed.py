"""What of a plan is its runs' own: their recipe as far as logs hold it, and what advice assumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.around import known_words
from isocompute.domain import Curve
from isocompute.domain.text import compact
from isocompute.recipe import TRAINED
from isocompute.trainers.rows import FALLING


def assumptions(said: Mapping[str, Any], curves: Sequence[Curve], steps: int) -> list[str]:
    """Each in a few words: off-policy updates, a schedule of the plan's length, staleness.

    Of what is plain, on-policy updates at a constant rate, nothing is said.

    >>> assumptions({"updates_per_batch": 16.0, "passes_per_batch": 2.0, "staleness": 0.0}, [], 9)
    ['16 updates per batch, in 2 passes']
    """
    found = []
    if (updates := said.get("updates_per_batch", 1.0)) > 1:
        passes = said.get("passes_per_batch", 1.0)
        over = f", in {passes:g} passes" if passes > 1 else ""
        found.append(f"{updates:g} updates per batch{over}")
    if (kind := said.get("lr_schedule", "constant")) != "constant":
        ends = sorted(float(c.steps_K[-1]) for c in curves
                      if c.steps_K is not None and len(c.steps_K))  # fmt: skip
        span = " to ".join(dict.fromkeys(compact(end) for end in (*ends[:1], *ends[-1:])))
        rate = "a falling rate" if kind == FALLING else f"{kind.replace('_', ' ')} rate"
        found.append(f"{rate} over {compact(steps)} steps" + (f" (runs: {span})" if span else ""))
    if (old := said.get("staleness", 0.0)) > 0:
        found.append(f"asynchronous rollouts (staleness {old:g})")
    return found


def settings_kept(d: Mapping[str, Any]) -> str:
    """Whose the settings of a plan are that logs hold in part; "" where none are from logs."""
    if known_words(d) is None:
        return ""
    if not {*TRAINED} & {*d["recorded"]}:
        words = {"kl_coef": "KL", "entropy_coef": "entropy bonus"}
        told = ", ".join(words.get(name, name.replace("_", " ")) for name in d["recorded"])
        return f"Of the recipe your logs hold only: {told}. Keep your own other settings."
    return "The recipe is that of your runs' logs; keep your own for the rest."


def recipe_unsaid(d: Mapping[str, Any], trainer: str) -> str:
    """What the keys of a trainer hold that no run recorded; "" where a recipe is not the runs'."""
    if not (said := settings_kept(d)) or not {*TRAINED} & {*d["recorded"]}:
        return said
    ours = [] if "updates_per_batch" in d["recorded"] else ["One update per batch"]
    keys = d["trainer"].get(trainer, ())
    scheduled = any("sched" in key or "decay-style" in key for key in keys)
    if scheduled and "lr_schedule" not in d["recorded"]:
        ours.append("a constant rate")
    if its := " and ".join(ours):
        said += f" {its[0].upper()}{its[1:]}: your logs do not say it."
    left = unsaid_of_runs(d, trainer)
    return said + (f" No key of {trainer} says what they had: {', '.join(left)}." if left else "")


def unsaid_of_runs(d: Mapping[str, Any], trainer: str) -> list[str]:
    """What the runs had and the keys of a trainer cannot say, with its values."""
    if not {*TRAINED} & {*d["recorded"]}:
        return []
    return [one for one in d["trainer_not_set"].get(trainer, ())
            if one.partition("=")[0] in d["recorded"]]  # fmt: skip
