"""What names of runs, files and folders seem to say of B_p, n and the seed: hints, never read.

A hint is a `pattern`: it has the words of a name with placeholders in place of the numbers, a star
for what differs between them, and brackets around a seed that only some names say.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.values.imported import DESIGN, ImportedRun
from isocompute.importers.words.called import MEANT
from isocompute.importers.words.settings import Settings

_N = "rollouts_per_problem"
# How names write B_p and n: bp32, prompts-32, rollouts_16; W&B's grouped charts "n: 16".
_WRITTEN = {
    "problems_per_batch": r"bp|b_p|bsz|[tr]?bs|(?<![0-9])b|batch|prompts|problems(?:_per_batch)?",
    # an n beside one of the others often counts nodes
    "rollouts_per_problem": r"nspp|g|group|gen|roll(?:outs?)?(?:_per_problem)?|samples|n",
    "seed": r"seed ?|s",
}
# What may count anything, and is named with an "if".
_PERHAPS = {"rollouts_per_problem": r"k|r", "seed": r"rng|sd|r|run|rep|repeat|rerun|trial|try"}
# digits that no such number has: those of a job (grpo-n-91822_0), of a time
_DIGITS = {"problems_per_batch": 7, "rollouts_per_problem": 5, "seed": 13}
# RUN__SEED__TIME, as CleanRL and open-instruct name their runs
_BEFORE_TIME = re.compile(r"(?<=__)([0-9]{1,6})(?=__1[0-9]{9}(?![0-9]))")
_SUMMARY = re.compile(r"(?<![A-Za-z])(?:mean|avg|average|median|std|mittel)(?![A-Za-z@])", re.I)
_AT_END = re.compile(r"(?<=[a-z0-9])_{1,2}([0-9]{1,3})(?=\.[a-z]+$|$)", re.I)


def number_in(text: str, name: str) -> int | None:
    """What a name says of a setting; None where it does not.

    >>> number_in("qwen-n4-g8", "rollouts_per_problem")
    8
    """
    said = _said(text, name)
    return None if said is None else int(said[1])


def written_in(text: str, name: str) -> tuple[int, int] | None:
    """Where a name says a setting: the place of its number; None where it does not.

    >>> written_in("qwen-n16", "rollouts_per_problem")
    (6, 8)
    """
    said = _said(text, name)
    return None if said is None else said.span(1)


def without_seed(name: str) -> tuple[str, int] | None:
    """What runs that differ in their seed share of their names, and the seed; None without one.

    >>> without_seed("qwen_n16-s2"), without_seed("seed3_n4"), without_seed("n4")
    (('qwen_n16', 2), ('n4', 3), None)
    >>> without_seed("qwen-s3-n4")
    ('qwen-n4', 3)
    """
    said = _said(name, "seed")
    if said is None:
        return None
    before, after = (part.strip("-_. ") for part in (name[: said.start()], name[said.end() :]))
    sign = next((one for one in name[said.end() :][:1] if one in "-."), "_")
    return (sign.join(filter(None, (before, after))), int(said[1]))


def _said(text: str, name: str, perhaps: str = "") -> re.Match[str] | None:
    if name == "seed" and (timed := _BEFORE_TIME.search(text)):
        return timed
    words = _words(name) + ((_PERHAPS[name],) if name in perhaps.split() else ())
    found = next((found for word in words if (found := re.search(
        # 8k is a length, 3b a model, 1n8g nodes and GPUs; 32xn4 has a sign for "times"
        rf"(?:(?<![a-z])|(?<=[0-9]x))(?:{word})(?:[-_ ]| ?= ?|: ?)?([0-9]{{1,12}})"
        rf"(?![0-9km]|b(?![0-9])|g(?![a-z0-9])|steps?|epochs?)(?<![0-9]{{{_DIGITS[name]}}})",
        text, re.I,
    ))), None)  # fmt: skip
    return _AT_END.search(text) if found is None and name == "seed" and name in perhaps else found


def _words(name: str) -> tuple[str, ...]:
    """How a name is written, the most telling words first."""
    telling, _, n = _WRITTEN[name].rpartition("|")
    return (telling, n) if n == "n" else (_WRITTEN[name],)


def per_rollout(runs: Sequence[ImportedRun]) -> int | None:
    """B_p where the batch that names give is the same multiple of n in all: B_p * n, in rollouts.

    None where the names give no batch, or one that does not follow n.
    """
    found = set[tuple[int, int]]()
    for run in runs:
        path = Path(run.provenance.path)
        for text in (path.name, run.name, path.parent.name):
            batch, n = (number_in(text, name) for name in DESIGN[:2])
            if batch and n:
                found.add((batch, n))
                break
    ratios = {batch / n for batch, n in found}
    ratio = ratios.pop() if len(ratios) == 1 and len({n for _, n in found}) > 1 else 0.0
    return int(ratio) if ratio >= 1 and ratio == int(ratio) else None


def pattern_for(runs: Sequence[ImportedRun], *, seed_alone: bool = False) -> str | None:
    """The `pattern` that names seem to follow, of what runs lack; None where none.

    Args:
        runs: of an import.
        seed_alone: also where B_p and n are known.
    """
    lacking = [run for run in runs if None in (run.design if seed_alone else run.design[:2])]
    if not lacking:
        return None
    missing = [n for n in DESIGN[:2] if any(getattr(run, n) is None for run in lacking)]
    seeds = ["seed"] if all(run.seed is None for run in runs) else []
    if "problems_per_batch" in missing and per_rollout(lacking) is not None:
        missing.remove("problems_per_batch")  # the names' batch counts rollouts
    # folders speak for their logs where a folder of several was read
    paths = {run.provenance.path for run in lacking}
    shared = len(os.path.commonpath(paths)) if len(lacking) > 1 else 0
    both = [*missing, *seeds]
    for asked, perhaps in (
        (both, ""), (both, "seed"), (missing, ""), (both, f"{_N} seed"), (missing, _N),
    ):  # fmt: skip
        for run in lacking if asked else ():  # the first name that has it all
            place = Path(run.provenance.path), run.name
            found = _pattern(*place, asked, len(lacking) > 1, shared, perhaps)
            if found is None or ("seed" in asked and "{seed}" not in found):
                continue
            for pattern in _forms(found):
                if all(_found(pattern, one) for one in lacking) and (
                    not perhaps or (_holds(pattern, lacking) and "[" not in pattern)
                ):
                    return pattern
    return None


def _forms(pattern: str) -> Iterator[str]:
    """A pattern; with a star for what stands between its numbers; with a seed that may be absent.

    >>> list(_forms("n{n}_lr1_s{seed}"))
    ['n{n}*s{seed}', 'n{n}_lr1_s{seed}', 'n{n}[*s{seed}]']
    """
    starred = re.sub(r"(?<=\})(.*?)([A-Za-z]*[-_=]?|__)(?=\{)", _starred, pattern)
    between = re.findall(r"\}([^{}]*)(?=\{)", pattern)
    yield from dict.fromkeys((starred, pattern) if re.search("[0-9]", "".join(between)) else (
        pattern, starred
    ))  # fmt: skip
    if starred.endswith("{seed}") and "}" in starred[:-6]:
        at = starred.index("}", 0, -6) if starred.count("}") == 2 else starred.rindex("}", 0, -6)
        yield f"{starred[: at + 1]}[{starred[at + 1 :]}]"


def _starred(found: re.Match[str]) -> str:
    return f"*{found[2]}" if re.search("[0-9A-Za-z]", found[1]) else found[0]


def _found(pattern: str, run: ImportedRun) -> Mapping[str, int]:
    """What a pattern finds in the names of a run; a hint must hold for all."""
    settings = Settings(pattern=pattern)
    try:
        by_name = settings.for_run(run.name)
        by = by_name if by_name.named else settings.for_path(Path(run.provenance.path))
    except InputError:  # an n of 0: it counts runs
        return {}
    return {name: getattr(by, name) for name in sorted(by.named)}


def _holds(pattern: str, runs: Sequence[ImportedRun]) -> bool:
    """Whether what a pattern of common words finds may be it: an n differs, by powers of two.

    Seeds tell runs of one configuration apart, and are no numbers that B_p or n came from.
    """
    found = [_found(pattern, run) for run in runs]
    sizes = {one[_N] for one in found if _N in one}
    if sizes and (len(sizes) < 2 or any(size & (size - 1) for size in sizes)):
        return False
    of = Counter(
        tuple(one.get(name) or getattr(run, name) for name in DESIGN)
        for one, run in zip(found, runs, strict=True)
    )
    taken = all(one.get("seed") in (run.problems_per_batch, run.rollouts_per_problem)
                for one, run in zip(found, runs, strict=True))  # fmt: skip
    return "{seed}" not in pattern or (max(of.values()) == 1 and not taken)


def perhaps_of(pattern: str) -> str:
    """What must hold of the common words of a pattern; "" where it has none.

    >>> perhaps_of("k{rollouts_per_problem}-r{seed}"), perhaps_of("n{rollouts_per_problem}_s{seed}")
    ('if k is n and r is the seed', '')
    """
    told = []
    for name, word in ((_N, "n"), ("seed", "the seed")):
        found = re.search(rf"(?:^|[^A-Za-z])([A-Za-z]*)[-_= ]*\{{{name}\}}", pattern)
        if found is not None and re.fullmatch(f"{_PERHAPS[name]}|", found[1], re.I):
            told.append(f"{found[1] or 'the last number'} is {word}")
    return f"if {' and '.join(told)}" if told else ""


def says(pattern: str, runs: Sequence[ImportedRun]) -> str:
    """What a pattern says of a first run, in words to check; "" where it finds nothing."""
    for run in runs:
        if found := _found(pattern, run):
            told = " and ".join(f"{value} {MEANT[name]}" if name != "seed" else f"seed {value}"
                                for name, value in found.items() if name in MEANT)  # fmt: skip
            return f"{run.name!r} had {told}"
    return ""


def alike_under(pattern: str, runs: Sequence[ImportedRun]) -> tuple[str, str] | None:
    """The first two runs of one configuration and no seed, with what a pattern finds."""
    seen: dict[tuple[int | None, ...], str] = {}
    for run in runs:
        by = _found(pattern, run) if pattern else {}
        b_p, n, seed = (by.get(name) or getattr(run, name) for name in DESIGN)
        if n is None or seed is not None:
            continue
        if (first := seen.setdefault((b_p, n), run.name)) != run.name:
            return first, run.name
    return None


_SEED = re.compile(r"(?<![A-Za-z])(?<!data.)(?<!eval.)(?<!split.)seed[-_= ]?([0-9]{1,6})(?![0-9])")


# What names say of the recipe, where no configuration does.
_OF_RECIPE = {
    word: re.compile(rf"(?<![A-Za-z])(?:{said})[-_= ]?({value})(?![0-9A-Za-z]|\.[0-9])", re.I)
    for word, said, value in (
        ("learning_rate", "lr|learning_rate", r"[0-9]+(?:\.[0-9]+)?e-?[0-9]+|0?\.[0-9]+"),
        ("kl_coef", "kl(?:_?coef)?", r"[0-9]+(?:\.[0-9]+)?e-?[0-9]+|[01]?\.[0-9]+|0"),
        ("temperature", "temp|temperature", r"[0-9]?\.[0-9]+"),
        ("lora_rank", "(?:lora[-_]?)?rank|lora[-_]?r", "4|8|16|32|64|128|256"),
    )
} | {"model": re.compile(
    r"(?:(?<=qwen)|(?<=llama)|(?<=gemma)|(?<![A-Za-z0-9.])(?<!exp[-_]))([0-9]{1,3}(?:\.[0-9]+)?b)(?![A-Za-z0-9])",
    re.I,
)}  # fmt: skip


def recipe_in(name: str) -> dict[str, str]:
    """What a name or a path says of the recipe and of the size of the model.

    >>> recipe_in("grpo_n8_lr1e-6_kl0.01"), recipe_in("n8_lr_sweep2"), recipe_in("qwen2.5-1.5B-n8")
    ({'learning_rate': '1e-06', 'kl_coef': '0.01'}, {}, {'model': '1.5b'})
    """
    found = dict[str, str]()
    for part in name.split("/"):  # what is nearest to the log holds
        for word, form in _OF_RECIPE.items():
            said = {of.lower() for of in form.findall(part)}
            if len(said) == 1 and word == "model":
                found[word] = said.pop()
            elif len(said) == 1:  # 1e6 has lost its minus to a shell or to the name of a file
                found[word] = f"{float(re.sub('e(?!-)', 'e-', said.pop())):.6g}"
    return found


def with_names(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """Runs of a known B_p and n with the seed and the recipe that their names give, by words."""
    out, of_models = [], any("model" in run.provenance.facts for run in runs)
    for run in runs:
        parts = Path(run.provenance.path).parts[-4:]
        if run.provenance.format == "checkpoint-results":  # what it is called says its evaluation
            parts = ()
        text = "/".join([*parts, run.name])
        said = {found[1] for found in _SEED.finditer(text)}
        known = None not in (run.problems_per_batch, run.rollouts_per_problem)
        if run.seed is None and known and len(said) == 1:
            seed = said.pop()
            run = replace(run, seed=int(seed)).inferring(f"seed={seed}: the name says so")
        facts = {**recipe_in(text), **run.provenance.facts}
        if of_models:  # by its whole name, where another run says it
            facts = {k: v for k, v in facts.items() if k != "model" or k in run.provenance.facts}
        if known and facts != run.provenance.facts:
            run = replace(run, provenance=replace(run.provenance, facts=facts))
        out.append(run)
    return out


def _pattern(
    path: Path, name: str, missing: Sequence[str], folders: bool, shared: int = 0,
    perhaps: str = "",
) -> str | None:
    """The first name of a log that says what is missing, else a part of it; the seed, too.

    `shared`: characters of the path that all logs have alike: n is not told by those.
    """
    whole = str(path)
    seen = [(path.name, len(whole) - len(path.name)), (name, len(whole))]
    if "tfevents" in path.name:  # a time and a host
        del seen[0]
    if folders:
        seen.append((path.parent.name, len(str(path.parent)) - len(path.parent.name)))
        parts = ["/".join(path.parts[-depth:]) for depth in (3, 4)]
        seen += [(part, len(whole) - len(part)) for part in parts]
    seed = [word for word in missing if word == "seed"]
    asked = [word for word in missing if word != "seed"]
    if not asked:
        return next((p for text, _ in seen if (p := _pattern_in(text, seed, perhaps))), None)
    for wanted in ([asked] if len(asked) < 2 else [asked, *([word] for word in asked)]):
        for names in [wanted + seed, wanted] if seed else [wanted]:
            for text, at in seen:
                said = _said(text, _N, perhaps)
                if said is not None and _N in wanted and at + said.start(1) < shared:
                    continue
                if found := _pattern_in(text, names, perhaps):
                    return found
    return None


def pattern_of(run: ImportedRun) -> str | None:
    """The `pattern` that a run's names seem to follow; None where they do not say B_p and n."""
    return _pattern(Path(run.provenance.path), run.name, DESIGN, folders=True)


