"""YAML -> Architecture: reading, the grammar, presets and `extends`, and the placement of components."""

from xfcost.spec.architecture import Architecture, Block, Part, Stage, Stream
from xfcost.spec.grammar import Spec
from xfcost.spec.load import load, preset_names

__all__ = ["Architecture", "Block", "Part", "Spec", "Stage", "Stream", "load", "preset_names"]
