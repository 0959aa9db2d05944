"""The example inputs of an exported program, at any lengths that it was exported for.

A length is open where the program has a symbol for it: of the batch, of tokens (N), of an image's height and width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.spec.open_dimensions import OpenLetter, open_letters
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.user_errors import OwnError
from xfcost.torch_models.shared.private_torch import pytree

_WORDS: Final[dict[OpenLetter, str]] = {"B": "the batch", "N": "N", "H": "H", "W": "W"}
# The exporter takes an open length for at least 2, and does not look whether 1 would differ.
_TWO: Final = 2


class _Open(NamedTuple):
    """A symbol of a program, and the first axis of an input whose length gives it."""

    place: str
    """`x, axis 1`."""
    length: Any
    """That length: the symbol, or a linear expression in it."""
    own: int
    """Its number in the example inputs."""

    def symbol(self, length: int) -> int:
        """The number of the symbol at this length.

        Raises:
            OwnError: it is none of the lengths that the expression can have.
        """
        if self.length.is_Symbol:
            return length
        (symbol,) = self.length.free_symbols
        times, rest = int(self.length.coeff(symbol)), int(self.length.subs(symbol, 0))
        number, left = divmod(length - rest, times)
        if left:
            least = f"{rest:,} and " if rest else ""
            raise OwnError(f"{self.place}: the program was exported for {least}a multiple of {times:,}, got {length:,}")
        return number


class ExportedInputs:
    """The inputs of a program.

    Args:
        example: those that it was exported with.
        names: of its parameters, in order; the positional ones first.
        made: what stands for each input in the graph, in the order of the structure's leaves; of tensors with symbols.
        ranges: symbol -> the least and the most that it was exported for.
    """

    def __init__(
        self, example: Given, names: Sequence[str], made: Sequence[Any], ranges: Mapping[Any, Any]
    ) -> None:  # fmt: skip
        self._example, self._names, self._ranges = example, names, ranges
        self._leaves, self._structure = pytree.tree_flatten(tuple(example))
        self._sides: dict[int, tuple[Any, ...]] = {
            place: tuple(map(_side, one.shape if isinstance(one, Tensor) else leaf.shape))
            for place, (one, leaf) in enumerate(zip(made, self._leaves, strict=True)) if isinstance(leaf, Tensor)
        }  # fmt: skip
        self._leaf_names = [
            name + pytree.keystr(path)
            for name, value in (*zip(names, example.args, strict=False), *example.kwargs.items())
            for path, _ in pytree.tree_flatten_with_path(value)[0]
        ]
        self._open = self._opened()
        texts = {str(one.length): symbol for symbol, one in self._open.items()}
        found = open_letters({
            self._leaf_names[place]: [one if isinstance(one, int) else str(one) * (str(one) in texts) for one in sides]
            for place, sides in self._sides.items()
        })  # fmt: skip
        self._letters: dict[OpenLetter, Any] = {letter: texts[name] for name, letter in found.items()}

    def __deepcopy__(self, memo: Any) -> ExportedInputs:
        """Itself: nothing changes it."""
        return self

    def _opened(self) -> dict[Any, _Open]:
        """Every symbol with the axis that gives it: that of its own length, or else of a linear expression in it."""
        found: dict[Any, _Open] = {}
        axes = [
            (f"{self._leaf_names[place]}, axis {axis}", side, int(self._leaves[place].shape[axis]))
            for place, sides in self._sides.items() for axis, side in enumerate(sides) if not isinstance(side, int)
        ]  # fmt: skip
        for text, side, own in sorted(axes, key=lambda one: not one[1].is_Symbol):
            symbols = side.free_symbols
            if len(symbols) == 1 and side.is_polynomial(*symbols) and side.as_poly(*symbols).degree() == 1:
                found.setdefault(next(iter(symbols)), _Open(text, side, own))
        return found

    @property
    def note(self) -> str | None:
        """Which axes are open; None of a program for one input."""
        letters = {symbol: letter for letter, symbol in self._letters.items()}
        texts = []
        for symbol, one in self._open.items():
            word = _WORDS[letters[symbol]] if symbol in letters else "a length"
            own = "" if letters.get(symbol) == "B" else f": {one.own:,} in its example"
            texts.append(f"{word} ({one.place}{own})")
        return f"open in the program: {', '.join(texts)}" if texts else None

    @property
    def letters(self) -> frozenset[str]:
        """B, and N, or H and W, where they are open."""
        found: frozenset[str] = frozenset(self._letters)
        return found | {"W"} if "H" in found else found

    def _own(self, letter: OpenLetter) -> int:
        return self._open[self._letters[letter]].own

    def lengths(self, given: Lengths) -> Lengths:
        """Those of the example inputs where `given` has none."""
        tokens, size = given.tokens, given.size
        if "N" in self._letters and tokens is None:
            tokens = self._own("N")
        if "H" in self._letters and size is None:
            size = (self._own("H"), self._own("W" if "W" in self._letters else "H"))
        return Lengths(tokens, size, given.text_alone)

    def function(self, module: nn.Module) -> Any:
        """The inputs as a function of their letters; values where they have none."""
        device = str(next((one.device for one in module.parameters()), "cpu"))
        if "N" in self._letters:
            return lambda N: self.values(Lengths(N), device)
        if "H" in self._letters:
            return lambda H, W: self.values(Lengths(size=(H, W)), device)
        return self._example

    def values(self, lengths: Lengths, device: str, samples: int | None = None) -> Given:
        """The inputs at these lengths; of so many samples, or of one, where the batch is open.

        Raises:
            OwnError: the program has no open batch, no image of such sides, or no such lengths.
        """
        if "B" not in self._letters and samples not in (None, 1):
            raise OwnError(f"--batch {samples}: the program was exported for one batch; export it with an open one")
        if "N" not in self._letters and lengths.tokens is not None:
            raise OwnError(f"--N {lengths.tokens}: the program was exported for one length; export it with an open one")
        own = self.lengths(lengths)
        given: dict[OpenLetter, int | None] = {"B": samples or 1, "N": own.tokens}
        if own.size is not None:
            given |= {"H": own.size[0], "W": own.size[1]}
            if "H" in self._letters and "W" not in self._letters and own.size[0] != own.size[1]:
                raise OwnError(f"--size {own.size[0]}x{own.size[1]}: the program takes square images")
        asked = {symbol: given.get(letter) for letter, symbol in self._letters.items()}
        numbers = {symbol: one.symbol(asked.get(symbol) or one.own) for symbol, one in self._open.items()}
        leaves = list(self._leaves)
        for place, sides in self._sides.items():
            leaves[place] = _resized(leaves[place], [_length(one, numbers) for one in sides], device)
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return Given(args, kwargs)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The inputs of a call in the order of the graph.

        Raises:
            OwnError: the program takes others, or was not exported for their lengths.
        """
        named = dict(zip(self._names, args, strict=False)) | kwargs
        if len(args) > len(self._names) or named.keys() != set(self._names):
            raise OwnError(f"the program takes the inputs {', '.join(self._names)}; got {len(args) + len(kwargs)}")
        first = len(self._example.args)
        positional = tuple(named[name] for name in self._names[:first])
        leaves, structure = pytree.tree_flatten((positional, {name: named[name] for name in self._names[first:]}))
        if structure != self._structure:
            raise OwnError("the program was exported for inputs of another structure than these")
        self._check(leaves)
        return leaves

    def _check(self, leaves: Sequence[Any]) -> None:
        """Refuse lengths that the program was not exported for."""
        lengths: dict[str, int] = {}
        for place, sides in self._sides.items():
            leaf, name = leaves[place], self._leaf_names[place]
            if not isinstance(leaf, Tensor) or leaf.dim() != len(sides):
                raise OwnError(f"{name}: the program takes a tensor of {len(sides)} axes")
            lengths |= {f"{name}, axis {axis}": int(length) for axis, length in enumerate(leaf.shape)}
        numbers = {symbol: one.symbol(lengths[one.place]) for symbol, one in self._open.items()}
        for symbol, number in numbers.items():
            self._check_range(symbol, number, lengths[self._open[symbol].place])
        for place, sides in self._sides.items():
            for axis, side in enumerate(sides):
                text = f"{self._leaf_names[place]}, axis {axis}"
                if (expected := _length(side, numbers)) != lengths[text]:
                    raise OwnError(
                        f"{text}: the program was exported for a length of {expected:,} there, got {lengths[text]:,}; "
                        "dynamic_shapes of torch.export open it"
                    )

    def _check_range(self, symbol: Any, number: int, length: int) -> None:
        limits, one = self._ranges.get(symbol), self._open[symbol]
        if limits is None:
            return
        low, high = limits.lower, limits.upper
        if number < (1 if low <= _TWO else low) or number > high:
            least = 1 if low <= _TWO else one.length.subs(symbol, low)
            ends = f" to {int(one.length.subs(symbol, int(high))):,}" if high.is_finite else " on"
            raise OwnError(
                f"{one.place}: the program was exported for lengths from {int(least):,}{ends}, got {length:,}"
            )


def _side(length: Any) -> Any:
    """A length as a number, or as an expression in symbols."""
    if isinstance(length, int):
        return length
    expression = length.node.expr
    return int(expression) if expression.is_number else expression


def _length(side: Any, numbers: Mapping[Any, int]) -> int:
    return side if isinstance(side, int) else int(side.subs(dict(numbers)))


def _resized(tensor: Tensor, shape: Sequence[int], device: str) -> Tensor:
    """The example with other lengths: its own elements, repeated; on `meta` floats have none."""
    if device == "meta" and (tensor.is_floating_point() or tensor.is_complex()):
        return torch.empty(tuple(shape), dtype=tensor.dtype, device=device)
    for axis, length in enumerate(shape):
        if length != tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(length, device=tensor.device) % tensor.shape[axis])
    return tensor
