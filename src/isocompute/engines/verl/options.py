"""What a study says to the verl engine, and everything that is refused before compute is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isocompute.engines.options import read_options, require_words
from isocompute.errors import InputError
from isocompute.study.spec import RunSpec
from isocompute.trainers.verl import COUNTS_FROM_ONE, NEWEST
from isocompute.verifiers import require_verifier

Version = tuple[int, int]
OLDEST: Version = (0, 6)


@dataclass(frozen=True, kw_only=True)
class VerlOptions:
    """`engine_options` of the verl engine.

    Args:
        model: Hugging Face id or folder, as verl's machines see it.
        python: the Python that has verl.
        version: verl's release; keys moved between 0.6 and 0.9.
        folder: where data, rewards, logs and checkpoints of the runs go; on a cluster a folder
            that every node sees.
        nodes, gpus_per_node: the machines.
        max_prompt_tokens, max_response_tokens: length limits; a longer prompt is an error.
        rollout_engine: "vllm" or "sglang".
        tensor_parallel: GPUs per copy of the sampler.
        gpu_memory_utilization: share of a GPU's memory that the sampler takes.
        max_tokens_per_gpu: of a micro-batch; None: two samples of full length.
        ray_address: `http://HEAD:8265` to submit there; None: on this machine.
        validation_share: rollouts of validation may be this share of training's, which sets
            how often verl validates when the grid asks for more.
        poll_s: seconds between two looks at the logs.
        environment: variables of verl's processes; PYTHONPATH is only what stands here.
        overrides: further Hydra keys, of those known not to change what is trained.
    """

    model: str
    python: str = "python3"
    version: str = "0.9.1"
    folder: str = "verl-runs"
    nodes: int = 1
    gpus_per_node: int = 8
    max_prompt_tokens: int = 1024
    max_response_tokens: int = 8192  # the paper's (arXiv 2603.12151, appendix A)
    rollout_engine: str = "vllm"
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.6
    max_tokens_per_gpu: int | None = None
    ray_address: str | None = None
    validation_share: float = 0.25
    poll_s: float = 5.0
    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: RunSpec) -> VerlOptions:
        """Read the options of a run.

        Raises:
            InputError: for an unknown option, or a value outside its range.
        """
        if not spec.engine_options.get("model"):
            raise InputError(
                "engine_options.model must name a Hugging Face model or folder for the engine "
                "'verl', but got none; add it."
            )
        options = read_options(
            cls, "verl", spec.engine_options, ", or put a Hydra key under overrides"
        )
        options._check()
        return options

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def release(self) -> Version:
        """(major, minor) of verl."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match.group(1)), int(match.group(2))) if match else (0, 0)

    @property
    def saves_in_step(self) -> bool:
        """Whether `timing_s/step` holds the checkpoint, as since 0.7.1 (ray_trainer.py, fit)."""
        return [int(part) for part in re.findall(r"\d+", self.version)] >= [0, 7, 1]

    @property
    def longest(self) -> int:
        """Tokens that the sampler must have room for; SGLang keeps one to itself."""
        return self.max_prompt_tokens + self.max_response_tokens + (
            self.rollout_engine == "sglang")

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        longest = self.max_prompt_tokens + self.max_response_tokens
        return 2 * longest if self.max_tokens_per_gpu is None else self.max_tokens_per_gpu

    def _check(self) -> None:
        whole = ("nodes", "gpus_per_node", "max_prompt_tokens", "max_response_tokens",
                 "tensor_parallel")  # fmt: skip
        for name in whole:
            if getattr(self, name) < 1:
                _refuse(name, "an integer >= 1", getattr(self, name), "raise it")
        if not OLDEST <= self.release <= NEWEST:
            _refuse("version", f"between {OLDEST[0]}.{OLDEST[1]} and {NEWEST[0]}.{NEWEST[1]}",
                    self.version, "name the release that `python` has")
        if self.rollout_engine not in ("vllm", "sglang"):
            _refuse("rollout_engine", "vllm or sglang", self.rollout_engine, "choose one of them")
        if self.gpus % self.tensor_parallel:
            _refuse("tensor_parallel", f"a divisor of {self.gpus} GPUs", self.tensor_parallel,
                    "change one of them")
        if not 0 < self.gpu_memory_utilization < 1:
            _refuse("gpu_memory_utilization", "between 0 and 1", self.gpu_memory_utilization,
                    "give a share")
        if self.validation_share <= 0:
            _refuse("validation_share", "> 0", self.validation_share, "give a share such as 0.25")
        for name, value in self.environment.items():
            if not (isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)):
                _refuse("environment", "names with texts", {name: value}, "quote the value")
        if self.poll_s <= 0:
            _refuse("poll_s", "> 0", self.poll_s, "give seconds")
        if self.micro_batch_tokens < self.max_prompt_tokens + self.max_response_tokens:
            _refuse("max_tokens_per_gpu",
                    "at least max_prompt_tokens + max_response_tokens = "
                    f"{self.max_prompt_tokens + self.max_response_tokens}",
                    self.max_tokens_per_gpu, "raise it")


