"""How far each run is to train now: the whole grid slice by slice, or what a sweep has decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from isocompute.errors import InputError
from isocompute.runner.execute import slice_of
from isocompute.store.database import Database
from isocompute.store.decisions import last_look, save_look
from isocompute.store.leases import PendingRun
from isocompute.study.adaptive import Look
from isocompute.study.sweep import Study, configuration_of

Decide = Callable[[Look], Look]


class Course:
    """What a runner trains, and how far.

    In a full grid every run goes to its end, and all finish a slice before any starts the next. In
    an adaptive sweep every run goes as far as the last look sent it; when all are there, the next
    look is taken from the curves in the store, and kept before anything is trained by it. So a
    sweep that is killed takes the same decisions when it is resumed, and of several runners the
    first to decide decides for all.

    Args:
        database: of the study, registered.
        study: what to run.
        decide: the next look after one whose runs have trained; None: none is needed.

    Raises:
        InputError: if the study is adaptive and nothing decides.
    """

    def __init__(self, database: Database, study: Study, decide: Decide | None) -> None:
        self._database, self._study, self._decide = database, study, decide
        self._specs = {spec.hash: spec for spec in study.runs}
        self._look: Look | None = None
        seeds = sorted({spec.seed for spec in study.runs})
        self._place = {name: seeds.index(spec.seed) for name, spec in self._specs.items()}
        self.specs = dict(self._specs)  # runs that train now, each with the budget to which it does
        if study.adaptive is None:
            return
        if decide is None:
            raise InputError(
                f"study {study.name!r} is adaptive and needs something that decides, but got none; "
                "hand over `design.decider(study, folder)`, or set adaptive=false."
            )
        begun = study.grid().started(last_look(database))
        if begun is not None:
            save_look(database, begun)
        last = self.refresh()
        if last is None or not last.has_ended:
            return
        if study.grid().has_changed_since(last):
            self._next(decide, last)
        elif last.saw_nothing and self._is_tried_again():
            save_look(database, study.grid().begun_again(last))
            self.refresh()

    def _is_tried_again(self) -> bool:
        """Whether a run that the last look asked for may train: mended, or to be retried."""
        rows = self._database.read("SELECT hash FROM runs WHERE state = 'pending'")
        return any(name in self.specs for (name,) in rows)

    def thaw(self, rollouts_per_problem: Sequence[int] | None) -> None:
        """Send frozen n to the end of their budget.

        Raises:
            InputError: if the study is not adaptive, or an n is not frozen.
        """
        grid = self._study.grid()
        look = None if self._look is None else grid.thawed(self._look, rollouts_per_problem)
        if look is not None:
            save_look(self._database, look)
            self.refresh()

    def refresh(self) -> Look | None:
        """The look that holds now, read again: another runner may have taken one."""
        look = None if self._study.adaptive is None else last_look(self._database)
        if look is None or (self._look is not None and look.number == self._look.number):
            return self._look
        self._look, self.specs, rows = look, {}, look.of_configurations
        for name, spec in self._specs.items():
            decision = rows.get(configuration_of(spec))
            if decision is not None and self._place[name] < len(decision.rollouts):
                asked = decision.rollouts[self._place[name]] // spec.allocation.batch_size
                steps = min(asked, spec.allocation.steps)
                self.specs[name] = slice_of(spec, steps)
        return look

    def pending(self, dead: Collection[str] | None = None) -> set[str]:
        """Runs that are to train further now; with `dead`, those that nobody alive holds."""
        self.refresh()
        rows = self._database.read(
            "SELECT hash, lease_runner, steps_done FROM runs WHERE state = 'pending'"
        )
        return {
            name
            for name, holder, done in rows
            if (dead is None or holder is None or holder in dead)
            and self._wanted(name, done, holder is not None)
        }

    def _wanted(self, name: str, done: int, held: bool) -> bool:
        """Also one that was cut off after its last commit: its end is still to be written down."""
        if name not in self._specs:
            return False
        if self._look is None or (held and done):
            return True
        target = self._target(name)
        return done < target or 0 < target == self._specs[name].allocation.steps

    def _target(self, name: str) -> int:
        return self.specs[name].allocation.steps if name in self.specs else 0

    def choose(self, free: Sequence[PendingRun]) -> tuple[PendingRun, int] | None:
        """The run that is furthest behind in slices; among those the one with most updates.

        In an adaptive sweep all have one slice, and the one with most rollouts to go comes first.
        """
        best: tuple[tuple[int, int, int], PendingRun, int] | None = None
        wanted = self.pending() if self._look is not None else set()
        for pending in free:
            if pending.hash not in self._specs:
                continue
            if self._look is not None:
                if pending.hash not in wanted:
                    continue
                end, slice_ = max(self._target(pending.hash), pending.steps_done), 0
                size = self._specs[pending.hash].allocation.batch_size
            else:
                ends = self._study.slice_steps(pending.target_steps)
                slice_ = next(
                    (i for i, e in enumerate(ends) if e > pending.steps_done), len(ends) - 1
                )
                end, size = ends[slice_], 1
            key = (slice_, -(end - pending.steps_done) * size, pending.run)
            if best is None or key < best[0]:
                best = key, pending, end
        return None if best is None else best[1:]

    def decide_next(self) -> bool:
        """Take the next look; False where nothing more is to be done."""
        if self._look is None or self._look.has_ended or self._decide is None:
            return False
        self._next(self._decide, self._look)
        return True

    def _next(self, decide: Decide, last: Look) -> None:
        save_look(self._database, decide(last))
        self.refresh()

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be decided any more."""
        return self._look is None or self._look.has_ended

    @property
    def limit(self) -> float | None:
        """Rollouts that may be trained while something decides; None: nothing does any more."""
        return None if self.has_ended else self._study.grid().limit

    @property
    def note(self) -> str:
        """The last look, in a line."""
        if self._look is None:
            return ""
        rows, sweep = self._look.of_configurations, self._look.of_sweep.numbers
        frozen = [str(c.rollouts_per_problem) for c, d in rows.items() if d.is_frozen]
        parts = [f"look {self._look.number}"]
        if "loss_at_target" in sweep:
            parts.append(f"expected loss of the plan {sweep['loss_at_target']:.4f}")
        if frozen:
            parts.append(f"frozen n = {', '.join(frozen)}")
        return ", ".join(parts) + (": ended" if self._look.has_ended else "")
