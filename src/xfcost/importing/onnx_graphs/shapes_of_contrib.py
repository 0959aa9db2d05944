"""Shapes of what the operators of ONNX Runtime (`com.microsoft`) make, which ONNX has no schemas for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import onnx

    from xfcost.importing.onnx_graphs.shapes import Value

Shape = tuple[int, ...]


def options_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node: numbers, texts and lists of them."""
    from onnx import helper

    simple = (one for one in node.attribute if not (one.HasField("g") or one.graphs))
    return {one.name: helper.get_attribute_value(one) for one in simple}


def shapes_of_contrib(node: onnx.NodeProto, inputs: Sequence[Value | None]) -> list[Value | None]:
    """What an operator makes; empty where no rule is known, or its inputs have no shapes."""
    rule = _RULES.get(node.op_type)
    shapes = [None if one is None else one.shape for one in inputs]
    first = inputs[0] if inputs else None
    if rule is None or first is None or first.shape is None:
        return []
    try:
        made = rule(shapes, options_of(node))
    except (TypeError, IndexError, KeyError, ValueError, ZeroDivisionError):  # inputs without shapes, or missing
        return []
    return [None if shape is None else first._replace(shape=shape, data=None, weights=()) for shape in made]


def _same(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    return [shapes[0]]


def _summed(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    """(output, mean, 1/σ, the sum) of a norm behind a sum."""
    return [shapes[0], None, None, shapes[0]]


def _few_bits(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    return [(*shapes[0][:-1], options["N"])]


def product(left: Shape, right: Shape, *, turned: tuple[bool, bool] = (False, False)) -> Shape:
    """The shape of a product of matrices, each turned or not, with batches broadcast."""
    own = (*left[:-2], left[-1], left[-2]) if turned[0] else left
    other = (*right[:-2], right[-1], right[-2]) if turned[1] else right
    batches = [max(a, b) for a, b in zip(_padded(own[:-2], other), _padded(other[:-2], own), strict=True)]
    return (*batches, own[-2], other[-1])


def _padded(batches: Shape, other: Shape) -> Shape:
    return (*[1] * max(len(other) - 2 - len(batches), 0), *batches)


def _fused_product(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    return [product(shapes[0], shapes[1], turned=(bool(options.get("transA")), bool(options.get("transB"))))]


def _whole_product(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    return [product(shapes[0], shapes[1])]


def _packed_attention(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    """(B, N, in) with one map to queries, keys and values."""
    (*batch, _), width = shapes[0], shapes[1][1]
    parts = options.get("qkv_hidden_sizes")
    return [(*batch, parts[2] if parts else width // 3)]


def _attention(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    """Queries (B, N, h·d) and values (B, M, h·v), or (B, h, M, v)."""
    query, value = shapes[0], shapes[2] if len(shapes) > 2 else None  # noqa: PLR2004
    if value is None:
        return [query] if len(query) == 3 else [(query[0], query[1], query[2] * query[4])]  # noqa: PLR2004
    width = value[-1] if len(value) == 3 else value[1] * value[3]  # noqa: PLR2004
    return [(query[0], query[1], width)]


def _grouped_attention(shapes: Sequence[Any], options: dict[str, Any]) -> list[Shape | None]:
    """Queries (B, N, h·d), which hold keys and values too where these are left out; past (B, g, P, d)."""
    query, key = shapes[0], shapes[1]
    heads, groups = options["num_heads"], options["kv_num_heads"]
    width = query[2] // heads if key is not None else query[2] // (heads + 2 * groups)
    past = shapes[3] if len(shapes) > 3 and shapes[3] is not None else None  # noqa: PLR2004
    total = query[1] + (past[2] if past is not None else 0)
    present = (query[0], groups, total, width)
    return [(query[0], query[1], heads * width), present, present]


_RULES: Final[dict[str, Callable[[Sequence[Any], dict[str, Any]], list[Shape | None]]]] = {
    **dict.fromkeys(
        ("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SimplifiedLayerNormalization", "LayerNormalization",
         "RotaryEmbedding", "GemmaRotaryEmbedding", "BiasAdd", "GroupNorm", "SkipGroupNorm"), _same,
    ),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _summed),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4", "MatMulFpQ4"), _few_bits),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), _fused_product),
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger16"), _whole_product),
    **dict.fromkeys(("Attention", "QAttention"), _packed_attention),
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _grouped_attention,
}  # fmt: skip
