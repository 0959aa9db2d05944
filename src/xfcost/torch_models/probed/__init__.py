"""The probed account of a spec: its rows, on grids small enough to probe, held against their running modules."""
