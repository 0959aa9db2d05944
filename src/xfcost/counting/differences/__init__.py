"""How two runs differ: their operations side by side, what each change costs, and what can't be compared."""
