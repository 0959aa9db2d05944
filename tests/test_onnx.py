"""ONNX graphs: counts by hand, those of the same modules in torch, sizes, files that are none."""

import json
import re
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn
from torch.nn import functional as F

import onnx_graphs
import xfcost
from helpers import environment, error_of, stdout_of
from modules import Call
from onnx_graphs import encoder, file, graph, model, node, tensor, whole_numbers
from xfcost.importing.onnx_graphs.file import length_of, names_in
from xfcost.ledger.errors import IncompleteError, UsageError

QUANTITIES = ("macs", "flops", "comparisons", "moved")


def totals(ledger):
    return tuple(ledger.total(one) for one in QUANTITIES)


# ── whole models ──


def test_an_encoder_by_hand(tmp_path):
    ledger = xfcost.analyze(encoder(tmp_path / "it.onnx"), N=10)
    # d = 32: a block 12·d² MACs of each of 10 tokens, and QKᵀ and AV 10·d each; its weights 12·d² + 9·d + 2·d
    assert ledger.total("macs") == 2 * 10 * (12 * 32**2 + 2 * 10 * 32)
    assert ledger.total("params") == 2 * (12 * 32**2 + 11 * 32)
    # element-wise of a token: norm 5·d, biases 9·d, sums 2·d, GELU 5·4·d; of a score: scale 1, softmax 5, of 4 heads
    assert ledger.total("flops") == 2 * ledger.total("macs") + 2 * (10 * (5 + 9 + 2 + 20) * 32 + 6 * 4 * 10 * 10)
    assert ledger.total("attention_entries") == 2 * 4 * 10 * 10
    assert ledger.attention_memory()["all_layers"] == 2 * 4 * 10 * 10 * 4
    # a row for both blocks, under the path of their module
    assert {(row.component, row.times) for row in ledger.rows if row.macs} >= {("blocks.*.qkv", 2), ("blocks.*", 2)}
    assert {row.mixing for row in ledger.rows} == {"unknown"}


def test_an_encoder_has_the_counts_of_its_module(tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
            self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

        def forward(self, x):
            q, k, v = (one.unflatten(-1, (4, 8)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
            weights = (q @ k.mT * 8**-0.5).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(x)))

    module = nn.Sequential(Block(), Block())
    of_torch = xfcost.analyze(module, example_inputs=lambda N: torch.zeros(3, N, 32), N=12, mixing=False)
    of_onnx = xfcost.analyze(encoder(tmp_path / "it.onnx"), N=12, batch=3)
    assert totals(of_onnx) == totals(of_torch)
    for name in ("params", "attention_entries"):
        assert of_onnx.total(name) == of_torch.total(name)
    assert of_onnx.attention_memory() == of_torch.attention_memory()
    assert of_onnx.closed_form.macs == of_torch.closed_form.macs == "384·N² + 73728·N"
    assert of_onnx.closed_form.flops == of_torch.closed_form.flops


def test_patches_of_an_image_by_hand(tmp_path):
    path = file(tmp_path / "it.onnx", [
        node("Conv", "image w b", "patches", "/patch/Conv", strides=[16, 16], kernel_shape=[16, 16]),
        node("Shape", "patches", "shape"), node("Slice", "shape zero two", "start"),
        node("Concat", "start rest", "target", axis=0), node("Reshape", "patches target", "flat"),
        node("Transpose", "flat", "tokens", perm=[0, 2, 1]), node("ReduceMean", "tokens one", "mean", keepdims=0),
        node("Gemm", "mean head bias", "y", "/head/Gemm", transB=1),
    ], {"image": ["batch", 3, "height", "width"]}, {
        "w": (192, 3, 16, 16), "b": (192,), "zero": [0], "two": [2], "rest": [-1], "one": [1], "head": (10, 192),
        "bias": (10,),
    })  # fmt: skip
    ledger = xfcost.analyze(path, size=(32, 48))
    # 2·3 patches of 3·16² numbers to 192 channels; 10 classes
    assert (ledger.total("macs"), ledger.metadata.image) == (6 * 768 * 192 + 1920, (32, 48))
    assert ledger.total("params") == 768 * 192 + 192 + 1930
    # biases 6·192 and 10, the mean 6·192
    assert ledger.total("flops") == 2 * ledger.total("macs") + 2 * 6 * 192 + 10
    assert xfcost.analyze(path).closed_form.macs == "576·P + 1920", "224² pixels by default"


def test_a_decoder_of_onnx_runtime_by_hand(tmp_path):
    """Grouped attention of 4 heads and 2 groups of 8, a gated MLP, weights of 4 bits, a table."""
    weights = {
        "table": (100, 32), "norm": (32,), "w_qkv": tensor("w_qkv", (64, 1, 16), np.uint8), "s_qkv": (64,),
        "w_out": tensor("w_out", (32, 1, 16), np.uint8), "s_out": (32,), "norm2": (32,),
        "w_head": tensor("w_head", (100, 1, 16), np.uint8), "s_head": (100,),
        "total": tensor("total", [1], np.int32), "lengths": tensor("lengths", [0], np.int32),
    }  # fmt: skip
    ours = {"domain": "com.microsoft"}
    bits = ours | {"bits": 4, "block_size": 32, "K": 32}
    nodes = [
        node("Gather", "table ids", "x", "/model/embed/Gather"),
        node("SimplifiedLayerNormalization", "x norm", "normed", "/model/layers.0/norm/Norm"),
        node("MatMulNBits", "normed w_qkv s_qkv", "qkv", "/model/layers.0/qkv/MatMul", **bits, N=64),
        node("GroupQueryAttention", "qkv - - past_k past_v lengths total", "read new_k new_v",
             "/model/layers.0/attn/GQA", **ours, num_heads=4, kv_num_heads=2, do_rotary=0),
        node("MatMulNBits", "read w_out s_out", "out", "/model/layers.0/out/MatMul", **bits, N=32),
        node("SkipSimplifiedLayerNormalization", "x out norm2", "last", "/model/norm/Norm", **ours),
        node("MatMulNBits", "last w_head s_head", "y", "/lm_head/MatMul", **bits, N=100),
    ]  # fmt: skip
    inputs = {"ids": ["batch", "seq"], "past_k": ["batch", 2, "past", 8], "past_v": ["batch", 2, "past", 8]}
    onnx.save(model(whole_numbers(graph(nodes, inputs, weights), "ids")), tmp_path / "it.onnx")
    path = str(tmp_path / "it.onnx")
    with pytest.raises(UsageError, match="past, a length of input past_k, has no number"):
        xfcost.analyze(path)
    ledger = xfcost.analyze(path, inputs=["past_k=1x2x20x8"], N=5)
    # 5 tokens: maps of 32·64, 32·32 and 32·100; 4 heads · 25 keys · (8 + 8)
    assert ledger.total("macs") == 5 * (32 * 64 + 32 * 32 + 32 * 100 + 4 * 25 * 16)
    assert ledger.total("params") == 100 * 32 + 32 * (64 + 32 + 100) + 64
    assert ledger.total("moved") == 5 * 32
    # norms 4·32 each, a sum; scores: softmax 5, the scale of queries
    assert ledger.total("flops") == 2 * ledger.total("macs") + 5 * (9 * 32 + 4 * 25 * 5 + 4 * 8)
    assert ledger.metadata.attention == "fused"
    assert ledger.module.complete
    assert "weights are stored as float32 and uint8" in ledger.metadata.warnings[0]


# ── operators, as torch counts what does the same ──

X, IMAGE = torch.rand(2, 6, 8), torch.rand(2, 4, 8, 8)
ELEMENTWISE = {
    "Relu": F.relu, "Erf": torch.erf, "Sqrt": torch.sqrt, "Exp": torch.exp, "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid, "Softplus": F.softplus, "Mish": F.mish, "HardSwish": F.hardswish, "Elu": F.elu,
    "HardSigmoid": F.hardsigmoid, "Selu": F.selu, "Celu": F.celu, "LeakyRelu": F.leaky_relu, "Gelu": F.gelu,
    "Neg": torch.neg, "Abs": torch.abs, "Reciprocal": torch.reciprocal, "Softsign": F.softsign, "Floor": torch.floor,
    "Sign": torch.sign, "Softmax": lambda x: F.softmax(x, -1), "LogSoftmax": lambda x: F.log_softmax(x, -1),
    "Transpose": lambda x: x.transpose(0, 1), "Identity": lambda x: x, "Cast": lambda x: x,
}  # fmt: skip
PAIRS = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Pow": torch.pow, "Max": torch.maximum,
    "Min": torch.minimum,
}  # fmt: skip
_W = torch.rand


