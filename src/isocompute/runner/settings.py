"""Timing of a runner."""

from __future__ import annotations

from dataclasses import dataclass

from isocompute.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Timing of a runner.

    Args:
        beat_s: seconds between heartbeats.
        lease_beats: another runner is given up when its counter stands still during so many
            successful heartbeats of this one.
        checkpoint_every_s: engines are asked for a checkpoint after that much uncommitted work, or
            up to 20 times as much where one costs more than `commit_share` of it.
        commit_share: of the time, for commits: a checkpoint sooner than the last commit's cost over
            this share after it waits for the next one; infinity: commit all.
        stop_grace_s: how long a stop waits for checkpoints before workers are killed.
        report_s: seconds between calls of `progress`.

    Raises:
        InputError: if a time is not > 0 or `lease_beats` is below 2.
    """

    beat_s: float = 2.0
    lease_beats: int = 15
    checkpoint_every_s: float = 30.0
    commit_share: float = 0.0025
    stop_grace_s: float = 60.0
    report_s: float = 1.0

    def __post_init__(self) -> None:
        times = (self.beat_s, self.checkpoint_every_s, self.stop_grace_s, self.report_s,
                 self.commit_share)  # fmt: skip
        if min(times) <= 0 or self.lease_beats < 2:
            raise InputError(
                "a runner's times and `commit_share` must be > 0 and `lease_beats` >= 2, but got "
                f"{self}; correct the settings."
            )
