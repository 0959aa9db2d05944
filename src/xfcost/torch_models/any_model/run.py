"""One forward of a module, recorded: on `meta`; where its code looks at values, on fake tensors, else on real ones.

In training its backward pass follows.
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import islice
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

import torch
from torch import Tensor, nn

from xfcost.formulas.arithmetic import causal_pairs, chunked_pairs
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.torch_models.any_model.user_errors import OwnError, is_about_meta, message, refused
from xfcost.torch_models.any_model.work import Key, RecordedOperations, Work
from xfcost.torch_models.running.on_meta import TooManyCallsError
from xfcost.torch_models.running.recomputing import recomputing
from xfcost.torch_models.running.record import Lineage, mark
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.running.surroundings import (
    WithoutPadding,
    handed_to_numpy,
    known_numbers,
    shapes_on_meta,
    without_autocast,
)
from xfcost.torch_models.running.unchanged import Copy, cloned, learning, unchanged
from xfcost.torch_models.shared.private_torch import (
    FAKE_TENSOR_LOGGER,
    fake_tensor_mode,
    leaves_with_paths,
    no_compiler,
    pytree,
    storage_identity,
)
from xfcost.torch_models.shared.transformers_names import is_cache_class
from xfcost.torch_models.timing.devices import threads_set

# A generator that gives more is not run further; it may never end.
MOST_ITEMS: Final = 10_000


def finished(outputs: Any, unfinished: Counter[str]) -> Any:
    """`outputs`, what generators give and futures hold in their place; what is not run is counted in `unfinished`."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, AsyncIterator) or inspect.iscoroutine(leaf):
            if inspect.iscoroutine(leaf):
                leaf.close()
            raise UsageError("its forward is asynchronous; give a plain forward")
        if isinstance(leaf, Future | torch.futures.Future):
            return finished(leaf.result() if isinstance(leaf, Future) else leaf.wait(), unfinished)
        if not isinstance(leaf, Iterator):
            return leaf
        items = [finished(item, unfinished) for item in islice(leaf, MOST_ITEMS)]
        if next(leaf, items) is not items:
            unfinished[f"a generator after {MOST_ITEMS:,} items"] += 1
        return items

    return pytree.tree_map(one, outputs)


TensorKind = Literal["meta", "fake", "real"]


def copier(how: TensorKind, fake_mode: Any = None, device: str | None = None) -> Copy:
    """How a tensor is copied: without its elements, or with them, to `device` if there is one."""

    def made(tensor: Tensor) -> Tensor:
        if device is not None and not tensor.is_meta:
            return tensor.detach().to(device, copy=True)
        if device is not None:  # random numbers, as small as weights usually are, and whole numbers 0
            zeros = torch.zeros_like(tensor, device=device)
            return zeros.normal_(std=0.02) if zeros.is_floating_point() and zeros.itemsize > 1 else zeros
        if how == "meta":
            return tensor if tensor.is_meta else tensor.detach().to("meta")
        if not tensor.is_meta:
            return fake_mode.from_tensor(tensor.detach())
        with fake_mode:  # on the CPU, for code that refuses other devices
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")

    return cloned if how == "real" and device is None else made


def copied_inputs(given: Any, made: Copy) -> Any:
    """Inputs of any structure, their tensors copied; caches and dataclasses too. Objects that can't be copied stay."""
    copies = {id(tensor): made(tensor) for tensor in {id(one): one for one in reached(given)}.values()}
    try:
        result = copy.deepcopy(given, copies.copy())  # takes the copies that it knows
    except (TypeError, ValueError, RuntimeError, AttributeError):  # a generator, a lock, a file
        result = pytree.tree_map_only(Tensor, lambda tensor: copies[id(tensor)], given)
    for tensor in reached(result):
        mark(tensor, Lineage(varies=True))
    return result


def reached(given: Any) -> list[Tensor]:
    """The tensors in a structure, also those in attributes of its objects, such as a cache's layers."""
    return [tensor for _, tensor in named_tensors(given)]


def named_tensors(given: Any, path: str = "", depth: int = 6) -> Iterator[tuple[str, Tensor]]:
    """The same with the way to each: `.layers.0.keys`."""
    for keys, leaf in leaves_with_paths(given):
        name = path + keys
        if isinstance(leaf, Tensor):
            yield name, leaf
        elif depth and isinstance(leaf, dict | list | tuple | set):
            inner = leaf.items() if isinstance(leaf, dict) else enumerate(leaf)
            for key, one in inner:
                yield from named_tensors(one, f"{name}[{key!r}]", depth - 1)
        elif depth and not isinstance(leaf, nn.Module | type):
            slots = [vars(kind).get("__slots__", ()) for kind in type(leaf).__mro__]
            names = [each for own in slots for each in ([own] if isinstance(own, str) else own)]
            values = getattr(leaf, "__dict__", {}) | {each: getattr(leaf, each, None) for each in names}
            for key, one in values.items():
                yield from named_tensors(one, f"{name}.{key}", depth - 1)


