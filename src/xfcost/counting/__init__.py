"""Architecture -> Ledger in closed form: a forward, a decode step, generation, training; comparisons and sweeps."""
