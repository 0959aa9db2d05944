"""Published figures that aren't ours rounded to their last digit: one file per family, each with its PUBLISHED."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from published.judged import Judged

PUBLISHED: Judged = {}
for _module in iter_modules(__path__):
    PUBLISHED |= getattr(import_module(f"{__name__}.{_module.name}"), "PUBLISHED", {})
