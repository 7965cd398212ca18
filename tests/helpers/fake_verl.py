"""Stands in for `python -m verl.trainer.main_ppo`: writes what verl 0.9.1 writes, trains nothing.

FAKE_VERL sets how it misbehaves: "", "stop_early", "crash", "zero_gradient", "wrong_group",
"verifier_error", "constant".
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import time
from pathlib import Path

UNJUDGED = 1.0000000031710769e-30  # what float32 makes of the reward module's mark
mode = os.environ.get("FAKE_VERL", "")
keys = dict(argument.split("=", 1) for argument in sys.argv[1:])


def load(path: str, name: str):
    spec = importlib.util.spec_from_file_location("reward_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def main() -> None:
    import pyarrow.parquet as pq

    reward = load(keys["reward.custom_reward_function.path"],
                  keys["reward.custom_reward_function.name"])
    train = pq.read_table(keys["data.train_files"].strip("[]")).to_pylist()
    validation = pq.read_table(keys["data.val_files"].strip("[]")).to_pylist()
    b_p, n = int(keys["data.train_batch_size"]), int(keys["actor_rollout_ref.rollout.n"])
    k = int(keys["actor_rollout_ref.rollout.val_kwargs.n"])
    steps, every = int(keys["trainer.total_training_steps"]), int(keys["trainer.test_freq"])
    start = 0
    if keys["trainer.resume_mode"] == "resume_path":
        path = Path(keys["trainer.resume_from_path"])
        assert path.is_dir(), path
        start = int(path.name.removeprefix("global_step_"))

    def dump(folder: str, step: int, rows: list, samples: int) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        validates = folder == keys["trainer.validation_data_dir"]
        with open(Path(folder, f"{step}.jsonl"), "w") as file:
            for row in rows:
                for sample in range(samples):
                    seed = f"{step} {row['reward_model']['ground_truth']} {sample} {validates}"
                    right = random.Random(seed).random() < 0.3 + 0.02 * step
                    truth = row["reward_model"]["ground_truth"]
                    answer = json.loads(truth)["answer"] if right else "wrong"
                    result = reward(data_source=row["data_source"], solution_str=answer,
                                    ground_truth=truth, extra_info=row["extra_info"])
                    if mode == "verifier_error" and step == 2 and sample == 0:
                        result = {"verdict": "error: it broke", "score": UNJUDGED, "acc": 0.0}
                    # what training dumps hold, and what validation dumps hold besides
                    line = {"input": "q", "output": "a", "gts": truth, "score": result["score"],
                            "step": step, "uid": f"{row['extra_info']['index']}_{sample}_0"}
                    more = {**result, "response_tokens": 7} if validates else {}
                    file.write(json.dumps({**line, **more}) + "\n")

    with open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0) as log:
        def write(step: int, data: dict) -> None:
            log.write(json.dumps({"step": step, "data": data}).encode() + b"\n")

        if keys["trainer.val_before_train"] == "true":
            dump(keys["trainer.validation_data_dir"], start, validation, k)
            write(start, {"val-core/x/acc/mean@4": 0.5})
        print("training begins", flush=True)
        for step in range(start + 1, steps + 1):
            if mode == "stop_early" and step > steps // 2:
                return
            if mode == "crash" and step == 3 and start == 0:
                sys.exit("CUDA out of memory")
            order = random.Random(f"order {step}").sample(range(len(train)), b_p)
            size = n + 1 if mode == "wrong_group" and step == 2 else n
            dump(keys["trainer.rollout_data_dir"], step, [train[i] for i in order], size)
            full, warm_up = (float(keys[f"actor_rollout_ref.actor.optim.{key}"])
                             for key in ("lr", "lr_warmup_steps"))
            # verl logs the rate of the next update; "constant" would count one step less
            following = full * min(1.0, (step + (mode != "constant")) / max(warm_up, 1.0))
            data = {"actor/grad_norm": 0.0 if mode == "zero_gradient" else 0.5,
                    "actor/lr": following, "actor/pg_loss": 0.0, "actor/loss": -0.25,
                    "actor/entropy": 1.0, "response_length/mean": 10.0, "timing_s/step": 0.25,
                    "actor/kl_loss": float("nan")}
            if step % every == 0 or step == steps:
                saved = Path(keys["trainer.default_local_dir"], f"global_step_{step}")
                (saved / "actor").mkdir(parents=True, exist_ok=True)
                for name in ("model", "optim"):
                    (saved / "actor" / f"{name}_world_size_1_rank_0.pt").touch()
                (saved / "data.pt").touch()
                dump(keys["trainer.validation_data_dir"], step, validation, k)
                data["val-core/x/acc/mean@4"] = 0.5
                data["timing_s/testing"] = 5.0
            write(step, data)
            time.sleep(float(os.environ.get("FAKE_VERL_S", "0")))


main()
