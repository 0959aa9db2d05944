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
    **dict.fromkeys(("--breakdown", "--layers", "--per-layer", "--by-layer"), ("--by", "block")),
    "--junit": ("--format", "junit"),
}
# The endings of files that are written.
_FILES: Final = ("--csv", "--json", "--svg", "--png", "--pdf", "--html")
# Values that other tools have for ours.
_VALUES: Final = {("--by", "layer"): "block", ("--by", "kind"): "mixing"}
# Words for a number of devices or for the devices.
_DEVICES: Final = ("--gpu", "--gpus")
QUIET: Final = ("-q", "--quiet")


def translated(args: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command line with the command's own `options` instead of those of other tools."""
    from xfcost.api.options import ALIASES  # commands import it anyway, `--version` does not

    words = [*args]
    while words:
        word = words.pop(0)
        if word == "--":
            yield word
            break
        name, equals, value = word.partition("=")
        if name in options:
            yield word
            if words and (name, words[0]) in _VALUES:
                yield _VALUES[name, words.pop(0)]
        elif name == "-N" and "--N" in options:
            yield "--N" + equals + value
        elif name == "--junit" and words and words[0].endswith(".xml") and "--output" in options:
            yield from ("--format", "junit", "--output", words.pop(0))
        elif name in _FILES and words and words[0].endswith(f".{name[2:]}") and "--output" in options:
            yield from ("--output", words.pop(0))
        elif name in _FLAGS and _FLAGS[name][0] in options:
            yield from _FLAGS[name]
        elif name in _DEVICES and "--on" in options and (value or words):
            yield from _devices(name, value or words.pop(0))
        else:
            own = f"--{ALIASES.get(name[2:], '')}" if name.startswith("--") else ""
            yield own + equals + value if own in options else word
    yield from words


def _devices(name: str, value: str) -> tuple[str, str]:
    """`--gpu l4` names a device, `--gpus 8` a number of them; the index of one, `--gpu 0`, is neither."""
    if value[:1].isalpha() and value != "cuda":
        return "--on", value
    return ("--devices" if name == "--gpus" and value.isdecimal() else name), value


def _offloaded(value: str) -> str:
    return "--offload, the number of first blocks on the host (-ngl has those on the GPU)"


def _on(value: str) -> str:
    return "--on h100-sxm (compute from its datasheet) or --device cuda (run and time the model here)"


def _budget(value: str) -> str:
    return f"xfcost check AFTER --against BEFORE --max-increase {value or '2%'}"


def _memory(value: str) -> str:
    return f"--on rtx4060 (a device; `xfcost devices` lists them), or xfcost check SPEC --max-memory {value or '8GB'}"


def _seconds(value: str) -> str:
    return f"xfcost check SPEC --max-seconds {value}".rstrip()


# Options that may mean several things here -> what to write, with the value that was given.
MEANT: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(_DEVICES, _on),
    **dict.fromkeys(("-ngl", "--ngl", "--n-gpu-layers"), _offloaded),
    **dict.fromkeys(("--fail-above", "--fail-on-increase", "--threshold"), _budget),
    **dict.fromkeys(("--max-latency", "--max-time"), _seconds),
    **dict.fromkeys(("--memory", "--vram", "--gpu-memory", "--ram"), _memory),
    "--prompt": lambda value: f"--mode generate --N {value or 100} --new-tokens 1000",
    "--measured": lambda value: "--step-time 210ms, the seconds of one step",
    "--sort": lambda value: f"xfcost find SPEC … --sort {value or 'macs'}",
    "--epochs": lambda value: "--tokens, the tokens of all epochs together, as in --tokens 75B",
    "--max-batch": lambda value: "--mode decode --on h100-sxm, which says up to which batch it fits",
    "--draft": lambda value: f"xfcost analyze SPEC --mode decode --draft {value or 'ngram'}",
    "--rate": lambda value: f"--sustained {value or '125T'}, or --peak 312T --mfu 40%",
    "--x": lambda value: "--size 224:1024 (image sizes along x) or --N 196:3136 (tokens)",
}


def meant_option(name: str, value: str, models: Sequence[str], budgets: Collection[str]) -> str | None:
    """What to write for an option that a command lacks; None where no word is known.

    `models` are the command's SPECs, of which the last is the later one; `budgets` the options of `xfcost check`.
    """
    if (write := MEANT.get(name)) is not None:
        text = write(value)
    elif name in budgets:
        text = f"xfcost check SPEC {name} {value}".rstrip()
    else:
        return None
    for word, place in (("BEFORE", 0), ("AFTER", -1), ("SPEC", -1)):
        text = text.replace(word, models[place]) if models else text
    return text


# Commands of other tools -> ours, and its options where the same are not given.
COMMANDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    **dict.fromkeys(("count", "flops", "params", "macs", "summary", "info", "run", "breakdown"), ("analyze", {})),
    **dict.fromkeys(("complexity", "formula", "formulas"), ("analyze", {})),
    **dict.fromkeys(("time", "bench", "benchmark", "profile"), ("analyze", {"--device": "cpu"})),
    **dict.fromkeys(("serve", "fit"), ("analyze", {"--mode": "decode", "--on": "h100-sxm"})),
    **dict.fromkeys(("decode", "kv-cache", "kv", "kvcache"), ("analyze", {"--mode": "decode"})),
    **{mode: ("analyze", {"--mode": mode}) for mode in ("generate", "prefill")},
    **dict.fromkeys(("train", "finetune", "fine-tune"), ("analyze", {"--mode": "train"})),
    "lora": ("analyze", {"--mode": "train", "--lora": "16"}),
    **dict.fromkeys(("estimate", "memory", "mem", "estimate-memory"), ("analyze", {"--on": "h100-sxm"})),
    **dict.fromkeys(("scale", "scaling", "sweep"), ("plot", {})),
    **dict.fromkeys(("validate", "lint"), ("check", {})),
    "crossover": ("compare", {}),
    "mfu": ("analyze", {"--mode": "train", "--on": "h100-sxm"}),
    "budget": ("check", {}),
    "convert": ("import", {}),
    "search": ("find", {}),
    **dict.fromkeys(("init", "template"), ("new", {})),
    "presets": ("list", {}),
    "models": ("list", {"--models": ""}),
    "gpus": ("devices", {}),
}


def meant(words: Sequence[str], options: Callable[[str], Collection[str]]) -> list[str] | None:
    """The command line that one of other tools means; None where its first word is none of theirs and no model.

    A model alone is analyzed, as a path is: `xfcost vit`; several are compared. `options` has the flags of one of our
    commands.
    """
    name, *rest = words
    if name not in COMMANDS:
        if not _is_model(name):
            return None
        own, more, rest = "analyze", dict[str, str](), [*words]
    else:
        own, more = COMMANDS[name]
    models = next((place for place, word in enumerate(rest) if word.startswith("-")), len(rest))
    own = "compare" if own == "analyze" and models > 1 else own
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
