"""The published pipeline word for word: by hand, on planted curves, and on the published panels.

`benchmarks/paper_method.py` prints what the method says of all panels, by bin width.
"""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.answers.backtest import simple_rules
from isocompute.answers.law import fit_law
from isocompute.answers.paper import paper_choice, paper_fit, printed_law, records
from isocompute.domain import Curve
from isocompute.errors import InputError, RefusalError
from isocompute.importers import load_published


def run(n: int, x, score, bp: int = 32, **more) -> Curve:
    return Curve(
        problems_per_batch=bp,
        rollouts_per_problem=n,
        run=f"n{n}",
        rollouts_K=np.asarray(x, dtype=float),
        score_K=np.asarray(score, dtype=float),
        metric="avg@4",
        **more,
    )


X = np.geomspace(1e5, 1e7, 60)
PLANTED = {8: (0.2, 0.5, 4.0, 5.2), 64: (0.2, 0.6, 4.0, 5.7), 512: (0.2, 0.7, 4.0, 6.2)}


def value(x, floor, ceiling, slope, midpoint):
    return floor + (ceiling - floor) / (1 + np.exp(-slope * (np.log10(x) - midpoint)))


def arm(row, side: str = "") -> tuple[int, int]:
    return row[f"{side}problems_per_batch"], row[f"{side}rollouts_per_problem"]


def planted(**more) -> list[Curve]:
    return [run(n, X, value(X, *p), **more) for n, p in PLANTED.items()]


def crossing(a: int, b: int) -> float:
    """Where the planted curve of b overtakes that of a."""
    x = np.geomspace(1e5, 1e7, 200_001)
    return float(x[np.argmax(value(x, *PLANTED[b]) > value(x, *PLANTED[a]))])


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (0.1, [0, 3, 6]),  # bins 1 1 0 2 2 1 3
        (0.05, [0, 1, 3, 4, 6]),  # bins 2 3 1 4 5 3 6
        (0.4, [0]),  # all in bin 0
    ],
)
def test_records_by_hand(width: float, kept: list[int]) -> None:
    score = np.array([0.10, 0.15, 0.09, 0.20, 0.26, 0.19, 0.31])
    assert np.flatnonzero(records(score, width)).tolist() == kept


def test_a_reward_on_the_edge_of_a_bin_is_in_the_bin_above() -> None:
    # 0.29, 0.3 and 0.6: 0.3 / 0.1 and 0.6 / 0.2 are a hair below 3 in binary
    assert records(np.array([0.29, 0.30]), 0.1).tolist() == [True, True]
    assert records(np.array([0.59, 0.60]), 0.2).tolist() == [True, True]


def test_the_envelope_of_planted_curves() -> None:
    fit = paper_fit(planted())
    assert [arm(s) for s in fit.frontier] == [(32, 8), (32, 64), (32, 512)]
    assert [(arm(c, "from_"), arm(c, "to_")) for c in fit.crossovers] == [
        ((32, 8), (32, 64)),
        ((32, 64), (32, 512)),
    ]
    for change, pair in zip(fit.crossovers, ((8, 64), (64, 512)), strict=True):
        assert change["at"] == pytest.approx(crossing(*pair), rel=0.01)
    assert fit.frontier[0]["from"] == pytest.approx(1e5)
    assert fit.frontier[0]["to"] == fit.frontier[1]["from"] == fit.crossovers[0]["at"]
    for curve in fit.curves:
        floor, ceiling, slope, midpoint = PLANTED[curve["rollouts_per_problem"]]
        assert (curve["floor"], curve["ceiling"]) == pytest.approx((floor, ceiling), abs=0.01)
        assert curve["slope"] == pytest.approx(slope, rel=0.05)
        assert curve["log10_midpoint"] == pytest.approx(midpoint, rel=0.05)


def test_the_law_goes_from_the_first_n_to_the_last() -> None:
    fit = paper_fit(planted())
    low, high = fit.law.predict([1.2e5, 9e6])
    assert low == pytest.approx(8, rel=0.5)
    assert high == pytest.approx(512, rel=0.5)
    assert (np.diff(fit.law.predict(np.geomspace(1e5, 1e8, 50))) >= 0).all()
    assert fit.law.form == "sigmoid_log10"
    assert fit.law.variable == "rollouts"


