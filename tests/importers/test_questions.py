"""All that an import cannot settle is asked at once, with one command that can be pasted."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute.cli import main
from isocompute.errors import AskedError, InputError
from isocompute.importers.archive import import_logs
from isocompute.importers.words.asking import ASSUME, asked_at_once, collected
from isocompute.importers.words.paths import parse_by_n
from isocompute.importers.words.scored import Evidence
from isocompute.sources import load_curves
from test_traps import folder

AT = (0, 10, 20, 30, 40)
STEP, SCORE, SIZE, SEED, SET = "step", "score", "size", "seed", "set"


def logs(home: Path, open_: frozenset[str], sizes: tuple[int, ...] = (4, 8)) -> Path:
    """Logs of a loop of one's own that leave some things open."""
    for n in sizes:
        name = f"g{n}" + ("_s2" if SEED in open_ else "")
        config = {} if SIZE in open_ else {"problems_per_batch": 40, "rollouts_per_problem": n}
        rows = [{"config": config | ({} if SEED in open_ else {"seed": 2})}]
        for s in AT:
            score = {"heldout/accuracy" if SCORE in open_ else "eval/accuracy/mean@4": s / 90}
            if SCORE not in open_:
                score = {f"val-core/{name}/acc/mean@4": s / (90 + n + k)
                         for k, name in enumerate(("math", "code") if SET in open_ else ("math",))}
            counter = {"train/global_step": s} if STEP in open_ else {}
            rows.append({"step": (3 if STEP in open_ else 1) * s, **counter, **score})
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


SETTLED = {
    STEP: {"--set": "step=train/global_step"}, SCORE: {"--map": "heldout/accuracy=avg"},
    SIZE: {"--set": "problems_per_batch=B_P"}, SET: {"--problem-set": "PROBLEM_SET"}, SEED: {},
}  # fmt: skip
WAYS = [frozenset(which) for k in range(5) for which in itertools.combinations(SETTLED, k + 1)
        if not {SCORE, SET} <= set(which)]  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("which", WAYS, ids=lambda which: "-".join(sorted(which)))
def test_one_message_asks_all_and_its_commands_settle_all(
    which: frozenset[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = logs(tmp_path, which)
    argv = ["import", str(home), "-o", str(tmp_path / "study")]
    if which & {STEP, SCORE, SIZE}:
        assert main(argv) == 2
        told = capsys.readouterr().err
        lines = [line.strip() for line in told.splitlines() if line.startswith("  isocompute ")]
        if not lines:  # one question, with its option
            with pytest.raises(InputError) as caught:
                import_logs([home], tmp_path / "study")
            lines = [shlex.join(["isocompute", *argv, *caught.value.options])]
        words = shlex.split(lines[0])[1:]
        typed = [word for line in lines for word in shlex.split(line)]
        for flag, value in (pair for one in which for pair in SETTLED[one].items()):
            assert flag in typed
            assert value in typed
        assert f"{len(which - {SET, SEED})} things" in told or len(which - {SET, SEED}) == 1
        assert main([word.replace("B_P", "40") for word in words]) == 0
    else:
        assert main(argv) == 0
        lines = []
    out = capsys.readouterr().out
    fit = out.splitlines()[-1].partition(": isocompute ")[2]
    if SET in which:
        assert "with your own PROBLEM_SET" in out.splitlines()[-1]
        assert not lines or shlex.split(lines[-1])[3:] == ["--problem-set", "PROBLEM_SET"]
        assert fit.endswith(" --problem-set PROBLEM_SET")
    chosen = {"problem_set": "math"} if SET in which else {}
    curves = load_curves(tmp_path / "study", **chosen)
    rollouts = {c.rollouts_per_problem: c.rollouts_K.tolist() for c in curves}
    assert rollouts == {n: [40 * n * s for s in AT] for n in (4, 8)}
    assert {c.seed for c in curves} == ({2} if SIZE in which or SEED not in which else {None})


def test_a_python_caller_hears_all_in_one_error(tmp_path: Path) -> None:
    home = logs(tmp_path, frozenset((STEP, SCORE, SIZE)))
    with pytest.raises(AskedError) as caught:
        load_curves(home)
    assert len(caught.value.asked) == 3
    assert "step=train/global_step" in caught.value.options
    assert "\n" not in str(caught.value)


class Asker:
    """A reader that asks for words it was not given, in order."""

    def __init__(self, wanted: list[str], fatal: bool = False) -> None:
        self.wanted, self.fatal = wanted, fatal

    def __call__(self, words: object) -> str:
        assert isinstance(words, list)
        for word in self.wanted:
            if word not in words:
                raise InputError(f"{word}?", options=("--set", word))
        if self.fatal:
            raise InputError("no log")
        return "read"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([f"k{i}=1" for i in range(6)]), unique=True), st.booleans())