def of_lstm(x):
    return nn.LSTM(8, 16, bidirectional=True)(x)[0]


# name -> the operator, its inputs, the function, its weights, the opset
OPERATORS = {
    **{name: (node(name, "x", "y", **({"to": 1} if name == "Cast" else {})), {"x": X}, function, {}, 20)
       for name, function in ELEMENTWISE.items()},
    **{name: (node(name, "x z", "y"), {"x": X, "z": _W(6, 8)}, function, {}, 20) for name, function in PAIRS.items()},
    "GELU by tanh": (
        node("Gelu", "x", "y", approximate="tanh"), {"x": X}, lambda x: F.gelu(x, approximate="tanh"), {}, 20
    ),
    "ReduceMean": (node("ReduceMean", "x a", "y"), {"x": X}, lambda x: x.mean(-1), {"a": [-1]}, 20),
    "ReduceSum": (node("ReduceSum", "x a", "y"), {"x": X}, lambda x: x.sum(-1), {"a": [-1]}, 20),
    "ReduceMax": (node("ReduceMax", "x a", "y"), {"x": X}, lambda x: x.amax(-1), {"a": [-1]}, 20),
    "ReduceL1": (node("ReduceL1", "x a", "y"), {"x": X}, lambda x: x.abs().sum(-1), {"a": [-1]}, 20),
    "ReduceL2": (
        node("ReduceL2", "x a", "y"), {"x": X}, lambda x: torch.linalg.vector_norm(x, dim=-1), {"a": [-1]}, 20
    ),
    "ReduceProd": (node("ReduceProd", "x a", "y"), {"x": X}, lambda x: x.prod(-1), {"a": [-1]}, 20),
    "ReduceLogSumExp": (node("ReduceLogSumExp", "x a", "y"), {"x": X}, lambda x: x.logsumexp(-1), {"a": [-1]}, 20),
    "ArgMax": (node("ArgMax", "x", "y", axis=-1), {"x": X}, lambda x: x.argmax(-1), {}, 20),
    "TopK": (node("TopK", "x k", "y i", axis=-1), {"x": X}, lambda x: x.topk(3, -1), {"k": [3]}, 20),
    "CumSum": (node("CumSum", "x a", "y"), {"x": X}, lambda x: x.cumsum(1), {"a": np.array(1)}, 20),
    "Clip": (
        node("Clip", "x a b", "y"), {"x": X}, lambda x: x.clamp(0, 1),
        {"a": np.array(0, np.float32), "b": np.array(1, np.float32)}, 20
    ),
    "a product with batches": (
        node("MatMul", "x z", "y"), {"x": _W(3, 1, 6, 8), "z": _W(2, 8, 5)}, torch.matmul, {}, 20
    ),
    "a product with a vector": (node("MatMul", "x z", "y"), {"x": X, "z": _W(8)}, torch.matmul, {}, 20),
    "Gemm": (
        node("Gemm", "x z c", "y", transB=1), {"x": _W(6, 8), "z": _W(5, 8), "c": _W(5)},
        F.linear, {}, 20
    ),
    "a turned Gemm": (
        node("Gemm", "x z", "y", transA=1), {"x": _W(8, 6), "z": _W(8, 5)}, lambda x, z: x.T @ z, {}, 20
    ),
    "Conv": (
        node("Conv", "x w b", "y", pads=[1, 1, 1, 1], strides=[2, 2]), {"x": IMAGE, "w": _W(6, 4, 3, 3), "b": _W(6)},
        lambda x, w, b: F.conv2d(x, w, b, 2, 1), {}, 20
    ),
    "groups": (
        node("Conv", "x w", "y", group=2), {"x": IMAGE, "w": _W(6, 2, 3, 3)}, lambda x, w: F.conv2d(x, w, groups=2), {},
        20
    ),
    "ConvTranspose": (
        node("ConvTranspose", "x w b", "y", strides=[2, 2]), {"x": IMAGE, "w": _W(4, 6, 3, 3), "b": _W(6)},
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2), {}, 20
    ),
    "LayerNormalization": (
        node("LayerNormalization", "x w b", "y"), {"x": X, "w": _W(8), "b": _W(8)},
        lambda x, w, b: F.layer_norm(x, (8,), w, b), {}, 20
    ),
    "RMSNormalization": (
        node("RMSNormalization", "x w", "y"), {"x": X, "w": _W(8)}, lambda x, w: F.rms_norm(x, (8,), w), {}, 23
    ),
    "GroupNormalization": (
        node("GroupNormalization", "x w b", "y", num_groups=2), {"x": IMAGE, "w": _W(4), "b": _W(4)},
        lambda x, w, b: F.group_norm(x, 2, w, b), {}, 21
    ),
    "BatchNormalization": (
        node("BatchNormalization", "x w b m v", "y"), {"x": IMAGE, "w": _W(4), "b": _W(4), "m": _W(4), "v": _W(4)},
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), {}, 20
    ),
    "AveragePool": (
        node("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[2, 2]), {"x": IMAGE}, lambda x: F.avg_pool2d(x, 2),
        {}, 20
    ),
    "MaxPool": (
        node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), {"x": IMAGE},
        lambda x: F.max_pool2d(x, 3, 2, 1), {}, 20
    ),
    "GlobalAveragePool": (
        node("GlobalAveragePool", "x", "y"), {"x": IMAGE}, lambda x: F.adaptive_avg_pool2d(x, 1), {}, 20
    ),
    "Gather": (
        node("Gather", "w i", "y"), {"w": _W(10, 8), "i": torch.zeros(2, 6, dtype=torch.int64)},
        lambda w, i: F.embedding(i, w), {}, 20
    ),
    "ScatterElements": (
        node("ScatterElements", "x i u", "y", axis=1),
        {"x": X, "i": torch.zeros(2, 3, 8, dtype=torch.int64), "u": _W(2, 3, 8)},
        lambda x, i, u: x.scatter(1, i, u), {}, 20
    ),
    "Concat": (node("Concat", "x z", "y", axis=1), {"x": X, "z": X}, lambda x, z: torch.cat([x, z], 1), {}, 20),
    "Pad": (
        node("Pad", "x p", "y"), {"x": X}, lambda x: F.pad(x, (1, 1, 2, 2)), {"p": [0, 2, 1, 0, 2, 1]}, 20
    ),
    "Resize": (
        node("Resize", "x - s", "y", mode="linear"), {"x": IMAGE},
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), {"s": np.float32([1, 1, 2, 2])}, 20
    ),
    "GridSample": (
        node("GridSample", "x g", "y"), {"x": IMAGE, "g": _W(2, 5, 5, 2)},
        lambda x, g: F.grid_sample(x, g, align_corners=False), {}, 20
    ),
    "attention": (
        node("Attention", "q k v", "y"), {"q": _W(2, 4, 6, 8), "k": _W(2, 4, 9, 8), "v": _W(2, 4, 9, 5)},
        F.scaled_dot_product_attention, {}, 23
    ),
    "attention with groups and a bias": (
        node("Attention", "q k v m", "y"),
        {"q": _W(2, 4, 6, 8), "k": _W(2, 2, 9, 8), "v": _W(2, 2, 9, 8), "m": _W(6, 9)},
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True), {}, 23
    ),
    "attention of three axes": (
        node("Attention", "q k v", "y", q_num_heads=4, kv_num_heads=4),
        {"q": _W(2, 6, 32), "k": _W(2, 9, 32), "v": _W(2, 9, 32)},
        lambda *every: F.scaled_dot_product_attention(*(one.unflatten(-1, (4, 8)).transpose(1, 2) for one in every)),
        {}, 23
    ),
    "LSTM": (
        node("LSTM", "x w r b", "y", hidden_size=16, direction="bidirectional"), {"x": _W(6, 2, 8)}, of_lstm,
        {"w": (2, 64, 8), "r": (2, 64, 16), "b": (2, 128)}, 20
    ),
    "GRU": (
        node("GRU", "x w r b", "y", hidden_size=16), {"x": _W(6, 2, 8)}, lambda x: nn.GRU(8, 16)(x)[0],
        {"w": (1, 48, 8), "r": (1, 48, 16), "b": (1, 96)}, 20
    ),
    "RNN": (
        node("RNN", "x w r", "y", hidden_size=16), {"x": _W(6, 2, 8)}, lambda x: nn.RNN(8, 16, bias=False)(x)[0],
        {"w": (1, 16, 8), "r": (1, 16, 16)}, 20
    ),
    **{f"einsum {equation}": (
        node("Einsum", " ".join("xzu"[: len(shapes)]), "y", equation=equation),
        {name: _W(*shape) for name, shape in zip("xzu", shapes, strict=False)},
        lambda *given, equation=equation: torch.einsum(equation, *given), {}, 20,
    ) for equation, shapes in {
        "bij,bjk->bik": ((2, 6, 8), (2, 8, 5)), "bhnd,hde->bhne": ((2, 4, 6, 8), (4, 8, 8)), "bij->bi": ((2, 6, 8),),
        "ij,jk,kl->il": ((3, 4), (4, 5), (5, 6)), "bijk,jk->bi": ((2, 3, 4, 5), (4, 5)), "i,j->ij": ((3,), (4,)),
        "bi,bi->b": ((2, 6), (2, 6)), "...ij,...jk->...ik": ((2, 4, 5), (2, 5, 6)),
    }.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_costs_what_torch_counts_for_it(name, tmp_path):
    operator, inputs, function, weights, opset = OPERATORS[name]
    made = graph([operator], {one: list(value.shape) for one, value in inputs.items()}, weights)
    made = whole_numbers(made, *(one for one, value in inputs.items() if value.dtype == torch.int64))
    onnx.save(model(made, opset), tmp_path / "it.onnx")
    found = xfcost.analyze(str(tmp_path / "it.onnx"), strict=True)
    of_torch = xfcost.analyze(Call(function), example_inputs=tuple(inputs.values()), mixing=False, trace=False)
    assert totals(found) == totals(of_torch)


def test_a_graph_of_an_old_opset_by_hand(tmp_path):
    """Axes and bounds are attributes; a shape goes through a number."""
    path = file(tmp_path / "it.onnx", [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "batch", axis=0),
        node("Slice", "shape", "tokens", starts=[1], ends=[2], axes=[0]), node("Unsqueeze", "batch", "b", axes=[0]),
        node("Concat", "b tokens rest", "target", axis=0), node("Reshape", "x target", "four"),
        node("MatMul", "four w", "z"), node("Clip", "z", "y", min=0.0, max=1.0),
    ], {"x": ["batch", "seq", 32]}, {"zero": np.array(0), "rest": [4, 8], "w": (8, 5)}, opset=9)  # fmt: skip
    ledger = xfcost.analyze(path, N=10, batch=2, strict=True)
    # 2·10·4 rows of 8·5, two bounds of each number
    assert totals(ledger) == (80 * 40, 2 * 80 * 40 + 2 * 80 * 5, 0, 0)


