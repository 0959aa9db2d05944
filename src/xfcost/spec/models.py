"""The list of published models by name: where the config of each is, what is published of it, and by whom."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

# Of every model `NAME.json`, its config.json; and `NAME.counts.json`, what its runs counted, if no spec is made of it.
FOLDER: Final = Path(__file__).parents[1] / "models"


# The versions whose classes these runs are of; tests hold the counts against fresh ones.
RECORDED_WITH: Final = {"transformers": "5.24.0", "torch": "2.13.0"}


class PublishedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is published of a model."""

    title: str
    """Its published name: `Qwen3 32B`."""
    paper: str | None = None
    """The report that it is published with."""
    params: str | None = None
    """Its parameters as they are printed: `32.8B`; None where no source was found."""
    source: str | None = None
    """Where these are printed."""
    config: str
    """Where its config.json was taken from."""
    kernel: str | None = None
    """The kernel that serves its attention, where its class in transformers was run eager for want of one in torch."""
    step_note: str | None = None
    """What others read in a decode step, if its class does more; with forms in N, the batch B and `step_caps`."""
    step_caps: dict[str, tuple[str, int]] = {}
    """A letter of the note -> a form, and the most that it is."""

    @property
    def hub_id(self) -> str:
        """Its name on the Hugging Face Hub, with its organisation: that of its config."""
        return re.split(r"[^\w./-]", self.config, maxsplit=1)[0]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the metadata of a ledger have of it."""
        published: tuple[dict[str, Any], ...] = ()
        if self.params is not None:
            scale = {"M": 10**6, "B": 10**9, "T": 10**12}[self.params[-1]]
            published = ({"params": float(self.params[:-1]) * scale, "source": self.source},)
        return {"name": self.title, "paper": self.paper, "published": published}


@cache
def models() -> dict[str, PublishedModel]:
    """Name -> what is published of it, in the order of the list."""
    text = (FOLDER / "list.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, PublishedModel])


@cache
def _names() -> dict[str, str]:
    """Each way of naming a model of the list, in lower case -> its name there."""
    found: dict[str, str] = {}
    for name, one in models().items():
        organisation, _, own = one.hub_id.partition("/")
        spellings = (name, one.title, one.hub_id, own, f"{organisation}/{name}")
        found |= dict.fromkeys(map(str.lower, spellings), name)
    return found


def listed_name(text: str) -> str | None:
    """The model of the list that `text` names; None of what is none.

    That is its name, its title or its id on the Hub, in any case, with or without its organisation. What is spelled as
    a file or folder that exists is no model, unless it is the very name of the list.
    """
    if text in models():
        return text
    return None if os.path.exists(text) else _names().get(text.lower())


def squeezed(name: str) -> str:
    """A name without case and separators: `Llama-2 7B` and `llama2_7b` are one."""
    return name.lower().translate(_SEPARATORS)


_SEPARATORS: Final = str.maketrans("", "", "-_ ")


@cache
def squeezed_names() -> dict[str, str]:
    """Each way of naming a model of the list, squeezed -> its name there."""
    return {squeezed(spelling): name for spelling, name in _names().items()}


def config_of(name: str) -> Path:
    """The config.json of a model of the list."""
    return FOLDER / f"{name}.json"


def counts_of(name: str) -> Path | None:
    """The counts of a model of the list; None where it has none, because a spec is made of its config."""
    file = FOLDER / f"{name}.counts.json"
    return file if name in models() and file.is_file() else None


def is_listed(config: str) -> bool:
    """Is the config at this path that of a model of the list?"""
    return Path(config).parent == FOLDER
