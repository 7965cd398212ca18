"""The HTML report: what it says, what it lets run, how large it is."""

from __future__ import annotations

import base64
import copy
import datetime
import hashlib
import itertools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isocompute.cli.fit_full import full_lines
from isocompute.domain.text import plain
from isocompute.errors import InputError
from isocompute.report import StudyView, render_report
from isocompute.report.evidence import fit_tables
from isocompute.report.facts import _cost, _gain
from isocompute.report.first_screen import _spent
from isocompute.report.html import content_security_policy, json_for_html, plotly_script
from isocompute.report.payload import TEXT_LIMIT, fit_payload, numbers, thin
from isocompute.report.reading import Line, lines_of
from isocompute.report.style import ramp_color, series_styles
from isocompute.report.thumbnail import BOTTOM, TOP, _names, picture
from isocompute.report.words import (
    backtest_sentence,
    best_at,
    chance,
    chances_words,
    changes,
    extrapolation,
    interval,
    loss_sentence,
    paper_sentence,
    percent,
    printed_sentences,
    probability_sentence,
    redact,
    setting_name,
    summary,
    with_plan,
)
from report_fixtures import (  # noqa: F401  (`short_bundle` acts on every test here)
    FixtureFit,
    N,
    Page,
    make_fit,
    make_plan,
    page_of,
    planted_fit,
    short_bundle,
    with_chances,
    with_runs,
    with_whole_bundle,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202e\u2028"
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)

SCRIPT_OF_PLOTLY = plotly_script  # before the tests put a short one in its place


@pytest.fixture(scope="module")
def fit() -> FixtureFit:
    return make_fit()


# ---- what may run -------------------------------------------------------------------------


@with_whole_bundle
def test_policy_lets_exactly_the_two_embedded_scripts_run(tmp_path: Path, fit: FixtureFit) -> None:
    page = page_of(tmp_path, [("a", fit)], make_plan())
    policy = next(
        attrs["content"] or ""
        for tag, attrs in page.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    runnable = [text for attrs, text in page.scripts if attrs.get("type") is None]
    assert len(runnable) == 2
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    expected = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in runnable
    }
    assert set(directives["script-src"].split()) == expected
    assert directives["default-src"] == "'none'"
    assert "connect-src" not in directives  # falls back to 'none'
    assert "unsafe-eval" not in policy
    assert policy.index("script-src") < len(policy)


def test_policy_stands_before_anything_that_it_rules(tmp_path: Path, fit: FixtureFit) -> None:
    names = [
        "policy" if attrs.get("http-equiv") else tag
        for tag, attrs in page_of(tmp_path, [("a", fit)], None).tags
    ]
    assert names.index("policy") < min(names.index("script"), names.index("style"))


def test_page_refers_to_nothing_outside_itself(tmp_path: Path, fit: FixtureFit) -> None:
    page = page_of(tmp_path, [("a", fit)], make_plan())
    for tag, attrs in page.tags:
        assert "src" not in attrs, tag
        assert (attrs.get("href") or "#").startswith(("#", "data:,")), (tag, attrs)
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)


def test_policy_changes_with_the_script() -> None:
    assert content_security_policy(["a"]) != content_security_policy(["b"])


@pytest.mark.parametrize("bad", ["x</SCRIPT>y", "x<!--y"])
def test_asset_that_would_break_out_of_its_script_is_refused(bad: str) -> None:
    from isocompute.report.html import _embeddable

    with pytest.raises(InputError, match="must hold neither '</script' nor '<!--', but evil.js"):
        _embeddable(bad, "evil.js")
    assert _embeddable("a\r\nb\rc", "fine.js") == "a\nb\nc"


# ---- names and texts are inert ---------------------------------------------------------------


def test_hostile_names_are_text(tmp_path: Path) -> None:
    fit = make_fit(name=HOSTILE, metric=HOSTILE)
    noticed = {"code": HOSTILE, "level": "caution", "text": HOSTILE, "remedy": HOSTILE}
    verdict = {"level": HOSTILE, "reason": HOSTILE}
    fit.document.update(
        provenance={HOSTILE: {HOSTILE: HOSTILE}, "sources": [HOSTILE]}, notices=[noticed],
        verdict=verdict, paper={"refused": HOSTILE},
    )  # fmt: skip
    fit.document["curves"][0].update(flags=[HOSTILE], state=HOSTILE)
    fit.document["direction"]["sentence"] = HOSTILE
    plan = make_plan()
    plan.update(notices=[noticed], verdict=verdict)
    plan["run_next"] = [{"do": HOSTILE, "command": HOSTILE, "settles": HOSTILE}] * 5
    plan["learning_rate_from"] = HOSTILE
    plan["recipe"] = {HOSTILE: HOSTILE}
    plan["trainer"] = {HOSTILE: {HOSTILE: HOSTILE}}
    view = StudyView(
        name=HOSTILE,
        problem_set=HOSTILE,
        runs=[
            {"run": HOSTILE, "problems_per_batch": 32, "rollouts_per_problem": 8, "state": HOSTILE}
        ],
        scores={HOSTILE: [{"bp": 32, "n": 8, "value": 0.5, "interval": None, "n_runs": 1}]},
        scores_at=100.0,
        health={HOSTILE: [{"bp": 32, "n": 8, "run": HOSTILE, "x": [1.0, 2.0], "y": [1.0, 2.0]}]},
        difficulty={"name": HOSTILE, "samples": 1, "counts": [1, 2]},
        provenance={HOSTILE: HOSTILE},
        warnings=[{"code": HOSTILE, "message": HOSTILE}],
    )
    page = page_of(tmp_path, [(HOSTILE, fit), (HOSTILE, fit)], plan, study=view, title=HOSTILE)
    clean = page_of(tmp_path, [("a", make_fit()), ("b", make_fit())], make_plan())
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not {"img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean.tags} | {"h4"}
    assert "<img src=x onerror=alert(2)>" in page.text  # shown, as text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert "\\u001b[31m" in page.text
    assert "\x1b" not in json.dumps(page.data, ensure_ascii=False)


def test_data_block_holds_no_markup() -> None:
    text = json_for_html({"k<": "</script>&\u2028\u2029", "n": [1, None]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"k<": "</script>&\u2028\u2029", "n": [1, None]}


def test_numbers_that_json_cannot_hold_become_none() -> None:
    assert numbers([1234567.0, 0.123456, math.nan], 4) == [1235000, 0.1235, None]


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"api_key": "x"}, {"api_key": "(hidden)"}),
        ({"hf-token": ["x"]}, {"hf-token": "(hidden)"}),
        ({"WANDB_API_KEY": {"a": 1}}, {"WANDB_API_KEY": "(hidden)"}),
        ("run --api-key s3cr3t --n 8", "run (hidden) --n 8"),
        ("hf_abcdefghijklmnopqrstuv", "(hidden)"),
        ("postgres://me:pw@host/db", "postgres://(hidden)@host/db"),
        ("glpat-abcdefghij0123456789", "(hidden)"),
        ({"private_key": 1}, {"private_key": "(hidden)"}),
        ({"tokens_per_rollout": 5}, {"tokens_per_rollout": 5}),
    ],
)
def test_secrets_are_hidden(value: Any, hidden: Any) -> None:
    assert redact(value) == hidden


