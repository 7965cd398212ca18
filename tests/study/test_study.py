"""Study files: numbers are numbers, mistakes are named, everything is checked beforehand."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest

from isocompute.allocation import Rates, evaluation_index
from isocompute.cli.tables import cost_line, sharing_lines
from isocompute.domain import Configuration
from isocompute.domain.text import compact
from isocompute.engines import problem_generators
from isocompute.engines.verl import VerlEngine
from isocompute.errors import InputError
from isocompute.recipe import Recipe
from isocompute.runner import calibrate, open_study, run_study
from isocompute.runner.execute import slice_of
from isocompute.store import Store
from isocompute.study import RunSpec, Study, load_study
from isocompute.study.adaptive import Bounds, Decision, Grid, Look
from isocompute.study.cost import Calibration, most_starts, on_grid, study_cost
from isocompute.study.evaluated import Evaluated
from isocompute.study.rates import BatchRate, RatesByBatch
from isocompute.study.sweep import DOUBLING, Limits
from isocompute.study.yaml12 import parse_yaml
from study_helpers import FAST, small_study

STUDY = """
name: a study
engine: simulator
engine_options: {answers: 8, correct: 2}
problems:
  train: {generated: simulated, options: {size: 24}}
  validation:
    val: {generated: simulated, options: {size: 10}}
recipe: {learning_rate: 1e-3, temperature: 1.0}
grid:
  problems_per_batch: 4
  rollouts_per_problem: {low: 2, high: 16}
  seeds: 2
  max_batch: 32
