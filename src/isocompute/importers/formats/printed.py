"""Rows and settings that trainers print in forms of their own, slime and OpenRLHF among them.

Sources: slime 0.3.1, ray/rollout.py and utils/metric_utils.py (`eval 19: {...}`); torchtune 0.6,
training/metric_logging.py, DiskLogger (`Step 5 | loss:0.1 rewards:0.4`); Megatron-LM 0.13,
training/arguments.py (`  seed ........ 1234`); Unsloth 2025.11, models/rl.py and _utils.py;
OpenRLHF 0.9.0 to 0.11.0 (3c3be623), trainer/ppo_trainer.py, fit and evaluate (`Global step 9: {}`,
`global_step 10, eval_metrics: {}`) and ppo_trainer_async.py (`Eval at step 10: {}`, behind step
11), here with the keys of its trackers (utils/logging_utils.py); SkyRL (a956457),
skyrl/train/utils/tracking.py, ConsoleLogger (`Step 10: `, then `{...}` over several lines);
prime-rl v0.4.0, eval/utils.py (`Evaluated MODEL on SET in 9.1s (Avg@2=0.4, ...`, printed alone) and
orchestrator/orchestrator.py (`Running evals for checkpoint step 10`: its weights after 10 updates);
v0.6.0 to 559b4477, there (`Evaluated SET (Step 20) | Policy v18 | 9s | Reward 0.4 |`: batches were
drawn up to step 20, the weights are those after 18 updates) and evals/evals.py (without a policy).
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.beside.elsewhere import tells
from isocompute.importers.values.reading import Line, flatten, iter_lines, open_log, parse_python

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
_HEADLINE = re.compile(r"=+ (Epoch|Step) ([0-9]{1,9})/([0-9]{1,9}) =+\s*$")
_PART = re.compile(r"(Validation|Training) Results:\s*$")
_NUMBER = re.compile(r"\s*• ([A-Z][\w ]{2,40}): (\S{1,30})( tokens)?\s*$")
_VALIDATING = re.compile(r"▶ Starting validation at step ([0-9]{1,9})\.\.\.")
_MARKS = frozenset("=📊•│▶")
_AREAL = re.compile(r"Step [0-9]+/[0-9]+ Train step ([0-9]{1,9})/[0-9]{1,9} done\.")
_NONE: list[Block] = []
_PRIME = "prime-rl-console"
_OF_PRIME = ("Evaluated ", " Reward: ", "checkpoint step ", "ckpt_step=")
_KEYS = {
    ("Validation", "Accuracy"): "validation/accuracy",
    ("Training", "Avg Reward"): "train/reward",
}


_EVALUATED = re.compile(  # v0.4.0 names the model, too
    r"Evaluated (?:\S{1,300} on )?(\S{1,100}) in [0-9.]+s \(Avg@([0-9]{1,6})=([0-9.]{1,20})[,)]"
)
_REWARDED = re.compile(
    r"Evaluated (\S{1,100}) \(Step ([0-9]{1,9})\) \| (?:Policy v([0-9]{1,9}) \| )?.{1,40}?"
    r"\| Reward (-?[0-9.]{1,20}) \|"
)
_CHECKPOINT = re.compile(
    r"\b[Ee]val\w*(?: subprocess)?(?: started)? for (?:checkpoint step |interval step [0-9]{1,9} "
    r"\(current ckpt_step=)([0-9]{1,9})"
)
_DONE = re.compile(r"Step ([0-9]{1,9}) \| Time: .*?\| Reward: (-?[0-9.]{1,20})")
_FORMS = (
    re.compile(rb"\[pod/(?P<name>[\w.-]+)/[\w.-]+\] ?"),
    re.compile(rb"(?!(?:trace|debug|info|warn|warning|error|critical)\b)"
               rb"(?P<name>[a-z][\w.-]*)[ \t]+\| ?", re.I),
)  # fmt: skip
_LOOKED_AT = 400  # lines; at half a command's long output may be all, at twice nothing is gained
_MOST = 0.9  # of them, which begin so: a comment or a cut line may stand between
_MANY = 256  # names: a prefix that differs more tells something else


# Of loops of one's own: Epoch:[1/1](8/9751), Reward: 0.31; 3/50 | loss=0.2 | acc=12.5%
_COUNT = re.compile(
    r"(?P<before>[^{}/]{0,80}?)(?:\bepoch\W{0,3}(?P<epoch>[0-9]{1,6})/[0-9]{1,6}\W{1,4}"
    r"(?:(?:step|batch|iter(?:ation)?)\W{1,3})?)?"
    r"(?<![\w/.])(?P<step>[0-9]{1,9})/(?P<of>[1-9][0-9]{0,8})(?![\w/.])(?P<rest>[^{}]{1,400})$",
    re.I,
)
_OF_EPOCHS = re.compile(r"epochs?\W*$", re.I)


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


def steps_told(
    lines: Iterable[tuple[int, str]], form: re.Pattern[str]
) -> list[tuple[int, str, dict[str, str]]]:
    """Lines that say a step: by a form, or where none does by the count k/N that most have.

    >>> [(said["step"], said["rest"]) for _, _, said in steps_told(
    ...     [(1, "Epoch:[2/2](8/50), Reward: 0.3"), (2, "1/4 loaded")] * 2, _TORCHTUNE)]
    [('58', '), Reward: 0.3'), ('58', '), Reward: 0.3')]
    """
    told, counted = list[tuple[int, str, dict[str, str]]](), list[tuple[int, str, dict[str, str]]]()
    for number, text in lines:
        count = _COUNT.match(text)
        if count and count["epoch"]:
            counted.append((number, text, count.groupdict("")))
        elif match := form.match(text):
            told.append((number, text, match.groupdict("")))
        elif len(told) < _MANY and count and not _OF_EPOCHS.search(count["before"]):
            counted.append((number, text, count.groupdict("")))
    if counted[5 * len(told) :] and told > counted[-1:]:  # Steps: 50 | lr: 1e-6, in a summary
        told = []
    counted = [one for one in counted if one[2]["epoch"] or not told]
    most = Counter(said["of"] for *_, said in counted if "=" in said["rest"] or ":" in said["rest"])
    of = most.most_common(1)[0][0] if most else ""
    # N may be another in the last epoch, or since a start that went on: by what such lines say
    alike = {_shape(said) for *_, said in counted if said["of"] == of}
    counted = [one for one in counted if _shape(one[2]) in alike]
    each = {int(said["epoch"]): int(said["of"]) for *_, said in counted if said["epoch"]}
    before, now, at = dict[int, int](), 0, int(0 not in each)
    for epoch in sorted(each):
        before[epoch] = now = now + (epoch - at) * int(of)
        now, at = now + each[epoch], epoch + 1
    for number, text, said in counted:
        said["step"] = str(before.get(int(said["epoch"] or -1), 0) + int(said["step"]))
        told.append((number, text, said))
    return sorted(told, key=lambda one: one[0])


def _shape(said: Mapping[str, str]) -> str:
    """What a line that counts k/N says, without its numbers."""
    return re.sub(r"[0-9.%e+-]+", "", f"{said['before']}|{said['rest']}")


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


class Block(NamedTuple):
    """A number of a block: its trainer, its update, its key in a tracker, its text."""

    source: str
    step: str
    key: str
    value: str


class Blocks:
    """The place in a console that is read line by line."""

    def __init__(self) -> None:
        self._epoch, self._step, self._each = 1, 0, 0
        self._at: int | None = None  # the update that a validation is said to be of
        self._part = ""
        self._first: int | None = None  # the number of the first update of prime-rl's log
        self._done = 0
        self._trained: int | None = None  # the update of AReaL's last grid
        self._held: list[tuple[str, str]] = []  # evaluations that no update has followed
        self._checkpoint: str | None = None  # of the evaluation, where prime-rl names it

    def _of_prime(self, text: str) -> list[Block]:
        """The numbers of prime-rl: evaluations stand behind the updates that are done.

        Batches are drawn ahead of the checkpoint that is evaluated: a line may name that.
        """
        if " for " in text and (match := _CHECKPOINT.search(text)):
            self._checkpoint = match[1]
        elif "Evaluated " in text and (match := _EVALUATED.search(text)):
            key = f"eval/{match[1]}/avg@{match[2]}"
            if self._checkpoint is not None:
                return [Block(_PRIME, self._checkpoint, key, match[3])]
            self._held.append((key, match[3]))
        elif "Evaluated " in text and (match := _REWARDED.search(text)):
            key = f"eval/{match[1]}/reward/mean"
            return [Block(_PRIME, match[3] or match[2], key, match[4])]
        elif " | Reward: " in text and (match := _DONE.search(text)):
            step, self._checkpoint = int(match[1]), None
            self._first = step if self._first is None else self._first
            self._done = step + (self._first != 1)
            found = self._evaluated(self._done - 1)
            return [*found, Block(_PRIME, str(self._done), "reward/all/mean", match[2])]
        return []

    def _evaluated(self, step: int) -> list[Block]:
        found = [Block(_PRIME, str(step), key, value) for key, value in self._held]
        self._held = []
        return found

    def end(self) -> list[Block]:
        """The evaluations behind the last update."""
        return self._evaluated(self._done) if self._first is not None else []

    def take(self, text: str) -> list[Block]:
        """Take a line; the numbers that are read with it."""
        if not (text.lstrip()[:1] in _MARKS or any(word in text for word in _OF_PRIME)):
            if " Train step " in text and (match := _AREAL.search(text)):
                self._trained = int(match[1])
            return _NONE  # as nearly all lines of a console
        if self._trained is not None and "│" in text:
            cells = [cell.strip() for cell in text.split("│")[1:-1]]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            return [Block("areal-console", str(self._trained), key, value)
                    for key, value in pairs if key]  # fmt: skip
        if "▶ Starting " in text and (match := _VALIDATING.search(text)):
            self._at = int(match[1])
        elif "=== " in text and (match := _HEADLINE.search(text)):
            self._at = None
            number, of = int(match[2]), int(match[3])
            if match[1] == "Epoch":
                self._epoch = number
            else:
                self._step, self._each = number, of
            self._part = ""
        elif "Results:" in text and (match := _PART.search(text)):
            self._part = match[1]
        match = _NUMBER.match(text) if self._part and "•" in text else None
        key = match and _KEYS.get((self._part, match[1]))
        if match is None or key is None:
            return self._of_prime(text)
        step = (self._epoch - 1) * self._each + self._step if self._at is None else self._at
        return [Block("nemo-rl-console", str(step), key, match[2])]


class AnotherRunError(Exception):
    """A second training begins in a console.

    Args:
        at: the last line of the first.
    """

    def __init__(self, at: int) -> None:
        super().__init__(f"another training begins behind line {at}")
        self.at = at


class Part(NamedTuple):
    """Lines of a console that are of one run.

    Args:
        name: what stands before each of them; "" where nothing does.
        form: how it stands there.
        first, last: lines, from 1.
        named: it tells runs apart.
    """

    name: str = ""
    form: re.Pattern[bytes] | None = None
    first: int = 1
    last: int = 1 << 62
    named: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is all that a file holds."""
        return not self.named and (self.first, self.last) == (1, 1 << 62)

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Those of the lines that are of this run, without what stands before them."""
        for line in lines:
            if not self.first <= line.number <= self.last:
                continue
            if self.form is None or line.data is None:
                yield line
            elif (match := self.form.match(line.data)) and match["name"].decode() == self.name:
                yield Line(line.number, line.data[match.end() :])

    def cut(self, at: int) -> tuple[Part, Part]:
        """What ends with a line, and what follows it."""
        return self._replace(last=at), self._replace(first=at + 1)


def parts_of(path: Path) -> list[Part]:
    """What each of those wrote whose names stand before the lines; all of it where none do."""
    with open_log(path) as handle:
        lines = (line.data for line in iter_lines(handle, str(path)) if line.data)
        head = list(islice(lines, _LOOKED_AT))
        counts = {form: sum(map(bool, map(form.match, head))) for form in _FORMS}
        enough = max(2, _MOST * len(head))
        form = next((form for form, count in counts.items() if count >= enough), None)
        if form is None:
            return [Part()]
        found = dict.fromkeys(match["name"].decode() for data in (*head, *lines)
                              if (match := form.match(data)))  # fmt: skip
    return [Part()] if len(found) > _MANY else [
        Part(name, form, named=len(found) > 1) for name in found]  # fmt: skip
