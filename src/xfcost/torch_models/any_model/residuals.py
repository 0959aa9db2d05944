"""Which adds of a run are residual: one operand is what the other was computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from xfcost.torch_models.running.record import RecordedCall, TensorRecord

_ADDS: Final = ("aten::add", "aten::add_")


class _Node(NamedTuple):
    """A forward call, among those of its run; tensors that no call has made have numbers below 0."""

    call: RecordedCall
    sources: tuple[int, ...]
    """The numbers of the calls that made its inputs."""
    free: bool
    """Is it a view, a copy, or other work that costs nothing?"""


class ResidualAdd(NamedTuple):
    """What a residual add adds."""

    source: RecordedCall | None
    """The call whose result it adds back; None of what no call has made."""
    branch: str
    """The module inside its own that worked last on what it adds to that; empty where none is inside."""


class ResidualAdds:
    """The residual adds of the forward pass: `x + f(x)`, where f has a product, or runs in another module.

    An approximation in one module, such as the x + 0.044715·x³ of a GELU, is none; nor is a sum of two branches, or a
    concatenation. Branches of one input are added one by one: `x + f(x) + g(x)` is two of them.
    """

    def __init__(self, calls: Iterable[RecordedCall]) -> None:
        self._nodes: list[_Node] = []
        self._makers: dict[int, int] = {}
        self._given = 0
        self._skipped: dict[int, int] = {}
        self._branches: dict[int, str] = {}
        for call in calls:
            if call.phase == "forward":
                self._take(call)

    def found(self) -> dict[int, ResidualAdd]:
        """`id` of each residual add -> what it adds."""
        return {
            id(self._nodes[add].call): ResidualAdd(
                self._nodes[source].call if source >= 0 else None, self._branches[add]
            )
            for add, source in self._skipped.items()
        }

    def _take(self, call: RecordedCall) -> None:
        sources = tuple(dict.fromkeys(map(self._maker, call.inputs)))
        number = len(self._nodes)
        self._nodes.append(_Node(call, sources, call.costs is not None and not any(call.costs.values())))
        if call.operation in _ADDS and len(sources) == 2 and _alike(call.inputs):  # noqa: PLR2004 - two operands
            first, second = map(self._origin, sources)
            for one, other in ((first, second), (second, first)):
                for start in (one, *self._streams(one)):
                    if number not in self._skipped and (between := self._leading(start, other, call.module)):
                        self._skipped[number] = start
                        self._branches[number] = self._branch(between, call.module)
        self._makers.update((tensor.tensor, number) for tensor in call.outputs)

    def _maker(self, tensor: TensorRecord) -> int:
        if tensor.tensor not in self._makers:
            self._given -= 1
            self._makers[tensor.tensor] = self._given
        return self._makers[tensor.tensor]

    def _origin(self, number: int) -> int:
        """What a view or a copy is of."""
        while number >= 0 and self._nodes[number].free and len(self._nodes[number].sources) == 1:
            (number,) = self._nodes[number].sources
        return number

    def _streams(self, number: int) -> Sequence[int]:
        """What a residual add has added to."""
        return (self._skipped[number],) if number in self._skipped else ()

    def _leading(self, start: int, end: int, module: str) -> list[int]:
        """The calls through which `end` is computed from `start`, if any has a product or is in another module."""
        between, open_ = set[int](), [end]
        while open_:
            number = open_.pop()
            if number > start and number >= 0 and number not in between:
                between.add(number)
                open_ += self._nodes[number].sources
        works: dict[int, bool] = {start: False}  # those that `start` leads to: does anything on the way work?
        for number in sorted(between):
            node = self._nodes[number]
            if before := [works[source] for source in node.sources if source in works]:
                own = node.call.module != module or bool(node.call.costs and node.call.costs["macs"])
                works[number] = any(before) or (own and not node.free)
        return list(works) if works.get(end, False) else []

    def _branch(self, between: Sequence[int], module: str) -> str:
        """The child of `module` that the last of some calls is in, of those that are inside it and not free."""
        start = f"{module}." if module else ""
        for number in reversed(between):
            node = self._nodes[number]
            if number >= 0 and not node.free and node.call.module != module and node.call.module.startswith(start):
                return node.call.module.removeprefix(start).partition(".")[0]
        return ""


def _alike(tensors: Sequence[Any]) -> bool:
    """Have they one shape, and are they of floats?"""
    return len({tuple(one.shape) for one in tensors}) == 1 and all(one.dtype.is_floating_point for one in tensors)
