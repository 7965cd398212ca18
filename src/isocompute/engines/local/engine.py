"""The embedded engine: RL of a small transformer, on-policy unless asked, on one thread.

Shape legend: Q problems of one batch, P problems of a set, N distinct responses.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from isocompute.engines.base import Sink
from isocompute.engines.local.folders import load_model
from isocompute.engines.local.learner import Learner
from isocompute.engines.local.memory import keep_freed_memory
from isocompute.engines.local.model import Transformer
from isocompute.engines.local.options import Options, check_recipe
from isocompute.engines.local.policy import Policy, base_folder
from isocompute.engines.local.precision import Sampler
from isocompute.engines.local.sampling import sample
from isocompute.engines.local.steps import Run, stream
from isocompute.engines.local.together import Together
from isocompute.engines.streams import Use
from isocompute.errors import InputError
from isocompute.study.spec import RunSpec


class LocalEngine:
    """Trains a Llama-type model of a Hugging Face folder ; see `engines.base.Engine`."""

    name = "local"
    revision = 2  # of the streams of random numbers, and of what weight decay acts on

    def __init__(self) -> None:
        self._tokenized: set[tuple[str, int | None, str]] = set()  # by model, limit and set

    def check(self, spec: RunSpec) -> None:
        """Refuse what this engine cannot do, before any compute.

        Raises:
            InputError: names the knob, its value, and what is supported.
        """
        options = Options.of(spec)
        check_recipe(spec, options)
        folder, limit = base_folder(options.model), options.max_new_tokens
        for problems in (spec.train, *spec.validation.values()):
            key = (str(folder), limit, problems.sha256)
            if key not in self._tokenized:  # a study checks hundreds of runs on a few sets
                Policy(folder, limit).tokenize(problems)
                self._tokenized.add(key)
        if options.shapes == "fixed" and not isinstance(load_model(folder), Transformer):
            raise InputError(
                "engine_options.shapes: fixed needs a transformer, but got model "
                f"{options.model!r}; remove shapes, or name another model."
            )

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train from the start, or from a checkpoint's files, to the end of the allocation."""
        torch.set_num_threads(1)
        if Options.of(spec).shapes == "fixed":
            self._run_fixed(spec, resume, sink)
            return
        run = _Run(spec, sink)
        if resume is None:
            run.evaluate()
            run.save()
        else:
            run.load(resume)
        run.train()

    @staticmethod
    def _run_fixed(spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        alone = Together([spec], [resume], [sink])
        while alone.advance():
            pass
        if alone.members[0].error is not None:
            raise alone.members[0].error


class _Run(Run):
    """State of one run: position, sampler, learner."""

    def __init__(self, spec: RunSpec, sink: Sink) -> None:
        keep_freed_memory()
        options = Options.of(spec)
        folder = base_folder(options.model)
        super().__init__(spec, sink, Policy(folder, options.max_new_tokens, device=options.device))
        self.learner = Learner(
            self.policy.model, folder, self.recipe, dtype=options.dtype,
            sampler_differs=options.sampler_differs,
        )  # fmt: skip
        if options.sampler_differs:
            self.sampler = Sampler(self.policy.model, str(options.sampler_dtype), folder)
        else:
            self.sampler = Sampler(self.learner.model, "float32", folder)

    def train(self) -> None:
        while self.step < self.spec.allocation.steps:
            self.update()
            due = self.spec.is_evaluated(self.step)
            if due:
                self.evaluate()
            if due or self.sink.wants_checkpoint or self.step == self.spec.allocation.steps:
                self.save()

    def update(self) -> None:
        """Sample, reward, and the updates that the batch gives."""
        started = time.monotonic()
        recipe, seed, step = self.recipe, self.spec.seed, self.step + 1
        index_Q = self.next_problems()
        picked = torch.from_numpy(index_Q).to(self.train_set.token_PS.device)
        prompt_QS, length_Q = self.train_set.token_PS[picked], self.train_set.length_P[picked]
        samples = sample(
            self.sampler.refresh(), prompt_QS, length_Q,
            self.spec.allocation.rollouts_per_problem,
            max_new_tokens=self.policy.max_new_tokens, generator=stream(seed, Use.TRAINING, step),
            temperature=recipe.temperature, top_p=recipe.top_p,
        )  # fmt: skip
        reward_N = self.policy.rewards(samples, self.train_set, index_Q.tolist())
        health = self.learner.learn(
            prompt_QS, length_Q, samples, reward_N, step=step,
            learning_rate=self.spec.learning_rate,
            value_learning_rate=recipe.value_learning_rate_at(self.spec.gradient_batch_size),
            generator=stream(seed, Use.LEARNING, step),
        )  # fmt: skip
        self.updated(samples, reward_N, index_Q, health, started)

    def evaluate(self) -> None:
        """Draw k samples for each problem of each validation set."""
        model = self.sampler.refresh()
        for number, (name, data) in enumerate(self.validation.items()):
            started = time.monotonic()
            drawn = self.policy.count_successes(
                data, self.spec.evaluation_samples,
                stream(self.spec.seed, Use.EVALUATION, self.step, number),
                temperature=self.recipe.temperature, top_p=self.recipe.top_p, sampler=model,
            )  # fmt: skip
            self.evaluated(
                name, drawn.successes_P.cpu().numpy(), drawn.tokens, drawn.rollouts, started
            )

    def save(self) -> None:
        """Checkpoint: model and optimizer as safetensors, position as JSON."""
        with self.sink.checkpoint(self.step) as folder:
            self.learner.save(folder)
            self.save_position(folder)

    def load(self, folder: Path) -> None:
        """Continue from what `save` wrote."""
        self.load_position(folder)
        self.learner.load(folder)
