"""Modules that several tests of the ledger of any module share."""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from strategies import as_yaml, stack

WIDTH = 8


def two_blocks(name: str, mixer: dict[str, Any]) -> str:
    """The text of a spec of two blocks, without positions."""
    entry = {"kind": "vectors", "channels": WIDTH, "length": 16}
    return as_yaml(stack(mixer, {"kind": "mlp", "ratio": 2}, dim=WIDTH, depth=2, name=name, input=entry, embed=[]))


class Attention(nn.Module):
    """Eager self-attention of d = 8, one head."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out((q @ k.mT).softmax(-1) @ v)


class Model(nn.Module):
    """An embedding, 4 equal blocks, and a head that shares the table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Attention() for _ in range(4))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


@dataclasses.dataclass
class Pair:
    left: Tensor
    right: Tensor | None = None


class Cache:
    """A cache as a user writes one: a plain object."""

    def __init__(self):
        self.keys = torch.ones(2, 8)

    def append(self, x: Tensor) -> Tensor:
        self.keys = torch.cat([self.keys, x])
        return self.keys


class Takes(nn.Module):
    """A map of whatever `pick` finds in its inputs."""

    def __init__(self, pick):
        super().__init__()
        self.map, self.pick = nn.Linear(8, 8, bias=False), pick

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return Pair(self.map(self.pick(*args, **kwargs)))


X = torch.ones(3, 8)

# A config of transformers that no importer knows.
GEMMA = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 8,
    "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 11,
}  # fmt: skip
