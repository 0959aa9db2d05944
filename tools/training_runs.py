"""Published training runs beside ours: tables of docs/training-runs.md, which tests check.

A run's model is a preset or one with overrides (tests/data/training-runs/*.csv, each row with its source). Model FLOPs
per token are counted; a printed throughput over a peak makes an MFU of them, and device-hours an implied one.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from xfcost.api.runs import make_run
from xfcost.counting.system import AccountOptions
from xfcost.ledger.units import DAY, HOUR
from xfcost.parts.training.plan import all_recomputed_macs
from xfcost.parts.training.text import scientific
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem

_DATA = Path(__file__).parents[1] / "tests" / "data" / "training-runs"
_TERA = 1e12
# A run's tokens, to have whole steps of each length.
_TOKENS = 2**40


class Counts(NamedTuple):
    """FLOPs of training one token."""

    params: int
    active: int
    """Parameters that one token uses."""
    exact: float
    """Twice the MACs, forward and backward, of every product."""
    by_palm: float
    """6·N + 12·L·H·Q·T (Chowdhery et al. 2022, App. B), attention counted."""
    attention: float
    """The part of both in products of two activations."""
    again: float
    """What full recomputation adds to `exact`, as a share."""


class Row(NamedTuple):
    """A published run and what we count of it."""

    published: dict[str, str]
    counts: Counts

    def number(self, name: str) -> float | None:
        """A published figure."""
        text = self.published.get(name, "")
        return float(text) if text else None

    def mfu(self, flops_per_token: float) -> float | None:
        """Per cent of the peak, at the published speed."""
        speed, peak = self.number("tokens_per_second"), self.number("peak")
        return None if speed is None or peak is None else 100 * flops_per_token * speed / (peak * _TERA)


@cache
def counts(preset: str, settings: str, length: str) -> Counts:
    """What training one token costs."""
    run = make_run(mode="train", attention="eager", N=length or None, tokens=_TOKENS)
    overrides = tuple(text for text in settings.split("; ") if text)
    ledger = SpecSystem(load(preset, overrides)).account(run, AccountOptions(orders=False))
    if ledger.training is None or ledger.training.run is None:
        raise AssertionError("a training run was asked for")
    step, whole = ledger.training.step, ledger.training.run
    tokens = whole.steps * (step.tokens or 0)
    return Counts(
        params=ledger.total("params") or 0,
        active=ledger.total("active_params") or 0,
        exact=whole.flops / tokens,
        by_palm=(whole.estimate / whole.tokens) + whole.without_params_flops / tokens,
        attention=whole.without_params_flops / tokens,
        again=2 * sum(map(all_recomputed_macs(ledger, "full"), ledger.rows)) / step.model_flops,
    )


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The rows of `runs.csv` or `throughput.csv`."""
    with (_DATA / name).open(encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    return tuple(Row(line, counts(line["preset"], line.get("set") or "", line.get("N") or "")) for line in lines)


def _printed(row: Row, name: str, unit: str = "") -> str:
    value = row.number(name)
    return "–" if value is None else f"{value:.6g}{unit}"


def per_token_lines() -> list[dict[str, str]]:
    """Published FLOPs of one token, and ours."""
    return [
        {
            "model": row.published["model"],
            "N": row.published["N"],
            "published": f"{(row.number('flops_per_token') or 0) / 1e9:.5g} G",
            "6·N + attention": f"{row.counts.by_palm / 1e9:.5g} G",
            "counted": f"{row.counts.exact / 1e9:.5g} G",
            "counted, causal half": f"{(row.counts.exact - row.counts.attention / 2) / 1e9:.5g} G",
            "source": row.published["source"],
        }
        for row in rows("runs.csv")
        if row.number("flops_per_token")
    ]


def utilisation_lines() -> list[dict[str, str]]:
    """Published MFU beside those that the published speed makes of our FLOPs."""
    found = []
    for row in rows("runs.csv"):
        speed = row.published["speed"]
        if not (row.number("mfu") or row.number("hfu")) or not speed or speed in ("device-hours", "days x devices"):
            continue
        exact, palm = row.mfu(row.counts.exact), row.mfu(row.counts.by_palm)
        again = row.counts.again if row.published["recompute"] == "full" else None
        found.append(
            {
                "run": row.published["id"],
                "published speed": speed,
                "published MFU": _printed(row, "mfu"),
                "6·N + attention": f"{palm:.2f}",
                "counted": f"{exact:.2f}",
                "published HFU": _printed(row, "hfu"),
                "HFU, full recomputation": "–" if again is None else f"{(exact or 0) * (1 + again):.2f}",
                "source": row.published["source"],
            }
        )
    return found


def throughput_lines() -> list[dict[str, str]]:
    """llm-foundry's tables by model: how far our MFU is from theirs."""
    models: dict[str, list[Row]] = {}
    for row in rows("throughput.csv"):
        models.setdefault(row.published["model"], []).append(row)
    return [
        {
            "model": model,
            "rows": str(len(group)),
            "parameters": "equal" if all(row.counts.params == row.number("params") for row in group) else "differ",
            "N": " to ".join(f"{end(int(row.published['N']) for row in group):,}" for end in (min, max)),
            "published MFU": _range([row.number("mfu") or 0 for row in group]),
            "6·N + attention, points off": f"{max(abs(off(row, row.counts.by_palm)) for row in group):.2f}",
            "counted, points off": f"{max(abs(off(row, row.counts.exact)) for row in group):.2f}",
        }
        for model, group in models.items()
    ]


def off(row: Row, flops_per_token: float) -> float:
    """Points between our MFU and the printed one."""
    return (row.mfu(flops_per_token) or 0) - (row.number("mfu") or 0)


def _range(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f} %"


def days(row: Row) -> float:
    """Days of a run at the printed FLOP/s of a device, which count full recomputation."""
    flops = row.counts.exact * (1 + row.counts.again) * (row.number("tokens") or 0)
    return flops / ((row.number("devices") or 0) * (row.number("tflops") or 0) * _TERA) / DAY


def day_lines() -> list[dict[str, str]]:
    """Published days of Narayanan et al. 2021, and ours."""
    return [
        {
            "run": row.published["id"],
            "devices": row.published["devices"],
            "TFLOP/s of a device": row.published["tflops"],
            "published days": row.published["days"],
            "ours": f"{days(row):.1f}",
            "source": row.published["source"],
        }
        for row in rows("runs.csv")
        if row.published["kind"] == "prediction" and row.number("days")
    ]


def compute_lines() -> list[dict[str, str]]:
    """Total published FLOPs; 6·N·D with our parameters; ours."""
    found = []
    for row in rows("runs.csv"):
        printed, tokens = row.number("train_flops"), row.number("tokens")
        if printed is None or tokens is None:
            continue
        rule = (3 if "t5" in row.published["id"] else 6) * row.counts.active * tokens
        found.append(
            {
                "row": row.published["id"],
                "published parameters": f"{(row.number('params') or 0) / 1e9:.4g} B",
                "ours": f"{row.counts.params / 1e9:.4g} B",
                "published FLOPs": scientific(printed, 3),
                "6·N·D": scientific(rule, 3),
                "counted": scientific(row.counts.exact * tokens, 3),
                "source": row.published["source"],
            }
        )
    return found


def implied_lines() -> list[dict[str, str]]:
    """The MFU that published device-hours imply: a floor, since hours hold restarts, evaluation, other stages."""
    return [
        {
            "run": row.published["id"],
            "device-hours": f"{_hours(row):,.0f}",
            "by 6·N·D": f"{row.mfu(6 * row.counts.active):.1f} %",
            "counted": f"{row.mfu(row.counts.exact):.1f} %",
            "published MFU": _printed(row, "mfu", " %"),
            "source": row.published["source"],
        }
        for row in rows("runs.csv")
        if row.published["speed"] in ("device-hours", "days x devices") and row.number("peak")
    ]


def _hours(row: Row) -> float:
    hours = row.number("device_hours")
    return hours if hours is not None else (row.number("days") or 0) * (row.number("devices") or 0) * DAY / HOUR


def size_lines() -> list[dict[str, str]]:
    """Parameters of the rows that print nothing else to compare."""
    compared = {"flops_per_token", "tokens_per_second", "train_flops"}
    return [
        {
            "row": row.published["id"],
            "published": f"{(row.number('params') or 0) / 1e9:.4g} B",
            "ours": f"{row.counts.params / 1e9:.4g} B",
            "source": row.published["source"],
        }
        for row in rows("runs.csv")
        if not any(row.number(name) for name in compared) and row.published["kind"] != "prediction"
    ]


def left_out() -> list[dict[str, str]]:
    """Rows of the collected figures that no table has, each with why."""
    with (_DATA / "left-out.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def left_out_lines() -> list[dict[str, str]]:
    """The same, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in left_out():
        reasons.setdefault(row["why"], []).append(row["id"])
    return [
        {"rows": str(len(ids)), "of them": ", ".join(ids[:3]) + (", …" if len(ids) > 3 else ""), "why": why}  # noqa: PLR2004
        for why, ids in reasons.items()
    ]
