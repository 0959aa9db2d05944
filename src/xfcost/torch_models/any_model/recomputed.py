"""Which modules of a model `--recompute` lets the backward pass run again, and what checkpoints hold then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError, any_of
from xfcost.ledger.units import number_of
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.run import TensorKind, first_to_run, learned_from, reached, tensors_of
from xfcost.torch_models.running.recomputing import recomputing
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.private_torch import node_number, without_checkpoints

# Names of modules in a message.
_MOST_NAMES: Final = 4


class Recomputed(NamedTuple):
    """The modules that run again, by path."""

    paths: tuple[str, ...] = ()
    note: str = ""


@dataclass(slots=True)
class _Call:
    """A call of a module in a forward pass."""

    path: str
    before: list[Any]
    """The autograd nodes that made its inputs."""
    after: list[Any] = field(default_factory=list)
    """The autograd nodes that made its outputs."""


@dataclass(slots=True)
class _Run:
    """A forward and a backward pass."""

    calls: list[_Call] = field(default_factory=list)
    again: set[str] = field(default_factory=set)
    """The modules that the backward pass runs: the model's own code recomputes them."""


def find_recomputed(model: nn.Module, given: Given, words: str, title: str, first: TensorKind = "meta") -> Recomputed:
    """The modules that `words` of `--recompute` name: `full`, or paths with commas between them.

    `full`: the innermost repeated blocks. A pass forward and backward shows them. Modules that the model's code
    recomputes by itself are left to it.

    Raises:
        UsageError: there are none; or the module does not run on these inputs.
    """
    if words == "none":
        return Recomputed()
    if words == "selective":
        raise UsageError(
            "--recompute selective: of a torch module whole modules are recomputed; give full, or the paths of its "
            "attention, as in --recompute 'blocks.*.attn'"
        )
    seen, _ = first_to_run(
        model, *given, lambda how, numbers: _run(how, model, given, numbers=numbers), first
    )  # fmt: skip
    paths = [*_repeated_blocks(model, seen)] if words == "full" else _named(model, seen, words, title)
    if not paths:
        raise UsageError(f"--recompute full: {title} {_without_blocks(model, seen)}")
    own = [path for path in paths if any(f"{one}.".startswith(f"{path}.") for one in seen.again)]
    left = [path for path in paths if path not in own]
    notes = [f"the backward pass recomputes {_in_words(model, left)}"] if left else []
    notes += [f"{_in_words(model, own)}: recomputed by the model's own code, and left to it"] if own else []
    return Recomputed(tuple(left), "; ".join(notes))


def recomputed_bytes(model: nn.Module, given: Given, paths: Sequence[str], first: TensorKind = "meta") -> int:
    """What a checkpoint saves, inputs left out, while it runs again: the most of all.

    They are those of the modules at `paths`, and in the model's own code.
    """

    def attempt(how: TensorKind, numbers: bool) -> int:
        sizes = [0]
        with tensors_of(how, model, *given, numbers=numbers, training=True) as (args, kwargs):
            recorder = Recorder(model, reached((args, kwargs)), calls=False)

            @contextmanager
            def region() -> Iterator[None]:
                start, next_storage = len(recorder.run.saved), recorder.storage(torch.empty(0, device="meta")) or 0
                yield
                saved = {one.storage: one.nbytes for one in recorder.run.saved[start:]}
                made = [nbytes for storage, nbytes in saved.items() if storage is None or storage > next_storage]
                sizes.append(sum(made))

            with recomputing(model, paths), without_checkpoints(region), recorder.of(model), recorder.saving():
                model(*args, **kwargs)
        return max(sizes)

    return first_to_run(model, *given, attempt, first)[0]


def _run(how: TensorKind, model: nn.Module, given: Given, *, numbers: bool) -> _Run:
    """One step, in which every parameter learns: a frozen block is computed from the one before it too."""
    seen = _Run()
    with tensors_of(how, model, *given, numbers=numbers, training=True) as (args, kwargs):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.requires_grad_()
        recorder = Recorder(model, reached((args, kwargs)), calls=False)
        with _watched(model, recorder, seen), recorder.of(model):
            outputs = model(*args, **kwargs)
            recorder.differentiate(learned_from(outputs))
    return seen


@contextmanager
def _watched(model: nn.Module, recorder: Recorder, seen: _Run) -> Iterator[None]:
    """Note the calls of all modules."""
    running: list[_Call] = []

    def entering(path: str) -> Any:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if recorder.phase == "backward":
                seen.again.add(path)
                return
            tensors = reached((args, kwargs))
            call = _Call(path, _nodes(tensors))
            seen.calls.append(call)
            running.append(call)

        return enter

    def leaving(module: nn.Module, args: Any, outputs: Any) -> None:
        if recorder.phase == "backward":
            return
        running.pop().after = _nodes(reached(outputs))

    with ExitStack() as hooks:
        for path, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(entering(path), with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(leaving).remove)
        yield


def _nodes(tensors: Sequence[Tensor]) -> list[Any]:
    """The autograd nodes that made them."""
    return [one.grad_fn for one in tensors if one.grad_fn is not None]


