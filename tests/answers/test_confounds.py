"""Settings that change with n are named, with who had which; what changes within an n is not."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.answers.confounds import confounds, settings_by_n
from isocompute.domain import Curve


def run(n: int, **recorded: float | str) -> Curve:
    return Curve(problems_per_batch=32, rollouts_per_problem=n, run=f"n{n}", recorded=recorded,
                 rollouts_K=np.array([0.0, 320.0 * n]), score_K=np.array([0.1, 0.2]))  # fmt: skip


def test_the_values_and_who_had_them_are_said() -> None:
    curves = [run(8, updates_per_batch=1.0), run(16, updates_per_batch=1.0),
              run(64, updates_per_batch=8.0)]  # fmt: skip
    (found,) = confounds(curves)
    assert found.text.startswith(
        "Not n alone: updates_per_batch was 1 at n = 8, 16 and 8 at n = 64. What looks"
    )
    assert "--where updates_per_batch=1)" in found.remedy


def test_words_are_named_as_where_takes_them_and_many_are_counted() -> None:
    words = {"objective": "rloo", "lora_rank": 32.0, "length_penalty": "overlong"}
    curves = [run(8, objective="grpo", lora_rank=0.0, length_penalty="none"), run(16, **words)]
    (found,) = confounds(curves)
    assert "; and 1 more. What" in found.text
    assert "'" not in found.text
    assert list(settings_by_n(curves)) == ["objective", "lora_rank", "length_penalty"]


@pytest.mark.parametrize("curves", [
    [],
    [run(8), run(16)],
    [run(8, kl_coef=0.1), run(16)],  # nobody says what the other had
    [run(8, kl_coef=0.1), run(8, kl_coef=0.2), run(16, kl_coef=0.1)],  # one value has all n
    [run(8, learning_rate=1e-6), run(16, learning_rate=2e-6)],  # rates have rules of their own
    [run(8, evaluation_samples=4.0), run(16, evaluation_samples=16.0)],
])
def test_what_does_not_follow_n_is_none(curves: list[Curve]) -> None:
    assert not list(confounds(curves))


def test_a_setting_is_one_where_two_n_share_no_value() -> None:
    assert settings_by_n([run(8, kl_coef=0.1), run(16, kl_coef=0.2), run(16, kl_coef=0.3)])
