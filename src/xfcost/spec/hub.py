"""Models on the Hugging Face Hub, as a user names them: `org/name`, `hf:org/name@revision`. Nothing is opened here.

`importing.hub` makes a config.json in huggingface_hub's cache of it, whose path has the model and its commit.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from xfcost.ledger.errors import did_you_mean, near_names
from xfcost.spec.models import models

_PREFIX: Final = r"(?P<prefix>hf:|https:/+(?:huggingface\.co|hf\.co)/)"
_PART: Final = r"\w(?:[\w.-]*\w)?"
_NAME: Final = re.compile(rf"{_PREFIX}?(?P<repo>{_PART}(?:/{_PART})?)(?:@(?P<revision>[\w./-]+))?/?", re.ASCII)
# What ends so is meant as a file.
_FILES: Final = re.compile(r"\.(ya?ml|jsonl?|py|safetensors|gguf|pt2?|pth|bin|onnx)\Z", re.IGNORECASE)
_IN_CACHE: Final = re.compile(
    r"models--(?P<repo>[^/\\]+)[/\\]snapshots[/\\](?P<commit>[0-9a-f]{40})[/\\]config\.json\Z"
)


class HubName(NamedTuple):
    """A model on the Hub."""

    repo: str
    """`org/name`; of some old models without an organisation."""
    revision: str | None
    """A branch, a tag or a commit; None of the Hub's default."""
    text: str
    """As it was given."""

    @property
    def near(self) -> str:
        """Models of the list with a similar name, the end of a sentence: `; did you mean 'Qwen/Qwen3-32B'?`."""
        ids = [one.hub_id for one in models().values()]
        if self.repo.lower() in map(str.lower, ids):
            return f"; {self.repo} is answered from the list, without a connection."
        found = near_names(self.repo, ids)
        return f"; {did_you_mean(found)}" if found else "."


def hub_name(text: str) -> HubName | None:
    """The model on the Hub that `text` names; None where it is a path, a preset or a module.

    A bare `org/name` is one where no such file or folder exists. The list of models is for the caller to ask first.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    repo = found["repo"]
    if not found["prefix"] and ("/" not in repo or ".." in repo or _FILES.search(text) or os.path.exists(text)):
        return None
    return HubName(found["repo"], found["revision"], text)


def hub_source(path: str) -> HubName | None:
    """The model and the commit of a config.json in huggingface_hub's cache; None of another path."""
    found = _IN_CACHE.search(path)
    if found is None:
        return None
    repo, commit = found["repo"].replace("--", "/"), found["commit"]
    return HubName(repo, commit, f"hf:{repo}@{commit}")


def config_label(path: str) -> str:
    """The config at `path` in messages and reports: `hf:org/name@commit` of one in huggingface_hub's cache."""
    found = hub_source(path)
    return path if found is None else found.text


def hub_notes(source: str) -> tuple[str, ...]:
    """A note on the model and the commit where the source of a ledger, or the path of its config, is on the Hub."""
    found = hub_name(source) if source.startswith("hf:") else hub_source(source)
    if found is None or found.revision is None:
        return ()
    return (f"{found.repo} of the Hugging Face Hub, at commit {found.revision}",)
