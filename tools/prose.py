"""Find the phrases of tools/prose.yaml in the prose of README.md, docs/ and specs/, and the texts and comments of src/.

Code blocks and `code` are left out. Exit code 1 where there is one, with file, line and what to write.
"""

from __future__ import annotations

import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def prose(path: Path) -> str:
    """The file with everything blank but its prose; lines keep their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        lines = [""] * (text.count("\n") + 1)
        with tokenize.open(path) as stream:
            for token in tokenize.generate_tokens(stream.readline):
                if token.type in {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)}:
                    for number, line in enumerate(token.string.split("\n"), token.start[0] - 1):
                        lines[number] += line + " "
        text = "\n".join(lines)
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def found(path: Path, rules: dict[str, str]) -> Iterator[str]:
    """A line for each phrase."""
    text = prose(path)
    for rule, instead in rules.items():
        for match in re.finditer(rule, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}: {match[0]!r}: {instead}"


def main() -> int:
    """1 where a phrase is found."""
    rules = yaml.safe_load((ROOT / "tools" / "prose.yaml").read_text(encoding="utf-8"))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    patterns = ("docs/notebooks/*.py", "src/**/*.py", "specs/**/*.yaml")
    files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    hits = [hit for path in documents for hit in found(path, rules["everywhere"] | rules["documents"])]
    hits += [hit for path in files for hit in found(path, rules["everywhere"])]
    print("\n".join(hits) or "no phrase of tools/prose.yaml")
    return bool(hits)


if __name__ == "__main__":
    sys.exit(main())