def test_no_secret_reaches_the_page(tmp_path: Path) -> None:
    fit = make_fit()
    fit.document["provenance"] = {"command": "fit --token=s3cr3tvalue", "api_key": "s3cr3tvalue"}
    view = StudyView(name="s", provenance={"password": "s3cr3tvalue"})
    path = render_report([("a", fit)], None, tmp_path / "r.html", study=view)
    assert "s3cr3tvalue" not in path.read_text("utf-8")


# ---- size ----------------------------------------------------------------------------------


@with_whole_bundle
def test_hundred_runs_of_two_hundred_evaluations_stay_below_eight_megabytes(tmp_path: Path) -> None:
    fit = with_runs(make_fit(), seeds=15, points=200)  # 105 runs
    path = render_report([("a", fit)], make_plan(), tmp_path / "r.html")
    assert len(fit.curves) >= 100
    assert path.stat().st_size < 8e6
    assert len(re.findall(r"\* plotly\.js .*v\d", path.read_text("utf-8"))) == 1


def test_thinning_keeps_what_can_be_seen() -> None:
    rng = np.random.default_rng(0)
    x = np.geomspace(1.0, 1e6, 5000)
    y = rng.normal(size=5000)
    x_thin, y_thin = thin(x, y, columns=100)
    assert x_thin.size <= 400
    assert {y.min(), y.max(), y[0], y[-1]} <= set(y_thin)
    for i in range(100):  # every column keeps its extremes
        inside = (np.floor(np.minimum(np.log10(x) / 6 * 100, 99)) == i).nonzero()[0]
        kept = set(x_thin)
        assert x[inside[np.argmax(y[inside])]] in kept
    crowd = np.append(x[:49], 1e6)  # all but the last in one column, and fewer than columns
    assert np.array_equal(thin(crowd, y[:50], columns=100), [crowd, y[:50]])


def test_page_says_what_was_thinned(tmp_path: Path) -> None:
    fit = with_runs(make_fit(), seeds=1, points=8000)
    page = page_of(tmp_path, [("a", fit)], None)
    thinned = page.data["fits"][0]["thinned"]
    assert thinned["dropped"] > 0
    assert thinned["dropped"] + thinned["drawn"] == 7 * 8000


# ---- what it says ----------------------------------------------------------------------------


def first_screen(page: Page) -> str:
    return page.text[: page.text.index("Learning curves")]


def test_first_screen_is_the_prescription(tmp_path: Path, fit: FixtureFit) -> None:
    page = page_of(tmp_path, [("my sweep", fit)], with_chances(make_plan(), [4e6]))
    answer = first_screen(page)
    for part in (
        "16 problems per batch (Bₚ)",
        "256 rollouts per problem (n)",
        "976 steps",
        "4M rollouts in all. A rollout is one sampled answer to a problem.",
        "At this budget the best n is between 200 and 512; of those tested, 256 scores best.",
        "Confidence: caution. Only Bₚ = 16 was tested at n = 256.",
        "Score 0.668 expected (0.655 to 0.681)",
        "Gain +0.018 (+0.006 to +0.031) over today's n = 16",
        "Chance n = 8 is best with 90%, others 10%",
        "2.8e-6 (Qwen2.5-7B-Instruct's; tune yours)",
        "310 GPU-hours, $620",
        "1.3 passes over the training problems",
        "Test a second Bₚ. isocompute run study.yaml Then plan again, with the new runs beside the "
        "old ones. 14 runs",  # why is the verdict's reason
        "14 runs of up to 8.39M rollouts: 16 problems × n = 8 to 512. Score: avg@4, the mean over",
        "The largest n 16 × 512 0.667 0.008",
        "data.train_batch_size=16 actor_rollout_ref.rollout.n=256",
        "Half the budget: best n",
    ):
        assert part in answer, part
    # What a manager asks for comes first: no page break may hide it.
    order = ["What to run", "Confidence", "Score 0", "Gain", "Cost", "Chance", "Learning rate"]
    assert [answer.index(one) for one in order] == sorted(answer.index(one) for one in order)
    assert "`" not in page.text


def test_at_most_three_things_are_to_be_done_first(tmp_path: Path) -> None:
    plan = make_plan() | {"run_next": [{"do": f"do {i}", "settles": "x"} for i in range(5)]}
    text = first_screen(page_of(tmp_path, [("a", make_fit())], plan))
    assert "Checks before you spend Do 0. Do 1. Do 2. 14 runs" in text


def test_a_step_dearer_than_the_run_is_not_asked_for_first(tmp_path: Path) -> None:
    plan = make_plan()
    cost = {"gpu_hours": None, "usd": None, "tokens": None}
    dear = "Nothing: every check costs more than it can gain"
    for times, says in ((1.0, "Train"), (2.0, dear)):
        step = {"do": "train", "settles": "x", "rollouts": times * plan["rollouts"], "cost": cost}
        text = first_screen(page_of(tmp_path, [("a", make_fit())], plan | {"run_next": [step]}))
        together = "Out of the same budget: 4M rollouts; nothing is left for the run. "
        assert f"Checks before you spend {together * (times == 1.0)}{says}" in text
        assert ("Left out, too dear beside this run: Train (8M rollouts)." in text) == (times == 2)


def test_checks_say_what_they_may_gain_and_those_left_out_why(tmp_path: Path) -> None:
    hours = {"gpu_hours": 31.0, "usd": 62.0, "tokens": None}
    left = {"checks": 1, "steps": 899, "predicted_score": 0.66}
    plan = make_plan() | {"steps": 1000, "after_checks": [left]}
    step = {"do": "train n = 512", "settles": "capped_by_tested_n", "rollouts": 4e5,
            "cost": hours, "gain": 0.011, "lost": 0.006}  # fmt: skip
    dear = {**step, "do": "train n = 8", "settles": "bp_untested", "gain": 0.002}
    text = first_screen(page_of(tmp_path, [("a", make_fit())], plan | {"run_next": [step, dear]}))
    assert (
        "Out of the same budget: 31 GPU-hours, $62; leaves a run of 899 steps, score 0.660. "
        "Train n = 512 (400k rollouts, $62; may gain 0.011, costs 0.006). "
        "Then plan again, with the new runs beside the old ones. "
        "Left out, too dear beside this run: Train n = 8 (400k rollouts, $62; may gain 0.002, "
        "costs 0.006)."
    ) in text
    none = first_screen(page_of(tmp_path, [("a", make_fit())], plan | {"run_next": [dear]}))
    assert "Nothing: every check costs more than it can gain. Left out, too dear" in none
    assert "Then plan again" not in none


def test_a_rule_is_not_judged_by_a_back_test_of_other_budgets(tmp_path: Path) -> None:
    """Beside a plan by GPU-hours, rollouts at the end say nothing of it."""
    plan = make_plan() | {"law": {"unit": "gpu-hours"}}
    text = first_screen(page_of(tmp_path, [("a", make_fit())], plan))
    assert "The largest n 16 × 512 0.667" in text
    assert "Lost in the back-test" not in text


