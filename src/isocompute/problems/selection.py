"""Parts of a problem set: by pass rate, mixed, of a given size, split for validation.

Everything drawn keeps the order of the set it was drawn from.

Source: arXiv 2603.12151, section 3: the bands, the mixtures and their shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from isocompute.errors import InputError
from isocompute.problems.sets import Problem, ProblemSet


class Band(NamedTuple):
    """Pass rates from `low` to `high`, both included, measured on at least `samples` samples."""

    low: float
    high: float
    samples: int = 1


BANDS: dict[str, Band] = {
    "easy": Band(0.3, 0.6),
    "hard": Band(0.0, 0.0625),
    "very_easy": Band(0.6, 0.9),
    "extremely_hard": Band(0.0, 0.0, samples=128),  # pass@128 = 0
}

# Shares of bands. The hard half of Hetero-Dual never succeeds in 128 samples.
MIXTURES: dict[str, dict[str, float]] = {
    "hetero_dual": {"extremely_hard": 0.5, "easy": 0.5},
    "hetero_tri": {"hard": 0.5, "easy": 0.25, "very_easy": 0.25},
}

# Pass rates that were rounded on their way through a file still meet the ends of a band.
_SLACK = 1e-9


def band_of(name: str | Band | tuple[float, float]) -> Band:
    """A band by its name, or from two pass rates.

    Raises:
        InputError: unknown name, or ends that do not lie in order in 0..1.
    """
    if isinstance(name, str):
        if name not in BANDS:
            raise InputError(
                f"a band of pass rates must be one of {', '.join(BANDS)}, or two numbers, but got "
                f"{name!r}; choose one of them."
            )
        return BANDS[name]
    band = Band(*name)
    if not 0 <= band.low <= band.high <= 1:
        raise InputError(
            "`0 <= low <= high <= 1` must hold for a band of pass rates, but got "
            f"low={band.low}, high={band.high}; correct them."
        )
    return band


def in_band(problem: Problem, band: Band) -> bool:
    """Whether a problem's measured pass rate lies in a band."""
    rate = problem.pass_rate
    if rate is None or not band.low - _SLACK <= rate <= band.high + _SLACK:
        return False
    return band.samples <= 1 or (problem.pass_rate_samples or 0) >= band.samples


def _require_pass_rates(problems: ProblemSet, band: Band) -> None:
    missing = sum(p.pass_rate is None for p in problems.problems)
    if missing:
        raise InputError(
            "selection by difficulty needs a pass rate for every problem, but "
            f"{missing} of {len(problems)} in set {problems.name!r} have none; measure them with "
            "`isocompute difficulty`."
        )
    if band.samples > 1 and not any(
        (p.pass_rate_samples or 0) >= band.samples for p in problems.problems
    ):
        raise InputError(
            f"this band needs pass rates from >= {band.samples} samples, but no problem of set "
            f"{problems.name!r} has that many; measure with `isocompute difficulty`, which has a "
            "second stage for problems that never succeeded."
        )


def select_problems(
    problems: ProblemSet, band: str | Band | tuple[float, float], *, name: str | None = None
) -> ProblemSet:
    """The problems whose pass rate lies in a band, ends included.

    Args:
        problems: with a pass rate for every problem.
        band: "easy" [0.3, 0.6], "hard" [0, 0.0625], "very_easy" [0.6, 0.9], "extremely_hard"
            (0 of at least 128 samples), or (low, high).
        name: of the new set; None: the old name with the band's.

    Raises:
        InputError: unknown band, missing pass rates, or no problem in the band.
    """
    limits = band_of(band)
    _require_pass_rates(problems, limits)
    label = band if isinstance(band, str) else f"{limits.low:g}-{limits.high:g}"
    kept = [p for p in problems.problems if in_band(p, limits)]
    if not kept:
        raise InputError(
            f"band {label} [{limits.low:g}, {limits.high:g}] must hold at least 1 problem of set "
            f"{problems.name!r}, but holds 0 of {len(problems)}; take another band or other "
            "problems."
        )
    return problems.replace(name=name or f"{problems.name}-{label}", problems=kept)


def subset_problems(
    problems: ProblemSet, size: int, rng: np.random.Generator, *, name: str | None = None
) -> ProblemSet:
    """`size` problems at random; with equal generators a smaller subset lies in a larger one.

    Raises:
        InputError: if `1 <= size <= len(problems)` does not hold.
    """
    if not 1 <= size <= len(problems):
        raise InputError(
            f"`1 <= size <= {len(problems)}` must hold for a subset of set {problems.name!r}, but "
            f"got size={size}; lower it or bring more problems."
        )
    chosen = sorted(rng.permutation(len(problems))[:size].tolist())
    return problems.replace(
        name=name or f"{problems.name}-D{size}", problems=[problems.problems[i] for i in chosen]
    )


