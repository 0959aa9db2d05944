"""Swin, RegNetY, EfficientNet and DeiT: Table 1(a) of Swin's paper and our counts, printed into docs/vision.md.

Each model is counted in closed form, and its real model is traced with every block twice at most; the table is refused
where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from specs import thinned
from xfcost.counting.forward import count
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import MIXINGS
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import traced


class Printed(NamedTuple):
    """One line of Liu et al. 2021, Table 1(a): regular ImageNet-1K training."""

    name: str
    preset: str
    side: int
    """Of the image."""
    params: int
    """In millions."""
    macs: str
    """In G, with the paper's digits; it calls them FLOPs."""
    images: str
    """Per second on a V100; this and the accuracy are figures that no count gives."""
    top1: str
    """Accuracy on ImageNet-1K in percent."""


TABLE: Final = (
    Printed("RegNetY-4G", "regnety-4.0gf", 224, 21, "4.0", "1156.7", "80.0"),
    Printed("RegNetY-8G", "regnety-8.0gf", 224, 39, "8.0", "591.6", "81.7"),
    Printed("RegNetY-16G", "regnety-16gf", 224, 84, "16.0", "334.7", "82.9"),
    Printed("EffNet-B3", "efficientnet-b3", 300, 12, "1.8", "732.1", "81.6"),
    Printed("EffNet-B4", "efficientnet-b4", 380, 19, "4.2", "349.4", "82.9"),
    Printed("EffNet-B5", "efficientnet-b5", 456, 30, "9.9", "169.1", "83.6"),
    Printed("EffNet-B6", "efficientnet-b6", 528, 43, "19.0", "96.9", "84.0"),
    Printed("EffNet-B7", "efficientnet-b7", 600, 66, "37.0", "55.1", "84.3"),
    Printed("DeiT-S", "deit-s", 224, 22, "4.6", "940.4", "79.8"),
    Printed("DeiT-B", "deit-b", 224, 86, "17.5", "292.3", "81.8"),
    Printed("DeiT-B", "deit-b-384", 384, 86, "55.4", "85.9", "83.1"),
    Printed("Swin-T", "swin-t", 224, 29, "4.5", "755.2", "81.3"),
    Printed("Swin-S", "swin-s", 224, 50, "8.7", "436.9", "83.0"),
    Printed("Swin-B", "swin-b", 224, 88, "15.4", "278.1", "83.5"),
    Printed("Swin-B", "swin-b-384", 384, 88, "47.0", "84.7", "84.5"),
)


def lines() -> Iterator[dict[str, str]]:
    """One per model of the paper's table, in its order."""
    for printed in TABLE:
        ledger = ran(printed.preset)
        params, macs = ledger.total("params") or 0, ledger.total("macs") or 0
        yield {
            "model": printed.name,
            "preset": f"`{printed.preset}`",
            "image": f"{printed.side}²",
            "params, printed": f"{printed.params}M",
            "params": f"{params:,}",
            "MACs, printed": f"{printed.macs}G",
            "MACs": f"{macs:,}",
            "ours over printed": f"{100 * (macs / (float(printed.macs) * 1e9) - 1):+.2f} %",
            **{kind: f"{share:.1f} %" for kind, share in shares(ledger).items()},
            "mixing weights": "by content" if by_content(ledger) else "static",
            "at twice the side": f"{at_twice_the_side(printed) / macs:.2f}×",
            "images/s, printed": printed.images,
            "top-1, printed": f"{printed.top1} %",
        }


def ran(preset: str) -> Ledger:
    """The counted ledger of a preset, whose real model's trace agrees.

    Raises:
        AssertionError: the accounts differ.
    """
    architecture = place(load(preset), Run())
    shallow = thinned(architecture)
    agreement = traced(shallow, count(shallow)).agreement
    if agreement is None or not agreement.exact:
        raise AssertionError(f"{preset}: {agreement}")
    return count(architecture)


def shares(ledger: Ledger) -> dict[str, float]:
    """Percent of the MACs by mixing kind."""
    macs = ledger.total("macs") or 0
    groups = ledger.by("mixing")
    return {kind: 100 * (ledger.part(groups[kind]).total("macs") or 0) / macs for kind in MIXINGS}


def by_content(ledger: Ledger) -> bool:
    """Does a row that mixes by multiplying have weights that depend on the content?"""
    return any(row.mixes and row.macs and row.content_dependent for row in ledger.rows)


def at_twice_the_side(printed: Printed) -> int:
    """MACs of an image of twice the side, four times the pixels."""
    side = 2 * printed.side
    return count(place(load(printed.preset), Run(size=(side, side)))).total("macs") or 0
