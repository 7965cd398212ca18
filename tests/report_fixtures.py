"""A `Fit`-like object for the report's tests, made without `laws`: curves plus a document.

The report must work from the contract alone, so its tests do not depend on the fitter. Curves
are drawn from sigmoids whose ceilings are the published best rewards of the Easy set (B_p = 32);
the law's numbers are the published ones. Source: arXiv 2603.12151, project page.
"""

from __future__ import annotations

import html.parser
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.report import render_report

FloatArray = NDArray[np.float64]

CEILING = {8: 0.596, 16: 0.607, 32: 0.624, 64: 0.629, 128: 0.645, 256: 0.668, 512: 0.695}
LAW = {"L": 6.09, "k": 4.75, "x0": 5.84, "b": 2.73}


@dataclass(frozen=True, kw_only=True)
class FixtureFit:
    """What the report reads of a `Fit`."""

    document: dict[str, Any]
    curves: list[Curve]
    records: dict[tuple[int, int], tuple[FloatArray, FloatArray]]
    support: tuple[float, float] = (2.5e5, 4.0e6)
    warnings: list[dict[str, str]] = field(default_factory=list)


def law_value(x: float) -> float:
    """n*(C) of the published law of Easy, B_p = 32."""
    log2_n = LAW["L"] / (1 + math.exp(-LAW["k"] * (math.log10(x) - LAW["x0"]))) + LAW["b"]
    return float(2**log2_n)


def score(n: int, x: FloatArray) -> FloatArray:
    """A sigmoid in log10 rollouts: larger n starts later and ends higher."""
    midpoint = 4.2 + 0.17 * math.log2(n / 8)
    value = 0.45 + (CEILING[n] - 0.45) / (1 + np.exp(-3.2 * (np.log10(x) - midpoint)))
    return np.asarray(value, dtype=np.float64)


def make_fit(
    *,
    seeds: int = 2,
    points: int = 60,
    name: str = "run",
    metric: str = "avg@4",
    shift: float = 0.0,
) -> FixtureFit:
    """A fit over n = 8..512 at B_p = 32 with `seeds` runs per n and `points` evaluations each."""
    rng = np.random.default_rng(7)
    curves: list[Curve] = []
    records: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = {}
    rows: list[dict[str, Any]] = []
    for n, ceiling in CEILING.items():
        kept: list[tuple[float, float]] = []
        for seed in range(seeds):
            x = np.geomspace(32 * n * 5, 4.2e6, points)
            y = np.clip(score(n, x) + shift + rng.normal(0, 0.006, points), 0, 1)
            curves.append(
                Curve(
                    problems_per_batch=32,
                    rollouts_per_problem=n,
                    run=f"{name}-n{n}-s{seed}",
                    rollouts_K=x,
                    score_K=y,
                    seed=seed,
                    metric=metric,
                    problem_set="easy",
                )
            )
            best = -1.0
            for xi, yi in zip(x, y, strict=True):
                if yi > best + 0.002:
                    best = float(yi)
                    kept.append((float(xi), best))
        kept.sort()
        records[(32, n)] = (np.array([p[0] for p in kept]), np.array([p[1] for p in kept]))
        rows.append(
            {
                "problems_per_batch": 32,
                "rollouts_per_problem": n,
                "n_runs": seeds,
                "n_points": seeds * points,
                "n_records": len(kept),
                "max_rollouts": 4.2e6,
                "floor": 0.45 + shift,
                "ceiling": ceiling + shift,
                "slope": 3.2,
                "log10_midpoint": 4.2 + 0.17 * math.log2(n / 8),
                "ceiling_interval": [ceiling + shift - 0.008, ceiling + shift + 0.008],
                "identified": n < 512,
                "held_from": None,
                "on_bound": [],
                "flags": [] if n < 512 else ["ceiling_unbounded"],
            }
        )
    frontier = _frontier(shift)
    at = []
    for x in np.geomspace(2.5e5, 4.0e6, 24):
        n = law_value(float(x))
        spread = 2 ** (0.4 + 0.7 * math.exp(-(((math.log10(x) - 5.84) / 0.4) ** 2)))
        lo, hi = max(8.0, n / spread), min(512.0, n * spread)
        at.append(
            {
                "x": float(x),
                "rollouts_per_problem": n,
                "interval": [lo, hi],
                "confidence_set": [m for m in CEILING if lo * 0.99 <= m <= hi * 1.01],
                "expected_regret": 0.002 * spread,
                "problems_per_batch": 32,
            }
        )
    warnings = [
        {
            "code": "seeds_few",
            "message": f"{seeds} runs per configuration; intervals are conditional on them.",
        },
        {"code": "bp_untested", "message": "only B_p=32 was tested; B_p is taken as it is."},
        {"code": "edge", "message": "n=512 is the largest n tested; the optimum is a bound."},
    ]
    document: dict[str, Any] = {
        "version": 1,
        "setting": {"kind": "fixed_problems_per_batch", "value": 32},
        "metric": metric,
        "unit": "rollouts",
        "level": 0.95,
        "provenance": {
            "isocompute": "0.1.0",
            "command": "isocompute fit published:qwen2.5-7b-easy",
            "sha256": "0" * 64,
            "seed": 0,
            "draws": 200,
        },
        "curves": rows,
        "frontier": frontier,
        "crossovers": [
            {
                "at": segment["from"],
                "interval": [segment["from"] * 0.8, segment["from"] * 1.25],
                "from_rollouts_per_problem": before["rollouts_per_problem"],
                "to_rollouts_per_problem": segment["rollouts_per_problem"],
            }
            for before, segment in itertools.pairwise(frontier)
        ],
        "law": {
            "form": "sigmoid_log10",
            "variable": "rollouts",
            **LAW,
            "plateau": 452.0,
            "plateau_interval": [300.0, 512.0],
            "identified": {"plateau": True, "k": False},
            "flags": ["slope_unidentified"],
            "rising": {"octaves": 5.2, "lower_bound": 3.9, "claimed": True},
            "at": at,
        },
        "law_problems_per_batch": None,
        "backtest": {
            "cuts": [1.0e6, 2.0e6],
            "mae_law": 0.011,
            "mae_best_so_far": 0.014,
            "skill": 0.21,
            "coverage": 0.93,
        },
        "warnings": warnings,
    }
    return FixtureFit(document=document, curves=curves, records=records, warnings=warnings)


