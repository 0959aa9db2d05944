"""BERT's heads of pre-training: what is refused, and all of BERT beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import transformers_models as hf
from strategies import exact
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.layers.masked_language_model import MaskedLanguageModel
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.torch_models.accounts import reconciled

VOCABULARY, DIM, LENGTH = 29, 12, 11


def spec(**head: Any) -> dict[str, Any]:
    return {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": LENGTH},
        "residual": {"place": "post"},
        "embed": [
            {"kind": "token", "share": "embedding"},
            {"kind": "position", "length": 16},
            {"kind": "token_type", "types": 2},
            {"kind": "norm"},
        ],
        "stages": [{"dim": DIM, "depth": 2, "block": [{"kind": "full", "heads": 3}, {"kind": "mlp"}]}],
        "head": {"kind": "masked_language_model", "share": "embedding"} | head,
    }


def test_what_can_not_stand_is_refused() -> None:
    with pytest.raises(ComponentError, match="scores a vocabulary, and the input has none; use 'classifier'"):
        MaskedLanguageModel().check(Place(grid=Grid((7,)), dim=4, out_dim=4))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_every_row_is_what_the_trace_sees(next_sentence: bool, batch: int, tmp_path: Path) -> None:
    architecture, live = hf.ours_of(spec(next_sentence=next_sentence), tmp_path, batch=batch)
    exact(reconciled(count(architecture), *live))


def copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them."""
    weights, stream, head = hf.TheirWeights(theirs), ours.streams[0], ours.head
    _, position, kinds, normed = stream.embed
    ours.shared["embedding"].weight.copy_(weights.take("bert.embeddings.word_embeddings.weight"))
    position.table.weight.copy_(weights.take("bert.embeddings.position_embeddings.weight"))
    weights.put(kinds.lookup, "bert.embeddings.token_type_embeddings")
    weights.put(normed.norm, "bert.embeddings.LayerNorm")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        hf.put_layer(mixer, mlp, weights, f"bert.encoder.layer.{number}.", mixer.inner)
    weights.put(head.transform, "cls.predictions.transform.dense")
    weights.put(head.core.norm, "cls.predictions.transform.LayerNorm")
    head.core.linear.bias.copy_(weights.take("cls.predictions.bias"))
    if head.pooler:
        weights.put(head.pooler.linear, "bert.pooler.dense")
        weights.put(head.next_sentence, "cls.seq_relationship")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_both_heads_with_their_weights(next_sentence: bool, attention: str, tmp_path: Path) -> None:
    model = hf.theirs_of(
        "BertForPreTraining" if next_sentence else "BertForMaskedLM",
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=4 * DIM,
        layer_norm_eps=1e-5,
    )
    ours = hf.ours_of(spec(next_sentence=next_sentence), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(model, ours, copied, both_answers if next_sentence else hf.logits, tolerance=1e-6)


def both_answers(model: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
    answer = model(tokens)
    return answer.prediction_logits, answer.seq_relationship_logits