def test_where_a_study_rate_or_no_rate_is_known_the_first_screen_says_it(tmp_path: Path) -> None:
    plan = make_plan() | {"learning_rate_from": "study", "gain": None, "as_good": [256],
                          "cost": {"tokens": None, "gpu_hours": None, "usd": None}}  # fmt: skip
    text = first_screen(page_of(tmp_path, [("a", make_fit())], plan))
    assert "2.8e-6 (from your study)" in text
    assert "not known; give --rollouts-per-gpu-hour" in text
    assert "over today's n" not in text
    assert "Chance" not in text  # nobody knows it
    plan["learning_rate_from"] = None
    assert "2.8e-6 Data" in first_screen(page_of(tmp_path, [("a", make_fit())], plan))


def test_extrapolation_is_said_on_the_first_screen(tmp_path: Path, fit: FixtureFit) -> None:
    plan = {**make_plan(4e7), "extrapolation_log10": 1.0, "steps": 15625}
    said = first_screen(page_of(tmp_path, [("a", fit)], plan))
    assert "10 times the largest at which n were compared" in said
    assert "15,625 steps" in said  # every digit: it is typed into a trainer


def test_that_runs_broke_or_fell_is_said_on_the_first_screen(
    tmp_path: Path, fit: FixtureFit
) -> None:
    fell = {"how": "fell", "runs": 1, "of": 1, "step": 416, "score": 0.576, "lost": 0.001,
            "predicted_score": 0.66, "interval": [-0.01, 0.004], "as_good": True}  # fmt: skip
    trained = {"runs": 1, "run": "a", "step": 416}
    plan = {**make_plan(), "fell": fell, "trained": trained}
    said = first_screen(page_of(tmp_path, [("a", fit)], plan))
    assert "Fell after step 416 (0.576): keep the best checkpoint, stop there" in said
    assert "For less 416 steps do as well: 0.660 (at most 0.004 less)" in said
    assert "1 run went this far already: use its best checkpoint, at step 416." in said
    broke = {**plan, "fell": {**fell, "how": "broke", "of": 2}}
    said = first_screen(page_of(tmp_path, [("a", fit)], broke))
    assert "Broke 1 of 2 runs after step 416 (0.576): stop if yours falls" in said


@pytest.mark.parametrize(("unit", "said"), [("rollouts", "1M of 1.05M"), ("gpu-hours", "1M")])
def test_a_budget_that_was_not_in_rollouts_is_not_said_in_them(unit: str, said: str) -> None:
    plan = {"rollouts": 1e6, "budget_rollouts": 1.05e6, "law": {"unit": unit}}
    assert _spent(plan) == said


def test_the_first_screen_says_what_to_expect_and_whose_recipe_it_is(
    tmp_path: Path, fit: FixtureFit
) -> None:
    check = {"x": 2e6, "rollouts": 2e6, "step": 1244, "score": 0.6, "interval": [0.58, 0.62]}
    plan = {**make_plan(), "check": check, "learning_rate_from": "runs",
            "recorded": ["learning_rate", "clip_low"],
            "recipe": {"base_batch_size": 1, "learning_rate": 1e-6}}  # fmt: skip
    said = first_screen(page_of(tmp_path, [("a", fit)], plan))
    assert "Stop if below 0.580 at step 1,244 (expected: 0.600); fit again" in said
    # As `plan --for` says it.
    assert "Other settings Of the recipe your logs hold only: learning rate, clip low." in said
    known = {**plan, "recorded": ["learning_rate", "updates_per_batch"]}
    said = first_screen(page_of(tmp_path, [("a", fit)], known))
    assert "Other settings The recipe is that of your runs' logs; keep your own" in said
    said = first_screen(page_of(tmp_path, [("a", fit)], make_plan()))
    assert "Stop if" not in said
    assert "keep yours" not in said


@pytest.mark.parametrize("clocked", [False, True])
def test_what_comes_on_top_of_a_price_is_said(clocked: bool) -> None:
    source = {"rollouts_per_gpu_hour": {"from": "sweep", "value": 1e3, "clocked": clocked}}
    cost = {"gpu_hours": 100.0, "usd": 250.0, "tokens": None, "source": source}
    said = _cost({"cost": cost})
    assert said.endswith("; evaluations are extra") is not clocked


def test_a_plan_of_version_1_is_shown(tmp_path: Path, fit: FixtureFit) -> None:
    old = ("verdict", "as_good", "gain", "rules", "notices", "run_next", "learning_rate_from")
    plan = {k: v for k, v in make_plan().items() if k not in old}
    plan["warnings"] = [{"code": "bp_untested", "message": "only B_p = 16 was tested."}]
    text = page_of(tmp_path, [("a", fit)], plan).text
    assert "256 rollouts per problem (n)" in text
    assert "Caution only Bₚ = 16 was tested." in text
    assert f"Confidence: {fit.document['verdict']['level']}." in text  # the fit's stands in


def test_refusal_says_why_and_what_to_run_next(tmp_path: Path, fit: FixtureFit) -> None:
    reason = "one configuration only."
    plan = {
        **dict.fromkeys(make_plan(), None),
        "refusal": {"reason": reason, "run_next": ["Run `isocompute run more.yaml`."]},
        "verdict": {"level": "stop", "reason": reason},
        "notices": [],
    }
    page = page_of(tmp_path, [("a", fit)], plan)
    text = first_screen(page)
    assert "No plan yet Stop. one configuration only." in text
    assert text.count(reason) == 1
    assert "Do first Run isocompute run more.yaml ." in text
    assert "problems per batch" not in text
    old = page_of(tmp_path, [], {"refusal": {"reason": reason}, "warnings": []}).text
    assert "No plan yet one configuration only." in old  # version 1 has no verdict to say it
    assert "svg" not in [tag for tag, _ in page.tags]  # no choice to mark


def test_without_a_plan_the_fit_speaks(tmp_path: Path, fit: FixtureFit) -> None:
    text = first_screen(page_of(tmp_path, [("a", fit)], None))
    last = fit.document["best"][-1]
    assert not last["extrapolated"]
    chosen = last["tested_rollouts_per_problem"]
    assert f"Best at 8.39M rollouts: {chosen} rollouts per problem (n)" in text
    assert summary(fit.document) in text
    notice = next(one for one in fit.document["notices"] if one["level"] == "caution")
    assert f"{notice['remedy']} {notice['text']}" in text


