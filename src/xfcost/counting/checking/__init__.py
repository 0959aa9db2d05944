"""A run held against its budgets."""
