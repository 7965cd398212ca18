"""Keys of a trainer as text to paste, with the comments that must go along with them."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from isocompute.errors import InputError
from isocompute.trainers.trl import divided, process_words

_PER_DEVICE = ("per_device_train_batch_size", "gradient_accumulation_steps")


class Keys(dict[str, Any]):
    """Keys of a trainer and their values; printed, the text to paste.

    >>> print(Keys({"max_steps": 9}, comments=["for one process"]))
    # for one process
    max_steps=9
    """

    def __init__(self, keys: Mapping[str, Any], comments: list[str]) -> None:
        super().__init__(keys)
        self.comments = comments

    def __str__(self) -> str:
        return "\n".join(key_lines(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def key_lines(keys: Mapping[str, Any]) -> list[str]:
    """Keys as a person would paste them: `--option value` or `key=value`, comments first."""
    comments = keys.comments if isinstance(keys, Keys) else []
    return [f"# {line}" for line in comments] + [
        (f"{key} {_text(value)}" if key.startswith("--") else f"{key}={_text(value)}").strip()
        for key, value in keys.items()
    ]


def with_comments(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of `plan --json` whose keys carry what holds only where they are pasted."""
    keys = {name: Keys(keys, _comments(name, keys, document))
            for name, keys in (document.get("trainer") or {}).items()}  # fmt: skip
    return {**document, "trainer": keys}


def on_processes(
    document: Mapping[str, Any], processes: int | None, trainer: str | None
) -> dict[str, Any]:
    """A document of `plan --json` whose keys of TRL are those of one of so many processes.

    Args:
        document: what `plan` says, for one process.
        processes: data-parallel ones; None leaves everything as it is.
        trainer: the one that was asked for.

    Raises:
        InputError: of another trainer, or for processes that cannot share the batch evenly.
    """
    if processes is None:
        return dict(document)
    if trainer != "trl":
        raise InputError(
            "--processes belongs to --for trl, whose batch is that of one process, but got "
            f"{f'--for {trainer}' if trainer else 'no --for'}; add --for trl, or drop it: other "
            "trainers count the batch of all processes."
        )
    if processes < 1:
        raise InputError(f"`processes >= 1` must hold, but got {processes!r}; raise it.")
    if "trl" not in document["trainer"]:  # there is no plan
        return dict(document)
    keys = {**document["trainer"]["trl"]}
    one, many = (process_words(number) for number in (1, processes))
    return {
        **document,
        "trainer": {**document["trainer"], "trl": keys | divided(keys, processes)},
        "trainer_units": {**document["trainer_units"],
                          "trl": document["trainer_units"]["trl"].replace(one, many)},
    }  # fmt: skip


def _comments(trainer: str, keys: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """What holds beside the keys alone, of one trainer."""
    if trainer == "openrlhf" and "--data.max_samples" in keys:
        return [f"the data must hold {keys['--data.max_samples']} prompts (B_p x M): repeat the "
                "file where it does not"]  # fmt: skip
    if trainer != "trl" or not all(isinstance(keys.get(name), int) for name in _PER_DEVICE):
        return []
    micro, accumulated = (keys[name] for name in _PER_DEVICE)
    accumulated = keys.get("steps_per_generation") or accumulated
    # a plan that was read from a file may be one for several processes
    processes = int((document.get("batch_size") or 0) // max(micro * accumulated, 1)) or 1
    if processes == 1:
        each = " and steps_per_generation" * ("steps_per_generation" in keys)
        return [f"for one process: on N processes divide gradient_accumulation_steps{each} by N"]
    return [f"for {processes} processes: {processes} x {micro} x {accumulated} completions per "
            "batch"]  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
