"""Attention matrices as rows declare them, beside the tensors that the leaves of the real modules return.

Storages are told apart by what they are, never by what a row says of them: what a leaf returns in a storage of its own,
which of those live on when another leaf returns, which autograd saves, which log-sum-exps the fused kernel hands out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from cases import CASES
from cases.base import Case
from strategies import cases, examples, place_for
from xfcost.counted import batched
from xfcost.ledger import Operation
from xfcost.live.build import TWINS
from xfcost.live.kernels import KernelOnMeta
from xfcost.live.leaves import Fused
from xfcost.live.trace import row_path
from xfcost.matrices import Matrix
from xfcost.mechanisms.base import Mixer, Place, tag_of

BATCH = 2
DTYPES = (torch.float32, torch.bfloat16)
MATH = 0  # torch.nn.attention.SDPBackend.MATH
KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Returned(NamedTuple):
    """What one leaf returned in one call: its row, and the storages of its own."""

    path: str
    storages: tuple[tuple[int, int, int], ...]
    """(identity, elements, bytes of an element)"""
    alive: tuple[int, ...]
    """Identities of the storages of all leaves that are alive when it returns."""


def made(page: Mixer, place: Place, dtype: torch.dtype, device: str = "cpu") -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and its inputs."""
    torch.manual_seed(0)
    shapes = [(BATCH, place.grid.total, place.dim)]
    shapes += [(BATCH, place.memory.total, place.memory_dim)] if place.memory else []
    with torch.device(device):
        module = TWINS[type(page)](page, place).to(dtype).eval()
        return module, tuple(torch.randn(shape).to(dtype) for shape in shapes)


