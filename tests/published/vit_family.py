"""ViT at other resolutions, DeiT and DeiT III."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off, RoundedDown

UNKNOWN = "the printing method is unknown"

PUBLISHED: Judged = {
    ("vit-b32-384", "params", 86e6): "printed once for ViT-Base; a larger projection, and the 1000-class head",
    ("vit-l32-384", "params", 307e6): MILLION,
    ("vit-l16-512", "params", 307e6): "printed once for ViT-Large; 307M is L/32",
    ("vit-h14-518", "params", 632e6): "printed once for ViT-Huge; the position table of 518×518 adds 1.4M",
    ("deit-ti", "params", 5e6): RoundedDown(MILLION),
    ("deit-ti", "macs", 1.3e9): TENTH_OF_A_BILLION,
    ("deit-s", "params", 22e6): MILLION,
    ("deit-s", "macs", 4.6e9): TENTH_OF_A_BILLION,
    ("deit-b", "params", 86e6): RoundedDown(MILLION),
    ("deit-b", "macs", 17.6e9): TENTH_OF_A_BILLION,
    ("deit-ti-distilled", "params", 6e6): MILLION,
    ("deit-s-distilled", "params", 22e6): MILLION,
    ("deit-b-distilled", "params", 87e6): MILLION,
    ("deit-b-384", "params", 87e6): MILLION,
    ("deit-b-384", "macs", 55.5e9): TENTH_OF_A_BILLION,
    ("deit-b-distilled-384", "params", 88e6): MILLION,
    ("deit3-s", "params", 22.0e6): RoundedDown(TENTH_OF_A_MILLION),
    ("deit3-s", "macs", 4.6e9): TENTH_OF_A_BILLION,
    ("deit3-s-384", "params", 22.0e6): Off(TENTH_OF_A_MILLION, "printed as at 224"),
    ("deit3-s-384", "macs", 15.5e9): TENTH_OF_A_BILLION,
    ("deit3-b", "params", 86.6e6): TENTH_OF_A_MILLION,
    ("deit3-b", "macs", 17.5e9): RoundedDown(TENTH_OF_A_BILLION),
    ("deit3-b-384", "params", 86.9e6): TENTH_OF_A_MILLION,
    ("deit3-b-384", "macs", 55.5e9): TENTH_OF_A_BILLION,
    ("deit3-l", "params", 304.4e6): TENTH_OF_A_MILLION,
    ("deit3-l", "macs", 61.6e9): TENTH_OF_A_BILLION,
    ("deit3-l-384", "params", 304.8e6): TENTH_OF_A_MILLION,
    ("deit3-l-384", "macs", 191.2e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("deit3-h", "params", 632.1e6): TENTH_OF_A_MILLION,
    ("deit3-h", "macs", 167.4e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
}