def test_the_law_is_of_a_running_average_of_n() -> None:
    fit = paper_fit(planted())
    x = np.geomspace(1e5, 1e7, 400)
    n = np.select([x < c["at"] for c in fit.crossovers], [8.0, 64.0], 512.0)
    average = [n[np.abs(np.log10(x / at)) <= 0.15 * 2].mean() for at in x]  # 0.3 of two decades
    assert fit.law.predict(x) == pytest.approx(fit_law(x, average).predict(x), rel=0.05)
    assert fit.law.predict(x) != pytest.approx(fit_law(x, n).predict(x), rel=0.2)


def test_dropped_checkpoints_do_not_count() -> None:
    """Anything below the record so far, however far below, changes nothing."""
    noisy = []
    for n, p in PLANTED.items():
        score = np.repeat(value(X, *p), 2)
        score[1::2] -= 0.1
        noisy.append(run(n, np.repeat(X, 2) * np.tile([1, 1.01], 60), score))
    assert paper_fit(noisy).curves == paper_fit(planted()).curves


def test_runs_of_one_configuration_are_pooled_by_their_own_records() -> None:
    more = [run(8, X * 1.1, value(X, *PLANTED[8]) - 0.05)]  # its records are below the other's
    single, pooled = paper_fit(planted()), paper_fit([*planted(), *more])
    assert pooled.curves[0]["n_records"] == single.curves[0]["n_records"] + int(
        records(more[0].score_K, 0.002).sum()
    )
    assert pooled.curves[0]["ceiling"] < single.curves[0]["ceiling"] - 0.01
    assert pooled.curves[1:] == single.curves[1:]
    again = paper_fit([*more, *planted()[::-1]])  # the order of runs is nothing
    assert [arm(c, "to_") for c in again.crossovers] == [arm(c, "to_") for c in pooled.crossovers]
    assert again.crossovers[0]["at"] == pytest.approx(pooled.crossovers[0]["at"])


def test_several_batch_sizes_make_one_envelope() -> None:
    wide = run(512, X, value(X, 0.2, 0.8, 4.0, 6.2), bp=64)
    fit = paper_fit([*planted(), wide])
    assert arm(fit.crossovers[-1], "to_") == (64, 512)
    assert (32, 512) not in [arm(s) for s in fit.frontier]


def test_the_width_of_a_bin_decides_what_is_kept() -> None:
    narrow, wide = paper_fit(planted()), paper_fit(planted(), bin_width=0.05)
    assert narrow.bin_width == 0.002
    # from bin 5 (0.293), 4 (0.223), 4 (0.204) to bin 9 (0.4998), 11 (0.598), 13 (0.680)
    assert [c["n_records"] for c in wide.curves] == [5, 8, 10]
    for less, more in zip(wide.curves, narrow.curves, strict=True):
        assert more["n_records"] > less["n_records"]
    assert list(wide.by_bin_width) == [0.025, 0.1]
    half = wide.by_bin_width[0.025]
    assert half == paper_fit(wide.runs, bin_width=0.025)
    assert wide.by_bin_width[0.1].left_out == [
        {"problems_per_batch": 32, "rollouts_per_problem": 8}
    ]  # bins 2 to 4: three records


def test_budgets_in_tokens() -> None:
    curves = [c.replace(tokens_K=c.rollouts_K * 1000) for c in planted()]
    tokens, rollouts = paper_fit(curves, unit="tokens"), paper_fit(curves)
    first, counted = tokens.crossovers[0]["at"], rollouts.crossovers[0]["at"]
    assert first == pytest.approx(1000 * counted, rel=1e-3)
    assert tokens.law.variable == "tokens"


def test_step_0_sets_a_record_and_has_no_place_on_a_log_axis() -> None:
    curves = planted()
    first = curves[0]
    start = first.replace(rollouts_K=np.r_[0.0, X], score_K=np.r_[0.35, first.score_K])
    kept = paper_fit([start, *curves[1:]]).curves[0]["n_records"]
    assert kept == int(records(first.score_K[first.score_K >= 0.352], 0.002).sum())


