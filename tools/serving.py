"""Published serving figures beside our lower bounds: the tables of docs/serving.md, which tests check.

Figures with fewer bits than a run has: bytes in proportion, KV cache included, and the peak of that dtype. Where the
batch is not printed, the bound is of FLOPs alone. Batches in flight start at different times: a request's prefill may
use the weights that another one's steps read, so a whole request is bounded by all FLOPs and the bytes of its steps.
"""

from __future__ import annotations

import csv
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import xfcost
from xfcost.ledger import units
from xfcost.parts.serving.result import OnDevices, Speculation
from xfcost.spec.models import models

_DATA = Path(__file__).parents[1] / "tests" / "data"
_BITS = 16


class Served(NamedTuple):
    """A published figure and ours."""

    line: dict[str, str]
    value: float
    """In print: tokens/s, or seconds."""
    bound: float
    """Most tokens/s, or least seconds."""
    on: OnDevices
    cache_bytes_per_token: int

    @property
    def share(self) -> float:
        """What it reaches of the bound: above 1 is impossible."""
        return self.bound / self.value if self.line["unit"] == "ms" else self.value / self.bound


def served() -> list[Served]:
    """Every published figure of a preset or a published model."""
    return [_served(line) for line in _lines("serving.csv")]


class CachedFigure(NamedTuple):
    """A published size of a cache, worked out by hand, and ours."""

    line: dict[str, str]
    by_hand: int
    """Bytes: layers, tokens, heads and widths of the model's config, and the bytes of an element."""
    ours: int

    @property
    def printed(self) -> str:
        """In the unit and with the digits in print."""
        return _in_print(self.by_hand, self.line)


def caches() -> list[CachedFigure]:
    """Every published size of a cache."""
    return [CachedFigure(line, worked_out(line["by_hand"]), _cached(line)) for line in _lines("published-caches.csv")]


def worked_out(sum_of_products: str) -> int:
    """`4*32768*2+22*512*2` -> the number."""
    return sum(prod(map(int, product.split("*"))) for product in sum_of_products.split("+"))


def _cached(line: dict[str, str]) -> int:
    """Of the run with the blocks that are reserved, if there are any."""
    blocks: dict[str, Any] = {"cache_blocks": line["blocks"]} if line["blocks"] else {}
    run = {"N": line["N"], "batch": line["batch"], "mode": "decode", "on": "h200-sxm", "trace": False}
    # of a checkpoint that has another format the figures are of 16 bits too
    ledger = xfcost.analyze(line["preset"], **run, dtype="bfloat16", attention="fused", cache="none", **blocks)
    if ledger.on is None or ledger.cache is None:
        raise TypeError(f"{line['preset']}: a decode step on a device has a cache")
    memory, states = ledger.on.memory, ledger.cache.recurrent_bytes
    if line["quantity"] == "states":
        return states
    if line["quantity"].startswith("reserved"):
        return memory.held_cache - states
    return memory.cache - states


def _in_print(nbytes: int, line: dict[str, str]) -> str:
    digits = len(line["printed"].partition(".")[2])
    return f"{nbytes / {'GiB': 2**30, 'MiB': 2**20}[line['unit']]:.{digits}f}"


def cache_lines() -> list[dict[str, str]]:
    """The lines of the table of caches."""
    return [
        {
            "model": one.line["model"],
            "run": f"N {int(one.line['N']):,}, batch {one.line['batch']}"
            + (f", `--cache-blocks {one.line['blocks']}`" if one.line["blocks"] else ""),
            "quantity": one.line["quantity"],
            "published": f"{one.line['printed']} {one.line['unit']}",
            "ours": units.size(one.ours, 6),
            "difference": units.size(-int(one.line["difference"])) + " less: " + one.line["why"]
            if one.line["why"]
            else "none",
            "source": one.line["source"],
        }
        for one in caches()
    ]


class SpeculativeFigure(NamedTuple):
    """Published tokens/s of one sample with a draft and without, and our rounds."""

    line: dict[str, str]
    plain: float
    """Without a draft, in print."""
    printed: float
    """With one."""
    rounds: Speculation

    @property
    def needed(self) -> float:
        """Tokens of a round that give as many, where its passes reach the share of their bound that steps reach."""
        return self.printed / self.plain * ((self.rounds.break_even or 0) + 1)


