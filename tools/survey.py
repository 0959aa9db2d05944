"""Derived orders beside those of the survey (Tay et al. 2022, "Efficient Transformers", table 1).

The table is printed into docs/efficient-attention.md. An order is the leading term in N of all MACs of a component
without its projections (rows with parameters that mix no tokens): once with fixed parameters, once under the paper's
choice (blocks of √N, for example). Entries contain the survey's column and the explanations; the parameters are
arbitrary valid numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from xfcost.formulas.component import Component, Mixer, Place, tag_of
from xfcost.formulas.feature_maps import RandomFeatures
from xfcost.formulas.lettered import form_of, lettered
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.axial import Axial
from xfcost.mechanisms.block_sparse import BlockSparse
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.mechanisms.compressed import Compressed
from xfcost.mechanisms.compressive import Compressive
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.funnel import Funnel
from xfcost.mechanisms.global_local import GlobalLocal
from xfcost.mechanisms.inducing import Inducing
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.low_rank import LowRank
from xfcost.mechanisms.lsh import Lsh
from xfcost.mechanisms.nystrom import Nystrom
from xfcost.mechanisms.relative import Relative
from xfcost.mechanisms.routing import Routing
from xfcost.mechanisms.sinkhorn import Sinkhorn
from xfcost.mechanisms.sliding import Sliding
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.mechanisms.window import Window

SQUARE = Grid((512, 512))
s = lettered(512, "N", root=2)  # √N, the side of that grid
d, h, b, c, g, k, m, r, w, stride = 768, 12, 64, 4, 16, 32, 48, 3, 128, 128
HEADS: dict[str, Any] = {"heads": h}
NOT_IN_TABLE = "–"


class Entry(NamedTuple):
    """A system with the survey's order and its component here."""

    system: str
    survey_class: str
    survey: str
    """The survey's column; a dash if its table leaves the system out."""
    component: Mixer
    why: str
    """The explanation of the difference or of the order."""
    chosen: tuple[str, Mixer] | None = None
    """The paper's choice in words, and the component with it."""
    grid: Grid = SQUARE


