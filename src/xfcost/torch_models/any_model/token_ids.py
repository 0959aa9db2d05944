"""Which inputs are token ids: numbers that a module looks up in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.any_model.run import reached, tensors_of
from xfcost.torch_models.shared.private_torch import pytree

# What takes whole numbers as places -> the position and the name of that argument.
_INDICES: Final[Mapping[Any, tuple[int, str]]] = {
    functional.embedding: (0, "input"),
    functional.embedding_bag: (0, "input"),
    functional.one_hot: (0, "tensor"),
    Tensor.__getitem__: (1, "indices"),
}


class _AllFoundError(Exception):
    """Every tensor in question is known to be token ids; the rest of the run shows nothing more."""


class _LookUps(TorchFunctionMode):
    """Remembers the inputs of floating-point numbers that a run takes as places, and runs on with 0 instead.

    Args:
        asked: the inputs in question.
    """

    def __init__(self, asked: Sequence[Tensor]) -> None:
        super().__init__()
        self.found, self._number = set[int](), len(asked)
        # `id` of a tensor -> that tensor, which keeps the number its own, and the only input that it is computed from
        self._source = {id(tensor): (tensor, place) for place, tensor in enumerate(asked)}

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (where := _INDICES.get(function)) is not None:
            place, name = where
            if name in kwargs:
                kwargs[name] = self._as_places(kwargs[name])
            elif len(args) > place:
                args = (*args[:place], self._as_places(args[place]), *args[place + 1 :])
        result = function(*args, **kwargs)
        sources = {self._source[id(one)][1] for one in pytree.tree_iter((args, kwargs)) if id(one) in self._source}
        if len(sources) == 1 and isinstance(result, Tensor):
            self._source[id(result)] = (result, sources.pop())
        return result

    def _as_places(self, indices: Any) -> Any:
        def whole(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            if (source := self._source.get(id(tensor))) is not None:
                self.found.add(source[1])
            if len(self.found) == self._number:
                raise _AllFoundError
            return torch.zeros_like(tensor, dtype=torch.int64)

        return pytree.tree_map_only(Tensor, whole, indices)


def looked_up(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], asked: Sequence[Tensor]) -> list[bool]:
    """Which of the `asked` inputs, of floating-point numbers, a run of the model on `meta` takes as places in a table.

    The run ends where it raises anything; modules without an embedding do not run.
    """
    if not any(isinstance(one, nn.Embedding | nn.EmbeddingBag) for one in model.modules()):
        return [False] * len(asked)
    places = {id(tensor): place for place, tensor in enumerate(reached((args, kwargs)))}
    with tensors_of("meta", model, args, kwargs) as inputs:
        copies = reached(inputs)
        with suppress(Exception, SystemExit), _LookUps([copies[places[id(tensor)]] for tensor in asked]) as seen:
            model(*inputs[0], **inputs[1])
    return [place in seen.found for place in range(len(asked))]
