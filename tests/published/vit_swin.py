"""ViT and Swin."""

from __future__ import annotations

from published.judged import MILLION, Judged

PUBLISHED: Judged = {
    ("vit-b16", "params", 86e6): "86M leaves out the 1000-class head (0.77M): 85.80M",
    ("vit-b16-384", "params", 86e6): "printed once for ViT-Base, whatever its patch, resolution and head",
    (
        "vit-b32",
        "params",
        86e6,
    ): "printed once for ViT-Base; patches of 32 make a projection of 2.36M in place of 0.59M",
    ("vit-l16", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-l16-384", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-l16-384", "macs", 190.7e9): "0.2 % below the exact 191.07e9; the printing paper's method is unknown",
    ("swin-s", "params", 50e6): MILLION,
}
