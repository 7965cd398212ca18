"""Every engine refuses an option of the wrong kind, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isocompute.engines.options import read_options
from isocompute.errors import InputError
from isocompute.runner import planned_study

STUDY = """
problems: {{train: train.jsonl, validation: {{v: train.jsonl}}}}
grid: {{problems_per_batch: 2, rollouts_per_problem: 2}}
recipe: {{warmup_steps: 0, kl_coef: 0}}
budget: 64
allow: [shared_prompts]
engine: {engine}
engine_options: {options}
"""
COMMAND = ("command: [a, '{problems_per_batch} {rollouts_per_problem} {steps} {seed} "
           "{learning_rate} {warmup_steps} {folder}'], log: l, reader: jsonl")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """One field of each kind."""

    text: str = ""
    whole: int = 1
    number: float = 1.0
    yes: bool = False
    maybe: int | None = None
    words: Sequence[str] = ()
    table: Mapping[str, Any] | None = None


def test_options_of_the_right_kind_are_taken_as_they_are() -> None:
    given = {"text": "a", "whole": 2, "number": 3, "yes": True, "maybe": None, "words": ["b"],
             "table": {"c": 1}}  # fmt: skip
    assert vars(read_options(Kinds, "mine", given)) == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": 0.9}, r"engine_options\.text must be a text, but got 0\.9; put it in quotes"),
        ({"text": None}, "must be a text, but got None"),
        ({"whole": "2"}, "must be a whole number, but got '2'; correct it"),
        ({"whole": 2.0}, "must be a whole number, but got 2.0"),
        ({"whole": True}, "must be a whole number, but got True"),
        ({"number": "2"}, "must be a number, but got '2'"),
        ({"number": False}, "must be a number, but got False"),
        ({"yes": 1}, "must be true or false, but got 1"),
        ({"table": ["c"]}, r"must be a mapping, but got \['c'\]; write NAME: VALUE"),
        ({"maybe": "x"}, "must be a whole number, but got 'x'"),
        ({"other": 1}, "'mine' must be among text, .* but got 'other'; remove it, or go there"),
    ],
)
def test_an_option_of_another_kind_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_options(Kinds, "mine", given, ", or go there")


@pytest.mark.parametrize(
    ("engine", "options", "name"),
    [
        ("verl", "{model: m, version: 0.9}", "version"),  # as YAML reads it without quotes
        ("verl", "{model: m, folder: 3}", "folder"),
        ("verl", "{model: m, environment: [a]}", "environment"),
        ("trl", "{model: m, max_new_tokens: 8, chat: maybe}", "chat"),
        ("trl", "{model: m, max_new_tokens: 8, python: 3}", "python"),
        ("command", f"{{{COMMAND}, poll_s: x}}", "poll_s"),
        ("command", f"{{{COMMAND}, poll_s: 0}}", "poll_s"),
        ("command", f"{{{COMMAND.replace('jsonl', '[jsonl]')}}}", "reader"),
        ("simulator", "{noise: a lot}", "noise"),
        ("simulator", "{interference: null}", "interference"),
        ("local", "{model: 3}", "model"),
    ],
)
def test_every_engine_says_which_option_is_wrong(
    tmp_path: Path, engine: str, options: str, name: str
) -> None:
    if engine == "local":
        pytest.importorskip("torch")
    rows = [f'{{"prompt": "p{i}", "answer": "1"}}\n' for i in range(4)]
    (tmp_path / "train.jsonl").write_text("".join(rows))
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.format(engine=engine, options=options))
    with pytest.raises(InputError, match=rf"engine_options\.{name} must be "):
        planned_study(file)
