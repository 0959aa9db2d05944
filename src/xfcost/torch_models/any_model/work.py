"""One operation of a run: a call in the source of a module, all its repetitions together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from xfcost.ledger.attention_core import AttentionCore
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.operation import Mixing

Shapes = tuple[tuple[int, ...], ...]
# A module, the name of an operation, and the call in the source.
Key = tuple[Any, ...]
_MOST_SHAPES: Final = 4


class Work:
    """What an operation costs, on what shapes, with which weights."""

    def __init__(self, path: str, operation: str, place: Key | None = None) -> None:
        self.path = path
        self.operation = operation
        self.place = place
        """Its module, its name and the call in the source: the same in every run of the module in this process."""
        self.costs: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()
        self.calls = 0
        self.sequence: list[int] = []
        """The numbers of its ATen operations in the order in which the run's operations ran, from 0."""
        self.inputs: Shapes = ()
        self.outputs: Shapes = ()
        self.varied = False
        """Did a later call have other shapes than the first?"""
        self.weights: dict[str, None] = {}
        """The parameters that it takes, in order."""
        self.entries = 0
        """Attention scores that it makes, of all calls."""
        self.fused_entries = 0
        """Scores that a fused kernel never writes."""
        self.fused_statistics = 0
        """Log-sum-exps that a fused kernel would write instead of this softmax."""
        self.matrix: Matrix | None = None
        self.core: AttentionCore | None = None
        self.heads: int | None = None
        self.backward_macs = 0
        """MACs of its backward pass; those that run its forward again are `recomputed_macs`."""
        self.recomputed_macs = 0
        self.recomputed = False
        """Does the backward pass run it again?"""
        self.kept_bytes = 0
        """Activations that it is the first to save for the backward pass."""
        self.seconds: float | None = None
        self.predicted_seconds: float | None = None
        self.operand_bytes = 0
        """Bytes that its calls move: inputs, outputs and weights, each tensor of a call once."""
        self.mixing: Mixing = "unknown"
        """Its kind, if somebody finds it."""
        self.content_dependent = False
        self.reads_tokens: int | None = None
        self.computed_tokens: int | None = None
        """Tokens that it computes for each token, where a mask keeps fewer."""
        self.kept_tokens: int | None = None
        """What the mask keeps of them: the median."""
        self.kind_missing: str | None = None
        """Why its kind is not known, if somebody looked."""

    @property
    def call(self) -> Hashable:
        """Its module and the call in the source, which may run other operations on other devices."""
        return None if self.place is None else (self.place[0], *self.place[2:])

    @property
    def site(self) -> Hashable:
        """The call in the source, in whichever module."""
        return None if self.place is None else self.place[1:]

    def reading(self) -> tuple[int | None, int | None, int | None]:
        """Tokens per token: read, computed, and kept by a mask."""
        return self.reads_tokens, self.computed_tokens, self.kept_tokens

    @property
    def name(self) -> str:
        """Its name without torch's own namespace."""
        return self.operation.removeprefix("aten::")

    def called(self, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]) -> None:
        """One more call with these shapes."""
        given, made = tuple(inputs), tuple(outputs)
        if self.calls and (given, made) != (self.inputs, self.outputs):
            self.varied = True
        if not self.calls:
            self.inputs, self.outputs = given, made
        self.calls += 1

    def same_as(self) -> tuple[Any, ...]:
        """Everything but its place, to compare repeated blocks."""
        costs, uncounted = (tuple(sorted(each.items())) for each in (self.costs, self.uncounted))
        ran = (self.operation, costs, uncounted, self.calls, self.inputs, self.outputs, self.varied)
        attention = (self.entries, self.fused_entries, self.fused_statistics, self.matrix, self.core, self.heads)
        return (*ran, *attention, self.mixing, self.content_dependent, *self.reading(), self.kind_missing)


def owners(works: Sequence[Work]) -> Callable[[Key], Work | None]:
    """The operation that a key of another run belongs to.

    A device may run other kernels for the same call; they are that call's.
    """
    by_key = {work.place: work for work in works}
    by_call: dict[Any, Work] = {}
    for work in works:
        by_call.setdefault(work.call, work)
    return lambda key: by_key.get(key) or by_call.get((key[0], *key[2:]))


def shapes_text(shapes: Shapes) -> str:
    """`1×197×768, 768×2304`; a number of one element is `()`; of many tensors the first ones."""
    texts = ["×".join(map(str, shape)) or "()" for shape in shapes[:_MOST_SHAPES]]
    return ", ".join([*texts, *(["…"] if len(shapes) > _MOST_SHAPES else [])])


def uncounted(works: Sequence[Work]) -> Counter[str]:
    """The operations that no table knows, with how often they ran."""
    return sum((work.uncounted for work in works), Counter[str]())
