"""What can be drawn over N, and in which words."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from xfcost.spec.architecture import Mode

Unit = Literal["count", "byte", "second"]


class Metric(NamedTuple):
    """What is drawn over N."""

    quantity: str
    """The figure of a sweep."""
    title: str
    label: str
    how: str
    """How its numbers came about."""
    unit: Unit = "count"
    mode: Mode | None = None
    """The mode that it belongs to, where it is not of any."""


METRICS: Final = {
    "mixing": Metric(
        "mixing_macs",
        "Mixing cost",
        "MACs of the operations that mix tokens",
        "Counted in closed form: all layers, one forward",
    ),
    "scores": Metric(
        "scores",
        "Attention scores",
        "query–key pairs of one head, first block with scores",
        "Counted in closed form: dot products QKᵀ of one sample",
    ),
    "macs": Metric(
        "macs", "Cost", "MACs of one forward", "Counted in closed form: all multiply-accumulates of one forward"
    ),
    "attention-memory": Metric(
        "attention_bytes",
        "Attention memory",
        "bytes of attention matrices, kept in all layers",
        "Counted in closed form: what training keeps",
        "byte",
    ),
    "cache": Metric(
        "cache_bytes",
        "Cache",
        "bytes kept of the past",
        "Counted in closed form: what one token more reads of those before it, all layers",
        "byte",
        mode="decode",
    ),
    "params": Metric(
        "params",
        "Parameters",
        "parameters",
        "Counted in closed form; what grows with N: position tables, maps over tokens",
    ),
    "time": Metric(
        "macs", "Time", "seconds of one forward", "Measured: median, bars the interquartile range", "second"
    ),
}
