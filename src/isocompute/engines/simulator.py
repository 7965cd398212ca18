"""The simulator: softmax policies over a few answers, trained by GRPO, with a known truth.

Shape legend: P problems of a set, Q problems of a batch, A answers, F features.

Every problem is a softmax bandit. Its logits are

    base_PA + sqrt(1 - interference) * own_PA + sqrt(interference) * features_PF @ shared_FA

where `own` is a table (a problem learns only from itself) and `shared` couples problems through
their features: an update on one moves the others, for better where their right answers
agree, for worse where they do not. `interference` = 0 is the tabular bandit of arXiv 2603.12151,
section 5; 1 is all shared. Right answers are the `correct` best ones under a hidden linear rule
of the features, so what is learned carries over to problems that were never trained on.
Pass rates are exact sums of probabilities: the truth against which estimates are tested.

Source: arXiv 2603.12151, sections 2 (GRPO) and 5 (interference); departures: plain gradient
ascent instead of AdamW, one token per answer.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.engines.base import EvaluationRecord, Sink, StepRecord
from isocompute.engines.options import read_options, require_batch
from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import Recipe, check_idle_cap
from isocompute.study.spec import RunSpec

FloatArray = NDArray[np.float64]

_SUPPORTED = ("learning_rate", "base_batch_size", "learning_rate_scaling", "warmup_steps",
              "advantage_std", "temperature", "importance_cap")  # fmt: skip
# Of answers and of features: at twice it a set of 1,000 problems holds 1.6 GB, at half 0.4.
_LARGEST = 100_000


@dataclass(frozen=True, kw_only=True)
class World:
    """The hidden truth of a simulated study (`engine_options` of the study file).

    Args:
        answers: A, answers that a policy chooses from.
        correct: how many of them are right, per problem.
        features: F, directions that problems share.
        interference: share of the logits that comes from shared parameters, 0..1.
        knowledge: how strongly the base model leans to the rule (0: not at all).
        noise: spread of what the base model believes beside it.
        world_seed: of the rule and of the problems' features.

    Raises:
        InputError: on a value outside its range.
    """

    answers: int = 16
    correct: int = 2
    features: int = 16
    interference: float = 0.7
    knowledge: float = 0.5
    noise: float = 1.0
    world_seed: int = 0

    def __post_init__(self) -> None:
        rules = (
            ("answers", f"an integer from 2 to {_LARGEST:,}",
             _whole(self.answers, 2) and self.answers <= _LARGEST),
            ("correct", "an integer from 1 to answers - 1",
             _whole(self.correct, 1) and self.correct < self.answers),
            ("features", f"an integer from 1 to {_LARGEST:,}",
             _whole(self.features, 1) and self.features <= _LARGEST),
            ("interference", "between 0 and 1", 0 <= self.interference <= 1),
            ("knowledge", "finite", math.isfinite(self.knowledge)),
            ("noise", "finite and >= 0", 0 <= self.noise < math.inf),
            ("world_seed", "an integer >= 0", _whole(self.world_seed, 0)),
        )  # fmt: skip
        for name, rule, holds in rules:
            if not holds:
                raise InputError(
                    f"simulator option `{name}` must be {rule}, but got {getattr(self, name)!r}; "
                    "correct engine_options."
                )

    def problems(self, problems: ProblemSet) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """(features_PF, base_PA, correct_PA) of a set; each row depends on its id alone."""
        return _arrays(self, tuple(problem.id for problem in problems.problems))


@functools.lru_cache(maxsize=32)
def _arrays(
    world: World, ids: tuple[str, ...]
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    rule_FA = np.random.default_rng([world.world_seed, 0]).normal(
        size=(world.features, world.answers)
    )
    rows = [_draw(world, problem_id) for problem_id in ids]
    features_PF = np.stack([row[0] for row in rows])
    noise_PA = np.stack([row[1] for row in rows])
    truth_PA = features_PF @ rule_FA / math.sqrt(world.features)
    order_PA = np.argsort(np.argsort(-truth_PA, axis=1), axis=1)
    base_PA = world.knowledge * truth_PA + world.noise * noise_PA
    arrays = features_PF / math.sqrt(world.features), base_PA, order_PA < world.correct
    for array in arrays:
        array.setflags(write=False)  # they are shared between runs
    return arrays


def _draw(world: World, problem_id: str) -> tuple[FloatArray, FloatArray]:
    digest = hashlib.sha256(problem_id.encode("utf-8", "surrogatepass")).digest()
    rng = np.random.default_rng([world.world_seed, int.from_bytes(digest[:8], "little")])
    return rng.normal(size=world.features), rng.normal(size=world.answers)


def simulated_problems(name: str, size: int) -> ProblemSet:
    """A set of `size` problems for the simulator; sets of other names share no problem.

    Raises:
        InputError: if size is below 1.
    """
    if not _whole(size, 1):
        raise InputError(f"`size` must be an integer >= 1, but got {size!r}; correct the set.")
    return ProblemSet(
        name=name,
        problems=[
            Problem(id=f"{name}-{i}", prompt=f"simulated {i}", answer="") for i in range(size)
        ],
    )


class Policy:
    """Parameters of one run: `own_PA` for the training problems, `shared_FA` for all."""

    def __init__(self, world: World, train: ProblemSet) -> None:
        self.world, self.train = world, train
        self.features_PF, self.base_PA, self.correct_PA = world.problems(train)
        self.own_PA = np.zeros_like(self.base_PA)
        self.shared_FA = np.zeros((world.features, world.answers))
        self._index = {problem.id: i for i, problem in enumerate(train.problems)}

    def probabilities(self, index_Q: NDArray[np.intp], temperature: float) -> FloatArray:
        """pi_QA of training problems."""
        own, shared = self._weights()
        logits_QA = self.base_PA[index_Q] + own * self.own_PA[index_Q]
        logits_QA += shared * self.features_PF[index_Q] @ self.shared_FA
        return _softmax(logits_QA / temperature)

    def pass_rates(self, problems: ProblemSet, temperature: float = 1.0) -> FloatArray:
        """Exact probability of a right answer, per problem of any set."""
        own, shared = self._weights()
        features_PF, base_PA, correct_PA = self.world.problems(problems)
        logits_PA = base_PA.copy()
        trained = [self._index.get(problem.id, -1) for problem in problems.problems]
        known = np.array([i >= 0 for i in trained])
        logits_PA[known] += own * self.own_PA[[i for i in trained if i >= 0]]
        pi_PA = _softmax((logits_PA + shared * features_PF @ self.shared_FA) / temperature)
        return np.asarray((pi_PA * correct_PA).sum(axis=1), dtype=np.float64)

    def update(
        self, index_Q: NDArray[np.intp], direction_QA: FloatArray, learning_rate: float
    ) -> float:
        """One step of gradient ascent; returns the norm of the gradient."""
        own, shared = self._weights()
        own_QA = own * direction_QA
        shared_FA = shared * self.features_PF[index_Q].T @ direction_QA
        np.add.at(self.own_PA, index_Q, learning_rate * own_QA)
        self.shared_FA += learning_rate * shared_FA
        return float(np.sqrt((own_QA**2).sum() + (shared_FA**2).sum()))

    def save(self, folder: Path) -> None:
        """Write the parameters as one array, model.npy."""
        np.save(folder / "model.npy", np.concatenate([self.own_PA, self.shared_FA]))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        both = np.load(folder / "model.npy", allow_pickle=False)
        size = len(self.own_PA)
        self.own_PA[:], self.shared_FA[:] = both[:size], both[size:]

    def _weights(self) -> tuple[float, float]:
        return math.sqrt(1 - self.world.interference), math.sqrt(self.world.interference)


class SimulatorEngine:
    """Implements `engines.base.Engine`; numpy only, thousands of updates per second."""

    name = "simulator"

    def check(self, spec: RunSpec) -> None:
        """Refuse what the simulator has no meaning for.

        Raises:
            InputError: names the knob, its value, and what is supported.
        """
        world_of(spec.engine_options)
        default = Recipe()
        for field in fields(Recipe):
            value = getattr(spec.recipe, field.name)
            if field.name not in _SUPPORTED and value != getattr(default, field.name):
                raise InputError(
                    f"the simulator supports only {', '.join(_SUPPORTED)} of a recipe, but got "
                    f"{field.name}={value!r}; remove it, or use another engine."
                )
        check_idle_cap(spec.recipe, self.name)
        require_batch(spec)

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train from the start or from a checkpoint to `spec.allocation.steps`."""
        self.check(spec)
        policy = Policy(world_of(spec.engine_options), spec.train)
        step = 0
        if resume is not None:
            policy.load(resume)
            step = int(json.loads((resume / "state.json").read_text())["step"])
        else:
            _evaluate(spec, policy, 0, sink)
            _save(policy, 0, sink)
        while step < spec.allocation.steps:
            step += 1
            _train(spec, policy, step, sink)
            due = spec.is_evaluated(step)
            if due:
                _evaluate(spec, policy, step, sink)
            if due or step == spec.allocation.steps or sink.wants_checkpoint:
                _save(policy, step, sink)