def test_questions_come_in_order_each_once(wanted: list[str], fatal: bool) -> None:
    found, asked = collected(Asker(wanted, fatal))
    under = ["Under these answers: no log" if wanted else "no log"] if fatal else []
    assert [str(one) for one in asked] == [*(f"{word}?" for word in wanted), *under]
    assert (found == "read") is not fatal
    if not asked:
        assert asked_at_once(Asker(wanted)) == "read"
    else:
        kind = AskedError if len(asked) > 1 else InputError
        with pytest.raises(kind) as caught:
            asked_at_once(Asker(wanted, fatal))
        assert caught.value.options == tuple(w for word in wanted for w in ("--set", word))


def test_what_follows_from_an_assumed_number_is_not_asked() -> None:
    def read(words: object) -> str:
        assert isinstance(words, list)
        if ASSUME not in words:
            raise InputError("n?", options=("--set", "rollouts_per_problem=N"),
                             trial=(ASSUME, "rollouts_per_problem"))  # fmt: skip
        if "--metric" not in words:
            raise InputError("metric?", options=("--metric", "avg"))
        raise InputError("two runs?", options=("--where", "run=RUN"))

    assert [str(one) for one in collected(read)[1]] == ["n?", "metric?"]


def test_a_fault_under_a_likely_answer_is_no_fault_of_the_user() -> None:
    def read(words: object) -> str:
        if words:
            raise ZeroDivisionError
        raise InputError("which?", options=("--set", "step=a"))

    with pytest.raises(InputError, match=r"^which\?$"):
        asked_at_once(read)


def test_choices_that_were_pasted_as_they_stand_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with folder() as home:
        for word in ("--set=resumed=JOIN_OR_APART", "--set=begins=BEGINS", "--set=processes=P",
                     "--map=bs=PROBLEMS_PER_BATCH_OR_BATCH_SIZE"):  # fmt: skip
            argv = ["import", str(logs(home, frozenset())), "-o", str(tmp_path / "s"), word]
            assert main(argv) == 2
            assert not (tmp_path / "s").exists()
    capsys.readouterr()


# What names and settings say of several runs.


def sized(home: Path, names: dict[str, int], told: dict[str, int]) -> Path:
    """Logs that say n and what is told, nothing else; every run with scores of its own."""
    for i, (name, n) in enumerate(names.items()):
        config = {"config": {"rollouts_per_problem": n, **told}}
        rows = [{"step": s, "data": {"val-core/math/acc/mean@4": (s + i) / 99}} for s in AT]
        text = "".join(json.dumps(row) + "\n" for row in [config, *rows])
        (home / f"{name}.jsonl").write_text(text)
    return home


@pytest.mark.heavy
@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from([2, 4, 8, 16, 32]), st.integers(1, 500), min_size=1))
def test_a_batch_by_n_is_that_of_each_run(by_n: dict[int, int]) -> None:
    with folder() as home:
        sized(home, {f"run{n}": n for n in by_n}, {})
        said = ",".join(f"{n}:{b_p}" for n, b_p in by_n.items())
        curves = load_curves(home, settings={"problems_per_batch": said})
        assert {c.rollouts_per_problem: c.problems_per_batch for c in curves} == by_n
        missing = ",".join(f"{3 * n}:{b_p}" for n, b_p in by_n.items())
        with pytest.raises(InputError, match="`problems_per_batch` must be known"):
            load_curves(home, settings={"problems_per_batch": missing})


@pytest.mark.parametrize("said", ["4:", "4:8,", "4:8,16", "4:B_P", "0:4", "4:8,4:16"])
def test_a_batch_by_n_has_one_form(said: str) -> None:
    with pytest.raises(InputError, match=r"by n must look like 4:128,8:64"):
        parse_by_n(said)