def test_configurations_with_too_few_records_are_named() -> None:
    flat = run(4, X, np.full(60, 0.3))
    fit = paper_fit([*planted(), flat])
    left_out = {"problems_per_batch": 32, "rollouts_per_problem": 4}
    assert fit.to_dict()["left_out"] == [left_out]
    assert fit.frontier == paper_fit(planted()).frontier
    with pytest.raises(RefusalError, match=r"got record points of 32 x 4: 1, 32 x 8: \d+; evalu"):
        paper_fit([planted()[0], flat])
    with pytest.raises(RefusalError, match="got record points of no run"):
        paper_fit([])


@pytest.mark.parametrize("width", [0.0, -0.1, 1.0, float("nan")])
def test_a_width_is_a_part_of_the_scale(width: float) -> None:
    with pytest.raises(InputError, match="`0 < bin_width < 1` must hold, but got bin_width="):
        paper_fit(planted(), bin_width=width)


def test_units_that_are_none_or_not_there() -> None:
    with pytest.raises(InputError, match="unit must be one of rollouts, tokens, gpu-hours, but"):
        paper_fit(planted(), unit="hours")
    with pytest.raises(InputError, match="needs a `tokens` column .* lacks it"):
        paper_fit(planted(), unit="tokens")


def test_the_document() -> None:
    document = paper_fit(planted()).to_dict()
    assert document["method"] == "paper"
    assert [s["rollouts_per_problem"] for s in document["frontier"]] == [8, 64, 512]
    assert document["frontier"][0]["to"] == document["crossovers"][0]["at"]
    assert document["crossovers"][0] == {
        "at": document["frontier"][1]["from"],
        "from_problems_per_batch": 32,
        "from_rollouts_per_problem": 8,
        "to_problems_per_batch": 32,
        "to_rollouts_per_problem": 64,
    }
    assert document["curves"][0]["rollouts_per_problem"] == 8
    assert document["curves"][0]["n_records"] == paper_fit(planted()).curves[0]["n_records"]
    assert document["law"]["plateau"] == pytest.approx(
        2 ** (document["law"]["L"] + document["law"]["b"])
    )
    assert [d["bin_width"] for d in document["by_bin_width"]] == [0.001, 0.004]
    assert "by_bin_width" not in document["by_bin_width"][0]
    wide = paper_fit(planted(), bin_width=0.09).to_dict()["by_bin_width"][1]
    assert set(wide) == {"bin_width", "refused"}
    assert "needs at least 2 configurations" in wide["refused"]


# The study's own figures (page), and what its method says of the dots read off them.
STUDY = {
    "easy": (
        (32, 0.27e6, 0.24e6),
        (128, 0.84e6, 0.97e6),
        (256, 1.25e6, 1.49e6),
        (512, 2.67e6, 2.78e6),
    ),
    "hard": ((128, 0.73e6, 0.89e6),),
}


@pytest.mark.parametrize("difficulty", STUDY)
def test_on_the_published_panels_it_finds_the_published_frontier(difficulty: str) -> None:
    fit = paper_fit(load_published(f"qwen2.5-7b-{difficulty}"))
    assert arm(fit.frontier[0]) == (32, 8)
    assert len(fit.crossovers) == len(STUDY[difficulty])
    for change, (n, theirs, ours) in zip(fit.crossovers, STUDY[difficulty], strict=True):
        assert arm(change, "to_") == (32, n)
        assert 0.7 * theirs < change["at"] < 1.3 * theirs
        assert change["at"] == pytest.approx(ours, rel=0.01)


@pytest.mark.parametrize(("difficulty", "reach"), [("easy", 1.0), ("hard", 1.0)])
def test_its_law_lies_near_the_printed_one(difficulty: str, reach: float) -> None:
    fit = paper_fit(load_published(f"qwen2.5-7b-{difficulty}"))
    printed = printed_law(f"published:qwen2.5-7b-{difficulty}")
    assert printed is not None
    x = np.geomspace(0.25e6, 4e6, 100)
    assert np.abs(np.log2(fit.law.predict(x)) - np.log2(printed.law.predict(x))).mean() < reach