def world_of(options: Mapping[str, Any]) -> World:
    """The world that `engine_options` describe.

    Raises:
        InputError: for an unknown option or a value outside its range.
    """
    return read_options(World, "simulator", options)


def grpo_direction(
    counts_QA: NDArray[np.int64], correct_QA: NDArray[np.bool_], pi_QA: FloatArray, std: str
) -> FloatArray:
    """Gradient of the GRPO objective in the logits, averaged over all rollouts of the batch.

    sum over answers of counts * advantage * (one-hot - pi) / (Q * n), where the advantage of a
    reward is (r - mean) / (std + 1e-6), zero where all rewards of the problem agree.

    Source: arXiv 2603.12151, section 2.
    """
    n = int(counts_QA[0].sum())
    mean_Q = (counts_QA * correct_QA).sum(axis=1) / n
    variance_Q = mean_Q * (1 - mean_Q)
    if std == "sample":
        variance_Q = variance_Q * n / max(n - 1, 1)
    scale_Q = np.ones_like(mean_Q) if std == "none" else np.sqrt(variance_Q) + 1e-6
    advantage_QA = (correct_QA - mean_Q[:, None]) / scale_Q[:, None]
    weight_QA = counts_QA * advantage_QA * (variance_Q > 0)[:, None]
    return np.asarray(
        (weight_QA - weight_QA.sum(axis=1, keepdims=True) * pi_QA) / counts_QA.sum(),
        dtype=np.float64,
    )


