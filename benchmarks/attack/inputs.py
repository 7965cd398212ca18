"""Study files, tables, logs, budgets and options that no command may accept.

Each must be refused in one line, within 20 s of its own time, in less than 1 GiB.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

from attack.process import Verdict, call

CPU_S, PEAK_BYTES = 20.0, 1 << 30
HEAD = "problems_per_batch,rollouts_per_problem,rollouts,score\n"
PROBLEM = '{"id": "a", "prompt": "1+1", "answer": "2"}\n'
STUDY = """engine: simulator
problems:
  train: {path: problems.jsonl}
  validation: {easy: {generated: simulated, options: {size: 8}}}
recipe: {learning_rate: 0.1}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 16], seeds: 1}
budget: 1024
evaluation: {samples: 4, per_octave: 2, first: 64}
"""
Files = dict[str, str | bytes | Callable[[Path], None]]
RUN = "run study.yaml --workers 1 --calibrate 0 -o out"


def _study(old: str, new: str) -> tuple[Files, str]:
    if old not in STUDY:
        raise ValueError(old)
    return {"study.yaml": STUDY.replace(old, new), "problems.jsonl": _problems()}, RUN


def _problems(number: int = 40) -> str:
    return "".join(
        PROBLEM.replace('"a"', f'"p{i}"').replace("1+1", f"{i}+1") for i in range(number)
    )


def _with(problems: str | bytes, options: str = "") -> tuple[Files, str]:
    return {"study.yaml": STUDY, "problems.jsonl": problems}, f"{RUN} {options}"


def _table(rows: str | bytes, command: str = "fit curves.csv") -> tuple[Files, str]:
    return {"curves.csv": rows}, command


def _good(rows: int = 12) -> str:
    return HEAD + "".join(
        f"32,{n},{1000 * i},{0.3 + 0.01 * i}\n" for n in (4, 16, 64) for i in range(rows)
    )


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _own_link(path: Path) -> None:
    path.symlink_to(path.name)


def _deep_folders(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to("..", target_is_directory=True)


def _gzip_bomb(path: Path) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as file:
        for _ in range(3000):
            file.write(bytes(1 << 20))
    path.write_bytes(buffer.getvalue())


def _zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trainer_state.json", bytes(1 << 28))


def _parquet_bomb(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array([0.0], pa.float64())
    chunk = pa.table({
        name: pa.DictionaryArray.from_arrays(pa.array([0] * 10_000_000, pa.int32()), column)
        for name in ("problems_per_batch", "rollouts_per_problem", "rollouts", "score")
    })  # fmt: skip
    pq.write_table(chunk, path, compression="zstd")


def _long_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(600):
            file.write(b'{"step": 1, "x": "' + b"a" * (1 << 20))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def _other_database(path: Path) -> None:
    path.mkdir()
    with sqlite3.connect(path / "study.db") as connection:
        connection.execute("CREATE TABLE runs (a)")


def _newer(path: Path) -> None:
    path.mkdir()
    with sqlite3.connect(path / "study.db") as connection:
        connection.execute("PRAGMA user_version = 2147483647")
        connection.execute("CREATE TABLE study (key, value)")


def _folder_for_file(path: Path) -> None:
    (path / "study.db").mkdir(parents=True)


ATTACKS: dict[str, tuple[Files, str]] = {
    # study files
    "empty study file": ({"study.yaml": ""}, RUN),
    "study file of NULs": ({"study.yaml": bytes(5000)}, RUN),
    "study file in UTF-16": ({"study.yaml": STUDY.encode("utf-16")}, RUN),
    "study file is a folder": ({"study.yaml": _other_database}, RUN),
    "study file is a FIFO": ({"study.yaml": _fifo}, RUN),
    "study file is endless": ({"study.yaml": _endless_link}, RUN),
    "study file links to itself": ({"study.yaml": _own_link}, RUN),
    "100,000 brackets": ({"study.yaml": "a: " + "[" * 100_000}, RUN),
    "alias bomb": ({"study.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
    )}, RUN),
    "tag of Python": ({"study.yaml": "!!python/object/apply:os.system ['id']"}, RUN),
    "two documents": ({"study.yaml": f"{STUDY}---\n{STUDY}"}, RUN),
    "a key twice in different words": _study("budget: 1024", 'budget: 1024\n"budget": 2048'),
    "merge key": _study("seeds: 1}", "seeds: 1, <<: {seeds: 2}}"),
    "n is NaN": _study("[4, 16]", "[4, .nan]"),
    "n is infinite": _study("[4, 16]", "{low: 4, high: .inf}"),
    "n is negative": _study("[4, 16]", "[-4, 16]"),
    "n is a date": _study("[4, 16]", "[2026-01-01]"),
    "n is a digit of Thai": _study("[4, 16]", '["๔", "๘"]'),
    "a number of 5,000 digits": _study("budget: 1024", "budget: 1" + "0" * 5000),
    "budget in hexadecimal float": _study("budget: 1024", "budget: 0x1p10"),
    "budget is true": _study("budget: 1024", "budget: true"),
    "budget of nothing": _study("budget: 1024", "budget: 0"),
    "budget below one batch": _study("budget: 1024", "budget: 3"),
    "a million seeds": _study("seeds: 1}", "seeds: 1000000}"),
    "seed 2^200": _study("seeds: 1}", f"seeds: [{2**200}]}}"),
    "equal seeds": _study("seeds: 1}", "seeds: [1, 1, 1]}"),
    "samples 10^12": _study("samples: 4", "samples: 1000000000000"),
    "learning rate -0.1": _study("learning_rate: 0.1", "learning_rate: -0.1"),
    "learning rate is a list": _study("learning_rate: 0.1", "learning_rate: [0.1]"),
    "slices backwards": _study("budget: 1024", "budget: 1024\nslices: [1, 0.5]"),
    "slices past the end": _study("budget: 1024", "budget: 1024\nslices: [0.5, 1, 1.5]"),
    "limits below zero": _study("budget: 1024", "budget: 1024\nlimits: {memory_gb: -1}"),
    "engine is a path": _study("engine: simulator", "engine: ../../etc/passwd"),
    "engine is a number": _study("engine: simulator", "engine: 3"),
    "option named self": _study("options: {size: 8}", "options: {size: 8, self: 1}"),
    "option named name": _study("options: {size: 8}", "options: {size: 8, name: x}"),
    "set of 10^10 problems": _study("options: {size: 8}", "options: {size: 10000000000}"),
    "set of half a problem": _study("options: {size: 8}", "options: {size: 0.5}"),
    "set with a NUL in the file": _study("{easy: {generated", '{"ea\0sy": {generated'),
    "no validation": _study("{easy: {generated: simulated, options: {size: 8}}}", "{}"),
    "answers 10^9": _study("budget: 1024", "budget: 1024\nengine_options: {answers: 1000000000}"),
    "override without value": _with(_problems(), "budget"),
    "override into a number": _with(_problems(), "budget.x.y=3"),
    "override 2,000 deep": _with(_problems(), f"{'a.' * 2000}b=3"),
    # problems
    "no problems": _with(""),
    "a problem twice": _with(PROBLEM * 2),
    "a torn problem": _with(_problems() + '{"id": "x", "pro'),
    "problems nested 100,000 deep": _with('{"id": ' + "[" * 100_000),
    "lone surrogates": _with('{"id": "\\ud800", "prompt": "\\udfff", "answer": ""}\n'),
    "answer is NaN": _with('{"id": "a", "prompt": "x", "answer": NaN}\n'),
    "problems are a gzip": _with(gzip.compress(_problems().encode())),
    "verifier is a device": _with(PROBLEM.replace("}", ', "verifier": "/dev/zero:judge"}')),
    "verifier without end": _with(PROBLEM.replace("}", ', "verifier": "bits>=99999999999999"}')),
    # tables
    "a table of a header": _table(HEAD),
    "scores of 1e308": _table(_good().replace("0.3", "1e308")),
    "scores in percent": _table(_good().replace("0.3", "30.")),
    "score above one once": _table(_good() + "32,4,99000,1.7\n"),
    "rollouts 1e400": _table(_good() + "32,4,1e400,0.5\n"),
    "n is a fraction": _table(_good().replace("32,4,", "32,4.5,")),
    "no score at all": _table(HEAD + "32,8,1000,\n32,8,2000,NaN\n"),
    "zero problems per batch": _table(_good().replace("32,4,", "0,4,")),
    "column twice": _table(_good().replace("rollouts,score", "rollouts,score,score")),
    "quote without end": _table(_good() + '"32,4,1000,' + "x" * 200_000),
    "table of random bytes": _table(bytes((i * i * 31 + i // 7) % 256 for i in range(100_000))),
    "table is 20 GB of nothing": ({"curves.csv": _sparse}, "fit curves.csv"),
    "table is a line of 600 MB": ({"curves.jsonl": _long_line}, "fit curves.jsonl"),
    "Parquet that is text": ({"curves.parquet": _good()}, "fit curves.parquet"),
    "Parquet of 160 million zeros": ({"curves.parquet": _parquet_bomb}, "fit curves.parquet"),
    # logs and folders
    "gzip bomb": ({"log.jsonl.gz": _gzip_bomb}, "import log.jsonl.gz -o out"),
    "zip bomb": ({"log.zip": _zip_bomb}, "import log.zip -o out"),
    "a folder within itself": ({"logs": _deep_folders}, "import logs -o out"),
    "pattern without end": ({f"{'a' * 42}.jsonl": '{"step": 1, "x": 1}'},
                            "import . -o out --set pattern=(a+)+{problems_per_batch}$"),
    "column map that is a list": ({"log.jsonl": '{"step": 1, "x": 1}\n', "map.yaml": "[1, 2]"},
                                  "import log.jsonl -o out --map map.yaml"),
    "steps that are infinite": ({"log.jsonl": '{"step": 1e999, "val/acc": 0.5}\n' * 3},
                                "fit log.jsonl --set problems_per_batch=8 --set steps=4"),
    "event file of rubbish": ({"events.out.tfevents.1.x": os.urandom(5000)},
                              "import events.out.tfevents.1.x -o out"),
    "W&B file of rubbish": ({"run-x.wandb": b":W&B" + os.urandom(5000)},
                            "import run-x.wandb -o out"),
    "study of another program": ({"out": _other_database}, "export out -o x.csv"),
    "study from the future": ({"out": _newer}, "status out"),
    "study.db is a folder": ({"out": _folder_for_file}, "doctor out"),
    # budgets and options
    "budget of 1e400": ({}, "plan --budget 1e400"),
    "budget of minus zero": ({}, "plan --budget -0"),
    "budget of NaN": ({}, "plan --budget nan"),
    "budget of 10,000 digits": ({}, "plan --budget 1" + "0" * 10_000),
    "budget in dollars without a price": ({}, "plan --budget $1e308"),
    "batch of one, a million steps": ({}, "plan --batch-size 0 --steps 1000000"),
    "range backwards": _table(_good(), "fit curves.csv --range 1 0"),
    "range of NaN": _table(_good(), "fit curves.csv --range nan 1"),
    "a bin of nothing": _table(_good(), "fit curves.csv --method paper --bin-width 0"),
    "a bin of 5e-324": _table(_good(), "fit curves.csv --method paper --bin-width 5e-324"),
    "workers -1": _with(_problems(), "--workers -1"),
    "a million workers, no room": _with(_problems(), "-o /proc/nowhere"),
    "report into a folder": _table(_good(), "report curves.csv -o ."),
    "report over its source": _table(_good(), "report curves.csv -o curves.csv"),
    "figures into a pipe": ({"curves.csv": _good(), "pipe": _fifo}, "fit curves.csv --json pipe"),
    "design for nothing": ({}, "design --budget 1 -o s.yaml"),
    "design with a spend of 0": ({}, "design --budget 1e6 --spend 0 -o s.yaml"),
    "design with 10^9 draws": ({}, "design --budget 1e6 --draws 1000000000 -o s.yaml"),
    "metric that is none": _table(_good(), "fit curves.csv --metric avg@0"),
    "where that is none": _table(_good(), "fit curves.csv --where ="),
    "current that is none": _table(_good(), "plan curves.csv --budget 1e4 --current n=0,bp=-1"),
}  # fmt: skip


def trial(folder: Path, number: int) -> tuple[str, Verdict]:
    """One input to one command."""
    name = list(ATTACKS)[number]
    files, words = ATTACKS[name]
    work = folder / "input"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for file, what in files.items():
        path = work / file
        if callable(what):
            what(path)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        else:
            path.write_text(what)
    ended = call(*words.split(" "), cwd=work)
    verdict = ended.refusal()
    if ended.cpu_s > CPU_S:
        verdict = Verdict(verdict="hung", seen=f"{ended.cpu_s:.0f} s of work; {verdict.seen}")
    if ended.peak_bytes > PEAK_BYTES:
        seen = f"{ended.peak_bytes / 1e9:.2f} GB; {verdict.seen}"
        verdict = Verdict(verdict="hung", seen=seen)
    return name, verdict
