"""The options of `import`, and those of every command that reads logs."""

from __future__ import annotations

import argparse

from isocompute.cli.imports import import_runs
from isocompute.cli.options import Parser, add_json, stage
from isocompute.cli.values import finite


def add_import(stages: argparse._SubParsersAction[Parser]) -> None:
    """`import`."""
    parser = stage(
        stages,
        "import",
        import_runs,
        "read logs of verl, TRL, W&B, TensorBoard, MLflow, trackio, prime-rl, SkyRL into a study",
        "example: isocompute import runs/ -o study --set "
        "pattern='bp{problems_per_batch}_n{rollouts_per_problem}'",
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="log files, or folders of them")
    parser.add_argument("-o", "--output", metavar="DIR", help="the study folder")
    parser.add_argument(
        "--preview", action="store_true",
        help="show what would be read and what was inferred; write nothing",
    )  # fmt: skip
    parser.add_argument(
        "--range", nargs=2, type=finite, metavar=("LOW", "HIGH"),
        help="lowest and highest possible score (default: 0 1); kept with the runs",
    )  # fmt: skip
    add_settings(parser)
    add_json(parser)


def add_settings(parser: Parser) -> None:
    """`--set` and `--map`: what logs and tables do not say."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the logs do not say: problems_per_batch, rollouts_per_problem, steps, seed, "
        "evaluation_samples, evaluation_problems, gpus, processes, num_iterations, "
        "training_problems, eval_every, learning_rate, begins, pattern, problem_set, split, step, "
        "resumed, drawn, padded, percent, run",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="KEY=NAME",
        help="what a key or column holds: val/acc=avg@4, bsz=problems_per_batch; or a file with "
        "what --set says and columns: {KEY: NAME}",
    )