@pytest.mark.parametrize(("names", "seeds"), [
    (("a_seed1", "b_seed22"), [1, 22]), (("a-seed=3", "b.seed-4"), [3, 4]),
    (("a_data_seed1", "b_eval-seed2"), [None, None]), (("a_s1", "b_s2"), [None, None]),
    (("a_seed1_seed2", "b"), [None, None]),
])  # fmt: skip
def test_the_word_seed_in_a_name_is_read_and_told(
    names: tuple[str, str], seeds: list[int | None], tmp_path: Path
) -> None:
    sized(tmp_path, dict.fromkeys(names, 8), {"problems_per_batch": 16})
    assert sorted(c.seed or 0 for c in load_curves(tmp_path)) == sorted(s or 0 for s in seeds)
    known = sized(tmp_path, dict.fromkeys(names, 8), {"problems_per_batch": 16, "seed": 7})
    assert {c.seed for c in load_curves(known)} == {7}


def test_seeds_that_names_may_say_are_hinted_at_the_end_of_an_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    sized(tmp_path / "logs", {"a-r1": 4, "a-r2": 8}, {"problems_per_batch": 16})
    assert main(["import", str(tmp_path / "logs"), "-o", str(tmp_path / "st")]) == 0
    assert "add --set pattern='r{seed}', if r is the seed" in capsys.readouterr().out


def test_roll_validates_before_the_update_of_the_same_number(tmp_path: Path) -> None:
    """ROLL (1bc1205): a share by tag and over all, of one tag the same."""
    rows = [{"step": s, "data": {"val_correct/all/mean": s / 99, "val_correct/math/mean": s / 99}}
            for s in AT]  # fmt: skip
    config = {"config": {"rollout_batch_size": 32, "num_return_sequences_in_group": 8}}
    text = "".join(json.dumps(row) + "\n" for row in [config, *rows])
    (tmp_path / "roll.jsonl").write_text(text)
    told = {"problems_per_batch": 32, "rollouts_per_problem": 8}
    (curve,) = load_curves(tmp_path, settings=told)
    assert curve.problem_set == "math"
    assert curve.rollouts_K.tolist() == [256 * s for s in AT]
    assert curve.score_K.tolist() == pytest.approx([s / 99 for s in AT])


def test_what_stands_beside_a_loss_is_told_by_two_rows() -> None:
    rows = {"score": 0.5, "reward": 0.25, "loss": 1.5}
    for seen, beside in ((1, []), (2, ["score", "reward"])):
        evidence = Evidence()
        evidence.take(1, 1, {"score": 0.5, "note": "held out"})
        for row in range(2, 2 + seen):
            evidence.take(row, row, rows)
        assert evidence.likely(["score", "reward", "note", "gone"]) == (
            ["score", "reward", "gone"], beside)  # fmt: skip


def test_a_column_that_is_asked_about_for_its_unit_is_not_asked_about_as_a_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "joint.csv"
    rows = [f"{b},{n},{step},{0.2 + n / 99 + b / 999 + step / 999}"
            for b in (16, 32) for n in (4, 8, 16) for step in (20, 40, 80)]  # fmt: skip
    path.write_text("train_batch_size,n,step,val_acc\n" + "\n".join(rows) + "\n")
    assert main(["fit", str(path)]) == 2
    asked = capsys.readouterr().err
    assert "train_batch_size=problems_per_batch if it counts problems" in asked
    assert "--where" not in asked  # it would leave one B_p of a sweep of several
    lines = path.read_text().splitlines()
    judged = [one + judge for judge in ("1,a", "7,b") for one in lines[1:]]
    path.with_name("judged.csv").write_text("\n".join([f"{lines[0]},judge", *judged]) + "\n")
    assert main(["fit", str(path.with_name("judged.csv"))]) == 2
    asked = capsys.readouterr().err
    assert "2 things must be known" in asked
    assert "column judge has a, b" in asked
    maps = ["train_batch_size=problems_per_batch", "n=rollouts_per_problem", "val_acc=score"]
    assert main(["fit", str(path), *(word for one in maps for word in ("--map", one))]) == 0
    assert "16, 32 problems (B_p)" in capsys.readouterr().out