def needs_elements(model: nn.Module, inputs: Any) -> str | None:
    """Why `meta` can't stand for the tensors: sparse, nested and quantised ones have no size there; None if it can."""
    for tensor in (*model.parameters(), *model.buffers(), *reached(inputs)):
        if tensor.layout is not torch.strided:
            return f"tensors are {str(tensor.layout).removeprefix('torch.')}"
        if tensor.is_quantized:
            return "tensors are quantised"
    if any(isinstance(value, torch.ScriptObject) for module in model.modules() for value in vars(module).values()):
        return "weights are packed"
    return None


# How many operations on `meta` take as long as one on such tensors, and FLOPs that take as long as one on `meta`.
_TIMES: Final[dict[TensorKind, int]] = {"meta": 1, "fake": 4, "real": 1}
_FLOPS: Final = 5_000_000
# Operations on fewer weights and inputs are so short that threads mostly wait for each other.
_FEW_NUMBERS: Final = 2**22
# Letters of what a run on `meta` raises that a report shows: torch lists all its backends.
_LONGEST: Final = 160
_DONE: Final = Counter[str]()


def work_done() -> int:
    """The operations of all recorded runs so far, of which a core does some 5,000 a second on `meta`.

    A clock would make what depends on it another on a busy machine.
    """
    return _DONE["operations"]


Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Beside = Callable[[Args, Kwargs, list[str]], AbstractContextManager[Any]]


class RecordedModule(NamedTuple):
    """What a run did, and on which tensors."""

    works: list[Work]
    how: TensorKind
    reason: str | None
    """Why it did not run on `meta`."""
    elements: dict[str, int]
    """The names of the parameters, with their elements."""
    ran: int = 0
    """How many ATen operations ran."""
    learned: frozenset[str] = frozenset()
    """In training, the names of the parameters that a gradient reached."""
    keys: Mapping[int, Key] = {}
    """`id` of a call of its record -> the operation that it belongs to, while the record lives."""
    cache: Mapping[str, int] = {}
    """Of a run with `use_cache`, the bytes of every tensor of the cache that it returned."""
    logits: int = 0
    """In training, the elements of the logits that it returned for every token."""
    without_padding: bool = False
    """Was the model told that no token is padding?"""
    activations: int | None = None
    """Bytes of the most activations that are alive at once, inputs among them, without weights and the cache that a
    prompt or a decode step reads and returns; None of training."""
    numbers: bool = False
    """Did tensors that `torch.arange` and its kin make on `meta` keep their numbers?"""
    stored_unknown: bool = False
    """Did it multiply sparse tensors without numbers? What they store is not known then."""


class CacheNames(NamedTuple):
    """What a module of one's own calls its cache; None where it has the names of transformers."""

    takes: str | None = None
    """The parameter."""
    returns: str | None = None
    """A key or an attribute of what it returns, or a place in it: `1`."""


USUAL_NAMES: Final = CacheNames()


def run(  # noqa: PLR0913 - options
    model: nn.Module, args: Args, kwargs: Kwargs, *, training: bool = False, keeps_free: bool = False,
    cache: CacheNames = USUAL_NAMES, most: float = inf, first: TensorKind = "meta", recomputed: Sequence[str] = (),
) -> RecordedModule:  # fmt: skip
    """One forward of `model(*args, **kwargs)`, on the first tensors that it runs on.

    The `first` that are tried are those on which it ran with other inputs.

    With `training` the model is in training mode, and a backward pass follows, which runs the modules at the paths
    `recomputed` again. `keeps_free`: as `RecordedOperations` takes it. Errors are those of `first_to_run`, and
    TooManyCallsError of more than `most` ATen operations on `meta`.
    """
    options: dict[str, Any] = {"training": training, "keeps_free": keeps_free, "cache": cache, "most": most}
    options |= {"recomputed": recomputed}
    found, reason = first_to_run(
        model, args, kwargs, lambda how, numbers: run_on(how, model, args, kwargs, numbers=numbers, **options), first
    )
    if found.stored_unknown and not any(tensor.is_meta for tensor in _all_tensors(model, args, kwargs)):
        found, reason = run_on("real", model, args, kwargs, **options), "what its sparse tensors store are numbers"
    return found._replace(reason=reason)


