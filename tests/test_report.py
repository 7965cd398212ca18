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
from typing import Any

import numpy as np
import pytest

from isocompute.domain.notices import NOTICES
from isocompute.domain.text import plain
from isocompute.errors import InputError
from isocompute.report import StudyView, render_report
from isocompute.report.html import content_security_policy, json_for_html, plotly_script
from isocompute.report.payload import TEXT_LIMIT, numbers, thin
from isocompute.report.style import contrast, ramp_color, relative_luminance, series_styles
from isocompute.report.words import (
    backtest_sentence,
    extrapolation,
    interval,
    law_at,
    percent,
    redact,
    setting_name,
    summary_of_law,
    what_would_change,
)
from report_fixtures import (  # noqa: F401  (`short_bundle` acts on every test here)
    FixtureFit,
    Page,
    make_fit,
    make_plan,
    page_of,
    short_bundle,
    with_whole_bundle,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202e\u2028"
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)

SCRIPT_OF_PLOTLY = plotly_script  # before the tests put a short one in its place


@pytest.fixture(scope="module")
def fit() -> FixtureFit:
    return make_fit(points=24)


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
    fit = make_fit(points=6, name=HOSTILE, metric=HOSTILE)
    document = copy.deepcopy(fit.document)
    document["provenance"] = {HOSTILE: {HOSTILE: HOSTILE}}
    document["warnings"] = [{"code": HOSTILE, "message": HOSTILE}]
    document["curves"][0]["flags"] = [HOSTILE]
    document["law"]["flags"] = [HOSTILE]
    hostile = FixtureFit(document=document, curves=fit.curves, records=fit.records)
    plan = make_plan()
    plan["warnings"] = [{"code": HOSTILE, "message": HOSTILE}]
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
    page = page_of(tmp_path, [(HOSTILE, hostile)], plan, study=view, title=HOSTILE)
    clean = page_of(tmp_path, [("a", make_fit(points=6))], make_plan())
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
        ("run --api-key s3cr3t --n 8", "run --api-key (hidden) --n 8"),
        ("hf_abcdefghijklmnopqrstuv", "(hidden)"),
        ("postgres://me:pw@host/db", "postgres://me:(hidden)@host/db"),
        ({"tokens_per_rollout": 5}, {"tokens_per_rollout": 5}),
    ],
)
def test_secrets_are_hidden(value: Any, hidden: Any) -> None:
    assert redact(value) == hidden


def test_no_secret_reaches_the_page(tmp_path: Path) -> None:
    fit = make_fit(points=6)
    fit.document["provenance"] = {"command": "fit --token=s3cr3tvalue", "api_key": "s3cr3tvalue"}
    view = StudyView(name="s", provenance={"password": "s3cr3tvalue"})
    path = render_report([("a", fit)], None, tmp_path / "r.html", study=view)
    assert "s3cr3tvalue" not in path.read_text("utf-8")


# ---- size ----------------------------------------------------------------------------------


@with_whole_bundle
def test_hundred_runs_of_two_hundred_evaluations_stay_below_eight_megabytes(tmp_path: Path) -> None:
    fit = make_fit(seeds=15, points=200)  # 105 runs
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
    same = thin(x[:50], y[:50], columns=100)
    assert same[0] is not None
    assert np.array_equal(same[0], x[:50])


def test_page_says_what_was_thinned(tmp_path: Path) -> None:
    fit = make_fit(seeds=1, points=8000)
    page = page_of(tmp_path, [("a", fit)], None)
    thinned = page.data["fits"][0]["thinned"]
    assert thinned["dropped"] > 0
    assert thinned["dropped"] + thinned["drawn"] == 7 * 8000


# ---- what it says ----------------------------------------------------------------------------