def test_operators_of_whole_numbers_by_hand(tmp_path):
    path = file(tmp_path / "it.onnx", [
        node("DynamicQuantizeLinear", "x", "q scale zero"), node("MatMulInteger", "q w zero", "y"),
    ], {"x": [2, 6, 8]}, {"w": tensor("w", (8, 5), np.uint8)})  # fmt: skip
    ledger = xfcost.analyze(path)
    # two comparisons and two FLOPs of 96 numbers; 12·8·5 MACs
    assert totals(ledger) == (480, 2 * 480 + 2 * 96, 2 * 96, 0)
    assert ledger.total("params") == 40
    path = file(tmp_path / "it.onnx", [
        node("DequantizeLinear", "w s z", "whole"), node("Transpose", "whole", "turned", perm=[1, 0]),
        node("MatMul", "x turned", "y"),
    ], {"x": [6, 8]}, {"w": tensor("w", (5, 8), np.int8), "s": tensor("s", np.array(1, np.float32)),
                       "z": tensor("z", np.array(0, np.int8))})  # fmt: skip
    ledger = xfcost.analyze(path)
    assert (ledger.total("macs"), ledger.total("params")) == (6 * 8 * 5, 40)


# ── control flow and functions ──


def body_of_loop(*, growing=False):
    nodes = [node("Identity", "going", "goes_on"), node("MatMul", "state w", "next")]
    if growing:
        nodes = [
            node("Identity", "going", "goes_on"),
            node("Concat", "state x", "next", axis=0),
            node("MatMul", "next w", "z"),
        ]
    inputs = [("turn", 7, []), ("going", 9, []), ("state", 1, None)]
    return helper.make_graph(
        nodes, "body", [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("goes_on", 9, []), helper.make_tensor_value_info("next", 1, None)],
    )  # fmt: skip


