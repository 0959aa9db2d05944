"""`xfcost layers`: the layer-type table against patterns and MACs by hand, and the print."""

import json

import pytest
import torch
from torch import nn

from helpers import table_of
from modules import Call
from xfcost.counting.layer_types import LAYER_TYPES, LayerSizes, layers_until_met
from xfcost.questions.tables.answer import layer_types
from xfcost.questions.tables.layers_text import document
from xfcost.torch_models.accounts import longest_chain

BY_TITLE = {one.title: one for one in LAYER_TYPES}


@pytest.fixture(scope="module")
def table():
    return layer_types(N=64, d=16, k=3, r=7)


@pytest.fixture(scope="module")
def lines(table):
    return {line.title: line for line in table.lines}


def neighbours(title, token, layer, sizes):
    """What a token of a layer of a stack reads, by hand."""
    if title == "Self-attention":
        return range(sizes.n)
    if title == "Recurrent":
        return range(token + 1)
    if title in {"Convolutional, dilated", "Convolutional, with 1×1"}:
        taps = {token - tap * sizes.k**layer for tap in range(sizes.k)}
        return [tap for tap in taps if tap >= 0]
    half = (sizes.r if "restricted" in title else sizes.k) // 2
    return range(max(0, token - half), min(sizes.n, token + half + 1))


def by_hand(title, sizes):
    """Layers until the sets of all tokens are whole, one token after the other."""
    causal = title in {"Recurrent", "Convolutional, dilated", "Convolutional, with 1×1"}
    met = [{token} for token in range(sizes.n)]
    whole = [set(range(token + 1 if causal else sizes.n)) for token in range(sizes.n)]
    layers = 0
    while met != whole:
        reads = [neighbours(title, token, layers, sizes) for token in range(sizes.n)]
        met = [set().union(*(met[one] for one in read)) for read in reads]
        layers += 1
    return layers


@pytest.mark.parametrize("sizes", [LayerSizes(9, 4, 3, 5), LayerSizes(28, 4, 3, 9), LayerSizes(26, 4, 5, 25)], ids=str)
@pytest.mark.parametrize("title", BY_TITLE)
def test_paths_are_those_of_sets_composed_by_hand(title, sizes):
    assert layers_until_met(BY_TITLE[title], sizes) == by_hand(title, sizes)


def closed_form(order, sizes):
    """The path that the formulas of `layer_types.PATHS` give."""
    if order == "O(1)":
        return 1
    if order == "O(n)":
        return sizes.n
    if order in {"O(n/k)", "O(n/r)"}:
        width = sizes.k if order == "O(n/k)" else sizes.r
        return -(-2 * (sizes.n - 1) // (width - 1))
    layers, width = 0, 1
    while width < sizes.n:
        layers, width = layers + 1, width * sizes.k
    return layers


@pytest.mark.parametrize(
    "sizes", [LayerSizes(81, 4, 3, 9), LayerSizes(82, 4, 3, 11), LayerSizes(700, 4, 5, 31)], ids=str
)
def test_paths_follow_their_closed_forms(sizes, lines):
    for title, layer_type in BY_TITLE.items():
        steps = sizes.n if title == "Recurrent" else 1
        assert steps * layers_until_met(layer_type, sizes) == closed_form(lines[title].path_order, sizes), title


def test_centred_dilated_kernels_take_up_to_twice_as_many_layers():
    for n, k in ((27, 3), (82, 3), (50, 5)):
        causal = closed_form("O(logₖ(n))", LayerSizes(n, 2, k, k))
        met, layers = [{token} for token in range(n)], 0
        while min(map(len, met)) < n:
            gap = k ** (layers % causal)
            taps = [[token + tap * gap for tap in range(-(k // 2), k // 2 + 1)] for token in range(n)]
            met = [set().union(*(met[one] for one in tap if 0 <= one < n)) for tap in taps]
            layers += 1
        assert causal < layers <= 2 * causal


def test_orders_are_those_printed_but_for_the_projections(lines):
    found = {title: line.complexity for title, line in lines.items()}
    assert found == {
        "Self-attention": "O(n²·d + n·d²)",
        "Recurrent": "O(n·d²)",
        "Convolutional, dilated": "O(k·n·d²)",
        "Convolutional, contiguous": "O(k·n·d²)",
        "Convolutional, separable": "O(k·n·d + n·d²)",
        "Convolutional, with 1×1": "O(k·n·d²)",
        "Self-attention, restricted": "O(r·n·d + n·d²)",
    }
    in_part = {title for title, line in lines.items() if line.complexity_agrees is None}
    assert in_part == {"Self-attention", "Self-attention, restricted"}
    assert {line.complexity_agrees for line in lines.values()} == {True, None}
    assert {line.sequential_agrees for line in lines.values()} == {True, None}
    assert {line.path_agrees for line in lines.values()} == {True, None}


def test_macs_and_projections_by_hand(lines):
    n, d, k, r = 64, 16, 3, 7
    macs = {title: (line.macs, line.projection_macs) for title, line in lines.items()}
    assert macs["Self-attention"] == (2 * n * n * d + 4 * n * d * d, 4 * n * d * d)
    assert macs["Recurrent"] == (2 * n * d * d, n * d * d)
    assert macs["Convolutional, dilated"] == (k * n * d * d, 0)
    assert macs["Convolutional, separable"] == (k * n * d + n * d * d, n * d * d)
    assert macs["Convolutional, with 1×1"] == (n * d * d + k * n * d * d // 4, n * d * d)
    assert macs["Self-attention, restricted"] == (2 * r * n * d + 3 * n * d * d, 3 * n * d * d)
    assert (lines["Self-attention"].share, lines["Self-attention, restricted"].share) == ("2·d/n", "3/2·d/r")


def test_only_the_recurrent_module_s_chain_grows(lines):
    assert [title for title, line in lines.items() if line.chain.per_token] == ["Recurrent"]
    assert lines["Recurrent"].chain.at(64) > 64 > lines["Self-attention"].chain.at(64)


def known(x):
    """Two branches of two and one operations, joined, and written in place: 2 + 1 + 1."""
    left = x.relu().view(-1).exp()
    right = x.neg().flatten()
    return (left + right).mul_(2)


def test_a_chain_counts_what_waits_and_no_views():
    assert longest_chain(Call(known), torch.ones(2, 3)) == 4
    assert longest_chain(nn.Sequential(*[nn.ReLU()] * 5), torch.ones(2)) == 5
    assert longest_chain(nn.Identity(), torch.ones(2)) == 0


def test_formats(table):
    data = json.loads(document(table).text("json"))
    assert (data["n"], data["k"], data["r"]) == (64, 3, 7)
    by_layer = {row["layer"]: row for row in data["layers"]}
    assert by_layer["Convolutional, contiguous"]["path_length"] == 63
    rows = table_of(document(table).text("csv"))
    assert [row["layer"] for row in rows] == list(by_layer)
    assert {row["path"] for row in rows} == {"O(1)", "O(n)", "O(n/k)", "O(n/r)", "O(logₖ(n))"}
    text = document(table).text("latex")
    assert text.count(r"\begin{tabular}") == 3
    assert "$O(n^{2}\\cdot d)$" in text
    assert document(table).text("markdown").count("| layer type") == 3
