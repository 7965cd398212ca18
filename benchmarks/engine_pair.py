"""The embedded engine beside another checkout of it, TRL's GRPOTrainer and the matrix peak.

    python benchmarks/engine_pair.py CHECKOUT [--trainers-python PATH] [-o benchmarks/engine_pair]

One update of each side in turn, the same weights, problems and recipe (Easy, temperature 1, B_p =
32), one thread each. Everything is CPU time: other programs take none of it, though they cool the
caches of all sides alike. Ratios are medians over pairs. Prints a table and, with -o, writes
OUT.json and OUT.md. A load above the number of cores lowers every share of the matrix peak.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine import CASES, MAKE_BASE, PROBLEMS_PER_BATCH, SIDE, Side, machine, trainer_versions

from isocompute.engines.local.worlds import BitRuleWorld
from isocompute.problems import save_problems

HERE = Path(__file__).parents[1]
# n -> pairs of updates: a large update is long, and few of them are enough.
PAIRS = {4: 12, 32: 8, 128: 5, 512: 3}
# TRL takes a minute and more for an update of n = 512.
TRL_UP_TO, TRL_PAIRS = 128, 2


def folder_of(key: str, folder: Path) -> tuple[str, Path]:
    """Model and problems of a case."""
    case = CASES["distinct"] if key == "distinct" else None
    world = case.world if case else BitRuleWorld()
    file, model = folder / f"{key}.jsonl", "bits"
    save_problems(world.problems(key, 320, seed=1), file)
    if case:
        model = str(folder / "base")
        command = [sys.executable, str(MAKE_BASE), case.base, "--out", model]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return model, file


def measured(sides: dict[str, Side], work: dict[str, Any]) -> dict[str, Any]:
    """One n: CPU seconds of each side's updates, and the ratios of pairs."""
    n = work["rollouts_per_problem"]
    ours = [name for name in sides if name != "trl"]
    taking = [*ours, *(["trl"] if "trl" in sides and n <= TRL_UP_TO else [])]
    peak: dict[str, float] = {}
    for name in taking:
        peak[name] = sides[name].ask(json.dumps(work)).get("matmul", 0.0)
        sides[name].ask("step")  # the first is another: caches, lazy imports
    spent: dict[str, list[float]] = {name: [] for name in taking}
    distinct = 0.0
    for pair in range(PAIRS[n]):
        for name in taking:
            if name == "trl" and pair >= TRL_PAIRS:
                continue
            told = sides[name].ask("step")
            spent[name].append(told["cpu_s"])
            distinct = told.get("distinct", distinct)
    rollouts = PROBLEMS_PER_BATCH * n
    row: dict[str, Any] = {"rollouts_per_problem": n, "distinct_share": distinct,
                           "load": os.getloadavg()[0]}  # fmt: skip
    for name, seconds in spent.items():
        middle = statistics.median(seconds)
        ratios = sorted(a / b for a, b in zip(seconds, spent["isocompute"], strict=False))
        row[name] = {
            "cpu_seconds_per_update": middle, "rollouts_per_cpu_second": rollouts / middle,
            "slower": statistics.median(ratios), "range": [ratios[0], ratios[-1]],
        }  # fmt: skip
    for name in ours:
        gigaflop = sides[name].ask("count")["gigaflop"]
        row[name] |= {"gigaflop": gigaflop, "peak": max(peak.values()),
                      "of_peak": gigaflop / min(spent[name]) / max(peak.values())}  # fmt: skip
    return row


def render(document: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [
        "# The embedded engine beside itself, earlier", "",
        f"Written by `benchmarks/engine_pair.py`. {document['machine']}; {document['date']};",
        f"earlier: commit {document['before']}; {document['beside']}. CPU time, one thread each,",
        "updates in turn, the Easy recipe, B_p = 32. Ratio: median over pairs [least, most].",
        "Of peak: matrix products of the fastest update against a 1024 x 1024 product. What is",
        "shared or looked up is no product: fewer of them for the same rollouts is no loss.", "",
        "| world | n | distinct | load | rollouts per CPU s: earlier | now | ratio "
        "| of peak: earlier | now | TRL | now over TRL |",
        "|---" * 11 + "|",
    ]  # fmt: skip
    for row in document["rows"]:
        now, before, trl = row["isocompute"], row["before"], row.get("trl")
        low, high = before["range"]
        beside = "- | - |"
        if trl:
            beside = f"{trl['rollouts_per_cpu_second']:,.0f} | {trl['slower']:.1f} |"
        lines.append(
            f"| {row['case']} | {row['rollouts_per_problem']} | {row['distinct_share']:.0%} | "
            f"{row['load']:.0f} | {before['rollouts_per_cpu_second']:,.0f} | "
            f"{now['rollouts_per_cpu_second']:,.0f} | "
            f"{before['slower']:.2f} [{low:.2f}, {high:.2f}] | {before['of_peak']:.0%} | "
            f"{now['of_peak']:.0%} | {beside}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="the repository at an earlier commit")
    parser.add_argument("--trainers-python", help="a Python that has TRL")
    parser.add_argument("-o", "--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    beside = trainer_versions(options.trainers_python)
    commit = subprocess.run(["git", "-C", str(options.checkout), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    document: dict[str, Any] = {"machine": machine(), "date": str(datetime.date.today()),
                                "before": commit, "beside": beside, "rows": []}  # fmt: skip
    earlier = options.checkout / "benchmarks" / SIDE.name
    sides = {
        "isocompute": Side(sys.executable, "isocompute", SIDE, HERE / "src"),
        "before": Side(sys.executable, "isocompute", earlier, options.checkout / "src"),
    }
    if not beside.startswith("TRL left out"):
        sides["trl"] = Side(options.trainers_python, "trl", SIDE, HERE / "src")
    try:
        with tempfile.TemporaryDirectory() as name:
            for case in ("bits", "distinct"):
                model, file = folder_of(case, Path(name))
                for n in PAIRS:
                    work = {
                        "model": model, "problems": str(file), "rollouts_per_problem": n,
                        "problems_per_batch": PROBLEMS_PER_BATCH,
                    }  # fmt: skip
                    document["rows"].append({"case": case, **measured(sides, work)})
                    print(render(document).splitlines()[-1], flush=True)
                    if options.out:
                        text = json.dumps(document, indent=1) + "\n"
                        options.out.with_suffix(".json").write_text(text)
                        options.out.with_suffix(".md").write_text(render(document))
    finally:
        for side in sides.values():
            side.close()


if __name__ == "__main__":
    main()
