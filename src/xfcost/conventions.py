"""What one element-wise operation costs in FLOPs, and how many bytes an element takes: the written convention.

`macs` holds contractions alone (linear, matmul, convolution): one multiply-accumulate each.
`flops` = 2·macs + the element-wise work below, per element of the operation's output (of its input for a mean).
Both the formulas and the trace read this table, for it is a convention and not a measurement; `docs/how-it-counts.md`
prints it. Moving data (reshape, roll, pad, gather, concatenate, look-up) and masking cost 0 FLOPs.
"""

from __future__ import annotations

from typing import Final

FLOPS_PER_ELEMENT: Final[dict[str, int]] = {
    "add": 1,  # residual adds, bias adds, positions, relative position bias
    "multiply": 1,  # scaling queries by 1/√d_k, embeddings by √d
    "softmax": 5,  # maximum, subtract, exponential, sum, divide
    "layer_norm": 5,  # fvcore's figure, affine included: mean, variance, subtract, scale, affine
    "relu": 1,
    "gelu": 5,  # x·½·(1 + erf(x/√2)): multiply, erf, add, multiply, multiply
    "gelu_tanh": 9,  # ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
    "mean": 1,  # per element that enters
}
