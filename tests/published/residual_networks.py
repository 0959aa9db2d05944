"""Residual networks: ResNet, ResNeXt, RegNetX and RegNetY."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged

ONE, HUNDREDTH_OF_A_BILLION = 1.0, 1e7

PUBLISHED: Judged = {
    ("resnet-101", "params", 44.54916e6): ONE,
    ("resnet-101", "macs", 7.80e9): HUNDREDTH_OF_A_BILLION,
    ("resnet-50-v1", "macs", 3.8e9): "3.858e9, cut off and not rounded",
    ("resnet-34", "macs", 3.6e9): "3.66e9, cut off and not rounded",
    ("resnet-26-lrnet", "params", 16.0e6): TENTH_OF_A_MILLION,
    ("resnext-101-32x4d", "macs", 8.0e9): TENTH_OF_A_BILLION,
    ("resnext-152-32x4d", "params", 60.0e6): TENTH_OF_A_MILLION,
    ("wide-resnet-50-2", "macs", 11.40e9): HUNDREDTH_OF_A_BILLION,
    ("regnetx-4.0gf", "macs", 4.0e9): TENTH_OF_A_BILLION,
    ("regnetx-8.0gf", "macs", 8.0e9): TENTH_OF_A_BILLION,
    ("regnety-4.0gf", "macs", 4.0e9): TENTH_OF_A_BILLION,
    ("regnety-8.0gf", "macs", 8.0e9): TENTH_OF_A_BILLION,
    ("regnety-32gf", "params", 145.0e6): TENTH_OF_A_MILLION,
}
