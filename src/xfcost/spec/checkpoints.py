"""What a config.json says of its checkpoint: the format of the weights (`quantization_config`), and the positions.

Each method's reader has the fields that decide bytes; the others (how activations are quantised, calibrated) are not
read. Files of these methods store beside the packed weights:

    awq                 for each group of inputs a 16-bit scale and a zero point (AutoAWQ)
    gptq                the same; with desc_act also a 32-bit group index for each input (AutoGPTQ); `dynamic` has
                        other bits and groups for some modules (GPTQModel)
    fp8                 a float32 scale for each block (`weight_block_size`), or for each matrix (transformers)
    fbgemm_fp8          a float32 scale for each output
    mxfp4               an 8-bit scale for 32 inputs; experts alone (gpt-oss)
    bitsandbytes        4 bits: a float32 for 64 elements, or with double quantisation 8 bits, and a float32 for 256 of
                        them (QLoRA, Dettmers et al. 2023, §3); 8 bits: a float32 scale for each output
    eetq                a 16-bit scale for each output
    compressed-tensors  a 16-bit scale for each group, output, block or matrix, with a zero point if not symmetric
    modelopt            FP8: a float32 scale for each matrix; NVFP4: an 8-bit scale for 16 inputs and a float32
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.patterns import wrong_pattern
from xfcost.ledger.quantization import WEIGHT_FORMATS, Override, WeightFormat

Fields = Mapping[str, Any]
_BYTE: Final = 8
# Type of a config -> its checkpoint's one map to queries, keys and values; others have three.
_FUSED: Final = {"gpt2": "c_attn", "bloom": "query_key_value"}


class _UnknownError(Exception):
    """What is not known of a format."""


class _PatternError(Exception):
    """The field, a regular expression in it, and what is wrong with that."""


def published_weights(config: Fields, name: str = "config.json") -> WeightFormat | str | None:
    """The format of a checkpoint with this config; a text that names what is not known of it; None: no format.

    Raises:
        UsageError: in the file of this name, a regular expression is none, or a match of it may never end.
    """
    inner = config.get("text_config")
    found = [one.get("quantization_config") for one in (config, inner) if isinstance(one, dict)]
    fields = next((one for one in found if one), None)
    if fields is None:
        return None
    if not isinstance(fields, dict):
        return "it is no mapping"
    method = fields.get("quant_method")
    if method is None and any(fields.get(f"load_in_{bits}bit") for bits in (4, 8)):
        method = "bitsandbytes"
    reader = _METHODS.get(method) if isinstance(method, str) else None
    if reader is None:
        return f"the method {printable(str(method), 60)} is not known"
    try:
        made = _with_left_out(reader(fields), fields)
    except _PatternError as error:
        raise UsageError(f"{name} quantization_config.{error}") from None
    except _UnknownError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"its fields of the method {method} are not known"
    return msgspec.structs.replace(made, fused=fused_map(config), cache=_cache(fields), published=True)


def fused_map(config: Fields) -> str | None:
    """What a checkpoint with this config calls its one map to queries, keys and values; None: it has three."""
    return _FUSED.get(str(config.get("model_type")))


# Fields with the modules that stay in the model's dtype.
_LEFT_OUT: Final = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")


def _with_left_out(made: WeightFormat, fields: Fields) -> WeightFormat:
    left_out, remarks = list[str](), list[str]()
    for field in _LEFT_OUT:
        names, remark = _names_in(fields.get(field), field)
        _check_patterns(field, names)
        left_out += names
        remarks += [remark] if remark else []
    return msgspec.structs.replace(made, left_out=tuple(left_out), remarks=tuple(remarks))


def _check_patterns(field: str, entries: Iterable[str]) -> None:
    for one in entries:
        if one.startswith("re:") and (wrong := wrong_pattern(one[3:])):
            raise _PatternError(_of_pattern(field, one, wrong))


def _names_in(value: Any, field: str) -> tuple[list[str], str | None]:
    """The names in a field, and what of it is none."""
    if value is None:
        return [], None
    if not isinstance(value, list):
        return [], f"{field}: expected a list of names, got {_shown(value)}; it has no effect"
    names = [one for one in value if isinstance(one, str) and one]
    others = [one for one in value if not isinstance(one, str) or not one]
    return names, f"{field}: expected names, got {_shown(others[0])}; it has no effect" if others else None


def _shown(value: Any) -> str:
    return printable(json.dumps(value), 60)


def _of_pattern(field: str, pattern: str, wrong: str) -> str:
    return f"{field}: {printable(repr(pattern), 120)}: {wrong}"


def _cache(fields: Fields) -> str | None:
    """The format of keys and values of a checkpoint (compressed-tensors, modelopt)."""
    scheme, inner = fields.get("kv_cache_scheme"), fields.get("quantization")
    named = [one.get("kv_cache_quant_algo") for one in (fields, inner) if isinstance(one, dict)]
    if isinstance(scheme, dict) and scheme.get("num_bits") == _BYTE:
        return {"float": "fp8", "int": "int8"}.get(str(scheme.get("type")))
    return next(({"FP8": "fp8", "INT8": "int8"}.get(str(one)) for one in named if one), None)


# Types of rotary positions whose `max_position_embeddings` has the factor already.
_WITH_FACTOR: Final = ("default", "llama3", "longrope", "su", "mrope", "proportional")

# Types with biases of distances alone, whose configs may have `n_positions` all the same.
_RELATIVE: Final = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
# What `scaled_positions` reads of a config.
POSITION_FIELDS: Final = ("model_type", "alibi", "position_biased_input", "rope_scaling", "rope_parameters")


def positions_of_config(config: Fields) -> int | None:
    """The most tokens that a model has positions for; None where its config does not say so.

    Scaled rotary positions have `factor` times as many: of `original_max_position_embeddings` with YaRN, whose configs
    may have the product as well, and of the field itself in older configs. Gemma 3 and later have the product.
    """
    inner = config.get("text_config")
    fields = inner if isinstance(inner, dict) and "max_position_embeddings" in inner else config
    names = ("max_position_embeddings", "n_positions", "max_target_positions")
    most: int | None = next(
        (fields[name] for name in names if type(fields.get(name)) is int and fields[name] > 0), None
    )
    return None if most is None else scaled_positions(most, fields)


def scaled_positions(most: int, fields: Fields) -> int | None:
    """`most` positions, scaled as the fields of rotary ones say; None of models that have biases of distances alone."""
    if fields.get("alibi") or fields.get("model_type") in _RELATIVE or fields.get("position_biased_input") is False:
        return None
    rope = fields.get("rope_scaling") or fields.get("rope_parameters")
    if not isinstance(rope, dict) or str(fields.get("model_type")).startswith("gemma"):
        return most
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    if kind in _WITH_FACTOR or isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor < 1e6:  # noqa: PLR2004
        return most
    original = rope.get("original_max_position_embeddings")
    return max(most, int((original if type(original) is int else most) * factor))


def _whole(value: Any, least: int = 1) -> int:
    if type(value) is not int or not least <= value <= 2**20:
        raise ValueError(value)
    return value


def _group(fields: Fields) -> int | None:
    """Inputs of a group; None: all."""
    size = fields.get("group_size", 128)
    return None if size in (-1, None) else _whole(size)


def _of_group(size: int | None) -> str:
    return "of an output" if size is None else f"of {size} inputs"


def _zero_point(bits: int) -> str:
    return f"{'an' if str(bits).startswith(('8', '11', '18')) else 'a'} {bits}-bit zero point"


def _grouped(name: str, fields: Fields, input_bits: int = 0) -> WeightFormat:
    bits, size = _whole(fields.get("bits", fields.get("w_bit", 4))), _group(fields)
    words = f"{bits} bits, and {_of_group(size)} a 16-bit scale and {_zero_point(bits)}"
    words += f", and of an input a {input_bits}-bit index" if input_bits else ""
    return WeightFormat(f"{bits}-bit {name}", bits, 1, size, 16 + bits, words, input_bits=input_bits)


def _gptq(fields: Fields) -> WeightFormat:
    made = _gptq_alone(fields)
    overrides = tuple(_override(pattern, own, fields) for pattern, own in (fields.get("dynamic") or {}).items())
    formats = [made, *(one.form for one in overrides if one.form is not None)]
    return msgspec.structs.replace(
        made,
        name=" and ".join(dict.fromkeys(one.name for one in formats)),
        words=" or ".join(dict.fromkeys(one.words for one in formats)),
        targets=tuple(_in_block(fields.get("modules_in_block_to_quantize") or [])),
        overrides=overrides,
        head=fields.get("lm_head") is True,
    )


def _gptq_alone(fields: Fields) -> WeightFormat:
    return _grouped("GPTQ", fields, 32 if fields.get("desc_act") else 0)


def _override(key: str, own: Any, fields: Fields) -> Override:
    """An entry of `dynamic`: `-:` leaves modules out; `+:`, or nothing, gives them other fields."""
    out, pattern = key.startswith("-:"), key[2:] if key.startswith(("-:", "+:")) else key
    if wrong := wrong_pattern(pattern):
        raise _PatternError(_of_pattern("dynamic", key, wrong))
    if not out and not isinstance(own, dict):
        raise _UnknownError(f"dynamic: {printable(key, 60)} has no mapping of fields")
    return Override(pattern, None if out else _gptq_alone({**fields, **own}))


def _in_block(value: Any) -> Iterator[str]:
    """The names of modules in a block, a list of lists."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, list):
            yield from _in_block(one)
        elif isinstance(one, str) and one and not one.startswith("re:"):
            yield one
        else:
            raise _UnknownError(f"modules_in_block_to_quantize: expected lists of names, got {_shown(one)}")


