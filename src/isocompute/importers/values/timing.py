"""How long the steps of a run took, and what else its rows tell of how it was trained.

Seconds by what trainers log, and on how many GPUs; passes over the problems; the learning rate at
its end; how many groups had something to teach there (TRL 1.16, grpo_trainer.py:
`frac_reward_zero_std`, groups whose rewards are all alike).

Shape legend: K evaluations; L rows with epochs; T times; R rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Groups

if TYPE_CHECKING:
    from isocompute.importers.values.imported import ImportedRun, Series

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Side = Mapping[int, float]

# Seconds of one update: verl 0.9 (`timing_s/step`, `perf/time_per_step`), TRL 1.x (`step_time`),
# NeMo-RL (`total_step_time`), OpenRLHF (`step_total`: its parts, or a clock that evaluations stop).
# From one update to the next, evaluations in between: slime (`train_wait_time` + `train_time`).
# Seconds since the start: TRL's last row, W&B. verl's throughput is tokens per second and GPU.
SECONDS, SINCE, WHOLE, THROUGHPUT = "seconds", "runtime", "train_runtime", "throughput"
TURN, TESTING, SAVING = "turn", "testing", "saving"
# Parts of verl's steps: those that are always there, and all.
_MAIN = ("gen", "update_actor")
PARTS = (*_MAIN, "reward", "old_log_prob", "ref", "values", "adv", "update_critic",
         "update_weights")  # fmt: skip
_MOSTLY = 0.8  # of a time must be left for it to be there
TIMING_KEYS = {
    "timing_s/step": SECONDS,
    "perf/time_per_step": SECONDS,
    "step_time": SECONDS,
    "train/step_time": SECONDS,
    "timing/train/total_step_time": SECONDS,
    **dict.fromkeys(("timing/step_total", "train/timing/step_total"), SECONDS),
    "perf/step_time": TURN,
    "_runtime": SINCE,
    "train_runtime": WHOLE,
    "train/train_runtime": WHOLE,
    "perf/throughput": THROUGHPUT,
    **dict.fromkeys(("timing_s/testing", "timing/validation/total_validation_time",
                     "eval_runtime", "eval/runtime"), TESTING),
    "timing_s/save_checkpoint": SAVING,
    "timing/train/checkpointing": SAVING,
    **{f"timing_s/{name}": f"part {name}" for name in PARTS},
}

# What a column map may say of a key of one's own: seconds of the update of a row (with those of
# an evaluation or without), and of the evaluation there.
OWN_TIMES = {"update_seconds": SECONDS, "evaluation_seconds": TESTING}

_PLACES = 32  # of a pace; half of it blurs the last octave of a long run
# Steps that did nothing but train count alone if they are one in so many; else the first steps of
# a run, which compile, would stand for all.
_PLAIN = 10

EPOCH = "epoch"
EPOCH_KEYS = ("epoch", "train/epoch", "training/epoch")
# Trackers round an epoch to two digits: over so much of one that is 5% of it at most, as is a gap
# between rows at whole epochs. At half of it 10%; at twice of it runs that see a third of their
# problems would tell nothing.
_TOLD = 0.2
_EXACT = 0.05
ALIKE = "alike"
ALIKE_KEYS = ("frac_reward_zero_std", "train/frac_reward_zero_std")
_END = 10  # of a run: so many a part of its rows, in which a share moves little


class Times(NamedTuple):
    """Seconds of a run.

    Args:
        until_T, seconds_T, updates_T: so many seconds for so many updates, up to one.
        clocked: evaluations are in them, and checkpoints as far as the log times them.
        alone_T: the seconds without these, where they were added.
    """

    until_T: FloatArray
    seconds_T: FloatArray
    updates_T: FloatArray
    clocked: bool = False
    alone_T: FloatArray | None = None

    @property
    def of_training(self) -> Times | None:
        """Those of training alone; None where evaluations cannot be told apart."""
        if self.alone_T is not None:
            return Times(self.until_T, self.alone_T, self.updates_T)
        return None if self.clocked else self

    def within(self, low: float, high: float) -> Times:
        """Those of the updates after `low`, up to `high`; a part of a span takes its share.

        A span that began at 0 is a whole log's: all of its seconds are of what it did.
        """
        since_T, own_T = self.until_T - self.updates_T, self.updates_T.copy()
        own_T[(since_T == 0) & (self.until_T > low)] -= low
        first_T = np.maximum(self.until_T - own_T, low)
        kept_T = np.minimum(self.until_T, high) - first_T
        there = (kept_T > 0) & (own_T > 0)
        share_T = kept_T[there] / own_T[there]
        return Times(np.minimum(self.until_T[there], high), self.seconds_T[there] * share_T,
                     kept_T[there], self.clocked)  # fmt: skip


def said_of(times: Times | None, gpus: float | None) -> dict[str, Any]:
    """What a record says of times, on so many GPUs: an update's on average, and until some."""
    if times is None or not times.until_T.size:
        return {}
    mean_T = np.cumsum(times.seconds_T) / np.cumsum(times.updates_T)
    mean = dict(zip(times.until_T.tolist(), mean_T.tolist(), strict=True))
    of_all = float(mean_T[-1])
    return {"s_per_step": of_all, "pace": _places(mean, of_all), "clocked": times.clocked,
            "gpu_s_per_step": None if gpus is None else of_all * gpus}  # fmt: skip


