"""One component at its place: checked there, its tables of weights collected that several share by name."""

from __future__ import annotations

import msgspec

from xfcost.formulas.component import Component, Joining, Place, SubLayer
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.spec.architecture import Part
from xfcost.spec.checks import check_decoding, check_sum
from xfcost.spec.reader import Source, YamlPath
from xfcost.spec.run import Run


class ComponentPlacer:
    """Places the components of one spec in one run."""

    def __init__(self, source: Source, run: Run, *, fused: bool) -> None:
        self.source, self.run = source, run
        self.fused = fused
        """Is attention one fused kernel?"""
        self.tables: dict[str, tuple[int, int]] = {}
        """Shared tables: name -> (rows, columns)."""
        self.bound_tables: set[str] = set()
        """Shared tables whose shapes depend on the input size."""
        self._table_paths: dict[str, YamlPath] = {}
        self.encoder_output: tuple[Grid, int] | None = None
        """Grid and width that the decoder's cross-attention reads."""
        self.errors: list[SpecError] = []
        """Misplaced sub-layers, reported together."""

    def part(self, path: YamlPath, component: Component, place: Place, residual: Joining = "none") -> Part:
        """The component at its place.

        Raises:
            SpecError: it can't be there.
        """
        try:
            component.check(place)
            if self.run.mode == "decode" and path[0] != "encoder":
                check_decoding(component, place, residual)
        except ComponentError as error:
            raise self.source.error((*path, error.field), error.message) from None
        self._add_tables(path, component, place)
        return Part(".".join(map(str, path)), component, place, residual)

    def _add_tables(self, path: YamlPath, component: Component, place: Place) -> None:
        """Add the shared tables of `component`.

        Raises:
            SpecError: another component shares a table in another shape.
        """
        for name, shape in component.tables(place).items():
            first_shape = self.tables.setdefault(name, shape)
            first_path = self._table_paths.setdefault(name, path)
            if first_shape != shape:
                raise self.source.error(
                    (*path, "share"),
                    f"the table {name!r} is {sides_text(first_shape)} at {self.source.where(first_path)} and "
                    f"{sides_text(shape)} here; shared tables must agree",
                )
            if component.binds_tables:
                self.bound_tables.add(name)

    def sublayer(self, path: YamlPath, component: SubLayer, place: Place, residual: Joining) -> Part | None:
        """The sub-layer at its place; None where it can't be there and the error is reported with later ones.

        Raises:
            SpecError: it can't be there, and no sub-layer behind it can be checked.
        """
        decoder = path[0] == "decoder"
        memory, memory_dim = self.encoder_output if decoder and self.encoder_output else (None, None)
        place = msgspec.structs.replace(place, memory=memory, memory_dim=memory_dim, fused=self.fused)
        own_residual = component.residual if component.residual is not None else residual
        try:
            part = self.part(path, component.with_stream_defaults(decoder=decoder), place, own_residual)
        except SpecError as error:
            if not self._next_is_checkable(component):
                raise
            self.errors.append(error)
            return None
        check_sum(path, part, self.source)
        return part

    def _next_is_checkable(self, component: SubLayer) -> bool:
        """Can the sub-layers behind a misplaced one still be checked? At the spec's own size, if it keeps the shape."""
        own_size = self.run.tokens is None and self.run.size is None and self.run.scale == (1, 1)
        return own_size and self.run.mode != "decode" and type(component).out is SubLayer.out and not component.widens
