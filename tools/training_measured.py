"""Published memory of training and bytes per parameter, beside ours: tables of docs/training-runs.md."""

from __future__ import annotations

import re
from typing import Any

from training_memory import GIB, MAIN_GRADIENTS, printed, states

import xfcost

# Rows of one layer of an 8B model -> the preset, and settings: FlashAttention has windows, and saves no mask for them.
_LLAMA_8B = {"stas-copies-mistral-7b": ("mistral-7b", ["**.window=null"])}
_TOKENS = 32768
_WIDTH = 4096
_LAYERS = 32


def measured() -> list[tuple[str, float, float]]:
    """Device memory in use while BLOOM's set-up trained, GiB; and the model states of it, gradients in 16 bits."""
    found = []
    for row in printed():
        layout = re.search(r"TP(\d+) PP(\d+) DP(\d+) ZeRO-1", row["setting"])
        params = re.fullmatch(r"GPT (\d+)B", row["model"])
        if row["id"].startswith("bloom-mem") and layout and params:
            tensor, pipeline, data = (int(text) for text in layout.groups())
            own = states(float(params[1]) * 1e9 / (tensor * pipeline), data, 1) / GIB
            found.append((f"{row['model']}, {row['setting']}", float(row["value"]), own))
    return found


def measured_lines() -> list[dict[str, str]]:
    """The same as text."""
    return [
        {"run": run, "in use, GiB": f"{used:g}", "model states, GiB": f"{own:.3g}"} for run, used, own in measured()
    ]


def bytes_lines() -> list[dict[str, str]]:
    """Bytes of model states per parameter by convention, published; and the options that make them, where they do."""
    made = {
        "bytes-zero": ("--dtype bf16", states(1e6, 1, 0) / 1e6),
        "bytes-megatron": ("--dtype bf16 --gradients float32", states(1e6, 1, 0, MAIN_GRADIENTS) / 1e6),
        "bytes-stas": ("--dtype bf16 --gradients float32", states(1e6, 1, 0, MAIN_GRADIENTS) / 1e6),
        "bytes-megatron-dist": (
            "--dtype bf16 --gradients float32 --zero 1, 8 replicas", states(1e6, 8, 1, MAIN_GRADIENTS) / 1e6,
        ),
        "bytes-fp32adam": ("--dtype float32", states(1e6, 1, 0, (4, 4, 0, 8)) / 1e6),
        "bytes-lion": ("--dtype bf16 --optimizer lion", states(1e6, 1, 0, (2, 2, 4, 4)) / 1e6),
    }  # fmt: skip
    lines = []
    for row in printed():
        if row["id"].startswith("bytes-"):
            options, ours = made.get(row["id"], ("no option", None))
            lines.append({
                "convention": row["quantity"], "published": row["value"], "options": options,
                "ours": "–" if ours is None else f"{ours:g}", "source": row["source"],
            })  # fmt: skip
    return lines


def copies() -> list[tuple[dict[str, str], float]]:
    """Activations of Llama 3.1 8B and Mistral 7B at 32,768 tokens, fused attention: the published row, and ours."""
    run: dict[str, Any] = {"N": _TOKENS, "dtype": "bfloat16", "attention": "fused", "mode": "train", "trace": False}
    found = []
    for row in printed():
        if row["id"].startswith("stas-"):
            spec, settings = _LLAMA_8B.get(row["id"], ("llama3.1-8b", []))
            kept, checkpoints = (
                xfcost.analyze(spec, settings=settings, checkpoint=one, **run).total(
                    "kept_bytes", lambda row: row.in_block
                ) or 0
                for one in ("none", "full")
            )  # fmt: skip
            ours = {
                "stas-llama8b-one-layer": kept / _LAYERS / GIB,
                "stas-llama8b-32-layers": kept / GIB,
                "stas-llama8b-checkpoints-only": checkpoints / GIB,
            }
            found.append((row, ours.get(row["id"], kept / _LAYERS / (_TOKENS * _WIDTH * 2))))
    return found


def copies_lines() -> list[dict[str, str]]:
    """The same as text."""
    return [
        {
            "model": row["model"], "quantity": row["quantity"], "unit": row["unit"], "published": row["value"],
            "ours": f"{ours:.4g}", "source": row["source"],
        }
        for row, ours in copies()
    ]  # fmt: skip
