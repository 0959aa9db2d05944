"""The costs at every N of a page's slider: the counted integers, and one closed form wherever formulas have one."""

from __future__ import annotations

import math

import pytest

from xfcost.api.runs import make_run
from xfcost.counting.size_forms import BY_KIND, OWN_OPERATIONS, TOTAL, size_forms
from xfcost.counting.sweep import default_span, size_list
from xfcost.counting.system import CURVES, SpecSystem
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.operation import KINDS
from xfcost.spec.load import load

# preset: how many forms its MACs have over the default range of N, and how the form of the own N reads
BY_HAND = {
    "vit-s8": (1, "9,216·N² + 21,325,824·N + 21,626,880"),
    "llama3-8b": (1, "262,144·N² + 7,504,658,432·N"),
    "swin-t": (1, None),  # padded windows: ⌈s/min(7, s)⌉
    "gpt2": (2, "18,432·N² + 123,532,032·N"),  # beyond 1,024 positions there is none
    "transformer-base": (1, "18,432·N² + 62,984,192·N"),
    "mvit-b-16": (1, None),
    "bigbird-base": (None, None),  # few tokens: other operations
    "common-routing": (None, None),  # √N clusters: the integers themselves
    "axial-transformer-imagenet64": (None, None),
}


def found(name, **options):
    system, run = SpecSystem(load(name, ())), make_run(**options)
    own = system.ledger(run)
    tokens = size_list([system], run, [own.metadata.grid_tokens], default_span([own.metadata.grid_tokens]))
    return system, run, tokens, size_forms(system, run, tokens, own)


def ledger_at(system, run, n):
    try:
        return system.ledger(run._replace(tokens=(n,)))
    except (SpecError, UsageError):
        return None


@pytest.mark.parametrize("name", BY_HAND)
def test_at_every_n_the_forms_give_what_is_counted_there(name):
    system, run, tokens, forms = found(name)
    assert len(tokens) > 40
    paths = {row.path for row in system.ledger(run).rows}
    for place in range(0, len(tokens), 7):
        ledger = ledger_at(system, run, tokens[place])
        totals = {quantity: forms.value((TOTAL, quantity), place) for quantity in CURVES}
        if ledger is None:
            assert set(totals.values()) == {None}
            continue
        assert totals == {quantity: curve(ledger) for quantity, curve in CURVES.items()}
        for kind in KINDS:
            for quantity in BY_KIND:
                counted = ledger.total(quantity, lambda row, kind=kind: row.mixing == kind)
                assert forms.value((kind, quantity), place) == (counted or 0)
        same = {row.path: row.mixing for row in ledger.rows}.keys() == paths and forms.value(OWN_OPERATIONS, place)
        for row in ledger.rows if same else ():
            if row.macs:
                assert forms.value((row.path, "macs"), place) == row.macs * row.times


@pytest.mark.parametrize(("name", "expected"), BY_HAND.items(), ids=BY_HAND)
def test_a_spec_has_as_few_forms_as_its_formulas(name, expected):
    system, run, tokens, forms = found(name)
    pieces, text = expected
    if pieces is not None:
        assert len(forms.pieces[TOTAL, "macs"]) == pieces
    own = tokens.index(system.ledger(run).metadata.grid_tokens)
    if text is not None:
        assert forms.form_text((TOTAL, "macs"), own) == text
    assert len(forms.letters) == len(tokens)


def test_where_other_operations_run_the_totals_stand_and_the_operations_do_not():
    system, run, tokens, forms = found("bigbird-base")
    others = [place for place in range(len(tokens)) if forms.value(OWN_OPERATIONS, place) == 0]
    assert others
    scores = next(row.path for row in system.ledger(run).rows if row.macs)
    assert {forms.value((scores, "macs"), place) for place in others} == {None}
    assert None not in {forms.value((TOTAL, "macs"), place) for place in others}


def test_a_form_of_a_single_n_is_the_count_itself():
    _, _, tokens, forms = found("common-routing")
    pieces = [*forms.pieces[TOTAL, "macs"]]
    ends = [*(piece.first for piece in pieces[1:]), len(tokens)]
    alone = [piece for piece, end in zip(pieces, ends, strict=True) if end == piece.first + 1]
    assert len(alone) > 50
    assert all(product == () for piece in alone for product, _ in piece.form)


def test_a_decode_step_has_forms_too():
    system, run, tokens, forms = found("llama3-8b", mode="decode")
    assert len(forms.pieces[TOTAL, "cache_bytes"]) == 1
    ledger = system.ledger(run._replace(tokens=(tokens[-1],)))
    assert forms.value((TOTAL, "cache_bytes"), len(tokens) - 1) == ledger.cached_bytes


def test_images_have_square_grids_and_texts_round_lengths():
    _, _, tokens, _ = found("vit-s8")
    assert tokens == [side * side for side in range(7, 225)]
    _, _, tokens, _ = found("llama3-8b")
    assert {512, 8192, 524_288} <= set(tokens)
    assert all(n % 32 == 0 for n in tokens)
    both = [SpecSystem(load(name, ())) for name in ("vit-s8", "gpt2")]
    listed = size_list(both, make_run(), [784, 1000], (100, 2000))
    assert 1000 in listed
    assert all(math.isqrt(n) ** 2 == n for n in listed if n != 1000)
