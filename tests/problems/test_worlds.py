"""Generated worlds: rules checked by hand, parts that share nothing, shipped base models."""

import json
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from isocompute.engines.local.policy import Policy, base_folder  # noqa: E402
from isocompute.engines.local.steps import stream  # noqa: E402 (torch is optional)
from isocompute.engines.local.worlds import (  # noqa: E402
    WORLDS,
    BitRuleWorld,
    CountdownWorld,
    MachineWorld,
    ProductWorld,
    VerbWorld,
    world_problems,
)
from isocompute.errors import InputError  # noqa: E402
from isocompute.verifiers import load_verifier  # noqa: E402
from isocompute.verifiers.countdown import value_of  # noqa: E402


@pytest.mark.parametrize("name", WORLDS)
def test_problems_repeat_and_parts_share_no_prompt(name):
    world = WORLDS[name]()
    one, two = world.problems("a", 60, seed=1), world.problems("a", 60, seed=1)
    assert one.sha256 == two.sha256 != world.problems("a", 60, seed=2).sha256
    assert len({p.prompt for p in one.problems}) == 60
    assert {p.source for p in one.problems} == {name}
    train = {p.prompt for p in world.problems("t", 100, seed=3, part="train").problems}
    held = {p.prompt for p in world.problems("v", 100, seed=3, part="validation").problems}
    assert len(train) == len(held) == 100
    assert not train & held
    with pytest.raises(InputError, match="`part` must be one of train, validation, but got 'tr"):
        world.problems("t", 1, seed=0, part="training")


@pytest.mark.heavy
@pytest.mark.parametrize("name", WORLDS)
def test_demonstrations_without_noise_are_right_and_with_noise_often_not(name):
    world = WORLDS[name]()
    right = {p.prompt: p.answer for p in world.problems("a", 3000, seed=1).problems}
    words, verify = world.tokenizer(), load_verifier(world.verifier)

    def share(noise):
        rng = np.random.default_rng(0)
        shown = world.demonstrate(400, noise, rng)
        for text in shown:
            tokens = words.encode(text.prompt) + words.encode(text.response)
            assert words.decode(tokens) == text.prompt + text.response
            length = len(words.encode(text.response)) + (words.end is not None)
            assert length <= world.max_new_tokens
        answer = {t.prompt: t.response for t in world.draw(400, np.random.default_rng(1))} | right
        judged = [verify(t.response, answer[t.prompt]).reward for t in shown if t.prompt in answer]
        return np.mean(judged) if judged else None

    clean, noisy = share(0.0), share(0.5)
    if name == "bits":  # 2**32 prompts: none returns
        assert clean is None
    elif name == "verbs":  # exceptions are shown as the rule would have them, most of the time
        assert 0.4 < clean < 0.75
        assert noisy < clean
    else:
        assert clean == 1.0
        assert 0.05 < noisy < 0.9


def test_a_machine_by_hand():
    world = MachineWorld(moves=3, shortest=2, longest=4)
    assert [sorted(column) for column in world.table.T.tolist()] == [list(range(10))] * 3
    for problem in world.problems("m", 30, seed=0).problems:
        state, *moves = (int(c) for c in re.findall(r"[0-9]", problem.prompt))
        assert 2 <= len(moves) <= 4
        for move in moves:
            state = world.table[state, move]
        assert problem.answer == str(state)
    verify = load_verifier("integer")
    assert verify("a3b1=1", "1").reward == verify("=1", "1").reward == 1
    assert verify("a3b1", "1").reward == 0  # a state on the way is no answer
    # The same entries are shown wrong, in shares from 0 to twice the noise.
    wrong, false = world._belief(0.3)
    assert 0 < wrong.min() < 0.1 < 0.5 < wrong.max() < 0.6
    assert not (false == world.table).any()


def test_products_and_expressions_by_hand():
    for problem in ProductWorld(largest=30).problems("p", 40, seed=0).problems:
        a, b = map(int, problem.prompt.split("*"))
        assert 2 <= a <= 30
        assert int(problem.answer) == a * b
    rng = np.random.default_rng(0)
    ways = [t.response for t in ProductWorld().demonstrate(200, 0.0, rng)]
    assert 0.6 < np.mean([w.startswith(":") for w in ways]) < 0.8
    for way in (w for w in ways if w.startswith(":")):
        tens, units, total = map(int, re.findall(r"\d+", way))
        assert tens + units == total
    for problem in CountdownWorld(fewest=2, most=5).problems("c", 40, seed=0).problems:
        digits, target = problem.prompt.split(">")
        assert 2 <= len(digits) <= 5
        assert 1 <= int(target) <= 60