def test_first_screen_is_the_prescription(tmp_path: Path, fit: FixtureFit) -> None:
    page = page_of(tmp_path, [("my sweep", fit)], make_plan())
    answer = page.text[: page.text.index("Learning curves")]
    for part in (
        "32 problems per batch",
        "256 rollouts per problem, n",
        "488 update steps, M",
        "For 4M rollouts. The law’s n*: 256 to 512 (95% interval).",
        "0.668 (0.655 to 0.681)",
        "2.83e-6",
        "6.4B tokens, 310 GPU-hours",
        "inside the measured budgets",
        "Below 2.67M rollouts (2.14M to 3.34M): n = 256 leads",
        "Half the budget: n* =",
        "3 warnings to read",
    ):
        assert part in answer, part
    assert page.text.index("The prescription") < page.text.index("What it costs")


def test_extrapolation_is_said_on_the_first_screen(tmp_path: Path, fit: FixtureFit) -> None:
    plan = {**make_plan(4e7), "extrapolation_log10": 1.0}
    assert (
        "10 times past the measured budgets (1.00 decades)"
        in page_of(tmp_path, [("a", fit)], plan).text
    )


def test_refusal_says_why_and_what_to_run_next(tmp_path: Path, fit: FixtureFit) -> None:
    plan = {
        **dict.fromkeys(make_plan(), None),
        "refusal": {"reason": "one configuration only.", "run_next": ["isocompute run more.yaml"]},
        "warnings": [],
    }
    text = page_of(tmp_path, [("a", fit)], plan).text
    assert "No prescription" in text
    assert "one configuration only." in text
    assert "isocompute run more.yaml" in text
    assert "problems per batch" not in text


def test_without_a_plan_the_law_speaks(tmp_path: Path, fit: FixtureFit) -> None:
    text = page_of(tmp_path, [("a", fit)], None).text
    assert "n* = 405 at 4M rollouts" in text
    assert "The rise is real: n* doubles 5.2 times, at least 3.9 (one-sided 95% bound)." in text


def test_without_a_law_the_page_says_so_and_leaves_its_figure_out(tmp_path: Path) -> None:
    fit = make_fit(points=8)
    fit.document["law"] = {"form": None, "variable": "rollouts", "at": [], "flags": []}
    page = page_of(tmp_path, [("a", fit)], None)
    assert "No law could be fitted to these curves" in page.text
    assert "law" not in {attrs.get("data-kind") for _, attrs in page.tags}


def test_sections_without_data_are_left_out(tmp_path: Path, fit: FixtureFit) -> None:
    kinds = {attrs.get("data-kind") for _, attrs in page_of(tmp_path, [("a", fit)], None).tags}
    assert {"curves", "law", "probability", "backtest"} <= kinds
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
    assert {"8 × 8", "16 × 8", "32 × 8"} <= set(labels)


def test_law_value_behind_the_choice_is_named(tmp_path: Path, fit: FixtureFit) -> None:
    plan = {**make_plan(), "rollouts_per_problem_law": 421.0}
    assert (
        "The law puts n* at 421; n is the power of two below it."
        in page_of(tmp_path, [("a", fit)], plan).text
    )
    capped = {**plan, "rollouts_per_problem": 64}
    assert "the warnings say what holds n at 64" in page_of(tmp_path, [("a", fit)], capped).text


def test_sensitivity_is_a_figure_and_a_table(tmp_path: Path) -> None:
    fit = make_fit(points=8)
    fit.document["sensitivity"] = [
        {"rule": "finer bins", "x": [1e6, 2e6], "rollouts_per_problem": [100.0, 200.0]},
        {"rule": "coarser bins", "x": [1e6], "rollouts_per_problem": None, "refused": "too few"},
    ]
    page = page_of(tmp_path, [("a", fit)], None)
    assert "sensitivity" in {attrs.get("data-kind") for _, attrs in page.tags}
    assert "finer bins 100, 200" in page.text
    assert "coarser bins too few" in page.text


