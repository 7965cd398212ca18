"""What a step records, what a rule finds, and the limits of the rules, each with its argument.

Source: arXiv 2603.12151, section 3, names the failures (entropy collapse, entropy and length
explosion, instability). It gives no thresholds: those below are argued where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from isocompute.errors import InputError

# Numbers of one update: name -> (unit, meaning). An engine leaves out what it does not measure.
METRICS: dict[str, tuple[str, str]] = {
    "reward": ("0..1", "mean reward of the batch"),
    "entropy": ("nats/token", "entropy of the policy, mean over generated tokens"),
    "kl": ("nats/token", "KL divergence of the policy from the base model, mean over tokens"),
    "grad_norm": ("", "global norm of the gradient before clipping"),
    "learning_rate": ("", "learning rate of this update"),
    "length_tokens": ("tokens", "mean length of a response"),
    "clipped_share": ("0..1", "share of responses cut off at the length limit"),
    "zero_variance_share": ("0..1", "share of problems with the same reward for every rollout"),
    "groups": ("", "groups of that share: 1 for a value model or where it is not known"),
    "loss": ("", "loss that was minimised"),
    "value_loss": ("", "loss of the value head (ppo)"),
    "ratio": ("", "mean probability ratio of new to old policy over the updates of a batch"),
    "ratio_clipped_share": ("0..1", "share of tokens with a clipped probability ratio"),
    "kl_old": ("nats/token", "KL divergence of the new from the old policy within a batch (k3)"),
    "importance_ratio": ("", "mean probability ratio of trainer to sampler"),
    "importance_capped_share": ("0..1", "share of these ratios that were truncated"),
    "distinct_share": ("0..1", "share of distinct responses among the rollouts of the batch"),
    "verifier_error_share": ("0..1", "share of responses that the verifier failed to judge"),
}

Severity = Literal["failure", "warning"]

# What counts as a change of a score or a reward, and not as noise: both. Standard errors between
# two windows: at half of it every fourth plateau falls, at twice four of five falls by 0.04 do not.
SURE = 3.0
# Of score: noise that lasts makes changes as sure as that. Of six published panels this names one
# with a fall, half of it all six, twice of it none.
LEAST_CHANGE = 0.01
# Chance that a run that goes on as it began is ever marked as one that lost its reward, or its
# groups that teach. Half and twice move the limit of the reward by 0.1 of 6 standard errors at
# 1,000 steps, and let a run that never teaches fail after 1,791 and 441 groups instead of 891.
DOUBT = 0.01


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule that a run broke.

    Args:
        code: name of the rule.
        severity: "failure" marks the run as unhealthy; "warning" does not.
        step: first step at which the rule counted as broken.
        values: the numbers that the rule saw.
        message: rule, values and cure in one line.
    """

    code: str
    severity: Severity
    step: int
    values: Mapping[str, float]
    message: str


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits of the rules, each with its argument.

    Args:
        window: steps of every running mean, and steps for which a rule must be broken before it
            is reported. 10: the recipe warms up for 10 steps, so the first window, which is the
            reference of "at the start", ends where the full learning rate begins.
        entropy_collapse: share of the starting entropy below which a policy counts as collapsed.
            0.1: the number of distinct typical responses is exp(entropy x length), so a tenth
            of the entropy leaves the tenth root of the variety.
        entropy_explosion: factor over the starting entropy. 2: the square of the variety. It
            must also rise by `entropy_explosion_nats`, so that a policy that starts almost
            deterministic may explore.
        entropy_explosion_nats: 0.3 nats/token, 35% more choices at every token.
        length_explosion: factor over the starting length. 2. Longer answers are no fault where
            the reward surely rose: its last quarter above its first by 3 standard errors and 0.01.
        kl_drift: nats/token. 1: a typical token is e times likelier than under the base model;
            the k3 estimator, whose spread grows with exp(KL), holds no policy from there.
        clipped: share of cut-off responses. 0.1: they score 0 whatever they would have said, so
            the reward is biased by up to this much.
        dead_batches: share of problems without a gradient. 0.9: less than a tenth of B_p trains.
            A failure once no group taught for longer than is probable at the run's own share.
        solved: reward from which a lack of gradient or entropy is success, not a fault. 0.9.
        reward_collapse: share of the best window's reward below which it counts as lost. 0.5, and
            by more standard errors than chance makes in a run of this length.
        gradient_spike: factor over the running median of the gradient norm. 10: noise of a
            batch's mean moves it by far less; `spikes` of them in one window are reported.
        spikes: number of spikes in one window. 3.
        verifier_errors: share of responses that could not be judged. 0.01: they are left out of
            the means, and if they are not a random part the bias may reach this size.

    Raises:
        InputError: if a limit is not a finite number > 0, or the window is below 2.
    """

    window: int = 10
    entropy_collapse: float = 0.1
    entropy_explosion: float = 2.0
    entropy_explosion_nats: float = 0.3
    length_explosion: float = 2.0
    kl_drift: float = 1.0
    clipped: float = 0.1
    dead_batches: float = 0.9
    solved: float = 0.9
    reward_collapse: float = 0.5
    gradient_spike: float = 10.0
    spikes: int = 3
    verifier_errors: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(
                    f"health threshold `{field.name}` must be finite and > 0, but got {value!r}; "
                    "correct it."
                )
        if self.window < 2:
            raise InputError(
                f"health threshold `window` must be >= 2 steps, but got {self.window}; raise it."
            )
