"""What to do about a warning of a study's runs, by its code."""

from __future__ import annotations

from collections.abc import Mapping

OF_RUNS: Mapping[str, str] = {
    "clipped_responses": "Raise the length limit: a response that is cut off scores 0.",
    "dead_batches": "Change the difficulty of the set, or raise n, until groups differ.",
    "divergence": "Lower the learning rate and start the run again.",
    "entropy_collapse": "Use the recipe of an easy set: KL to the base model and an entropy bonus.",
    "entropy_explosion": "Drop the entropy bonus, or lower the learning rate.",
    "gradient_spikes": "Lower the learning rate, or clip at a smaller norm.",
    "kl_drift": "Lower the learning rate, or add KL to the base model.",
    "length_explosion": "Drop the regularisers on hard sets; look at what the answers say.",
    "reward_collapse": "Lower the learning rate, or use the recipe of the set's difficulty.",
    "run_failed": "Run the study again with --retry-failed, or leave the run out.",
    "run_invalid": "Look at the run's log: it did not train, so its scores do not count.",
    "verifier_errors": "Correct the checker: responses that it cannot judge bias every score.",
}
