"""The training steps that a calibration runs: networks that together hold the operations of every family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from xfcost.counting.run_options import make_run
from xfcost.ledger.options import Execution
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place

_ONE = ("stages.0.depth=1",)
_TWO = ("stages.0.depth=2",)
_FEW_WORDS = (*_ONE, "input.vocabulary=1000")
_ENCODER_DECODER = ("encoder.stages.0.depth=1", "decoder.stages.0.depth=1")


class Trained(NamedTuple):
    """A preset, or one with fewer blocks, in training; tokens of None are the preset's own."""

    preset: str
    tokens: int | None = None
    settings: tuple[str, ...] = ()
    optimizer: str = "adamw"
    attention: Execution = "eager"


TRAINED: Final = (
    Trained("vit-ti16", 196),
    Trained("vit-ti16", 784, _TWO),
    Trained("vit-ti16", 196, attention="fused"),
    Trained("vit-s16", 784, _ONE, attention="fused"),
    Trained("vit-s16", 196, optimizer="sgd"),
    Trained("vit-b32", 49, _TWO, "momentum"),
    Trained("vit-b32", 98, _ONE, "adafactor"),
    Trained("vit-ti32", 49, optimizer="lion"),
    Trained("gpt2", 128, _ONE),
    Trained("gpt2", 49, _ONE, "adafactor", "fused"),
    Trained("bert-base", 196, _ONE),
    Trained("transformer-base", 98, _ENCODER_DECODER),
    Trained("swin-t", 196),
    Trained("swinv2-t-w8-256", None, optimizer="sgd"),
    Trained("convnext-t", 196),
    Trained("convnext-iso-s", 784, _TWO, "lion"),
    Trained("resnet-18", 196),
    Trained("resnet-50", 784, optimizer="momentum"),
    Trained("regnety-400mf", 784),
    Trained("regnetx-400mf", 784, optimizer="sgd"),
    Trained("mixer-s32"),
    Trained("gmlp-ti", None, _TWO, "momentum"),
    Trained("pvt-v2-b1", optimizer="sgd"),
    Trained("poolformer-s12", 196),
    Trained("mobilevit-xs"),
    Trained("cvt-13", optimizer="sgd"),
    Trained("mvitv2-t", 196, optimizer="sgd"),
    Trained("mamba-130m", 49, _FEW_WORDS),
    Trained("rwkv4-169m", 49, _FEW_WORDS),
    Trained("retnet-base", 196, _FEW_WORDS, "sgd"),
    *(
        Trained(f"common-{name}", 784, _FEW_WORDS)
        for name in ("longformer", "linformer", "nystrom", "performer", "linear", "conv", "fnet", "bigbird")
    ),
    Trained("common-lstm", 49, _FEW_WORDS, "sgd"),
)


def training_networks(dtype: str) -> Iterator[tuple[str, Architecture, str]]:
    """Every network with its name and its optimizer."""
    for one in TRAINED:
        words = [one.preset, *([] if one.tokens is None else [f"N={one.tokens}"]), *one.settings, one.attention]
        run = make_run(N=one.tokens, dtype=dtype, attention=one.attention, mode="train", optimizer=one.optimizer)
        yield " ".join([*words, "train", one.optimizer]), place(load(one.preset, one.settings), run), one.optimizer
