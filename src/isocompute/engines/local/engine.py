"""The embedded engine: strictly on-policy RL of a tiny transformer, on one thread.

Shape legend: Q problems of one batch, P problems of a set, N distinct responses.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isocompute.allocation import evaluation_index
from isocompute.engines.base import EvaluationRecord, Sink, StepRecord
from isocompute.engines.local.folders import load_model
from isocompute.engines.local.gradient import accumulate
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.policy import (
    Policy,
    TokenizedProblems,
    base_folder,
    successes_of,
)
from isocompute.engines.local.sampling import sample
from isocompute.errors import InputError, RunError
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

DEFAULT_MODEL = "bits"
# Knobs that this engine does not act on yet: any other value than the default is refused.
UNSUPPORTED = (
    "clip_low", "clip_high", "updates_per_batch", "baseline_rollouts", "importance_cap",
)  # fmt: skip
_TRAINING, _EVALUATION, _ORDER = 0, 1, 2  # independent streams of random numbers


@dataclass(frozen=True, kw_only=True)
class Options:
    """`engine_options` of the embedded engine.

    Args:
        model: a Hugging Face folder, or the name of a shipped base model.
        max_new_tokens: length limit of a response; None: the model's generation_config.json.
    """

    model: str = DEFAULT_MODEL
    max_new_tokens: int | None = None

    @classmethod
    def of(cls, spec: RunSpec) -> Options:
        """Read the options of a run.

        Raises:
            InputError: for an unknown option or a value of the wrong kind.
        """
        known = [f.name for f in fields(cls)]
        for name in spec.engine_options:
            if name not in known:
                raise InputError(
                    f"engine_options of the engine 'local' must be among {', '.join(known)}, but "
                    f"got {name!r}; remove it."
                )
        options = cls(**spec.engine_options)
        limit = options.max_new_tokens
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise InputError(
                f"engine_options.max_new_tokens must be an integer >= 1, but got {limit!r}; "
                "give a whole number."
            )
        return options


def stream(*key: int) -> torch.Generator:
    """A generator of random numbers that depends on nothing but its key.

    Every step draws from its own stream, so that a resumed run needs no saved state.
    """
    word = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word))


def batch_problems(step: int, size: int, batch: int, seed: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Problems of a step (1-based): passes over the set in random order, batches unique.

    What a pass leaves over when `size` is no multiple of `batch` is dropped.
    """
    passes, place = divmod(step - 1, size // batch)
    order = np.random.default_rng([seed, _ORDER, passes]).permutation(size)
    return order[place * batch : (place + 1) * batch]


class LocalEngine:
    """Trains a Llama-type model of a Hugging Face folder by GRPO; see `engines.base.Engine`."""

    name = "local"

    def check(self, spec: RunSpec) -> None:
        """Refuse what this engine cannot do, before any compute.

        Raises:
            InputError: names the knob, its value, and what is supported.
        """
        options = Options.of(spec)
        if spec.recipe.objective != "grpo":
            raise InputError(
                f"recipe `objective` must be grpo for the engine 'local', but got "
                f"{spec.recipe.objective!r}; choose grpo."
            )
        default = Recipe()
        for name in UNSUPPORTED:
            value = getattr(spec.recipe, name)
            if value != getattr(default, name):
                raise InputError(
                    f"recipe `{name}` is not supported by the engine 'local' with the objective "
                    f"grpo, one update per batch, but got {value!r}; remove it."
                )
        allocation = spec.allocation
        if allocation.rollouts_per_problem < 2:
            raise InputError(
                "`rollouts_per_problem >= 2` must hold for a group baseline, but got "
                f"{allocation.rollouts_per_problem}; raise it."
            )
        if allocation.problems_per_batch > len(spec.train):
            raise InputError(
                "`problems_per_batch` must not exceed the training problems, but got "
                f"{allocation.problems_per_batch} for {len(spec.train)}; lower it or add problems."
            )
        policy = Policy(base_folder(options.model), options.max_new_tokens)
        for problems in (spec.train, *spec.validation.values()):
            policy.tokenize(problems)

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train from the start, or from a checkpoint's files, to the end of the allocation."""
        torch.set_num_threads(1)
        run = _Run(spec, sink)
        if resume is None:
            run.evaluate()
            run.save()
        else:
            run.load(resume)
        run.train()


class _Run:
    """State of one run: position, model, optimizer."""

    def __init__(self, spec: RunSpec, sink: Sink) -> None:
        self.spec, self.sink, self.recipe = spec, sink, spec.recipe
        options = Options.of(spec)
        folder = base_folder(options.model)
        self.policy = Policy(folder, options.max_new_tokens)
        self.reference: PolicyModel | None = None
        if self.recipe.kl_coef > 0:
            self.reference = load_model(folder).requires_grad_(False)
        self.optimizer = FlatAdamW(
            self.policy.model, weight_decay=self.recipe.weight_decay,
            max_grad_norm=self.recipe.max_grad_norm,
        )  # fmt: skip
        self.train_set = self.policy.tokenize(spec.train)
        self.validation: dict[str, TokenizedProblems] = {
            name: self.policy.tokenize(problems)
            for name, problems in sorted(spec.validation.items())
        }
        self.step = self.rollouts = self.tokens = 0

    def _grid_index(self, rollouts: int) -> int:
        return evaluation_index(
            rollouts, per_octave=self.spec.evaluations_per_octave,
            first=self.spec.first_evaluation,
        )  # fmt: skip

    def train(self) -> None:
        batch = self.spec.allocation.batch_size
        while self.step < self.spec.allocation.steps:
            self.update()
            due = self._grid_index(self.rollouts) > self._grid_index(self.rollouts - batch)
            if due:
                self.evaluate()
            if due or self.sink.wants_checkpoint or self.step == self.spec.allocation.steps:
                self.save()

    def update(self) -> None:
        """Sample, reward, one gradient step."""
        started = time.monotonic()
        allocation, recipe, seed = self.spec.allocation, self.recipe, self.spec.seed
        n = allocation.rollouts_per_problem
        step = self.step + 1
        index_Q = batch_problems(
            step, len(self.train_set), allocation.problems_per_batch, seed
        )
        picked = torch.from_numpy(index_Q)
        prompt_QS, length_Q = self.train_set.token_PS[picked], self.train_set.length_P[picked]
        samples = sample(
            self.policy.model, prompt_QS, length_Q, n,
            max_new_tokens=self.policy.max_new_tokens, generator=stream(seed, _TRAINING, step),
            temperature=recipe.temperature, top_p=recipe.top_p,
        )  # fmt: skip
        reward_N = self.policy.rewards(samples, self.train_set, index_Q.tolist())
        report = accumulate(
            self.policy.model, self.reference, prompt_QS, length_Q, samples, reward_N, recipe
        )
        rate = warmed_up(self.spec.learning_rate, step, recipe.warmup_steps)
        norm = self.optimizer.step(rate)
        if not np.isfinite(norm):
            raise RunError(
                f"gradients must be finite, but their norm is {norm} at step {step}; lower the "
                "learning rate."
            )
        self.step = step
        self.rollouts += allocation.batch_size
        self.tokens += samples.tokens
        successes_Q = successes_of(samples, reward_N)
        health = {
            "reward": float(successes_Q.sum()) / allocation.batch_size,
            "entropy": samples.entropy,
            "grad_norm": norm,
            "learning_rate": rate,
            "length_tokens": samples.tokens / allocation.batch_size,
            "zero_variance_share": 1 - float(report.varies_P.float().mean()),
            "loss": report.loss,
        }
        if report.kl is not None:
            health["kl"] = report.kl
        if self.policy.model.sizes.eos_token_id is not None:
            cut = int((samples.count_N * samples.clipped_N).sum())
            health["clipped_share"] = cut / allocation.batch_size
        self.sink.step(
            StepRecord(
                step=step, rollouts=self.rollouts, tokens=self.tokens, problem_Q=index_Q,
                successes_Q=successes_Q.numpy(), samples=n, health=health,
                wall_s=time.monotonic() - started,
            )
        )

    def evaluate(self) -> None:
        """Draw k samples for each problem of each validation set."""
        for number, (name, data) in enumerate(self.validation.items()):
            started = time.monotonic()
            successes_P, tokens = self.policy.count_successes(
                data, self.spec.evaluation_samples,
                stream(self.spec.seed, _EVALUATION, number, self.step),
                temperature=self.recipe.temperature, top_p=self.recipe.top_p,
            )  # fmt: skip
            self.sink.evaluation(
                EvaluationRecord(
                    step=self.step, rollouts=self.rollouts, tokens=self.tokens, problem_set=name,
                    samples=self.spec.evaluation_samples, successes_P=successes_P.numpy(),
                    sampled_tokens=tokens, wall_s=time.monotonic() - started,
                )
            )

    def save(self) -> None:
        """Checkpoint: model and optimizer as safetensors, position as JSON."""
        with self.sink.checkpoint(self.step) as folder:
            self.optimizer.save(folder / "training.safetensors")
            position = {"step": self.step, "rollouts": self.rollouts, "tokens": self.tokens}
            (folder / "position.json").write_text(json.dumps(position), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Continue from what `save` wrote."""
        position = json.loads((folder / "position.json").read_text(encoding="utf-8"))
        self.step, self.rollouts, self.tokens = (
            int(position[name]) for name in ("step", "rollouts", "tokens")
        )
        self.optimizer.load(folder / "training.safetensors")
