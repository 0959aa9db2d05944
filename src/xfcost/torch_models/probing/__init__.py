"""The probed account of a spec: what its rows declare, beside what their running leaves read on small grids."""
