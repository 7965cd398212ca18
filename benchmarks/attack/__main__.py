"""Attack store, runner, verifiers and inputs from outside; print how each trial ended.

`python benchmarks/attack FOLDER [kills] [flips] [verifiers] [inputs] [--seed S]` goes on where it
stopped; `--again` repeats what ended badly, `--only N` one trial. Exit code 1 if anything broke
silently, ended raw, hung or could not go on. Half an hour on an idle machine; only on one that is
yours: checkers ask for 2 GB, and for signals to whoever started them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from attack import checkers, flips, ground, inputs, kills
from attack.process import BAD, VERDICTS, Verdict

KILLS, FLIPS = 100, 200
SIZES = {"kills": KILLS, "flips": FLIPS, "verifiers": len(checkers.names()),
         "inputs": len(inputs.ATTACKS)}  # fmt: skip


def main() -> int:
    """Carry out what is not yet in the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("attacks", nargs="*", metavar="attack", help=", ".join(SIZES))
    parser.add_argument("--seed", type=int, default=0, help="of the places and times")
    parser.add_argument("--only", type=int, help="this trial alone, whatever is known of it")
    parser.add_argument("--again", action="store_true", help="repeat the trials that ended badly")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    options = parser.parse_args()
    if unknown := set(options.attacks) - set(SIZES):
        parser.error(f"attacks are {', '.join(SIZES)}, but got {', '.join(sorted(unknown))}")
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    file = folder / f"results-{options.seed}.jsonl"
    known = _read(file)
    attacks = options.attacks or list(SIZES)
    for attack in attacks:
        prepared = ready(folder, attack)
        for number in range(SIZES[attack]):
            before = known.get((attack, number))
            due = before is None or (options.again and before["verdict"] in BAD)
            if options.only is not None:
                due = number == options.only
            if not due or time.monotonic() > until:
                continue
            rng = random.Random(f"{options.seed} {attack} {number}")
            name, verdict = prepared(number, rng)
            row = {"attack": attack, "number": number, "name": name, "verdict": verdict.verdict,
                   "seen": verdict.seen}  # fmt: skip
            known[attack, number] = row
            with file.open("a") as results:
                results.write(json.dumps(row) + "\n")
            if options.only is not None or verdict.verdict in BAD:
                print(f"{attack} {number} ({name}): {verdict.verdict}: {verdict.seen}", flush=True)
    return _table(known, attacks, options.seed)


def ready(folder: Path, attack: str) -> Callable[[int, random.Random], tuple[str, Verdict]]:
    """What carries out one trial of an attack, with everything prepared."""
    if attack == "inputs":
        return lambda number, _: inputs.trial(folder, number)
    ground.prepare(folder / "ground")
    if attack == "verifiers":
        return lambda number, _: checkers.trial(folder, number)
    if attack == "flips":
        return lambda number, rng: flips.trial(folder, number, rng)
    lives = {kind: kills.life(folder, kind) for kind in ("simulated", "trained")}
    return lambda number, rng: kills.trial(folder, number, KILLS, rng, lives)


def _read(file: Path) -> dict[tuple[str, int], dict[str, str]]:
    lines = file.read_text().splitlines() if file.exists() else []
    rows = map(json.loads, lines)
    return {(row["attack"], row["number"]): row for row in rows}


def _table(known: dict[tuple[str, int], dict[str, str]], attacks: list[str], seed: int) -> int:
    print(f"{'':>10} {'tried':>6} " + " ".join(f"{word:>8}" for word in VERDICTS))
    bad = 0
    for attack in attacks:
        rows = [row for (name, _), row in sorted(known.items()) if name == attack]
        count = [sum(row["verdict"] == word for row in rows) for word in VERDICTS]
        bad += sum(row["verdict"] in BAD for row in rows) + (len(rows) < SIZES[attack])
        print(f"{attack:>10} {len(rows):>6} " + " ".join(f"{n:>8}" for n in count))
    for (attack, number), row in sorted(known.items()):
        if row["verdict"] in BAD and attack in attacks:
            print(f"{row['verdict']}: {row['name']}: {row['seen']}")
            print(f"  python benchmarks/attack FOLDER {attack} --only {number} --seed {seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
