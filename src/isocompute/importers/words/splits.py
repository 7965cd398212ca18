"""What is of training and what of held-out problems: by a word of a key, a row, a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

# what may say the split of a row, the most telling first, and how
OF_SPLIT = ("split", "subset", "mode", "phase", "kind", "type", "stage", "event", "log_type",
            "row_type", "record_type")  # fmt: skip
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("eval", "evals", "evaluation", "evaluations", "val", "valid", "validation",
                     "test", "dev", "heldout", "held_out", "held-out", "holdout"), "validation"),
}  # fmt: skip
_TRAIN, _HELD_OUT = "train(?:ing|set)?", (
    "eval(?:s|set|uat(?:e|ed|or|ions?))?|val(?:set|id(?:at(?:e|ed|ion))?)?|tests?|test(?:ing|set)|"
    "dev(?:set)?|held[_-]{0,2}out|hold_?out"
)


def _as_word(words: str, capital: str) -> str:
    """Words of a name: in val/acc, testAcc and accTest, not in retrieval_acc."""
    return (rf"(?:(?<![a-z])(?:{words})(?![a-z])|(?-i:(?<![a-zA-Z])(?:{words})(?=[A-Z])|"
            rf"(?<=[a-z])(?:{capital})(?![a-z])))")  # fmt: skip


HELD_OUT = _as_word(_HELD_OUT, "Eval|Val|Test|Dev")
_OF_KEY = {"validation": re.compile(HELD_OUT, re.I),
           "train": re.compile(_as_word(_TRAIN, "Train"), re.I)}  # fmt: skip


@lru_cache(4096)
def split_of(key: str) -> str:
    """The split that a key names, held-out problems before training; "" where it names none.

    >>> [split_of(key) for key in ("val/acc", "testAcc", "train/eval_acc", "train_acc", "trainAcc")]
    ['validation', 'validation', 'validation', 'train', 'train']
    >>> [split_of(key) for key in ("retrieval_acc", "constraint_ok", "critic/value", "latest", "a")]
    ['', '', '', '', '']
    """
    return next((split for split, form in _OF_KEY.items() if form.search(key)), "")


def split_said(values: Mapping[str, object], keys: Sequence[str]) -> str:
    """The split that a row says it is of in one of these keys; "" where it does not."""
    said = (SPLITS.get(str(values.get(key)).lower()) for key in keys)
    return next((split for split in said if split), "")
