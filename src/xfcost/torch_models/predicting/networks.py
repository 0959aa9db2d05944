"""The networks that a calibration runs: together they hold the operations of every family.

A network has few blocks: equal blocks make equal calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

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
