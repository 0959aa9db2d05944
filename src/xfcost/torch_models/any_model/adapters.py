"""LoRA adapters on the linear maps of a module, by the names of these, as peft adds them (`get_peft_model`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.ledger.lora import ALL, Lora, words_for
from xfcost.torch_models.shared.leaves import SCALING

_MOST_NAMES: Final = 12


class AdaptedLinear(nn.Module):
    """A frozen linear map with its adapter: Wx + α/r·BAx. Names are those of peft."""

    def __init__(self, base_layer: nn.Module, rank: int) -> None:
        super().__init__()
        weight = base_layer.get_parameter("weight")
        inputs, outputs = weight.T.shape if isinstance(base_layer, nn.Linear) else weight.shape
        linear = partial(nn.Linear, bias=False, device=weight.device, dtype=weight.dtype)
        self.base_layer, self.in_features, self.out_features = base_layer, inputs, outputs
        self.lora_A, self.lora_B = linear(inputs, rank), linear(rank, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x) + self.lora_B(self.lora_A(x)) * SCALING
        return found

    @property
    def weight(self) -> Any:
        """What code asks of the map itself, as its bias is."""
        return self.base_layer.weight

    @property
    def bias(self) -> Any:
        return self.base_layer.bias


def with_adapters(module: nn.Module, lora: Lora, name: str) -> nn.Module:
    """A copy of the module `name` with adapters, on the same weights, which are frozen in it.

    Raises:
        UsageError: no linear map of it has one of the names; or it can't be copied.
    """
    same: dict[int, Any] = {id(one): nn.Parameter(one.detach(), requires_grad=False) for one in module.parameters()}
    same |= {id(one): one for one in module.buffers()}
    try:
        model = copy.deepcopy(module, same)
    except Exception as error:
        raise UsageError(
            f"--lora {lora.rank}: {name} can't be copied ({error}); add the adapters in Python, and set requires_grad "
            "to False for all other parameters: these are then counted as frozen"
        ) from error
    maps = dict(_maps(model))
    for wanted in lora.on:
        words = words_for(wanted)
        adapted = [place for place in maps if wanted == ALL or _named(place, words)]
        if not adapted:
            raise UsageError(f"--lora-on {wanted}: no linear map of {name} has that name; {_there(maps)}")
        for place in adapted:
            around, _, own = place.rpartition(".")
            if isinstance(maps[place], AdaptedLinear):  # by another name too
                continue
            maps[place] = AdaptedLinear(maps[place], lora.rank)
            setattr(model.get_submodule(around), own, maps[place])
    return model


def _maps(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Linear maps that are called as modules, and GPT-2's, without the head of a model of transformers."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    for place, one in model.named_modules():
        if one is not head and (type(one) is nn.Linear or (type(one).__name__ == "Conv1D" and hasattr(one, "nf"))):
            yield place, one


def _named(place: str, words: frozenset[str]) -> bool:
    return any(place == word or place.endswith(f".{word}") for word in words)


def _there(maps: dict[str, nn.Module]) -> str:
    names = [*dict.fromkeys(place.rpartition(".")[2] for place in maps)]
    if not names:
        return "it has no nn.Linear: add adapters in Python, and freeze its other parameters (requires_grad = False)"
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"expected some of {', '.join(names[:_MOST_NAMES])}{more}, or all"
