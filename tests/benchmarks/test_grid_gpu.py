"""Pieces of the grid for a lent machine: several runs at once, resumed, below a size; on a CPU."""

from __future__ import annotations

import importlib.util
import itertools
import json
import lzma
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
import pyarrow as pa
import pyarrow.parquet as pq

from isocompute.errors import InputError
from isocompute.runner import Settings, open_study, run_study
from isocompute.study import Study
from test_grid import TINY, head_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "grid"))
    for name in ("make", "gpu"):
        spec = importlib.util.spec_from_file_location(name, ROOT / "grid" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    module.grid.GRID = tmp_path
    monkeypatch.setattr(module, "MOVED", tmp_path / "moved")
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "ppo.yaml").write_text(TINY.replace("difficulty: hard", "objective: ppo"))
    module.grid.ORDER = (("ppo", (), ()), ("tiny", (), ()))
    return module


def piece(gpu, out, *, seconds=1e9, most=8, most_bytes=16_000_000, clock=None):
    often = Settings(report_s=1e-9, beat_s=1e-3)
    return gpu.Piece(
        out, gpu.Studies("cpu"), seconds=seconds, most=most, most_bytes=most_bytes,
        settings=often, **({} if clock is None else {"clock": clock}),
    )  # fmt: skip


def work(one):
    with one.unpacked():
        return one.work()


def rows_of(gpu, out):
    """Every finished run's rows, and its head without what depends on the hour; collects them."""
    found, one = {}, piece(gpu, out)
    with one.unpacked():
        assert one.collect() == 4
    assert not list(out.iterdir())
    gpu.MOVED.rename(out / "collected")
    for file in sorted((out / "collected").iterdir()):
        head = head_of(file)
        assert head.pop("cpu_s") > 0
        assert head.pop("wall_s") > 0
        found[file.name] = head, pq.read_table(file).to_pylist()
    return found


@pytest.mark.heavy
def test_a_piece_makes_runs_in_the_format_of_the_grid(gpu, tmp_path, capsys):
    assert work(piece(gpu, tmp_path / "out")) == "every run is there"
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["grid-gpu.tar.xz"]
    assert work(piece(gpu, tmp_path / "out")) == "every run is there"
    assert capsys.readouterr().out.count("tiny 2 x ") == 4  # and nothing twice
    found = rows_of(gpu, tmp_path / "out")
    specs = {f"{s.hash}.parquet": s for s in open_study(
        tmp_path / "tiny.yaml", ["engine_options.shapes=fixed", "engine_options.device=cpu"]).runs}
    assert found.keys() == specs.keys()
    plain = {s.hash for s in open_study(tmp_path / "tiny.yaml", []).runs}
    assert not plain & {s.hash for s in specs.values()}  # never taken for a run of `make grid`
    for name, (head, rows) in found.items():
        assert (head["state"], head["study"], head["device"]) == ("done", "tiny", "cpu")
        assert head["steps"] == specs[name].allocation.steps
        assert head["spec"]["engine_options"]["shapes"] == "fixed"
        assert [r["rollouts"] for r in rows if r["problem_set"] == "hard"] == [0, 16, 32, 64]
        schema = pq.read_schema(tmp_path / "out" / "collected" / name)
        assert schema.remove_metadata() == gpu.grid.KEPT
        assert all(0 <= s <= 4 for r in rows for s in r["successes"])
    (tmp_path / "out" / "collected").rename(gpu.MOVED)
    assert work(piece(gpu, tmp_path / "other")) == "every run is there"
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.heavy
def test_pieces_that_are_cut_short_give_what_one_piece_gives(gpu, tmp_path):
    work(piece(gpu, tmp_path / "whole"))
    out = tmp_path / "parts"
    for number in itertools.count(1):
        ticks = itertools.count(0.0, 1.0)
        part = piece(gpu, out, seconds=2.5, most=2, clock=lambda t=ticks: next(t))
        said = work(part)
        if said == "every run is there":
            break
        assert said == gpu.GOES_ON
        assert [f.name for f in out.iterdir()] == ["grid-gpu.tar.xz"]
        out = out.rename(tmp_path / f"brought back {number}")  # another machine, another folder
        assert number < 40
    assert number > 3
    assert rows_of(gpu, out) == rows_of(gpu, tmp_path / "whole")


@pytest.mark.heavy
def test_a_folder_that_would_grow_too_large_asks_to_be_emptied(gpu, tmp_path):
    specs = gpu.Studies("cpu")["tiny"].runs
    each = gpu.bytes_of(specs[0])
    assert 2_500_000 < each < 3_500_000
    runs = [gpu.grid.Wanted(None, spec) for spec in specs]
    assert len(gpu.that_fit(runs, 3 * each)) == 3
    assert len(gpu.that_fit(runs, each - 1)) == 0
    assert work(piece(gpu, tmp_path / "out", most_bytes=each - 1)) == gpu.FULL
    # What a run under way takes stays below what was reserved for it.
    ticks = itertools.count(0.0, 1.0)
    work(piece(gpu, tmp_path / "out", seconds=1.5, most=2, clock=lambda: next(ticks)))
    assert 0 < gpu.size_of(tmp_path / "out") < 2 * each