def test_the_thumbnail_marks_the_choice(tmp_path: Path, fit: FixtureFit) -> None:
    tags = page_of(tmp_path, [("a", fit)], make_plan()).tags
    lines = [attrs for tag, attrs in tags if tag == "polyline"]
    lines = [line for line in lines if "ahead" not in (line["class"] or "")]
    assert [line["class"] for line in lines] == ["chosen" if n == 256 else "" for n in N]
    (circle,) = [attrs for tag, attrs in tags if tag == "circle"]
    x = [float(pair.split(",")[0]) for pair in (lines[0]["points"] or "").split()]
    share = (math.log10(4e6) - math.log10(8192)) / (math.log10(8388608) - math.log10(8192))
    assert float(circle["cx"] or 0) == pytest.approx(x[0] + share * (x[-1] - x[0]), abs=0.2)
    low = make_plan() | {"predicted_score": 0.5}
    (lower,) = [a for tag, a in page_of(tmp_path, [("a", fit)], low).tags if tag == "circle"]
    top = max(row["at"][-1]["score"] for row in fit.document["curves"])
    bottom = min(at["score"] for row in fit.document["curves"] for at in row["at"])
    assert float(lower["cy"] or 0) == pytest.approx(
        BOTTOM - (BOTTOM - TOP) * (0.5 - bottom) / (top - bottom), abs=2
    )
    # Beyond the data the bold line goes on to the mark, which keeps its radius at the edge.
    tags = page_of(tmp_path, [("a", fit)], make_plan(4e7)).tags
    plan = with_chances(make_plan(4e7), [8388608, 2e7, 4e7]) | {"predicted_score": 0.68}
    tags = page_of(tmp_path, [("a", fit)], plan).tags
    every = [a for tag, a in tags if tag == "polyline" and "ahead" in (a["class"] or "")]
    assert len(every) == len(N)
    (ahead,) = [a for a in every if a["class"] == "ahead chosen"]
    (circle,) = [a for tag, a in tags if tag == "circle"]
    points = [tuple(map(float, pair.split(","))) for pair in (ahead["points"] or "").split()]
    first, last = points[0], points[-1]
    assert first[0] < last[0] == float(circle["cx"] or 0) <= 360 - 8
    assert last[1] == float(circle["cy"] or 0)
    # A curve ends where its data do, though it is known further.
    row = next(r for r in fit.document["curves"] if r["rollouts_per_problem"] == 8)
    for at in row["at"][30:]:
        at["extrapolated"] = True
    tags = page_of(tmp_path, [("a", fit)], make_plan()).tags
    shorter = next(attrs for tag, attrs in tags if tag == "polyline")
    assert len((shorter["points"] or "").split()) == 30
    without = page_of(tmp_path, [], make_plan()).tags
    assert "polyline" not in {tag for tag, _ in without}


def test_names_stand_where_the_picture_predicts_scores(fit: FixtureFit) -> None:
    """Before, by the last scores: the eye took them for forecasts at the budget."""
    plan = with_chances(make_plan(4e7), [8388608, 2e7, 4e7])
    drawn = picture(fit, plan)
    assert drawn is not None
    score = dict(zip(N, (row[-1] for row in plan["chances"]["score"]), strict=True))
    assert [one["n"] for one in drawn["names"]] == sorted(N, key=lambda n: -score[n])
    assert drawn["says"].endswith("Dotted: predicted.")
    # By another unit nothing is predicted there.
    apart = picture(fit, plan | {"law": {"unit": "tokens"}})
    assert apart is not None
    assert [one["n"] for one in apart["names"]] != [one["n"] for one in drawn["names"]]


def test_one_n_has_no_figure_of_the_best_one(tmp_path: Path) -> None:
    fit = make_fit()
    for key in ("curves", "frontier"):
        fit.document[key] = [r for r in fit.document[key] if r["rollouts_per_problem"] == 8]
    page = page_of(tmp_path, [("a", fit)], make_plan())
    kinds = {attrs.get("data-kind") for _, attrs in page.tags}
    assert "learning-curves" in kinds
    assert not {"law", "probability-best", "loss-by-n", "paper-method"} & kinds
    assert "Only n = 8 was tested, up to 8.39M rollouts." in page.text


def test_sections_without_data_are_left_out(tmp_path: Path, fit: FixtureFit) -> None:
    kinds = {attrs.get("data-kind") for _, attrs in page_of(tmp_path, [("a", fit)], None).tags}
    assert {"learning-curves", "law", "probability-best", "loss-by-n", "backtest"} <= kinds
    assert "paper-method" in kinds
    assert not {"direction", "law-problems-per-batch", "frontier"} & kinds
    assert not {"landscape", "scores", "gap", "difficulty", "health"} & kinds


def test_sweeps_at_one_batch_each_share_their_series(tmp_path: Path, fit: FixtureFit) -> None:
    rows = [{"run": "r", "problems_per_batch": 8, "rollouts_per_problem": n} for n in (4, 8)]
    page = page_of(tmp_path, [("a", fit)], None, study=StudyView(name="s", runs=rows))
    assert page.data["several"] is False
    assert [s["label"] for s in page.data["series"]] == [
        f"n={n}" for n in (4, 8, 16, 32, 64, 128, 256, 512)
    ]
    rows.append({"run": "r", "problems_per_batch": 16, "rollouts_per_problem": 8})
    page = page_of(tmp_path, [("a", fit)], None, study=StudyView(name="s", runs=rows))
    assert page.data["several"] is True
    labels = [s["label"] for s in page.data["series"]]
    assert {"8 × 8", "16 × 8"} <= set(labels)


def test_figures_say_what_they_show_here(tmp_path: Path) -> None:
    fit = make_fit(world="joint_capped")
    document = fit.document
    page = page_of(tmp_path, [("a", fit)], None)
    assert "direction" in {attrs.get("data-kind") for _, attrs in page.tags}
    for said in (summary, probability_sentence, loss_sentence, paper_sentence):
        assert said(document) in page.text
    assert summary(document)
    assert probability_sentence(document)
    assert document["direction"]["sentence"].replace("B_p", "Bₚ") in page.text
    assert backtest_sentence(document) in page.text


def test_law_of_problems_per_batch_has_its_figure(tmp_path: Path) -> None:
    fit = make_fit()
    fit.document["law_problems_per_batch"] = fit.document["law"]
    kinds = [attrs.get("data-kind") for _, attrs in page_of(tmp_path, [("a", fit)], None).tags]
    assert "law-problems-per-batch" in kinds


def test_fits_beside_the_first_are_folded_with_their_own_limits(tmp_path: Path) -> None:
    fits = [("first", make_fit()), ("second", make_fit(metric="best@4"))]
    notice = {"code": "few_seeds", "level": "caution", "text": "Of the second.", "remedy": "More."}
    fits[1][1].document["notices"] = [notice]
    page = page_of(tmp_path, fits, make_plan())
    by_id = {attrs.get("id"): (tag, attrs) for tag, attrs in page.tags}
    assert by_id["fit-1"][0] == "section"
    assert by_id["fit-2"][0] == "details"
    assert "open" not in by_id["fit-2"][1]
    limits = page.text[
        page.text.rindex("What limits these answers", 0, page.text.index("For comp")) :
    ]
    own, beside = limits.split("For comparison")
    assert "Of the second." not in own
    assert "Caution Of the second. More." in beside
    assert "best@4" in beside


