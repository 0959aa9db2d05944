"""Inputs of any form, work elsewhere or later, and a module that is left as it was."""

import asyncio
import functools
import inspect
import pickle
import random
import threading
from array import array
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

import xfcost
from any_models import TOKENS, Cache, Model, Pair, Takes, X
from modules import Busy, Call, Module, state
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model import run as runs
from xfcost.torch_models.any_model.inputs import Lengths, inputs_from, supposed_input
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.run import run_on

# Inputs of any form, and what a module runs on: `meta`, fake or real tensors ──────────────────────────────────────────


class Slotted:
    """An object without a dictionary of its attributes."""

    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class ModelOutput(dict):
    """As transformers 4 registers its outputs: torch knows no keys of them."""


pytree.register_pytree_node(
    ModelOutput, lambda one: ([*one.values()], [*one]), lambda values, keys: ModelOutput(zip(keys, values, strict=True))
)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("inputs", "keywords", "pick"),
    [
        (X, None, lambda x: x),
        ((X,), None, lambda x: x),
        ([X, 3], None, lambda x, number: x),
        ({"x": X}, None, lambda x: x),
        ((X,), {"flag": True, "mask": None}, lambda x, flag, mask: x),
        (({"deep": [(1, X)]},), None, lambda nested: nested["deep"][0][1]),
        (Pair(X), None, lambda pair: pair.left),
        (Slotted(X), None, lambda slotted: slotted.x),
        ((None, X), None, lambda nothing, x: x),
        ((ModelOutput(x=X, y=[X]),), None, lambda output: output["y"][0]),
        (nn.Parameter(X), None, lambda x: x),
        ((X * nn.Parameter(torch.ones(8)),), None, lambda x: x),  # a tensor with a history
    ],
    ids=[
        "tensor", "tuple", "list", "dict", "both", "nested", "dataclass", "slots", "none", "output", "parameter",
        "not a leaf",
    ],
)  # fmt: skip
def test_inputs_of_any_form(inputs, keywords, pick, device):
    ledger = xfcost.analyze(Takes(pick).to(device), example_inputs=inputs, example_kwargs=keywords)
    assert ledger.total("macs") == 3 * 64
    assert ledger.module.traced == "agrees"


def test_a_cache_among_the_inputs_is_left_as_it_was():
    cache = Cache()
    ledger = module_ledger(Takes(lambda x, cache: cache.append(x)), (X, cache))
    assert ledger.total("macs") == (2 + 3) * 64
    assert (cache.keys.shape, cache.keys.is_meta) == ((2, 8), False)


def test_inputs_are_left_as_they_were():
    given = torch.ones(3, 8)
    run_on("real", Call(lambda x: x.mul_(2)), (given,), {})
    module_ledger(Call(lambda x: x.mul_(2)), (given,))
    assert torch.equal(given, torch.ones(3, 8))


# What is run on ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["fake", "real"])
def test_every_way_counts_the_same(how):
    first, other = (run_on(way, Model(), (TOKENS,), {}).works for way in ("meta", how))
    assert [(work.path, work.operation, work.costs) for work in first] == [
        (work.path, work.operation, work.costs) for work in other
    ]


def test_the_fast_path_of_an_encoder_is_off_on_real_tensors_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    on_meta, on_real = (run_on(how, encoder, (torch.ones(2, 5, 8),), {}).works for how in ("meta", "real"))
    macs = [sum(work.costs["macs"] for work in works) for works in (on_meta, on_real)]
    # 10 tokens of 4·d² + 2·d·f, and d per pair for QKᵀ and AV
    assert macs == [2 * 10 * (4 * 64 + 2 * 128 + 2 * 5 * 8)] * 2


def refusing_meta(x):
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"no kernel for {x.device.type}")
    return x


