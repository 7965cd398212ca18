"""How sheets write numbers in a country of their own: units below the header, dots in thousands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isocompute.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_COUNTS = ("rollouts", "steps", "tokens")


def without_units(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """A table without a line of units below its header: no number in it, where counts stand."""
    if table.num_rows < 2:
        return table
    first = {names[c]: str(table.column(c)[0]).strip() for c in table.column_names}
    counts = [first[name] for name in (*_COUNTS, "problems_per_batch", "rollouts_per_problem")
              if name in first]  # fmt: skip
    digits = any(char.isdigit() for cell in first.values() for char in cell)
    return table if digits or not any(counts) else table.slice(1)


def plain_thousands(table: pa.Table, names: dict[str, str], path: Path) -> pa.Table:
    """A table whose counts are plain: 1.280 is a thousand where decimals are written with commas.

    Raises:
        InputError: nothing in the table says whether it is a thousand or a fraction.
    """
    import pyarrow.compute as pc

    fraction = r"^\s*-?[0-9]+,[0-9]+\s*%?\s*$"
    commas = any(
        pc.any(pc.match_substring_regex(table.column(c), fraction)).as_py()
        for c in table.column_names if names[c] not in _COUNTS
    )
    for name in table.column_names:
        if names[name] not in _COUNTS:
            continue
        text = pc.utf8_trim_whitespace(table.column(name))
        dotted = pc.match_substring(text, ".")
        grouped = pc.match_substring_regex(text, r"^[1-9][0-9]{0,2}(\.[0-9]{3})+$")
        if pc.any(dotted).as_py() and pc.all(pc.or_(pc.invert(dotted), grouped)).as_py():
            if commas:
                plain = pc.replace_substring(text, ".", "")
                table = table.set_column(table.column_names.index(name), name, plain)
                continue
            row = pc.index(dotted, True).as_py()
            cell = text[row].as_py()
            raise InputError(
                f"{path}: column {name} must hold plain numbers, but row {row + 1} has "
                f"{ascii(cell)[:60]}, a fraction or thousands; write {cell.replace('.', '')[:60]}."
            )
    return table
