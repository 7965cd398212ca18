r"""The last weights of every run of engines_agree.py, scored again by one sampler.

    python benchmarks/engines_agree_weights.py DIR [--samples 64]

What the engines record are four samples a problem: each score is known to about 0.011, and a
difference of two seeds to 0.016, which hides smaller differences between the weights. Here the
embedded engine reads the last checkpoint of every run and draws many samples of each validation
problem: what is left of a difference lies in the training. Exits with 1 where an interval is not
within --within.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from engines_agree import paired
from engines_agree_verl import BASE
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor  # what verl's checkpoints hold

from isocompute.engines import embedded_success_counter
from isocompute.engines.local.folders import load_model, save_model
from isocompute.engines.local.optimizer import FlatAdamW
from isocompute.problems import load_problems
from isocompute.store import Store

POSITION = {"local": "position.json", "trl": "trl.json", "verl": "verl.json"}


def last_checkpoint(folder: Path, engine: str) -> Path:
    """The one of the most steps among those that a run has kept."""
    kept = list(folder.glob(f"*/{POSITION[engine]}"))
    return max(kept, key=lambda path: int(json.loads(path.read_text())["step"])).parent


def as_model(checkpoint: Path, engine: str, target: Path) -> Path:
    """A checkpoint -> a folder that the embedded engine reads."""
    shutil.copytree(BASE, target)
    if engine == "local":
        model = load_model(BASE)
        optimizer = FlatAdamW(model, weight_decay=0.0, max_grad_norm=1.0)
        optimizer.load(checkpoint / "training.safetensors")
        save_model(model, target)
    elif engine == "trl":
        shutil.copy(checkpoint / "model.safetensors", target)
    else:
        place = Path(json.loads((checkpoint / "verl.json").read_text())["path"])
        stored: dict[str, DTensor] = torch.load(
            place / "actor/model_world_size_1_rank_0.pt", weights_only=True, map_location="cpu"
        )
        whole = {name: tensor.to_local().contiguous() for name, tensor in stored.items()}
        save_file(whole, target / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(place.parents[3] / "bits32/config.json", target)
    return target


def rescored(study: Path, engine: str, samples: int) -> dict[int, float]:
    """Seed -> mean score of the last weights of the runs that are done."""
    problems = load_problems(study.parent / "validation.jsonl", name="easy")
    every_P = np.arange(len(problems))
    scores = {}
    with Store(study) as store:
        runs = [run for run in store.runs() if run.state == "done"]
    for run in runs:
        with tempfile.TemporaryDirectory() as place:
            checkpoint = last_checkpoint(study / "checkpoints" / run.hash, engine)
            model = as_model(checkpoint, engine, Path(place) / "model")
            seed = run.spec["seed"]
            # the same stream for the engines of one seed: less noise in their difference
            counted = embedded_success_counter()(str(model), problems, seed=seed)(every_P, samples)
            scores[seed] = float((counted.successes_P / counted.judged_P).mean())
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="that of engines_agree.py")
    parser.add_argument("--samples", type=int, default=64, help="of every validation problem")
    parser.add_argument("--within", type=float, default=0.03)
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    agree = True
    for objective in ("grpo", "cispo"):
        found = {
            engine: rescored(folder / f"{objective}-{engine}", engine, options.samples)
            for engine in POSITION
            if (folder / f"{objective}-{engine}").is_dir()
        }
        print(f"\n{objective}, avg@{options.samples}".ljust(29)
              + "".join(f"{name:>12}" for name in found))  # fmt: skip
        for seed in sorted({seed for one in found.values() for seed in one}):
            scores = [one.get(seed, np.nan) for one in found.values()]
            print(f"seed {seed}".ljust(28) + "".join(f"{score:12.4f}" for score in scores))
        for name in [name for name in found if name != "local"]:
            mean, half, seeds = paired(found["local"], found[name])
            inside = -options.within <= mean - half and mean + half <= options.within
            agree = agree and inside
            print(f"{name} - local, paired over {seeds} seeds: {mean:+.4f} [{mean - half:+.4f}, "
                  f"{mean + half:+.4f}], {'' if inside else 'NOT '}within {options.within:g}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
