"""The notices of a fit, and the verdict that follows from them.

Shape legend: D draws, J configurations, X budgets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.answers.best import first_to_try
from isocompute.answers.broke import broke_words, came_to, fallen
from isocompute.answers.claims import confounded
from isocompute.answers.confounds import confounds
from isocompute.answers.law import NOTHING
from isocompute.answers.logged import in_words, range_of
from isocompute.answers.overfit import Windows
from isocompute.answers.reading import Reading
from isocompute.domain import Configuration, Effort, Notice, Work, notice, ordered
from isocompute.domain.notices import LISTED
from isocompute.domain.text import compact, fold, some_of, unit_words
from isocompute.health.advice import OF_RUNS
from isocompute.health.rules import SURE
from isocompute.health.shape import roughness
from isocompute.model.data import MIN_STEPS
from isocompute.model.posterior import HALF

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

# What is said beyond the data is widened by how far the back-test missed. Half as much again is
# worth a caution. At four times the model does not know this sweep: of 18 cuts of published panels
# none came above 2.6, so 2 would refuse some of them and 8 nothing.
WIDE, TOO_WIDE = 1.5, 4.0
# Scores closer than this are ties between repeats of one run (ScaleRL, arXiv 2510.13786): a model
# that misses by that much more than no change has nothing to say of what comes next.
USELESS = 0.02
# Of its peak, a rate below which scores may level off for its sake. A linear fall to nothing passes
# it half-way; a quarter would miss runs cut off before, three quarters name restarts of a warm-up.
FELL = 0.5
LEADERS = 3  # n that are named: more of them is a sweep, not a step
ENOUGH_N = 3  # with fewer n, and with fewer runs of one, what others show says more than they do


def limits(fit: Fit) -> list[Notice]:
    """Every notice of a fit, the gravest first."""
    # What was read comes first, then whether the runs learned: else there is nothing to predict.
    # Where n are open the answer itself is; of one or two n it is so anyhow.
    open_ = (_open, untested) if len(fit.tested_n) >= ENOUGH_N else (untested, _open)
    parts = (_read, _learned, _own_test, *open_, _best, _falls, _runs)
    return ordered([one for part in parts for one in part(fit)])


def leaders(fit: Reading) -> list[Configuration]:
    """What may be best at the largest budget compared: the nearest three n, at their best B_p."""
    last = [b for b in fit.best if not b.extrapolated][-1]
    n = last.tested_rollouts_per_problem
    return at_their_best(fit, sorted(nearest_n(last.confidence_set, n)), last.x)


def nearest_n(values: Sequence[int], n: int) -> list[int]:
    """The three nearest to an n, the nearest first."""
    return sorted(values, key=lambda m: abs(math.log2(m / n)))[:LEADERS]


def at_their_best(fit: Reading, n: Sequence[int], x: float) -> list[Configuration]:
    """Some tested n, each at the B_p that scores best at a budget."""
    scores = fit.expected_scores(x)
    return [
        max((c for c in scores if c.rollouts_per_problem == m), key=lambda c: scores[c]) for m in n
    ]


def seeds(
    fit: Reading, which: Sequence[Configuration], more: int = 2, x: float = math.inf
) -> Effort:
    """So many more runs of each configuration, to the budget at which all n were compared.

    What lies beyond tells nothing of one n against another. At equal cost rollouts differ by n.

    Args:
        x: budget of a plan, which needs no more.
    """
    end, tested = min(fit.support[1], x), fit.configurations
    # What ended before that goes as far as it went.
    each = {c: fit.trained(c, end) if c in tested else fit.buys(c, end) for c in which}
    return {c: Work(more * rollouts, runs=more) for c, rollouts in each.items()}


def named(fit: Reading, which: Sequence[Configuration]) -> str:
    """Configurations in words: n = 8, 16; with their B_p where several were fitted."""
    if len({c.problems_per_batch for c in fit.configurations}) > 1:
        return some_of(map(str, which), LISTED) + " (B_p x n)"
    return "n = " + some_of((str(c.rollouts_per_problem) for c in which), LISTED)


def open_choice(
    fit: Reading, contended: Sequence[int], good: Sequence[int], n: int, n_tested: int, at: float,
) -> list[Notice]:
    """The notice that more than half of the n tested, and not two alone, may be best somewhere.

    It asks for seeds of the same n as the steps: the `LEADERS` nearest to `n`.
    """
    if not 2 * len(contended) > n_tested > 1 or len(contended) == 2 < n_tested:
        return []
    asked = at_their_best(fit, sorted(nearest_n(contended, n)), at)
    trains = seeds(fit, asked, x=at)
    either = " or ".join(map(str, good))
    # Behind "take n = 16 or 32" the word "each" would be read as these two.
    every = "both" if len(contended) == 2 else f"all {len(contended)} n"
    if len(asked) < len(contended):
        every = named(fit, asked)
    return [notice("n_not_told_apart", trains=trains, which=list(contended), good=either, at=at,
                   unit=fit.unit, all_of_them=every)]  # fmt: skip


def unbounded(fit: Reading) -> list[Configuration]:
    """Configurations whose ceiling lies beyond what their data say."""
    share_J = (fit.posterior.log10_midpoint_DJ > fit.posterior.last_J).mean(axis=0)
    tail = (1 - fit.level) / 2  # so that the interval's upper end is one of the prior alone
    past = {*fallen(fit), *(c for c in fit.broke if came_to(fit, c) < math.inf)}
    return [c for c, share in zip(fit.configurations, share_J, strict=True)
            if share > tail and c not in past]  # fmt: skip


def _own_test(fit: Reading) -> Iterator[Notice]:
    test = fit.backtest
    if not test.rows:
        yield notice("nothing_held_out")
    on = _on(fit, leaders(fit))
    more, skill = test.excess, test.skill
    if more and skill is not None and more[0] > 0 and sum(more) / 2 > USELESS:
        yield notice("no_skill", skill=skill, **on)
    if test.widened_by > TOO_WIDE:  # which few observations seldom reach: see `widened_by`
        held: dict[str, Any] = {"share": test.coverage, "n_held_out": len(test.rows)}
        yield notice("intervals_missed", **held, level=fit.level, **on)
    elif test.widened_by > WIDE:
        yield notice("intervals_widened", times=test.widened_by, at=fit.support[1],
                     unit=fit.unit)  # fmt: skip


def _on(fit: Reading, which: Sequence[Configuration]) -> dict[str, Any]:
    """Fields of a remedy: train these to twice the largest budget; if all fell, anew."""
    if not (sound := [c for c in which if c not in fallen(fit)]):
        anew = {"which": named(fit, which), "trains": seeds(fit, which, 1)}
        return {"how": "again at half the learning rate", **anew}
    to, trains = 2 * fit.reached(), dict[Configuration, float]()
    for c in sound:
        ran = fit.trained(c)
        trains[c] = Work(fit.buys(c, to) - ran, after=ran) if ran > 0 else 0.0
    how = f"on to {compact(to)} {unit_words(fit.unit)}"
    return {"which": named(fit, sound), "how": how, "trains": trains}


def _learned(fit: Reading) -> Iterator[Notice]:
    """Whether the runs learned, by their scores alone."""
    of = fit.windows
    if 2 * sum(came_to(fit, c) < math.inf for c in fit.broke) > len(of):
        yield _unhealthy(fit)  # else one of many
    fallen = _fallen(of)
    flat = 2 * len(fallen) <= len(of) and not any(w.rises for w in of.values())
    if flat:  # they may have fallen before their first evaluation
        fallen = sorted(c for c, w in of.items() if w.below_start)
    if 2 * len(fallen) > len(of):
        # The shortest run of those, then of the smallest batch, is the cheapest to try again.
        first = min(fallen, key=lambda c: (fit.trained(c), c.batch_size, c))
        yield notice("scores_fall", fallen=named(fit, fallen), which=named(fit, [first]),
                     trains={first: fit.trained(first) / 4})  # fmt: skip
    elif flat:
        low, high = range_of(fit.curves)
        seen = (high - low) * min((SURE * w.error(0, -1) for w in of.values()), default=0.0)
        hides = seen >= 0.005  # else it rounds to nothing
        ill = [c for c in fit.curves if {*c.failed_rules} - {"dead_batches"}]  # of hard sets, too
        yield notice("scores_flat", hidden=f"; a rise below {seen:.2f} would not show" * hides,
                     more="If that is much, evaluate on more problems. " * hides,
                     rates="lower" if 2 * len(ill) > len(fit.curves) else "higher")


def _fallen(of: Mapping[Configuration, Windows]) -> list[Configuration]:
    """The configurations that surely end lower than they began."""
    return sorted(c for c, w in of.items() if w.change(0, -1)[1] < -SURE)


def _read(fit: Reading) -> Iterator[Notice]:
    if any(c.steps_assumed for c in fit.curves):
        yield notice("steps_assumed")
    if seen := max(c.seen for c in fit.curves):
        yield notice("prompts_trained_on", share=seen)
    yield from confounds(fit.curves)
    if not fit.frontier.compared:
        yield _never_compared(fit)
    said = Counter((c.configuration, c.seed) for c in fit.curves if c.seed is not None)
    if again := {of for (of, _), count in said.items() if count > 1}:
        yield notice("seed_repeated", which=named(fit, sorted(again)))


def _falls(fit: Reading) -> Iterator[Notice]:
    """What fell after a peak, where not most fell from the start."""
    of, late = fit.windows, fallen(fit)
    if late and 2 * len(_fallen(of)) <= len(of):
        yield notice("falls_after_peak", which=named(fit, late))


def untested(
    fit: Fit, x: float = math.inf, near: Sequence[Configuration] = (),
    tried: Effort | None = None,
) -> Iterator[Notice]:  # fmt: skip
    """Which runs a sweep lacks.

    Args:
        x: budget of a plan, which needs no longer ones.
        near: what may be best there; none: at the largest budget compared.
        tried: of one or two n, the first run of another; None: at the largest budget compared.
    """
    runs_J, n, of = np.asarray(fit.posterior.n_runs_J), fit.tested_n, near or leaders(fit)
    if len(n) < ENOUGH_N:
        tried = tried or seeds(fit, [_first_untested(fit)], 1, x)
        (other,) = tried
        at = f" at a batch of {fit.batch_size}" if fit.batch_size else ""
        yield notice("one_or_two_n", which=" and ".join(map(str, n)) + at,
                     wanted=other.rollouts_per_problem, trains=tried)  # fmt: skip
    if (runs_J == 1).all():
        yield notice("seeds_missing", what="Every n has", spread="taken from other sweeps",
                     which=named(fit, of), trains=seeds(fit, of, x=x))  # fmt: skip
    elif (runs_J < ENOUGH_N).any():
        few = {c: r for c, r in zip(fit.configurations, runs_J, strict=True) if r < ENOUGH_N}
        few = {c: r for c, r in few.items() if c in near} or few
        trains = {c: seeds(fit, [c], ENOUGH_N - int(r), x)[c] for c, r in few.items()}
        yield notice("few_seeds", which=named(fit, list(few)), trains=trains)
    if len(n) > 1 and confounded(fit.configurations):
        two = [*of[:2], *(c for c in fit.configurations if c not in of)][:2]
        again = [fit.check_of(c._replace(problems_per_batch=2 * c.problems_per_batch), c, x)
                 for c in two]  # fmt: skip
        yield notice("n_confounded_with_batch", trains={**again[0], **again[1]})


def _first_untested(fit: Fit) -> Configuration:
    """What to try first of n that nobody ran, at the largest budget compared."""
    wanted, guess_DF, own_D = fit.guesses(fit.support[1])
    if not wanted:  # at a fixed batch nothing is guessed
        return fit.at_n(fit.configurations[-1], 2 * fit.tested_n[-1])
    return wanted[first_to_try(guess_DF - own_D[:, None], np.array([n for _, n in wanted]))]


def _open(fit: Fit) -> Iterator[Notice]:
    """That several n may be best at the largest budget compared."""
    last = [b for b in fit.best if not b.extrapolated][-1]
    yield from open_choice(fit, last.confidence_set, last.as_good,
                           last.tested_rollouts_per_problem, len(fit.tested_n), last.x)


def _best(fit: Fit) -> Iterator[Notice]:
    """What limits the best n, at the end of the support and on the way there."""
    inside, tested = [b for b in fit.best if not b.extrapolated], fit.tested_n
    first, last = inside[0], inside[-1]
    if len(tested) == 1:
        return
    for n, end in ((tested[-1], "largest"), (tested[0], "smallest")):
        if abs(np.log2(last.rollouts_per_problem / n)) < 1e-6:
            beyond = 2 * n if end == "largest" else n // 2
            if beyond > 1:  # one rollout of a problem has no group to be compared with
                other = fit.at_n(last.configuration, beyond)
                yield notice("optimum_at_edge", at=last.x, unit=fit.unit, n=n, end=end,
                             beyond=beyond,
                             trains=fit.check_of(other, last.configuration, last.x))  # fmt: skip
    if fit.rise.octaves > NOTHING and not fit.rise.claimed:
        ends = sorted({first.configuration, last.configuration})
        yield notice("rise_not_claimed", times=fold(fit.rise.octaves), those=named(fit, ends),
                     trains=seeds(fit, ends))  # fmt: skip
    if fit.rise.falls:
        n = last.tested_rollouts_per_problem
        yield notice("falling", times=fold(-fit.rise.octaves), n=n)
    for code in ("non_monotone", "slope_not_identified"):
        if code in fit.law["flags"]:
            yield notice(code)


def _never_compared(fit: Reading) -> Notice:
    """That no budget lies within the data of all that may be best; the two that lie most apart."""
    last_J, first_J, of = fit.posterior.last_J, fit.posterior.first_J, fit.configurations
    if short := [of[j] for j in np.flatnonzero(np.isinf(first_J))]:
        why = f"{named(fit, short)} has none from update {MIN_STEPS} on, where n are compared"
        ran = {c: fit.trained(c) for c in short}
        trains = {c: Work(max(MIN_STEPS * c.batch_size - r, 0.0), after=r) for c, r in ran.items()}
        return notice("never_compared", why=why, trains=trains, more="",
                      first=f"{named(fit, short)} to that update")  # fmt: skip
    c, last = of[int(last_J.argmin())], named(fit, [of[int(first_J.argmax())]])
    end, begin = (compact(10 ** float(at)) for at in (last_J.min(), first_J.max()))
    before = fit.trained(c)
    more = Work(max(fit.buys(c, fit.support[1]) - before, 0.0), after=before)
    return notice(
        "never_compared", first=named(fit, [c]), more=f", or evaluate {last} from early on",
        why=f"{named(fit, [c])} ends at {end} {unit_words(fit.unit)}, {last} begins at {begin}",
        trains={c: more},
    )  # fmt: skip


def _unhealthy(fit: Reading) -> Notice:
    which = [f"{named(fit, [c])} {broke_words(fit, c)}" for c in sorted(fit.broke)]
    again = {c: fit.buys(c, fit.support[1]) for c in sorted(fit.broke)}
    return notice("unhealthy_run", which=which, again=named(fit, list(again)), trains=again)


def _runs(fit: Fit) -> Iterator[Notice]:
    """What is the matter with single runs, and what the sweep lacks of them."""
    of, curves, high = fit.posterior, fit.curves, fit.frontier.support[1]
    high_x = fit.support[1]  # as far as a run that is trained again is compared
    state = dict(zip(fit.configurations, of.state_J, strict=True))
    sound = [c for c in curves if state.get(c.configuration, "broken") != "broken"]
    fell = fallen(fit)  # a notice of its own says so
    found = [(c, roughness(c.score_K, 1 / c.trials if c.trials else fit.noise_phi,
                           fell=c.configuration in fell)) for c in sound]  # fmt: skip
    rough = [c.configuration for c, r in found if r is not None and r.too_rough]
    sizes = sorted({c.trials for c in curves if c.trials})

    def names(which: Iterable[Configuration]) -> str:
        return named(fit, sorted(set(which)))

    if fit.broke:
        yield _unhealthy(fit)
    if stopped := [c for c, s in state.items() if s == "stopped"]:
        yield notice("stopped_early", which=named(fit, stopped))
    if failed := [c for c in curves if c.failed_rules]:
        of_each = Counter(c.configuration for c in failed)
        again = {c: Work(k * fit.buys(c, high_x), runs=k) for c, k in of_each.items()}
        listed = [f"{named(fit, [c])} ({fit.unhealthy[c]})" for c in sorted(of_each)]
        broken = Counter(rule for c in failed for rule in c.failed_rules)
        # Whatever broke a run, its batches are dead thereafter.
        cause = min(broken, key=lambda rule: (rule == "dead_batches", -broken[rule], rule))
        advice = OF_RUNS.get(cause, "Look at their health.")
        yield notice("failed_health", n_failed=len(failed), n_runs=len(curves), which=listed,
                     advice=advice, trains=again)  # fmt: skip
    if low := [c for c in curves if c.rate_left is not None and c.rate_left < FELL]:
        ends = sorted(f"{c.rate_left or 0.0:.0%}" for c in low)
        left = " to ".join(dict.fromkeys((ends[0], ends[-1])))
        yield notice("rate_fell", left=left, which=names(c.configuration for c in low))
    if rough:
        yield notice("not_smooth", n_rough=len(rough), n_runs=len(curves), which=names(rough))
    if over := [row for row in fit.train_test if row["overfits"]]:
        worst = max(over, key=lambda row: row["validation_lost"])
        which = names(Configuration(*(r[name] for name in Configuration._fields)) for r in over)
        lost = in_words(fit, worst["validation_lost"], difference=True)
        yield notice("overfitting", which=which, lost=lost, at=worst["from"], unit=fit.unit)
    if open_ := unbounded(fit):
        yield notice("ceiling_unbounded", which=named(fit, open_))
    if fit.frontier.compared and of.last_J.max() - high >= HALF:
        spans = list(zip(state, of.first_J, of.last_J, strict=True))
        short, end = [c for c, _, last in spans if last <= high + HALF / 2], "end"
        if not short:  # a large batch has few updates at budgets that others passed long ago
            short, end = [c for c, first, _ in spans if first > high], f"lack {MIN_STEPS} updates"
        yield notice("budgets_not_shared", at=high_x, unit=fit.unit, which=named(fit, short),
                     end=end)  # fmt: skip
    if out := {c.configuration for c in curves} - set(state):
        yield notice("configuration_left_out", which=names(out), why="no score after step 0")
    if mixed := sum(c.n_repeated for c in curves if c.n_repeated > len(c.score_K) / 20):
        yield notice("runs_mixed", n_rows=mixed)
    if missing := sum(c.n_missing for c in curves):
        yield notice("scores_missing", n_rows=missing)
    if len(sizes) > 1:
        yield notice("unequal_evaluations", fewest=sizes[0], most=sizes[-1])
    if not sizes:
        yield notice("noise_estimated")
