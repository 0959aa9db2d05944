"""One file per mechanism, under its component's file name; the written list decides which there must be."""

from __future__ import annotations

import importlib

from cases.base import MechanismCase
from xfcost.formulas.component import Mixer
from xfcost.mechanisms import MECHANISMS

# A mechanism of the written list without a file here stops every test: it has no contract.
CASES: dict[type[Mixer], MechanismCase] = {}
for _mechanism in MECHANISMS.values():
    _file = importlib.import_module(f"cases.{_mechanism.__module__.rpartition('.')[2]}")
    CASES[_mechanism] = _file.CASE
