"""Answers of a function that are kept: a model and its relatives have the same components again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_NONE: Final[Any] = object()


class Kept(Generic[Arguments, Answer]):
    """`function` with `most` answers kept, the last ones.

    Arguments without a hash, as a component that has a list among its options, are computed each time.
    """

    def __init__(self, function: Callable[Arguments, Answer], most: int = 2**12) -> None:
        self.function, self._most = function, most
        self.answers: dict[Any, Answer] = {}
        self.cache_clear = self.answers.clear

    def __call__(self, *args: Arguments.args, **_: Arguments.kwargs) -> Answer:
        try:
            found = self.answers.get(args, _NONE)
        except TypeError:
            return self.function(*args)  # type: ignore[call-arg]
        return self.keep(self.function(*args), *args) if found is _NONE else found  # type: ignore[call-arg]

    def keep(self, answer: Answer, *args: Arguments.args, **_: Arguments.kwargs) -> Answer:
        """Keep the answer to `args`; beyond `most` the older half goes."""
        if len(self.answers) >= self._most:
            for one in [*self.answers][: self._most // 2]:
                self.answers.pop(one, None)  # of two threads one comes first
        self.answers[args] = answer
        return answer
