"""What a calibration runs: networks that together hold the operations of every family, and single operations.

A network has few blocks: equal blocks make equal calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.counting.run_options import make_run
from xfcost.ledger.options import Execution, Mode
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place

_ONE = ("stages.0.depth=1",)
_TWO = ("stages.0.depth=2",)
_ENCODER_DECODER = ("encoder.stages.0.depth=1", "decoder.stages.0.depth=1")


class Network(NamedTuple):
    """A preset with fewer blocks, at several N; None is the preset's own."""

    preset: str
    tokens: Sequence[int | None] = (None,)
    settings: Sequence[str] = ()
    attention: Sequence[Execution] = ("eager",)
    mode: Mode = "forward"


NETWORKS: Final = (
    Network("vit-s16", (49, 196, 784, 3136), _ONE, ("eager", "fused")),
    Network("vit-ti16", (196, 1024), _ONE),
    Network("vit-b32", (49, 784), _ONE),
    Network("gpt2", (128, 512), _ONE, ("eager", "fused")),
    Network("gpt2", (128, 1024), _TWO, mode="decode"),
    Network("llama3.2-1b", (49,), _ONE),
    Network("llama3.2-1b", (512,), _ONE, mode="decode"),
    Network("bert-base", (196, 512), _ONE),
    Network("swin-t", (196, 784, 3136)),
    Network("swinv2-t-w8-256"),
    Network("convnext-t", (196, 784)),
    Network("convnext-iso-s", (196, 784), _TWO),
    Network("mixer-s32"),
    Network("mixer-b16", settings=_ONE),
    Network("resmlp-s12", settings=_TWO),
    Network("gmlp-ti", settings=_TWO),
    Network("resnet-50", (784, 3136)),
    Network("resnet-18", (196, 3136)),
    Network("resnext-50-32x4d"),
    Network("regnety-800mf"),
    Network("regnetx-1.6gf"),
    Network("regnetx-400mf", (49, 784)),
    Network("regnety-400mf", (196,)),
    Network("cait-xxs24", (196, 576)),
    Network("deit3-m", settings=_ONE),
    Network("pvt-tiny"),
    Network("pvt-v2-b1"),
    Network("twins-svt-s"),
    Network("twins-pcpvt-s"),
    Network("mvit-b-16"),
    Network("mvitv2-t"),
    Network("poolformer-s12"),
    Network("mobilevit-xs"),
    Network("cvt-13"),
    Network("conformer-s", (784,), _ONE),
    Network("sasa-26", (784,)),
    Network("t5-small", (196,)),
    Network("transformer-base", (196, 784), _ENCODER_DECODER),
    Network("mamba-130m", (196,), _ONE),
    Network("mamba2-130m", (196, 512), _ONE),
    Network("retnet-base", (784,), _ONE),
    Network("rwkv4-169m", (196,), _ONE),
    Network("hyena-125m", (784,), _ONE),
    Network("switch-base-8", (98,)),
    Network("seq2seq-lstm", (49,)),
    Network("longformer-char-small", (512,)),
    *(
        Network(f"common-{name}", (784, 2048), _ONE)
        for name in (
            "longformer", "linformer", "reformer", "sinkhorn", "bigbird", "routing", "nystrom", "conv", "fnet",
            "compressed", "axial", "performer", "linear", "memory-tokens", "sparse-strided", "set-transformer",
        )
    ),
    Network("common-synthesizer", (196,), _ONE),
    Network("common-lstm", (196,), _ONE),
)  # fmt: skip


def architectures(dtype: str) -> Iterator[tuple[str, Architecture, bool]]:
    """Every network at every N, with its name; and whether it has fewer blocks than its preset."""
    for one in NETWORKS:
        loaded = load(one.preset, one.settings)
        for tokens, attention in product(one.tokens, one.attention):
            words = [one.preset, *([] if tokens is None else [f"N={tokens}"]), *one.settings, attention, one.mode]
            run = make_run(N=tokens, dtype=dtype, attention=attention, mode=one.mode)
            yield " ".join(words), place(loaded, run), bool(one.settings)


