"""Does a test notice when a line is broken? One command, which goes on where it stopped.

    make mutants                                  # what is left of the sample, an hour at most
    python -m mutants run --minutes 10            # a part of it
    python -m mutants run --each 10               # quickly: fewer of the slow tests
    python -m mutants run --again                 # those that no test noticed, after new tests
    python -m mutants table                       # what is known so far
    python -m mutants run --sample 1              # another sample than the newest whole one

Each sample (`sample-1.csv` and so on) was drawn by its seed before the tests that answer it were
written. Lines that are gone since are passed over; in the first, model and answers have some in
reserve. Changes that no test can notice are listed with the reason in `equivalent.csv`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from isocompute.intervals import binomial_interval
from mutants.places import Place, draw, line_of
from mutants.reach import TIMES, Reach, merge
from mutants.trial import Copy, load_libraries, run_tests

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "mutants"
# Seed of each sample, and its size as a share of SIZES: the third tells how far tests that were
# written for the second hold for other lines.
SAMPLES = {1: (22, 1.0), 2: (23, 1.0), 3: (24, 0.2)}
# Lines of each room: about as many as it has, but enough of the small ones to say something of
# each. Half: intervals wider by a half; twice: two hours.
SIZES = {
    "engines/local": 110, "recipe": 15, "metrics": 20, "difficulty": 20, "health": 25,
    "model": 50, "answers": 60,
}  # fmt: skip
RESERVE = {"model": 25, "answers": 30}  # of sample 1: these rooms were being rebuilt
# Tests of one trial take no longer than this, unbroken: at half 1 of 10 trials leaves tests out
# that could have noticed, at twice the sample takes more than its hour.
EACH_S = 30.0
# Tests that read the source itself, which coverage does not see.
ALWAYS = ("tests/engines/test_updates.py::test_every_new_tensor_follows_the_device",)
MARKS = "not (slow or browser or trainers or ray or gpu or docs)"
# Tests of these rooms; the others run the same lines through a whole study, and are slow.
TESTS = (
    "test_answers*", "test_best", "test_boundaries", "test_compare", "test_conformance",
    "test_critic", "test_difficulty", "test_engine_draws", "test_families", "test_fit_law",
    "test_gradients", "test_health", "test_interference*", "test_layouts", "test_local_*",
    "test_lr_sweep", "test_metrics", "test_model", "test_objectives", "test_overfit", "test_plan*",
    "test_posterior", "test_price", "test_published", "test_sampling", "test_streams", "test_study",
    "test_trainers", "test_unjudged", "test_updates", "test_verdict*", "test_walk",
    "test_weight_decay", "test_worlds", "test_*_details",
)  # fmt: skip


def _strata() -> dict[str, list[str]]:
    found = {}
    for name in SIZES:
        place = ROOT / "src" / "isocompute" / name
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        found[name] = [f.relative_to(ROOT).as_posix() for f in files]
    return found


def _drawn(sample: int) -> Path:
    return HERE / f"sample-{sample}.csv"


def _sizes(sample: int) -> dict[str, int]:
    return {name: round(SAMPLES[sample][1] * size) for name, size in SIZES.items()}


def _draw(sample: int) -> None:
    reserve = RESERVE if sample == 1 else {}
    sizes = {name: size + reserve.get(name, 0) for name, size in _sizes(sample).items()}
    with _drawn(sample).open("w", newline="") as file:
        rows = csv.DictWriter(file, ["room", *Place.__dataclass_fields__])
        rows.writeheader()
        rows.writerows({"room": n, **asdict(p)}
                       for n, p in draw(ROOT, _strata(), sizes, SAMPLES[sample][0]))  # fmt: skip


def _sample(sample: int) -> list[tuple[str, Place]]:
    """Those whose line is still there, as many of a room as belong to it.

    Rooms take turns by their size, so that a run that was cut short is a sample of all of them.
    """
    with _drawn(sample).open(newline="") as file:
        rows = [(row.pop("room"), Place(**{**row, "nth": int(row["nth"])}))
                for row in csv.DictReader(file)]  # fmt: skip
    sizes, kept, count = _sizes(sample), [], defaultdict(int)
    for room, place in rows:
        if count[room] < sizes[room] and _there(place):
            kept.append(((count[room] + 0.5) / sizes[room], room, place))
            count[room] += 1
    return [(room, place) for _, room, place in sorted(kept, key=lambda turn: turn[:2])]


def _there(place: Place) -> bool:
    try:
        return line_of((ROOT / place.path).read_text(), place) > 0
    except (LookupError, FileNotFoundError):
        return False


def _reach() -> Reach:
    """Every test file that was not run on these sources yet, under coverage; what all say."""
    OUT.mkdir(parents=True, exist_ok=True)
    sources = hashlib.sha256()  # lines move: what reaches them is looked at anew
    for path in (path for files in _strata().values() for path in files):
        sources.update((ROOT / path).read_bytes())
    current = set()
    for file in sorted({f for name in TESTS for f in (ROOT / "tests").rglob(f"{name}.py")}):
        digest = hashlib.sha256(sources.digest() + file.read_bytes()).hexdigest()[:8]
        part = OUT / f"part-{file.stem}-{digest}.db"
        current |= {part, part.with_suffix(".times")}
        if not part.exists():
            _cover(file, part)
    for old in {*OUT.glob("part-*.db"), *OUT.glob("part-*.times")} - current:
        old.unlink()
    times = OUT / "times"
    times.write_text("".join(p.read_text() for p in sorted(OUT.glob("part-*.times"))))
    return Reach(merge(OUT), times)


def _cover(file: Path, part: Path) -> None:
    began = time.monotonic()
    inside = ",".join(f for files in _strata().values() for f in files)
    with tempfile.TemporaryDirectory() as folder:
        times, data = Path(folder) / "times", Path(folder) / "data"
        times.touch()
        config = Path(folder) / "config"
        config.write_text(f"[run]\ndata_file = {data}\n")
        subprocess.run(
            [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", f"--include={inside}",
             "-m", "pytest", "-q", "-p", "mutants.reach", "-p", "no:cacheprovider",
             "-p", "no:xdist", "-m", MARKS, str(file.relative_to(ROOT))],
            cwd=ROOT, env={**os.environ, TIMES: str(times),
                           "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"},
            stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        part.with_suffix(".times").write_bytes(times.read_bytes())
        part.write_bytes(data.read_bytes() if data.exists() else b"")
    print(f"{file.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _results() -> dict[str, dict[str, object]]:
    """Last result of each place."""
    file = OUT / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return {_key(row["place"]): row for row in map(json.loads, lines)}


def _key(place: dict[str, object]) -> str:
    return json.dumps(place, sort_keys=True)


def _run(sample: int, minutes: float, again: bool, each_s: float) -> None:
    end = time.monotonic() + 60 * minutes
    reach, known, equivalent = _reach(), _results(), _equivalent()
    load_libraries()
    copy = Copy(ROOT, Path(tempfile.mkdtemp(prefix="mutants-")) / "copy")
    for room, place in _sample(sample):
        key = _key(asdict(place))
        before = known.get(key, {}).get("result")
        if before is not None and not (again and before == "survived" and key not in equivalent):
            continue
        if time.monotonic() > end:
            print("time is up; the same command goes on from here", file=sys.stderr)
            return
        number = line_of((ROOT / place.path).read_text(), place)
        every = reach.tests_of(ROOT / place.path, number)
        tests, expected = [], 0.0
        for test in dict.fromkeys([*(ALWAYS if "engines/local" in place.path else ()), *every]):
            if not tests or expected + reach.seconds[test] <= each_s:
                tests.append(test)
                expected += reach.seconds[test]
        result, seconds = "survived", 0.0
        if tests:
            with copy.with_broken(place):
                result, seconds = run_tests(copy.folder, tests, expected)
        row = {"room": room, "place": asdict(place), "line": number, "result": result,
               "tests": len(tests), "of": len(every), "seconds": round(seconds, 1)}  # fmt: skip
        with (OUT / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{result:9}{seconds:6.1f} s {len(tests):4}/{len(every):<4} {place.path}:{number}"
              f"  {place.after.strip()}", file=sys.stderr, flush=True)  # fmt: skip


def _equivalent() -> dict[str, str]:
    file = HERE / "equivalent.csv"
    if not file.exists():
        return {}
    with file.open(newline="") as rows:
        return {_key({**{k: row[k] for k in ("path", "function", "kind", "before", "after")},
                      "nth": int(row["nth"])}): row["reason"]
                for row in csv.DictReader(rows)}  # fmt: skip


def _table(sample: int) -> None:
    known, equivalent = _results(), _equivalent()
    counts: dict[str, list[int]] = {name: [0, 0, 0] for name in SIZES}
    for room, place in _sample(sample):
        key = _key(asdict(place))
        row = counts[room]
        result = known.get(key, {}).get("result")
        if result is not None:
            row[2 if key in equivalent else 0 if result in ("caught", "hung") else 1] += 1
    print("| room | tried | caught | not caught | equivalent | share caught |")
    print("|---|---|---|---|---|---|")
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    for room, (caught, missed, same) in [*counts.items(), ("all", total)]:
        if caught + missed:
            (low,), (high,) = binomial_interval([caught], [caught + missed])
            print(f"| {room} | {caught + missed + same} | {caught} | {missed} | {same} | "
                  f"{caught / (caught + missed):.0%} ({low:.0%} to {high:.0%}) |")  # fmt: skip
    for room, place in _sample(sample):
        key = _key(asdict(place))
        if known.get(key, {}).get("result") == "survived" and key not in equivalent:
            print(f"\n{room}: {place.path}, {place.function or 'module'}, {place.kind}\n"
                  f"    {place.before.strip()}\n    {place.after.strip()}",
                  file=sys.stderr)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("draw", "run", "table"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--each", type=float, default=EACH_S, help="seconds of tests per line")
    parser.add_argument("--sample", type=int, choices=tuple(SAMPLES), default=2)
    given = parser.parse_args()
    if given.what == "draw":
        _draw(given.sample)
    elif given.what == "run":
        _run(given.sample, given.minutes, given.again, given.each)
    _table(given.sample)


if __name__ == "__main__":
    main()
