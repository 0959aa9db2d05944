"""Escapes for text from specs, so that no terminal, spreadsheet or page executes it; what stands for lacking letters.

Text for a terminal passes `visible`; every other format has its own function here. A character that a stream's encoding
lacks is substituted: `->` for →, `x` for ×, `sqrt` for √, `e` for é. Python gives redirected output the system's
encoding: cp1252 on many a Windows, in some locales ASCII.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from typing import Final, TextIO

# Python's error handler of this name, like `strict` and `replace`.
HANDLER: Final = "xfcost.substitutes"

_SIGNS: Final = {
    "·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "→": "->", "←": "<-", "↑": "^", "↓": "v", "±": "+/-",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∘": "o", "⊙": "*", "⊗": "(x)", "′": "'", "‖": "||", "⟨": "<", "⟩": ">",
    "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "‘": "'", "’": "'", "“": "'", "”": "'", "\u0303": "~", "µ": "u",
    "ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ł": "l", "Ł": "L", "ı": "i",
    "►": ">", "\xa0": " ", "\u202f": " ", "─": "-", "━": "-", "│": "|", "┃": "|",
}  # fmt: skip
# Separated from the letters and digits next to them: `N sqrt N`.
_WORDS: Final = {
    "√": "sqrt", "∛": "cbrt", "∜": "4th root", "∞": "inf", "§": "section", "∈": "in", "∂": "d", "∑": "sum",
    "∏": "product", "∩": "and", "°": "degrees",
}  # fmt: skip
_RAISED: Final = {"<super>": "^", "<sub>": "_"}


def plain(text: str, encoding: str = "ascii") -> str:
    """`text` in characters that `encoding` has."""
    return text.encode(encoding, HANDLER).decode(encoding)


def written(text: str, stream: TextIO) -> str:
    """`text` as `stream` will write it."""
    return plain(text, stream.encoding) if stream.errors == HANDLER else text


def written_columns(text: str, stream: TextIO) -> str:
    """`written(text, stream)` of tables and boxes: where a word grows, the blanks or the rule behind it shrink."""
    return "\n".join(_in_columns(line, stream) for line in text.split("\n"))


def _in_columns(line: str, stream: TextIO) -> str:
    parts, grown = [], 0
    for part in re.split("(  +|──+)", line):
        if part.startswith(("  ", "──")):
            less = min(max(grown, 0), len(part) - 1)
            parts.append(written(part[less:], stream))
            grown -= less
        else:
            parts.append(written(part, stream))
            grown += _columns(parts[-1]) - _columns(part)
    return "".join(parts)


def _columns(text: str) -> int:
    """Columns of a terminal: two of a wide character, none of a mark on the one before it."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(_is_mark, text))


def _handled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object
    return "".join(_substitute(text, at) for at in range(error.start, error.end)), error.end


codecs.register_error(HANDLER, _handled)


def _substitute(text: str, at: int) -> str:
    """What replaces `text[at]`, next to its neighbours."""
    before, character, after = text[max(at - 1, 0) : at], text[at], text[at + 1 : at + 2]
    if word := _word(character):
        apart = (
            before.isalnum() and not _word(before),
            bool(_word(after)) or (after.isalnum() and not _raised(after)[0]),
        )
        return " " * apart[0] + word + " " * apart[1]
    mark, base = _raised(character)
    return _letter(base) if mark == _raised(before)[0] else mark + _letter(base)


def _raised(character: str) -> tuple[str, str]:
    """`^` of an exponent, `_` of an index, else nothing; and the character on the line."""
    kind, _, base = unicodedata.decomposition(character).partition(" ") if character else ("", "", "")
    return (_RAISED[kind], chr(int(base, 16))) if kind in _RAISED else ("", character)


def _word(character: str) -> str | None:
    greek = re.fullmatch(r"GREEK (CAPITAL|SMALL) LETTER (\w+)", unicodedata.name(character, "")) if character else None
    if greek is None:
        return _WORDS.get(character)
    return greek[2].title() if greek[1] == "CAPITAL" else greek[2].lower()


def _letter(character: str) -> str:
    """The sign, or the letter without its marks; else an escape. No other sign turns into one that a format reads."""
    if character in _SIGNS:
        return _SIGNS[character]
    if _is_mark(character):
        return ""
    if "\u2500" <= character <= "\u25a0":
        return "+" if character <= "\u257f" else "#"  # corners and crossings of boxes; parts of bars
    if character.isalnum():
        base = "".join(part for part in unicodedata.normalize("NFKD", character) if not _is_mark(part))
        character = base.replace("\u2044", "/")
    return character.encode("ascii", "backslashreplace").decode("ascii")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


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
    shown = (letter if _shown(letter) == letter else json_escape(letter) for letter in text)
    return "".join(shown).replace("#", r"\u0023")


def json_escape(character: str) -> str:
    r"""`character` as JSON's `\u2192`, of two units where it needs them."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


def json_written(text: str, stream: TextIO) -> str:
    """JSON as `stream` can write it: in ASCII, with JSON's own escapes, where its encoding lacks a character."""
    try:
        text.encode(stream.encoding or "utf-8")  # a stream in memory has none
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
