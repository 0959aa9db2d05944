"""`xfcost plot`: growth with N, and the throughput of devices."""
