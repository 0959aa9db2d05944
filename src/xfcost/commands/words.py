"""Words of other tools on the command line: what means the same here, and what to write for the rest."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from xfcost.ledger.errors import near_names

# Flags for an option with a value.
_FLAGS: Final = {
    **{f"--{form}": ("--format", form) for form in ("json", "csv", "markdown", "latex")},
    **{f"--{mode}": ("--mode", mode) for mode in ("train", "decode", "prefill", "generate")},
    "--md": ("--format", "markdown"),
    "--training": ("--mode", "train"),
    "--gradient-checkpointing": ("--recompute", "full"),
    "--activation-checkpointing": ("--recompute", "full"),
    "--load-in-4bit": ("--weights-dtype", "int4"),
    "--load-in-8bit": ("--weights-dtype", "int8"),
    "--qlora": ("--lora", "16", "--weights-dtype", "nf4"),
    **{f"--{dtype}": ("--dtype", dtype) for dtype in ("fp16", "bf16", "fp32", "tf32")},
    "--half": ("--dtype", "float16"),
    **dict.fromkeys(("--time", "--timing", "--measure", "--benchmark"), ("--device", "cpu")),
    **{f"--{stored}": ("--weights-dtype", stored) for stored in ("fp8", "int8", "int4", "nf4")},
    **dict.fromkeys(("--breakdown", "--layers", "--per-layer", "--by-layer"), ("--by", "block")),
    "--junit": ("--format", "junit"),
    "--github": ("--format", "github"),
    **dict.fromkeys(("--by-stage", "--by-component", "--per-stage"), ("--by", "stage")),
    **dict.fromkeys(("--by-kind", "--by-class", "--by-type", "--by-mixing"), ("--by", "mixing")),
    **dict.fromkeys(("--by-module", "--per-module"), ("--by", "module")),
    **dict.fromkeys(("--kv-cache", "--kvcache"), ("--mode", "decode")),
    "--all": ("--verbose",),
    "-v": ("--verbose",),
}
# What a report has without a flag.
_SHOWN: Final = frozenset(
    f"--{name}"
    for name in (
        "macs", "flops", "params", "parameters", "per-op", "per-operation", "by-op", "by-operation",
        "ops", "operations", "details", "detailed",
        "crossover", "formula", "formulas", "complexity", "totals", "summary", "show", "print", "table", "kinds",
        "classify",
    )
)  # fmt: skip
# What a figure has without a flag; and what `check` does without one.
_DRAWN: Final = frozenset(
    f"--{name}" for name in ("loglog", "log-log", "log", "logx", "logy", "log-scale", "slopes", "fit")
)
_CHECKED: Final = frozenset(("--strict", "--ci", "--fail", "--exit-code", "--validate"))
# Options of other tools with the model.
_NAMES: Final = frozenset(("--model", "--model-id", "--model-name", "--model-name-or-path", "--checkpoint-path"))
# What a run on a device says without a flag.
_SERVED: Final = frozenset(
    ("--max-batch", "--max-batch-size", "--max-users", "--max-concurrency", "--max-context", "--fits", "--throughput",
     "--ttft", "--tpot", "--tokens-per-second")
)  # fmt: skip
# Letters of other tools.
_LETTERS: Final = {"-n": "--N", "-N": "--N", "-c": "--N", "-b": "--batch", "-r": "--lora", "-k": "--draft-tokens"}
# Options with a list, which other tools take as several words -> what joins them.
_LISTS: Final = {"--N": ",", "--size": ",", "--batch": ",", "--input": "x", "--lora-on": ",", "--columns": ","}
_NAMED_SHAPE: Final = re.compile(r"[a-z_]\w*[:=][\dx,A-Z]+")
_NUMBER: Final = re.compile(r"\d[\d_]*(k|M|Ki|Mi)?")
# A key of a spec and its value.
_SETTING: Final = re.compile(r"[a-z_][\w.*]*=[^=]+")
# The words of --format, and those of other tools.
_FORMATS: Final = {"json", "csv", "markdown", "md", "latex", "tex", "table"}
_CONVENTIONS: Final = {"dense", "kept", "6nd"}
# Words for N where thousands are of 1,024.
_CONTEXTS: Final = {
    "--context", "--context-length", "--context-len", "--ctx", "--ctx-size", "--n-ctx", "-c", "--seq-len", "--seqlen",
    "--seq-length", "--sequence-length", "--max-seq-len", "--max-model-len",
}  # fmt: skip
_DTYPES: Final = {"fp32", "float32", "tf32", "fp16", "float16", "half", "bf16", "bfloat16", "bf16-mixed", "16-mixed"}
# The endings of files that are written.
_PICTURES: Final = (".png", ".pdf", ".svg")
_FILES: Final = ("--csv", "--json", "--svg", "--png", "--pdf", "--html")
# Values that other tools have for ours.
_VALUES: Final = {
    ("--by", "layer"): "block",
    ("--by", "kind"): "mixing",
    ("--match", "parameters"): "params",
    ("--match", "param"): "params",
    ("--format", "md"): "markdown",
    ("--format", "tex"): "latex",
    **{("--metric", word): "time" for word in ("latency", "seconds", "runtime", "speed", "ms")},
    **{
        ("--metric", word): "attention-memory"
        for word in ("memory", "attention", "attention_memory", "attn-memory", "mem")
    },
    **{("--metric", word): "params" for word in ("parameters", "param")},
    **{("--metric", word): "cache" for word in ("kv-cache", "kv_cache", "kv")},
}
_RANGE: Final = re.compile(r"(\w+)(?:\.\.+|-)(\w+)")
# Of what needs devices and names none.
_USUAL_DEVICE: Final = "h100-sxm"
QUIET: Final = ("-q", "--quiet")


def translated(args: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command line with the command's own `options` instead of those of other tools.

    Options that belong to one mode bring it: `--draft` that of a decode step.
    """
    from xfcost.api.options import MODE_OF, flag_of  # commands import it anyway, `--version` does not

    words, given, models = [*args], list[str](), False
    while words and words[0] != "--":
        word = words.pop(0)
        own = not given or not given[-1].startswith("-")  # else it may be the value of an option
        if models and own and "--set" in options and _SETTING.fullmatch(word):
            given += ["--set", word]
            continue
        given += _translated(word, words, options, models=models)
        models |= not word.startswith("-")
    if "--mode" in options and not any(word.partition("=")[0] == "--mode" for word in given):
        named = [word.partition("=")[0] for word in given]
        given += next((["--mode", mode] for name, mode in MODE_OF.items() if flag_of(name) in named), [])
        if {"--zero", "--devices", "--tensor-parallel", "--pipeline", "--global-batch"} & {
            *named
        } and "--on" not in named:
            given += ["--on", _USUAL_DEVICE]
    yield from _of_specs(given) if "--input" in given and {"--size", "--N"} <= {*options} else given
    yield from words


