"""`fit --json`: the contract of the design page, version 1, built from a Fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.curves.profile import ceiling_profile
from isocompute.domain.text import plain
from isocompute.laws.estimate import LawEstimate, reported_budgets
from isocompute.laws.limits import (
    bend_warning,
    change_warning,
    fall_of,
    fall_warning,
    limit_warnings,
    name_of,
    on_bound,
)
from isocompute.laws.overfit import overfit_warning, overfitting
from isocompute.laws.provenance import provenance
from isocompute.laws.smooth import evaluation_warning, smooth_runs, smooth_warning, smoothness_of
from isocompute.laws.spread import spread_tables

if TYPE_CHECKING:
    from isocompute.laws.sweep import Fit

_PROBABILITY_POINTS = 48


def fit_document(fit: Fit) -> dict[str, Any]:
    """The JSON document; every number finite or null."""
    curves, curve_warnings = _curves(fit)
    # Success per training rollout is comparable with mean success only.
    train = () if fit.metric.startswith(("best", "worst")) else fit.train
    gaps = overfitting(fit.curves, train, unit=fit.unit)
    over = overfit_warning(gaps)
    document = {
        # The scores of Gompertz curves do not follow from their parameters as version 1 says.
        "version": 1 if fit.curve_fits.form == "logistic" else 2,
        "setting": fit.setting,
        "metric": fit.metric,
        "unit": fit.unit,
        "level": fit.level,
        "provenance": provenance(fit),
        "curves": curves,
        "frontier": _frontier(fit),
        "crossovers": _crossovers(fit),
        "support": list(fit.support),
        "law": _law(fit, fit.law, "rollouts_per_problem"),
        "law_problems_per_batch": None
        if fit.law_problems_per_batch is None
        else _law(fit, fit.law_problems_per_batch, "problems_per_batch"),
        "backtest": fit.backtest,
        "sensitivity": fit.sensitivity,
        "spread": spread_tables(fit.curve_fits, fit.level),
        "probabilities": _probabilities(fit),
        "train_test": gaps,
        "warnings": [*_warnings(fit), *curve_warnings, *([over] if over else [])],
    }
    return plain(document)  # type: ignore[no-any-return]  # a dict stays a dict


def _curves(fit: Fit) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    fits = fit.curve_fits
    rows, open_ceilings = [], []
    smooth = smooth_runs(fits)
    for j, one in enumerate(fits.binned):
        flags = []
        lo, hi = fits.ceiling_interval(j, fit.level)
        bounded = hi is not None
        if not bounded:
            flags.append("ceiling_unbounded")
            open_ceilings.append(name_of(fits, j))
        if fits.fit.on_bound[j]:
            flags.append("on_bound")
        if fall_of(one):
            flags.append("falls_after_peak")
        if len(one.runs) == 1:
            flags.append("one_run")
        if any(run.found.too_rough for run in smooth[j]):
            flags.append("not_smooth")
        rows.append(
            {
                "problems_per_batch": one.problems_per_batch,
                "rollouts_per_problem": one.rollouts_per_problem,
                "n_runs": len(one.runs),
                "n_points": one.n_points,
                "n_records": len(one.record_score),
                "n_dominated": int(one.dominated_RX.sum()),
                "max_rollouts": max(float(c.rollouts_K.max()) for c in one.runs),
                "form": fits.form,
                "floor": fits.fit.floor[j],
                "ceiling": fits.fit.ceiling[j],
                "slope": fits.fit.slope[j],
                "log10_midpoint": fits.fit.midpoint[j],
                "held_from": 10**one.held_from if np.isfinite(one.held_from) else None,
                "log10_midpoint_interval": list(fits.midpoint_interval(j, fit.level)),
                "ceiling_interval": [lo, hi],
                "ceiling_profile_interval": ceiling_profile(fits, j, fit.level),
                "identified": bounded,
                "on_bound": on_bound(fits, j),
                **smoothness_of(smooth[j]),
                "flags": flags,
            }
        )
    rough = smooth_warning(smooth)
    bend = bend_warning(fits)
    change = change_warning(fits)
    warnings = [w for w in (rough, change, evaluation_warning(fits), bend) if w]
    if open_ceilings:
        warnings.append(
            _warning(
                "ceiling_unbounded",
                f"the ceiling of {', '.join(open_ceilings)} is not bounded by the data: nothing "
                "beyond the last "
                "evaluation is known; train these further.",
            )
        )
    if fall := fall_warning(fits):
        warnings.append(fall)
    return rows, warnings


def _frontier(fit: Fit) -> list[dict[str, Any]]:
    b, n = fit.curve_fits.problems_per_batch_J, fit.curve_fits.rollouts_per_problem_J
    return [
        {
            "from": s.start,
            "to": s.end,
            "problems_per_batch": b[s.configuration],
            "rollouts_per_problem": n[s.configuration],
            "score_from": s.score_start,
            "score_to": s.score_end,
            "probability_best": s.probability_best,
            "extrapolated": s.extrapolated,
        }
        for s in fit.frontier.segments
    ]


def _crossovers(fit: Fit) -> list[dict[str, Any]]:
    b, n = fit.curve_fits.problems_per_batch_J, fit.curve_fits.rollouts_per_problem_J
    return [
        {
            "at": c.at,
            "interval": list(c.interval),
            "from_rollouts_per_problem": n[c.before],
            "to_rollouts_per_problem": n[c.after],
            "from_problems_per_batch": b[c.before],
            "to_problems_per_batch": b[c.after],
        }
        for c in fit.frontier.crossovers
    ]


def _law(fit: Fit, estimate: LawEstimate, quantity: str) -> dict[str, Any]:
    law = estimate.law
    interval = estimate.plateau_interval
    at = []
    for x in reported_budgets(fit.frontier):
        point = fit.at(float(x))
        at.append(
            {
                "x": fit.law_x(float(x)),
                quantity: estimate.predict(fit.law_x(float(x))),
                "interval": estimate.interval(fit.law_x(float(x)), fit.level),
                "confidence_set": point.confidence_set
                if quantity == "rollouts_per_problem"
                else None,
                "expected_regret": point.expected_regret,
            }
        )
        if quantity == "rollouts_per_problem":
            at[-1]["problems_per_batch"] = point.problems_per_batch
    return {
        "form": law.form if estimate.monotone else None,
        "variable": law.variable,
        "L": law.L if estimate.monotone else None,
        "k": law.k if estimate.monotone else None,
        "x0": law.x0 if estimate.monotone else None,
        "b": law.b if estimate.monotone else None,
        "plateau": law.plateau if estimate.monotone else None,
        "plateau_interval": None if interval is None else list(interval),
        "identified": estimate.identified,
        "flags": list(estimate.flags),
        "rms_octaves": law.rms,
        "rising": {
            "from": estimate.judged_from,
            "octaves": estimate.octaves,
            "lower_bound": estimate.lower_bound,
            "claimed": estimate.claimed,
        },
        "at": at,
    }


def _probabilities(fit: Fit) -> dict[str, Any]:
    inside = np.flatnonzero(fit.frontier.supported_V)
    pick = inside[
        np.linspace(0, len(inside) - 1, min(_PROBABILITY_POINTS, len(inside))).astype(int)
    ]
    return {
        "x": 10 ** fit.frontier.x_V[pick],
        "configurations": [
            [b.problems_per_batch, b.rollouts_per_problem] for b in fit.curve_fits.binned
        ],
        "best": fit.frontier.probability_JV[:, pick],
        "regret": fit.frontier.regret_JV[:, pick],
    }


def _warning(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}


def _warnings(fit: Fit) -> list[dict[str, str]]:
    fits, law = fit.curve_fits, fit.law
    found = []
    if not fits.seeds_known:
        found.append(
            _warning(
                "seeds_missing",
                "every configuration has one run, so how far another seed would lie is not in the "
                "data; ceilings are "
                "assumed to spread by 0.01 (one standard deviation, as ScaleRL saw). Run at least "
                "3 seeds.",
            )
        )
    elif few := [b.rollouts_per_problem for b in fits.binned if len(b.runs) < 3]:
        found.append(
            _warning(
                "few_seeds",
                f"n={', '.join(map(str, sorted(set(few))))} "
                f"{'has' if len(set(few)) == 1 else 'have'} fewer than 3 runs; "
                "the spread between seeds is borrowed from the other configurations.",
            )
        )
    if law.edge:
        found.append(
            _warning(
                "optimum_at_edge",
                f"the best n at the largest budget is the {law.edge} tested "
                f"({round(float(2 ** law.path_V[-1]))}): a bound, "
                f"not an optimum. Test {'larger' if law.edge == 'largest' else 'smaller'} n.",
            )
        )
    found += limit_warnings(fit)
    if law.octaves > 0 and not law.claimed:
        found.append(
            _warning(
                "rise_not_claimed",
                f"the frontier moves by {law.octaves:.1f} octaves, but the n that leads first may "
                "still be among the best at the largest budget (one-sided 95% bound of the change "
                f"{law.lower_bound or 0.0:.1f}); do not rely on the law's shape.",
            )
        )
    if law.non_monotone:
        found.append(
            _warning(
                "non_monotone",
                "the best n goes up and down as the budget grows, by more than noise explains; "
                + (
                    "the sigmoid is the closest monotone form, the frontier is the evidence."
                    if law.monotone
                    else "no sigmoid is fitted, n* is read off the frontier."
                ),
            )
        )
    if "falling" in law.flags:
        found.append(
            _warning(
                "falling",
                f"the best n falls with the budget, by {-law.octaves:.1f} octaves"
                + (
                    "; spend what a larger budget buys on steps."
                    if law.trend < 0
                    else ", but the draws do not exclude that it does not; do not rely on the "
                    "law's shape."
                ),
            )
        )
    if "slope_not_identified" in law.flags:
        found.append(
            _warning(
                "slope_not_identified",
                "the slope of the law is not identified by these data (a near-step); compare laws "
                "by n*(C), not by k.",
            )
        )
    for before, after, at, confidence in fit.frontier.ties:
        found.append(
            _warning(
                "tie",
                f"{name_of(fits, before)} leads {name_of(fits, after)} from {at:,.0f} "
                f"{fit.unit} on with confidence {confidence:.2f} only: within noise, "
                "taken as a tie and not drawn.",
            )
        )
    for b_p, n_out, reason in fits.excluded:
        found.append(
            _warning(
                "configuration_left_out", f"B_p={b_p}, n={n_out} takes part in nothing: {reason}."
            )
        )
    if broken := sorted({b.rollouts_per_problem for b in fits.binned if b.collapsed_R.any()}):
        found.append(
            _warning(
                "unhealthy_run",
                f"a run of n={', '.join(map(str, broken))} lost more than half of what it had "
                "gained, and for good, while its siblings did not: it is left out from there on.",
            )
        )
    if missing := sum(c.n_missing for c in fit.curves):
        found.append(_warning("scores_missing", f"{missing} rows without a score were left out."))
    # a few lie on one point by chance (read off a figure); many are several runs in one
    mixed = [c for c in fit.curves if c.n_repeated > len(c.score_K) / 20]
    if mixed:
        found.append(
            _warning(
                "runs_mixed",
                f"{sum(c.n_repeated for c in mixed)} rows stand at rollouts for which the same "
                f"run has another score ({len(mixed)} of {len(fit.curves)} curves): runs of "
                "several seeds, or restarts, under one name, which count as one run here. Tell "
                "them apart by a column `seed` or `run`.",
            )
        )
    skill = fit.backtest.get("skill")
    if skill is not None and skill < 0:
        found.append(
            _warning(
                "no_skill",
                "fitted on the first part of the budget, the curves predict the rest worse than "
                "'it stays as it is' (skill "
                f"{skill:.2f}); do not extrapolate.",
            )
        )
    moved = _moved(fit)
    if moved is not None and moved > 1:
        found.append(
            _warning(
                "sensitive_to_rules",
                "other bin widths, the strict record rule or a later start of the curves move n* "
                f"by up to {moved:.1f} octaves; see `sensitivity` in --json, or the report.",
            )
        )
    return found


def _moved(fit: Fit) -> float | None:
    """Largest move of log2 n* over the sensitivity table, in octaves."""
    moves = [
        abs(math.log2(n / float(fit.law.law.predict(fit.law_x(x)))))
        for row in fit.sensitivity
        if row["rollouts_per_problem"]
        for x, n in zip(row["x"], row["rollouts_per_problem"], strict=True)
    ]
    return max(moves) if moves else None
