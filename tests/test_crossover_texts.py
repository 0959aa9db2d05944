"""What `compare` prints of crossovers, held against the count: at every N of a named range, at every named point."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import pytest

import xfcost
from specs import architecture_of
from xfcost.counting.comparison import Comparison
from xfcost.counting.forward import count
from xfcost.counting.system import CURVES
from xfcost.report.compare import comparison_plain

WORDS = {"MACs": "macs", "mixing MACs": "mixing_macs", "attention memory": "attention_bytes"}
# A range that is named without its end is held at so many N.
OPEN_RANGE = 600
TEXTS = [
    ("common-full", "common-reformer"),
    ("common-full", "common-longformer"),
    ("common-full", "common-nystrom"),
    ("common-full", "common-bigbird"),
    ("common-full", "common-sliding"),
]
IMAGES = [("resnet-50", "swin-t", "convnext-t"), ("swin-t", "swinv2-t-w8-256")]


class Claim(NamedTuple):
    """From `first` to `last`, `cheaper` costs less; None: both cost the same."""

    quantity: str
    systems: tuple[str, str]
    cheaper: str | None
    first: int
    last: int


@cache
def costs(preset: str, n: int) -> dict[str, int] | None:
    try:
        ledger = count(architecture_of(preset, tokens=(n,)), orders=False)
    except xfcost.XfcostError:
        return None
    return {name: curve(ledger) for name, curve in CURVES.items()}


def order_lines(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """(quantity, text) of every line below the heading of crossovers at equal N."""
    text = comparison_plain(comparison).partition("crossovers at equal N")[2].split("\n\n")[0]
    text = text.partition("crossovers at equal image sizes")[0]
    for part in re.split(r"\n  (?=MACs: |mixing MACs: |attention memory: )", text)[1:]:
        quantity, _, told = " ".join(part.split()).partition(": ")
        yield WORDS[quantity], told


def number(text: str) -> int:
    return int(text.replace(",", ""))


def claims(comparison: Comparison, quantity: str, told: str) -> Iterator[Claim]:
    """What a line says of points and ranges; of every N in it, something is said."""
    search = next(one for one in comparison.searches if all(name in told for name in one.systems))
    first, second = search.systems
    both = re.escape(f"{first} and {second} are equal")
    who = rf"(?P<who>{both}|equal|{re.escape(first)}|{re.escape(second)})(?: costs less)?"
    claim = re.compile(rf"{who} (?P<how>up to|at|from) N = (?P<from>[\d,]*\d)(?: to N = (?P<to>[\d,]*\d))?")
    for found in claim.finditer(told):
        at = number(found["from"])
        last = number(found["to"]) if found["to"] else at + OPEN_RANGE if found["how"] == "from" else at
        cheaper = found["who"] if found["who"] in search.systems else None
        yield Claim(quantity, search.systems, cheaper, search.first if found["how"] == "up to" else at, last)
    rest = re.sub(r"the order changes \d+ times up to N = [\d,]+\d", "", claim.sub("", told))
    assert "N =" not in rest, rest


def cheaper(claim: Claim, presets: dict[str, str], n: int) -> tuple[str | None] | None:
    """Which of the two costs less at N; nothing where one of them can't have it."""
    here = [costs(presets[name], n) for name in claim.systems]
    if here[0] is None or here[1] is None:
        return None
    one, other = (here[0][claim.quantity], here[1][claim.quantity])
    return (None if one == other else claim.systems[one > other],)


@pytest.mark.parametrize("systems", [*TEXTS, *IMAGES], ids="-".join)
def test_what_is_said_of_an_n_or_a_range_is_true_of_every_n_of_it(systems: tuple[str, ...]) -> None:
    comparison = xfcost.compare(*systems, N=None if systems in IMAGES else 4096)
    presets = dict(zip(comparison.names, systems, strict=True))
    held = 0
    for quantity, told in order_lines(comparison):
        for claim in claims(comparison, quantity, told):
            for n in range(claim.first, claim.last + 1):
                if systems in IMAGES and round(n**0.5) ** 2 != n:
                    continue
                found = cheaper(claim, presets, n)
                assert found in (None, (claim.cheaper,)), (claim, n)
                held += found is not None
    assert held > 0


def test_a_change_seen_on_the_way_is_told_with_both_its_neighbours() -> None:
    # 64 landmarks stand for whole segments: 256 tokens need no padding, 257 are padded to 320.
    comparison = xfcost.compare("common-full", "common-nystrom", N=4096)
    told = dict(order_lines(comparison))["attention_bytes"]
    assert "Nyströmformer · common at N = 256, Full attention · common at N = 257" in told


def test_ties_are_said_as_ties() -> None:
    told = dict(order_lines(xfcost.compare("common-full", "common-reformer", N=300)))["mixing_macs"]
    assert "Full attention · common and Reformer (LSH) · common are equal up to N = 64" in told
    assert "Full attention · common at N = 511, equal at N = 512, Full attention · common at N = 513" in told
    words = " ".join(comparison_plain(xfcost.compare("resnet-50", "convnext-t")).split())
    assert re.search(r"attention memory: ResNet-50 and ConvNeXt-T are equal at all \d+ counted", words)


def test_of_many_changes_it_is_told_at_how_many_which_costs_less() -> None:
    comparison = xfcost.compare("resnet-50", "convnext-t")
    told = dict(order_lines(comparison))["macs"]
    sides = [side for side in range(1, 65) if costs("resnet-50", side**2) and costs("convnext-t", side**2)]
    claim = Claim("macs", comparison.names, None, 1, 1)  # type: ignore[arg-type]
    presets = {"ResNet-50": "resnet-50", "ConvNeXt-T": "convnext-t"}
    orders = [(cheaper(claim, presets, side**2) or (None,))[0] for side in sides]
    changes = sum(before != after for before, after in pairwise(orders))
    points = Counter(orders)
    assert changes > 3
    assert (
        f"then the order changes {changes} times up to N = 4,096 (ResNet-50 at {points['ResNet-50']}, ConvNeXt-T at "
        f"{points['ConvNeXt-T']} of {len(sides)})"
    ) in told
