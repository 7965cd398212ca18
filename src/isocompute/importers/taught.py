"""How many groups had something to teach at the end of a run: rewards that differ.

Source: TRL 1.16 (grpo_trainer.py): `frac_reward_zero_std`, groups whose rewards are all alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

from isocompute.domain import Groups
from isocompute.importers.runs import ImportedRun, Series

ALIKE = "alike"
ALIKE_KEYS = ("frac_reward_zero_std", "train/frac_reward_zero_std")
_END = 10  # of a run: so many a part of its rows, in which a share moves little


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
