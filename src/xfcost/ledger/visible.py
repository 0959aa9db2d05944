"""Text of other people as it may be shown: nothing in it that a terminal, a spreadsheet or a page would obey.

A spec can say anything. What reaches a terminal passes `visible`; every other form has its own escapes beside it.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Spreadsheets read a cell that starts with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN: Final = {"\\": "\\\\", "|": r"\|", "<": "&lt;", ">": "&gt;", "](": r"]\("}


def visible(text: str) -> str:
    r"""`text` with control characters, overrides of the reading direction and their like written out, as `\x1b`.

    Line ends stay, and so do spaces of any kind.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """The same, with line ends as spaces."""
    return visible(" ".join(text.split("\n")))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004


def json_visible(text: str) -> str:
    """JSON text with the same characters as JSON's own escapes: it says what it said."""
    return "".join(map(_json_shown, text)) if visible(text) != text else text


def _json_shown(character: str) -> str:
    if _shown(character) == character:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def csv_cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would run starts with an apostrophe; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    return visible("'" + value if value.startswith(_FORMULA) else value)


def markdown(text: str) -> str:
    """`text` inside a line or a cell of Markdown: no cell ends in it, no tag begins, no link is made."""
    text = one_line(text)
    for mark, written in _MARKDOWN.items():
        text = text.replace(mark, written)
    return text
