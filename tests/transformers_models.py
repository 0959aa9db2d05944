"""transformers' models and ours: settings, their weights copied into ours, and what must be equal.

Theirs run eager, for their default attention is one that counters miss.
"""

import logging
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modules import counted_by_torch
from strategies import placed, stack
from xfcost.counting.forward import count
from xfcost.importing import import_config
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build

logging.getLogger("transformers").setLevel(logging.ERROR)


class Transformers:
    """The package, imported when a test first names a class of it: the import takes a second."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.importorskip("transformers"), name)


transformers = Transformers()


@cache
def cache_name() -> str:
    """What its models call their cache: `cache` since 5.24."""
    takes = signature(transformers.GPT2Model.forward).parameters
    return next(name for name in ("cache", "past_key_values") if name in takes)


def cache_bytes(value: Any, seen: set[int] | None = None) -> int:
    """The bytes of every tensor with an axis in a cache, each counted once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.nbytes if value.dim() else 0
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    attributes = vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(cache_bytes(one, seen) for one in (*inner, *attributes))


CLASSES, EPS = 7, 1e-5  # the norm's epsilon costs nothing; ours is PyTorch's own


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def theirs_of(name: str, **settings: Any) -> nn.Module:
    """One of transformers' models in evaluation mode, on the current device."""
    model = getattr(transformers, name)
    config = model.config_class(**settings, attn_implementation="eager")
    return model(config).eval().requires_grad_(requires_grad=False)


def ours_of(data: dict[str, Any], folder: Path, **run: Any) -> tuple[Architecture, BuiltModel]:
    architecture = placed(data, folder, **run)
    return architecture, build(architecture, "cpu")


def imported(theirs: nn.Module, folder: Path, **run: Any) -> tuple[Architecture, BuiltModel]:
    """Our model of the config that their model has, in twos and in float64."""
    theirs.config.to_json_file(folder / "config.json")
    data = import_config(folder / "config.json", type(theirs).__name__).data
    return ours_of(data, folder, batch=2, dtype="float64", **run)


def scrambled(model: nn.Module) -> nn.Module:
    """Noise in place of every parameter, so that no zero or one of an initialisation hides a wrong place."""
    noise = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=noise) * 0.3 + (parameter.ndim == 1))
    return model


class TheirWeights(dict[str, Tensor]):
    """A model's parameters by name. Each is taken out, so that what is left over at the end was forgotten."""

    def __init__(self, model: nn.Module, prefix: str = "") -> None:
        super().__init__({name.removeprefix(prefix): weight for name, weight in model.named_parameters()})

    def take(self, name: str) -> Tensor:
        return self.pop(name)

    def put(self, module: nn.Module, name: str) -> None:
        """One of their modules as one of ours."""
        self.put_joined(module, name)

    def put_joined(self, module: nn.Module, *names: str) -> None:
        """Several of their projections, one after the other, as one of ours."""
        for kind, parameter in module.named_parameters(recurse=False):
            parameter.copy_(torch.cat([self.take(f"{name}.{kind}") for name in names]))

    def put_projections(self, mixer: Any, q: str, k: str, v: str) -> None:
        """Their maps to queries, keys and values, in as many of ours as hold them."""
        for leaf, names in (("q", [q]), ("kv", [k, v]), ("qkv", [q, k, v])):
            if hasattr(mixer, leaf):
                self.put_joined(getattr(mixer, leaf), *names)

    def put_mlp(self, mlp: Any, hidden: str, out: str, norm: str) -> None:
        """A feed-forward network of two maps, and its norm."""
        for module, name in ((mlp.inner.fc1, hidden), (mlp.inner.fc2, out), (mlp.residual_norm, norm)):
            self.put(module, name)


def text_spec(
    mixer: dict[str, Any], length: int, positions: int, *, types: int = 2, hidden: int = 48
) -> dict[str, Any]:
    """Two layers of width 12 with norms behind their sums, over 29 words: BERT's shape around any mixer."""
    embed = [{"kind": "token"}, {"kind": "position", "length": positions}, {"kind": "token_type", "types": types}]
    over = {"residual": {"place": "post"}, "embed": [*embed, {"kind": "norm"}]}
    return stack(mixer, {"kind": "mlp", "hidden": hidden}, dim=12, depth=2, length=length, vocabulary=29, **over)


