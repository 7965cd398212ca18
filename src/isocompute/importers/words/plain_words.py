"""Words for B_p and n that mean nothing else, whatever trainer or section they stand in.

A batch may count problems or responses; where a key beside it says its unit, that holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from isocompute.importers.words.called import is_batch

RESPONSES = "responses_per_batch"  # what a column map calls batch_size: B_p * n
OWN = ("problems_per_batch", *(
    f"{what}_per_{batch}" for what in ("prompts", "problems", "questions", "tasks")
    for batch in ("batch", "step", "update", "iteration", "iter")
    if (what, batch) != ("problems", "batch")
))  # fmt: skip
GROUPS = (*(
    f"{what}_per_{of}" for of in ("prompt", "problem", "question", "example")
    for what in ("samples", "rollouts", "completions", "responses", "generations")
), "group_size")  # fmt: skip
_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")  # of a configuration
_OF_ALL = re.compile(  # what brackets may say behind a name without changing what it counts
    r"(?:(?:all|total|in|sum|over|global|effective|the|of|per|each|every|update|step|training|train|"
    r"gpus?|devices?|ranks?|group|grpo|b_?p?|n|g|k|m)(?:\s+|$))+", re.I,
)
# sections whose samples are of an evaluation, and whose groups are of weights
_NOT_OURS = re.compile(r"(?:^|[._])(?:eval|val|test|quant|lora|moe)", re.I)


def pairs_in(config: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Words for B_p and n, as far as a configuration has them."""
    batches = [word for word in OWN if word in config] or OWN[:1]
    groups = [word for word in GROUPS if word in config] or GROUPS[:1]
    return ((batch, group) for batch in batches for group in groups)


def plain_keys(
    config: Mapping[str, object], words: Sequence[str]
) -> Iterator[tuple[str, object]]:
    """Keys whose last part is one of some words, or that with `num_` or `train_` before it.

    Those of an evaluation are left out.
    """
    for key, value in config.items():
        section, _, word = plain_name(key).replace("/", ".").rpartition(".")
        word = word.removeprefix("train_")
        plain = word if word in words else word.removeprefix("num_")
        if plain in words and not _NOT_OURS.search(section):
            yield key, value


def explained(name: str) -> str:
    """A name by the words in front of its brackets or in them, where these say B_p or n.

    A trainer's own key in them goes before what people call it.

    >>> explained("n (rollouts/problem)"), explained("lr [1e-6]")
    ('rollouts_per_problem', 'lr [1e-6]')
    >>> explained("n (gconfig.n_samples)"), explained("prompts / batch (all GPUs)")
    ('gconfig.n_samples', 'prompts_per_batch')
    """
    found = re.fullmatch(r"([^()\[\]]*?)\s*[(\[](.+)[)\]]\s*", name)
    if found is None:
        return name
    if _KEY.fullmatch(found[2]):
        return found[2]
    alone = found[1] if _OF_ALL.fullmatch(found[2]) else ""  # a batch (mini), a group (eval)
    words = (plain_name(re.sub(r"\s*/\s*", " / ", one.strip())) for one in (found[2], alone))
    return next((word for word in words if word in (*OWN, *GROUPS)), name)


def plain_name(name: str) -> str:
    """A key or a column as code would name it.

    >>> plain_name("Rollouts-Per Problem"), plain_name("Prompts / batch")
    ('rollouts_per_problem', 'prompts_per_batch')
    """
    return re.sub("[ -]+", "_", name.lower().replace(" / ", "_per_"))


def in_plain_words(config: Mapping[str, object]) -> dict[str, object]:
    """B_p and n under the words that mean nothing else, whatever section they stand in.

    One that two sections say differently, or that is of an evaluation, is none of them.

    >>> in_plain_words({"rl.problems_per_step": 32, "eval.samples_per_problem": 4})
    {'problems_per_step': 32}
    """
    found: dict[str, object] = {}
    doubted = set[str]()
    for words in (OWN, GROUPS, ("num_generations",)):
        for key, value in plain_keys(config, words):
            word = next(w for w in words if plain_name(key).endswith(w))
            if key != word and str(found.setdefault(word, value)) != str(value):
                doubted.add(word)
    return {word: value for word, value in found.items() if word not in doubted}


_UNITS = ("_unit", "_units", "_counts", "_in")
_COUNTED = {
    **dict.fromkeys(("problem", "prompt", "question", "task", "group"), "problems_per_batch"),
    **dict.fromkeys(("completion", "response", "rollout", "generation", "trajectory",
                     "trajectorie", "sequence", "episode", "answer"), RESPONSES),
}  # fmt: skip


def unit_of(key: str, keys: Collection[str]) -> str | None:
    """The key that says what a batch counts; None where none does.

    >>> unit_of("batch", {"batch": 64, "batch_unit": "prompts"})
    'batch_unit'
    """
    return next((key + end for end in _UNITS if key + end in keys), None) if is_batch(key) else None


def counted_in(unit: object) -> str | None:
    """Which of our numbers a batch in a unit is; None for units that may be either.

    >>> counted_in("Prompts"), counted_in("completions"), counted_in("samples")
    ('problems_per_batch', 'responses_per_batch', None)
    """
    return _COUNTED.get(str(unit).strip().lower().removesuffix("s"))


def by_unit(config: Mapping[str, object]) -> dict[str, object]:
    """The batch whose unit a key beside it says.

    >>> by_unit({"batch": 512, "batch_unit": "completions"})
    {'responses_per_batch': 512}
    """
    found: dict[str, object] = {}
    for key, value in config.items():
        unit = unit_of(key, config)
        if unit is not None and (name := counted_in(config[unit])) is not None:
            found[name] = value
    return found