def test_regular_pairs_follow_the_rule_and_exceptions_their_own_form():
    world = VerbWorld(stems=5, endings=4, contexts=7)
    rule = world.rule
    assert 0.3 < rule.own_UV.mean() < 0.9
    # Both digits of an exception differ from the rule's, so that a guess by the rule is wrong.
    assert not (rule.first_UV == rule.first_U[:, None]).any()
    assert not (rule.second_UV == rule.second_V[None]).any()
    assert rule.first_U.min() >= 1
    assert rule.first_UV.min() >= 1
    kinds = {1: set(), 2: set()}
    for kind, seen in kinds.items():
        chosen = VerbWorld(stems=5, endings=4, contexts=7, kind=kind)
        assert chosen.rule.first_U.tolist() == rule.first_U.tolist()
        for problem in chosen.problems("v", 40, seed=0).problems:
            u, v, w = map(int, re.findall(r"[0-9]+", problem.prompt))
            seen.add((u, v))
            assert rule.own_UV[u, v] == (kind == 2)
            first = rule.first_UV[u, v] if kind == 2 else rule.first_U[u]
            second = rule.second_UV[u, v] if kind == 2 else rule.second_V[v]
            assert problem.answer == f"{first}{second}{rule.third_W[w]}"
    assert not kinds[1] & kinds[2]


@pytest.mark.heavy
def test_exceptions_are_shown_after_a_way_only_and_more_often_after_a_longer_one():
    world = VerbWorld(way=3, kind=2)
    verify = load_verifier("integer")
    by_steps = {steps: [] for steps in range(4)}
    for text in world.demonstrate(6000, 0.0, np.random.default_rng(0)):
        u, v, w = map(int, re.findall(r"[0-9]+", text.prompt))
        steps = text.response.count("~")
        assert text.response.startswith(f"~u{u:02d}v{v:02d}" * steps + "=")
        own = f"{world.rule.first_UV[u, v]}{world.rule.second_UV[u, v]}{world.rule.third_W[w]}"
        by_steps[steps].append(verify(text.response, own).reward)
    share = [np.mean(by_steps[steps]) for steps in range(4)]
    assert share[0] == 0
    # Squares of uniform numbers: a third of the longest ways, and a third of that of a step.
    mean = world.rule.shown_UV[world.rule.own_UV].mean()
    assert 0.28 < mean < 0.39
    for steps in (1, 2, 3):
        assert share[steps] == pytest.approx(mean * steps / 3, abs=0.04)
    assert len(by_steps[0]) / 6000 == pytest.approx(0.4, abs=0.02)


@pytest.mark.heavy
def test_a_way_takes_off_noise():
    world = VerbWorld(kind=1)

    def wrong(noise):
        rng = np.random.default_rng(1)
        shown = world.demonstrate(4000, noise, rng)
        right = {"": [], "~": []}
        for text in shown:
            u, v, w = map(int, re.findall(r"[0-9]+", text.prompt))
            digits = f"{world.rule.first_U[u]}{world.rule.second_V[v]}{world.rule.third_W[w]}"
            right["~" * text.response.startswith("~")].append(text.response.endswith(digits))
        return [1 - np.mean(right[way]) for way in ("", "~")]

    assert wrong(0.0) == [0, 0]
    at_once, with_way = wrong(0.1)
    assert 0.15 < at_once < 0.35
    assert with_way < at_once / 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("2+3*4", 14), ("2*3-4*5+1", -13), ("9-3-2", 4), ("", None), ("3+", None),
     ("3 + 4", None), ("12+3", None), ("3**4", None), ("-3+4", None)],
)  # fmt: skip
def test_values_of_expressions(text, value):
    assert value_of(text) == value
    if value is not None:
        assert value == eval(text, {"__builtins__": {}})


def test_the_countdown_verifier():
    verify = load_verifier("countdown")
    for response, reward in (
        ("3*5+7", 1), ("7+5*3", 1), ("5*3+7 ", 1), ("3+5+7", 0), ("3*5+8", 0), ("3*7+1", 0),
        ("3*5+7+0", 0), ("22", 0), ("", 0), ("35+7", 0),
    ):  # fmt: skip
        assert verify(response, "357>22").reward == reward
    assert verify("3", "seven").reward is None
    with pytest.raises(InputError, match="a verifier must be one of .*countdown"):
        load_verifier("countdown>=3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": "chess"}, "`world` must be one of bits, machine, .* but got 'chess'"),
        ({"depth": 2}, "options of the world 'bits' must be among size, .* got 'depth'"),
        ({"gain": "high"}, "`gain` of the world 'bits' must be a number, but got 'high'"),
        ({"agree": 20.5}, "`agree` of the world 'bits' must be a whole number, but got 20.5"),
        ({"size": 0}, "`size` must be an integer >= 1, but got 0"),
        ({"seed": -1}, "`seed` must be an integer >= 0, but got -1"),
        ({"part": "test"}, "`part` must be one of train, validation, but got 'test'"),
        ({"world": "machine", "moves": 11}, "1 <= moves <= 10, but got 11"),
        ({"world": "machine", "shortest": 5, "longest": 4}, r"longest <= 25, but got \(5, 4\)"),
        ({"world": "machine", "shortest": 1, "longest": 1}, "size=99 .* only 60 were found"),
        ({"world": "products", "largest": 100}, "2 <= largest <= 99, but got 100"),
        ({"world": "countdown", "most": 7}, r"most <= 6, but got \(3, 7\)"),
        ({"world": "countdown", "largest": 9}, "10 <= largest <= 99, but got 9"),
        ({"world": "verbs", "kind": 3}, r"kind 0 \(all\), 1 .*, but got 3"),
        ({"world": "verbs", "exceptions": 1.5}, "0 <= exceptions <= 1, but got 1.5"),
        ({"world": "verbs", "exceptions": 0.0, "kind": 2}, "a pair of the kind asked for, but got"),
        ({"world": "verbs", "exceptions": 1, "kind": 1}, "a pair of the kind asked for, but got"),
    ],
)
def test_worlds_that_cannot_be_made(options, message):
    with pytest.raises(InputError, match=message):
        world_problems("train", **{"size": 99, **options})


