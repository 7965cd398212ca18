"""The options of the commands that answer: fit, plan, compare, report."""

from __future__ import annotations

import argparse

from isocompute.cli import answering, commands
from isocompute.cli.import_parser import add_settings
from isocompute.cli.options import Parser, add_json, add_where, stage
from isocompute.cli.values import current, finite, fix, positive, positive_int, positive_ints
from isocompute.trainers import TRAINERS

SOURCE_HELP = (
    "a table of curves (CSV or Parquet), a study folder, a log, a folder of tables or logs, "
    "published:NAME or grid:NAME"
)


def add_fit(stages: argparse._SubParsersAction[Parser]) -> None:
    """`fit`."""
    parser = stage(
        stages,
        "fit",
        answering.fit,
        "the best n at each budget, how sure that is, what to run next",
        "example: isocompute fit published:qwen2.5-7b-easy",
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help=SOURCE_HELP)
    _add_setting(parser)
    _add_scores(parser)
    _add_select(parser)
    parser.add_argument(
        "--method",
        choices=("model", "paper"),
        default="model",
        help="model: one model of the whole sweep (default); paper: the published method, "
        "which has no intervals",
    )
    parser.add_argument(
        "--bin-width",
        type=positive,
        metavar="W",
        help="with --method paper: width of a bin of the reward (default: 0.002)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="also curves, frontier, law, back-test, the published method and every note",
    )
    add_json(parser)


def add_plan(stages: argparse._SubParsersAction[Parser]) -> None:
    """`plan`."""
    parser = stage(
        stages,
        "plan",
        answering.plan,
        "how to spend a budget: problems per batch, rollouts per problem, steps, recipe",
        "example: isocompute plan --budget 2e6 --difficulty easy --for verl",
    )
    parser.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help=f"your sweep: {SOURCE_HELP}; default: the published sweep of that difficulty",
    )
    parser.add_argument("--budget", help="2e6 (rollouts), 5e9tok, 400gpuh, 64gpux3d or 2000usd")
    parser.add_argument(
        "--score", type=finite, metavar="S",
        help="instead of a budget: the score to reach, as your trainer logs it",
    )
    parser.add_argument("--law", metavar="SOURCE", help="another way to name SOURCE")
    _add_setting(parser)
    _add_scores(parser)
    _add_select(parser)
    _add_difficulty(parser)
    _add_planning(parser)
    parser.add_argument(
        "--batch-size",
        type=positive_int,
        metavar="B",
        help="with --steps, instead of a budget: split a batch of B rollouts into problems and n",
    )
    parser.add_argument("--steps", type=positive_int, metavar="M", help="see --batch-size")
    parser.add_argument("--why", action="store_true", help="also the reasons and every note")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="the allocation in one line; with --for, the trainer's settings alone",
    )
    add_json(parser)


def add_report(stages: argparse._SubParsersAction[Parser]) -> None:
    """`report`."""
    parser = stage(
        stages,
        "report",
        answering.report,
        "write one HTML file about the first SOURCE; the others are shown for comparison",
        "example: isocompute report published:qwen2.5-7b-easy -o report.html",
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help=SOURCE_HELP)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="the HTML file (default: report.html)",
    )
    parser.add_argument(
        "--figures", metavar="DIR", help="also write the figures as PDF, SVG and PNG"
    )
    parser.add_argument("--title", help="heading of the page")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument(
        "--budget", help="also a plan for this budget, from the first SOURCE; see plan"
    )
    answer.add_argument("--score", type=finite, metavar="S", help="or for this score; see plan")
    answer.add_argument("--plan", metavar="FILE", help="also this plan, as plan --json wrote it")
    _add_planning(parser)
    _add_difficulty(parser)
    _add_setting(parser)
    _add_scores(parser)
    _add_select(parser)