def _train(spec: RunSpec, policy: Policy, step: int, sink: Sink) -> None:
    began = time.monotonic()
    n, recipe = spec.allocation.rollouts_per_problem, spec.recipe
    # One generator per step, so that a resumed run needs no random state from a checkpoint.
    rng = np.random.default_rng([spec.seed, step, 0])
    index_Q = rng.permutation(len(spec.train))[: spec.allocation.problems_per_batch]
    pi_QA = policy.probabilities(index_Q, recipe.temperature)
    counts_QA = rng.multinomial(n, pi_QA)
    correct_QA = policy.correct_PA[index_Q]
    direction_QA = grpo_direction(counts_QA, correct_QA, pi_QA, recipe.advantage_std)
    warm = min(1.0, step / recipe.warmup_steps) if recipe.warmup_steps else 1.0
    norm = policy.update(index_Q, direction_QA, warm * spec.learning_rate)
    rollouts = step * spec.allocation.batch_size
    entropy = float(-(pi_QA * np.log(np.maximum(pi_QA, 1e-300))).sum(axis=1).mean())
    sink.step(StepRecord(
        step=step, rollouts=rollouts, tokens=rollouts, problem_Q=index_Q, samples=n,
        successes_Q=(counts_QA * correct_QA).sum(axis=1),
        health={"entropy": entropy, "grad_norm": norm}, wall_s=time.monotonic() - began,
    ))  # fmt: skip


def _evaluate(spec: RunSpec, policy: Policy, step: int, sink: Sink) -> None:
    k, rollouts = spec.evaluation_samples, step * spec.allocation.batch_size
    for number, (name, problems) in enumerate(sorted(spec.validation.items())):
        began = time.monotonic()
        rng = np.random.default_rng([spec.seed, step, 1 + number])
        rates_P = policy.pass_rates(problems, spec.recipe.temperature)
        sink.evaluation(EvaluationRecord(
            step=step, rollouts=rollouts, tokens=rollouts, problem_set=name, samples=k,
            successes_P=rng.binomial(k, np.clip(rates_P, 0.0, 1.0)),
            sampled_tokens=k * len(problems), wall_s=time.monotonic() - began,
        ))  # fmt: skip


def _save(policy: Policy, step: int, sink: Sink) -> None:
    with sink.checkpoint(step) as folder:
        policy.save(folder)
        (folder / "state.json").write_text(json.dumps({"step": step}))


def _softmax(logits: FloatArray) -> FloatArray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float64)


def _whole(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