def _refuse(name: str, rule: str, value: object, cure: str) -> None:
    raise InputError(f"engine_options.{name} must be {rule}, but got {value!r}; {cure}.")


def check_spec(spec: RunSpec, options: VerlOptions) -> None:
    """Refuse what verl cannot train as asked, or would train otherwise without a word.

    Raises:
        InputError: names the knob, its value, and what verl offers.
    """
    recipe, allocation = spec.recipe, spec.allocation
    b_p, n = allocation.problems_per_batch, allocation.rollouts_per_problem
    supported: tuple[tuple[str, tuple[object, ...], str], ...] = (
        ("advantage_std", ("sample",) if recipe.objective == "ppo" else ("sample", "none"),
         "verl divides by the sample std, or not at all, which it cannot with ppo"),
        ("zero_variance_filter", ("none",),
         "verl only refills batches (DAPO), which draws more rollouts than B_p * n * M"),
        ("gradient_rollouts", (None,), "all rollouts of a group are in its gradient"),
    )
    require_words(recipe, "verl", supported)
    if recipe.objective == "cispo" and options.release < (0, 7):
        raise InputError(
            f"objective 'cispo' needs verl >= 0.7, but got version={options.version!r}; "
            "upgrade verl or choose grpo."
        )
    if recipe.warmup_steps and options.release < COUNTS_FROM_ONE:
        raise InputError(
            "recipe `warmup_steps` must be 0 with verl < 0.8, where warm-up gives the first update "
            f"a learning rate of 0, but got {recipe.warmup_steps} with version="
            f"{options.version!r}; upgrade verl, or set warmup_steps to 0."
        )
    if recipe.objective != "ppo" and n < 2:
        raise InputError(
            f"`rollouts_per_problem >= 2` must hold for a group advantage, but got {n}; raise it "
            "or choose objective ppo."
        )
    shares = recipe.updates_per_batch if recipe.update_split == "mini-batch" else 1
    if b_p % shares:
        raise InputError(
            "`problems_per_batch` must be a multiple of updates_per_batch for mini-batches, but "
            f"got {b_p} and {shares}; change one, or take update_split=epoch."
        )
    if (b_p // shares * n) % options.gpus:
        part = f"{b_p} * {n} = {b_p * n}" if shares == 1 else f"{b_p} / {shares} * {n}"
        fits = next(g for g in range(options.gpus, 0, -1) if b_p // shares * n % g == 0)
        raise InputError(
            f"B_p * n of an update must be a multiple of the GPUs, but got {part} on "
            f"{options.gpus} GPUs (verl would pad or refuse); take {fits}, or another B_p."
        )
    if len(spec.train) < b_p:
        raise InputError(
            f"the training set must hold at least B_p problems, but got {len(spec.train)} for "
            f"B_p={b_p} (verl drops incomplete batches, so it would train nothing); lower B_p."
        )
    for problems in (spec.train, *spec.validation.values()):
        require_verifier(problems.verifier)