@pytest.mark.parametrize("turns", [3, 500])
def test_a_loop_is_counted_turn_by_turn(tmp_path, turns):
    path = file(tmp_path / "it.onnx", [node("Loop", "m - x", "y", body=body_of_loop())], {"x": [6, 8]},
                {"m": tensor("m", np.array(turns)), "w": (8, 8)})  # fmt: skip
    ledger = xfcost.analyze(path)
    assert (ledger.total("macs"), ledger.total("params")) == (turns * 6 * 64, 64)


def test_a_state_of_a_loop_that_grows(tmp_path):
    path = file(tmp_path / "it.onnx", [node("Loop", "m - x", "y", body=body_of_loop(growing=True))], {"x": [6, 8]},
                {"m": tensor("m", np.array(3)), "w": (8, 5)})  # fmt: skip
    # 12, 18 and 24 rows of 8·5
    assert xfcost.analyze(path).total("macs") == (12 + 18 + 24) * 40


def test_turns_that_are_not_known_are_listed(tmp_path):
    nodes = [node("Loop", "m - x", "y", body=body_of_loop())]
    made = whole_numbers(graph(nodes, {"m": [], "x": [6, 8]}, {"w": (8, 8)}), "m")
    onnx.save(model(made), tmp_path / "it.onnx")
    ledger = xfcost.analyze(str(tmp_path / "it.onnx"))
    assert ledger.module.uncounted == {"Loop: how many turns it takes is not known": 1}
    assert "at least" in stdout_of("analyze", tmp_path / "it.onnx")
    with pytest.raises(IncompleteError):
        xfcost.analyze(str(tmp_path / "it.onnx"), strict=True)


def branch(operator):
    return helper.make_graph(
        [node(operator, "x w", "made")], "way", [], [helper.make_tensor_value_info("made", 1, None)]
    )


