"""Deformable DETR: Table 1 gives the whole detector, the presets are its encoder."""

from __future__ import annotations

from published.judged import Judged, PartOf

D, HIDDEN, HEADS, POINTS, QUERIES = 256, 1024, 8, 4, 300
# The convolutions of ResNet-50, whose norms are frozen.
BACKBONE = 23_454_912


def rest(levels: int) -> PartOf:
    """Backbone, projections of its maps with group norms, decoder, embeddings of queries and maps; rounded to 1M."""
    maps = [2048] if levels == 1 else [512, 1024, 2048]
    projected = sum(width * D + 3 * D for width in maps) + (0 if levels == 1 else 9 * 2048 * D + 3 * D)
    linear = D * D + D
    deformable = 2 * linear + 3 * (D + 1) * HEADS * levels * POINTS
    layer = 4 * linear + deformable + 3 * 2 * D + (D * HIDDEN + HIDDEN) + (HIDDEN * D + D)
    embeddings = QUERIES * 2 * D + levels * D + 2 * (D + 1)  # and a map of a query to its reference point
    known = BACKBONE + projected + 6 * layer + embeddings
    return PartOf(known - 500_000, known + 500_000)


PUBLISHED: Judged = {
    ("deformable-detr-encoder", "params", 40e6): rest(4),
    ("deformable-detr-encoder-single-scale", "params", 34e6): rest(1),
}
