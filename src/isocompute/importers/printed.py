"""Rows and settings that trainers print in forms of their own, slime and OpenRLHF among them.

Sources: slime 0.3.1, ray/rollout.py and utils/metric_utils.py (`eval 19: {...}`); torchtune 0.6,
training/metric_logging.py, DiskLogger (`Step 5 | loss:0.1 rewards:0.4`); Megatron-LM 0.13,
training/arguments.py (`  seed ........ 1234`); Unsloth 2025.11, models/rl.py and _utils.py;
OpenRLHF 0.9.0 to 0.11.0 (3c3be623), trainer/ppo_trainer.py, fit and evaluate (`Global step 9: {}`,
`global_step 10, eval_metrics: {}`) and ppo_trainer_async.py (`Eval at step 10: {}`, behind step
11), here with the keys of its trackers (utils/logging_utils.py); SkyRL (a956457),
skyrl/train/utils/tracking.py, ConsoleLogger (`Step 10: `, then `{...}` over several lines).
"""

from __future__ import annotations

import ast
import contextlib
import re
from typing import NamedTuple

from isocompute.importers.elsewhere import tells
from isocompute.importers.reading import flatten, parse_python

_SLIME = re.compile(r"(?:^|[\s\]])(eval|rollout) ([0-9]{1,15}): (\{'.*\})\s*$")
_OPENRLHF = re.compile(
    r"\b(?:(?P<train>Global step)|Eval at step|global_step(?= [0-9]+,)) ([0-9]{1,15})"
    r"(?:, eval_metrics)?: (\{'.*\})\s*$"
)
_HEADING = re.compile(r"(?:^|[-|\]] )Step [0-9]{1,15}:\s*$")  # no "Epoch 2, Step 3:"
_SKYRL = re.compile(r"(?:^|[-|\]] )Step ([0-9]{1,15}): (\{'.*\})\s*$")
_MOST_LINES = 1_000  # of a printed dictionary; trainers log some hundred numbers at once
_TORCHTUNE = re.compile(r"^Step ([0-9]{1,15}) \| ((?:[^\s:]+:\S+\s*)+)$")
# --rollout-batch-size 32 of a command that was printed, and Megatron's list of all arguments
_OPTION = re.compile(r"--([a-z][a-z0-9_.-]{1,60})[ =](?!-)([^\s'\"\\$]{1,300})(?=[\s'\"\\]|$)")
_ARGUMENT = re.compile(r"^\s*([a-z]\w{1,60}) \.{2,80} (\S{1,200})\s*$")
_ARGUMENTS = frozenset((
    "rollout_batch_size", "n_samples_per_prompt", "global_batch_size", "num_rollout", "seed",
    "rollout_seed",
    "n_samples_per_eval_prompt", "rollout_temperature", "rollout_max_response_len", "lr",
    "hf_checkpoint", "prompt_data", "dynamic_sampling_filter_path", "wandb_always_use_train_step",
))  # fmt: skip
# Unsloth raises the batch of a device to n where it is below; its banner says what was trained with
_RAISED = re.compile(r"change the batch size of [0-9]+ to the `num_generations` of ([0-9]+)")
_BANNER = re.compile(r"Total batch size \(([0-9]+) x ([0-9]+) x ([0-9]+)\)")
_OF_BANNER = ("per_device_train_batch_size", "gradient_accumulation_steps", "global_world_size")
_BATCH_OPTIONS = re.compile(
    r"--rollout[._-]batch[_-]size|--(?:rollout\.)?n[_-]samples[_-]per[_-]prompt|--num[_-]generations"
)


class Printed(NamedTuple):
    """A printed row: the trainer's format, its step as text, its numbers."""

    source: str
    step: str
    values: dict[str, object]


class Joined:
    """Lines of a console; a dictionary over several of them stands behind its step, in one.

    >>> joined = Joined()
    >>> [joined.take(line, "") for line in ("Step 3: ", "{'a': '1',", "of another", " 'b': 2}")]
    [None, None, 'of another', "Step 3: {'a': '1', 'b': 2}"]
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._process: str | None = None

    def take(self, text: str, process: str | None) -> str | None:
        """The line, or what ends with it; None where it goes on."""
        if _HEADING.search(text):
            self._held, self._process = [text.strip()], process
            return None
        began = "{'" if len(self._held) == 1 else (" ", "'", '"')
        if not self._held or process != self._process or not text.startswith(began):
            return text
        self._held.append(text.strip())
        whole, ends = " ".join(self._held), text.rstrip().endswith("}")
        if ends or len(self._held) > _MOST_LINES:
            self._held = []
        return whole if ends else None


def row_in(text: str) -> Printed | None:
    """The row that a line holds; None for any other line.

    >>> row_in("Step 5 | loss:0.1 rewards:0.4 ").values
    {'loss': '0.1', 'rewards': '0.4'}
    """
    if text.startswith("Step ") and (match := _TORCHTUNE.match(text)):
        pairs = (part.rpartition(":") for part in match[2].split())
        return Printed("torchtune-console", match[1], {key: value for key, _, value in pairs})
    if "{'" not in text:
        return None
    if match := _SLIME.search(text):
        source, part, step = "slime-console", match[1], match[2]
    elif match := _OPENRLHF.search(text):
        source, step = "openrlhf-console", match[2]
        part = "train" if match["train"] else "eval"
    elif match := _SKYRL.search(text):
        source, part, step = "skyrl-console", "", match[1]
    else:
        return None
    values = parse_python(match[match.re.groups])
    if not isinstance(values, dict):
        return None
    if not part:
        return Printed(source, step, values)
    if source == "slime-console":
        return Printed(source, step, {f"{part}/step": int(step), **values})
    named = {f"{part}/{key}": value for key, value in values.items()}
    return Printed(source, step, {f"{part}/global_step": int(step), **named})


def settings_in(text: str) -> dict[str, object]:
    """Settings that a line says beside verl's and transformers' own forms.

    >>> settings_in("+ python3 train.py --rollout-batch-size 32 --n-samples-per-prompt 8")
    {'rollout_batch_size': '32', 'n_samples_per_prompt': '8'}
    """
    found: dict[str, object] = {}
    if " ..." in text and (match := _ARGUMENT.match(text)):
        if match[1] in _ARGUMENTS:
            found[match[1]] = match[2]
    elif "--" in text and _BATCH_OPTIONS.search(text):
        found = {key.replace("-", "_"): value for key, value in _OPTION.findall(text)}
    elif "Namespace(" in text and tells(told := _namespace(text)):
        found = told
    elif "batch size" in text:
        if raised := _RAISED.search(text):
            found["num_generations"] = raised[1]
        if banner := _BANNER.search(text):
            found.update(zip(_OF_BANNER, banner.groups(), strict=True))
    return found


def _namespace(text: str) -> dict[str, object]:
    """What argparse's arguments say that a line ends with; OpenRLHF has them in sections.

    >>> _namespace("x Namespace(rollout=Namespace(batch_size=8), dtype=torch.half, seed=3)")
    {'seed': 3, 'rollout.batch_size': 8}
    """
    def said(call: ast.Call) -> dict[str, object]:
        found = dict[str, object]()
        for one in call.keywords:
            with contextlib.suppress(ValueError):  # of what is no literal
                found[str(one.arg)] = (
                    said(one.value) if isinstance(one.value, ast.Call)
                    else ast.literal_eval(one.value)
                )
        return found

    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        tree = ast.parse(text[text.index("Namespace(") :].strip(), mode="eval").body
        return flatten(said(tree)) if isinstance(tree, ast.Call) else {}
    return {}