def test_limits_stand_by_level_each_once(tmp_path: Path, fit: FixtureFit) -> None:
    plan, document = make_plan(), copy.deepcopy(fit.document)
    document["notices"] = [
        *plan["notices"],
        {"code": "no_skill", "level": "stop", "text": "It failed.", "remedy": "Train further."},
        {"code": "noise", "level": "note", "text": "Noise is guessed.", "remedy": ""},
    ]
    view = StudyView(
        name="s", warnings=[{"code": "run_failed", "message": f"run {i} failed"} for i in (1, 2)]
    )
    page = page_of(tmp_path, [("a", FixtureFit(document=document, curves=fit.curves))], plan,
                   study=view)  # fmt: skip
    text = page.text[page.text.rindex("What limits these answers") :]
    assert text.count("Only Bₚ = 16 was tested") == 1
    order = [text.index(w) for w in ("Stop It failed.", "Caution Only", "1 note", "Note Noise is")]
    assert order == sorted(order)
    assert "Caution run 1 failed 1 more of this kind run 2 failed Run the study again" in text
    # What a plan says of its budget goes before what the fit says of all, whose price is another.
    mine = {"code": "few_seeds", "level": "note", "text": "Of n = 64.", "remedy": "Train (1k)."}
    whole = {**mine, "text": "Of every n.", "remedy": "Train (9k)."}
    plan["notices"], document["notices"] = [mine], [whole]
    of = FixtureFit(document=document, curves=fit.curves)
    text = page_of(tmp_path, [("a", of)], plan).text
    text = text[text.rindex("What limits these answers") :]
    assert "Note Of n = 64. Train (1k)." in text
    assert "Of every n" not in text
    alone = page_of(tmp_path, [("a", of)], None).text
    assert "Of every n. Train (9k)." in alone[alone.rindex("What limits these answers") :]


@pytest.mark.parametrize("unit", ["rollouts", "gpu-hours"])
def test_budgets_in_a_table_have_a_unit_and_nothing_has_no_sign(unit: str) -> None:
    gap = {"rollouts_per_problem": 4, "problems_per_batch": 16, "gap_at_peak": 0.1, "gap": 0.1,
           "from": 269.0, "validation_lost": -0.0001, "overfits": False}  # fmt: skip
    (table,) = fit_tables({"unit": unit, "train_test": [gap]})
    assert f"Best at, {'GPU-hours' if unit == 'gpu-hours' else unit}" in table["head"]
    assert "0.000" in table["rows"][0]
    assert "-0.000" not in table["rows"][0]


def test_what_the_study_printed_stands_beside_its_own_panels(tmp_path: Path) -> None:
    fit = make_fit()
    fit.document["provenance"]["sources"] = ["published:qwen2.5-7b-hard"]
    page = page_of(tmp_path, [("a", fit)], None)
    assert "As the study printed it" in page.text
    assert "it levels off at n = 153" in page.text
    assert page.data["fits"][0]["printed"]["L"] == 4.47
    said = printed_sentences(fit.document)
    assert any("At 8.39M rollouts that law says n = " in line for line in said)
    full = " ".join(" ".join(full_lines(fit.document)).split())
    assert all(line in full for line in said)  # it was at another budget there
    fit.document["provenance"]["sources"] *= 2  # two panels at once are neither
    assert printed_sentences(fit.document) == []
    assert printed_sentences(make_fit().document) == []


def test_provenance_is_shown(tmp_path: Path, fit: FixtureFit) -> None:
    text = page_of(tmp_path, [("a", fit)], None).text
    assert fit.document["provenance"]["code_sha256"] in text


def test_headings_are_in_order_and_the_language_is_named(tmp_path: Path, fit: FixtureFit) -> None:
    view = StudyView(name="s", health={"kl": [{"bp": 32, "n": 8, "run": "r", "x": [1], "y": [1]}]})
    page = page_of(tmp_path, [("a", fit)], make_plan(), study=view)
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert ("html", {"lang": "en"}) in page.tags
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


@pytest.mark.heavy
def test_the_title_names_model_data_and_metric(tmp_path: Path, fit: FixtureFit) -> None:
    def title(name: str, study: StudyView | None = None) -> str:
        found = re.search("<h1>(.*?)</h1>", render_report(
            [(name, fit)], None, tmp_path / "r.html", study=study).read_text("utf-8"))  # fmt: skip
        return found[1] if found else ""

    assert title("logs/my-runs.csv") == "my-runs.csv, avg@4"
    assert title("published:qwen2.5-7b-easy") == "Qwen2.5-7B-Instruct, avg@4"
    view = StudyView(name="sums", provenance={"engine_options": {"model": "bits"}})
    assert title("STUDY", view) == "bits, avg@4"
    assert title("STUDY", StudyView(name="sums")) == "sums, avg@4"
    page = render_report([], make_plan(), tmp_path / "p.html").read_text("utf-8")
    assert "<h1>How to spend the rollouts</h1>" in page


def test_title_date_and_result(tmp_path: Path, fit: FixtureFit) -> None:
    path = render_report(
        [("a", fit)], None, tmp_path / "deep" / "er" / "r.html", title="Budget of May", now=NOON
    )
    assert path == tmp_path / "deep" / "er" / "r.html"
    page = Page(path.read_text("utf-8"))
    assert "Budget of May" in page.text
    assert "2026-03-01 12:00 UTC" in page.text
    assert [p.name for p in path.parent.iterdir()] == ["r.html"]  # no draft is left


def test_equal_input_makes_equal_pages(tmp_path: Path, fit: FixtureFit) -> None:
    first = render_report([("a", fit)], make_plan(), tmp_path / "1.html", now=NOON)
    second = render_report([("a", fit)], make_plan(), tmp_path / "2.html", now=NOON)
    assert first.read_bytes() == second.read_bytes()


