"""A model folder and problems made ready for it: what training and evaluation share.

Shape legend: P problems, S prompt tokens, N distinct responses.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from isocompute.engines.base import Unjudged
from isocompute.engines.local.folders import generation_config, load_model
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.precision import find_device
from isocompute.engines.local.sampling import Samples, sample
from isocompute.engines.local.tokenizer import Tokenizer, load_tokenizer
from isocompute.errors import InputError, IsocomputeError
from isocompute.problems import Problem, ProblemSet
from isocompute.verifiers import Outcome, Verifier, load_verifier

PROBLEMS_PER_PASS = 256  # of an evaluation: bounds its memory
REDRAWS = 3  # of a validation problem whose responses the verifier failed to judge
# Verifiers that compare texts: an answer that cannot be said can never be matched.
_LITERAL = ("exact", "bits", "hexbits")
_LONGEST = 300  # characters that are kept of a response that could not be judged


def base_folder(model: str) -> Path:
    """The folder of a model: a path, or the name of a base model shipped with the package.

    Raises:
        InputError: if it is neither.
    """
    if Path(model).is_dir():
        return Path(model)
    shipped = importlib.resources.files("isocompute") / "data" / "base"
    folder = Path(str(shipped)) / model
    if model and folder.is_dir() and folder.parent == Path(str(shipped)):
        return folder
    known = sorted(p.name for p in Path(str(shipped)).glob("*") if p.is_dir())
    raise InputError(
        f"`model` must be a folder or one of the shipped models ({', '.join(known) or 'none'}), "
        f"but got {model!r}; correct engine_options.model (relative paths start at {Path.cwd()})."
    )


def stop_length(folder: Path) -> int | None:
    """`max_new_tokens` of the folder's generation_config.json, if it gives one."""
    value = generation_config(folder).get("max_new_tokens")
    return None if value is None else int(value)


@contextlib.contextmanager
def _intact(folder: Path) -> Iterator[None]:
    """Whatever a damaged file of a model folder makes its readers raise, in one line."""
    from safetensors import SafetensorError

    try:
        yield
    except IsocomputeError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError,
            SafetensorError) as error:  # fmt: skip
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
        raise InputError(
            f"a model folder must hold intact JSON and safetensors files, but reading {folder} "
            f"gives {reason}; save the model again."
        ) from error


@dataclass(frozen=True, kw_only=True)
class TokenizedProblems:
    """Prompts as tokens, padded on the right, and what judges the responses."""

    problems: ProblemSet
    token_PS: Tensor
    length_P: Tensor
    verifier: Verifier

    def __len__(self) -> int:
        return len(self.problems)


class Counted(NamedTuple):
    """What an evaluation drew.

    Attributes:
        successes_P: successes out of the samples asked for, per problem.
        tokens, rollouts: drawn in all, those of problems that were drawn again included.
        cut: of these rollouts, those that the length limit ended; 0 of a model without an end.
    """

    successes_P: Tensor
    tokens: int
    rollouts: int
    cut: int


