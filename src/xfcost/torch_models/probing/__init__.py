"""The probed account by row: the tokens that each operation of a running module reads."""
