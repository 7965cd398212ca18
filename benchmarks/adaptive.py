"""Adaptive sweeps on planted worlds: rollouts spent, score lost, late winners lost.

    python benchmarks/adaptive.py ROWS.jsonl [--sweeps 8] [--seconds 600]     # resumes
    python benchmarks/adaptive.py ROWS.jsonl --table
    python benchmarks/adaptive.py REAL.jsonl --real    # replayed on the runs of the shipped grid
    python benchmarks/adaptive.py CURVE.jsonl --curve --sweeps 5    # what 15 to 60% would lose

Every sweep is run past the end that its bounds would set, and each of its looks is kept: where a
sweep with other bounds on its end would have stopped is read off the same rows. Its plan at a look
is the n of largest expected score at nine budgets; what that loses is taken from the truth. Beside
it, on the same curves: the full grid with three seeds, every n with one seed, three n with three
seeds, successive halving, and an oracle that trains each n as long as it is going to be best. The
first five sweeps of each world and noise have all of that; later ones end by the default tolerance
and stand beside the full grid alone.

`--real` replays sweeps on real runs: every study of the grid with five n or more, three times, each
of its seeds once the first. Truth is the mean of the three seeds, which the full grid has seen: it
is favoured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from grid_held_out import SWEEPS, name_of, sweep_of, truth_of
from numpy.typing import NDArray

from isocompute.design.adaptive import DRAWS, look_at
from isocompute.domain import Configuration, Curve
from isocompute.model import fit_posterior
from isocompute.model.posterior import Posterior
from isocompute.study.adaptive import Bounds, Grid
from isocompute.testing.families import FAMILIES
from isocompute.testing.planted import NOISE, WORLDS
from isocompute.testing.truth import World

FloatArray = NDArray[np.float64]

MADE_FOR = ("rising", "late_winner", "three_octaves", "equal", "meeting", "constant_small",
            "falling", "gompertz")  # fmt: skip
NOT_MADE_FOR = ("overfit", "no_order", "tent", "double_rise", "unbounded", "step_limited")
SEEDS = 3
SLICES = tuple(2.0**-k for k in range(5, -1, -1))
MOST, LEAST = 0.4, 0.0007  # of the full grid, and the tolerance, at which a sweep is left
BUDGETS = 9
LOST = 0.005  # of score: a winner so much better is lost
LATE = 4.0  # a winner that leads only in the last so-manieth of the budget comes late
WITH_OTHERS = 5  # sweeps of a world and noise: 210 in all
DEFAULT = 0.002  # of score: the tolerance of a study that names none
NEVER = 1e-9  # a tolerance that no sweep meets
CUTS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)  # of the full grid
TOLERANCES = (0.006, 0.004, 0.003, 0.002, 0.0015, 0.001, 0.0007)


class Sweep:
    """One sweep, all of whose runs are there, seen in parts.

    Args:
        top: rollouts of a whole run.
        curves: `SEEDS` runs of every configuration.
        configurations: J of them.
        score: true scores (J, X) at budgets (X,).
    """

    def __init__(
        self, top: float, curves: Sequence[Curve], configurations: Sequence[Configuration],
        score: Callable[[FloatArray], FloatArray],
    ) -> None:  # fmt: skip
        self.top, self.curves, self.configurations = top, list(curves), list(configurations)
        self.place = {c: j for j, c in enumerate(self.configurations)}
        self.x = np.linspace(np.log10(self.top * SLICES[0]), np.log10(self.top), BUDGETS)
        self.score_JX = score(10**self.x)
        fine = np.linspace(self.x[0], self.x[-1], 200)
        self.fine, self.best = fine, score(10**fine).argmax(axis=0)

    @classmethod
    def planted(cls, world: World, noise: str, seed: int) -> Sweep:
        """Of a planted world."""
        curves = world.sample(NOISE[noise], SEEDS, np.random.default_rng((7, seed)))
        truth = world.truth(NOISE[noise])
        of = [Configuration(a.problems_per_batch, a.rollouts_per_problem) for a in truth.arms]
        return cls(world.max_rollouts, curves, of, truth.score)

    @classmethod
    def real(cls, source: str, b_p: int | None, first: int) -> Sweep:
        """Of a study of the grid, its seeds in turn from `first` on."""
        curves = sweep_of(source, b_p)
        of = sorted({c.configuration for c in curves})
        turned = [c.replace(seed=((c.seed or 0) - first) % SEEDS) for c in curves]

        def score(budgets: FloatArray) -> FloatArray:
            found = [truth_of(curves, float(budget)) for budget in budgets]
            return np.array([[one[c.rollouts_per_problem] for one in found] for c in of])

        return cls(float(min(c.rollouts_K[-1] for c in curves)), turned, of, score)

    def late(self) -> bool:
        """Whether the winner at the target leads only in the last quarter of the budget."""
        before = self.best[self.fine < self.x[-1] - np.log10(LATE)]
        return not bool((before == self.best[-1]).any())

    def seen(self, until: Mapping[Configuration, Sequence[float]]) -> list[Curve]:
        """Curves of the first seeds, each up to so many rollouts."""
        return [
            c.until(until[c.configuration][c.seed or 0] * (1 + 1e-9))
            for c in self.curves
            if (c.seed or 0) < len(until.get(c.configuration, ()))
        ]

    def lost(
        self, fit: Posterior, among: Mapping[Configuration, Sequence[float]] | None = None
    ) -> list[float]:
        """What the plan of a fit loses at each budget; `among`: of those trained so far only."""
        mean_JX = fit.scores(self.x).mean(axis=0)
        if among is not None:
            ends = np.log10([max(among[c]) for c in fit.configurations])
            mean_JX = np.where(self.x <= ends[:, None] + 0.02, mean_JX, -1.0)
        chosen = mean_JX.argmax(axis=0)
        rows = [self.place[fit.configurations[j]] for j in chosen]
        mine = self.score_JX[rows, np.arange(BUDGETS)]
        return [round(float(v), 6) for v in self.score_JX.max(axis=0) - mine]

    def planned(
        self, until: Mapping[Configuration, Sequence[float]], *, knows: bool = False
    ) -> dict[str, Any]:
        """Share of the full grid spent, and what the plan loses."""
        spent = sum(sum(each) for each in until.values())
        fit = fit_posterior(self.seen(until), draws=DRAWS)
        whole = SEEDS * self.top * len(self.configurations)
        return {"share": round(spent / whole, 4), "lost": self.lost(fit, until if knows else None)}

    def adaptive(self, tolerance: float, most: float = MOST) -> list[dict[str, Any]]:
        """Every look: share spent so far, what it expects to lose, what it loses."""
        whole = SEEDS * self.top * len(self.configurations)
        grid = Grid(
            steps={c: int(self.top // c.batch_size) for c in self.configurations},
            seeds=SEEDS, slices=SLICES,
            bounds=Bounds(target=self.top, spend=most * whole, tolerance=tolerance),
        )  # fmt: skip
        look, found = grid.started(None), []
        assert look is not None
        while not look.has_ended:
            now = look.of_configurations
            fit = fit_posterior(
                self.seen({c: d.rollouts for c, d in now.items()}),
                draws=DRAWS,
                seed=look.number + 1,
            )
            look = look_at(grid, fit, look)
            numbers = look.of_sweep.numbers
            found.append({
                "share": round(grid.spent(now) / whole, 4), "lost": self.lost(fit),
                "at_target": numbers["loss_at_target"], "on_path": numbers["loss_on_path"],
                "foretold": bool(numbers["foretold"]),
                "frozen": sum(d.is_frozen for d in look.of_configurations.values()),
            })  # fmt: skip
        return found

    def full(self) -> dict[str, dict[str, Any]]:
        """The grid that every share is a share of."""
        return {"full": self.planned({c: [self.top] * SEEDS for c in self.configurations})}

    def others(self) -> dict[str, dict[str, Any]]:
        """The comparators."""
        of = self.configurations
        coarse = [of[0], of[len(of) // 2], of[-1]]
        cut = min(0.3 * len(of) / len(coarse), 1.0) * self.top
        return {
            "one_seed": self.planned({c: [self.top] for c in of}),
            "coarse": self.planned({c: [cut] * SEEDS for c in coarse}),
            "halving": self.planned(self.halved()),
            "oracle": self.planned(self.dominated(), knows=True),
        }

    def halved(self) -> dict[Configuration, Sequence[float]]:
        """Successive halving: at each doubling the better half by mean score goes on."""
        until: dict[Configuration, Sequence[float]] = {}
        left = list(self.configurations)
        for share in SLICES[1:]:
            rung = share * self.top
            until |= {c: [rung] * SEEDS for c in left}
            ends: dict[Configuration, list[float]] = {c: [] for c in left}
            for curve in self.seen({c: [rung] * SEEDS for c in left}):
                ends[curve.configuration].append(float(curve.score_K[-1]))
            order = sorted(left, key=lambda c: (-float(np.mean(ends[c])), c))
            left = order[: -(-len(left) // 2)] if len(left) > 1 else left
        return until

    def dominated(self) -> dict[Configuration, Sequence[float]]:
        """Each n until it is never best again."""
        until: dict[Configuration, Sequence[float]] = {}
        for j, c in enumerate(self.configurations):
            at = self.fine[self.best == j]
            end = 10 ** float(at.max()) if len(at) else SLICES[0] * self.top
            until[c] = [min(end, self.top)] * SEEDS
        return until


Case = tuple[str, str, int, Callable[[], Sweep]]  # world, noise, seed, how to make it


def planted_cases(sweeps: int) -> Iterator[Case]:
    """Planted sweeps, seed by seed."""
    worlds = {**WORLDS, **FAMILIES}
    for seed in range(sweeps):
        for noise in NOISE:
            for name in MADE_FOR + NOT_MADE_FOR:
                yield name, noise, seed, partial(Sweep.planted, worlds[name], noise, seed)


def real_cases() -> Iterator[Case]:
    """Studies of the grid, each of their seeds once the first."""
    for first in range(SEEDS):
        for source, b_p in SWEEPS:
            yield name_of(source, b_p), "real", first, partial(Sweep.real, source, b_p, first)


def run(path: Path, cases: Iterable[Case], seconds: float, curve: bool) -> None:
    """Append sweeps that the file lacks until the time is over; `curve`: each on to its end."""
    done, began = {(r["world"], r["noise"], r["seed"]) for r in rows_of(path)}, time.monotonic()
    for name, noise, seed, made in cases:
        if (name, noise, seed) in done:
            continue
        if time.monotonic() - began > seconds:
            return
        sweep, every = made(), seed < WITH_OTHERS and not curve
        looks = (sweep.adaptive(NEVER, CUTS[-1]) if curve else
                 sweep.adaptive(LEAST if every else DEFAULT))  # fmt: skip
        row = {"world": name, "noise": noise, "seed": seed, "late": sweep.late(), "looks": looks,
               "others": sweep.full() | (sweep.others() if every else {})}  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """What was run; a line that was cut off is run again."""
    if not path.exists():
        return []
    text = path.read_text()
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def ended(row: Mapping[str, Any], tolerance: float, most: float) -> Mapping[str, Any]:
    """The look at which a sweep with this tolerance, and so much to spend, would have ended."""
    looks = [one for one in row["looks"] if one["share"] <= most + 1e-9]
    enough = (
        k for k in looks
        if not k["foretold"] and max(k["at_target"], k["on_path"]) < tolerance
    )  # fmt: skip
    found: Mapping[str, Any] = next(enough, looks[-1])
    return found


def table(rows: Sequence[Mapping[str, Any]], tolerance: float = DEFAULT, most: float = 0.4) -> None:
    """Print the figures: means over worlds of the means over sweeps, paired with the full grid."""
    names = list(dict.fromkeys(r["world"] for r in rows))
    print(f"{len(rows)} sweeps, tolerance {tolerance:g}, at most {most:.0%} spent\n")
    print("| world | sweeps | share | most | path, above full (se) | target, above full | "
          "path: full | one seed | coarse | halving | oracle |\n|" + "---|" * 11)  # fmt: skip
    means = []
    for name in names:
        of = [r for r in rows if r["world"] == name]
        means.append(_figures(of, [ended(r, tolerance, most) for r in of]))
        m = means[-1]
        print(f"| {name} | {len(of)} | {m['share']:.0%} | {m['most']:.0%} | {m['path']:+.4f} "
              f"({m['se']:.4f}) | {m['target']:+.4f} | {m['full']:.4f} | "
              + " | ".join(f"{m[k]:+.4f}" for k in OTHERS) + " |")  # fmt: skip
    se = np.sqrt(sum(m["se"] ** 2 for m in means)) / len(means)
    mean = {k: float(np.mean([m[k] for m in means])) for k in means[0]}
    print(f"| mean of worlds | {len(rows)} | {mean['share']:.0%} | {mean['most']:.0%} | "
          f"{mean['path']:+.4f} ({se:.4f}) | {mean['target']:+.4f} | {mean['full']:.4f} | "
          + " | ".join(f"{mean[k]:+.4f}" for k in OTHERS) + " |")  # fmt: skip
    for k in OTHERS:
        share = np.mean([r["others"][k]["share"] for r in rows if k in r["others"]])
        print(f"{k}: {share:.0%} of the full grid")
    late = [r for r in rows if r["late"]]
    gone = sum(ended(r, tolerance, most)["lost"][-1] > LOST for r in late)
    full = sum(r["others"]["full"]["lost"][-1] > LOST for r in late)
    print(f"winner comes late: {len(late)} sweeps, lost by more than {LOST}: {gone}, by the full "
          f"grid: {full}\n")  # fmt: skip


def print_curve(rows: Sequence[Mapping[str, Any]]) -> None:
    """What sweeps would have lost, above the full grid, had so much been all they might spend."""
    print("| may spend | spent | path (se) | target | worst world, path |\n|---|---|---|---|---|")
    for most in CUTS:
        of: dict[str, list[tuple[float, FloatArray]]] = {}
        for r in rows:
            look = ended(r, 0.0, most)
            above = np.subtract(look["lost"], r["others"]["full"]["lost"])
            of.setdefault(r["world"], []).append((look["share"], above))
        spent = np.mean([np.mean([share for share, _ in each]) for each in of.values()])
        path = [float(np.mean([above for _, above in each])) for each in of.values()]
        target = np.mean([np.mean([above[-1] for _, above in each]) for each in of.values()])
        se = np.sqrt(sum(np.var([a.mean() for _, a in each], ddof=1) / len(each)
                         for each in of.values())) / len(of)  # fmt: skip
        print(f"| {most:.0%} | {spent:.0%} | {np.mean(path):+.4f} ({se:.4f}) | {target:+.4f} | "
              f"{max(path):+.4f} |")  # fmt: skip


OTHERS = ("one_seed", "coarse", "halving", "oracle")


def _figures(
    rows: Sequence[Mapping[str, Any]], ends: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    full = np.array([r["others"]["full"]["lost"] for r in rows])
    mine = np.array([e["lost"] for e in ends])
    above = (mine - full).mean(axis=1)
    shares = [e["share"] for e in ends]
    return {
        "share": float(np.mean(shares)), "most": max(shares), "path": float(above.mean()),
        "se": float(above.std(ddof=min(len(above) - 1, 1)) / np.sqrt(len(above))),
        "target": float((mine - full)[:, -1].mean()), "full": float(full.mean()),
        **{
            k: float(np.mean([
                np.subtract(r["others"][k]["lost"], r["others"]["full"]["lost"])
                for r in rows
                if k in r["others"]
            ]))
            for k in OTHERS
        },
    }  # fmt: skip


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--sweeps", type=int, default=8, help="of a world and noise")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--real", action="store_true", help="studies of the grid instead")
    parser.add_argument("--curve", action="store_true", help="loss against what may be spent")
    options = parser.parse_args()
    if not options.table:
        cases = real_cases() if options.real else planted_cases(options.sweeps)
        run(options.rows, cases, options.seconds, options.curve)
    rows = rows_of(options.rows)
    if options.curve:
        print_curve(rows)
    elif rows:
        table(rows)
        rows = [r for r in rows if r["seed"] < WITH_OTHERS]
        print("| tolerance | share | path, above full | target, above full |\n|---|---|---|---|")
        for tolerance in TOLERANCES:
            names = sorted({r["world"] for r in rows})
            each = [_figures(of, [ended(r, tolerance, MOST) for r in of]) for name in names
                    for of in [[r for r in rows if r["world"] == name]]]  # fmt: skip
            share, path, target = (np.mean([m[k] for m in each]) for k in
                                   ("share", "path", "target"))  # fmt: skip
            print(f"| {tolerance:g} | {share:.0%} | {path:+.4f} | {target:+.4f} |")


if __name__ == "__main__":
    main()
