"""Compressive attention: its memories from segment to segment, and a public implementation's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compared import given, options_of
from modules import noise
from places import at
from references.attention import compressed_once, with_memory
from strategies import placed
from whole_probe import probe
from xfcost.counting.forward import count
from xfcost.mechanisms.compressive import Compressive
from xfcost.torch_models.modules import MODULES


def twin_of(component: Compressive, tokens: int, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return MODULES[Compressive](component, at(tokens)).double().eval().requires_grad_(requires_grad=False)


def test_notes_tell_what_is_dropped_and_what_is_too_short() -> None:
    component = Compressive(heads=1, memory=2, compressed_memory=3, compression=4)
    whole, rest, short = (list(component.notes(at(tokens))) for tokens in (8, 9, 3))
    assert "8 tokens attend over themselves, 2 positions of the memory and 3 of the compressed memory" in whole[0]
    assert len(whole) == 1
    assert rest[1] == "9 evicted positions make 2 compressed ones of 4 each; the other 1 are dropped"
    assert short[1] == "a segment of 3 evicts fewer positions than the 4 that make a compressed one: nothing is kept"
    assert next(row for row in component.operations(at(3)) if row.path == "compress").macs == 0


# From segment to segment ─────────────────────────────────────────────────────────────────────────────────────────────


def by_algorithm_1(component: Compressive, module: nn.Module, segments: tuple[Tensor, ...]) -> list[Tensor]:
    """Rae et al. 2020, Algorithm 1, one layer: attend, take the n oldest memories out, compress them, at the end."""
    options, weights = options_of(component), given(module)
    batch, tokens, width = segments[0].shape
    memory, slots = (
        segments[0].new_zeros(batch, size, width) for size in (component.memory, component.compressed_memory)
    )
    answers = []
    for number, x_BND in enumerate(segments):
        if number == 0:  # what the module finds before a text: zeros were evicted
            new = compressed_once(options, weights, torch.zeros_like(x_BND))
            slots = torch.cat([slots, new], 1)[:, -component.compressed_memory :]
        answers.append(with_memory(options, weights, x_BND, torch.cat([slots, memory], dim=1)))
        kept = torch.cat([memory, x_BND], dim=1)
        evicted, memory = kept[:, :tokens], kept[:, tokens:]
        slots = torch.cat([slots, compressed_once(options, weights, evicted)], dim=1)[:, -component.compressed_memory :]
    return answers


@pytest.mark.parametrize(
    "component",
    [
        Compressive(heads=2, causal=True, memory=6, compressed_memory=5, compression=2),
        Compressive(heads=1, causal=True, memory=3, compressed_memory=4, compression=2, function="mean"),
        Compressive(heads=3, causal=True, compressed_memory=1, compression=2, function="max"),
        Compressive(heads=2, causal=True, memory=2, compressed_memory=3, compression=5),
    ],
    ids=str,
)
def test_segments_go_on_as_the_paper_s_algorithm_does(component: Compressive) -> None:
    module, segments = twin_of(component, 4), tuple(noise(2, 4, 6, seed=seed) for seed in range(1, 6))
    past = module.standing(segments[0])
    for x_BND, plain in zip(segments, by_algorithm_1(component, module, segments), strict=True):
        torch.testing.assert_close(module(x_BND, past), plain, rtol=1e-11, atol=1e-12)
        past = module.remember(x_BND, past)


class Segments(nn.Module):
    """One layer over one segment after the other: (B, S·N, D) -> the last segment."""

    def __init__(self, component: Compressive, segments: int, tokens: int) -> None:
        super().__init__()
        self.segments, self.layer = segments, twin_of(component, tokens)

    def forward(self, x_BND: Tensor) -> Tensor:
        *before, last = x_BND.chunk(self.segments, dim=1)
        past = self.layer.standing(last)
        for segment in before:
            past = self.layer.remember(segment, past)
        return self.layer(last, past)


@pytest.mark.parametrize("function", ["conv", "mean"])
def test_a_layer_reaches_c_tokens_per_compressed_one(function: str) -> None:
    # Three compressed of two tokens each and a memory of 4, before segments of 4: two are new per segment.
    component = Compressive(heads=2, causal=True, memory=4, compressed_memory=3, compression=2, function=function)
    seen = probe(Segments(component, 6, 4), (torch.zeros(1, 24, 6),))
    first = 20 - 4 - 2 * 3
    assert seen.reads[0] == frozenset(range(first, 21))


# Somebody else's figures ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_public_package_s_figures_but_for_its_positions(tmp_path: Path) -> None:
    """compressive-transformer-pytorch 0.4.0: 46,879,264 parameters, 57,193,529,344 MACs (FlopCounterMode/2).

    Six layers of 512, n = n_m = 1024, n_cm = 256, c = 4. It has a position table per head in place of W_R, u and v,
    which all layers share, and a bias on the output projection and the vocabulary alone.
    """
    block = [
        {"kind": "compressive", "heads": 8, "causal": True, "memory": 1024, "compressed_memory": 256},
        {"kind": "mlp"},
    ]
    spec = {
        "name": "package",
        "input": {"kind": "tokens", "vocabulary": 20000, "length": 1024},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": 512, "depth": 6, "block": block}],
        "head": {"kind": "language_model", "norm": "none", "bias": True},
    }
    ours = count(placed(spec, tmp_path))
    keys = 1024 + 1024 + 256
    table, output_biases, positions = keys * 512, 6 * 512, 6 * (512 * 512 + 2 * 512)
    assert ours.total("params") == 46_879_264 - table - output_biases + positions
    assert ours.total("macs") == 57_193_529_344 + 6 * keys * 512 * 512  # W_R on every distance
