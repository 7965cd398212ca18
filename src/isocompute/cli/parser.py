"""The options of every command, and nothing else."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

from isocompute import __version__
from isocompute.cli import commands
from isocompute.cli.import_parser import add_import, add_settings
from isocompute.cli.options import Parser
from isocompute.cli.options import add_json as _add_json
from isocompute.cli.options import stage as _stage
from isocompute.cli.study_parser import add_folder, add_lr_sweep, add_run
from isocompute.cli.values import count, current, finite, fix, positive, positive_int
from isocompute.errors import InputError
from isocompute.trainers import TRAINERS

SOURCE_HELP = (
    "tidy curves (CSV or Parquet, or a folder of them), a study folder, a log that `import` knows, "
    "or published:NAME"
)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="isocompute",
        description="How to spend the rollouts of LLM reinforcement learning, and how sure to be.",
        epilog="Exit codes: 0 success, 1 a failed run, 2 bad input, 3 a refusal.",
    )
    parser.add_argument("--version", action="version", version=f"isocompute {__version__}")
    stages = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    _add_quickstart(stages)
    _add_difficulty_stage(stages)
    add_lr_sweep(stages)
    add_run(stages)
    add_folder(stages)
    add_import(stages)
    _add_fit(stages)
    _add_plan(stages)
    _add_compare(stages)
    _add_interference(stages)
    _add_report(stages)
    _add_export(stages)
    return parser


def parse_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of one command; sources and overrides may also stand after options.

    Raises:
        InputError: on anything that the command does not know.
    """
    parser = build_parser()
    options, rest = parser.parse_known_args(argv)
    many = next((name for name in ("source", "overrides") if hasattr(options, name)), None)
    unknown = [word for word in rest if many is None or word.startswith("-")]
    if unknown:
        raise InputError(_unknown(unknown, options))
    if many is not None:
        setattr(options, many, [*getattr(options, many), *rest])
    return options


def _unknown(words: Sequence[str], options: argparse.Namespace) -> str:
    """What is not known, and what may have been meant."""
    asked: Parser = options.parser
    cure = f"see `{asked.prog} --help`."
    dashed = [word for word in words if word.startswith("-")]
    if not dashed:
        if hasattr(options, "law"):
            cure = f"`--law {words[0]}` plans by it, `--budget` says how large."
        return f"unknown argument {words[0]}; {cure}"
    name = dashed[0].partition("=")[0]
    known = sorted(asked._option_string_actions)
    parts = [one for one in known if one.strip("-") and one.strip("-") in name.split("-")]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7) or parts
    return f"unknown option {name}" + (f", did you mean {near[0]}? See" if near else "; see") + (
        cure.removeprefix("see")
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
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only these runs of a study that holds several recipes or problem sets, for example "
        "recipe=NAME, recipe.kl_coef=0, problems=NAME, train.size=500, seed=0; of a table, any "
        "column; of logs, model=NAME, learning_rate=1e-6, run=PATTERN; may be repeated. The same "
        "in brackets after a source: STUDY[recipe=NAME]",
    )
    parser.add_argument(
        "--range",
        nargs=2,
        type=finite,
        default=(0.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="what scores may be (default: 0 1); they are rescaled to 0..1",
    )
    add_settings(parser)


def _add_select(parser: Parser) -> None:
    parser.add_argument(
        "--select",
        choices=("best", "final"),
        default="best",
        help="the checkpoint whose score counts at a budget: best so far or final (default: best)",
    )


def _add_setting(parser: Parser) -> None:
    setting = parser.add_mutually_exclusive_group()
    setting.add_argument(
        "--fix",
        type=fix,
        metavar="NAME=VALUE",
        help="only problems_per_batch=32, or the splits of batch_size=8192",
    )
    setting.add_argument(
        "--joint", action="store_true", help="all (B_p, n) together (default: if there are several)"
    )
    parser.add_argument(
        "--unit",
        choices=("rollouts", "tokens"),
        default="rollouts",
        help="what compute is counted in (default: rollouts)",
    )


def _add_fit(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "fit",
        commands.fit,
        "learning curves -> the best n by budget, how sure that is, what to run next",
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
        help="model: draws of one model of the sweep (default); paper: the published method as "
        "it was printed, without intervals",
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
    _add_json(parser)


def _add_plan(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "plan",
        commands.plan,
        "sweep + budget -> problems per batch, rollouts per problem, steps, recipe",
        "example: isocompute plan --budget 2e6 --difficulty easy --for verl",
    )
    parser.add_argument("--budget", help="2e6 (rollouts), 5e9tok, 400gpuh, 64gpux3d or $2000")
    parser.add_argument(
        "--law",
        metavar="SOURCE",
        help=f"your sweep: {SOURCE_HELP}; default: the published one of that difficulty",
    )
    _add_setting(parser)
    _add_scores(parser)
    _add_select(parser)
    _add_difficulty(parser)
    parser.add_argument(
        "--max-batch",
        type=positive_int,
        metavar="B",
        help="rollouts per batch that the hardware holds",
    )
    parser.add_argument(
        "--min-steps",
        type=positive_int,
        metavar="M",
        help="fewest steps worth running (default: 20)",
    )
    parser.add_argument(
        "--batch-size",
        type=positive_int,
        metavar="B",
        help="with --steps, instead of a budget: how to split a fixed batch",
    )
    parser.add_argument("--steps", type=positive_int, metavar="M", help="see --batch-size")
    parser.add_argument(
        "--current",
        type=current,
        metavar="n=16,bp=32",
        help="what you run today: the plan says what it gains over it (bp may be left out)",
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
        choices=TRAINERS,
        metavar="TRAINER",
        help=f"also print the settings of {', '.join(TRAINERS)}",
    )
    parser.add_argument("--why", action="store_true", help="also the reasoning and every note")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="the allocation in one line; with --for, the trainer's settings alone",
    )
    _add_json(parser)


def _add_quickstart(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "quickstart",
        commands.run_quickstart,
        "the whole playbook on the embedded engine; resumes",
        "example: isocompute quickstart my-first-study",
    )
    parser.add_argument(
        "folder", nargs="?", default="quickstart", metavar="DIR", help="default: quickstart"
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="processes of one thread each (default: one per core)",
    )  # fmt: skip


def _add_difficulty_stage(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "difficulty",
        commands.difficulty,
        "pass rates of a base model, sets by difficulty, recommended recipe",
        "example: isocompute difficulty problems.jsonl --model ./base -o measured.jsonl",
    )
    parser.add_argument(
        "problems", metavar="PROBLEMS",
        help="JSONL, Parquet, or a generated world: world:machine,size=1200,seed=1",
    )  # fmt: skip
    shipped = "a Hugging Face folder, or shipped: bits, machine, products, countdown"
    parser.add_argument("--model", required=True, metavar="M", help=shipped)
    parser.add_argument("--verifier", metavar="V", help="default: the file's, else exact")
    parser.add_argument("--samples", type=positive_int, default=16, metavar="K", help="default 16")
    parser.add_argument(
        "--second-stage", type=count, default=128, metavar="K",
        help="samples in all for problems without a success (default 128; 0: none)",
    )  # fmt: skip
    parser.add_argument("--temperature", type=positive, default=1.0, metavar="T", help="default 1")
    parser.add_argument("--max-new-tokens", type=positive_int, metavar="N", help="length limit")
    parser.add_argument("--seed", type=count, default=0, help="of sampling (default 0)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, cuda:1")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the problems with their pass rates (JSONL)"
    )
    _add_json(parser)


