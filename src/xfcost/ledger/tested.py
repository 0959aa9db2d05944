"""The releases of libraries that the tests were run with: the one place that records them.

`tools/test_versions.py` makes environments of the oldest and of the newest. A release that passes there is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple


class Releases(NamedTuple):
    """The oldest and the newest release of a library that passed."""

    oldest: str
    newest: str

    @property
    def text(self) -> str:
        """`4.57 to 5.24`."""
        return " to ".join(dict.fromkeys(one.removesuffix(".0") for one in self))


TESTED: Final = {
    "distributed": Releases("2024.8.0", "2026.8.0"),
    "fvcore": Releases("0.1.5.post20221221", "0.1.5.post20221221"),
    "gguf": Releases("0.19.0", "0.19.0"),
    "huggingface_hub": Releases("0.34.0", "2.4.0"),
    "jinja2": Releases("3.1.0", "3.1.6"),
    "joblib": Releases("1.3.0", "1.6.0"),
    "matplotlib": Releases("3.7.0", "3.11.2"),
    "msgspec": Releases("0.19.0", "0.23.0"),
    "onnx": Releases("1.18.0", "1.23.2"),
    "packaging": Releases("23.0", "26.4"),
    "pandas": Releases("2.0.0", "3.1.1"),
    "psutil": Releases("5.9.0", "7.2.2"),
    "pyyaml": Releases("6.0", "6.0.4"),
    "rich": Releases("13.7.0", "15.0.0"),
    "tabulate": Releases("0.9.0", "0.10.0"),
    "torch": Releases("2.11.0", "2.14.1"),
    "transformers": Releases("4.57.0", "5.24.0"),
    "typer": Releases("0.20.0", "0.29.2"),
}


class LibraryName(NamedTuple):
    """A name of a library that is private, or that changes from release to release."""

    without: str
    """What xfcost does, or can't do, without it."""
    seen_in: str = ""
    """A class that has it: a parameter of its forward, a field of a config, an attribute."""
    since: str = ""
    """The oldest of the tested releases that has it …"""
    until: str = ""
    """… and the newest one."""


def names_of(library: str) -> Callable[..., LibraryName]:
    """Makes names that every tested release of a library has, unless the entry says otherwise."""
    oldest, newest = TESTED[library]
    return partial(LibraryName, since=oldest, until=newest)


def untested(library: str, release: str) -> str | None:
    """`not tested (tested: 4.57 to 5.24)` of a release outside what is recorded; None of one inside."""
    from packaging.version import Version

    if library not in TESTED:
        return None
    oldest, newest, here = ((one.release, one.post or 0) for one in map(Version, (*TESTED[library], release)))
    return None if oldest <= here <= newest else f"not tested (tested: {TESTED[library].text})"
