"""A batch of fresh rollouts where a trainer counts its optimizer's steps: TRL, torchtune.

TRL 1.16 (trainer/grpo_trainer.py, `_prepare_inputs`) draws a generation batch, device batch *
processes * `steps_per_generation` completions, for every `steps_per_generation * num_iterations`
micro-batches, of which `gradient_accumulation_steps` make one step of the optimizer. Here an update
is all that one such batch serves: B_p are its prompts, M the batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isocompute.importers.values.reading import whole
from isocompute.importers.words.plain_words import GROUPS, OWN

OF_STATE = "trained_per_device"  # by the state of a trainer, whatever it was asked for
TOLD = "told_processes"  # by the user, where the log's own number of them is in doubt
_PROCESSES = (TOLD, "global_world_size", "world_size", "num_processes")
# Processes that share each sequence: axolotl 0.13, and before it; ms-swift 4.4; accelerate 1.12
_SHARING = ("context_parallel_size", "sequence_parallel_degree", "sequence_parallel_size",
            "parallelism_config_cp_size")  # fmt: skip


class Found(NamedTuple):
    """Configuration found in a log; None where it is not there.

    `window`: updates that a logged row is a mean over.
    `ticks`: what the log's counters move in one update, where that is not one.
    `per_tick`: updates in which they move by one, where those are several.
    `samples_assumed`: evaluations sample as training does, as far as the trainer's own keys go.
    `drawn_problems`: problems of one generated batch, where that is not B_p (dynamic sampling).
    """

    problems_per_batch: int | None = None
    rollouts_per_problem: int | None = None
    steps: int | None = None
    seed: int | None = None
    evaluation_samples: int | None = None
    window: int = 1
    notes: tuple[str, ...] = ()
    drawn_problems: int | None = None
    samples_assumed: bool = False
    ticks: int = 1
    per_tick: int = 1

    @property
    def design(self) -> tuple[int | None, int | None, int | None]:
        """B_p, n and the seed."""
        return self.problems_per_batch, self.rollouts_per_problem, self.seed


class _Batch(NamedTuple):
    """TRL's batch of fresh rollouts.

    Args:
        micro: micro-batches of each process in it.
        drawn: micro-batches that are drawn at once.
        ticks: steps of the optimizer that it serves.
    """

    micro: int
    drawn: int
    ticks: int


def processes_of(config: Mapping[str, object]) -> int | None:
    """Processes that a run trained in, one to a GPU, as far as its configuration says it."""
    return next((n for key in _PROCESSES if (n := whole(config.get(key)))), None)


def sharing(config: Mapping[str, object]) -> tuple[str, int]:
    """The key and the number of processes that share each sequence; ("", 1) where none do.

    >>> sharing({"context_parallel_size": "2"}), sharing({"context_parallel_size": 1})
    (('context_parallel_size', 2), ('', 1))
    """
    found = ((key, whole(config.get(key)) or 1) for key in _SHARING)
    return next((pair for pair in found if pair[1] > 1), ("", 1))


def batch_of_process(config: Mapping[str, object]) -> int:
    """Rollouts that each process draws for a batch, where a configuration says that; 0 else."""
    if n := whole(config.get("grpo_samples")):
        return n * (whole(config.get("batch_size")) or 0)  # torchtune's counts problems
    batch = _batch(config)
    return batch.micro * (device_batch(config) or 0) if batch else 0


def device_batch(config: Mapping[str, object]) -> int | None:
    """Rollouts of a micro-batch; Unsloth raises it to n, and a trainer halves it to fit memory."""
    asked, had = (whole(config.get(key)) for key in ("per_device_train_batch_size", OF_STATE))
    return (had or asked) if asked else None


def _batch(config: Mapping[str, object]) -> _Batch | None:
    """TRL's batch; None where its parts are not known.

    Where a generation batch serves no whole number of the optimizer's steps, or a part of one, the
    batch is what a step draws on average.
    """
    accumulation = whole(config.get("gradient_accumulation_steps"))
    drawn = whole(config.get("steps_per_generation"))
    generated = whole(config.get("generation_batch_size"))
    device = device_batch(config)
    if not accumulation:
        return None
    if not drawn and generated and device:
        each = device * (processes_of(config) or 0)
        if not each or generated % each:
            return None
        drawn = generated // each
    drawn, iterations = drawn or accumulation, whole(config.get("num_iterations")) or 1
    if drawn * iterations % accumulation == 0:
        return _Batch(drawn, drawn, drawn * iterations // accumulation)
    share, rest = divmod(accumulation, iterations)
    return None if rest else _Batch(share, drawn, 1)


def updates_of_trl(config: Mapping[str, object]) -> tuple[float | None, int | None]:
    """Steps of the optimizer that a batch of rollouts serves, and in how many passes over it."""
    batch = _batch(config)
    return None if batch is None else float(batch.ticks), whole(config.get("num_iterations"))


def of_torchtune(config: Mapping[str, object], n: int, seed: int | None) -> Found:
    """What torchtune 0.6 says (recipes/dev/grpo_full_finetune_distributed.py): prompts of a GPU."""
    device, world = whole(config.get("batch_size")) or 0, processes_of(config) or 0
    return Found(
        problems_per_batch=device * world or None,
        rollouts_per_problem=n, seed=seed,
        ticks=whole(config.get("ppo_epochs")) or 1,  # its step counts those, its plan batches
        steps=whole(config.get("num_steps")) or None,
        notes=() if world else (
            f"B_p is {device} (batch_size, of one GPU) * GPUs; torchtune does not log how many "
            "there were",
        ),
    )


def of_trl(config: Mapping[str, object], seed: int | None) -> Found:
    """What TRL's arguments say, also as ms-swift and axolotl keep them."""
    n, notes = whole(config.get("num_generations")) or None, []
    if others := {k: v for k in GROUPS if (v := whole(config.get(k))) and n and v != n}:
        key, value = next(iter(others.items()))
        notes.append(f"num_generations is {n} and {key} {value}: which is n is not known")
        n = None
    generated = whole(config.get("generation_batch_size")) or None
    batch, world = _batch(config), processes_of(config)
    device = device_batch(config)
    accumulation = whole(config.get("gradient_accumulation_steps"))
    ticks = batch.ticks if batch else whole(config.get("num_iterations")) or 1
    each = ""  # what a process adds to B_p
    shared, sharers = sharing(config)
    every = world or (generated or 0) // (device * batch.drawn if device and batch else 1)
    if shared:  # TRL counts each of those that share a sequence, as if it had its own
        generated, world = None, whole(config.get(TOLD))
    if n and batch and generated is None and device:
        what = "accumulation" if batch.micro == accumulation else "steps_per_generation"
        each = f"{device} (per device) * {batch.micro} ({what}) * processes / {n}"
        generated = world and device * world * batch.drawn  # ms-swift says it, as people do
    elif n and generated and device and accumulation and batch is None:
        each = (f"{generated // n} (generation_batch_size / {n}), for generation_batch_size / "
                f"({device} * {accumulation} * processes) updates")  # fmt: skip
    problems: int | None = None
    if n and batch and generated and not generated * batch.micro % (batch.drawn * n):
        problems = generated * batch.micro // (batch.drawn * n)
    own = {k: v for k in OWN if (v := whole(config.get(k)))}
    if len(set(own.values())) > 1:
        problems = None
    elif own and problems is None:
        problems = next(iter(own.values()))
    elif "problems_per_batch" in own:  # the user's word for it, or ours
        problems = own["problems_per_batch"]
    elif own and problems not in own.values():
        key, value = next(iter(own.items()))
        notes.append(f"{key} is {value} and TRL's batch makes {problems}: B_p is not known")
        problems = None
    if each and not own and not world:
        why = (f"the log counts {every} processes, and {shared} {sharers} says that {sharers} of "
               "them share each sequence" if shared else
               "this version of TRL does not log how many; lay accelerate's own file beside the "
               "log")  # fmt: skip
        notes.append(f"B_p is {each}; {why}")
    if ticks > 1:
        notes.append(
            f"a batch of rollouts serves {ticks} steps of the optimizer, one update here: it is "
            "partly off-policy"
        )
    planned = whole(config.get("max_steps")) or 0
    return Found(
        problems_per_batch=problems, rollouts_per_problem=n, steps=-(-planned // ticks) or None,
        seed=seed, evaluation_samples=whole(config.get("num_generations_eval")) or n,
        samples_assumed=not whole(config.get("num_generations_eval")),
        window=whole(config.get("logging_steps")) or 1, notes=tuple(notes), ticks=ticks,
    )
