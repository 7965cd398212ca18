"""What commands write: strict JSON, atomically; text that suits a pipe or a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocompute.domain.text import plain, visible
from isocompute.errors import InputError
from isocompute.files import refuse_device, write_text

_WARNINGS = ("! ", "stop: ", "caution: ", "Confidence: stop", "Confidence: caution")
_PLAIN_BARS = str.maketrans("▁▂▃▄▅▆▇█", "_.:-=+*#")


def strict_json(document: Mapping[str, Any]) -> str:
    """JSON text; NaN and infinity become null, numpy values plain ones."""
    return json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def check_target(
    target: str | None, sources: Sequence[str] = (), beside: str | None = None
) -> None:
    """Refuse, before any work, a file that could not be written or must not be overwritten.

    Raises:
        InputError: the folder does not exist, the target is a folder, it is one of the inputs, or
            `beside`, another output.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"an output must be a file in a folder that exists, but got {target!r}, "
            + ("which is a folder; name a file in it." if path.is_dir()
               else "in none; create the folder or change the name.")
        )
    refuse_device(path)
    if beside is not None and path.absolute() == Path(beside).absolute():
        raise InputError(f"two outputs must be two files, but both are {target!r}; change one.")
    for source in sources:
        if Path(source).exists() and path.exists() and path.samefile(source):
            raise InputError(
                f"an output must not overwrite an input, but both are {target!r}; change the name."
            )


def write_json(document: Mapping[str, Any], target: str | None) -> None:
    """To a file, to standard output ("-"), or nowhere (None)."""
    if target == "-":
        sys.stdout.write(strict_json(document))
    elif target is not None:
        write_text(target, strict_json(document))


def warn(line: str) -> None:
    """One line on stderr."""
    print(f"isocompute: {visible(line, None)}", file=sys.stderr)


def show(lines: Sequence[str], *, quiet: bool = False) -> None:
    """Print lines; on a terminal that wants colour, headings bold and warnings yellow."""
    if quiet:
        return
    encoding = sys.stdout.encoding or "utf-8"
    lines = [_encodable(line, encoding) for line in lines]
    if not (sys.stdout.isatty() and not os.environ.get("NO_COLOR")):
        for line in lines:
            print(visible(line, None))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    warning = False
    for index, line in enumerate(lines):
        warning = line.startswith(_WARNINGS) or (warning and line.startswith("  "))
        style = "yellow" if warning else "bold" if index == 0 or line.endswith(":") else ""
        console.print(Text(visible(line, None), style=style))


def _encodable(line: str, encoding: str) -> str:
    """The line as this encoding can say it; bars of a sparkline become plain characters."""
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        line = line.translate(_PLAIN_BARS)
    return line.encode(encoding, errors="replace").decode(encoding)
