"""What a column of the scorecard holds: the arms of one model or world, read by the package.

`columns.toml` says where they lie. An arm that a column lacks is an answer too: what it would
take is said by `ARMS`.
"""

from __future__ import annotations

import contextlib
import csv
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.answers import printed_law
from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.sources import load_curves
from scorecard import grid, scores
from scorecard import statistics as of
from scorecard.verdicts import Estimate

ROOT = Path(__file__).resolve().parents[2]
MAIN_BP = 32  # of the 7B curves and of the grid
SAMPLES = 4  # avg@4, best@4, worst@4

# Arms, in words, and the runs that one takes in the grid: (n, B_p, seeds, millions of rollouts).
ARMS: Mapping[str, tuple[str, tuple[int, int, int, float]]] = {
    "easy": ("Easy problems", (9, 1, 3, 4.0)),
    "easy_all": ("Easy at several B_p", (9, 3, 3, 4.0)),
    "hard": ("Hard problems", (9, 1, 3, 4.0)),
    "hard_all": ("Hard at several B_p", (9, 3, 3, 4.0)),
    "easy_splits": ("all splits of one batch, Easy", (7, 1, 3, 4.0)),
    "hard_splits": ("all splits of one batch, Hard", (7, 1, 3, 4.0)),
    "long": ("answers whose length varies", (5, 1, 3, 2.0)),
    "extremely_hard": ("problems never solved in 128 tries", (9, 1, 3, 4.0)),
    "few": ("50 Easy problems", (9, 1, 3, 4.0)),
    "hard_on_easy": ("Hard alone, judged on Easy and Hard", (3, 1, 3, 1.0)),
    "dual": ("a mixture of Hard and Easy", (9, 1, 3, 4.0)),
    "tri": ("a mixture of Hard, Easy and Very Easy", (3, 1, 3, 1.0)),
    "outside": ("scores on another kind of problem", (2, 1, 3, 1.0)),
    "ppo": ("PPO", (5, 1, 3, 1.0)),
    "cispo": ("CISPO", (5, 1, 3, 1.0)),
    "rate_sqrt": ("eight times the batch, square-root rate", (1, 1, 3, 1.0)),
    "rate_constant": ("eight times the batch, constant rate", (1, 1, 3, 1.0)),
    "rate_linear": ("eight times the batch, linear rate", (1, 1, 3, 1.0)),
    "rates": ("six learning rates at one batch size", (3, 1, 3, 0.5)),
    "easy_plain": ("Easy without KL and entropy", (1, 1, 3, 1.0)),
    "easy_regular": ("Easy with KL and entropy", (1, 1, 3, 1.0)),
    "easy_filter": ("the same with the filter", (1, 1, 3, 1.0)),
    "hard_plain": ("Hard without KL and entropy", (1, 1, 3, 1.0)),
    "hard_regular": ("Hard with KL and entropy", (1, 1, 3, 1.0)),
    "n256": ("n = 256", (1, 1, 3, 1.0)),
    "n64": ("n = 64", (1, 1, 3, 1.0)),
    "n64_of_256": ("64 of 256 rollouts in the gradient", (1, 1, 3, 1.0)),
    "tokens": ("responses whose length varies, counted", (9, 1, 3, 4.0)),
    "outcomes": ("best@k and worst@k", (9, 1, 3, 4.0)),
    "problems": ("outcomes per problem", (9, 1, 3, 4.0)),
    "train": ("scores on the training problems", (9, 1, 3, 4.0)),
    "seeds": ("more than one run per n", (9, 1, 3, 4.0)),
}
_OF_RUNS = ("tokens", "outcomes", "problems", "train", "seeds")  # what runs record, not arms


