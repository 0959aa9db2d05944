"""The axes of a module's inputs along which tokens lie, and the same inputs in other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.mixing.follower import PRODUCTS, token_axes_of
from xfcost.torch_models.shared.private_torch import pytree

# Inputs with such a word in their name say something about tokens, and hold none.
_ABOUT_TOKENS: Final = ("mask", "position", "type", "segment", "label")
_WAVES: Final = frozenset(("input_values",))

Axes = dict[str | int, tuple[int, ...]]
"""Name of an input, or its place -> the axes of its tokens."""


def axes_of(given: Given, model: nn.Module, works: Sequence[Work], longer: Given | None = None) -> Axes:
    """The token axes of every input of `model`, which ran `works`; `longer` are the inputs at another N."""
    names, found = given.places(model), Axes()
    tensors: dict[str | int, Tensor] = {}
    for key, value in inputs_of(given):
        name = key if isinstance(key, str) else (names[key] if key < len(names) else str(key))
        tensor = next((leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)), None)
        found[key] = () if tensor is None else _axes(tensor, name, model, works)
        if tensor is not None:
            tensors[key] = tensor
    samples = {tensors[key].shape[0] for key, own in found.items() if own and 0 not in own}
    for key, own in found.items():
        if own == (0,) and tensors[key].shape[0] in samples:  # a vector of each sample conditions its tokens
            found[key] = ()
    if (0,) in found.values():  # without a batch, whole numbers along two axes name tokens: the edges of a graph
        numbers = (key for key, one in tensors.items() if one.dim() > 1 and not one.is_floating_point())
        found |= dict.fromkeys(numbers, ())
    return found if longer is None else found | _lettered(given, longer, found)


def _lettered(given: Given, longer: Given, axes: Axes) -> Axes:
    """The axis of each input with tokens that has another length at another N.

    Where that is axis 0 and another was taken, the batch comes second: so it does in inputs of a fixed length.
    """
    found: Axes = {}
    others = dict(inputs_of(longer))
    for key, value in inputs_of(given):
        other = others.get(key)
        if axes.get(key) and isinstance(value, Tensor) and isinstance(other, Tensor) and value.dim() == other.dim():
            differ = [axis for axis in range(value.dim()) if value.shape[axis] != other.shape[axis]]
            found |= {key: (differ[0],)} if len(differ) == 1 else {}
    if any(own == (0,) and axes[key] == (1,) for key, own in found.items()):
        found = {key: (0,) for key, own in axes.items() if own == (1,)} | found
    return found


def said_axes(given: Given, names: Sequence[str], texts: Sequence[str]) -> Axes:
    """The token axes of inputs that `--tokens-of` names: `x:1`, `image:2,3`, and `cond:none` of one without tokens.

    Raises:
        UsageError: there is no such input, it is not a tensor, or it has no such axis.
    """
    keys = {key if isinstance(key, str) else names[key]: key for key, _ in inputs_of(given)}
    values, found = dict(inputs_of(given)), Axes()
    for text in texts:
        name, colon, said = text.rpartition(":")
        if not colon or (said != "none" and not all(one.isdecimal() for one in said.split(","))):
            raise UsageError(
                f"--tokens-of {text}: expected an input and its axes of tokens: x:1, image:2,3 or cond:none"
            )
        if name not in keys:
            raise UsageError(f"--tokens-of {text}: no input is called {name!r}; there are {', '.join(keys)}")
        axes = () if said == "none" else tuple(sorted({int(one) for one in said.split(",")}))
        ranks = [leaf.dim() for leaf in pytree.tree_leaves(values[keys[name]]) if isinstance(leaf, Tensor)]
        if axes and (not ranks or axes[-1] >= min(ranks)):
            has = f"it has the axes 0 to {min(ranks) - 1}" if ranks else "it is not a tensor"
            raise UsageError(f"--tokens-of {text}: {name} has no axis {axes[-1]}; {has}")
        found[keys[name]] = axes
    return found


def axes_text(axes: Axes, names: Sequence[str]) -> str:
    """`axis 1 of x, axes 2 and 3 of image`."""
    texts = []
    for key, own in axes.items():
        if own:
            number = f"axis {own[0]}" if len(own) == 1 else f"axes {', '.join(map(str, own[:-1]))} and {own[-1]}"
            texts.append(f"{number} of {key if isinstance(key, str) else names[key]}")
    return ", ".join(texts)


def inputs_of(given: Given) -> list[tuple[str | int, Any]]:
    """Every input with its place or name."""
    return [*enumerate(given.args), *given.kwargs.items()]


def with_tokens(given: Given, axes: Axes) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """The tensors that hold tokens, with their axes."""
    for key, value in inputs_of(given):
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, Tensor) and axes.get(key):
                yield tensor, axes[key]


def part_of(given: Given, small: Given, axes: Axes) -> Fraction | None:
    """The tokens of `small` over those of `given`; None where inputs differ in that."""
    counts = [
        [prod(tensor.shape[axis] for axis in own) for tensor, own in with_tokens(one, axes)] for one in (small, given)
    ]
    parts = {Fraction(few, many) for few, many in zip(*counts, strict=True) if many}
    return parts.pop() if len(parts) == 1 else None


def _axes(tensor: Tensor, name: str, model: nn.Module, works: Sequence[Work]) -> tuple[int, ...]:
    if tensor.dtype is torch.bool or any(word in name for word in _ABOUT_TOKENS):
        return ()
    if name in _WAVES:
        return (1,)
    sequence, shape = 3, tuple(tensor.shape)
    if tensor.dim() == sequence and _enters_convolution(shape, works):
        return (2,)
    if tensor.dim() == sequence and _batch_comes_second(shape, model, works):
        return (0,)
    return token_axes_of(tensor)


def _batch_comes_second(shape: tuple[int, ...], model: nn.Module, works: Sequence[Work]) -> bool:
    """Is (N, B, D) the input of torch's own layers with `batch_first=False`, or of a model whose layers attend along N?

    Such a model has self-attention over as many tokens as axis 0 has, and none over as many as axis 1.
    """
    layers = (module for module in model.modules() if isinstance(module, nn.MultiheadAttention | nn.RNNBase))
    layer = next(layers, None)
    if layer is None or layer.batch_first:
        return False
    if type(model).__module__.startswith(f"{nn.__name__}."):
        return True
    cores = [
        (int(core.times * core.queries) // heads, int(core.keys))
        for work in works
        if (core := work.core) and (heads := work.heads)
    ]
    scores = [work.outputs[0][-2:] for work in works if work.entries and work.core is None and work.outputs]
    sides = {tuple(pair) for pair in (*cores, *scores)}
    return (shape[0], shape[0]) in sides and not any(shape[1] in pair for pair in sides)


def _enters_convolution(shape: tuple[int, ...], works: Sequence[Work]) -> bool:
    """Is (B, C, N) the input of a convolution, its channels those of the kernel, before that of another product?"""
    products = (work for work in works if f"aten.{work.name}" in PRODUCTS)
    first = next((work for work in products if any(prod(one) == prod(shape) for one in work.inputs)), None)
    return first is not None and first.name == "convolution" and first.inputs[0] == shape


def resized(given: Given, axes: Axes, sides: Mapping[int, int], batch: int | None) -> Given:
    """The inputs with numbers and other lengths: `sides` maps each old length along which tokens lie to the new one."""
    made: dict[int, Tensor] = {}  # an input that is given twice stays one tensor

    def changed(key: str | int, value: Any) -> Any:
        return pytree.tree_map_only(Tensor, lambda tensor: once(tensor, axes.get(key, ())), value)

    def once(tensor: Tensor, own: Sequence[int]) -> Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = _resized(tensor, own, sides, batch)
        return made[id(tensor)]

    args = tuple(changed(place, value) for place, value in enumerate(given.args))
    return Given(args, {name: changed(name, value) for name, value in given.kwargs.items()})


def _resized(tensor: Tensor, own: Sequence[int], sides: Mapping[int, int], batch: int | None) -> Tensor:
    made = _with_elements(tensor)
    if made.layout is not torch.strided:
        return made
    for axis, length in enumerate(tensor.shape):
        wanted = length
        if axis in own or (not own and length in sides and length > 1):
            wanted = sides.get(length, length)
        elif axis == 0 and batch is not None:
            wanted = min(length, batch)
        if wanted != length:
            made = made.index_select(axis, torch.arange(wanted) % length)
    return made


def refilled(given: Given, axes: Axes, seed: int) -> Given:
    """The inputs with other tokens: of vectors as many random numbers, of words the same ones in another order."""
    noise = torch.Generator().manual_seed(seed)

    def changed(key: str | int, value: Any) -> Any:
        return pytree.tree_map_only(Tensor, once, value) if axes.get(key) else value

    @cache
    def once(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            spread = float(tensor.std()) if tensor.numel() > 1 else 0.0
            return (torch.randn(tensor.shape, generator=noise) * (spread or 1.0)).to(tensor.dtype) + tensor.mean()
        order = torch.randperm(tensor.numel(), generator=noise)
        return tensor.flatten()[order].reshape(tensor.shape)

    args = tuple(changed(place, value) for place, value in enumerate(given.args))
    return Given(args, {name: changed(name, value) for name, value in given.kwargs.items()})


def _with_elements(tensor: Tensor) -> Tensor:
    """The tensor itself; of one on `meta` random numbers, or zeros of whole ones."""
    if not tensor.is_meta:
        return tensor.detach()
    if tensor.is_floating_point():
        noise = torch.Generator().manual_seed(0)
        return torch.randn(tensor.shape, generator=noise).to(tensor.dtype)
    return torch.zeros(tensor.shape, dtype=tensor.dtype)