# Sizes of single operations; none of more MACs than this.
_MOST_MACS: Final = 2.5e9
_ROWS: Final = (1, 16, 49, 196, 784, 3136)
_WIDTHS: Final = ((64, 64), (96, 384), (192, 768), (256, 1024), (384, 96), (384, 1536), (512, 2048), (768, 768),
                  (768, 3072), (1024, 4096), (1536, 384), (3072, 768), (2048, 512), (2048, 8192))  # fmt: skip
_ATTENTION: Final = tuple(
    (heads, tokens, width) for heads, tokens, width in product((3, 6, 12), (49, 196, 784), (32, 64))
)
_BATCHES: Final = ((64, 49, 32, 49), (784, 16, 64, 16), (12, 64, 3136, 64), (4096, 7, 32, 7), (256, 49, 49, 32),
                   (1, 38416, 4, 4), (1, 614656, 4, 4), (1, 614656, 8, 8),
                   *((heads, tokens, width, tokens) for heads, tokens, width in _ATTENTION),
                   *((heads, tokens, tokens, width) for heads, tokens, width in _ATTENTION))  # fmt: skip
# Channels in, channels out, groups, kernel, stride.
_CONVOLUTIONS: Final = (
    *((width, width, width // group, 3, stride)
      for width, group, stride in product((64, 256, 1024), (8, 16, 64, 128), (1, 2)) if group < width),
    *((width, width, 1, 3, stride) for width, stride in product((64, 128, 256, 512), (1, 2))),
    *((width, width, width, kernel, 1) for width, kernel in product((64, 256, 1024), (3, 7))),
    *((inner, outer, 1, 1, 1) for inner, outer in ((64, 256), (256, 64), (256, 1024), (512, 2048), (2048, 512))),
)  # fmt: skip
_SIDES: Final = (7, 14, 28, 56)
_ELEMENTS: Final = tuple(2**power for power in range(10, 26, 2))


class Operations(nn.Module):
    """Matrix products and element-wise operations of many sizes, in one forward."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        with torch.device(device):
            self.pairs = [
                (torch.randn(rows, width, dtype=dtype), torch.randn(columns, width, dtype=dtype).t())
                for rows, (width, columns) in product(_ROWS, _WIDTHS)
                if rows * width * columns <= _MOST_MACS
            ]
            self.batched = [
                (torch.randn(b, m, k, dtype=dtype), torch.randn(b, k, n, dtype=dtype)) for b, m, k, n in _BATCHES
            ]
            self.images = [
                (
                    torch.randn(1, inner, side, side, dtype=dtype),
                    _kernel(inner, outer, groups, size, dtype),
                    groups,
                    stride,
                )
                for (inner, outer, groups, size, stride), side in product(_CONVOLUTIONS, _SIDES)
                if side * side * outer * inner // groups * size * size <= _MOST_MACS
            ]
            self.lines = [torch.randn(elements // 256, 256, dtype=dtype) for elements in _ELEMENTS]

    def forward(self) -> Tensor:
        for left, right in self.pairs:
            torch.addmm(right[0], left, right)
            torch.mm(left, right)
        for left, right in self.batched:
            torch.bmm(left, right)
            torch.bmm(right.transpose(1, 2), left.transpose(1, 2))
        for image, kernel, groups, stride in self.images:
            F.conv2d(image, kernel, stride=stride, padding=kernel.shape[-1] // 2, groups=groups)
        for line in self.lines:
            for elementwise in (torch.relu, F.gelu, F.silu, torch.exp, torch.sigmoid, torch.tanh, torch.neg):
                elementwise(line)
            line + line, line * line, line * 2.0, line.softmax(-1), F.layer_norm(line, line.shape[-1:])
            line.t().contiguous(), line.sum(-1), line.mean(-1), torch.cat([line, line]), line[:, :128].contiguous()
        return line


def _kernel(inner: int, outer: int, groups: int, size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(outer, inner // groups, size, size, dtype=dtype)
