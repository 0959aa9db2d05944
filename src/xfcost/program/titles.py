"""Titles of leaves by name, where most kinds call them alike; a kind's own `titles` come before these."""

from typing import Final

TITLES: Final = {
    "act": "Activation",
    "attention": "Fused attention softmax(QKᵀ)V",
    "cache": "Keys and values to the cache",
    "down": "Down-projection",
    "fc1": "MLP up-projection",
    "fc2": "MLP down-projection",
    "gate": "Gate projection",
    "glu": "Gated linear unit",
    "k": "K projection",
    "kv": "K, V projections",
    "linear": "Linear map",
    "mask": "Mask",
    "out": "Output projection W_O",
    "q": "Q projection",
    "qkv": "Q, K, V projections",
    "relative_bias": "Relative position buckets",
    "residual_add": "Residual add",
    "residual_layer_scale": "LayerScale",
    "residual_projection": "Projection of the residual stream",
    "residual_rejoin": "Extra tokens back before the others",
    "rotary": "Rotary positions of Q and K",
    "scores": "Attention scores QKᵀ",
    "softmax": "Softmax",
    "up": "Up-projection",
    "v": "V projection",
    "weighted_sum": "Weighted sum AV",
}
