"""The third set as `test_layouts` tries it: what is asked for, and what is typed then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import set_03_trainers
from layouts import Ask, Layout
from layouts_asked import asking, named, points, rewrite
from layouts_blind import Truth
from set_03 import LAYOUTS as WRITTEN

assert set_03_trainers  # importing it enters its layouts

BY_NAME = named("bp{b}_n{n}_seed{seed}")
BY_DASHES = named("bp{b}-n{n}-seed{seed}")


def also(ask: Ask, **settings: object) -> Ask:
    """What was asked for, and more settings."""
    return ask | {"settings": {**ask.get("settings", {}), **settings}}


def scored(key: str) -> Ask:
    return also(BY_NAME, columns={key: "avg@4"})


_NAMES = (
    r"must be known, .*pattern='bp\{problems_per_batch\}_n\{rollouts_per_problem\}_seed\{seed\}'"
)
_DASHES = _NAMES.replace("_n", "-n").replace("_seed", "-seed")
# The second try, and what the error of the first one must say.
SECOND: dict[str, tuple[str, Ask]] = {
    "swanlab_openapi": (_DASHES, BY_DASHES),
    "swanlab_api_json": (_DASHES, BY_DASHES),
    "neptune_query": (
        r"`problems_per_batch` must be known, .*--set problems_per_batch=B_P",
        asking(problems_per_batch=8),
    ),
    "dvclive_plots": (
        r"must be known, .*pattern='bp\{problems_per_batch\}_n\{rollouts_per_problem\}", BY_NAME,
    ),
    "wandb_history_parquet": (_NAMES, BY_NAME),
    "wandb_chart_two_metrics": (_NAMES, BY_NAME),
    "wandb_runs_table_beside": (
        r"`problems_per_batch` must be known", asking(problems_per_batch=8),
    ),
    "rotated_log": (_NAMES, BY_NAME),
    "node_died": (_NAMES, BY_NAME),
    "learning_rates_mixed": (
        r"must share their learning rate .*--where learning_rate=1e-06",
        {"where": ["learning_rate=1e-06"]},
    ),
    "trl_two_eval_sets": (
        r"not read: eval_code_loss, eval_code_reward, .*--map",
        asking(columns={"eval_math_reward": "avg@4"}),
    ),
    "trl_state_alone": (
        r"must be known, .*pattern=", named("gen{n}-seed{seed}", problems_per_batch=8),
    ),
    "trl_devices_unknown": (r"`problems_per_batch` must be known", asking(problems_per_batch=8)),
    "generations_are_prompts": (
        r"not read: eval/accuracy, num_gen.*\).* 2\) `problems_per_batch` and `rollouts",
        named("exp{n}", problems_per_batch=8, columns={"eval/accuracy": "avg@4"}),
    ),
    "global_batch_of_samples": (
        r"not read: eval/accuracy\).* 2\) `problems_per_batch` must be",
        asking(problems_per_batch=8, columns={"eval/accuracy": "avg@4"}),
    ),
    "micro_batch": (
        r"not read: eval/accuracy\).* 2\) `problems_per_batch` must be",
        asking(problems_per_batch=8, columns={"eval/accuracy": "avg@4"}),
    ),
    "train_score": (r"--map eval_score=avg.* 2\) .*pattern", scored("eval_score")),
    "greedy_and_sampled": (
        r"not read: val/sampled/accuracy, val/greedy/accuracy\).* 2\) `problems_per_batch` and",
        scored("val/sampled/accuracy"),
    ),
    "printed_tensors": (_NAMES, BY_NAME),
    "names_with_numbers": (
        r"pattern='G\{rollouts_per_problem\}_B\{problems_per_batch\}\*s\{seed\}'",
        named("G{n}_B{b}"),
    ),
    "lightning_csv": (
        r"--map val/accuracy=avg", asking(columns={"val/accuracy": "avg@4"}),
    ),
    "ray_tune": (
        r"not read: eval/accuracy, .*--map eval/accuracy=avg\), or choose",
        asking(columns={"eval/accuracy": "avg@4"}),
    ),
    "no_step_zero": (_NAMES, BY_NAME),
    "nemo_rl_console": (_NAMES, BY_NAME),
    "prime_rl_console": (_NAMES, BY_NAME),
    "skyrl_console": (r"must be known, .*pattern='tbs\{", named("tbs{b}_nspp{n}_seed{seed}")),
    "openrlhf_console": (
        r"--set rollouts_per_problem=N\.$", named("rbs{b}_nspp{n}_seed{seed}"),
    ),
}
# Where a table of one's own, or a corrected one, is the cure.
REWRITTEN = {
    "wandb_chart_same_names": r"^`problems_per_batch` and .*, and 3 more\) does not",
    "excel_sep_line": r"must stand in the first line, but stand in line 2; delete",
    "sheet_with_title": r"must stand in the first line, but stand in line 3; delete",
    "tokens_in_thousands": r"at least 1 of each rollout \(0.24 at the median; .*in thousands",
    "rollouts_of_each_update": r"`rollouts` must be cumulative, .*multiply by the step",
    "one_in_percent": r"not read: eval_accuracy\)",
    "times_only": r"its rows have ts, eval/accuracy\); name the step's key",
    "steps_of_samples": r"consumed_samples is the same number in every row; .*write a table",
    "error_rate": r"not read: eval/error_rate\).*--map eval/error_rate=1-avg,",
    "appended_runs": r"`problems_per_batch` and `rollouts_per_problem` must be known",
}  # fmt: skip
REFUSED = {name: line for name, (line, _) in SECOND.items()} | REWRITTEN


def _runs(name: str, folder: Path) -> list[Truth]:
    """What the layout holds; where it holds no answer, what the user knows besides."""
    if (runs := WRITTEN[name].write(folder)) is None:
        runs = WRITTEN["excel_sep_line"].write(folder / "unused")
        shutil.rmtree(folder / "unused")
    assert runs is not None
    return runs


def entry(name: str) -> Callable[[Path], Layout]:
    def write(folder: Path) -> Layout:
        runs = _runs(name, folder)
        _, second = SECOND.get(name, ("", None))
        return Layout(
            truth=points(runs, seeds=name != "names_with_numbers"),
            second=second,
            mend=rewrite(runs) if name in REWRITTEN else None,
        )

    return write


LAYOUTS = {name: entry(name) for name in WRITTEN}
