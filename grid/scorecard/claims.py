"""The claims, one testable sentence each, with the test that decides it.

Written before the runs of the grid; rows 47 to 52, what one n for both would cost, before those of
*bits, fresh*. `test` takes the evidence of one column (a model, or a world)
and gives an estimate with its 95% interval; `kind` and `smallest` turn it into a verdict by the
rules of `scorecard.verdicts`. Sections and figures are those of arXiv 2603.12151 (figures as
numbered on its project page); the words are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scorecard import scores
from scorecard import statistics as of
from scorecard.evidence import Evidence
from scorecard.verdicts import Estimate, Kind

# Smallest effects of interest, and why.
OCTAVES = 2.0  # of a rise of n*: less costs no more than a point or two of score
OCTAVE = 1.0  # of n*: neighbours of an optimum cost about nothing
# Between two n* the paper's own differences are 1.6 octaves (452 against 153), 1.0 (512 against
# 256) and 1.8 (row 8): rows that compare two n* ask for one. They were registered with two.
REGISTERED = 2.0
POINTS = 0.02  # of score: what repeats of one recipe differ by (ScaleRL, arXiv 2510.13786)
POINT = 0.01  # of score: what one would still pay for
TWICE = 1 / 3  # (a - b) / (a + b) where a is twice b
HALF = 0.5  # of d log n* / d log B_p: nearer to a law of n (0) than to one of the batch (-1); of
# octaves while the budget doubles: n* as the root of C, and the paper's own Easy law moves by 0.44
SHARE = 0.05  # of problems, of progress


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the scorecard.

    Args:
        id, group: of the row.
        text: the claim in one sentence.
        where: section and figure of the paper; "" for a question of our own.
        measure: what the number is.
        unit: of the number.
        kind, smallest: see `scorecard.verdicts`.
        registered: the smallest effect that was written down before the runs, where another.
        by_cost_of: id of the row that asks the same of two n*, in octaves.
        needs: arms without which it cannot be tested, names of `evidence.ARMS`.
        test: evidence -> estimate; raises `evidence.MissingError` where an arm is not there.
    """

    id: str
    group: str
    text: str
    where: str
    measure: str
    unit: str
    kind: Kind
    smallest: float
    needs: tuple[str, ...]
    test: Callable[[Evidence], Estimate]
    registered: float | None = None
    by_cost_of: str = ""

    @property
    def rule(self) -> str:
        """What confirms and what refutes, in words."""
        s = f"{self.smallest:.2g}"
        if self.kind == "above":
            return (
                f"Confirmed: the interval lies above 0 and reaches {s}. Refuted: it lies below {s}."
            )
        if self.kind == "within":
            return f"Confirmed: the interval lies between -{s} and {s}. Refuted: it lies outside."
        return f"Confirmed: the interval lies below {s}. Refuted: it lies above."


LAW, METRICS, BATCH = "The law n*(C)", "Which metric", "Problems per batch"
SPREAD, DATA, MIX, RECIPE = "Progress over problems", "Few problems", "Mixtures", "Recipe"
OURS, LATER = "Beyond the paper", "Written after a look at the data"
COST = "What one n for both would cost, written before the runs of bits, fresh"


_COST = "score lost by the best n for both against each with its own, mean of the two"


