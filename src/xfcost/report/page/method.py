"""The notes on method: what the numbers are, how they were counted and checked."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.report.crossovers import search_text
from xfcost.report.input_description import default_notes
from xfcost.report.page.content import PageContent
from xfcost.report.table import CONVENTION


def method_notes(content: PageContent) -> Iterator[str]:
    """Conventions, how the forms were made, which versions counted."""
    comparison = content.comparison
    yield f"{CONVENTION}."
    yield from (f"{note}." for note in default_notes(ledger.metadata for ledger in comparison.ledgers))
    if any(ledger.module is None for ledger in comparison.ledgers):
        yield (
            "Specs are counted in closed form: every operation has a formula, evaluated in whole numbers. "
            "--trace checks them operation by operation on the real torch model."
        )
    if any(ledger.module is not None for ledger in comparison.ledgers):
        yield (
            "Torch modules are counted by what they run: every ATen operation of one pass; at other N from "
            "polynomials through several counts, or by another count."
        )
    yield (
        "Attention memory is that of the attention matrices saved for training in all layers; parameters and MACs "
        "are of the whole batch and of all blocks."
    )
    if not isinstance(content.sizes, str):
        yield (
            "The closed forms are read from the same formulas. Each was compared with a count at every N of the "
            "slider; where an operation follows no such form, the counted integers themselves are in the page."
        )
    for searched in dict.fromkeys(search_text(one) for one in comparison.searches):
        yield f"Crossovers were looked for {searched}."
    sources = (
        f"{name}: {ledger.metadata.source}" + "".join(f" --set {one}" for one in ledger.metadata.settings)
        for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
    )
    yield f"Sources: {'; '.join(sources)}."
    versions = {
        f"{name} {version}" for ledger in comparison.ledgers for name, version in ledger.metadata.versions.items()
    }
    yield f"Versions: {', '.join(sorted(versions))}."
