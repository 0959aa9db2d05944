"""Tables of weights that several components share by name."""

from __future__ import annotations

from xfcost.formulas.component import Component, Place
from xfcost.ledger.grid import sides_text
from xfcost.spec.reader import Source, YamlPath


class SharedTables:
    """The shared tables of a spec, collected component by component."""

    def __init__(self, source: Source) -> None:
        self.shapes: dict[str, tuple[int, int]] = {}
        """Name -> (rows, columns)."""
        self.bound: set[str] = set()
        """Tables whose shapes depend on the input size."""
        self._source = source
        self._first_paths: dict[str, YamlPath] = {}

    def add(self, path: YamlPath, component: Component, place: Place) -> None:
        """Add the tables of `component`.

        Raises:
            SpecError: another component shares the table in another shape.
        """
        for name, shape in component.tables(place).items():
            first_shape = self.shapes.setdefault(name, shape)
            first_path = self._first_paths.setdefault(name, path)
            if first_shape != shape:
                raise self._source.error(
                    (*path, "share"),
                    f"the table {name!r} is {sides_text(first_shape)} at {self._source.where(first_path)} and "
                    f"{sides_text(shape)} here; shared tables must agree",
                )
            if component.binds_tables:
                self.bound.add(name)
