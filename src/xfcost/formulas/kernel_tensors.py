"""Tensors of kernel attention: features, masked products, states and normalisers."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Merged, Saved, Tensor, Tensors

# What a row that runs twice or three times writes for keys, values, and sums of features.
_KEYS: Final = "chunked keys"
_VALUES: Final = "chunked values"
_SCALED_KEYS: Final = "scaled keys"
_PROJECTED_KEYS: Final = "projected keys"
_EARLIER_SUMS: Final = "earlier sums"
_NORMALISERS: Final = "normalisers"


class KernelTensors(NamedTuple):
    """N `tokens`, `padded` to chunks in the `chunked` scheme; h heads, h·d_k = `inner`, with m `features` each."""

    tokens: Number
    padded: Number
    inner: Number
    heads: int
    features: Number
    chunks: Number
    scheme: Literal["parallel", "chunked", "recurrent"] | None
    form: Literal["elu", "relu", "softmax"]

    @property
    def chunked(self) -> bool:
        """Are tokens cut into chunks?"""
        return self.scheme == "chunked"

    @property
    def _state_count(self) -> Number:
        """One state, one of each chunk, or of each token."""
        return self.tokens if self.scheme == "recurrent" else self.chunks

    @property
    def _size(self) -> Number:
        return self.padded // self.chunks

    @property
    def _wide(self) -> Shape:
        return self.padded, self.inner

    @property
    def _featured(self) -> Shape:
        return self.padded, self.heads * self.features

    @property
    def _entries(self) -> Shape:
        return self.chunks, self.heads, self._size, self._size

    @property
    def _weights(self) -> Shape:
        return self.padded, self.heads

    @property
    def _states(self) -> Shape:
        return self._state_count, self.features, self.inner

    @property
    def _sums(self) -> Shape:
        return self._state_count, self.features, self.heads

    @property
    def _pads(self) -> bool:
        return bool(self.padded != self.tokens)

    def _merged(self, shape: Shape) -> Merged | None:
        """A product's copy of what lies as the projections do; behind padding heads are apart."""
        return None if self._pads else Merged(shape, self.heads, self._size, self.chunks)

    def _copied(self, shape: Shape) -> Merged | None:
        """The same of features: random ones are products, whose heads are apart."""
        return self._merged(shape) if self.form == "elu" else None

    @property
    def _values(self) -> Tensor:
        return Tensor(_VALUES if self.chunked else "qkv", self._wide)

    @property
    def pad(self) -> Tensors:
        """Queries, keys and values in chunks."""
        view = None if self._pads else "qkv"
        names = (OUTPUT, _KEYS, _VALUES)
        writes = tuple(Tensor(name, self._wide, view_of=view) for name in names)
        return Tensors(3 * (Tensor("qkv", (self.tokens, self.inner)),), writes)

    @property
    def scale(self) -> Tensors:
        """Queries and keys by a constant."""
        names = ("pad", _KEYS) if self.chunked else ("qkv", "qkv")
        reads = tuple(Tensor(name, self._wide) for name in names)
        return Tensors(reads, (Tensor(OUTPUT, self._wide), Tensor(_SCALED_KEYS, self._wide)))

    @property
    def project(self) -> Tensors:
        """Products with features that are fixed: of queries and keys nothing is saved."""
        reads = (Tensor("scale", self._wide), Tensor(_SCALED_KEYS, self._wide))
        return Tensors(reads, (Tensor(OUTPUT, self._featured), Tensor(_PROJECTED_KEYS, self._featured)))

    def feature_map(self, *, keys: bool, lowered: bool) -> Tensors:
        """Features: elu saves its input, relu and the exponential their output, a maximum what it is of and itself."""
        writes = (Tensor(OUTPUT, self._featured),)
        if self.form == "elu":
            name = "qkv" if not self.chunked else _KEYS if keys else "pad"
            return Tensors((Tensor(name, self._wide),), writes, (Saved(name),))
        projected = Tensor(_PROJECTED_KEYS if keys else "project", self._featured)
        scaled = Tensor(_SCALED_KEYS if keys else "scale", self._wide)
        made = Tensor("mapped", self._featured)
        if self.form == "relu":
            return Tensors((projected, scaled), writes, makes=(made,))
        if not lowered:
            return Tensors((projected, scaled), writes, (Saved(scaled.name),), (made,))
        most = Tensor("most", (self.heads,) if keys else self._weights)
        saves = (Saved(scaled.name), Saved(projected.name))
        return Tensors((projected, scaled), writes, saves, (made, most))

    @property
    def scores(self) -> Tensors:
        """φ(Q)φ(K)ᵀ."""
        q, k = (Tensor(name, self._featured) for name in ("q_features", "k_features"))
        return product(q, k, self._entries, self._copied(q.shape), self._copied(k.shape))

    @property
    def mask(self) -> Tensors:
        """Zeros after the diagonal: nothing is saved."""
        return Tensors((Tensor(BEFORE, self._entries),), (Tensor(OUTPUT, self._entries),))

    @property
    def weighted_sum(self) -> Tensors:
        """Masked products and values."""
        return product(Tensor(BEFORE, self._entries), self._values, self._wide, None, self._merged(self._wide))

    def row_sum(self, mask: str) -> Tensors:
        """The sum of a query's masked products."""
        return Tensors((Tensor(mask, self._entries),), (Tensor(OUTPUT, self._weights),))

    @property
    def state(self) -> Tensors:
        """φ(K)ᵀV; token by token it is added to the state before."""
        keys = Tensor("k_features", self._featured)
        added = product(keys, self._values, self._states, self._copied(keys.shape), self._merged(self._wide))
        return self._added(added)

    @property
    def key_sum(self) -> Tensors:
        """Σφ(k), likewise."""
        return self._added(Tensors((Tensor("k_features", self._featured),), (Tensor(OUTPUT, self._sums),)))

    def _added(self, tensors: Tensors) -> Tensors:
        if self.scheme != "recurrent":
            return tensors
        before = Tensor("before", tensors.writes[0].shape, held=True)
        return msgspec.structs.replace(tensors, reads=(before, *tensors.reads))

    @property
    def join(self) -> Tensors:
        """What all steps read, and their normalisers."""
        reads = (Tensor("read", self._wide), Tensor("normaliser", self._weights))
        return Tensors(reads, (Tensor(OUTPUT, self._wide), Tensor(_NORMALISERS, self._weights)))

    @property
    def prefix_sum(self) -> Tensors:
        """States and sums of all earlier chunks."""
        reads = (Tensor("state", self._states), Tensor("key_sum", self._sums))
        return Tensors(reads, (Tensor(OUTPUT, self._states), Tensor(_EARLIER_SUMS, self._sums)))

    @property
    def read(self) -> Tensors:
        """φ(Q)S."""
        states = Tensor("prefix_sum" if self.chunked else "state", self._states)
        q = Tensor("q_features", self._featured)
        return product(q, states, self._wide, self._copied(q.shape))

    @property
    def normaliser(self) -> Tensors:
        """φ(Q)·Σφ(k)."""
        sums = Tensor(_EARLIER_SUMS if self.chunked else "key_sum", self._sums)
        q = Tensor("q_features", self._featured)
        return product(q, sums, self._weights, self._copied(q.shape))

    @property
    def add(self) -> Tensors:
        """What the chunk gives and what is before it, and the same of the normalisers."""
        reads = (
            *(Tensor(name, self._wide) for name in ("local_weighted_sum", "read")),
            *(Tensor(name, self._weights) for name in ("local_normaliser", "normaliser")),
        )
        return Tensors(reads, (Tensor(OUTPUT, self._wide), Tensor(_NORMALISERS, self._weights)))

    def divide(self, values: str, normalisers: str | None) -> Tensors:
        """Both are saved; heads are joined, and padding is cut off, after it."""
        both = Tensor(values, self._wide), Tensor(normalisers or _NORMALISERS, self._weights)
        saves = tuple(Saved(each.name) for each in both)
        joined = Exchanged((self.tokens, self.inner), (self.heads, self.tokens))
        return Tensors(both, (Tensor(OUTPUT, self._wide),), saves, rearranged=joined)
