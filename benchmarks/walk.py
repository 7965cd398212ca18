"""The whole way on one machine: probe, design, sweep, plan; what was said, and what is true.

    python benchmarks/walk.py trl OUT --python trl/bin/python [--device cuda] [--seconds 240]
    python benchmarks/walk.py local OUT --device cuda [--model FOLDER | --make]

Every step is a command of `isocompute`, with a limit, so that a machine lent for minutes is enough.
The sweep is killed once (SIGKILL) and goes on. `--make` trains a model of five million parameters
first (verbs; ten seconds on a GPU, seven minutes on one thread). OUT gets the studies, `walk.log`
with every word, and `walk.md`: prices in seconds of one GPU or worker beside those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from isocompute.engines.local.supervised import Phase, Supervision, _demonstrations, save_base

from isocompute.allocation import Rates
from isocompute.answers.price import Price, priced
from isocompute.domain import Configuration
from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.worlds import VerbWorld, world_problems
from isocompute.problems import save_problems
from isocompute.runner import calibrate, open_study
from isocompute.sources import load_curves
from isocompute.store import Store
from isocompute.store.hours import trained_s
from isocompute.store.starts import start_s
from isocompute.study.cost import study_cost

B_P, PROBED = 16, 16  # B_p of all runs; n of the probe, whose updates give the rate
ROLLOUTS = 3e5  # of the design: its sweep takes 15%
BEYOND = (64, 256)  # n that the sweep has not, six updates each
RECIPE = {"learning_rate": 2e-4, "temperature": 1.0}
STEPS, RATE, SEQUENCES, NOISE = 600, 1e-3, 128, 0.1  # of the model that is made


def make_model(folder: Path, device: str) -> None:
    """A Llama-type model of 4.8 million parameters that knows a third of `verbs`."""
    world = VerbWorld(way=4)
    words = world.tokenizer()
    config = ModelConfig(
        vocab_size=len(words), hidden_size=256, intermediate_size=768, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, head_dim=32, max_position_embeddings=32,
        initializer_range=0.02, eos_token_id=words.end,
    )  # fmt: skip
    model = Transformer(config, torch.Generator().manual_seed(0)).to(device)
    optimizer = FlatAdamW(model, weight_decay=0.01, max_grad_norm=1.0, decay_vectors=True)
    rng = np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        shown = _demonstrations(world, words, SEQUENCES, NOISE, rng)
        token_PL, start_P, stop_P = (part.to(device) for part in shown)
        place = torch.arange(1, token_PL.shape[1], device=device)
        said_PL = (place >= start_P[:, None]) & (place < stop_P[:, None])
        hidden, _ = model.prompt(token_PL[:, :-1])
        F.cross_entropy(model.logits(hidden[said_PL]), token_PL[:, 1:][said_PL]).backward()
        optimizer.step(warmed_up(RATE, step, 20))
    phases = (Phase(steps=STEPS, batch=SEQUENCES, learning_rate=RATE),)
    save_base(model.cpu(), world, Supervision(phases=phases, noise=NOISE), folder)


class Walk:
    """Commands in a folder, against the clock."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out, self.engine = options.out.resolve(), options.engine
        self.until = time.monotonic() + options.seconds
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = (self.out / "walk.log").open("a", buffering=1, encoding="utf-8")
        self.rows: list[tuple[str, float | None, float | None]] = []
        own: dict[str, Any] = {"device": options.device}
        if self.engine == "local":
            own |= {"shapes": "fixed", "graphs": options.device.startswith("cuda")}
        else:
            own |= {"python": str(Path(options.python).absolute()), "max_new_tokens": 20}
        self.options = own | {"model": options.model}
        self.words = [f"engine_options.{k}={json.dumps(v)}" for k, v in own.items()]
        self.words += [f"recipe.{k}={v}" for k, v in RECIPE.items()]
        self.words += ["problems.validation.all.size=100"]

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()

    def say(self, text: str) -> None:
        """To the screen and into the log."""
        print(text, flush=True)
        self.log.write(text + "\n")

    def iso(self, *words: Any, kill: float | None = None, keep: float = 0.0) -> int:
        """One command; past the time left but for `keep` it is interrupted."""
        said = [str(word) for word in words]
        self.say(f"$ isocompute {' '.join(said)}")
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "isocompute", *said], cwd=self.out, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=kill or max(self.left - keep, 10.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
            out, _ = process.communicate()
        self.say(f"{out}# {process.returncode}, {time.monotonic() - began:.1f} s\n")
        return process.returncode

    def alone(self, name: str, n: int, steps: int, b_p: int = B_P) -> bool:
        """One run from its start; whether it came to its end."""
        done = self.iso("run", "sweep.yaml", *self.words, f"grid.rollouts_per_problem=[{n}]",
                 f"grid.problems_per_batch={b_p}", f"budget={b_p * n * steps}", "slices=[1.0]",
                 "grid.seeds=[7]", "adaptive=false", "-o", name, "--calibrate", 0)  # fmt: skip
        return done == 0

    def probe(self) -> float:
        """Rollouts in an hour, by twelve updates; the first two warm up."""
        problems = world_problems("verbs", world="verbs", way=4, part="train", size=2000, seed=1)
        save_problems(problems, self.out / "problems.jsonl")
        part = {"path": "problems.jsonl", "held_out": 300}
        (self.out / "probe.yaml").write_text(json.dumps({
            "engine": self.engine, "engine_options": self.options, "slices": [1.0],
            "problems": {"train": {**part, "part": "train"},
                         "validation": {"all": {**part, "part": "validation", "size": 100}}},
            "recipe": {"difficulty": "easy", **RECIPE}, "budget": B_P * PROBED * 12,
            "grid": {"problems_per_batch": B_P, "rollouts_per_problem": [PROBED]},
            "evaluation": {"samples": 4, "per_octave": 1, "first": 1024},
        }))  # fmt: skip
        self.iso("run", "probe.yaml", "--calibrate", 0)
        with Store(self.out / "probe") as store:
            took_K = store.steps(store.runs()[0].hash).wall_s_K
        return float(f"{B_P * PROBED / float(took_K[2:].mean()) * 3600:.3g}")

    def sweep(self, rate: float) -> None:
        """Design, calibration, a kill, the rest."""
        self.iso("design", "--gpus", "1xGPU", "--hours", f"{ROLLOUTS / rate:.4g}", "--sweep",
                 "--engine", self.engine, "--model", self.options["model"], "--train",
                 "problems.jsonl", "--difficulty", "easy", "--rollouts-per-gpu-hour", rate,
                 "--problems-per-batch", B_P, "--draws", 10, "-o", "sweep.yaml",
                 "--json", "design.json")  # fmt: skip
        words = [*self.words, "slices=[0.25, 1]"]
        study = open_study(self.out / "sweep.yaml", words)
        clock = study_cost(study, calibrate(study, seconds=5.0)).worker_s or 0.0
        run = ["run", "sweep.yaml", *words, "--calibrate", 0]
        self.iso(*run, kill=self.left / 4)
        self.iso(*run, keep=self.left / 3)
        self.iso("status", "sweep")
        d = json.loads((self.out / "design.json").read_text())["sweep"]
        true = spent(self.out / "sweep")
        share = true["rollouts"] / d["rollouts"]  # it stops by itself
        for how, said, found in (("design (starts apart)", d["cost"]["gpu_hours"] * 3600, "work"),
                                 ("calibration", clock, "all")):  # fmt: skip
            self.rows.append((f"sweep, by {how}", said * share, true[found]))

    def plan(self) -> None:
        """A plan in GPU-hours, and the run that does as it says."""
        most = max(float(took[-1]) for took in times(self.out / "sweep"))
        for share in (1.3, 1.0, 0.7, 0.4):
            asked = f"{share * most / 3600:.4g}gpuh"
            if self.iso("plan", "sweep", "--budget", asked, "--why", "--json", "plan.json") == 0:
                d = json.loads((self.out / "plan.json").read_text())
                n, b_p, steps = (d[k] for k in ("rollouts_per_problem", "problems_per_batch",
                                                "steps"))  # fmt: skip
                if not self.alone("planned", n, steps, b_p):
                    return
                true = spent(self.out / "planned")
                name = f"{b_p} x {n} x {steps}, by plan (evaluations apart)"
                self.rows.append((name, d["cost"]["gpu_hours"] * 3600,
                                  true["train"] + true["start"]))  # fmt: skip
                return

    def beyond(self) -> None:
        """Batches that the sweep has not timed."""
        price: Price = priced(load_curves(str(self.out / "sweep")), Rates())
        for n in BEYOND:
            if self.left < 20 or not self.alone(f"n{n}", n, 6):
                return
            c = Configuration(B_P, n)
            said = (price.of(c).cost(B_P * n * 6)["gpu_hours"] or 0.0) * 3600
            self.rows.append((f"{B_P} x {n} x 6, by the sweep", said,
                              spent(self.out / f"n{n}")["train"]))  # fmt: skip

    def table(self) -> None:
        """Said beside true."""
        lines = ["| what | said, s | true, s |", "|---|---|---|"]
        lines += [f"| {name} | {said or 0.0:.1f} | {true or 0.0:.1f} |"
                  for name, said, true in self.rows]  # fmt: skip
        (self.out / "walk.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.say("\n".join(lines))


def times(folder: Path) -> list[Any]:
    """Seconds of training by updates, of each run that has any."""
    with Store(folder) as store:
        return [took for run in store.runs() if (took := trained_s(store, run)) is not None]


def spent(folder: Path) -> dict[str, float]:
    """Worker seconds of a study: training, with evaluations, one start, all; and its rollouts."""
    with Store(folder) as store:
        train = sum(float(took[-1]) for took in times(folder))
        judged = float(store.evaluations().wall_s_K.sum())
        starts = [each for run in store.runs() if (each := start_s(store, run)) is not None]
        return {"train": train, "work": train + judged, "start": max(starts, default=0.0),
                "all": store.accounting().wall_s,
                "rollouts": float(store.accounting().rollouts)}  # fmt: skip


def main() -> int:
    """Walk, and go on after what fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["trl", "local"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--python", default=sys.executable, help="that has TRL")
    parser.add_argument("--model", default="verbs-long")
    parser.add_argument("--make", action="store_true", help="make a larger model first")
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.make:
        options.model = str(options.out.resolve() / "model")
        make_model(Path(options.model), options.device)
    walk = Walk(options)
    try:
        walk.sweep(walk.probe())
        walk.plan()
        walk.beyond()
    finally:
        walk.table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
