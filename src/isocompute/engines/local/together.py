"""Several runs trained at once in fixed shapes: each is the run that it would be alone.

Shape legend: R runs, N rows (rollouts) of each, K sums.

Between host and device there are two reads an update, whatever R and n are: the tokens, for the
verifier, and the sums that are reported (log-probabilities, too, where KL is probed). All else is
one function before the rewards and one after them, which a CUDA graph replays where
`engine_options.graphs` asks for it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.base import IntArray, Sink
from isocompute.engines.local import fixed
from isocompute.engines.local.counters import device_key
from isocompute.engines.local.draws import Asked, Draws
from isocompute.engines.local.folders import load_model
from isocompute.engines.local.graphs import Captured
from isocompute.engines.local.member import Judged, Member, measured
from isocompute.engines.local.memory import keep_freed_memory
from isocompute.engines.local.model import Transformer
from isocompute.engines.local.optimizer import BETA_1, BETA_2, warmed_up
from isocompute.engines.local.options import Options
from isocompute.engines.local.policy import (
    PROBLEMS_PER_PASS,
    REDRAWS,
    base_folder,
    successes_of,
)
from isocompute.engines.local.stacked import StackedTransformer
from isocompute.engines.streams import Use
from isocompute.errors import InputError
from isocompute.study.spec import RunSpec


def shape_of(spec: RunSpec) -> tuple[object, ...]:
    """What must be equal in runs that are trained together: shapes, and how responses are drawn."""
    o, recipe = Options.of(spec), spec.recipe
    return (o.model, o.max_new_tokens, o.device, o.graphs, spec.allocation.batch_size,
            spec.evaluation_samples, recipe.temperature, recipe.top_p, _is_regularised(spec))


def _is_regularised(spec: RunSpec) -> bool:
    return spec.recipe.kl_coef > 0 or spec.recipe.entropy_coef > 0


class Together:
    """Trains runs of one shape; see the module's docstring.

    Args:
        specs: of the runs.
        resumes: checkpoint of each, or None.
        sinks: where the records of each go.

    Attributes:
        members: the runs; `error` says what ended one, and the others go on.

    Raises:
        InputError: if the runs are not of one shape.
    """

    def __init__(
        self, specs: Sequence[RunSpec], resumes: Sequence[Path | None], sinks: Sequence[Sink]
    ) -> None:
        keep_freed_memory()
        if len({shape_of(spec) for spec in specs}) != 1:
            raise InputError(
                "runs that are trained together must have one model, device, batch_size, "
                "temperature, number of evaluation samples and regularisers or none, but got "
                f"{len(specs)} runs of several; train them apart."
            )
        options = Options.of(specs[0])
        self.members = [Member(s, sink) for s, sink in zip(specs, sinks, strict=True)]
        self.resumes = list(resumes)
        template = load_model(base_folder(options.model))
        assert isinstance(template, Transformer)
        device = torch.device(options.device)
        self.model = StackedTransformer(template, len(specs), device)
        self.base = StackedTransformer(template, 1, device)

        def per_run(name: str) -> Tensor:
            return torch.tensor([getattr(s.recipe, name) for s in specs], device=device).float()

        self.adam = fixed.StackedAdamW(
            self.model, per_run("weight_decay"), per_run("max_grad_norm")
        )
        self.coefficients = per_run("kl_coef"), per_run("entropy_coef")
        self.regularised = _is_regularised(specs[0])
        self._make_draws(specs, options)
        rows, runs = specs[0].allocation.batch_size, len(specs)
        self.pushes_R4N = torch.zeros(runs, 4, rows, device=device)
        self.rates_R3 = torch.ones(runs, 3, device=device)  # rate, and two bias corrections
        self.learn = Captured(
            self._learn, graphs=options.graphs,
            changed=(self.model.flat, self.adam.first, self.adam.second),
        )
        self.started = False

    def _make_draws(self, specs: Sequence[RunSpec], options: Options) -> None:
        sets = [data for m in self.members for data in m.validation.values()]
        slots = max(x.token_PS.shape[1] for x in (*sets, *(m.train_set for m in self.members)))
        limit = self.members[0].policy.max_new_tokens
        self.rows = fixed.rows_of_a_pass(self.model, len(specs), slots + limit)
        how = fixed.Sampling(
            limit=limit, temperature=specs[0].recipe.temperature, top_p=specs[0].recipe.top_p,
            rows=self.rows,
        )  # fmt: skip
        counts = [
            (s.allocation.problems_per_batch, s.allocation.rollouts_per_problem) for s in specs
        ]
        self.draws = Draws(
            self.model, max(p for p, _ in counts), counts, slots, how, graphs=options.graphs
        )
        largest = max(map(len, sets))
        self.judged_at_once = math.ceil(largest / math.ceil(largest / PROBLEMS_PER_PASS))
        self.evaluation_draws = Draws(
            self.model, self.judged_at_once,
            [(self.judged_at_once, specs[0].evaluation_samples)] * len(specs), slots, how,
            graphs=options.graphs,
        )  # fmt: skip

    # Steps ------------------------------------------------------------------------------

    def advance(self) -> bool:
        """One update of every run that is not done; False where none is left."""
        torch.set_num_threads(1)
        if self.model.flat.device.type == "cuda":
            torch.cuda.set_device(self.model.flat.device)  # streams and graphs belong to it
        if not self.started:
            self._start()
            self.started = True
        else:
            self._update()
        return not all(m.done for m in self.members)

    @contextlib.contextmanager
    def _alone(self, member: Member) -> Iterator[None]:
        """What goes wrong inside ends this run, not the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whoever handed in the run decides what it means
            member.error = error

    def _start(self) -> None:
        fresh = []
        for run, (member, folder) in enumerate(zip(self.members, self.resumes, strict=True)):
            if folder is None:
                fresh.append(run)
                continue
            with self._alone(member):
                self._load(run, folder)
        self._evaluate(fresh)
        for run in fresh:
            self._save(run)

    def _update(self) -> None:
        started = time.monotonic()
        going = [run for run, m in enumerate(self.members) if not m.done]
        asked: dict[int, Asked] = {}
        for run in going:
            m = self.members[run]
            key = device_key(m.spec.seed, Use.TRAINING, m.step + 1)
            asked[run] = Asked(m.train_set, m.next_problems(), key)
        self.drawn, host = self.draws(asked)
        probed = any(m.is_probed for m in self.members)
        logprob = self.drawn.logprob_RNT.cpu() if probed else None
        judged: dict[int, Judged] = {}
        pushes, rates = torch.zeros(self.pushes_R4N.shape), torch.ones(self.rates_R3.shape)
        for run in going:
            m = self.members[run]
            with self._alone(m):
                judged[run] = m.judge(self.draws.rows(host, run, logprob), asked[run].problem_P)
                pushes[run] = judged[run].pushes_4N
                step = m.step + 1
                rate = warmed_up(m.spec.learning_rate, step, m.recipe.warmup_steps)
                judged[run].health["learning_rate"] = rate
                rates[run] = torch.tensor([rate, 1 - BETA_1**step, 1 - BETA_2**step])
        self.pushes_R4N.copy_(pushes)
        self.rates_R3.copy_(rates)
        sums: list[list[float]] = self.learn().tolist()
        due, share = [], _share_of(started, len(judged))
        for run, made in judged.items():
            m = self.members[run]
            with self._alone(m):
                samples, health = measured(made, sums[run], m)
                started = time.monotonic() - share
                m.updated(samples, made.reward_D, made.problem_P, health, started)
                if m.spec.is_evaluated(m.step):
                    due.append(run)
        self._evaluate(due)
        for run in judged:
            m = self.members[run]
            if m.error is None and (run in due or m.done or m.sink.wants_checkpoint):
                self._save(run)

    def _learn(self) -> Tensor:
        """Gradient and update; loss, tokens, KL, gradient norm and entropy of each run (R, 5)."""
        found = self.drawn
        advantage, weight, regular, counted = self.pushes_R4N.unbind(1)
        pushes = fixed.Pushes(
            advantage_RN=advantage, weight_RN=weight, regular_RN=regular, counted_RN=counted,
            kl_coef_R=self.coefficients[0], entropy_coef_R=self.coefficients[1],
            regularised=self.regularised,
        )  # fmt: skip
        grad_RW, sums_RK = fixed.gradients(
            self.model, self.base, self.draws.prompt_RPS, self.draws.start_RP,
            self.draws.place_RN, found.token_RNT, found.length_RN, pushes,
            self.draws.how.temperature, self.rows,
        )  # fmt: skip
        norm_R = self.adam.step(grad_RW, *self.rates_R3.unbind(1))
        return torch.cat([sums_RK, torch.stack([norm_R.double(), found.entropy_R], 1)], 1)

    # Evaluations ------------------------------------------------------------------------

    def _evaluate(self, runs: Sequence[int]) -> None:
        """Draw k samples for each problem of each validation set of some of the runs."""
        for number in range(max((len(self.members[r].validation) for r in runs), default=0)):
            mine = {
                r: list(self.members[r].validation)[number] for r in runs
                if self.members[r].error is None and number < len(self.members[r].validation)
            }  # fmt: skip
            started = time.monotonic()
            counts: dict[int, IntArray] = {r: np.zeros(len(self.members[r].validation[n]), np.int64)
                                           for r, n in mine.items()}  # fmt: skip
            spent = {r: [0, 0] for r in mine}  # tokens, rollouts
            left: dict[int, IntArray] = {r: np.arange(len(count)) for r, count in counts.items()}
            for again in range(1 + REDRAWS):
                left = self._count(number, again, mine, left, counts, spent)
                if not left:
                    break
            share = _share_of(started, len(mine))
            for r, name in mine.items():
                with self._alone(self.members[r]):
                    if self.members[r].error is None:
                        tokens, rollouts = spent[r]
                        self.members[r].evaluated(
                            name, counts[r], tokens, rollouts, time.monotonic() - share
                        )

    def _count(
        self, number: int, again: int, names: dict[int, str], left: dict[int, IntArray],
        counts: dict[int, IntArray], spent: dict[int, list[int]],
    ) -> dict[int, IntArray]:  # fmt: skip
        """Count successes on the problems that are left; those that are to be drawn again."""
        k, each = self.members[0].spec.evaluation_samples, self.judged_at_once
        failed: dict[int, list[int]] = {r: [] for r in left}
        for start in range(0, max(map(len, left.values())), each):
            asked: dict[int, Asked] = {}
            for r, index in left.items():
                if start < len(index):
                    m = self.members[r]
                    key = device_key(m.spec.seed, Use.EVALUATION, m.step, number, again)
                    part = index[start : start + each]
                    asked[r] = Asked(m.validation[names[r]], part, key)
            _, host = self.evaluation_draws(asked)
            for r, (data, part, _) in asked.items():
                m = self.members[r]
                with self._alone(m):
                    rows = self.evaluation_draws.rows(host[:, : len(part) * k], r)
                    samples, _ = m.samples(rows, len(part), 0.0)
                    reward_D = m.policy.rewards(samples, data, part.tolist())
                    counts[r][part] = successes_of(samples, reward_D).numpy()
                    failed[r] += part[np.unique(samples.prompt_N[reward_D.isnan()])].tolist()
                    spent[r][0] += samples.tokens
                    spent[r][1] += k * len(part)
        return {r: np.array(x) for r, x in failed.items() if x}

    # Checkpoints ------------------------------------------------------------------------

    def _states(self, run: int) -> dict[str, Tensor]:
        """What a checkpoint keeps, under the names of `optimizer.FlatAdamW`."""
        return {"parameters": self.model.flat[run], "first_moment": self.adam.first[run],
                "second_moment": self.adam.second[run]}  # fmt: skip

    def _save(self, run: int) -> None:
        from safetensors.torch import save_file

        member = self.members[run]
        with self._alone(member):
            if member.error is None:
                with member.sink.checkpoint(member.step) as folder:
                    state = {k: v.cpu().clone() for k, v in self._states(run).items()}
                    save_file(state, folder / "training.safetensors",
                              metadata={"steps": str(member.step)})  # fmt: skip
                    member.save_position(folder)
                member.is_kept = member.done

    def _load(self, run: int, folder: Path) -> None:
        from safetensors import safe_open

        with safe_open(folder / "training.safetensors", framework="pt") as file:
            for name, value in self._states(run).items():
                value.copy_(file.get_tensor(name))
        self.members[run].load_position(folder)
        self.members[run].is_kept = self.members[run].done


def _share_of(started: float, runs: int) -> float:
    """Seconds of the time since then that each of some runs is booked."""
    return (time.monotonic() - started) / max(runs, 1)
