"""GGUF files: their header, the config of the model that it describes, and the names of its tensors.

The header is read here and not by the package's `GGUFReader`, which maps the whole file and makes an array of each word
of the vocabulary (a gigabyte, and 11 seconds, for 262,144 words). Of the package is the table of block formats. The
format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; keys and names: `gguf/constants.py`, and the
converters of llama.cpp.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import prod
from typing import IO, Any, Final, NamedTuple

from xfcost.importing.checkpoints import BadHeaderError, Checkpoint, StoredTensor, check_covered, header_of, stamp
from xfcost.ledger.errors import UsageError, nearest, printable

Metadata = Mapping[str, Any]

# ── the header ──

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
# Sizes of numbers by the code of their type; 8 is text, 9 an array.
_NUMBERS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_TEXT: Final = 8
_ARRAY: Final = 9
_MOST_ENTRIES: Final = 1_000_000
_MOST_TEXT: Final = 16_000_000
_MOST_ITEMS: Final = 4_000_000
_MOST_KEPT: Final = 10_000
_MOST_DIMENSIONS: Final = 4
_MOST_ELEMENTS: Final = 2**63
_ALIGNMENT: Final = 32


class GgufHeader(NamedTuple):
    """What a file says of itself, and its tensors."""

    metadata: Metadata
    """Of an array of texts, or of more than 10,000 numbers, the value is its length."""
    tensors: tuple[StoredTensor, ...]


class _Cursor:
    """Reads a header from its start, never beyond the end of the file."""

    def __init__(self, stream: IO[bytes], file_bytes: int) -> None:
        self._stream, self._bytes, self.at = stream, file_bytes, 0

    def take(self, nbytes: int, what: str) -> bytes:
        self._check(nbytes, what)
        found = self._stream.read(nbytes)
        if len(found) < nbytes:
            raise BadHeaderError(f"is truncated while {what} is read")
        self.at += nbytes
        return found

    def skip(self, nbytes: int, what: str) -> None:
        self._check(nbytes, what)
        self._stream.seek(nbytes, os.SEEK_CUR)
        self.at += nbytes

    def _check(self, nbytes: int, what: str) -> None:
        if self.at + nbytes > self._bytes:
            raise BadHeaderError(
                f"is truncated: {what} would end at byte {self.at + nbytes:,}, and the file at {self._bytes:,}"
            )

    def number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        length = self.number("<Q", what)
        if length > _MOST_TEXT:
            raise BadHeaderError(f"{what} would have {length:,} bytes of text; expected at most {_MOST_TEXT:,}")
        return self.take(length, what).decode("utf-8", "replace")

    def value(self, what: str) -> Any:
        kind = self.number("<I", what)
        if kind == _TEXT:
            return self.text(what)
        return self._array(what) if kind == _ARRAY else self.number(self._form(kind, what), what)

    @staticmethod
    def _form(kind: int, what: str) -> str:
        if kind not in _NUMBERS:
            raise BadHeaderError(f"{what} has a value of the unknown type {kind}")
        return _NUMBERS[kind]

    def _array(self, what: str) -> Any:
        kind, length = struct.unpack("<IQ", self.take(12, what))
        if length > _MOST_ITEMS:
            raise BadHeaderError(f"{what} would have {length:,} items; expected at most {_MOST_ITEMS:,}")
        if kind == _TEXT:
            for _ in range(length):
                self.skip(self.number("<Q", what), what)
            return length
        form = self._form(kind, what)
        nbytes = length * struct.calcsize(form)
        if length > _MOST_KEPT:
            self.skip(nbytes, what)
            return length
        return [one for (one,) in struct.iter_unpack(form, self.take(nbytes, what))]


def _block_formats(shown: str) -> dict[int, tuple[str, int, int]]:
    """Code of a type -> its name, the elements of a block, and its bytes.

    Raises:
        UsageError: the package that has them is not installed.
    """
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError:
        raise UsageError(
            f"{shown}: block formats of GGUF are read with the package gguf; install it by `pip install "
            "'xfcost[checkpoints]'`"
        ) from None
    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def read_header(path: str, name: str) -> GgufHeader:
    """The header of the file at `path`; messages call it `name`.

    Raises:
        UsageError: it can't be read, or is no GGUF file.
    """
    formats = _block_formats(name)
    with header_of(path, name) as (stream, file_bytes):
        return _header(_Cursor(stream, file_bytes), file_bytes, formats, os.path.basename(path))


def _header(cursor: _Cursor, file_bytes: int, formats: Mapping[int, tuple[str, int, int]], file: str) -> GgufHeader:
    magic = cursor.take(4, "its magic number")
    if magic != _MAGIC:
        raise BadHeaderError(f"is no GGUF file: it begins with {printable(repr(magic)[1:], 40)}, and not with 'GGUF'")
    version = cursor.number("<I", "its version")
    if version not in _VERSIONS:
        big = ", as in files for big-endian machines" if version & 0xFFFF == 0 else ""
        raise BadHeaderError(f"is of GGUF version {version:,}{big}; expected 2 or 3")
    tensors, entries = (cursor.number("<Q", f"the number of its {what}") for what in ("tensors", "entries"))
    for count, what in ((tensors, "tensors"), (entries, "entries of metadata")):
        if count > _MOST_ENTRIES:
            raise BadHeaderError(f"would have {count:,} {what}; expected at most {_MOST_ENTRIES:,}")
    metadata: dict[str, Any] = {}
    for number in range(entries):
        key = cursor.text(f"the name of entry {number + 1}")
        if key in metadata:
            raise BadHeaderError(f"has the entry {printable(key, 80)} twice")
        metadata[key] = cursor.value(printable(key, 80))
    infos = [_tensor(cursor, number, formats) for number in range(tensors)]
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment % 8:
        raise BadHeaderError(f"general.alignment is {printable(str(alignment), 40)}; expected a multiple of 8")
    data_bytes = file_bytes + -cursor.at // alignment * alignment
    if infos:
        spans = [(offset, offset + nbytes, printable(name, 120)) for name, _, _, nbytes, offset in infos]
        check_covered(spans, max(0, data_bytes), gaps=True)
    names = {name for name, *_ in infos}
    if len(names) < len(infos):
        double = Counter(name for name, *_ in infos).most_common(1)[0][0]
        raise BadHeaderError(f"has the tensor {printable(double, 120)} twice")
    found = (StoredTensor(name, kind, shape, nbytes, file) for name, kind, shape, nbytes, _ in infos)
    return GgufHeader(metadata, tuple(found))


def _tensor(
    cursor: _Cursor, number: int, formats: Mapping[int, tuple[str, int, int]]
) -> tuple[str, str, tuple[int, ...], int, int]:
    """Name, type, shape (the last side is contiguous), bytes and offset of a tensor."""
    name = cursor.text(f"the name of tensor {number + 1}")
    shown = printable(name, 120)
    count = cursor.number("<I", shown)
    if count > _MOST_DIMENSIONS:
        raise BadHeaderError(f"{shown} would have {count:,} dimensions; expected at most {_MOST_DIMENSIONS}")
    sides = struct.unpack(f"<{count}Q", cursor.take(8 * count, shown))
    code, offset = struct.unpack("<IQ", cursor.take(12, shown))
    if code not in formats:
        raise BadHeaderError(f"{shown} has the unknown type {code:,}")
    kind, block, block_bytes = formats[code]
    elements = prod(sides)
    if elements > _MOST_ELEMENTS:
        raise BadHeaderError(f"{shown} has the shape {'×'.join(map(str, sides))}, of no tensor")
    if sides and sides[0] % block:
        raise BadHeaderError(f"{shown} has rows of {sides[0]:,} elements, and {kind} has blocks of {block}")
    return name, kind, tuple(reversed(sides)), elements // block * block_bytes, offset


# ── the files of one checkpoint ──

_PART: Final = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MOST_PARTS: Final = 10_000


def parts_of(path: str) -> list[str]:
    """The paths of all parts of a checkpoint of which one is named: `…-00001-of-00003.gguf`.

    Raises:
        UsageError: one is missing.
    """
    found = _PART.fullmatch(path)
    if found is None:
        return [path]
    count = int(found["count"])
    if not 0 < int(found["number"]) <= count <= _MOST_PARTS:
        raise UsageError(f"{printable(path, 200)}: is part {int(found['number']):,} of {count:,}")
    paths = [f"{found['name']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    for one in paths:
        if not os.path.exists(one):
            raise UsageError(f"{printable(one, 200)}: no such file; it is one of the {count:,} parts of the checkpoint")
    return paths


def _whole(path: str) -> tuple[GgufHeader, int]:
    """The header of a checkpoint with the tensors of all its parts, and how many there are."""
    paths = parts_of(path)
    state = tuple((one, stamp(one)) for one in paths)
    return _known(state), len(paths)


@lru_cache(4)
def _known(state: tuple[tuple[str, tuple[int, int]], ...]) -> GgufHeader:
    headers = [read_header(path, printable(path, 200)) for path, _ in state]
    tensors: dict[str, StoredTensor] = {}
    for (path, _), header in zip(state, headers, strict=True):
        for one in header.tensors:
            if one.name in tensors:
                raise UsageError(
                    f"{printable(path, 200)}: {printable(one.name, 120)} is in {tensors[one.name].file} too"
                )
            tensors[one.name] = one
    expected = headers[0].metadata.get("split.tensors.count")
    if expected is not None and expected != len(tensors):
        raise UsageError(
            f"{printable(state[0][0], 200)}: its parts have {len(tensors):,} tensors together; split.tensors.count is "
            f"{printable(str(expected), 40)}"
        )
    return GgufHeader(headers[0].metadata, tuple(tensors.values()))


# ── metadata -> config ──


class _Family(NamedTuple):
    """How the models of an architecture of llama.cpp are called by transformers."""

    model_type: str
    model_class: str
    keys: Mapping[str, str]
    """Key behind the architecture's name -> field, beside those of all."""
    fields: Callable[[Metadata, frozenset[str]], dict[str, Any]] = lambda metadata, tensors: {}
    """Other fields, by the metadata behind the architecture's name and the names of tensors."""
    modules: Mapping[str, str] = {}
    """Names inside a layer, or outside, that differ from those of most models."""