def _all_tensors(model: nn.Module, args: Args, kwargs: Kwargs) -> list[Tensor]:
    return [*model.parameters(), *model.buffers(), *reached((args, kwargs))]


_Found = TypeVar("_Found")


def first_to_run(
    model: nn.Module, args: Args, kwargs: Kwargs, attempt: Callable[[TensorKind, bool], _Found],
    first: TensorKind = "meta",
) -> tuple[_Found, str | None]:  # fmt: skip
    """What the first attempt gives that raises nothing, and why it did not run on `meta`.

    An attempt to run the model is given the kind of tensors, and whether those that `torch.arange` and its kin make on
    `meta` keep their numbers. The first are without elements, the last with them, for code that looks at them. Code
    that raises the same on `meta` and on fake tensors looks at no elements: the error is its own. A `first` attempt on
    other tensors than `meta` comes before all, and does not say why.

    Raises:
        UsageError: the module does not run on these inputs; an OwnError where real numbers would not help.
    """
    on_meta = any(tensor.is_meta for tensor in _all_tensors(model, args, kwargs))
    reason = needs_elements(model, (args, kwargs))
    attempts: list[tuple[TensorKind, bool]] = [("meta", False), ("meta", True), ("fake", False)]
    attempts = [("real", False)] if reason else attempts if on_meta else [*attempts, ("real", False)]
    failed: BaseException | None = None
    if first != "meta":
        with suppress(Exception, SystemExit):
            return attempt(first, False), reason
    for how, numbers in attempts:
        if numbers and failed is not None and not is_about_meta(failed):
            continue
        try:
            return attempt(how, numbers), None if how == "meta" else reason
        except (XfcostError, TooManyCallsError):
            raise
        except (Exception, SystemExit) as error:
            raised = printable(f"{type(error).__name__}: {message(error).partition(chr(10))[0]}", _LONGEST)
            if how == "fake" and raised == reason:
                raise refused(model, error, kind=OwnError) from error
            reason = reason or raised
            failed = failed if failed is not None and on_meta else error
    if failed is None:
        raise RuntimeError("no attempt was made")
    hint = "; its parameters are on `meta`, and code that looks at values needs real ones" if on_meta else ""
    raise refused(model, failed, hint) from failed


@contextmanager
def tensors_of(  # noqa: PLR0913 - options
    how: TensorKind, model: nn.Module, args: Args, kwargs: Kwargs, *, numbers: bool = False, training: bool = False,
    padding: WithoutPadding | None = None,
) -> Iterator[tuple[Args, Kwargs]]:  # fmt: skip
    """Let `model` run on such tensors, and give its inputs as such; `padding` answers its questions on `meta`."""
    faking = fake_tensor_mode() if how == "fake" else nullcontext()
    with stand_ins(how, model, args, kwargs, faking, training=training) as inputs, ExitStack() as stack:
        stack.enter_context(no_compiler())
        if how == "fake":  # torch logs what a fake run raises; the next attempt shows whether that matters
            logger = logging.getLogger(FAKE_TENSOR_LOGGER)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)
        stack.enter_context(faking)
        if how == "meta":
            stack.enter_context(shapes_on_meta())
            stack.enter_context(without_autocast())
            stack.enter_context(padding or nullcontext())
            stack.enter_context(known_numbers(reached((args, kwargs)), made=numbers))
        yield inputs