def _fp8(fields: Fields) -> WeightFormat:
    block = fields.get("weight_block_size")
    if block is None:
        return WeightFormat("FP8", 8, None, None, 32, "8 bits, and of a matrix a float32 scale", "float8")
    outputs, inputs = map(_whole, block)
    return WeightFormat("FP8", 8, outputs, inputs, 32, f"8 bits, and of {outputs}×{inputs} a float32 scale", "float8")


def _bitsandbytes(fields: Fields) -> WeightFormat:
    if not fields.get("load_in_4bit"):
        if not fields.get("load_in_8bit"):
            raise ValueError
        return WeightFormat("8-bit LLM.int8()", 8, 1, None, 32, "8 bits, and of an output a float32 scale", "int8")
    name = f"4-bit {str(fields.get('bnb_4bit_quant_type', 'fp4')).upper()}"
    if fields.get("bnb_4bit_use_double_quant"):
        words = "4 bits, and of 64 elements an 8-bit scale, 256 of which share a float32"
        return WeightFormat(name, 4, 1, 64, 8, words, flat=True, nested=256)
    return WeightFormat(name, 4, 1, 64, 32, "4 bits, and of 64 elements a float32 scale", flat=True)


_NVFP4: Final = msgspec.structs.replace(WEIGHT_FORMATS["nvfp4"], name="NVFP4")