budget: 1e3
evaluation: {samples: 2, per_octave: 2, first: 16}
limits: {wall_s: 60, retries: 1}
slices: [0.5, 1]
"""


@pytest.fixture
def load(tmp_path):
    def load(text=STUDY, *overrides):
        path = tmp_path / "my study.yaml"
        path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
        return load_study(path, overrides=overrides, generators=problem_generators())

    return load


def test_defaults_of_a_study_are_those_that_are_documented(load):
    """As docs/ and the docstrings have them; a run that is made by hand has the same."""
    kept = STUDY[: STUDY.index("evaluation:")]
    study = load(kept, "adaptive.target=1000")
    assert (study.limits, study.slices) == (Limits(), DOUBLING)
    assert (Limits().retries, Limits().wall_s, Limits().memory_gb) == (2, None, None)
    assert load(kept).slices == (0.125, 0.25, 0.5, 1.0)
    assert study.adaptive == Bounds(target=1000.0)
    bounds = Bounds(target=1.0)
    assert (bounds.chance, bounds.improvement, bounds.tolerance) == (0.02, 0.0006, 0.002)
    default = {f.name: f.default for f in fields(RunSpec)}
    for name, value in (("evaluation_samples", 4), ("evaluations_per_octave", 3),
                        ("first_evaluation", 1024)):  # fmt: skip
        assert getattr(study.runs[0], name) == value == default[name]


@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize(("after", "to"), [(0, 13), (4, 13), (8, 64), (13, 64), (64, 64)])
def test_evaluations_between_two_steps_are_those_that_a_study_counts(share, after, to):
    study = small_study(ns=(4,), rollouts=16 * to)
    spec, verl = study.runs[0], {"model": "m", "validation_share": share}

    def of_verl(of):
        return VerlEngine().evaluations(replace(of, engine="verl", engine_options=verl))

    how = Evaluated.of(spec.to_dict(), share)
    times = study_cost(study, steps={spec.hash: after}, evaluations=of_verl if share else on_grid)
    assert how.drawn(16, 16 * after, 16 * to) == times.evaluation_rollouts


def test_a_grid_of_all_splits_of_a_batch(load):
    def splits(*overrides):
        runs = load(STUDY.replace("problems_per_batch: 4", "batch_size: 32"), *overrides).runs
        return [
            (a.problems_per_batch, a.rollouts_per_problem, a.steps)
            for a in (s.allocation for s in runs if s.seed == 0)
        ]

    assert splits() == [(16, 2, 31), (8, 4, 31), (4, 8, 31), (2, 16, 31)]
    two = splits("grid.batch_size=[16, 32]", "grid.rollouts_per_problem=[4, 8]")
    assert two == [(4, 4, 62), (2, 8, 62), (8, 4, 31), (4, 8, 31)]
    powers = splits("grid.batch_size={low: 8, high: 16}", "grid.rollouts_per_problem=[4]")
    assert powers == [(2, 4, 125), (4, 4, 62)]
    assert splits("grid.batch_size=[16, 64]")[0] == (8, 2, 62)  # max_batch: 32
    assert len(splits("grid.batch_size=[16, 64]")) == 4
    message = "`batch_size` must be a multiple of every rollouts_per_problem, but got 32 and 3"
    with pytest.raises(InputError, match=message):
        splits("grid.rollouts_per_problem=[2, 3]")


def test_columns_of_a_file_may_have_other_names(load, tmp_path):
    rows = [{"question": f"{i} + 1", "answer": str(i + 1)} for i in range(8)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = "train: {path: sums.jsonl, columns: {prompt: question}}"
    text = STUDY.replace("train: {generated: simulated, options: {size: 24}}", named)
    study = load(text)
    assert [p.prompt for p in study.runs[0].train.problems][:2] == ["0 + 1", "1 + 1"]
    with pytest.raises(InputError, match=r"rename it, .*columns: \{prompt: question\}"):
        load(text.replace(", columns: {prompt: question}", ""))
    with pytest.raises(InputError, match="`columns` must name id, prompt, answer"):
        load(text.replace("{prompt: question}", "{text: question}"))
    with pytest.raises(InputError, match="`columns` needs a `path`"):
        load(STUDY.replace("options: {size: 24}", "columns: {prompt: q}, options: {size: 24}"))


def test_a_run_takes_no_more_updates_than_the_grid_says(load):
    study = load(STUDY, "grid.max_steps=60")
    assert [s.allocation.steps for s in study.runs[:3]] == [60, 60, 31]
    split = load(STUDY.replace("problems_per_batch: 4", "batch_size: 32"), "grid.max_steps=30")
    assert {s.allocation.steps for s in split.runs} == {30}


def test_a_file_becomes_runs(load):
    study = load()
    assert [s.allocation.rollouts_per_problem for s in study.runs] == [2, 4, 8] * 2  # 64 > 32
    assert [s.allocation.steps for s in study.runs[:3]] == [125, 62, 31]
    assert {s.seed for s in study.runs} == {0, 1}
    spec = study.runs[0]
    assert spec.recipe.learning_rate == 1e-3  # PyYAML would have read text
    assert (spec.evaluation_samples, spec.evaluations_per_octave) == (2, 2)
    assert spec.first_evaluation == 16
    assert (len(spec.train), len(spec.validation["val"])) == (24, 10)
    assert (study.name, study.limits.wall_s, study.limits.retries) == ("a study", 60, 1)
    assert study.slices == (0.5, 1.0)
    assert study.rollouts == sum(s.allocation.rollouts for s in study.runs)


def test_the_name_is_the_files_where_none_is_given(load):
    assert load(STUDY.replace("name: a study", "")).name == "my study"


def test_overrides(load):
    study = load(STUDY, "budget=5e2", "grid.seeds=[3]", "recipe.kl_estimator=k1",
                 "rates.usd_per_gpu_hour=2")  # fmt: skip
    assert [s.allocation.steps for s in study.runs] == [62, 31, 15]
    assert {s.seed for s in study.runs} == {3}
    assert study.runs[0].recipe.kl_estimator == "k1"
    assert study.rates.usd_per_gpu_hour == 2.0


def test_arms_multiply(load):
    arms = STUDY.replace(
        "recipe: {learning_rate: 1e-3, temperature: 1.0}",
        "recipes: {plain: {}, easy: {difficulty: easy, learning_rate: 2e-3}}",
    )
    study = load(arms)
    assert len(study.runs) == 12
    assert {s.recipe.kl_coef for s in study.runs} == {0.0, Recipe.for_difficulty("easy").kl_coef}
    two = STUDY[: STUDY.index("problems:")] + """
problems:
  easy:
    train: {generated: simulated, options: {size: 24}}
    validation: {val: {generated: simulated, options: {size: 10}}}
  hard:
    train: {generated: simulated, options: {size: 30}}
    validation: {val: {generated: simulated, options: {size: 10}}}
