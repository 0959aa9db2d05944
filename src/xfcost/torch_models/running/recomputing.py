"""Modules of a model that run under `torch.utils.checkpoint`, so that the backward pass runs them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from xfcost.torch_models.shared.private_torch import pytree
from xfcost.torch_models.shared.transformers_names import is_cache_class


@contextmanager
def recomputing(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """While it lasts, the modules of `model` at these paths save their inputs alone."""
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(_checkpointed(model.get_submodule(path)))
        yield


@contextmanager
def _checkpointed(module: nn.Module) -> Iterator[None]:
    """Its forward, and not its call, is checkpointed, as transformers does: hooks do not run again."""
    forward, own = module.forward, vars(module).get("forward")

    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        named = {name: _without_cache(value) for name, value in kwargs.items()}
        named |= {"use_cache": False} if named.get("use_cache") else {}
        return _run_checkpointed(forward, tuple(map(_without_cache, args)), named)

    module.forward = run
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def _run_checkpointed(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Saved are the tensors that are given by place, and those given by name that have a gradient.

    Others that are given by name, masks and tables of rotations, all blocks share: torch holds them once, unsaved.
    """
    leaves, structure = pytree.tree_flatten((args, kwargs))
    by_place = len(pytree.tree_leaves(args))
    saved = {
        id(leaf): leaf for place, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and (place < by_place or leaf.requires_grad)
    }  # fmt: skip

    def again(*tensors: Tensor) -> Any:
        own = dict(zip(saved, tensors, strict=True))  # one that is given twice stays one: attention asks that
        given = [own.get(id(leaf), leaf) for leaf in leaves]
        own_args, own_kwargs = pytree.tree_unflatten(given, structure)
        return forward(*own_args, **own_kwargs)

    return checkpoint(again, *saved.values(), use_reentrant=False)


def _without_cache(value: Any) -> Any:
    """None of a cache of transformers: a block that runs again would write to it again; transformers does the same."""
    return None if is_cache_class(type(value)) else value