def _frontier(shift: float) -> list[dict[str, Any]]:
    edges = [4.0e4, 2.7e5, 8.4e5, 1.25e6, 2.67e6, 4.2e6]
    winners = [8, 32, 128, 256, 512]
    probabilities = [0.93, 0.71, 0.64, 0.82, 0.97]
    return [
        {
            "from": lo,
            "to": hi,
            "problems_per_batch": 32,
            "rollouts_per_problem": n,
            "score_from": float(score(n, np.array([lo]))[0]) + shift,
            "score_to": float(score(n, np.array([hi]))[0]) + shift,
            "probability_best": p,
            "extrapolated": False,
        }
        for lo, hi, n, p in zip(edges, edges[1:], winners, probabilities, strict=False)
    ]


def make_plan(budget: float = 4.0e6) -> dict[str, Any]:
    """A `plan --json` document for 4M rollouts under the fixture's law."""
    return {
        "version": 1,
        "budget_rollouts": budget,
        "problems_per_batch": 32,
        "rollouts_per_problem": 256,
        "steps": 488,
        "batch_size": 8192,
        "rollouts": 3997696,
        "rollouts_per_problem_interval": [256, 512],
        "predicted_score": 0.668,
        "predicted_score_interval": [0.655, 0.681],
        "learning_rate": 2.83e-6,
        "recipe": {"objective": "grpo", "kl_coef": 0.001, "entropy_coef": 0.001},
        "cost": {"tokens": 6.4e9, "gpu_hours": 310.0, "usd": None},
        "extrapolation_log10": 0.0,
        "law": {"form": "sigmoid_log10", **LAW, "plateau": 452.0},
        "trainer": {
            "verl": {"data.train_batch_size": 32, "actor_rollout_ref.rollout.n": 256},
            "trl": {"num_generations": 256},
        },
        "refusal": None,
        "warnings": [{"code": "bp_untested", "message": "only B_p=32 was tested."}],
    }


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
