"""What a study may ask of the embedded engine, and what is refused before any compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from isocompute.engines.local.precision import SamplerType, TrainingType, find_device
from isocompute.engines.options import read_options, require_batch
from isocompute.errors import InputError
from isocompute.recipe import Recipe, check_idle_cap
from isocompute.study.spec import RunSpec

DEFAULT_MODEL = "bits"


@dataclass(frozen=True, kw_only=True)
class Options:
    """`engine_options` of the embedded engine.

    Args:
        model: a Hugging Face folder, or the name of a shipped base model.
        max_new_tokens: length limit of a response; None: the model's generation_config.json.
        device: where everything is computed: "cpu", "cuda", "cuda:1".
        dtype: of matrix products in training: "float32", or "bfloat16" with float32 weights.
        sampler_dtype: of sampling, in training and evaluation: "float32", "bfloat16", or "int8"
            (weights rounded to 8 bits); None: the very policy that is trained.
        shapes: "drawn": rows are distinct responses, as many as were drawn; "fixed": every rollout
            is a row, and random numbers are made on the device (for GPUs; see `together`).
        graphs: whether fixed shapes are captured as CUDA graphs and replayed.
    """

    model: str = DEFAULT_MODEL
    max_new_tokens: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    sampler_dtype: str | None = None
    shapes: str = "drawn"
    graphs: bool = False

    @classmethod
    def of(cls, spec: RunSpec) -> Options:
        """Read the options of a run.

        Raises:
            InputError: for an unknown option or a value of the wrong kind.
        """
        options = read_options(cls, "local", spec.engine_options)
        for name, words in (
            ("dtype", get_args(TrainingType)),
            ("sampler_dtype", (None, *get_args(SamplerType))),
            ("shapes", ("drawn", "fixed")),
        ):
            value = getattr(options, name)
            if value not in words:
                raise InputError(
                    f"engine_options.{name} must be one of "
                    f"{', '.join(str(w) for w in words if w is not None)}, but got {value!r}; "
                    "choose one."
                )
        device = find_device(options.device)
        if options.graphs and (device.type != "cuda" or options.shapes != "fixed"):
            raise InputError(
                "engine_options.graphs needs device cuda and shapes: fixed, but got device "
                f"{options.device!r} and shapes: {options.shapes}; remove it."
            )
        return options

    @property
    def sampler_differs(self) -> bool:
        """Whether the sampler's probabilities are others than the trainer's."""
        return self.sampler_dtype not in (None, self.dtype)


def check_fixed(spec: RunSpec, options: Options) -> None:
    """Refuse what `shapes: fixed` does not compute.

    Raises:
        InputError: names the knob and its value.
    """
    recipe = spec.recipe
    for name, value, wanted in (
        ("objective", recipe.objective, "grpo"),
        ("updates_per_batch", recipe.updates_per_batch, 1),
        ("dtype", options.dtype, "float32"),
        ("sampler_dtype", options.sampler_dtype, None),
    ):
        if value != wanted:
            raise InputError(
                f"`{name}` must be {wanted} with engine_options.shapes: fixed, but got {value!r}; "
                "remove shapes, or change it."
            )


def check_recipe(spec: RunSpec, options: Options) -> None:
    """Refuse knobs that would do nothing, and allocations that the recipe cannot train.

    Raises:
        InputError: names the knob, its value, and what it needs.
    """
    recipe, allocation = spec.recipe, spec.allocation
    n, b_p = allocation.rollouts_per_problem, allocation.problems_per_batch
    several, ppo = recipe.updates_per_batch > 1, recipe.objective == "ppo"
    default = Recipe()
    for name, acts, needs in (
        ("clip_low", several, "updates_per_batch > 1 (the ratio is 1 otherwise)"),
        ("clip_high", several, "updates_per_batch > 1 (the ratio is 1 otherwise)"),
        ("update_split", several, "updates_per_batch > 1"),
        ("gradient_rollouts", not ppo, "a group baseline, which ppo has not"),
        ("zero_variance_filter", recipe.zero_variance_filter != "regularizers" or recipe.kl_coef > 0
         or recipe.entropy_coef > 0, "kl_coef or entropy_coef, the terms that it filters"),
        ("importance_level", recipe.importance_cap is not None, "importance_cap"),
        ("gae_gamma", ppo, "objective ppo"),
        ("gae_lambda", ppo, "objective ppo"),
        ("value_learning_rate", ppo, "objective ppo"),
        ("value_clip", ppo and several, "objective ppo with updates_per_batch > 1"),
    ):  # fmt: skip
        value = getattr(recipe, name)
        if value != getattr(default, name) and not acts:
            raise InputError(
                f"recipe `{name}` must be left at its default for the engine 'local' without "
                f"{needs}, but got {value!r}, which would do nothing; remove it."
            )
    if options.shapes == "fixed":
        check_fixed(spec, options)
    if not options.sampler_differs:
        check_idle_cap(recipe, "local")
    if n < 2 and not ppo:
        raise InputError(
            "`rollouts_per_problem >= 2` must hold for a group baseline, but got "
            f"{n}; raise it."
        )
    if n < 2 and recipe.zero_variance_filter != "none":
        raise InputError(
            "`rollouts_per_problem >= 2` must hold for a zero_variance_filter, but got "
            f"{n}; raise it."
        )
    if recipe.gradient_rollouts is not None and recipe.gradient_rollouts > n:
        raise InputError(
            "recipe `gradient_rollouts` (n_train) must not exceed rollouts_per_problem (n_est), "
            f"but got {recipe.gradient_rollouts} of {n}; lower it."
        )
    if several and recipe.update_split == "mini-batch" and b_p % recipe.updates_per_batch:
        raise InputError(
            "`problems_per_batch` must be a multiple of updates_per_batch for mini-batches, but "
            f"got {b_p} and {recipe.updates_per_batch}; change one, or take update_split=epoch."
        )
    require_batch(spec)
