"""Escapes for text from specs, so that no terminal, spreadsheet or page executes it.

Text for a terminal passes `visible`; every other format has its own function here.
"""

from __future__ import annotations

import unicodedata
from typing import Final, TextIO

from xfcost.ledger.substitutes import plain

# Spreadsheets read a cell that starts with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN: Final = {"\\": "\\\\", "|": r"\|", "<": "&lt;", ">": "&gt;", "](": r"]\("}


def visible(text: str) -> str:
    r"""`text` with control characters and changes of the text direction escaped, as `\x1b`.

    Line ends and spaces of any kind are unchanged.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """`visible(text)` with spaces for line ends."""
    return visible(" ".join(text.split("\n")))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004


def json_visible(text: str) -> str:
    """JSON text with these characters as JSON escapes; its meaning is the same."""
    return "".join(map(_json_shown, text)) if visible(text) != text else text


def _json_shown(character: str) -> str:
    return character if _shown(character) == character else json_escape(character)


def json_escape(character: str) -> str:
    r"""`character` as JSON's `\u2192`, of two units where it needs them."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


def json_written(text: str, stream: TextIO) -> str:
    """JSON as `stream` can write it: in ASCII, with JSON's own escapes, where its encoding lacks a character."""
    try:
        text.encode(stream.encoding)
    except UnicodeEncodeError:
        return "".join(character if character.isascii() else json_escape(character) for character in text)
    return text


def csv_cell(value: object) -> object:
    """A CSV cell: text that a spreadsheet would execute gets an apostrophe; numbers are unchanged.

    In ASCII, too, where an arrow becomes `->`.
    """
    if not isinstance(value, str):
        return value
    return visible("'" + value if plain(value[:1]).startswith(_FORMULA) else value)


def markdown(text: str) -> str:
    """`text` in a line or cell of Markdown, with cell ends, tags and links escaped."""
    text = one_line(text)
    for mark, escaped in _MARKDOWN.items():
        text = text.replace(mark, escaped)
    return text
