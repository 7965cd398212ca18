"""What a study says to the engine `command`, and what is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from isocompute.engines.options import read_options
from isocompute.errors import InputError
from isocompute.importers.words.settings import Settings, settings_from
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

# What `engine_options.reader` may say -> the formats that it stands for.
READERS: dict[str, tuple[str, ...]] = {
    "recorder": ("recorder",),
    "jsonl": ("jsonl", "verl-file", "skyrl-eval"),
    "dumps": ("verl-dump", "skyrl-dump"),
    "trl": ("trainer-state",),
    "console": ("trl-console", "verl-console"),
    "csv": ("wandb-csv", "tensorboard-csv", "long-csv"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "mlflow-files"),
    "trackio": ("trackio",),
}
# Each of these must be in the command, as one of its words.
_NEEDED = (
    ("problems_per_batch", "batch_size"), ("rollouts_per_problem",),
    ("steps", "rollouts", "prompts"), ("seed",), ("learning_rate",), ("folder",),
)  # fmt: skip
_IN_THE_RATE = {"learning_rate", "base_batch_size", "learning_rate_scaling",
                "allow_entropy_without_kl"}  # fmt: skip
FILL_IN = "FILL_IN"  # what `design` writes in place of arguments that nobody gave
NEEDED = ("problems_per_batch", "rollouts_per_problem", "steps", "seed", "learning_rate", "folder")
PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """`engine_options` of the engine `command`.

    Args:
        command: program and arguments, with placeholders; it runs where isocompute was started.
        log: file or folder that the trainer writes, below `{folder}`.
        reader: how the log is read, one of `READERS`.
        resume: further arguments of a command that goes on in a folder where it was stopped, also
            before its first checkpoint; None: it always begins anew, in a folder of its own.
        metric: of the log, where it has several means (`avg@4`).
        map: what keys of the log hold, as `isocompute import --map` says it; how a log is read is
            no part of a run, and may be mended without training it again.
        fixed: words of the recipe that the command sets by itself.
        folder: where runs have their folders.
        gpus: on which one run trains, as older studies say it; now `rates.gpus`, no part of a run.
        poll_s: seconds between two looks at the process.
    """

    command: Sequence[str]
    log: str
    reader: str
    resume: Sequence[str] | None = None
    metric: str | None = None
    map: Mapping[str, Any] | None = None
    fixed: Sequence[str] = ()
    folder: str = "command-runs"
    gpus: int | None = None
    poll_s: float = 1.0

    @classmethod
    def of(cls, spec: RunSpec) -> CommandOptions:
        """Read the options of a run.

        Raises:
            InputError: for an unknown or a missing option, or one of the wrong kind.
        """
        given = spec.engine_options
        for name in ("command", "log", "reader"):
            if not given.get(name):
                raise InputError(
                    f"engine_options.{name} must be given for the engine 'command', but is "
                    "missing; see docs/howto/own-trainer.md."
                )
        for name in ("command", "resume", "fixed"):
            value = given.get(name) or []
            if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
                raise InputError(
                    f"engine_options.{name} must be a list of texts, one per argument (there is no "
                    f"shell), but got {value!r:.80}; write [python, train.py, --lr, "
                    "'{learning_rate}']."
                )
        options = read_options(cls, "command", given)
        _ = options.columns  # refused here, before anything starts
        if options.reader not in READERS:
            raise InputError(
                f"engine_options.reader must be one of {', '.join(READERS)}, but got "
                f"{options.reader!r}; choose what the log is."
            )
        if not options.poll_s > 0:
            raise InputError(
                f"engine_options.poll_s must be > 0, but got {options.poll_s!r}; give seconds."
            )
        if options.gpus is not None and options.gpus < 1:
            raise InputError(
                f"engine_options.gpus must be >= 1, but got {options.gpus!r}; give those of a run."
            )
        inside = Path(options.log)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError(
                f"engine_options.log must lie below {{folder}}, but got {options.log!r}; let the "
                "trainer write there, and give the path from there."
            )
        return options

    @property
    def unfilled(self) -> str:
        """The first option that nobody has filled in; "" where there is none."""
        parts = {"command": self.command, "resume": self.resume or ()}
        return next((name for name, words in parts.items() if FILL_IN in words), "")

    @property
    def columns(self) -> Settings:
        """The map, as importers take it.

        Raises:
            InputError: a meaning that is none.
        """
        return settings_from({"columns": dict(self.map or {})})


def check_spec(spec: RunSpec, options: CommandOptions) -> None:
    """Refuse a command that would not train as the study asks.

    Raises:
        InputError: names the placeholder or the word of the recipe, and the cure.
    """
    words = placeholders(spec, "")
    used = {name for text in (*options.command, *(options.resume or ()))
            for name in PLACE.findall(text)}  # fmt: skip
    for name in sorted(used - set(words)):
        close = difflib.get_close_matches(name, sorted(words), n=1)
        raise InputError(
            f"a placeholder must name a setting of the plan or the recipe, but the command has "
            f"{{{name}}}; "
            + (f"did you mean {{{close[0]}}}?" if close else f"take one of {', '.join(words)}.")
        )
    for names in _NEEDED:
        if not used & set(names):
            raise InputError(
                f"the command must hold {' or '.join(f'{{{n}}}' for n in names)}, or every run "
                f"would have the same, but it reads {' '.join(options.command)[:200]}; add it."
            )
    _require_carried(spec.recipe, used | set(options.fixed))


def placeholders(spec: RunSpec, folder: str) -> dict[str, str]:
    """What each placeholder of a command stands for.

    Args:
        spec: the run.
        folder: of the run's own files.
    """
    a = spec.allocation
    words: dict[str, Any] = {
        **spec.recipe.to_dict(), "problems_per_batch": a.problems_per_batch,
        "rollouts_per_problem": a.rollouts_per_problem, "batch_size": a.batch_size,
        "steps": a.steps, "rollouts": a.rollouts, "prompts": a.problems_per_batch * a.steps,
        "seed": spec.seed, "learning_rate": spec.learning_rate, "folder": folder,
        "evaluation_samples": spec.evaluation_samples,
    }  # fmt: skip
    return {name: _text(value) for name, value in words.items()}


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _require_carried(recipe: Recipe, carried: set[str]) -> None:
    default = Recipe()
    lost = [
        f"{f.name}={_text(getattr(recipe, f.name))}" for f in fields(Recipe)
        if f.name not in carried | _IN_THE_RATE
        and getattr(recipe, f.name) != getattr(default, f.name)
    ]
    if lost:
        names = [word.partition("=")[0] for word in lost]
        raise InputError(
            f"the recipe must reach the trainer, but the command does not hold {', '.join(lost)};"
            f" add {' '.join(f'{{{n}}}' for n in names)}, or engine_options.fixed: "
            f"[{', '.join(names)}] where the command sets them itself."
        )