def test_law_of_problems_per_batch_has_its_figure(tmp_path: Path) -> None:
    fit = make_fit(points=8)
    fit.document["law_problems_per_batch"] = fit.document["law"]
    kinds = [attrs.get("data-kind") for _, attrs in page_of(tmp_path, [("a", fit)], None).tags]
    assert "lawbp" in kinds


def test_every_fit_has_its_section_and_warnings_are_grouped_by_code(tmp_path: Path) -> None:
    fits = [("first", make_fit(points=6)), ("second", make_fit(points=6, metric="best@4"))]
    page = page_of(tmp_path, fits, make_plan())
    ids = [attrs.get("id") for _, attrs in page.tags]
    assert "fit-1" in ids
    assert "fit-2" in ids
    assert page.text.count("bp_untested") == 1
    assert "only B_p=32 was tested. plan" in page.text
    assert "first, second" in page.text
    assert NOTICES["bp_untested"].remedy in page.text
    assert "best@4" in page.text


def test_provenance_is_shown(tmp_path: Path, fit: FixtureFit) -> None:
    text = page_of(tmp_path, [("a", fit)], None).text
    assert "isocompute fit published:qwen2.5-7b-easy" in text
    assert "0" * 64 in text


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
    assert "488 update steps" in page_of(tmp_path, [], make_plan()).text
    assert "Study: s" in page_of(tmp_path, [], None, study=StudyView(name="s")).text


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


def test_extrapolation_in_words() -> None:
    assert extrapolation(0.0) == "inside the measured budgets"
    assert extrapolation(-0.30103) == "2.0 times below the measured budgets (0.30 decades)"
    assert extrapolation(2.0) == "100 times past the measured budgets (2.00 decades)"
    assert "not known" in extrapolation(None)


def test_settings_in_words() -> None:
    assert setting_name({"setting": {"kind": "fixed_batch_size", "value": 8192}}) == (
        "batch of 8,192 rollouts held fixed"
    )
    assert "together" in setting_name({"setting": {"kind": "joint", "value": None}})


def test_law_is_read_only_inside_its_table(fit: FixtureFit) -> None:
    row = law_at(fit.document, 1e6)
    assert row is not None
    assert abs(math.log(row["x"] / 1e6)) < 0.07
    assert law_at(fit.document, 1e8) is None
    assert law_at({"law": None}, 1e6) is None


def test_summary_names_a_rise_only_where_it_is_claimed(fit: FixtureFit) -> None:
    document = copy.deepcopy(fit.document)
    document["law"]["rising"] = {"octaves": 0.4, "lower_bound": -0.1, "claimed": False}
    assert "do not establish that n* rises" in summary_of_law(document)
    assert "Plateau: n = 452 (300 to 512)." in summary_of_law(document)
    document["law"]["identified"] = {"plateau": False}
    document["law"]["plateau_interval"] = [49, None]
    assert summary_of_law(document).endswith("Where it levels off is not known: at least 49.")
    document["law"]["plateau"] = None
    assert summary_of_law(document).endswith("rises with the budget.")


def test_backtest_is_compared_with_the_best_so_far(fit: FixtureFit) -> None:
    better = backtest_sentence(fit.document)
    assert better is not None
    assert "better than taking the best so far (0.0140)" in better
    assert "held 93%" in better
    worse = copy.deepcopy(fit.document)
    worse["backtest"]["mae_law"] = 0.05
    assert "no better than" in (backtest_sentence(worse) or "")
    assert backtest_sentence({"backtest": {"mae_law": None}}) is None


def test_backtest_names_what_was_left_out(fit: FixtureFit) -> None:
    document = copy.deepcopy(fit.document)
    said = {"full": 420.0, "law": 137.0, "best_so_far": 64.0, "power_law": 224.0}
    document["backtest"]["blend"] = {"better": True}
    document["backtest"]["left_out"] = [
        {"left_out": "budget", "refused": None, "at": 3.88e6, "rollouts_per_problem": said,
         "score_lost": {"law": 0.05}},
        {"left_out": "rollouts_per_problem", "value": 512, "refused": None, "at": 3.88e6,
         "rollouts_per_problem": said, "score_lost": {"law": 0.02}},
        {"left_out": "budget", "refused": "nothing is left", "at": 1.0},
    ]  # fmt: skip
    text = backtest_sentence(document) or ""
    assert "A blend of the two predicts better than either." in text
    assert "Without the last doubling of the budget the law would have said n* = 137 at" in text
    assert "(all data: 420), which loses 0.050 of score. Without n = 512 the law" in text
    assert "nothing is left" not in text


