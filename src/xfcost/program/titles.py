"""Titles and symbols of leaves by name, where most kinds call them alike; a kind's own `titles` come before these."""

from typing import Final

TITLES: Final = {
    "act": "Activation",
    "down": "Down-projection",
    "fc1": "MLP up-projection",
    "fc2": "MLP down-projection",
    "gate": "Gate projection",
    "glu": "Gated linear unit",
    "linear": "Linear map",
    "residual_add": "Residual add",
    "residual_layer_scale": "LayerScale",
    "residual_projection": "Projection of the residual stream",
    "residual_rejoin": "Extra tokens back before the others",
    "up": "Up-projection",
}
# What stands in a diagram instead of the title.
SYMBOLS: Final[dict[str, str]] = {}