@pytest.mark.heavy
def test_the_records_of_a_run_under_way_take_no_more_than_is_reserved(gpu, tmp_path):
    changes = ["engine_options.device=cpu", "engine_options.shapes=fixed", "grid.seeds=1",
               "problems.train.options.size=500", "grid.problems_per_batch=128",
               "grid.rollouts_per_problem=[4]", f"budget={128 * 4 * 60}",
               "evaluation.first=1000000"]  # fmt: skip
    (spec,) = open_study(tmp_path / "tiny.yaml", changes).runs
    sizes, reserved = [], []
    for steps in (20, 60):
        part = replace(spec, allocation=replace(spec.allocation, steps=steps))
        run_study(Study(name="part", runs=[part], slices=(1.0,)), tmp_path / "part", workers=0)
        sizes.append(len(lzma.compress((tmp_path / "part" / "study.db").read_bytes(), preset=1)))
        reserved.append(gpu.bytes_of(part))
    taken = (sizes[1] - sizes[0]) / (reserved[1] - reserved[0])
    assert 0.5 < taken < 1


def finished_file(gpu, folder, steps):
    """The file of a run that went so far."""
    folder.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"state": "done", "steps": steps}).encode()
    table = pa.Table.from_pylist([], schema=gpu.grid.KEPT.with_metadata({b"isocompute": head}))
    pq.write_table(table, folder / "run.parquet")


@pytest.mark.parametrize(("mine", "there", "kept", "moved"), [(8, 16, 16, 0), (16, 8, 16, 1)])
def test_a_run_that_was_collected_is_never_replaced_by_less(
    gpu, tmp_path, mine, there, kept, moved
):
    finished_file(gpu, tmp_path / "out" / "runs", mine)
    finished_file(gpu, gpu.MOVED, there)
    one = piece(gpu, tmp_path / "out")
    with one.unpacked():
        assert one.collect() == moved
    assert head_of(gpu.MOVED / "run.parquet")["steps"] == kept
    assert not list((tmp_path / "out").iterdir())


def test_an_archive_that_is_cut_off_is_none(gpu, tmp_path, monkeypatch):
    out = tmp_path / "out"
    finished_file(gpu, out / "runs", 8)
    with piece(gpu, out).unpacked():
        pass
    whole = (out / "grid-gpu.tar.xz").read_bytes()

    def full(self, *args, **named):
        raise OSError(28, "No space left on device")

    one = piece(gpu, out)
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "add", full)
        with pytest.raises(OSError, match="No space"), one.unpacked():
            pass
    with one.unpacked():
        assert len(list(one.runs.iterdir())) == 1
    assert [f.name for f in out.iterdir()] == ["grid-gpu.tar.xz"]
    # Killed with the folders there, and given an older archive: that alone counts.
    (out / "state" / "study").mkdir(parents=True)
    (out / "state" / "study" / "study.db-journal").write_bytes(b"newer")
    (out / "grid-gpu.tar.xz").write_bytes(whole)
    with one.unpacked():
        assert not one.state.exists()


def test_only_runs_of_one_shape_are_trained_together(gpu):
    studies = gpu.Studies("cpu")
    assert not studies.can("ppo")
    first, *others = gpu.alike(gpu.grid.Wanted(studies["tiny"], studies["tiny"].runs[0]))
    assert len(others) == 1
    assert others[0].spec.allocation == first.spec.allocation
    assert others[0].spec.seed != first.spec.seed
    with pytest.raises(InputError, match="abacus"):
        gpu.Studies("abacus")["tiny"]


@pytest.mark.heavy
def test_the_command_says_how_far_it_is_and_fails_when_it_is_too_large(
    gpu, tmp_path, monkeypatch, capsys
):
    command = ["gpu.py", "--device", "cpu", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*command, "--together", "4", "--minutes", "5"])
    assert gpu.main() == 0
    assert "every run is there (" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command, "status"])
    assert gpu.main() == 0
    assert capsys.readouterr().out.startswith("4 of 4 runs (")
    monkeypatch.setattr(sys, "argv", [*command, "--most-mb", "0.001"])
    assert gpu.main() == 1
    monkeypatch.setattr(sys, "argv", [*command, "collect"])
    assert gpu.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("4 runs collected in ")
    assert len(list(gpu.MOVED.iterdir())) == 4


@pytest.mark.heavy
def test_what_breaks_a_batch_is_told_and_the_next_piece_tries_again(
    gpu, tmp_path, monkeypatch, capsys
):
    from isocompute.engines.local.together import Together

    def broken(self):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--out", str(tmp_path / "out")])
    with monkeypatch.context() as patch:
        patch.setattr(Together, "_update", broken)
        assert gpu.main() == 1
    assert f"{gpu.FAULT}RuntimeError: CUDA out of memory" in capsys.readouterr().out
    assert gpu.main() == 0
    assert "every run is there" in capsys.readouterr().out
    assert len(rows_of(gpu, tmp_path / "out")) == 4


@pytest.mark.gpu
def test_pieces_on_a_gpu(gpu, tmp_path):
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("needs a CUDA device")
    studies, out = gpu.Studies("cuda"), tmp_path / "out"
    assert studies["tiny"].runs[0].engine_options["graphs"] is True
    said = work(gpu.Piece(out, studies, seconds=1e9, most=8, most_bytes=16_000_000))
    assert said == "every run is there"
    heads = [head for head, _ in rows_of(gpu, out).values()]
    assert {head["state"] for head in heads} == {"done"}
    assert all(head["device"] not in ("cuda", "cpu") for head in heads)