def add_compare(stages: argparse._SubParsersAction[Parser]) -> None:
    """`compare`."""
    parser = stage(
        stages,
        "compare",
        commands.compare,
        "which of two studies, recipes, models or data sets is better at equal compute",
        "example: isocompute compare my-study --where-a recipe=kl --where-b recipe=none",
    )
    parser.add_argument("a", metavar="A", help=SOURCE_HELP)
    parser.add_argument(
        "b",
        metavar="B",
        nargs="?",
        help="the other side (default: A again, see --where-a); differences are B - A",
    )
    for side in "ab":
        parser.add_argument(
            f"--where-{side}",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"as --where, for {side.upper()} alone",
        )
    _add_scores(parser)
    add_json(parser)


def _add_setting(parser: Parser) -> None:
    setting = parser.add_mutually_exclusive_group()
    setting.add_argument(
        "--fix",
        type=fix,
        metavar="NAME=VALUE",
        help="use only runs with problems_per_batch=32, or only those with batch_size=8192",
    )
    setting.add_argument(
        "--joint",
        action="store_true",
        help="use all (B_p, n) together (default if there are several B_p)",
    )
    parser.add_argument(
        "--unit",
        choices=("rollouts", "tokens", "gpu-hours"),
        help="what compute is counted in (default: rollouts; for a budget in tokens, GPU-hours "
        "or money: tokens or GPU-hours if all n logged them)",
    )


def _add_planning(parser: Parser) -> None:
    """What `plan` and a report with a plan are asked alike."""
    parser.add_argument(
        "--max-batch",
        type=positive_int,
        metavar="B",
        help="most rollouts per batch that your hardware holds",
    )
    parser.add_argument(
        "--min-steps",
        type=positive_int,
        metavar="M",
        help="fewest steps worth running (default: 20)",
    )
    parser.add_argument(
        "--n",
        dest="only_n",
        type=positive_ints,
        default=(),
        metavar="8,16",
        help="choose among these n alone (default: all tested)",
    )
    parser.add_argument(
        "--current",
        type=current,
        metavar="n=16,bp=32",
        help="what you run today, or its n alone; the plan then says what it gains",
    )
    parser.add_argument(
        "--problems",
        type=positive_int,
        metavar="D",
        help="problems in your training set: no batch holds more, and passes over them are counted",
    )
    parser.add_argument(
        "--tokens-per-rollout",
        type=positive,
        metavar="T",
        help="for budgets and costs in tokens (default: as the sweep logged)",
    )
    parser.add_argument(
        "--rollouts-per-gpu-hour",
        type=positive,
        metavar="R",
        help="for budgets and costs in GPU-hours and money",
    )
    parser.add_argument(
        "--usd-per-gpu-hour", type=positive, metavar="USD", help="for budgets and costs in money"
    )
    parser.add_argument(
        "--for",
        dest="trainer",
        type=str.lower,
        choices=TRAINERS,
        metavar="TRAINER",
        help=f"also print the settings of {', '.join(TRAINERS)}",
    )
    parser.add_argument(
        "--processes",
        type=positive_int,
        metavar="N",
        help="with --for trl: divide its batch among so many processes (default: 1)",
    )


def _add_difficulty(parser: Parser) -> None:
    parser.add_argument(
        "--difficulty",
        choices=("easy", "hard", "mixed"),
        help="how hard the problems are for the base model; chooses the recipe",
    )


def _add_scores(parser: Parser) -> None:
    parser.add_argument(
        "--metric",
        help="which score, for example avg@4, best@4, worst@4 (fit: several, separated by commas)",
    )
    parser.add_argument("--problem-set", metavar="NAME", help="which validation set")
    parser.add_argument(
        "--split",
        choices=("validation", "train"),
        help="scores on validation problems (default) or on the training batches",
    )
    add_where(parser)
    parser.add_argument(
        "--range",
        nargs=2,
        type=finite,
        default=(0.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="lowest and highest possible score (default: 0 1); JSON has scores of 0..1",
    )
    add_settings(parser)


def _add_select(parser: Parser) -> None:
    parser.add_argument(
        "--select",
        choices=("best", "final"),
        default="best",
        help="which checkpoint counts at a budget: the best so far (default) or the last",
    )
