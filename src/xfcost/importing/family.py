"""A family of models of transformers: its config.json, its fields, what each may hold, what changes no count.

Activations have transformers' names here, and the grammar's in a spec.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec.inspect import LiteralType, StructType, UnionType, type_info

from xfcost.formulas.component import ActKind, Rows
from xfcost.ledger.errors import ComponentError, SpecError, divisors_text, nearest, printable
from xfcost.spec.grammar import split_path
from xfcost.spec.grammar_errors import expected, path_of
from xfcost.spec.reader import path_text, read, read_file, shown_value, value_at
from xfcost.spec.targets import CONFIG, is_gguf, is_yaml

_MAX_DIGITS: Final = 40
_WHITESPACE: Final = re.compile(r"[ \t\n\r]*")


class ConfigFile(NamedTuple):
    """The fields of a config.json and their lines."""

    name: str
    """The path as the user gave it."""
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    """0 of the metadata of a GGUF, which has none."""

    def error(self, field: str, message: str) -> SpecError:
        """The error `config.json:12 hidden_size: message`; without a line if the file doesn't have the field."""
        line = f":{self.lines[field]}" if self.lines.get(field) else ""
        return SpecError(f"{self.name}{line} {printable(field)}: {message}")


def read_config(path: Path, name: str) -> ConfigFile:
    """The fields of the config at `path`; messages call it `name`.

    Raises:
        SpecError: the file can't be read or is not one JSON object; or a field is a duplicate or has no plain value.
    """
    if path.is_dir() and (path / "config.json").is_file():
        raise SpecError(f"{name}: is a directory; expected {CONFIG.what}: {name.rstrip('/')}/config.json")
    if is_gguf(str(path)):
        from xfcost.importing.gguf import gguf_config

        metadata = gguf_config(str(path))
        return ConfigFile(name, metadata, dict.fromkeys(metadata, 0))
    text = read_file(path, name, CONFIG)
    if is_yaml(str(path)):
        data, source = read(text, name)
        return ConfigFile(name, data, {key: source.lines[key,][1] for key in data})
    _check_syntax(text, name)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, line, value in _fields(text, name):
        if key in values:
            raise SpecError(f"{name}:{line} {printable(key)}: duplicate field (first at line {lines[key]}); keep one")
        values[key], lines[key] = value, line
    return ConfigFile(name, values, lines)


def _check_syntax(text: str, name: str) -> None:
    if not text.strip():
        raise SpecError(f"{name}:1 is empty; expected {CONFIG.what}")
    try:
        content = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).decode(text)
        json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        raise SpecError(f"{name}:{error.lineno}:{error.colno} is not valid JSON: {message}") from None
    except RecursionError:
        raise SpecError(f"{name}: is nested too deeply to be {CONFIG.what}") from None
    except UnicodeEncodeError:
        raise SpecError(f"{name}: has half a character, as \\ud800 is; expected {CONFIG.what}") from None
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a single value"
        raise SpecError(f"{name}:1 {kind} at top level; expected the object of {CONFIG.what}")


class _NotPlainError(Exception):
    """A value that is not plain data; the message says why."""


