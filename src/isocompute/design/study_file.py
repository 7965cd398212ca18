"""A designed sweep, or run, as a study file that `isocompute run` takes as it is."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isocompute.answers.price import Price
from isocompute.design.kept import Kept
from isocompute.design.simulate import Sweep
from isocompute.domain import Configuration
from isocompute.engines.command import FILL_IN, NEEDED, PLACE
from isocompute.errors import InputError
from isocompute.files import write_text
from isocompute.problems import load_problems
from isocompute.recipe import Difficulty, Recipe
from isocompute.study.evaluated import PER_OCTAVE, PROBLEMS, SAMPLES
from isocompute.study.sweep import DOUBLING, QUARTERED

# Tokens of a response under TRL, where nobody says: at half, answers with reasoning are cut; at
# twice, small models on one GPU take twice as long where they ramble.
MAX_NEW_TOKENS = 1024
# The length at which responses are cut: its word by engine, and its value where nobody says.
_CUT = {"trl": ("max_new_tokens", MAX_NEW_TOKENS), "verl": ("max_response_tokens", 8192)}
PER_NODE = 8  # GPUs of a node, where more than one node is needed
# What a person settles before the first run.
_SETTLE = {
    "trl": "Responses are cut at max_new_tokens ({}). `python` names the interpreter that has TRL.",
    "verl": "Responses are cut at max_response_tokens ({}). `python` names the interpreter that "
            "has verl.",
    "local": "Trains on the CPU. On a GPU: engine_options: {{device: cuda}}, see "
             "docs/engines-local.md.",
    "command": "`log` is what your trainer writes below {{folder}}, `reader` what it is, `map` "
               "what its keys hold: docs/howto/own-trainer.md.",
}
_CHECKED = (
    "Answers are checked by `verifier`: exact (the whole response is the answer), integer, math, "
    "FILE.py:FUNCTION."
)
# What stands in for problems and model that were not named: the model's world, if it is a shipped
# one, else the smallest.
_WORLD, _STAND_IN_SIZE = "bits", 512
_MODELS = {"local": "bits-mlp", "trl": "bits", "verl": "Qwen/Qwen2.5-7B-Instruct"}
_LOG, _READER = "metrics.jsonl", "jsonl"  # of a command: what most loops of one's own write
# Learning rates of the shipped models at 1,024 rollouts per batch and temperature 1, as the studies
# of this package found and used them.
_RATES = {"bits-mlp": 1e-3, "countdown": 1e-3, "machine": 1e-3, "products": 1e-3, "verbs": 5e-4,
          "verbs-long": 5e-4}  # fmt: skip
_USUAL = "Qwen2.5-7B"  # whose learning rate a recipe has where nobody says


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """What a study trains with.

    Args:
        engine: local, trl, verl or command.
        model: Hugging Face id or folder; None: a stand-in.
        train, validation: problem files; None: generated stand-ins, or a part held out.
        gpus: that each run may use; None: the engine's default.
        difficulty: of the problem set.
        verifier: how answers are checked; None: as the file says, else exactly.
        tokens: of a response, mean; None: not known.
        kept: what the prior's runs say of their recipe, which goes before the difficulty's.
        command: arguments that train one run, with placeholders; None: to be filled in.
        resume: further ones, with which it goes on in its folder; None: to be filled in.

    Raises:
        InputError: a validation file without one to train on; a model or a command of another
            engine.
    """

    engine: str = "local"
    model: str | None = None
    train: str | None = None
    validation: str | None = None
    gpus: int | None = None
    difficulty: str = "easy"
    verifier: str | None = None
    tokens: float | None = None
    kept: Kept = field(default_factory=Kept)
    command: Sequence[str] | None = None
    resume: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.validation is not None and self.train is None:
            raise InputError(
                "--validation needs problems to train on, but there is no --train; add it."
            )
        if self.engine == "command" and self.model is not None:
            raise InputError(
                "the model of your own trainer must stand in its command, but got --model "
                f"{self.model}; put it into --command."
            )
        if self.engine != "command" and (self.command, self.resume) != (None, None):
            raise InputError(
                f"--command and --resume are of the engine 'command', but got --engine "
                f"{self.engine}; leave them out, or --engine."
            )

    @property
    def cut(self) -> int | None:
        """Tokens at which responses are cut: as in the runs, else twice the mean and more.

        None: by the engine.
        """
        if self.engine not in _CUT:
            return None
        if self.kept.response_limit is not None:
            return self.kept.response_limit
        usual = _CUT[self.engine][1]
        return max(usual, 1 << math.ceil(math.log2(2 * (self.tokens or 1.0))))

    @property
    def is_cut_later(self) -> bool:
        """Whether responses are longer than where they are cut usually."""
        brings_its_own = self.engine == "trl" and self.model is None
        if self.cut is None or brings_its_own or self.kept.response_limit is not None:
            return False
        return self.cut > _CUT[self.engine][1]

    @property
    def slices(self) -> int:
        """How often a run of the sweep starts the trainer, at most; 0: it is in this process."""
        whole = {"trl": len(DOUBLING), "verl": len(QUARTERED), "command": len(QUARTERED)}
        return whole.get(self.engine, 0)

    @property
    def share(self) -> float | None:
        """Of training that evaluations draw, where the trainer evaluates every so many steps."""
        from isocompute.engines.verl import VerlOptions

        return VerlOptions.validation_share if self.engine == "verl" else None

    @property
    def stands_in(self) -> bool:
        """Whether problems or model are not those of a person."""
        return self.train is None or (self.model is None and self.engine != "command")

    @property
    def trains_the_toy(self) -> bool:
        """Whether the study trains the shipped model on shipped problems, whose rate is known.

        For trl and verl a shipped model only stands in until a person names one.
        """
        return self.engine == "local" and self.train is None and self.model is None

    @property
    def rate_known(self) -> bool:
        """Whether no learning rate need be tried."""
        named = self.engine == "local" and self.model in _RATES
        return self.trains_the_toy or named or self.kept.has_rate

    @property
    def words(self) -> dict[str, Any]:
        """The words of `recipe`, beside the difficulty."""
        # Of shipped models alone: their rates would ruin a model of a billion parameters.
        rate = _RATES.get(self.model or _MODELS["local"]) if self.engine == "local" else None
        own = {} if rate is None else {"learning_rate": rate, "temperature": 1.0}
        if self.engine == "command":  # what it is not told, it sets by itself
            usual = Recipe()
            of = Recipe.for_difficulty(cast("Difficulty", self.difficulty), **self.kept.words)
            told = {"learning_rate", *PLACE.findall(" ".join((*self._command, *self._resume)))}
            return {word: value for word, value in of.to_dict().items()
                    if word in told or (word in self.kept.words and value == getattr(usual, word))}
        return {**self.kept.words, **own} if self.trains_the_toy else {**own, **self.kept.words}

    @property
    def learning_rate(self) -> dict[str, Any]:
        """The rate in the file, whose it is, and the temperature that it goes with."""
        of = "runs" if self.kept.has_rate and not self.trains_the_toy else _USUAL
        if of == _USUAL and self.engine == "local" and "learning_rate" in self.words:
            of = self.model or _MODELS["local"]
        recipe = self.recipe
        return {"value": recipe.learning_rate, "of": of, "temperature": recipe.temperature}

    @property
    def recipe(self) -> Recipe:
        """What is trained with."""
        if self.engine == "command":
            return Recipe(**self.words)
        return Recipe.for_difficulty(cast("Difficulty", self.difficulty), **self.words)

    @property
    def _command(self) -> Sequence[str]:
        needed = [f"{{{name}}}" for name in NEEDED]
        return self.command if self.command is not None else [FILL_IN, *needed]

    @property
    def _resume(self) -> Sequence[str]:
        return self.resume if self.resume is not None else [FILL_IN]

    @property
    def engine_options(self) -> dict[str, Any]:
        """`engine_options` of the file."""
        if self.engine == "command":
            return {"command": [*self._command], "resume": [*self._resume], "log": _LOG,
                    "reader": _READER}  # fmt: skip
        return _engine_options(self)

    @property
    def problems(self) -> int | None:
        """Size of the training set; None where there is none."""
        if self.train is None:
            return None
        every = len(load_problems(self.train))
        return every if self.validation is not None else every - _held_out(every)

    @property
    def evaluated(self) -> int:
        """Problems of an evaluation."""
        if self.train is None:
            return PROBLEMS
        if self.validation is not None:
            return len(load_problems(self.validation))
        return _held_out(len(load_problems(self.train)))


def write_study(path: str | Path, sweep: Sweep, trainer: Trainer, **more: Any) -> None:
    """Write the study file of a sweep, or of a run in its place.

    Args:
        path: the YAML file.
        sweep: what to train.
        trainer: with what.
        more: final, tried, problems, price: see `study_content`.

    Raises:
        InputError: problem files that cannot be read.
    """
    content = study_content(Path(path), sweep, trainer, **more)
    lines = ["# Written by `isocompute design`; its words: docs/sweep.md, a recipe's: docs/api.md."]
    if trainer.stands_in:
        what = ("Sizes of the problem sets" if trainer.engine == "command" else
                "Problems or model")  # fmt: skip
        lines.append(f"# {what} are placeholders: put yours in before you run it.")
    if trainer.engine != "local" or trainer.gpus is not None:
        lines.append(f"# {_SETTLE[trainer.engine].format(trainer.cut)}")
    if trainer.train is not None:
        lines.append(f"# {_CHECKED}")
    for key, value in content.items():
        if key == "engine_options" and trainer.engine == "command":  # each to be looked at
            if FILL_IN in (*value["command"], *value["resume"]):
                lines.append(f"# {FILL_IN}: your own arguments stand in its place; no shell reads "
                             "them. `resume` are those with which a run goes on ([]: none).")
            lines.append(f"{key}:")
            lines += [f"  {k}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
        else:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    write_text(path, "\n".join(lines) + "\n")


def study_content(path: Path, sweep: Sweep, trainer: Trainer, *, final: float | Sweep,
                  problems: int | None, price: Price, tried: Sweep | None = None,
                  ) -> dict[str, Any]:  # fmt: skip
    """The words of the study file; see `write_study`.

    Args:
        path: where the file will stand: paths in it are relative to its folder.
        sweep: what to train, at most: the sweep is adaptive and freezes what cannot matter.
        final: rollouts of the run that is planned with it, or the run to train in its place.
        tried: the learning rates before either.
        problems: D: so many of the training problems; None: all.
        price: whose rates are kept with the study.
    """
    own = {} if trainer.engine == "command" else {"difficulty": trainer.difficulty}
    recipe: dict[str, Any] = {**own, **trainer.words}
    alone = final if isinstance(final, Sweep) else None
    trained = alone or sweep
    known = _rates(price, trained, tried)
    if trainer.engine == "command":  # of no other engine's options do they follow
        known |= _known(gpus=trainer.gpus)
    # Rates are not tried at the batch of the run: at n = 512 they would take a third of it.
    at: dict[str, Any] = {} if tried is None else {
        "lr_sweep": {"rollouts_per_problem": tried.rollouts_per_problem[0],
                     "steps": tried.steps(tried.rollouts_per_problem[0])}}  # fmt: skip
    return {
        "engine": trainer.engine,
        "engine_options": trainer.engine_options,
        "problems": _problems(path.parent, trainer, problems),
        "recipe": recipe,
        "grid": {
            "problems_per_batch": trained.problems_per_batch,
            "rollouts_per_problem": list(trained.rollouts_per_problem),
            "seeds": trained.seeds,
        },
        "budget": trained.rollouts_per_run,
        "evaluation": {
            "samples": SAMPLES, "per_octave": PER_OCTAVE, "first": trained.first_evaluation,
        },
        **({"rates": known} if known else {}),
        **({"adaptive": {"target": int(final), "spend": sweep.rollouts}}
           if not isinstance(final, Sweep) else {}),
        **at,
    }  # fmt: skip


def _rates(price: Price, trained: Sweep, tried: Sweep | None) -> dict[str, Any]:
    """What rollouts cost, for all and by batch: what the study's own runs take goes before."""
    runs = {
        (Configuration(part.problems_per_batch, n), part.steps(n) * part.problems_per_batch * n)
        for part in (trained, tried) if part is not None for n in part.rollouts_per_problem
    }  # fmt: skip
    usual = price.of(*{c for c, _ in runs if c.rollouts_per_problem in
                       trained.rollouts_per_problem})  # fmt: skip
    rows = list[dict[str, Any]]()
    for c, rollouts in sorted(runs):
        own = price.of(c, rollouts=rollouts)
        rows.append({**c._asdict(), "rollouts": rollouts, **_known(
            tokens_per_rollout=own.tokens_per_rollout,
            rollouts_per_gpu_hour=own.rollouts_per_gpu_hour)})  # fmt: skip
    words: dict[str, Any] = _known(**vars(usual))
    words |= {"by_batch": rows} if words.keys() - {"usd_per_gpu_hour"} else {}
    if usual.rollouts_per_gpu_hour is not None:
        words |= _known(gpu_hours_per_start=price.start)
        words |= {"evaluations_timed": True} if price.clocked else {}
    return words


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _engine_options(trainer: Trainer) -> dict[str, Any]:
    options: dict[str, Any] = {"model": trainer.model or _MODELS[trainer.engine]}
    if trainer.engine == "trl" and trainer.model is not None:
        options["max_new_tokens"] = trainer.cut  # a shipped model brings its own
    kept = trainer.kept.response_limit is not None
    if trainer.engine == "verl" and (trainer.is_cut_later or kept):
        options["max_response_tokens"] = trainer.cut
    if trainer.engine == "trl" and (trainer.gpus or 1) > 1:
        options["processes"] = trainer.gpus
    if trainer.engine == "verl" and trainer.gpus is not None:
        nodes = -(-trainer.gpus // PER_NODE)
        if trainer.gpus % nodes:
            raise InputError(
                f"GPUs must fill nodes of at most {PER_NODE} evenly, but got {trainer.gpus}; "
                f"give for example {nodes * PER_NODE}."
            )
        options |= {"nodes": nodes, "gpus_per_node": trainer.gpus // nodes}
    return options


def _problems(folder: Path, trainer: Trainer, problems: int | None) -> dict[str, Any]:
    if trainer.train is None and trainer.engine == "command":  # their sizes alone are used
        sizes = {"train": problems or _STAND_IN_SIZE, "validation": PROBLEMS}
        of = {part: {"generated": "simulated", "options": {"size": size}}
              for part, size in sizes.items()}  # fmt: skip
        return {"train": of["train"], "validation": {"all": of["validation"]}}
    if trainer.train is None:
        name = trainer.model if trainer.model in _RATES else _WORLD
        world: Mapping[str, Any] = {"world": name.partition("-")[0], "seed": 1}
        return {
            "train": {"generated": "world", "options": {
                **world, "part": "train", "size": problems or _STAND_IN_SIZE}},
            "validation": {"all": {"generated": "world", "options": {
                **world, "part": "validation", "size": PROBLEMS}}},
        }  # fmt: skip
    train = {"path": _beside(trainer.train, folder), **_checked(trainer.train, trainer)}
    if trainer.validation is not None:
        validation = {"path": _beside(trainer.validation, folder),
                      **_checked(trainer.validation, trainer)}  # fmt: skip
    else:
        held = {"held_out": _held_out(len(load_problems(trainer.train)))}
        validation = {**train, **held, "part": "validation"}
        train |= {**held, "part": "train"}
    if problems is not None:
        train["size"] = problems
    return {"train": train, "validation": {"all": validation}}


def _checked(file: str, trainer: Trainer) -> dict[str, Any]:
    """The verifier of a file, in so many words: nobody has to know what is taken otherwise."""
    return {"verifier": load_problems(file, verifier=trainer.verifier).verifier}


def _held_out(problems: int) -> int:
    """Problems kept for validation: what an evaluation asks for, a fifth of a small set."""
    return max(1, min(PROBLEMS, problems // 5))


def _beside(file: str, folder: Path) -> str:
    """A path as the study file must name it: from its own folder."""
    return os.path.relpath(Path(file).resolve(), folder.resolve())
