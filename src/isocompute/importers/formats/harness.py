"""What harnesses of evaluations write: lm-evaluation-harness, lighteval, Qwen2.5-Math, vf-eval."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from isocompute.importers.values.imported import Metric
from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.scored import is_no_score

IN_PERCENT = frozenset(("num_samples", "num_scores", "timeout_samples", "acc"))
OF_VERIFIERS = frozenset(("env_id", "model", "num_examples", "rollouts_per_example", "avg_reward"))
_OF_SAMPLES = re.compile(  # lighteval 0.13 (k=, n=) and before
    r"(?P<word>\w+)@(?:k:k=(?P<k>[0-9]+)(?:&n=(?P<n>[0-9]+))?|(?P<old>[0-9]+):(?P<of>[0-9]+)"
    r"(?:_samples)?|n:n=(?P<mean>[0-9]+))"
)


def _metric(key: str) -> Metric:
    """What a harness's name of a metric says; of lighteval, whose pass@1 is a mean, by samples.

    >>> [_metric(key).label for key in ("exact_match", "pass@k:k=1&n=4", "math_pass@1:4_samples")]
    ['avg', 'avg@4', 'avg@4']
    >>> [_metric(key).label for key in ("avg@n:n=64", "gpqa_pass@k:k=1", "pass@k:k=8&n=16")]
    ['avg@64', 'avg', 'best@8']
    """
    if (told := _OF_SAMPLES.fullmatch(key)) is None:
        return Metric(kind="avg", variable=key)
    k, n = int(told["k"] or told["old"] or 1), whole(told["n"] or told["of"] or told["mean"])
    if k == 1:
        return Metric(kind="avg", samples=n, variable=told["word"])
    return Metric(kind="best", samples=k, estimator="unbiased", variable=told["word"])


def is_known(content: Mapping[str, Any]) -> bool:
    """Whether a harness wrote it, whose keys need no map."""
    return "results" in content or any(content.keys() >= one for one in (IN_PERCENT, OF_VERIFIERS))


def _of_verifiers(content: Mapping[str, Any]) -> Iterator[tuple[str, Metric, float, int]]:
    """The mean of every reward, each of its own sampling: greedy scores are of another kind.

    Source: verifiers 0.1.8, utils/eval_utils.py (vf-eval), metadata.json.
    """
    how, of = content.get("sampling_args"), content.get("avg_metrics")
    t = number(how.get("temperature")) if isinstance(how, dict) else None
    kind = "reward" if t is None else "greedy" if not t else f"t{t:g}"
    whole_reward = number(content["avg_reward"])
    said = {kind: whole_reward} | {
        f"{kind}-{name}": value for name, one in (of if isinstance(of, dict) else {}).items()
        if (value := number(one)) is not None and value != whole_reward and not is_no_score(name)
    }  # fmt: skip
    for variable, score in said.items():
        if score is not None:
            metric = Metric(kind="avg", samples=whole(content["rollouts_per_example"]),
                            variable=variable)  # fmt: skip
            yield str(content["env_id"]), metric, score, whole(content["num_examples"]) or 0


def scores_in(
    content: Mapping[str, Any], within: str
) -> Iterator[tuple[str, Metric, float, int]]:
    """Task, metric, score and problems of what an evaluation harness wrote."""
    if content.keys() >= OF_VERIFIERS:
        yield from _of_verifiers(content)
    score = number(content.get("acc"))
    if content.keys() >= IN_PERCENT and score is not None:
        task = within.rpartition("/")[2]  # it has a folder for each
        yield task, _metric("acc"), score / 100, whole(content["num_samples"]) or 0
    results, counts = content.get("results"), content.get("n-samples")
    if not isinstance(results, dict):
        return
    for task, values in results.items():
        of = counts.get(task) if isinstance(counts, dict) else None
        count = whole(of.get("effective")) if isinstance(of, dict) else None
        values = values if isinstance(values, dict) else {}
        named = [key for key in values if "," in key]  # METRIC,FILTER: what else is there counts
        for key in named or values:
            score = number(values[key])
            if score is not None and "stderr" not in key and (
                named or _OF_SAMPLES.fullmatch(key) or not is_no_score(key)
            ):
                yield str(task), _metric(str(key).removesuffix(",none")), score, count or 0
