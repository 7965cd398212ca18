"""Write docs/warnings.md from the table of notices, so that page and package cannot disagree.

Run: python scripts/make_warnings_docs.py [FILE]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from isocompute.domain.notices import TABLES

HEAD = """# Warnings and their codes

<!-- Written by scripts/make_warnings_docs.py; edit src/isocompute/domain/notices.py instead. -->

Codes are stable: scripts may rely on them. A warning never changes a number; it says what limits
its meaning. At level `stop` there is no plan, `caution` lowers the confidence, `note` is good to
know. "…" stands for a figure or a name; what to do is in bold.
"""


def warnings_page() -> str:
    """The page as text."""
    lines = [HEAD]
    for heading, table in TABLES.items():
        lines += [f"## {heading}", ""]
        for code, (level, text, remedy) in table.items():
            lines.append(f"- `{code}` ({level}): {_cell(text)} **{_cell(remedy)}**")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return re.sub(r"\{[^}]*\}", "…", text.replace("{takes}", ""))


if __name__ == "__main__":
    page = Path(__file__).parents[1] / "docs" / "warnings.md"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else page
    target.write_text(warnings_page(), encoding="utf-8")
