"""What the report's tests draw: fits of planted sweeps with few draws, a plan, and the page.

Fits are made once per process. A test that changes a document gets a copy of its own.
"""

from __future__ import annotations

import copy
import functools
import html.parser
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.answers.fit import Fit, fit_sweep
from isocompute.domain import Curve
from isocompute.report import render_report
from isocompute.testing.planted import NOISE, WORLDS

N = (8, 16, 32, 64, 128, 256, 512)  # of the world "rising", at B_p = 16


@dataclass(frozen=True, kw_only=True)
class FixtureFit:
    """What the report reads of a `Fit`."""

    document: dict[str, Any]
    curves: Sequence[Curve]


@functools.cache
def planted_fit(world: str = "rising") -> Fit:
    """A fit of a planted sweep; nothing of it may be changed."""
    seeds, draws = (1, 20) if world == "joint_capped" else (2, 40)
    curves = WORLDS[world].sample(NOISE["middle"], seeds, np.random.default_rng(3))
    fit = fit_sweep(curves, draws=draws)
    assert fit.document["version"] == 2
    return fit


def make_fit(*, name: str = "run", metric: str = "avg@4", world: str = "rising") -> FixtureFit:
    """A planted fit whose document may be changed, with these names."""
    fit = planted_fit(world)
    document = copy.deepcopy(fit.document) | {"metric": metric}
    curves = [
        replace(c, run=f"{name}-n{c.rollouts_per_problem}-{i}", metric=metric)
        for i, c in enumerate(fit.curves)
    ]
    return FixtureFit(document=document, curves=curves)


def with_runs(fit: FixtureFit, seeds: int, points: int) -> FixtureFit:
    """The same document with other runs: so many a configuration, of so many evaluations."""
    rng = np.random.default_rng(7)
    curves = [
        Curve(
            problems_per_batch=16,
            rollouts_per_problem=n,
            run=f"n{n}-{seed}",
            seed=seed,
            metric="avg@4",
            rollouts_K=np.geomspace(16 * n * 5, 8.4e6, points),
            score_K=np.clip(np.linspace(0.4, 0.7, points) + rng.normal(0, 0.01, points), 0, 1),
        )
        for n in N
        for seed in range(seeds)
    ]
    return FixtureFit(document=fit.document, curves=curves)


def make_plan(budget: float = 4.0e6) -> dict[str, Any]:
    """A `plan --json` document, version 2."""
    return {
        "version": 2,
        "budget_rollouts": budget,
        "problems_per_batch": 16,
        "rollouts_per_problem": 256,
        "law": {"unit": "rollouts"},
        "steps": 976,
        "batch_size": 4096,
        "rollouts": 3997696,
        "rollouts_per_problem_law": 301.4,
        "rollouts_per_problem_interval": [200, 512],
        "confidence_set": [256, 512],
        "as_good": [256, 512],
        "expected_regret": 0.001,
        "predicted_score": 0.668,
        "predicted_score_interval": [0.655, 0.681],
        "gain": {"problems_per_batch": 16, "rollouts_per_problem": 16, "tested": True,
                 "score": 0.018, "interval": [0.006, 0.031], "steps": 15625, "cost": {}},
        "rules": {"largest_n": {"problems_per_batch": 16, "rollouts_per_problem": 512,
                                "score": 0.667, "lost": 0.0081}},
        "learning_rate": 2.83e-6,
        "learning_rate_from": "Qwen2.5-7B-Instruct",
        "passes_over_data": 1.3,
        "recipe": {"objective": "grpo", "kl_coef": 0.001, "entropy_coef": 0.001},
        "cost": {"tokens": 6.4e9, "gpu_hours": 310.0, "usd": 620.0, "source": {}},
        "extrapolation_log10": 0.0,
        "after_checks": [],
        "verdict": {"level": "caution", "reason": "Only B_p = 16 was tested at n = 256."},
        "trainer": {
            "verl": {"data.train_batch_size": 16, "actor_rollout_ref.rollout.n": 256},
            "trl": {"num_generations": 256},
        },
        "refusal": None,
        "run_next": [{"do": "test a second B_p", "command": "isocompute run study.yaml",
                      "settles": "bp_untested"}],
        "notices": [{"code": "bp_untested", "level": "caution",
                     "text": "Only B_p = 16 was tested at n = 256.",
                     "remedy": "Test a second B_p there, or drop --fix if there is one."}],
    }  # fmt: skip


def with_chances(plan: dict[str, Any], budgets: Sequence[float]) -> dict[str, Any]:
    """A plan that says how probable each n is to be best from the last budget compared to its own.

    At the first of the budgets n = 8 is best, at the last n = 256, and neither is sure.
    """
    share = np.linspace([0.9, 0.02, 0.02, 0.02, 0.02, 0.02, 0.0],
                        [0.0, 0.02, 0.02, 0.02, 0.06, 0.6, 0.28], len(budgets)).T  # fmt: skip
    regret = np.linspace(np.arange(7) / 100, [0.09, 0.05, 0.04, 0.03, 0.02, 0.0, 0.001],
                         len(budgets)).T  # fmt: skip
    score = np.linspace(np.full(7, 0.66), 0.68 - regret[:, -1], len(budgets)).T
    pairs = [[16, n] for n in N]
    found = {"x": [*budgets], "configurations": pairs, "best": share.tolist(),
             "regret": regret.tolist(), "score": score.tolist()}  # fmt: skip
    return plan | {"chances": found}


class Page(html.parser.HTMLParser):
    """What an HTML parser sees: tags, scripts, text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        found = [text for attrs, text in self.scripts if attrs.get("type") == "application/json"]
        assert len(found) == 1
        value: dict[str, Any] = json.loads(found[0])
        return value


def with_whole_bundle(test: Any) -> Any:
    """Marks a test that needs Plotly itself in the page."""
    test.whole_bundle = True
    return test


def page_of(path: Path, *args: Any, **kwargs: Any) -> Page:
    return Page(render_report(*args, path / "report.html", **kwargs).read_text("utf-8"))


@pytest.fixture(autouse=True)
def short_bundle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests look at what surrounds Plotly: they embed a line in its place."""
    if not getattr(request.function, "whole_bundle", False):
        monkeypatch.setattr("isocompute.report.html.plotly_script", lambda: "/* plotly.js v0 */")
