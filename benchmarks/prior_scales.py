"""What the shipped sweeps say of the prior's scales, and what the prior expects before any data.

    python benchmarks/prior_scales.py docs/images/prior.png

Prints, for every published panel, the posterior medians of the scales beside the prior's medians
(`isocompute.model.prior.SCALES`); how far what is guessed of the n beside a lone one lies from what
the whole sweep says of it; and draws sweeps from the prior alone: what the model would believe of
seven values of n before seeing one score.

Shape legend: J values of n, X budgets, D draws.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from isocompute.answers.fit import fit_sweep
from isocompute.model import fit_posterior
from isocompute.model.form import Form
from isocompute.model.prior import BUMP, SCALES, SHARED, Prior
from isocompute.sources import load_curves

PANELS = tuple(
    f"published:qwen2.5-7b-{kind}{of}"
    for kind in ("easy", "hard")
    for of in ("", "-bp64", "-bp256")
)
GRID = tuple(f"grid:{name}" for name in ("easy", "hard", "hard-b1024", "tri", "long"))
PARAMETERS = ("ceiling", "slope", "midpoint")
KINDS = ("line in n", "smooth", "nugget")
N = (8, 16, 32, 64, 128, 256, 512)


def of_panels() -> str:
    """The scales of each panel, and their geometric mean, as a Markdown table."""
    found = []
    columns = [f"{p}: {k}" for p in PARAMETERS for k in KINDS]
    lines = ["| panel | " + " | ".join(columns) + " | form |"]
    lines.append("|---" * (len(PARAMETERS) * len(KINDS) + 2) + "|")
    for name in PANELS:
        part = fit_posterior(load_curves(name)).parts[0]
        scales = np.exp(np.median(part.log_scales, axis=0))
        row = [scales[4 * i + k] for i in range(3) for k in (0, 2, 3)] + [scales[-1]]
        found.append(row)
        lines.append(f"| {name.removeprefix('published:')} | " + cells(row) + " |")
    lines.append("| geometric mean | " + cells(np.exp(np.log(found).mean(axis=0))) + " |")
    prior = [getattr(s, k) for s in SCALES[:3] for k in ("line_n", "smooth", "nugget")] + [BUMP]
    return "\n".join([*lines, "| prior's median | " + cells(prior) + " |"])


def of_neighbours() -> str:
    """Each n of a sweep fitted alone: the n beside it as guessed, and as the whole sweep has it.

    Differences of score from the lone n: root mean squares, and the median of the spread said.
    """
    named = ("sweeps", "octaves", "pairs", "spread", "differ by", "off by", "in spreads", "in 90%")
    lines = ["| " + " | ".join(named) + " |", "|---" * len(named) + "|"]
    for name, sources in (("published", PANELS), ("the package's own", GRID)):
        found = [pair for source in sources for pair in neighbours_of(source)]
        for octaves in (1, 2):
            said, spread, true = np.array([row[1:] for row in found if row[0] == octaves]).T
            off = (true - said) / spread
            squares = (float(np.sqrt(np.mean(v**2))) for v in (true, true - said, off))
            differ, by, times = squares
            held = np.mean(np.abs(off) < 1.645)  # of a normal
            row = [name, octaves, len(said), f"{np.median(spread):.3f}", f"{differ:.3f}",
                   f"{by:.3f}", f"{times:.2f}", f"{held:.0%}"]  # fmt: skip
            lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def neighbours_of(source: str) -> list[tuple[int, float, float, float]]:
    """Of each pair the octaves apart, mean and spread of the guess, and what it is."""
    curves, out = load_curves(source), []
    whole = fit_sweep(curves)
    for own in whole.configurations:
        alone = fit_sweep([c for c in curves if c.configuration == own])
        for other in whole.configurations:
            apart = abs(np.log2(other.rollouts_per_problem / own.rollouts_per_problem))
            if other.problems_per_batch != own.problems_per_batch or apart not in (1, 2):
                continue
            x = min(whole.trained(own), whole.trained(other))
            guess_D, seen_D = (
                np.diff(fit.scores_of([own, other], x))[:, 0] for fit in (alone, whole)
            )
            spread = float(np.hypot(guess_D.std(), seen_D.std()))
            out.append((int(apart), float(guess_D.mean()), spread, float(seen_D.mean())))
    return out


def cells(row: object) -> str:
    return " | ".join(f"{value:.3f}" for value in np.asarray(row))


def prior_draws(draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Budgets (X,) in log10 and scores (D, J, X) from the prior of a sweep of seven n."""
    form, x = Form(), np.linspace(4.0, 7.0, 61)
    own = (0.0, np.log(2.5), 5.5)
    shared = (np.log(0.4 / 0.6), SHARED[0][0], SHARED[1][0], *[0.0] * (form.shared - 3))
    prior = Prior(np.log2(N), np.full(len(N), 5.0), np.array([*own, *shared]), 0.05, form.own)
    covariance = prior.covariance(prior.sample(draws, rng))
    p = prior.mean() + covariance.normal(draws, rng, np.arange(draws))
    curves = p.T[: 3 * len(N)].reshape(3, len(N), draws)
    return x, form.value(curves, p.T[3 * len(N) :], x[None]).transpose(2, 0, 1)


def figure() -> Figure:
    x, score = prior_draws(400, np.random.default_rng(0))
    out = Figure(figsize=(10, 5.2), layout="constrained")
    axes = out.subplots(2, 3, sharex=True, sharey=True)
    for k, panel in enumerate(axes.ravel()):
        if k < 5:
            for j, n in enumerate(N):
                panel.plot(10**x, score[k, j], color=(0.1, 0.3, 0.3 + 0.1 * j), label=f"n = {n}")
            panel.set_title(f"one sweep drawn from the prior ({k + 1})", fontsize=9)
        else:
            for level in (0.95, 0.5):
                low, high = np.quantile(score[:, 3], ((1 - level) / 2, (1 + level) / 2), axis=0)
                panel.fill_between(10**x, low, high, alpha=0.3, color="tab:blue", lw=0)
            panel.set_title("n = 64: 50% and 95% of all draws", fontsize=9)
        panel.set_xscale("log")
    axes[0, 0].legend(fontsize=7)
    out.supxlabel("rollouts")
    out.supylabel("score")
    return out


def main() -> int:
    print(of_panels(), of_neighbours(), sep="\n\n")
    if len(sys.argv) > 1:
        drawn = io.BytesIO()
        figure().savefig(drawn, dpi=110)
        # A palette takes a fifth of the room; few lines have more colours.
        Image.open(drawn).convert("RGB").quantize(48).save(Path(sys.argv[1]), optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
