"""Attention matrices as rows declare them, beside the tensors of the real modules."""

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from cases import CASES
from helpers import PLAIN
from strategies import place_for
from tiers import covering_cases, tiered_cases, tiered_examples
from xfcost.api.analysis import analyze
from xfcost.counting.forward import batched, count
from xfcost.formulas.component import Mixer
from xfcost.ledger.least_work import row_bytes
from xfcost.ledger.matrices import Matrix
from xfcost.program.residual import component_rows
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.by_row import row_path
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.leaves import Fused

# Storages are told apart by what they are, never by what a row says of them.

KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def made(component, place, dtype, batch, device="cpu"):
    """The module of a mechanism at its place, and its inputs."""
    torch.manual_seed(0)
    shapes = [(batch, place.grid.total, place.dim)]
    shapes += [(batch, place.memory.total, place.memory_dim)] if place.memory else []
    with torch.device(device):
        module = ProgramModule(component, place).to(dtype).eval()
        return module, tuple(torch.randn(shape).to(dtype) for shape in shapes)


def leaves(module, rows):
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
def watched(module, rows=None):
    """Every call of a leaf, in order. A storage is numbered where it first leaves one that was not given it."""
    calls = []
    known = [StorageWeakRef(tensor.untyped_storage()) for tensor in (*module.parameters(), *module.buffers())]
    own_from = len(known)

    def is_known(storage):
        return any(not ref.expired() and ref.cdata == storage._cdata for ref in known)

    def hook(path):
        def after(_, args, kwargs, output):
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
        def after(_, args, output):
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


BATCH = 2
DTYPES = (torch.float32, torch.bfloat16)
every_case = pytest.mark.parametrize("case", covering_cases(), ids=str)
every_fused_case = pytest.mark.parametrize("case", tiered_cases(fused=(True,)), ids=str)


def of_batch(case):
    """The rows of two samples by their paths."""
    return {row.path: batched(row, BATCH) for row in component_rows(case.component, case.place)}


def called(case, dtype):
    """The calls of all leaves on the CPU; on `meta` where the CPU has no such operation in this dtype."""
    for device in ("cpu", "meta"):
        module, inputs = made(case.component, case.place, dtype, BATCH, device)
        try:
            with watched(module) as calls, torch.no_grad():
                module(*inputs)
        except NotImplementedError:
            continue
        return calls
    raise AssertionError(case)


def given_and_alive(calls, rows):
    """By row: entries that its leaves return in all, and the most of those that matrices' rows return alive at once."""
    elements = {number: size for call in calls for number, size, _ in call.storages}
    matrices = {number for call in calls if rows[call.path].matrix_entries for number, *_ in call.storages}
    given, alive = Counter[str](), Counter[str]()
    for call in calls:
        given[call.path] += sum(size for _, size, _ in call.storages)
        alive[call.path] = max(alive[call.path], sum(elements[number] for number in matrices & {*call.alive}))
    return given, alive


@every_case
def test_matrices_are_as_large_and_as_many_at_once_as_the_leaves_return_them(case):
    rows = of_batch(case)
    for dtype in DTYPES:
        calls = called(case, dtype)
        given, alive = given_and_alive(calls, rows)
        for path, row in rows.items():
            if row.matrix is not None:
                assert alive[path] == row.matrix.alive, (path, dtype)
            if row.matrix_entries:
                assert given[path] == row.matrix_entries, (path, dtype)
                sizes = {size for call in calls if call.path == path for *_, size in call.storages}
                assert sizes == {dtype.itemsize}


@every_case
def test_autograd_keeps_those_matrices_that_are_declared_as_kept(case):
    rows = of_batch(case)
    saved = Saved(*made(case.component, case.place, torch.bfloat16, BATCH, "meta"))
    for path, row in rows.items():
        if row.matrix_entries:
            assert saved.of(path) == row.matrix_kept, path
    assert saved.statistics == sum(row.matrix_statistics for row in rows.values())


def statistics_of(case, dtype):
    """What the CPU's kernels handed out, and the queries that met none; None where it can't run this dtype."""
    module, inputs = made(case.component, case.place, dtype, BATCH)
    try:
        with Statistics() as seen, NoKernel() as none, torch.no_grad():
            module(*inputs)
    except NotImplementedError:
        return None
    return seen.found, none.queries


@every_fused_case
def test_statistics_are_those_that_the_kernel_hands_out(case):
    declared = sum(row.matrix_statistics for row in of_batch(case).values())
    for dtype in (*DTYPES, torch.float64):
        answer = statistics_of(case, dtype)
        if answer is None:
            continue
        found, without = answer
        assert sum(numbers for numbers, _ in found) + without == declared
        each = Matrix(0, 0, statistics=1).kept_bytes(dtype.itemsize)
        assert {size for _, size in found} <= {each}


@pytest.mark.parametrize(
    ("preset", "run", "settings"),
    [
        ("vit", Run(tokens=(16,), batch=2), ["stages.0.depth=2"]),
        ("swin", Run(tokens=(64,)), []),
        ("gpt2", Run(tokens=(9,), mode="decode", **PLAIN), ["stages.0.depth=2", "stages.0.dim=96"]),
        ("transformer-xl-enwik8", Run(tokens=(6,), dtype="bfloat16"), ["stages.0.depth=1"]),
        ("t5-small", Run(tokens=(7, 5)), []),
    ],
    ids=str,
)
def test_the_peak_of_a_whole_model_is_what_is_alive_in_it(preset, run, settings):
    architecture = place(load(preset, settings), run)
    ledger, live = count(architecture), build(architecture, "cpu")
    with watched(live.model, live.rows) as calls, torch.no_grad():
        live.model(*live.inputs)
    _, alive = given_and_alive(calls, {row.path: row for row in ledger.rows})
    assert ledger.attention_memory()["peak"] == max(alive.values()) * ledger.bytes_per_element


