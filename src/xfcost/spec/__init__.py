"""YAML -> Architecture: reading, the grammar, presets and `extends`, and the placement of components."""
