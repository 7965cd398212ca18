"""The page: judged figures first, then every cell, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from validation.cells import MAIN, OTHERS, STOPPED
from validation.figures import Cells, Summary, pooled
from validation.judge import Judged, Panels, judged, main_of, worlds_in
from validation.rows import BINS, FACTORS, WHERE


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown of one table; nothing where it has no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines, ""])


def verdict(line: Judged) -> str:
    return "-" if line.passed is None else ("pass" if line.passed else "FAIL")


def judged_table(lines: Sequence[Judged], failures_only: bool = False) -> str:
    """Every judged figure, or those that fail."""
    passed = sum(line.passed is True for line in lines)
    count = sum(line.passed is not None for line in lines)
    shown = [line for line in lines if line.passed is False or not failures_only]
    rows = [
        (x.name, x.target, x.figure.percent if in_percent(x) else str(x.figure),
         str(x.figure.sweeps), verdict(x))
        for x in shown
    ]  # fmt: skip
    head = ("figure", "target", "found", "sweeps", "")
    return f"{passed} of {count} judged figures met.\n\n" + table(head, rows)


def in_percent(line: Judged) -> bool:
    words = ("loss ", "losses ", "width")
    return not line.name.startswith("panels") and not any(word in line.name for word in words)


def worlds_table(cells: Cells) -> str:
    """Per world, three noises pooled: curves, plans, refusals."""
    rows = []
    for world in worlds_in(cells, "sweep"):
        mine = main_of(cells, world)
        if not mine.sweeps:
            continue
        rows.append([
            world,
            mine.figure("curve inside").percent,
            *(str(mine.loss(f)) for f in FACTORS),
            *(mine.figure(f"held {f}x").percent for f in FACTORS),
            *(f"{mine.figure(f'width {f}x').value:.3f}" for f in FACTORS),
            *(f"{mine.figure(f'{rule} 4x').value:.4f}" for rule in ("largest n", "best so far")),
            mine.figure("claimed").percent,
            " ".join(f"{100 * mine.figure(f'refused {f}x').value:.0f}" for f in FACTORS),
            f"{mine.figure('stop').value:.2f}",
            mine.figure("missed and stopped").percent,
            str(mine.sweeps),
        ])  # fmt: skip
    head = (
        "world", "curves 90", *(f"loss {f}x" for f in FACTORS), *(f"held 95 {f}x" for f in FACTORS),
        *(f"width {f}x" for f in FACTORS), "largest n 4x", "best so far 4x", "rise claimed",
        "refused 1x 4x 10x (%)", "stop", "missed, stopped", "sweeps",
    )  # fmt: skip
    return table(head, rows)


def conditions_table(cells: Cells) -> str:
    """Per condition, every world pooled."""
    rows = []
    for condition in (*MAIN, *OTHERS):
        mine = pooled(cells, lambda c, k=condition: c.part == "sweep" and c.condition == k)
        if mine.sweeps:
            rows.append([
                condition,
                *(mine.figure(f"curve {w}").percent for w in WHERE),
                *(str(mine.loss(f)) for f in FACTORS),
                *(mine.figure(f"held {f}x").percent for f in FACTORS),
                chance_off(mine, "p 0.90-1.00"), chance_off(mine, "p 0.70-0.90"),
                chance_off(mine, "p beyond 0.90-1.00"),
                str(mine.sweeps),
            ])  # fmt: skip
    head = (
        "condition", *(f"curves {w}" for w in WHERE), *(f"loss {f}x" for f in FACTORS),
        *(f"held 95 {f}x" for f in FACTORS), "P 0.9-1 said, true", "P 0.7-0.9", "P 0.9-1 at 4x",
        "sweeps",
    )  # fmt: skip
    return table(head, rows)


def chance_off(mine: Summary, name: str) -> str:
    """Said and true."""
    said, off = mine.figure(f"{name} said"), mine.figure(f"{name} off")
    return "-" if not said.sweeps else f"{said.value:.2f}, {said.value + off.value:.2f}"


def chances_table(cells: Cells) -> str:
    """Said and true chances of being best, by bins."""
    rows = []
    groups = {"three seeds": MAIN} | {c: (c,) for c in OTHERS}
    for group, conditions in groups.items():
        mine = pooled(cells, lambda c, k=conditions: c.part == "sweep" and c.condition in k)
        if mine.sweeps:
            for name in ("p", "p beyond"):
                bins = pairwise(BINS)
                shown = [chance_off(mine, f"{name} {a:.2f}-{b:.2f}") for a, b in bins]
                rows.append([group, "4x" if "beyond" in name else "inside", *shown])
    bins = pairwise(BINS)
    return table(("sweeps", "at", *(f"{a:g}-{b:g}" for a, b in bins)), rows)


def surfaces_table(cells: Cells) -> str:
    """The best n of smooth surfaces."""
    rows = []
    for world in worlds_in(cells, "surface"):
        mine = pooled(cells, lambda c, w=world: c.part == "surface" and c.world == w)
        rows.append([
            world,
            *(mine.figure(f"best n held {w}").percent for w in WHERE),
            *(f"{mine.figure(f'best n width {w}').value:.2f}" for w in WHERE),
            *(f"{mine.figure(f'best n bias {w}').value:+.2f}" for w in WHERE),
            *(mine.figure(f"curve {w}").percent for w in WHERE),
            str(mine.sweeps),
        ])  # fmt: skip
    columns = [f"{what} {w}" for what in ("90% holds", "width", "bias", "curves 90") for w in WHERE]
    return table(("surface", *columns, "sweeps"), rows)


def rises_table(cells: Cells) -> str:
    """Claims of a rise at the whole budget."""
    rows = []
    for world in worlds_in(cells, "null"):
        mine = pooled(cells, lambda c, w=world: c.part == "null" and c.world == w)
        shown = [mine.figure(name).percent for name in ("claimed", "bound holds")]
        rows.append([world, *shown, str(mine.sweeps)])
    return table(("world", "rise claimed", "95% bound holds", "sweeps"), rows)


def few_table(cells: Cells) -> str:
    """Sweeps of one or two n."""
    rows = []
    there = {c.world for c in cells if c.part == "few"}
    for world in sorted(there, key=lambda name: name.split("@")[::-1]):
        mine = pooled(cells, lambda c, w=world: c.part == "few" and c.world == w)
        rows.append([
            *reversed(world.split("@")),
            *(
                mine.figure(f"few {kind} {where}").percent
                for kind in ("tested", "beside")
                for where in ("end", "4x")
            ),
            *(str(mine.figure(f"over keeping {f}x")) for f in FACTORS),
            *(f"{mine.figure(f'moved {f}x').value:.2f}" for f in FACTORS),
            *(mine.figure(f"held {f}x").percent for f in FACTORS),
            f"{mine.figure('refused 4x').value:.2f}", str(mine.sweeps),
        ])  # fmt: skip
    head = (
        "n", "world", "tested end", "tested 4x", "beside end", "beside 4x",
        *(f"over keeping {f}x" for f in FACTORS), *(f"moved {f}x" for f in FACTORS),
        *(f"held 95 {f}x" for f in FACTORS), "refused 4x", "sweeps",
    )  # fmt: skip
    return table(head, rows)


def stopped_table(cells: Cells) -> str:
    """Losers stopped early."""
    rows = []
    for world in STOPPED:
        mine = pooled(cells, lambda c, w=world: c.part == "stopped" and c.world == w)
        if mine.sweeps:
            names = ("stopped within half an octave", "stopped lost", "stopped spent")
            shown = [mine.figure(name).percent for name in names]
            off = mine.figure("stopped off")
            rows.append([world, *shown, str(off), str(mine.sweeps)])
    head = (
        "world", "best n within half an octave", "budgets lost", "rollouts spent", "octaves off",
        "sweeps",
    )  # fmt: skip
    return table(head, rows)


def panels_table(panels: Panels) -> str:
    """All choices on published panels, and what simple rules would have lost."""
    rows = []
    for row in panels:
        told = "loss" in row
        rows.append([
            row["panel"], f"{row['cut']:g}", f"{row['budget'] / 1e6:.2f}M", str(row["best"]),
            str(row.get("chosen", "-")),
            f"{row['loss']:.4f}" if told else "-",
            f"{row['loss by best dot']:.4f}" if told else "-",
            f"{row['score']:.3f} ({row['low']:.3f} to {row['high']:.3f})" if told else "-",
            f"{row['true']:.3f}" if told else "-",
            ("yes" if row["held"] else "no") if told else "-",
            row["verdict"],
            *(f"{loss:.4f}" for loss in row["rules"].values()),
        ])  # fmt: skip
    if not rows:
        return ""
    head = ("panel", "cut", "budget", "best n", "chosen", "loss", "by best dot", "named score",
            "true", "held", "verdict", *panels[0]["rules"])  # fmt: skip
    told = [row for row in panels if "loss" in row]
    mean = sum(row["loss"] for row in told) / max(len(told), 1)
    rules = {
        rule: sum(row["rules"][rule] for row in panels) / len(panels) for rule in panels[0]["rules"]
    }
    line = ", ".join([f"plan {mean:.4f}", *(f"{k} {v:.4f}" for k, v in rules.items())])
    return table(head, rows) + f"\nMean losses: {line}.\n"


def times_line(cells: Cells) -> str:
    """What it cost."""
    everything = pooled(cells, lambda _: True)
    fit = everything.figure("fit seconds")
    spent = sum(s.moments.get("seconds", [0.0, 0.0])[1] for s in cells.values())
    crashed = everything.figure("crashed")
    lost = f"; {crashed.sweeps} CRASHED" if crashed.sweeps else ""
    return (
        f"{everything.sweeps} sweeps; {fit.value:.3f} s of CPU a fit; "
        f"{spent / 3600:.2f} core hours in all{lost}.\n"
    )


def whys(cells: Cells) -> str:
    """Reasons of sweeps without a fit, most frequent first."""
    every = pooled(cells, lambda _: True).why
    lines = sorted(every.items(), key=lambda item: -item[1])[:8]
    return "".join(f"- {times} times: {why}\n" for why, times in lines)


def page(name: str, cells: Cells, today: Cells, panels: Panels, before: Panels = ()) -> str:
    """Every table of one estimator."""
    sections: Mapping[str, str] = {
        "Judged": judged_table(judged(cells, today, panels, before)),
        "Worlds (three noises)": worlds_table(cells),
        "Ways to see them (all worlds)": conditions_table(cells),
        "Chances of being best: said, true": chances_table(cells),
        "Best n of smooth surfaces": surfaces_table(cells),
        "Claimed rises": rises_table(cells),
        "One or two n": few_table(cells),
        "Losers stopped early": stopped_table(cells),
        "Published panels": panels_table(panels),
        "No fit": whys(cells),
    }
    shown = [f"### {head}\n\n{text}" for head, text in sections.items() if text]
    return f"## {name}\n\n{times_line(cells)}\n" + "\n".join(shown)
