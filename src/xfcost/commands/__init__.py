"""One verb per file; the docstring of its `run` is its help."""
