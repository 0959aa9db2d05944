"""What the tests of the command line share."""

from __future__ import annotations

import os
import sys
from typing import Final

import preloaded

# What changes how a command looks, wherever the tests run.
_LOOKS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")


# The run options of float32 and eager attention, for tests whose figures are theirs.
PLAIN: Final = {"dtype": "float32", "attention": "eager"}


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what changes the looks, and with `more`."""
    return (
        {name: value for name, value in os.environ.items() if name not in _LOOKS} | {"PYTHONIOENCODING": "utf-8"} | more
    )


def words_of(*words):
    """The command line of `xfcost WORDS`."""
    return [sys.executable, "-m", "xfcost", *map(str, words)]


def xf(*words, cwd=None, **more):
    """`xfcost WORDS`, run to its end, with `more` in the environment."""
    return preloaded.run([*map(str, words)], cwd, environment(**more))
