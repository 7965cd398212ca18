"""Problem sets: what a model is asked, what counts as right, how hard it is."""

from isocompute.problems.files import load_problems, save_problems
from isocompute.problems.selection import (
    BANDS,
    MIXTURES,
    Band,
    mix_problems,
    select_problems,
    split_problems,
    subset_problems,
)
from isocompute.problems.sets import Problem, ProblemSet

__all__ = [
    "BANDS",
    "MIXTURES",
    "Band",
    "Problem",
    "ProblemSet",
    "load_problems",
    "mix_problems",
    "save_problems",
    "select_problems",
    "split_problems",
    "subset_problems",
]