@pytest.mark.parametrize(
    ("run", "x", "macs", "tensors"),
    [
        # it looks at values: rows 1 and 2 are chosen
        (lambda x: x[x.sum(-1) > 28], torch.arange(24.0).reshape(3, 8), 2 * 64, "real"),
        # a tensor of another device
        (lambda x: x + torch.ones(8), X, 192, "fake"),
        (refusing_meta, X, 192, "fake"),
        (refusing_meta, X.to("meta"), 192, "fake"),
    ],
)
def test_code_that_does_not_run_on_meta_runs_on_others_and_says_so(run, x, macs, tensors):
    ledger = module_ledger(Takes(run).to(x.device), (x,))
    assert (ledger.total("macs"), ledger.module.tensors) == (macs, tensors)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_flex_attention_of_a_module_made_anywhere(device):
    def attended(x):
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        return flex_attention(heads, heads, heads).transpose(1, 2).flatten(2)

    model = nn.Sequential(nn.Linear(16, 16), Call(attended)).to(device)
    # a map of 2·32 tokens; QKᵀ and AV of 2 samples and 2 heads, 8 wide, where this version of torch has its costs
    counted = any("flex_attention" in str(operation) for operation in flop_registry)
    expected = 2 * 32 * 16 * 16 + counted * 2 * (2 * 2 * 32 * 32 * 8)
    assert module_ledger(model, (torch.zeros(2, 32, 16, device=device),)).total("macs") == expected


