"""Published training compute beside ours: tables of docs/training.md, which tests check.

GPT-3's appendix multiplies parameters, tokens and a factor (6, or 3 where half the parameters see a token). The
Transformer's table multiplies hours, GPUs and sustained FLOP/s. Our counts are over the same tokens.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import xfcost
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger.units import HOUR
from xfcost.parts.training.text import scientific

_DATA = Path(__file__).parents[1] / "tests" / "data"
# Eager, so that the backward pass is two products per product: a fused kernel computes its scores again, which
# published counts leave out.
_MODEL_FLOPS: Any = {"attention": "eager"}


class Compute(NamedTuple):
    """A line of GPT-3's table D.1 and ours."""

    model: str
    printed_params: float
    params: int
    printed_flops: float
    by_rule: float
    """6 (or 3) · printed parameters · tokens."""
    counted: int


class Spent(NamedTuple):
    """A line of the Transformer's table 2 and ours."""

    model: str
    printed_flops: float
    device_flops: float
    """Seconds · GPUs · sustained FLOP/s."""
    counted: int


def computes() -> list[Compute]:
    """Brown et al. 2020, table D.1, beside forward and backward MACs of as many tokens."""
    computed = []
    for line in _lines("training-compute.csv"):
        ledger = xfcost.analyze(
            line["preset"], N=line["N"], mode="train", tokens=line["tokens"], trace=False, **_MODEL_FLOPS
        )
        params, rule, tokens = (float(line[key]) for key in ("params", "flops_per_param_token", "tokens"))
        counted = ledger.training.run.flops
        computed.append(
            Compute(
                line["model"], params, ledger.total("params"), float(line["flops"]), rule * params * tokens, counted
            )
        )
    return computed


def times() -> list[Spent]:
    """Vaswani et al. 2017, table 2, beside the steps of §5.2 over batches of §5.1."""
    computed = []
    for line in _lines("training-time.csv"):
        tokens = int(line["steps"]) * int(line["tokens_per_step"])
        ledger = xfcost.analyze(line["preset"], N=line["N"], mode="train", tokens=tokens, trace=False, **_MODEL_FLOPS)
        # Vaswani et al. 2017, table 2, footnote 5: what the GPUs can do in that time, which is no count of the work
        budget = float(line["hours"]) * HOUR * int(line["devices"]) * float(line["rate"])
        computed.append(Spent(line["model"], float(line["flops"]), budget, ledger.training.run.flops))
    return computed


def compute_lines() -> list[dict[str, str]]:
    """The first table as text."""
    return [
        {
            "model": line.model,
            "published parameters": f"{line.printed_params / 1e6:,.0f} M",
            "ours": f"{line.params:,}",
            "difference": f"{line.params / line.printed_params - 1:+.2%}",
            "published FLOPs": scientific(line.printed_flops, 3),
            "by its rule": scientific(line.by_rule, 3),
            "counted": scientific(line.counted),
            "counted, of published": f"{line.counted / line.printed_flops - 1:+.1%}",
        }
        for line in computes()
    ]


def time_lines() -> list[dict[str, str]]:
    """The second table as text."""
    return [
        {
            "model": line.model,
            "published": scientific(line.printed_flops, 2),
            "hours · GPUs · sustained": scientific(line.device_flops),
            "counted": scientific(line.counted),
            "counted, of what the GPUs sustain": f"{line.counted / line.device_flops:.0%}",
        }
        for line in times()
    ]


def optimizer_lines() -> list[dict[str, Any]]:
    """The table of optimizers."""
    return [
        {
            "optimizer": f"`{name}`",
            "numbers of state per parameter": "rows + columns of a matrix" if known.numbers is None else known.numbers,
            "FLOPs of an update per parameter": known.flops,
            "source": known.source,
        }
        for name, known in OPTIMIZERS.items()
    ]


def _lines(name: str) -> list[dict[str, str]]:
    with (_DATA / name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
