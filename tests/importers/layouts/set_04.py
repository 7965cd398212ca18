"""A fourth set of layouts by another mind, committed before a reader was tried on them.

Tables and exports of people and trackers; `layouts_fourth_b.py` has the trainers' own logs. Each is
a sweep with one trap, and returns the truth that is reached once a user has said one of `options`,
or mended the files by `cure` (and said it then, where names must tell B_p and n). Both are taken
from the documents, untried. Right is a reader that finds the truth, or stops in one line that names
the way to it. With `must_ask` no reader can know: only stopping is right. Reading anything else
than the truth without a word is wrong in all; so is advice that would lead there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from layouts import Ask
from layouts_asked import asking, named
from layouts_blind import EVALUATED_AT, Truth, put, put_json
from layouts_blind_tables import table

# (problems per batch, rollouts per problem, seed)
SWEEP = ((32, 8, 0), (256, 16, 1), (16, 128, 2))
LENGTH = 240  # generated tokens of a rollout
VERL = "val-core/math/acc/mean@4"
BY_NAME = named("bp{b}_n{n}_seed{seed}")
TABLE = ["problems_per_batch", "rollouts_per_problem", "seed"]


@dataclass(frozen=True, kw_only=True)
class Fourth:
    """A layout: its trap, how it is written, and what a user who looks closely would say."""

    trap: str
    write: Callable[[Path], list[Truth]]
    must_ask: bool
    options: tuple[Ask, ...]
    cure: str


LAYOUTS: dict[str, Fourth] = {}
Write = Callable[[Path], list[Truth]]


def layout(
    trap: str, *, options: Iterable[Ask] = (), cure: str = "", must_ask: bool = False
) -> Callable[[Write], Write]:
    """Enter the function under its own name."""

    def enter(write: Write) -> Write:
        LAYOUTS[write.__name__] = Fourth(
            trap=trap, write=write, must_ask=must_ask, options=tuple(options), cure=cure
        )
        return write

    return enter


def score(bp: int, n: int, seed: int, step: int) -> float:
    """A smooth rise from 0.21 towards 0.79, faster in larger batches, to four digits."""
    pace = 0.006 * math.log2(n) * (bp / 32) ** 0.4
    return round(0.21 + 0.58 * (1 - math.exp(-pace * step)) + 0.004 * seed, 4)


def trained(bp: int, n: int, seed: int, step: int) -> float:
    """The mean reward of a batch, above the validation score."""
    return round(score(bp, n, seed, step) + 0.07 + 0.004 * math.sin(2.3 * step), 4)


def name_of(bp: int, n: int, seed: int) -> str:
    return f"bp{bp}_n{n}_seed{seed}"


def truth(
    bp: int,
    n: int,
    seed: int,
    steps: Iterable[int] = EVALUATED_AT,
    *,
    seed_known: bool = True,
    rollouts: dict[int, int] | None = None,
    tokens: dict[int, int] | None = None,
) -> Truth:
    steps = list(steps)
    return Truth(
        problems_per_batch=bp,
        rollouts_per_problem=n,
        seed=seed if seed_known else None,
        scores={s: score(bp, n, seed, s) for s in steps},
        rollouts=rollouts or {s: bp * n * s for s in steps},
        tokens=tokens or {},
    )


def runs() -> list[Truth]:
    return [truth(*run) for run in SWEEP]


@layout(
    "merged cells: B_p, n and the seed stand in the first row of each run, below them is nothing",
    cure="fill the three columns down",
)
def excel_merged_cells(root: Path) -> list[Truth]:
    """A sheet with merged cells, saved as CSV. Truth: an empty cell repeats the one above it."""
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        for s in EVALUATED_AT:
            told: list[object] = ["", "", ""] if s else [bp, n, seed]
            rows.append([*told, bp * n * s, score(bp, n, seed, s)])
    table(root / "sweep.csv", [*TABLE, "rollouts", "score"], rows)
    return runs()


@layout(
    "a dump without a header: its first line is the first run's score at step 0",
    options=[BY_NAME],
    cure="put the line run,metric,step,value on top",
    must_ask=True,
)
def sqlite_dump_without_header(root: Path) -> list[Truth]:
    """`sqlite3 -csv mlflow.db 'select name, key, step, value from ...' > metrics.csv`."""
    lines = []
    for run in SWEEP:
        for s in EVALUATED_AT:
            lines.append(f"{name_of(*run)},{VERL},{s},{score(*run, s)}")
        lines += [f"{name_of(*run)},critic/score/mean,{s},{trained(*run, s)}" for s in range(1, 61)]
    put(root / "metrics.csv", "\n".join(lines) + "\n")
    return runs()


@layout(
    "jq dropped the nulls of each series: 61 steps, 7 scores, and the k-th score is not of step k",
    cure="export step and score together; the configuration says eval_every: 10",
    must_ask=True,
)
def jq_series_of_unequal_length(root: Path) -> list[Truth]:
    """`jq -s '{step: map(.step), acc: map(.acc | values)}' run.jsonl`, with the settings kept."""
    for bp, n, seed in SWEEP:
        put_json(root / f"{name_of(bp, n, seed)}.json", {
            "config": {"problems_per_batch": bp, "rollouts_per_problem": n, "seed": seed,
                       "eval_every": 10, "total_steps": 60},
            "step": list(range(61)),
            "train/reward": [trained(bp, n, seed, s) for s in range(1, 61)],
            VERL: [score(bp, n, seed, s) for s in EVALUATED_AT],
        })
    return runs()


@layout(
    "after a restart the header comes again with training and validation in the other order",
    options=[BY_NAME],
    cure="split each file at its second header, or put its columns in the first order",
)
def header_again_in_new_order(root: Path) -> list[Truth]:
    """A CSV logger that appends; the code's dictionary had another order after the restart."""
    for run in SWEEP:
        lines = [f"step,{VERL},critic/score/mean,actor/lr"]
        for s in EVALUATED_AT:
            right, train = score(*run, s), trained(*run, s)
            if s == 40:
                lines.append(f"step,critic/score/mean,{VERL},actor/lr")
            pair = f"{train},{right}" if s >= 40 else f"{right},{train}"
            lines.append(f"{s},{pair},1e-06")
        put(root / f"{name_of(*run)}.csv", "\n".join(lines) + "\n")
    return runs()


