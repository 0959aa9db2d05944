"""T5 beside transformers: every size, both feed-forwards, two lengths, outputs with their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import transformers_models as hf
from specs import counted
from xfcost.counting.forward import count

VOCABULARY, DIM, HEADS, HEAD_DIM, HIDDEN, LAYERS = 29, 12, 3, 5, 20, 2


def spec(*, gated: bool, **head: str) -> dict[str, Any]:
    """A small one, heads together wider than the stream, the decoder a layer deeper than the encoder."""
    plain = {"heads": HEADS, "head_dim": HEAD_DIM, "scaled": False, "projection_bias": False}

    def full(stack: str) -> dict[str, Any]:
        return {"kind": "full", "bias": {"kind": "buckets", "count": 8, "distance": 6, "share": stack}} | plain

    feed = (
        {"kind": "geglu", "hidden": HIDDEN, "act": "gelu_tanh"}
        if gated
        else {"kind": "mlp", "hidden": HIDDEN, "act": "relu", "bias": False}
    )
    embed = [{"kind": "token", "share": "embedding"}]
    ends = [{"repeat": LAYERS, "blocks": [[full("encoder_bias"), feed]]}, [{"kind": "norm", "norm": "rms_norm"}]]
    block = [full("decoder_bias") | {"causal": True}, {"kind": "cross"} | plain, feed]
    return {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": 11},
        "residual": {"norm": "rms_norm"},
        "encoder": {"embed": embed, "stages": [{"dim": DIM, "blocks": ends}]},
        "decoder": {"embed": embed, "stages": [{"dim": DIM, "depth": LAYERS + 1, "block": block}]},
        "head": {"kind": "language_model", "norm": "rms_norm", "share": "embedding"} | head,
    }


def theirs(**settings: Any) -> Any:
    return hf.theirs_of("T5ForConditionalGeneration", **settings)


def copied(weights: hf.TheirWeights, ours: Any, *, gated: bool) -> None:
    """Their weights into ours, every one of them."""
    encoder, decoder = ours.streams
    ours.shared["embedding"].weight.copy_(weights.take("shared.weight"))
    table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    for stack in ("encoder", "decoder"):
        ours.shared[f"{stack}_bias"].weight.copy_(weights.take(f"{stack}.{table}"))
    for stream, stack in ((encoder, "encoder"), (decoder, "decoder")):
        blocks = [block for block in stream.stages[0].run if len(block) > 1]
        for number, block in enumerate(blocks):
            for position, (part, name) in enumerate(zip(block, _layers(stack), strict=True)):
                layer = f"{stack}.block.{number}.layer.{position}."
                weights.put(part.residual_norm, f"{layer}layer_norm")
                _put_layer(part.inner, weights, layer + name, gated=gated)
    weights.put(encoder.stages[0].run[-1][0].inner.norm, "encoder.final_layer_norm")
    weights.put(ours.head.norm, "decoder.final_layer_norm")
    assert not weights


def _layers(stack: str) -> list[str]:
    return (
        ["SelfAttention", "DenseReluDense"]
        if stack == "encoder"
        else ["SelfAttention", "EncDecAttention", "DenseReluDense"]
    )


def _put_layer(inner: Any, weights: hf.TheirWeights, name: str, *, gated: bool) -> None:
    if name.endswith("DenseReluDense"):
        names = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"fc1": "wi", "fc2": "wo"}
        for one, other in names.items():
            weights.put(getattr(inner, one), f"{name}.{other}")
        return
    if name.endswith("SelfAttention"):
        weights.put_joined(inner.qkv, *(f"{name}.{letter}" for letter in "qkv"))
    else:
        weights.put(inner.q, f"{name}.q")
        weights.put_joined(inner.kv, f"{name}.k", f"{name}.v")
    weights.put(inner.out, f"{name}.o")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("tokens", [(1, 1), (11, 7), (5, 16)], ids=str)
@pytest.mark.parametrize("gated", [False, True])
def test_t5_with_their_weights(gated: bool, tokens: tuple[int, int], attention: str, tmp_path: Path) -> None:
    model = theirs(
        vocab_size=VOCABULARY,
        d_model=DIM,
        d_kv=HEAD_DIM,
        d_ff=HIDDEN,
        num_heads=HEADS,
        num_layers=LAYERS,
        num_decoder_layers=LAYERS + 1,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,  # tied all the same in 5.x, but then not scaled
        layer_norm_epsilon=torch.finfo(torch.float64).eps,
    )
    data = spec(gated=gated, scale="none" if gated else "rsqrt_dim")
    architecture, live = hf.ours_of(data, tmp_path, batch=2, dtype="float64", tokens=tokens, attention=attention)
    model = hf.scrambled(model.double())
    copied(hf.TheirWeights(model), live.model, gated=gated)
    totals = count(architecture).totals()
    assert totals["params"] == hf.parameters(model)
    source, target = live.inputs
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = model(input_ids=source, decoder_input_ids=target, use_cache=False).logits
        torch.testing.assert_close(live.model(source, target), answer, rtol=1e-5, atol=1e-5)  # float32 norms, softmax
    assert 2 * totals["macs"] == counter.get_total_flops()


def test_a_table_serves_all_layers_of_its_stack(tmp_path: Path) -> None:
    rows = {row.path: row for row in count(hf.ours_of(spec(gated=False), tmp_path, tokens=(5, 16))[0]).rows}
    for stack in ("encoder", "decoder"):
        assert rows[f"shared.{stack}_bias"].params == 8 * HEADS
    used = [row for row in rows.values() if row.operation == "relative_bias"]
    assert [(row.shared, row.times, row.params) for row in used] == [
        ("encoder_bias", LAYERS, 0),
        ("decoder_bias", LAYERS + 1, 0),
    ]
    # queries are not scaled, and cross-attention has no bias
    assert not any(row.operation == "scale" for row in rows.values())
    assert not any(row.operation == "add_bias" and ".block.1." in row.path for row in rows.values())


@pytest.mark.parametrize(("size", "dim"), [("base", 768), ("large", 1024), ("xxl", 4096)])
def test_untied_there_is_a_table_more_and_the_same_work(size: str, dim: int) -> None:
    own, tied = (counted(f"t5-v1.1-{size}{tail}") for tail in ("", "-tied"))
    assert (own.total("params") or 0) - (tied.total("params") or 0) == 32128 * dim
    for quantity in ("macs", "flops", "attention_entries"):
        assert own.total(quantity) == tied.total(quantity)