def _add_export(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "export",
        commands.export,
        "a study as Parquet or CSV: FILE.csv or FILE.parquet is one table of tidy curves, "
        "anything else a folder of tables",
        "example: isocompute export my-study -o curves.csv",
    )
    parser.add_argument("folder", metavar="DIR", help="the study folder")
    parser.add_argument(
        "--format",
        choices=("parquet", "csv"),
        help="default: by the file's ending; parquet for a folder",
    )
    parser.add_argument(
        "--no-times",
        action="store_true",
        help="leave out what depends on clocks, machines and interruptions: two exports of the "
        "same study are then equal byte for byte",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write")


def _add_interference(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "interference",
        commands.interference,
        "how progress spreads over problems at equal compute: shares never and always solved, "
        "interference, rich-get-richer, uniformity, with intervals",
        "example: isocompute interference my-study --problem-set easy",
    )
    parser.add_argument("folder", metavar="STUDY", help="a study folder (outcomes per problem)")
    parser.add_argument("--problem-set", metavar="NAME", help="which validation set")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="which arm, as in fit"
    )
    parser.add_argument(
        "--at", type=positive, metavar="C", help="rollouts (default: all that everyone reached)"
    )
    _add_json(parser)


def _add_report(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "report",
        commands.report,
        "one self-contained HTML file; the first SOURCE is the subject, the others stand beside it",
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
    parser.add_argument("--budget", help="also a plan for this budget, from the first SOURCE")
    _add_difficulty(parser)
    _add_scores(parser)
    _add_select(parser)


def _add_difficulty(parser: Parser) -> None:
    parser.add_argument(
        "--difficulty",
        choices=("easy", "hard", "mixed"),
        help="of the problem set under the base model; chooses the recipe",
    )


def _add_compare(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = _stage(
        stages,
        "compare",
        commands.compare,
        "two studies, recipes, models or data sets at equal compute, paired, with intervals",
        "example: isocompute compare my-study --where-a recipe=kl --where-b recipe=none",
    )
    parser.add_argument("a", metavar="A", help=SOURCE_HELP)
    parser.add_argument(
        "b", metavar="B", nargs="?", help="likewise (default: A again); differences are B - A"
    )
    for side in "ab":
        parser.add_argument(
            f"--where-{side}",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"--where for {side.upper()} alone",
        )
    _add_scores(parser)
    _add_json(parser)
