"""The last states of an encoder's recurrent layers, from which the decoder's layers start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from xfcost.counting.storage import Storage
from xfcost.formulas.component import Mixer
from xfcost.ledger.tensors import of_encoder
from xfcost.spec.architecture import Architecture, Part, Stage


class HandedStates:
    """The tensors of the encoder's recurrent layers by name, in the order in which the layers run."""

    def __init__(self, architecture: Architecture) -> None:
        self.any = any(_starts_from_encoder(labelled.part.component) for labelled in architecture.parts())
        self._layers: deque[dict[str, Storage]] = deque()

    def separately(self, stage: Stage) -> Iterator[Part]:
        """The parts of all blocks as they run: no block begins like another where each has a state of its own."""
        for index in stage.order:
            yield from stage.blocks[index].parts

    def given(self, component: Any) -> Mapping[str, Storage]:
        """The tensors of the encoder's layer that a layer starts from."""
        return self._layers.popleft() if _starts_from_encoder(component) else {}

    def keep(self, component: Any, scope: Mapping[str, Storage]) -> None:
        """Keep what the rows of a recurrent layer wrote."""
        if self.any and isinstance(component, Mixer) and component.takes_state:
            self._layers.append({of_encoder(name): storage for name, storage in scope.items()})


def _starts_from_encoder(component: Any) -> bool:
    return isinstance(component, Mixer) and component.takes_state and getattr(component, "start", None) == "encoder"
