"""Prefill and decode step of a model with the signature of transformers: a cache comes out, and is given back.

Such a model takes `use_cache` and a cache, and returns a new one: a `Cache`, under any name, or another object under
the same name (`past_key_values`, `cache`, `mems`). A decode step at N is the call for the N-th token, on the cache that
a run over N - 1 tokens gave.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, Final

import msgspec
import torch
from torch import Tensor, nn

from xfcost.counting.generation import TOKEN_IDS
from xfcost.counting.recorded import of_samples
from xfcost.ledger.errors import UsageError, nearest
from xfcost.ledger.execution import CACHED, Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import CacheBytes
from xfcost.torch_models.any_model.alike_layers import LayersRun
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.mixing import Built
from xfcost.torch_models.any_model.run import (
    CACHES,
    USUAL_NAMES,
    CacheNames,
    RecordedModule,
    TensorKind,
    cache_in,
    cache_parameter,
    caches_in,
    copied_inputs,
    first_to_run,
    named_tensors,
    reached,
    run,
    storage_bytes,
    tensors_of,
)
from xfcost.torch_models.any_model.user_errors import OwnError
from xfcost.torch_models.running.on_meta import RepeatedShapes, TooManyCallsError
from xfcost.torch_models.running.surroundings import WithoutPadding

# Attributes of a cache's layers that hold keys and values; other tensors that don't grow are recurrent states.
_KEYS_AND_VALUES: Final = ("keys", "values")
# The attribute of transformers' `EncoderDecoderCache` that holds keys and values of the encoder's tokens.
_OF_ENCODER: Final = ".cross_attention_cache."


def in_mode(
    built: Callable[[Lengths], Built], mode: Mode, names: CacheNames = USUAL_NAMES
) -> Callable[[Lengths], Built]:
    """`built`, which gives the module with its inputs, with those of this mode in their place."""
    if mode not in CACHED:
        return built

    def made(lengths: Lengths) -> Built:
        if mode == "prefill":
            model, given = built(lengths)
            return model, prompt_of(model, given, names)
        if lengths.tokens == 1:
            raise UsageError("--mode decode: a step reads the cache of the tokens before it; expected --N from 2")
        # inputs without a letter N are the prompt as they are
        lengths = lengths._replace(text_alone=True)
        model, given = built(lengths._replace(tokens=lengths.tokens and lengths.tokens - 1))
        prompt = prompt_of(model, given, names)
        if TOKEN_IDS[0] in prompt.kwargs and lengths.tokens is not None:  # the encoder reads N
            prompt = prompt_of(*built(lengths), names)
            prompt.kwargs[TOKEN_IDS[0]] = prompt.kwargs[TOKEN_IDS[0]][:, :-1]
        return model, step_after(model, prompt, names)

    return made


def prompt_of(model: nn.Module, given: Given, names: CacheNames = USUAL_NAMES) -> Given:
    """`given` as a prompt: the model returns its cache, and the logits of the last token alone.

    Raises:
        OwnError: the model takes no cache, or no token ids.
    """
    takes = inspect.signature(model.forward).parameters
    inputs = dict(zip(given.places(model), given.args, strict=True)) | given.kwargs
    any_name = any(one.kind is one.VAR_KEYWORD for one in takes.values())
    if names.takes is not None and names.takes not in takes and not any_name:
        raise OwnError(f"--cache-in {names.takes}: {nearest(names.takes, list(takes))}")
    if names.takes is None and not ("use_cache" in takes or (any_name and cache_parameter(model))):
        raise _takes_no_cache(model)
    if not any(isinstance(inputs.get(name), Tensor) for name in TOKEN_IDS):
        raise OwnError(f"--mode: {type(model).__name__} reads no token ids; expected input_ids, as in 1xN:int64")
    asked = {"use_cache": True} if names.takes is None or "use_cache" in takes else {}
    return Given((), inputs | asked | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {}))


# Optional arguments of these names are no caches.
_NO_CACHE: Final = re.compile("mask|ids|embeds|labels|output|return|position|logits|image|pixel|loss|training")


def _takes_no_cache(model: nn.Module) -> OwnError:
    takes = inspect.signature(model.forward).parameters.values()
    optional = [one.name for one in takes if one.default is None and not _NO_CACHE.search(one.name)]
    any_name = (f"{CACHES[0]}, if it reads that of **{one.name}" for one in takes if one.kind is one.VAR_KEYWORD)
    example = next(iter(optional), None) or next(any_name, None)
    return OwnError(
        f"--mode: the forward of {type(model).__name__} takes no cache; expected parameters use_cache and "
        f"{' or '.join(CACHES[:2])}, as models of transformers that generate have, or --cache-in with the name of "
        "another one" + (f", as in --cache-in {example}" if example else "")
    )


def _returned_no_cache(model: nn.Module, outputs: Any, name: str | None) -> OwnError:
    if isinstance(outputs, Mapping):
        others = [one for one in outputs if one not in ("logits", "loss")]
    else:
        several = isinstance(outputs, tuple | list)
        others = list(getattr(outputs, "_fields", range(len(outputs))))[1:] if several else []
    return OwnError(
        f"--mode: {type(model).__name__} returned no cache; expected it by name, as in {{'{name or CACHES[0]}': …}} or "
        "an object with that attribute; --cache-out gives another name, or its place among several outputs"
        + (f", as in --cache-out {others[0]}" if others else "")
    )


def step_after(model: nn.Module, prompt: Given, names: CacheNames = USUAL_NAMES) -> Given:
    """The inputs of the decode step after `prompt`, which runs here, on the first tensors that it runs on.

    Raises:
        UsageError: the prompt does not run, or returns no cache.
    """
    return first_to_run(model, *prompt, lambda how, numbers: _step(model, prompt, names, how, numbers=numbers))[0]


def _step(model: nn.Module, prompt: Given, names: CacheNames, how: TensorKind, *, numbers: bool) -> Given:
    """The same after a prompt on such tensors; fake ones become tensors of where the model's own are."""
    encoded: list[Any] = []
    with _encoder_kept(model, encoded):
        outputs, inputs = _outputs(model, prompt, names, how, numbers=numbers)
    cache = cache_in(outputs, names.returns)
    if cache is None:
        raise _returned_no_cache(model, outputs, names.returns)
    name = next(name for name in TOKEN_IDS if name in inputs)
    asked = {"use_cache": True} if "use_cache" in prompt.kwargs else {}
    step: dict[str, Any] = {names.takes or _parameter_of(model, outputs): cache} | asked
    step[name] = torch.zeros_like(inputs[name][:, -1:])  # images, masks and positions are of the prompt only
    if name == "decoder_input_ids":
        step["encoder_outputs"] = encoded[-1] if encoded else (outputs["encoder_last_hidden_state"],)
    if how == "fake":
        own = prompt.kwargs[name].device
        step = copied_inputs(
            step, lambda one: torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=own).zero_()
        )
    return Given((), step)


