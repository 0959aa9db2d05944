"""`HEAD~1:specs/x.yaml`: a file at a git revision, recognised by its text."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from xfcost.ledger.errors import UsageError, printable

_FILE: Final = re.compile(r".+\.(ya?ml|json|jsonl)\Z", re.DOTALL | re.IGNORECASE)
# model.py:Net, package.module:Net
_CODE: Final = re.compile(r"(?P<place>.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d][\w.]*)\Z", re.DOTALL)


class Revised(NamedTuple):
    """A target at a revision."""

    revision: str
    target: str
    """As it stands behind the revision: a path from the top of the repository, or `./` from here; or code."""

    @property
    def text(self) -> str:
        """As it was given."""
        return f"{self.revision}:{self.target}"

    @property
    def path(self) -> str:
        """The file of the target; of `package.module:Net` the path of the module without its ending."""
        code = _CODE.match(self.target)
        if code is None:
            return self.target
        place = code["place"]
        return place if place.endswith(".py") else place.replace(".", "/")

    @property
    def is_code(self) -> bool:
        """Does it name a torch module, whose code is executed?"""
        return _CODE.match(self.target) is not None


def revised(text: str) -> Revised | None:
    """The revision and the target in `text`; None where it names no revision: a file, a preset, `model.py:Net`.

    Raises:
        UsageError: a revision of something that has none, or without a file.
    """
    revision, colon, target = text.partition(":")
    if not colon or os.path.exists(text):
        return None
    if _FILE.match(target) or _CODE.match(target):
        if not revision:
            raise UsageError(f"{printable(text, 200)}: expected a revision before the colon, as in HEAD{text}")
        return Revised(revision, target)
    if (
        revision != "HEAD"
        and re.fullmatch(r"[^\W\d][\w.]*\Z", target)
        and (revision.endswith(".py") or re.fullmatch(r"[\w.]+", revision))
    ):
        return None  # model.py:Net
    raise UsageError(
        f"{printable(text, 200)}: expected a file at a revision, as in HEAD~1:spec.yaml or main:model.py:build"
        " (a preset belongs to xfcost, and has no revisions)"
    )