""" + STUDY[STUDY.index("recipe:") :]  # fmt: skip
    assert {len(s.train) for s in load(two).runs} == {24, 30}


def test_problem_files_lie_beside_the_study_file(load, tmp_path):
    lines = [json.dumps({"id": str(i), "prompt": f"{i}?", "answer": str(i), "pass_rate": i / 10})
             for i in range(10)]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    text = STUDY.replace(
        "{generated: simulated, options: {size: 24}}",
        "{path: p.jsonl, verifier: integer, pass_rate: [0.3, 0.8], size: 4, seed: 1}",
    )
    train = load(text).runs[0].train
    assert len(train) == 4
    assert all(0.3 <= p.pass_rate <= 0.8 for p in train.problems)
    assert train.verifier == "integer"
    assert load(text, "problems.train.seed=2").runs[0].train.sha256 != train.sha256
    assert len(load(text, "problems.train=p.jsonl").runs[0].train) == 10


@pytest.mark.heavy
def test_parts_bands_and_mixtures_of_a_file(load, tmp_path):
    rates = [0.0, 0.0625, 0.4, 0.5, 0.8] * 40
    lines = [json.dumps({"id": str(i), "prompt": f"{i}?", "answer": str(i), "pass_rate": rate,
                         "pass_rate_samples": 128 if rate == 0 else 16})
             for i, rate in enumerate(rates)]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("\n".join(lines))

    def taken(words, *overrides):
        entry = "{path: p.jsonl, verifier: integer, " + words + "}"
        run = load(STUDY, f"problems.train={entry}", *overrides).runs[0]
        return run.train

    def ids(problems):
        return {p.id for p in problems.problems}

    held = "held_out: 60, part: "
    train, validation = taken(held + "train"), taken(held + "validation")
    assert (len(train), len(validation)) == (140, 60)
    assert not ids(train) & ids(validation)
    # Every set of one part avoids every set of the other, whatever is selected or drawn.
    for words in ("band: hard", "mixture: hetero_tri", "size: 30, seed: 5", "pass_rate: [0.1, 1]"):
        assert ids(taken(held + f"train, {words}")) < ids(train)
        assert ids(taken(held + f"validation, {words}")) < ids(validation)
    assert {p.pass_rate for p in taken("band: very_easy").problems} == {0.8}
    assert {p.pass_rate for p in taken("band: extremely_hard").problems} == {0.0}
    dual = taken("mixture: hetero_dual, size: 40")
    assert sorted(p.pass_rate for p in dual.problems)[:21][-1] > 0
    assert sum(p.pass_rate == 0 for p in dual.problems) == 20
    own = taken("mixture: {hard: 0.8, easy: 0.2}, size: 50")
    assert sum(p.pass_rate < 0.1 for p in own.problems) == 40
    assert taken("mixture: hetero_tri, size: 40, seed: 1").sha256 != (
        taken("mixture: hetero_tri, size: 40").sha256
    )
    # A smaller set lies within a larger one of the same seed.
    assert ids(taken("band: hard, size: 10")) < ids(taken("band: hard, size: 40"))
    for words, message in (
        ("held_out: 5", "`held_out` and `part` must be given together"),
        ("part: train", "`held_out` and `part` must be given together"),
        ("held_out: 5, part: test", "'train' or 'validation', but got 'test'"),
        ("band: easy, pass_rate: [0, 1]", "only one of `band`, `pass_rate` and `mixture`"),
        ("band: heavy", "'easy', 'hard', .* but got 'heavy'"),
        ("mixture: hetero", "but got 'hetero'"),
        ("mixture: hetero_tri, size: 200", r"holds hard 80 \(needs 100\), .* size=200"),
        ("held_out: 200, part: train", "`1 <= validation < 200` must hold"),
    ):
        with pytest.raises(InputError, match=message):
            taken(words)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("max_steps=5", r"got 'max_steps'; it belongs elsewhere in the file, docs/sweep\.md"),
        ("grid.sedes=2", r"got 'grid\.sedes'; did you mean 'seeds'\?"),
        ("recipe.kl_coeff=0.1", r"got 'recipe\.kl_coeff'; did you mean 'kl_coef'\?"),
        ("grid.rollouts_per_problem=2,4", r"got '2,4'; write a list: \[2,4\]\.$"),
        ("zzz=1", r"known words only, but got 'zzz'; remove it, or take one of adaptive, allow,"),
        ("grid.seed=3", r"got 'grid\.seed'; did you mean 'seeds'\?"),
        ("problems.validation.path.sise=3", r"sise'; did you mean 'size'\?"),
        ("recipe.lr=1", r"got 'recipe\.lr'; did you mean 'learning_rate'\?"),
        ("recipe.kl=1", r"got 'recipe\.kl'; did you mean 'kl_coef' or 'kl_estimator'\?"),
        ("evaluation.k=4", r"remove it, or take one of first, per_octave, samples\.$"),
        ("recipe=fast", r"^recipe of 'my study\.yaml' must be a section, words with values, but"),
        ("slices=[]", "^slices of .* must hold at least 1 item, but got"),
        ("allow=shared_prompts", "^allow of .* must be a list, but got 'shared_prompts'"),
        ("allow=[shared_prompt]", "must be 'shared_prompts', 'changed_files', .* 'shared_prompt';"),
        ("recipe.kl_coef=hi", r"recipe\.kl_coef of 'my study\.yaml'.*valid number"),
        ("recipe.objective=grop", "'grpo', 'ppo' or 'cispo', but got 'grop'"),
        ("recipe.learning_rate=-1", "`learning_rate` must be finite and > 0"),
        ("budget=0", "finite amount > 0"),
        ("budget=12 bananas", "finite amount > 0"),
        ("budget=true", "valid number, but got True"),
        ("budget=3", r"the smallest of the grid has 8 rollouts, the budget 3, max_batch 32; raise"),
        ("grid.max_batch=2", r"budget and max_batch, .* has \d+ .*, max_batch 2; raise it, or ask"),
        ("budget=1e30", r"at most 1e\+15 rollouts per run, but got 1e\+30"),
        ("grid.seeds=1000000000", "less than or equal to 1000000, but got 1000000000"),
        ("grid.seeds=100000", "at most 100,000 runs, but the grid asks for 300,000"),
        ("evaluation.samples=1000000000", "evaluation.samples .* less than or equal to 1000000"),
        ("problems.train.options.size=1e12", "at most 10,000,000, but got size="),
        ("recipe.learning_rate=1e300", r"`learning_rate` must be finite and > 0 and at most 1e"),
        ("budget=5e6tok", "the study file has no `rates.tokens_per_rollout`; add it, or give"),
        ("budget=$5", "no `rates.usd_per_gpu_hour` and no `rates.rollouts_per_gpu_hour`; add"),
        ("budget=5gpuh", "the study file has no `rates.rollouts_per_gpu_hour`; add it"),
        ("grid.rollouts_per_problem={low: 8}", r"must have 'grid\.rollouts_per_problem\.high'"),
        ("grid.rollouts_per_problem={low: 8, high: 4}", "`low <= high` must hold"),
        ("grid.problems_per_batch=[4, 4]", "and each once"),
        ("grid.problems_per_batch=2.5", "valid integer"),
        ("grid.problems_per_batch=null", "exactly one of `problems_per_batch` and `batch_size`"),
        ("grid.batch_size=32", "exactly one of `problems_per_batch` and `batch_size`"),
        ("grid.max_steps=0", "greater than or equal to 1"),
        ("grid.seeds=[]", "at least one number, and each once"),
        ("grid.seeds=[-1]", "greater than or equal to 0"),
        ("slices=[0.5]", "ascending fractions in"),
        ("slices=[0.7, 0.5, 1]", "ascending fractions in"),
        ("slices=[true]", r"slices\.0 .*valid number, but got True"),
        ("recipe.learning_rate=true", r"recipe\.learning_rate .*valid number, but got True"),
        ("recipe.warmup_steps=true", "valid integer, but got True"),
        ("recipe.gradient_rollouts='4'", "valid integer, but got '4'"),
        ("limits.wall_s=true", "valid number, but got True"),
        ("rates.usd_per_gpu_hour=true", "valid number, but got True"),
        ("adaptive={chance: true}", "valid number, but got True"),
        ("budget=1e999", "numbers of override 'budget' must be finite, but it is inf"),
        ("limits.wall_s=0", "limit `wall_s` must be finite and > 0"),
        ("problems.train.generated=nothing", "`generated` must be one of simulated, world"),
        ("problems.train.options.sizes=3", "must be those that are known, size, but got .*sizes"),
        ("problems.train.options.name=x", "options of 'train' hold `name`; remove it"),
        ("a." * 2000 + "b=1", r"at most 16 sections .* begins with 'a\.a.* names 2,001"),
        ("problems.train.path=x.jsonl", "exactly one of `path` and `generated`"),
        ("problems.train=missing.jsonl", "missing.jsonl"),
        ("problems.validation={}", "at least 1 item"),
        ("recipes={a: {}}", "only one of `recipe` and `recipes`"),
        ("grid={sedes: 1, budgets: 2}", r"'grid.sedes'; did you mean 'seeds'\? \(at fault, too: "
                                        r"grid.budgets, grid.rollouts_per_problem\)"),
        ("no equals sign", "an override must read key=value"),
        ("name.x=1", "must name a word inside sections, but 'name' is no section, it is 'a study'"),
        ("budget=[1", "must be valid YAML"),
    ],
)
def test_mistakes_are_named_in_one_line(load, override, message):
    with pytest.raises(InputError, match=message) as caught:
        load(STUDY, override)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object:os.system x", "without tags, but line 1"),
        ("a: !!str 1", "without tags"),
        ("a: &x 1", "without anchors and aliases"),
        ("a: [&x [1], *x]", "without anchors and aliases"),
        ("a: {b: 1, <<: {b: 2, c: 3}}", "without merge keys, but line 1"),
        ("a: 1\na: 2", "without repeated keys, but in line 2"),
        ("a: [1", "must be valid YAML 1.2"),
        ("- 1\n--- \n- 2", "must be valid YAML 1.2"),
        ("a: .nan", "must be finite, but a is nan"),
        ("a: [1, {b: -.inf}]", r"must be finite, but a\[1\]\.b is -inf"),
        ("a: 2024-01-01", "a is a date; put it in quotes"),
        ("1: 2", "keys of .* must be text, but got 1"),
        ("[" * 30 + "]" * 30, "at most 16 levels deep"),
        ("a: \x07", "must be valid YAML"),
    ],
)
def test_row_21_yaml_is_data(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_yaml(text, where="'f.yaml'")
    assert "\n" not in str(caught.value)
    assert len(re.findall(r" (must|may) ", str(caught.value))) == 1  # no rule inside another


def test_row_21_numbers_are_numbers():
    text = "{a: 1e-3, b: 1E3, c: 010, d: 0x10, e: yes, f: 1:30, g: ~, h: true, i: '1e-3', j: no}"
    assert parse_yaml(text, where="x") == {
        "a": 1e-3, "b": 1e3, "c": 10, "d": 16, "e": "yes", "f": "1:30", "g": None, "h": True,
        "i": "1e-3", "j": "no",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "- 1", "text", b"\xff\xfe\x00", b"\x00\x01", "a" * (2 << 20)])
def test_files_that_are_no_study(load, text):
    with pytest.raises(InputError, match="my study.yaml|study file"):
        load(text)


def test_a_missing_file(tmp_path):
    (tmp_path / "sweep.yaml").touch()
    with pytest.raises(InputError, match=r"file not found: .*Did you mean .*sweep.yaml"):
        load_study(tmp_path / "sweap.yaml")
    with pytest.raises(InputError, match="must be readable"):
        load_study(tmp_path)


@pytest.mark.parametrize(
    "override",
    ["engine_options.api_key=abc", "engine_options.hf_token=x", "name=hf_abcdefghijklmnopqrst",
     "engine_options.x={password: p}", "engine_options.x=[sk-abcdefghijklmnop1234]",
     "engine_options.private_key=[a, b]", "engine_options.url=https://me:pass1@host/v1"],
)  # fmt: skip
def test_row_27_secrets_are_refused(load, override):
    with pytest.raises(InputError, match="must not hold secrets"):
        load(STUDY, override)


@pytest.mark.heavy
def test_row_27_the_environment_is_not_written(load, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "very-secret-value-123")
    run_study(small_study(ns=(2,)), tmp_path / "s", workers=1, settings=FAST)
    assert b"very-secret-value-123" not in (tmp_path / "s" / "study.db").read_bytes()


@pytest.mark.parametrize(
    ("override", "name"),
    [("engine_options.trust_remote_code=true", "trust_remote_code"),
     ("engine_options.model=m/weights.pt", "pickle"),
     ("engine_options.weights_only=false", "weights_only")],
)  # fmt: skip
def test_row_20_code_in_models_is_refused_unless_asked_for(load, override, name):
    with pytest.raises(InputError, match="engine_options"):
        load(STUDY, override)
    load(STUDY, override, f"allow=[{name}]")


def test_open_study_asks_the_engine(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(STUDY)
    assert len(open_study(path).runs) == 6
    with pytest.raises(InputError, match="the simulator supports only"):
        open_study(path, ["recipe.kl_coef=0.1"])
    with pytest.raises(InputError, match="`problems_per_batch` must not exceed"):
        open_study(path, ["grid.problems_per_batch=32", "grid.max_batch=null"])


def test_a_study_checks_itself():
    study = small_study()
    with pytest.raises(InputError, match="no run may occur twice"):
        replace(study, runs=[study.runs[0], study.runs[0]])
    arms = [replace(study.runs[0], arm={"recipe": name}) for name in ("hard", "mixed")]
    with pytest.raises(InputError, match=r"\(recipe 'hard' and 'mixed' say the same\)"):
        replace(study, runs=arms)
    with pytest.raises(InputError, match="at least 1 run"):
        Study(name="x", runs=[])
    assert study.slice_steps(9) == (4, 9)
    assert study.slice_steps(1) == (1,)


def test_the_budget_is_not_part_of_a_runs_identity():
    short, long = (small_study(ns=(2,), rollouts=r).runs[0] for r in (64, 256))
    assert short.hash == long.hash
    assert replace(short, seed=7).hash != short.hash
    assert replace(short, evaluation_samples=8).hash != short.hash


@pytest.mark.parametrize(("n", "rollouts"), [(1, 300), (7, 1000), (64, 5000), (500, 4000)])
def test_the_number_of_evaluations_is_the_engines(n, rollouts, tmp_path):
    spec = small_study(ns=(n,), rollouts=rollouts, first=16).runs[0]
    spec = replace(spec, evaluations_per_octave=3)
    batch, grid = 4 * n, {"per_octave": 3, "first": 16}
    due = [
        m for m in range(1, spec.allocation.steps + 1)
        if evaluation_index(m * batch, **grid) > evaluation_index((m - 1) * batch, **grid)
    ]  # fmt: skip
    last = spec.allocation.steps
    assert spec.evaluations == 1 + len({*due, last})
    slice_ = slice_of(spec, max(last // 3, 1))  # ends no run: the grid alone
    assert slice_.evaluations == 1 + sum(m <= slice_.allocation.steps for m in {*due, last})


def test_cost_before_the_first_rollout(tmp_path):
    study = replace(
        small_study(ns=(2, 4)),
        rates=Rates(tokens_per_rollout=10.0, rollouts_per_gpu_hour=100.0, usd_per_gpu_hour=3.0),
    )
    cost = study_cost(study)
    drawn = 512 + cost.evaluation_rollouts
    run_study(study, tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        accounting = store.accounting()
    assert (cost.rollouts, cost.evaluation_rollouts) == (
        accounting.rollouts, accounting.evaluation_rollouts)  # fmt: skip
    assert (cost.tokens, cost.gpu_hours, cost.usd) == (drawn * 10, drawn / 100, drawn * 3 / 100)
    assert cost.wall_s is None
    measured = Calibration(step_s={8: 0.1, 16: 0.2}, evaluation_s=1.0, tokens_per_rollout=5.0,
                           rollouts=1, tokens=5, wall_s=1.0)  # fmt: skip
    evaluations = [spec.evaluations for spec in study.runs]
    timed = study_cost(study, measured, workers=2)
    each = [32 * 0.1 + evaluations[0], 16 * 0.2 + evaluations[1]]
    assert timed.worker_s == pytest.approx(sum(each))
    assert timed.wall_s == pytest.approx(max(each))
    begun = study_cost(study, replace(measured, start_s=10.0), workers=2)
    assert begun.worker_s == pytest.approx(sum(each) + 10 * (2 + 2))  # a start for every slice
    assert timed.tokens == drawn * 10  # the user's rate stands before the measured one
    assert study_cost(small_study(), measured).tokens == drawn * 5
    assert "2 runs, 512 rollouts" in timed.line()


def test_a_clock_on_the_gpus_goes_before_rates_of_earlier_runs():
    measured = Calibration(step_s={8: 0.1, 16: 0.2}, evaluation_s=1.0, tokens_per_rollout=5.0,
                           rollouts=1, tokens=5, wall_s=1.0, start_s=10.0)  # fmt: skip
    usual = Rates(rollouts_per_gpu_hour=100.0, usd_per_gpu_hour=3.0)
    earlier = RatesByBatch(known=[BatchRate(problems_per_batch=4, rollouts_per_problem=2)])
    on_cpu = replace(small_study(ns=(2, 4)), rates=usual, rates_by_batch=earlier)
    on_gpus = replace(on_cpu, runs=[
        replace(spec, engine="trl", engine_options={"processes": 2}) for spec in on_cpu.runs
    ])  # fmt: skip
    cost = study_cost(on_gpus, measured)
    assert cost.gpu_hours == pytest.approx(2 * cost.worker_s / 3600)
    assert cost.usd == pytest.approx(3 * cost.gpu_hours)
    assert cost.start_gpu_hours == pytest.approx(4 * 2 * 10 / 3600)  # two slices of two runs
    assert study_cost(replace(on_gpus, rates=Rates()), measured).gpu_hours == cost.gpu_hours
    by_rates = study_cost(on_gpus)
    assert by_rates.gpu_hours != pytest.approx(cost.gpu_hours)
    # A rate that a person wrote holds, and a CPU's seconds are not those of GPUs.
    said = replace(on_gpus, rates_by_batch=RatesByBatch())
    assert study_cost(said, measured).gpu_hours == by_rates.gpu_hours
    assert study_cost(on_cpu, measured).gpu_hours == study_cost(on_cpu).gpu_hours


def test_runs_that_share_a_gpu_take_its_time_one_after_the_other():
    measured = Calibration(step_s={8: 0.1, 16: 0.2}, evaluation_s=1.0, tokens_per_rollout=5.0,
                           rollouts=1, tokens=5, wall_s=1.0)  # fmt: skip
    study = small_study(ns=(2, 4))
    for engine, options, at_once in (
        ("trl", {"device": "cuda"}, 1), ("local", {"device": "cuda"}, 1),
        ("trl", {"device": "cpu"}, 2), ("command", {"gpus": 1}, 2),  # each has its own
    ):  # fmt: skip
        one = replace(study, runs=[replace(spec, engine=engine, engine_options=options)
                                   for spec in study.runs])  # fmt: skip
        cost = study_cost(one, measured, workers=2, evaluations=lambda _: 0)
        assert cost.wall_s == pytest.approx(cost.worker_s / at_once)  # both runs take as long
        if at_once == 1:  # what is paid: the time of the GPU
            assert cost.gpu_hours == pytest.approx(cost.wall_s / 3600)
        said = " ".join(sharing_lines(one, 2))
        assert ("2 runs at a time share the GPUs" in said) == (at_once == 1)
        assert not sharing_lines(one, 1)


def test_hours_are_of_what_the_study_trains_on():
    study = replace(small_study(ns=(2, 4)), rates=Rates(rollouts_per_gpu_hour=100.0))
    runs = {device: replace(study, runs=[replace(spec, engine="local", engine_options=options)
                                         for spec in study.runs])
            for device, options in (("CPU", {}), ("GPU", {"device": "cuda"}))}  # fmt: skip
    for device, one in runs.items():
        cost = study_cost(one)
        assert (cost.device, f" {device}-hours" in cost.line()) == (device, True)
    assert study_cost(study).device == "GPU"  # of another engine nobody knows better


def test_starts_are_in_the_price_and_told_where_they_are_much():
    rates = Rates(rollouts_per_gpu_hour=100.0, usd_per_gpu_hour=3.0)
    study = replace(small_study(ns=(2, 4)), rates=rates)
    drawn = 512 + study.evaluation_rollouts
    assert (study_cost(study).starts, study_cost(study).start_gpu_hours) == (4, None)
    begun = replace(study, rates_by_batch=RatesByBatch(gpu_hours_per_start=1.5))
    cost = study_cost(begun)
    assert (cost.starts, cost.start_gpu_hours) == (4, 6.0)  # two slices of two runs
    assert cost.gpu_hours == pytest.approx(drawn / 100 + 6)
    assert cost.usd == pytest.approx(3 * (drawn / 100 + 6))
    assert "GPU-hours (6 of them 4 starts), $" in cost.line()
    # A tenth of the price and less is not told apart.
    few = replace(study, rates_by_batch=RatesByBatch(gpu_hours_per_start=drawn / 100 / 36))
    assert study_cost(few).start_gpu_hours == pytest.approx(study_cost(few).gpu_hours / 10)
    assert "starts" not in study_cost(few).line()
    # The run of n = 2 is in the middle of its first slice (16 of 32 steps), the other has ended.
    steps = {study.runs[0].hash: 5, study.runs[1].hash: 16}
    left = study_cost(begun, steps=steps)
    assert (left.rollouts, left.starts, left.start_gpu_hours) == (27 * 8, 2, 3.0)


def test_an_adaptive_sweep_pays_for_more_starts_than_its_share_of_the_rollouts():
    one = {"ns": (2, 4, 8), "seeds": (0, 1), "rollouts": 1024, "first": 32}
    study = replace(
        small_study(**one, slices=(0.125, 0.25, 0.5, 1.0)), adaptive=Bounds(target=1024.0),
        rates=Rates(rollouts_per_gpu_hour=100.0, usd_per_gpu_hour=3.0),
        rates_by_batch=RatesByBatch(gpu_hours_per_start=0.5),
    )
    cost = study_cost(study)
    assert (cost.starts, cost.start_gpu_hours) == (24, 12.0)
    # 1.2 runs of each n, 3,686 of 6,144 rollouts: twelve slices of 128, six of 256, one of 512.
    assert study.grid().limit == pytest.approx(3686.4)
    assert most_starts(study, 3686.4) == 12 + 6 + 1
    assert [most_starts(study, r) for r in (127, 128, 6143, 6144)] == [0, 1, 23, 24]
    drawn = 6144 + study.evaluation_rollouts
    hours = 0.6 * drawn / 100 + 19 * 0.5
    assert cost.paid(0.6, 19) == [
        f"{compact(hours)} GPU-hours (9.5 of them 19 starts)", f"${compact(3 * hours)}"]
    # By the share of the rollouts alone 14.4 starts would be paid for, 2.3 GPU-hours too few.
    assert f"about {', '.join(cost.paid(0.6, 19))}: 60% of its grid" in cost_line(study, cost)
    # A first slice that ends at the first evaluation takes in the one after it.
    late = replace(study, runs=[replace(s, first_evaluation=256) for s in study.runs])
    assert study_cost(late).starts == 6 * 3


def test_calibration_measures_the_studys_engine():
    study = small_study(ns=(2, 4), rollouts=100_000)
    measured = calibrate(study, seconds=0.1)
    assert set(measured.step_s) == {8, 16}
    assert measured.tokens_per_rollout == 1.0
    assert 0 < measured.rollouts < 100_000
    assert all(0 < s < 1 for s in measured.step_s.values())
    # Of many batches the middle one, too: 4 * 32 is halfway between 4 * 2 and 4 * 512 in log.
    many = small_study(ns=(2, 4, 32, 128, 512), rollouts=100_000)
    assert set(calibrate(many, seconds=0.1).step_s) == {8, 128, 2048}


def test_a_measurement_lasts_as_long_as_is_asked():
    study = small_study(ns=(2, 4), rollouts=10**8)
    short, long = (calibrate(study, seconds=s) for s in (0.1, 0.6))
    assert long.rollouts > 2 * short.rollouts


def test_an_adaptive_grid_begins_small_and_thaws_what_is_frozen_alone():
    """Slices of 5 of 10 steps of 8 rollouts, and of 2 of 5 steps of 16."""
    small, large = Configuration(4, 2), Configuration(4, 4)
    grid = Grid(steps={small: 10, large: 5}, seeds=2, slices=(0.5, 1.0), bounds=Bounds(target=99.0))
    assert (grid.levels(small), grid.levels(large), grid.first_slices) == ([40, 80], [32, 80], 72)
    assert grid.limit == pytest.approx(1.2 * 160)
    first = grid.started(None)
    assert [d.rollouts for d in first.of_configurations.values()] == [(40,), (32,)]
    assert (grid.started(first), grid.thawed(first, None)) == (None, None)
    assert not first.has_ended
    frozen = Decision(action="freeze", configuration=large, rollouts=(32, 32))
    look = Look(4, (first.of_sweep, first.of_configurations[small], frozen))
    thawed = grid.thawed(look, [4])
    assert thawed.number == 5
    assert thawed.of_configurations[large] == Decision(
        action="thaw", configuration=large, rollouts=(80, 80)
    )
    assert thawed.of_configurations[small] == first.of_configurations[small]
    with pytest.raises(InputError, match=r"frozen n \(4\), but got 2; name those, or train others"):
        grid.thawed(look, [2])
    with pytest.raises(InputError, match=r"frozen n \(none\), but got 4; train others"):
        grid.thawed(first, [4])
