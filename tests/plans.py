"""A device of round figures, and the plan of a preset on it."""

from __future__ import annotations

import xfcost
from xfcost.ledger.device import Device, DeviceFigure, DeviceGroup

GIB = 2**30
# 24 blocks of width 2048, N = 2048; 12·d² weights of a block, its biases and norms.
XL = {"mode": "train", "dtype": "bfloat16", "attention": "eager", "trace": False}
D, N, BLOCKS, HEADS = 2048, 2048, 24, 16
WEIGHTS = 12 * D * D
TABLES = (50257 * D, 2048 * D)


def device(*, memory: float = 80e9, price: float | None = None) -> Device:
    figures = {"bandwidth": DeviceFigure(value=2e12, sources=()), "memory": DeviceFigure(value=memory, sources=())}
    peaks = {"bfloat16": DeviceFigure(value=100e12, sources=())}
    return Device(name="one", title="One", vendor="None", peaks=peaks, price_per_hour=price, **figures)


def group(count: int = 8, **figures) -> DeviceGroup:
    return DeviceGroup(device=device(**figures), count=count)


def planned(spec: str = "gpt3-xl", *, on: DeviceGroup | None = None, **options):
    ledger = xfcost.analyze(spec, on=on or group(), **(XL | options))
    return ledger.training.plan
