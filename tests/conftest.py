"""Before any test: torch works with one thread, for the tests themselves run side by side on all cores.

And the tiers: `--tier quick` leaves out what is marked `rest`, `--tier rest` runs that alone.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import durations
import tier
from selection import Selection, left_to_rest, parameters_of, selected
from xfcost.__main__ import OBJECTS

if TYPE_CHECKING:
    from xfcost.ledger.runs_file import RunsFile

# the modules of tools/ that tests import
sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

# as in a command; to collect tests makes as little garbage
gc.set_threshold(OBJECTS)

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

    parser.addoption(
        "--changed",
        action="store_true",
        help="tests that the change can reach (tests/selection.py); all with CI set",
    )
    parser.addoption("--rewrite-golden", action="store_true", help="write the answers of tests/golden again")
    parser.addoption("--record-durations", action="store_true", help="write tests/data/durations.json")
    parser.addoption("--kind", help="the contract of one kind of mechanism or layer, as in --kind sliding")
    parser.addoption("--spec", help="the contract of the model in a YAML file and of its mixers, at their places in it")


CHOSEN: Final = pytest.StashKey[Selection | None]()
RECORDED: Final = durations.recorded()


def pytest_configure(config: pytest.Config) -> None:
    kind, spec = config.getoption("--kind"), config.getoption("--spec")
    if spec is not None:
        tier.spec = checked(spec)
    chosen = Selection(frozenset({kind} if kind else ()), spec=spec) if kind or spec else None
    if chosen is None and config.getoption("--changed") and not os.environ.get("CI"):
        chosen = selected()
    config.stash[CHOSEN] = chosen
    # the cases of a selection are chosen when all are collected
    tier.selected = chosen is not None
    tier.chosen = "all" if tier.selected else config.getoption("--tier")


def checked(spec: str) -> str:
    """The path of a spec that can be loaded."""
    from xfcost.ledger.errors import XfcostError
    from xfcost.spec.load import load
    from xfcost.spec.placement import place
    from xfcost.spec.run import Run

    try:
        place(load(spec), Run())
    except XfcostError as error:
        raise pytest.UsageError(str(error)) from None
    return spec


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that hold no test of the selection are not imported."""
    chosen = config.stash[CHOSEN]
    tests = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if chosen is not None and tests and not chosen.collects(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Mark as `rest` the cases of slow tests that do not fit into the quick tier; no case of another tier is made."""
    yield
    chosen, test, cases = metafunc.config.stash[CHOSEN], metafunc.definition, metafunc._calls
    part = chosen is not None or any(".py" in word for word in metafunc.config.args)
    marked = left_to_rest(test)
    known = [case.id for case in cases if all(mark.name != "rest" for mark in case.marks)] if cases else [""]
    fit = durations.that_fit(
        durations.name_of(test), known, RECORDED, durations.IN_PART if part else durations.IN_QUICK
    )
    if not cases and not fit:
        pytest.mark.rest(metafunc.function)
    kept = []
    for case in cases:
        rest = marked or case.id not in fit
        if rest:
            case.marks.append(pytest.mark.rest.mark)
        if tier.runs(rest=rest) if chosen is None else chosen.holds(metafunc.module, case.params.values()):
            kept.append(case)
    # without any the test would be made once, without its parameters
    metafunc._calls[:] = kept or cases[:1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen, quick = config.stash[CHOSEN], config.getoption("--tier") == "quick"
    kept = (
        [one for one in items if tier.runs(rest=left_to_rest(one))] if chosen is None else chosen.of(items, quick=quick)
    )
    if not kept and config.getoption("--kind"):
        raise pytest.UsageError(
            f"--kind {config.getoption('--kind')}: expected a kind of src/xfcost/mechanisms or layers"
        )
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure the CPU seconds of a test; its last report carries them to the process that writes them.

    What is kept of programs does not outlive a test that changes them.
    """
    item.stash[STARTED] = durations.seconds()
    changes = "monkeypatch" in getattr(item, "fixturenames", ())
    if changes:
        forget_programs()
    yield
    if changes:
        forget_programs()


def forget_programs() -> None:
    keep = {"program.residual": "kept_rows", "spec.checks": "check_decoding", "questions.find.costs": "_part_costs"}
    for file, name in keep.items():
        if (module := sys.modules.get(f"xfcost.{file}")) is not None:
            getattr(module, name).cache_clear()


STARTED: Final = pytest.StashKey[float]()
MEASURED: Final[list[tuple[str, float]]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    MEASURED.extend(value for name, value in report.user_properties if name == "seconds" and report.when == "teardown")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--record-durations") and not hasattr(session.config, "workerinput"):
        durations.write(MEASURED)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure of a kind's contract names the files to open: its formulas, its module, its cases."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "teardown":
        report.user_properties.append(
            ("seconds", (durations.timed_as(item), durations.seconds() - item.stash[STARTED]))
        )
    if report.failed:
        found = [component for value in parameters_of(item) for component in components(value)]
        report.sections += [("files of the kind", files_of(one)) for one in found[:1]]


def components(value: object) -> list[type]:
    """The kinds of the mechanisms and layers that a parameter is or holds; a kind may itself be the parameter."""
    kind = value if isinstance(value, type) else type(value)
    if hasattr(kind, "__struct_config__"):
        return [kind]
    return [one for held in (value if isinstance(value, tuple | list) else ()) for one in components(held)]


def files_of(component: type) -> str:
    """Where its program is written."""
    import inspect

    file = Path(inspect.getsourcefile(component) or "").relative_to(Path(__file__).resolve().parent.parent)
    return f"{file}:{inspect.getsourcelines(component)[1]} {component.__name__}"


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
