"""Where the presets are, and their names."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def gallery() -> Path:
    """The folder of the presets: inside the package when installed, at the top of a checkout otherwise."""
    inside = Path(__file__).parents[1] / "specs"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "specs"


@cache
def preset_paths() -> dict[str, str]:
    """Preset name -> file: one preset needs no order."""
    folders = [entry.path for entry in os.scandir(gallery()) if entry.is_dir()]
    files = (os.path.join(folder, name) for folder in folders for name in os.listdir(folder) if name.endswith(".yaml"))
    return {os.path.basename(file).removesuffix(".yaml"): file for file in files}


def is_preset(name: str) -> bool:
    """Is it the very name of a preset, or of a mechanism whose preset is `common-…`?"""
    return not {name, f"common-{name}"}.isdisjoint(preset_paths())
