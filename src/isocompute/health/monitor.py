"""Is a run healthy enough for a law to be read off it? Rules on step records, live or afterwards.

`Monitor` takes one step at a time; `check_steps` is the same monitor fed with a finished run, so
what is said live and afterwards cannot differ.

Shape legend: K steps.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isocompute.errors import InputError
from isocompute.health.groups import Groups
from isocompute.health.rewards import Rewards
from isocompute.health.rules import METRICS, Finding, Severity, Thresholds

# One step in five may be an outlier: a rule must be broken without the steps of a window that speak
# loudest for it. Half: where 2% of the steps have a KL of 10, a quarter of runs of 1,000 steps
# drift. Twice: KL at 1.3 times its limit is missed in a tenth, verifier errors at twice theirs
# among 16 rollouts in a half.
OUTLIERS = 0.2


class _Broken(NamedTuple):
    """A rule that holds no longer at one step."""

    code: str
    severity: Severity
    values: dict[str, float]
    text: str


# Plain Python: ten numbers are summed faster than an array of them is made.
def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class Monitor:
    """Watches one run, step by step.

    Args:
        thresholds: limits of the rules.

    >>> monitor = Monitor()
    >>> [f.code for f in monitor.update(1, {"entropy": float("nan")})]
    ['divergence']
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self.findings: list[Finding] = []
        window = self.thresholds.window
        self._recent: dict[str, deque[float]] = {}
        self._start: dict[str, float] = {}
        self._rewards, self._groups = Rewards(window), Groups()
        self._spikes: deque[bool] = deque(maxlen=window)
        self._streak: dict[str, int] = {}

    def update(self, step: int, values: Mapping[str, float]) -> list[Finding]:
        """Take one step's numbers; returns what is newly found.

        A rule speaks once, or twice where a warning becomes a failure.

        Args:
            step: 1-based number of the update.
            values: numbers under the names of `METRICS`; other names are ignored.

        Raises:
            InputError: if a value is not a number.
        """
        found: list[Finding] = []
        finite: dict[str, float] = {}
        for name in METRICS.keys() & values.keys():
            try:
                value = float(values[name])
            except (TypeError, ValueError):
                raise InputError(
                    f"health metric `{name}` must be a number, but got {values[name]!r} at step "
                    f"{step}; leave out what is not measured."
                ) from None
            if math.isfinite(value):
                finite[name] = value
            else:
                found += self._report(step, _Broken(
                    "divergence", "failure", {name: value},
                    f"`{name}` must be finite, but is {value} at step {step}; lower the learning "
                    "rate (square-root scaling from a smaller anchor).",
                ))
        dead = finite.get("zero_variance_share")
        self._groups.add(dead, finite.get("groups", 1.0))
        if dead == 1.0:  # what norm there is, is that of the regularisers
            finite.pop("grad_norm", None)
        if "grad_norm" in finite:
            self._spikes.append(self._is_spike(finite["grad_norm"]))
        self._remember(finite)
        broken = {b.code: b for b in self._broken(step)}
        for code in self._streak.keys() | broken.keys():
            self._streak[code] = self._streak.get(code, 0) + 1 if code in broken else 0
        for code, rule in broken.items():
            # A burst of spikes is over before a window has passed.
            if self._streak[code] >= self.thresholds.window or code == "gradient_spikes":
                found += self._report(step, rule)
        return found

    def _report(self, step: int, rule: _Broken) -> list[Finding]:
        told = {finding.severity for finding in self.findings if finding.code == rule.code}
        if "failure" in told or rule.severity in told:  # a warning may still become a failure
            return []
        finding = Finding(
            code=rule.code, severity=rule.severity, step=step, values=rule.values,
            message=rule.text,
        )
        self.findings.append(finding)
        return [finding]

    def _is_spike(self, norm: float) -> bool:
        past = self._recent.get("grad_norm", ())
        if len(past) < self.thresholds.window:
            return False
        return norm > self.thresholds.gradient_spike * statistics.median(past) > 0

    def _remember(self, finite: Mapping[str, float]) -> None:
        window = self.thresholds.window
        for name, value in finite.items():
            recent = self._recent.setdefault(name, deque(maxlen=window))
            recent.append(value)
            if len(recent) == window and name not in self._start:
                self._start[name] = _mean(recent)
        if "reward" in finite:
            self._rewards.add(finite["reward"])

    def _mean(self, name: str, without: Literal["", "low", "high"] = "") -> float | None:
        """Mean over the last full window, None before there is one.

        Args:
            name: of the metric.
            without: the end of the window's numbers from which the outliers are left out.
        """
        recent = self._recent.get(name)
        if recent is None or len(recent) < self.thresholds.window:
            return None
        if not without:
            return _mean(recent)
        few = int(self.thresholds.window * OUTLIERS)
        return _mean(sorted(recent)[few if without == "low" else 0 :][: len(recent) - few])

    def _broken(self, step: int) -> Iterable[_Broken]:
        yield from self._broken_entropy(step)
        yield from self._broken_drift(step)
        yield from self._broken_batches(step)
        yield from self._broken_reward(step)

    def _unsolved(self) -> bool:
        reward = self._mean("reward")
        return reward is None or reward < self.thresholds.solved

    def _broken_entropy(self, step: int) -> Iterable[_Broken]:
        limits, start = self.thresholds, self._start.get("entropy")
        now, low = self._mean("entropy", "low"), self._mean("entropy", "high")
        if start is None or now is None or low is None:
            return
        after = f"at step {step} after {start:.3g} at the start"
        if now < limits.entropy_collapse * start and self._unsolved():
            yield _Broken(
                "entropy_collapse", "failure", {"entropy": now, "entropy_start": start},
                f"entropy must stay above {limits.entropy_collapse:g} of its start, but is "
                f"{now:.3g} {after}; add KL to the base model and an entropy bonus, or lower the "
                "learning rate.",
            )
        limit = max(limits.entropy_explosion * start, start + limits.entropy_explosion_nats)
        if low > limit:
            yield _Broken(
                "entropy_explosion", "failure", {"entropy": low, "entropy_start": start},
                f"entropy must stay below {limit:.3g} nats/token, but is {low:.3g} {after}; drop "
                "the entropy bonus or lower the learning rate.",
            )

    def _broken_drift(self, step: int) -> Iterable[_Broken]:
        limits = self.thresholds
        length, start = self._mean("length_tokens", "high"), self._start.get("length_tokens")
        gain, sure = self._rewards.gain
        if not sure and length and start and length > limits.length_explosion * start > 0:
            yield _Broken(
                "length_explosion", "warning" if gain > 0 else "failure",
                {"length_tokens": length, "length_tokens_start": start},
                f"responses must not grow beyond {limits.length_explosion:g}x their starting "
                f"length without a gain in reward, but have {length:.4g} tokens at step "
                f"{step} after {start:.4g}, where the reward changed by {gain:+.2g}; drop the "
                "entropy bonus or lower the learning rate.",
            )
        kl = self._mean("kl", "high")
        if kl is not None and kl > limits.kl_drift:
            yield _Broken(
                "kl_drift", "warning", {"kl": kl},
                f"KL to the base model should stay below {limits.kl_drift:g} nats/token, but is "
                f"{kl:.3g} at step {step}; raise kl_coef or lower the learning rate.",
            )
        if sum(self._spikes) >= limits.spikes:
            yield _Broken(
                "gradient_spikes", "warning", {"spikes": float(sum(self._spikes))},
                f"gradient norms should stay below {limits.gradient_spike:g}x their running "
                f"median, but {sum(self._spikes)} of {limits.window} steps up to {step} did not; "
                "lower the learning rate or raise B_p.",
            )

    def _broken_batches(self, step: int) -> Iterable[_Broken]:
        limits = self.thresholds
        clipped = self._mean("clipped_share", "high")
        if clipped is not None and clipped > limits.clipped:
            yield _Broken(
                "clipped_responses", "warning", {"clipped_share": clipped},
                f"at most {_percent(limits.clipped)} of the responses should be cut off, but "
                f"{_percent(clipped)} are at step {step}; allow longer responses.",
            )
        dead = self._mean("zero_variance_share", "high")
        if dead is not None and dead > limits.dead_batches and self._unsolved():
            lasting = dead == 1.0 and self._groups.dead(1 - limits.dead_batches)
            yield _Broken(
                "dead_batches", "failure" if lasting else "warning",
                {"zero_variance_share": dead},
                f"at most {_percent(limits.dead_batches)} of the problems should be without a "
                f"gradient, but {_percent(dead)} are at step {step}; raise n, or take problems "
                "that are neither too hard nor too easy.",
            )
        errors = self._mean("verifier_error_share", "high")
        if errors is not None and errors > limits.verifier_errors:
            yield _Broken(
                "verifier_errors", "warning", {"verifier_error_share": errors},
                f"at most {_percent(limits.verifier_errors)} of the responses should fail to be "
                f"judged, but {_percent(errors)} do at step {step}; correct the verifier or raise "
                "its time-out.",
            )

    def _broken_reward(self, step: int) -> Iterable[_Broken]:
        share = self.thresholds.reward_collapse
        if lost := self._rewards.lost(share):
            now, best = lost
            yield _Broken(
                "reward_collapse", "failure", {"reward": now, "reward_best": best},
                f"reward must stay above {share:g} of its best, but is "
                f"{now:.3g} at step {step} after {best:.3g}; lower the learning rate, or change "
                "the regularisers to the recipe of the set's difficulty.",
            )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def check_steps(
    steps: Iterable[tuple[int, Mapping[str, float]]], thresholds: Thresholds | None = None
) -> list[Finding]:
    """Findings of a finished run, the same that `Monitor` reports live.

    Args:
        steps: (step, numbers of that step), in order.
        thresholds: limits of the rules.
    """
    monitor = Monitor(thresholds)
    for step, values in steps:
        monitor.update(step, values)
    return monitor.findings


def check_arrays(
    step_K: ArrayLike,
    health_K: Mapping[str, ArrayLike],
    thresholds: Thresholds | None = None,
) -> list[Finding]:
    """Findings of a run as the store returns it: one array per metric.

    Args:
        step_K: numbers of the updates.
        health_K: metric -> values; NaN where a step has none, infinite where it diverged.
        thresholds: limits of the rules.
    """
    columns = {name: np.asarray(v, dtype=np.float64) for name, v in health_K.items()}
    return check_steps(
        (
            (int(step), {n: float(v[i]) for n, v in columns.items() if not np.isnan(v[i])})
            for i, step in enumerate(np.asarray(step_K).tolist())
        ),
        thresholds,
    )
