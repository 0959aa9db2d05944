"""Load a preset or a file as a checked `Spec`: `extends`, `set`, `--set`, and all errors with file and line."""

from __future__ import annotations

import copy
import fnmatch
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from xfcost.ledger.errors import (
    SpecError,
    UsageError,
    XfcostError,
    combined,
    combined_message,
    did_you_mean,
    near_names,
    printable,
    shown,
)
from xfcost.ledger.files import Expected
from xfcost.ledger.quantization import WEIGHT_FORMATS, WeightFormat
from xfcost.spec.grammar import Spec, converted
from xfcost.spec.hub import hub_name
from xfcost.spec.models import config_of, listed_name, models, squeezed, squeezed_names
from xfcost.spec.other_names import OWN_KEYS
from xfcost.spec.overrides import apply_file_settings, apply_settings
from xfcost.spec.presets import preset_paths
from xfcost.spec.reader import Source, YamlPath, check_inside, read, read_file, shown_value, value_at
from xfcost.spec.targets import module_target
from xfcost.spec.usual_models import from_hyperparameters

STDIN: Final = "-"
"""The name of a spec that is read from stdin."""
# Keys that describe a file itself, and not the files that extend it.
_NOT_INHERITED: Final = ("published", "survey", "extends", "notes", "set")


def merged(below: tuple[dict[str, Any], Source], above: tuple[dict[str, Any], Source]) -> tuple[dict[str, Any], Source]:
    """`above` over `below`: mappings of one kind are merged key by key, anything else is replaced whole.

    Published figures, a survey's line and notes are not inherited, unless `above` changes nothing and so is another
    name of `below`.
    """
    (below_data, below_source), (above_data, above_source) = below, above
    not_inherited = _NOT_INHERITED if len(above_data) > 1 else ("extends", "set")
    replaced: list[YamlPath] = [(key,) for key in not_inherited]
    inherited = {key: value for key, value in below_data.items() if key not in not_inherited}
    data = _merged(inherited, above_data, (), replaced)
    prefixes, lengths = set(replaced), {len(path) for path in replaced}
    inherited_lines = {
        path: line
        for path, line in below_source.lines.items()
        if not any(path[:length] in prefixes for length in lengths)
    }
    return data, Source(above_source.name, inherited_lines | above_source.lines)


