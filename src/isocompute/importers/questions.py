"""All that an import cannot settle, asked at once.

A source is read until something is not clear, and that error names the option that settles it.
What would be asked next is looked for under the likeliest answer, again and again; then all of it
comes in one message, with one command. Nothing that was read under such an answer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from isocompute.errors import AskedError, InputError
from isocompute.importers.settings import Settings, load_settings

T = TypeVar("T")

_MOST = 8  # questions; nobody has as many
ASSUME = "--assume"  # before a setting that some number stands for, until the user gives it
_NUMBER = 13  # a B_p or n that no count is likely to be a multiple of
# What does not hang on an n, or on a B_p, that is not known yet.
_WITHOUT_N = ("--metric", "--problem-set", "--range", "--map", "--split")
_SURE = ("step=", "split=")


def asked_at_once(read: Callable[[Sequence[str]], T], words: Sequence[str] = ()) -> T:
    """What `read` gives, or one error with all that it asks.

    Args:
        read: is given words of the command line beside the user's own.
        words: to begin with.

    Raises:
        InputError: the only thing that is asked, as it was raised, or an AskedError.
    """
    found, asked = collected(read, words)
    if not asked:
        assert found is not None
        return found
    if len(asked) == 1:
        raise asked[0] from None
    raise AskedError(asked) from None


def collected(
    read: Callable[[Sequence[str]], T], words: Sequence[str] = ()
) -> tuple[T | None, list[InputError]]:
    """What `read` gives under the likeliest answers, None where it gives nothing; all it asks."""
    asked, told = list[InputError](), set[str]()
    words = [*words]
    while True:
        try:
            return read(words), asked
        except Exception as error:
            if not isinstance(error, InputError):
                if asked:  # under an answer that is only likely
                    return None, asked
                raise
            if str(error) in told or (ASSUME in words and not _holds(error, words)):
                return None, asked
            if asked and not error.options and not error.trial:  # it ends here
                error = InputError(f"Under these answers: {error}")
            several = getattr(error, "asked", [error])
            known = {one.options for one in asked if any(map(is_open, one.options))}
            new = [one for one in several if str(one) not in told]
            asked += [one for one in new if one.options not in known]  # one answer holds for all
            told |= {str(one) for one in new}
            if not error.trial or any(map(is_open, error.trial)) or len(told) >= _MOST:
                return None, asked
            words += error.trial


def _holds(error: InputError, words: Sequence[str]) -> bool:
    """Whether a question does not come of a number that was assumed."""
    flags = {word for word in error.options if word.startswith("--")}
    said = [word for word in error.options if "=" in word]
    if "rollouts_per_problem" in words:
        by_set = "--set" in flags and not all(word.startswith(_SURE) for word in said)
        return bool(flags) and flags <= {*_WITHOUT_N, "--set"} and not by_set
    # What a log goes on with is told by its B_p, too.
    return bool(flags) and not any(word.startswith(("learning_rate", "begins")) for word in said)


def is_open(word: str) -> bool:
    """Whether a word of an option stands for what only the user knows.

    >>> [is_open(w) for w in ("problems_per_batch=B_P", "KEY=avg", "LOW", "step=iter", "--map")]
    [True, True, True, False, False]
    """
    return bool(open_part(word))


def open_part(word: str) -> str:
    """The part of a word that only the user knows, in capitals; "" without."""
    key, _, value = word.rpartition("=")
    if key == "KEY":
        return key
    return value if value.isupper() and value.replace("_", "").isalpha() else ""


def answered(settings: Settings | None, words: Sequence[str]) -> tuple[Settings, dict[str, Any]]:
    """Settings with words of the command line added, and what else these say of `load_curves`."""
    sets, maps, assumed, more = list[str](), list[str](), list[str](), dict[str, Any]()
    left = iter(words)
    for word in left:
        if word == "--range":
            more["score_range"] = (float(next(left)), float(next(left)))
        elif word == "--where":
            more.setdefault("where", []).append(next(left))
        elif word in ("--metric", "--problem-set", "--split"):
            more[word.removeprefix("--").replace("-", "_")] = next(left)
        else:
            {"--set": sets, "--map": maps, ASSUME: assumed}[word].append(next(left))
    settings = settings or Settings()
    if not sets and not maps and not assumed:
        return settings, more
    added = load_settings([*sets, *(f"{name}={_NUMBER}" for name in assumed)], maps)
    new = {f.name: value for f in fields(Settings)
           if (value := getattr(added, f.name)) != getattr(Settings(), f.name)}  # fmt: skip
    new["columns"] = {**settings.columns, **added.columns}
    return replace(settings, **new, assumed=frozenset(assumed) | settings.assumed), more
