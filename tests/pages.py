"""Pages of `xfcost report` for tests: written once each, read with a strict parser."""

import functools
import json
from html.parser import HTMLParser
from pathlib import Path

from typer.testing import CliRunner

from xfcost.cli import app

VOID = {"meta", "input", "img", "br", "link", "hr"}
HOSTILE = "<script>alert(1)</script><!--<img src=x onerror=alert(2)>-->\"'&{{7*7}}"
HOSTILE_SPEC = """
name: {name}
paper: {name}
input: {{kind: tokens, length: 16, vocabulary: 100}}
embed: [{{kind: token}}]
stages:
  - dim: 8
    depth: 2
    pattern: [[{{kind: full, heads: 2}}, {{kind: mlp, ratio: 2}}]]
"""


def hostile_spec(folder: Path) -> Path:
    """A spec whose name and paper would run as a script where they are not escaped."""
    path = folder / "spec.yaml"
    path.write_text(HOSTILE_SPEC.format(name=json.dumps(HOSTILE)), "utf-8")
    return path


def written(words, path: Path) -> str:
    """The page of `xfcost report WORDS`."""
    CliRunner().invoke(app, ["report", *words, "-o", str(path), "-f"], catch_exceptions=False, standalone_mode=False)
    return path.read_text("utf-8")


@functools.cache
def page_of(*words: str) -> str:
    """The same, written once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return written(words, Path(folder, "page.html"))


class Strict(HTMLParser):
    """Every element is closed in its turn; attributes come once; ids are unique."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open
        ids = self.values("id")
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing, line {self.getpos()[0]}"
        assert self.open.pop() == tag, (tag, self.open, self.getpos())

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def values(self, attribute):
        return [attributes[attribute] for _, attributes, _ in self.elements if attribute in attributes]

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    @property
    def data(self):
        """The JSON that the script reads."""
        return json.loads(self.scripts[0])


def figure(runs, place):
    """A figure as the page's script finds it."""
    if not runs:
        return 0
    value = [value for first, value in runs if first <= place][-1]
    return None if value is None else int(value)


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one, other):
    """The contrast ratio of WCAG 2.1, 1 to 21."""
    low, high = sorted(
        sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))
        for colour in (one, other)
    )
    return (high + 0.05) / (low + 0.05)