class MissingError(Exception):
    """A column lacks an arm; the text says which."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One column.

    Args:
        name, title: of it.
        arms: name -> where it lies, see `columns.toml`.
        lacks: what its runs did not record.
        seconds_per_million: of one core, for a million rollouts; NaN where it is not known.
        folder: of the runs of the grid.
        printed: numbers of the paper for rows of which it shows no curves, by their id.
    """

    name: str
    title: str
    arms: Mapping[str, Mapping[str, Any]]
    lacks: tuple[str, ...] = ()
    seconds_per_million: float = math.nan
    folder: Path = ROOT / "grid" / "runs"
    printed: Mapping[str, float] = field(default_factory=dict)

    def sweep(self, arm: str, metric: str = "avg", on: str | None = None) -> list[Curve]:
        """Curves of an arm at its main B_p, or at all where its name says so.

        Args:
            arm: a name of `ARMS`.
            metric: "avg", "best" or "worst", of 4 samples.
            on: the validation set, where the arm was judged on several.

        Raises:
            MissingError: the column has no such arm, or not this metric of it.
        """
        curves = self._read(arm, metric, on)
        if arm.endswith(("_all", "_splits")):
            if len({c.problems_per_batch for c in curves}) < 2:
                raise MissingError(f"{ARMS[arm][0]}: one B_p only")
            return curves
        return self._at_main(arm, curves)

    def every(self, arm: str, metric: str = "avg", on: str | None = None) -> list[Curve]:
        """Curves of an arm at every B_p that it has; raises as `sweep`."""
        return self._read(arm, metric, on)

    def _read(self, arm: str, metric: str, on: str | None) -> list[Curve]:
        known = self._where(arm)
        if known is None:
            raise MissingError(ARMS[arm][0])
        if metric != "avg" and "outcomes" in self.lacks:
            raise MissingError(ARMS["outcomes"][0])
        if "study" in known:
            curves = grid.curves(
                self.folder, _studies(known), known.get("arm", ""), metric, known.get("on", on)
            )
        else:
            curves = read(
                _sources(known), known.get("arm", ""), f"{metric}@{SAMPLES}", known.get("on", on)
            )
        if "n" in known:
            curves = [c for c in curves if c.rollouts_per_problem == known["n"]]
        if not curves:
            raise MissingError(f"{ARMS[arm][0]}: no finished run")
        return curves

    def _where(self, arm: str) -> Mapping[str, Any] | None:
        """The entry of an arm; several B_p or splits are the arm's own unless they have one."""
        for name in (arm, arm.replace("_splits", "_all"), arm.partition("_")[0]):
            if name in self.arms and (name == arm or arm.endswith(("_all", "_splits"))):
                return self.arms[name]
        return None

    def at_bp(self, arm: str, place: int) -> list[Curve]:
        """The curves of the smallest (0) or largest (-1) B_p that has three n or more."""
        curves = self.sweep(arm)
        rich = [b for b in _bps(curves) if len(_n_at(curves, b)) > 2]
        if len(rich) < 2:
            raise MissingError(f"{ARMS[arm][0]}: fewer than two B_p with three n")
        return [c for c in curves if c.problems_per_batch == rich[place]]

    def with_tokens(self, arm: str) -> list[Curve]:
        """Curves whose tokens are counted and do not follow the rollouts."""
        curves = self.sweep("long" if "long" in self.arms else arm)
        if any(c.tokens_K is None for c in curves):
            raise MissingError(ARMS["tokens"][0])
        lengths = np.concatenate([c.tokens_K[1:] / c.rollouts_K[1:] for c in curves])  # type: ignore[index]
        if np.ptp(lengths) < 0.01 * lengths.mean():
            raise MissingError("every response has one length: tokens are rollouts")
        return curves

    def metric_shift(self, arm: str, a: str, b: str) -> Estimate:
        """log2 n* by metric b minus by metric a; of the 7B model as the study printed it.

        The printed best n at the largest budget: one pair per B_p, which stand for repeats.
        """
        law = printed_law(self.arms.get(arm, {}).get("source"))
        if law is None:
            return of.shift(self.sweep(arm, a), self.sweep(arm, b))
        k = f"@{SAMPLES}"
        octaves = [math.log2(n[b + k] / n[a + k]) for n in law.best_n.values()]
        return scores.over_seeds(octaves, note="best n as printed, one pair per B_p")

    def fullest_batch(self, arm: str) -> int:
        """The batch size that is split into most (B_p, n); of several the largest."""
        splits: dict[int, set[int]] = {}
        for c in self.sweep(arm):
            splits.setdefault(c.configuration.batch_size, set()).add(c.problems_per_batch)
        batch = max(splits, key=lambda size: (len(splits[size]), size))
        if len(splits[batch]) < 3:
            raise MissingError("three splits of one batch size")
        return batch

    def runs(self, arm: str, column: str) -> scores.Runs:
        """A number of every run, by (B_p, n, seed), from the table of runs.

        Raises:
            MissingError: no table for this arm, or no such number in it.
        """
        known = self.arms.get(arm, {})
        if "study" in known:
            found = grid.of_problems(self.folder, _studies(known), known.get("on", arm), column)
            if not found:
                raise MissingError(f"{ARMS[arm][0]}: no finished run")
            return found
        if "table" not in known:
            raise MissingError(ARMS["problems"][0])
        study, name = known["table"]
        rows = [r for r in run_table() if (r["study"], r["arm"]) == (study, name)]
        found = {
            (int(r["problems_per_batch"]), int(r["rollouts_per_problem"]), int(r["seed"])): float(
                r[column]
            )
            for r in rows
        }
        if not any(map(math.isfinite, found.values())):
            raise MissingError(f"{ARMS['problems'][0]}: {column} was not kept")
        return found

    def end_contrast(self, a: str, b: str) -> Estimate:
        """Final score of arm b minus that of arm a, whatever their n, paired by (B_p, seed)."""
        both = [self.every(arm) for arm in (a, b)]
        alike = [[c.replace(rollouts_per_problem=1) for c in sweep] for sweep in both]
        return scores.contrast(*alike)

    def alike(self, reference: str, arm: str) -> list[Curve]:
        """Curves of an arm at the B_p of a reference arm."""
        b_p = {c.problems_per_batch for c in self.every(reference)}
        return [c for c in self.every(arm) if c.problems_per_batch in b_p]

    def rates(self) -> dict[int, dict[float, float]]:
        """Final score by learning rate, by n, at equal rollouts: of the arm `rates`.

        Raises:
            MissingError: no sweep of the rate, or no finished run of it.
        """
        known = self.arms.get("rates")
        if known is None:
            raise MissingError(ARMS["rates"][0])
        sweeps: dict[float, list[Curve]] = {}
        for rate in known["values"]:
            word = str(known["arm"]).format(rate)
            part = replace(self, arms={"rates": {**known, "arm": word}})
            with contextlib.suppress(MissingError):
                sweeps[float(rate)] = part.every("rates", on=known.get("on"))
        # A rate that another study has too may have gone on for longer there.
        end = min((c.rollouts_K[-1] for sweep in sweeps.values() for c in sweep), default=0.0)
        points: dict[int, dict[float, list[float]]] = {}
        for rate, sweep in sweeps.items():
            for (_, n, _), score in scores.final_scores([c.until(end) for c in sweep]).items():
                points.setdefault(n, {}).setdefault(rate, []).append(score)
        if not points:
            raise MissingError(f"{ARMS['rates'][0]}: no finished run")
        return {
            n: {rate: float(np.mean(scores)) for rate, scores in sorted(row.items())}
            for n, row in points.items()
        }

    def progress(self, needs: tuple[str, ...]) -> tuple[int, int] | None:
        """Finished and planned runs of the arms a claim needs; None where no plan is known."""
        there, planned = 0, 0
        for arm in needs:
            known = self._where(arm)
            if known is not None and "runs" in known:
                planned += known["runs"]
                there += self._finished(arm, known)
        return (there, planned) if planned else None

    def _at_main(self, arm: str, curves: list[Curve]) -> list[Curve]:
        if arm.endswith(("_all", "_splits")):
            return curves
        return [c for c in curves if c.problems_per_batch == main_bp(curves)]

    def _finished(self, arm: str, known: Mapping[str, Any]) -> int:
        """Runs of an arm in the folder, whatever they were judged on."""
        pattern = str(known.get("arm", ""))
        words = [pattern.format(value) for value in known.get("values", [""])]
        keys = [
            run.key for word in words for run in grid.of_study(self.folder, _studies(known), word)
        ]
        every = arm.endswith(("_all", "_splits"))
        return sum(
            (every or b_p == MAIN_BP) and n == known.get("n", n) for b_p, n, _ in keys
        )  # fmt: skip

    def cost(self, needs: tuple[str, ...]) -> str:
        """What the arms that are missing would take: runs, rollouts, core hours."""
        absent = [n for n in needs if n not in self.arms and n not in _OF_RUNS]
        absent = [n for n in absent if self._where(n) is None or "_" in n]
        shapes = [ARMS[n][1] for n in absent] or [ARMS[needs[0]][1]]
        runs = sum(n * bp * seeds for n, bp, seeds, _ in shapes)
        millions = sum(n * bp * seeds * m for n, bp, seeds, m in shapes)
        hours = millions * self.seconds_per_million / 3600
        price = "" if math.isnan(hours) else f", {hours:.2g} core hours"
        return f"{runs} runs, {millions:.0f}M rollouts{price}"


