"""What a folder holds that is no log, in words: archives, tables, anything else."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.handing import TABLE, TableError
from isocompute.importers.reading import clean_text

NOTHING = "holds nothing of them"
_SILENT = (NOTHING, TABLE, "a JSON log must be")  # of files that are no logs
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_ARCHIVES = (".zip", ".7z", *_TARS)
_NAMED = 3  # files


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, by its name; a compressed log is none.

    >>> is_archive(Path("runs.tar.gz")), is_archive(Path("metrics.jsonl.gz"))
    (True, False)
    """
    return path.name.lower().endswith(_ARCHIVES) and path.name[0] != "."


def unpacked(archives: Sequence[Path]) -> str:
    """The commands that unpack archives, each into its folder.

    >>> unpacked([Path("a/runs.tgz"), Path("a/b.zip")])
    'tar -xf a/runs.tgz -C a; unzip a/b.zip -d a'
    """
    told = list[str]()
    for one in archives[:_NAMED]:
        file, home = str(one), str(one.parent)
        by_ending = {".zip": ["unzip", file, "-d", home], ".7z": ["7z", "x", file, f"-o{home}"]}
        told.append(shlex.join(by_ending.get(one.suffix.lower(), ["tar", "-xf", file, "-C", home])))
    return "; ".join(told)


def refuse_archive(path: Path) -> None:
    """Refuse a file that holds logs and is none.

    Raises:
        InputError: with the command that unpacks it.
    """
    if is_archive(path):
        raise InputError(
            f"a log must not lie in an archive, but {str(path)!r} is one; unpack it "
            f"({unpacked([path])}), then import what it held."
        )


def refuse_archives(folder: Path, archives: Sequence[Path]) -> None:
    """Refuse a folder that holds no log, but archives.

    Raises:
        InputError: with the commands that unpack them.
    """
    if archives:
        named = ", ".join(one.name for one in archives[:_NAMED])
        raise InputError(
            f"a folder must hold at least one log that is known, but {str(folder)!r} holds "
            f"archives ({named}); unpack them first ({unpacked(archives)}), then import it again."
        )


def refuse_tables(folder: Path, errors: Iterable[InputError]) -> None:
    """Refuse a folder that holds tables alone, with the command that reads them.

    Raises:
        InputError: with what all of them ask for, where that is the same.
    """
    tables = [one for one in errors if isinstance(one, TableError)]
    words = {(one.how, *shlex.split(one.command)[3:]) for one in tables}
    how, *more = words.pop() if len(words) == 1 else ("",)
    command = shlex.join(["isocompute", "fit", str(folder), *more])
    raise InputError(
        f"an import reads logs of trainers and trackers, but {str(folder)!r} holds "
        f"{len(tables)} tables; give the folder to fit{how or ' as it is'}: {command}"
    )


def there(folder: Path) -> str:
    """What a folder holds instead of logs: a few names."""
    names = [clean_text(p.name, 60) for p in islice(folder.rglob("*"), 1_000) if p.is_file()]
    some = f" (it has {', '.join(sorted(names)[:_NAMED])}{', ...' * (len(names) > _NAMED)})"
    return some * bool(names)


def not_read(reasons: Sequence[str]) -> str:
    """One line for the files of a folder that gave no run; the reason that is no mere silence."""
    telling = next((r for r in reasons if not any(s in r for s in _SILENT)), "")
    count = f"{len(reasons)} other file{'s' if len(reasons) > 1 else ''} of the folder"
    return f"{count} gave no run" + (f" (one: {clean_text(telling, 250)})" if telling else "")