@contextmanager
def watched(module: nn.Module) -> Iterator[list[Returned]]:
    """Every call of a leaf, in order."""
    calls: list[Returned] = []
    known = [(StorageWeakRef(tensor.untyped_storage()), -1) for tensor in (*module.parameters(), *module.buffers())]

    def numbered(storage: torch.UntypedStorage) -> int | None:
        """Its number among all storages, the same for as long as it lives."""
        return next((n for ref, n in known if not ref.expired() and ref.cdata == storage._cdata), None)

    def hook(path: str) -> Callable[..., None]:
        def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given = {one.untyped_storage()._cdata for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)}
            own = []
            for one in tree_iter(output):
                if not isinstance(one, Tensor) or not one.is_floating_point():
                    continue
                storage = one.untyped_storage()
                if storage._cdata not in given and numbered(storage) is None:
                    own.append((len(known), storage.nbytes() // one.element_size(), one.element_size()))
                    known.append((StorageWeakRef(storage), len(known)))
            calls.append(Returned(path, tuple(own), tuple(n for ref, n in known if n >= 0 and not ref.expired())))

        return after

    handles = [
        leaf.register_forward_hook(hook(str(row_path(f"it.{name}", {"it": "it"})).removeprefix("it.")), with_kwargs=True)
        for name, leaf in module.named_modules()
        if next(leaf.children(), None) is None
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def of_batch(page: Mixer, place: Place) -> dict[str, Operation]:
    return {row.path: batched(row, BATCH) for row in page.operations(place)}


def sizes(calls: list[Returned]) -> dict[int, int]:
    return {number: elements for call in calls for number, elements, _ in call.storages}


def called(case: Case, dtype: torch.dtype) -> list[Returned]:
    """The calls of all leaves on the CPU; on `meta` where the CPU has no such operation in this dtype."""
    for device in ("cpu", "meta"):
        module, inputs = made(case.page, case.place, dtype, device)
        try:
            with watched(module) as calls, torch.no_grad():
                module(*inputs)
        except NotImplementedError:
            continue
        return calls
    raise AssertionError(case)


every_case = pytest.mark.parametrize("case", list(cases()), ids=str)
every_fused_case = pytest.mark.parametrize("case", [case for case in cases() if case.place.fused], ids=str)


@every_case
def test_matrices_are_as_large_and_as_many_at_once_as_the_leaves_return_them(case: Case) -> None:
    for dtype in DTYPES:
        calls = called(case, dtype)
        rows = of_batch(case.page, case.place)
        elements = sizes(calls)
        matrices = {n for call in calls if (rows[call.path].matrix or (0,))[0] for n, *_ in call.storages}
        given: Counter[str] = Counter()
        alive: Counter[str] = Counter()
        for call in calls:
            given[call.path] += sum(elements[n] for n, *_ in call.storages)
            alive[call.path] = max(alive[call.path], sum(elements[n] for n in call.alive if n in matrices))
        for path, row in rows.items():
            if row.matrix is not None and row.matrix.entries:
                assert {size for call in calls if call.path == path for *_, size in call.storages} == {dtype.itemsize}
                assert (given[path], alive[path]) == (row.matrix.entries, row.matrix.alive), (path, dtype)
            elif row.matrix is not None:  # fused: while it runs
                assert alive[path] == row.matrix.alive, (path, dtype)


@every_case
def test_autograd_keeps_those_matrices_that_are_declared_as_kept(case: Case) -> None:
    module, inputs = made(case.page, case.place, torch.bfloat16, "meta")
    held: list[torch.UntypedStorage] = []
    saved: set[int] = set()
    statistics: list[int] = []
    running: list[nn.Module] = []  # the fused kernel, while it runs

    def keep(tensor: Tensor) -> Tensor:
        if running and tensor.dtype == torch.float32:
            statistics.append(tensor.numel())
        saved.add(tensor.untyped_storage()._cdata)
        held.append(tensor.untyped_storage())  # alive, so that its identity stays its own
        return tensor

    produced: dict[str, set[tuple[int, int]]] = {}
    rows = of_batch(case.page, case.place)

    def hook(path: str) -> Callable[..., None]:
        def after(_: nn.Module, args: Any, output: Any) -> None:
            given = {one.untyped_storage()._cdata for one in tree_iter(args) if isinstance(one, Tensor)}
            for one in tree_iter(output):
                if isinstance(one, Tensor) and one.untyped_storage()._cdata not in given:
                    storage = one.untyped_storage()
                    held.append(storage)
                    produced.setdefault(path, set()).add((storage._cdata, storage.nbytes() // one.element_size()))

        return after

    for name, leaf in module.named_modules():
        if isinstance(leaf, Fused):
            leaf.register_forward_pre_hook(lambda leaf, _: running.append(leaf))
            leaf.register_forward_hook(lambda *_: running.clear())
        if next(leaf.children(), None) is None:
            leaf.register_forward_hook(hook(str(row_path(f"it.{name}", {"it": "it"})).removeprefix("it.")))
    inputs = tuple(tensor.requires_grad_() for tensor in inputs)
    with KernelOnMeta(products=True), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(*inputs)
    for path, row in rows.items():
        if row.matrix is not None:
            kept = sum(elements for storage, elements in produced.get(path, ()) if storage in saved)
            assert (kept if row.matrix.entries else 0) == row.matrix.kept, path
    if case.place.fused:
        assert sum(statistics) == sum(row.matrix.statistics for row in rows.values() if row.matrix is not None)


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
            mask, causal = given.get("attn_mask"), given.get("is_causal", False)
            grouped = {"scale": given.get("scale"), "enable_gqa": given.get("enable_gqa", False)}
            choice = torch._fused_sdp_choice(*args[:3], mask, 0.0, causal, **grouped)
            self.queries += args[0].shape[:-1].numel() if choice == MATH else 0
        return func(*args, **given)


def statistics_of(case: Case, dtype: torch.dtype) -> tuple[list[tuple[int, int]], int] | None:
    """What the CPU's kernels handed out, and the queries that met none; None where it can't run this dtype."""
    module, inputs = made(case.page, case.place, dtype)
    try:
        with Statistics() as seen, NoKernel() as none, torch.no_grad():
            module(*inputs)
    except NotImplementedError:
        return None
    return seen.found, none.queries


@every_fused_case
def test_statistics_are_those_that_the_kernel_hands_out(case: Case) -> None:
    rows = [row.matrix for row in of_batch(case.page, case.place).values() if row.matrix is not None]
    declared = sum(matrix.statistics for matrix in rows)
    for dtype in (*DTYPES, torch.float64):
        answer = statistics_of(case, dtype)
        if answer is None:
            continue
        found, without = answer
        assert sum(numbers for numbers, _ in found) + without == declared
        each = Matrix(0, 0, statistics=1).kept_bytes(dtype.itemsize)
        assert {size for _, size in found} <= {each}
        assert each == max(4, dtype.itemsize)


def test_most_mechanisms_meet_the_kernel_on_the_cpu() -> None:
    met = set()
    for case in cases():
        if case.place.fused and type(case.page) not in met:
            found, _ = statistics_of(case, torch.bfloat16) or ([], 0)
            met |= {type(case.page)} if found else set()
    fused = {mechanism for mechanism, known in CASES.items() if known.fused}
    assert len(met) > len(fused) / 2, {tag_of(mechanism) for mechanism in fused - met}
