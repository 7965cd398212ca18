"""An import into a folder that holds runs: as if all logs were read now."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.archive import import_logs, load_imported
from isocompute.importers.words.names import says
from isocompute.importers.words.settings import Settings
from isocompute.store.doctor import examine

SCORES = np.round(0.3 + 0.3 * (1 - np.exp(-np.arange(0, 201) / 60)), 4)


def log(path: Path, first: int = 0, last: int = 100, *, shift: float = 0.0) -> Path:
    """A W&B history of one run, a score every ten updates."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["_step", "_runtime", "train/global_step", "eval/reward"])
        for step in range(first, last + 1, 10):
            writer.writerow([step // 10, 60.0 * step, step, SCORES[step] + shift])
    return path


def told(**changed: Any) -> Settings:
    return Settings(**{"problems_per_batch": 32, "rollouts_per_problem": 8, **changed})


def kept(folder: Path) -> list[tuple[Any, ...]]:
    """(name, B_p, n, seed, steps with a score, rollouts at the end) of every run."""
    assert not examine(folder)
    return [
        (r.name, r.problems_per_batch, r.rollouts_per_problem, r.seed,
         r.series[0].step_K.tolist(), float(r.series[0].rollouts_K[-1]))
        for r in load_imported(folder)
    ]  # fmt: skip


def steps(first: int, last: int) -> list[int]:
    return list(range(first, last + 1, 10))


def test_settings_of_a_later_import_replace_those_of_an_earlier_one(tmp_path: Path) -> None:
    path, study = log(tmp_path / "a.csv"), tmp_path / "study"
    import_logs([path], study, settings=told())
    again = import_logs([path], study, settings=told(problems_per_batch=64))
    assert (again.stored, again.known) == ([], [])
    assert again.replaced == [("a", "problems_per_batch 32 -> 64")]
    assert kept(study) == [("a", 64, 8, None, steps(0, 100), 100 * 64 * 8)]
    assert import_logs([path], study, settings=told(problems_per_batch=64)).known == ["a"]
    assert import_logs([path], study, settings=told(problems_per_batch=64, seed=3)).replaced
    other = import_logs([path], study, settings=told(problems_per_batch=64, seed=4))
    assert other.replaced == [("a", "seed 3 -> 4")]
    assert kept(study)[0][3] == 4
    wide = import_logs([path], study, settings=told(problems_per_batch=64, seed=4),
                       score_range=(0.0, 2.0))  # fmt: skip
    assert wide.replaced == [("a", "score_range None -> (0.0, 2.0)")]
    # what a reading leaves open does not take away what an earlier one knew
    timed = import_logs([path], study, settings=told(problems_per_batch=64, gpus=8))
    assert timed.replaced == [("a", "GPU-hours of an update")]
    (run,) = load_imported(study)
    assert (run.seed, run.provenance.score_range) == (4, (0.0, 2.0))
    assert run.provenance.gpu_s_per_step == pytest.approx(8 * 60)
    assert import_logs([path], study, settings=told(problems_per_batch=64)).known == ["a"]
    assert load_imported(study)[0].provenance.gpu_s_per_step == pytest.approx(8 * 60)
    narrow = import_logs([path], study, settings=told(), score_range=(0.0, 1.0))
    assert narrow.replaced == [("a", "problems_per_batch 64 -> 32")]


def test_a_log_that_went_on_is_read_to_its_end(tmp_path: Path) -> None:
    path, study = log(tmp_path / "a.csv", last=60), tmp_path / "study"
    import_logs([path], study, settings=told())
    log(path, last=200)
    assert import_logs([path], study, settings=told()).replaced == [("a", "60 -> 200 updates")]
    assert kept(study) == [("a", 32, 8, None, steps(0, 200), 200 * 32 * 8)]
    # with a correction at the same time
    log(path, last=180)
    more = import_logs([path], study, settings=told(problems_per_batch=64))
    assert more.replaced == [("a", "problems_per_batch 32 -> 64")]
    assert kept(study) == [("a", 64, 8, None, steps(0, 180), 180 * 64 * 8)]


def test_a_part_read_again_takes_nothing_from_the_whole(tmp_path: Path) -> None:
    first, then = log(tmp_path / "a.csv", last=100), log(tmp_path / "a-resumed.csv", 110, 150)
    study = tmp_path / "study"
    import_logs([first], study, settings=told())
    assert import_logs([then], study, settings=told()).replaced == [("a", "100 -> 150 updates")]
    whole = [("a", 32, 8, None, steps(0, 150), 150 * 32 * 8)]
    assert kept(study) == whole
    assert import_logs([first], study, settings=told()).known == ["a"]
    assert import_logs([then], study, settings=told()).stored == []
    assert kept(study) == whole
    log(then, 110, 200)  # the second half went on
    import_logs([then], study, settings=told())
    assert kept(study) == [("a", 32, 8, None, steps(0, 200), 200 * 32 * 8)]


def test_another_run_of_the_same_name_stays_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    for folder, shift in (("one", 0.0), ("two", 0.03)):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        import_logs([log(Path("a.csv"), shift=shift)], study, settings=told())
    assert [row[:2] for row in kept(study)] == [("a", 32), ("a", 32)]


def test_a_copy_under_another_seed_is_asked_for(tmp_path: Path) -> None:
    study = tmp_path / "study"
    import_logs([log(tmp_path / "a.csv")], study, settings=told(seed=0))
    with pytest.raises(InputError, match="runs of two seeds must differ"):
        import_logs([log(tmp_path / "copy.csv", last=90)], study, settings=told(seed=1))
    assert kept(study) == [("a", 32, 8, 0, steps(0, 100), 100 * 32 * 8)]


def test_the_command_says_what_was_read_anew(tmp_path: Path, capsys: Any) -> None:
    path, study = str(log(tmp_path / "a.csv")), str(tmp_path / "study")
    line = ["import", path, "-o", study, "--set", "rollouts_per_problem=8", "--set"]
    assert main([*line, "problems_per_batch=32"]) == 0
    assert capsys.readouterr().out.startswith(f"1 runs imported into {study}\n")
    assert main([*line, "problems_per_batch=64"]) == 0
    said = f"1 run of {study} read anew (problems_per_batch 32 -> 64)\n"
    assert capsys.readouterr().out.startswith(said)
    assert main([*line, "problems_per_batch=64", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["stored"], document["known"], document["replaced"]) == ([], ["a"], [])
    assert main([*line, "problems_per_batch=16", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["replaced"] == ["a"]


def test_times_without_a_number_of_gpus_are_pointed_out(tmp_path: Path, capsys: Any) -> None:
    path = str(log(tmp_path / "a.csv"))
    line = ["import", path, "-o", str(tmp_path / "s"), "--set", "rollouts_per_problem=8",
            "--set", "problems_per_batch=32"]  # fmt: skip
    said = "GPU-hours: times are logged, but not on how many GPUs; add --set gpus=GPUS"
    assert main(line) == 0
    assert said in capsys.readouterr().out
    assert main([*line, "--set", "gpus=4"]) == 0
    assert said not in capsys.readouterr().out
    assert load_imported(tmp_path / "s")[0].provenance.s_per_step == pytest.approx(60)


def test_what_was_kept_apart_stays_apart(tmp_path: Path) -> None:
    first, then = log(tmp_path / "a.csv", last=100), log(tmp_path / "b.csv", 110, 150)
    study = tmp_path / "study"
    import_logs([first, then], study, settings=told(resumed="apart"))
    apart = [("a", 32, 8, None, steps(0, 100), 100 * 32 * 8),
             ("b", 32, 8, None, steps(110, 150), 150 * 32 * 8)]  # fmt: skip
    assert kept(study) == apart
    other = log(tmp_path / "c.csv", shift=0.05)
    assert import_logs([other], study, settings=told()).stored == ["c"]
    assert kept(study)[:2] == apart
    import_logs([first], study, settings=told(resumed="apart"))
    assert kept(study)[:2] == apart


def test_a_first_half_that_comes_later_is_joined(tmp_path: Path) -> None:
    first, then = log(tmp_path / "a.csv", last=100), log(tmp_path / "b.csv", 130, 150)
    study = tmp_path / "study"
    import_logs([then], study, settings=told())
    log(first, last=120)
    import_logs([first], study, settings=told())
    assert kept(study) == [("a", 32, 8, None, steps(0, 150), 150 * 32 * 8)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
def test_a_table_of_runs_is_read_as_excel_writes_it_in_europe(
    tmp_path: Path, encoding: str
) -> None:
    for n in (4, 8):
        rows = ({"step": k, "eval/acc": 0.3 + k / 100} for k in range(0, 60, 10))
        (tmp_path / f"a{n}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = "Läufe\nrun;problems_per_batch;rollouts_per_problem;seed\na4;32;4;1\na8;16;8;2\n"
    (tmp_path / "runs.csv").write_text(table, encoding=encoding)
    found = read_log(tmp_path)
    assert [(r.problems_per_batch, r.rollouts_per_problem, r.seed) for r in found] == [
        (32, 4, 1), (16, 8, 2),
    ]  # fmt: skip


def test_percent_with_decimal_commas_in_a_log_is_a_share(tmp_path: Path) -> None:
    rows = "".join(f"{10 * k};{30 + k},5 %\n" for k in range(6))
    (tmp_path / "n8.csv").write_text(f"_step;val-core/math/acc/mean@4\n{rows}")
    (run,) = read_log(tmp_path / "n8.csv")
    assert run.series[0].score_K.tolist() == pytest.approx([0.305 + k / 100 for k in range(6)])


def test_what_names_say_is_told_in_one_order_whatever_the_hashes(tmp_path: Path) -> None:
    rows = ({"step": k, "val-core/m/acc/mean@4": 0.3 + k / 100} for k in range(0, 60, 10))
    (tmp_path / "bp16_n4_s1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    runs = read_log(tmp_path)
    assert says("bp{problems_per_batch}_n{rollouts_per_problem}_s{seed}", runs) == (
        "'bp16_n4_s1' had 16 problems in a batch and 4 rollouts per problem and seed 1"
    )
