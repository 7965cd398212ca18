"""Tables of results: shown in a notebook, or turned into a data frame."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.cli.cells import number, table
from isocompute.domain.text import compact
from isocompute.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SHOWN = 30  # rows that are printed


class Table(Sequence[dict[str, Any]]):
    """A table of results; `to_frame` and `to_arrow` turn it into a data frame.

    Args:
        rows: one dictionary per row, all with the same keys in the same order.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = list(rows)

    def __getitem__(self, at: Any) -> Any:
        """A row by its place, a column by its name, or some of the rows."""
        if isinstance(at, str):
            return [row[at] for row in self._rows]
        return Table(self._rows[at]) if isinstance(at, slice) else self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._rows[0]) if self._rows else []

    def to_arrow(self) -> pa.Table:
        """For polars, DuckDB and others: `polars.from_arrow(table.to_arrow())`."""
        import pyarrow as pa

        return pa.Table.from_pylist(self._rows)

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError(
                "`to_frame` needs pandas, but it is not installed; pip install pandas, or use "
                "`to_arrow`."
            ) from None
        return pd.DataFrame(self._rows, columns=self.columns)

    def _cells(self) -> list[list[str]]:
        return [[_cell(value) for value in row.values()] for row in self._rows[:_SHOWN]]

    def __repr__(self) -> str:
        lines = table(self.columns, self._cells(), left=0) if self._rows else ["no rows"]
        return "\n".join([*lines, *self._more()])

    def _more(self) -> list[str]:
        more = len(self._rows) - _SHOWN
        return [f"{more} more rows"] if more > 0 else []

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._cells()
        )
        more = "".join(f"<p>{line}</p>" for line in self._more())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value) if abs(value) < 1 else compact(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return compact(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
