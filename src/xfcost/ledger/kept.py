"""Answers of a function that are kept: a model and its relatives have the same components again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Kept(Generic[Arguments, Answer]):
    """`function` with its last `most` answers kept.

    Arguments without a hash, as a component that has a list among its options, are computed each time.
    """

    def __init__(self, function: Callable[Arguments, Answer], most: int = 2**12) -> None:
        self._function, self._kept = function, lru_cache(maxsize=most)(function)
        self.cache_clear = self._kept.cache_clear

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return self._kept(*args, **kwargs)  # type: ignore[arg-type]
        except TypeError:
            return self._function(*args, **kwargs)
