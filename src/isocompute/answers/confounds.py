"""Settings that change with n: what seems to be the work of n may be theirs."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from isocompute.domain import Curve, Notice, notice
from isocompute.recipe import RECORDED, SHARED, TRAINED

Value = float | str

# A rate has its own rules, by the batch. How often a problem is sampled moves a mean's noise alone.
APART = ("learning_rate", "evaluation_samples")
MOST = 2  # settings that are written out; more of them would bury the first


def settings_by_n(curves: Sequence[Curve]) -> dict[str, dict[int, set[Value]]]:
    """Word -> n -> its values, for the settings that no value gives to all n that say one."""
    found: dict[str, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
    for c in curves:
        for word in (*SHARED, *RECORDED, *TRAINED):
            if word not in APART and word in c.recorded:
                found[word][c.rollouts_per_problem].add(c.recorded[word])
    return {word: dict(of) for word, of in found.items() if not set.intersection(*of.values())}


def confounds(curves: Sequence[Curve]) -> Iterator[Notice]:
    """The notice that some settings changed with n, each value with the n that had it."""
    by_n = settings_by_n(curves)
    if not by_n:
        return
    which, word = list[str](), next(iter(by_n))
    for name, of in [*by_n.items()][:MOST]:
        values = sorted({v for some in of.values() for v in some}, key=lambda v: (str(type(v)), v))
        n_of = {v: [str(n) for n in sorted(of) if v in of[n]] for v in values}
        parts = [f"{exact(v)} at n = {', '.join(n)}" for v, n in n_of.items()]
        which.append(f"{name} was {' and '.join(parts)}")
    if len(by_n) > MOST:
        which.append(f"and {len(by_n) - MOST} more")
    counts = Counter(value for some in by_n[word].values() for value in some)
    most = max(counts, key=lambda v: counts[v])
    yield notice("settings_follow_n", settings="; ".join(which),
                 where=shlex.quote(f"{word}={exact(most)}"))  # fmt: skip


def exact(value: Value) -> str:
    """A value as `--where` takes it."""
    return value if isinstance(value, str) else f"{value:.12g}"
