"""What the other numbers of a log say of its batches: held against B_p * n.

Source: verl 0.9.1, trainer/ppo/metric_utils.py (tokens of a step); TRL 1.16.0,
trainer/grpo_trainer.py (tokens so far); verl 0.7, recipe/dapo, and NeMo-RL (2026-08),
algorithms/grpo.py (batches drawn under dynamic sampling).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from isocompute.importers.runs.collected import Collected
from isocompute.importers.values.imported import COUNTED_BY, TAKEN_ONCE, UnclearError
from isocompute.importers.values.reading import whole
from isocompute.importers.words.called import mapping
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.meanings import PROBLEMS_SAMPLED
from isocompute.importers.words.vocabulary import TOTAL_TOKENS_KEY

_FAR = 1.25  # B_p * n and what the tokens of a step say may differ by padding, not by this factor
_OWN_FAR = 2 / _FAR  # a log's own B_p or n may be another of its words, by a factor of 2 at least
# Steps from which a slope is told, how many of its standard errors it may be off, and from which
# factor on a larger one is said. In 33 published runs of TRL it is 0.98 to 1.13 of the batch.
# At half of the factor some of those are told a doubt; at twice, 4 processes pass unsaid.
_SLOPED, _ERRORS, _DOUBTED = 8, 4.0, 2.0
# Of the tokens' variance, left by lengths: up to 0.17 in eight logs where they tell, 0.94 in one.
_UNTOLD = 0.5
_FEW = 3  # counts that may be what they seem by chance; at twice short runs are not looked at
# What is said of dynamic sampling.
UNCOUNTED = (
    "batches were refilled after filtering, and not every update says how often: more rollouts "
    "were drawn than B_p * n * step counts"
)
MORE = "more rollouts were drawn than B_p * n * step counts"
REFILLED = f"{{}} refills batches: {MORE}"
# Where trainers say so beside verl: OpenRLHF, SkyRL, NeMo-RL, EasyR1, slime, ms-swift,
# open-instruct (configurations of 2026-08; the last two by their documentation alone).
_REFILLING = {
    "trainer.algorithm.dynamic_sampling.type": "filter", "algorithm.filter_groups.enable": "true",
    "dynamic_sampling_filter_path": "", "active_sampling": "true",
}
# what they and their forks call it, a switch in whatever section
_REFILLS = re.compile(
    r"(?:^|[._])(?:online|group|dynamic|oversample)_?(?:filter(?:ing)?|sampl(?:e|ing))"
    r"(?:[._]enabled?)?$"
)
# and a count of what an update drew, of which only who wrote it knows what it counts
_DREW = re.compile(
    r"^(?!.*(?:eval|val|test)).*(?<![a-z])(?:(?:num|n|total)_(?:samples|prompts|problems|groups)|"
    r"(?:samples|prompts|problems|groups)_(?:drawn|sampled|generated))$"
)


def refills(config: Mapping[str, object]) -> str | None:
    """The setting by which a trainer draws groups again until a batch is full; None without.

    >>> refills({"dynamic_filtering": True, "rollout.n": 8})
    'dynamic_filtering'
    """
    for key, wanted in _REFILLING.items():
        said = str(config.get(key) or "").lower()
        if said and said not in ("false", "none", "null") and wanted in ("", said):
            return key
    return next((key for key, said in config.items()
                 if _REFILLS.search(key) and str(said).lower() == "true"), None)  # fmt: skip


def refilled(by: str, unread: Sequence[str]) -> str:
    """What is said of batches that were refilled, and how often was not read.

    >>> refilled("online_filtering", ["loss", "rollout/total_num_samples"]).partition("; ")[2]
    'if rollout/total_num_samples counts the problems that an update drew, add \
--map rollout/total_num_samples=problems_sampled'
    """
    key = next(filter(_DREW.search, unread), None)
    if key is None:
        return REFILLED.format(by)
    cure = mapping(key, "problems_sampled")
    return f"{REFILLED.format(by)}; if {key} counts the problems that an update drew, add {cure}"


def of_a_step(counted: Mapping[int, float]) -> int | None:
    """Rollouts of one step, by a count of them: what most steps have; None where that differs.

    A row for every tenth step may count those of all ten.

    >>> of_a_step({1: 32, 2: 32, 3: 20, 4: 32}), of_a_step({1: 32, 2: 64, 3: 96})
    (32, None)
    """
    steps = sorted(counted)
    if steps and steps[-1] - steps[0] >= 2 * len(steps):
        return None
    most, times = (Counter(counted.values()).most_common(1) or [(0.0, 0)])[0]
    return int(most) if times >= _FEW and 2 * times > len(counted) and most == int(most) else None


def of_every_step(c: Collected) -> int | None:
    """Rollouts of one step, by a count of all that is as many times the step in every row."""
    drawn = {step: count for step, count in c.side["drawn"].items() if step > 0}
    each = {count / step for step, count in drawn.items()}
    if len(each) != 1 or len(drawn) < _FEW or "sample" in c.drawn_by:  # those may be problems
        return None
    return whole(each.pop())


def sampled_anew(sampled: Mapping[int, float], problems_per_batch: int) -> bool:
    """Whether a count of problems is what each update drew, and more than what it trained on.

    >>> sampled_anew({1: 80, 2: 96, 3: 80}, 64), sampled_anew({1: 64, 2: 128, 3: 192}, 64)
    (True, False)
    """
    counts = [sampled[step] for step in sorted(sampled) if step > 0]
    summed = len(counts) > 1 and all(b - a >= problems_per_batch for a, b in pairwise(counts))
    return min(counts, default=0.0) >= problems_per_batch < max(counts, default=0.0) and not summed


def counted(drawn_problems: int | None) -> str:
    """What is said where every drawn batch is counted, of a size that may not be known."""
    line = "rollouts: every batch that an update drew under dynamic sampling is counted"
    size = "" if drawn_problems else ", as B_p problems (no gen_batch_size there)"
    return f"{line}{size}; --set drawn=kept counts what it trained on"


def rollouts_disagree(b_p: int | None, n: int | None, drawn: Mapping[int, float]) -> str | None:
    """Why B_p * n * step cannot be right by a count of rollouts in the log; None where it can.

    Args:
        b_p, n: None where they are not known.
        drawn: the count, by step. One that does not grow, or not with the steps, counts otherwise;
            samples may be problems.
    """
    steps = [step for step in sorted(drawn) if step > 0 and drawn[step] > 0]
    if b_p is None or n is None or len(steps) < _FEW:
        return None
    if any(all(drawn[step] == each * step for step in steps) for each in (b_p, 1)):
        return None
    batch = b_p * n
    late = steps[len(steps) // 2 :]  # a count may stand one update before or after the step
    shares = [drawn[step] / (batch * step) for step in late]
    low, high = min(shares), max(shares)
    grows = all(drawn[b] > drawn[a] for a, b in pairwise(steps))
    if not grows or high > low * _FAR or 1 / _FAR < high < _FAR:
        return None
    last = steps[-1]
    return f"{drawn[last]:,.0f} at step {last}, where B_p * n * step is {batch * last:,}"


def counts_otherwise(
    b_p: int | None, n: int | None, counted: Mapping[int, float]
) -> tuple[str, str]:
    """What tells that n is one of a whole batch, and that a count of rollouts is one of problems.

    The count is n * step, or B_p * step, at every step; "" where it is not.

    >>> counts_otherwise(32, 256, {10: 2560.0, 20: 5120.0, 30: 7680.0})[0][-27:]
    '(256 / 32 = 8 may be meant)'
    >>> counts_otherwise(64, 8, {50: 3200.0, 100: 6400.0, 200: 12800.0})[1]
    '12,800 at step 200, which is B_p * step and not B_p * n * step'
    """
    steps = [step for step in sorted(counted) if step > 0]
    if b_p is None or n is None or len(steps) < _FEW:
        return "", ""
    of_batch, of_problems = (all(counted[step] == by * step for step in steps) for by in (n, b_p))
    told = f"{counted[steps[-1]]:,.0f} at step {steps[-1]}, which is"
    return (
        f"n is {n} and the count of rollouts {told} n * step and not B_p * n * step ({n} / {b_p} = "
        f"{n / b_p:g} may be meant)" if of_batch and b_p > 1 and b_p != n else "",
        f"{told} B_p * step and not B_p * n * step" if of_problems and n > 1 else "",
    )


def tokens_disagree(
    batch: int | None, total: Mapping[int, float], prompt: Mapping[int, float],
    length: Mapping[int, float], *, given: bool = True,
) -> str | None:
    """Why B_p * n cannot be right by the tokens of the steps; None where it can.

    Args:
        batch: B_p * n; None where it is not known.
        total: tokens of a step, by step.
        prompt, length: mean tokens of a prompt and of a response, by step.
        given: B_p or n is the user's; a log's own are off by whole factors.
    """
    far = _FAR if given else _OWN_FAR
    steps = total.keys() & prompt.keys() & length.keys()
    if batch is None or not steps:
        return None
    counts = sorted(total[s] / max(prompt[s] + length[s], 1e-9) for s in steps)
    low, logged, high = (counts[round(q * (len(counts) - 1))] for q in (0.1, 0.5, 0.9))
    if batch / far < logged < batch * far or high > low * _FAR**2:
        return None  # it agrees, or is no count of anything that stays the same
    return (
        f"B_p * n is {batch}, but {TOTAL_TOKENS_KEY} over the mean lengths says "
        f"{logged:.0f} rollouts per step"
    )


class RolloutsTold(NamedTuple):
    """What the tokens that a run had seen say of the rollouts of a step.

    A step adds B_p * n * (prompt + response) tokens, though none of responses that were cut off
    where those are masked. So B_p * n is at most tokens over responses that ended, and about what
    one token more of the mean response adds. That is too many where long prompts have long
    responses and nothing else moves the lengths: a hint, then, and no proof.
    """

    about: float  # the slope; at most `most`
    least: float  # it, less `_ERRORS` of its standard errors
    most: float  # of prompts without a token


def rollouts_told(
    seen: Mapping[int, float], length: Mapping[int, float], cut: Mapping[int, float],
    ended: Mapping[int, float],
) -> RolloutsTold | None:
    """Rollouts of a step by the tokens seen; None where they tell nothing.

    Args:
        seen: tokens of prompts and responses so far, by step.
        length: mean tokens of a response, by step.
        cut: the share of responses that were cut off, by step.
        ended: mean tokens of the others, by step. TRL logs both; keys of one's own count otherwise.
    """
    steps = sorted(step for step in seen.keys() & length.keys() & cut.keys() & ended.keys()
                   if length[step] > 0)  # fmt: skip
    if len(steps) < _SLOPED:
        return None
    total_K, length_K, ended_K = np.array(
        [(seen[s], length[s], ended[s] * (1 - cut[s])) for s in steps]
    ).T
    added_K, length_K = np.diff(total_K) / np.diff(steps), length_K[1:]
    if added_K.min() <= 0:
        return None  # no count of tokens so far
    fits = list[tuple[float, float, float]]()
    for x_K in (length_K, ended_K[1:]):  # those cut off count, or do not: one of them fits
        spread_K = x_K - x_K.mean()
        squares = max(float(spread_K @ spread_K), 1e-9)
        slope = float(spread_K @ added_K) / squares
        left_K = added_K - added_K.mean() - slope * spread_K
        fits.append((float(left_K @ left_K), slope, squares))
    left, slope, squares = min(fits)
    error = (left / (len(added_K) - 2) / squares) ** 0.5
    most = float(added_K.sum() / max(ended_K[1:].sum(), 1e-9))
    every = float(np.square(added_K - added_K.mean()).sum())
    if left > _UNTOLD * every:  # prompts decide: those of one problem may be long where answers are
        return RolloutsTold(0.0, 0.0, most)
    return RolloutsTold(min(slope, most), min(slope - _ERRORS * error, most), most)


def batches_drawn(
    drawn: Mapping[int, float], drawn_problems: int | None, problems_per_batch: int | None
) -> dict[int, float] | None:
    """Batches of B_p * n that every update drew, by step; None where one between is not logged.

    Args:
        drawn: generated batches, by step.
        drawn_problems: problems of a generated batch; None: B_p.
        problems_per_batch: B_p.
    """
    steps = sorted(drawn.keys() - {0})
    if not steps or steps != list(range(steps[0], steps[0] + len(steps))):
        return None
    size = drawn_problems / problems_per_batch if drawn_problems and problems_per_batch else 1.0
    return {step: count * size for step, count in drawn.items() if step}


def batches_of(c: Collected, found: Found, b_p: int | None) -> dict[int, float]:
    """Batches that each update drew, in batches of B_p * n; empty where that is one each."""
    drawn, problems = c.side["batches"], found.drawn_problems
    if not drawn and b_p and sampled_anew(c.side["sampled"], b_p):
        drawn, problems = c.side["sampled"], 1
    elif b_p and (sampled := {*c.side["sampled"].values()} - {b_p}) and any(
        column.metric.label == PROBLEMS_SAMPLED for column in c.settings.columns.values()
    ):
        raise UnclearError(
            f"run {c.name}: problems_sampled must be what each update drew, at least B_p = {b_p}, "
            f"but goes to {max(sampled):g}; drop its --map."
        )
    unknown = c.config.get("data.gen_batch_size", 0) is None
    if not drawn or (problems in (None, b_p) and not unknown and max(drawn.values()) <= 1):
        return {}
    if c.settings.drawn == "kept":
        c.counters.infer(
            "rollouts: those that updates trained on, as told; dynamic sampling drew more"
        )
        return {}
    if unknown:
        raise UnclearError(
            f"run {c.name}: what an update drew must be known, but data.gen_batch_size is a "
            "variable of its script; write the number there, or count what it trained on with "
            "--set drawn=kept.", options=("--set", "drawn=kept"),
        )
    batches = batches_drawn(drawn, problems, b_p)
    if batches is None:
        c.note(UNCOUNTED)
        return {}
    if 1 not in batches:  # of a log that goes on with another
        c.note(UNCOUNTED)
        return batches
    c.counters.infer(counted(problems))
    return batches


def _is_once(c: Collected) -> bool:
    """Whether a batch was taken to serve one step, since nothing says it."""
    return any(line.startswith(TAKEN_ONCE) for line in c.counters.inferred)


def check_batch(c: Collected, b_p: int | None, n: int | None, *, given: bool) -> None:
    """B_p * n against the tokens of a step, where a log has both (verl), and its counts."""
    side, batch = c.side, None if b_p is None or n is None else b_p * n
    cure = "correct --set problems_per_batch or rollouts_per_problem, or the pattern."
    if c.settings.problems_per_batch is None and c.settings.processes is not None:
        cure = f"correct --set processes={c.settings.processes}."
    text = tokens_disagree(
        batch, side["total"], side["prompt"], side["length"], given=given
    )
    told = rollouts_told(side["seen"], side["length"], side["cut"], side["ended"])
    if batch is None and told is not None and told.about < _DOUBTED * told.least:
        times = ", times num_iterations" * _is_once(c)
        c.counters.infer(f"B_p * n: about {told.about:,.0f} by num_tokens over the mean lengths"
                         f"{times}; a hint, not used")  # fmt: skip
    if batch is not None and told is not None:
        says = f"B_p * n is {batch}, but num_tokens over the mean lengths says"
        if batch > told.most * _FAR:
            text = text or f"{says} at most {told.most:,.0f} rollouts per step"
            if _is_once(c):
                cure = f"{cure[:-1]}; or add --set num_iterations=K if one batch serves K steps."
        elif batch * _DOUBTED < told.least:
            c.note(f"{says} about {told.about:,.0f} rollouts per step; were there more processes?")
    if text is not None and given:
        raise UnclearError(
            f"run {c.name}: B_p * n must agree with the tokens of a step, but {text}; {cure}"
        )
    if text is not None:
        c.note(text)
    of_all = of_every_step(c)
    each = of_a_step(side["counted"]) or of_all
    # open-instruct's is known to be one of rollouts; another may count problems, or updates
    alike = (batch,) if c.drawn_by == "episode" and each != 1 else (batch, b_p, n, 1)
    if given and None not in (batch, each) and each not in alike:
        cure = cure if each != of_all else (
            f"correct B_p or n, or add --map {c.drawn_by}=rollouts if that count is right, or name "
            "the key that counts updates with --set step=KEY."
        )
        raise UnclearError(
            f"run {c.name}: B_p * n must be the rollouts of a step, but is {batch} where the log "
            f"counts {each} in most steps; {cure}"
        )
    if given and of_all and n and of_all == b_p != batch and not of_all % n:
        c.note(f"{c.drawn_by} counts {of_all} in a step, as B_p does; if it counts rollouts, B_p "
               f"is {of_all // n}")  # fmt: skip
    if text := counts_otherwise(b_p, n, side["rollouts"] or side["drawn"])[0]:
        raise UnclearError(
            f"run {c.name}: n must count responses to one problem, but {text}; correct what says n."
        )
    counts = {column.metric.label: key for key, column in c.settings.columns.items()}
    for label, kind in (("rollouts", "rollouts"), (PROBLEMS_SAMPLED, "sampled")):
        if label in counts and side[kind]:
            c.counters.infer(COUNTED_BY.format(counts[label]))
    text = counts_otherwise(b_p, n, side["rollouts"])[1]
    if "rollouts" in counts and text:
        raise UnclearError(
            f"run {c.name}: rollouts must count responses, but the log's count is {text}; drop its "
            "--map, or write a table of problems_per_batch, rollouts_per_problem, rollouts, score "
            "if each batch serves n updates."
        )
    if side["rollouts"] or side["batches"] or c.settings.step is not None:
        return  # it is counted, or said what counts
    if (text := rollouts_disagree(b_p, n, side["drawn"])) is not None:
        raise UnclearError(
            f"run {c.name}: rollouts must be B_p * n * step, but {c.drawn_by!r} counts {text}; add "
            f"--map {c.drawn_by}=rollouts if that is right, or name the key that counts updates "
            "with --set step=KEY."
        )