_KEYS: Final = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "rope.freq_base": "rope_theta",
}
_HEAD: Final = {"attention.key_length": "head_dim"}
_EXPERTS: Final = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_WINDOW: Final = {"attention.sliding_window": "sliding_window"}
# The number of a gating function in `expert_gating_func`.
_SIGMOID: Final = 2


def _biases(metadata: Metadata, tensors: frozenset[str]) -> dict[str, Any]:
    return {"attention_bias": "blk.0.attn_q.bias" in tensors}


def _of_llama(metadata: Metadata, tensors: frozenset[str]) -> dict[str, Any]:
    return {"attention_bias": "blk.0.attn_output.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}


def _of_deepseek(metadata: Metadata, tensors: frozenset[str]) -> dict[str, Any]:
    """A head's queries and keys have a part without positions; files for one latent head have the others' widths."""
    rotary = _whole_number(metadata, "rope.dimension_count")
    key = metadata.get("attention.key_length_mla", metadata.get("attention.key_length"))
    value = metadata.get("attention.value_length_mla", metadata.get("attention.value_length"))
    if type(key) is not int or type(value) is not int or key <= rotary:
        raise BadHeaderError("attention.key_length and attention.value_length are not the widths of heads")
    groups = {
        "n_group": metadata.get("expert_group_count", 1),
        "topk_group": metadata.get("expert_group_used_count", 1),
    }
    first = {"num_key_value_heads": metadata.get("attention.head_count")}
    first |= {"q_lora_rank": metadata.get("attention.q_lora_rank")}
    first |= {"qk_rope_head_dim": rotary, "qk_nope_head_dim": key - rotary, "v_head_dim": value}
    if metadata.get("expert_gating_func") == _SIGMOID:
        return first | groups | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
    return first | ({**groups, "topk_method": "group_limited_greedy"} if groups["n_group"] > 1 else {})


def _of_glm(metadata: Metadata, tensors: frozenset[str]) -> dict[str, Any]:
    return _biases(metadata, tensors) | {"use_qk_norm": "blk.0.attn_q_norm.weight" in tensors, "n_group": 1}


_FAMILIES: Final = {
    "llama": _Family("llama", "LlamaForCausalLM", _HEAD, _of_llama),
    "qwen2": _Family("qwen2", "Qwen2ForCausalLM", {}),
    "qwen2moe": _Family(
        "qwen2_moe", "Qwen2MoeForCausalLM",
        _EXPERTS | {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        modules={
            **{f"ffn_{one}_shexp": f"mlp.shared_expert.{one}_proj" for one in ("gate", "up", "down")},
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        },
    ),
    "qwen3": _Family("qwen3", "Qwen3ForCausalLM", _HEAD, _biases),
    "qwen3moe": _Family("qwen3_moe", "Qwen3MoeForCausalLM", _HEAD | _EXPERTS, _biases),
    "gemma": _Family("gemma", "GemmaForCausalLM", _HEAD),
    "gemma2": _Family(
        "gemma2", "Gemma2ForCausalLM", _HEAD | _WINDOW, modules={"ffn_norm": "pre_feedforward_layernorm"}
    ),
    "gemma3": _Family(
        "gemma3_text", "Gemma3ForCausalLM", _HEAD | _WINDOW, modules={"ffn_norm": "pre_feedforward_layernorm"}
    ),
    "phi3": _Family(
        "phi3", "Phi3ForCausalLM", _WINDOW, modules={"ffn_up": "mlp.gate_up_proj"}
    ),
    "gpt2": _Family("gpt2", "GPT2LMHeadModel", {}),
    "gpt-oss": _Family(
        "gpt_oss", "GptOssForCausalLM",
        _HEAD | _WINDOW | {
            "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "intermediate_size",
        },
        _biases, {"ffn_gate_inp": "mlp.router"},
    ),
    "deepseek2": _Family(
        "deepseek_v2", "DeepseekV2ForCausalLM",
        {
            "attention.kv_lora_rank": "kv_lora_rank",
            "leading_dense_block_count": "first_k_dense_replace", "expert_count": "n_routed_experts",
            "expert_used_count": "num_experts_per_tok", "expert_shared_count": "n_shared_experts",
            "expert_feed_forward_length": "moe_intermediate_size", "expert_weights_scale": "routed_scaling_factor",
            "expert_weights_norm": "norm_topk_prob",
        },
        _of_deepseek,
    ),
    "olmo2": _Family("olmo2", "Olmo2ForCausalLM", {}),
    "smollm3": _Family("smollm3", "SmolLM3ForCausalLM", {}),
    "starcoder2": _Family(
        "starcoder2", "Starcoder2ForCausalLM", _WINDOW, modules={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    ),
    "glm4moe": _Family(
        "glm4_moe", "Glm4MoeForCausalLM",
        _HEAD | {
            "leading_dense_block_count": "first_k_dense_replace", "expert_count": "n_routed_experts",
            "expert_used_count": "num_experts_per_tok", "expert_shared_count": "n_shared_experts",
            "expert_feed_forward_length": "moe_intermediate_size", "expert_weights_scale": "routed_scaling_factor",
        },
        _of_glm,
    ),
}  # fmt: skip
# Name in GGUF -> class of transformers, the first of several.
ARCHITECTURES: Final = {name: family.model_class for name, family in _FAMILIES.items()}


def _architecture(metadata: Metadata, shown: str) -> str:
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _FAMILIES:
        near = nearest(printable(str(name), 60), ARCHITECTURES)
        raise UsageError(f"{shown}: general.architecture {printable(str(name), 60)} is not known; {near}")
    return name


def _whole_number(metadata: Metadata, key: str) -> int:
    value = metadata.get(key)
    if type(value) is not int or value < 0:
        raise BadHeaderError(f"{key} is {printable(str(value), 60)}; expected a whole number")
    return value


@lru_cache(4)
def _config(path: str, state: tuple[int, int]) -> dict[str, Any]:
    shown = printable(path, 200)
    header, _ = _whole(path)
    name = _architecture(header.metadata, shown)
    family, inner = _FAMILIES[name], {
        key.removeprefix(f"{name}."): value for key, value in header.metadata.items() if key.startswith(f"{name}.")
    }  # fmt: skip
    try:
        return _fields(name, family, inner, header)
    except BadHeaderError as error:
        raise UsageError(f"{shown}: {name}.{error}") from None


def _fields(name: str, family: _Family, metadata: Metadata, header: GgufHeader) -> dict[str, Any]:
    tensors = {one.name: one for one in header.tensors}
    fields: dict[str, Any] = {
        "architectures": [family.model_class],
        "model_type": family.model_type,
        "pad_token_id": None,
    }
    table = tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:  # noqa: PLR2004 - words and widths
        raise BadHeaderError("token_embd.weight is missing, or no table; the file is no model that reads text")
    fields["vocab_size"] = table.shape[0]
    tied = "output.weight" not in tensors
    for key, field in (_KEYS | dict(family.keys)).items():
        value = _usual(metadata.get(key))
        if value is not None and (value or field != "sliding_window"):  # 0: none
            if isinstance(value, list):
                raise BadHeaderError(f"{key} differs from layer to layer; the layers of one are counted alike")
            fields[field] = value
    fields |= family.fields(metadata, frozenset(tensors))
    for key in ("block_count", "embedding_length", "attention.head_count"):
        _whole_number({key: _usual(metadata.get(key))}, key)
    if nextn := metadata.get("nextn_predict_layers"):
        fields["num_hidden_layers"] -= nextn
        fields["num_nextn_predict_layers"] = nextn
    if name == "llama" and metadata.get("expert_count"):
        fields |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        fields |= {"num_local_experts": metadata["expert_count"], "num_experts_per_tok": metadata["expert_used_count"]}
        for other in ("attention_bias", "mlp_bias"):
            fields.pop(other)
    if name == "gpt2":
        fields = _of_gpt2(fields)
    return fields | {"tie_word_embeddings": tied}


def _of_gpt2(fields: dict[str, Any]) -> dict[str, Any]:
    names = {
        "max_position_embeddings": "n_positions", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head", "intermediate_size": "n_inner",
    }  # fmt: skip
    left_out = ("num_key_value_heads", "rope_theta")
    return {names.get(key, key): value for key, value in fields.items() if key not in left_out}


def _usual(value: Any) -> Any:
    """Of a list the value that all its layers have."""
    return value[0] if isinstance(value, list) and value and all(one == value[0] for one in value) else value


def gguf_config(path: str) -> dict[str, Any]:
    """The fields of a config.json that the metadata of the file at `path` say.

    Raises:
        UsageError: the file is bad, or its architecture is not known.
    """
    return _config(path, stamp(parts_of(path)[0]))


# ── names of tensors ──

_MODULES: Final = {
    "token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_q_a": "self_attn.q_a_proj",
    "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_b": "self_attn.kv_b_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_sinks": "self_attn.sinks",
    "ffn_norm": "post_attention_layernorm", "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate", "exp_probs_b": "mlp.gate.e_score_correction",
    **{f"ffn_{one}_exps": f"mlp.experts.0.{one}_proj" for one in ("gate", "up", "down")},
    **{f"ffn_{one}_shexp": f"mlp.shared_experts.{one}_proj" for one in ("gate", "up", "down")},
}  # fmt: skip
_IN_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")


def module_name(architecture: str, tensor: str) -> str:
    """What transformers calls a tensor, with `weight` or `bias` behind it."""
    name, dot, last = tensor.rpartition(".")
    found = _IN_LAYER.fullmatch(name)
    own = found[2] if found else name
    known = _FAMILIES[architecture].modules.get(own, _MODULES.get(own))
    if known is None:
        return tensor
    return f"model.layers.{found[1]}.{known}{dot}{last}" if found else f"{known}{dot}{last}"


def read_gguf(path: str) -> Checkpoint:
    """The checkpoint at `path`, with its config, and the names that transformers has for its tensors.

    Raises:
        UsageError: a file is missing or bad, or its architecture is not known.
    """
    header, files = _whole(path)
    architecture = _architecture(header.metadata, printable(path, 200))
    names = partial(module_name, architecture)
    return Checkpoint(path, gguf_config(path), header.tensors, files, _format(header.metadata), names)


def _format(metadata: Metadata) -> str | None:
    """`Q4_K_M`: what the file is called by its quantisation."""
    from gguf.constants import LlamaFileType

    code = metadata.get("general.file_type")
    known = {int(one): one.name for one in LlamaFileType}
    return known[code].removeprefix("MOSTLY_").removeprefix("ALL_") if code in known else None
