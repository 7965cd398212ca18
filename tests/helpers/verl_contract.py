"""Run by the Python that has verl: its own code on what isocompute rendered.

    python verl_contract.py compose < [[override, ...], ...]   -> one result per line
    python verl_contract.py reward FOLDER    -> what verl's loader and manager say
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"  # the critic's configuration looks at its model
warnings.filterwarnings("ignore")


def compose() -> None:
    import verl.trainer.main_ppo as main_ppo
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    assert main_ppo.main is not None
    queries = ("data.train_batch_size", "actor_rollout_ref.rollout.n",
               "trainer.total_training_steps", "actor_rollout_ref.actor.optim.lr",
               "actor_rollout_ref.actor.policy_loss.loss_mode", "trainer.logger",
               "actor_rollout_ref.model.path", "reward.custom_reward_function.path")
    with initialize_config_module("verl.trainer.config", version_base=None):
        for overrides in json.load(sys.stdin):
            result: dict[str, object] = {}
            try:
                config = hydra_compose("ppo_trainer", overrides=overrides)
                with contextlib.redirect_stdout(io.StringIO()):
                    validate_config(config, need_reference_policy(config), need_critic(config))
                    result["all"] = flat(OmegaConf.to_container(config, resolve=True))
                for query in queries:
                    value = OmegaConf.select(config, query)
                    result[query] = (OmegaConf.to_container(value)
                                     if OmegaConf.is_config(value) else value)
            except Exception as error:  # noqa: BLE001  # whatever verl raises is the answer
                result["error"] = f"{type(error).__name__}: {error}"
            print("RESULT", json.dumps(result), flush=True)


def flat(node: object, path: str = "") -> dict[str, object]:
    """Every leaf of a configuration under its dotted path."""
    if not isinstance(node, dict) or not node:
        return {path: repr(node)}
    return {k: v for name, inner in node.items()
            for k, v in flat(inner, f"{path}.{name}" if path else str(name)).items()}  # fmt: skip


def reward(folder: str) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = OmegaConf.create({"reward": {"custom_reward_function": {
        "path": f"{folder}/reward/reward.py", "name": "compute_score"}}})
    function = get_custom_reward_fn(config)
    import datasets

    rows = datasets.load_dataset("parquet", data_files=f"{folder}/train.parquet")["train"]
    assert RLHFDataset is not None
    row = rows[0]
    right = json.loads(row["reward_model"]["ground_truth"])["answer"]
    for answer in (right, "nonsense"):
        result = function(data_source=row["data_source"], solution_str=answer,
                          ground_truth=row["reward_model"]["ground_truth"],
                          extra_info=row["extra_info"])
        print("RESULT", json.dumps(result), flush=True)
    manager(folder, function, row)


def manager(folder: str, function: object, row: dict) -> None:
    """The run's reward manager, as verl loads it, on one made response of two tokens."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.utils.import_utils import load_extern_object

    class Tokenizer:
        def decode(self, ids: object, skip_special_tokens: bool = True) -> str:
            return json.loads(row["reward_model"]["ground_truth"])["answer"]

    async def judge() -> dict:
        cls = load_extern_object(f"{folder}/reward/manager.py", "CountingRewardManager")
        from omegaconf import OmegaConf

        made = cls(OmegaConf.create({}), Tokenizer(), function)
        data = DataProto.from_dict(
            tensors={"responses": torch.ones(1, 3, dtype=torch.long),
                     "attention_mask": torch.tensor([[1, 1, 1, 0]])},
            non_tensors={
                "data_source": np.array([row["data_source"]], dtype=object),
                "reward_model": np.array([row["reward_model"]], dtype=object),
                "extra_info": np.array([dict(row["extra_info"])], dtype=object)},
        )
        return await made.run_single(data)

    print("RESULT", json.dumps(asyncio.run(judge())), flush=True)


if __name__ == "__main__":
    compose() if sys.argv[1] == "compose" else reward(sys.argv[2])
