"""verl's own reward manager, which also counts the tokens of each response.

verl imports a copy of this file from the run's folder.
"""

from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager


class CountingRewardManager(NaiveRewardManager):  # type: ignore[misc]  # verl is not installed here
    """verl's validation dumps hold texts, and no number of tokens."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward of one response, and its tokens, the end token included."""
        judged: dict[str, Any] = await super().run_single(data)
        last = data[-1:][0].batch  # the manager judges the last sequence
        size = last["responses"].shape[-1]
        judged["reward_extra_info"]["response_tokens"] = int(last["attention_mask"][-size:].sum())
        return judged
