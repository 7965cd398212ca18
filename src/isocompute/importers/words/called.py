"""How people call B_p, n and a batch in their own logs: guesses that only messages make.

A count may be stored as its logarithm: `log2_n` 2, 3, 4 for n = 4, 8, 16. The small whole numbers
of such a column look like counts. Its name, what a Parquet file says of it, or values that follow
each other as no sweep over n does, tell it; then the user says which it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache

from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.splits import SPLITS

# What a column map calls the logarithm of a count -> that count.
COUNTS = ("problems_per_batch", "rollouts_per_problem")
LOG2 = {f"log2_{name}": name for name in COUNTS}
_LOG = r"log_?2|lg2?|ld|lb|exponent|exp2|pow(?:er)?(?:s|_?of)?_?(?:2|two)"
_NAMED = re.compile(
    rf"(?<![a-z])(?:{_LOG})(?:_?of)?(?:(?![a-z])_?|(?<=2))|"
    rf"_(?:{_LOG}|exp|power)(?![a-z0-9])", re.I,
)  # fmt: skip
_PLAIN_LOG = re.compile(r"(?<![a-z])(?:log|ln|exp|pow(?:er)?)(?![a-z])_?", re.I)
_TOLD = re.compile(r"(?<![a-z])(?:log_?2|lg|logarithm|base.2|exponent|powers? of (?:two|2))", re.I)
_MOST = 20  # 2 ** 20 rollouts of one problem; at half a B_p of 2,048 is none
_LEAST = 3  # values that follow each other; with two of them, n = 1 and 2 would be doubted
# A place for the user's own number: a number would be pasted as it is.
YOURS = {"problems_per_batch": "B_P", "rollouts_per_problem": "N", "seed": "SEED",
         "processes": "P", "training_problems": "PROBLEMS"}
EITHER = "PROBLEMS_PER_BATCH_OR_BATCH_SIZE"
_CALLED = {
    "problems_per_batch": r"(n_|num_|batch_?)?(prompts|problems|questions|queries|tasks)"
                          r"(_per_(batch|step|update|iter(ation)?))?|prompt_batch_size|b_?p",
    "rollouts_per_problem": r"group_?size(_mean)?|(num_?|n_?)?generations?|(\w*_)?rollouts?_?n|n|g|"
                            r"(n_?|num_?)?(samples|rollouts|generations|responses|completions|resp|"
                            r"tries|attempts)_?per_?(prompt|problem|question|episode|task)|n_?samples|num_?samples",
    "rollouts": r"((total|cum\w*|n|num)_)?(rollouts|trajectories|episodes|completions)"
                r"(_?(seen|total|so_far))?|total_samples|samples_seen|consumed_samples|c",
}  # fmt: skip


_OF_LOGARITHMS = {
    "rollouts_per_problem": "group|rollouts|samples|completions|responses",
    "problems_per_batch": "problems|prompts|questions",
}
# Of a problem, or of the whole batch: only who wrote it knows.
_OF_ONE = " ({} of one problem, not of the batch; else give n with --set rollouts_per_problem=N)"
_COUNTED = re.compile(r"(samples|rollouts|generations|responses|completions)$", re.I)
# A batch of problems, or of responses: only who wrote it knows.
_BATCH = re.compile(
    r"(^|[/._])((train|global|rollout)[_ ])?(batch([_ ]?size)?|bsz|bs)$|(episodes|trajectories|"
    r"samples|rollouts|responses|completions|sequences)_per_(batch|step|update|iteration)$", re.I,
)
# What an update took, in its row: responses or problems.
_IN_ROW = re.compile(r"(?:train|rollout)/num_(?:samples|rollouts|responses|sequences)", re.I)
_K = re.compile(r"(?:^|[./_])(?:rollouts?|group|grpo|sampl(?:er|ing))[./_]k$", re.I)
_PART = re.compile(r"micro|mini|device|gpu|forward", re.I)  # of a batch
# What is said of evaluations does not hold in training: eval.num_samples, val_batch_size
_OF_EVALUATION = re.compile(
    rf"(?:^|[._/])(?:{'|'.join(word for word, of in SPLITS.items() if of != 'train')})[._/]", re.I
)


# How many problems a score is of, beside it.
_OF_SCORE = re.compile(
    r"(?:(?:n|num|total)_?(?:(?:eval|val|test)_?)?|(?:eval|val|test)_?(?:n|num)?_?)"
    r"(?:problems|questions|examples|items|tasks)|(?:eval|val|test)_?size", re.I,
)

_ALL = r"(?:samples|prompts|problems|questions|episodes|sequences|responses|trajectories)"
_SO_FAR = re.compile(rf"(?:total|cum|cumulative|consumed|seen)_{_ALL}|"
                     rf"{_ALL}_(?:seen|so_far|consumed|total)", re.I)  # fmt: skip

_SETS, _ALIKE = 8, 1.25  # numbers of problems of one run: more are a count that goes on


def without_logarithm(key: str) -> str | None:
    """What a key holds the logarithm of, in its own words; None where its name says none.

    >>> [without_logarithm(key) for key in ("lg_group", "rollout.log2n", "group_exponent", "logs")]
    ['group', 'n', 'group', None]
    """
    last = re.split("[./]", key)[-1]
    found = _NAMED.search(last)
    if found is None:
        return None
    return (last[: found.start()] + last[found.end() :]).strip("_- ()") or None


def refuse_logarithm(
    key: str, name: str, values: Iterable[object], of: str, told: str = ""
) -> None:
    """Refuse a key that a map calls a count and that seems to hold the logarithm of one.

    Args:
        key: of the log, as it stands there.
        name: the count that it is mapped to.
        values: that it has, as far as they are known.
        of: the log, for the message.
        told: what the file itself says of the key.

    Raises:
        UnclearError: with both readings, and the option for the logarithm.
    """
    seen = {now for value in values if (now := whole(value)) is not None}
    if name not in LOG2.values() or (
        seen and (max(seen) > _MOST or not all(map(_is_small, values)))
    ):
        return
    row = sorted(seen)
    follow = len(row) >= _LEAST and row == list(range(row[0], row[-1] + 1))
    plain = re.split("[./]", key)[-1]
    if not (
        without_logarithm(key) or _TOLD.search(told) or (seen and _PLAIN_LOG.search(plain))
        or (follow and key != name == "rollouts_per_problem")
    ):
        return
    shown = ", ".join(map(str, row[:6]))
    there = f"has {shown}, a logarithm as it seems" if row else "names a logarithm"
    meant = f" if it is {', '.join(str(2**one) for one in row[:6])}" if row else ""
    raise UnclearError(
        f"{of}: {name} must be a count, but {key!r} {there}; add {mapping(key, f'log2_{name}')}"
        f"{meant}, or call the key {name} if it is {shown or 'the count itself'}."
    )


def _is_small(value: object) -> bool:
    return (now := number(value)) is None or now <= _MOST


def raised(config: Mapping[str, object]) -> dict[str, object]:
    """The counts whose logarithms a configuration holds under the names of a column map.

    >>> raised({"log2_rollouts_per_problem": 4, "seed": 1})
    {'rollouts_per_problem': 16}
    """
    found: dict[str, object] = {}
    for log, name in LOG2.items():
        power = whole(config.get(log)) if log in config else None
        if power is not None and power <= _MOST:
            found[name] = 2**power
    return found


def counts_problems(key: str) -> bool:
    """Whether a key beside a score seems to say of how many problems it is.

    >>> counts_problems("n_problems"), counts_problems("eval/num_examples")
    (True, True)
    >>> counts_problems("problems_per_step"), counts_problems("train/num_prompts")
    (False, False)
    """
    section, _, last = re.sub("[ -]+", "_", key.strip()).replace(".", "/").rpartition("/")
    return _OF_SCORE.fullmatch(last) is not None and not re.search("train|rollout", section, re.I)


def counts_so_far(column: str) -> bool:
    """Whether a column seems to count all problems, or responses, until its row.

    >>> counts_so_far("samples_seen"), counts_so_far("total_prompts"), counts_so_far("samples")
    (True, True, False)
    """
    return _SO_FAR.fullmatch(column.strip()) is not None


def is_alike(one: int, other: int) -> bool:
    """Whether two numbers of problems may be of one evaluation."""
    return max(one, other) < _ALIKE * min(one, other)


def several_problems(rows: Mapping[int, int], key: str) -> str:
    """What tells that scores are of several numbers of problems; "" where a key counts otherwise.

    Args:
        rows: number of problems -> rows with a score.
        key: that says it.
    """
    counts = sorted(filter(None, rows))
    if not 1 < len(counts) <= _SETS or 2 * len(counts) > sum(rows.values()):
        return ""
    if is_alike(counts[0], counts[-1]):  # some that were not answered in time
        return ""
    told = " and ".join(f"{count} ({rows[count]} rows)" for count in counts[-4:])
    return f"scores of a run must be of one number of problems, but {key} says {told}"


def mapping(key: str, name: str) -> str:
    """The option that says what a key holds.

    >>> mapping("batch", "batch_size")
    '--map batch=batch_size'
    """
    return f"--map {shlex.quote(f'{key}={name}')}"


def by_maps(there: Mapping[str, str]) -> str:
    """`--map COLUMN=NAME ... if they hold these`; a batch may count problems or responses.

    >>> by_maps({"problems_per_batch": "bs", "rollouts_per_problem": "G"})
    '--map G=rollouts_per_problem if it holds that; and --map bs=problems_per_batch if it counts \
problems, --map bs=batch_size if it counts responses'
    """
    batch = there.get("problems_per_batch", "")
    either = is_batch(batch) and not is_called(batch, "problems_per_batch")
    sure = {name: key for name, key in there.items() if name != "problems_per_batch" or not either}
    told = ""
    if sure:
        counts = _COUNTED.search(sure.get("rollouts_per_problem", ""))
        maps = " ".join(mapping(key, _or_log(key, name)) for name, key in sure.items())
        told = f"{maps} if {'they hold these' if len(sure) > 1 else 'it holds that'}"
        told += _OF_ONE.format(counts[0]) if counts else ""
    if not either:
        return told
    one, other = (shlex.quote(f"{batch}={name}") for name in ("problems_per_batch", "batch_size"))
    return (
        f"{told}{'; and ' if told else ''}--map {one} if it counts problems, --map {other} if "
        "it counts responses"
    )


MEANT = {"problems_per_batch": "problems in a batch", "rollouts_per_problem":
         "rollouts per problem", "seed": "the seed"}  # in words to check a number by


def holds(there: Mapping[str, str]) -> str:
    """What must be true for maps of keys that seem to hold something.

    >>> holds({"rollouts_per_problem": "G", "score": "acc"})
    '`G` holds rollouts per problem and `acc` holds the held-out score'
    """
    return " and ".join(
        f"`{key}` holds {MEANT.get(name, 'the held-out score')}" for name, key in there.items()
        if name in (*MEANT, "score") and (name != "problems_per_batch" or is_called(key, name))
    )


def maps_of(there: Mapping[str, str]) -> list[str]:
    """The same as options to paste; EITHER where only the user knows what a batch counts.

    >>> maps_of({"problems_per_batch": "bs", "rollouts_per_problem": "G"})[1::2]
    ['bs=PROBLEMS_PER_BATCH_OR_BATCH_SIZE', 'G=rollouts_per_problem']
    """
    words = list[str]()
    for name, key in there.items():
        either = name == "problems_per_batch" and is_batch(key) and not is_called(key, name)
        words += ["--map", f"{key}={EITHER if either else _or_log(key, name)}"]
    return words


def _or_log(key: str, name: str) -> str:
    """The name that a key is mapped to: of a count, or of its logarithm."""
    return name if without_logarithm(key) is None else f"log2_{name}"


def is_called(key: str, name: str) -> bool:
    """Whether a key, by its last part, seems to be one of `_CALLED`, or its logarithm.

    >>> is_called("data.prompts_per_batch", "problems_per_batch"), is_called("lr", "rollouts")
    (True, False)
    >>> is_called("eval.num_samples", "rollouts_per_problem")  # of an evaluation
    False
    """
    if _OF_EVALUATION.search(key):
        return False
    inner = None if name == "rollouts" else without_logarithm(key)
    if inner is not None and re.fullmatch(_OF_LOGARITHMS[name], inner, re.I):
        return True
    if name == "rollouts_per_problem" and _K.search(key):
        return True
    last = re.split("[./]", (inner or key).replace(" / ", " per "))[-1].strip()
    plain = re.sub(r"\W", "", re.sub(r"[\s-]+", "_", last))
    return re.fullmatch(_CALLED[name], plain, re.I) is not None


def may_be_n(key: str) -> bool:
    """Whether a key of a configuration may say n; in a row, or a table, `group` is a label.

    >>> may_be_n("grpo.group"), may_be_n("n_samples"), may_be_n("group_name")
    (True, True, False)
    """
    group = re.fullmatch(r"(?:.*[./])?group", key, re.I) and not _OF_EVALUATION.search(key)
    return bool(group) or is_called(key, "rollouts_per_problem")


def counts_step(key: str) -> bool:
    """Whether a key of rows seems to count what an update took.

    >>> counts_step("train/num_samples"), counts_step("eval/num_samples")
    (True, False)
    """
    return _IN_ROW.fullmatch(key) is not None


def is_batch(key: str) -> bool:
    """Whether a key seems to be a batch of training, of problems or of responses.

    >>> is_batch("train_batch_size"), is_batch("eval_batch_size")
    (True, False)
    """
    return counts_step(key) or (_BATCH.search(key) is not None and not (
        _OF_EVALUATION.search(key) or _PART.search(key)
    ))  # fmt: skip


def may_be_batch(key: str) -> bool:
    """Whether a key of a configuration says a batch as nothing else; a batch_size may be a GPU's.

    >>> may_be_batch("run.batch"), may_be_batch("batch_size"), may_be_batch("micro_batch")
    (True, False, False)
    """
    return is_batch(key) and re.fullmatch(r"(?:.*[/.])?batch", key, re.I) is not None


@lru_cache(4096)
def may_be_setting(key: str) -> bool:
    """Whether a key that no trainer has may be B_p or n.

    >>> may_be_setting("n"), may_be_setting("batch_size"), may_be_setting("loss")
    (True, True, False)
    """
    return is_batch(key) or any(is_called(key, name) for name in COUNTS)