# Operations that mix, and give arrays whose size does not follow the width: none of them a matrix, and why.
NO_MATRICES = {
    "one number per query, or per key": {"logsumexp", "normaliser", "local_normaliser", "key_sum", "sums"},
    "features, of a number that the component fixes": {"k_features"},
    "values or contexts, of a width that the component fixes": {
        "weighted_sum", "attention", "spatial_weighted_sum", "recurrence", "fade",
    },
    "a hidden layer over pairs, l times as large as their energies": {"add", "tanh"},
    "keys of every window with their positions": {"spatial_add_positions"},
    "channels, of a width that the component fixes": {
        "conv", "conv1", "conv2", "conv3", "pool", "gate_spatial", "pool_q", "pool_k", "pool_v", "spatial_pool",
        "squeeze_pool", "squeeze_scale",
    },
}  # fmt: skip


def returned_sizes(component, place, batch):
    """Elements that the leaves of every row return in storages of their own."""
    module, inputs = made(component, place, torch.float32, batch, "meta")
    with watched(module) as calls, torch.no_grad():
        module(*inputs)
    found = Counter()
    for call in calls:
        found[call.path] += sum(elements for _, elements, _ in call.storages)
    return found


def wider(component):
    """`component` with every width of its own doubled."""
    fields = {name: getattr(component, name) for name in component.__struct_fields__ if name.endswith("_dim")}
    doubled = {name: 2 * width for name, width in fields.items() if isinstance(width, int)}
    return msgspec.structs.replace(component, **doubled)


@pytest.mark.parametrize(
    ("component", "fused"),
    tiered_examples(),
    ids=lambda value: str(value) if isinstance(value, Mixer) else f"fused={value}",
)
def test_no_matrix_stays_undeclared(component, *, fused):
    """What an operation that mixes gives, twice as much for two samples and as much at twice the width."""
    grid = min((grid for grid in CASES[type(component)].grids if grid.total > 5), key=lambda grid: grid.total)
    place = place_for(component, grid, fused=fused)
    broad = place_for(component, grid, fused=fused, dim=2 * place.dim)
    one, two = (returned_sizes(component, place, batch) for batch in (1, 2))
    wide = returned_sizes(wider(component), broad, 1)
    like_matrices = {path for path, size in one.items() if size and (two[path], wide[path]) == (2 * size, size)}
    rows = {row.path: row for row in component_rows(component, place)}
    declared = {path for path, row in rows.items() if row.matrix_entries}
    mixing = {path for path in like_matrices if rows[path].mixes}
    undeclared = mixing - declared - set().union(*NO_MATRICES.values())
    assert not undeclared, f"{component}: {undeclared} have a number per query and key; declare matrix=True"


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_what_a_traced_step_of_training_keeps_of_gpt2(attention):
    """12 layers of 12 heads: 16² softmax outputs of 2 bytes, or 16 log-sum-exps of 4."""
    ledger = analyze("gpt2", N=16, dtype="bfloat16", attention=attention, mode="train")
    kept = 12 * 12 * (16 * 16 * 2 if attention == "eager" else 16 * 4)
    assert ledger.training.step.attention_kept_bytes == kept == ledger.totals()["attention_bytes"]
    if attention == "eager":
        assert ledger.total("kept_bytes", lambda row: row.operation == "softmax") == kept


class Grouped(nn.Module):
    """Fused attention of four heads, 8 wide, some of which share keys and values as `share` lays them out."""

    def __init__(self, kv_heads: int, share: Callable[[Tensor], Tensor], **options: bool) -> None:
        super().__init__()
        self.kv_heads, self.share, self.options = kv_heads, share, options
        self.kv = nn.Linear(32, 16 * kv_heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, *kv = (
            one.unflatten(-1, (heads, 8)).transpose(1, 2)
            for one, heads in zip((x, *self.kv(x).chunk(2, -1)), (4, self.kv_heads, self.kv_heads), strict=True)
        )
        return F.scaled_dot_product_attention(q, *map(self.share, kv), **self.options)


@pytest.mark.parametrize(
    ("kv_heads", "share", "options"),
    [
        (4, lambda kv: kv, {}),
        (2, lambda kv: kv, {"enable_gqa": True}),
        (2, lambda kv: kv[:, :, None].expand(-1, -1, 2, -1, -1).reshape(kv.shape[0], 4, -1, 8), {}),
        (2, lambda kv: kv.repeat_interleave(2, 1), {}),
        (1, lambda kv: kv.expand(-1, 4, -1, -1), {}),
        (1, lambda kv: kv.expand(-1, 4, -1, -1).contiguous(), {}),
    ],
    ids=["apart", "grouped", "repeated", "interleaved", "expanded", "copied"],
)
def test_a_kernel_reads_keys_that_heads_share_once(kv_heads, share, options):
    """Of 3 samples and 6 tokens in four bytes: 4 heads of queries and outputs, and those of keys and values."""
    ledger = analyze(
        Grouped(kv_heads, share, **options), example_inputs=torch.ones(3, 6, 32), trace=False, mixing=False
    )
    (row,) = [one for one in ledger.rows if one.fused]
    assert row_bytes(row, ledger) == 3 * 6 * 8 * 2 * (4 + kv_heads) * 4
    # all 4 heads have scores of their own
    assert row.macs == 3 * 4 * 6 * 6 * 8 * 2
    assert row.heads == 3 * 4
