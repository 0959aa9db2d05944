"""Words of other tools on the command line: what means the same here, and what to write for the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

# Options that other tools and older releases have -> the same here.
ALIASES: Final = {
    "-N": "--N",
    "--seq-len": "--N",
    "--seqlen": "--N",
    "--context": "--N",
    "--context-length": "--N",
    "--max-model-len": "--N",
    "--ctx-size": "--N",
    "--img-size": "--size",
    "--gpu-memory-utilization": "--memory-share",
    "--batch-size": "--batch",
    "--bs": "--batch",
    "--cache": "--cache-dtype",
    "--kv": "--cache-dtype",
    "--kv-dtype": "--cache-dtype",
    "--kv-cache-dtype": "--cache-dtype",
    "--weights": "--weights-dtype",
    "--quantization": "--weights-dtype",
    "--tp": "--tensor-parallel",
    "--pp": "--pipeline",
    "--ep": "--expert-parallel",
    "--checkpoint": "--recompute",
    "--draft-model": "--draft",
    "--speculative-model": "--draft",
    "--num-speculative-tokens": "--draft-tokens",
    "--out": "--output",
    "--sort-by": "--sort",
}
# Flags for an option with a value.
_FLAGS: Final = {f"--{form}": ("--format", form) for form in ("json", "csv", "markdown", "latex")}
QUIET: Final = ("-q", "--quiet")


def translated(args: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command line with the command's own `options` instead of their aliases."""
    words = iter(args)
    for word in words:
        if word == "--":
            yield word
            break
        name, equals, value = word.partition("=")
        own = ALIASES.get(name, name)
        if name in options or (own not in options and name not in _FLAGS):
            yield word
        elif name in _FLAGS and "--format" in options:
            yield from _FLAGS[name]
        else:
            yield own + equals + value
    yield from words


def _on(value: str) -> str:
    device = value if value[:1].isalpha() else "h100-sxm"
    return f"--on {device} (compute from its datasheet) or --device cuda (run and time the model here)"


# Options that may mean several things here -> what to write, with the value that was given.
MEANT: Final[dict[str, Callable[[str], str]]] = {
    "--gpu": _on,
    "--gpus": _on,
    "-ngl": lambda value: "--offload, the number of first blocks on the host (-ngl has those on the GPU)",
    "--ngl": lambda value: "--offload, the number of first blocks on the host (-ngl has those on the GPU)",
    "--n-gpu-layers": lambda value: "--offload, the number of first blocks on the host (-ngl has those on the GPU)",
    "--draft": lambda value: f"xfcost analyze SPEC --mode decode --draft {value or 'ngram'}",
    "--load-in-4bit": lambda value: "--weights-dtype int4",
    "--load-in-8bit": lambda value: "--weights-dtype int8",
    "--quant": lambda value: f"--weights-dtype {value or 'int4'}",
    "--rate": lambda value: f"--sustained {value or '125T'}, or --peak 312T --mfu 40%",
}

# Commands of other tools -> what to write, with the words that were given.
COMMANDS: Final[dict[str, str]] = {
    "time": "xfcost analyze {} --device cpu",
    "bench": "xfcost analyze {} --device cpu",
    "benchmark": "xfcost analyze {} --device cpu",
    "profile": "xfcost analyze {} --device cpu",
    "serve": "xfcost analyze {} --mode decode --on h100-sxm",
    "train": "xfcost analyze {} --mode train",
    "count": "xfcost analyze {}",
    "flops": "xfcost analyze {}",
    "params": "xfcost analyze {}",
    "summary": "xfcost analyze {}",
    "estimate": "xfcost analyze {} --on h100-sxm",
    "memory": "xfcost analyze {} --on h100-sxm",
    "scale": "xfcost plot {}",
    "scaling": "xfcost plot {}",
    "sweep": "xfcost plot {}",
    "validate": "xfcost check {}",
    "lint": "xfcost check {}",
    "formula": "xfcost report {} -o report.html",
    "formulas": "xfcost report {} -o report.html",
    "convert": "xfcost import {}",
    "search": "xfcost find {}",
    "init": "xfcost new {}",
    "template": "xfcost new {}",
    "help": "xfcost --help",
    "info": "xfcost analyze {}",
    "run": "xfcost analyze {}",
    "fit": "xfcost analyze {} --mode decode --on h100-sxm",
    "presets": "xfcost list",
    "models": "xfcost list --models",
    "gpus": "xfcost devices",
}


def meant_command(name: str, words: Sequence[str]) -> str | None:
    """What to write for a command that there isn't; None where no word is known for it."""
    import shlex  # of a mistake alone

    text = COMMANDS.get(name)
    return None if text is None else " ".join(text.format(shlex.join(words)).split())