def test_nothing_to_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs at least one of fit, plan and study"):
        render_report([], None, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_plan_alone_and_study_alone_make_a_page(tmp_path: Path) -> None:
    assert "976 steps" in page_of(tmp_path, [], make_plan()).text
    assert "Study: s" in page_of(tmp_path, [], None, study=StudyView(name="s")).text
    # Beside a fit an imported study, of which nothing else is known, would be a bare heading.
    beside = page_of(tmp_path, [("a", make_fit())], None, study=StudyView(name="s"))
    assert "Study: s" not in beside.text


def test_the_first_screen_counts_the_cautions_that_it_does_not_name(tmp_path: Path) -> None:
    named = {"code": "bp_untested", "level": "caution", "text": "Only B_p = 16.", "remedy": "Do."}
    more = [named | {"code": f"c{i}", "text": f"Caution {i}."} for i in range(2)]
    note = named | {"code": "n", "level": "note", "text": "A note."}
    plan = make_plan() | {"verdict": {"level": "caution", "reason": "Only B_p = 16."}}
    fit = make_fit()
    for mine, of_fit, says in (([named, note], [note], ""), ([named], more[:1], "1 more caution"),
                               ([named, *more], more, "2 more cautions")):  # fmt: skip
        both = [("a", FixtureFit(document={**fit.document, "notices": of_fit}, curves=fit.curves))]
        page = page_of(tmp_path, both, plan | {"notices": mine}).text
        below = f" Read {says} below" if says else ""
        assert f"Confidence: caution. Only Bₚ = 16.{below} What it gives" in page
        listed = len(re.findall(r"Caution (?:Only|Caution \d)", page))
        assert listed == (int(says.split()[0]) + 1 if says else 1)
    sound = {"verdict": {"level": "ok", "reason": ""}, "notices": [note]}
    assert "cautions below" not in first_screen(page_of(tmp_path, [("a", fit)], plan | sound))


def test_budgets_in_gpu_hours_are_written_as_everywhere(tmp_path: Path, fit: FixtureFit) -> None:
    curves = [c.replace(gpu_hours_K=c.rollouts_K / 900) for c in fit.curves]
    hours = FixtureFit(document={**fit.document, "unit": "gpu-hours"}, curves=curves)
    text = page_of(tmp_path, [("a", hours)], None).text
    assert "budgets in GPU-hours" in text
    assert "GPU-hours Best n Interval" in text  # the head of a table
    assert not re.search("[gG]pu-hours", text)


def test_the_mark_of_the_choice_stands_at_the_budget_in_the_unit_of_the_curves(
    fit: FixtureFit,
) -> None:
    plan = make_plan()
    by_rollouts = picture(fit, plan)
    assert by_rollouts is not None
    assert by_rollouts["unit"] == "rollouts (log scale)"
    assert "Ring: this plan." in by_rollouts["says"]
    rate = plan["budget_rollouts"] / 500
    curves = [c.replace(gpu_hours_K=c.rollouts_K / rate) for c in fit.curves]
    hours = FixtureFit(document={**fit.document, "unit": "gpu-hours"}, curves=curves)
    places = []
    for spent in (500.0, 5000.0, None):
        cost = {**plan["cost"], "gpu_hours": spent}
        found = picture(hours, {**plan, "cost": cost})
        assert found is not None
        assert found["unit"] == "GPU-hours (log scale)"
        places.append(found["choice"])
    assert places[1][0] > places[0][0]
    assert places[2] is None  # nobody knows where the budget lies
    assert "Ring" not in found["says"]


def test_the_thumbnail_names_every_n_and_numbers_its_axes(fit: FixtureFit) -> None:
    drawn = picture(fit, make_plan())
    assert drawn is not None
    names = drawn["names"]
    assert sorted(name["n"] for name in names) == list(N)
    assert [name["n"] for name in names if name["chosen"]] == [256]
    y = [name["y"] for name in names]
    assert all(b - a >= 12 for a, b in itertools.pairwise(y))
    assert TOP - 1 <= y[0] < y[-1] <= BOTTOM + 5
    of_lines = {(line["light"], line["dark"]) for line in drawn["lines"]}
    assert {(name["light"], name["dark"]) for name in names} == of_lines
    assert drawn["budgets"] == ["8,200", "8.4M"]
    top = max(at["score"] for row in fit.document["curves"] for at in row["at"])
    assert drawn["scores"][0] == (TOP, f"{top:.3f}")
    # Of many n some are named: the largest, the choice, no two over each other.
    rows = fit.document["curves"]
    many = [{**rows[0], "rollouts_per_problem": n} for n in range(1, 31)]
    crowd = picture(FixtureFit(document={**fit.document, "curves": many}, curves=[]),
                    make_plan() | {"rollouts_per_problem": 29})  # fmt: skip
    assert crowd is not None
    assert {29, 30} < {name["n"] for name in crowd["names"]}
    assert len(crowd["names"]) <= 12
    assert crowd["names"][0]["y"] >= 0


def test_names_of_lines_that_end_together_are_pushed_up_into_the_box() -> None:
    """12.5 apart; the lowest stands 4 below the plot at most: 164, 151.5 and 139."""
    one: Any = np.ones(1)
    lines = {(8, n): Line(one, one, one, one, one) for n in (4, 8, 16)}
    styles: Any = {pair: SimpleNamespace(light="l", dark="d") for pair in lines}
    names = _names(lines, styles, None, lambda score: BOTTOM)
    assert [(name["n"], name["y"]) for name in names] == [(16, 139.0), (8, 151.5), (4, 164.0)]


def test_a_page_of_rewards_has_one_unit(tmp_path: Path, fit: FixtureFit) -> None:
    """Before, the first screen was in the log's units; tables, sentences and figures in 0..1."""
    assert "as logged" not in page_of(tmp_path, [("a", fit)], make_plan()).text
    ranged = {**fit.document, "provenance": {"score_range": [-1.0, 3.0]}}
    curves = [c.replace(score_range=(-1.0, 3.0)) for c in fit.curves]
    of: Any = FixtureFit(document=ranged, curves=curves)
    page = page_of(tmp_path, [("a", of)], make_plan())
    assert "Scores may be -1 to 3, as logged." in first_screen(page)
    test, row = fit.document["backtest"], fit.document["curves"][0]
    lost, best = max(test["rules"].values()), fit.document["best"][-1]["score"]
    for value, by in ((test["mae_model"], 0.0), (lost, 0.0), (row["ceiling"], -1.0), (best, -1.0)):
        assert f"{round(4 * value + by, 2):.2f}" in page.text, value
    drawn, first = fit_payload("a", of), fit.curves[0]
    assert drawn["runs"][0]["last"] == pytest.approx(4 * first.score_K[-1] - 1, abs=2e-3)
    at = drawn["document"]["curves"][0]["at"][0]
    assert at["score"] == pytest.approx(4 * row["at"][0]["score"] - 1)
    assert drawn["document"]["probabilities"]["regret"][0][0] == pytest.approx(
        4 * fit.document["probabilities"]["regret"][0][0])
    line = lines_of(of)[row["problems_per_batch"], row["rollouts_per_problem"]]
    assert line.score[-1] == pytest.approx(4 * row["at"][-1]["score"] - 1)


# ---- words -----------------------------------------------------------------------------------


def test_intervals_say_what_is_not_bounded() -> None:
    assert interval([256, 512]) == "256 to 512"
    assert interval([None, 512]) == "at most 512"
    assert interval([256, None]) == "at least 256"
    assert interval([None, None]) == interval(None) == "not bounded"
    assert interval([256, 256.2]) == "256"


def test_probabilities_are_never_rounded_to_certainty() -> None:
    assert [percent(p) for p in (0, 0.004, 0.5, 0.996, 1, None)] == [
        "0%", "<1%", "50%", ">99%", "100%", "–",
    ]  # fmt: skip


def test_all_draws_are_no_certainty() -> None:
    assert [chance(p) for p in (0, 0.5, 1.0, None)] == ["0%", "50%", ">99%", "–"]


def test_extrapolation_in_words() -> None:
    assert extrapolation(0.0) == extrapolation(None) == ""
    assert extrapolation(-0.30103) == "2 times below the smallest at which n were compared"
    assert extrapolation(2.0) == "100 times the largest at which n were compared"


def test_what_is_copied_from_the_page_says_for_how_many_processes_it_is(tmp_path: Path) -> None:
    trl = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 256,
           "learning_rate": 2.8284271e-06}  # fmt: skip
    for steps, first in ((256, "for one process: on N"), (64, "for 4 processes: 4 x 16 x 64 ")):
        plan = {**make_plan(), "trainer": {
            "trl": trl | {"gradient_accumulation_steps": steps}, "slime": {"--lr": 1e-6}}}
        path = render_report([("a", make_fit())], plan, tmp_path / "settings.html")
        page = path.read_text("utf-8")
        assert f'<pre tabindex="0"># {first}' in page
        assert "learning_rate=2.82843e-06" in page
        assert '<pre tabindex="0">--lr 1e-06' in page


