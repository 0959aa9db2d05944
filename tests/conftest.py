"""Before any test: torch works with one thread, for the tests themselves run side by side on all cores.

And the tiers: `--tier quick` leaves out what is marked `rest`, `--tier rest` runs that alone.
"""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tier
from slow_tests import thinned

if TYPE_CHECKING:
    from xfcost.ledger.runs_file import RunsFile

# read by torch as it is imported, here and in the commands that tests run
os.environ.setdefault("OMP_NUM_THREADS", "1")

# a shell starts what runs in its background without Ctrl-C, and every command of a test would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("quick", "rest", "all"),
        default="all",
        help="quick: a covering choice of every contract; rest: what that leaves out; all (default): both",
    )

    parser.addoption("--kind", help="only what concerns one kind of mechanism or layer, as in --kind sliding")


def pytest_configure(config: pytest.Config) -> None:
    tier.chosen = config.getoption("--tier")


def in_tier(item: pytest.Item) -> bool:
    """Does this tier run this test?"""
    return tier.runs(rest=item.get_closest_marker("rest") is not None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thinned(items)
    kind = config.getoption("--kind")
    chosen = [item for item in items if in_tier(item) and (kind is None or of_kind(item, kind))]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    if kind is not None and not chosen:
        raise pytest.UsageError(f"--kind {kind}: expected a kind of src/xfcost/mechanisms or layers that tests concern")
    items[:] = chosen


def of_kind(item: pytest.Item, kind: str) -> bool:
    """Does a test concern the kind: by its file's name or its `KINDS`, or by a parameter that is of it?"""
    parameters = getattr(item, "callspec", None)
    kinds = getattr(getattr(item, "module", None), "KINDS", ())
    return (
        item.path.stem == f"test_{kind}"
        or kind in kinds
        or any(concerns(value, kind) for value in (parameters.params.values() if parameters else ()))
    )


def concerns(value: object, kind: str) -> bool:
    """Is it a component of the kind, its class or name, a preset with one in its file, or what holds one of these?"""
    from xfcost.spec.load import preset_files

    if isinstance(value, str):
        file = preset_files().get(value)
        return value == kind or (file is not None and bool(re.search(rf"\bkind: *{kind}\b", file.read_text("utf-8"))))
    if getattr(getattr(value, "__struct_config__", None), "tag", None) == kind:
        return True
    inside = value if isinstance(value, tuple | list) else [getattr(value, "component", None)]
    return any(concerns(one, kind) for one in inside if one is not None)


def pytest_collection_finish() -> None:
    """No test makes garbage of what was collected: the garbage collector need not look through it again and again."""
    gc.freeze()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Dask cluster with two workers in processes of their own; one that is killed is started again."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs="CRITICAL"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, so that files have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RunsFile]:
    """An empty runs file."""
    from measured import HEADER
    from xfcost.ledger.runs_file import RunsFile

    with closing(RunsFile(tmp_path / "runs.jsonl", HEADER, lambda text: None)) as found:
        yield found
