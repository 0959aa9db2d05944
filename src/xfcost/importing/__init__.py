"""Converts a local config.json of transformers into a spec. `convert.py` lists the families; `onnx_graphs/` reads ONNX.

    config.json ──file──► fields ──family──► draft ──writer──► spec.yaml

A family is a frozen struct. Its fields are the config's, with transformers' defaults; their types are the values that
a spec can express. Any other value is an error that names the field. Neither torch nor transformers is imported.
"""

from xfcost.importing.convert import ImportedSpec, import_config, listed_model, loaded_config

__all__ = ["ImportedSpec", "import_config", "listed_model", "loaded_config"]
