"""BERT's embeddings and head: token types, a norm over the embeddings, a pooler; by hand and beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from bert import assert_alike, put_embeddings, put_layer
from test_against_transformers import ours_of, put, scrambled, theirs_of, transformers, weights_of
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BuiltModel

VOCABULARY, POSITIONS, DIM, LENGTH = 29, 16, 12, 11


def bert(folder: Path, **run: Any) -> tuple[Architecture, BuiltModel]:
    block = [{"kind": "full", "heads": 3}, {"kind": "mlp"}]
    spec = {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": LENGTH},
        "residual": {"place": "post"},
        "embed": [
            {"kind": "token"},
            {"kind": "position", "length": POSITIONS},
            {"kind": "token_type", "types": 3},
            {"kind": "norm"},
        ],
        "stages": [{"dim": DIM, "depth": 2, "block": block}],
        "head": {"kind": "pooler"},
    }
    return ours_of(spec, folder, **run)


def copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them."""
    weights, stream = weights_of(theirs), ours.streams[0]
    put_embeddings(stream.embed, weights)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        put_layer(mixer, mlp, weights, f"encoder.layer.{number}.", mixer.inner)
    put(ours.head.linear, weights, "pooler.dense")
    assert not weights


def test_bert_with_their_weights(tmp_path: Path) -> None:
    theirs = theirs_of(
        transformers.BertConfig,
        transformers.BertModel,
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        type_vocab_size=3,
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=4 * DIM,
        layer_norm_eps=1e-5,
    )
    architecture, live = bert(tmp_path, batch=2, dtype="float64")
    theirs = scrambled(theirs.double())
    copied(theirs, live.model)
    assert_alike(theirs, architecture, live, "pooler_output")


@pytest.mark.parametrize("batch", [1, 3])
def test_every_row_is_what_the_trace_sees(batch: int, tmp_path: Path) -> None:
    architecture, live = bert(tmp_path, batch=batch)
    ledger = reconciled(count(architecture), *live)
    assert ledger.agreement is not None
    assert ledger.agreement.exact, (ledger.agreement.differences, ledger.agreement.uncounted)


def test_the_rows_by_hand(tmp_path: Path) -> None:
    rows = {row.path: row for row in count(bert(tmp_path, batch=2)[0]).rows}
    lookup, add, norm = (rows[f"embed.{path}"] for path in ("2.lookup", "2.add", "3.norm"))
    # 3·12 parameters; 2·11·12 elements looked up and as many added
    assert (lookup.params, lookup.moved, lookup.flops, add.flops) == (36, 264, 0, 264)
    # scale and shift, 2·12; 5 FLOPs for each of 2·11·12
    assert (norm.params, norm.flops) == (24, 1320)
    # 12·12 + 12 parameters, 2·12·12 MACs, twice that and 2·12 biases; tanh is 5 for each of 2·12
    assert (rows["head.linear"].params, rows["head.linear"].macs, rows["head.linear"].flops) == (156, 288, 600)
    assert rows["head.act"].flops == 120
