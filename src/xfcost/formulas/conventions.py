"""Counting conventions: FLOPs of element-wise operations.

- `macs`: contractions only (linear, matmul, convolution), one multiply-accumulate each.
- `flops`: 2·macs + the element-wise work below, per element of the operation's output (of its input for a mean).
  Moving data (reshape, roll, pad, gather, concatenate, look-up) and masking cost 0 FLOPs.
- `comparisons`: ⌈log₂ n⌉ per element of a list of n that is sorted (or of its top k), one per element that enters an
  argmax or a maximum. Neither MACs nor FLOPs.
- `moved`: floating-point elements that gathers, scatters, rolls, pads, concatenations and look-ups write. Views and
  changes of layout, which a kernel may or may not copy, are not counted.

The table is a convention, not a measurement. Formulas and trace both read it; `docs/how-it-counts.md` prints it.
"""

from __future__ import annotations

from typing import Final

FLOPS_PER_ELEMENT: Final[dict[str, int]] = {
    "add": 1,  # residual adds, bias adds, positions, relative position bias, subtracting
    "multiply": 1,  # scaling queries by 1/√d_k, embeddings by √d, squares, dividing
    "exp": 1,  # and every other elementary function: logarithm, root, sine
    "abs": 1,  # and the sign, and rounding
    "clamp": 1,  # one bound
    "softmax": 5,  # maximum, subtract, exponential, sum, divide
    "layer_norm": 5,  # fvcore's figure, affine included: mean, variance, subtract, scale, affine
    "rms_norm": 4,  # square, mean, scale, gain
    "batch_norm": 2,  # fvcore's figure, with running statistics: scale and shift are folded into two numbers
    "group_norm": 5,  # as layer norm
    "affine": 2,  # scale, shift
    "relu": 1,
    "relu6": 2,  # two bounds
    "leaky_relu": 2,  # the slope, the maximum; with a learned slope too (PReLU)
    "hardtanh": 2,  # two bounds
    "hardsigmoid": 4,  # relu6(x + 3)/6: add, two bounds, divide
    "hardswish": 5,  # x·hardsigmoid(x)
    "shrink": 1,  # x ± λ
    "silu": 4,  # x·sigmoid(x)
    "elu": 2,  # exp(x) - 1 below zero
    "selu": 3,  # elu, scale
    "celu": 4,  # α·(exp(x/α) - 1) below zero: divide, elu, multiply
    "mish": 9,  # x·tanh(softplus(x))
    "glu": 4,  # a·sigmoid(b), per element of the output
    "log_softmax": 5,  # maximum, subtract, exponential, sum, subtract
    "sigmoid": 3,  # 1/(1 + exp(-x)), the sign for free
    "tanh": 5,  # (exp(2x) - 1)/(exp(2x) + 1)
    "gelu": 5,  # x·½·(1 + erf(x/√2)): multiply, erf, add, multiply, multiply
    "gelu_quick": 5,  # x·sigmoid(1.702·x): multiply, sigmoid, multiply
    "gelu_tanh": 9,  # ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
    "mean": 1,  # per element that enters
    "sum": 1,  # per element that enters
    "variance": 4,  # per element that enters, and for the standard deviation: mean, subtract, square, sum
    "norm": 2,  # length of a vector, per element that enters: square, add
    "cosine_similarity": 6,  # per pair of elements that enter: their product, both squares, three sums
    "distance": 3,  # of vectors, per pair of elements: subtract, power, add
    "logsumexp": 4,  # per element that enters: maximum, subtract, exponential, sum
    "cumsum": 1,
    "softplus": 3,  # log(1 + exp(x))
    "interpolate": 2,  # per neighbour of an element of the output: its weight, the sum; 2 neighbours per axis, cubic 4
    "sampling_weight": 4,  # per neighbour of a sampled point: its place, its distance along two axes, their product
    "complex_multiply": 6,  # 4 products, 2 sums
    "fft": 5,  # per complex number and ⌈log₂ n⌉ of a transform of n, as FFTW counts; n real numbers are n/2 of them
    # per number of the state and step of Mamba's scan, beside its read-out's products: Δ·A, exp, ·h; Δu·B, the sum
    "selective_scan": 5,
    # per channel and step of RWKV's: 7 sums and differences, 4 exponentials, 7 products, 1 division, and 2 sums of them
    "wkv": 21,
    # per hidden unit and step of a recurrent cell, beside its two maps and their biases
    "lstm": 27,  # 4 sums of both maps, 3 sigmoids, tanh; f∘c + i∘g: 2 products, 1 sum; tanh, 1 product
    "gru": 18,  # 3 sums, 2 sigmoids, tanh; the reset: 1 product; n + z∘(h - n): 3
    "rotary": 3,  # x·cos + x'·sin, per element of queries and keys; their angles are tables
}