def run_on(  # noqa: PLR0913 - options
    how: TensorKind, model: nn.Module, args: Args, kwargs: Kwargs, beside: Beside | None = None, *,
    training: bool = False, keeps_free: bool = False, recorder: Recorder | None = None,
    cache: CacheNames = USUAL_NAMES, numbers: bool = False, most: float = inf, recomputed: Sequence[str] = (),
) -> RecordedModule:  # fmt: skip
    """One recorded run on such tensors. What the model raises passes through.

    `beside` gives another dispatch mode for the inputs that the run works on; it sees the same operations.
    `recorder` records instead of the usual one. `numbers`: as an attempt of `first_to_run` is given it. `most` and
    `recomputed`: as `run` takes them.
    """
    outside, padding = Work("", "outside"), WithoutPadding()
    learned: frozenset[str] = frozenset()
    asked = padding if kwargs.get("use_cache") else None
    with (
        tensors_of(how, model, args, kwargs, numbers=numbers, training=training, padding=asked) as inputs,
        ExitStack() as stack,
    ):
        own_args, own_kwargs = inputs
        recorder = recorder or Recorder(model, reached(inputs))
        has_cache = kwargs.get("use_cache") or cache.returns
        read = cache_in(own_kwargs, cache.takes) if has_cache else None
        held = recorder.run.weights.union(map(recorder.storage, reached(read)))
        stack.callback(lambda run: _DONE.update(operations=_TIMES[how] * run.ran), recorder.run)
        recorder.most = most if how == "meta" else inf
        stack.enter_context(handed_to_numpy(outside.uncounted))
        stack.enter_context(beside(own_args, own_kwargs, recorder.running) if beside else nullcontext())
        stack.enter_context(recomputing(model, recomputed))
        stack.enter_context(recorder.of(model))
        with recorder.saving() if training else nullcontext():
            outputs = finished(model(*own_args, **own_kwargs), outside.uncounted)
        if training:
            recorder.differentiate(learned_from(outputs))
            learned = frozenset(name for name, one in model.named_parameters() if one.grad is not None)
        elements = {name: parameter.numel() for name, parameter in model.named_parameters()}
        stored = cache_in(outputs, cache.returns) if has_cache else None
        cached = storage_bytes(stored)
        held |= set(map(recorder.storage, reached(stored)))
        logits = _logits_in(outputs) if training else 0
    operations = RecordedOperations(recorder.run, keeps_free=keeps_free)
    operations.find_residuals(recorder.run)
    _find_windows(model, operations.works.values(), stored)
    outside.uncounted.update(operations.uncounted)
    if how == "real":
        _DONE["operations"] += sum(work.costs["flops"] for work in operations.works.values()) // _FLOPS
    works = [*operations.works.values(), *([outside] if outside.uncounted else [])]
    keys, ran = operations.keys, recorder.run.ran
    alive = None if training else recorder.run.peak_bytes(without=held)
    unknown = recorder.run.stored_unknown
    return RecordedModule(
        works, how, None, elements, ran, learned, keys, cached, logits, padding.asked, alive, numbers, unknown
    )


# The names under which models take a cache that is no `Cache` of transformers, and return it; the usual ones first.
CACHES: Final = ("past_key_values", "cache", "cache_params", "mems", "state", "past_buckets_states")


def cache_parameter(model: nn.Module) -> str | None:
    """The parameter of its forward that takes a cache: by its type, else by its name; None where there is none."""
    try:
        takes = inspect.signature(model.forward, eval_str=True).parameters
    except Exception:  # noqa: BLE001 - an annotation names what is imported for type checkers only
        takes = inspect.signature(model.forward).parameters
    typed = [name for name, one in takes.items() if _takes_cache(one)]
    named = [name for name in CACHES if name in takes and not _takes_dictionary(takes[name])]
    return next((name for name in named if name in typed), next(iter(typed or named), None))


def _takes_cache(parameter: inspect.Parameter) -> bool:
    told = parameter.annotation
    return _is_cache(parameter.default) or any(map(_is_cache_type, (told, *get_args(told))))


def _takes_dictionary(parameter: inspect.Parameter) -> bool:
    """As XLM's `cache`, which it fills and does not return."""
    told = parameter.annotation
    return any(get_origin(one) is dict for one in (told, *get_args(told)))


def _is_cache(value: Any) -> bool:
    return _is_cache_type(type(value))


def _is_cache_type(kind: Any) -> bool:
    """Is it transformers' class `Cache`, wherever that has it, or made from it? Or a text that names it?"""
    text = getattr(kind, "__forward_arg__", kind)
    if isinstance(text, str):
        return "Cache" in re.findall(r"\w+", text)
    return is_cache_class(kind)


def cache_in(outputs: Any, name: str | None = None) -> Any:
    """The cache among what a model returns or takes: under `name`, else by its type, else under one of the usual names.

    None where there is none.
    """
    if name is None:
        return next(iter(caches_in(outputs).values()), None)
    if name.isdecimal() and isinstance(outputs, Sequence):
        return outputs[int(name)] if int(name) < len(outputs) else None
    found = outputs.get(name) if isinstance(outputs, Mapping) else None
    return getattr(outputs, name, None) if found is None else found