class Policy:
    """A model with its tokenizer and length limit.

    Args:
        folder: Hugging Face folder.
        max_new_tokens: a response ends there; None: generation_config.json decides.
        device: where it computes.

    Attributes:
        judged, errors: rollouts that the verifiers were asked to judge, and failed to; whoever
            reports them sets them back.

    Raises:
        InputError: if the folder is no model, or neither gives a limit.
    """

    def __init__(
        self, folder: Path, max_new_tokens: int | None = None, *, device: str = "cpu"
    ) -> None:
        with _intact(folder):
            limit = max_new_tokens if max_new_tokens is not None else stop_length(folder)
            model, tokenizer = load_model(folder), load_tokenizer(folder)
        if limit is None or limit < 1:
            raise InputError(
                f"`max_new_tokens` must be >= 1, but got {limit!r}; set it in engine_options or in "
                "the model's generation_config.json."
            )
        self.folder = folder
        self.max_new_tokens = limit
        self.device = find_device(device)
        self.model: PolicyModel = model.to(self.device)
        self.tokenizer: Tokenizer = tokenizer
        self.judged = self.errors = 0
        self._unjudged: dict[int, Unjudged] = {}

    def tokenize(self, problems: ProblemSet) -> TokenizedProblems:
        """Make a problem set ready.

        Raises:
            InputError: for an empty prompt, one too long for the model, one that the
                vocabulary cannot express, or an answer that can never be matched.
        """
        verifier = load_verifier(problems.verifier)
        rows = [self._encoded(p) for p in problems.problems]
        positions = self.model.sizes.max_position_embeddings
        room = positions - self.max_new_tokens
        if room < 1:
            raise InputError(
                f"`max_new_tokens` must leave room for a prompt in the model's {positions} "
                f"positions, but got {self.max_new_tokens}; the longest prompt here has "
                f"{max(map(len, rows))} tokens: give at most "
                f"{max(positions - max(map(len, rows)), 1)}."
            )
        for problem, row in zip(problems.problems, rows, strict=True):
            if not 1 <= len(row) <= room:
                raise InputError(
                    f"a prompt must have 1 to {room} tokens for this model, but problem "
                    f"{problem.id!r} has {len(row)}; shorten it or lower max_new_tokens."
                )
            fault = verifier.check_answer(problem.answer)
            if fault:
                raise InputError(
                    f"every answer must be one that {problems.verifier!r} can match, but problem "
                    f"{problem.id!r} has {problem.answer!r}: {fault}; correct the problem set."
                )
            if problems.verifier.partition(">=")[0] in _LITERAL:
                said = len(self.tokenizer.encode(problem.answer.strip()))
                if said > self.max_new_tokens:
                    raise InputError(
                        f"an answer must fit into max_new_tokens={self.max_new_tokens}, but the "
                        f"answer of problem {problem.id!r} has {said} tokens; raise "
                        "max_new_tokens."
                    )
        width = max(map(len, rows))
        pad = self.model.sizes.pad_token_id
        padded = [row + [pad] * (width - len(row)) for row in rows]
        token_PS = torch.tensor(padded, device=self.device)
        length_P = torch.tensor([len(row) for row in rows], device=self.device)
        return TokenizedProblems(
            problems=problems, token_PS=token_PS, length_P=length_P, verifier=verifier
        )

    def _encoded(self, problem: Problem) -> list[int]:
        try:
            return self.tokenizer.encode(problem.prompt)
        except InputError as error:
            raise InputError(f"prompt of problem {problem.id!r}: {error}") from None

    def texts(self, samples: Samples) -> list[str]:
        """Responses as text, in the order of the samples."""
        rows: list[list[int]] = samples.token_NT.tolist()
        decode = self.tokenizer.decode
        return [
            decode(row[:length])
            for row, length in zip(rows, samples.length_N.tolist(), strict=True)
        ]

    def rewards(
        self, samples: Samples, data: TokenizedProblems, index_P: Sequence[int]
    ) -> Tensor:
        """Reward of each distinct response: 0, 1, or NaN where the verifier failed.

        `index_P` are the problems of the samples' prompts.
        """
        problems, verifier = data.problems.problems, data.verifier
        rewards: list[float] = []
        prompt_N: list[int] = samples.prompt_N.tolist()
        count_N: list[int] = samples.count_N.tolist()
        for prompt, count, text in zip(prompt_N, count_N, self.texts(samples), strict=True):
            problem = index_P[prompt]
            outcome = _judged(verifier, text, problems[problem].answer)
            if outcome.reward is None:
                self._note(problem, count, outcome.error or "no reason given", text)
            rewards.append(math.nan if outcome.reward is None else float(outcome.reward))
        reward_N = torch.tensor(rewards, device=samples.count_N.device)
        self.judged += int(samples.count_N.sum())
        self.errors += int((samples.count_N * reward_N.isnan()).sum())
        return reward_N

    def _note(self, problem: int, rollouts: int, message: str, response: str) -> None:
        known = self._unjudged.get(problem)
        self._unjudged[problem] = (
            Unjudged(problem=problem, rollouts=rollouts, message=message,
                     response=response[:_LONGEST])
            if known is None else replace(known, rollouts=known.rollouts + rollouts)
        )  # fmt: skip

    def take_unjudged(self) -> tuple[Unjudged, ...]:
        """What the verifier failed on since the last time, by problem of the set judged."""
        taken, self._unjudged = self._unjudged, {}
        return tuple(taken[problem] for problem in sorted(taken))

    def count_successes(
        self,
        data: TokenizedProblems,
        samples: int,
        generator: torch.Generator,
        *,
        temperature: float,
        top_p: float = 1.0,
        sampler: PolicyModel | None = None,
        redraws: int = REDRAWS,
    ) -> Counted:
        """Successes out of `samples` per problem.

        A problem whose responses were not all judged is drawn again, up to `redraws` times,
        which leaves the distribution of judged responses as it is. What is unjudged even then
        counts as no success, and in `errors` like every other failure of the verifier.
        """
        model = self.model if sampler is None else sampler
        successes_P = torch.zeros(len(data), dtype=torch.long, device=self.device)
        left, tokens, rollouts, cut = list(range(len(data))), 0, 0, 0
        for _ in range(1 + redraws):
            unjudged: list[int] = []
            for start in range(0, len(left), PROBLEMS_PER_PASS):
                index = left[start : start + PROBLEMS_PER_PASS]
                part = torch.tensor(index, device=self.device)
                drawn = sample(
                    model, data.token_PS[part], data.length_P[part], samples,
                    max_new_tokens=self.max_new_tokens, generator=generator,
                    temperature=temperature, top_p=top_p,
                )
                reward_N = self.rewards(drawn, data, index)
                successes_P[part] = successes_of(drawn, reward_N)
                failed: list[int] = drawn.prompt_N[reward_N.isnan()].tolist()
                unjudged += [index[i] for i in sorted(set(failed))]
                tokens += drawn.tokens
                rollouts += samples * len(index)
                cut += self.cut_off(drawn)
            left = unjudged
            if not left:
                break
        return Counted(successes_P, tokens, rollouts, cut)

    def cut_off(self, samples: Samples) -> int:
        """Rollouts that the length limit ended, of a model that ends some itself."""
        ends = self.model.sizes.end_tokens
        return int((samples.count_N * samples.clipped_N).sum()) if ends else 0


def _judged(verifier: Verifier, text: str, answer: str) -> Outcome:
    try:
        return verifier(text, answer)
    except Exception as error:  # noqa: BLE001 - a verifier is foreign code: its crash is an outcome
        return Outcome(None, " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST])


def successes_of(samples: Samples, reward_N: Tensor) -> Tensor:
    """Successful rollouts per prompt (P,); a response without a verdict is none."""
    zero = torch.zeros(samples.prompts, dtype=torch.long, device=reward_N.device)
    success_N = reward_N.nan_to_num(0.0).long()
    return zero.index_add(0, samples.prompt_N, samples.count_N * success_N)