def _of_specs(given: Sequence[str]) -> list[str]:
    """The shape of an input as the batch and size, or N, of specs; as it is where a module is given.

    (B, C, H, W), (3, H, W), (H, W) and a side are of images, (B, N) is of tokens.
    """
    place = given.index("--input")
    shape = [int(one) if one.isdecimal() else 0 for one in re.split("[x,]", "".join(given[place + 1 : place + 2]))]
    if any(map(_MODULE.search, takewhile(_is_word, given))) or 0 in shape:
        return [*given]
    if len(shape) == 2 and shape[0] < _LEAST_SIDE:  # noqa: PLR2004 - (B, N)
        own = ["--batch", str(shape[0]), "--N", str(shape[1])]
    elif len(shape) in (1, 2, 4) or (len(shape) == 3 and shape[0] == 3):  # noqa: PLR2004 - dimensions, channels
        batch = ["--batch", str(shape[0])] if len(shape) == 4 else []  # noqa: PLR2004 - (B, C, H, W)
        own = [*batch, "--size", "x".join(map(str, shape[-2:]))]
    else:
        return [*given]
    return [*given[:place], *own, *given[place + 2 :]]


# What names no spec; images have longer sides.
_MODULE: Final = re.compile(r":|/|\.(py|json|onnx|pt2|gguf|safetensors)$")
_LEAST_SIDE: Final = 32


