"""What the published method says of the published panels, by bin width, beside what was printed.

Run it: `python benchmarks/paper_method.py` (a few seconds).
"""

from __future__ import annotations

from isocompute.answers.paper import PaperFit, paper_fit, printed_law
from isocompute.importers import load_published

WIDTHS = (0.0005, 0.001, 0.002, 0.004, 0.008)
BUDGETS = (0.5e6, 1e6, 2e6, 4e6)


def line(name: str, path: list[tuple[int, float | None]], law: list[float]) -> str:
    """Each n with the budget (million rollouts) up to which it leads, and n of the law."""
    steps = " ".join(f"{n} to {x / 1e6:.2f}," if x else f"{n}" for n, x in path)
    return f"{name:<18} {steps:<72} {' '.join(f'{n:>4.0f}' for n in law)}"


def path_of(fit: PaperFit) -> list[tuple[int, float | None]]:
    ends = [change["at"] for change in fit.crossovers]
    n = (stretch["rollouts_per_problem"] for stretch in fit.frontier)
    return list(zip(n, [*ends, None], strict=True))


def main() -> None:
    budgets = " ".join(f"{x / 1e6:>4g}" for x in BUDGETS)
    for panel in ("easy", "hard", "easy-bp64", "easy-bp256", "hard-bp64", "hard-bp256"):
        source = f"published:qwen2.5-7b-{panel}"
        print(f"\n{panel:<18} {'n leads up to, million rollouts':<72} {budgets}  (law, by budget)")
        printed = printed_law(source)
        if printed is not None:
            law = [float(printed.law.predict(x)) for x in BUDGETS]
            print(line("as printed", list(printed.frontier), law))
        curves = load_published(f"qwen2.5-7b-{panel}")
        for width in WIDTHS:
            fit = paper_fit(curves, bin_width=width)
            law = [float(fit.law.predict(x)) for x in BUDGETS]
            print(line(f"bins of {width:g}", path_of(fit), law))


if __name__ == "__main__":
    main()
