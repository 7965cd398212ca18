"""What to do about a warning, by its code.

The codes are those of `docs/warnings.md`; a test holds that every one listed there has its line.
A code that is not here shows its message alone.
"""

from __future__ import annotations

from collections.abc import Mapping

_MORE_SEEDS = "Repeat the configurations nearest the optimum with two more seeds."

ADVICE: Mapping[str, str] = {
    # of a fit
    "form_unsure": "Run the sweep further, or with more seeds; read the interval of the score.",
    "bends_late": "Nothing: the curves that fit better are used.",
    "budgets_not_shared": "Train the runs that end early as far as the others.",
    "ceiling_unbounded": "Train these configurations further until their curves bend.",
    "configuration_left_out": "Give it more evaluations, or leave it out on purpose.",
    "failed_health": "Mend the recipe before you rely on n* where these configurations lead.",
    "falling": "Keep n small, spend what a larger budget buys on steps.",
    "falls_after_peak": "Where it ends lower, look at its health panels: overfitting or collapse.",
    "few_n": "Sweep a third n between the two or beyond them.",
    "few_seeds": _MORE_SEEDS,
    "intervals_missed": "Train further before you rely on a ceiling or a plan beyond the data.",
    "n_not_told_apart": "More seeds or larger budgets; until then any of these n will do.",
    "not_smooth": "Evaluate on more problems, or look at its health: a law wants smooth curves.",
    "no_skill": "Use the law inside the measured budgets only.",
    "non_monotone": "Trust the frontier, not the law's shape; add seeds where n falls.",
    "optimum_at_edge": "Add the next larger (or smaller) n: an edge is a bound, not an optimum.",
    "overfitting": "Add training problems, or stop where validation turns; n* is capped there.",
    "rise_not_claimed": "Add seeds, or budgets further apart, before you rely on the law.",
    "runs_mixed": "Add a column `seed` or `run`: seeds under one name count as one run.",
    "scores_fall": "Give losses as 1 - value; if it is a score, mend the recipe first.",
    "scores_flat": "Train further, evaluate on more problems, or take an easier set.",
    "scores_missing": "Nothing, if the rows were meant to be empty; otherwise mend the export.",
    "seeds_missing": _MORE_SEEDS,
    "sensitive_to_rules": "Evaluate more often, or add seeds: the reading should not matter.",
    "slope_not_identified": "Nothing: n* and its interval do not need the slope.",
    "tie": "Take the cheaper or smaller of the two; more seeds would separate them.",
    "unequal_evaluations": "Evaluate every run on the same problems with the same samples.",
    "unhealthy_run": "Look at its health panels, then run that seed again.",
    # of a plan
    "anchor_assumed": "Scale your model's own learning rate by the square root of the batch.",
    "anchor_at_edge": "Sweep learning rates beyond the one that won.",
    "bp_unhealthy": "Look at the health of the Bₚ that failed, or take the larger one.",
    "bp_unstable": "Try a larger Bₚ or a smaller learning rate before you rely on the plan.",
    "bp_untested": "Sweep two or three Bₚ at the chosen n before you lock the batch.",
    "capped_by_max_batch": "Raise the cap if the hardware allows it, or accept the loss named.",
    "capped_by_min_steps": "Raise the budget, or allow fewer steps.",
    "capped_by_plateau": "Nothing: beyond the plateau, steps are the better use.",
    "capped_by_tested_n": "Sweep larger n: no plateau is known yet.",
    "difficulty_assumed": "Measure the difficulty of your problems; the recipe depends on it.",
    "extrapolated": "Extend the sweep, or check one run at the larger budget first.",
    "fixed_batch_law_missing": "Sweep n at that batch size.",
    "law_of_another_model": "Sweep your own model: the trend carries over, the saturation "
    "does not.",
    "n_at_smallest_tested": "Sweep smaller n.",
    "recipes_mixed": "Plan from a study with one recipe.",
    "rounded_below_the_best": "Take the larger power of two if memory and steps allow it.",
    "score_unknown": "Train the chosen configuration once near this budget.",
    "tokens_measured": "Name your own tokens per rollout if they differ.",
    # of a comparison
    "no_interval": "Run at least three seeds.",
    "seeds_unpaired": "Use the same seeds on both sides.",
    # of a study's runs
    "clipped_responses": "Raise the length limit: a cut response scores 0 whatever it says.",
    "dead_batches": "Change the difficulty of the set, or raise n, until groups differ.",
    "divergence": "Lower the learning rate and start the run again.",
    "entropy_collapse": "Use the recipe of an easy set: KL anchor and entropy bonus together.",
    "entropy_explosion": "Drop the entropy bonus, or lower the learning rate.",
    "gradient_spikes": "Lower the learning rate, or clip at a smaller norm.",
    "kl_drift": "Lower the learning rate, or anchor with KL.",
    "length_explosion": "Drop the regularisers on hard sets; look at what the answers say.",
    "reward_collapse": "Lower the learning rate, or use the recipe of the set's difficulty.",
    "run_failed": "Start the study again with failed runs retried, or leave the run out.",
    "run_invalid": "Look at the run's log: a run that did not train is not evidence.",
    "verifier_errors": "Mend the checker: what it cannot judge biases every score.",
}
