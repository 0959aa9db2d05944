"""ONNX files that tests make: operators, a file of them, blocks of a transformer."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, INT64, INT8, BOOL = 1, 7, 3, 9


def node(operator: str, inputs: str, outputs: str, name: str = "", domain: str = "", **options: Any) -> onnx.NodeProto:
    """An operator; names are separated by spaces, `-` is an input that is left out."""
    given = ["" if one == "-" else one for one in inputs.split()]
    return helper.make_node(operator, given, outputs.split(), name=name, domain=domain, **options)


def tensor(name: str, value: Any, dtype: Any = None) -> onnx.TensorProto:
    """An initializer: of the shape that a tuple gives, of the whole numbers of a list, or an array."""
    array = np.zeros(value, dtype or np.float32) if isinstance(value, tuple) else value
    array = array if isinstance(array, np.ndarray) else np.array(array, dtype or np.int64)
    return numpy_helper.from_array(array, name)


def graph(nodes: list[onnx.NodeProto], inputs: dict[str, Any], weights: Any = None) -> onnx.GraphProto:
    """A graph that returns what the last node makes; shapes of inputs have texts for open lengths, None is no shape."""
    values = [helper.make_tensor_value_info(name, FLOAT, one) for name, one in inputs.items()]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)]
    tensors = [one if isinstance(one, onnx.TensorProto) else tensor(name, one) for name, one in (weights or {}).items()]
    return helper.make_graph(nodes, "net", values, made, tensors)


def whole_numbers(graph: onnx.GraphProto, *names: str) -> onnx.GraphProto:
    """The graph, whose inputs of these names are whole numbers."""
    for one in graph.input:
        if one.name in names:
            one.type.tensor_type.elem_type = INT64
    return graph


def model(graph: onnx.GraphProto, opset: int = 20, **more: Any) -> onnx.ModelProto:
    """A model of a graph."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)


def file(path: Any, nodes: list[onnx.NodeProto], inputs: dict[str, Any], weights: Any = None, opset: int = 20) -> str:
    """The path of a file with a graph of these operators."""
    onnx.save(model(graph(nodes, inputs, weights), opset), path)
    return str(path)


def encoder_layer(number: int, x: str, width: int, heads: int) -> tuple[list[onnx.NodeProto], dict[str, Any], str]:
    """A block as an exporter writes it: its operators, its weights, the name of what it makes.

    x + out(softmax(QKᵀ/√d_k)V) of norm(x), then x + MLP(x) with 4·d; shapes are worked out from those of activations.
    """
    at, p = f"/blocks.{number}", f"blocks.{number}"
    weights = {
        f"{p}.norm.weight": (width,), f"{p}.norm.bias": (width,), f"{p}.qkv.weight": (width, 3 * width),
        f"{p}.qkv.bias": (3 * width,), f"{p}.out.weight": (width, width), f"{p}.out.bias": (width,),
        f"{p}.up.weight": (width, 4 * width), f"{p}.up.bias": (4 * width,), f"{p}.down.weight": (4 * width, width),
        f"{p}.down.bias": (width,), f"zero{number}": [0], f"one{number}": [1], f"three{number}": [3],
        f"heads{number}": [heads], f"rest{number}": [-1], f"width{number}": [width],
        f"scale{number}": np.array((width // heads) ** -0.5, np.float32),
    }  # fmt: skip
    n = lambda name: f"{name}{number}"  # noqa: E731 - one line
    nodes = [
        node("LayerNormalization", f"{x} {p}.norm.weight {p}.norm.bias", n("normed"), f"{at}/norm/LayerNormalization"),
        node("MatMul", f"{n('normed')} {p}.qkv.weight", n("qkv_"), f"{at}/qkv/MatMul"),
        node("Add", f"{n('qkv_')} {p}.qkv.bias", n("qkv"), f"{at}/qkv/Add"),
        node("Shape", n("qkv"), n("shape"), f"{at}/Shape"),
        node("Gather", f"{n('shape')} {n('zero')}", n("batch"), f"{at}/Gather", axis=0),
        node("Gather", f"{n('shape')} {n('one')}", n("tokens"), f"{at}/Gather_1", axis=0),
        node("Concat", " ".join(map(n, ("batch", "tokens", "three", "heads", "rest"))), n("target"), axis=0),
        node("Reshape", f"{n('qkv')} {n('target')}", n("five"), f"{at}/Reshape"),
        node("Transpose", n("five"), n("turned"), perm=[2, 0, 3, 1, 4]),
        node("Split", n("turned"), f"{n('q_')} {n('k_')} {n('v_')}", axis=0, num_outputs=3),
        *(node("Squeeze", f"{n(f'{one}_')} {n('zero')}", n(one)) for one in "qkv"),
        node("Transpose", n("k"), n("kT"), perm=[0, 1, 3, 2]),
        node("MatMul", f"{n('q')} {n('kT')}", n("scores_"), f"{at}/MatMul"),
        node("Mul", f"{n('scores_')} {n('scale')}", n("scores"), f"{at}/Mul"),
        node("Softmax", n("scores"), n("weights"), f"{at}/Softmax", axis=-1),
        node("MatMul", f"{n('weights')} {n('v')}", n("read"), f"{at}/MatMul_1"),
        node("Transpose", n("read"), n("back"), perm=[0, 2, 1, 3]),
        node("Concat", " ".join(map(n, ("batch", "tokens", "width"))), n("flat"), axis=0),
        node("Reshape", f"{n('back')} {n('flat')}", n("joined"), f"{at}/Reshape_1"),
        node("MatMul", f"{n('joined')} {p}.out.weight", n("out_"), f"{at}/out/MatMul"),
        node("Add", f"{n('out_')} {p}.out.bias", n("out"), f"{at}/out/Add"),
        node("Add", f"{x} {n('out')}", n("mixed"), f"{at}/Add"),
        node("MatMul", f"{n('mixed')} {p}.up.weight", n("up_"), f"{at}/up/MatMul"),
        node("Add", f"{n('up_')} {p}.up.bias", n("up"), f"{at}/up/Add"),
        node("Gelu", n("up"), n("act"), f"{at}/act/Gelu"),
        node("MatMul", f"{n('act')} {p}.down.weight", n("down_"), f"{at}/down/MatMul"),
        node("Add", f"{n('down_')} {p}.down.bias", n("down"), f"{at}/down/Add"),
        node("Add", f"{n('mixed')} {n('down')}", n("x"), f"{at}/Add_1"),
    ]
    return nodes, weights, n("x")


def encoder(path: Any, *, width: int = 32, heads: int = 4, layers: int = 2) -> str:
    """The path of a file with such blocks: x (batch, seq, d)."""
    nodes, weights, x = list[onnx.NodeProto](), dict[str, Any](), "x"
    for number in range(layers):
        more, own, x = encoder_layer(number, x, width, heads)
        nodes += more
        weights |= own
    return file(path, nodes, {"x": ["batch", "seq", width]}, weights)
