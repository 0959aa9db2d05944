"""Before any test: torch works with one thread, for the tests themselves run side by side on all cores.

And the tiers: `--tier quick` leaves out what is marked `rest`, `--tier rest` runs that alone.
"""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

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

    parser.addoption("--kind", help="the contract of one kind of mechanism or layer, as in --kind sliding")
    parser.addoption("--spec", help="the contract of the model in a YAML file and of its mixers, at their places in it")


def pytest_configure(config: pytest.Config) -> None:
    tier.spec = config.getoption("--spec")
    if tier.spec is not None:
        from xfcost.ledger.errors import XfcostError
        from xfcost.spec.load import load
        from xfcost.spec.placement import place
        from xfcost.spec.run import Run

        try:
            place(load(tier.spec), Run())
        except XfcostError as error:
            raise pytest.UsageError(str(error)) from None
    # which cases of a kind run is chosen when all are collected
    tier.chosen = "all" if config.getoption("--kind") or tier.spec else config.getoption("--tier")


# The files that `--kind` runs beside those of the kind itself, cheapest first.
CONTRACT: Final = (
    "test_grammar.py", "test_orders.py", "test_closed_forms.py", "test_every_layer.py", "test_every_mechanism.py",
    "test_references.py", "test_sizes.py", "test_probe_small.py", "test_every_mechanism_learns.py", "test_decoding.py",
    "test_saved_activations.py", "test_attention_matrices.py", "test_special_tokens.py", "test_training.py",
    "test_probe_command.py", "test_presets.py",
)  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--kind` and `--spec`, files that can't concern it are not imported."""
    kind = config.getoption("--kind")
    if not (kind or tier.spec) or collection_path.suffix != ".py" or collection_path.name in CONTRACT:
        return None
    names = re.search(r"^KINDS = (.*)$", collection_path.read_text(encoding="utf-8"), re.MULTILINE)
    return None if collection_path.stem == f"test_{kind}" or (names and f'"{kind}"' in names[1]) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thinned(items)
    kind, quick = config.getoption("--kind"), config.getoption("--tier") == "quick"
    if tier.spec is not None:
        chosen = in_order([item for item in items if of_spec(item)], quick=False)
    elif kind is not None:
        chosen = in_order([item for item in items if of_kind(item, kind)], quick=quick)
        if not chosen:
            raise pytest.UsageError(f"--kind {kind}: expected a kind of src/xfcost/mechanisms or layers")
    else:
        chosen = [item for item in items if tier.runs(rest=left_to_rest(item))]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen


def left_to_rest(item: pytest.Item) -> bool:
    return item.get_closest_marker("rest") is not None


def in_order(items: list[pytest.Item], *, quick: bool) -> list[pytest.Item]:
    """The tests of a kind, cheapest files first; `quick`: of a test whose every case is left to the rest, one."""
    cases = defaultdict(list)
    for item in items:
        cases[item.path.name, getattr(item, "originalname", item.name)].append(item)
    if quick:
        cases = {test: [one for one in found if not left_to_rest(one)] or found[:1] for test, found in cases.items()}
    # the kind's own files come where the contract begins to build whole models
    rank = {name: number for number, name in enumerate(CONTRACT)}
    files = sorted(cases, key=lambda test: rank.get(test[0], rank["test_decoding.py"]))
    return [item for test in files for item in cases[test]]


def parameters_of(item: pytest.Item) -> list[object]:
    found = getattr(item, "callspec", None)
    return list(found.params.values()) if found else []


def of_spec(item: pytest.Item) -> bool:
    """Is the test parametrized by the spec, or by one of its mixers at its place?"""
    from cases.base import Case

    return any(value == tier.spec or isinstance(value, Case) for value in parameters_of(item))


def of_kind(item: pytest.Item, kind: str) -> bool:
    """Does a test concern the kind: by its file's name or its `KINDS`, or by a parameter that is of it?"""
    kinds = getattr(getattr(item, "module", None), "KINDS", ())
    return (
        item.path.stem == f"test_{kind}" or kind in kinds or any(concerns(value, kind) for value in parameters_of(item))
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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure of a kind's contract names the files to open: its formulas, its module, its cases."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        found = [component for value in parameters_of(item) for component in components(value)]
        report.sections += [("files of the kind", files_of(type(one))) for one in found[:1]]


def components(value: object) -> list[object]:
    """The mechanisms and layers that a parameter is or holds."""
    if hasattr(type(value), "__struct_config__"):
        return [value]
    return [one for held in (value if isinstance(value, tuple | list) else ()) for one in components(held)]


def files_of(component: type) -> str:
    """Where its formulas and its module are written, a line each."""
    import inspect

    from xfcost.torch_models.modules import MODULES

    places = [component, *([MODULES[component]] if component in MODULES else [])]
    root = Path(__file__).resolve().parent.parent
    return "\n".join(
        f"{Path(inspect.getsourcefile(one) or '').relative_to(root)}:{inspect.getsourcelines(one)[1]} {one.__name__}"
        for one in places
    )


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
