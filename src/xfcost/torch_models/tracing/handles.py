"""All fvcore handles: the cost of one traced operation, read from the traced graph's shapes.

Each returns {"macs", "flops", "comparisons", "moved"} by the written convention (`conventions.py`). They replace
fvcore's own handles: fused attention counts, broadcast matmuls count in full, einsum is an integer, and element-wise
work counts. Operations in neither table below are *unsupported*, and the report lists them.
"""

from __future__ import annotations

from typing import Final

from xfcost.torch_models.tracing.contraction_handles import CONTRACTIONS
from xfcost.torch_models.tracing.elementwise_handles import ELEMENTWISE
from xfcost.torch_models.tracing.graph import Handle
from xfcost.torch_models.tracing.movement_handles import MOVEMENTS
from xfcost.torch_models.tracing.operation_names import FREE as FREE_NAMES
from xfcost.torch_models.tracing.pooling_handles import POOLING
from xfcost.torch_models.tracing.sequence_handles import SEQUENTIAL

COUNTED: Final[dict[str, Handle]] = CONTRACTIONS | ELEMENTWISE | POOLING | MOVEMENTS | SEQUENTIAL

FREE: Final[frozenset[str]] = frozenset(f"aten::{name}" for name in FREE_NAMES.split())
