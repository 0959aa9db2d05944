"""Architecture -> Ledger in closed form: a forward, a decode step, generation; the reach of a token."""
