"""What a change can reach: the tests that `pytest --changed` runs, and so `make test`.

A change is what differs from the branch that is pulled from: commits, and files of the working tree. Of a file with
kinds the contract of these kinds runs (`conftest.CONTRACT`); of another module the test files that import it, or what
imports it; of any other file the test files that name it. A clean tree, and a file that no test names, run everything.
"""

import ast
import functools
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import pytest

import xfcost
from durations import name_of
from xfcost.cli import COMMANDS
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.load import preset_files

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ROOT / "tests"
# What a test runs that starts commands, or calls the API by its public names: modules that are looked up by name.
_BY_NAME: Final = {
    "preloaded": {f"xfcost.questions.{module}" for module in COMMANDS.values()} | {"xfcost.cli"},
    "xfcost": set(xfcost._MODULES.values()),
}


# The files that hold a kind to its declarations beside its own (`KINDS`), cheapest first.
CONTRACT: Final = (
    "test_grammar.py", "test_written.py", "test_flags.py", "test_orders.py", "test_closed_forms.py",
    "test_every_layer.py", "test_every_mechanism.py", "test_references.py", "test_sizes.py", "test_probe_small.py",
    "test_every_mechanism_learns.py", "test_decoding.py", "test_saved_activations.py", "test_attention_matrices.py",
    "test_special_tokens.py", "test_training.py", "test_probe_command.py", "test_presets.py",
)  # fmt: skip
_OF_FOLDERS: Final = {"docs/": "test_docs", "specs/": "test_presets", "tests/golden/": "test_golden"}


