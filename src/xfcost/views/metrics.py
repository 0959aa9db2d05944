"""The metrics of `xfcost plot`."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from xfcost.ledger.execution import Mode

Unit = Literal["count", "byte", "second"]


class Metric(NamedTuple):
    """One metric: which figure of a sweep, and its words on the chart."""

    quantity: str
    """The figure of a sweep."""
    title: str
    label: str
    how: str
    """The source of its numbers, for the subtitle."""
    unit: Unit = "count"
    mode: Mode | None = None
    """The mode that it belongs to; None for every mode."""


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
        "query-key pairs per head, first layer with scores",
        "Counted in closed form: dot products QKᵀ of one sample",
    ),
    "macs": Metric(
        "macs", "Cost", "MACs of one forward", "Counted in closed form: all multiply-accumulates of one forward"
    ),
    "flops": Metric("flops", "Cost", "FLOPs of one forward", "Counted in closed form: 2·MACs and element-wise work"),
    "attention-memory": Metric(
        "attention_bytes",
        "Attention memory",
        "attention matrices of all layers",
        "Counted in closed form: saved for training",
        "byte",
    ),
    "cache": Metric(
        "cache_bytes",
        "KV cache and state",
        "KV cache and state",
        "Counted in closed form: the cache that a decode step reads, all layers",
        "byte",
        mode="decode",
    ),
    "params": Metric(
        "params", "Parameters", "parameters", "Counted in closed form; position tables and maps over tokens grow with N"
    ),
    "least-time": Metric(
        "least_seconds",
        "Lower bound of the time",
        "lower bound of the time",
        "Bound of one forward",
        "second",
    ),
    "time": Metric("macs", "Time", "time of one forward", "Measured: median, bars the interquartile range", "second"),
}

# Tokens per second over batches, which is no metric of a sweep.
THROUGHPUT: Final = "throughput"
