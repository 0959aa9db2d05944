"""A local config.json of transformers -> a spec. One file per family; `families.py` is the written list of them.

    config.json ──file──► fields ──family──► draft ──writer──► spec.yaml

A family is a frozen struct: its fields are the config's, with transformers' defaults, and what they may be is what the
grammar carries. Whatever it doesn't carry is refused by the field's name. Neither torch nor transformers is imported.
"""

from xfcost.importing.convert import Imported, imported

__all__ = ["Imported", "imported"]