class Selection(NamedTuple):
    """Kinds whose contract runs, test files that run whole, and the spec that is held to the contract."""

    kinds: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    spec: str | None = None

    def collects(self, path: Path) -> bool:
        """Can a test file hold a chosen test?"""
        if path.name in self.files:
            return True
        if path.name in CONTRACT:
            return bool(self.kinds or self.spec)
        named = re.search(r"^KINDS = (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return any(path.stem == f"test_{kind}" or (named and f'"{kind}"' in named[1]) for kind in self.kinds)

    def holds(self, module: ModuleType, values: Iterable[object]) -> bool:
        """Is a case chosen, a test of this module with these values?"""
        values = list(values)
        if self.spec is not None:
            return of_spec(values, self.spec)
        return Path(module.__file__ or "").name in self.files or any(
            of_kind(module, values, kind) for kind in self.kinds
        )

    def of(self, items: list[pytest.Item], *, quick: bool) -> list[pytest.Item]:
        """The chosen tests: those of the spec or of the kinds, cheapest files first, then those of the files."""
        if self.spec is not None:
            return in_order([item for item in items if of_spec(parameters_of(item), self.spec)], quick=False)
        of_kinds = in_order(
            [item for item in items if any(of_kind(item.module, parameters_of(item), kind) for kind in self.kinds)],
            quick=quick,
        )
        of_files = [one for one in items if one.path.name in self.files and not (quick and left_to_rest(one))]
        return list(dict.fromkeys([*of_kinds, *of_files]))


def left_to_rest(item: pytest.Item) -> bool:
    """Is it a test that `make test` leaves to `make test-rest`?"""
    return item.get_closest_marker("rest") is not None


def in_order(items: list[pytest.Item], *, quick: bool) -> list[pytest.Item]:
    """The tests of a kind, cheapest files first; `quick`: of a test whose every case is left to the rest, one."""
    cases = defaultdict(list)
    for item in items:
        cases[name_of(item)].append(item)
    if quick:
        cases = {test: [one for one in found if not left_to_rest(one)] or found[:1] for test, found in cases.items()}
    # the kind's own files come where the contract begins to build whole models
    rank = {name: number for number, name in enumerate(CONTRACT)}
    files = sorted(cases, key=lambda test: rank.get(test.partition("::")[0], rank["test_decoding.py"]))
    return [item for test in files for item in cases[test]]


def parameters_of(item: pytest.Item) -> list[object]:
    found = getattr(item, "callspec", None)
    return list(found.params.values()) if found else []


def of_spec(values: Iterable[object], spec: str) -> bool:
    """Is a test with these values one of the spec, or of one of its mixers at its place?"""
    from cases.base import Case

    return any(value == spec or isinstance(value, Case) for value in values)


def of_kind(module: ModuleType, values: Iterable[object], kind: str) -> bool:
    """Does a test concern the kind: by its module's name or its `KINDS`, or by a value that is of it?"""
    named = module.__name__ == f"test_{kind}" or kind in getattr(module, "KINDS", ())
    return named or any(concerns(value, kind) for value in values)


def concerns(value: object, kind: str) -> bool:
    """Is it a component of the kind, its class or name, a preset with one in its file, or what holds one of these?"""
    if isinstance(value, str):
        file = preset_files().get(value)
        return value == kind or (file is not None and bool(re.search(rf"\bkind: *{kind}\b", file.read_text("utf-8"))))
    if getattr(getattr(value, "__struct_config__", None), "tag", None) == kind:
        return True
    inside = value if isinstance(value, tuple | list) else [getattr(value, "component", None)]
    return any(concerns(one, kind) for one in inside if one is not None)


def selected() -> Selection | None:
    """The tests that the change reaches; None for all of them."""
    return selection(changed_files())


def selection(changed: Iterable[str]) -> Selection | None:
    """The tests that changed files reach, given as paths below the root; None for all of them."""
    files: set[str] = set()
    modules: set[str] = set()
    for path in changed:
        file, name = Path(path), path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if name.startswith("src.xfcost") and file.suffix == ".py":
            modules |= {name.removeprefix("src."), *downstream(name.removeprefix("src."))}
            continue
        if name.startswith("tests.") and file.suffix == ".py":
            reached = {test for test in modules_of_tests() if name.removeprefix("tests.") in {test} | imports_of(test)}
        else:
            reached = {test for test in modules_of_tests() if file.name in (TESTS / f"{test}.py").read_text("utf-8")}
            reached |= {test for folder, test in _OF_FOLDERS.items() if path.startswith(folder)}
        if path in ("pyproject.toml", "constraints.txt", "tests/conftest.py") or not reached:
            return None
        files |= reached
    of_file = kinds_of_files()
    kinds = {kind for module in modules for kind in of_file.get(module, ())}
    others = modules - of_file.keys()
    files |= {test for test in modules_of_tests() if others & imports_of(test)}
    return Selection(frozenset(kinds), frozenset(f"{test}.py" for test in files)) if kinds or files else None


def changed_files() -> list[str]:
    """Files that differ from the last commit in common with the branch that is pulled from; from HEAD without one."""
    base = _git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    return _git("diff", "--name-only", base[0]) + _git("ls-files", "--others", "--exclude-standard")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


@functools.cache
def kinds_of_files() -> dict[str, set[str]]:
    """Module -> the kinds whose programs it holds."""
    found: dict[str, set[str]] = {}
    for kinds in (MECHANISMS, EMBEDS, ENTERS, HEADS, SUBLAYERS):
        for kind, name in kinds.names.items():
            found.setdefault(f"{kinds.package}.{name.partition(':')[0]}", set()).add(kind)
    return found


@functools.cache
def downstream(module: str) -> frozenset[str]:
    """The modules that import it, and those that import these."""
    graph = _graph()
    return frozenset(graph.find_downstream_modules(module)) if module in graph.modules else frozenset()


@functools.cache
def _graph():
    import grimp

    return grimp.build_graph("xfcost", cache_dir=None)


@functools.cache
def modules_of_tests() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in TESTS.glob("test_*.py")))


@functools.cache
def imports_of(test: str) -> frozenset[str]:
    """Modules that a file of tests imports, or a file of tests or tools that it imports."""
    found: set[str] = set()
    left = [test]
    while left:
        name = left.pop()
        file = name.replace(".", "/")
        for path in (TESTS / f"{file}.py", TESTS / file / "__init__.py", ROOT / "tools" / f"{file}.py"):
            new = _imported(path) - found if path.is_file() else frozenset()
            found |= new
            left += [one for one in new if not one.startswith("xfcost")]
    return frozenset(found.union(*(_BY_NAME[name] for name in found & _BY_NAME.keys())))


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)
