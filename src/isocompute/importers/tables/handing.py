"""What was given to an import and is no log: a table, handed on to `fit`; archives, all else."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.errors import InputError
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import OF_ONES_OWN, clean_text
from isocompute.importers.words.called import mapping

if TYPE_CHECKING:
    from isocompute.domain import Curve
    from isocompute.importers.values.imported import ImportedRun
    from isocompute.importers.words.settings import Settings

TABLE = " is a table of columns"
_MOST_BYTES = 16 << 20  # of a table that is looked through for the names of runs
NOTHING = "holds nothing of them"
OF_STEPS = f"{NOTHING}: its lines of steps say"
_SILENT = (NOTHING, TABLE, "a JSON log must be")  # of files that are no logs
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_ARCHIVES = (".zip", ".7z", *_TARS)
_NAMED = 3  # files


class TableError(InputError):
    """A table was given to an import.

    Args:
        text: as of any error.
        path: of the table.
        score: the column that seems to hold scores; "" without.
        command: what reads it.
        how: what that asks for, in words.
    """

    def __init__(self, text: str, path: Path, score: str, command: str, how: str = "") -> None:
        super().__init__(text)
        self.path, self.score, self.command, self.how = path, score, command, how

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return InputError, (str(self),)


def refuse_scores_elsewhere(
    runs: Sequence[ImportedRun], errors: Iterable[InputError], settings: Settings
) -> None:
    """Refuse logs without a held-out score where a table beside them has scores of all these runs.

    Raises:
        UnclearError: with the command that reads that table.
    """
    from isocompute.importers.words.scored import scores_unread

    if not runs or settings.columns or settings.split == "train" or any(
        scores_unread(run) or any(s.split != "train" for s in run.series) for run in runs
    ):
        return
    for one in (e for e in errors if isinstance(e, TableError) and e.score):
        small = one.path.is_file() and one.path.stat().st_size < _MOST_BYTES
        text = one.path.read_text("utf-8", "replace") if small else ""
        rows = Counter(re.split('[,;\t\n"]', text))
        if min(rows[run.name] for run in runs) > 1:
            raise UnclearError(
                f"logs must hold held-out scores, but those of {len(runs)} runs hold none that is "
                f"known, and {str(one.path)!r} has {one.score} of each; if that is the score, give "
                f"the table to fit: {one.command}; if it stands in the logs, add --map KEY=avg, "
                "and --set split=train if it is of the training batch."
            )


def is_a_table(path: Path, header: str) -> InputError:
    """The refusal of a table, with the command for it and all that this will ask for.

    Args:
        path: of the table.
        header: its first line.
    """
    from isocompute.importers.tables.table import some
    from isocompute.importers.tables.tidy import load_tidy
    from isocompute.importers.tables.workbooks import is_workbook, of_sheets, sheets_of, shown
    from isocompute.importers.values.headers import head_of, refuse_markdown
    from isocompute.importers.words.asking import answered, collected, likely_columns
    from isocompute.importers.words.scale import PLAIN
    from isocompute.store.arms import parse_where

    if "|" in header:
        refuse_markdown(path, path.read_bytes()[:4096].splitlines())
    tables = of_sheets(sheets_of(path)) if is_workbook(path) else [path]
    if tables[0].suffix in (".csv", ".tsv"):
        header = ",".join(head_of(tables[0]).names)
    columns = [column.strip(' "') for column in re.split("[,;\t]", header.strip())]
    score = "" if "score" in columns else likely_columns(columns, ["score"]).get("score", "")
    how = f", with {score} as the score if it holds that" if score else ""
    words = ["--map", f"{score}=score"] if score else []

    def read(more: Sequence[str]) -> list[Curve]:
        settings, given = answered(None, more)
        how: Any = {"settings": settings, "score_range": given.get("score_range", PLAIN),
                    "where": parse_where(given.get("where", ()))}  # fmt: skip
        return [c for one in tables for c in load_tidy(one, **how)]

    asked = collected(read, words)[1]
    words += _once([word for one in asked for word in one.options])
    told = shown("; ".join(str(one).replace(f"{path}: ", "").rstrip(".") for one in asked))
    told = told.replace(f" (it has {some(columns)})", "").replace(shown(f"; {tables[0]}: "), "; ")
    how += f"{' and' if how else ' with'} what it will ask for ({told})" if told else ""
    command = shlex.join(["isocompute", "fit", str(path), *words])
    return TableError(
        f"an import reads logs of trainers and trackers, but {str(path)!r}{TABLE} "
        f"{', '.join(columns[:10]):.300}; give it to fit{how or ' as it is'}: {command}",
        path, score, command, how,
    )


def _once(words: Sequence[str]) -> list[str]:
    """Options without those that several questions have.

    >>> _once(["--set", "a=A", "--range", "-1", "1", "--set", "a=A"])
    ['--set', 'a=A', '--range', '-1', '1']
    """
    options = list[tuple[str, ...]]()
    for word in words:
        if word.startswith("--"):
            options.append((word,))
        else:
            options[-1] += (word,)
    return [word for option in dict.fromkeys(options) for word in option]


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


def of_training_alone(path: Path, keys: Sequence[str], key: str) -> InputError:
    """What is said of lines that say a step in words, and of `keys` one that may be a score."""
    said = ", ".join(one for one in keys if one != "step")
    return InputError(
        f"a log must hold rows of a trainer or scores of held-out problems, but {str(path)!r} "
        f"{OF_STEPS} {said:.200}; add {mapping(key, 'avg')} --set "
        f"split=train to read {key} as of training, or {OF_ONES_OWN}."
    )


def not_read(reasons: Sequence[str]) -> str:
    """One line for the files of a folder that gave no run; the reason that is no mere silence."""
    telling = next((r for r in reasons if not any(s in r for s in _SILENT)), "")
    count = f"{len(reasons)} other file{'s' if len(reasons) > 1 else ''} of the folder"
    return f"{count} gave no run" + (f" (one: {clean_text(telling, 250)})" if telling else "")
