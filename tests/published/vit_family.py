"""ViT at other resolutions, DeiT and DeiT III."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off, RoundedDown

UNKNOWN = "the printing method is unknown"

PUBLISHED: Judged = {
    ("vit-b32-384", "params", 86e6): "printed once for ViT-Base; a larger projection, and the 1000-class head",
    ("vit-l16-512", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-h14-518", "params", 632e6): "printed once for ViT-Huge; the position table of 518×518 adds 1.4M",
    ("deit-ti", "params", 5e6): RoundedDown(MILLION),
    ("deit-b", "params", 86e6): RoundedDown(MILLION),
    ("deit3-s", "params", 22.0e6): RoundedDown(TENTH_OF_A_MILLION),
    ("deit3-s-384", "params", 22.0e6): Off(TENTH_OF_A_MILLION, "printed as at 224"),
    ("deit3-b", "macs", 17.5e9): RoundedDown(TENTH_OF_A_BILLION),
    ("deit3-l-384", "macs", 191.2e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("deit3-h", "macs", 167.4e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
}
