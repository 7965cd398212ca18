"""verl's tracking with one more backend: `trainer.logger=[console,isocompute]`.

    VERL_USE_EXTERNAL_MODULES=isocompute.hooks.verl ISOCOMPUTE_RUNS=runs \
        python3 -m verl.trainer.main_ppo ... 'trainer.logger=[console,isocompute]'

The file is `ISOCOMPUTE_RUNS/<trainer.experiment_name>.jsonl` (default: `runs`); B_p, n and the seed
are read from verl's configuration. Read and run with verl 0.9.1.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.recorder import Recorder

__all__ = ["RecorderBackend", "install"]

BACKEND = "isocompute"
_MEAN = re.compile(r"val-core/(?P<set>.+)/(?P<variable>acc|reward|score)/mean@(?P<k>[0-9]+)")


class RecorderBackend:
    """What verl's `Tracking` calls for every step.

    Args:
        name: of the run.
        config: verl's, as plain mappings.
    """

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        data, actor = config["data"], config["actor_rollout_ref"]
        self.recorder = Recorder(
            Path(os.environ.get("ISOCOMPUTE_RUNS", "runs")) / name,
            problems_per_batch=data["train_batch_size"],
            rollouts_per_problem=actor["rollout"]["n"], seed=data.get("seed"),
            facts={"learning_rate": actor["actor"]["optim"]["lr"],
                   "model": actor["model"]["path"]},
        )  # fmt: skip
        groups = (config.get("algorithm") or {}).get("filter_groups") or {}
        self._refills = bool(groups.get("enable"))
        if self._refills:
            print("isocompute: algorithm.filter_groups refills batches: more rollouts are drawn "
                  "than the B_p * n * step that is recorded.", file=sys.stderr)  # fmt: skip
        self._counted: tuple[int, int] | None = None  # step, tokens by then

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """One row: of training, of a validation, or of both."""
        for key, value in data.items():
            if match := _MEAN.fullmatch(key):
                self.recorder.log(
                    step, score=value, samples=int(match["k"]), problem_set=match["set"]
                )
        if "response_length/mean" in data:
            self.recorder.log(
                step, score=data.get("critic/score/mean"), split="train",
                tokens=self._count(step, float(data["response_length/mean"])),
            )  # fmt: skip

    def _count(self, step: int, length: float) -> int | None:
        """Tokens generated so far; None from the first row on that is missing."""
        if self._refills:
            return None
        if self._counted is None or self._counted[0] != step - 1:
            before = self.recorder.tokens_before(step)
        else:
            before = self._counted[1]
        if before is None:
            return None
        self._counted = step, before + round(length * self.recorder.batch)
        return self._counted[1]


def install() -> None:
    """Teach verl's `Tracking` the word `isocompute`."""
    from verl.utils.tracking import Tracking

    if BACKEND in Tracking.supported_backend:
        return
    Tracking.supported_backend.append(BACKEND)
    begin = Tracking.__init__

    def with_recorder(
        self: Any, project_name: str, experiment_name: str,
        default_backend: str | list[str] = "console", config: Any = None,
    ) -> None:
        begin(self, project_name, experiment_name, default_backend, config)
        asked = [default_backend] if isinstance(default_backend, str) else list(default_backend)
        if BACKEND in asked:
            self.logger[BACKEND] = RecorderBackend(experiment_name, config)

    Tracking.__init__ = with_recorder


if os.environ.get("VERL_USE_EXTERNAL_MODULES"):  # loaded by verl itself
    install()
