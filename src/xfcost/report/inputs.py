"""What every system was counted for, in words: the image it sees, its tokens, how it runs; and where inputs differ.

The same N is not the same picture where patches differ, so every report carries the image's size beside N.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xfcost.ledger.grid import sides_text
from xfcost.ledger.metadata import Facts
from xfcost.report.modes import asked

# Systems that see one size and are named; of more, how many there are.
_MOST_NAMED: Final = 3


def circumstances(facts: Facts) -> str:
    """On which image, at which N, batch and dtype, and how executed."""
    return f"{input_text(facts)}   {run_text(facts)}"


def input_text(facts: Facts) -> str:
    """What comes in: `image 224×224   tokens 784 (28×28) + 1`."""
    return "   ".join(text for text in (_image_text(facts), f"tokens {facts.tokens}") if text)


def common_input_text(systems: Sequence[Facts]) -> str:
    """What all of several systems have in common of it: `image 224×224   `, `N = 784   `."""
    images, tokens = ({function(facts) for facts in systems} for function in (_image_text, lambda one: one.grid_tokens))
    image = f"{images.pop()}   ".lstrip() if len(images) == 1 else ""
    return image + (f"N = {tokens.pop():,}   " if len(tokens) == 1 else "")


def run_text(facts: Facts) -> str:
    """How it is run, the same for all systems of a comparison: batch, dtype, execution, mode; settings below."""
    changed = "   ".join(f"--set {setting}" for setting in facts.settings)
    how = f"batch {facts.batch}   {facts.dtype}   attention {facts.attention}{asked(facts)}"
    return f"{how}\n{changed}" if changed else how


def _image_text(facts: Facts) -> str:
    """`image 224×224`, `video 16×224×224`; nothing where no image comes in."""
    if facts.image is None:
        return ""
    kind = "image" if len(facts.image) == 2 else "video"  # noqa: PLR2004 - height and width
    return f"{kind} {sides_text(facts.image)}"


def image_cell(facts: Facts) -> str | None:
    """The image's height and width as `--size` takes them, `224x224`; None where no image comes in."""
    return None if facts.image is None else "x".join(str(side) for side in facts.image[-2:])


def input_object(facts: Facts) -> dict[str, Any]:
    """The same as plain data."""
    image = None if facts.image is None else list(facts.image)
    return {"tokens": facts.grid_tokens, "extra_tokens": facts.extra_tokens, "image": image, "batch": facts.batch}


def input_warnings(systems: Mapping[str, Facts]) -> Iterator[str]:
    """How the inputs of several systems differ: in N, in the image that they see."""
    if len({facts.grid_tokens for facts in systems.values()}) > 1:
        yield "each at its own N, and they differ; --N sets one N for all"
    if told := _images_differ(systems):
        yield told


def _images_differ(systems: Mapping[str, Facts]) -> str | None:
    """`images differ: ViT-S/8 sees 224×224, Swin-T 112×112; --size compares equal images`."""
    seen: dict[tuple[int, ...], list[str]] = {}
    for name, facts in systems.items():
        if facts.image is not None:
            seen.setdefault(facts.image[-2:], []).append(name)
    if len(seen) < 2:  # noqa: PLR2004 - one size is no difference
        return None
    first, *others = [(names_text(names), sides_text(size)) for size, names in seen.items()]
    sees = "see" if len(next(iter(seen.values()))) > 1 else "sees"
    told = ", ".join([f"{first[0]} {sees} {first[1]}", *(f"{names} {size}" for names, size in others)])
    mend = "; --size compares equal images" if all(facts.image for facts in systems.values()) else ""
    return f"images differ: {told}{mend}"


def names_text(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and 7 more`."""
    if len(names) == 1:
        return names[0]
    last = names[-1] if len(names) <= _MOST_NAMED else f"{len(names) - _MOST_NAMED + 1} more"
    return f"{', '.join(names[: min(len(names), _MOST_NAMED) - 1])} and {last}"
