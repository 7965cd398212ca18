"""Overfitting: planted, found with its numbers; noise, collapse and health raise nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from isocompute.answers import fit_sweep
from isocompute.answers.overfit import falls, overfitting, windows_of
from isocompute.cli import main
from isocompute.domain import Curve
from isocompute.importers.values.imported import Metric
from isocompute.importers.words.settings import Column, Settings
from isocompute.sources import load_with_train
from isocompute.testing.planted import NOISE, WORLDS
from test_arms import STUDY, run


def line(score: list[float], n: int = 8, split: str = "validation") -> Curve:
    x = 1e4 * 10.0 ** np.arange(len(score))
    return Curve(
        problems_per_batch=4,
        rollouts_per_problem=n,
        run=str(n),
        rollouts_K=x,
        score_K=np.array(score),
        split=split,
    )


def test_gap_and_fall_by_hand() -> None:
    """Decades apart, so that no window holds two evaluations."""
    (row,) = overfitting([line([0.3, 0.6, 0.5, 0.4])], [line([0.4, 0.6, 0.7, 0.9], split="train")])
    assert row["from"] == pytest.approx(1e5)
    assert row["validation_lost"] == pytest.approx(0.2)
    assert row["train_gained"] == pytest.approx(0.3)
    assert row["gap_at_peak"] == pytest.approx(0.0)
    assert row["gap"] == pytest.approx(0.5)
    assert overfitting([line([0.3, 0.6])], []) == []


def test_step_0_and_lone_scores_are_no_window() -> None:
    """The base model's score is no peak to fall from; one score beyond it says nothing."""
    train = line([0.4, 0.6, 0.7, 0.9], split="train")

    def found(*curves: Curve) -> list[dict[str, object]]:  # but for the noise, which counts all
        return [{k: v for k, v in row.items() if k not in ("standard_errors", "overfits")}
                for row in overfitting([*curves], [train, train.replace(rollouts_per_problem=16)])]

    alone = found(line([0.3, 0.6, 0.5, 0.4]))
    assert alone[0]["from"] == pytest.approx(1e5)
    first = line([0.3, 0.6, 0.5, 0.4])
    begun = first.replace(
        rollouts_K=np.concatenate([[0.0], first.rollouts_K]),
        score_K=np.concatenate([[0.9], first.score_K]),
    )
    assert found(begun) == alone
    for short in ([0.4], []):
        lone = line([0.9, *short], n=16)
        lone = lone.replace(rollouts_K=np.array([0.0, 1e4])[: len(lone.score_K)])
        assert found(begun, lone) == alone


def train_of(curves: list[Curve], rises: bool = True) -> list[Curve]:
    out = []
    for c in curves:
        x = np.log10(np.maximum(c.rollouts_K, 1))
        score = np.clip(0.2 + 0.08 * (x - 4), 0, 1) if rises else c.score_K
        out.append(c.replace(score_K=score, split="train"))
    return out


@pytest.mark.heavy
def test_planted_overfitting_is_found_where_it_was_planted() -> None:
    """World `overfit` falls from 10^6.2 on, twice as fast up to n = 64."""
    curves = WORLDS["overfit"].sample(NOISE["middle"], 3, np.random.default_rng(0))
    rows = overfitting(curves, train_of(curves))
    assert all(row["overfits"] for row in rows if row["rollouts_per_problem"] <= 32)
    small = rows[0]
    assert 10**5.9 < small["from"] < 10**6.6
    true = 0.08 * (np.log10(2**23) - 6.2)
    assert small["validation_lost"] == pytest.approx(true, abs=0.02)
    fit = fit_sweep(curves, train=train_of(curves), draws=20)
    said = {one.code: one.text for one in fit.notices}
    assert "n = 8, 16, 32" in said["overfitting"]
    assert "at worst by 0.0" in said["overfitting"]
    percent = [c.replace(score_range=(0.0, 100.0)) for c in curves]
    logged = fit_sweep(percent, train=train_of(curves), draws=20).notices
    (text,) = [one.text for one in logged if one.code == "overfitting"]
    lost = float(text.partition("at worst by ")[2].partition(",")[0])
    assert 1.0 < lost < 10.0  # in the log's unit
    assert f"at worst by {lost:.1f}, from" in text
    assert "overfitting" not in {one.code for one in fit_sweep(curves, draws=20).notices}


def test_a_fall_that_training_shares_is_no_overfitting() -> None:
    curves = WORLDS["overfit"].sample(NOISE["middle"], 3, np.random.default_rng(0))
    assert not any(row["overfits"] for row in overfitting(curves, train_of(curves, rises=False)))


@pytest.mark.parametrize("noise", ["low", "middle", "high"])
def test_healthy_sweeps_do_not_overfit(noise: str) -> None:
    """The best of many noisy windows lies above the last one; 3 standard errors hold that."""
    alarms = [
        row["overfits"]
        for world in ("rising", "equal")
        for seed in range(20)
        for curves in [WORLDS[world].sample(NOISE[noise], 3, np.random.default_rng(seed))]
        for row in overfitting(curves, train_of(curves))
    ]
    assert np.mean(alarms) <= 0.02


@pytest.mark.heavy
def test_fit_shows_the_gap_of_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_arm = STUDY.replace("  slow: {learning_rate: 0.25}\n", "")
    one_arm = re.sub(r"  large:\n(    .*\n)+", "", one_arm)
    folder = run(tmp_path, one_arm.replace("[4, 8]", "[2, 4, 8]").replace("1280", "5120"))
    code = main(["fit", str(folder), "--full"])
    out = capsys.readouterr()
    assert code == 0, out.err
    assert "Train minus validation, success per rollout:" in out.out