def theirs_of_text(name: str, **settings: Any) -> nn.Module:
    """Theirs of that shape."""
    sizes = {"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 48}
    return theirs_of(name, **sizes | {"layer_norm_eps": 1e-5} | settings)


def put_embeddings(embed: Any, weights: TheirWeights, first: int = 0) -> None:
    """Tokens, positions, token types and the norm over them; their positions begin with row `first`."""
    token, position, kinds, normed = embed
    weights.put(token.lookup, "embeddings.word_embeddings")
    position.table.weight.copy_(weights.take("embeddings.position_embeddings.weight").roll(-first, dims=0))
    weights.put(kinds.lookup, "embeddings.token_type_embeddings")
    weights.put(normed.norm, "embeddings.LayerNorm")


def put_layer(mixer: Any, mlp: Any, weights: TheirWeights, layer: str, attention: Any) -> None:
    """A layer, its `attention` (the module of `mixer` that holds the projections) included."""
    weights.put_joined(attention.qkv, *(f"{layer}attention.self.{name}" for name in ("query", "key", "value")))
    weights.put(attention.out, f"{layer}attention.output.dense")
    weights.put(mixer.residual_norm, f"{layer}attention.output.LayerNorm")
    weights.put_mlp(mlp, f"{layer}intermediate.dense", f"{layer}output.dense", f"{layer}output.LayerNorm")


# Where a tensor of ours stands in their models.
BLOCK = {
    "norm": {"vit": "layernorm_before", "swin": "layernorm_before", "gpt2": "ln_1"},
    "norm2": {"vit": "layernorm_after", "swin": "layernorm_after", "gpt2": "ln_2"},
    "out": {"vit": "attention.o_proj", "swin": "attention.o_proj", "gpt2": "attn.c_proj"},
    "fc1": {"vit": "mlp.fc1", "swin": "mlp.fc1", "gpt2": "mlp.c_fc"},
    "fc2": {"vit": "mlp.fc2", "swin": "mlp.fc2", "gpt2": "mlp.c_proj"},
}


def copy_block(family: str, block: Any, weights: TheirWeights, prefix: str) -> None:
    """Their block's weights into ours: a mixer and an MLP, each after its norm."""
    mixer, mlp = block

    def put(module: nn.Module, *names: str) -> None:
        for kind in ("weight", "bias"):
            whole = torch.cat([weights.take(f"{prefix}{name}.{kind}") for name in names])
            turned = family == "gpt2" and whole.ndim == 2 and "norm" not in names[0]
            getattr(module, kind).copy_(whole.T if turned else whole)

    put(mixer.residual_norm, BLOCK["norm"][family])
    put(mlp.residual_norm, BLOCK["norm2"][family])
    projections = ["attn.c_attn"] if family == "gpt2" else [f"attention.{letter}_proj" for letter in "qkv"]
    put(mixer.inner.qkv, *projections)
    put(mixer.inner.out, BLOCK["out"][family])
    put(mlp.inner.fc1, BLOCK["fc1"][family])
    put(mlp.inner.fc2, BLOCK["fc2"][family])
    if family == "swin":
        table = weights.take(f"{prefix}attention.relative_position_bias.relative_position_bias_table")
        mixer.inner.relative_bias.weight.copy_(table)


Answer = Callable[..., Any]


def logits(model: nn.Module, *inputs: Tensor) -> Tensor:
    return model(*inputs).logits


def logits_uncached(model: nn.Module, *inputs: Tensor) -> Tensor:
    return model(*inputs, use_cache=False).logits


def last_state(model: nn.Module, *inputs: Tensor) -> Tensor:
    return model(*inputs).last_hidden_state


def alike(
    theirs: nn.Module,
    ours: tuple[Architecture, BuiltModel],
    answer: Answer = logits,
    *,
    tolerance: float = 1e-6,
    more: int | None = 0,
) -> None:
    """Parameters and MACs of both (theirs has so many `more`), and outputs; their weights are ours already."""
    architecture, live = ours
    totals = count(architecture).totals()
    assert totals["params"] == parameters(theirs)
    expected, seen = counted_by_torch(lambda: answer(theirs, *live.inputs))
    with torch.no_grad():
        torch.testing.assert_close(live.model(*live.inputs), expected, rtol=tolerance, atol=tolerance)
    if more is not None:
        assert totals["macs"] + more == seen


def compare(
    theirs: nn.Module,
    ours: tuple[Architecture, BuiltModel],
    copied: Callable[[nn.Module, Any], None],
    answer: Answer = logits,
    *,
    tolerance: float,
) -> None:
    """Both alike, with random weights."""
    theirs = scrambled(theirs.double())
    copied(theirs, ours[1].model)
    alike(theirs, ours, answer, tolerance=tolerance)
