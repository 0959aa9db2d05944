"""A run in words: the image, N, batch, dtype, attention, mode; and how the inputs of several systems differ.

With other patches the same N is another image, so every report has the image's size next to N.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from xfcost.ledger.grid import sides_text
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.visible import one_line
from xfcost.spec.architecture import PROMPTED

# Systems that are named in a list; of more, how many there are.
_MOST_NAMED: Final = 3


def circumstances(metadata: Metadata) -> str:
    """The input and the run on one line; settings below."""
    return f"{input_text(metadata)}   {run_text([metadata])}"


def input_text(metadata: Metadata) -> str:
    """The input: `image 224×224   tokens 784 (28×28) + 1`; of a module its tensors."""
    if metadata.inputs is not None:
        return f"inputs {metadata.inputs}"
    return f"{_image_text(metadata)}tokens {metadata.tokens}"


def common_input_text(systems: Sequence[Metadata]) -> str:
    """The part of it that several systems share: `image 224×224   `, `N = 784   `."""
    images, tokens = {_image_text(one) for one in systems}, common_tokens(systems)
    return (images.pop() if len(images) == 1 else "") + (f"N = {tokens:,}   " if tokens else "")


def common_tokens(systems: Iterable[Metadata]) -> int | None:
    """N, where all systems have the same."""
    tokens = {one.grid_tokens for one in systems}
    return (tokens.pop() or None) if len(tokens) == 1 else None


def first_stage(systems: Iterable[Metadata]) -> str:
    """` of the first stage`, behind the tokens N of systems some of which have other numbers in later stages."""
    hierarchical = any(len({stage["tokens"] for stage in one.stages}) > 1 for one in systems)
    return " of the first stage" if hierarchical else ""


def run_text(systems: Sequence[Metadata]) -> str:
    """Batch, dtype, formats, mode, and attention if any has it: the same for all systems; settings below."""
    metadata = systems[0]
    attention = f"   {metadata.attention} attention" if any(one.attends for one in systems) else ""
    one = " (one step)" if metadata.mode in ("decode", "train") else ""
    mode = "" if metadata.mode == "forward" else f"   mode {metadata.mode}{one}"
    mode += f", {metadata.cached_prefix:,} tokens cached" if metadata.cached_prefix else ""
    weights = {None if one.weight_format is None else one.weight_format.name for one in systems}
    caches = {one.cache_format for one in systems}
    known = {"weights": weights, "cache": caches}
    formats = {name: found.pop() if len(found) == 1 else None for name, found in known.items()}
    dtype = "   ".join([metadata.dtype, *(f"{name} {what}" for what, name in formats.items() if name is not None)])
    mode += "" if metadata.lora is None else f"   {metadata.lora.words()}"
    run = f"batch {metadata.batch}   {dtype}{attention}{mode}"
    if metadata.logits is not None and metadata.mode in PROMPTED:
        run += ", logits of " + ("the last position" if metadata.logits == "last" else "all positions")
    settings = "   ".join(f"with {setting}" for setting in metadata.settings)
    if metadata.inputs is not None:
        return f"{dtype}{attention}{mode}"
    return f"{run}\n{one_line(settings)}" if settings else run


def default_notes(systems: Iterable[Metadata]) -> list[str]:
    """Why dtype and attention are what they are, where the caller gave none; the same of several systems once."""
    every = list(systems)
    said = [one for one in every if one.attends] or every
    return list(dict.fromkeys(one.default_note for one in said if one.default_note is not None))


def _image_text(metadata: Metadata) -> str:
    """`image 224×224   `, `video 16×224×224   `; nothing without an image."""
    if metadata.image is None:
        return ""
    kind = "image" if len(metadata.image) == 2 else "video"  # noqa: PLR2004 - height and width
    return f"{kind} {sides_text(metadata.image)}   "


def image_cell(metadata: Metadata) -> str | None:
    """The image's height and width as `--size` takes them, `224x224`; None without an image."""
    return None if metadata.image is None else "x".join(str(side) for side in metadata.image[-2:])


def input_object(metadata: Metadata) -> dict[str, Any]:
    """The same as plain data."""
    image = None if metadata.image is None else list(metadata.image)
    size = {"tokens": metadata.grid_tokens, "extra_tokens": metadata.extra_tokens}
    return size | {"image": image, "batch": metadata.batch}


def input_warnings(systems: Mapping[str, Metadata], *, options: bool = True) -> Iterator[str]:
    """How the inputs of several systems differ: in N, and in the image (`ViT-S/8 sees 224×224, Swin-T 112×112`).

    With `options` they name the option that sets equal inputs.
    """
    different = sorted({metadata.grid_tokens for metadata in systems.values() if metadata.grid_tokens})
    if len(different) > 1:
        some = " and " if len(different) == 2 else " to "  # noqa: PLR2004 - of more the ends
        mend = " To compare at equal N, pass --N." if options else ""
        yield f"The models see different numbers of tokens ({different[0]:,}{some}{different[-1]:,}).{mend}"
    run: dict[str, list[str]] = {}
    for name, metadata in systems.items():
        if metadata.attention != "no":
            run.setdefault(metadata.attention, []).append(name)
    if len(run) > 1:
        told = ", ".join(f"{attention} in {names_text(names)}" for attention, names in run.items())
        yield f"Attention has the same MACs, but different memory: {told}."
    if sizes := different_images(systems):
        sized = options and all(metadata.image for metadata in systems.values())
        mend = " To compare equal images, pass --size." if sized else ""
        yield f"The images differ: {sizes}.{mend}"
    told_of: dict[str, list[str]] = {}
    for name, metadata in systems.items():
        for warning in metadata.warnings:
            told_of.setdefault(warning, []).append(name)
    yield from (f"{names_text(names)}: {warning}" for warning, names in told_of.items())


def different_images(systems: Mapping[str, Metadata]) -> str:
    """`ViT-S/8 sees 224×224, Swin-T 112×112`; nothing where all images are alike."""
    seen: dict[str, list[str]] = {}
    for name, metadata in systems.items():
        if metadata.image is not None:
            seen.setdefault(sides_text(metadata.image[-2:]), []).append(name)
    if len(seen) < 2:  # noqa: PLR2004 - two that differ
        return ""
    (size, names), *others = seen.items()
    first = f"{names_text(names)} {'see' if len(names) > 1 else 'sees'} {size}"
    return ", ".join([first, *(f"{names_text(names)} {size}" for size, names in others)])


def names_text(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and 7 more`."""
    if len(names) == 1:
        return names[0]
    last = names[-1] if len(names) <= _MOST_NAMED else f"{len(names) - _MOST_NAMED + 1} more"
    return f"{', '.join(names[: min(len(names), _MOST_NAMED) - 1])} and {last}"