def times_of(side: Mapping[str, Side], evaluated: Collection[int] = ()) -> Times | None:
    """Times of updates, evaluations in them where the log tells theirs; None where it has none.

    Args:
        side: by kind ("seconds", "turn", "runtime", "train_runtime", "throughput", "total",
            "testing", of one set among several "testing NAME", "saving") the numbers by step.
        evaluated: the steps with scores of evaluations.
    """
    times = _of_updates(side)
    if times is None or times.clocked:
        return times
    took = dict[int, float]()
    for kind, by_step in side.items():
        if kind.partition(" ")[0] == TESTING:
            took |= {step: took.get(step, 0.0) + v for step, v in by_step.items() if v > 0}
    if not took and (each := _by_clock(side, evaluated)):
        took = dict.fromkeys(evaluated, each)
    if not took:
        return times
    if 0 in evaluated and 0 not in took and len({*evaluated}) == len(took) + 1:
        took[0] = median(took.values())  # before training, where verl times nothing
    seconds_T = times.seconds_T + _spread(times, took)
    if saved := {step: v for step, v in side.get(SAVING, {}).items() if v > 0}:
        seconds_T += _spread(times, saved)
    return times._replace(seconds_T=seconds_T, clocked=True, alone_T=times.seconds_T)


def _spread(times: Times, took: Side) -> FloatArray:
    """Seconds now and then, over the updates up to each, in which it would come as often again.

    >>> times = Times(np.array([1.0, 2.0, 3.0, 5.0]), np.ones(4), np.ones(4))
    >>> _spread(times, {0: 1.0, 2: 4.0, 4: 6.0}).tolist()
    [2.5, 2.5, 3.0, 3.0]
    """
    begins = times.until_T[0] - times.updates_T[0]
    at = np.array(sorted(step for step in took if step > begins) or [times.until_T[-1]], np.float64)
    each = np.array([took.get(int(step), 0.0) for step in at])
    each[0] += sum(v for step, v in took.items() if step <= begins)
    rate = each / np.diff(at, prepend=begins)
    return np.asarray(rate[np.minimum(np.searchsorted(at, times.until_T), len(at) - 1)])


def _by_clock(side: Mapping[str, Side], evaluated: Collection[int]) -> float:
    """Seconds of an evaluation by a clock that runs beside the updates' own; 0 where none tells.

    An evaluation lies before the row of its step (verl) or after it: where more of the clock is.
    """
    clock, seconds, tested = side[SINCE], side[SECONDS], {*evaluated}
    more = {(a, b): clock[b] - clock[a] - seconds[b] for a, b in pairwise(sorted(clock))
            if b == a + 1 and b in seconds and clock[b] > clock[a]}  # fmt: skip
    found = 0.0
    for end in (0, 1):
        within = [v for span, v in more.items() if span[end] in tested]
        plain = [v for span, v in more.items() if span[end] not in tested]
        if len(within) > 1 and len(plain) > 1:
            found = max(found, median(within) - median(plain))
    # The least that a clock of whole seconds tells.
    return found if found >= 1 else 0.0


