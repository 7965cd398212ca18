"""Text to tokens and back for word-level vocabularies, from and to `tokenizer.json`.

The files load in transformers as they are. A folder with another kind of tokenizer is read
through the package `tokenizers`, where it is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from isocompute.errors import InputError


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; raises InputError for what the vocabulary cannot express."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""


class WordTokenizer:
    """Splits by a regular expression into the words of a vocabulary.

    Args:
        vocabulary: words in the order of their numbers.
        pattern: matches one word; texts must be made of matches only.
        special: words that never come from text and are left out of it: padding, then, where
            there is one, the end of a text.
    """

    def __init__(self, vocabulary: Sequence[str], pattern: str, special: Iterable[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self.pattern = pattern
        self.special = tuple(special)
        self._number = {word: i for i, word in enumerate(self.vocabulary)}
        self._split = re.compile(pattern)
        self._shown = ["" if word in self.special else word for word in self.vocabulary]

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def end(self) -> int | None:
        """Number of the word that ends a text, if there is one."""
        return self._number[self.special[1]] if len(self.special) > 1 else None

    def encode(self, text: str) -> list[int]:
        """Tokens of a text.

        Raises:
            InputError: for text that is not made of words of the vocabulary.
        """
        words = self._split.findall(text)
        unknown = [w for w in words if w not in self._number or w in self.special]
        if unknown or sum(map(len, words)) != len(text):
            seen = unknown[0] if unknown else self._split.sub("", text)
            raise InputError(
                f"text must be made of the model's {len(self)} words, but got {seen[:40]!r}; "
                "use problems of this model's world, or another model."
            )
        return [self._number[w] for w in words]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        shown = self._shown
        return "".join([shown[t] for t in tokens])

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`."""
        added = [
            {"id": self._number[w], "content": w, "special": True, "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False}
            for w in self.special
        ]  # fmt: skip
        data = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Split", "pattern": {"Regex": self.pattern},
                "behavior": "Isolated", "invert": False,
            },
            "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": self._number, "unk_token": self.special[0]},
        }  # fmt: skip
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": self.special[0],
            "clean_up_tokenization_spaces": False,
            "padding_side": "left",
        }
        if self.end is not None:
            config["eos_token"] = self.special[1]
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in (("tokenizer.json", data), ("tokenizer_config.json", config)):
            (folder / name).write_text(
                json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )


class _ForeignTokenizer:
    """A tokenizer of the package `tokenizers`."""

    def __init__(self, path: Path) -> None:
        try:
            # Not a dependency: only folders with other tokenizers than word-level need it.
            import tokenizers  # type: ignore[import-not-found,unused-ignore]
        except ModuleNotFoundError:
            raise InputError(
                "a tokenizer that is not word-level needs the package `tokenizers`, which is not "
                f"installed, to read {path}; install it with pip."
            ) from None
        self._inner = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._inner.decode(list(tokens)))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder.

    Raises:
        InputError: if there is no `tokenizer.json`, or if reading it needs a missing package.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(
            f"a model folder must hold tokenizer.json, but {folder} does not; save the tokenizer "
            "beside the model."
        )
    data = json.loads(path.read_text(encoding="utf-8"))
    split = data.get("pre_tokenizer") or {}
    ours = (
        data.get("model", {}).get("type") == "WordLevel"
        and split.get("type") == "Split"
        and "Regex" in split.get("pattern", {})
        and (data.get("decoder") or {}).get("type") == "Fuse"
        and data.get("normalizer") is None
        and data.get("post_processor") is None
    )
    if not ours:
        return _ForeignTokenizer(path)
    vocabulary = sorted(data["model"]["vocab"], key=data["model"]["vocab"].__getitem__)
    special = [t["content"] for t in data.get("added_tokens", ()) if t.get("special")]
    return WordTokenizer(vocabulary, split["pattern"]["Regex"], special)
