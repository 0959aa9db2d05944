"""A file of hyperparameters -> the spec of a usual model that has them.

`d_model: 768, n_layers: 12, n_heads: 12, vocab_size: 50257` is a decoder like GPT-2's; with RMSNorm, RoPE, SwiGLU,
grouped heads or experts it is one like LLaMA's; `causal: false` makes an encoder, `image_size` a ViT, `depths` a
hierarchy of windows like Swin's, `tokens_mlp_dim` an MLP-Mixer, `mixer: mamba` or `pattern: MMMA` a model of those.
What a file leaves out is as in that model, and a sentence names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from xfcost.ledger.errors import combined
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.hyperparameters import IN_SECTION, MEANT, Hyperparameters, words_of
from xfcost.spec.other_names import OWN_KINDS
from xfcost.spec.presets import is_preset
from xfcost.spec.reader import Source, YamlPath, shown_value

Part = dict[str, Any]

# A model -> words of a file's type, task or name that say it; the first decides.
_MODELS: Final = {
    "encoder-decoder": r"enc\w* dec|seq2seq|seq 2 seq|translation",
    "swin": r"\bswin|hierarchical",
    "mixer": r"mlp mixer|\bmixer b",
    "mamba": r"\bmamba|\bssm\b|state space",
    "vit": r"\bvit|\bdeit|vision|image class",
    "bert": r"\bbert",
    "encoder": r"encoder|masked|\bmlm|bidirectional",
    "llama": r"llama|mistral|mixtral|qwen|olmo",
    "gpt": r"gpt|decoder|causal|language|\blm\b|\bllm\b|autoregressive",
}
# Types that say no more than what is known anyway.
_NEUTRAL: Final = re.compile(
    r"transformers?|custom|own|my|text|tokens?|sequence|images?|pixels?|classif\w*|model|net|network|blocks?|layers?|"
    r"attention|attn|linear|dense|moe|mixture|of|experts|hybrid|softmax|pre|post|norm|base|small|large|tiny|medium|mini|"
    r"nano|\d+\w*|v\d|self|full|plain|standard|vanilla|generic|default|only|wrapper|stack|head|pooler?|mlp|none|"
    r"float\w*|vocab\w*|logits|embeddings?|class|cls|patch\w*|conv\w*|stem|input\w*|output\w*|next|token|prediction"
)
_READ_AS: Final = {
    "encoder-decoder": "the Transformer of Vaswani et al. 2017",
    "swin": "a Swin-like hierarchy",
    "mixer": "an MLP-Mixer",
    "mamba": "a Mamba language model",
    "vit": "a ViT",
    "bert": "BERT",
    "encoder": "a BERT-like encoder",
    "llama": "a LLaMA-like decoder",
    "gpt": "a GPT-2-like decoder",
    "blocks": "blocks without embeddings and head, for no vocabulary is given",
    "stages": "stages of an image model",
}
_FULL: Final = frozenset((
    "full", "softmax", "global", "mha", "multi_head", "multihead", "multi_head_attention",
    "multihead_attention", "self", "self_attention", "standard", "vanilla", "dense", "causal",
    "scaled_dot_product", "scaled_dot_product_attention", "sdpa", "flash", "flash_attention",
    "flash_attention_2", "gqa", "mqa", "grouped_query", "grouped_query_attention", "multi_query",
    "multi_query_attention", "dot_product", "quadratic", "attention", "attn", "eager", "causal_self_attention",
    "true", "bidirectional", "transformer", "full_attention", "global_attention", "a", "g",
))  # fmt: skip
_LOCAL: Final = frozenset((
    "sliding", "sliding_window", "local", "swa", "windowed", "window", "sliding_window_attention",
    "local_attention", "window_attention", "windowed_attention", "longformer", "sliding_attention",
    "swa_attention", "l", "s",
))  # fmt: skip
_KINDS: Final = {
    **OWN_KINDS, "linear": "kernel", "linear_attention": "kernel", "performer": "kernel", "linformer": "low_rank",
    "m": "mamba", "dwconv": "depthwise_conv", "depthwise": "depthwise_conv", "depthwise_convolution": "depthwise_conv",
    "pool": "average_pool", "pooling": "average_pool", "mbconv": "inverted_residual", "fourier": "fourier_mixing",
    "fnet": "fourier_mixing", "conv1d": "conv", "conv2d": "conv", "convolution": "conv",
}  # fmt: skip
_NORMS: Final = {
    **dict.fromkeys(("layernorm", "ln", "layer", "layer_norm", "prenorm", "pre_norm", "true"), "layer_norm"),
    **dict.fromkeys(("rmsnorm", "rms", "rms_norm", "llamarmsnorm"), "rms_norm"),
    **dict.fromkeys(("batchnorm", "batch_norm", "bn"), "batch_norm"),
    "none": "none",
}
_PLACES: Final = {"pre": "pre", "post": "post", "before": "pre", "after": "post"}
_ACTS: Final = {
    "gelu": "gelu", "relu": "relu", "relu6": "relu6", "silu": "silu", "swish": "silu",
    **dict.fromkeys(("gelu_new", "gelu_tanh", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh"),
    **dict.fromkeys(("quick_gelu", "gelu_quick"), "gelu_quick"),
}  # fmt: skip
_GATED: Final = {"swiglu": "swiglu", "geglu": "geglu", "glu": "swiglu", "gated": "swiglu", "gated_silu": "swiglu"}
_NETWORKS: Final = frozenset((
    "mlp", "ffn", "dense", "standard", "linear", "default", "feedforward", "feed_forward", "ff", "moe",
))  # fmt: skip
_POSITIONS: Final = {
    **dict.fromkeys(("learned", "absolute", "learnable", "trainable", "embedding", "true"), "learned"),
    **dict.fromkeys(("sinusoidal", "sin", "sincos", "sine", "fixed", "sin_cos", "sinusoid"), "sinusoidal"),
    **dict.fromkeys(("rope", "rotary"), "rope"),
    **dict.fromkeys(("none", "nope", "no", "false"), "none"),
    "alibi": "alibi",
}  # fmt: skip
_MEAN: Final = ("mean", "avg", "gap", "average", "global_average", "global_avg")
_NOT_MIXED: Final = frozenset(("norm", "rms_norm", "position", "dropout", "residual", "add"))
_ENDS: Final = {
    **dict.fromkeys(("embedding", "embeddings", "embed", "token_embedding", "token"), "embedding"),
    **dict.fromkeys(("patch_embed", "patch_embedding", "patch", "patchify"), "patch"),
    **dict.fromkeys(("head", "classifier", "lm_head", "output", "language_model"), "head"),
}
_BLOCK_ITEMS: Final = re.compile(r"(transformer|encoder|decoder)?_?(block|layer)s?$|transformer$")
# A hyperparameter -> its place in a preset that a file changes.
_IN_PRESETS: Final = {
    "width": "stages.*.dim", "depth": "stages.*.depth", "heads": "**.heads", "kv_heads": "**.kv_heads",
    "hidden": "**.hidden", "ratio": "**.ratio", "image": "input.size", "length": "input.length",
    "vocabulary": "input.vocabulary", "classes": "head.classes", "channels": "input.channels", "window": "**.window",
    "experts": "**.experts", "active": "**.active",
}  # fmt: skip
_LINES: Final = {
    "dim": "width", "depth": "depth", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim", "size": "patch",
    "hidden": "hidden", "ratio": "ratio", "vocabulary": "vocabulary", "length": "length", "classes": "classes",
    "window": "window", "experts": "experts", "active": "active", "state": "state", "conv": "conv",
}  # fmt: skip


def from_hyperparameters(
    data: dict[str, Any], source: Source, canonical: Callable[[str], str]
) -> tuple[dict[str, Any], Source]:
    """The spec of a file of hyperparameters, with the lines of the words that it comes from; a spec as it is.

    `read_as` of the new source says as what the file was read, and what it leaves out. `canonical` gives the preset
    that a name spells.

    Raises:
        SpecError: a word or a value of such a file is not known.
    """
    if _is_spec(data):
        return data, source
    given = Hyperparameters(source)
    given.read(data, (), {})
    _read_ends(given)
    _one_meaning(given)
    preset = _preset(given, canonical)
    blocks = given.has("depth", "encoder_layers", "every", "pattern") or "layers" in given.parts
    if preset is None and not (given.has("width") and blocks) and "stages" not in given.parts:
        return data, source
    _check_type(given)
    name = str(given.value("name") or source.name.rpartition("/")[2].rpartition(".")[0] or "model")
    what = f"`{preset}` with other values" if preset else _READ_AS[_like(given)]
    spec = _changed(given, preset) if preset else _spec(given)
    if given.errors:
        raise combined(given.errors)
    result = Source(source.name, source.lines)
    for path in _paths(spec, ()):
        found = given.reading(_LINES.get(str(path[-1]), ""))
        if found is not None:
            result.lines[path] = source.lines.get(found.path, (source.name, 1))
    left_out = list(dict.fromkeys(given.left_out))
    rest = f"; not given, so as usual: {', '.join(left_out)}" if left_out else ""
    unused = given.unused()
    unread = f"; not read: {', '.join(unused)}" if unused else ""
    result.read_as = f"hyperparameters, read as {what}{unread}{rest} (`xfcost show {source.name}` prints the spec)"
    return {"name": name, **spec}, result


def _check_type(given: Hyperparameters) -> None:
    """Refuse a type that is none of the usual models, and no other word for a transformer."""
    for value, path in given.types:
        text = _in_words(value)
        known = any(re.search(words, text) for words in _MODELS.values())
        if not known and not all(map(_NEUTRAL.fullmatch, text.split())):
            given.error(
                path,
                f"unknown model {shown_value(value)}; expected gpt, llama, bert, encoder, encoder-decoder, vit, swin, "
                "mixer or mamba; other mechanisms are a `mixer`, as in mixer: retention",
            )


def _in_words(text: str) -> str:
    """`MaskRCNN` and `enc-dec` in small letters, with spaces."""
    return re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()).strip()


def _read_ends(given: Hyperparameters) -> None:
    """Take the words of a list of layers that stand before and after the blocks."""
    items, path = given.parts.get("layers", ([], ()))
    for number, item in enumerate(items):
        kind, values = _layer(item)
        if kind in _ENDS:
            given.read(values, (*path, number), IN_SECTION[_ENDS[kind]])


def _one_meaning(given: Hyperparameters) -> None:
    """Decide on words that have several."""
    own = given.given
    if (found := own.pop("hidden_or_width", None)) is not None:
        own.setdefault("hidden" if "width" in own else "width", found)
    for one, other in (("encoder_layers", "decoder_layers"), ("decoder_layers", "encoder_layers")):
        if one in own and other not in own:
            own.setdefault("depth", own.pop(one))


def _is_spec(data: dict[str, Any]) -> bool:
    """Has it a key that only specs have?"""
    if {"extends", "set"} & data.keys():
        return True
    streams = [data, data.get("encoder"), data.get("decoder")]
    stages = [one["stages"] for one in streams if isinstance(one, dict) and "stages" in one]
    items = [item for one in stages for item in (one if isinstance(one, list) else [one])]
    written = [isinstance(item, dict) and any(_is_written(item.get(key)) for key in _HOW) for item in items]
    described = [
        isinstance(item, dict)
        and ({"mixer", "type", "attention", "heads", "layers"} & item.keys() or isinstance(item.get("blocks"), list))
        for item in items
    ]
    worded = [isinstance(item, dict) and isinstance(item.get("block"), str) for item in items]
    return any(written) or (bool(items) and not any(described) and not any(worded))


def _is_written(value: Any) -> bool:
    """Is it a list of components, blocks or groups of a spec, and not one of layers in words?"""
    items = value if isinstance(value, list) else []
    return any(
        isinstance(one, list) or (isinstance(one, dict) and {"kind", "repeat", "blocks"} & one.keys()) for one in items
    )


_BARE: Final = (
    "conv", "depthwise_conv", "average_pool", "convnext", "inverted_residual", "token_mlp", "lstm", "gru", "rnn",
)  # fmt: skip
_RECURRENT: Final = ("mamba", "mamba2", "retention", "rwkv_time", "gated_delta")
_HOW: Final = ("block", "pattern", "blocks")


def _paths(value: Any, path: YamlPath) -> list[YamlPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [one for key, item in items for one in _paths(item, (*path, key))]


def _preset(given: Hyperparameters, canonical: Callable[[str], str]) -> str | None:
    """The preset that a file changes."""
    for name in ("preset", "model"):
        text = None if "model_type" in str(given.reading(name)) else given.value(name)  # of transformers
        own = canonical(text) if isinstance(text, str) and not (name == "model" and given.has("width")) else ""
        if own and is_preset(own):
            return own
    return None


def _changed(given: Hyperparameters, preset: str) -> Part:
    settings = {place: given.value(name) for name, place in _IN_PRESETS.items() if given.has(name)}
    for name, found in given.given.items():
        if name not in (*_IN_PRESETS, "preset", "model", "name"):
            given.error(found.path, f"write the key of {preset} that it changes under `set`: `xfcost show {preset}`")
    return {"extends": preset, **({"set": settings} if settings else {})}


def _like(given: Hyperparameters) -> str:
    """The usual model that the file is closest to."""
    text = _in_words(" ".join(str(given.value(name, "")) for name in ("model", "name")))
    found = next((model for model, words in _MODELS.items() if re.search(words, text)), None)
    of_images = found not in ("encoder-decoder", "bert") and given.has("image", "patch")
    of_mamba = not given.has("heads", "pattern", "every") and (found == "mamba" or given.has("state"))
    causal = given.flag("causal", found != "encoder" and not given.has("classes"))
    decided = (
        ("stages", "stages" in given.parts),
        ("encoder-decoder", given.has("encoder_layers") and given.has("decoder_layers")),
        ("swin", isinstance(given.value("depth"), list)),
        ("mixer", given.has("token_hidden")),
        ("vit", of_images),
        (str(found), found in ("encoder-decoder", "bert", "llama")),
        ("mamba", of_mamba),
        ("blocks", found is None and not given.has("vocabulary")),
        ("encoder", not causal),
        ("llama", _is_llama(given)),
    )
    return next((model for model, holds in decided if holds), "gpt")


def _is_llama(given: Hyperparameters) -> bool:
    return (
        _NORMS.get(given.word("norm")) == "rms_norm"
        or given.value("rms_norm") is True
        or given.value("rope") is True
        or _POSITIONS.get(given.word("position")) == "rope"
        or given.has("rope_base", "kv_heads", "experts")
        or _gate(given) is not None
        or re.search(r"swiglu|rms_?norm|kv_heads|rope\b", str(given.parts.get("layers")).lower()) is not None
    )


class _Usual:
    """The defaults of the usual model for its parts."""

    def __init__(self, like: str, given: Hyperparameters) -> None:
        self.llama = like == "llama" or (like == "blocks" and _is_llama(given))
        self.image = like in ("vit", "swin", "mixer", "stages")
        self.mamba = like == "mamba"
        second = re.search(r"mamba[_ -]?2", f"{given.value('model')} {given.value('name')}".lower())
        self.mixer = ("mamba2" if second else "mamba") if self.mamba else ""
        self.causal = given.flag("causal", like in ("gpt", "llama", "mamba"))
        self.bias = given.flag("bias", not self.llama)
        self.norm = "rms_norm" if self.llama or self.mamba or given.value("rms_norm") is True else "layer_norm"
        self.place = "post" if like in ("bert", "encoder", "encoder-decoder") else "pre"
        self.act = {"gpt": "gelu_tanh", "encoder-decoder": "relu"}.get(like, "gelu")
        self.position = "rope" if self.llama else "sinusoidal" if like == "encoder-decoder" else "learned"


def _spec(given: Hyperparameters) -> Part:
    like = _like(given)
    usual = _Usual(like, given)
    residual = _residual(given, usual)
    if like == "encoder-decoder":
        return _encoder_decoder(given, usual, residual)
    if usual.image:
        return _image(given, usual, residual, like)
    return _text(given, usual, residual, like)


# ── parts of a block ──


def _residual(given: Hyperparameters, usual: _Usual) -> Part:
    norm = given.choice("norm", _NORMS, usual.norm, {"rms_norm": "RMSNorm"}.get(usual.norm, "LayerNorm"))
    place = "post" if not given.flag("pre_norm", usual.place == "pre") else "pre"
    return {"norm": norm, "place": given.choice("place", _PLACES, place)}


def _gate(given: Hyperparameters) -> str | None:
    """The kind of a gated network; None where nothing says that it is gated."""
    words = [given.word(name) for name in ("network", "act")]
    if given.value("gated") is True:
        return "geglu" if any("gelu" in word for word in words) else "swiglu"
    return next((_GATED[word] for word in words if word in _GATED), None)


def _heads(given: Hyperparameters) -> int:
    if given.has("heads"):
        return given.number("heads")
    width = given.number("width")
    if given.has("head_dim"):
        return max(1, width // given.number("head_dim"))
    heads = max(1, width // 64)
    given.left_out.append(f"{heads} heads of {width // heads}")
    return heads


def _mixer(given: Hyperparameters, usual: _Usual, word: str = "") -> Part:
    """The component that mixes tokens."""
    if not word:  # a window makes attention local, unless its layer says that it is full
        word = given.word("attention") or usual.mixer or "full"
        word = "window" if given.has("window") and word in _FULL else word
    kind = _KINDS.get(word, word)
    if word not in _FULL and word not in _LOCAL:
        if kind not in MECHANISMS:
            given.refuse("attention", {*_LOCAL, *MECHANISMS})
            return {"kind": "full", "heads": 1}
        part: Part = {"kind": kind}
        fields = MECHANISMS[kind].__struct_fields__
        part |= {key: given.value(key) for key in ("state", "conv", "expand") if key in fields and given.has(key)}
        part |= {"size": given.number("kernel")} if "size" in fields and given.has("kernel") else {}
        part |= {"heads": _heads(given)} if "heads" in fields else {}
        part |= {"causal": True} if "causal" in fields and usual.causal else {}
        return part
    heads, local = _heads(given), word in _LOCAL
    if local and not given.has("window"):
        found = given.reading("attention")
        given.error(found.path if found else (), f"{word} attention needs `window: 128`, its tokens")
    if local and usual.image:
        return {"kind": "window", "size": given.value("window"), "heads": heads}
    window = given.value("window") if local else None
    if isinstance(window, int) and window % 2 and not usual.causal:  # 49 are 24 on each side, and the token itself
        window -= 1
    part = {"kind": "sliding", "window": window} if local else {"kind": "full"}
    kv = 1 if word in ("mqa", "multi_query", "multi_query_attention") else given.value("kv_heads")
    position = "rope" if given.value("rope") is True else given.choice("position", _POSITIONS, usual.position)
    part |= {"heads": heads, **({"causal": True} if usual.causal else {})}
    part |= {"kv_heads": kv} if kv not in (None, heads) else {}
    part |= {"head_dim": given.value("head_dim")} if given.has("head_dim") else {}
    part |= {"position": position} if position in ("rope", "alibi") and given.value("rope") is not False else {}
    part |= {"rope_base": float(given.value("rope_base"))} if position == "rope" and given.has("rope_base") else {}
    return part | ({} if given.flag("attention_bias", usual.bias) else {"projection_bias": False})


def _network(given: Hyperparameters, usual: _Usual) -> Part:
    """The feed-forward network, or a mixture of them."""
    gate = _gate(given)
    word = given.word("network")
    if word and word not in _GATED and word not in _NETWORKS and word not in _ACTS:
        given.refuse("network", {*_GATED, *_NETWORKS})
    if gate is None and usual.llama and not word and given.word("act") in ("", "silu", "swish"):
        gate = "swiglu"
        if not given.has("act"):
            given.left_out.append("SwiGLU")
    if not given.has("experts"):
        return _feed_forward(given, usual, gate, "hidden")
    part: Part = {"kind": "moe", "experts": given.number("experts")}
    part["active"] = given.value("active", 2, "2 active experts")
    part["expert"] = _feed_forward(given, usual, gate, "expert_hidden")
    hidden = {"hidden": part["expert"]["hidden"]} if "hidden" in part["expert"] else {}
    return part | ({"shared": {"experts": given.value("shared"), **hidden}} if given.has("shared") else {})


def _feed_forward(given: Hyperparameters, usual: _Usual, gate: str | None, name: str) -> Part:
    part: Part = {"kind": gate or "mlp"}
    own = name if given.has(name) else "hidden"
    ratio = given.value("ratio")
    if given.has(own):
        part["hidden"] = given.value(own)
    elif isinstance(ratio, int | float) and gate is None:
        part["ratio"] = ratio
    elif isinstance(ratio, int | float):
        part["hidden"] = round(given.number("width") * ratio)
    else:
        given.left_out.append("8·d/3 hidden units" if gate else "4·d hidden units")
    if gate is None:
        act = _ACTS.get(given.word("network")) or given.choice("act", _ACTS, usual.act)
        part |= {"act": act} if act != "gelu" else {}
    bias = given.flag("mlp_bias", usual.bias)
    return part | ({"bias": bias} if bias != (gate is None) else {})


# ── stages ──


def _blocks(given: Hyperparameters, usual: _Usual) -> Part:
    """One stage: a block that repeats, or a pattern."""
    width, depth = given.value("width"), given.value("depth", 1)
    if "layers" in given.parts:
        return {"dim": width, **_arranged(given, _listed(given, usual, *given.parts["layers"]))}
    words = list(words_of(given, "pattern"))
    if given.has("every"):
        words = ["local" if given.has("window") else "mamba"] * (given.number("every") - 1) + ["full"]
    elif len(words) == 1 and len(words[0]) > 1 and {*words[0]} <= {*"mals"} | {key.lower() for key in given.parts}:
        words = [*words[0]]  # letters
    if not words:
        return {"dim": width, "depth": depth, "block": _block(given, usual)}
    inner = {key.lower(): given.part(value, path) for key, (value, path) in given.parts.items()}
    pattern = [_block(inner.get(word, given), usual, inner[word].word("attention") if word in inner else word)
               for word in words]  # fmt: skip
    return {"dim": width, "depth": depth if given.has("depth") else len(pattern), "pattern": pattern}


def _block(given: Hyperparameters, usual: _Usual, word: str = "") -> list[Part]:
    mixer = _mixer(given, usual, word)
    alone = mixer["kind"] in ("mamba", "mamba2") and not given.has("hidden", "ratio", "network", "experts")
    return [mixer] if alone or mixer["kind"] in ("convnext", "inverted_residual") else [mixer, _network(given, usual)]


def _arranged(given: Hyperparameters, items: list[Any]) -> Part:
    """A list of sub-layers as a block, of blocks as a pattern, and of some that repeat as written."""
    if not any(isinstance(one, list) or "repeat" in one for one in items):
        return {"depth": given.value("depth", 1), "block": items}
    blocks = [one if isinstance(one, list) or "repeat" in one else [one] for one in items]
    if all(isinstance(one, list) for one in blocks):
        return {"depth": given.value("depth", len(blocks)), "pattern": blocks}
    number = sum(one["repeat"] if isinstance(one, dict) else 1 for one in blocks)
    flat = all(isinstance(one, list) or len(one["blocks"]) == 1 for one in blocks)
    if flat and (found := given.reading("depth")) and given.value("depth") != number:
        given.error(found.path, f"{found.value}, but the layers are {number} in all")
    return {"blocks": blocks}


def _listed(given: Hyperparameters, usual: _Usual, items: list[Any], path: YamlPath) -> list[Any]:
    """A list of layers: sub-layers, blocks (lists of them) and groups of blocks that repeat.

    A layer is a word, `attention: {heads: 8}`, `{type: attention, heads: 8}`, or a block with a `mixer`. Where no layer
    is a feed-forward network or a convolution, each is a whole block with a network.
    """
    words = [MEANT.get(kind, kind) for kind, _ in map(_layer, items)]
    whole = not any(word in ("network", *_NETWORKS, *_GATED) or _KINDS.get(word, word) in _BARE for word in words)
    result: list[Any] = []
    for number, (item, word) in enumerate(zip(items, words, strict=True)):
        here = (*path, number)
        kind, values = _layer(item)
        if word in _NOT_MIXED or kind in _ENDS:
            continue
        section = "ffn" if word in ("network", *_NETWORKS, *_GATED) else "attention"
        groups = next((key for key in _HOW if isinstance(values.get(key), list)), "layers")
        inner = given.part(
            {key: one for key, one in values.items() if key != groups}, here, "" if kind == "" else section
        )
        repeat = inner.given.pop("depth", None)
        if isinstance(values.get(groups), list):
            made = _listed(inner, usual, values[groups], (*here, groups))
            blocks = [made] if all(isinstance(one, dict) and "repeat" not in one for one in made) else made
            result.append({"repeat": 1 if repeat is None else repeat.value, "blocks": blocks})
            continue
        one: Any
        mixer = "" if word == "attention" else word
        if _BLOCK_ITEMS.fullmatch(kind) or (kind == "" and inner.has("attention")):
            one = _block(inner, usual)
        elif section == "ffn":
            one = _network(inner, usual)
        elif word in ("attention", *_FULL, *_LOCAL, *_KINDS, *MECHANISMS):
            one = _block(inner, usual, mixer) if whole else _mixer(inner, usual, mixer)
        else:
            given.error(
                here, f"unknown layer {shown_value(kind)}; expected attention, mlp, norm or a mechanism, as mamba"
            )
            continue
        block = one if isinstance(one, list) else [one]
        result.append(one if repeat is None else {"repeat": repeat.value, "blocks": [block]})
    return result or [{"kind": "mlp"}]


def _layer(item: Any) -> tuple[str, Part]:
    """The word of a layer, and what it says; no word of a block."""
    if not isinstance(item, dict):
        return str(item).lower().replace("-", "_"), {}
    key = next((key for key in ("type", "kind", "name") if key in item), None)
    if key is None and len(item) == 1 and next(iter(item)) not in (*_HOW, "layers", "mixer"):
        [(kind, values)] = item.items()
        return str(kind).lower().replace("-", "_"), values if isinstance(values, dict) else {}
    return str(item.get(key, "")).lower().replace("-", "_"), {name: one for name, one in item.items() if name != key}


# ── models ──


def _tokens(given: Hyperparameters, vocabulary: int, length: int) -> Part:
    words = given.value("vocabulary", vocabulary, f"a vocabulary of {vocabulary:,}")
    multiple = given.value("multiple", 1)
    return {
        "kind": "tokens",
        "vocabulary": -(-words // multiple) * multiple if isinstance(words, int) else words,
        "length": given.value("length", length, f"{length:,} tokens"),
    }


def _text(given: Hyperparameters, usual: _Usual, residual: Part, like: str) -> Part:
    if like == "blocks":
        length = given.value("length", 1024, "1,024 tokens")
        usual.position = "none" if not usual.llama else usual.position
        entry: Part = {"kind": "vectors", "channels": given.value("width"), "length": length}
        return {"input": entry, "residual": residual, "stages": [_blocks(given, usual)]}
    entry = _tokens(
        given, *{"gpt": (50257, 1024), "llama": (32000, 2048), "mamba": (50280, 2048)}.get(like, (30522, 512))
    )
    stage = _blocks(given, usual)
    recurrent = any(f"'kind': '{kind}'" in str(stage) for kind in _RECURRENT)
    position = "rope" if given.value("rope") is True else "none" if recurrent else usual.position
    words = {"rope": "RoPE", "learned": "learned positions", "none": ""}[position]
    position = given.choice("position", _POSITIONS, position, "" if given.has("rope") else words)
    tied = given.flag("tied", not usual.llama) and usual.causal
    if usual.causal and not given.has("tied"):
        given.left_out.append("tied head" if tied else "untied head")
    share = {"share": "embedding"} if tied else {}
    embed: list[Part] = [{"kind": "token", **share}]
    if position in ("learned", "sinusoidal"):
        rows = {"length": entry["length"]} if position == "learned" else {}
        embed.append({"kind": "position", "form": position, **rows})
    if like == "bert":
        embed.append({"kind": "token_type", "types": given.value("types", 2)})
    if residual["place"] == "post":
        embed.append({"kind": "norm", "norm": residual["norm"]})
    final = residual["norm"] if residual["place"] == "pre" else "none"
    head: Part = {}
    if given.has("classes"):
        head = {"head": {"kind": "classifier", "pool": "mean", "norm": final, "classes": given.value("classes")}}
    elif usual.causal:
        head = {"head": {"kind": "language_model", "norm": final, **share}}
    elif like == "bert":
        head = {"head": {"kind": "pooler"}}
    return {"input": entry, "residual": residual, "embed": embed, "stages": [stage], **head}


def _image(given: Hyperparameters, usual: _Usual, residual: Part, like: str) -> Part:
    size, channels = given.value("image", 224, "224×224 pixels"), given.value("channels", 3)
    small = like in ("swin", "stages")
    side = 4 if small else 16
    patch: Part = {"kind": "patch", "size": given.value("patch", side, f"patches of {side}")}
    mean = small or like == "mixer" or given.word("pool") in _MEAN
    token = given.flag("class_token", not mean)
    embed = [patch | ({"norm": "layer_norm"} if small else {}), *([{"kind": "class_token"}] if token else [])]
    position = given.choice("position", _POSITIONS, "none" if small or like == "mixer" else "learned")
    usual.position = "none"
    if position in ("learned", "sinusoidal"):
        embed.append({"kind": "position", "form": position})
    if like == "swin":
        stages = _hierarchy(given, usual)
    elif like == "stages":
        stages = _described_stages(given, usual)
    elif like == "mixer":
        block = [{"kind": "token_mlp", "hidden": given.value("token_hidden")}, _network(given, usual)]
        stages = [{"dim": given.value("width"), "depth": given.value("depth"), "block": block}]
    else:
        stages = [_blocks(given, usual)]
    classes = given.value("classes", 1000, "1,000 classes")
    pool = "class_token" if token else "mean"
    head = {"kind": "classifier", "pool": pool, "norm": residual["norm"], "classes": classes}
    entry = {"kind": "image", "size": size, "channels": channels}
    return {"input": entry, "residual": residual, "embed": embed, "stages": stages, "head": head}


def _hierarchy(given: Hyperparameters, usual: _Usual) -> list[Part]:
    """A stage for every depth, of windows and shifted windows, or of the attention that the file names."""
    depths, width, heads = (given.value(name) for name in ("depth", "width", "heads"))
    size = given.value("window", 7, "windows of 7×7")
    if not isinstance(heads, list) or len(heads) != len(depths) or not all(isinstance(one, int) for one in depths):
        found = given.reading("heads") or given.reading("depth")
        given.error(found.path if found else (), f"expected a list of heads, one for each of the {len(depths)} depths")
        return []
    stages: list[Part] = []
    network = _network(given, usual)
    for number, (depth, own) in enumerate(zip(depths, heads, strict=True)):
        dim = width[number] if isinstance(width, list) else width * 2**number if isinstance(width, int) else width
        plain = {"kind": "window", "size": size, "heads": own}
        pattern = [[plain, network], [{**plain, "shift": size // 2 if isinstance(size, int) else 0}, network]]
        enter = {"enter": [{"kind": "patch_merging"}]} if number else {}
        stages.append({"dim": dim, "depth": depth, **enter, "pattern": pattern})
    return stages


def _described_stages(given: Hyperparameters, usual: _Usual) -> list[Part]:
    """Stages that say their mixer in words; between them a convolution halves height and width."""
    items, path = given.parts["stages"]
    stages: list[Part] = []
    for number, item in enumerate(items):
        ours = {"channels": "width", "type": "attention"}
        own = {ours.get(key, key): one for key, one in item.items() if key not in ("name", "padding")}
        inner = given.part(own, (*path, number))
        stage = _blocks(inner, usual)
        stride = inner.value("down", 2)
        enter = [{"kind": "conv", "size": stride, "stride": stride, "norm": "layer_norm"}]
        stages.append(stage | ({"enter": enter} if number and stride not in (1, False, None) else {}))
    given.left_out.append("between stages a convolution of stride 2")
    return stages


def _encoder_decoder(given: Hyperparameters, usual: _Usual, residual: Part) -> Part:
    entry = _tokens(given, 37000, 512)
    position = given.choice("position", _POSITIONS, "sinusoidal", "sinusoidal positions")
    embed: list[Part] = [{"kind": "token", "share": "embedding"}]
    embed += [{"kind": "position", "form": position}] if position in ("learned", "sinusoidal") else []
    streams: Part = {}
    for stream in ("encoder", "decoder"):
        usual.causal = stream == "decoder"
        attention = _mixer(given, usual)
        keys = ("heads", "head_dim", "projection_bias")
        cross = {"kind": "cross"} | {key: attention[key] for key in keys if key in attention}
        block = [attention, *([cross] if usual.causal else []), _network(given, usual)]
        depth = given.value(f"{stream}_layers", given.value("depth"))
        streams[stream] = {"embed": embed, "stages": [{"dim": given.value("width"), "depth": depth, "block": block}]}
    given.left_out.append("one table of embeddings")
    norm = "none" if residual["place"] == "post" else residual["norm"]
    head = {"kind": "language_model", "norm": norm, "share": "embedding"}
    return {"input": entry, "residual": residual, **streams, "head": head}
