"""What looks like a secret: refused in study files, kept from checkers, hidden in messages.

A pattern knows what it was written for. It protects against an accident, not against somebody who
hides a key on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# A tokenizer's own words (`eos_token`) are no secrets.
_NAME = re.compile(
    r"(api|access|private|secret|signing|encryption|ssh|account)[_-]?key|secrets?"
    r"|passw(or)?d|passphrase|(^|[_.-])pwd|credentials?|auth(orization|entication)?|cookie"
    r"|(?<!pad)(?<!eos)(?<!bos)(?<!unk)(?<!sep)(?<!cls)(?<!mask)(?<!stop)(?<!image)(?<!end)"
    r"(?<!start)(^|[_.-])token",
    re.I,
)
_VALUES = (
    r"\b(?:"
    r"sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|AIza[0-9A-Za-z_-]{35}|A[KS]IA[0-9A-Z]{16}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|gl[a-z]{2,6}-[A-Za-z0-9_-]{20,}"
    r"|wandb_v\d_[A-Za-z0-9_-]{20,}|local-[0-9a-f]{40}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # a JSON web token
    r")"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"  # of scheme://user:password@host
    r"|(?i:\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,})"
    r"|(?i:(?:wandb)\W[^\n]{0,40}?\b)[0-9a-f]{40}\b"  # its older keys look like a commit's hash
    r"|(?i:\b(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|password|passwd|token)"
    r"['\"]?\s?[=:]\s?['\"]?)[^\s'\"]{6,}"
    # An option of a command line and its value.
    r"|(?i:(?<!\S)--(?:[a-z]+-)?(?:api-?key|access-?key|private-?key|secret|password|passwd)\s+"
    r"|(?<!\S)--(?:hf-|auth-|access-|api-)?token\s+)[^\s'\"-][^\s'\"]{5,}"
)
_VALUE = re.compile(_VALUES, re.S)
_ENVIRONMENT = re.compile(r"(_KEY|_PAT|_AUTH|^SSH_AUTH_SOCK|^SSH_AGENT_PID)$")


def secret_name(name: str) -> bool:
    """Whether a key's name says that its value is a secret.

    >>> [secret_name(name) for name in ("hf_token", "private_key", "eos_token", "max_tokens")]
    [True, True, False, False]
    """
    found = list(_NAME.finditer(name))
    return bool(found) and found[-1].end() == len(name)


def secret_value(text: str, name: str = "") -> bool:
    """Whether a text holds what looks like a secret; a key's name helps to tell."""
    return _VALUE.search(text) is not None or (
        "wandb" in name.lower() and re.fullmatch(r"[0-9a-f]{40}", text) is not None
    )


def hide(text: str) -> str:
    """The text with what looks like a secret replaced.

    >>> hide("no answer from https://me:hunter22@host/v1")
    'no answer from https://(hidden)@host/v1'
    """
    return _VALUE.sub("(hidden)", text)


def secrets_in(value: Any, name: str = "", named: bool = False) -> Iterator[tuple[str, bool]]:
    """Each place of a JSON value that looks like a secret, and whether its name says so.

    Args:
        value: to look at.
        name, named: of the value itself, and whether that is a secret's.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            spot = f"{name}.{key}" if name else str(key)
            yield from secrets_in(item, spot, secret_name(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item, name, named)
    elif value is None or isinstance(value, bool) or value == "":
        return
    elif named:
        yield name, True
    elif isinstance(value, str) and secret_value(value, name):
        yield name, False


def without_secrets(environment: Mapping[str, str], allowed: Iterable[str] = ()) -> dict[str, str]:
    """An environment for foreign code: what looks like a secret is left out unless allowed."""
    kept = set(allowed)
    return {
        name: value for name, value in environment.items()
        if name in kept
        or not (secret_name(name) or _ENVIRONMENT.search(name) or secret_value(value, name))
    }  # fmt: skip