def _of_updates(side: Mapping[str, Side]) -> Times | None:
    """Times of training alone where a log tells them, else by a clock.

    verl's `timing_s/step` holds `timing_s/testing` from 0.2 to 0.5, and `timing_s/save_checkpoint`
    then and since 0.7.1 (trainer/ppo/ray_trainer.py, fit, up to 0.9.1). No log names its release.
    NeMo-RL's `total_step_time` holds both (algorithms/grpo.py, 0.5). Steps that neither tested nor
    saved are training alone in all of them.
    """
    steps = {s: v for s, v in side[SECONDS].items() if s > 0 and v > 0}
    if steps:
        testing, saving = side.get(TESTING, {}), side.get(SAVING, {})
        plain = {s: v for s, v in steps.items() if not testing.get(s) and not saving.get(s)}
        if len(plain) * _PLAIN >= len(steps):
            return _each(plain)
        held = _held(side, steps)
        if held is None:
            return _each(steps, clocked=True)
        less = {s: v - sum(side[kind].get(s, 0.0) for kind in held) for s, v in steps.items()}
        return _each({s: v for s, v in less.items() if v > 0})
    if turns := {s: v for s, v in side.get(TURN, {}).items() if s > 0 and v > 0}:
        return _each(turns, clocked=True)
    whole = {s: v for s, v in side[WHOLE].items() if s > 0 and v > 0}
    if whole:
        last = max(whole)
        until_T, seconds_T = np.array([float(last)]), np.array([whole[last]])
        return Times(until_T, seconds_T, until_T.copy(), clocked=True)
    since = side[SINCE]
    if len(since) < 2 or max(since) - min(since) < 1 or since[max(since)] <= since[min(since)]:
        return None  # a resumed run's clock begins anew
    step_R = np.array(sorted(since), np.float64)
    clock_R = np.array([since[int(s)] for s in step_R])
    return Times(step_R[1:], np.diff(clock_R), np.diff(step_R), clocked=True)


def _held(side: Mapping[str, Side], steps: Side) -> list[str] | None:
    """Which of "testing" and "saving" a step's time holds; None where the log does not tell.

    What is left of a step without its parts is one or both of them, or next to nothing.
    """
    testing, saving = side.get(TESTING, {}), side.get(SAVING, {})
    if any(testing.get(s, 0.0) > v for s, v in steps.items()):
        return []  # and then a checkpoint counts for little
    known = [s for s in steps if all(s in side.get(f"part {name}", {}) for name in _MAIN)]
    if not known:
        return None
    left = {s: steps[s] - sum(side.get(f"part {name}", {}).get(s, 0.0) for name in PARTS)
            for s in known}  # fmt: skip
    out = list[str]()
    for kind, of in ((TESTING, testing), (SAVING, saving)):
        both = [s for s in known if of.get(s)]
        if both and median(left[s] / of[s] for s in both) > _MOSTLY:
            out.append(kind)
            left = {s: left[s] - of.get(s, 0.0) for s in known}
    return out


def _each(steps: Side, *, clocked: bool = False) -> Times:
    order = sorted(steps)
    return Times(np.array(order, np.float64), np.array([steps[s] for s in order]),
                 np.ones(len(order)), clocked)  # fmt: skip


def _places(mean: Mapping[float, float], of_all: float) -> tuple[tuple[int, float], ...]:
    """Some of them, evenly in the logarithm of the step, over the mean of all."""
    order, out = list(mean), dict[int, float]()
    for i in range(_PLACES):
        at = order[round((len(order)) ** (i / (_PLACES - 1))) - 1]
        out[int(at)] = mean[at] / of_all
    return tuple(out.items())


def gpu_hours(step_K: FloatArray, seconds: float, by_step: Sequence[Sequence[float]]) -> FloatArray:
    """GPU-hours until some steps.

    Args:
        step_K: updates done.
        seconds: GPU-seconds of an update, on average.
        by_step: the mean seconds until a step, over those of all, as `said_of` gives them.
    """
    spent_K = step_K * seconds / 3600
    if not by_step:
        return np.asarray(spent_K)
    at, share = np.array(by_step, dtype=np.float64).T
    return np.asarray(spent_K * np.interp(np.log(np.maximum(step_K, 1.0)), np.log(at), share))


