"""Verifiers: what is right, what is wrong, and what could not be judged."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isocompute import verifiers
from isocompute.errors import InputError
from isocompute.verifiers import (
    Bits,
    Outcome,
    RuleVerifier,
    agreement,
    failed_to_judge,
    last_integer,
    load_verifier,
    read_bits,
    require_verifier,
)
from isocompute.verifiers.worker import answer_question, load_rule


@pytest.mark.parametrize(
    ("spec", "response", "answer", "reward"),
    [
        ("exact", " yes\n", "yes", 1),
        ("exact", "Yes", "yes", 0),
        ("integer", "12 + 30 = 42", "42", 1),
        ("integer", "the answer is 1,200.", "1200", 1),
        ("integer", "042", "42", 1),
        ("integer", "-42", "42", 0),
        ("integer", "42.5", "42", 0),
        ("integer", "1/42", "42", 0),
        ("integer", "nothing", "42", 0),
        ("integer", "42 or 43", "42", 0),
        ("bits>=3", "1011", "1010", 1),
        ("bits>=4", "1011", "1010", 0),
        ("bits>=3", "10111", "1010", 0),  # too long is wrong, whatever agrees
        ("bits>=3", "101", "1010", 0),
        ("bits>=3", "10a0", "1010", 0),
        ("hexbits>=7", "a1", "a0", 1),  # 10100001 and 10100000
        ("hexbits>=8", "A0", "a0", 1),
        ("hexbits>=8", "a1", "a0", 0),
        ("hexbits>=7", "g1", "a0", 0),
    ],
)
def test_rules(spec: str, response: str, answer: str, reward: int) -> None:
    assert load_verifier(spec)(response, answer) == Outcome(reward)


LONG = "1" * 4_301  # what Python's int refuses


@pytest.mark.parametrize(
    ("spec", "response", "answer", "reward"),
    [
        ("integer", f"so it is {LONG}", "1", 0),
        ("integer", f"-0{LONG}", f"-{LONG}", 1),
        ("integer", LONG, LONG + "0", 0),
        ("integer", "\u0664\u0662", "42", 1),  # the digits of another script
        ("countdown", "1*1", f"11>{LONG}", 0),
        ("countdown", "+".join(LONG), f"{LONG}>4301", 1),
        ("countdown", "*".join("9" * 4_600), f"{'9' * 4_600}>0", 0),
        ("bits>=1", LONG, LONG, 1),
        ("hexbits>=1", LONG, LONG, 1),
        ("exact", "\ud800", LONG, 0),
    ],
)
def test_no_length_of_a_response_raises(
    spec: str, response: str, answer: str, reward: int
) -> None:
    assert load_verifier(spec)(response, answer) == Outcome(reward)


@pytest.mark.parametrize("at", ["rule", "fault"])
def test_a_rule_that_raises_gives_no_reward(at: str) -> None:
    def broken(*_: str) -> bool:
        raise RecursionError("too\ndeep")

    verifier = (
        RuleVerifier("own", broken, lambda _: None) if at == "rule"
        else RuleVerifier("own", lambda _r, _a: True, broken)  # type: ignore[arg-type]
    )  # fmt: skip
    assert verifier("1", "1") == Outcome(None, "RecursionError: too deep")


@pytest.mark.parametrize("words", ["a\r\x1b[31mb\tc", "a \ud800 c", "a \x00\u2028 c"])
def test_the_words_of_an_error_can_be_printed_and_kept(words: str) -> None:
    error = failed_to_judge(ValueError(words)).error
    assert error is not None
    assert error.isprintable()
    assert error.startswith("ValueError: a ")
    assert error.endswith("c")
    assert len(failed_to_judge(ValueError("x" * 10**6)).error or "") == 300


def test_parts_of_rules() -> None:
    assert last_integer("+7, -8") == -8
    assert last_integer("x7") is None
    assert last_integer("3.14") is None
    assert read_bits("1011", "bits") == Bits(11, 4)
    assert read_bits("0F", "hexbits") == Bits(15, 8)
    assert read_bits("0F", "bits") is None
    assert read_bits("", "hexbits") is None
    assert agreement(Bits(0b1111, 4), Bits(0b1011, 4)) == 3
    assert agreement(Bits(1, 4), Bits(1, 8)) == 0


@pytest.mark.parametrize(
    ("spec", "answer", "fault"),
    [
        ("exact", " ", "must not be empty"),
        ("integer", "4.5", "must be an integer, but got '4.5'"),
        ("bits>=5", "1010", "0 and 1 with at least 5 bits"),
        ("hexbits>=5", "zz", "hexadecimal with at least 5 bits"),
    ],
)
def test_an_answer_that_cannot_be_matched_is_an_error_not_a_zero(
    spec: str, answer: str, fault: str
) -> None:
    verifier = load_verifier(spec)
    assert fault in (verifier.check_answer(answer) or "")
    outcome = verifier("1010", answer)
    assert outcome.reward is None
    assert fault in (outcome.error or "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("exakt", "must be one of exact, integer, math, .* but got 'exakt'"),
        ("bits", "NAME>=K with K >= 1, but got 'bits'"),
        ("bits>=0", "NAME>=K with K >= 1"),
        ("hexbits>=x", "NAME>=K with K >= 1"),
        ("exact>=3", "but got 'exact>=3'"),
        ("nowhere.py:check", "a file that exists, but got 'nowhere.py:check'"),
    ],
)
def test_bad_specifications(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_verifier(spec)


def test_time_out_must_be_positive() -> None:
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="`timeout_s` of a verifier must be finite and > 0"):
            load_verifier("exact", timeout_s=value)


USER = '''
import os, sys, time
import helper_beside

calls = 0

def check(response, answer):
    global calls
    calls += 1
    print("noise on standard output", flush=True)
    if response == "hang":
        time.sleep(60)
    if response == "raise":
        raise ValueError("no idea\\nsecond line")
    if response == "die":
        os._exit(3)
    if response == "quit":
        sys.exit(1)
    if response == "half":
        return 0.5
    if response == "calls":
        return calls == int(answer)
    if response == "stdin":
        return sys.stdin.read() == ""
    return helper_beside.same(response, answer)
'''


@pytest.fixture(scope="module")
def user_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "helper_beside.py").write_text("def same(a, b):\n    return float(a == b)\n")
    path = folder / "mine.py"
    path.write_text(USER)
    return path


@pytest.fixture(scope="module")
def user_verifier(user_file: Path) -> Iterator[verifiers.Verifier]:
    verifier = load_verifier("mine.py:check", folder=user_file.parent, timeout_s=10)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("4", Outcome(1)),
        ("5", Outcome(0)),
        ("raise", Outcome(None, "ValueError: no idea second line")),
        ("quit", Outcome(None, "SystemExit: 1")),
        ("half", Outcome(None, "a verifier must return 0 or 1, but returned 0.5")),
        ("die", Outcome(None, "the verifier's process ended")),
        ("6", Outcome(0)),  # a new process has taken over
        ("stdin", Outcome(1)),
    ],
)
def test_a_function_of_the_user(
    user_verifier: verifiers.Verifier, response: str, outcome: Outcome
) -> None:
    assert user_verifier(response, "4") == outcome


def test_a_hanging_function_is_killed_and_replaced(user_file: Path) -> None:
    verifier = load_verifier(f"{user_file}:check", timeout_s=0.3)
    assert verifier("calls", "1").reward == 1
    first = verifier._process  # type: ignore[attr-defined]
    started = time.monotonic()
    outcome = verifier("hang", "4")
    assert outcome.reward is None
    assert "no verdict within 0.3" in (outcome.error or "")
    assert time.monotonic() - started < 30  # it slept for 60 s
    assert first.poll() is not None
    verifier.timeout_s = 10  # type: ignore[attr-defined]
    assert verifier("calls", "1").reward == 1  # a fresh process counts from 1
    second = verifier._process  # type: ignore[attr-defined]
    verifier.close()
    verifier.close()
    assert second.poll() is not None


def test_a_worker_does_not_outlive_its_verifier(user_file: Path) -> None:
    verifier = load_verifier(f"{user_file}:check")
    process = verifier._process  # type: ignore[attr-defined]
    del verifier
    process.wait(timeout=30)


def test_nothing_is_kept_of_a_worker_that_crashed(user_file: Path) -> None:
    verifier = load_verifier(f"{user_file}:check")
    ended = [verifier._at_exit]  # type: ignore[attr-defined]
    for _ in range(3):
        assert verifier("die", "4").reward is None
        assert verifier("4", "4") == Outcome(1)
        ended.append(verifier._at_exit)  # type: ignore[attr-defined]
    assert [one.alive for one in ended] == [False, False, False, True]
    verifier.close()


def test_a_verifier_is_tried_once_for_all_runs_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text("def check(r, a):\n    return 1\n"
                    "open('starts', 'a').write('x')\n")  # fmt: skip
    for _ in range(3):
        require_verifier("mine.py:check")
    assert (tmp_path / "starts").read_text() == "x"
    file.write_text("broken = ]")
    for _ in range(2):
        with pytest.raises(InputError, match="verifier 'mine.py:check' must load, but Syntax"):
            require_verifier("mine.py:check")
    file.unlink()
    with pytest.raises(InputError, match="with a file that exists"):
        require_verifier("mine.py:check")


def test_a_copy_starts_a_worker_of_its_own(user_verifier: verifiers.Verifier) -> None:
    copy = pickle.loads(pickle.dumps(user_verifier))
    assert copy("4", "4") == Outcome(1)
    assert copy._process is not user_verifier._process  # type: ignore[attr-defined]
    copy.close()


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def other(r, a): return 1\n", "check", "has no function 'check'"),
        ("1 / 0\n", "check", "ZeroDivisionError"),
        ("check = 3\n", "check", "has no function 'check'"),
        ("def check(:\n", "check", "SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_loaded(
    tmp_path: Path, text: str, function: str, message: str
) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(InputError, match=message):
        load_verifier(f"bad.py:{function}", folder=tmp_path)


def test_missing_math_verify_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from isocompute.verifiers import worker

    verifier = worker.WorkerVerifier("math", target="math", timeout_s=1, start_timeout_s=1)
    monkeypatch.setattr(verifier, "_ensure_started", lambda: "ModuleNotFoundError: math_verify")
    with pytest.raises(InputError, match=r"install it with: pip install 'isocompute\[math\]'"):
        verifier.start()
    assert verifier("1", "1").error == (
        "verifier math did not start: ModuleNotFoundError: math_verify"
    )


@pytest.fixture(scope="module")
def math_verifier() -> Iterator[verifiers.Verifier]:
    pytest.importorskip("math_verify", reason="needs the extra [math]")
    verifier = load_verifier("math", timeout_s=60)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("response", "answer", "reward"),
    [
        (r"So the answer is $\frac{1}{2}$.", "0.5", 1),
        (r"\boxed{2\sqrt{2}}", r"\sqrt{8}", 1),
        (r"\boxed{3}", "4", 0),
        ("no mathematics", "4", 0),
        (r"$\boxed{x^2+2x+1}$", "(x+1)^2", 1),
    ],
)
def test_mathematical_equivalence(
    math_verifier: verifiers.Verifier, response: str, answer: str, reward: int
) -> None:
    assert math_verifier(response, answer) == Outcome(reward)


def test_an_answer_without_mathematics_is_an_error(math_verifier: verifiers.Verifier) -> None:
    outcome = math_verifier("4", " ")
    assert outcome.reward is None
    assert "no mathematics in the answer ' '" in (outcome.error or "")
    assert math_verifier.check_answer(" ") == "the answer must not be empty"
    assert math_verifier.check_answer("4") is None


def test_the_worker_side_without_a_process(user_file: Path) -> None:
    rule = load_rule(f"{user_file}:check")
    assert answer_question(rule, '{"response": "4", "answer": "4", "nonce": "a"}') == {
        "nonce": "a", "reward": 1,
    }  # fmt: skip
    assert answer_question(rule, '{"response": "raise", "answer": "4", "nonce": "b"}') == {
        "nonce": "b", "error": "ValueError: no idea second line",
    }  # fmt: skip
    with pytest.raises(ImportError, match="has no function 'absent'"):
        load_rule(f"{user_file}:absent")
