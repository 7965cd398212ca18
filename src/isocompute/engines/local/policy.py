"""A model folder and problems made ready for it: what training and evaluation share.

Shape legend: P problems, S prompt tokens, N distinct responses.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from isocompute.engines.local.folders import load_model
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.sampling import Samples, sample
from isocompute.engines.local.tokenizer import Tokenizer, load_tokenizer
from isocompute.errors import InputError, RunError
from isocompute.problems import ProblemSet
from isocompute.verifiers import Verifier, load_verifier

PROBLEMS_PER_PASS = 256  # of an evaluation: bounds its memory


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
        f"but got {model!r}; correct engine_options.model."
    )


def stop_length(folder: Path) -> int | None:
    """`max_new_tokens` of the folder's generation_config.json, if it gives one."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return None
    value = json.loads(path.read_text(encoding="utf-8")).get("max_new_tokens")
    return None if value is None else int(value)


@dataclass(frozen=True, kw_only=True)
class TokenizedProblems:
    """Prompts as tokens, padded on the right, and what judges the responses."""

    problems: ProblemSet
    token_PS: Tensor
    length_P: Tensor
    verifier: Verifier

    def __len__(self) -> int:
        return len(self.problems)


class Policy:
    """A model with its tokenizer and length limit.

    Args:
        folder: Hugging Face folder.
        max_new_tokens: a response ends there; None: generation_config.json decides.

    Raises:
        InputError: if the folder is no model, or neither gives a limit.
    """

    def __init__(self, folder: Path, max_new_tokens: int | None = None) -> None:
        limit = max_new_tokens if max_new_tokens is not None else stop_length(folder)
        if limit is None or limit < 1:
            raise InputError(
                f"`max_new_tokens` must be >= 1, but got {limit!r}; set it in engine_options or in "
                "the model's generation_config.json."
            )
        self.folder = folder
        self.max_new_tokens = limit
        self.model: PolicyModel = load_model(folder)
        self.tokenizer: Tokenizer = load_tokenizer(folder)

    def tokenize(self, problems: ProblemSet) -> TokenizedProblems:
        """Make a problem set ready.

        Raises:
            InputError: for an empty prompt, one too long for the model, one that the
                vocabulary cannot express, or an answer that can never be matched.
        """
        verifier = load_verifier(problems.verifier)
        rows = [self.tokenizer.encode(p.prompt) for p in problems.problems]
        room = self.model.sizes.max_position_embeddings - self.max_new_tokens
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
        width = max(map(len, rows))
        pad = self.model.sizes.pad_token_id
        token_PS = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
        length_P = torch.tensor([len(row) for row in rows])
        return TokenizedProblems(
            problems=problems, token_PS=token_PS, length_P=length_P, verifier=verifier
        )

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
        """0/1 reward of each distinct response; `index_P` are the problems of its prompts.

        Raises:
            RunError: if the verifier fails on a response.
        """
        problems, verifier = data.problems.problems, data.verifier
        rewards: list[float] = []
        prompt_N: list[int] = samples.prompt_N.tolist()
        for prompt, text in zip(prompt_N, self.texts(samples), strict=True):
            problem = problems[index_P[prompt]]
            outcome = verifier(text, problem.answer)
            if outcome.reward is None:
                raise RunError(
                    f"the verifier must judge every response, but failed on problem {problem.id!r} "
                    f"with the response {text[:60]!r}: {outcome.error}; mend the verifier."
                )
            rewards.append(float(outcome.reward))
        return torch.tensor(rewards)

    def count_successes(
        self,
        data: TokenizedProblems,
        samples: int,
        generator: torch.Generator,
        *,
        temperature: float,
        top_p: float = 1.0,
    ) -> tuple[Tensor, int]:
        """Successes out of `samples` per problem, and the number of tokens drawn."""
        successes, tokens = [], 0
        for start in range(0, len(data), PROBLEMS_PER_PASS):
            part = slice(start, start + PROBLEMS_PER_PASS)
            drawn = sample(
                self.model, data.token_PS[part], data.length_P[part], samples,
                max_new_tokens=self.max_new_tokens, generator=generator,
                temperature=temperature, top_p=top_p,
            )
            reward_N = self.rewards(drawn, data, range(start, start + drawn.prompts))
            successes.append(successes_of(drawn, reward_N))
            tokens += drawn.tokens
        return torch.cat(successes), tokens


def successes_of(samples: Samples, reward_N: Tensor) -> Tensor:
    """Successful rollouts per prompt (P,)."""
    zero = torch.zeros(samples.prompts, dtype=torch.long)
    return zero.index_add(0, samples.prompt_N, samples.count_N * reward_N.long())