def test_backtest_warns_where_the_baseline_wins(fit: FixtureFit) -> None:
    worse = copy.deepcopy(fit.document)
    worse["backtest"].update(mae_law=0.05, mae_power_law=0.012, n_held_out=36)
    text = backtest_sentence(worse) or ""
    assert "a power law misses by 0.0120" in text
    assert "of the 36 held-out values" in text
    assert "Do not extrapolate" in text


def test_what_would_change_names_the_leader_where_the_law_differs(fit: FixtureFit) -> None:
    said = what_would_change(fit.document, make_plan(4.0e6))
    assert said[0].endswith("n = 512 leads them at this budget with probability 97%.")


def test_what_would_change_reads_crossovers_on_both_sides(fit: FixtureFit) -> None:
    said = what_would_change(fit.document, make_plan(2.0e6))
    assert any(line.startswith("Below 1.25M") and "n = 128" in line for line in said)
    assert any(line.startswith("Above 2.67M") and "n = 512" in line for line in said)
    assert any(line.startswith("Twice the budget") for line in said)
    assert any("Another B" in line for line in said)


# ---- looks -----------------------------------------------------------------------------------


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


def test_why_this_n_in_one_sentence() -> None:
    from isocompute.report.words import law_sentence

    plan = {"rollouts_per_problem": 512, "rollouts_per_problem_law": 406.0,
            "law_rollouts_per_problem": 256, "law_expected_regret": 0.0249,
            "chosen_by": "expected_score"}  # fmt: skip
    assert law_sentence(plan) == (
        "The law puts n* at 406, rounded down 256, which would lose 0.025 of score; n=512 has the "
        "best expected score."
    )
    assert law_sentence({**plan, "law_rollouts_per_problem": 512}) == (
        "The law puts n* at 406; n=512 has the best expected score."
    )
    tied = law_sentence({**plan, "chosen_by": "tie_by_trend", "law_expected_regret": None})
    assert tied.endswith("n=512 is tied with the best, on the side to which n* moves.")
    assert law_sentence({**plan, "chosen_by": "law"}).endswith("what holds n at 512.")
    assert law_sentence({}) == ""


def test_a_blend_is_named_where_it_is_better() -> None:
    from isocompute.report.words import backtest_sentence

    blend = {"better": True, "weight": 0.49, "mae_blend": 0.0256, "n_held_out": 154}
    test = {"mae_law": 0.03, "mae_best_so_far": 0.04, "blend": blend}
    said = backtest_sentence({"backtest": test}) or ""
    assert "A blend of both (49% fit) misses by 0.0256 on the 154 values" in said
    worse = {**test, "blend": {**blend, "better": False}}
    assert "blend" not in (backtest_sentence({"backtest": worse}) or "")


def test_the_small_bundle_is_taken_where_it_was_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    from isocompute.report import html

    whole = SCRIPT_OF_PLOTLY()
    monkeypatch.setattr(html, "SMALL_BUNDLE", "report.css")  # any file beside the page's own
    assert SCRIPT_OF_PLOTLY().startswith(":root")
    monkeypatch.setattr(html, "SMALL_BUNDLE", "no-such-file")
    assert len(SCRIPT_OF_PLOTLY()) > 4e6
    assert "plotly.js" in whole[:200]


def test_a_bundle_of_another_hash_is_refused() -> None:
    script = Path(__file__).parents[1] / "scripts" / "fetch_plotly.py"
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