def test_options_change_the_problems():
    made = world_problems("train", size=5, seed=3, agree=9)
    assert made.verifier == "hexbits>=9"
    assert made.sha256 == BitRuleWorld(agree=9).problems("train", 5, seed=3).sha256
    first = world_problems("train", size=9, world="machine")
    for change in ({"moves": 3}, {"shortest": 4}, {"longest": 4}, {"rule_seed": 1}, {"seed": 1},
                   {"part": "train"}):  # fmt: skip
        assert world_problems("train", size=9, world="machine", **change).sha256 != first.sha256
    first = world_problems("train", size=9, world="verbs")
    for change in ({"stems": 3}, {"endings": 4}, {"contexts": 4}, {"rule_seed": 1}, {"kind": 1},
                   {"exceptions": 0.9}):  # fmt: skip
        assert world_problems("train", size=9, world="verbs", **change).sha256 != first.sha256
    longer = VerbWorld(way=2)  # problems stay, responses may take more words
    assert longer.problems("train", 9, 0).sha256 == first.sha256
    assert longer.max_new_tokens == VerbWorld().max_new_tokens + 3 == 13


@pytest.mark.heavy
@pytest.mark.parametrize("name", [*WORLDS, "bits-mlp", "verbs-long"])
def test_shipped_base_models_know_their_world_partly(name):
    policy = Policy(base_folder(name))
    origin = json.loads((policy.folder / "world.json").read_text())
    kind = WORLDS[origin.pop("world")]
    del origin["supervision"]
    world = kind(**origin)
    if name in WORLDS:
        assert world == kind()  # what a study file gets by naming the world
    problems = policy.tokenize(world.problems("probe", 200, seed=5))
    drawn = policy.count_successes(problems, 16, stream(0), temperature=1.0)
    rate = drawn.successes_P.double() / 16
    assert drawn.tokens <= 200 * 16 * world.max_new_tokens
    assert 0.1 < rate.mean() < 0.6
    assert ((rate >= 0.3) & (rate <= 0.6)).double().mean() > 0.05
    assert (policy.folder / "model.safetensors").stat().st_size < 600_000


@pytest.mark.heavy
def test_difficulty_of_every_world_and_of_own_files(tmp_path, capsys):
    from isocompute.cli import main
    from isocompute.problems import load_problems, select_problems

    few = ["--samples", "4", "--second-stage", "16"]
    for name in WORLDS:
        out = tmp_path / f"{name}.jsonl"
        given = f"world:{name},size=40,seed=1"
        assert main(["difficulty", given, "--model", name, "-o", str(out), *few]) == 0
        measured = load_problems(out)
        assert len(measured) == 40
        assert all(p.pass_rate is not None for p in measured.problems)
        assert {p.pass_rate_samples for p in measured.problems} == {4, 16}
    shown = capsys.readouterr().out
    assert "recipe:" in shown
    # The same through files of one's own: JSONL as it was written, and Parquet.
    hard = select_problems(load_problems(tmp_path / "countdown.jsonl"), "hard")
    assert hard.verifier == "countdown"
    rows = [{"prompt": p.prompt, "answer": p.answer} for p in measured.problems]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "own.parquet")
    own = [str(tmp_path / "own.parquet"), "--verifier", "countdown"]
    document = tmp_path / "own.json"
    given = [*own, "--model", "countdown", "--json", str(document), *few]
    assert main(["difficulty", *given]) == 0
    found = json.loads(document.read_text())
    assert found["n_problems"] == 40
    never = sum(p["samples"] == 16 for p in found["problems"])  # in the first stage
    assert found["rollouts"] == 40 * 4 + never * 12
    assert main(["difficulty", "world:chess", "--model", "bits"]) == 2
    assert main(["difficulty", "world:machine,size=9", "--model", "bits"]) == 2
    assert "text must be made of the model's" in capsys.readouterr().err