# Strategy of compressed-tensors -> outputs and inputs of a scale.
_STRATEGIES: Final[dict[str, Callable[[Fields], tuple[int | None, int | None]]]] = {
    "tensor": lambda _: (None, None),
    "channel": lambda _: (1, None),
    "group": lambda weights: (1, _whole(weights["group_size"])),
    "block": lambda weights: (_whole(weights["block_structure"][0]), _whole(weights["block_structure"][1])),
}


def _compressed(fields: Fields) -> WeightFormat:
    groups = [
        msgspec.structs.replace(_scheme(one, fields), targets=_targets(one)) for one in fields["config_groups"].values()
    ]
    if len({msgspec.structs.replace(one, targets=()) for one in groups}) == 1:
        all_linear = any(not one.targets for one in groups)
        targets = () if all_linear else tuple(name for one in groups for name in one.targets)
        return msgspec.structs.replace(groups[0], targets=targets)
    return msgspec.structs.replace(
        groups[0],
        name=" and ".join(dict.fromkeys(one.name for one in groups)),
        words=" or ".join(dict.fromkeys(one.words for one in groups)),
        products=next((one.products for one in groups if one.products), None),
        targets=(),
        groups=tuple(groups),
    )


def _targets(group: Fields) -> tuple[str, ...]:
    """Names and patterns of the modules of a group; none: all linear layers.

    Raises:
        _UnknownError: it has a class other than `Linear`, whose modules are not known by name.
    """
    targets = group.get("targets") or ["Linear"]
    if other := [one for one in targets if one[:1].isupper() and one != "Linear"]:
        raise _UnknownError(f"the class {printable(other[0], 60)} in the targets of its config_groups is not known")
    _check_patterns("config_groups", targets)
    return () if "Linear" in targets else tuple(targets)


def _scheme(group: Fields, fields: Fields) -> WeightFormat:
    form, weights = str(group.get("format") or fields.get("format")), group["weights"]
    if form.startswith("mxfp4"):
        return WeightFormat("MXFP4", 4, 1, 32, 8, "4 bits, and of 32 inputs an 8-bit scale")
    if form.startswith("nvfp4"):
        return _NVFP4
    bits, kind = _whole(weights["num_bits"]), weights.get("type", "int")
    usual = "tensor" if weights.get("group_size") is None else "group"
    outputs, inputs = _STRATEGIES[weights.get("strategy") or usual](weights)
    zero = bits if kind == "int" and not weights.get("symmetric", True) else 0
    of = _of_group(inputs) if outputs == 1 else "of a matrix" if outputs is None else f"of {outputs}×{inputs}"
    words = f"{bits} bits, and {of} a 16-bit scale" + (f" and {_zero_point(zero)}" if zero else "")
    both = group.get("input_activations") is not None and bits == _BYTE
    products = {"float": "float8", "int": "int8"}.get(kind) if both else None
    return WeightFormat(
        f"{'FP' if kind == 'float' else 'INT'}{bits}", bits, outputs, inputs, 16 + zero, words, products
    )


def _modelopt(fields: Fields) -> WeightFormat:
    found = fields.get("quant_algo") or fields["quantization"]["quant_algo"]
    return {
        "FP8": WeightFormat("FP8", 8, None, None, 32, "8 bits, and of a matrix a float32 scale", "float8"),
        "NVFP4": _NVFP4,
    }[found]


_METHODS: Final[dict[str, Callable[[Fields], WeightFormat]]] = {
    "awq": lambda fields: _grouped("AWQ", fields),
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": lambda _: WeightFormat("FP8", 8, 1, None, 32, "8 bits, and of an output a float32 scale", "float8"),
    "mxfp4": lambda _: msgspec.structs.replace(WEIGHT_FORMATS["mxfp4"], name="MXFP4"),
    "bitsandbytes": _bitsandbytes,
    "eetq": lambda _: WeightFormat("8-bit EETQ", 8, 1, None, 16, "8 bits, and of an output a 16-bit scale"),
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
}