def _fields(text: str, name: str) -> Iterator[tuple[str, int, Any]]:
    """(key, line, value) of the top level; `text` must be one object."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_whole)
    position = _skip_whitespace(text, 0) + 1
    line, line_position = 1, 0
    while text[position := _skip_whitespace(text, position)] != "}":
        position = _skip_whitespace(text, position + 1) if text[position] == "," else position
        line, line_position = line + text.count("\n", line_position, position), position
        key, position = decoder.raw_decode(text, position)
        position = _skip_whitespace(text, position) + 1  # the colon
        try:
            value, position = decoder.raw_decode(text, _skip_whitespace(text, position))
        except _NotPlainError as error:
            raise SpecError(f"{name}:{line} {printable(key)}: {error}") from None
        yield key, line, value


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise _NotPlainError(f"duplicate key {printable(duplicate)!r}; keep one of them")
    return result


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _NotPlainError(f"a number of {len(text):,} digits is too large")
    return int(text)


def is_finite(value: Any) -> bool:
    """Are all numbers in the value finite? Python's JSON may have NaN and Infinity."""
    if isinstance(value, dict | list):
        return all(is_finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


COST_FREE: Final = frozenset({
    # origin
    "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "transformers.js_config",
    "tokenizer_class", "task_specific_params", "finetuning_task", "language", "prefix",
    "label2id", "problem_type", "max_length", "_num_labels", "sentence_transformers",
    "sbert_ce_default_activation_function", "is_llama_config",
    # storage and execution
    "torch_dtype", "dtype", "torchscript", "use_bfloat16", "tf_legacy_loss", "return_dict", "use_return_dict",
    "output_hidden_states", "output_attentions", "attn_implementation", "_attn_implementation",
    "_attn_implementation_internal", "_attn_implementation_autoset", "_experts_implementation",
    "_experts_implementation_internal", "experts_implementation", "gradient_checkpointing", "use_cache",
    "chunk_size_feed_forward", "keys_to_ignore_at_inference", "unsloth_version", "unsloth_fixed", "model_max_length",
    "use_flash_attention", "output_past", "_flash_attn_2_enabled", "pretraining_tp", "base_model_tp_plan",
    # training
    "initializer_range", "initializer_factor", "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "hidden_dropout", "dropout",
    "classifier_dropout", "dropout_rate", "drop_path_rate", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    # token ids
    "pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
    "bad_words_ids", "force_words_ids", "sequence_bias", "eos_token_ids",
    # generation
    "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores", "output_logits",
    "return_dict_in_generate", "exponential_decay_length_penalty", "remove_invalid_values", "renormalize_logits",
    "cache_implementation", "cache_config", "max_time", "stop_strings", "constraints", "guidance_scale",
    "penalty_alpha", "low_memory", "generation_config", "watermarking_config",
    "num_assistant_tokens", "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind",
    "is_assistant", "num_assistant_tokens_schedule", "prompt_lookup_num_tokens", "target_lookbehind",
    "max_matching_ngram_size", "use_model_defaults", "disable_compile", "compile_config", "prefill_chunk_size",
    "token_healing", "top_h", "continuous_batching_config",
})  # fmt: skip

# Fields that are supported at these values only: field -> (values, reason).
SUPPORTED_VALUES: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "add_cross_attention": ((False,), "the encoder of this decoder is not in the file"),
    "cross_attention_hidden_size": ((None,), "the encoder of this decoder is not in the file"),
    "is_encoder_decoder": ((False,), "this family has no encoder–decoder form"),
    "is_decoder": ((False,), "this family has no causal form"),
    "tie_encoder_decoder": ((False,), "the grammar has no streams that share all weights"),
    "pruned_heads": (({}, None), "the grammar has no layers with different heads"),
}

# Fields that change no count and are reported: field -> what is counted.
REMARKS: Final[dict[str, str]] = {
    "quantization": "the weights are counted unpacked, each as one parameter",
    "quantization_config": "the weights are counted unpacked, each as one parameter",
    "auto_map": "the model may have its own code; transformers' class is counted",
    "is_causal": "a mask changes no count of the dense matmul; a model without one has no decode step",
}


Activation = Literal[
    "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate",
    "quick_gelu", "relu", "silu", "swish",
]  # fmt: skip
# gelu_fast and gelu_accurate are the tanh formula with its factors in another order.
ACTIVATIONS: Final[dict[str, ActKind]] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def act(name: str) -> dict[str, ActKind]:
    """`{act: …}` of a spec; empty for GELU, the default of every component."""
    return {} if ACTIVATIONS[name] == "gelu" else {"act": ACTIVATIONS[name]}


def mlp(hidden: int, name: str, *, bias: bool = True) -> dict[str, Any]:
    """A plain feed-forward network."""
    return {"kind": "mlp", "hidden": hidden} | act(name) | ({} if bias else {"bias": False})


def gated(field: str, name: str, hidden: int, *, bias: bool = False) -> dict[str, Any]:
    """A gated feed-forward network.

    Raises:
        ComponentError: the grammar has no network with this gate; the error names `field`.
    """
    gate = ACTIVATIONS[name]
    biases = {"bias": True} if bias else {}
    if gate == "silu":
        return {"kind": "swiglu", "hidden": hidden} | biases
    if gate in ("gelu", "gelu_tanh"):
        return {"kind": "geglu", "hidden": hidden} | act(name) | biases
    raise ComponentError(
        field, f"expected a gate of silu or gelu, got {name!r}: the grammar has no other gated network"
    )


class Draft(NamedTuple):
    """The keys of a spec without name and paper, in the grammar's order."""

    keys: dict[str, Any]
    remarks: list[str]
    """Sentences for the comment at the top: assumptions, fields without a cost, omissions."""


