"""What a program may say: one method per kind of leaf, which the tape and torch's runner answer.

A leaf is a named operation of a mechanism: one row of the ledger, one small module in torch. No cost arises outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from xfcost.formulas.component import ActKind, Component, NormKind, Place
from xfcost.ledger.lora import Adapter, Lora
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number
from xfcost.program.leaves import (
    Act,
    AdapterMap,
    AdapterSum,
    Bookkeeping,
    Function,
    KeyValueCache,
    LatentCache,
    Leaf,
    Linear,
    Made,
    Norm,
    State,
    Weight,
    Worked,
)
from xfcost.program.symbolic import Shape, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xfcost.program.tape import Tape

Result = TypeVar("Result")
Functions: TypeAlias = "Tape"
"""What the function of a leaf may call beside methods of tensors, in torch's words: what `torch_models` answers too."""


class Operations:
    """What a program may say."""

    decodes: bool = False
    """Does a decode step run, of one token?"""
    cached: Number = 0
    """Tokens before those that run, which a cached prefix has; a decode step has its own."""
    lora: Lora | None = None
    """The adapters of linear maps; all other weights are then frozen."""

    if TYPE_CHECKING:  # each machine's own

        def run(self, name: str, leaf: Leaf, *inputs: Tensor | None, **facts: Any) -> Tensor:
            """The leaf `name`. `facts`: fields of its row that no computation shows, and a `label` behind its title."""

        def unused(self, name: str, leaf: Leaf, x: Tensor) -> None:
            """The leaf `name` has parameters and does not run."""

        def component(self, name: str, component: Component, place: Place, *inputs: Tensor) -> Tensor:
            """Another component, in a module of its own."""

        def zeros(self, *shape: Number, like: Tensor, type_: Type = "model") -> Tensor:
            """Zeros, of the model's type or another, on the device of `like`."""

        def constant(
            self, name: str, worked: Worked, *shape: Number, like: Tensor, so_far: int | None = None
        ) -> Tensor:  # fmt: skip
            """Fixed numbers, in the type of `like`; in a decode step up to its token, along the axis `so_far`."""

        def earlier(self, name: str, tokens: Number, *, like: Tensor) -> Tensor:
            """Tokens of earlier segments, without a gradient, as wide as `like`: (1, `tokens`, D), zeros at first."""

        def here(self, table: Tensor, count: Number) -> Tensor:
            """Of a table's rows, one per position, the first `count`; in a decode step that of its token."""

        def of_memory(self, name: str, compute: Callable[[], tuple[Tensor, ...]], title: str) -> tuple[Tensor, ...]:
            """Keys and values of the encoder's output: `compute` gives them. A decode step finds them in a cache."""

        def repeats(self, count: Number) -> Iterator[int]:
            """The numbers of the turns of a loop around leaves."""

        def each_token(
            self, step: Callable[[Any, Any], tuple[Sequence[Tensor], Any]], x: Tensor | tuple[Tensor, ...], state: Any
        ) -> tuple[Sequence[Sequence[Tensor]], Any]:
            """step(x (B, T, …), state) -> outputs (B, T, …) and the next state, from token to token of x (B, N, …).

            Of several tensors a step is given the same tokens.

            Returns each output of all steps, and the last state. Where shapes alone are asked for, T is N.
            """

        def handed_over(self, number: int, shapes: Sequence[Shape]) -> Sequence[Any]:
            """The last state of a direction, of these shapes for a sample, that a layer of the encoder left."""

        def computed_before(self, compute: Callable[[], Any]) -> Any:
            """What `compute` gives. A decode step does not run it: that was done before the first one."""

        def state(self, name: str, *shapes: Shape) -> Sequence[Any]:
            """Of a decode step: what the one before has kept, of these shapes for a sample."""

        def started(self, name: str, first: Sequence[Tensor]) -> Sequence[Any]:
            """The same, where the first step finds `first`."""

        def per_sample(self, x: Tensor, like: Tensor) -> Tensor:
            """x (1, …) for each sample of `like`, as a view; x as it is where it is of samples."""

    def table(self, name: str, *shape: Number, **facts: Any) -> Tensor:
        """A learned table."""
        return self.leaf(name, itself, weights=(Weight(shape),), **facts)

    def linear(
        self, name: str, x: Tensor, outputs: Number, *, bias: bool = True, parts: Sequence[Number] = (), **facts: Any
    ) -> Tensor:  # fmt: skip
        """xW + b: (…, D) -> (…, D'), and what its adapters add; `parts`: the widths of q, k and v, if they differ."""
        y = self.run(name, Linear(outputs, bias), x, **facts)
        if self.lora is not None:
            for adapter in self.lora.adapters(name, outputs, parts):
                y = self._adapted(self.lora, adapter, x, y)
        return y

    def _adapted(self, lora: Lora, adapter: Adapter, x: Tensor, y: Tensor) -> Tensor:
        """y + α/r·BAx on the columns of an adapter."""
        part, own = f"lora.{adapter.name}", adapter.name.replace("_", " ")
        low = self.run(f"{part}.a", AdapterMap(lora.rank), x, title=f"LoRA A of {own}")
        update = self.run(f"{part}.b", AdapterMap(adapter.width), low, title=f"LoRA B of {own}")
        return self.run(f"{part}.add", AdapterSum(adapter.start), y, update, title=f"LoRA: scale and add to {own}")

    def norm(self, name: str, x: Tensor, kind: NormKind, **facts: Any) -> Tensor:
        """A norm of the last axis, (…, D) -> (…, D); x as it is for `none`."""
        return x if kind == "none" else self.run(name, Norm(kind), x, **facts)

    def act(self, name: str, x: Tensor, kind: ActKind | str, **facts: Any) -> Tensor:
        """An activation function, element by element; x as it is for `none`."""
        return x if kind == "none" else self.run(name, Act(kind), x, **facts)

    def leaf(
        self, name: str, function: Callable[..., Result], *inputs: Tensor, weights: Sequence[Weight] = (),
        options: Mapping[str, Any] | None = None, turn: int | None = None, **facts: Any,
    ) -> Result:  # fmt: skip
        """function(functions, *inputs, *weights, **options), and `turn`, the number of the call, if it is given."""
        leaf = Function(function, tuple(weights), options or {}, turn)
        return self.run(name, leaf, *inputs, **facts)  # type: ignore[return-value]

    def bookkeeping(self, name: str, function: str, x: Tensor, *outputs: Made, **options: Any) -> Any:
        """Integers and truth values that a function of torch's side works out of x."""
        return self.run(name, Bookkeeping(function, outputs, options), x)

    def cache(self, name: str, cache: KeyValueCache | LatentCache, *new: Tensor, title: str | None = None) -> Any:
        """What earlier tokens left and these add; the tensors as they are where none came before."""
        return self.run(name, cache, *new, title=title) if self.decodes or self.cached else new

    def hand_over(self, *states: Sequence[Tensor]) -> None:
        """Leave the last state of each direction to a layer of the decoder that starts from it."""

    def keep(
        self, name: str, *new: Tensor, starts: Sequence[float] = (), title: str = "State for the next token"
    ) -> None:  # fmt: skip
        """Of a decode step: `new` is the state for the next one; before the first its numbers are `starts`, or 0."""
        self.run(name, State(tuple(starts)), *new, title=title)

    def part(self, name: str, label: str | None = None, titles: Mapping[str, str] | None = None) -> Part:
        """The same for a part of the component: its leaves are `name.…`, their titles `… (label)`."""
        return Part(self, name, label, titles or {})


