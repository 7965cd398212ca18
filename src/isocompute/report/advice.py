"""What to do about a warning, by its code: a notice's remedy, and what runs of a study call for."""

from __future__ import annotations

from collections.abc import Mapping

from isocompute.domain.notices import NOTICES

OF_RUNS: Mapping[str, str] = {
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


def todo(code: str) -> str:
    """What to do; nothing for an unknown code, and where the message alone can say it."""
    if (known := NOTICES.get(code)) is None:
        return OF_RUNS.get(code, "")
    return "" if "{" in known.remedy else known.remedy