def classes(model: str, tasks: str) -> tuple[str, ...]:
    """The names of transformers' classes: of `Bert` and `Model MaskedLM` they are BertModel and BertForMaskedLM."""
    return tuple(f"{model}{task}" if task.endswith("Model") else f"{model}For{task}" for task in tasks.split())


def check_heads(field: str, heads: int, width_field: str, width: int) -> None:
    """Raise ComponentError if `heads` don't divide the width."""
    if width % heads:
        divisors = divisors_text(width)
        raise ComponentError(
            field, f"{heads} heads don't divide the width {width} ({width_field}); it could be {divisors}"
        )


# Another name of a field -> the name that this reader knows.
Aliases = Mapping[str, str]
# A field -> the values that are supported, and why others are not.
Values = Mapping[str, tuple[tuple[Any, ...], str]]


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of models: the fields of a config that change a count, with transformers' defaults.

    A field's type has the values that a spec can express; `check` refuses combinations.
    """

    paper: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    """The supported classes of transformers; the first is the default."""
    cost_free: ClassVar[frozenset[str]] = frozenset()
    """Fields of this family alone that change no count."""
    supported_values: ClassVar[Values] = {}
    """Fields that are supported at these values only: field -> (values, reason)."""
    aliases: ClassVar[Aliases] = {}
    """Other names of fields, which transformers accepts."""
    mirrors: ClassVar[Aliases] = {}
    """Fields that repeat another field or property, and that transformers ignores."""
    heads_and_width: ClassVar[tuple[str, str] | None] = None
    """The fields with the number of heads and with the width that it divides."""

    num_labels: Rows = 2
    """Classes of a classifier; also the length of `id2label`."""

    def check(self) -> None:
        """Raise ComponentError with the field's name if fields contradict each other."""
        if self.heads_and_width:
            heads, width = self.heads_and_width
            check_heads(heads, getattr(self, heads), width, getattr(self, width))

    def draft(self, architecture: str) -> Draft:
        """The spec of `architecture`, one of `architectures`."""
        raise NotImplementedError


def read_family(family_type: type[Family], file: ConfigFile, ignored: Collection[str] = ()) -> tuple[Family, list[str]]:
    """The family with the fields of `file`, without the `ignored` ones; and remarks.

    Raises:
        SpecError: fields are unknown or not supported; the message lists all of them, with file, line and name.
    """
    fields = _Fields(family_type, file)
    fields.ignore(ignored)
    fields.count_labels()
    fields.rename_aliases()
    remarks = [
        f"{name}: {REMARKS[name]}."
        for name in fields.values
        if name in REMARKS and name not in family_type.__struct_fields__ and name not in family_type.supported_values
    ]
    fields.check_each()
    family = fields.family()
    if errors := fields.errors or [*_contradictions(family, file)]:
        raise SpecError("\n".join(str(error) for error in sorted(errors, key=lambda error: _line_of(error, file))))
    return family, remarks