def _translated(word: str, words: list[str], options: Collection[str], *, models: bool) -> Iterator[str]:
    """What one word means; the values behind it are taken from `words`. `models`: one stands before it."""
    from xfcost.ledger.option_readers import WEIGHT_WORDS

    name, equals, value = word.partition("=")
    own = _own(name, options)
    after = value if equals else words[0] if words else ""
    if own == "--flops" and own in options and after not in _CONVENTIONS:
        return
    own = _of_servers(own, after, words) if "--new-tokens" in options else own
    if name == "-f" and after in _FORMATS:
        yield from ("--format", _VALUES.get(("--format", after), after))
        words[:] = words if equals else words[1:]
    elif own == "--dtype" and "--weights-dtype" in options and after in WEIGHT_WORDS:
        yield "--weights-dtype" + equals + value
    elif own == "--precision" and "--dtype" in options and after in _DTYPES:
        yield "--dtype" + equals + value
    elif name == "--lora" and own in options and not after.isdecimal():  # its rank has an option in other tools
        yield from () if any(_own(one.partition("=")[0], options) == "--lora" for one in words) else ("--lora", "16")
    elif own in options:
        yield from _with_values(name, own, value if equals else None, words, models=models)
    elif name == "--junit" and after.endswith(".xml") and "--output" in options:
        yield from ("--format", "junit", "--output", words.pop(0))
    elif name in ("--plot", "--figure") and "--metric" in options:
        yield from ("--output", words.pop(0)) if after.endswith(_PICTURES) and not equals else ()
    elif name in _FILES and after.endswith(f".{name[2:]}") and "--output" in options:
        yield from ("--output", words.pop(0))
    else:
        yield from _of_others(word, own, after, words, options, models=models)


def _of_others(
    word: str, own: str, after: str, words: list[str], options: Collection[str], *, models: bool
) -> Iterator[str]:  # fmt: skip
    """A word that is no option of the command: what it means, or itself."""
    value = after if "=" in word else ""
    if own in _FLAGS and _FLAGS[own][0] in options and not after.isdecimal():
        yield from () if _FLAGS[own][0] == "--device" and "--device" in words else _FLAGS[own]
    elif own in _REWRITTEN and after and _REWRITTEN[own](after)[0] in (own, *options):
        yield from _REWRITTEN[own](value or words.pop(0))
    elif "--set" in options and after and (key := _key_of_blocks(own)) is not None:
        yield from ("--set", f"{key}={value or words.pop(0)}")
    elif (own in ("--family", "--search") and "--totals" in options and after) or (
        own in _NAMES and after and not models
    ):
        yield value or words.pop(0)
    elif own in ("--match-params", "--match-macs", "--match-flops") and "--match" in options:
        yield from ("--match", own.removeprefix("--match-"))
        words[:] = words[1:] if words and words[0][:1].isdecimal() else words
    elif not _is_needless(own, after, options):
        yield word


def _is_needless(own: str, after: str, options: Collection[str]) -> bool:
    """Does the command that has these options do, or show, what the flag asks for without it?"""
    if own in _SERVED or own in ("--memory", "--attention-memory"):  # with a number they are limits
        needs = "--memory-share" if own in _SERVED else "--by"
        return needs in options and not after[:1].isdecimal()
    return any(
        own in flags and not needed.isdisjoint(options)
        for flags, needed in ((_SHOWN, {"--by", "--sort"}), (_DRAWN, {"--metric"}), (_CHECKED, {"--max-macs"}))
    )


def _of_servers(own: str, after: str, words: Sequence[str]) -> str:
    """`--input 2048 --output 256` of servers are tokens: those of the prompt, and those that are generated."""
    if own == "--output" and after.isdecimal():
        return "--new-tokens"
    generates = any(name in ("--output", "--output-len") and value.isdecimal() for name, value in pairwise(words))
    return "--N" if own == "--input" and after.isdecimal() and generates else own


def _key_of_blocks(option: str) -> str | None:
    """`--num-heads` and `--heads` -> `heads`; None of what is no key of all stages or all blocks."""
    from xfcost.spec.other_names import OWN_KEYS

    word = option.removeprefix("--").replace("-", "_")
    keys = {one.key for one in OWN_KEYS.values() if one.place.startswith("stages") and not one.kind}
    return next((one for one in (word, getattr(OWN_KEYS.get(word), "key", "")) if one in keys), None)