@pytest.mark.parametrize("around", ["inside", "outside", "decorator"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_autocast_of_the_cpu_has_its_dtypes(device, around):
    cast = torch.autocast("cpu", dtype=torch.bfloat16)
    linear = nn.Linear(8, 8)

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear(x)

    run = {"inside": inside, "outside": linear, "decorator": cast(linear.forward)}[around]
    model = Call(run)
    model.linear = linear
    with cast if around == "outside" else nullcontext():
        ledger = xfcost.analyze(model.to(device), example_inputs=X.to(device), mode="train", trace=False)
    # autograd saves the input of 3 tokens in bfloat16; it needs no gradient, so that no weights are saved
    assert (ledger.total("kept_bytes"), ledger.module.tensors) == (3 * 8 * 2, "fake")


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
@pytest.mark.parametrize(
    "look_up",
    [nn.functional.embedding, lambda ids, table: table.index_select(0, ids)],
    ids=["embedding", "index_select"],
)
def test_indices_are_refused_as_on_the_cpu(look_up, dtype, device):
    table = torch.zeros(8, 8)
    ids = torch.zeros(5, dtype=dtype)
    with pytest.raises(
        RuntimeError, match=r"Long, Int; but got|index_select\(\): Expected dtype int32 or int64"
    ) as real:
        look_up(ids, table)
    with pytest.raises(UsageError) as found:
        module_ledger(Call(look_up), (ids.to(device), table.to(device)))
    start = str(real.value).partition("; but got")[0]
    assert f"does not run on these inputs: RuntimeError: {start}" in str(found.value)


# What a module runs elsewhere or later: in threads, in branches, in generators. It is counted, or named ───────────────

ELSEWHERE_X = torch.ones(2, 4)
# 2 rows of 4·4 products
MAP = 2 * 16


def elsewhere(function, x=ELSEWHERE_X, **options):
    """The ledger of a map, and of what `function` does with it."""
    module = Module(lambda self, x: function(self.map, x), map=nn.Linear(4, 4))
    return xfcost.analyze(module, example_inputs=x, trace=False, **options)


def in_a_thread(given, x):
    found = []
    thread = threading.Thread(target=lambda: found.append(given(x) @ x.mT))
    thread.start()
    thread.join()
    return found


class Worker(threading.Thread):
    """A thread with a run of its own."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def run(self):
        self.found = self.work()


def in_workers(given, x):
    workers = [Worker(lambda: given(x)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.found for worker in workers]


def in_a_pool(given, x):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(given, [x, x]))


def items(given, x):
    for _ in range(3):
        x = given(x)
        yield x


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (in_a_thread, MAP + 2 * 2 * 4),
        (in_workers, 3 * MAP),
        (in_a_pool, 2 * MAP),
        (items, 3 * MAP),
        (lambda given, x: map(given, [x, x]), 2 * MAP),
        (lambda given, x: torch.jit.wait(torch.jit.fork(given, x)), MAP),
    ],
    ids=["thread", "threads", "pool", "generator", "map", "fork"],
)
def test_it_is_counted(function, macs):
    ledger = elsewhere(function, strict=True)
    assert ledger.total("macs") == macs
    assert next(row.component for row in ledger.rows if row.params) == "map"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # its thread runs before
        yield pool


def test_a_pool_that_was_there_before(pool):
    # `submit` is looked up in the run
    assert elsewhere(lambda given, x: pool.submit(given, x), strict=True).total("macs") == MAP  # noqa: PLW0108


def test_a_pool_out_of_sight_is_named(pool):
    # its `submit` was looked up before the run
    assert elsewhere(pool.submit).module.uncounted == {"map in another thread": 1}


def test_training_names_what_threads_save(pool):
    ledger = elsewhere(lambda given, x: pool.submit(given, x).result(), mode="train")
    assert (ledger.total("macs"), ledger.total("backward_macs")) == (MAP, MAP)
    assert ledger.module.uncounted == {"saved activations of another thread": 1}


def test_attention_in_two_threads_leaves_torch_as_it_was():
    before = nn.functional.has_torch_function

    ledger = xfcost.analyze(
        Module(
            lambda self, x: in_workers(lambda x: self.attention(x, x, x)[0], x),
            attention=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        example_inputs=ELSEWHERE_X[None],
        trace=False,
    )
    assert ledger.total("macs") == 3 * (2 * 4 * 16 + 2 * 2 * 2 * 4)
    assert nn.functional.has_torch_function is before
    assert threading.Thread.start.__module__ == "threading"


def test_a_generator_without_an_end_is_named(monkeypatch):
    monkeypatch.setattr(runs, "MOST_ITEMS", 5)

    def endless(given, x):
        while True:
            yield given(x)

    ledger = elsewhere(endless)
    assert ledger.module.uncounted == {"a generator after 5 items": 1}
    assert ledger.total("macs") >= 5 * MAP


def test_an_asynchronous_forward_is_refused():
    async def later(given, x):
        await asyncio.sleep(0)
        return given(x)

    with pytest.raises(UsageError):
        elsewhere(later)


def test_a_branch_counts_as_it_is_taken():
    def function(given, x):
        return torch.cond(x.sum() > 0, lambda v: given(given(v)), given, (x,))

    ledger = elsewhere(function, strict=True)
    assert (ledger.total("macs"), ledger.module.tensors) == (2 * MAP, "real")
    assert elsewhere(function, -ELSEWHERE_X).total("macs") == MAP


def test_every_turn_of_a_loop_counts():
    from torch._higher_order_ops.while_loop import while_loop

    def function(given, x):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, given(v)), (torch.tensor(0), x))[1]

    assert elsewhere(function, strict=True).total("macs") == 3 * MAP


# A module that was analyzed is as it was, and one that does not run gives one message with the user's own line ────────

LEFT_ALONE_X = torch.ones(4, 8)


@pytest.mark.parametrize("options", [{}, {"mode": "train"}, {"device": "cpu", "runs": 1}], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("values", [False, True], ids=["on meta", "on real tensors"])
def test_the_module_is_left_as_it_was(training, values, options):
    model = Busy().train(training)
    called = []
    model.map.register_forward_hook(
        lambda module, inputs, output: called.append(bool(output.sum() > 0) if values else 1)
    )
    model(LEFT_ALONE_X.clone()).sum().backward()
    before = state(model, LEFT_ALONE_X)
    ledger = xfcost.analyze(model, example_inputs=LEFT_ALONE_X, **options)
    assert ledger.module.tensors == ("real" if values else "meta")
    assert state(model, LEFT_ALONE_X) == before
    assert len(called) > 1  # the user's hooks ran with it


def refuse(*_, **__):
    raise RuntimeError("frozen")


METHODS = {
    "add", "append", "clear", "copy", "extend", "get", "items", "keys", "pop", "popitem", "remove", "update", "values",
    "__contains__", "__delattr__", "__delitem__", "__eq__", "__getitem__", "__iter__", "__len__", "__reduce_ex__",
    "__setattr__", "__setitem__",
}  # fmt: skip


def hostile(base, entries):
    """A container of a subclass whose own methods all refuse."""
    made = base.__new__(type(f"Hostile{base.__name__}", (base,), dict.fromkeys(METHODS & {*dir(base)}, refuse)))
    for place, one in enumerate(entries):
        fill(base, made, place, one)
    return made


def fill(base, container, place, entry):
    if issubclass(base, dict):
        base.__setitem__(container, place, entry)
    else:
        (set.add if base is set else base.append)(container, entry)


def inside(base, container):
    if issubclass(base, dict):
        return [*base.keys(container), *base.values(container)]
    entries = base.__iter__(container)
    return sorted(entries, key=id) if base is set else [*entries]  # a set has no order


class FrozenSlots:
    __slots__ = ("unset", "value")

    def __init__(self, value: object) -> None:
        object.__setattr__(self, "value", value)

    __setattr__ = refuse


@dataclass(frozen=True)
class Frozen:
    value: object


class Asked:
    """A property that counts who asks."""

    times = 0

    def __init__(self, value: object) -> None:
        self.inner = value

    @property
    def value(self) -> object:
        type(self).times += 1
        return self.inner


WRAPPERS = {
    "list": lambda one: [one],
    "tuple": lambda one: (one, ()),
    "hostile": lambda one: hostile(OrderedDict, [one]),
    "UserDict": lambda one: UserDict(a=one),
    "slots": FrozenSlots,
    "frozen": Frozen,
    "property": Asked,
    "proxy": lambda one: (MappingProxyType({"a": 1}), one),
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("values", [False, True], ids=["on meta", "on real tensors"])
@given(
    base=st.sampled_from([dict, OrderedDict, defaultdict, Counter, list, set, deque]),
    wrappers=st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_what_a_module_holds_is_left_as_it_was(values, raises, base, wrappers):
    table, entries = torch.ones(8), [torch.ones(8), object(), "text"]
    held = hostile(base, entries)
    before, outer = inside(base, held), held
    for name in wrappers:
        outer = WRAPPERS[name](outer)

    def forward(x):
        own = [one for one in inside(base, held) if isinstance(one, Tensor)]
        y = model.map(x) + own[0] + model.more["table"]
        own[0].add_(1)
        fill(base, held, "new", y)
        if wrappers[-1:] == ["slots"]:
            FrozenSlots.unset.__set__(outer, y)
        if values and y.sum() > 0:
            y = y + 1
        if raises:
            raise ValueError("no")
        return y

    model, Asked.times = Call(forward), 0
    model.map, model.held, model.more = nn.Linear(8, 8), outer, UserDict(table=table)
    with pytest.raises(UsageError, match="ValueError: no") if raises else nullcontext():
        ledger = xfcost.analyze(model, example_inputs=LEFT_ALONE_X, mixing=False)
        assert ledger.module.tensors == ("real" if values else "meta")
    assert list(map(id, inside(base, held))) == list(map(id, before))
    assert entries[0].equal(torch.ones(8))
    assert model.held is outer
    assert model.more["table"] is table
    assert not hasattr(outer, "unset")
    assert Asked.times == 0


def state_of(value):
    """Its state, in a form that two moments can be compared by."""
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    return pickle.dumps(value)


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (lambda: SimpleNamespace(n=0), lambda one: setattr(one, "n", 1)),
        (lambda: np.zeros(3), lambda one: one.__iadd__(1)),
        (lambda: bytearray(b"ab"), lambda one: one.append(1)),
        (lambda: array("i", [1]), lambda one: one.append(1)),
        (random.Random, lambda one: one.random()),
        (np.random.RandomState, lambda one: one.rand()),
        (lambda: np.random.default_rng(0), lambda one: one.random()),
        (lambda: torch.Generator().manual_seed(0), lambda one: torch.rand(3, generator=one, device="cpu")),
    ],
)
def test_generators_and_buffers_that_a_module_holds_have_their_state_again(made, change):
    model = Call(lambda x: model.map(x) + 0 * (change(model.held) is model))
    model.map, model.held = nn.Linear(8, 8), made()
    before = state_of(model.held)
    xfcost.analyze(model, example_inputs=LEFT_ALONE_X, mixing=False)
    assert state_of(model.held) == before


def test_a_module_on_meta_stays_there():
    model = nn.Linear(8, 8, device="meta")
    xfcost.analyze(model, example_inputs=LEFT_ALONE_X.to("meta"))
    assert all(one.is_meta for one in model.parameters())


def test_the_loss_of_a_gradient_inside_does_not_reach_the_module():
    def force(x):
        with torch.enable_grad():
            energy = model.map(x).sum()
            energy.backward()
        return energy.detach()

    model = Busy()
    model.forward = force
    xfcost.analyze(model, example_inputs=LEFT_ALONE_X, trace=False)
    assert model.map.weight.grad is None


# Caches of a process: what is counted does not depend on what ran before ──────────────────────────────────────────────


def places(tokens: int, device: torch.device) -> Tensor:
    """By three element-wise operations."""
    return (torch.arange(tokens, device=device) / tokens * 2 - 1)[:, None]


def enclosing(function):
    cached = functools.lru_cache(maxsize=4)(function)

    def decorated(*given):
        return cached(*given)

    return decorated


function_places = functools.cache(places)
enclosed_places = enclosing(places)
TABLE: dict[object, Tensor] = {}
NAMED: Tensor | None = None
READY = False


def table_places(tokens: int, device: torch.device) -> Tensor:
    if (tokens, device) not in TABLE:
        TABLE[tokens, device] = places(tokens, device)
    return TABLE[tokens, device]


def name_places(tokens: int, device: torch.device) -> Tensor:
    global NAMED, READY
    if not READY:
        NAMED, READY = places(tokens, device), True
    return NAMED


NAMES = ("function", "enclosed", "table", "name")


class Placed(nn.Module):
    """Adds the places of its tokens, (N, D), which it knows by one of several caches."""

    def __init__(self, how: str):
        super().__init__()
        self.map, self.how = nn.Linear(8, 8), how
        self.attribute = functools.lru_cache(places)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - as users do
    def method(self, tokens: int, device: torch.device) -> Tensor:
        return places(tokens, device)

    @staticmethod
    @functools.cache
    def static(tokens: int, device: torch.device) -> Tensor:
        return places(tokens, device)

    @classmethod
    @functools.cache
    def of_class(cls, tokens: int, device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(found=places(tokens, device))

    @property
    @functools.cache  # noqa: B019 - as users do
    def found(self) -> Tensor:
        return places(4, self.map.weight.device)

    def known(self, x: Tensor) -> Tensor:
        given = (len(x), x.device)
        if self.how in NAMES:
            return globals()[f"{self.how}_places"](*given)
        found = self.found if self.how == "found" else getattr(self, self.how)(*given)
        return getattr(found, "found", found)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x) + self.known(x)


@pytest.mark.parametrize("how", [*NAMES, "method", "static", "of_class", "found", "attribute"])
def test_counts_do_not_depend_on_what_ran_before(how):
    model = Placed(how)
    first, second = (xfcost.analyze(model, example_inputs=LEFT_ALONE_X) for _ in range(2))
    assert [row.path for row in first.rows] == [row.path for row in second.rows]
    assert first.total("flops") == second.total("flops")
    # a run in the user's process keeps real tensors, as there was no analysis
    known = model.known(LEFT_ALONE_X)
    assert known.equal(places(4, known.device))
    if how not in {"table", "name"}:  # what these hold may be constants
        third = xfcost.analyze(model, example_inputs=LEFT_ALONE_X)
        assert third.total("flops") == first.total("flops")
    assert model.known(LEFT_ALONE_X).equal(known)


@pytest.mark.parametrize("how", ["function", "enclosed", "method", "static", "of_class", "found", "attribute"])
def test_counts_do_not_depend_on_the_user_s_runs(how):
    model = Placed(how)
    model.register_buffer("sparse", torch.eye(2).to_sparse())  # it runs on real tensors alone
    model(LEFT_ALONE_X)
    found = xfcost.analyze(model, example_inputs=LEFT_ALONE_X)
    assert found.total("flops") == xfcost.analyze(model, example_inputs=LEFT_ALONE_X).total("flops")


def test_a_cache_without_tensors_is_left_alone():
    times = []

    @functools.cache
    def once(name: str) -> bool:
        return times.append(name) is None

    class Guarded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if once("registered") else x

    xfcost.analyze(Guarded(8, 8), example_inputs=LEFT_ALONE_X)
    assert times == ["registered"]


# Modules that don't run ──────────────────────────────────────────────────────────────────────────────────────────────


class Wrong(nn.Module):
    """Fails where `what` says."""

    def __init__(self, what: str):
        super().__init__()
        self.map, self.what = nn.Linear(8, 8), what

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.what == "raises":
            raise KeyError("lost")
        return self.map(x[:, :7] if self.what == "shape" else x)


def line_of(text):
    lines, first = inspect.getsourcelines(Wrong)
    return first + next(number for number, line in enumerate(lines) if text in line)


def refusal(model, *inputs):
    with pytest.raises(UsageError) as error:
        xfcost.analyze(model, example_inputs=inputs)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("what", "inputs", "line", "reason"),
    [
        ("raises", 2, "raise KeyError", "KeyError: 'lost'"),
        ("shape", 2, "return self.map", "RuntimeError: "),
        ("none", 1, "def forward", "missing 1 required positional argument: 'mask'"),
    ],
)
def test_an_error_is_one_message_with_the_user_s_own_line(device, what, inputs, line, reason):
    message = refusal(Wrong(what).to(device), *[LEFT_ALONE_X.to(device)] * inputs)
    assert reason in message
    assert f"({__file__}:{line_of(line)})" in message


def test_an_error_in_a_lambda_inside_torch_has_the_users_line():
    model = nn.Sequential(nn.Linear(8, 8), Call(lambda x: x.reshape(5)))
    assert f"{__file__}:" in refusal(model, LEFT_ALONE_X)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: nn.Sequential(torch.jit.script(nn.Linear(8, 8))), "0 ("),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "has no shapes yet"),
        (lambda: nn.Linear, "got the class Linear"),
    ],
    ids=["scripted", "lazy", "class"],
)
def test_what_can_not_be_run_is_refused(made, reason):
    assert reason in refusal(made(), LEFT_ALONE_X)


def test_compiled_modules_are_looked_at_uncompiled():
    inner = nn.Linear(8, 8)
    compiled = torch.compile(nn.Sequential(torch.compile(inner), nn.ReLU()))
    in_place = nn.Linear(8, 4)
    in_place.compile()
    ledger = xfcost.analyze(nn.Sequential(compiled, in_place), example_inputs=LEFT_ALONE_X)
    assert [row.path for row in ledger.rows] == ["0.0.addmm", "0.1.relu", "1.addmm"]
    assert [row.path for row in xfcost.analyze(compiled, example_inputs=LEFT_ALONE_X).rows] == ["0.addmm", "1.relu"]
    assert in_place._compiled_call_impl is not None
    assert compiled._orig_mod[0]._orig_mod is inner


class Wrapped(nn.Module):
    """A module whose first layer is the given one."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(*layers)

    def forward(self, x):
        return self.first(x)


FIRST = [
    ((nn.Embedding(5, 8), nn.Linear(8, 2)), "BxN:int64", (1, 16, 2)),
    ((nn.Dropout(), nn.Conv2d(3, 4, 7, stride=2)), "Bx3xHxW", (1, 4, 13, 13)),  # (32 - 7) // 2 + 1 = 13
    ((nn.Conv1d(2, 4, 3),), "Bx2xN", (1, 4, 14)),
    ((nn.Linear(6, 3, dtype=torch.float64),), "BxNx6:float64", (1, 16, 3)),
    ((nn.Flatten(), nn.Linear(6, 3)), "Bx6", (1, 3)),
    ((nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),), "BxNx8", (1, 16, 8)),
    ((nn.TransformerEncoderLayer(8, 2, 16),), "NxBx8", (16, 1, 8)),
    ((nn.LayerNorm(8), nn.Linear(8, 3)), "BxNx8", (1, 16, 3)),
]


@pytest.mark.parametrize(("layers", "text", "output"), FIRST, ids=[one[1] for one in FIRST])
def test_a_module_runs_on_the_input_that_its_first_layer_takes(layers, text, output):
    module = Wrapped(*layers)
    found = supposed_input(module)
    assert found.text == text
    (x,) = found.values(Lengths(16, (32, 32)), "cpu").args
    assert module(x).shape == output


def test_parameters_of_the_whole_are_no_layer():
    module = Wrapped(nn.Conv2d(3, 4, 2))
    module.token = nn.Parameter(torch.zeros(1, 1, 4))
    assert supposed_input(module).text == "Bx3xHxW"


def test_an_input_is_not_supposed_where_the_first_layer_does_not_say_it():
    assert supposed_input(nn.Bilinear(2, 3, 4)) is None  # two inputs
    assert supposed_input(Wrapped(nn.BatchNorm2d(3), nn.Linear(3, 3))) is None  # a kind of any size
    assert supposed_input(Wrapped(nn.ReLU())) is None  # no parameters
    assert supposed_input(Wrapped(nn.LazyLinear(4))) is None  # no width yet


def test_a_module_that_does_not_run_on_a_supposed_input_says_which_it_was():
    # 30 pixels are no usual size; 28 are, and leave 28 - 5 + 1 = 24
    unusual = Wrapped(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.Linear(4 * 26 * 26, 2))
    module = Wrapped(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.Linear(4 * 24 * 24, 2))
    found = xfcost.analyze(module)
    assert found.macs == 4 * 24 * 24 * (3 * 25 + 2)
    assert "it does not run on 224×224, and is counted on 28×28" in found.metadata.notes
    with pytest.raises(UsageError, match=r"no input was given, and 1x3x224x224 was tried.*as in --input 1x3x28x28"):
        xfcost.analyze(unusual)
    with pytest.raises(UsageError, match=r"does not run on these inputs: (?!.*no input was given)"):
        xfcost.analyze(unusual, (1, 3, 20, 20))


def test_a_summary_prints_the_tree_of_modules_on_a_supposed_input(capsys):
    module = Wrapped(nn.Embedding(5, 8), nn.Linear(8, 2))
    ledger = xfcost.summary(module, depth=2)
    assert ledger.total("macs") == 128 * 8 * 2  # N = 128
    assert xfcost.summary(module, N=32).total("macs") == 32 * 8 * 2
    assert xfcost.summary(module, torch.zeros(3, 7, dtype=torch.int64)).total("macs") == 3 * 7 * 8 * 2
    # 5·8 + 8·2 + 2
    assert "58 parameters   2,048 MACs" in capsys.readouterr().out


# Shapes without a dtype, of numbers that are looked up in a table ─────────────────────────────────────────────────────


class ReadsTwo(nn.Module):
    """Looks its first input up, from an offset on, and multiplies its second."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(7, 4), nn.Linear(3, 4)

    def forward(self, ids, x, more=None):
        ids = ids[:, 1:].flatten()
        bags = 0 if more is None else nn.functional.embedding_bag(more + 1, self.table.weight).sum()
        return self.table(ids).sum() + self.linear(x).sum() + bags


@pytest.mark.parametrize(
    ("texts", "dtypes"),
    [
        (["2x5", "4x3"], "int64 float32"),
        (["x=4x3", "ids=2x5"], "float32 int64"),
        (["2x5:int32", "4x3"], "int32 float32"),
        (["2x5", "4x3", "more=2x2:int64"], "int64 float32 int64"),
    ],
)
def test_a_shape_without_a_dtype_is_of_token_ids_where_the_module_looks_it_up(texts, dtypes):
    model = ReadsTwo()
    given = inputs_from(texts, {}, "meta", model)
    assert " ".join(text.rpartition(" ")[2] for text in given.texts(model)) == dtypes
    args, kwargs = inputs_from(texts, {}, "cpu", model)  # it runs as it is
    model(*args, **kwargs)


def test_shapes_in_python_are_of_token_ids_too():
    table = Wrapped(nn.Embedding(7, 4), nn.Linear(4, 2))
    assert xfcost.analyze(table, (3, 5)).metadata.inputs == "x: 3×5 int64"
    assert xfcost.analyze(table, lambda N: (1, N), N=6).total("macs") == 6 * 4 * 2
    expected = "ids: 2×5 int64, x: 4×3 float32"
    assert xfcost.analyze(ReadsTwo(), (2, 5), (4, 3)).metadata.inputs == expected
    compared = xfcost.compare((ReadsTwo(), [(2, 5), (4, 3)]), (table, (3, 5)))
    assert [one.metadata.inputs for one in compared.ledgers] == [expected, "x: 3×5 int64"]


def test_ids_that_an_offset_is_added_to_are_ids():
    offset = Module(lambda self, x: self.table(x + 1), table=nn.Embedding(7, 4))
    assert xfcost.analyze(offset, (2, 3)).metadata.inputs.endswith("2×3 int64")


def test_numbers_that_the_module_makes_whole_itself_stay_as_they_are():
    whole = Module(lambda self, x: self.table(x.long().abs() % 7), table=nn.Embedding(7, 4))
    assert xfcost.analyze(whole, (2, 3)).metadata.inputs.endswith("2×3 float32")


def test_where_token_ids_can_t_be_told_the_error_gives_their_dtype():
    places = Module(lambda self, x: self.rows[x], rows=nn.Parameter(torch.zeros(7, 4)))
    with pytest.raises(UsageError, match="--input 1x512:int64"):
        xfcost.analyze(places, (2, 3))
    with pytest.raises(UsageError, match="--input 1x512:int64"):
        xfcost.analyze(Wrapped(nn.Embedding(7, 4)), torch.zeros(2, 3))


# Training mode ────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_training(module: nn.Module, **options: object) -> list[str]:
    notes = xfcost.analyze(module, example_inputs=torch.zeros(2, 4), **options).metadata.notes
    return [note for note in notes if "in training mode" in note]


def test_a_note_says_that_a_module_is_counted_in_training_mode():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Dropout(0.2))
    (note,) = of_training(module)
    assert "BatchNorm1d, Dropout ×2 " in note
    assert of_training(module.eval()) == []
    assert of_training(module.train(), mode="train") == []
    module[1].eval()
    assert "BatchNorm1d" not in of_training(module)[0]


def test_a_probability_that_a_module_passes_on_is_dropout_too():
    own = Module(lambda self, x: nn.functional.dropout(x, self.dropout, self.training))
    own.dropout = 0.5
    assert "Module" in of_training(own)[0]
    own.dropout = 0.0
    assert of_training(own) == []


def test_layers_that_run_alike_in_both_modes_need_no_note():
    alike = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.BatchNorm1d(4, track_running_stats=False))
    assert of_training(alike) == []


# Sizes of inputs that xfcost finds itself ─────────────────────────────────────────────────────────────────────────────


def test_a_given_module_whose_input_is_found_takes_a_size_and_a_batch():
    image = Wrapped(nn.Conv2d(3, 4, 3))
    assert xfcost.analyze(image, size=9, batch=2).metadata.inputs == "x: 2×3×9×9 float32"
    # a row of 7·7 outputs of each of 2 samples
    assert xfcost.analyze(image, size=9, batch=2).total("macs") == 2 * 7 * 7 * 4 * 3 * 9
    with pytest.raises(UsageError, match="--batch 2"):
        xfcost.analyze(image, torch.zeros(1, 3, 9, 9), batch=2)
