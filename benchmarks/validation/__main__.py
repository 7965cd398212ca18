"""Judge the model of a sweep, or what stood before it, with one command.

    make validation                                      # the whole page; resumes
    python -m validation --sweeps 12 --worlds rising,tent --parts sweep      # a minute

Rows are written down in chunks under `--rows`, in a folder named by the estimator and the hash of
its code, so that a run goes on where it stopped and never mixes two versions. The page's sweeps
begin at another seed than those that `--sweeps` draws for development.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import isocompute
from validation.adapters import ADAPTERS
from validation.cells import DEFINITIVE, DEVELOPMENT, Cell, Chunk, Counts, cells_of, chunks_of
from validation.figures import Cells, Summary, of_document, to_document
from validation.panels import OTHER_CUTS, panel_rows, panels_of, thinned
from validation.rows import row_of
from validation.short import with_short
from validation.stopped import stopped_study
from validation.tables import page, panels_table

PARTS = ("sweep", "surface", "null", "few", "stopped", "panels")
HERE = Path(__file__).parent
ROOMS = {
    "model": ("domain", "model"),
    "answers": ("domain", "model", "answers"),
}


def fingerprint(adapter: str) -> str:
    """A hash of the code that is judged and of the worlds it is judged on."""
    rooms = (*ROOMS[adapter], "testing")
    package = Path(isocompute.__file__).parent
    found = [package / room for room in rooms] + [HERE / "cells.py", HERE / "rows.py"]
    found.append(HERE / "adapters.py")
    files = [f for p in found for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    digest = hashlib.sha256()
    for file in files:
        if file.exists():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def do(chunk: Chunk, adapter: str, folder: Path) -> float:
    """Judge one chunk, unless it is there, and write it down whole; seconds of CPU."""
    path, start = chunk.file(folder), time.process_time()
    if not path.exists():
        rows = [row_of(ADAPTERS[adapter], chunk.cell, seed) for seed in chunk.seeds()]
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        part.replace(path)
    return time.process_time() - start


def collected(cells: Sequence[Cell], base: int, folder: Path) -> Cells:
    """Summaries of every sweep that is there, in chunks of whatever length, each counted once."""
    found: Cells = {}
    for cell in cells:
        rows = [
            json.loads(line)
            for path in sorted(folder.glob(f"{cell}-{base}-*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for row in {row["seed"]: row for row in rows}.values():
            found.setdefault(cell, Summary()).take(row)
    return found


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="validation", description=__doc__.splitlines()[0])
    options.add_argument("--adapter", choices=list(ADAPTERS), default="answers")
    options.add_argument("--parts", type=words, default=list(PARTS), help=", ".join(PARTS))
    options.add_argument("--worlds", type=words, help="default: all")
    options.add_argument("--conditions", type=words, help="default: all")
    options.add_argument("--sweeps", type=int, help="per cell; development seeds")
    options.add_argument("--others", type=int, help="per cell beyond the three noises")
    options.add_argument("--base", type=int, help="seed of the first sweep")
    options.add_argument("--jobs", type=int, default=1, choices=(1, 2), help="processes")
    options.add_argument("--minutes", type=float, help="start no chunk after this many")
    options.add_argument("--panels", type=Path, help="folder of tidy files; default: published")
    options.add_argument("--thin", action="store_true",
                         help="panels at other cuts, and with every other n; print, end")
    options.add_argument("--study", help="SOURCE of a real sweep: stop its losers, print, end")
    options.add_argument("--rows", type=Path, default=Path("build/validation"))
    options.add_argument("--tag", help="name of the rows' folder instead of the code's hash")
    options.add_argument("--before", type=Path, default=HERE / "today.json")
    options.add_argument("--print-only", action="store_true", help="run nothing")
    options.add_argument("--save", type=Path, help="write the summaries (JSON)")
    options.add_argument("--commit", default="", help="of the code measured, for --save")
    options.add_argument("-o", "--output", type=Path, help="write the page")
    return options


def counts_of(options: argparse.Namespace) -> Counts:
    counts = Counts() if options.sweeps is None else Counts.all(options.sweeps)
    if options.others is not None:
        counts = Counts(**{**vars(counts), "others": options.others})
    return counts


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print the page."""
    options = parser().parse_args(argv)
    if options.study:
        from isocompute.sources import load_curves

        found = stopped_study(ADAPTERS[options.adapter], load_curves([options.study]))
        print("".join(f"{name}: {value:.3f}\n" for name, value in found.items()), end="")
        return 0
    if options.thin:
        adapter, panels = ADAPTERS[options.adapter], thinned(panels_of(options.panels))
        print(panels_table(panel_rows(adapter, panels, OTHER_CUTS)), end="")
        return 0
    base = options.base
    if base is None:
        base = DEFINITIVE if options.sweeps is None else DEVELOPMENT
    cells = cells_of(options.parts, options.worlds, options.conditions)
    chunks = chunks_of(cells, counts_of(options), base)
    folder = options.rows / f"{options.adapter}-{options.tag or fingerprint(options.adapter)}"
    folder.mkdir(parents=True, exist_ok=True)
    if not options.print_only:
        run(chunks, options, folder)
    document = json.loads(options.before.read_text("utf-8")) if options.before.exists() else None
    before = of_document(document) if document else {}
    panels_before = document["panels"] if document else []
    panels = []
    if "panels" in options.parts:
        adapter = ADAPTERS[options.adapter]
        panels = panel_rows(adapter, panels_of(options.panels))
    summaries = collected(cells, base, folder)
    title = "The model" if options.adapter == "answers" else options.adapter
    text = page(title, summaries, before, panels, panels_before)
    print(text)
    if options.output:
        blocks = {options.adapter: text}
        if document:
            blocks["today"] = page(
                f"What stood before (commit {document['commit'][:7]})", before, {}, panels_before
            )
        renew(options.output, blocks)
    if options.save:
        kept = to_document(summaries, adapter=options.adapter, commit=options.commit, panels=panels)
        options.save.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


def renew(path: Path, blocks: Mapping[str, str]) -> None:
    """Put each text between its marks, `<!-- NAME -->` and `<!-- /NAME -->`; or write the file.

    The lines on top, which sum up the page, follow.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text:
        text = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in blocks)
    for name, block in blocks.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if start in text and end in text:
            head, rest = text.split(start, 1)
            text = head + start + block + end + rest.split(end, 1)[1]
    path.write_text(with_short(text), encoding="utf-8")


def run(chunks: Sequence[Chunk], options: argparse.Namespace, folder: Path) -> None:
    """Every chunk that is not there yet."""
    missing = [chunk for chunk in chunks if not chunk.file(folder).exists()]
    work = partial(do, adapter=options.adapter, folder=folder)
    start = time.monotonic()
    with multiprocessing.Pool(options.jobs) as pool:
        for i, _ in enumerate(pool.imap(work, missing), start=1):
            print(f"\r{i}/{len(missing)} {missing[i - 1].cell}   ", end="", file=sys.stderr)
            if options.minutes and time.monotonic() - start > 60 * options.minutes:
                pool.terminate()
                break
    print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