def split_problems(
    problems: ProblemSet, validation: int, rng: np.random.Generator
) -> tuple[ProblemSet, ProblemSet]:
    """Training and validation problems without a common problem or a common prompt.

    Problems with equal prompts go to the same side.

    Args:
        problems: what is split.
        validation: number of validation problems.
        rng: draws them.

    Returns:
        (training set, validation set), named `NAME-train` and `NAME-validation`.

    Raises:
        InputError: if both sides cannot have at least 1 problem, or if equal prompts leave no
            way to reach `validation` that was found.
    """
    if not 1 <= validation < len(problems):
        raise InputError(
            f"`1 <= validation < {len(problems)}` must hold for a split of set {problems.name!r}, "
            f"but got validation={validation}; change it or bring more problems."
        )
    groups: dict[str, list[int]] = {}
    for i, problem in enumerate(problems.problems):
        groups.setdefault(problem.prompt, []).append(i)
    members = list(groups.values())
    held_out: set[int] = set()
    for g in rng.permutation(len(members)).tolist():
        if len(held_out) + len(members[g]) <= validation:
            held_out.update(members[g])
    if len(held_out) != validation:
        raise InputError(
            "equal prompts must stay on one side of a split, but with groups of up to "
            f"{max(map(len, members))} equal prompts in set {problems.name!r} only "
            f"{len(held_out)} instead of {validation} validation problems are possible; ask for "
            f"{len(held_out)} or drop the repeats."
        )
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for i, problem in enumerate(problems.problems):
        sides[i in held_out].append(problem)
    return (
        problems.replace(name=f"{problems.name}-train", problems=sides[0]),
        problems.replace(name=f"{problems.name}-validation", problems=sides[1]),
    )


def mix_problems(
    problems: ProblemSet,
    mixture: str | Mapping[str, float],
    rng: np.random.Generator,
    *,
    size: int | None = None,
    name: str | None = None,
) -> ProblemSet:
    """A mixture of difficulties with given shares.

    A problem on the border of two bands belongs to the one listed first.

    Args:
        problems: with a pass rate for every problem.
        mixture: "hetero_dual" (half extremely hard, half easy), "hetero_tri" (half hard, a
            quarter easy, a quarter very easy), or shares by band that sum to 1.
        rng: draws within each band.
        size: problems in the mixture; None: as many as the shares allow.
        name: of the new set; None: the old name with the mixture's.

    Raises:
        InputError: unknown mixture or band, shares that do not sum to 1, missing pass rates, or
            a band with too few problems.
    """
    if isinstance(mixture, str):
        if mixture not in MIXTURES:
            raise InputError(
                f"a mixture must be one of {', '.join(MIXTURES)}, or shares by band, but got "
                f"{mixture!r}; choose one of them."
            )
        shares: Mapping[str, float] = MIXTURES[mixture]
    else:
        shares = mixture
    parts = list(shares.values())
    if not parts or not all(part > 0 for part in parts) or abs(sum(parts) - 1) > 1e-6:
        raise InputError(
            f"shares of a mixture must be > 0 and sum to 1, but got {dict(shares)}; correct them."
        )
    pools: dict[str, list[int]] = {}
    taken: set[int] = set()
    for band, limits in ((b, band_of(b)) for b in shares):
        _require_pass_rates(problems, limits)
        pools[band] = [
            i for i, p in enumerate(problems.problems) if i not in taken and in_band(p, limits)
        ]
        taken.update(pools[band])
    if size is None:
        size = int(min(len(pools[band]) / share for band, share in shares.items()) + 1e-9)
    counts = _apportion(size, shares)
    chosen: list[int] = []
    for band, count in counts.items():
        if size < len(shares) or count > len(pools[band]):
            have = ", ".join(f"{b} {len(pools[b])} (needs {counts[b]})" for b in counts)
            raise InputError(
                "every band of a mixture must hold enough problems and get at least 1, but set "
                f"{problems.name!r} holds {have} for size={size}; change the size or bring more."
            )
        chosen += rng.permutation(pools[band])[:count].tolist()
    label = mixture if isinstance(mixture, str) else "mixture"
    return problems.replace(
        name=name or f"{problems.name}-{label}",
        problems=[problems.problems[i] for i in sorted(chosen)],
    )


def _apportion(size: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that sum to `size`, closest to the shares (largest remainders)."""
    counts = {band: int(size * share + 1e-9) for band, share in shares.items()}
    by_remainder = sorted(shares, key=lambda b: counts[b] - size * shares[b])
    for band in by_remainder[: size - sum(counts.values())]:
        counts[band] += 1
    return counts
