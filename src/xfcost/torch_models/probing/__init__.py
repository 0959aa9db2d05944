"""The probed account of a spec: its rows, on grids small enough to probe, compared with what their running leaves read."""