def test_what_the_study_printed() -> None:
    easy, hard = (printed_law(f"published:qwen2.5-7b-{d}") for d in ("easy", "hard"))
    assert easy is not None
    assert hard is not None
    assert float(hard.law.predict(2e6)) == pytest.approx(138, abs=0.5)
    assert round(easy.law.plateau) == easy.plateau == 452
    assert round(hard.law.plateau) == hard.plateau == 153
    assert easy.frontier[0] == (8, 270_000)
    assert easy.frontier[-1] == (512, None)
    assert easy.best_n["128"] == {"best@4": 8, "worst@4": 128}
    assert "2603.12151" in easy.source
    words = " ".join(easy.sentences(2e6))
    assert "At 2M rollouts that law says n = 295." in words
    assert (
        "n = 8 to 270k, n = 32 to 840k, n = 128 to 1.25M, n = 256 to 2.67M, then n = 512" in words
    )
    assert "n = 1,024 and 2,048 were run and do not extend the frontier" in words
    assert "8/128 at B_p = 128" in words
    assert "rollouts that law" not in " ".join(easy.sentences())
    assert not any("also says" in s for s in hard.sentences())


@pytest.mark.parametrize(
    "source", [None, "", "my-runs.csv", "qwen2.5-7b-easy", "published:qwen2.5-7b-easy-bp64"]
)
def test_the_study_printed_nothing_of_other_sources(source: str | None) -> None:
    assert printed_law(source) is None


def test_half_and_twice_the_bin_are_fitted_in_the_same_unit():
    curves = [c.replace(tokens_K=c.rollouts_K * c.rollouts_per_problem) for c in planted()]
    fit = paper_fit(curves, unit="tokens")
    for width, other in fit.by_bin_width.items():
        assert other.curves == paper_fit(curves, unit="tokens", bin_width=width).curves
        assert other.curves != paper_fit(curves, bin_width=width).curves


def test_compute_below_one_counts():
    """GPU-hours of small runs are fractions; a fit in them is one in another unit, no more."""
    hours = [c.replace(gpu_hours_K=c.rollouts_K / 1e9) for c in planted()]
    small, plain = paper_fit(hours, unit="gpu-hours"), paper_fit(planted())
    for a, b in zip(small.curves, plain.curves, strict=True):
        assert a["ceiling"] == pytest.approx(b["ceiling"], rel=1e-3)
        assert a["log10_midpoint"] == pytest.approx(b["log10_midpoint"] - 9, abs=1e-3)


def test_the_method_is_a_rule_beside_the_others() -> None:
    curves = planted()
    arms = sorted({c.configuration for c in curves})
    law = paper_fit(curves).law
    for amount in (3e4, 1e6, 1e9):
        n = float(law.predict(amount))
        nearest = min(arms, key=lambda c: abs(np.log2(c.rollouts_per_problem / n)))
        assert paper_choice(curves, arms, amount) == nearest
        assert simple_rules(arms, arms[0], curves, amount)["paper"] == nearest
    early, late = (paper_choice(curves, arms, amount) for amount in (1e3, 1e9))
    assert early != late
    # what the method refuses, it does not choose
    assert paper_choice(curves[:1], arms, 1e6) is None
    assert paper_choice(curves, arms, 1e6, "gpu-hours") is None
    assert "paper" not in simple_rules(arms, arms[0])
    # another B_p is another law
    wide = curves[0].problems_per_batch * 2
    others = [c.replace(problems_per_batch=wide, score_K=np.minimum(c.score_K * 1.8, 1.0))
              for c in curves if c.rollouts_per_problem == 8]  # fmt: skip
    others.append(others[0].replace(rollouts_per_problem=16, score_K=others[0].score_K - 0.01))
    assert paper_choice([*curves, *others], arms, 1e9) == paper_choice(curves, arms, 1e9)
