"""The words of the trainers: which logged key is which score, and which counts updates.

Every reading was checked against the trainer's own source or a file that it wrote, at the
version that stands beside it (see also `docs/trainers.md`); a key that is not here is left alone,
never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isocompute.importers.values.imported import Metric
from isocompute.importers.values.series import OF_MAX
from isocompute.importers.words.settings import Column

_K = r"(?P<k>[1-9][0-9]{0,5})"
_SET = r"(?P<set>.{1,300}?)"

# verl 0.9.1, trainer/ppo/ray_trainer.py and metric_utils.py: SOURCE/VARIABLE/METRIC@N.
# best, worst and maj are means of 1,000 bootstrap draws with replacement. MLflow has no @: verl
# 0.7, utils/tracking.py, writes _at_; tensorboardX (2.6, summary.py) makes it a single _.
_VERL = re.compile(
    rf"val-(?P<part>core|aux)/{_SET}/(?P<var>[^/]+)/"
    rf"(?P<kind>mean|best|worst|maj)(?:@|_at_|_){_K}(?P<mean>/mean)?"
)
# TRL 1.16, GRPOTrainer.log; trainer_state.json says eval_reward, the trackers eval/reward.
# ms-swift 4.4 (rlhf_trainers/grpo_trainer.py) and Unsloth log the same.
# TRL before 0.17 had no `/mean`, and logged means alone.
_TRL_REWARD = (
    r"(?:reward|rewards/(?:(?P<var>.{1,300})/mean|(?P<old>\w{0,99}(?:reward|func)\w{0,99})))"
)
_TRL_EVAL = re.compile(rf"eval[_/]{_TRL_REWARD}")
# transformers 5.23, trainer.py, evaluate: of a dictionary of sets each has a prefix of its own,
# which TRL's own metrics lack (GRPOTrainer.log)
EVALUATED_SET = re.compile(r"eval[_/](.{1,300})_(?:runtime|loss)")
_TRL_TRAIN = re.compile(rf"(?:train/)?{_TRL_REWARD}")
# Trinity-RFT (2026-08), docs/tutorial/metrics_reference.md; best and worst are bootstrapped as
# verl's (explorer/workflow_runner.py); with monitor.detailed_stats their mean over the tasks
_TRINITY = re.compile(
    rf"(?:eval|bench)/{_SET}/(?P<var>[^/@]+)/(?P<kind>mean|best|worst)(?:@|_at_){_K}(?:/mean)?"
)
_SLIME_MEAN = re.compile(r"eval/(?P<set>[^/]{1,300})")
# open-instruct 0.3.0, grpo_utils.py, compute_pass_at_k_metrics: pass_at_1 is the mean over all
_OPEN_INSTRUCT = re.compile(rf"eval/pass_at_{_K}(?P<unbiased>_unbiased)?")
# EasyR1 0.3.2, trainer/ray_trainer.py, _validate
_EASYR1 = re.compile(r"val/(?:reward_score|(?P<var>[^/]{1,300})_reward)")
# tinker-cookbook (2026-08), rl/metric_util.py: RLTestSetEvaluator, named "test" by default
_TINKER = re.compile(
    r"(?P<test>test/)?env/(?:all|(?P<set>[^/]{1,300}))/(?:reward/total|(?P<var>correct))"
)


class _Form(NamedTuple):
    """How a trainer writes held-out scores: a key with the set, the variable, the kind, the k.

    `variable`, `kind`: of a key that does not say them. `first`: the best of 1 is the mean over all
    samples, however many there are.
    """

    key: re.Pattern[str]
    trainer: str
    variable: str
    kind: str = "avg"
    first: bool = False


_KINDS = {"mean": "avg", "avg@": "avg", "pass@": "best", "pass^": "worst"}
_FORMS = (
    # up to 0.3: the mean of what later releases call reward (of its tokens' scores, the sum)
    _Form(re.compile(r"val/test_score/(?P<set>.{1,300})"), "verl", "reward"),
    # ROLL (1bc1205), pipeline/rlvr/rlvr_pipeline.py, val: the share of answers with score 1, by
    # tag; validated before the update of the same number, so its steps are updates
    _Form(re.compile(r"val_correct/(?P<set>[^/]{1,300})/mean"), "roll", "correct"),
    # prime-rl, orchestrator: unbiased pass@k and pass^k (all k correct); its console says no k
    _Form(re.compile(rf"eval/{_SET}(?:/(?P<var>[^/@^]+))?/(?P<kind>avg@|pass@|pass\^){_K}"),
          "prime-rl", "reward"),
    _Form(re.compile(rf"eval/{_SET}/reward/mean"), "prime-rl", "reward"),
    # SkyRL 0.3, train/utils/trainer_utils.py: any of N samples right, N all there are
    _Form(re.compile(rf"eval/{_SET}/avg_score"), "skyrl", "score"),
    _Form(re.compile(rf"eval/{_SET}/pass_at_{_K}"), "skyrl", "score", "best"),
    # OpenRLHF 0.11.0, trainer/ppo_trainer.py, compute_eval_metrics: passN is the mean of each
    # problem's best of N
    _Form(re.compile(rf"eval/eval_{_SET}_pass{_K}"), "openrlhf", "reward", "best", first=True),
    _Form(_OPEN_INSTRUCT, "open-instruct", "correct", "best", first=True),
    # slime 0.3.1 (624b824), observability/rollout_metrics.py, metric_utils.py: unbiased pass@k
    _Form(re.compile(rf"eval/{_SET}-pass(?:@|_){_K}"), "slime", "reward", "best"),
    # rLLM (2026-08, 04f924d), trainer/unified_trainer.py, _validate_async
    _Form(re.compile(rf"val/(?:unknown|(?P<set>[^/]{{1,300}}))/pass@{_K}"), "rllm", "correct",
          "best", first=True),
)  # fmt: skip

# Keys that stand alone: NeMo-RL (2026-08, algorithms/grpo.py: accuracy is the mean reward over all
# rollouts, pass_k whether any is above 0), AReaL 1.0.4 (4aef98d, workflow/rlvr.py), verl (mean
# reward of the batch that the update uses), prime-rl, SkyRL, slime.
_ALONE: dict[str, tuple[str, str, str, str]] = {  # kind, variable, split, trainer
    "validation/accuracy": ("avg", "accuracy", "validation", "nemo-rl"),
    "val:accuracy": ("avg", "accuracy", "validation", "nemo-rl"),  # training_info.json
    "validation/pass_k": ("best", "accuracy", "validation", "nemo-rl"),
    "eval-rollout/reward": ("avg", "reward", "validation", "areal"),
    "rollout/reward": ("avg", "reward", "train", "areal"),
    "critic/score/mean": ("avg", "score", "train", "verl"),
    "reward/all/mean": ("avg", "reward", "train", "prime-rl"),
    "reward/avg_raw_reward": ("avg", "reward", "train", "skyrl"),
    "rollout/raw_reward": ("avg", "reward", "train", "slime"),
    "eval/scores": ("avg", "scores", "validation", "open-instruct"),
}
SLIME_MARKS = ("eval/step", "rollout/step")
_NO_SET = {
    "step", "epoch", "global_step", "loss", "reward", "runtime", "samples_per_second",
    "steps_per_second", "num_tokens", "entropy", "stop_rate", "scores", "sequence_lengths",
    "reward_std", "frac_reward_zero_std", "kl",
}


def column_of(key: str, seen: Iterable[str] = ()) -> Column | None:
    """What a logged key means, or None where it is no score that is known.

    Args:
        key: as it stands in the log.
        seen: other keys of that log, for words that several trainers use.

    >>> column_of("val-core/math/acc/best@4/mean").metric.label
    'best@4:bootstrap'
    """
    if len(key) > 400:
        return None
    if key.startswith("val-"):
        return _verl(key)
    if key in _ALONE:
        kind, variable, split, trainer = _ALONE[key]
        return _column(kind, variable, trainer, split=split, core=trainer != "open-instruct")
    if match := _TRINITY.fullmatch(key):
        return _bootstrapped(match, "trinity", core=match["var"] == "accuracy")
    match = _OPEN_INSTRUCT.fullmatch(key)
    if match and (match["k"] == "1") == (match["unbiased"] is not None):
        return None  # pass_at_N without the word is the unbiased one of all N samples beside it
    for form in _FORMS:
        if match := form.key.fullmatch(key):
            said = match.groupdict()
            kind, k = _KINDS.get(said.get("kind", ""), form.kind), said.get("k")
            if form.first and k == "1":
                kind, k = "avg", None
            return _column(kind, said.get("var") or form.variable, form.trainer,
                           said.get("set") or "", int(k) if k else None)  # fmt: skip
    if (match := _SLIME_MEAN.fullmatch(key)) and _is_of_slime(match["set"], seen):
        return _column("avg", "reward", "slime", match["set"])
    if match := _TRL_EVAL.fullmatch(key):
        return _trl(match["var"] or match["old"], "validation")
    if match := _TRL_TRAIN.fullmatch(key):
        return _trl(match["var"] or match["old"], "train")
    if match := _EASYR1.fullmatch(key):
        return _column("avg", match["var"] or "reward", "easyr1", core=match["var"] is None)
    if match := _TINKER.fullmatch(key):
        return _column("avg", match["var"] or "reward", "tinker", match["set"] or "",
                       split="validation" if match["test"] else "train",
                       core=match["var"] is None)  # fmt: skip
    return None


def _is_of_slime(name: str, seen: Iterable[str]) -> bool:
    """Whether `eval/NAME`, which is anybody's, is slime's: told by the counters beside it."""
    other = name in _NO_SET or ("-" in name and name.endswith(("_ratio", "_rate")))
    return not other and any(mark in seen for mark in SLIME_MARKS)


def _column(
    kind: str, variable: str, trainer: str, problem_set: str = "", samples: int | None = None,
    *, split: str = "validation", core: bool = True,
) -> Column:
    return Column(
        metric=Metric(
            kind=kind, samples=samples, variable=variable, core=core,
            estimator="mean" if kind == "avg" else "unbiased",
        ),
        problem_set=problem_set, split=split, trainer=trainer,
    )


def _bootstrapped(match: re.Match[str], trainer: str, *, core: bool) -> Column:
    """The mean of some samples, or the best or worst of so many, drawn with replacement."""
    kind = _KINDS.get(match["kind"], match["kind"])
    return Column(
        metric=Metric(
            kind=kind, samples=int(match["k"]), variable=match["var"], core=core,
            estimator="mean" if kind == "avg" else "bootstrap",
        ),
        problem_set=match["set"], trainer=trainer,
    )


def _verl(key: str) -> Column | None:
    match = _VERL.fullmatch(key)
    # mean@N stands alone; best, worst and maj come as .../mean and .../std
    if match is None or (match["kind"] == "mean") == (match["mean"] is not None):
        return None
    # worst@N is always in val-aux, also for the core variable: acc, or reward without acc
    return _bootstrapped(match, "verl", core=match["part"] == "core" or match["var"] == "acc")


def _trl(variable: str | None, split: str) -> Column:
    said, _, rest = (variable or "").partition("/")  # Tunix: rewards/eval/score/mean
    if said in ("eval", "train"):
        variable, split = rest or None, "train" if said == "train" else "validation"
    return _column("avg", variable or "reward", "trl", split=split, core=variable is None)


# Mean generated length of the window of steps that a row covers, in tokens.
LENGTH_KEYS = ("response_length/mean", "completions/mean_length", "train/completions/mean_length")
# Generated tokens of one step, and cumulative rollouts, where a trainer logs them (prime-rl).
TOKENS_KEYS = ("progress/decode_tokens", "env/all/total_ac_tokens")
ROLLOUTS_KEYS = ("progress/total_samples", "progress/total_rollouts")
# What loops of one's own call a cumulative count; held against B_p * n * step, see `checks`.
ROLLOUTS = re.compile(
    r"(?:^|[/_.])(?:total_|num_|n_)?(?:rollouts|trajectories|completions)"
    r"(?:_(?:seen|total|so_far|generated))?$|"
    r"(?:^|[/_.])(?:total_samples|(?:consumed|seen)_samples|samples_(?:seen|so_far|consumed))$"
)
# Rollouts of one step, in tinker-cookbook (rl/metric_util.py) and loops of one's own.
COUNTED = re.compile(
    r"env/all/total_episodes|"
    r"(?!.*(?:eval|val|test))(?:.*[/_.])?(?:rollout|episode|trajectory|completion|response)s?_count"
)
# Batches of rollouts that one update took under dynamic sampling: verl 0.7, recipe/dapo,
# dapo_ray_trainer.py; NeMo-RL (2026-08), algorithms/grpo.py.
BATCHES_KEYS = ("train/num_gen_batches", "train/dynamic_sampling_num_gen_batches")
# Problems that one update drew, in loops of one's own.
SAMPLED = re.compile(r"(?:^|[/_.])(?:problems|prompts|questions)_(?:sampled|drawn|generated)$")
# The rate of an update's optimizer: verl 0.9.1, workers/actor; transformers 5.23, trainer.py, and
# its trackers; OpenRLHF 0.11.0, trainer/ppo_trainer.py; slime 0.3.1, backends.
RATE_KEYS = (
    "actor/lr", "learning_rate", "train/learning_rate", "train/actor_lr", "train/lr-pg_0",
)
# Logged where batches are refilled, without a count of what was drawn: verl; OpenRLHF, where the
# unit of the rate changed between versions (trainer/ppo_utils/samples_generator.py).
EVICTED_KEYS = (
    "training/filter_groups/evicted_samples", "train/dynamic_filtering_pass_rate",
    "dynamic_filtering_pass_rate",
)
# verl: prompt and response tokens of one step, and the mean prompt: what B_p * n must agree with.
TOTAL_TOKENS_KEY, PROMPT_KEY = "perf/total_num_tokens", "prompt_length/mean"
# TRL 0.16 to 1.16: tokens of all prompts and responses so far, of all processes.
SEEN_KEYS = ("num_tokens", "train/num_tokens")
# Beside them: the share of responses cut off, whose tokens may not count, and the others' length.
CUT_KEYS = ("completions/clipped_ratio", "train/completions/clipped_ratio")
ENDED_KEYS = ("completions/mean_terminated_length", "train/completions/mean_terminated_length")

# The update whose policy a score belongs to, where evaluations end later than they began.
POLICY = re.compile(
    r"(?:policy|model|weights?)_(?:version|step)$|evaluated_at$|"
    r"(?:eval|evaluation|val|test|score)_of_(?:step|update|iter(?:ation)?)$"
)

OF_POLICY = re.compile(rf"^(?=val|eval|test).*(?:{POLICY.pattern})")

# The same in tables, where a script filled the last score down.
MEASURED_AT = re.compile(
    rf"{POLICY.pattern}|(?:measured|scored|tested|computed)_(?:at|step|update)$|"
    r"(?:^|[_/.])(?:last_)?(?:eval|evaluation|val|validation|test)_(?:step|update|iteration)$"
)

# What is counted beside updates, by loops of one's own: consumed_samples, tokens_seen.
COUNTS = re.compile(
    r"(?:^|[/_.])(?:samples|rollouts|episodes|prompts|sequences|tokens)(?:_(?:seen|consumed))?$"
)

# Of these, what may be rollouts.
SAMPLES = re.compile(
    r"(?:^|[/_.])(?:samples|rollouts|episodes?|sequences|completions|responses|trajectories)(?![a-z])"
)

# What loops of one's own call a counter of updates; of others, of the optimizer and of time. Ray
# Tune 2 counts reports (training_iteration).
_UPDATES = re.compile(
    r"(?:^|[/_.])(?:updates?|steps?|iterations?|iters?)"
    r"(?:_(?:done|completed|count|idx|index|number|num|so_far))?$", re.I,
)
_NO_UPDATES = re.compile(
    "training_iteration|quer|prompt|data|sgd|tim(?:e|ing)|sec|per_|perf|optim|grad|mini|micro|inner|env|episode|agent|turn|token|sample|max|"
    "warm|since|eval|val|test|lr|sched|best|save|ckpt|checkpoint|left|remain", re.I,
)


def counts_updates(key: str) -> bool:
    """Whether a key that no trainer has seems to count updates.

    >>> counts_updates("progress/updates_done"), counts_updates("timing_s/step")
    (True, False)
    """
    return _UPDATES.search(key) is not None and _NO_UPDATES.search(key) is None


def counts_checkpoints(key: str) -> bool:
    """Whether a counter that a log defines for its scores counts updates, or checkpoints by them.

    >>> counts_checkpoints("checkpoint_step"), counts_checkpoints("eval/env_step")
    (True, False)
    """
    plain = re.sub(r"(?:^|(?<=[/_.]))(?:ckpt|checkpoint|eval|val|test)[/_.]", "", key)
    return counts_updates(plain)


TRACKER_STEPS = ("step", "_step", "Step")  # names under which a tracker's own step goes
PLAIN = ("update", "updates", "iteration", "iter")  # of loops of one's own
# What counts updates beside a tracker's own step, the most telling first. OpenRLHF 0.11.0,
# utils/logging_utils.py; open-instruct 0.3.0, grpo_fast.py (its global_step counts rollouts); slime
# 0.3.1, wandb_utils.py; ms-swift 4.4, trainers/patcher.py.
STEP_KEYS = (
    "train/global_step", "trainer/global_step", "training/global_step", "training_step",
    "global_step", OF_MAX, "rollout/step", "train/step", "eval/global_step",
    "eval/step", "progress/batch", *PLAIN, "trainer/step", "train_step", "system/step",  # ROLL's
)
_SLASHED = {
    key.replace("/", "_"): key for key in (
        *_ALONE, *LENGTH_KEYS, *TOKENS_KEYS, *ROLLOUTS_KEYS, *BATCHES_KEYS, *RATE_KEYS, *STEP_KEYS,
        TOTAL_TOKENS_KEY, PROMPT_KEY, "training/epoch", "timing_s/step",
    ) if "/" in key
}  # fmt: skip
_VERL_SLASHED = re.compile(
    r"val-(core|aux)_(.+)_([^_]+)_(mean|best|worst|maj)[@_]([0-9]+)(_mean)?"
)
_FEW_SLASHED = 3  # at one or two a name of one's own may be a trainer's by chance


def with_slashes(key: str) -> str:
    """A trainer's key whose slashes were written as `_`; any other as it is.

    >>> with_slashes("val-core_math_acc_mean@4"), with_slashes("perf_total_num_tokens")
    ('val-core/math/acc/mean@4', 'perf/total_num_tokens')
    """
    if match := _VERL_SLASHED.fullmatch(key):
        part, source, variable, kind, k, mean = match.groups()
        return f"val-{part}/{source}/{variable}/{kind}@{k}{'/mean' if mean else ''}"
    return _SLASHED.get(key, key)


def header_with_slashes(header: Sequence[str]) -> list[str]:
    """Columns whose trainer is told by several of them; others as they are."""
    named = [with_slashes(cell) for cell in header]
    changed = sum(a != b for a, b in zip(named, header, strict=True))
    return named if changed >= _FEW_SLASHED and "/" not in "".join(header) else list(header)


# Keys of the Hugging Face trainer under W&B and trackio, whose own step counts calls of log
# (transformers 5.23, integrations/integration_utils.py: train/global_step is logged beside it).
CALLS = ("trl", "openrlhf", "slime")


def axis_of(key: str, seen: Mapping[str, object], defined: Mapping[str, str]) -> str | None:
    """The key that counts updates for a logged key; None where the tracker's own step does.

    Args:
        key: of a score.
        seen: counters that the log holds.
        defined: what the log's own `define_metric` says, NAME or GLOB* -> counter.
    """
    if key in defined and defined[key] in seen:
        return defined[key]
    globs = [g for g in defined if g.endswith("*") and key.startswith(g[:-1])]
    for glob in sorted(globs, key=len, reverse=True):
        if defined[glob] in seen:
            return defined[glob]
    if key.startswith("eval/"):
        for own in ("eval/global_step", "eval/step"):
            if own in seen:
                return own
    counters = (k for k in (*STEP_KEYS, "step") if k in seen and not k.startswith("eval/"))
    return next(counters, None)


def is_own(label: str) -> bool:
    """Whether a metric is none of the trainers' estimators, but a score that somebody named.

    >>> [is_own(label) for label in ("holdout", "avg@4", "avg:accuracy", "best@4", "")]
    [True, False, False, False, False]
    """
    return label != "" and re.match(r"(avg|best|worst|maj)\b", label) is None
