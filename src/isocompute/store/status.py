"""How far a study is: one read of the small tables, whatever the number of records.

Of a trainer with processes of its own the seconds of every update are added up, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from isocompute.domain import Configuration
from isocompute.store.decisions import decision_lines, load_looks, resting_states
from isocompute.store.leases import beats
from isocompute.store.processes import has_died
from isocompute.store.seals import has_imports
from isocompute.store.shared import stored_shared
from isocompute.store.starts import Starts, study_starts
from isocompute.store.store import Accounting, Store, StoredRun
from isocompute.store.under_way import UnderWay, under_way
from isocompute.store.unjudged import UnjudgedRow, unjudged_text
from isocompute.study.adaptive import Look
from isocompute.study.cost import NAMED, duration
from isocompute.study.held_out import Shared
from isocompute.study.spec import run_words


@dataclass(frozen=True, kw_only=True)
class Status:
    """State of a study folder.

    Args:
        name: of the study.
        states: number of runs that are "done", "failed", "invalid", "running" or "waiting"; in an
            adaptive study also "frozen", "stopped" (the sweep has ended) or "unneeded".
        rollouts_done, rollouts_total: training rollouts, committed and asked for (of a run that
            has trained more than is asked for now, what it has).
        usable_fraction: smallest fraction of its budget that any run has reached: the sweep is
            complete at that share of its budget.
        runners: how many are at work as far as can be known from here.
        accounting: where the rollouts and tokens went.
        runs: every run.
        unjudged: what the verifiers failed on, one row per problem, the most responses first.
        looks: what an adaptive study has decided.
        imported: number of runs that were read from logs: they are trained already.
        shared: validation sets with prompts that are trained on, where nobody said that it is
            meant.
        starts: worker seconds of one start of the trainer, and of all; None: not known.
        died: attempts that died, also those that no runner has taken over yet.
        under_way: what trains now, and how far it is, committed or not.
    """

    name: str
    states: dict[str, int]
    rollouts_done: int
    rollouts_total: int
    usable_fraction: float
    runners: int
    accounting: Accounting
    runs: list[StoredRun]
    unjudged: list[UnjudgedRow]
    looks: list[Look]
    imported: int = 0
    shared: Sequence[Shared] = ()
    starts: Starts | None = None
    died: int = 0
    under_way: Sequence[UnderWay] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values (`status --json`)."""
        looks = [
            {"look": look.number, "decisions": [asdict(d) for d in look.decisions]}
            for look in self.looks
        ]
        starts = None if self.starts is None else self.starts._asdict()
        now = [one._asdict() for one in self.under_way]
        return {"version": 1, **asdict(replace(self, looks=[], under_way=())), "looks": looks,
                "starts": starts, "under_way": now}  # fmt: skip

    def lines(self) -> list[str]:
        """For people."""
        read = f"{self.imported} imported run{'' if self.imported == 1 else 's'}"
        if self.imported and not self.runs:
            return [f"{self.name}: {read}; nothing to train"]
        a = self.accounting
        wasted = a.wasted_rollouts + a.wasted_evaluation_rollouts
        counts = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        lines = [
            f"{self.name}: {_count(len(self.runs), 'run')}: {counts}"
            + (f"; besides {read}" if self.imported else ""),
            f"rollouts: {self._trained}",
            f"spent besides: {a.evaluation_rollouts:,} rollouts on evaluation, {wasted:,} lost to "
            f"interruptions{self._under_way}" + "".join(
                f", {int(v['rollouts']):,} on {purpose}" for purpose, v in a.other.items()
            ),
            f"tokens: {a.tokens:,} training, {a.evaluation_tokens:,} evaluation; worker time "
            f"{duration(a.wall_s)} in {_count(a.attempts, 'attempt')}{self._started}; "
            f"{_count(self.runners, 'runner')} at work",
        ]  # fmt: skip
        specs = {run.hash: run.spec for run in self.runs}
        lines += [one.line(run_words(specs[one.hash])) for one in self.under_way]
        lines += [f"{r.state}: run {r.hash} ({run_words(r.spec)}): {r.reason}"
                  for r in self.runs if r.reason]  # fmt: skip
        resting = {
            Configuration(run.spec["problems_per_batch"], run.spec["rollouts_per_problem"])
            for run in self.runs if run.state == "pending"
        }  # fmt: skip
        lines += decision_lines(self.looks, self.rollouts_total, resting, self.rollouts_done)
        lines += [f"! {one.line()}" for one in self.shared]
        if self.unjudged:
            told = [(f"{u.problem!r} ({u.split})", u.rollouts, u.message) for u in self.unjudged]
            lines.append(
                f"the verifier failed on {sum(u.rollouts for u in self.unjudged):,} responses, "
                f"which have no reward: {unjudged_text(told)}; each is in the table `unjudged` "
                "of an export"
            )
        return lines

    @property
    def _under_way(self) -> str:
        """What nobody has counted: updates that a kill cut off had drawn something, too."""
        if not self.died:
            return ""
        return f" (updates that were cut off in {_count(self.died, 'attempt')} are not counted)"

    @property
    def _started(self) -> str:
        """What starts took, where that is much."""
        if self.starts is None or self.starts.all_s <= NAMED * self.accounting.wall_s:
            return ""
        took, each = duration(self.starts.all_s), duration(self.starts.each_s)
        return f", {took} of it to start the trainer, {each} each"

    @property
    def _trained(self) -> str:
        """Rollouts of all that will be trained: of a sweep that decides, no more than it may."""
        limit = self.looks[-1].of_sweep.numbers.get("limit") if self.looks else None
        if not self.looks:
            reached = f"every run has reached {self.usable_fraction:.0%} of its budget"
            return f"{_share(self.rollouts_done, self.rollouts_total)}; {reached}"
        if limit is None:
            return _share(self.rollouts_done, self.rollouts_total)
        grid = f"its grid holds {self.rollouts_total:,}"
        if self.rollouts_done > limit:
            over = f"above the {limit:,.0f} of `adaptive.spend`"
            return f"{self.rollouts_done:,}, {over}; {grid}"
        return f"{_share(self.rollouts_done, limit)} that it may spend; {grid}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _share(part: float, whole: float) -> str:
    return f"{part:,.0f} of {whole:,.0f} ({part / max(whole, 1):.0%})"