def _merged(below: dict[str, Any], above: dict[str, Any], path: YamlPath, replaced: list[YamlPath]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            result[key] = _merged(old, value, (*path, key), replaced)
        else:
            result[key] = value
            replaced.append((*path, key))
    return result


_MOST_EXTENDS: Final = 16


class Loaded(msgspec.Struct, frozen=True):
    """A checked spec, its data after `extends` and `--set`, and the file and line of every value."""

    spec: Spec
    data: dict[str, Any]
    source: Source
    name: str
    settings: tuple[str, ...] = ()
    weights: WeightFormat | str | None = None
    """The format of its published weights; of a config.json that of its checkpoint, or what is not known of that."""
    positions: int | None = None
    """Of a config.json: the most tokens that it has positions for."""
    dtype: str | None = None
    """Of a config.json: the dtype that it says its weights have."""
    remarks: tuple[str, ...] = ()
    """Of a file of hyperparameters as what it was read; of more tokens than it has positions that rows were added."""


def _published_weights(spec: Spec) -> WeightFormat | None:
    form = next((one.weights for one in spec.published if one.weights is not None), None)
    return None if form is None else msgspec.structs.replace(WEIGHT_FORMATS[form], published=True)


class Written(msgspec.Struct, frozen=True):
    """A spec file as written, before `extends` and `set`."""

    shown: str
    """Its name in messages."""
    text: str
    data: dict[str, Any]
    source: Source


@cache
def preset_files() -> Mapping[str, Path]:
    """Preset name -> file, in the gallery's order (family by family)."""
    ordered = sorted(preset_paths().items(), key=lambda item: (os.path.dirname(item[1]), _natural(item[0])))
    return {name: Path(file) for name, file in ordered}


def preset_names() -> list[str]:
    """All presets."""
    return list(preset_files())


def presets_with(key: str) -> list[str]:
    """The presets whose own file has this key, found without reading the others as specs."""
    return [name for name, file in preset_files().items() if f"\n{key}:" in file.read_text(encoding="utf-8")]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def canonical(name: str) -> str:
    """The preset or published model that `name` is in another spelling: `ViT`, `Qwen/Qwen3-32B`; else `name` itself."""
    files = preset_paths()
    if name in files:
        return name
    base, own = with_own_settings(name)
    if own:
        return ":".join([canonical(base), *own])
    library = _LIBRARIES.match(name)
    if library and canonical(name[library.end() :]) in files:
        name = name[library.end() :]
    if is_path(name) or os.path.exists(name):
        in_papers = "" if os.path.exists(name) or not _IN_PAPERS.fullmatch(name) else canonical(name.replace("/", ""))
        return listed_name(name) or (in_papers if in_papers in files else name)
    lower = name.lower()
    if {lower, f"common-{lower}"} & files.keys():
        return lower
    return listed_name(name) or _in_another_spelling(name)


def _in_another_spelling(name: str) -> str:
    """The model that `name` spells otherwise, the usual one of a family, or the first whose name begins so."""
    lower, known = name.lower(), squeezed_names() | _squeezed_presets()
    first = next((preset for preset in preset_files() if preset.startswith(f"{lower}-")), name)
    return next((known[one] for one in _spellings(lower) if one in known), _USUAL_OF_FAMILY.get(squeezed(lower), first))


def same_model(text: str) -> str | None:
    """The preset or published model that a model on the Hub is by its name: `org/Llama-2-7b-chat-hf` is llama2-7b."""
    name = text.removeprefix("hf:").partition("@")[0].rpartition("/")[2].lower()
    for one in (name, _TUNED.sub("", name), _TUNED.sub("", name).removeprefix("meta-")):
        own = canonical(one)
        if one and (own in preset_paths() or own in models()):
            return own
    return None


# What the names of variants say behind that of the model, whose architecture they have.
_TUNED: Final = re.compile(r"(-(instruct|chat|it|hf|base|v0\.1|sft|dpo|\d{4}))+$")
# `ViT-B/16` is vit-b16.
_IN_PAPERS: Final = re.compile(r"[\w.-]+/\d+")
_LIBRARIES: Final = re.compile(r"(timm|torchvision|keras|transformers)[:/]")


def with_own_settings(name: str) -> tuple[str, list[str]]:
    """`llama3-8b:heads=16:kv_heads=16` -> the spec and its own overrides; none of another text."""
    base, *own = name.split(":")
    return (base, own) if base and all(_SETTING.match(one) for one in own) else (name, [])


_SETTING: Final = re.compile(r"[\w.*]+=")


@cache
def _squeezed_presets() -> dict[str, str]:
    return {squeezed(name): name for name in preset_paths()}


# Words of the names in timm -> those of the papers.
_SIZES: Final = {"small": "s", "base": "b", "large": "l", "huge": "h"}
# What those names say of presets that have no other.
_USUAL: Final = {"hf", "uncased", "224", "patch4", "window7"}


# A family, without separators -> the model of it that papers compare with.
_USUAL_OF_FAMILY: Final = {
    "bert": "bert-base", "bloom": "bloom-7b1", "cait": "cait-s24", "conformer": "conformer-m",
    "convnext": "convnext-t", "cvt": "cvt-13", "deepseek": "deepseek-v3", "deit": "deit-s", "deit3": "deit3-s",
    "efficientnet": "efficientnet-b0", "gateddeltanet": "gated-deltanet-1.3b", "gmlp": "gmlp-s", "gpt": "gpt2",
    "hyena": "hyena-153m", "igpt": "igpt-l", "lineartransformer": "common-linear",
    "llama": "llama3.1-8b", "llama2": "llama2-7b", "llama3": "llama3-8b",
    "mamba": "mamba-130m", "mamba2": "mamba2-130m", "mistral": "mistral-7b", "mixer": "mixer-b16",
    "mixtral": "mixtral-8x7b", "mlpmixer": "mixer-b16", "mobilenet": "mobilenetv2-1.0",
    "mobilenetv2": "mobilenetv2-1.0", "mobilevit": "mobilevit-s", "mvit": "mvit-b-16x4", "mvitv2": "mvitv2-t",
    "poolformer": "poolformer-s12", "pvt": "pvt-small", "pvtv2": "pvt-v2-b2", "regnet": "regnety-4.0gf",
    "regnetx": "regnetx-4.0gf", "regnety": "regnety-4.0gf", "resmlp": "resmlp-s24", "resnet": "resnet-50",
    "resnext": "resnext-50-32x4d", "rwkv": "rwkv4-169m", "rwkv4": "rwkv4-169m", "swinv2": "swinv2-t-w8-256",
    "t5": "t5-base", "twins": "twins-svt-s", "vgg": "vgg-16", "wideresnet": "wide-resnet-50-2",
}  # fmt: skip


def _spellings(name: str) -> Iterator[str]:
    """Names of presets, without separators, that `name` may be: `swin_tiny_patch4_window7_224` gives `swint`."""
    words = [word for word in re.split("[-_ ]", name) if word not in _USUAL]
    yield "".join(words)
    yield "".join(words) + "base"
    for tiny in ("t", "ti"):
        short = [(_SIZES | {"tiny": tiny}).get(word, word) for word in words]
        yield "".join(word.removeprefix("patch") for word in short)
        yield "".join(word for word in short if not word.startswith("patch"))
        yield "".join([*short, "16"])


def expanded(names: Sequence[str], published: Collection[str] = ()) -> list[str]:
    """`names` with every pattern (`common-*`) replaced by the presets and `published` models that match it, each once.

    Raises:
        UsageError: a pattern matches none.
    """
    result: list[str] = []
    for name in names:
        if not re.search(r"[*?\[]", name) or is_path(name):
            result.append(canonical(name))
            continue
        matching = fnmatch.filter([*preset_names(), *published], name.lower())
        if not matching:
            what, lists = "preset", "`xfcost list` names them"
            if published:
                what, lists = "preset or published model", "`xfcost list` and `xfcost list --models` name them"
            raise UsageError(f"{shown(name)}: no {what} matches; {lists}")
        result += [preset for preset in matching if preset not in result]
    return result


def load(name: str, settings: Sequence[str] = ()) -> Loaded:
    """The spec called `name`: a preset, or a path to a YAML file.

    Args:
        name: a preset (`vit`), or a path (it has a separator or ends in .yaml or .yml). Overrides of its own follow
            colons (`vit:heads=4`); a key without dots is that of all parts that have it.
        settings: `key.path=value` overrides, as after `--set`.

    Raises:
        SpecError: with file, line and path of every error.
        UsageError: no such preset, or a setting that matches nothing.
    """
    name, own = with_own_settings(canonical(name))
    files = [(written.data, written.source) for written in lineage(name)]
    data, source = files.pop()
    setting_errors = apply_file_settings(data, source)
    while files:
        data, source = merged((data, source), files.pop())
        setting_errors += apply_file_settings(data, source)
    if setting_errors:
        raise combined([*setting_errors, *_spec_errors(data, source, name)])
    settings = [*map(_of_spec, [*own, *settings])]
    if own and isinstance(data.get("name"), str):
        data["name"] += f" ({', '.join(own)})"
    if unset := apply_settings(data, source, settings):
        errors = (part for error in _spec_errors(data, source, name) for part in error.parts)
        raise UsageError(combined_message([*unset, *map(str, errors)]))
    return checked(data, source, name, settings)


def _of_spec(setting: str) -> str:
    key, equals, value = setting.partition("=")
    other = OWN_KEYS.get(key)
    own = other.key if other and not other.kind and other.place.startswith("stages") else key
    return f"{own}{equals}{value}"


def checked(data: dict[str, Any], source: Source, name: str, settings: Sequence[str] = ()) -> Loaded:
    """The spec in `data`, after `extends` and `--set`.

    Raises:
        SpecError: with file, line and path of every error.
    """
    try:
        spec = converted(data, Spec)
        remarks = (source.read_as,) if source.read_as else ()
        return Loaded(spec, data, source, name, tuple(settings), weights=_published_weights(spec), remarks=remarks)
    except msgspec.ValidationError:
        found = combined(_spec_errors(data, source, name))
    # whose keys are those of a spec knows them
    lacks = not {"name", "input"} <= data.keys() or not {"stages", "encoder", "decoder"} & data.keys()
    if lacks and is_path(name) and not settings:
        like = _preset_like(data)
        found.mend = f"`xfcost new mine.yaml --like {like}` writes a spec to start from, with a comment on every key"
        if "hidden_size" in data:
            found.mend = f"hidden_size is a key of a config.json, of which `xfcost import` makes a spec; {found.mend}"
    raise found


def with_positions(loaded: Loaded, tokens: tuple[int, ...]) -> Loaded:
    """The spec with a row of its learned positions for each of so many tokens; as it is where it has them."""
    from xfcost.spec.placement import place  # placement imports this module
    from xfcost.spec.run import Run

    try:
        place(loaded, Run(tokens=tokens))
    except SpecError as error:
        if not error.option:
            return loaded
        setting = error.option.removeprefix("--set ")
        had = value_at(loaded.data, error.path)
    except UsageError:  # a run says it better
        return loaded
    else:
        return loaded
    data, source = copy.deepcopy(loaded.data), Source(loaded.source.name, loaded.source.lines)
    apply_settings(data, source, [setting])
    remark = (
        f"N = {max(tokens):,} is beyond the model's {had:,} learned positions: counted with a longer table, which no "
        "trained model has"
    )
    remarks, settings = (*loaded.remarks, remark), (*loaded.settings, setting)
    spec = converted(data, Spec)
    most = max(tokens)
    return msgspec.structs.replace(
        loaded, spec=spec, data=data, source=source, settings=settings, remarks=remarks, positions=most
    )


# Words of a file -> the preset that it is like; the first that has one of its words.
_LIKE: Final = {
    "mamba-130m": {"mamba", "mamba2", "ssm", "state_size", "d_state"},
    "gpt2": {"causal", "decoder", "language_model", "lm_head", "gpt", "llama"},
    "bert-base": {"masked_language_model", "pooler", "bert", "encoder"},
    "vit": {"image", "image_size", "img_size", "patch", "patch_size", "num_classes", "classes"},
}


def _preset_like(data: Any) -> str:
    """The preset to start from, by the keys and words of a file; a text is a decoder's where nothing says otherwise."""

    def words(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, one in value.items():
                yield from () if one is False else (str(key).lower(), *words(one))
        elif isinstance(value, list):
            for one in value:
                yield from words(one)
        else:
            yield str(value).lower()

    found = set(words(data))
    like = next((preset for preset, own in _LIKE.items() if own & found), None)
    of_text = {"tokens", *(word for word, own in OWN_KEYS.items() if own.place in {"input.vocabulary", "input.length"})}
    return like or ("gpt2" if of_text & found else "vit")


def load_expanded(text: str, name: str) -> Loaded:
    """A spec from its `data` as JSON, as another machine loaded it.

    Raises:
        SpecError: it is no spec of this version.
    """
    return checked(*read(text, printable(name, 200)), name)


def _spec_errors(data: dict[str, Any], source: Source, name: str) -> list[SpecError]:
    """All grammar errors and all misplaced components."""
    from xfcost.spec.grammar_errors import grammar_errors  # only bad input needs the schema

    errors: list[SpecError] = []
    spec: Spec | None
    try:
        spec = converted(data, Spec)
    except msgspec.ValidationError:
        errors, spec = grammar_errors(data, source)
    if spec is not None:
        errors += _placement_errors(Loaded(spec, data, source, name), [error.path[:-1] for error in errors])
    return errors


def _placement_errors(loaded: Loaded, reported: Sequence[YamlPath]) -> list[SpecError]:
    """Misplaced components, without those `reported` already for an unknown key."""
    from xfcost.spec.placement import place  # placement imports this module
    from xfcost.spec.run import Run

    try:
        place(loaded, Run())
    except SpecError as error:
        return [
            part for part in error.parts if not any(part.path in (path, (*path, *part.path[-1:])) for path in reported)
        ]
    except UsageError:
        pass
    return []


def lineage(name: str) -> list[Written]:
    """The file of the spec called `name`, then the one it extends, and so on.

    Raises:
        SpecError: a file can't be read, or extends a missing file, or itself.
        UsageError: no such preset.
    """
    _check_spec(name)
    path, shown, text = _first(name)
    first, first_shown = path, shown
    files: list[Written] = []
    paths: list[str] = []
    while True:
        data, source = from_hyperparameters(*read(text, shown), canonical)
        if "model_type" in data:
            raise source.error(
                ("model_type",),
                f"a config.json of transformers is not a spec; `xfcost import {shown} -o model.yaml` converts it",
            )
        files.append(Written(shown, text, data, source))
        parent = data.get("extends")
        if parent is None:
            return files
        paths.append(os.path.realpath(path))
        if not isinstance(parent, str):
            raise source.error(("extends",), f"expected the name of a preset or a file, got {shown_value(parent)}")
        try:
            path, shown = _find(parent, path)
            if parent not in preset_paths():
                check_inside(path, shown, first, first_shown)
            text = read_file(path, shown)
        except XfcostError as error:
            raise source.error(("extends",), str(error)) from None
        trail = " -> ".join(os.path.basename(file) for file in (*paths, str(path)))
        if os.path.realpath(path) in paths:
            raise source.error(("extends",), f"circular extends: {trail}")
        if len(paths) >= _MOST_EXTENDS:
            raise source.error(("extends",), f"more than {_MOST_EXTENDS} specs extend one another: {trail}")


def _check_spec(name: str) -> None:
    """Refuse what has no YAML.

    Raises:
        UsageError: it names a torch module or a checkpoint.
    """
    target = module_target(name)
    if target is not None and target.kind != "config":
        raise UsageError(
            f"{printable(name, 200)}: expected a spec; a torch module has no YAML "
            "(analyze, compare, plot, glance and diagram take it)"
        )
    if target is not None and target.checkpoint is not None:
        raise UsageError(
            f"{printable(name, 200)}: expected a spec; a checkpoint has no YAML (analyze, compare, find, plot, report "
            "and roofline take it)"
        )


# A name is proposed for a wrong one that is as similar.
_SIMILAR: Final = 0.7
# Presets with an unknown name in theirs that a message lists.
_MOST_NEAR: Final = 5


def _find(name: str, base: Path | None = None) -> tuple[Path, str]:
    """The file of a preset or a path (relative to the file `base`), and its name in messages."""
    if not name or "\0" in name:
        raise UsageError(f"expected the name of a preset or a path, got {shown_value(name)}")
    if base is None:
        name = canonical(name)
    if is_path(name):
        path = Path(name) if base is None else base.parent / name
        return path, printable(name if base is None else str(path), most=200)
    files = preset_paths()
    if name in models():
        raise UsageError(
            f"{name}: expected a spec; that is a published model (`xfcost list --models`), which analyze, check, "
            f"compare, find, plot, report, roofline and show take; its config is {config_of(name)}"
        )
    if name not in files and f"common-{name}" in files:  # a mechanism, in the model that all of them share
        name = f"common-{name}"
    if name not in files and os.path.isdir(name):
        raise SpecError(f"{printable(name)}: is a directory; expected a YAML file in it, or the name of a preset")
    if name not in files:
        raise UsageError(_no_preset(name))
    return Path(files[name]), f"{name}.yaml"


def _no_preset(name: str) -> str:
    hint = f"; to name a file, give its path: ./{name}" if os.path.exists(name) else ""
    names = [*preset_files(), *models()]
    near = near_names(name, names, similar=_SIMILAR) or [one for one in names if name.lower() in one][:_MOST_NEAR]
    meant = f"; {did_you_mean(near)}" if near else ""
    return (
        f"there is no preset {shown_value(name)}{meant}{hint} (`xfcost list` and `xfcost list --models` show all"
        f"{'' if near else '; any other model: its config.json, or model.py:NAME'})"
    )


def check_presets(names: Iterable[str]) -> None:
    """Raise UsageError where words among `names` are no preset, no model of the list and no path: of all of them."""
    known = {*preset_paths(), *models()}
    words = [name for name in map(canonical, names) if name and name != STDIN and not re.search(r"[^\w.-]", name)]
    unknown = [
        name
        for name in words
        if not ({name, f"common-{name}"} & known or is_path(name) or os.path.exists(name) or module_target(name))
    ]
    if unknown:
        raise UsageError("\n".join(map(_no_preset, unknown)))


def _first(name: str) -> tuple[Path, str, str]:
    """The file of a spec, its name in messages, and its text."""
    if name == STDIN:
        return Path(STDIN), "stdin", _stdin()
    path, shown = _find(name)
    if os.path.isdir(path):
        raise SpecError(
            f"{shown}: is a directory; expected a YAML file, or a folder with a config.json or with tensors"
        )
    return path, shown, read_file(path, shown, _expected_file(name))


@cache
def _stdin() -> str:
    """The text of a spec on stdin, which can be read once."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: expected a spec on stdin, as in `xfcost show vit | xfcost analyze -`")
    expected = Expected()
    data = sys.stdin.buffer.read(expected.most_bytes + 1)
    if len(data) > expected.most_bytes:
        raise SpecError(f"stdin: is larger than {expected.most_bytes:,} bytes; {expected.large}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"stdin: is not UTF-8 text (byte {error.start}); expected {expected.what}") from None


def _expected_file(name: str) -> Expected:
    """The message for a missing file `name`: a model's name on the Hub looks like a path, and gets a hint."""
    if hub_name(name) is None:
        return Expected()
    return Expected(missing=f"a spec of a model on the Hub is made by `xfcost import {name} --fetch -o model.yaml`")


_ENDINGS: Final = (".yaml", ".yml", ".json")


def is_path(name: str) -> bool:
    """Is it a path, or a spec on stdin, and not the name of a preset?"""
    return name == STDIN or "/" in name or os.sep in name or name.endswith(_ENDINGS) or name in (".", "..")
