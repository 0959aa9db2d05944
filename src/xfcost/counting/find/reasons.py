"""Errors that differ in numbers alone are one reason, in the words of the first."""

from __future__ import annotations

import re
from typing import Final

_NUMBERS: Final = re.compile(r"\d[\d,.]*(?:[ ×x,]+\d[\d,.]*)*(?:, …)?")


class ReasonNumbers:
    """Numbers of reasons, in the order in which they came up; 0 is none."""

    def __init__(self) -> None:
        self.texts = [""]
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of the reason that `text` is, or is like."""
        if text is None:
            return 0
        number = self._numbers.setdefault(_NUMBERS.sub("#", text), len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number