def _own(name: str, options: Collection[str]) -> str:
    """The option of ours that `name` is, or `name` with hyphens."""
    from xfcost.api.options import ALIASES

    if name in options:
        return name
    name = _LETTERS.get(name, name.replace("_", "-") if name.startswith("--") else name)
    aliased = f"--{ALIASES.get(name.removeprefix('--'), '')}" if name.startswith("--") else ""
    return aliased if aliased in options and name not in options else name


def _with_values(name: str, own: str, value: str | None, words: list[str], *, models: bool) -> Iterator[str]:
    """An option of ours and its value; the words of a list are one value."""
    if own == "--input" and value is None and len(named := [*takewhile(_NAMED_SHAPE.fullmatch, words)]) > 1:
        del words[: len(named)]
        yield from (word for one in named for word in ("--input", one.replace(":", "=", 1)))
        return
    if own in _LISTS and value is None:
        fits = _is_word if own in ("--lora-on", "--columns") else _NUMBER.fullmatch
        several = [*takewhile(fits, words)] if models or fits is not _is_word else words[:1]
        if len(several) > 1:
            words[:] = [_LISTS[own].join(several), *words[len(several) :]]
    if value is not None:
        yield f"{own}={_thousands(name, value)}"
        return
    yield own
    if words and own in ("--N", "--size"):
        word = words.pop(0).removeprefix(f"{own[2:]}=")
        ends = _RANGE.fullmatch(word) if own == "--N" else None
        yield _thousands(name, f"{ends[1]}:{ends[2]}" if ends else word)
    elif words and (own, words[0]) in _VALUES:
        yield _VALUES[own, words.pop(0)]
    elif words and own in (*_LISTS, "--set", "--build"):
        yield words.pop(0)


def _is_word(word: str) -> bool:
    return not word.startswith("-")


class Binary(NamedTuple):
    """A number of tokens as contexts are called: `32k`, of which most have 32,768."""

    decimal: int
    number: int
    text: str
    """`32Ki`."""


def in_binary(value: str, least: int = 16) -> Binary | None:
    """`32k` as contexts are called; None of what is called otherwise, as `10k`, and of fewer than `least` thousands."""
    number = int(value[:-1]) if value.endswith("k") and value[:-1].isdecimal() else 0
    called = number >= least and number.bit_count() == 1
    return Binary(1000 * number, 1024 * number, f"{number}Ki") if called else None


def _thousands(name: str, value: str) -> str:
    """Of a context in thousands the number that it has."""
    binary = in_binary(value, least=1) if name in _CONTEXTS else None
    return value if binary is None else binary.text


def _device(value: str) -> tuple[str, str]:
    """`--gpu l4` and `--gpu 4090` name a device; the index of one, `--gpu 0`, does not."""
    named = (value[:1].isalpha() and value != "cuda") or re.match(r"\d{4}", value)
    return "--on" if named else "--gpu", value


def _devices(value: str) -> tuple[str, str]:
    """`--gpus 8` is a number of devices, `--gpus l4` names them."""
    return ("--devices", value) if value.isdecimal() else ("--on" if _device(value)[0] == "--on" else "--gpus", value)