class _Fields:
    """The fields of a config on their way into a family, and the errors found."""

    def __init__(self, family_type: type[Family], file: ConfigFile) -> None:
        self.type, self.file = family_type, file
        self.values = {key: value for key, value in file.values.items() if key not in ("model_type", "architectures")}
        self.errors: list[SpecError] = []

    def refuse(self, name: str, message: str) -> None:
        self.errors.append(self.file.error(name, message))

    def ignore(self, names: Collection[str]) -> None:
        """Leave out fields that are not read anyway."""
        for name in names:
            if name in self.type.__struct_fields__ or name in self.type.aliases:
                raise self.file.error(name, "changes what is counted and can't be ignored; change it in the file")
            if name not in self.values:
                near = nearest(name, self.values)
                raise self.file.error(name, f"--ignore names a field that the file doesn't have; {near}")
            del self.values[name]

    def count_labels(self) -> None:
        """Replace `id2label` by its length, `num_labels`."""
        names, number = self.values.pop("id2label", None), self.values.get("num_labels")
        if names is None:
            return
        if not isinstance(names, dict) or not names:
            self.refuse("id2label", f"expected class names by class number, got {shown_value(names)}")
        elif number not in (None, len(names)):
            self.refuse("num_labels", f"expected {len(names)}, the names in id2label, got {shown_value(number)}")
        else:
            self.values["num_labels"] = len(names)

    def rename_aliases(self) -> None:
        """Replace aliases by the family's names."""
        for alias, name in self.type.aliases.items():
            if alias not in self.values:
                continue
            value = self.values.pop(alias)
            own = self.values.setdefault(name, value)
            if not _same(own, value):
                difference = f"is another name of {name}, which is {shown_value(own)}; got {shown_value(value)}"
                self.refuse(alias, f"{difference}; leave one of the two out")

    def check_each(self) -> None:
        """Leave out fields that the family doesn't have, and infinite numbers; they are errors where they count."""
        for name in list(self.values):
            if name not in self.type.__struct_fields__:
                self._check_unread(name, self.values.pop(name))
            elif not is_finite(self.values[name]):
                got = shown_value(self.values.pop(name))
                self.refuse(name_in_file(name, self.type, self.file), f"expected a finite number, got {got}")

    def _check_unread(self, name: str, value: Any) -> None:
        """Refuse a field that the family doesn't have, unless this value is known to change no count."""
        own = self.type.supported_values.get(name)
        if name in self.type.mirrors or name in self.type.cost_free or (own is None and name in {*REMARKS, *COST_FREE}):
            return
        known = own or SUPPORTED_VALUES.get(name)
        if known is None:
            near = nearest(name, [*self.type.__struct_fields__, *self.type.aliases])
            near = f"{near} " if near.startswith("did you mean") else ""
            self.refuse(
                name,
                f"is unknown in this family, and {shown_value(value)} could change what is counted; {near}"
                f"if it changes nothing, --ignore {printable(name)}",
            )
        elif not any(_same(value, candidate) for candidate in known[0]):
            expected_values = " or ".join(map(shown_value, known[0]))
            self.refuse(name, f"expected {expected_values}, got {shown_value(value)}: {known[1]}")

    def family(self) -> Family:
        """The family; fields of a wrong type are errors, and have their defaults."""
        while True:
            try:
                return msgspec.convert(self.values, self.type)
            except msgspec.ValidationError as error:
                text, end = split_path(str(error))
                path = path_of(end)
                if not path:  # a missing field, but every field has a default
                    raise AssertionError(text) from None
                self.errors.append(self._type_error(text, path))
                del self.values[str(path[0])]

    def _type_error(self, text: str, path: tuple[str | int, ...]) -> SpecError:
        """The validator's message with file, line and field, in the grammar's words."""
        name = name_in_file(str(path[0]), self.type, self.file)
        value = value_at(self.values, path)
        choices = _choices(self.type, str(path[0]))
        expectation = f"expected {', '.join(choices)}" if choices else expected(text, value)
        near = nearest(value, choices) if isinstance(value, str) and choices else ""
        near = f"; {near}" if near.startswith("did you mean") else ""
        line = f":{self.file.lines[name]}" if self.file.lines.get(name) else ""
        field = path_text((name, *path[1:]))
        return SpecError(f"{self.file.name}{line} {field}: {expectation}, got {shown_value(value)}{near}")


def _contradictions(family: Family, file: ConfigFile) -> Iterator[SpecError]:
    """Errors of fields that contradict each other."""
    try:
        family.check()
    except ComponentError as error:
        yield file.error(name_in_file(error.field, type(family), file), error.message)
        return
    for mirror, name in family.mirrors.items():
        value, actual = file.values.get(mirror), getattr(family, name)
        if value is not None and not _same(value, actual):
            yield file.error(mirror, f"expected {name}, which is {shown_value(actual)}, got {shown_value(value)}")
            return


def _line_of(error: SpecError, file: ConfigFile) -> int:
    """The line number in an error's message."""
    digits = re.match(r":(\d+)", str(error).removeprefix(file.name))
    return int(digits[1]) if digits else 0


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 is not true."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def name_in_file(name: str, family_type: type[Family], file: ConfigFile) -> str:
    """The field's name as the file has it."""
    if name in file.lines:
        return name
    if name == "num_labels" and "id2label" in file.lines:
        return "id2label"
    return next((alias for alias, known in family_type.aliases.items() if known == name and alias in file.lines), name)


def _choices(family_type: type[Family], name: str) -> list[str]:
    """The allowed words of a field; empty if it allows anything else."""
    struct = type_info(family_type)
    assert isinstance(struct, StructType)  # noqa: S101 - for the type checker: a family is a struct
    field_type = next(field.type for field in struct.fields if field.name == name)
    types = field_type.types if isinstance(field_type, UnionType) else (field_type,)
    return [str(word) for literal in types if isinstance(literal, LiteralType) for word in literal.values]
