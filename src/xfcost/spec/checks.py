"""Checks of a whole spec: streams, inputs, heads, decoding, residual sums, reversible stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from xfcost.formulas.component import Component, Embed, Joining, Place, Residual, SubLayer, tag_of
from xfcost.layers import EMBEDS
from xfcost.ledger.errors import ComponentError, StreamsError
from xfcost.ledger.execution import Logits, Mode
from xfcost.ledger.kept import Kept
from xfcost.ledger.units import number_text
from xfcost.program.tape import Tape
from xfcost.spec.architecture import MOST_BLOCKS, PROMPTED, Part, Stream
from xfcost.spec.grammar import AnyInput, Spec
from xfcost.spec.reader import Source, YamlPath

if TYPE_CHECKING:
    from xfcost.spec.architecture import Part


def check_streams(spec: Spec, source: Source, tokens: tuple[int, ...] | None) -> None:
    """Raise SpecError where a spec has both `stages` and an encoder or decoder, or neither.

    Raise StreamsError where `tokens` are more than its streams.
    """
    named = [stream for stream in (spec.encoder, spec.decoder) if stream]
    if named and spec.stages:
        raise source.error(
            ("stages",), "can't be with `encoder`/`decoder`; expected either `stages` or the two streams"
        )
    if named and spec.embed:
        raise source.error(("embed",), "can't be with `encoder`/`decoder`; give each stream its own `embed`")
    if not named and not spec.stages:
        raise source.error((), "the key 'stages' is missing (or `encoder` and `decoder` in its place)")
    streams = len(named) or 1
    if tokens and len(tokens) not in (1, streams):
        given = ",".join(number_text(n) for n in tokens)
        expected = (
            "one stream of tokens; give one number (thousands: 1_000), or three and more"
            if streams == 1
            else "two streams of tokens; give one number or two"
        )
        raise StreamsError(f"--N {given}: {spec.name} has {expected}")


def check_reading(spec: Spec, source: Source, components: Iterable[Component]) -> None:
    """Raise SpecError where no sub-layer of a decoder, `components`, reads the encoder's output."""
    if spec.encoder and spec.decoder and not any(component.reads_memory for component in components):
        raise source.error(("decoder",), "no sub-layer reads the encoder's output; add {kind: cross, …} to a block")


def logits_of(spec: Spec, source: Source, mode: Mode, option: Logits | None) -> Logits:
    """The positions whose logits the head computes: of a prompt the last one, unless the option says otherwise.

    Raises:
        SpecError: the option is `last`, and the head does not predict the next token.
    """
    if spec.head is not None and spec.head.predicts_next:
        return (option or "last") if mode in PROMPTED else "all"
    if option == "last":
        raise source.error(
            () if spec.head is None else ("head", "kind"),
            "--logits last: the head does not predict the next token (`language_model` does), so no single position "
            "gives the answer; leave --logits out",
        )
    return "all"


@Kept
def check_decoding(component: Component, place: Place, residual: Joining) -> None:
    """Raise ComponentError where a component or its residual has no decode step."""
    component.check_decodes(place)
    if isinstance(residual, Residual) and residual.form == "reversible":
        raise ComponentError("residual", "--mode decode: a reversible residual has no decode step")
    if isinstance(residual, Residual) and residual.norm == "group_norm":
        raise ComponentError("residual", "--mode decode: a group norm averages over all tokens, later ones too")


@Kept
def check_continuing(component: Component, place: Place, residual: Joining) -> None:
    """Raise ComponentError where a component or its residual can't run behind a cached prefix."""
    component.check_continues(place)
    if isinstance(residual, Residual) and (residual.form == "reversible" or residual.norm == "group_norm"):
        raise ComponentError("residual", "--cached-prefix: such a residual runs on all tokens at once")


def check_sum(path: YamlPath, part: Part, source: Source) -> None:
    """Raise SpecError where x + f(x) is of two widths, unless the component changes x first."""
    component, place = part.component, part.place
    width = component.out(place)[1]
    if part.residual == "none" or width == place.dim:
        return
    tape = Tape()
    x = tape.input(place.grid.total, place.dim)
    if not isinstance(component, SubLayer) or component.skip(tape, x, x, place).shape[-1] != width:
        raise source.error(
            path,
            f"x is {place.dim} wide and f(x) {width}: they can't be added; write residual: none, or bring x to that "
            "width before",
        )


