"""The tier that runs, set before any test is collected (conftest.py)."""

chosen = "all"
"""quick, rest or all."""


def runs(*, rest: bool) -> bool:
    """Does a test run in this tier, which is left to `make test-rest` or is not?"""
    return chosen == "all" or rest == (chosen == "rest")


selected = False
"""Do the tests of a selection run, a kind's contract or what a change can reach, and no tier?"""

spec: str | None = None
"""The path of the one spec whose contract runs (`--spec`), in place of presets and of the examples of mechanisms."""
