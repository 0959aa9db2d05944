"""Plants errors in xfcost, one at a time, and checks that tests catch each of them: `python tools/plant_errors.py`.

`planted_errors.yaml` lists the errors: a file, the text to replace, its replacement, and tests. Their quick tier runs,
and their rest tier where the quick one catches nothing; `--tier` chooses one. Each error is planted in a copy of the
tree. The table lists the test that caught each error, and its tier; an uncaught error ends with exit code 1.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from typing import Final, NamedTuple

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = Path(__file__).with_name("planted_errors.yaml")
# Files that the tests need.
_COPIED: Final = ("src", "specs", "tests", "tools", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
_FIRST_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
# pytest ends with 5 where a tier has none of the tests, with others where it could not collect or run them.
_TESTS_FAILED: Final = 1
_NO_TESTS: Final = 5
_TIERS: Final = ("quick", "rest")


class Edit(NamedTuple):
    """Replaces `old`, which occurs exactly once in `file`, by `new`."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The file's text with the edit made.

        Raises:
            ValueError: `old` doesn't occur exactly once, or equals `new`.
        """
        times = text.count(self.old)
        if times != 1 or self.old == self.new:
            raise ValueError(f"expected {self.old!r} once in {self.file}, and another text; found {times}")
        return text.replace(self.old, self.new)


class Planted(NamedTuple):
    """One error: its edits, and the tests to run, as words of pytest's command line."""

    kind: str
    what: str
    edits: tuple[Edit, ...]
    tests: str

    def planted(self, tree: Path) -> dict[str, str]:
        """The new texts of the changed files of `tree`.

        Raises:
            ValueError: an edit fails.
        """
        texts: dict[str, str] = {}
        for edit in self.edits:
            before = texts.get(edit.file) or (tree / edit.file).read_text(encoding="utf-8")
            texts[edit.file] = edit.applied(before)
        return texts


def planted_errors() -> list[Planted]:
    """The errors of `planted_errors.yaml`."""
    entries = msgspec.yaml.decode(LIST.read_bytes())
    return [_planted(**entry) for entry in entries]


def _planted(kind: str, what: str, tests: str, edits: Iterable[dict[str, str]] = (), **single: str) -> Planted:
    """An entry of the list; `single` is the one edit of an entry without `edits`."""
    return Planted(kind, what, tuple(Edit(**edit) for edit in edits or [single]), tests)


def caught_by(error: Planted, tree: Path, tier: str) -> str | None:
    """The first test of a tier that fails with the error planted in `tree`, a copy; None if all pass, or it has none.

    Raises:
        RuntimeError: pytest could not collect or run the tests, or named none that failed.
    """
    texts = error.planted(tree)
    before = {file: (tree / file).read_text(encoding="utf-8") for file in texts}
    _write(tree, texts)
    try:
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tier", tier]
        words += shlex.split(error.tests)
        # compiled files of this run would be reused by the next where second and size are the same: write none
        variables = {
            "PYTHONPATH": str(tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "true",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            words, cwd=tree, env=os.environ | variables, capture_output=True, encoding="utf-8", check=False
        )
    finally:
        _write(tree, before)
    if done.returncode in (0, _NO_TESTS):
        return None
    failure = _FIRST_FAILURE.search(done.stdout)
    if failure is None or done.returncode != _TESTS_FAILED:
        raise RuntimeError(f"{error.what}: pytest {error.tests} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return failure[1]


def _write(tree: Path, texts: dict[str, str]) -> None:
    for file, text in texts.items():
        (tree / file).write_text(text, encoding="utf-8")


def copied_tree(folder: Path) -> Path:
    """Copy the files that the tests need; compiled ones are used where they were made of the same text."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return folder


def run(errors: Iterable[Planted], workers: int, tiers: Sequence[str]) -> int:
    """Plant all of `errors`, print the table, and return how many no test caught."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="xfcost-planted.") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            trees.put(copied_tree(Path(folder, str(number))))

        def plant(error: Planted) -> tuple[Planted, str | None, str]:
            tree = trees.get()
            try:
                caught = ((caught_by(error, tree, tier), tier) for tier in tiers)
                return error, next((f"{test} ({tier})" for test, tier in caught if test), None), "**not caught**"
            except (RuntimeError, ValueError) as unusable:
                print(unusable, file=sys.stderr, flush=True)
                return error, None, "**could not be tried**"
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            for error, test, otherwise in pool.map(plant, errors):
                missed += test is None
                print(f"| {error.kind} | {error.what} | {test or otherwise} |", flush=True)
    return missed


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only errors whose kind, file or text holds one of these words")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tier", choices=(*_TIERS, "all"))
    options = parser.parse_args()
    errors = [
        error for error in planted_errors() if not options.words or any(word in str(error) for word in options.words)
    ]
    print("| kind | error | caught by |\n|---|---|---|")
    missed = run(errors, options.workers, (options.tier,) if options.tier else _TIERS)
    print(f"\n{len(errors) - missed} of {len(errors)} caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