def _batch(e: Evidence, arm: str) -> int:
    return e.fullest_batch(arm)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="1", group=LAW, text="Easy: the best n rises with the budget.",
        where="4.1, figures 5 and 6",
        measure="rise of log2 n* over the budgets compared, B_p fixed", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("easy",),
        test=lambda e: of.rise(e.sweep("easy")),
    ),
    Claim(
        id="2", group=LAW, text="Hard: the best n rises too.", where="4.1, figures 5 and 6",
        measure="as row 1", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("hard",),
        test=lambda e: of.rise(e.sweep("hard")),
    ),
    Claim(
        id="3", group=LAW, text="Easy: by the largest budget it has levelled off.",
        where="4.1, figure 6",
        measure="score lost at the largest budget by the n that was best at a quarter of it",
        unit="score", kind="at_most", smallest=POINTS, needs=("easy",),
        test=lambda e: of.loss_of_staying(e.sweep("easy")),
    ),
    Claim(
        id="4", group=LAW, text="Hard: by the largest budget it has levelled off.",
        where="4.1, figure 6",
        measure="as row 3", unit="score",
        kind="at_most", smallest=POINTS, needs=("hard",),
        test=lambda e: of.loss_of_staying(e.sweep("hard")),
    ),
    Claim(
        id="5", group=LAW, text="Hard levels off at a smaller n than Easy.",
        where="4.1, figure 6",
        measure="log2 n* on Easy minus on Hard, largest shared budget", unit="octaves",
        kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("easy", "hard"),
        test=lambda e: of.shift(e.sweep("hard"), e.sweep("easy")),
    ),
    Claim(
        id="6", group=LAW, text="With a larger fixed B_p it levels off at a smaller n.",
        where="appendix, figures 16 and 17",
        measure="log2 n* at the smallest B_p minus at the largest, largest shared budget, Easy",
        unit="octaves", kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("easy_all",),
        test=lambda e: of.shift(e.at_bp("easy_all", -1), e.at_bp("easy_all", 0)),
    ),
    Claim(
        id="7", group=LAW, text="Counting tokens for rollouts keeps the trend.",
        where="appendix, figure 23",
        measure="rise by tokens minus rise by rollouts", unit="octaves",
        kind="within", smallest=OCTAVE, needs=("easy", "tokens"),
        test=lambda e: of.shift_of_rise(e.with_tokens("easy")),
    ),
    Claim(
        id="8", group=METRICS, text="Easy: worst@k wants a larger n than best@k (sharpening).",
        where="4.1, figure 7",
        measure="log2 n* by worst@k minus by best@k, largest budget", unit="octaves",
        kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("easy", "outcomes"),
        test=lambda e: e.metric_shift("easy", "best", "worst"),
    ),
    Claim(
        id="9", group=METRICS, text="Hard: best@k wants a larger n than worst@k (coverage).",
        where="4.1, figure 7",
        measure="log2 n* by best@k minus by worst@k, largest budget", unit="octaves",
        kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("hard", "outcomes"),
        test=lambda e: e.metric_shift("hard", "worst", "best"),
    ),
    Claim(
        id="10", group=METRICS,
        text="Never solved in 128 tries: best@k wants a larger n than worst@k.",
        where="appendix, figure 20",
        measure="as row 9, on the extremely hard problems", unit="octaves",
        kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("extremely_hard", "outcomes"),
        test=lambda e: of.shift(
            e.sweep("extremely_hard", "worst"), e.sweep("extremely_hard", "best")
        ),
    ),
    Claim(
        id="11", group=METRICS, text="There too large an n costs worst@k.",
        where="appendix, figure 20",
        measure="worst@k at n = 64 minus at n = 256, last fifth of the budget", unit="score",
        kind="above", smallest=POINT, needs=("extremely_hard", "outcomes"),
        test=lambda e: scores.pair(e.sweep("extremely_hard", "worst"), 256, 64),
    ),
    Claim(
        id="12", group=BATCH, text="Easy, fixed batch: n*(M) rises and B_p*(M) falls.",
        where="4.2, figure 8",
        measure="rise of log2 n* with M at the batch that has most splits", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("easy_splits",),
        test=lambda e: of.rise_at_fixed_batch(e.sweep("easy_splits"), _batch(e, "easy_splits")),
    ),
    Claim(
        id="13", group=BATCH, text="Hard, fixed batch: n*(M) turns back.",
        where="4.2; appendix, figure 19",
        measure="octaves by which the second half of the path undoes the first", unit="octaves",
        kind="above", smallest=OCTAVE, needs=("hard_splits",),
        test=lambda e: of.turn_at_fixed_batch(e.sweep("hard_splits"), _batch(e, "hard_splits")),
    ),
    Claim(
        id="14", group=BATCH, text="Easy: B_p moves the score far less than n does.",
        where="4.2, figure 9",
        measure="(spread over n - spread over B_p) / sum, largest budget", unit="share",
        kind="above", smallest=TWICE, needs=("easy_all",),
        test=lambda e: of.spread_share(e.sweep("easy_all")),
    ),
    Claim(
        id="15", group=BATCH, text="Hard: B_p moves it about as much as n does.",
        where="4.2, figure 9", measure="as row 14", unit="share",
        kind="within", smallest=TWICE, needs=("hard_all",),
        test=lambda e: of.spread_share(e.sweep("hard_all")),
    ),
    Claim(
        id="16", group=BATCH, text="Hard needs a larger least B_p than Easy.", where="4.2",
        measure="share of the best score that the smallest B_p loses: Hard minus Easy",
        unit="share", kind="above", smallest=SHARE, needs=("easy_all", "hard_all"),
        test=lambda e: of.bp_minimum(e.sweep("easy_all"), e.sweep("hard_all")),
    ),
    Claim(
        id="17", group=BATCH, text="With B_p free too, the best n still rises.",
        where="4.3, figures 10 and 11",
        measure="rise of log2 n* over all (B_p, n) together, Easy", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("easy_all",),
        test=lambda e: of.rise(e.sweep("easy_all")),
    ),
    Claim(
        id="18", group=SPREAD, text="Problems interfere: some get worse while others improve.",
        where="5, figure 12",
        measure="share of all movement that is loss, sampling noise removed, all n", unit="share",
        kind="above", smallest=SHARE, needs=("easy", "problems"),
        test=lambda e: scores.over_seeds(
            scores.per_seed(e.runs("easy", "interference")), of.spent(e.every("easy"))
        ),
    ),
    Claim(
        id="19", group=SPREAD, text="Larger n leaves fewer problems unsolved at equal rollouts.",
        where="5, figure 12",
        measure="share without a success in k: n = 4 minus n = 64", unit="share",
        kind="above", smallest=SHARE / 2, needs=("easy", "outcomes"),
        test=lambda e: scores.pair(e.every("easy", "best")),
    ),
    Claim(
        id="20", group=SPREAD, text="Larger n progresses more evenly over problems.",
        where="5, figure 12",
        measure="evenness of progress (1: all gained alike): n = 64 minus n = 4", unit="share",
        kind="above", smallest=SHARE, needs=("easy", "problems"),
        test=lambda e: scores.pair_runs(
            e.runs("easy", "uniform_progress"), rollouts=of.spent(e.every("easy"))
        ),
    ),
    Claim(
        id="21", group=DATA, text="Few problems: validation falls after a peak.",
        where="5, figure 14",
        measure="score lost since the peak (found in the other seeds), mean over n", unit="score",
        kind="above", smallest=POINT, needs=("few",),
        test=lambda e: scores.fall(e.sweep("few")),
    ),
    Claim(
        id="22", group=DATA, text="Few problems cap n lower.", where="5, figure 14",
        measure="log2 n* with many problems minus with few, largest shared budget", unit="octaves",
        kind="above", smallest=OCTAVE, registered=REGISTERED, needs=("few", "easy"),
        test=lambda e: of.shift(e.sweep("few"), e.sweep("easy")),
    ),
    Claim(
        id="23", group=DATA, text="The training reward prefers a smaller n than validation.",
        where="5, figure 14",
        measure="train minus validation score: at n = 4 minus at n = 64", unit="score",
        kind="above", smallest=POINT, needs=("easy", "train"),
        test=lambda e: _negative(
            scores.pair_runs(e.runs("easy", "gap"), rollouts=of.spent(e.every("easy")))
        ),
    ),
    Claim(
        id="24", group=MIX, text="A mixture keeps the rise, judged on Hard.",
        where="5, figure 15",
        measure="rise of log2 n*, trained on half Hard and half Easy", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("dual",),
        test=lambda e: of.rise(e.sweep("dual", on="hard")),
    ),
    Claim(
        id="25", group=MIX, text="Training on Hard alone forgets Easy.", where="5, figure 15",
        measure="score on Easy before minus after training on Hard", unit="score",
        kind="above", smallest=POINTS, needs=("hard_on_easy",),
        test=lambda e: _negative(scores.moved(e.sweep("hard_on_easy", on="easy"))),
    ),
    Claim(
        id="26", group=MIX, text="Easy problems in the mixture protect it.",
        where="5, figure 15",
        measure="score on Easy: trained on the mixture minus on Hard alone", unit="score",
        kind="above", smallest=POINTS, needs=("hard_on_easy", "dual"),
        test=lambda e: scores.contrast(
            e.sweep("hard_on_easy", on="easy"), e.sweep("dual", on="easy")
        ),
    ),
    Claim(
        id="27", group=MIX, text="That costs little on Hard (two points there).",
        where="5, figure 15",
        measure="score on Hard: trained on Hard alone minus on the mixture", unit="score",
        kind="at_most", smallest=2 * POINTS, needs=("hard_on_easy", "dual"),
        test=lambda e: scores.contrast(
            e.sweep("dual", on="hard"), e.sweep("hard_on_easy", on="hard")
        ),
    ),
    Claim(
        id="28", group=MIX, text="Very easy problems help nobody, not even themselves.",
        where="5, figure 15",
        measure="score on Very Easy: mixture of three minus mixture of two", unit="score",
        kind="at_most", smallest=POINTS, needs=("dual", "tri"),
        test=lambda e: scores.contrast(
            e.sweep("dual", on="very_easy"), e.sweep("tri", on="very_easy")
        ),
    ),
    Claim(
        id="29", group=MIX, text="Outside the domain larger n helps too.",
        where="appendix, figure 21",
        measure="score outside the domain: n = 64 minus n = 4, trained on Easy", unit="score",
        kind="above", smallest=POINTS, needs=("outside",),
        test=lambda e: scores.pair(e.sweep("outside", on="other")),
    ),
    Claim(
        id="30", group=RECIPE, text="PPO's best n rises too.", where="appendix",
        measure="rise of log2 n* under PPO", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("ppo",),
        test=lambda e: of.rise(e.sweep("ppo")),
    ),
    Claim(
        id="31", group=RECIPE, text="CISPO's best n rises too.", where="appendix",
        measure="rise of log2 n* under CISPO", unit="octaves",
        kind="above", smallest=OCTAVES, needs=("cispo",),
        test=lambda e: of.rise(e.sweep("cispo")),
    ),
    Claim(
        id="32", group=RECIPE, text="Square-root scaling of the rate beats a constant one.",
        where="3, figure 4", measure="final score at eight times the batch", unit="score",
        kind="above", smallest=POINTS, needs=("rate_sqrt", "rate_constant"),
        test=lambda e: scores.contrast(e.sweep("rate_constant"), e.sweep("rate_sqrt")),
    ),
    Claim(
        id="33", group=RECIPE, text="Square-root scaling beats a linear one.",
        where="3, figure 4", measure="as row 32", unit="score",
        kind="above", smallest=POINTS, needs=("rate_sqrt", "rate_linear"),
        test=lambda e: scores.contrast(e.sweep("rate_linear"), e.sweep("rate_sqrt")),
    ),
    Claim(
        id="34", group=RECIPE, text="Easy: KL and an entropy bonus help.", where="3, figure 3",
        measure="final score with both minus with neither", unit="score",
        kind="above", smallest=POINT, needs=("easy_plain", "easy_regular"),
        test=lambda e: scores.contrast(e.sweep("easy_plain"), e.sweep("easy_regular")),
    ),
    Claim(
        id="35", group=RECIPE, text="Hard: they hurt.", where="3, figure 3",
        measure="final score with neither minus with both", unit="score",
        kind="above", smallest=POINT, needs=("hard_plain", "hard_regular"),
        test=lambda e: scores.contrast(e.sweep("hard_regular"), e.sweep("hard_plain")),
    ),
    Claim(
        id="36", group=RECIPE, text="Dropping groups without variance does not help.",
        where="3, figure 3", measure="final score on Easy: with the filter minus without",
        unit="score", kind="at_most", smallest=POINT, needs=("easy_regular", "easy_filter"),
        test=lambda e: scores.contrast(e.sweep("easy_regular"), e.sweep("easy_filter")),
    ),
    Claim(
        id="37", group=RECIPE, text="All of 256 rollouts beat 64 of them with their baseline.",
        where="appendix, figure 22", measure="final score: 256 of 256 minus 64 of 256",
        unit="score", kind="above", smallest=POINT, needs=("n256", "n64_of_256"),
        test=lambda e: e.end_contrast("n64_of_256", "n256"),
    ),
    Claim(
        id="38", group=RECIPE, text="That baseline beats plain n = 64 at equal rollouts.",
        where="appendix, figure 22", measure="final score: 64 of 256 minus 64 of 64",
        unit="score", kind="above", smallest=POINT, needs=("n64", "n64_of_256"),
        test=lambda e: e.end_contrast("n64", "n64_of_256"),
    ),
    Claim(
        id="39", group=OURS, text="The best n follows n, not the batch (Easy).", where="",
        measure="d log n* / d log B_p at equal budget: 0 for n, -1 for the batch", unit="slope",
        kind="within", smallest=HALF, needs=("easy_all",),
        test=lambda e: of.direction(e.sweep("easy_all")),
    ),
    Claim(
        id="40", group=OURS, text="The best n follows n, not the batch (Hard).", where="",
        measure="as row 39", unit="slope",
        kind="within", smallest=HALF, needs=("hard_all",),
        test=lambda e: of.direction(e.sweep("hard_all")),
    ),
    Claim(
        id="41", group=OURS, text="A pilot at a sixteenth of the budget finds the n.", where="",
        measure="score lost at the full budget by the pilot's n, Easy", unit="score",
        kind="at_most", smallest=POINTS, needs=("easy",),
        test=lambda e: of.pilot_loss(e.sweep("easy")),
    ),
    Claim(
        id="42", group=OURS, text="One seed per n is enough to choose n.", where="",
        measure="score lost by choosing n from one seed's final scores, Easy", unit="score",
        kind="at_most", smallest=POINTS, needs=("easy", "seeds"),
        test=lambda e: scores.one_seed_loss(e.sweep("easy")),
    ),
    Claim(
        id="43", group=LATER, text="Easy: at the end the best n grows slower than sqrt(C).",
        where="4.1, figure 6",
        measure="move of log2 n* while the budget doubles for the last time", unit="octaves",
        kind="at_most", smallest=HALF, needs=("easy",),
        test=lambda e: of.late_move(e.sweep("easy")),
    ),
    Claim(
        id="44", group=LATER, text="Hard: at the end the best n grows slower than sqrt(C).",
        where="4.1, figure 6", measure="as row 43", unit="octaves",
        kind="at_most", smallest=HALF, needs=("hard",),
        test=lambda e: of.late_move(e.sweep("hard")),
    ),
    Claim(
        id="45", group=LATER, text="Training on Hard alone forgets Very Easy.",
        where="5, figure 15",
        measure="score on Very Easy before minus after training on Hard", unit="score",
        kind="above", smallest=POINTS, needs=("hard_on_easy",),
        test=lambda e: _negative(scores.moved(e.sweep("hard_on_easy", on="very_easy"))),
    ),
    Claim(
        id="46", group=LATER, text="Trained on Hard alone, Easy falls after a peak.",
        where="5, figure 15", measure="as row 21, on Easy", unit="score",
        kind="above", smallest=POINT, needs=("hard_on_easy",),
        test=lambda e: scores.fall(e.sweep("hard_on_easy", on="easy")),
    ),
    Claim(
        id="47", by_cost_of="5", group=COST,
        text="Hard wants a smaller n than Easy, and it matters.",
        where="4.1, figure 6", measure=f"{_COST}; positive where Easy's own n is the larger",
        unit="score", kind="above", smallest=POINT, needs=("easy", "hard"),
        test=lambda e: scores.one_for_both(*scores.equal(e.sweep("hard"), e.sweep("easy"))),
    ),
    Claim(
        id="48", by_cost_of="6", group=COST,
        text="A larger fixed B_p wants a smaller n, and it matters.",
        where="appendix, figures 16 and 17",
        measure=f"{_COST}; positive where the smallest B_p's own n is larger than the largest's",
        unit="score", kind="above", smallest=POINT, needs=("easy_all",),
        test=lambda e: scores.one_for_both(
            *scores.equal(e.at_bp("easy_all", -1), e.at_bp("easy_all", 0))
        ),
    ),
    Claim(
        id="49", by_cost_of="8", group=COST,
        text="Easy: worst@k wants a larger n than best@k, and it matters.",
        where="4.1, figure 7", measure=f"{_COST}; positive where worst@k's own n is the larger",
        unit="score", kind="above", smallest=POINT, needs=("easy", "outcomes"),
        test=lambda e: scores.one_for_both(e.sweep("easy", "best"), e.sweep("easy", "worst")),
    ),
    Claim(
        id="50", by_cost_of="10", group=COST,
        text="Never solved: best@k wants a larger n than worst@k, and it matters.",
        where="appendix, figure 20",
        measure=f"{_COST}; positive where best@k's own n is the larger",
        unit="score", kind="above", smallest=POINT, needs=("extremely_hard", "outcomes"),
        test=lambda e: scores.one_for_both(
            e.sweep("extremely_hard", "worst"), e.sweep("extremely_hard", "best")
        ),
    ),
    Claim(
        id="51", by_cost_of="22", group=COST,
        text="Few problems want a smaller n, and it matters.",
        where="5, figure 14", measure=f"{_COST}; positive where many problems' own n is the larger",
        unit="score", kind="above", smallest=POINT, needs=("few", "easy"),
        test=lambda e: scores.one_for_both(*scores.equal(e.sweep("few"), e.sweep("easy"))),
    ),
    Claim(
        id="52", by_cost_of="12", group=COST,
        text="Easy, fixed batch: a longer run wants a larger n, and it matters.",
        where="4.2, figure 8",
        measure=f"{_COST}: a sixteenth of the updates, and all; positive where the end's is larger",
        unit="score", kind="above", smallest=POINT, needs=("easy_splits",),
        test=lambda e: _early_and_late(e.sweep("easy_splits"), _batch(e, "easy_splits")),
    ),
)  # fmt: skip


def _early_and_late(sweep: of.Sweep, batch: int) -> Estimate:
    """What one n costs a short and a long run of one batch size."""
    chosen = [c for c in sweep if c.configuration.batch_size == batch]
    return scores.one_for_both(scores.begin(chosen, 1 / of.PILOT), chosen)


def _negative(found: Estimate) -> Estimate:
    """The same of the opposite difference."""
    return found._replace(value=-found.value, low=-found.high, high=-found.low)
