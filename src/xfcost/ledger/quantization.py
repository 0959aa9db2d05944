"""Quantised weights and caches, as models are served: bytes with their scales, exact by the shapes of the matrices.

int4   4 bits; each output has a 16-bit scale and a 4-bit zero point for every 128 inputs (AWQ, Lin et al. 2024, in the
       files of AutoAWQ; those of GPTQ have the same scales and zero points)
mxfp4  4 bits; each output has an 8-bit scale for every 32 inputs (OCP Microscaling Formats 1.0, §5.2; gpt-oss)
fp8    8 bits; a float32 scale for every block of 128×128 (DeepSeek-V3, §3.3.2, and its checkpoint)
int8   8 bits; a float32 scale for each output (LLM.int8(), Dettmers et al. 2022, §2.1)

Quantised are the matrices of linear layers and experts inside the blocks. Embeddings, norms, biases, routers and the
head stay in the run's dtype; with mxfp4, as in gpt-oss, attention too where there are experts.

Keys and values have 8 bits each, in both formats of the cache, and one scale for all keys of a layer and one for its
values, which are parameters of the model (vLLM, TensorRT-LLM): 8 bytes a layer, which are not counted. Recurrent states
stay in the run's dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from xfcost.ledger.units import Number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xfcost.ledger.device import Device
    from xfcost.ledger.modes import CacheBytes
    from xfcost.ledger.operation import Operation

_BYTE: Final = 8


class WeightMatrix(msgspec.Struct, frozen=True, gc=False):
    """The matrices of a linear map; of experts one each."""

    inputs: Number
    outputs: Number
    count: Number = 1

    @property
    def elements(self) -> int:
        """Weights of all of them, without biases."""
        return int(self.count * self.inputs * self.outputs)


class WeightFormat(NamedTuple):
    """A format of quantised weights."""

    bits: int
    outputs: int
    """A scale is of so many outputs …"""
    inputs: int | None
    """… and so many inputs; None: of all."""
    scale_bits: int
    """Of a scale, and of its zero point."""
    words: str
    """How it is stored, for reports."""
    products: str | None = None
    """The dtype of products with it, where the device has a peak for it; None: the run's."""
    experts_alone: bool = False
    """Are in models with experts only these quantised?"""

    def bytes(self, matrix: WeightMatrix) -> int:
        """Of the matrices with their scales."""
        inputs, outputs = int(matrix.inputs), int(matrix.outputs)
        scales = -(-outputs // self.outputs) * -(-inputs // (self.inputs or inputs))
        bits = inputs * outputs * self.bits + scales * self.scale_bits
        return int(matrix.count) * -(-bits // _BYTE)


WEIGHT_FORMATS: Final = {
    "int4": WeightFormat(4, 1, 128, 16 + 4, "4 bits, and of 128 inputs a 16-bit scale and a 4-bit zero point (AWQ)"),
    "fp8": WeightFormat(8, 128, 128, 32, "8 bits, and of 128×128 a float32 scale (DeepSeek-V3)", "float8"),
    "mxfp4": WeightFormat(4, 1, 32, 8, "4 bits, and of 32 inputs an 8-bit scale (OCP MX)", experts_alone=True),
    "int8": WeightFormat(8, 1, None, 32, "8 bits, and of an output a float32 scale (LLM.int8())", "int8"),
}
# Format of a cache -> dtype of products with it, where the device has a peak for it. Both have a byte per element.
CACHE_FORMATS: Final = {"fp8": "float8", "int8": "int8"}
CACHE_BYTES: Final = 1


class StoredAs(NamedTuple):
    """How the weights and the cache of a run are stored, and which of its products have fewer bits."""

    element: int
    """Bytes of an element of the run's dtype."""
    weights: WeightFormat | None = None
    experts_alone: bool = False
    """Are only experts quantised?"""
    cache_products: str | None = None
    attention: frozenset[str] = frozenset()
    """Components of softmax attention, whose keys and values a cache may quantise; a recurrent state stays as it is."""

    def quantised(self, row: Operation) -> tuple[WeightMatrix, ...]:
        """The matrices of one block's operation that are quantised; none of a table that it shares."""
        if self.weights is None or not row.params:
            return ()
        return tuple(one for one in row.weight_matrices if one.count > 1 or not self.experts_alone)

    def held_bytes(self, row: Operation) -> int:
        """Bytes of the parameters of one block's operation."""
        matrices = self.quantised(row)
        if self.weights is None or not matrices:
            return row.params * self.element
        others = row.params - sum(one.elements for one in matrices)
        return sum(map(self.weights.bytes, matrices)) + others * self.element

    def read_bytes(self, row: Operation, elements: float) -> int | float:
        """Bytes of `elements` of its weights: of experts, which are stored alike, in proportion."""
        if not self.quantised(row):
            return elements * self.element
        held = self.held_bytes(row)
        return elements * held // row.params if isinstance(elements, int) else elements / row.params * held

    def peak(self, row: Operation, device: Device, dtype: str) -> float:
        """FLOP/s of its products: of quantised operands in their dtype, where the device is faster there."""
        of_cache = self.cache_products if row.fused or (row.content_dependent and self._attends(row)) else None
        quantised = self.weights.products if self.weights is not None and self.quantised(row) else of_cache
        figure = device.peaks.get(quantised or dtype)
        return device.peak(dtype) if figure is None else max(figure.value, device.peak(dtype))

    def _attends(self, row: Operation) -> bool:
        return any(f"{row.component}.".startswith(f"{one}.") for one in self.attention)


def storage(element: int, rows: Iterable[Operation], weights: str | None, cache: str | None) -> StoredAs:
    """How a run with these rows is stored in formats that may be None."""
    found = None if weights is None else WEIGHT_FORMATS[weights]
    experts_alone = found is not None and found.experts_alone
    experts_alone = experts_alone and any(one.count > 1 for row in rows for one in row.weight_matrices)
    if cache is None:
        return StoredAs(element, found, experts_alone)
    softmax = (row for row in rows if row.fused or (row.content_dependent and "softmax" in row.operation))
    attention = frozenset(row.component for row in softmax)
    return StoredAs(element, found, experts_alone, CACHE_FORMATS[cache], attention)


def quantised_cache(cache: CacheBytes, element: int) -> CacheBytes:
    """`cache` of elements of `element` bytes, with a byte for each key and value."""

    def of_keys(nbytes: int) -> int:
        return nbytes * CACHE_BYTES // element

    recurrent = cache.recurrent_bytes
    return msgspec.structs.replace(
        cache,
        bytes=of_keys(cache.bytes - recurrent) + recurrent,
        bytes_per_token=of_keys(cache.bytes_per_token),
        state_bytes=of_keys(cache.state_bytes - recurrent) + recurrent,
        cross_attention_bytes=of_keys(cache.cross_attention_bytes),
    )
