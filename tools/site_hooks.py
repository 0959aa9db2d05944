"""Hooks of mkdocs.yml: README.md is the first page, and links to files outside of docs/ become plain code."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README.md as index.md: its links start at the repository's root, those of the site in docs/."""
    readme = (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=readme.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from a page of docs/ to code (`../src/…`) or from README.md to a file beside it have no page to go to."""
    outside = r"\[([^\]\n]+)\]\(((?:\.\./)+(?:src|tests|specs)/[^)]*|CONTRIBUTING\.md)\)"
    return re.sub(outside, lambda link: link[1] if "`" in link[1] else f"`{link[1]}`", markdown)