def gpus_by_throughput(side: Mapping[str, Side]) -> int | None:
    """GPUs of a verl run: tokens of a step over its seconds and the throughput of one GPU."""
    seconds, throughput, total = side[SECONDS], side[THROUGHPUT], side["total"]
    steps = [s for s in total if seconds.get(s) and throughput.get(s)]
    if not steps:
        return None
    counts = sorted(total[s] / (seconds[s] * throughput[s]) for s in steps)
    found = counts[len(counts) // 2]
    whole = round(found)
    # What is not near a whole number counts other tokens than those.
    return whole if whole >= 1 and abs(found - whole) <= 0.03 * whole else None


def passes_per_step(step_L: IntArray, epoch_L: FloatArray) -> float | None:
    """Passes over the training problems in an update; None where the log does not say.

    Args:
        step_L: updates, ascending.
        epoch_L: until then, as a share of the problems or as the number of whole passes.

    >>> passes_per_step(np.array([10, 20, 30, 40]), np.array([0.1, 0.2, 0.3, 0.4]))
    0.01
    >>> passes_per_step(np.arange(1, 7), np.array([0, 0, 1, 1, 2, 2]))  # two updates are a pass
    0.5
    """
    known = (step_L > 0) & (epoch_L >= 0)
    step_L, epoch_L = step_L[known], epoch_L[known]
    if step_L.size < 2:
        return None
    if (epoch_L == np.trunc(epoch_L)).all():
        return _of_whole(step_L, epoch_L)
    grown = epoch_L[-1] - epoch_L[0]
    if grown < _TOLD:
        return None
    share, middle = grown / (step_L[-1] - step_L[0]), step_L.size // 2
    off = epoch_L[middle] - epoch_L[0] - share * (step_L[middle] - step_L[0])
    # What does not grow with the steps counts another thing.
    return round(float(share), 12) if abs(off) <= _EXACT * grown + 0.01 else None


def _of_whole(step_L: IntArray, epoch_L: FloatArray) -> float | None:
    """Of the number of whole passes: from where one begins to where another does.

    The first row stands for the beginning of its pass only where the run began there.
    """
    seen, place = np.unique(epoch_L, return_index=True)
    begins = step_L[place]
    if step_L[0] > 1:
        seen, begins = seen[1:], begins[1:]
    if seen.size < 2:
        return None
    updates, passes = int(begins[-1] - begins[0]), float(seen[-1] - seen[0])
    known = np.diff(step_L).max() - 1 <= _EXACT * updates and updates > passes
    return passes / updates if known else None


def rate_span(rates: Side) -> tuple[float, float] | None:
    """The learning rate of the last row, and the largest; None without one.

    >>> rate_span({1: 5e-7, 2: 1e-6, 3: 1e-6}), rate_span({1: 1e-6, 50: 5e-7, 100: 0.0})
    ((1e-06, 1e-06), (0.0, 1e-06))
    """
    top = max(rates.values(), default=0.0)
    return (rates[max(rates)], top) if top > 0 else None


def share_at_the_end(shares: Mapping[int, float]) -> float | None:
    """Mean of the last rows; None without any, or where a number is no share.

    >>> share_at_the_end({step: 0.5 if step > 27 else 0.1 for step in range(1, 31)})
    0.5
    """
    if not shares or max(shares.values()) > 1:
        return None
    last = [shares[step] for step in sorted(shares)[-max(1, len(shares) // _END):]]
    return sum(last) / len(last)


def groups_of(run: ImportedRun, s: Series) -> Groups | None:
    """What is known of the groups at the end of a run.

    Of validation problems: as many of their samples as a group has, or all.
    """
    alike, n = run.provenance.alike, run.rollouts_per_problem
    found = [o for o in run.outcomes if (o.problem_set, o.split) == (s.problem_set, s.split)]
    teach = None if alike is None else 1 - alike
    if not found or n is None:
        return None if teach is None else Groups(teach=teach)
    last = max(found, key=lambda o: o.step)
    size, of = min(n, last.samples), last.successes_P.tolist()
    every = comb(last.samples, size) * len(of)
    right = sum(comb(k, size) for k in of) / every
    wrong = sum(comb(last.samples - k, size) for k in of) / every
    return Groups(teach=teach, all_right=right, all_wrong=wrong, samples=size)
