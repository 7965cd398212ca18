"""The options of every command, and nothing else."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence

from isocompute import __version__
from isocompute.cli import commands
from isocompute.cli.answer_parser import add_compare, add_fit, add_plan, add_report
from isocompute.cli.design_parser import add_design
from isocompute.cli.import_parser import add_import
from isocompute.cli.options import Parser, add_json, stage
from isocompute.cli.study_parser import add_folder, add_lr_sweep, add_run
from isocompute.cli.values import count, positive, positive_int, seed
from isocompute.errors import InputError


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
    add_design(stages)
    add_lr_sweep(stages)
    add_run(stages)
    add_folder(stages)
    add_import(stages)
    add_fit(stages)
    add_plan(stages)
    add_compare(stages)
    _add_interference(stages)
    add_report(stages)
    _add_export(stages)
    return parser


def parse_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of one command; sources and overrides may also stand after options.

    Raises:
        InputError: on anything that the command does not know, or an empty word.
    """
    parser = build_parser()
    options, rest = parser.parse_known_args(argv)
    many = next((name for name in ("source", "overrides") if hasattr(options, name)), None)
    unknown = [word for word in rest if many is None or word.startswith("-")]
    if unknown:
        raise InputError(_unknown(unknown, options))
    if many is not None:
        setattr(options, many, [*getattr(options, many), *rest])
    for name, value in vars(options).items():
        if "" in (value if isinstance(value, list) else [value]):
            lost = "a shell variable without a value"
            lost = "money without quotes ('$5')" if name == "budget" else lost
            raise InputError(
                f"`{name}` must not be empty, but got ''; {lost}? See "
                f"`{options.parser.prog} --help`."
            )
    return options


# Words for one thing: the trainer of a plan and of a study; a budget, and its parts in `design`.
_SAME = ({"--for", "--engine"}, {"--gpus", "--hours", "--budget"})


def _unknown(words: Sequence[str], options: argparse.Namespace) -> str:
    """What is not known, and what may have been meant."""
    asked: Parser = options.parser
    cure = f"see `{asked.prog} --help`."
    dashed = [word for word in words if word.startswith("-")]
    if not dashed:
        return f"unknown argument {words[0]}; {cure}"
    name = dashed[0].partition("=")[0]
    known = sorted(asked._option_string_actions)
    parts = [one for one in known if one.strip("-") and one.strip("-") in name.split("-")]
    same = [one for words in _SAME if name in words for one in words if one in known]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    near = same or near or parts
    return (
        f"unknown option {name}"
        + (f", did you mean {near[0]}? See" if near else "; see")
        + (cure.removeprefix("see"))
    )


def _add_quickstart(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = stage(
        stages,
        "quickstart",
        commands.run_quickstart,
        "a whole example: train a small model, fit, plan, report; start it again to resume",
        "example: isocompute quickstart my-first-study",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        default="quickstart",
        metavar="DIR",
        help="where to write (default: quickstart)",
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="processes of one thread each (default: one per core)",
    )  # fmt: skip


def _add_difficulty_stage(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = stage(
        stages,
        "difficulty",
        commands.difficulty,
        "how hard problems are for a base model, and which recipe suits them",
        "example: isocompute difficulty problems.jsonl --model ./base -o measured.jsonl",
    )
    parser.add_argument(
        "problems", metavar="PROBLEMS",
        help="JSONL or Parquet, or problems made here: world:machine,size=1200,seed=1",
    )  # fmt: skip
    shipped = (
        "a Hugging Face folder, or one that comes with the package: bits, bits-mlp, countdown, "
        "machine, products, verbs, verbs-long"
    )
    parser.add_argument("--model", required=True, metavar="M", help=shipped)
    parser.add_argument(
        "--verifier",
        metavar="V",
        help="how answers are checked: exact, integer, math, FILE.py:FUNCTION (default: the "
        "file's, else exact)",
    )
    parser.add_argument(
        "--samples",
        type=positive_int,
        default=16,
        metavar="K",
        help="samples per problem (default 16)",
    )
    parser.add_argument(
        "--second-stage", type=count, default=128, metavar="K",
        help="samples in all for problems never solved so far (default 128; 0: no second stage)",
    )  # fmt: skip
    parser.add_argument(
        "--temperature", type=positive, default=1.0, metavar="T", help="of the sampling (default 1)"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive_int, metavar="N", help="longest response, in tokens"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the sampling (default 0)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:1")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the problems with their pass rates (JSONL)"
    )
    add_json(parser)


def _add_export(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = stage(
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
        help="file format (default: by the file's ending; parquet for a folder)",
    )
    parser.add_argument(
        "--no-times",
        action="store_true",
        help="leave out times, hosts and interruptions, so that two exports of one study are equal "
        "byte for byte",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write")


def _add_interference(stages: argparse._SubParsersAction[Parser]) -> None:
    parser = stage(
        stages,
        "interference",
        commands.interference,
        "how progress spreads over problems at equal compute: how many are never or always solved, "
        "how many get worse, how even the gains are",
        "example: isocompute interference my-study --problem-set easy",
    )
    parser.add_argument(
        "folder", metavar="STUDY", help="a study folder or grid:NAME (outcomes per problem)"
    )
    parser.add_argument("--problem-set", metavar="NAME", help="which validation set")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only these runs, as in fit",
    )
    parser.add_argument(
        "--at",
        type=positive,
        metavar="C",
        help="budget in rollouts (default: the largest that every run reached)",
    )
    add_json(parser)