def test_settings_in_words() -> None:
    assert setting_name({"setting": {"kind": "fixed_batch_size", "value": 8192}}) == (
        "batch of 8,192 rollouts held fixed"
    )
    assert "together" in setting_name({"setting": {"kind": "joint", "value": None}})


def test_best_n_is_read_only_inside_its_rows(fit: FixtureFit) -> None:
    row = best_at(fit.document, 1e6)
    assert row is not None
    assert abs(math.log(row["x"] / 1e6)) < 0.13
    assert best_at(fit.document, 1e8) is None
    assert best_at({}, 1e6) is None


def document_of(**changed: Any) -> dict[str, Any]:
    """A small document of two budgets, to be read by hand."""
    rows = [
        {"x": 1e5, "rollouts_per_problem": 8.0, "interval": [8.0, 11.0], "extrapolated": True},
        {"x": 2e5, "rollouts_per_problem": 9.0, "interval": [8.0, 16.0], "extrapolated": False},
        {"x": 4e6, "rollouts_per_problem": 410.0, "interval": [260.0, 512.0],
         "probability": {"8": 0.02, "512": 0.98}, "confidence_set": [512],
         "expected_regret": {"8": 0.09, "512": 0.001}, "extrapolated": False},
    ]  # fmt: skip
    curves = [{"problems_per_batch": 32, "rollouts_per_problem": n} for n in (8, 512)]
    rising = {"octaves": 5.5, "lower_bound": 4.1, "claimed": True}
    law = {"rising": rising, "identified": {"plateau": False}, "plateau": 452.0}
    return {"unit": "rollouts", "best": rows, "curves": curves, "law": law, **changed}


def test_summary_names_a_rise_only_where_it_is_claimed() -> None:
    goes = "The best n is 9 (8 to 16) at 200k, and 410 (260 to 512) at 4M rollouts."
    rises = " It rises 45-fold, at least 16-fold (one-sided 95% bound)"
    document = document_of()
    assert summary(document) == f"{goes}{rises}; where it levels off is not known."
    document["law"]["identified"]["plateau"] = True
    assert summary(document) == f"{goes}{rises}, and levels off at n = 452."
    document["law"]["rising"]["claimed"] = False
    assert summary(document) == (
        f"{goes} These runs do not establish that it rises with the budget."
    )
    document["law"] = {}
    assert summary(document) == goes
    # What is not told apart is not called best.
    document["best"][1]["confidence_set"] = [8, 16]
    assert summary(document) == goes.replace("9 (8 to 16)", "8 to 16")
    document["best"][-1] |= {"interval": [8.0, 16.0], "confidence_set": [8, 16]}
    assert summary(document) == "The best n is 8 to 16 from 200k to 4M rollouts."
    document["best"][-1] |= {"interval": [260.0, 512.0], "confidence_set": [512]}
    document["best"] = document["best"][-1:]
    assert summary(document) == "The best n is 410 (260 to 512) at 4M rollouts."
    document["best"][0] |= {"rollouts_per_problem": 13.4, "interval": [8.3, 22.6]}
    assert summary(document) == "The best n is 13 (8 to 23) at 4M rollouts."  # as fit has it
    document["curves"] = document["curves"][:1]
    assert summary(document) == "Only n = 8 was tested, up to 4M rollouts."
    assert "Nothing can be said" in summary({"best": []})


def test_how_sure_and_what_the_wrong_n_costs() -> None:
    document = document_of()
    assert probability_sentence(document) == (
        "At 4M rollouts, n = 512 is best with probability 98%. Only n = 512 is still in "
        "contention there."
    )
    document["best"][-1]["confidence_set"] = [256, 512]
    assert "n = 256 and 512 are still in contention" in probability_sentence(document)
    assert loss_sentence(document) == "At 4M rollouts, n = 8 is expected to lose 0.090 of score."
    document["best"][-1]["confidence_set"] = [8, 256, 512]
    assert loss_sentence(document) == ""  # it may be the best, and lose nothing
    document["best"][-1]["confidence_set"] = [256, 512]
    document["best"][-1]["probability"] = {"8": 0.4, "64": 0.35, "512": 0.25}
    assert probability_sentence(document).startswith(
        "At 4M rollouts, no n is best with a probability above 40%. n = 256"
    )
    assert probability_sentence({}) == loss_sentence({}) == ""


def test_a_gain_that_may_be_a_loss_says_so() -> None:
    gain = {"score": 0.012, "interval": [-0.031, 0.056], "problems_per_batch": 32,
            "rollouts_per_problem": 16}  # fmt: skip
    shown = _gain({"gain": gain, "problems_per_batch": 32})
    gained = "+0.012 (-0.031 to +0.056) over today's n\u00a0=\u00a016"
    assert shown == f"{gained} at equal rollouts (may be a loss)"
    assert _gain({"gain": {**gain, "tested": False}, "problems_per_batch": 32}).endswith(
        "16 at equal rollouts (untested, may be a loss)"
    )
    gain["interval"] = [0.001, 0.056]
    assert _gain({"gain": gain, "problems_per_batch": 32}).endswith("16 at equal rollouts")


@pytest.mark.parametrize("unit", ["rollouts", "gpu-hours"])
def test_sentences_and_figures_go_on_to_the_budget_of_the_plan(
    tmp_path: Path, fit: FixtureFit, unit: str
) -> None:
    """Before, a page that said n = 256 for 4e7 rollouts called n = 8 the best one, at 8e6."""
    end = fit.document["support"][1]
    plan = with_chances(make_plan(4e7), [end, 2e7, 4e7]) | {"law": {"unit": unit}}
    document = {**fit.document, "unit": unit}
    at = f"At 40M {'GPU-hours' if unit == 'gpu-hours' else unit}"
    assert probability_sentence(document, plan) == (
        f"{at}, n = 256 is best with probability 60%. n = 256 and 512 are still in contention "
        "there.")  # fmt: skip
    assert loss_sentence(document, plan) == f"{at}, n = 8 is expected to lose 0.090 of score."
    assert chances_words(document, plan) == (
        "n = 128 is best with 6%, 256 with 60%, 512 with 28%, others 6%")  # fmt: skip
    of: Any = FixtureFit(document=document, curves=fit.curves)
    if unit == "rollouts":
        page = page_of(tmp_path, [("a", of), ("b", of)], plan)
        assert probability_sentence(document, plan) in page.text
        first, beside = (one["document"]["probabilities"] for one in page.data["fits"])
        assert first["x"] == [*beside["x"], 2e7, 4e7]
        assert [row[-1] for row in first["best"]] == [row[-1] for row in plan["chances"]["best"]]
        assert beside["x"] == fit.document["probabilities"]["x"]
    # A plan by another unit, or of other n, says nothing of these axes.
    other = plan | {"law": {"unit": "tokens"}}
    fewer = {**document, "curves": document["curves"][:-1]}
    for apart, by in ((document, other), (fewer, plan)):
        assert probability_sentence(apart, by) == probability_sentence(apart)
        assert chances_words(apart, by) == ""
        assert with_plan(apart, by) == apart


