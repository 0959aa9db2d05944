"""What a module runs elsewhere or later: in threads, in branches, in generators. It is counted, or named."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import xfcost
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model import run as runs

X = torch.ones(2, 4)
# 2 rows of 4·4 products
MAP = 2 * 16


class Runs(nn.Module):
    """A map, and what `function` does with it."""

    def __init__(self, function):
        super().__init__()
        self.map, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor):
        return self.function(self.map, x)


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
    ledger = xfcost.analyze(Runs(function), example_inputs=X, trace=False, strict=True)
    assert ledger.total("macs") == macs
    assert next(row.component for row in ledger.rows if row.params) == "map"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # its thread runs before
        yield pool


def test_a_pool_that_was_there_before(pool):
    def function(given, x):
        return pool.submit(given, x)

    ledger = xfcost.analyze(Runs(function), example_inputs=X, trace=False, strict=True)
    assert ledger.total("macs") == MAP


def test_a_pool_out_of_sight_is_named(pool):
    # its `submit` was looked up before the run
    assert xfcost.analyze(Runs(pool.submit), example_inputs=X, trace=False).module.uncounted == {
        "map in another thread": 1
    }


def test_training_names_what_threads_save(pool):
    module = Runs(lambda given, x: pool.submit(given, x).result())
    ledger = xfcost.analyze(module, example_inputs=X, trace=False, mode="train")
    assert (ledger.total("macs"), ledger.total("backward_macs")) == (MAP, MAP)
    assert ledger.module.uncounted == {"saved activations of another thread": 1}


def test_attention_in_two_threads_leaves_torch_as_it_was():
    before = nn.functional.has_torch_function

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Tensor):
            return in_workers(lambda x: self.attention(x, x, x)[0], x)

    ledger = xfcost.analyze(Two(), example_inputs=X[None], trace=False)
    assert ledger.total("macs") == 3 * (2 * 4 * 16 + 2 * 2 * 2 * 4)
    assert nn.functional.has_torch_function is before
    assert threading.Thread.start.__module__ == "threading"


def test_a_generator_without_an_end_is_named(monkeypatch):
    monkeypatch.setattr(runs, "MOST_ITEMS", 5)

    def endless(given, x):
        while True:
            yield given(x)

    ledger = xfcost.analyze(Runs(endless), example_inputs=X, trace=False)
    assert ledger.module.uncounted == {"a generator after 5 items": 1}
    assert ledger.total("macs") >= 5 * MAP


def test_an_asynchronous_forward_is_refused():
    async def later(given, x):
        await asyncio.sleep(0)
        return given(x)

    with pytest.raises(UsageError, match="its forward is asynchronous"):
        xfcost.analyze(Runs(later), example_inputs=X, trace=False)


def test_a_branch_counts_as_it_is_taken():
    def function(given, x):
        return torch.cond(x.sum() > 0, lambda v: given(given(v)), given, (x,))

    ledger = xfcost.analyze(Runs(function), example_inputs=X, trace=False, strict=True)
    assert (ledger.total("macs"), ledger.module.tensors) == (2 * MAP, "real")
    assert xfcost.analyze(Runs(function), example_inputs=-X, trace=False).total("macs") == MAP


def test_every_turn_of_a_loop_counts():
    from torch._higher_order_ops.while_loop import while_loop

    def function(given, x):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, given(v)), (torch.tensor(0), x))[1]

    assert xfcost.analyze(Runs(function), example_inputs=X, trace=False, strict=True).total("macs") == 3 * MAP