def pattern_in_path(path: Path, missing: Sequence[str]) -> str | None:
    """The `pattern` by which the names of a file and its folder say what is missing."""
    return _pattern(path, path.name, [*missing, "seed"], folders=True)


def _pattern_in(text: str, missing: Sequence[str], perhaps: str = "") -> str | None:
    """The part of a name that says what is missing, as a `pattern`; None where it does not.

    >>> _pattern_in("run_bp32_n16_seed0.jsonl", list(_WRITTEN))
    'bp{problems_per_batch}_n{rollouts_per_problem}_seed{seed}'
    >>> _pattern_in("n=4 (seed 1).csv", list(_WRITTEN)[1:])
    'n={rollouts_per_problem} (seed {seed})'
    """
    places = []
    for name in missing:
        said = _said(text, name, perhaps)
        if said is None or _is_bare(text, said):
            return None
        places.append((said.start(1), said.end(), said.start(), name))
    if len({start for start, *_ in places}) < len(places):
        return None  # one number for two
    pattern, at = "", min(start for _, _, start, _ in places)
    for number, end, _, name in sorted(places):
        pattern += f"{text[at:number]}{{{name}}}"
        at = end
    if text[at : at + 1] == ")" and pattern.count("(") > pattern.count(")"):
        pattern += ")"
    if places and _BEFORE_TIME.match(text, sorted(places)[-1][0]):
        pattern += "__"
    return pattern


