"""Transformer-XL's attention: its memory, how far it reaches, and the public code's figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from compared import given, options_of
from modules import noise
from places import at
from references.attention import with_memory
from specs import counted
from strategies import counted_spec, placed
from whole_probe import probe
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.mechanisms.relative import Relative
from xfcost.torch_models.build import build
from xfcost.torch_models.modules import MODULES


def twin_of(component: Relative, where: Place, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODULES[Relative](component, where).double().eval().requires_grad_(requires_grad=False)


def test_notes_tell_of_the_memory() -> None:
    assert list(Relative(heads=2, causal=True).notes(at(3))) == []
    (note,) = Relative(heads=2, causal=True, memory=9).notes(at(3))
    assert "its 3 tokens attend over themselves and 9 positions of the memory" in note
    (note,) = Relative(heads=2).notes(at(3))
    assert "position scores by distance, heads × 3 × 5 = 30 per sample" in note


# The memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "component",
    [
        Relative(heads=2, causal=True, memory=4),
        Relative(heads=3, memory=3, projection_bias=True),
        Relative(heads=1, causal=True, memory=2, memory_queries=True),
    ],
    ids=str,
)
def test_a_given_memory_is_attended_over(component: Relative, *, fused: bool) -> None:
    module = twin_of(component, at(5, fused=fused))
    x_BND, memory_BPD = noise(2, 5, 6), noise(2, component.memory, 6, seed=2)
    plain = with_memory(options_of(component), given(module), x_BND, memory_BPD)
    torch.testing.assert_close(module(x_BND, memory_BPD), plain, rtol=1e-11, atol=1e-12)
    assert not torch.allclose(module(x_BND), plain)  # it is no zeros


def test_a_memory_gets_no_gradient() -> None:
    module = twin_of(Relative(heads=2, causal=True, memory=4), at(5))
    x_BND, memory_BPD = noise(1, 5, 6).requires_grad_(), noise(1, 4, 6, seed=2).requires_grad_()
    module(x_BND, memory_BPD).sum().backward()
    assert x_BND.grad is not None
    assert memory_BPD.grad is None


def test_two_segments_are_one_long_pass_through_a_layer() -> None:
    # One layer over 10 tokens at once, and over the second 5 with the first 5 for a memory.
    whole, half = (
        twin_of(Relative(heads=2, causal=True, memory=memory), at(tokens)) for tokens, memory in ((10, 0), (5, 5))
    )
    half.load_state_dict(whole.state_dict())
    x_BND = noise(2, 10, 6)
    torch.testing.assert_close(half(x_BND[:, 5:], x_BND[:, :5]), whole(x_BND)[:, 5:], rtol=1e-11, atol=1e-12)


class Segments(nn.Module):
    """Layers over one segment after the other: (B, S·N, D) -> the last segment (B, N, D).

    A layer's memory is what entered it in the segments before: the newest positions that fit.
    """

    def __init__(self, layers: int, segments: int, tokens: int, memory: int) -> None:
        super().__init__()
        component = Relative(heads=2, causal=True, memory=memory)
        self.segments, self.memory = segments, memory
        self.layers = nn.ModuleList(twin_of(component, at(tokens), seed) for seed in range(layers))

    def forward(self, x_BND: Tensor) -> Tensor:
        seen = [x_BND.new_zeros(x_BND.shape[0], self.memory, x_BND.shape[-1])] * len(self.layers)
        for segment_BND in x_BND.chunk(self.segments, dim=1):
            hidden_BND = segment_BND
            for number, layer in enumerate(self.layers):
                before_BPD, seen[number] = seen[number], torch.cat([seen[number], hidden_BND], 1)[:, -self.memory :]
                hidden_BND = hidden_BND + layer(hidden_BND, before_BPD)
        return hidden_BND


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("memory", [3, 4])
def test_the_reach_grows_by_one_memory_per_layer(layers: int, memory: int) -> None:
    tokens, segments = 4, 5
    seen = probe(Segments(layers, segments, tokens, memory), (torch.zeros(1, segments * tokens, 6),))
    # The first token of the last segment reads `memory` positions before it. One layer deeper they stand in a segment
    # that reads `memory` positions before itself: with memories as long as segments, L·m tokens back in all.
    last = (segments - 1) * tokens
    assert seen.reads[0] == frozenset(range(last - (layers - 1) * tokens - memory, last + 1))


# Whole models ────────────────────────────────────────────────────────────────────────────────────────────────────────


# transformers 4.57.6 (deprecated.transfo_xl), FlopCounterMode/2: embedding and layers, with queries of the memory.
PUBLIC = {
    "transformer-xl-enwik8": (41_066_496, 37_044_092_928, 12 * 512 * 512**2),
    "transformer-xl-wt103": (150_850_870, 8_649_360_000, 16 * 150 * 410**2),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_code_s_parameters_and_macs(name: str) -> None:
    params, macs, of_memory_queries = PUBLIC[name]
    ours = counted(name, "head=null", "stages.0.block.0.memory_queries=true")
    assert (ours.total("params"), ours.total("macs")) == (params, macs)
    assert macs - counted(name, "head=null").total("macs") == of_memory_queries


def test_the_public_code_s_default_layers(tmp_path: Path) -> None:
    """TransfoXLConfig(), 18 layers, 128 words, a memory of 1600: 283,885,936 parameters, 164,567,711,744 MACs.

    Its embedding is adaptive and not in the spec: clusters of 20,000, 20,000, 160,000 and 67,735 words, 1024, 256, 64
    and 16 wide, each with a map to 1024. All words were of the first cluster, whose map took 128·1024² MACs.
    """
    clusters = {1024: 20_000, 256: 20_000, 64: 160_000, 16: 67_735}
    embedding = sum(words * width + width * 1024 for width, words in clusters.items())
    relative = {"kind": "relative", "heads": 16, "causal": True, "memory": 1600, "memory_queries": True}
    spec = {
        "input": {"kind": "vectors", "channels": 1024, "length": 128},
        "residual": {"place": "post"},
        "stages": [{"dim": 1024, "depth": 18, "block": [relative, {"kind": "mlp", "hidden": 4096, "act": "relu"}]}],
    }
    ours = counted_spec(spec, tmp_path)
    assert ours.total("params") == 283_885_936 - embedding
    assert ours.total("macs") == 164_567_711_744 - 128 * 1024**2


def test_the_whole_language_models() -> None:
    # transformers 4.57.6: 41,066,700 with the head's 204 biases; 277,278,720 with 24 layers and without them.
    assert counted("transformer-xl-enwik8").total("params") == 41_066_700
    assert counted("transformer-xl-enwik8-24l", "head=null").total("params") == 277_278_720


def test_u_and_v_can_be_shared_by_all_layers(tmp_path: Path) -> None:
    block = [msgspec.to_builtins(Relative(heads=2, causal=True, memory=3, share="biases"))]
    spec = {
        "name": "tied",
        "input": {"kind": "tokens", "vocabulary": 7, "length": 5},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": 6, "depth": 4, "block": block}],
    }
    architecture = placed(spec, tmp_path)
    counted, live = count(architecture), build(architecture, "cpu")
    # 7·6 words, u and v once, and per layer 5 maps of 6·6 and a norm of 2·6
    assert counted.total("params") == 42 + 12 + 4 * (180 + 12)
    assert sum(parameter.numel() for parameter in live.model.parameters()) == counted.total("params")
    # u is the table's first row and v its second: content changes with the one, positions with the other
    table, layer = live.model.shared["biases"].weight, live.model.get_submodule("streams.0.stages.0.run.3.0.inner")
    table.copy_(torch.arange(12.0).reshape(2, 6))
    zeros = torch.zeros(1, 1, 6)
    assert torch.equal(layer.core.content_bias(zeros).flatten(), torch.arange(6.0))
    assert torch.equal(layer.core.position_bias(zeros).flatten(), torch.arange(6.0) + 6)
