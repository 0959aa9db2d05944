"""Models of transformers without the Hub: what is read opens no connection."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

# What runs without kernels of another package or of the Hub.
_IMPLEMENTATIONS: Final = {
    "attn_implementation": ("eager", "flex_attention", "sdpa"),
    "experts_implementation": ("batched_mm", "eager", "grouped_mm"),
}


@contextmanager
def offline() -> Iterator[None]:
    """Refuse the connections of this thread; huggingface_hub hears that there are none, and does not try.

    Its own switch is a variable of the environment, which it reads for the whole process when it is imported.
    """
    own, resolve, connect = threading.get_ident(), socket.getaddrinfo, socket.socket.connect

    def check() -> None:
        if threading.get_ident() == own:
            raise OSError("xfcost opens no connection for a config")

    def resolved(*args: Any, **kwargs: Any) -> Any:
        check()
        return resolve(*args, **kwargs)

    def connected(one: socket.socket, *args: Any) -> None:
        if one.family in (socket.AF_INET, socket.AF_INET6):
            check()
        connect(one, *args)

    with ExitStack() as stack:
        with suppress(ModuleNotFoundError):  # then transformers is missing too
            constants = importlib.import_module("huggingface_hub.constants")
            stack.enter_context(patch.object(constants, "HF_HUB_OFFLINE", new=True))
        stack.enter_context(patch.object(socket, "getaddrinfo", resolved))
        stack.enter_context(patch.object(socket.socket, "connect", connected))
        yield


def without_hub(values: Mapping[str, Any], place: str = "") -> tuple[dict[str, Any], list[str]]:
    """The fields of a config without those that name models, code or kernels on the Hub; and the names of these."""
    kept, left_out = dict[str, Any](), list[str]()
    for name, value in values.items():
        known = _IMPLEMENTATIONS.get(name.removeprefix("_"))
        if isinstance(value, dict) and known is None and name != "auto_map":
            kept[name], inner = without_hub(value, f"{place}{name}.")
            left_out += inner
            continue
        named = value.values() if isinstance(value, dict) else (value,)
        if (
            (known is not None and not all(one is None or one in known for one in named))
            or (name == "backbone" and "/" in str(value) and not values.get("backbone_config"))
            or (name == "use_pretrained_backbone" and value)
            or (name == "auto_map" and value)
        ):
            left_out.append(place + name)
        else:
            kept[name] = value
    return kept, left_out


def left_out_note(names: Sequence[str]) -> str:
    """What a report says of them."""
    default = "; the class's default backbone is counted, and backbone_config describes another"
    more = default if has_backbone(names) else ""
    return f"ignored, as xfcost opens no connection: {', '.join(names)} in the config{more}"


def has_backbone(names: Sequence[str]) -> bool:
    """Is one of them the name of a backbone?"""
    return any(name.rpartition(".")[2] == "backbone" for name in names)


def without_backbone(names: Sequence[str]) -> str:
    """What a refusal says of them."""
    return f"it ran without {', '.join(names)}, as xfcost opens no connection; backbone_config describes a backbone"