def speculative() -> list[SpeculativeFigure]:
    """Every published figure of speculative decoding."""
    found = []
    for line in _lines("speculative.csv"):
        run = {"N": line["N"], "mode": "decode", "on": line["devices"], "trace": False, "weights": line["weights"]}
        ledger = xfcost.analyze(line["target"], **run, draft=line["draft"], draft_tokens=line["drafted"])
        if ledger.speculation is None:
            raise TypeError(f"{line['target']}: a run with a draft has rounds")
        found.append(SpeculativeFigure(line, float(line["plain"]), float(line["printed"]), ledger.speculation))
    return found


def speculative_lines() -> list[dict[str, str]]:
    """The lines of the table of speculative decoding."""
    found = []
    for one in speculative():
        bounds = [one.rounds.with_accepted(drafted) for drafted in (0, one.rounds.draft_tokens)]
        steps = (bounds[0].tokens_per_second or 0) / (bounds[0].speed_up or 1)
        found.append(
            {
                "target and draft": f"{one.line['target']}, {one.line['draft']}",
                "device": f"1 × {one.line['devices']}",
                "without a draft": f"{one.plain:.4g} tokens/s ({100 * one.plain / steps:.0f} % of the bound)",
                "with one": f"{one.printed:.4g} tokens/s",
                "bound if all are accepted": f"{units.count(bounds[1].tokens_per_second, 3)} tokens/s",
                "tokens per round": f"{one.needed:.2f} of {one.rounds.draft_tokens + 1}",
                "source": f"{one.line['source']}; {one.line['note']}",
            }
        )
    return found


def left_out() -> dict[str, list[str]]:
    """Why -> the published figures that are left out."""
    found: dict[str, list[str]] = {}
    for line in _lines("serving-left-out.csv"):
        found.setdefault(line["why"], []).append(line["id"])
    return found


def _served(line: dict[str, str]) -> Served:
    generates = line["mode"] == "generate"
    options: dict[str, Any] = {"N": line["N"], "batch": line["batch"]}
    if line["preset"] not in models():  # whose counts are in 16 bits too
        options |= {"dtype": "float16" if line["peak"] == "float16" else "bfloat16", "attention": "fused"}
    options |= {"new_tokens": line["new_tokens"]} if generates else {}
    on = f"{line['device']}x{line['devices']}"
    settings = line["settings"].split()
    ledger = xfcost.analyze(
        line["preset"], settings=settings, mode=line["mode"], on=on, trace=False, weights="none", **options
    )
    found = ledger.on
    seconds = _seconds(found, line)
    in_print = float(line["value"]) / 1000 if line["unit"] == "ms" else float(line["value"])
    bound = seconds if line["unit"] == "ms" else found.outputs / seconds
    return Served(line, in_print, bound, found, ledger.cache.bytes_per_token)


def _seconds(found: OnDevices, line: dict[str, str]) -> float:
    """The least seconds, at the bits and the peak of the figure."""
    steps = [part for part in found.phases if part.name == "decode"]
    moved = sum(part.time.bytes for part in steps) if steps else found.time.bytes
    compute = found.time.flops / found.on.peak(line["peak"])
    memory = moved * int(line["bits"]) / _BITS / found.on.bytes_per_second
    return compute if line["compute_only"] else max(compute, memory)


def served_lines() -> list[dict[str, str]]:
    """The table as text."""
    return [
        {
            "model": one.line["model"],
            "devices": f"{one.line['devices']} × {one.line['device']}",
            "run": _run(one.line),
            "published": _value(one, one.value),
            "bound": f"{_value(one, one.bound)}{' (FLOPs)' if one.line['compute_only'] else ''}",
            "of bound": f"{100 * one.share:.0f} %"
            + (" **impossible**" if one.share > 1 and one.line["what"] == "impossible" else ""),
            "source": one.line["source"].partition(" benchmark tables")[0],
        }
        for one in served()
    ]


def _run(line: dict[str, str]) -> str:
    batch = "batch not printed" if line["compute_only"] else f"batch {line['batch']}"
    length = f"{line['N']} + {line['new_tokens']}" if line["new_tokens"] else f"N {line['N']}"
    what = {"generate": "request", "prefill": "first token", "decode": "decode"}[line["mode"]]
    return f"{what}, {batch}, {length}, {line['bits']} bits"


def _value(one: Served, value: float) -> str:
    return units.seconds(value) if one.line["unit"] == "ms" else f"{units.count(value, 3)} tokens/s"


def left_out_lines() -> list[dict[str, str]]:
    """What is left out, and why."""
    return [{"why": why, "figures": ", ".join(f"`{one}`" for one in names)} for why, names in left_out().items()]


def _lines(name: str) -> list[dict[str, str]]:
    with (_DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
