"""Blocks of residual networks: with a shortcut's convolution, grouped, and with squeeze-and-excitation."""

from __future__ import annotations

from order_examples.letters import W, both, d, dk, h, place
from xfcost.mechanisms import Basic, Bottleneck, LocalAttention, LocalRelation
from xfcost.mechanisms.base import Page, Place

# Four times as wide outside as inside; and r·d, which must be a whole number of letters.
WIDE = place(dim=4 * d, out_dim=4 * d)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Basic: [(Basic(), place(out_dim=2 * d))],
    Bottleneck: [
        (Bottleneck(), place(out_dim=4 * d)),
        (Bottleneck(stride=2, stride_on="1x1"), place(out_dim=4 * d)),
        (Bottleneck(squeeze=0.25), WIDE),
        (Bottleneck(expansion=1, group_width=dk, squeeze=0.25), place(dim=4 * h * dk, out_dim=4 * h * dk)),
        (Bottleneck(expansion=1, group_width=dk), place(dim=4 * h * dk, out_dim=8 * h * dk)),
        *both(place(out_dim=4 * d), Bottleneck(stride=2, spatial=LocalAttention(heads=h, size=2 * W + 1))),
        (
            Bottleneck(stride=2, spatial=LocalRelation(size=2 * W + 1, share=dk)),
            place(dim=2 * h * dk, out_dim=8 * h * dk),
        ),
    ],
}
