"""What must be true of a whole spec before its components are placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from xfcost.formulas.component import Component, Joining, Mixer, Place, Residual, SubLayer, tag_of
from xfcost.formulas.layer import Embed
from xfcost.layers import EMBEDS
from xfcost.ledger.errors import ComponentError, UsageError
from xfcost.ledger.options import Logits, Mode
from xfcost.ledger.units import number_text
from xfcost.spec.architecture import PROMPTED, Part, Stream
from xfcost.spec.grammar import AnyInput, Spec
from xfcost.spec.reader import Source, YamlPath
from xfcost.spec.schedule import MOST_BLOCKS


def check_streams(spec: Spec, source: Source, tokens: tuple[int, ...] | None) -> None:
    """Either `stages` or an encoder and a decoder, and an N for each of them or one for all.

    Raises:
        SpecError: both are given, or neither.
        UsageError: `tokens` are too many.
    """
    named = [stream for stream in (spec.encoder, spec.decoder) if stream]
    if named and spec.stages:
        raise source.error(
            ("stages",), "stands beside `encoder`/`decoder`; expected either `stages` or the two streams"
        )
    if named and spec.embed:
        raise source.error(("embed",), "stands beside `encoder`/`decoder`; give each stream its own `embed`")
    if not named and not spec.stages:
        raise source.error((), "the key 'stages' is missing (or `encoder` and `decoder` in its place)")
    streams = len(named) or 1
    if tokens and len(tokens) not in (1, streams):
        given = ",".join(number_text(n) for n in tokens)
        there = (
            "one stream of tokens; give one number (a comma separates two; of thousands write 1_000)"
            if streams == 1
            else "two streams of tokens; give one number or two"
        )
        raise UsageError(f"--N {given}: {spec.name} has {there}")


def check_reading(spec: Spec, source: Source, components: Iterable[SubLayer]) -> None:
    """A decoder that never reads its encoder is two models; `components` are its sub-layers.

    Raises:
        SpecError: none of them reads the encoder's output.
    """
    if spec.encoder and spec.decoder and not any(component.reads_memory for component in components):
        raise source.error(("decoder",), "no sub-layer reads the encoder's output; add {kind: cross, …} to a block")


def logits_of(spec: Spec, source: Source, mode: Mode, asked: Logits | None) -> Logits:
    """The positions whose logits the head computes: of a prompt the last, unless `asked` says otherwise.

    Raises:
        SpecError: the last one's alone are asked for, and the head does not predict the next token.
    """
    if spec.head is not None and spec.head.predicts_next:
        return (asked or "last") if mode in PROMPTED else "all"
    if asked == "last":
        raise source.error(
            () if spec.head is None else ("head", "kind"),
            "--logits last: no head predicts the next token here (`language_model` does), so that no position's "
            "answer can stand for all; leave --logits out",
        )
    return "all"


def check_decoding(component: Component, place: Place, residual: Joining) -> None:
    """A component of a model that decodes can take one token more.

    Raises:
        ComponentError: it can't, or its residual can't.
    """
    for _ in component.decoding(place):
        pass
    if isinstance(residual, Residual) and residual.form == "reversible":
        raise ComponentError("residual", "--mode decode: a reversible residual has no step of one token here")
    if isinstance(residual, Residual) and residual.norm == "group_norm":
        raise ComponentError("residual", "--mode decode: a group norm's mean is over all tokens, later ones too")


def check_sum(path: YamlPath, part: Part, source: Source) -> None:
    """x + f(x) takes both as wide, unless the component does something to x first.

    Raises:
        SpecError: f changes the width.
    """
    component, place = part.component, part.place
    width = component.out(place)[1]
    shortens = isinstance(component, SubLayer) and any(True for _ in component.shortcut(place))
    if part.residual != "none" and width != place.dim and not shortens:
        raise source.error(
            path,
            f"x is {place.dim} wide and f(x) {width}: they can't be added; write residual: none, or bring x to that "
            "width before",
        )


def check_starts(streams: Sequence[Stream], source: Source) -> None:
    """Every recurrent layer that starts from the encoder finds one there of its own number, kind and size.

    Raises:
        SpecError: there is none, or another.
    """
    if len(streams) < 2:  # noqa: PLR2004 - an encoder and a decoder
        return
    takers = list(
        islice((part for part in _recurrent(streams[1]) if part.component.start == "encoder"), MOST_BLOCKS + 1)
    )
    if len(takers) > MOST_BLOCKS:
        raise source.error(
            ("decoder",), f"more than {MOST_BLOCKS:,} of its layers start from the encoder; write a smaller spec"
        )
    givers = list(islice(_recurrent(streams[0]), len(takers)))
    for number, part in enumerate(takers):
        here = _state(part)
        there = _state(givers[number]) if number < len(givers) else f"none: it has {len(givers)}"
        if here != there:
            path = tuple(int(word) if word.isdigit() else word for word in part.path.partition("@")[0].split("."))
            raise source.error(
                (*path, "start"),
                f"expected the encoder's recurrent layer {number + 1} to be as here, {here}; got {there}",
            )


def _recurrent(stream: Stream) -> Iterator[Any]:
    """The parts of its recurrent layers, in the order they run."""
    for stage in stream.stages:
        found = [[part for part in block.parts if _takes_state(part.component)] for block in stage.blocks]
        for index in stage.order if any(found) else ():
            yield from found[index]


def _takes_state(component: Component) -> bool:
    return isinstance(component, Mixer) and component.takes_state


def _state(part: Any) -> str:
    return f"{part.component.label()} of {part.component.units(part.place)}"


def check_pooled(spec: Spec, source: Source, layers: Iterable[Component]) -> None:
    """A head that pools a distillation token, where none of its stream's `layers` brings one.

    Raises:
        SpecError: it would take another extra token for it.
    """
    pools = spec.head is not None and spec.head.distilled
    if pools and not any(isinstance(layer, Embed) and layer.distillation for layer in layers):
        raise source.error(
            ("head", "pool"), "there is no distillation token to pool; add {kind: distillation_token} to `embed`"
        )


def check_entrance(path: YamlPath, components: list[Any], entry: AnyInput, source: Source) -> None:
    """The first step of `embed` takes the input as it is, and no other step does; vectors are tokens already.

    Raises:
        SpecError: another component stands first, or such a component stands later.
    """
    first = components[0].takes if components else ("embedded",)
    if entry.gives not in first:
        fits = [component for component in EMBEDS.values() if entry.gives in component.takes]
        fit = " or ".join(f"{{kind: {tag_of(component)}, …}}" for component in fits)
        if entry.gives == "embedded":
            fit = "{kind: projection}, or another step that takes vectors,"
        here = f", and {tag_of(type(components[0]))!r} comes first" if components else ""
        kind = tag_of(type(entry))
        raise source.error((*path, 0), f"the input is of kind {kind!r}{here}; expected {fit} as the first step")
    for number, component in enumerate(components):
        if number and "embedded" not in component.takes:
            raise source.error((*path, number), f"{tag_of(type(component))!r} can only be the first step of `embed`")