def _is_bare(text: str, said: re.Match[str]) -> bool:
    """Whether a lone `b` stands in a folder's or file's name that says no n: "b3" may be anything.

    >>> [_is_bare(text, re.search("b[0-9]", text)) for text in ("b3/n8", "b3_n8")]
    [True, False]
    """
    if said[0][:1].lower() != "b" or said[0][1:2].isalpha():
        return False
    part = text[text.rfind("/", 0, said.start()) + 1 :].split("/", 1)[0]
    return number_in(part, "rollouts_per_problem") is None


def pattern_in_columns(header: Sequence[str]) -> str | None:
    """The `pattern` of a table with a column for every n, as all of their names follow it.

    >>> pattern_in_columns(["step", "n8_seed0", "n8_seed1", "n16_seed0"])
    'n{rollouts_per_problem}_seed{seed}'
    >>> pattern_in_columns(["step", "n=8 s1", "n=8 s2", "n=8 mean", "n=16 s1", "n=16 mean"])
    'n={rollouts_per_problem} s{seed}'
    """
    said = [c.strip() for c in header if number_in(c, "rollouts_per_problem") is not None]
    columns = [c for c in said if not _SUMMARY.search(c)] or said  # of the seeds beside it: no run
    if len({number_in(c, "rollouts_per_problem") for c in columns}) < 2:
        return None
    for names in (list(_WRITTEN), list(_WRITTEN)[:2], list(_WRITTEN)[1:], list(_WRITTEN)[1:2]):
        found = {_pattern_in(column, names) for column in columns}
        if len(found) == 1 and None not in found:
            return found.pop()
    return None


def runs_in_columns(names: Sequence[str], step: int) -> dict[str, bool]:
    """Columns that are a run each, and whether the seed alone tells them apart; `step`: no run.

    Empty where another column is neither a run nor a summary of those beside it.

    >>> runs_in_columns(["u", "n8", "n16"], 0), runs_in_columns(["seed 1", "u", "mean"], 1)
    ({'n8': False, 'n16': False}, {'seed 1': True})
    """
    columns = [c for i, c in enumerate(names) if i != step and not _SUMMARY.search(c)]
    pattern = pattern_in_columns(columns)
    by_n = Settings(pattern=pattern)
    is_run = _SEED.fullmatch if pattern is None else lambda name: by_n.for_run(name).named
    return dict.fromkeys(columns, pattern is None) if all(map(is_run, columns)) else {}
