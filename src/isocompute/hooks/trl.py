"""A TRL callback that records a run: `trainer.add_callback(RecorderCallback("runs/bp32_n64_s0"))`.

Everything is read from GRPOConfig; scores are the rewards that TRL logs, so they must be 0 or 1 per
response, or a `score_range` must be given. Read and run with TRL 1.16.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from isocompute.recorder import Recorder

__all__ = ["RecorderCallback"]

_EVALUATION = re.compile(r"eval_(?:(?P<set>.+)_)?reward")


class RecorderCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """Records every training and evaluation reward that TRL logs, on the first process alone.

    Args:
        path: of the run's file, see `Recorder`.
        score_range: what a reward can be.
        facts: what else makes it another run; the learning rate and the model's name are known.

    A step is a batch of rollouts, as TRL draws one: generation_batch_size for every
    steps_per_generation * num_iterations micro-steps, or what one optimizer step takes of several.
    Tokens are completions' alone; where rows of
    the log are missing (`logging_steps` above 1 and a stop between two rows) they are left out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        score_range: tuple[float, float] = (0.0, 1.0),
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self._path, self._range, self._facts = path, score_range, dict(facts or {})
        self.recorder: Recorder | None = None
        self._drawn_per_batch = self._updates_per_batch = 1
        self._logged_at = 0
        self._tokens: int | None = None

    def on_train_begin(self, args: Any, state: Any, _control: Any, **given: Any) -> None:
        """The configuration is known, and where a resumed run goes on."""
        if not state.is_world_process_zero:
            return
        n = int(args.num_generations)
        micro_steps = int(args.steps_per_generation) * int(args.num_iterations)
        accumulation = int(args.gradient_accumulation_steps)
        self._drawn_per_batch = int(args.generation_batch_size) * max(
            1, accumulation // micro_steps
        )
        self._updates_per_batch = max(1, micro_steps // accumulation)
        name = getattr(getattr(given.get("model"), "config", None), "_name_or_path", None)
        self.recorder = Recorder(
            self._path, problems_per_batch=self._drawn_per_batch // n, rollouts_per_problem=n,
            seed=int(args.seed), samples=int(args.num_generations_eval or n),
            score_range=self._range,
            facts={"learning_rate": args.learning_rate, **({"model": name} if name else {}),
                   **self._facts},
        )  # fmt: skip
        self._logged_at = self._batches(state)
        self._tokens = self.recorder.tokens_before(self._logged_at + 1)

    def _batches(self, state: Any) -> int:
        return -(-int(state.global_step) // self._updates_per_batch)

    def on_log(
        self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """One row of TRL's log: of training, or of an evaluation."""
        if self.recorder is None or logs is None or not state.is_world_process_zero:
            return
        step = self._batches(state)
        drawn = step * self._drawn_per_batch
        if "reward" in logs:
            length, batches = logs.get("completions/mean_length"), step - self._logged_at
            if self._tokens is not None and length is not None:
                self._tokens += round(float(length) * batches * self._drawn_per_batch)
            self._logged_at = step
            self.recorder.log(
                step, score=logs["reward"], tokens=self._tokens, rollouts=drawn, split="train"
            )
        for key, value in logs.items():
            if match := _EVALUATION.fullmatch(key):
                self.recorder.log(
                    step, score=value, rollouts=drawn, problem_set=match["set"] or ""
                )