def caches_in(outputs: Any) -> dict[str, Any]:
    """Name, or place, of every cache; the usual names first, and what is a `Cache` before anything else."""
    if isinstance(outputs, Mapping):
        named = dict(outputs.items())
    elif isinstance(outputs, tuple | list) and not hasattr(outputs, "_fields"):
        named = {str(place): one for place, one in enumerate(outputs)}
    else:
        own = outputs._asdict() if hasattr(outputs, "_fields") else getattr(outputs, "__dict__", {})
        named = own | {name: getattr(outputs, name, None) for name in CACHES if name not in own}
    usual = {name: named[name] for name in CACHES if named.get(name) is not None}
    typed = {name: one for name, one in named.items() if _is_cache(one)}
    return {name: one for name, one in usual.items() if name in typed} | typed | usual


def storage_bytes(cache: Any) -> dict[str, int]:
    """Bytes of the tensors of a cache by name; views of one storage together take no more than that has."""
    found, views, left = dict[str, int](), set[Any](), dict[int, int]()
    for name, tensor in named_tensors(cache):
        storage = tensor.untyped_storage()
        key = storage_identity(storage)
        view = (key, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if not tensor.dim() or view in views:  # single numbers keep the books of a cache
            continue
        views.add(view)
        found[name] = min(tensor.nbytes, left.setdefault(key, storage.nbytes()))
        left[key] -= found[name]
    return found


def _find_windows(model: nn.Module, works: Iterable[Work], cache: Any) -> None:
    """Give the masked attention of local layers the pairs that a causal window or chunk keeps.

    Fields are named as in transformers. A mask on `meta` has no elements. A window that looks both ways keeps more, so
    that a bound stays one. The query of a decode step is the last token of its cache.
    """
    for work in works:
        core = work.core
        if not work.masked or core is None or work.heads is None:
            continue
        module, n = model.get_submodule(work.path), int(core.keys)
        if core.queries == getattr(module, "num_key_value_groups", 1) and core.times == work.heads:
            work.heads *= int(core.queries)  # heads that share keys are the queries of one, as transformers packs them
        queries = core.times * core.queries // work.heads
        config = getattr(module, "config", None)
        window: Any = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
        layer, kinds = getattr(module, "layer_idx", -1), getattr(config, "layer_types", None) or []
        chunk: Any = getattr(config, "attention_chunk_size", None)
        if not isinstance(window, int) or window <= 0:
            window = None
            if not chunk or kinds[layer : layer + 1] != ["chunked_attention"]:
                continue
        if queries == n:
            work.pairs, work.masked = causal_pairs(n, window) if window else chunked_pairs(n, chunk), False
        elif queries == 1 and hasattr(cache, "get_seq_length") and isinstance(tokens := cache.get_seq_length(), int):
            work.pairs, work.masked = min(window, tokens) if window else (tokens - 1) % chunk + 1, False


def _logits_in(outputs: Any) -> int:
    found = getattr(outputs, "logits", None)
    return found.numel() if isinstance(found, Tensor) and found.dim() == 3 else 0  # noqa: PLR2004 - B×N×V


def learned_from(outputs: Any) -> list[Tensor]:
    """The loss, if a model returns one, else everything with a gradient."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    is_one = isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1
    tensors: list[Tensor] = [loss] if is_one else reached(outputs)  # type: ignore[list-item]
    found = {id(one): one for one in tensors if one.requires_grad}
    if not found:
        raise UsageError(
            "--mode train: nothing that the module returns has a gradient: no parameter that requires one leads to it "
            "by differentiable operations"
        )
    return list(found.values())


@contextmanager
def stand_ins(  # noqa: PLR0913 - options
    how: TensorKind, model: nn.Module, args: Args, kwargs: Kwargs, fake_mode: Any = None, *, training: bool = False,
    device: str | None = None,
) -> Iterator[tuple[Args, Kwargs]]:  # fmt: skip
    """Let `model` work on copies of its tensors, and give copies of its inputs; at the end everything is as it was.

    With `training` gradients are on, and a model in evaluation mode is in training mode; of one that is in training
    mode already, parts in evaluation mode stay so. Real tensors may be put on another `device`; where they are not, and
    are small, one thread runs them.
    """
    made, there = copier(how, fake_mode, device), None if device is None else torch.empty(0, device=device).device

    def shares(parameter: Tensor) -> bool:
        """A run needs no copy of real ones that are where it runs, and that no training step updates."""
        if how != "real" or there is None:
            return how == "real"
        return not training and not parameter.is_meta and parameter.device == there

    real = how == "real" and device is None
    few = real and sum(tensor.numel() for tensor in _all_tensors(model, args, kwargs)) < _FEW_NUMBERS
    with unchanged(model, made, shares), torch.set_grad_enabled(training), threads_set(1) if few else nullcontext():
        if training and not model.training:
            model.train()
        yield copied_inputs((args, kwargs), learning(made) if training else made)
