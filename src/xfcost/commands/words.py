"""Words of other tools on the command line: what means the same here, and what to write for the rest."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from xfcost.ledger.errors import near_names

# Flags for an option with a value.
_FLAGS: Final = {
    **{f"--{form}": ("--format", form) for form in ("json", "csv", "markdown", "latex")},
    **{f"--{mode}": ("--mode", mode) for mode in ("train", "decode", "prefill", "generate")},
    "--training": ("--mode", "train"),
    "--gradient-checkpointing": ("--recompute", "full"),
    "--activation-checkpointing": ("--recompute", "full"),
    "--load-in-4bit": ("--weights-dtype", "int4"),
    "--load-in-8bit": ("--weights-dtype", "int8"),
    "--qlora": ("--lora", "16", "--weights-dtype", "nf4"),
}
# Words for a number of devices or for the devices.
_DEVICES: Final = ("--gpu", "--gpus")
QUIET: Final = ("-q", "--quiet")


def translated(args: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command line with the command's own `options` instead of those of other tools."""
    from xfcost.api.options import ALIASES  # commands import it anyway, `--version` does not

    words = iter(args)
    for word in words:
        if word == "--":
            yield word
            break
        name, equals, value = word.partition("=")
        if name in options:
            yield word
        elif name == "-N" and "--N" in options:
            yield "--N" + equals + value
        elif name in _FLAGS and _FLAGS[name][0] in options:
            yield from _FLAGS[name]
        elif name in _DEVICES and "--on" in options:
            device = value if equals else next(words, "")
            # a number of devices, or the index of one, names none
            yield from ("--on", device) if device[:1].isalpha() and device != "cuda" else (name, device)
        else:
            own = f"--{ALIASES.get(name[2:], '')}" if name.startswith("--") else ""
            yield own + equals + value if own in options else word
    yield from words


def _offloaded(value: str) -> str:
    return "--offload, the number of first blocks on the host (-ngl has those on the GPU)"


def _on(value: str) -> str:
    return "--on h100-sxm (compute from its datasheet) or --device cuda (run and time the model here)"


# Options that may mean several things here -> what to write, with the value that was given.
MEANT: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(_DEVICES, _on),
    **dict.fromkeys(("-ngl", "--ngl", "--n-gpu-layers"), _offloaded),
    "--draft": lambda value: f"xfcost analyze SPEC --mode decode --draft {value or 'ngram'}",
    "--rate": lambda value: f"--sustained {value or '125T'}, or --peak 312T --mfu 40%",
    "--x": lambda value: "--size 224:1024 (image sizes along x) or --N 196:3136 (tokens)",
    "--flops-only": lambda value: "--columns FLOPs",
}

# Commands of other tools -> ours, and its options where the same are not given.
COMMANDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    **dict.fromkeys(
        ("count", "flops", "params", "summary", "info", "run", "complexity", "macs", "profile-model"), ("analyze", {})
    ),
    **dict.fromkeys(("time", "bench", "benchmark", "profile"), ("analyze", {"--device": "cpu"})),
    **dict.fromkeys(("serve", "fit"), ("analyze", {"--mode": "decode", "--on": "h100-sxm"})),
    **dict.fromkeys(("decode", "kv-cache", "kv", "kvcache"), ("analyze", {"--mode": "decode"})),
    **dict.fromkeys(("generate", "prefill"), ("analyze", {"--mode": "prefill"})),
    **dict.fromkeys(("train", "finetune", "fine-tune"), ("analyze", {"--mode": "train"})),
    "lora": ("analyze", {"--mode": "train", "--lora": "16"}),
    **dict.fromkeys(("estimate", "memory", "mem", "estimate-memory"), ("analyze", {"--on": "h100-sxm"})),
    **dict.fromkeys(("scale", "scaling", "sweep"), ("plot", {})),
    **dict.fromkeys(("validate", "lint"), ("check", {})),
    **dict.fromkeys(("formula", "formulas"), ("report", {})),
    "convert": ("import", {}),
    "search": ("find", {}),
    **dict.fromkeys(("init", "template"), ("new", {})),
    "presets": ("list", {}),
    "models": ("list", {"--models": ""}),
    "gpus": ("devices", {}),
}


def meant(words: Sequence[str], options: Callable[[str], Collection[str]]) -> list[str] | None:
    """The command line that one of other tools means; None where its first word is none of theirs and no model.

    A model alone is analyzed, as a path is: `xfcost vit`. `options` has the flags of one of our commands.
    """
    name, *rest = words
    if name not in COMMANDS:
        return ["analyze", *words] if _is_model(name) else None
    own, more = COMMANDS[name]
    given = list(translated(rest, options(own)))
    flags = {word.partition("=")[0] for word in given}
    added = [word for flag, value in more.items() if flag not in flags for word in (flag, value) if word]
    return [own, *given, *added]


def _is_model(text: str) -> bool:
    if os.path.exists(text) or any(sign in text for sign in "/:."):
        return True
    from xfcost.spec.load import canonical, preset_files
    from xfcost.spec.models import models

    own = canonical(text)
    return any(name in known for name in (own, f"common-{own}") for known in (preset_files(), models()))


def near_models(text: str) -> list[str]:
    """Presets and models of the list with a similar name."""
    from xfcost.spec.load import preset_files
    from xfcost.spec.models import models

    return near_names(text, [*preset_files(), *models()])