ENTRIES: list[Entry] = [
    Entry(
        "Transformer (dense)", NOT_IN_TABLE, "O(N²)", Full(**HEADS),
        "Scores and weighted sum take 2·N²·d; the projections' 4·N·d² are more until N = 2d.",
    ),
    Entry(
        "Image Transformer, blockwise local attention", "FP", "O(N·m)", Blockwise(**HEADS, block=b, before=m),
        "Every block of b queries has one memory of b + m positions: N·(b + m)·d in either product. The survey's m is "
        "the whole memory block.",
    ),
    Entry(
        "Memory Compressed", "FP + M", "O(N_c²)", Compressed(**HEADS, compression=c),
        "Keys and values are compressed and queries are not: 2·N·(N/c)·d, as the survey's own text has it, and not the "
        "square of the compressed length that its table prints. It is quadratic with a small factor.",
    ),
    Entry(
        "Sparse Transformer, strided", "FP", "O(N√N)",
        Sparse(**HEADS, pattern="strided", stride=stride, causal=True),
        "Local N·l·d and strided N²/l·d: N√N only at l = √N. (The survey's text prints n log n for its memory.)",
        ("l = √N", Sparse(**HEADS, pattern="strided", stride=s, causal=True)),
    ),
    Entry(
        "Sparse Transformer, fixed", "FP", "O(N√N)",
        Sparse(**HEADS, pattern="fixed", stride=stride, summary=c, causal=True),
        "The same with c summary cells per block, c times the strided product: at the EnWik8 model's l = 128 and "
        "c = 32 a quarter of all causal pairs.",
        ("l = √N", Sparse(**HEADS, pattern="fixed", stride=s, summary=c, causal=True)),
    ),
    Entry(
        "Axial Transformer", "FP", "O(N√N)", Axial(**HEADS, axis="row"),
        "A line of a square grid has √N tokens. On an oblong grid it is N times the length of the line.",
    ),
    Entry(
        "Longformer", "FP + M", "O(n(k + m))", Sliding(**HEADS, window=w, global_tokens=g),
        "k is the window, m the global tokens. The public code computes 4·w + 3·w keys per query of a window of 2w "
        "(overlapping chunks), where 2w + 1 are needed; global tokens add 4·g·N·d and, by projections of their own, "
        "2·N·d² that no column shows.",
    ),
    Entry(
        "BigBird", "FP + M", "O(N)", BlockSparse(**HEADS, block=b, random_blocks=r),
        "Every block reads 5 + r blocks, and two blocks read all: linear at a fixed block size. Up to (5 + 2r)·b "
        "tokens the public code runs full attention.",
    ),
    Entry(
        "ETC", "FP + M", "O(N_g² + N·N_g)", GlobalLocal(**HEADS, radius=w),
        "The survey's column has the part of the global tokens and leaves out the local one, 2·N·3(r + 1)·d, "
        "which is the larger while N_g is below some 3r.",
        grid=Grid((s, s), g),
    ),
    Entry(
        "Reformer", "LP", "O(N log N)", Lsh(**HEADS, bucket=b, rounds=r),
        "With 2N/c buckets of fixed size the hashing alone, N·d·n_buckets/2 per round, is N²·d/c. Factorised or fixed "
        "bucket counts make it linear; N log N is left for the sorting, which is comparisons and no MACs.",
        ("a fixed number of buckets", Lsh(**HEADS, bucket=b, rounds=r, buckets=k)),
    ),
    Entry(
        "Routing Transformer", "LP", "O(N√N)", Routing(**HEADS, window=w),
        "Distances to k centroids are 2·N·k·d, attention in clusters 2·N·w·d: N√N only where both are √N, the paper's "
        "choice. With a fixed window, as in the public package, k = N/w and the distances are quadratic.",
        ("k = w = √N", Routing(**HEADS)),
    ),
    Entry(
        "Sinkhorn Transformer", "LP", "O(B²)", Sinkhorn(**HEADS, block=b),
        "The survey's column is one block. All blocks are N·b·d, and reordering keys and values by a soft permutation "
        "mixes all of them: N²/b·d, so N√N at b = √N.",
        ("b = √N", Sinkhorn(**HEADS, block=s)),
    ),
    Entry(
        "SortCut Sinkhorn", "LP", NOT_IN_TABLE, Sinkhorn(**HEADS, block=b, sortcut=k),
        "Attention to k sorted blocks is N·k·b·d, linear; the sorting network stays (N/b)²·d.",
    ),
    Entry(
        "Set Transformer (ISAB)", "M", "O(kN)", Inducing(**HEADS, points=k),
        "Two attentions of k points with N tokens: 4·k·N·d. (SAB is full attention, N².)",
    ),
    Entry(
        "Nyströmformer", "M + DS", "O(kN)", Nystrom(**HEADS, landmarks=k, conv=w),
        "4·N·k·d for k landmarks, and N·k² per head for the product with the inverse, 24·k³ for its six iterations. "
        "For N ≤ k it is full attention, as in transformers' default of 64-token segments.",
    ),
    Entry(
        "Synthesizer, dense", "LR + LP", "O(N²)", Synthesizer(**HEADS, form="dense"),
        "No QKᵀ, but a row of N weights per token by a map of d_k·N: the same N²·d, and parameters that grow with N.",
    ),
    Entry(
        "Synthesizer, factorised random", "LR + LP", "O(N²)", Synthesizer(**HEADS, form="factorized_random", rank=k),
        "Low rank, but quadratic: the softmax needs all h·N² entries, which cost N²·k·h (once per batch), "
        "and N²·d to sum by.",
    ),
    Entry(
        "Linformer", "LR", "O(N)", LowRank(**HEADS, rank=k),
        "Projecting keys and values along the sequence, 2·N·k·d, costs as much as attending to them. The projections "
        "hold N·k parameters each: they grow with N.",
    ),
    Entry(
        "Linear Transformer", "KR", "O(N)", Kernel(**HEADS),
        "A state of d_k² numbers per head: 2·N·d·d_k. Causal in chunks of c it adds the masked products inside a "
        "chunk, 2·N·c·d; in the parallel causal form (masked N×N products of features) it is N² again.",
    ),
    Entry(
        "Performer", "KR", "O(N)", Kernel(**HEADS, features=RandomFeatures(count=k)),
        "4·N·k·d for k random features: less than 2·N²·d only where N > 2k.",
    ),
    Entry(
        "Transformer-XL", "RC", "O(N²)", Relative(**HEADS, memory=m, causal=True),
        "Of one segment of N tokens with m cached: three products (content, position, values), 3·N·(N + m)·d.",
    ),
    Entry(
        "Compressive Transformer", "RC", "O(N²)",
        Compressive(**HEADS, memory=m, compressed_memory=m, compression=c, causal=True),
        "Transformer-XL's three products over two memories; compressing evicted memories adds N·d² (a convolution).",
    ),
    Entry(
        "Funnel Transformer", "FP + DS", "O(N²)", Funnel(**HEADS, stride=2),
        "Pooled queries are N/2 and read all N; every further layer of the block has 4·(N/2)²·d: quadratic with "
        "smaller factors, never another order.",
    ),
    Entry(
        "Swin windows", NOT_IN_TABLE, NOT_IN_TABLE, Window(**HEADS, size=w),
        "Windows of w×w tokens; see the vision systems.",
    ),
]  # fmt: skip


def derived(component: Component, place: Place) -> str:
    """O(…) of the component's MACs without its projections."""
    component, place = component.in_letters(place)
    rows = [row for row in component.operations(place) if row.mixes or not row.params]
    return form_of(sum(row.macs for row in rows)).order()


def others() -> list[type[Mixer]]:
    """Mechanisms that are not in the survey; `tools/vision.py` lists them."""
    return [
        component for component in MECHANISMS.values() if component not in {type(entry.component) for entry in ENTRIES}
    ]


def lines() -> list[dict[str, str]]:
    """One line per entry."""
    return [_line(entry) for entry in ENTRIES]


def _line(entry: Entry) -> dict[str, str]:
    place = Place(grid=entry.grid, dim=d, out_dim=d)
    words, component = entry.chosen or ("", None)
    return {
        "system": entry.system,
        "`kind`": f"`{tag_of(type(entry.component))}`",
        "class": entry.survey_class,
        "survey": entry.survey,
        "derived, parameters fixed": derived(entry.component, place),
        "under the paper's choice": f"{derived(component, place)}: {words}" if component else "",
    }


__all__ = ["ENTRIES", "derived", "lines"]
