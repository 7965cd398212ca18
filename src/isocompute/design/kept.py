"""The recipe of a designed study: that of the prior's runs, as far as they record one.

What a sweep of other settings would show is not what the prior's runs have shown. The recipe for a
difficulty stands only for what they do not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from isocompute.answers.around import RATE, REGULARISERS, recorded_recipe
from isocompute.domain import Configuration, Curve, Notice, documented
from isocompute.recipe import RECORDED, Difficulty, Recipe
from isocompute.sources.grid import GRID
from isocompute.sources.studies import study_facts

LIMIT = "response length limit"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the runs of a prior say of their recipe."""

    words: Mapping[str, Any] = field(default_factory=dict)  # of a study file's `recipe`
    recorded: tuple[str, ...] = ()  # which of `RECORDED` they say, and the response length limit
    unsaid: tuple[str, ...] = ()  # the others
    response_limit: int | None = None  # tokens at which they cut responses; None: not said
    notices: tuple[Notice, ...] = ()  # where they disagree

    @property
    def has_rate(self) -> bool:
        """Whether the learning rate is known."""
        return RATE in self.recorded


def kept_recipe(
    curves: Sequence[Curve], source: str | None, difficulty: str | None,
    chosen: Configuration, *, given: bool,
) -> Kept:  # fmt: skip
    """What the runs of one's own say; nothing of the shipped sweeps, which are another model's.

    Args:
        source: the prior; None: the shipped sweeps.
        difficulty: whose recipe is usual; None: easy.
        chosen: whose runs decide where runs differ.
        given: the difficulty was asked for: its regularisers go before those of the runs.
    """
    if source is None or source.startswith(("published:", GRID)):
        return Kept()
    usual = Recipe.for_difficulty(cast("Difficulty", difficulty or "easy"))
    asked, facts = REGULARISERS if given else (), study_facts(source)
    limits = [c.response_limit for c in curves if c.response_limit]
    limit = facts.response_limit or (max(limits) if limits else None)
    notices = list[Notice]()
    if len(facts.recipes) == 1:
        recipe, words = facts.recipes[0], [word for word in RECORDED if word not in asked]
        recipe = recipe.replace(**{word: getattr(usual, word) for word in asked})
    else:
        found = recorded_recipe(curves, usual, chosen, keep=asked)
        recipe, words, notices = found.recipe, list(found.words), found.notices
    if not words:
        return Kept(response_limit=limit)
    said = {*words, *(("base_batch_size", "learning_rate_scaling") if RATE in words else ())}
    mine, theirs = recipe.to_dict(), usual.to_dict()
    known = [*words, *([LIMIT] if limit else [])]
    return Kept(
        words={word: mine[word] for word in mine if word in said or mine[word] != theirs[word]},
        recorded=tuple(known), response_limit=limit, notices=tuple(notices),
        unsaid=tuple(w for w in (*RECORDED, LIMIT) if w not in known and w not in asked),
    )  # fmt: skip


def with_recipe(d: Mapping[str, Any], kept: Kept) -> dict[str, Any]:
    """`recipe` of a `design --json` document, and its notices without those that it settles."""
    settled = set[str]()
    if kept.has_rate or REGULARISERS[0] in kept.recorded:
        settled.add("difficulty_assumed")
    if REGULARISERS[0] in kept.recorded:
        settled.add("difficulty_of_file")
    more = documented(kept.notices)
    return {
        "recipe": None if not kept.recorded else {
            "words": dict(kept.words), "response_limit": kept.response_limit,
            "recorded": list(kept.recorded), "unsaid": list(kept.unsaid)},
        **{name: [*(one for one in d[name] if one["code"] not in settled), *more[name]]
           for name in ("notices", "warnings")},
    }  # fmt: skip
