"""A planted law with the attributes of `laws.Fit`, so that a plan's arithmetic has one truth."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from isocompute.domain import Curve


@dataclass(frozen=True, kw_only=True)
class Reading:
    rollouts_per_problem: float
    interval: tuple[float, float] | None = (128.0, 512.0)
    confidence_set: tuple[int, ...] = (128, 256)
    expected_regret: float | None = 0.002


@dataclass(frozen=True, kw_only=True)
class PlantedFit:
    """n*(C) = C / 16384 up to the plateau; score of n at C: 0.7 - 0.02 |log2(n / n*(C))|."""

    problems_per_batch: tuple[int, ...] = (32,)
    n_tested: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    support: tuple[float, float] | None = (200_000.0, 2_000_000.0)
    plateau: float | None = 512.0
    stable: int = 32
    tokens_per_rollout: float | None = None
    setting: tuple[str, int | None] = ("fixed_problems_per_batch", 32)
    skill: float | None = None
    form: str | None = "sigmoid_log10"
    first: float = 20_000.0
    warnings: tuple[dict[str, str], ...] = ()
    confidence: Reading = field(default_factory=lambda: Reading(rollouts_per_problem=1.0))

    def star(self, rollouts: float) -> float:
        value = rollouts / 16384
        return value if self.plateau is None else min(value, self.plateau)

    @property
    def document(self) -> dict[str, Any]:
        return {
            "setting": {"kind": self.setting[0], "value": self.setting[1]},
            "metric": "avg@4",
            "unit": "rollouts",
            "level": 0.95,
            "law": {"form": self.form, "plateau": self.plateau, "at": [], "L": 6.0},
            "backtest": {"skill": self.skill},
            "warnings": list(self.warnings),
        }

    @property
    def curves(self) -> list[Curve]:
        x = np.array([0.0, self.first, 2_000_000.0])
        tokens = None if self.tokens_per_rollout is None else x * self.tokens_per_rollout
        return [
            Curve(
                problems_per_batch=b_p,
                rollouts_per_problem=n,
                run=f"{b_p}-{n}",
                rollouts_K=x,
                score_K=np.array([0.1, 0.2, 0.3]),
                tokens_K=tokens,
            )
            for b_p in self.problems_per_batch
            for n in self.n_tested
        ]

    def at(self, rollouts: float) -> Reading:
        return replace(self.confidence, rollouts_per_problem=self.star(rollouts))

    def score_at(
        self,
        problems_per_batch: int,
        rollouts_per_problem: int,
        rollouts: float,
        chosen_from: Collection[tuple[int, int]] = (),
    ) -> tuple[float, float, float] | None:
        if problems_per_batch not in self.problems_per_batch:
            return None
        if rollouts_per_problem not in self.n_tested:
            return None
        score = 0.7 - 0.02 * abs(math.log2(rollouts_per_problem / self.star(rollouts)))
        return score, score - 0.01, score + 0.01

    def stable_problems_per_batch(
        self, rollouts_per_problem: int
    ) -> tuple[int, list[dict[str, str]]]:
        if len(self.problems_per_batch) == 1:
            return self.stable, [{"code": "bp_untested", "message": "only one B_p was tested"}]
        return self.stable, []