@contextmanager
def _encoder_kept(model: nn.Module, outputs: list[Any]) -> Iterator[None]:
    """Append to `outputs` what the encoder of a model of transformers returns inside."""
    find: Any = getattr(model, "get_encoder", None)
    encoder = None if find is None else find()
    if not isinstance(encoder, nn.Module) or encoder is model:
        yield
        return
    hook = encoder.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    try:
        yield
    finally:
        hook.remove()


def _parameter_of(model: nn.Module, outputs: Any) -> str:
    """The one that takes the cache: by its type or its name, else one with a name under which a cache is returned."""
    takes = inspect.signature(model.forward).parameters
    found = cache_parameter(model) or next((name for name in caches_in(outputs) if name in takes), None)
    if found is None:
        raise _takes_no_cache(model)
    return found


def _outputs(
    model: nn.Module, prompt: Given, names: CacheNames, how: TensorKind, *, numbers: bool
) -> tuple[Any, dict[str, Any]]:
    """What a prompt returns, and its inputs. A long prompt that runs token by token returns its cache alone."""
    ids: Any = prompt.kwargs.get("input_ids")
    others = [one for name, one in prompt.kwargs.items() if name != "input_ids" and isinstance(one, Tensor)]
    can_grow = (
        how == "meta"
        and names == USUAL_NAMES
        and ids is not None
        and not others
        and not _has_windows(getattr(model, "config", None))
    )
    tokens = ids.shape[1] if can_grow else 0

    def first(number: int | None, most: float = inf) -> tuple[Any, dict[str, Any]]:
        kwargs = prompt.kwargs | ({} if number is None else {"input_ids": ids[:, :number]})
        with (
            tensors_of(how, model, (), kwargs, numbers=numbers, padding=WithoutPadding()) as (_, inputs),
            RepeatedShapes(most),
        ):
            return model(**inputs), inputs

    try:
        return first(None, _MOST_CALLS if tokens > _FEW_TOKENS + 1 else inf)
    except TooManyCallsError:
        caches = [cache_in(first(number)[0]) for number in (_FEW_TOKENS, _FEW_TOKENS + 1)]
    if caches[0] is None:
        return {}, prompt.kwargs
    grown = _grown(caches[0], caches[1], tokens - _FEW_TOKENS)
    if grown is None:
        return first(None)
    return {CACHES[0]: grown}, prompt.kwargs


# A longer prompt that makes more calls, as one whose recurrences run token by token, is run for a few tokens.
_MOST_CALLS: Final = 40_000
_FEW_TOKENS: Final = 31


def _has_windows(config: Any) -> bool:
    """Does a config, or one in it, name a window of more than a few tokens? Its cache stops growing there."""
    fields = vars(config).items() if hasattr(config, "to_dict") else ()
    return any(
        _has_windows(value) or (re.search("window|attention_chunk", name) and type(value) is int and value > 1)
        for name, value in fields
    )


