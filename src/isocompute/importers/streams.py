"""Which lines of a console are of which run, where several wrote into one file.

| in one file | a run is |
|---|---|
| `kubectl logs --prefix`: `[pod/NAME/CONTAINER] ` before every line | what one pod wrote |
| `docker compose logs`: `NAME  | ` before every line | what one container wrote |
| a loop over commands, `nohup ... > nohup.out` | what follows its command, up to the next |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.reading import Line, iter_lines, open_log

_FORMS = (
    re.compile(rb"\[pod/(?P<name>[\w.-]+)/[\w.-]+\] ?"),
    re.compile(rb"(?!(?:trace|debug|info|warn|warning|error|critical)\b)"
               rb"(?P<name>[a-z][\w.-]*)[ \t]+\| ?", re.I),
)  # fmt: skip
_LOOKED_AT = 400  # lines; at half a command's long output may be all, at twice nothing is gained
_MOST = 0.9  # of them, which begin so: a comment or a cut line may stand between
_MANY = 256  # names: a prefix that differs more tells something else


class AnotherRunError(Exception):
    """A second training begins in a console.

    Args:
        at: the last line of the first.
    """

    def __init__(self, at: int) -> None:
        super().__init__(f"another training begins behind line {at}")
        self.at = at


class Part(NamedTuple):
    """Lines of a console that are of one run.

    Args:
        name: what stands before each of them; "" where nothing does.
        form: how it stands there.
        first, last: lines, from 1.
        named: it tells runs apart.
    """

    name: str = ""
    form: re.Pattern[bytes] | None = None
    first: int = 1
    last: int = 1 << 62
    named: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is all that a file holds."""
        return not self.named and (self.first, self.last) == (1, 1 << 62)

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Those of the lines that are of this run, without what stands before them."""
        for line in lines:
            if not self.first <= line.number <= self.last:
                continue
            if self.form is None or line.data is None:
                yield line
            elif (match := self.form.match(line.data)) and match["name"].decode() == self.name:
                yield Line(line.number, line.data[match.end() :])

    def cut(self, at: int) -> tuple[Part, Part]:
        """What ends with a line, and what follows it."""
        return self._replace(last=at), self._replace(first=at + 1)


def parts_of(path: Path) -> list[Part]:
    """What each of those wrote whose names stand before the lines; all of it where none do."""
    with open_log(path) as handle:
        lines = (line.data for line in iter_lines(handle, str(path)) if line.data)
        head = list(islice(lines, _LOOKED_AT))
        counts = {form: sum(map(bool, map(form.match, head))) for form in _FORMS}
        enough = max(2, _MOST * len(head))
        form = next((form for form, count in counts.items() if count >= enough), None)
        if form is None:
            return [Part()]
        found = dict.fromkeys(match["name"].decode() for data in (*head, *lines)
                              if (match := form.match(data)))  # fmt: skip
    if len(found) > _MANY:
        return [Part()]
    return [Part(name, form, named=len(found) > 1) for name in found]
