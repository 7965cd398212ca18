"""Make runs of the grid on a GPU, several at once, in pieces that resume.

    python grid/gpu.py                     # one piece: eight minutes at most
    python grid/gpu.py --device cpu        # the same work on a CPU, slowly: for tests
    python grid/gpu.py status              # how many runs are there
    python grid/gpu.py collect             # finished runs -> grid/gpu, in the format of grid/runs

For a machine that is lent for minutes. A piece leaves one file, OUT/grid-gpu.tar.xz, with finished
runs and those under way: bring it back, give it to the next machine, and the next piece goes on. It
stays below `--most-mb`: where it would not, the next runs wait until finished ones are collected.

The runs are those of `make grid` with `shapes: fixed`: other random numbers, and so other runs of
the same studies under hashes of their own. What those shapes do not compute (PPO, CISPO) is left
to `make grid`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import make as grid
import pyarrow.parquet as pq

from isocompute.errors import InputError
from isocompute.runner import Progress, Settings, open_study, run_study
from isocompute.runner.together import TogetherPool
from isocompute.store import Store
from isocompute.study import RunSpec, Study

MOVED = grid.GRID / "gpu"  # where finished runs are collected
RESERVE_S = 25.0  # of a piece: for the last updates, their commit and the archive
MOST_TOGETHER = 8
FULL = "finished runs leave no room for the next ones: collect them, then go on"
FAULT = "runs under way ended, to be tried again: "
GOES_ON = "the time is used up: start again, and it goes on"
# Of a run under way, in the archive: the last two checkpoints, three numbers of four bytes for
# every parameter, which do not shrink; and the records of its updates, which do.
BYTES_PER_PARAMETER, BYTES_PER_STEP, BYTES_PER_PROBLEM, BYTES_MORE = 24, 90, 2.5, 100_000


class Studies(grid.Studies):
    """The studies as they run here; those that fixed shapes cannot train are left out."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __getitem__(self, name: str) -> Study:
        if name not in self._read:
            graphs = ["engine_options.graphs=true"] if self.device.startswith("cuda") else []
            options = [f"engine_options.device={self.device}", "engine_options.shapes=fixed"]
            self._read[name] = open_study(grid.GRID / f"{name}.yaml", [*options, *graphs])
        return self._read[name]

    def can(self, name: str) -> bool:
        """Whether fixed shapes can train a study."""
        try:
            self[name]
        except InputError as error:
            if "shapes: fixed" not in str(error):
                raise
            return False
        return True


def is_missing(one: grid.Wanted) -> bool:
    """Whether nobody has made a run yet."""
    return not one.is_there and not grid.is_there(one.spec, MOVED)


def is_more(file: Path, there: Path) -> bool:
    """Whether a run's file goes further than the one that is there, if there is one."""
    if not there.exists():
        return True
    mine, theirs = (json.loads(pq.read_schema(f).metadata[b"isocompute"]) for f in (file, there))
    return bool(mine["steps"] > theirs["steps"])


def bytes_of(spec: RunSpec) -> int:
    """Room of a run under way, about."""
    from isocompute.engines.local.folders import load_model
    from isocompute.engines.local.policy import base_folder

    model = load_model(base_folder(str(spec.engine_options["model"])))
    parameters = sum(p.numel() for p in model.parameters())
    step = BYTES_PER_STEP + BYTES_PER_PROBLEM * spec.allocation.problems_per_batch
    return int(BYTES_PER_PARAMETER * parameters + step * spec.allocation.steps) + BYTES_MORE


def alike(first: grid.Wanted) -> list[grid.Wanted]:
    """A run, and the missing ones of its study that can be trained together with it."""
    from isocompute.engines.local.together import shape_of

    shape = shape_of(first.spec)
    others = [grid.Wanted(first.study, spec) for spec in first.study.runs]
    return [first, *(one for one in others if one.spec.hash != first.spec.hash
                     and shape_of(one.spec) == shape and is_missing(one))]  # fmt: skip


