"""The probed account of a spec: what its rows declare, compared with what their running leaves read on small grids."""
