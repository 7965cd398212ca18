"""One thread for linear algebra.

The matrices of a sweep are small, and threads that wait for each other cost more than they give:
on two cores a fit of 81 runs took 5.3 s of CPU with two and 3.1 s with one, in the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during which BLAS has one thread; what it had before is put back."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with _pools().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return inner


_pools = cache(ThreadpoolController)  # looks for libraries once: 4 ms
