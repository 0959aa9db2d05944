"""A spec as text: as it was written, or whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from xfcost.ledger.visible import visible
from xfcost.spec.load import lineage, load


def texts(name: str) -> Iterator[tuple[str, str]]:
    """(file name, YAML text) of a spec and of everything it extends, for `xfcost show`."""
    for written in lineage(name):
        yield written.shown, written.text


def full_yaml(name: str) -> str:
    """The whole spec as one YAML text: `extends` and `set` followed, every default written out."""
    import yaml

    loaded = load(name)
    data = msgspec.to_builtins(loaded.spec)
    for key in ("extends", "set"):
        data.pop(key, None)
    how: dict[str, Any] = {"sort_keys": False, "width": 120, "default_flow_style": None}
    text = str(yaml.safe_dump(_without_none(data), allow_unicode=True, **how))
    # what a terminal would obey is written as YAML's own escapes
    return text if visible(text) == text else str(yaml.safe_dump(_without_none(data), allow_unicode=False, **how))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None and item != []}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