def check_starts(streams: Sequence[Stream], source: Source) -> None:
    """Raise SpecError where a recurrent layer that starts from the encoder has no counterpart of its size there."""
    if len(streams) < 2:  # noqa: PLR2004 - an encoder and a decoder
        return
    decoder_layers = list(
        islice((part for part in _recurrent(streams[1]) if part.component.start == "encoder"), MOST_BLOCKS + 1)
    )
    if len(decoder_layers) > MOST_BLOCKS:
        raise source.error(
            ("decoder",), f"more than {MOST_BLOCKS:,} of its layers start from the encoder; write a smaller spec"
        )
    encoder_layers = list(islice(_recurrent(streams[0]), len(decoder_layers)))
    for number, part in enumerate(decoder_layers):
        own = _state(part)
        encoder = (
            _state(encoder_layers[number]) if number < len(encoder_layers) else f"none: it has {len(encoder_layers)}"
        )
        if own != encoder:
            path = tuple(int(word) if word.isdigit() else word for word in part.path.partition("@")[0].split("."))
            raise source.error(
                (*path, "start"),
                f"expected the encoder's recurrent layer {number + 1} to be as here, {own}; got {encoder}",
            )


def _recurrent(stream: Stream) -> Iterator[Any]:
    """The recurrent layers of a stream, in the order in which they run."""
    for stage in stream.stages:
        layers = [[part for part in block.parts if part.component.takes_state] for block in stage.blocks]
        for index in stage.order if any(layers) else ():
            yield from layers[index]


def _state(part: Any) -> str:
    return f"{part.component.label()} of {part.component.units(part.place)}"


def check_pooled(spec: Spec, source: Source, layers: Iterable[Component]) -> None:
    """Raise SpecError where a head pools a distillation token that no layer of its stream adds."""
    pools = spec.head is not None and spec.head.distilled
    if pools and not any(isinstance(layer, Embed) and layer.distillation for layer in layers):
        raise source.error(
            ("head", "pool"), "there is no distillation token to pool; add {kind: distillation_token} to `embed`"
        )


def check_entrance(path: YamlPath, components: list[Any], entry: AnyInput, source: Source) -> None:
    """Raise SpecError where the first layer of `embed` doesn't take the raw input, or a later one does."""
    first = components[0].takes if components else ("embedded",)
    if entry.gives not in first:
        fitting = [component for component in EMBEDS.values() if entry.gives in component.takes]
        expected = " or ".join(f"{{kind: {tag_of(component)}, …}}" for component in fitting)
        if entry.gives == "embedded":
            expected = "{kind: projection}, or another step that takes vectors,"
        got = f", and {tag_of(type(components[0]))!r} comes first" if components else ""
        kind = tag_of(type(entry))
        raise source.error((*path, 0), f"the input is of kind {kind!r}{got}; expected {expected} as the first step")
    for number, component in enumerate(components):
        if number and "embedded" not in component.takes:
            raise source.error((*path, number), f"{tag_of(type(component))!r} can only be the first step of `embed`")


HALVES: Final = 2


def is_reversible(residual: Joining) -> bool:
    """Does each sub-layer read one of two streams and add to the other?"""
    return isinstance(residual, Residual) and residual.form == "reversible"


def check_residual(path: YamlPath, residual: Joining, source: Source) -> None:
    """Raise SpecError where a residual has a norm that can't be inverted, or `join` though there is one stream."""
    if not isinstance(residual, Residual):
        return
    if is_reversible(residual) and residual.place == "post":
        raise source.error(
            (*path, "place"),
            "'post' normalises the sum, from which a reversible block cannot recompute its input; expected 'pre' or "
            "'res_post'",
        )
    if residual.join is not None and not is_reversible(residual):
        raise source.error((*path, "join"), "applies only to two streams; leave it out, or give form: reversible")


def check_block(path: YamlPath, parts: Sequence[Part], residual: Joining, source: Source) -> None:
    """Raise SpecError where a sub-layer has another form of residual than its stage, `residual`.

    So it does where a reversible block isn't two sub-layers that keep grid and width.
    """
    reversible = is_reversible(residual)
    for number, part in enumerate(parts):
        if is_reversible(part.residual) != reversible:
            form = "'reversible'" if reversible else "'ordinary'"
            raise source.error(
                (*path, number, "residual"),
                f"the form of the residual is {form} here, as the stage says; it holds for all",
            )
        own = part.component.residual if isinstance(part.component, SubLayer) else None
        if own is not None:
            check_residual((*path, number, "residual"), own, source)
    if not reversible:
        return
    if len(parts) != HALVES:
        raise source.error(
            path,
            f"a reversible block is y₁ = x₁ + f(x₂), y₂ = x₂ + g(y₁): expected two sub-layers, got {len(parts)}",
        )
    for number, part in enumerate(parts):
        if part.component.special_tokens_only:
            raise source.error(
                (*path, number, "kind"),
                f"{tag_of(type(part.component))!r} changes the class token alone; reversible blocks add to every token",
            )
        if part.component.out(part.place) != (part.place.grid, part.place.dim):
            raise source.error(
                (*path, number, "kind"),
                f"{tag_of(type(part.component))!r} changes the grid or the width, and is added to the other stream, "
                "which keeps them",
            )