# ── repeated blocks ──


class _Stack(NamedTuple):
    """Blocks of one list, each computed from the one before."""

    blocks: tuple[str, ...]
    is_alone: bool
    """Are all parts of its list that have parameters blocks of one class?"""


def _repeated_blocks(model: nn.Module, seen: _Run) -> Iterator[str]:
    """The innermost repeated blocks, in the order in which they run.

    A list inside a block is one of blocks too where its parts are all of one class, as those of a stage are, and two
    convolutions with norms in front of a third are not.
    """
    stacks = list(_stacks(model, seen))
    blocks = {path for stack in stacks for path in stack.blocks}
    eligible = [
        path for stack in stacks for path in stack.blocks
        if stack.is_alone or not any(path.startswith(f"{outer}.") for outer in blocks)
    ]  # fmt: skip
    order = {call.path: place for place, call in reversed([*enumerate(seen.calls)])}
    for path in sorted(eligible, key=order.__getitem__):
        if not any(one.startswith(f"{path}.") for one in eligible):
            yield path


def _stacks(model: nn.Module, seen: _Run) -> Iterator[_Stack]:
    calls = defaultdict[str, list[tuple[int, _Call]]](list)
    for place, call in enumerate(seen.calls):
        calls[call.path].append((place, call))
    for path, module in model.named_modules():
        if not isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
            continue
        parts = {name: part for name, part in _parts(path, module) if name in calls}
        learn = [name for name, part in parts.items() if next(part.parameters(), None) is not None]
        for kind in dict.fromkeys(type(part) for part in parts.values() if next(part.children(), None) is not None):
            own = [name for name, part in parts.items() if type(part) is kind]
            runs = [call for _, call in sorted((one for name in own for one in calls[name]), key=lambda one: one[0])]
            follows = [_follows(before, after) for before, after in pairwise(runs)]
            # experts and heads run side by side; of lists that run several times, a turn begins anew
            if follows and 2 * sum(follows) >= len(follows):
                yield _Stack(tuple(own), is_alone=set(learn) <= set(own))


def _parts(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a list, and those of lists in it that only hold them."""
    for name, part in module.named_children():
        own = f"{path}.{name}".removeprefix(".")
        if type(part).forward is nn.Module.forward:
            yield from _parts(own, part)
        else:
            yield own, part


def _follows(before: _Call, after: _Call) -> bool:
    """Are the inputs of `after` computed from the outputs of `before`?"""
    made = {id(node) for node in before.after}
    if not made:
        return False
    oldest = min(map(node_number, before.after))
    nodes, known = list(after.before), set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in made:
            return True
        if id(node) in known or node_number(node) < oldest:  # what it is computed from is older still
            continue
        known.add(id(node))
        nodes += [one for one, _ in node.next_functions if one is not None]
    return False


# ── names ──


def _named(model: nn.Module, seen: _Run, words: str, title: str) -> list[str]:
    """The modules that run at these paths, the outermost of those inside each other.

    Raises:
        UsageError: there is none at one of them.
    """
    ran = dict.fromkeys(call.path for call in seen.calls if call.path)
    found = dict[str, None]()
    for pattern in words.split(","):
        parts = pattern.split(".")
        paths = [
            path for path in ran
            if len(own := path.split(".")) == len(parts) and all(map(fnmatchcase, own, parts))
        ]  # fmt: skip
        if not paths:
            raise UsageError(
                f"--recompute {pattern}: expected none, full or paths of modules that run in {title}; "
                f"{_examples(model, seen)}"
            )
        found |= dict.fromkeys(paths)
    return [path for path in found if not any(path.startswith(f"{other}.") for other in found)]


def _without_blocks(model: nn.Module, seen: _Run) -> str:
    words = "has no repeated blocks (modules of one class in a list, each computed from the one before it)"
    return f"{words}; {_examples(model, seen)}"


def _examples(model: nn.Module, seen: _Run) -> str:
    """What could be given: the outermost modules that run and have parts, else those without."""
    ran = list(dict.fromkeys(call.path for call in seen.calls if call.path))
    whole = [path for path in ran if next(model.get_submodule(path).children(), None) is not None]
    names = whole or ran
    names = [path for path in names if not any(path.startswith(f"{other}.") for other in names)]
    if not names:
        return "it has no modules inside that could be recomputed"
    more = len(names) - _MOST_NAMES
    return f"it could be {any_of(names[:_MOST_NAMES])}{f' ({more} more)' if more > 0 else ''}"


def _in_words(model: nn.Module, paths: Sequence[str]) -> str:
    """`12 modules (encoder.layers.*, decoder.layers.*)`; a pattern that more modules have is written out."""
    every = Counter(_pattern(path) for path, _ in model.named_modules())
    own = Counter(map(_pattern, paths))
    names = list(dict.fromkeys(one if every[one] == own[one] else path for path in paths for one in [_pattern(path)]))
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    return f"{number_of(len(paths), 'module')} ({shown})"


def _pattern(path: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in path.split("."))