def test_backtest_is_compared_with_no_change() -> None:
    test = {"cuts": [2e6, 1e6], "mae_model": 0.0112, "mae_best_so_far": 0.066, "coverage": 0.9,
            "n_held_out": 39, "widened_by": 1.3}  # fmt: skip
    assert backtest_sentence({"level": 0.95, "backtest": test}) == (
        "Cut at 2M and at 1M rollouts, the sweep predicts later scores within 0.011 on average; "
        "assuming no further change misses by 0.066. Of 39 held-out scores, 90% lie inside their "
        "95% intervals. So intervals beyond the data are 1.3 times as wide."
    )
    assert "wide" not in (backtest_sentence({"backtest": {**test, "widened_by": 1.04}}) or "")
    assert backtest_sentence({"backtest": {"mae_model": None}}) is None


def test_the_papers_method_in_one_sentence() -> None:
    rows = zip((8, 8, 32, 64), (1e3, 2e4, 5e4, 4e6), strict=True)
    paper = {"frontier": [{"rollouts_per_problem": n, "from": at} for n, at in rows]}
    said = ("By the paper's own method n = 8 is best at first, n = 32 from 50k, n = 64 from 4M "
            "rollouts on.")  # fmt: skip
    alone = {"frontier": paper["frontier"][:2], "unit": "gpu-hours"}
    assert paper_sentence({"paper": alone}) == "By the paper's own method n = 8 is best throughout."
    assert paper_sentence({"paper": paper}) == said
    paper["frontier"][-1]["rollouts_per_problem"] = 16
    assert paper_sentence({"paper": paper}) == ""  # it jumps about: no answer
    refused = paper_sentence({"paper": {"refused": "too few records."}})
    assert refused == "The paper's own method gives no answer here: too few records."
    assert paper_sentence({}) == ""


def test_what_would_change_reads_crossovers_on_both_sides() -> None:
    crossovers = [
        {"at": at, "interval": ends, "from_rollouts_per_problem": a, "to_rollouts_per_problem": b}
        for at, ends, a, b in (
            (5e4, [4e4, 6e4], 4, 8), (1.5e5, [None, 2e5], 8, 16), (1e6, [8e5, 2e6], 16, 512))
    ]  # fmt: skip
    document = document_of(crossovers=crossovers)
    assert changes(document, {"budget_rollouts": 2e5, "rollouts_per_problem": 16}) == [
        "Half the budget: best n 8 (8 to 11), beyond the data.",
        "Twice the budget: best n 9 (8 to 16).",
        "Below 150k rollouts (at most 200k): n = 8 leads.",
        "Above 1M rollouts (800k to 2M): n = 512 leads.",
    ]
    beyond = {"budget_rollouts": 2e6, "rollouts_per_problem": 64,
              "overtakes": {"x": 4e5, "rollouts_per_problem": 32}}  # fmt: skip
    assert changes(document, beyond)[2:] == ["Below 400k rollouts: n = 32 leads."]
    # Another B_p of the same n, and crossovers of other n than the plan's, change no n.
    same = document_of(crossovers=[
        crossovers[0] | {"to_rollouts_per_problem": 4}, crossovers[2]])
    assert len(changes(same, {"budget_rollouts": 2e5, "rollouts_per_problem": 4})) == 2
    assert len(changes(document, {"budget_rollouts": 2e5, "rollouts_per_problem": 8})) == 2
    open_ = {"budget_rollouts": 2e5, "not_told_apart": {"why": "any"}}
    assert [line[:4] for line in changes(document, open_)] == ["Half", "Twic"]  # nobody leads
    assert changes(document | {"unit": "tokens"}, {"budget_rollouts": 2e5}) == []
    assert changes(None, make_plan()) == []


# ---- looks -----------------------------------------------------------------------------------


def relative_luminance(color: str) -> float:
    """WCAG 2, of "#rrggbb", 0 (black) to 1 (white)."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def contrast(first: str, second: str) -> float:
    """WCAG 2, of two colours, 1 to 21."""
    low, high = sorted(map(relative_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("theme", "background", "sign"), [("light", "#ffffff", -1), ("dark", "#12141c", 1)]
)
def test_colours_are_ordered_in_lightness_and_readable(
    theme: str, background: str, sign: int
) -> None:
    ramp = [ramp_color(i / 12, theme) for i in range(13)]
    assert all(contrast(color, background) >= 4.5 for color in ramp)
    steps = np.diff([relative_luminance(color) for color in ramp]) * sign
    assert np.all(steps > -0.012)  # the order survives a grey printer
    assert abs(contrast("#000000", "#ffffff") - 21) < 1e-9


def test_styles_follow_n_and_tell_batches_apart() -> None:
    one = series_styles([(32, n) for n in (8, 16, 32)])
    assert len({s.symbol for s in one.values()}) == 3
    assert len({s.dash for s in one.values()}) == 3
    assert one[(32, 8)].label == "n=8"
    two = series_styles([(32, 8), (64, 8), (32, 16)])
    assert two[(32, 8)].light == two[(64, 8)].light != two[(32, 16)].light
    assert two[(32, 8)].dash != two[(64, 8)].dash
    assert two[(64, 8)].label == "64 × 8"
    assert series_styles([]) == {}


def test_the_small_bundle_is_taken_where_it_was_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    from isocompute.report import html

    whole = SCRIPT_OF_PLOTLY()
    monkeypatch.setattr(html, "SMALL_BUNDLE", "report.css")  # any file beside the page's own
    assert SCRIPT_OF_PLOTLY().startswith(":root")
    monkeypatch.setattr(html, "SMALL_BUNDLE", "no-such-file")
    assert len(SCRIPT_OF_PLOTLY()) > 3e6
    assert "plotly.js" in whole[:200]


def test_a_bundle_of_another_hash_is_refused() -> None:
    script = Path(__file__).parents[2] / "scripts" / "fetch_plotly.py"
    scope: dict[str, object] = {"__name__": "fetch_plotly", "__file__": str(script)}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), scope)
    script_of = scope["script_of"]
    assert callable(script_of)
    with pytest.raises(SystemExit, match="must have the SHA-512 .* nothing kept"):
        script_of(b"something else")


def test_our_own_sentences_are_never_cut() -> None:
    sentence = "what the law would have said " * 40
    assert plain({"backtest": sentence}, TEXT_LIMIT)["backtest"] == sentence
    assert len(plain(["x" * 5_000], TEXT_LIMIT)[0]) == 2_000
