"""Example inputs out of texts: `1x3x224x224`, `input_ids=1xN:int64`, `use_cache=false`, `past.0.1=1x8x5x64`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.ledger.errors import SpecError, UsageError, printable
from xfcost.spec.input_shapes import SHAPE
from xfcost.spec.reader import read_value
from xfcost.torch_models.any_model.inputs import Given, noise

_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*\Z")
DTYPES: Final = {
    name: getattr(torch, name)
    for name in (
        "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    )
}  # fmt: skip
_MOST_ELEMENTS: Final = 2**40


def inputs_from(texts: Sequence[str], letters: Mapping[str, int | None], device: str) -> Given:
    """The inputs that `--input` names, on `device`: numbers drawn from a normal distribution, zeros of whole numbers.

    Args:
        texts: `[NAME=]SHAPE[:DTYPE]`; a NAME with dots is a place inside an input, and what is no shape a plain value.
            Strings are quoted.
        letters: what a letter in a shape stands for: N, H, W and B.
        device: `meta` makes tensors without elements.

    Raises:
        UsageError: a text is none of these, or a letter has no number.
    """
    args: list[Any] = []
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            args.append(_tensor(text, name, letters, device))
            continue
        if not _NAME.match(name):
            raise _unclear(text)
        found = _tensor(text, value, letters, device) if SHAPE.match(value) else _plain(text, value)
        _put(named, name.split("."), found, text)
    return Given(tuple(args), {name: _sequences(value) for name, value in named.items()})


def letters_in(texts: Sequence[str]) -> frozenset[str]:
    """The letters in the shapes of these inputs."""
    shapes = (SHAPE.match(text.rpartition("=")[2]) for text in texts)
    sides = {side for shape in shapes if shape is not None for side in shape["sides"].split("x")}
    return frozenset(side for side in sides if side.isalpha())


def _unclear(text: str) -> UsageError:
    return UsageError(
        f"--input {printable(text, 200)}: expected a shape, as in 1x3x224x224, with the name of the parameter and the "
        "dtype where they are needed: input_ids=1xN:int64"
    )


def _tensor(text: str, value: str, letters: Mapping[str, int | None], device: str) -> Tensor:
    found = SHAPE.match(value)
    if found is None:
        raise _unclear(text)
    dtype = DTYPES.get(found["dtype"] or "float32")
    if dtype is None:
        raise UsageError(f"--input {printable(text, 200)}: expected a dtype out of {', '.join(DTYPES)}")
    shape = [int(side) if side.isdigit() else _number(text, side, letters) for side in found["sides"].split("x")]
    if math.prod(shape) > _MOST_ELEMENTS:
        raise UsageError(
            f"--input {printable(text, 200)}: {math.prod(shape):,} elements are more than any tensor holds"
        )
    if dtype.is_floating_point or dtype.is_complex:
        return noise(shape, device, dtype)
    return (
        torch.ones(shape, dtype=dtype, device=device)
        if dtype is torch.bool
        else torch.zeros(shape, dtype=dtype, device=device)
    )


def _number(text: str, letter: str, letters: Mapping[str, int | None]) -> int:
    if letter not in letters:
        raise UsageError(f"--input {printable(text, 200)}: {letter} is no letter; expected one of {', '.join(letters)}")
    number = letters[letter]
    if number is None:
        option = "--size" if letter in {"H", "W"} else "--N"
        raise UsageError(f"--input {printable(text, 200)}: {letter} has no number; give {option}")
    return number


def _plain(text: str, value: str) -> Any:
    try:
        found = read_value(value)
    except SpecError:
        raise _unclear(text) from None
    if isinstance(found, str) and value[0] not in "\"'":
        raise _unclear(text)
    return found


def _put(named: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    """Put a value at its place: inside dictionaries for now."""
    for part in path[:-1]:
        named = named.setdefault(part, {})
        if not isinstance(named, dict):
            raise UsageError(f"--input {printable(text, 200)}: a value stands at {part} already")
    if path[-1] in named:
        raise UsageError(f"--input {printable(text, 200)}: {'.'.join(path)} is given twice")
    named[path[-1]] = value


def _sequences(value: Any) -> Any:
    """`value`, every dictionary of 0, 1, 2, … in it a tuple."""
    if not isinstance(value, dict):
        return value
    inner = {key: _sequences(one) for key, one in value.items()}
    numbers = [str(number) for number in range(len(inner))]
    return tuple(inner[number] for number in numbers) if sorted(inner) == sorted(numbers) and inner else inner
