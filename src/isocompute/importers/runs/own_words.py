"""What runs say of their recipe in words of their own, which no list of words knows.

A loop of one's own says `reward_type` or `difficulty`, and a name `lam0.05`. Such a word is told
only where runs that would count as repetitions differ in it: those of one B_p, n and seed, or,
where the log says no seed, in text. A number with a point in a name is no seed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from isocompute.importers.runs.grids import plain_value
from isocompute.importers.values.imported import DESIGN, ImportedRun
from isocompute.importers.values.reading import number
from isocompute.importers.words.configuration import FACTS, IN_ROWS, KNOWN, of_another
from isocompute.recipe import RECORDED, TRAINED

_LISTED = frozenset((*FACTS, *RECORDED, *TRAINED))
_MOST = 120  # settings of a loop of one's own; a trainer's own dump has hundreds
_LONG = 40  # of a word; longer text is a note
# Words of settings that change no curve, or only how far it goes: places, names, times, speed.
_ASIDE = re.compile(
    r"\w*names?|paths?|\w*dirs?|files?|folders?|log(?:s|gers?|ging)?|wandb|project|entity|tags?|"
    r"notes?|comments?|descr\w*|time\w*|dates?|stamp|host\w*|ports?|ur[il]s?|addr\w*|nodes?|"
    r"devices?|gpus?|cuda|cpus?|workers?|proc\w*|threads?|versions?|commit|git|hash|u?u?ids?|runs?|"
    r"keys?|user|mail|sav(?:es?|ed|ing)|checkpoint\w*|ckpts?|resum\w*|out(?:puts?)?|cache\w*|debug|"
    r"verbose|print\w*|seeds?|steps?|epochs?|iter\w*|eval\w*|vals?|valid\w*|tests?|interval|every|"
    r"freq\w*|dtype|bf16|fp16|precision|compile\w*|flash|attn\w*|memory|util\w*|parallel\w*|"
    r"micro\w*|accum\w*|batch\w*|shard\w*|offload\w*|server|api|backend|report\w*|track\w*|"
    r"samples?|problems?|prompts?|stat(?:e|us)|last|best|final|mean|scores?|acc\w*|elapsed|total|"
    r"jobs?|slurm|array|attempts?|retr(?:y|ies)|re?start\w*|creat\w*|updated|finished|ended|pods?|"
    r"instances?|machines?|clusters?|region|queue|partition|ranks?|world|author|owner|e_?mail|"
    r"duration|hours?|runtime|wall|cost|price"
)
_IN_NAME = re.compile(
    r"(?<![A-Za-z])([A-Za-z]{1,20})[-_=]?([0-9]{1,2}\.[0-9]{1,6})(?![0-9A-Za-z]|\.[0-9])"
)
_NO_RECIPE = re.compile(  # said by other means, a version, or what came of it
    "lr|learning_rate|kl|kl_?coef|temp|temperature|v|ver|version|.*(?:acc|score|reward|loss|val|"
    "eval|test|qwen|llama|gemma|phi|gpt|glm|mistral|deepseek|smollm|olmo|python|torch|cuda|vllm|"
    "trl|verl)", re.I,
)


def own_words(config: Mapping[str, object]) -> dict[str, str]:
    """Words of the configuration of a loop of one's own that may be of its recipe.

    >>> own_words({"group_size": 8, "reward_type": "strict", "log_path": "a", "alpha": 0.5})
    {'reward_type': 'strict', 'alpha': '0.5'}
    """
    if len(config) > _MOST or of_another(config) or "per_device_train_batch_size" in config:
        return {}
    return {key: str(value) for key, value in config.items()
            if key not in KNOWN | IN_ROWS and not _is_aside(key) and _is_word(value)}  # fmt: skip


@lru_cache(4096)
def _is_aside(key: str) -> bool:
    """Whether a setting changes no curve.

    >>> _is_aside("X_log_path"), _is_aside("save.every"), _is_aside("shaping"), _is_aside("stage")
    (True, True, False, False)
    """
    return any(map(_ASIDE.fullmatch, re.split("[^a-z0-9]+", key.lower())))


def _is_word(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONG and not re.search(r"[/\\\s]|[0-9]{8}", value)
    return isinstance(value, (int, float))


def words_in(run: ImportedRun) -> dict[str, str]:
    """Numbers with a point that a run's name, or its folders', has behind a word."""
    said = defaultdict[str, set[str]](set)
    for text in (*Path(run.provenance.path).parts[-4:], run.name):
        if "tfevents" in text:  # a time, a host and its process
            continue
        for word, value in _IN_NAME.findall(re.sub(r"\.[a-z]+$", "", text)):
            if not _NO_RECIPE.fullmatch(word):
                said[word.lower()].add(f"{float(value):g}")
    return {word: next(iter(values)) for word, values in said.items() if len(values) == 1}


def with_own_words(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """Runs with further facts: their own words that runs of one B_p, n and seed differ in."""
    told = list(runs)
    groups = defaultdict[tuple[object, ...], list[int]](list)
    for at, run in enumerate(runs):
        if run.series and None not in run.design[:2]:
            groups[run.design[:2]].append(at)
    for group in (its for its in groups.values() if len(its) > 1):
        said = {at: {**runs[at].own, **words_in(runs[at])} for at in group}
        seen = set[tuple[str, ...]]()
        for key in sorted(dict.fromkeys(key for at in group for key in said[at]), key=len):
            of = {at: said[at][key] for at in group if key in said[at]}
            parts = tuple(plain_value(of.get(at, "")) for at in group)
            if parts in seen or key in (*DESIGN, "run") or not divided(
                (runs[at].seed, value) for at, value in of.items()
            ):
                continue
            seen.add(parts)
            for at, value in of.items():
                its = told[at].provenance
                told[at] = replace(told[at], provenance=replace(
                    its, facts={**its.facts, key: its.facts.get(key, value)}))  # fmt: skip
    return told


def divided(said: Iterable[tuple[int | None, str]]) -> bool:
    """Whether runs of one B_p and n, by their seeds, say two things that make them no repetitions.

    >>> divided([(1, "a"), (1, "b")]), divided([(1, "a"), (2, "b")])
    (True, False)
    >>> divided([(None, "1"), (None, "2")]), divided([(None, "0.5"), (None, "1")])  # may be a seed
    (False, True)
    """
    by_seed = defaultdict[int | None, set[str]](set)
    for seed, value in said:
        by_seed[seed].add(plain_value(value))
    if all(map(_is_whole, by_seed[None])):  # they may be seeds
        del by_seed[None]
    return any(len(values) > 1 for values in by_seed.values())


def _is_whole(value: str) -> bool:
    found = number(value)
    return found is not None and found.is_integer()


def own_names(runs: Sequence[ImportedRun]) -> list[str]:
    """Words of their own that are told of runs."""
    return [name for name in dict.fromkeys(name for run in runs for name in run.provenance.facts)
            if name not in _LISTED and not _is_aside(name)]  # fmt: skip
