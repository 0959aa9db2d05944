"""Runs held against budgets: `xfcost check`, and the table `[tool.xfcost]` of a pyproject.toml."""
