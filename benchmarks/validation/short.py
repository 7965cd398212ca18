"""The page in five lines for a user, read off its own tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import mean

Row = dict[str, str]
# Judged figures in plain words; another one keeps its name.
_SAID = {
    "panels: mean loss": "plans on the published curves lose {found}, sought {target}",
    "stopped early: best n within half an octave": "where losers are stopped early, {found}% of "
    "best n stay within half an octave, sought {target}%",
    "named score off by more than 0.05: stopped": "of scores that are off by more than 0.05, "
    "{found}% come with `stop`, sought {target}%",
}


def short_lines(page: str) -> str:
    """How often intervals hold, what plans lose, what failed: from the tables of the whole page."""
    answers = page.partition("<!-- answers -->")[2].partition("<!-- /answers -->")[0]
    judged, worlds = _table(answers, "### Judged"), _table(answers, "### Worlds")
    panels = _table(answers, "### Published panels")
    real = _table(page.partition("<!-- grid -->")[2], "")
    held = [[_first(row[f"held 95 {x}x"]) for row in worlds] for x in (1, 4, 10)]
    lost = [mean(_first(row[f"loss {x}x"]) for row in worlds) for x in (1, 4, 10)]
    quarter = next(row for row in real if (row["seeds"], row["seen"]) == ("3", "1/4"))
    failed = [row for row in judged if row[""] == "FAIL"]
    wide = [row for row in failed if "holds" in row["figure"] and _first(row["found"]) > 90]
    other = [
        _SAID.get(row["figure"], row["figure"] + " is {found}, sought {target}").format(
            found=_plain(row["found"]), target=row["target"]
        )
        for row in failed if row not in wide
    ]  # fmt: skip
    of = [mean(float(row[name]) for row in panels)
          for name in ("loss", "best so far", "next n after the leader")]  # fmt: skip
    counted = sum(row[""] in ("pass", "FAIL") for row in judged)
    return "\n".join([
        "- **Intervals.** The 95% interval of the score that a plan names holds the truth in "
        f"{_each(held, mean)}% of simulated sweeps, at 1, 4 and 10 times their data; in the "
        f"worst world in {_each(held, min)}%: trust it less, the farther it goes.",
        "- **Plans** lose "
        f"{' and '.join(f'{x:.4f}' for x in lost[:2])} of score to the best n at 1 and 4 times the "
        f"data, {lost[2]:.4f} at 10 times.",
        f"- **Real sweeps of a small transformer**, 16 on toy problems, seen for a quarter: plans "
        f"lose {quarter['plan loses']}, the n that led so far {quarter['best so far']}, the next "
        f"larger n than that {quarter['next n after the leader']}, n = 64 always "
        f"{quarter['n = 64 always']}, the largest n {quarter['largest n']}; "
        f"{quarter['held']} of their 95% intervals hold.",
        f"- **Published curves of 7B models**, {len(panels)} cuts: plans lose {of[0]:.4f}, the n "
        f"that led so far {of[1]:.4f}; the next larger n than that loses less, {of[2]:.4f}.",
        f"- **What failed**: {len(failed)} of {counted} judged figures. {len(wide)} are intervals "
        f"wider than they need be. The others: {'; '.join(other) or 'none'}.",
        "",
    ])  # fmt: skip


def with_short(page: str) -> str:
    """The page with these lines between `<!-- short -->` and `<!-- /short -->`, if it has them."""
    start, end = "<!-- short -->\n", "<!-- /short -->"
    if start not in page or "<!-- answers -->" not in page or "<!-- grid -->" not in page:
        return page
    head, rest = page.split(start, 1)
    return head + start + short_lines(page) + end + rest.split(end, 1)[1]


def _table(text: str, head: str) -> list[Row]:
    """Rows of the first table after a heading, by column."""
    lines = text[text.index(head):].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    cells = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        cells.append([cell.strip() for cell in line.strip()[1:-1].split("|")])
    names, _, *rows = cells
    return [dict(zip(names, row, strict=True)) for row in rows]


def _first(cell: str) -> float:
    """Its value, without the standard error."""
    return float(cell.split()[0])


def _plain(cell: str) -> str:
    return re.sub(r" ±.*", "", cell)


def _each(values: Sequence[Sequence[float]], of: Callable[[Sequence[float]], float]) -> str:
    said = [f"{of(one):.0f}" for one in values]
    return f"{', '.join(said[:-1])} and {said[-1]}"
