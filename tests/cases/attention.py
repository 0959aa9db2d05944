"""Attention over all tokens, and what stands for it at less cost, under the contract."""

from math import isqrt
from typing import Any

from hypothesis import strategies as st

from cases.base import HEADS, IN_CHUNKS, SEQUENCES, Letters, MechanismCase, Rows, any_of, ceil_div, doubled, whole
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Buckets, ClassAttention, Cross, Full, Mla
from xfcost.mechanisms.funnel import Funnel
from xfcost.mechanisms.kernel import EluPlusOne, Kernel, RandomFeatures
from xfcost.mechanisms.low_rank import Inducing, LowRank, Nystrom
from xfcost.mechanisms.relative import Compressive, Relative
from xfcost.mechanisms.spatial_reduction import Compressed
from xfcost.mechanisms.synthesizer import Synthesizer


def _value_width(component: Any, place: Place) -> Letters:
    return {"d_v": component.value_dim or component.head_dim or place.dim // component.heads}


def _relative(component: Any, place: Place) -> Letters:
    n, m = place.grid.total, component.memory + getattr(component, "compressed_memory", 0)
    return {"n": n, "m": m, "T": n + m if component.causal else 2 * n + m - 1}


def _kernel(component: Any, place: Place) -> Letters:
    n = place.grid.total
    chunk = min(component.chunk or 64, n)
    chunked = component.causal and component.form in (None, "chunked")
    m = getattr(component.features, "count", None) or (component.head_dim or place.dim // component.heads)
    return {"m": m, "c": chunk, "P": whole(n, chunk) if chunked else n}


def _funnel(component: Any, place: Place) -> Letters:
    n, shortest = place.grid.total, 2 if component.separate_cls else 1
    pooled = component.stride > 1 and n > shortest
    copied = int(component.separate_cls and not component.truncate_seq)
    p = n if component.stride == 1 else max(ceil_div(n + copied, 2), min(n, shortest))
    m = n if component.pool_q_only else p
    return {"P": p, "M": m, "T": m + (2 if pooled and component.pool_q_only else 1) * p}


def _synthesizer(component: Any, place: Place) -> Letters:
    n = place.grid.total
    a = component.factor or max(each for each in range(1, isqrt(n) + 1) if n % each == 0)
    return {"a": a, "c": n // a, "k": component.rank or 8}


PLAIN = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5, projection_bias=False),
    Full(heads=2, output_projection=False),
    Full(heads=2, projection_bias=False, output_bias=True),
    Full(heads=6, kv_heads=2, scaled=False),
    Full(heads=3, kv_heads=1, causal=True, projection_bias=False),
    Full(heads=3, value_dim=5),
    Full(heads=3, head_dim=4, value_dim=2, causal=True),
    Full(heads=6, kv_heads=2, value_dim=3, causal=True, output_bias=False),
)
TALKING = (  # a linear map of n·n pairs has ⌊n²/n⌋ rows: no closed form of torch's
    Full(heads=3, talking_heads=True),
    Full(heads=2, head_dim=4, talking_heads=True, position="rope", projection_bias=False),
    Full(heads=3, value_dim=4, talking_heads=True),
)
# Their tables are as long as the input.
POSITIONED = (
    Full(heads=3, position="rope"),
    Full(heads=3, kv_heads=1, causal=True, position="rope", output_bias=False, head_dim=4),
    Full(heads=4, head_dim=4, kv_heads=2, causal=True, position="rope", rope_base=50.0),
    Full(heads=4, head_dim=4, value_dim=3, kv_heads=2, causal=True, position="rope"),
    Full(heads=6, kv_heads=3, causal=True, position="alibi"),
    Full(heads=2, value_dim=4, causal=True, position="alibi"),
    Full(heads=2, bias=Buckets(count=8, distance=20), scaled=False),
    Full(heads=4, kv_heads=2, head_dim=3, causal=True, bias=Buckets(count=6, distance=9)),
    Full(heads=2, causal=True, window=2),
    Full(heads=6, kv_heads=2, head_dim=2, causal=True, window=4, position="rope", projection_bias=False),
    Full(heads=3, head_dim=4, value_dim=2, causal=True, window=7),
)


FULL = MechanismCase(
    letters=lambda component, place: (
        _value_width(component, place)
        | {
            "h_kv": component.kv_heads or component.heads,
            "k": component.bias.count if component.bias else 0,
            "w": component.window or 0,
            "β_o": int(component.projection_bias if component.output_bias is None else component.output_bias),
        }
    ),
    flags={
        "heads": "all but mask rotary scale",
        "head_dim": "out qkv rotary scale scores sum",
        "kv_heads": "qkv rotary",
        "position": "add_bias rotary",
        "bias": "bias",
        "talking_heads": "l w",
        "window": "nothing (pairs, kinds, and the rows of a decode step)",
    },
    cached=(
        (Full(heads=3, causal=True), 2 * 6, 0),
        (Full(heads=6, kv_heads=2, value_dim=3, causal=True), 2 * (1 + 3), 0),
        (Full(heads=6, kv_heads=2, causal=True, window=4), 0, 4 * 2 * (1 + 1)),
    ),
    examples=(*PLAIN, *TALKING, *POSITIONED),
    components=any_of(
        Full,
        kv_heads=st.sampled_from([None, 1, 2, 3]),
        bias=st.none() | st.builds(Buckets, count=st.integers(4, 40), distance=st.integers(40, 300)),
    )
    | st.builds(Full, heads=HEADS, position=st.sampled_from(["none", "rope"]), talking_heads=st.just(value=True)),
    symbolic=len(PLAIN),
)


MLA = MechanismCase(
    letters=lambda component, place: (
        _value_width(component, place)
        | {
            "d_h": component.head_dim or place.dim // component.heads,
            "d_r": component.rope_dim,
            "c": component.kv_rank,
            "c_q": component.q_rank or 0,
        }
    ),
    flags={
        "heads": "all but down mask norm",
        "head_dim": "join out q scale scores sum up",
        "projection_bias": "down out",
        "kv_rank": "kv_down kv_norm kv_up",
        "rope_dim": "join kv_down q q_up rotary scale scores",
        "q_rank": "q q_down q_norm q_up",
        "value_dim": "kv_up out sum",
    },
    cached=(
        (Mla(heads=3, kv_rank=5, rope_dim=4, causal=True), 5 + 4, 0),  # the latent, and a turned key of all heads
    ),
    examples=(
        Mla(heads=2, kv_rank=4, rope_dim=2),
        Mla(heads=3, kv_rank=5, rope_dim=4, q_rank=3, causal=True),
        Mla(heads=2, kv_rank=3, rope_dim=2, q_rank=4, head_dim=5, value_dim=3, causal=True, projection_bias=True),
        Mla(heads=1, kv_rank=7, rope_dim=6, value_dim=4, rope_base=50.0),
    ),
    components=any_of(Mla, rope_dim=st.integers(1, 9).map(lambda half: 2 * half)),
)


CROSS = MechanismCase(
    letters=lambda component, place: _value_width(component, place) | {"d'": place.memory_dim},
    flags={"heads": "all but q scale"},
    cached=((Cross(heads=2, head_dim=4, value_dim=1), 0, 7 * 2 * (4 + 1)),),
    examples=(
        Cross(heads=2),
        Cross(heads=3, head_dim=4, projection_bias=False),
        Cross(heads=2, head_dim=5, projection_bias=False, scaled=False),
        Cross(heads=3, value_dim=5),
        Cross(heads=2, head_dim=4, value_dim=1, projection_bias=False),
    ),
    memory=True,
    symbolic=5,
)


CLASS_ATTENTION = MechanismCase(
    letters=lambda component, place: {"E": place.grid.special},
    examples=(
        ClassAttention(heads=2),
        ClassAttention(heads=3, projection_bias=False),
        ClassAttention(heads=1, head_dim=5),
    ),
    components=any_of(ClassAttention, on=Grid((5,), 1)),
    growth=lambda component: (Grid((6,), 1), Grid((12,), 1)),
    # Nothing but the class token beside one place, oblong, prime; two and three special tokens.
    grids=(
        *(Grid((1,), 1), Grid((1, 1), 1), Grid((5,), 1), Grid((1, 4), 2)),
        *(Grid((7, 9), 1), Grid((13, 13), 3), Grid((2, 3, 4), 1)),
    ),
    class_token=True,
)


RELATIVE = MechanismCase(
    letters=_relative,
    flags={
        "causal": "mask position_scores r",
        "memory": "add_bias kv q r recall scores softmax sum",
        "memory_queries": "q",
    },
    examples=(
        Relative(heads=2, causal=True, memory=3),
        Relative(heads=3, projection_bias=True),
        Relative(heads=1, head_dim=4, causal=True, memory=7, memory_queries=True),
        Relative(heads=2, memory=2),
    ),
    grids=(*SEQUENCES[:-1], Grid((2, 2), 1)),
)


COMPRESSIVE = MechanismCase(
    letters=lambda component, place: _relative(component, place) | {"c": component.compression},
    flags={"memory compressed_memory": "add_bias kv r recall scores softmax sum", "compression function": "compress"},
    examples=(
        Compressive(heads=2, causal=True, memory=4, compressed_memory=3, compression=2),
        Compressive(heads=3, causal=True, compressed_memory=2, compression=3, function="mean"),
        Compressive(heads=1, memory=2, compressed_memory=5, compression=1, function="max", projection_bias=True),
    ),
    grids=SEQUENCES[:-1],
)


FUNNEL = MechanismCase(
    letters=_funnel,
    flags={
        "heads": "add add_bias pick scores softmax",
        "head_dim": "all but add add_bias mask pick pool shift softmax",
        "projection_bias": "kv out",
        "stride truncate_seq": "all but mask shift",
        "pool": "pool",
        "separate_cls": "all but shift",
        "pool_q_only": "add add_bias kv pick r scores softmax sum",
        "token_types": "add pick type_bias type_scale types",
        "spacing": "nothing (distances)",
    },
    examples=(
        Funnel(heads=2, token_types=True),
        Funnel(heads=3, stride=2, spacing=2),
        Funnel(heads=1, head_dim=4, stride=2, truncate_seq=False, token_types=True, pool="max", projection_bias=False),
        Funnel(heads=2, stride=2, pool_q_only=False),
        Funnel(heads=2, stride=2, separate_cls=False),
    ),
    grids=SEQUENCES[:-1],
    sides=st.integers(1, 40).map(lambda n: (n,)),
)


INDUCING = MechanismCase(
    letters=lambda component, place: {"k": component.points},
    flags={
        "head_dim": "kv out q scale scores sum",
        "points": "all but ^out ^q ^scale induced_kv",
        "induce": "act add norm rff",
    },
    examples=(
        Inducing(heads=2, points=3),
        Inducing(heads=3, points=1, norm="none", output_projection=False),
        Inducing(heads=1, points=4, induce="attention", head_dim=5, projection_bias=False),
    ),
    symbolic=3,
)


COMPRESSED = MechanismCase(
    rows=Rows(grids=lambda component: doubled(6 * component.compression)),
    letters=lambda component, place: {
        "M": ceil_div(place.grid.total, component.compression),
        "κ": component.kernel or component.compression,
        "g": component.groups,
        "t": int(component.null_key),
        "c": component.compression,
    },
    flags={
        "compression": "compress null pad scores softmax sum",
        "kernel": "compress pad",
        "groups function": "compress",
        "head_dim": "all but mask softmax",
        "null_key": "null scores softmax sum",
    },
    examples=(
        Compressed(heads=2, causal=True),
        Compressed(heads=3, compression=2, kernel=5, groups=3, causal=True, projection_bias=False),
        Compressed(heads=2, compression=4, null_key=False),
        Compressed(heads=2, compression=2, function="mean"),
        Compressed(heads=1, head_dim=16, function="max", kernel=4, causal=True),
    ),
    growth=lambda component: doubled(2 * component.compression),
    # One token, two, a prime, whole blocks and not, a class token and a grid's tokens in raster order.
    grids=(*(Grid((n,)) for n in (1, 2, 5, 12)), Grid((2, 3), 1)),
    sides=st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
    length=7,
)


LOW_RANK = MechanismCase(
    letters=lambda component, place: {"k": component.rank},
    flags={
        "heads": "key_projection scores softmax value_projection",
        "rank": "projection scores softmax sum",
        "share": "projection",
    },
    examples=(
        LowRank(heads=2, rank=4),
        LowRank(heads=3, rank=1, share="none"),
        LowRank(heads=1, head_dim=5, rank=7, share="key_value", projection_bias=False),
    ),
    grids=SEQUENCES,
)


NYSTROM = MechanismCase(
    letters=lambda component, place: {
        "m": component.landmarks,
        "I": component.iterations,
        "w": component.conv or 0,
        "P": whole(place.grid.total, component.landmarks)
        if place.grid.total > component.landmarks
        else place.grid.total,
        "k": component.landmarks,
    },
    flags={
        "heads": "conv inverse scores softmax",
        "head_dim": "all but inverse pad softmax",
        "landmarks": "all but out",
        "conv": "add conv",
        "iterations": "^inverse",
    },
    examples=(
        Nystrom(heads=2, landmarks=4, conv=3),
        Nystrom(heads=3, landmarks=2, conv=None, iterations=2),
        Nystrom(heads=1, head_dim=5, landmarks=5, conv=7, projection_bias=False),
    ),
    growth=lambda component: doubled(2 * component.landmarks),
    grids=SEQUENCES,
)


KERNEL = MechanismCase(
    rows=Rows(grids=lambda component: doubled(12)),
    letters=lambda component, place: _kernel(component, place) | {"b": component.chunk or 0},
    flags={
        "heads": "add features join key_sum local_scores normaliser prefix_sum read state",
        "head_dim": "all but ^scores local_normaliser mask",
        "causal": "add k_features local_mask local_normaliser local_scores local_weighted_sum pad prefix_sum",
        "features": "^normaliser features key_sum prefix_sum project read scale scores state",
        "form": "all but divide features out project qkv scale",
        "chunk": "all but ^scores ^weighted_sum join mask out qkv",
    },
    cached=(
        (Kernel(heads=2, causal=True), 0, 2 * (3 * 3 + 3)),  # of a head Σφ(k)vᵀ and Σφ(k)
        (Kernel(heads=2, causal=True, features=RandomFeatures(count=7)), 0, 2 * (7 * 3 + 7)),
    ),
    followed_otherwise=lambda component: {"read", "normaliser"},
    examples=(
        Kernel(heads=2),
        Kernel(heads=3, features=RandomFeatures(count=4)),
        Kernel(heads=2, causal=True, chunk=4),
        Kernel(heads=1, head_dim=3, causal=True, form="parallel", features=RandomFeatures(count=4, function="relu")),
        Kernel(heads=2, causal=True, form="chunked", chunk=3, features=RandomFeatures(count=7)),
        Kernel(heads=2, causal=True, form="recurrent", features=RandomFeatures(count=5), projection_bias=False),
    ),
    components=any_of(
        Kernel,
        features=st.just(EluPlusOne())
        | st.builds(RandomFeatures, count=st.integers(1, 99), function=st.sampled_from(["softmax", "relu"])),
    ),
    growth=IN_CHUNKS["growth"],
    grids=SEQUENCES,
    fused=False,
    symbolic=2,
)


SYNTHESIZER = MechanismCase(
    letters=_synthesizer,
    flags={
        "heads": "softmax synthesis",
        "projection_bias": "a b hidden out synthesis value",
        "form": "a b hidden relu synthesis",
        "trainable rank": "synthesis",
        "factor": "a b",
    },
    examples=(
        Synthesizer(heads=2),
        Synthesizer(heads=3, form="factorized_dense", causal=True, projection_bias=False),
        Synthesizer(heads=2, form="random", causal=True, head_dim=5),
        Synthesizer(heads=2, form="random", trainable=False),
        Synthesizer(heads=2, form="factorized_random", rank=3),
    ),
    # Squares, whose root divides them.
    growth=lambda component: (Grid((4, 4)), Grid((8, 8))) if component.form == "factorized_dense" else doubled(6),
    # 24 before 13: of a prime number of tokens both factors' orders are one.
    grids=tuple(Grid((n,)) for n in (1, 2, 5, 8, 24, 13)),
    fused=False,
)