def _rate(value: str) -> tuple[str, str]:
    """At most 50 ms between the tokens of a user are at least 20 per second."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)?", value)
    seconds = float(found[1]) / (1 if found[2] == "s" else 1000) if found else 0
    return ("--tokens-per-user", f"{1 / seconds:.4g}") if seconds else ("--target-latency", value)


def _arguments(value: str) -> tuple[str, ...]:
    """`{"dim": 256}` and `dim=256,depth=4` are arguments of a class."""
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    pairs = [f"{key}={json.dumps(one)}" for key, one in found.items()] if isinstance(found, dict) else value.split(",")
    return tuple(word for pair in pairs for word in ("--build", pair))


# Options whose value decides what they are.
_REWRITTEN: Final[dict[str, Callable[[str], tuple[str, ...]]]] = {
    "--gpu": _device,
    "--gpus": _devices,
    "--bits": lambda value: ("--weights-dtype", f"int{value}"),
    **dict.fromkeys(("--kwargs", "--model-args", "--init-kwargs", "--model-kwargs"), _arguments),
    **dict.fromkeys(("--target-latency", "--tpot", "--itl"), _rate),
}


def _offloaded(value: str) -> str:
    return "--offload, the number of first blocks on the host (-ngl has those on the GPU)"


def _on(value: str) -> str:
    return "--on h100-sxm (compute from its datasheet) or --device cuda (run and time the model here)"


def _memory(value: str) -> str:
    return f"--on rtx4060 (a device; `xfcost devices` lists them), or xfcost check SPEC --max-memory {value or '8GB'}"


# Options that may mean several things here -> what to write, with the value that was given.
MEANT: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(("--gpu", "--gpus"), _on),
    **dict.fromkeys(("-ngl", "--ngl", "--n-gpu-layers"), _offloaded),
    **dict.fromkeys(("--memory", "--vram", "--gpu-memory", "--ram"), _memory),
    "--measured": lambda value: "--step-time 210ms, the seconds of one step",
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
    **dict.fromkeys(
        (
            "count",
            "flops",
            "params",
            "macs",
            "summary",
            "info",
            "run",
            "breakdown",
            "explain",
            "describe",
            "inspect",
            "classify",
            "ops",
            "cost",
            "complexity",
            "formula",
            "formulas",
            "attention",
            "table",
        ),
        ("analyze", {}),
    ),
    **{form: ("analyze", {"--format": form}) for form in ("json", "csv", "markdown", "latex")},
    **dict.fromkeys(("time", "bench", "benchmark", "profile"), ("analyze", {"--device": "cpu"})),
    **dict.fromkeys(
        ("serve", "fit", "max-batch", "throughput", "tokens-per-second", "latency", "inference", "infer"),
        ("analyze", {"--mode": "decode", "--on": "h100-sxm"}),
    ),
    "fits": ("check", {"--mode": "decode", "--on": "h100-sxm"}),
    **dict.fromkeys(("decode", "kv-cache", "kv", "kvcache", "cache"), ("analyze", {"--mode": "decode"})),
    **{mode: ("analyze", {"--mode": mode}) for mode in ("generate", "prefill")},
    **dict.fromkeys(("train", "finetune", "fine-tune", "training"), ("analyze", {"--mode": "train"})),
    "lora": ("analyze", {"--mode": "train", "--lora": "16"}),
    "qlora": ("analyze", {"--mode": "train", "--lora": "16", "--weights-dtype": "nf4"}),
    **dict.fromkeys(
        ("speculative", "speculate", "spec-decode", "speculative-decoding", "draft"),
        ("analyze", {"--mode": "decode", "--draft": "ngram", "--on": "h100-sxm"}),
    ),
    **dict.fromkeys(("estimate", "memory", "mem", "estimate-memory", "vram"), ("analyze", {"--on": "h100-sxm"})),
    **dict.fromkeys(("scale", "scaling", "sweep", "growth", "graph"), ("plot", {})),
    **dict.fromkeys(("verify", "trace", "crosscheck", "cross-check"), ("analyze", {"--trace": ""})),
    **dict.fromkeys(
        ("max-context", "longest-context", "max-length", "max-seq-len", "context"),
        ("analyze", {"--mode": "decode", "--on": "h100-sxm"}),
    ),
    **dict.fromkeys(("validate", "lint", "budget", "ci", "gate", "assert"), ("check", {})),
    **dict.fromkeys(("crossover", "vs", "versus"), ("compare", {})),
    "mfu": ("analyze", {"--mode": "train", "--on": "h100-sxm"}),
    **dict.fromkeys(("baseline", "save"), ("analyze", {"--output": "baseline.json"})),
    "convert": ("import", {}),
    "search": ("find", {}),
    "html": ("report", {}),
    **dict.fromkeys(("init", "template"), ("new", {})),
    **dict.fromkeys(("presets", "ls"), ("list", {})),
    "models": ("list", {"--models": ""}),
    **dict.fromkeys(("gpus", "gpu", "hardware"), ("devices", {})),
    **dict.fromkeys(("which-gpu", "choose", "recommend"), ("analyze", {"--mode": "decode", "--on": "nvidia"})),
}
_DRAFTED: Final = {name for name, (_, more) in COMMANDS.items() if "--draft" in more}
# Options that one command has -> that command, and its option; where another command is given them, that one runs.
_ELSEWHERE: Final = {
    **dict.fromkeys(("--plot", "--figure"), ("plot", "--output")),
    "--html": ("report", "--output"),
    **dict.fromkeys(("--save-baseline", "--update-baseline", "--write-baseline"), ("analyze", "--output")),
    **dict.fromkeys(
        ("--fail-above", "--fail-on-increase", "--threshold", "--tolerance", "--max-increase"),
        ("check", "--max-increase"),
    ),
    **dict.fromkeys(("--against", "--baseline"), ("check", "--against")),
    **{
        f"--max-{quantity}": ("check", f"--max-{quantity}")
        for quantity in ("params", "macs", "flops", "memory", "kv-cache", "seconds")
    },
    **dict.fromkeys(("--max-latency", "--max-time"), ("check", "--max-seconds")),
}


def meant(words: Sequence[str], options: Callable[[str], Collection[str]]) -> list[str] | None:
    """The command line that one of other tools means; None where its first word is ours, none of theirs and no model.

    A model alone is analyzed, as a path is: `xfcost vit`; several are compared. An option that another command has
    runs that one. `options` has the flags of one of our commands, and nothing of a word that is none.
    """
    name, *rest = words
    own, more = COMMANDS.get(name, (name, dict[str, str]()))
    if name not in COMMANDS and not options(name):
        if not _is_model(name):
            return None
        own, rest = "analyze", [*words]
    if name in ("baseline", "save"):
        rest = rest[rest[:1] in (["save"], ["create"], ["update"], ["new"], ["write"]) :]
    elsewhere = _elsewhere(own, rest, options)
    if own == name and elsewhere is None:
        models = [*takewhile(_is_word, rest)]
        return ["compare", *translated(rest, options("compare"))] if own == "analyze" and len(models) > 1 else None
    if elsewhere is not None:
        own, rest = elsewhere
    before = next((place for place, word in enumerate(rest) if word.startswith("-")), len(rest))
    if name in _DRAFTED and before == 2:  # noqa: PLR2004 - the model and its draft
        rest, before = [rest[0], "--draft", *rest[1:]], 1
    if own == "analyze" and before > 1:
        own = "compare"
    elif before == 1 and (own == "compare" or (own == "plot" and _lists(translated(rest, options(own))))):
        own = "plot" if own == "plot" and any(word.endswith(_PICTURES) for word in rest) else "analyze"
    given = list(translated(rest, options(own)))
    flags = {"--output" if word == "-o" else word.partition("=")[0] for word in given}
    added = [word for flag, value in more.items() if flag not in flags for word in (flag, value) if word]
    return [own, *given, *added]


def _lists(given: Iterable[str]) -> bool:
    """Has an option several values, and is none of them a range? Two numbers of --size are a height and a width."""
    values = {word: after for word, after in pairwise(given) if word in ("--N", "--size", "--batch")}
    several = any(value.count(",") > (option == "--size") for option, value in values.items())
    return several and not any(":" in value for value in values.values())


def _elsewhere(
    own: str, rest: Sequence[str], options: Callable[[str], Collection[str]]
) -> tuple[str, list[str]] | None:  # fmt: skip
    """The command that has an option which `own` lacks, and its words; None where all are its own, or no command's."""
    for place, word in enumerate(rest):
        name, equals, value = word.partition("=")
        command, option = _ELSEWHERE.get(name, ("", ""))
        if not command or name in options(own) or command == own or _own(name, options(own)) in options(own):
            continue
        before, after = [*rest[:place]], [*rest[place + 1 :]]
        models = [*takewhile(_is_word, before)]
        if own == "diff" and command == "check" and len(models) == 2:  # noqa: PLR2004 - before and after
            before = [models[1], "--against", models[0], *before[2:]]
        if option == "--output" and not (value or (after and _is_word(after[0]))):
            return command, [*before, *after]
        return command, [*before, option + equals + value, *after]
    return None


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
