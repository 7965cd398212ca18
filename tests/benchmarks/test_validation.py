"""The validation harness: what it counts, by hand; a small run of it with the model."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from isocompute.domain import Curve
from isocompute.errors import RefusalError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import grid_held_out as held_out  # noqa: E402 (the folder is not installed)
from validation import __main__ as command  # noqa: E402 (the folder is not installed)
from validation import (  # noqa: E402
    adapters,
    cells,
    figures,
    judge,
    panels,
    rows,
    short,
    stopped,
    tables,
)

CELL = cells.Cell("sweep", "tent", "middle")


class Told:
    """Answers that are handed in; the truth where nothing else is said."""

    verdict = "ok"

    def __init__(self, cell, *, off=0.0, prefer=None, wide=0.01, verdict="ok", refuse=False):
        self.cell, self.off, self.prefer, self.wide = cell, off, prefer, wide
        self.verdict, self.refuse = verdict, refuse

    def _true(self, budget):
        return rows.scores_of(rows.whole_truth_of, self.cell, budget)

    def chosen(self, budget):
        true = self._true(budget)
        key = self.prefer or max(true, key=lambda k: true[k])
        score = true[key] + self.off
        return adapters.Choice(key, score, score - self.wide, score + self.wide)

    def refused(self, budget):
        return self.refuse

    def n_star(self, budget, level):
        best = rows.best_n(self.cell, budget) * 2**self.off
        return adapters.BestN(best, best / 1.1, best * 1.1)

    def p_best(self, budget):
        true = self._true(budget)
        top = max(true.values())
        return {key: float(score == top) for key, score in true.items()}

    def curve_interval(self, key, budget, level):
        score = self._true(budget)[key] + self.off
        return score - self.wide, score + self.wide

    def rise(self):
        return adapters.Rise(self.off > 0, self.off)


class Fixed(NamedTuple):
    answers: object
    name: str = "told"

    def fit(self, curves, seed):
        return self.answers


class Refusing(NamedTuple):
    error: Exception
    name: str = "refusing"

    def fit(self, curves, seed):
        raise self.error


def mean(row, name):
    value, count = row["sums"][name]
    return value / count


def test_who_knows_the_truth_loses_nothing_and_holds_everywhere():
    row = rows.row_of(Fixed(Told(CELL)), CELL, 1)
    assert row["loss"] == {"1": 0.0, "4": 0.0, "10": 0.0}
    for name in ("curve inside", "held 1x", "held 4x", "held 10x"):
        assert mean(row, name) == 1.0
    assert mean(row, "width 4x") == pytest.approx(0.02)
    assert mean(row, "p 0.90-1.00 off") == 0.0
    assert row["sums"]["p 0.90-1.00 said"] == [3.0, 3.0]  # one leader at three budgets
    assert row["sums"]["p 0.00-0.05 said"] == [0.0, 18.0]
    assert mean(row, "claimed") == mean(row, "no fit") == mean(row, "stop") == 0.0


def test_who_errs_is_found_out():
    wrong = Told(CELL, off=0.06, prefer=(16, 8), verdict="stop", refuse=True)
    row = rows.row_of(Fixed(wrong), CELL, 1)
    # At the ceilings, n = 8 stands at 0.614 and the best at 0.650.
    assert row["loss"]["10"] == pytest.approx(0.036, abs=1e-4)
    assert mean(row, "curve inside") == mean(row, "held 4x") == 0.0
    assert mean(row, "error 4x") == pytest.approx(0.06, abs=1e-6)
    assert row["sums"]["missed and stopped"] == [3.0, 3.0]
    assert mean(row, "refused 1x") == mean(row, "stop") == mean(row, "claimed") == 1.0
    careless = rows.row_of(Fixed(Told(CELL, off=0.06)), CELL, 1)
    assert careless["sums"]["missed and stopped"] == [0.0, 3.0]


def test_a_refused_fit_counts_as_nothing_held_and_a_crash_is_shown():
    row = rows.row_of(Refusing(RefusalError("no curve", [])), CELL, 1)
    assert mean(row, "no fit") == mean(row, "refused 4x") == 1.0
    assert row["sums"]["curve start"] == [0.0, 7.0]
    assert mean(row, "held 10x") == 0.0
    assert 0.0 <= row["loss"]["4"] <= 0.036  # its user keeps what has scored best
    assert row["why"] == "no curve"
    crash = rows.row_of(Refusing(ZeroDivisionError("by zero")), CELL, 1)
    assert crash["why"] == "sweep-tent-middle: ZeroDivisionError: by zero"
    found = figures.Summary()
    found.take(crash)
    assert "1 CRASHED" in tables.times_line({CELL: found})
    for part, world in (("surface", "rises"), ("null", "tent"), ("few", "tent@two_n")):
        cell = cells.Cell(part, world, "middle")
        refused = rows.row_of(Refusing(RefusalError("no curve", [])), cell, 1)
        assert len(refused["sums"]) > 1


def test_the_best_n_of_surfaces():
    cell = cells.Cell("surface", "rises", "middle")
    row = rows.row_of(Fixed(Told(cell, wide=1.0)), cell, 1)
    assert mean(row, "best n held start") == mean(row, "best n held end") == 1.0
    assert mean(row, "best n width middle") == pytest.approx(2 * np.log2(1.1))
    far = rows.row_of(Fixed(Told(cell, off=0.5)), cell, 1)
    assert mean(far, "best n held start") == 0.0
    assert mean(far, "best n bias start") == pytest.approx(0.5)


def test_one_and_two_n_are_compared_with_keeping_what_was_run():
    cell = cells.Cell("few", "tent@two_n_apart", "low")
    assert [a.rollouts_per_problem for a in cells.world_of(cell).arms] == [16, 256]
    row = rows.row_of(Fixed(Told(cell)), cell, 1)  # goes to 64, 0.650 against 0.626 of both
    assert row["sums"]["over keeping 10x"][0] == pytest.approx(-0.024, abs=2e-4)
    assert row["sums"]["moved 10x"] == [1.0, 1.0]
    assert row["sums"]["few tested start"] == [2.0, 2.0]
    assert row["sums"]["few beside start"] == [4.0, 4.0]  # 8, 32, 128, 512
    stays = rows.row_of(Fixed(Told(cell, prefer=(16, 16))), cell, 1)
    assert stays["sums"]["moved 10x"] == [0.0, 1.0]


def test_losers_are_stopped_a_quarter_after_they_were_last_in_the_running():
    truth = cells.EVERY["one_crossing"].truth(cells.CONDITIONS["low"].noise)
    ends = rows.last_in_the_running(truth)
    budgets = np.geomspace(*truth.support, 4000)
    behind = truth.score(budgets)[1] - truth.score(budgets)[0]  # 128 ahead of 16
    leaves = budgets[np.flatnonzero(behind <= 0.005)[-1]]
    assert ends[16, 16] == pytest.approx(1.25 * leaves, rel=0.02)
    assert ends[16, 128] == pytest.approx(1.25 * truth.support[1])
    cell = cells.Cell("stopped", "rising", "middle")
    row = rows.row_of(Fixed(Told(cells.Cell("surface", "rises", "middle"))), cell, 1)
    assert mean(row, "stopped within half an octave") == 1.0
    assert mean(row, "stopped lost") == 0.0
    assert 0.1 < mean(row, "stopped spent") < 0.6


def test_losers_of_a_real_sweep_are_stopped_by_what_they_scored(capsys, tmp_path):
    def curve(n, scores):
        rollouts = np.array([0.0, 1e4, 2e4, 4e4, 8e4])
        return panels.Curve(
            problems_per_batch=16, rollouts_per_problem=n, run=str(n), rollouts_K=rollouts,
            score_K=np.array(scores),
        )  # fmt: skip

    sweep = [curve(8, [0.4, 0.50, 0.50, 0.5, 0.45]), curve(16, [0.4, 0.40, 0.50, 0.6, 0.70])]
    assert stopped.compared(sweep) == (20 * 256, 8e4)
    ends = stopped.observed_ends(sweep)
    assert ends[16, 16] == pytest.approx(1.25 * 8e4)
    assert ends[16, 8] == pytest.approx(1.25 * 4e4, rel=0.02)  # level at 20k, behind from 40k
    sweep[1] = curve(16, [0.4, 0.10, 0.20, 0.3, 0.30])
    assert stopped.observed_ends(sweep)[16, 16] == pytest.approx(1.25 * 8e3, rel=0.3)
    told = Told(cells.Cell("surface", "rises", "middle"))
    found = stopped.stopped_study(Fixed(told), sweep)
    assert found["stopped off"] == 0.0
    assert found["stopped spent"] < 1.0


def test_sums_and_standard_errors_by_hand():
    summary, other = figures.Summary(), figures.Summary()
    for v, c in ((1, 2), (2, 2), (0, 1)):
        summary.take({"sums": {"held": [v, c]}, "loss": {"4": v / 100}})
    found = summary.figure("held")
    # r = 3/5; residuals v - r c: -0.2, 0.8, -0.6; sum of squares 1.04, times 3/2, root, by 5.
    assert found.value == pytest.approx(0.6)
    assert found.se == pytest.approx(np.sqrt(1.04 * 1.5) / 5)
    assert found.sweeps == 3
    assert summary.loss(4).value == pytest.approx(0.01)
    assert summary.loss(4).se == pytest.approx(0.01 / np.sqrt(3))
    assert summary.loss_95(4).value == pytest.approx(0.019)
    assert not summary.figure("nothing").sweeps
    other.take({"sums": {"held": [1, 1]}, "loss": {"4": 0.0}, "why": "so"})
    summary.join(other)
    assert summary.figure("held").value == pytest.approx(4 / 6)
    assert (summary.sweeps, summary.why) == (4, {"so": 1})
    greedy = {CELL._replace(world=w, condition="greedy"): other for w in ("tent", "rising")}
    text = json.dumps(figures.to_document({CELL: summary, **greedy}, commit="abc"))
    again = figures.of_document(json.loads(text))
    assert again[CELL] == summary
    assert again[cells.Cell("sweep", "all", "greedy")].sweeps == 2  # pooled over worlds


@pytest.mark.parametrize(
    ("value", "se", "passed"),
    [(0.85, 0.01, True), (0.83, 0.01, False), (0.99, 0.015, True), (1.0, 0.0, False)],
)
def test_two_standard_errors_are_allowed(value, se, passed):
    line = judge.within("a", figures.Figure(value, se, 400), 0.86, 0.97)
    assert line.passed is passed
    assert line.target == "86 to 97"
    assert ("FAIL" in tables.judged_table([line])) is not passed


def test_few_sweeps_that_agree_prove_little():
    assert judge.within("a", figures.Figure(1.0, 0.0, 4), 0.87, 0.93).passed
    assert not judge.at_most("a", figures.Figure(0.02, 0.0, 4), 0.01, unit=1).passed
    assert judge.within("a", figures.Figure(0.0, 0.0, 0), 0.87, 0.93).passed is None


def test_losses_are_judged_beside_those_of_what_stood_before():
    ours, theirs = ({}, {})
    for found, loss in ((ours, 0.010), (theirs, 0.003)):
        for world in ("tent", "rising"):
            summary = found.setdefault(cells.Cell("sweep", world, "low"), figures.Summary())
            for _ in range(3):
                summary.take({"sums": {}, "loss": {"1": loss, "4": loss, "10": loss}})
    lines = {line.name: line for line in judge.of_losses(ours, theirs)}
    assert lines["loss more than before, tent at 4x"].passed is False
    assert lines["loss more than before, tent at 4x"].figure.value == pytest.approx(0.007)
    at_four = next(v for k, v in lines.items() if k.startswith("mean loss over worlds at 4x"))
    assert at_four.target == "at most 0.0015"  # half of 0.003
    better = {line.name: line for line in judge.of_losses(theirs, ours)}
    assert all(line.passed for line in better.values())


def test_panels_by_hand(tmp_path):
    path = tmp_path / "small.csv"
    dots = {
        8: [(100, 0.50), (200, 0.52), (400, 0.53), (800, 0.54), (1000, 0.52)],
        16: [(100, 0.48), (200, 0.50), (400, 0.54), (900, 0.58), (1020, 0.60), (1500, 0.90)],
    }
    lines = ["problems_per_batch,rollouts_per_problem,rollouts,score"]
    lines += [f"32,{n},{x},{y}" for n, rows_ in dots.items() for x, y in rows_]
    path.write_text("\n".join(lines) + "\n")
    found = panels.panels_of(tmp_path)
    assert list(found) == ["small"]
    mean_dots, best_dots = panels.truth_at(found["small"], 1000)
    assert mean_dots == pytest.approx({(32, 8): 0.53, (32, 16): 0.59})
    assert best_dots == pytest.approx({(32, 8): 0.54, (32, 16): 0.60})

    class Keeps(Told):
        def chosen(self, budget):
            assert budget == 1000
            return adapters.Choice((32, 8), 0.55, 0.52, 0.58)

    row = panels.panel_row(Fixed(Keeps(CELL)), "small", found["small"], 0.5)
    assert row["loss"] == pytest.approx(0.06)
    assert row["loss by best dot"] == pytest.approx(0.06)
    assert (row["best"], row["chosen"], row["held"]) == (16, 8, True)
    assert row["rules"] == pytest.approx(
        {"largest n": 0.0, "best so far": 0.0, "next n after the leader": 0.0}
    )
    early = panels.panel_row(Fixed(Keeps(CELL)), "small", found["small"], 0.2)
    assert early["rules"]["best so far"] == pytest.approx(0.06)
    assert len(panels.panel_rows(Refusing(RefusalError("no", [])), found)) == 3
    lines = list(judge.of_panels([row, early], [row | {"loss": 0.1}]))
    assert {line.name: line.passed for line in lines} == {
        "panels: mean loss against the plan before": True,
        "panels: mean loss": False,
        "panels: mean loss against the largest n": False,
        "panels: interval of the chosen score holds": True,
        "panels: its mean width": True,
        "panels: refused or stopped": True,
    }


def test_sweeps_are_the_same_for_every_estimator_and_differ_by_cell():
    other = cells.Cell("sweep", "tent", "high")
    draws = [cells.rng_of(c, 5).standard_normal() for c in (CELL, CELL, other)]
    assert draws[0] == draws[1] != draws[2]
    parts = ("sweep", "surface", "null", "few", "stopped")
    every = cells.cells_of(parts, None, None)
    chunks = cells.chunks_of(every, cells.Counts(), 10_000)
    assert sum(c.sweeps for c in chunks if c.cell == CELL) == 134
    assert max(c.sweeps for c in chunks) == cells.CHUNK
    assert len({c.file(Path()) for c in chunks}) == len(chunks)
    # A judged figure pools three noises of a world: at least 400 sweeps.
    assert 3 * cells.Counts().sweep >= 400 <= 3 * cells.Counts().null
    assert len(cells.SWEEP_WORLDS) * cells.Counts().others >= 400
    assert cells.Counts().surface == 200


def test_a_run_that_was_interrupted_goes_on(tmp_path, monkeypatch, capsys):
    fitted = []

    class Counted(NamedTuple):
        name: str = "model"

        def fit(self, curves, seed):
            fitted.append(seed)
            return Told(CELL)

    monkeypatch.setitem(adapters.ADAPTERS, "model", Counted())
    monkeypatch.setattr(cells, "CHUNK", 2)
    todo = cells.chunks_of([CELL], cells.Counts.all(3), 50)
    for chunk in todo[:1]:
        command.do(chunk, "model", tmp_path)
    assert fitted == [50, 51]
    for chunk in todo:
        command.do(chunk, "model", tmp_path)
    assert fitted == [50, 51, 52]
    other = cells.Chunk(CELL, 50, 0, 1)  # of another length: its sweep is there already
    command.do(other, "model", tmp_path)
    found = command.collected([CELL], 50, tmp_path)
    assert found[CELL].sweeps == 3
    assert not command.collected([CELL], 51, tmp_path)
    assert not list(tmp_path.glob("*.[0-9]*"))  # every chunk is whole


def test_a_page_is_renewed_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Words\n<!-- model -->\nold\n<!-- /model -->\nmore words\n")
    command.renew(page, {"model": "new\n", "today": "has no place here\n"})
    assert page.read_text() == "# Words\n<!-- model -->\nnew\n<!-- /model -->\nmore words\n"
    command.renew(tmp_path / "fresh.md", {"model": "new\n"})
    assert "new" in (tmp_path / "fresh.md").read_text()


def test_the_lines_on_top_are_those_of_the_pages_own_tables():
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text("utf-8")
    assert short.with_short(page) == page, "run `make validation`, or validation.short.with_short"
    lines = short.short_lines(page).splitlines()
    assert len(lines) == 5
    other, found = re.subn(r"(?m)^(\| \d+ \| 1/4 \|) 0\.\d+ ", r"\1 0.0777 ", page)
    assert found
    assert [a == b for a, b in zip(short.short_lines(other).splitlines(), lines, strict=True)] == [
        True, True, False, True, True]  # fmt: skip
    assert short.with_short("# no such lines\n") == "# no such lines\n"


@pytest.mark.heavy
def test_a_small_run_of_the_whole_harness(tmp_path, capsys):
    code = command.main([
        "--adapter", "answers",
        "--sweeps", "1", "--worlds", "tent,three_n", "--conditions", "middle",
        "--parts", "sweep,surface,few", "--rows", str(tmp_path), "--save",
        str(tmp_path / "kept.json"), "-o", str(tmp_path / "page.md"),
    ])  # fmt: skip
    assert code == 0
    page = (tmp_path / "page.md").read_text()
    assert "CRASHED" not in page
    for head in ("Judged", "Worlds (three noises)", "Best n of smooth surfaces", "One or two n"):
        assert f"### {head}" in page
    kept = figures.of_document(json.loads((tmp_path / "kept.json").read_text()))
    assert kept[CELL].sweeps == 1
    # Coarse, so that it fails only where something is broken.
    everything = figures.pooled(kept, lambda cell: cell.part == "sweep")
    assert everything.figure("curve inside").value > 0.6
    assert everything.loss(1).value < 0.02
    assert "CRASHED" not in capsys.readouterr().out


def test_the_truth_of_a_real_sweep_is_the_best_mean_over_seeds_so_far() -> None:
    def run(n: int, seed: int, *scores: float) -> Curve:
        x = 1000.0 * 2 ** np.arange(len(scores))
        return Curve(problems_per_batch=8, rollouts_per_problem=n, run=f"{n}-{seed}", seed=seed,
                     rollouts_K=np.append(0.0, x), score_K=np.append(0.9, scores))  # fmt: skip

    level = [run(4, 0, *[0.3] * 6), run(4, 1, *[0.5] * 6)]
    falls = [run(8, 0, 0.2, 0.6, 0.6, 0.6, 0.1, 0.1, 0.1)]
    found = held_out.truth_of(level + falls, 64_000)
    assert found[4] == pytest.approx(0.4)  # step 0 is no checkpoint that training made
    assert 0.55 < found[8] <= 0.6  # before it fell
    assert held_out.truth_of(level + falls, 2000)[8] < 0.5  # not what comes later


def test_choices_on_real_sweeps_are_counted_against_the_rules(monkeypatch) -> None:
    class Fits:
        name = "told"

        def fit(self, curves, seed):
            assert {c.seed for c in curves} == {0}
            assert max(c.rollouts_K[-1] for c in curves) <= 0.25 * 2**21
            return self

        verdict = "ok"

        def chosen(self, budget):
            return adapters.Choice((32, 16), 0.83, 0.8, 0.85)

        def refused(self, budget):
            return False

    monkeypatch.setitem(adapters.ADAPTERS, "answers", Fits())
    curves = held_out.sweep_of("grid:hard-joint", 32)
    row = held_out.row_of("hard", curves, 0.25, 1)
    true = held_out.truth_of(curves, row["budget"])
    assert row["loss"] == pytest.approx(max(true.values()) - true[16])
    assert row["rules"]["largest n"] == pytest.approx(max(true.values()) - true[1024])
    assert row["held"] == (0.8 <= true[16] <= 0.85)
    assert "| 1 | 1/4 |" in held_out.summary([{**row, "cut": c, "seeds": s}
                                              for c in held_out.CUTS for s in (1, 3)])  # fmt: skip


def test_panels_are_thinned_to_every_other_n_where_they_have_many() -> None:
    def panel(*tested: int) -> list[Curve]:
        x = np.array([1.0, 2.0])
        return [Curve(problems_per_batch=8, rollouts_per_problem=n, run=str(n), rollouts_K=x,
                      score_K=x / 10) for n in tested]  # fmt: skip

    found = panels.thinned({"many": panel(4, 8, 16, 32, 64), "few": panel(4, 8, 16, 32)})
    assert {name: [c.rollouts_per_problem for c in of] for name, of in found.items()} == {
        "many": [4, 8, 16, 32, 64], "few": [4, 8, 16, 32], "many, odd n": [4, 16, 64],
        "many, even n": [8, 32],
    }  # fmt: skip
