"""The options of `design`."""

from __future__ import annotations

import argparse

from isocompute.cli import designing
from isocompute.cli.options import Parser, add_json, add_where, stage
from isocompute.cli.values import gpus, hours, positive, positive_int, seed, share, words

_FEWEST_DRAWS, _MOST_DRAWS = 4, 2000  # 2,000 take an hour; memory grows with them


def add_design(stages: argparse._SubParsersAction[Parser]) -> None:
    """`design`."""
    parser = stage(
        stages, "design", designing.design,
        "which sweep to run for a budget, its cost, what it is worth; writes the study file",
        "example: isocompute design --budget 5e6 --difficulty easy --engine verl -o sweep.yaml",
    )  # fmt: skip
    parser.add_argument(
        "--budget", metavar="B",
        help="for sweep and final run: 2e6 (rollouts), 5e9tok, 400gpuh, 64gpux3d or 2000usd",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=gpus, metavar="64xH100",
        help="with --hours, instead of --budget, or beside it: the smaller one binds",
    )  # fmt: skip
    parser.add_argument("--hours", type=hours, metavar="H", help="for how long you have them")
    parser.add_argument(
        "--spend", type=share, default=designing.SPEND, metavar="SHARE",
        help="share of the budget that training in the sweep may take, 15%% or 0.15 (default: "
        "15%%); its evaluations are counted on top",
    )  # fmt: skip
    parser.add_argument(
        "--problems", type=positive_int, metavar="D",
        help="problems in your training set: no batch holds more, and passes over them are counted",
    )  # fmt: skip
    parser.add_argument(
        "--problems-per-batch", type=positive_int, metavar="BP",
        help="B_p (default: the prior's, or less where the budget is too small for it)",
    )  # fmt: skip
    parser.add_argument(
        "--max-batch", type=positive_int, metavar="B",
        help="most rollouts per batch that your hardware holds",
    )  # fmt: skip
    parser.add_argument(
        "--difficulty", choices=("easy", "hard", "mixed"),
        help="how hard the problems are for the base model; chooses recipe and prior (default: by "
        "--train's pass rates)",
    )  # fmt: skip
    parser.add_argument(
        "--prior", metavar="SOURCE",
        help="an earlier study of yours (default: the published sweeps)",
    )  # fmt: skip
    add_where(parser)
    parser.add_argument("--metric", help="of the prior, for example avg@4 or best@4")
    parser.add_argument("--problem-set", metavar="NAME", help="which validation set of the prior")
    parser.add_argument(
        "--engine", choices=("local", "trl", "verl", "command"),
        help="which trainer the study uses; command: your own (default: local)",
    )  # fmt: skip
    parser.add_argument(
        "--command", dest="trained_by", type=words, metavar="COMMAND",
        help="trains one run with your own trainer, by {problems_per_batch}, "
        "{rollouts_per_problem}, {steps}, {seed}, {learning_rate} and {folder}",
    )  # fmt: skip
    parser.add_argument(
        "--resume", dest="resumed_by", type=words, metavar="'ARGUMENTS'",
        help="with which --command goes on in its folder; '' if it does so by itself",
    )  # fmt: skip
    parser.add_argument("--model", metavar="M", help="Hugging Face id or folder, for the study")
    parser.add_argument("--train", metavar="FILE", help="training problems, for the study")
    parser.add_argument(
        "--validation", metavar="FILE",
        help="validation problems (default: a fifth of --train is held out, at most 300)",
    )  # fmt: skip
    parser.add_argument(
        "--verifier", metavar="V",
        help="how answers are checked: exact (the whole response), integer, math, "
        "FILE.py:FUNCTION (default: the file's, else exact)",
    )  # fmt: skip
    for name, unit, help_ in (
        ("tokens-per-rollout", "T", "for budgets and costs in tokens"),
        ("rollouts-per-gpu-hour", "R", "for GPU-hours and money (default: as in the prior's runs)"),
        ("usd-per-gpu-hour", "USD", "for money"),
    ):
        parser.add_argument(f"--{name}", type=positive, metavar=unit, help=help_)
    parser.add_argument(
        "--draws", type=_draws, default=40, metavar="N",
        help="simulated sweeps per candidate (default: 40, about a minute)",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0, help="of the simulation (default: 0)")
    parser.add_argument(
        "-o", "--output", metavar="STUDY.yaml",
        help="write the study file, of the sweep or, where none pays, of the run",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="store_true", help="with -o: the sweep's in any case"
    )
    parser.add_argument("--why", action="store_true", help="also the reasons and every note")
    add_json(parser)


def _draws(text: str) -> int:
    value = positive_int(text)
    if value < _FEWEST_DRAWS:
        raise argparse.ArgumentTypeError(f"must be at least {_FEWEST_DRAWS}, but got {text!r}")
    if value > _MOST_DRAWS:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST_DRAWS:,}, but got {text!r}")
    return value
