"""Sequence mixers, with the options that bring other rows."""

from __future__ import annotations

from order_examples.letters import SQUARE, M, S, W, b, both, c, d, dk, g, h, k, m, place, r, s, stride, w
from xfcost.grid import Grid
from xfcost.mechanisms import (
    Axial,
    BlockSparse,
    Blockwise,
    Compressed,
    Compressive,
    Cross,
    Full,
    Funnel,
    GlobalLocal,
    Inducing,
    Kernel,
    LowRank,
    Lsh,
    Nystrom,
    Relative,
    Routing,
    Sinkhorn,
    Sliding,
    Sparse,
    Synthesizer,
    Window,
)
from xfcost.mechanisms.base import Page, Place
from xfcost.mechanisms.buckets import Buckets
from xfcost.mechanisms.kernel import EluPlusOne, RandomFeatures

CHUNKED = {"causal": True, "form": "chunked", "chunk": b}

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Full: [
        *both(place(), Full(heads=h), Full(heads=h, causal=True), Full(heads=h, talking_heads=True)),
        *both(place(dim=2 * h * dk), Full(heads=2 * h, kv_heads=h, causal=True, position="rope")),
        *both(
            place(),
            Full(heads=h, causal=True, position="alibi"),
            Full(heads=h, bias=Buckets(count=4 * k, distance=4 * k)),
            Full(heads=h, causal=True, bias=Buckets(count=4 * k, distance=4 * k)),
        ),
    ],
    Cross: both(place(memory=Grid((M,)), memory_dim=d), Cross(heads=h)),
    # half a window is a whole number, here w
    Sliding: [
        (Sliding(heads=h, window=2 * w), place()),
        (Sliding(heads=h, window=2 * w, global_projections=True), place()),
        (Sliding(heads=h, window=2 * w, dilation=2, global_tokens=g), place()),
        (Sliding(heads=h, window=2 * w, causal=True), place()),
        (Sliding(heads=2 * h, kv_heads=h, window=2 * w, causal=True, position="rope"), place(dim=2 * h * dk)),
    ],
    BlockSparse: both(place(), BlockSparse(heads=h, block=b, random_blocks=r)),
    GlobalLocal: [
        (GlobalLocal(heads=h, radius=w, **projections), place(grid=grid))
        for projections in ({}, {"share_projections": False, "share_output": False})
        for grid in (SQUARE, Grid((s, s), g))
    ],
    Window: [
        spot
        for grid in (SQUARE, Grid((s * s,)))
        for spot in both(
            place(grid=grid, dim=h * dk),
            Window(heads=h, size=W),
            Window(heads=h, size=W, shift=S),
            Window(heads=h, size=W, score="cosine", bias="log_cpb", key_bias=False),
        )
    ],
    Inducing: both(place(), Inducing(heads=h, points=k)),
    Axial: [
        *both(place(), Axial(heads=h, axis="row"), Axial(heads=h, axis="column", causal=True)),
        *both(place(), Axial(heads=h, axis="all")),
    ],
    Blockwise: [
        *both(place(), Blockwise(heads=h, block=b), Blockwise(heads=h, block=b, before=m, causal=True)),
        *both(place(), Blockwise(heads=h, block=[W, W], above=W, beside=W)),
    ],
    Relative: both(place(), Relative(heads=h, memory=m), Relative(heads=h, memory=m, causal=True)),
    Lsh: [
        (Lsh(heads=h, bucket=b, rounds=r, buckets=buckets, causal=causal), place())
        for buckets in (None, 2 * k, [2 * k, 2 * k])
        for causal in (False, "approximate")
    ]
    + [(Lsh(heads=h, bucket=2 * s * s, rounds=r), place())],
    Kernel: [
        (Kernel(heads=h, features=features, **way), place(dim=h * dk))
        for features in (EluPlusOne(), RandomFeatures(count=k), RandomFeatures(count=k, function="relu"))
        for way in ({}, *({"causal": True, "form": form} for form in ("parallel", "recurrent")), CHUNKED)
    ],
    Compressive: both(
        place(),
        *(
            Compressive(heads=h, memory=m, compressed_memory=m, compression=c, function=function, causal=True)
            for function in ("conv", "mean", "max")
        ),
    ),
    LowRank: both(place(), *(LowRank(heads=h, rank=k, share=share) for share in ("none", "key_value"))),
    Nystrom: both(place(), *(Nystrom(heads=h, landmarks=landmarks, conv=w) for landmarks in (k, 2 * s * s))),
    Compressed: both(
        place(),
        Compressed(heads=h, compression=c),
        Compressed(heads=h, compression=c, causal=True),
        Compressed(heads=h, compression=c, function="mean"),
        Compressed(heads=h, compression=c, function="max"),
    ),
    Funnel: both(
        place(),
        Funnel(heads=h, token_types=True),
        Funnel(heads=h, stride=2, token_types=True),
        Funnel(heads=h, stride=2, pool="max", token_types=True),
        Funnel(heads=h, stride=2, pool_q_only=False, separate_cls=False, truncate_seq=False),
    ),
    Synthesizer: [
        (Synthesizer(heads=h, **form), place(dim=h * dk))
        for form in (
            {"form": "dense"},
            {"form": "random"},
            {"form": "random", "trainable": False},
            {"form": "factorized_random", "rank": k},
            {"form": "factorized_dense"},
            {"form": "factorized_dense", "factor": k},
        )
    ],
    Sparse: both(
        place(dim=2 * d, out_dim=2 * d),
        *(
            Sparse(heads=2 * h, stride=stride, causal=True, integration=way, **pattern)
            for way in ("local", "long", "merged", "heads")
            for pattern in ({"pattern": "strided"}, {"pattern": "fixed", "summary": c})
        ),
    ),
    Routing: [
        pair
        for sizes in ({}, {"window": w}, {"clusters": k}, {"window": w, "clusters": k})
        for options in ({"causal": "approximate"}, {"shared_qk": True}, {"local_heads": h, "local_window": b})
        for pair in both(place(dim=2 * h * dk), Routing(heads=2 * h, head_dim=dk, **sizes, **options))
    ],
    Sinkhorn: [
        pair
        for options in ({}, {"causal": True}, {"sortcut": k})
        for pair in both(place(dim=h * dk), Sinkhorn(heads=h, head_dim=dk, block=b, **options))
    ],
}
