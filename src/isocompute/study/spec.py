"""One training run: everything that it depends on, and the hash that is its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from isocompute.allocation import Allocation, evaluation_index
from isocompute.problems import ProblemSet
from isocompute.recipe import Recipe
from isocompute.study.evaluated import on_grid

# Options of an engine that say how what a trainer left is read, not how it trains: they are no part
# of a run, and one whose log could not be read is read again under others.
READING = ("map",)


def run_words(spec: Mapping[str, Any]) -> str:
    """What tells a run of a study from the others, in words of its file.

    >>> arm = {"recipe": "kl"}
    >>> run_words({"problems_per_batch": 8, "rollouts_per_problem": 4, "seed": 0, "arm": arm})
    'problems_per_batch=8, rollouts_per_problem=4, seed=0, recipe=kl'
    """
    of = {key: spec[key] for key in ("problems_per_batch", "rollouts_per_problem", "seed")}
    return ", ".join(f"{key}={value}" for key, value in {**of, **spec.get("arm", {})}.items())


def gpus_asked(engine: str, options: Mapping[str, Any]) -> int | None:
    """GPUs that a study file asks for; TRL takes them unless it is told to use the CPU."""
    if engine == "verl":
        return int(options.get("nodes", 1)) * int(options.get("gpus_per_node", 8))
    if engine == "command":
        return options.get("gpus")
    device = str(options.get("device", "auto" if engine == "trl" else "cpu"))
    return int(options.get("processes", 1)) if device != "cpu" else None


def on_cpu(engine: str, options: Mapping[str, Any]) -> bool:
    """Whether it is known to train on processors alone."""
    return engine in ("local", "trl") and gpus_asked(engine, options) is None


def shares_gpus(engine: str, options: Mapping[str, Any]) -> bool:
    """Whether runs at a time train on the same GPUs, those of the machine of their runner."""
    return engine in ("local", "trl") and gpus_asked(engine, options) is not None


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that one training run depends on.

    Args:
        engine: name of the engine.
        engine_options: the engine's own settings (JSON values), for example {"model": FOLDER}.
        allocation: (B_p, n, M); M is the budget and is not part of the run's identity.
        recipe: the training recipe.
        train: training problems.
        validation: validation sets by name, at least one.
        seed: of everything random in the run.
        evaluation_samples: k samples per validation problem.
        evaluations_per_octave, first_evaluation: the common grid (`allocation.evaluation_index`).
        end: last step of the run, where `allocation` is a slice of it; None: that of `allocation`.
            Not part of the identity, as M is not.
        arm: the study file's names of this run's recipe and problems, where it has several; not
            part of its identity.
    """

    engine: str
    allocation: Allocation
    recipe: Recipe
    train: ProblemSet
    validation: Mapping[str, ProblemSet]
    seed: int
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation_samples: int = 4
    evaluations_per_octave: int = 3
    first_evaluation: int = 1024
    end: int | None = None
    arm: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int | None:
        """GPUs that it trains on, where its engine is told how many."""
        return gpus_asked(self.engine, self.engine_options)

    @property
    def learning_rate(self) -> float:
        """After warm-up, scaled to the rollouts of a batch that enter the gradient."""
        return self.recipe.learning_rate_at(self.gradient_batch_size)

    @property
    def gradient_batch_size(self) -> int:
        """B_p times n, or times n_train where only a subset enters the gradient."""
        n = self.recipe.gradient_rollouts or self.allocation.rollouts_per_problem
        return self.allocation.problems_per_batch * n

    def to_dict(self) -> dict[str, Any]:
        """JSON values; problem sets appear as name, size and hash."""

        def reference(problems: ProblemSet) -> dict[str, Any]:
            return {"name": problems.name, "size": len(problems), "sha256": problems.sha256}

        return {
            "engine": self.engine,
            "engine_options": dict(self.engine_options),
            "problems_per_batch": self.allocation.problems_per_batch,
            "rollouts_per_problem": self.allocation.rollouts_per_problem,
            "steps": self.allocation.steps,
            "recipe": self.recipe.to_dict(),
            "train": reference(self.train),
            "validation": {name: reference(s) for name, s in sorted(self.validation.items())},
            "seed": self.seed,
            "evaluation_samples": self.evaluation_samples,
            "evaluations_per_octave": self.evaluations_per_octave,
            "first_evaluation": self.first_evaluation,
            **({"arm": dict(self.arm)} if self.arm else {}),
        }

    @property
    def evaluations(self) -> int:
        """How often a validation set is evaluated over the whole budget, step 0 included."""
        a = self.allocation
        return on_grid(a.batch_size, a.steps, self.last_step, **self._grid)

    def is_evaluated(self, step: int) -> bool:
        """Whether every validation set is evaluated after a step: on the grid, and at the end.

        What is trained beyond the last evaluation is paid for and tells nothing.
        """
        return step == 0 or self._on_grid(step) or step == self.last_step

    def _on_grid(self, step: int) -> bool:
        now, before = (evaluation_index(at * self.allocation.batch_size, **self._grid)
                       for at in (step, step - 1))  # fmt: skip
        return now > before

    @property
    def last_step(self) -> int:
        """At which the run ends, also of a slice of it."""
        return self.allocation.steps if self.end is None else self.end

    @property
    def evaluation_rollouts(self) -> int:
        """Rollouts that one evaluation of all validation sets draws."""
        return self.evaluation_samples * sum(len(s) for s in self.validation.values())

    @property
    def _grid(self) -> dict[str, int]:
        return {"per_octave": self.evaluations_per_octave, "first": self.first_evaluation}

    @cached_property
    def hash(self) -> str:
        """Identity of the run: SHA-256 (first 16 hex digits) of all but budget and names.

        A study that is extended asks for more steps of the same run, which continues.
        """
        spec = self.to_dict()
        del spec["steps"]
        spec.pop("arm", None)
        for word in READING:
            spec["engine_options"].pop(word, None)
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
