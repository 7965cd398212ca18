"""JSON lines that name no run: told apart by the settings that every row repeats.

The rule is that of tables (`unnamed`): rows that differ in B_p, n, the seed, or in what their
`config` says of model and learning rate, are of different runs, unless their steps follow each
other, as where a batch changes within a run. What else of a `config` differs from the first step
on is no run that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocompute.importers.called import may_be_setting
from isocompute.importers.collect import MAX_RUNS, Collector
from isocompute.importers.configuration import IN_ROWS, facts_of, settings_in_row
from isocompute.importers.described import two_in_rows
from isocompute.importers.reading import clean_text, whole
from isocompute.importers.runs import UnclearError

_Said = tuple[tuple[str, str], ...]
_MAX_CONFIGS = 100  # of one run, where a part of its configuration changes


class UnnamedRows:
    """A collector for every choice of settings that the rows of one file say."""

    def __init__(self, first: Collector, path: Path) -> None:
        self._first, self._path = first, path
        self._runs: dict[_Said, Collector] = {}
        self._steps: dict[_Said, tuple[int, int]] = {}
        self._configs: dict[_Said, dict[str, tuple[int, dict[str, object]]]] = {}
        self._head: dict[str, str] = {}
        self._told: dict[tuple[str, ...], tuple[_Said, dict[str, object]]] = {}  # of like rows
        self._blank = False  # a row that says nothing of the kind

    def of(self, row: Mapping[str, object], step: object) -> Collector:
        """The collector of the run whose settings a row repeats."""
        if IN_ROWS.isdisjoint(row) and "config" not in row:  # nearly every row of a million
            self._blank = True
            return self._first
        config = repr(row.get("config"))
        likeness = config, *(f"{key}={row[key]}" for key in sorted(IN_ROWS & row.keys()))
        if (told := self._told.get(likeness)) is None:
            told = self._read(row)
            if len(self._told) < MAX_RUNS:
                self._told[likeness] = told
        said, found = told
        if step is None:  # a line of settings alone, above the rows
            plain = {key: value for key, value in said if key in found}
            self._head = self._head or plain
            for key in plain.keys() & self._head.keys():
                self._refuse_two(key, self._head[key], plain[key])
            return self._first
        if not said:
            self._blank = True
            return self._first
        if said not in self._runs and len(self._runs) < MAX_RUNS:
            own = Collector(self._first.name, self._first.errors, self._first.settings)
            self._runs[said] = own if self._runs else self._first
        at = whole(step)
        if at is not None:
            low, high = self._steps.get(said, (at, at))
            self._steps[said] = min(low, at), max(high, at)
            if "config" in row:
                configs = self._configs.setdefault(said, {})
                if config in configs or len(configs) < _MAX_CONFIGS:
                    begins = min(configs.get(config, (at, found))[0], at)
                    configs[config] = begins, found
        return self._runs.get(said, self._first)

    def _read(self, row: Mapping[str, object]) -> tuple[_Said, dict[str, object]]:
        """What a row says of its run that tells runs apart, and all that it says of it."""
        found = settings_in_row(row)
        mapped = self._first.settings.columns
        names = sorted(
            key for key in found
            if key in IN_ROWS or may_be_setting(key.rpartition(".")[2]) or (
                key in mapped and mapped[key].metric.label in IN_ROWS
            ) or key.rpartition(".")[2] in ("n", "seed", "train_batch_size")
        )  # fmt: skip
        facts = facts_of(found) if "config" in row else {}
        return (*((key, str(found[key])) for key in names), *sorted(facts.items())), found

    def settle(self) -> list[Collector]:
        """The runs beyond the first, all named by what differs between them.

        Raises:
            UnclearError: where the rows may be of one run.
        """
        self._refuse_side_by_side()
        if len(self._runs) < 2:
            return []
        all_said = [dict(said) for said in self._runs]
        keys = list(dict.fromkeys(key for said in all_said for key in said))
        differ = [key for key in keys if len({said.get(key) for said in all_said}) > 1]
        first = next(iter(all_said))
        other, key = next(
            (said, key) for said in all_said[1:] for key in differ
            if said.get(key) != first.get(key)
        )  # fmt: skip
        ends = list(self._steps.values())
        after = len(ends) < len(self._runs) or max(a for a, _ in ends) > min(b for _, b in ends)
        blank = self._blank or any(key not in said for said in all_said for key in differ)
        if blank or after:
            self._refuse_two(key, first.get(key, "none"), other.get(key, "none"))
        name = self._first.name
        for said, collector in self._runs.items():
            collector.rename(f"{name} " + " ".join(f"{k}={v}" for k, v in said if k in differ))
            collector.counters.infer(
                f"run: no key names it; rows that differ in {', '.join(differ)} are of different "
                "runs"
            )
            collector.configure_beside(self._path, alone=False)
        return [one for one in self._runs.values() if one is not self._first]

    def _refuse_side_by_side(self) -> None:
        """Several configurations that begin at one step, under the settings of one run."""
        for configs in self._configs.values():
            (begins, first), *others = configs.values()
            for start, other in others:
                if start != begins:
                    continue
                key = next(k for k in {**first, **other} if first.get(k) != other.get(k))
                one, two = (clean_text(said.get(key, "none"), 40) for said in (first, other))
                raise UnclearError(
                    f"a run must have one configuration, but the rows of {self._first.name!r} have "
                    f"{key} {one} and {two} from step {begins} on; give the rows of each run a "
                    f"name in `run`, or say what it is with --map {key}=rollouts_per_problem."
                )

    def _refuse_two(self, key: str, one: str, other: str) -> None:
        if one != other:
            raise two_in_rows(self._first.name, key, one, other)
