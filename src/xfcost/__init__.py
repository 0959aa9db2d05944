"""xfcost: what an architecture costs, where the cost sits, how it grows with N, and whether the answer is true."""