def study_status(folder: str | Path) -> Status:
    """Read how far a study is.

    Raises:
        InputError: if there is no study there.
    """
    with Store(folder) as store:
        runs = store.runs()
        alive = {r for r, (process, _) in beats(store.database).items() if not has_died(process)}
        held = {row[0] for row in store.database.read(
            "SELECT hash, lease_runner FROM runs WHERE lease_runner NOTNULL") if row[1] in alive}
        died = sum(
            outcome in ("lost", "crashed") or (outcome == "running" and runner not in alive)
            for outcome, runner in store.database.read("SELECT outcome, runner FROM attempts")
        )
        states = dict.fromkeys(("done", "running", "waiting", "failed", "invalid"), 0)
        looks = load_looks(store.database)
        rests = resting_states(looks, runs)
        for run in runs:
            waiting = "running" if run.hash in held else rests.get(run.hash, "waiting")
            states.setdefault(waiting, 0)
            states[waiting if run.state == "pending" else run.state] += 1
        imports = 0
        if has_imports(store.database.read, str(store.database.path)):
            imports = int(store.database.read("SELECT count(*) FROM imports")[0][0])
        batch = [r.spec["problems_per_batch"] * r.spec["rollouts_per_problem"] for r in runs]
        return Status(
            name=store.name, states=states, rollouts_done=sum(r.rollouts for r in runs),
            # A budget that was lowered takes nothing back that was trained.
            rollouts_total=sum(max(r.spec["steps"] * b, r.rollouts)
                               for r, b in zip(runs, batch, strict=True)),
            usable_fraction=min(
                (min(1.0, r.steps_done / r.spec["steps"]) for r in runs), default=0.0
            ),
            runners=len(alive), accounting=store.accounting(), runs=runs,
            unjudged=store.unjudged(total=True), looks=looks, imported=imports,
            shared=stored_shared(store.database), starts=study_starts(store, runs), died=died,
            under_way=under_way(store.database, alive),
        )  # fmt: skip
