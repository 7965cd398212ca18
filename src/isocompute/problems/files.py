"""Problem files: JSONL, Parquet (also with verl's columns), Arrow, Hugging Face folders.

| column | meaning | verl's column |
|---|---|---|
| `prompt` | text, or a conversation as a list of {role, content} | `prompt` |
| `answer` | text or number | `reward_model.ground_truth` |
| `id` | optional; else `extra_info.index` where these are unique, else the row's number | |
| `source` | optional | `data_source` |
| `pass_rate`, `pass_rate_samples` | optional, measured on the base model | |
| `verifier` | optional, the same in every row | |

Other columns are ignored. Data formats of the `datasets` library are read directly with pyarrow:
a folder of Parquet files as the hub stores them, or of Arrow files as `save_to_disk` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.files import write_text
from isocompute.problems.rows import (
    COLUMNS,
    VERL_COLUMNS,
    Row,
    get_column,
    read_problem,
    read_text,
)
from isocompute.problems.sets import Problem, ProblemSet
from isocompute.verifiers import answer_fault

_LINES = (".jsonl", ".ndjson", ".json")


def load_problems(
    source: str | Path,
    *,
    name: str | None = None,
    verifier: str | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> ProblemSet:
    """Problems from a file or a folder.

    A conversation of several messages becomes one text, its contents joined by a blank line.
    A number becomes text, without a decimal point where it is whole.

    Args:
        source: `.jsonl`, `.parquet` or `.arrow` file, or a folder of Parquet or Arrow files.
        name: of the set; None: the file's name without its ending.
        verifier: specification for `verifiers.load_verifier`; None: what the file says, or
            "exact".
        split: which split of a folder that holds several ("train", "test", ...).
        columns: where our columns are found under other names, for example
            {"prompt": "question", "pass_rate": "extra_info.pass_rate"}; a point steps into a
            nested column.

    Raises:
        InputError: a missing or unreadable file, a missing column, a malformed row (with file
            and line), an answer that the verifier could never match, or no row at all.
    """
    path = Path(source)
    unknown = set(columns or ()) - set(COLUMNS)
    if unknown:
        raise InputError(
            f"`columns` must name {', '.join(COLUMNS)}, but got {', '.join(sorted(unknown))}; "
            "write for example columns={'prompt': 'question'}."
        )
    found = dict(columns or {})
    files = _files(path, split)
    problems: list[Problem] = []
    verifiers: dict[str, str] = {}
    places: dict[str, str] = {}
    explicit_id = False
    indices: list[str | None] = []
    for file in files:
        for where, row in _rows(file, found):
            problem, index, has_id = read_problem(row, where, len(problems), found)
            if problem.id in places:
                raise InputError(
                    f"problem ids must be unique, but {where} has {problem.id!r}, which "
                    f"{places[problem.id]} has as well; rename or drop one."
                )
            places[problem.id] = where
            explicit_id |= has_id
            problems.append(problem)
            indices.append(index)
            named = get_column(row, "verifier", found)
            if named is not None:
                verifiers.setdefault(read_text(named, "verifier", where), where)
    if not problems:
        raise InputError(
            f"a problem file must hold at least 1 problem, but {path} holds 0; check the file."
        )
    if verifier is None and len(verifiers) > 1:
        (first, at_first), (second, at_second) = list(verifiers.items())[:2]
        raise InputError(
            f"one set has one verifier, but {at_first} says {first!r} and {at_second} says "
            f"{second!r}; split the file or name the verifier."
        )
    chosen = verifier or next(iter(verifiers), "exact")
    if not explicit_id and None not in indices and len(set(indices)) == len(indices):
        problems = [replace(p, id=str(i)) for p, i in zip(problems, indices, strict=True)]
    result = ProblemSet(name=name or path.stem or "problems", problems=problems, verifier=chosen)
    for problem in result.problems:
        fault = answer_fault(chosen, problem.answer)
        if fault is not None:
            raise InputError(
                f"verifier {chosen!r} must be able to match every answer, but problem "
                f"{problem.id!r} of {path} cannot be: {fault}; correct it or take another verifier."
            )
    return result


def save_problems(problems: ProblemSet, path: str | Path) -> None:
    """Write a set as JSONL that `load_problems` reads back; replaces the file in one step.

    Raises:
        InputError: if the file's name does not end in .jsonl, or it cannot be written.
    """
    path = require_jsonl(path)
    lines = []
    for p in problems.problems:
        row: dict[str, Any] = {"id": p.id, "prompt": p.prompt, "answer": p.answer}
        optional = {
            "source": p.source or None,
            "pass_rate": p.pass_rate,
            "pass_rate_samples": p.pass_rate_samples,
            "verifier": problems.verifier,
        }
        row.update((k, v) for k, v in optional.items() if v is not None)
        text = json.dumps(row, ensure_ascii=False)
        # Halves of surrogate pairs, which JSON can say and UTF-8 cannot.
        lines.append(re.sub("[\ud800-\udfff]", lambda c: f"\\u{ord(c[0]):04x}", text) + "\n")
    try:
        write_text(path, "".join(lines))
    except OSError as error:
        raise InputError(
            f"problems must be written to a folder that exists, but {path} gave "
            f"{error.strerror}; choose another place."
        ) from None


def require_jsonl(path: str | Path) -> Path:
    """Where problems may be saved.

    Raises:
        InputError: the file's name does not end in .jsonl.
    """
    path = Path(path)
    if path.suffix != ".jsonl":
        raise InputError(
            f"problems are saved as JSONL, but got {path.name!r}; name the file {path.stem}.jsonl."
        )
    return path


# ---- which files ----


def _files(path: Path, split: str | None) -> list[Path]:
    """The files to read, in order."""
    if path.is_dir():
        return _folder_files(path, split)
    if split is not None:
        raise InputError(
            f"`split` chooses inside a folder, but {path} is no folder; leave it out."
        )
    if not path.is_file():
        raise InputError(f"a problem file must exist, but {path} does not; check the path.")
    if path.suffix not in (*_LINES, ".parquet", ".arrow"):
        raise InputError(
            "problems must come as .jsonl, .parquet or .arrow, or as a folder of a Hugging Face "
            f"dataset, but got {path.name!r}; convert the file."
        )
    return [path]


def _split_name(file: Path, folder: Path) -> str:
    """Split of a file as `datasets` names it: `train-00000-of-00002.parquet`, `train/data-...`."""
    match = re.fullmatch(r"(.+?)-\d+-of-\d+", file.stem)
    stem = match[1] if match else file.stem
    if stem == "data" and file.parent != folder:
        return file.parent.name
    return stem


def _folder_files(folder: Path, split: str | None) -> list[Path]:
    splits: dict[str, list[Path]] = {}
    for file in sorted([*folder.rglob("*.parquet"), *folder.rglob("*.arrow")]):
        if not file.name.startswith("cache-"):  # left behind by map() and filter()
            splits.setdefault(_split_name(file, folder), []).append(file)
    if not splits:
        raise InputError(
            f"a folder of problems must hold .parquet or .arrow files, but {folder} holds none; "
            "name the problem file itself."
        )
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None or split not in splits:
        raise InputError(
            f"`split` must be one of {', '.join(sorted(splits))} in {folder}, but got {split!r}; "
            "choose one of them."
        )
    return splits[split]


# ---- rows of a file ----


def _rows(file: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """(where it stands, row) of every row of one file."""
    if file.suffix in _LINES:
        yield from _json_rows(file)
    else:
        yield from _arrow_rows(file, columns)


def _json_rows(file: Path) -> Iterator[tuple[str, Row]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} must be UTF-8 text with one JSON object per line, but byte {error.start} is "
            "not; check that it is a problem file."
        ) from None
    except OSError as error:
        raise InputError(
            f"{file} must be readable, but gave {error.strerror}; check its permissions."
        ) from None
    # Only newlines end a line: JSON text may hold the other characters that splitlines() takes.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
            reason = error.msg if isinstance(error, json.JSONDecodeError) else reason
            raise InputError(
                f"each line must be one JSON object, but {where} is not ({reason}); correct the "
                "line (a JSON array has to be split into lines)."
            ) from None
        if not isinstance(row, dict):
            raise InputError(
                f"each line must be one JSON object, but {where} is of type "
                f"{type(row).__name__}; write {{\"prompt\": ..., \"answer\": ...}}."
            )
        yield where, row


def _arrow_rows(file: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.suffix == ".parquet":
            names = pq.read_schema(file).names
        else:
            table = _read_arrow(file)
            names = table.schema.names
        wanted = {columns.get(c, c).partition(".")[0] for c in COLUMNS}
        wanted |= {v.partition(".")[0] for v in VERL_COLUMNS.values()} | {"extra_info"}
        used = [n for n in names if n in wanted or n in COLUMNS]
        if file.suffix == ".parquet":
            table = pq.read_table(file, columns=used)
    except (pa.ArrowInvalid, pa.ArrowIOError, OSError) as error:
        raise InputError(
            f"{file} must be a readable {file.suffix[1:]} file, but is not "
            f"({str(error).splitlines()[0][:120]}); check that it is complete."
        ) from None
    # All names, so that a missing column can be reported beside what there is.
    others = dict.fromkeys(set(names) - set(used))
    number = 0
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            number += 1
            yield f"{file}, row {number}", {**others, **row} if others else row


def _read_arrow(file: Path) -> Any:
    """An Arrow file; `datasets` writes the streaming form."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        try:
            return pa.ipc.open_stream(source).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_file(source).read_all()