def that_fit(runs: Sequence[grid.Wanted], room: int) -> list[grid.Wanted]:
    """The first of the runs, as many as there is room for, in bytes."""
    sizes = accumulate(bytes_of(one.spec) for one in runs)
    return [one for one, size in zip(runs, sizes, strict=True) if size <= room]


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Piece:
    """One piece of the work.

    Args:
        out: folder of everything that is made.
        studies: name -> study, as they run here.
        seconds: until the piece has to end.
        most: runs trained at once.
        most_bytes: of `out` at the end.
        clock: seconds, monotonic.
        settings: how often the time is looked at, and the like.
    """

    def __init__(
        self, out: Path, studies: Studies, *, seconds: float, most: int,
        most_bytes: int, clock: Callable[[], float] = time.monotonic,
        settings: Settings | None = None,
    ) -> None:  # fmt: skip
        self.out, self.studies, self.most, self.most_bytes = out, studies, most, most_bytes
        self.clock, self.until, self.settings = clock, clock() + seconds, settings
        self.archive = out / "grid-gpu.tar.xz"
        self.runs, self.state = out / "runs", out / "state"
        grid.RUNS = self.runs

    @contextlib.contextmanager
    def unpacked(self) -> Iterator[None]:
        """The archive as folders; what is in them afterwards is the new archive."""
        self.out.mkdir(parents=True, exist_ok=True)
        if self.archive.exists():
            # The newer files of a database that was cut off must not meet the older ones.
            shutil.rmtree(self.state, ignore_errors=True)
            with tarfile.open(self.archive) as file:
                file.extractall(self.out, filter="data")
            self.archive.unlink()
        try:
            yield
        finally:
            folders = self.runs, self.state
            if any(folder.exists() and any(folder.iterdir()) for folder in folders):
                draft = self.archive.with_suffix(".part")  # what is cut off is no archive
                with tarfile.open(draft, "w:xz", preset=1) as file:
                    for folder in filter(Path.exists, folders):
                        file.add(folder, arcname=folder.name)
                draft.replace(self.archive)
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    def collect(self) -> int:
        """Take finished runs out of the archive; how many."""
        MOVED.mkdir(exist_ok=True)
        files = [file for file in self.runs.glob("*.parquet") if is_more(file, MOVED / file.name)]
        for file in files:
            shutil.move(file, MOVED / file.name)
        shutil.rmtree(self.runs, ignore_errors=True)  # what is left has less than is there
        return len(files)

    def work(self) -> str:
        """Train until the time, the room or the runs are used up; says which."""
        while True:
            batch = self._under_way()
            if not batch:
                runs = grid.ordered(self.studies, self.studies.can)
                first = next(filter(is_missing, runs), None)
                if first is None:
                    return "every run is there"
                if self.clock() > self.until:
                    return GOES_ON
                batch = that_fit(alike(first)[: self.most], self.most_bytes - size_of(self.out))
            if not batch:
                return FULL
            said = self._train(batch)
            if said:
                return said

    def _under_way(self) -> list[grid.Wanted]:
        """The batch of an earlier piece; empty where there is none."""
        listed = self.state / "runs.json"
        if not listed.exists():
            return []
        name, hashes = json.loads(listed.read_text(encoding="utf-8"))
        study = self.studies[name]
        return [grid.Wanted(study, spec) for spec in study.runs if spec.hash in hashes]

    def _train(self, batch: Sequence[grid.Wanted]) -> str:
        """Train a batch to its end; else why it has not come there."""
        self.state.mkdir(exist_ok=True)
        listed = json.dumps([batch[0].study.name, [one.spec.hash for one in batch]])
        (self.state / "runs.json").write_text(listed, encoding="utf-8")
        study = Study(name="grid-gpu", runs=[one.spec for one in batch], slices=(1.0,))
        started, asked = time.process_time(), False

        def watch(_: Progress) -> None:
            nonlocal asked
            if self.clock() > self.until and not asked:
                asked = True  # as somebody would stop it: what is done is committed
                signal.raise_signal(signal.SIGTERM)

        folder = self.state / "study"
        run_study(study, folder, progress=watch, settings=self.settings, retry_failed=True,
                  pool=lambda db: TogetherPool(db, len(batch)))  # fmt: skip
        self._add_time(time.process_time() - started)
        with Store(folder) as store:
            runs = store.runs()
        # A run that diverges is a result; what else ends one, such as memory, is to be mended.
        faults = [run.reason for run in runs
                  if run.state == "failed" and "must be finite" not in run.reason]  # fmt: skip
        if faults:
            return f"{FAULT}{faults[0]}"
        if any(run.state == "pending" for run in runs):
            return GOES_ON
        each = float((self.state / "cpu_s").read_text()) / len(batch)
        for one in batch:
            head = grid.keep(folder, one, each, device=device_name(one.spec))
            print(f"{one.study.name} {one.spec.allocation.problems_per_batch} x "
                  f"{one.spec.allocation.rollouts_per_problem} seed {one.spec.seed} "
                  f"{head['state']} {head['steps']} steps", flush=True)  # fmt: skip
        shutil.rmtree(self.state)
        return ""

    def _add_time(self, cpu_s: float) -> None:
        clock = self.state / "cpu_s"
        before = float(clock.read_text()) if clock.exists() else 0.0
        clock.write_text(str(before + cpu_s))


def device_name(spec: RunSpec) -> str:
    """The device of a run in words."""
    import torch

    device = str(spec.engine_options["device"])
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def main() -> int:
    """What the command line asks for; 1 after a fault, or where the file came out too large."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="piece",
                        choices=("piece", "status", "collect"))  # fmt: skip
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=grid.ROOT / "build" / "grid-gpu")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--together", type=int, default=MOST_TOGETHER)
    parser.add_argument("--most-mb", type=float, default=16.0)
    options = parser.parse_args()
    started = time.monotonic()
    piece = Piece(
        options.out, Studies(options.device), most=options.together,
        seconds=max(0.0, 60 * options.minutes - RESERVE_S), most_bytes=int(1e6 * options.most_mb),
    )  # fmt: skip
    with piece.unpacked():
        if options.what == "status":
            missing = [is_missing(one) for one in grid.ordered(piece.studies, piece.studies.can)]
            said = f"{missing.count(False)} of {len(missing)} runs"
        elif options.what == "collect":
            said = f"{piece.collect()} runs collected in {MOVED}"
        else:
            said = piece.work()
    size = size_of(options.out)
    print(f"{said} ({time.monotonic() - started:.0f} s, {size:,} bytes)")
    return int(size > piece.most_bytes or said.startswith(FAULT))


if __name__ == "__main__":
    sys.exit(main())
