"""What a key of a row means, known before any value of it.

| meaning | the key holds |
|---|---|
| a Column | scores |
| a kind of `KINDS` | a number beside the scores, kept by its step |
| `=NAME`, `+NAME` | B_p, n or the seed, under our name or one that the user mapped to it |
| `^KEY` | the model, or what else a row names of its run |
| `~KEY` | what the scores are of: a log has one of each |
| `?KEY` | what may be B_p or n, for messages |
| `%KEY` | of how many problems the scores beside it are |
| `#KEY` | what may count updates |
| None | nothing that is understood |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from isocompute.importers.values.reading import number
from isocompute.importers.values.timing import (
    ALIKE,
    ALIKE_KEYS,
    EPOCH,
    EPOCH_KEYS,
    OWN_TIMES,
    TESTING,
    TIMING_KEYS,
)
from isocompute.importers.words.called import may_be_setting, refuse_logarithm
from isocompute.importers.words.configuration import IN_ROWS, MODELS
from isocompute.importers.words.settings import Column, Settings
from isocompute.importers.words.splits import OF_SPLIT, split_of
from isocompute.importers.words.vocabulary import (
    BATCHES_KEYS,
    COUNTED,
    CUT_KEYS,
    ENDED_KEYS,
    EVALUATED_SET,
    EVICTED_KEYS,
    LENGTH_KEYS,
    PROMPT_KEY,
    RATE_KEYS,
    ROLLOUTS,
    ROLLOUTS_KEYS,
    SAMPLED,
    SEEN_KEYS,
    STEP_KEYS,
    TOKENS_KEYS,
    TOTAL_TOKENS_KEY,
    TRACKER_STEPS,
    column_of,
    counts_updates,
)

WORDS = "=+^?~#%"  # the first letters of what is said of the run, not kept by step

# what the scores of a row are of
OF_ROWS = frozenset(("split", "dataset", "data_source", "problem_set", "benchmark", "eval_set",
                      "subset", "mode", "phase"))  # fmt: skip
_OF_SECTION = re.compile(  # as a section of evaluations says it: val/dataset
    r"(?:eval|evaluation|val|validation|test)[/._](?:data_?set|data_source|data|file|problem_set|"
    r"benchmark|set|subset|name)", re.I,
)
_OF_TRAINING = re.compile(  # Ray Tune counts reports, of evaluations too
    r"(?:^|[/_.])(?:train(?!ing_iteration)|actor|critic|loss|kl|entropy|grad|reward)", re.I
)

_SIDES = {
    **dict.fromkeys(LENGTH_KEYS, "length"), **dict.fromkeys(TOKENS_KEYS, "tokens"),
    **dict.fromkeys(ROLLOUTS_KEYS, "rollouts"), **dict.fromkeys(BATCHES_KEYS, "batches"),
    **dict.fromkeys(EVICTED_KEYS, "evicted"), **dict.fromkeys(RATE_KEYS, "rate"),
    **dict.fromkeys(EPOCH_KEYS, EPOCH), **dict.fromkeys(ALIKE_KEYS, ALIKE),
    TOTAL_TOKENS_KEY: "total", PROMPT_KEY: "prompt", **TIMING_KEYS,
    **dict.fromkeys(SEEN_KEYS, "seen"), **dict.fromkeys(CUT_KEYS, "cut"),
    **dict.fromkeys(ENDED_KEYS, "ended"),
}
PROBLEMS_SAMPLED = "problems_sampled"  # the name of it in a column map
KINDS = {*_SIDES.values(), "drawn", "sampled", "counted"}
_PASSED = {*STEP_KEYS, *_SIDES, *OF_SPLIT, "step", "Step"}  # understood, though no scores


def meaning_of(
    key: str, settings: Settings, counters: Collection[str], *, drawn: bool
) -> Column | str | None:
    """What a key holds, in a log with these keys of counters; `drawn`: one counts rollouts."""
    if key in settings.columns:
        mapped = settings.columns[key]
        if mapped.metric.label in ("rollouts", PROBLEMS_SAMPLED):
            return "sampled" if mapped.metric.label == PROBLEMS_SAMPLED else "rollouts"
        if mapped.metric.label in OWN_TIMES:
            return OWN_TIMES[mapped.metric.label]
        held = mapped.metric.label in IN_ROWS  # a name for B_p, n or the seed, no score
        if key != mapped.metric.label:
            refuse_logarithm(key, mapped.metric.label, [], "a column map")
        return f"+{mapped.metric.label}" if held else mapped
    if key in IN_ROWS:
        return f"={key}"
    if key in MODELS:
        return f"^{key}"
    if key in OF_ROWS or _OF_SECTION.fullmatch(key):
        return f"~{key}"
    if key in _SIDES:
        return _SIDES[key]
    if key.endswith("_runtime") and (of := EVALUATED_SET.fullmatch(key)):  # of TRL's, one each
        return f"{TESTING} {of[1]}"
    column = column_of(key, counters)
    if column is not None:
        return settings.beside(column, key)
    if SAMPLED.search(key):
        return "sampled"
    if COUNTED.fullmatch(key):
        return "counted"
    # open-instruct 0.3.0, grpo_fast.py: under its counter of updates an episode is a rollout
    if not drawn and (ROLLOUTS.search(key) or (key == "episode" and "training_step" in counters)):
        return "drawn"
    if may_be_setting(key):
        return f"?{key}"
    if key not in (*TRACKER_STEPS, *STEP_KEYS) and counts_updates(key):
        return f"#{key}"
    return None


def is_unread(key: str, meaning: object) -> bool:
    """Whether nothing was read of a key; those of a tracker itself begin with `_`."""
    return meaning in (None, f"?{key}", f"#{key}") and key not in _PASSED and key[:1] != "_"


def trains_at(step: int, values: Mapping[str, object]) -> bool:
    """Whether a row whose keys tell of training does so: at step 0 a loss may be null.

    >>> trains_at(0, {"loss": None, "acc": 0.5}), trains_at(0, {"loss": 0.1})
    (False, True)
    """
    return step > 0 or tell_of_training([k for k, v in values.items() if number(v) is not None])


def tell_of_training(keys: Sequence[str]) -> bool:
    """Whether rows of these keys, and of a split that stands behind them, are of training.

    >>> tell_of_training(["step", "actor/kl"]), tell_of_training(["config/kl"])
    (True, False)
    """
    return "validation" not in keys[-1:] and any(
        _OF_TRAINING.search(key) and split_of(key) != "validation" for key in keys
        if not key.startswith(("config/", "config."))
    )
