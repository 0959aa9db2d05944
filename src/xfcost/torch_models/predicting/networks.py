"""The networks that a calibration runs, forward and in training: together they hold the operations of every family.

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
_FEW_WORDS = (*_ONE, "input.vocabulary=1000")
_ENCODER_DECODER = ("encoder.stages.0.depth=1", "decoder.stages.0.depth=1")


class Chosen(NamedTuple):
    """A preset, or one with fewer blocks, at several N; None is the preset's own."""

    preset: str
    tokens: Sequence[int | None] = (None,)
    settings: Sequence[str] = ()
    attention: Sequence[Execution] = ("eager",)
    mode: Mode = "forward"
    optimizer: str = "adamw"


def _trained(
    preset: str, tokens: int | None = None, settings: Sequence[str] = (), optimizer: str = "adamw",
    attention: Execution = "eager",
) -> Chosen:  # fmt: skip
    return Chosen(preset, (tokens,), settings, (attention,), "train", optimizer)


NETWORKS: Final = (
    Chosen("vit-s16", (49, 196, 784, 3136), _ONE, ("eager", "fused")),
    Chosen("vit-ti16", (196, 1024), _ONE),
    Chosen("vit-b32", (49, 784), _ONE),
    Chosen("gpt2", (128, 512), _ONE, ("eager", "fused")),
    Chosen("gpt2", (128, 1024), _TWO, mode="decode"),
    Chosen("llama3.2-1b", (49,), _ONE),
    Chosen("llama3.2-1b", (512,), _ONE, mode="decode"),
    Chosen("bert-base", (196, 512), _ONE),
    Chosen("swin-t", (196, 784, 3136)),
    Chosen("swinv2-t-w8-256"),
    Chosen("convnext-t", (196, 784)),
    Chosen("convnext-iso-s", (196, 784), _TWO),
    Chosen("mixer-s32"),
    Chosen("mixer-b16", settings=_ONE),
    Chosen("resmlp-s12", settings=_TWO),
    Chosen("gmlp-ti", settings=_TWO),
    Chosen("resnet-50", (784, 3136)),
    Chosen("resnet-18", (196, 3136)),
    Chosen("resnext-50-32x4d"),
    Chosen("regnety-800mf"),
    Chosen("regnetx-1.6gf"),
    Chosen("regnetx-400mf", (49, 784)),
    Chosen("regnety-400mf", (196,)),
    Chosen("cait-xxs24", (196, 576)),
    Chosen("deit3-m", settings=_ONE),
    Chosen("pvt-tiny"),
    Chosen("pvt-v2-b1"),
    Chosen("twins-svt-s"),
    Chosen("twins-pcpvt-s"),
    Chosen("mvit-b-16"),
    Chosen("mvitv2-t"),
    Chosen("poolformer-s12"),
    Chosen("mobilevit-xs"),
    Chosen("cvt-13"),
    Chosen("conformer-s", (784,), _ONE),
    Chosen("sasa-26", (784,)),
    Chosen("t5-small", (196,)),
    Chosen("transformer-base", (196, 784), _ENCODER_DECODER),
    Chosen("mamba-130m", (196,), _ONE),
    Chosen("mamba2-130m", (196, 512), _ONE),
    Chosen("retnet-base", (784,), _ONE),
    Chosen("rwkv4-169m", (196,), _ONE),
    Chosen("hyena-125m", (784,), _ONE),
    Chosen("switch-base-8", (98,)),
    Chosen("seq2seq-lstm", (49,)),
    Chosen("longformer-char-small", (512,)),
    *(
        Chosen(f"common-{name}", (784, 2048), _ONE)
        for name in (
            "longformer", "linformer", "reformer", "sinkhorn", "bigbird", "routing", "nystrom", "conv", "fnet",
            "compressed", "axial", "performer", "linear", "memory-tokens", "sparse-strided", "set-transformer",
        )
    ),
    Chosen("common-synthesizer", (196,), _ONE),
    Chosen("common-lstm", (196,), _ONE),
)  # fmt: skip


TRAINED: Final = (
    _trained("vit-ti16", 196),
    _trained("vit-ti16", 784, _TWO),
    _trained("vit-ti16", 196, attention="fused"),
    _trained("vit-s16", 784, _ONE, attention="fused"),
    _trained("vit-s16", 196, optimizer="sgd"),
    _trained("vit-b32", 49, _TWO, "momentum"),
    _trained("vit-b32", 98, _ONE, "adafactor"),
    _trained("vit-ti32", 49, optimizer="lion"),
    _trained("gpt2", 128, _ONE),
    _trained("gpt2", 49, _ONE, "adafactor", "fused"),
    _trained("bert-base", 196, _ONE),
    _trained("transformer-base", 98, _ENCODER_DECODER),
    _trained("swin-t", 196),
    _trained("swinv2-t-w8-256", None, optimizer="sgd"),
    _trained("convnext-t", 196),
    _trained("convnext-iso-s", 784, _TWO, "lion"),
    _trained("resnet-18", 196),
    _trained("resnet-50", 784, optimizer="momentum"),
    _trained("regnety-400mf", 784),
    _trained("regnetx-400mf", 784, optimizer="sgd"),
    _trained("mixer-s32"),
    _trained("gmlp-ti", None, _TWO, "momentum"),
    _trained("pvt-v2-b1", optimizer="sgd"),
    _trained("poolformer-s12", 196),
    _trained("mobilevit-xs"),
    _trained("cvt-13", optimizer="sgd"),
    _trained("mvitv2-t", 196, optimizer="sgd"),
    _trained("mamba-130m", 49, _FEW_WORDS),
    _trained("rwkv4-169m", 49, _FEW_WORDS),
    _trained("retnet-base", 196, _FEW_WORDS, "sgd"),
    *(
        _trained(f"common-{name}", 784, _FEW_WORDS)
        for name in ("longformer", "linformer", "nystrom", "performer", "linear", "conv", "fnet", "bigbird")
    ),
    _trained("common-lstm", 49, _FEW_WORDS, "sgd"),
)


def placed(networks: Sequence[Chosen], dtype: str) -> Iterator[tuple[str, Architecture, Chosen]]:
    """Every network at every N, with its name."""
    for one in networks:
        loaded = load(one.preset, one.settings)
        for tokens, attention in product(one.tokens, one.attention):
            words = [one.preset, *([] if tokens is None else [f"N={tokens}"]), *one.settings, attention, one.mode]
            optimizer = one.optimizer if one.mode == "train" else None
            run = make_run(N=tokens, dtype=dtype, attention=attention, mode=one.mode, optimizer=optimizer)
            yield " ".join([*words, optimizer] if optimizer else words), place(loaded, run), one
