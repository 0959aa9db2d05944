"""Compares a whole mixer with its running module: the tokens it reads, their pairs, and their number in letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.letters import Polynomial, form_of
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.recurrent import Recurrent
from xfcost.program.residual import component_rows
from xfcost.torch_models.mixing.perturb import InputUnits, influences

# Of a wider component, fewer tokens are changed, one after the other.
MOST_MACS: Final = 2**35
# More pairs than that are not listed.
MOST_PAIRS: Final = 2**21
# A letter in a text such as `N/R²`, with its power and its stroke.
_FACTOR: Final = re.compile(r"/?√?[^\W\d_][²³]?")


def pattern_differences(mixer: Mixer, place: Place, module: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[str]:
    """Texts about tokens that `mixer` declares to read at `place` and `module` does not, or more; and about pairs."""
    memory, grid = _memory(mixer, place), place.grid
    yield from _pairs_differences(mixer, place)
    if mixer.content_selects_tokens:  # `reads` then lists the candidates
        return
    declared = [set(tokens) for tokens in _listed_reads(mixer, place)]
    work = 6 * (memory or grid).total * sum(row.macs for row in component_rows(mixer, place))
    changed = range(0, (memory or grid).total, 1 + work // MOST_MACS)
    found = tokens_read(module, inputs, 1 if memory else 0, changed, mixer.observed(place).rounding)
    same_tokens = memory is None and mixer.out(place)[0] == grid
    for token, (tokens, seen) in enumerate(zip(declared, found, strict=True)):
        read = tokens & set(changed)
        if same_tokens and tokens and token not in tokens:
            seen.discard(token)  # its query chooses among the others
        if read != seen:
            yield f"token {token} of {grid.shape_text()}: declared to read {_listed(read)}; reads {_listed(seen)}"
            return


def _memory(mixer: Mixer, place: Place) -> Grid | None:
    """The memory, where its tokens are read; a recurrence may take only its first state from there."""
    only_starts = isinstance(mixer, Recurrent) and mixer.attend is None
    return place.memory if mixer.reads_memory and not only_starts else None


def _listed_reads(mixer: Mixer, place: Place) -> Iterator[Sequence[int]]:
    """The tokens that each output token is declared to read."""
    outputs = place.grid.special if mixer.special_tokens_only else mixer.out(place)[0].total
    return (mixer.reads(place.grid, token, _memory(mixer, place)) for token in range(outputs))


def _pairs_differences(mixer: Mixer, place: Place) -> Iterator[str]:
    pairs, listed = mixer.pairs(place.grid, _memory(mixer, place)), sum(map(len, _listed_reads(mixer, place)))
    if pairs != listed:
        yield f"pairs of {place.grid.shape_text()} tokens: declared {pairs:,}; reads lists {listed:,}"


def tokens_read(
    module: nn.Module, inputs: tuple[Tensor, ...], which: int, changed: range, rounding: float
) -> list[set[int]]:
    """For each output token of `module`, those of the tokens `changed` of `inputs[which]` whose change changes it."""
    noise = torch.Generator().manual_seed(0)
    sample = [torch.randn(one.shape, generator=noise, dtype=torch.float64) for one in inputs]

    def run(x_BND: Tensor) -> list[Tensor]:
        given = [one.expand(len(x_BND), *one.shape[1:]) for one in sample]
        return [module(*given[:which], x_BND, *given[which + 1 :])]

    units = InputUnits((1,), sample[which].shape[1:2], (1,))
    with torch.no_grad():
        (read_NM,) = influences(run, sample[which], units, [(1,)], noise, rounding, changed, changes=3)
    return [{changed[index] for index in row.nonzero()[0].tolist()} for row in read_NM]


def _listed(tokens: set[int]) -> str:
    return ", ".join(map(str, sorted(tokens))) or "none"


def declared_differences(mixer: Mixer, place: Place) -> Iterator[str]:
    """Rows whose text of the tokens read, such as `W²`, has other letters than their number; and pairs at full size."""
    if mixer.pairs(place.grid, _memory(mixer, place)) <= MOST_PAIRS:
        yield from _pairs_differences(mixer, place)
    letters = mixer.observed(place).letters
    lettered, lettered_place = mixer.in_letters(place)
    for row in component_rows(lettered, lettered_place):
        form = form_of(row.reads_tokens or 0)
        terms = {factor for powers in form.terms for factor in _factors(Polynomial({powers: 1}))}
        if row.mixes and terms:  # a number without letters is one of the mechanism, not of a field
            text = row.reads or ""
            for letter, in_form in letters.items():
                text = text.replace(letter, in_form)
            if not _factors(form) <= set(_FACTOR.findall(text)) <= terms:
                yield f"{row.path}: reads {row.reads} is declared; its number is {form.order()[2:-1]} in letters"


def _factors(form: Polynomial) -> set[str]:
    return set(_FACTOR.findall(form.order()[2:-1]))
