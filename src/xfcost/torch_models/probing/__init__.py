"""The probed account, row by row: what every operation of a running module reads."""
