"""Many systems at once: patterns of presets, and the overview with one line each."""

import re

import pytest

from helpers import report_text
from specs import architecture_of
from xfcost.api.analysis import compare
from xfcost.counting.forward import count
from xfcost.ledger.errors import UsageError
from xfcost.report.console import plain_text
from xfcost.spec.load import expanded, preset_names
from xfcost.views.compare import document


def test_a_pattern_stands_for_the_presets_that_match_it() -> None:
    swins = [name for name in preset_names() if name.startswith("swin-")]
    assert len(swins) > 4
    assert expanded(["vit", "swin-*"]) == ["vit", *swins]
    assert expanded(["swin-t", "swin-*"]) == ["swin-t", *(name for name in swins if name != "swin-t")]
    assert expanded(["vit-s?"]) == ["vit-s8"]
    assert expanded(["./odd*name.yaml"]) == ["./odd*name.yaml"]  # a path stays a path
    with pytest.raises(UsageError, match=r"nothing-\*: no preset matches"):
        expanded(["vit", "nothing-*"])


def test_a_pattern_stands_for_the_published_models_that_match_it() -> None:
    found = compare("qwen3-?.?b", mode="decode", N=4096)
    # 28 layers · 2 · 8 heads · 128 · 2 bytes a token, of both: they differ in width alone
    assert [ledger.cache.bytes for ledger in found.ledgers] == [28 * 2 * 8 * 128 * 2 * 4096] * 2


def macs(preset: str, n: int) -> int:
    return count(architecture_of(preset, tokens=(n,)), orders=False).total("macs") or 0


def test_where_fewer_macs_than_the_firsts_were_seen_first_is_named_in_the_line() -> None:
    others = ("linear", "bigbird", "sliding", "conv", "memory-tokens", "blockwise")
    comparison = compare("common-full", *(f"common-{one}" for one in others), "common-full", N=4096)
    text = report_text(comparison)
    cells = dict(re.findall(r"^(common-\S+) .*  (at [\d,]+\*?|at \w+ counted|–) *$", text, re.MULTILINE))
    assert set(cells) >= {f"common-{one}" for one in others}
    # Equal to 704 tokens and dearer to 710; blocks of a sliding window: a step up after 1,024 tokens
    assert (cells["common-bigbird"], cells["common-sliding"]) == ("at 711", "at 950*")
    assert (cells["common-conv"], cells["common-memory-tokens"]) == ("at all counted", "at none counted")
    assert re.search(r"^Full attention #2 .*  equal at all *$", text, re.MULTILINE)
    searches = {one.systems[1]: one for one in comparison.searches}
    for name, ledger in zip(comparison.names[1:], comparison.ledgers[1:], strict=True):
        preset = ledger.metadata.source
        orders = [one for one in searches[name].orders if one.quantity == "macs"]
        for order in orders:
            for n in (order.first, order.last):
                here, first = macs(preset, n), macs("common-full", n)
                assert order.cheaper == (None if here == first else name if here < first else comparison.names[0])
        named = re.fullmatch(r"at ([\d,]+)\*?", cells.get(preset, ""))
        if named:
            n = int(named[1].replace(",", ""))
            assert macs(preset, n) < macs("common-full", n)
            assert macs(preset, n - 1) >= macs("common-full", n - 1)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_the_overview_fits_any_screen(width: int) -> None:
    comparison = compare("vit-s16", "swin-*", N=784)
    text = plain_text(lambda _: document(comparison).terminal(width))
    table = text.split("\n\n")[1].partition("\nColumns left out")[0]
    assert all(len(line.rstrip()) <= width for line in table.splitlines())
    assert "MACs" in table