def _studies(known: Mapping[str, Any]) -> tuple[str, ...]:
    """The studies of the grid behind an arm."""
    study = known["study"]
    return (study,) if isinstance(study, str) else tuple(study)


def _sources(known: Mapping[str, Any]) -> tuple[str, ...]:
    """What the package reads of an arm: names, or files of this repository."""
    names = known["source"]
    names = [names] if isinstance(names, str) else names
    return tuple(name if ":" in name else str(ROOT / name) for name in names)


def main_bp(curves: list[Curve]) -> int:
    """32, or the B_p that has most n, or the largest of those."""
    values = _bps(curves)
    if MAIN_BP in values:
        return MAIN_BP
    return max(values, key=lambda b: (len(_n_at(curves, b)), b))


def _bps(curves: list[Curve]) -> list[int]:
    return sorted({c.problems_per_batch for c in curves})


def _n_at(curves: list[Curve], b_p: int) -> set[int]:
    return {c.rollouts_per_problem for c in curves if c.problems_per_batch == b_p}


@cache
def read(sources: tuple[str, ...], arm: str, metric: str, on: str | None) -> list[Curve]:
    """Curves of sources as the package reads them."""
    published = sources[0].startswith("published:")
    try:
        return load_curves(
            list(sources),
            metric=None if published else metric,
            problem_set=on,
            where=[f"arm={arm}"] if arm else (),
        )
    except InputError as error:
        raise MissingError(str(error)) from None


@cache
def run_table() -> list[dict[str, str]]:
    """The rows of studies/results/runs.csv."""
    with (ROOT / "studies" / "results" / "runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def columns(file: Path | None = None, folder: Path | None = None) -> list[Evidence]:
    """All columns, in the order of the file; `folder`: of the runs of the grid."""
    text = (file or Path(__file__).with_name("columns.toml")).read_text(encoding="utf-8")
    out = []
    for name, body in tomllib.loads(text).items():
        printed = body.pop("printed", {})
        arms = {k: v for k, v in body.items() if isinstance(v, dict)}
        unknown = sorted(set(arms) - set(ARMS))
        if unknown:
            raise InputError(
                f"an arm must be one of {', '.join(ARMS)}, but got {', '.join(unknown)} in "
                f"column {name}; correct columns.toml."
            )
        out.append(
            Evidence(
                name=name,
                title=body["title"],
                arms=arms,
                lacks=tuple(body.get("lacks", ())),
                seconds_per_million=body.get("seconds_per_million", math.nan),
                folder=folder or ROOT / "grid" / "runs",
                printed=printed,
            )
        )
    return out
