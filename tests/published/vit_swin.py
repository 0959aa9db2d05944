"""ViT and Swin."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, Judged

PUBLISHED: Judged = {
    ("vit-b16", "params", 86e6): "86M leaves out the 1000-class head (0.77M): 85.80M",
    ("vit-b16", "macs", 17.564e9): MILLION,
    ("vit-b16-384", "params", 86e6): "printed once for ViT-Base, whatever its patch, resolution and head",
    ("vit-b16-384", "macs", 55.5e9): TENTH_OF_A_BILLION,
    (
        "vit-b32",
        "params",
        86e6,
    ): "printed once for ViT-Base; patches of 32 make a projection of 2.36M in place of 0.59M",
    ("vit-b32", "macs", 4.409e9): MILLION,
    ("vit-l16", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-l16", "macs", 61.555e9): MILLION,
    ("vit-l16-384", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-l16-384", "macs", 190.7e9): "0.2 % below the exact 191.07e9; the printing paper's method is unknown",
    ("vit-l32", "params", 307e6): MILLION,
    ("vit-l32", "macs", 15.378e9): MILLION,
    ("vit-h14", "params", 632e6): MILLION,
    ("vit-h14", "macs", 167.295e9): MILLION,
    ("swin-t", "params", 28e6): MILLION,
    ("swin-t", "macs", 4.5e9): TENTH_OF_A_BILLION,
    ("swin", "params", 28e6): MILLION,
    ("swin", "macs", 4.5e9): TENTH_OF_A_BILLION,
    ("swin-s", "params", 50e6): MILLION,
    ("swin-s", "macs", 8.7e9): TENTH_OF_A_BILLION,
    ("swin-b", "params", 88e6): MILLION,
    ("swin-b", "macs", 15.4e9): TENTH_OF_A_BILLION,
    ("swin-b-384", "params", 88e6): MILLION,
    ("swin-b-384", "macs", 47.1e9): TENTH_OF_A_BILLION,
    ("swin-l", "params", 197e6): MILLION,
    ("swin-l", "macs", 34.5e9): TENTH_OF_A_BILLION,
    ("swin-l-384", "params", 197e6): MILLION,
    ("swin-l-384", "macs", 103.9e9): TENTH_OF_A_BILLION,
}
