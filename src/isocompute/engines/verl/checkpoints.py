"""verl's own checkpoints of one run: which may go, and whether one is whole.

verl would count its checkpoints itself and empty all but the last few. The study commits fewer of
them than verl saves, so the one that it would resume from could be among the emptied.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from isocompute.errors import InputError


class Checkpoints:
    """The `global_step_N` folders of a run.

    Args:
        folder: verl's `trainer.default_local_dir`.
        critic: whether the run has a value function.
    """

    def __init__(self, folder: Path, *, critic: bool) -> None:
        self.folder, self._parts = folder, ("actor", "critic") if critic else ("actor",)
        self._resumed: dict[int, Path] = {}
        self._made: dict[int, Path] = {}

    def path(self, step: int) -> Path:
        """Where verl saves after `step` updates."""
        return self.folder / f"global_step_{step}"

    def resumed_from(self, step: int, reference: Path) -> None:
        """Note the checkpoint of the study from which this attempt goes on."""
        self._resumed[step] = reference

    def made(self, step: int, reference: Path) -> None:
        """Note that a checkpoint of the study, the folder `reference`, resumes from `step`."""
        self._made[step] = reference

    def thin_out(self) -> None:
        """Remove what no checkpoint of the study names any more.

        The store keeps the folder of a checkpoint for as long as it may be resumed from. Where
        that cannot be seen, because the folders travel to another machine, everything stays.
        """
        alive = [step for step, reference in self._made.items() if reference.is_dir()]
        kept = {*alive, *(step for step, path in self._resumed.items() if path.is_dir())}
        for step in self._steps():
            if step not in kept and step < max(alive, default=0):
                shutil.rmtree(self.path(step), ignore_errors=True)

    def check_whole(self, path: Path) -> None:
        """Refuse to resume from a checkpoint of which parts are gone.

        Raises:
            InputError: names what is missing.
        """
        missing = [
            part for part in self._parts
            if not any(path.joinpath(part).glob("*model*"))
            or not any(path.joinpath(part).glob("*optim*"))
        ]  # fmt: skip
        missing += [] if (path / "data.pt").is_file() else ["data.pt"]
        if missing:
            raise InputError(
                "verl's checkpoint must be whole to go on from, but "
                f"{os.fspath(path)} lacks {', '.join(missing)}; put the folder back, or run the "
                "study in a new folder."
            )

    def _steps(self) -> list[int]:
        found = []
        for entry in self.folder.glob("global_step_*"):
            with contextlib.suppress(ValueError):
                found.append(int(entry.name.removeprefix("global_step_")))
        return sorted(found)