def _grown(cache: Any, next_one: Any, more: int) -> Any:
    """A cache on `meta` with so many `more` tokens; `next_one` has one token more. None if an axis grows otherwise."""
    before, after = list(named_tensors(cache)), list(named_tensors(next_one))
    if [(name, one.dim()) for name, one in before] != [(name, one.dim()) for name, one in after]:
        return None
    copies = dict[int, Tensor]()
    for (_, one), (_, other) in zip(before, after, strict=True):
        steps = [its - own for own, its in zip(one.shape, other.shape, strict=True)]
        if not one.is_meta or not {*steps} <= {0, 1} or sum(steps) > 1:
            return None
        copies[id(one)] = one.new_empty([own + more * step for own, step in zip(one.shape, steps, strict=True)])
    return copy.deepcopy(cache, copies)


def tokens_in(given: Given, *, all_streams: bool = False) -> int | None:
    """The tokens of all samples, of the decoder or of `all_streams`; None where the inputs have no ids by name."""
    found = [given.kwargs[name].shape[:2].numel() for name in TOKEN_IDS if isinstance(given.kwargs.get(name), Tensor)]
    return (sum(found) if all_streams else found[0]) if found else None


def with_batch(ledger: Ledger, given: Given, samples: int | None, *, of_ids: bool) -> Ledger:
    """`ledger` of a run over `given`, its heads those of one sample, where the inputs say how many samples they are.

    Those are `samples`, or the rows of token ids by name, which come first with `of_ids`; one where the first axis of
    every input has a length of 1. Else they are not known, nor where the attention is not shared out by samples.
    """
    rows = [len(given.kwargs[name]) for name in TOKEN_IDS if isinstance(given.kwargs.get(name), Tensor)]
    if rows and (of_ids or samples is None):
        samples = rows[0]
    if samples is None:
        lengths = [1 if one.is_nested else one.shape[0] for one in reached((given.args, given.kwargs)) if one.dim()]
        samples = 1 if lengths and max(lengths) == 1 else None
    return ledger if samples == 1 else of_samples(ledger, samples)


def with_mode(  # noqa: PLR0913 - what is known of a run
    ledger: Ledger, mode: Mode, model: nn.Module, given: Given, found: RecordedModule, *, layers: LayersRun | None,
    names: CacheNames,
) -> Ledger:  # fmt: skip
    """`ledger` of the prompt or step `given`, which was `found` to run so, with its cache, of all layers."""
    all_layers = layers.cache if layers is not None else dict
    logits = "last" if "logits_to_keep" in given.kwargs else "all"
    logits_of = logits if mode == "prefill" else None
    metadata, samples = msgspec.structs.replace(ledger.metadata, mode=mode, logits=logits_of), ledger.metadata.batch
    ledger = msgspec.structs.replace(ledger, metadata=metadata)
    if found.without_padding:
        ledger = ledger.with_note(
            "counted without padding: the model checks for padding, and `meta` tensors have no values"
        )
    step = step_after(model, given, names) if mode == "prefill" else given
    past = cache_in(step.kwargs, names.takes)
    before = all_layers(storage_bytes(past))
    if mode == "prefill":
        cache = _cache(before, all_layers(run(model, *step, cache=names).cache), samples, past)
        return msgspec.structs.replace(ledger, cache=msgspec.structs.replace(cache, bytes=sum(before.values())))
    if names.takes is not None and sum(found.cache.values()) < sum(before.values()):
        raise OwnError(
            f"--cache-in {names.takes}: {type(model).__name__} does not read it: the cache that a step returns is "
            "smaller than the one that it is given"
        )
    ledger = msgspec.structs.replace(ledger, cache=_cache(before, found.cache, samples, past))
    return msgspec.structs.replace(ledger, step=ledger.decode_step())


def _cache(before: Mapping[str, int], after: Mapping[str, int], samples: int, past: Any) -> CacheBytes:
    """The cache `after` a step, and by how much that step has let it grow; `past` is the cache before it."""
    fixed = {name: nbytes for name, nbytes in after.items() if nbytes <= before.get(name, 0)}
    more = {name: nbytes - before.get(name, 0) for name, nbytes in after.items() if name not in fixed}
    for name, added in more.items():
        # a step gives it more axes than the prompt (positions in Qwen4's indexer), the same for every token
        if 0 < before.get(name, 0) < added and hasattr(past, "get_seq_length"):
            more[name] = after[name] // (past.get_seq_length() + 1)
    return CacheBytes(
        bytes=sum(after.values()),
        bytes_per_token=sum(more.values()) // samples,
        state_bytes=sum(fixed.values()),
        recurrent_bytes=sum(
            nbytes for name, nbytes in fixed.items() if name.rpartition(".")[2] not in _KEYS_AND_VALUES
        ),
        cross_attention_bytes=sum(nbytes for name, nbytes in fixed.items() if _OF_ENCODER in name),
    )
