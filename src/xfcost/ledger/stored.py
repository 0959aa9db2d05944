"""The tensors of a checkpoint by the modules that they belong to: bytes as stored, and parameters unpacked.

Names are those of classes of transformers, whatever the file calls them. A module is known by its layer and by its
name inside of it (`3`, `self_attn.q_proj`), or by its name alone where it is in no layer. Experts of a layer that are
stored one by one are one module, `mlp.experts.*.up_proj`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec


class ModuleKey(NamedTuple):
    """The place of a module in a model."""

    stack: str
    """What stands before the number of its layer; empty outside of layers."""
    layer: int | None
    name: str


class OtherReason(NamedTuple):
    """Why tensors belong to no operation of a language model."""

    words: str
    parts: frozenset[str]
    """Words of their dotted names; a model that has such parts has modules of such names."""


class StoredModule(msgspec.Struct, frozen=True):
    """What a checkpoint stores of a module; of experts that are stored one by one, of all of them in a layer."""

    tensor: str
    """The first tensor of it, as the file calls it …"""
    file: str
    """… and the file."""
    bytes: int
    """Of all its tensors: weights, biases, scales, zero points."""
    params: int | None
    """Its parameters, unpacked; None where the packing is not known."""
    matrix: tuple[int, int] | None = None
    """Rows and columns of its weight, unpacked, of each expert alike; None where they are not known, or not two."""
    count: int = 1
    """The experts in it."""
    reason: OtherReason | None = None
    """Why it may belong to no operation."""


def params_of(modules: Iterable[StoredModule]) -> int | None:
    """The parameters of all; None where the packing of one is not known."""
    params = [one.params for one in modules]
    return None if None in params else sum(one or 0 for one in params)


class StoredWeights(msgspec.Struct, frozen=True, eq=False):
    """The tensors of a checkpoint."""

    place: str
    """The folder or the file, as the user named it."""
    config: str
    """What its shapes are compared with, in messages: `config.json`, or the metadata of the file."""
    files: int
    tensors: int
    bytes: int
    """Of all tensors, without headers."""
    dtypes: Mapping[str, int]
    """Type, as the files call it -> bytes of its tensors; the one with most bytes is first."""
    modules: Mapping[ModuleKey, StoredModule]
    unread: str = ""
    """Which files of the folder are not read, and why; empty where all are."""


_LAYER: Final = re.compile(r"(?:^|(?P<stack>.*?)\.)(?:layers|layer|blocks|block|blk|h)\.(?P<layer>\d+)\.(?P<name>.+)")
_EXPERT: Final = re.compile(r"\bexperts\.\d+\.")
# Names inside a layer that checkpoints have, and classes of transformers, or specs, have others for.
_RENAMED: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"^block_sparse_moe\."), "mlp."),
    (re.compile(r"(?<=experts\.\*\.)w1$"), "gate_proj"),
    (re.compile(r"(?<=experts\.\*\.)w2$"), "down_proj"),
    (re.compile(r"(?<=experts\.\*\.)w3$"), "up_proj"),
    (re.compile(r"^(attn|self_attention|attention\.self)\."), "self_attn."),  # GPT-2, Bloom, BERT
    (re.compile(r"^self_attn\.(c_proj|dense)$|^attention\.output\.dense$"), "self_attn.o_proj"),
    (re.compile(r"^(mlp\.(c_fc|dense_h_to_4h)|intermediate\.dense)$"), "mlp.up_proj"),
    (re.compile(r"^(mlp\.(c_proj|dense_4h_to_h)|output\.dense)$"), "mlp.down_proj"),
    (re.compile(r"^self_attn\.(query|key|value)$"), lambda found: f"self_attn.{found[1][0]}_proj"),
)
# Words before a layer's number, or before a name outside of layers, that say nothing of where it stands.
_PLAIN: Final = frozenset({"model", "transformer", "language_model", "backbone", "base_model", "bert", "roberta"})


def module_key(name: str) -> ModuleKey:
    """The key of a module by its dotted name."""
    found = _LAYER.match(name)
    if found is None:
        return ModuleKey("", None, _without_plain(name) or name)
    inside = _renamed(_EXPERT.sub("experts.*.", found["name"]))
    return ModuleKey(_without_plain(found["stack"] or ""), int(found["layer"]), inside)


@lru_cache(1_000)
def _renamed(inside: str) -> str:
    for pattern, other in _RENAMED:
        inside = pattern.sub(other, inside)
    return inside


@lru_cache(1_000)
def _without_plain(name: str) -> str:
    words = name.split(".")
    return ".".join(itertools.dropwhile(_PLAIN.__contains__, words))