@layout(
    "runs one below the other, apart by empty lines; which run it is says a comment alone",
    cure="one file per block, named after its comment",
    must_ask=True,
)
def gnuplot_blocks(root: Path) -> list[Truth]:
    """What gnuplot's `index` reads: a comment, a header and a block for each run."""
    blocks = []
    for bp, n, seed in SWEEP:
        rows = [f"{s},{score(bp, n, seed, s)}" for s in EVALUATED_AT]
        blocks.append("\n".join([f"# bp={bp} n={n} seed={seed}", "step,score", *rows]))
    put(root / "curves.csv", "\n\n\n".join(blocks) + "\n")
    return runs()


@layout(
    "rollouts are those since the last evaluation; at 0, 2, 6, 14, ... they rise as a sum would",
    cure="delete the column rollouts: B_p, n and steps say it",
)
def rollouts_since_last_evaluation(root: Path) -> list[Truth]:
    """Truth: B_p * n * steps; the column falls short of it by half, and never goes back."""
    steps = (0, 2, 6, 14, 30, 62)
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        last = 0
        for s in steps:
            rows.append([bp, n, seed, s, bp * n * (s - last), score(bp, n, seed, s)])
            last = s
    table(root / "sweep.csv", [*TABLE, "steps", "rollouts", "score"], rows)
    return [truth(*run, steps) for run in SWEEP]


