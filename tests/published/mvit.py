"""MViT and MViTv2."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off, RoundedDown

BILLION = 1e9


def normed(unit: float, macs: float) -> Off:
    """The print counts five per element of a layer norm too, as fvcore does."""
    return Off(unit, f"{macs} G with layer norms, which the print counts", within=0.01)


PUBLISHED: Judged = {
    ("mvit-b-16", "params", 37.0e6): TENTH_OF_A_MILLION,
    ("mvit-b-16-max", "params", 37.0e6): Off(TENTH_OF_A_MILLION, "printed once for both ways to pool", within=0.01),
    ("mvit-b-24-wide-320", "params", 72.9e6): RoundedDown(TENTH_OF_A_MILLION),
    ("mvit-b-16x4", "macs", 70.5e9): Off(TENTH_OF_A_BILLION, "70.6 of MACs alone", within=0.01),
    ("mvit-b-16x4", "params", 36610672): 1,
    ("mvit-b-32x3", "macs", 170e9): BILLION,
    ("mvit-b-24-32x3", "params", 52.9e6): Off(TENTH_OF_A_MILLION, "unknown", within=0.01),
    ("mvitv2-s", "macs", 7.0e9): TENTH_OF_A_BILLION,
    ("mvitv2-b", "params", 52e6): Off(MILLION, "51.47M, rounded up", within=0.02),
    ("mvitv2-b", "macs", 10.2e9): normed(TENTH_OF_A_BILLION, 10.16),
    ("mvitv2-l", "macs", 42.1e9): "of mvitv2-l-cls, which widens in attention",
    ("mvitv2-l-cls", "params", 218e6): "of mvitv2-l, which widens in its MLPs",
    ("mvitv2-l-cls", "macs", 42.1e9): normed(TENTH_OF_A_BILLION, 42.15),
    ("mvitv2-h", "macs", 120.6e9): normed(TENTH_OF_A_BILLION, 120.64),
    ("mvitv2-s-16x4", "params", 34537744): 1,
    ("mvitv2-b-32x3", "macs", 225e9): normed(BILLION, 225.17),
    ("mvitv2-l-40x3-312", "params", 217.6e6): "widening in attention, as the public configuration says, gives 213.4M",
    ("mvitv2-l-40x3-312", "macs", 2828e9): normed(BILLION, 2828.1),
}
