"""The fourth set of layouts: right, or a line that says what to do; and right once it is done."""

from __future__ import annotations

from pathlib import Path

import pytest

import set_04_b  # noqa: F401  # enters its layouts beside the others
from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from layouts import Ask
from layouts_blind import Truth
from set_04 import LAYOUTS

PATTERN = r"add --set pattern='bp\{problems_per_batch\}_n\{rollouts_per_problem\}_seed\{seed\}'"
REFUSED = {
    "sqlite_dump_without_header": r"first line looks like a row .*put a line of names above it",
    "jq_series_of_unequal_length": r"must be a list of rows with a step",
    "header_again_in_new_order": PATTERN,
    "gnuplot_blocks": r"Expected 2 columns, got 1: # bp=256",
    "rollouts_since_last_evaluation": r"512 at step 2 and 8,192 at step 62.*add them up",
    "generated_and_trained": r"has trained_rollouts, generated_rollouts; rename the one",
    "tokens_with_prompts": r"has tokens, completion_tokens; rename the one",
    "solved_of_tested": r"must be in 0..1, but row 1 has 105",
    "other_evaluation_from_40": r"one problem set, but hold .*choose one with --problem-set",
    "minus_one_for_none": PATTERN,
    "last_score_carried_on": r"where val/evaluated_at says .*--set step=val/evaluated_at",
    "step_within_epoch": PATTERN,
    "steps_sorted_as_text": PATTERN,
    "evaluated_policy_is_older": r"--set step=eval/policy_version or --set step=step.*" + PATTERN,
    "ranks_hold_shards": r"rank0.jsonl, rank1.jsonl, .*write a table of all right answers",
    "n_counts_nodes": r"add --set pattern='g\{rollouts_per_problem\}-b\{problems_per_batch\}-s",
    "base_config_beside": r"names and configuration must agree.*move it away and " + PATTERN,
    "warmed_up_to_500": r"begins at step 500; add --set begins=0 .*or --set begins=500",
    "attempts_are_no_seeds": r"attempt_0 and attempt_1; keep the one that counts",
}
# A batch that one run ramps up is read as its configuration says: no key of a trainer tells it.
NOT_MENDED = ("batch_is_ramped_up",)
SECOND: dict[str, Ask] = {
    "other_evaluation_from_40": {"problem_set": "data/math500.jsonl"},
    "warmed_up_to_500": {"settings": {"begins": 500}},
}


def read(folder: Path, ask: Ask) -> list[Curve]:
    files = list(folder.iterdir())
    given = {k: settings_from(v) if k == "settings" else v for k, v in ask.items()}
    table = len(files) == 1 and files[0].is_file()
    return load_curves([str(files[0] if table else folder)], **given)


def told(curves: list[Curve]) -> list[tuple[object, ...]]:
    return sorted(
        ((c.problems_per_batch, c.rollouts_per_problem, -1 if c.seed is None else c.seed,
          c.rollouts_K.tolist(), c.score_K.round(6).tolist()) for c in curves),
        key=repr,
    )  # fmt: skip


def planted(truth: list[Truth]) -> list[tuple[object, ...]]:
    return sorted(
        ((t.problems_per_batch, t.rollouts_per_problem, -1 if t.seed is None else t.seed,
          [float(t.rollouts[s]) for s in t.scores], list(t.scores.values())) for t in truth),
        key=repr,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - set(NOT_MENDED)))
def test_a_layout_is_right_or_says_what_to_do(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    truth = planted(layout.write(tmp_path))
    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]) as caught:
            read(tmp_path, {})
        assert "\n" not in str(caught.value)
    else:
        assert told(read(tmp_path, {})) == truth
    if name in SECOND:
        assert told(read(tmp_path, SECOND[name])) == truth
    elif name not in ("base_config_beside", "attempts_are_no_seeds",
                      "minus_one_for_none", "sqlite_dump_without_header"):  # fmt: skip
        for ask in layout.options:
            assert told(read(tmp_path, ask)) == truth


def test_a_base_configuration_is_left_out_once_it_is_away(tmp_path: Path) -> None:
    truth = planted(LAYOUTS["base_config_beside"].write(tmp_path))
    for file in tmp_path.rglob("config.yaml"):
        file.unlink()
    assert told(read(tmp_path, LAYOUTS["base_config_beside"].options[0])) == truth


def test_the_last_attempt_stands_alone(tmp_path: Path) -> None:
    truth = planted(LAYOUTS["attempts_are_no_seeds"].write(tmp_path))
    for file in tmp_path.rglob("attempt_0/*"):
        file.unlink()
    assert told(read(tmp_path, LAYOUTS["attempts_are_no_seeds"].options[0])) == truth


def test_a_word_for_no_score_is_asked_about(tmp_path: Path) -> None:
    layout = LAYOUTS["minus_one_for_none"]
    layout.write(tmp_path)
    with pytest.raises(InputError, match="if -1 stands for no score, drop those rows"):
        read(tmp_path, layout.options[0])
