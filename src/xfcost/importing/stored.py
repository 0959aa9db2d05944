"""The tensors of a checkpoint -> its modules with their bytes and unpacked shapes; and the format of its weights.

A quantised matrix is several tensors. What is packed how is known by their names and types:

    weight (F8…, I8)                    one element each; scales beside it (`weight_scale_inv`, `weight_scale`, `SCB`)
    weight (U8) and weight_scale        two 4-bit numbers in a byte (modelopt)
    weight (U8) and weight.absmax       the same, in one column (bitsandbytes)
    qweight (I32) with scales           GPTQ packs inputs and AWQ outputs; zero points have as many bits
    weight_packed (I32, U8)             compressed-tensors; in int32 as many as its bits fit
    …_blocks (U8) and …_scales          MXFP4 of gpt-oss
    any type of GGUF                    its shape is that of the unpacked matrix
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final

import msgspec

from xfcost.importing.checkpoints import Checkpoint, StoredTensor
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.stored import (
    ModuleKey,
    OtherReason,
    StoredModule,
    StoredWeights,
    module_key,
    params_of,
)

_REASONS: Final = (
    OtherReason(
        "vision tower",
        frozenset({
            "vision_tower", "vision_model", "vision_encoder", "vision_embed_tokens", "visual", "multi_modal_projector",
            "mm_projector", "image_newline", "img_processor", "vision_language_adapter", "patch_merger", "aligner",
            "connector",
        }),
    ),
    OtherReason(
        "audio tower",
        frozenset({"audio_tower", "audio_model", "audio_encoder", "audio_embed", "embed_audio", "audio_projection"}),
    ),
    OtherReason("multi-token prediction", frozenset({"mtp", "mtp_layers", "mtp_block", "nextn"})),
    OtherReason(
        "rotary frequencies", frozenset({"rotary_emb", "rope_freqs", "rope_factors_long", "rope_factors_short"})
    ),
    OtherReason("masks and position ids", frozenset({"masked_bias", "position_ids"})),
)  # fmt: skip
_MTP: Final = _REASONS[2]
_MASKS: Final = _REASONS[4]
_NUMBER: Final = re.compile(r"\blayers\.(\d+)\.")
# Masks of GPT-2's attention; `attn.bias` is a vector in other models.
_MASK_SIDES: Final = 3

# Behind the name of a module: what is no parameter of it …
_HELPERS: Final = (
    "weight_scale_inv", "weight_scale_2", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx",
    "weight_global_scale", "input_global_scale", "input_scale", "input_zero_point", "output_scale", "k_scale",
    "v_scale", "q_scale", "kv_scale", "prob_scale", "SCB", "weight_format", "qzeros", "scales", "g_idx",
    "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
    "e_score_correction_bias", "e_score_correction.bias", "running_mean", "running_var", "num_batches_tracked",
)  # fmt: skip
_HELPER: Final = re.compile(rf"\.({'|'.join(map(re.escape, _HELPERS))}|weight\.quant_state\.\w+)$")
# … and what is.
_PARTS: Final = ("weight", "bias", "qweight", "weight_packed")
# The length and the direction of a weight by `torch.nn.utils.weight_norm`, by their names in its parametrization.
_NORMED: Final = {"weight_g": "original0", "weight_v": "original1"}
_UNNAMED: Final = re.compile(r"(?P<module>.+\.(?:gate_up_proj|down_proj))(?P<part>_blocks|_scales|_bias)$")


def stored_weights(checkpoint: Checkpoint, config_name: str, bits: int = 4) -> StoredWeights:
    """The modules of a checkpoint; its integers of compressed-tensors have so many `bits`."""
    groups: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
    reasons: dict[str, OtherReason] = {}
    names = [checkpoint.module_name(tensor.name) for tensor in checkpoint.tensors]
    predicted = _predicted_from(names)
    for name, tensor in zip(names, checkpoint.tensors, strict=True):
        module, part = _split(name)
        groups[module][part] = tensor
        if (reason := _reason(name, tensor, predicted)) is not None:
            reasons[module] = reason
    experts: dict[ModuleKey, list[StoredModule]] = defaultdict(list)
    for name, parts in groups.items():
        experts[module_key(name)].append(_module(parts, bits, reasons.get(name)))
    return StoredWeights(
        place=checkpoint.place,
        config=config_name,
        files=checkpoint.files,
        tensors=len(checkpoint.tensors),
        bytes=checkpoint.bytes,
        dtypes=checkpoint.dtypes,
        modules={key: _together(same) for key, same in experts.items()},
        unread=checkpoint.unread,
    )


def _predicted_from(names: Iterable[str]) -> int | None:
    """The first layer of multi-token prediction, behind all others; None where there is none.

    Such a layer has a map of the states and of the embedding of the next token, side by side (DeepSeek-V3, §2.2).
    """
    return min((module_key(one).layer or 0 for one in names if one.endswith("eh_proj.weight")), default=None)


def _reason(name: str, tensor: StoredTensor, predicted: int | None) -> OtherReason | None:
    if name.endswith("attn.bias") and len(tensor.shape) >= _MASK_SIDES:
        return _MASKS
    words = name.split(".")
    for reason in _REASONS:
        if not reason.parts.isdisjoint(words):
            return reason
    if predicted is not None and (found := _NUMBER.search(name)) and int(found[1]) >= predicted:
        return _MTP
    return None


def _split(name: str) -> tuple[str, str]:
    """The module that a tensor is of, and what it is there."""
    module, dot, last = name.rpartition(".")
    if last in _NORMED:
        return f"{module}.parametrizations.weight.{_NORMED[last]}", "weight"
    if dot and last in _PARTS and not module.endswith(".e_score_correction"):
        return module, last
    if found := _HELPER.search(name):
        return name[: found.start()], found[1]
    if found := _UNNAMED.match(name):
        return found["module"], found["part"]
    return name, "weight"


def _module(parts: Mapping[str, StoredTensor], bits: int, reason: OtherReason | None) -> StoredModule:
    first = next((parts[one] for one in (*_PARTS, "_blocks") if one in parts), next(iter(parts.values())))
    params, matrix, count = _unpacked(parts, bits)
    return StoredModule(first.name, first.file, sum(one.bytes for one in parts.values()), params, matrix, count, reason)


def _unpacked(parts: Mapping[str, StoredTensor], bits: int) -> tuple[int | None, tuple[int, int] | None, int]:
    """Parameters, the rows and columns of the weight, and how many matrices it has."""
    biases = sum(prod(parts[one].shape) for one in ("bias", "_bias") if one in parts)
    shape: Sequence[int] | None
    if (blocks := parts.get("_blocks")) is not None:  # experts, outputs, blocks of inputs, half a block
        return biases + 2 * prod(blocks.shape), None, 1
    if (packed := parts.get("qweight")) is not None:
        shape = _of_qweight(packed.shape, parts)
    elif (packed := parts.get("weight_packed")) is not None:
        each = 2 if packed.dtype == "U8" else 32 // bits
        shape = (*packed.shape[:-1], packed.shape[-1] * each) if packed.shape else None
    elif (weight := parts.get("weight")) is not None:
        if weight.dtype == "U8":
            if "weight.absmax" in parts:
                return biases + 2 * prod(weight.shape), None, 1
            shape = (*weight.shape[:-1], 2 * weight.shape[-1]) if "weight_scale" in parts and weight.shape else None
        else:
            shape = weight.shape
    else:
        return biases, None, 1
    if shape is None:
        return None, None, 1
    count = shape[0] if len(shape) == 3 else 1  # noqa: PLR2004 - experts, outputs, inputs
    matrix = (shape[-2], shape[-1]) if len(shape) in (2, 3) else None
    return biases + prod(shape), matrix, count


def _of_qweight(shape: Sequence[int], parts: Mapping[str, StoredTensor]) -> tuple[int, int] | None:
    """Outputs and inputs of a matrix of GPTQ, whose words of 32 bits have several inputs, or AWQ: several outputs."""
    scales, zeros = parts.get("scales"), parts.get("qzeros")
    if scales is None or len(scales.shape) != 2 or len(shape) != 2:  # noqa: PLR2004
        return None
    outputs = scales.shape[1]
    if not outputs:
        return None
    if shape[1] != outputs:
        return outputs, shape[0]
    if (index := parts.get("g_idx")) is not None and any(index.shape):
        return outputs, index.shape[0]
    if zeros is None or not zeros.shape or not zeros.shape[-1]:
        return None
    return outputs, shape[0] * outputs // zeros.shape[-1]


def _together(same: Sequence[StoredModule]) -> StoredModule:
    """Experts of a layer that are stored one by one, as one module."""
    first = same[0]
    if len(same) == 1:
        return first
    matrices = {one.matrix for one in same}
    return msgspec.structs.replace(
        first,
        bytes=sum(one.bytes for one in same),
        params=params_of(same),
        matrix=first.matrix if len(matrices) == 1 else None,
        count=sum(one.count for one in same),
    )


# ── the format of the weights ──

_BYTE: Final = 8


def format_as_stored(
    stored: StoredWeights, published: WeightFormat | str | None, name: str | None, fused: str | None
) -> WeightFormat:
    """The format of a checkpoint whose tensors are known; `published` is that of its config, `name` the file's own.

    `fused` is what it calls its one map to queries, keys and values.
    """
    if isinstance(published, WeightFormat):
        return msgspec.structs.replace(published, tensors=stored)
    modules = [one for one in stored.modules.values() if one.reason is None]
    known, held = params_of(modules), sum(one.bytes for one in modules)
    bits = round(held * _BYTE / known) if known else _BYTE
    return WeightFormat(
        name or next(iter(stored.dtypes), "none"), max(1, bits), None, None, 0, "", published=True, tensors=stored,
        fused=fused,
    )  # fmt: skip
