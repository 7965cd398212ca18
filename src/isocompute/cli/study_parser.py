"""The options of the commands that train a study or look at its folder."""

from __future__ import annotations

import argparse

from isocompute.cli import commands
from isocompute.cli.options import Parser, add_json, stage
from isocompute.cli.values import count, nonnegative, numbers, positive, thawed


def add_run(stages: argparse._SubParsersAction[Parser]) -> None:
    """`run`."""
    parser = stage(
        stages, "run", commands.run, "run or resume a study; safe to start twice",
        "example: isocompute run sweep.yaml budget=4e5 grid.seeds=[0,1,2]",
    )  # fmt: skip
    _add_study(parser, "the file's name without its ending")
    parser.add_argument(
        "--thaw", type=thawed, metavar="N,...",
        help="train these frozen n of an adaptive study to the end of their budget; or all",
    )  # fmt: skip
    add_json(parser)


def add_lr_sweep(stages: argparse._SubParsersAction[Parser]) -> None:
    """`lr-sweep`."""
    parser = stage(
        stages, "lr-sweep", commands.lr_sweep,
        "the learning rate at one batch size: train the study's recipe at several rates, take the "
        "best that is stable; start it again to resume",
        "example: isocompute lr-sweep sweep.yaml budget=5e4 --rates 1e-4,2e-4,4e-4,8e-4",
    )  # fmt: skip
    _add_study(parser, "the file's name with -lr")
    parser.add_argument(
        "--rates", type=numbers, metavar="LR,LR,...",
        help="learning rates at that batch (default: 1/8 to 8 times the recipe's, in factors of "
        "2); rates already in the folder are kept",
    )  # fmt: skip
    parser.add_argument(
        "--metric",
        help="which score of the last evaluation counts, for example avg@4 (default) or best@4",
    )
    parser.add_argument("--problem-set", metavar="NAME", help="which validation set")
    add_json(parser)


def _add_study(parser: Parser, default: str) -> None:
    """The study file and where it trains."""
    parser.add_argument("study", metavar="STUDY.yaml", help="the study file")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="changes to the file, for example grid.seeds=6",
    )
    parser.add_argument("-o", "--output", metavar="DIR", help=f"study folder (default: {default})")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the runs and their cost; train nothing"
    )
    parser.add_argument(
        "--workers", type=count, metavar="N",
        help="processes of one thread each (default: one per core; on GPUs, for verl and command "
        "1; 0: in this process)",
    )  # fmt: skip
    parser.add_argument(
        "--calibrate", type=nonnegative, metavar="SECONDS",
        help="train for so long before a new study, to say how long it will take (default: 3; "
        "for verl and command 0)",
    )  # fmt: skip
    parser.add_argument(
        "--retry-failed", action="store_true", help="try failed and invalid runs again"
    )
    parser.add_argument(
        "--ray-address", metavar="ADDRESS",
        help="train on Ray: auto (the cluster of this machine), local (start one), or its address",
    )  # fmt: skip
    parser.add_argument(
        "--num-cpus",
        type=positive,
        default=1,
        metavar="N",
        help="CPUs of one run on Ray (default: 1)",
    )
    parser.add_argument(
        "--num-gpus", type=nonnegative, default=0, metavar="N",
        help="GPUs of one run on Ray (default: 0)",
    )  # fmt: skip


def add_folder(stages: argparse._SubParsersAction[Parser]) -> None:
    """`status`, `watch`, `doctor`."""
    for name, command, summary in (
        ("status", commands.status, "how far a study is, and what it has cost"),
        ("watch", commands.watch, "live status, until nothing is running"),
        ("doctor", commands.doctor, "check a study folder; exit code 1 if it is damaged"),
    ):
        parser = stage(stages, name, command, summary)
        parser.add_argument("folder", metavar="DIR", help="the study folder")
        if name == "watch":
            parser.add_argument(
                "--every",
                type=positive,
                default=2.0,
                metavar="SECONDS",
                help="how often to look (default: 2)",
            )
        else:
            add_json(parser)