@pytest.mark.heavy
def test_no_gap_is_shown_of_a_split_that_was_chosen(tmp_path: Path) -> None:
    folder = run(tmp_path, STUDY.replace("budget: 1280", "budget: 320"))
    arm = f"{folder}[recipe=fast,problems=small"
    assert {c.split for c in load_with_train([f"{arm}]"])[1]} == {"train"}
    assert load_with_train([f"{arm},split=train]"])[1] == []
    assert load_with_train("published:qwen2.5-7b-easy")[1] == []


@pytest.mark.heavy
def test_a_table_with_both_splits_shows_overfitting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Validation turns at 2e5 rollouts for n >= 32, training goes on."""
    rng = np.random.default_rng(0)
    rows = ["problems_per_batch,rollouts_per_problem,rollouts,score,split"]
    for n in (8, 32, 128):
        for x in np.linspace(4.0, 6.2, 24):
            rise = 0.3 + 0.3 / (1 + np.exp(-4 * (x - 4.6)))
            fall = 0.08 * max(0.0, x - 5.3) * (n >= 32)
            for split, score in (("validation", rise - fall), ("train", rise + 0.05 * (x - 4))):
                rows.append(f"32,{n},{10**x:.0f},{score + rng.normal(0, 0.004):.4f},{split}")
    table = tmp_path / "both.csv"
    table.write_text("\n".join(rows))
    assert main(["fit", str(table), "--full", "--json", str(tmp_path / "fit.json")]) == 0
    document = json.loads((tmp_path / "fit.json").read_text())
    assert "overfitting" in {w["code"] for w in document["warnings"]}
    assert {r["rollouts_per_problem"]: r["overfits"] for r in document["train_test"]} == {
        8: False, 32: True, 128: True,
    }  # fmt: skip
    assert "Train minus validation" in capsys.readouterr().out
    runs = load_with_train(str(table))[1]
    assert {c.split for c in runs} == {"train"}


def test_a_training_reward_that_is_no_success_rate_is_not_compared(tmp_path: Path) -> None:
    for worst, there in ((0.0, True), (-0.5, False)):
        log = tmp_path / f"bp4_n8_{there}.jsonl"
        rows = [
            {"step": k, "val/accuracy": 0.3 + k / 100, "train/reward": worst + k / 50}
            for k in range(12)
        ]
        log.write_text("\n".join(map(json.dumps, rows)))
        columns = {
            "val/accuracy": Column(metric=Metric(kind="avg", samples=4)),
            "train/reward": Column(metric=Metric(kind="avg", samples=8), split="train"),
        }
        settings = Settings(problems_per_batch=4, rollouts_per_problem=8, columns=columns)
        curves, train = load_with_train(str(log), settings=settings)
        assert [c.split for c in curves] == ["validation"]
        assert bool(train) == there


def planted(
    rng: np.random.Generator, *, lost: float = 0.0, trained: float = 0.0, spread: float = 0.0,
    ends: tuple[float, ...] = (1.0, 1.0, 1.0),
) -> tuple[list[Curve], list[Curve]]:  # fmt: skip
    """Three seeds that level off at 0.55 (training at 0.9); then both may lose something.

    Evaluations are of 300 problems with 4 samples, training batches of 32 problems. Seeds lie
    `spread` apart and end at a share of the budget.
    """
    out: tuple[list[Curve], list[Curve]] = ([], [])
    for seed, end in enumerate(ends):
        x = np.geomspace(1024, 262144, 20)
        x = x[x <= end * 262144.1]
        rise, fall = np.clip((np.log10([x, x]) - [[3.0], [4.4]]) / [[1.2], [1.0]], 0, 1)
        off = rng.normal(0, spread)
        steps = np.maximum(np.diff(x, prepend=0) / 512, 1)
        for curves, level, phi, split in (
            (out[0], 0.3 + 0.25 * rise - lost * fall, 1 / 2000, "validation"),
            (out[1], 0.3 + 0.6 * rise - trained * fall, 0.6 / 32 / steps, "train"),
        ):
            p = np.clip(level + off, 0, 1)
            score = np.clip(rng.normal(p, np.sqrt(phi * p * (1 - p))), 0, 1)
            curves.append(Curve(
                problems_per_batch=32, rollouts_per_problem=16, run=str(seed), seed=seed,
                rollouts_K=x, score_K=score, split=split,
            ))  # fmt: skip
    return out


@pytest.mark.parametrize(
    ("world", "least", "most"),
    [
        ({}, 0.0, 0.03),
        ({"lost": 0.04}, 0.9, 1.0),  # training is saturated: noise in it excuses nothing
        ({"lost": 0.06}, 0.97, 1.0),
        ({"lost": 0.06, "trained": 0.06}, 0.0, 0.15),
    ],
)
def test_overfitting_is_told_from_noise(world: dict, least: float, most: float) -> None:
    rng = np.random.default_rng(0)
    found = [overfitting(*planted(rng, **world))[0]["overfits"] for _ in range(100)]
    assert least <= np.mean(found) <= most


@pytest.mark.parametrize("ends", [(1.0, 0.3, 0.3), (1.0, 1.0, 0.3), (1.0, 0.8, 0.9)])
def test_the_level_of_a_seed_that_goes_on_is_no_fall(ends: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    seen = [planted(rng, spread=0.03, ends=ends)[0] for _ in range(200)]
    found = [falls(of) for curves in seen for of in windows_of(curves, "rollouts").values()]
    assert np.mean(found) <= 0.03
