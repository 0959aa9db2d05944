"""iGPT beside transformers' code, which has the biases of GPT-2 that the authors' code hasn't; the learned start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformers_models import TheirWeights, ours_of, parameters, scrambled, theirs_of
from whole_probe import probe
from xfcost.counting.forward import count

COLOURS, WIDTH, LAYERS = 11, 12, 2


def igpt_spec(length: int) -> dict[str, Any]:
    return {
        "input": {"kind": "tokens", "vocabulary": COLOURS, "length": length},
        "residual": {"norm": "rms_norm"},
        "embed": [
            {"kind": "token"},
            {"kind": "shift", "axis": "row", "start": "learned"},
            {"kind": "position"},
        ],
        "stages": [
            {
                "dim": WIDTH,
                "depth": LAYERS,
                "block": [
                    {"kind": "full", "heads": 3, "causal": True, "projection_bias": False},
                    {"kind": "mlp", "act": "gelu_quick", "bias": False},
                ],
            }
        ],
        "head": {"kind": "language_model", "norm": "rms_norm"},
    }


def theirs_igpt(**settings: Any) -> nn.Module:
    """Their vocabulary has one entry more: the start of the sequence is a token."""
    return theirs_of("ImageGPTForCausalImageModeling", **settings)


def copied_igpt(theirs: nn.Module, ours: Any) -> None:
    """Their weights in ours, their biases being nothing."""
    weights, stream = TheirWeights(theirs), ours.streams[0]
    biases = [name for name in weights if name.endswith(("c_attn.bias", ".c_fc.bias", ".c_proj.bias"))]
    for name in biases:
        weights.pop(name).zero_()
    token, shift, position = stream.embed
    colours = weights.take("transformer.wte.weight")
    token.lookup.weight.copy_(colours[:COLOURS])
    shift.shift.weight.copy_(colours[COLOURS])
    position.table.weight.copy_(weights.take("transformer.wpe.weight"))
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        there = f"transformer.h.{number}."
        weights.put(mixer.residual_norm, f"{there}ln_1")
        weights.put(mlp.residual_norm, f"{there}ln_2")
        for module, name in (
            (mixer.inner.qkv, "attn.c_attn"),
            (mixer.inner.out, "attn.c_proj"),
            (mlp.inner.fc1, "mlp.c_fc"),
            (mlp.inner.fc2, "mlp.c_proj"),
        ):
            module.weight.copy_(weights.take(f"{there}{name}.weight").T)
    weights.put(ours.head.norm, "transformer.ln_f")
    ours.head.linear.weight.copy_(weights.take("lm_head.weight"))
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_small_igpt_with_their_weights(length: int, attention: str, tmp_path: Path) -> None:
    architecture, live = ours_of(igpt_spec(length), tmp_path, batch=2, dtype="float64", attention=attention)
    theirs = theirs_igpt(
        vocab_size=COLOURS + 1, n_positions=length, n_embd=WIDTH, n_layer=LAYERS, n_head=3, use_cache=False
    )
    theirs = scrambled(theirs.double())
    copied_igpt(theirs, live.model)
    for module in (*live.model.modules(),):
        if isinstance(module, nn.RMSNorm):
            module.eps = 1e-5  # theirs; it costs nothing
    totals = count(architecture).totals()
    # GPT-2's biases: 3d of Q, K, V, d behind them, 4d and d of the MLP
    assert totals["params"] == parameters(theirs) - LAYERS * 9 * WIDTH
    (colours,) = live.inputs
    start = torch.full((2, 1), COLOURS)
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = theirs(torch.cat([start, colours[:, :-1]], dim=1)).logits
        torch.testing.assert_close(live.model(colours), answer, rtol=1e-6, atol=1e-6)
    assert 2 * totals["macs"] == counter.get_total_flops()


def test_no_pixel_is_read_before_its_turn(tmp_path: Path) -> None:
    """The scores of pixel n depend on those before it alone."""
    architecture, live = ours_of(igpt_spec(7), tmp_path, dtype="float64")
    stream = live.model.streams[0]
    behind = nn.Sequential(*list(stream.embed)[1:], *[sublayer for block in stream.stages[0].run for sublayer in block])
    x = torch.randn(1, architecture.grid.total, WIDTH, dtype=torch.float64)
    assert probe(behind, (x,)).reads == tuple(frozenset(range(n)) for n in range(7))
