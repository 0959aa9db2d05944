"""LoRA: low-rank adapters beside the frozen weights of linear maps (Hu et al. 2022, "LoRA", §4.1).

    y = Wx + α/r·BAx, W of D'×D frozen, A of r×D and B of D'×r trained, without biases

Names are those of the operations of a spec, or of the modules of transformers, as in `LoraConfig(target_modules=…)` of
peft. A map that is one to queries, keys and values has adapters of its parts, each with an A of its own, as the
separate maps of transformers have them; `qkv` is one adapter of the whole map (GPT-2's `c_attn`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.units import Number

USUAL: Final = ("q", "v")
"""The default of `--lora-on`: as in the paper (§4.2, table 5), and in peft for models like LLaMA."""
UNMERGED: Final = (
    "LoRA adapters run next to the weights, as where a server has several; merged into them (W + α/r·BA) they cost "
    "nothing: leave --lora out"
)
ATTENTION: Final = "attention"
MLP: Final = "mlp"
ALL: Final = "all"
# Groups of maps: in what sort of sub-layer each has its maps, a mixer or another one.
GROUPS: Final[dict[str, Collection[bool]]] = {ATTENTION: (True,), MLP: (False,), ALL: (True, False)}
# What modules of transformers are called, by the names of operations; `wo` of T5 ends either network.
_NAMES: Final = {
    "q": "q_proj query query_proj q_lin",
    "k": "k_proj key key_proj k_lin",
    "v": "v_proj value value_proj v_lin",
    "qkv": "c_attn query_key_value qkv_proj wqkv",
    "out": "o o_proj out_proj output out_lin",
    "gate": "gate_proj wi_0",
    "up": "up_proj wi_1",
    "down": "down_proj wo",
    "fc1": "c_fc fc_in dense_h_to_4h wi lin1",
    "fc2": "fc_out dense_4h_to_h wo lin2",
    "q_down": "q_a_proj",
    "q_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_up": "kv_b_proj",
}
_SAME: Final[dict[str, frozenset[str]]] = {
    word: frozenset(name for name, others in _NAMES.items() if word in others.split())
    for words in _NAMES.values()
    for word in words.split()
}
_PARTS: Final = ("qkv", "kv", "qv")


def same(name: str) -> frozenset[str]:
    """The names of operations that a name means: `q_proj` is `q`."""
    return _SAME.get(name.lower(), frozenset((name,)))


def words_for(name: str) -> frozenset[str]:
    """What modules may call the maps of a name, or of a group, that is given: `q` is `q_proj` and `query` too."""
    names = {ATTENTION: ("q", "k", "v", "qkv", "kv", "out"), MLP: ("gate", "up", "down", "fc1", "fc2")}.get(
        name, (name,)
    )
    return frozenset(word for one in names for word in (one, *_NAMES.get(one, "").split()))


class Adapter(NamedTuple):
    """Of the columns of a map's output that one adapter adds to."""

    name: str
    """`q`, or the map's own."""
    start: Number
    width: Number


class Lora(msgspec.Struct, frozen=True):
    """The adapters of a run."""

    rank: int
    """r; 0 where weights are frozen and have none."""
    on: tuple[str, ...] = USUAL
    """Names of maps, or of groups of them."""

    def within(self, *, mixes: bool) -> Lora:
        """Those of a sub-layer that mixes tokens, or of another one."""
        if any(mixes in GROUPS[name] for name in self.on if name in GROUPS):
            return Lora(self.rank, (ALL,))
        return Lora(self.rank, tuple(name for name in self.on if name not in GROUPS))

    @property
    def frozen(self) -> Lora:
        """Of layers outside of blocks: frozen, without adapters."""
        return Lora(0, ())

    def adapters(self, name: str, width: Number, sizes: Sequence[Number]) -> list[Adapter]:
        """Those of the map `name` with so many outputs; `sizes` are those of its parts, where they differ."""
        *before, last = name.split("_")
        parts = [*last] if last in _PARTS else []
        wanted = frozenset().union(*map(same, self.on))
        whole = Adapter(name.replace(".", "_"), 0, width)
        if parts and not (same(name) & wanted):
            found, start = [], 0
            for part, size in zip(parts, sizes or [width // len(parts)] * len(parts), strict=True):
                own = "_".join((*before, part))
                if ALL in self.on or own in wanted or part in wanted:
                    found.append(Adapter(own, start, size))
                start = start + size
            return found
        return [whole] if ALL in self.on or same(name.rpartition(".")[2]) & wanted else []

    def without_map(self, adapters: Collection[str]) -> list[str]:
        """The names for which no adapter stands; `adapters` are the names of all that do."""
        known = frozenset().union(*(same(one) | same(one.rpartition("_")[2]) for one in adapters))
        return [name for name in self.on if not (adapters if name in GROUPS else same(name) & known)]

    def words(self) -> str:
        """`LoRA rank 8 on q, v`."""
        return f"LoRA rank {self.rank} on {', '.join(self.on)}"
