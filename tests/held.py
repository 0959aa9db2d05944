"""What the leaves of a real module return, what of it is alive at once, what autograd saves, what fused kernels give.

Storages are told apart by what they are, never by what a row says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from xfcost.formulas.component import Mixer, Place
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.running.by_row import row_path
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.leaves import Fused

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def made(
    component: Mixer, place: Place, dtype: torch.dtype, batch: int, device: str = "cpu"
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a mechanism at its place, and its inputs."""
    torch.manual_seed(0)
    shapes = [(batch, place.grid.total, place.dim)]
    shapes += [(batch, place.memory.total, place.memory_dim)] if place.memory else []
    with torch.device(device):
        module = MODULES[type(component)](component, place).to(dtype).eval()
        return module, tuple(torch.randn(shape).to(dtype) for shape in shapes)


def leaves(module: nn.Module, rows: dict[str, str] | None) -> Iterator[tuple[str, nn.Module]]:
    """Every leaf with the path of its row: in a built model by `rows`, else of the mechanism alone."""
    for name, leaf in module.named_modules():
        if next(leaf.children(), None) is None:
            path = row_path(f"it.{name}", {"it": "it"}) if rows is None else row_path(name, rows)
            if path is not None:
                yield path.removeprefix("it.") if rows is None else path, leaf


class Returned(NamedTuple):
    """What one leaf returned in one call: its row, and the storages of its own."""

    path: str
    storages: tuple[tuple[int, int, int], ...]
    """(number, elements, bytes of an element)"""
    alive: tuple[int, ...]
    """Numbers of the storages of all leaves that are alive when it returns."""


@contextmanager
def watched(module: nn.Module, rows: dict[str, str] | None = None) -> Iterator[list[Returned]]:
    """Every call of a leaf, in order. A storage is numbered where it first leaves one that was not given it."""
    calls: list[Returned] = []
    known = [StorageWeakRef(tensor.untyped_storage()) for tensor in (*module.parameters(), *module.buffers())]
    own_from = len(known)

    def is_known(storage: torch.UntypedStorage) -> bool:
        return any(not ref.expired() and ref.cdata == storage._cdata for ref in known)

    def hook(path: str) -> Callable[..., None]:
        def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given = {one.untyped_storage()._cdata for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)}
            own = []
            for one in tree_iter(output):
                if not isinstance(one, Tensor) or not one.is_floating_point():
                    continue
                storage = one.untyped_storage()
                if storage._cdata not in given and not is_known(storage):
                    own.append((len(known), storage.nbytes() // one.element_size(), one.element_size()))
                    known.append(StorageWeakRef(storage))
            alive = (number for number, ref in enumerate(known) if number >= own_from and not ref.expired())
            calls.append(Returned(path, tuple(own), tuple(alive)))

        return after

    handles = [leaf.register_forward_hook(hook(path), with_kwargs=True) for path, leaf in leaves(module, rows)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class Saved:
    """What autograd saves of a forward pass on `meta`, fused attention running as the kernels do."""

    def __init__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.statistics = 0
        """float32 numbers that fused kernels save, the model being of another dtype."""
        self._held: list[torch.UntypedStorage] = []  # alive, so that an identity stays one storage's
        self._saved: set[int] = set()
        self._returned: dict[str, set[tuple[int, int]]] = {}
        self._in_kernel = False
        for path, leaf in leaves(module, None):
            leaf.register_forward_pre_hook(self._entering)
            leaf.register_forward_hook(self._leaving(path))
        hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        with Recorder(calls=False).modes(), hooks:
            module(*(tensor.requires_grad_() for tensor in inputs))

    def of(self, path: str) -> int:
        """Elements of the storages that the row's leaves returned, and that are saved."""
        return sum(elements for storage, elements in self._returned.get(path, ()) if storage in self._saved)

    def _save(self, tensor: Tensor) -> Tensor:
        self.statistics += tensor.numel() if self._in_kernel and tensor.dtype == torch.float32 else 0
        self._saved.add(tensor.untyped_storage()._cdata)
        self._held.append(tensor.untyped_storage())
        return tensor

    def _entering(self, leaf: nn.Module, _: Any) -> None:
        self._in_kernel = isinstance(leaf, Fused)

    def _leaving(self, path: str) -> Callable[..., None]:
        def after(_: nn.Module, args: Any, output: Any) -> None:
            self._in_kernel = False
            given = {one.untyped_storage()._cdata for one in tree_iter(args) if isinstance(one, Tensor)}
            for one in tree_iter(output):
                if isinstance(one, Tensor) and one.untyped_storage()._cdata not in given:
                    storage = one.untyped_storage()
                    self._held.append(storage)
                    own = storage._cdata, storage.nbytes() // one.element_size()
                    self._returned.setdefault(path, set()).add(own)

        return after


class Statistics(TorchDispatchMode):
    """The log-sum-exps that fused kernels of the CPU hand out: (numbers, bytes of each)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is KERNEL:
            self.found.append((result[1].numel(), result[1].element_size()))
        return result


class NoKernel(TorchFunctionMode):
    """How many queries of all heads meet no kernel on the CPU, by torch's own choice (values of another width, say)."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.scaled_dot_product_attention:
            how = {"scale": given.get("scale"), "enable_gqa": given.get("enable_gqa", False)}
            mask, causal = given.get("attn_mask"), given.get("is_causal", False)
            choice = torch._fused_sdp_choice(*args[:3], mask, 0.0, causal, **how)
            self.queries += args[0].shape[:-1].numel() if choice == SDPBackend.MATH.value else 0
        return func(*args, **given)