@layout(
    "groups without a gradient are thrown away: more was generated than B_p * n * steps",
    options=[asking(columns={"generated_rollouts": "rollouts"})],
    cure="name the column generated_rollouts rollouts",
)
def generated_and_trained(root: Path) -> list[Truth]:
    """A table of one's own loop with refilled batches; both counts are sums. Cost is generation."""
    rows: list[list[object]] = []
    every = []
    for bp, n, seed in SWEEP:
        drawn = {s: bp * n * s + n * (bp // 4) * s * s // 40 for s in EVALUATED_AT}
        for s in EVALUATED_AT:
            rows.append([bp, n, seed, s, bp * n * s, drawn[s], score(bp, n, seed, s)])
        every.append(truth(bp, n, seed, rollouts=drawn))
    header = [*TABLE, "steps", "trained_rollouts", "generated_rollouts", "score"]
    table(root / "sweep.csv", header, rows)
    return every


@layout(
    "tokens are prompts and answers together; completion_tokens beside it are what was generated",
    cure="name the column completion_tokens tokens, and drop the sum",
)
def tokens_with_prompts(root: Path) -> list[Truth]:
    """A colleague's Parquet with the three words that servers use; the prompts are the longer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for bp, n, seed in SWEEP:
        for s in EVALUATED_AT:
            drawn = bp * n * s
            rows.append({**dict(zip(TABLE, (bp, n, seed), strict=True)), "rollouts": drawn,
                         "score": score(bp, n, seed, s), "prompt_tokens": 610 * drawn,
                         "completion_tokens": LENGTH * drawn, "tokens": (610 + LENGTH) * drawn})
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), root / "from_yusuf.parquet")
    return [truth(bp, n, seed, tokens={s: LENGTH * bp * n * s for s in EVALUATED_AT})
            for bp, n, seed in SWEEP]


@layout(
    "ids of runs that look like numbers: 4e2 and 400, 007 and 7 are four runs",
    cure="name the runs so that no spreadsheet takes them for numbers",
)
def ids_like_numbers(root: Path) -> list[Truth]:
    """Short ids of commits, ordered by the rollouts, so that two runs alternate. No seeds."""
    every = [("4e2", 32, 8, 0), ("400", 32, 8, 5), ("007", 32, 32, 1), ("7", 32, 32, 6)]
    rows = [[run, bp, n, bp * n * s, score(bp, n, seed, s)]
            for s in EVALUATED_AT for run, bp, n, seed in every]
    table(root / "sweep.csv", ["run", *TABLE[:2], "rollouts", "score"], rows)
    return [truth(bp, n, seed, seed_known=False) for _, bp, n, seed in every]


@layout(
    "the score is a count of solved problems, and runs were tested on 500 or on 800 of them",
    cure="divide: a column score = solved / tested",
    must_ask=True,
)
def solved_of_tested(root: Path) -> list[Truth]:
    """A sheet of hand-run evaluations; no one range fits all runs."""
    rows: list[list[object]] = []
    every = []
    for bp, n, seed in SWEEP:
        tested = 800 if n == 16 else 500
        solved = {s: round(tested * score(bp, n, seed, s)) for s in EVALUATED_AT}
        rows += [[bp, n, seed, s, solved[s], tested] for s in EVALUATED_AT]
        every.append(Truth(
            problems_per_batch=bp, rollouts_per_problem=n, seed=seed,
            scores={s: solved[s] / tested for s in EVALUATED_AT},
            rollouts={s: bp * n * s for s in EVALUATED_AT},
        ))
    table(root / "evals.csv", [*TABLE, "steps", "score", "tested"], rows)
    return every


@layout(
    "the evaluation file was changed at step 40; a column that is not problem_set says so",
    options=[{"where": ["eval_file=data/math500.jsonl"]}],
    cure="keep the rows of one eval_file",
    must_ask=True,
)
def other_evaluation_from_40(root: Path) -> list[Truth]:
    """Truth: math500.jsonl, which ends at step 30; the harder set lies 0.11 below."""
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        for s in EVALUATED_AT:
            old = s < 40
            file = "data/math500.jsonl" if old else "data/math500_clean_v2.jsonl"
            right = score(bp, n, seed, s)
            rows.append([bp, n, seed, bp * n * s, right if old else round(right - 0.11, 4), file])
    table(root / "sweep.csv", [*TABLE, "rollouts", "score", "eval_file"], rows)
    return [truth(*run, [s for s in EVALUATED_AT if s < 40]) for run in SWEEP]
