"""All fvcore handles: the cost of one traced operation, read from the traced graph's shapes.

Each returns {"macs", "flops", "comparisons", "moved"} by the written convention (`conventions.py`). They replace
fvcore's own handles: fused attention counts, broadcast matmuls count in full, einsum is an integer, and element-wise
work counts. Operations in neither table below are *unsupported*, and the report lists them.
"""

from __future__ import annotations

import re
from typing import Final

from xfcost.torch_models.tracing.contraction_handles import CONTRACTIONS
from xfcost.torch_models.tracing.elementwise_handles import ELEMENTWISE
from xfcost.torch_models.tracing.graph import Handle
from xfcost.torch_models.tracing.movement_handles import MOVEMENTS
from xfcost.torch_models.tracing.pooling_handles import POOLING
from xfcost.torch_models.tracing.sequence_handles import SEQUENTIAL

COUNTED: Final[dict[str, Handle]] = CONTRACTIONS | ELEMENTWISE | POOLING | MOVEMENTS | SEQUENTIAL

# Views, shapes, comparisons, masks and constants cost nothing by convention. fvcore's own list is not
# used, because it includes arithmetic (max, clamp).
FREE: Final[frozenset[str]] = frozenset(
    "aten::" + name
    for name in re.split(
        r"\s+",
        """Bool Float FloatImplicit Int IntImplicit ScalarImplicit __and__ __or__ __xor__ adjoint alias any all arange
        bernoulli bernoulli_ bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_tensors broadcast_to chunk clone
        complex conj contiguous copy_ detach detach_ diagonal dropout dropout_ empty empty_like empty_strided eq expand
        expand_as exponential_ eye feature_dropout feature_dropout_ fill_ flatten full full_like ge gt imag is_nonzero
        isfinite isinf isnan item le lift_fresh linspace logical_and logical_not logical_or logical_xor lt mH mT
        masked_fill masked_fill_ matrix_H meshgrid moveaxis movedim narrow ne new_empty new_full new_ones new_zeros
        normal_ numel numpy_T ones ones_like permute rand rand_like randint randn randn_like randperm ravel real reshape
        reshape_as resolve_conj resolve_neg scalar_tensor select size slice split split_with_sizes squeeze squeeze_
        swapaxes swapdims t tensor tensor_split to transpose transpose_ tril tril_ tril_indices triu triu_ triu_indices
        type_as unbind unflatten unfold uniform_ unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_
        view view_as view_as_complex view_as_real where zero_ zeros zeros_like""",
    )
)