@pytest.mark.parametrize("known", [True, False, None])
def test_the_branch_that_is_taken_is_counted(tmp_path, known):
    nodes = [node("If", "c", "y", then_branch=branch("MatMul"), else_branch=branch("Add"))]
    made = graph(nodes, {"x": [8, 8], **({} if known is not None else {"c": []})}, {
        "w": (8, 8), **({} if known is None else {"c": tensor("c", np.array(known))}),
    })  # fmt: skip
    for one in made.input:
        one.type.tensor_type.elem_type = onnx_graphs.BOOL if one.name == "c" else 1
    onnx.save(model(made), tmp_path / "it.onnx")
    ledger = xfcost.analyze(str(tmp_path / "it.onnx"))
    assert ledger.total("macs") == (512 if known else 0)
    assert list(ledger.module.uncounted) == (["If: which branch it takes is not known"] if known is None else [])


def test_a_scan_runs_as_often_as_its_input_is_long(tmp_path):
    body = helper.make_graph(
        [node("MatMul", "state w", "next_"), node("Add", "next_ part", "next"), node("Identity", "next", "out")],
        "body",
        [helper.make_tensor_value_info(one, 1, None) for one in ("state", "part")],
        [helper.make_tensor_value_info(one, 1, None) for one in ("next", "out")],
    )  # fmt: skip
    path = file(tmp_path / "it.onnx", [node("Scan", "s x", "last y", body=body, num_scan_inputs=1)],
                {"s": [2, 8], "x": ["seq", 2, 8]}, {"w": (8, 8)})  # fmt: skip
    ledger = xfcost.analyze(path, N=7)
    assert totals(ledger) == (7 * 2 * 64, 7 * (2 * 2 * 64 + 16), 0, 0)
    assert ledger.closed_form.macs == "128·N"


def test_local_functions_are_counted_where_they_are_called(tmp_path):
    inner = helper.make_function("mine", "Twice", ["a", "b"], ["c"], [
        node("MatMul", "a b", "once"), node("MatMul", "once b", "c"),
    ], [helper.make_opsetid("", 20)])  # fmt: skip
    made = graph(
        [node("Twice", "x w", "z", domain="mine"), node("Twice", "z w", "y", domain="mine")],
        {"x": [6, 8]},
        {"w": (8, 8)},
    )
    onnx.save(model(made, functions=[inner]), tmp_path / "it.onnx")
    assert xfcost.analyze(str(tmp_path / "it.onnx")).total("macs") == 4 * 6 * 64


def test_a_function_that_calls_itself_is_refused(tmp_path):
    inner = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [node("Twice", "a", "b", domain="mine")], [helper.make_opsetid("", 20)]
    )
    made = graph([node("Twice", "x", "y", domain="mine")], {"x": [6, 8]})
    onnx.save(model(made, functions=[inner]), tmp_path / "it.onnx")
    assert "its function Twice calls itself" in error_of("analyze", tmp_path / "it.onnx")


def test_operators_that_are_not_known_are_listed(tmp_path):
    path = file(tmp_path / "it.onnx", [
        node("Det", "x", "d"), node("Mystery", "x", "m", domain="mine"), node("MatMul", "m w", "z"),
        node("MatMul", "x w", "y"),
    ], {"x": [8, 8]}, {"w": (8, 8)})  # fmt: skip
    ledger = xfcost.analyze(path)
    # of what an unknown operator makes no size is known
    assert ledger.module.uncounted == {"Det": 1, "MatMul": 1, "Mystery": 1}
    assert (ledger.total("macs"), ledger.total("params")) == (512, 64)


def test_sizes_that_the_file_states_help_where_an_operator_is_not_known(tmp_path):
    made = graph(
        [node("Mystery", "x", "m", domain="mine"), node("MatMul", "m w", "y")], {"x": [8, "seq"]}, {"w": (8, 8)}
    )
    made.value_info.append(helper.make_tensor_value_info("m", 1, ["2*seq", 8]))
    onnx.save(model(made), tmp_path / "it.onnx")
    assert xfcost.analyze(str(tmp_path / "it.onnx"), N=5).total("macs") == 10 * 64


