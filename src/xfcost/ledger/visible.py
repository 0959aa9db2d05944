"""Escapes for text from specs, so that no terminal, spreadsheet or page executes it.

Text for a terminal passes `visible`; every other format has its own function here.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, TextIO

from xfcost.ledger.substitutes import plain

# Spreadsheets read a cell that starts with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
# What continuous integration executes in a log: `::error::x` at the start of a line; `##[error]x`, `##vso[…]` anywhere.
_COMMAND: Final = re.compile(r"^[^\S\n]*:(?=:)|#(?=#\w*\[)", re.MULTILINE)
_MARKDOWN: Final = {"\\": "\\\\", "|": r"\|", "<": "&lt;", ">": "&gt;", "](": r"]\("}


def visible(text: str) -> str:
    r"""`text` with control characters, changes of the text direction and commands in logs escaped, as `\x1b`.

    Line ends and spaces of any kind are unchanged.
    """
    if not text.replace("\n", "").isprintable():
        text = "".join(map(_shown, text))
    return _COMMAND.sub(lambda found: f"{found[0][:-1]}{_escaped(found[0][-1])}", text)


def one_line(text: str) -> str:
    """`visible(text)` with spaces for line ends."""
    return visible(" ".join(text.split("\n")))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return _escaped(character)


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004


def json_visible(text: str) -> str:
    """JSON text with these characters as JSON escapes; its meaning is the same."""
    if visible(text) == text:
        return text
    return "".join(map(_json_shown, text)).replace("#", r"\u0023")


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
    return one_line("'" + value if plain(value[:1]).startswith(_FORMULA) else value)


def markdown(text: str) -> str:
    """`text` in a line or cell of Markdown, with cell ends, tags and links escaped."""
    text = one_line(text)
    for mark, escaped in _MARKDOWN.items():
        text = text.replace(mark, escaped)
    return text