def itself(t: Functions, x: Tensor) -> Tensor:
    """x."""
    return x


# What has a name of its own in a component, and what is between that and the name of its part.
_NAMED: Final = {
    "component": ".", "unused": ".", "of_memory": ".", "state": ".", "started": ".", "constant": "_", "earlier": "_",
}  # fmt: skip


class Part(Operations):
    """The leaves of a part of a component."""

    def __init__(self, whole: Operations, name: str, label: str | None, titles: Mapping[str, str]) -> None:
        self.whole, self.name, self.label, self.titles = whole, name, label, titles
        self.decodes, self.cached, self.lora = whole.decodes, whole.cached, whole.lora

    def run(self, name: str, leaf: Leaf, *inputs: Tensor | None, **facts: Any) -> Tensor:
        named = {"label": self.label, "title": self.titles.get(name)}
        facts = facts | {"symbol": None} if self.name else facts
        return self.whole.run(f"{self.name}.{name}" if self.name else name, leaf, *inputs, **named | facts)

    def __getattr__(self, method: str) -> Any:
        """What the whole says, of names in this part."""
        said = getattr(self.whole, method)
        if method not in _NAMED:
            return said
        return lambda name, *others, **options: said(f"{self.name}{_NAMED[method]}{name}", *others, **options)