OURS = {"domain": "com.microsoft"}
FULL_IMAGE = [1, 4, 8, 8]
# name -> an operator, the shape of its input, its other inputs, what is refused, the opset
MISMATCHES = {
    "channels": (node("Conv", "x w", "y"), FULL_IMAGE, {"w": (6, 3, 3, 3)}, "channels of the input: expected 3, got 4"),
    "groups": (node("Conv", "x w", "y", group=4), FULL_IMAGE, {"w": (6, 1, 3, 3)}, "expected a multiple of 4, got 6"),
    "kernel": (node("Conv", "x w", "y", kernel_shape=[5, 5]), FULL_IMAGE, {"w": (6, 4, 3, 3)}, "kernel_shape"),
    "bias": (node("Conv", "x w b", "y"), FULL_IMAGE, {"w": (6, 4, 3, 3), "b": (5,)}, "the bias: expected 6, got 5"),
    "window": (node("Conv", "x w", "y"), [1, 3, 2, 2], {"w": (6, 3, 3, 3)}, "at least those of a window, got 2×2"),
    "transposed": (node("ConvTranspose", "x w", "y"), FULL_IMAGE, {"w": (3, 6, 3, 3)}, "expected 3, got 4"),
    "deformable": (
        node("DeformConv", "x w o", "y"), FULL_IMAGE, {"w": (6, 3, 3, 3), "o": (1, 18, 6, 6)}, "expected 3, got 4"
    ),
    "whole numbers": (
        node("QLinearConv", "q s z w s z s z", "y"), FULL_IMAGE,
        {"q": tensor("q", tuple(FULL_IMAGE), np.uint8), "s": np.array(1, np.float32), "z": np.array(0, np.uint8),
         "w": tensor("w", (6, 3, 3, 3), np.uint8)}, "expected 3, got 4",
    ),
    "group norm": (
        node("GroupNormalization", "x w b", "y", num_groups=2), FULL_IMAGE, {"w": (2,), "b": (2,)}, "expected 4", 21
    ),
    "instance norm": (node("InstanceNormalization", "x w b", "y"), FULL_IMAGE, {"w": (5,), "b": (5,)}, "expected 4"),
    "layer norm": (node("LayerNormalization", "x w", "y"), [6, 8], {"w": (7,)}, "the weights: expected 8, got 7"),
    "slope": (node("PRelu", "x w", "y"), [6, 8], {"w": (7,)}, "the slope: expected 8, got 7"),
    "norm of a sum": (
        node("SkipLayerNormalization", "x r w", "y", **OURS), [1, 6, 8], {"r": (1, 5, 8), "w": (8,)}, "expected 6×8"
    ),
    "Gemm": (node("Gemm", "x w b", "y"), [6, 8], {"w": (8, 5), "b": (4,)}, "the bias: expected 5, got 4"),
    "product": (node("FusedMatMul", "x w", "y", **OURS), [6, 8], {"w": (7, 8)}, "rows of the second matrix"),
    "few bits": (
        node("MatMulNBits", "x w s", "y", **OURS, bits=4, block_size=32, K=32, N=64), [6, 8],
        {"w": tensor("w", (64, 1, 16), np.uint8), "s": (64,)}, "the width of the input: expected 32, got 8",
    ),
    "Einsum": (node("Einsum", "x w", "y", equation="ij,jk->ik"), [6, 8], {"w": (7, 5)}, "the length of j"),
    "keys": (node("Attention", "x k v", "y"), [2, 4, 6, 8], {"k": (2, 4, 9, 7), "v": (2, 4, 9, 5)}, "expected 8", 23),
    "values": (
        node("Attention", "x k v", "y"), [2, 4, 6, 8], {"k": (2, 4, 9, 8), "v": (2, 4, 7, 5)}, "expected 2×4×9", 23
    ),
    "heads": (
        node("Attention", "x k v", "y"), [2, 4, 6, 8], {"k": (2, 3, 9, 8), "v": (2, 3, 9, 5)}, "a multiple of 3", 23
    ),
    "mask": (
        node("Attention", "x k v m", "y"), [2, 4, 6, 8], {"k": (2, 4, 9, 8), "v": (2, 4, 9, 5), "m": (6, 7)},
        "the mask: expected 6×9, got 6×7", 23,
    ),
    "recurrence": (
        node("LSTM", "x w r", "y", hidden_size=16), [6, 2, 8], {"w": (1, 64, 7), "r": (1, 64, 16)}, "expected 1×64×8"
    ),
    "states": (
        node("GRU", "x w r", "y", hidden_size=16), [6, 2, 8], {"w": (1, 48, 8), "r": (1, 48, 15)}, "the shape of R"
    ),
    "Reshape": (node("Reshape", "x s", "y"), [6, 8], {"s": [5, 7]}, "elements of the new shape: expected 48, got 35"),
    "indices": (node("Gather", "x i", "y"), [6, 8], {"i": [9]}, "indices: expected -6 to 5, got 9"),
    "updates": (
        node("ScatterElements", "x i u", "y", axis=1), [6, 8], {"i": tensor("i", (6, 3), np.int64), "u": (6, 4)},
        "expected 6×3, got 6×4",
    ),
    "rows of updates": (
        node("ScatterND", "x i u", "y"), [6, 8], {"i": tensor("i", (3, 1), np.int64), "u": (3, 7)}, "expected 3×8"
    ),
    "blocks": (node("DepthToSpace", "x", "y", blocksize=3), FULL_IMAGE, {}, "expected a multiple of 9, got 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISMATCHES)
def test_shapes_that_do_not_fit_are_refused_as_onnx_runtime_refuses_them(name, tmp_path):
    operator, shape, weights, told, *opset = MISMATCHES[name]
    operator.name = "/net/it"
    path = file(tmp_path / "it.onnx", [operator], {"x": shape}, weights, *opset)
    with pytest.raises(UsageError, match=re.escape(told)) as refused:
        xfcost.analyze(path)
    assert f"/net/it ({operator.op_type}) does not take" in str(refused.value)


def test_more_tokens_than_a_table_has_positions_are_refused(tmp_path):
    path = file(tmp_path / "it.onnx", [
        node("Shape", "x", "n", start=1, end=2), node("Squeeze", "n", "many"), node("Range", "zero many one", "places"),
        node("Gather", "table places", "y", "/wpe/Gather"),
    ], {"x": ["batch", "seq"]}, {"table": (64, 8), "zero": np.array(0), "one": np.array(1)})  # fmt: skip
    assert xfcost.analyze(path, N=64).total("moved") == 64 * 8
    with pytest.raises(UsageError, match=r"/wpe/Gather \(Gather\) .* expected -64 to 63, got 64"):
        xfcost.analyze(path, N=65)


def test_a_note_names_operators_on_which_no_output_depends(tmp_path):
    """ONNX Runtime runs them, so they are counted; what only a branch reads is needed."""
    way = helper.make_graph([node("Relu", "read", "made")], "way", [], [helper.make_tensor_value_info("made", 1, None)])
    made = [
        node("MatMul", "x w", "unread", "spare"), node("Relu", "unread", "unread2"), node("MatMul", "x w", "read"),
        node("If", "c", "y", then_branch=way, else_branch=way),
    ]  # fmt: skip
    ledger = xfcost.analyze(file(tmp_path / "it.onnx", made, {"x": [6, 8]}, {"w": (8, 8), "c": np.array(True)}))
    assert ledger.total("macs") == 2 * 6 * 64
    told = "no output depends on spare (MatMul), Relu (384 MACs), which ONNX Runtime computes too: counted"
    assert told in ledger.metadata.notes


# ── sizes ──


def test_letters_of_an_input_and_lengths_with_names(tmp_path):
    path = file(tmp_path / "it.onnx", [node("MatMul", "x w", "y")], {"x": ["u", "v", 8]}, {"w": (8, 8)})
    assert xfcost.analyze(path, N=5, batch=3).total("macs") == 15 * 64, "the first leads, the second is N"
    assert xfcost.analyze(path, inputs=["x=NxBx8"], N=5, batch=3).metadata.inputs == "x: 5×3×8 float32"
    assert xfcost.analyze(path, inputs=["x=4x7x8"]).total("macs") == 28 * 64
    assert xfcost.analyze(path).metadata.inputs == "x: 1×128×8 float32"
    open_rank = file(tmp_path / "it.onnx", [node("MatMul", "x w", "y")], {"x": None}, {"w": (8, 8)})
    assert xfcost.analyze(open_rank, inputs=["x=2xNx8"], N=5).total("macs") == 10 * 64
    assert "input x has no shape in the file" in error_of("analyze", open_rank)


@pytest.mark.parametrize(
    ("side", "names", "number"),
    [
        ("seq", ("seq",), 7), ("2*seq + 1", ("seq",), 15), ("past + seq", ("past", "seq"), 12), ("seq//2", ("seq",), 3),
        ("max(1, past)", ("past",), 5), ("unk__1", ("unk__1",), None), ("a b", ("a b",), None), ("-1", ("-1",), None),
        ("seq.x", ("seq.x",), None), ("__import__('os')", ("__import__('os')",), None), ("seq//0", ("seq",), None),
        ("2**seq", ("2**seq",), None), ("seq - 9", ("seq",), None),
    ],
)  # fmt: skip
def test_a_length_is_a_name_or_an_expression(side, names, number):
    assert names_in(side) == names
    assert length_of(side, {"seq": 7, "past": 5}) == number


def test_it_is_compared_plotted_and_reported(tmp_path):
    path = encoder(tmp_path / "it.onnx")
    found = xfcost.compare(path, "vit-s16", N=196)
    assert found.ledgers[0].total("macs") == 2 * 196 * (12 * 32**2 + 2 * 196 * 32)
    assert stdout_of("plot", path, "--N", "16:256", "--metric", "macs", "-o", tmp_path / "it.svg") is not None
    assert (tmp_path / "it.svg").stat().st_size > 1000
    stdout_of("report", path, "vit-s16", "--N", "196", "-o", tmp_path / "it.html")
    told = json.loads(stdout_of("analyze", path, "--N", "4", "--format", "json"))
    assert told["module"]["tensors"] == "none"


REFUSED = {
    "--device cpu": "--device: it.onnx is an ONNX graph, which is counted by its shapes and does not run",
    "--predict": "does not run",
    "--trace": "does not run",
    "--mixing": "mixing kinds: it.onnx is an ONNX graph",
    "--tokens-of x:1": "does not run",
    "--cache-in past": "only --mode prefill, decode and generate have a cache",
    "--mode decode": "one forward is counted",
    "--mode train": "one forward is counted",
    "--size 32": "stands for H and W",
    "--weights int8": "stores them",
    "--build a=1": "only for Python code",
    "--input x=1xNx31": "axis 2 is 32 in the file",
    "--input y=1": "expected NAME=SHAPE of an input of it.onnx: x",
    "--input x=1xN": "expected 3 axes, got 2",
    "--dtype float16": "only specs take it",
    "--set a=1": "only specs take it",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_meaning_is_refused_in_one_line(tmp_path, words):
    told = error_of("analyze", encoder(tmp_path / "it.onnx", layers=1), *words.split(), COLUMNS="1000")
    assert REFUSED[words] in told


@pytest.mark.parametrize("words", ["reach FILE", "measure FILE --save it.jsonl --N 16", "glance FILE", "diagram FILE"])
def test_questions_that_need_a_run_are_refused_in_one_line(tmp_path, words):
    path = encoder(tmp_path / "it.onnx", layers=1)
    told = error_of(*words.replace("FILE", path).split(), cwd=tmp_path)
    assert "is an ONNX graph, which is counted by its shapes and does not run" in " ".join(told.split())


def of_image(tmp_path):
    """A convolution of torch, and its graph at 64 x 64."""
    text = "from torch import nn\n\ndef Net():\n    return nn.Conv2d(3, 8, 3, padding=1)\n"
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    weights = {"w": np.zeros((8, 3, 3, 3), np.float32), "b": np.zeros(8, np.float32)}
    same = node("Conv", "input.1 w b", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    file(tmp_path / "net.onnx", [same], {"input.1": [1, 3, 64, 64]}, weights)
    return 3 * 8 * 9 * 64 * 64


@pytest.mark.parametrize("given", ["1,3,64,64", "1:1x3x64x64 --input input.1=1,3,64,64"])
def test_a_shape_without_a_name_is_that_of_the_module_beside_a_graph(tmp_path, given):
    macs = of_image(tmp_path)
    words = ["compare", "net.py:Net", "net.onnx", "--input", *given.split(), "--json"]
    found = json.loads(stdout_of(*words, cwd=tmp_path))
    assert [one["totals"]["macs"] for one in found["systems"]] == [macs, macs]


def test_alone_a_shape_without_a_name_is_that_of_the_only_input(tmp_path):
    macs = of_image(tmp_path)
    found = stdout_of("analyze", "net.onnx", "--input", "1,3,64,64", "--json", cwd=tmp_path)
    assert json.loads(found)["totals"]["macs"] == macs
    told = error_of("compare", "net.py:Net", "net.onnx", "--input", "x=1x3x64x64", cwd=tmp_path, COLUMNS="1000")
    assert "an input of net.onnx: input.1; of one of several systems with its number" in told


@pytest.mark.parametrize("both", [("net.py:Net", "net.onnx"), ("net.onnx", "net.py:Net")])
def test_a_difference_takes_the_size_that_is_known_where_the_other_is_a_guess(tmp_path, both):
    macs = of_image(tmp_path)
    found = json.loads(stdout_of("diff", *both, "--json", cwd=tmp_path))
    assert found["totals"]["macs"]["before"] == found["totals"]["macs"]["after"] == macs


def test_a_batch_that_is_not_open_is_refused(tmp_path):
    path = file(tmp_path / "it.onnx", [node("Relu", "x", "y")], {"x": [1, "seq"]})
    assert "--batch 4: no length" in error_of("analyze", path, "--batch", "4")
    assert "--N: no length" in error_of("analyze", path, "--input", "x=1x3", "--N", "4")


def test_torch_is_not_imported(tmp_path):
    path = encoder(tmp_path / "it.onnx", layers=1)
    code = f"import sys, xfcost; xfcost.analyze({path!r}, N=8); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


# ── files ──


def test_external_data_is_not_read(tmp_path):
    made = graph([node("MatMul", "x w", "y")], {"x": [6, 100_000]}, {"w": (1, 1)})
    weight = made.initializer[0]
    weight.ClearField("raw_data")
    del weight.dims[:]
    weight.dims.extend([100_000, 100_000])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not there.bin")
    onnx.save(model(made), tmp_path / "it.onnx")
    began = time.perf_counter()
    ledger = xfcost.analyze(str(tmp_path / "it.onnx"))
    assert (ledger.total("macs"), ledger.total("params")) == (6 * 10**10, 10**10)
    assert time.perf_counter() - began < 60, "40 GB are not read"


def test_without_the_package_one_line_names_the_extra(tmp_path, monkeypatch):
    path = encoder(tmp_path / "it.onnx", layers=1)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'xfcost[onnx]'" in error_of("analyze", path)


def test_files_that_are_none_end_in_one_line(tmp_path):
    content = encoder(tmp_path / "it.onnx", layers=1)
    whole = (tmp_path / "it.onnx").read_bytes()
    for number, text in enumerate((b"", b"\0" * 64, b"text", whole[:100], whole[: len(whole) // 2])):
        (tmp_path / f"{number}.onnx").write_bytes(text)
        assert error_of("analyze", tmp_path / f"{number}.onnx").count("error") == 1
    assert "no such file" in error_of("analyze", tmp_path / "none.onnx")
    assert content


def broken(change):
    nodes = [node("MatMul", "x w", "z", "first"), node("Relu", "z", "y", "second")]
    whole = model(graph(nodes, {"x": [6, 8]}, {"w": (8, 8)}))
    change(whole)
    return whole.SerializeToString()


def _dims(whole):
    whole.graph.initializer[0].dims[0] = 2**62


def _bytes(whole):
    whole.graph.initializer[0].raw_data = b"1"


def _circle(whole):
    whole.graph.node[0].input[0] = "y"


def _missing(whole):
    whole.graph.node[0].input[0] = "nobody"


def _twice(whole):
    whole.graph.node[1].output[0] = "z"


def _opset(whole):
    whole.opset_import[0].version = 999


def _unlike(whole):
    whole.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7


def _unknown(whole):
    whole.graph.node[1].op_type = "Rely"


def _type(whole):
    whole.graph.initializer[0].data_type = 99


def _no_branch(whole):
    whole.graph.node[1].op_type = "If"


def _huge(whole):
    whole.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**61


BROKEN = {
    _dims: "which no tensor has",
    _bytes: "has 256 bytes by its shape, and holds 1",
    _missing: "reads 'nobody', which nothing makes",
    _circle: "the graph has a circle",
    _twice: "makes 'z', which is there already",
    _opset: "is of opset 999",
    _unlike: "first (MatMul) does not take 6×7, 8×8",
    _unknown: "ONNX has no operator Rely in opset 20",
    _type: "the unknown element type 99",
    _huge: "has a length of",
    _no_branch: "second (If) lacks a graph or an input",
}


@pytest.mark.parametrize("change", BROKEN, ids=lambda one: one.__name__)
def test_a_graph_that_cannot_be_ends_in_one_line(tmp_path, change):
    (tmp_path / "it.onnx").write_bytes(broken(change))
    told = error_of("analyze", tmp_path / "it.onnx", COLUMNS="1000")
    assert BROKEN[change] in told
    assert told.count("\n") == 1


@pytest.mark.rest
def test_random_bytes_of_a_file_end_in_one_line_or_in_counts(tmp_path):
    encoder(tmp_path / "it.onnx", layers=1, width=8, heads=2)
    whole, choose = (tmp_path / "it.onnx").read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        text = bytearray(whole)
        for place in choose.integers(0, len(text), 3):
            text[place] = choose.integers(0, 256)
        (tmp_path / "other.onnx").write_bytes(bytes(text))
        try:
            message = ""
            xfcost.analyze(str(tmp_path / "other.onnx"), N=4)
        except (UsageError, IncompleteError) as error:
            message = str(error)
        assert "\n" not in message


def test_a_length_that_leads_images_is_their_batch_whatever_its_name(tmp_path):
    """8 filters of 3×3×3 at 30×30 places: 194,400 MACs of one sample."""
    made = [node("Conv", "x w", "y")]
    path = file(tmp_path / "it.onnx", made, {"x": ["N", 3, 32, 32]}, {"w": (8, 3, 3, 3)})
    assert xfcost.analyze(path).total("macs") == 8 * 27 * 30 * 30
    assert xfcost.analyze(path, batch=4).total("macs") == 4 * 8 * 27 * 30 * 30
    told = stdout_of("analyze", path)
    assert "the real torch model" not in told
    assert "graph: every operator of one pass" in told
