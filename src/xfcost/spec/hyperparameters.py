"""Reads files of hyperparameters, as training configs and papers' tables have them: the words, and what each means.

Words may be spelled `d_model`, `dModel`, `d-model` or `D model`, in sections too: `attention: {heads: 8}`.
`spec.usual_models` makes a spec of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, nearest
from xfcost.spec.other_names import OWN_KEYS
from xfcost.spec.reader import Source, YamlPath, shown_value

# A hyperparameter -> its words, beside those of the keys of specs that it becomes.
_WORDS: Final = {
    "width": "dim dims width d model_size embedding_size embed_size emb_size emb_dim hidden_units embed_dims",
    "depth": "depth layers blocks num_layer number_of_layers layer_count num_transformer_layers repeat count times",
    "heads": "heads attention_heads num_attn_heads n_attention_heads number_of_heads attn_heads head_count h",
    "kv_heads": "kv_heads num_kv n_kv key_value_heads kv_head_count num_query_groups n_kv_head",
    "head_dim": "head_dim dim_per_head per_head_dim d_k d_kv kv_channels",
    "hidden": "d_ffn ff_dim ffn_hidden ffn_size ffn_hidden_dim mlp_hidden mlp_hidden_dim mlp_hidden_size ff_hidden "
    "d_mlp feedforward_dim feed_forward_dim feedforward_size ffn_width filter_size n_ff d_feedforward ff_size "
    "mlp_width dim_ff dim_ffn d_intermediate channels_mlp_dim inner_dim",
    "hidden_or_width": "hidden hidden_dim",
    "token_hidden": "tokens_mlp_dim token_dim token_mlp_dim token_hidden",
    "ratio": "ratio ff_mult ffn_mult mlp_mult mlp_expansion expansion ffn_expansion ff_ratio mlp_ratios "
    "expansion_factor",
    "vocabulary": "vocabulary vocab_len num_tokens vocabulary_size num_embeddings dict_size padded_vocab_size",
    "length": "length context max_context context_len context_window ctx ctx_len ctx_length context_size max_positions "
    "max_sequence_length n_tokens tokens seq seqlen max_seqlen sequence_len num_positions max_seq window_length n",
    "image": "image resolution img_res image_resolution img image_res",
    "patch": "patch patches",
    "channels": "channels in_channel input_channels img_channels image_channels",
    "classes": "classes n_class num_class n_labels output_dim num_outputs",
    "experts": "experts moe_experts num_routed_experts moe_num_experts",
    "active": "active active_experts experts_per_token topk n_active_experts num_active_experts num_selected_experts "
    "experts_per_tok n_experts_per_token n_experts_per_tok router_top_k",
    "shared": "shared_experts n_shared_experts num_shared_experts",
    "expert_hidden": "expert_hidden moe_intermediate_size expert_dim expert_hidden_size moe_hidden expert_d_ff",
    "window": "window window_len local_window window_tokens local_attention_window",
    "every": "global_every full_every attention_every attn_every global_attn_every full_attention_every "
    "global_attn_every_n_layers attn_layer_period",
    "pattern": "pattern layer_types layer_pattern block_types block_pattern hybrid_pattern mixers layers_block_type",
    "state": "state ssm_state",
    "conv": "conv ssm_conv",
    "expand": "expand ssm_expand",
    "model": "type model_type arch architecture model kind family backbone variant architecture_type architectures "
    "task objective stream",
    "attention": "attention attn attention_type attn_type mixer token_mixer attention_kind self_attention mixing "
    "attention_mechanism attn_kind attn_implementation mechanism block",
    "network": "ffn mlp ffn_type mlp_type feedforward feed_forward ff ffn_kind mlp_kind ff_type",
    "norm": "norm norm_type normalization norm_layer layer_norm_type layernorm",
    "rms_norm": "rms_norm rmsnorm use_rms_norm",
    "place": "norm_position norm_place norm_location",
    "pre_norm": "pre_norm prenorm norm_first pre_ln",
    "act": "act activation hidden_act activation_function act_fn activation_fn nonlinearity ffn_activation mlp_act "
    "act_layer hidden_activation ffn_act mlp_activation",
    "gated": "gated glu gated_mlp use_glu",
    "position": "position positions pos_emb pos_embed pos_encoding position_embedding position_embedding_type "
    "positional positional_encoding positional_embedding position_encoding position_embeddings pos pos_embedding pe",
    "rope": "rope use_rope rotary use_rotary rotary_embeddings",
    "rope_base": "rope_base rope_theta rotary_base rope_freq_base",
    "bias": "bias use_bias add_bias_linear biases",
    "attention_bias": "qkv_bias attention_bias attn_bias",
    "mlp_bias": "mlp_bias ffn_bias",
    "tied": "tied tie tie_embeddings tied_embeddings tie_word_embeddings weight_tying tie_weights share_embeddings "
    "tied_embedding tied_weights share_embedding weight_tie",
    "causal": "causal is_causal autoregressive is_decoder causal_mask",
    "pool": "pool pooling global_pool classifier_pool",
    "class_token": "class_token cls_token use_cls_token cls",
    "encoder_layers": "encoder_layers n_encoder_layers num_encoder_layers enc_layers enc_depth encoder_depth",
    "decoder_layers": "decoder_layers n_decoder_layers num_decoder_layers dec_layers dec_depth decoder_depth",
    "types": "type_vocab_size token_types n_segments",
    "multiple": "pad_vocab_size_multiple make_vocab_size_divisible_by",
    "down": "downsample downsampling stride",
    "kernel": "kernel kernel_size",
    "preset": "preset base base_model inherits like from template parent",
    "name": "name title model_name",
}  # fmt: skip
_OF_PLACES: Final = {
    "stages[].dim": "width", "stages[].depth": "depth", "stages[].block[].size": "window", "embed[].size": "patch",
    "input.size": "image", "head.classes": "classes",
}  # fmt: skip
MEANT: Final = {
    word: _OF_PLACES.get(own.place, own.key) for word, own in OWN_KEYS.items()
} | {word: meaning for meaning, words in _WORDS.items() for word in words.split()}  # fmt: skip
# A section -> what a word means in it.
_SECTIONS: Final[dict[str, dict[str, str]]] = {
    "attention attn self_attention": {
        "name type kind impl": "attention", "num": "heads", "dim": "head_dim", "size": "window",
        "bias": "attention_bias",
    },
    "mixer token_mixer": {"name type kind": "attention", "kernel_size kernel": "kernel"},
    "ffn mlp feed_forward feedforward ff": {
        "name type kind": "network", "dim hidden_dim size hidden_size hidden width inner": "hidden", "mult": "ratio",
        "bias": "mlp_bias",
    },
    "moe experts": {"num n count total": "experts", "hidden dim hidden_dim hidden_size d_ff": "expert_hidden"},
    "norm normalization": {"name type kind": "norm", "pos position place": "place"},
    "embedding embeddings embed token_embedding tokenizer vocab vocabulary text": {
        "size num": "vocabulary", "type kind": "position", "dim": "width", "max_len": "length",
    },
    "position positional positional_encoding position_embedding pos_embed pos_encoding pos_emb rope": {
        "name type kind": "position", "max": "length", "theta base": "rope_base",
    },
    "input inputs image data": {"type kind name": "model", "size height width": "image"},
    "patch patch_embed patches patch_embedding stem": {
        "size kernel_size kernel stride": "patch", "dim out_channels channels": "width", "type kind name": "-",
    },
    "head output classifier lm_head": {"type kind name": "model", "dim num": "classes"},
    "ssm mamba ssm_cfg": {"dim": "state", "type kind name layer": "attention"},
    "encoder": {"layers depth n_layers num_layers": "encoder_layers"},
    "decoder": {"layers depth n_layers num_layers": "decoder_layers"},
    "model": {},
}  # fmt: skip
IN_SECTION: Final = {
    section: {word: meaning for words, meaning in meanings.items() for word in words.split()}
    for sections, meanings in _SECTIONS.items()
    for section in sections.split()
}
_NOT_READ: Final = re.compile(
    r"(.*_)?(dropout|drop|drop_path|drop_path_rate|drop_rate|dropout_rate|eps|epsilon|seed|init|initializer_range|"
    r"init_std|lr|learning_rate|weight_decay|warmup|warmup_steps|steps|max_steps|epochs|optimizer|scheduler|betas|"
    r"grad_clip|description|notes|comment|comments|version|author|paper|citation|dataset|tokenizer_name|token_id|"
    r"stochastic_depth|training|train|optim|optimization|logging|dtype|precision|device|batch|batch_size|flash|"
    r"use_cache|compile|framework|reference|metadata|year|output_format|runtime|serving|deployment|hardware|inference|"
    r"budget|budgets|defaults|common|definitions|anchors|x|fp16|bf16|parallel_size|label_smoothing|eps_ls|p_drop|router)$"
)
"""What changes no count of a forward, or is no part of a model."""
_YES: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_THOUSANDS: Final = re.compile(r"(\d+)[kK]i?")
_MOST_RATIO: Final = 16
_TYPES: Final = ("type", "model_type", "arch", "architecture", "model", "family", "kind", "backbone")
_DESCRIBED: Final = ("input", "inputs", "head", "output", "lm_head", "embed", "stem")
_SHAPES: Final = ("input", "inputs", "input_size", "input_shape", "image_size", "img_size", "image")


class Reading(NamedTuple):
    """A hyperparameter as the file has it."""

    value: Any
    path: YamlPath


class Hyperparameters:
    """What a file, or a part of one, says; a part says what is around it too."""

    def __init__(self, source: Source, around: Hyperparameters | None = None) -> None:
        self.source = source
        self.around = around
        self.given: dict[str, Reading] = {}
        self.errors: list[SpecError] = [] if around is None else around.errors
        self.not_read: list[str] = [] if around is None else around.not_read
        self.left_out: list[str] = [] if around is None else around.left_out
        """What the file leaves out, in words."""
        self.types: list[Reading] = [] if around is None else around.types
        """What the file calls the model."""
        self.taken: set[str] = set()
        """The hyperparameters whose values were asked for."""
        self.scopes: list[Hyperparameters] = [self] if around is None else around.scopes
        """Of the file: itself, and its parts."""
        if around is not None:
            self.scopes.append(self)
        self.parts: dict[str, tuple[Any, YamlPath]] = {}
        """Lists of stages and layers, and mappings with a name of one letter, as the file has them."""

    def part(self, data: dict[str, Any], path: YamlPath, section: str = "") -> Hyperparameters:
        """A mapping inside the file."""
        inner = Hyperparameters(self.source, self)
        inner.read(data, path, IN_SECTION.get(section, {}))
        return inner

    # ── words ──

    def read(self, data: dict[str, Any], path: YamlPath, section: dict[str, str]) -> None:
        """Take the words of a mapping; those that are not known are errors."""
        if "d_v" in data and data["d_v"] == data.get("d_k"):  # values are as wide as keys anyway
            data = {key: value for key, value in data.items() if key != "d_v"}
        for key, value in data.items():
            here, word = (*path, key), _word(key)
            meaning = section.get(word) or MEANT.get(word)
            if _NOT_READ.match(word):
                self.not_read.append(str(key))
            elif isinstance(value, dict):
                self._section(word, value, here, section)
            elif _is_list_of_parts(word, value):
                self.parts["stages" if word == "stages" else "layers"] = (value, here)
            elif word in _SHAPES or word in _DESCRIBED:
                self._end(word, value, here)
            elif key == "N" and isinstance(value, int) and "h" in data:
                self._take("depth", value, here)  # the symbols of Vaswani et al. 2017, table 3
                self._take("model", "encoder-decoder", here)
            elif meaning is None:
                self.errors.append(self._unknown(key, here, {*MEANT, *section}))
            elif value is not None and meaning != "-":
                self._take(meaning, value, here)

    def _end(self, word: str, value: Any, path: YamlPath) -> None:
        """What an input, an embedding or a head is: the shape or the side of an image, or a word."""
        if word in _SHAPES and isinstance(value, list):
            self._shape(value, path)
        elif word in _SHAPES and isinstance(value, int):
            self._take("image", value, path)
        else:
            self._take("model", value, path)

    def _section(self, word: str, value: dict[str, Any], path: YamlPath, around: dict[str, str]) -> None:
        if len(word) == 1 or word in ("local", "global"):  # a letter of a pattern
            self.parts[str(path[-1])] = (value, path)
            return
        if word not in IN_SECTION:
            self._take("model", word, path)
        if word in ("encoder", "decoder") and "model" not in self.given:
            self._take("model", word, path)
        if word == "moe":
            self._take("network", "moe", path)
        if word in ("patch_embed", "stem"):
            value = {key: one for key, one in value.items() if _word(key) not in ("padding", "norm", "act", "type")}
        self.read(value, path, IN_SECTION.get(word, around))

    def _take(self, meaning: str, value: Any, path: YamlPath) -> None:
        if isinstance(value, str):
            thousands = _THOUSANDS.fullmatch(value) if meaning in ("vocabulary", "length") else None
            value = _YES.get(value.lower(), value)
            value = int(thousands[1]) * (1000 if meaning == "vocabulary" else 1024) if thousands else value
        old = self.given.get(meaning)
        if meaning == "model" and isinstance(value, str) and _word(path[-1]) in _TYPES:
            self.types.append(Reading(value, path))
        if meaning == "model":  # each says something of it
            self.given["model"] = Reading(f"{old.value} {value}" if old else str(value), path)
        elif meaning == "network" and _word(value) == "moe":
            self.given.setdefault("experts", Reading(8, path))
        elif meaning == "network" and isinstance(value, int | float) and not isinstance(value, bool):
            self._take("hidden" if value > _MOST_RATIO else "ratio", value, path)
        elif old is None or old.value == value or (meaning == "experts" and old.value == 8):  # noqa: PLR2004 - above
            self.given[meaning] = Reading(value, path)
        else:
            self.error(path, f"{shown_value(value)}, but {old.path[-1]} says {shown_value(old.value)}")

    def _shape(self, value: list[Any], path: YamlPath) -> None:
        """`[3, 224, 224]`, `[1, 3, 224, 224]`, `[224, 224, 3]`, `[224, 224]`."""
        sides = [one for one in value if isinstance(one, int) and one not in (1, 3)]
        if len(sides) not in (1, 2):
            self.error(path, "expected an image, as in [3, 224, 224]")
            return
        self._take("image", sides[0] if len({*sides}) == 1 else sides, path)
        if len(value) > len(sides):
            self._take("channels", 3 if 3 in value else 1, path)  # noqa: PLR2004 - RGB

    def _unknown(self, key: Any, path: YamlPath, known: set[str]) -> SpecError:
        near = nearest(_word(key), sorted(word for word in known if len(word) > 1))
        mend = f"; {near}" if near.startswith("did you mean") else ""
        return self.source.error(path, f"unknown hyperparameter {shown_value(key)}{mend}")

    # ── values ──

    def error(self, path: YamlPath, message: str) -> None:
        """Note an error."""
        self.errors.append(self.source.error(path, message))

    def reading(self, name: str) -> Reading | None:
        """As the file has it, here or around."""
        return self.given.get(name) or (self.around.reading(name) if self.around else None)

    def note_taken(self, name: str) -> None:
        """Note that a value was asked for, where the file has it."""
        if name in self.given or self.around is None:
            self.taken.add(name)
        else:
            self.around.note_taken(name)

    def unused(self) -> list[str]:
        """Words of the file that say nothing of the model that was read, and those that are never read."""
        left = [
            str(reading.path[-1])
            for scope in self.scopes
            for name, reading in scope.given.items()
            if name not in scope.taken and name not in ("name", "model", "preset")
        ]
        return [*self.not_read, *dict.fromkeys(left)]

    def has(self, *names: str) -> bool:
        """Does the file say one of them?"""
        return any(self.reading(name) for name in names)

    def value(self, name: str, otherwise: Any = None, words: str = "") -> Any:
        """What the file says; else `otherwise`, which a sentence names by the `words`."""
        found = self.reading(name)
        self.note_taken(name)
        if found is None and words:
            self.left_out.append(words)
        return otherwise if found is None else found.value

    def word(self, name: str) -> str:
        """A value as a word: `Sliding-Window` is `sliding_window`."""
        return _word(self.value(name, ""))

    def flag(self, name: str, otherwise: bool) -> bool:
        """A value that is true or false."""
        value = self.value(name, otherwise)
        if not isinstance(value, bool) and (found := self.reading(name)):
            self.error(found.path, f"expected true or false, got {shown_value(value)}")
        return bool(value)

    def choice(self, name: str, choices: dict[str, str], otherwise: str, words: str = "") -> str:
        """A value that is one of the `choices`."""
        value = self.value(name, None, words)
        if value is None or _word(value) in choices:
            return otherwise if value is None else choices[_word(value)]
        self.refuse(name, choices)
        return otherwise

    def refuse(self, name: str, choices: dict[str, str] | set[str]) -> None:
        """An error for a value that is none of the `choices`."""
        if found := self.reading(name):
            self.error(found.path, f"got {shown_value(found.value)}; {nearest(self.word(name), sorted(choices))}")

    def number(self, name: str, otherwise: int = 1) -> int:
        """A whole number."""
        value = self.value(name, otherwise)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if found := self.reading(name):
            self.error(found.path, f"expected a whole number of at least 1, got {shown_value(value)}")
        return otherwise


def _is_list_of_parts(word: str, value: Any) -> bool:
    """Is it a list of stages, or of layers, of which one has words of its own?"""
    parts = ("stages", "layers", "blocks", "block", "layer")
    return (
        word in parts and isinstance(value, list) and (word != "layers" or not all(isinstance(x, int) for x in value))
    )


def _word(value: Any) -> str:
    """`nLayers`, `n-layers` and `N Layers` as one word."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", str(value))
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def words_of(hyperparameters: Hyperparameters, name: str) -> Iterator[str]:
    """The words of a value that may be a list."""
    value = hyperparameters.value(name, [])
    yield from map(_word, value if isinstance(value, list) else [value])
